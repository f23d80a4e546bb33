"""Any name, folder, hub id or object to an opened model: `load`, and `load_by_name` for several to be served.

`folder.py` finds and checks folders; `transformer/backbone.py` opens the transformer of a model.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from pellucid.core.embedder import Embedder
from pellucid.errors import VERSION, InputError, ModelFolderError, require, shown
from pellucid.persistence.folder import (
    allow_external,
    check_adapter,
    hub_has_no_address,
    is_stock,
    local_folder,
    locate,
    read_config,
    refuse_special_files,
    resolve_name,
)
from pellucid.persistence.store import read_json
from pellucid.persistence.untrusted import check_finite, check_modules, check_token_ids, translate_load_errors

FAMILIES = {
    "static": "static.embedder.StaticEmbedder",
    "anchors": "anchors.embedder.AnchorEmbedder",
    "lexicon": "lexicon.embedder.LexiconEmbedder",
    "static-lexicon": "lexicon.static.StaticLexiconEmbedder",
    "keytokens": "keytokens.embedder.KeyTokenEmbedder",
    "encoder": "dense.embedder.EncoderEmbedder",
    "ensemble": "ensemble.embedder.EnsembleEmbedder",
}
"""Family, and its class with the file it is in: a new family is its package and one line here, a name, no import."""


ENCODERS = {
    "SparseEncoder": "dense.sparse_encoder.SparseEncoderEmbedder",
    "MultiVectorEncoder": "dense.multi_vector.MultiVectorEmbedder",
}
"""The classes of sentence-transformers beside SentenceTransformer, and what reads each."""


def load(model: Any, *, allow_outside: bool = False, fit: bool = False, backend: str = "torch") -> Embedder:
    """Return a model of any family, opened where it is given by name; the one place that makes models of other things.

    Args:
        model: the name of a bundled model ("static-en"), a folder that `save_pretrained` wrote, a hub id ("owner/name",
            downloaded once and cached), a folder, hub id or name ("all-MiniLM-L6-v2") of
            sentence-transformers, or a text file of word vectors (.txt, .vec, also .gz or .xz). A string that looks
            like a path is never looked up on the hub. Or something opened: a SentenceTransformer, SparseEncoder or
            MultiVectorEncoder, a callable from a list of texts to an array [texts, dimension], or a model of ours,
            which is given back.
        allow_outside: open also what the folder names elsewhere: an encoder, part or backbone at another path of this
            machine, or one that must be asked of the hub. Allow it for folders that you trust.
        fit: call a function with some thousand sentences when its reasons are first needed, to fit them. Without it
            `explain` says what else there is.
        backend: what computes a folder or hub id of sentence-transformers: "torch", or "onnx" for the ONNX file in it,
            without torch.

    Returns:
        The model, of the class that its `config.json` names; an `EncoderEmbedder` for anything else.

    Raises:
        InputError: what is given is none of these, or the backend is unknown.
        ModelFolderError: nothing is there, or what is there is broken, too new, or no model; or it names something
            elsewhere, and that is not allowed.
        MissingExtraError: sentence-transformers, or SciPy for a sparse family, is needed and not installed.
    """
    if isinstance(model, Embedder):
        return model
    if not isinstance(model, (str, os.PathLike)):
        return _encoder(model, "words", fit=fit)
    if backend not in ("torch", "onnx"):
        raise InputError(f"backend is {shown(backend)}; it must be torch or onnx")
    model = resolve_name(model)
    with allow_external(allow_outside):
        if is_stock(model):
            from pellucid.dense.onnx import HUB_FILES, OnnxEncoder

            folder = locate(model, HUB_FILES) if backend == "onnx" else Path(model).absolute()
            reasons = folder / "reasons" if (folder / "reasons" / "config.json").is_file() else "words"
            if backend == "onnx":
                return _encoder(OnnxEncoder(folder), reasons)
            config = folder / "config_sentence_transformers.json"
            kind = str(read_json(config).get("model_type")) if config.is_file() else ""
            encoder = open_sentence_transformer(model, kind if kind in ENCODERS else "SentenceTransformer")
            return _encoder(encoder, reasons)
        path = locate(model)
        family = "static" if path.is_file() else read_config(path).get("family")
        if not isinstance(family, str) or family not in FAMILIES:
            raise ModelFolderError(
                f"{path} holds a model of family {family!r}; pellucid {VERSION} knows "
                f"{', '.join(FAMILIES)}. A newer pellucid may open it"
            )
        return _class(FAMILIES[family]).from_pretrained(path)  # type: ignore[no-any-return]


def _class(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(f"pellucid.{module}"), name)


def _encoder(model: Any, reasons: Any = None, *, fit: bool = False) -> Embedder:
    """Return an encoder with its reasons; the other families do without the import."""
    if (kind := getattr(model, "model_type", None)) in ENCODERS:
        return _class(ENCODERS[kind])(model)  # type: ignore[no-any-return]
    from pellucid.dense.embedder import EncoderEmbedder

    return EncoderEmbedder(model, reasons, fit=fit)


def load_by_name(names_or_paths: Iterable[str]) -> dict[str, Embedder]:
    """Open models to be served, by the names that clients use: a path is called by its last part."""
    opened: dict[str, Embedder] = {}
    for name_or_path in names_or_paths:
        path = resolve_name(name_or_path)
        name = Path(os.path.abspath(path)).name if Path(path).exists() else path
        if name in opened:
            raise InputError(f"two models are called {shown(name)}; rename the folder of one")
        opened[name] = load(path)
    return opened


def open_sentence_transformer(name_or_path: str | os.PathLike[str], kind: str = "SentenceTransformer") -> Any:
    """Open a checked folder, or a hub id, with a class of sentence-transformers; never code or pickled weights."""
    require("sentence_transformers")
    spec, folder = os.fspath(name_or_path), local_folder(name_or_path)
    with translate_load_errors(spec):
        if folder is not None:
            refuse_special_files(folder)
            check_modules(folder)
            for adapter_folder in (folder, *(path.parent for path in folder.glob("*/adapter_config.json"))):
                check_adapter(adapter_folder)
        import sentence_transformers

        safe, local = {"use_safetensors": True}, folder is not None
        offline = local or hub_has_no_address()
        model = getattr(sentence_transformers, kind)(
            spec, trust_remote_code=False, local_files_only=offline, model_kwargs=safe
        )
        if local:
            check_finite(model, spec)
        if local and kind != "CrossEncoder":
            for module in model:
                inner: Any = getattr(module, "auto_model", None)
                if hasattr(inner, "get_input_embeddings") and hasattr(module.tokenizer, "get_vocab"):
                    check_token_ids(module.tokenizer, len(inner.get_input_embeddings().weight))
            _encoder(model).encode("a text")  # weights and tokenizer fit together
        return model
