"""Offsets of an embedding space that bring out key tokens.

The embeddings of a language model have one large component in common, which points to function words ("and", ",").
"A Text is Worth Several Tokens", section 4, finds that tuning a model for embedding mainly takes from the first
principal component, and adds a multiple of it by hand: h + lambda u_1. Here that and the subtraction of the mean
embedding are both an offset, h + offset, which can be saved, and folded into a linear layer's bias.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from pellucid.base import Vectors, check_texts
from pellucid.errors import InputError
from pellucid.keytokens.head import TEXTS, HeadRows, TokenHead, top_tokens
from pellucid.keytokens.states import before_rows
from pellucid.pca import spectrum_of
from pellucid.text import well_formed
from pellucid.transformer.tokenwords import vocabulary_of

if TYPE_CHECKING:
    from pellucid.transformer.backbone import Backbone

AdjustmentKind = Literal["none", "mean", "component"]
ADJUSTMENTS = ("none", "mean", "component")

_MULTIPLES = (0.5, 0.75, 1.0, 1.25, 1.5)  # of the strength that takes the first component's mean out
_LEAST = 20  # texts to choose by; ten of each half


class Decoder(Protocol):
    """What an adjustment is fitted on: the part of `KeyTokenEmbedder` that is used here."""

    backbone: Backbone
    head: TokenHead

    def embed(self, texts: Iterable[str], *, show_progress_bar: bool = False) -> Vectors:
        """Return the embeddings of texts, not adjusted."""


@dataclass(frozen=True, eq=False)
class Adjustment:
    """What is added to every embedding before it is decoded.

    Attributes:
        kind: "none", "mean" (the corpus mean is subtracted) or "component" (a multiple of u_1 is added).
        offset: float32 [d]; None for "none".
        strength: for "component" its lambda: how much of the unit vector u_1, which points to the side of the mean
            embedding, is added. Negative where the component is made smaller.
        texts: how many texts it was fitted on.
    """

    kind: AdjustmentKind = "none"
    offset: Vectors | None = None
    strength: float = 0.0
    texts: int = 0

    def __post_init__(self) -> None:
        """Check that kind and offset go together.

        Raises:
            InputError: they do not, or the offset is not a row of finite numbers.
        """
        if self.kind not in ADJUSTMENTS:
            raise InputError(f"adjustment is {self.kind!r:.40}; it must be one of {', '.join(ADJUSTMENTS)}")
        if (self.offset is None) != (self.kind == "none"):
            wants = "has no" if self.kind == "none" else "needs an"
            raise InputError(f"an adjustment of kind {self.kind!r} {wants} offset")
        if type(self.strength) not in (int, float) or not abs(self.strength) < 1e18:  # nor NaN
            raise InputError(f"an adjustment's strength is {self.strength!r:.40}; it must be a finite number")
        if type(self.texts) is not int or self.texts < 0:
            raise InputError(f"an adjustment's texts are {self.texts!r:.40}; it must be a number of texts")
        if self.offset is not None:
            offset = np.asarray(self.offset, np.float32)
            if offset.ndim != 1 or not np.isfinite(offset).all():
                raise InputError(f"an adjustment's offset must be [d] finite numbers, got shape {offset.shape}")
            object.__setattr__(self, "offset", offset)

    def apply(self, embeddings: Vectors) -> Vectors:
        """Return the embeddings [n, d] with the offset added; zero rows, texts without tokens, stay zero.

        Raises:
            InputError: they are of another width.
        """
        if self.offset is None:
            return embeddings
        if embeddings.shape[1] != len(self.offset):
            raise InputError(
                f"the adjustment is of {len(self.offset)} dimensions and the embeddings of {embeddings.shape[1]}; "
                "fit one on this model"
            )
        known = embeddings.any(axis=1, keepdims=True)
        adjusted: Vectors = np.where(known, embeddings + self.offset, np.float32(0)).astype(np.float32)
        return adjusted


def mean_adjustment(embeddings: Vectors) -> Adjustment:
    """Return the subtraction of the mean embedding.

    Args:
        embeddings: float32 [n, d]; zero rows do not count.

    Raises:
        InputError: fewer than two rows are not zero: minus their mean, nothing would be left of them.
    """
    rows = _known(embeddings)
    return Adjustment("mean", -rows.mean(axis=0, dtype=np.float64).astype(np.float32), 0.0, len(rows))


def component_adjustment(
    embeddings: Vectors, strength: float | None = None, *, tuned: Vectors | None = None
) -> Adjustment:
    """Return the addition of a multiple of the first principal component (paper, section 4.3).

    Args:
        embeddings: float32 [n, d] of the language model; zero rows do not count.
        strength: lambda. None: v_1, the mean of (tuned - plain) along u_1, where tuned embeddings are given; else what
            brings the mean embedding's part along u_1 to 0.
        tuned: float32 [n, d] of the same texts by an embedder made from the model.

    Raises:
        InputError: fewer than two rows are not zero, or `strength` is not finite.
    """
    rows = _known(embeddings)
    first = spectrum_of(rows).first  # points to the side of the mean
    if strength is None and tuned is not None:
        if tuned.shape != embeddings.shape:
            raise InputError(f"tuned embeddings of shape {tuned.shape} are not of the same texts {embeddings.shape}")
        strength = float((_known(tuned).mean(axis=0) - rows.mean(axis=0)) @ first)
    if strength is None:
        strength = -float(rows.mean(axis=0) @ first)
    if not np.isfinite(strength):
        raise InputError(f"strength is {strength!r:.40}; it must be a finite number")
    return Adjustment("component", (strength * first).astype(np.float32), float(strength), len(rows))


def _known(embeddings: Vectors) -> Vectors:
    """Return the rows that are not zero."""
    rows = embeddings[embeddings.any(axis=1)]
    if len(rows) < 2:
        raise InputError(
            f"an adjustment is fitted on texts, at least two that the model reads something in; got {len(rows)} of "
            f"{len(embeddings)}"
        )
    return rows


def fit_adjustment(
    model: Decoder,
    texts: Iterable[str],
    kind: str,
    *,
    strength: float | None = None,
    tuned: Decoder | None = None,
    show_progress_bar: bool = False,
) -> Adjustment:
    """Return an adjustment of a model's embeddings; see `KeyTokenEmbedder.fitted`."""
    if kind not in (*ADJUSTMENTS, "best"):
        raise InputError(f"adjustment is {kind!r:.40}; it must be one of {', '.join((*ADJUSTMENTS, 'best'))}")
    if kind != "component" and not (strength is None and tuned is None):
        raise InputError(f"strength and tuned belong to the adjustment 'component', not to {kind!r}")
    if strength is not None and tuned is not None:
        raise InputError("give strength or tuned, not both: each says how much of the component is added")
    if kind == "none":
        return Adjustment()
    if kind == "best":
        return choose_adjustment(model, texts, show_progress_bar=show_progress_bar).adjustment
    sample = check_texts(texts)
    plain = model.embed(sample, show_progress_bar=show_progress_bar)
    if kind == "mean":
        return mean_adjustment(plain)
    other = None if tuned is None else tuned.embed(sample, show_progress_bar=show_progress_bar)
    return component_adjustment(plain, strength, tuned=other)


@dataclass(frozen=True)
class AdjustmentChoice:
    """The adjustments tried on a sample, and the best.

    Attributes:
        adjustment: the best, fitted on the whole sample.
        scores: name -> score, in the order tried; the best is the first of the highest.
        best: its name.
    """

    adjustment: Adjustment
    scores: dict[str, float]
    best: str


def choose_adjustment(model: Decoder, texts: Iterable[str], *, show_progress_bar: bool = False) -> AdjustmentChoice:
    """Try the adjustments on a sample of texts and take the one with the highest alignment rate.

    The score is the Local Alignment Rate (paper, Eq. 7) with each token weighted by ln(texts / texts that hold it): a
    token that every text has adds nothing, so that being aligned with stop words, as plain embeddings are, scores low,
    and no list of stop words is needed. It is measured on each half of the sample with the adjustment fitted on the
    other half, and averaged. Tried are none, the mean, and the first component with 0.5 to 1.5 times the strength
    that takes its mean out.

    Args:
        model: whose adjustment is chosen; its own does not count.
        texts: at least 20 that the model reads something in, such as it will be used on.
        show_progress_bar: show a bar while they are embedded.

    Raises:
        InputError: there are fewer, or an item is no string.
    """
    sample = check_texts(texts)
    embeddings = model.embed(sample, show_progress_bar=show_progress_bar)
    known = np.flatnonzero(embeddings.any(axis=1))
    if len(known) < _LEAST:
        raise InputError(f"an adjustment is chosen by {_LEAST} texts or more, got {len(known)} that have tokens")
    halves = (known[::2], known[1::2])
    names = ["none", "mean", *(f"component x {multiple:g}" for multiple in _MULTIPLES)]
    scores = dict.fromkeys(names, 0.0)
    for fit, test in (halves, halves[::-1]):
        for name, adjustment in zip(names, _candidates(embeddings[fit]), strict=True):
            scores[name] += _weighted_rate(model, adjustment, [sample[n] for n in test], embeddings[test]) / len(halves)
    best = max(scores, key=lambda name: round(scores[name], 6))
    chosen = dict(zip(names, _candidates(embeddings), strict=True))[best]
    return AdjustmentChoice(chosen, scores, best)


def _candidates(embeddings: Vectors) -> list[Adjustment]:
    whole = component_adjustment(embeddings)
    parts = [component_adjustment(embeddings, multiple * whole.strength) for multiple in _MULTIPLES]
    return [Adjustment(), mean_adjustment(embeddings), *parts]


def _weighted_rate(model: Decoder, adjustment: Adjustment, texts: list[str], embeddings: Vectors) -> float:
    """Return the local alignment rate of adjusted embeddings, each token weighted by how few texts hold it."""
    rows, head = decodable(model.backbone, model.head, adjustment.apply(embeddings))
    own = [set(tokens) for tokens in literal_tokens(model.backbone.tokenizer, texts)]
    kept = [n for n, tokens in enumerate(own) if tokens]
    held = Counter(token for n in kept for token in own[n])
    weights = {token: float(np.log(len(kept) / count)) for token, count in held.items()}
    total, weighable = 0.0, 0
    for start in range(0, len(kept), TEXTS):
        block = kept[start : start + TEXTS]
        ranked = top_tokens(rows[block], head, max(len(own[n]) for n in block)).ids.tolist()
        for n, found in zip(block, ranked, strict=True):
            whole = sum(weights[token] for token in own[n])
            if whole > 0:  # else every token is in all texts
                weighable += 1
                total += sum(weights[token] for token in own[n].intersection(found[: len(own[n])])) / whole
    return total / max(weighable, 1)


def decodable(backbone: Backbone, head: TokenHead, embeddings: Vectors) -> tuple[Vectors, Any]:
    """Return embeddings [n, d] behind the head's own layers, and the rows to multiply them with; a bias as a column."""
    rows = before_rows(backbone, embeddings)
    if head.bias is None:
        return rows, head.weight
    return np.column_stack([rows, np.ones(len(rows), np.float32)]), HeadRows(head.weight, head.bias)


def literal_tokens(tokenizer: Any, texts: Sequence[str]) -> list[frozenset[int]]:
    """Return the set T of each text's tokens, special ones left out, of the whole text however long it is.

    Args:
        tokenizer: a fast one of transformers. A special token's string in a text is read as text.
        texts: what to read.
    """
    from tokenizers import Tokenizer

    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = True
    special = vocabulary_of(tokenizer)[1]
    encoded = copy.encode_batch([well_formed(text) for text in texts], add_special_tokens=False)
    return [frozenset(one.ids) - special for one in encoded]
