"""A report on a model for people who do not work with it: what it is, what was measured, and what that does not show.

Findings stand first, in sentences; figures follow, then the limits, then all statistics in an appendix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from os import PathLike
from typing import Any, ClassVar

from pellucid.analysis.auditing import Audit, audit
from pellucid.analysis.bias_audit import Bias, bias
from pellucid.analysis.coordinates import check_model
from pellucid.analysis.effects import Estimate, Lean, SwapTest
from pellucid.analysis.swaps import read_pairs
from pellucid.core.embedder import Embedder
from pellucid.core.fingerprint import fingerprint
from pellucid.errors import VERSION, InputError
from pellucid.explain.views.parts import AnyPart, Fold, Heading, Lead, Note, TablePart, counted, shorten, signed
from pellucid.explain.views.report import Report
from pellucid.text.corpus import Corpus, CorpusFile, read_texts

_N_SHOWN = 8  # targets at each end of a figure
_MAX_TEXTS = 20_000  # that are read into memory
_MIN_AUDIT_TEXTS = 1_000  # below which few verdicts on dimensions are possible
_FINGERPRINT_CHARS = 16  # of 64; enough to tell models apart
_MAX_CARD_CHARS = 700  # that are quoted from a model's card
_CARD_SECTION = r"^#+ *[^\n]*\b(?:{})\b[^\n]*\n+((?:(?!#).*\n?)+)"  # of a heading with one of some words
_HOW_TO_READ = (
    "How to read this: a target, such as an occupation, leans to a group if it is more similar to texts about that "
    "group than to the same texts about the other. Similarity goes from -1 to 1. Bars show the lean and its 95 % "
    'interval, coloured where that excludes 0. "Clearly" is stricter: of many targets, some bars exclude 0 by chance.'
)
_LIMITS = (
    "The tests find differences in similarity between texts that differ in chosen words. They do not show that a model "
    "is free of bias: other words, languages, groups or tasks may give different results.",
    "A difference in similarity is not a decision about a person, and these figures do not show whether anybody was "
    "discriminated against. Whether a use of the model is lawful depends on the decisions "
    "made with it, and on the law that applies to them. This report is not legal advice.",
    "Only two groups are compared at a time. People whom neither word describes do not appear.",
    "Removing a direction hides from linear methods what the tested words say. The attribute can often still be read "
    "from other words, such as names, or by other methods.",
)


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
        counts = {verdict: len(self.audit.findings_for(verdict)) for verdict in ("dead", "duplicate", "crowded")}
        listed = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        n_dimensions = counted(len(self.audit.measured), "dimension")
        return [f"Of {n_dimensions}, audited on {self.audit.texts:,} texts: {listed}."]

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Report", self.title, self.date)
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
        for result in self.biases:
            parts = (part for part in result._parts() if not isinstance(part, Lead))
            yield from (inner for part in parts for inner in _unfolded(part))
        if self.audit is not None:
            yield from self.audit._parts()


def _figure(test: SwapTest, groups: tuple[str, str]) -> Iterator[AnyPart]:
    """Yield the targets at both ends of the leans as a picture of intervals."""
    leans: Sequence[Lean] = test.leans
    if len(leans) > 2 * _N_SHOWN:
        leans = [*leans[:_N_SHOWN], *leans[-_N_SHOWN:]]
    has_after = test.after is not None
    rows = [
        (lean.target, signed(lean.effect.value), lean.effect, *_after_cells(lean.effect_after)[: 2 * has_after])
        for lean in leans
    ]
    columns: list[Any] = ["target", ("lean", "number"), (f"\u2190 {groups[1]} | {groups[0]} \u2192", "interval")]
    columns += [("after removal", "number"), ("", "interval")] if has_after else []
    title = f"{test.name[:1].upper()}{test.name[1:]}: the leans of the targets"
    yield TablePart.of(title, columns, rows)
    if len(leans) < len(test.leans):
        yield Note(f"The first and last {_N_SHOWN} of {len(test.leans)} targets, in the order of their leans.")


def _after_cells(effect: Estimate | None) -> tuple[str, Estimate | None]:
    return signed(None if effect is None else effect.value), effect


def _unfolded(part: AnyPart) -> Iterator[AnyPart]:
    """Yield a part, and of one that opens and closes its contents: paper does not open."""
    if not isinstance(part, Fold):
        yield part
        return
    first, *remaining = part.parts
    yield first._replace(title=part.summary) if isinstance(first, TablePart) else first
    yield from remaining


def report(
    model: Embedder,
    texts: Corpus | None = None,
    *,
    pairs: Iterable[Any] | str = "gender",
    targets: Any = "occupations",
    sts: Any = None,
    corpus: str | None = None,
    title: str | None = None,
) -> ModelReport:
    """Measure a model and say in one document what it is, what was found, and what that does not show.

    Args:
        model: any family.
        texts: your texts, a file or an iterable; the first 20,000 are read.
        pairs: a list or file of pairs as for `bias`, or several in a list.
        targets: what the groups are compared with, as for `bias`.
        sts: pairs of texts with people's scores, to see what a removal costs, as for `bias`.
        corpus: what the texts are, such as "letters of 2024"; None for the name of the file.
        title: of the report; None for one with the model's name.

    Returns:
        The report, with `to_html` and `to_markdown`.

    Raises:
        InputError: no pairs are named, or as for `bias`.
        CorpusError: a file cannot be read.
    """
    check_model(model)
    is_several = isinstance(pairs, (list, tuple)) and all(isinstance(item, (str, PathLike)) for item in pairs)
    pair_lists = list(pairs) if is_several else [pairs]
    if not pair_lists:
        raise InputError('no pairs are named; give one list or several: pairs=["gender", "nationality"]')
    read = None if texts is None else list(islice(read_texts(texts), _MAX_TEXTS))
    results = []
    for name in pair_lists:
        word_pairs = read_pairs(name)
        swapped = {word_pairs.swapped(text)[:2] for text in read or () if word_pairs.spans(text)}
        with_words = read if len(swapped) > 1 else None
        results.append(bias(model, word_pairs, texts=with_words, targets=targets, sts=sts))
    has_audit = read is not None and len(read) >= _MIN_AUDIT_TEXTS and model.names_dimensions
    source = corpus or (str(texts) if isinstance(texts, (str, PathLike, CorpusFile)) else "your texts")
    described = "none" if read is None else f"{source}: {counted(len(read), 'text')}"
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
    identity = fingerprint(model)
    yield "Fingerprint", identity["stored"][:_FINGERPRINT_CHARS]
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
