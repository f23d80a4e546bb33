"""Algorithm 1 and its rates, by hand and against a plain reference; classes of tokens; texts under instructions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.keytokens.alignment import (
    align,
    align_embeddings,
    compare_key_tokens,
    cosine_lines,
    embedded_texts,
    tokens_table,
)
from papers.keytokens.rates import EmbeddedTexts, Stems, literal_tokens, measure
from pellucid.errors import InputError
from pellucid.keytokens import head as decoding
from pellucid.keytokens.head import top_tokens
from pellucid.transformer.tokenwords import readable

WORDS = ["Ġcat", "Ġcats", "Ġdog", "Ġthe", ".", "Ġsat"]


def by_sorting(embeddings, head, k):
    """Algorithm 1 as it is written: every score, sorted; the lower id first where two are equal."""
    scores = np.asarray(embeddings, np.float64) @ np.asarray(head, np.float64).T
    return np.array([sorted(range(len(row)), key=lambda n: (-row[n], n))[:k] for row in scores]).reshape(-1, k)


def rates_by_hand(embeddings, head, tokens, k):
    """The three rates as Eq. 6 to 8 say."""
    ranked = by_sorting(embeddings, head, len(head)).tolist()
    pairs = [(set(own), row) for own, row in zip(tokens, ranked) if own]
    hit = np.mean([bool(own & set(row[:k])) for own, row in pairs])
    matched = [own & set(row[: len(own)]) for own, row in pairs]
    lar = np.mean([len(found) / len(own) for found, (own, _) in zip(matched, pairs)])
    gar = len(set().union(*matched)) / len(set().union(*(own for own, _ in pairs)))
    return hit, lar, gar


def given_texts(embeddings, tokens, head=None, words=WORDS):
    texts = [" ".join(words[n].replace("Ġ", "") for n in own) for own in tokens]
    head = np.eye(len(words)) if head is None else head
    return EmbeddedTexts(texts, np.asarray(embeddings, float), tokens, np.asarray(head, float), readable(words))


whole = st.integers(-3, 3)


@given(st.data(), st.integers(0, 6), st.integers(1, 12), st.integers(1, 4))
def test_chunks_and_blocks_give_what_sorting_gives_ties_included(data, texts, vocabulary, width):
    rows = data.draw(st.lists(st.lists(whole, min_size=width, max_size=width), min_size=texts, max_size=texts))
    head = np.array(data.draw(st.lists(st.lists(whole, min_size=width, max_size=width), min_size=vocabulary,
                                       max_size=vocabulary)), np.float32)  # fmt: skip
    k, chunk = data.draw(st.integers(1, vocabulary)), data.draw(st.integers(1, 5))
    rows = np.array(rows, np.float32).reshape(texts, width)
    found = top_tokens(rows, head, k, chunk=chunk)
    assert (found.ids == by_sorting(rows, head, k)).all() and found.ids.shape == found.scores.shape == (texts, k)
    assert (found.scores == np.take_along_axis(rows @ head.T, found.ids, axis=1)).all()


def test_more_texts_than_a_block_and_numbers_of_every_size(monkeypatch):
    monkeypatch.setattr(decoding, "BLOCK_EMBEDDINGS", 7)
    rng = np.random.default_rng(0)
    rows, head = rng.normal(size=(30, 5)) * 10.0 ** rng.integers(-20, 15, (30, 1)), rng.normal(size=(50, 5))
    rows, head = rows.astype(np.float32), head.astype(np.float32)
    found = top_tokens(rows, head, 9, chunk=16)
    scores = np.concatenate([rows[n : n + 7] @ head.T for n in range(0, 30, 7)])
    assert found.scores == pytest.approx(-np.sort(-scores, axis=1)[:, :9], rel=1e-5)
    assert (np.diff(found.scores, axis=1) <= 0).all()


def test_a_head_of_torch_in_half_precision_and_one_with_a_bias():
    torch = pytest.importorskip("torch")
    head = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.bfloat16)
    assert top_tokens([[2.0, 1.0]], head, 2).ids.tolist() == [[2, 0]]
    bias, chosen = np.array([5.0, 0.0, 0.0], np.float32), np.array([0, 1])
    assert top_tokens([[2.0, 1.0]], head, 2, bias=bias, chunk=2).ids.tolist() == [[0, 2]]
    assert top_tokens([[2.0, 1.0]], head, 2, bias=bias, ids=chosen).ids.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("embeddings", "k", "said"),
    [
        ([[1.0, 2.0]], 1, "do not fit a head"),
        ([1.0, 2.0, 3.0], 1, "do not fit a head"),
        ([[1.0, 2.0, 3.0]], 0, "at least 1 and at most 4"),
        ([[1.0, 2.0, 3.0]], 5, "at least 1 and at most 4"),
        ([[1.0, 2.0, 3.0]], True, "integer"),
        ([[0.0, 0.0, 0.0], [1.0, np.nan, 3.0]], 1, "embedding 1 holds NaN"),
    ],
)
def test_what_cannot_be_decoded_is_told(embeddings, k, said):
    with pytest.raises(InputError, match=said):
        top_tokens(embeddings, np.zeros((4, 3)), k)


def test_a_head_with_holes_is_told():
    head = np.ones((5, 1))
    head[4] = np.nan
    with pytest.raises(InputError, match="among its rows 4 to 4"):
        top_tokens([[1.0]], head, 1, chunk=2)


def test_the_rates_of_three_texts_on_paper():
    #             cat cats dog the  .  sat
    embeddings = [[5, 4, 0, 3, 2, 1], [0, 1, 2, 5, 4, 3], [9, 8, 7, 6, 5, 4]]
    tokens = [{0, 3}, {2, 3, 4}, {5}]  # "cat the", "dog the .", "sat"
    found = measure("m", given_texts(embeddings, tokens), 2, stems=None)
    # text 1: first two cat, cats -> cat; text 2: first three the, ., sat -> the, .; text 3: first one cat -> none
    assert (found.hit, found.gar) == (2 / 3, 3 / 5)
    assert found.lar == pytest.approx((1 / 2 + 2 / 3 + 0) / 3)
    assert found.lar_error == pytest.approx(np.std([1 / 2, 2 / 3, 0], ddof=1) / np.sqrt(3))
    rare, known = np.log(3), np.log(3 / 2)  # of cat, dog, ., sat; of the
    weighted = (rare / (rare + known) + (rare + known) / (2 * rare + known) + 0) / 3
    assert found.weighted_lar == pytest.approx(weighted)
    assert found.literal == pytest.approx(3 / 6) and found.stem is None and found.unrelated is None
    assert (found.texts, found.tokens, found.distinct) == (3, 2.0, 4)


@given(st.data(), st.integers(1, 5))
def test_the_rates_are_those_of_the_definition(data, k):
    count = data.draw(st.integers(1, 6))
    rows = data.draw(st.lists(st.lists(whole, min_size=6, max_size=6), min_size=count, max_size=count))
    tokens = data.draw(st.lists(st.sets(st.integers(0, 5)), min_size=count, max_size=count))
    tokens[0] = tokens[0] or {1}
    head = np.array(data.draw(st.lists(st.lists(whole, min_size=6, max_size=6), min_size=6, max_size=6)), float)
    found = measure("m", given_texts(rows, tokens, head), k, stems=None)
    assert (found.hit, found.lar, found.gar) == pytest.approx(rates_by_hand(rows, head, tokens, k))
    assert found.blank == sum(not own for own in tokens)


def test_a_text_longer_than_ten_tokens_is_not_cut_at_ten():
    words = [f"Ġw{n}" for n in range(30)]
    embeddings = -np.arange(30.0)[None]  # token 0 first, then 1, ...
    found = measure("m", given_texts(embeddings, [set(range(20))], words=words), 3, stems=None)
    assert found.lar == 1.0 and found.gar == 1.0


@pytest.mark.parametrize(
    ("words", "text", "own", "found", "relations"),
    [
        (WORDS, "cats the", {1, 3}, range(5), "stem literal unrelated literal unrelated"),
        # a word that the tokenizer cut in two still has its stem
        (["Ġpar", "rots", "Ġparrot", "Ġmouse", "Ġmice", "\u010a"], "parrots and mice", {0, 1, 4}, [5, 2, 3, 4],
         "unrelated stem stem literal"),
    ],
)  # fmt: skip
def test_tokens_are_literal_of_the_same_stem_or_unrelated(words, text, own, found, relations):
    pytest.importorskip("simplemma")
    given = EmbeddedTexts([text], np.zeros((1, 6)), [own], np.eye(6), readable(words))
    assert given.relations(0, list(found), Stems()) == relations.split()
    assert given.name(1) == readable(words)[1].text and given.name(6) == "<6>"  # without a name it goes by its number


def test_a_share_of_the_first_tokens_is_of_each_class():
    pytest.importorskip("simplemma")
    (one,) = align_embeddings({"m": given_texts([[5, 4, 3, 2, 1, 0]], [{1, 3}])}, k=5)
    assert (one.literal, one.stem, one.unrelated) == pytest.approx((0.4, 0.2, 0.4))


@pytest.mark.parametrize(("tokens", "k", "said"), [([set(), set()], 10, "none of the 2 texts"),
                                                   ([{0}], 7, "at least 1 and at most 6")])  # fmt: skip
def test_nothing_to_look_at_is_told(tokens, k, said):
    with pytest.raises(InputError, match=said):
        measure("a", given_texts(np.zeros((len(tokens), 6)), tokens), k, stems=None)


# With real backbones, of two layers and random weights.


@pytest.fixture(scope="module")
def embedders():
    """A causal language model with byte-level tokens and an encoder with layers before its head."""
    pytest.importorskip("torch")
    from pellucid.keytokens.embedder import KeyTokenEmbedder
    from pellucid.keytokens.states import KeyTokenSettings
    from pellucid.transformer.backbone import prepare
    from tiny_models import byte_level, tiny_model, word_piece

    found, few = {}, KeyTokenSettings(top_k=20)
    for name, kind, tokenizer, attention in (
        ("neo", "gpt_neo", byte_level(), "causal"),
        ("bert", "bert", word_piece(), "bidirectional"),
    ):
        found[name] = KeyTokenEmbedder(prepare(tiny_model(kind, len(tokenizer)), tokenizer, attention=attention), few)
    return found


TEXTS = ["a man is riding the horse", "the doctor gave the sick boy medicine", "", "swift cars on the beach"]


@pytest.mark.parametrize("name", ["neo", "bert"])
def test_a_models_own_logits_rank_the_tokens(embedders, name):
    """The mean state through the model's own head, computed here by transformers, is what is decoded."""
    import torch

    model = embedders[name]
    given = embedded_texts(model, TEXTS)
    scores = np.asarray(given.embeddings[:1]) @ np.asarray(given.head[0 : given.head.shape[0]]).T
    with torch.inference_mode():
        ids = torch.tensor([model.backbone.tokenizer(TEXTS[0])["input_ids"]])
        base = model.backbone.model.base_model(ids).last_hidden_state.mean(dim=1)
        layers = model.backbone.model.cls.predictions.transform if name == "bert" else torch.nn.Identity()
        decoder = model.backbone.model.get_output_embeddings()
        expected = torch.nn.functional.linear(layers(base), decoder.weight, decoder.bias).numpy()
    assert scores == pytest.approx(expected, abs=1e-4)


def test_literal_tokens_are_the_texts_own(embedders):
    tokenizer = embedders["bert"].backbone.tokenizer
    names = [
        set(tokenizer.convert_ids_to_tokens(sorted(own))) for own in literal_tokens(tokenizer, ["The man", "[SEP] a"])
    ]
    assert names == [{"the", "man"}, {"[", "]", "s", "##e", "##p", "a"}]
    long = literal_tokens(tokenizer, ["man " * 500 + "car"])[0]
    assert len(long) == 2


def test_align_measures_models_as_they_are_and_centred(embedders):
    pytest.importorskip("simplemma")
    model = embedders["neo"]
    plain, centred = align({"neo": model}, TEXTS, k=5)
    assert (plain.name, centred.name, plain.texts, plain.blank) == ("neo", "neo, centred", 3, 1)
    own, given = literal_tokens(model.backbone.tokenizer, TEXTS), embedded_texts(model, TEXTS)
    rows = np.asarray(given.embeddings)
    for found, moved in ((plain, rows), (centred, rows - model.embed(TEXTS).mean(axis=0))):
        expected = rates_by_hand(moved, np.asarray(given.head), own, 5)
        assert (found.hit, found.lar, found.gar) == pytest.approx(expected)


def test_the_same_texts_under_instructions_and_in_two_models(embedders):
    texts, model = [text for text in TEXTS if text], embedders["neo"]
    told = {"none": "", "horses": "riding horse"}
    found = compare_key_tokens({"neo": model}, texts, instructions=told, k=4)
    assert [setting.name for setting in found] == list(told)
    rows = model.with_instruction("riding horse").embed(texts)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.array(found[1].cosines) == pytest.approx(units @ units.T, abs=1e-5)
    names = model.head.tokens
    expected = top_tokens(model.embed(texts), model.head.weight, 4).ids
    assert found[0].tokens == [[names[n].text or f"<{n}>" for n in row] for row in expected.tolist()]
    assert [row[0] for row in tokens_table(texts, found).rows] == texts
    assert cosine_lines(found).splitlines()[1].startswith(f"- horses: 1 and 2 {found[1].cosines[0][1]:.3f}, 1 and 3 ")
    assert [setting.name for setting in compare_key_tokens(embedders, texts, k=2)] == ["neo", "bert"]
    both = compare_key_tokens(embedders, texts, instructions=told, k=2)
    assert [setting.name for setting in both][1] == "neo, horses"
