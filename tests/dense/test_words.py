"""Word reasons: what they add up to, what they find where the truth is known, how they are kept, whom they refuse."""

import copy
import itertools
import json
import lzma
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from pellucid.dense import words as word_reasons
from pellucid.dense.embedder import EncoderEmbedder
from pellucid.dense.words import open_texts, words_for
from pellucid.errors import ModelFolderError
from pellucid.explain.explanation import Explanation
from pellucid.explain.rows import CONTEXT, SENTENCE, SHARED, WORD, WORD_PAIR, Row
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary, split_words
from refusals import check_refused, refused
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


@pytest.fixture(scope="module")
def shadow():
    model = pellucid.load(Shadow(noise=0.05))
    model.fit_reasons(sentences(), table=table())
    return model


@given(WORDS, WORDS)
def test_words_context_and_common_add_up_to_the_encoders_own_cosine(shadow, one, other):
    found = shadow.explain(one, other)
    first, second = (row.astype(np.float64) for row in shadow.encode([one, other]))
    assert found.score == pytest.approx(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)), abs=1e-6)
    assert sum(row.contribution for row in found.rows) + found.remainder == pytest.approx(found.score, abs=1e-12)
    assert {row.kind for row in found.rows} <= {WORD_PAIR, SHARED, CONTEXT}
    assert found.remainder == pytest.approx(0, abs=1e-6)
    alone = shadow.explain(one)
    assert alone.score == pytest.approx(1.0, abs=1e-6)
    assert {row.kind for row in alone.rows} <= {WORD, SHARED, CONTEXT}


@given(WORDS, st.lists(WORDS, min_size=1, max_size=4), st.floats(0.1, 3.0))
def test_stored_vectors_give_the_rows_of_explain_times_the_weight(shadow, query, texts, weight):
    rows = word_reasons.unit_vectors(shadow, texts, role="document")
    terms_of = shadow.analyze_texts([query], ["query"])[0].against(texts, rows, weight=weight)
    for number, text in enumerate(texts):
        own = shadow.explain(query, text, role1="query", role2="document")
        terms = terms_of(number)
        assert terms.values.sum() == pytest.approx(weight * own.score, abs=1e-6)
        named = {terms.row(n).key: value for n, value in enumerate(terms.values.tolist())}
        assert terms.row(len(terms.values) - 1).kind == CONTEXT
        for row in own.rows:
            assert named[row.key] == pytest.approx(weight * row.contribution, abs=1e-6)
        assert len(terms.marks.values) == len(terms.marks.spans) == len(text_words(text))


def text_words(text):
    return [word.text for word in split_words(text)]


def test_a_large_context_is_warned_of_in_every_view():
    pair, shared = Row("ba × be", ("ba", "be"), 0.31, 0.0, kind=WORD_PAIR), Row("s", ("s",), 0.1, 0.0, kind=SHARED)
    little = Explanation.from_terms(
        "encoder", ("ba", "be"), 1.0, [pair, shared, Row("context", ("context",), 0.59, 0.0, kind=CONTEXT)]
    )
    for shown in (str(little), little.to_html()):
        assert "The words account for +0.31 of +0.90; the rest is not explained" in " ".join(shown.split())
    sentence = [pair._replace(kind=SENTENCE), Row("context", ("context",), 0.59, 0.0, kind=CONTEXT)]
    assert "The sentences account for" in str(Explanation.from_terms("encoder", ("ba", "be"), 0.9, sentence))
    large = [pair._replace(contribution=0.8), Row("context", ("context",), 0.2, 0.0, kind=CONTEXT)]
    assert "the rest is not explained" not in str(Explanation.from_terms("encoder", ("ba", "be"), 1.0, large))
    small = [pair._replace(contribution=0.01), Row("context", ("context",), 0.04, 0.0, kind=CONTEXT)]
    assert "the rest is not explained" not in str(Explanation.from_terms("encoder", ("ba", "be"), 0.05, small))


def test_words_of_other_texts_are_credited_with_nothing(shadow):
    """Over the true vectors of two texts, other texts' words have no credit: on average it is context."""
    texts = sentences(80, seed=3)
    vectors = list(word_reasons.unit_vectors(shadow, texts))

    def parts(n, words_of):
        """What words add to the score of texts n and n + 1, and the score less what all texts share."""
        why = shadow.explain_vectors(texts[words_of], vectors[n], texts[words_of + 1], vectors[n + 1])
        sums = {kind: sum(r.contribution for r in why.rows if r.kind == kind) for kind in (WORD_PAIR, SHARED)}
        return sums[WORD_PAIR], why.score - sums[SHARED]

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
    model = pellucid.load(Shadow())
    assert model.fit_reasons(sentences(2000), table=table()).explained > 0.9
    truth, contexts, agreements = model.model, [], []
    for one, other in itertools.pairwise(sentences(40, seed=5)):
        found = model.explain(one, other)
        vectors = {w: truth.table.word_vectors([truth.table.vocabulary.row(w)])[0] @ truth.matrix for w in NAMES}
        pairs = [(row.contribution, row.parts) for row in found.rows if row.kind == WORD_PAIR]
        counts = [text.split().count for text in (one, other)]
        true = [counts[0](a) * counts[1](b) * float(vectors[a] @ vectors[b]) for _, (a, b) in pairs]
        agreements.append(np.corrcoef([value for value, _ in pairs], true)[0, 1])
        contexts.append(next(row.contribution for row in found.rows if row.kind == CONTEXT))
    assert np.mean(np.abs(contexts)) < 0.1 and np.mean(agreements) > 0.95 and np.min(agreements) > 0.8


def test_vectors_kept_elsewhere_are_explained_without_the_encoder(shadow):
    query, text = "ba be bi", "bo bu ca ba"
    first, second = shadow.encode([query, text])
    calls = shadow.model.calls
    found = shadow.explain_vectors(query, 3 * first, text, second.tolist())
    assert shadow.model.calls == calls
    own = shadow.explain(query, text, role1="query", role2="document")
    assert found.score == pytest.approx(own.score, abs=1e-6)
    np.testing.assert_allclose(found.contributions, own.contributions, atol=1e-6)


def test_reasons_change_no_vector(shadow):
    texts = sentences(5)
    np.testing.assert_array_equal(shadow.encode(texts), shadow.model(texts).astype(np.float32))
    for other in (shadow.with_reasons(None), copy.deepcopy(shadow), pickle.loads(pickle.dumps(shadow))):
        np.testing.assert_array_equal(other.encode(texts), shadow.encode(texts))
    assert len(shadow.with_reasons(None).explain("ba be", "bo").rows) == 1
    assert shadow.with_reasons(None).with_reasons("words").reasons is shadow.reasons


def test_saved_reasons_are_opened_for_their_encoder_alone(shadow, tmp_path):
    shadow.reasons.save_pretrained(tmp_path / "reasons")
    again = EncoderEmbedder(Shadow(noise=0.05), tmp_path / "reasons")
    assert again.explain("ba be", "bo") == shadow.explain("ba be", "bo")
    with pytest.raises(ModelFolderError, match=r"another model .*fit_reasons"):
        EncoderEmbedder(lambda texts: np.ones((len(texts), 24)), tmp_path / "reasons").explain("ba")
    for name in ("reasons.safetensors", "table/model.safetensors", "config.json"):
        path = tmp_path / "reasons" / name
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(ModelFolderError):
            EncoderEmbedder(Shadow(noise=0.05), tmp_path / "reasons").explain("ba")
        path.write_bytes(content)


@pytest.mark.parametrize("field", ["full_fit", "explained", "texts", "table", "way", "more"])
@pytest.mark.parametrize("value", ["1", None, [1], {}, True, 10**400, 1e300, float("nan"), float("-inf"), -1, 0.0])
def test_a_fit_that_was_none_is_refused(shadow, tmp_path, field, value):
    folder = tmp_path / "reasons"
    shadow.reasons.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (config["pellucid"] if field == "way" else config["pellucid"]["fit"])[field] = value
    (folder / "config.json").write_text(json.dumps(config))
    again = EncoderEmbedder(Shadow(noise=0.05), folder)
    may_be = {"table": value == "1", "texts": type(value) is int}  # a folder's table may have any name
    if may_be.get(field, field == "explained" and value in (-1, 0.0)):
        assert again.explain("ba").rows
        return
    with pytest.raises(ModelFolderError, match=r"holds no (whole )?reasons"):
        again.explain("ba")


def test_a_folder_of_an_encoder_keeps_its_reasons(tmp_path):
    pytest.importorskip("sentence_transformers")
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
NO_VECTORS = [(np.ones(5), r"shapes \(5,\) and \(24,\)"), (np.full(24, np.nan), "NaN"), ("text", "shapes")]


@pytest.fixture
def unfitted():
    return pellucid.load(Shadow())


def of_chance(texts):
    return np.random.default_rng().normal(size=(len(texts), 8))


@refused(
    (lambda unfitted: unfitted.fit_reasons(sentences(12)), "12 texts are too few"),
    (lambda unfitted: unfitted.fit_reasons(sentences(300), np.ones((299, 24))), "300 texts"),
    (lambda unfitted: unfitted.fit_reasons(sentences(300), np.full((300, 24), np.nan)), "NaN"),
    (lambda unfitted: unfitted.fit_reasons(sentences(300), table="static-en"), "static model"),
    (lambda: pellucid.load(of_chance).fit_reasons(sentences(300)), "not deterministic"),
    (lambda unfitted: unfitted.with_reasons("letters"), "must be words, sentences, measured, or None"),
    *((lambda shadow, wrong=wrong: shadow.explain_vectors("ba", wrong, "bo", np.ones(24)), message)
      for wrong, message in NO_VECTORS),
    *((lambda shadow, tmp_path, arrays=arrays: explained(shadow, tmp_path, arrays), r"have \(|NaN", ModelFolderError)
      for arrays in NO_REASONS),
)  # fmt: skip
def test_what_cannot_be_fitted_or_explained_is_refused(call, message, error, request):
    check_refused(request, call, message, error)


@pytest.mark.parametrize("give", [lambda n: np.zeros((n, 4)), lambda n: np.ones((n, 4)), lambda n: np.ones((n, 1))])
def test_an_encoder_that_says_nothing_can_be_asked_all_the_same(give):
    model = pellucid.load(lambda texts: give(len(texts)))
    model.fit_reasons(sentences(300), table=table())
    found = model.explain("ba be", "bo bu")
    assert sum(row.contribution for row in found.rows) + found.remainder == pytest.approx(found.score, abs=1e-9)


def test_reasons_are_fitted_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(word_reasons, "open_texts", lambda encoder: (sentences(300), "static-en"))
    encoder = Shadow()
    first = words_for(pellucid.load(encoder))
    calls = encoder.calls
    again = words_for(pellucid.load(encoder))
    assert encoder.calls == calls + 1  # for its fingerprint
    np.testing.assert_array_equal(first.common, again.common)
    (kept,) = (tmp_path / "pellucid" / "reasons").iterdir()
    (kept / "config.json").write_text("{")  # what is not whole is made again
    assert words_for(pellucid.load(encoder)).fit == first.fit
    calls = encoder.calls
    assert words_for(pellucid.load(encoder)).fit == first.fit and encoder.calls == calls + 1
    for name in ("reasons.safetensors", "config.json"):  # damaged in a way that only opening it shows
        content = bytearray((kept / name).read_bytes())
        content[-len(content) // 3] ^= 1
        (kept / name).write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            assert words_for(pellucid.load(encoder)).fit == first.fit
    assert words_for(pellucid.load(encoder)).fit == first.fit


def test_an_encoder_of_several_languages_is_fitted_on_several():
    strangers, name = open_texts(pellucid.load(Shadow()))
    assert name == "static-en"
    assert all(text.isascii() or "ä" not in text for text in strangers[:5])
    pairs = {}
    with lzma.open(word_reasons._BUNDLED / "sentences.tsv.xz", "rt", encoding="utf-8") as file:
        for number, line in enumerate(file.read().splitlines()):
            text, translation = line.split("\t")
            pairs[text] = pairs[translation or text] = number

    def meaning(texts):
        return np.array([np.random.default_rng(pairs.get(text, 0)).normal(size=32) for text in texts])

    texts, name = open_texts(pellucid.load(meaning))
    assert name == "static-multi"
    assert len(texts) > len(strangers)


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
