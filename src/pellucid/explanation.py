"""What a score is made of: named rows that add up to it.

An `Explanation` is data. The views (`to_frame`, `to_json`, `to_html`, `plot`, the terminal table) read it and change
nothing. For a family that is exact, `sum(row.contribution) == score` to float precision and `remainder` is 0; for one
that cuts rows away, `remainder` holds what was cut and `exact` is False. This is arithmetic, not sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

SCHEMA_VERSION = 1
"""Version of the dict and JSON form. It changes when a key is renamed, removed or changes its meaning."""

Span = tuple[int, int]
"""Start and end of a stretch of a text, in characters."""


@dataclass(frozen=True)
class Row:
    """One named term of a score.

    Attributes:
        name: what a person reads ("loan × mortgage", an anchor text, a cluster of words).
        parts: the words or names it consists of: (word of text 1, word of text 2) for the static family.
        contribution: what it adds to the score; negative where it lowers it.
        share: contribution / score (0 where the score is 0). Shares add up to 1 less the remainder's.
        spans1: where it stands in text 1, in characters.
        spans2: where it stands in text 2.
    """

    name: str
    parts: tuple[str, ...]
    contribution: float
    share: float
    spans1: tuple[Span, ...] = ()
    spans2: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """A score taken apart.

    Attributes:
        family: the family of the model ("static", ...).
        text1: the first text, as the user gave it.
        text2: the second text; None when one text was explained.
        score: the cosine of the two embeddings; for one text the cosine of its embedding to itself: 1, or 0 when the
            model knows nothing of it.
        rows: the terms, by falling size of their contribution.
        remainder: score less the sum of the rows.
        exact: whether the family keeps every term, so that the remainder is 0.
        unknown1: stretches of text 1 that the model has no vector for.
        unknown2: the same for text 2.
    """

    family: str
    text1: str
    text2: str | None
    score: float
    rows: tuple[Row, ...]
    remainder: float = 0.0
    exact: bool = True
    unknown1: tuple[Span, ...] = ()
    unknown2: tuple[Span, ...] = ()

    @classmethod
    def from_terms(
        cls,
        family: str,
        texts: tuple[str, str | None],
        score: float,
        terms: Sequence[Row],
        *,
        exact: bool = True,
        unknown: tuple[tuple[Span, ...], tuple[Span, ...]] = ((), ()),
    ) -> Explanation:
        """Sort `terms`, set their shares and the remainder. An exact family's remainder is 0 by definition."""
        ordered = sorted(terms, key=lambda row: (-abs(row.contribution), row.name))
        rows = tuple(
            Row(r.name, r.parts, r.contribution, r.contribution / score if score else 0.0, r.spans1, r.spans2)
            for r in ordered
        )
        remainder = 0.0 if exact else score - sum(row.contribution for row in rows)
        return cls(family, *texts, score, rows, remainder, exact, *unknown)
