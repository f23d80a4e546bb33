"""Texts from any source: as many come out as there are lines, rows or items, or our error says why not."""

import csv
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import peak_of
from pellucid.errors import CorpusError
from pellucid.index.records import read_documents
from pellucid.lexicon.training_data import read_training_sets
from pellucid.static.folder import read_text_vectors
from pellucid.static.training.parallel import read_parallel
from pellucid.text import CorpusFile, delimited, lines, tables
from pellucid.text.lines import read_lines
from pellucid.text.tables import is_path, read_texts

PACK = {"": bytes, ".xz": lzma.compress, ".gz": gzip.compress}
TEXTS = ["the apple", "", "a\u2028b\u0085c\x0cd\x1ce", " pear ", "", "école"]


def _write(path: Path, texts: list[str | None]) -> Path:
    """Write texts in the form that the name of the file says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), path, row_group_size=3)
        return path
    as_json = ".jsonl" in path.suffixes
    lines = [json.dumps(text, ensure_ascii=False) if as_json else text or "" for text in texts]
    path.write_bytes(PACK.get(path.suffix, bytes)("".join(f"{line}\n" for line in lines).encode()))
    return path


@pytest.mark.parametrize("name", ["t.txt", "t.txt.gz", "t.txt.xz", "t.jsonl", "t.jsonl.gz", "t.jsonl.xz", "t.parquet"])
def test_as_many_texts_come_out_as_went_in(tmp_path, name):
    assert list(read_texts(_write(tmp_path / name, [*TEXTS, None, "end"]))) == [*TEXTS, "", "end"]
    assert list(read_texts(_write(tmp_path / name, []))) == []
    assert list(read_texts(_write(tmp_path / name, [None]))) == [""]


def test_blank_and_null_rows_of_json_lines_are_empty_texts(tmp_path):
    (tmp_path / "t.jsonl").write_text('"a"\n\n  \nnull\n{"text": null}\r\n{"text": "", "n": 1}\n{"text": "b"}')
    assert list(read_texts(tmp_path / "t.jsonl")) == ["a", "", "", "", "", "", "b"]


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"", []),
        (b"\xef\xbb\xbf", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\r", ["a"]),
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"a\r\r\nb\rc\n", ["a", "", "b", "c"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", ["a", "\ufeffb"]),
        (b"a\0b\ncdefgh\n", ["a\0b", "cdefgh"]),
    ],
)
def test_lines_of_a_file_and_of_a_stream_are_the_same(tmp_path, content, texts):
    for ending, pack in PACK.items():
        (tmp_path / f"t.txt{ending}").write_bytes(pack(content))
        assert list(read_texts(tmp_path / f"t.txt{ending}")) == texts
    assert list(read_lines(io.BytesIO(content), "stdin")) == texts


class _Drops(io.BytesIO):
    """Gives out a few bytes at a time, as a slow pipe does."""

    def read1(self, size: int | None = -1) -> bytes:
        return super().read1(3)


@given(st.lists(st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]))))
def test_where_the_chunks_end_changes_nothing(texts):
    content = "x\n" + "".join(text + "\n" for text in texts)
    expected = content.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]
    assert list(read_lines(_Drops(content.encode()), "stdin")) == expected


@pytest.mark.parametrize(
    ("name", "content", "read", "expected"),
    [
        ("t.jsonl", b'"a"\n', lambda path: list(read_texts(path)), ["a"]),
        ("p.tsv", b"en\tde\na\tb\n", lambda path: list(read_parallel(path, ("en", "de"))), [("a", "b")]),
        ("v.txt", b"a 1 0\nb 0 1\n", lambda path: read_text_vectors(path)[0], ["a", "b"]),
        ("rows.jsonl", b'{"query": "a", "pos": ["b"]}\n',
         lambda path: read_training_sets(path)[0].rows[0].query, "a"),
    ],
)  # fmt: skip
def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path, name, content, read, expected):
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + content)
    assert read(tmp_path / name) == expected


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_byte_order_mark_says_the_encoding_and_without_one_it_is_named(tmp_path, encoding):
    (tmp_path / "t.txt").write_bytes("\ufeffthe apple\na p\u00eachr\n".encode(encoding))
    assert list(read_texts(tmp_path / "t.txt")) == ["the apple", "a p\u00eachr"]
    (tmp_path / "t.txt").write_bytes("the apple\na p\u00eachr\n".encode(encoding))
    with pytest.raises(CorpusError, match=rf"t\.txt is UTF-16, UTF-32 or not a text; .*--encoding {encoding}"):
        list(read_texts(tmp_path / "t.txt"))
    assert list(CorpusFile(tmp_path / "t.txt", encoding=encoding)) == ["the apple", "a p\u00eachr"]


DEEP = [
    line
    for depth in (100, 600, 900, 980, 1_000, 100_000)
    for nested in ["[" * depth + "]" * depth]
    for line in (nested, f'{{"text": {nested}}}', '{"text": ' * depth + "1" + "}" * depth)
]


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("none.txt", lambda path: None, r"corpus file not found: .*none\.txt"),
        ("folder.txt", lambda path: path.mkdir(), r"folder\.txt is a folder"),
        ("a.doc", lambda path: path.write_text("a,b\n"),
         r"cannot tell the format of .*a\.doc; pellucid reads \.txt \(one text a line\)"),
        ("half.txt.gz", lambda path: path.write_bytes(gzip.compress(b"the apple\n" * 100)[:-12]),
         r"half\.txt\.gz is damaged or cannot be read after line \d+: Compressed file ended"),
        ("half.txt.xz", lambda path: path.write_bytes(lzma.compress(b"the apple\n" * 100)[:-30]),
         r"half\.txt\.xz is damaged or cannot be read after line \d+: Compressed file ended"),
        ("none.jsonl.gz", lambda path: path.touch(), r"none\.jsonl\.gz is empty, which no packed file is"),
        ("bytes.txt", lambda path: path.write_bytes(b"good\nb\xff\n"),
         r"bytes\.txt, line 2 is not UTF-8: invalid start byte"),
        ("field.jsonl", lambda path: path.write_text('{"text": "a"}\n\n{"txt": "b"}\n'),
         r"field\.jsonl, line 3: no field 'text'"),
        ("number.jsonl", lambda path: path.write_text('"a"\n5\n'),
         r"number\.jsonl, line 2: the line holds a number, 5, and no text"),
        ("deep.jsonl", lambda path: path.write_text("[" * 100_000 + "\n"),
         r"deep\.jsonl, line 1: not JSON .nested too deeply"),
        ("digits.jsonl", lambda path: path.write_text(f'{{"text": "a", "n": {"9" * 5000}}}\n'),
         r"digits\.jsonl, line 1: not JSON .a number has too many digits"),
        ("words.parquet", lambda path: path.write_text("the apple"),
         r"words\.parquet is damaged or not a parquet file"),
        ("numbers.parquet", lambda path: pq.write_table(pa.table({"text": [1, 2]}), path),
         r"numbers\.parquet, row 1: 'text' holds a number, 1, and no text. Use --field NAME"),
        ("binary.parquet", lambda path: pq.write_table(pa.table({"text": [b"\xff", b"a"]}), path),
         r"binary\.parquet, row 1: 'text' holds bytes, b'\\xff', and no text"),
        ("other.parquet", lambda path: pq.write_table(pa.table({"title": ["a"]}), path),
         r"other\.parquet has no column 'text'; it has title"),
        ("long.parquet", lambda path: _write(path, ["0123456789" * 200, "0123456789" * 200 + "x"]),
         r"long\.parquet, row 2 is longer than 2,000 characters"),
        ("t.parquet", os.mkfifo, "is a pipe or device"),
        ("zero.txt", lambda path: path.symlink_to("/dev/zero"), "zero.txt is UTF-16, UTF-32 or not a text"),
        *(("c.jsonl", lambda path, line=line: path.write_text(line + "\n"), r"c\.jsonl, line 1: ") for line in DEEP),
        ("c.csv", lambda path: path.write_text("id,text,text\n1,a,b\n"), r"c\.csv has several columns 'text'"),
        ("y.csv.zip", lambda path: path.write_bytes(b"PK no zip"),
         r"y\.csv\.zip cannot be read: File is not a zip file"),
    ],
)  # fmt: skip
def test_what_is_no_corpus_is_named(tmp_path, monkeypatch, name, make, message):
    monkeypatch.setattr(lines, "MAX_TEXT_CHARS", 1 << 20)
    monkeypatch.setattr(tables, "MAX_TEXT_CHARS", 2000)
    make(tmp_path / name)
    with pytest.raises(CorpusError, match=message):
        list(read_texts(tmp_path / name))
    if name == "c.jsonl":
        with pytest.raises(CorpusError, match=message):
            list(CorpusFile(tmp_path / name, id_field="text").texts_with_ids())


def test_what_is_empty_or_no_file_is_read_or_named():
    assert list(read_texts("/dev/null")) == []
    with pytest.raises(CorpusError, match=r"corpus item 1 is NoneType \(None\); every text must be a str"):
        list(read_texts(["a", None]))


def test_a_damaged_page_in_the_middle_is_told_with_what_was_read(tmp_path):
    path = tmp_path / "t.parquet"
    table = pa.table({"text": [f"text {i}" for i in range(2000)]})
    pq.write_table(table, path, row_group_size=500, use_dictionary=False, compression="none", write_page_checksum=True)
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(b"text 1200")] = 0xFF
    path.write_bytes(damaged)
    texts = read_texts(path)
    assert next(texts) == "text 0"
    with pytest.raises(CorpusError, match=r"t\.parquet, after row \d+, is damaged"):
        list(texts)


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_a_line_without_end_does_not_fill_memory(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(lines, "MAX_TEXT_CHARS", 1 << 20)
    pack = PACK.get(ending, bytes)
    (tmp_path / f"t.txt{ending}").write_bytes(pack(b"good\n" + b"\xc3\xa9" * (1 << 19) + b"\n"))
    assert [len(text) for text in read_texts(tmp_path / f"t.txt{ending}")] == [4, 1 << 19]
    (tmp_path / f"t.txt{ending}").write_bytes(pack(b"good\n" + b"x" * ((1 << 20) + 1) + b"\n"))
    with pytest.raises(CorpusError, match=r"t\.txt.*, line 2 is longer than 1,048,576 characters"):
        list(read_texts(tmp_path / f"t.txt{ending}"))
    (tmp_path / f"t.txt{ending}").write_bytes(pack(b"x" * (1 << 24)))

    def read() -> None:
        with pytest.raises(CorpusError, match="line 1 is longer"):
            list(read_texts(tmp_path / f"t.txt{ending}"))

    assert peak_of(read) < 12 << 20  # the window of xz is 8 MB


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.filterwarnings("ignore:.*quotation marks")
@pytest.mark.parametrize(
    ("name", "content", "read", "expected"),
    [
        ("pipe", b"a\n\nb\n", read_texts, ["a", "", "b"]),
        ("p.jsonl.gz", gzip.compress(b'"a"\nnull\n"b"\n', mtime=0), read_texts, ["a", "", "b"]),
        ("p.tsv", b'id\ttext\tn\n1\t"a\t5\n2\tb"\t6\n', read_documents,
         [("1", "", '"a', {"n": 5}), ("2", "", 'b"', {"n": 6})]),
    ],
)  # fmt: skip
def test_a_named_pipe_is_read_once_and_as_its_name_says(tmp_path, name, content, read, expected):
    os.mkfifo(tmp_path / name)
    writer = threading.Thread(target=(tmp_path / name).write_bytes, args=(content,))
    writer.start()
    assert not is_path(tmp_path / name) and is_path(tmp_path / "t.txt") and not is_path(["a"])
    assert [row if isinstance(row, str) else row[:4] for row in read(tmp_path / name)] == expected
    writer.join()


@pytest.mark.parametrize("name", ["c.csv", "c.parquet"])
def test_other_columns_may_have_one_name(tmp_path, name):
    (tmp_path / "c.csv").write_text("id,text,,\n1,a,,\n")  # as spreadsheets write empty columns
    pq.write_table(pa.table([pa.array(["a"])] * 3, names=["x", "x", "text"]), tmp_path / "c.parquet")
    assert list(read_texts(tmp_path / name)) == ["a"]


# --- Limits -----------------------------------------------------------------------------------------------------------


def test_cells_longer_than_the_csv_module_allows(tmp_path):
    csv.field_size_limit(1 << 17)
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("text\nshort\n" + "x" * 200_000 + "\n")
    first, second = (iter(CorpusFile(tmp_path / f"{name}.csv")) for name in "ab")
    assert next(first) == next(second) == "short" and len(next(first)) == len(next(second)) == 200_000


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "start", "repeated"),
    [("x.jsonl.gz", b"", b"\n"), ("x.jsonl.gz", b"", b" \r\n"), ("x.txt.gz", b"", b"\n"),
     ("x.csv.gz", b"a,text\n", b"\n"), ("x.csv.xz", b'a,text\n1,"', b"a\n"), ("x.json.gz", b"[", b" \n")],
)  # fmt: skip
def test_packed_files_of_nearly_nothing_end_soon(tmp_path, name, start, repeated):
    """In a process of its own, whose memory is that of reading alone; read to the end, the slowest takes a minute."""
    (tmp_path / name).write_bytes(PACK[name[-3:]](start + repeated * ((64 << 20) // len(repeated))))
    script = (
        "import resource, sys, time\n"
        "from pellucid.errors import CorpusError\n"
        "from pellucid.index.records import read_documents\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
        "before, begun = peak(), time.process_time()\n"
        "try: list(read_documents(sys.argv[1]))\n"
        "except CorpusError: print(time.process_time() - begun, peak() - before)\n"
    )
    command, paths = [sys.executable, "-c", script, tmp_path / name], os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths})
    seconds, megabytes = map(float, done.stdout.split())
    assert seconds < 20 and megabytes < 300


def test_long_cells_and_items_are_refused_before_memory_is_filled(tmp_path, monkeypatch):
    for module in (lines, delimited):
        monkeypatch.setattr(module, "MAX_TEXT_CHARS", 1000)
    csv.field_size_limit(1000)
    (tmp_path / "x.csv").write_text('text\n"' + "a\n" * 2000 + '"\n')
    with pytest.raises(CorpusError, match=r"line 2: a quotation mark opens a cell, and none closes it within 1,000"):
        list(CorpusFile(tmp_path / "x.csv"))
    monkeypatch.setattr(tables, "_MAX_JSON_CHARS", 1000)
    (tmp_path / "x.jsonl").write_text('{"text": "a", "n": [' + "1," * 5_000_000 + "1]}\n")
    monkeypatch.setattr(lines, "MAX_TEXT_CHARS", 1 << 26)
    with pytest.raises(CorpusError, match=r"x\.jsonl, line 1: more than 4,000,000 values; divide it"):
        list(CorpusFile(tmp_path / "x.jsonl"))
    (tmp_path / "x.json").write_text("[\n" + '"a",\n' * 400 + '"b"]')
    with pytest.raises(CorpusError, match=r"x\.json.* is longer than 1,000 characters.*write JSON lines"):
        list(CorpusFile(tmp_path / "x.json"))


def test_a_long_text_of_a_json_array_takes_no_longer_than_its_characters(tmp_path):
    items = ["a" * 3_000_000, *(f"a small document with number {n:07d}" for n in range(30_000))]
    (tmp_path / "x.json").write_text(json.dumps(items, indent=0))
    begun = time.process_time()
    assert list(CorpusFile(tmp_path / "x.json")) == items
    assert time.process_time() - begun < 5


def test_archives(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("folder/rows.csv", "text\na\n")
        archive.writestr("__MACOSX/folder/._rows.csv", "junk")
    assert list(CorpusFile(tmp_path / "x.zip")) == ["a"]
    with zipfile.ZipFile(tmp_path / "x.zip", "a") as archive:
        archive.writestr("more.csv", "text\nb\n")
    with pytest.raises(CorpusError, match=r"holds 2 files \(folder/rows.csv, more.csv\); unpack it"):
        list(CorpusFile(tmp_path / "x.zip"))
