"""The other kinds of sets in a local folder that the papers' scripts score: all six kinds of the papers' tables.

Beside sts/ and retrieval/, which `pellucid evaluate` reads too:

    reranking/wikiqa/test.jsonl             query, positive: [...], negative: [...]
    classification/banking77/train.tsv      text, label; and test.tsv
    clustering/search_snippets/test.tsv     text, label
    pair_classification/MRPC/test.tsv       sentence1, sentence2, label (0 or 1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pellucid.core.embedder import Embedder
from pellucid.errors import InputError
from pellucid.evaluation import tasks as local
from pellucid.evaluation.evaluating import Results, choose_tasks, evaluate_tasks, local_labels
from pellucid.evaluation.tasks import LocalTask, read_table
from pellucid.text.tables import CorpusFile


def read_records(path: Path, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON-lines file, each of which must have `fields`."""
    file = CorpusFile(path, field=fields[0])
    for row in file.rows():
        absent = [field for field in fields if not isinstance(row.values, dict) or field not in row.values]
        if absent:
            raise InputError(f"{file.locate(row)} has no field {absent[0]!r}")
        yield row.values


class _Listed:
    """A data set whose columns are lists."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.select = dataset.select

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, column: str) -> list[Any]:
        return list(self.dataset[column])


def read_labels_once(task: Any) -> None:
    """Give a classification task its labels as lists: it reads each of them dozens of times, slowly from a data set.

    The draws and the scores are the same; minutes become seconds.
    """
    draw, score = task._undersample_data, task._calculate_scores

    def draw_from_lists(dataset: Any, experiment_num: int, idxs: list[int] | None = None) -> Any:
        return draw(_Listed(dataset), experiment_num, idxs)

    task._undersample_data = draw_from_lists
    task._calculate_scores = lambda y_test, y_pred: score(list(y_test), y_pred)


class RerankingTask(LocalTask):
    """Queries, each with texts that answer it and texts that do not."""

    kind = "Reranking"
    task_class = "AbsTaskRetrieval"
    main_score = "map_at_1000"
    needed = ("test.jsonl",)

    def dataset(self) -> Any:
        """Return the candidates as a corpus, each query's own to rank."""
        from datasets import Dataset

        corpus, queries = [], []
        relevant: dict[str, dict[str, int]] = {}
        candidates: dict[str, list[str]] = {}
        path = self.files()[0]
        for number, record in enumerate(read_records(path, ["query", "positive", "negative"])):
            texts = [*record["positive"], *record["negative"]]
            if not record["positive"] or not record["negative"]:
                continue  # every order of such candidates has the same score
            query = f"q{number}"
            ids = [f"{query}-{i}" for i in range(len(texts))]
            corpus += [{"id": id_, "text": text} for id_, text in zip(ids, texts)]
            queries.append({"id": query, "text": record["query"]})
            relevant[query] = dict.fromkeys(ids[: len(record["positive"])], 1)
            candidates[query] = ids
        if not queries:
            raise InputError(f"{path}: no query has both a positive and a negative text")
        split = {"corpus": Dataset.from_list(corpus), "queries": Dataset.from_list(queries), "relevant_docs": relevant}
        return {"default": {"test": {**split, "top_ranked": candidates}}}


class ClassificationTask(LocalTask):
    """Texts with labels, some to learn from and some to score."""

    kind = "Classification"
    task_class = "AbsTaskClassification"
    main_score = "accuracy"
    needed = ("train.tsv", "test.tsv")
    official_names: ClassVar = {
        "banking77": "Banking77Classification",
        "emotion": "EmotionClassification",
        "tweet_sentiment_extraction": "TweetSentimentExtractionClassification",
    }

    def dataset(self) -> Any:
        """Return both parts, labels as numbers."""
        from datasets import Dataset, DatasetDict

        train, test = (read_table(path, ["text", "label"]) for path in self.files())
        number = {label: i for i, label in enumerate(sorted({*train["label"], *test["label"]}))}
        unseen = set(test["label"]) - set(train["label"])
        if unseen:
            raise InputError(f"{self.files()[1]}: label {min(unseen)!r} does not occur in train.tsv")
        splits = {"train": train, "test": test}
        return DatasetDict(
            {
                name: Dataset.from_dict({"text": split["text"], "label": [number[label] for label in split["label"]]})
                for name, split in splits.items()
            }
        )

    def make(self) -> Any:
        """Return the task, its labels as lists."""
        task = super().make()
        read_labels_once(task)
        return task


class ClusteringTask(LocalTask):
    """Texts with the cluster that each belongs to."""

    kind = "Clustering"
    task_class = "AbsTaskClustering"
    main_score = "v_measure"
    needed = ("test.tsv",)

    def dataset(self) -> Any:
        """Return texts and labels."""
        from datasets import Dataset, DatasetDict

        table = read_table(self.files()[0], ["text", "label"])
        return DatasetDict(test=Dataset.from_dict({"sentences": table["text"], "labels": table["label"]}))

    def make(self) -> Any:
        """Return the task, whose samples are no larger than the set, and all of it: MTEB's 4 % is for larger sets."""
        task = super().make()
        task.max_fraction_of_documents_to_embed = None
        task.max_documents_per_cluster = min(task.max_documents_per_cluster, len(task.dataset["test"]))
        return task


class PairClassificationTask(LocalTask):
    """Pairs of texts that mean the same, or not."""

    kind = "PairClassification"
    task_class = "AbsTaskPairClassification"
    main_score = "max_ap"
    needed = ("test.tsv",)

    def dataset(self) -> Any:
        """Return the pairs, labels as 0 and 1."""
        from datasets import Dataset, DatasetDict

        path = self.files()[0]
        table = read_table(path, ["sentence1", "sentence2", "label"])
        if set(table["label"]) != {"0", "1"}:
            raise InputError(f"{path}: labels must be 0 and 1, both present; found {sorted(set(table['label']))[:5]}")
        columns = {
            "sentence1": table["sentence1"],
            "sentence2": table["sentence2"],
            "labels": list(map(int, table["label"])),
        }
        return DatasetDict(test=Dataset.from_dict(columns))


KINDS: dict[str, type[LocalTask]] = {
    **local.KINDS,
    "reranking": RerankingTask,
    "classification": ClassificationTask,
    "clustering": ClusteringTask,
    "pair_classification": PairClassificationTask,
}
"""Folder of a kind -> what its sets are."""


class NamedEncoder(Embedder):
    """A function, texts -> rows, as `evaluate` takes a model.

    Attributes:
        name: all that decides the rows: scores are kept by it.
    """

    family = "named"
    _normalizes = True  # the function takes the texts as they are

    def __init__(self, name: str, function: Callable[[list[str]], Any]) -> None:
        """Take the name and the function."""
        self.name, self._function = name, function

    def _encode(self, texts: list[str], role: Any, **options: Any) -> Any:
        return self._function(texts)

    def get_embedding_dimension(self) -> int:
        """Return the length of a row."""
        return int(self._function(["a text"]).shape[1])

    def identity(self) -> dict[str, Any]:
        """Return what tells this model from others."""
        return {"name": self.name}


def find_tasks(data: str | Path) -> list[LocalTask]:
    """Return the sets of all six kinds under `data`."""
    return local.find_tasks(data, KINDS)


def evaluate(
    model: Any,
    *,
    data: str | Path,
    tasks: Sequence[str] | None = None,
    cache_dir: str | Path | None = None,
    name: str | None = None,
    show_progress_bar: bool = True,
) -> Results:
    """Score a model as `pellucid.evaluate` does, on local sets of all six kinds."""
    chosen = choose_tasks(local_labels(find_tasks(data)), tasks)
    return evaluate_tasks(model, chosen, cache_dir=cache_dir, name=name, show_progress_bar=show_progress_bar)
