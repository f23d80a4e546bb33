"""Rows on a language model: which ones, what each test item came to, and the tables with intervals drawn again from it.

    python -m papers.lens.kept_results --write

A line of `results/smollm2.jsonl` holds of a row the cosine of each STS pair, nDCG or average precision of each query,
whether each text was given its class, and the cluster each title fell into; `language_model.py` measures it. What
people said of the pairs and the titles' right clusters, the same for all rows, stand once. Seeds are drawn as items
are: the same ones for both models of a difference. Floors and ceilings, what needs no training here, are measured on
the same items.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from papers.kit import (
    DRAWS,
    MIN_SEEDS,
    Figure,
    Interval,
    Kept,
    Table,
    Verdict,
    bootstrap,
    experiment,
    interval_of,
    run_script,
    wrapped,
)
from papers.lens.samples import CLASSES, RETRIEVAL, STS, score_of
from papers.lens.tables import PUBLISHED
from recipes.lexicon_smollm2 import Row

RESULTS = Path(__file__).with_name("results") / "smollm2.jsonl"
KINDS = ("STS", "retrieval", "reranking", "classification", "clustering")
KIND_OF = {
    **dict.fromkeys(STS, "STS"),
    **dict.fromkeys(RETRIEVAL, "retrieval"),
    "WikiQA": "reranking",
    **dict.fromkeys(CLASSES, "classification"),
    "StackOverflow": "clustering",
}

Draws = npt.NDArray[np.float64]

SEEDS = tuple(range(MIN_SEEDS))
MODELS = {
    "4,000 clusters": Row(),
    "dense, mean": Row(pooling="mean", clusters=0),
    "all tokens": Row(clusters=None),
    "24,600 clusters": Row(clusters=24_600),
    "dense, last": Row(pooling="last", clusters=0),
    "12,300 clusters": Row(clusters=12_300),
}
"""A half and a quarter of this vocabulary: the paper's 16,000 and 8,000 of 32,000 tokens."""

MAXIMUM = "maximum of 4,000 clusters"
RAW, LAST, DEEPER = "4,000 clusters of raw rows", "4,000 clusters, last", "4,000 clusters, 20 layers both ways"
PAIRS = "pairs alone: "
LATER = {
    "8,000 clusters": Row(clusters=8000),
    RAW: Row(raw=True),
    LAST: Row(pooling="last", head="last"),
    f"{PAIRS}4,000 clusters": Row(pairs=True),
    f"{PAIRS}dense, mean": Row(pooling="mean", clusters=0, pairs=True),
    f"{PAIRS}all tokens": Row(clusters=None, pairs=True),
    f"{PAIRS}24,600 clusters": Row(clusters=24_600, pairs=True),
    f"{PAIRS}12,300 clusters": Row(clusters=12_300, pairs=True),
    f"{PAIRS}2,000 clusters": Row(clusters=2000, pairs=True),
    DEEPER: Row(upper=20),
}
"""What was asked later, after the fewest batches alone; "last" has thresholds of its own."""
DECISIVE = ("24,600 clusters", "dense, last")
"""What one claim alone is about that its seeds agree on."""

STEPS = (96, 400, 1500)
LONGEST = ("24,600 clusters", "dense, mean", "4,000 clusters", "all tokens")
FLOORS = ("BM25", "BM25, stemmed", "static-en", "all-MiniLM-L6-v2", "lexicon-minilm")
"""What a trained row stands beside, on the same samples and as much of each text; BM25 ranks alone."""

PRUNED = (881, 512, 256)  # coordinates; 881 is what a text has with 4,000 clusters on average
CLAIMS: dict[str, list[str]] = PUBLISHED["claims_over_seeds"]
"""What is said in words, and the two rows it is about; after the fewest batches rows have most seeds."""

COMPARED = (
    *CLAIMS.values(),
    ("all tokens", "dense, mean"),
    ("dense, mean", "dense, last"),
    *((row, "BM25, stemmed") for row in ("4,000 clusters", "24,600 clusters", "dense, mean")),
    ("dense, mean", "all-MiniLM-L6-v2"),
    *((f"all tokens, {most} largest", "all tokens") for most in PRUNED),
    (f"all tokens, {MAXIMUM}", "all tokens"),
)

_DIFFERENCE = ["difference", "seeds", "mean", "STS", "retrieval", "of each seed", "verdict"]


@dataclass(frozen=True)
class Measured:
    """The scores of one model.

    Attributes:
        scores: set -> the score x 100, and then that of each bootstrap sample, [1 + draws].
        active: coordinates of a text that are not zero, on average; None for dense models.
    """

    scores: Mapping[str, Draws]
    active: float | None = None

    def has(self, kind: str) -> bool:
        """Return whether all sets of a kind, or all sets ("mean"), were measured."""
        return all(name in self.scores for name, of in KIND_OF.items() if kind in (of, "mean"))

    def kind(self, kind: str) -> Draws:
        """Return the mean over the sets of a kind, or over the means of all kinds ("mean")."""
        if kind == "mean":
            return np.mean([self.kind(other) for other in KINDS], axis=0)
        return np.mean([self.scores[name] for name, of in KIND_OF.items() if of == kind], axis=0)


def planned() -> list[dict[str, Any]]:
    """Return the settings of all rows, those that tell most first; floors have no batches and no seeds."""
    few, more, most = STEPS
    pairs = [label for label in LATER if label.startswith(PAIRS)]
    asked = ((DECISIVE, few), (pairs, few), (MODELS, few), (MODELS, more), (LONGEST, most), (LATER, few))
    rows = [(label, steps, seed) for labels, steps in asked for seed in SEEDS for label in labels]
    rows = [*((label, 0, 0) for label in FLOORS), *dict.fromkeys(rows)]
    return [dict(zip(("label", "steps", "seed"), row)) for row in rows]


@experiment({})
def given(bench: Any) -> dict[str, Any]:
    """Return set -> what people said of each item."""
    return {sample.name: sample.given.tolist() for sample in bench.samples if sample.given is not None}


@experiment(*planned())
def measured(bench: Any, label: str, steps: int, seed: int) -> dict[str, Any]:
    """Return set -> what was found of each item, beside facts; "made": the same of what is made of the embeddings."""
    found: dict[str, Any] = bench.floor(label) if label in FLOORS else bench.trained(label, steps, seed)
    return found


def measure_rest(path: Path, bench: Any) -> None:
    """Measure the rows that are not kept.

    Raises:
        SystemExit: what is kept is of other samples.
    """
    kept = Kept(path)
    if given.rows(kept, bench) != [given.measure(bench)]:
        raise SystemExit(f"{path} is of other samples; move it away, and all rows are measured again")
    measured.rows(kept, bench)


def read(path: Path) -> dict[int, dict[str, dict[int, Measured]]]:
    """Return batches -> label -> seed -> the scores, with those of bootstrap samples of each set."""
    kept, places = Kept(path), list(FLOORS + tuple(MODELS | LATER))
    (people,) = given.rows(kept, part=-1)  # none is measured here
    found: dict[int, dict[str, dict[int, Measured]]] = {steps: {} for steps in (0, *STEPS)}
    for row in sorted(measured.rows(kept, part=-1), key=lambda row: places.index(row["label"])):
        for end, one in {"": row, **{f", {made}": items for made, items in row.get("made", {}).items()}}.items():
            scores = {
                name: bootstrap(np.array([one[name], *([people[name]] if name in people else [])]).T, score_of(name))
                for name in KIND_OF
                if name in one
            }
            seeds = found[row["steps"]].setdefault(row["label"] + end, {})
            seeds[row["seed"]] = Measured(scores, one["coordinates"])
    return found


def over_seeds(seeds: Sequence[Measured]) -> Measured:
    """Return the mean of a row's seeds; a bootstrap sample is of the items and of the seeds, drawn with return."""
    chosen = np.random.default_rng(1).integers(len(seeds), size=(len(seeds), DRAWS))
    scores = {}
    for name in seeds[0].scores:
        every = np.stack([one.scores[name] for one in seeds])
        drawn = every[chosen, np.arange(1, DRAWS + 1)].mean(axis=0)
        scores[name] = np.concatenate([[every[:, 0].mean()], drawn])
    active = [one.active for one in seeds if one.active is not None]
    return Measured(scores, float(np.mean(active)) if active else None)


def figures(path: Path = RESULTS) -> Iterator[tuple[str, Figure]]:
    """Yield what is said of all kept rows: claims, scores averaged over seeds, and differences with intervals."""
    every = read(path)
    floors = {label: dict.fromkeys(SEEDS, one[0]) for label, one in every.pop(0).items()}  # the same for all seeds
    for steps, rows in every.items():
        if rows:
            found = rows | floors
            yield f"claims-{steps}", _said(found)
            yield f"scores-{steps}", _scores_table(found)
            pairs = {f"{better} - {worse}": _paired(found, better, worse) for better, worse in COMPARED}
            differences = [_compared(name, pair) for name, pair in pairs.items() if pair]
            yield f"differences-{steps}", Table(_DIFFERENCE, differences)
    lines = []
    for label in MODELS:
        for fewer, more in combinations(STEPS, 2):
            batches = {"fewer": every[fewer].get(label, {}), "more": every[more].get(label, {})}
            if pair := _paired(batches, "more", "fewer"):
                lines.append(_compared(f"{label}, {more:,} batches - {fewer}", pair))
    if lines:
        yield "more-batches", Table(_DIFFERENCE, lines)


def _said(found: Mapping[str, Mapping[int, Measured]]) -> str:
    """Return which claims hold, in words."""
    said = {verdict.value: list[str]() for verdict in Verdict}
    for claim, (better, worse) in CLAIMS.items():
        if pair := _paired(found, better, worse):
            mean, seeds = pair.difference("mean"), len(pair.seeds)
            text = f"{claim}, {mean.signed()}, {seeds} seed{'s' * (seeds > 1)}"
            said[mean.difference_verdict().value].append(text)
    return said_list(said)


def said_list(said: Mapping[str, list[str]]) -> str:
    """Return a list with a line for each verdict that claims have."""
    lines = (f"- {judged.capitalize()}: {'; '.join(claims)}." for judged, claims in said.items() if claims)
    return "\n".join(wrapped(line, indent="  ", width=118) for line in lines)


def _scores_table(found: Mapping[str, Mapping[int, Measured]]) -> Table:
    """Return the means over seeds; floors first, in bold."""
    means = {label: over_seeds(list(seeds.values())) for label, seeds in found.items()}
    lines = [
        [
            f"**{label}**" if label in FLOORS else label,
            None if label in FLOORS else len(found[label]),
            *(float(one.kind(kind)[0]) if one.has(kind) else None for kind in (*KINDS, "mean")),
            None if one.active is None else f"{one.active:,.0f}",
        ]
        for label, one in sorted(means.items(), key=lambda one: one[0] not in FLOORS)
    ]
    return Table(["", "seeds", *KINDS, "mean", "coordinates of a text"], lines)


class _Pair(NamedTuple):
    """Two rows: the scores of each seed that both have, and over those seeds."""

    seeds: list[tuple[Measured, Measured]]
    better: Measured
    worse: Measured

    def difference(self, kind: str) -> Interval:
        return interval_of(self.better.kind(kind) - self.worse.kind(kind), len(self.seeds))


def _paired(found: Mapping[str, Mapping[int, Measured]], better: str, worse: str) -> _Pair | None:
    """Return two rows; None where no seed was measured of both."""
    others = found.get(worse, {})
    seeds = [(one, others[seed]) for seed, one in found.get(better, {}).items() if seed in others]
    return _Pair(seeds, *(over_seeds(side) for side in zip(*seeds))) if seeds else None


def _compared(name: str, pair: _Pair) -> list[Any]:
    """Return a line: the difference of two rows over the seeds that both have."""
    retrieval = pair.difference("retrieval")
    if not pair.worse.has("mean"):
        verdict = f"retrieval: {retrieval.difference_verdict()}"
        return [name, len(pair.seeds), None, None, retrieval.signed(), None, verdict]
    mean, sts = pair.difference("mean"), pair.difference("STS")
    each = ", ".join(f"{one.kind('mean')[0] - other.kind('mean')[0]:+.1f}" for one, other in pair.seeds)
    return [name, len(pair.seeds), mean.signed(), sts.signed(), retrieval.signed(), each, mean.difference_verdict()]


if __name__ == "__main__":
    run_script(lambda options: figures())
