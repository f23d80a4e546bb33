/* The best passages of a segment: what index/search.py asks of each segment, and what it multiplies exactly then.

   A score is a sum of parts. BM25 and sparse parts are computed as Python does, to the last bit. A dense part is read in
   8 bits, as whole numbers that every processor adds up to the same, and is known up to a bound of the error. A passage
   whose highest possible score is below the k-th best of the lowest possible ones cannot be among the k best; the others
   are candidates. A passage that its other parts leave below that, even with the greatest product a row can have, is not
   read at all; of others first the head is read, then as many numbers more, and the product of the rest is at most that of
   the lengths.

   1. scan_longest measures the rows of a dense part, once for each segment.
   2. scan_segment adds up BM25, looks at the passages that are best by it, and then at all that may be better. */

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "rows.h"

#if defined __AVX2__ && !defined __F16C__
#include <immintrin.h>
#endif

enum {
    BLOCK = 4096,       /* passages whose BM25 is added up together, in the first-level cache */
    MAX_LENGTH = 1024,  /* terms of a passage; what depends on the length of shorter ones is computed once */
    BATCH = 32,         /* passages whose rows are requested before they are read */
    STEP = 16,          /* passages whose BM25 is compared together; BATCH is a multiple */
    MAX_CODE = 128,     /* of a row */
    MAX_QUERY = 16319,  /* 127 * 128 + 63: two numbers of 8 bits, which VNNI takes */
    HEAD = 64,          /* first numbers of a row that are read before the others, and then that many more */
    STAGES = 2,         /* of such readings */
    OUTSIDE = -1, NOT_A_NUMBER = -2,
};

#define EPSILON 0x1p-24  /* the relative error of a number in float32 */
#define TINIEST 0x1p-149 /* what a number may lose besides, where float32 has no smaller one */
#define SLACK 1e-12      /* the relative error of a few sums in double precision */

/* A dense part of the passages of a segment. */
struct scan_part {
    const int8_t *codes;          /* [passages, dimension], or none: then the rows are read */
    const int8_t *heads;          /* [passages, HEAD] the first of them once more, or none; then STAGES * HEAD are there */
    const float *scales, *errors; /* [passages], of the codes: row i is scales[i] * codes[i], up to a vector of length errors[i] */
    const float *rows;            /* [passages, dimension] */
    float *tails;                 /* [STAGES, passages] the lengths of scales[i] * codes[i] after each stage, or none */
    int64_t dimension;
    double longest;               /* no row, and no scales[i] * codes[i], is longer */
};

struct scan_segment {
    int64_t passages, documents;
    const int64_t *ends;                     /* [documents] where the passages of each end, or none: each has one */
    const uint32_t *rows;                    /* [postings] passages with a term, rising */
    const int32_t *counts, *lengths;         /* [postings] how often, [passages] how many terms */
    const struct scan_part *parts;
    int64_t dense_parts;
};

struct scan_query {
    int64_t *starts;                         /* [terms] of the postings of each term; they are used up */
    const int64_t *stops;
    const double *weights;
    int64_t terms;
    double k1, b, average;
    const float *vectors;                    /* of the dense parts, one after the other */
    const float *others;                     /* [other parts, passages] */
    int64_t other_parts;
    const uint8_t *allowed;                  /* [passages], or none: all are */
};

/* The best scores that were seen in the segments of an index, at least so high. */
struct scan_best {
    double *heap;                            /* [k], the least first */
    double *first_values;                    /* [k], memory */
    int64_t *first_passages;                 /* [k], memory */
    int64_t k, count;
    double threshold;                        /* k documents reach it, or nothing below it is asked for */
};

/* A vector of the query in whole numbers: `step` times these, up to a vector of length `error`. */
struct whole {
    int16_t *numbers;       /* padded with zeros to a multiple of 64 */
    int8_t *high, *low;     /* numbers[j] = 128 * high[j] + low[j] */
    int32_t sum, sums[STAGES];   /* of all numbers, and of those of each stage */
    double step, error, length;  /* the last is that of the vector */
    double tails[STAGES];        /* the lengths of what is left of it after each stage */
    double greatest;             /* that a row's product can be */
};

enum { WHOLE = 128 };
_Static_assert(sizeof(struct whole) <= WHOLE, "the memory of a whole vector");

static void make_whole(const float *vector, int64_t dimension, struct whole *whole, char *memory)
{
    int64_t padded = (dimension + 63) / 64 * 64, limit = INT32_MAX / (MAX_CODE * dimension);
    whole->numbers = (int16_t *)(void *)memory;
    whole->high = (int8_t *)(memory + 2 * padded);
    whole->low = (int8_t *)(memory + 3 * padded);
    memset(memory, 0, (size_t)(4 * padded));
    double largest = 0, square = 0, tails[STAGES] = {0}, lost = 0;
    for (int64_t j = 0; j < dimension; j++) {
        double size = fabs((double)vector[j]);
        largest = size > largest ? size : largest;
        square += size * size;
        for (int64_t stage = 0; stage < STAGES; stage++)
            tails[stage] += j < HEAD * (stage + 1) ? 0 : size * size;
    }
    limit = limit < MAX_QUERY ? limit : MAX_QUERY;
    whole->step = largest > 0 ? largest / (double)limit : 1;
    whole->sum = 0;
    memset(whole->sums, 0, sizeof whole->sums);
    for (int64_t j = 0; j < dimension; j++) {
        int32_t number = (int32_t)lrint(vector[j] / whole->step);
        int32_t high = (number + 64) >> 7;
        double rest = vector[j] - whole->step * number;
        whole->numbers[j] = (int16_t)number;
        whole->high[j] = (int8_t)high;
        whole->low[j] = (int8_t)(number - 128 * high);
        whole->sum += number;
        if (j < STAGES * HEAD)
            whole->sums[j / HEAD] += number;
        lost += rest * rest;
    }
    whole->length = sqrt(square) * (1 + SLACK);
    for (int64_t stage = 0; stage < STAGES; stage++)
        whole->tails[stage] = sqrt(tails[stage]) * (1 + SLACK);
    whole->error = sqrt(lost) * (1 + SLACK);
}

/* Return the product of a row's codes and of a whole vector from number `j` up to `dimension`, which add up to `sum` in
   the vector.

   It is exact, and fits into 32 bits. */
static inline int32_t whole_product(const int8_t *codes, const struct whole *whole, int64_t j, int64_t dimension,
                                    int32_t sum)
{
#if defined __AVX512VNNI__
    /* Bytes without a sign times bytes with one: 128 is added to each code, and 128 * sum taken off in the end. */
    const __m512i middle = _mm512_set1_epi8((char)0x80);
    __m512i high = _mm512_setzero_si512(), low = high;
    for (; j + 64 <= dimension; j += 64) {
        __m512i code = _mm512_xor_si512(_mm512_loadu_si512(codes + j), middle);
        high = _mm512_dpbusd_epi32(high, code, _mm512_loadu_si512(whole->high + j));
        low = _mm512_dpbusd_epi32(low, code, _mm512_loadu_si512(whole->low + j));
    }
    if (j < dimension) {
        __mmask64 rest = (UINT64_C(1) << (dimension - j)) - 1;
        __m512i code = _mm512_xor_si512(_mm512_maskz_loadu_epi8(rest, codes + j), middle);
        high = _mm512_dpbusd_epi32(high, code, _mm512_loadu_si512(whole->high + j));
        low = _mm512_dpbusd_epi32(low, code, _mm512_loadu_si512(whole->low + j));
    }
    uint32_t total = (uint32_t)_mm512_reduce_add_epi32(_mm512_add_epi32(_mm512_slli_epi32(high, 7), low));
    return (int32_t)(total - 128u * (uint32_t)sum);
#else
    (void)sum;
    int32_t total = 0;
#if defined __AVX512BW__
    __m512i sums = _mm512_setzero_si512();
    for (; j + 32 <= dimension; j += 32) {
        __m512i code = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(codes + j)));
        sums = _mm512_add_epi32(sums, _mm512_madd_epi16(code, _mm512_loadu_si512(whole->numbers + j)));
    }
    total = _mm512_reduce_add_epi32(sums);
#elif defined __AVX2__
    __m256i one = _mm256_setzero_si256(), other = one;
    for (; j + 32 <= dimension; j += 32) {
        __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(codes + j)));
        __m256i second = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(codes + j + 16)));
        const __m256i *numbers = (const __m256i *)(whole->numbers + j);
        one = _mm256_add_epi32(one, _mm256_madd_epi16(first, _mm256_loadu_si256(numbers)));
        other = _mm256_add_epi32(other, _mm256_madd_epi16(second, _mm256_loadu_si256(numbers + 1)));
    }
    one = _mm256_add_epi32(one, other);
    int32_t sums[8];
    _mm256_storeu_si256((__m256i *)sums, one);
    for (int lane = 0; lane < 8; lane++)
        total += sums[lane];
#endif
    for (; j < dimension; j++)
        total += (int32_t)codes[j] * (int32_t)whole->numbers[j];
    return total;
#endif
}

/* Return the product of a row and a vector in float32, in a fixed order. */
static inline float float_product(const float *row, const float *vector, int64_t dimension)
{
    float8 a = {0}, b = {0};
    int64_t j = 0;
    for (; j + 16 <= dimension; j += 16) {
        a += *(const float8 *)(row + j) * *(const float8 *)(vector + j);
        b += *(const float8 *)(row + j + 8) * *(const float8 *)(vector + j + 8);
    }
    a += b;
    float total = ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
    for (; j < dimension; j++)
        total += row[j] * vector[j];
    return total;
}

/* Return the sum of the squares of the codes of a row from one up to another. */
static inline int32_t square_of(const int8_t *codes, int64_t j, int64_t stop)
{
    int32_t square = 0;
    for (; j < stop; j++)
        square += (int32_t)codes[j] * (int32_t)codes[j];
    return square;
}

/* Return an upper bound of the length of the rows of a part, and of the codes for them; NaN where a number is none.

   Set the lengths of the tails, where there is room for them. */
EXPORT double scan_longest(const struct scan_part *part, int64_t passages)
{
    double longest = 0;
    for (int64_t passage = 0; passage < passages; passage++) {
        double length;
        if (part->codes) {
            const int8_t *codes = part->codes + passage * part->dimension;
            int32_t square = 0; /* below 2 ** 31 for any row that has codes */
            double scale = (double)part->scales[passage];
            int64_t stop = part->dimension;
            for (int64_t stage = STAGES; stage-- > 0 && part->tails; stop = HEAD * (stage + 1)) {
                square += square_of(codes, HEAD * (stage + 1), stop);
                double tail = scale * sqrt((double)square);
                part->tails[stage * passages + passage] = (float)(tail * (1 + 2 * EPSILON) + TINIEST);
            }
            square += square_of(codes, 0, stop);
            length = scale * sqrt((double)square) + (double)part->errors[passage];
        } else {
            const float *row = part->rows + passage * part->dimension;
            double square = 0;
            for (int64_t j = 0; j < part->dimension; j++)
                square += (double)row[j] * (double)row[j];
            length = sqrt(square);
        }
        if (!isfinite(length))
            return NAN;
        longest = length > longest ? length : longest;
    }
    return longest * (1 + SLACK);
}

/* Set bm25[i] to BM25 of each passage; return 0, or what is wrong. */
static int64_t add_up_bm25(const struct scan_segment *segment, const struct scan_query *query, float *bm25)
{
    double sums[BLOCK], damping_of[MAX_LENGTH];
    double base = 1 - query->b, k1 = query->k1, gain = query->k1 + 1;
    for (int64_t length = 0; length < MAX_LENGTH; length++)
        damping_of[length] = query->average > 0 ? k1 * (base + query->b * (double)length / query->average) : k1;
    for (int64_t start = 0; start < segment->passages; start += BLOCK) {
        int64_t size = segment->passages - start < BLOCK ? segment->passages - start : BLOCK;
        memset(sums, 0, (size_t)size * sizeof *sums);
        for (int64_t term = 0; term < query->terms; term++) {
            int64_t posting = query->starts[term], stop = query->stops[term];
            double weight = query->weights[term];
            for (; posting < stop; posting++) {
                int64_t row = (int64_t)READ_ONCE(segment->rows[posting]) - start;
                if (row >= size)
                    break;
                if (row < 0)
                    return OUTSIDE;
                int64_t length = READ_ONCE(segment->lengths[start + row]);
                double damping, count = segment->counts[posting];
                if (length >= 0 && length < MAX_LENGTH)
                    damping = damping_of[length];
                else
                    damping = query->average > 0 ? k1 * (base + query->b * (double)length / query->average) : k1;
                sums[row] += weight * (count * gain / (count + damping));
            }
            query->starts[term] = posting;
        }
        bool is_broken = false;
        for (int64_t row = 0; row < size; row++) {
            bm25[start + row] = (float)sums[row];
            is_broken |= sums[row] != sums[row];
        }
        if (is_broken)
            return NOT_A_NUMBER;
    }
    for (int64_t term = 0; term < query->terms; term++)
        if (query->starts[term] < query->stops[term])
            return OUTSIDE;
    return 0;
}

/* Let the number at the root of a heap, whose least number is first, fall to its place; `items` go along, if there are. */
static void sink(double *values, int64_t *items, int64_t count)
{
    int64_t at = 0;
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= count)
            return;
        if (child + 1 < count && values[child + 1] < values[child])
            child++;
        if (values[at] <= values[child])
            return;
        double value = values[at];
        values[at] = values[child];
        values[child] = value;
        if (items) {
            int64_t item = items[at];
            items[at] = items[child];
            items[child] = item;
        }
        at = child;
    }
}

/* Take a number into a heap of the k largest; return how many it has. */
static inline int64_t push(double *values, int64_t *items, int64_t count, int64_t k, double value, int64_t item)
{
    if (count == k) {
        if (value > values[0]) {
            values[0] = value;
            if (items)
                items[0] = item;
            sink(values, items, count);
        }
        return count;
    }
    int64_t at = count;
    for (; at > 0 && value < values[(at - 1) / 2]; at = (at - 1) / 2) {
        values[at] = values[(at - 1) / 2];
        if (items)
            items[at] = items[(at - 1) / 2];
    }
    values[at] = value;
    if (items)
        items[at] = item;
    return count + 1;
}

struct bounds {
    double lower, upper;
    bool is_shared; /* whether a part is certain not to be 0 */
};

/* What a scan of one segment works with. */
struct scan {
    const struct scan_segment *segment;
    const struct scan_query *query;
    const float *bm25;    /* [passages], or none */
    struct whole *wholes; /* [dense parts] */
    double greatest;      /* that the dense parts can add */
    bool has_heads;       /* whether the rows of the first dense part have heads */
};

/* Return the sum of the parts that are exact; `size` is set to the sum of what they are without signs. */
static inline double exact_score(const struct scan *scan, int64_t passage, bool *is_shared, double *size)
{
    double score = scan->bm25 ? (double)scan->bm25[passage] : 0;
    *is_shared = score != 0;
    *size = fabs(score);
    for (int64_t other = 0; other < scan->query->other_parts; other++) {
        float value = scan->query->others[other * scan->segment->passages + passage];
        *is_shared |= value != 0;
        score += (double)value;
        *size += fabs((double)value);
    }
    return score;
}

/* Return how far the product of a row in float32, added up in any order, may be from the exact one. */
static inline double float_loss(const struct scan_part *part, const struct whole *whole)
{
    return (double)part->dimension * (EPSILON * whole->length * part->longest + 2 * TINIEST);
}

/* Return the bounds of a passage's score; `product_of_stages` is that of the stages of its row in the first dense part, or none. */
static struct bounds bounds_of(const struct scan *scan, int64_t passage, const int32_t *product_of_stages)
{
    struct bounds bounds;
    double size, score = exact_score(scan, passage, &bounds.is_shared, &size), error = SLACK * size;
    const float *vector = scan->query->vectors;
    for (int64_t number = 0; number < scan->segment->dense_parts; number++) {
        const struct scan_part *part = scan->segment->parts + number;
        const struct whole *whole = scan->wholes + number;
        int64_t dimension = part->dimension;
        double product, lost = float_loss(part, whole);
        if (part->codes) {
            const int8_t *codes = part->codes + passage * dimension;
            int32_t sum;
            if (number == 0 && product_of_stages) {
                int32_t rest = whole->sum;
                for (int64_t stage = 0; stage < STAGES; stage++)
                    rest -= whole->sums[stage];
                sum = *product_of_stages + whole_product(codes, whole, STAGES * HEAD, dimension, rest);
            } else {
                sum = whole_product(codes, whole, 0, dimension, whole->sum);
            }
            product = (double)sum * (whole->step * (double)part->scales[passage]);
            lost += whole->length * (double)part->errors[passage] + part->longest * whole->error;
        } else {
            product = (double)float_product(part->rows + passage * dimension, vector, dimension);
            lost *= 2;
        }
        lost += SLACK * (fabs(product) + lost);
        bounds.is_shared |= fabs(product) > lost;
        score += product;
        error += lost;
        vector += dimension;
    }
    bounds.lower = score - error;
    bounds.upper = score + error;
    return bounds;
}

static inline bool is_allowed(const struct scan *scan, int64_t passage)
{
    return !scan->query->allowed || scan->query->allowed[passage];
}

/* Return the first passage from `passage` on with a BM25 of at least `least`, or the number of passages. */
static inline int64_t next_reaching(const float *bm25, int64_t passage, int64_t passages, float least)
{
    if (passage < passages && bm25[passage] >= least)
        return passage;
    for (; passage + STEP <= passages; passage += STEP) {
        int32_t is_reached = 0;
        for (int64_t j = 0; j < STEP; j++)
            is_reached |= bm25[passage + j] >= least;
        if (is_reached)
            break;
    }
    while (passage < passages && !(bm25[passage] >= least))
        passage++;
    return passage;
}

/* Raise the threshold to what the k documents reach that are best by the parts that are exact; false for NaN. */
static bool look_at_best_exact(const struct scan *scan, struct scan_best *best)
{
    const int64_t *ends = scan->segment->ends;
    int64_t count = 0, document = 0, passages = scan->segment->passages;
    for (int64_t passage = 0; passage < passages;) {
        double highest = count == best->k ? best->first_values[0] : 0;
        if (!scan->query->other_parts)
            passage = next_reaching(scan->bm25, passage, passages, highest > FLT_MIN ? (float)highest : FLT_MIN);
        if (passage == passages)
            break;
        while (ends && ends[document] <= passage)
            document++;
        int64_t chosen = -1;
        for (int64_t end = ends ? ends[document] : passage + 1; passage < end; passage++) {
            bool is_shared;
            double size, score = exact_score(scan, passage, &is_shared, &size);
            if (score > highest && is_allowed(scan, passage)) {
                highest = score;
                chosen = passage;
            }
        }
        if (chosen >= 0)
            count = push(best->first_values, best->first_passages, count, best->k, highest, chosen);
    }
    double lowest = INFINITY;
    for (int64_t number = 0; number < count; number++) {
        struct bounds bounds = bounds_of(scan, best->first_passages[number], NULL);
        if (isnan(bounds.lower))
            return false;
        lowest = bounds.lower < lowest ? bounds.lower : lowest;
    }
    if (count == best->k && lowest > best->threshold)
        best->threshold = lowest;
    return true;
}

static inline void take(struct scan_best *best, double lower)
{
    if (lower > -INFINITY) {
        best->count = push(best->heap, NULL, best->count, best->k, lower, 0);
        if (best->count == best->k && best->heap[0] > best->threshold)
            best->threshold = best->heap[0];
    }
}

/* A document that is read passage by passage. */
struct reading {
    int64_t document;
    double lower; /* of its best passage */
};

static inline void request(const int8_t *codes, int64_t size)
{
    for (int64_t at = 0; at < size; at += 64)
        __builtin_prefetch(codes + at);
}

/* Some passages, and what is known of them while their rows are read stage by stage. */
struct batch {
    int64_t size, passages[BATCH];
    double others[BATCH], scales[BATCH]; /* the exact parts with all that may be lost, and the scale of the product */
    int32_t products[BATCH];             /* with the numbers that were read */
};

/* Keep of a batch the passages that may reach the threshold by what was read up to a stage. */
static void keep_reaching(const struct scan *scan, struct batch *batch, int64_t stage, double threshold)
{
    const float *tails = scan->segment->parts->tails + stage * scan->segment->passages;
    double tail = scan->wholes->tails[stage], rest[BATCH];
    bool is_left[BATCH];
    for (int64_t at = 0; at < batch->size; at++)
        rest[at] = (double)tails[batch->passages[at]];
    for (int64_t at = 0; at < batch->size; at++) {
        double product = (double)batch->products[at] * batch->scales[at];
        is_left[at] = !(batch->others[at] + product + rest[at] * tail < threshold);
    }
    int64_t size = 0;
    for (int64_t at = 0; at < batch->size; at++) {
        batch->passages[size] = batch->passages[at];
        batch->others[size] = batch->others[at];
        batch->scales[size] = batch->scales[at];
        batch->products[size] = batch->products[at];
        size += is_left[at];
    }
    batch->size = size;
}

/* Keep of a batch the passages that may reach the threshold by the heads of their rows in the first dense part, and
   request the rows of these. */
static void read_heads(const struct scan *scan, struct batch *batch, double threshold)
{
    const struct scan_part *part = scan->segment->parts;
    const struct whole *whole = scan->wholes;
    double fixed = part->longest * whole->error + float_loss(part, whole) + (scan->greatest - whole->greatest);
    for (int64_t at = 0; at < batch->size; at++) {
        bool is_shared;
        int64_t passage = batch->passages[at];
        double size, score = exact_score(scan, passage, &is_shared, &size);
        double lost = whole->length * (double)part->errors[passage] + fixed;
        batch->others[at] = score + lost + SLACK * (size + scan->greatest);
        batch->scales[at] = whole->step * (double)part->scales[passage];
        batch->products[at] = whole_product(part->heads + passage * HEAD, whole, 0, HEAD, whole->sums[0]);
    }
    keep_reaching(scan, batch, 0, threshold);
    for (int64_t at = 0; at < batch->size; at++)
        request(part->codes + batch->passages[at] * part->dimension, part->dimension);
}

/* Keep of a batch the passages that may reach the threshold by more of their rows. */
static void read_more(const struct scan *scan, struct batch *batch, double threshold)
{
    const struct scan_part *part = scan->segment->parts;
    const struct whole *whole = scan->wholes;
    for (int64_t stage = 1; stage < STAGES; stage++) {
        for (int64_t at = 0; at < batch->size; at++) {
            const int8_t *codes = part->codes + batch->passages[at] * part->dimension;
            batch->products[at] += whole_product(codes, whole, HEAD * stage, HEAD * (stage + 1), whole->sums[stage]);
        }
        keep_reaching(scan, batch, stage, threshold);
    }
}

/* Look at the passages of a batch; return how many candidates there are then, or NOT_A_NUMBER. */
static int64_t look_at(const struct scan *scan, const struct batch *batch, struct reading *reading,
                       struct scan_best *best, int64_t *candidates, double *uppers, int64_t count)
{
    const int64_t *ends = scan->segment->ends;
    for (int64_t at = 0; at < batch->size; at++) {
        int64_t passage = batch->passages[at], document = ends ? reading->document : passage;
        struct bounds bounds = bounds_of(scan, passage, scan->has_heads ? batch->products + at : NULL);
        if (isnan(bounds.lower))
            return NOT_A_NUMBER;
        if (bounds.upper >= best->threshold && (bounds.is_shared || scan->segment->dense_parts)) {
            candidates[count] = passage;
            uppers[count++] = bounds.upper;
        }
        while (ends && (document < 0 || ends[document] <= passage))
            document++;
        if (document != reading->document) {
            take(best, reading->lower);
            *reading = (struct reading){document, -INFINITY};
        }
        if (bounds.is_shared && bounds.lower > reading->lower)
            reading->lower = bounds.lower;
    }
    return count;
}

/* Return the BM25 that a passage needs for the threshold; -inf where others than BM25 decide. */
static float needed_bm25(const struct scan *scan, double threshold)
{
    double limit = threshold - scan->greatest;
    limit -= SLACK * (fabs(threshold) + scan->greatest);
    if (scan->query->other_parts || !(limit > -INFINITY))
        return -INFINITY;
    float least = (float)limit;
    return (double)least > limit ? nextafterf(least, -INFINITY) : least;
}

/* Fill a batch with the next passages from `passage` on that are allowed and have a BM25 of at least `needed`; return
   where to go on. */
static int64_t fill(const struct scan *scan, int64_t passage, float needed, struct batch *batch)
{
    int64_t size = 0, passages = scan->segment->passages;
    if (!scan->bm25 && needed > 0)
        passage = passages;
    while (passage < passages && size <= BATCH - STEP) {
        if (scan->bm25)
            passage = next_reaching(scan->bm25, passage, passages, needed);
        int64_t stop = passage + STEP < passages ? passage + STEP : passages;
        for (; passage < stop; passage++) {
            batch->passages[size] = passage;
            size += (!scan->bm25 || scan->bm25[passage] >= needed) & is_allowed(scan, passage);
        }
    }
    batch->size = size;
    return passage;
}

/* Write the passages that may be among the best of all segments; return how many, OUTSIDE, or NOT_A_NUMBER.

   `bm25` [passages], none without terms; `memory`: for each dense part WHOLE bytes, and 4 for each number of its vector,
   rounded up to 64 numbers; `candidates` and `uppers`, their highest possible scores, [passages]. `best` goes from one
   segment to the next. */
EXPORT int64_t scan_segment(const struct scan_segment *segment, const struct scan_query *query, struct scan_best *best,
                            float *bm25, char *memory, int64_t *candidates, double *uppers)
{
    struct whole *wholes = (struct whole *)(void *)memory;
    struct scan scan = {segment, query, query->terms ? bm25 : NULL, wholes, 0, false};
    struct batch batches[2]; /* one is read while the rows of the other arrive */
    int64_t count = 0, passage = 0;
    struct reading reading = {-1, -INFINITY};
    const float *vector = query->vectors;
    memory += WHOLE * segment->dense_parts;
    for (int64_t number = 0; number < segment->dense_parts; number++) {
        const struct scan_part *part = segment->parts + number;
        make_whole(vector, part->dimension, wholes + number, memory);
        wholes[number].greatest = wholes[number].length * part->longest + 2 * float_loss(part, wholes + number);
        scan.greatest += wholes[number].greatest;
        vector += part->dimension;
        memory += (part->dimension + 63) / 64 * 64 * 4;
    }
    if (query->terms && (count = add_up_bm25(segment, query, bm25)) < 0)
        return count;
    if ((query->terms || query->other_parts) && !look_at_best_exact(&scan, best))
        return NOT_A_NUMBER;
    scan.has_heads = segment->dense_parts && segment->parts->heads;
    batches[1].size = 0;
    for (int64_t turn = 0; passage < segment->passages || batches[~turn & 1].size; turn++) {
        struct batch *next = batches + (turn & 1), *present = batches + (~turn & 1);
        passage = fill(&scan, passage, needed_bm25(&scan, best->threshold), next);
        if (scan.has_heads) {
            read_heads(&scan, next, best->threshold);
            read_more(&scan, present, best->threshold);
        }
        count = look_at(&scan, present, &reading, best, candidates, uppers, count);
        if (count < 0)
            return count;
    }
    take(best, reading.lower);
    int64_t remaining = 0;
    for (int64_t number = 0; number < count; number++)
        if (uppers[number] >= best->threshold) {
            candidates[remaining] = candidates[number];
            uppers[remaining++] = uppers[number];
        }
    return remaining;
}
