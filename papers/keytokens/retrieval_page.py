"""Writes the page of key-token retrieval from what retrieval.py measured; the paper's table is here too."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

from papers.bm25 import PLAIN, SETTINGS, STEMMED
from papers.kit import markdown_table

SETS = {"SciFact": "SciFact", "npl": "NPL", "cisi": "CISI", "cranfield": "Cranfield"}
PAPER = {
    "BM25": (".236", ".325", ".665", ".315"),
    "SPLADEv2": (".336", ".334", ".693", ".479"),
    "LLM2Vec, dense": (".531", ".393", ".789", ".575"),
    "LLM2Vec, sparse": (".404 (76 %)", ".326 (83 %)", ".669 (85 %)", ".481 (84 %)"),
    "GritLM, dense": (".600", ".409", ".792", ".632"),
    "GritLM, sparse": (".457 (76 %)", ".336 (82 %)", ".703 (89 %)", ".526 (83 %)"),
}
"""The paper's Table 3, nDCG@10; the shares of the dense score are computed from it."""

_HEAD = """# Results: sparse retrieval from key tokens

Written by `papers/keytokens/retrieval.py` on {date}; Python {python},
{machine}, mteb {mteb}, bm25s {bm25s}.

The training-free sparse retrieval of *A Text is Worth Several Tokens*, section 5.1, as `KeyTokenIndex` does it: a
document is its K most aligned tokens with their signed logits (Eq. 15), a query its own tokens joined with its M most
aligned, the score the sum over the tokens they share (Eq. 16). All scores are nDCG@10 x 100 by trec_eval, which MTEB
uses too.

What can be compared with the paper and what cannot:

- **The models.** The paper's are tuned language models of 7 billion parameters and 4096 dimensions. MiniLM
  (all-MiniLM-L6-v2) has 22 million and 384, is not a language model, and has no head. The available language model,
  GPT-Neo 3M, was trained on children's stories and not fine-tuned.
- **The sets.** SciFact is in both. FiQA, NFCorpus and ArguAna were not available; NPL, CISI and Cranfield were.
- **K and M.** As the paper does, "best" takes the best of the grid for each set, on the test queries. The line below
  it has K and M fixed in advance. MiniLM's lines have the adjustment that was best on SciFact's training queries; the
  language model's, the mean of the documents, was fixed in advance.

Heads for MiniLM: its **input embeddings**; the same **fitted to tokens**, moved by least squares to where the last
states of their tokens are (1,500 sentences); rows **fitted to texts**, a ridge regression from a sentence's embedding
to the bag of its tokens (100,000 sentences); and **random rows**, as a control: what they find, key tokens did not
find.
"""


_CONTROL = """\
Means over the sets at K = {k}. M = 0 is the query's own tokens alone, which find a document only if it is aligned with
them. The control shows what the rest is worth: random rows (one draw here; the next section has five, and rotated
heads) keep {control}, {verb} the input embeddings' {ours}, though none of these rows means its token. Two embeddings
that point nearly the same way have their largest products with the same directions, so that joining a query with its
first M approximates the angle between embeddings, whatever the directions are called. A score near the dense one is
therefore no sign that embeddings say tokens; M = 0, compared with random rows, is. The paper's table has neither, so it
does not show how much of the 80 % is due to key tokens. GPT-Neo finds almost nothing, dense or sparse; its shares mean
little.
"""

_CHOICES = """## What the paper leaves open

- Special tokens are in neither set; tokens of an instruction or template are not the query's own.
- Logits keep their sign. Where they are mostly negative, sharing a token lowers a score: fit an adjustment, or build
  the index with `signs="positive"`.
- A document that shares no token with the query is not found.
- Tokens are compared by their number, so case and the space before a word matter if the tokenizer separates them;
  `spellings=True` joins them.
- MiniLM's embeddings have length 1 before they are decoded, which scales all logits of a text alike; the language
  model's are as they are. No model gets an instruction.
"""


class Sizes(NamedTuple):
    """What the figures are computed with.

    Attributes:
        dimension: of the dense embedding.
        shown: tokens of the vocabulary that stand for text.
        ks: values of K.
        ms: values of M.
        fixed: K and M set beforehand, at which adjustments were compared and times taken.
    """

    dimension: int
    shown: int
    ks: Sequence[int]
    ms: Sequence[int]
    fixed: tuple[int, int]


def make_page(values: Mapping[str, Any], chosen: Mapping[str, str], sizes: Sizes, control: str) -> str:
    """Return the page.

    Args:
        values: what was measured, by name.
        chosen: head -> adjustment.
        sizes: see there.
        control: the part of the page that `control.py` writes.
    """
    machine = f"{platform.machine()}, processor time on one core"
    versions = {name: version(name) for name in ("mteb", "bm25s")}
    date = datetime.date.today().isoformat()
    parts = [_HEAD.format(date=date, python=platform.python_version(), machine=machine, **versions)]
    parts += [
        *_summary(values, chosen, sizes),
        *_paper(),
        *_meaning(values, chosen, sizes),
        control,
        *_grids(values, chosen, sizes),
        *_cost(values, sizes),
    ]
    parts += [*_development(values, sizes), _CHOICES]
    return "\n".join(parts).rstrip() + "\n"


def _cell(values: Mapping[str, Any], head: str, name: str, where: tuple[int, int] | None) -> dict[str, Any] | None:
    """Return the cell of a grid at K and M, or the best."""
    grid = values.get(f"grid | {head} | {name}")
    if grid is None:
        return None
    if where is None:
        best: dict[str, Any] = max((cell for cell in grid if cell["m"]), key=lambda cell: cell["ndcg"])
        return best
    return next(cell for cell in grid if (cell["k"], cell["m"]) == where)


def _summary(values: Mapping[str, Any], chosen: Mapping[str, str], sizes: Sizes) -> list[str]:
    def dense(encoder: str, name: str) -> float | None:
        found: float | None = values.get(f"dense | {encoder} | {name}")
        return found

    def row(label: str, scores: Sequence[float | None], full: Sequence[float | None] | None = None) -> list[str]:
        cells = []
        for n, score in enumerate(scores):
            share = full[n] if full else None
            cells.append("" if score is None else f"{score:.1f}" + (f" ({score / share:.0%})" if share else ""))
        return [label, *cells]

    kinds = {PLAIN: "bm25", STEMMED: "bm25 stemmed"}
    rows = [row(of, [values.get(f"{key} | {name}", {}).get("ndcg") for name in SETS]) for of, key in kinds.items()]
    full = {encoder: [dense(encoder, name) for name in SETS] for encoder in ("MiniLM", "GPT-Neo 3M")}
    rows.append(row("**MiniLM, dense**", full["MiniLM"]))
    for head in chosen:
        encoder = head if head in full else "MiniLM"
        if encoder != "MiniLM":
            rows.append(row(f"**{encoder}, dense, centred**", full[encoder]))
        for where in (None, sizes.fixed):
            cells = [_cell(values, head, name, where) for name in SETS]
            label = f"{'own head' if encoder == head else head}, " + (
                f"K {where[0]}, M {where[1]}" if where else "best"
            )
            rows.append(row(label, [cell and cell["ndcg"] for cell in cells], full[encoder]))
    note = "Shares are of the dense score of the same model. Adjustments: "
    note += ", ".join(f"{head}: {kind}" for head, kind in chosen.items()) + f". BM25, {SETTINGS}.\n"
    return ["## Beside BM25 and the dense model\n", markdown_table(["", *SETS.values()], rows), note]


def _meaning(values: Mapping[str, Any], chosen: Mapping[str, str], sizes: Sizes) -> list[str]:
    """Say what the scores come from: the query's own tokens alone, and joined ones, as means over the sets."""
    k, m = sizes.fixed
    means: dict[str, list[float]] = {}
    for head in chosen:
        encoder = head if f"dense | {head} | cranfield" in values else "MiniLM"
        names = [name for name in SETS if f"grid | {head} | {name}" in values]
        full = [values[f"dense | {encoder} | {name}"] for name in names]
        for where in ((k, 0), (k, m)):
            cells = [_cell(values, head, name, where) for name in names]
            scores = [cell["ndcg"] / score for cell, score in zip(cells, full, strict=True) if cell]
            means.setdefault(head, []).append(sum(scores) / len(scores))
    rows = [[head, *(f"{share:.0%}" for share in shares)] for head, shares in means.items()]
    parts = ["## Is it the key tokens?\n", markdown_table(["share of dense", "M = 0", f"M = {m}"], rows)]
    ours, control = means.get("input embeddings"), means.get("random rows")
    if ours and control:
        verb = "more than" if control[1] > ours[1] else "against"
        parts.append(_CONTROL.format(k=f"{k:,}", control=f"{control[1]:.0%}", verb=verb, ours=f"{ours[1]:.0%}"))
    return parts


def _paper() -> list[str]:
    rows = [[name, *cells] for name, cells in PAPER.items()]
    text = "The paper's Table 3, nDCG@10, best of the grid; about 13 % of the dense model's FLOPs:\n"
    return [text, markdown_table(["", "FiQA", "NFCorpus", "SciFact", "ArguAna"], rows)]


def _grids(values: Mapping[str, Any], chosen: Mapping[str, str], sizes: Sizes) -> list[str]:
    parts = ["## K and M\n"]
    for head in chosen:
        rows = []
        for k in sizes.ks:
            for name, title in SETS.items():
                if f"grid | {head} | {name}" in values:
                    cells = [_cell(values, head, name, (k, m)) for m in sizes.ms]
                    rows.append([f"{title}, K = {k:,}", *(f"{cell['ndcg']:.1f}" for cell in cells if cell)])
        rows.sort(key=lambda row: list(SETS.values()).index(row[0].split(",")[0]))
        parts += [f"{head}:\n", markdown_table(["", *(f"M = {m}" for m in sizes.ms)], rows)]
    return parts


def _cost(values: Mapping[str, Any], sizes: Sizes) -> list[str]:
    k, m = sizes.fixed
    decode = 2 * sizes.dimension * sizes.shown
    rows, times = [], []
    for name, title in SETS.items():
        cell, took = _cell(values, "input embeddings", name, (k, m)), values.get(f"time | {name}")
        if cell is None or took is None:
            continue
        documents = values[f"size | {name}"]
        dense = 2 * sizes.dimension * documents
        enough = decode / (2 * sizes.dimension - cell["additions"] / documents)
        share, whole = cell["additions"] / dense, (cell["additions"] + decode) / dense
        row = [title, f"{documents:,}", f"{dense / 1e6:.2f}", f"{cell['additions'] / 1e6:.3f}", f"{share:.1%}"]
        rows.append([*row, f"{whole:.0%}", f"{enough:,.0f}"])
        bm25 = values[f"bm25 | {name}"]["ms"]
        times.append([title, *(f"{ms:.2f}" for ms in (took["dense"], took["lists"], took["tokens"], bm25))])
    intro = f"""## FLOPs and time a query

At K = {k:,}, M = {m} over MiniLM's input embeddings. Dense: 2 d FLOPs a document, d = {sizes.dimension}. Sparse: one
addition for each logit in the lists of the query's tokens, counted. Embedding the query is the same for both and not
counted. Finding the query's M tokens is a product with the head, 2 d x {sizes.shown:,} = {decode / 1e6:.1f} million
FLOPs whatever the number of documents; from the number in the last column on, both together are fewer than dense
search takes. The paper does not say how it counts its 13 %.
"""
    heads = ["", "documents", "dense, millions", "sparse, millions", "share", "with the head", "pays from"]
    said = """Milliseconds of processor time a query, medians over 50: dense search in numpy (product and the first
ten), adding up the lists and the first ten, finding the query's tokens (reading the text and the product with the
head), and BM25 with all of bm25s' work on a query. At these sizes fewer FLOPs save no time: a dense product streams,
lists do not.
"""
    table = markdown_table(["", "dense", "lists", "query's tokens", "BM25"], times)
    return [intro, markdown_table(heads, rows), said, table]


def _development(values: Mapping[str, Any], sizes: Sizes) -> list[str]:
    found: dict[str, dict[str, str]] = {}
    for key, value in values.items():
        if key.startswith("development | "):
            _, head, kind = key.split(" | ")
            found.setdefault(head, {})[kind] = f"{value:.1f}"
    kinds = list(dict.fromkeys(kind for cells in found.values() for kind in cells))
    rows = [[head, *(cells.get(kind, "") for kind in kinds)] for head, cells in found.items()]
    k, m = sizes.fixed
    text = f"""## What was chosen on which data

nDCG@10 of SciFact's 809 training queries at K = {k:,}, M = {m}; the adjustment with the
highest was taken. The mean of English is that of the sentences the heads are fitted on. The ridge and the weights of
the head fitted to texts were chosen on 400 of these queries, from two of each; those of the head fitted to tokens were
not.
"""
    return [text, markdown_table(["", *kinds], rows)]
