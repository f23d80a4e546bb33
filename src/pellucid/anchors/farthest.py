"""Farthest point sampling, compiled: exact, and it computes only the similarities that it needs.

What is computed. The next pick is the candidate whose greatest similarity to the picks so far is the smallest. The
plain algorithm keeps that greatest similarity, `best`, for every candidate, and after each pick compares all N
candidates with it: N products a pick, N x n in all, and the whole matrix is read n times.

Why most of that can be skipped. `best` is a maximum over the picks, so it only grows when a pick is added. A value from
some picks ago is therefore a lower bound of the true one. A candidate is out of the race for this pick as soon as its
lower bound is above the best candidate found so far. `_search` walks over the candidates and compares each with the
picks it has not met yet, oldest first, only until it is out of the race; `met` remembers how far it came. The winner
has met all picks, so its value is exact, and every loser has a lower bound above it: the result is that of the plain
algorithm, not an approximation.

What it costs. A candidate near an early pick is out at once, every time, without being read. `lowest` holds the
smallest bound of each group of 16 candidates, so that most groups are passed over with one comparison. Figures are in
papers/ldir/sampling.md.

Sums are taken over 32 lanes in a fixed order, without fused or reordered operations: every machine and every number
of threads gives the same picks. Ties go to the lowest row.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from pellucid.errors import InputError
from pellucid.static.bulk import default_threads
from pellucid.static.kernels import address_of, compiled

LANES = 32  # vectors are padded with zeros to a multiple of it
GROUP = 16  # candidates that share one entry of `SearchState.lowest`

_THREAD_ROWS = 1 << 16  # fewer rows are not worth a second thread
_WIDTH = 8  # lanes of one machine register
_FLOAT = ir.FloatType()
_REGISTER = ir.VectorType(_FLOAT, _WIDTH)


# No fast math: the order of operations is part of the result.
_compiled = partial(compiled, fastmath=False)
_inlined = numba.njit(forceinline=True, nogil=True, error_model="numpy")  # a call with arrays costs as much as a row


@intrinsic
def _as_float(typing: Any, value: Any) -> Any:
    """Return a float32, or the float32 of the bits of a float16; NaN may become infinite."""
    if value == types.float32:
        return types.float32(value), lambda context, builder, signature, arguments: arguments[0]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        bits = builder.zext(arguments[0], word)
        sign = builder.shl(builder.and_(bits, word(0x8000)), word(16))
        rest = builder.shl(builder.and_(bits, word(0x7FFF)), word(13))
        # The exponent's bias is 127 in place of 15; a product mends that for subnormal numbers too.
        size = builder.fmul(builder.bitcast(rest, _FLOAT), ir.Constant(_FLOAT, 2.0**112))
        endless = builder.select(builder.icmp_unsigned(">=", rest, word(0x7C00 << 13)), word(0x7F800000), word(0))
        return builder.bitcast(builder.or_(builder.or_(builder.bitcast(size, word), endless), sign), _FLOAT)

    return types.float32(types.uint16), generate


@intrinsic
def _dot(typing: Any, left: Any, right: Any, right_at: Any, steps: Any) -> Any:
    """Return the product of left[: 32 * steps] and as many numbers of `right` from `right_at` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        index = arguments[2].type
        first = address_of(context, builder, signature.args[0], arguments[0], index(0))
        second = address_of(context, builder, signature.args[1], arguments[1], arguments[2])
        nothing = ir.Constant(_REGISTER, [0.0] * _WIDTH)
        sums = [cgutils.alloca_once(builder, _REGISTER) for _ in range(LANES // _WIDTH)]
        for place in sums:
            builder.store(nothing, place)
        with cgutils.for_range(builder, arguments[3]) as loop:
            base = builder.mul(loop.index, index(LANES))
            for number, place in enumerate(sums):
                at = builder.add(base, index(number * _WIDTH))
                pair = [_load_register(builder, start, at) for start in (first, second)]
                builder.store(builder.fadd(builder.load(place), builder.fmul(*pair)), place)
        a, b, c, d = (builder.load(place) for place in sums)
        return _sum_of_lanes(builder, builder.fadd(builder.fadd(a, b), builder.fadd(c, d)))

    return types.float32(left, right, types.int64, types.int64), generate


def _load_register(builder: Any, start: Any, at: Any) -> Any:
    return builder.load(builder.bitcast(builder.gep(start, [at]), _REGISTER.as_pointer()), align=4)


def _sum_of_lanes(builder: Any, vector: Any) -> Any:
    """Add the upper half of the lanes to the lower until one is left."""
    width = _WIDTH
    while width > 1:
        width //= 2
        lanes = ir.VectorType(ir.IntType(32), width)
        low, high = (lanes([first + lane for lane in range(width)]) for first in (0, width))
        vector = builder.fadd(builder.shuffle_vector(vector, vector, low), builder.shuffle_vector(vector, vector, high))
    return builder.extract_element(vector, ir.IntType(32)(0))


class SearchState(NamedTuple):
    """What is known of each candidate, and the picks so far."""

    inverse: npt.NDArray[np.float32]  # [N] 1 / length, 0 for a row of zeros
    best: npt.NDArray[np.float32]  # [N] greatest similarity to the picks met so far; infinite for what is never picked
    met: npt.NDArray[np.int32]  # [N] how many picks it has been compared with
    lowest: npt.NDArray[np.float32]  # [N / 16] the smallest `best` of each 16 candidates
    picks: npt.NDArray[np.float32]  # [n * padded d] the picked rows as they are


@_inlined
def _read(rows: Any, row: int, vector: Any) -> None:
    """Copy one row into float32; what `vector` has beyond stays 0."""
    for j in range(rows.shape[1]):
        vector[j] = _as_float(rows[row, j])


@_compiled
def _measure(rows: Any, first: int, last: int, inverse: Any, work: Any) -> int:
    """Set 1 / length of rows [first, last); return the first that is not finite or longer than 1e12, or -1."""
    for i in range(first, last):
        _read(rows, i, work)
        square = _dot(work, work, 0, len(work) // LANES)
        if not square < 1e24:
            return i
        inverse[i] = np.float32(0)
        if square > 1e-24:
            inverse[i] = np.float32(1) / np.sqrt(square)
    return -1


@_compiled
def _set_pick(rows: Any, row: int, scales: Any, number: int, state: Any) -> None:
    """Make `row` pick `number`, and never again."""
    inverse, best, _, _, picks = state
    width = len(picks) // len(scales)
    _read(rows, row, picks[number * width : (number + 1) * width])
    scales[number] = inverse[row]
    best[row] = np.inf


@_inlined
def _wins(value: Any, row: int, least: Any, nearest: int) -> bool:
    """Whether a candidate comes before the one found so far: the lower value, then the lower row."""
    return value < least or (value == least and row < nearest)


@_compiled
def _search(rows: Any, first: int, last: int, scales: Any, state: Any, work: Any) -> tuple[float, int, int, int]:
    """Return the best next pick of groups [first, last): similarity, row (N: none), rows read, products computed."""
    inverse, best, met, lowest, picks = state
    steps = len(work) // LANES
    least, nearest = np.float32(np.inf), len(best)
    reads, products = 0, 0
    for group in range(first, last):
        if lowest[group] > least:  # no candidate of the group can win
            continue
        smallest = np.float32(np.inf)
        for i in range(group * GROUP, min(group * GROUP + GROUP, len(best))):
            value = best[i]
            if _wins(value, i, least, nearest):
                _read(rows, i, work)
                number = met[i]  # this and later picks are new to the candidate
                reads += 1
                products -= number
                while number < len(scales) and _wins(value, i, least, nearest):
                    # The order of the factors is part of the result: the last digit decides between near-equals.
                    value = max(value, _dot(work, picks, number * len(work), steps) * scales[number] * inverse[i])
                    number += 1
                products += number
                best[i], met[i] = value, number  # exact if all picks were met, else still a lower bound
                if _wins(value, i, least, nearest):  # only after meeting all picks
                    least, nearest = value, i
            smallest = min(smallest, value)
        lowest[group] = smallest
    return least, nearest, reads, products


class Search:
    """Drives the compiled search: memory, threads and the picks so far."""

    def __init__(self, rows: npt.NDArray[Any], n: int) -> None:
        """Take rows [N, d], float32 or uint16 that hold the bits of float16, to pick `n` of."""
        self._rows = rows
        count, width = len(rows), -(-rows.shape[1] // LANES) * LANES
        groups = -(-count // GROUP)
        threads = min(default_threads(), max(1, count // _THREAD_ROWS))
        edges = np.linspace(0, groups, threads + 1).astype(int).tolist()
        self._parts = [(part, np.zeros(width, np.float32)) for part in pairwise(edges)]  # groups; memory of a thread
        self._threads = ThreadPoolExecutor(threads)
        self._scales = np.zeros(n, np.float32)  # 1 / length of each pick
        self.state = SearchState(
            inverse=np.zeros(count, np.float32),
            best=np.full(count, -np.inf, np.float32),
            met=np.zeros(count, np.int32),
            lowest=np.full(groups, -np.inf, np.float32),
            picks=np.zeros(n * width, np.float32),
        )
        self.picks: list[int] = []
        self.reads = self.products = 0  # rows read and similarities computed by `farthest`, for the benchmark

    def __enter__(self) -> Search:
        """Return it; the threads end with the block."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the threads."""
        self._threads.shutdown()

    def measure(self) -> int | None:
        """Find the rows' lengths, which must come first; return the first row that has none, or None."""

        def lengths(part: tuple[int, int], work: npt.NDArray[np.float32]) -> int:
            first, last = (min(group * GROUP, len(self._rows)) for group in part)
            return int(_measure(self._rows, first, last, self.state.inverse, work))

        broken = [row for row in self._each(lengths) if row >= 0]
        self.state.best[self.state.inverse == 0] = np.inf
        return min(broken, default=None)

    def take(self, row: int) -> None:
        """Make `row` the next pick."""
        if not 0 <= row < len(self._rows) or len(self.picks) >= len(self._scales):
            raise InputError(
                f"row {row} cannot be pick {len(self.picks) + 1}: there are {len(self._rows)} rows, and "
                f"{len(self._scales)} picks were asked for"
            )
        _set_pick(self._rows, row, self._scales, len(self.picks), tuple(self.state))
        self.picks.append(row)

    def farthest(self) -> int:
        """Return the row whose greatest similarity to the picks is the smallest."""
        scales, state = self._scales[: len(self.picks)], tuple(self.state)  # numba takes 0.1 ms to see a named tuple

        def search(part: tuple[int, int], work: npt.NDArray[np.float32]) -> Any:
            return _search(self._rows, *part, scales, state, work)

        found = self._each(search)
        self.reads += sum(reads for _, _, reads, _ in found)
        self.products += sum(products for *_, products in found)
        return int(min(found)[1])

    def _each(self, function: Any) -> list[Any]:
        """Return what `function` gives for each part, found at the same time."""
        if len(self._parts) == 1:  # handing work to a thread takes as long as many a search
            return [function(*self._parts[0])]
        return list(self._threads.map(function, *zip(*self._parts)))
