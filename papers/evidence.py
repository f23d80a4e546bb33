"""What is said of a claim: one rule for every page, by the interval of what was measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

DRAWS = 1000
WORDS = {True: "holds", False: "does not hold", None: "undecided"}
"""What `Interval.above` returns -> the word of it on a page."""


class Interval(NamedTuple):
    """A value and the ends of its 95 % interval (or of all its seeds)."""

    value: float
    low: float
    high: float

    def above(self, bound: float = 0.0) -> bool | None:
        """Return whether the value is above a bound: True if all of the interval is, False if none of it, else None."""
        return True if self.low > bound else False if self.high <= bound else None

    def verdict(self, bound: float = 0.0) -> str:
        """Return what it says of the claim that the value is above a bound, in Markdown; bold where it is decided."""
        decided = self.above(bound)
        return WORDS[decided] if decided is None else f"**{WORDS[decided]}**"

    def signed(self) -> str:
        """Write a difference."""
        return f"{self.value:+.1f} ({self.low:+.1f} to {self.high:+.1f})"

    def told(self) -> str:
        """Write a difference and what it says of the claim that it is above 0."""
        return f"{self.signed()}, {self.verdict()}"


def resampled(count: int, draws: int = DRAWS) -> npt.NDArray[np.int64]:
    """Return the items of bootstrap samples of `count` items, [draws, count]; always the same ones."""
    return np.random.default_rng(0).integers(0, count, (draws, count))


def bootstrap(
    items: npt.NDArray[Any], score: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], draws: int = DRAWS
) -> npt.NDArray[Any]:
    """Return the score of items [count, ...], and then that of each bootstrap sample of them: [1 + draws].

    Args:
        items: what is drawn.
        score: of items [samples, count, ...], one for each sample.
        draws: how many samples.
    """
    return np.concatenate([score(items[None]), score(items[resampled(len(items), draws)])])


def interval_of(scores: npt.NDArray[Any]) -> Interval:
    """Return the 95 % interval of a score from those of its bootstrap samples, [1 + draws]."""
    low, high = np.quantile(scores[1:], (0.025, 0.975))
    return Interval(float(scores[0]), float(low), float(high))


def interval_of_means(difference: float, *errors: float) -> Interval:
    """Return the 95 % interval of a sum or difference of means with these standard errors."""
    half = 1.96 * float(np.hypot.reduce(errors))
    return Interval(difference, difference - half, difference + half)
