r"""Does the sentence that names a text's strongest dimension share the text's topic?

    python -m papers.ldir.names --data shared/data --work-dir WORK --write

Directly: anchors are labelled texts, and the name's label is compared with the label of a text that is held out. For
the bundled anchors, which have no label: the name's topic is the label of most of the labelled texts nearest to it.
Random directions, each named by the sentence nearest to it, are the floor; the nearest of all sentences is the ceiling.
Vectors of MiniLM are kept in WORK.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import pellucid
from papers.kit import MIN_SEEDS, Cell, Figure, Table, run_script
from papers.ldir.baselines import bundled_anchors, decorrelated
from papers.ldir.scored import Samples, beside, drawn_counts, mean_over_seeds, random_directions
from papers.models import bfloat16_encoder, minilm_path
from papers.vector_cache import Vectors, unit_rows
from pellucid.anchors import CandidateSettings, farthest_points, frame_points, kmeans_points, uniform_points
from pellucid.anchors.candidates import candidate_texts
from pellucid.evaluation.tasks import read_table

SETS = {
    "StackOverflow": ("clustering/stackoverflow_titles", "test", ""),
    "snippets": ("clustering/search_snippets", "test", ""),
    "Banking77": ("classification/banking77", "train", "test"),
    "Emotion": ("classification/emotion", "train", "test"),
}
"""Name -> folder, the table that anchors come from, the one whose texts are held out ("": the rest of the first)."""

MAX_TRAIN, MAX_HELD_OUT = 4_000, 1_000  # texts of a set
N_CANDIDATES = 20_000  # sentences of the corpus that the bundled anchors come from
N_NEIGHBOURS = 10  # labelled texts that say which topic a sentence has
SIZES = (200, 500)
STRENGTHS = (0.0, 0.75)
PAPER = "fps"  # the paper's method; its anchors are not decorrelated
CHOOSERS = {PAPER: farthest_points, "kmeans": kmeans_points, "uniform": uniform_points, "frame": frame_points}
FLOOR, CEILING, CHANCE = "random directions", "the nearest sentence", "a random sentence"
RANDOM = "random sentences"

Labels = npt.NDArray[np.str_]
Rows = npt.NDArray[np.int64]


@dataclass(eq=False)
class LabelledSet:
    """Texts of which some may be anchors, and others that are held out; vectors have length 1."""

    vectors: Vectors
    labels: Labels
    held_out: Vectors
    topics: Labels

    @cache  # noqa: B019
    def choose(self, method: str, n: int, seed: int) -> Named:
        """Choose anchors among the texts, once."""
        return choose(self.vectors, method, n, 0 if method == "frame" else seed)  # frame draws nothing

    def shares(self, top: Rows, labels: Labels) -> Vectors:
        """Return in per cent how often a label is the text's, for all held-out texts and each bootstrap sample."""
        hits = 100.0 * (labels[top] == self.topics)
        return drawn_counts(len(hits)) @ hits / len(hits)

    def label_sentences(self, sentences: Vectors) -> Labels:
        """Return the label of most of the texts nearest to each sentence."""
        nearest = np.argpartition(-(sentences @ self.vectors.T), N_NEIGHBOURS, axis=1)[:, :N_NEIGHBOURS]
        names, codes = np.unique(self.labels, return_inverse=True)
        return names[[np.bincount(row).argmax() for row in codes[nearest]]]


def read_sets(data: Path, encode: Callable[[list[str]], Any]) -> dict[str, LabelledSet]:
    """Read the labelled sets; which texts are taken is drawn once."""
    sets = {}
    for name, (folder, *files) in SETS.items():
        tables = [read_table(data / folder / f"{file}.tsv", ["text", "label"]) for file in files if file]
        orders = [np.random.default_rng(0).permutation(len(table["text"])) for table in tables]
        train, rest = np.split(orders[0], [MAX_TRAIN])
        held_out = (orders[1] if files[1] else rest)[:MAX_HELD_OUT]
        sides = []
        for table, rows in ((tables[0], train), (tables[-1], held_out)):
            texts = [table["text"][row] for row in rows]
            sides += [unit_rows(np.asarray(encode(texts), np.float32)), np.array([table["label"][row] for row in rows])]
        sets[name] = LabelledSet(*sides)
    return sets


class Named(NamedTuple):
    """Directions, and the sentences that name them: rows of what they were chosen from."""

    directions: Vectors
    names: Rows


def choose(vectors: Vectors, method: str, n: int, seed: int) -> Named:
    """Choose rows as anchors, or draw directions and name each by the row nearest to it."""
    if method == FLOOR:
        return nearest_names(vectors, random_directions(n, vectors.shape[1], seed))
    rows = CHOOSERS[method](vectors, n, seed=seed)
    return Named(vectors[rows], rows)


def nearest_names(vectors: Vectors, directions: Vectors) -> Named:
    """Name each direction by the row nearest to it."""
    return Named(directions, (vectors @ directions.T).argmax(axis=0))


def floor_draws(sentences: Vectors, n: int, n_draws: int = MIN_SEEDS) -> dict[str, list[Vectors]]:
    """Return what any choice of anchors is measured against: random directions and random sentences.

    Args:
        sentences: that anchors may be chosen from, [sentences, d] at length 1.
        n: of the anchors.
        n_draws: how many of each.

    Returns:
        `FLOOR` and `RANDOM` -> the draws, each [n, d].
    """
    seeds = range(n_draws)
    return {
        FLOOR: [random_directions(n, sentences.shape[1], seed) for seed in seeds],
        RANDOM: [sentences[uniform_points(sentences, n, seed=seed)] for seed in seeds],
    }


def over_seeds(sets: Mapping[str, LabelledSet], share: Callable[[LabelledSet, int], Vectors]) -> Samples:
    """Return the mean share of each set over the seeds."""
    return {
        name: mean_over_seeds(np.stack([share(found, seed) for seed in range(MIN_SEEDS)]))
        for name, found in sets.items()
    }


def direct_table(sets: Mapping[str, LabelledSet]) -> Table:
    """Return how often the label of the name is the text's, where anchors come from the labelled texts."""

    def share(found: LabelledSet, method: str, n: int, strength: float, seed: int) -> Vectors:
        named = found.choose(method, n, seed)
        top = (found.held_out @ decorrelated(named.directions, strength).T).argmax(axis=1)
        return found.shares(named.names[top], found.labels)

    def by_chance(found: LabelledSet, seed: int) -> Vectors:
        drawn = np.random.default_rng(seed).integers(0, len(found.labels), len(found.topics))
        return found.shares(drawn, found.labels)

    ceiling = {
        name: found.shares((found.held_out @ found.vectors.T).argmax(axis=1), found.labels)
        for name, found in sets.items()
    }
    lines: list[list[Cell]] = [[CEILING, *_cells(ceiling), None, None, None]]
    for n in SIZES:
        samples = {
            (method, strength): over_seeds(sets, lambda found, seed, k=(method, n, strength): share(found, *k, seed))  # type: ignore[misc]
            for method, strength in [(FLOOR, 0.0), *product(CHOOSERS, STRENGTHS)]
        }
        others = samples[FLOOR, 0.0], samples[PAPER, 0.0]
        for (method, strength), found in samples.items():
            lines.append(
                [_caption(method, n, strength), *_cells(found), *beside(found, *others, samples[method, 0.0])[1:]]
            )
    lines.append([CHANCE, *_cells(over_seeds(sets, by_chance)), None, None, None])
    columns = ["over random directions", "over the paper's fps", "over the same as they are"]
    return Table(["", *SETS, "mean", *columns], lines)


def _caption(method: str, n: int, strength: float) -> str:
    return f"{n} {method}" + (f", decorrelated at {strength:g}" if strength else "")


def _cells(samples: Samples) -> list[Cell]:
    return [*(float(values[0]) for values in samples.values()), *beside(samples)]


def corpus_sentences(data: Path, n_candidates: int = N_CANDIDATES) -> list[str]:
    """Return sentences of the corpus that the bundled anchors come from."""
    settings = CandidateSettings(words=(4, 20), max_candidates=n_candidates)
    return list(candidate_texts(data / "raw_english" / "open_licence.txt.xz", settings))


def bundled_table(sets: Mapping[str, LabelledSet], encode: Any, models: Mapping[str, Vectors], data: Path) -> Table:
    """Return how often the topic of the name is the text's, for bundled models: name -> vectors [n, d]."""
    sentences = unit_rows(np.asarray(encode(corpus_sentences(data)), np.float32))

    def share(found: LabelledSet, directions: Vectors, names: Vectors) -> Vectors:
        return found.shares((found.held_out @ directions.T).argmax(axis=1), found.label_sentences(names))

    def drawn(found: LabelledSet, method: str, n: int, seed: int) -> Vectors:
        named = choose(sentences, method, n, seed)
        return share(found, named.directions, sentences[named.names])

    ceiling = {name: share(found, sentences, sentences) for name, found in sets.items()}
    lines: list[list[Cell]] = [[f"{CEILING} of {N_CANDIDATES:,}", *_cells(ceiling), None, None]]
    floor = over_seeds(sets, lambda found, seed: drawn(found, FLOOR, SIZES[-1], seed))
    random = over_seeds(sets, lambda found, seed: drawn(found, "uniform", SIZES[-1], seed))
    for caption, samples in ((FLOOR, floor), (RANDOM, random)):
        lines.append([f"{SIZES[-1]} {caption}", *_cells(samples), *beside(samples, floor)[1:], None])
    held_out = np.concatenate([found.held_out for found in sets.values()])
    for name, directions in models.items():
        names = unit_rows(np.asarray(encode(bundled_anchors(name)), np.float32))
        samples = {key: share(found, directions, names) for key, found in sets.items()}
        other = (held_out @ directions.T).argmax(axis=1) != (held_out @ names.T).argmax(axis=1)
        lines.append([name, *_cells(samples), *beside(samples, floor)[1:], 100.0 * float(other.mean())])
    return Table(["", *SETS, "mean", "over random directions", "another anchor is nearer"], lines)


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the tables of each encoder."""
    static = pellucid.load("static-en")
    minilm = bfloat16_encoder(minilm_path(), options.work_dir / "vectors", "MiniLM")
    for short, name, encode in (("en", "static-en", static.encode), ("minilm", "MiniLM", minilm)):
        if name not in options.only:
            continue
        sets = read_sets(options.data, encode)
        yield f"direct-{name}", direct_table(sets)
        opened = [model for model in pellucid.bundled_models() if model.startswith(f"anchors-{short}-")]
        models = {
            model: pellucid.AnchorEmbedder.from_pretrained(model, encoder=None if short == "en" else minilm).vectors
            for model in opened
        }
        yield f"bundled-{name}", bundled_table(sets, encode, models, options.data)


if __name__ == "__main__":
    run_script(measure, data="clustering/, classification/ and raw_english/", work_dir="vectors of MiniLM",
               only=("static-en", "MiniLM"))  # fmt: skip
