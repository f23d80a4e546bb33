"""Saved models of any family: where they are found, what every folder holds, and which class opens them.

A folder's `config.json` has an object "pellucid": the family, the version of the format, the library's version and the
names of the files the model consists of. Everything else in it is for other libraries.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pellucid
from pellucid.base import Embedder
from pellucid.errors import InputError, ModelFolderError
from pellucid.store import read_json, write_json, writing_folder

FORMAT = 1
"""The folder format this version writes; it reads this one and all before."""

_BUNDLED = Path(__file__).parent / "models"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_NAME = re.compile(rf"[A-Za-z0-9][\w.-]*|{_HUB_ID.pattern}")  # some of other libraries have no owner
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.tsv", "*.model", "README.md"]
_TEXT_ENDINGS = (".txt", ".vec", ".w2v", ".gz", ".xz")
_MAX_CONFIG = 1 << 20  # bytes
_CARD_MARK = "<!-- Written by pellucid at each save; remove this line to keep a card of your own. -->"


def load(name_or_path: str | os.PathLike[str]) -> Embedder:
    """Open a model of any family.

    Args:
        name_or_path: the name of a bundled model ("static-en"), a folder that `save_pretrained` wrote, a hub id
            ("owner/name", downloaded once and cached), or a text file of word vectors (.txt, .vec, also .gz or .xz).
            A string that looks like a path is never looked up on the hub.

    Returns:
        The model, of the class that its `config.json` names.

    Raises:
        ModelFolderError: nothing is there, or what is there is broken, too new, or no pellucid model.
    """
    place = locate(name_or_path)
    if place.is_file():
        from pellucid.static.embedder import StaticEmbedder

        return StaticEmbedder.from_text_vectors(place)
    opened: Embedder = family_class(read_config(place).get("family"), place).from_pretrained(place)
    return opened


def bundled_models() -> list[str]:
    """Return the names of the models that come with the package, sorted."""
    return sorted(config.parent.name for config in _BUNDLED.glob("*/config.json"))


def locate(name_or_path: str | os.PathLike[str]) -> Path:
    """Return the local folder or text file that a name, path or hub id stands for, downloading where needed.

    Raises:
        ModelFolderError: nothing is found; the message says what was tried and what can be given.
    """
    if not isinstance(name_or_path, (str, os.PathLike)):
        raise InputError(f"a model is opened by a name or path, got {type(name_or_path).__name__}")
    text = os.fspath(name_or_path)
    if isinstance(name_or_path, str) and text in bundled_models():
        return _BUNDLED / text
    path = Path(text).expanduser()
    if path.is_dir() or path.is_file():
        return path
    if path.exists():
        raise ModelFolderError(f"{path} is neither a folder nor a regular file; a model is a folder")
    if isinstance(name_or_path, str) and is_hub_id(text):
        return _download(text)
    raise ModelFolderError(_not_found(text))


def is_hub_id(text: str) -> bool:
    """Whether `text`, where nothing lies on this disk, may be asked of the hub: "owner/name", and no path."""
    return bool(_HUB_ID.fullmatch(text)) and not _looks_like_path(text)


def local_folder(name_or_path: str | os.PathLike[str]) -> Path | None:
    """Return the folder of another library's model, or None where its name is one to ask the hub for.

    Raises:
        ModelFolderError: nothing is there, and what was given is a path.
    """
    if not isinstance(name_or_path, (str, os.PathLike)):
        raise InputError(f"a model is opened by a name or path, got {type(name_or_path).__name__}")
    text = os.fspath(name_or_path)
    if text and Path(text).is_dir():
        return Path(text)
    if isinstance(name_or_path, str) and _HUB_NAME.fullmatch(text) and not _looks_like_path(text):
        return None
    raise ModelFolderError(
        f"no model at {text!r}: {Path(text).absolute()} is no folder, and a path is never asked of the hub"
    )


def _looks_like_path(text: str) -> bool:
    """Whether `text`, with one slash or none, means a place on this disk: a known ending, or a folder that is here."""
    return text.lower().endswith((*_TEXT_ENDINGS, ".json", ".safetensors")) or Path(text.partition("/")[0]).is_dir()


def _not_found(text: str) -> str:
    bundled = ", ".join(bundled_models()) or "none in this installation"
    return (
        f"no model at {text!r}. Give the name of a bundled model ({bundled}), "
        "the folder of a saved model (./my-model), or a hub id (owner/name)"
    )


def _download(repo_id: str) -> Path:
    """Return the cached copy of a hub repository; only files that hold data are fetched, never code."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repo_id, allow_patterns=_HUB_FILES))
    except LocalEntryNotFoundError as error:
        raise ModelFolderError(
            f"{repo_id!r} is no folder here, is not in the hub's cache, and the hub cannot be reached: "
            f"{error.__cause__ or error}. Check the network, or download it where there is one and give the folder"
        ) from error
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise ModelFolderError(
            f"{repo_id!r} is no folder here, and the hub does not give it: {error}. {_not_found(repo_id)}"
        ) from error


def family_class(family: Any, folder: Path) -> Any:
    """Return the class that opens models of `family`.

    Raises:
        ModelFolderError: this version of the library knows no such family.
    """
    if not isinstance(family, str) or family not in pellucid.FAMILIES:
        raise ModelFolderError(
            f"{folder} holds a model of family {family!r}; pellucid {pellucid.__version__} knows "
            f"{', '.join(pellucid.FAMILIES)}. A newer pellucid may open it"
        )
    module, _, name = pellucid.FAMILIES[family].rpartition(".")
    return getattr(import_module(f"pellucid.{module}"), name)


def read_config(folder: Path) -> dict[str, Any]:
    """Return the object "pellucid" of the folder's `config.json`.

    Raises:
        ModelFolderError: the folder holds no model, another library's model, or a format newer than this version.
    """
    if not (folder / "config.json").exists():
        raise ModelFolderError(f"{folder} holds no model: there is no config.json in it")
    config = read_json(folder / "config.json", max_bytes=_MAX_CONFIG)
    ours = config.get("pellucid") if isinstance(config, dict) else None
    if not isinstance(ours, dict):
        raise ModelFolderError(
            f"{folder} holds no pellucid model: its config.json has no object 'pellucid'. Open a model2vec folder "
            "with model2vec.StaticModel.from_pretrained, a LENS checkpoint with "
            "pellucid.LexiconEmbedder.from_pretrained, others with sentence_transformers.SentenceTransformer"
        )
    version = ours.get("format")
    if type(version) is not int or not 1 <= version <= FORMAT:
        raise ModelFolderError(
            f"{folder} has format {version!r:.40}; pellucid {pellucid.__version__} reads up to {FORMAT}. "
            "Update pellucid: pip install -U pellucid"
        )
    return ours


def check_family(folder: Path, family: str) -> None:
    """Refuse a folder that does not hold a model of `family`.

    Raises:
        ModelFolderError: it holds no model, or one of another family.
    """
    found = read_config(folder).get("family")
    if found != family:
        raise ModelFolderError(f"{folder} holds a model of family {found!r:.40}, not {family!r}. Use pellucid.load")


@contextmanager
def saving(
    path: str | os.PathLike[str], family: str, facts: Mapping[str, Any], config: Mapping[str, Any] | None = None
) -> Iterator[Path]:
    """Yield a folder to write a model's own files into; it becomes `path`, whole or not at all.

    Args:
        path: where the model goes; a model that is there is replaced, anything else is refused.
        family: the name under which `load` finds the class.
        facts: what the model card lists, and `config.json` repeats for people to read.
        config: what other libraries expect at the top of `config.json`.

    Raises:
        InputError: `path` holds something else than a model.
        WritingError: it cannot be written; what was there is untouched.
    """
    target = Path(path)
    with writing_folder(target) as folder:
        yield folder
        names = sorted(entry.name for entry in folder.iterdir())
        present = folder / "config.json"  # a transformer's own
        others = {**(read_json(present) if present.exists() else {}), **(config or {})}
        ours = {"family": family, "format": FORMAT, "version": pellucid.__version__, **facts, "files": names}
        write_json(folder / "config.json", {**others, "pellucid": ours})
        card = target / "README.md"
        if not card.is_file() or _CARD_MARK in card.read_text(encoding="utf-8", errors="replace"):
            (folder / "README.md").write_text(_card(target.resolve().name, family, facts), encoding="utf-8")


def _card(name: str, family: str, facts: Mapping[str, Any]) -> str:
    """Return a short model card: what it is, how it is opened."""
    listed = "\n".join(f"- {fact.replace('_', ' ')}: {value}" for fact, value in facts.items())
    return f"""---
library_name: pellucid
tags:
- pellucid
- sentence-similarity
- embeddings
---
{_CARD_MARK}

# {name}

A text embedding model of the `{family}` family of pellucid, whose similarities can be taken apart.

{listed}

```python
import pellucid

model = pellucid.load("{name}")  # or its folder, or its hub id
print(model.explain("a text", "another text"))
```
"""
