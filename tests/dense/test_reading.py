"""What an encoder reads of a text, how often it is asked, and by whom at once."""

import collections
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

import pellucid
from memory import peak_of
from pellucid import EnsembleEmbedder, Index
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.dense.tokenized import TokenizedText, read_texts, text_units, word_units, words_outside
from pellucid.dense.words import WordReasons
from pellucid.explain.rows import EMBEDDING, REMAINDER, WORD_PAIR
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.unicode import normalize
from pellucid.text.words import Vocabulary
from refusals import refused
from tiny_models import tiny_transformer

READ = "the cat sat on a mat bank loan river".split()
UNREAD = ["\u202e", "\u0b2d\u0b32", "\ua66e\ua66e", "\U0001f99c", "zzz"]  # dropped, or of signs that no piece has
QUERY = "boats with music"
DOCUMENTS = [f"document {n} about {word}" for n, word in enumerate("cats dogs boats bridges music food law".split())]


class Counting:
    """A function whose vectors are those of a small table, which notes the texts that it is called with."""

    def __init__(self):
        chance = np.random.default_rng(3)
        every = sorted({word for text in [QUERY, *DOCUMENTS] for word in text.split()})
        self.table = StaticEmbedder(Vocabulary(every), chance.normal(size=(len(every), 12)).astype(np.float32))
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
    assert sum(row.contribution for row in why.rows) + why.remainder == pytest.approx(why.score, abs=1e-9)


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
    (read,) = read_texts(encoder, ["cat \ua66e mat"], None)
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
            assert function.taken() == encoded
            assert (index.score(QUERY, "d1").parts == before) == ("metadata" in change)
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
