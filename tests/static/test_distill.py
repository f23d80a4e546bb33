"""Making static models of one and several languages: fast steps against plain definitions, runs that are stopped.

The models of several languages are made from a teacher in whose world translations are known. It knows 40 things and
has a word for each in three invented languages. A word's vector is its thing, plus how much it shows its language,
which is most of it: every sentence is nearer to any other of its language than to its translation. Each language has
particles besides, which mean nothing and have no translation.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.decomposition import PCA

import pellucid
from pellucid.core.arrays import l2_normalize
from pellucid.core.fingerprint import fingerprint
from pellucid.dense.embedder import EncoderEmbedder
from pellucid.errors import CorpusError, InputError
from pellucid.static.bags import Bags
from pellucid.static.training import extraction as extraction_module
from pellucid.static.training import languages
from pellucid.static.training.distill import PcaSettings, distill, distill_extraction, open_teacher, project
from pellucid.static.training.extraction import Extraction, ExtractionSettings, extract
from pellucid.static.training.languages import check_translations, distill_languages, join_languages, merge_words
from pellucid.static.training.segmentation import word_finder
from pellucid.static.training.tuning import PairBags, RefinementSettings, TuningSettings, _neighbourhoods, refine
from pellucid.text.words import Vocabulary, split_words
from refusals import refused
from resuming import assert_damage_is_refused, reversed_lines, stop_at_write, stopped_at_writes
from teachers import agreement, sentences, two_teachers
from tiny_models import save_word_pieces

torch = pytest.importorskip("torch")
sentence_transformers = pytest.importorskip("sentence_transformers")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def teachers(tmp_path_factory):
    return two_teachers(tmp_path_factory.mktemp("teachers"))


@pytest.fixture(scope="module")
def teacher(teachers):
    return teachers[0]


def plain_vectors(teacher, corpus, limit, prompt=""):
    """Section 3.1 word for word: for every word, every sentence with it, one sentence at a time."""
    found = {}
    for sentence in corpus:
        encoded = teacher.tokenizer(prompt + sentence, truncation=True, max_length=teacher.max_seq_length)
        features = {name: torch.tensor([values]) for name, values in encoded.items()}
        with torch.no_grad():
            states = teacher[0](features)["token_embeddings"][0]
        spans = [encoded.token_to_chars(i) for i in range(len(encoded["input_ids"]))]
        last = max(span.end for span in spans if span is not None)
        for word in split_words(sentence):
            start, end = word.start + len(prompt), word.end + len(prompt)
            inside = [i for i, s in enumerate(spans) if s is not None and start <= s.start and s.end <= end]
            if inside and end <= last:
                found.setdefault(word.text.lower(), []).append(states[inside].mean(0).numpy())
    return {word: np.mean(vectors[:limit], axis=0) for word, vectors in found.items()}


@pytest.mark.parametrize(
    ("number", "prompt", "settings"),
    [(0, "", {}), (0, "query: ", {"prompt": "query: "}), (1, "query: ", {})],  # the second puts its default one first
)
def test_one_pass_equals_one_encode_per_word(teachers, tmp_path, number, prompt, settings):
    corpus = [*sentences(40), "The tokenised token crosses a stone road road road road road road road road"]
    teacher = teachers[number]
    got = extract(teacher, corpus, tmp_path, ExtractionSettings(**settings, batch_size=7))
    wanted = plain_vectors(teacher, corpus, 1000, prompt)
    assert "tokenised" in wanted and got.sentences == corpus
    for word, vector in zip(got.words, got.vectors):
        np.testing.assert_allclose(vector, wanted.get(word, 0 * vector), atol=2e-5, err_msg=word)
    encoded = teacher.encode(corpus, prompt=prompt or None, normalize_embeddings=True)
    np.testing.assert_allclose(got.teacher_vectors, encoded, atol=1e-3)
    again = extract(teacher, corpus, tmp_path, ExtractionSettings(prompt=prompt, batch_size=7))  # the same run
    np.testing.assert_array_equal(again.teacher_vectors, got.teacher_vectors)


def test_at_most_n_occurrences(teacher, tmp_path):
    corpus = ["cat sees the dog", "a cat leaves", "dog likes dog and dog"]
    got = extract(teacher, corpus, tmp_path, ExtractionSettings(occurrences=1, batch_size=1))
    once = ["a", "and", "leaves", "likes", "sees", "the"]
    assert dict(zip(got.words, got.counts.tolist())) == {"dog": 4, "cat": 2, **dict.fromkeys(once, 1)}
    # Shards sort by length, so the two-word sentence comes first: "cat" has its one occurrence there.
    alone = plain_vectors(teacher, ["a cat leaves"], 1)
    np.testing.assert_allclose(got.vectors[got.words.index("cat")], alone["cat"], atol=2e-5)


def test_enough_takes_only_sentences_that_teach_something(teacher, tmp_path):
    corpus = ["the cat sees", "the cat sees", "a cat sees", "the cat", "the dog"]
    got = extract(teacher, corpus, tmp_path, ExtractionSettings(enough=1))
    assert got.sentences == ["the cat sees", "a cat sees", "the dog"]


def test_weights_that_are_random_at_every_opening_tell_no_teachers_apart(teacher):
    """A checkpoint without a pooler gets another one each time it is opened; a mean of states needs none."""
    known = fingerprint(EncoderEmbedder(teacher))["stored"]
    for is_of_pooler in (True, False):
        weight = next(weight for name, weight in teacher.named_parameters() if ("pooler" in name) == is_of_pooler)
        before = weight.data.clone()
        weight.data.add_(1.0)
        assert (fingerprint(EncoderEmbedder(teacher))["stored"] == known) == is_of_pooler
        weight.data.copy_(before)


def small_distill(teacher, corpus, work_dir):
    return distill(
        teacher,
        corpus,
        work_dir=work_dir,
        pca=PcaSettings(dimensions=8, drop=1),
        refinement=RefinementSettings(steps=30, batch_size=32, evaluate_every=10),
        show_progress_bar=False,
    )


@pytest.mark.full
def test_a_distillation_stopped_anywhere_ends_like_one_that_was_not(teacher, tmp_path, monkeypatch):
    monkeypatch.setattr(extraction_module, "_SHARD", 100)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(sentences(400)))
    run = partial(small_distill, teacher, corpus)
    (_, whole), *others = stopped_at_writes(run, tmp_path / "runs", 12)
    assert len(others) == 12
    for folder, other in others:
        np.testing.assert_array_equal(other.vectors, whole.vectors, err_msg=str(folder))
        assert other.vocabulary.words == whole.vocabulary.words
    # the state; the words, their counts, the sums of their vectors; the sentences' vectors
    assert assert_damage_is_refused(run, tmp_path / "runs" / "0") == 5


@pytest.mark.parametrize("write", [12, None])  # while the teacher reads, at the end
def test_a_corpus_replaced_by_one_of_its_size_is_refused(teacher, tmp_path, monkeypatch, write):
    monkeypatch.setattr(extraction_module, "_SHARD", 100)
    corpus, work_dir, kept = tmp_path / "corpus.txt", tmp_path / "work", "\n".join(sentences(400))
    corpus.write_text(kept)
    whole = small_distill(teacher, corpus, work_dir if write is None else tmp_path / "whole")
    if write is not None:
        stop_at_write(lambda: small_distill(teacher, corpus, work_dir), write)
    before = {path.name: path.read_bytes() for path in work_dir.glob("*.state*")}
    reversed_lines(corpus)
    with pytest.raises(InputError, match=r"corpus\.txt is not the corpus that the run .*: texts 1 to 3.. are not the"):
        small_distill(teacher, corpus, work_dir)
    assert {path.name: path.read_bytes() for path in work_dir.glob("*.state*")} == before
    corpus.write_text(kept)
    np.testing.assert_array_equal(small_distill(teacher, corpus, work_dir).vectors, whole.vectors)


def test_a_list_is_known_by_what_it_holds(teacher, tmp_path):
    whole = extract(teacher, ["the cat sees", "a dog"], tmp_path, ExtractionSettings())
    (tmp_path / "texts.txt").write_text("the cat sees\na dog\n")  # the same texts, from elsewhere
    again = extract(teacher, tmp_path / "texts.txt", tmp_path, ExtractionSettings())
    np.testing.assert_array_equal(again.vectors, whole.vectors)


def test_projection_is_pca_of_sentence_means_or_words_without_the_top():
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(30, 8)).astype(np.float32) + 3
    bags = Bags(generator.integers(0, 30, 400), np.arange(0, 401, 4))
    means = np.stack([vectors[bags.rows[i : i + 4]].mean(0) for i in range(0, 400, 4)])
    np.testing.assert_allclose(bags.means(vectors), means, atol=1e-5)
    for level, rows in (("sentence", means), ("word", vectors)):
        got = project(vectors, bags, PcaSettings(dimensions=4, drop=2, level=level))
        wanted = PCA(6, svd_solver="full").fit(rows).transform(vectors)[:, 2:]
        np.testing.assert_allclose(np.abs(got), np.abs(wanted), atol=1e-4)
    np.testing.assert_array_equal(project(vectors, bags, PcaSettings(level="none")), vectors)


def made_up_extraction(seed=0):
    """A world in which every third word only adds noise to the meaning: refinement must learn to hush it."""
    generator = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(60)]
    true = generator.normal(size=(60, 12)).astype(np.float32)
    given = true.copy()
    true[::3] *= 0.05
    texts = [" ".join(f"w{i}" for i in generator.integers(0, 60, 6)) for _ in range(1500)]
    teacher = Bags.from_sentences(texts, Vocabulary(words)).means(true)
    teacher /= np.linalg.norm(teacher, axis=1, keepdims=True)
    return Extraction(words, np.ones(60, np.int64), given, texts, teacher.astype(np.float16))


SMALL = RefinementSettings(steps=300, batch_size=32, neighbours=1, evaluate_every=100, learning_rate=0.02)


@pytest.mark.parametrize("neighbours", [1, 4])
def test_refinement_recovers_what_the_teacher_weighs(neighbours):
    settings = [replace(SMALL, steps=0), replace(SMALL, neighbours=neighbours)]
    all_dimensions = PcaSettings(dimensions=12, drop=0)
    models = [distill_extraction(made_up_extraction(), None, pca=all_dimensions, refinement=each) for each in settings]
    lengths = [np.linalg.norm(model.vectors, axis=1) for model in models]
    plain, refined = (each[::3].mean() / np.delete(each, np.s_[::3]).mean() for each in lengths)  # of noise, of words
    assert plain > 0.9 and refined < 0.5


@pytest.mark.full
def test_pairs_come_together_while_the_teacher_is_followed():
    """Half of the words are those of another language, of which only pairs speak."""
    extraction, settings = made_up_extraction(), replace(SMALL, steps=600)
    words = Vocabulary([*extraction.words, *(f"v{i}" for i in range(60))])
    other = [text.replace("w", "v") for text in extraction.sentences]
    vectors = np.concatenate([extraction.vectors, np.random.default_rng(5).normal(size=(60, 12)).astype(np.float32)])
    bags, others = (Bags.from_sentences(texts, words) for texts in (extraction.sentences, other))
    alone, together = (
        refine(vectors, bags, extraction.teacher_vectors, settings, pairs=pairs)
        for pairs in ([], [PairBags("w-v", bags, others)])
    )
    teacher = extraction.teacher_vectors[:200].astype(float)

    def found(table):
        first, second = (l2_normalize(side.means(table)[:200]) for side in (bags, others))
        return float(((first @ second.T).argmax(axis=1) == np.arange(200)).mean())

    assert found(alone) < 0.1 and found(together) > 0.9
    compared = ((together, bags), (together, others), (alone, others))
    follows = [agreement(l2_normalize(side.means(table)[:200]), teacher) for table, side in compared]
    assert follows[0] > 0.7 and follows[1] > follows[2] + 0.1


def test_neighbourhoods_hold_every_sentence_once():
    train = np.arange(100, 1500)
    groups = _neighbourhoods(made_up_extraction().teacher_vectors, train, RefinementSettings(neighbours=2))
    together = np.concatenate(groups)
    assert len(groups) > 1 and len(np.unique(together)) == len(together) and np.isin(together, train).all()


def test_distill_end_to_end_follows_the_teacher_and_takes_up_the_extraction(teacher, tmp_path, monkeypatch):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(json.dumps({"text": s}) for s in sentences(400)), encoding="utf-8")
    run = partial(distill, pellucid.load(teacher), corpus, work_dir=tmp_path / "work", show_progress_bar=False)
    refinement = RefinementSettings(steps=200, batch_size=32, evaluate_every=50)
    model = run(pca=PcaSettings(dimensions=8, drop=1), refinement=refinement)
    fresh = sentences(60, seed=9)
    assert agreement(model.encode(fresh), teacher.encode(fresh, normalize_embeddings=True)) > 0.6
    assert model.get_embedding_dimension() == 8
    assert model.vocabulary.row("sellss") == model.vocabulary.row("sells")  # the teacher's pieces came along
    monkeypatch.setattr(extraction_module, "forward", None)  # with other settings of later steps no sentence is read
    assert run(pca=PcaSettings(6, 1), refinement=replace(refinement, steps=20)).get_embedding_dimension() == 6


CAT = ["the cat sees"]


def refine_few():
    extraction = made_up_extraction()
    bags = Bags.from_sentences(extraction.sentences[:10], Vocabulary(extraction.words))
    refine(extraction.vectors, bags, extraction.teacher_vectors[:10], SMALL)


test_what_cannot_be_distilled_is_refused = refused(
    (lambda teacher, tmp_path: [extract(teacher, CAT, tmp_path, ExtractionSettings(occurrences=n)) for n in (9, 7)],
     "different: occurrences"),
    (lambda teacher, tmp_path: [extract(teacher, [*CAT, text], tmp_path, ExtractionSettings()) for text in ("a", "b")],
     r"the corpus is not the corpus .*: texts 1 to 2 are not the same"),
    *((lambda teacher, tmp_path, corpus=corpus: extract(teacher, corpus, tmp_path, ExtractionSettings()),
       "no usable sentence", CorpusError) for corpus in ([], ["", "  "], ["one"], ["?!"])),
    *((lambda name=name, value=value: RefinementSettings(**{name: value}), f"{name} is {value}")
      for name, value in [("pair_share", 0.0), ("pair_share", 1.0), ("pair_temperature", 0.0)]),
    (lambda teacher, tmp_path: extract(teacher, CAT, tmp_path, ExtractionSettings(min_count=2)), "lower min_count",
     CorpusError),
    (refine_few, "10 sentences hold two known words", CorpusError),
    (lambda teacher, tmp_path: distill(teacher, CAT, work_dir=tmp_path), "at least 263 dimensions, this one has 16"),
    (lambda teacher, tmp_path: distill(teacher, CAT, work_dir=tmp_path, pca=PcaSettings(level="words")),
     "level is 'words'; it must be one of sentence, word, none"),
    (lambda fruit: open_teacher(fruit), r"is a \w+; words are read from a SentenceTransformer"),
    (lambda: open_teacher(lambda texts: np.ones((len(texts), 2))), r"is a \w+; words are read from a Sentence"),
)  # fmt: skip


def test_settings_may_change_while_there_is_nothing_to_lose(teacher, tmp_path):
    with suppress(CorpusError):
        extract(teacher, CAT, tmp_path, ExtractionSettings(min_count=2))
    assert extract(teacher, CAT, tmp_path, ExtractionSettings()).words == ["cat", "sees", "the"]


CODES = ("en", "de", "fr")
THINGS, PARTICLES, WIDTH = 40, 6, 32
LEXICON = {code: [f"{code}{thing}" for thing in range(THINGS)] for code in CODES}
FILLERS = {code: [f"{code}z{n}" for n in range(PARTICLES)] for code in CODES}
JOIN = (
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


def word_table():
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
def polyglot(tmp_path_factory):
    """A BERT whose one layer adds nothing, so that its states are the vectors above, normalised."""
    vectors, folder = word_table(), tmp_path_factory.mktemp("teacher")
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


def make(polyglot, world, work_dir, codes=CODES[:2], join=JOIN):
    corpora = {code: world["corpora"][code] for code in codes}
    parallel = {pair: files for pair, files in world["parallel"].items() if set(pair) <= set(codes)}
    return distill_languages(
        polyglot, corpora, parallel, work_dir=work_dir, pca=join[0], tuning=join[1], show_progress_bar=False
    )


def share_found(model, codes):
    """The share of sentences whose nearest neighbour, among all others of both languages, is their translation."""
    sides = list(zip(*translations(100, codes, 99)))
    vectors = np.concatenate([model.encode(list(side)) for side in sides])
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -1)
    return float(np.mean(cosines.argmax(axis=1) == np.roll(np.arange(200), 100)))


@pytest.mark.full
def test_each_step_brings_translations_together(polyglot, world, tmp_path):
    def variant(drop, steps):
        join = replace(JOIN[0], drop=drop), replace(JOIN[1], steps=steps)
        return share_found(make(polyglot, world, tmp_path / "work", join=join), ("en", "de"))

    assert variant(drop=0, steps=0) < 0.05
    assert variant(drop=0, steps=100) < 0.05  # tuning does not make up for the accents
    assert 0.4 < variant(drop=3, steps=0) < 0.7 and variant(drop=3, steps=100) > 0.95


def test_languages_that_meet_in_a_third_one(polyglot, world, tmp_path):
    check_translations(
        dict.fromkeys(("en", "de", "fr", "it")), dict.fromkeys([("fr", "it"), ("en", "de"), ("it", "de")], "p")
    )
    model = make(polyglot, world, tmp_path / "work", CODES, (replace(JOIN[0], drop=4), JOIN[1]))
    assert len(model.vocabulary) == 3 * (THINGS + PARTICLES) and share_found(model, ("en", "fr")) > 0.9
    assert share_found(model, ("de", "fr")) > 0.8  # no German text was paired with French


def test_one_table_for_all_languages():
    first = Extraction(["the", "taxi", "unseen", "cat"], np.array([6, 2, 1, 1]), vectors_of(1, 2, 0, 3), [])
    second = Extraction(["taxi", "die", "cat"], np.array([30, 10, 60]), vectors_of(4, 5, 9), [])
    words, vectors = merge_words([first, second])
    assert words == ["cat", "the", "taxi", "die"]  # shares 0.1 + 0.6, 0.6, 0.2 + 0.3, 0.1
    np.testing.assert_array_equal(vectors, vectors_of(6, 1, 3, 5))
    words, vectors = merge_words([first, second], limit=1)
    assert words == ["the", "taxi"]
    np.testing.assert_array_equal(vectors, vectors_of(1, 4))


def vectors_of(*values):
    return np.array([[value] * 3 for value in values], np.float32)


def test_pca_of_as_many_sentences_of_each_language():
    generator, brought, means = np.random.default_rng(0), {}, []
    for code, count, step in (("en", 90, 3), ("de", 30, 1)):
        words, numbers = [f"{code}{n}" for n in range(12)], generator.integers(0, 12, (count, 4))
        vectors = generator.normal(size=(12, 6)).astype(np.float32)
        sentences = [" ".join(words[n] for n in row) for row in numbers]
        brought[code] = Extraction(words, np.ones(12, np.int64), vectors, [*sentences, "unknown"])
        means.append(vectors[numbers[::step]].mean(axis=1))
    settings = (PcaSettings(dimensions=3, drop=2), replace(JOIN[1], steps=0))
    model = join_languages(brought, {("en", "de"): "not read"}, None, *settings)
    reference = PCA(5, svd_solver="full").fit(np.concatenate(means))
    wanted = reference.transform(np.concatenate([one.vectors for one in brought.values()]))[:, 2:]
    got = model.vectors[[model.vocabulary.row(word) for one in brought.values() for word in one.words]]
    np.testing.assert_allclose(np.abs(got), np.abs(wanted), atol=1e-4)


def test_a_large_corpus_is_sampled_evenly(monkeypatch):
    monkeypatch.setattr(languages, "_SENTENCES", 4)
    for all_of_them, sample in (("0123456789", "0257"), ("012", "012"), ("", "")):
        assert languages._sample(list(all_of_them)) == list(sample)


# --- What can be wrong ---


def made_of(world, folder, name, text, teacher="no such teacher"):
    """Make a model of parallel text of English and German, which is written first."""
    (folder / name).write_text(text)
    make(teacher, {**world, "parallel": {("en", "de"): folder / name}}, folder / "work")


test_languages_and_texts_that_make_no_model_are_refused = refused(
    *((lambda codes=codes, pairs=pairs: check_translations(
        dict.fromkeys(codes.split()), dict.fromkeys(pairs, "pairs.tsv")), message)
      for codes, pairs, message in [
          ("en", [], "needs at least two, got en"),
          ("en de", [], r"de share no parallel text with en\. .*give text such as en-de"),
          ("en de fr", [("en", "de")], r"fr share no parallel text with en\. "),
          ("en de fr it", [("fr", "it"), ("de", "en")], r"fr, it share no parallel text with en\. "),
          ("en de", [("en", "de"), ("de", "es")], "parallel text de-es: 'es' is not among en, de"),
          ("en de", [("en", "en")], "parallel text is given for two languages"),
          ("en de", ["en-de"], "parallel text is given for two languages"),
      ]),
    # told before the teacher is opened
    (lambda world, tmp_path: made_of(world, tmp_path, "short.tsv", "a\tb\n" * 9 + "one cell\n"),
     r"short\.tsv, line 10: no tab", CorpusError),
    (lambda world, tmp_path: made_of(world, tmp_path, "empty.tsv", "en\tde\n"),
     r"empty\.tsv holds no sentence pair for en-de", CorpusError),
    (lambda world, tmp_path, polyglot: made_of(world, tmp_path, "few.tsv", "en1 en2\tde1 de2\n" * 100, polyglot),
     r"en-de: 100 of 100 sentence pairs .* needs at least 128", CorpusError),
    (lambda world, tmp_path: make("no such teacher", {**world, "parallel": {}}, tmp_path), "share no parallel text"),
    (lambda tmp_path: distill_languages("no such teacher", {"English": "a.txt", "de": "b.txt"},
        {("English", "de"): "p.tsv"}, work_dir=tmp_path), "the language is 'English'"),
)  # fmt: skip


@pytest.mark.needs("sudachipy")
def test_a_segmenter_is_asked_by_one_thread_at_a_time():
    texts = ["私はファイアフォックスを使っています。" * 20] * 40
    find = word_finder("ja")
    with ThreadPoolExecutor(4) as workers:
        assert len({tuple(words) for words in workers.map(find, texts)}) == 1
