"""What a score is made of: named rows that add up to it.

An `Explanation` is data, and shows itself: a sentence, the texts and a few lines first, its rows below them on request.
The remainder is the score less the rows: rounding for a family that keeps every term (`exact`), and also what was cut
for one that does not.

Most explanations are made for a score and a few rows. So the rows of a family stay an array of numbers (`LazyRows`),
with a function that names them, until they are read.

"Why does B rank above C for A?" is `model.explain(a, b) - model.explain(a, c)`: an explanation again, whose score is
the gap between the two.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, check_integer, shown
from pellucid.explain.checks import MAX_CHECKED_LINES, Checks, ExplainedPair, SpanPair, check, find_changes, without
from pellucid.explain.groups import COMMON, MAX_FAR, MIN_CLOSENESS, PHRASE, Group, GroupedRows, name_pieces
from pellucid.explain.rows import (
    CONTEXT,
    REMAINDER,
    SCORE_EPS,
    SENTENCE,
    SHARED,
    WORD,
    WORD_PAIR,
    LazyRows,
    Measurement,
    Row,
    combined_measurement,
    share_of,
    sorted_with_shares,
    sums_by_span,
)
from pellucid.explain.summary import Summary, and_listed
from pellucid.explain.views.parts import (
    AnyPart,
    Bars,
    Fold,
    Heading,
    Lead,
    MarkedText,
    MarkedTexts,
    Note,
    counted,
    listed,
    marked,
    visible,
)
from pellucid.explain.views.report import Shown, frame, json_text, json_value
from pellucid.process import cached_property
from pellucid.text.unicode import canonicalize, well_formed
from pellucid.text.words import Coverage, Span

if TYPE_CHECKING:
    from pandas import DataFrame

SCHEMA_VERSION = 2
"""Version of the dict and JSON form. It changes when a key is renamed, removed or changes its meaning."""

_TOLERANCE = 1e-6  # relative to the sum of the rows' sizes; an exact family that misses this has a bug
_CANCELLED = 0.1  # |score| over the sum of the rows' sizes; below, shares of the score mislead
BESIDE_WORDS = (SHARED, CONTEXT, REMAINDER)
"""Kinds of rows that stand beside those of words, and leave them what they are."""
CONTEXT_WARN_RATIO = 0.25
"""Context over the score less what all texts share, from which views warn: four times its mean size for MiniLM."""
MIN_WARNED_CONTEXT = 0.05
"""A smaller context is no reason to warn, however small the score is."""
_HOW_TO_MEASURE = 'Measure it: model.with_reasons("measured"), or measured() of a hit.'
_INDEX_LABELS = ("the query", "this document", "the other document")
"""What the texts are called where a hit is compared with another one."""
GROUPS = 5
"""Phrases that a view shows."""


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
        measurement: how the rows were measured, where that is by leaving words out; else None.
        pair: what scores the texts when words are left out, see `check`; a copy has its results instead, where
            they were read.
        is_checked: whether lines are checked when they are read.
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
    measurement: Measurement | None = None
    pair: ExplainedPair | None = field(default=None, compare=False)
    is_checked: bool = field(default=False, compare=False)

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
        measurement: Measurement | None = None,
        pair: ExplainedPair | None = None,
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
            measurement: how the terms were measured, where that is by leaving words out.
            pair: what scores the texts when words are left out.

        Raises:
            InputError: `exact` is promised, but the terms do not add up to `score`; or two are the same term.
        """
        if make is not None:
            rows: Sequence[Row] = LazyRows(np.asarray(terms, np.float64), make, score)
        else:
            rows = sorted_with_shares(terms, score)
        explanation = cls(
            family, *texts, score, rows, exact, *unknown, coverage=coverage, measurement=measurement, pair=pair
        )
        if exact and abs(score - float(explanation._values.sum())) > _TOLERANCE * max(1.0, explanation._size):
            raise InputError(
                f"the rows miss the score {score} by {explanation.remainder}; pass every term, or exact=False"
            )
        return explanation

    def __sub__(self, subtracted: Explanation) -> Explanation:
        """Say why text 2 is closer to text 1 than the other explanation's text 2 is.

        Rows of the same key are subtracted; a row that only `subtracted` has counts with its sign turned.

        Raises:
            InputError: the two are not about the same text 1, or come from different families.
        """
        if not isinstance(subtracted, Explanation):
            return NotImplemented
        if self.family != subtracted.family:
            raise InputError(
                f"an explanation of a model of the family {subtracted.family} cannot be taken from one of {self.family}"
            )
        if self.text1 != subtracted.text1:
            raise InputError(
                "both explanations must have the same text 1 "
                f"({self.text1!r:.60} is not {subtracted.text1!r:.60}); explain(a, b) - explain(a, c)"
            )
        if None in (self.text2, subtracted.text2) or self.text3 is not None or subtracted.text3 is not None:
            raise InputError("only explanations of two texts can be subtracted")
        rows = {row.key: row for row in self.rows}
        for row in subtracted.rows:
            first = rows.get(row.key, row._replace(contribution=0.0, spans2=()))
            rows[row.key] = first._replace(contribution=first.contribution - row.contribution, spans3=row.spans2)
        score = self.score - subtracted.score
        return replace(
            self,
            score=score,
            rows=sorted_with_shares(rows.values(), score),
            exact=self.exact and subtracted.exact,
            text3=subtracted.text2,
            unknown3=subtracted.unknown2,
            coverage=(*self.coverage, *subtracted.coverage[1:]) if self.coverage and subtracted.coverage else (),
            measurement=combined_measurement([self.measurement, subtracted.measurement]),
            pair=None,
            is_checked=False,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied and pickled: what changed texts score, not the model that may score them."""
        return {**vars(self), "pair": None, "is_checked": self.is_checked and "_checks" in vars(self)}

    def check(self) -> Explanation:
        """Return the explanation with lines that are checked: the model scores the texts without the words of each.

        At most twelve texts are scored, when lines or the summary are first read. `explain` of two texts does it
        unasked; of vectors that were stored, and of hits, it is done on request.

        Raises:
            InputError: there is nothing that could score changed texts.
        """
        if self.pair is None:
            raise InputError(
                "this explanation cannot be checked: it is of one text or a difference of two scores, or was copied or "
                "pickled; explain the two texts anew"
            )
        checked, unchecked_lines = object.__new__(type(self)), ("_checks", "lines")
        vars(checked).update({name: value for name, value in vars(self).items() if name not in unchecked_lines})
        vars(checked).update(is_checked=True)
        return checked

    def reasons(self, top_k: int) -> list[Row]:
        """Return the `top_k` rows that add the most; fewer where fewer add anything.

        What all texts of an encoder have in common is no reason for this score, and left out.
        """
        check_integer("top_k", top_k, 0)
        adding = (self.rows[number] for number in np.flatnonzero(self.contributions > 0).tolist())
        return list(islice((row for row in adding if row.kind not in BESIDE_WORDS), min(top_k, sys.maxsize)))

    def word_contributions(self, text: int = 1) -> dict[Span, float]:
        """Return what each span of text 1, 2 or 3 adds to the score, in text order.

        A row that stands in several places is split evenly between them. Where every row has a place in the text, the
        values add up to the score.

        Raises:
            InputError: `text` is not the number of one of the texts.
        """
        self._check_number(text)
        return dict(self._sums_by_span[text - 1])

    def unknown_words(self, text: int = 1) -> list[str]:
        """Return the distinct words of text 1, 2 or 3 that the model has no vector for, in text order.

        Raises:
            InputError: `text` is not the number of one of the texts.
        """
        self._check_number(text)
        words = (self.texts[text - 1][start:end] for start, end in self.unknown[text - 1])
        return list(dict.fromkeys(map(canonicalize, words)))

    def _check_number(self, text: int) -> None:
        if text not in range(1, len(self.texts) + 1):
            raise InputError(f"text is {shown(text)}; this explanation has texts 1 to {len(self.texts)}")

    @property
    def texts(self) -> tuple[str, ...]:
        """The one, two or three texts."""
        return tuple(text for text in (self.text1, self.text2, self.text3) if text is not None)

    @property
    def unknown(self) -> tuple[tuple[Span, ...], ...]:
        """The spans of texts 1, 2 and 3 that the model has no vector for."""
        return self.unknown1, self.unknown2, self.unknown3

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
        return float(np.abs(self._values).sum())

    @cached_property
    def remainder(self) -> float:
        """The score less the sum of the rows."""
        return math.fsum([self.score, *(-self.contributions).tolist()])

    @cached_property
    def _sums_by_span(self) -> tuple[dict[Span, float], ...]:
        return sums_by_span(*(self.rows.taken_apart if isinstance(self.rows, LazyRows) else ((), self.rows)))

    def groups(self, k: int | None = GROUPS) -> list[Group]:
        """Return the rows as a few lines that add up to the score: phrases of text 1 with those that they match.

        A phrase's line holds every row of its words. Of a family whose rows are not of words, the largest rows are
        lines. Then follow, where they are not 0: the sum of what is in no line, context, what all texts have in common,
        and the remainder.

        Args:
            k: lines of phrases or rows, at most; fewer where the others take more than two lines, so that there are no
                more than `k` + 2 in all. None for all.

        Raises:
            InputError: `k` is below 1.
        """
        check_integer("k", k, optional=True)
        groups = self._grouped.groups(k, 0.0 if self.exact else self.remainder)
        if self._checks is None:
            return groups
        scores, lines = self._checks.without, [group for group in groups if not group.is_sum]
        lines = [line._replace(without=scores.get((line.spans1, line.spans2))) for line in lines]
        sign = math.copysign(1.0, self.score)
        lines.sort(key=lambda line: math.inf if line.without is None else line.without * sign)
        return [*lines, *groups[len(lines) :]]

    @cached_property
    def lines(self) -> list[Group]:
        """The groups that views show."""
        return self.groups()

    def summary(self) -> str:
        """Return one or two sentences that say where the score comes from: the largest groups, numbers rounded."""
        if not self.rows:
            return self._why_no_rows()
        unknown = [text[slice(*span)] for text, spans in zip(self.texts, self.unknown) for span in spans]
        subject = "Score" if self._is_of_index else "Similarity"
        free: list[list[tuple[str, str]]] = []
        if self.text2 is not None and self.text3 is None:  # a query is matched, not a document
            n_texts, far = (1, MIN_CLOSENESS) if self._is_of_index else (2, MAX_FAR)
            free = [self._grouped.free_words(text, far) for text in range(n_texts)]
        partly = dict(read_as for coverage in self.coverage for read_as in coverage.read_as)
        return Summary(
            self.texts, self._labels, self.score, self.lines, unknown, partly, free, self._has_shares, subject,
            self._checks,
        ).text()  # fmt: skip

    @cached_property
    def _checks(self) -> Checks | None:
        if self.pair is None or self.text2 is None or not self.is_checked:
            return None
        groups = self._grouped.groups(MAX_CHECKED_LINES, 0.0 if self.exact else self.remainder)
        lines = [group for group in groups if not group.is_sum and (group.spans1 or group.spans2)]
        span_pairs: dict[SpanPair, SpanPair] = {
            (line.spans1, line.spans2): self._grouped.everywhere(line) for line in lines
        }
        if self._is_of_index:  # the query stays
            span_pairs = {line: ((), in_text2) for line, (_, in_text2) in span_pairs.items() if in_text2}
        common = sum(group.contribution for group in groups if group.kind == COMMON)
        texts = self.text1, self.text2
        checks = check(self.pair, texts, span_pairs, [] if self._is_of_index else find_changes(texts), common)
        if not any(coverage.is_low for coverage in self.coverage):  # of which a score tells little
            checks = checks._replace(percentile=self.pair.percentile(self.score, texts))
        return checks

    @property
    def percentile(self) -> float | None:
        """How many of 100 unrelated pairs of texts of such lengths score less.

        None for hits and for what is not checked; for texts that the model hardly knows, or whose function words are of
        another language than English.
        """
        return self._checks and self._checks.percentile

    @cached_property
    def _grouped(self) -> GroupedRows:
        return GroupedRows(self.rows, self.texts, self.unknown, self.score)

    @property
    def _is_of_index(self) -> bool:
        return self.family.endswith("index")

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
        table.attrs["coverage"] = tuple(coverage.share for coverage in self.coverage)
        return table

    def to_html(self, *, fragment: bool = False, top_k: int = 12) -> str:
        """Return a self-contained HTML page without scripts: a sentence, the texts, lines of phrases.

        The `top_k` largest rows are below them, folded.

        Args:
            fragment: leave out the page around it, to be placed inside another page.
            top_k: rows shown; the others are one line with their sum.
        """
        from pellucid.explain.views.page import page

        return page(self._parts(top_k, rows=True, folded=True), fragment=fragment)

    def to_text(self, *, width: int = 100, rows: bool = False, top_k: int = 10) -> str:
        """Return what `print` shows, `width` characters wide: a sentence, the texts and lines of phrases.

        Args:
            width: of the lines, in characters.
            rows: show rows, too, such as pairs of words.
            top_k: how many of them; the others are one line with their sum.
        """
        from pellucid.explain.views.terminal import plain

        return plain(self._parts(top_k, rows=rows), width=width)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings, numbers and None; `docs/schema.json` describes them."""
        return {
            "version": SCHEMA_VERSION,
            "summary": self.summary(),
            **json_value(self),
            "remainder": self.remainder,
            "percentile": self.percentile,
            "groups": json_value(self.lines),
        }

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return `to_dict` as JSON text that a regression test can keep; None as `indent` gives one line."""
        return json_text(self.to_dict(), indent)

    def __repr__(self) -> str:
        """Return one short line; `print` shows the rows."""
        kind = "exact" if self.exact else f"remainder {self.remainder:+.4f}"
        return f"<Explanation {visible(self.family)}: score {self.score:.4f}, {len(self.rows):,} rows, {kind}>"

    # --- What the views show ---

    @property
    def _labels(self) -> Sequence[str]:
        if self.text2 is None:
            return ("the text",)
        if self._is_of_index:
            return ("the query", "the document") if self.text3 is None else _INDEX_LABELS
        return [f"text {number}" for number, _ in enumerate(self.texts, 1)]

    def _parts(self, top_k: int = 10, rows: bool = False, *, folded: bool = False) -> Iterator[AnyPart]:
        """Yield what every medium shows: the groups, and with `rows` the `top_k` largest rows."""
        check_integer("top_k", top_k, 0)
        top_k = min(top_k, len(self.rows))
        subject = "Score" if self._is_of_index else "Similarity"
        labels = self._labels
        title = "What the text is about" if self.text2 is None else subject
        if self.text3 is not None:
            prefix = f"{subject} of" if self._is_of_index else f"{subject} to"
            title = f"{prefix} {labels[1]} less {prefix.lower()} {labels[2]}"
        yield Heading(title, f"{self.score:.4f}", self.family if self._is_of_index else f"{self.family} model")
        if self.rows:
            yield Lead(self.summary())
        for label, coverage in zip(labels, self.coverage):
            if warning := coverage_warning(coverage, label):
                yield Note(warning, is_warning=True)
        context, specific = self._sum_of(CONTEXT), self.score - self._sum_of(SHARED)
        if abs(context) > max(CONTEXT_WARN_RATIO * abs(specific), MIN_WARNED_CONTEXT):
            unit = SENTENCE if SENTENCE in self._kinds else WORD
            account = f"The {unit}s account for {specific - context:+.2f} of {specific:+.2f}"
            yield Note(f"{account}; the rest is not explained by {unit}s. {_HOW_TO_MEASURE}", is_warning=True)
        yield from map(Note, self._notes())
        labels = [label.removeprefix("the ") for label in labels]  # beside the texts
        yield MarkedTexts(tuple(self._marked(number, label) for number, label in enumerate(labels, 1)))
        if not self.rows:
            return
        of_lines, of_sums = ([group for group in self.lines if group.is_sum == is_sum] for is_sum in (False, True))
        lines = tuple((name_pieces(self.texts, group), group.contribution) for group in of_lines)
        names = "words" if any(group.kind == PHRASE for group in of_lines) else self._kind_names
        sums = tuple((group.name, group.contribution) for group in of_sums)
        yield Bars(names, lines, sums, self.score, self._has_shares)
        if rows and folded:
            yield Fold(f"All {counted(len(self.rows), self._kind)}", (self._row_bars(top_k),))
        elif rows:
            yield self._row_bars(top_k)

    def _row_bars(self, top_k: int) -> Bars:
        """Return the `top_k` largest rows, then context and the like, the sum of the others and the remainder."""
        more_rows = [n for n in range(top_k, len(self.rows)) if self._row_kinds[n] in BESIDE_WORDS]
        bars = tuple((row.name, row.contribution) for row in self.rows[:top_k])
        sums = [(self.rows[n].name, self.rows[n].contribution) for n in more_rows]  # not hidden in a sum
        hidden = np.delete(self.contributions[top_k:], np.array(more_rows, int) - top_k)
        if len(hidden):
            sums.append((f"sum of {counted(len(hidden), 'more ' + self._kind)}", float(hidden.sum())))
        if not self.exact:
            sums.append(("remainder: what the rows leave out", self.remainder))
        names = "words" if self._kind in (WORD, WORD_PAIR) else self._kind_names
        return Bars(names, bars, tuple(sums), self.score, self._has_shares)

    @cached_property
    def _row_kinds(self) -> list[str]:
        return [row.kind for row in self.rows]

    @cached_property
    def _kinds(self) -> Counter[str]:
        """How many rows there are of each kind: an index and an ensemble have several."""
        return Counter(self._row_kinds)

    @property
    def _kind(self) -> str:
        """The kind of the rows; "row" where there are several."""
        kinds = [kind for kind in self._kinds if kind not in BESIDE_WORDS] or list(self._kinds)
        return kinds[0] if len(kinds) == 1 else "row"

    @property
    def _has_shares(self) -> bool:
        """Whether shares of the score mean anything: not where large terms of both signs nearly cancel."""
        return abs(self.score) > max(SCORE_EPS, _CANCELLED * self._size)

    def _notes(self) -> Iterator[str]:
        """Yield sentences about what the numbers are based on."""
        if not self.rows:
            yield self._why_no_rows()
            return
        values = self.contributions
        sums = f"{values[values > 0].sum():+.4f} for, {values[values < 0].sum():+.4f} against"
        how = "adding up to the score exactly" if self.exact else "and a remainder, adding up to the score"
        named = [counted(n, kind) for kind, n in self._kinds.items() if kind not in BESIDE_WORDS]
        named += [f"the {kind}" for kind in BESIDE_WORDS if kind in self._kinds]
        yield f"{and_listed(named)} {how}: {sums}."
        if not self._has_shares:
            yield "For and against nearly cancel: shares of so small a score would mislead and are not shown."
        elif self.score < 0:
            yield "The score is negative, so the rows that lower it have the positive shares."
        if self.measurement is not None:
            n_texts, error = self.measurement
            how = f"the standard error of what a word adds is {error:.4f}" if error else "no sampling error"
            yield f"Measured by leaving words out: {counted(n_texts, 'text')} read, {how}."

    def _sum_of(self, kind: str) -> float:
        return math.fsum(v for v, row_kind in zip(self.contributions.tolist(), self._row_kinds) if row_kind == kind)

    def _why_no_rows(self) -> str:
        """Name the texts without any known word, if there are such."""
        blank = [
            label
            for label, text, spans in zip(self._labels, self.texts, self.unknown)
            if len(self.texts) == 1 or not any(map(str.isalnum, without(text, spans)))
        ]
        if not blank:
            return "Nothing to add up: the model finds nothing that the texts have in common."
        return f"Nothing to add up: the model knows nothing of {' and '.join(blank)}."

    @property
    def _kind_names(self) -> str:
        return " or ".join(self._kinds) if self._kind == "row" else self._kind

    def _marked(self, number: int, label: str) -> MarkedText:
        """Return a text with its words marked by what they add, on one scale for all texts."""
        marks, text, spans = self._sums_by_span, self.texts[number - 1], self.unknown[number - 1]
        scale = max((abs(value) for sums in marks for value in sums.values()), default=0.0) or 1.0
        sums = marks[number - 1]
        words = list(dict.fromkeys(text[start:end] for start, end in spans))
        notes = ["not in the vocabulary: " + listed(words)] if words else []
        if self.coverage and (read := self.coverage[number - 1].interpretations):
            notes.append(f"only partly known: {listed(read, length=120)}")
        return MarkedText(label, tuple(marked(text, sums, spans, scale)), "; ".join(notes))


def coverage_warning(coverage: Coverage, text: str) -> str:
    """Return a sentence that a model knows too little of `text`; "" if it knows enough."""
    if not coverage.is_low:
        return ""
    if not coverage.known:
        return f"Only 0 of {coverage.total:,} words of {text} known: the model can say nothing of it."
    rests = "it" if coverage.known == 1 else "them"
    return f"Only {coverage.summary} of {text} known: the score rests on {rests}."
