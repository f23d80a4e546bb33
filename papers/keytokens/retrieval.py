r"""Sparse retrieval from key tokens beside BM25 and the dense model.

    python -m papers.keytokens.retrieval --data shared/data --work-dir WORK --write

"A Text is Worth Several Tokens", section 5.1, for MiniLM decoded by several heads and, with --neo, for a small language
model. What is left open by the paper is chosen on SciFact's training queries. Vectors and scores are kept in WORK, and
a run that was killed goes on; the folders of WORK are those of papers/ldir/tables.py, which encodes the same texts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from papers.bm25 import PLAIN, STEMMED, Bm25
from papers.keytokens.heads import random_head, text_head
from papers.keytokens.index import BOTH, Cell, KeyTokenIndex, query_tokens, searches
from papers.kit import Figure, Kept, Table, run_script, written
from papers.models import minilm_path
from papers.retrieval_sets import TITLES, Collection, dense_score, read_collection
from papers.vector_cache import CachedEncoder, Vectors, unit_rows
from pellucid import KeyTokenEmbedder
from pellucid.evaluation.tasks import LocalTask, find_tasks
from pellucid.keytokens import Adjustment, KeyTokenSettings
from pellucid.keytokens.adjustments import component_adjustment, mean_adjustment
from pellucid.text.tables import read_texts
from pellucid.transformer import open_backbone
from recipes.lexicon_head import fit_rows

KS, MS = (1000, 2000, 3000), (0, 25, 50, 75, 100)
FIXED = (2000, 100)  # K and M at which adjustments are compared, set beforehand
SENTENCES = 100_000  # that the text head is fitted on
NEO = "GPT-Neo 3M"
_STATES = 1_500  # sentences whose tokens' last states the input embeddings are moved to, by least squares
_TIMED = 50  # queries of a set


# --- The models -------------------------------------------------------------------------------------------------------


class Bench:
    """MiniLM and the small language model, with their vectors kept on disk."""

    def __init__(self, data: Path, work: Path) -> None:
        """Open nothing yet."""
        self.data, self.work = data, work
        self.tasks = [task for task in find_tasks(data) if task.kind == "Retrieval"]

    @cached_property
    def mini(self) -> KeyTokenEmbedder:
        """MiniLM as sentence-transformers reads it, decoded with its input embeddings."""
        backbone = open_backbone(minilm_path(), device="cpu")
        return KeyTokenEmbedder(backbone, KeyTokenSettings(normalize=True, max_length=256))

    @cached_property
    def neo(self) -> KeyTokenEmbedder:
        """The language model of stories: the mean of the states behind the start token."""
        backbone = open_backbone(self.data / "lm/gpt-neo-3m-stories", attention="causal", device="cpu")
        return KeyTokenEmbedder(backbone, KeyTokenSettings(start_token=True, max_length=128))

    @cached_property
    def encoders(self) -> dict[str, CachedEncoder]:
        """Name -> texts to embeddings, each text encoded once."""
        kept = self.work / "vectors"
        name = "gpt-neo-3m-stories, mean behind the start token, 128 tokens"
        return {
            "MiniLM": CachedEncoder("all-MiniLM-L6-v2", lambda texts: self.mini.embed(texts, role="document"), kept),
            NEO: CachedEncoder(name, lambda texts: self.neo.embed(texts, role="document"), kept),
        }

    def embed(self, name: str, texts: list[str]) -> Vectors:
        """Return the embeddings of texts by MiniLM (at length 1) or the small language model."""
        rows: Vectors = np.asarray(self.encoders[name](texts), np.float32)
        return unit_rows(rows) if name == "MiniLM" else rows

    @cached_property
    def english(self) -> tuple[list[str], Vectors]:
        """Sentences under open licences and their vectors by MiniLM: the candidates of papers/ldir/tables.py."""
        from pellucid.anchors import CandidateSettings, prepare_candidates

        corpus = self.data / "raw_english" / "open_licence.txt.xz"
        settings = CandidateSettings(words=(4, 20), max_candidates=200_000)
        given = (self.encoders["MiniLM"], corpus, settings, self.work / "minilm")
        candidates = prepare_candidates(*given, show_progress_bar=False)
        rows = np.arange(min(SENTENCES, len(candidates.vectors)))
        return candidates.texts(rows), unit_rows(np.asarray(candidates.vectors[rows], np.float32))

    @cache  # noqa: B019 (one a run)
    def model(self, name: str) -> KeyTokenEmbedder:
        """Return the embedder that a row of the page names, without an adjustment; each head is fitted once."""
        if name in (NEO, HEADS[0]):
            return self.neo if name == NEO else self.mini
        heads: dict[str, Callable[[], Vectors]] = {
            "random rows": lambda: random_head(self.mini),
            "fitted to tokens": lambda: fit_rows(self.mini.backbone, self.english[0][:_STATES]),
            "fitted to texts": lambda: text_head(self.mini, *self.english),
        }
        return KeyTokenEmbedder(self.mini.backbone, self.mini.settings, head=heads[name]())

    def adjustment(self, name: str, kind: str, documents: Vectors) -> Adjustment:
        """Return an adjustment by the name the page gives it."""
        if kind == "none":
            return Adjustment()
        if kind == "component of the documents":
            return component_adjustment(documents)
        if kind == "mean of the documents":
            return mean_adjustment(documents)
        corpus = read_texts(self.data / "raw_english/open_licence.txt.xz")
        return mean_adjustment(self.embed(NEO, list(islice(corpus, 1000))) if name == NEO else self.english[1])

    def prepared(
        self, name: str, kind: str, collection: Collection
    ) -> tuple[KeyTokenEmbedder, tuple[Vectors, Vectors], Collection]:
        """Return a head's embedder, adjusted, and the embeddings of a set's queries and documents."""
        encoder = NEO if name == NEO else "MiniLM"
        queries, documents = self.embed(encoder, collection.queries), self.embed(encoder, collection.documents)
        model = self.model(name).with_adjustment(self.adjustment(name, kind, documents))
        return model, (queries, documents), collection


HEADS = ("input embeddings", "fitted to tokens", "random rows", "fitted to texts")
MEANS = ("mean of English", "mean of the documents")
KINDS = {"input embeddings": ("none", *MEANS, "component of the documents"), "random rows": ("none",)}


# --- Measurements -----------------------------------------------------------------------------------------------------


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


def bm25_figures(collection: Collection, name: str) -> dict[str, float]:
    """Return BM25's nDCG@10, plain or stemmed, and the processor time of a query in milliseconds."""
    engine = Bm25(collection, name)
    times = [_milliseconds(partial(engine.hits, [query])) for query in collection.queries[:_TIMED]]
    return {"ndcg": collection.ndcg(engine.hits(collection.queries)), "ms": float(np.median(times))}


def _milliseconds(call: Callable[[], Any]) -> float:
    started = time.process_time()
    call()
    return 1000 * (time.process_time() - started)


def timings(
    model: KeyTokenEmbedder, rows: tuple[Vectors, Vectors], collection: Collection, k: int, m: int
) -> dict[str, float]:
    """Return median processor times of a query in milliseconds, its embedding known: dense, decoding, adding up."""
    queries, documents = rows
    units = unit_rows(documents)
    index, cell = KeyTokenIndex(model.decode(documents, k), len(model.head)), Cell(BOTH, k, m)

    def dense(row: Vectors) -> Any:
        cosines = units @ row
        best = np.argpartition(-cosines, 10)[:10]
        return best[np.argsort(-cosines[best])]

    found: dict[str, list[float]] = {"dense": [], "tokens": [], "lists": []}
    for text, row in list(zip(collection.queries, queries))[:_TIMED]:
        read = partial(query_tokens, model, [text], row[None], [cell])
        calls = {"dense": partial(dense, row), "tokens": read, "lists": partial(index.hits, read()[cell][0])}
        for name, call in calls.items():
            found[name].append(_milliseconds(call))
    return {name: float(np.median(times)) for name, times in found.items()}


def develop(bench: Bench, kept: Kept, name: str) -> str:
    """Return the adjustment under which a head finds most for SciFact's training queries."""
    kinds = KINDS.get(name, MEANS)
    if len(kinds) == 1:
        return kinds[0]

    def measure(kind: str) -> float:
        collection = read_collection(next(task for task in bench.tasks if task.name == "SciFact"), "train")
        (cell,) = sparse_scores(*bench.prepared(name, kind, collection), FIXED[:1], FIXED[1:])
        score: float = cell["ndcg"]
        return score

    scores = {kind: kept.get(f"development | {name} | {kind}", partial(measure, kind)) for kind in kinds}
    return max(scores, key=lambda kind: scores[kind])


def test(bench: Bench, kept: Kept, name: str, kind: str, task: LocalTask) -> None:
    """Measure one head on one set."""
    collection = read_collection(task)

    def dense() -> float:
        model, rows, _ = bench.prepared(name, kind, collection)
        if name == NEO:  # states that were never tuned have one large part in common
            rows = model.adjustment.apply(rows[0]), model.adjustment.apply(rows[1])
        return dense_score(rows, collection)

    for key, kind_of_bm25 in (("bm25", PLAIN), ("bm25 stemmed", STEMMED)):
        kept.get(f"{key} | {task.name}", partial(bm25_figures, collection, kind_of_bm25))
    kept.get(f"dense | {NEO if name == NEO else 'MiniLM'} | {task.name}", dense)
    grid = f"grid | {name} | {task.name}"
    kept.get(grid, lambda: list(sparse_scores(*bench.prepared(name, kind, collection), KS, MS)))
    if name == HEADS[0]:
        kept.get(f"time | {task.name}", lambda: timings(*bench.prepared(name, kind, collection), *FIXED))
        kept.get(f"size | {task.name}", lambda: len(collection.ids))


# --- The tables -------------------------------------------------------------------------------------------------------

Values = Mapping[str, Any]


def grid_cell(values: Values, head: str, name: str, where: tuple[int, int] | None) -> dict[str, Any] | None:
    """Return the cell of a grid at K and M, or the best."""
    grid = values.get(f"grid | {head} | {name}")
    if grid is None:
        return None
    if where is None:
        best: dict[str, Any] = max((cell for cell in grid if cell["m"]), key=lambda cell: cell["ndcg"])
        return best
    return next(cell for cell in grid if (cell["k"], cell["m"]) == where)


def figures(values: Values, chosen: Mapping[str, str], dimension: int, n_tokens: int) -> Iterator[tuple[str, Figure]]:
    """Yield what the page shows.

    Args:
        values: what was measured, by name.
        chosen: head -> adjustment.
        dimension: of the dense embedding.
        n_tokens: of the vocabulary that stand for text.
    """
    yield "written", f"{written('mteb', 'bm25s')}; processor time on one core"
    yield "chosen", ", ".join(f"{head}: {kind}" for head, kind in chosen.items())
    yield "scores", scores_table(values, chosen)
    shares = dense_shares(values, chosen)
    rows = [[head, *(f"{share:.0%}" for share in pair)] for head, pair in shares.items()]
    yield "meaning", Table(["share of dense", "M = 0", f"M = {FIXED[1]}"], rows)
    yield from {"random": f"{shares['random rows'][1]:.0%}", "input": f"{shares[HEADS[0]][1]:.0%}"}.items()
    for n, head in enumerate(chosen, 1):
        yield f"grid-{n}", grid_table(values, head)
    yield from cost_tables(values, dimension, n_tokens)
    kinds = list(dict.fromkeys(key.split(" | ")[2] for key in values if key.startswith("development | ")))
    heads = dict.fromkeys(key.split(" | ")[1] for key in values if key.startswith("development | "))
    scores = [[head, *(values.get(f"development | {head} | {kind}", "") for kind in kinds)] for head in heads]
    yield "adjustments", Table(["", *kinds], scores)


def scores_table(values: Values, chosen: Mapping[str, str]) -> Table:
    """Return nDCG@10 of BM25, the dense models and each head, with its share of the dense score."""

    def row(label: str, scores: Sequence[float | None], full: Sequence[float | None] | None = None) -> list[str]:
        cells = []
        for n, score in enumerate(scores):
            share = full[n] if full else None
            cells.append("" if score is None else f"{score:.1f}" + (f" ({score / share:.0%})" if share else ""))
        return [label, *cells]

    kinds = {PLAIN: "bm25", STEMMED: "bm25 stemmed"}
    rows = [row(of, [values.get(f"{key} | {name}", {}).get("ndcg") for name in TITLES]) for of, key in kinds.items()]
    full = {encoder: [values.get(f"dense | {encoder} | {name}") for name in TITLES] for encoder in ("MiniLM", NEO)}
    rows.append(row("**MiniLM, dense**", full["MiniLM"]))
    for head in chosen:
        encoder = NEO if head == NEO else "MiniLM"
        if head == NEO:
            rows.append(row(f"**{NEO}, dense, centred**", full[NEO]))
        for where in (None, FIXED):
            cells = [grid_cell(values, head, name, where) for name in TITLES]
            place = f"K {where[0]}, M {where[1]}" if where else "best"
            label = f"{'own head' if head == NEO else head}, {place}"
            rows.append(row(label, [cell and cell["ndcg"] for cell in cells], full[encoder]))
    return Table(["", *TITLES.values()], rows)


def dense_shares(values: Values, chosen: Mapping[str, str]) -> dict[str, list[float]]:
    """Return head -> mean share of the dense score over the sets, by the query's own tokens alone and by both."""
    shares: dict[str, list[float]] = {}
    for head in chosen:
        names = [name for name in TITLES if f"grid | {head} | {name}" in values]
        full = [values[f"dense | {NEO if head == NEO else 'MiniLM'} | {name}"] for name in names]
        for m in (0, FIXED[1]):
            cells = [grid_cell(values, head, name, (FIXED[0], m)) for name in names]
            parts = [cell["ndcg"] / score for cell, score in zip(cells, full, strict=True) if cell]
            shares.setdefault(head, []).append(sum(parts) / len(parts))
    return shares


def grid_table(values: Values, head: str) -> Table:
    """Return nDCG@10 of a head for each set, K and M."""
    rows = []
    for name, title in TITLES.items():
        for k in KS if f"grid | {head} | {name}" in values else ():
            cells = (grid_cell(values, head, name, (k, m)) for m in MS)
            rows.append([f"{title}, K = {k:,}", *(cell["ndcg"] for cell in cells if cell)])
    return Table(["", *(f"M = {m}" for m in MS)], rows)


def cost_tables(values: Values, dimension: int, n_tokens: int) -> Iterator[tuple[str, Figure]]:
    """Yield FLOPs and milliseconds of a query over the input embeddings."""
    decode = 2 * dimension * n_tokens
    rows, times = [], []
    for name, title in TITLES.items():
        cell, took = grid_cell(values, HEADS[0], name, FIXED), values.get(f"time | {name}")
        if cell is None or took is None:
            continue
        documents = values[f"size | {name}"]
        dense = 2 * dimension * documents
        enough = decode / (2 * dimension - cell["additions"] / documents)
        share, whole = cell["additions"] / dense, (cell["additions"] + decode) / dense
        row = [title, f"{documents:,}", f"{dense / 1e6:.2f}", f"{cell['additions'] / 1e6:.3f}", f"{share:.1%}"]
        rows.append([*row, f"{whole:.0%}", f"{enough:,.0f}"])
        milliseconds = (took["dense"], took["lists"], took["tokens"], values[f"bm25 | {name}"]["ms"])
        times.append([title, *(f"{ms:.2f}" for ms in milliseconds)])
    columns = ["", "documents", "dense, millions", "sparse, millions", "share", "with the head", "pays from"]
    yield "flops", Table(columns, rows)
    yield "times", Table(["", "dense", "lists", "query's tokens", "BM25"], times)


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Measure what is not yet known and yield what the page shows."""
    bench, kept = Bench(options.data, options.work_dir), Kept(options.work_dir / "keytoken-retrieval.jsonl")
    chosen = {}
    for name in HEADS:
        chosen[name] = develop(bench, kept, name)
        for task in bench.tasks:
            test(bench, kept, name, chosen[name], task)
    if options.neo:
        chosen[NEO] = develop(bench, kept, NEO) if "SciFact" in options.neo else MEANS[1]
    for task in bench.tasks:
        if task.name in options.neo:
            test(bench, kept, NEO, chosen[NEO], task)
    yield from figures(kept.values, chosen, bench.mini.backbone.dimension, len(bench.mini.head.shown))


if __name__ == "__main__":
    neo = {"nargs": "*", "default": [], "choices": TITLES, "help": "sets for the small language model"}
    run_script(measure, {"--neo": neo}, data="retrieval/, raw_english/ and lm/", work_dir="vectors and scores")
