"""How often each term of BM25 stands in each of many passages, counted in C by the numbers of tokens.

`Analyser.terms` says what the terms of a text are. A token, what stands between blanks, has the same terms wherever it
stands, but for acronyms on which its line decides. So each distinct token is looked up once; the rest is C (terms.c).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from pellucid.index.arrays import Integers, TermCounts, hash_strings
from pellucid.index.terms import Analyser
from pellucid.native.terms import TokenLists, TokenTable, count_terms
from pellucid.text.lines import batches_by_size
from pellucid.text.unicode import normalize

MAX_CACHED_TOKENS, MAX_CACHED_BYTES = 1 << 20, 64 << 20
"""Tokens, and bytes of them, that are remembered; then all are forgotten."""

_BLOCK_CHARS = 1 << 18  # characters of texts counted together, which fit a core's cache; a longer text is one block


class TermCounter:
    """Counts the terms of passages; each distinct token is analysed once. For one thread."""

    def __init__(self, analyser: Analyser) -> None:
        """Take what makes terms of texts."""
        self._analyser = analyser
        self._numbers: dict[str, int] = {}
        self._hashes: Integers = np.zeros(0, np.int64)
        self._forget_tokens()

    def _forget_tokens(self) -> None:
        self._tokens: TokenTable | None = None
        empty, start = np.zeros(0, np.int32), np.zeros(1, np.int64)
        self._token_lists = TokenLists(np.zeros(0, np.uint8), start, empty, start, empty)

    def count(self, texts: Sequence[str]) -> TermCounts:
        """Return how often each term stands in each of some passages."""
        forms = [text if text.isascii() else normalize(text).text for text in texts]
        blocks = list(batches_by_size(forms, len(forms), len, _BLOCK_CHARS)) or [[]]
        return TermCounts.joined(list(map(self._count_block, blocks)))

    def _count_block(self, forms: list[str]) -> TermCounts:
        if self._tokens is None or len(self._tokens) > MAX_CACHED_TOKENS or self._tokens.n_bytes > MAX_CACHED_BYTES:
            self._forget_tokens()
            self._tokens = TokenTable()
        n_known = len(self._tokens)
        numbers, ends = self._tokens.read([form.encode() for form in forms])
        if len(self._tokens) > n_known:
            self._learn_tokens(self._tokens.tokens(n_known))
        return TermCounts(self._hashes, *count_terms(self._token_lists, numbers, ends, len(self._numbers)))

    def _learn_tokens(self, tokens: list[str]) -> None:
        """Remember the terms of more tokens."""
        values = map(self._analyser.value, tokens)
        several = [((value,) if value else (), ()) if isinstance(value, str) else value for value in values]
        terms = list(chain.from_iterable(terms for terms, _ in several))
        acronyms = [(part.acronym, part.is_letter) for _, parts in several for part in parts]
        lists, numbers = self._token_lists, self._numbers
        new = [t for t in dict.fromkeys([*terms, *(acronym for acronym, _ in acronyms)]) if t not in numbers]
        if new:
            numbers.update(zip(new, range(len(numbers), len(numbers) + len(new))))
            self._hashes = np.concatenate([self._hashes, hash_strings(new)])
        flags = np.fromiter(map(self._analyser.context_flags, tokens), np.uint8, len(tokens))
        term_numbers = np.array([numbers[term] for term in terms], np.int32)
        acronym_numbers = np.array([2 * numbers[acronym] + is_letter for acronym, is_letter in acronyms], np.int32)
        self._token_lists = TokenLists(
            np.concatenate([lists.flags, flags]),
            _with_sizes(lists.term_starts, [len(terms) for terms, _ in several]),
            np.concatenate([lists.terms, term_numbers]),
            _with_sizes(lists.acronym_starts, [len(parts) for _, parts in several]),
            np.concatenate([lists.acronyms, acronym_numbers]),
        )


def _with_sizes(starts: Integers, sizes: Sequence[int]) -> Integers:
    """Return where lists start and the last ends, after more of some sizes."""
    return np.concatenate([starts, starts[-1] + np.cumsum(sizes, dtype=np.int64)])
