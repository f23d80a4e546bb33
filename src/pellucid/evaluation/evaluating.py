"""Scores of a model on MTEB's tasks, kept on disk; a model as MTEB calls it.

A score is a small JSON file, named by a hash of the model's weights and of the data, so that an interrupted evaluation
resumes and a known score is read without loading MTEB. MTEB's own cache would round the scores, read all data first and
stop at a half-written file.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pellucid.core.embedder import Embedder
from pellucid.core.fingerprint import fingerprint
from pellucid.dense.embedder import EncoderEmbedder
from pellucid.errors import InputError, ModelFolderError, importing, require, shown, unknown_name
from pellucid.evaluation.tasks import LocalTask, find_tasks, quiet
from pellucid.explain.views.parts import AnyPart, Heading, TablePart, counted, numbers
from pellucid.explain.views.report import Report
from pellucid.loading import load
from pellucid.persistence.folder import cache_folder
from pellucid.persistence.store import read_json, write_json
from pellucid.process import kept_random_states
from pellucid.progress import Progress

_FORMAT = 1  # part of every key of the cache; raise it with any change here that changes a score


@dataclass(frozen=True)
class TaskScore:
    """A model's score on one task: the main metric x 100, and every metric that is one finite number."""

    task: str
    type: str
    metric: str
    score: float  # NaN for a correlation where every pair has the same cosine
    seconds: float = 0.0  # of encoding and scoring
    scores: Mapping[str, float] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, repr=False)
class Results(Report):
    """A model's scores, one row a task."""

    kind: ClassVar[str] = "evaluation"
    table: ClassVar[str] = "rows"

    model: str
    rows: tuple[TaskScore, ...]

    @property
    def means(self) -> dict[str, float]:
        """The mean score of each type of task, in the order of the rows."""
        types = dict.fromkeys(row.type for row in self.rows)
        return {name: float(np.mean([row.score for row in self.rows if row.type == name])) for name in types}

    def to_dict(self) -> dict[str, Any]:
        """Return the model's name, the rows and the means as plain values."""
        return super().to_dict() | {"means": self.means}

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Evaluation", self.model, f"{counted(len(self.rows), 'task')}, scores x 100")
        rows = [(row.task, row.type, row.metric, f"{row.score:.1f}") for row in self.rows]
        rows += [("mean", name, "", f"{mean:.1f}") for name, mean in self.means.items()]
        yield TablePart.of("", ["task", "type", "metric", *numbers("score")], rows)


def evaluate(
    model: Any,
    *,
    data: str | Path,
    tasks: Sequence[str] | None = None,
    cache_dir: str | Path | None = None,
    name: str | None = None,
    show_progress_bar: bool = True,
) -> Results:
    """Score a model with MTEB.

    Args:
        model: an `Embedder`; a `SentenceTransformer`, which keeps its own prompts; another object that encodes a list
            of texts, such as model2vec's `StaticModel`; or the name, folder or hub id of one of the first two.
        data: a folder of evaluation sets (layout: `pellucid.evaluation.tasks`). `mteb.evaluate` with an `MtebEncoder`
            scores a model on data of the hub.
        tasks: names of tasks or of types ("STS", "Retrieval", ...), case ignored; None runs all sets under `data`.
        cache_dir: where scores are kept; None is `~/.cache/pellucid/eval` (below `$XDG_CACHE_HOME` where set).
        name: what to call the model in the results; None takes the given string or the class's name.
        show_progress_bar: show a bar, counting tasks, once the work has lasted two seconds.

    Returns:
        The scores, one row a task, x 100.

    Raises:
        InputError: an unknown task (the message names the nearest), an absent folder or file, a missing column.
        MissingExtraError: mteb, or the package that opens `model`, is not installed.
    """
    if tasks is not None and not (isinstance(tasks, list | tuple) and all(isinstance(task, str) for task in tasks)):
        raise InputError(f"tasks is {shown(tasks)}; give a list of names, such as ['STS'], or None for all")
    chosen = choose_tasks(local_labels(find_tasks(data)), tasks)
    return evaluate_tasks(model, chosen, cache_dir=cache_dir, name=name, show_progress_bar=show_progress_bar)


@kept_random_states()  # MTEB seeds them
def evaluate_tasks(
    model: Any,
    tasks: Sequence[LocalTask],
    *,
    cache_dir: str | Path | None = None,
    name: str | None = None,
    show_progress_bar: bool = True,
) -> Results:
    """Score a model on given tasks; the other arguments are those of `evaluate`."""
    for task in tasks:
        task.files()  # a missing file is reported before the first hour of work, not after
    name = name or (str(model) if isinstance(model, (str, Path)) else type(model).__name__)
    opened = _open(model)
    folder = cache_folder("eval") if cache_dir is None else Path(cache_dir)
    weights = hashlib.sha256(json.dumps(fingerprint(opened)).encode()).hexdigest()
    rows = []
    with Progress("evaluating", total=len(tasks), unit="tasks", enabled=show_progress_bar) as progress:
        for task in tasks:
            progress.advance(0, task.name)
            rows.append(_cached_score(opened, weights, task, folder))
            progress.advance(1)
    return Results(name, tuple(rows))


def local_labels(tasks: Iterable[LocalTask]) -> dict[LocalTask, tuple[str, ...]]:
    """Return what sets may be chosen by: folder, name and type of each."""
    return {task: (task.folder.name, task.name, task.kind) for task in tasks}


def choose_tasks(labels: Mapping[Any, Sequence[str]], requested: Sequence[str] | None) -> list[Any]:
    """Return the tasks that `requested` names by one of their labels, ignoring case, in order; all where it is None."""
    if requested is None:
        return list(labels)
    label_of = {label.lower(): label for of_task in labels.values() for label in of_task}
    for name in requested:
        if name.lower() not in label_of:
            raise InputError(unknown_name("task", name, list(label_of.values())))
    lower_names = {name.lower() for name in requested}
    return [task for task, of_task in labels.items() if lower_names & set(map(str.lower, of_task))]


def _cached_score(model: Embedder, weights: str, task: LocalTask, folder: Path) -> TaskScore:
    """Return the score of a model on a task, from `folder` where it is known."""
    require("mteb", "eval")
    # MTEB is not imported for its version: that takes longer than reading a known score.
    provenance = {"weights": weights, "data": task.digest(), "mteb": metadata.version("mteb")}
    key = f"{_FORMAT} {weights} {task.kind} {task.name} {provenance['data']} {provenance['mteb']}"
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
    if path.is_file():
        try:
            return TaskScore(**read_json(path)["row"])
        except (ModelFolderError, KeyError, TypeError):
            path.unlink()  # damaged; made anew below
    score = _score(model, task)
    provenance |= {"machine": platform.platform(), "date": time.strftime("%Y-%m-%d")}
    write_json(path, {"row": asdict(score), **provenance})
    return score


def _score(model: Embedder, task: LocalTask) -> TaskScore:
    """Run one task in MTEB."""
    mteb = _import_mteb()
    with quiet():
        mteb_task = task.make()
        subject: Any = MtebEncoder(model)
        if isinstance(model, EncoderEmbedder) and model.is_sentence_transformer:
            subject = model.model  # to which MTEB gives the prompts that it has for a task
        done = mteb.evaluate(
            subject,
            mteb_task,
            cache=None,
            co2_tracker=False,
            encode_kwargs={"show_progress_bar": False, "batch_size": 32},
            show_progress_bar=False,
        )
    result = done.task_results[0]
    splits = result.scores["test"] if "test" in result.scores else next(iter(result.scores.values()))
    numbers = {k: float(v) for k, v in splits[0].items() if isinstance(v, (int, float)) and math.isfinite(v)}
    metadata, seconds = mteb_task.metadata, round(float(result.evaluation_time or 0.0), 3)
    return TaskScore(
        metadata.name, str(metadata.type), metadata.main_score, 100 * float(result.get_score()), seconds, numbers
    )


class MtebEncoder:
    """A model as MTEB calls it: `mteb.evaluate(MtebEncoder(model), tasks)`.

    Attributes:
        model: what encodes.
        similarity: its similarity of every row to every row, float32 [n, m].
        similarity_pairwise: the same of each row and the same row, float32 [n].
        mteb_model_meta: what MTEB knows the model by: a name of two parts, and a revision that no other weights have.
    """

    def __init__(self, model: Any) -> None:
        """Wrap a model, what `evaluate` takes.

        Raises:
            InputError: it is no model.
            MissingExtraError: mteb is not installed.
        """
        _import_mteb()
        from mteb.models import ModelMeta

        self.model = _open(model)
        self.similarity, self.similarity_pairwise = self.model.similarity, self.model.similarity_pairwise
        name, _, revision = self.model.model_card_data.base_model.rpartition("@")
        model_meta = {"name": name, "revision": revision, "open_weights": True, **_model_facts(self.model)}
        self.mteb_model_meta = ModelMeta.create_empty(model_meta)

    def encode(
        self,
        inputs: Any,
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        batch_size: int = 32,
        show_progress_bar: bool = False,
        precision: str = "float32",
    ) -> Any:
        """Encode the texts of a data loader, in the role that MTEB gives them.

        Args:
            inputs: batches of texts, each a mapping with "text".
            task_metadata: of the task; retrieval alone takes sparse rows, as it asks for `similarity`.
            hf_split: the part of the data; it makes no difference here.
            hf_subset: the same.
            prompt_type: the role: a query, a document, or None.
            batch_size: as of `Embedder.encode`.
            show_progress_bar: the same.
            precision: the same.

        Returns:
            One row a text.
        """
        rows = self.model.encode(
            [text for batch in inputs for text in batch["text"]],
            prompt_name=getattr(prompt_type, "value", prompt_type),
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            precision=precision,
        )
        return rows.toarray() if hasattr(rows, "toarray") and task_metadata.type != "Retrieval" else rows


def _open(model: Any) -> Embedder:
    """Return a model that is given, or one of what has `encode` or `embed`, another library's methods."""
    if isinstance(model, (str, Path, Embedder)) or callable(model):  # as a SentenceTransformer is
        return load(model)
    return load(getattr(model, "encode", getattr(model, "embed", model)))


def _model_facts(model: Embedder) -> dict[str, Any]:
    """Return what MTEB asks about a model that can be measured: its sizes and similarity."""
    from mteb.models.model_meta import ScoringFunction

    identity = model.identity()
    stored: Iterable[Any] = identity.values() if isinstance(identity, Mapping) else [identity]
    sizes = [part.size for part in stored if isinstance(part, np.ndarray)]
    sizes += [weight.numel() for part in stored if hasattr(part, "parameters") for weight in part.parameters()]
    return {
        "embed_dim": model.get_embedding_dimension(),
        "max_tokens": model.max_seq_length,
        "similarity_fn_name": ScoringFunction(model.similarity_fn_name),
        "n_parameters": sum(sizes) or None,
    }


def _import_mteb() -> Any:
    with importing("eval"):
        import datasets  # noqa: F401
        import mteb
    return mteb
