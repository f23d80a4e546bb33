"""Which task a model is told in an evaluation (LENS paper, appendix A.3), and which models are told any.

The bundled table, `instructions.json`, has the instruction of each of the 56 tasks of MTEB(eng, v1), of AIR-Bench, and
of each type for other tasks. A model that was not trained with instructions gets none unasked: to it they are words
that have nothing to do with the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.errors import InputError, ModelFolderError
from pellucid.store import read_json

AUTO, BUNDLED, NONE = "auto", "bundled", "none"

_TABLE = Path(__file__).with_name("instructions.json")
_PLACE = "{instruction}"
_FAMILY = "airbench"  # its tasks are named AIR-Bench and something


@dataclass(frozen=True)
class Instructions:
    """The instruction of each task.

    Attributes:
        tasks: name of a task -> instruction.
        types: MTEB's name of a type of task -> instruction of those that are not in `tasks`.
        aliases: another name -> name in `tasks`.
        asked: told to any model that can be told one, also to those that were not trained with instructions.
    """

    tasks: Mapping[str, str]
    types: Mapping[str, str]
    aliases: Mapping[str, str]
    asked: bool

    def of(self, task: str, kind: str) -> str:
        """Return what a model is told of a task; "" where nothing is known.

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
        choice: "auto" for the bundled ones, told to models that were trained with instructions; "bundled" for the same,
            told to every model that can be told one; "none" or None for none; or a JSON file, told likewise to every
            model that can be: an object with an object "tasks" and, if wanted, "types" and "aliases", or one that is
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


def told(model: Any, instructions: Instructions | None, task: str, kind: str) -> tuple[Any, str]:
    """Return the model as it meets a task, and the instruction that it is told there: "" for none.

    A model can be told one that has `with_instruction` and, where it has settings, a place for the instruction in its
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
