"""Saved models of any family: where they are found, what every folder holds, and which class opens them.

A folder's `config.json` has an object "pellucid": the family, the version of the format, the library's version and the
names of the files the model consists of, with the checksums of those that are not meant to be edited. Everything else
in it is for other libraries.

Any encoder as one function: texts in, float32 rows of length 1 out.

An encoder is a SentenceTransformer, a pellucid model, or any callable that takes a list of texts and returns one vector
each. What it returns is checked here, so that nobody else has to.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from importlib import import_module
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import pellucid
from pellucid.base import Embedder, Vectors
from pellucid.errors import InputError, ModelFolderError, PellucidError, is_panic, missing_extra, require
from pellucid.explanation import Coverage, Span, words_before
from pellucid.store import broken_tensor, checksum, read_json, write_json, writing_folder
from pellucid.text import well_formed

FORMAT = 1
"""The folder format this version writes; it reads this one and all before."""

_BUNDLED = Path(__file__).parent / "bundled"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_NAME = re.compile(rf"[A-Za-z0-9][\w.-]*|{_HUB_ID.pattern}")  # some of other libraries have no owner
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.tsv", "*.model", "README.md"]
_EDITABLE = ("README.md", "dimensions.tsv")  # by people: they have no checksum
_ALWAYS_CHECKED = 4 << 20  # bytes; the files of a model that has no more are held against their checksums at opening
_MOST_ENTRIES = 100_000  # files in a model's folder
_DEEPEST = 8  # folders within folders: ensembles of ensembles, and links that lead back
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
    """Refuse a folder that does not hold a whole model of `family`.

    Raises:
        ModelFolderError: it holds no model, or one of another family; a file of it is missing, a pipe or device lies
            in it, or (where all are small together) a file is another one than was saved.
    """
    ours = read_config(folder)
    if ours.get("family") != family:
        raise ModelFolderError(
            f"{folder} holds a model of family {ours.get('family')!r:.40}, not {family!r}. Use pellucid.load"
        )
    _check_regular(folder)
    check_whole(folder, ours)


def check_whole(folder: Path, ours: Mapping[str, Any], *, most: float = _ALWAYS_CHECKED) -> None:
    """Refuse a folder that lacks a file of those in `ours["sha256"]` or, where all are small, has another one.

    Args:
        folder: of the files.
        ours: what `config.json` says of them.
        most: bytes of all together that are small.

    Raises:
        ModelFolderError: it does; the message names the file.
    """
    _check_whole(folder, _recorded(folder, ours), most)


def _check_regular(folder: Path) -> None:
    """Refuse pipes and devices anywhere in `folder`: whoever opens one may wait for ever."""
    left = _MOST_ENTRIES
    inside = [(folder, 0)]
    while inside:
        here, depth = inside.pop()
        for entry in _entries(here):
            left -= 1
            if left < 0:
                raise ModelFolderError(f"{folder} holds more than {_MOST_ENTRIES:,} files; it is no model's folder")
            kind = _kind(entry)
            if stat.S_ISDIR(kind):
                if depth < _DEEPEST and not entry.name.startswith("."):
                    inside.append((entry, depth + 1))
            elif kind and not stat.S_ISREG(kind):
                raise ModelFolderError(f"{entry} is not a regular file")


def _entries(folder: Path) -> Iterator[Path]:
    """Yield what lies in `folder`, which may be more than anyone has memory for."""
    try:
        with os.scandir(folder) as entries:
            yield from (Path(entry.path) for entry in entries)
    except OSError as error:
        raise ModelFolderError(f"cannot read {folder}: {error.strerror or error}") from error


def _kind(path: Path) -> int:
    """Return the mode of what is at `path` or behind the link there, 0 where nothing is."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def _check_whole(folder: Path, recorded: Mapping[str, str], most: float) -> None:
    """Refuse a folder that lacks a file of its model or, where all are small together, has another one."""
    absent = next((name for name in recorded if not stat.S_ISREG(_kind(folder / name))), None)
    if absent is not None:
        raise ModelFolderError(
            f"{folder / absent} is missing or not a regular file: the model is not whole. Download or copy it again"
        )
    if sum((folder / name).stat().st_size for name in recorded) > most:
        return
    for name, expected in recorded.items():
        if checksum(folder / name) != expected:
            raise ModelFolderError(
                f"{folder / name} is not the file that was saved: its sha256 is not the one in config.json. "
                "It was damaged or changed; download or copy the model again"
            )


def _recorded(folder: Path, ours: Mapping[str, Any]) -> dict[str, str]:
    """Return the checksums that `config.json` holds, none where an older version wrote it."""
    sums = ours.get("sha256", {})
    if not isinstance(sums, dict) or not all(isinstance(value, str) and _is_inside(key) for key, value in sums.items()):
        raise ModelFolderError(f"{folder / 'config.json'}: 'sha256' must be checksums of files in the folder")
    return sums


def _is_inside(name: str) -> bool:
    """Whether a file's name leads to a place below the folder it is given for."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and not {"..", "\\", ":", "\0"} & {*path.parts, *name}


def _is_checked(name: str) -> bool:
    """Whether a model's file has a checksum: one that is fetched from the hub and not meant to be edited."""
    fetched = any(fnmatch(name, pattern) for pattern in _HUB_FILES)
    return fetched and name != "config.json" and PurePosixPath(name).name not in _EDITABLE


def _names(folder: Path) -> list[str]:
    """Return the names of all files in `folder`, sorted, without those that are hidden by a dot."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in found if not any(part.startswith(".") for part in path.parts))


class FileState(NamedTuple):
    """What `verify` finds of a model's file."""

    name: str
    """Its path in the folder, with slashes."""
    state: str
    """"ok", or in words what it is."""
    sound: bool
    """Whether it may be used."""


def verify(name_or_path: str | os.PathLike[str]) -> list[FileState]:
    """Hold every file of a saved model against its checksum, and search its tensors for NaN and infinity.

    What is kept by name (an encoder, a backbone, a part of an ensemble) is not looked at; verify it by that name.

    Args:
        name_or_path: the name of a bundled model, a folder, or a hub id.

    Returns:
        one state a file, in order of their names; those that people may edit and those that an older version wrote
        without checksums say so and are sound as far as can be told.

    Raises:
        ModelFolderError: nothing is there, or it holds no model.
    """
    folder = locate(name_or_path)
    if not folder.is_dir():
        raise ModelFolderError(f"{folder} is a file; only the folder of a saved model has checksums")
    ours = read_config(folder)
    _check_regular(folder)
    recorded = _recorded(folder, ours)
    files = ours.get("files")
    own = {"config.json", *_EDITABLE, *map(str, files if isinstance(files, list) else ())}
    present = [name for name in _names(folder) if name in recorded or name.partition("/")[0] in own]
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
        except ModelFolderError as error:
            return FileState(name, f"broken: {error}", False)
        if broken is not None:
            return FileState(name, f"holds NaN or infinity, in the tensor {broken!r:.80}", False)
    if expected is not None:
        return FileState(name, "ok", True)
    if name == "config.json":
        return FileState(name, "holds the checksums", True)
    return FileState(name, "has no checksum" if _is_checked(name) else "may be edited", True)


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
        sums = {name: checksum(folder / name) for name in _names(folder) if _is_checked(name)}
        ours = {"family": family, "format": FORMAT, "version": pellucid.__version__, **facts, "files": names}
        ours["sha256"] = sums
        write_json(folder / "config.json", {**others, "pellucid": ours})
        card = target / "README.md"
        if not card.is_file() or _CARD_MARK in card.read_bytes()[:_MAX_CONFIG].decode(errors="replace"):
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


_PROBES = 8  # texts encoded again when a run is resumed, to see that it is the same encoder
_ROUNDING = 0.02  # what an encoder's vectors may differ by from run to run, in bfloat16 for instance
_FORMS = "a pellucid model (bundled name, folder or hub id) or a sentence-transformers model (folder or hub id)"

Encoder = Any
"""A SentenceTransformer, an `Embedder`, or a callable: list of texts -> array [texts, d]."""


def encode_with(
    encoder: Encoder,
    texts: list[str],
    *,
    role: str = "",
    dimension: int | None = None,
    show_progress_bar: bool = False,
) -> Vectors:
    """Return the vectors of `texts` at length 1.

    Args:
        encoder: what makes the vectors; their lengths do not matter.
        texts: any number of texts.
        role: "query" or "document" for the encoder's own way with these, "" for neither; callables know no roles.
        dimension: what the encoder gave before; None takes what it gives.
        show_progress_bar: passed on where the encoder has one.

    Returns:
        float32 [texts, d]; a row is zero where the encoder gives zero.

    Raises:
        InputError: the encoder is none, gives another number of rows or dimensions than expected, or a NaN.
    """
    function = _as_function(encoder, role, show_progress_bar)
    if not texts:
        return np.zeros((0, dimension or 0), np.float32)
    vectors = _as_rows(function(list(map(well_formed, texts))))
    name = type(encoder).__name__
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise InputError(f"the encoder ({name}) gave an array of shape {vectors.shape} for {len(texts)} texts")
    if dimension is not None and vectors.shape[1] != dimension:
        raise InputError(
            f"the encoder ({name}) gives {vectors.shape[1]} dimensions, before it gave {dimension}; "
            "give the encoder that the anchors were made with"
        )
    broken = ~np.isfinite(vectors).all(axis=1)
    if broken.any():
        raise InputError(
            f"the encoder ({name}) gave NaN or infinity for {int(broken.sum())} of {len(texts)} texts, "
            f"the first is {texts[int(broken.argmax())]!r:.60}"
        )
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))[:, None]  # squares may leave float32
    units: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return units


def anchor_vectors(encoder: Encoder, texts: list[str], *, dimension: int | None = None) -> Vectors:
    """Return the encoded anchors at length 1, float32 [n, d].

    Raises:
        InputError: the encoder maps one to zero, or gives something else than `encode_with` allows.
    """
    vectors = encode_with(encoder, texts, dimension=dimension)
    empty = np.flatnonzero(~vectors.any(axis=1))
    if len(empty):
        raise InputError(
            f"the encoder maps anchor {empty[0]} ({texts[empty[0]]!r:.60}) to zero"
            + (f", and {len(empty) - 1} more" if len(empty) > 1 else "")
            + "; leave it out: no text is similar to it"
        )
    return vectors


def known_to(encoder: Encoder, texts: list[str]) -> list[tuple[Coverage, tuple[Span, ...]]]:
    """Return for each text how much of it an encoder knows, and the stretches it does not.

    A SentenceTransformer reads every word before its maximum length. Of a callable nothing is known: it counts as one
    that knows everything.
    """
    if isinstance(encoder, Embedder):
        return encoder._known(texts)
    return [words_before(text, _read_to(encoder, text)) for text in map(well_formed, texts)]


def _read_to(encoder: Encoder, text: str) -> int:
    """Return the character where a SentenceTransformer stops to read; the end for what cannot be asked."""
    tokenizer: Any = getattr(encoder, "tokenizer", None)
    longest = getattr(encoder, "max_seq_length", None)
    if not is_sentence_transformer(encoder) or not getattr(tokenizer, "is_fast", False) or not isinstance(longest, int):
        return len(text)
    read = tokenizer(
        text, truncation=True, max_length=longest, return_offsets_mapping=True, return_overflowing_tokens=True
    )
    if len(read["offset_mapping"]) < 2:  # nothing was cut
        return len(text)
    return int(max(end for _, end in read["offset_mapping"][0]))


def is_sentence_transformer(encoder: Encoder) -> bool:
    """Whether `encoder` is a SentenceTransformer, found out without importing that library."""
    return any(kind.__module__.startswith("sentence_transformers") for kind in type(encoder).__mro__)


def _as_function(encoder: Encoder, role: str, show_progress_bar: bool) -> Callable[[list[str]], Any]:
    if isinstance(encoder, Embedder) or is_sentence_transformer(encoder):
        method = getattr(encoder, f"encode_{role}" if role else "encode")
        return lambda texts: method(texts, show_progress_bar=show_progress_bar)
    if callable(encoder):
        function: Callable[[list[str]], Any] = encoder
        return function
    raise InputError(
        f"an encoder is a SentenceTransformer, a pellucid model or a callable, got {type(encoder).__name__}. "
        "Open a name or folder first: SentenceTransformer(name) or pellucid.load(name)"
    )


def _as_rows(vectors: Any) -> Vectors:
    """Return what an encoder gave (array, tensor, lists) as a float32 array."""
    if hasattr(vectors, "toarray"):
        vectors = vectors.toarray()
    if hasattr(vectors, "detach"):
        vectors = vectors.detach().float().cpu().numpy()
    try:
        return np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"the encoder gave no array of numbers: {error}") from error


def open_encoder(name_or_path: str | Path) -> Encoder:
    """Open a model by bundled name, folder, file or hub id: with pellucid, unless it is a SentenceTransformer.

    Raises:
        InputError: nothing is found.
        ModelFolderError: what is found is broken.
        MissingExtraError: sentence-transformers is needed and not installed.
    """
    spec = str(name_or_path)
    folder = Path(spec).expanduser()
    if spec in bundled_models() or folder.is_file():
        return load(spec)
    if folder.is_dir():
        stock = (folder / "modules.json").exists() and not _is_ours(folder / "config.json")
        return open_sentence_transformer(str(folder)) if stock else load(folder)
    if not (isinstance(name_or_path, str) and is_hub_id(spec)):
        raise InputError(f"no model {spec!r}: nothing is at {folder.absolute()}. Give {_FORMS}")
    return load(spec) if _is_ours(_hub_config(spec)) else open_sentence_transformer(spec)


def is_ours(name_or_path: str | Path) -> bool:
    """Whether a bundled name, a folder or a hub id is that of a pellucid model; of the hub only a config is fetched.

    Raises:
        InputError: the hub does not answer, or has no such model.
    """
    spec = str(name_or_path)
    folder = Path(spec).expanduser()
    if spec in bundled_models() or folder.exists():
        return spec in bundled_models() or _is_ours(folder / "config.json")
    return isinstance(name_or_path, str) and is_hub_id(spec) and _is_ours(_hub_config(spec))


def _hub_config(repo: str) -> Path | None:
    """Download a hub model's config.json, if it has one."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(repo, "config.json"))
    except LocalEntryNotFoundError as error:  # before its base class EntryNotFoundError
        raise InputError(f"{repo!r} is no folder here and the hub cannot be reached. Give {_FORMS}") from error
    except EntryNotFoundError:
        return None
    except HfHubHTTPError as error:
        raise InputError(f"no model {repo!r}: no such folder, and the hub answers: {error}") from error


def _is_ours(config: Path | None) -> bool:
    if config is None or not config.is_file():
        return False
    try:
        read = read_json(config)
    except ModelFolderError:
        return True  # `load` says best what is wrong with it
    return isinstance(read, dict) and "pellucid" in read


def open_sentence_transformer(spec: str) -> Any:
    """Open a folder or hub id with sentence-transformers, without its bars; code and pickled weights never.

    A folder's files are checked first, and the hub is not asked.

    Raises:
        ModelFolderError: nothing is there, or it is broken.
        MissingExtraError: it is not installed, or too old.
    """
    require("sentence_transformers")
    folder = local_folder(spec)
    with loading(spec):
        if folder is not None:
            _check_modules(folder)
        from sentence_transformers import SentenceTransformer

        safe = {"use_safetensors": True}
        local = folder is not None
        model = SentenceTransformer(spec, trust_remote_code=False, local_files_only=local, model_kwargs=safe)
        if local:
            _try_out(model, spec)
        return model


def _try_out(model: Any, spec: str) -> None:
    """Refuse a model whose weights and tokenizer do not fit together, by a look at them and by encoding a text."""
    from pellucid.untrusted import check_finite, check_token_ids

    check_finite(model, spec)
    for module in model:
        inner = getattr(module, "auto_model", None)
        if inner is not None and hasattr(inner, "get_input_embeddings") and hasattr(module.tokenizer, "get_vocab"):
            check_token_ids(module.tokenizer, len(inner.get_input_embeddings().weight))
    encode_with(model, ["a text"])


def _check_modules(folder: Path) -> None:
    """Refuse a folder whose modules are not sentence-transformers' own, or whose files cannot be opened safely."""
    from pellucid.untrusted import check_module

    modules = read_json(folder / "modules.json") if (folder / "modules.json").exists() else [{"path": ""}]
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ModelFolderError(f"{folder / 'modules.json'} must hold a list of modules")
    for module in modules:
        kind, path = module.get("type", "sentence_transformers."), module.get("path")
        if not isinstance(path, str) or Path(path).is_absolute() or ".." in Path(path).parts:
            raise ModelFolderError(f"{folder / 'modules.json'}: {path!r:.80} is no place in this folder")
        if not isinstance(kind, str) or not kind.startswith("sentence_transformers."):
            raise ModelFolderError(f"{folder / 'modules.json'} names code from elsewhere, {kind!r:.80}")
        place = folder / path
        if place.is_dir():
            check_module(place)
            if kind.rpartition(".")[2] in ("", "Transformer"):
                _check_transformer(place)


def _check_transformer(folder: Path) -> None:
    """Refuse the transformer of a module where `config.json` and weights differ; what is missing would be random."""
    import transformers

    from pellucid.untrusted import check_size

    config = transformers.AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    check_size(transformers.AutoModel, config, folder)
    named = getattr(transformers, str((config.architectures or [""])[0]), None)  # half of a T5 is a model, too
    known = isinstance(named, type) and issubclass(named, transformers.PreTrainedModel)
    loader: Any = named if known else transformers.AutoModel
    _, found = loader.from_pretrained(
        str(folder), device_map="meta", output_loading_info=True, local_files_only=True, use_safetensors=True
    )
    missing = sorted(key for key in found["missing_keys"] if "pooler" not in key)
    if missing:
        raise ModelFolderError(f"{folder} lacks {len(missing)} weights ({missing[0]}, ...), which would be random")


@contextmanager
def loading(name: str) -> Iterator[None]:
    """Turn whatever transformers raises while it opens something into our errors, and keep its bars away.

    Raises:
        MissingExtraError: torch or transformers is not installed, or too old.
        ModelFolderError: nothing is there, or it is broken.
    """
    require("torch")  # transformers imports without it and fails later
    require("transformers")
    try:
        with without_bars():
            yield
    except PellucidError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise  # the user's own interruption
        if isinstance(error, ModuleNotFoundError) and error.name in ("torch", "transformers", "peft"):
            raise missing_extra(error.name, "torch") from error
        raise ModelFolderError(f"transformers cannot open {name!r}: {error!s:.1000}") from error


@contextmanager
def without_bars() -> Iterator[None]:
    """Keep transformers from drawing a bar for each file it reads or writes."""
    from transformers.utils import logging as bars

    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def check_same_encoder(encoder: Encoder, texts: Iterable[str], known: npt.NDArray[Any], folder: Path) -> None:
    """Refuse to go on in `folder` with another encoder than the one that gave the `known` vectors of `texts`.

    Raises:
        InputError: the vectors of the first texts differ by more than rounding does.
    """
    again = encode_with(encoder, list(islice(texts, _PROBES)))
    first = np.asarray(known[: len(again)], np.float32)
    if again.shape != first.shape or np.abs(again - first).max(initial=0) > _ROUNDING:
        raise InputError(
            f"{folder} holds vectors of another encoder; give the one it was begun with, or another work_dir"
        )
