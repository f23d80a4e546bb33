/* From a block of UTF-8 to words and their rows: what words_find does with each block of texts, in this order.

   1. `mark` reads 16 to 64 bytes at a time and writes, as bits, which bytes belong to words; ASCII letters are
      lower-cased on the way. It is one pass over the text with no branch for each character.
   2. `separate` clears the bits of separators beyond ASCII, by a table read off BERT's own pre-tokenizer.
   3. `cut` lists where runs of bits start and end: those are the words, as split_words gives them.
   4. `look_up` finds the row of each word in a hash table. Words are compared by their bytes, never by a hash
      alone, so that the result is exactly that of Vocabulary.row; the few that only Python can answer are left to it.

   Time is spent waiting for memory, not computing: a table of 100,000 words fits no cache. Hence a slot is requested
   (prefetched) some words before it is needed. A block is followed by PADDING zeros, so that 64 bytes may be read from
   any place in a text. */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "rows.h"

#if defined __x86_64__
#include <cpuid.h>
#endif

enum {
    CHUNK = 64,         /* bytes whose bits make one word of 64 bits */
    KEY = 16,           /* bytes of a word that are its key */
    BATCH = 32,         /* words whose slots are requested together: each waits while the others' keys are computed */
    LEARNT_BYTES = 128, /* a longer word is not remembered */
};

/* --- From bytes to words ---------------------------------------------------------------------------------------- */

/* Memory that one thread uses for block after block, of `chunks` chunks at most. */
struct words_scratch {
    uint8_t *lowered;     /* [bytes] the block with ASCII letters in lower case */
    uint64_t *word_bits;  /* [chunks] which bytes belong to words */
    uint64_t *other_bits; /* [chunks] which bytes are not ASCII */
    int32_t *edges;       /* [bytes] where words start and end, in turn */
    int32_t *rows;        /* [words] the row of each word of the block, -1 for an unknown word */
    int32_t *missing;     /* [words] which words were not found */
};

#if defined __AVX512BW__
#include <immintrin.h>
enum { LANES = 64 };
typedef uint8_t bytes __attribute__((vector_size(64), aligned(1), may_alias));
static inline uint64_t bits_of(bytes all_or_nothing) { return _mm512_movepi8_mask((__m512i)all_or_nothing); }
#elif defined __AVX2__
#include <immintrin.h>
enum { LANES = 32 };
typedef uint8_t bytes __attribute__((vector_size(32), aligned(1), may_alias));
static inline uint64_t bits_of(bytes all_or_nothing)
{
    return (uint32_t)_mm256_movemask_epi8((__m256i)all_or_nothing);
}
#elif defined __SSE2__
#include <emmintrin.h>
enum { LANES = 16 };
typedef uint8_t bytes __attribute__((vector_size(16), aligned(1), may_alias));
static inline uint64_t bits_of(bytes all_or_nothing) { return (uint32_t)_mm_movemask_epi8((__m128i)all_or_nothing); }
#else
enum { LANES = 16 };
typedef uint8_t bytes __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t pair __attribute__((vector_size(16)));
/* Gather the lowest bit of each byte: the product moves the bit of byte i to bit 56 + i, and no two meet. */
static inline uint64_t bits_of(bytes all_or_nothing)
{
    pair ones = (pair)(all_or_nothing & 1) * UINT64_C(0x0102040810204080) >> 56;
    return ones[0] | ones[1] << 8;
}
#endif

static inline bytes within(bytes values, uint8_t first, uint8_t last)
{
    return (bytes)(values - first <= (uint8_t)(last - first));
}

/* Set what the 64 bytes at `source` are, a bit each: of a word, NUL, not ASCII; copy them lower-cased to `target`. */
static inline void classify(const uint8_t *source, uint8_t *target, uint64_t *word, uint64_t *nul, uint64_t *other)
{
    *word = *nul = *other = 0;
    for (int at = 0; at < CHUNK; at += LANES) {
        bytes chunk = *(const bytes *)(source + at);
        bytes lower = chunk | (within(chunk, 'A', 'Z') & 0x20);
        *(bytes *)(target + at) = lower;
        bytes not_ascii = (bytes)(chunk >= 0x80), zero = (bytes)(chunk == 0);
        bytes of_word = within(lower, 'a', 'z') | within(lower, '0', '9') | within(lower, 0x00, 0x08) |
                        within(lower, 0x0E, 0x1F) | (bytes)(lower == 0x7F) | not_ascii;
        *word |= bits_of(of_word) << at;
        *nul |= bits_of(zero) << at;
        *other |= bits_of(not_ascii) << at;
    }
}

static inline void clear(uint64_t *bits, int64_t place) { bits[place >> 6] &= ~(UINT64_C(1) << (place & 63)); }

/* Functions of Python's stable interface; who calls what calls them holds Python's lock. */
struct python {
    void *(*list_item)(void *list, intptr_t index); /* PyList_GetItem, */
    intptr_t (*string_length)(void *string);        /* PyUnicode_GetLength: in characters, */
    const char *(*string_utf8)(void *string, intptr_t *size); /* PyUnicode_AsUTF8AndSize, */
    intptr_t (*bytes_size)(void *bytes);            /* PyBytes_Size and */
    const char *(*bytes_content)(void *bytes);      /* PyBytes_AsString; each fails with NULL or -1 */
};

/* Return how many characters the strings `first` to `last` of a list have, -1 after an error of Python's. */
EXPORT int64_t words_count_characters(void *list, int64_t first, int64_t last, const struct python *python)
{
    int64_t count = 0;
    for (int64_t text = first; text < last; text++) {
        void *string = python->list_item(list, (intptr_t)text);
        intptr_t length = string ? python->string_length(string) : -1;
        if (length < 0)
            return -1;
        count += length;
    }
    return count;
}

/* Copy the texts of a list into a block, a NUL after each and `padding` NULs at the end; return the bytes without the
   padding, -1 after an error of Python's, -2 where the block's `room` is too small.

   `is_ascii` says for each text whether it is a string of ASCII, or the UTF-8 of another string as bytes: asked for it
   here, Python would keep it beside that string, which doubles the memory of the caller's texts. */
EXPORT int64_t words_join_list(void *list, int64_t texts, const uint8_t *is_ascii, uint8_t *block, int64_t room,
                               int64_t padding, const struct python *python)
{
    int64_t place = 0;
    for (int64_t text = 0; text < texts; text++) {
        void *item = python->list_item(list, (intptr_t)text);
        if (!item)
            return -1;
        intptr_t size;
        const char *content;
        if (is_ascii[text]) {
            content = python->string_utf8(item, &size);
        } else {
            content = python->bytes_content(item);
            size = content ? python->bytes_size(item) : -1;
        }
        if (!content)
            return -1;
        if (size + 1 + padding > room - place)
            return -2;
        memcpy(block + place, content, (size_t)size);
        place += size;
        block[place++] = 0;
    }
    if (padding > room - place)
        return -2;
    memset(block + place, 0, (size_t)padding);
    return place;
}

/* Fill the bit masks; return how many texts end (with `joined`), and set how many chunks have bytes beyond ASCII.

   With `joined`, every NUL of the `used` bytes ends a text, and `ends` is filled, up to `texts`. Without, `ends` is
   given, and any other NUL is part of a word, as it is for BERT. */
static int64_t mark(const uint8_t *block, int64_t used, int32_t *ends, int64_t texts, int64_t joined,
                    const struct words_scratch *scratch, int64_t *beyond)
{
    int64_t found = 0, chunks = (used + CHUNK - 1) / CHUNK;
    *beyond = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        uint64_t word, nul, other;
        classify(block + chunk * CHUNK, scratch->lowered + chunk * CHUNK, &word, &nul, &other);
        if (joined) {
            word &= ~nul;
            for (; nul; nul &= nul - 1) { /* which clears the lowest bit that is 1 */
                int64_t at = chunk * CHUNK + __builtin_ctzll(nul);
                if (at < used) {
                    if (found < texts)
                        ends[found] = (int32_t)at;
                    found++;
                }
            }
        }
        scratch->word_bits[chunk] = word;
        scratch->other_bits[chunk] = other;
        *beyond += other != 0;
    }
    if (!joined) {
        for (int64_t text = 0; text < texts; text++) {
            int64_t end = READ_ONCE(ends[text]);
            if (end >= 0 && end < used)
                clear(scratch->word_bits, end);
        }
        for (int64_t at = used; at < chunks * CHUNK; at++)
            clear(scratch->word_bits, at);
    }
    return found;
}

/* Clear the bits of separators beyond ASCII; return the first code point whose class is not known yet, or -1.

   `classes` holds for each code point 0 for not known, 1 for part of a word, 2 for separator, 3 for part of a word that
   may have another normal form, 4 for one of a script without spaces. In the place of -1 it is -2 where there is a 3,
   -3 where there is a 4, and -4 where there are both. */
static int64_t separate(const uint8_t *block, int64_t used, const uint8_t *classes,
                        const struct words_scratch *scratch)
{
    uint32_t seen = 0; /* a bit for each class */
    for (int64_t chunk = 0; chunk < (used + CHUNK - 1) / CHUNK; chunk++) {
        for (uint64_t other = scratch->other_bits[chunk]; other; other &= other - 1) {
            int64_t at = chunk * CHUNK + __builtin_ctzll(other);
            uint32_t lead = block[at];
            if (lead < 0xC0) /* the second to fourth byte of a code point */
                continue;
            int size = 2 + (lead >= 0xE0) + (lead >= 0xF0); /* 110xxxxx begins two bytes, 1110xxxx three, ... */
            uint32_t point = lead & (0x7Fu >> size);
            for (int byte = 1; byte < size; byte++) /* each of the form 10xxxxxx */
                point = point << 6 | (block[at + byte] & 0x3F);
            point = point < 0x110000 ? point : 0xFFFD; /* of bytes that are not UTF-8 */
            if (classes[point] == 0)
                return point;
            seen |= 1u << (classes[point] & 7);
            if (classes[point] == 2)
                for (int byte = 0; byte < size; byte++)
                    clear(scratch->word_bits, at + byte);
        }
    }
    return -1 - (int64_t)(seen >> 3 & 3);
}

/* List the edges of the words, turn `ends` from bytes into words, and return the number of words.

   A byte is an edge where it belongs to a word and the byte before it does not, or the reverse:

       text    . t h e   c a t .
       word    0 1 1 1 0 1 1 1 0
       before  0 0 1 1 1 0 1 1 1     the bits of `word`, each moved to the next byte
       edges   0 1 0 0 1 1 0 0 1     word XOR before: 1 to 4 is "the", 5 to 8 is "cat" */
static int64_t cut(int64_t used, int32_t *ends, int64_t texts, const struct words_scratch *scratch)
{
    int64_t found = 0, text = 0;
    uint64_t carry = 0;
    for (int64_t chunk = 0; chunk < (used + CHUNK - 1) / CHUNK; chunk++) {
        uint64_t word = scratch->word_bits[chunk];
        uint64_t edges = word ^ (word << 1 | carry); /* the lowest bit is the first byte: "next" is a shift to the left */
        carry = word >> 63;                          /* the last byte of this chunk is before the first of the next */
        for (; text < texts && ends[text] < chunk * CHUNK + CHUNK; text++) {
            uint64_t upto = (UINT64_C(2) << (ends[text] & 63)) - 1; /* a 1 for each byte up to the text's end */
            ends[text] = (int32_t)((found + __builtin_popcountll(edges & upto)) >> 1); /* two edges a word */
        }
        for (; edges; edges &= edges - 1)
            scratch->edges[found++] = (int32_t)(chunk * CHUNK + __builtin_ctzll(edges));
    }
    return found >> 1;
}

/* --- From words to rows ------------------------------------------------------------------------------------------ */

/* Words and their rows: a hash table with open addressing. A word's slot is the first free one from its hash on. It is
   never more than half full, so that a search meets about one slot.

   Up to 16 bytes a word's key is the word; of a longer word it is a hash, and the bytes in `blob` decide. */
struct slot {
    uint64_t first, second; /* the key */
    uint32_t length, start; /* of the word, 0 for a free slot; where it begins in `blob` */
    int64_t row;            /* -1 for an unknown word, and in a free slot */
};

struct words_index {
    struct slot *slots; /* [2 ** bits] */
    int64_t bits;
    uint8_t *blob; /* [size + KEY] the words */
    int64_t size;
    uint64_t mixers[2]; /* odd random factors, new each time: nobody can prepare words that all collide */
    int64_t words, used; /* how many words and bytes it holds, where it grows; see `learn` */
};

/* Everything that decides which row a word has. */
struct words_lexicon {
    struct words_index *words;         /* the vocabulary */
    struct words_index *learnt;        /* rows found for words that are not in it */
    struct words_index *first, *inside; /* BERT's pieces at the start of a word and inside one, without the mark ## */
    int64_t longest;                   /* bytes of the longest piece; 0 where the tokenizer is of another kind */
    int64_t longest_word;              /* bytes; a longer word is not cut into pieces */
    int64_t lower;                     /* pieces are of words in lower case */
    int64_t cased;          /* the vocabulary has words that are not lower-case: try a word as it is first */
    int64_t exact;          /* a word is never looked up in lower case: "US" is not "us" */
    int64_t complete;       /* there is no prefix to try: an ASCII word that is not found is unknown */
};

struct key {
    uint64_t first, second;
};

static inline uint64_t load(const uint8_t *text)
{
    uint64_t value;
    memcpy(&value, text, sizeof value);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

/* Return the first `count` of the 8 bytes at `text`, all of them for a larger count. */
static inline uint64_t load_part(const uint8_t *text, int64_t count)
{
    return count < 8 ? load(text) & ((UINT64_C(1) << 8 * count) - 1) : load(text);
}

static const uint8_t WORD_BYTES[2 * KEY] = {255, 255, 255, 255, 255, 255, 255, 255,
                                            255, 255, 255, 255, 255, 255, 255, 255}; /* and 16 zeros */

/* Return a key of 16 bytes for a word: its bytes, or for more than 16 a hash of them.

   The bytes after a short word are masked, not left out: how long the next word is cannot be predicted. */
static inline struct key key_of(const struct words_index *index, const uint8_t *word, int64_t length)
{
    const uint8_t *mask = WORD_BYTES + (length < KEY ? KEY - length : 0);
    struct key key = {load(word) & load(mask), load(word + 8) & load(mask + 8)};
    if (length > KEY) /* a secret factor here, too: words whose first and third 8 bytes change places would collide */
        key.first = (key.first ^ index->mixers[1]) * index->mixers[0];
    for (int64_t at = KEY; at < length; at += 8) {
        key.first = (key.first ^ load_part(word + at, length - at)) * UINT64_C(0x2545F4914F6CDD1D);
        key.first ^= key.first >> 29;
        key.second = (key.second + key.first) * UINT64_C(0x369DEA0F31A53F85);
    }
    return key;
}

/* Return the first slot to try for a key: the highest bits of the products, which depend on every bit of it. */
static inline uint64_t home_of(const struct words_index *index, struct key key, int64_t length)
{
    return (key.first * index->mixers[0] + key.second * index->mixers[1] + (uint64_t)length) >> (64 - index->bits);
}

/* Return the first slot from `place` on that is free or holds the word. */
static inline struct slot *find_from(const struct words_index *index, uint64_t place, struct key key,
                                     const uint8_t *word, int64_t length)
{
    uint64_t mask = (UINT64_C(1) << index->bits) - 1;
    for (;; place = (place + 1) & mask) {
        struct slot *slot = &index->slots[place];
        if (slot->length == 0)
            return slot;
        if (slot->first == key.first && slot->second == key.second && slot->length == length &&
            (length <= KEY || memcmp(index->blob + slot->start, word, (size_t)length) == 0))
            return slot;
    }
}

static inline struct slot *find(const struct words_index *index, const uint8_t *word, int64_t length)
{
    struct key key = key_of(index, word, length);
    return find_from(index, home_of(index, key, length), key, word, length);
}

static inline void fill(const struct words_index *index, struct slot *slot, const uint8_t *word, int64_t length,
                        int64_t start, int64_t row)
{
    struct key key = key_of(index, word, length);
    *slot = (struct slot){key.first, key.second, (uint32_t)length, (uint32_t)start, row};
}

/* Empty an index. */
EXPORT void words_forget(struct words_index *index)
{
    int64_t count = INT64_C(1) << index->bits;
    memset(index->slots, 0, (size_t)count * sizeof *index->slots);
    for (int64_t place = 0; place < count; place++)
        index->slots[place].row = -1;
    index->words = index->used = 0;
}

/* Put the words blob[starts[i]:starts[i + 1]], each with its number, into the index, unless they are there. */
EXPORT void words_insert(struct words_index *index, const int64_t *starts, int64_t words)
{
    for (int64_t word = 0; word < words; word++) {
        const uint8_t *text = index->blob + starts[word];
        int64_t length = starts[word + 1] - starts[word];
        struct slot *slot = length ? find(index, text, length) : NULL;
        if (slot && slot->length == 0)
            fill(index, slot, text, length, starts[word], word);
    }
}

/* Put a word with its row into an index that is emptied when it is full. */
static void learn(struct words_index *index, const uint8_t *word, int64_t length, int64_t row)
{
    if (length == 0 || length > LEARNT_BYTES || length > index->size)
        return;
    if (2 * index->words >= INT64_C(1) << index->bits || index->used + length > index->size)
        words_forget(index);
    struct slot *slot = find(index, word, length);
    if (slot->length == 0) {
        memcpy(index->blob + index->used, word, (size_t)length);
        fill(index, slot, word, length, index->used, row);
        index->words++;
        index->used += length;
    }
}

/* Put the words block[edges[2 w]:edges[2 w + 1]] for w in `which` with their `rows` into the learnt ones. */
EXPORT void words_learn(struct words_index *index, const uint8_t *block, const int32_t *edges, const int32_t *which,
                        const int32_t *rows, int64_t words)
{
    for (int64_t word = 0; word < words; word++) {
        int64_t start = edges[2 * (int64_t)which[word]], end = edges[2 * (int64_t)which[word] + 1];
        learn(index, block + start, end - start, rows[word]);
    }
}

static inline bool is_ascii(const uint8_t *word, int64_t length)
{
    uint64_t every = 0;
    for (int64_t at = 0; at < length; at += 8)
        every |= load_part(word + at, length - at);
    return (every & UINT64_C(0x8080808080808080)) == 0;
}

/* Whether a word, which holds neither blank nor punctuation, has no control character and none beyond ASCII. */
static inline bool is_alphanumeric(const uint8_t *word, int64_t length)
{
    for (int64_t at = 0; at < length; at++)
        if (word[at] < 0x30 || word[at] >= 0x7F)
            return false;
    return true;
}

/* Return the row of the longest known prefix that ends between two pieces, or -1; see Vocabulary.row. */
static int64_t prefix_row(const struct words_lexicon *lexicon, const uint8_t *word, int64_t length)
{
    int64_t row = -1;
    if (length > lexicon->longest_word)
        return row;
    const struct words_index *pieces = lexicon->first;
    for (int64_t place = 0; place < length; pieces = lexicon->inside) {
        int64_t piece = length - place < lexicon->longest ? length - place : lexicon->longest;
        while (piece > 0 && find(pieces, word + place, piece)->length == 0)
            piece--;
        if (piece == 0) /* the word has no pieces */
            return -1;
        place += piece;
        if (place < length) {
            int64_t known = find(lexicon->words, word, place)->row;
            row = known >= 0 ? known : row;
        }
    }
    return row;
}

/* Set the row of a word that is not in the vocabulary; return whether only Python can find it. */
static bool try_further(const struct words_lexicon *lexicon, const uint8_t *block, const struct words_scratch *scratch,
                        int64_t word)
{
    int64_t start = scratch->edges[2 * word], length = scratch->edges[2 * word + 1] - start;
    const uint8_t *written = block + start, *lowered = scratch->lowered + start;
    if (lexicon->complete && is_ascii(written, length))
        return false;
    const struct slot *slot = find(lexicon->learnt, written, length);
    scratch->rows[word] = (int32_t)slot->row;
    if (slot->length)
        return false;
    if (lexicon->longest > 0 && is_alphanumeric(written, length)) {
        int64_t row = prefix_row(lexicon, lexicon->lower ? lowered : written, length);
        scratch->rows[word] = (int32_t)row;
        learn(lexicon->learnt, written, length, row);
        return false;
    }
    return true;
}

/* A word that will be looked up: its key and its first slot. */
struct probe {
    struct key key;
    uint64_t home;
};

static inline struct probe probe_for(const struct words_index *index, const uint8_t *word, int64_t length)
{
    struct key key = key_of(index, word, length);
    struct probe probe = {key, home_of(index, key, length)};
    __builtin_prefetch(&index->slots[probe.home]);
    return probe;
}

/* Set the row of each word; list those that are neither in the vocabulary nor learnt, and return how many. */
static int64_t look_up(const struct words_lexicon *lexicon, const uint8_t *block, const struct words_scratch *scratch,
                       int64_t words)
{
    const struct words_index *index = lexicon->words;
    const uint8_t *text = lexicon->cased ? block : scratch->lowered;
    struct probe probes[BATCH], lowered[BATCH];
    int64_t missing = 0;
    for (int64_t batch = 0; batch < words; batch += BATCH) {
        int64_t last = batch + BATCH < words ? batch + BATCH : words;
        for (int64_t word = batch; word < last; word++) {
            int64_t start = scratch->edges[2 * word], length = scratch->edges[2 * word + 1] - start;
            probes[word - batch] = probe_for(index, text + start, length);
            if (lexicon->cased && !lexicon->exact)
                lowered[word - batch] = probe_for(index, scratch->lowered + start, length);
        }
        for (int64_t word = batch; word < last; word++) {
            int64_t start = scratch->edges[2 * word], length = scratch->edges[2 * word + 1] - start;
            struct probe probe = probes[word - batch];
            int64_t row = find_from(index, probe.home, probe.key, text + start, length)->row;
            /* lowering ASCII letters alone could meet a half-lowered word of the vocabulary */
            if (row < 0 && lexicon->cased && !lexicon->exact && is_ascii(block + start, length)) {
                probe = lowered[word - batch];
                row = find_from(index, probe.home, probe.key, scratch->lowered + start, length)->row;
            }
            scratch->rows[word] = (int32_t)row;
            if (row < 0 && try_further(lexicon, block, scratch, word))
                scratch->missing[missing++] = (int32_t)word;
        }
    }
    return missing;
}

/* Look up the missing words `first` to `last` once more; list those still missing from `first` on, return how many.

   What was learnt of the words before them may be the answer. */
EXPORT int64_t words_look_again(const struct words_lexicon *lexicon, const uint8_t *block,
                                const struct words_scratch *scratch, int64_t first, int64_t last)
{
    int64_t missing = first;
    for (int64_t place = first; place < last; place++) {
        int32_t word = scratch->missing[place];
        if (try_further(lexicon, block, scratch, word))
            scratch->missing[missing++] = word;
    }
    return missing - first;
}

enum { NUL_IN_TEXT = -1, UNCLASSIFIED = -16 }; /* as in kernels.py */

/* Find the words of a block and their rows; return how many words are missing and set how many there are.

   Below 0 nothing is found: NUL_IN_TEXT where, with `joined`, a NUL stands within a text; UNCLASSIFIED - c for the first
   code point c whose class is not known yet; and what `separate` returns where it is one of `stops`, 1 for other forms
   and 2 for scripts without spaces. */
EXPORT int64_t words_find(const struct words_lexicon *lexicon, const uint8_t *block, int64_t used, int32_t *ends,
                          int64_t texts, int64_t joined, const uint8_t *classes, int64_t stops,
                          const struct words_scratch *scratch, int64_t *words)
{
    int64_t beyond, found = mark(block, used, ends, texts, joined, scratch, &beyond);
    if (joined && found != texts)
        return NUL_IN_TEXT;
    if (beyond) {
        int64_t point = separate(block, used, classes, scratch);
        if (point >= 0)
            return UNCLASSIFIED - point;
        int64_t stop = (-1 - point) & stops;
        if (stop)
            return -1 - stop;
    }
    *words = cut(used, ends, texts, scratch);
    return look_up(lexicon, block, scratch, *words);
}

enum { BLANK = 1, OPENING = 2, CLOSING = 4 }; /* what a byte is beside a word; see BYTE_CLASSES of index/terms.py */

/* Set is_token[w] to whether word w stands between blanks, with at most one mark before it and one after it. */
EXPORT void words_list_tokens(const uint8_t *block, const uint8_t *classes, const struct words_scratch *scratch,
                              int64_t words, uint8_t *is_token)
{
    for (int64_t word = 0; word < words; word++) {
        const uint8_t *start = block + scratch->edges[2 * word], *end = block + scratch->edges[2 * word + 1];
        bool begins = start == block || classes[start[-1]] & BLANK ||
                      (classes[start[-1]] & OPENING && (start - 1 == block || classes[start[-2]] & BLANK));
        is_token[word] = begins && (classes[end[0]] & BLANK || (classes[end[0]] & CLOSING && classes[end[1]] & BLANK));
    }
}

/* Number the distinct ones of `values`, but for negative ones, in the order of their first places; return how many.

   first[n] becomes the first place of number n, counts[n] how often it stands, which[i] the number of value i, -1 for a
   negative one. `slots` [2 ** bits], more than twice as many as values, are -1: the numbers in a hash table. */
EXPORT int64_t words_distinct(const int64_t *values, int64_t count, int32_t *slots, int64_t bits, int64_t *first,
                              int64_t *counts, int64_t *which)
{
    int64_t found = 0;
    uint64_t mask = (UINT64_C(1) << bits) - 1;
    for (int64_t at = 0; at < count; at++) {
        which[at] = -1;
        if (values[at] < 0)
            continue;
        uint64_t place = (uint64_t)values[at] * UINT64_C(0x9E3779B97F4A7C15) >> (64 - bits);
        while (slots[place] >= 0 && values[first[slots[place]]] != values[at])
            place = (place + 1) & mask;
        if (slots[place] < 0) {
            slots[place] = (int32_t)found;
            first[found] = at;
            counts[found++] = 0;
        }
        which[at] = slots[place];
        counts[which[at]]++;
    }
    return found;
}

/* Group the words of each text by their numbers, which are from 0; return how many groups there are.

   The words of text t stand before ends[t]. Its groups are in the order of their first words and end at last[t];
   numbers and counts are those of each group, and `order` has the places of the words, group by group. `slots` are
   zeros, one for each number that a word may have, and are left so. */
EXPORT int64_t words_group(const int64_t *words, const int64_t *ends, int64_t texts, int64_t *slots, int64_t *numbers,
                           int64_t *counts, int64_t *order, int64_t *last)
{
    int64_t groups = 0, first = 0;
    for (int64_t text = 0; text < texts; text++) {
        int64_t begin = groups, place = first;
        for (int64_t word = first; word < ends[text]; word++)
            if (slots[words[word]]++ == 0)
                numbers[groups++] = words[word];
        for (int64_t group = begin; group < groups; group++) {
            counts[group] = slots[numbers[group]];
            slots[numbers[group]] = place;
            place += counts[group];
        }
        for (int64_t word = first; word < ends[text]; word++)
            order[slots[words[word]]++] = word;
        for (int64_t group = begin; group < groups; group++)
            slots[numbers[group]] = 0;
        last[text] = groups;
        first = ends[text];
    }
    return groups;
}

/* Return the number of the sources that this was compiled from; see hatch_build.py. */
EXPORT int64_t native_sources(void) { return PELLUCID_SOURCES; }

/* Return what the processor can do: 0, 1 for what kernels-avx2 needs, 2 for kernels-avx512, 3 for kernels-vnni. */
EXPORT int64_t native_level(void)
{
#if defined __x86_64__ /* asked itself: with zig's compiler __builtin_cpu_supports is always false */
    const unsigned one = bit_OSXSAVE | bit_AVX | bit_F16C | bit_POPCNT, seven = bit_AVX2 | bit_BMI | bit_BMI2;
    const unsigned wide = bit_AVX512F | bit_AVX512BW | bit_AVX512VL;
    unsigned a, b, c, d, kept, extra;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & one) != one || !__get_cpuid_count(7, 0, &a, &b, &extra, &d))
        return 0;
    __asm__("xgetbv" : "=a"(kept), "=d"(d) : "c"(0)); /* the registers that the system keeps for each process */
    if ((b & seven) != seven || (kept & 0x06) != 0x06)
        return 0;
    if ((b & wide) != wide || (kept & 0xE6) != 0xE6)
        return 1;
    return extra & bit_AVX512VNNI ? 3 : 2;
#else
    return 0;
#endif
}
