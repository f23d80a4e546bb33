"""How good a model is: MTEB's tasks on local data or the hub's, and a fast STS score for use while developing.

Scores are kept in a folder of small JSON files, each named by a hash of the model's weights and of the data, so that an
interrupted evaluation resumes and one that was done costs nothing. MTEB's own cache is not used: it goes by names, and
locally made models have none.

`instructions.json` has the instruction of each of the 56 tasks of MTEB(eng, v1), of AIR-Bench, and of each type for
other tasks (LENS paper, appendix A.3). A model that was not trained with instructions is not given any unless asked
for: to it they are words that have nothing to do with the text.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.base import Embedder
from pellucid.embeddings import unit_rows
from pellucid.encoder import STOCK, EncoderEmbedder, opened_with
from pellucid.errors import InputError, ModelFolderError, missing_extra
from pellucid.evaluation.tasks import KINDS, LocalTask, find_tasks, read_sts
from pellucid.fingerprint import fingerprint
from pellucid.pretrained import load
from pellucid.progress import Progress
from pellucid.store import read_json, write_json

AUTO, BUNDLED, NONE = "auto", "bundled", "none"
_TABLE = Path(__file__).with_name("instructions.json")
_PLACE = "{instruction}"
_FAMILY = "airbench"  # its tasks are named AIR-Bench and something
__all__ = ["Results", "TaskScore", "evaluate", "open_any", "sts_spearman"]
HUB_TASKS = (
    "STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICK-R", "BIOSSES", "SciFact",
    "Banking77Classification", "EmotionClassification", "TweetSentimentExtractionClassification", "TwitterURLCorpus",
)  # fmt: skip
"""What is evaluated on the hub's data when no task is named; any other task of MTEB can be."""

_FORMAT = 1  # part of every key of the cache; raise it with any change here that changes a score


@dataclass(frozen=True)
class TaskScore:
    """A model's score on one task.

    Attributes:
        task: MTEB's name of the task, or the name of the set's folder.
        type: the kind of task, as "STS" or "Retrieval".
        metric: the main metric of the task, as MTEB calls it.
        score: the main metric x 100; NaN for a correlation with a model that gives every pair the same cosine.
        seconds: how long encoding and scoring took when the score was made.
        scores: all metrics that are one finite number, as MTEB gives them (mostly 0 to 1).
        instruction: what was put before each text that is no document; "" for nothing.
    """

    task: str
    type: str
    metric: str
    score: float
    seconds: float = 0.0
    scores: Mapping[str, float] = field(default_factory=dict, repr=False)
    instruction: str = ""


@dataclass(frozen=True)
class Results:
    """A model's scores, one row a task."""

    model: str
    rows: tuple[TaskScore, ...]

    @property
    def means(self) -> dict[str, float]:
        """The mean score of each type of task, in the order of the rows."""
        types = dict.fromkeys(row.type for row in self.rows)
        return {name: float(np.mean([row.score for row in self.rows if row.type == name])) for name in types}

    def to_dict(self) -> dict[str, Any]:
        """Return the model's name, the rows and the means as plain values, fit for JSON."""
        return {"model": self.model, "rows": [asdict(row) for row in self.rows], "means": self.means}

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with the columns task, type, metric, score and seconds.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise missing_extra("pandas", "eval") from error
        columns = ["task", "type", "metric", "score", "seconds"]
        return pd.DataFrame([[getattr(row, column) for column in columns] for row in self.rows], columns=columns)

    def to_markdown(self) -> str:
        """Return the rows and the means as a Markdown table, scores x 100 with one decimal, and the instructions."""
        from pellucid.views.markdown import markdown_text as written

        lines = [f"| {written(self.model)} | type | metric | score |", "|---|---|---|---:|"]
        lines += [
            f"| {written(row.task)} | {written(row.type)} | {written(row.metric)} | {row.score:.1f} |"
            for row in self.rows
        ]
        lines += [f"| **mean** | {name} | | **{mean:.1f}** |" for name, mean in self.means.items()]
        tasks_of: dict[str, list[str]] = {}
        for row in self.rows:
            tasks_of.setdefault(row.instruction, []).append(row.task)
        if tasks_of.keys() - {""}:
            lines += ["", "Told before each text that is no document:", ""]
            lines += [
                f"- {written(', '.join(tasks))}: {written(text or 'nothing')}" for text, tasks in tasks_of.items()
            ]
        return "\n".join(lines) + "\n"


def evaluate(
    model: Any,
    *,
    data: str | Path | None = None,
    tasks: Sequence[str] | None = None,
    cache_dir: str | Path | None = None,
    name: str | None = None,
    instructions: str | Path | None = "auto",
    show_progress_bar: bool = True,
) -> Results:
    """Score a model with MTEB.

    Args:
        model: an `Embedder`, a `SentenceTransformer`, a `WordLlama`, a model2vec `StaticModel`, or what `open_any`
            takes.
        data: a folder of evaluation sets (layout: `tasks.py`); nothing is downloaded then. None takes the
            data from the Hugging Face hub.
        tasks: names of tasks or of types ("STS", "Retrieval", ...), case ignored; None runs all sets under `data`, or
            `HUB_TASKS`. On the hub any English task of MTEB can be named.
        cache_dir: where scores are kept; None is `~/.cache/pellucid/eval` (below `$XDG_CACHE_HOME` where set).
        name: what to call the model in the results; None takes the given string or the class's name.
        instructions: what is put before the queries of retrieval and reranking and all texts of other tasks, never
            before documents. "auto" gives the LENS paper's instructions to models that were trained with some
            (`settings.takes_instruction`), "bundled" gives them to any model with `with_instruction`, "none" gives
            none, and a JSON file is used as "bundled" is. Models of sentence-transformers keep their own
            prompts in any case.
        show_progress_bar: show a bar, counting tasks, once the work has lasted two seconds.

    Returns:
        The scores, one row a task, x 100.

    Raises:
        InputError: an unknown task (the message names the nearest), an absent folder or file, a missing column.
        MissingExtraError: mteb, or the package that opens `model`, is not installed.
    """
    if isinstance(tasks, str):
        raise InputError(f"tasks is a string; give a list, as tasks=[{tasks!r}]")
    table = read_instructions(instructions)
    local = None if data is None else find_tasks(data)
    chosen: Sequence[str | LocalTask] = _choose_local(local, tasks) if local else _choose_hub(tasks)
    for task in chosen:
        if isinstance(task, LocalTask):
            task.files()  # a missing file is reported before the first hour of work, not after
    if isinstance(model, (str, Path)):
        name = name or str(model)
        model = open_any(model)
    name = name or type(model).__name__
    model = load(model) if callable(model) else model
    folder = default_cache() if cache_dir is None else Path(cache_dir)
    weights = cache_key(model)
    rows = []
    with Progress("evaluating", total=len(chosen), unit="tasks", enabled=show_progress_bar) as progress:
        for task in chosen:
            progress.advance(0, task.name if isinstance(task, LocalTask) else task)
            rows.append(_cached_row(model, weights, task, folder, table))
            progress.advance(1)
    return Results(name, tuple(rows))


def _choose_local(found: Sequence[LocalTask], wanted: Sequence[str] | None) -> list[LocalTask]:
    """Return the sets that `wanted` names by task, folder or type, in the order found."""
    if wanted is None:
        return list(found)
    labels = {task: {task.name.lower(), task.folder.name.lower(), task.kind.lower()} for task in found}
    for name in wanted:
        if not any(name.lower() in names for names in labels.values()):
            known = [task.name for task in found] + [*dict.fromkeys(task.kind for task in found)]
            raise InputError(
                f"no task {name!r} in the data folder{_nearest(name, known)}. There are {', '.join(known)}"
            )
    asked = {name.lower() for name in wanted}
    return [task for task in found if labels[task] & asked]


def _choose_hub(wanted: Sequence[str] | None) -> list[str]:
    """Return MTEB's names of the tasks that `wanted` names, a type standing for those of `HUB_TASKS`."""
    mteb = _import_mteb()
    if wanted is None:
        return list(HUB_TASKS)
    types = {kind.lower() for kind in KINDS.values()}
    known = {task.metadata.name.lower(): task.metadata.name for task in mteb.get_tasks(languages=["eng"])}
    chosen: dict[str, None] = {}
    for name in wanted:
        if name.lower() in types:
            chosen.update(dict.fromkeys(t for t in HUB_TASKS if mteb.get_task(t).metadata.type.lower() == name.lower()))
        elif name.lower() in known:
            chosen[known[name.lower()]] = None
        else:
            raise InputError(f"MTEB has no English task {name!r}{_nearest(name, list(known.values()))}")
    return list(chosen)


def _nearest(name: str, known: Sequence[str]) -> str:
    lower = {option.lower(): option for option in known}
    close = get_close_matches(name.lower(), list(lower), n=1)
    return f"; did you mean {lower[close[0]]!r}?" if close else ""


def _cached_row(
    model: Any, weights: str, task: str | LocalTask, folder: Path, instructions: Instructions | None
) -> TaskScore:
    """Return the score of a model on a task, from `folder` where it is known."""
    if isinstance(task, LocalTask):
        name, data = f"{task.kind} {task.name}", task.digest()
        model, instruction = with_task(model, instructions, task.name, task.kind)
    else:
        about = _hub_metadata(task)
        name, data = f"hub {task}", str(about.dataset["revision"])
        model, instruction = with_task(model, instructions, task, str(about.type))
    named = f"{_FORMAT} {weights} {name} {data} {_mteb_version()}" + (f" {instruction}" if instruction else "")
    key = hashlib.sha256(named.encode()).hexdigest()
    path = folder / f"{key}.json"
    if path.is_file():
        try:
            return TaskScore(**read_json(path)["row"])
        except (ModelFolderError, KeyError, TypeError):
            path.unlink()  # not what we write there; made anew below
    row = replace(_run(model, weights, task), instruction=instruction)
    made = {"weights": weights, "data": data, "mteb": _mteb_version(), "machine": platform.platform()}
    write_json(path, {"row": asdict(row), **made, "date": time.strftime("%Y-%m-%d")})
    return row


def _hub_metadata(name: str) -> Any:
    from pellucid.evaluation.tasks import hub_task

    return hub_task(name).metadata


def _run(model: Any, weights: str, task: str | LocalTask) -> TaskScore:
    """Run one task in MTEB."""
    mteb = _import_mteb()
    from pellucid.evaluation.tasks import make_hub_task, make_task, quiet

    is_stock = isinstance(model, EncoderEmbedder) and opened_with(model) == STOCK
    model = model.model if is_stock else model  # MTEB gives it the prompts that it has for a task
    as_it_is = is_stock or isinstance(model, Embedder)
    settings = {"show_progress_bar": False, "batch_size": 32 if as_it_is else 4096}
    with quiet():
        loaded = make_task(task) if isinstance(task, LocalTask) else make_hub_task(task)
        subject = MtebModel(model) if isinstance(model, Embedder) else model
        subject = subject if as_it_is else TextEncoder(model, weights[:12])
        done = mteb.evaluate(
            subject, loaded, cache=None, co2_tracker=False, encode_kwargs=settings, show_progress_bar=False
        )
    result = done.task_results[0]
    splits = result.scores["test"] if "test" in result.scores else next(iter(result.scores.values()))
    numbers = {k: float(v) for k, v in splits[0].items() if isinstance(v, (int, float)) and math.isfinite(v)}
    about = loaded.metadata
    seconds = round(float(result.evaluation_time or 0.0), 3)
    return TaskScore(about.name, str(about.type), about.main_score, 100 * float(result.get_score()), seconds, numbers)


def _import_mteb() -> Any:
    try:
        import datasets  # noqa: F401
        import mteb
    except ImportError as error:
        raise missing_extra(error.name or "mteb", "eval") from error
    return mteb


def _mteb_version() -> str:
    try:
        return metadata.version("mteb")  # without importing it, which takes longer than reading a known score
    except metadata.PackageNotFoundError as error:
        raise missing_extra("mteb", "eval") from error


def default_cache() -> Path:
    """Return the folder where scores are kept when none is given."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pellucid" / "eval"


@dataclass(frozen=True)
class Instructions:
    """The instruction of each task.

    Attributes:
        tasks: name of a task -> instruction.
        types: MTEB's name of a type of task -> instruction of those that are not in `tasks`.
        aliases: another name -> name in `tasks`.
        asked: used for any model that takes one, also for those that were not trained with instructions.
    """

    tasks: Mapping[str, str]
    types: Mapping[str, str]
    aliases: Mapping[str, str]
    asked: bool

    def of(self, task: str, kind: str) -> str:
        """Return the instruction of a task; "" if there is none.

        Args:
            task: its name in MTEB, or the name of a folder ("scifact", "trec-covid", "imdb"): case and marks ignored.
            kind: MTEB's name of its type.
        """
        known = {_plain(name): instruction for name, instruction in self.tasks.items()}
        other = {_plain(name): _plain(meant) for name, meant in self.aliases.items()}
        name = other.get(_plain(task), _plain(task))
        for tried in (name, name + _plain(kind), _FAMILY if name.startswith(_FAMILY) else name):
            if tried in known:
                return known[tried]
        return self.types.get(kind, "")


def _plain(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())


def read_instructions(choice: str | Path | None) -> Instructions | None:
    """Return the instructions to use.

    Args:
        choice: "auto" for the bundled ones, for models that were trained with instructions; "bundled" for the same, for
            every model that takes one; "none" or None for none; or a JSON file, also for every model that takes one:
            an object with an object "tasks" and, if wanted, "types" and "aliases", or one that is
            itself task -> instruction.

    Raises:
        InputError: the file is absent or holds something else.
    """
    if choice is None or choice == NONE:
        return None
    own = choice not in (AUTO, BUNDLED)
    path = Path(choice) if own else _TABLE
    if own and not path.is_file():
        raise InputError(f"no instructions {str(choice)!r}: give {AUTO}, {BUNDLED}, {NONE} or a JSON file")
    try:
        read = read_json(path)
    except ModelFolderError as error:
        raise InputError(str(error)) from error
    parts = read if isinstance(read, dict) and isinstance(read.get("tasks"), dict) else {"tasks": read}
    tasks, types, aliases = (parts.get(name, {}) for name in ("tasks", "types", "aliases"))
    for table in (tasks, types, aliases):
        if not isinstance(table, dict) or not all(isinstance(text, str) for text in table.values()):
            raise InputError(f"{path} must hold an object of task names and their instructions, all of them strings")
    return Instructions(tasks, types, aliases, asked=choice != AUTO)


def with_task(model: Any, instructions: Instructions | None, task: str, kind: str) -> tuple[Any, str]:
    """Return the model for a task, and the instruction that it has there: "" for none.

    A model takes one if it has `with_instruction` and, where it has settings, a place for the instruction in its
    template. Unless asked for, that is done only where its settings say that it was trained so (`takes_instruction`),
    and an instruction that they hold already stays.
    """
    settings = getattr(model, "settings", None)
    present = str(getattr(settings, "instruction", ""))
    can = hasattr(model, "with_instruction") and _PLACE in getattr(settings, "instructed_template", _PLACE)
    if instructions is None or not can:
        return model, present if can else ""
    if not instructions.asked and (present or not getattr(settings, "takes_instruction", False)):
        return model, present
    instruction = instructions.of(task, kind)
    return model.with_instruction(instruction), instruction


def sts_spearman(encode: Callable[[list[str]], npt.NDArray[Any]], data: str | Path) -> dict[str, float]:
    """Score a model on the STS sets found under `data`, with nothing but scipy; seconds for a static model.

    The numbers are those MTEB reports (`cosine_spearman` x 100, all pairs of a set in one correlation), down to its
    rule that a zero embedding has cosine 0.5 to any other and 1 to another zero one.

    Args:
        encode: gives one row, of any length, for each text; called once a set with all its sentences.
        data: a folder holding `sts/STS12/test.tsv` and so on.

    Returns:
        Set name to Spearman correlation x 100, in the order STS12, STS13, ..., STSBenchmark, SICK-R.

    Raises:
        InputError: no STS set is found, or a file lacks a column.
    """
    from scipy.stats import spearmanr

    found = [task for task in find_tasks(data) if task.kind == "STS"]
    if not found:
        raise InputError(f"no STS set under {data}; expected, for example, {Path(data) / 'sts/STS12/test.tsv'}")
    results = {}
    for task in found:
        pairs = read_sts(task)
        rows = _unit_rows_of_mteb(encode(pairs.sentences1 + pairs.sentences2))
        difference = rows[: len(pairs.scores)] - rows[len(pairs.scores) :]
        # As MTEB computes it, in float32: equal cosines must tie, or not, as there.
        cosines = 1 - 0.5 * np.einsum("ij,ij->i", difference, difference)
        results[task.name] = 100 * float(spearmanr(pairs.scores, cosines)[0])
    return results


def _unit_rows_of_mteb(embeddings: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Divide as MTEB does: `base` rounds otherwise, and a tie there must be a tie here."""
    array = np.asarray(embeddings, dtype=np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", array, array))
    lengths[lengths < 10 * np.finfo(np.float32).eps] = 1
    unit: npt.NDArray[np.float32] = array / lengths[:, None]
    return unit


_FORMS = (
    "a pellucid model (bundled name, folder or hub id), a sentence-transformers model (folder or hub id), 'wordllama', "
    "'wordllama:DIMENSIONS', 'model2vec:FOLDER_OR_ID', 'baseline:NAME:FOLDER_OR_ID' or 'vectors:TEXT_FILE'"
)
_BASELINES = "papers.lens.baselines"


def open_any(spec: str | Path) -> Any:
    """Open a model for evaluation by a short string.

    Args:
        spec: a pellucid model (bundled name, folder or hub id); a sentence-transformers model (folder or hub id);
            "wordllama" or "wordllama:128" (dimensions); "model2vec:FOLDER_OR_ID"; "baseline:NAME:FOLDER_OR_ID", of a
            transformer what `baselines.open_baseline` makes; "vectors:FILE", a word2vec, GloVe or fastText text file.

    Returns:
        The opened model: an `Embedder`, a `SentenceTransformer`, a `WordLlama` or a `StaticModel`.

    Raises:
        InputError: `spec` names nothing that can be opened.
        MissingExtraError: the package that opens it is not installed.
    """
    kind, colon, rest = str(spec).partition(":")
    if kind == "wordllama":
        return _open_wordllama(rest)
    if kind == "model2vec" and colon:
        return _open_model2vec(rest)
    if kind == "baseline" and colon:
        return import_module(_BASELINES).open_baseline(rest)
    if kind == "vectors" and colon:
        from pellucid.static.embedder import StaticEmbedder

        return StaticEmbedder.from_text_vectors(rest)
    return load(spec)


def _open_model2vec(path: str) -> Any:
    try:
        from model2vec import StaticModel
    except ImportError as error:
        raise missing_extra("model2vec", "eval") from error
    return StaticModel.from_pretrained(path)


def _open_wordllama(dimensions: str) -> Any:
    """Open the model inside WordLlama's own wheel; its default look-up misses the tokenizer there."""
    if dimensions and not dimensions.isdecimal():
        raise InputError(f"'wordllama:{dimensions}': after the colon comes a number of dimensions, as 'wordllama:128'")
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        import wordllama
    except ImportError as error:
        raise missing_extra("wordllama", "eval") from error
    finally:  # importing it reconfigures everybody's logging
        root.setLevel(level)
        root.handlers[:] = handlers
    size = int(dimensions) if dimensions else None
    folder = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(cache_dir=folder, disable_download=True, trunc_dim=size)


def cache_key(model: Any) -> str:
    """Return a sha256 under which a model's scores are kept: another for other weights, settings or library versions.

    It is made of the model's fingerprint; where that knows nothing that is stored (a model2vec `StaticModel`, a family
    of somebody's own), of the files that its `save_pretrained` writes; and for WordLlama of table and tokenizer.

    Raises:
        InputError: the model is none of these.
    """
    model = load(model) if callable(model) else model
    opened = model.model if isinstance(model, EncoderEmbedder) else model  # of another library, whose version counts
    total = hashlib.sha256()
    total.update(f"{type(opened).__module__}.{type(opened).__qualname__} {_version(opened)}".encode())
    total.update(f" {getattr(opened, 'truncate_dim', None)}".encode())
    if isinstance(model, Embedder) and model._identity() is not None:
        total.update(json.dumps(fingerprint(model)).encode())
    elif hasattr(opened, "save_pretrained"):
        _hash_saved(model, total)
    elif hasattr(model, "embedding") and hasattr(model, "tokenizer"):
        total.update(np.ascontiguousarray(model.embedding).tobytes() + model.tokenizer.to_str().encode())
    else:
        raise InputError(f"cannot evaluate {type(opened).__name__}: it has no save_pretrained. Give {_FORMS}")
    return total.hexdigest()


def _hash_saved(model: Any, total: Any) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        model.save_pretrained(folder)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".md":  # a model card may hold a date
                total.update(str(path.relative_to(folder)).encode() + hashlib.sha256(path.read_bytes()).digest())


def _version(model: Any) -> str:
    try:
        return metadata.version(type(model).__module__.partition(".")[0])
    except metadata.PackageNotFoundError:
        return ""


class MtebModel:
    """An `Embedder` as MTEB calls it: `mteb.evaluate(MtebModel(model), tasks)`."""

    def __init__(self, model: Embedder) -> None:
        """Wrap a model; MTEB knows it by a name, and a revision that no other weights have."""
        from mteb.models import ModelMeta

        name, _, revision = model.model_card_data.base_model.rpartition("@")
        self.mteb_model_meta = ModelMeta.create_empty({"name": name, "revision": revision})
        self.model = model

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
        """Encode the texts of a data loader, in the role that MTEB gives them."""
        texts = [text for batch in inputs for text in batch["text"]]
        role = getattr(prompt_type, "value", prompt_type)
        rows = self.model.encode(texts, role, None, batch_size, show_progress_bar, precision=precision)
        is_sparse = hasattr(rows, "toarray") and task_metadata.type != "Retrieval"  # which needs `similarity` alone
        return rows.toarray() if is_sparse else rows

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the model's similarity of every row to every row."""
        return self.model.similarity(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the model's similarity of each row and the same row."""
        return self.model.similarity_pairwise(embeddings1, embeddings2)


class TextEncoder:
    """An encoder as MTEB calls it, around a model of a library whose models MTEB does not take as they are."""

    def __init__(self, model: Any, revision: str) -> None:
        """Wrap a `StaticModel` or a `WordLlama`."""
        from mteb.models import ModelMeta

        name = f"local/{type(model).__name__}"
        self.mteb_model_meta = ModelMeta.create_empty({"name": name, "revision": revision})
        self._encode: Callable[[list[str]], Any] = getattr(model, "encode", None) or model.embed

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
    ) -> Any:
        """Encode the texts of a data loader."""
        return self._encode([text for batch in inputs for text in batch["text"]])

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the cosine of every row to every row."""
        return unit_rows(embeddings1) @ unit_rows(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the cosine of each row and the same row."""
        return (unit_rows(embeddings1) * unit_rows(embeddings2)).sum(axis=1)
