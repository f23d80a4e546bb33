"""The models `evaluate` takes: opening one by a short string, telling two apart by their weights, serving MTEB."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.embeddings import unit_rows
from pellucid.errors import InputError, missing_extra
from pellucid.pretrained import open_encoder, without_bars

_FORMS = (
    "a pellucid model (bundled name, folder or hub id), a sentence-transformers model (folder or hub id), 'wordllama', "
    "'wordllama:DIMENSIONS', 'model2vec:FOLDER_OR_ID', 'baseline:NAME:FOLDER_OR_ID' or 'vectors:TEXT_FILE'"
)
_BASELINES = "pellucid.research.baselines"  # a name: nothing but the command line imports what research is made of


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
    return open_encoder(spec)


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


def fingerprint(model: Any) -> str:
    """Return a sha256 that changes with any weight of `model`, with its settings and with its package's version.

    It covers the files that the model's own `save_pretrained` writes (WordLlama: table and tokenizer).

    Raises:
        InputError: the model cannot be saved, so there is nothing to tell it apart by.
    """
    total = hashlib.sha256()
    total.update(f"{type(model).__module__}.{type(model).__qualname__} {_version(model)}".encode())
    total.update(f" {getattr(model, 'truncate_dim', None)}".encode())
    if hasattr(model, "save_pretrained"):
        _hash_saved(model, total)
    elif hasattr(model, "embedding") and hasattr(model, "tokenizer"):
        total.update(np.ascontiguousarray(model.embedding).tobytes() + model.tokenizer.to_str().encode())
    else:
        raise InputError(f"cannot evaluate {type(model).__name__}: it has no save_pretrained. Give {_FORMS}")
    return total.hexdigest()


def _hash_saved(model: Any, total: Any) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        if type(model).__module__.startswith("sentence_transformers"):
            with without_bars():
                model.save_pretrained(str(folder), create_model_card=False)
        else:
            model.save_pretrained(folder)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".md":  # a model card may hold a date
                total.update(str(path.relative_to(folder)).encode() + hashlib.sha256(path.read_bytes()).digest())


def _version(model: Any) -> str:
    try:
        return metadata.version(type(model).__module__.partition(".")[0])
    except metadata.PackageNotFoundError:
        return ""


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
