"""Key tokens: what an embedding is, what it is decoded to, adjustments, explanations, edits, folders, bad input."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from tiny_models import WORDS, byte_level, sentence_piece, states_of, tiny_model, word_piece

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import pellucid  # noqa: E402
from pellucid.errors import InputError, ModelFolderError  # noqa: E402
from pellucid.keytokens.adjustments import Adjustment, component_adjustment, mean_adjustment  # noqa: E402
from pellucid.keytokens.embedder import KeyTokenEmbedder  # noqa: E402
from pellucid.keytokens.head import TokenHead  # noqa: E402
from pellucid.keytokens.states import PROMPT_EOL, KeyTokenSettings  # noqa: E402
from pellucid.transformer.backbone import open_backbone, prepare  # noqa: E402
from pellucid.transformer.tokenwords import Rank  # noqa: E402

TEXTS = ["The man is riding a horse.", "a doctor gave the sick boy medicine", "", "cars quickly, swift cars!"]
TOKENIZERS = {"bert": word_piece, "gpt2": byte_level, "gpt_neo": byte_level, "opt": byte_level}


def backbone_of(kind, attention=None, *, headless=False, **changes):
    tokenizer = TOKENIZERS.get(kind, sentence_piece)()
    attention = attention or ("bidirectional" if kind == "bert" else "causal")
    model = tiny_model(kind, len(tokenizer), headless=headless, **changes)
    return prepare(model, tokenizer, attention=attention, head_kind="input" if headless else "lm", device="cpu")


def embedder(kind="llama", attention=None, *, headless=False, head=None, changes=None, **values):
    backbone = backbone_of(kind, attention, headless=headless, **(changes or {}))
    return KeyTokenEmbedder(backbone, KeyTokenSettings(**{"top_k": 20, **values}), head=head)


@pytest.fixture(scope="module")
def llama():
    return embedder("llama")


@pytest.fixture(scope="module")
def mini():
    """An encoder without a head over masked tokens, as sentence-transformers publishes them."""
    return embedder("bert", headless=True)


# Embeddings


def unit(vector):
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize(
    ("kind", "values", "read", "pool"),
    [
        ("llama", {}, "{}", lambda hidden: hidden[1:].mean(axis=0)),  # all but the tokenizer's start token
        ("llama", {"normalize": True}, "{}", lambda hidden: unit(hidden[1:].mean(axis=0))),
        ("bert", {}, "{}", lambda hidden: hidden.mean(axis=0)),  # of an encoder all, as in sentence-transformers
        ("bert", {"special_tokens": False}, "{}", lambda hidden: hidden[1:-1].mean(axis=0)),
        ("gpt_neo", {"start_token": True}, "<|endoftext|>{}", lambda hidden: hidden[1:].mean(axis=0)),
        ("gpt_neo", {"pooling": "last", "end_token": True}, "{}<|endoftext|>", lambda hidden: hidden[-1]),
    ],
)
def test_an_embedding_is_made_of_these_states(kind, values, read, pool):
    model = embedder(kind, headless=kind == "bert", **values)
    hidden, _ = states_of(model, read.format(TEXTS[1]))
    assert model.embed(TEXTS)[1] == pytest.approx(pool(hidden), abs=1e-5)


def test_the_weighted_mean_counts_a_state_as_often_as_its_position():
    model = embedder("gpt_neo", pooling="weighted_mean")
    hidden, _ = states_of(model, TEXTS[0])
    weights = np.arange(1, len(hidden) + 1)
    assert model.embed(TEXTS)[0] == pytest.approx((weights @ hidden) / weights.sum(), abs=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_prompt_eol_is_the_last_state_behind_the_template_whatever_the_padding_side(side):
    model = embedder("opt", pooling="prompt_eol")
    model.backbone.tokenizer.padding_side = side
    texts = ["a man", "the doctor_gave the sick_boy medicine", *TEXTS]
    for text, row in zip(texts, KeyTokenEmbedder(model.backbone, model.settings).embed(texts)):
        if text:
            hidden, _ = states_of(model, PROMPT_EOL.replace("{text}", text))
            assert row == pytest.approx(hidden[-1], abs=1e-5)


# Decoding


def by_hand(model, embedding):
    """All logits of an embedding, those of tokens that stand for no text at minus infinity."""
    logits = model.backbone.head.float().numpy() @ embedding
    hidden = np.ones(len(logits), bool)
    hidden[model.head.shown] = False
    logits[hidden] = -np.inf
    return logits


def test_decoding_is_the_heads_rows_times_the_embedding(llama):
    embeddings = llama.embed(TEXTS[:2])
    found = llama.decode(embeddings, 7)
    for row, ids, scores in zip(embeddings, found.ids, found.scores):
        logits = by_hand(llama, row)
        assert (ids.tolist(), scores) == (
            np.argsort(-logits, kind="stable")[:7].tolist(),
            pytest.approx(logits[ids], abs=1e-4),
        )


def test_special_tokens_and_unused_rows_are_never_shown():
    tokenizer = sentence_piece()
    model = tiny_model("llama", len(tokenizer) + 11)
    with torch.no_grad():
        model.lm_head.weight[:3] = 100.0
        model.lm_head.weight[len(tokenizer) :] = 100.0
    found = KeyTokenEmbedder(prepare(model, tokenizer, attention="causal", device="cpu"), KeyTokenSettings(top_k=5))
    every = found.decode(found.embed(TEXTS[:2]), len(found.head.shown)).ids
    assert not set(every.ravel()) & {0, 1, 2, *range(len(tokenizer), len(tokenizer) + 11)}
    assert found.get_embedding_dimension() == len(tokenizer) + 11
    assert found.dimensions[len(tokenizer) + 2].name.startswith("unused")


def test_a_masked_language_models_whole_head_is_applied_to_the_pooled_embedding():
    model = embedder("bert")
    assert model.backbone.head_bias is not None
    whole = tiny_model("bert", len(model.backbone.tokenizer))  # the same weights, its head not opened
    with torch.inference_mode():
        logits = whole.cls(torch.from_numpy(model.embed(TEXTS[:2])))
    found = model.decode(model.embed(TEXTS[:2]), 9)
    assert found.scores == pytest.approx(np.take_along_axis(logits.numpy(), found.ids, 1), abs=1e-4)
    assert found.scores[:, 0] == pytest.approx(logits.numpy()[:, model.head.shown].max(axis=1), abs=1e-4)


@pytest.mark.parametrize("kind", ["roberta", "distilbert", "mpnet", "modernbert"])
def test_other_encoders_heads_are_applied_too(kind):
    tokenizer = word_piece()
    built = prepare(tiny_model(kind, len(tokenizer)), tokenizer, attention="bidirectional", device="cpu")
    model = KeyTokenEmbedder(built, KeyTokenSettings(top_k=5, pooling="last"))
    whole, ids = tiny_model(kind, len(tokenizer)), tokenizer(TEXTS[0], return_tensors="pt")
    with torch.inference_mode():
        logits = whole(input_ids=ids["input_ids"], attention_mask=ids["attention_mask"]).logits[0, -1].numpy()
    top = model.decode(model.embed(TEXTS[:1]), 5)
    assert top.scores[0] == pytest.approx(logits[top.ids[0]], abs=1e-4)  # one state: the head's order does not matter


def test_key_tokens_are_named_and_may_be_negative(llama):
    words = llama.key_tokens(TEXTS[0], 12)
    assert len(words) == 12 and [v for _, v in words] == sorted((v for _, v in words), reverse=True)
    top = llama.decode(llama.embed(TEXTS[:1]), 1)
    best = llama.head.tokens[int(top.ids[0, 0])]
    assert best.rank == Rank.SHARD or words[0] == (best.text, pytest.approx(float(top.scores[0, 0])))
    assert not any(name.startswith("…") for name, _ in words)
    assert llama.key_tokens("") == []


# Rows of tokens


def test_encode_keeps_the_largest_logits_above_zero(llama):
    rows = llama.encode(TEXTS)
    assert llama.embed([]).shape == (0, 32)
    assert rows.shape == (4, len(llama.head)) and rows.dtype == np.float32 and rows[2].nnz == 0
    logits = by_hand(llama, llama.embed(TEXTS[0]))
    best = [n for n in np.argsort(-logits, kind="stable")[:20] if logits[n] > 0]
    assert (rows[0].indices.tolist(), rows[0].toarray()[0, best]) == (
        sorted(best),
        pytest.approx(logits[best], abs=1e-4),
    )
    assert np.abs(llama.encode(TEXTS[0]) - rows[0]).max() < 1e-5


def test_top_k_none_keeps_all_above_zero_and_signed_keeps_negative_ones(llama):
    logits = by_hand(llama, llama.embed(TEXTS[0]))
    assert llama.with_settings(replace(llama.settings, top_k=None)).encode(TEXTS[0]).nnz == int((logits > 0).sum())
    signed = llama.with_settings(replace(llama.settings, top_k=None, signs="signed"))
    assert signed.encode(TEXTS[0]).toarray()[0, llama.head.shown] == pytest.approx(logits[llama.head.shown], abs=1e-4)


def drowned(kind="llama"):
    """A model whose embeddings have a large part in common, against all tokens but one."""
    model = embedder(kind)
    head = model.backbone.head
    away = -head.mean(dim=0) / head.mean(dim=0).norm()
    with torch.no_grad():
        head += 3.0 * -away  # every row has a part along the common direction
        model.backbone.model.model.norm.weight.fill_(1.0)
    common = 40.0 * away
    forward = model.backbone.model.model.norm.forward
    model.backbone.model.model.norm.forward = lambda states: forward(states) + common
    return model


def test_texts_whose_logits_are_all_negative_are_told_of_and_an_adjustment_helps():
    model = drowned()
    with pytest.warns(UserWarning, match="no token with a logit above 0"):
        assert model.encode(TEXTS[:2]).nnz == 0
    corpus = [" ".join(words) for words in zip(WORDS, WORDS[3:], WORDS[7:])]
    for kind in ("mean", "component"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert all(np.diff(model.fitted(corpus * 3, kind).encode(TEXTS[:2]).indptr) > 0), kind


# Adjustments


def test_the_mean_adjustment_centres(llama):
    rows = llama.embed(TEXTS)
    adjusted = mean_adjustment(rows).apply(rows)
    assert adjusted[[0, 1, 3]].mean(axis=0) == pytest.approx(np.zeros(32), abs=1e-5)
    assert not adjusted[2].any()  # the empty text
    moved = rows[[0]] - rows[[0, 1, 3]].mean(axis=0)
    assert llama.fitted(TEXTS, "mean").decode(rows[[0]], 5).ids.tolist() == llama.decode(moved, 5).ids.tolist()


def test_the_component_is_the_first_singular_vector_and_lambda_given_or_fitted(llama):
    rows = llama.embed([text for text in TEXTS if text])
    first = np.linalg.svd(rows.astype(np.float64))[2][0]
    first *= np.sign(first @ rows.mean(axis=0))
    assert component_adjustment(rows, -2.5).offset == pytest.approx(-2.5 * first, abs=1e-4)
    fitted = component_adjustment(rows)
    assert fitted.strength == pytest.approx(-float(rows.mean(axis=0) @ first), abs=1e-4)
    assert float(fitted.apply(rows).mean(axis=0) @ first) == pytest.approx(0, abs=1e-4)


# Explanations


def test_a_token_stands_where_the_text_has_its_word(mini):
    explanation = mini.with_settings(replace(mini.settings, top_k=None)).explain("The Horse is on the beach", "a horse")
    spans = {row.name: (row.spans1, row.spans2) for row in explanation.rows}
    for name, expected in {"horse": (((4, 9),), ((2, 7),)), "the": (((0, 3), (16, 19)), ())}.items():
        if name in spans:
            assert spans[name] == expected
    assert {"horse", "the"} & set(spans)


def test_shards_are_shown_as_the_word_of_the_text_or_not_at_all(mini):
    model = mini.with_settings(replace(mini.settings, top_k=None))
    shards = {n for n, token in enumerate(model.head.tokens) if token.rank == Rank.SHARD}
    row = model.encode(["a quickling man"])[0]
    explanation = model.explain("a quickling man")
    part = row.data**2 / (row.data**2).sum()
    own = set(model.encodings(["a quickling man"])[0].ids)
    unseen = float(part[[n in shards - own for n in row.indices]].sum())
    seen = [row for row in explanation.rows if row.name == "quickling"]
    assert len(seen) == 1 and seen[0].spans1 == ((2, 11),) and {"…l", "…i", "…n", "…g"} & set(seen[0].parts)
    assert explanation.remainder > 0.05 and explanation.remainder <= unseen + 1e-6


# Edits


def test_edits_are_what_the_mixing_does_to_the_rows(llama):
    ids = llama.decode(llama.embed(TEXTS[:1]), 20).ids[0].tolist()
    name, other = [llama.dimensions[n].name for n in ids if llama.head.tokens[n].rank < Rank.INNER][:2]
    rows = llama.encode(TEXTS).toarray()
    first, second = (llama.dimensions.number(n) for n in (name, other))
    without = llama.without(name)
    assert without.encode(TEXTS).toarray() == pytest.approx(np.delete(rows, first, axis=1), abs=1e-5)
    assert llama.scale({name: 0.5}).encode(TEXTS).toarray()[:, first] == pytest.approx(rows[:, first] / 2, abs=1e-5)
    merged = llama.merge(name, other, name="both").encode(TEXTS).toarray()
    assert merged[:, min(first, second)] == pytest.approx((rows[:, first] + rows[:, second]) / 2**0.5, abs=1e-5)
    assert name not in {row.name for row in without.explain(TEXTS[0]).rows}
    explanation = llama.rename({name: "mine"}).explain(TEXTS[0], TEXTS[0])
    assert "mine" in {row.name for row in explanation.rows} and explanation.score == pytest.approx(1, abs=1e-5)


# Folders


def same(first, second):
    return np.abs(first.encode(TEXTS) - second.encode(TEXTS)).max() < 1e-5


@pytest.mark.usefixtures("outside_allowed")
def test_a_given_head_is_saved_and_a_backbone_may_be_named(tmp_path, llama):
    rows = np.random.default_rng(0).normal(size=(len(llama.head), 32)).astype(np.float32)
    model = KeyTokenEmbedder(llama.backbone, llama.settings, head=rows)
    assert not same(model, llama)
    llama.backbone.model.save_pretrained(tmp_path / "lm")
    llama.backbone.tokenizer.save_pretrained(tmp_path / "lm")
    model.save_pretrained(tmp_path / "model", backbone_name=str(tmp_path / "lm"))
    assert not (tmp_path / "model" / "backbone").exists()
    assert same(pellucid.load(tmp_path / "model"), model)
    other = embedder("llama", changes={"seed": 5}).backbone
    with pytest.raises(ModelFolderError, match="is another model"):
        KeyTokenEmbedder.from_pretrained(tmp_path / "model", backbone=other)


# Bad input


def rows_of(count, width=32):
    return np.ones((count, width), np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *((lambda model, k=k: model.key_tokens("a man", k), "k is") for k in (0, -1, 10_000, 2.5, True)),
        (lambda model: model.fitted(["a man"], "mean"), "at least two"),
        (lambda model: model.fitted(["", ""], "component"), "got 0 of 2"),
        (lambda model: model.fitted(TEXTS, "median"), "must be one of mean, component"),
        (lambda model: model.fitted([3, "a"], "mean"), "text 0 is int"),
        (lambda model: model.fitted(TEXTS, "mean", strength=1.0), "belongs to the adjustment 'component'"),
        (lambda model: model.fitted(TEXTS, "component", strength=float("nan")), "finite"),
        (
            lambda model: model.with_adjustment(Adjustment("mean", np.ones(5, np.float32))),
            "5 dimensions and the embeddings of 32",
        ),
        (lambda _: KeyTokenEmbedder(backbone_of("llama", headless=True), KeyTokenSettings(top_k=5)), "not its head"),
        (lambda model: KeyTokenEmbedder(model.backbone, head=rows_of(50)), "not of the same model"),
        (lambda model: TokenHead(rows_of(50_000, 8), model.backbone.tokenizer), "not of the same model"),
        (
            lambda model: KeyTokenEmbedder(model.backbone, head=rows_of(len(model.head), 16)),
            "rows of the head have 16 dimensions",
        ),
        (
            lambda model: model.with_settings(replace(model.settings, top_k=100_000)),
            "top_k is 100000; it must be an integer, at least 1 and at most",
        ),
        (lambda model: model.decode(np.ones((2, 5)), 3), r"not \[n, 32\]"),
    ],
)
def test_what_cannot_be_meant_is_refused(llama, call, message):
    with pytest.raises(InputError, match=message):
        call(llama)


def test_tokens_added_to_an_embedders_tokenizer_need_no_row():
    tokenizer = byte_level()
    before = len(tokenizer)
    tokenizer.add_tokens(["[SOS]", "{SOS}"])
    assert len(TokenHead(np.ones((before, 8), np.float32), tokenizer).spelled) == before


@pytest.mark.parametrize(
    "values",
    [
        {"pooling": "max"},
        {"signs": "both"},
        {"top_k": 0},
        {"top_k": 2.0},
        {"start_token": 1},
        {"special_tokens": "yes"},
        {"template": "no text"},
        {"max_length": 0},
    ],
)
def test_settings_of_no_use_are_refused(values):
    with pytest.raises(InputError, match=next(iter(values))):
        KeyTokenSettings(**values)


# A real language model


def test_key_tokens_of_a_small_real_model_name_what_the_text_is_about(shared):
    folder = shared / "data/lm/gpt-neo-3m-stories"
    captions = shared / "data/sts/STS14/test.tsv"
    if not folder.is_dir() or not captions.is_file():
        pytest.skip("the small language model is not here")
    rows = [line.split("\t") for line in captions.read_text(encoding="utf-8").splitlines()[1:]]
    texts = [row[0] for row in rows if row[3] == "images"][:200]
    backbone = open_backbone(folder, attention="causal", device="cpu")
    model = KeyTokenEmbedder(backbone, KeyTokenSettings(start_token=True))
    cake = "Mom baked a chocolate cake for my birthday."
    assert {"and", ",", "."} <= {name for name, _ in model.key_tokens(cake, 5)}
    fitted = model.fitted(texts, "mean")
    assert {"cake", "birthday", "baked"} <= {name for name, _ in fitted.key_tokens(cake, 6)}
    assert fitted.explain(cake, "She made cookies and pie.").score > fitted.explain(cake, "The car is fast.").score
