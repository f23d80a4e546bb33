"""The tables of the LENS paper's ablation: our runs, and which of the paper's findings they bear out."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from papers.kit import MIN_SEEDS, VERDICTS, Figure, Interval, Table, verdict, written

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

    def by_seed(self, run: Run, sets: Sequence[str] = SETS) -> dict[int, float]:
        """Return the mean over sets for each seed there is of the run."""
        return {seed: statistics.fmean(found["scores"][name] for name in sets) for seed, found in self._seeds(run)}

    def development(self, run: Run) -> list[float]:
        """Return the score on held-out paraphrases for each seed."""
        return [found["development"] for _, found in self._seeds(run)]

    def spread(self, run: Run, sets: Sequence[str] = SETS) -> str:
        """Write the mean over sets and seeds, and the standard deviation over seeds."""
        return _spread(list(self.by_seed(run, sets).values()))

    def cells(self, run: Run) -> list[str]:
        """Write the spread over the captions and over the dialogue."""
        return [self.spread(run, sets) for sets in (CAPTIONS, DIALOGUE)]

    def _seeds(self, run: Run) -> Iterator[tuple[int, Result]]:
        for seed in self.seeds:
            if replace(run, seed=seed) in self._by_run:
                yield seed, self._by_run[replace(run, seed=seed)]


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


def judge(differences: Sequence[float]) -> str:
    """Return what the differences of better and worse model, one a seed, say of a finding: too few seeds nothing."""
    if not differences:
        return "not measured"
    interval = Interval(statistics.fmean(differences), min(differences), max(differences))
    return verdict(interval.above(n_seeds=len(differences)))


def figures(measured: Iterable[Result], n_planned: int) -> Iterator[tuple[str, Figure]]:
    """Yield what the page shows.

    Args:
        measured: the results.
        n_planned: how many runs were planned.
    """
    results = Results(measured)
    yield "written", f"{written('torch')}, one thread"
    yield "power", power(results)
    yield "seeds", f"{len(results.seeds)} ({len(results)} of {n_planned} runs done)"
    yield from findings(results)
    yield "pooling", pooling_table(results)
    yield "sizes", sizes_table(results)
    yield "dense", dense_table(results)


def power(results: Results) -> str:
    """Say how many findings as many seeds would confirm by chance alone."""
    claims = [*claims_of_table5(), *claims_of_figure3()]
    found = [differences for claim in claims if (differences := _differences(results, claim))]
    seeds = len(results.seeds)
    if seeds >= MIN_SEEDS:
        return f"{seeds} seeds."
    above, below = (sum(all((x > 0) is side for x in each) for each in found) for side in (True, False))
    return f"""**{seeds} {"seed has" if seeds == 1 else "seeds have"} next to no power: every finding is undecided.** Were nothing but chance at work, all
seeds would agree with a finding once in {2**seeds}, and contradict it as often: {len(claims) / 2**seeds:.1f} each of {len(claims)},
where {above} and {below} came out."""  # noqa: E501


def findings(results: Results) -> Iterator[tuple[str, Figure]]:
    """Yield how many findings come out, and the table of all."""
    lines, counts = [], []
    for name, claims in {"Table 5": claims_of_table5(), "Figure 3": claims_of_figure3()}.items():
        judged = [(claim, _differences(results, claim)) for claim in claims]
        counts.append(f"{name}: {_counts([judge(differences) for _, differences in judged])}")
        for claim, differences in judged:
            parts = [_signed(_differences(results, claim, sets)) for sets in (CAPTIONS, DIALOGUE)]
            above = f", {sum(one > 0 for one in differences)} of {len(differences)} above" if differences else ""
            lines.append([name, claim.text, claim.by, _signed(differences), *parts, judge(differences) + above])
    yield "counts", "; ".join(counts)
    columns = ["of", "the paper finds", "paper, mean / STS", "ours", "captions", "dialogue", ""]
    yield "findings", Table(columns, lines)


def _counts(verdicts: Sequence[str]) -> str:
    words = [word.strip("*") for word in verdicts]
    kinds = [word for word in (*VERDICTS.values(), "not measured") if word in words]
    return ", ".join(f"{words.count(word)} of {len(words)} {word}" for word in kinds)


def _differences(results: Results, claim: Claim, sets: Sequence[str] = SETS) -> list[float]:
    """Return the differences for each seed there is of both."""
    better, worse = (results.by_seed(run, sets) for run in (claim.better, claim.worse))
    return [better[seed] - worse[seed] for seed in sorted(better.keys() & worse.keys())]


def pooling_table(results: Results) -> Table:
    """Return attention and pooling (table 5); in brackets the place among the six."""
    runs = {key: Run(*key, 8000) for key in PAPER}
    means = {key: statistics.fmean(seeds.values()) for key, run in runs.items() if (seeds := results.by_seed(run))}
    lines = []
    for key, run in runs.items():
        places = [_place(key, {k: numbers[column] for k, numbers in PAPER.items()}) for column in (0, 1)]
        paper = [f"{number:.2f} ({place})" for number, place in zip(PAPER[key], places)]
        mean = f"{results.spread(run)} ({_place(key, means)})" if key in means else "-"
        before = results.spread(replace(run, trained=False, taught=False))
        ours = [before, mean, *results.cells(run), _spread(results.development(run))]
        lines.append([ATTENTIONS[key[0]], key[1], *paper, *ours])
    columns = ["attention", "pooling", "paper, mean", "paper, STS", "untrained", "**trained**"]
    return Table([*columns, "captions", "dialogue", "paraphrases"], lines)


def _place(key: Any, numbers: Mapping[Any, float]) -> int:
    return 1 + sum(other > numbers[key] for other in numbers.values())


def sizes_table(results: Results) -> Table:
    """Return clusters and the teacher (figure 3)."""
    lines = []
    for k, theirs in SHARES.items():
        taught, plain = Run("bi", "max", k), Run("bi", "max", k, taught=False)
        runs = (replace(plain, trained=False), plain, taught)
        cells = [*map(results.spread, runs), *results.cells(taught)]
        lines.append([f"{k:,}" if k else "all tokens", theirs, *cells])
    columns = ["k", "the paper's k of that share", "untrained", "without teacher", "with teacher"]
    return Table([*columns, "captions", "dialogue"], lines)


def dense_table(results: Results) -> Table:
    """Return the lexicon models beside the dense vector of the same model."""
    dense = (("uni", "last"), ("bi", "last"), ("bi", "mean"))
    runs = {
        f"dense, {ATTENTIONS[attention]}, {pooling}": Run(attention, pooling, None, taught=False, dense=True)
        for attention, pooling in dense
    }
    runs |= {f"lexicon, {ATTENTIONS['bi']}, max, k = {k:,}": Run("bi", "max", k, taught=False) for k in (4000, 8000)}
    lines = []
    for name, run in runs.items():
        scores = [results.spread(replace(run, trained=False)), results.spread(run)]
        lines.append([name, *scores, *results.cells(run), _spread(results.development(run))])
    return Table(["", "untrained", "trained", "captions", "dialogue", "paraphrases"], lines)


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
