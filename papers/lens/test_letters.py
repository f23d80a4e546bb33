"""What fires for letters alone, how often dimensions fire, and the edits that follow: by hand on tiny models."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import pellucid
from papers.__main__ import app as papers_app
from papers.lens.letters import (
    FiringThresholds,
    fired_words,
    first_words,
    lexical_firing,
    own_words,
    shared_piece,
)
from pellucid.analysis.coordinates import document_frequencies
from pellucid.cli.app import app
from pellucid.errors import InputError
from tables import check_json
from tiny_models import backbone_of

torch = pytest.importorskip("torch")

from pellucid.core.dimensions import Dimension
from pellucid.lexicon.clusters import Clusters, cluster_vocabulary
from pellucid.lexicon.embedder import LexiconEmbedder
from pellucid.persistence.store import read_tensors

TEXTS = ["the car", "a man", "the horse, the car", "the doctor", ""]


def dense(matrix):
    return matrix.toarray()


def lexicon(about, rows):
    """A lexicon model of clusters with the words `about`, fired by `rows`: word -> weight of each cluster.

    The states of a BERT are replaced by rows in which coordinate j is the logit of cluster j.
    """
    backbone = backbone_of("bert")
    k = len(about)
    tokens = {backbone.tokenizer.convert_tokens_to_ids(word): values for word, values in rows.items()}

    def states(ids, mask):
        hidden = torch.zeros(*ids.shape, 32)
        for token, values in tokens.items():
            hidden[ids == token] = torch.nn.functional.pad(torch.tensor(values).float().expm1(), (0, 32 - k))
        return hidden

    backbone.states = states
    names = [", ".join(words[:3]) or f"cluster {n}" for n, words in enumerate(about)]
    clusters = Clusters(np.zeros(0, np.int64), np.eye(k, 32, dtype=np.float32), names, [tuple(w) for w in about])
    return LexiconEmbedder(backbone, clusters)


def clustered():
    backbone = backbone_of("bert")
    return LexiconEmbedder(backbone, cluster_vocabulary(backbone.head, backbone.tokenizer, 20))


# How often dimensions fire


def test_document_frequencies_and_idf_by_hand():
    model = lexicon(
        [["a"], ["car"], ["man"], ["never"]], {"the": [3, 0, 0, 0], "car": [0, 3, 0, 0], "man": [3, 0, 3, 0]}
    )
    found = document_frequencies(model, ["the car", "the the", "man the", "car", "doctor"])
    assert (found.texts, found.blank) == (4, 1)
    assert [item.texts for item in found.measured] == [3, 2, 1, 0]
    assert [item.rate for item in found.measured] == [0.75, 0.5, 0.25, 0]
    idf = [math.log(5 / (count + 1)) for count in (3, 2, 1, 0)]
    assert [item.idf for item in found.measured] == pytest.approx(idf)
    for strength in (0.5, 1, 2):
        factors = np.array(list(found.factors(strength).values()))
        assert factors.mean() == pytest.approx(1)
        np.testing.assert_allclose(factors / factors[0], (np.array(idf) / idf[0]) ** strength)
    assert set(found.factors(0).values()) == {1.0}
    assert found.common(0.5) == ["a"] and found.common(0.25) == ["a", "car"] and found.common(1) == []


def test_weighting_multiplies_coordinates_and_dropping_drops(tmp_path):
    model = lexicon(
        [["a"], ["car"], ["man"], ["rest"]], {"the": [3, 0, 0, 1], "car": [1, 3, 0, 0], "man": [3, 0, 3, 1]}
    )
    texts = ["the car", "car", "man", "man car"]
    found = document_frequencies(model, texts)
    weighted = found.weighted(model, 1)
    expected = dense(model.encode(texts)) * list(found.factors(1).values())
    np.testing.assert_allclose(
        dense(weighted.encode(texts)), expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6
    )
    assert weighted.dimensions.names == model.dimensions.names
    assert found.pruned(model, 0.5).dimensions.names == [
        n for n in model.dimensions.names if n not in found.common(0.5)
    ]
    assert found.pruned(model, 1) is model


def test_pruning_comes_after_weighting():
    model = lexicon([["a"], ["car"]], {"the": [3, 2], "car": [0, 2]})
    one = model.with_settings(replace(model.settings, max_active_dims=1))
    assert dense(one.encode(["the"])).tolist() == [[1, 0]]
    assert dense(one.scale({"a": 0.5}).encode(["the"])).tolist() == [[0, 1]]


def test_what_fires_everywhere_is_silent():
    model = lexicon([["a"], ["car"], ["x"]], {"the": [3, 0, 0], "car": [3, 3, 0]})
    found = document_frequencies(model, ["the", "car", "car", "car the"])
    assert [item.texts for item in found.measured] == [4, 3, 0]
    factors = found.factors(1)
    assert factors["a"] == 0 and factors["car"] == pytest.approx(3 * math.log(5 / 4) / (math.log(5 / 4) + math.log(5)))
    assert dense(found.weighted(model).encode(["the car", "the"])).tolist() == [[0, 1, 0], [0, 0, 0]]


def test_a_weighting_of_no_use_is_named():
    found = document_frequencies(lexicon([["a"], ["car"]], {"the": [3, 0], "car": [0, 3]}), ["the", "car"])
    with pytest.raises(InputError, match="strength is -1"):
        found.factors(-1)
    with pytest.raises(InputError, match="above is 50"):
        found.common(50)
    with pytest.raises(InputError, match=r"mean 0\.0 over the dimensions; take a smaller strength"):
        found.factors(1e9)


def test_a_weighted_model_is_saved_with_its_scales_in_the_table(tmp_path):
    model = clustered()
    factors = {n: 0.5 + n / 7 for n in range(20)}
    scaled = model.scale(factors)
    scaled.save_pretrained(tmp_path / "model")
    lines = (tmp_path / "model" / "dimensions.tsv").read_text(encoding="utf-8").splitlines()[1:]
    assert [float(line.split("\t")[2]) for line in lines] == pytest.approx(list(factors.values()), abs=0)
    assert "mixing_values" not in read_tensors(tmp_path / "model" / "lexicon.safetensors")[0]
    again = pellucid.load(tmp_path / "model")
    np.testing.assert_allclose(dense(again.encode(TEXTS)), dense(scaled.encode(TEXTS)), atol=1e-6)
    again.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "dimensions.tsv").read_bytes() == (tmp_path / "model" / "dimensions.tsv").read_bytes()
    merged = scaled.merge(3, 4)
    merged.save_pretrained(tmp_path / "merged")
    found = dense(pellucid.load(tmp_path / "merged").encode(TEXTS))
    np.testing.assert_allclose(found, dense(merged.encode(TEXTS)), atol=1e-6)


def test_words_are_stored_once(tmp_path):
    model = clustered()
    model.save_pretrained(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "lexicon.json").read_text("utf-8"))["about"] is None
    again = pellucid.load(tmp_path / "model")
    assert [item.about for item in again.dimensions] == [item.about for item in model.dimensions]


# Letters


@pytest.mark.parametrize(
    ("word", "other", "piece"),
    [
        ("tutoring", "tuple", "tu"),  # the paper's examples
        ("county", "count", "count"),
        ("tomatoes", "tom", "tom"),
        ("rot", "rott", "rot"),
        ("hangar", "har", "ha"),
        ("hangar", "anger", "ang"),
        ("hangar", "tang", "ang"),
        ("riding", "tuning", ""),  # a common ending is grammar
        ("cirrhosis", "sis", "sis"),  # unless it is the whole of one
        ("thanks", "harder", ""),
        ("that", "kane", ""),
        ("the", "telephone", ""),  # one letter
        ("communication", "cord", "co"),
        ("communication", "cooperation", ""),  # two letters of eleven, and an ending
        ("", "car", ""),
    ],
)
def test_what_looks_alike(word, other, piece):
    assert shared_piece(word, other) == piece == shared_piece(other, word)


@given(st.text("abcd", max_size=8), st.text("abcd", max_size=8))
def test_a_shared_piece_is_in_both(word, other):
    piece = shared_piece(word, other)
    assert piece in word and piece in other and len(piece) != 1


def test_the_words_of_a_cluster_are_as_a_text_has_them():
    dimension = Dimension("Rev", (",", "Review", "…sis", "review", "…rev"))
    assert own_words(dimension) == {",", "review", "sis", "rev"}
    assert first_words(dimension) == ["review", "sis"]
    assert first_words(dimension, whole=True) == ["review"]
    assert first_words(Dimension("x", ("…sis",)), whole=True) == ["sis"]


# Which word fired, and what it means


def test_the_strongest_clusters_and_their_words():
    model = lexicon([["x"], ["y"], ["z"]], {"car": [1, 3, 0], "man": [2, 0, 0], ",": [0, 0, 5]})
    known, firings = fired_words(model, ["a Car, man", "", "man"], 2)
    assert known == [0, 2]
    length = math.sqrt(4 + 9 + 25)
    assert [(f.text, f.dimension, f.word) for f in firings] == [(0, 1, "car"), (2, 0, "man")]  # the comma is no word
    assert firings[0].weight == pytest.approx(3 / length)


def test_firing_words_of_an_edited_model_are_those_of_its_parts():
    model = lexicon([["x"], ["y"], ["z"]], {"car": [1, 3, 0], "man": [2, 0, 0]}).merge("x", "y").scale({"z": 2})
    _, firings = fired_words(model, ["car man"], 1)
    assert [(f.dimension, f.word) for f in firings] == [(0, "car")]


WORDS = {"car": 0, "cars": 0, "vehicle": 0, "doctor": 1, "sick": 1, "medicine": 1, "horse": 2, "beach": 2, "boy": 3}


def by_topic(texts):
    """An encoder that knows the topic of each word, and those of no other."""
    rows = np.zeros((len(texts), 5))
    for row, text in zip(rows, texts):
        for word in text.split():
            row[WORDS.get(word, 4)] += word in WORDS
    return rows


def failing():
    """`cards` fires for car and cars, whose letters it has; `of` for words of three topics; the others rightly."""
    rows = {
        "car": [3, 0, 0, 2],
        "cars": [3, 0, 0, 2],
        "vehicle": [0, 0, 0, 2],
        "doctor": [0, 3, 2, 0],
        "sick": [0, 3, 0, 0],
        "beach": [0, 0, 2, 0],
        "boy": [0, 0, 2, 0],
    }
    about = [["cards", "carton", "boy"], ["health", "medicine"], ["of", "horse"], ["vehicle"]]
    return lexicon(about, rows)


TOPICS = [f"{a} {b}" for a in ("car", "cars", "doctor", "sick", "beach", "boy") for b in ("", "on", "riding")]


def test_lookalikes_and_scattered_clusters_are_told_apart():
    limits = FiringThresholds(top_k=2, texts=2, pairs=3, unrelated=0.95)
    found = lexical_firing(failing(), TOPICS, encoder=by_topic, thresholds=limits)
    by_name = {cluster.name: cluster for cluster in found.measured}
    cards = by_name["cards, carton, boy"]
    assert cards.verdict == "lookalike" and cards.lookalike == 1 and cards.texts == 6
    assert [(w.word, w.texts, w.piece, w.lookalike) for w in cards.words] == [
        ("car", 3, "car", True), ("cars", 3, "car", True)]  # fmt: skip
    assert cards.alike == pytest.approx(1 - found.mean_score, abs=1e-6)  # one topic, through two words
    scattered = by_name["of, horse"]
    assert scattered.verdict == "scattered" and scattered.lookalike == 0
    assert {w.word for w in scattered.words} == {"beach", "boy", "doctor"}
    assert scattered.alike == pytest.approx(0 - found.mean_score, abs=1e-6)
    assert by_name["health, medicine"].verdict == by_name["vehicle"].verdict == ""
    assert found.names == ["of, horse", "cards, carton, boy"]  # the commonest first
    assert found.of("lookalike") == [cards] and found.meaning == "that of by_topic"


def test_own_words_and_related_words_are_no_lookalikes():
    model = lexicon([["car", "medicine"], ["cars"], ["x"]], {"car": [3, 0, 1], "cars": [0, 3, 1], "boy": [0, 0, 1]})
    found = lexical_firing(
        model, ["car", "cars", "car on", "boy"], encoder=by_topic, thresholds=FiringThresholds(texts=1, unrelated=0.5)
    )
    words = {(c.name, w.word): w for c in found.measured for w in c.words}
    assert words["car, medicine", "car"].related == 1 and not words["car, medicine", "car"].piece
    assert not found.names or "cars" not in found.names
    assert not any(word.lookalike for word in words.values())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda fruit: lexical_firing(fruit, ["a"]), "only a lexicon model .* got StaticEmbedder"),
        (lambda _: lexical_firing(failing(), ["the", "the"]), "at least two texts .* got 0"),
        (lambda _: lexical_firing(failing(), ["the", 3]), "text 1 is int"),
        (lambda _: lexical_firing(lexicon([[], []], {"car": [1, 1]}), ["car", "car"]), "clusters have no words"),
    ],
)
def test_bad_input_is_named(fruit, call, message):
    with pytest.raises(InputError, match=message):
        call(fruit)


# Views, schemas, commands


def reports():
    yield "firing", lexical_firing(failing(), TOPICS, encoder=by_topic, thresholds=FiringThresholds(texts=2, pairs=3))
    yield "frequencies", document_frequencies(failing(), TOPICS)


@pytest.mark.parametrize("kind", ["firing", "frequencies"])
def test_every_view_shows_what_was_found(kind):
    report = dict(reports())[kind]
    assert check_json(report)["kind"] == kind
    assert "cards, carton, boy" in str(report) and "cards, carton, boy" in report.to_html()
    frame = report.to_frame()
    assert list(frame["name"]) == [item.name for item in report.measured]
    assert {"firing": "1 lookalike, 1 scattered", "frequencies": "4 dimensions"}[kind] in repr(report)


def test_the_commands(tmp_path, monkeypatch, fruit):
    monkeypatch.chdir(tmp_path)
    clustered().save_pretrained("lexicon")
    fruit.save_pretrained("fruit")
    (tmp_path / "texts.txt").write_text("the car\na horse on the beach\nthe doctor gave medicine\n")

    def run(*arguments, code=0, app=app):
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == code, f"{result.output} {result.exception!r}"
        return result

    told = json.loads(run("letters", "lexicon", "texts.txt", "--encoder", "fruit", "--json", app=papers_app).stdout)
    assert told["kind"] == "firing" and told["meaning"] == "that of StaticEmbedder"
    run("edit", "-m", "lexicon", "-o", "mine", "--idf", "texts.txt", "--strength", "1", "--drop-above", "0.9")
    model = pellucid.load("lexicon")
    found = document_frequencies(model, (tmp_path / "texts.txt").read_text().splitlines())
    gone = found.common(0.9)
    expected = found.weighted(model, 1)
    expected = expected.without(*gone) if gone else expected
    mine = pellucid.load("mine")
    assert mine.dimensions.names == expected.dimensions.names
    np.testing.assert_allclose(dense(mine.encode(TEXTS)), dense(expected.encode(TEXTS)), atol=1e-6)
    run("edit", "-m", "lexicon", "-o", "other", "--drop-above", "0.9", code=2)
