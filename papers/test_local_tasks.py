"""The kinds of sets that the papers' scripts score beside those of the library, against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from papers.local_tasks import evaluate
from pellucid.errors import InputError
from pellucid.evaluation.evaluating import TaskScore
from pellucid.static.embedder import StaticEmbedder
from tasks import WRITERS as TWO_KINDS
from tasks import Dark, Planar, records, table

FRUIT, VEHICLES = ["apple", "pear", "the apple", "pear apple"], ["car", "bicycle", "the car", "bicycle car"]
LABELLED = [(text, "fruit") for text in FRUIT] + [(text, "vehicle") for text in VEHICLES]


def write_reranking(data: Path, name: str = "mine") -> None:
    rows = [
        {"query": "apple", "positive": ["pear"], "negative": ["car", "the apple"]},
        {"query": "car", "positive": ["bicycle"], "negative": ["apple", "pear"]},
        {"query": "nothing to rank", "positive": [], "negative": ["apple"]},
    ]
    records(data / "reranking" / name / "test.jsonl", rows)


def write_classification(data: Path, name: str = "banking77") -> None:
    table(data / "classification" / name / "train.tsv", "text label", LABELLED)
    table(data / "classification" / name / "test.tsv", "text label", LABELLED[::2])


def write_clustering(data: Path, name: str = "mine") -> None:
    table(data / "clustering" / name / "test.tsv", "text label", LABELLED * 3)


def write_pairs(data: Path, name: str = "mine") -> None:
    rows = [("apple", "pear", 1), ("apple", "car", 0), ("car", "bicycle", 1), ("pear", "bicycle", 0)]
    table(data / "pair_classification" / name / "test.tsv", "sentence1 sentence2 label", rows)


WRITERS: dict[str, Callable[[Path], Any]] = {
    **TWO_KINDS,
    "Reranking": write_reranking,
    "Classification": write_classification,
    "Clustering": write_clustering,
    "PairClassification": write_pairs,
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """One set of each kind."""
    for write in WRITERS.values():
        write(tmp_path / "data")
    return tmp_path / "data"


def score(model: Any, data: Path, *tasks: str) -> list[TaskScore]:
    return list(evaluate(model, data=data, tasks=tasks or None, cache_dir=data.parent / "cache").rows)


def test_every_kind(data: Path, fruit: StaticEmbedder) -> None:
    rows = {row.type: row for row in score(fruit, data)}
    assert list(rows) == list(WRITERS)
    assert rows["Reranking"].metric == "map_at_1000"
    assert rows["Reranking"].score == pytest.approx(75.0)  # second, and first
    assert rows["Reranking"].scores["mrr_at_1000"] == pytest.approx(0.75)
    assert rows["Classification"].task == "Banking77Classification"
    assert [rows[kind].score for kind in ("Classification", "Clustering", "PairClassification")] == [100] * 3
    assert {row.task: row.score for row in score(Dark(), data)} == pytest.approx(
        {row.task: row.score for row in score(Planar(), data)}  # sparse rows score as dense ones
    )


def test_sets_of_two_kinds_may_share_a_name_and_a_file(tmp_path: Path) -> None:
    rows = [("apple", "apple", 5, 1), ("apple", "car", 1, 0), ("apple car", "car", 4, 0), ("car", "car", 3, 1)]
    for folder in ("sts", "pair_classification"):
        table(tmp_path / folder / "mine" / "test.tsv", "sentence1 sentence2 score label", rows)
    assert [row.type for row in score(Planar(), tmp_path)] == ["STS", "PairClassification"]


BROKEN = [
    ("reranking/mine/test.jsonl", '{"query": "a", "positive": ["b"], "negative": []}\n', "no query has both"),
    ("classification/banking77/test.tsv", "text\tlabel\na\tanimal\n", "label 'animal' does not occur in train.tsv"),
    ("pair_classification/mine/test.tsv", "sentence1\tsentence2\tlabel\na\tb\t2\n", r"labels must be 0 and 1.*\['2'\]"),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN)
def test_a_broken_file_is_named(data: Path, name: str, content: str, message: str) -> None:
    (data / name).write_text(content)
    with pytest.raises(InputError, match=message):
        score(Planar(), data, name.split("/")[0].replace("_", ""))
