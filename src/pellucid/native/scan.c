/* The best passages of a segment: what index/search.py asks of each segment, and what it multiplies exactly then.

   A score is a sum of parts. BM25 and sparse parts are computed as Python does, to the last bit. A dense part is read
   in 8 bits, as whole numbers that every processor adds up to the same, and is known up to a bound of the error. A passage
   whose highest possible score is below the k-th best of the lowest possible ones cannot be among the k best; the
   others are candidates. A passage that its other parts leave below that, even with the greatest product a row can
   have, is not read at all; of others the higher 4 bits are read first, and the lower ones only of those that may reach
   the threshold by these. Where most may, all bits are read together.

   1. scan_longest measures the rows of a dense part, once for each segment.
   2. scan_segment adds up BM25, looks at the passages that are best by it, and then at all that may be better. */

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "scan_codes.h"

enum {
    BLOCK = 4096,       /* passages whose BM25 is added up together, in the first-level cache */
    MAX_LENGTH = 1024,  /* terms of a passage; what depends on the length of shorter ones is computed once */
    BATCH = 32,         /* passages whose rows are requested before they are read */
    STEP = 16,          /* passages whose BM25 is compared together; BATCH is a multiple */
    TRIAL = 8,          /* batches by which it is seen whether the high bits leave few passages */
    MAX_PAUSE = 2048,   /* batches between two such trials, at most */
    OUTSIDE = -1, NOT_A_NUMBER = -2,
};

#define EPSILON 0x1p-24  /* the relative error of a number in float32 */
#define TINIEST 0x1p-149 /* what a number may lose besides, where float32 has no smaller one */

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
    int64_t other_parts, boosts;             /* the last of them are boosts: what has no other part is no hit */
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

/* Return an upper bound of the length of the rows of a part, and of the codes for them; NaN where a number is none.

   Set the sides, where there are codes. */
EXPORT double scan_longest(const struct scan_part *part, int64_t passages)
{
    double longest = 0;
    for (int64_t passage = 0; passage < passages; passage++) {
        double length;
        if (part->high) {
            int64_t half = half_of(part->dimension);
            const uint8_t *high_bits = part->high + passage * half, *low_bits = part->low + passage * half;
            int32_t square = 0, high_square = 0, low_square = 0; /* below 2 ** 31 for any row that has codes */
            for (int64_t j = 0; j < half; j++) {
                int32_t high = (high_bits[j] & 15) - 8, low = (low_bits[j] & 15) - 8;
                int32_t other_high = (high_bits[j] >> 4) - 8, other_low = (low_bits[j] >> 4) - 8;
                high_square += high * high + other_high * other_high;
                low_square += low * low + other_low * other_low;
                square += high * low + other_high * other_low;
            }
            square = 256 * high_square + 32 * square + low_square;
            double scale = fabs((double)part->scales[passage]), error = (double)part->errors[passage];
            double rest = scale * sqrt((double)low_square) + error;
            part->sides[2 * passage] = part->scales[passage];
            part->sides[2 * passage + 1] = (float)(rest * (1 + 2 * EPSILON) + TINIEST);
            double of_high = 16 * scale * sqrt((double)high_square);
            length = scale * sqrt((double)square) + error;
            length = of_high > length ? of_high : length;
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
    bool has_codes;       /* whether the first dense part has */
};

/* Return the sum of the parts that are exact; `size` is set to the sum of what they are without signs. */
static inline double exact_score(const struct scan *scan, int64_t passage, bool *is_shared, double *size)
{
    double score = scan->bm25 ? (double)scan->bm25[passage] : 0;
    *is_shared = score != 0;
    *size = fabs(score);
    for (int64_t other = 0; other < scan->query->other_parts; other++) {
        float value = scan->query->others[other * scan->segment->passages + passage];
        *is_shared |= value != 0 && other < scan->query->other_parts - scan->query->boosts;
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

/* Return the bounds of a passage's score; `codes` is the product of its codes in the first dense part, or none. */
static struct bounds bounds_of(const struct scan *scan, int64_t passage, const int32_t *codes)
{
    struct bounds bounds;
    double size, score = exact_score(scan, passage, &bounds.is_shared, &size), error = SLACK * size;
    const float *vector = scan->query->vectors;
    for (int64_t number = 0; number < scan->segment->dense_parts; number++) {
        const struct scan_part *part = scan->segment->parts + number;
        const struct whole *whole = scan->wholes + number;
        double product, lost = float_loss(part, whole);
        if (part->high) {
            int32_t sum = number == 0 && codes ? *codes : codes_product(part, whole, passage);
            product = (double)sum * (whole->step * (double)part->scales[passage]);
            lost += whole->length * (double)part->errors[passage] + part->longest * whole->error;
        } else {
            product = (double)float_product(part->rows + passage * part->dimension, vector, part->dimension);
            lost *= 2;
        }
        lost += SLACK * (fabs(product) + lost);
        bounds.is_shared |= fabs(product) > lost;
        score += product;
        error += lost;
        vector += part->dimension;
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
            if (is_shared && score > highest && is_allowed(scan, passage)) {
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

static inline void request(const uint8_t *bytes, int64_t size)
{
    for (int64_t at = 0; at < size; at += 64)
        __builtin_prefetch(bytes + at);
}

/* Some passages, and what is known of them while their rows are read. */
struct batch {
    int64_t size, passages[BATCH]; /* those after the size are in the segment, too */
    double others[BATCH];          /* the most that the parts which are exact can add */
    int32_t products[BATCH];       /* of what was read of the codes */
};

/* Set the products of the high bits of the rows of a batch and of the large numbers of a whole vector; request those of
   the batch that comes next, a row for each. */
static void read_products(const struct scan_part *part, const struct whole *whole, struct batch *batch,
                          const struct batch *next)
{
    int64_t half = half_of(part->dimension), at = 0;
#if defined __AVX512VNNI__
    /* Four rows at a time: their sums are added up together. */
    const __m512i lower = _mm512_set1_epi8(15);
    for (; at + 4 <= batch->size; at += 4) {
        __m512i first[4], second[4];
        for (int row = 0; row < 4; row++)
            first[row] = second[row] = _mm512_setzero_si512();
        for (int64_t j = 0; j < half; j += 64) {
            __mmask64 present = half - j < 64 ? (UINT64_C(1) << (half - j)) - 1 : UINT64_MAX;
            __m512i numbers = _mm512_loadu_si512(whole->large + j);
            __m512i others = _mm512_loadu_si512(whole->large + whole->padded + j);
            for (int row = 0; row < 4; row++) {
                __m512i pairs = _mm512_maskz_loadu_epi8(present, part->high + batch->passages[at + row] * half + j);
                first[row] = _mm512_dpbusd_epi32(first[row], _mm512_and_si512(pairs, lower), numbers);
                second[row] = _mm512_dpbusd_epi32(second[row], _mm512_andnot_si512(lower, pairs), others);
                __builtin_prefetch(part->high + next->passages[at + row] * half + j);
            }
        }
        for (int row = 0; row < 4; row++) /* the second are 16 times as large */
            first[row] = _mm512_add_epi32(first[row], _mm512_srai_epi32(second[row], 4));
        for (int row = 0; row < 4; row += 2)
            first[row] = _mm512_add_epi32(_mm512_unpacklo_epi32(first[row], first[row + 1]),
                                          _mm512_unpackhi_epi32(first[row], first[row + 1]));
        first[0] = _mm512_add_epi32(_mm512_unpacklo_epi64(first[0], first[2]),
                                    _mm512_unpackhi_epi64(first[0], first[2]));
        __m256i sums = _mm256_add_epi32(_mm512_castsi512_si256(first[0]), _mm512_extracti64x4_epi64(first[0], 1));
        _mm_storeu_si128((__m128i *)(batch->products + at),
                         _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1)));
    }
#endif
    for (; at < batch->size; at++) {
        request(part->high + next->passages[at] * half, half);
        batch->products[at] = high_product(part, whole, batch->passages[at]);
    }
}

/* Return what the score of a passage may be above its parts that are exact and the product of its codes in the first
   dense part, besides the errors of the row; `error` is that of the vector. */
static inline double allowance(const struct scan *scan, double error)
{
    const struct scan_part *part = scan->segment->parts;
    double others = scan->greatest - scan->wholes->greatest;
    return part->longest * error + float_loss(part, scan->wholes) + others + SLACK * scan->greatest;
}

/* Set the most that the exact parts of the passages of a batch can add. */
static void add_up_exact(const struct scan *scan, struct batch *batch)
{
    for (int64_t at = 0; at < batch->size; at++) {
        bool is_shared;
        double size, score = exact_score(scan, batch->passages[at], &is_shared, &size);
        batch->others[at] = score + SLACK * size;
    }
}

/* Keep of a batch the passages that may reach the threshold by the high bits in the first dense part; request the low
   ones of these, and the high ones of the batch that comes next. */
static void read_high(const struct scan *scan, struct batch *batch, const struct batch *next, double threshold)
{
    const struct scan_part *part = scan->segment->parts;
    const struct whole *whole = scan->wholes;
    double allowed = allowance(scan, whole->large_error), step = 16 * 128 * whole->step;
    int64_t size = 0, half = half_of(part->dimension);
    add_up_exact(scan, batch);
    read_products(part, whole, batch, next);
    for (int64_t at = 0; at < batch->size; at++) {
        int64_t passage = batch->passages[at];
        const float *sides = part->sides + 2 * passage;
        double product = (double)(batch->products[at] - 8 * whole->large_sum) * (step * (double)sides[0]);
        if (batch->others[at] + product + whole->length * (double)sides[1] + allowed < threshold)
            continue;
        batch->passages[size] = passage;
        batch->others[size++] = batch->others[at];
        request(part->low + passage * half, half);
    }
    batch->size = size;
}

/* Keep of a batch the passages that may reach the threshold by all bits in the first dense part; request all bits of
   the batch that comes next, if one is given, a row for each. */
static void read_all(const struct scan *scan, struct batch *batch, const struct batch *next, double threshold)
{
    const struct scan_part *part = scan->segment->parts;
    const struct whole *whole = scan->wholes;
    double allowed = allowance(scan, whole->error);
    int64_t size = 0, half = half_of(part->dimension);
    for (int64_t at = 0; at < batch->size; at++) {
        int64_t passage = batch->passages[at];
        if (next) {
            request(part->high + next->passages[at] * half, half);
            request(part->low + next->passages[at] * half, half);
        }
        int32_t sum = codes_product(part, whole, passage);
        double product = (double)sum * (whole->step * (double)part->scales[passage]);
        if (batch->others[at] + product + whole->length * (double)part->errors[passage] + allowed < threshold)
            continue;
        batch->passages[size] = passage;
        batch->products[size++] = sum;
    }
    batch->size = size;
}

/* Whether most passages are kept by the high bits of their rows. Then these are read together with the low ones for
   some batches, until a next trial, and for more of them each time. */
struct trial {
    int64_t batches, read, kept;  /* of the present trial */
    int64_t pause, longest_pause; /* batches until the next one */
};

/* Read the high bits of a batch, and all of the one before. */
static void read_codes(const struct scan *scan, struct batch *next, struct batch *present, struct batch *last,
                       double threshold, struct trial *trial)
{
    bool is_pause = trial->pause > 0;
    if (is_pause) {
        trial->pause--;
        add_up_exact(scan, present);
    } else {
        trial->read += present->size;
        read_high(scan, present, next, threshold);
        trial->kept += present->size;
    }
    read_all(scan, last, is_pause ? next : NULL, threshold);
    if (is_pause || ++trial->batches < TRIAL)
        return;
    trial->pause = 2 * trial->kept > trial->read ? trial->longest_pause : 0;
    trial->longest_pause = trial->pause ? 2 * trial->pause : TRIAL;
    if (trial->longest_pause > MAX_PAUSE)
        trial->longest_pause = MAX_PAUSE;
    trial->batches = trial->read = trial->kept = 0;
}

/* Look at the passages of a batch; return how many candidates there are then, or NOT_A_NUMBER. */
static int64_t look_at(const struct scan *scan, const struct batch *batch, struct reading *reading,
                       struct scan_best *best, int64_t *candidates, double *uppers, int64_t count)
{
    const int64_t *ends = scan->segment->ends;
    for (int64_t at = 0; at < batch->size; at++) {
        int64_t passage = batch->passages[at], document = ends ? reading->document : passage;
        struct bounds bounds = bounds_of(scan, passage, scan->has_codes ? batch->products + at : NULL);
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

   `bm25` [passages], none without terms; `memory`: for each dense part WHOLE bytes, and 4 for each number of half its
   vector, rounded up to 64 numbers; `candidates` and `uppers`, their highest possible scores, [passages]. `best` goes
   from one segment to the next. */
EXPORT int64_t scan_segment(const struct scan_segment *segment, const struct scan_query *query, struct scan_best *best,
                            float *bm25, char *memory, int64_t *candidates, double *uppers)
{
    struct whole *wholes = (struct whole *)(void *)memory;
    struct scan scan = {segment, query, query->terms ? bm25 : NULL, wholes, 0, false};
    struct batch batches[3] = {0}; /* one is read while the bits of the others arrive */
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
        memory += 4 * wholes[number].padded;
    }
    if (query->terms && (count = add_up_bm25(segment, query, bm25)) < 0)
        return count;
    if (best->k <= 0) /* nothing is asked for, and the heap has no least number */
        return 0;
    if ((query->terms || query->other_parts) && !look_at_best_exact(&scan, best))
        return NOT_A_NUMBER;
    scan.has_codes = segment->dense_parts && segment->parts->high;
    struct batch *next = batches, *present = batches + 1, *last = batches + 2;
    struct trial trial = {.longest_pause = TRIAL};
    while (passage < segment->passages || present->size || last->size) {
        passage = fill(&scan, passage, needed_bm25(&scan, best->threshold), next);
        if (scan.has_codes) {
            read_codes(&scan, next, present, last, best->threshold, &trial);
        }
        count = look_at(&scan, last, &reading, best, candidates, uppers, count);
        if (count < 0)
            return count;
        struct batch *free = last;
        last = present;
        present = next;
        next = free;
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
