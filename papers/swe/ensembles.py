"""Ensembles of static-en with WordLlama's table on the test sets at hand.

    python -m papers.swe.ensembles --data shared/data --write

Weights are fitted on English Tatoeba paraphrases (`papers.ldir.development`) and, for search, on MedQuAD's questions;
none of these stands in a test set. For comparison also on MRPC's training pairs without those that hold a sentence of
an STS set. Scores are MTEB's, by `pellucid.evaluate`, and kept; speeds are medians of five interleaved
rounds on one thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from papers.kit import PAPERS, Figure, Table, date_and_machine, run_script, write_block
from papers.ldir.development import held_out, paraphrases
from papers.models import open_any
from pellucid import EnsembleEmbedder, StaticEmbedder, evaluate
from pellucid.ensemble import fit_ranking_weights, fit_weights
from pellucid.ensemble.fitting import FittedWeights
from pellucid.evaluation.tasks import find_tasks, read_records, read_sts, read_table
from pellucid.static import as_static

KINDS = ("STS", "Retrieval")
OURS, THEIRS, TABLE = "static-en", "WordLlama", "WordLlama's table, as static"
_ROUNDS, _ANSWER_WORDS = 5, 60


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Fit and yield the tables, which go into the page of ensembles."""
    data: Path = options.data
    ours, theirs = StaticEmbedder.from_pretrained("static-en"), open_any("wordllama")
    table = as_static(theirs, ours.vocabulary.words, subwords=ours.vocabulary.subwords)
    members: dict[str, Any] = {OURS: ours, THEIRS: theirs.embed}
    static: dict[str, Any] = {OURS: ours, TABLE: table}
    models: dict[str, Any] = {OURS: ours, THEIRS: theirs, TABLE: table}
    fits = {
        "paraphrases": fit_paraphrases(members, data),
        "MRPC": fit_mrpc(members, data),
        "questions": fit_questions(members, data),
        "paraphrases, tables as static": fit_paraphrases(static, data),
    }
    models["ensemble, equal weights"] = EnsembleEmbedder(members)
    for name in ("paraphrases", "MRPC", "questions"):
        models[f"ensemble, weights from {name}"] = EnsembleEmbedder(members, fits[name].weights)
    readable = EnsembleEmbedder(static)
    merged = readable.merged(held_out(data))
    models["ensemble of static tables, equal weights"], models["the same, merged into one table"] = readable, merged
    models["ensemble of static tables, weights from paraphrases with WordLlama's own"] = readable.with_weights(
        fits["paraphrases"].weights
    )
    figures = {
        "weights": fitted_table(fits, list(members)),
        "scores": quality_table(models, data),
        "change": change(readable, merged, data),
        "speed": speeds({OURS: ours, "ensemble": readable, "merged": merged}, data),
    }
    yield from figures.items()
    if options.write:
        text = "\n\n".join(map(str, [*figures.values(), f"`python -m papers.swe.ensembles`, {date_and_machine()}."]))
        write_block(PAPERS.parent / "docs" / "ensembles.md", "papers/swe/ensembles.py", text)


def fit_paraphrases(models: Mapping[str, Any], data: Path) -> FittedWeights:
    """Fit to rank a sentence's paraphrase first among 4,000, less the few that stand in a test set."""
    tests = test_texts(data)
    pairs = [pair for pair in paraphrases(data) if not set(map(_plain, pair)) & tests]
    print(f"Tatoeba: {len(pairs)} pairs of paraphrases share no sentence with a test set")
    first, second = zip(*pairs)
    return fit_ranking_weights(models, first, second, [{number: 1.0} for number in range(len(first))])


def fit_questions(models: Mapping[str, Any], data: Path) -> FittedWeights:
    """Fit to rank the answer of a MedQuAD question first among 2,000."""
    answers: dict[str, str] = {}
    for record in read_records(data / "retrieval_train/medquad/qa.jsonl.xz", ["question", "answer"]):
        answers.setdefault(" ".join(record["answer"].split()[:_ANSWER_WORDS]), record["question"])
    chosen = np.random.default_rng(0).permutation(sorted(answers))[:2000].tolist()
    gains = [{number: 1.0} for number in range(len(chosen))]
    return fit_ranking_weights(models, [answers[answer] for answer in chosen], chosen, gains)


def fit_mrpc(models: Mapping[str, Any], data: Path) -> FittedWeights:
    """Fit to MRPC's training labels, leaving out every pair that shares a sentence with an STS set."""
    tests = set(map(_plain, sts_texts(data)))
    table = read_table(data / "pair_classification/MRPC/train.tsv", ["sentence1", "sentence2", "label"])
    rows = [row for row in zip(*table.values()) if not {_plain(row[0]), _plain(row[1])} & tests]
    print(f"MRPC: {len(rows)} of {len(table['label'])} training pairs share no sentence with an STS set")
    return fit_weights(models, [(one, two) for one, two, _ in rows], [float(label) for *_, label in rows])


def sts_sets(data: Path) -> dict[str, Any]:
    """Return the STS sets by name."""
    return {task.name: read_sts(task) for task in find_tasks(data) if task.kind == "STS"}


def sts_texts(data: Path) -> list[str]:
    """Return every sentence of the STS sets."""
    return [s for pairs in sts_sets(data).values() for side in (pairs.sentences1, pairs.sentences2) for s in side]


def test_texts(data: Path) -> set[str]:
    """Return every text of the STS and retrieval sets, letters and digits alone."""
    texts = sts_texts(data)
    for task in find_tasks(data):
        if task.kind == "Retrieval":
            for name in ("queries.jsonl", "corpus.jsonl"):
                texts += [record["text"] for record in read_records(task.file(name), ["text"])]
    return set(map(_plain, texts))


def _plain(sentence: str) -> str:
    return "".join(c for c in sentence.lower() if c.isalnum())


def fitted_table(fits: Mapping[str, FittedWeights], names: Sequence[str]) -> Table:
    """Return the weights and the development scores they were chosen by."""
    columns = ["fitted on", f"weights ({', '.join(names)})", "development score", "equal weights", "each alone"]
    rows = []
    for name, fit in fits.items():
        weights = ", ".join(f"{weight:.2f}" for weight in fit.weights)
        alone = ", ".join(f"{100 * score:.1f}" for score in fit.alone)
        rows.append([name, weights, 100 * fit.score, 100 * fit.equal, alone])
    return Table(columns, rows, len(columns))


def quality_table(models: Mapping[str, Any], data: Path) -> Table:
    """Return MTEB's scores of every model."""
    columns: list[str] = []
    rows: list[list[Any]] = []
    for name, model in models.items():
        results = evaluate(model, data=data, tasks=list(KINDS), name=name, show_progress_bar=False)
        columns, row = ["model (dimensions)"], [f"{name} ({dimension(model)})"]
        for kind in KINDS:
            columns += [*(one.task for one in results.rows if one.type == kind), f"**{kind}**"]
            row += [*(one.score for one in results.rows if one.type == kind), f"**{results.means[kind]:.2f}**"]
        rows.append(row)
    return Table(columns, rows, len(columns))


def dimension(model: Any) -> int:
    """Return the number of dimensions of any of the models."""
    if hasattr(model, "get_embedding_dimension"):
        return int(model.get_embedding_dimension())
    return int(model.embedding.shape[1])


def change(ensemble: EnsembleEmbedder, merged: StaticEmbedder, data: Path) -> str:
    """Return how far the merged table's scores are from the ensemble's, over all STS pairs."""
    gaps, same = [], []
    for pairs in sts_sets(data).values():
        scores = [
            model.similarity_pairwise(model.encode(pairs[0]), model.encode(pairs[1])) for model in (ensemble, merged)
        ]
        gaps.append(np.abs(scores[0] - scores[1]))
        same.append(float(np.corrcoef(*scores)[0, 1]))
    every = np.concatenate(gaps)
    return (
        f"Merged into one table, the scores of {len(every):,} STS pairs differ from the ensemble's by "
        f"{every.mean():.4f} on average, by {np.quantile(every, 0.99):.4f} at most for 99 % of them and by "
        f"{every.max():.4f} at most (correlation {min(same):.4f} or higher in every set)."
    )


def speeds(models: Mapping[str, Any], data: Path) -> Table:
    """Return texts a second on one thread and the ratio to the first model."""
    texts = sts_texts(data) * 2
    times: dict[str, list[float]] = {name: [] for name in models}
    for model in models.values():
        model.encode(texts[:20_000])  # compiled
    for _ in range(_ROUNDS):
        for name, model in models.items():
            times[name].append(_seconds(model.encode, texts))
    rates = {name: len(texts) / statistics.median(found) for name, found in times.items()}
    first = next(iter(rates.values()))
    columns = ["on one thread", "texts/s", "of static-en's"]
    return Table(columns, [[name, f"{rate:,.0f}", f"{rate / first:.2f}"] for name, rate in rates.items()], len(columns))


def _seconds(encode: Callable[[list[str]], Any], texts: list[str]) -> float:
    start = time.perf_counter()
    encode(texts)
    return time.perf_counter() - start


if __name__ == "__main__":
    run_script(measure, data="sts/, parallel/ and so on", threads=1)
