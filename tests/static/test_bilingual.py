"""A model of several languages, made from a teacher in whose world translations are known.

The teacher knows 40 things and has a word for each in three invented languages. A word's vector is its thing, plus how
much it shows its language, which is most of it: every sentence is nearer to any other of its language than to its
translation. Each language has particles besides, which mean nothing and have no translation.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from sklearn.decomposition import PCA

from pellucid.errors import CorpusError
from pellucid.static.training import languages
from pellucid.static.training.distill import PcaSettings
from pellucid.static.training.extraction import Extraction
from pellucid.static.training.languages import (
    check_pairs,
    distill_languages,
    join_languages,
    merge_words,
)
from pellucid.static.training.segmentation import word_finder
from pellucid.static.training.tuning import TuningSettings
from refusals import refused
from tiny_models import save_word_pieces

torch = pytest.importorskip("torch")
sentence_transformers = pytest.importorskip("sentence_transformers")
transformers = pytest.importorskip("transformers")

CODES = ("en", "de", "fr")
THINGS, PARTICLES, WIDTH = 40, 6, 32
LEXICON = {code: [f"{code}{thing}" for thing in range(THINGS)] for code in CODES}
FILLERS = {code: [f"{code}z{n}" for n in range(PARTICLES)] for code in CODES}
SMALL = (
    PcaSettings(dimensions=20, drop=3),
    TuningSettings(steps=100, batch_size=64, learning_rate=0.05, evaluate_every=25),
)


def say(things, code, generator):
    """Say `things` in a language, with two particles in between."""
    words = [LEXICON[code][thing] for thing in things] + list(generator.choice(FILLERS[code], 2))
    return " ".join(generator.permutation(words)) + "."


def translations(count, codes, seed):
    generator = np.random.default_rng(seed)
    meanings = [generator.choice(THINGS, 4, replace=False) for _ in range(count)]
    return [tuple(say(meaning, code, generator) for code in codes) for meaning in meanings]


def table():
    generator = np.random.default_rng(5)
    things = generator.normal(size=(THINGS, WIDTH))
    vectors = {}
    for code in CODES:
        accent = 3 * generator.normal(size=WIDTH)
        for word, thing in zip(LEXICON[code], things):
            vectors[word] = thing + generator.uniform(0.7, 1.3) * accent + 0.3 * generator.normal(size=WIDTH)
        for word in FILLERS[code]:
            vectors[word] = generator.normal(size=WIDTH) + accent
    return vectors


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A BERT whose one layer adds nothing, so that its states are the vectors above, normalised."""
    vectors, folder = table(), tmp_path_factory.mktemp("teacher")
    size = save_word_pieces(folder, [*vectors, "."])
    config = transformers.BertConfig(
        vocab_size=size, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    model = transformers.BertModel(config)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "LayerNorm" not in name:
                weights.zero_()
        words = model.embeddings.word_embeddings.weight
        words[size - 1 - len(vectors) : -1] = torch.tensor(np.array([*vectors.values()]))
    model.save_pretrained(folder)
    modules = sentence_transformers.sentence_transformer.modules
    return sentence_transformers.SentenceTransformer(
        modules=[modules.Transformer(str(folder)), modules.Pooling(WIDTH)], device="cpu"
    )


@pytest.fixture
def world(tmp_path):
    """Corpora of three languages and parallel text of two pairs, as files."""
    corpora, parallel = {}, {}
    for number, code in enumerate(CODES):
        corpora[code] = tmp_path / f"{code}.txt"
        corpora[code].write_text("\n".join(text for (text,) in translations(300, (code,), number)))
    for number, pair in enumerate([("en", "de"), ("en", "fr")]):
        parallel[pair] = tmp_path / f"{'-'.join(pair)}.tsv"
        rows = ["\t".join(pair), *map("\t".join, translations(400, pair, 10 + number))]
        parallel[pair].write_text("\n".join(rows))
    return {"corpora": corpora, "parallel": parallel}


def make(teacher, world, work_dir, codes=CODES[:2], join=SMALL):
    corpora = {code: world["corpora"][code] for code in codes}
    parallel = {pair: files for pair, files in world["parallel"].items() if set(pair) <= set(codes)}
    return distill_languages(
        teacher, corpora, parallel, work_dir=work_dir, pca=join[0], tuning=join[1], show_progress_bar=False
    )


def found(model, codes):
    """The share of sentences whose nearest neighbour, among all others of both languages, is their translation."""
    sides = list(zip(*translations(100, codes, 99)))
    vectors = np.concatenate([model.encode(list(side)) for side in sides])
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -1)
    return float(np.mean(cosines.argmax(axis=1) == np.roll(np.arange(200), 100)))


@pytest.mark.full
def test_each_step_brings_translations_together(teacher, world, tmp_path):
    def variant(drop, steps):
        join = replace(SMALL[0], drop=drop), replace(SMALL[1], steps=steps)
        return found(make(teacher, world, tmp_path / "work", join=join), ("en", "de"))

    assert variant(drop=0, steps=0) < 0.05
    assert variant(drop=0, steps=100) < 0.05  # tuning does not make up for the accents
    assert 0.4 < variant(drop=3, steps=0) < 0.7 and variant(drop=3, steps=100) > 0.95


def test_languages_that_meet_in_a_third_one(teacher, world, tmp_path):
    model = make(teacher, world, tmp_path / "work", CODES, (replace(SMALL[0], drop=4), SMALL[1]))
    assert len(model.vocabulary) == 3 * (THINGS + PARTICLES)
    assert found(model, ("en", "fr")) > 0.9
    assert found(model, ("de", "fr")) > 0.8  # no German text was paired with French


def test_one_table_for_all_languages():
    first = Extraction(["the", "taxi", "unseen", "cat"], np.array([6, 2, 1, 1]), rows(1, 2, 0, 3), [])
    second = Extraction(["taxi", "die", "cat"], np.array([30, 10, 60]), rows(4, 5, 9), [])
    words, vectors = merge_words([first, second])
    assert words == ["cat", "the", "taxi", "die"]  # shares 0.1 + 0.6, 0.6, 0.2 + 0.3, 0.1
    np.testing.assert_array_equal(vectors, rows(6, 1, 3, 5))
    words, vectors = merge_words([first, second], limit=1)
    assert words == ["the", "taxi"]
    np.testing.assert_array_equal(vectors, rows(1, 4))


def rows(*values):
    return np.array([[value] * 3 for value in values], np.float32)


def test_pca_of_as_many_sentences_of_each_language():
    generator, brought, means = np.random.default_rng(0), {}, []
    for code, count, step in (("en", 90, 3), ("de", 30, 1)):
        words, numbers = [f"{code}{n}" for n in range(12)], generator.integers(0, 12, (count, 4))
        vectors = generator.normal(size=(12, 6)).astype(np.float32)
        sentences = [" ".join(words[n] for n in row) for row in numbers]
        brought[code] = Extraction(words, np.ones(12, np.int64), vectors, [*sentences, "unknown"])
        means.append(vectors[numbers[::step]].mean(axis=1))
    settings = (PcaSettings(dimensions=3, drop=2), replace(SMALL[1], steps=0))
    model = join_languages(brought, {("en", "de"): "not read"}, None, *settings)
    reference = PCA(5, svd_solver="full").fit(np.concatenate(means))
    wanted = reference.transform(np.concatenate([one.vectors for one in brought.values()]))[:, 2:]
    got = model.vectors[[model.vocabulary.row(word) for one in brought.values() for word in one.words]]
    np.testing.assert_allclose(np.abs(got), np.abs(wanted), atol=1e-4)


def test_a_large_corpus_is_sampled_evenly(monkeypatch):
    monkeypatch.setattr(languages, "_SENTENCES", 4)
    for all_of_them, sample in (("0123456789", "0257"), ("012", "012"), ("", "")):
        assert languages._sample(list(all_of_them)) == list(sample)


# --- what can be wrong ------------------------------------------------------------------------------------------------


NOT_CONNECTED = [
    ("en", [], "needs at least two, got en"),
    ("en de", [], r"de share no parallel text with en\. .*give text such as en-de"),
    ("en de fr", [("en", "de")], r"fr share no parallel text with en\. "),
    ("en de fr it", [("fr", "it"), ("de", "en")], r"fr, it share no parallel text with en\. "),
    ("en de", [("en", "de"), ("de", "es")], "parallel text de-es: 'es' is not among en, de"),
    ("en de", [("en", "en")], "parallel text is given for two languages"),
    ("en de", ["en-de"], "parallel text is given for two languages"),
]


def made_of(world, folder, name, text):
    """Make a model of parallel text of English and German, which is written first."""
    (folder / name).write_text(text)
    make("no such teacher", {**world, "parallel": {("en", "de"): folder / name}}, folder / "work")


test_languages_and_texts_that_make_no_model_are_refused = refused(
    *((lambda codes=codes, pairs=pairs: check_pairs(
        dict.fromkeys(codes.split()), dict.fromkeys(pairs, "pairs.tsv")), message)
      for codes, pairs, message in NOT_CONNECTED),
    # told before the teacher is opened
    (lambda world, tmp_path: made_of(world, tmp_path, "short.tsv", "a\tb\n" * 9 + "one cell\n"),
     r"short\.tsv, line 10: no tab", CorpusError),
    (lambda world, tmp_path: made_of(world, tmp_path, "empty.tsv", "en\tde\n"),
     r"empty\.tsv holds no sentence pair for en-de", CorpusError),
    (lambda world, tmp_path: make("no such teacher", {**world, "parallel": {}}, tmp_path), "share no parallel text"),
    (lambda tmp_path: distill_languages("no such teacher", {"English": "a.txt", "de": "b.txt"},
        {("English", "de"): "p.tsv"}, work_dir=tmp_path), "the language is 'English'"),
)  # fmt: skip


def test_a_chain_connects():
    check_pairs(dict.fromkeys(("en", "de", "fr", "it")), dict.fromkeys([("fr", "it"), ("en", "de"), ("it", "de")], "p"))


def test_too_little_parallel_text(teacher, world, tmp_path):
    (tmp_path / "few.tsv").write_text("en1 en2\tde1 de2\n" * 100)
    world["parallel"] = {("en", "de"): tmp_path / "few.tsv"}
    with pytest.raises(CorpusError, match=r"en-de: 100 of 100 sentence pairs .* needs at least 128"):
        make(teacher, world, tmp_path / "work")


# --- words of languages -----------------------------------------------------------------------------------------------


@pytest.mark.needs("sudachipy")
def test_a_segmenter_is_asked_by_one_thread_at_a_time():
    texts = ["私はファイアフォックスを使っています。" * 20] * 40
    find = word_finder("ja")
    with ThreadPoolExecutor(4) as workers:
        assert len({tuple(words) for words in workers.map(find, texts)}) == 1
