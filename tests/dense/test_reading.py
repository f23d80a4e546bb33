"""What an encoder reads of a text, how often it is asked and by whom at once; reasons measured by leaving words out."""

import collections
import itertools
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

import pellucid
from memory import peak_of
from pellucid import EnsembleEmbedder, Index
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.core.removal import (
    EMPTY_PASSAGE,
    MAX_EXACT_PLAYERS,
    MAX_VARIANTS,
    Passage,
    coalitions,
    fewest_removals,
    passage_terms,
    players_of,
    without,
)
from pellucid.dense.embedder import EncoderEmbedder
from pellucid.dense.measured import MeasuredReasons
from pellucid.dense.tokenized import TokenizedText, text_units, tokenize_texts, word_units, words_outside
from pellucid.dense.words import WordReasons
from pellucid.explain.rows import EMBEDDING, REMAINDER, WORD_PAIR
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.unicode import normalize
from pellucid.text.words import Vocabulary, split_words
from refusals import refused
from tiny_models import tiny_transformer

READ = "the cat sat on a mat bank loan river".split()
UNREAD = ["\u202e", "\u0b2d\u0b32", "\ua66e\ua66e", "\U0001f99c", "zzz"]  # dropped, or of signs that no piece has
QUERY = "boats with music"
DOCUMENTS = [f"document {n} about {word}" for n, word in enumerate("cats dogs boats bridges music food law".split())]


class Counting:
    """A function whose vectors are those of a small table, which notes the texts that it is called with."""

    def __init__(self):
        self.table = table_of(sorted({word for text in [QUERY, *DOCUMENTS] for word in text.split()}), seed=3)
        self.texts = []

    def __call__(self, texts):
        self.texts += texts
        return self.table.encode(texts) + 0.1

    def taken(self):
        """Return how often each text was encoded since the last time."""
        counts = collections.Counter(self.texts)
        self.texts = []
        return counts


@pytest.fixture
def function():
    return Counting()


def texts_of(words, length=6, seed=1):
    """Texts to fit reasons on."""
    chance = np.random.default_rng(seed)
    return [" ".join(chance.choice(words, length)) for _ in range(250)]


def table_of(words, seed=0):
    vectors = np.random.default_rng(seed).normal(size=(len(words), 8)).astype(np.float32)
    return StaticEmbedder(Vocabulary(words), vectors)


def fitted(function):
    """Return the function as a model with word reasons."""
    model = pellucid.load(function)
    model.fit_reasons(texts_of(function.table.vocabulary.words), table=function.table)
    function.taken()
    return model


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    return tiny_transformer(tmp_path_factory.mktemp("tiny") / "bert", normalize=True)


@pytest.fixture(scope="module")
def encoder(transformer):
    model = pellucid.load(transformer)
    model.fit_reasons(texts_of(READ), table=table_of([*READ, *UNREAD]))
    return model


# --- What is read ---


@pytest.mark.filterwarnings("ignore")
@given(st.lists(st.sampled_from([*READ, *UNREAD, "!"]), min_size=1, max_size=9))
def test_words_without_a_token_of_their_own_are_unknown_and_have_no_row(encoder, parts):
    text = " ".join(parts)
    why = encoder.explain(text, "the river")
    words = [part for part in parts if part != "!" and normalize(part).text]  # nobody sees a mark of direction
    known = [word for word in words if word in READ]
    assert {row.parts[0] for row in why.rows if row.kind == WORD_PAIR} == set(known)
    assert set(why.unknown_words()) == {word for word in words if word not in READ}
    share = len(known) / len(words) if words else 1.0
    assert (why.coverage[0].share, encoder.coverage(text)) == (pytest.approx(share), pytest.approx(share))


def test_what_is_cut_has_no_row_and_the_prompt_takes_its_room(encoder):
    text = "cat \ua66e " + "the " * 28 + "bank loan"
    for role, room in ((None, 30), ("query", 28)):
        (read,) = encoder.tokenized([text], role)
        assert read.end == len(" ".join(text.split()[:room])) and read.unread == ((4, 5),)
        assert len(read.visible) == read.end and read.visible.startswith("cat . the")
    named = {row.parts[0] for row in encoder.explain(text, "river").rows}
    assert {"cat", "the"} <= named and not named & {"bank", "loan", "\ua66e"}
    assert encoder.tokenized(["the cat"], None) == [TokenizedText("the cat", 7)]


def test_of_a_word_in_a_script_without_spaces_the_part_that_is_read_counts():
    assert list(word_units("xyzab東京cd", 3, 9)) == [(3, 5), (5, 6), (6, 7), (7, 9)]
    coverage, unknown = TokenizedText("東京都 bank", 8, ((1, 2), (2, 3))).coverage
    assert (coverage.known, coverage.total, coverage.partly) == (2, 2, 1)
    assert coverage.share == pytest.approx((1 / 3 + 1) / 2) and unknown == ((1, 2), (2, 3))
    assert coverage.read_as == (("東京都", "東"),)


def test_a_token_that_is_a_blank_reads_no_word():
    """SentencePiece writes an unknown sign as a blank and the unknown token, both standing where the sign does."""
    transformers = pytest.importorskip("transformers")
    pieces = [("<unk>", 0.0), ("\u2581", -2.0), *((f"\u2581{word}", -1.0) for word in READ), ("a", -3.0)]
    backend = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    encoder = MagicMock(spec_set=["tokenizer", "max_seq_length", "prompts", "default_prompt_name", "__getitem__"])
    encoder.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    encoder.max_seq_length, encoder.prompts, encoder.default_prompt_name = 32, {}, None
    encoder[0].do_lower_case = False
    (read,) = tokenize_texts(encoder, ["cat \ua66e mat"], None)
    assert read.unread == ((4, 5),) and read.coverage[0].known == 2


# --- How often it is asked ---


def test_an_explanation_encodes_each_text_once(function):
    model = fitted(function)
    anchors = AnchorEmbedder(function, DOCUMENTS[:3])
    for asked in (model, EnsembleEmbedder([function.table, model]), anchors, EnsembleEmbedder([anchors, anchors])):
        function.taken()
        asked.explain(QUERY, DOCUMENTS[0], role1="query", role2="document")
        counts = function.taken()
        n_parts = 2 if len(set(getattr(asked, "names", ["one"]))) == 2 and asked.parts[0].model is anchors else 1
        assert counts == {QUERY: n_parts, DOCUMENTS[0]: n_parts}


PLACED = {
    "encoder": lambda model, plain: model,
    "ensemble": lambda model, plain: plain,
    "sparse ensemble": lambda model, plain: EnsembleEmbedder([pellucid.load("lexicon-en"), model]),
    "nested ensemble": lambda model, plain: EnsembleEmbedder({"inner": plain, "words": plain.parts[0].model}),
    "anchors": lambda model, plain: AnchorEmbedder(model.model, DOCUMENTS[:4]),
}


@pytest.mark.needs("Stemmer")
@pytest.mark.parametrize("kind", PLACED)
def test_a_search_encodes_the_query_once_and_its_reasons_nothing(tmp_path, function, kind):
    model, asked = fitted(function), []
    indexed = PLACED[kind](model, EnsembleEmbedder({"words": function.table, "dense": model}, [1, 3]))
    with Index.create(tmp_path / "index", {"dense": indexed}, bm25=False) as index:
        index.add(DOCUMENTS)
        function.taken()
        hits = index.search(QUERY, 7)
        assert function.taken() == {QUERY: 1}
        whys = [hit.explain() for hit in hits]
        hits.why(1, 2), str(hits), hits.to_json()
        assert function.taken() == {}
        for hit, why in zip(hits, whys):
            own = indexed.explain(QUERY, hit.text, role1="query", role2="document")
            assert [own.score, sum(row.contribution for row in why.rows)] == pytest.approx([hit.score] * 2, abs=1e-6)
            values = [{row.name: row.contribution for row in each.rows if row.kind != REMAINDER} for each in (why, own)]
            assert kind == "anchors" or values[0] == pytest.approx(values[1], abs=1e-5)
        function.taken()
        index.search(QUERY, 3, rerank=lambda query, texts: asked.extend(texts) or [0.5] * len(texts))
        assert function.taken() == {QUERY: 1} and sorted(asked) == sorted(DOCUMENTS)


@pytest.mark.needs("Stemmer")
def test_an_index_encodes_what_is_new_alone(tmp_path, function):
    model = EnsembleEmbedder({"words": function.table, "dense": function})
    with Index.create(tmp_path / "index", {"dense": model}) as index:
        assert max(function.taken().values()) == 3  # texts by which it is known
        index.add(DOCUMENTS, ids=[f"d{n}" for n in range(len(DOCUMENTS))])
        assert function.taken() == dict.fromkeys(DOCUMENTS, 1)
        before, said = index.score(QUERY, "d1").parts, index.info()["models"]
        for change, encoded in (({"metadata": {"year": 2024}}, {}), ({"text": "bridges"}, {"bridges": 1})):
            function.taken()
            index.update("d1", **change)
            assert function.taken() == encoded and (index.score(QUERY, "d1").parts == before) == ("metadata" in change)
        assert index.search(QUERY, where={"year": 2024})[0].id == "d1" and index.verify() == []
    with Index.open(tmp_path / "index", {"dense": model}) as index:
        assert index.info()["models"] == said


# --- A function is not called unasked ---


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder of kept reasons that is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def unasked(function, call):
    """Call with a function as a model, and check that it was not called itself."""
    try:
        call(pellucid.load(function))
    finally:
        assert function.taken() == {}


test_a_function_is_not_called_unasked_and_rows_are_not_too_many = pytest.mark.usefixtures("cache")(
    refused(
        *((lambda function, call=call: unasked(function, call),
           r"more than 4,000 short texts.*fit=True.*with_reasons\(None\)") for call in (
            lambda model: model.explain(QUERY, DOCUMENTS[0]),
            lambda model: model.explain(QUERY),
            lambda model: model.explain_vectors(QUERY, [1.0], DOCUMENTS[0], [1.0]),
            lambda model: model.describe(QUERY),
            lambda model: model.reasons,
            lambda model: model.with_reasons(None).with_reasons("words").reasons,
        )),
        (lambda wide: wide.explain(" ".join(VOCABULARY), " ".join(VOCABULARY[:100])),
         r"8,000 x 100 distinct words .* explain shorter passages"),
    )
)  # fmt: skip


@pytest.mark.usefixtures("cache")
def test_a_function_is_called_for_reasons_where_that_is_allowed(tmp_path, function):
    model = pellucid.load(function)
    assert model.with_reasons(None).explain(QUERY, DOCUMENTS[0]).rows[0].kind == EMBEDDING
    mixed = EnsembleEmbedder({"words": function.table, "dense": model})
    assert {row.kind for row in mixed.explain(QUERY, DOCUMENTS[0]).rows} == {EMBEDDING, WORD_PAIR}
    pellucid.compare({"mixed": mixed, "plain": model}, [(QUERY, DOCUMENTS[0])])
    function.taken()
    for least, most in ((241, 4_100), (8, 8)):  # it is known again by 8 texts
        kept = pellucid.load(function, fit=True).reasons
        assert isinstance(kept, WordReasons) and least <= sum(function.taken().values()) <= most
    kept.save_pretrained(tmp_path / "reasons")
    assert model.with_reasons(tmp_path / "reasons").explain(QUERY, DOCUMENTS[0]).rows


# --- A long text, and many threads ---


VOCABULARY = [f"w{number}" for number in range(8_000)]


@pytest.fixture(scope="module")
def wide():
    table = table_of(VOCABULARY)
    model = pellucid.load(table.encode)
    model.fit_reasons(texts_of(VOCABULARY, 9, seed=0), table=table)
    return model


def test_reasons_of_a_long_text_take_memory_by_its_words(wide):
    assert len(wide.explain(" ".join(VOCABULARY), "w1").rows) == 8_002
    few, many = (peak_of(lambda n=n: wide.explain(" ".join(VOCABULARY[:n]), "w1")) for n in (2_000, 8_000))
    assert many < 6 * few


@pytest.fixture
def busy():
    """Threads take turns a hundred thousand times a second."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("busy")
def test_threads_use_an_encoder_at_once(transformer):
    """Long work, short work and readings of the tokenizer disturb none of the others, and give the same vectors."""
    model, chance = pellucid.load(transformer), np.random.default_rng(0)
    texts = [" ".join(chance.choice(READ, chance.integers(1, 200))) for _ in range(280)]
    expected = model.encode(texts)
    np.testing.assert_array_equal(expected, transformer.encode(texts, show_progress_bar=False))  # bit for bit

    def encode(count):
        np.testing.assert_allclose(model.encode(texts[:count]), expected[:count], atol=1e-5)

    def read():
        for number in range(60):
            model.coverage(texts[number])
            encode(2)

    with ThreadPoolExecutor(4) as pool:
        for done in [*(pool.submit(encode, 280) for _ in range(4)), *(pool.submit(read) for _ in range(2))]:
            done.result()


@given(st.text("ab .\n\t\u00a0\x1c\u3000日é", max_size=30), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6))))
def test_words_outside_tokens_are_those_that_no_span_touches(text, pieces):
    spans = [(start, min(start + length, len(text))) for start, length in pieces if start + min(length, 1) <= len(text)]
    inside = {position for span in spans for position in range(*span)}
    expected = tuple(unit for unit in text_units(text) if inside.isdisjoint(range(*unit)))
    assert words_outside(spans, text) == expected and words_outside(sorted(spans), text) == expected


D = 12


class Tangled:
    """An encoder in which words act on each other: each vector is turned by the word before it."""

    def __init__(self):
        self.calls = []

    def __call__(self, texts):
        self.calls.append(list(texts))
        return np.array([self.vector(text) for text in texts])

    def vector(self, text):
        total, before = np.full(D, 0.3), 0
        for word in split_words(text):
            number = sum(map(ord, word.text.lower()))
            total = total + np.roll(np.random.default_rng(number).normal(size=D), before % D)
            before = number
        return total


def measured(function=None):
    """A model whose mean of texts is known, so that nothing is encoded for it."""
    model = pellucid.load(function or Tangled())
    return model.with_reasons(MeasuredReasons(EncoderEmbedder(model.model), np.linspace(-0.1, 0.2, D)))


def brute_force(value, n):
    """Shapley values by going through every order."""
    total = np.zeros((n, *np.shape(value(()))))
    for order in itertools.permutations(range(n)):
        for k, player in enumerate(order):
            total[player] += value(tuple(sorted(order[: k + 1]))) - value(tuple(sorted(order[:k])))
    return total / math.factorial(n)


@given(st.integers(0, 9), st.integers(2, 4), st.integers(0, 99))
def test_values_add_up_and_of_few_players_are_those_of_all_orders(n, n_pairs, seed):
    sets = coalitions(n, n_pairs, seed)
    assert not sets.members[0].any() and sets.members[-1 if n == 0 else 1].all()
    assert len({row.tobytes() for row in sets.members}) == len(sets.members) <= max(2**5, 2 * n_pairs * (n - 1) + 2)
    of_sets = np.random.default_rng(seed).normal(size=(len(sets.members), 3))
    values, estimates = sets.values(of_sets)
    assert values.sum(axis=0) == pytest.approx(of_sets[1] - of_sets[0] if n else np.zeros(3))
    assert np.allclose(estimates.sum(axis=1), values.sum(axis=0))
    if n <= MAX_EXACT_PLAYERS:
        known = {tuple(np.flatnonzero(row).tolist()): value for row, value in zip(sets.members, of_sets)}
        assert np.allclose(values, brute_force(known.__getitem__, n)) and len(estimates) == 1


@given(st.integers(6, 9), st.integers(0, 99))
def test_what_words_add_by_themselves_is_found_exactly(n, seed):
    own = np.random.default_rng(seed).normal(size=n)
    sets = coalitions(n, 2, seed)
    values, estimates = sets.values(sets.members @ own + 2.0)
    assert np.allclose(values, own) and np.allclose(estimates, own)


def passage(text, score):
    words = [(word.start, word.end) for word in split_words(text)]
    return Passage(text, words, score(text), lambda texts: np.array([score(one) for one in texts]))


def test_a_game_of_two_words_by_hand():
    """Either word alone gives 1, both give 0, none gives 0.25: each gets half of what both lower it by."""
    terms = passage_terms(passage("left right", lambda text: {0: 0.25, 1: 1.0, 2: 0.0}[len(text.split())]))
    rows = [terms.row(n) for n in range(3)]
    assert [(row.name, row.spans2) for row in rows] == [
        ("left", ((0, 4),)), ("right", ((5, 10),)), (EMPTY_PASSAGE, ()),
    ]  # fmt: skip
    assert (terms.values, terms.measurement) == (pytest.approx([-0.125, -0.125, 0.25]), (3, 0.0))


def test_few_words_get_what_all_orders_of_both_texts_give():
    model = measured()
    one, other = "dog bites man", "the man runs home"
    why, common = model.explain(one, other), model.reasons.common

    def shapley(words):
        def value(members):
            vector = model.model.vector(" ".join(words[n] for n in members))
            return vector / np.linalg.norm(vector) if members else common

        return dict(zip(words, brute_force(value, len(words))))

    first, second = shapley(one.split()), shapley(other.split())
    found = {row.parts: row.contribution for row in why.rows if row.kind == WORD_PAIR}
    assert found == pytest.approx({(a, b): first[a] @ second[b] for a in first for b in second}, abs=1e-6)
    assert why.measurement is not None and why.measurement.standard_error == 0


def test_the_standard_error_is_the_spread_of_other_draws():
    one, other = "dog bites man in the house not far", "the man runs home to his old dog again"
    reasons, values, errors = measured().reasons, [], []
    first, second = reasons.encoder.encode([one, other], normalize_embeddings=True).astype(np.float64)
    whole = second - reasons.common
    for n in range(60):  # other blanks, other orders
        parts = reasons.parts(one + " " * n, None, first)
        values.append(parts.vectors @ whole)
        errors.append(reasons.measurement(parts, whole).standard_error)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.sqrt(np.mean(np.var(values, axis=0))), rel=0.25)


def test_the_variants_of_a_text_are_encoded_together_each_once_and_their_number_is_said():
    encoder = Tangled()
    model = measured(encoder)
    one, other = "one two three four five six seven", "other words"
    why = model.explain(one, other)
    calls = [call for call in encoder.calls if len(call) > 1]  # the others encode the texts themselves
    assert [len(call) for call in calls] == [len(set(call)) for call in calls] and len(calls) == 2
    n_texts = sum(map(len, calls))
    assert why.measurement is not None and why.measurement.n_texts == n_texts <= 2 * 3 * 6 + 1 + 3
    for shown in (str(why), why.to_html()):
        assert f"{n_texts} texts read" in " ".join(shown.split())
    assert len(encoder.calls[4]) <= 12 and set(map(len, encoder.calls[5:])) == {60}  # checked, among others; once


def test_a_function_is_asked_for_some_hundred_sentences_at_most():
    encoder = Tangled()
    model = pellucid.load(encoder).with_reasons("measured")
    model.explain("dog bites man", "man bites dog")
    first = sum(map(len, encoder.calls))
    assert first < 1_000
    model.explain("dog bites man", "man bites cat")
    model.with_reasons(None).with_reasons("measured").explain("dog bites man", "man bites cow")
    assert sum(map(len, encoder.calls)) - first <= 4 * 8


@given(st.integers(0, 400), st.sampled_from([". ", ", ", " ", "\n", "。"]), st.integers(1, 30))
def test_long_texts_are_left_out_in_a_bounded_number_of_phrases(n_words, mark, most):
    text = "".join(f"word{n}{mark if n % 7 == 6 else ' '}" for n in range(n_words))
    words = [(word.start, word.end) for word in split_words(text)]
    players = players_of(text, words, most)
    assert len(players) <= most and [span for player in players for span in player] == words


def test_a_long_text_takes_a_bounded_number_of_texts():
    encoder = Tangled()
    measured(encoder).explain(" ".join(f"Sentence {n} is about thing {n} here." for n in range(40)), "thing")
    assert len(encoder.calls[0]) <= MAX_VARIANTS + 1


@given(st.lists(st.sampled_from(["ab", "c", "déf", " ", ",", "\n", "."]), max_size=12).map("".join), st.randoms())
def test_a_text_without_words_keeps_the_others(text, random):
    words = [(word.start, word.end) for word in split_words(text)]
    gone = [span for span in words if random.random() < 0.5]
    left = without(text, gone)
    assert without(text, []) == text
    kept = "".join(text[a:b] for a, b in words if (a, b) not in gone)
    assert "".join(word.text for word in split_words(left)) == kept and len(left) <= len(text)


GAMES = st.lists(st.floats(-1, 1).map(lambda value: round(value, 3)), min_size=2, max_size=9)


@given(GAMES, st.floats(0.05, 0.95))
@example([0.0, 0.5, -0.25, 0.125, 0.0, -1.0], 0.875)
@example([-1.0, 0.074, -1.0, 0.144, -0.941, -1.0], 0.94)
def test_the_fewest_words_bring_a_score_below_and_none_is_in_vain(values, share):
    """Words that add up: then the fewest are the largest."""
    words = [f"w{n}" for n in range(len(values))]

    def score(text):
        return 2.0 + sum(values[words.index(word)] for word in text.split())

    whole = score(" ".join(words))
    falls = sorted((value for value in values if value > 0), reverse=True)[: len(values) - 1]
    assume(falls)
    below = whole - share * sum(falls)
    needed = next((k for k in range(1, len(falls) + 1) if whole - sum(falls[:k]) < below - 1e-9), None)
    assume(needed is not None)  # otherwise the threshold is what all of them leave, but for rounding
    own = passage(" ".join(words), score)
    found = fewest_removals(own, below)
    assert len(found.removed) <= needed + 1 and found.is_fewest == (len(found.removed) <= 2)
    assert found.score_without == pytest.approx(score(found.shortened)) and found.score_without < below
    assert found.shortened.split() == [word for word in words if word not in {part.text for part in found.removed}]
    assert all(own.text[part.start : part.end] == part.text for part in found.removed)
    for part in found.removed:
        others = {one.text for one in found.removed} - {part.text}
        assert score(" ".join(word for word in words if word not in others)) >= below


def locked(text):
    """Score a text: without "key" it falls, unless "lock" is gone too; "extra" adds most by itself."""
    return 1.0 * ("extra" in text) + 0.9 * (("key" in text) or ("lock" not in text)) + 0.01 * len(text.split())


def test_one_word_is_found_although_another_has_the_larger_value():
    found = fewest_removals(passage("key lock extra other words of a text here", locked), 1.06)
    assert [part.text for part in found.removed] == ["extra"] and found.is_fewest


@pytest.mark.parametrize(("text", "n_removed"), [("ab cd", 1), ("ab cd ef", 2), ("ab cd ef gh", 3)])
def test_a_score_at_the_threshold_is_not_below_it(text, n_removed):
    found = fewest_removals(passage(text, lambda left: len(left.split())), 2)
    assert (len(found.removed), found.is_fewest) == (n_removed, n_removed < 3)


test_what_cannot_be_measured_is_refused = refused(
    (lambda: fewest_removals(passage("key lock extra", locked), -5), "no removal brings the score below -5"),
    (lambda: fewest_removals(passage("key lock extra", locked), 7), "below 7 already"),
    (lambda: fewest_removals(passage("ab cd", lambda left: len(left.split())), 1), "below 1: without 1 of the 2 words"),
    (lambda: fewest_removals(passage("key", locked), 0.5), "fewer than two words"),
    (
        lambda: measured().explain_vectors("dog bites", Tangled().vector("man"), "man", Tangled().vector("man")),
        "another model, prompt or role",
    ),
)


def test_the_similarity_of_a_pair_is_brought_below_a_threshold(static):
    model = pellucid.load(Tangled())
    one, other = "dog bites man", "a dog bites the old man in the house"
    whole = model.similarity(model.encode([one]), model.encode([other]))[0, 0]
    found = model.counterfactual(one, other, below=float(whole) - 0.1)
    left = model.similarity(model.encode([one]), model.encode([found.shortened]))[0, 0]
    assert found.score == pytest.approx(whole, abs=1e-6) and found.score_without == pytest.approx(left, abs=1e-6)
    assert left < whole - 0.1 and found.n_texts == sum(map(len, model.model.calls)) - 6
    assert [part.text for part in static.counterfactual("a cat", "the cat sat", below=0.5).removed] == ["cat"]
