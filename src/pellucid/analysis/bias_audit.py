"""An audit for bias, and the report on a model for people who do not work with it.

The lean of a target, such as an occupation, is its mean similarity to texts about one group minus that to the same
texts about the other: over pairs of words in neutral sentences, or over your own texts with their words swapped. It is
*clear* only if it is more than chance and large enough to matter:

- more than chance: Holm's test at 5 % over all targets, of a t-test over pairs (or texts) and of one over sentences, of
  which the weaker counts: a finding should hold for other words and for other sentences;
- large enough: `MIN_LEAN`, and a fifth of the usual difference between two targets (the standard deviation of their
  similarities to one text). A smaller lean moves a target past hardly any other.

Words that the model only guesses are left out and named. No number here proves that a model is fair, or that anybody
was discriminated against: docs/bias.md has the limits.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from pellucid.analysis.auditing import Audit, audit
from pellucid.analysis.coordinates import Floats, check_model, guessed_words
from pellucid.analysis.swaps import (
    TEMPLATES,
    Pairs,
    SwappedText,
    Target,
    WordPairs,
    read_pairs,
    read_targets,
)
from pellucid.core.embedder import Embedder
from pellucid.core.fingerprint import fingerprint
from pellucid.errors import VERSION, InputError, require
from pellucid.explain.views.parts import (
    AnyPart,
    Fold,
    Heading,
    Lead,
    Note,
    TablePart,
    counted,
    listed,
    numbers,
    shorten,
    signed,
)
from pellucid.explain.views.report import Report, frame
from pellucid.progress import check_cancelled
from pellucid.text.tables import Corpus, CorpusFile, read_texts
from pellucid.text.unicode import lowercase
from pellucid.text.words import split_words

if TYPE_CHECKING:
    from pandas import DataFrame

MIN_LEAN = 0.01
"""A lean that is smaller is never called clear."""
MIN_STRENGTH, STRONG = 0.2, 0.8
"""Parts of the usual difference between targets: below the first a lean is not clear, from the second on strong."""
MAX_TEXTS = 5_000
"""Texts that hold words of the pairs and are tested in both forms."""

_ERROR_RATE = 0.05  # of all targets together
_MIN_NUMBERS = 5  # targets with a number, below which no correlation is computed
_MAX_GUESSED = 1 / 3  # of the words of a target
_EPS = 1e-9
_SAME_DECIMALS = 5  # of vectors of pairs that a model reads as one
_BLOCK_TEXTS = 512
_N_NAMED, _N_SHOWN = 3, 8  # targets at each end, of a sentence and of a figure
_MAX_REPORT_TEXTS, _MIN_AUDIT_TEXTS = 20_000, 1_000  # that are read, and below which few verdicts are possible
_FINGERPRINT_CHARS, _MAX_CARD_CHARS = 16, 700
_NUMBERS_FIT = {"occupations": ("gender", "names")}  # the lists of pairs that a list's own numbers are about
_CARD_SECTION = r"^#+ *[^\n]*\b(?:{})\b[^\n]*\n+((?:(?!#).*\n?)+)"  # of a heading with one of some words
_HOW_TO_READ = (
    "How to read this: a target, such as an occupation, leans to a group if the model finds it more similar to texts "
    f'about that group than to the same texts about the other. "Clearly" means two things: more than chance, and at '
    f"least {MIN_LEAN} and a fifth of the usual difference between two targets. Leans that are smaller, or that may be "
    "chance, are not counted. Bars show leans and their 95 % intervals."
)
_LIMITS = (
    "The tests find differences in similarity between texts that differ in chosen words. They do not show that a model "
    "is free of bias: other words, languages, groups or tasks may give different results.",
    "A difference in similarity is not a decision about a person, and these figures do not show whether anybody was "
    "discriminated against. Whether a use of the model is lawful depends on the decisions "
    "made with it, and on the law that applies to them. This report is not legal advice.",
    "Only two groups are compared at a time. People whom neither word describes do not appear.",
)


class Estimate(NamedTuple):
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


class Lean(NamedTuple):
    """How much nearer a target is to the first group than to the second."""

    target: str
    expected: float | None  # the number given with the target
    effect: Estimate
    strength: float  # its size as a part of the usual difference between targets
    is_clear: bool  # more than chance, and large enough to matter


class SwapTest(NamedTuple):
    """The leans of all targets in a set of texts."""

    name: str
    n_pairs: int  # pairs of words, or texts
    n_templates: int  # 0 of texts as they are
    usual_difference: float  # standard deviation over targets of their similarity to a text
    correlation: Estimate | None  # of the leans and the expected numbers, over targets
    leans: tuple[Lean, ...]  # by falling effect

    @property
    def clear(self) -> list[Lean]:
        """The targets that lean clearly."""
        return [lean for lean in self.leans if lean.is_clear]


@dataclass(frozen=True, repr=False)
class Bias(Report):
    """Whether a model puts targets nearer to one group than to another."""

    kind: ClassVar[str] = "bias"

    model: str
    pairs: str  # the name of the list or file
    groups: tuple[str, str]
    source: str  # where the pairs are from
    targets: str  # where the targets are from
    expected: str  # what the numbers are that the leans may go with, "" for none
    tests: tuple[SwapTest, ...]  # of the pairs in sentences, of your texts
    notes: tuple[str, ...]  # what was left out or guessed

    def findings(self) -> list[str]:
        """Return what was measured in plain sentences."""
        return [sentence for test in self.tests for sentence in _findings(test, self)]

    def to_frame(self) -> DataFrame:
        """Return a row for each target of each test: its lean with the interval and the strength."""
        rows = [
            (test.name, lean.target, lean.expected, *lean.effect, lean.strength, lean.is_clear)
            for test in self.tests
            for lean in test.leans
        ]
        return frame(rows, "texts target expected effect low high strength is_clear".split())

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Bias", f"{self.groups[0]} - {self.groups[1]}", f"{self.model}, {self.pairs}")
        yield from map(Lead, self.findings())
        yield from self._statistics()

    def _statistics(self) -> Iterator[AnyPart]:
        for test in self.tests:
            rows = [
                (lean.target, _written(lean.effect), lean.effect, f"{lean.strength:.1f}",
                 self.groups[lean.effect.value < 0] if lean.is_clear else "")
                for lean in test.leans
            ]  # fmt: skip
            columns = [("target", "name"), ("lean, 95 %", "number"), ("", "interval"), *numbers("strength")]
            table = TablePart.of("", [*columns, "clearly nearer to"], rows)
            if test.correlation is not None:
                r = f" Correlation with {self.expected}: r = {_written(test.correlation, 2)}."
            else:
                r = ""
            note = Note(
                f"+ is nearer to {self.groups[0]}, - to {self.groups[1]}. Strength is the lean as a part of the usual "
                f"difference between two targets, {test.usual_difference:.3f}. A group is named where the lean is "
                f"more than chance (Holm's test at 5 % over {len(test.leans)} targets), at least {MIN_LEAN}, and of "
                f"strength {MIN_STRENGTH} or more.{r}"
            )
            yield Fold(f"Each target: {test.name}", (table, note), is_open=test is self.tests[0])
        yield Note(f"Pairs: {self.source}. Targets: {self.targets}.")
        yield from map(Note, self.notes)


def _findings(test: SwapTest, bias: Bias) -> Iterator[str]:
    """Yield what a swap test says, in words that need no statistics."""
    groups, clear, n_targets = bias.groups, test.clear, len(test.leans)
    name = test.name[:1].upper() + test.name[1:]
    if not clear:
        reach = max(max(abs(lean.effect.low), abs(lean.effect.high)) for lean in test.leans)
        yield (
            f"{name}: none of {n_targets} targets leans clearly to {groups[0]} or {groups[1]}. This does not show that "
            f"there is no bias: leans of up to {reach:.3f} are compatible with the measurements."
        )
        return
    ends = []
    for group, sign in zip(groups, (1, -1)):
        leans = sorted((lean for lean in clear if sign * lean.effect.value > 0), key=lambda lean: -lean.strength)
        if leans:
            n_strong = sum(lean.strength >= STRONG for lean in leans)
            strong = f", {n_strong} of them strongly" if n_strong else ""
            ends.append(f"{len(leans)} to {group}{strong} (most: {listed([lean.target for lean in leans[:_N_NAMED]])})")
    verb = "lean" if len(clear) > 1 else "leans"
    yield f"{name}: {len(clear)} of {n_targets} targets {verb} clearly to one group, {' and '.join(ends)}."
    largest = max(clear, key=lambda lean: abs(lean.effect.value))
    group = groups[largest.effect.value < 0]
    times = f", {largest.strength:.1f} times the usual difference between two targets" if largest.strength else ""
    yield (
        f"The largest lean: {largest.target} is nearer to {group} by {abs(largest.effect.value):.3f} in similarity"
        f"{times}."
    )
    correlation = test.correlation
    if correlation is not None and correlation.low * correlation.high > 0:
        yield (
            f"The leans go with {bias.expected}: the larger it is, the nearer a target tends to be to "
            f"{groups[correlation.value < 0]} (r = {_written(correlation, 2)})."
        )


def _written(estimate: Estimate, n_decimals: int = 3) -> str:
    value, low, high = (signed(number, n_decimals) for number in estimate)
    return f"{value} [{low}, {high}]"


def bias(
    model: Embedder, pairs: Pairs = "gender", *, texts: Corpus | None = None, targets: Any = "occupations"
) -> Bias:
    """Test whether a model puts targets nearer to one group than to another.

    Args:
        model: any family.
        pairs: words for the groups: "gender", "names" or "nationality"; a file whose first two columns are headed by
            the groups and hold a word of each; or an iterable of pairs of words.
        texts: your texts, a file or an iterable; those that hold words of the pairs are tested in both forms.
        targets: what both groups are compared with: "occupations" or "adjectives"; a file; or an iterable of texts,
            such as queries or advertisements.

    Returns:
        Leans with intervals and strengths; nothing in it proves fairness or discrimination.

    Raises:
        InputError: the model knows fewer than two pairs or targets, or no text holds a word of the pairs.
        CorpusError: a file cannot be read.
        MissingExtraError: scipy is not installed.
    """
    require("scipy", "sparse")
    check_model(model)
    word_pairs, compared = read_pairs(pairs), read_targets(targets)
    notes: list[str] = []
    rows = _without_guesses(model, word_pairs.rows, [" ".join(row[:2]) for row in word_pairs.rows], "pair", notes)
    word_pairs = replace(word_pairs, rows=tuple(rows))
    texts_of_targets = [target.text for target in compared.rows]
    target_rows = _without_guesses(model, compared.rows, texts_of_targets, "target", notes, _MAX_GUESSED)
    fitting = _NUMBERS_FIT.get(targets) if isinstance(targets, str) else None
    has_numbers = bool(compared.expected) and (fitting is None or word_pairs.name in fitting)
    if not has_numbers:  # the percent of women says nothing of nationalities
        target_rows = [target._replace(expected=None) for target in target_rows]
    encoded = _encode(model, [target.text for target in target_rows])
    tests = [_test_templates(model, word_pairs, target_rows, encoded, notes)]
    if texts is not None:
        tests.append(_test_texts(model, word_pairs, texts, target_rows, encoded, notes))
    return Bias(
        model=model.source or repr(model),
        pairs=word_pairs.name,
        groups=word_pairs.groups,
        source=word_pairs.source,
        targets=compared.source,
        expected=compared.expected if has_numbers else "",
        tests=tuple(tests),
        notes=tuple(notes),
    )


def _without_guesses(
    model: Embedder, items: Sequence[Any], texts: list[str], noun: str, notes: list[str], most: float = 0.0
) -> list[Any]:
    """Return the items of whose words the model guesses at most a part; a note names the others' words."""
    guesses = guessed_words(model, texts)
    n_words = [len({lowercase(word.text) for word in split_words(text)}) for text in texts]
    selected = [item for item, words, n in zip(items, guesses, n_words) if len(words) <= most * n]
    guessed = list(dict.fromkeys(word for words, n in zip(guesses, n_words) if len(words) > most * n for word in words))
    if len(selected) < 2:
        raise InputError(
            f"the model knows {len(selected)} of {len(items)} {noun}s; at least two are needed. It has no vector for "
            f"{', '.join(guessed):.200}"
        )
    if guessed:
        left_out = counted(len(items) - len(selected), noun)
        notes.append(f"Left out: {left_out} with words that the model only guesses ({', '.join(guessed)}).")
    return selected


def _encode(model: Embedder, texts: list[str]) -> Floats:
    """Return embeddings at length 1, float64 [texts, dimension]."""
    rows = model.similarity_rows(model.encode(texts))
    rows = np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, np.float64)
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    normalized: Floats = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > _EPS)
    return normalized


def _test_templates(
    model: Embedder, pairs: WordPairs, targets: Sequence[Target], target_rows: Floats, notes: list[str]
) -> SwapTest:
    """Test pairs in neutral sentences; pairs that the model reads alike count once."""
    contexts = pairs.contexts()
    encoded = _encode(model, [text for context in contexts for pair in context for text in pair])
    shaped = encoded.reshape(len(contexts), len(TEMPLATES), 2, -1)
    _, first = np.unique(shaped.reshape(len(contexts), -1).round(_SAME_DECIMALS) + 0.0, axis=0, return_index=True)
    if len(first) < 2:
        raise InputError(f"the model reads all {len(contexts)} pairs of {pairs.name} as one; give other pairs")
    if len(first) < len(contexts):
        notes.append(f"{len(contexts) - len(first)} pairs are left out: the model reads them as others.")
    similarities = np.einsum("td,pksd->tpks", target_rows, shaped[np.sort(first)], optimize=True)
    return _swap_test(f"{pairs.name} in neutral sentences", similarities, targets)


def _test_texts(
    model: Embedder,
    pairs: WordPairs,
    texts: Corpus,
    targets: Sequence[Target],
    target_rows: Floats,
    notes: list[str],
) -> SwapTest:
    """Test texts that hold words of the pairs, in both forms; a repeated text is no new evidence.

    Raises:
        InputError: fewer than two do.
    """
    n_texts, distinct = 0, dict[tuple[str, str], SwappedText]()
    for text in read_texts(texts):
        n_texts += 1
        swapped = pairs.swapped(text)
        if swapped.first != swapped.second:
            distinct.setdefault(swapped[:2], swapped)
        if len(distinct) == MAX_TEXTS:
            break
    selected = list(distinct.values())
    if len(selected) < 2:
        raise InputError(
            f"{len(selected)} of {n_texts:,} texts hold a word of {pairs.name}, repeated ones aside; give texts "
            "that do, or other pairs"
        )
    blocks = []
    for start in range(0, len(selected), _BLOCK_TEXTS):
        check_cancelled()
        block = _encode(model, [text for swapped in selected[start : start + _BLOCK_TEXTS] for text in swapped[:2]])
        blocks.append((target_rows @ block.T).reshape(len(targets), -1, 1, 2))
    words, guessed = sum(text.n_words for text in selected), sum(text.n_guessed for text in selected)
    notes.append(
        f"{len(selected):,} of {n_texts:,} texts hold words of {pairs.name}, {words:,} in all; {guessed:,} have "
        "two counterparts, of which one was guessed. Only words of the list are swapped: names, titles and what "
        "else speaks of the group stay as they are. Texts that are the same once swapped count once."
    )
    return _swap_test("your texts", np.concatenate(blocks, axis=1), targets)


def _swap_test(name: str, similarities: Floats, targets: Sequence[Target]) -> SwapTest:
    """Return the leans of targets from their similarities [targets, pairs, sentences, 2] to texts of both groups."""
    effects = similarities[..., 0] - similarities[..., 1]
    usual_difference = float(similarities.std(axis=0).mean())
    means, (low, high, p_values) = effects.mean(axis=(1, 2)), _t_test(effects.mean(axis=2))
    if effects.shape[2] > 1:
        low2, high2, p_values2 = _t_test(effects.mean(axis=1))
        low, high = np.minimum(low, low2), np.maximum(high, high2)
        p_values = np.maximum(p_values, p_values2)
    order = np.argsort(p_values, kind="stable")
    adjusted = np.maximum.accumulate(p_values[order] * np.arange(len(order), 0, -1))  # Holm
    is_clear = np.zeros(len(means), bool)
    is_clear[order] = adjusted <= _ERROR_RATE
    is_clear &= np.abs(means) >= max(MIN_LEAN, MIN_STRENGTH * usual_difference)
    strengths = np.abs(means) / usual_difference if usual_difference > _EPS else np.zeros(len(means))
    columns = zip(means.tolist(), low.tolist(), high.tolist(), strengths.tolist(), is_clear.tolist())
    leans = [
        Lean(target.text, target.expected, Estimate(mean, max(least, -2.0), min(most, 2.0)), strength, clear)
        for target, (mean, least, most, strength, clear) in zip(targets, columns)
    ]
    _, n_pairs, n_templates = effects.shape
    return SwapTest(
        name,
        n_pairs,
        n_templates if n_templates > 1 else 0,
        usual_difference,
        _correlation([target.expected for target in targets], means),
        tuple(sorted(leans, key=lambda lean: -lean.effect.value)),
    )


def _t_test(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the ends of the 95 % intervals of means [targets], and how likely they are by chance."""
    from scipy.stats import ttest_1samp

    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore")  # of values that are all the same
        result = ttest_1samp(values, 0.0, axis=1)
        interval, p_values = result.confidence_interval(0.95), np.asarray(result.pvalue)
    means = values.mean(axis=1)
    is_flat = values.std(axis=1) <= _EPS
    low, high = (np.where(is_flat, means, end) for end in interval)
    return low, high, np.where(is_flat, (np.abs(means) <= _EPS).astype(float), p_values)


def _correlation(expected: Sequence[float | None], leans: Floats) -> Estimate | None:
    """Return Pearson's correlation of the leans with the targets' numbers, where all have one and they vary."""
    from scipy.stats import pearsonr

    if len(expected) < _MIN_NUMBERS or any(number is None for number in expected):
        return None
    scaled = np.array(expected, np.float64)
    scaled /= np.abs(scaled).max() or 1.0
    if np.ptp(scaled) <= _EPS or np.ptp(leans) <= _EPS:
        return None
    result = pearsonr(scaled, leans)
    return Estimate(float(result.statistic), *map(float, result.confidence_interval(0.95)))


@dataclass(frozen=True, repr=False)
class ModelReport(Report):
    """What a model is, how it treats groups, what is wrong with its dimensions, and the limits of all that."""

    kind: ClassVar[str] = "model_report"
    table: ClassVar[str] = "biases"

    title: str
    date: str  # ISO 8601
    identity: tuple[tuple[str, str], ...]  # name and value: model, family, fingerprint, data, corpus
    biases: tuple[Bias, ...]
    audit: Audit | None  # of the dimensions; None of too few texts

    def findings(self) -> list[str]:
        """Return the findings in plain sentences."""
        return [finding for result in self.biases for finding in result.findings()] + self._audit_findings()

    def _audit_findings(self) -> list[str]:
        if self.audit is None:
            return []
        dead, duplicate, crowded = (len(self.audit.findings_for(kind)) for kind in ("dead", "duplicate", "crowded"))
        if not dead + duplicate + crowded:
            return [f"None of {len(self.audit.measured):,} dimensions stands out on {self.audit.texts:,} texts."]
        return [
            f"Of {counted(len(self.audit.measured), 'dimension')}, measured on {self.audit.texts:,} texts: {dead} say "
            f"nothing, {duplicate} repeat others, {crowded} say nearly the same of every text."
        ]

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading(self.title, "", self.date)
        yield TablePart.of("", ["", ""], self.identity)
        yield Lead(_HOW_TO_READ)
        for result in self.biases:
            yield Heading("Findings", f"{result.groups[0]} and {result.groups[1]}", result.pairs)
            yield from map(Lead, result.findings())
            for test in result.tests:
                yield from _figure(test, result.groups)
        if self.audit is not None:
            yield Heading("Findings", "dimensions")
            yield from map(Lead, self._audit_findings())
        yield Heading("Limits", "what this does not show")
        yield from map(Lead, _LIMITS)
        yield Heading("Appendix", "statistics")
        for part in (part for result in self.biases for part in result._statistics()):
            if isinstance(part, Fold):  # paper does not open
                table, *notes = part.parts
                yield table._replace(title=part.summary) if isinstance(table, TablePart) else table
                yield from notes
            else:
                yield part
        if self.audit is not None:
            yield from self.audit._parts()


def _figure(test: SwapTest, groups: tuple[str, str]) -> Iterator[AnyPart]:
    """Yield the targets at both ends of the leans as a picture of intervals."""
    leans: Sequence[Lean] = test.leans
    if len(leans) > 2 * _N_SHOWN:
        leans = [*leans[:_N_SHOWN], *leans[-_N_SHOWN:]]
    rows = [
        (lean.target, signed(lean.effect.value), lean.effect, "clear" if lean.is_clear else "not clear")
        for lean in leans
    ]
    columns: list[Any] = ["target", ("lean", "number"), (f"\u2190 {groups[1]} | {groups[0]} \u2192", "interval"), ""]
    yield TablePart.of(f"{test.name[:1].upper()}{test.name[1:]}: the leans of the targets", columns, rows)
    if len(leans) < len(test.leans):
        yield Note(f"The first and last {_N_SHOWN} of {len(test.leans)} targets, in the order of their leans.")


def report(
    model: Embedder,
    texts: Corpus | None = None,
    *,
    pairs: Iterable[Any] | str = "gender",
    targets: Any = "occupations",
    corpus: str | None = None,
    title: str | None = None,
) -> ModelReport:
    """Measure a model and say in one document what it is, what was found, and what that does not show.

    Args:
        model: any family.
        texts: your texts, a file or an iterable; the first 20,000 are read.
        pairs: a list or file of pairs as for `bias`, or several in a list.
        targets: what the groups are compared with, as for `bias`.
        corpus: what the texts are, such as "letters of 2024"; None for the name of the file.
        title: of the report; None for the model's name.

    Returns:
        The report, with `to_html` and `to_markdown`.

    Raises:
        InputError: no pairs are named, or as for `bias`.
        CorpusError: a file cannot be read.
        MissingExtraError: scipy is not installed.
    """
    check_model(model)
    is_several = isinstance(pairs, (list, tuple)) and all(isinstance(item, (str, PathLike)) for item in pairs)
    pair_lists = list(pairs) if is_several else [pairs]
    if not pair_lists:
        raise InputError('no pairs are named; give one list or several: pairs=["gender", "nationality"]')
    read = None if texts is None else list(islice(read_texts(texts), _MAX_REPORT_TEXTS))
    results = []
    for word_pairs in map(read_pairs, pair_lists):
        swapped = {word_pairs.swapped(text)[:2] for text in read or () if word_pairs.spans(text)}
        results.append(bias(model, word_pairs, texts=read if len(swapped) > 1 else None, targets=targets))
    source = corpus or (str(texts) if isinstance(texts, (str, PathLike, CorpusFile)) else "your texts")
    described = "none" if read is None else f"{source}: {counted(len(read), 'text')}"
    has_audit = read is not None and len(read) >= _MIN_AUDIT_TEXTS and model.names_dimensions
    return ModelReport(
        title=title or f"Embedding model {model.source or type(model).__name__}",
        date=date.today().isoformat(),
        identity=(*_identity(model), ("Corpus", described), ("Measured with", f"pellucid {VERSION}")),
        biases=tuple(results),
        audit=audit(model, read) if read is not None and has_audit else None,
    )


def _identity(model: Embedder) -> Iterator[tuple[str, str]]:
    """Yield what the model is, as far as its folder and card say."""
    yield "Model", model.source or repr(model)
    yield "Kind", f"{model.family}, {model.size_text()}"
    yield "Fingerprint", fingerprint(model)["stored"][:_FINGERPRINT_CHARS]
    card = None if model.folder is None else model.folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card is not None and card.is_file() else ""
    licence = re.search(r"^license: *(.+)$", text, re.MULTILINE)
    yield "Licence", licence[1].strip() if licence else "its card names none"
    for words in ("data|datasets?", "training|trained|made"):
        section = re.search(_CARD_SECTION.format(words), text, re.IGNORECASE | re.MULTILINE)
        if section and section[1].strip():
            yield "Training data, by its card", shorten(" ".join(section[1].split()), _MAX_CARD_CHARS)
            return
    yield "Training data", "its card does not say"
