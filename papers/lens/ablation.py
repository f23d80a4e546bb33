r"""The ablation of the LENS paper (its table 5 and figure 3) on a small causal language model.

    python -m papers.lens.ablation --data shared/data --work-dir WORK --write

What is trained on, and how, is the same in all runs and stands in `RECIPE`. Every run is kept in the work folder and
not done again; a run takes about a minute on one core, and --part and --parts divide them among processes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from papers.kit import MIN_SEEDS, Experiment, Figure, Interval, Kept, Table, Verdict, run_script, written
from papers.ldir.scored import reciprocal_rank
from papers.models import kept_encoder, minilm_path
from papers.vector_cache import Vectors
from pellucid import LexiconEmbedder, cluster_vocabulary, load, train_lexicon
from pellucid.evaluation.tasks import read_table
from pellucid.lexicon import (
    Clusters,
    LexiconSettings,
    TrainingSet,
    TrainingSettings,
    read_training_sets,
)
from pellucid.lexicon.training_data import TrainingRow
from pellucid.transformer import open_backbone
from pellucid.transformer.backbone import Attention
from recipes.lexicon_head import load_clusters, save_clusters
from recipes.lexicon_minilm import hard_negatives, score_rows
from recipes.tatoeba_pairs import Pair, all_paraphrases, letters, test_sentences

POOLINGS, KS = ("last", "sum", "max"), (1000, 2000, 4000, 8000, None)
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
class Recipe:
    """What all runs have in common.

    Attributes:
        words: of the longest sentence trained on.
        queries: sentences trained on, each with its paraphrases and mined negatives.
        negatives: of each query, the nearest in the teacher's opinion that are less near than its paraphrase.
        development: pairs kept out of training, by which the learning rate was chosen.
        steps: batches.
        batch: queries in each.
        group: candidates of a query in a batch, one of them a paraphrase.
        rate: learning rate, after a tenth of the steps.
    """

    words: int = 10
    queries: int = 12_000
    negatives: int = 7
    development: int = 1_000
    steps: int = 120
    batch: int = 16
    group: int = 4
    rate: float = 2.5e-4


RECIPE = Recipe()


@dataclass(frozen=True)
class Run:
    """One model.

    Attributes:
        attention: "uni" or "bi".
        pooling: "last", "sum" or "max".
        k: clusters; None for one dimension a token.
        taught: whether a teacher's scores are learned beside the pairs.
        trained: whether it is trained at all.
        seed: of clusters, adapter and the order of texts.
    """

    attention: str
    pooling: str
    k: int | None
    taught: bool = True
    trained: bool = True
    seed: int = 0


class Bench:
    """The data, the model and the teacher, and what was measured before."""

    def __init__(self, data: Path, model: Path, work: Path, recipe: Recipe) -> None:
        """Find what was measured with this recipe; nothing is read yet."""
        self.data, self.model, self.work, self.recipe = data, model, work, recipe
        self.kept = work / f"runs-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:8]}"
        self.pairs = all_paraphrases(data / "parallel" / "tatoeba", test_sentences(data / "sts"))
        self.development, others = divided(self.pairs, recipe.development)
        self.rows = self._training_rows(others)
        self.sets = {name: scored_pairs(data, name) for name in SETS}

    def _training_rows(self, pairs: Sequence[Pair]) -> list[TrainingRow]:
        """Return queries with paraphrases, hard negatives and the teacher's scores; made once."""
        recipe = self.recipe
        path = self.work / f"rows-{recipe.words}-{recipe.queries}-{recipe.negatives}-{recipe.development}.jsonl"
        if not path.exists():
            teacher = kept_encoder(minilm_path(), self.work / "vectors", "all-MiniLM-L6-v2")
            short = [pair for pair in pairs if max(len(text.split()) for text in pair) <= recipe.words]
            rows = hard_negatives(queries_of(short)[: recipe.queries], load(teacher), recipe.negatives)
            rows = score_rows([row for row in rows if len(row.neg) >= recipe.group - 1], load(teacher))
            path.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows), encoding="utf-8")
        return read_training_sets(path)[0].rows

    def result(self, **settings: Any) -> dict[str, Any]:
        """Return what a run gives."""
        run, start = Run(**settings), time.process_time()
        model = self._model(run)
        found = self._measured(lambda texts: model.encode(texts).toarray())
        return {**found, "seconds": round(time.process_time() - start, 1)}

    def _model(self, run: Run) -> LexiconEmbedder:
        attention: Attention = "causal" if run.attention == "uni" else "bidirectional"
        backbone = open_backbone(self.model, attention=attention, device="cpu")
        model = LexiconEmbedder(backbone, self._clusters(backbone, run), LexiconSettings(pooling=run.pooling))  # type: ignore[arg-type]
        if run.trained:
            with tempfile.TemporaryDirectory() as folder:
                training_set = TrainingSet("tatoeba", self.rows)
                model = train_lexicon(model, [training_set], folder, self._settings(run), show_progress_bar=False)
        return model

    def _settings(self, run: Run) -> TrainingSettings:
        recipe = self.recipe
        return TrainingSettings(
            max_steps=recipe.steps,
            batch_size=recipe.batch,
            group_size=recipe.group,
            learning_rate=recipe.rate,
            warmup_steps=recipe.steps // 10,
            distillation=float(run.taught),
            save_steps=recipe.steps + 1,
            seed=run.seed,
        )

    def _clusters(self, backbone: Any, run: Run) -> Clusters:
        """Return the clusters of a seed, made once."""
        folder = self.work / f"clusters-{run.k}-{run.seed if run.k else 0}"
        if not folder.exists():
            clusters = cluster_vocabulary(backbone.head, backbone.tokenizer, run.k, seed=run.seed)
            with tempfile.TemporaryDirectory(dir=self.work) as aside:
                save_clusters(Path(aside), clusters)
                os.rename(aside, folder)
                os.mkdir(aside)
        return load_clusters(folder)

    def _measured(self, encode: Callable[[list[str]], Vectors]) -> dict[str, Any]:
        """Return Spearman's correlation x 100 on each set, and the held-out paraphrases' reciprocal rank x 100."""
        scores = {}
        for name, (firsts, seconds, people) in self.sets.items():
            cosines = np.einsum("ij,ij->i", encode(firsts), encode(seconds))
            scores[name] = 100 * float(spearmanr(cosines, people)[0])
        firsts, seconds = (encode(list(side)) for side in zip(*self.development))
        rank = reciprocal_rank(firsts, seconds, np.eye(len(firsts), dtype=bool))
        return {"scores": scores, "development": 100 * rank}


def divided(pairs: Sequence[Pair], development: int) -> tuple[list[Pair], list[Pair]]:
    """Return pairs to choose settings by, no sentence twice, and the pairs that share no sentence with them."""
    chosen: list[Pair] = []
    used: set[str] = set()
    for pair in pairs:
        if len(chosen) < development and not used & set(map(letters, pair)):
            chosen.append(pair)
            used |= set(map(letters, pair))
    return chosen, [pair for pair in pairs if not used & set(map(letters, pair))]


def queries_of(pairs: Sequence[Pair]) -> list[TrainingRow]:
    """Return one row for each first sentence, with all its paraphrases."""
    partners: dict[str, list[str]] = {}
    for query, partner in pairs:
        partners.setdefault(query, []).append(partner)
    return [TrainingRow(query, tuple(found)) for query, found in partners.items()]


def scored_pairs(data: Path, name: str) -> tuple[list[str], list[str], Any]:
    """Return the pairs of one subset, called as "STS12 MSRvid", with people's scores."""
    task, subset = name.split()
    columns = ["sentence1", "sentence2", "score", "subset"]
    table = read_table(data / "sts" / task / "test.tsv", columns)
    rows = [row for row in zip(*(table[column] for column in columns)) if row[3] == subset]
    firsts, seconds, scores, _ = zip(*rows)
    return list(firsts), list(seconds), np.array(scores, float)


def planned(seeds: int) -> list[Run]:
    """Return all runs: the tables of the first seed, what they are compared with, and the same of the other seeds."""
    grid = [Run(attention, pooling, 8000) for attention in ("uni", "bi") for pooling in POOLINGS]
    sizes = [Run("bi", "max", k, taught=taught) for taught in (True, False) for k in KS]
    once = [*grid, *sizes]
    runs = [*once, *(replace(run, trained=False, taught=False) for run in once)]
    runs += [replace(run, seed=seed) for seed in range(1, seeds) for run in once]
    return list(dict.fromkeys(runs))


# --- The page ---------------------------------------------------------------------------------------------------------


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


def judge(differences: Sequence[float]) -> Verdict:
    """Return what the differences of better and worse model, one a seed, say of a finding: too few seeds nothing."""
    return Interval(statistics.fmean(differences), min(differences), max(differences), len(differences)).verdict()


def figures(measured: Iterable[Result]) -> Iterator[tuple[str, Figure]]:
    """Yield what the page shows of all runs."""
    results = Results(measured)
    yield "written", f"{written('torch')}, one thread"
    yield "seeds", f"{len(results.seeds)} ({len(results)} runs)"
    yield from findings(results)
    yield "pooling", pooling_table(results)
    yield "sizes", sizes_table(results)


def findings(results: Results) -> Iterator[tuple[str, Figure]]:
    """Yield how many findings come out, and the table of all."""
    lines, counts = [], []
    for name, claims in {"Table 5": claims_of_table5(), "Figure 3": claims_of_figure3()}.items():
        judged = [(claim, _differences(results, claim)) for claim in claims]
        counts.append(f"{name}: {_counts([judge(differences) for _, differences in judged])}")
        for claim, differences in judged:
            parts = [_signed(_differences(results, claim, sets)) for sets in (CAPTIONS, DIALOGUE)]
            above = f", {sum(one > 0 for one in differences)} of {len(differences)} above"
            lines.append([name, claim.text, claim.by, _signed(differences), *parts, f"{judge(differences)}{above}"])
    yield "counts", "; ".join(counts)
    columns = ["of", "the paper finds", "paper, mean / STS", "ours", "captions", "dialogue", "verdict"]
    yield "findings", Table(columns, lines)


def _counts(verdicts: Sequence[Verdict]) -> str:
    kinds = [verdict for verdict in Verdict if verdict in verdicts]
    return ", ".join(f"{verdicts.count(verdict)} of {len(verdicts)} {verdict.value}" for verdict in kinds)


def _differences(results: Results, claim: Claim, sets: Sequence[str] = SETS) -> list[float]:
    """Return the differences for each seed there is of both."""
    better, worse = (results.by_seed(run, sets) for run in (claim.better, claim.worse))
    return [better[seed] - worse[seed] for seed in sorted(better.keys() & worse.keys())]


def pooling_table(results: Results) -> Table:
    """Return attention and pooling (table 5); in brackets the place among the six."""
    runs = {key: Run(*key, 8000) for key in PAPER}
    means = {key: statistics.fmean(results.by_seed(run).values()) for key, run in runs.items()}
    lines = []
    for key, run in runs.items():
        places = [_place(key, {k: numbers[column] for k, numbers in PAPER.items()}) for column in (0, 1)]
        paper = [f"{number:.2f} ({place})" for number, place in zip(PAPER[key], places)]
        mean = f"{results.spread(run)} ({_place(key, means)})"
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


def _spread(values: Sequence[float]) -> str:
    """Return the mean and the standard deviation, as "71.2 ± 0.4"."""
    mean = f"{statistics.fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.1f}"


def _signed(values: Sequence[float]) -> str:
    """Return the mean difference, and the least and the greatest where there are several."""
    mean = f"{statistics.fmean(values):+.1f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):+.1f} to {max(values):+.1f})"


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Do the runs that are not kept and yield what the page shows."""
    options.model = options.model or options.data / "lm" / "gpt-neo-3m-stories"
    bench = Bench(options.data, options.model, options.work_dir, RECIPE)
    yield from {"queries": f"{len(bench.rows):,}", "pairs": f"{len(bench.pairs):,}"}.items()
    runs = Experiment(Bench.result, [asdict(run) for run in planned(options.seeds)])
    kept = Kept(bench.kept / f"run-{options.part}.jsonl")
    results = runs.rows(kept, bench, part=options.part, parts=options.parts)
    if len(results) == len(runs.grid):
        yield from figures(results)


if __name__ == "__main__":
    run_script(
        measure,
        {
            "--model": {"type": Path, "help": "the causal language model [DATA/lm/gpt-neo-3m-stories]"},
            "--seeds": {"type": int, "default": MIN_SEEDS, "help": "runs of each kind [%(default)s]"},
            "--part": {"type": int, "default": 0, "help": "do these of the runs, from 0 [0]"},
            "--parts": {"type": int, "default": 1, "help": "into which the runs are divided among processes [1]"},
        },
        data="sts/, parallel/ and lm/",
        work_dir="results",
        threads=1,
    )
