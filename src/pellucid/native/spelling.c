/* Spelling: for each of many words, the known words that are spelled like it, and the sum of their vectors.

   static/spelling.py defines what is computed, and the tests hold the two equal. Which known words are most similar is
   decided by whole numbers and one division, so that both choose the same ones and a tie stays one. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "rows.h"

/* As in static/spelling.py. */
#define BITS 18
#define SHORTEST 3
#define LONGEST 6
#define NEIGHBOURS 32
#define RIDGE 0.5
#define COMMON 500

#define SIZES (LONGEST - SHORTEST + 1)
#define WORD NEIGHBOURS            /* the place of the word itself, after those of its neighbours */
#define SURELY_LESS (1 - 1e-12)    /* so that rounding decides nothing */
#define STRIDE (NEIGHBOURS + 8)    /* of a row of numbers for each neighbour and the word */

typedef float float4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef double double4 __attribute__((vector_size(32)));

/* Which known words hold a hashed n-gram: `NgramIndex` of spelling.py. It was checked when it was taken; what it says
   now is compared with the sizes again before it is followed. */
struct spelling_index {
    const uint32_t *codes;  /* known word i is codes[ends[i] : ends[i + 1]], its marks among them */
    const int64_t *ends;    /* [known + 1] */
    const int64_t *rows;    /* [known] of the table */
    const int32_t *starts;  /* [buckets + 1]; those of bucket b are members[starts[b] : starts[b + 1]] */
    const int32_t *members;
    const uint8_t *weights; /* [buckets] may be of a file that changes while it is mapped */
    int64_t codes_size, members_size, known;
    int64_t longest; /* code points of a known word or one to spell: there is memory for its n-grams */
};

/* A known word: what is needed at once. */
struct candidate {
    uint32_t score; /* the weight of what it shares with the word; 0 between two words */
    int32_t square; /* the sum of the weights of its n-grams */
};

/* An n-gram of the word or its neighbours. */
struct slot {
    uint64_t words;  /* which of them have it, a bit each; 0 where the slot is free */
    uint64_t bucket;
};

/* Memory for one word after the other. */
struct spelling_scratch {
    struct candidate *candidates; /* [known] */
    int32_t *touched; /* [known + COMMON + 1] those that share something */
    int32_t *buckets; /* of one word's n-grams */
    struct slot *slots; /* all free between two words */
    int32_t *used;      /* the slots that are not free */
};

struct spelling_table {
    const void *vectors; /* [words, dimension] */
    const float *scales; /* [words] of whole numbers alone */
    int64_t kind, words, dimension;
    float *row;          /* [dimension padded with zeros to a multiple of 8] memory */
};

/* What the word and its neighbours have in common. */
struct kernel {
    int32_t shared[NEIGHBOURS + 1][STRIDE]; /* the weight of the n-grams of both */
    double rows[NEIGHBOURS][STRIDE];        /* the similarities, and then their decomposition */
};

/* List the buckets of the n-grams of codes[start : end]; return how many. */
static int64_t list_ngrams(const uint32_t *codes, int64_t start, int64_t end, int32_t *buckets)
{
    int64_t found = 0;
    for (int64_t first = start; first < end; first++) {
        uint64_t mixed = 0;
        int64_t last = first + LONGEST < end ? first + LONGEST : end;
        for (int64_t place = first; place < last; place++) {
            mixed = mixed * 0x9E3779B97F4A7C15u + codes[place] + 1;
            if (place - first + 1 >= SHORTEST)
                buckets[found++] = (int32_t)(((mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9u) >> (64 - BITS));
        }
    }
    return found;
}

/* Return how many slots are used for so many n-grams: a power of two, so many that a free one is near. */
static int64_t slots_for(int64_t ngrams)
{
    return (int64_t)2 << (64 - __builtin_clzll((uint64_t)ngrams));
}

/* Note that the word at place `bit` has these n-grams; return how many of the `slots` slots are in use now. */
static int64_t mark(const struct spelling_scratch *scratch, int64_t slots, int64_t ngrams, int bit, int64_t used)
{
    for (int64_t number = 0; number < ngrams; number++) {
        uint64_t bucket = (uint64_t)scratch->buckets[number], at = bucket & (uint64_t)(slots - 1);
        struct slot *slot = scratch->slots + at;
        while (slot->words && slot->bucket != bucket) {
            at = (at + 1) & (uint64_t)(slots - 1);
            slot = scratch->slots + at;
        }
        if (!slot->words) {
            slot->bucket = bucket;
            scratch->used[used++] = (int32_t)at;
        }
        slot->words |= (uint64_t)1 << bit;
    }
    return used;
}

/* Keep what is listed for the first time; return how many buckets there are. */
static int64_t keep_distinct(const struct spelling_scratch *scratch, int64_t ngrams)
{
    int64_t used = mark(scratch, slots_for(ngrams), ngrams, WORD, 0);
    for (int64_t number = 0; number < used; number++) {
        struct slot *slot = scratch->slots + scratch->used[number];
        scratch->buckets[number] = (int32_t)slot->bucket;
        slot->words = 0;
    }
    return used;
}

/* Put a known word among the most similar ones, best first and the lower number first; return how many there are. */
static int64_t insert(int32_t word, double similar, int64_t count, double *best, int32_t *near)
{
    int64_t slot = count;
    while (slot > 0 && (best[slot - 1] < similar || (best[slot - 1] == similar && near[slot - 1] > word))) {
        if (slot < NEIGHBOURS) {
            best[slot] = best[slot - 1];
            near[slot] = near[slot - 1];
        }
        slot--;
    }
    if (slot < NEIGHBOURS) {
        best[slot] = similar;
        near[slot] = word;
    }
    return count < NEIGHBOURS ? count + 1 : NEIGHBOURS;
}

/* Set `near` to the known words most similar to one with these n-grams, each listed once; return how many, or -1 where
   the index points outside itself. */
static int64_t find_candidates(
    const struct spelling_index *index, const struct spelling_scratch *scratch, int64_t ngrams, int32_t *near)
{
    struct candidate *candidates = scratch->candidates;
    int32_t *touched = scratch->touched;
    double best[NEIGHBOURS];
    int64_t several = 0, count = 0;
    for (int64_t number = 0; number < ngrams; number++)
        __builtin_prefetch(index->starts + scratch->buckets[number]);
    for (int64_t number = 0; number < ngrams; number++)
        __builtin_prefetch(index->members + index->starts[scratch->buckets[number]]);
    bool inside = true;
    uint32_t known = (uint32_t)index->known;
    const int32_t *members = index->members;
    for (int64_t number = 0; number < ngrams && inside; number++) {
        uint32_t weight = READ_ONCE(index->weights[scratch->buckets[number]]);
        int64_t first = READ_ONCE(index->starts[scratch->buckets[number]]);
        int64_t last = READ_ONCE(index->starts[scratch->buckets[number] + 1]);
        if (weight == 0 || last - first > COMMON)
            continue;
        inside = first >= 0 && last <= index->members_size && several <= index->known;
        for (int64_t place = first; place < last && inside; place++) {
            uint32_t word = (uint32_t)READ_ONCE(members[place]);
            if (word >= known) {
                inside = false;
                break;
            }
            touched[several] = (int32_t)word;
            several += candidates[word].score == 0;
            candidates[word].score += weight;
        }
    }
    for (int64_t place = 0; place < several; place++) {
        int32_t word = touched[place];
        double shared = candidates[word].score, square = candidates[word].square;
        candidates[word].score = 0;
        if (count == NEIGHBOURS && shared * shared < best[count - 1] * square * SURELY_LESS) /* without a division */
            continue;
        count = insert(word, shared * shared / square, count, best, near);
    }
    return inside ? count : -1;
}

/* Add up what each two of the words have in common; free the slots. */
static void share(
    const struct spelling_index *index, const struct spelling_scratch *scratch, int64_t used, struct kernel *kernel)
{
    memset(kernel->shared, 0, sizeof kernel->shared);
    for (int64_t number = 0; number < used; number++) {
        struct slot *slot = scratch->slots + scratch->used[number];
        int32_t weight = index->weights[slot->bucket];
        for (; slot->words; slot->words &= slot->words - 1) { /* leaves the slot free */
            int32_t *row = kernel->shared[__builtin_ctzll(slot->words)];
            for (uint64_t rest = slot->words; rest; rest &= rest - 1)
                row[__builtin_ctzll(rest)] += weight;
        }
    }
}

/* Set `shares` by ridge regression: Cholesky's decomposition, with the right side as one more column. */
static void solve(int64_t count, struct kernel *kernel, double *shares)
{
    double inverse[NEIGHBOURS + 1];
    for (int64_t one = 0; one <= NEIGHBOURS; one++)
        inverse[one] = kernel->shared[one][one] > 0 ? 1 / sqrt(kernel->shared[one][one]) : 0;
    for (int64_t one = 0; one < count; one++) {
        double *row = kernel->rows[one];
        for (int64_t other = one; other <= NEIGHBOURS; other++) {
            double cosine = kernel->shared[one][other] * inverse[one] * inverse[other];
            row[other] = cosine * sqrt(cosine);
        }
        row[one] = (inverse[one] > 0 ? 1 : 0) + RIDGE;
    }
    for (int64_t step = 0; step < count; step++) {
        double *top = kernel->rows[step], factor = 1 / sqrt(top[step]);
        for (int64_t other = step; other <= NEIGHBOURS; other++)
            top[other] *= factor;
        for (int64_t one = step + 1; one < count; one++) {
            double *below = kernel->rows[one], times = top[one];
            for (int64_t other = one; other <= NEIGHBOURS; other++)
                below[other] -= times * top[other];
        }
    }
    for (int64_t one = count - 1; one >= 0; one--) {
        double total = kernel->rows[one][WORD];
        for (int64_t other = one + 1; other < count; other++)
            total -= kernel->rows[one][other] * shares[other];
        shares[one] = total / kernel->rows[one][one];
    }
}

/* Return the squared length of a row of `padded` numbers, a multiple of eight, in a fixed order. */
static double square_of(const float *row, int64_t padded)
{
    double4 low = {0}, high = {0};
    for (int64_t column = 0; column < padded; column += 8) {
        double4 one = __builtin_convertvector(*(const float4 *)(row + column), double4);
        double4 other = __builtin_convertvector(*(const float4 *)(row + column + 4), double4);
        low += one * one;
        high += other * other;
    }
    low += high;
    return (low[0] + low[2]) + (low[1] + low[3]);
}

/* Ask for a row that is read soon. */
static inline void request(const struct spelling_table *table, int64_t row)
{
    int64_t size = row_bytes(table->kind, table->dimension);
    for (int64_t at = 0; at < size; at += 64)
        __builtin_prefetch((const char *)table->vectors + row * size + at);
}

/* Set `sums` to the sums of the vectors of `near` at length 1, times their `shares`. */
static void add_up(
    const struct spelling_table *table, const int32_t *near, const double *shares, int64_t count, double *sums)
{
    float *row = table->row;
    int64_t dimension = table->dimension;
    for (int64_t one = 0; one < count; one++) {
        read_row(table->vectors, table->kind, near[one], dimension, row);
        float scale = table->kind < INT8 ? 1 : table->scales[near[one]];
        for (int64_t column = 0; column < dimension; column++)
            row[column] *= scale;
        double square = square_of(row, (dimension + 7) / 8 * 8);
        double factor = square > 0 ? shares[one] / sqrt(square) : 0;
        for (int64_t column = 0; column < dimension; column++)
            sums[column] += factor * row[column];
    }
}

/* Mark the n-grams of a word and of its neighbours, and make `near` rows of the table; return the used slots, or -1
   where the index points outside itself or the table. */
static int64_t mark_all(
    const struct spelling_index *index, const struct spelling_scratch *scratch, const struct spelling_table *table,
    int64_t ngrams, int32_t *near, int64_t count)
{
    int64_t total = ngrams, used, starts[NEIGHBOURS], ends[NEIGHBOURS];
    for (int64_t one = 0; one < count; one++) {
        int64_t start = READ_ONCE(index->ends[near[one]]), end = READ_ONCE(index->ends[near[one] + 1]);
        int64_t row = READ_ONCE(index->rows[near[one]]);
        if (start < 0 || end < start || end > index->codes_size || end - start > index->longest || row < 0 ||
            row >= table->words)
            return -1;
        __builtin_prefetch(index->codes + start);
        request(table, row);
        total += SIZES * (end - start);
        starts[one] = start, ends[one] = end, near[one] = (int32_t)row;
    }
    int64_t slots = slots_for(total);
    used = mark(scratch, slots, ngrams, WORD, 0);
    for (int64_t one = 0; one < count; one++) {
        ngrams = list_ngrams(index->codes, starts[one], ends[one], scratch->buckets);
        used = mark(scratch, slots, ngrams, (int)one, used);
    }
    return used;
}

/* Fill `near` and `shares` [words, NEIGHBOURS] and `sums` [words, dimension] for each word codes[ends[i] : ends[i + 1]];
   return whether the index points inside itself and the table, as it did when it was taken: 0, or -1 at once.

   `near` comes as -1, the others as 0; so they stay for a word that shares nothing, and for one of its marks alone. */
EXPORT int64_t spelling_predict(
    const struct spelling_index *index, const struct spelling_scratch *scratch, const struct spelling_table *table,
    const uint32_t *codes, const int64_t *ends, int64_t words, int32_t *near, double *shares, double *sums)
{
    struct kernel kernel;
    for (int64_t word = 0; word < words; word++, near += NEIGHBOURS, shares += NEIGHBOURS, sums += table->dimension) {
        if (ends[word + 1] - ends[word] <= 2)
            continue;
        int64_t ngrams = keep_distinct(scratch, list_ngrams(codes, ends[word], ends[word + 1], scratch->buckets));
        int64_t count = find_candidates(index, scratch, ngrams, near);
        if (count == 0)
            continue;
        int64_t used = count < 0 ? -1 : mark_all(index, scratch, table, ngrams, near, count);
        if (used < 0)
            return -1;
        share(index, scratch, used, &kernel);
        solve(count, &kernel, shares);
        add_up(table, near, shares, count, sums);
    }
    return 0;
}
