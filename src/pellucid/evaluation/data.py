"""Finds and reads evaluation sets in a local folder; nothing here downloads.

The layout is one folder a set, under one folder a kind; any other folder in the same place is a set too:

    sts/STS12/test.tsv                      sentence1, sentence2, score (SICK-R: all.tsv)
    retrieval/scifact/corpus.jsonl          _id, title (may be absent), text
                      queries.jsonl         _id, text
                      qrels/test.tsv        query-id, corpus-id, score
    reranking/wikiqa/test.jsonl             query, positive: [...], negative: [...]
    classification/banking77/train.tsv      text, label; and test.tsv
    clustering/search_snippets/test.tsv     text, label
    pair_classification/MRPC/test.tsv       sentence1, sentence2, label (0 or 1)

Tables are tab-separated with a header line and no quoting; every file may be xz-compressed (`test.tsv.xz`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.corpus import parse_json, read_lines
from pellucid.errors import InputError

KINDS = {
    "sts": "STS",
    "retrieval": "Retrieval",
    "reranking": "Reranking",
    "classification": "Classification",
    "clustering": "Clustering",
    "pair_classification": "PairClassification",
}
"""Folder of a kind of task -> MTEB's name of the kind."""

_FILES = {
    "STS": ("test.tsv",),
    "Retrieval": ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"),
    "Reranking": ("test.jsonl",),
    "Classification": ("train.tsv", "test.tsv"),
    "Clustering": ("test.tsv",),
    "PairClassification": ("test.tsv",),
}
_OFFICIAL = {
    **{f"sts/{name}": name for name in ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICK-R")},
    "sts/BIOSSES": "BIOSSES",
    "retrieval/scifact": "SciFact",
    "classification/banking77": "Banking77Classification",
    "classification/emotion": "EmotionClassification",
    "classification/tweet_sentiment_extraction": "TweetSentimentExtractionClassification",
}


class ScoredPairs(NamedTuple):
    """Pairs of sentences with the similarity people gave them."""

    sentences1: list[str]
    sentences2: list[str]
    scores: npt.NDArray[np.float64]


@dataclass(frozen=True)
class LocalTask:
    """An evaluation set found on disk.

    Attributes:
        name: MTEB's name of the task where the set is one of MTEB's, else the name of its folder.
        kind: MTEB's name of the kind of task, as "STS".
        folder: where its files are.
        official: whether MTEB has a task of this name on the same data.
    """

    name: str
    kind: str
    folder: Path
    official: bool

    def file(self, name: str) -> Path:
        """Return the path of the set's file `name`, or of its xz-compressed form.

        Raises:
            InputError: neither exists.
        """
        for path in (self.folder / name, self.folder / f"{name}.xz"):
            if path.is_file():
                return path
        raise InputError(f"file not found: {self.folder / name} (nor {name}.xz); the set {self.name} needs it")

    def files(self) -> list[Path]:
        """Return the paths of the files the task is scored on."""
        names = ("all.tsv",) if self.name == "SICK-R" else _FILES[self.kind]
        return [self.file(name) for name in names]

    def digest(self) -> str:
        """Return the sha256 of the set's files, as stored."""
        total = hashlib.sha256()
        for path in self.files():
            total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
        return total.hexdigest()


def find_tasks(data: str | Path) -> list[LocalTask]:
    """Return the evaluation sets under `data`: kinds in the order of `KINDS`, MTEB's sets before others.

    Raises:
        InputError: the folder is absent or holds no set.
    """
    data = Path(data)
    if not data.is_dir():
        raise InputError(f"data folder not found: {data}. Give the folder that holds sts/, retrieval/ and so on")
    places = list(_OFFICIAL)
    found = []
    for kind_folder, kind in KINDS.items():
        folders = [f for f in (data / kind_folder).glob("*") if f.is_dir() and not f.name.startswith(".")]
        keys = {f: f"{kind_folder}/{f.name}" for f in folders}
        folders.sort(key=lambda f: (places.index(keys[f]) if keys[f] in _OFFICIAL else len(places), f.name))
        found += [LocalTask(_OFFICIAL.get(keys[f], f.name), kind, f, keys[f] in _OFFICIAL) for f in folders]
    if not found:
        raise InputError(f"no evaluation set under {data}; expected, for example, {data / 'sts/STS12/test.tsv'}")
    return found


def read_sts(task: LocalTask) -> ScoredPairs:
    """Read the scored pairs of an STS set; pairs without a score are left out.

    Raises:
        InputError: the file is absent, lacks a column, or a score is no number.
    """
    path = task.files()[0]
    table = read_table(path, ["sentence1", "sentence2", "score"])
    scored = [i for i, score in enumerate(table["score"]) if score.strip()]
    try:
        scores = np.array([float(table["score"][i]) for i in scored])
    except ValueError as error:
        raise InputError(f"{path}: a score is no number: {error}") from error
    return ScoredPairs([table["sentence1"][i] for i in scored], [table["sentence2"][i] for i in scored], scores)


def read_table(path: Path, columns: Sequence[str]) -> dict[str, list[str]]:
    """Read named columns of a tab-separated file with a header line.

    Returns:
        One list of cells for each of `columns`, all of the same length.

    Raises:
        InputError: a column is missing, a line has another number of cells than the header, or there is no line.
        CorpusError: the file is damaged or not UTF-8.
    """
    lines = read_lines(path)
    header = next(lines, "").split("\t")
    missing = [column for column in columns if column not in header]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r}; its header line has {', '.join(header)}")
    places = [header.index(column) for column in columns]
    rows = []
    for number, line in enumerate(lines, start=2):
        cells = line.split("\t")
        if len(cells) != len(header):
            raise InputError(f"{path}, line {number}: {len(cells)} cells, but the header line has {len(header)}")
        rows.append([cells[place] for place in places])
    if not rows:
        raise InputError(f"{path} has a header line and nothing below it")
    return {column: list(cells) for column, cells in zip(columns, zip(*rows))}


def read_records(path: Path, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON-lines file.

    Raises:
        InputError: a line lacks one of `fields`.
        CorpusError: a line is not JSON, or the file is damaged.
    """
    for number, line in enumerate(read_lines(path), start=1):
        record = parse_json(line, f"{path}, line {number}: ")
        absent = [field for field in fields if not isinstance(record, dict) or field not in record]
        if absent:
            raise InputError(f"{path}, line {number} has no field {absent[0]!r}")
        yield record
