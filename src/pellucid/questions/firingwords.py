"""Which word of a text fired a cluster, and what such a word has in common with the cluster's own: letters, meaning."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.dimensions import Dimension
from pellucid.encoders import Encoder, encode_with
from pellucid.lexicon.embedder import LexiconEmbedder
from pellucid.progress import Progress
from pellucid.questions.coordinates import Floats, known_rows
from pellucid.words import well_formed

_BATCH = 32  # texts of one forward pass
_ACTIVE = 256  # coordinates kept of a text or word, where the model keeps more
_FIRST = 3  # words of a cluster that say what it means
_PAIRS = 4_096  # compared at once
_SHARD = "…"  # as `tokenwords` marks a piece of a word
_NOTHING = 1e-6  # of a vector's length; less is rounding
_START, _INSIDE = 2, 3  # letters of a shared piece at least: at the start of both words, elsewhere

Integers = npt.NDArray[np.int64]


class Firing(NamedTuple):
    """A cluster among the strongest of a text: which text, which cluster, what fired it, and its coordinate."""

    text: int
    dimension: int
    word: str
    weight: float


def fired_words(model: LexiconEmbedder, texts: Sequence[str], top_k: int) -> tuple[Any, list[Firing]]:
    """Return the embeddings of `texts` and what fired the strongest clusters of each.

    Args:
        model: with a pooling that knows what fired.
        texts: any number.
        top_k: clusters of each text.

    Returns:
        CSR float32 [texts, dimensions] with rows of length 1 and at most 256 coordinates (more if `top_k` is), and the
        firings, text by text, the strongest first. Firings by what is no word (a mark of punctuation) are left out.
    """
    from scipy import sparse

    model = _sparser(model, max(top_k, _ACTIVE))
    # As `encode` does, but the tokens that fired are kept, and not only their weights.
    readings = model._reader.read(texts, instructed=True)
    order = sorted(range(len(texts)), key=lambda n: -len(readings[n].ids))
    parts, firings = [sparse.csr_matrix((0, model.get_embedding_dimension()), dtype=np.float32)], []
    with Progress("encoding", total=len(texts)) as progress:
        for start in range(0, len(order), _BATCH):
            chosen = order[start : start + _BATCH]
            weights, fired = model._weights([readings[n] for n in chosen])
            rows = model._mixed(weights)
            parts.append(rows)
            for place, number in enumerate(chosen):
                text = well_formed(texts[number])
                where = model._places(text, readings[number], weights[place], fired[place])
                firings += _strongest(rows[[place]], where, number, text, top_k)
            progress.advance(len(chosen))
    cut = sum(reading.cut > 0 for reading in readings)
    if cut:
        warnings.warn(
            f"{cut} of {len(texts)} texts are longer than the model reads; their ends say nothing", stacklevel=3
        )
    return sparse.vstack(parts, format="csr")[np.argsort(order)], sorted(firings, key=lambda f: (f.text, -f.weight))


def _sparser(model: LexiconEmbedder, most: int) -> LexiconEmbedder:
    """Return the model with at most so many coordinates a text, so that thousands of texts fit into memory."""
    most = min(most, model.settings.max_active_dims or most)
    return model.with_settings(replace(model.settings, max_active_dims=most))


def _strongest(row: Any, where: Any, number: int, text: str, top_k: int) -> list[Firing]:
    """Return the firings of one text's row."""
    found = []
    for n in np.argsort(-row.data, kind="stable")[:top_k].tolist():
        dimension = int(row.indices[n])
        for start, end in where(dimension):
            word = text[start:end].casefold()
            if any(map(str.isalnum, word)):
                found.append(Firing(number, dimension, word, float(row.data[n])))
    return found


def own_words(dimension: Dimension) -> frozenset[str]:
    """Return the words and pieces of a cluster, as a text has them, in lower case."""
    return frozenset(map(_plain, dimension.about))


def first_words(dimension: Dimension, *, whole: bool = False) -> list[str]:
    """Return the best-formed words of a cluster; with `whole` no pieces of words, unless it has nothing else."""
    words = [word for word in dimension.about if any(map(str.isalnum, word))][:_FIRST]
    if whole:
        words = [word for word in words if not word.startswith(_SHARD)] or words
    return list(dict.fromkeys(map(_plain, words)))


def _plain(word: str) -> str:
    return word.removeprefix(_SHARD).casefold()


def shared_piece(word: str, other: str) -> str:
    """Return the letters by which two words look alike, "" where they do not.

    That is a beginning of two letters or more that both have, if it is a third of the shorter word; or three letters or
    more that begin or end one of them, but not an ending of both, which is grammar (`riding`, `tuning`), unless it is
    the whole of one.

    >>> [shared_piece(*pair) for pair in (("tutoring", "tuple"), ("hangar", "anger"), ("riding", "tuning"))]
    ['tu', 'ang', '']
    """
    match = SequenceMatcher(None, word, other, autojunk=False).find_longest_match(0, len(word), 0, len(other))
    piece = word[match.a : match.a + match.size]
    ends = [match.a + match.size == len(word), match.b + match.size == len(other)]
    begins = [match.a == 0, match.b == 0]
    whole = any(begin and end for begin, end in zip(begins, ends, strict=True))
    if len(piece) >= _INSIDE and (whole or (any(begins + ends) and not all(ends))):
        return piece
    start = next((n for n, (a, b) in enumerate(zip(word, other)) if a != b), min(len(word), len(other)))
    return word[:start] if start >= max(_START, min(len(word), len(other)) / 3) else ""


class Meaning:
    """How alike texts and words are: by the model's coordinates without one of them, or by an encoder."""

    def __init__(self, model: LexiconEmbedder, rows: Any, texts: Sequence[str], encoder: Encoder | None) -> None:
        """Take the model, its `rows` of the texts, and the encoder that counts, or None."""
        self._model, self._encoder = _sparser(model, _ACTIVE), encoder
        self.name = "the model's own" if encoder is None else f"that of {type(encoder).__name__}"
        self._texts: Any = rows if encoder is None else encode_with(encoder, list(texts))
        self._words: Any = None
        self._numbers: dict[str, int] = {}

    def draw(self, first: Integers, second: Integers) -> None:
        """Take the pairs of texts that "any two" means, by number."""
        self._drawn = (first, second)
        self._any_two = _cosines(self._texts, first, second, None)
        self._columns = self._texts.tocsc() if self._encoder is None else None

    def any_two(self, dimension: int | None = None) -> float:
        """Return the mean cosine of the texts drawn; of the model's own coordinates all but `dimension` count."""
        if dimension is None or self._columns is None:
            return float(self._any_two.mean())
        column = self._columns[:, [dimension]].toarray().ravel().astype(np.float64)
        return float(_without(self._any_two, *(column[numbers] for numbers in self._drawn)).mean())

    def learn(self, words: Iterable[str]) -> None:
        """Encode the words that are compared."""
        listed = sorted(words)
        self._numbers = {word: number for number, word in enumerate(listed)}
        self._words = self._model.encode(listed) if self._encoder is None else encode_with(self._encoder, listed)

    def texts_alike(self, pairs: Integers, dimension: int) -> Floats:
        """Return the cosines of `pairs` of texts, by number; of the model's own coordinates all but one count."""
        left_out = np.full(len(pairs), dimension) if self._encoder is None else None
        return _cosines(self._texts, pairs[:, 0], pairs[:, 1], left_out)

    def related(self, pairs: Sequence[tuple[str, Sequence[str], int]]) -> Floats:
        """Return for each word, words of a cluster and number of it the largest cosine; NaN where one is unknown."""
        known, number = known_rows(self._words), self._numbers
        found = np.full(len(pairs), np.nan)
        flat = [
            (n, number[word], number[other], j)
            for n, (word, of, j) in enumerate(pairs)
            for other in of
            if known[number[word]] and known[number[other]]
        ]
        if flat:
            place, first, second, left_out = np.array(flat).T
            cosines = _cosines(self._words, first, second, left_out if self._encoder is None else None)
            np.fmax.at(found, place, cosines)
        return found


def _cosines(units: Any, first: Integers, second: Integers, left_out: Integers | None) -> Floats:
    """Return the cosines of rows of length 1 (or 0), each pair without one coordinate where it is given."""
    found = np.zeros(len(first))
    for start in range(0, len(first), _PAIRS):
        some = slice(start, start + _PAIRS)
        a, b = units[first[some]], units[second[some]]
        product = a.multiply(b) if hasattr(a, "multiply") else a * b
        cosines = np.asarray(product.sum(axis=1), np.float64).ravel()
        if left_out is not None:
            rows = np.arange(a.shape[0])
            u, v = (np.asarray(side[rows, left_out[some]], np.float64).ravel() for side in (a, b))
            cosines = _without(cosines, u, v)
        found[some] = cosines
    return found


def _without(cosines: Floats, u: Floats, v: Floats) -> Floats:
    """Return the cosines of vectors of length 1 after one coordinate, `u` here and `v` there, is taken out."""
    rest = np.sqrt(np.clip((1 - u**2) * (1 - v**2), 0, None))
    return np.divide(cosines - u * v, rest, out=np.zeros_like(rest), where=rest > _NOTHING)
