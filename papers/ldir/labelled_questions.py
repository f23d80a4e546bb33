r"""Yes/no heads trained on labelled sets, as embeddings: a small model that answers its questions well.

    python -m papers.ldir.labelled_questions --data shared/data --work-dir WORK --write
    python -m papers.ldir.labelled_questions --data shared/data --work-dir WORK --only floors --bfloat16 --write

LDIR compares anchors with embeddings made of answers to yes/no questions (QAEmb-MBQA, CQG-MBQA), and a language model
of 135 million parameters answers such questions badly (`yes_no_questions.py`). Here each label of the training parts of
Banking77, Emotion and the tweets is a question, "is this text about X?", and a logistic regression on MiniLM's vectors
answers it. A fifth of the texts is kept back and says how well. The floors are texts drawn at random and random
directions, a row of its own: the mean of five draws. Vectors are kept in WORK.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from papers.kit import MIN_SEEDS, Figure, Table, run_script
from papers.ldir.baselines import bundled_anchors
from papers.ldir.names import FLOOR
from papers.ldir.scored import Map, Samples, Tests, beside, difference, random_directions
from papers.ldir.tables import open_encoders
from papers.ldir.third_encoder import random_sentences, scored
from papers.local_tasks import find_tasks
from papers.vector_cache import CachedEncoder, Vectors, unit_rows
from pellucid.anchors import farthest_points
from pellucid.evaluation.tasks import read_table

SETS = ("Banking77Classification", "EmotionClassification", "TweetSentimentExtractionClassification")
OF_SET = 4_000  # texts, drawn at random
GENERAL = 2_000  # sentences of no set, to which the answer is no
KEPT_BACK = 5  # one text of so many says how well the heads answer
COLUMNS = ("", "STS", "less MiniLM", "less the heads' log odds")
ITSELF, FARTHEST = "MiniLM itself", "of the same texts, farthest"


class Labelled(NamedTuple):
    """Texts, the set of each, questions, and which are answered by yes for each text: bool [texts, questions]."""

    texts: list[str]
    sets: list[str]
    questions: list[str]
    answers: npt.NDArray[np.bool_]


def labelled(data: Path) -> Labelled:
    """Return texts of the training parts and general sentences; all other sets' labels are answered by no."""
    texts, names = list[str](), list[str]()
    tasks = {task.name: task for task in find_tasks(data)}
    for name in SETS:
        read = read_table(tasks[name].file("train.tsv"), ["text", "label"])
        drawn = np.random.default_rng(0).permutation(len(read["text"]))[:OF_SET]
        texts += [read["text"][row] for row in drawn]
        names += [f"{name.removesuffix('Classification')}: {read['label'][row]}" for row in drawn]
    general = random_sentences(data / "raw_english" / "open_licence.txt.xz", GENERAL)
    questions = sorted(set(names))
    answers = np.array([[name == question for question in questions] for name in [*names, *[""] * len(general)]])
    return Labelled(
        texts + general, [name.partition(":")[0] for name in names] + [""] * len(general), questions, answers
    )


def wording(question: str) -> str:
    """Return the words of a question."""
    return f"Is this text about {question.partition(': ')[2].replace('_', ' ').lower()}?"


class Heads(NamedTuple):
    """One logistic regression a question: float32 [questions, d] and [questions]; and how well they answer."""

    matrix: Vectors
    offset: Vectors
    areas: Vectors  # under the curve, on the texts of the question's own set that were kept back

    def odds(self, rows: Vectors) -> Vectors:
        """Return the logarithms of the odds of yes, [texts, questions]."""
        return np.asarray(rows @ self.matrix.T + self.offset, np.float32)


def trained_heads(given: Labelled, rows: Vectors) -> Heads:
    """Train a head for each question on four fifths of the texts."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    kept = np.random.default_rng(1).permutation(len(rows)) % KEPT_BACK == 0
    weights, offsets, areas = [], [], []
    for question, answers in zip(given.questions, given.answers.T):
        head = LogisticRegression(C=10.0, class_weight="balanced", max_iter=500).fit(rows[~kept], answers[~kept])
        weights.append(head.coef_[0])
        offsets.append(head.intercept_[0])
        asked = kept & (np.array(given.sets) == question.partition(":")[0])
        areas.append(roc_auc_score(answers[asked], head.decision_function(rows[asked])))
    return Heads(np.array(weights, np.float32), np.array(offsets, np.float32), np.array(areas, np.float32))


def models(given: Labelled, heads: Heads, encode: CachedEncoder) -> Iterator[tuple[str, Map]]:
    """Yield name -> what makes coordinates of MiniLM's rows; means are of the texts that the heads are trained on."""
    rows = unit_rows(encode(given.texts))
    count = len(given.questions)
    mean = heads.odds(rows).mean(axis=0)
    yield ITSELF, lambda those: those
    yield f"{count} heads: log odds, less the mean", lambda those: heads.odds(those) - mean
    yield f"{count} heads: probabilities", lambda those: 1 / (1 + np.exp(-heads.odds(those)))
    yield f"{count} heads: yes or no", lambda those: np.asarray(heads.odds(those) > 0, np.float32)
    others = {
        "the questions' words": [wording(question) for question in given.questions],
        FARTHEST: [given.texts[row] for row in farthest_points(rows, count)],
        "of the same texts, at random": [given.texts[row] for row in np.random.default_rng(2).permutation(len(rows))],
        "the first of anchors-minilm-200": bundled_anchors("anchors-minilm-200"),
    }
    for name, texts in others.items():
        yield f"{count} anchors, less the mean, {name}", less_the_mean(unit_rows(encode(texts[:count])), rows)


def less_the_mean(matrix: Vectors, rows: Vectors) -> Map:
    """Return a map to products with the rows of a matrix, less the mean product of some rows."""
    mean = (rows @ matrix.T).mean(axis=0)
    return lambda those: np.asarray(those @ matrix.T - mean, np.float32)


def floors(count: int, rows: Vectors) -> Iterator[tuple[str, Map]]:
    """Yield MiniLM itself, and draws of as many random directions, which have one name."""
    yield ITSELF, lambda those: those
    for seed in range(MIN_SEEDS):
        yield f"{count} {FLOOR}, less the mean", less_the_mean(random_directions(count, rows.shape[1], seed), rows)


def table(found: list[tuple[str, Samples]], count: int) -> tuple[str, Table]:
    """Return what the heads have more than as many anchors, and each row beside MiniLM and beside the heads."""
    by_name = dict(found)
    heads = next(name for name in by_name if name.startswith(f"{count} heads"))
    lines = [[name, *beside(samples, by_name[ITSELF], by_name[heads])] for name, samples in found]
    far = next(name for name in by_name if name.endswith(FARTHEST))
    return difference(by_name[heads], by_name[far]).with_verdict(), Table(COLUMNS, lines)


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Train the heads and yield how well they answer, and the table."""
    encode, given = open_encoders(options.work_dir, bfloat16=options.bfloat16)[0].encode, labelled(options.data)
    tests, rows = Tests(options.data, encode), unit_rows(encode(given.texts))
    if "floors" in options.only:
        (_, itself), (name, floor) = scored(tests, floors(len(given.questions), rows))
        yield "floor-scores", Table(COLUMNS, [[name, *beside(floor, itself), None]])
    if "heads" not in options.only:
        return
    heads = trained_heads(given, rows)
    claim, scores = table(scored(tests, models(given, heads, encode)), len(given.questions))
    areas = 100 * heads.areas
    yield from {
        "median": float(np.median(areas)),
        "least": float(areas.min()),
        "claim": claim,
        "scores": scores,
    }.items()


if __name__ == "__main__":
    settings = {"--bfloat16": {"action": "store_true", "help": "MiniLM in bfloat16"}}
    data = "sts/, classification/ and raw_english/"
    run_script(measure, settings, data=data, work_dir="vectors", only=("heads", "floors"))
