"""Evaluation sets in a local folder, and the MTEB tasks made from them; nothing here downloads.

The layout is one folder a set, under one folder a kind; any other folder in the same place is a set too:

    sts/STS12/test.tsv                      sentence1, sentence2, score (SICK-R: all.tsv)
    retrieval/scifact/corpus.jsonl          _id, title (may be absent), text
                      queries.jsonl         _id, text
                      qrels/test.tsv        query-id, corpus-id, score
    reranking/wikiqa/test.jsonl             query, positive: [...], negative: [...]
    classification/banking77/train.tsv      text, label; and test.tsv
    clustering/search_snippets/test.tsv     text, label
    pair_classification/MRPC/test.tsv       sentence1, sentence2, label (0 or 1)

Tables are tab-separated with a header line and no quoting; every file may be xz-compressed (`test.tsv.xz`). A set is
MTEB's own task class where it has one, else one of the same kind.
"""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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

MAIN_SCORES = {
    "STS": "cosine_spearman",
    "Retrieval": "ndcg_at_10",
    "Reranking": "map_at_1000",
    "Classification": "accuracy",
    "Clustering": "v_measure",
    "PairClassification": "max_ap",
}
"""Kind of task -> the metric reported for it, MTEB's choice."""


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


@contextmanager
def quiet() -> Iterator[None]:
    """Keep MTEB and datasets from writing bars and advice to the terminal."""
    import datasets
    from datasets.utils import are_progress_bars_disabled

    logger = logging.getLogger("mteb")
    level, had_bars = logger.level, not are_progress_bars_disabled()
    logger.setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            # The papers used the tasks' first versions; so do we.
            warnings.filterwarnings("ignore", message="(?s)The task .* is superseded")
            warnings.filterwarnings("ignore", category=DeprecationWarning, module="mteb")
            warnings.filterwarnings("ignore", category=FutureWarning, module="mteb")
            yield
    finally:
        logger.setLevel(level)
        if had_bars:
            datasets.enable_progress_bars()


def make_task(found: LocalTask) -> Any:
    """Return an `mteb` task that holds the data of `found` and loads nothing.

    Raises:
        InputError: a file is absent or lacks a column.
    """
    import mteb

    task = mteb.get_task(found.name) if found.official else _own_task(found)
    task.dataset = _READERS[found.kind](found)
    task.data_loaded = True
    if found.kind == "Clustering" and not found.official:  # a sample is never larger than the set
        task.max_documents_per_cluster = min(task.max_documents_per_cluster, len(task.dataset["test"]))
    if found.kind == "Classification":
        _read_labels_once(task)
    return task


def make_hub_task(name: str) -> Any:
    """Return MTEB's own task with the hub's data, of a multilingual one the English part.

    Raises:
        InputError: the data cannot be had.
    """
    task = hub_task(name)
    try:
        task.load_data()
    except OSError as error:  # what datasets raises without a network, or for a set that is gone
        raise InputError(
            f"the data of {name} cannot be had from the hub: {error}. Give a folder of sets on disk: data=..., --data"
        ) from error
    if task.metadata.type == "Classification":
        _read_labels_once(task)
    return task


def hub_task(name: str) -> Any:
    """Return MTEB's own task, of a multilingual one the English part; no data yet."""
    import mteb

    return mteb.get_task(name, languages=["eng"], exclusive_language_filter=True)


class _Listed:
    """A data set whose columns are lists."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.select = dataset.select

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, column: str) -> list[Any]:
        return list(self.dataset[column])


def _read_labels_once(task: Any) -> None:
    """Give a classification task its labels as lists: it reads each of them dozens of times, slowly from a data set.

    The draws and the scores are the same; minutes become seconds.
    """
    draw, score = task._undersample_data, task._calculate_scores

    def draw_from_lists(dataset: Any, experiment_num: int, idxs: list[int] | None = None) -> Any:
        return draw(_Listed(dataset), experiment_num, idxs)

    task._undersample_data = draw_from_lists
    task._calculate_scores = lambda y_test, y_pred: score(list(y_test), y_pred)


def _own_task(found: LocalTask) -> Any:
    """Return an empty task for a set that is none of MTEB's."""
    from mteb.abstasks import AbsTaskClassification, AbsTaskClustering, AbsTaskPairClassification, AbsTaskRetrieval
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    bases = {
        "STS": AbsTaskSTS,
        "Retrieval": AbsTaskRetrieval,
        "Reranking": AbsTaskRetrieval,
        "Classification": AbsTaskClassification,
        "Clustering": AbsTaskClustering,
        "PairClassification": AbsTaskPairClassification,
    }
    metadata = TaskMetadata(
        name=found.name,
        description=f"The set {found.name}, read from files.",
        dataset={"path": "local", "revision": found.digest()},
        type=found.kind,
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score=MAIN_SCORES[found.kind],
    )
    settings: dict[str, Any] = {"metadata": metadata}
    if found.kind == "Clustering":
        settings["max_fraction_of_documents_to_embed"] = None  # all of them: MTEB's 4 % is meant for far larger sets
    return type("LocalSet", (bases[found.kind],), settings)()


def _sts(found: LocalTask) -> Any:
    from datasets import Dataset, DatasetDict

    pairs = read_sts(found)
    columns = {"sentence1": pairs.sentences1, "sentence2": pairs.sentences2, "score": pairs.scores}
    return DatasetDict(test=Dataset.from_dict(columns))


def _retrieval(found: LocalTask) -> Any:
    corpus_file, queries_file, qrels_file = found.files()
    corpus = [
        {"id": str(r["_id"]), "title": str(r.get("title") or ""), "text": str(r["text"])}
        for r in read_records(corpus_file, ["_id", "text"])
    ]
    queries = [{"id": str(r["_id"]), "text": str(r["text"])} for r in read_records(queries_file, ["_id", "text"])]
    relevant: dict[str, dict[str, int]] = {}
    for query, document, score in zip(*read_table(qrels_file, ["query-id", "corpus-id", "score"]).values()):
        if _integer(score, qrels_file) > 0:
            relevant.setdefault(query, {})[document] = int(score)
    if not relevant.keys() & {query["id"] for query in queries}:
        raise InputError(f"{qrels_file}: no query of {queries_file.name} has a relevant document")
    return _retrieval_split(corpus, queries, relevant, None)


def _reranking(found: LocalTask) -> Any:
    corpus, queries = [], []
    relevant: dict[str, dict[str, int]] = {}
    candidates: dict[str, list[str]] = {}
    path = found.files()[0]
    for number, record in enumerate(read_records(path, ["query", "positive", "negative"])):
        texts = [*record["positive"], *record["negative"]]
        if not record["positive"] or not record["negative"]:
            continue  # any order of such candidates is perfect, or none is
        query = f"q{number}"
        ids = [f"{query}-{i}" for i in range(len(texts))]
        corpus += [{"id": id_, "text": text} for id_, text in zip(ids, texts)]
        queries.append({"id": query, "text": record["query"]})
        relevant[query] = dict.fromkeys(ids[: len(record["positive"])], 1)
        candidates[query] = ids
    if not queries:
        raise InputError(f"{path}: no query has both a positive and a negative text")
    return _retrieval_split(corpus, queries, relevant, candidates)


def _retrieval_split(corpus: list[Any], queries: list[Any], relevant: Any, candidates: Any) -> Any:
    from datasets import Dataset

    split = {
        "corpus": Dataset.from_list(corpus),
        "queries": Dataset.from_list(queries),
        "relevant_docs": relevant,
        "top_ranked": candidates,
    }
    return {"default": {"test": split}}


def _classification(found: LocalTask) -> Any:
    from datasets import Dataset, DatasetDict

    train, test = (read_table(path, ["text", "label"]) for path in found.files())
    number = {label: i for i, label in enumerate(sorted({*train["label"], *test["label"]}))}
    unseen = set(test["label"]) - set(train["label"])
    if unseen:
        raise InputError(f"{found.files()[1]}: label {min(unseen)!r} does not occur in train.tsv")
    splits = {"train": train, "test": test}
    return DatasetDict(
        {
            name: Dataset.from_dict({"text": split["text"], "label": [number[label] for label in split["label"]]})
            for name, split in splits.items()
        }
    )


def _clustering(found: LocalTask) -> Any:
    from datasets import Dataset, DatasetDict

    table = read_table(found.files()[0], ["text", "label"])
    return DatasetDict(test=Dataset.from_dict({"sentences": table["text"], "labels": table["label"]}))


def _pair_classification(found: LocalTask) -> Any:
    from datasets import Dataset, DatasetDict

    path = found.files()[0]
    table = read_table(path, ["sentence1", "sentence2", "label"])
    labels = [_integer(label, path) for label in table["label"]]
    if set(labels) != {0, 1}:
        raise InputError(f"{path}: labels must be 0 and 1, both present; found {sorted(set(labels))[:5]}")
    columns = {"sentence1": table["sentence1"], "sentence2": table["sentence2"], "labels": labels}
    return DatasetDict(test=Dataset.from_dict(columns))


def _integer(cell: str, path: Any) -> int:
    try:
        return int(cell)
    except ValueError as error:
        raise InputError(f"{path}: {cell!r} is no whole number") from error


_READERS: dict[str, Callable[[LocalTask], Any]] = {
    "STS": _sts,
    "Retrieval": _retrieval,
    "Reranking": _reranking,
    "Classification": _classification,
    "Clustering": _clustering,
    "PairClassification": _pair_classification,
}
