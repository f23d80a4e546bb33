"""The numbers of a table: float32, float16, int8 or int4.

An int8 or int4 row is whole numbers times a scale. The rows of an int8 table have the same scale where that leaves
each of them steps enough: a sum of words is then one of whole numbers, exact and twice as fast. An int4 table has
numbers from -7 to 7. On disk and in memory two of these are one byte: 8 is added to each, the first of the two is the
lower half. A row of an odd dimension ends with a half byte of 8, a zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.embedder import Vectors
from pellucid.errors import InputError, shown
from pellucid.persistence.store import is_sound
from pellucid.text.words import Vocabulary

DTYPES = ("float32", "float16", "int8", "int4")

MAX_ABS_VALUE = 1e30
"""No number of a table is larger: the sum of any text's vectors stays within float32."""

MAX_NAN_CHECK_BYTES = 1 << 26
"""A float table up to this size is searched for NaN; a larger one would be read whole."""

_CHUNK_ROWS = 8192  # rows converted at a time
_MAX_INTEGERS = {"int8": 127, "int4": 7}
_ZERO = 8  # the half byte of a zero
_MIN_STEPS = 4  # the largest number of a row has so many, or all rows have scales of their own
_INT4_SCALES = np.linspace(1, 0.4, 13, dtype=np.float32) / 7
"""Scales tried for an int4 row whose largest number is 1; what is beyond 7 times the scale is cut off."""

Integers = npt.NDArray[np.int8]
Packed = npt.NDArray[np.uint8]


class StoredTable(NamedTuple):
    """A vocabulary and its vectors as they are in memory."""

    vocabulary: Vocabulary
    vectors: Any  # float32, float16 or int8 [words, dimension], or `PackedRows`
    scales: Vectors | None  # [words], only for int8 vectors
    dtype: str  # one of `DTYPES`, what the vectors are stored as; those of "int4" may be int8 in memory


class PackedRows:
    """Rows of whole numbers from -7 to 7, two a byte in memory; an array of int8 to who asks for some of them.

    Attributes:
        halves: uint8 [rows, dimension / 2 rounded up], as `pack` makes them.
        shape: (rows, dimension).
    """

    dtype = np.dtype(np.int8)
    ndim = 2

    def __init__(self, halves: Packed, dimension: int) -> None:
        """Take what `pack` made, without copying."""
        self.halves, self.shape, self.nbytes = halves, (len(halves), dimension), halves.nbytes

    def __len__(self) -> int:
        """Return how many rows there are."""
        return self.shape[0]

    def __getitem__(self, selection: Any) -> Integers:
        """Return some rows, or some rows and columns, as an array would: int8."""
        rows, columns = selection if isinstance(selection, tuple) else (selection, slice(None))
        return unpack(self.halves[rows], self.shape[1])[..., columns]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return all of it: int8 [rows, dimension]."""
        return self[:].astype(dtype or self.dtype, copy=False)


def floats(vectors: Any, scales: Vectors | None, rows: npt.NDArray[np.int64] | slice) -> Vectors:
    """Return some rows of a table as float32 [rows, dimension]."""
    selected: Vectors = vectors[rows].astype(np.float32)
    if scales is not None:
        selected *= scales[rows][:, None]
    return selected


def convert(vectors: Any, scales: Vectors | None, dtype: str) -> tuple[npt.NDArray[Any], Vectors | None]:
    """Return vectors as `dtype` ("int4" as int8 from -7 to 7) and, for whole numbers, their scales."""
    # Whole numbers that `dtype` can hold stay what they are: rounding twice would lose precision.
    if dtype not in DTYPES:
        raise InputError(f"dtype is {shown(dtype)}; known are {', '.join(DTYPES)}")
    vectors = np.asarray(vectors)
    max_integer = _MAX_INTEGERS.get(dtype)
    if (
        max_integer is not None
        and scales is not None
        and (max_integer == 127 or max(vectors.max(initial=0), -int(vectors.min(initial=0))) <= 7)
    ):
        if not is_sound(scales, MAX_ABS_VALUE / 127) or scales.min(initial=0) < 0:
            raise InputError(f"scales are negative, not finite or beyond {MAX_ABS_VALUE / 127:.0e}; nothing is saved")
        return vectors, scales
    scale = None
    if dtype == "int8":
        chunks = (slice(start, start + _CHUNK_ROWS) for start in range(0, len(vectors), _CHUNK_ROWS))
        largest = [np.abs(floats(vectors, scales, part)).max(axis=1) for part in chunks]
        scale = common_scale(np.concatenate(largest)) if largest else None
    converted = np.zeros(vectors.shape, np.int8 if max_integer else dtype)
    new_scales = np.zeros(len(vectors), np.float32) if max_integer else None
    for start in range(0, len(vectors), _CHUNK_ROWS):
        part = slice(start, min(start + _CHUNK_ROWS, len(vectors)))
        block = floats(vectors, scales, part)
        if new_scales is not None:
            converted[part], new_scales[part] = quantize(block, dtype, scale)
        else:
            with np.errstate(over="ignore"):
                converted[part] = block
        scales_fit = new_scales is None or is_sound(new_scales[part], MAX_ABS_VALUE / 127)
        if not (scales_fit and is_sound(block, MAX_ABS_VALUE) and is_sound(converted[part])):
            raise InputError(
                f"the vectors of words {start} to {part.stop} are not finite as {dtype}, or beyond {MAX_ABS_VALUE:g}; "
                "nothing is saved"
            )
    return converted, new_scales


def common_scale(largest: Vectors) -> np.float32 | None:
    """Return a scale for rows of int8 with these largest numbers, None where some would get too few steps of it."""
    max_value = largest.max(initial=0)
    candidate: np.float32 = max_value / np.float32(127)
    fits = max_value <= 127 * candidate and largest[largest > 0].min(initial=np.inf) >= _MIN_STEPS * candidate
    return candidate if fits and candidate > 0 else None


def quantize(block: Vectors, dtype: str = "int8", scale: np.float32 | None = None) -> tuple[Integers, Vectors]:
    """Return `block` [rows, d] as whole numbers with one scale a row, so that row = scale * numbers.

    A zero row gets scale 0. With `scale` every row of int8 has that one, see `common_scale`. For "int4" the scale of a
    row is the one of 13 with the smallest squared error.
    """
    largest = np.abs(block).max(axis=1, initial=0)
    if dtype == "int8":
        scales = largest / np.float32(127) if scale is None else np.full(len(block), scale, np.float32)
        return _rounded(block, scales, 127).astype(np.int8), scales
    units, best = _divided(block, largest), np.zeros(len(block), np.float32)
    smallest_errors = np.full(len(block), np.inf, np.float32)
    for scale in _INT4_SCALES:
        errors = np.square(_rounded(units, np.full_like(best, scale), 7) * scale - units).sum(axis=1)
        best[errors < smallest_errors] = scale
        smallest_errors = np.minimum(errors, smallest_errors)
    return _rounded(units, best, 7).astype(np.int8), best * largest


def _rounded(block: Vectors, scales: Vectors, limit: int) -> Vectors:
    """Return the whole numbers nearest to `block` / `scales`, from -`limit` to `limit`."""
    steps = _divided(block, scales)
    np.rint(steps, out=steps)
    return np.clip(steps, -limit, limit, out=steps)  # a scale near 0 is itself rounded


def _divided(block: Vectors, scales: Vectors) -> Vectors:
    """Return each row divided by its scale; zeros where that is 0 or not finite."""
    divisible = np.isfinite(scales) & (scales > 0)
    divided: Vectors = np.divide(block, scales[:, None], out=np.zeros_like(block), where=divisible[:, None])
    return divided


def pack(numbers: Integers) -> Packed:
    """Return numbers from -7 to 7 [rows, d] as halves of bytes, uint8 [rows, d / 2 rounded up]."""
    rows, dimension = numbers.shape
    halves = np.full((rows, dimension + dimension % 2), _ZERO, np.uint8)
    halves[:, :dimension] += numbers.view(np.uint8)  # modulo 256: -7 is 249, and 8 more is 1
    packed: Packed = halves[:, ::2] | halves[:, 1::2] << 4
    return packed


def unpack(packed: Packed, dimension: int) -> Integers:
    """Return the numbers that `pack` packed, int8 [..., dimension]."""
    halves = np.empty((*packed.shape[:-1], 2 * packed.shape[-1]), np.uint8)
    halves[..., ::2], halves[..., 1::2] = packed & 15, packed >> 4
    halves -= _ZERO
    return np.ascontiguousarray(halves.view(np.int8)[..., :dimension])


def as_kernel_array(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array whose numbers lie one after another, each where the processor wants it; a copy if need be."""
    return np.require(np.asarray(array), requirements=["C", "A"])


def kernel_table(vectors: Any, scales: Vectors | None) -> tuple[Any, Vectors | None, bool]:
    """Return a table as the C functions read it, and whether its numbers are known to be finite and can be added up."""
    if scales is not None:
        sound = is_sound(scales, MAX_ABS_VALUE / 127)
    else:  # a table of float32 may be too large to say
        sound = vectors.nbytes <= MAX_NAN_CHECK_BYTES or vectors.dtype == np.float16
        sound = sound and is_sound(vectors, MAX_ABS_VALUE)
    if isinstance(vectors, PackedRows):
        vectors = PackedRows(as_kernel_array(vectors.halves), vectors.shape[1])
    else:  # a NaN of float16 may be read as another number
        vectors = as_kernel_array(vectors.astype(np.float32) if not sound and vectors.dtype == np.float16 else vectors)
    return vectors, None if scales is None else as_kernel_array(scales), sound
