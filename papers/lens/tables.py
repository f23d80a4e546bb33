r"""What `lexicon-minilm` is worth: beside a dense model of the same training, pruned, and together with it.

    python -m recipes.lexicon_minilm --data DATA --work-dir MADE --output MADE/dense-minilm --dense
    python -m papers.lens.tables --data DATA --work-dir WORK --dense MADE/dense-minilm --write
    python -m papers.lens.tables --data DATA --work-dir WORK --only further --write

Every text is encoded once by each model; embeddings and scores are kept in WORK, and a run that was killed goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import pellucid
from papers.bm25 import bm25_scores
from papers.kit import Figure, Table, run_script, written
from papers.local_tasks import NamedEncoder, evaluate, find_tasks
from papers.models import kept_encoder, minilm_path
from papers.retrieval_sets import trained_on
from papers.vector_cache import CachedEncoder
from pellucid.core.arrays import l2_normalize, largest_coordinates
from pellucid.evaluation.tasks import read_sts
from pellucid.persistence.folder import locate
from pellucid.persistence.store import read_json

TASKS = {
    **dict.fromkeys(("STS12", "STS13", "STS14", "STS15", "STSBenchmark", "SICK-R"), "STS"),
    "SciFact": "retrieval",
    "npl": "retrieval",
    "Banking77Classification": "classification",
    "stackoverflow_titles": "clustering",
}
"""The sets and what they measure."""

FURTHER = ("EmotionClassification", "TweetSentimentExtractionClassification")
"""The sets of the paper's Table 11 at hand beside those; lexicon-minilm was not trained on them."""

PUBLISHED = read_json(Path(__file__).with_name("published.json"))
"""What the paper prints, and its claims."""

QUERIES: dict[str, str] = PUBLISHED["queries"]
"""The paper's examples (its Table 3) and the strongest clusters of LENS-8000, as printed."""

KEPT = (1024, 512, 256, 128, 64, 32)  # coordinates left of each text
WEIGHTS = (0.3, 0.5, 0.7)  # of the lexicon model in a hybrid
RETRIEVAL = tuple(name for name, kind in TASKS.items() if kind == "retrieval")


def dense(rows: CachedEncoder) -> NamedEncoder:
    """Return the kept vectors of a dense model as a model, rows of length 1."""
    return NamedEncoder(rows.name, lambda texts: l2_normalize(rows(texts)))


def lexicon(rows: CachedEncoder, kept: int | None = None) -> NamedEncoder:
    """Return the kept embeddings of a lexicon model as a model, all their coordinates or the `kept` largest."""
    if kept is None:
        return NamedEncoder(rows.name, rows)
    return NamedEncoder(f"{rows.name} {kept}", lambda texts: pruned(rows(texts), kept))


def pruned(rows: Any, most: int) -> Any:
    """Return embeddings with their largest coordinates alone."""
    return l2_normalize(largest_coordinates(rows.copy(), most))


def side_by_side(first: Any, second: Any, weight: float = 0.5) -> Any:
    """Return two models' embeddings as one: the dot product is the mean of the two cosines, the first with `weight`."""
    sides = [math.sqrt(weight) * sparse.csr_matrix(first), math.sqrt(1 - weight) * sparse.csr_matrix(second)]
    return sparse.hstack(sides, format="csr", dtype=np.float32)


def hybrid(first: NamedEncoder, second: NamedEncoder, weight: float) -> NamedEncoder:
    """Return two models side by side, the first with `weight`."""
    name = f"{first.name} {second.name} {weight}"
    return NamedEncoder(name, lambda texts: side_by_side(first.encode(texts), second.encode(texts), weight))


def check_hybrid(model: pellucid.LexiconEmbedder, other: Any, measured: NamedEncoder) -> None:
    """Refuse to go on if the hybrid that is measured, half each, is not the one that users get."""
    texts = ["A man is playing a guitar.", "Someone plays an instrument.", "The bank raised its rates."]
    ensemble = pellucid.EnsembleEmbedder({"lexicon": model, "dense": other}, [0.5, 0.5])
    rows, expected = measured.encode(texts), ensemble.encode(texts)
    if not np.allclose(ensemble.similarity(expected, expected), (rows @ rows.T).toarray(), atol=1e-4):
        raise SystemExit("the kept embeddings give another hybrid than EnsembleEmbedder; empty --work-dir")


def kept_rows(model: pellucid.LexiconEmbedder, vectors: Path) -> CachedEncoder:
    """Return lexicon-minilm as an encoder whose embeddings are kept, as long as its files are the same."""
    files = sorted(locate("lexicon-minilm").rglob("*.safetensors"))
    digest = hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()
    return CachedEncoder(f"lexicon-minilm {digest}", model.encode, vectors)


def scores_of(scored: NamedEncoder, tasks: Sequence[str], options: argparse.Namespace) -> dict[str, float]:
    """Return task -> score x 100."""
    scores = options.work_dir / "scores"
    found = evaluate(scored, data=options.data, tasks=tasks, cache_dir=scores, show_progress_bar=False)
    return {row.task: row.score for row in found.rows}


def further(options: argparse.Namespace, model: pellucid.LexiconEmbedder, minilm: str) -> Table:
    """Return the scores of lexicon-minilm and of MiniLM on the further sets."""
    vectors = options.work_dir / "vectors"
    models = {
        "MiniLM, where both start": dense(kept_encoder(minilm, vectors, "all-MiniLM-L6-v2")),
        "lexicon-minilm": lexicon(kept_rows(model, vectors)),
    }
    found = {name: scores_of(scored, FURTHER, options) for name, scored in models.items()}
    short = [task.removesuffix("Classification") for task in FURTHER]
    return Table(["", *short], [[name, *map(scores.get, FURTHER)] for name, scores in found.items()])


def measured_rows(options: argparse.Namespace, model: pellucid.LexiconEmbedder, minilm: str) -> Iterator[Measured]:
    """Measure one row of the page after the other."""
    vectors = options.work_dir / "vectors"
    start, trained = kept_encoder(minilm, vectors, "all-MiniLM-L6-v2"), kept_encoder(options.dense, vectors)
    rows = kept_rows(model, vectors)
    check_hybrid(model, trained, hybrid(lexicon(rows), dense(trained), 0.5))

    def score(scored: NamedEncoder, tasks: Sequence[str] = tuple(TASKS)) -> dict[str, float]:
        return scores_of(scored, tasks, options)

    pairs = read_sts(next(task for task in find_tasks(options.data) if task.name == "STSBenchmark"))
    active = rows(pairs.sentences1 + pairs.sentences2).nnz / (2 * len(pairs.sentences1))
    yield Measured("MiniLM, where both start", "dense", score(dense(start)))
    yield Measured("MiniLM, trained on the same", "dense", score(dense(trained)))
    yield Measured("lexicon-minilm", "lexicon", score(lexicon(rows)), active)
    for kept in KEPT:
        yield Measured(f"its largest {kept:,}", "pruned", score(lexicon(rows, kept)), float(kept))
    for other, name in ((trained, "the dense model"), (start, "MiniLM")):
        for weight in WEIGHTS:
            label = f"{weight:.1f} lexicon + {1 - weight:.1f} {name}"
            yield Measured(label, "hybrid", score(hybrid(lexicon(rows), dense(other), weight), RETRIEVAL))
    for name, scores in bm25_scores(options.data).items():
        yield Measured(name, "words", {task: value for task, value in scores.items() if task in RETRIEVAL})


# --- The tables -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """A row of the page.

    Attributes:
        name: of the model.
        kind: "dense", "lexicon", "pruned", "hybrid" or "words".
        scores: task -> x 100.
        active: coordinates of a sentence that are not zero, on average.
    """

    name: str
    kind: str
    scores: Mapping[str, float]
    active: float | None = None

    def mean(self, kind: str | None = None) -> float | None:
        """Return the mean over the tasks of a kind, or over all; None where one is missing."""
        tasks = [task for task, of in TASKS.items() if kind in (None, of)]
        if any(task not in self.scores for task in tasks):
            return None
        return statistics.fmean(self.scores[task] for task in tasks)


def figures(measured: Sequence[Measured], model: Any) -> Iterator[tuple[str, Figure]]:
    """Yield what the page shows; the first "lexicon" row is the model itself, the last "dense" one its training's."""
    yield "written", written("mteb", "bm25s")

    def rows_of(*kinds: str) -> list[Measured]:
        return [row for row in measured if row.kind in kinds]

    short = [task.removesuffix("Classification").replace("stackoverflow_titles", "StackOverflow") for task in TASKS]
    lines: list[list[Any]] = [
        [row.name, *map(row.scores.get, TASKS), row.mean("STS"), row.mean("retrieval"), row.mean()]
        for row in rows_of("dense", "lexicon", "words")
    ]
    yield "scores", Table(["", *short, "mean of STS", "mean of retrieval", "mean of all"], lines)
    whole = rows_of("lexicon")[0]
    dense, lexicon = rows_of("dense")[-1].mean(), whole.mean()
    compared = "no lower than" if lexicon >= dense else f"{100 * lexicon / dense:.1f} % of"
    yield "mean", f"The mean of the ten sets is {lexicon:.2f}, {compared} that of the dense model, {dense:.2f}."
    lines = []
    for row in [whole, *rows_of("pruned")]:
        mean = row.mean()
        size = f"all ({row.active:.0f} of a sentence of STS-B)" if row is whole else f"{row.active:.0f}"
        retrieval = row.mean("retrieval")
        kept = [f"{mean / lexicon:.1%}", f"{retrieval / whole.mean('retrieval'):.1%}"]
        lines.append([size, row.mean("STS"), retrieval, mean, *kept])
    columns = ["kept", "STS", "retrieval", "mean of all", "of the whole", "of the whole in retrieval"]
    yield "largest", Table(columns, lines)
    hybrids = [
        [row.name, *map(row.scores.get, RETRIEVAL), row.mean("retrieval")]
        for row in rows_of("words", "dense", "lexicon", "hybrid")
    ]
    yield "hybrid", Table(["", *RETRIEVAL, "mean"], hybrids)
    clusters = []
    for query, printed in QUERIES.items():
        strongest = sorted(model.explain(query).rows, key=lambda row: -row.contribution)[:5]
        clusters.append([query, "; ".join(row.name for row in strongest), printed])
    yield "clusters", Table(["query", "lexicon-minilm", "LENS-8000, as printed"], clusters, 3)


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Measure what is not yet known and yield what the page shows."""
    minilm = minilm_path()
    model = pellucid.LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=minilm)
    if "tables" in options.only:
        if options.dense is None:
            raise SystemExit("the tables need --dense, the dense model of the same training")
        yield "shared", trained_on(next(task for task in find_tasks(options.data) if task.name == "SciFact"))
        yield from figures(list(measured_rows(options, model, minilm)), model)
    if "further" in options.only:
        yield "further", further(options, model, minilm)


if __name__ == "__main__":
    dense_option = {"--dense": {"type": Path, "help": "the dense model of the same training, for the tables"}}
    data = "sts/, retrieval/, clustering/ and so on"
    run_script(measure, dense_option, data=data, work_dir="embeddings and scores", only=("tables", "further"))
