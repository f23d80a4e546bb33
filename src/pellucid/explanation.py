"""What a score is made of: named rows that add up to it.

An `Explanation` is data, and shows itself as parts that `views` draws for any medium. The remainder is the score less
the rows: rounding for a family that keeps every term (`exact`), and also what was cut for one that does not.

Most explanations are made for a score and a few rows. So the rows of a family stay an array of numbers (`LazyRows`),
with a function that names them, until they are read.

"Why does B rank above C for A?" is `model.explain(a, b) - model.explain(a, c)`: an explanation again, whose score is
the gap between the two.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError
from pellucid.forks import cached_property
from pellucid.rows import (
    CONTEXT,
    NO_SCORE,
    REMAINDER,
    SHARED,
    WORD,
    WORD_PAIR,
    LazyRows,
    Row,
    share_of,
    sorted_with_shares,
)
from pellucid.text import Coverage, Span
from pellucid.unicode import well_formed
from pellucid.views.parts import (
    AnyPart,
    Bars,
    Heading,
    MarkedText,
    MarkedTexts,
    Matrix,
    Note,
    counted,
    listed,
    marked,
    strongest_words,
    visible,
)
from pellucid.views.report import Shown, frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

SCHEMA_VERSION = 1
"""Version of the dict and JSON form. It changes when a key is renamed, removed or changes its meaning."""

_NUMBERS = ("score", "contribution", "share", "remainder")
_LARGEST = 1e300  # of them in JSON: their sum is finite, too
_CANCELLED = 0.1  # |score| over the sum of the rows' sizes; below, shares of the score mislead
_BESIDE = (SHARED, CONTEXT, REMAINDER)  # rows that stand beside those of words, and leave them what they are
CONTEXT_WARN_RATIO = 0.25
"""Context over the score less what all texts share, from which views warn: four times its mean size for MiniLM."""
MIN_WARNED_CONTEXT = 0.05
"""A smaller context is no reason to warn, however small the score is."""
_MANY_PAIRS = 200  # word pairs, about 14 words by 14; beyond, the sums of each word come first
_TOLERANCE = 1e-6  # relative to the sum of the rows' sizes; an exact family that misses this has a bug


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """A score taken apart. No two rows have the same key.

    Attributes:
        family: the family of the model ("static", ...).
        text1: the first text, as the user gave it (a lone surrogate, which no file can hold, is U+FFFD).
        text2: the second text; None when one text was explained.
        score: the cosine of the two embeddings; for one text the cosine of its embedding to itself: 1, or 0 when the
            model knows nothing of it; for a difference the first cosine less the second.
        rows: the terms, by falling size of their contribution; a tuple, or `LazyRows`, which read like one.
        exact: whether the family keeps every term, so that the remainder is rounding.
        unknown1: spans of text 1 that the model has no vector for.
        unknown2: the same for text 2.
        text3: the text that text 2 is compared with in a difference of two explanations, else None.
        unknown3: the same for text 3.
        coverage: for each text, how much of it the model knew; () where the family does not say.
    """

    family: str
    text1: str
    text2: str | None
    score: float
    rows: Sequence[Row]
    exact: bool = True
    unknown1: tuple[Span, ...] = ()
    unknown2: tuple[Span, ...] = ()
    text3: str | None = None
    unknown3: tuple[Span, ...] = ()
    coverage: tuple[Coverage, ...] = ()

    def __post_init__(self) -> None:
        """Make the texts writable as UTF-8 (spans keep their meaning), give rows keys, and check all."""
        for name in ("text1", "text2", "text3"):
            text = getattr(self, name)
            if text is not None:
                object.__setattr__(self, name, well_formed(text))
        if not isinstance(self.rows, LazyRows):
            rows = tuple(row if row.key else row._replace(key=(row.name, *row.parts)) for row in self.rows)
            object.__setattr__(self, "rows", rows)
            if len({row.key for row in rows}) < len(rows):  # a difference of explanations would lose one of the two
                counts = Counter(row.key for row in rows)
                twice = next(row for row in rows if counts[row.key] > 1)
                raise InputError(f"the rows hold {twice.name!r:.80} twice; join them, or give each a key of its own")
        if not math.isfinite(self.score) or not (math.isfinite(self._size) or np.isfinite(self._values).all()):
            raise InputError(
                f"a score of {self.score} cannot be taken apart: it or one of its rows is not a finite number"
            )
        if len(self.coverage) not in (0, len(self.texts)):
            raise InputError(f"{len(self.texts)} texts and {len(self.coverage)} coverages; give one a text, or none")

    @cached_property
    def contributions(self) -> npt.NDArray[np.float64]:
        """What each row adds to the score, float64 [rows], without making rows."""
        return self.rows.contributions if isinstance(self.rows, LazyRows) else self._values

    @property
    def _values(self) -> npt.NDArray[np.float64]:
        """The contributions in any order: sorting would take longer than everything else before rows are read."""
        if isinstance(self.rows, LazyRows):
            return self.rows.values
        return np.array([row.contribution for row in self.rows], np.float64)

    @cached_property
    def _size(self) -> float:
        """The sum of the rows' sizes."""
        return float(np.abs(self._values).sum())

    @cached_property
    def remainder(self) -> float:
        """The score less the sum of the rows."""
        return math.fsum([self.score, *(-self.contributions).tolist()])

    @classmethod
    def from_terms(
        cls,
        family: str,
        texts: tuple[str, str | None],
        score: float,
        terms: Iterable[Row] | npt.NDArray[np.float64],
        make: Callable[[int], Row] | None = None,
        *,
        exact: bool = True,
        unknown: tuple[tuple[Span, ...], tuple[Span, ...]] = ((), ()),
        coverage: tuple[Coverage, ...] = (),
    ) -> Explanation:
        """Sort `terms` and set their shares.

        Args:
            family: the family of the model.
            texts: the first and the second text.
            score: what the terms add up to.
            terms: rows, whose shares are ignored; or with `make` their contributions alone, float64 [terms].
            make: from the number of a term to its row, called when the row is read; contribution and share of it are
                ignored. Each row must have a key of its own.
            exact: whether these are all terms.
            unknown: the spans of each text that the model has no vector for.
            coverage: of each text.

        Raises:
            InputError: `exact` is promised, but the terms do not add up to `score`; or two are the same term.
        """
        if make is not None:
            rows: Sequence[Row] = LazyRows(np.asarray(terms, np.float64), make, score)
        else:
            rows = sorted_with_shares(terms, score)
        made = cls(family, *texts, score, rows, exact, *unknown, coverage=coverage)
        if exact and abs(score - float(made._values.sum())) > made._rounding:
            raise InputError(f"the rows miss the score {score} by {made.remainder}; pass every term, or exact=False")
        return made

    @property
    def _rounding(self) -> float:
        """How far the rows of an exact explanation may miss the score."""
        return _TOLERANCE * max(1.0, self._size)

    def __sub__(self, other: Explanation) -> Explanation:
        """Say why text 2 is closer to text 1 than the other explanation's text 2 is.

        Rows of the same key are subtracted; a row that only `other` has counts with its sign turned.

        Raises:
            InputError: the two are not about the same text 1, or come from different families.
        """
        if not isinstance(other, Explanation):
            return NotImplemented
        if self.family != other.family:
            raise InputError(f"a {other.family} explanation cannot be taken from a {self.family} one")
        if self.text1 != other.text1:
            raise InputError(
                "both explanations must have the same text 1 "
                f"({self.text1!r:.60} is not {other.text1!r:.60}); explain(a, b) - explain(a, c)"
            )
        if None in (self.text2, other.text2) or self.text3 is not None or other.text3 is not None:
            raise InputError("only explanations of two texts can be subtracted")
        rows = {row.key: row for row in self.rows}
        for row in other.rows:
            mine = rows.get(row.key, row._replace(contribution=0.0, spans2=()))
            rows[row.key] = mine._replace(contribution=mine.contribution - row.contribution, spans3=row.spans2)
        score = self.score - other.score
        return replace(
            self,
            score=score,
            rows=sorted_with_shares(rows.values(), score),
            exact=self.exact and other.exact,
            text3=other.text2,
            unknown3=other.unknown2,
            coverage=(*self.coverage, *other.coverage[1:]) if self.coverage and other.coverage else (),
        )

    def reasons(self, top_k: int) -> list[Row]:
        """Return the `top_k` rows that add the most; fewer where fewer add anything.

        What all texts of an encoder have in common is no reason for this score, and left out.
        """
        adding = (self.rows[number] for number in np.flatnonzero(self.contributions > 0).tolist())
        return list(islice((row for row in adding if row.kind not in _BESIDE), max(top_k, 0)))

    @property
    def texts(self) -> tuple[str, ...]:
        """The one, two or three texts."""
        return tuple(text for text in (self.text1, self.text2, self.text3) if text is not None)

    def word_contributions(self, text: int = 1) -> dict[Span, float]:
        """Return what each span of text 1, 2 or 3 adds to the score, in text order.

        A row that stands in several places is split evenly between them. Where every row has a place in the text, the
        values add up to the score.

        Raises:
            InputError: `text` is not the number of one of the texts.
        """
        self._check_number(text)
        return dict(self._sums_by_span[text - 1])

    @cached_property
    def _sums_by_span(self) -> tuple[dict[Span, float], ...]:
        known = self.rows.sums_by_span() if isinstance(self.rows, LazyRows) else None
        if known is not None:
            return *known, {}
        sums: tuple[dict[Span, float], ...] = ({}, {}, {})
        for row in self.rows:
            for of_text, spans in zip(sums, (row.spans1, row.spans2, row.spans3), strict=True):
                for span in spans:
                    of_text[span] = of_text.get(span, 0.0) + row.contribution / len(spans)
        return tuple(dict(sorted(of_text.items())) for of_text in sums)

    @property
    def unknown(self) -> tuple[tuple[Span, ...], ...]:
        """The spans of texts 1, 2 and 3 that the model has no vector for."""
        return self.unknown1, self.unknown2, self.unknown3

    def unknown_words(self, text: int = 1) -> list[str]:
        """Return the distinct words of text 1, 2 or 3 that the model has no vector for, in text order.

        Raises:
            InputError: `text` is not the number of one of the texts.
        """
        self._check_number(text)
        return list(dict.fromkeys(self.texts[text - 1][start:end] for start, end in self.unknown[text - 1]))

    def _check_number(self, text: int) -> None:
        if text not in range(1, len(self.texts) + 1):
            raise InputError(f"text is {text!r}; this explanation has texts 1 to {len(self.texts)}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings, numbers and None; `docs/schema.json` describes them."""
        names = [f.name for f in fields(self)]
        names.insert(names.index("exact"), "remainder")
        return {"version": SCHEMA_VERSION} | {name: _plain(getattr(self, name)) for name in names}

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return `to_dict` as JSON text that a regression test can keep; None as `indent` gives one line."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Explanation:
        """Return the explanation that `to_dict` wrote.

        Raises:
            InputError: the version is another one, a key is missing, unknown or has a value of the wrong kind, a span
                is outside its text, two rows are the same term, or rows and remainder do not add up to the score.
        """
        if not isinstance(value, Mapping) or value.get("version") != SCHEMA_VERSION:
            found = value.get("version") if isinstance(value, Mapping) else type(value).__name__
            raise InputError(f"explanation has version {found!r}; this pellucid reads version {SCHEMA_VERSION}")
        content = {key: item for key, item in value.items() if key != "version"}
        try:
            for name in ("rows", "coverage"):
                if not isinstance(content[name], (list, tuple)):
                    raise TypeError(f"{name!r} is {content[name]!r:.60}")
            wanted = dict.fromkeys(Row._fields)
            if any(row.keys() != wanted.keys() for row in content["rows"]):
                raise KeyError(f"a row has other keys than {', '.join(wanted)}")
            content["rows"] = tuple(Row(*(_read(name, row[name]) for name in wanted)) for row in content["rows"])
            content["coverage"] = tuple(map(_coverage, content["coverage"]))
            content = {name: _read(name, item) for name, item in content.items()}
            _check_kinds(content)
            remainder = content.pop("remainder")
            read = cls(**content)
            agrees = abs(read.remainder - remainder) <= read._rounding
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise InputError(f"not an explanation of version {SCHEMA_VERSION}: {error}") from error
        if not agrees:
            raise InputError(
                f"the explanation's rows and its remainder {remainder} miss the score {read.score} by "
                f"{read.remainder - remainder}; it was changed, or its family is wrong"
            )
        return read

    def to_frame(self) -> DataFrame:
        """Return the rows as a pandas DataFrame, and the remainder as the last one where the family is not exact.

        The columns are the fields of `Row`; `contribution` adds up to the score. `attrs` holds score, texts, coverage.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        rows = list(self.rows)
        if not self.exact:
            share = share_of(self.remainder, self.score)
            rows.append(Row("(remainder)", (), self.remainder, share, key=("(remainder)",), kind="remainder"))
        table = frame(rows, Row._fields)
        table.attrs = {"score": self.score, "texts": self.texts, "family": self.family, "exact": self.exact}
        table.attrs["coverage"] = tuple(known.share for known in self.coverage)
        return table

    def to_html(self, *, fragment: bool = False, top_k: int = 12) -> str:
        """Return a self-contained HTML page without scripts: the texts, the `top_k` largest rows and a heat map.

        Args:
            fragment: leave out the page around it, to be placed inside another page.
            top_k: rows shown; the others are one line with their sum.
        """
        from pellucid.views.page import page

        return page(self._parts(top_k), fragment=fragment)

    def to_markdown(self, *, top_k: int = 10) -> str:
        """Return the texts and the `top_k` largest rows as Markdown."""
        from pellucid.views.markdown import markdown

        return markdown(self._parts(top_k))

    def to_text(self, *, width: int = 100, top_k: int = 10) -> str:
        """Return what `print` shows: the texts and the `top_k` largest rows, `width` characters wide."""
        from pellucid.views.terminal import plain

        return plain(self._parts(top_k), width=width)

    def plot(self, *, max_words: int = 30, dark: bool = False) -> Figure:
        """Return a matplotlib Figure: a heat map of word pairs, or bars where rows are not pairs.

        Args:
            max_words: words shown of each text (bars, where rows are not pairs), the strongest; the others are summed.
            dark: draw for a dark background.

        Raises:
            InputError: `max_words` is below 1.
            MissingExtraError: matplotlib is not installed.
        """
        from pellucid.views.figure import picture

        if max_words < 1:
            raise InputError(f"max_words is {max_words}; it must be at least 1")
        return picture(self._parts(max_words), most=max_words, dark=dark)

    def __repr__(self) -> str:
        """Return one short line; `print` shows the rows."""
        kind = "exact" if self.exact else f"remainder {self.remainder:+.4f}"
        return f"<Explanation {visible(self.family)}: score {self.score:.4f}, {len(self.rows):,} rows, {kind}>"

    # --- What the views show ---

    def _parts(self, top_k: int = 10) -> Iterator[AnyPart]:
        """Yield what every medium shows, with `top_k` rows."""
        if top_k < 0:
            raise InputError(f"top_k is {top_k}; it must be at least 0")
        title = "Similarity" if self.text3 is None else "Similarity to text 2 less similarity to text 3"
        if self.text2 is None:
            title = "What the text is about"
        of_index = self.family.endswith("index")
        yield Heading(title, f"{self.score:.4f}", self.family if of_index else f"{self.family} model")
        labels = ["text"] if self.text2 is None else [f"text {number}" for number, _ in enumerate(self.texts, 1)]
        for label, coverage in zip(labels, self.coverage):
            if warning := coverage_warning(coverage, "the text" if self.text2 is None else label):
                yield Note(warning, is_warning=True)
        if warning := self._context_warning():
            yield Note(warning, is_warning=True)
        yield from map(Note, self._notes())
        yield MarkedTexts(tuple(self._marked(number, label) for number, label in enumerate(labels, 1)))
        if not self.rows:
            return
        matrix = self._matrix() if set(self._kinds) - set(_BESIDE) == {WORD_PAIR} else None
        many = matrix is not None and len(self.rows) > _MANY_PAIRS
        if matrix is not None and many:
            for of, words, axis in ((matrix.of_down, matrix.down, 1), (matrix.of_across, matrix.across, 0)):
                sums = matrix.values.sum(axis=axis)  # what each word adds in all its pairs
                order = np.argsort(-np.abs(sums), kind="stable")
                shown = [(words[number], float(sums[number])) for number in order[:top_k].tolist()]
                words_bars = self._bars(f"Words of {of}", WORD, shown, sums[order[top_k:]])
                shared = [(kind, self._sum_of(kind)) for kind in self._kinds if kind in _BESIDE]
                yield words_bars._replace(rest=(*shared, *words_bars.rest))
        names = [(row.name, row.contribution) for row in self.rows[:top_k]]
        beside = [n for n in range(min(top_k, len(self.rows)), len(self.rows)) if self._row_kinds[n] in _BESIDE]
        bars = self._bars(
            "Word pairs" if many else "",
            self._kind,
            names,
            np.delete(self.contributions[top_k:], np.array(beside, int) - top_k),
        )
        named = ((self.rows[n].name, self.rows[n].contribution) for n in beside)  # not hidden in a sum
        yield bars._replace(rest=(*named, *bars.rest))
        if matrix is not None:
            yield matrix

    @cached_property
    def _row_kinds(self) -> list[str]:
        """The kind of each row."""
        return [row.kind for row in self.rows]

    @cached_property
    def _kinds(self) -> Counter[str]:
        """How many rows there are of each kind: an index and an ensemble have several."""
        return Counter(self._row_kinds)

    @property
    def _kind(self) -> str:
        """The kind of the rows; "row" where there are several."""
        kinds = [kind for kind in self._kinds if kind not in _BESIDE] or list(self._kinds)
        return kinds[0] if len(kinds) == 1 else "row"

    @property
    def _has_shares(self) -> bool:
        """Whether shares of the score mean anything: not where large terms of both signs nearly cancel."""
        return abs(self.score) > max(NO_SCORE, _CANCELLED * self._size)

    def _notes(self) -> Iterator[str]:
        """Yield sentences about what the numbers are based on."""
        if not self.rows:
            yield f"Nothing to add up: the model knows nothing of {self._blank_texts()}."
            return
        values = self.contributions
        sums = f"{values[values > 0].sum():+.4f} for, {values[values < 0].sum():+.4f} against"
        how = "adding up to the score exactly" if self.exact else "and a remainder, adding up to the score"
        yield f"{' and '.join(counted(n, kind) for kind, n in self._kinds.items())} {how}: {sums}."
        if not self._has_shares:
            yield "For and against nearly cancel: shares of so small a score would mislead and are not shown."
        elif self.score < 0:
            yield "The score is negative, so the rows that lower it have the positive shares."

    def _context_warning(self) -> str:
        """Return a sentence that the words account for too little of the score; "" where they account for enough."""
        if CONTEXT not in self._kinds:
            return ""
        context, specific = self._sum_of(CONTEXT), self.score - self._sum_of(SHARED)
        if abs(context) <= max(CONTEXT_WARN_RATIO * abs(specific), MIN_WARNED_CONTEXT):
            return ""
        return (
            f"The words account for {specific - context:+.2f} of {specific:+.2f}; the rest is context, which no word "
            "explains. Measure it: encode the texts without a word, and compare."
        )

    def _sum_of(self, kind: str) -> float:
        """Return what the rows of a kind add."""
        return math.fsum(v for v, of in zip(self.contributions.tolist(), self._row_kinds) if of == kind)

    def _blank_texts(self) -> str:
        """Name the texts without any known word."""
        if len(self.texts) == 1:
            return "the text"
        blank = []
        for number, (text, spans) in enumerate(zip(self.texts, self.unknown), 1):
            characters = list(text)
            for start, end in spans:
                characters[start:end] = " " * (end - start)
            if not any(map(str.isalnum, characters)):
                blank.append(f"text {number}")
        return " and ".join(blank) or "one of the texts"

    def _bars(self, title: str, kind: str, bars: list[tuple[str, float]], hidden: npt.NDArray[np.float64]) -> Bars:
        """Return the largest rows, the sum of the `hidden` ones and the remainder, which add up to the score."""
        rest = []
        if len(hidden):
            rest.append((f"sum of {counted(len(hidden), 'more ' + kind)}", float(hidden.sum())))
        if not self.exact:
            rest.append(("remainder: what the rows leave out", self.remainder))
        names = "words" if kind in (WORD, WORD_PAIR) else " or ".join(self._kinds) if kind == "row" else kind
        return Bars(title, names, tuple(bars), tuple(rest), self.score, self._has_shares)

    def _matrix(self) -> Matrix:
        """Return pairs of words as a matrix in text order; words with one name, though two vectors, are one word."""
        down: dict[str, Any] = {}
        across: dict[str, Any] = {}
        pairs = [row for row in self.rows if row.kind == WORD_PAIR]
        for row in pairs:
            down.setdefault(row.parts[0], row.spans1[:1])
            across.setdefault(row.parts[1], (not row.spans2, (row.spans2 or row.spans3)[:1]))
        words1, words2 = sorted(down, key=down.__getitem__), sorted(across, key=across.__getitem__)
        line = {word: number for number, word in enumerate(words1)}
        column = {word: number for number, word in enumerate(words2)}
        values = np.zeros((len(words1), len(words2)))
        for row in pairs:
            values[line[row.parts[0]], column[row.parts[1]]] += row.contribution
        of_across = "text 2" if self.text3 is None else "text 2, then text 3"
        return Matrix("text 1", of_across, tuple(words1), tuple(words2), values)

    def _marked(self, number: int, label: str) -> MarkedText:
        """Return a text with its words marked by what they add, on one scale for all texts."""
        scale = max((abs(value) for sums in self._sums_by_span for value in sums.values()), default=0.0) or 1.0
        text, sums, words = self.texts[number - 1], self._sums_by_span[number - 1], self.unknown_words(number)
        notes = ["not in the vocabulary: " + listed(words)] if words else []
        if self.coverage and (read := self.coverage[number - 1].readings):
            notes.append(f"only partly known: {listed(read, length=120)}")
        pieces = tuple(marked(text, sums, self.unknown[number - 1], scale))
        return MarkedText(label, pieces, strongest_words(text, sums), "; ".join(notes))


def coverage_warning(coverage: Coverage, text: str, unknown: Sequence[str] | None = None) -> str:
    """Return a sentence that a model knows too little of `text`; "" if it knows enough.

    Give the words that are `unknown` where no view names words beside the text: the sentence then names them and those
    that are read as others, these also if the model knows enough.
    """
    named = f" Unknown: {listed(unknown)}." if unknown else ""
    read = "" if unknown is None else listed(coverage.readings, length=120)
    if not coverage.is_low:
        return f"Only partly known in {text}: {read}." if read else ""
    if not coverage.known:
        return f"Only 0 of {coverage.total:,} words of {text} known: the model can say nothing of it.{named}"
    rests = "it" if coverage.known == 1 else "them"
    named += f" Partly known: {read}." if read else ""
    return f"Only {coverage.said} of {text} known: the score rests on {rests}.{named}"


def _coverage(counts: Mapping[str, Any]) -> Coverage:
    """Return a coverage as `to_dict` wrote it; an older one has no `read_as`."""
    if unknown := counts.keys() - {field.name for field in fields(Coverage)}:
        raise KeyError(f"a coverage has the unknown keys {sorted(unknown)!r:.60}")
    numbers = counts["known"], counts["total"], counts["partly"]
    read = Coverage(*numbers, share=counts.get("share", math.nan), read_as=_tuples(counts.get("read_as", ())))
    if any(well_formed(word) != word for pair in read.read_as for word in pair):
        raise TypeError("a coverage holds a word with a lone surrogate")
    return read


def _check_kinds(content: Mapping[str, Any]) -> None:
    """Raise TypeError where a value read from JSON is of another kind than its field's, or a span not in its text."""
    texts = content["text1"], content["text2"], content["text3"]
    if texts[1] is None and texts[2] is not None:
        raise TypeError("there is a 'text3', but no 'text2'")
    for part in (content, *(row._asdict() for row in content["rows"])):
        for name, value in part.items():
            if not _fits(name, value, texts):
                raise TypeError(f"{name!r} is {value!r:.60}")
        if part.get("kind") == WORD_PAIR and len(part["parts"]) != 2:
            raise TypeError(f"the parts of a word pair are {part['parts']!r:.60}")


def _fits(name: str, value: Any, texts: Sequence[str | None]) -> bool:
    """Whether a value is of the kind of a field of an explanation or of a row."""
    if name in ("parts", "key"):
        return type(value) is tuple and all(_fits("name", part, texts) for part in value)
    if name in ("family", "text1", "text2", "text3", "name", "kind"):
        return (type(value) is str and well_formed(value) == value) or (value is None and name in ("text2", "text3"))
    if name in _NUMBERS:
        return type(value) is float and abs(value) <= _LARGEST
    if name == "exact":
        return type(value) is bool
    if name[:-1] in ("spans", "unknown") and name[-1] in "123":
        length = len(texts[int(name[-1]) - 1] or "")
        pairs = type(value) is tuple and all(type(span) is tuple and [*map(type, span)] == [int, int] for span in value)
        return pairs and all(0 <= start < end <= length for start, end in value)
    return True  # rows and coverages are checked by themselves, an unknown name by the class


def _read(name: str, value: Any) -> Any:
    """Return the value of a field as an explanation has it: lists are tuples, numbers are floats."""
    return float(value) if name in _NUMBERS and type(value) is int else _tuples(value)


def _plain(value: Any) -> Any:
    """Turn rows, coverages and tuples into dicts and lists."""
    if isinstance(value, Row):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, Coverage):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [_plain(item) for item in value] if isinstance(value, (tuple, LazyRows)) else value


def _tuples(value: Any) -> Any:
    """Turn lists back into tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
