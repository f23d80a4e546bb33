"""Documents by conditions alone: those that a search with these conditions finds; sorted, paged, counted, written."""

import json
import tracemalloc
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import run_command as run
from index_cases import CONDITIONS, CONDITIONS_METADATA
from pellucid import Index
from pellucid.errors import InputError
from pellucid.index.segments import Segment

VALUES = [3, 1.5, None, "2024-01-02", "zebra", 1.5, "2023-12-31", "apple", [2, 9], True]


@pytest.fixture(scope="module", params=["created", "opened"])
def index(request, tmp_path_factory):
    """Documents with metadata, in an index as it was made and as it was opened again."""
    folder = tmp_path_factory.mktemp("listing") / "index"
    index = Index.create(folder, {})
    index.add(["word"] * 4, ids=list("abcd"), metadata=CONDITIONS_METADATA)
    with index if request.param == "created" else Index.open(folder) as index:
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
    assert index.count(where) == len(expected)
    assert sorted(hit.id for hit in index.search("word", where=where)) == list(expected)


@given(offset=st.integers(0, 12), limit=st.none() | st.integers(1, 12), descending=st.booleans())
def test_pages_are_slices_of_the_whole(sortable, offset, limit, descending):
    for sort in (None, "v"):
        whole = [d.id for d in sortable.documents(sort=sort, descending=descending)]
        page = [d.id for d in sortable.documents(sort=sort, descending=descending, offset=offset, limit=limit)]
        assert page == whole[offset : None if limit is None else offset + limit]


def test_counts_by_a_field(index, sortable):
    assert index.count(by="tag") == [("red", 2), ("blue", 1), ("green", 1), (None, 1)]
    assert index.count({"year": {"gte": 2000}}, by="tag") == [("blue", 1), ("red", 1), (None, 1)]
    assert sortable.count(by="v")[0] == (1.5, 2) and sortable.count() == len(VALUES)


def test_conditions_of_the_command_line_take_alternatives(tmp_path):
    with Index.create(tmp_path / "index", {}) as index:
        index.add(["w"] * 4, ids=list("abcd"), metadata=[{"lang": v} for v in ("en", "de", "fr", "a|b")])
    counted = {where: run("index", "count", tmp_path / "index", "--where", where).stdout.strip()
               for where in ("lang=en|de", "lang!=en|de", 'lang="a|b"', "lang=en")}  # fmt: skip
    assert counted == {"lang=en|de": "2", "lang!=en|de": "2", 'lang="a|b"': "1", "lang=en": "1"}
    assert run("index", "count", tmp_path / "index", "--by", "lang").stdout.splitlines()[0].startswith("1\t")


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


MIXED = [{"v": 1}, {"v": True}, {"v": "1"}, {"v": [1, 1, 2]}, {"v": 1.0}, {}, {"v": "2024-01-02"}, {"v": False}]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    with Index.create(tmp_path_factory.mktemp("listing") / "mixed", {}) as index:
        index.add(["word"] * 3, ids=list("abc"), metadata=MIXED[:3])
        index.add(["word"] * 6, ids=list("defghx"), metadata=[*MIXED[3:], {"v": "gone"}])
        index.delete("x")
        yield index


def test_counts_keep_kinds_apart(mixed):
    ran = run("index", "count", mixed.folder, "--by", "v", "--json")
    counts = {json.dumps(one["value"]): one["documents"] for one in json.loads(ran.stdout)}
    assert counts == {"1": 3, "true": 1, '"1"': 1, "2": 1, "null": 1, '"2024-01-02"': 1, "false": 1}
    pairs = mixed.count(by="v")
    assert all(mixed.count({"v": value}) == n for value, n in pairs if value is not None) and len(pairs) == 7


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
        assert row["metadata.metadata.title" if "metadata.metadata.title" in frame else "metadata.title"] in ("t", "u")
        guarded = ["'" * (suffix != "jsonl" and text[:1] == "=") + text for text in texts]
        assert {own: frame.loc[own, "text"] for own in frame.index if own != "e"} == dict(zip("abcd", guarded))
        assert set(frame.index) == set("abcd" if name == "hits" else "abcde")
        if name == "hits":
            assert row["metadata.score"] == 0.5 and row["metadata.rank"] == 3 and row["rank"] in (1, 2, 3, 4)
            assert "apple" in row["reason"] and row["metadata.reason"] == "r" and row["query"] == "apple"


@given(offset=st.integers(0, 12), top_k=st.integers(1, 12))
def test_pages_of_hits_are_slices_of_the_whole(sortable, offset, top_k):
    whole = [(hit.id, hit.score) for hit in sortable.search("word", 100)]
    page = sortable.search("word", top_k, offset=offset)
    assert [(hit.id, hit.score) for hit in page] == whole[offset : offset + top_k]
    reranked = sortable.search("word", top_k, offset=offset, rerank=lambda query, texts: [1.0] * len(texts))
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
    tracemalloc.start()
    assert index.count({"at": days}) == 0 == sum(n for _, n in index.count({"at": days}, by="at"))
    assert tracemalloc.get_traced_memory()[1] < 20e6 and len(calls) == 1
    tracemalloc.stop()


def test_sorting_reads_no_texts(tmp_path, monkeypatch):
    """Only where a list holds several kinds of values, whose order the document alone has."""
    values = [3, "b", None, True, "2024-05-31", 1, ["a", 9], [7, "a"], False, "2024-05-31T10:00:00Z", "a", [2, 8]]
    metadata = [{} if value is None else {"v": value} for value in values]
    with Index.create(tmp_path / "index", {}) as index:
        for start in (0, 5):
            part = slice(start, start + 5 if start == 0 else None)
            index.add(["x"] * len(values[part]), ids=map(str, range(len(values))[part]), metadata=metadata[part])
        assert [d.id for d in index.documents(sort="v")] == "5 11 0 7 8 3 4 9 6 10 1 2".split()
        assert [d.id for d in index.documents(sort="v", descending=True)] == "1 6 10 9 4 3 8 7 0 11 5 2".split()
        read, document = [], Segment.document
        monkeypatch.setattr(Segment, "document", lambda self, row: read.append(row) or document(self, row))
        list(index.documents(sort="v", limit=1))
        assert len(read) == 3
