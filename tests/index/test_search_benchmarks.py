"""What the benchmarks of search compute at once is what an index computes, query by query."""

import copy
import dataclasses
import math

import numpy as np
import pytest

import pellucid
from benchmarks import search
from benchmarks.search import DEFAULT, difference_table, mean_of_sets
from benchmarks.search_tried import TRIED, TRIED_SINCE, Judged
from papers.retrieval_sets import Collection
from pellucid.index import bm25

DOCUMENTS = [
    "The bank raised the interest rate again.",
    "Mortgages got dearer this year, says the bank.",
    "A horse is running on the beach; the horse is fast.",
    "Interest in horses is high this year.",
]
QUERIES = ["interest of the bank", "who guidelines for a horse race"]


@pytest.fixture(scope="module")
def collection():
    grades = {f"q{n}": {f"d{n}": 1} for n in range(len(QUERIES))}
    return Collection("small", [f"d{n}" for n in range(len(DOCUMENTS))], DOCUMENTS, QUERIES, grades)


@pytest.fixture(scope="module")
def judged(collection, tmp_path_factory):
    return Judged(collection, tmp_path_factory.mktemp("judged") / "index")


@pytest.mark.parametrize("part", ["bm25", "static-en", None])
def test_scores_of_all_documents_are_those_of_searches(collection, judged, part, tmp_path):
    default = next(scorer for name, scorer in TRIED.items() if "default" in name)
    words = judged.bm25(bm25.K1, bm25.B)
    scores = {"bm25": words, "static-en": judged.cosines(), None: default(judged)}[part]
    with pellucid.Index.create(tmp_path / "index") as index:
        index.add(collection.documents, ids=collection.ids)
        index.rebuild()  # the mean length of all
        for query, row in zip(QUERIES, scores):
            hits = index.search(query, weights=None if part is None else {part: 1})
            expected = dict(zip(collection.ids, row.tolist()))
            assert {hit.id: hit.score for hit in hits} == pytest.approx(
                {hit.id: expected[hit.id] for hit in hits}, abs=1e-5
            )
            if part == "bm25":  # a static model finds nothing where it knows no word
                assert not any(expected[id] for id in expected.keys() - {hit.id for hit in hits})


def test_query_words_count_as_a_power_of_their_idf(judged):
    words = {"interest": 2, "bank": 2}  # in two of four documents each
    of, the = (math.log(1 + 3.5 / 1.5),) * 2  # stop words count as in a quarter of them
    weights = {**{w: math.log(1 + (4 - n + 0.5) / (n + 0.5)) for w, n in words.items()}, "of": of, "the": the}
    model = judged.model
    expected = sum(w**0.5 * model.word_vectors([model.vocabulary.row(word)])[0] for word, w in weights.items())
    np.testing.assert_allclose(judged.query_vectors(0.5)[0], expected / np.linalg.norm(expected), atol=1e-5)


def test_two_words_in_a_row_weigh_what_their_idf_is_above_that_of_the_rarer_one(tmp_path):
    documents = ["The rate of interest is high.", "Interest rates rise.", "An interest in the rate."]
    pairs = Judged(Collection("pairs", list("abc"), documents, ["interest rate", "rate"], {}), tmp_path / "index")
    idfs = {n: math.log(1 + (3 - n + 0.5) / (n + 0.5)) for n in (2, 3)}  # of terms in two and three of three documents
    weight = (idfs[2] - idfs[3]) / (2 * idfs[3])
    lengths = np.array([3, 3, 2])
    damping = 0.8 * (0.5 + 0.5 * lengths / lengths.mean())
    expected = np.array([0, 1, 1]) * weight / (1 + damping)
    np.testing.assert_allclose(pairs.pairs_bm25(0.8, 0.5), [expected, [0, 0, 0]], atol=1e-6)


def test_the_nearest_sentence_of_a_document_counts(collection, judged):
    sentences = ["The bank raised the interest rate again.", "A horse is running on the beach; the horse is fast."]
    longer = copy.copy(judged)
    longer.collection = dataclasses.replace(collection, documents=[" ".join(sentences), *DOCUMENTS[1:]])
    nearest = np.maximum(judged.cosines()[:, 0], judged.cosines()[:, 2])
    np.testing.assert_allclose(longer.sentence_cosines()[:, 0], nearest, atol=1e-6)
    np.testing.assert_allclose(longer.sentence_cosines(1), judged.cosines(), atol=1e-6)


def test_the_nearest_word_of_a_document_to_each_query_word_counts(judged):
    model = judged.model

    def vectors(text):
        return model.word_vectors([model.vocabulary.row(word.text) for word in model.vocabulary.split(text)])

    for query, row in zip(QUERIES, judged.word_cosines(0.3)):
        lengths = np.linalg.norm(vectors(query), axis=1)
        for document, score in zip(DOCUMENTS, row):
            words = vectors(document) / np.linalg.norm(vectors(document), axis=1, keepdims=True)
            nearest = (vectors(query) @ words.T).max(axis=1) / lengths
            assert score == pytest.approx(np.clip((nearest - 0.3) / 0.7, 0, None) @ lengths / lengths.sum(), abs=1e-5)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] if "scikit" in name else []) for name in TRIED_SINCE]
)
def test_each_way_scores_every_document_for_every_query(name, judged):
    if "lemma" in name:
        pytest.importorskip("simplemma")
    if "scikit" in name:
        pytest.importorskip("sklearn")
    scores = TRIED_SINCE[name](judged)
    assert scores.shape == (len(QUERIES), len(DOCUMENTS)) and np.isfinite(scores).all()
    assert scores.argmax(axis=1).tolist() == [0, 2]


def test_a_difference_is_the_mean_over_sets_and_gets_a_verdict(collection):
    sets = [np.array([2.0] * 50), np.array([0.0, 2.0] * 20)]
    interval = mean_of_sets(sets)
    assert interval.value == 1.5 and 1.2 < interval.low < 1.5 < interval.high < 1.8
    scores = {"BM25 alone": [np.zeros(50), np.zeros(40)], DEFAULT: sets}
    *_, row = difference_table(scores, [collection] * 2)
    assert row.startswith(f"| {DEFAULT} - BM25 alone | +2.0 | +1.0 | +1.5 (") and row.endswith("| **holds** |")


@pytest.mark.parametrize(("model", "option"), [("potion-base-8M", "--potion"), ("mpnet", "--vectors")])
def test_a_model_that_is_not_at_hand_is_refused_before_anything_is_measured(model, option, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["search", "--models", "static-en", model])
    with pytest.raises(SystemExit):
        search.main()
    assert f"needs {option}" in capsys.readouterr().err


def test_a_rivals_table_is_read_as_a_function_to_unit_rows(monkeypatch):
    class Table:
        def encode(self, texts):
            return np.array([[3.0, 4.0] if text else [np.nan, np.nan] for text in texts])

    monkeypatch.setattr(search, "open_any", lambda spec: Table())
    np.testing.assert_allclose(search.static_peer("model2vec:folder")(["a", ""]), [[0.6, 0.8], [0.0, 0.0]])


@pytest.mark.parametrize("learnt", ["query", "document", "both", pytest.param("table", marks=pytest.mark.full), "map"])
def test_a_tuned_search_begins_as_the_default_and_learns_its_pairs(learnt, collection, judged, tmp_path):
    pytest.importorskip("torch")
    from benchmarks import search_tuned as tuning

    start = tuning.Tuned(judged.model, learnt)
    default = next(scorer for name, scorer in TRIED.items() if "default" in name)(judged)
    np.testing.assert_allclose(start.score(judged), default, atol=1e-5)
    pairs = tuning.Pairs(collection, tmp_path / "pairs")
    assert [sorted(row) for row in pairs.hard.tolist()] == [[1, 2, 3], [0, 2, 3]]  # all but the right document
    way = tuning.Way(learnt, ("pairs",), 0.05, 3)
    tuned = tuning.train(way, {"pairs": [pairs]}, judged.model)
    before, after = (
        np.mean(np.log(np.exp(scores / tuning.TEMPERATURE).sum(axis=1)) - np.diag(scores) / tuning.TEMPERATURE)
        for scores in (default, tuned.score(judged))
    )
    assert after < before
