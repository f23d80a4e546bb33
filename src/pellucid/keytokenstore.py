"""A key-token index on disk: the lists of its tokens and the documents' texts; the model is kept apart.

config.json         what it is, how many tokens were kept of a document, and the settings of the model
index.safetensors   the lists, the texts as UTF-8, and how the model decodes a fixed text
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, ModelFolderError
from pellucid.keysettings import SIGNS
from pellucid.store import read_json, read_tensors, write_json, write_tensors, writing_folder

if TYPE_CHECKING:
    from pellucid.keytokenindex import KeyTokenIndex
    from pellucid.keytokens import KeyTokenEmbedder

_CONFIG, _TENSORS, _KIND, _VERSION = "config.json", "index.safetensors", "key token index", 1
_PROBE = "The doctor gave the sick boy some medicine on Monday."
_PROBED = 64  # logits kept
_NEEDED = ("data", "indices", "indptr", "texts", "ends", "probe")


def write_index(path: str | Path, index: KeyTokenIndex) -> None:
    """Write an index to folder `path`; see `KeyTokenIndex.save`."""
    texts = [text.encode("utf-8", "surrogatepass") for text in index.documents]
    tensors = {
        "data": np.asarray(index.weights.data, np.float32),
        "indices": index.weights.indices.astype(np.int32),
        "indptr": index.weights.indptr.astype(np.int64),
        "texts": np.frombuffer(b"".join(texts), np.uint8),
        "ends": np.cumsum([len(text) for text in texts], dtype=np.int64),
        "probe": _probe(index.model),
    }
    facts = {
        "kind": _KIND,
        "version": _VERSION,
        "top_k": index.top_k,
        "signs": index.signs,
        "files": [_CONFIG, _TENSORS],
    }
    with writing_folder(path) as folder:
        write_tensors(folder / _TENSORS, tensors)
        write_json(folder / _CONFIG, {"pellucid": {**facts, "settings": asdict(index.model.settings)}})


def read_index(path: str | Path, model: KeyTokenEmbedder) -> KeyTokenIndex:
    """Open what `write_index` wrote; see `KeyTokenIndex.load`."""
    from scipy import sparse

    from pellucid.keytokenindex import KeyTokenIndex

    folder = Path(path)
    facts = read_json(folder / _CONFIG)
    facts = facts.get("pellucid") if isinstance(facts, dict) else None
    if (
        not isinstance(facts, dict)
        or facts.get("kind") != _KIND
        or type(facts.get("top_k")) is not int
        or facts.get("signs") not in SIGNS
    ):
        raise ModelFolderError(f"{folder} holds no key-token index; give the folder that KeyTokenIndex.save wrote")
    if facts.get("version") != _VERSION:
        raise ModelFolderError(f"{folder} is of version {facts.get('version')!r:.20}; this pellucid reads {_VERSION}")
    tensors, _ = read_tensors(folder / _TENSORS)
    missing = [name for name in _NEEDED if name not in tensors]
    if missing:
        raise ModelFolderError(f"{folder / _TENSORS} holds no tensor {missing[0]!r}; the index is broken")
    _check_model(folder, facts.get("settings"), tensors["probe"], model)
    documents = _texts(folder, tensors)
    parts = (tensors["data"], tensors["indices"], tensors["indptr"])
    try:
        weights = sparse.csr_matrix(parts, shape=(len(model.head), len(documents)))
        weights.check_format(full_check=True)
    except ValueError as error:
        raise ModelFolderError(f"{folder / _TENSORS}: the lists are broken: {error}") from error
    if not np.isfinite(weights.data).all():
        raise ModelFolderError(f"{folder / _TENSORS}: the lists hold NaN or infinity")
    return KeyTokenIndex(model, documents, weights, facts["top_k"], facts["signs"])


def _probe(model: KeyTokenEmbedder) -> npt.NDArray[np.float32]:
    """Return a few logits of a fixed text: another backbone, head or adjustment gives others."""
    shown = model.head.shown
    top = model.decode(model.embed([_PROBE], document=True), len(shown))
    logits: npt.NDArray[np.float32] = top.scores[0][np.argsort(top.ids[0])]
    return logits[:: max(1, len(shown) // _PROBED)]


def _check_model(folder: Path, settings: Any, probe: npt.NDArray[Any], model: KeyTokenEmbedder) -> None:
    """Refuse another model than the index was built with, and other settings that its embeddings depend on."""
    now = asdict(model.settings)
    for name in ("top_k", "signs", "instruction", "instructed_template"):  # not what documents are indexed by
        now.pop(name)
    if not isinstance(settings, dict):
        raise ModelFolderError(f"{folder / _CONFIG} does not say the settings of the model; the index is broken")
    differing = [name for name, value in now.items() if settings.get(name) != value]
    if differing:
        raise InputError(
            f"{folder} was built with other settings of the model (different: {', '.join(differing)}); "
            "give the model it was built with, or build it anew"
        )
    own = _probe(model)
    if own.shape != probe.shape or not np.allclose(own, probe, rtol=1e-2, atol=1e-2 * float(np.abs(own).max())):
        raise InputError(
            f"{folder} was built with another model or another adjustment: the same text has other logits; "
            "give the model it was built with, or build it anew"
        )


def _texts(folder: Path, tensors: dict[str, npt.NDArray[Any]]) -> list[str]:
    ends, blob = tensors["ends"].tolist(), tensors["texts"].tobytes()
    if ends != sorted(ends) or (ends[-1] if ends else 0) != len(blob):
        raise ModelFolderError(f"{folder / _TENSORS}: the texts are broken: their ends do not divide them")
    try:
        return [blob[a:b].decode("utf-8", "surrogatepass") for a, b in zip([0, *ends], ends)]
    except UnicodeDecodeError as error:
        raise ModelFolderError(f"{folder / _TENSORS}: a text is not UTF-8: {error}") from error
