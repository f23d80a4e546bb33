"""Which dimensions of a model are dead, duplicates, crowded or unclear, with an edit for each.

A verdict is a number beyond a threshold of `Thresholds`, and both are reported. It holds for the corpus, so the corpus
should be like the texts that the model is for. "Fires" is defined in `coordinates.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from pellucid.analysis.coordinates import Floats, Spread, check_model, column_chunks, correlations, spread
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError, check_choice, shown
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, percent, quoted, signed
from pellucid.explain.views.report import Report
from pellucid.settings import Limits, Settings
from pellucid.text.function_words import content_words

KINDS = ("dead", "duplicate", "crowded", "unclear")
_SCORE_EPS = 0.01  # shares of a smaller mean score mean nothing
_STEM_CHARS = 5  # letters that words are compared by
_N_STRONGEST_TEXTS = 10  # texts that the words of an anchor are looked for in


@dataclass(frozen=True)
class Thresholds(Settings):
    """From which values on a dimension is reported.

    Attributes:
        dead_rate: dead dimensions fire on at most this share of the texts, and vary no more than the average.
        duplicate: duplicates have a correlation of at least this in size.
        duplicate_texts: the variation of both must come from at least so many texts (`support`); with fewer, a high
            correlation is chance.
        crowded_rate: crowded dimensions fire on at least this share of the texts.
        crowded_share: they may also give at least this share of the mean score of two texts, and thrice the even share.
        unclear_words: unclear anchors have fewer different content words than this.
        least_texts: of fewer texts no dimension is called dead or crowded, nor an anchor unclear for the texts where it
            is strongest: a rate of 0.001 cannot be told from 0 on a hundred texts.
    """

    dead_rate: Annotated[float, Limits(0, 1)] = 0.001
    duplicate: Annotated[float, Limits(0.5, 1)] = 0.95
    duplicate_texts: Annotated[int, Limits(2)] = 10
    crowded_rate: Annotated[float, Limits(0, 1)] = 0.95
    crowded_share: Annotated[float, Limits(0, 1)] = 0.05
    unclear_words: Annotated[int, Limits(0)] = 2
    least_texts: Annotated[int, Limits(2)] = 1_000


class Finding(NamedTuple):
    """A dimension with a verdict, or several that are duplicates."""

    verdict: str  # "dead", "duplicate", "crowded" or "unclear"
    dimensions: tuple[str, ...]  # names; the first of duplicates is the one that the others resemble
    # what was measured: "firing rate", "deviation", "correlation", "share of the mean score", "content words"
    # or "strongest texts with one of its words"
    measure: str
    value: float  # the number; of duplicates the smallest correlation in size
    reason: str  # a sentence with the number
    edit: str  # the proposed edit, as code on a `model`
    mirrored: tuple[str, ...] = ()  # the duplicates that fall where the first rises


class Measured(NamedTuple):
    """What was measured of one dimension."""

    name: str
    firing_rate: float  # share of the texts that it fires on
    share: float  # mean share of an embedding that it carries; the shares add up to 1
    common: float  # what it gives to the mean score of two different texts; these add up to that score
    deviation: float  # standard deviation of its coordinate
    nearest: str  # the dimension with the largest correlation in size; "" where all are 0
    correlation: float  # with the nearest
    verdict: str  # those of the findings, with commas; "" for none


@dataclass(frozen=True, repr=False)
class Audit(Report):
    """What is wrong with the dimensions of a model, measured on a corpus."""

    kind: ClassVar[str] = "audit"
    table: ClassVar[str] = "measured"

    family: str
    texts: int
    blank: int  # how many more have no known word
    mean_score: float  # mean cosine of two different texts
    thresholds: Thresholds  # what the verdicts were made with
    findings: tuple[Finding, ...]  # dead, duplicate, crowded, unclear, each by falling weight
    measured: tuple[Measured, ...]  # every dimension in order

    def findings_for(self, verdict: str) -> list[Finding]:
        """Return the findings of one verdict: "dead", "duplicate", "crowded" or "unclear".

        Raises:
            InputError: there is no such verdict.
        """
        check_choice("verdict", verdict, KINDS)
        return [finding for finding in self.findings if finding.verdict == verdict]

    def cleaned(self, model: Embedder, verdicts: Iterable[str] = ("dead", "duplicate")) -> Embedder:
        """Return `model` with the proposed edits made: duplicates merged, the others removed.

        Crowded dimensions may be what all texts of the corpus have in common, and unclear ones may only need another
        name (`rename`), so these are removed only if asked for. `compare` with gold scores shows whether the model
        became better.

        Args:
            model: the model that was audited.
            verdicts: which findings to act on.

        Raises:
            InputError: an unknown verdict, the model lacks a dimension of a finding, or no dimension would be left.
        """
        findings = [finding for verdict in dict.fromkeys(verdicts) for finding in self.findings_for(verdict)]
        removed = {name for f in findings for name in (f.mirrored if f.verdict == "duplicate" else f.dimensions)}
        for finding in findings:
            group = [name for name in finding.dimensions if name not in removed]
            if finding.verdict == "duplicate" and len(group) > 1:
                model = model.merge(*group)
        return model.without(*sorted(removed)) if removed else model

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Audit", counted(len(self.findings), "finding"), f"{self.family} model")
        sizes = f"{counted(len(self.measured), 'dimension')} over {counted(self.texts, 'text')}"
        blank = f" and {self.blank:,} more without a known word" if self.blank else ""
        yield Note(f"{sizes}{blank}. Two different texts score {signed(self.mean_score, 4)} on average.")
        limits = self.thresholds
        if self.texts < limits.least_texts:
            yield Note(
                "So few texts cannot show which dimensions are dead or crowded, nor which anchors do not fit their "
                f"strongest texts: use {limits.least_texts:,} or more."
            )
        titles = (
            f"dead: the same in all texts, or firing on at most {percent(limits.dead_rate)} of them and varying little",
            f"duplicate: correlation {limits.duplicate:g} or more in size",
            f"crowded: firing on {percent(limits.crowded_rate)} of the texts or more, or giving "
            f"{percent(limits.crowded_share)} of the mean score or more",
            "unclear: an anchor with few content words, or with none that its strongest texts have",
        )
        for kind, title in zip(KINDS, titles, strict=True):
            findings = self.findings_for(kind)
            if not findings and self.texts < limits.least_texts and kind in ("dead", "crowded"):
                continue
            if not findings:
                yield Note(f"None {title}.")
                continue
            rows = ((" | ".join(f.dimensions), f.reason, f.edit) for f in findings)
            yield TablePart.of(f"{len(findings):,} {title}", [("dimension", "name"), "because", ("edit", "code")], rows)
        if self.findings:
            yield Note(
                "The edits are the field `edit` of the findings, in JSON too; `cleaned(model)` makes those of some."
            )


def audit(model: Embedder, texts: Iterable[str], *, thresholds: Thresholds | None = None, seed: int = 0) -> Audit:
    """Find the dimensions of `model` that are dead, duplicates of each other, crowded, or unclear.

    Dead: it fires on (almost) no text and varies little, or has the same coordinate in all texts. Duplicate: its
    coordinate rises and falls with another's. Crowded: it fires on nearly every text, or gives much of the score that
    any two texts have; the second is not judged where two texts score below 0.01 on average. Unclear, only of anchors:
    the anchor has fewer than two content words, or none of them occurs in the ten texts where its dimension is
    strongest, such as "They may rebel.". Of fewer than 1,000 texts only duplicates and anchors of few words are found.

    Args:
        model: any family.
        texts: a corpus like the texts the model is for, read once and in blocks.
        thresholds: from which values on a dimension is reported; None takes the defaults.
        seed: of the sample that is measured: at most 20,000 texts, fewer above 1,677 dimensions.

    Raises:
        InputError: the model knows fewer than two of the texts, or an item is not a string.
    """
    thresholds = Thresholds() if thresholds is None else thresholds
    if not isinstance(thresholds, Thresholds):
        raise InputError(f"thresholds are {shown(thresholds)}; give Thresholds(...) of pellucid.analysis, or None")
    check_model(model)
    names = model.dimensions.names
    measured = spread(model, texts, seed)
    enough = measured.texts >= thresholds.least_texts
    dead = _findings("dead", names, _dead(measured, thresholds)) if enough else {}
    alive = np.ones(len(names), bool)
    alive[list(dead)] = False
    alive &= support(measured.sample) >= thresholds.duplicate_texts
    relatives, groups = _duplicates(measured, alive, thresholds.duplicate)
    doubled = [_duplicate_finding(group, names) for group in groups]
    crowded = _findings("crowded", names, _crowded(measured, thresholds)) if enough else {}
    unclear = _findings("unclear", names, _unclear(measured, model, thresholds)) if model.family == "anchors" else {}
    alive_and_crowded = (finding for n, finding in crowded.items() if n not in dead)
    findings = (*dead.values(), *doubled, *alive_and_crowded, *unclear.values())
    return Audit(
        family=model.family,
        texts=measured.texts,
        blank=measured.blank,
        mean_score=float(measured.common.sum()),
        thresholds=thresholds,
        findings=findings,
        measured=tuple(_rows(measured, names, relatives, findings)),
    )


def support(sample: Any) -> Floats:
    """Count the texts that each dimension varies on, [n]: (sum of d^2)^2 / sum of d^4, d = x - mean."""
    supports = np.zeros(sample.shape[1])
    for where, part in column_chunks(sample):
        squares = (part - part.mean(axis=0)) ** 2
        fourth = (squares**2).sum(axis=0)
        np.divide(squares.sum(axis=0) ** 2, fourth, out=supports[where], where=fourth > 0)
    return supports


Reason = tuple[int, str, float, str]
"""The index of a dimension, and what a finding says of it: measure, value, reason."""


def _findings(verdict: str, names: list[str], reasons: Iterable[Reason]) -> dict[int, Finding]:
    """Return findings about single dimensions, which all propose to remove them, by index."""
    return {
        index: Finding(verdict, (names[index],), measure, value, reason, f"model.without({quoted(names[index])})")
        for index, measure, value, reason in reasons
    }


def _dead(measured: Spread, thresholds: Thresholds) -> Iterator[Reason]:
    """Yield which dimensions are dead, the rarest first."""
    flat, quiet = measured.flat, measured.quiet
    for index in np.argsort(measured.firing, kind="stable").tolist():
        rate, mean = float(measured.firing[index]), float(measured.mean[index])
        if flat[index]:
            yield index, "deviation", float(measured.deviation[index]), f"its coordinate is {signed(mean)} in all texts"
        elif rate <= thresholds.dead_rate and quiet[index]:
            n_texts = f"{round(rate * measured.texts):,} of {counted(measured.texts, 'text')}"
            yield index, "firing rate", rate, f"fires on {n_texts}"


def _crowded(measured: Spread, thresholds: Thresholds) -> Iterator[Reason]:
    """Yield which dimensions are crowded, the largest part of the mean score first."""
    score = float(measured.common.sum())
    floor = max(thresholds.crowded_share, 3 / len(measured.common))
    for index in np.argsort(-measured.common, kind="stable").tolist():
        rate, share = float(measured.firing[index]), float(measured.common[index]) / (score or 1.0)
        if score >= _SCORE_EPS and share >= floor:
            reason = f"gives {percent(share)} of the score that two texts have on average"
            yield index, "share of the mean score", share, reason
        elif rate >= thresholds.crowded_rate:
            yield index, "firing rate", rate, f"fires on {percent(rate)} of the texts"


def _unclear(measured: Spread, model: Embedder, thresholds: Thresholds) -> Iterator[Reason]:
    """Yield which anchors are unclear, the largest share of an embedding first."""
    for index in np.argsort(-measured.shares, kind="stable").tolist():
        words = {word for description in model.dimensions[index].about for word in content_words(description)}
        stems = {word[:_STEM_CHARS] for word in words}
        strongest = measured.examples(index, _N_STRONGEST_TEXTS)
        has_match = any(word[:_STEM_CHARS] in stems for example in strongest for word in content_words(example.text))
        if len(words) < thresholds.unclear_words:
            yield index, "content words", len(words), f"has {counted(len(words), 'content word')}"
        elif not has_match and measured.texts >= thresholds.least_texts:
            reason = f"none of its words occurs in its {counted(len(strongest), 'strongest text')}"
            yield index, "strongest texts with one of its words", 0, reason


Related = list[tuple[int, float]]
"""Indices of dimensions that resemble the first of them, with their correlation to it (to itself: 1)."""


def _duplicates(
    measured: Spread, alive: np.typing.NDArray[np.bool_], min_correlation: float
) -> tuple[Related, list[Related]]:
    """Return each dimension's nearest relative, and the groups; a group's members all resemble its first."""
    relatives: Related = []
    groups: list[Related] = []
    grouped: set[int] = set()
    for where, block in correlations(measured):
        for index, line in enumerate(block, where.start):
            best = int(np.abs(line).argmax())
            relatives.append((best, float(line[best])))
            if index in grouped or not alive[index]:
                continue
            duplicates = [
                n
                for n in np.flatnonzero((np.abs(line) >= min_correlation) & alive).tolist()
                if n > index and n not in grouped
            ]
            if duplicates:
                grouped.update([index, *duplicates])
                groups.append([(index, 1.0), *((n, float(line[n])) for n in duplicates)])
    return relatives, sorted(groups, key=lambda group: -min(abs(value) for _, value in group))


def _duplicate_finding(group: Related, names: list[str]) -> Finding:
    """Propose to merge those that rise with the first, and to remove those that mirror it: their sum would cancel."""
    members = [names[index] for index, _ in group]
    merged = [names[index] for index, correlation in group if correlation > 0]
    mirrored = [names[index] for index, correlation in group if correlation < 0]
    edit = f"model.merge({', '.join(map(quoted, merged))})" if len(merged) > 1 else "model"
    edit += f".without({', '.join(map(quoted, mirrored))})" if mirrored else ""
    correlation = min((correlation for _, correlation in group[1:]), key=abs)
    reason = f"correlation {signed(correlation)}" + (f" or more, {len(group)} of them" if len(group) > 2 else "")
    return Finding("duplicate", tuple(members), "correlation", correlation, reason, edit, tuple(mirrored))


def _rows(measured: Spread, names: list[str], relatives: Related, findings: Sequence[Finding]) -> Iterator[Measured]:
    verdicts: dict[str, list[str]] = {}
    for finding in findings:
        for name in finding.dimensions:
            verdicts.setdefault(name, []).append(finding.verdict)
    columns = zip(names, measured.firing, measured.shares, measured.common, measured.deviation, relatives, strict=True)
    for name, firing, share, common, deviation, (relative, correlation) in columns:
        nearest, verdict = names[relative] if correlation else "", ", ".join(verdicts.get(name, []))
        yield Measured(
            name, float(firing), float(share), float(common), float(deviation), nearest, correlation, verdict
        )
