"""Sentences that say where a score comes from: the lines of `groups`, with rounded numbers, and what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pellucid.explain.checks import MAX_COMPARED_CHARS, Checks
from pellucid.explain.groups import Group, distinct_phrases
from pellucid.explain.rows import CONTEXT, SCORE_EPS
from pellucid.text.function_words import differ_by_ending, function_words
from pellucid.text.unicode import lowercase

_MIN_SHARE = 0.1  # of the score, or of what it lacks to 1, from which words are named
_MAX_COMPARED = 0.995  # a score up to which is said what keeps it from 1, and how it is among others
_WEAK_PERCENTILE = 95  # of unrelated pairs, below which a score is weak
_MIN_SIZE = 0.02  # of a score, from which a group is a reason for it: less says no more than chance
_MAX_REASONS = 3  # groups named as reasons
_MAX_PARTNERS = 3  # words of another text named with each
_MAX_WORDS = 3  # that are unknown, without a match, or numbers that differ, and are named
_MAX_NAME_CHARS = 80  # of a dimension's name
_SAME = "both say "
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_WORD = re.compile(r"\w+")
_LETTERS = re.compile(r"[^\W\d_]+")


class Summary(NamedTuple):
    """What a summary is made of.

    Attributes:
        texts: the one, two or three texts.
        labels: what these are called.
        score: what the groups add up to.
        groups: the groups.
        unknown: words without a vector.
        unmatched: of texts 1 and 2, the words to which nothing in the other text is close.
        has_shares: whether shares of the score say something: not where large terms of both signs nearly cancel.
        subject: what the score is called.
        checks: what changed texts score; None where the lines were not checked.
    """

    texts: Sequence[str]
    labels: Sequence[str]
    score: float
    groups: Sequence[Group]
    unknown: Sequence[str]
    unmatched: Sequence[Sequence[str]]
    has_shares: bool
    subject: str = "Similarity"
    checks: Checks | None = None

    def text(self) -> str:
        """Return the sentences."""
        lines = [group for group in self.groups if not group.is_sum]
        context = next((group for group in self.groups if group.kind == CONTEXT), None)
        sums = (g for g in self.groups if g.is_sum and abs(g.share) >= _MIN_SHARE)  # what is in no line, if it is much
        large = [f"{g.name} {self._amount(g)}" for g in sums if g.kind != CONTEXT or g.share < 0.5]
        sentences = [self._reasons(lines), "; ".join(large)] if self.has_shares else [self._balance()]
        change, explained = self._change()
        sentences.append(change)
        unmatched = [
            ([word for word in words if word not in explained], label)
            for words, label in zip(self.unmatched, self.labels[1::-1])
        ]
        unmatched = [(words, label) for words, label in unmatched if words]
        if self.subject == "Similarity":
            sentences.append("; ".join(f"nothing in {label} for {_some(words, 'or')}" for words, label in unmatched))
        else:
            sentences.append("; ".join(f"not in {label}: {_some(words)}" for words, label in unmatched))
        if len(self.texts) == 2 and self.subject == "Similarity":  # of a query and a document much differs
            sentences.append("; ".join(d for d in differences(self.texts, self.labels) if d not in change))
        if self.unknown:
            sentences.append(f"unknown words: {_some(self.unknown)}")
        if self.checks is None and context is not None:
            sentences.append("estimated, not checked")
        return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences if sentence)

    def _change(self) -> tuple[str, list[str]]:
        """Return what keeps the score from 1, and the words that it names."""
        change = None if self.checks is None else self.checks.change
        if change is None or self.score >= _MAX_COMPARED or change.score - self.score < _MIN_SHARE * (1 - self.score):
            return "", []
        rise = (change.score - self.score) / (1 - self.score)
        (first, second), how = change.words, "mainly" if rise >= 0.5 else "partly"
        difference, otherwise = f"only {self.labels[not first]} says {_quoted(first or second)}", "otherwise"
        if first and second:
            difference = f"{self.labels[1]} says {_quoted(second)} where {self.labels[0]} says {_quoted(first)}"
            otherwise = f"with {_quoted(first)}"
        return f"below 1 {how} because {difference} ({_rounded(change.score)} {otherwise})", f"{first} {second}".split()

    def _opening(self) -> str:
        if len(self.texts) < 3:
            return f"{self.subject} {_rounded(self.score)}{self._standing()}"
        if abs(self.score) <= SCORE_EPS:
            return f"{self.labels[1]} and {self.labels[2]} are equally close to {self.labels[0]}"
        nearer, farther = self.labels[1:] if self.score > 0 else self.labels[:0:-1]
        return f"{nearer} is closer to {self.labels[0]} than {farther} is, by {_size(self.score)}"

    def _standing(self) -> str:
        """Say where the score is among those of unrelated pairs; nothing of equal texts."""
        percentile = self.checks and self.checks.percentile
        if percentile is None or self.score >= _MAX_COMPARED:
            return ""
        if percentile < _WEAK_PERCENTILE:
            return f" (weak: {100 - percentile:.0f}% of unrelated pairs score as high)"
        return f" (higher than {99.9 if percentile >= 99.9 else int(percentile)}% of unrelated pairs)"

    def _reasons(self, lines: Sequence[Group]) -> str:
        """Return the sentence of the groups that raise the score most, and of the one that lowers it most."""
        opening = self._opening()
        context = next((group for group in self.groups if group.kind == CONTEXT), None)
        if context is not None and context.share >= 0.5:
            opening += (
                f", of which {_signed(context.contribution)} is not explained by words "
                '(measure it: with_reasons("measured") or hit.measured())'
            )
        large = [line for line in lines if abs(line.contribution) >= _MIN_SIZE or len(self.texts) == 1]
        falls = {line: 1 - line.without / self.score for line in large if line.without is not None}
        raising = (line for line in large if line.share > 0)
        chosen = [line for line in raising if max(line.share, falls.get(line, 0.0)) >= _MIN_SHARE][:_MAX_REASONS]
        if len(self.texts) == 1 and chosen:
            how = "mainly" if sum(line.share for line in chosen) >= 0.5 else "partly"
            return f"{how} about {and_listed(f'{self._noun(line)} ({self._amount(line)})' for line in chosen)}"
        against = [line for line in large if line.share <= -_MIN_SHARE and falls.get(line, -1.0) < 0][:1]
        shown = (
            chosen or sorted((line for line in lines if line.share > 0), key=lambda line: -line.share)[:_MAX_REASONS]
        )
        if not shown:
            has_pairs = len(self.texts) == 2 and any(group.kind == "other words" for group in self.groups)
            return f"{opening}: no words are close to each other" if has_pairs else opening
        clauses = list(map(self._clause, shown))
        same = [clause.removeprefix(_SAME) for clause in clauses if clause.startswith(_SAME)]
        others = [clause for clause in clauses if not clause.startswith(_SAME)]
        reasons = ", ".join([f"{_SAME}{and_listed(same)}", *others] if same else others)
        if not chosen:
            return f"{opening}, spread over many words: {reasons}"
        if falls and max(map(falls.__getitem__, falls.keys() & chosen), default=1.0) < _MIN_SHARE:
            reasons = f"{reasons}; {self._without_two(len(chosen))}"
        return "; ".join([f"{opening}: {reasons}", *(f"against it, {self._clause(line)}" for line in against)])

    def _without_two(self, n_lines: int) -> str:
        """Say that no line is missed where the others are there."""
        both = None if self.checks is None else self.checks.without_two
        if n_lines > 1 and both is not None and 1 - both / self.score >= _MIN_SHARE:
            return f"either would do, without both {_rounded(both)}"
        return "no words alone carry it"

    def _balance(self) -> str:
        """Return a sentence of what raises and lowers a score in which both nearly cancel."""
        sides = []
        sides_of = ("raises it", "lowers it")
        if len(self.texts) > 2:
            sides_of = (f"speaks for {self.labels[1]}", f"speaks for {self.labels[2]}")
        for verb, sign in zip(sides_of, (1, -1)):
            of_sign = [group for group in self.groups if group.contribution * sign > 0]
            if not of_sign:
                continue
            total, largest = sum(g.contribution for g in of_sign), max(of_sign, key=lambda g: abs(g.contribution))
            how = "mostly" if 2 * abs(largest.contribution) >= abs(total) else "such as"
            sides.append((f"what {verb}", f"({_signed(total)}, {how} {self._noun(largest)})"))
        if not sides:
            return self._opening()
        if len(sides) == 1:
            return f"{self._opening()}: {' is small '.join(sides[0])}"
        return f"{self._opening()}: {and_listed(map(' '.join, sides))} nearly cancel"

    def _amount(self, group: Group) -> str:
        """Return what a group adds; of one text the share of its score, 1, unless that would be more than all of it."""
        is_share = len(self.texts) == 1 and abs(group.share) <= 1
        return f"{group.share:.0%}" if is_share else _signed(group.contribution)

    def _phrases(self, group: Group) -> list[list[str]]:
        """Return the phrases of each text that a group names, quoted."""
        spans = zip(self.texts, (group.spans1, group.spans2, group.spans3))
        return [
            [f'"{phrase}"' for phrase in distinct_phrases(text, of_text)[:_MAX_PARTNERS]] for text, of_text in spans
        ]

    def _clause(self, group: Group) -> str:
        """Return what a group says, and what it adds."""
        (phrases, *partners), amount = self._phrases(group), self._amount(group)
        without = (
            ""
            if group.without is None
            else f"; without {'it' if group.spans1[1:] + group.spans2[1:] == () else 'them'} {_rounded(group.without)}"
        )
        amount = f"({amount}{without})"
        if not group.is_of_text or not phrases or not any(partners):
            return f"{self._noun(group)} {amount}"
        first, is_or_are = and_listed(phrases), "is" if len(phrases) < 2 else "are"
        if len(self.texts) == 2:
            return f"{_relation(phrases, partners[0], group.contribution)} {amount}"
        if not all(partners):
            label, only = self.labels[1 if partners[0] else 2], partners[0] or partners[1]
            if _are_same(phrases, only):
                return f"{label} says {first}, too {amount}"
            return f"{first} {is_or_are} close to {and_listed(only)} in {label} {amount}"
        nearer, farther = map(and_listed, partners if group.contribution > 0 else partners[::-1])
        return f"{first} {is_or_are} closer to {nearer} than to {farther} {amount}"

    def _noun(self, group: Group) -> str:
        if group.is_sum:
            return group.name
        if not group.is_of_text:
            return _quoted(group.name)
        first, *partners = self._phrases(group)
        nearer_first = partners[::-1] if len(partners) > 1 and group.contribution < 0 else partners
        names = [and_listed(phrases) for phrases in (first, *nearer_first) if phrases]
        return names[0] if partners and _are_same(first, partners[0]) else " with ".join(names[:2])


def _relation(phrases: Sequence[str], partners: Sequence[str], value: float) -> str:
    """Say how words of text 1 are related to those of text 2: no more than closeness is shown by a number."""
    first, second = and_listed(phrases), and_listed(partners)
    is_or_are = "is" if len(phrases) < 2 else "are"
    if value < 0:
        return f"{first} {is_or_are} unlike {second}"
    if _are_same(phrases, partners):
        return f"{_SAME}{first}"
    if len(phrases) == len(partners) == 1 and differ_by_ending(
        *(lowercase(p[0]).strip('"') for p in (phrases, partners))
    ):
        return f"{first} is a form of {second}"
    return f"{first} {is_or_are} close to {second}"


def _are_same(phrases: Sequence[str], partners: Sequence[str]) -> bool:
    words, others = (
        {word for phrase in of_text for word in _WORD.findall(lowercase(phrase))} for of_text in (phrases, partners)
    )
    return words == others


def differences(texts: Sequence[str], labels: Sequence[str]) -> Iterator[str]:
    """Yield what two short texts differ in whatever a model thinks of it: numbers, and whether one of them denies."""
    if max(map(len, texts)) > MAX_COMPARED_CHARS:
        return
    numbers = [dict.fromkeys(_NUMBER.findall(text)) for text in texts]
    only = [[number for number in of_text if number not in other] for of_text, other in zip(numbers, numbers[::-1])]
    if all(only):
        yield f"the numbers differ: {', '.join(only[0][:_MAX_WORDS])} / {', '.join(only[1][:_MAX_WORDS])}"
    words = [_LETTERS.findall(lowercase(text)) for text in texts]
    denying = [[word for word in of_text if word in function_words(of_text).negation] for of_text in words]
    if bool(denying[0]) != bool(denying[1]):
        number = int(bool(denying[1]))
        yield f'only {labels[number]} says "{denying[number][0]}"'


def _rounded(value: float) -> str:
    written = f"{value:.2f}"
    return written.removeprefix("-") if float(written) == 0 else written


def _size(value: float) -> str:
    """Write the size of a number with two decimals, or with three where two would show nothing."""
    size = abs(value)
    return f"{size:.2f}" if size >= 0.005 else f"{size:.3f}" if size >= 0.0005 else "less than 0.001"


def _signed(value: float) -> str:
    written = _size(value)
    return f"{'-' if value < 0 else '+'}{written}" if written[0].isdigit() else written


def _quoted(words: str) -> str:
    short = words if len(words) <= _MAX_NAME_CHARS else words[: _MAX_NAME_CHARS - 1].rstrip() + "\u2026"
    return f'"{short}"'


def and_listed(items: Iterable[str], joint: str = "and") -> str:
    """Write "a", "a and b", "a, b and c"."""
    *first, last = items
    return f"{', '.join(first)} {joint} {last}" if first else last


def _some(words: Sequence[str], joint: str = "and") -> str:
    """Quote the first of some words, and say how many more there are."""
    more = len(words) - _MAX_WORDS
    return and_listed([*map(_quoted, words[:_MAX_WORDS]), *[f"{more:,} more"] * (more > 0)], joint)
