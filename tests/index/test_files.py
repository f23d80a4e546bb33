"""Documents from files as people have them, and a sync: afterwards an index holds what the files hold, or as before."""

import json
import os
import random
import shutil
import warnings
from functools import partial
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commands import run_command as run
from files import written
from forking import at_once
from pellucid import CorpusFile, Index
from pellucid.errors import CorpusError, InputError
from pellucid.index.records import read_documents
from refusals import refused
from resuming import count_writes, stop_at_write


def read(path, note=None, **options):
    """The metadata of the documents of a file by id, and what is said."""
    notes = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        records = list(read_documents(CorpusFile(path, **options), note=notes.append))
    return {record.id: record.metadata for record in records}, notes + [str(w.message) for w in caught]


DATES = "'day' holds strings, such as {!r}. If they are dates: --date-format"


@pytest.mark.parametrize(
    ("column", "cells", "option", "note", "expected"),
    [
        ("price", ["1,5", "1.234,75", "-7", "NA"], {"decimal": ","},
         "'price' holds strings, such as '1,5'. If they are numbers: --decimal ,", [1.5, 1234.75, -7, None]),
        *(("day", cells, {"date_format": form}, DATES.format(cells[0]) if "-" not in cells[1] else "", expected)
          for cells, form, expected in (
              (["31.12.2024", "1.2.2024"], "%d.%m.%Y", ["2024-12-31", "2024-02-01"]),
              (["12/31/2024", "1/2/2024"], "%m/%d/%Y", ["2024-12-31", "2024-01-02"]),
              (["31/12/2024", "1/2/2024"], "%d/%m/%Y", ["2024-12-31", "2024-02-01"]),
              (["2024/12/31", "2024/02/01"], "%Y/%m/%d", ["2024-12-31", "2024-02-01"]),
              (["31.12.24 10:30", "2024-02-01"], "%d.%m.%y %H:%M", ["2024-12-31T10:30:00", "2024-02-01"]))),
    ],
)  # fmt: skip
def test_numbers_and_dates_of_other_forms_are_noted_and_read(tmp_path, column, cells, option, note, expected):
    rows = "".join(f"{n};a;{n};{cell}\n" for n, cell in enumerate(cells))
    path = written(tmp_path / "x.csv", f"id;text;n;{column}\n{rows}")
    metadata, said = read(path)
    assert [row[column] for row in metadata.values()] == cells
    assert any(note in line for line in said) and [row["n"] for row in metadata.values()] == [*range(len(cells))]
    metadata, said = read(path, **option)
    assert [row.get(column) for row in metadata.values()] == expected
    assert said == [
        f"x.csv: n (number), {column} ({'date' if column == 'day' else 'number'}); other columns hold strings"
    ]


def documents(path, content, **options):
    return list(read_documents(CorpusFile(written(path, content), **options)))


test_what_is_no_document_and_no_option_is_refused = refused(
    *((lambda tmp_path, options=options: documents(tmp_path / "x.csv", "id,text,a\n1,b,c\n", **options), message,
       (InputError, CorpusError)) for options, message in (
        ({"date_format": "31.12.2024"}, "date_format is '31.12.2024'"),
        ({"date_format": "%H:%M"}, "must have day, month and year"),
        ({"decimal": ";"}, "decimal is ';'"),
        ({"encoding": "cp12522"}, "'cp12522' is no encoding of text"),
        ({"encoding": "rot13"}, "'rot13' is no encoding of text"),
        ({"delimiter": "::"}, "delimiter is '::'; give one character, or one of comma"),
        ({"quoting": "all"}, "quoting is 'all'; it is one of csv, backslash, none"),
        ({"columns": ["a"], "leave_out": ["b"]}, "columns and leave_out are both given"),
        ({"types": {"a": "int"}}, "the type of 'a' is 'int'"),
        ({"types": {"text": "string"}}, "text"),
        ({"types": {"z": "date"}}, "'z'"),
        *(({name: ["prize"]}, r"x\..*'prize'") for name in ("columns", "leave_out")))),
    *((lambda tmp_path, value=value: documents(tmp_path / "x.jsonl", json.dumps({"id": 1, "text": value}) + "\n"),
       rf"x\.jsonl, line 1: 'text' holds {kind}.* and no text", CorpusError) for value, kind in (
        (42, "a number, 42"), (["a"], r"a list, \['a'\]"), ({"a": 1}, "an object"), (True, "a boolean"))),
    *((lambda tmp_path, name=name, content=content: documents(tmp_path / name, content),
       rf"{name} (is empty|holds no documents)", CorpusError)
      for name in ("x.csv", "x.tsv", "x.txt", "x.jsonl", "x.json")
      for content in ("", "\n\n", *["id,text\n"] * (name == "x.csv"))),
)  # fmt: skip


ROW = {"id": 1, "text": "a", "price": 2, "meta": {"lang": "en", "size": 3}, "day": "2024-01-02"}


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.json", "x.parquet"])
def test_columns_to_keep_or_to_leave_out(tmp_path, name):
    path, nested = tmp_path / name, not name.endswith("csv")
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist([ROW]), path)
    elif nested:
        path.write_text(json.dumps([ROW] if name == "x.json" else ROW))
    else:
        path.write_text("id,text,price,meta.lang,meta.size,day\n1,a,2,en,3,2024-01-02\n")
    every = {"price": 2, "meta.lang": "en", "meta.size": 3, "day": "2024-01-02"}
    for options, kept in (
        ({}, every),
        ({"columns": ["price", "day"]}, {"price": 2, "day": "2024-01-02"}),
        ({"columns": ["meta.lang"]}, {"meta.lang": "en"}),
        ({"leave_out": ["price", "meta.size"]}, {"meta.lang": "en", "day": "2024-01-02"}),
        *(({"columns": ["meta"]}, {"meta.lang": "en", "meta.size": 3}),) * nested,
        *(({"leave_out": "meta"}, {"price": 2, "day": "2024-01-02"}),) * nested,
    ):
        assert read(path, **options)[0] == {"1": kept}


@pytest.mark.parametrize("gap", [1, 3000])
def test_an_id_that_is_there_twice_is_named_by_its_lines(tmp_path, gap):
    rows = "".join(f"{100 + n},row\n" for n in range(gap))
    written(tmp_path / "a.csv", f"id,text\n7,first\n{rows}7,second\n")
    written(tmp_path / "b.jsonl", '{"id": "x", "text": "a"}\n\n{"id": 100, "text": "b"}\n')
    with Index.create(tmp_path / "index", {}) as index:
        with pytest.raises(InputError, match=rf"id '7' is given twice: .*a.csv, line 2 and .*a.csv, line {gap + 3};"):
            index.add_files(tmp_path / "a.csv")
        written(tmp_path / "a.csv", f"id,text\n7,first\n{rows}")
        with pytest.raises(InputError, match=r"id '100' is given twice: .*a.csv, line 3 and .*b.jsonl, line 3;"):
            index.add_files([tmp_path / "a.csv", CorpusFile(tmp_path / "b.jsonl")])


def test_files_are_added_once(tmp_path, fruit):
    written(tmp_path / "a.csv", "id,text,n\n1,apple,1\n2,pear,2\n")
    with Index.create(tmp_path / "index", {"fruit": fruit}) as index:
        notes = []
        assert index.add_files(tmp_path / "a.csv", note=notes.append) == 2 and notes
        assert index.add_files(tmp_path / "a.csv") == 0 and len(index) == 2
        written(tmp_path / "a.csv", "id,text,n\n1,apple,1\n2,pear,3\n3,car,\n")
        assert index.add_files(tmp_path / "a.csv") == 2 and index["2"].metadata == {"n": 3} and not index.verify()
        for wrong in (CorpusFile(tmp_path / "a.csv"), tmp_path / "a.csv"):
            with pytest.raises(InputError, match=r"texts is the file .*a.csv.*add_files"):
                index.add(wrong)


def test_a_folder_of_notes(tmp_path):
    notes = tmp_path / "notes"
    (notes / ".git").mkdir(parents=True)
    for name, content in {
        ".git/c.txt": "hidden",
        ".hidden.md": "hidden",
        "a.md": '---\ntitle: "My note"\ntags: [x]\n---\n# Heading\n\nBody',
        "b.md": "---\ntags: [x]\n---\n# Heading\n\nBody --- not the end\n---\n",
        "c.md": "---\nA rule, and no front matter.\n",
        "e.txt": " \n",
        "f.csv": "text\na\n",
    }.items():
        written(notes / name, content)
    (notes / "d.txt").write_bytes("Café".encode("cp1252"))
    said = []
    with pytest.warns(UserWarning, match=r"left out: .*d\.txt, line 1 is not UTF-8.*--encoding cp1252"):
        records = list(read_documents(notes, note=said.append))
    assert [record[:3] for record in records] == [
        ("a.md", "My note", "# Heading\n\nBody"),
        ("b.md", "Heading", "Body --- not the end\n---"),
        ("c.md", "", "---\nA rule, and no front matter."),
    ]
    assert said == ["notes: 1 other files are left out (1 .csv)", "notes: 1 files hold no text and are left out"]
    records = list(read_documents(CorpusFile(notes, encoding="cp1252")))
    assert records[-1][:3] == ("d.txt", "", "Café") and len(records) == 4


def test_ids_and_titles_of_other_types(tmp_path):
    table = pa.table({"id": [1.0, None], "title": [1984, None], "text": ["a", "b"], "__index_level_0__": [5, 6]})
    pq.write_table(table, tmp_path / "x.parquet")
    assert [record[:4] for record in read_documents(tmp_path / "x.parquet")] == [
        ("1", "1984", "a", {}), ("x.parquet:2", "", "b", {}),
    ]  # fmt: skip


def test_columns_of_parquet_of_every_type(tmp_path):
    columns = {
        "text": ["a"], "dec": pa.array([1], pa.decimal128(38, 0)), "same": [1],
        "ts": pa.array([10**18 + 1], pa.timestamp("ns", "UTC")), "dict": pa.array(["q"]).dictionary_encode(),
        "dur": pa.array([5], pa.duration("ns")), "bin": [b"\xff\xfe"],
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), "st": pa.array([{"x": {"y": 2}}]),
        "big": pa.array([2**63], pa.uint64()), "half": pa.array([1.5], pa.float16()), "nan": [float("nan")],
        "emb": pa.array([[0.5] * 2000]), "time": pa.array([1], pa.time32("s")),
    }  # fmt: skip
    table = pa.table(columns)
    table = table.append_column("same", pa.array([2]))
    pq.write_table(table, tmp_path / "x.parquet")
    metadata, said = read(tmp_path / "x.parquet")
    assert metadata == {
        "x.parquet:1": {
            "dec": 1, "ts": "2001-09-09T01:46:40+00:00", "dur": 0, "map.k": 1, "st.x.y": 2, "big": str(2**63),
            "half": 1.5, "dict": "q", "time": "00:00:01",
        }
    }  # fmt: skip
    for name in ("bin", "emb", "same"):
        assert any(f"'{name}'" in line for line in said), name
    columns["far"] = pa.array([2**62], pa.timestamp("us"))
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(CorpusError, match=r"after row 0, .* has a date that Python cannot represent"):
        read(tmp_path / "x.parquet")


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs links")
def test_links_in_a_folder_are_left_out(tmp_path):
    """Whatever they lead to, and over however many other links."""
    notes, outside = tmp_path / "notes", tmp_path / "outside"
    notes.mkdir(), outside.mkdir()
    written(notes / "a.md", "here"), written(outside / "secret.md", "hunter2")
    (notes / "file.md").symlink_to(outside / "secret.md")
    (notes / "folder").symlink_to(outside)
    (notes / "again.md").symlink_to(notes / "file.md")
    (tmp_path / "link").symlink_to(notes)
    for folder in (notes, tmp_path / "link"):
        with pytest.warns(UserWarning, match="3 links are left out"):
            assert [record.text for record in read_documents(folder)] == ["here"]


def test_a_second_folder_with_the_same_names_says_what_it_replaces(tmp_path):
    for name in ("alpha", "beta"):
        (tmp_path / name).mkdir()
        written(tmp_path / name / "README.md", f"of {name}"), written(tmp_path / name / "n.csv", f"text\n{name}\n")
    with Index.create(tmp_path / "index", {}) as index:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            index.add_files([tmp_path / "alpha", tmp_path / "alpha/n.csv"])
            index.add_files([tmp_path / "alpha", tmp_path / "alpha/n.csv"])
        with pytest.warns(UserWarning, match=r"2 documents replaced others .*'README.md' by .*beta.README.md"):
            index.add_files([tmp_path / "beta", tmp_path / "beta/n.csv"])
        with pytest.raises(InputError, match=r"'README.md' is given twice: .*alpha.* and .*beta"):
            index.add_files([tmp_path / "alpha", tmp_path / "beta"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", 'id,text,day\n1,a,2024-01-02\n2,b,""\n3,c," "\n'),
        ("x.tsv", 'id\ttext\tday\n1\ta "b" c\t2024-01-02\n2\tb\t""\n'),
        ("x.jsonl", '{"id": 1, "text": "a", "day": "2024-01-02"}\n{"id": 2, "text": "a", "day": " "}\n'),
    ],
)
def test_empty_cells_are_missing_in_a_field_of_dates(tmp_path, name, content):
    with Index.create(tmp_path / "index", {}) as index:
        index.add_files(written(tmp_path / name, content))
        assert index.info()["fields"] == {"day": "date"}


# --- Sync ---


OLD = {f"d{n}": {"text": f"text {n}", "n": n} for n in range(40)}
NEW = dict(list(OLD.items())[5:], d7={"text": "another", "n": 7}, d8={"text": "text 8", "n": 0}, e={"text": "new"})


@pytest.fixture(params=[1, 192 << 20])  # bytes of a piece of a commit
def synced(tmp_path, monkeypatch, request):
    monkeypatch.setattr("pellucid.index.writer.MAX_PENDING_BYTES", request.param)
    monkeypatch.setattr("pellucid.index.documents.BATCH_DOCUMENTS", 7)
    for name, documents in (("old.jsonl", OLD), ("new.jsonl", NEW)):
        lines_of(tmp_path / name, documents)
    return Index.create(tmp_path / "index", {})


def lines_of(path, documents):
    return written(path, "".join(json.dumps({"id": id, **row}) + "\n" for id, row in documents.items()))


def held(index):
    assert index.verify() == []
    return {document.id: {"text": document.text, **document.metadata} for document in index}


def copied(tmp_path, number):
    return Index.open(shutil.copytree(tmp_path / "index", tmp_path / f"{number}"))


def test_after_each_kind_of_change_the_index_is_the_files(synced, tmp_path):
    chance, before = random.Random(0), {}
    for _ in range(15):
        ids = [id for id in OLD if chance.random() < 0.8]
        after = {id: chance.choice([OLD[id], OLD[id], {"text": "x", "n": chance.randrange(3)}]) for id in ids}
        same = sum(after.get(id) == row for id, row in before.items())
        both = len(after.keys() & before)
        expected = (len(after) - both, both - same, same, len(before) - both)
        assert synced.sync(file := lines_of(tmp_path / "x.jsonl", after), dry_run=True) == expected
        assert held(synced) == before
        assert synced.sync([file], max_deleted=1) == expected and held(synced) == after
        commit, before = synced.snapshot().commit.state.commit, after
        assert synced.sync(file) == (0, 0, len(after), 0) and synced.snapshot().commit.state.commit == commit


def test_a_killed_sync_leaves_the_old_or_the_new_documents(synced, tmp_path):
    synced.sync(tmp_path / "old.jsonl")
    states = []
    for number in range(1, 1 + count_writes(partial(copied(tmp_path, 0).sync, tmp_path / "new.jsonl"))):
        copy = copied(tmp_path, number)
        stop_at_write(partial(copy.sync, tmp_path / "new.jsonl"), number)
        with Index.open(copy.folder) as fresh:
            states.append(held(fresh))
        assert states[-1] in (OLD, NEW) and held(copy) == states[-1]
        files = {file.name for file in copy.snapshot().commit.state.files()}
        assert {path.name for path in (copy.folder / "segments").iterdir()} == files
    assert OLD in states and NEW in states


def test_two_that_sync_at_once_leave_the_documents_of_one(synced, tmp_path):
    opened = [synced, *(Index.open(tmp_path / "index") for _ in range(3))]
    names = ["old.jsonl", "new.jsonl"] * 2
    assert at_once(*(partial(i.sync, tmp_path / name, max_deleted=1) for i, name in zip(opened, names))) == []
    assert all(held(each) in (OLD, NEW) for each in opened)


def test_what_is_doubtful_deletes_nothing(tmp_path):
    for name in ("notes/0.md", "notes/1.md", "notes/2.md", "notes/3.md", "notes/4.md", "empty/a.doc", "b.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("id,body\n0.md,x\n")
    with Index.create(tmp_path / "index", {}) as index:
        assert index.sync(tmp_path / "notes") == (5, 0, 0, 0)
        (tmp_path / "notes/0.md").unlink()
        (tmp_path / "notes/1.md").write_bytes(b"\xff\xfe\xff")
        for files, said in (
            (["notes"], "1.md, line 1 is not"), (["notes/2.md"], "4 of 5 documents .*deleted.* --yes"),
            ([], "5 of 5 documents"), (["empty"], "holds no file"), (["none"], "none"), (["b.csv"], "no column"),
            (["notes/2.md", "notes/2.md"], "'2.md' is given twice"), (["empty/a.doc"], "format"),
        ):  # fmt: skip
            with pytest.raises((CorpusError, InputError), match=said):
                index.sync([tmp_path / name for name in files])
        assert len(held(index)) == 5
        (tmp_path / "notes/1.md").write_text("id,body\n0.md,x")
        assert index.sync(tmp_path / "notes") == (0, 0, 4, 1)  # 20 % of 5


def test_the_command_counts_and_asks(tmp_path, monkeypatch, fruit):
    folder, old = tmp_path / "index", lines_of(tmp_path / "old.jsonl", OLD)
    fruit.save_pretrained(tmp_path / "fruit")
    run("index", "build", folder, old, "-m", tmp_path / "fruit")
    few = lines_of(tmp_path / "few.jsonl", {"d0": OLD["d0"], "d1": {"text": "another"}})
    counts = "added 0, changed 1, unchanged 1, deleted 38\n"
    assert run("index", "sync", folder, few, "--dry-run").stdout == counts
    assert "38 of 40 documents" in run("index", "sync", folder, few, code=1).stderr
    with monkeypatch.context() as terminal:
        terminal.setattr("pellucid.cli.search.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
        assert "Delete them?" in run("index", "sync", folder, few, code=1, stdin="n\n").stderr
        assert run("index", "sync", folder, old).stdout == "added 0, changed 0, unchanged 40, deleted 0\n"
        assert run("index", "sync", folder, few, stdin="y\n").stdout.endswith(counts)
    assert run("index", "sync", folder, old).stdout == "added 38, changed 1, unchanged 1, deleted 0\n"
    assert run("index", "sync", folder, few, "--yes").stdout == counts
