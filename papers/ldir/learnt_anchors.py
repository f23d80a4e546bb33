"""Anchors that are moved by gradient, and anchors in the numbers that a search may take, with floors and ceiling.

    python -m papers.ldir.learnt_anchors --data shared/data --work-dir WORK --write

Anchors are sentences of the corpus that the bundled ones come from. Learnt ones start at farthest points and are moved
as free vectors until the cosines of the sentences' coordinates are the encoder's. No test set is read for it; steps and
rate were chosen on the development split. What was measured is kept in WORK, and a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from papers.kit import MIN_SEEDS, Cell, Figure, Kept, Table, experiment, run_script
from papers.ldir.baselines import decorrelated
from papers.ldir.scored import FLOOR, Tests, beside, corpus_sentences, mean_of_draws, random_directions
from papers.ldir.tables import ENCODER, open_encoders
from papers.vector_cache import Vectors, unit_rows
from pellucid.anchors import farthest_points, kmeans_points

FPS, LEARNT, NAMED = "farthest points", "learnt", "learnt, then the nearest sentences"
STRENGTHS = {"decorrelated, strength 0.5": 0.5, "decorrelated, strength 1": 1.0}
OTHERS = (FPS, FLOOR, "decorrelated, strength 1")  # what a row stands beside, with the encoder and half as many anchors
STEPS, BATCH, RATE = 1_000, 256, 0.01
SEEDS = range(MIN_SEEDS)

Scores = Mapping[str, Mapping[str, Any]]
"""Kind of tests -> set -> the score x 100 and that of each bootstrap sample."""


class Given(NamedTuple):
    """The test sets as an encoder gives them, and the sentences [texts, d] at length 1 that anchors come from."""

    tests: Tests
    sentences: Vectors

    def scores(self, anchors: Vectors, *kinds: str) -> Scores:
        """Return the scores of anchors [n, d]."""
        found = {kind: getattr(self.tests, kind.lower())(lambda rows: rows @ anchors.T) for kind in kinds}
        return {kind: {name: np.round(s, 4).tolist() for name, s in sets.items()} for kind, sets in found.items()}


@experiment(n=(200, 500), seed=SEEDS)
def learnt_row(given: Given, n: int, seed: int) -> dict[str, Any]:
    """Measure each way to choose anchors, and how near they are to sentences and to those they started from."""
    start, floor = given.sentences[farthest_points(given.sentences, n, seed=seed)], floor_of(given, n, seed)
    learnt = moved(start, given.sentences, seed)
    ways = {FLOOR: floor, FPS: start, "kmeans": given.sentences[kmeans_points(given.sentences, n, seed=seed)]}
    ways |= {way: decorrelated(start, strength) for way, strength in STRENGTHS.items()}
    ways |= {LEARNT: learnt, NAMED: given.sentences[nearest(learnt, given.sentences)]}
    pairs = {way: (rows, start) for way, rows in ways.items() if way.startswith(("learnt", "decorrelated"))}
    pairs |= {
        f"{way}: the nearest": (ways[way], given.sentences[nearest(ways[way], given.sentences)])
        for way in (FLOOR, LEARNT)
    }
    return {
        "cosines": {name: float(np.einsum("nd,nd->n", *map(unit_rows, pair)).mean()) for name, pair in pairs.items()},
        "scores": {way: given.scores(rows, "STS", "retrieval") for way, rows in ways.items()},
    }


@experiment(n=(250, 500, 1_000, 2_000, 4_000), seed=SEEDS)
def search_row(given: Given, n: int, seed: int) -> dict[str, Any]:
    """Measure what anchors find, and as many random directions."""
    ways = {FLOOR: floor_of(given, n, seed), FPS: given.sentences[farthest_points(given.sentences, n, seed=seed)]}
    return {"scores": {way: given.scores(rows, "retrieval") for way, rows in ways.items()}}


def floor_of(given: Given, n: int, seed: int) -> Vectors:
    """Return random directions of the encoder's dimension."""
    return random_directions(n, given.sentences.shape[1], seed)


def moved(start: Vectors, sentences: Vectors, seed: int) -> Vectors:
    """Return anchors [n, d] moved from `start` until cosines of coordinates are near those of the sentences."""
    import torch

    anchors, rows = torch.tensor(start, requires_grad=True), torch.from_numpy(sentences)
    optimizer = torch.optim.Adam([anchors], RATE)
    for drawn in np.random.default_rng(seed).integers(len(rows), size=(STEPS, BATCH)):
        texts = rows[drawn]
        units = torch.nn.functional.normalize(texts @ torch.nn.functional.normalize(anchors).T)
        optimizer.zero_grad()
        ((units @ units.T - texts @ texts.T) ** 2).mean().backward()
        optimizer.step()
    return unit_rows(anchors.detach().numpy())


def nearest(vectors: Vectors, sentences: Vectors) -> list[int]:
    """Return the sentence nearest to each vector, no two the same: the first vectors choose first."""
    found: list[int] = []
    for cosines in vectors @ sentences.T:
        cosines[found] = -2
        found.append(int(cosines.argmax()))
    return found


def scores_table(rows: list[dict[str, Any]], own: Scores) -> Table:
    """Return the mean scores of each way, and how far they are from those of the encoder and of other ways.

    Args:
        rows: of one experiment.
        own: of the encoder.
    """
    draws: dict[tuple[int, str], list[Scores]] = {}
    for row in rows:
        for way, scores in row["scores"].items():
            draws.setdefault((row["n"], way), []).append(scores)
    means = {key: {kind: mean_of_draws([d[kind] for d in drawn]) for kind in drawn[0]} for key, drawn in draws.items()}
    lines: list[list[Cell]] = [[ENCODER]]
    for kind in rows[0]["scores"][FPS]:
        lines[0] += [*beside(own[kind]), *[None] * (len(OTHERS) + 2)]
    for (n, way), found in means.items():
        others = [means.get((n // 2, way), found), *(means.get((n, other), found) for other in OTHERS), own]
        lines.append([f"{n} {way}"])
        for kind, one in found.items():
            lines[-1] += beside(one, *(other[kind] for other in others), n_seeds=len(SEEDS))
    less = ("half as many", *OTHERS, ENCODER)
    columns = (column for kind in found for column in (kind, *(f"{kind}, more than {other}" for other in less)))
    return Table(["anchors", *columns], lines)


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Measure what is not kept and yield the tables."""
    texts = corpus_sentences(options.data)
    for encoder in open_encoders(options.work_dir, bfloat16=True):
        given = Given(Tests(options.data, encoder.encode), unit_rows(encoder.encode(texts)))
        kept = Kept(options.work_dir / f"rows-{encoder.folder}-.jsonl")
        own = given.scores(np.eye(given.sentences.shape[1], dtype=np.float32), "STS", "retrieval")
        rows = learnt_row.rows(kept, given)
        yield f"learnt-{encoder.name}", scores_table(rows, own)
        yield f"search-{encoder.name}", scores_table(search_row.rows(kept, given), own)
        sizes = {n: [row["cosines"] for row in rows if row["n"] == n] for n in dict.fromkeys(row["n"] for row in rows)}
        names = [
            [str(n), *(f"{np.mean([c[name] for c in found]):.2f}" for name in found[0])] for n, found in sizes.items()
        ]
        yield f"names-{encoder.name}", Table(["anchors", *rows[0]["cosines"]], names)


if __name__ == "__main__":
    run_script(measure, data="sts/, retrieval/ and raw_english/", work_dir="vectors and scores", threads=1)
