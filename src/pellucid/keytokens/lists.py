"""The lists of a key-token index: from the logits of documents, and on disk. The model is kept apart.

A folder has two files: `config.json` says what it is, how many tokens were kept of a document, and the settings of the
model; `index.safetensors` holds the lists, the texts as UTF-8, and how the model decodes a fixed text.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, ModelFolderError
from pellucid.keytokens.decoding import TopTokens
from pellucid.keytokens.settings import SIGNS, Signs
from pellucid.store import read_json, read_tensors, write_json, write_tensors, writing_folder

if TYPE_CHECKING:
    from pellucid.keytokens.embedder import KeyTokenEmbedder
    from pellucid.keytokens.index import KeyTokenIndex

_CONFIG, _TENSORS, _KIND, _VERSION = "config.json", "index.safetensors", "key token index", 1
_PROBE = "The doctor gave the sick boy some medicine on Monday."
_PROBED = 64  # logits kept
_NEEDED = ("data", "indices", "indptr", "texts", "ends", "probe")


class Lists(NamedTuple):
    """What `KeyTokenIndex` takes beside the model."""

    documents: list[str]
    weights: Any  # CSR float32 [V, documents]
    top_k: int
    signs: Signs


def posted(top: TopTokens, known: npt.NDArray[np.bool_], width: int, signs: str) -> Any:
    """Return the logits kept of some documents, CSR float32 [documents, V]; a logit of 0 stays a token shared.

    Args:
        top: the documents' tokens.
        known: bool [documents]; the others keep nothing.
        width: V.
        signs: "signed" keeps all, "positive" only those above 0.

    Raises:
        InputError: `signs` is neither.
    """
    from scipy import sparse

    if signs not in SIGNS:
        raise InputError(f"signs is {signs!r:.40}; it must be one of {', '.join(SIGNS)}")
    kept = np.broadcast_to(known[:, None], top.scores.shape)
    if signs == "positive":
        kept = kept & (top.scores > 0)
    ends = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    return sparse.csr_matrix((top.scores[kept], top.ids[kept].astype(np.int32), ends), shape=(len(known), width))


def inverted(parts: list[Any], width: int) -> Any:
    """Return blocks of documents as one list a token, CSR float32 [V, documents], each in the documents' order."""
    from scipy import sparse

    empty = sparse.csr_matrix((0, width), dtype=np.float32)
    joined = sparse.vstack([empty, *parts], format="csr", dtype=np.float32)
    return joined.tocsc().T  # the same memory, rows for columns


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
    facts: dict[str, Any] = {"kind": _KIND, "version": _VERSION, "files": [_CONFIG, _TENSORS]}
    facts |= {"top_k": index.top_k, "signs": index.signs, "settings": asdict(index.model.settings)}
    with writing_folder(path) as folder:
        write_tensors(folder / _TENSORS, tensors)
        write_json(folder / _CONFIG, {"pellucid": facts})


def read_index(path: str | Path, model: KeyTokenEmbedder) -> Lists:
    """Open what `write_index` wrote; see `KeyTokenIndex.load`."""
    from scipy import sparse

    folder = Path(path)
    facts = _read_facts(folder)
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
    return Lists(documents, weights, facts["top_k"], facts["signs"])


def _read_facts(folder: Path) -> dict[str, Any]:
    facts = read_json(folder / _CONFIG)
    facts = facts.get("pellucid") if isinstance(facts, dict) else None
    if not isinstance(facts, dict) or facts.get("kind") != _KIND:
        raise ModelFolderError(f"{folder} holds no key-token index; give the folder that KeyTokenIndex.save wrote")
    if facts.get("version") != _VERSION:
        raise ModelFolderError(f"{folder} is of version {facts.get('version')!r:.20}; this pellucid reads {_VERSION}")
    if type(facts.get("top_k")) is not int or facts.get("signs") not in SIGNS:
        raise ModelFolderError(f"{folder / _CONFIG} does not say how the index was built; it is broken")
    return facts


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
