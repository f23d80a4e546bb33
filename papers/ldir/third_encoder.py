r"""Anchors over a third encoder, multilingual-e5-small: do they keep as much of it as of the other two?

    python -m papers.ldir.third_encoder --data shared/data --work-dir WORK --e5 E5 --write

E5 reads every text as "query: ...". The anchors are the sentences of the bundled anchors-minilm and, as floors, as many
sentences drawn at random and random directions (the mean of five draws). All cosines of e5 lie between 0.7 and 1, so
each row is measured again less the mean of its coordinates over sentences that are no test texts. Vectors are kept in
WORK.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from papers.kit import MIN_SEEDS, Figure, Table, run_script
from papers.ldir.baselines import bundled_anchors, decorrelated
from papers.ldir.learnt import SIZES, STARTS, WHOLE
from papers.ldir.names import FLOOR, RANDOM
from papers.ldir.scored import Map, Samples, Tests, beside, mean_of_draws, random_directions
from papers.ldir.tables import faithfulness
from papers.models import kept_encoder
from papers.vector_cache import Vectors, unit_rows
from pellucid.text.corpus import read_texts

N_SENTENCES = max(SIZES)
ITSELF = "itself"


class Model(NamedTuple):
    """Rows whose products with a text's vector are its coordinates; less their mean over some sentences, or not."""

    name: str
    matrix: Vectors
    mean: Vectors | float
    faithful: float | None

    def apply(self, rows: Vectors) -> Vectors:
        """Return the coordinates of unit rows of the encoder."""
        return rows @ self.matrix.T - self.mean


def models(encode: Any, corpus: Path) -> Iterator[Model]:
    """Yield e5 itself, random directions and anchors, each as it is and less the mean; draws have one name."""
    known = {n: bundled_anchors(f"anchors-minilm-{n}") for n in SIZES}
    general = random_sentences(corpus, N_SENTENCES)
    kinds = {"anchors": known, RANDOM: {n: general[:n] for n in SIZES}}
    sample = unit_rows(encode(general))
    yield from _both(ITSELF, np.eye(sample.shape[1], dtype=np.float32), sample, None)
    for n in SIZES:
        for seed in range(MIN_SEEDS):
            yield from _both(f"{n} {FLOOR}", random_directions(n, sample.shape[1], seed), sample, None)
        for kind, texts in kinds.items():
            anchors = unit_rows(encode(texts[n]))
            for strength in (*STARTS, WHOLE):
                name = f"{n} {kind}" + (f", decorrelated at {strength:g}" if strength else "")
                yield from _both(name, decorrelated(anchors, strength), sample, anchors)


def random_sentences(corpus: Path, count: int) -> list[str]:
    """Return sentences of 4 to 20 words; the corpus is in random order."""
    return list(islice((text for text in read_texts(corpus) if 4 <= len(text.split()) <= 20), count))


def _both(name: str, matrix: Vectors, sample: Vectors, anchors: Vectors | None) -> Iterator[Model]:
    faithful = None if anchors is None else faithfulness(matrix, anchors)
    yield Model(name, matrix, 0.0, faithful)
    yield Model(f"{name}, less the mean", matrix, matrix @ sample.mean(axis=0), faithful)


def table(found: Sequence[tuple[Model, Samples]]) -> Table:
    """Return the table: each row beside e5 read in the same way."""
    own = {model.name: samples for model, samples in found if model.name.startswith(ITSELF)}
    lines = []
    for model, samples in found:
        centred = model.name.endswith("less the mean")
        other = own[f"{ITSELF}, less the mean" if centred else ITSELF]
        faithful = None if model.faithful is None else f"{model.faithful:.2f}"
        lines.append([model.name, len(model.matrix), *beside(samples, other), faithful])
    return Table(["", "n", "STS", "less e5 read so", "faithful"], lines)


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the table."""
    vectors = options.work_dir / "vectors"
    cached = kept_encoder(options.e5, vectors, "multilingual-e5-small", prompt="query: ")
    tests = Tests(options.data, cached)
    corpus = options.data / "raw_english" / "open_licence.txt.xz"
    every = list(models(cached, corpus))
    first = {model.name: model for model in reversed(every)}
    yield "scores", table([(first[name], scores) for name, scores in scored(tests, [(m.name, m.apply) for m in every])])


def scored(tests: Tests, maps: Iterable[tuple[str, Map]]) -> list[tuple[str, Samples]]:
    """Return the scores on STS of some maps, the mean of those that have one name: its draws."""
    draws: dict[str, list[Samples]] = {}
    for name, apply in maps:
        draws.setdefault(name, []).append(tests.sts(apply))
    return [(name, mean_of_draws(samples) if len(samples) > 1 else samples[0]) for name, samples in draws.items()]


if __name__ == "__main__":
    e5 = {"--e5": {"required": True, "help": "folder of multilingual-e5-small"}}
    run_script(measure, e5, data="sts/ and raw_english/", work_dir="vectors")
