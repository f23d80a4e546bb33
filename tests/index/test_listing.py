"""Documents by conditions alone: those that a search with these conditions finds; sorted, paged, counted, written."""

from __future__ import annotations

import csv
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

pytest.importorskip("Stemmer")

from index_cases import CONDITIONS, CONDITIONS_METADATA
from pellucid import Index
from pellucid.cli import app as cli
from pellucid.errors import InputError

VALUES = [3, 1.5, None, "2024-01-02", "zebra", 1.5, "2023-12-31", "apple", [2, 9], True]


def run(*arguments, code=0):
    ran = CliRunner().invoke(cli.app, list(map(str, arguments)))
    assert ran.exit_code == code, ran.output
    return ran


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    with Index.create(tmp_path_factory.mktemp("listing") / "index", {}) as index:
        index.add(["word"] * 4, ids=list("abcd"), metadata=CONDITIONS_METADATA)
        yield index


@pytest.fixture(scope="module")
def sortable(tmp_path_factory):
    with Index.create(tmp_path_factory.mktemp("listing") / "sortable", {}) as index:
        ids = [str(n) for n in range(len(VALUES))]
        for start in (0, 4, 7):  # several segments
            chosen = slice(start, {0: 4, 4: 7, 7: None}[start])
            index.add(["word"] * len(ids[chosen]), ids=ids[chosen], metadata=[{"v": v} for v in VALUES[chosen]])
        index.add(["gone"], ids=["gone"], metadata=[{"v": 0}])
        index.delete("gone")
        yield index


@pytest.mark.parametrize(("where", "expected"), CONDITIONS)
def test_documents_are_those_that_a_search_finds(index, where, expected):
    assert [document.id for document in index.documents(where)] == list(expected)
    assert index.count(where) == len(expected) == len(index.search("word", where=where))


def test_numbers_then_dates_then_strings_then_nothing(sortable):
    # a boolean lies between numbers and dates; equal values in the order of adding; of a list the first value counts
    assert [d.id for d in sortable.documents(sort="v")] == ["1", "5", "8", "0", "9", "6", "3", "7", "4", "2"]
    assert [d.id for d in sortable.documents(sort="v", descending=True)][-1] == "2"


@given(offset=st.integers(0, 12), limit=st.none() | st.integers(1, 12), descending=st.booleans())
def test_pages_are_slices_of_the_whole(sortable, offset, limit, descending):
    for sort in (None, "v"):
        whole = [d.id for d in sortable.documents(sort=sort, descending=descending)]
        page = [d.id for d in sortable.documents(sort=sort, descending=descending, offset=offset, limit=limit)]
        assert page == whole[offset : None if limit is None else offset + limit]


def test_counts_by_a_field(index, sortable):
    assert index.count(by="tag") == {"red": 2, "blue": 1, "green": 1, None: 1}
    assert index.count({"year": {"gte": 2000}}, by="tag") == {"blue": 1, "red": 1, None: 1}
    assert next(iter(sortable.count(by="v").items())) == (1.5, 2) and sortable.count() == len(VALUES)


@pytest.mark.parametrize("call", [{"sort": "yaer"}, {"where": {"yaer": 1}}, {"offset": -1}, {"limit": 0}])
def test_what_cannot_be_is_answered(index, call):
    with pytest.raises(InputError):
        list(index.documents(**call))


def test_unknown_fields_get_a_suggestion(index):
    with pytest.raises(InputError, match="did you mean 'year'"):
        index.count(by="yeer")


def test_a_frame_has_a_column_a_field(index):
    frame = index.to_frame({"tag": "red"})
    assert list(frame["id"]) == ["a", "b"] and list(frame["year"]) == [1999, 2005] and "mixed" in frame


def test_a_field_that_is_called_like_a_column_is_told_apart(tmp_path):
    with Index.create(tmp_path / "index", {}) as index:
        index.add(["a word"], ids=["a"], metadata=[{"title": "of the field"}])
        assert index.to_frame()["metadata.title"].tolist() == ["of the field"]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "xlsx"])
def test_an_export_holds_every_value(tmp_path, suffix):
    texts = ["plain", '=HYPERLINK("x")', "two\nlines, and a comma", "é 日本", ""]
    metadata = [{"n": 1.5, "tags": ["a", "b"], "ok": True}, {"n": 2}, {}, {"n": -1, "tags": ["c"]}, None]
    with Index.create(tmp_path / "index", {}) as index:
        index.add(texts, ids=list("abcde"), metadata=metadata)
    out = tmp_path / f"out.{suffix}"
    run("index", "export", tmp_path / "index", "-o", out)
    if suffix in ("csv", "tsv"):
        with open(out, encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="," if suffix == "csv" else "\t"))
    elif suffix == "jsonl":
        rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    else:
        pandas = pytest.importorskip("pandas")
        frame = pandas.read_parquet(out) if suffix == "parquet" else pandas.read_excel(out, keep_default_na=False)
        rows = frame.to_dict("records")
    assert [row["id"] for row in rows] == list("abcde")
    guarded = ["'" * (suffix in ("csv", "tsv", "xlsx") and text[:1] == "=") + text for text in texts]
    assert [row["text"] or "" for row in rows] == guarded
    assert float(rows[0]["n"]) == 1.5 and "b" in str(rows[0]["tags"]) and str(rows[2]["tags"]) in ("None", "", "nan")


def test_hits_are_written_with_their_parts_and_reason(tmp_path):
    with Index.create(tmp_path / "index", {}) as index:
        index.add(["an apple", "a pear and an apple"], ids=["a", "b"], metadata=[{"year": 1999}, {"year": 2005}])
    run("search", tmp_path / "index", "apple", "-o", tmp_path / "hits.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "hits.jsonl").read_text().splitlines()]
    assert [row["rank"] for row in rows] == [1, 2] and {row["year"] for row in rows} == {1999, 2005}
    for row in rows:
        assert row["score.bm25"] == pytest.approx(row["score"]) and "apple" in row["reason"]


def test_conditions_of_the_command_line_take_alternatives(tmp_path):
    with Index.create(tmp_path / "index", {}) as index:
        index.add(["w"] * 4, ids=list("abcd"), metadata=[{"lang": v} for v in ("en", "de", "fr", "a|b")])
    counted = {where: run("index", "count", tmp_path / "index", "--where", where).stdout.strip()
               for where in ("lang=en|de", "lang!=en|de", 'lang="a|b"', "lang=en")}  # fmt: skip
    assert counted == {"lang=en|de": "2", "lang!=en|de": "2", 'lang="a|b"': "1", "lang=en": "1"}
    assert run("index", "count", tmp_path / "index", "--by", "lang").stdout.splitlines()[0].startswith("1\t")


def test_a_table_of_another_kind_is_refused_before_anything_is_written(tmp_path):
    with Index.create(tmp_path / "index", {}) as index:
        index.add(["w"])
    ran = run("index", "export", tmp_path / "index", "-o", tmp_path / "out.doc", code=1)
    assert ".xlsx" in ran.output and not (tmp_path / "out.doc").exists()


def test_a_cursor_is_not_shifted_by_changes(tmp_path, monkeypatch):
    monkeypatch.setattr("pellucid.index.writer.FANOUT", 2)  # merges come soon
    with Index.create(tmp_path / "index", {}) as index:
        for n in range(40):
            index.add([f"word {n}"], ids=[str(n)], metadata=[{"even": n % 2 == 0}])
        seen, after = [], None
        while page := list(index.documents({"even": True}, after=after, limit=6)):
            seen += [document.id for document in page]
            after = page[-1].number
            index.delete(page[0].id)  # read, and gone
            index.add(["another word"], metadata=[{"even": False}])
        assert seen == [str(n) for n in range(0, 40, 2)]
        numbers = [document.number for document in index]
        assert numbers == sorted(numbers)
        for wrong in ("x", -1, True, "9" * 30):
            with pytest.raises(InputError, match="after is"):
                index.documents(after=wrong)
        with pytest.raises(InputError, match="offset with sort"):
            index.documents(after=1, sort="even")
