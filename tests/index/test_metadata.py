"""Metadata: what values become, conditions on them, and documents by conditions alone: sorted, paged and counted."""

import datetime as dt
import decimal
import enum
import json
import math
import uuid
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commands import run_command as run
from index_cases import CONDITIONS, CONDITIONS_METADATA
from memory import peak_of
from pellucid import Index
from pellucid.errors import InputError
from pellucid.index.metadata import timestamp
from pellucid.index.segments import Segment
from pellucid.index.values import plain_metadata


class Colour(enum.Enum):
    RED = "red"


ZONE = dt.timezone(dt.timedelta(hours=2))
KEPT = [
    (True, True),
    (np.True_, True),
    (7, 7),
    (2**53, 2**53),
    (-(2**53) - 1, "-9007199254740993"),
    (np.uint64(2**64 - 1), "18446744073709551615"),
    (1e300, 1e300),
    (math.inf, "inf"),
    (np.float32(0.5), 0.5),
    (decimal.Decimal("1.50"), 1.5),
    (decimal.Decimal("7"), 7),
    (decimal.Decimal(10) ** 30, "1" + "0" * 30),
    ("text", "text"),
    ("half \ud800", "half \ufffd"),
    (b"bytes", "bytes"),
    (dt.date(2024, 1, 2), "2024-01-02"),
    (dt.datetime(2024, 1, 2, 3, tzinfo=ZONE), "2024-01-02T03:00:00+02:00"),
    (dt.time(3, 4), "03:04:00"),
    (dt.timedelta(minutes=1.5), 90),
    (np.datetime64("2024-01-02"), "2024-01-02"),
    (np.datetime64("2024-01-02T03:04:05.123456789"), "2024-01-02T03:04:05.123456"),
    (np.timedelta64(1500, "ms"), 1.5),
    (pd.Timestamp("2024-01-02", tz="UTC"), "2024-01-02T00:00:00+00:00"),
    (pd.Timedelta(hours=1), 3600),
    (pd.Period("2024-01"), "2024-01"),
    (uuid.UUID(int=1), str(uuid.UUID(int=1))),
    (Path("a/b"), "a/b"),
    (Colour.RED, "red"),
    (["a", None, math.nan, 1], ["a", 1]),
    ((1, [2, [3]]), [1, 2, 3]),
    (list(range(1000)), list(range(1000))),
    ({"a"}, ["a"]),
    (np.array([[1, 2], [3, 4]]), [1, 2, 3, 4]),
    (pd.Series(["a", None]), ["a"]),
    (pa.array([1, None]), [1]),
    (pa.scalar(7), 7),
]
MISSING = [None, math.nan, np.nan, np.float32("nan"), pd.NaT, pd.NA, np.datetime64("NaT"), np.timedelta64("NaT"),
           decimal.Decimal("nan"), "", b"", [], [None, math.nan], {}, {"a": None}]  # fmt: skip
LEFT_OUT = [b"\xff\xd8\xff\xe0 a picture", b"\0\1\2", list(range(1001)), {f"k{n}": n for n in range(1001)}, 10**5000,
            [{"a": 1}, 2]]  # fmt: skip


@pytest.mark.parametrize(("value", "plain"), KEPT, ids=range(len(KEPT)))
def test_a_value_is_kept_as_a_plain_one(value, plain):
    kept = plain_metadata({"x": value}, "a document")
    assert kept == {"x": plain} and type(kept["x"]) is type(plain)
    json.dumps(kept, allow_nan=False)


@pytest.mark.parametrize(
    ("value", "named"),
    [*((value, []) for value in MISSING), *((value, ["x"]) for value in LEFT_OUT)],
    ids=range(len(MISSING + LEFT_OUT)),
)
def test_what_is_missing_is_no_field_and_what_cannot_be_kept_is_told(value, named):
    left_out = {}
    assert plain_metadata({"x": value, "y": 1}, "a document", left_out) == {"y": 1} and list(left_out) == named


def test_objects_have_dotted_names():
    nested = {
        "meta": {"lang": "en", "by": {"name": "x", "age": None}},
        "tags": [{"t": "a"}, {"t": "b", "n": [1]}],
        3: 4,
    }
    assert plain_metadata(nested, "a document") == {
        "meta.lang": "en", "meta.by.name": "x", "tags.t": ["a", "b"], "tags.n": [1], "3": 4,
    }  # fmt: skip
    left_out = {}
    assert plain_metadata({"a.b": 1, "a": {"b": 2}, "": 3}, "a document", left_out) == {"a.b": 1}
    assert set(left_out) == {"a", ""}
    deep = {}
    for _ in range(100):
        deep = {"a": deep or 1}
    assert plain_metadata({"x": deep}, "a document", left_out) == {} and "nested" in left_out["x"]


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates() | st.datetimes()
VALUES = st.recursive(
    SCALARS | st.binary(max_size=4) | st.decimals() | st.timedeltas(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4))
@example({"0": b"\t"})
def test_any_metadata_becomes_plain(metadata):
    plain = plain_metadata(metadata, "a document", {})
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain_metadata(plain, "a document") == plain
    for value in plain.values():
        for item in value if isinstance(value, list) else [value]:
            assert type(item) in (str, int, float, bool) and item != ""
            assert type(item) is not int or abs(item) <= 2**53


@pytest.mark.filterwarnings("error")
def test_a_frame_of_every_type_is_metadata(index_of):
    frame = pd.DataFrame(
        {
            "price": [1.5, None],
            "day": pd.to_datetime(["2024-01-02", None]),
            "src": ["x", None],
            "count": pd.array([1, None], "Int64"),
            "kind": pd.Categorical(["a", None]),
            "span": pd.to_timedelta(["1h", None]),
            "image": [b"\xff\xd8", None],
            "owner": [{"name": "me"}, None],
        }
    )
    with pytest.warns(UserWarning, match="the field 'image' is left out where it holds bytes that are no text"):
        index = index_of(["a loan", "a cat"], ids=["1", "2"], metadata=frame)
    assert index["1"].metadata == {
        "price": 1.5, "day": "2024-01-02T00:00:00", "src": "x", "count": 1, "kind": "a", "span": 3600,
        "owner.name": "me",
    }  # fmt: skip
    assert index["2"].metadata == {} and index.verify() == []
    for name in index["1"].metadata:
        assert [hit.id for hit in index.search("loan cat", where={name: {"exists": False}})] == ["2"]
    index.update("2", metadata={"big": 2**60, "nothing": pd.NaT})
    assert index["2"].metadata == {"big": str(2**60)}
    assert [hit.id for hit in index.search("cat", where={"big": 2**60})] == ["2"]


# --- Dates ---


DAYS = {
    "noon": dt.datetime(2024, 1, 2, 12),
    "day": "2024-01-02",
    "late": "2024-01-02T23:59:59.999999Z",
    "zone": "2024-01-03T00:30:00+01:00",  # the 2nd in UTC
    "next": dt.date(2024, 1, 3),
    "end": "2024-01-03T23:59:59.999Z",
    "list": ["2023-01-01", "2024-01-02 08:00+0000"],
    "word": "soon",
    "none": None,
}


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    with Index.create(tmp_path_factory.mktemp("days") / "index", {}) as index:
        index.add(["text"] * len(DAYS), ids=DAYS, metadata=[{"day": value} for value in DAYS.values()])
        yield index


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("2024-01-02", "noon day late zone list"),
        (dt.date(2024, 1, 2), "noon day late zone list"),
        (dt.datetime(2024, 1, 2, 12), "noon"),
        (pd.Timestamp("2024-01-02 13:00", tz="Europe/Berlin"), "noon"),
        ("2024-01-02T23:30:00Z", "zone"),
        ("2024-01-02T00:00:00", "day"),
        ({"ne": "2024-01-02"}, "next end word none"),
        (["2024-01-03", "soon"], "next end word"),
        ({"in": ["2024-01-02T12:00:00", dt.date(2024, 1, 3)]}, "noon next end"),
        ({"in": ["2024-01-03", "2023-01-01"]}, "next end list"),
        ({"in": []}, ""),
        ([], ""),
        ({"nin": []}, " ".join(DAYS)),
        ({"lt": "2024-01-03"}, "noon day late zone list"),
        ({"lte": "2024-01-02"}, "noon day late zone list"),
        ({"gt": "2024-01-02"}, "next end"),
        ({"gte": "2024-01-03"}, "next end"),
        ({"gt": "2024-01-01", "lte": "2024-01-02"}, "noon day late zone list"),
        ({"gt": "2024-01-02T12:00:00Z"}, "late zone next end"),
        ({"gt": "2024-01-02T23:59:59Z"}, "late next end"),  # by a fraction of a second
        ({"lte": "2024-01-02T12:00:00Z"}, "noon day list"),
        ({"nin": ["2024-01-03", "2023-01-01"]}, "noon day late zone word none"),
        ({"gte": "2024-01-02", "lt": "2024-01-03"}, "noon day late zone list"),
        ("soon", "word"),
        ("9999-12-31", ""),
    ],
)
def test_dates_compare_as_moments(days, where, found):
    assert {hit.id for hit in days.search("text", 20, where={"day": where})} == set(found.split())


@given(st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 30)), st.integers(-1439, 1439))
def test_a_moment_is_the_same_in_any_zone(moment, minutes):
    there = moment.replace(tzinfo=dt.timezone.utc).astimezone(dt.timezone(dt.timedelta(minutes=minutes)))
    assert timestamp(there.isoformat()) == pytest.approx(timestamp(moment.isoformat()), abs=1e-6)
    assert timestamp(there.isoformat(" ")) == timestamp(there.isoformat())


# --- Lists, counts and tables ---


@pytest.fixture(scope="module", params=["created", "opened"])
def index(request, tmp_path_factory):
    """Documents with metadata, in an index as it was made and as it was opened again."""
    folder = tmp_path_factory.mktemp("listing") / "index"
    index = Index.create(folder, {})
    index.add(["word"] * 4, ids=list("abcd"), metadata=CONDITIONS_METADATA)
    with index if request.param == "created" else Index.open(folder) as index:
        yield index


MIXED = [3, "b", None, True, "2024-05-31T10:00:00Z", 1, ["a", 9], [7, "a"], False, "2024-05-31T08:00:00-05:00", "a",
         [2, 8], 1.0, "1", [1, 1, 2]]  # fmt: skip


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Values of every kind in several segments, of which a document is deleted; the ids are their numbers."""
    with Index.create(tmp_path_factory.mktemp("listing") / "mixed", {}) as index:
        for part in (range(5), range(5, 7), range(7, 15)):
            metadata = [{} if MIXED[n] is None else {"v": MIXED[n]} for n in part]
            index.add(["word"] * len(part), ids=part, metadata=metadata)
        index.add(["gone"], ids=["gone"], metadata=[{"v": 0}])
        index.delete("gone")
        yield index


@pytest.mark.parametrize(("where", "expected"), CONDITIONS)
def test_documents_are_those_that_a_search_finds(index, where, expected):
    assert [document.id for document in index.documents(where)] == list(expected)
    assert index.count(where) == len(expected)
    assert sorted(hit.id for hit in index.search("word", where=where)) == list(expected)


@given(offset=st.integers(0, 12), limit=st.none() | st.integers(1, 12), descending=st.booleans())
def test_pages_are_slices_of_the_whole(mixed, offset, limit, descending):
    for sort in (None, "v"):
        whole = [d.id for d in mixed.documents(sort=sort, descending=descending)]
        page = [d.id for d in mixed.documents(sort=sort, descending=descending, offset=offset, limit=limit)]
        assert page == whole[offset : None if limit is None else offset + limit]


def test_counts_by_a_field_keep_kinds_apart(index, mixed):
    assert index.count(by="tag") == [("red", 2), ("blue", 1), ("green", 1), (None, 1)]
    assert index.count({"year": {"gte": 2000}}, by="tag") == [("blue", 1), ("red", 1), (None, 1)]
    ran, pairs = run("index", "count", mixed.folder, "--by", "v", "--json"), mixed.count(by="v")
    counts = {json.dumps(one["value"]): one["documents"] for one in json.loads(ran.stdout)}
    once = {json.dumps(v): 1 for v in (3, "b", True, *MIXED[4:10:5], 9, 7, False, 8, "1", None)}
    assert counts == once | {"1": 3, '"a"': 3, "2": 2} and len(pairs) == len(counts) and mixed.count() == len(MIXED)
    assert run("index", "count", mixed.folder, "--by", "v").stdout.splitlines()[0] == "3\t1"
    assert all(mixed.count({"v": value}) == n for value, n in pairs if value is not None)


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


@pytest.mark.parametrize("suffix", ["csv", "tsv", "xlsx", "jsonl"])
def test_every_value_and_any_field_names_are_exported(tmp_path, index_of, suffix):
    pandas = pytest.importorskip("pandas")
    fields = {"query": 7, "score": 0.5, "rank": 3, "reason": "r", "title": "t", "metadata.title": "u", "größe": 2.5,
              "名前": "東京", "n": [1, 2], "single": [4], "ok": True}  # fmt: skip
    texts = ["an apple", '=HYPERLINK("apple")', "two\nlines, and an apple", "é 日本 apple", ""]
    index = index_of(texts, ids=list("abcde"), metadata=[fields, {"single": 5}, None, {}, {"n": -1}])
    assert len(set(index.to_frame().columns)) == 3 + len(fields)
    read = {"csv": pandas.read_csv, "xlsx": pandas.read_excel, "tsv": partial(pandas.read_csv, sep="\t"),
            "jsonl": partial(pandas.read_json, lines=True)}[suffix]  # fmt: skip
    for name, command in (
        ("hits", ["search", tmp_path / "index", "apple"]),
        ("all", ["index", "list", tmp_path / "index"]),
    ):
        path = tmp_path / f"{name}.{suffix}"
        run(*command, "-o", path)
        frame = read(path).set_index("id")
        row = frame.loc["a"]
        assert row["größe"] == 2.5 and row["名前"] == "東京" and "1" in str(row["n"]) and row["ok"]
        assert row["metadata.metadata.title"] == "t" and row["metadata.title"] == "u"
        guarded = ["'" * (suffix != "jsonl" and text[:1] == "=") + text for text in texts]
        assert {own: frame.loc[own, "text"] for own in frame.index if own != "e"} == dict(zip("abcd", guarded))
        assert set(frame.index) == set("abcd" if name == "hits" else "abcde")
        if name == "hits":
            assert row["metadata.score"] == 0.5 and row["metadata.rank"] == 3 and row["rank"] in (1, 2, 3, 4)
            assert "apple" in row["reason"] and row["metadata.reason"] == "r" and row["query"] == "apple"


@given(offset=st.integers(0, 12), top_k=st.integers(1, 12))
def test_pages_of_hits_are_slices_of_the_whole(mixed, offset, top_k):
    whole = [(hit.id, hit.score) for hit in mixed.search("word", 100)]
    page = mixed.search("word", top_k, offset=offset)
    assert [(hit.id, hit.score) for hit in page] == whole[offset : offset + top_k]
    reranked = mixed.search("word", top_k, offset=offset, rerank=lambda query, texts: [1.0] * len(texts))
    assert [hit.id for hit in reranked] == [hit.id for hit in page]
    if len(page) > 1:
        assert page.why(offset + 1, offset + 2).score == 0 and page.explain(offset + 1).score == page[0].score
        with pytest.raises(InputError, match="not in this list"):
            page.explain(offset)


def test_a_document_updated_since_is_not_replaced_by_its_old_text(index_of):
    """Ids by content: the old text is another document then, once, however often it is added."""
    index = index_of(["draft", "draft", "other"])
    first = next(iter(index)).id
    index.update(first, text="final")
    for _ in range(2):
        index.add(["draft", "draft"])
        assert [document.text for document in index] == ["draft", "other", "final", "draft"]
    assert index[first].text == "final" and index.verify() == []


def test_equivalent_spellings_are_one_name_value_and_id(index_of):
    composed, apart = "Z\u00fcrich", "Zu\u0308rich"
    index = index_of(["a", "b"], ids=[composed, "b"], metadata=[{apart: apart}, {composed: [composed, "Bern"]}])
    index.add(["c"], ids=[apart], metadata=[{composed: apart}])
    assert [document.text for document in index] == ["b", "c"] and apart in index and index[apart].text == "c"
    assert index.count(by=apart) == [(composed, 2), ("Bern", 1)] == index.count(by=composed)
    for spelled in (composed, apart):
        assert index.count({apart: spelled}) == 2 and index.count({composed: {"ne": spelled}}) == 0
        assert index.count({apart: {"nin": [spelled, "Bern"]}}) == 0
    assert index.delete([apart]) == 1


def test_conditions_of_many_values_take_little_memory_and_counts_share_them(index_of, monkeypatch):
    calls = []
    meeting = Segment._rows_meeting
    monkeypatch.setattr(Segment, "_rows_meeting", lambda *arguments: calls.append(1) or meeting(*arguments))
    index = index_of(["x"] * 1000, ids=range(1000), metadata=[{"at": f"20{n % 90 + 10}-05-31"} for n in range(1000)])
    days = {"in": [f"{2000 + n // 336}-{n // 28 % 12 + 1:02d}-{n % 28 + 1:02d}" for n in range(9999)]}
    counts = []
    assert peak_of(lambda: counts.extend([index.count({"at": days}), *index.count({"at": days}, by="at")])) < 20e6
    assert counts == [0] and len(calls) == 1


def test_sorting_reads_no_texts(mixed, monkeypatch):
    """Only where a list holds several kinds of values, whose order the document alone has."""
    assert [d.id for d in mixed.documents(sort="v")] == "5 12 14 11 0 7 8 3 4 9 13 6 10 1 2".split()
    falling = [d.id for d in mixed.documents(sort="v", descending=True)]
    assert falling == "1 6 10 13 9 4 3 8 7 0 11 5 12 14 2".split()
    read, document = [], Segment.document
    monkeypatch.setattr(Segment, "document", lambda self, row: read.append(row) or document(self, row))
    list(mixed.documents(sort="v", limit=1))
    assert len(read) == 3
