"""Weights of the parts of an index, chosen on some judged queries and measured on others.

What was chosen on the queries it is measured on looks better than it is. So either two sets of queries are given, or
the one is divided: each of five folds is measured with the weights that are best on the other four.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError
from pellucid.index.evaluating import Asked, Floats, PartWeight, Queries, Relevant, TunedWeights
from pellucid.views.parts import counted

_FOLDS = 5
_LEAST = 20  # queries that weights are chosen on
_RESAMPLES = 5_000
_STEPS = (10, 5, 4, 2, 1)  # into which a weight is divided; the first that gives few enough
_MOST = 70  # weights that are tried

Weights = dict[str, float]


def tuned_across(asked: Asked, top_k: int, advance: Callable[[int], None]) -> TunedWeights:
    """Choose and measure weights on the same queries, in folds.

    Args:
        asked: the queries.
        top_k: of nDCG.
        advance: is told how many searches were made.

    Raises:
        InputError: there are fewer than 20 queries, or only one part.
    """
    tried = candidates(asked.own)
    _check(asked, tried)
    values = _values(asked, tried, top_k, advance)
    folds = np.random.default_rng(0).permutation(values.shape[1]) % _FOLDS
    after = np.zeros(values.shape[1])
    for fold in range(_FOLDS):
        after[folds == fold] = values[_best(values[:, folds != fold], tried, asked.own)][folds == fold]
    best = tried[_best(values, tried, asked.own)]
    return _measured(best, tried, (len(after), 0), _FOLDS, values[0], after)


def tuned_on(
    asked: Asked, queries: Queries, development: Relevant, top_k: int, advance: Callable[[int], None]
) -> TunedWeights:
    """Choose weights on some queries, and measure them on others; one that is among both chooses nothing.

    Args:
        asked: those to measure on.
        queries: with those to choose on.
        development: the judgements of these.
        top_k: of nDCG.
        advance: is told how many searches were made.

    Raises:
        InputError: there are fewer than 20 to choose on, or the index has one part.
    """
    if not isinstance(development, Mapping):
        raise InputError(f"tune is {development!r:.60}; give True, or judgements of other queries")
    measured = set(asked.queries.values())
    texts = {str(own): text for own, text in queries.items()}
    others = {
        own: of
        for own, of in development.items()
        if str(own) not in asked.queries and texts.get(str(own)) not in measured
    }
    shared = len(development) - len(others)
    if len(others) < _LEAST:
        raise InputError(
            f"{counted(len(others), 'judged query', 'judged queries')} to choose weights on, beside {shared:,} that "
            f"are measured as well; give {_LEAST} or more others"
        )
    chooser = Asked(asked.index, queries, others)
    tried = candidates(asked.own)
    _check(chooser, tried)
    values = _values(chooser, tried, top_k, advance)
    best = tried[_best(values, tried, asked.own)]
    before, after = asked.ndcg(asked.own, top_k), asked.ndcg(best, top_k)
    return _measured(best, tried, (len(chooser.queries), shared), 0, before, after)


def candidates(own: Weights) -> list[Weights]:
    """Return weights to try: those of the index first, then all in equal steps.

    >>> len(candidates({"bm25": 0.7, "dense": 0.3})), len(candidates({"a": 0.5, "b": 0.25, "c": 0.25}))
    (11, 67)
    """
    names = list(own)
    steps = next(steps for steps in _STEPS if steps == 1 or len(list(_shares(len(names), steps))) <= _MOST)
    every = [{name: part / steps for name, part in zip(names, parts)} for parts in _shares(len(names), steps)]
    return [own, *(weights for weights in every if _distance(weights, own) > 1e-9)]


def _shares(parts: int, total: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to divide a total among some parts."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        yield from ((first, *rest) for rest in _shares(parts - 1, total - first))


def _check(asked: Asked, tried: Sequence[Weights]) -> None:
    if len(asked.own) < 2:
        raise InputError(f"the index has one part, {next(iter(asked.own))!r:.60}; there are no weights to tune")
    if len(asked.queries) < _LEAST:
        raise InputError(f"{len(asked.queries)} judged queries are too few to choose weights on; give {_LEAST} or more")


def _values(asked: Asked, tried: Sequence[Weights], top_k: int, advance: Callable[[int], None]) -> Floats:
    """Return the nDCG of each of the weights on each query, float64 [weights, queries]."""
    values = []
    for weights in tried:
        values.append(asked.ndcg(weights, top_k))
        advance(len(asked.queries))
    return np.array(values)


def _best(values: Floats, tried: Sequence[Weights], own: Weights) -> int:
    """Return which weights have the best mean; of equal ones the nearest to the index's own."""
    means = values.mean(axis=1)
    best = np.flatnonzero(means >= means.max() - 1e-9).tolist()
    return int(min(best, key=lambda number: _distance(tried[number], own)))


def _distance(first: Weights, second: Weights) -> float:
    return sum(abs(first[name] - second[name]) for name in first)


def _measured(
    best: Weights, tried: Sequence[Weights], chosen: tuple[int, int], folds: int, before: Floats, after: Floats
) -> TunedWeights:
    gains = after - before
    low, high = interval(gains)
    weights = tuple(PartWeight(*item) for item in best.items())
    means = float(before.mean()), float(after.mean()), float(gains.mean())
    return TunedWeights(weights, len(tried), *chosen, len(gains), folds, *means, low, high)


def interval(gains: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return where 95 % of the means of resampled queries lie."""
    draws = np.random.default_rng(0)
    means = [gains[draws.integers(len(gains), size=len(gains))].mean() for _ in range(_RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
