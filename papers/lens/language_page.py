"""The page of LENS on a language model: which of the paper's claims hold, each with a bootstrap interval."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from papers.kit import DRAWS, VERDICTS, Interval, interval_of, markdown_table, processor
from papers.lens.page import PAPER_CLUSTERS, QUERIES
from papers.lens.samples import CLASSES, PAIRS, QUESTIONS, RETRIEVAL, STS, TITLES
from recipes.lexicon_smollm2 import ANSWER, FREQUENCIES, LENGTH, NEGATIVES, TRAINING, Row

BLOCK = "papers/lens/kept_results.py"
"""What stands between the comments of this name is written from the results of several seeds that are kept."""

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
FAILING = {
    "how much does an average person make for tutoring": "(tuple, Tuple)",
    "what county is rossville, ga in": "(count, Count), (COUNT), (SSL, ssl)",
    "what causes tomato dry rot in tomatoes": "(tom), (Tom, Tommy), (rott, #rott)",
    "what is a hangar": "(har, #har), (anger, angers), (tang)",
}
"""The paper's failing queries and the clusters that fire for their letters (its Table 8)."""

CLUSTERS = {
    " quickly": "quickly, rapid, rapidly, swift",
    " cannot": "cannot, impossible, Unable, Cannot, Unable",
    " shows": "shows, shown, showed, showing",
    " review": "review, Review, reviews, reviewed, Reviews",
    " education": "educ, education, Educ, Education, educational, Edu",
    " impact": "impact, Impact, impacts",
    " television": "TV, television, tv, Television, televis",
    " beautiful": "beautiful, lovely, gorgeous, handsome, beautifully",
    " guy": "guy, guys, Guy, dude",
    " star": "star, stars, Stars",
}
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


class Claim(NamedTuple):
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


CLAIMS = (
    Claim("lexicon no lower than dense (mean)", "lexicon", "dense", "-0.02 with 4,000, +0.39 with 8,000 clusters"),
    Claim("lexicon no lower than dense (last)", "lexicon", "dense, last", "the same; the paper's dense model is this"),
    Claim("clusters above all tokens", "lexicon", "all tokens", "figure 3, no numbers"),
    Claim("8,000 clusters above 4,000", "8,000 clusters", "lexicon", "+0.41"),
    Claim("both ways above one way", "lexicon", "one way", "+4.92"),
    Claim("maximum above sum", "lexicon", "sum", "+0.69"),
    Claim(
        "maximum above last",
        "lexicon",
        "last",
        "+0.92",
        "the thresholds were set for the maximum alone; with its own, above",
    ),
    Claim("hybrid above lexicon", "hybrid", "lexicon", "+1.14 (retrieval)"),
    Claim("hybrid above dense", "hybrid", "dense", "+1.33 (retrieval)"),
    Claim("hybrid above two dense models of two seeds", "hybrid", "two dense", "-"),
    Claim("a head set before training above the head as it is", "lexicon", "as in the paper", "proposed in part (5.5)"),
    Claim("frequent clusters weighted down after training", "idf", "lexicon", "proposed (5.5)"),
)
SECOND = {
    "lexicon": "lexicon, second seed",
    "dense": "dense, second seed",
    "one way": "one way, second seed",
    "all tokens": "all tokens, second seed",
}


def make_page(measured: Mapping[str, Measured], shown: Mapping[str, Any]) -> str:
    """Return the page.

    Args:
        measured: label -> scores: those of `ROWS` that were made, "hybrid", "two dense", "idf" and "top-K".
        shown: `queries` (text -> names of the strongest clusters), `clusters` (token ->
            words of its cluster) and `seconds` (label -> processor time of the training).
    """
    parts = [_head(measured, shown), _SEEDS, _claims(measured), _table(measured), _kept(measured), _queries(shown)]
    return "\n".join([*parts, _clusters(shown), _trials(shown), _foot(measured)])


def _head(measured: Mapping[str, Measured], shown: Mapping[str, Any]) -> str:
    row = ROWS["lexicon"]
    samples = ", ".join(f"{name} {queries} queries in {most} documents" for name, (queries, most) in RETRIEVAL.items())
    classes = ", ".join(f"{name} {learned} + {tested}" for name, (learned, tested) in CLASSES.items())
    return f"""# Results: LENS on SmolLM2

Written by `papers/lens/language_model.py` on {datetime.date.today().isoformat()}; Python
{platform.python_version()}, torch {version("torch").partition("+")[0]}, one thread of a machine with {os.cpu_count()}
cores ({processor()}), on which other programs ran.

The claims of the LENS paper (*Enhancing Lexicon-Based Text Embeddings with Large Language Models*) on
SmolLM2-135M-Instruct, whose weights at hand were unpacked from 4 bits: all its 30 layers, of which the last
{row.upper} are trained (d = 576, 49,152 tokens, head tied to the input embeddings). The paper's model is Mistral 7B,
all of it trained on millions of pairs; ours was trained for minutes, so that only the order of models can be compared,
and that for so short a training.

- **Training**, the same for every row (`recipes/lexicon_smollm2.py`): {row.steps} batches of {TRAINING.batch_size}
  sentences or {TRAINING.batch_size} pairs; an adapter of rank {TRAINING.rank} on all linear layers of the last
  {row.upper} layers, learning rate {row.learning_rate:g}, bfloat16. Sentences under open licences are trained towards
  the cosines of two teachers side by side, MiniLM and multilingual-e5-small (from 4 bits, too; divergence, temperature
  {TRAINING.similarity_temperature}); pairs (Tatoeba's paraphrases, MedQuAD's questions with the first {ANSWER} words of
  an answer) by InfoNCE, temperature {TRAINING.temperature}, against the other pairs of the batch. No hard negatives, no
  instructions.
- **Attention.** "Both ways" is said of the trained layers. The {30 - row.upper} layers below them are not trained and
  stay causal in all rows, as they were made (`open_backbone(..., attention={30 - row.upper})`); the paper has no such
  layers. A start token stands before each text and is not pooled.
- **The head** of the lexicon rows is not trained, but it is set before training, the same way for all of them. The
  logits of a language model mean something only beside each other, and in this one nearly all are above 0: with
  centroids as they are, every cluster fires in every text. So the mean centroid is taken away from each, and then from
  each cluster's logit what it passes in one of ten of {FREQUENCIES} sentences, which is the paper's proposal of section
  5.5 at its simplest. The row "as in the paper" has neither. A token's logits are those of the position before it.
- **Sets**, samples of each, drawn once: {PAIRS} pairs of each of six STS sets;
  {samples}
  (the right ones and others at random, so that figures are higher than on the whole set); {QUESTIONS} questions of
  WikiQA; {classes} texts of each class to learn from and to test; {TITLES} titles of
  StackOverflow. A model reads {LENGTH} tokens of a text.
- **Scores** x 100: Spearman's correlation, nDCG@10, mean average precision, accuracy of a logistic regression,
  v-measure. "mean" is over the five kinds.
- **Intervals** are 95 %, of {DRAWS:,} bootstrap samples of the pairs, queries and texts, the same ones for both models
  of a difference. They do not cover the training's own chance{_seeds(measured)}.

{_times(shown)}"""


_SEEDS = f"""## Which claims hold, over seeds; floors and ceilings

Other trainings of the same rows, each with three seeds where the table says so. What every test item came to is kept in
`results/smollm2`, from which `--kept` prints this. Scores are means over the seeds; an interval is of items and seeds,
both drawn with return, and a claim holds if it lies above 0. A quarter of this vocabulary, 12,300 clusters, is the
paper's 8,000 of 32,000 tokens. "881 largest" are the largest coordinates alone, as many as a text has with 4,000
clusters; "maximum" and "sum of 4,000 clusters" are put together from "all tokens" after the training.

Rows asked for later: "of raw rows" groups the head's rows as they are, the paper's way, not by direction alone; "last"
takes the end token's state, with thresholds set at such states; "20 layers both ways" trains twice as many layers;
"pairs alone" is trained by InfoNCE on the pairs without any teacher, each with {NEGATIVES} hard negatives: texts of
other pairs that static-en finds near. Rows whose file names a "dtype" were computed in it, the others in bfloat16.

In bold stand floors and ceilings, for which nothing was trained here: on the same samples, by the same {LENGTH} tokens
of a text ({LENGTH - 2} of its own). BM25 ranks, and has no other scores. All-MiniLM-L6-v2 is one of the two teachers.

<!-- {BLOCK} -->
<!-- end of {BLOCK} -->
"""


def _times(shown: Mapping[str, Any]) -> str:
    found = [seconds for label, seconds in shown["seconds"].items() if ROWS[label].steps]
    return (
        f"A training took {min(found):.0f} to {max(found):.0f} s of processor time. The states of the lower layers are "
        "computed once\nfor all rows and counted in the first that reads a text.\n"
    )


def _seeds(measured: Mapping[str, Measured]) -> str:
    if any(label in measured for label in SECOND.values()):
        return "; a second seed of some\n  rows shows how large that is"
    return ":\n  there is one seed of each row, and a difference of a few points may be of the seed"


def _difference(measured: Mapping[str, Measured], better: str, worse: str, kind: str) -> Interval | None:
    if better not in measured or worse not in measured:
        return None
    return interval_of(measured[better].kind(kind) - measured[worse].kind(kind))


def _claims(measured: Mapping[str, Measured]) -> str:
    lines, said = [], {judged: list[str]() for judged in (*VERDICTS.values(), "not tested", "not run")}
    for claim in CLAIMS:
        found = [_difference(measured, claim.better, claim.worse, kind) for kind in ("mean", "STS", "retrieval")]
        second = _difference(measured, SECOND.get(claim.better, ""), SECOND.get(claim.worse, ""), "mean")
        judged = "not run" if found[0] is None else "not tested" if claim.untested else found[0].verdict()
        said[judged.strip("*")].append(f"{claim.text} ({claim.untested})" if claim.untested else claim.text)
        cells = [None if one is None else one.signed() for one in (*found, second)]
        lines.append([claim.text, claim.paper, *cells, judged])
    header = ["the paper's claim", "the paper", "mean", "STS", "retrieval", "mean, second seed", ""]
    texts = [f"{judged[0].upper()}{judged[1:]}: {'; '.join(claims)}." for judged, claims in said.items() if claims]
    short = "\n".join(fill(line, 118, initial_indent="- ", subsequent_indent="  ") for line in texts)
    return f"""## Which claims hold, of one seed

Rows of one training each: an interval covers the chance of the items, not that of the training. Where a claim also
stands above, over several seeds, that is what counts.

{short}

Points between the two models, with the interval. A claim holds if the interval of the mean lies above 0, does not hold
if it lies below, and is undecided otherwise (an end printed as +0.0 lies above 0 by less). **What does not hold here,
does not hold for a model of 135 million parameters after {ROWS["lexicon"].steps} batches**; the paper's is fifty times
as large and its training far longer.

{markdown_table(header, lines, left=2)}{_of_the_seed(measured)}"""


def _of_the_seed(measured: Mapping[str, Measured]) -> str:
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
    text = (
        f"A second seed moves the mean of {'; of '.join(moved)}. A difference of no more than that may be the seed's."
    )
    return f"\n{fill(text, 118)}\n"


def _table(measured: Mapping[str, Measured]) -> str:
    lines = []
    for label, found in measured.items():
        if label.startswith("top-"):
            continue
        active = None if found.active is None else f"{found.active:,.0f}"
        lines.append([label, *(float(found.kind(kind)[0]) for kind in (*KINDS, "mean")), active])
    header = ["", *KINDS, "mean", "coordinates of a text"]
    sets = [[label, *(float(found.scores[name][0]) for name in _KIND_OF)] for label, found in measured.items()]
    return f"""## All rows

"lexicon" is 4,000 clusters, both ways of attention, maximum; "one way", "sum", "last", "all tokens" and "8,000
clusters" differ from it in that alone. "dense" is the mean of the text's states and "dense, last" the last one, both
ways. "last" takes the state of the end token, for which the thresholds of the clusters were not set. "hybrid" is
lexicon and dense side by side with equal weights, "idf" the lexicon model with each cluster times log(1 / its frequency
among the test texts).

Not trained are "echo", which reads a text twice and takes all tokens of the second time, and PromptReps, which asks for
the one word that the text can be called by: of its answer a text's own tokens, as BM25 has them, and in the dense half
the state. They read all layers one way, and about 90 tokens of a text, where the others read {LENGTH}. "echo" keeps its
{LARGEST:,} largest coordinates.

{markdown_table(header, lines)}
Set by set:

{markdown_table(["", *_KIND_OF], sets)}"""


def _kept(measured: Mapping[str, Measured]) -> str:
    whole = measured["lexicon"]
    lines = []
    for most in KEPT:
        part = measured[f"top-{most}"]
        shares = [100 * part.kind(kind) / whole.kind(kind) for kind in ("retrieval", "STS", "mean")]
        cells = ["{:.1f} % ({:.1f} to {:.1f})".format(*interval_of(share)) for share in shares]
        lines.append([f"{most}", f"{PAPER_KEPT[most]} %", *cells])
    return f"""## Only the largest coordinates (Table 6)

The share of the whole embedding's score that is left, without training. A text has {whole.active:,.0f} coordinates
of 4,000 on average.

{markdown_table(["kept", "paper, BEIR", "retrieval", "STS", "mean"], lines)}"""


def _trials(shown: Mapping[str, Any]) -> str:
    lines = [[label, *(f"{loss:.2f}" for loss in losses)] for label, losses in shown["trials"].items()]
    header = ["", "all", "sentences", "paraphrases", "questions"]
    return f"""## What the settings were chosen from

Mean loss on 20 batches that no row is trained on (14 of sentences, 4 of paraphrases, 2 of medical questions), after
{_TRIAL.steps} batches; lower is better. Where nothing else is said the learning rate is {_TRIAL.learning_rate:g}. What
was best of the lexicon model was taken for all lexicon rows, and one rate for all rows; the test sets had no part in
it. More was tried of the lexicon model than of the dense one, which has less to set.

{markdown_table(header, lines)}"""


def _queries(shown: Mapping[str, Any]) -> str:
    paper = {**dict(zip(QUERIES, PAPER_CLUSTERS)), **FAILING}
    lines = []
    for text, printed in paper.items():
        lines.append([text, *("; ".join(names) for names in shown["queries"][text]), printed])
    header = ["query", "trained", "trained, weighted down", "nothing trained", "LENS-8000, as printed"]
    return f"""## The paper's queries (Tables 3 and 8)

The strongest clusters by name: of the row "lexicon"; of the same with each cluster times log(1 / its frequency among
the test texts); and of the language model before any training, one way, summed over the tokens, less the mean state of
{CENTRED_ON} sentences. The first five queries are the paper's good examples with their five strongest clusters; the
others its failing ones, ten each, of which it prints those that fire for the letters of a word and not for its meaning.
For the letters fire here, too, clusters of "hangar" (hang, har), "hypoxia" (hyp, hyper) and "lisbon" (bon); none of
"tutoring". Weighted down, some of them make room for clusters that fit: of "hangar" for building and wings.

{markdown_table(header, lines, left=5)}"""


def _clusters(shown: Mapping[str, Any]) -> str:
    lines = [[token.strip(), ", ".join(shown["clusters"][token]), printed] for token, printed in CLUSTERS.items()]
    return f"""## Clusters (Tables 4 and 9)

{markdown_table(["token", "its cluster among 4,000 of SmolLM2", "LENS-8000, as printed"], lines, left=3)}"""


def _foot(measured: Mapping[str, Measured]) -> str:
    missing = [f'"{label}"' for label in (*ROWS, *PROMPTED) if label not in measured]
    left_out = f"Rows that were planned and not made:\n{', '.join(missing)}.\n\n" if missing else ""
    return f"""## What was cut

{left_out}Two thirds of the layers were not trained, and are causal. Texts are short and in English, and no row was
trained on hard negatives.
"""
