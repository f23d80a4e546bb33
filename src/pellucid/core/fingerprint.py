"""One fingerprint of a model: a checksum of all that its vectors depend on.

It answers whether a model is the one that something was made with: an index, a corpus that is encoded further, a part
or backbone that is found by its name. It stays the same when a model is copied, pickled, or saved and opened; it
changes with any number in a table, any setting, any edit of dimensions, and the type of stored numbers, but not with
names of dimensions.

A function is known by its vectors of a few texts, up to rounding; one that differs only for other texts is not told
apart.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pellucid.core.arrays import l2_normalize
from pellucid.core.dimensions import Mixing
from pellucid.errors import InputError, ModelFolderError, PellucidError

PROBES = (
    "The bank raised the interest rate on home loans.",
    "A man is riding a horse on the beach.",
    "Aspirin lowers the risk of a heart attack.",
    "How do I reset my password?",
    "Die Katze schläft auf dem Sofa.",
    "今日は天気がいい。",
    "def area(radius): return 3.14 * radius ** 2",
    "supersonic flow over a flat plate",
)
"""Texts of several kinds, by whose vectors a function is known."""

_N_DIRECTIONS = 32  # whose products with the vector of a probe are written down
_TOLERANCE = 2e-3  # of such a product: other machines and batches round differently
_MIN_SAME_COSINE = 0.98  # cosine of the vectors that a model is known by; half precision and other machines stay above
_MIN_CLOSE_COSINE = 0.999  # of the vectors of two models for which the same reasons hold, the mean of the probes
IGNORED_SETTINGS = set(
    "architectures dtype torch_dtype transformers_version use_cache id2label label2id pellucid".split()
)
# settings of transformers that say where a model comes from, or on which no vector depends


def fingerprint(model: Any) -> dict[str, Any]:
    """Return what tells a model from others, as JSON: "stored", a checksum, and "functions", known by vectors."""
    if not hasattr(model, "names_dimensions"):  # an Embedder
        raise InputError(f"only an opened model has a fingerprint, got {type(model).__name__}; give pellucid.load(...)")
    model_checksum = _Checksum()
    model_checksum.add(model)
    return {"stored": model_checksum.digest.hexdigest(), "functions": model_checksum.functions}


def same_model(first: Any, second: Any) -> bool:
    """Whether two fingerprints (or two vectors that models are known by) are of one model, up to rounding."""
    if isinstance(first, np.ndarray):
        return _cosine(first, second) >= _MIN_SAME_COSINE  # not for NaN
    try:
        return first["stored"] == second["stored"] and all(
            function1["dimension"] == function2["dimension"]
            and np.allclose(function1["probes"], function2["probes"], rtol=0.0, atol=_TOLERANCE)
            for function1, function2 in zip(first["functions"], second["functions"], strict=True)
        )
    except (KeyError, TypeError, ValueError, AttributeError):  # not what `fingerprint` gave
        return False


def same_vectors(first: Mapping[str, Any], second: Any) -> bool:
    """Whether a model known by its vectors gives nearly those of another, such as the same weights in int8.

    Args:
        first: the model's fingerprint.
        second: what is among the "functions" in the other's, if that were known by its vectors.
    """
    try:
        (first_vectors,) = first["functions"]
        pairs = zip(np.array(first_vectors["probes"]), np.array(second["probes"]), strict=True)
        is_close = float(np.mean([_cosine(*pair) for pair in pairs])) >= _MIN_CLOSE_COSINE
        return is_close and first_vectors["dimension"] == second["dimension"]
    except (KeyError, TypeError, ValueError):  # known otherwise, or not what `fingerprint` gave
        return False


def check_same(what: str, now: Any, before: Any, hint: str, error: type[PellucidError] = ModelFolderError) -> None:
    """Check that two fingerprints agree; the message begins with `what` and ends with `hint`."""
    if same_model(now, before):
        return
    how = f" (cosine {_cosine(now, before):.3f})" if isinstance(now, np.ndarray) else ""
    raise error(
        f"{what} is another model than the one that it was made with{how}: other weights, settings or type of numbers. "
        + hint
    )


def record_model(record: dict[str, Any], model: Any, folder: Path) -> None:
    """Note in the `record` of a run which model it uses, after checking that it was begun with the same one."""
    model_fingerprint = fingerprint(model)
    check_same(
        f"{model!r}, for the embeddings in {folder},", model_fingerprint, record.setdefault("model", model_fingerprint),
        "Give the one that it was begun with, or another folder", InputError,
    )  # fmt: skip


class _Checksum:
    """The running checksum of nested values; each part is delimited from the next."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256(b"pellucid model 1")  # faster than others where processors help
        self.functions: list[dict[str, Any]] = []

    def add(self, value: Any) -> None:
        """Add a model, or any part of one."""
        if hasattr(value, "names_dimensions"):  # an Embedder
            self._add_model(value)
        elif hasattr(value, "default_prompt_name"):  # of a SentenceTransformer
            self._add_stock(value)
        elif isinstance(value, np.ndarray):
            self._add_array(value)
        elif isinstance(value, Mixing):
            self._add_mixing(value)
        elif hasattr(value, "state_dict"):
            self._add_torch(value)
        elif isinstance(value, Tokenizer) or hasattr(value, "get_vocab"):
            self._add_tokenizer(value)
        elif is_dataclass(value) and not isinstance(value, type):
            self.add(asdict(value))
        elif isinstance(value, Mapping):
            self._mark("mapping", len(value))
            for key in sorted(value):
                self._mark("key", key)
                self.add(value[key])
        elif isinstance(value, (list, tuple)):
            self._mark("list", len(value))
            if {*map(type, value)} <= {str}:  # a vocabulary
                spelled = [string.encode("utf-8", "surrogatepass") for string in value]
                self._add_array(np.fromiter(map(len, spelled), np.int64, len(spelled)))
                self.digest.update(b"".join(spelled))
            else:
                for item in value:
                    self.add(item)
        else:
            self._mark(type(value).__name__, value)

    def _mark(self, kind: str, *values: Any) -> None:
        """Add a short value as JSON, which reads floats back exactly."""
        self.digest.update(json.dumps([kind, *values]).encode() + b"\n")

    def _add_model(self, model: Any) -> None:
        parts = model.identity()
        if model.family != "encoder":  # whose fingerprint is that of what it holds
            self._mark("model", model.family)
        if parts is not None:
            self.add(parts)
            return
        self._mark("function", len(self.functions))
        rows = model.encode(list(PROBES))
        rows = np.asarray(l2_normalize(rows.toarray() if hasattr(rows, "toarray") else rows, np.float64), np.float32)
        dimension = rows.shape[1]
        directions = np.cos(np.outer(np.arange(dimension), np.arange(1, _N_DIRECTIONS + 1))) * (2 / dimension) ** 0.5
        self.functions.append({"dimension": dimension, "probes": np.round(rows @ directions, 6).tolist()})

    def _add_array(self, array: npt.NDArray[Any]) -> None:
        little = array.dtype.newbyteorder("<")
        self._mark("array", little.str, list(array.shape))
        self.digest.update(np.ascontiguousarray(array, little).reshape(-1).view(np.uint8).data)

    def _add_mixing(self, mixing: Mixing) -> None:
        mixing = mixing.without_zeros()
        if mixing.is_identity:
            self.add(None)  # it counts as no mixing
            return
        sources, columns, factors, (before, after) = mixing
        self._mark("sparse", [before, after])
        for part in (np.searchsorted(sources, np.arange(before + 1)), columns, factors):
            self._add_array(part)

    def _add_torch(self, module: Any) -> None:
        """Add weights in the module's order, as versions rename them; a pooler, random or unused, is left out."""
        import torch

        weights = [weight for name, weight in module.state_dict().items() if "pooler." not in name]
        self._mark("weights", len(weights))
        for weight in weights:
            self._mark("tensor", str(weight.dtype), list(weight.shape))
            plain = weight.detach().cpu().contiguous().reshape(-1)
            self.digest.update(plain.view(torch.uint8).numpy().data)
        config = getattr(module, "config", None)
        self.add(_set(config.to_dict()) if config is not None and hasattr(config, "to_dict") else None)

    def _add_tokenizer(self, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not isinstance(backend, Tokenizer):
            self._mark("tokenizer", type(tokenizer).__name__)
            self.add(dict(tokenizer.get_vocab()))
            return
        described = json.loads(backend.to_str())
        for state in ("version", "truncation", "padding"):  # which every call may change
            described.pop(state, None)
        pieces = described["model"].pop("vocab", None) or {}
        self._mark("tokenizer", _set(described))
        if isinstance(pieces, dict):
            self.add(list(pieces))
            self._add_array(np.fromiter(pieces.values(), np.int64, len(pieces)))
        else:
            self._mark("pieces", pieces)

    def _add_stock(self, model: Any) -> None:
        """Add a SentenceTransformer but a Normalize at its end: its rows are taken at length 1."""
        modules = list(model)
        while modules and type(modules[-1]).__name__ == "Normalize":
            modules.pop()
        for name in ("prompts", "default_prompt_name", "truncate_dim", "max_seq_length"):
            setting = getattr(model, name, None)
            self._mark(name, _set(setting) if isinstance(setting, dict) else setting)
        for module in modules:
            self._mark("module", type(module).__name__)
            self.add(_set(module.get_config_dict()) if hasattr(module, "get_config_dict") else {})
            self._add_torch(getattr(module, "auto_model", module))
            tokenizer = getattr(module, "tokenizer", None)
            if tokenizer is not None:
                self._add_tokenizer(tokenizer)


def _set(settings: Any) -> Any:
    """Return settings without those that are off or empty: only some versions write them."""
    if isinstance(settings, Mapping):
        relevant = {str(key): _set(value) for key, value in settings.items() if key not in IGNORED_SETTINGS}
        return {
            k: relevant[k]
            for k in sorted(relevant)
            if not k.startswith("_") and relevant[k] not in (None, False, "", {}, [])
        }
    if isinstance(settings, (list, tuple)):
        return [_set(value) for value in settings]
    return settings if isinstance(settings, (str, int, float, bool, type(None))) else str(settings)


def _cosine(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> float:
    """Return the cosine of two vectors; NaN where they are of different length, or one is zero or not finite."""
    if first.shape != second.shape:
        return math.nan
    lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / lengths if 0 < lengths < math.inf else math.nan
