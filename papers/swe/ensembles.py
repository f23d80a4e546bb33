r"""Ensembles of static-en with WordLlama's table (and model2vec's, where one is at hand) on the test sets at hand.

    python -m papers.swe.ensembles --data shared/data --write
    python -m papers.swe.ensembles --data shared/data --model2vec potion-base-32M

Weights are fitted on English Tatoeba paraphrases (`papers.ldir.development`) and, for search, on MedQuAD's questions;
none of these stands in a test set. For comparison also on MRPC's training pairs without those that hold a sentence of
an STS set. Scores are MTEB's, by `pellucid.evaluate`, and kept; speeds are medians of five interleaved
rounds on one thread.
"""

from __future__ import annotations

from papers.threads import set_threads

set_threads(1)

import datetime
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pellucid
from papers.ldir.development import held_out, paraphrases
from papers.models import open_any
from papers.options import make_parser
from papers.pages import print_block
from pellucid import EnsembleEmbedder, StaticEmbedder, evaluate
from pellucid.ensemble import fit_ranking_weights, fit_weights
from pellucid.ensemble.fitting import FittedWeights
from pellucid.evaluation.tasks import find_tasks, read_records, read_sts, read_table
from pellucid.static import as_static

KINDS = ("STS", "Retrieval")
OURS, THEIRS, TABLE, M2V = "static-en", "WordLlama", "WordLlama's table, as static", "model2vec's table"
_ROUNDS, _ANSWER_WORDS = 5, 60


def main() -> None:
    """Fit, measure, print the tables and write them into the page."""
    page = Path(__file__).resolve().parents[2] / "docs/ensembles.md"
    parser = make_parser(__doc__, data="sts/, parallel/ and so on", write=page)
    parser.add_argument("--model2vec", help="a folder or hub id of a third table")
    arguments = parser.parse_args()
    data: Path = arguments.data
    ours, theirs = pellucid.load("static-en"), open_any("wordllama")
    assert isinstance(ours, StaticEmbedder)
    table = as_static(theirs, ours.vocabulary.words, subwords=ours.vocabulary.subwords)
    parts: dict[str, Any] = {OURS: ours, THEIRS: theirs.embed}
    static: dict[str, Any] = {OURS: ours, TABLE: table}
    models: dict[str, Any] = {OURS: ours, THEIRS: theirs, TABLE: table}
    if arguments.model2vec:
        opened = open_any(f"model2vec:{arguments.model2vec}")
        models[M2V], parts[M2V] = opened, opened.encode
        static[M2V] = as_static(opened, ours.vocabulary.words, subwords=ours.vocabulary.subwords)
    fits = {
        "paraphrases": fit_paraphrases(parts, data),
        "MRPC": fit_mrpc(parts, data),
        "questions": fit_questions(parts, data),
        "paraphrases, tables as static": fit_paraphrases(static, data),
    }
    models["ensemble, equal weights"] = EnsembleEmbedder(parts)
    for name in ("paraphrases", "MRPC", "questions"):
        models[f"ensemble, weights from {name}"] = EnsembleEmbedder(parts, fits[name].weights)
    readable = EnsembleEmbedder(static)
    merged = readable.merged(held_out(data))
    models["ensemble of static tables, equal weights"], models["the same, merged into one table"] = readable, merged
    models["ensemble of static tables, weights from paraphrases with WordLlama's own"] = readable.with_weights(
        fits["paraphrases"].weights
    )
    lines = ["", *fitted_table(fits, list(parts)), "", *quality_table(models, data), ""]
    lines += [*change(readable, merged, data), "", *speeds({OURS: ours, "ensemble": readable, "merged": merged}, data)]
    print_block("papers/swe/ensembles.py", "\n".join([*lines, "", machine()]), arguments.write)


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
    tests = {_plain(s) for pairs in sts_sets(data).values() for side in (pairs[0], pairs[1]) for s in side}
    table = read_table(data / "pair_classification/MRPC/train.tsv", ["sentence1", "sentence2", "label"])
    rows = [row for row in zip(*table.values()) if not {_plain(row[0]), _plain(row[1])} & tests]
    print(f"MRPC: {len(rows)} of {len(table['label'])} training pairs share no sentence with an STS set")
    return fit_weights(models, [(one, two) for one, two, _ in rows], [float(label) for *_, label in rows])


def sts_sets(data: Path) -> dict[str, Any]:
    """Return the STS sets by name."""
    return {task.name: read_sts(task) for task in find_tasks(data) if task.kind == "STS"}


def test_texts(data: Path) -> set[str]:
    """Return every text of the STS and retrieval sets, letters and digits alone."""
    texts = [s for pairs in sts_sets(data).values() for side in (pairs[0], pairs[1]) for s in side]
    for task in find_tasks(data):
        if task.kind == "Retrieval":
            for name in ("queries.jsonl", "corpus.jsonl"):
                texts += [record["text"] for record in read_records(task.file(name), ["text"])]
    return set(map(_plain, texts))


def _plain(sentence: str) -> str:
    return "".join(c for c in sentence.lower() if c.isalnum())


def fitted_table(fits: Mapping[str, FittedWeights], names: Sequence[str]) -> Iterator[str]:
    """Yield the weights and the development scores they were chosen by."""
    yield f"| fitted on | weights ({', '.join(names)}) | development score | equal weights | each alone |"
    yield "|---|---|---|---|---|"
    for name, fit in fits.items():
        weights = ", ".join(f"{weight:.2f}" for weight in fit.weights)
        alone = ", ".join(f"{100 * score:.1f}" for score in fit.alone)
        yield f"| {name} | {weights} | {100 * fit.score:.1f} | {100 * fit.equal:.1f} | {alone} |"


def quality_table(models: Mapping[str, Any], data: Path) -> Iterator[str]:
    """Yield MTEB's scores of every model."""
    header: list[str] = []
    for name, model in models.items():
        results = evaluate(model, data=data, tasks=list(KINDS), name=name, show_progress_bar=False)
        by_kind = {kind: [row for row in results.rows if row.type == kind] for kind in KINDS}
        if not header:
            header = ["model (dimensions)"]
            for kind, rows in by_kind.items():
                header += [row.task for row in rows] + [f"**{kind}**"]
            yield "| " + " | ".join(header) + " |"
            yield "|---" * len(header) + "|"
        cells = [f"{name} ({dimension(model)})"]
        for kind, rows in by_kind.items():
            cells += [f"{row.score:.1f}" for row in rows] + [f"**{results.means[kind]:.2f}**"]
        yield "| " + " | ".join(cells) + " |"


def dimension(model: Any) -> int:
    """Return the number of dimensions of any of the models."""
    if hasattr(model, "get_embedding_dimension"):
        return int(model.get_embedding_dimension())
    return int(model.embedding.shape[1])


def change(ensemble: EnsembleEmbedder, merged: StaticEmbedder, data: Path) -> Iterator[str]:
    """Yield how far the merged table's scores are from the ensemble's, over all STS pairs."""
    gaps, same = [], []
    for pairs in sts_sets(data).values():
        scores = [
            model.similarity_pairwise(model.encode(pairs[0]), model.encode(pairs[1])) for model in (ensemble, merged)
        ]
        gaps.append(np.abs(scores[0] - scores[1]))
        same.append(float(np.corrcoef(*scores)[0, 1]))
    every = np.concatenate(gaps)
    yield (
        f"Merged into one table, the scores of {len(every):,} STS pairs differ from the ensemble's by "
        f"{every.mean():.4f} on average, by {np.quantile(every, 0.99):.4f} at most for 99 % of them and by "
        f"{every.max():.4f} at most (correlation {min(same):.4f} or higher in every set)."
    )


def speeds(models: Mapping[str, Any], data: Path) -> Iterator[str]:
    """Yield texts a second on one thread and the ratio to the first model."""
    texts = [s for pairs in sts_sets(data).values() for side in (pairs[0], pairs[1]) for s in side] * 2
    times: dict[str, list[float]] = {name: [] for name in models}
    for model in models.values():
        model.encode(texts[:20_000])  # compiled
    for _ in range(_ROUNDS):
        for name, model in models.items():
            times[name].append(_seconds(model.encode, texts))
    rates = {name: len(texts) / statistics.median(found) for name, found in times.items()}
    first = next(iter(rates.values()))
    yield "| on one thread | texts/s | of static-en's |"
    yield "|---|---|---|"
    for name, rate in rates.items():
        yield f"| {name} | {rate:,.0f} | {rate / first:.2f} |"


def _seconds(encode: Callable[[list[str]], Any], texts: list[str]) -> float:
    start = time.perf_counter()
    encode(texts)
    return time.perf_counter() - start


def machine() -> str:
    """Say what was run, where and when."""
    return (
        f"`python -m papers.swe.ensembles`, {datetime.date.today()}, {platform.machine()}, "
        f"Python {platform.python_version()}."
    )


if __name__ == "__main__":
    main()
