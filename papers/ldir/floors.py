r"""What anchors keep of an encoder, between a floor (as many random directions) and a ceiling (the encoder itself).

    python -m papers.ldir.floors --data shared/data --work-dir WORK --write
    python -m papers.ldir.floors --data shared/data --work-dir WORK --encoder all-mpnet-base-v2 --model FOLDER \
        --sts STSBenchmark --retrieval --candidates 2000 --write

Anchors are chosen under the encoder among the same sentences, and decorrelated anchors are compared with random
directions that are decorrelated as much. Of random directions and of farthest points five draws are measured. A
transformer runs in bfloat16; its vectors are kept in WORK. The rows of random directions in the tables of the paper
are measured by papers/ldir/tables.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pellucid
from papers.kit import MIN_SEEDS, Cell, Figure, Table, run_script
from papers.ldir.baselines import decorrelated
from papers.ldir.scored import (
    CHOOSERS,
    FLOOR,
    GROUPS,
    N_CANDIDATES,
    PAPER,
    Map,
    Samples,
    Tests,
    beside,
    corpus_sentences,
    mean_of_draws,
    random_directions,
)
from papers.models import bfloat16_encoder, minilm_path
from papers.vector_cache import Vectors, unit_rows
from recipes.anchors_en import PLANS

SIZES = (200, 500)
STRENGTH = 0.75  # of the decorrelation: the default
STATIC, MINILM = "static-en", "MiniLM"


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        name: as the table has it.
        n: anchors or directions.
        strength: of their decorrelation; 0 leaves them as they are.
        draws: their vectors [n, d], one a seed.
    """

    name: str
    n: int
    strength: float
    draws: list[Vectors]


def with_strength(name: str, n: int, strength: float, draws: list[Vectors]) -> Row:
    """Return a row of draws decorrelated at a strength; 0 leaves them as they are."""
    if not strength:
        return Row(f"{n} {name}", n, strength, draws)
    return Row(f"{n} {name}, decorrelated at {strength:g}", n, strength, [decorrelated(a, strength) for a in draws])


def floors(dimension: int, strengths: Iterable[float]) -> Iterator[Row]:
    """Yield as many random directions, as they are and decorrelated at each strength."""
    for n in SIZES:
        draws = [random_directions(n, dimension, seed) for seed in range(MIN_SEEDS)]
        for strength in sorted({0.0, *strengths}):
            yield with_strength(FLOOR, n, strength, draws)


def rows(sentences: Vectors) -> Iterator[Row]:
    """Yield the anchors of each method, as they are and decorrelated."""
    for n in SIZES:
        for method, choose in CHOOSERS.items():
            draws = [sentences[choose(sentences, n, seed=seed)] for seed in range(MIN_SEEDS if method == PAPER else 1)]
            for strength in (0.0, STRENGTH):
                yield with_strength(method, n, strength, draws)


def table(tests: Tests, sentences: Vectors, models: list[Row]) -> Table:
    """Return the table: each row's scores, and what they are over the floor and the ceiling.

    The floor of a row is as many random directions, decorrelated at the same strength.

    Args:
        tests: over the encoder.
        sentences: candidates for anchors at length 1.
        models: bundled models over the encoder.
    """
    scores: dict[str, Callable[[Map], Samples]] = {"STS": tests.sts, "retrieval": tests.retrieval}
    kinds = {name: score for name, score in scores.items() if tests.sets[name]}
    columns = [f"{kind}{end}" for kind in kinds for end in ("", " over random directions", " over the encoder")]
    ceiling = {kind: score(lambda vectors: vectors) for kind, score in kinds.items()}
    lines: list[list[Cell]] = [["the encoder", *(cell for s in ceiling.values() for cell in (*beside(s), None, None))]]
    found: dict[tuple[int, float], dict[str, Samples]] = {}
    strengths = {STRENGTH, *(model.strength for model in models)}
    for row in [*floors(sentences.shape[1], strengths), *rows(sentences), *models]:
        samples = {kind: _over_seeds(score, row.draws) for kind, score in kinds.items()}
        floor = found.setdefault((row.n, row.strength), samples)
        cells = (cell for kind, s in samples.items() for cell in beside(s, floor[kind], ceiling[kind]))
        lines.append([row.name, *cells])
    return Table(["", *columns], lines)


def _over_seeds(score: Any, matrices: list[Vectors]) -> Samples:
    return mean_of_draws([score(lambda vectors, matrix=matrix: vectors @ matrix.T) for matrix in matrices])


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the table of an encoder."""
    if options.encoder == STATIC:
        encode: Any = pellucid.load(STATIC).encode
    else:
        encode = bfloat16_encoder(options.model or minilm_path(), options.work_dir / "vectors", options.encoder)
    models = []
    for name, plan in PLANS.items():
        if plan.encoder == {STATIC: "en", MINILM: "minilm"}.get(options.encoder):
            given = None if plan.encoder == "en" else encode
            vectors = pellucid.AnchorEmbedder.from_pretrained(name, encoder=given).vectors
            models.append(Row(name, plan.n, plan.strength, [vectors]))
    tests = Tests(options.data, encode, options.retrieval, options.sts, max_words=options.words)
    sentences = unit_rows(encode(corpus_sentences(options.data, options.candidates)))
    yield options.encoder, table(tests, sentences, models)


if __name__ == "__main__":
    settings: dict[str, dict[str, Any]] = {
        "--encoder": {"default": STATIC, "help": f"its name on the page [{STATIC}]"},
        "--model": {"help": "its folder [MiniLM's]"},
        "--sts": {"nargs": "*", "choices": GROUPS["STS"], "default": GROUPS["STS"], "help": "STS sets [all]"},
        "--retrieval": {"nargs": "*", "choices": GROUPS["retrieval"], "default": GROUPS["retrieval"],
                        "help": "retrieval sets [all]"},
        "--candidates": {"type": int, "default": N_CANDIDATES, "help": f"sentences to choose from [{N_CANDIDATES:,}]"},
        "--words": {"type": int, "help": "words of a document that are read [all]"},
    }  # fmt: skip
    run_script(measure, settings, data="sts/, retrieval/ and raw_english/", work_dir="vectors of a transformer")
