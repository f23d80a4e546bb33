"""The index: what is found, why, filters, changes, and everything that is refused."""

import json
import math
import random
import shutil
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pellucid.index.bm25 as bm25
import pellucid.index.terms as terms
from index_cases import brute_bm25
from pellucid import Index
from pellucid.core.query import EMPTY_TERMS, Marks
from pellucid.errors import IndexFolderError, InputError, WritingError
from pellucid.index.bm25 import idf
from pellucid.index.documents import passage_ends
from pellucid.index.reasons import Reasons
from pellucid.index.terms import Analyser
from pellucid.index.words import WordCache
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.sentences import sentence_spans
from pellucid.text.unicode import well_formed
from pellucid.text.words import Vocabulary, split_words
from tables import HOSTILE

TEXTS = {
    "a": "An apple and a pear stand on the table",
    "b": "The car follows the bicycle",
    "c": "Apples! Apples and pears, and no car",
    "d": "A bicycle",
    "e": "the the the",
    "f": "Something else entirely: tax law",
}


def lengths(texts):
    """A function as a model: three numbers of each text."""
    return np.array([[len(t), t.count("a"), t.count(" ")] for t in texts], np.float32)


def filled(folder, fruit):
    made = Index.create(folder, {"fruit": fruit})
    fields = [{"n": n, "even": n % 2 == 0, "kind": f"{n}", "day": "2024-05-31"} for n in range(len(TEXTS))]
    made.add(TEXTS.values(), ids=TEXTS.keys(), metadata=fields)
    return made


@pytest.fixture
def index(tmp_path, fruit):
    """An index of a test's own, to change."""
    with filled(tmp_path / "index", fruit) as made:
        yield made


@pytest.fixture(scope="module")
def read_only(tmp_path_factory, module_fruit):
    """One index for the tests that only search."""
    with filled(tmp_path_factory.mktemp("read") / "index", module_fruit) as made:
        yield made


# --- What is found ---


def test_a_search_brings_the_same_as_looking_at_every_document(index_of):
    chance = random.Random(0)
    words = [f"w{n}" for n in range(60)]
    model = StaticEmbedder(Vocabulary(words), np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32))
    texts = [" ".join(chance.choices(words, k=chance.randint(1, 30))) for _ in range(400)]
    index = index_of(
        texts, ids=[str(n) for n in range(len(texts))], models={"m": model}, weights={"bm25": 0.3, "m": 0.7}
    )
    index.rebuild()  # the mean length of all, not of a sample
    for _ in range(4):
        query = " ".join(chance.choices(words, k=4))
        cosines = model.similarity(model.encode([query]), model.encode(texts))[0]
        every = 0.3 * np.array(brute_bm25(query, texts)) + 0.7 * cosines
        for top_k in (1, 10, 20):
            hits = index.search(query, top_k)
            assert hits.exact
            assert [hit.score for hit in hits] == pytest.approx(np.sort(every)[::-1][:top_k].tolist(), abs=2e-6)


@pytest.mark.parametrize("query", ["", "zzz qqq", "!!!", "the", *HOSTILE])
def test_any_text_can_be_asked(read_only, query):
    for hit in read_only.search(query):
        assert hit.marks is not None and hit.snippet in hit.summary()
        hit.explain()


def test_an_empty_index_and_a_large_top_k(tmp_path, fruit, read_only):
    with Index.create(tmp_path / "empty", {"fruit": fruit}) as empty:
        assert list(empty.search("apple")) == [] and len(empty) == 0 and empty.verify() == []
        assert "0 documents" in str(empty.search("apple")) and empty.add([], ids=[]) == 0
    assert len(read_only.search("apple car the law", top_k=10_000)) == len(TEXTS)


# --- Why ---


def test_the_views_of_a_result(read_only):
    jsonschema = pytest.importorskip("jsonschema")
    hits = read_only.search("apples <b>and</b> cars")
    schema = json.loads((Path(__file__).parents[2] / "docs" / "search-schema.json").read_text("utf-8"))
    value = json.loads(hits.to_json())
    jsonschema.validate(value, schema)
    assert value == hits.to_dict()
    assert hits[0].lines()[0].name in hits.to_frame()["reasons"][0]
    assert "apples" in str(hits) and "<b>and" not in hits.to_html() and "\n" not in repr(hits)
    assert list(hits.to_frame()["id"]) == [hit.id for hit in hits]


def test_a_closed_index_says_so(tmp_path):
    index = Index.create(tmp_path / "index", {})
    index.close()
    index.close()
    for ask in (
        lambda: index.search("x"),
        lambda: index["a"],
        lambda: "a" in index,
        lambda: list(index),
        lambda: index.add(["y"], ids=["x"]),
        lambda: index.delete(["x"]),
        lambda: index.rebuild(),
        lambda: index.info(),
        lambda: index.verify(),
    ):
        with pytest.raises(InputError, match="is closed"):
            ask()


# --- Filters ---


# --- Changes ---


def test_documents_are_replaced_changed_and_removed(index):
    assert index.add(["A new text about trains"], ids=["a"], titles=["Rails"]) == 1 and len(index) == len(TEXTS)
    assert index.search("trains")[0].id == "a" and index["a"].title == "Rails"
    assert "a" not in [hit.id for hit in index.search("pear table", weights={"bm25": 1})]
    index.update("a", metadata={"n": 77})
    assert index["a"].text == "A new text about trains" and index["a"].title == "Rails"
    assert [hit.id for hit in index.search("trains", where={"n": 77})] == ["a"]
    assert index.delete(["a", "b"]) == 2 and "a" not in index and "c" in index
    assert not list(index.search("trains", weights={"bm25": 1}))
    assert index.delete(["a"], missing_ok=True) == 0 and index.verify() == []


def test_bm25_is_that_of_the_documents_there_are(tmp_path):
    chance = random.Random(1)
    with Index.create(tmp_path / "index", {}) as index:
        documents = {}
        for turn in range(30):
            own = {
                f"d{chance.randrange(20)}": " ".join(chance.choices(["ax", "by", "cz"], k=4 + turn)) for _ in range(3)
            }
            documents = {k: v for k, v in documents.items() if k not in own} | own
            index.add(own.values(), ids=own.keys())
            for gone in chance.sample(sorted(documents), 1):
                index.delete(gone)
                del documents[gone]
            expected = dict(zip(documents, brute_bm25("ax cz other", documents.values()))) if documents else {}
            if turn == 20:
                index.rebuild()
            hits = {hit.id: hit.score for hit in index.search("ax cz other", 30)}
            assert hits == pytest.approx({own: score for own, score in expected.items() if score}, abs=1e-6)
        assert index.verify() == []


def test_long_documents_are_cut_and_the_best_passage_is_shown(index_of):
    sentences = [f"Sentence {n} speaks of nothing much at all." for n in range(100)]
    sentences[70] = "Here the aardvark appears."
    text = " ".join(sentences)
    index = index_of(
        [text, "no animal, 2 plants."], ids=["long", "short"], titles=["Aardvarks", "In spring"], passage_characters=500
    )
    assert sentence_spans(index["short"].passages()[0]) == [(0, 9), (11, 31)]  # no sentence is of title and text
    assert index.info()["passages"] > 8
    hits = index.search("aardvark")
    assert [hit.id for hit in hits] == ["long"] and "aardvark" in hits[0].text and len(hits[0].text) <= 500
    assert text[hits[0].start :].startswith(hits[0].text) and hits[0].passage > 0
    assert hits[0].reasons.text == "Aardvarks\n\n" + hits[0].text
    marks = hits[0].marks
    assert (
        [hits[0].title[s:e] for s, e, _ in marks.title],
        [hits[0].text[s:e] for s, e, _ in marks.text],
        hits[0].snippet,
    ) == (["Aardvarks"], ["aardvark"], "Here the aardvark appears.")
    assert index["long"].text == text


@given(st.text(alphabet="ab .\n\u3002", max_size=300), st.integers(5, 50))
def test_passages_are_the_text_in_pieces(text, limit):
    ends = passage_ends(text, limit)
    starts = (0, *ends[:-1])
    assert "".join(text[start:end] for start, end in zip(starts, ends)) == text
    assert all(0 < end - start <= limit for start, end in zip(starts, ends)) or not text


TEXT_LISTS = st.lists(st.tuples(st.sampled_from(["a loan", "a cat", ""]), st.sampled_from([None, {"n": 1}, {"n": 2}])))


@given(TEXT_LISTS, TEXT_LISTS)
def test_documents_without_ids_are_added_once(tmp_path_factory, rows, more):
    with Index.create(tmp_path_factory.mktemp("ids") / "index", {}) as index:
        texts, metadata = [text for text, _ in rows], [fields for _, fields in rows]
        assert index.add(texts, metadata=metadata) == len(index) == len(rows)  # equal ones, too, are so many
        before = {document.id: document for document in index}
        assert index.add(iter(texts), metadata=metadata) == 0 and {d.id: d for d in index} == before
        index.add([text for text, _ in more], metadata=[fields for _, fields in more])
        counts = Counter((text, str(fields or {})) for text, fields in rows)
        counts |= Counter((text, str(fields or {})) for text, fields in more)
        assert Counter((document.text, str(document.metadata)) for document in index) == counts


def test_a_document_that_is_too_long(tmp_path):
    with Index.create(tmp_path / "index", {}, passage_characters=100) as index:
        with pytest.raises(InputError, match="at most 65,536"):
            index.add(["a b " * 1_700_000], ids=["x"])
        assert len(index) == 0


def test_a_model_that_gives_nan_stores_nothing(index_of):
    def broken(texts):
        rows = lengths(texts)
        rows[["bad" in text for text in texts]] = np.nan
        return rows

    index = index_of(["fine"], ids=["a"], models={"m": broken})
    with pytest.raises(InputError, match="NaN"):
        index.add(["good", "a bad one"], ids=["b", "c"])
    assert len(index) == 1 and index.verify() == []


def test_odd_texts_and_ids_come_back_as_they_are(index_of):
    ids = ["a b", "\u6f22\u5b57", "x" * 3000, "'; DROP TABLE documents; --", "\n"] + [
        f"h{n}" for n in range(len(HOSTILE))
    ]
    texts = ["", " ", "a\x00b word", "\u6771\u4eac\u30bf\u30ef\u30fc word", "word", *HOSTILE]
    index = index_of(texts, ids=ids)
    assert [document.id for document in index] == ids
    assert [document.text for document in index] == [well_formed(text) for text in texts]
    assert {hit.id for hit in index.search("word")} == {ids[2], ids[3], ids[4]}
    assert [hit.id for hit in index.search("\u30bf\u30ef\u30fc")] == [ids[3]]
    assert index.delete(ids) == len(ids) and index.verify() == []
    index.add(["word"], ids=["x"], titles=["\ud800"], metadata=[{"\ud800 name": "\udfff", "n": 2**53}])
    assert [hit.id for hit in index.search("word", where={"\ufffd name": "\udfff", "n": 2**53})] == ["x"]


# --- Opening, models, formats ---


def test_another_model_is_refused(tmp_path, fruit):
    Index.create(tmp_path / "index", {"fruit": fruit}).close()
    vectors = fruit.vectors.copy()
    vectors[1, 1] += 0.01  # one word a little
    other = StaticEmbedder(fruit.vocabulary, vectors)
    with pytest.raises(IndexFolderError, match=r"the model 'fruit' .* is another model"):
        Index.open(tmp_path / "index", models={"fruit": other})
    with pytest.raises(InputError, match="no model 'nut'"):
        Index.open(tmp_path / "index", models={"nut": fruit})
    Index.open(tmp_path / "index", models={"fruit": fruit}).close()


def test_a_function_is_given_again_and_recognised(tmp_path):
    with Index.create(tmp_path / "index", {"m": lengths}) as index:
        index.add(["a text"], ids=["a"])
    with pytest.raises(InputError, match="is a function"):
        Index.open(tmp_path / "index")
    with pytest.raises(IndexFolderError, match="is another model"):
        Index.open(tmp_path / "index", models={"m": lambda texts: lengths(texts)[:, ::-1]})
    with Index.open(tmp_path / "index", models={"m": lambda texts: lengths(texts) * 2}) as index:  # length is no matter
        assert index.search("a text")[0].id == "a"


def test_rebuilding_repairs_and_changes_models(tmp_path, index_of, fruit):
    index = index_of(TEXTS.values(), ids=TEXTS.keys(), models={"fruit": fruit})
    without = fruit.without(2)
    index.rebuild({"fruit": without})
    assert index.verify() == [] and len(list(index.folder.glob("models-*"))) == 1
    words = index.search("apple", weights={"fruit": 1})
    assert words[0].score == pytest.approx(float(without.similarity_pairwise(
        without.encode(["apple"]), without.encode([words[0].text]))[0]), abs=1e-6)  # fmt: skip
    with Index.open(tmp_path / "index") as index:
        assert index.verify() == [] and len(index) == len(TEXTS)
    with Index.open(tmp_path / "index", {"fruit": fruit}, rebuild=True) as index:
        assert index.verify() == [] and index.search("apples")[0].id == "c"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "does not exist"),
        ({}, "is no index"),
        ({"index.json": "{}"}, r"index\.json is of something else"),
        ({"index.json": '{"pellucid-index": {"format": 1}}'}, r"has format 1; pellucid .* reads 4"),
    ],
)
def test_folders_that_are_no_index(tmp_path, files, message):
    for name in files or ():
        (tmp_path / name).write_text(files[name])
    with pytest.raises(IndexFolderError, match=message):
        Index.open(tmp_path / "nowhere" if files is None else tmp_path)


def test_a_full_disk_is_told_before_anything_is_lost(index, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(WritingError, match="What was committed is safe"):
        index.add(["y"], ids=["x"])
    monkeypatch.undo()
    index.add(["y"], ids=["x"])
    assert index.verify() == []


# --- Words ---


@given(texts=st.lists(st.text(alphabet=st.characters(codec="utf-8"), max_size=40), max_size=4))
@example(["US, us, AIDS and Us"])
def test_words_are_read_as_they_are_split(texts):
    words = WordCache(Analyser(), {})
    words.read([text.lower() for text in texts])  # a word is not taken for its lower case
    found = words.read(texts)
    spelled = [words._spelled[number] for number in found.values.tolist()]
    read = [(text, word, *span) for text, word, span in zip(found.texts().tolist(), spelled, found.spans.tolist())]
    assert read == [(n, *word) for n, text in enumerate(texts) for word in split_words(text)]


def test_the_rows_of_texts_are_those_of_the_vocabulary():
    texts = ["New York, new hats in \u6771\u4eac\u90fd", "", "\u00fcber new York and caf\u00e9"] * 2
    for spelled in (["new\u2581york", "new", "caf\u00e9"], ["\u6771\u4eac", "new", "york", "\u90fd"], ["hats", "New"]):
        model = StaticEmbedder(Vocabulary(spelled), np.eye(len(spelled), 5, dtype=np.float32))
        words = WordCache(Analyser(), {"m": model})
        rows, _ = words.rows("m", texts, words.read(texts))
        for number, text in enumerate(texts):
            known = [(model.vocabulary.row(word.text), *word[1:]) for word in model.vocabulary.split(text)]
            part = rows.slice_for(number)
            read = [(row, *span) for row, span in zip(rows.values[part].tolist(), rows.spans[part].tolist())]
            assert read == [word for word in known if word[0] >= 0]


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(-2, 4))), min_size=1, max_size=3))
def test_marks_of_a_text_are_in_its_order_each_place_once(parts):
    terms = {}
    for number, of_part in enumerate(parts):
        spans = np.array([(start, start + length) for start, length, _ in of_part], np.int64).reshape(-1, 2)
        marks = Marks(np.array([value for *_, value in of_part], np.float64), spans)
        terms[str(number)] = EMPTY_TERMS._replace(marks=marks)
    values, spans = Reasons("q", "t", terms, 0.0, named=True).marks()
    sums = Counter[tuple[int, int]]()
    for start, length, value in chain(*parts):
        sums[start, start + length] += value
    assert dict(zip(map(tuple, spans.tolist()), values.tolist())) == sums
    assert spans.tolist() == sorted(spans.tolist())


def test_the_first_word_that_is_read_by_its_spelling_may_be_of_a_query(index_of):
    index = index_of(["a boat on the river"], models="static-multi")
    assert len(index.search("supersonik")) == 1


def test_words_of_the_query_count_what_is_said(tmp_path, fruit):
    query = "apples, pears and a car"
    with filled(tmp_path / "index", fruit) as index:
        plain = {hit.id: hit for hit in index.search(query)}
        hits = index.search(query, word_weights={"pear": 0.25, "car": 0, "qqq": 3})
        assert hits.exact and len(hits)
        for hit in hits:
            before = plain[hit.id].explain()
            factors = {"pears": 0.25, "car": 0.0}
            expected = sum(row.contribution * factors.get(row.parts[0].split(" ")[0], 1) for row in before.rows)
            assert hit.score == pytest.approx(expected, abs=1e-6)
            assert hit.explain().score == pytest.approx(sum(row.contribution for row in hit.explain().rows), abs=1e-6)
        assert index.score(query, "d", word_weights={"car": 0, "apple": 0, "pear": 0}).score == 0.0


SYNONYMS = {"car": ["auto", "the", "cars"], "nyc": ["new york"], "big apple": ["nyc"], "the": ["horse"], "pie": ["nyc"]}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("cars", {"cars ~ autos"}), ("auto", set()), ("an auto, a car", set()), ("the horse", set()),  # its own word
        ("nyc", {"nyc ~ New", "nyc ~ york"}), ("apple pie", {"pie ~ NYC"}), ("an apple is big", {"apple big ~ NYC"}),
        ("big apple pie", {"big apple ~ NYC"}),
    ],
)  # fmt: skip
def test_a_synonym_is_a_term_beside_the_word_and_lowers_no_score(index_of, fruit, query, expected):
    texts = ["cars", "autos in New Jersey", "of york", "NYC", "a horse", "the big apple pie", "pear"]
    index = index_of(texts, ids=texts, models={"fruit": fruit})
    found, before = index.search(query, synonyms=SYNONYMS), {hit.id: hit for hit in index.search(query)}
    assert {r.name for hit in found for r in hit.reasons.top(99) if r.kind == "synonym"} == {
        f"bm25: {name} (synonym)" for name in expected
    }
    for hit in found:
        assert sum(row.contribution for row in hit.explain().rows) == pytest.approx(hit.score, abs=1e-6)
        assert hit.score >= (before[hit.id].score if hit.id in before else 0.0) - 1e-9
        assert index.score(query, hit.id, synonyms=SYNONYMS).score == pytest.approx(hit.score, abs=1e-6)
    index.configure(synonyms=SYNONYMS)
    index.rebuild()
    assert index.search(query).to_dict() == found.to_dict()
    assert {hit.id: hit for hit in index.search(query, synonyms={})} == before


def test_a_synonym_counts_at_most_as_its_word(index_of):
    index = index_of(["car a1", "car a2", "auto a3", "van a4", "van a5", "van a6", "no"], ids=list("abcdefg"))
    scores = {hit.id: hit.score for hit in index.search("car", synonyms={"car": ["auto", "van"]})}
    assert scores["c"] == pytest.approx(0.8 * scores["a"], rel=1e-5)  # it is rarer
    assert scores["d"] == pytest.approx(0.8 * scores["a"] * idf(7, 3) / idf(7, 2), rel=1e-5)


def test_settings_are_changed_without_new_vectors(tmp_path, fruit):
    with filled(tmp_path / "index", fruit) as index:
        files = sorted((tmp_path / "index/segments").iterdir())
        before = index.search("apple car", weights={"fruit": 1}, word_weights={"car": 0.1})
        index.configure(weights={"fruit": 1}, word_weights={"car": 0.1})
        assert sorted((tmp_path / "index/segments").iterdir()) == files
        assert index.search("apple car").to_dict() == before.to_dict()

    with Index.open(tmp_path / "index") as index:
        assert index.weights == {"bm25": 0.0, "fruit": 1.0} and index.word_weights == {"car": 0.1}
        assert index.verify() == []
        index.configure(word_weights={})
        assert index.weights["fruit"] == 1 and index.word_weights == {}


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("weights", {"bm25": math.nan, "fruit": 1}),
        ("weights", {"bm25": -1, "fruit": 2}),
        ("weights", {"bm25": "much", "fruit": 1}),
        ("weights", {"bm25": 0, "fruit": 0}),
        ("weights", {"bm25": 1, "other": 1}),
        ("weights", [1, 2]),
        ("word_weights", {"car": math.inf}),
        ("word_weights", ["car"]),
        ("synonyms", {"car": "auto"}),
        ("synonyms", {"car": ["a" * 201]}),
    ],
)
def test_stored_settings_are_checked_when_an_index_is_opened(tmp_path, fruit, name, stored):
    with filled(tmp_path / "index", fruit) as index:
        with index._exclusive_writer() as writer:
            state = writer.commit.state
            writer.save(replace(state, settings=state.settings | {name: stored}))
    with pytest.raises(IndexFolderError, match=r"commit\.json cannot be used: .*(weight|synonym).* rebuild=True"):
        Index.open(tmp_path / "index")
    with Index.open(tmp_path / "index", rebuild=True) as index:
        assert index.weights == {"bm25": 0.7, "fruit": 0.3} and index.word_weights == index.synonyms == {}
    Index.open(tmp_path / "index").close()


@pytest.mark.parametrize(
    ("module", "setting", "value"),
    [(bm25, "K1", 2.0), (terms, "ENGLISH_STOP_WORDS", frozenset(["apple"])), (terms, "MAX_ACRONYM_LETTERS", 3)],
)
def test_bm25_of_another_version_is_refused(tmp_path, fruit, monkeypatch, module, setting, value):
    with filled(tmp_path / "index", fruit) as index:
        index.configure(weights={"bm25": 0.5, "fruit": 0.5})
    monkeypatch.setattr(module, setting, value)
    with pytest.raises(IndexFolderError, match="another stemmer, stop words, k1 or b"):
        Index.open(tmp_path / "index")
    with Index.open(tmp_path / "index", rebuild=True) as index:
        assert index.verify() == [] and index.weights["bm25"] == 0.5
    Index.open(tmp_path / "index").close()


@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
def test_reasons_of_static_words_add_up_to_the_cosine(index_of, kind):
    rng = np.random.default_rng(3)
    words = [f"w{n}" for n in range(300)]
    table = rng.normal(size=(300, 70)).astype(np.float32)
    scales = (np.abs(table).max(axis=1) / 127).astype(np.float32) if kind == "int8" else None
    table = np.round(table / scales[:, None]).astype(np.int8) if kind == "int8" else table.astype(kind)
    model = StaticEmbedder(Vocabulary(words), table, scales)
    texts = [" ".join(rng.choice(words, size)) for size in (5, 40, 700)] + ["nothing known", ""]
    query = "w1 w2 w3 w2 " + " ".join(words[10:20])

    index = index_of(texts, ids=map(str, range(5)), models={"m": model}, bm25=False)
    cosines = model.similarity(model.encode(query), model.encode(texts))[0]
    hits = index.search(query)
    assert len(hits) == 3
    for hit in hits:
        assert hit.reasons.terms["m"].values.sum() == pytest.approx(cosines[int(hit.id)], abs=1e-5)


# --- Kinds of fields ---


def test_a_field_knows_the_kinds_of_its_values(index_of):
    values = [1, 2.5, "a", "2024-05-31", "2024-05-31T10:00:00.5+02:00", "2024-W22-5", "20240531", True, ["b", 3], None]
    index = index_of(
        ["word"] * len(values), metadata=[{"x": value, f"of {n}": value} for n, value in enumerate(values)]
    )
    fields = index.info()["fields"]
    assert fields["x"] == "number or date or boolean or string"
    named = ["number", "number", "string", "date", "date", "string", "string", "boolean", "number or string"]
    assert [fields[f"of {n}"] for n in range(9)] == named and "of 9" not in fields
    index.rebuild()
    assert index.info()["fields"] == fields and not index.verify()


@pytest.mark.parametrize("source", ["someone/model-of-the-hub", "/etc", "../elsewhere"])
def test_an_index_from_elsewhere_asks_nobody(tmp_path, fruit, monkeypatch, source):
    fruit.save_pretrained(tmp_path / "elsewhere")
    with filled(tmp_path / "index", fruit) as index, index._exclusive_writer() as writer:
        state = writer.commit.state
        settings = json.loads(json.dumps(state.settings))
        settings["models"][0] |= {"source": source, "copy": None}
        writer.save(replace(state, settings=settings))

    def connect(*arguments, **named):
        raise AssertionError(f"a connection was opened: {arguments}")

    monkeypatch.setattr("socket.socket.connect", connect)
    with pytest.raises(IndexFolderError, match="allow_outside=True"):
        Index.open(tmp_path / "index")


def test_an_index_holds_a_copy_of_a_model_given_by_its_folder(tmp_path, fruit):
    fruit.save_pretrained(tmp_path / "model")
    with Index.create(tmp_path / "index", {"m": tmp_path / "model"}) as index:
        index.add(["an apple"], ids=["a"])
    shutil.rmtree(tmp_path / "model")
    with Index.open(tmp_path / "index") as index:
        assert index.search("apple")[0].id == "a" and index.info()["models"] == {"m": str(tmp_path / "model")}
        index.rebuild()
        assert index.verify() == []
