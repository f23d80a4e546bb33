"""Token reasons: exact in every role, for every linear pooling; whose words the rows name; whom they refuse."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from pellucid.dense.tokens import PUNCTUATION, SPECIAL, TokenReasons
from pellucid.errors import InputError
from pellucid.explain.rows import SHARED, WORD, WORD_PAIR
from tiny_models import WORDS, byte_level, sentence_piece, tiny_model, word_piece

pytest.importorskip("sentence_transformers")

TEXTS = ["a man is riding the horse", "swift cars, rapid cars!", "the doctor gave the boy medicine", "a car"]
SENTENCES = st.lists(st.sampled_from([*WORDS, "Horse", "!", ",", "zebra", "é", "don't"]), min_size=1, max_size=20).map(
    " ".join
)


def encoder(folder, *behind, kind="bert", tokenizer=None, length=24, pooling="mean", include_prompt=True, **options):
    """Return a SentenceTransformer of two layers and 32 dimensions, with `behind` behind its pooling."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    tokenizer = tokenizer or word_piece()
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tiny_model(kind, len(tokenizer), headless=True).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    modules = [Transformer(str(folder), max_seq_length=length), Pooling(32, pooling, include_prompt), *behind]
    return SentenceTransformer(modules=modules, device="cpu", **options)


def taken_apart(model, *, spread=True):
    """Return the model with token reasons."""
    dense = pellucid.load(model)
    return dense.with_reasons(TokenReasons.from_model(dense, TEXTS, spread=spread))


PROMPTS = {"query": "query: ", "passage": "the car: "}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return taken_apart(encoder(tmp_path_factory.mktemp("bert"), prompts=PROMPTS))


def assert_adds_up(explanation, score):
    """The rows add up to the score, which is the encoder's."""
    assert explanation.exact
    assert explanation.score == pytest.approx(score, abs=2e-6)
    assert sum(row.contribution for row in explanation.rows) == pytest.approx(explanation.score, abs=1e-9)


@given(SENTENCES, SENTENCES, st.sampled_from([None, "query", "document"]), st.sampled_from([None, "document"]))
def test_rows_add_up_to_the_encoders_score_in_every_role(model, first, second, role1, role2):
    def unit(text, role):
        rows = getattr(model.model, f"encode_{role}" if role else "encode")([text])
        return rows[0] / np.linalg.norm(rows[0])

    assert_adds_up(model.explain(first, second, role1=role1, role2=role2), unit(first, role1) @ unit(second, role2))
    alone = model.explain(first, role1=role1) if role1 is None else None
    if alone is not None:
        assert_adds_up(alone, 1.0)


def linear(out, *, bias=True, residual=False):
    import torch
    from sentence_transformers.sentence_transformer.modules import Dense

    torch.manual_seed(1)
    return Dense(32, out, bias=bias, activation_function=torch.nn.Identity(), use_residual=residual)


def behind(names):
    from sentence_transformers.sentence_transformer.modules import Dropout, Normalize

    made = {"normalize": Normalize, "dense": lambda: linear(20), "residual": lambda: linear(32, residual=True)}
    return [{**made, "dropout": Dropout}[name]() for name in names.split()]


@pytest.mark.parametrize("pooling", ["mean", "mean_sqrt_len_tokens", "weightedmean"])
@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("names", ["", "normalize", "normalize dense dropout", "residual normalize dense normalize"])
def test_every_linear_pooling_is_taken_apart(tmp_path, pooling, include_prompt, names):
    model = taken_apart(
        encoder(tmp_path, *behind(names), pooling=pooling, include_prompt=include_prompt, prompts=PROMPTS)
    )
    for role in (None, "query", "document"):
        found = model.explain(TEXTS[0], TEXTS[1], role1=role, role2="document")
        assert_adds_up(found, found.score)
        assert found.score == pytest.approx(
            float(model.similarity(*(getattr(model, f"encode_{r}" if r else "encode")([text])
                                     for text, r in ((TEXTS[0], role), (TEXTS[1], "document"))))[0, 0]), abs=2e-6
        )  # fmt: skip


@pytest.mark.parametrize(("kind", "tokenizer"), [("llama", sentence_piece), ("gpt2", byte_level), ("bert", word_piece)])
def test_pieces_of_every_tokenizer_are_shown_as_the_users_words(tmp_path, kind, tokenizer):
    model = taken_apart(encoder(tmp_path, kind=kind, tokenizer=tokenizer(), length=None), spread=False)
    text = "Medicine for the horse; the Horse rides."
    rows = {row.key[0]: row for row in model.explain(text).rows if row.kind == WORD}
    assert set(rows) - {SPECIAL, PUNCTUATION} == {"medicine", "for", "the", "horse", "rides"}
    assert [text[slice(*span)] for span in rows["horse"].spans1] == ["horse", "Horse"]
    assert rows["horse"].name == "horse"
    assert PUNCTUATION in rows
    assert (SPECIAL in rows) is (kind != "gpt2")
    assert not rows[PUNCTUATION].spans1


def test_spreading_keeps_the_sum_and_leaves_only_words(model):
    apart = model.with_reasons(TokenReasons(model.model, model.reasons.common, spread=False))
    texts = ("a man, a horse!", "swift cars; doctor")
    whole, parted = model.explain(*texts), apart.explain(*texts)
    assert whole.score == parted.score
    assert {row.kind for row in whole.rows} == {WORD_PAIR, SHARED}
    assert not any(SPECIAL in row.name or PUNCTUATION in row.name for row in whole.rows)
    assert any(SPECIAL in row.name for row in parted.rows)
    assert len(model.explain("!", "a car").rows) == 1 + 2 * 2  # nothing to spread over: special and "!", both words


def test_shares_are_divided_by_the_lengths_of_the_words_parts(model):
    """By hand: parts of lengths 3 and 1 get three quarters and one of what is spread."""
    from pellucid.dense.tokens import _spread

    parts, keys = _spread(np.array([[4.0, 8.0], [3, 0], [0, 1], [0, 4]]), [SPECIAL, "a", "b", PUNCTUATION])
    np.testing.assert_allclose(parts, [[3 + 3, 9], [1, 1 + 3]])
    assert keys == ["a", "b"]


def test_the_states_are_those_of_transformers_alone(model):
    """By hand: a part is its state over their number and the mean's length, and along the mean nearly equal."""
    import torch

    text = "the horse"
    inner = model.model[0]
    ids = model.model.tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        states = inner.auto_model(**ids).last_hidden_state[0].double().numpy()
    expected = states / (len(states) * np.linalg.norm(states.mean(axis=0)))
    reasons = TokenReasons(model.model, np.zeros(32), spread=False)
    vector = expected.sum(axis=0)
    parts = reasons.parts(text, None, vector)
    assert [parts.row(number).name for number in range(3)] == [SPECIAL, "the", "horse"]
    expected = np.array([expected[0] + expected[3], expected[1], expected[2]])
    along = expected @ vector
    across = expected - np.outer(along, vector)
    evened = 0.2 * along + 0.8 * along.mean()
    np.testing.assert_allclose(parts.vectors, across + np.outer(evened, vector), atol=1e-6)
    np.testing.assert_allclose(parts.vectors.sum(axis=0), vector, atol=1e-12)


def test_a_cut_text_is_explained_as_far_as_it_was_read(tmp_path):
    model = taken_apart(encoder(tmp_path, length=5, prompts=PROMPTS))
    found = model.explain("man is riding the horse", "the medicines of the boy", role1="query")
    assert_adds_up(found, found.score)
    pairs = [row for row in found.rows if row.kind == WORD_PAIR]
    assert {row.parts[0] for row in pairs} == {"man"}  # [CLS] query : man [SEP]
    assert {row.parts[1] for row in pairs} == {"the", "medicines"}  # [CLS] the medic ##ine [SEP]


@pytest.mark.parametrize("prompt_name", ["query", None])
def test_a_default_prompt_is_read_too(tmp_path, prompt_name):
    model = taken_apart(encoder(tmp_path, prompts=PROMPTS, default_prompt_name=prompt_name), spread=False)
    found = model.explain("the horse")
    assert_adds_up(found, 1.0)
    assert {row.name for row in found.rows if row.kind == WORD} == {SPECIAL, "the", "horse"}


def test_a_search_shows_the_same_rows(model):
    query, text = "a man on the beach", "the boy is riding!"
    asked = model.analyze(query, "query")
    vector = model.similarity_rows(model.encode_document([text]))[0]
    found = asked.against([text], [vector])(0)
    score = float(model.similarity_rows(model.encode_query([query]))[0] @ vector)
    assert found.values.sum() == pytest.approx(score, abs=1e-6)
    assert {text[slice(*span)] for span in found.spans.tolist()} == {"the", "boy", "is", "riding"}


def test_another_vector_is_refused_with_its_cosine(model):
    vector = model.similarity_rows(model.encode(["swift cars"]))[0].astype(np.float64)
    with pytest.raises(InputError, match=r"'the doctor' as a query has a cosine of \d\.\d+ to .*prompt or role"):
        model.reasons.parts("the doctor", "query", vector)
    query = model.similarity_rows(model.encode_query(["the doctor"]))[0].astype(np.float64)
    with pytest.raises(InputError, match="another model, prompt or role"):
        model.reasons.parts("the doctor", "document", query)


@pytest.mark.parametrize("text", ["", " ", "!?", "\ud800", "東京 car", "x" * 300])
def test_texts_without_words_add_up_too(model, text):
    found = model.explain(text, "a car")
    assert_adds_up(found, found.score)


def test_a_prompt_that_is_left_out_may_leave_nothing(tmp_path):
    model = taken_apart(encoder(tmp_path, include_prompt=False, prompts={"query": "the man is riding " * 9}))
    found = model.explain("a car", "a horse", role1="query")
    assert_adds_up(found, found.score)


def test_characters_of_one_token_are_one_word():
    from pellucid.dense.tokens import _words_of_tokens

    assert _words_of_tokens("東京に", [(0, 2), (2, 3)]) == [("東京", (0, 2)), ("に", (2, 3))]
    assert _words_of_tokens("a東b", [(0, 1), (1, 2), (2, 3)]) == [("a", (0, 1)), ("東", (1, 2)), ("b", (2, 3))]
    assert _words_of_tokens("a-b", [(0, 1), (1, 3)]) == [("a", (0, 1)), ("b", (2, 3))]
    assert _words_of_tokens("ab c", [(-5, 0), (0, 0), (0, 1), (1, 2), (2, 4)]) == [
        (SPECIAL, (0, 0)), (SPECIAL, (0, 0)), ("ab", (0, 2)), ("ab", (0, 2)), ("c", (3, 4)),
    ]  # fmt: skip


@pytest.mark.parametrize("pooling", ["cls", "max", "lasttoken", ("mean", "max")])
def test_a_pooling_that_is_no_mean_is_refused(tmp_path, pooling):
    with pytest.raises(InputError, match=r"by its tokens: its pooling is .*, not a mean.*with_reasons\(\"words\"\)"):
        taken_apart(encoder(tmp_path, pooling=pooling))


def test_what_is_not_linear_is_refused(tmp_path):
    from sentence_transformers.sentence_transformer.modules import Dense, LayerNorm

    with pytest.raises(InputError, match="Dense with Tanh follows its pooling"):
        taken_apart(encoder(tmp_path, Dense(32, 16)))
    with pytest.raises(InputError, match="a LayerNorm follows"):
        taken_apart(encoder(tmp_path, LayerNorm(32)))


def test_others_are_refused(model):
    with pytest.raises(InputError, match="a function, which shows no states"):
        TokenReasons.from_model(pellucid.load(lambda texts: np.ones((len(texts), 3))))
    with pytest.raises(InputError, match="no encoder"):
        TokenReasons.from_model(pellucid.load("static-en"))
    with pytest.raises(InputError, match="no texts are given"):
        TokenReasons.from_model(model, [])


def test_a_vector_that_is_no_mean_is_noticed(tmp_path):
    import torch

    own = encoder(tmp_path)
    own[1].register_forward_hook(
        lambda module, given, out: out.update(sentence_embedding=torch.tanh(out["sentence_embedding"]))
    )
    with pytest.raises(InputError, match=r"not the mean of its last states \(cosine 0\.\d+ for '"):
        taken_apart(own)


def test_a_shortened_vector_is_taken_apart(tmp_path):
    model = taken_apart(encoder(tmp_path, truncate_dim=12))
    found = model.explain(*TEXTS[:2])
    assert_adds_up(found, found.score)


def test_half_precision_stays_exact(tmp_path):
    model = taken_apart(encoder(tmp_path).bfloat16())
    found = model.explain(*TEXTS[:2])
    assert_adds_up(found, found.score)


def test_copies_say_the_same(model):
    expected = model.explain(*TEXTS[:2])
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        found = other.explain(*TEXTS[:2])
        np.testing.assert_allclose(found.rows.contributions, expected.rows.contributions, atol=1e-9)
