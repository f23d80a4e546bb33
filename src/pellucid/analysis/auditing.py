"""Dimensions that are dead, duplicate, crowded or have a name that says nothing, and the edit that mends each.

Written against `Embedder` alone. Every verdict is a number over a threshold of `Thresholds`, and both are reported;
a verdict says what a corpus shows, so the corpus should be like the texts the model is for. What "fires" means is in
`coordinates.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from pellucid.analysis.coordinates import Floats, Spread, column_chunks, correlations, spread
from pellucid.base import Embedder
from pellucid.errors import InputError
from pellucid.text import content_words
from pellucid.views.figure import Canvas, short_name
from pellucid.views.parts import AnyPart, Heading, Note, TablePart, counted, percent, quoted, signed
from pellucid.views.report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


KINDS = ("dead", "duplicate", "crowded", "unclear")
_NO_SCORE = 0.01  # below this mean score of two texts, shares of it mean nothing
_MOST_NAMED = 8  # points with their name beside them
_STEM = 5  # letters that words are compared by
_STRONGEST = 10  # texts that the name of an anchor is held against
_FEW_TEXTS = 1_000  # below, the audit warns that a rare dimension may only seem dead


@dataclass(frozen=True)
class Thresholds:
    """From where on a dimension is reported.

    Attributes:
        dead_rate: it fires on at most this share of the texts, and varies no more than dimensions do on average.
        duplicate: the correlation of two dimensions is at least this in size.
        duplicate_texts: the variation of both comes from at least so many texts (`coordinates.support`); of fewer, a
            high correlation is chance.
        crowded_rate: it fires on at least this share of the texts.
        crowded_share: it gives at least this share of the mean score of two texts, and three times the even share.
        unclear_words: an anchor has fewer different words than this that say something.
    """

    dead_rate: float = 0.001
    duplicate: float = 0.95
    duplicate_texts: int = 10
    crowded_rate: float = 0.95
    crowded_share: float = 0.05
    unclear_words: int = 2

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            InputError: a share is outside 0 to 1, `duplicate` is not above 0.5, `duplicate_texts` is below 2, or
                `unclear_words` is negative.
        """
        for name in (f.name for f in fields(self) if f.type == "float"):
            low = 0.5 if name == "duplicate" else 0.0
            if not low <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)!r}; it must be between {low:g} and 1")
        if self.duplicate_texts < 2:
            raise InputError(f"duplicate_texts is {self.duplicate_texts}; it must be at least 2")
        if self.unclear_words < 0:
            raise InputError(f"unclear_words is {self.unclear_words}; it must be at least 0")


class Finding(NamedTuple):
    """One thing that is wrong.

    Attributes:
        verdict: "dead", "duplicate", "crowded" or "unclear".
        dimensions: names; the first of a duplicate is the one the others resemble.
        measure: what was measured: "firing rate", "deviation", "correlation", "share of the mean score", "content
            words" or "strongest texts with one of its words".
        value: what it was; of a duplicate the smallest in size of its members.
        said: a sentence with the number.
        edit: the proposed edit, as code on a `model`.
        mirrored: those of a duplicate's dimensions that fall where the first rises.
    """

    verdict: str
    dimensions: tuple[str, ...]
    measure: str
    value: float
    said: str
    edit: str
    mirrored: tuple[str, ...] = ()


class Measured(NamedTuple):
    """What was measured of one dimension.

    Attributes:
        name: of the dimension.
        firing_rate: share of the texts that it fires on.
        share: mean share of an embedding that it carries; the shares add up to 1.
        common: what it gives to the mean score of two different texts; these add up to that score.
        deviation: standard deviation of its coordinate.
        nearest: the dimension with the largest correlation in size; "" where all are 0.
        correlation: that correlation.
        verdict: "" or what the findings say of it.
    """

    name: str
    firing_rate: float
    share: float
    common: float
    deviation: float
    nearest: str
    correlation: float
    verdict: str


@dataclass(frozen=True, repr=False)
class Audit(Report):
    """The state of a model's dimensions over a corpus.

    Attributes:
        family: the family of the model.
        texts: the number of texts.
        blank: how many more have no known word.
        mean_score: mean cosine of two different texts.
        thresholds: what the verdicts were made with.
        findings: what is wrong: dead, then duplicates, crowded and unclear, each by falling weight.
        measured: every dimension in order.
    """

    kind: ClassVar[str] = "audit"
    table: ClassVar[str] = "measured"

    family: str
    texts: int
    blank: int
    mean_score: float
    thresholds: Thresholds
    findings: tuple[Finding, ...]
    measured: tuple[Measured, ...]

    def of(self, verdict: str) -> list[Finding]:
        """Return the findings of one verdict: "dead", "duplicate", "crowded" or "unclear".

        Raises:
            InputError: there is no such verdict.
        """
        _check_verdicts([verdict])
        return [finding for finding in self.findings if finding.verdict == verdict]

    def cleaned(self, model: Embedder, verdicts: Iterable[str] = ("dead", "duplicate")) -> Embedder:
        """Return `model` with the proposed edits made: duplicates merged, the others removed.

        A crowded dimension may be what all texts of the corpus have in common, and one with an unclear name may only
        need another (`rename`), so these go only when asked for. Whether the model became better is for `compare` to
        say, with gold scores.

        Args:
            model: the model that was audited.
            verdicts: which findings to act on.

        Raises:
            InputError: an unknown verdict, the model lacks a dimension of a finding, or no dimension would be left.
        """
        _check_verdicts(verdicts := tuple(verdicts))
        findings = [f for f in self.findings if f.verdict in verdicts]
        gone = {name for f in findings for name in (f.mirrored if f.verdict == "duplicate" else f.dimensions)}
        for finding in findings:
            group = [name for name in finding.dimensions if name not in gone]
            if finding.verdict == "duplicate" and len(group) > 1:
                model = model.merge(*group)
        return model.without(*sorted(gone)) if gone else model

    def plot(self, *, dark: bool = False) -> Figure:
        """Return a matplotlib Figure: how often each dimension fires against the share it carries."""
        title = f"{counted(len(self.measured), 'dimension')}, {self.texts:,} texts"
        canvas = Canvas((7.2, 4.8), title, dark=dark)
        across, down = "fires on, % of the texts", "carries, % of an embedding (dashed: even share)"
        axes, colours = canvas.panel(across=across, down=down), canvas.colours
        shades = {"": colours.faint, "dead": colours.ink, "duplicate": colours.lowers, "crowded": colours.adds}
        shades["unclear"] = colours.ink
        for verdict, colour in shades.items():
            points = [m for m in self.measured if m.verdict.partition(",")[0] == verdict]
            if points:
                places = [100 * m.firing_rate for m in points], [100 * m.share for m in points]
                size, alpha = (34, 0.9) if verdict else (16, 0.55)
                label = f"{verdict or 'no finding'} ({len(points):,})"
                axes.scatter(*places, s=size, color=colour, alpha=alpha, linewidths=0, label=label, zorder=2)
        for m in sorted((m for m in self.measured if m.verdict), key=lambda m: -m.share)[:_MOST_NAMED]:
            place = 100 * m.firing_rate, 100 * m.share
            options: dict[str, Any] = {"fontsize": 7.5, "color": colours.ink, "parse_math": False}
            axes.annotate(short_name(m.name, 32), place, xytext=(5, 4), textcoords="offset points", **options)
        axes.axhline(100 / len(self.measured), color=colours.ink, linewidth=0.8, linestyle=(0, (4, 3)))
        canvas.legend(axes)
        return canvas.figure

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Audit", counted(len(self.findings), "finding"), f"{self.family} model")
        said = f"{counted(len(self.measured), 'dimension')} over {counted(self.texts, 'text')}"
        blank = f" and {self.blank:,} more that the model knows nothing of" if self.blank else ""
        yield Note(f"{said}{blank}. Two different texts score {signed(self.mean_score, 4)} on average.")
        if self.texts < _FEW_TEXTS:
            yield Note(f"So few texts cannot tell a rare dimension from a dead one; use {_FEW_TEXTS:,} or more.")
        limits = self.thresholds
        titles = (
            f"dead: the same in all texts, or firing on at most {percent(limits.dead_rate)} of them and varying little",
            f"duplicate: correlation {limits.duplicate:g} or more in size",
            f"crowded: firing on {percent(limits.crowded_rate)} of the texts or more, or giving "
            f"{percent(limits.crowded_share)} of the mean score or more",
            "unclear: an anchor that says nothing, or nothing of its strongest texts",
        )
        for kind, title in zip(KINDS, titles, strict=True):
            found = self.of(kind)
            if not found:
                yield Note(f"None {title}.")
                continue
            rows = ((" | ".join(f.dimensions), f.said, f.edit) for f in found)
            yield TablePart.of(f"{len(found):,} {title}", ["dimension", "because", ("edit", "code")], rows)


def audit(model: Embedder, texts: Iterable[str], *, thresholds: Thresholds | None = None, seed: int = 0) -> Audit:
    """Find the dimensions of `model` that are dead, duplicates of each other, crowded, or named by what says nothing.

    Dead: it fires on (almost) no text and varies little, or has the same coordinate in all. Duplicate: its coordinate
    rises and falls with another's. Crowded: it fires on nearly every text, or gives much of the score that any two
    texts have, so that it separates texts less than it blurs them; the second is not judged where two texts score
    below 0.01 on average. Unclear, of anchors alone: the anchor has fewer than two words that say something, or none of
    them stands in the ten texts of the corpus where its dimension is strongest, as in "They may rebel.".

    Args:
        model: any family.
        texts: a corpus like the texts the model is for, read once and in blocks.
        thresholds: where verdicts begin; None takes the defaults.
        seed: of the sample that correlations are computed on: at most 20,000 texts, fewer above 1,677 dimensions.

    Raises:
        InputError: the model knows fewer than two of the texts, or an item is not a string.
    """
    thresholds = thresholds or Thresholds()
    names = model.dimensions.names
    named_by_text = range(len(names)) if model.family == "anchors" else ()
    measured = spread(model, texts, examples=_STRONGEST, of=named_by_text, seed=seed)
    dead = _dead(measured, names, thresholds)
    alive = np.ones(len(names), bool)
    alive[list(dead)] = False
    alive &= support(measured.sample) >= thresholds.duplicate_texts
    relatives, groups = _duplicates(measured, alive, thresholds.duplicate)
    crowded = {n: f for n, f in _crowded(measured, names, thresholds).items() if n not in dead}
    doubled = [_duplicate_finding(group, names) for group in groups]
    findings = (*dead.values(), *doubled, *crowded.values(), *_unclear(measured, model, thresholds))
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
    """Return how many texts the variation of each dimension rests on, [n]: (sum of d^2)^2 / sum of d^4, d = x - mean.

    One text that stands out gives 1, a normal distribution a third of the texts.
    """
    found = np.zeros(sample.shape[1])
    for where, part in column_chunks(sample):
        squares = (part - part.mean(axis=0)) ** 2
        fourth = (squares**2).sum(axis=0)
        np.divide(squares.sum(axis=0) ** 2, fourth, out=found[where], where=fourth > 0)
    return found


def _dead(measured: Spread, names: list[str], thresholds: Thresholds) -> dict[int, Finding]:
    """Return the findings by number, the rarest first."""
    found: dict[int, Finding] = {}
    flat, quiet = measured.flat, measured.quiet
    for number in np.argsort(measured.firing, kind="stable").tolist():
        rate, edit = float(measured.firing[number]), f"model.without({quoted(names[number])})"
        if flat[number]:
            value = float(measured.deviation[number])
            said = f"its coordinate is {signed(float(measured.mean[number]))} in all texts"
            found[number] = Finding("dead", (names[number],), "deviation", value, said, edit)
        elif rate <= thresholds.dead_rate and quiet[number]:
            said = f"fires on {round(rate * measured.texts):,} of {counted(measured.texts, 'text')}"
            found[number] = Finding("dead", (names[number],), "firing rate", rate, said, edit)
    return found


def _crowded(measured: Spread, names: list[str], thresholds: Thresholds) -> dict[int, Finding]:
    """Return the findings by number, the largest part of the mean score first."""
    found: dict[int, Finding] = {}
    score = float(measured.common.sum())
    floor = max(thresholds.crowded_share, 3 / len(names))
    for number in np.argsort(-measured.common, kind="stable").tolist():
        rate, part = float(measured.firing[number]), float(measured.common[number])
        edit = f"model.without({quoted(names[number])})"
        if score >= _NO_SCORE and part / score >= floor:
            said = f"gives {percent(part / score)} of the score that two texts have on average"
            found[number] = Finding("crowded", (names[number],), "share of the mean score", part / score, said, edit)
        elif rate >= thresholds.crowded_rate:
            found[number] = Finding(
                "crowded", (names[number],), "firing rate", rate, f"fires on {percent(rate)} of the texts", edit
            )
    return found


def _unclear(measured: Spread, model: Embedder, thresholds: Thresholds) -> Iterator[Finding]:
    """Yield the findings about anchors, the largest share of an embedding first."""
    for number in sorted(measured.highest, key=lambda number: -measured.shares[number]):
        dimension = model.dimensions[number]
        words = {word for about in dimension.about for word in content_words(about)}
        stems = {word[:_STEM] for word in words}
        near = sum(
            not stems.isdisjoint(word[:_STEM] for word in content_words(example.text))
            for example in measured.highest[number]
        )
        edit = f"model.without({quoted(dimension.name)})"
        if len(words) < thresholds.unclear_words:
            said = f"{counted(len(words), 'word')} of it {'says' if len(words) == 1 else 'say'} something"
            yield Finding("unclear", (dimension.name,), "content words", len(words), said, edit)
        elif not near:
            said = f"none of its words stands in its {counted(len(measured.highest[number]), 'strongest text')}"
            yield Finding("unclear", (dimension.name,), "strongest texts with one of its words", 0, said, edit)


Related = list[tuple[int, float]]
"""Numbers of dimensions that resemble the first of them, with their correlation to it (its own: 1)."""


def _duplicates(measured: Spread, alive: np.typing.NDArray[np.bool_], least: float) -> tuple[Related, list[Related]]:
    """Return each dimension's nearest relative, and the groups; a group's members all resemble its first."""
    relatives: Related = []
    groups: list[Related] = []
    taken: set[int] = set()
    for where, block in correlations(measured.sample):
        for number, line in enumerate(block, where.start):
            best = int(np.abs(line).argmax())
            relatives.append((best, float(line[best])))
            if number in taken or not alive[number]:
                continue
            same = [
                n for n in np.flatnonzero((np.abs(line) >= least) & alive).tolist() if n > number and n not in taken
            ]
            if same:
                taken.update([number, *same])
                groups.append([(number, 1.0), *((n, float(line[n])) for n in same)])
    return relatives, sorted(groups, key=lambda group: -min(abs(value) for _, value in group))


def _duplicate_finding(group: Related, names: list[str]) -> Finding:
    """Merge what rises together; remove what mirrors the first, as a sum with it would be nothing."""
    members = [names[number] for number, _ in group]
    merged = [names[number] for number, value in group if value > 0]
    mirrored = [names[number] for number, value in group if value < 0]
    edit = f"model.merge({', '.join(map(quoted, merged))})" if len(merged) > 1 else "model"
    edit += f".without({', '.join(map(quoted, mirrored))})" if mirrored else ""
    value = min((value for _, value in group[1:]), key=abs)
    said = f"correlation {signed(value)}" + (f" or more, {len(group)} of them" if len(group) > 2 else "")
    return Finding("duplicate", tuple(members), "correlation", value, said, edit, tuple(mirrored))


def _rows(measured: Spread, names: list[str], relatives: Related, findings: Sequence[Finding]) -> Iterator[Measured]:
    verdicts: dict[str, list[str]] = {}
    for finding in findings:
        for name in finding.dimensions:
            verdicts.setdefault(name, []).append(finding.verdict)
    columns = zip(names, measured.firing, measured.shares, measured.common, measured.deviation, relatives, strict=True)
    for name, firing, share, common, deviation, (other, value) in columns:
        near = names[other] if value else ""
        said = ", ".join(verdicts.get(name, []))
        yield Measured(name, float(firing), float(share), float(common), float(deviation), near, value, said)


def _check_verdicts(verdicts: Iterable[str]) -> None:
    for verdict in verdicts:
        if verdict not in KINDS:
            raise InputError(f"verdict {verdict!r} is unknown; there are {', '.join(KINDS)}")
