"""Rows to train on: a query, texts that belong to it, texts that do not, and a teacher's scores.

The form is that of the published training sets of BGE and LENS, one row a line of a `.jsonl` file (also packed) or of a
`.parquet` file:

    {"query": str, "pos": [str], "neg": [str], "pos_scores": [float], "neg_scores": [float], "prompt": str, "type": str}

Only `query` and `pos` are required. Scores are a teacher's logits: the softmax over them is the target. A row that
cannot be used is an error that names file and line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.errors import CorpusError, InputError, check_number
from pellucid.settings import Settings
from pellucid.text.tables import CorpusFile


@dataclass(frozen=True)
class TrainingRow(Settings):
    """One query and its candidates.

    Attributes:
        query: the text that is asked.
        pos: texts that belong to it, at least one.
        neg: texts that do not, the more alike the better.
        pos_scores: a teacher's score of each of `pos` for the query, None without a teacher.
        neg_scores: the same of `neg`.
        prompt: the instruction read before the query; "" for none.
        type: what is learned, in the words of the published sets; see `TrainingSet`.
    """

    query: str
    pos: tuple[str, ...]
    neg: tuple[str, ...] = ()
    pos_scores: tuple[float, ...] | None = None
    neg_scores: tuple[float, ...] | None = None
    prompt: str = ""
    type: str = "retrieval"

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InputError: the row cannot be used.
        """
        super().__post_init__()
        for name, texts in (("query", (self.query,)), ("pos", self.pos), ("neg", self.neg)):
            for text in texts:
                if not isinstance(text, str) or not text.strip():
                    raise InputError(f"{name!r} holds {text!r:.40}, which is not a text")
        if not self.pos:
            raise InputError("'pos' is empty; a query needs a text that belongs to it")
        if _own_candidates_only(self.type) and not self.neg:
            raise InputError(f"'neg' is empty, and a query of type {self.type!r} is compared only with its own texts")
        if self.pos_scores is None and self.neg_scores is None:
            return
        for name, texts, scores in (("pos", self.pos, self.pos_scores), ("neg", self.neg, self.neg_scores)):
            if scores is None or len(scores) != len(texts):
                n_scores = "none" if scores is None else len(scores)
                raise InputError(f"'{name}_scores' and {name!r} do not match: {n_scores} for {len(texts)} texts")
            for score in scores:
                check_number(f"a score of '{name}_scores'", score)


@dataclass(frozen=True)
class TrainingSet:
    """Rows of one type; each batch is taken from one set.

    The words of the type decide how a query is compared: with all texts of its batch, as in retrieval, or, if it holds
    "symmetric" or "class", only with its own `neg`, since other rows' texts may well belong to it. "only_1neg" takes
    one of `neg`. Of types with "symmetric" and "sts" or "clustering" the candidates have the instruction too.
    The LENS paper has other rows' texts as negatives only in retrieval; its published code also for "symmetric" types
    without "class" or "clustering", such as "symmetric_sts", and for "class" without "symmetric".

    Attributes:
        name: by which it is logged.
        rows: at least one, all of one type.
    """

    name: str
    rows: list[TrainingRow]

    def __post_init__(self) -> None:
        """Check that there is something to train on.

        Raises:
            CorpusError: there is no row, or rows are of several types.
        """
        if not self.rows:
            raise CorpusError(f"the training set {self.name!r} has no rows")
        types = sorted({row.type for row in self.rows})
        if len(types) > 1:
            raise CorpusError(f"the training set {self.name!r} holds rows of the types {types}; give a set for each")

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    @property
    def type(self) -> str:
        """The rows' type."""
        return self.rows[0].type

    @property
    def in_batch(self) -> bool:
        """Whether other rows' texts are negatives."""
        return not _own_candidates_only(self.type)

    @property
    def candidates_instructed(self) -> bool:
        """Whether candidates are read like queries."""
        return "symmetric" in self.type and ("sts" in self.type or "clustering" in self.type)

    def group_size(self, most: int) -> int:
        """Return how many candidates a row has in a batch: one of `pos`, the others of `neg`, at most `most`."""
        if "only_1neg" in self.type:
            most = min(most, 2)
        return 1 + min(most - 1, max(len(row.neg) for row in self.rows))


class TextSet:
    """Texts without labels, and a teacher's vectors of them."""

    def __init__(self, name: str, texts: Sequence[str], vectors: Any) -> None:
        """Take at least two texts and as many vectors, float [n, d]."""
        if len(texts) < 2 or len(vectors) != len(texts):
            raise InputError(f"the set {name!r} has {len(texts)} texts and {len(vectors)} vectors; give one of each")
        self.name, self.texts, self.vectors = name, texts, vectors

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.texts)


def _own_candidates_only(kind: str) -> bool:
    """Whether queries of a type are compared with their own candidates and no others."""
    return "symmetric" in kind or "class" in kind


def read_training_sets(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[TrainingSet]:
    """Read files of training rows; each file is a set, or one a type where it holds rows of several.

    Args:
        paths: one file or several.

    Raises:
        CorpusError: a file is missing, broken, empty or of another format, or a row cannot be used; the message names
            file and line.
        MissingExtraError: pyarrow is needed and not installed.
    """
    sets: list[TrainingSet] = []
    for path in map(Path, [paths] if isinstance(paths, (str, os.PathLike)) else paths):
        by_type: dict[str, list[TrainingRow]] = {}
        file = CorpusFile(path, field="query")
        if file.kind not in (".jsonl", ".parquet"):
            raise CorpusError(f"training rows are read from .jsonl (also packed) or .parquet, not from {path}")
        for file_row in file.rows(skip_blank=True):
            try:
                row = _as_row(file_row.values)
            except InputError as error:
                raise CorpusError(f"{file.locate(file_row)}: {error}; correct or remove the row") from error
            by_type.setdefault(row.type, []).append(row)
        if not by_type:
            raise CorpusError(f"{path} holds no row to train on")
        name = path.name.partition(".")[0]
        sets += [TrainingSet(name if len(by_type) == 1 else f"{name}-{kind}", by_type[kind]) for kind in by_type]
    if not sets:
        raise CorpusError("no training files were given")
    return sets


def _as_row(value: Any) -> TrainingRow:
    """Return a row of what a file holds; other fields than ours are for other programs."""
    if not isinstance(value, dict):
        raise InputError(f"a row is an object with 'query' and 'pos', got {value!r:.40}")
    fields = {name: value[name] for name in TrainingRow.__dataclass_fields__ if value.get(name) not in (None, "", [])}
    for name in ("pos", "neg", "pos_scores", "neg_scores"):
        content = fields.get(name, [])
        if not isinstance(content, (list, str)):
            raise InputError(f"{name!r} is {content!r:.40}, which is not a list")
        if name in fields:
            fields[name] = (content,) if isinstance(content, str) else tuple(content)
    if "pos_scores" in fields and "neg" not in fields:  # a row without negatives may leave their scores out
        fields["neg_scores"] = fields.get("neg_scores", ())
    return TrainingRow(**{"query": "", "pos": (), **fields})
