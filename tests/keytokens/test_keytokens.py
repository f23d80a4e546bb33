"""Key tokens: what an embedding is, what it is decoded to, adjustments, explanations, edits, folders, bad input."""

import random
from dataclasses import replace

import numpy as np
import pytest

from refusals import refused
from tables import check_views
from tiny_models import (
    WORDS,
    backbone_of,
    byte_level,
    saved_backbone,
    sentence_piece,
    states_of,
    tiny_model,
    word_piece,
)

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import pellucid  # noqa: E402
from pellucid.core.arrays import l2_normalize  # noqa: E402
from pellucid.errors import ModelFolderError  # noqa: E402
from pellucid.keytokens.adjustments import Adjustment, component_adjustment, mean_adjustment  # noqa: E402
from pellucid.keytokens.alignment import AlignmentControl, token_alignment  # noqa: E402
from pellucid.keytokens.embedder import KeyTokenEmbedder  # noqa: E402
from pellucid.keytokens.head import TokenHead  # noqa: E402
from pellucid.keytokens.states import PROMPT_EOL, KeyTokenSettings  # noqa: E402
from pellucid.transformer.backbone import open_backbone, prepare  # noqa: E402
from pellucid.transformer.tokenwords import Rank  # noqa: E402

TEXTS = ["The man is riding a horse.", "a doctor gave the sick boy medicine", "", "cars quickly, swift cars!"]


def embedder(kind="llama", *, headless=False, head=None, seed=0, **values):
    attention, tokenizer = (
        "bidirectional" if kind == "bert" else "causal",
        byte_level() if kind.startswith(("gpt", "opt")) else None,
    )
    backbone = backbone_of(kind, attention, tokenizer=tokenizer, headless=headless, seed=seed)
    return KeyTokenEmbedder(backbone, KeyTokenSettings(**{"top_k": 20, **values}), head=head)


def masked(head=None):
    return embedder("bert", headless=True, head=head, top_k=None)


@pytest.fixture(scope="module")
def llama():
    return embedder("llama")


@pytest.fixture(scope="module")
def mini():
    """An encoder without a head over masked tokens, as sentence-transformers publishes them."""
    return masked()


# Embeddings


@pytest.mark.parametrize(
    ("kind", "values", "read", "pool"),
    [
        ("llama", {}, "{}", lambda hidden: hidden[1:].mean(axis=0)),  # all but the tokenizer's start token
        ("llama", {"normalize": True}, "{}", lambda hidden: l2_normalize(hidden[1:].mean(axis=0))[0]),
        ("bert", {}, "{}", lambda hidden: hidden.mean(axis=0)),  # of an encoder all, as in sentence-transformers
        ("bert", {"special_tokens": False}, "{}", lambda hidden: hidden[1:-1].mean(axis=0)),
        ("gpt_neo", {"start_token": True}, "<|endoftext|>{}", lambda hidden: hidden[1:].mean(axis=0)),
        ("gpt_neo", {"pooling": "last", "end_token": True}, "{}<|endoftext|>", lambda hidden: hidden[-1]),
        ("gpt_neo", {"pooling": "weighted_mean"}, "{}", lambda hidden: np.average(
            hidden, axis=0, weights=range(1, len(hidden) + 1))),  # a state counts as often as its position
    ],
)  # fmt: skip
def test_an_embedding_is_made_of_these_states(kind, values, read, pool):
    model = embedder(kind, headless=kind == "bert", **values)
    hidden, _ = states_of(model, read.format(TEXTS[1]))
    assert model.embed(TEXTS)[1] == pytest.approx(pool(hidden), abs=1e-5)


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
    found, logits = llama.decode(embeddings, 7), np.stack([by_hand(llama, row) for row in embeddings])
    assert found.ids.tolist() == np.argsort(-logits, kind="stable")[:, :7].tolist()
    assert found.scores == pytest.approx(np.take_along_axis(logits, found.ids, 1), abs=1e-4)


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


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "mpnet", "modernbert"])
def test_a_masked_language_models_whole_head_is_applied_to_the_pooled_embedding(kind):
    tokenizer = word_piece()
    model = KeyTokenEmbedder(backbone_of(kind, tokenizer=tokenizer), KeyTokenSettings(top_k=5, pooling="last"))
    # one state: the head's order does not matter; the same weights, its head not opened
    whole, ids = tiny_model(kind, len(tokenizer)), tokenizer(TEXTS[0], return_tensors="pt")
    with torch.inference_mode():
        logits = whole(input_ids=ids["input_ids"], attention_mask=ids["attention_mask"]).logits[0, -1].numpy()
    top = model.decode(model.embed(TEXTS[:1]), 5)
    assert top.scores[0] == pytest.approx(logits[top.ids[0]], abs=1e-4)
    assert top.scores[0, 0] == pytest.approx(logits[model.head.shown].max(), abs=1e-4)


def test_a_masked_language_models_head_is_applied_after_pooling():
    model = embedder("bert")
    whole = tiny_model("bert", len(model.backbone.tokenizer))
    with torch.inference_mode():
        logits = whole.cls(torch.from_numpy(model.embed(TEXTS[:2]))).numpy()
    found = model.decode(model.embed(TEXTS[:2]), 9)
    assert found.scores == pytest.approx(np.take_along_axis(logits, found.ids, 1), abs=1e-4)


def test_key_tokens_are_named_and_may_be_negative(llama):
    words = llama.key_tokens(TEXTS[0], 12)
    assert len(words) == 12 and [v for _, v in words] == sorted((v for _, v in words), reverse=True)
    top = llama.decode(llama.embed(TEXTS[:1]), 1)
    best = llama.head.tokens[int(top.ids[0, 0])]
    assert best.rank == Rank.SHARD or words[0] == (best.text, pytest.approx(float(top.scores[0, 0])))
    assert not any(name.startswith("…") for name, _ in words) and llama.key_tokens("") == []


# Rows of tokens


def test_encode_keeps_the_largest_logits_above_zero(llama):
    rows, logits = llama.encode(TEXTS), by_hand(llama, llama.embed(TEXTS[0]))
    assert llama.embed([]).shape == (0, 32)
    assert rows.shape == (4, len(llama.head)) and rows.dtype == np.float32 and rows[2].nnz == 0
    best = sorted(n for n in np.argsort(-logits, kind="stable")[:20] if logits[n] > 0)
    assert (rows[0].indices.tolist(), rows[0].data) == (best, pytest.approx(logits[best], abs=1e-4))


def test_top_k_none_keeps_all_above_zero_and_signed_keeps_negative_ones(llama):
    logits = by_hand(llama, llama.embed(TEXTS[0]))
    assert llama.with_settings(replace(llama.settings, top_k=None)).encode(TEXTS[0]).nnz == int((logits > 0).sum())
    signed = llama.with_settings(replace(llama.settings, top_k=None, signs="signed"))
    assert signed.encode(TEXTS[0]).toarray()[0, llama.head.shown] == pytest.approx(logits[llama.head.shown], abs=1e-4)


@pytest.mark.filterwarnings("error")
def test_texts_whose_logits_are_all_negative_are_told_of_and_an_adjustment_helps():
    """The embeddings have a large part in common, against all tokens but one."""
    model = embedder(seed=1)
    head, norm = model.backbone.head, model.backbone.model.model.norm
    away, forward = -head.mean(dim=0) / head.mean(dim=0).norm(), norm.forward
    with torch.no_grad():
        head -= 3.0 * away  # every row has a part along the common direction
        norm.weight.fill_(1.0)
    norm.forward = lambda states: forward(states) + 40.0 * away
    with pytest.warns(UserWarning, match="no token with a logit above 0"):
        assert model.encode(TEXTS[:2]).nnz == 0
    corpus = [" ".join(words) for words in zip(WORDS, WORDS[3:], WORDS[7:])]
    for kind in ("mean", "component"):
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
    explanation = mini.explain("The Horse is on the beach", "a horse")
    places = {"horse": (((4, 9),), ((2, 7),)), "the": (((0, 3), (16, 19)), ())}
    found = {row.name: (row.spans1, row.spans2) for row in explanation.rows if row.name in places}
    assert found and found.items() <= places.items()


def test_shards_are_shown_as_the_word_of_the_text_or_not_at_all(mini):
    shards = {n for n, token in enumerate(mini.head.tokens) if token.rank == Rank.SHARD}
    row = mini.encode(["a quickling man"])[0]
    explanation = mini.explain("a quickling man")
    part = row.data**2 / (row.data**2).sum()
    own = set(mini.encodings(["a quickling man"])[0].ids)
    unseen = float(part[[n in shards - own for n in row.indices]].sum())
    seen = [row for row in explanation.rows if row.name == "quickling"]
    assert len(seen) == 1 and seen[0].spans1 == ((2, 11),) and {"…l", "…i", "…n", "…g"} & set(seen[0].parts)
    assert explanation.remainder > 0.05 and explanation.remainder <= unseen + 1e-6


# Folders


def same(first, second):
    return np.abs(first.encode(TEXTS) - second.encode(TEXTS)).max() < 1e-5


@pytest.mark.usefixtures("outside_allowed")
def test_a_given_head_is_saved_and_a_backbone_may_be_named(tmp_path, llama):
    rows = np.random.default_rng(0).normal(size=(len(llama.head), 32)).astype(np.float32)
    model = KeyTokenEmbedder(llama.backbone, llama.settings, head=rows)
    assert not same(model, llama)
    model.save_pretrained(tmp_path / "model", backbone_name=str(saved_backbone(llama.backbone, tmp_path / "lm")))
    assert not (tmp_path / "model" / "backbone").exists() and same(pellucid.load(tmp_path / "model"), model)
    other = embedder("llama", seed=5).backbone
    with pytest.raises(ModelFolderError, match="is another model"):
        KeyTokenEmbedder.from_pretrained(tmp_path / "model", backbone=other)


# Bad input


test_what_cannot_be_meant_is_refused = refused(
    *((lambda llama, k=k: llama.key_tokens("a man", k), "k is") for k in (0, -1, 10_000, 2.5, True)),
    (lambda llama: llama.fitted(["a man"], "mean"), "at least two"),
    (lambda llama: llama.fitted(["", ""], "component"), "got 0 of 2"),
    (lambda llama: llama.fitted(TEXTS, "median"), "must be one of mean, component"),
    (lambda llama: llama.fitted([3, "a"], "mean"), "text 0 is int"),
    (lambda llama: llama.fitted(TEXTS, "mean", strength=1.0), "belongs to the adjustment 'component'"),
    (lambda llama: llama.fitted(TEXTS, "component", strength=float("nan")), "finite"),
    (
        lambda llama: llama.with_adjustment(Adjustment("mean", np.ones(5, np.float32))),
        "5 dimensions and the embeddings of 32",
    ),
    (
        lambda: KeyTokenEmbedder(backbone_of("llama", "causal", headless=True), KeyTokenSettings(top_k=5)),
        "not its head",
    ),
    (lambda llama: KeyTokenEmbedder(llama.backbone, head=np.ones((50, 32), np.float32)), "not of the same model"),
    (lambda llama: TokenHead(np.ones((50_000, 8), np.float32), llama.backbone.tokenizer), "not of the same model"),
    (
        lambda llama: KeyTokenEmbedder(llama.backbone, head=np.ones((len(llama.head), 16), np.float32)),
        "rows of the head have 16 dimensions",
    ),
    (
        lambda llama: llama.with_settings(replace(llama.settings, top_k=100_000)),
        "top_k is 100000; it must be an integer, at least 1 and at most",
    ),
    (lambda llama: llama.decode(np.ones((2, 5)), 3), r"not \[n, 32\]"),
    *(
        (lambda values=values: KeyTokenSettings(**values), next(iter(values)))
        for values in [
            {"pooling": "max"},
            {"signs": "both"},
            {"top_k": 0},
            {"top_k": 2.0},
            {"start_token": 1},
            {"special_tokens": "yes"},
            {"template": "no text"},
            {"max_length": 0},
        ]
    ),
)


def test_tokens_added_to_an_embedders_tokenizer_need_no_row():
    tokenizer = byte_level()
    before = len(tokenizer)
    tokenizer.add_tokens(["[SOS]", "{SOS}"])
    assert len(TokenHead(np.ones((before, 8), np.float32), tokenizer).spelled) == before


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


# --- Is an embedder aligned with its tokens? ---


_DRAWN = random.Random(0)
SAMPLES = [" ".join(_DRAWN.sample(WORDS, 4)) for _ in range(60)]


def own_of(aligned, text):
    ids = aligned.backbone.tokenizer(text, add_special_tokens=False)["input_ids"]
    return {n for n in ids if n in set(aligned.head.shown.tolist())}


@pytest.fixture(scope="module")
def aligned():
    """An encoder with a head made for these texts: a token's row is the mean of the texts that hold it."""
    plain = masked()
    rows, head = plain.embed(SAMPLES), np.zeros_like(plain.head.rows())
    moved = mean_adjustment(rows)
    for row, text in zip(moved.apply(rows), SAMPLES, strict=True):
        head[sorted(own_of(plain, text))] += row
    return masked(head).with_adjustment(moved)


def test_the_rate_is_the_share_of_a_texts_tokens_among_as_many_first_ones(aligned):
    found = token_alignment(aligned, SAMPLES)
    own = [own_of(aligned, text) for text in SAMPLES]
    first = [aligned.decode(row[None], len(ids)).ids[0].tolist() for row, ids in zip(aligned.embed(SAMPLES), own)]
    shares = [len(ids.intersection(decoded)) / len(ids) for ids, decoded in zip(own, first)]
    assert found.rate == pytest.approx(np.mean(shares)) and found.texts == len(set(SAMPLES))
    assert found.tokens == pytest.approx(np.mean(list(map(len, own))))
    rotated, another = found.controls
    assert another.rate == pytest.approx(found.rate - another.gain) and rotated.low < rotated.gain < rotated.high


def test_a_head_that_means_its_tokens_is_told_from_one_that_does_not(aligned):
    found = token_alignment(aligned, SAMPLES)
    assert found.verdict == "aligned" and all(one.is_beaten for one in found.controls)
    rows = aligned.head.rows().copy()
    rows[aligned.head.shown] = np.roll(rows[aligned.head.shown], 7, axis=0)  # each token has the row of another
    shifted = token_alignment(masked(rows).with_adjustment(aligned.adjustment), SAMPLES)
    assert shifted.verdict != "aligned" and shifted.rate < found.rate


def test_tokens_that_all_texts_share_are_no_alignment(aligned):
    common = Adjustment("mean", offset=1000 * aligned.head.rows()[aligned.head.shown[:3]].sum(axis=0), texts=2)
    found = token_alignment(aligned.with_adjustment(common), SAMPLES)
    assert found.controls[1].is_beaten is not True and found.verdict != "aligned"


@pytest.mark.parametrize(
    ("low", "high", "beaten"), [(0.1, 0.2, True), (-0.1, 0.1, None), (-0.2, 0.0, False), (0, 1, None)]
)
def test_a_control_is_beaten_if_all_of_the_interval_is_above_0(low, high, beaten):
    assert AlignmentControl("one", 0.5, 0.1, low, high).is_beaten is beaten


def test_texts_given_twice_or_without_a_token_are_counted_and_said_not_measured(aligned):
    found = token_alignment(aligned, [*SAMPLES, "", SAMPLES[0]])
    assert (
        found.skipped == 2 + len(SAMPLES) - len(set(SAMPLES)) and found.rate == token_alignment(aligned, SAMPLES).rate
    )
    assert token_alignment(aligned, SAMPLES, draws=2, seed=1).controls[0].rate != found.controls[0].rate
    said = check_views(found)
    assert "Token alignment" in said and "the head rotated" in said and f"{found.skipped} texts left out" in said


test_what_cannot_be_decided_is_refused = refused(
    (lambda aligned: token_alignment(aligned, SAMPLES[:9]), "9 different texts with a token; at least 20"),
    (lambda aligned: token_alignment(aligned, ["", " "] * 20), "0 different texts"),
    (lambda aligned: token_alignment(aligned, SAMPLES, draws=0), "draws is 0"),
    (lambda aligned: token_alignment(aligned, [*SAMPLES, 3]), "int"),
    (lambda fruit: token_alignment(fruit, SAMPLES), "only key-token models are decoded to tokens"),
)
