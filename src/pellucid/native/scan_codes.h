/* For scan.c: rows in 8 bits, a vector of the query in whole numbers, and their products, which are the same on every
   processor. */

#ifndef PELLUCID_SCAN_CODES_H
#define PELLUCID_SCAN_CODES_H

#include <math.h>

#include "rows.h"

#if defined __AVX2__ && !defined __F16C__
#include <immintrin.h>
#endif

enum {
    MAX_CODE = 136,     /* of a row, without its sign */
    CODE_ZERO = 136,    /* what is added to a code, for two numbers of 4 bits without a sign */
    MAX_QUERY = 16319,  /* 127 * 128 + 63: two numbers of 8 bits, which VNNI takes */
};

#define SLACK 1e-12      /* the relative error of a few sums in double precision */

/* A dense part of the passages of a segment.

   Row i is scales[i] times its codes, up to a vector of length errors[i]. Code j is 16 * high + low - CODE_ZERO, where
   high and low are numbers of 4 bits: of byte j of a row the lower ones, and the higher ones for code `half` + j. */
struct scan_part {
    const uint8_t *high, *low;    /* [passages, half], or none: then the rows are read */
    const float *scales, *errors; /* [passages] */
    const float *rows;            /* [passages, dimension] */
    float *sides;                 /* [passages, 2] scales[i] once more, and how far the high bits are from the row */
    int64_t dimension;
    double longest;               /* no row, and none that its codes or their high bits stand for, is longer */
};

static inline int64_t half_of(int64_t dimension)
{
    return (dimension + 1) / 2;
}

/* A vector of the query in whole numbers: `step` times these, up to a vector of length `error`. */
struct whole {
    int8_t *large, *small;  /* [2, padded] number j is 128 * large + small; the second row has those from the half on */
    int64_t padded;         /* the half, rounded up to 64; there are zeros */
    int32_t sum, large_sum;
    double step, error, length;  /* the last is that of the vector */
    double large_error;     /* how far 128 * large alone are from the vector */
    double greatest;        /* that a row's product can be */
};

enum { WHOLE = 128 };
_Static_assert(sizeof(struct whole) <= WHOLE, "the memory of a whole vector");

static void make_whole(const float *vector, int64_t dimension, struct whole *whole, char *memory)
{
    int64_t half = half_of(dimension), limit = INT32_MAX / (MAX_CODE * dimension);
    whole->padded = (half + 63) / 64 * 64;
    whole->large = (int8_t *)memory;
    whole->small = whole->large + 2 * whole->padded;
    memset(memory, 0, (size_t)(4 * whole->padded));
    double largest = 0, square = 0, lost = 0, large_lost = 0;
    for (int64_t j = 0; j < dimension; j++) {
        double size = fabs((double)vector[j]);
        largest = size > largest ? size : largest;
        square += size * size;
    }
    limit = limit < MAX_QUERY ? limit : MAX_QUERY;
    whole->step = largest > 0 ? largest / (double)limit : 1;
    whole->sum = whole->large_sum = 0;
    for (int64_t j = 0; j < dimension; j++) {
        int64_t place = j < half ? j : whole->padded + j - half;
        int32_t number = (int32_t)lrint(vector[j] / whole->step), large = (number + 64) >> 7;
        double rest = vector[j] - whole->step * number, large_rest = vector[j] - whole->step * 128 * large;
        whole->large[place] = (int8_t)large;
        whole->small[place] = (int8_t)(number - 128 * large);
        whole->sum += number;
        whole->large_sum += large;
        lost += rest * rest;
        large_lost += large_rest * large_rest;
    }
    whole->length = sqrt(square) * (1 + SLACK);
    whole->error = sqrt(lost) * (1 + SLACK);
    whole->large_error = sqrt(large_lost) * (1 + SLACK);
}

#if defined __AVX2__
/* Return eight sums of the products of numbers of 4 bits without a sign, two in each of 32 bytes, and of 8 with one. */
static inline __m256i pair_products(const uint8_t *bits, const int8_t *numbers, int64_t padded)
{
    const __m256i lower = _mm256_set1_epi8(15), pairs = _mm256_loadu_si256((const __m256i *)bits);
    const __m256i *others = (const __m256i *)(numbers + padded);
    __m256i first = _mm256_and_si256(pairs, lower), second = _mm256_and_si256(_mm256_srli_epi16(pairs, 4), lower);
    first = _mm256_maddubs_epi16(first, _mm256_loadu_si256((const __m256i *)numbers)); /* below 2 ** 12 */
    second = _mm256_maddubs_epi16(second, _mm256_loadu_si256(others));
    return _mm256_madd_epi16(_mm256_add_epi16(first, second), _mm256_set1_epi16(1));
}
#endif

/* Return the product of the 4 bits of a row, without a sign, and of the large or the small numbers of a whole vector.

   It is exact, and fits into 32 bits. */
static inline int32_t bits_product(const uint8_t *bits, const int8_t *numbers, int64_t half, int64_t padded)
{
    int64_t j = 0;
#if defined __AVX512VNNI__
    const __m512i lower = _mm512_set1_epi8(15);
    __m512i first = _mm512_setzero_si512(), second = first;
    for (; j < half; j += 64) {
        __mmask64 present = half - j < 64 ? (UINT64_C(1) << (half - j)) - 1 : UINT64_MAX;
        __m512i pairs = _mm512_maskz_loadu_epi8(present, bits + j);
        first = _mm512_dpbusd_epi32(first, _mm512_and_si512(pairs, lower), _mm512_loadu_si512(numbers + j));
        pairs = _mm512_and_si512(_mm512_srli_epi16(pairs, 4), lower);
        second = _mm512_dpbusd_epi32(second, pairs, _mm512_loadu_si512(numbers + padded + j));
    }
    return _mm512_reduce_add_epi32(_mm512_add_epi32(first, second));
#elif defined __AVX2__
    __m256i sum = _mm256_setzero_si256();
    for (; j + 32 <= half; j += 32)
        sum = _mm256_add_epi32(sum, pair_products(bits + j, numbers + j, padded));
    if (j < half) {
        uint8_t last[32] = {0};
        memcpy(last, bits + j, (size_t)(half - j));
        sum = _mm256_add_epi32(sum, pair_products(last, numbers + j, padded));
    }
    int32_t sums[8], total = 0;
    _mm256_storeu_si256((__m256i *)sums, sum);
    for (int lane = 0; lane < 8; lane++)
        total += sums[lane];
    return total;
#else
    int32_t total = 0;
    while (j + 16 <= half) {
        short16 sums = {0}; /* of 8 pairs of products, below 2 ** 15 */
        for (int64_t stop = j + 128; j < stop && j + 16 <= half; j += 16) {
            short16 pairs = __builtin_convertvector(*(const octet16 *)(bits + j), short16);
            sums += (pairs & 15) * __builtin_convertvector(*(const octet16 *)(numbers + j), short16);
            sums += (pairs >> 4 & 15) * __builtin_convertvector(*(const octet16 *)(numbers + padded + j), short16);
        }
        for (int lane = 0; lane < 16; lane++)
            total += sums[lane];
    }
    for (; j < half; j++)
        total += (bits[j] & 15) * numbers[j] + (bits[j] >> 4) * numbers[padded + j];
    return total;
#endif
}

/* Return the product of the high bits of a row and of the large numbers of a whole vector. */
static inline int32_t high_product(const struct scan_part *part, const struct whole *whole, int64_t passage)
{
    int64_t half = half_of(part->dimension);
    return bits_product(part->high + passage * half, whole->large, half, whole->padded);
}

/* Return the product of the codes of a row and of a whole vector. It is exact, and fits into 32 bits. */
static inline int32_t codes_product(const struct scan_part *part, const struct whole *whole, int64_t passage)
{
    int64_t half = half_of(part->dimension), padded = whole->padded;
    const uint8_t *high_bits = part->high + passage * half, *low_bits = part->low + passage * half;
    uint32_t large, small; /* the products of the large and the small numbers; the sum fits, though these may not */
#if defined __AVX512VNNI__
    const __m512i lower = _mm512_set1_epi8(15);
    __m512i larges = _mm512_setzero_si512(), smalls = larges;
    for (int64_t j = 0; j < half; j += 64) {
        __mmask64 present = half - j < 64 ? (UINT64_C(1) << (half - j)) - 1 : UINT64_MAX;
        __m512i high = _mm512_maskz_loadu_epi8(present, high_bits + j);
        __m512i low = _mm512_maskz_loadu_epi8(present, low_bits + j);
        __m512i first = _mm512_or_si512(_mm512_slli_epi16(_mm512_and_si512(high, lower), 4),
                                        _mm512_and_si512(low, lower));
        __m512i second = _mm512_or_si512(_mm512_andnot_si512(lower, high),
                                         _mm512_and_si512(_mm512_srli_epi16(low, 4), lower));
        larges = _mm512_dpbusd_epi32(larges, first, _mm512_loadu_si512(whole->large + j));
        smalls = _mm512_dpbusd_epi32(smalls, first, _mm512_loadu_si512(whole->small + j));
        larges = _mm512_dpbusd_epi32(larges, second, _mm512_loadu_si512(whole->large + padded + j));
        smalls = _mm512_dpbusd_epi32(smalls, second, _mm512_loadu_si512(whole->small + padded + j));
    }
    large = 0;
    small = (uint32_t)_mm512_reduce_add_epi32(_mm512_add_epi32(_mm512_slli_epi32(larges, 7), smalls));
#else
    large = 16 * (uint32_t)bits_product(high_bits, whole->large, half, padded);
    small = 16 * (uint32_t)bits_product(high_bits, whole->small, half, padded);
    large += (uint32_t)bits_product(low_bits, whole->large, half, padded);
    small += (uint32_t)bits_product(low_bits, whole->small, half, padded);
#endif
    return (int32_t)(128 * large + small - (uint32_t)CODE_ZERO * (uint32_t)whole->sum);
}

#endif
