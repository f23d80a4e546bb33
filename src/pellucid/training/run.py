"""The folder of a training run: what run it is of, and which of its checkpoints is the last whole one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.store import checksum
from pellucid.workfolder import WorkFolder

if TYPE_CHECKING:
    from pellucid.lexicon.embedder import LexiconEmbedder

_FREE = ("save_steps",)  # settings that may differ when a run goes on
_OTHERS = "rng_state_"  # what each of several devices writes by itself, perhaps later
_BLOCK = 16_384  # vectors hashed at a time


def claim(work: WorkFolder, model: LexiconEmbedder, sets: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Say what run the folder is of.

    Args:
        work: the folder.
        model: what is trained.
        sets: the training sets by name.
        settings: all that the outcome depends on.

    Raises:
        InputError: the folder holds checkpoints of another run, or of other rows; the message says which.
    """
    work.claim(
        {
            **{name: value for name, value in settings.items() if name not in _FREE},
            "adapter": settings["adapter"] and _adapter(Path(settings["adapter"])),
            "sets": list(sets),
            "model": {
                "clusters": model.get_embedding_dimension(),
                "pooling": model.settings.pooling,
                "fingerprint": [round(float(value), 4) for value in model.backbone.fingerprint()[:8]],
            },
        }
    )
    for name, part in sets.items():
        work.note_texts(name, _items(part), f"the training set {name!r}")


def _adapter(folder: Path) -> dict[str, str]:
    """Return what tells the adapter that training goes on from."""
    return {path.name: checksum(path) for path in sorted(folder.glob("adapter_*")) if path.is_file()}


def _items(part: Any) -> Iterator[str]:
    """Yield the rows of a set as text, or its texts and then hashes of their vectors."""
    yield from map(repr, getattr(part, "rows", None) or part.texts)
    for start in range(0, len(part) if hasattr(part, "vectors") else 0, _BLOCK):
        block = np.ascontiguousarray(part.vectors[start : start + _BLOCK], np.float32)
        yield hashlib.blake2b(block.tobytes(), digest_size=16).hexdigest()


def note_checkpoint(work: WorkFolder, folder: Path) -> None:
    """Take a checkpoint that was just written into the state, and those that are gone out of it."""
    known = {name: files for name, files in work.facts.get("checkpoints", {}).items() if (work.path / name).is_dir()}
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(_OTHERS)]
    known[folder.name] = {path.name: checksum(path) for path in files}
    work.commit({"checkpoints": known})


def last_checkpoint(work: WorkFolder) -> Path | None:
    """Return the newest checkpoint; one that was being written when the run was stopped does not count.

    Raises:
        ModelFolderError: it is damaged or missing.
    """
    checkpoints = work.facts.get("checkpoints")
    if not checkpoints:
        return None
    newest: str = max(checkpoints, key=lambda name: int(name.removeprefix("checkpoint-")))
    for name, known in checkpoints[newest].items():
        work.prove(work.path / newest / name, known)
    return work.path / newest
