"""How many texts each dimension fires on, and the edits that follow from it: what is common counts less, or goes.

The LENS paper (section 5.5) proposes to down-weight or drop what is frequent over a corpus. The weight is the inverse
document frequency of information retrieval, with a dimension in the place of a word; an edit like any other, saved with
the model. What "fires" means is in `coordinates.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from pellucid.analysis.coordinates import spread
from pellucid.base import Embedder
from pellucid.errors import InputError
from pellucid.views.parts import AnyPart, Column, Heading, Note, TablePart, bars, counted, percent
from pellucid.views.report import Report

if TYPE_CHECKING:
    from pellucid.dimensions import Which


_SHOWN = 15  # rows in a view


class Frequency(NamedTuple):
    """How often one dimension fires.

    Attributes:
        name: of the dimension.
        texts: how many texts it fires on.
        rate: the same as a share of all.
        idf: log((N + 1) / (texts + 1)) for N texts: 0 where it fires on all of them.
    """

    name: str
    texts: int
    rate: float
    idf: float


@dataclass(frozen=True, repr=False)
class Frequencies(Report):
    """How often the dimensions of a model fire over a corpus.

    Attributes:
        family: the family of the model.
        texts: the number of texts, N.
        blank: how many more have no known word.
        measured: every dimension in order.
    """

    kind: ClassVar[str] = "frequencies"
    table: ClassVar[str] = "measured"

    family: str
    texts: int
    blank: int
    measured: tuple[Frequency, ...]

    def factors(self, strength: float = 1.0) -> dict[Which, float]:
        """Return for each dimension idf ** `strength` over the mean of them, so that the factors have mean 1.

        Args:
            strength: 0 gives 1 everywhere, 1 the idf itself. A dimension's part in a score grows with the square of its
                factor: 0.5 multiplies it by the idf once, 1 twice, as a cosine of tf-idf vectors does.

        Raises:
            InputError: `strength` is negative or so large that the factors leave the numbers.
        """
        if not 0 <= strength < math.inf:
            raise InputError(f"strength is {strength!r:.40}; it must be 0 or more")
        with np.errstate(over="ignore"):
            weights = np.array([item.idf for item in self.measured]) ** strength
        mean = float(weights.mean())
        if not 0 < mean < math.inf:
            raise InputError(
                f"idf to the power of {strength} has mean {mean} over the dimensions; take a smaller strength"
            )
        return dict(zip((item.name for item in self.measured), (weights / mean).tolist(), strict=True))

    def weighted(self, model: Embedder, strength: float = 0.5) -> Embedder:
        """Return `model` with each dimension scaled by its factor; one that fires on all texts is silent.

        Raises:
            InputError: `strength` is no use, or the model lacks a dimension that was counted.
        """
        return model.scale(self.factors(strength))

    def common(self, above: float) -> list[str]:
        """Return the dimensions that fire on more than the share `above` of the texts, the commonest first.

        Raises:
            InputError: `above` is not between 0 and 1.
        """
        if not 0 <= above <= 1:
            raise InputError(f"above is {above!r:.40}; it is a share of the texts, between 0 and 1")
        return [item.name for item in self._by_rate() if item.rate > above]

    def pruned(self, model: Embedder, above: float) -> Embedder:
        """Return `model` without its `common` dimensions.

        Raises:
            InputError: none would be left, or the model lacks one of them.
        """
        gone = self.common(above)
        return model.without(*gone) if gone else model

    def _by_rate(self) -> list[Frequency]:
        return sorted(self.measured, key=lambda item: (-item.texts, item.name))

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Frequencies", counted(len(self.measured), "dimension"), f"{self.family} model")
        blank = f" and {self.blank:,} more that the model knows nothing of" if self.blank else ""
        median = float(np.median([item.rate for item in self.measured]))
        never = sum(not item.texts for item in self.measured)
        yield Note(
            f"Over {counted(self.texts, 'text')}{blank}. Half of them fire on {percent(median)} of the texts or fewer; "
            f"{never:,} on none."
        )
        shown = self._by_rate()[:_SHOWN]
        heads = (Column("dimension"), Column("texts", "number"), Column("of all", "number"), Column("", "bar"))
        cells = zip(shown, bars([item.rate for item in shown]), strict=True)
        rows = tuple((i.name, f"{i.texts:,}", percent(i.rate), bar, f"{i.idf:.2f}") for i, bar in cells)
        yield TablePart("commonest", (*heads, Column("idf", "number")), rows)


def document_frequencies(model: Embedder, texts: Iterable[str]) -> Frequencies:
    """Count on how many of `texts` each dimension of `model` fires.

    Args:
        model: any family; it says most of the sparse ones.
        texts: a corpus like the texts the model is for, read once and in blocks.

    Raises:
        InputError: the model knows fewer than two of the texts, or an item is no string.
    """
    found = spread(model, texts)
    counts = np.rint(found.firing * found.texts).astype(int).tolist()
    rows = (
        Frequency(name, count, count / found.texts, math.log((found.texts + 1) / (count + 1)))
        for name, count in zip(model.dimensions.names, counts, strict=True)
    )
    return Frequencies(model.family, found.texts, found.blank, tuple(rows))
