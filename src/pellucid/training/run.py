"""The folder of a training run: what run it is of, and which of its checkpoints is the last whole one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.errors import InputError, ModelFolderError
from pellucid.store import read_json, write_json

if TYPE_CHECKING:
    from pellucid.lexicon.embedder import LexiconEmbedder

_RUN, _STATE = "run.json", "trainer_state.json"
_FREE = ("save_steps",)  # settings that may differ when a run goes on


def claim(folder: Path, model: LexiconEmbedder, sets: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Write what run the folder is of.

    Args:
        folder: is made if it is not there.
        model: what is trained.
        sets: the training sets by name.
        settings: all that the outcome depends on.

    Raises:
        InputError: the folder holds checkpoints of another run.
        WritingError: it cannot be written.
    """
    about = {
        "settings": {name: value for name, value in settings.items() if name not in _FREE},
        "sets": {name: _digest(part) for name, part in sets.items()},
        "model": {
            "clusters": model.get_embedding_dimension(),
            "pooling": model.settings.pooling,
            "fingerprint": [round(float(value), 4) for value in model.backbone.fingerprint()[:8]],
        },
    }
    if last_checkpoint(folder) is not None:
        found = read_json(folder / _RUN) if (folder / _RUN).is_file() else {}
        earlier = found if isinstance(found, dict) else {}
        differing = [name for name, value in json.loads(json.dumps(about)).items() if value != earlier.get(name)]
        if differing:
            raise InputError(
                f"{folder} holds checkpoints of a run with other {', '.join(differing)}; start this one in another "
                "folder, or delete that one"
            )
    write_json(folder / _RUN, about)


def _digest(part: Any) -> str:
    """Return what tells a set from others, its order included."""
    digest = hashlib.blake2b(digest_size=8)
    for item in getattr(part, "rows", None) or part.texts:
        digest.update(repr(item).encode("utf-8", "replace"))
    return digest.hexdigest()


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint that is whole: the trainer writes its state last."""
    numbered = [
        (int(number), path)
        for path in folder.glob("checkpoint-*")
        if (number := path.name.removeprefix("checkpoint-")).isdigit() and _is_whole(path / _STATE)
    ]
    return max(numbered)[1] if numbered else None


def _is_whole(state: Path) -> bool:
    try:
        return state.is_file() and isinstance(read_json(state), dict)
    except ModelFolderError:
        return False
