"""The words of one text, as an explanation shows them: known, found by their beginning, spelled or unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pellucid.explanation import WORD, Row
from pellucid.rows import READ_AS
from pellucid.static.spelling import SpelledRows
from pellucid.text import Coverage, Vocabulary, Word, shown_word

_OTHER = 1 << 40  # beyond all rows: see `TextWords`


def named(text: str, row: int, vocabulary: Vocabulary, spelled: SpelledRows | None) -> tuple[str, str]:
    """Return how a word of a text is shown in an explanation, and which known words its vector is of."""
    shown = shown_word(text)
    if spelled is None or row < len(vocabulary):
        known = vocabulary.words[row]
        return shown if known in (text, text.lower()) else f"{shown}{READ_AS}{shown_word(known)})", known
    known = " + ".join(shown_word(vocabulary.words[part]) for part in spelled.parts(row - len(vocabulary)))
    return f"{shown}{READ_AS}{known})" if known else f"{shown} (unknown)", known or text.lower()


class TextWords:
    """The words of a text: how much of it is known now, the distinct words and a `Row` of each when they are asked for.

    Attributes:
        unknown: where the unknown words are.
        coverage: how much of the text is known.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        rows: list[int],
        word: Callable[[int], Word],
        others: Iterable[int],
        spelled: SpelledRows | None = None,
    ) -> None:
        """Tell known words from unknown ones.

        Args:
            vocabulary: of the model.
            rows: of each word in the table, -1 for an unknown one.
            word: from a number in `rows` to the word.
            others: the numbers of the words that may have the row of another, such as of their beginning.
            spelled: the rows beyond those of the vocabulary, if there are any.
        """
        self._vocabulary, self._word, self.spelled = vocabulary, word, spelled
        self._codes = list(rows)  # a word's row, and beyond the rows a number for each of the others
        self._others: dict[tuple[int, str], int] = {}
        partly, strange = 0, [] if spelled is None else spelled.strange.tolist()
        unknown = [number for number, row in enumerate(rows) if row < 0] if rows.count(-1) else []
        for number in others:
            row, lower = rows[number], word(number).text.lower()
            if row >= len(vocabulary):
                if strange[row - len(vocabulary)]:
                    unknown.append(number)  # with spelling, no row is -1
                else:
                    partly += 1
            elif row >= 0 and lower != vocabulary.words[row].lower():
                code = _OTHER + len(self._others)
                self._codes[number] = self._others.setdefault((row, lower), code)
                partly += 1
        self.unknown = tuple(word(number)[1:] for number in unknown)
        self.coverage = Coverage(len(rows) - len(unknown), len(rows), partly)

    @cached_property
    def _counts(self) -> Counter[int]:
        """How often each distinct known word occurs, by code, in the order of the text."""
        counts = Counter(self._codes)
        counts.pop(-1, None)
        return counts

    @property
    def counts(self) -> npt.NDArray[np.float64]:
        """How often each distinct known word occurs, float64 [words]."""
        return np.array(list(self._counts.values()), np.float64)

    @cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """The row of each in the table, or beyond it that of a spelled word, int64 [words]."""
        rows = np.array(list(self._counts), np.int64)
        rows[rows >= _OTHER] = [row for row, _ in self._others]  # both in the order of the text
        return rows

    @cached_property
    def _places(self) -> list[list[int]]:
        """The numbers of the words that are one distinct word, of each."""
        places: dict[int, list[int]] = {code: [] for code in self._counts}
        for number, code in enumerate(self._codes):
            if code >= 0:
                places[code].append(number)
        return list(places.values())

    def row(self, number: int) -> Row:
        """Return a distinct word, named as it is first written, without a contribution."""
        words = list(map(self._word, self._places[number]))
        text, row = words[0].text, int(self.rows[number])
        name, known = named(text, row, self._vocabulary, self.spelled)
        shown = shown_word(text)
        return Row(name, (shown,), 0.0, 0.0, tuple(word[1:] for word in words), key=(known, text.lower()), kind=WORD)
