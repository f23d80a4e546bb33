/* Farthest point sampling: the exact search of native/farthest.py, which says why it computes so little.

   Sums are taken over 32 lanes in a fixed order, without fused or reordered operations (the build says
   -ffp-contract=off): every processor level and every number of threads gives the same picks. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "rows.h"

#define LANES 32 /* vectors are padded with zeros to a multiple of it */
#define GROUP 16 /* candidates that share one entry of `lowest` */

struct farthest {
    const void *rows;         /* [count, dimension] */
    int64_t kind;             /* FLOAT32 or FLOAT16 */
    int64_t count, dimension; /* of candidates; numbers in a row */
    int64_t width;            /* `dimension` padded to a multiple of LANES */
    float *inverse;           /* [count] 1 / length, 0 for a row of zeros */
    float *best;              /* [count] greatest similarity to the picks met so far; infinite: never picked */
    int32_t *met;             /* [count] how many picks it has been compared with */
    float *lowest;            /* [groups] the smallest `best` of each 16 candidates */
    float *picks;             /* [picks, width] the picked rows as they are */
    float *scales;            /* [picks] 1 / length of each */
};

struct farthest_found {
    int64_t row;             /* the next pick, -1 where none is left */
    int64_t reads, products; /* rows read, similarities computed */
    float similarity;        /* of the pick to those before it */
};

/* Return a padded row as float32: itself if it is so, else a copy in `work`, which has zeros beyond it. */
static inline const float *read_candidate(const struct farthest *search, int64_t row, float *work)
{
    if (search->kind == FLOAT32 && search->dimension == search->width)
        return (const float *)search->rows + row * search->dimension;
    read_row(search->rows, search->kind, row, search->dimension, work);
    return work;
}

/* Return the product of two padded vectors. */
static inline float dot(const float *left, const float *right, int64_t width)
{
    float8 a = {0}, b = {0}, c = {0}, d = {0};
    for (int64_t at = 0; at < width; at += LANES) {
        a += *(const float8 *)(left + at) * *(const float8 *)(right + at);
        b += *(const float8 *)(left + at + 8) * *(const float8 *)(right + at + 8);
        c += *(const float8 *)(left + at + 16) * *(const float8 *)(right + at + 16);
        d += *(const float8 *)(left + at + 24) * *(const float8 *)(right + at + 24);
    }
    float8 sum = (a + b) + (c + d); /* and then the upper half of the lanes to the lower until one is left */
    float s0 = sum[0] + sum[4], s1 = sum[1] + sum[5], s2 = sum[2] + sum[6], s3 = sum[3] + sum[7];
    return (s0 + s2) + (s1 + s3);
}

/* Set 1 / length of rows [first, last); return the first that is not finite or longer than 1e12, or -1. */
EXPORT int64_t farthest_measure(const struct farthest *search, int64_t first, int64_t last, float *work)
{
    for (int64_t row = first; row < last; row++) {
        const float *vector = read_candidate(search, row, work);
        float square = dot(vector, vector, search->width);
        if (!(square < 1e24))
            return row;
        search->inverse[row] = square > 1e-24 ? 1.0f / sqrtf(square) : 0.0f;
    }
    return -1;
}

/* Make `row` pick `number`, and never again. */
EXPORT void farthest_take(const struct farthest *search, int64_t row, int64_t number)
{
    read_row(search->rows, search->kind, row, search->dimension, search->picks + number * search->width);
    search->scales[number] = search->inverse[row];
    search->best[row] = INFINITY;
}

/* Whether a candidate comes before the one found so far: the lower value, then the lower row. */
static inline bool wins(float value, int64_t row, const struct farthest_found *found)
{
    return value < found->similarity || (value == found->similarity && row < found->row);
}

/* Compare a candidate with the picks it has not met, until it is out of the race; return its new bound. */
static inline float compare(
    const struct farthest *search, int64_t row, int64_t picks, float *work, struct farthest_found *found)
{
    float value = search->best[row];
    int64_t number = search->met[row] > 0 ? search->met[row] : 0;
    const float *vector = read_candidate(search, row, work);
    found->reads++;
    found->products -= number;
    for (; number < picks && wins(value, row, found); number++) {
        float product = dot(vector, search->picks + number * search->width, search->width);
        /* The order of the factors is part of the result: the last digit decides between near-equals. */
        float similarity = product * search->scales[number] * search->inverse[row];
        value = similarity > value ? similarity : value;
    }
    found->products += number;
    search->best[row] = value; /* exact if all picks were met, else still a lower bound */
    search->met[row] = (int32_t)number;
    return value;
}

/* Find the best next pick among groups [first, last), after `picks` of them. */
EXPORT void farthest_search(
    const struct farthest *search, int64_t first, int64_t last, int64_t picks, float *work,
    struct farthest_found *result)
{
    struct farthest_found found = {.row = -1, .similarity = INFINITY};
    for (int64_t group = first; group < last; group++) {
        if (search->lowest[group] > found.similarity) /* no candidate of the group can win */
            continue;
        float smallest = INFINITY;
        int64_t end = group * GROUP + GROUP < search->count ? group * GROUP + GROUP : search->count;
        for (int64_t row = group * GROUP; row < end; row++) {
            float value = search->best[row];
            if (wins(value, row, &found)) {
                value = compare(search, row, picks, work, &found);
                if (wins(value, row, &found)) { /* only after meeting all picks */
                    found.similarity = value;
                    found.row = row;
                }
            }
            smallest = value < smallest ? value : smallest;
        }
        search->lowest[group] = smallest;
    }
    *result = found;
}
