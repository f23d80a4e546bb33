"""The storage of an index against plain references: what is read back, conditions, the best hits, and damage."""

import random
from collections import Counter
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

import pellucid.index.arrays as arrays
import pellucid.index.commits as commits
import pellucid.index.writer as writer_module
from pellucid import Index
from pellucid.errors import InputError
from pellucid.index.arrays import TermCounts, arrays_from_documents, hash_strings
from pellucid.index.documents import Document
from pellucid.index.metadata import kind_of, parse_where, register, timestamp
from pellucid.index.parts import ModelQuery
from pellucid.index.segments import Segment
from pellucid.native.scan import Codes

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
DATES = st.sampled_from(["2024-05-31", "2023-01-01T10:00:00Z", "1999-12-31T23:59:59+02:00", "0001-01-01", "9999-12-31"])
SINGLE = st.one_of(
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(-(2.0**53), 2.0**53, allow_nan=False),
    TEXT,
    st.sampled_from(["true", "false", "1", "0", "NaN", "", 1, 0, 1.0, True, False]),
    DATES,
)
VALUES = st.one_of(SINGLE, st.lists(SINGLE, max_size=3))
METADATA = st.dictionaries(st.sampled_from(["a", "b", "true", "1", "ä ö", "\u2028", "x" * 300]), VALUES, max_size=4)
DIMENSION = 3
ROWS = st.one_of(
    st.none(),
    st.lists(
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, -1e-38, 1e-45, 3e37]), min_size=DIMENSION, max_size=DIMENSION
    ).map(lambda row: np.array(row, np.float32)),
)
SPARSE = st.one_of(
    st.none(),
    st.dictionaries(st.integers(0, 50), st.sampled_from([1.0, -2.0, 1e-20, 0.25]), min_size=1, max_size=4).map(
        lambda row: (np.array(sorted(row), np.int64), np.array([row[n] for n in sorted(row)], np.float32))
    ),
)
DENSE, OTHER = "x.keys", "sp: .ends"  # parts may be called like arrays
PASSAGES = st.lists(st.tuples(TEXT, ROWS, SPARSE), min_size=1, max_size=3)
DOCUMENTS = st.lists(st.tuples(st.integers(0, 9), TEXT, METADATA, PASSAGES), min_size=1, max_size=4)
STEPS = st.lists(st.one_of(DOCUMENTS, st.sets(st.integers(0, 9), min_size=1, max_size=4)), min_size=1, max_size=12)
SETTINGS = {
    "bm25": True, "language": "none", "stop_words": None, "passage_characters": 100,
    "weights": {"bm25": 1.0, DENSE: 0.0, OTHER: 0.0}, "models": [],
}  # fmt: skip


def model(name, dimension):
    fingerprint = {"stored": "", "functions": []}
    return {"name": name, "source": None, "copy": None, "files": {}, "dimension": dimension, "fingerprint": fingerprint}


class Reference:
    """Documents as plain Python keeps them: number -> what belongs to it."""

    def __init__(self):
        self.held, self.fields, self.next = {}, {}, 1

    def numbers_of(self, ids):
        return [number for number, own in self.held.items() if own[0].id in ids]

    def added(self, documents):
        """Give numbers to documents and keep them; return what a segment is made of, and the numbers that go."""
        new = {f"id {own}": (own, *rest) for own, *rest in documents}  # each id once
        going = self.numbers_of(new)
        made = []
        for id_, (_, title, metadata, passages) in new.items():
            ends = np.cumsum([len(text) for text, _, _ in passages]).tolist()
            text = "".join(text for text, _, _ in passages)
            document = Document(self.next, id_, title, text, metadata, tuple(ends))
            register(metadata, self.fields)
            made.append((document, passages))
            self.next += 1
        for number in going:
            del self.held[number]
        self.held |= {document.number: (document, passages) for document, passages in made}
        every = [passage for _, passages in made for passage in passages]
        tensors = arrays_from_documents(
            [document.number for document, _ in made],
            [document for document, _ in made],
            {
                "bm25": term_counts([text for text, _, _ in every]),
                DENSE: np.array([np.zeros(DIMENSION) if row is None else row for _, row, _ in every], np.float32),
                OTHER: csr([row for _, _, row in every]),
            },
            self.fields,
        )
        return Segment(tensors), going

    def state(self, before):
        documents = [document for document, _ in self.held.values()]
        passages = sum(len(document.ends) for document in documents)
        return commits.IndexState(
            before.settings, before.commit, self.next, len(documents), passages, 0, dict(self.fields)
        )  # fmt: skip


def csr(rows):
    """Rows, pairs of dimensions and values or None, as a matrix."""
    dense = np.zeros((len(rows), 51), np.float32)
    for own, row in zip(dense, rows):
        if row is not None:
            own[row[0]] = row[1]
    return csr_matrix(dense)


def counted(text):
    return Counter(text.split())


def term_counts(texts):
    """What a `TermCounter` makes of texts whose words are their terms."""
    counts = list(map(counted, texts))
    terms = list(dict.fromkeys(term for passage in counts for term in passage))
    numbers = np.array([terms.index(term) for passage in counts for term in passage], np.int32)
    frequencies = np.array([n for passage in counts for n in passage.values()], np.int32)
    return TermCounts(hash_strings(terms), numbers, frequencies, np.cumsum([len(passage) for passage in counts]))


def written(folder):
    """Return the writer of an empty index, without models of its own."""
    settings = SETTINGS | {"models": [model(DENSE, DIMENSION), model(OTHER, 51)]}
    folder.mkdir()
    writer_module.first_commit(folder, commits.IndexState(settings))
    return writer_module.Writer(folder, commits.read_commit(folder))


def change(writer, reference, step):
    """Add documents, or remove some by their numbers of ids."""
    if isinstance(step, list):
        added, going = reference.added(step)
    else:
        added, going = None, reference.numbers_of({f"id {number}" for number in step})
        for number in going:
            del reference.held[number]
    gone = {}
    for index, segment in enumerate(writer.commit.segments):
        live = segment.live_rows()
        if len(rows := live[np.isin(segment.numbers[live], going)]):
            gone[index] = rows.tolist()
    rows = {segment: np.array(sorted(own), np.int32) for segment, own in gone.items()}
    writer.change(reference.state(writer.commit.state), [writer.write(added)] if added else [], rows)


def check_same(commit, reference):
    """Everything that can be read of a commit is what the reference holds."""
    held = [document for document, _ in reference.held.values()]
    assert list(commit.documents()) == held
    ids = [document.id for document in held]
    rows = commit.rows_for([*ids, "absent", ""])
    assert sorted(rows) == sorted(ids)
    assert {commit.segments[n].document(row).id for n, row in rows.values()} == set(ids)
    for document, passages in reference.held.values():
        number, row = rows[document.id]
        segment = commit.segments[number]
        first = segment.first_passage(row)
        for place, (text, dense, sparse) in enumerate(passages):
            stored = segment.rows(DENSE, DIMENSION, np.array([first + place]))
            assert (stored == (np.zeros(DIMENSION) if dense is None else dense)).all()
            stored = segment.rows(OTHER, 51, np.array([first + place]))
            assert (stored != csr([sparse])).nnz == 0 and stored.shape == (1, 51)
            assert segment.lengths[first + place] == sum(counted(text).values())
    check_lists(commit, reference)


def check_lists(commit, reference):
    """The lists of terms and dimensions hold each passage that is there once, and no other."""
    every = [(document.number, place, *passage) for document, passages in reference.held.values()
             for place, passage in enumerate(passages)]  # fmt: skip
    terms = {term for _, _, text, _, _ in every for term in counted(text)}
    for term in [*terms, "no such term"]:
        found = {}
        for segment in commit.segments:
            rows, counts = segment.postings(segment.postings_spans([term])[term])
            found |= {place: n for place, n in zip(places_of(segment, rows), counts.tolist())}
        assert found == {(n, place): counted(text)[term] for n, place, text, _, _ in every if counted(text)[term]}
    for dimension in range(51):
        found = {}
        for segment in commit.segments:
            rows, values = segment.sparse(OTHER, dimension)
            live = np.ones(len(rows), bool) if segment.live_passages is None else segment.live_passages[rows]
            found |= dict(zip(places_of(segment, rows[live]), values[live].tolist()))
        own = {(n, place): dict(zip(*(side.tolist() for side in row))) for n, place, _, _, row in every if row}
        assert found == {place: row[dimension] for place, row in own.items() if dimension in row}


def places_of(segment, passages):
    """Return the number of the document and the passage's place in it."""
    rows = np.searchsorted(segment.ends, passages.astype(np.int64), "right")
    return [(int(segment.numbers[row]), int(p) - segment.first_passage(int(row))) for row, p in zip(rows, passages)]


@given(STEPS, st.sampled_from([2, 3, 4]), st.sampled_from([1, 5, 10**6]))
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_what_is_read_back_is_what_was_given_after_any_changes_and_merges(tmp_path_factory, steps, fanout, coarse):
    folder = tmp_path_factory.mktemp("segments") / "index"
    with patch.object(writer_module, "FANOUT", fanout), patch.object(arrays, "COARSE_ROWS", coarse):
        writer, reference = written(folder), Reference()
        reader = commits.read_commit(folder)
        for step in steps:
            change(writer, reference, step)
            check_same(writer.commit, reference)
            reader = commits.read_commit(folder, reader)
            check_same(reader, reference)
        fresh = commits.read_commit(folder)
        check_same(fresh, reference)
        assert fresh.state == reader.state == writer.commit.state
        names = {file.name for pair in fresh.state.segments for file in pair if file is not None}
        assert {path.name for path in (folder / "segments").iterdir()} == names  # nothing is left over
        for segment in fresh.segments:
            check_bounds(segment)
            assert arrays.find_invalid_numbers(segment.tensors) == ""


def check_bounds(segment):
    """The error of each row in 8 bits is at least what was written."""
    rows = segment.tensors[f"vectors:{DENSE}"].astype(np.float64)
    if f"high:{DENSE}" in segment.tensors:
        coarse = Codes(*(segment.tensors[f"{kind}:{DENSE}"] for kind in Codes._fields))
        codes = coarse.unpacked(rows.shape[1]).astype(np.float64)
        scales, errors = coarse.scales.astype(np.float64), coarse.errors
        assert (np.linalg.norm(rows - codes * scales[:, None], axis=1) <= errors).all()


# Conditions


def kind(value):
    return "b" if isinstance(value, bool) else "s" if isinstance(value, str) else "n"


def holds(metadata, name, operator, value):
    """A condition as plain Python has it: any of the values of a list, of the same kind."""
    held = metadata.get(name, [])
    held = held if isinstance(held, list) else [held]
    if operator == "exists":
        return bool(held) == value
    wanted = value if isinstance(value, list) else [value]
    same = any(kind(one) == kind(other) and one == other for one in held for other in wanted)
    if operator in ("eq", "in"):
        return same
    if operator in ("ne", "nin"):
        return not same
    compare = {"gt": lambda a, b: a > b, "gte": lambda a, b: a >= b, "lt": lambda a, b: a < b,
               "lte": lambda a, b: a <= b}[operator]  # fmt: skip
    if kind(value) == "n":
        return any(kind(one) == "n" and compare(float(one), float(value)) for one in held)
    moments = [moment for one in held if kind(one) == "s" and (moment := timestamp(one)) is not None]
    first = timestamp(value)
    if len(value) > 10:
        return any(compare(moment, first) for moment in moments)
    return any({"gt": moment >= first + 86_400, "gte": moment >= first, "lt": moment < first,
                "lte": moment < first + 86_400}[operator] for moment in moments)  # fmt: skip


def cannot_be(operator, value, kinds):
    """Whether a condition is refused: an empty string, values of several kinds, or of kinds the field never held."""
    if "" in (value if isinstance(value, list) else [value]):
        return True  # an empty cell is a missing value, which no field holds
    if operator in ("exists", "ne", "nin"):
        return False
    if operator not in ("eq", "in"):
        return kind_of(value) not in kinds
    values = value if isinstance(value, list) else [value]
    if not values:
        return False
    wanted = {kind(one) for one in values}
    held = set(kinds.replace("d", "s"))
    return len(wanted) > 1 or not wanted & held or (kinds == "d" and {kind_of(one) for one in values} == {"s"})


TESTS = st.one_of(
    st.tuples(st.sampled_from(["eq", "ne"]), SINGLE),
    st.tuples(st.sampled_from(["in", "nin"]), st.lists(SINGLE, max_size=3)),
    st.tuples(st.sampled_from(["gt", "gte", "lt", "lte"]), st.one_of(st.integers(-5, 5), st.floats(-9, 9), DATES)),
    st.tuples(st.just("exists"), st.booleans()),
)
FIELDS = ["a", "b", "true"]
CONDITIONS = st.lists(st.dictionaries(st.sampled_from(FIELDS), TESTS, min_size=1, max_size=2), min_size=1, max_size=2)


@given(st.lists(METADATA, min_size=1, max_size=8), CONDITIONS, st.integers(1, 7), st.data())
def test_conditions_are_those_of_plain_python(every, alternatives, cut, data):
    values = [
        item for one in every for value in one.values() for item in (value if isinstance(value, list) else [value])
    ]
    if values and data.draw(st.booleans()):  # a value that is there
        alternatives = [{name: (test if test[0] == "exists" else ("eq", data.draw(st.sampled_from(values))))
                         for name, test in one.items()} for one in alternatives]  # fmt: skip
    fields = {}
    for metadata in [{name: "known"} for name in FIELDS] + every:
        register(metadata, fields)
    where = [{name: {operator: value} for name, (operator, value) in one.items()} for one in alternatives]
    try:
        parsed = parse_where(where, fields)
    except InputError:
        assert any(cannot_be(operator, value, fields[name][1])
                   for one in alternatives for name, (operator, value) in one.items())  # fmt: skip
        return
    documents = [Document(n, f"{n}", "", "", metadata, (0,)) for n, metadata in enumerate(every, 1)]
    parts = [part for part in (documents[:cut], documents[cut:]) if part]
    made = [
        Segment(arrays_from_documents([d.number for d in part], part, {"bm25": term_counts([""] * len(part))}, fields))
        for part in parts
    ]
    expected = [any(all(holds(d.metadata, name, *test) for name, test in one.items()) for one in alternatives)
                for d in documents]  # fmt: skip
    assert np.concatenate([segment.matching(parsed) for segment in made]).tolist() == expected
    assert Segment.merged(made).matching(parsed).tolist() == expected


# The best hits


class Scripted:
    """A function as a model, whose row of a text is written in the test; another text has its own."""

    def __init__(self, rows):
        self.rows = rows

    def __call__(self, texts):
        seeds = [np.random.default_rng(len(text)).normal(size=self.rows.shape[1]) for text in texts]
        return np.array([self.rows[int(t.split()[0][1:])] if t[:1] == "r" and t.split()[0][1:].isdigit() else seed
                         for t, seed in zip(texts, seeds)], np.float32)  # fmt: skip


def check_best(index, query, top_k, weights, ids, where=None):
    """The hits are the best of the documents `ids` by their own scores, and `exact` is said."""
    every = {id: index.score(query, id, weights=weights).score for id in ids}
    hits = index.search(query, top_k, weights=weights, where=where)
    assert hits.exact and len({hit.id for hit in hits}) == len(hits)
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert scores == pytest.approx([every[hit.id] for hit in hits], abs=2e-6)
    best = sorted((score for score in every.values() if score), reverse=True)[:top_k]
    assert scores[: len(best)] == pytest.approx(best, abs=2e-6)


ODD_ROWS = {
    "plain": lambda rows, chance: rows,
    "ties": lambda rows, chance: rows[chance.integers(0, 5, len(rows))],
    "close": lambda rows, chance: rows[:1] + 1e-4 * rows,  # all within the error of 8 bits
    "spiked": lambda rows, chance: rows * np.where(np.arange(rows.shape[1]), 1, 1000),  # the others have no bits
    "negative": lambda rows, chance: -np.abs(rows),
    "norms": lambda rows, chance: rows * 10.0 ** chance.integers(-30, 30, (len(rows), 1)),
    "zeros": lambda rows, chance: rows * (chance.random((len(rows), 1)) >= 0.7),
}


def odd_rows(chance, count, dimension, how):
    return ODD_ROWS[how](chance.normal(size=(count, dimension)), chance).astype(np.float32)


@pytest.mark.parametrize("dimension", [4, pytest.param(256, marks=pytest.mark.full)])
@pytest.mark.parametrize("how", ODD_ROWS)
def test_the_hits_are_the_best_there_are_past_every_threshold(tmp_path, how, dimension, monkeypatch):
    monkeypatch.setattr(arrays, "COARSE_ROWS", 40)
    monkeypatch.setattr(writer_module, "FANOUT", 2)
    chance, count = np.random.default_rng(dimension), 150
    rows = odd_rows(chance, count, dimension, how)
    other = odd_rows(chance, count, dimension, "plain")
    words = "sun rain car road tree".split()
    with Index.create(tmp_path / "i", {"one": Scripted(rows), "two": Scripted(other)}, passage_characters=100) as index:
        ids = [f"d{n}" for n in range(count)]
        picks = random.Random(0)
        texts = [f"r{n} " + " ".join(picks.choices(words, k=3)) for n in range(count)]
        texts[7] = " ".join(f"r{n} {words[n % 5]} filler of some length" for n in range(30))  # many passages
        for start in range(0, count, 40):
            part = slice(start, start + 40)
            index.add(texts[part], ids=ids[part], metadata=[{"n": int(own[1:]) % 3} for own in ids[part]])
        index.delete(ids[100:120])
        index.add(texts[5:8], ids=ids[5:8], metadata=[{"n": int(own[1:]) % 3} for own in ids[5:8]])
        kept = [own for own in ids if own not in ids[100:120]]
        assert any("high:one" in segment.tensors for segment in index._snapshot.commit.segments)
        for weights in (None, {"one": 1}, {"bm25": 1}, {"one": 1, "two": 2}, {"bm25": 1, "two": 1e-6}):
            for query, top_k in (("r3 sun", 1), ("r140 road road", 10), ("something longer", 1000)):
                check_best(index, query, top_k, weights, kept)
        check_best(index, "r3 sun", 10, None, [id for id in kept if int(id[1:]) % 3 == 1], {"n": 1})
        assert index.verify() == []


@pytest.mark.parametrize("dimension", [3, 5, 64, 257, 9000])  # numpy divides sums of more than 8,192
@pytest.mark.parametrize("coarse", [40, 1000])
def test_equal_vectors_have_one_score_wherever_they_stand_and_come_in_the_order_added(
    tmp_path, dimension, coarse, monkeypatch
):
    """BLAS rounds the product of a row by its place in the matrix: it gave equal documents any order."""
    monkeypatch.setattr(arrays, "COARSE_ROWS", coarse)
    chance, count = np.random.default_rng(dimension), 150
    kinds = chance.integers(0, 7, count)
    rows = chance.standard_normal((7, dimension)).astype(np.float32)[kinds]
    with Index.create(tmp_path / "i", {"one": Scripted(rows)}, bm25=False) as index:
        for start, end in pairwise([*range(0, count, 40), count - 1, count]):  # one alone at last
            index.add([f"r{n}" for n in range(start, end)], ids=[f"{n}" for n in range(start, end)])
        hits = index.search(f"r{count - 1}", count)
        scores = {kinds[int(hit.id)]: hit.score for hit in hits}
        assert len(hits) == count and all(hit.score == scores[kinds[int(hit.id)]] for hit in hits)
        assert [int(hit.id) for hit in hits] == sorted(range(count), key=lambda n: (-scores[kinds[n]], n))
        assert {index.score(f"r{count - 1}", f"{n}").score for n in range(count)} == set(scores.values())


def test_coarse_codes_are_read_where_they_are_and_bound_what_they_leave_out(index_of, monkeypatch):
    """With 8 bits few passages are multiplied exactly; were the bound ignored, others would be found."""
    monkeypatch.setattr(arrays, "COARSE_ROWS", 100)
    rows = odd_rows(np.random.default_rng(1), 2000, 32, "plain")
    multiplied = []
    exact = ModelQuery.row_scores
    monkeypatch.setattr(ModelQuery, "row_scores", lambda self, rows: multiplied.append(len(rows)) or exact(self, rows))
    index = index_of(
        [f"r{n}" for n in range(2000)], ids=[f"{n}" for n in range(2000)], models={"one": Scripted(rows)}, bm25=False
    )
    hits = index.search("r7", 10)
    assert hits[0].id == "7" and 10 <= sum(multiplied) < 500
