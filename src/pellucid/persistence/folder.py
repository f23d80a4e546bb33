"""The folder of a saved model: where it is, what its `config.json` says, and whether it is complete.

`locate` finds the folder of a bundled name, a path or a hub id; `is_stock` knows those of sentence-transformers. Its
`config.json` has an object "pellucid": the family, the versions of the format and the library, the names of the model's
files, and the checksums of those that are not meant to be edited. Everything else in it is for other libraries.

A folder may come from anyone. A model that it names (an encoder, a part, a backbone) is opened if it is bundled, lies
in the folder, or is in the hub's cache on this machine; a path elsewhere, a download, and a link out of the folder only
where the caller allows it (`allow_outside`).
"""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from difflib import get_close_matches
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pellucid.errors import VERSION, InputError, ModelFolderError, ReadingError
from pellucid.persistence.store import (
    broken_tensor,
    checksum,
    read_json,
    reading_error,
    write_json,
    writing_folder,
)

FORMAT = 1
"""The folder format this version writes; it reads this one and all before."""

_BUNDLED = Path(__file__).parents[1] / "bundled"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_NAME = re.compile(rf"[A-Za-z0-9][\w.-]*|{_HUB_ID.pattern}")  # some of other libraries have no owner
_OWNED_NAME = re.compile(  # of models on the hub whose owner is sentence-transformers; other names are not looked up
    r"(?:all|multi-qa|paraphrase|msmarco|nli|stsb|quora|distiluse|static-(?:retrieval|similarity))-[\w.-]+-v\d+"
    r"|(?:gtr|sentence)-t5-(?:base|large|xl|xxl)|average_word_embeddings_\w[\w.]*|use-cmlm-multilingual|LaBSE",
    re.IGNORECASE,
)
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.tsv", "*.model", "README.md", "encoder.onnx"]
_EDITABLE = ("README.md", "dimensions.tsv")  # by people: they have no checksum
_MAX_CHECKED_BYTES = 4 << 20  # the files of a model that has no more are compared with their checksums at opening
_TEXT_ENDINGS = (".txt", ".vec", ".w2v", ".gz", ".xz")
_MAX_CONFIG = 1 << 20  # bytes
_CARD_MARK = "<!-- Written by pellucid at each save; remove this line to keep a card of your own. -->"

_OUTSIDE: ContextVar[bool] = ContextVar("outside", default=False)


@contextmanager
def allow_external(allowed: bool) -> Iterator[None]:
    """Allow that folders opened within lead out of themselves, or keep that allowed."""
    before = _OUTSIDE.set(allowed or _OUTSIDE.get())
    try:
        yield
    finally:
        _OUTSIDE.reset(before)


def cache_folder(name: str) -> Path:
    """Return the folder of the user's cache in which pellucid keeps what `name` says; it may be absent."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pellucid" / name


def is_outside_allowed() -> bool:
    """Whether a folder may lead out of itself now; for starting another process."""
    return _OUTSIDE.get()


def resolve_reference(folder: Path, name: str) -> str:
    """Return the place of a model that another model's folder names, after checking that it may be opened."""
    if name in bundled_models() or _OUTSIDE.get() or folder.parent.resolve() == _BUNDLED.resolve():
        return name
    if _is_inside(name) and (folder / name).exists() and _leads_inside(folder / name, folder):
        return str(folder / name)
    where = "is not in the folder"
    if is_hub_id(name):
        from huggingface_hub import snapshot_download

        where = "must be asked of the hub"
        with suppress(Exception):  # of several kinds: it is not in the cache
            cached = Path(snapshot_download(name, local_files_only=True))
            if any(cached.rglob("*.safetensors")):  # else a part of it is, such as its config
                return str(cached)
    raise ModelFolderError(
        f"{folder} names the model {name!r:.200}, which {where}; references outside the folder are disabled. If "
        f"you trust it: pellucid.load({str(folder)!r}, allow_outside=True), or pellucid --allow-outside on the command "
        "line. Or give it opened: encoder=, parts= or backbone= of from_pretrained"
    )


def check_adapter(folder: Path) -> None:
    """Check that transformers may open the base model that the adapter in a folder names."""
    path = folder / "adapter_config.json"
    config = read_json(path) if path.is_file() else {}
    base = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    if isinstance(base, str):
        resolve_reference(folder, base)


def _leads_inside(path: Path, folder: Path) -> bool:
    """Whether what is at `path`, links followed, lies in `folder`, or in the part of the hub's cache that it is of."""
    root = folder.resolve()
    for parent in (root, *root.parents):
        if parent.name == "snapshots" and parent.parent.name.startswith("models--"):
            root = parent.parent
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # links in a circle
        return False


def resolve_name(name_or_path: Any) -> Any:
    """Return a path without "~", and the hub id that a name without its owner means.

    "all-MiniLM-L6-v2" is "sentence-transformers/all-MiniLM-L6-v2", as in that library, where no file has the name.
    """
    if not isinstance(name_or_path, (str, os.PathLike)):
        return name_or_path
    text = os.path.expanduser(name_or_path)
    if not isinstance(name_or_path, str):
        return Path(text)
    if text in bundled_models() or os.path.exists(text):
        return text
    if "://" in text:
        raise ModelFolderError(f"{text!r:.200} is an address; give owner/name of a model on the hub, or a folder")
    return f"sentence-transformers/{text}" if _OWNED_NAME.fullmatch(text) and not _looks_like_path(text) else text


def is_stock(name_or_path: str | os.PathLike[str]) -> bool:
    """Whether a name, path or hub id means a model of sentence-transformers; of a hub id only the config is fetched."""
    name_or_path = resolve_name(name_or_path)
    text, path = os.fspath(name_or_path), Path(name_or_path)
    if isinstance(name_or_path, str) and text in bundled_models():
        return False
    if path.is_dir():
        is_ours = (path / "dimensions.tsv").exists()  # also where its config.json is missing or broken
        return (path / "modules.json").exists() and not is_ours and _is_not_ours(path / "config.json")
    if path.is_file() or not isinstance(name_or_path, str) or not is_hub_id(text):
        return False
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    cached = try_to_load_from_cache(text, "config.json")
    if isinstance(cached, str):  # of which kind a model is does not change
        return _is_not_ours(Path(cached))
    with _hub_explained(text):
        try:
            return _is_not_ours(Path(hf_hub_download(text, "config.json", local_files_only=hub_has_no_address())))
        except EntryNotFoundError as error:
            if isinstance(error, LocalEntryNotFoundError):
                raise
            return True


def _is_not_ours(path: Path) -> bool:
    """Whether a `config.json` is absent, or of a model of another library."""
    try:
        config = read_json(path) if path.is_file() else {}
    except ModelFolderError:
        return False
    return not (isinstance(config, dict) and "pellucid" in config)


def bundled_models() -> list[str]:
    """Return the names of the models that come with the package, sorted."""
    try:
        return sorted(config.parent.name for config in _BUNDLED.glob("*/config.json"))
    except OSError as error:
        raise reading_error(_BUNDLED, error) from error


def locate(name_or_path: str | os.PathLike[str], files: Sequence[str] = _HUB_FILES) -> Path:
    """Return the local folder or text file of a name, path or hub id, downloading such files where needed."""
    if not isinstance(name_or_path, (str, os.PathLike)):
        raise InputError(f"a model is opened by a name or path, got {type(name_or_path).__name__}")
    name_or_path = resolve_name(name_or_path)
    text = os.fspath(name_or_path)
    if isinstance(name_or_path, str) and text in bundled_models():
        return _BUNDLED / text
    path = Path(text)
    if path.is_dir() or path.is_file():
        return path
    if path.exists():
        raise ModelFolderError(f"{path} is neither a folder nor a regular file; a model is a folder")
    if not isinstance(name_or_path, str) or not is_hub_id(text):
        raise ModelFolderError(not_found(text))
    from huggingface_hub import snapshot_download

    with _hub_explained(text):
        # data, never code
        return Path(snapshot_download(text, allow_patterns=list(files), local_files_only=hub_has_no_address()))


def hub_has_no_address() -> bool:
    """Whether the name of the hub's host cannot be resolved; the hub's library would try for half a minute."""
    from urllib.request import getproxies  # which imports http and ssl

    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or getproxies():  # the library does not try, or the proxy resolves the name
        return False
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError:
        return True
    return False


@contextmanager
def _hub_explained(repo: str) -> Iterator[None]:
    """Turn what the hub's library raises into our error, with the cause."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        yield
    except LocalEntryNotFoundError as error:
        raise ModelFolderError(
            f"{repo!r} is not a folder here, is not in the hub's cache, and the hub cannot be reached: "
            f"{'its host has no address' if hub_has_no_address() else error.__cause__ or error}. Check the network, or "
            "download it where there is one and give the folder"
        ) from error
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise ModelFolderError(
            f"{repo!r} is not a folder here, and the hub does not give it: {error}. {not_found(repo)}"
        ) from error


def is_hub_id(text: str) -> bool:
    """Whether `text`, where it is not on this disk, may be looked up on the hub: "owner/name", and no path."""
    return bool(_HUB_ID.fullmatch(text)) and not _looks_like_path(text)


def local_folder(name_or_path: str | os.PathLike[str]) -> Path | None:
    """Return the folder of another library's model, or None for a name on the hub."""
    if not isinstance(name_or_path, (str, os.PathLike)):
        raise InputError(f"a model is opened by a name or path, got {type(name_or_path).__name__}")
    text = os.fspath(name_or_path)
    if text and Path(text).is_dir():
        return Path(text)
    if isinstance(name_or_path, str) and _HUB_NAME.fullmatch(text) and not _looks_like_path(text):
        return None
    raise ModelFolderError(
        f"no model at {text!r}: {Path(text).absolute()} is not a folder, and a path is never looked up on the hub"
    )


def _looks_like_path(text: str) -> bool:
    """Whether `text`, with at most one slash, is a local path: a known ending, or a folder that exists."""
    return text.lower().endswith((*_TEXT_ENDINGS, ".json", ".safetensors")) or Path(text.partition("/")[0]).is_dir()


def not_found(text: str) -> str:
    """Return the message that nothing has a name, and what can be given."""
    similar_names = get_close_matches(text.lower(), bundled_models(), 1)
    hint = f" Did you mean {similar_names[0]!r}?" if similar_names else ""
    return (
        f"no model {text!r}: nothing is at {Path(text).absolute()}.{hint} Give the name of a bundled model "
        f"({', '.join(bundled_models()) or 'none in this installation'}), the folder of a saved model (./my-model), "
        "or a hub id (owner/name)"
    )


def read_config(folder: Path) -> dict[str, Any]:
    """Return the object "pellucid" of the folder's `config.json`."""
    if not (folder / "config.json").exists():
        raise ModelFolderError(f"{folder} holds no model: there is no config.json in it")
    config = read_json(folder / "config.json", max_bytes=_MAX_CONFIG)
    ours = config.get("pellucid") if isinstance(config, dict) else None
    if not isinstance(ours, dict):
        raise ModelFolderError(
            f"{folder} holds no pellucid model: its config.json has no object 'pellucid'. Open a model2vec folder "
            "with model2vec.StaticModel.from_pretrained, others with sentence_transformers.SentenceTransformer"
        )
    version = ours.get("format")
    if type(version) is not int or not 1 <= version <= FORMAT:
        raise ModelFolderError(
            f"{folder} has format {version!r:.40}; pellucid {VERSION} reads up to {FORMAT}. "
            "Update pellucid: pip install -U pellucid"
        )
    return ours


def check_family(folder: Path, family: str) -> dict[str, Any]:
    """Check that a folder holds a whole model of `family`, and return what its `config.json` says."""
    ours = read_config(folder)
    if ours.get("family") != family:
        raise ModelFolderError(
            f"{folder} holds a model of family {ours.get('family')!r:.40}, not {family!r}. Use pellucid.load"
        )
    refuse_special_files(folder)
    verify_checksums(folder, ours)
    return ours


def verify_checksums(folder: Path, ours: Mapping[str, Any]) -> None:
    """Check that all recorded files exist, and their checksums where they are small together."""
    recorded = _recorded(folder, ours)
    absent = next((name for name in recorded if not stat.S_ISREG(_kind(folder / name))), None)
    if absent is not None:
        raise ModelFolderError(
            f"{folder / absent} is missing or not a regular file: the model is not whole. Download or copy it again"
        )
    if sum((folder / name).stat().st_size for name in recorded) > _MAX_CHECKED_BYTES:
        return
    for name, expected in recorded.items():
        if checksum(folder / name) != expected:
            raise ModelFolderError(
                f"{folder / name} is not the file that was saved: its sha256 is not the one in config.json. "
                "It was damaged or changed; download or copy the model again"
            )


def refuse_special_files(folder: Path) -> None:
    """Check that a folder holds no pipe or device, which may block for ever, and no link that leads out of it."""
    folders, seen = [folder], {folder.resolve()}
    while folders:
        here = folders.pop()
        try:
            paths = list(here.iterdir())
        except OSError as error:
            raise reading_error(here, error) from error
        for path in paths:
            kind, is_inside = _kind(path), not path.is_symlink() or _leads_inside(path, folder)
            if kind and not stat.S_ISDIR(kind) and not stat.S_ISREG(kind):
                raise ModelFolderError(f"{path} is not a regular file")
            if kind and not is_inside and not _OUTSIDE.get():
                raise ModelFolderError(
                    f"{path} is a link that leads out of the folder. Put a copy in its place or, if you trust the "
                    f"folder: pellucid.load({str(folder)!r}, allow_outside=True)"
                )
            if stat.S_ISDIR(kind) and is_inside and not path.name.startswith(".") and path.resolve() not in seen:
                seen.add(path.resolve())
                folders.append(path)


def _kind(path: Path) -> int:
    """Return the mode of the file at `path`, links followed; 0 where there is nothing."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def _recorded(folder: Path, ours: Mapping[str, Any]) -> dict[str, str]:
    """Return the checksums in `config.json`; {} where an older version wrote it."""
    sums = ours.get("sha256", {})
    if not isinstance(sums, dict) or not all(isinstance(value, str) and _is_inside(key) for key, value in sums.items()):
        raise ModelFolderError(f"{folder / 'config.json'}: 'sha256' must be checksums of files in the folder")
    return sums


def _is_inside(name: str) -> bool:
    """Whether a relative file name stays below its folder."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and not {"..", "\\", ":", "\0"} & {*path.parts, *name}


def _is_checked(name: str) -> bool:
    """Whether a model's file has a checksum: one that is fetched from the hub and not meant to be edited."""
    fetched = any(fnmatch(name, pattern) for pattern in _HUB_FILES)
    return fetched and name != "config.json" and PurePosixPath(name).name not in _EDITABLE


def _names(folder: Path) -> list[str]:
    """Return the names of all files in `folder`, sorted, without those that are hidden by a dot."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in files if not any(part.startswith(".") for part in path.parts))


class FileState(NamedTuple):
    """What `verify` finds of a file: its path in the folder, "ok" or what is wrong, and whether it may be used."""

    name: str
    state: str
    sound: bool


def verify(name_or_path: str | os.PathLike[str]) -> list[FileState]:
    """Compare every file of a saved model with its checksum, and search its tensors for NaN and infinity.

    What is kept by name (an encoder, a backbone, a part of an ensemble) is not looked at; verify it by that name.

    Args:
        name_or_path: the name of a bundled model, a folder, or a hub id.

    Returns:
        one state a file, in order of their names; those that people may edit and those that an older version wrote
        without checksums are named so and count as sound.

    Raises:
        ModelFolderError: nothing is there, or it holds no model.
    """
    folder = locate(name_or_path)
    if not folder.is_dir():
        raise ModelFolderError(f"{folder} is a file; only the folder of a saved model has checksums")
    ours = read_config(folder)
    refuse_special_files(folder)
    recorded = _recorded(folder, ours)
    files = ours.get("files")
    model_files = {"config.json", *_EDITABLE, *map(str, files if isinstance(files, list) else ())}
    present = [name for name in _names(folder) if name in recorded or name.partition("/")[0] in model_files]
    return [_state(folder, name, recorded.get(name)) for name in sorted({*recorded, *present})]


def _state(folder: Path, name: str, expected: str | None) -> FileState:
    path = folder / name
    if not path.is_file():
        return FileState(name, "missing", False)
    if expected is not None and checksum(path) != expected:
        return FileState(name, "changed: its sha256 is another than when it was saved", False)
    if path.suffix == ".safetensors":
        try:
            broken = broken_tensor(path)
        except ReadingError:
            raise
        except ModelFolderError as error:
            return FileState(name, f"broken: {error}", False)
        if broken is not None:
            return FileState(name, f"holds NaN or infinity, in the tensor {broken!r:.80}", False)
    unrecorded = "has no checksum" if _is_checked(name) else "may be edited"
    return FileState(name, "ok" if expected is not None else unrecorded, True)


@contextmanager
def saving(
    path: str | os.PathLike[str], family: str, model_config: Mapping[str, Any],
    config: Mapping[str, Any] | None = None, *, has_card: bool = True,
) -> Iterator[Path]:  # fmt: skip
    """Yield a folder for a model's files, which becomes `path` whole or not at all; `model_config` may still grow."""
    target = Path(os.path.expanduser(path))
    with writing_folder(target) as folder:
        yield folder
        ours = {
            "family": family, "format": FORMAT, "version": VERSION, **model_config,
            "files": sorted(entry.name for entry in folder.iterdir()),
            "sha256": {name: checksum(folder / name) for name in _names(folder) if _is_checked(name)},
        }  # fmt: skip
        write_json(folder / "config.json", {**(config or {}), "pellucid": ours}, max_bytes=_MAX_CONFIG)
        card = target / "README.md"
        if has_card and (not card.is_file() or _CARD_MARK in card.read_bytes()[:_MAX_CONFIG].decode(errors="replace")):
            (folder / "README.md").write_text(_card(target.resolve().name, family, model_config), encoding="utf-8")


def _card(name: str, family: str, model_config: Mapping[str, Any]) -> str:
    """Return a short model card."""
    listed = "\n".join(f"- {fact.replace('_', ' ')}: {value}" for fact, value in model_config.items())
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
