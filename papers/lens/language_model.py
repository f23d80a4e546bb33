r"""The LENS paper's claims on SmolLM2: its 30 layers as lexicon models and as dense ones, all trained alike.

    python -m papers.lens.language_model --data shared/data --model SMOLLM2 --e5 E5 --work-dir WORK
    python -m papers.lens.kept_results --write

`recipes/lexicon_smollm2.py` trains every model, with five seeds each. Adapters and embeddings of the test texts are
kept in WORK, what every test item came to in `results/smollm2`, from which the second command makes tables. A run that
was stopped goes on. `--floors MINILM` measures BM25, static-en, all-MiniLM-L6-v2 in that folder and lexicon-minilm on
the same items.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from transformers import AutoTokenizer

from papers.bm25 import bm25_table
from papers.kit import make_parser, set_threads
from papers.lens.kept_results import FLOORS, PRUNED, floor_name, grid, keep, made_of
from papers.lens.samples import Sample, samples
from papers.lens.tables import pruned
from papers.vector_cache import CachedEncoder, distinct
from pellucid import LexiconEmbedder, load
from pellucid.core.arrays import l2_normalize
from pellucid.persistence.store import read_json, write_json
from pellucid.transformer.backbone import half_dtype
from recipes.lexicon_smollm2 import (
    LENGTH,
    Row,
    Source,
    clusters_of,
    source_of,
    trained,
)

RESULTS = Path(__file__).with_name("results") / "smollm2"


class Bench:
    """The samples, and what was measured on them before."""

    def __init__(self, source: Source) -> None:
        """Read the test sets; no model yet."""
        self.source = source
        self.samples = samples(source.data)
        self.texts = distinct(text for sample in self.samples for text in sample.texts)
        self.place = {text: n for n, text in enumerate(self.texts)}

    def path(self, row: Row) -> Path:
        """Return where facts of a row are kept, written when its embeddings are."""
        return self.source.work / "rows" / f"{row.name}.json"

    def encode(self, row: Row) -> None:
        """Train a row and encode the test texts with it."""
        start = time.process_time()
        model = trained(self.source, row)
        seconds, start = time.process_time() - start, time.process_time()
        self.embeddings(row.name, partial(model.encode, batch_size=64, show_progress_bar=False))
        model.backbone.lower.save()
        self.path(row).parent.mkdir(exist_ok=True)
        reading = time.process_time() - start
        facts = {"training_seconds": round(seconds, 1), "reading_seconds": round(reading, 1), "dtype": half_dtype()}
        if self.source.device != "cpu":
            facts["device"] = torch.cuda.get_device_name()
        write_json(self.path(row), facts)
        print(f"{row.name}: {seconds:.0f} s of processor time for the training", flush=True)

    def embeddings(self, name: str, encode: Callable[[list[str]], Any]) -> Any:
        """Return the embeddings of all test texts under a name; those that are not kept yet are made."""
        return CachedEncoder(name, encode, self.source.work / "vectors")(self.texts)

    def rows(self, row: Row) -> Any:
        """Return the kept embeddings of all test texts."""
        return self.embeddings(row.name, _refuse)

    def keep_row(self, row: Row) -> None:
        """Keep what every test item came to, with a row's embeddings and with what is made of them after the fact."""
        whole, facts = self.rows(row), {"row": asdict(row), **read_json(self.path(row))}
        made: dict[str, Callable[[], Any]] = {}
        if row.clusters is None:
            made |= {f"top-{most}": partial(pruned, whole, most) for most in PRUNED}
            made |= {f"4000-{way}": partial(grouped, self.source, whole, way) for way in ("maximum", "sum")}
        for end in made_of(row).values():
            self.keep(RESULTS, f"{row.name}-{end}", made[end](), facts)
        self.keep(RESULTS, row.name, whole, facts)  # the last one: what is written of a row is not made again

    def keep(self, folder: Path, name: str, rows: Any, facts: dict[str, Any]) -> None:
        """Keep what every test item comes to by embeddings of all test texts."""
        items = {s.name: s.items(rows[[self.place[text] for text in s.texts]]) for s in self.samples}
        active = round(rows.nnz / len(self.texts), 1) if sparse.issparse(rows) else None
        keep(folder, name, self.samples, items, {**facts, "coordinates": active})


def _refuse(texts: list[str]) -> Any:
    raise SystemExit(f"{len(texts)} test texts are not encoded; run without --kept")


def grouped(source: Source, rows: Any, way: str) -> Any:
    """Return the embeddings by all tokens with the 4,000 clusters' coordinates: "maximum" or "sum" of their tokens'."""
    each = (Row(clusters=None), Row(clusters=4000))  # no row of this work folder may have made them yet
    tokens, clusters = (clusters_of(source, row) for row in each)
    group = np.empty(tokens.assignment.max() + 1, np.int64)
    group[tokens.assignment[tokens.assignment >= 0]] = clusters.assignment[tokens.assignment >= 0]
    count, starts = len(clusters.centroids), range(0, rows.shape[0], 256)
    found = [_grouped(rows[start : start + 256], group, count, way) for start in starts]
    return l2_normalize(sparse.vstack(found, format="csr"))


def _grouped(rows: Any, group: np.ndarray, count: int, way: str) -> Any:
    """Return a few texts' embeddings by groups of coordinates."""
    one = sparse.coo_matrix(rows)
    places = one.row.astype(np.int64) * count + group[one.col]
    order = np.argsort(places, kind="stable")
    starts = np.flatnonzero(np.diff(places[order], prepend=-1))
    if not len(starts):
        return sparse.csr_matrix((one.shape[0], count), dtype=np.float32)
    values = (np.maximum if way == "maximum" else np.add).reduceat(one.data[order], starts)
    return sparse.csr_matrix((values, np.divmod(places[order][starts], count)), shape=(one.shape[0], count))


def as_read(source: Source, texts: list[str]) -> list[str]:
    """Return of each text what the rows of the language model read of it: so many of its tokens."""
    tokenizer = AutoTokenizer.from_pretrained(source.model, local_files_only=True)
    most = LENGTH - 2  # behind the start token, before the end token
    read = tokenizer(texts, add_special_tokens=False, truncation=True, max_length=most, return_offsets_mapping=True)
    return [text[: offsets[-1][1]] if offsets else text for text, offsets in zip(texts, read["offset_mapping"])]


def floors(bench: Bench, minilm: Path) -> None:
    """Keep what the test items come to without a trained language model, by as much of each text."""
    texts = as_read(bench.source, bench.texts)
    cut = [(len(text.split()), len(read.split())) for text, read in zip(bench.texts, texts) if len(read) < len(text)]
    facts = {"texts": len(texts), "cut": len(cut), "words": round(float(np.mean([read for _, read in cut])), 1)}
    models = [load("static-en"), load(str(minilm)), LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=minilm)]
    for label, model in zip(FLOORS[2:], models):
        bench.keep(RESULTS, floor_name(label), l2_normalize(model.encode(texts)), facts)
    read = dict(zip(bench.texts, texts))
    ranking = [sample for sample in bench.samples if sample.queries]
    for label in FLOORS[:2]:
        items = {s.name: s.items(_bm25_rows(s, [read[text] for text in s.texts], label)) for s in ranking}
        keep(RESULTS, floor_name(label), ranking, items, {**facts, "coordinates": None})


def _bm25_rows(sample: Sample, texts: list[str], name: str) -> np.ndarray:
    """Return rows whose product of a query and a document is BM25's score of it, [texts, queries]."""
    asked = np.isin(np.arange(len(texts)), sample.queries)
    rows = np.zeros((len(texts), len(sample.queries)), np.float32)
    rows[asked] = np.eye(len(sample.queries))
    documents = [text for text, query in zip(texts, asked) if not query]
    rows[~asked] = bm25_table([texts[n] for n in sample.queries], documents, name).T
    return rows


def main() -> None:
    """Do the rows that are not kept and keep what their test items come to, or measure the floors."""
    set_threads(1, unless_set=True)
    data = "the test sets and text to train on"
    parser = make_parser(__doc__, data=data, work_dir="vectors, clusters and checkpoints")
    parser.add_argument("--model", type=Path, required=True, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--e5", type=Path, required=True, help="folder of multilingual-e5-small")
    parser.add_argument("--device", default="cpu", help="where models are trained and read: cpu, cuda [%(default)s]")
    parser.add_argument("--floors", type=Path, metavar="MINILM", help="measure what needs no training")
    options = parser.parse_args()
    bench = Bench(source_of(options))
    if options.floors:
        floors(bench, options.floors)
        return
    for row in grid():
        if not (RESULTS / f"{row.name}.json").exists():
            if not bench.path(row).exists():
                bench.encode(row)
            bench.keep_row(row)


if __name__ == "__main__":
    main()
