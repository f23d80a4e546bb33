"""The instruction of each task of MTEB (LENS paper, appendix A.3), and evaluation with it.

`instructions.json` has the instruction of each of the 56 tasks of MTEB(eng, v1), of AIR-Bench, and of each type for
other tasks. A model that was not trained with instructions is not given any unless asked for: to it they are words that
have nothing to do with the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papers.local_tasks import evaluate, find_tasks
from pellucid.errors import InputError, ModelFolderError
from pellucid.evaluation.evaluating import Results, TaskScore
from pellucid.persistence.store import read_json

AUTO, BUNDLED, NONE = "auto", "bundled", "none"
_TABLE = Path(__file__).with_name("instructions.json")
_PLACE = "{instruction}"
_FAMILY = "airbench"  # its tasks are named AIR-Bench and something


def evaluate_instructed(
    model: Any,
    data: str | Path,
    *,
    tasks: Sequence[str] | None = None,
    instructions: str | Path | None = AUTO,
    cache_dir: str | Path | None = None,
) -> tuple[Results, dict[str, str]]:
    """Score a model with `papers.local_tasks.evaluate`, on each task with the instruction for it.

    Args:
        model: opened; one of sentence-transformers keeps its own prompts.
        data: a folder of evaluation sets.
        tasks: names of tasks, of folders or of types; None runs all.
        instructions: as `read_instructions` takes them.
        cache_dir: where scores are kept; see `evaluate`.

    Returns:
        The scores, and the instruction that the model had on each task, "" for none.
    """
    table = read_instructions(instructions)
    rows: list[TaskScore] = []
    told: dict[str, str] = {}
    wanted = None if tasks is None else {task.lower() for task in tasks}
    for task in find_tasks(data):
        if wanted is not None and not wanted & {task.name.lower(), task.folder.name.lower(), task.kind.lower()}:
            continue
        instructed, told[task.name] = with_task(model, table, task.name, task.kind)
        found = evaluate(instructed, data=data, tasks=[task.name], cache_dir=cache_dir).rows
        rows += [row for row in found if row.type == task.kind]  # sets of two kinds may share a name
    return Results(type(model).__name__, tuple(rows)), told


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
