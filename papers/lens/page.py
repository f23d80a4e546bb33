"""Writes the page of lexicon results from what papers/lens/tables.py measured; the paper's numbers are here too."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from papers.bm25 import SETTINGS
from papers.kit import markdown_table

TASKS = {
    "STS12": "STS",
    "STS13": "STS",
    "STS14": "STS",
    "STS15": "STS",
    "STSBenchmark": "STS",
    "SICK-R": "STS",
    "SciFact": "retrieval",
    "npl": "retrieval",
    "Banking77Classification": "classification",
    "stackoverflow_titles": "clustering",
}
"""The sets and what they measure."""

QUERIES = (
    "most dependable affordable cars",
    "fastest growing bonsai trees",
    "causes of hypoxia in adults",
    "weather in lisbon april",
    "other hot flashes causes",
)
"""The paper's examples (its Table 3)."""

PAPER_CLUSTERS = (
    "(cars, Cars), (cheap, affordable), (reliable, reli), (depend, depends), (aff, afford)",
    "(faster, fastest), (grow, growing), (fast, Fast), (tree, trees), (quickly, rapid)",
    "(adult, adults), (oxygen, oxy), (cause, caused), (hyp, yp), (ox, Ox)",
    "(Portug, Portuguese), (bon, Bon), (weather, rather), (Spring, spring), (AP, #AP)",
    "(hot, Hot), (cause, causes), (flash, Flash), (flush, #flush), (heat, Heat)",
)
_PAPER_PRUNED = {"all of 4,000": 60.76, "768": 60.01, "512": 59.33, "256": 57.19}
_PAPER_TYPES = ("Retr", "Rerank", "Clust", "Pair", "Class", "STS", "Summ", "mean of 56")
_PAPER_MTEB = {
    "BGE-en-ICL, dense, same data": (61.67, 59.66, 57.51, 86.93, 88.62, 83.74, 30.75, 71.24),
    "LENS-4000": (60.76, 60.86, 57.92, 87.93, 88.13, 84.35, 31.56, 71.22),
    "LENS-8000": (61.86, 60.91, 58.02, 87.98, 88.43, 84.67, 29.54, 71.63),
}
_PAPER_HYBRID = {"BGE-en-ICL": 61.67, "LENS-8000": 61.86, "both": 63.00}


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
        wanted = [task for task, of in TASKS.items() if kind in (None, of)]
        if any(task not in self.scores for task in wanted):
            return None
        return statistics.fmean(self.scores[task] for task in wanted)


def make_page(measured: Sequence[Measured], model: Any, trained: str) -> str:
    """Return the page.

    Args:
        measured: the rows; the first "lexicon" row is the model itself, the last "dense" one the same training's.
        model: the lexicon model, for its clusters.
        trained: which right documents of SciFact's test queries were in the training.
    """
    tables = [_table_all(measured), _table_pruned(measured), _table_hybrid(measured), _table_clusters(model)]
    return "\n".join([_head(trained), *tables])


def _of(measured: Iterable[Measured], *kinds: str) -> list[Measured]:
    return [row for row in measured if row.kind in kinds]


def _head(trained: str) -> str:
    return f"""# Results: lexicon

Written by `papers/lens/tables.py` on {datetime.date.today().isoformat()}; Python {platform.python_version()},
{os.cpu_count()} cores, mteb {version("mteb")}, bm25s {version("bm25s")}.

`lexicon-minilm` beside a dense model of the same training, and the tables of *Enhancing Lexicon-Based Text Embeddings
with Large Language Models* (LENS) that the available sets allow. STS is Spearman's correlation x 100, retrieval
nDCG@10 x 100, classification the accuracy, clustering the v-measure x 100, all by MTEB. What can be compared and what
cannot:

- **The backbone.** The paper's is Mistral-7B, a language model of 7,200 million parameters; ours is all-MiniLM-L6-v2, a
  sentence encoder of 22 million trained on a billion pairs. The two dense rows show its quality.
- **The training.** Both of ours were trained on the same batches in the same order from the same weights
  (`recipes/lexicon_minilm.py`): sentences with MiniLM's own vectors as teacher, paraphrases, medical questions,
  messages of Banking77's training part, SciFact's training claims. Their scores on SciFact and Banking77 are
  therefore in domain, as the paper's on many sets are; MiniLM's own are not.
- **SciFact's abstracts.** Training and test claims search one collection. Both of ours had as positives of training
  claims {trained}.
  Their SciFact figures, and the means of retrieval, say little about unseen texts; NPL's do.
- **BM25** is the reference in retrieval; {SETTINGS} (`papers/bm25.py`).
- **The sets.** NPL and the StackOverflow titles are not sets of MTEB.
"""


def _table_all(measured: Sequence[Measured]) -> str:
    kinds = dict.fromkeys(TASKS.values())
    lines = [
        [row.name, *(row.scores.get(task) for task in TASKS), *(row.mean(kind) for kind in kinds), row.mean()]
        for row in _of(measured, "dense", "lexicon", "words")
    ]
    means = [f"mean of {kind}" if kind in ("STS", "retrieval") else kind for kind in kinds]
    short = [task.removesuffix("Classification").replace("stackoverflow_titles", "StackOverflow") for task in TASKS]
    keep = [n for n, kind in enumerate(kinds) if kind in ("STS", "retrieval")]
    first = 1 + len(TASKS)
    lines = [[*line[:first], *(line[first + n] for n in keep), line[-1]] for line in lines]
    header = ["", *short, *(means[n] for n in keep), "mean of all"]
    dense, lexicon = _of(measured, "dense")[-1].mean(), _of(measured, "lexicon")[0].mean()
    verdict = ""
    if dense is not None and lexicon is not None:
        compared = "no lower than" if lexicon >= dense else f"{100 * lexicon / dense:.1f} % of"
        verdict = f"The mean of the ten sets is {lexicon:.2f}, {compared} that of the dense model, {dense:.2f}."
    paper = [[name, *(f"{score:.2f}" for score in scores)] for name, scores in _PAPER_MTEB.items()]
    return f"""
## Beside a dense model of the same training

{markdown_table(header, lines)}
{verdict}

The paper's claim, on MTEB as printed:

{markdown_table(["", *_PAPER_TYPES], paper)}"""


def _table_pruned(measured: Sequence[Measured]) -> str:
    whole = _of(measured, "lexicon")[0]
    lines = []
    for row in [whole, *_of(measured, "pruned")]:
        share = row.mean() / whole.mean() if row.mean() and whole.mean() else None  # type: ignore[operator]
        kept = f"all ({row.active:.0f} of a sentence of STS-B)" if row is whole else f"{row.active:.0f}"
        lines.append([kept, row.mean("STS"), row.mean("retrieval"), row.mean(), f"{share:.1%}" if share else None])
    paper = [
        [name, f"{score:.2f}", f"{score / _PAPER_PRUNED['all of 4,000']:.1%}"] for name, score in _PAPER_PRUNED.items()
    ]
    return f"""
## Only the largest coordinates

`max_active_dims`, applied when encoding, without training.

{markdown_table(["kept", "STS", "retrieval", "mean of all", "of the whole"], lines)}
The paper's, mean nDCG@10 of BEIR:

{markdown_table(["kept", "BEIR", "of the whole"], paper)}"""


def _table_hybrid(measured: Sequence[Measured]) -> str:
    retrieval = [task for task, kind in TASKS.items() if kind == "retrieval"]
    lines = [
        [row.name, *(row.scores.get(task) for task in retrieval), row.mean("retrieval")]
        for row in _of(measured, "words", "dense", "lexicon", "hybrid")
    ]
    paper = [[name, f"{score:.2f}"] for name, score in _PAPER_HYBRID.items()]
    return f"""
## Together with a dense model

`EnsembleEmbedder`: the score is the weighted mean of the two cosines. The weights are fixed, not fitted.

{markdown_table(["", *retrieval, "mean"], lines)}
The paper's, without weights, mean nDCG@10 of BEIR:

{markdown_table(["", "BEIR"], paper)}"""


def _table_clusters(model: Any) -> str:
    lines = []
    for query, printed in zip(QUERIES, PAPER_CLUSTERS):
        rows = sorted(model.explain(query).rows, key=lambda row: -row.contribution)[:5]
        lines.append([query, "; ".join(row.name for row in rows), printed])
    return f"""
## The strongest clusters of the paper's example queries

{markdown_table(["query", "lexicon-minilm", "LENS-8000, as printed"], lines, left=3)}"""
