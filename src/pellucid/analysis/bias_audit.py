"""An audit for bias as a report: swap tests with templates, your texts and proxies, before and after a removal.

`swaps.py` has the pairs and texts, `effects.py` says what is computed. No number here proves that a model is fair, or
that anybody was discriminated against: docs/bias.md has the limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pellucid.analysis.coordinates import check_model
from pellucid.analysis.effects import BiasMeasurement, Cost, Estimate, Lean, Probe, ProxyWord, Summary, SwapTest
from pellucid.analysis.swaps import PROXY_LISTS, Pairs, read_pairs, read_scored_pairs, read_targets
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError, check_integer
from pellucid.explain.views.parts import (
    AnyPart,
    Fold,
    Heading,
    Lead,
    Note,
    TablePart,
    listed,
    numbers,
    percent,
    signed,
)
from pellucid.explain.views.report import Report, frame
from pellucid.text.corpus import Corpus, read_texts

if TYPE_CHECKING:
    from pandas import DataFrame

_N_NAMED = 3  # targets at each end that a sentence names
_CHANCE = 0.5  # of a probe
_MIN_CHANGE = 0.005  # of the size of leans, that is written as a percentage
_EXPECTED = "your numbers"  # of targets, where nothing says what they are
_SUMMARY_COLUMNS = (
    "The lean of a target is its mean similarity to texts about the first group ({0}) minus that to the same texts "
    "about the second ({1}). The size of the leans is their standard deviation over targets, less what chance adds. "
    "Brackets hold 95 % intervals."
)
_WORD_COLUMNS = (
    "The first two numbers count texts of each group with the word. Log-odds / s.e. says how surely the word is more "
    "frequent in one group. Pull is its cosine to the difference between the groups."
)


@dataclass(frozen=True, repr=False)
class Bias(Report):
    """Whether a model puts targets nearer to one group than to another, before and after a direction is removed."""

    kind: ClassVar[str] = "bias"
    model: str
    pairs: str  # the name of the list or file
    groups: tuple[str, str]
    source: str  # where the pairs are from
    targets: str  # where the targets are from
    expected: str  # what the numbers are that the effects may go with, "" for none
    n_directions: int  # that are removed
    tests: tuple[SwapTest, ...]  # of the pairs in templates, of your texts, of proxies
    probes: tuple[Probe, ...]
    proxy_words: tuple[ProxyWord, ...]  # of your texts without the words of the list
    costs: tuple[Cost, ...]
    notes: tuple[str, ...]  # what was left out or guessed
    fit_pairs: tuple[tuple[str, str], ...]  # texts by whose differences the direction is fitted

    def without_direction(self, model: Embedder) -> Embedder:
        """Return a model without the direction of the groups, fitted on all pairs in all templates.

        Args:
            model: the model that was tested.

        Raises:
            InputError: no direction can be removed from models of its family.
        """
        return model.without_direction(*self.fit_pairs, n_directions=self.n_directions)

    def findings(self) -> list[str]:
        """Return what was measured in plain sentences."""
        sentences = [_finding(test, self.groups, self.expected) for test in self.tests[:1]]
        sentences += [_finding(test, self.groups, self.expected) for test in self.tests[1:] if test.n_templates == 0]
        sentences += _removal_findings(self)
        return sentences

    def to_frame(self) -> DataFrame:
        """Return a row for each target of each test: its effect with the interval, before and after the removal."""
        rows = [
            (test.name, lean.target, lean.expected, *lean.effect, lean.is_clear, *(lean.effect_after or (None,) * 3))
            for test in self.tests
            for lean in test.leans
        ]
        columns = "texts target expected effect low high is_clear effect_after low_after high_after".split()
        return frame(rows, columns)

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Bias", f"{self.groups[0]} - {self.groups[1]}", f"{self.model}, {self.pairs}")
        for finding in self.findings():
            yield Lead(finding)
        yield _summary_table(self.tests, self.expected or _EXPECTED)
        yield Note(_SUMMARY_COLUMNS.format(*self.groups))
        for test in self.tests:
            yield Fold(f"Each target: {test.name}", tuple(_leans(test, self.groups)), is_open=test is self.tests[0])
        if self.probes:
            rows = [(probe.name, *_share(probe.before), *_share(probe.after)) for probe in self.probes]
            columns = [("texts", "name"), *numbers("before", "95 %", "after", "95 % after")]
            yield TablePart.of("Groups that a linear classifier gets right (chance: 50%)", columns, rows)
        if self.proxy_words:
            words = [
                (item.word, f"{item.first:,}", f"{item.second:,}", signed(item.z, 1), signed(item.pull, 2),
                 signed(item.pull_after, 2))
                for item in self.proxy_words
            ]  # fmt: skip
            columns = [("word", "name"), *numbers(*self.groups, "log-odds / s.e.", "pull", "pull after")]
            yield TablePart.of("Other words of your texts that go with a group", columns, words)
            yield Note(_WORD_COLUMNS)
        if self.costs:
            measures = [(cost.measure, f"{cost.before:.3f}", f"{cost.after:.3f}") for cost in self.costs]
            yield TablePart.of("Cost of the removal", ["measure", *numbers("before", "after")], measures)
        yield Note(f"Pairs: {self.source}. Targets: {self.targets}.")
        for note in self.notes:
            yield Note(note)


def _summary_table(tests: Iterable[SwapTest], expected: str) -> TablePart:
    rows = []
    for test in tests:
        for stage, summary in (("before", test.before), ("after", test.after)):
            if summary is not None:
                clear = f"{summary.n_clear}/{len(test.leans)}"
                spread = _written(summary.spread).replace("+", "")  # it is never negative
                rows.append((test.name, stage, clear, spread, _written(summary.correlation, 2)))
    columns = [("texts", "name"), "removal", *numbers("clear leans", "size of leans", f"r with {expected}")]
    return TablePart.of("Swap tests", columns, rows)


def _leans(test: SwapTest, groups: tuple[str, str]) -> Iterator[AnyPart]:
    rows = []
    for lean in test.leans:
        nearer = groups[lean.effect.value < 0] if lean.is_clear else ""
        after = _written(lean.effect_after) + "*" * lean.is_clear_after
        rows.append((lean.target, _written(lean.effect), lean.effect, nearer, after, lean.effect_after))
    columns = [
        ("target", "name"),
        ("lean, 95 %", "number"),
        ("", "interval"),
        "nearer to",
        ("after removal", "number"),
        ("", "interval"),
    ]
    yield TablePart.of("", columns, rows)
    summary = test.before
    size = "" if summary.effect_size is None else f" WEAT's effect size d is {summary.effect_size:+.2f}."
    yield Note(
        f"Mean lean {_written(summary.mean)}. A text and its swapped form differ by {summary.text_distance:.3f} "
        f"on average (1 - cosine).{size}"
    )
    yield Note(
        f"+ is nearer to {groups[0]}, - to {groups[1]}. A group is named only where the lean is clear: it passes "
        f"Holm's test at 5 % over all {len(test.leans)} targets, which asks for more than an interval without 0. * "
        "marks a lean that is clear after the removal. For comparison, the similarities of one text to different "
        f"targets have a standard deviation of {test.target_spread:.3f}."
    )


def _finding(test: SwapTest, groups: tuple[str, str], expected: str) -> str:
    """Return what a swap test says of the model as it is."""
    summary, clear, n_targets = test.before, [lean for lean in test.leans if lean.is_clear], len(test.leans)
    where = f"Swap test ({test.name})"
    if not clear:
        seen = max(max(abs(lean.effect.low), abs(lean.effect.high)) for lean in test.leans)
        return (
            f"{where}: none of {n_targets} targets is clearly nearer to {groups[0]} or {groups[1]}. This does not "
            f"show that there is no bias: leans of up to {seen:.3f} are compatible with the measurements."
        )
    ends = []
    of_first = [lean for lean in clear if lean.effect.value > 0]
    of_second = [lean for lean in clear[::-1] if lean.effect.value < 0]
    for group, leans in zip(groups, (of_first, of_second)):
        if leans:
            named = listed([lean.target for lean in leans[:_N_NAMED]])
            ends.append(f"{len(leans)} to {group} (the most: {named}; up to {abs(leans[0].effect.value):.3f})")
    text = f"{where}: {_counted(len(clear), n_targets)} clearly nearer to one group, {' and '.join(ends)}."
    if summary.correlation is not None and _is_clear(summary.correlation):
        group = groups[summary.correlation.value < 0]
        text += (
            f" The leans correlate with {expected or _EXPECTED} (r = {_written(summary.correlation, 2)}): the larger "
            f"the number, the nearer a target is to {group}."
        )
    if test.target_spread > 0:
        share = summary.spread.value / test.target_spread
        text += f" The size of the leans is {share:.0%} of the usual difference in similarity between targets."
    return text


def _removal_findings(bias: Bias) -> Iterator[str]:
    """Yield what the removal of the direction changes, and what still differs."""
    if bias.tests[0].after is None:
        yield (
            "Removal was not tested: the model's dimensions are words, the model is an ensemble, or there are fewer "
            "than three pairs."
        )
        return
    removed = "the main direction" if bias.n_directions == 1 else f"{bias.n_directions} directions"
    yield f"After removing {removed} (in templates, fitted on pairs other than those tested):"
    for test in bias.tests:
        if test.after is not None:
            yield _remainder(test, test.after, bias)
    if bias.proxy_words:
        named = listed([f"{item.word} ({item.first} and {item.second} texts)" for item in bias.proxy_words[:_N_NAMED]])
        yield f"Other words of your texts go with a group: {named}."
    for probe in bias.probes:
        if probe.after is not None:
            yield _probe_finding(probe.name, probe.before, probe.after)
    if bias.costs:
        costs = (f"{cost.measure} from {cost.before:.3f} to {cost.after:.3f}" for cost in bias.costs)
        yield f"Cost of the removal: {'; '.join(costs)}."


def _remainder(test: SwapTest, after: Summary, bias: Bias) -> str:
    """Return what is left of the leans of a swap test."""
    before = test.before.spread.value
    share = 1 - after.spread.value / before if before > 0 else 0.0
    change = f", {share:.0%} less" if share >= _MIN_CHANGE else ""
    if after.spread.low <= 0:
        change = f" (95 % interval: up to {after.spread.high:.3f})"
    name = f"{test.name[:1].upper()}{test.name[1:]}"
    text = (
        f"{name}: {_counted(after.n_clear, len(test.leans))} clearly nearer to one group "
        f"(before the removal: {test.before.n_clear}); the size of the leans goes from {before:.3f} to "
        f"{after.spread.value:.3f}{change}"
    )
    ends = [max(test.leans, key=_after), min(test.leans, key=_after)]
    named = [
        f"{lean.target}, {abs(_after(lean)):.3f} to {group}"
        for lean, group, sign in zip(ends, bias.groups, (1, -1))
        if sign * _after(lean) > 0
    ]
    if after.spread.low > 0 and named:
        text += f"; the largest: {'; '.join(named)}"
    if _is_clear(after.correlation):
        text += f". They still correlate with {bias.expected or _EXPECTED}: r = {_written(after.correlation, 2)}"
    return f"{text}."


def _counted(n_clear: int, n_targets: int) -> str:
    """Return how many targets lean clearly, with the verb."""
    return f"{n_clear or 'none'} of {n_targets} targets {'are' if n_clear > 1 else 'is'}"


def _probe_finding(name: str, before: Estimate, after: Estimate) -> str:
    """Return whether a group can be read once the direction is removed."""
    shares = f"{percent(after.value)} of held-out texts (before: {percent(before.value)}, chance: 50%)"
    if after.low > _CHANCE:
        return f"The group can still be read from {name}: a linear classifier gets it right for {shares}."
    text = f"For {name}, a linear classifier gets the group right for {shares}"
    if after.high < _CHANCE:
        return (
            f"{text}: below chance, as happens with the words by which a removed direction was fitted. "
            "This says nothing about other words."
        )
    return f"{text}: not clearly above chance."


def _is_clear(correlation: Estimate | None) -> bool:
    """Return whether the interval of a correlation excludes 0."""
    return correlation is not None and correlation.low * correlation.high > 0


def _after(lean: Lean) -> float:
    return lean.effect_after.value if lean.effect_after is not None else 0.0


def _written(estimate: Estimate | None, n_decimals: int = 3) -> str:
    if estimate is None:
        return "\u2013"
    low, high = (signed(value, n_decimals) for value in estimate[1:])
    return f"{signed(estimate.value, n_decimals)} [{low}, {high}]"


def _share(estimate: Estimate | None) -> tuple[str, str]:
    if estimate is None:
        return "\u2013", "\u2013"
    return percent(estimate.value), f"{estimate.low:.0%} to {estimate.high:.0%}"


def bias(
    model: Embedder,
    pairs: Pairs = "gender",
    *,
    texts: Corpus | None = None,
    targets: Any = "occupations",
    proxies: Pairs | None = None,
    sts: Any = None,
    n_directions: int = 1,
) -> Bias:
    """Test whether a model puts targets nearer to one group than to another, and what a removal leaves and costs.

    Args:
        model: any family; of those with sparse embeddings nothing is removed.
        pairs: words for the groups: "gender", "names" or "nationality"; a file whose first two columns are headed by
            the groups and hold a word of each; or an iterable of pairs of words.
        texts: your texts, a file or an iterable; those that hold words of the pairs are tested in both forms.
        targets: what both groups are compared with: "occupations" or "adjectives"; a file; or an iterable of texts,
            such as queries or advertisements.
        proxies: other pairs of the same attribute, by which it may still be read; None takes names for "gender".
        sts: pairs of texts with the similarity that people gave them, to see what the removal costs: a file with
            columns sentence1, sentence2 and score, or an iterable of triples.
        n_directions: how many directions are removed.

    Returns:
        Effects with intervals, what a probe reads, and costs; nothing in it proves fairness or discrimination.

    Raises:
        InputError: the model knows fewer than two pairs or targets, or no text holds a word of the pairs.
        CorpusError: a file cannot be read.
    """
    check_model(model)
    check_integer("n_directions", n_directions, 1)
    word_pairs = read_pairs(pairs)
    compared = read_targets(targets)
    proxy_list = PROXY_LISTS.get(word_pairs.name) if proxies is None else proxies
    proxy_pairs = None if proxy_list is None else read_pairs(proxy_list)
    scored_pairs = [] if sts is None else read_scored_pairs(sts)
    measurement = BiasMeasurement(model, word_pairs, compared.rows, n_directions)
    proxy_words: tuple[ProxyWord, ...] = ()
    tests, probes = [measurement.test_templates(word_pairs)], [measurement.probe(word_pairs)]
    if texts is not None:
        tests.append(measurement.test_texts(word_pairs, read_texts(texts)))
        text_probe, proxy_words = measurement.text_proxies()
        probes.append(text_probe)
    if proxy_pairs is not None:
        try:
            tests.append(measurement.test_templates(proxy_pairs))
            probes.append(measurement.probe(proxy_pairs))
        except InputError as error:
            if proxies is not None:
                raise
            measurement.notes.append(f"Proxies ({proxy_pairs.name}) were not tested: {error}.")
    return Bias(
        model=model.source or repr(model), pairs=word_pairs.name, groups=word_pairs.groups, source=word_pairs.source,
        targets=compared.source, expected=compared.expected,
        n_directions=measurement.n_removed or n_directions, tests=tuple(tests),
        probes=tuple(probe for probe in probes if probe is not None), proxy_words=proxy_words,
        costs=tuple(measurement.costs(scored_pairs)),
        notes=tuple(measurement.notes), fit_pairs=tuple(measurement.fit_pairs),
    )  # fmt: skip
