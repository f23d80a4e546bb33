"""BM25: how a text becomes terms, and what each term adds to a score.

    BM25(q, d) = sum over terms t of q of  n_t idf(t) f(t, d) (k1 + 1) / (f(t, d) + k1 (1 - b + b |d| / average))
    idf(t) = ln(1 + (N - N_t + 0.5) / (N_t + 0.5))

with n_t the times t stands in the query, f(t, d) in the passage, |d| the number of the passage's terms, N all passages
and N_t those with t. Only f and |d| are stored; the rest is computed for each query, from the documents that are there
then. A passage's half of each product (its *impact*) stays below k1 + 1, so that the highest score a query can reach is
known without looking at any passage. BM25 divided by it lies in [0, 1).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, missing_extra
from pellucid.text import ENGLISH_STOP_WORDS, Span
from pellucid.unicode import UNSPACED

K1, B = 1.2, 0.5
"""The best of BM25 alone on the training queries of SciFact, with the analyser below; the same for every corpus.

Other reasonable choices on these queries move the mean of four test sets by half a point (docs/search.md).
"""

_WORD = re.compile(rf"[{UNSPACED}]+|[^\W_{UNSPACED}]+")  # a run of a script without spaces, or letters and digits
_UNSPACED = re.compile(rf"[{UNSPACED}]")
_PROBE = "generously raised mortgages horses running häuser schönste nationales corriendo 東京 2024"  # for fingerprints
_MOST_REMEMBERED = 1 << 20  # words whose term is kept


class Analyser:
    """How a text becomes stemmed terms in lower case; scripts without spaces become overlapping pairs of characters."""

    def __init__(self, language: str = "english", stop_words: Iterable[str] | None = None) -> None:
        """Choose one of Snowball's stemmers, or "none"; None takes the stop words for English, and else no words."""
        self.language = language
        given = ENGLISH_STOP_WORDS if stop_words is None and language == "english" else stop_words or ()
        self.stop_words = frozenset(word.lower() for word in given)
        self._stem = _stemmer(language)
        self._term_of: dict[str, str] = {}  # "" for a word that is left out

    @property
    def fingerprint(self) -> str:
        """A hash of all that a stored half of BM25 depends on: k1, b, stop words, and what the stemmer does."""
        facts = (K1, B, sorted(self.stop_words), self.terms(_PROBE))
        return hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()

    def terms(self, text: str) -> list[str]:
        """Return the terms of `text`, in no order."""
        words = _WORD.findall(text)
        terms = list(map(self._term_of.get, words))
        if None in terms:
            new = [word for word, term in zip(words, terms) if term is None]
            terms += [pair for word in new if self._known(word) is None for pair in _pairs(word)]
            terms += [self._known(word) for word in new]
        return [term for term in terms if term]

    def places(self, text: str) -> list[tuple[str, Span]]:
        """Return the terms of `text` in order, each with the place of its word."""
        found: list[tuple[str, Span]] = []
        for match in _WORD.finditer(text):
            term = self._known(match[0])
            if term is None:
                starts = range(match.start(), match.end())
                found += [(pair, (at, at + len(pair))) for at, pair in zip(starts, _pairs(match[0]))]
            elif term:
                found.append((term, match.span()))
        return found

    def _known(self, word: str) -> str | None:
        """Return the term of a word, "" where it has none, None for a run of a script without spaces."""
        term = self._term_of.get(word)
        if term is None and not _UNSPACED.match(word):
            if len(self._term_of) >= _MOST_REMEMBERED:
                self._term_of.clear()
            lowered = word.lower()
            left_out = len(lowered) < 2 or lowered in self.stop_words
            term = self._term_of[word] = "" if left_out else self._stem(lowered)
        return term


def _pairs(run: str) -> list[str]:
    return [run] if len(run) < 2 else [run[at : at + 2] for at in range(len(run) - 1)]


def _stemmer(language: str) -> Any:
    if language == "none":
        return str
    try:
        import Stemmer
    except ImportError as error:
        raise missing_extra("PyStemmer", "search") from error
    if language not in Stemmer.algorithms():
        known = ", ".join(sorted(set(Stemmer.algorithms()) - {"porter", "lovins"}))
        raise InputError(f"language is {language!r:.40}; there are stemmers for {known}; 'none' does not stem")
    return Stemmer.Stemmer(language).stemWord


def impacts(counts: npt.NDArray[Any], length: Any, average: float) -> npt.NDArray[np.float64]:
    """Return a passage's half of BM25: `counts` are [terms] or [passages, terms], `length` one or [passages, 1]."""
    damping = K1 * (1 - B + B * length / average) if average else K1
    return np.asarray(counts * (K1 + 1) / (counts + damping), np.float64)


def total(counts: Iterable[Mapping[str, int]]) -> int:
    """Return the number of terms of some passages."""
    return sum(sum(passage.values()) for passage in counts)


def query_weights(
    counts: Mapping[str, int], passages_with: Mapping[str, int], passages: int, share: float
) -> dict[str, float]:
    """Return the query's half of BM25 for each of its terms that a passage has; the greatest score is `share`."""
    # Terms that no passage has count in what the query could reach: a passage with one of five words of a query is no
    # better because the index lacks the other four.
    weights = {term: count * idf(passages, passages_with.get(term, 0)) for term, count in counts.items()}
    most = sum(weights.values()) * (K1 + 1)
    return {term: share * weight / most for term, weight in weights.items() if passages_with.get(term)}


def idf(passages: int, passages_with: int) -> float:
    """Return the inverse document frequency of a term, never negative."""
    return math.log1p(max(passages - passages_with + 0.5, 0.5) / (passages_with + 0.5))
