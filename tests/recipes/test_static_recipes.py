"""Recipes of static models: several teachers, languages joined through translations, pairs of paraphrases."""

import lzma

import numpy as np
import pytest

from files import written
from pellucid.errors import CorpusError, InputError
from pellucid.static import ExtractionSettings, PcaSettings, RefinementSettings
from pellucid.static.bags import Bags
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.training import extraction as extraction_module
from pellucid.static.training.extraction import extract
from pellucid.static.training.languages import join_languages
from pellucid.static.training.tuning import PairBags, TuningSettings, tune_on_pairs
from pellucid.text.words import Vocabulary
from recipes.several_teachers import join_extractions, make
from recipes.static_languages import add_languages, anchored_words
from refusals import refused
from teachers import agreement, sentences, two_teachers

pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def teachers(tmp_path_factory):
    return two_teachers(tmp_path_factory.mktemp("teachers"))


def centred(vectors):
    """Return sentence vectors less their mean, at length 1."""
    less = vectors.astype(np.float64) - vectors.astype(np.float64).mean(axis=0)
    return less / np.linalg.norm(less, axis=1, keepdims=True)


def made(teachers, work_dir, weights=None):
    return make(
        teachers,
        iter(sentences(400)),
        work_dir,
        weights=weights,
        pca=PcaSettings(dimensions=12, drop=1),
        refinement=RefinementSettings(steps=200, batch_size=32, evaluate_every=50, temperature=0.05),
        show_progress_bar=False,
    )


def test_joint_cosines_are_the_weighted_mean_of_the_centred_ones(teachers, tmp_path):
    corpus = sentences(60)
    one, other = (extract(t, corpus, tmp_path / str(n), ExtractionSettings()) for n, t in enumerate(teachers))
    other.vectors[2] = 0  # a word that this teacher saw nowhere whole
    joint = join_extractions([one, other], [3, 1])
    apart = [centred(found.teacher_vectors) for found in (one, other)]
    cosines = 0.75 * apart[0] @ apart[0].T + 0.25 * apart[1] @ apart[1].T
    np.testing.assert_allclose(joint.teacher_vectors.astype(float) @ joint.teacher_vectors.T, cosines, atol=3e-3)
    assert joint.vectors.shape == (len(one.words), 24)
    assert joint.vectors[2, :16].any() and not joint.vectors[2, 16:].any()
    for columns, share, known in ((np.s_[:16], 0.75, np.s_[:]), (np.s_[16:], 0.25, np.arange(len(one.words)) != 2)):
        part = joint.vectors[known, columns]
        np.testing.assert_allclose(np.average(part, axis=0, weights=one.counts[known]), 0, atol=1e-5)
        assert np.sqrt((part**2).mean()) == pytest.approx(np.sqrt(share), rel=1e-5)


def test_a_model_of_two_teachers_follows_them_together(teachers, tmp_path, monkeypatch):
    fresh = sentences(60, seed=9)
    ours = made(teachers, tmp_path).encode(fresh)
    theirs = [centred(t.encode(fresh, normalize_embeddings=True)) for t in teachers]
    assert agreement(ours, np.hstack(theirs)) > 0.6
    monkeypatch.setattr(extraction_module, "forward", None)  # other weights: no sentence is read again
    leaning = made(teachers, tmp_path, [20, 1]).encode(fresh)
    moved = [agreement(leaning, rows) - agreement(ours, rows) for rows in theirs]
    assert moved[0] > 0 > moved[1]


test_what_cannot_be_joined_is_refused = refused(
    *((lambda teachers, tmp_path, weights=weights: made(teachers, tmp_path, weights),
       "2 teachers need as many numbers above 0") for weights in (
        [1.0], [1.0, 0.0], [1.0, float("nan")], [1.0, float("inf")], [1.0, -1.0])),
    (lambda teachers, tmp_path: join_extractions([
        extract(teachers[0], sentences(20, seed=n), tmp_path / str(n), ExtractionSettings()) for n in (0, 1)]),
     "read different text"),
)  # fmt: skip


# Languages added through translations: a world of things with a word each in two languages, of which one is known.

THINGS = 40
ENGLISH = [f"en{thing}" for thing in range(THINGS)] + ["taxi", "die"]
TUNING = TuningSettings(steps=60, batch_size=32, learning_rate=0.03, evaluate_every=20)
UNTUNED = TuningSettings(steps=0)


@pytest.fixture(scope="module")
def english():
    vectors = np.random.default_rng(0).normal(size=(len(ENGLISH), 24))
    return StaticEmbedder(Vocabulary(ENGLISH), vectors.astype(np.float32))


def pairs_of(count, seed, german="de{}"):
    """Return sentence pairs: the same things in another order, "taxi" in both, and "die" as an article in one."""
    generator = np.random.default_rng(seed)
    for _ in range(count):
        things = generator.choice(THINGS, 4, replace=False)
        taxi = ["taxi"] if generator.random() < 0.2 else []
        yield (
            " ".join([*(f"en{thing}" for thing in things), *taxi]) + ".",
            " ".join(["die", *(german.format(thing) for thing in generator.permutation(things)), *taxi]) + ".",
        )


def write(path, pairs):
    return written(path, "".join(f"{one}\t{other}\n" for one, other in pairs))


@pytest.fixture(scope="module")
def pairs_file(tmp_path_factory):
    return write(tmp_path_factory.mktemp("pairs") / "en-de.tsv", pairs_of(600, 1))


def found(model, seed=9):
    """Return how often the translation of an unseen sentence is its nearest neighbour."""
    ours, theirs = (model.encode(texts) for texts in zip(*pairs_of(150, seed)))
    return np.mean((ours @ theirs.T).argmax(axis=1) == np.arange(len(ours)))


def test_translations_find_each_other_and_more_so_after_tuning(english, pairs_file):
    anchored = add_languages(english, {("en", "de"): pairs_file}, tuning=UNTUNED)
    tuned = add_languages(english, {("en", "de"): pairs_file}, tuning=TUNING)
    assert found(english) < 0.1 and 0.8 < found(anchored) <= found(tuned) and found(tuned) > 0.97


def added(english, folder, pairs):
    """Add German by these pairs alone; return the vectors of words, and those of the English sentences."""
    model = add_languages(english, {("en", "de"): write(folder / "p.tsv", pairs)}, min_count=1, tuning=UNTUNED)
    return dict(zip(model.vocabulary.words, model.word_vectors(range(len(model.vocabulary))))), english.encode(
        [one for one, _ in pairs]
    )


def test_a_new_word_is_the_shrunk_mean_of_the_translations_it_occurs_in(english, tmp_path):
    pairs = [("en1 en2", "eins zwei"), ("en1", "eins"), ("en3", "drei"), ("en3 en4", "drei vier")]
    vector, anchors = added(english, tmp_path, pairs)
    centre = anchors.mean(axis=0)
    expected = {"eins": (anchors[:2].mean(axis=0) - centre) * 2 / 4, "vier": (anchors[3] - centre) * 1 / 3}
    ratio = np.linalg.norm(vector["eins"]) / np.linalg.norm(expected["eins"])
    for word, row in expected.items():
        np.testing.assert_allclose(vector[word], row * ratio, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(vector["en1"], english.word_vectors([1])[0])  # no language but English has it


def test_a_word_of_both_languages_is_their_average_by_frequency(english, tmp_path):
    pairs = [("en1", "die eins"), ("en2", "die zwei"), ("en3", "die drei"), ("die en4", "vier die")]
    vector, _ = added(english, tmp_path, pairs)
    own = english.word_vectors([ENGLISH.index("die")])[0]
    share, share_german = 1 / 5, 4 / 8  # of the words of English and of German sentences
    # "die" is in every German sentence, and so has no direction there
    np.testing.assert_allclose(vector["die"], share * own / (share + share_german), rtol=1e-4, atol=1e-5)


def test_words_are_counted_and_limited(english, tmp_path):
    path = write(tmp_path / "p.tsv", [("en1", "eins Eins"), ("en2", "eins zwei zwei"), ("en3", "drei")])

    def new_words(**settings):
        return add_languages(english, {("en", "de"): path}, tuning=UNTUNED, **settings).vocabulary.words[len(ENGLISH) :]

    for settings, words in (({}, "eins zwei"), ({"min_count": 1}, "eins zwei drei"), ({"vocabulary": 1}, "eins")):
        assert new_words(**settings) == words.split(), settings


def test_a_teacher_of_one_language_anchors_both_and_components_are_its_own(english, pairs_file):
    brought = anchored_words(english.encode, pairs_file, ("en", "de"))
    assert list(brought) == ["en", "de"] and brought["de"].vectors.shape[1] == 24
    row = brought["de"].words.index("de7")
    holding = [one for one, other in pairs_of(600, 1) if "de7" in other.rstrip(".").split()]
    np.testing.assert_allclose(brought["de"].vectors[row], english.encode(holding).mean(axis=0), atol=1e-5)
    assert brought["de"].counts[row] == len(holding)
    joined = join_languages(brought, {("en", "de"): pairs_file}, None, PcaSettings(dimensions=20, drop=1), UNTUNED)
    assert found(joined) > 0.5


test_languages_that_cannot_be_added_are_refused = refused(
    *((lambda english, pairs_file, call=call: call(english, pairs_file), message, (InputError, CorpusError))
      for call, message in [
        (lambda english, pairs: add_languages(english, {}), "there is no parallel text"),
        (lambda english, pairs: add_languages("static-en", {("en", "de"): pairs}), "got str"),
        (lambda english, pairs: add_languages(english, {("fr", "de"): pairs}), "fr-de is not of 'en'"),
        (lambda english, pairs: add_languages(english, {("en", "de"): write(pairs.with_name("none.tsv"), [])}),
         "holds no sentence pair"),
        (lambda english, pairs: add_languages(
            english, {("en", "de"): write(pairs.with_name("few.tsv"), [("en1", "eins")] * 3)}, tuning=TUNING),
         r"en-de: 3 of 3 sentence pairs .* at least 64"),
        (lambda english, pairs: add_languages(english, {("en", "de"): pairs}, min_count=0), "min_count is 0"),
        (lambda english, pairs: TuningSettings(batch_size=1), "batch_size is 1"),
        (lambda english, pairs: tune(english, (["en1"], [])), "1 sentences have 0 translations"),
        (lambda english, pairs: tune(english, (["en1"], ["en1"]), (["en1"], ["en1"])), "each once"),
    ]),
)  # fmt: skip


def tune(english, *pairs):
    """Tune on pairs of lists of sentences, all of them from English to German."""
    bags = [[Bags.from_sentences(sentences, english.vocabulary) for sentences in pair] for pair in pairs]
    return tune_on_pairs(english.vectors, [PairBags("en-de", *pair) for pair in bags], TUNING)


# English paraphrases from sentences with one translation: what counts as one, and what is left out.


@pytest.fixture
def tatoeba(opened):
    return opened("recipes.tatoeba_pairs")


def packed(path, *lines):
    return written(path, lzma.compress("".join(f"{line}\n" for line in ("en\txx", *lines)).encode()))


def test_pairs_share_a_translation_and_differ_in_letters(tatoeba, tmp_path):
    lines = ["He left.\til est parti", "HE LEFT!\til est parti", "He is gone.\til est parti", "She left.\telle"]
    path = packed(tmp_path / "en-fr.tsv.xz", *lines, "Ｈe left\til est parti", "...\til est parti", "No tab")
    assert tatoeba.paraphrases(path) == [("He left.", "He is gone.")]
    assert tatoeba.paraphrases(path, held_out={"heisgone"}) == []


def test_a_pair_comes_once_whatever_its_order_and_case(tatoeba, tmp_path):
    lines = ["A dog.\tun", "One dog.\tun", "one dog\tdeux", "a dog\tdeux"]
    assert tatoeba.paraphrases(packed(tmp_path / "en-fr.tsv.xz", *lines)) == [("A dog.", "One dog.")]
    packed(tmp_path / "en-de.tsv.xz", "ONE DOG\teins", "A DOG\teins", "Two cats.\tzwei", "Two felines.\tzwei")
    both = tatoeba.all_paraphrases(tmp_path)
    assert sorted(both) == [("ONE DOG", "A DOG"), ("Two cats.", "Two felines.")]
    assert tatoeba.all_paraphrases(tmp_path) == both


def test_test_sentences_are_found_in_every_set(tatoeba, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "test.tsv").write_text('score\tsentence1\tsentence2\n1\t"Hi, you\tA cat.\n', encoding="utf-8")
    (tmp_path / "other.tsv").write_text("text\tlabel\nA dog\t1\n", encoding="utf-8")
    assert tatoeba.test_sentences(tmp_path) == {"hiyou", "acat"}


def test_the_real_pairs_hold_no_test_sentence(tatoeba, shared):
    held_out = tatoeba.test_sentences(shared / "data" / "sts")
    path = shared / "data" / "parallel" / "tatoeba" / "en-zh.tsv.xz"
    pairs, all_of_them = tatoeba.paraphrases(path, held_out), tatoeba.paraphrases(path)
    assert 2_000 < len(pairs) <= len(all_of_them)
    assert tatoeba.letters("A man is playing a guitar.") in held_out
    assert not {tatoeba.letters(text) for pair in pairs for text in pair} & held_out
