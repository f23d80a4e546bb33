"""Adding words, pruning and retraining: against a world in which the right vectors are known."""

from __future__ import annotations

import json
import mmap
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pellucid
from pellucid.errors import CorpusError, InputError
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.static.bags import Bags
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.training.distill import distill, store_sentences
from pellucid.static.training.extraction import ExtractionSettings
from pellucid.static.training.tuning import RefinementSettings
from pellucid.static.training.vocabulary import add_words, fit_space, prune, read_in_sentences
from pellucid.text.tables import read_texts
from pellucid.text.words import Vocabulary, split_words
from resuming import assert_damage_is_refused, reversed_lines, stop_at_write, stopped_at_writes
from tables import check_views, random_table
from tiny_models import piece_tokenizer, tiny_model, word_piece

WIDTH = 6


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def rotation(width, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(width, width)))[0]


@pytest.fixture(scope="module")
def world():
    """Names and true vectors of 300 words; what a word is about, its direction, tells how much it weighs."""
    rng = np.random.default_rng(0)
    names = [f"w{n}" for n in range(300)]
    units = unit(rng.normal(size=(300, WIDTH)))
    return names, (units * np.exp(units @ rng.normal(size=(WIDTH, 1)))).astype(np.float32)


def model_of(world, rows=slice(None), dtype=np.float32):
    names, vectors = world
    return StaticEmbedder(Vocabulary(names[rows]), vectors[rows].astype(dtype))


def teacher_of(world):
    """A teacher that knows every true vector, in a space of its own; of a text the mean."""
    names, vectors = world
    row, turn = {name: n for n, name in enumerate(names)}, rotation(WIDTH, 1)

    def encode(texts):
        found = [[row[word.text.lower()] for word in split_words(text) if word.text.lower() in row] for text in texts]
        return np.array([vectors[rows or [0]].mean(axis=0) for rows in found]) @ turn

    return encode


# The map


def test_least_squares_finds_an_affine_map_of_directions_and_the_lengths():
    rng = np.random.default_rng(3)
    source = (unit(rng.normal(size=(500, 8))) * rng.uniform(0.5, 3, (500, 1))).astype(np.float32)
    matrix = rng.normal(size=(8, 5))
    lengths = np.linalg.norm(source, axis=1) ** 2 * 3
    target = (unit(unit(source) @ matrix) * lengths[:, None]).astype(np.float32)
    source[7] = 0
    mapping, quality = fit_space(source[:400], target[:400])
    assert quality.words == 399 and quality.held_out == 39
    assert quality.cosine > 0.97 and quality.first > 0.95 and quality.length_correlation > 0.999
    mapped = mapping(source[400:])
    assert (unit(mapped) * unit(target[400:])).sum(axis=1).mean() > 0.97
    inside = (lengths[400:] > np.percentile(lengths, 2)) & (lengths[400:] < np.percentile(lengths, 98))
    assert np.linalg.norm(mapped, axis=1)[inside] == pytest.approx(lengths[400:][inside], rel=0.01)
    assert not mapping(np.zeros((2, 8), np.float32)).any() and mapped.dtype == np.float32


def test_a_map_between_unrelated_spaces_says_so():
    rng = np.random.default_rng(5)
    _, quality = fit_space(*(rng.normal(size=(400, 10)).astype(np.float32) for _ in range(2)))
    assert abs(quality.cosine) < 0.2 and quality.first < 0.1


def test_maps_need_pairs():
    with pytest.raises(InputError, match="10 words to fit a map on, and at least 20"):
        fit_space(np.ones((10, 3), np.float32), np.ones((10, 3), np.float32))


# Adding


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_added_words_get_the_vectors_the_model_would_have_had(world, dtype):
    names, vectors = world
    model = model_of(world, slice(280), dtype)
    made = add_words(model, names[280:], teacher_of(world))
    report = made.report
    assert list(made.vocabulary.words) == names and made.vectors.dtype == dtype
    np.testing.assert_array_equal(made.vectors[:280], model.vectors)  # to the bit
    assert (unit(made.word_vectors(range(280, 300))) * unit(vectors[280:])).sum(axis=1).min() > 0.99
    assert report.fit.cosine > 0.99 and report.fit.first > 0.9 and report.fit.words == 280
    lengths = np.linalg.norm(made.word_vectors(range(280, 300)), axis=1)
    true = np.linalg.norm(vectors, axis=1)
    assert lengths == pytest.approx(np.clip(true[280:], *np.percentile(true[:280], (1, 99))), rel=0.05)
    assert [a.length for a in report.added] == pytest.approx(lengths, rel=1e-2)
    assert (report.source, report.words_before, report.words_after) == ("words", 280, 300)
    assert report.added[0].nearest == tuple(w for w, _ in made.nearest_words("w280", top_k=5) if w != "w280")[:4]


def test_an_int8_table_stays_one(world, tmp_path):
    model_of(world, slice(290)).save_pretrained(tmp_path / "m", dtype="int8")
    model = pellucid.load(tmp_path / "m")
    made = add_words(model, ["w295"], teacher_of(world))
    assert made.vectors.dtype == np.int8
    np.testing.assert_array_equal(made.vectors[:290], model.vectors)
    np.testing.assert_array_equal(made.scales[:290], model.scales)
    assert unit(made.word_vectors([290])[0]) @ unit(world[1][295]) > 0.99
    made.save_pretrained(tmp_path / "more")
    assert pellucid.load(tmp_path / "more").encode("w295") == pytest.approx(made.encode("w295"))


def test_a_phrase_takes_the_place_of_its_words(world):
    model = model_of(world)
    made = add_words(model, ["W3 w4", "w5 w6 w7"], teacher_of(world))
    report = made.report
    assert list(made.vocabulary.words[-2:]) == ["w3▁w4", "w5▁w6▁w7"] and report.added[0].word == "w3 w4"
    assert [w.text for w in made.vocabulary.split("w9 w3  W4 w5 w6")] == ["w9", "w3▁W4", "w5", "w6"]
    vector = made.word_vectors([300])[0]
    assert made.encode("W3 w4") == pytest.approx(unit(vector), abs=1e-6)
    assert made.encode("w9 w3 w4") == pytest.approx(unit(vector + world[1][9]), abs=1e-6)
    assert np.linalg.norm(vector) == pytest.approx(np.linalg.norm(world[1][3] + world[1][4]), rel=1e-5)
    assert unit(vector) @ unit(world[1][3] + world[1][4]) > 0.99  # what this teacher says of two words
    # a phrase with an unknown word has no such sum; its length is predicted
    without = model_of(world, slice(299))
    longer = add_words(without, ["w1 w299"], teacher_of(world))
    assert np.isfinite(longer.word_vectors([299])).all() and longer.word_vectors([299]).any()


def test_replace_gives_known_words_new_vectors(world):
    names, vectors = world
    spoilt = vectors.copy()
    spoilt[5] = -spoilt[5]
    model = StaticEmbedder(Vocabulary(names), spoilt)
    with pytest.raises(InputError, match="1 entry is in the vocabulary already, the first is 'w5'"):
        add_words(model, ["w5"], teacher_of(world))
    made = add_words(model, ["w5"], teacher_of(world), replace=True)
    assert len(made.vocabulary) == 300
    assert unit(made.vectors[5]) @ unit(vectors[5]) > 0.99
    np.testing.assert_array_equal(np.delete(made.vectors, 5, axis=0), np.delete(spoilt, 5, axis=0))


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([], "no word to add"),
        (["?!"], "holds no word"),
        ([""], "holds no word"),
        (["new", "New"], "'New' and 'new' are the same entry"),
        (["new york", "new  york"], "are the same entry"),
        (["c++"], "is the one word 'c' to a static model"),
        (["w1-w2"], "would never be found in a text"),
        (["ne\nw"], "line break"),
        ([3], "text 0 is int"),
    ],
)
def test_entries_that_cannot_be_added(world, entries, said):
    with pytest.raises(InputError, match=said):
        add_words(model_of(world), entries, teacher_of(world))


def test_only_static_models_have_a_vocabulary(world):
    other = random_table()
    for ask in (
        lambda: add_words(other, ["x"], teacher_of(world)),
        lambda: prune(other, max_words=2),
        lambda: distill(teacher_of(world), [], start=other, work_dir="x"),
    ):
        with pytest.raises(InputError, match="needs a static model"):
            ask()


# Adding with sentences: a BERT of two layers with random weights


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    folder = tmp_path_factory.mktemp("bert")
    tokenizer = word_piece()
    tokenizer.save_pretrained(folder)
    tiny_model("bert", len(tokenizer), headless=True).save_pretrained(folder)
    transformer = modules.Transformer(str(folder))
    transformer.max_seq_length = 24
    return SentenceTransformer(modules=[transformer, modules.Pooling(32)], device="cpu")


def states_of(bert, text, start, end):
    """The mean state of the pieces that lie in text[start:end]."""
    import torch

    encoded = bert.tokenizer(text, return_offsets_mapping=True)
    with torch.no_grad():
        out = bert[0]({k: torch.tensor([v]) for k, v in encoded.items() if k != "offset_mapping"})["token_embeddings"][
            0
        ]
    inside = [n for n, (a, b) in enumerate(encoded["offset_mapping"]) if start <= a and b <= end and b > a]
    return out[inside].mean(dim=0).numpy()


def test_in_sentences_an_entry_has_the_mean_of_its_states(bert, monkeypatch):
    known = "a man is riding the horse on beach quickly swift car vehicle doctor gave sick boy rapid cars".split()
    rng = np.random.default_rng(6)
    model = StaticEmbedder(Vocabulary([*known, *"bcdefgh"]), rng.normal(size=(25, 4)).astype(np.float32))
    texts = ["The swiftly car, a sick   boy!", "swiftly is the sick boy riding", "swiftly swiftly a b c d e f g h"]
    texts += [" ".join(rng.choice([*known, *"bcdefgh"], 6)) for _ in range(60)]
    given = {}

    def noted(source, target):
        given.update(source=source, target=target)
        return fit_space(source, target)

    monkeypatch.setattr("pellucid.static.training.vocabulary.fit_space", noted)
    keys = ["swiftly", "sick▁boy"]
    grown = Vocabulary([*model.vocabulary.words, *keys])
    _, _, means, counts = read_in_sentences(grown, keys, pellucid.load(bert), texts, "", False)
    assert counts == [4, 2 + sum("sick boy" in text for text in texts[3:])]
    places = [(texts[0], 4), (texts[1], 0), (texts[2], 0), (texts[2], 8)]
    wanted = np.mean([states_of(bert, text, start, start + 7) for text, start in places], axis=0)
    np.testing.assert_allclose(means[0], wanted, atol=1e-5)
    made = add_words(model, ["swiftly", "sick boy"], bert, texts, show_progress_bar=False)
    report = made.report
    assert report.source == "sentences" and [a.occurrences for a in report.added] == counts
    assert len(made.vocabulary) == 27 and len(given["source"]) == len(given["target"]) == 25
    monkeypatch.setattr("pellucid.static.training.vocabulary._OCCURRENCES", 1)
    monkeypatch.setattr("pellucid.static.training.vocabulary._FIT_SENTENCES", 50)
    at_most = add_words(model, ["swiftly"], bert, iter(texts))
    assert at_most.report.added[0].occurrences == 1 and len(at_most.vocabulary) == 26


def test_sentences_that_do_not_hold_the_entry(bert, world):
    model = StaticEmbedder(Vocabulary(["a", "man"]), np.eye(2, dtype=np.float32))
    with pytest.raises(CorpusError, match=r"2 entries are in no sentence, the first is 'zebra'"):
        add_words(model, ["zebra", "zoo", "horse"], bert, ["a man", "the horse"])
    with pytest.raises(InputError, match="2 words to fit a map on"):
        add_words(model, ["horse"], bert, ["a man", "the horse"])
    with pytest.raises(InputError, match="only a sentence-transformers model reads words in"):
        add_words(model, ["horse"], teacher_of(world), ["a man", "the horse"])
    long = " ".join(["man"] * 40 + ["horse"])
    with pytest.raises(CorpusError, match="reads 'horse' in no sentence whole"):
        add_words(model, ["horse"], bert, [long])


# Pruning


@pytest.fixture
def prefixes():
    """Six words with a tokenizer that cuts "tokenised" into token ##ised."""
    tokenizer = piece_tokenizer(["token", "##ised", "##s", "cat", "the"])
    words = ["the", "cat", "token", "dog", "bird", "cats"]
    vectors = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    return StaticEmbedder(Vocabulary(words, tokenizer), vectors)


def test_pruning_keeps_what_the_corpus_uses_and_nothing_changes_there(prefixes):
    texts = ["The tokenised cat", "cat zebra", "the cat"]
    made = prune(prefixes, texts)
    report = made.report
    assert list(made.vocabulary.words) == ["the", "cat", "token"]
    np.testing.assert_array_equal(made.encode(texts), prefixes.encode(texts))
    assert report.coverage_before == report.coverage_after == pytest.approx(6 / 7)
    assert (report.words_before, report.words_after, report.texts, report.lost) == (6, 3, 3, 0)
    assert (report.bytes_before, report.bytes_after) == (72, 36)
    assert report.unchanged == 1 and report.mean_cosine == pytest.approx(1)
    assert made.dimensions.names == prefixes.dimensions.names and len(prefixes.vocabulary) == 6


@given(
    st.lists(
        st.lists(st.sampled_from("the The cat tokenised tokens bird zebra cats , .".split())).map(" ".join), min_size=1
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pruning_to_a_corpus_changes_nothing_in_it(prefixes, texts):
    if not prefixes.encode(texts).any():
        return
    made = prune(prefixes, texts)
    report = made.report
    np.testing.assert_array_equal(made.encode(texts), prefixes.encode(texts))
    assert report.unchanged == 1 and report.coverage_before == report.coverage_after


def test_pruning_harder_says_what_is_lost(prefixes):
    texts = ["the the cat", "dog", "the cat token"]
    made = prune(prefixes, texts, min_count=2)
    report = made.report
    assert list(made.vocabulary.words) == ["the", "cat"]
    assert report.coverage_before == 1 and report.coverage_after == pytest.approx(5 / 7)
    assert report.lost == 1 and report.unchanged == pytest.approx(1 / 3)
    old, new = (model.encode(texts[2]) for model in (prefixes, made))
    assert report.mean_cosine == pytest.approx((1 + old @ new) / 2, abs=1e-6)
    assert list(prune(prefixes, texts, max_words=1).vocabulary.words) == ["the"]
    first = prune(prefixes, max_words=4)
    plain = first.report
    assert list(first.vocabulary.words) == ["the", "cat", "token", "dog"] and plain.coverage_before is None


def test_an_int8_table_is_pruned_as_it_is(world, tmp_path):
    model_of(world).save_pretrained(tmp_path / "m", dtype="int8")
    model = pellucid.load(tmp_path / "m")
    made = prune(model, ["w7 w200", "w3"])
    np.testing.assert_array_equal(made.vectors, model.vectors[[3, 7, 200]])
    np.testing.assert_array_equal(made.scales, model.scales[[3, 7, 200]])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "give a corpus"),
        ({"texts": ["zebra zoo"]}, "holds no word that the model knows, in 1 texts with 2 words"),
        ({"texts": []}, "in 0 texts"),
        ({"texts": ["the cat"], "min_count": 2}, "no word of the model occurs 2 times in the corpus, the commonest 1"),
        ({"texts": ["the"], "min_count": 0}, "min_count is 0"),
        ({"max_words": 0}, "max_words 0"),
        ({"max_words": 2.5}, "max_words 2.5; both are integers"),
        ({"texts": "the cat"}, "texts is one string"),
    ],
)
def test_pruning_that_leaves_nothing(prefixes, options, said):
    with pytest.raises(InputError, match=said):
        prune(prefixes, **options)


# Retraining


SMALL = RefinementSettings(steps=300, batch_size=64, neighbours=1, evaluate_every=50, learning_rate=0.1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    rng = np.random.default_rng(1)
    path = tmp_path_factory.mktemp("corpus") / "texts.txt"
    lines = [" ".join(f"w{n}" for n in rng.integers(0, 250, 6)) for _ in range(1500)]
    lines[3:3] = ["w1", "unknown words here", "w5 unknown", ""]
    path.write_text("\n".join(lines))
    return path


def noisy(world):
    """The model with noise on half of its words."""
    names, vectors = world
    given = vectors.copy()
    given[::2] += np.random.default_rng(2).normal(size=(150, WIDTH)) * 2
    return StaticEmbedder(Vocabulary(names), given)


def stored(folder, vocabulary, teacher, corpus, settings):
    with WorkFolder(folder) as work:
        return store_sentences(work, vocabulary, teacher, corpus, settings, {})


def test_the_store_holds_what_memory_would_have(world, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("pellucid.static.training.distill._SHARD", 100)
    vocabulary, teacher = Vocabulary(world[0]), teacher_of(world)
    bags, teacher_vectors = stored(tmp_path, vocabulary, teacher, corpus, ExtractionSettings())
    texts = [text for text in read_texts(corpus) if len(text.split()) > 1 and "unknown" not in text]
    wanted = Bags.from_sentences(texts, vocabulary)
    np.testing.assert_array_equal(bags.rows, wanted.rows)
    np.testing.assert_array_equal(bags.offsets, wanted.offsets)
    np.testing.assert_allclose(teacher_vectors, unit(teacher(texts)), atol=1e-3)
    assert teacher_vectors.dtype == np.float16
    for array in (teacher_vectors, bags.rows, bags.offsets):
        while isinstance(array, np.ndarray):
            array = array.base
        assert isinstance(array, mmap.mmap)  # on disk, not in memory

    def unused(texts):
        raise AssertionError("a finished store encodes nothing")

    again, _ = stored(tmp_path, vocabulary, unused, corpus, ExtractionSettings())
    np.testing.assert_array_equal(again.rows, wanted.rows)


def test_a_killed_store_goes_on_and_knows_its_teacher(world, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("pellucid.static.training.distill._SHARD", 100)
    vocabulary, teacher = Vocabulary(world[0]), teacher_of(world)
    whole, taught = stored(tmp_path / "whole", vocabulary, teacher, corpus, ExtractionSettings())
    calls = []
    append = WorkFolder.append

    def dying(self, name, rows):
        calls.append(name)
        if len(calls) == 10:  # the teacher's vectors and rows of the third shard are written, its offsets are not
            raise KeyboardInterrupt
        append(self, name, rows)

    def run(encoder, **options):
        return stored(tmp_path / "cut", vocabulary, encoder, corpus, ExtractionSettings(**options))

    monkeypatch.setattr(WorkFolder, "append", dying)
    with pytest.raises(KeyboardInterrupt):
        run(teacher)
    monkeypatch.setattr(WorkFolder, "append", append)
    assert json.loads((tmp_path / "cut" / "state.json").read_text())["facts"]["shards_done"] == 2
    with pytest.raises(InputError, match="another model than"):
        run(lambda texts: teacher(texts)[:, ::-1])
    resumed, vectors = run(teacher)
    np.testing.assert_array_equal(resumed.rows, whole.rows)
    np.testing.assert_array_equal(resumed.offsets, whole.offsets)
    np.testing.assert_array_equal(vectors, taught)


def test_retraining_learns_the_teachers_similarities(world, corpus, tmp_path):
    pytest.importorskip("torch")
    model = noisy(world)
    made = distill(teacher_of(world), corpus, start=model, work_dir=tmp_path, refinement=SMALL)
    report = made.report
    assert report.agreement_after > report.agreement_before + 0.4
    assert (report.sentences, report.held_out, report.words, report.trained) == (1470, 30, 300, 250)
    np.testing.assert_allclose(made.vectors[250:], model.vectors[250:], rtol=1e-5)  # not in the corpus: as they were
    again = distill(teacher_of(world), corpus, start=model, work_dir=tmp_path, refinement=SMALL)
    np.testing.assert_array_equal(again.vectors, made.vectors)


@pytest.mark.full
def test_retraining_stopped_anywhere_ends_like_one_that_was_not(world, corpus, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr("pellucid.static.training.distill._SHARD", 500)

    def run(folder):
        settings = replace(SMALL, steps=60, evaluate_every=20)
        return distill(teacher_of(world), corpus, start=noisy(world), work_dir=folder, refinement=settings)

    (_, whole), *others = stopped_at_writes(run, tmp_path / "runs")
    assert len(others) == 8
    for folder, other in others:
        np.testing.assert_array_equal(other.vectors, whole.vectors, err_msg=str(folder))
        assert other.report == whole.report
    assert assert_damage_is_refused(run, tmp_path / "runs" / "0") == 6


@pytest.mark.full
@pytest.mark.parametrize("write", [15, None])
def test_a_corpus_replaced_by_one_of_its_size_is_not_retrained_on(world, corpus, tmp_path, monkeypatch, write):
    pytest.importorskip("torch")
    monkeypatch.setattr("pellucid.static.training.distill._SHARD", 500)
    texts = tmp_path / "texts.txt"
    texts.write_bytes(corpus.read_bytes())

    def run(texts=texts, work_dir=tmp_path / "work"):
        return distill(teacher_of(world), texts, start=model_of(world), work_dir=work_dir, refinement=SMALL)

    stop_at_write(run, write) if write else run()
    with WorkFolder(tmp_path / "work" / "sentences"), pytest.raises(InputError, match="sentences is in use by process"):
        run()
    reversed_lines(texts)
    with pytest.raises(InputError, match=r"texts\.txt is not the corpus .*: texts 1 to \d+ are not the same"):
        run()
    lines = corpus.read_text().split("\n")
    run(lines, tmp_path / "list")
    with pytest.raises(InputError, match=r"the corpus is not the corpus .*: texts 1,025 to 1,504 are not the same"):
        run([*lines[:-1], "w1 w2"], tmp_path / "list")


def test_retraining_that_cannot_be(world, corpus, tmp_path):
    pytest.importorskip("torch")
    teacher = teacher_of(world)
    with pytest.raises(CorpusError, match="no sentence of the corpus holds two words"):
        distill(
            teacher, ["not one known", "w3 alone"], start=model_of(world), work_dir=tmp_path / "a", refinement=SMALL
        )
    with pytest.raises(CorpusError, match="at least 128"):
        distill(teacher, ["w1 w2"] * 9, start=model_of(world), work_dir=tmp_path / "b", refinement=SMALL)
    distill(teacher, corpus, start=model_of(world), work_dir=tmp_path / "c", refinement=SMALL)
    with pytest.raises(InputError, match="different: model"):
        distill(teacher, corpus, start=noisy(world), work_dir=tmp_path / "c", refinement=SMALL)


# Views and commands


def test_views(world, corpus, prefixes, tmp_path):
    model = model_of(world, slice(299))
    reports = [
        add_words(model, ["w299", "w1 w2"], teacher_of(world)).report,
        prune(prefixes, ["the cat"]).report,
        prune(prefixes, max_words=2).report,
    ]
    for report, said in zip(reports, ("w1 w2", "that are known", "table, MB"), strict=True):
        assert said in " ".join(check_views(report).split())
        assert len(report.to_frame()) == len(report._records())
