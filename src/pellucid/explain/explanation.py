"""What a score is made of: named rows that add up to it.

An `Explanation` is data; `explanation_views` shows it. The remainder is the score less
the rows: rounding for a family that keeps every term (`exact`), and also what was cut for one that does not.

Most explanations are made for a score and a few rows. So the rows of a family stay an array of numbers (`LazyRows`),
with a function that names them, until they are read.

"Why does B rank above C for A?" is `model.explain(a, b) - model.explain(a, c)`: an explanation again, whose score is
the gap between the two.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, check_integer, shown
from pellucid.explain.groups import Group
from pellucid.explain.rows import (
    LazyRows,
    Measurement,
    Row,
    combined_measurement,
    sorted_with_shares,
)
from pellucid.explain.views.explanation import BESIDE_WORDS, ExplanationViews
from pellucid.explain.views.report import json_text
from pellucid.text.unicode import canonicalize, well_formed
from pellucid.text.words import Coverage, Span

SCHEMA_VERSION = 2
"""Version of the dict and JSON form. It changes when a key is renamed, removed or changes its meaning."""

_TOLERANCE = 1e-6  # relative to the sum of the rows' sizes; an exact family that misses this has a bug


@dataclass(frozen=True, repr=False)
class Explanation(ExplanationViews):
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
    """

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

        Raises:
            InputError: `exact` is promised, but the terms do not add up to `score`; or two are the same term.
        """
        if make is not None:
            rows: Sequence[Row] = LazyRows(np.asarray(terms, np.float64), make, score)
        else:
            rows = sorted_with_shares(terms, score)
        explanation = cls(family, *texts, score, rows, exact, *unknown, coverage=coverage, measurement=measurement)
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
        self._check_same_subject(subtracted)
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
        )

    def _check_same_subject(self, subtracted: Explanation) -> None:
        if self.family != subtracted.family:
            raise InputError(f"a {subtracted.family} explanation cannot be taken from a {self.family} one")
        if self.text1 != subtracted.text1:
            raise InputError(
                "both explanations must have the same text 1 "
                f"({self.text1!r:.60} is not {subtracted.text1!r:.60}); explain(a, b) - explain(a, c)"
            )
        if None in (self.text2, subtracted.text2) or self.text3 is not None or subtracted.text3 is not None:
            raise InputError("only explanations of two texts can be subtracted")

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

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings, numbers and None; `docs/schema.json` describes them."""
        names = [f.name for f in fields(self)]
        names.insert(names.index("exact"), "remainder")
        content = {name: _plain(getattr(self, name)) for name in names}
        content["groups"] = [_plain(group) for group in self.groups()]
        return {"version": SCHEMA_VERSION, "summary": self.summary()} | content

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return `to_dict` as JSON text that a regression test can keep; None as `indent` gives one line."""
        return json_text(self.to_dict(), indent)


def _plain(value: Any) -> Any:
    """Turn rows, coverages and tuples into dicts and lists."""
    if isinstance(value, (Row, Group, Measurement)):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, Coverage):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [_plain(item) for item in value] if isinstance(value, (tuple, LazyRows)) else value
