"""One or two sentences that say where a score comes from: the groups of an explanation, with rounded numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pellucid.grouping import COMMON, OTHER, OTHERS, PHRASE, Group, phrase_text
from pellucid.rows import CONTEXT, REMAINDER

_MIN_SHARE = 0.1  # of the score, from which a group is named
_MAX_REASONS = 2  # groups named as reasons
_MAX_PARTNERS = 2  # phrases of another text named with each
_MAX_UNKNOWN = 3  # words without a vector that are named
_MAX_NAME_CHARS = 80  # of a dimension's name


class Summary(NamedTuple):
    """What a summary is made of.

    Attributes:
        texts: the one, two or three texts.
        score: what the groups add up to.
        groups: the groups.
        unknown: words without a vector.
        has_shares: whether shares of the score say something: not where large terms of both signs nearly cancel.
        subject: what the score is, "Similarity" or "Score".
    """

    texts: Sequence[str]
    score: float
    groups: Sequence[Group]
    unknown: Sequence[str]
    has_shares: bool
    subject: str = "Similarity"

    def text(self) -> str:
        """Return the sentences."""
        lines = [group for group in self.groups if not group.is_sum]
        sentences = [self._reasons(lines) if self.has_shares else self._balance(lines)]
        if self.has_shares:
            sentences.append("; ".join(self._rest(lines)))
        if self.unknown:
            more = len(self.unknown) - _MAX_UNKNOWN
            named = [*map(_quoted, self.unknown[:_MAX_UNKNOWN]), *[f"{more:,} more"] * (more > 0)]
            sentences.append(f"without a vector: {_listed(named)}")
        return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences if sentence)

    def _opening(self) -> str:
        if len(self.texts) < 3:
            return f"{self.subject} {_rounded(self.score)}"
        nearer, farther = (2, 3) if self.score > 0 else (3, 2)
        return f"text {nearer} is closer to text 1 than text {farther} is, by {_rounded(abs(self.score))}"

    def _reasons(self, lines: Sequence[Group]) -> str:
        """Return the sentence that names the groups which give most of the score."""
        chosen = [line for line in lines if line.share >= _MIN_SHARE][:_MAX_REASONS]
        if not chosen:
            return f"{self._opening()}, of which nothing by itself carries {_MIN_SHARE:.0%}"
        how = "mainly" if sum(line.share for line in chosen) >= 0.5 else "partly"
        clauses = [self._clause(line) for line in chosen]
        if all(clauses):
            said = [f"{clause} ({line.share:.0%})" for clause, line in zip(clauses, chosen)]
            return f"{self._opening()}, {how} because {_listed(said)}"
        named = _listed(f"{self._noun(line)} ({line.share:.0%})" for line in chosen)
        if len(self.texts) == 1:
            return f"{how} about {named}"
        return f"{self._opening()}, {how} from {named}"

    def _balance(self, lines: Sequence[Group]) -> str:
        """Return a sentence of what raises and lowers a score in which both nearly cancel."""
        sides = []
        for verb, sign in (("raises", 1), ("lowers", -1)):
            of_sign = [g for g in self.groups if g.contribution * sign > 0]
            mostly = next((line for line in lines if line.contribution * sign > 0), None)
            total = f"{sum(g.contribution for g in of_sign):+.2f}"
            named = f", mostly {self._noun(mostly)}" if mostly is not None else ""
            sides.append(f"what {verb} it ({total}{named})")
        return f"{self.subject} {_rounded(self.score)}: {' and '.join(sides)} nearly cancel"

    def _rest(self, lines: Sequence[Group]) -> list[str]:
        """Return what else has a large share: a phrase that speaks against the score, and what is in no phrase."""
        said = []
        against = next((line for line in lines if line.share <= -_MIN_SHARE), None)
        if against is not None:
            said.append(f"{self._noun(against)} {_moves(against)}")
        for group in self.groups:
            kind = OTHERS if group.kind.startswith(OTHER) else group.kind
            if kind in (*_REST, OTHERS) and abs(group.share) >= _MIN_SHARE:
                positive = f"{group.share:.0%} {_REST.get(kind, 'comes from')} {group.name}"
                said.append(positive if group.share > 0 else f"{group.name} {_moves(group)}")
        return said

    def _phrases(self, group: Group) -> list[str]:
        """Return the phrases of each text that a group names, quoted; "" for none."""
        spans = zip(self.texts, (group.spans1, group.spans2, group.spans3))
        named = [", ".join(phrase_text(text, span) for span in own[:_MAX_PARTNERS]) for text, own in spans]
        return [f'"{phrases}"' if phrases else "" for phrases in named]

    def _clause(self, group: Group) -> str:
        """Return that a phrase matches others; "" where the group is no match of phrases."""
        if group.kind != PHRASE or not group.spans1 or not (group.spans2 or group.spans3):
            return ""
        first, *others = self._phrases(group)
        if len(others) == 1:
            return f"{first} {'matches' if group.contribution > 0 else 'is unlike'} {others[0]}"
        if not all(others):
            return f"{first} matches {others[0] or others[1]} in text {2 if others[0] else 3}"
        nearer, farther = others if group.contribution > 0 else others[::-1]
        return f"{first} is closer to {nearer} than to {farther}"

    def _noun(self, group: Group) -> str:
        """Return a group by its phrases, or by its name."""
        if group.kind != PHRASE:
            return _quoted(group.name)
        return " with ".join([phrases for phrases in self._phrases(group) if phrases][:2])


_REST = {CONTEXT: "comes from", COMMON: "is", REMAINDER: "is"}
"""Kinds of groups that are no reasons by themselves, and what their share does."""


def _moves(group: Group) -> str:
    return f"{'raises' if group.contribution > 0 else 'lowers'} it by {abs(group.share):.0%}"


def _rounded(value: float) -> str:
    written = f"{value:.2f}"
    return written.removeprefix("-") if float(written) == 0 else written


def _quoted(words: str) -> str:
    short = words if len(words) <= _MAX_NAME_CHARS else words[: _MAX_NAME_CHARS - 1].rstrip() + "\u2026"
    return f'"{short}"'


def _listed(items: Iterable[str]) -> str:
    """Write "a", "a and b", "a, b and c"."""
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last
