/* What the C files share: how a function is exported, and rows of numbers read as float32. */

#ifndef PELLUCID_ROWS_H
#define PELLUCID_ROWS_H

#include <stdint.h>
#include <string.h>

#ifdef __F16C__
#include <immintrin.h> /* one instruction in place of seven for float16, with the same bits */
#endif

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

/* Read a number once: what was checked is what is used, though another process writes to a file that is mapped. */
#define READ_ONCE(place) (*(const volatile __typeof__(place) *)&(place))

typedef float float8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t int8x32 __attribute__((vector_size(32)));
typedef uint32_t word8 __attribute__((vector_size(32)));
typedef uint16_t half8 __attribute__((vector_size(16), aligned(2), may_alias));

typedef int16_t short16 __attribute__((vector_size(32), may_alias));
typedef int8_t octet16 __attribute__((vector_size(16), aligned(1), may_alias));

/* How a table's numbers are kept: INT8_EVEN is INT8 whose rows have the same scale, INT4 has two numbers a byte. */
enum { FLOAT32, FLOAT16, INT8, INT8_EVEN, INT4 };
enum { NIBBLE_ZERO = 8 }; /* what is added to a number of 4 bits */

/* Return the float32 of the bits of float16. */
static inline float8 from_half(half8 bits)
{
#ifdef __F16C__
    return (float8)_mm256_cvtph_ps((__m128i)bits);
#else
    word8 wide = __builtin_convertvector(bits, word8);
    word8 sign = (wide & 0x8000) << 16, rest = (wide & 0x7FFF) << 13;
    /* The exponent's bias is 127 in place of 15; a product mends that for subnormal numbers too. */
    word8 size = (word8)((float8)rest * 0x1p112f);
    word8 endless = (word8)((int8x32)rest >= (0x7C00 << 13)) & 0x7F800000;
    return (float8)(size | endless | sign);
#endif
}

/* Return the bytes of a row. */
static inline int64_t row_bytes(int64_t kind, int64_t dimension)
{
    switch (kind) {
    case FLOAT32:
        return dimension * 4;
    case FLOAT16:
        return dimension * 2;
    case INT4:
        return (dimension + 1) / 2;
    default:
        return dimension;
    }
}

/* Turn a row of `dimension` numbers into float32 at `row`, which has room for a multiple of eight. */
static inline void read_row(const void *rows, int64_t kind, int64_t number, int64_t dimension, float *row)
{
    const char *start = (const char *)rows + number * row_bytes(kind, dimension);
    size_t at = 0, count = (size_t)dimension;
    if (kind == FLOAT32) {
        memcpy(row, start, count * sizeof(float));
    } else if (kind == INT8 || kind == INT8_EVEN) {
        const int8_t *bytes = (const int8_t *)start;
        for (; at < count; at++)
            row[at] = bytes[at];
    } else if (kind == INT4) {
        const uint8_t *pairs = (const uint8_t *)start;
        for (; at < count; at++)
            row[at] = (float)((at % 2 ? pairs[at / 2] >> 4 : pairs[at / 2] & 15) - NIBBLE_ZERO);
    } else {
        const uint16_t *halves = (const uint16_t *)start;
        for (; at + 8 <= count; at += 8)
            *(float8 *)(row + at) = from_half(*(const half8 *)(halves + at));
        if (at < count) {
            half8 last = {0};
            memcpy(&last, halves + at, (count - at) * sizeof *halves);
            *(float8 *)(row + at) = from_half(last);
        }
    }
}

#endif
