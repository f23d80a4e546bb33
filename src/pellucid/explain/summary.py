"""Sentences that say where a score, or those of a page of hits, come from: the groups, with rounded numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pellucid.explain.groups import COMMON, OTHER, OTHERS, Group, WordSum, phrase_text
from pellucid.explain.rows import CONTEXT, REMAINDER

_MIN_SHARE = 0.1  # of the score, from which a group is named
_MAX_REASONS = 2  # groups named as reasons
_MAX_PARTNERS = 2  # phrases of another text named with each
_MAX_UNKNOWN = 3  # words without a vector that are named
_MAX_NAME_CHARS = 80  # of a dimension's name
_MAX_SHARED = 3  # words of a query, and words that one of them matches, named for a page of hits
_MIN_OF_BEST_HIT = 0.4  # of what a word gives to the hit that matches it best; with less, a hit does not match it
_MIN_GAP = 0.05  # of the first hit's score; a smaller lead is none
_MUCH_MORE = 1.5  # times what the first hit has of a word, from which a later one is named for it


class Summary(NamedTuple):
    """What a summary is made of.

    Attributes:
        texts: the one, two or three texts.
        score: what the groups add up to.
        groups: the groups.
        unknown: words without a vector.
        has_shares: whether shares of the score say something: not where large terms of both signs nearly cancel.
        subject: what the score is, "Similarity" or "Score".
        baseline: what was taken from the score; "" for nothing.
    """

    texts: Sequence[str]
    score: float
    groups: Sequence[Group]
    unknown: Sequence[str]
    has_shares: bool
    subject: str = "Similarity"
    baseline: str = ""

    def text(self) -> str:
        """Return the sentences."""
        lines = [group for group in self.groups if not group.is_sum]
        sentences = [self._reasons(lines) if self.has_shares else self._balance(lines)]
        if self.has_shares:
            sentences.append("; ".join(self._rest(lines)))
        if self.unknown:
            more = len(self.unknown) - _MAX_UNKNOWN
            named = [*map(_quoted, self.unknown[:_MAX_UNKNOWN]), *[f"{more:,} more"] * (more > 0)]
            sentences.append(f"without a vector: {and_listed(named)}")
        return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences if sentence)

    def _opening(self) -> str:
        if self.baseline:
            side = "above" if self.score > 0 else "below"
            return f"{self.subject} {_rounded(abs(self.score))} {side} {self.baseline}"
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
            said = [f"{clause} ({self._amount(line)})" for clause, line in zip(clauses, chosen)]
            return f"{self._opening()}, {how} because {and_listed(said)}"
        named = and_listed(f"{self._noun(line)} ({self._amount(line)})" for line in chosen)
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
        opening = self._opening() if self.baseline else f"{self.subject} {_rounded(self.score)}"
        return f"{opening}: {' and '.join(sides)} nearly cancel"

    def _rest(self, lines: Sequence[Group]) -> list[str]:
        """Return what else has a large share: a phrase that speaks against the score, and what is in no phrase."""
        said = []
        against = next((line for line in lines if line.share <= -_MIN_SHARE), None)
        if against is not None:
            said.append(self._against(against))
        for group in self.groups:
            kind = OTHERS if group.kind.startswith(OTHER) else group.kind
            if kind in (*_REST, OTHERS) and abs(group.share) >= _MIN_SHARE:
                positive = f"{self._amount(group)} {_REST.get(kind, 'comes from')} {group.name}"
                said.append(positive if group.share > 0 else f"{group.name} {self._moves(group)}")
        return said

    @property
    def _is_difference(self) -> bool:
        return bool(self.baseline) or len(self.texts) > 2

    def _amount(self, group: Group) -> str:
        """Return what a group adds: its share or, of a difference, whose shares may be anything, the number."""
        return f"{group.contribution:+.2f}" if self._is_difference else f"{group.share:.0%}"

    def _against(self, group: Group) -> str:
        """Return what a phrase takes from the score: in a difference it fits the other side better."""
        first = self._phrases(group)[0]
        if not self._is_difference or not group.is_of_text or not first:
            return f"{self._noun(group)} {self._moves(group)}"
        if self.baseline:
            return f"{first} counts more {f'in {self.baseline}' if self.score > 0 else 'here'} ({self._amount(group)})"
        return f"text {3 if self.score > 0 else 2} is closer to {first} ({self._amount(group)})"

    def _moves(self, group: Group) -> str:
        """Return what a group does to the score."""
        size = f"{abs(group.contribution):.2f}" if self._is_difference else f"{abs(group.share):.0%}"
        return f"{'raises' if group.contribution > 0 else 'lowers'} it by {size}"

    def _phrases(self, group: Group) -> list[str]:
        """Return the phrases of each text that a group names, quoted; "" for none."""
        spans = zip(self.texts, (group.spans1, group.spans2, group.spans3))
        named = [", ".join(phrase_text(text, span) for span in own[:_MAX_PARTNERS]) for text, own in spans]
        return [f'"{phrases}"' if phrases else "" for phrases in named]

    def _clause(self, group: Group) -> str:
        """Return that a phrase matches others; "" where the group is no match of phrases."""
        if not group.is_of_text or not group.spans1 or not (group.spans2 or group.spans3):
            return ""
        first, *others = self._phrases(group)
        if self.baseline:
            how = "more" if group.contribution > 0 else "less"
            return f"{first} matches {how} here, with {others[0]}"
        if len(others) == 1:
            return f"{first} {'matches' if group.contribution > 0 else 'is unlike'} {others[0]}"
        if not all(others):
            return f"{first} matches {others[0] or others[1]} in text {2 if others[0] else 3}"
        nearer, farther = others if group.contribution > 0 else others[::-1]
        return f"{first} is closer to {nearer} than to {farther}"

    def _noun(self, group: Group) -> str:
        """Return a group by its phrases, or by its name."""
        if not group.is_of_text:
            return _quoted(group.name)
        return " with ".join([phrases for phrases in self._phrases(group) if phrases][:2])


_REST = {CONTEXT: "comes from", COMMON: "is", REMAINDER: "is"}
"""Kinds of groups that are no reasons by themselves, and what their share does."""


def _rounded(value: float) -> str:
    written = f"{value:.2f}"
    return written.removeprefix("-") if float(written) == 0 else written


def _quoted(words: str) -> str:
    short = words if len(words) <= _MAX_NAME_CHARS else words[: _MAX_NAME_CHARS - 1].rstrip() + "\u2026"
    return f'"{short}"'


def and_listed(items: Iterable[str], joint: str = "and") -> str:
    """Write "a", "a and b", "a, b and c"."""
    *first, last = items
    return f"{', '.join(first)} {joint} {last}" if first else last


class HitWords(NamedTuple):
    """A hit's score, and what each content word of the query and each other row adds to it."""

    score: float
    sums: Sequence[WordSum]


class HitsSummary:
    """What the hits of a search have in common with the query, and what sets them apart, in up to three sentences."""

    def __init__(self, hits: Sequence[HitWords], *, are_all: bool = True) -> None:
        """Take at least two hits, best first; `are_all` says whether there are no more."""
        self._hits, self._are_all = hits, are_all
        self._names: dict[str, WordSum] = {}  # by lower case: as first written
        self._values: list[dict[str, float]] = []
        self._partners: list[dict[str, str]] = []
        for hit in hits:
            values, partners = dict[str, float](), dict[str, str]()
            for word in hit.sums:
                key = word.name.lower()
                self._names.setdefault(key, word)
                values[key] = values.get(key, 0.0) + word.value
                partners[key] = partners.get(key) or word.partner
            self._values.append(values)
            self._partners.append(partners)
        totals = {key: sum(values.get(key, 0.0) for values in self._values) for key in self._names}
        self._order = sorted(totals, key=lambda key: -totals[key])
        self._largest = {key: max(values.get(key, 0.0) for values in self._values) for key in self._names}
        self._ranks = {key: [n for n in range(len(hits)) if self._has(n, key)] for key in self._order}

    def _has(self, hit: int, key: str) -> bool:
        """Whether a hit matches a word: it gives a share of the score, and not much less than in other hits."""
        value = self._values[hit].get(key, 0.0)
        return value > 0 and value >= max(_MIN_SHARE * self._hits[hit].score, _MIN_OF_BEST_HIT * self._largest[key])

    def text(self) -> str:
        """Return the sentences; "" where no word or row is worth naming."""
        sentences = [self._common(), self._first(), self._later()]
        return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences if sentence)

    def _common(self) -> str:
        """Return what most hits match, and what none does."""
        n_hits = len(self._hits)
        shared = [key for key in self._order if 2 * len(self._ranks[key]) > n_hits][:_MAX_SHARED]
        shared = shared or [key for key in self._order if len(self._ranks[key]) > 1][:1]
        none = [key for key in self._order if not self._ranks[key] and self._names[key].is_word][:_MAX_SHARED]
        clauses = []
        for number, key in enumerate(shared):
            count = len(self._ranks[key])
            first = "" if self._are_all else "the first "
            of_all = f"all {first}{n_hits:,}" if count == n_hits else f"{count:,} of {first}{n_hits:,}"
            before = f"{of_all}{'' if number else ' hits'} match"
            if number and count == len(self._ranks[shared[number - 1]]):
                before = ""
            clauses.append(f"{before} {self._with_partners(key, range(n_hits))}".strip())
        said = and_listed(clauses) if clauses else ""
        if none and shared:
            said += f"; none matches {and_listed(self._quoted(key) for key in none)}"
        return said

    def _first(self) -> str:
        """Return what puts the first hit above the second."""
        first, second = self._hits[:2]
        gap = first.score - second.score
        if gap < _MIN_GAP * abs(first.score):
            return f"the first two score nearly the same ({_rounded(first.score)} and {_rounded(second.score)})"
        gaps = {key: self._values[0].get(key, 0.0) - self._values[1].get(key, 0.0) for key in self._order}
        key = max(gaps, key=gaps.__getitem__, default="")
        opening = f"the first leads by {_rounded(gap)}"
        if not key or gaps[key] < _MIN_SHARE * gap:
            return opening
        if self._ranks[key] == [0]:
            return f"{opening}: only it matches {self._with_partners(key, [0])}"
        return f"{opening}, mainly by {self._with_partners(key, [0])}"

    def _later(self) -> str:
        """Return what a later hit matches better than the first does."""
        for key in self._order[:_MAX_SHARED]:
            values = [own.get(key, 0.0) for own in self._values]
            best = max(range(len(values)), key=values.__getitem__)
            if best and self._has(best, key) and values[best] >= _MUCH_MORE * max(values[0], 0.0):
                return f"hit {best + 1} matches {self._with_partners(key, [best])} best"
        return ""

    def _with_partners(self, key: str, hits: Iterable[int]) -> str:
        """Return a word, quoted, and the words of some hits that it matches most."""
        sums: dict[str, float] = {}
        written: dict[str, str] = {}
        for hit in hits:
            if (partner := self._partners[hit].get(key)) and self._has(hit, key):
                written.setdefault(partner.lower(), partner)
                sums[partner.lower()] = sums.get(partner.lower(), 0.0) + self._values[hit][key]
        best = sorted(sums, key=lambda partner: -sums[partner])[:_MAX_SHARED]
        if not best or best == [key]:
            return self._quoted(key)
        return f"{self._quoted(key)} (with {and_listed((_quoted(written[partner]) for partner in best), 'or')})"

    def _quoted(self, key: str) -> str:
        return _quoted(self._names[key].name)
