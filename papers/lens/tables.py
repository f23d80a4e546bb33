r"""What `lexicon-minilm` is worth: beside a dense model of the same training, pruned, and together with it.

    python -m recipes.lexicon_minilm --data DATA --work-dir MADE --output MADE/dense-minilm --dense
    python -m papers.lens.tables --data DATA --work-dir WORK --dense MADE/dense-minilm --write

Every text is encoded once by each model; embeddings and scores are kept in WORK, and a run that was killed goes on.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import math
import os
import platform
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import pellucid
from papers.bm25 import bm25_scores
from papers.kit import Figure, Table, run_script
from papers.local_tasks import evaluate
from papers.models import minilm_path
from papers.retrieval_sets import trained_on
from papers.vector_cache import CachedEncoder, CachedSparseEncoder, Vectors
from pellucid.core.arrays import l2_normalize
from pellucid.core.mixing import largest_coordinates
from pellucid.evaluation.evaluating import cache_key
from pellucid.evaluation.tasks import find_tasks
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

PUBLISHED = read_json(Path(__file__).with_name("published.json"))
"""What the paper prints, and its claims."""

QUERIES: dict[str, str] = PUBLISHED["queries"]
"""The paper's examples (its Table 3) and the strongest clusters of LENS-8000, as printed."""

KEPT = (1024, 512, 256, 128, 64, 32)  # coordinates left of each text
WEIGHTS = (0.3, 0.5, 0.7)  # of the lexicon model in a hybrid
RETRIEVAL = tuple(name for name, kind in TASKS.items() if kind == "retrieval")


class Dense:
    """Kept vectors of a dense model, as `evaluate` takes a model."""

    def __init__(self, rows: CachedEncoder) -> None:
        """Take the encoder."""
        self.rows = rows

    def encode(self, texts: list[str]) -> Vectors:
        """Return float32 [texts, d], rows of length 1."""
        return l2_normalize(self.rows(list(texts)))

    def save_pretrained(self, path: str | Path) -> None:
        """Write what tells this model from others."""
        _write_name(path, self.rows.name)


class Lexicon:
    """Kept embeddings of a lexicon model, of which only the largest coordinates may be left."""

    def __init__(self, rows: CachedEncoder, kept: int | None = None) -> None:
        """Take the encoder, and how many coordinates are left; None leaves all."""
        self.rows, self.kept = rows, kept

    def encode(self, texts: list[str]) -> Any:
        """Return CSR [texts, k], rows of length 1."""
        rows = self.rows(list(texts))
        return rows if self.kept is None else l2_normalize(largest_coordinates(rows.copy(), self.kept))

    def save_pretrained(self, path: str | Path) -> None:
        """Write what tells this model from others."""
        _write_name(path, f"{self.rows.name} {self.kept}")


class Hybrid:
    """A lexicon and a dense model side by side; `EnsembleEmbedder` on kept embeddings, to which it is compared."""

    def __init__(self, lexicon: Lexicon, dense: Dense, weight: float) -> None:
        """Take both, and the weight of the first; the other has the rest."""
        self.lexicon, self.dense, self.weight = lexicon, dense, weight

    def encode(self, texts: list[str]) -> Any:
        """Return CSR [texts, k + d]: the dot product is the weighted mean of the two cosines."""
        first, second = self.lexicon.encode(texts), sparse.csr_matrix(self.dense.encode(texts))
        parts = [math.sqrt(self.weight) * first, math.sqrt(1 - self.weight) * second]
        return sparse.hstack(parts, format="csr", dtype=np.float32)

    def save_pretrained(self, path: str | Path) -> None:
        """Write what tells this model from others."""
        _write_name(path, f"{self.lexicon.rows.name} {self.lexicon.kept} {self.dense.rows.name} {self.weight}")


def _digest(folder: Path) -> str:
    """Return a hash of a model's weights, whatever code reads them."""
    files = sorted(folder.rglob("*.safetensors"))
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()


def _write_name(path: str | Path, name: str) -> None:
    folder = Path(path)
    folder.mkdir(parents=True)
    (folder / "name.txt").write_text(name)


class Bench:
    """The sets, and what was measured on them before."""

    def __init__(self, data: Path, work: Path) -> None:
        """Take the folders of the data and of what is kept."""
        self.data, self.work = data, work

    def score(self, model: Any, tasks: Sequence[str] = tuple(TASKS)) -> dict[str, float]:
        """Return task -> MTEB's main score x 100."""
        results = evaluate(model, data=self.data, tasks=tasks, cache_dir=self.work / "scores", show_progress_bar=False)
        return {row.task: row.score for row in results.rows}

    def dense(self, folder: str | Path, name: str | None = None) -> Dense:
        """Return a sentence transformer whose vectors are kept, under its name or what tells it from others."""
        from sentence_transformers import SentenceTransformer

        opened = SentenceTransformer(str(folder), device="cpu")
        name = name or f"{Path(folder).name} {cache_key(opened)}"

        def encode(texts: list[str]) -> Vectors:
            return np.asarray(opened.encode(texts, batch_size=64, show_progress_bar=False), np.float32)

        return Dense(CachedEncoder(name, encode, self.work / "vectors"))

    def lexicon(self, model: pellucid.LexiconEmbedder, name: str) -> Lexicon:
        """Return a lexicon model whose embeddings are kept; what is in its files tells it from others."""
        named = f"{name} {_digest(locate(name))}"
        return Lexicon(CachedSparseEncoder(named, model.encode, self.work / "vectors"))


def rows(bench: Bench, lexicon: Lexicon, trained: Dense, start: Dense) -> Iterator[Measured]:
    """Measure one row of the page after the other."""
    yield Measured("MiniLM, where both start", "dense", bench.score(start))
    yield Measured("MiniLM, trained on the same", "dense", bench.score(trained))
    yield Measured("lexicon-minilm", "lexicon", bench.score(lexicon), active=_active(bench, lexicon))
    for kept in KEPT:
        pruned = Lexicon(lexicon.rows, kept)
        yield Measured(f"its largest {kept:,}", "pruned", bench.score(pruned), active=float(kept))
    for dense, name in ((trained, "the dense model"), (start, "MiniLM")):
        for weight in WEIGHTS:
            hybrid = Hybrid(lexicon, dense, weight)
            label = f"{weight:.1f} lexicon + {1 - weight:.1f} {name}"
            yield Measured(label, "hybrid", bench.score(hybrid, RETRIEVAL))
    for name, scores in bm25_scores(bench.data).items():
        yield Measured(name, "words", {task: score for task, score in scores.items() if task in RETRIEVAL})


def _active(bench: Bench, lexicon: Lexicon) -> float:
    """Return the mean number of coordinates of STS-B's sentences."""
    from pellucid.evaluation.tasks import read_sts

    task = next(task for task in find_tasks(bench.data) if task.name == "STSBenchmark")
    pairs = read_sts(task)
    return lexicon.encode(pairs.sentences1 + pairs.sentences2).nnz / (2 * len(pairs.sentences1))


def check_hybrid(model: pellucid.LexiconEmbedder, dense: Any, hybrid: Hybrid) -> None:
    """Refuse to go on if the hybrid that is measured is not the one that users get."""
    texts = ["A man is playing a guitar.", "Someone plays an instrument.", "The bank raised its rates."]
    ensemble = pellucid.EnsembleEmbedder({"lexicon": model, "dense": dense}, [hybrid.weight, 1 - hybrid.weight])
    rows, expected = hybrid.encode(texts), ensemble.encode(texts)
    if not np.allclose(ensemble.similarity(expected, expected), (rows @ rows.T).toarray(), atol=1e-4):
        raise SystemExit("the kept embeddings give another hybrid than EnsembleEmbedder; empty --work-dir")


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
    versions = f"mteb {version('mteb')}, bm25s {version('bm25s')}"
    yield "written", f"{datetime.date.today()}; Python {platform.python_version()}, {os.cpu_count()} cores, {versions}"

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
    if dense is not None and lexicon is not None:
        compared = "no lower than" if lexicon >= dense else f"{100 * lexicon / dense:.1f} % of"
        yield "mean", f"The mean of the ten sets is {lexicon:.2f}, {compared} that of the dense model, {dense:.2f}."
    lines = []
    for row in [whole, *rows_of("pruned")]:
        mean = row.mean()
        size = f"all ({row.active:.0f} of a sentence of STS-B)" if row is whole else f"{row.active:.0f}"
        lines.append(
            [size, row.mean("STS"), row.mean("retrieval"), mean, f"{mean / lexicon:.1%}" if mean and lexicon else None]
        )
    yield "largest", Table(["kept", "STS", "retrieval", "mean of all", "of the whole"], lines)
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
    backbone = minilm_path()
    bench = Bench(options.data, options.work_dir)
    model = pellucid.LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=backbone)
    lexicon, trained = bench.lexicon(model, "lexicon-minilm"), bench.dense(options.dense)
    check_hybrid(model, trained.encode, Hybrid(lexicon, trained, WEIGHTS[0]))
    measured = list(rows(bench, lexicon, trained, bench.dense(backbone, "all-MiniLM-L6-v2")))
    yield "shared", trained_on(next(task for task in find_tasks(options.data) if task.name == "SciFact"))
    yield from figures(measured, model)


if __name__ == "__main__":
    run_script(
        measure,
        {
            "--dense": {"type": Path, "required": True, "help": "the dense model of the same training"},
        },
        data="sts/, retrieval/, clustering/ and so on",
        work_dir="embeddings and scores",
    )
