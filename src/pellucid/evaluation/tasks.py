"""Evaluation sets in a local folder or on the hub, as MTEB tasks.

A local set is a folder below a folder for its kind; nothing is downloaded for it:

    sts/STS12/test.tsv                      sentence1, sentence2, score (SICK-R: all.tsv)
    retrieval/scifact/corpus.jsonl          _id, title (may be absent), text
                      queries.jsonl         _id, text
                      qrels/test.tsv        query-id, corpus-id, score

Tables are tab-separated with a header line and no quoting; every file may be xz-compressed (`test.tsv.xz`). A set is
MTEB's own task where it has one, else a task of the same kind.
"""

from __future__ import annotations

import hashlib
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.errors import CorpusError, InputError
from pellucid.process import ProcessSetting, ignored_warnings
from pellucid.text.tables import CorpusFile


class ScoredPairs(NamedTuple):
    """Pairs of sentences with the similarity people gave them."""

    sentences1: list[str]
    sentences2: list[str]
    scores: npt.NDArray[np.float64]


@dataclass(frozen=True)
class LocalTask:
    """A set on disk; a subclass for each kind says which files it has and how MTEB takes them."""

    folder: Path
    kind: ClassVar[str]  # MTEB's name
    task_class: ClassVar[str]  # MTEB's class for tasks of the kind, in `mteb.abstasks`
    main_score: ClassVar[str]  # the metric that is reported, MTEB's choice
    needed: ClassVar[tuple[str, ...]]  # the files of a set
    official_names: ClassVar[Mapping[str, str]] = {}  # folder of a set that MTEB has -> MTEB's name of the task

    @property
    def name(self) -> str:
        """MTEB's name of the task where MTEB has the set, else the name of the folder."""
        return self.official_names.get(self.folder.name, self.folder.name)

    def file(self, name: str) -> Path:
        """Return the path of the set's file `name`, or of its xz-compressed form."""
        for path in (self.folder / name, self.folder / f"{name}.xz"):
            if path.is_file():
                return path
        raise InputError(f"file not found: {self.folder / name} (nor {name}.xz); the set {self.name} needs it")

    def files(self) -> list[Path]:
        """Return the paths of the files that the task is scored on."""
        return [self.file(name) for name in (("all.tsv",) if self.name == "SICK-R" else self.needed)]

    def digest(self) -> str:
        """Return the sha256 of the set's files, as stored."""
        total = hashlib.sha256()
        for path in self.files():
            total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
        return total.hexdigest()

    @abstractmethod
    def dataset(self) -> Any:
        """Return the data as tasks of the kind hold it."""

    def make(self) -> Any:
        """Return an MTEB task that holds the data, or raise InputError where a file is broken."""
        import mteb

        if self.folder.name in self.official_names:
            task = mteb.get_task(self.name)
        else:
            metadata = mteb.TaskMetadata(
                name=self.name,
                description=f"The set {self.name}, read from files.",
                dataset={"path": "local", "revision": self.digest()},
                type=self.kind,
                category="t2t",
                modalities=["text"],
                eval_splits=["test"],
                eval_langs=["eng-Latn"],
                main_score=self.main_score,
            )
            task = type("LocalSet", (getattr(mteb.abstasks, self.task_class),), {"metadata": metadata})()
        task.dataset = self.dataset()
        task.data_loaded = True
        return task


class StsTask(LocalTask):
    """Pairs of sentences and how alike people find them."""

    kind = "STS"
    task_class = "AbsTaskSTS"
    main_score = "cosine_spearman"
    needed = ("test.tsv",)
    official_names: ClassVar = {n: n for n in "STS12 STS13 STS14 STS15 STS16 STSBenchmark SICK-R BIOSSES".split()}

    def dataset(self) -> Any:
        """Return the pairs."""
        from datasets import Dataset, DatasetDict

        pairs = read_sts(self)
        columns = {"sentence1": pairs.sentences1, "sentence2": pairs.sentences2, "score": pairs.scores}
        return DatasetDict(test=Dataset.from_dict(columns))


class RetrievalTask(LocalTask):
    """Documents, queries, and which documents are relevant to a query."""

    kind = "Retrieval"
    task_class = "AbsTaskRetrieval"
    main_score = "ndcg_at_10"
    needed = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")
    official_names: ClassVar = {"scifact": "SciFact"}

    def dataset(self) -> Any:
        """Return corpus, queries and judgements."""
        from datasets import Dataset

        corpus_file, queries_file, qrels_file = self.files()
        corpus = [
            {"id": id_, "title": str(row.get("title") or ""), "text": row["text"]}
            for id_, row in _by_id(corpus_file, "document").items()
        ]
        queries = [{"id": id_, "text": text} for id_, text in read_queries(queries_file).items()]
        grades = {
            query: {document: grade for document, grade in judged.items() if grade > 0}
            for query, judged in read_qrels(qrels_file).items()
        }
        relevant = {query: judged for query, judged in grades.items() if judged}
        if not relevant.keys() & {query["id"] for query in queries}:
            raise InputError(f"{qrels_file}: no query of {queries_file.name} has a relevant document")
        split = {"corpus": Dataset.from_list(corpus), "queries": Dataset.from_list(queries), "relevant_docs": relevant}
        return {"default": {"test": {**split, "top_ranked": None}}}


def _by_id(path: Path, kind: str) -> dict[str, dict[str, Any]]:
    """Return the JSON objects of a file of lines, each a `kind` with a text, by their "_id" or "id"."""
    by_id: dict[str, dict[str, Any]] = {}
    file = CorpusFile(path)
    for row in file.rows(skip_blank=True):
        values: Any = row.values if isinstance(row.values, dict) else {}
        row_id = values.get("_id", values.get("id"))
        if type(row_id) not in (str, int) or not isinstance(values.get("text"), str):
            raise CorpusError(f'{file.locate(row)} is no {kind}; it must be as {{"_id": "1", "text": "..."}}')
        if by_id.setdefault(str(row_id), values) is not values:
            raise CorpusError(f"{file.locate(row)}: {kind} {row_id!r:.60} is there twice")
    return by_id


def read_queries(path: str | Path) -> dict[str, str]:
    """Read queries as BEIR has them: JSON lines with "_id" (or "id") and "text".

    Args:
        path: a .jsonl file, may be packed (.gz, .xz).

    Raises:
        CorpusError: it is absent or broken at a named line.
    """
    return {query_id: row["text"] for query_id, row in _by_id(Path(path), "query").items()}


def read_qrels(path: str | Path) -> dict[str, dict[str, int]]:
    """Read judgements as BEIR has them: a table with tabs and the columns query-id, corpus-id and score.

    Raises:
        CorpusError: it is absent or broken at a named line.
    """
    relevant: dict[str, dict[str, int]] = {}
    file = CorpusFile(path, field="query-id", delimiter="\t", quoting="none")
    for row in file.rows(["query-id", "corpus-id", "score"]):
        query_id, document_id, score = (row.values[name] for name in ("query-id", "corpus-id", "score"))
        try:
            grade = int(score)
        except ValueError as error:
            raise CorpusError(f"{file.locate(row)}: {error}; a score is an integer") from error
        previous = relevant.setdefault(query_id, {}).setdefault(document_id, grade)
        if previous != grade:
            raise CorpusError(
                f"{file.locate(row)}: document {document_id!r:.60} is judged {grade} for query {query_id!r:.60}, and "
                f"{previous} before; leave one of them"
            )
    return relevant


KINDS: Mapping[str, type[LocalTask]] = {"sts": StsTask, "retrieval": RetrievalTask}
"""Folder of a kind -> what its sets are."""


def find_tasks(data: str | Path, kinds: Mapping[str, type[LocalTask]] = KINDS) -> list[LocalTask]:
    """Return the sets under `data`: kinds in the order of `kinds`, MTEB's sets before others."""
    data = Path(data)
    if not data.is_dir():
        raise InputError(f"data folder not found: {data}. Give the folder that holds sts/, retrieval/ and so on")
    tasks: list[LocalTask] = []
    for name, kind in kinds.items():
        folders = [f for f in (data / name).glob("*") if f.is_dir() and not f.name.startswith(".")]
        order = list(kind.official_names)
        folders.sort(key=lambda f: (order.index(f.name) if f.name in order else len(order), f.name))
        tasks += map(kind, folders)
    if not tasks:
        raise InputError(
            f"no evaluation set under {data} in {', '.join(kinds)}; "
            f"expected, for example, {data / 'sts/STS12/test.tsv'}"
        )
    return tasks


def read_sts(task: LocalTask) -> ScoredPairs:
    """Read the pairs of an STS set.

    Raises:
        InputError: a score is blank or no finite number, or all are equal, so that nothing correlates with them.
    """
    path = task.files()[0]
    table = read_table(path, ["sentence1", "sentence2", "score"])
    scores = np.full(len(table["score"]), np.nan)
    for index, cell in enumerate(table["score"]):
        with suppress(ValueError):
            scores[index] = float(cell)
        if not np.isfinite(scores[index]):
            raise InputError(f"{path}, line {index + 2}: the score {cell!r:.40} is not a finite number")
    if scores.min() == scores.max():
        raise InputError(f"{path}: every score is {scores[0]:g}; a correlation needs two different ones")
    return ScoredPairs(table["sentence1"], table["sentence2"], scores)


def read_table(path: Path, columns: Sequence[str]) -> dict[str, list[str]]:
    """Read named columns of a tab-separated file with a header line: column -> its cells.

    Raises:
        CorpusError: the file is broken or has no such column.
        InputError: there is nothing below the header.
    """
    file = CorpusFile(path, field=columns[0], delimiter="\t", quoting="none")
    rows = [row.values for row in file.rows(columns)]
    if not rows:
        raise InputError(f"{path} has a header line and nothing below it")
    return {column: [values[column] for values in rows] for column in columns}


def _silence() -> Callable[[], object]:
    import datasets
    from datasets.utils import are_progress_bars_disabled

    logger = logging.getLogger("mteb")
    level, had_bars = logger.level, not are_progress_bars_disabled()
    logger.setLevel(logging.ERROR)
    datasets.disable_progress_bars()

    def undo() -> None:
        logger.setLevel(level)
        if had_bars:
            datasets.enable_progress_bars()

    return undo


_SILENCE = ProcessSetting(_silence)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep MTEB and datasets from writing bars and advice to the terminal."""
    with (
        _SILENCE,
        ignored_warnings(Warning, "(?s)The task .* is superseded"),  # the papers used the tasks' first versions
        ignored_warnings(DeprecationWarning, module="mteb"),
        ignored_warnings(FutureWarning, module="mteb"),
    ):
        yield
