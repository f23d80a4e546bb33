"""Copies of rows keep format, header, quoting, encoding and line ends; hostile files end soon and in little memory."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import time
import tracemalloc
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from pellucid import CorpusFile, duplicates
from pellucid.bulk import write_kept
from pellucid.cli.app import app
from pellucid.errors import CorpusError, InputError
from pellucid.text import lines
from pellucid.text.copies import check_copy, copy_rows
from pellucid.text.json_rows import json_items

TEXTS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff"), max_size=8),
    min_size=1,
    max_size=8,
)
NAMES = ["x.csv", "x.tsv", "x.txt", "x.jsonl", "x.json", "x.ndjson", "x.parquet"]


def written(path, texts):
    frame = pd.DataFrame({"n": range(len(texts)), "text": texts, "note": [f"{text}!" for text in texts]})
    kind = next(suffix for suffix in path.suffixes)
    if kind in (".csv", ".tsv"):
        frame.to_csv(path, sep="\t" if kind == ".tsv" else ";", index=False, quoting=csv.QUOTE_ALL)
    elif kind == ".parquet":
        frame.to_parquet(path)
    elif kind == ".txt":
        frame["text"] = [text.replace("\n", " ") for text in texts]
        path.write_text("".join(f"{text}\n" for text in frame["text"]), encoding="utf-8", newline="")
    else:
        frame.to_json(path, orient="records", lines=kind != ".json", force_ascii=False)
    return frame


@given(TEXTS, st.integers(0, 255), st.sampled_from(NAMES))
def test_selected_rows_are_copied_with_all_their_columns(tmp_path_factory, texts, bits, name):
    folder = tmp_path_factory.mktemp("copies")
    frame = written(folder / name, texts)
    selected = np.array([bool(bits >> n & 1) for n in range(len(texts))])
    file = CorpusFile(folder / name)
    copy_rows(file, folder / f"y{name[1:]}", selected, folder / f"y{name[1:]}")
    copy = CorpusFile(folder / f"y{name[1:]}")
    rows = [row.values for row in copy.rows(is_quiet=True)]
    expected = frame[selected]
    if name == "x.txt":
        assert rows == expected["text"].tolist()
        return
    assert [row["text"] or "" for row in rows] == expected["text"].tolist()
    assert [row["note"] for row in rows] == expected["note"].tolist()
    if name in ("x.csv", "x.tsv"):
        first, second = ((folder / f"{own}{name[1:]}").read_bytes().partition(b"\n")[0] for own in "xy")
        assert first == second


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_encoding_mark_and_line_ends_stay(tmp_path, encoding, end):
    rows = ["sep=;", "id;text", '1;"a;b"', "2;café", '3;"two' + ("\n" if end == "\n" else end) + 'lines"', "4;d"]
    content = end.join(rows).encode(encoding)
    (tmp_path / "x.csv").write_bytes(content)
    file = CorpusFile(tmp_path / "x.csv", encoding=encoding if encoding == "cp1252" else None)
    every = np.ones(4, bool)
    copy_rows(file, tmp_path / "y.csv", every, tmp_path / "y.csv")
    assert (tmp_path / "y.csv").read_bytes() == content
    copy_rows(file, tmp_path / "y.csv", np.array([False, True, True, False]), tmp_path / "y.csv")
    assert (tmp_path / "y.csv").read_bytes() == (end.join([*rows[:2], *rows[3:5]]) + end).encode(encoding)


@pytest.mark.parametrize("packed", ["", ".gz", ".bz2", ".xz", ".zip"])
def test_duplicates_keep_a_table_with_its_header(tmp_path, fruit, packed):
    source, target = tmp_path / f"x.csv{packed}", tmp_path / f"y.csv{packed}"
    frame = pd.DataFrame(
        {"id": [1, 2, 3, 4], "text": ["apple", "car", "apple", "pear, car\nbicycle"], "n": [5, 6, 7, 8]}
    )
    frame.to_csv(source, index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_kept(source, duplicates(source, fruit), target)
    assert pd.read_csv(target).equals(frame.drop(2).reset_index(drop=True))
    with pytest.raises(InputError, match=r"is \.csv; end the name of .*y\.txt"):
        check_copy(CorpusFile(source), tmp_path / "y.txt")
    with pytest.raises(CorpusError, match="has 4 texts, and 3 were expected"):
        copy_rows(CorpusFile(source), target, np.ones(3, bool), target)


def test_the_command_keeps_rows_and_refuses_other_formats_first(tmp_path, fruit):
    fruit.save_pretrained(tmp_path / "fruit")
    (tmp_path / "x.csv").write_text("id,body\n1,apple\n2,car\n3,apple\n")

    def run(*arguments):
        return CliRunner().invoke(app, ["duplicates", *map(str, arguments), "-m", str(tmp_path / "fruit")])

    kept = run(tmp_path / "x.csv", "--field", "body", "--keep", tmp_path / "y.csv")
    assert kept.exit_code == 0 and "2 of 3 texts" in kept.stderr
    assert (tmp_path / "y.csv").read_text() == "id,body\n1,apple\n2,car\n"
    refused = run(tmp_path / "x.csv", "--field", "body", "--keep", tmp_path / "y.parquet")
    assert refused.exit_code == 1 and "x.csv is .csv; end the name of" in refused.stderr


# --- Limits ---


def test_the_limit_of_the_csv_module_is_left_alone(tmp_path):
    limit = csv.field_size_limit()
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("text\nshort\n" + "x" * 200_000 + "\n")
    first, second = (iter(CorpusFile(tmp_path / f"{name}.csv")) for name in "ab")
    assert next(first) == next(second) == "short" and csv.field_size_limit() == limit
    assert len(next(first)) == len(next(second)) == 200_000 and csv.field_size_limit() == limit


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "start", "repeated"),
    [("x.jsonl.gz", b"", b"\n"), ("x.jsonl.gz", b"", b" \r\n"), ("x.txt.gz", b"", b"\n"),
     ("x.csv.gz", b"a,text\n", b"\n"), ("x.csv.xz", b'a,text\n1,"', b"a\n"), ("x.json.gz", b"[", b" \n")],
)  # fmt: skip
def test_packed_files_of_nearly_nothing_end_soon(tmp_path, name, start, repeated):
    from pellucid.index.records import read_documents

    pack = {".gz": gzip.compress, ".xz": lzma.compress}[name[-3:]]
    content = start + repeated * ((200 << 20) // len(repeated))
    (tmp_path / name).write_bytes(pack(content))
    del content
    tracemalloc.start()
    begun = time.process_time()
    with pytest.raises(CorpusError):
        list(read_documents(tmp_path / name))
    assert time.process_time() - begun < 20
    assert tracemalloc.get_traced_memory()[1] < 300 << 20
    tracemalloc.stop()


def test_long_cells_and_items_are_refused_before_memory_is_filled(tmp_path, monkeypatch):
    from pellucid.text import delimited, json_rows

    for module in (lines, delimited, json_rows):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", 1000)
    (tmp_path / "x.csv").write_text('text\n"' + "a\n" * 2000 + '"\n')
    with pytest.raises(CorpusError, match=r"line 2: a quotation mark opens a cell, and none closes it within 1,000"):
        list(CorpusFile(tmp_path / "x.csv"))
    (tmp_path / "x.json").write_text('["' + "a" * 2_000_000 + '", "b"')
    with pytest.raises(CorpusError, match=r"item 1: not JSON, or one value of more than 1,000"):
        list(CorpusFile(tmp_path / "x.json"))


@pytest.mark.full
def test_an_array_of_json_is_read_an_item_at_a_time(tmp_path):
    with open(tmp_path / "x.json", "w") as file:
        file.write("[")
        file.writelines(f'{{"text": "text {n}", "n": {n}}},\n' for n in range(100_000))
        file.write('"end"]')
    tracemalloc.start()
    assert sum(1 for _ in CorpusFile(tmp_path / "x.json")) == 100_001
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(JSON, max_size=5), st.integers(1, 40), st.sampled_from([None, 2]), st.data())
def test_arrays_of_json_are_read_wherever_chunks_end(tmp_path_factory, values, size, indent, data):
    path = tmp_path_factory.mktemp("json") / "x.json"
    content = json.dumps(values, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        content.decode()
    except UnicodeDecodeError:
        content = json.dumps(values, indent=indent).encode()
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_CHUNK_BYTES", size)
        rows = [value for _, value in json_items(path, encoding=None, is_row=lambda row: True)]
    assert rows == values
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])  # cut
    try:
        list(json_items(path, encoding=None, is_row=lambda row: True))
    except CorpusError as error:
        assert "x.json" in str(error)


def test_archives(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("folder/rows.csv", "text\na\n")
        archive.writestr("__MACOSX/folder/._rows.csv", "junk")
    assert list(CorpusFile(tmp_path / "x.zip")) == ["a"]
    with zipfile.ZipFile(tmp_path / "x.zip", "a") as archive:
        archive.writestr("more.csv", "text\nb\n")
    with pytest.raises(CorpusError, match=r"holds 2 files \(folder/rows.csv, more.csv\); unpack it"):
        list(CorpusFile(tmp_path / "x.zip"))
    (tmp_path / "y.csv.zip").write_bytes(b"PK no zip")
    with pytest.raises(CorpusError, match=r"y\.csv\.zip cannot be read: File is not a zip file"):
        list(CorpusFile(tmp_path / "y.csv.zip"))
