"""The page of the LENS paper's ablation: our runs beside the paper's numbers, and which findings they bear out."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, NamedTuple

from papers.kit import VERDICTS, Interval, markdown_table

CAPTIONS = ("STS12 MSRvid", "STS14 images", "STS15 images")
DIALOGUE = ("STS14 deft-forum", "STS15 answers-forums", "STS15 belief")
SETS = (*CAPTIONS, *DIALOGUE)

PAPER = {
    ("uni", "last"): (67.73, 89.26),
    ("uni", "sum"): (62.48, 80.55),
    ("uni", "max"): (64.15, 82.74),
    ("bi", "last"): (68.15, 88.72),
    ("bi", "sum"): (68.38, 89.58),
    ("bi", "max"): (69.07, 88.92),
}
"""LENS, table 5: attention and pooling -> mean over tasks of seven kinds, and the STS task alone (k = 8000)."""

DECIDING = 5  # seeds: the fewest that all have one sign by chance in less than one case of twenty
SHARES = {1000: "2,000", 2000: "4,000", 4000: "8,000", 8000: "16,000", None: "32,000, all"}
"""Which of the paper's k, of 32,000 tokens, is nearest to the same share of the vocabulary."""

ATTENTIONS = {"uni": "one way", "bi": "both ways"}


@dataclass(frozen=True)
class Run:
    """One model.

    Attributes:
        attention: "uni" or "bi".
        pooling: "last", "sum" or "max"; of dense models "last" or "mean".
        k: clusters; None for one dimension a token.
        taught: whether a teacher's scores are learned beside the pairs.
        trained: whether it is trained at all.
        dense: whether its embedding is the state itself.
        seed: of clusters, adapter and the order of texts.
    """

    attention: str
    pooling: str
    k: int | None
    taught: bool = True
    trained: bool = True
    dense: bool = False
    seed: int = 0

    @property
    def name(self) -> str:
        """What its file is called by."""
        size = "dense" if self.dense else self.k or "V"
        how = "untrained" if not self.trained else "taught" if self.taught else "plain"
        return f"{self.attention}-{self.pooling}-{size}-{how}-{self.seed}"


class Claim(NamedTuple):
    """A finding of the paper: one model is better than another; `by` are its points where it gives them."""

    text: str
    better: Run
    worse: Run
    by: str = "-"


Result = Mapping[str, Any]
"""A run's attributes with scores (set -> Spearman's correlation x 100) and development."""


class Results:
    """What was measured, found by what it is of."""

    def __init__(self, results: Iterable[Result]) -> None:
        """Take in the results."""
        self._by_run = {Run(**{name: r[name] for name in Run.__dataclass_fields__}): r for r in results}
        self.seeds = sorted({run.seed for run in self._by_run})

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._by_run)

    def values(self, run: Run, sets: Sequence[str] = SETS) -> list[float]:
        """Return the mean over sets for each seed there is of the run."""
        return list(self.by_seed(run, sets).values())

    def by_seed(self, run: Run, sets: Sequence[str]) -> dict[int, float]:
        """The same by seed."""
        found = {seed: self._by_run.get(replace(run, seed=seed)) for seed in self.seeds}
        return {seed: statistics.fmean(r["scores"][name] for name in sets) for seed, r in found.items() if r}

    def development(self, run: Run) -> list[float]:
        """Return the score on held-out paraphrases for each seed."""
        return [r["development"] for seed in self.seeds if (r := self._by_run.get(replace(run, seed=seed)))]


def claims_of_table5() -> list[Claim]:
    """Return the paper's findings on attention and pooling, by its mean over tasks."""
    pairs = [(("bi", pooling), ("uni", pooling)) for pooling in ("last", "sum", "max")]
    pairs += [(("bi", "max"), ("bi", "sum")), (("bi", "max"), ("bi", "last")), (("bi", "sum"), ("bi", "last"))]
    pairs += [(("uni", "last"), ("uni", "max")), (("uni", "last"), ("uni", "sum")), (("uni", "max"), ("uni", "sum"))]
    claims = []
    for better, worse in pairs:
        by = " / ".join(f"{ours - theirs:+.2f}" for ours, theirs in zip(PAPER[better], PAPER[worse]))
        text = f"{ATTENTIONS[better[0]]}, {better[1]} above {ATTENTIONS[worse[0]]}, {worse[1]}"
        claims.append(Claim(text, Run(*better, 8000), Run(*worse, 8000), by))
    return claims


def claims_of_figure3() -> list[Claim]:
    """Return the paper's findings on clusters and distillation; its figure gives no numbers."""
    whole = Run("bi", "max", None)
    sizes = [Claim(f"{k:,} clusters above all tokens", Run("bi", "max", k), whole) for k in SHARES if k]
    plain = {k: Run("bi", "max", k, taught=False) for k in SHARES}
    taught = [Claim(f"{k:,} clusters: the teacher helps", Run("bi", "max", k), plain[k]) for k in SHARES if k]
    return [*sizes, *taught, Claim("all tokens: the teacher does not help", plain[None], whole)]


def verdict(differences: Sequence[float]) -> str:
    """Return what the differences of better and worse model, one a seed, say of a finding: too few seeds nothing."""
    if not differences:
        return "not measured"
    if len(differences) < DECIDING:
        return VERDICTS[None]
    return Interval(sum(differences) / len(differences), min(differences), max(differences)).verdict()


def agreement(differences: Sequence[float]) -> str:
    """Return in how many seeds the better model is above."""
    return f"{sum(one > 0 for one in differences)} of {len(differences)} above"


def make_page(given: Iterable[Result], facts: Mapping[str, Any]) -> str:
    """Return the page.

    Args:
        given: the results.
        facts: of the recipe: pairs, rows, words, negatives, development, steps, batch, group, rate; and of
            runs: planned.
    """
    results = Results(given)
    parts = [
        _head(results, facts, _power(results)),
        _summary(results),
        _pooling(results),
        _sizes(results),
        _dense(results),
    ]
    return "\n".join([*parts, _foot(facts)])


def _power(results: Results) -> str:
    """Say how many findings as many seeds would confirm by chance alone."""
    claims = [*claims_of_table5(), *claims_of_figure3()]
    found = [differences for claim in claims if (differences := _differences(results, claim))]
    seeds = len(results.seeds)
    if seeds >= DECIDING:
        return f"{seeds} seeds."
    chance = len(claims) / 2**seeds
    above, below = (
        sum(all((one > 0) is side for one in differences) for differences in found) for side in (True, False)
    )
    said = "seed has" if seeds == 1 else "seeds have"
    return f"""**{seeds} {said} next to no power: every finding is undecided.** Were nothing but chance at work, all
seeds would agree with a finding once in {2**seeds}, and contradict it as often: {chance:.1f} each of {len(claims)},
where {above} and {below} came out."""


def _head(results: Results, facts: Mapping[str, Any], power: str) -> str:
    return f"""# Results: the lexicon ablation

Written by `papers/lens/ablation.py` on {datetime.date.today().isoformat()}; Python {platform.python_version()},
torch {version("torch").partition("+")[0]}, one thread of a machine with {os.cpu_count()} cores.

{power}

Table 5 and figure 3 of the LENS paper (*Enhancing Lexicon-Based Text Embeddings with Large Language Models*) with ours
beside them: does bidirectional attention help a causal language model, which pooling is best, how many clusters, and
does a teacher help? The paper's model is Mistral 7B. Ours is very small, so only the order can be compared, and even
that with care:

- **Model.** GPT-Neo with 3.4 million parameters (8 layers, d = 128, 14,019 tokens), which knows children's stories and
  everyday dialogue. Its head is tied to its input embeddings.
- **Training.** {facts["steps"]} steps of {facts["batch"]} queries with {facts["group"] - 1} hard negatives each, of
  {facts["rows"]:,} queries: English sentences of Tatoeba (CC BY 2.0 FR) of at most {facts["words"]} words, each with a
  sentence that has the same translation. {facts["pairs"]:,} such pairs were found; sentences of the STS sets are not
  among them. Adapter, loss and temperature are the paper's; the learning rate is {facts["rate"]:g}, chosen by
  {facts["development"]:,} held-out pairs. The teacher is MiniLM: its cosines / 0.05 over each query's candidates.
- **Test.** Spearman's correlation x 100 on three sets of captions ({", ".join(CAPTIONS)}) and three of dialogue
  ({", ".join(DIALOGUE)}), each set for itself; the mean is over all six. They were not used for any choice. The
  paper's mean is over tasks of seven kinds, of which STS is one.
- **Seeds.** {len(results.seeds)} ({len(results)} of {facts["planned"]} runs done); clusters, adapter and the order of
  texts follow from the seed. "±" is the standard deviation over seeds. With {DECIDING} seeds or more a finding holds if
  every seed shows it and does not hold if none does; otherwise, and with fewer, it is undecided.
"""


def _summary(results: Results) -> str:
    claims = {"Table 5": claims_of_table5(), "Figure 3": claims_of_figure3()}
    lines, verdicts = [], {}
    for name, found in claims.items():
        judged = [(claim, _differences(results, claim)) for claim in found]
        verdicts[name] = [verdict(differences) for _, differences in judged]
        for claim, differences in judged:
            parts = [_signed(_differences(results, claim, sets)) for sets in (CAPTIONS, DIALOGUE)]
            said = f"{verdict(differences)}, {agreement(differences)}" if differences else verdict(differences)
            lines.append((name, claim.text, claim.by, _signed(differences), *parts, said))
    counts = "; ".join(f"{name}: {_counted(found)}" for name, found in verdicts.items())
    header = ("of", "the paper finds", "paper, mean / STS", "ours", "captions", "dialogue", "")
    return f"""## Which findings come out

{counts}. Numbers are points between the two models: the mean over seeds, the least and the greatest. The paper's
findings are those of its mean over tasks; where its STS has the other sign, its STS says the opposite.

{markdown_table(header, lines)}"""


def _counted(verdicts: Sequence[str]) -> str:
    said = [one.strip("*") for one in verdicts]
    kinds = [word for word in (*VERDICTS.values(), "not measured") if word in said]
    return ", ".join(f"{sum(word == one for one in said)} of {len(said)} {word}" for word in kinds)


def _differences(results: Results, claim: Claim, sets: Sequence[str] = SETS) -> list[float]:
    """Return the differences for each seed there is of both."""
    better, worse = (results.by_seed(run, sets) for run in (claim.better, claim.worse))
    return [better[seed] - worse[seed] for seed in sorted(better.keys() & worse.keys())]


def _pooling(results: Results) -> str:
    runs = {key: Run(*key, 8000) for key in PAPER}
    ours = {key: results.values(run) for key, run in runs.items()}
    measured = {key: statistics.fmean(found) for key, found in ours.items() if found}
    lines = []
    for key, run in runs.items():
        places = [_place(key, {k: numbers[column] for k, numbers in PAPER.items()}) for column in (0, 1)]
        paper = [f"{number:.2f} ({place})" for number, place in zip(PAPER[key], places)]
        mean = f"{_spread(ours[key])} ({_place(key, measured)})" if key in measured else "-"
        before = _spread(results.values(replace(run, trained=False, taught=False)))
        parts = [_spread(results.values(run, sets)) for sets in (CAPTIONS, DIALOGUE)]
        lines.append((ATTENTIONS[key[0]], key[1], *paper, before, mean, *parts, _spread(results.development(run))))
    header = (
        "attention",
        "pooling",
        "paper, mean",
        "paper, STS",
        "untrained",
        "**trained**",
        "captions",
        "dialogue",
        "paraphrases",
    )
    return f"""## Attention and pooling (table 5)

k = 8000, with the teacher; in brackets the place among the six. "Paraphrases" is the reciprocal rank x 100 of a
held-out sentence's paraphrase among those of all held-out sentences.

{markdown_table(header, lines)}"""


def _place(key: Any, numbers: Mapping[Any, float]) -> int:
    return 1 + sum(other > numbers[key] for other in numbers.values())


def _sizes(results: Results) -> str:
    lines = []
    for k, theirs in SHARES.items():
        taught, plain = Run("bi", "max", k), Run("bi", "max", k, taught=False)
        before = _spread(results.values(replace(plain, trained=False)))
        parts = [_spread(results.values(taught, sets)) for sets in (CAPTIONS, DIALOGUE)]
        size = f"{k:,}" if k else "all tokens"
        lines.append((size, theirs, before, _spread(results.values(plain)), _spread(results.values(taught)), *parts))
    header = (
        "k",
        "the paper's k of that share",
        "untrained",
        "without teacher",
        "with teacher",
        "captions",
        "dialogue",
    )
    return f"""## Clusters and the teacher (figure 3)

Bidirectional attention, max pooling. The paper's figure has 8,000 and 16,000 clusters above all 32,000 tokens, 2,000
above them still, and the teacher a help at every k but at all tokens. "Captions" and "dialogue" are with the teacher.

{markdown_table(header, lines)}"""


def _dense(results: Results) -> str:
    lines = []
    for attention, pooling in (("uni", "last"), ("bi", "last"), ("bi", "mean")):
        run = Run(attention, pooling, None, taught=False, dense=True)
        before = _spread(results.values(replace(run, trained=False)))
        parts = [_spread(results.values(run, sets)) for sets in (CAPTIONS, DIALOGUE)]
        name = f"dense, {ATTENTIONS[attention]}, {pooling}"
        lines.append((name, before, _spread(results.values(run)), *parts, _spread(results.development(run))))
    for k in (4000, 8000):
        run = Run("bi", "max", k, taught=False)
        before = _spread(results.values(replace(run, trained=False)))
        parts = [_spread(results.values(run, sets)) for sets in (CAPTIONS, DIALOGUE)]
        name = f"lexicon, {ATTENTIONS['bi']}, max, k = {k:,}"
        lines.append((name, before, _spread(results.values(run)), *parts, _spread(results.development(run))))
    header = ("", "untrained", "trained", "captions", "dialogue", "paraphrases")
    return f"""## Beside the dense vector of the same model

The state itself as embedding (128 dimensions), trained with plain sentence-transformers
(`MultipleNegativesRankingLoss`): the same rows, steps, adapter, rate and temperature, no teacher on either side.

{markdown_table(header, lines)}"""


def _foot(facts: Mapping[str, Any]) -> str:
    return f"""## What this does not show

The model is two thousand times smaller than the paper's and was trained on little text; its states have 128 dimensions
for up to 14,019 coordinates. It saw {facts["steps"] * facts["batch"]:,} queries of at most {facts["words"]} words. STS
is one of the paper's seven kinds of task; the others were not measured.
"""


def _spread(values: Sequence[float]) -> str:
    """Return the mean and the standard deviation, as "71.2 ± 0.4"."""
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.1f}"


def _signed(values: Sequence[float]) -> str:
    """Return the mean difference, and the least and the greatest where there are several."""
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):+.1f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):+.1f} to {max(values):+.1f})"
