"""`pellucid index` and `pellucid search`: documents in from every kind of file, hits and reasons out."""

from __future__ import annotations

import csv
import gzip
import json

import pytest
from typer.testing import CliRunner

pytest.importorskip("Stemmer")

from pellucid.cli import app as cli
from pellucid.cli.search import snippet
from pellucid.errors import CorpusError
from pellucid.index.records import Columns, read_documents

ROWS = [
    {"id": "1", "title": "Fruit", "text": "Apples and pears grow on trees.", "year": 1999},
    {"id": "2", "title": "", "text": "Cars have four wheels.", "year": 2005, "metadata": {"lang": "en"}},
]


def run(*arguments, code=0, **options):
    ran = CliRunner().invoke(cli.app, list(map(str, arguments)), **options)
    assert ran.exit_code == code, ran.output
    return ran


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path, rows, fruit):
    fruit.save_pretrained(tmp_path / "fruit")
    run("index", "build", tmp_path / "index", rows, "-m", tmp_path / "fruit")
    return tmp_path / "index"


def test_an_index_is_built_asked_and_changed(folder, tmp_path):
    shown = run("search", folder, "an apple tree").stdout
    assert "[Apples]" in shown and "1  Fruit" in shown and "bm25: apple ~ Apples" in shown
    (tmp_path / "more.txt").write_text("A bicycle\n\nAnother bicycle and a car\n")
    assert "added 2, 4 documents" in run("index", "add", folder, tmp_path / "more.txt").stderr
    found = [
        json.loads(line)
        for line in run("search", folder, "--json", "-k", 1, input="bicycle\ncar\n").stdout.splitlines()
    ]
    assert [hits["hits"][0]["id"] for hits in found] == ["more.txt:1", "more.txt:3"]
    run("index", "delete", folder, "more.txt:1", "more.txt:3")
    assert "no document 'x'" in run("index", "delete", folder, "x", code=1).stderr
    assert json.loads(run("index", "info", folder, "--json").stdout)["documents"] == 2
    assert "fields: lang, year" in run("index", "info", folder).stdout
    assert "all is well" in run("index", "verify", folder).stdout
    assert "rebuilt 2" in run("index", "rebuild", folder).stderr
    assert "nothing found" in run("search", folder, "zzz").stdout


def test_conditions_and_weights(folder):
    def ids(*options):
        found = json.loads(run("search", folder, "apples and cars", "--json", *options).stdout)
        return [hit["id"] for hit in found["hits"]]

    assert ids("--where", "year>=2000") == ids("--where", "lang=en") == ["2"]
    assert ids("--where", "year > 1990", "--where", "year!=2005") == ["1"]
    assert set(json.loads(run("search", folder, "car", "--json", "--weight", "bm25=1").stdout)["weights"].values()) == {
        0,
        1,
    }
    assert "yaer" in run("search", folder, "x", "--where", "yaer=1", code=1).stderr
    assert "is not FIELD>=VALUE" in run("search", folder, "x", "--where", "year", code=2).stderr
    assert "is not PART=NUMBER" in run("search", folder, "x", "--weight", "bm25", code=2).stderr


def test_questions_are_read_from_a_pipe(folder):
    shown = run("search", folder, input="apples\n\ncars\n").stdout
    assert "[Apples]" in shown and "[Cars]" in shown


def test_an_index_rebuilt_with_another_model(folder, tmp_path, fruit):
    fruit.without(0).save_pretrained(tmp_path / "other")
    run("index", "rebuild", folder, "-m", tmp_path / "other")
    assert json.loads(run("index", "info", folder, "--json").stdout)["models"] == {"other": str(tmp_path / "other")}


def test_errors_are_one_line(tmp_path, rows):
    for arguments, said in (
        (["search", tmp_path / "none", "x"], "is not there"),
        (["index", "build", tmp_path / "i", tmp_path / "none.txt"], "file not found"),
        (["index", "build", rows.parent, rows], "is not empty"),
    ):
        error = run(*arguments, code=1).stderr
        assert error.startswith("error: ") and said in error and error.count("\n") == 1


# --- Files ---


def test_every_kind_of_file(tmp_path, rows):
    expected = [("1", "Fruit", ROWS[0]["text"]), ("2", "", ROWS[1]["text"])]
    (tmp_path / "rows.csv").write_text(
        'id,title,text,year\n1,Fruit,"Apples and pears grow on trees.",1999\n2,,Cars have four wheels.,2005\n'
    )
    (tmp_path / "rows.tsv").write_text((tmp_path / "rows.csv").read_text().replace(",", "\t"))
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(rows.read_bytes()))
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({name: [row[name] for row in ROWS] for name in ("id", "title", "text", "year")})
    parquet.write_table(table, tmp_path / "rows.parquet")
    for name in ("rows.jsonl", "rows.csv", "rows.tsv", "rows.jsonl.gz", "rows.parquet"):
        found = list(read_documents(tmp_path / name))
        assert [(r.id, r.title, r.text) for r in found] == expected, name
        assert str(found[0].metadata["year"]) == "1999"
    assert list(read_documents(rows))[1].metadata == {"year": 2005, "lang": "en"}


def test_folders_of_text_and_markdown(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/one.md").write_text("# A title\n\nSome *text*.\n")
    (tmp_path / "two.txt").write_text("\ufeffLine one\nline two\n", encoding="utf-8")
    (tmp_path / "three.bin").write_bytes(b"\xff")
    found = list(read_documents(tmp_path))
    assert [tuple(r)[:3] for r in found] == [
        ("deep/one.md", "A title", "Some *text*."),
        ("two.txt", "", "Line one\nline two"),
    ]


def test_columns_have_other_names(tmp_path):
    (tmp_path / "x.csv").write_text("key,review,stars\na,good,5\n")
    found = list(read_documents(tmp_path / "x.csv", Columns("key", "title", "review")))
    assert found == [("a", "", "good", {"stars": "5"})]
    (tmp_path / "x.jsonl").write_text('"a plain string"\n{"_id": 7, "text": "t"}\n')
    assert [tuple(r)[::2] for r in read_documents(tmp_path / "x.jsonl")] == [
        ("x.jsonl:1", "a plain string"),
        ("7", "t"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.txt", b"fine\nb\xe9d\n", "x.txt, line 2 is not UTF-8"),
        ("x.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', "x.jsonl, line 2 is not UTF-8"),
        ("x.jsonl", b'{"text": "a"}\n{"text": \n', "x.jsonl, line 2: not JSON"),
        ("x.jsonl", b'{"txt": "a"}\n', "x.jsonl, line 1: no text under 'text'; it has txt"),
        ("x.jsonl", b"[1]\n", "x.jsonl, line 1 is list"),
        ("x.jsonl", b'{"text": "a", "title": 3}\n', "the title under 'title' is int"),
        ("x.csv", b"id,text\n1,a\n2,\xff\n", "x.csv, line 3 is not UTF-8"),
        ("x.csv", b"id,text\n1\n", "x.csv, line 2 has not as many cells"),
        ("x.csv", b'id,text\n1,"a\n', "x.csv, line 2: unexpected end"),
        ("x.parquet", b"no parquet", "no parquet file"),
        ("x.gz", b"x", "cannot tell the format"),
        ("x.txt.gz", b"no gzip", "is damaged"),
        ("x.md", b"one\ntwo\n\xff", "x.md, line 3 is not UTF-8"),
        ("x.doc", b"x", "cannot tell the format"),
        ("x.parquet.gz", b"x", "cannot tell the format"),
        ("x.txt", "Ö".encode("utf-16"), "is UTF-16"),
        ("x.md", "# Ö".encode("utf-16"), "is UTF-16"),
        ("x.csv", "id,text".encode("utf-16-le"), "is UTF-16"),
        ("x.jsonl", b"[" * 100_000, "line 1: JSON that is nested too deeply"),
        ("x.jsonl", b'{"text": "a", "n": ' + b"1" * 5000 + b"}", "too many digits"),
    ],
)
def test_broken_files_are_named_with_their_line(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=said):
        list(read_documents(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.txt", b"a" * 101),
        ("x.jsonl", json.dumps({"text": "a" * 101}).encode()),
        ("x.csv", b"id,text\n1," + b"a" * 101),
        ("x.csv", b'id,text\n1,"' + b"a" * 60 + b"\n" + b"a" * 60 + b'"\n'),
        ("x.md", b"word\n" * 21),
        ("x.md", b"a" * 101),
    ],
)
def test_no_line_or_text_fills_the_memory(tmp_path, monkeypatch, name, content):
    for module in ("corpus", "index.records"):
        monkeypatch.setattr(f"pellucid.{module}.LONGEST_LINE", 100)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=r"longer than 100|field larger than field limit"):
        list(read_documents(tmp_path / name))


def test_files_follow_the_rules_of_every_corpus(tmp_path):
    def texts(name, content):
        (tmp_path / name).write_bytes(content)
        return [(record.id, record.text) for record in read_documents(tmp_path / name)]

    bom = b"\xef\xbb\xbf"
    assert texts("x.txt", bom + b"a\r\n \n\xe2\x80\xa8b\x0cc") == [("x.txt:1", "a"), ("x.txt:3", "\u2028b\x0cc")]
    assert texts("x.jsonl", bom + b'{"text": null}\r\n\r\nnull\r\n"c"') == [
        ("x.jsonl:1", ""),
        ("x.jsonl:3", ""),
        ("x.jsonl:4", "c"),
    ]
    assert texts("x.csv", bom + b'id,text\r\n1,"a\r\nb"\r\n2,\r\n') == [("1", "a\nb"), ("2", "")]
    assert texts("x.md.gz", gzip.compress(bom + b"# T\r\na\r\nb\r\n")) == [("x.md.gz", "a\nb")]


def test_folders_without_texts(tmp_path):
    with pytest.raises(CorpusError, match="holds no file"):
        list(read_documents(tmp_path))
    with pytest.raises(CorpusError, match="file not found"):
        list(read_documents(tmp_path / "none"))


def test_a_snippet_shows_the_words_that_contribute_most():
    text = "filler " * 100 + "here it is " + "filler " * 100
    start, end = snippet(text, [(0, 6, 0.1), (700, 704, 0.5), (705, 707, 0.4)], 100)
    assert "here it" in text[start:end] and end - start <= 130
    assert snippet("short", [], 100) == (0, 5)
    assert snippet("", [], 100) == (0, 0)


def test_reading_a_table_leaves_the_limits_of_csv_as_they_were(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,apple\n2,pear\n")
    before = csv.field_size_limit()
    assert len(list(read_documents(tmp_path / "a.csv"))) == 2
    next(iter(read_documents(tmp_path / "a.csv")))
    assert csv.field_size_limit() == before
