"""Reasons of an encoder's score: what they add up to, what they find where the truth is known, whom they refuse."""

import copy
import itertools
import json
import lzma
import math
import pickle
import re
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pellucid
from damage import LOSSES, damages, set_entry
from pellucid.dense import SentenceReasons
from pellucid.dense import words as word_reasons
from pellucid.dense.embedder import REASON_KINDS, EncoderEmbedder
from pellucid.dense.measured import MeasuredReasons
from pellucid.dense.vectors import form_directions, text_form
from pellucid.dense.words import WordReasons, open_texts, words_for
from pellucid.errors import ModelFolderError
from pellucid.explain.explanation import Explanation
from pellucid.explain.rows import CONTEXT, EMBEDDING, SENTENCE, SHARED, WORD, WORD_PAIR, Row
from pellucid.process import ignored_warnings
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.sentences import sentence_spans
from pellucid.text.words import Vocabulary, split_words
from refusals import refused
from tiny_models import tiny_transformer

NAMES = [f"{first}{second}" for first, second in itertools.product("bcdfglmnrst", "aeiou")]  # 55 words: "ba", "be" ...
WORDS = st.lists(st.sampled_from([*NAMES, "Unbekannt", "ba!", "é"]), min_size=0, max_size=12).map(" ".join)


def table():
    """A table of words of 16 dimensions."""
    return StaticEmbedder(Vocabulary(NAMES), np.random.default_rng(0).normal(size=(len(NAMES), 16)).astype(np.float32))


def sentences(count=600, seed=1):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(NAMES, rng.integers(2, 9))) for _ in range(count)]


class Shadow:
    """An encoder that is a table seen through a matrix, with a part that all texts share."""

    def __init__(self, noise=0.0):
        rng = np.random.default_rng(7)
        self.table, self.matrix, self.noise = table(), rng.normal(size=(16, 24)) / 4, noise
        self.common = rng.normal(size=24) / 6
        self.calls = 0

    def __call__(self, texts):
        self.calls += 1
        rows = self.table.encode(texts) @ self.matrix + self.common
        for row, text in zip(rows, texts):  # of a text, the same each time
            row += self.noise * np.random.default_rng(list(text.encode())).normal(size=24)
        return rows


def fitted(shadow):
    model = pellucid.load(shadow)
    model.fit_reasons(sentences(), table=table())
    return model


@pytest.fixture(scope="module")
def shadow():
    return fitted(Shadow(noise=0.05))


@given(WORDS, st.lists(WORDS, min_size=1, max_size=4), st.floats(0.1, 3.0))
def test_stored_vectors_give_the_rows_of_explain_times_the_weight_without_the_encoder(shadow, query, texts, weight):
    rows = word_reasons.unit_vectors(shadow, texts, role="document")
    terms_of = shadow.analyze_texts([query], ["query"])[0].against(texts, rows, weight=weight)
    vector = shadow.encode(query)
    for number, text in enumerate(texts):
        terms, calls = terms_of(number), shadow.model.calls
        kept = shadow.explain_vectors(query, 3 * vector, text, rows[number].tolist())
        assert shadow.model.calls == calls
        own = shadow.explain(query, text, role1="query", role2="document")
        rows_of = [{None: why.score, **{row.key: row.contribution for row in why.rows}} for why in (kept, own)]
        assert rows_of[0] == pytest.approx(rows_of[1], abs=1e-6)
        assert terms.values.sum() == pytest.approx(weight * own.score, abs=1e-6)
        named = {terms.row(n).key: value for n, value in enumerate(terms.values.tolist())}
        assert terms.row(len(terms.values) - 1).kind == CONTEXT
        for row in own.rows:
            assert named[row.key] == pytest.approx(weight * row.contribution, abs=1e-6)
        assert len(terms.marks.values) == len(terms.marks.spans) == len(split_words(text))


@pytest.mark.parametrize(
    ("kind", "words", "context", "said"),
    [
        (WORD_PAIR, 0.31, 0.59, "The words account for +0.31 of +0.90; the rest is not explained"),
        (SENTENCE, 0.31, 0.59, "The sentences account for"),
        (WORD_PAIR, 0.8, 0.2, None),
        (WORD_PAIR, 0.01, 0.04, None),
    ],
)
def test_a_large_context_is_warned_of_in_every_view(kind, words, context, said):
    rows = [Row("ba × be", ("ba", "be"), words, 0.0, kind=kind), Row("s", ("s",), 0.1, 0.0, kind=SHARED)]
    rows.append(Row("context", ("context",), context, 0.0, kind=CONTEXT))
    why = Explanation.from_terms("encoder", ("ba", "be"), sum(row.contribution for row in rows), rows)
    for shown in (str(why), why.to_html()):
        shown = " ".join(shown.split())
        assert said in shown if said else "the rest is not explained" not in shown


def test_words_of_other_texts_are_credited_with_nothing(shadow):
    """Over the true vectors of two texts, other texts' words have no credit: on average it is context."""
    texts = sentences(80, seed=3)
    vectors = list(word_reasons.unit_vectors(shadow, texts))

    def parts(n, words_of):
        """What words add to the score of texts n and n + 1, and the score less what all texts share."""
        why = shadow.explain_vectors(texts[words_of], vectors[n], texts[words_of + 1], vectors[n + 1])
        words, shared = (sum(r.contribution for r in why.rows if r.kind == kind) for kind in (WORD_PAIR, SHARED))
        return words, why.score - shared

    true, specific = np.array([parts(n, n) for n in range(0, 40, 2)]).T
    credited = np.array([parts(n, n + 40)[0] for n in range(0, 40, 2)])
    assert np.abs(credited).mean() < 0.35 * np.abs(true).mean()
    assert np.corrcoef(true, specific)[0, 1] > 0.8 > abs(np.corrcoef(credited, specific)[0, 1])


def test_words_without_a_vector_have_no_credit_and_are_named(shadow):
    found = shadow.explain("ba Unbekannt be", "bo not xqzv")
    assert not any("Unbekannt" in row.name or "xqzv" in row.name or "not" in row.parts for row in found.rows)
    assert found.unknown_words(1) == ["Unbekannt"] and found.unknown_words(2) == ["xqzv"]
    assert [c.share for c in found.coverage] == pytest.approx([2 / 3, 2 / 3])
    assert shadow.coverage(["ba Unbekannt be", "bo not xqzv"]).tolist() == pytest.approx([2 / 3, 2 / 3])
    assert {row.kind for row in shadow.explain("xqzv wrtk", "zzqx vvkp").rows} == {SHARED, CONTEXT}


def test_an_encoder_that_is_words_is_explained_by_its_words():
    """Where the truth is a table seen through a matrix, the rows are those of the table and little is left."""
    model, contexts, agreements = pellucid.load(Shadow()), [], []
    assert model.fit_reasons(sentences(2000), table=table()).explained > 0.9
    truth = model.model
    vectors = dict(zip(NAMES, truth.table.word_vectors(range(len(NAMES))) @ truth.matrix))
    for one, other in itertools.pairwise(sentences(40, seed=5)):
        found = model.explain(one, other)
        pairs = [(row.contribution, row.parts) for row in found.rows if row.kind == WORD_PAIR]
        first, second = (text.split().count for text in (one, other))
        true = [first(a) * second(b) * float(vectors[a] @ vectors[b]) for _, (a, b) in pairs]
        agreements.append(np.corrcoef([value for value, _ in pairs], true)[0, 1])
        contexts += [row.contribution for row in found.rows if row.kind == CONTEXT]
    assert np.mean(np.abs(contexts)) < 0.1 and np.mean(agreements) > 0.95 and np.min(agreements) > 0.8


def test_reasons_change_no_vector(shadow):
    texts, plain = sentences(5), shadow.with_reasons(None)
    for other in (shadow, plain, copy.deepcopy(shadow), pickle.loads(pickle.dumps(shadow))):
        np.testing.assert_array_equal(other.encode(texts), shadow.model(texts).astype(np.float32))
    assert len(plain.explain("ba be", "bo").rows) == 1 and plain.with_reasons("words").reasons is shadow.reasons


def test_saved_reasons_are_opened_for_their_encoder_alone(shadow, tmp_path):
    assert explained(shadow, tmp_path, {"form": np.eye(24)[:1]}) != shadow.explain("ba")  # the form of a text counts
    shadow.reasons.save_pretrained(tmp_path)
    assert EncoderEmbedder(shadow.model, tmp_path).explain("ba be", "bo") == shadow.explain("ba be", "bo")
    with pytest.raises(ModelFolderError, match=r"another model .*fit_reasons"):
        EncoderEmbedder(lambda texts: np.ones((len(texts), 24)), tmp_path).explain("ba")
    files = [tmp_path / name for name in ("reasons.safetensors", "table/model.safetensors", "config.json")]
    for _ in damages(tmp_path, {"half": LOSSES["half"]}, files):
        with pytest.raises(ModelFolderError):
            EncoderEmbedder(Shadow(noise=0.05), tmp_path).explain("ba")


def fit_with(shadow, folder, field, value):
    """Explain by reasons whose fit, or way, has another value in its file."""
    shadow.reasons.save_pretrained(folder)
    set_entry(folder / "config.json", ("pellucid", *["fit"] * (field != "way"), field), value)
    return EncoderEmbedder(Shadow(noise=0.05), folder).explain("ba")


MAY_BE = [
    ("table", "1"),
    ("texts", 10**400),
    ("texts", -1),
    ("explained", -1),
    ("explained", 0.0),
]  # a table has any name


@pytest.mark.parametrize(("field", "value"), MAY_BE, ids=lambda value: f"{value!s:.9}")
def test_a_fit_may_be_of_any_table_and_explain_nothing(shadow, tmp_path, field, value):
    assert fit_with(shadow, tmp_path, field, value).rows


@pytest.mark.needs("sentence_transformers")
def test_a_folder_of_an_encoder_keeps_its_reasons(tmp_path):
    model = pellucid.load(tiny_transformer(tmp_path / "bert", normalize=False))
    model.fit_reasons(sentences(300), table=table())
    model.save_pretrained(tmp_path / "saved")
    pellucid.load(tmp_path / "saved").with_reasons("words").save_pretrained(tmp_path / "again")  # before they were used
    for folder in ("saved", "again"):
        assert pellucid.load(tmp_path / folder).explain("ba be", "bo") == model.explain("ba be", "bo")
    pellucid.load(tiny_transformer(tmp_path / "bert", normalize=False)).save_pretrained(
        tmp_path / "saved"
    )  # which has none of its own
    assert not (tmp_path / "saved" / "reasons").exists()


def explained(shadow, folder, arrays):
    """Explain by reasons with other arrays, which are saved and opened."""
    broken = copy.copy(shadow.reasons)
    broken.arrays = {**shadow.reasons.arrays, **arrays}
    broken.save_pretrained(folder)
    return EncoderEmbedder(Shadow(noise=0.05), folder).explain("ba")


WIDE = {"common": np.ones(25), "map": np.ones((16, 25)), "form": np.ones((0, 25))}
NO_REASONS = [
    WIDE, {"map": np.ones((3, 24))}, {"map": np.ones(3)}, {"map": np.full((16, 24), 1e300)},
    {"common": np.full(24, np.nan)}, {"form": np.ones((1, 25))}, {"form": np.ones(24)},
    {"form": np.full((1, 24), np.nan)}, {"form": np.full((1, 24), 1e300)},
]  # fmt: skip


test_what_cannot_be_fitted_or_explained_is_refused = refused(
    (lambda: pellucid.load(Shadow()).fit_reasons(sentences(12)), "12 texts are too few"),
    (lambda: pellucid.load(Shadow()).fit_reasons(sentences(300), np.ones((299, 24))), "300 texts"),
    (lambda: pellucid.load(Shadow()).fit_reasons(sentences(300), np.full((300, 24), np.nan)), "NaN"),
    (lambda: pellucid.load(Shadow()).fit_reasons(sentences(300), table="static-en"), "static model"),
    (lambda: pellucid.load(lambda texts: np.random.default_rng().normal(size=(len(texts), 8))).fit_reasons(
        sentences(300)), "not deterministic"),
    (lambda: pellucid.load(Shadow()).with_reasons("letters"), "must be words, sentences, measured, or None"),
    *((lambda shadow, wrong=wrong: shadow.explain_vectors("ba", wrong, "bo", np.ones(24)), message)
      for wrong, message in [
        (np.ones(5), r"shapes \(5,\) and \(24,\)"), (np.full(24, np.nan), "NaN"), ("text", "shapes")]),
    *((lambda shadow, tmp_path, arrays=arrays: explained(shadow, tmp_path, arrays), r"have \(|NaN", ModelFolderError)
      for arrays in NO_REASONS),
    *((lambda shadow, tmp_path, field=field, value=value: fit_with(shadow, tmp_path, field, value),
       r"holds no (whole )?reasons", ModelFolderError)
      for field in ("full_fit", "explained", "texts", "table", "way", "more")
      for value in ("1", None, [1], {}, True, 10**400, 1e300, math.nan, -math.inf, -1, 0.0)
      if not any(field == other and value == allowed and type(value) is type(allowed) for other, allowed in MAY_BE)),
)  # fmt: skip


@pytest.mark.parametrize("width", [4, 1])
def test_an_encoder_that_says_nothing_can_be_asked_all_the_same(width):
    model = pellucid.load(lambda texts: np.ones((len(texts), width)))
    model.fit_reasons(sentences(300), table=table())
    assert model.explain("ba be", "bo bu").score == pytest.approx(1, abs=1e-6)


def test_reasons_are_fitted_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(word_reasons, "open_texts", lambda encoder: (sentences(300), "static-en"))
    encoder = Shadow()

    def fit_and_calls():
        before, reasons = encoder.calls, words_for(pellucid.load(encoder))
        return reasons.fit, encoder.calls - before

    fit, _ = fit_and_calls()
    assert fit_and_calls() == (fit, 1)  # called for its fingerprint
    (kept,) = (tmp_path / "pellucid" / "reasons").iterdir()
    ways = {how: LOSSES[how] for how in ("gone", "half", "noise")}  # the last is seen when it is opened alone
    for _ in damages(kept, ways, [kept / name for name in ("reasons.safetensors", "config.json")]):
        with ignored_warnings(UserWarning):
            assert fit_and_calls()[0] == fit and fit_and_calls() == (fit, 1)  # made again, and kept


def test_an_encoder_of_several_languages_is_fitted_on_several():
    strangers, name = open_texts(pellucid.load(Shadow()))
    assert name == "static-en" and all(text.isascii() or "ä" not in text for text in strangers[:5])
    with lzma.open(word_reasons._BUNDLED / "sentences.tsv.xz", "rt", encoding="utf-8") as file:
        lines = [line.split("\t") for line in file.read().splitlines()]
    pairs = {text: number for number, line in enumerate(lines) for text in (line[0], line[1] or line[0])}

    def meaning(texts):
        return np.array([np.random.default_rng(pairs.get(text, 0)).normal(size=32) for text in texts])

    texts, name = open_texts(pellucid.load(meaning))
    assert name == "static-multi" and len(texts) > len(strangers)


def test_a_text_that_the_encoder_knows_nothing_of_has_no_rows(shadow):
    """A vector of zeros is no sum of anything, least of all of what texts have in common turned round."""
    nothing, vector = np.zeros(24, np.float32), shadow.encode("ba be")
    for model in (shadow, shadow.with_reasons(None)):
        for first, second in ((nothing, vector), (vector, nothing), (nothing, nothing)):
            found = model.explain_vectors("ba be", first, "bo bu", second)
            assert (found.score, found.rows, found.remainder) == (0.0, (), 0.0)
    silent = pellucid.load(lambda texts: np.zeros((len(texts), 24)))
    with pytest.warns(UserWarning, match=r"the words of table explain only 0% .*fit_reasons\(texts, table="):
        assert silent.fit_reasons(sentences(300), table=table()).explained == 0
    assert silent.explain("ba", "be").rows == silent.explain("ba").rows == ()


# --- Directions that say the form of a text: they are common, and no word is credited with them ---

DIRECTION = np.eye(24)[3]


class LongShadow(Shadow):
    """A shadow whose vectors say, too, how long a text is."""

    def __call__(self, texts):
        lengths = np.log([max(len(text), 1) for text in texts])
        return super().__call__(texts) + np.outer(lengths - 3, DIRECTION)


@pytest.fixture(scope="module")
def long_shadow():
    return fitted(LongShadow(noise=0.05))


def held_out(count):
    return np.arange(count) % 8 == 0


def test_the_direction_of_length_is_found_and_no_other():
    texts = sentences()
    plain, long = (shadow(texts) for shadow in (Shadow(noise=0.05), LongShadow(noise=0.05)))
    assert len(form_directions(texts, plain - plain.mean(axis=0), held_out(len(texts)))) == 0
    (direction,) = form_directions(texts, long - long.mean(axis=0), held_out(len(texts)))
    assert abs(direction @ DIRECTION) > 0.9 and direction @ direction == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("count", [200, 600])
@pytest.mark.parametrize("seed", range(3))
def test_chance_and_equal_texts_or_vectors_are_no_form(count, seed):
    rows = np.random.default_rng(seed).normal(size=(count, 24))
    for texts, vectors in ((sentences(count), rows), (["ba"] * count, rows), (sentences(count), 0 * rows)):
        assert len(form_directions(texts, vectors - vectors.mean(axis=0), held_out(count))) == 0


@given(st.text())
def test_the_form_of_any_text_is_finite(text):
    features = text_form(text)
    assert len(features) == 6 and np.isfinite(features).all() and all(0 <= share <= 1 for share in features[1:])


def test_words_of_other_texts_are_not_credited_with_the_length(long_shadow):
    """Long texts of other words than those of the vectors: what they share is that they are long."""
    rng = np.random.default_rng(5)
    texts, sums = [" ".join(rng.permutation(NAMES)[:12]) for _ in range(60)], Counter()
    vectors = long_shadow.encode(texts)
    for n in range(0, 60, 2):
        words = texts[(n + 20) % 60], texts[(n + 31) % 60]
        why = long_shadow.explain_vectors(words[0], vectors[n], words[1], vectors[n + 1])
        for row in why.rows:
            sums[row.kind] += row.contribution
    score = sums.total()  # the rows of a pair add up to its score
    assert sums[SHARED] > 0.9 * score and abs(sums[WORD_PAIR]) < 0.03 * score


# --- Sentences of a passage as rows ---


def encode(texts):
    """Encode words by their hashes, and the order of words a little."""
    rows = np.full((len(texts), 16), 0.5, np.float32)
    for row, text in zip(rows, texts):
        for number, word in enumerate(text.lower().split()):
            row += np.random.default_rng(zlib.crc32(word.strip(".!?").encode())).normal(size=16) / (1 + 0.05 * number)
    return rows


def by_sentences():
    model = EncoderEmbedder(encode)
    return model.with_reasons(SentenceReasons(model, np.full(16, 0.05)))


ABOUT_LOANS = "loans for homes"
FILLER = "Gardens need water and light in every season of the year, whatever grows there now."
OF_SENTENCES = f"{FILLER} Loans for homes are long. The cat sleeps on homes. {FILLER} Roses are red. {FILLER}"

SENTENCES = st.lists(st.sampled_from(["Red roses.", "Homes are dear!", "Why loans?", "A cat.", "Dr. Who."]), max_size=8)


@given(SENTENCES.map(" ".join), SENTENCES.map(" ".join))
@settings(deadline=None)
def test_sentences_and_context_add_up(text1, text2):
    why = by_sentences().explain(text1, text2)
    check_lines(why)
    assert why.exact and {row.kind for row in why.rows} <= {SENTENCE, SHARED, CONTEXT}
    sentences, named = set(sentence_spans(text2)), {span for row in why.rows for span in row.spans2}
    assert named == sentences or (named < sentences and len({text2[slice(*span)] for span in sentences}) == 1)


def test_the_order_is_that_of_the_sentences_alone():
    model = by_sentences()
    why = model.explain(ABOUT_LOANS, OF_SENTENCES)
    rows = [row for row in why.rows if row.kind == SENTENCE]
    assert rows[0].name == "Loans for homes are long." and len(rows) == 4  # the filler is one row, in three places
    assert [len(row.spans2) for row in rows if row.name.startswith("Gardens")] == [3]
    single = [row for row in rows if len(row.spans2) == 1]
    alone = model.similarity(
        model.encode([ABOUT_LOANS]), model.encode([OF_SENTENCES[slice(*row.spans2[0])] for row in single])
    )[0]
    assert int(np.argmax(alone)) == int(np.argmax([row.contribution for row in single]))
    assert why.groups()[0].kind == "sentence" and "Loans for homes are long." in why.summary()


def test_a_text_of_one_sentence_has_one_row_and_no_context():
    why = by_sentences().explain("a cat", "a dog sleeps")
    [row] = [row for row in why.rows if row.kind == SENTENCE]
    assert (row.spans1, row.spans2) == (((0, 5),), ((0, 12),))
    assert sum(row.contribution for row in why.rows if row.kind == CONTEXT) == pytest.approx(0, abs=1e-6)


# --- What holds for reasons of every kind: rows and lines add up, spans lie in the texts, views, summaries ---

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schema.json").read_text("utf-8"))
QUERY = "ba be, the bo"
PASSAGE = " ".join(f"{text}." for text in sentences(12, seed=3))
TEXTS = [
    "ba be bi",
    "",
    " \n\t",
    "bo",
    "Unbekannt xyz",
    "ba ba be ba",
    "1,000 ba-be \U0001f389 <b>bo</b> [red]be",
    "| ba | be |\n|---|---|\n| bi | bo |",
    "ba 日本。 da يد; de not di",
    PASSAGE,
]


@pytest.fixture(scope="module")
def model(request):
    """An encoder of a few words with reasons of one kind; of words also one whose vectors say how long a text is."""
    encoder = pellucid.load((LongShadow if request.param == "form" else Shadow)(noise=0.05))
    encoder.fit_reasons(sentences(300), table=table(), show_progress_bar=False)
    return encoder if request.param == "form" else encoder.with_reasons(request.param)


every_kind = pytest.mark.parametrize("model", [*REASON_KINDS, "form", None], indirect=True, ids=str)


def explanations(model):
    for text in TEXTS:
        yield model.explain(QUERY, text)
        yield model.explain(text, "ba be")
    yield model.explain(TEXTS[0])
    first, second = model.explain(QUERY, TEXTS[0]), model.explain(QUERY, PASSAGE)
    yield first - second
    gap = second - first
    measured = [why.measurement.n_texts for why in (gap, first, second) if why.measurement is not None]
    assert not measured or measured[0] == measured[1] + measured[2]
    yield gap


def check_lines(why):
    """The lines are a partition of the score, of pieces of the texts that do not begin or end inside a word."""
    for k in (1, 3, None):
        lines = why.groups(k)
        assert math.fsum(line.contribution for line in lines) == pytest.approx(why.score, abs=2e-6)
        if abs(why.score) > 1e-3:
            assert math.fsum(line.share for line in lines) == pytest.approx(1, abs=2e-3)
        assert len({(line.name, line.kind, *line[4:7]) for line in lines}) == len(lines)
        for line in lines:
            assert line.name.strip()
            for text, spans in zip((*why.texts, "", ""), line[4:7]):
                for start, end in spans:
                    assert 0 <= start < end <= len(text) and text[start:end].strip()
                    assert not re.search(r"[a-z]\x00[a-z]", f"{text[:start]}\x00{text[start:end]}\x00{text[end:]}")


def check_summary(why):
    """It has no empty place, says the score, and no number that is not in the lines."""
    summary = re.sub(r'"[^"]*"', "Q", why.summary())
    lines = why.groups()
    assert summary.endswith(".") and "  " not in summary and "\n" not in summary and "nan" not in summary
    assert set(re.findall(r"\d+%(?! of unrelated)", summary)) <= {f"{abs(line.share):.0%}" for line in lines} | {"10%"}
    by = {float(size) for size in re.findall(r"(?:lowers?|raises?) it by (\d\.\d+)", summary)}
    assert all(any(abs(abs(line.contribution) - size) < 0.0051 for line in lines) for size in by)


@every_kind
def test_reasons_of_every_kind_add_up_and_can_be_read(model):
    validator = pytest.importorskip("jsonschema").validators.validator_for(SCHEMA)(SCHEMA)
    for why in explanations(model):
        check_lines(why)
        check_summary(why)
        record = json.loads(why.to_json())
        assert len(why.rows) > 60 or not list(validator.iter_errors(record))
        assert record == why.to_dict() and record["summary"] == why.summary()
        assert pickle.loads(pickle.dumps(why)).groups() == why.groups()  # checked, as they were read
        assert "<b>bo" not in why.to_html(fragment=True) and "\x1b" not in why.to_text(width=40, rows=True)


KINDS = {
    WordReasons: {WORD, WORD_PAIR, SHARED, CONTEXT},
    MeasuredReasons: {WORD, WORD_PAIR, SHARED},
    SentenceReasons: {SENTENCE, SHARED, CONTEXT},
    type(None): {EMBEDDING},
}


@every_kind
@given(WORDS, WORDS)
def test_rows_of_every_kind_add_up_to_the_encoders_own_cosine(model, one, other):
    first, second = (row.astype(np.float64) for row in model.encode([one, other]))
    cosine = first @ second / (np.linalg.norm(first) * np.linalg.norm(second))
    why, alone, kinds = model.explain(one, other), model.explain(one), KINDS[type(model.reasons)]
    for found, score, others in ((why, cosine, {WORD}), (alone, 1.0, {WORD_PAIR})):
        assert found.score == pytest.approx(score, abs=1e-6) and {row.kind for row in found.rows} <= kinds - others
        assert math.fsum(row.contribution for row in found.rows) == pytest.approx(score, abs=1e-6)


@every_kind
def test_the_same_texts_have_the_same_reasons_in_copies_and_threads(model):
    why = model.explain(QUERY, TEXTS[6])
    with ThreadPoolExecutor(4) as pool:
        for other in pool.map(lambda _: model.with_reasons(model._reasons).explain(QUERY, TEXTS[6]), range(4)):
            assert other.to_dict() == why.to_dict()
    assert model.explain(QUERY, TEXTS[6]).to_dict() == why.to_dict()


@every_kind
def test_hits_have_the_score_and_reasons_of_every_kind(model, tmp_path):
    with pellucid.Index.create(tmp_path / "index", {"dense": model}) as index:
        texts = [text for text in TEXTS if text.strip()]
        index.add(texts, ids=[str(n) for n in range(len(texts))])
        hits = index.search("ba be bo", top_k=3)
        for why in (*(hit.explain() for hit in hits), hits[0].measured(), hits.why(1), hits.why(1, 3)):
            check_lines(why)
            check_summary(why)
            assert json.loads(why.to_json()) == why.to_dict()
        assert hits[0].measured().score == pytest.approx(hits[0].score, abs=1e-5)
