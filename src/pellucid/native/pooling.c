/* From the rows of words to embeddings, dense or sparse.

   A table of 100,000 words fits no cache, so that the time goes into waiting for memory. Two things help: a row is
   requested (prefetched) AHEAD words before it is added, and the sums of 64 dimensions stay in vector registers from
   the first word of a text to the last. Sums are taken in a fixed order: every processor level gives the same bits. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "rows.h"

enum {
    AHEAD = 12,  /* words; far enough for a row to arrive from memory, near enough for it to be in the cache still */
    PART = 256,  /* words; float32 sums of more would lose digits, and 16-bit sums of more overflow */
    WIDE = 64,   /* dimensions that are summed together */
    WHOLE = 128, /* the same, for whole numbers of 16 bits */
    LINE = 64,   /* bytes of a cache line */
};

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* A static model's table. */
struct table {
    const void *vectors; /* [words, dimension] */
    const float *scales; /* [words] what a row of INT8, INT8_EVEN or INT4 is multiplied by */
    int64_t kind, words, dimension;
};

/* Eight numbers from memory as float32. */
static inline float8 load_octets(const int8_t *at)
{
#ifdef __AVX2__
    return (float8)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)at)));
#else
    return (float8){at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]};
#endif
}

/* Eight bytes from memory, without a sign. */
static inline int8x32 load_bytes(const uint8_t *at)
{
#ifdef __AVX2__
    return (int8x32)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)at));
#else
    return (int8x32){at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]};
#endif
}

static inline float8 from_nibbles(int8x32 numbers)
{
    return __builtin_convertvector(numbers - NIBBLE_ZERO, float8);
}

static inline short16 load_shorts(const int8_t *at)
{
#ifdef __AVX2__
    return (short16)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)at));
#else
    return __builtin_convertvector(*(const octet16 *)at, short16);
#endif
}

static inline float8 load_halves(const uint16_t *at) { return from_half(*(const half8 *)at); }

static inline float8 load_floats(const float *at) { return *(const float8 *)at; }

/* Request a row of `size` bytes, from its first cache line to its last, and its scale. */
ALWAYS_INLINE void request(const struct table *table, int64_t row, int64_t size)
{
    const char *start = (const char *)table->vectors + row * size;
    int64_t byte = 0;
    for (; byte + 4 * LINE <= size; byte += 4 * LINE) { /* by hand: GCC keeps the loop */
        __builtin_prefetch(start + byte);
        __builtin_prefetch(start + byte + LINE);
        __builtin_prefetch(start + byte + 2 * LINE);
        __builtin_prefetch(start + byte + 3 * LINE);
    }
    for (; byte < size; byte += LINE)
        __builtin_prefetch(start + byte);
    __builtin_prefetch(start + size - 1);
    if (table->scales)
        __builtin_prefetch(table->scales + row);
}

/* Define a function that sets the columns of `total` from `column` on to the sum of the vectors of rows[first:last], as
   many as eight registers hold: these stay there for the whole loop over the words. */
#define SUM_COLUMNS(NAME, VECTOR, LANES, TYPE, LOAD, TIMES, STORE)                                                     \
    ALWAYS_INLINE void NAME(const struct table *table, const int32_t *rows, int64_t first, int64_t last,               \
                            int64_t column, float *total)                                                              \
    {                                                                                                                  \
        const TYPE *start = (const TYPE *)table->vectors + column;                                                     \
        size_t dimension = (size_t)table->dimension;                                                                   \
        const float *scales = table->scales;                                                                           \
        (void)scales;                                                                                                  \
        VECTOR a = {0}, b = {0}, c = {0}, d = {0}, e = {0}, f = {0}, g = {0}, h = {0};                                  \
        for (int64_t word = first; word < last; word++) {                                                              \
            const TYPE *row = start + (size_t)rows[word] * dimension;                                                  \
            a += LOAD(row) TIMES;                                                                                      \
            b += LOAD(row + LANES) TIMES;                                                                              \
            c += LOAD(row + 2 * LANES) TIMES;                                                                          \
            d += LOAD(row + 3 * LANES) TIMES;                                                                          \
            e += LOAD(row + 4 * LANES) TIMES;                                                                          \
            f += LOAD(row + 5 * LANES) TIMES;                                                                          \
            g += LOAD(row + 6 * LANES) TIMES;                                                                          \
            h += LOAD(row + 7 * LANES) TIMES;                                                                          \
        }                                                                                                              \
        STORE(VECTOR, LANES)                                                                                           \
    }

/* Sums of float32 go from their registers to memory one by one: in an array they would be in memory in the loop, too. */
#define STORE_FLOATS(VECTOR, LANES)                                                                                    \
    VECTOR *target = (VECTOR *)(total + column);                                                                       \
    target[0] = a, target[1] = b, target[2] = c, target[3] = d;                                                        \
    target[4] = e, target[5] = f, target[6] = g, target[7] = h;

#define STORE_SHORTS(VECTOR, LANES)                                                                                    \
    VECTOR sums[] = {a, b, c, d, e, f, g, h};                                                                          \
    for (int64_t j = 0; j < 8 * LANES; j++)                                                                            \
        total[column + j] = (float)((const int16_t *)sums)[j];

SUM_COLUMNS(sum_octets, float8, 8, int8_t, load_octets, *scales[rows[word]], STORE_FLOATS)
SUM_COLUMNS(sum_halves, float8, 8, uint16_t, load_halves, , STORE_FLOATS)
SUM_COLUMNS(sum_floats, float8, 8, float, load_floats, , STORE_FLOATS)
/* Whole numbers with one scale, before they are multiplied by it: the sums are exact, at a quarter of the work. */
SUM_COLUMNS(sum_whole, short16, 16, int8_t, load_shorts, , STORE_SHORTS)

#ifdef __AVX512BW__
typedef float float16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int16_t short32 __attribute__((vector_size(64), may_alias));

static inline float16 load_octets16(const int8_t *at)
{
    return (float16)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)at)));
}

static inline short32 load_shorts32(const int8_t *at)
{
    return (short32)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)at));
}

SUM_COLUMNS(sum_octets16, float16, 16, int8_t, load_octets16, *scales[rows[word]], STORE_FLOATS)
SUM_COLUMNS(sum_whole32, short32, 32, int8_t, load_shorts32, , STORE_SHORTS)
#endif

/* The same for twice as many columns of 8 bits, where registers are of 64 bytes. */
static inline void sum_doubled(const struct table *table, const int32_t *rows, int64_t first, int64_t last,
                               int64_t column, float *total)
{
#ifdef __AVX512BW__
    if (table->kind == INT8)
        sum_octets16(table, rows, first, last, column, total);
    else
        sum_whole32(table, rows, first, last, column, total);
#endif
}

/* The same for 64 columns of 4 bits, of which those of even number are the lower halves of bytes. */
ALWAYS_INLINE void sum_nibbles(const struct table *table, const int32_t *rows, int64_t first, int64_t last,
                               int64_t column, float *total)
{
    const uint8_t *start = (const uint8_t *)table->vectors + column / 2;
    size_t size = (size_t)row_bytes(INT4, table->dimension);
    float8 a = {0}, b = {0}, c = {0}, d = {0}, e = {0}, f = {0}, g = {0}, h = {0};
    for (int64_t word = first; word < last; word++) {
        const uint8_t *row = start + (size_t)rows[word] * size;
        float scale = table->scales[rows[word]];
        int8x32 one = load_bytes(row), two = load_bytes(row + 8);
        int8x32 three = load_bytes(row + 16), four = load_bytes(row + 24);
        a += from_nibbles(one & 15) * scale;
        b += from_nibbles(one >> 4) * scale;
        c += from_nibbles(two & 15) * scale;
        d += from_nibbles(two >> 4) * scale;
        e += from_nibbles(three & 15) * scale;
        f += from_nibbles(three >> 4) * scale;
        g += from_nibbles(four & 15) * scale;
        h += from_nibbles(four >> 4) * scale;
    }
    float8 even[] = {a, c, e, g}, odd[] = {b, d, f, h};
    const float *evens = (const float *)even, *odds = (const float *)odd;
    for (int64_t j = 0; j < WIDE / 2; j++) {
        total[column + 2 * j] = evens[j];
        total[column + 2 * j + 1] = odds[j];
    }
}

static inline float number_at(const struct table *table, int64_t row, int64_t column)
{
    size_t at = (size_t)row * (size_t)table->dimension + (size_t)column;
    if (table->kind == INT4) {
        int both = ((const uint8_t *)table->vectors)[row * row_bytes(INT4, table->dimension) + column / 2];
        return (float)((column % 2 ? both >> 4 : both & 15) - NIBBLE_ZERO) * table->scales[row];
    }
    if (table->kind == INT8 || table->kind == INT8_EVEN)
        return (float)((const int8_t *)table->vectors)[at] * table->scales[row];
    if (table->kind == FLOAT32)
        return ((const float *)table->vectors)[at];
    half8 one = {((const uint16_t *)table->vectors)[at]};
    return from_half(one)[0];
}

/* Whether sums are whole numbers, which are multiplied by the scale at last. */
static inline bool is_whole(const struct table *table)
{
    return table->kind == INT8_EVEN && table->dimension >= WHOLE;
}

/* Set `total` to the sum of the vectors of rows[first:last]; of whole numbers without the scale. */
static void sum_rows(const struct table *table, const int32_t *rows, int64_t first, int64_t last, float *total)
{
    bool whole = is_whole(table);
    int64_t dimension = table->dimension, wide = whole ? WHOLE : WIDE;
    if (table->kind == INT4)
        dimension += dimension % 2; /* the last half byte of an odd row is a zero */
    if (dimension < WIDE) {
        for (int64_t column = 0; column < dimension; column++) {
            float sum = 0;
            for (int64_t word = first; word < last; word++)
                sum += number_at(table, rows[word], column);
            total[column] = sum;
        }
        return;
    }
#ifdef __AVX512BW__
    bool doubled = dimension >= 2 * wide && (table->kind == INT8 || whole);
#else
    bool doubled = false;
#endif
    wide <<= doubled;
    for (int64_t column = 0;;) {
        if (doubled)
            sum_doubled(table, rows, first, last, column, total);
        else if (whole)
            sum_whole(table, rows, first, last, column, total);
        else if (table->kind == INT4)
            sum_nibbles(table, rows, first, last, column, total);
        else if (table->kind == INT8 || table->kind == INT8_EVEN)
            sum_octets(table, rows, first, last, column, total);
        else if (table->kind == FLOAT16)
            sum_halves(table, rows, first, last, column, total);
        else
            sum_floats(table, rows, first, last, column, total);
        column += wide;
        if (column >= dimension)
            break;
        if (column + wide > dimension)
            column = dimension - wide;
    }
}

/* Set `total` to the sum of the vectors of any number of rows[first:last]; `exact` is memory. */
static void add_up(const struct table *table, const int32_t *rows, int64_t first, int64_t last, float *total,
                   double *exact)
{
    int64_t dimension = table->dimension;
    if (last <= first + PART) {
        sum_rows(table, rows, first, last, total);
    } else {
        memset(exact, 0, (size_t)dimension * sizeof *exact);
        for (int64_t start = first; start < last; start += PART) {
            sum_rows(table, rows, start, start + PART < last ? start + PART : last, total);
            for (int64_t j = 0; j < dimension; j++)
                exact[j] += total[j];
        }
        for (int64_t j = 0; j < dimension; j++)
            total[j] = (float)exact[j];
    }
    for (int64_t j = 0; j < dimension && is_whole(table); j++)
        total[j] *= table->scales[0];
}

/* Return the product of two vectors, in a fixed order. */
static inline float product(const float *one, const float *other, int64_t dimension)
{
    float8 a = {0}, b = {0};
    int64_t j = 0;
    for (; j + 16 <= dimension; j += 16) {
        a += load_floats(one + j) * load_floats(other + j);
        b += load_floats(one + j + 8) * load_floats(other + j + 8);
    }
    a += b;
    float sum = ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
    for (; j < dimension; j++)
        sum += one[j] * other[j];
    return sum;
}

/* Return the length of a sum. */
static double length_of(const float *total, int64_t dimension)
{
    double square = product(total, total, dimension);
    if (!(1e-30 < square && square < 1e30)) { /* beyond what float32 can square */
        square = 0;
        for (int64_t j = 0; j < dimension; j++)
            square += (double)total[j] * (double)total[j];
    }
    return sqrt(square);
}

/* Set out[i] to the L2-normalised sum of the vectors of text i's known words, those before ends[i]; return the first row
   that is beyond the table and `spelled`, or -1.

   A sum has the direction of the mean, so nothing is divided by the number of words. Row `words + i` of the table is
   spelled[i]. `rows` [words of all texts + AHEAD] lose the unknown ones; `total` [dimension rounded up to 16], `exact`
   and `beyond` [dimension] are memory. */
EXPORT int64_t pooling_pool(const struct table *table, int32_t *rows, const int32_t *ends, int64_t texts,
                            const float *spelled, int64_t spelled_rows, float *total, double *exact, double *beyond,
                            float *out)
{
    int64_t dimension = table->dimension, first = 0, size = row_bytes(table->kind, dimension), limit = table->words + spelled_rows;
    for (int64_t text = 0; text < texts; text++) {
        int64_t known = first;
        bool more = false;
        for (int64_t word = first; word < ends[text]; word++) { /* the known words move to the front of the text */
            int64_t row = rows[word], soon = rows[word + AHEAD];
            if ((uint64_t)soon < (uint64_t)table->words)
                request(table, soon, size);
            if (row >= limit)
                return row;
            if (row >= table->words) {
                const float *vector = spelled + (row - table->words) * dimension;
                if (!more)
                    memset(beyond, 0, (size_t)dimension * sizeof *beyond);
                for (int64_t j = 0; j < dimension; j++)
                    beyond[j] += vector[j];
                more = true;
            } else if (row >= 0) {
                rows[known++] = (int32_t)row;
            }
        }
        add_up(table, rows, first, known, total, exact);
        for (int64_t j = 0; j < dimension && more; j++)
            total[j] = (float)(total[j] + beyond[j]);
        double length = length_of(total, dimension);
        float factor = length > 0 ? (float)(1 / length) : 0;
        for (int64_t j = 0; j < dimension; j++)
            out[text * dimension + j] = total[j] * factor;
        first = ends[text];
    }
    return -1;
}

/* Set out[i, k] to the product of asked[k] and the vector of distinct[i], lengths[i] to the length of the sum of text
   i's words: `rows` are known ones, those of text i before ends[i]. `total` and `exact` are memory, as above. */
EXPORT void pooling_products(const struct table *table, const int32_t *distinct, int64_t words, const int32_t *rows,
                             const int64_t *ends, int64_t texts, const float *asked, int64_t others, float *total,
                             double *exact, double *out, double *lengths)
{
    int64_t dimension = table->dimension, size = row_bytes(table->kind, dimension);
    for (int64_t word = 0; word < words; word++) {
        if (word + AHEAD < words)
            request(table, distinct[word + AHEAD], size);
        add_up(table, distinct, word, word + 1, total, exact);
        for (int64_t other = 0; other < others; other++)
            out[word * others + other] = product(total, asked + other * dimension, dimension);
    }
    int64_t first = 0;
    for (int64_t text = 0; text < texts; text++) {
        add_up(table, rows, first, ends[text], total, exact);
        lengths[text] = length_of(total, dimension);
        first = ends[text];
    }
}

typedef double double4 __attribute__((vector_size(32), aligned(8), may_alias));

static inline double4 load_doubles(const double *at) { return *(const double4 *)at; }

/* Return the sum of the products of two vectors, of which the odd and even fours were summed apart. */
static inline double joined(double4 even, double4 odd)
{
    even += odd;
    return (even[0] + even[2]) + (even[1] + even[3]);
}

/* Return the product of two vectors whose length is a multiple of 8, in a fixed order. */
static inline double exact_product(const double *one, const double *other, int64_t length)
{
    double4 even = {0}, odd = {0};
    for (int64_t j = 0; j < length; j += 8) {
        even += load_doubles(one + j) * load_doubles(other + j);
        odd += load_doubles(one + j + 4) * load_doubles(other + j + 4);
    }
    return joined(even, odd);
}

/* Set out[i * step] to the product of row i and a vector. Four rows at a time: a number is loaded once for all four. */
static void exact_products(const double *rows, int64_t count, const double *vector, int64_t length, double *out,
                           int64_t step)
{
    int64_t row = 0;
    for (; row + 4 <= count; row += 4) {
        const double *one = rows + row * length, *two = one + length, *three = two + length, *four = three + length;
        double4 a = {0}, b = {0}, c = {0}, d = {0}, e = {0}, f = {0}, g = {0}, h = {0};
        for (int64_t j = 0; j < length; j += 8) {
            double4 even = load_doubles(vector + j), odd = load_doubles(vector + j + 4);
            a += load_doubles(one + j) * even;
            b += load_doubles(one + j + 4) * odd;
            c += load_doubles(two + j) * even;
            d += load_doubles(two + j + 4) * odd;
            e += load_doubles(three + j) * even;
            f += load_doubles(three + j + 4) * odd;
            g += load_doubles(four + j) * even;
            h += load_doubles(four + j + 4) * odd;
        }
        double *target = out + row * step;
        target[0] = joined(a, b);
        target[step] = joined(c, d);
        target[2 * step] = joined(e, f);
        target[3 * step] = joined(g, h);
    }
    for (; row < count; row++)
        out[row * step] = exact_product(rows + row * length, vector, length);
}

/* Set out[i, j] to what word i of one text and word j of another add to the cosine of the texts.

   The vectors of the `first` words of one text come before those of the `second` words of the other; `counts` says how
   often each stands in its text. `memory` is zeros: [first + 3] times the dimension rounded up to a multiple of 8. */
EXPORT void pooling_pairs(const float *vectors, const double *counts, int64_t first, int64_t second, int64_t dimension,
                          double *memory, double *out, double *lengths)
{
    int64_t padded = (dimension + 7) / 8 * 8;
    double *last = memory + first * padded, *totals = last + padded;
    for (int64_t word = 0; word < first + second; word++, vectors += dimension) {
        double *vector = word < first ? memory + word * padded : last, *total = word < first ? totals : totals + padded;
        for (int64_t j = 0; j < dimension; j++) {
            vector[j] = vectors[j];
            total[j] += counts[word] * vector[j];
        }
        if (word >= first)
            exact_products(memory, first, vector, padded, out + word - first, second);
    }
    for (int64_t text = 0; text < 2; text++) {
        double *total = totals + text * padded;
        lengths[text] = sqrt(exact_product(total, total, padded));
    }
    double by = lengths[0] > 0 ? lengths[0] : 1, across = lengths[1] > 0 ? lengths[1] : 1;
    for (int64_t i = 0; i < first; i++)
        for (int64_t j = 0; j < second; j++)
            out[i * second + j] *= (counts[i] / by) * (counts[first + j] / across);
}

/* A static lexicon model's table: the entries of word w are those from starts[w] to starts[w + 1]; column columns[e] of
   its row is scales[w] * weights[e], which is above 0. */
struct sparse_table {
    const int32_t *starts;   /* [words + 1] */
    const int16_t *columns;  /* [entries] */
    const uint8_t *weights;  /* [entries] */
    const float *scales;     /* [words] */
    int64_t words, dimension;
};

/* Write the L2-normalised log(1 + sum) of the sparse rows of each text's known words as CSR; return how many numbers,
   or -1 where a row or column is outside the table or more than `room` numbers come out.

   The columns may be of a file that changes while it is mapped; the starts may not. `rows` [words of all texts + AHEAD]
   are -1 for an unknown word. `sums` [dimension], all 0, and `used` [dimension / 64 rounded up], the same, are memory:
   a bit for each column, so that columns come out in order. */
EXPORT int64_t pooling_pool_sparse(const struct sparse_table *table, const int32_t *rows, const int32_t *ends,
                                   int64_t texts, double *sums, uint64_t *used, int64_t room, int64_t *out_starts,
                                   int32_t *out_columns, float *values)
{
    int64_t first = 0, place = 0, dimension = table->dimension, chunks = (dimension + 63) / 64;
    out_starts[0] = 0;
    for (int64_t text = 0; text < texts; text++) {
        for (int64_t word = first; word < ends[text]; word++) {
            int64_t row = rows[word], soon = rows[word + AHEAD];
            if ((uint64_t)soon < (uint64_t)table->words) {
                __builtin_prefetch(table->columns + table->starts[soon]);
                __builtin_prefetch(table->weights + table->starts[soon]);
            }
            if (row < 0)
                continue;
            if (row >= table->words)
                return -1;
            double scale = (double)table->scales[row];
            for (int64_t entry = table->starts[row], last = table->starts[row + 1]; entry < last; entry++) {
                int64_t column = READ_ONCE(table->columns[entry]);
                if ((uint64_t)column >= (uint64_t)dimension)
                    return -1;
                sums[column] += scale * (double)table->weights[entry];
                used[column >> 6] |= UINT64_C(1) << (column & 63);
            }
        }
        first = ends[text];
        int64_t begin = place;
        double square = 0;
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            for (uint64_t bits = used[chunk]; bits; bits &= bits - 1) {
                int64_t column = chunk * 64 + __builtin_ctzll(bits);
                double value = log1p(sums[column]);
                sums[column] = 0;
                if (value > 0) {
                    if (place == room)
                        return -1;
                    out_columns[place++] = (int32_t)column;
                    sums[column] = value; /* rounded to float32 once, like the plain path: after the division */
                    square += value * value;
                }
            }
            used[chunk] = 0;
        }
        double length = sqrt(square);
        for (int64_t number = begin; number < place; number++) {
            values[number] = (float)(sums[out_columns[number]] / length);
            sums[out_columns[number]] = 0;
        }
        out_starts[text + 1] = place;
    }
    return place;
}
