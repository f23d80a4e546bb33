"""LENS on a language model: its rows, and which of the paper's claims hold, each with a bootstrap interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from papers.kit import Figure, Interval, Table, Verdict, interval_of, processor, wrapped, written
from papers.lens.samples import CLASSES, RETRIEVAL, STS
from papers.lens.tables import PUBLISHED, QUERIES
from recipes.lexicon_smollm2 import Row

CENTRED_ON = 200  # sentences whose mean state is taken away
KEPT = (768, 512, 256)
PAPER_KEPT = {768: 98.8, 512: 97.6, 256: 94.1}
ROWS = {
    "lexicon": Row(),
    "dense": Row(pooling="mean", clusters=0),
    "all tokens": Row(clusters=None),
    "one way": Row(attention="causal"),
    "sum": Row(pooling="sum"),
    "dense, last": Row(pooling="last", clusters=0),
    "last": Row(pooling="last"),
    "8,000 clusters": Row(clusters=8000),
    "lexicon, second seed": Row(seed=1),
    "dense, second seed": Row(pooling="mean", clusters=0, seed=1),
    "lexicon, untrained": Row(steps=0),
    "dense, untrained": Row(pooling="mean", clusters=0, steps=0),
    "as in the paper": Row(head="plain"),
    "one way, second seed": Row(attention="causal", seed=1),
    "all tokens, second seed": Row(clusters=None, seed=1),
}
"""What each row is called on the page, in the order in which they are made."""

PROMPTED = ("echo", "PromptReps", "PromptReps, dense half")
"""What is asked of the whole language model as it is, one way: these rows are not trained and have no clusters."""

LARGEST = 1024  # coordinates that a prompted row keeps

_TRIAL = Row(steps=32)
_OWN = replace(_TRIAL, shift=False)
_SPARSE = replace(_OWN, head="sparse")
_DENSE = replace(_TRIAL, clusters=0, pooling="mean")
TRIALS = {
    "lexicon, as in all rows": _TRIAL,
    "lexicon, all 30 layers look both ways": replace(_TRIAL, lower="bidirectional"),
    "lexicon, states not shifted": _OWN,
    "the same, rate 0.01": replace(_OWN, learning_rate=1e-2),
    "not shifted, centroids not centred": _SPARSE,
    "the same, rate 0.001": replace(_SPARSE, learning_rate=1e-3),
    "the same, all 30 layers look both ways": replace(_SPARSE, learning_rate=1e-3, lower="bidirectional"),
    "not shifted, less the mean state alone, rate 0.001": replace(_OWN, head="centred", learning_rate=1e-3),
    "dense, as in all rows": _DENSE,
    "dense, rate 0.01": replace(_DENSE, learning_rate=1e-2),
    "dense, rate 0.001": replace(_DENSE, learning_rate=1e-3),
}
"""What was tried for the settings of all rows: label -> a row of few batches."""

KINDS = ("STS", "retrieval", "reranking", "classification", "clustering")
_KIND_OF = {
    **dict.fromkeys(STS, "STS"),
    **dict.fromkeys(RETRIEVAL, "retrieval"),
    "WikiQA": "reranking",
    **dict.fromkeys(CLASSES, "classification"),
    "StackOverflow": "clustering",
}
FAILING: dict[str, str] = PUBLISHED["failing_queries"]
"""The paper's failing queries and the clusters that fire for their letters (its Table 8)."""

CLUSTERS: dict[str, str] = PUBLISHED["clusters"]
"""A token and the cluster that holds it in LENS-8000, as printed (its Tables 4 and 9)."""

Draws = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """The scores of one model.

    Attributes:
        scores: set -> the score x 100, and then that of each bootstrap sample, [1 + draws].
        active: coordinates of a text that are not zero, on average; None for dense models.
    """

    scores: Mapping[str, Draws]
    active: float | None = None

    def has(self, kind: str) -> bool:
        """Return whether all sets of a kind, or all sets ("mean"), were measured."""
        return all(name in self.scores for name, of in _KIND_OF.items() if kind in (of, "mean"))

    def kind(self, kind: str) -> Draws:
        """Return the mean over the sets of a kind, or over the means of all kinds ("mean")."""
        if kind == "mean":
            return np.mean([self.kind(other) for other in KINDS], axis=0)
        return np.mean([self.scores[name] for name, of in _KIND_OF.items() if of == kind], axis=0)


class Comparison(NamedTuple):
    """A claim of the paper: one model is better than another; `paper` is what it rests on there.

    Attributes:
        text: the claim.
        better: label of the model that it says is better.
        worse: label of the other.
        paper: what it rests on there.
        untested: why the rows here do not test it, or "".
    """

    text: str
    better: str
    worse: str
    paper: str
    untested: str = ""


CLAIMS = [Comparison(*claim) for claim in PUBLISHED["claims"]]
SECOND = {
    "lexicon": "lexicon, second seed",
    "dense": "dense, second seed",
    "one way": "one way, second seed",
    "all tokens": "all tokens, second seed",
}


def figures(measured: Mapping[str, Measured], shown: Mapping[str, Any]) -> Iterator[tuple[str, Figure]]:
    """Yield what the page shows.

    Args:
        measured: label -> scores: those of `ROWS` that were made, "hybrid", "two dense", "idf" and "top-K".
        shown: `queries` (text -> names of the strongest clusters), `clusters` (token -> words of its cluster),
            `seconds` (label -> processor time of the training) and `trials` (label -> losses).
    """
    yield "written", wrapped(f"{written('torch')}, one thread of {processor()}")
    seconds = [seconds for label, seconds in shown["seconds"].items() if ROWS[label].steps]
    yield "seconds", f"{min(seconds):.0f} to {max(seconds):.0f}"
    yield from claim_figures(measured)
    if moved := second_seed(measured):
        yield "second-seed", moved
    lines = []
    for label, found in measured.items():
        if not label.startswith("top-"):
            active = None if found.active is None else f"{found.active:,.0f}"
            lines.append([label, *(float(found.kind(kind)[0]) for kind in (*KINDS, "mean")), active])
    yield "kinds", Table(["", *KINDS, "mean", "coordinates of a text"], lines)
    sets = [[label, *(float(found.scores[name][0]) for name in _KIND_OF)] for label, found in measured.items()]
    yield "sets", Table(["", *_KIND_OF], sets)
    yield "largest", largest_table(measured)
    queries = {**QUERIES, **FAILING}
    columns = ["query", "trained", "trained, weighted down", "nothing trained", "LENS-8000, as printed"]
    lines = [[text, *map("; ".join, shown["queries"][text]), printed] for text, printed in queries.items()]
    yield "queries", Table(columns, lines, 5)
    lines = [[token.strip(), ", ".join(shown["clusters"][token]), printed] for token, printed in CLUSTERS.items()]
    yield "clusters", Table(["token", "its cluster among 4,000 of SmolLM2", "LENS-8000, as printed"], lines, 3)
    lines = [[label, *(f"{loss:.2f}" for loss in losses)] for label, losses in shown["trials"].items()]
    yield "trials", Table(["", "all", "sentences", "paraphrases", "questions"], lines)


def _difference(measured: Mapping[str, Measured], better: str, worse: str, kind: str) -> Interval | None:
    if better not in measured or worse not in measured:
        return None
    return interval_of(measured[better].kind(kind) - measured[worse].kind(kind), n_seeds=1)


def claim_figures(measured: Mapping[str, Measured]) -> Iterator[tuple[str, Figure]]:
    """Yield which claims hold in short, and the table."""
    lines, said = [], {judged: list[str]() for judged in (*(v.value for v in Verdict), "not tested", "not run")}
    for claim in CLAIMS:
        found = [_difference(measured, claim.better, claim.worse, kind) for kind in ("mean", "STS", "retrieval")]
        second = _difference(measured, SECOND.get(claim.better, ""), SECOND.get(claim.worse, ""), "mean")
        judged = "not tested" if claim.untested else found[0].difference_verdict() if found[0] else "not run"
        said[judged.value if isinstance(judged, Verdict) else judged].append(
            f"{claim.text} ({claim.untested})" if claim.untested else claim.text
        )
        cells = [None if one is None else one.signed() for one in (*found, second)]
        lines.append([claim.text, claim.paper, *cells, judged])
    yield "summary", said_list(said)
    columns = ["the paper's claim", "the paper", "mean", "STS", "retrieval", "mean, second seed", "verdict"]
    yield "claims", Table(columns, lines, 2)


def said_list(said: Mapping[str, list[str]]) -> str:
    """Return a list with a line for each verdict that claims have."""
    lines = (f"- {judged.capitalize()}: {'; '.join(claims)}." for judged, claims in said.items() if claims)
    return "\n".join(wrapped(line, indent="  ", width=118) for line in lines)


def second_seed(measured: Mapping[str, Measured]) -> str:
    """Return how far a second seed moves a row: a difference of no more than that may be the seed's."""
    moved = [
        f'"{label}" by {{:+.1f}}, in STS by {{:+.1f}} and in retrieval by {{:+.1f}}'.format(
            *(_difference(measured, second, label, kind)[0] for kind in ("mean", "STS", "retrieval"))
        )
        for label, second in SECOND.items()
        if second in measured
    ]
    if not moved:
        return ""
    return wrapped(
        f"A second seed moves the mean of {'; of '.join(moved)}. A difference of no more than that may be the seed's.",
        width=118,
    )


def largest_table(measured: Mapping[str, Measured]) -> Table:
    """Return the share of the whole embedding's score that its largest coordinates have (Table 6)."""
    whole = measured["lexicon"]
    lines = []
    for most in KEPT:
        part = measured[f"top-{most}"]
        shares = [100 * part.kind(kind) / whole.kind(kind) for kind in ("retrieval", "STS", "mean")]
        cells = ["{:.1f} % ({:.1f} to {:.1f})".format(*interval_of(share)) for share in shares]
        lines.append([f"{most}", f"{PAPER_KEPT[most]} %", *cells])
    return Table(["kept", "paper, BEIR", "retrieval", "STS", "mean"], lines)
