"""Concept reasons: planted concepts are found again, rows and remainder add up, what is removed is gone."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from pellucid.dense.concepts import ConceptReasons, _distinct
from pellucid.dense.learning import learned_directions
from pellucid.dense.words import Fit, WordReasons
from pellucid.errors import InputError, ModelFolderError
from pellucid.explain.rows import DIMENSION, REMAINDER, SHARED
from pellucid.persistence.store import checksum
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.function_words import differ_by_ending
from pellucid.text.words import Vocabulary
from tables import HOSTILE, check_views

NAMES = ["bank", "river", "music", "law", "sport", "food"]


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def planted(concepts=40, dimension=64, texts=300, most=4, seed=0):
    """Return random directions, sparse weights, and the vectors that they add up to."""
    rng = np.random.default_rng(seed)
    directions, weights = unit(rng.normal(size=(concepts, dimension))), np.zeros((texts, concepts))
    for row in weights:
        row[rng.choice(concepts, most, replace=False)] = rng.uniform(0.3, 1.0, most)
    return directions, weights, unit(weights @ directions)


class Letters:
    """An encoder of letters: how often each occurs, and one more."""

    def __call__(self, texts):
        return np.array([[text.count(letter) for letter in "abcdefgh"] for text in texts]) + 0.1


@pytest.fixture(scope="module")
def model():
    dense = pellucid.load(Letters())
    return dense.with_reasons(ConceptReasons.from_texts(dense, {n: n for n in NAMES}, ["abc", "def", "gh a"], most=3))


def test_planted_concepts_are_found_again():
    directions, weights, vectors = planted()
    reasons = ConceptReasons([f"c{n}" for n in range(40)], directions, np.zeros(64), most=8)
    found = reasons.weights(vectors)
    expected = weights / np.linalg.norm(weights @ directions, axis=1, keepdims=True)
    assert found.dtype == np.float32
    assert found.data.min() > 0
    right = (found.toarray() > 0.1) & (expected > 0.1)
    assert right.sum() / (expected > 0.1).sum() > 0.95
    rests = vectors - found @ reasons.directions
    assert (rests**2).sum(axis=1).mean() < 0.001


def test_weights_by_hand():
    """Along the axes they are the coordinates, largest first; what points away has none."""
    reasons = ConceptReasons(["x", "y", "z"], [[2, 0, 0], [0, 1, 0], [0, 0, -5]], np.array([0.0, 0, 0.2]), most=2)
    np.testing.assert_allclose(reasons.weights([[6, 8, 0]]).toarray(), [[0.6, 0.8, 0]], atol=1e-6)  # z would be third
    np.testing.assert_allclose(reasons.weights([[0, 0, 1]]).toarray(), [[0, 0, 0]], atol=1e-6)
    np.testing.assert_allclose(reasons.weights([[0, 0, -1]]).toarray(), [[0, 0, 1.2]], atol=1e-6)


def test_a_score_by_hand():
    reasons = ConceptReasons(["x", "y"], np.eye(3)[:2], np.zeros(3))
    first, second = (reasons.parts("", None, np.array(v)) for v in ([0.6, 0.0, 0.8], [0.8, 0.36, 0.48]))
    terms = reasons.products(first, second)
    found = {terms.row(number).name: value for number, value in enumerate(terms.values)}
    assert found == {"x": pytest.approx(0.48), "y": pytest.approx(0.0)}  # and the remainder is 0.8 * 0.48


TEXTS = st.text("abcdefgh xyz", min_size=1, max_size=30)


@given(TEXTS, TEXTS, st.sampled_from([None, "query"]))
def test_rows_and_remainder_add_up(model, first, second, role):
    found = model.explain(first, second, role1=role)
    assert not found.exact
    assert sum(row.contribution for row in found.rows) + found.remainder == pytest.approx(found.score, abs=1e-9)
    assert {row.kind for row in found.rows} <= {DIMENSION, SHARED}
    assert not any(row.spans1 or row.spans2 for row in found.rows)
    assert {row.key[0] for row in found.rows if row.kind == DIMENSION} <= set(NAMES)
    assert len(found.rows) <= 1 + 2 * 3
    alone = model.explain(first)
    assert sum(row.contribution for row in alone.rows) + alone.remainder == pytest.approx(alone.score, abs=1e-9)


def test_the_remainder_is_the_product_of_what_is_left(model):
    first, second = (model.similarity_rows(model.encode([text]))[0].astype(np.float64) for text in ("abba", "cafe"))
    reasons = model.reasons
    rests = [v - reasons.common - reasons.parts("", None, v).vectors.sum(axis=0) for v in (first, second)]
    assert model.explain("abba", "cafe").remainder == pytest.approx(rests[0] @ rests[1], abs=1e-6)


def test_a_search_shows_the_same_rows_and_the_remainder(model):
    vector = model.similarity_rows(model.encode(["a bad cafe"]))[0]
    found = model.analyze("abba", "query").against(["a bad cafe"], [vector])(0)
    rows = [found.row(number) for number in range(len(found.values))]
    assert rows[-1].kind == REMAINDER
    assert found.values.sum() == pytest.approx(model.explain("abba", "a bad cafe").score, abs=1e-6)
    assert not len(found.spans)


def test_weights_are_those_of_explanations(model):
    texts = ["abba", "cafe", "high"] * 200  # more than one block
    weights = model.reasons.weights(model.encode(texts)).toarray()
    assert np.abs(weights - np.tile(weights[:3], (200, 1))).max() < 1e-5
    for text, row in zip(texts[:3], weights):
        parts = model.reasons.parts(text, None, model.similarity_rows(model.encode([text]))[0].astype(np.float64))
        found = {parts.row(n).name: np.linalg.norm(part) for n, part in enumerate(parts.vectors)}
        assert found == pytest.approx({name: weight for name, weight in zip(NAMES, row) if weight}, abs=1e-4)
    assert model.reasons.weights(np.zeros((0, 8), np.float32)).shape == (0, len(NAMES))


def test_what_is_removed_is_gone_and_the_rest_keeps_its_weights():
    directions, _, vectors = planted()
    reasons = ConceptReasons([f"c{n}" for n in range(40)], directions, np.zeros(64), most=8)
    before, left = reasons.weights(vectors).toarray(), reasons.removed(vectors, "c3", "c5")
    after = reasons.weights(left).toarray()
    np.testing.assert_allclose(np.linalg.norm(left, axis=1), 1, atol=1e-6)
    assert after[:, [3, 5]].sum() < 0.05 * before[:, [3, 5]].sum()
    untouched = (before[:, [3, 5]] == 0).all(axis=1)
    np.testing.assert_allclose(left[untouched], vectors[untouched], atol=1e-6)
    assert 0 < untouched.sum() < len(vectors)


def test_drift_names_what_changed_with_its_interval():
    directions, weights, _ = planted(texts=400)
    rng = np.random.default_rng(1)
    weights[200:, 7] = rng.uniform(0.5, 0.9, 200)
    vectors = unit(weights @ directions)
    reasons = ConceptReasons([f"c{n}" for n in range(40)], directions, np.zeros(64), most=8)
    found = reasons.drift(vectors[:200], vectors[200:], top_k=5)
    first = found.rows[0]
    assert (first.concept, found.before, found.after, len(found.rows)) == ("c7", 200, 200, 5)
    assert 0.2 < first.low < first.change < first.high
    assert first.change == pytest.approx(first.after - first.before)
    assert "c7" in check_views(found)
    assert list(found.to_dict()["rows"][0]) == ["concept", "before", "after", "change", "low", "high"]
    same = reasons.drift(vectors[:100], vectors[100:200], top_k=40)
    covered = [row.low <= 0 <= row.high for row in same.rows]
    assert np.mean(covered) > 0.8  # 95 % of the concepts, up to chance
    assert not reasons.drift(vectors[:100], vectors[:100]).rows
    with pytest.raises(InputError, match="2 texts or more, got 1"):
        reasons.drift(vectors[:1], vectors)


def test_an_interval_by_hand():
    reasons = ConceptReasons(["x", "y"], np.eye(2), np.zeros(2))
    row = reasons.drift([[1, 0], [0, 1]], [[1, 0], [1, 0]]).rows[0]
    assert (row.concept, row.change) == ("x", pytest.approx(0.5))
    assert row.high - row.change == pytest.approx(1.96 * (0.5 / 2) ** 0.5, rel=1e-4)  # variances 0.5 and 0


def test_a_name_of_any_kind_is_shown():
    size = len(HOSTILE)
    reasons = ConceptReasons(HOSTILE, np.eye(size), np.zeros(size), most=1)
    found = reasons.drift(np.eye(size), np.eye(size)[[0] * size])
    assert len(found.rows) == size
    check_views(found)


def test_words_of_a_table_become_concepts_of_one_meaning_each():
    words = ["the", "bank", "banks", "tuesday", "loan", "2", "x", "river", "stream", "new▁york"]
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(len(words), 32)).astype(np.float32)
    vectors[2] = vectors[1] + 0.7 * rng.normal(size=32) * np.linalg.norm(vectors[1]) / 32**0.5  # alike, and so spelled
    vectors[8] = vectors[7] + 0.01
    table = StaticEmbedder(Vocabulary(words), vectors)
    arrays = {"map": np.eye(32), "common": np.zeros(32)}
    fitted = WordReasons(table, arrays, Fit("table", 1, 1.0), {})
    reasons = ConceptReasons.from_words(pellucid.load(Letters()), fitted)
    assert reasons.names == ["bank", "loan", "river"]
    assert ConceptReasons.from_words(pellucid.load(Letters()), fitted, concepts=1).names == ["bank"]
    assert repr(reasons) == "ConceptReasons(3 concepts, 16 a text)"


def test_the_commoner_of_two_words_stays():
    rows = unit(np.array([[1.0, 0, 0], [0, 1, 0], [1, 0.1, 0], [0.1, 1, 0.05], [0.7, 0, 0.7]]))
    assert _distinct(["a", "b", "c", "d", "e"], rows) == [0, 1, 4]
    assert _distinct(["walk", "b", "c", "d", "walked"], rows) == [0, 1]
    assert differ_by_ending("bank", "banking")
    assert not differ_by_ending("bank", "bankruptcy")
    assert not differ_by_ending("car", "cars")  # too little is the same


def test_texts_of_the_users_own_are_concepts(model):
    dense = pellucid.load(Letters())
    reasons = ConceptReasons.from_texts(dense, ["abc", "fgh"], ["abc", "d", "e"])
    assert reasons.names == ["abc", "fgh"]
    found = dense.with_reasons(reasons).explain("abc abc", "aabbcc")
    assert found.rows[0].name == "abc"
    assert model.reasons.number("law") == 3


def test_refusals(model):
    with pytest.raises(InputError, match="no concept is called 'sports'; did you mean 'sport'"):
        model.reasons.removed(np.ones((1, 8)), "sports")
    with pytest.raises(InputError, match="'law' is given twice"):
        ConceptReasons(["law", "law"], np.eye(2), np.zeros(2))
    with pytest.raises(InputError, match="no concept is given"):
        ConceptReasons.from_texts(pellucid.load(Letters()), [], ["a"])
    with pytest.raises(InputError, match="'b' has a vector without length"):
        ConceptReasons(["a", "b"], [[1, 0], [0, 0]], np.zeros(2))
    with pytest.raises(InputError, match="at least 1 concept"):
        ConceptReasons(["a"], [[1, 0]], np.zeros(2), most=0)
    with pytest.raises(InputError, match="gives 3 dimensions"):
        model.reasons.weights(np.ones((2, 3)))


SUBJECTS = {"bank": "money loan", "river": "water fish", "music": "song band"}


def subject_texts(count=600):
    """Return sentences, each about one subject, in other words than the others."""
    rng = np.random.default_rng(3)
    subjects = rng.choice(list(SUBJECTS), count)
    fillers = rng.choice(["people", "today", "story", "place", "winter"], (count, 2))
    rows = [[subject, *SUBJECTS[subject].split(), *other] for subject, other in zip(subjects, fillers)]
    return [" ".join(rng.permutation(row)) for row in rows]


class Subjects:
    """An encoder of what a sentence is about: an axis for each word of a subject, all near to each other."""

    def __init__(self, flip=1.0):
        self._flip = flip

    def __call__(self, texts):
        axes = np.eye(8)
        rows = [
            sum(
                (axes[n] + 0.2 * axes[4 + n] * text.count(SUBJECTS[subject][:3]))
                for n, subject in enumerate(SUBJECTS) if subject in text
            ) + 0.05 * axes[3] + 0.02 * self._flip * len(text) * axes[7]
            for text in texts
        ]  # fmt: skip
        return np.array(rows)


@pytest.fixture(scope="module")
def learned():
    encoder = pellucid.load(Subjects())
    return ConceptReasons.learned(encoder, subject_texts(), concepts=3, most=1)


def test_planted_directions_are_learned():
    directions, _, vectors = planted(concepts=20, dimension=32, texts=1_500, most=2)
    found = learned_directions(vectors.astype(np.float32), 40, 2, seed=0)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    assert ((found @ directions.T).max(axis=0) > 0.95).mean() >= 0.8
    np.testing.assert_array_equal(found, learned_directions(vectors.astype(np.float32), 40, 2, seed=0))


def test_learned_concepts_are_named_by_what_their_texts_share(learned):
    for subject, words in SUBJECTS.items():
        named = [set(name.split(", ")) for name in learned.names if set(name.split(", ")) & {subject, *words.split()}]
        assert len(named) == 1  # and none of another subject
        assert named[0] <= {subject, *words.split()}
    assert learned.fit.texts == 600
    assert learned.fit.explained > 0.8
    assert min(learned.fit.aucs) > 0.95
    assert repr(learned) == "ConceptReasons(3 concepts, 3 named, 1 a text)"


def test_learned_concepts_take_a_score_apart(learned):
    model = pellucid.load(Subjects()).with_reasons(learned)
    why = model.explain("a loan of the bank", "money in the bank")
    assert sum(row.contribution for row in why.rows) + why.remainder == pytest.approx(why.score, abs=1e-9)
    assert "bank" in max(why.rows, key=lambda row: row.contribution).name or "money" in why.rows[0].name
    assert sum(group.contribution for group in why.groups()) == pytest.approx(why.score, abs=1e-9)


def test_a_name_that_does_not_tell_is_dropped():
    """Which of two directions a text has is drawn at random, so no word can predict it."""
    rng = np.random.default_rng(0)
    texts = subject_texts(400)
    vectors = np.eye(4)[rng.integers(0, 4, 400)]
    found = ConceptReasons.learned(pellucid.load(lambda batch: np.eye(4)[[0] * len(batch)]), texts, vectors, concepts=4,
                                   most=1)  # fmt: skip
    assert all(name.endswith("(no name passed)") for name in found.names)
    assert not any(map(found.is_named, range(4)))
    assert max(found.fit.aucs) < 0.7
    assert "0 named" in repr(found)


def test_the_same_texts_and_seed_give_the_same_concepts(learned):
    again = ConceptReasons.learned(pellucid.load(Subjects()), iter(subject_texts()), concepts=3, most=1)
    assert again.names == learned.names
    np.testing.assert_array_equal(again.directions, learned.directions)
    vectors = Subjects()(subject_texts())
    given = ConceptReasons.learned(pellucid.load(Subjects()), subject_texts(), 3 * vectors, concepts=3, most=1)
    np.testing.assert_allclose(given.directions, learned.directions, atol=1e-6)


def test_concepts_are_saved_and_opened(learned, tmp_path):
    model = pellucid.load(Subjects())
    learned.save_pretrained(tmp_path / "c")
    opened = model.with_reasons(tmp_path / "c")
    assert (opened.reasons.names, opened.reasons.most, opened.reasons.fit) == (learned.names, 1, learned.fit)
    np.testing.assert_array_equal(opened.reasons.directions, learned.directions)
    texts = "the river of fish", "a band and its song"
    assert opened.explain(*texts).to_dict() == model.with_reasons(learned).explain(*texts).to_dict()
    of_texts = ConceptReasons.from_texts(model, ["bank", "river"], subject_texts(20))
    of_texts.save_pretrained(tmp_path / "of_texts")
    assert ConceptReasons.from_pretrained(tmp_path / "of_texts", model).fit is None
    with pytest.raises(ModelFolderError, match="another model"):
        _ = pellucid.load(Subjects(flip=-9.0)).with_reasons(tmp_path / "c").reasons
    with pytest.raises(InputError, match="encoder is not known"):
        ConceptReasons(["x"], [[1, 0]], np.zeros(2)).save_pretrained(tmp_path / "x")


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: stored.update(names=stored["names"][:1]),
        lambda stored: stored.update(names=["a", "a", "b"]),
        lambda stored: stored.update(fit={"texts": 1}),
        lambda stored: stored.update(fit=[1, 2]),
        lambda stored: stored.pop("names"),
    ],
)
def test_broken_concepts_are_refused(learned, tmp_path, change):
    learned.save_pretrained(tmp_path / "c")
    path = tmp_path / "c" / "concepts.json"
    stored = json.loads(path.read_text())
    change(stored)
    path.write_text(json.dumps(stored))
    config = json.loads((tmp_path / "c" / "config.json").read_text())
    config["pellucid"]["sha256"]["concepts.json"] = checksum(path)
    (tmp_path / "c" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFolderError):
        ConceptReasons.from_pretrained(tmp_path / "c", pellucid.load(Subjects()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": ["a", "b"]}, "2 texts are too few"),
        ({"concepts": 0}, "concepts is 0"),
        ({"most": 0}, "most is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"vectors": np.ones((3, 8))}, "for 600 texts"),
    ],
)
def test_learning_refuses(arguments, message):
    with pytest.raises(InputError, match=message):
        ConceptReasons.learned(pellucid.load(Subjects()), **{"texts": subject_texts(), **arguments})
