"""Checks of the arrays of a segment, and the error for a damaged file.

A folder may come from anyone, and a disk may fail: nothing is ever read outside of an array, and the error names the
file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import IndexFolderError, ModelFolderError
from pellucid.persistence.store import is_sound

Tensors = dict[str, npt.NDArray[Any]]
"""The arrays of a segment by name."""

STRINGS = ("id", "title", "text", "metadata")
"""What a document has of strings."""

_TYPES = {
    "numbers": "i8", "passages": "i8", "cuts": "i8", "id.hash": "i8", "id.order": "i8", "words.times": "f8",
    "bm25.lengths": "i4", "bm25.values": "i4", "column.values": "f8", "vectors": "f4", "codes": "i1", "scales": "f4",
    "errors": "f4", "sparse.values": "f4", "rows.indices": "i8", "rows.values": "f4",
}  # fmt: skip
_ENDINGS = {"data": "u1", "ends": "i8", "keys": "i8", "key_ends": "i8", "rows": "i4"}


REPAIR_HINT = "Restore it, or build the index anew"
"""What a user can do about damage."""


def _is_list_key(name: str) -> bool:
    """Whether an array holds the keys of lists; a part of the score may be called "x.keys" too."""
    return name.endswith(".keys") and (":" not in name or name.startswith("sparse:"))


def corruption_error(name: str, what: object) -> IndexFolderError:
    """Return the error for a file that holds what it cannot."""
    return IndexFolderError(f"{name} is damaged: {what}. {REPAIR_HINT}")


@contextmanager
def corruption_reported(name: str) -> Iterator[None]:
    """Raise errors that damaged arrays cause as IndexFolderError."""
    try:
        yield
    except IndexFolderError:
        raise
    except (
        ModelFolderError, IndexError, KeyError, ValueError, TypeError, OverflowError, AttributeError, RecursionError
    ) as error:  # fmt: skip
        raise corruption_error(name, error) from error


def _type_of(name: str) -> str:
    """Return the type of an array by its name."""
    kind, part, array_name = name.partition(":")
    if kind in ("sparse", "rows"):
        kind = f"{kind}.{array_name.rpartition('.')[2]}"
    elif part and kind not in ("vectors", "codes", "scales", "errors"):
        raise ValueError(f"nothing is called {name!r:.60}")
    type_name = _TYPES.get(kind) or _ENDINGS.get(kind.rpartition(".")[2])
    if type_name is None:
        raise ValueError(f"nothing is called {name!r:.60}")
    return type_name


def check_tensors(tensors: Tensors) -> None:
    """Check that arrays fit together, so that nothing is read at a wrong place; numbers are not looked at."""
    for name, tensor in tensors.items():
        dimensions = 2 if name.startswith(("vectors:", "codes:")) else 1
        if tensor.dtype != np.dtype(_type_of(name)) or tensor.ndim != dimensions:
            raise ValueError(f"{name} is of type {tensor.dtype} {tensor.shape}")
    documents, passages = len(tensors["numbers"]), _check_ends("passages", tensors["passages"], None)
    for kind in (*STRINGS, "words"):
        _check_ends(f"{kind}.ends", tensors[f"{kind}.ends"], len(tensors[f"{kind}.data"]))
    sizes = {"passages": documents, "id.hash": documents, "id.order": documents, "cuts": passages}
    sizes |= {f"{kind}.ends": documents for kind in STRINGS} | {"words.times": len(tensors["words.ends"])}
    for name in sorted({"column.keys", *filter(_is_list_key, tensors)}):
        prefix = name.removesuffix(".keys")
        keys, ends, rows = (tensors[f"{prefix}.{array}"] for array in ("keys", "key_ends", "rows"))
        _check_ends(name, ends, len(rows))
        _check_rising(name, keys)
        sizes |= {f"{prefix}.key_ends": len(keys), f"{prefix}.values": len(rows)}
    for name in tensors:
        kind, _, part = name.partition(":")
        if kind in ("vectors", "codes", "scales", "errors", "bm25.lengths"):
            sizes[name] = passages
        if kind == "codes" and tensors[name].shape != tensors[f"vectors:{part}"].shape:
            raise ValueError(f"{name} has another number of dimensions than the vectors")
        if kind == "codes":
            sizes |= {f"scales:{part}": passages, f"errors:{part}": passages}
        if kind == "rows" and name.endswith(".ends"):
            array = name.removesuffix("ends")
            indices = _check_ends(name, tensors[name], len(tensors[f"{array}indices"]))
            sizes |= {name: passages, f"{array}values": indices}
            sizes |= {f"sparse:{part.removesuffix('ends')}rows": indices}
    for name, size in sizes.items():
        if len(tensors[name]) != size:
            raise ValueError(f"{name} has {len(tensors[name])} items, and {size} belong there")
    if "bm25.lengths" in tensors and "bm25.keys" not in tensors:
        raise ValueError("there are counts of terms, and no terms")
    if not documents or tensors["numbers"][0] < 1 or tensors["passages"][0] < 1:
        raise ValueError("there is no document, or one without passages")
    for name in ("numbers", "passages"):  # a document has a passage, be it an empty one
        _check_rising(name, tensors[name])
    if not 0 <= tensors["id.order"].min() <= tensors["id.order"].max() < documents:
        raise ValueError("id.order points outside the documents")


def find_invalid_numbers(tensors: Tensors) -> str:
    """Return which numbers cannot be right, "" where all can be; every number is read."""
    documents, passages = len(tensors["numbers"]), len(tensors["cuts"])
    for name, tensor in tensors.items():
        if tensor.dtype.kind == "f" and name != "words.times" and not is_sound(tensor):
            return f"{name} holds NaN or infinity"
        if _is_list_key(name):
            prefix, size = name.removesuffix(".keys"), documents if name == "column.keys" else passages
            rows = tensors[f"{prefix}.rows"]
            if len(rows) and not 0 <= rows.min() <= rows.max() < size:
                return f"{prefix} points outside the documents"
    first = np.zeros(passages, np.bool_)
    first[0] = first[tensors["passages"][:-1]] = True
    cuts, sizes = tensors["cuts"], np.diff(tensors["text.ends"], prepend=0)
    falls = (cuts[first] < 0).any() or (np.diff(cuts)[~first[1:]] < 0).any()
    if falls or (cuts[tensors["passages"] - 1] > sizes).any():
        return "cuts are not within the texts"
    for name in ("bm25.lengths", "bm25.values"):
        if name in tensors and len(tensors[name]) and tensors[name].min() < 0:
            return f"{name} holds a number below 0"
    return ""


def _check_rising(name: str, numbers: npt.NDArray[np.int64]) -> None:
    """Check that numbers rise, each above the one before."""
    if (numbers[1:] <= numbers[:-1]).any():
        raise ValueError(f"{name} do not rise")


def _check_ends(name: str, ends: npt.NDArray[np.int64], last: int | None) -> int:
    """Return the last of some ends; check that they rise, and end at `last`."""
    if len(ends) and (ends[0] < 0 or (ends[1:] < ends[:-1]).any()):
        raise ValueError(f"{name} does not rise")
    end = int(ends[-1]) if len(ends) else 0
    if last is not None and end != last:
        raise ValueError(f"{name} ends at {end}, and {last} are there")
    return end
