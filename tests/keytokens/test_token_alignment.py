"""Is an embedder aligned with its tokens? By hand, on models that are and that are not; the command."""

import random

import numpy as np
import pytest

from tables import check_views
from tiny_models import WORDS, tiny_model, word_piece

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from pellucid.errors import InputError  # noqa: E402
from pellucid.keytokens import Adjustment, KeyTokenSettings, token_alignment  # noqa: E402
from pellucid.keytokens.adjustments import mean_adjustment  # noqa: E402
from pellucid.keytokens.alignment import AlignmentControl  # noqa: E402
from pellucid.keytokens.embedder import KeyTokenEmbedder  # noqa: E402
from pellucid.transformer.backbone import prepare  # noqa: E402

_DRAWN = random.Random(0)
TEXTS = [" ".join(_DRAWN.sample(WORDS, 4)) for _ in range(60)]


def embedder(head=None):
    tokenizer = word_piece()
    model = tiny_model("bert", len(tokenizer), headless=True)
    backbone = prepare(model, tokenizer, attention="bidirectional", head_kind="input", device="cpu")
    return KeyTokenEmbedder(backbone, KeyTokenSettings(top_k=None), head=head)


def own_of(model, text):
    ids = model.backbone.tokenizer(text, add_special_tokens=False)["input_ids"]
    return {n for n in ids if n in set(model.head.shown.tolist())}


@pytest.fixture(scope="module")
def model():
    """An encoder with a head made for these texts: a token's row is the mean of the texts that hold it."""
    plain = embedder()
    rows, head = plain.embed(TEXTS), np.zeros_like(plain.head.rows())
    moved = mean_adjustment(rows)
    for row, text in zip(moved.apply(rows), TEXTS, strict=True):
        head[sorted(own_of(plain, text))] += row
    return embedder(head).with_adjustment(moved)


def test_the_rate_is_the_share_of_a_texts_tokens_among_as_many_first_ones(model):
    found = token_alignment(model, TEXTS)
    by_hand = []
    for text in TEXTS:
        own = own_of(model, text)
        ids = model.decode(model.embed([text]), len(own)).ids[0]
        by_hand.append(len(own & set(ids.tolist())) / len(own))
    assert found.rate == pytest.approx(np.mean(by_hand)) and found.texts == len(set(TEXTS))
    assert found.tokens == pytest.approx(np.mean([len(own_of(model, text)) for text in TEXTS]))
    rotated, another = found.controls
    assert another.rate == pytest.approx(found.rate - another.gain) and rotated.low < rotated.gain < rotated.high


def test_a_head_that_means_its_tokens_is_told_from_one_that_does_not(model):
    found = token_alignment(model, TEXTS)
    assert found.verdict == "aligned" and all(one.is_beaten for one in found.controls)
    rows = model.head.rows().copy()
    rows[model.head.shown] = np.roll(rows[model.head.shown], 7, axis=0)  # each token has the row of another
    shifted = token_alignment(embedder(rows).with_adjustment(model.adjustment), TEXTS)
    assert shifted.verdict != "aligned" and shifted.rate < found.rate


def test_tokens_that_all_texts_share_are_no_alignment(model):
    common = Adjustment("mean", offset=1000 * model.head.rows()[model.head.shown[:3]].sum(axis=0), texts=2)
    found = token_alignment(model.with_adjustment(common), TEXTS)
    assert found.controls[1].is_beaten is not True and found.verdict != "aligned"


@pytest.mark.parametrize(
    ("low", "high", "beaten"), [(0.1, 0.2, True), (-0.1, 0.1, None), (-0.2, 0.0, False), (0, 1, None)]
)
def test_a_control_is_beaten_if_all_of_the_interval_is_above_0(low, high, beaten):
    assert AlignmentControl("one", 0.5, 0.1, low, high).is_beaten is beaten


def test_texts_given_twice_or_without_a_token_are_counted_not_measured(model):
    found = token_alignment(model, [*TEXTS, "", TEXTS[0]])
    assert found.skipped == 2 + len(TEXTS) - len(set(TEXTS)) and found.rate == token_alignment(model, TEXTS).rate
    assert token_alignment(model, TEXTS, draws=2, seed=1).controls[0].rate != found.controls[0].rate


def test_views(model):
    said = check_views(token_alignment(model, [*TEXTS, ""]))
    assert "Token alignment" in said and "the head rotated" in said and "1 text left out" in said


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (TEXTS[:9], {}, "9 different texts with a token; at least 20"),
        (["", " "] * 20, {}, "0 different texts"),
        (TEXTS, {"draws": 0}, "draws is 0"),
        ([*TEXTS, 3], {}, "int"),
    ],
)
def test_what_cannot_be_decided_is_refused(model, texts, options, message):
    with pytest.raises(InputError, match=message):
        token_alignment(model, texts, **options)


def test_another_family_is_refused(fruit):
    with pytest.raises(InputError, match="only key-token models are decoded to tokens"):
        token_alignment(fruit, TEXTS)
