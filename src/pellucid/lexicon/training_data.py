"""Rows to train on: a query, texts that belong to it, texts that do not, and a teacher's scores.

The form is that of the published training sets of BGE and LENS, one row a line of a `.jsonl` file (also `.gz`, `.xz`)
or of a `.parquet` file:

    {"query": str, "pos": [str], "neg": [str], "pos_scores": [float], "neg_scores": [float], "prompt": str, "type": str}

Only `query` and `pos` are required. Scores are a teacher's logits: the softmax over them is the target. A row that
cannot be used is left out and named by file and line.

`mine_negatives` and `score_rows` add what rows often lack. Mining is sentence-transformers' `mine_hard_negatives` with
its safeguards: a text nearly as near to the query as its positive may well belong to it, and is passed over.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import Role
from pellucid.core.embedder import Embedder
from pellucid.dense.vectors import unit_vectors
from pellucid.errors import CorpusError, InputError, missing_extra, warn
from pellucid.loading import load
from pellucid.persistence.store import check_vacant, writing
from pellucid.text.lines import UNPACKERS, check_file, parse_json, read_lines
from pellucid.text.parquet import parquet_rows

_ENDINGS = (".jsonl", *(f".jsonl{packed}" for packed in UNPACKERS), ".parquet")
_SHOWN = 5  # problems in one message


class RowError(ValueError):
    """A row cannot be trained on; the message says why."""


@dataclass(frozen=True)
class TrainingRow:
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
            RowError: the row cannot be used.
        """
        for name, texts in (("query", (self.query,)), ("pos", self.pos), ("neg", self.neg)):
            for text in texts:
                if not isinstance(text, str) or not text.strip():
                    raise RowError(f"{name!r} holds {text!r:.40}, which is not a text")
        if not self.pos:
            raise RowError("'pos' is empty; a query needs a text that belongs to it")
        for name in ("prompt", "type"):
            if not isinstance(getattr(self, name), str):
                raise RowError(f"{name!r} is {getattr(self, name)!r:.40}, which is not a text")
        if _own_candidates_only(self.type) and not self.neg:
            raise RowError(f"'neg' is empty, and a query of type {self.type!r} is compared only with its own texts")
        if self.pos_scores is None and self.neg_scores is None:
            return
        for name, texts, scores in (("pos", self.pos, self.pos_scores), ("neg", self.neg, self.neg_scores)):
            if scores is None or len(scores) != len(texts):
                n_scores = "none" if scores is None else len(scores)
                raise RowError(f"'{name}_scores' and {name!r} do not match: {n_scores} for {len(texts)} texts")
            for score in scores:
                if isinstance(score, bool) or not isinstance(score, (int, float)) or not math.isfinite(score):
                    raise RowError(f"'{name}_scores' holds {score!r:.40}, which is not a finite number")


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
        problems: what was wrong with rows that were left out, each with file and line.
    """

    name: str
    rows: list[TrainingRow]
    problems: list[str] = field(default_factory=list)

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


def _own_candidates_only(kind: str) -> bool:
    """Whether queries of a type are compared with their own candidates and no others."""
    return "symmetric" in kind or "class" in kind


def read_training_sets(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[TrainingSet]:
    """Read files of training rows; each file is a set, or one a type where it holds rows of several.

    Warns of rows that were left out, with file and line; all of them are in `TrainingSet.problems`.

    Args:
        paths: one file or several.

    Raises:
        CorpusError: a file is missing, broken, of another format, or has no usable row.
        MissingExtraError: pyarrow is needed and not installed.
    """
    files = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    sets: dict[str, TrainingSet] = {}
    for path in map(Path, files):
        rows, problems = _read_file(path)
        by_type: dict[str, list[TrainingRow]] = {}
        for row in rows:
            by_type.setdefault(row.type, []).append(row)
        for kind, chosen in by_type.items():
            plain = path.name.split(".")[0] + (f"-{kind}" if len(by_type) > 1 else "")
            name = plain = plain.replace(".", "_")  # torch takes no dots
            number = 1
            while name in sets:
                number += 1
                name = f"{plain}-{number}"
            sets[name] = TrainingSet(name, chosen, problems)
    if not sets:
        raise CorpusError("no training files were given")
    return list(sets.values())


def _read_file(path: Path) -> tuple[list[TrainingRow], list[str]]:
    rows, problems = [], []
    for location, value in _raw_rows(path):
        try:
            rows.append(_as_row(value))
        except (RowError, CorpusError) as error:
            problems.append(f"{path}, {location}: {error}")
    more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
    shown = "\n  ".join([*problems[:_SHOWN], *more])
    if not rows:
        raise CorpusError(f"{path} holds no row to train on" + (f":\n  {shown}" if problems else "; it is empty"))
    if problems:
        warn(f"{len(problems)} of {len(rows) + len(problems)} rows left out:\n  {shown}")
    return rows, problems


def _raw_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the place of each row and what it holds, as JSON where the file is of lines."""
    check_file(path, "training file")
    if not path.name.lower().endswith(_ENDINGS):
        raise CorpusError(f"cannot tell the format of {path}; training rows are read from .jsonl, .gz, .xz or .parquet")
    if path.suffix.lower() == ".parquet":
        fields = TrainingRow.__dataclass_fields__
        rows = parquet_rows(path, lambda schema: [name for name in schema.names if name in fields])
        yield from ((f"row {number}", row) for number, row in enumerate(rows, 1))
        return
    for number, line in enumerate(read_lines(path, "training file"), 1):
        if line and not line.isspace():
            yield f"line {number}", line


def _as_row(value: Any) -> TrainingRow:
    """Return a row of what a file holds; other fields than ours are for other programs."""
    value = parse_json(value) if isinstance(value, str) else value
    if not isinstance(value, dict):
        raise RowError(f"a row is an object with 'query' and 'pos', got {value!r:.40}")
    for name in ("query", "pos"):
        if value.get(name) is None:
            raise RowError(f"{name!r} is missing")
    pos, neg = _listed(value, "pos", "texts"), _listed(value, "neg", "texts") or ()
    pos_scores, neg_scores = (_listed(value, name, "numbers") for name in ("pos_scores", "neg_scores"))
    if not pos_scores and not neg_scores:
        pos_scores = neg_scores = None
    elif neg_scores is None and not neg:  # a row without negatives may leave their scores out
        neg_scores = ()
    prompt, kind = value.get("prompt") or "", value.get("type") or "retrieval"
    return TrainingRow(value["query"], pos or (), neg, pos_scores, neg_scores, prompt, kind)


def _listed(value: dict[str, Any], name: str, items: str) -> tuple[Any, ...] | None:
    """Return a field's list of `items`, None where it is absent or empty; a text alone is a list of one."""
    content = value.get(name)
    if content in (None, "", []):
        return None
    if isinstance(content, list):
        return tuple(content)
    if isinstance(content, str) and items == "texts":
        return (content,)
    raise RowError(f"{name!r} is {content!r:.40}, which is not a list of {items}")


def write_rows(path: str | os.PathLike[str], rows: Iterable[TrainingRow], *, overwrite: bool = False) -> None:
    """Write rows to a `.jsonl` file, whole or not at all.

    Args:
        path: the file.
        rows: the rows.
        overwrite: replace a file that is there.

    Raises:
        InputError: the file is there already.
        WritingError: it cannot be written; what was at `path` is untouched.
    """
    if not overwrite:
        check_vacant(Path(path), "give overwrite=True to replace it")
    with writing(path) as tmp_path, open(tmp_path, "w", encoding="utf-8") as lines:
        for row in rows:
            lines.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")


class _AsSentenceTransformer:
    """A model with the few methods that mining calls, whose rows have length 1."""

    def __init__(self, encoder: Embedder) -> None:
        import torch
        from sentence_transformers.util import dot_score, pairwise_dot_score

        self.encoder, self.device = encoder, torch.device("cpu")
        self.similarity, self.similarity_pairwise = dot_score, pairwise_dot_score

    def encode_query(self, texts: Sequence[str], **_: Any) -> npt.NDArray[np.float32]:
        return unit_vectors(self.encoder, list(texts), role="query")

    def encode_document(self, texts: Sequence[str], **_: Any) -> npt.NDArray[np.float32]:
        return unit_vectors(self.encoder, list(texts), role="document")


def mine_negatives(
    rows: Sequence[TrainingRow],
    encoder: Any,
    *,
    corpus: Iterable[str] = (),
    count: int = 7,
    skip: int = 0,
    margin: float = 0.05,
) -> list[TrainingRow]:
    """Return the rows with the texts nearest to each query, besides those that belong to it, as negatives.

    Args:
        rows: their own `neg` is replaced where anything is found, and kept where not; scores are dropped with it.
        encoder: what `pellucid.load` takes.
        corpus: texts to look among, besides the rows' positives.
        count: negatives of each row at most.
        skip: pass over so many of the nearest texts, which may belong to the query.
        margin: pass over texts nearer than the row's positive less this part of its cosine.

    Raises:
        InputError: there are no rows, or the encoder gives no vectors.
        MissingExtraError: sentence-transformers or datasets is not installed.
    """
    try:
        from datasets import Dataset
        from sentence_transformers.util import mine_hard_negatives
    except ImportError as error:
        raise missing_extra(error.name or "sentence-transformers", "torch") from error
    if not rows or count < 1:
        raise InputError(f"{len(rows)} rows and {count} negatives of each: there is nothing to mine")
    pairs = Dataset.from_list([{"query": row.query, "text": text} for row in rows for text in row.pos])
    mined = mine_hard_negatives(
        pairs,
        _AsSentenceTransformer(load(encoder)),
        corpus=list(corpus),
        range_min=skip,
        relative_margin=margin,
        num_negatives=count,
        output_format="triplet",
        verbose=False,
    )
    negatives: dict[str, dict[str, None]] = {}
    for triplet in mined:
        negatives.setdefault(triplet["query"], {})[triplet["negative"]] = None
    return [
        row
        if row.query not in negatives
        else replace(row, neg=tuple(negatives[row.query]), pos_scores=None, neg_scores=None)
        for row in rows
    ]


def score_rows(
    rows: Sequence[TrainingRow], teacher: Any, *, temperature: float = 0.05, batch_size: int = 32
) -> list[TrainingRow]:
    """Return the rows with a teacher's scores of all their candidates.

    Args:
        rows: any.
        teacher: a CrossEncoder, whose scores are taken as they are, or what `mine_negatives` takes, whose cosines are
            divided by `temperature`: as they are, a softmax over them would be nearly even and teach nothing.
        temperature: of cosines.
        batch_size: pairs that a CrossEncoder reads at once.

    Raises:
        InputError: the teacher gives no numbers, or NaN.
    """
    pairs = [(row.query, text) for row in rows for text in (*row.pos, *row.neg)]
    if callable(getattr(teacher, "predict", None)):
        scores = np.asarray(teacher.predict(pairs, batch_size=batch_size, show_progress_bar=False), np.float64)
        if scores.shape != (len(pairs),) or not np.isfinite(scores).all():
            raise InputError(f"the teacher ({type(teacher).__name__}) gave scores of shape {scores.shape}, or NaN")
    else:
        scores = _cosines(pairs, load(teacher)) / temperature
    scored, start = [], 0
    for row in rows:
        middle, end = start + len(row.pos), start + len(row.pos) + len(row.neg)
        pos_scores, neg_scores = tuple(scores[start:middle].tolist()), tuple(scores[middle:end].tolist())
        scored.append(replace(row, pos_scores=pos_scores, neg_scores=neg_scores))
        start = end
    return scored


def _cosines(pairs: Sequence[tuple[str, str]], encoder: Embedder) -> npt.NDArray[np.float64]:
    """Return the cosine of each pair; every text is encoded once."""
    vectors = []
    sides: dict[Role, list[str]] = {"query": [query for query, _ in pairs], "document": [text for _, text in pairs]}
    for role, texts in sides.items():
        index_by_text = {text: n for n, text in enumerate(dict.fromkeys(texts))}
        vectors.append(unit_vectors(encoder, list(index_by_text), role=role)[[index_by_text[text] for text in texts]])
    cosines: npt.NDArray[np.float64] = np.einsum("ij,ij->i", vectors[0].astype(np.float64), vectors[1])
    return cosines
