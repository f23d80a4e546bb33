/* From passages to the lists of BM25: tokens by number, how often each term stands in a passage, and the lists by term.

   index/postings.py asks for them in this order; index/terms.py says what the terms of a token are.

   1. terms_read cuts texts at blanks, as str.split does, and numbers the tokens; new ones are put into a table.
   2. Python is asked for the terms of each new token, and what it tells of the tokens around it.
   3. terms_count counts the terms of each text. Whether a word in capitals is an acronym, its line decides, by the rule
      of Analyser.is_acronym.
   4. terms_invert sorts the counts by term; the passages of a term stay in their order. */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "rows.h"

enum {
    LINE_END = -1,                                      /* stands among the tokens */
    HAS_LOWER_CASE = 1, IN_CAPITALS = 2, BEFORE_LETTER = 4, /* what a token tells; as in postings.py */
    CONTEXT_TOKENS = 20, MAX_ACRONYMS_IN_A_ROW = 3,     /* as in terms.py */
};

struct terms_slot {
    uint32_t hash;
    uint32_t number; /* of the token, from 1; 0 for a free slot */
};

/* Distinct tokens: number n is blob[starts[n]:starts[n + 1]]. */
struct terms_tokens {
    struct terms_slot *slots; /* [2 ** bits] of which at most half are used */
    int64_t bits;
    uint8_t *blob; /* followed by 8 bytes */
    int64_t *starts;
    int64_t count;
    uint64_t mixers[2]; /* secret, odd: nobody can choose tokens that collide */
};

/* --- Tokens ----------------------------------------------------------------------------------------------------- */

static inline uint64_t token_hash(const struct terms_tokens *tokens, const uint8_t *token, int64_t length)
{
    uint64_t hash = (uint64_t)length * tokens->mixers[1];
    for (int64_t at = 0; at < length; at += 8) {
        uint64_t part = 0;
        memcpy(&part, token + at, 8);
        if (length - at < 8)
            part &= (UINT64_C(1) << 8 * (length - at)) - 1;
        hash = (hash ^ part) * tokens->mixers[0];
        hash ^= hash >> 32;
    }
    return hash * tokens->mixers[1];
}

static inline struct terms_slot *token_slot(const struct terms_tokens *tokens, uint64_t hash, const uint8_t *token,
                                            int64_t length)
{
    uint64_t mask = (UINT64_C(1) << tokens->bits) - 1;
    for (uint64_t place = hash >> (64 - tokens->bits);; place = (place + 1) & mask) {
        struct terms_slot *slot = &tokens->slots[place];
        if (slot->number == 0)
            return slot;
        int64_t start = tokens->starts[slot->number - 1];
        if (slot->hash == (uint32_t)hash && tokens->starts[slot->number] - start == length &&
            memcmp(tokens->blob + start, token, (size_t)length) == 0)
            return slot;
    }
}

/* Fill the empty slots of a table with the tokens that it has. */
EXPORT void terms_index(struct terms_tokens *tokens)
{
    for (int64_t number = 0; number < tokens->count; number++) {
        const uint8_t *token = tokens->blob + tokens->starts[number];
        int64_t length = tokens->starts[number + 1] - tokens->starts[number];
        uint64_t hash = token_hash(tokens, token, length);
        *token_slot(tokens, hash, token, length) = (struct terms_slot){(uint32_t)hash, (uint32_t)number + 1};
    }
}

/* Return the number of a token, which is put into the table if it is new. */
static inline int32_t token_number(struct terms_tokens *tokens, const uint8_t *token, int64_t length)
{
    uint64_t hash = token_hash(tokens, token, length);
    struct terms_slot *slot = token_slot(tokens, hash, token, length);
    if (slot->number == 0) {
        int64_t start = tokens->starts[tokens->count];
        memcpy(tokens->blob + start, token, (size_t)length);
        *slot = (struct terms_slot){(uint32_t)hash, (uint32_t)++tokens->count};
        tokens->starts[tokens->count] = start + length;
    }
    return (int32_t)slot->number - 1;
}

/* Return the bytes of the blank that begins at `text`, 0 for none: those of str.split. */
static inline int64_t blank_size(const uint8_t *text, int64_t left)
{
    uint8_t first = text[0];
    if (first < 0x80)
        return first == 0x20 || (first >= 0x09 && first <= 0x0D) || (first >= 0x1C && first <= 0x1F);
    if (first == 0xC2)
        return left > 1 && (text[1] == 0x85 || text[1] == 0xA0) ? 2 : 0;
    if (left < 3 || first < 0xE1 || first > 0xE3)
        return 0;
    uint8_t second = text[1], third = text[2];
    if (first == 0xE1) /* U+1680 */
        return second == 0x9A && third == 0x80 ? 3 : 0;
    if (first == 0xE3) /* U+3000 */
        return second == 0x80 && third == 0x80 ? 3 : 0;
    if (second == 0x80) /* U+2000 to U+200A, U+2028, U+2029, U+202F */
        return third <= 0x8A || third == 0xA8 || third == 0xA9 || third == 0xAF ? 3 : 0;
    return second == 0x81 && third == 0x9F ? 3 : 0; /* U+205F */
}

/* Number the tokens of texts, whose UTF-8 ends at ends[text] in `block`, which is followed by 8 bytes.

   `numbers`, as many as the block has bytes, get them, LINE_END for each line feed; token_ends[text] is where a text's
   end among these. The table has room for as many more tokens and bytes as the block may have. */
EXPORT void terms_read(struct terms_tokens *tokens, const uint8_t *block, const int64_t *ends, int64_t texts,
                       int32_t *numbers, int64_t *token_ends)
{
    int64_t at = 0, count = 0;
    for (int64_t text = 0; text < texts; text++) {
        int64_t end = ends[text];
        while (at < end) {
            int64_t blank = blank_size(block + at, end - at);
            if (blank) {
                if (block[at] == '\n')
                    numbers[count++] = LINE_END;
                at += blank;
                continue;
            }
            int64_t start = at;
            while (at < end && !blank_size(block + at, end - at))
                at++;
            numbers[count++] = token_number(tokens, block + start, at - start);
        }
        token_ends[text] = count;
    }
}

/* --- Counts ------------------------------------------------------------------------------------------------------- */

/* What is known of each token. */
struct terms_known {
    const uint8_t *flags;         /* [tokens] */
    const int64_t *term_starts;   /* [tokens + 1] */
    const int32_t *terms;         /* the terms that it has for certain */
    const int64_t *acronym_starts; /* [tokens + 1] */
    const int32_t *acronyms;      /* those that its line decides on: 2 * term, + 1 for a single letter */
};

/* Whether a line says that a word in capitals is an acronym; see Analyser.is_acronym. */
static bool is_acronym(const uint8_t *flags, const int32_t *line, int64_t size, int64_t index, bool is_letter)
{
    int in_a_row = 1, in_capitals = 1;
    bool has_lower_case = false;
    for (int64_t step = -1; step <= 1; step += 2) {
        bool in_row = true;
        for (int64_t steps = 1; steps < CONTEXT_TOKENS; steps++) {
            int64_t place = index + step * steps;
            if (place < 0 || place >= size || (has_lower_case && !in_row))
                break;
            uint8_t flag = flags[line[place]];
            if (flag & HAS_LOWER_CASE) {
                has_lower_case = true;
                in_row = false;
            } else if (flag & IN_CAPITALS) {
                in_capitals++;
                in_a_row += in_row;
                if (in_a_row > MAX_ACRONYMS_IN_A_ROW && !is_letter)
                    return false;
            } else {
                in_row = false;
            }
        }
    }
    if (is_letter)
        return has_lower_case && index > 0 && flags[line[index - 1]] & BEFORE_LETTER;
    return has_lower_case || in_capitals == 1;
}

static inline int64_t count_term(int32_t term, int32_t *counts, int32_t *out_terms, int64_t out)
{
    if (counts[term]++ == 0)
        out_terms[out++] = term;
    return out;
}

/* Count the terms of texts, whose tokens `numbers` end at token_ends[text]; return how many there are of each text.

   `counts` are zeros, one for each term, and are left so. The terms of a text, each once, and how often it stands there
   end at out_ends[text]; there is room for all terms of all tokens. */
EXPORT int64_t terms_count(const struct terms_known *known, const int32_t *numbers, const int64_t *token_ends,
                           int64_t texts, int32_t *counts, int32_t *out_terms, int32_t *out_counts, int64_t *out_ends)
{
    int64_t out = 0, at = 0;
    for (int64_t text = 0; text < texts; text++) {
        int64_t first = out, end = token_ends[text];
        while (at < end) {
            int64_t size = 0;
            const int32_t *line = numbers + at;
            while (at + size < end && line[size] != LINE_END)
                size++;
            for (int64_t index = 0; index < size; index++) {
                int32_t token = line[index];
                for (int64_t i = known->term_starts[token]; i < known->term_starts[token + 1]; i++)
                    out = count_term(known->terms[i], counts, out_terms, out);
                for (int64_t i = known->acronym_starts[token]; i < known->acronym_starts[token + 1]; i++)
                    if (is_acronym(known->flags, line, size, index, known->acronyms[i] & 1))
                        out = count_term(known->acronyms[i] >> 1, counts, out_terms, out);
            }
            at += size + (at + size < end); /* and the line feed */
        }
        for (int64_t i = first; i < out; i++) {
            out_counts[i] = counts[out_terms[i]];
            counts[out_terms[i]] = 0;
        }
        out_ends[text] = out;
    }
    return out;
}

/* Sort counts by list: those of `terms`, term t in list lists[t], whose next place is places[list]; ends[passage] is
   where a passage's end. */
EXPORT void terms_invert(const int32_t *terms, const int32_t *counts, const int64_t *ends, int64_t passages,
                         const int32_t *lists, int64_t *places, int32_t *rows, int32_t *values)
{
    for (int64_t passage = 0, at = 0; passage < passages; passage++)
        for (; at < ends[passage]; at++) {
            int64_t place = places[lists[terms[at]]]++;
            rows[place] = (int32_t)passage;
            values[place] = counts[at];
        }
}
