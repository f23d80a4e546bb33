r"""Our rows in the tables of the static-word-embeddings paper: what papers/swe/results.md shows.

    python -m papers.swe.tables --data shared/data --model static-en=static-en --write
    python -m papers.swe.tables --data shared/data --model static-en=static-en \
        --model pca=models/pca --model d64=models/d64 --model "Model2Vec of MiniLM=model2vec:models/m2v" --write

MODEL is what `papers.models.open_any` takes. Names that `recipes/static_en.py` gives its ablations (extraction, pca,
no-pca, d64, v30k, ...) go to the ablation tables, all others to the comparison with other people's models. The teacher
and WordLlama are always measured. Scores are kept, so a second run costs little; times are measured again.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from papers.bm25 import bm25_scores
from papers.kit import Figure, Table, processor, run_script
from papers.local_tasks import evaluate
from papers.models import minilm_path, open_any
from pellucid.evaluation.evaluating import Results
from pellucid.evaluation.tasks import find_tasks, read_sts

TEACHER, WORDLLAMA, BUNDLED = "MiniLM-L6, our teacher (384)", "WordLlama (256)", "static-en"
STS = {
    "12": "STS12", "13": "STS13", "14": "STS14", "15": "STS15", "16": "STS16", "17": "STS17", "22": "STS22",
    "STS-B": "STSBenchmark", "SICK-R": "SICK-R", "BIOSSES": "BIOSSES",
}  # fmt: skip
"""Column of the paper's table 1 -> the set."""

TEACHER_IN_PAPER = {
    "STS12": 72.4, "STS13": 80.6, "STS14": 75.6, "STS15": 85.4, "STSBenchmark": 82.0, "SICK-R": 77.6,
}  # fmt: skip
"""MiniLM-L6's scores in the paper's table 1, on the sets at hand."""

TYPES = ("Classification", "Clustering", "PairClassification", "Reranking", "Retrieval", "STS")
STEPS = {
    "extraction": "extraction (3.1)",
    "pca": "+ sentence-level PCA without the first 7 components (3.2)",
    "pca-keep-top": "sentence-level PCA, first components kept (no ABTT)",
    "pca-word-level": "word-level PCA without the first 7 components",
    "no-pca": "distillation without PCA",
    "paper-batches": "+ distillation with the paper's batches of 128 unrelated sentences",
    BUNDLED: "+ distillation (3.3), as bundled",
}
SIZES = ("d377", "paper-batches", "d128", "d64", "v50k", "v30k")
N_TIMINGS = 5  # of a static model, of which the median; the teacher, which takes half a minute, is timed once


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the tables."""
    specs = {TEACHER: minilm_path(), WORDLLAMA: "wordllama", **dict(options.model)}
    models = {name: open_any(spec) for name, spec in specs.items()}
    results = {
        name: evaluate(model, data=options.data, cache_dir=options.cache, name=name) for name, model in models.items()
    }
    compared = {name: r for name, r in results.items() if name == BUNDLED or name not in {*STEPS, *SIZES}}
    versions = (f"{name} {version(name)}" for name in ("mteb", "sentence-transformers", "wordllama"))
    system = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    machine = f"{datetime.date.today()}: {processor()}, {system}"
    yield from {"machine": machine, "timed": machine, "versions": ", ".join(versions)}.items()
    yield "sts", sts_table(compared)
    yield "check", check_teacher(scores(results[TEACHER]))
    yield "run-time", run_times({name: models[name] for name in compared}, compared, options.data)
    yield from task_tables(compared, bm25_scores(options.data))
    yield "steps", ablations(results, STEPS)
    sizes = {
        name: f"{m.get_embedding_dimension()} / {len(m.vocabulary):,}" for name, m in models.items() if name in SIZES
    }
    yield "sizes", ablations(results, {name: sizes.get(name, name) for name in SIZES}, "dimensions / words")


def sts_table(compared: Mapping[str, Results]) -> Table:
    """Return the scores on STS, and what a student keeps of its teacher."""
    rows, teacher = [], mean_of_6(compared[TEACHER])
    for name, result in compared.items():
        share = "" if name in (TEACHER, WORDLLAMA) else f"{mean_of_6(result) / teacher:.1%}"
        rows.append([f"**{name}**", *map(scores(result).get, STS.values()), mean_of_6(result), share])
    return Table(["model (dimensions)", *STS, "mean of 6", "of its teacher"], rows)


def check_teacher(measured: Mapping[str, float]) -> str:
    """Say whether the teacher comes out as printed, which is what the harness is judged by."""
    different = [task for task, paper in TEACHER_IN_PAPER.items() if abs(round(measured[task], 1) - paper) > 0.05]
    if different:
        return f"MiniLM-L6 does **not** come out as in the paper on {', '.join(different)}: do not trust this page."
    return "MiniLM-L6 comes out as in the paper on all six sets, to the printed decimal."


def run_times(models: Mapping[str, Any], results: Mapping[str, Results], data: Path) -> Table:
    """Return the seconds that each model takes for the sentences of STS15; models take turns."""
    pairs = read_sts(next(task for task in find_tasks(data) if task.name == "STS15"))
    texts = pairs.sentences1 + pairs.sentences2
    timings: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
    for turn in range(N_TIMINGS):
        for name, model in models.items():
            if turn == 0 or name != TEACHER:
                timings[name].append(encoding_seconds(model, texts))
    medians = {name: [statistics.median(column) for column in zip(*rounds)] for name, rounds in timings.items()}
    rows = [
        [
            f"**{name}**",
            scores(results[name])["STS15"],
            f"{clock:.3g}",
            f"{cpu:.3g}",
            f"{medians[TEACHER][1] / cpu:,.0f} x",
        ]
        for name, (clock, cpu) in medians.items()
    ]
    return Table(["model", "STS15", "seconds", "seconds of processor", "speed against MiniLM"], rows)


def encoding_seconds(model: Any, texts: Sequence[str]) -> tuple[float, float]:
    """Return the seconds by the clock and of the processor that encoding takes, after a warm-up."""
    encode = getattr(model, "encode", None) or model.embed
    encode(texts[:200])
    clock, cpu = time.perf_counter(), time.process_time()
    encode(list(texts))
    return time.perf_counter() - clock, time.process_time() - cpu


def task_tables(compared: Mapping[str, Results], bm25: Mapping[str, dict[str, float]]) -> Iterator[tuple[str, Figure]]:
    """Yield the means by type of task and the scores set by set; BM25 stands beside retrieval."""
    rows: list[list[Any]] = [
        [f"**{name}**", *map(r.means.get, TYPES), mean_of_types(r)] for name, r in compared.items()
    ]
    for name, by_set in bm25.items():
        mean = statistics.fmean(by_set.values())
        rows.append([name, *(mean if kind == "Retrieval" else None for kind in TYPES), None])
    sets = max((r.rows for r in compared.values()), key=len)
    counts = [f"{kind} ({sum(row.type == kind for row in sets)})" for kind in TYPES]
    yield "types", Table(["model", *counts, "mean of types"], rows)
    columns = [*map(scores, compared.values()), *bm25.values()]
    rows = [[f"{row.task} ({row.metric})", *(column.get(row.task) for column in columns)] for row in sets]
    yield "sets", Table(["set (metric)", *compared, *bm25], rows)
    if BUNDLED in compared:
        ours, teacher = (compared[name].means["Retrieval"] for name in (BUNDLED, TEACHER))
        yield "share-of-teacher", f"{ours / teacher:.0%}"


def ablations(results: Mapping[str, Results], captions: Mapping[str, str], first: str = "step") -> Table:
    """Return the means of STS, of the other types and of all types for each model; those not measured are empty."""
    rows: list[list[Any]] = []
    for name, caption in captions.items():
        result = results.get(name)
        if result is None:
            rows.append([f"**{caption}**", None, None, None])
            continue
        mean = mean_of_types(result)
        others = [score for kind, score in result.means.items() if kind != "STS"]
        rows.append([f"**{caption}**", mean_of_6(result), None if mean is None else statistics.fmean(others), mean])
    return Table([first, "STS, mean of 6", "mean of other types", "mean of types"], rows)


def scores(results: Results) -> dict[str, float]:
    """Return set -> score."""
    return {row.task: row.score for row in results.rows}


def mean_of_6(results: Results) -> float:
    """Return the mean over the six sets of STS at hand."""
    return statistics.fmean(scores(results)[task] for task in TEACHER_IN_PAPER)


def mean_of_types(results: Results) -> float | None:
    """Return the mean of the types' means, or None where a type is missing."""
    return statistics.fmean(results.means.values()) if set(results.means) == set(TYPES) else None


def name_and_model(argument: str) -> tuple[str, str]:
    """Return the two parts of an argument NAME=MODEL."""
    name, equals, spec = argument.partition("=")
    if not equals or not name or not spec:
        raise argparse.ArgumentTypeError(f"{argument!r}: give NAME=MODEL, such as static-en=static-en")
    return name, spec


if __name__ == "__main__":
    run_script(
        measure,
        {
            "--model": {"action": "append", "default": [], "type": name_and_model, "metavar": "NAME=MODEL"},
            "--cache": {"type": Path, "help": "where scores are kept [as pellucid evaluate]"},
        },
        data="sts/, retrieval/ and so on",
        threads=1,
    )
