"""An encoder whose vectors are kept on disk: every text is encoded once, whatever is measured with it later."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

Vectors = npt.NDArray[np.float32]
_CSR = ("data", "indices", "indptr", "shape")
_SHARD = 2048  # texts encoded between two writes: what an interruption costs at most


class CachedEncoder:
    """A callable, list of texts -> float32 or CSR rows, that asks the encoder only for texts it has not met.

    Attributes:
        name: tells encoders apart: the folder of the vectors is named by it.
        opened: the model that encodes, where it was given.
    """

    def __init__(self, name: str, encode: Callable[[list[str]], Any], folder: Path, opened: Any = None) -> None:
        """Read what `folder` holds of this encoder.

        Args:
            name: of the encoder, with its revision; another name is another cache.
            encode: texts -> float32 [texts, d] or CSR; called only for unknown texts.
            folder: where the vectors of all encoders are kept.
            opened: the model that encodes.
        """
        self.name, self.opened = name, opened
        self._encode = encode
        self._folder = folder / hashlib.sha256(name.encode()).hexdigest()[:16]
        self._folder.mkdir(parents=True, exist_ok=True)
        self._place: dict[bytes, int] = {}
        self._rows: Any = None
        self._read: set[str] = set()
        self._refresh()

    def __call__(self, texts: list[str]) -> Any:
        """Return one row for each text, encoding what is not yet known."""
        keys = [hashlib.sha256(text.encode()).digest()[:16] for text in texts]
        missing = {key: text for key, text in zip(keys, texts) if key not in self._place}
        if missing:
            self._refresh()  # another process may have encoded them
            missing = {key: text for key, text in missing.items() if key not in self._place}
        self._add(missing)
        return self._rows[[self._place[key] for key in keys]]

    def _add(self, missing: dict[bytes, str]) -> None:
        ordered = sorted(missing, key=lambda key: len(missing[key]))  # batches of like lengths cost least
        for start in range(0, len(ordered), _SHARD):
            keys = ordered[start : start + _SHARD]
            rows = self._encode([missing[key] for key in keys])
            rows = rows if sparse.issparse(rows) else np.asarray(rows, np.float32)
            self._write(np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 16), rows)
        if missing:
            self._refresh()

    def _write(self, keys: npt.NDArray[np.uint8], rows: Any) -> None:
        path = self._folder / f"{hashlib.sha256(keys.tobytes()).hexdigest()[:16]}.npz"
        tmp_path = path.with_suffix(f".{os.getpid()}.tmp")
        arrays = {"rows": rows} if not sparse.issparse(rows) else {name: getattr(rows, name) for name in _CSR}
        with open(tmp_path, "wb") as file:
            np.savez(file, keys=keys, **arrays)
        tmp_path.replace(path)

    def _refresh(self) -> None:
        """Take in the shards that were written since the last look."""
        total = 0 if self._rows is None else self._rows.shape[0]
        blocks = [self._rows] if total else []
        for path in sorted(path for path in self._folder.glob("*.npz") if path.name not in self._read):
            with np.load(path) as shard:
                keys, rows = shard["keys"], _rows_in(shard)
            self._place.update((key.tobytes(), total + i) for i, key in enumerate(keys))
            blocks.append(rows)
            total += len(keys)
            self._read.add(path.name)
        if len(blocks) > 1:
            self._rows = sparse.vstack(blocks, format="csr") if sparse.issparse(blocks[0]) else np.concatenate(blocks)
        elif blocks:
            self._rows = blocks[0]


def _rows_in(shard: Any) -> Any:
    if "rows" in shard:
        return shard["rows"]
    return sparse.csr_matrix((shard["data"], shard["indices"], shard["indptr"]), shape=tuple(shard["shape"]))


def unit_rows(rows: npt.NDArray[np.floating]) -> Vectors:
    """Return the rows at length 1, zero rows as they are."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Vectors = np.divide(rows, lengths, out=np.zeros(rows.shape, np.float32), where=lengths > 0)
    return unit


def distinct(texts: Iterable[str]) -> list[str]:
    """Return the texts once each, in the order of their first occurrence."""
    return list(dict.fromkeys(texts))
