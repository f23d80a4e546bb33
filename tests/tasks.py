"""Small task folders of every kind that evaluation reads, and a model of two dimensions to score on them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.core.embedder import Embedder
from pellucid.evaluation.evaluating import TaskScore, evaluate

RISING = [
    ("apple", "car", 0.5),
    ("apple", "the", 1.0),
    ("car pear", "apple", 1.5),
    ("pear", "apple", 4),
    ("car", "car", 5),
]


class Planar(Embedder):
    """Two dimensions: how often a text says "apple", and how often "car"; keeps count of its encodings."""

    family = "planar"

    def __init__(self, apple: float = 1.0) -> None:
        self.apple, self.encoded = apple, 0

    def _encode(self, texts: list[str], role: Any, *, batch_size: int, show_progress_bar: bool) -> np.ndarray:
        self.encoded += len(texts)
        return np.array([[self.apple * text.count("apple"), text.count("car")] for text in texts], np.float32)

    def get_embedding_dimension(self) -> int:
        return 2

    def identity(self) -> Any:
        return {"apple": self.apple}


class Dark(Planar):
    """Sparse rows, as the families with named dimensions have."""

    def _encode(self, texts: list[str], role: Any, *, batch_size: int, show_progress_bar: bool) -> Any:
        from scipy.sparse import csr_matrix

        return csr_matrix(super()._encode(texts, role, batch_size=batch_size, show_progress_bar=show_progress_bar))


def table(path: Path, columns: str, rows: list[tuple[Any, ...]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(columns.split()), *("\t".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def records(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_sts(data: Path, name: str = "STS12", rows: list[tuple[str, str, float]] = RISING) -> Path:
    return table(data / "sts" / name / "test.tsv", "sentence1 sentence2 score", rows)


def write_retrieval(data: Path, name: str = "scifact") -> None:
    folder = data / "retrieval" / name
    texts = {"d1": "apple", "d2": "pear", "d3": "car"}
    records(folder / "corpus.jsonl", [{"_id": k, "title": "", "text": v} for k, v in texts.items()])
    records(folder / "queries.jsonl", [{"_id": "q1", "text": "the apple"}, {"_id": "q2", "text": "no judgement"}])
    table(folder / "qrels" / "test.tsv", "query-id corpus-id score", [("q1", "d2", 1), ("q1", "d3", 0)])


WRITERS: dict[str, Callable[[Path], Any]] = {"STS": write_sts, "Retrieval": write_retrieval}


def score(model: Any, data: Path, *tasks: str) -> list[TaskScore]:
    return list(evaluate(model, data=data, tasks=tasks or None, cache_dir=data.parent / "cache").rows)
