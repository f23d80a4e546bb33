"""Any encoder as one function: texts in, float32 rows of length 1 out.

An encoder is a SentenceTransformer, a pellucid model, or any callable that takes a list of texts and returns one vector
each. What it returns is checked here, so that nobody else has to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.base import Embedder, Vectors
from pellucid.errors import InputError, ModelFolderError, PellucidError, is_panic, missing_extra, require
from pellucid.explanation import Coverage, Span, words_before
from pellucid.store import read_json
from pellucid.words import well_formed

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
    from pellucid.pretrained import bundled_models, is_hub_id, load

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
    from pellucid.pretrained import bundled_models, is_hub_id

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
    from pellucid.pretrained import local_folder

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
