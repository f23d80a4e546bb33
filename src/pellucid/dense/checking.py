"""How far the estimated reasons of an encoder can be trusted on some texts: agreement with measured ones, controls.

Of each pair of texts the words of the second are ordered by what they add to the score, once by the reasons and once
measured by leaving words out (`measured.py`). Controls show whether words are credited with what they did not bring:
words of other texts over the same vectors, the fall of the score by shuffled words, and by a negation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from pellucid.analysis.comparing import Pair, check_pairs
from pellucid.analysis.coordinates import Interval, confidence_interval, spearman
from pellucid.core.arrays import Role
from pellucid.core.query import Floats
from pellucid.core.removal import without
from pellucid.dense.measured import MeasuredReasons
from pellucid.dense.reasons import EncoderQuery, Parts, Reasons
from pellucid.dense.vectors import unit_vectors
from pellucid.errors import InputError, check_integer, shown
from pellucid.explain.views.parts import AnyPart, Heading, Lead, Note, TablePart, counted, numbers
from pellucid.explain.views.report import Report
from pellucid.progress import Progress
from pellucid.text.corpus import Corpus, read_texts
from pellucid.text.function_words import negations
from pellucid.text.inputs import check_texts
from pellucid.text.unicode import lowercase
from pellucid.text.words import Span, split_words

MIN_AGREEMENT = 0.5
"""Rank correlation with measured values below which reasons are not to be shown; random words have 0."""
MAX_FOREIGN_CREDIT = 0.25
"""Of what the words of the texts are credited with, for words of other texts; more is no account of the texts."""
_MAX_READ, _MAX_SAMPLED = 20_000, 1_000  # texts that are read, and among which pairs are found
_MIN_PAIRS = 5  # with an order to compare
_MIN_WORDS = 3  # of a text whose order is compared
_PAIRS_TOGETHER = 8  # that are measured in one call
_SEED = 0  # of the shuffled words


@dataclass(frozen=True, repr=False)
class ReasonsCheck(Report):
    """How far the reasons of an encoder agree with measured ones on some texts, and what words are credited with."""

    kind: ClassVar[str] = "reasons-check"

    encoder: str  # its name
    reasons: str  # their kind, such as "words"
    pairs: int  # pairs of texts whose words were ordered
    skipped: int  # pairs with fewer than three words in the second text, or without an order
    n_texts: int  # how many texts the encoder read
    agreement: Interval  # mean rank correlation (Spearman) with measured values of words, 95 % interval
    words: float  # share of words in the score less what all texts have in common
    context: float  # mean size of the context, over the mean of the same
    foreign: Interval | None  # credit of other texts' words over that of the texts' own; None where it was not tested
    shuffled: float | None  # of the fall of the score by shuffling a text's words, what is charged to words
    negated: float | None  # the same of a negation that is taken out; None where no text has one
    verdict: str  # whether the reasons are to be shown on such texts
    is_to_be_shown: bool | None  # the same; None where there are too few pairs to tell

    def _parts(self) -> Iterator[AnyPart]:
        mean, low, high = self.agreement
        yield Heading("Check of reasons", f"agreement {mean:.2f}", f"{self.reasons} of {self.encoder}")
        yield Lead(self.verdict)
        yield Note(
            f"{counted(self.pairs, 'pair')} of texts, {self.n_texts:,} texts read. The order of words agrees with the "
            f"measured one by a rank correlation of {mean:.2f} (95 % interval {low:.2f} to {high:.2f})."
        )
        yield Note(
            f"Words carry {self.words:.0%} of the score less what all texts have in common; the mean size of the "
            f"context is {self.context:.0%} of it."
        )
        rows = (
            []
            if self.foreign is None
            else [("words of other texts", "{:.0%} ({:.0%} to {:.0%})".format(*self.foreign))]
        )
        falls = (("fall by shuffled words", self.shuffled), ("fall by a negation", self.negated))
        rows += [(label, f"{value:.0%}") for label, value in falls if value is not None]
        if rows:
            yield TablePart.of("Credited or charged to words", ["control", *numbers("to words")], rows)
        if self.skipped:
            yield Note(f"{counted(self.skipped, 'pair')} left out: too few words, or no order among them.")


def check_reasons(
    model: Any, texts_or_pairs: Any, n: int, *, role1: Role, role2: Role, show_progress_bar: bool
) -> ReasonsCheck:
    """Compare the reasons of an `EncoderEmbedder` with measured ones; see its method `check_reasons`."""
    check_integer("n", n, _MIN_PAIRS)
    reasons = model.reasons
    if reasons is None or reasons.kind not in ("words", "tokens"):
        what = "no reasons" if reasons is None else f"{reasons.kind} as reasons"
        raise InputError(f'{shown(model)} has {what}; check those of words: model.with_reasons("words")')
    pairs = _pairs_of(model, texts_or_pairs, n)
    measured = model.with_reasons(MeasuredReasons.kind).reasons
    if not isinstance(measured, MeasuredReasons):
        raise TypeError(f"measured reasons are {shown(measured)}")
    test = _Test(model, reasons, measured, pairs, (role1, role2))
    agreements = test.agreements(show_progress_bar)
    if len(agreements) < _MIN_PAIRS:
        raise InputError(
            f"only {len(agreements)} of {len(pairs)} pairs have a second text with {_MIN_WORDS} words or more in an "
            f"order; give {_MIN_PAIRS} or more"
        )
    agreement = confidence_interval(np.array(agreements))
    specific, of_words = test.scores - test.shared, test.of_words
    foreign, shuffled, negated = test.foreign(), test.shuffled(), test.negated()
    verdict, is_to_be_shown = _verdict(agreement, foreign, len(agreements))
    size = max(abs(float(specific.mean())), 1e-9)
    return ReasonsCheck(
        model.name, reasons.kind, len(agreements), len(pairs) - len(agreements), test.n_texts, agreement,
        float(of_words.mean()) / size, float(np.abs(specific - of_words).mean()) / size, foreign, shuffled, negated,
        verdict, is_to_be_shown,
    )  # fmt: skip


def _verdict(agreement: Interval, foreign: Interval | None, n_pairs: int) -> tuple[str, bool | None]:
    """Return whether reasons are to be shown, in a sentence and as a truth value."""
    if foreign is not None and foreign.low > MAX_FOREIGN_CREDIT:
        return (
            f"Do not show these reasons on such texts: words of other texts get {foreign.mean:.0%} of the credit of "
            'the texts\' own words. Measure them: with_reasons("measured").',
            False,
        )
    if agreement.high < MIN_AGREEMENT:
        return (
            f"Do not show these reasons on such texts: their order of words is not the measured one (correlation at "
            f'most {agreement.high:.2f}). Measure them: with_reasons("measured"), or fit them to your texts.',
            False,
        )
    if agreement.low < MIN_AGREEMENT:
        return (
            f"{n_pairs} pairs do not tell whether these reasons can be shown on such texts: the correlation with the "
            f"measured order is between {agreement.low:.2f} and {agreement.high:.2f}. Check more, or measure them.",
            None,
        )
    return (
        "These reasons can be shown on such texts: their order of words is mostly the measured one (correlation at "
        f"least {agreement.low:.2f}).",
        True,
    )


def _pairs_of(model: Any, texts_or_pairs: Any, n: int) -> list[Pair]:
    """Return at most `n` pairs: those that are given, or texts each with the nearest other one."""
    first: Any = None
    if isinstance(texts_or_pairs, Sequence) and not isinstance(texts_or_pairs, str):
        first = next(iter(texts_or_pairs), None)
    if isinstance(first, Sequence) and not isinstance(first, str):
        pairs = check_pairs(texts_or_pairs)
        return [pairs[position] for position in _spaced(len(pairs), n)]
    corpus: Corpus = texts_or_pairs
    read = check_texts(islice(read_texts(corpus), _MAX_READ))
    texts = list(dict.fromkeys(text for text in read if text.strip()))
    texts = [texts[position] for position in _spaced(len(texts), _MAX_SAMPLED)]
    if len(texts) < 2 * _MIN_PAIRS:
        raise InputError(f"{len(texts)} different texts are too few to find pairs among; give {2 * _MIN_PAIRS} or more")
    vectors = unit_vectors(model, texts)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = cosines.argmax(axis=1).tolist()
    return [(texts[position], texts[nearest[position]]) for position in _spaced(len(texts), n)]


def _spaced(count: int, most: int) -> list[int]:
    return [count * step // most for step in range(most)] if count > most else list(range(count))


class _Test:
    """Pairs of texts with their vectors, and their parts by the reasons that are checked."""

    def __init__(
        self, model: Any, reasons: Reasons, measured: MeasuredReasons, pairs: list[Pair],
        roles: tuple[Role, Role],
    ) -> None:  # fmt: skip
        """Encode the texts of the pairs."""
        self._reasons, self._measured, self._pairs, self._roles, self._model = reasons, measured, pairs, roles, model
        sides = ([pair[side] for pair in pairs] for side in (0, 1))
        self._vectors = [self._encoded(texts, role) for texts, role in zip(sides, roles)]
        self.n_texts = 2 * len(pairs)
        self._parts = [
            [self._parts_of(pair[side], roles[side], vector) for pair, vector in zip(pairs, self._vectors[side])]
            for side in (0, 1)
        ]
        first, second = self._vectors
        self.scores: Floats = np.einsum("pd,pd->p", first, second)
        self.shared: Floats = self.scores - np.einsum("pd,pd->p", *map(reasons.centred, self._vectors))
        self.of_words: Floats = np.array([_product(*parts) for parts in zip(*self._parts)])

    def _encoded(self, texts: list[str], role: Role) -> Floats:
        return unit_vectors(self._model, texts, role=role).astype(np.float64)

    def _parts_of(self, text: str, role: Role, vector: Floats) -> Parts:
        return EncoderQuery(self._model, text, role, vector).parts

    def agreements(self, show_progress_bar: bool) -> list[float]:
        """Return the rank correlation of each pair that has an order of words."""
        agreements: list[float] = []
        with Progress("measuring", total=len(self._pairs), unit="pairs", enabled=show_progress_bar) as progress:
            for start in range(0, len(self._pairs), _PAIRS_TOGETHER):
                numbers_of = range(start, min(start + _PAIRS_TOGETHER, len(self._pairs)))
                texts = [(self._pairs[n][1], self._roles[1], self._vectors[1][n]) for n in numbers_of]
                for n, parts in zip(numbers_of, self._measured.measure(texts)):
                    self.n_texts += parts.n_texts
                    correlation = self._agreement(n, parts)
                    agreements += [] if correlation is None else [correlation]
                progress.advance(len(numbers_of))
        return agreements

    def _agreement(self, n: int, measured: Parts) -> float | None:
        """Return the rank correlation of the words of the second text of a pair; None where there is no order."""
        first, second = self._parts[0][n], self._parts[1][n]
        true = measured.vectors @ (self._vectors[0][n] - self._measured.common)
        estimated: dict[Span, float] = {}
        for part, value in enumerate((second.vectors @ first.vectors.sum(axis=0)).tolist()):
            spans = second.row(part).spans1
            estimated.update((span, estimated.get(span, 0.0) + value / len(spans)) for span in spans)
        span_groups = [measured.row(part).spans1 for part in range(len(true))]
        values = np.array([sum(v for (a, b), v in estimated.items() if _within(a, b, spans)) for spans in span_groups])
        if len(true) < _MIN_WORDS or not np.ptp(true) or not np.ptp(values):
            return None
        return spearman(values, true)

    def foreign(self) -> Interval | None:
        """Return what words of other texts are credited with over the same vectors, over what the texts' own are."""
        count = len(self._pairs)
        if not self._reasons.has_context or count < 2:
            return None
        shift = count // 2
        credits = []
        for n in range(count):
            texts = self._pairs[(n + shift) % count]
            parts = (self._parts_of(texts[side], self._roles[side], self._vectors[side][n]) for side in (0, 1))
            credits.append(_product(*parts))
        return confidence_interval(np.array(credits) / max(abs(float(self.of_words.mean())), 1e-9))

    def shuffled(self) -> float | None:
        """Return what is charged to words of the fall of a text's score with itself when its words are shuffled."""
        draw = np.random.default_rng(_SEED)
        changed = []
        for n, (_, text) in enumerate(self._pairs):
            words = [word.text for word in split_words(text)]
            if len(words) >= _MIN_WORDS:
                changed.append((n, " ".join(words[position] for position in draw.permutation(len(words)))))
        return self._charged(changed)

    def negated(self) -> float | None:
        """Return what is charged to words of the fall of a text's score with itself when a negation is taken out."""
        changed = []
        for n, (_, text) in enumerate(self._pairs):
            negations_in_text = [
                (word.start, word.end) for word in split_words(text) if lowercase(word.text) in negations()
            ]
            if negations_in_text and len(split_words(text)) > len(negations_in_text):
                changed.append((n, without(text, negations_in_text)))
        return self._charged(changed)

    def _charged(self, changed: list[tuple[int, str]]) -> float | None:
        """Return the share of words in the falls of the second texts' scores when they change; None for no fall."""
        if not self._reasons.has_context or not changed:
            return None
        vectors = self._encoded([text for _, text in changed], self._roles[1])
        self.n_texts += len(changed)
        fall = of_words = 0.0
        for (n, text), vector in zip(changed, vectors):
            parts = self._parts[1][n]
            fall += 1.0 - float(vector @ self._vectors[1][n])
            of_words += _product(parts, parts) - _product(parts, self._parts_of(text, self._roles[1], vector))
        return of_words / fall if fall > 1e-6 * len(changed) else None


def _within(start: int, end: int, spans: Iterable[Span]) -> bool:
    return any(first <= start and end <= last for first, last in spans)


def _product(first: Parts, second: Parts) -> float:
    """Return what all parts of two texts add to the product of their vectors."""
    return float(first.vectors.sum(axis=0) @ second.vectors.sum(axis=0))
