"""What a score is made of: named rows that add up to it.

An `Explanation` is data. The views (`print`, `to_frame`, `to_json`, `to_html`, `plot`, a notebook cell) read it and
change nothing; they live in `views/render.py`, `views/page.py` and `views/plot.py`. What the rows leave of the score is
the remainder, always: rounding for a family that keeps every term (`exact`), what was cut for one that does not. This
is arithmetic, not sampling.

"Why does B rank above C for A?" is `model.explain(a, b) - model.explain(a, c)`: an explanation again, whose score is
the gap between the two.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from pellucid.errors import InputError, missing_extra
from pellucid.text import split_words, well_formed

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame
    from rich.console import Console, ConsoleOptions, RenderResult

SCHEMA_VERSION = 1
"""Version of the dict and JSON form. It changes when a key is renamed, removed or changes its meaning."""

Span = tuple[int, int]
"""Start and end of a stretch of a text, in characters."""

LOW_COVERAGE = 0.5
"""Share of a text's words; where a model knows less, every view says so."""

_NO_SCORE = 1e-6  # below this, a score is rounding of float32 embeddings, and shares of it mean nothing
_TOLERANCE = 1e-6  # relative to the sum of the rows' sizes; an exact family that misses this has a bug


@dataclass(frozen=True)
class Coverage:
    """How much of a text a model knew: its words with a vector, or, for a transformer, the words that it read.

    Attributes:
        known: words, each counted as often as it occurs.
        total: all words of the text.
        partly: those of `known` that were only found by their beginning ("tokenisers (as token)").
        share: known / total; 1 for a text without words, of which nothing is unknown.
    """

    known: int
    total: int
    partly: int = 0
    share: float = field(init=False)

    def __post_init__(self) -> None:
        """Check the counts and set the share.

        Raises:
            InputError: they are no counts, or not partly <= known <= total.
        """
        counts = (self.partly, self.known, self.total)
        if not all(type(count) is int for count in counts) or not 0 <= self.partly <= self.known <= self.total:
            raise InputError(f"coverage of {self.known!r:.20} words known of {self.total!r:.20} cannot be")
        object.__setattr__(self, "share", self.known / self.total if self.total else 1.0)

    @property
    def is_low(self) -> bool:
        """Whether the share is below `LOW_COVERAGE`."""
        return self.share < LOW_COVERAGE


class Row(NamedTuple):
    """One named term of a score.

    Attributes:
        name: what a person reads ("loan × mortgage", an anchor text, a cluster of words).
        parts: the words or names it consists of: (word of text 1, word of text 2) for the static family.
        contribution: what it adds to the score; negative where it lowers it.
        share: contribution / score, 0 where the score is 0 (below 1e-6). Shares add up to 1 less the remainder's.
        spans1: where it stands in text 1, in characters.
        spans2: where it stands in text 2.
        spans3: where it stands in text 3, which only a difference of two explanations has.
        key: what tells the term from the others, and finds it again in another explanation of the same model, where its
            name may be written another way ("Apple", "apple"). An explanation fills in name and parts where it is ().
    """

    name: str
    parts: tuple[str, ...]
    contribution: float
    share: float
    spans1: tuple[Span, ...] = ()
    spans2: tuple[Span, ...] = ()
    spans3: tuple[Span, ...] = ()
    key: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Explanation:
    """A score taken apart. No two rows have the same key.

    Attributes:
        family: the family of the model ("static", ...).
        text1: the first text, as the user gave it (a lone surrogate, which no file can hold, is U+FFFD).
        text2: the second text; None when one text was explained.
        score: the cosine of the two embeddings; for one text the cosine of its embedding to itself: 1, or 0 when the
            model knows nothing of it; for a difference the first cosine less the second.
        rows: the terms, by falling size of their contribution.
        exact: whether the family keeps every term, so that the remainder is rounding.
        unknown1: stretches of text 1 that the model has no vector for.
        unknown2: the same for text 2.
        text3: the text that text 2 is compared with in a difference of two explanations, else None.
        unknown3: the same for text 3.
        coverage: for each text, how much of it the model knew; () where the family does not say.
    """

    family: str
    text1: str
    text2: str | None
    score: float
    rows: tuple[Row, ...]
    exact: bool = True
    unknown1: tuple[Span, ...] = ()
    unknown2: tuple[Span, ...] = ()
    text3: str | None = None
    unknown3: tuple[Span, ...] = ()
    coverage: tuple[Coverage, ...] = ()

    def __post_init__(self) -> None:
        """Make the texts writable as UTF-8 (spans keep their meaning) and see to it that rows have keys.

        Raises:
            InputError: two rows have the same key, a number is not finite, or `coverage` is of another number of texts.
        """
        for name in ("text1", "text2", "text3"):
            text = getattr(self, name)
            if text is not None:
                object.__setattr__(self, name, well_formed(text))
        rows = tuple(row if row.key else row._replace(key=(row.name, *row.parts)) for row in self.rows)
        object.__setattr__(self, "rows", rows)
        _check_rows(rows, self.score)
        if len(self.coverage) not in (0, len(self.texts)):
            raise InputError(f"{len(self.texts)} texts and {len(self.coverage)} coverages; give one a text, or none")

    @cached_property
    def remainder(self) -> float:
        """The score less the sum of the rows."""
        return math.fsum([self.score, *(-row.contribution for row in self.rows)])

    @classmethod
    def from_terms(
        cls,
        family: str,
        texts: tuple[str, str | None],
        score: float,
        terms: Iterable[Row],
        *,
        exact: bool = True,
        unknown: tuple[tuple[Span, ...], tuple[Span, ...]] = ((), ()),
        coverage: tuple[Coverage, ...] = (),
    ) -> Explanation:
        """Sort `terms` and set their shares.

        Raises:
            InputError: `exact` is promised, but the terms do not add up to `score`; or two are the same term.
        """
        rows = tuple(_sorted_with_shares(terms, score))
        made = cls(family, *texts, score, rows, exact, *unknown, coverage=coverage)
        if exact and abs(made.remainder) > made._rounding:
            raise InputError(f"the rows miss the score {score} by {made.remainder}; pass every term, or exact=False")
        return made

    @property
    def _rounding(self) -> float:
        """How far the rows of an exact explanation may miss the score."""
        return _TOLERANCE * max(1.0, math.fsum(abs(row.contribution) for row in self.rows))

    def __sub__(self, other: Explanation) -> Explanation:
        """Say why text 2 is closer to text 1 than the other explanation's text 2 is.

        Rows of the same key are subtracted; a row that only `other` has counts with its sign turned.

        Raises:
            InputError: the two are not about the same text 1, or come from different families.
        """
        if not isinstance(other, Explanation):
            return NotImplemented
        _check_comparable(self, other)
        rows = {row.key: row for row in self.rows}
        for row in other.rows:
            mine = rows.get(row.key, row._replace(contribution=0.0, spans2=()))
            rows[row.key] = mine._replace(contribution=mine.contribution - row.contribution, spans3=row.spans2)
        score = self.score - other.score
        return replace(
            self,
            score=score,
            rows=tuple(_sorted_with_shares(rows.values(), score)),
            exact=self.exact and other.exact,
            text3=other.text2,
            unknown3=other.unknown2,
            coverage=(*self.coverage, *other.coverage[1:]) if self.coverage and other.coverage else (),
        )

    @property
    def texts(self) -> tuple[str, ...]:
        """The one, two or three texts."""
        return tuple(text for text in (self.text1, self.text2, self.text3) if text is not None)

    def word_contributions(self, text: int = 1) -> dict[Span, float]:
        """Return what each stretch of text 1, 2 or 3 adds to the score, in text order.

        A row that stands in several places is split evenly between them. Where every row has a place in the text, the
        values add up to the score.

        Raises:
            InputError: `text` is not the number of one of the texts.
        """
        self._check_number(text)
        return dict(self._sums_by_span[text - 1])

    @cached_property
    def _sums_by_span(self) -> tuple[dict[Span, float], ...]:
        sums: tuple[dict[Span, float], ...] = ({}, {}, {})
        for row in self.rows:
            for of_text, spans in zip(sums, (row.spans1, row.spans2, row.spans3), strict=True):
                for span in spans:
                    of_text[span] = of_text.get(span, 0.0) + row.contribution / len(spans)
        return tuple(dict(sorted(of_text.items())) for of_text in sums)

    def unknown_words(self, text: int = 1) -> list[str]:
        """Return the distinct words of text 1, 2 or 3 that the model has no vector for, in text order.

        Raises:
            InputError: `text` is not the number of one of the texts.
        """
        self._check_number(text)
        spans = (self.unknown1, self.unknown2, self.unknown3)[text - 1]
        return list(dict.fromkeys(self.texts[text - 1][start:end] for start, end in spans))

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
            InputError: the version is another one, a key is missing, unknown or has a value of the wrong kind, two rows
                are the same term, or rows and remainder do not add up to the score.
        """
        if not isinstance(value, Mapping) or value.get("version") != SCHEMA_VERSION:
            found = value.get("version") if isinstance(value, Mapping) else type(value).__name__
            raise InputError(f"explanation has version {found!r}; this pellucid reads version {SCHEMA_VERSION}")
        content = {key: item for key, item in value.items() if key != "version"}
        try:
            content["rows"] = tuple(Row(**_tupled(row)) for row in content["rows"])
            content["coverage"] = tuple(map(_read_coverage, content.get("coverage", ())))
            remainder = content.pop("remainder")
            read = cls(**_tupled(content))
            agrees = abs(read.remainder - remainder) <= read._rounding
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise InputError(f"not an explanation of version {SCHEMA_VERSION}: {error}") from error
        if not agrees:  # nor NaN
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
        try:
            import pandas as pd
        except ImportError as error:
            raise missing_extra("pandas", "plot") from error
        rows = list(self.rows)
        if not self.exact:
            rest = Row("(remainder)", (), self.remainder, 0.0, key=("(remainder)",))
            rows.append(_with_share(rest, self.score))
        frame = pd.DataFrame([row._asdict() for row in rows], columns=list(Row._fields))
        shares = tuple(known.share for known in self.coverage)
        frame.attrs = {"score": self.score, "texts": self.texts, "family": self.family, "exact": self.exact}
        frame.attrs["coverage"] = shares
        return frame

    def to_html(self, *, top_k: int = 12, fragment: bool = False) -> str:
        """Return a self-contained HTML page without scripts: the texts, the `top_k` largest rows and a heat map.

        Args:
            top_k: rows shown; the others are one line with their sum.
            fragment: leave out the page around it, to be placed inside another page.
        """
        from pellucid.views.page import page

        return page(self, top_k=top_k, fragment=fragment)

    def plot(self, *, max_words: int = 30) -> Figure:
        """Return a matplotlib Figure: a heat map of word pairs, or bars where rows are not pairs.

        Args:
            max_words: words shown of each text (bars, where rows are not pairs), the strongest; the others are summed.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        from pellucid.views.plot import figure

        return figure(self, max_words=max_words)

    def __repr__(self) -> str:
        """Return one short line; `print` shows the rows."""
        from pellucid.views.render import visible

        kind = "exact" if self.exact else f"remainder {self.remainder:+.4f}"
        return f"<Explanation {visible(self.family)}: score {self.score:.4f}, {len(self.rows):,} rows, {kind}>"

    def __str__(self) -> str:
        """Return the texts and the ten largest rows as plain text."""
        from pellucid.views.render import plain

        return plain(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Show the same in colour, for `rich.print`."""
        from pellucid.views.render import terminal

        yield from terminal(self)

    def _repr_html_(self) -> str:
        return self.to_html(fragment=True)


def words_before(text: str, end: int) -> tuple[Coverage, tuple[Span, ...]]:
    """Return how much of `text` a model knows that reads the words beginning before character `end`, and the others."""
    words = split_words(text)
    left_out = tuple((word.start, word.end) for word in words if word.start >= end)
    return Coverage(len(words) - len(left_out), len(words)), left_out


def _with_share(row: Row, score: float) -> Row:
    share = row.contribution / score if abs(score) > _NO_SCORE else 0.0
    return row._replace(share=share)


def _sorted_with_shares(terms: Iterable[Row], score: float) -> list[Row]:
    rows = [_with_share(row, score) for row in terms]
    return sorted(rows, key=lambda row: (-abs(row.contribution), row.name))


def _check_rows(rows: tuple[Row, ...], score: float) -> None:
    """Refuse numbers that cannot be added up, and a term that is there twice."""
    if not all(map(math.isfinite, (score, *(row.contribution for row in rows)))):
        raise InputError(f"a score of {score} cannot be taken apart: it or one of its rows is no finite number")
    if len({row.key for row in rows}) < len(rows):
        counts = Counter(row.key for row in rows)
        twice = next(row for row in rows if counts[row.key] > 1)
        raise InputError(f"the rows hold {twice.name!r:.80} twice; join them, or give each a key of its own")


def _read_coverage(value: Any) -> Coverage:
    return Coverage(**{key: item for key, item in value.items() if key != "share"})


def _check_comparable(first: Explanation, second: Explanation) -> None:
    if first.family != second.family:
        raise InputError(f"a {second.family} explanation cannot be taken from a {first.family} one")
    if first.text1 != second.text1:
        raise InputError(
            "both explanations must have the same text 1 "
            f"({first.text1!r:.60} is not {second.text1!r:.60}); explain(a, b) - explain(a, c)"
        )
    if None in (first.text2, second.text2) or first.text3 is not None or second.text3 is not None:
        raise InputError("only explanations of two texts can be subtracted")


def _plain(value: Any) -> Any:
    """Turn rows, coverages and tuples into dicts and lists."""
    if isinstance(value, Row):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _tupled(value: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the lists of a dict back into tuples."""

    def turn(item: Any) -> Any:
        return tuple(turn(part) for part in item) if isinstance(item, list) else item

    return {key: turn(item) for key, item in value.items()}
