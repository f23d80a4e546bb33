"""The compiled half of bulk encoding, second part: from the rows of words to embeddings, dense or sparse.

`pool` reads one vector a word and adds them up. A table of 100,000 words fits no cache, so that the time goes into
waiting for memory. Two things help: a row is requested (prefetched) `AHEAD` words before it is added, and the sums of
64 dimensions stay in the processor's vector registers from the first word of a text to the last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from pellucid.static.kernels import compiled, inlined, prefetch, row_address, trailing_zeros

_BYTE, _INT32, _INT64, _FLOAT = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()

AHEAD = 12  # words; far enough for a row to arrive from memory, near enough for it to be in the cache still
_PART = 256  # words; float32 sums of more would lose digits


def _floats(builder: Any, values: Any, width: int) -> Any:
    """Turn a vector of int8, of float16 kept as int16, or of float32 into one of float32."""
    floats, integers = ir.VectorType(_FLOAT, width), ir.VectorType(_INT32, width)
    if values.type.element == _FLOAT:
        return values
    if values.type.element == _BYTE:
        return builder.sitofp(values, floats)
    # float16: move sign, exponent and fraction to where float32 has them, then make up for the other exponent bias
    moved = builder.shl(builder.sext(values, integers), ir.Constant(integers, [13] * width))
    moved = builder.and_(moved, ir.Constant(integers, [0x8FFFE000] * width))
    return builder.fmul(builder.bitcast(moved, floats), ir.Constant(floats, [2.0**112] * width), flags=["fast"])


def _spread(builder: Any, value: Any, width: int) -> Any:
    """Return the vector that holds `value` everywhere."""
    nothing = ir.Constant(ir.VectorType(value.type, width), ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_INT32, width), [0] * width))


def _sum_columns(pieces: int, width: int) -> Any:
    """Make the function that adds up `pieces * width` columns of some rows.

    The sums are `pieces` vector registers for the whole loop over the words. A loop in plain numba would load and store
    them for each word, which costs more than the additions.
    """
    floats = ir.VectorType(_FLOAT, width)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors, scales, rows, first, last, column, total = arguments
        kind = signature.args[0]
        stored = ir.VectorType(context.get_value_type(kind.dtype), width).as_pointer()
        row_of = context.make_array(signature.args[2])(context, builder, rows).data
        scale_of = context.make_array(signature.args[1])(context, builder, scales).data
        target = context.make_array(signature.args[6])(context, builder, total).data
        starts = [ir.Constant(_INT64, piece * width) for piece in range(pieces)]
        sums = [cgutils.alloca_once_value(builder, ir.Constant(floats, [0.0] * width)) for _ in starts]
        with cgutils.for_range_slice(builder, first, last, ir.Constant(_INT64, 1)) as (word, _):
            row = builder.sext(builder.load(builder.gep(row_of, [word])), _INT64)
            address = row_address(context, builder, kind, vectors, row, column)
            if kind.dtype == types.int8:
                scale = _spread(builder, builder.load(builder.gep(scale_of, [row])), width)
            for start, piece in zip(starts, sums, strict=True):
                place = builder.bitcast(builder.gep(address, [start]), stored)
                values = _floats(builder, builder.load(place, align=1), width)
                if kind.dtype == types.int8:
                    values = builder.fmul(values, scale, flags=["fast"])
                builder.store(builder.fadd(builder.load(piece), values, flags=["fast"]), piece)
        for start, piece in zip(starts, sums, strict=True):
            place = builder.gep(target, [builder.add(column, start)])
            builder.store(builder.load(piece), builder.bitcast(place, floats.as_pointer()), align=4)
        return context.get_dummy_value()

    @intrinsic
    def sum_columns(
        typing: Any, vectors: Any, scales: Any, rows: Any, first: Any, last: Any, column: Any, total: Any
    ) -> Any:
        """Set the columns of `total` from `column` on to the sum of `vectors[rows[first:last]]` (times `scales`)."""
        place = types.int64
        return types.void(vectors, scales, rows, place, place, place, total), generate

    return sum_columns


_sum_64, _sum_1 = _sum_columns(4, 16), _sum_columns(1, 1)


@inlined
def sum_rows(vectors: Any, scales: Any, rows: Any, first: int, last: int, total: Any) -> None:
    """Set `total` to the sum of the vectors of `rows[first:last]`."""
    dimension = len(total)
    for column in range(0, dimension - 63, 64):
        _sum_64(vectors, scales, rows, first, last, column, total)
    if dimension % 64:
        if dimension > 64:  # the last 64, some of them again
            _sum_64(vectors, scales, rows, first, last, dimension - 64, total)
        else:
            for column in range(dimension):
                _sum_1(vectors, scales, rows, first, last, column, total)


@inlined
def _known(vectors: Any, rows: Any, first: int, last: int) -> int:
    """Move the known words of a text to its front, return where they end; meanwhile prefetch rows needed soon."""
    known = first
    for word in range(first, last):
        for column in range(0, vectors.shape[1], 64):
            prefetch(vectors, np.int64(rows[word + AHEAD]), column)
        row = rows[word]
        rows[known] = row
        known += row >= 0
    return known


@inlined
def _add_spelled(spelled: Any, words: int, rows: Any, first: int, last: int, total: Any) -> bool:
    """Set `total` to the sum of the spelled words of a text and take them out of `rows`; return whether it has any."""
    found = False
    for word in range(first, last):
        place = rows[word] - words
        if place >= 0:
            if not found:
                total[:] = 0
            for j in range(len(total)):
                total[j] += spelled[place, j]
            rows[word] = -1
            found = True
    return found


@inlined
def _square(total: Any) -> Any:
    """Return the squared length."""
    square = np.float32(0)
    for j in range(len(total)):
        square += total[j] * total[j]
    return square


@inlined
def _add_up(vectors: Any, scales: Any, rows: Any, first: int, last: int, total: Any, exact: Any) -> None:
    """Set `total` to the sum of the vectors of any number of `rows[first:last]`."""
    dimension = len(total)
    long = last > first + _PART
    for j in range(dimension if long else 0):
        exact[j] = 0
    for start in range(first, max(last, first + 1), _PART):  # once for most texts, for one without words too
        sum_rows(vectors, scales, rows, start, min(last, start + _PART), total)
        for j in range(dimension if long else 0):
            exact[j] += total[j]
    for j in range(dimension if long else 0):
        total[j] = exact[j]


@inlined
def _length(total: Any) -> Any:
    """Return the length of a sum."""
    square = np.float64(_square(total))
    if not 1e-30 < square < 1e30:  # beyond what float32 can square
        square = 0.0
        for j in range(len(total)):
            square += np.float64(total[j]) * np.float64(total[j])
    return np.sqrt(square)


@compiled
def pool(vectors: Any, scales: Any, rows: Any, ends: Any, spelled: Any, out: Any) -> None:
    """Set `out[i]` to the L2-normalised sum of the vectors of text i's known words, those before `ends[i]`.

    A sum has the direction of the mean, so nothing is divided by the number of words.

    `vectors` is float32, float16 viewed as int16, or int8 [words, dimension]; `scales` float32 [words] for int8 only.
    Row `words + i` is `spelled[i]`, float32.
    """
    dimension = out.shape[1]
    total, exact, beyond = np.empty(dimension, np.float32), np.empty(dimension, np.float64), np.empty(dimension)
    first, words = 0, len(vectors)
    for text in range(len(ends)):
        more = len(spelled) > 0 and _add_spelled(spelled, words, rows, first, np.int64(ends[text]), beyond)
        last = _known(vectors, rows, first, np.int64(ends[text]))
        _add_up(vectors, scales, rows, first, last, total, exact)
        for j in range(dimension if more else 0):
            total[j] += beyond[j]
        length = _length(total)
        first = np.int64(ends[text])
        factor = np.float32(1 / length) if length > 0 else np.float32(0)
        for j in range(dimension):
            out[text, j] = total[j] * factor


@compiled
def pool_sparse(table: Any, rows: Any, ends: Any, sums: Any, out: Any) -> int:
    """Write the L2-normalised log(1 + sum) of the sparse rows of each text's known words; return how many numbers.

    Args:
        table: (starts [words + 1], columns, weights, scales [words]): the entries of word w are those from `starts[w]`
            to `starts[w + 1]`; column `columns[e]` of its row is `scales[w] * weights[e]`, which is above 0.
        rows: of the words of all texts, -1 for an unknown one.
        ends: where each text's words end among them.
        sums: float64 [dimension], all 0, and left so.
        out: (starts [texts + 1], columns, values) of the CSR rows, with room for them.
    """
    starts, columns, weights, scales = table
    columns_2d, weights_2d = columns.reshape(-1, 1), weights.reshape(-1, 1)
    out_starts, out_columns, values = out
    used = np.zeros((len(sums) + 63) // 64, np.int64)  # a bit for each column, so that columns come out in order
    first, place = 0, 0
    out_starts[0] = 0
    for text in range(len(ends)):
        for word in range(first, np.int64(ends[text])):
            row, soon = np.int64(rows[word]), np.int64(rows[word + AHEAD])
            if soon >= 0:
                prefetch(columns_2d, np.int64(starts[soon]), 0)
                prefetch(weights_2d, np.int64(starts[soon]), 0)
            if row < 0:
                continue
            for entry in range(starts[row], starts[row + 1]):
                column = np.int64(columns[entry])
                sums[column] += scales[row] * np.float64(weights[entry])
                used[column >> 6] |= np.int64(1) << (column & 63)
        first = np.int64(ends[text])
        begin, square = place, 0.0
        for chunk in range(len(used)):
            bits = used[chunk]
            used[chunk] = 0
            while bits != 0:
                column = chunk * 64 + trailing_zeros(bits)
                bits &= bits - 1
                total, sums[column] = sums[column], 0
                if total > 0:
                    value = np.log1p(total)
                    out_columns[place], values[place] = column, value
                    square += value * value
                    place += 1
        length = np.sqrt(square)
        for number in range(begin, place):
            values[number] = np.float32(values[number] / length)
        out_starts[text + 1] = place
    return place


@compiled
def products(
    vectors: Any, scales: Any, distinct: Any, rows: Any, ends: Any, asked: Any, out: Any, lengths: Any
) -> None:
    """Set `out[i, k]` to the product of `asked[k]` and the vector of `distinct[i]`, `lengths[i]` to text i's length.

    That is the length of the sum of its words: `rows` are known ones, those of text i before `ends[i]`. `vectors` and
    `scales` are as in `pool`; `asked` is float32 [others, dimension].
    """
    total, exact = np.empty(asked.shape[1], np.float32), np.empty(asked.shape[1], np.float64)
    last = len(distinct) - 1
    for word in range(len(distinct)):
        for column in range(0, vectors.shape[1], 64):
            prefetch(vectors, np.int64(distinct[min(word + AHEAD, last)]), column)
        sum_rows(vectors, scales, distinct, word, word + 1, total)
        for other in range(len(asked)):
            product = np.float32(0)
            for j in range(len(total)):
                product += total[j] * asked[other, j]
            out[word, other] = product
    first = 0
    for text in range(len(ends)):
        _add_up(vectors, scales, rows, first, np.int64(ends[text]), total, exact)
        lengths[text] = _length(total)
        first = np.int64(ends[text])
