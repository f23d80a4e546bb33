r"""Sparse retrieval from key tokens beside BM25 and the dense model.

    python -m papers.keytokens.retrieval --data shared/data --work-dir WORK --write

"A Text is Worth Several Tokens", section 5.1, for MiniLM, decoded by its input embeddings and by random rows. Vectors
and scores are kept in WORK, and a run that was killed goes on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from papers.bm25 import PLAIN, STEMMED, Bm25
from papers.keytokens.index import BOTH, Cell, KeyTokenIndex, query_tokens, searches
from papers.kit import Figure, Kept, Table, experiment, run_script, written
from papers.models import minilm_path
from papers.retrieval_sets import TITLES, Collection, dense_score, read_collection
from papers.vector_cache import CachedEncoder, Vectors, unit_rows
from pellucid import KeyTokenEmbedder
from pellucid.core.arrays import l2_normalize
from pellucid.evaluation.tasks import find_tasks
from pellucid.keytokens import KeyTokenSettings
from pellucid.transformer import open_backbone

KS, MS = (1000, 2000, 3000), (0, 25, 50, 75, 100)
FIXED = (2000, 100)  # K and M that are compared, set beforehand
INPUT, RANDOM = "input embeddings", "random rows"
_TIMED = 50  # queries of a set


def random_head(model: KeyTokenEmbedder, seed: int = 0) -> Vectors:
    """Return random rows of the lengths that the model's own rows have: a control without geometry or meaning."""
    rows = model.head.rows()
    drawn = np.random.default_rng(seed).standard_normal(rows.shape).astype(np.float32)
    found: Vectors = l2_normalize(drawn) * np.linalg.norm(rows, axis=1, keepdims=True)
    return found


class Bench:
    """MiniLM as sentence-transformers reads it, by each head, and the sets with its embeddings."""

    def __init__(self, data: Path, work: Path) -> None:
        """Open the model; embeddings are kept on disk."""
        settings = KeyTokenSettings(normalize=True, max_length=256)
        mini = KeyTokenEmbedder(open_backbone(minilm_path(), device="cpu"), settings)
        encode = CachedEncoder("all-MiniLM-L6-v2", lambda texts: mini.embed(texts, role="document"), work / "vectors")
        self.models = {INPUT: mini, RANDOM: KeyTokenEmbedder(mini.backbone, settings, head=random_head(mini))}
        self.sets = {task.name: read_collection(task) for task in find_tasks(data) if task.kind == "Retrieval"}
        self.rows = {
            name: (unit_rows(encode(one.queries)), unit_rows(encode(one.documents))) for name, one in self.sets.items()
        }


def sparse_scores(
    model: KeyTokenEmbedder, rows: tuple[Vectors, Vectors], collection: Collection, ks: Sequence[int], ms: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Yield nDCG@10, of each query and in all, and the additions a query for each K and M, of one decoding."""
    cells = [Cell(BOTH, k, m) for k in ks for m in ms]
    for cell, index, tokens in searches(model, collection.queries, rows, cells):
        each = collection.each_ndcg([{collection.ids[n]: score for n, score in index.hits(ids)} for ids in tokens])
        yield {
            "k": cell.k,
            "m": cell.m,
            "ndcg": float(np.mean(each)),
            "each": each,
            "tokens": float(np.mean([len(ids) for ids in tokens])),
            "additions": float(np.mean([index.additions(ids) for ids in tokens])),
        }


def _milliseconds(calls: Sequence[Callable[[], Any]]) -> float:
    """Return the median processor time of calls."""
    times = []
    for call in calls:
        started = time.process_time()
        call()
        times.append(1000 * (time.process_time() - started))
    return float(np.median(times))


@experiment(name=list(TITLES), head=[INPUT, RANDOM])
def grids(bench: Bench, name: str, head: str) -> dict[str, Any]:
    """Return nDCG@10 of a set for each K and M."""
    return {"grid": list(sparse_scores(bench.models[head], bench.rows[name], bench.sets[name], KS, MS))}


@experiment(name=list(TITLES))
def peers(bench: Bench, name: str) -> dict[str, Any]:
    """Return nDCG@10 of BM25 and of the dense model, and what a query costs, its embedding known, in milliseconds."""
    collection, (queries, documents), model = bench.sets[name], bench.rows[name], bench.models[INPUT]
    index, cell = KeyTokenIndex(model.decode(documents, FIXED[0]), len(model.head)), Cell(BOTH, *FIXED)
    engines = {kind: Bm25(collection, kind) for kind in (PLAIN, STEMMED)}

    def dense(row: Vectors) -> Any:
        cosines = documents @ row
        best = np.argpartition(-cosines, 10)[:10]
        return best[np.argsort(-cosines[best])]

    timed = list(zip(collection.queries, queries))[:_TIMED]
    reads = [partial(query_tokens, model, [text], row[None], [cell]) for text, row in timed]
    calls = {
        "dense": [partial(dense, row) for row in queries[:_TIMED]],
        "lists": [partial(index.hits, read()[cell][0]) for read in reads],
        "query's tokens": reads,
        "BM25": [partial(engines[PLAIN].hits, [text]) for text, _ in timed],
    }
    return {
        **{kind: collection.ndcg(engine.hits(collection.queries)) for kind, engine in engines.items()},
        "dense": dense_score(bench.rows[name], collection),
        "documents": len(collection.ids),
        "times": {what: _milliseconds(some) for what, some in calls.items()},
    }


# --- The tables -------------------------------------------------------------------------------------------------------

Row = Mapping[str, Any]


def grid_cell(row: Row, where: tuple[int, int] | None) -> dict[str, Any]:
    """Return the cell of a grid at K and M, or the best."""
    if where is None:
        return max((cell for cell in row["grid"] if cell["m"]), key=lambda cell: float(cell["ndcg"]))
    return next(cell for cell in row["grid"] if (cell["k"], cell["m"]) == where)


def figures(
    grid_rows: Sequence[Row], peer_rows: Sequence[Row], dimension: int, n_tokens: int
) -> Iterator[tuple[str, Figure]]:
    """Yield what the page shows.

    Args:
        grid_rows: of `grids`.
        peer_rows: of `peers`.
        dimension: of the dense embedding.
        n_tokens: of the vocabulary that stand for text.
    """
    yield "written", f"{written('mteb', 'bm25s')}; processor time on one core"
    full = {row["name"]: row["dense"] for row in peer_rows}
    by_head = {head: [row for row in grid_rows if row["head"] == head] for head in (INPUT, RANDOM)}
    names = {PLAIN: PLAIN, STEMMED: STEMMED, "dense": "**MiniLM, dense**"}
    lines = [[said, *(row[key] for row in peer_rows)] for key, said in names.items()]
    shares = []
    for head, rows in by_head.items():
        for place, where in (("best", None), (f"K {FIXED[0]}, M {FIXED[1]}", FIXED)):
            scores = [(grid_cell(row, where)["ndcg"], full[row["name"]]) for row in rows]
            lines.append([f"{head}, {place}", *(f"{score:.1f} ({score / most:.0%})" for score, most in scores)])
        parts = [[grid_cell(row, (FIXED[0], m))["ndcg"] / full[row["name"]] for row in rows] for m in (0, FIXED[1])]
        shares.append([head, *(f"{np.mean(part):.0%}" for part in parts)])
    yield "scores", Table(["", *(TITLES[row["name"]] for row in peer_rows)], lines)
    yield "meaning", Table(["share of dense", "M = 0", f"M = {FIXED[1]}"], shares)
    yield from {"input": shares[0][2], "random": shares[1][2]}.items()
    for figure, head in (("grid", INPUT), ("random-grid", RANDOM)):
        cells = [
            [f"{TITLES[row['name']]}, K = {k:,}", *(grid_cell(row, (k, m))["ndcg"] for m in MS)]
            for row in by_head[head]
            for k in KS
        ]
        yield figure, Table(["", *(f"M = {m}" for m in MS)], cells)
    yield "flops", flops_table(by_head[INPUT], peer_rows, dimension, n_tokens)
    times = [[TITLES[row["name"]], *(f"{ms:.2f}" for ms in row["times"].values())] for row in peer_rows]
    yield "times", Table(["", *peer_rows[0]["times"]], times)


def flops_table(grid_rows: Sequence[Row], peer_rows: Sequence[Row], dimension: int, n_tokens: int) -> Table:
    """Return the FLOPs of a query over the input embeddings."""
    decode, lines = 2 * dimension * n_tokens, []
    for row, peer in zip(grid_rows, peer_rows, strict=True):
        additions, documents = grid_cell(row, FIXED)["additions"], peer["documents"]
        dense = 2 * dimension * documents
        enough = decode / (2 * dimension - additions / documents)
        line = [TITLES[row["name"]], f"{documents:,}", f"{dense / 1e6:.2f}", f"{additions / 1e6:.3f}"]
        lines.append([*line, f"{additions / dense:.1%}", f"{(additions + decode) / dense:.0%}", f"{enough:,.0f}"])
    return Table(["", "documents", "dense, millions", "sparse, millions", "share", "with the head", "pays from"], lines)


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Measure what is not yet known and yield what the page shows."""
    bench, kept = Bench(options.data, options.work_dir), Kept(options.work_dir / "keytoken-retrieval.jsonl")
    model = bench.models[INPUT]
    yield from figures(
        grids.rows(kept, bench), peers.rows(kept, bench), model.backbone.dimension, len(model.head.shown)
    )


if __name__ == "__main__":
    run_script(measure, data="retrieval/", work_dir="vectors and scores")
