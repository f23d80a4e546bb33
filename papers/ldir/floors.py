r"""What anchors keep of an encoder, between a floor (as many random directions) and a ceiling (the encoder itself).

    python -m papers.ldir.floors --data shared/data --work-dir WORK --write
    python -m papers.ldir.floors --data shared/data --work-dir WORK --encoder all-mpnet-base-v2 --model FOLDER \
        --sts STSBenchmark --retrieval --candidates 2000 --write

Anchors are chosen under the encoder among the same sentences. Of random directions and of farthest points five draws
are measured. A transformer runs in bfloat16; its vectors are kept in WORK. The rows of random directions in the tables
of the paper are measured by papers/ldir/tables.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import pellucid
from papers.kit import MIN_SEEDS, Cell, Figure, Table, run_script
from papers.ldir.baselines import decorrelated
from papers.ldir.names import CHOOSERS, FLOOR, N_CANDIDATES, PAPER, corpus_sentences
from papers.ldir.scored import GROUPS, Map, Samples, Tests, beside, mean_of_draws, random_directions
from papers.models import bfloat16_encoder, minilm_path
from papers.vector_cache import Vectors, unit_rows

SIZES = (200, 500)
STRENGTH = 0.75  # of the decorrelation: the default
STATIC, MINILM = "static-en", "MiniLM"


def rows(sentences: Vectors) -> Iterator[tuple[str, list[Vectors]]]:
    """Yield each row's name and its matrices [n, d], one a seed; the floor of a size comes first."""
    for n in SIZES:
        yield f"{n} {FLOOR}", [random_directions(n, sentences.shape[1], seed) for seed in range(MIN_SEEDS)]
        for method, choose in CHOOSERS.items():
            seeds = range(MIN_SEEDS if method == PAPER else 1)
            chosen = [sentences[choose(sentences, n, seed=seed)] for seed in seeds]
            yield f"{n} {method}", chosen
            yield f"{n} {method}, decorrelated at {STRENGTH:g}", [decorrelated(a, STRENGTH) for a in chosen[:1]]


def table(tests: Tests, sentences: Vectors, models: dict[str, Vectors]) -> Table:
    """Return the table: each row's scores, and what they are over the floor and the ceiling.

    Args:
        tests: over the encoder.
        sentences: candidates for anchors at length 1.
        models: name -> vectors of bundled models over the encoder, [n, d].
    """
    scores: dict[str, Callable[[Map], Samples]] = {"STS": tests.sts, "retrieval": tests.retrieval}
    kinds = {name: score for name, score in scores.items() if tests.sets[name]}
    columns = [f"{kind}{end}" for kind in kinds for end in ("", " over random directions", " over the encoder")]
    ceiling = {kind: score(lambda vectors: vectors) for kind, score in kinds.items()}
    lines: list[list[Cell]] = [["the encoder", *(cell for s in ceiling.values() for cell in (*beside(s), None, None))]]
    floors: dict[int, dict[str, Samples]] = {}
    for name, matrices in [*rows(sentences), *((name, [vectors]) for name, vectors in models.items())]:
        samples = {kind: _over_seeds(score, matrices) for kind, score in kinds.items()}
        floor = floors.setdefault(len(matrices[0]), samples)
        lines.append([name, *(cell for kind, s in samples.items() for cell in beside(s, floor[kind], ceiling[kind]))])
    return Table(["", *columns], lines)


def _over_seeds(score: Any, matrices: list[Vectors]) -> Samples:
    return mean_of_draws([score(lambda vectors, matrix=matrix: vectors @ matrix.T) for matrix in matrices])


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the table of an encoder."""
    if options.encoder == STATIC:
        encode: Any = pellucid.load(STATIC).encode
    else:
        encode = bfloat16_encoder(options.model or minilm_path(), options.work_dir / "vectors", options.encoder)
    short = {STATIC: "anchors-en-", MINILM: "anchors-minilm-"}.get(options.encoder)
    names = [name for name in pellucid.bundled_models() if short and name.startswith(short)]
    models = {
        name: pellucid.AnchorEmbedder.from_pretrained(name, encoder=None if short == "anchors-en-" else encode).vectors
        for name in names
    }
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
