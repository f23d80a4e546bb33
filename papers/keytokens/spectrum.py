"""What tuning does to the principal components of an embedding space, and which tokens the first of them feeds.

"A Text is Worth Several Tokens", section 4, on the spectra of `pellucid.core.pca`: `variation` is its Figure 3,
`contributions` its Figure 4a, `sweep` its Figure 4b: the tokens of h + lambda u_1, and the rates, for several lambda.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from papers.keytokens.rates import EmbeddedTexts, ModelAlignment, Stems, measure
from papers.kit import Table
from papers.spectra import level, split
from pellucid.core.pca import Moments, Spectrum
from pellucid.errors import InputError
from pellucid.keytokens.head import head_rows, top_tokens


class Shift(NamedTuple):
    """What tuning adds to the embeddings along one component on average (Eq. 10); components are numbered from 1."""

    component: int
    variation: float


class Variation(NamedTuple):
    """How fine-tuning moves text embeddings along each principal component of its backbone's.

    Attributes:
        base: the name of the backbone.
        tuned: the name of its fine-tuned version.
        dominance: the share of the first component in the squared length of v.
        components: all of them, by descending singular value. The first has the paper's v_1, the amount lambda of its
            adjustment h + lambda u_1.
    """

    base: str
    tuned: str
    dominance: float
    components: tuple[Shift, ...]


def variation(base: Any, tuned: Any, *, names: tuple[str, str] = ("backbone", "tuned")) -> Variation:
    """Measure how tuning moves embeddings along the principal components of the backbone's (Eq. 9 and 10).

    Args:
        base: the backbone's embeddings, [n, d], or an iterable of blocks.
        tuned: the tuned model's of the same texts, in the same order and the same blocks.
        names: of the two.

    Raises:
        InputError: the models differ in width or the numbers of texts differ, there are fewer than two texts, or a
            number is NaN or infinity.
    """
    moments, shifts = Moments(), Moments()
    for one, other in zip_longest(*([rows] if hasattr(rows, "shape") else rows for rows in (base, tuned))):
        if one is None or other is None or np.shape(one) != np.shape(other):
            shapes = [None if block is None else np.shape(block) for block in (one, other)]
            raise InputError(
                f"the blocks have shapes {shapes[0]} ({names[0]}) and {shapes[1]} ({names[1]}); both models must be of "
                "one width, the tuned one made from the backbone, and embed the same texts in the same blocks"
            )
        moments.add(one)
        shifts.add(np.asarray(other, np.float64) - np.asarray(one, np.float64))
    moved = moments.spectrum().components @ shifts.mean
    length = float(moved @ moved)
    dominance = float(moved[0] ** 2 / length) if length > 0 else 0.0
    return Variation(*names, dominance, tuple(Shift(j, value) for j, value in enumerate(moved.tolist(), 1)))


def variation_table(found: Sequence[Variation]) -> Table:
    """Return the first components of each variation."""
    rows: list[list[Any]] = []
    for one in found:
        first, *others = (f"{shift.variation:+.2f}" for shift in one.components[:5])
        rows.append([one.base, one.tuned, first, f"{one.dominance:.0%}", *others])
    return Table(["from", "to", "v1", "share of v1", "v2", "v3", "v4", "v5"], rows, 8)


def contributions(found: Spectrum, given: EmbeddedTexts, *, text: int = 0, k: int = 10) -> Table:
    """Return the scores of a text's first tokens, split into the first component's part and the rest (Eq. 11 and 12).

    Args:
        found: the spectrum of the backbone's embeddings.
        given: texts with embeddings.
        text: the number of the text.
        k: tokens shown: of those that score highest, and of those that do without the first component.

    Raises:
        InputError: `k` is out of range, or the widths differ.
    """
    row = np.asarray(given.embeddings, np.float32)[text : text + 1]
    (first,), (rest,) = split(found, row)
    rows = []
    for by, ranked in (("score", row), ("rest", rest[None])):
        for token in top_tokens(ranked, given.head, k).ids[0].tolist():
            vector = head_rows(given.head, token, token + 1)[0].astype(np.float64)
            parts = (f"{part @ vector:+.3f}" for part in (first + rest, first, rest))
            rows.append([by, given.name(token), *parts])
    return Table(["highest by", "token", "score", "first component", "rest"], rows, 2)


FACTORS = (0.0, 0.5, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5)
"""Of the amount that takes the first component out on average, or of v_1."""


class SweepStep(NamedTuple):
    """One amount of the first component added.

    Attributes:
        factor: the amount over the sweep's unit.
        amount: lambda of h + lambda u_1.
        alignment: the rates of the moved embeddings.
    """

    factor: float
    amount: float
    alignment: ModelAlignment


def sweep(
    found: Spectrum,
    given: EmbeddedTexts,
    *,
    unit: float | None = None,
    k: int = 10,
) -> list[SweepStep]:
    """Add factor x unit x u_1 to embeddings, for each of `FACTORS`, and measure what they then say (Eq. 14).

    Args:
        found: the spectrum of the backbone's embeddings.
        given: texts with embeddings of the backbone.
        unit: the paper's v_1 where there is a tuned model; None takes the amount that makes the mean part along u_1
            zero.
        k: of Hit@K.

    Raises:
        InputError: as `measure`.
        MissingExtraError: snowballstemmer or simplemma is not installed.
    """
    size = -level(found) if unit is None else unit
    stems, steps = Stems(), []
    for factor in FACTORS:
        amount = factor * size + 0.0
        moved = replace(given, embeddings=np.asarray(given.embeddings) + np.float32(amount) * found.components[0])
        steps.append(SweepStep(factor, amount, measure(f"{factor:g}", moved, k, stems=stems)))
    return steps


def sweep_table(steps: Sequence[SweepStep]) -> Table:
    """Return the rates of a sweep, in percent."""
    rows: list[list[Any]] = []
    for step in steps:
        a = step.alignment
        rates = (100 * rate for rate in (a.hit, a.lar, a.gar, a.weighted_lar))
        rows.append([f"{step.factor:g}", f"{step.amount:+.2f}", *rates])
    return Table(["factor", "lambda", "Hit@10", "LAR", "GAR", "weighted LAR"], rows, 6)
