r"""The LENS paper's claims on SmolLM2: its 30 layers as lexicon models and as dense ones, all trained alike.

    python -m papers.lens.language_model --data shared/data --model SMOLLM2 --e5 E5 --work-dir WORK
    python -m papers.lens.kept_results --write

`recipes/lexicon_smollm2.py` trains every model, with five seeds each; what is trained is kept in WORK, what every test
item came to in `results/smollm2.jsonl`, from which the second command makes tables. A run that was stopped goes on.
BM25, static-en, all-MiniLM-L6-v2 and lexicon-minilm are measured on the same items.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from transformers import AutoTokenizer

from papers.bm25 import bm25_table
from papers.kit import make_parser, set_threads
from papers.lens.kept_results import LATER, MODELS, PRUNED, RESULTS, measure_rest
from papers.lens.samples import Sample, samples
from papers.lens.tables import pruned
from papers.models import minilm_path
from papers.vector_cache import distinct
from pellucid import LexiconEmbedder, load
from pellucid.core.arrays import l2_normalize
from pellucid.transformer.backbone import half_dtype
from recipes.lexicon_smollm2 import (
    LENGTH,
    Row,
    Source,
    clusters_of,
    source_of,
    trained,
)


class Bench:
    """The samples, and what models come to on them."""

    def __init__(self, source: Source) -> None:
        """Read the test sets; no model yet."""
        self.source = source
        self.samples = samples(source.data)
        self.texts = distinct(text for sample in self.samples for text in sample.texts)

    def trained(self, label: str, steps: int, seed: int) -> dict[str, Any]:
        """Return what every test item comes to with a row, and with what is made of its embeddings after the fact."""
        row, start = replace((MODELS | LATER)[label], steps=steps, seed=seed), time.process_time()
        model = trained(self.source, row)
        found = {"training_seconds": round(time.process_time() - start, 1), "dtype": half_dtype()}
        rows = model.encode(self.texts, batch_size=64, show_progress_bar=False)
        model.backbone.lower.save()
        found |= {"device": self.source.device, **self.items(rows)}
        if row.clusters is None:
            made = {f"{most} largest": pruned(rows, most) for most in PRUNED}
            made |= {f"{way} of 4,000 clusters": grouped(self.source, rows, way) for way in ("maximum", "sum")}
            found["made"] = {name: self.items(one) for name, one in made.items()}
        return found

    def floor(self, label: str) -> dict[str, Any]:
        """Return what every test item comes to without a trained language model, by as much of each text."""
        read = dict(zip(self.texts, as_read(self.source, self.texts)))
        if label.startswith("BM25"):
            ranking = [sample for sample in self.samples if sample.queries]
            scores = {s.name: s.found(_bm25_rows(s, [read[text] for text in s.texts], label)) for s in ranking}
            return {"coordinates": None, **{name: _short(values) for name, values in scores.items()}}
        minilm = minilm_path()
        if label == "lexicon-minilm":
            model: Any = LexiconEmbedder.from_pretrained(label, backbone=minilm)
        else:
            model = load(label if label == "static-en" else minilm)
        return self.items(l2_normalize(model.encode(list(read.values()))))

    def items(self, rows: Any) -> dict[str, Any]:
        """Return what every test item comes to by embeddings of all test texts, and how many coordinates a text has."""
        place = {text: n for n, text in enumerate(self.texts)}
        found = {s.name: _short(s.found(rows[[place[text] for text in s.texts]])) for s in self.samples}
        return {"coordinates": round(rows.nnz / len(self.texts), 1) if sparse.issparse(rows) else None, **found}


def _short(values: np.ndarray) -> list[float]:
    """Return numbers with few digits, whole ones without a point."""
    return [int(value) if value == int(value) else round(float(value), 5) for value in values]


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


def _bm25_rows(sample: Sample, texts: list[str], name: str) -> np.ndarray:
    """Return rows whose product of a query and a document is BM25's score of it, [texts, queries]."""
    asked = np.isin(np.arange(len(texts)), sample.queries)
    rows = np.zeros((len(texts), len(sample.queries)), np.float32)
    rows[asked] = np.eye(len(sample.queries))
    documents = [text for text, query in zip(texts, asked) if not query]
    rows[~asked] = bm25_table([texts[n] for n in sample.queries], documents, name).T
    return rows


def main() -> None:
    """Measure the rows that are not kept."""
    set_threads(1, unless_set=True)
    data = "the test sets and text to train on"
    parser = make_parser(__doc__, data=data, work_dir="vectors, clusters and checkpoints")
    parser.add_argument("--model", type=Path, required=True, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--e5", type=Path, required=True, help="folder of multilingual-e5-small")
    parser.add_argument("--device", default="cpu", help="where models are trained and read: cpu, cuda [%(default)s]")
    measure_rest(RESULTS, Bench(source_of(parser.parse_args())))


if __name__ == "__main__":
    main()
