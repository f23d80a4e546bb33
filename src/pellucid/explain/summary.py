"""Sentences that say where a score, or those of a page of hits, come from: the groups, with rounded numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pellucid.explain.groups import COMMON, PHRASE, Group, WordSum, distinct_phrases
from pellucid.explain.rows import REMAINDER, SCORE_EPS
from pellucid.text.words import Span

_MIN_SHARE = 0.1  # of the score, from which a group is named
_MAX_REASONS = 2  # groups named as reasons
_MAX_PARTNERS = 2  # phrases of another text named with each
_MAX_UNKNOWN = 3  # words without a vector that are named
_MAX_NAME_CHARS = 80  # of a dimension's name
_MAX_SHARED = 3  # words of a query, and words that one of them matches, named for a page of hits
_MIN_OF_BEST_HIT = 0.4  # of what a word gives to the hit that matches it best; with less, a hit does not match it
_MAX_OF_ONLY_HIT = 0.1  # of what a word gives to the first hit, up to which the others do not match it at all
_MIN_GAP = 0.05  # of the first hit's score; a smaller lead is none
_MUCH_MORE = 1.5  # times what the first hit has of a word, from which a later one is named for it


class Summary(NamedTuple):
    """What a summary is made of.

    Attributes:
        texts: the one, two or three texts.
        labels: what these are called.
        score: what the groups add up to.
        groups: the groups.
        unknown: words without a vector.
        has_shares: whether shares of the score say something: not where large terms of both signs nearly cancel.
        subject: what the score is, "Similarity" or "Score".
        baseline: what was taken from the score; "" for nothing.
    """

    texts: Sequence[str]
    labels: Sequence[str]
    score: float
    groups: Sequence[Group]
    unknown: Sequence[str]
    has_shares: bool
    subject: str = "Similarity"
    baseline: str = ""

    def text(self) -> str:
        """Return the sentences."""
        lines = [group for group in self.groups if not group.is_sum]
        sentences = [self._reasons(lines) if self.has_shares else self._balance()]
        if self.has_shares:
            sentences.append("; ".join(self._further_clauses(lines)))
        if self.unknown:
            more = len(self.unknown) - _MAX_UNKNOWN
            named = [*map(_quoted, self.unknown[:_MAX_UNKNOWN]), *[f"{more:,} more"] * (more > 0)]
            sentences.append(f"unknown words: {and_listed(named)}")
        return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences if sentence)

    def _opening(self) -> str:
        if not self._is_difference:
            return f"{self.subject} {_rounded(self.score)}"
        if abs(self.score) <= SCORE_EPS:
            compared = self.baseline or self.labels[2]
            return f"{self.labels[1]} and {compared} are equally close to {self.labels[0]}"
        if self.baseline:
            return f"{self.subject} {_size(self.score)} {'above' if self.score > 0 else 'below'} {self.baseline}"
        nearer, farther = self.labels[1:] if self.score > 0 else self.labels[:0:-1]
        return f"{nearer} is closer to {self.labels[0]} than {farther} is, by {_size(self.score)}"

    def _reasons(self, lines: Sequence[Group]) -> str:
        """Return the sentence that names the groups which give most of the score."""
        chosen = [line for line in lines if line.share >= _MIN_SHARE][:_MAX_REASONS]
        if not chosen:
            unit = lines[0].kind if len({line.kind for line in lines}) == 1 else "line" if lines else PHRASE
            return f"{self._opening()}, of which no single {unit} gives {_MIN_SHARE:.0%}"
        how = "mainly" if sum(line.share for line in chosen) >= 0.5 else "partly"
        if all(map(self._matches, chosen)):
            return f"{self._opening()}, {how} because {and_listed(self._clauses(chosen))}"
        named = and_listed(f"{self._noun(line)} ({self._amount(line)})" for line in chosen)
        if len(self.texts) == 1:
            return f"{how} about {named}"
        return f"{self._opening()}, {how} from {named}"

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

    def _further_clauses(self, lines: Sequence[Group]) -> list[str]:
        """Return what else has a large share: a phrase that speaks against the score, and what is in no phrase."""
        clauses = []
        against = next((line for line in lines if line.share <= -_MIN_SHARE), None)
        if against is not None:
            clauses.append(self._against(against))
        for group in self.groups:
            if group.is_sum and abs(group.share) >= _MIN_SHARE:
                verb = "is" if group.kind in (COMMON, REMAINDER) else "comes from"
                positive = f"{self._amount(group)} {verb} {group.name}"
                clauses.append(positive if group.share > 0 else f"{group.name} {self._moves(group)}")
        return clauses

    @property
    def _is_difference(self) -> bool:
        return bool(self.baseline) or len(self.texts) > 2

    def _amount(self, group: Group) -> str:
        """Return what a group adds: its share or, where shares may be anything, the number."""
        return _signed(group.contribution) if self._is_difference or self.score < 0 else f"{group.share:.0%}"

    def _against(self, group: Group) -> str:
        """Return what a phrase takes from the score: in a difference it fits the other side better."""
        phrases, *_ = self._phrases(group)
        if not self._is_difference or not group.is_of_text or not phrases:
            return f"{self._noun(group)} {self._moves(group)}"
        named = and_listed(phrases)
        if self.baseline:
            where = f"in {self.baseline}" if self.score > 0 else "here"
            return f"{named} count{'s' * (len(phrases) < 2)} more {where} ({self._amount(group)})"
        return f"{self.labels[2 if self.score > 0 else 1]} is closer to {named} ({self._amount(group)})"

    def _moves(self, group: Group) -> str:
        """Return what a group does to the score, in its unit: a share of the score would be read as one of the rest."""
        is_plural = group.is_sum and (" and " in group.name or group.name.endswith("s"))
        verb = "raise" if group.contribution > 0 else "lower"
        return f"{verb}{'s' * (not is_plural)} it by {_size(group.contribution)}"

    def _phrases(self, group: Group) -> list[list[str]]:
        """Return the phrases of each text that a group names, quoted."""
        spans = zip(self.texts, (group.spans1, group.spans2, group.spans3))
        return [
            [f'"{phrase}"' for phrase in distinct_phrases(text, of_text)[:_MAX_PARTNERS]] for text, of_text in spans
        ]

    @staticmethod
    def _matches(group: Group) -> bool:
        return group.is_of_text and bool(group.spans1) and bool(group.spans2 or group.spans3)

    def _clauses(self, groups: Sequence[Group]) -> list[str]:
        """Return that phrases match others; of groups that begin alike, this once."""
        clauses: list[str] = []
        for opening, partners in map(self._clause, groups):
            if clauses and clauses[-1].startswith(opening):
                clauses[-1] += f" and {partners}"
            else:
                clauses.append(f"{opening}{partners}")
        return clauses

    def _clause(self, group: Group) -> tuple[str, str]:
        """Return that a phrase matches partners, divided before these."""
        phrases, *partners = self._phrases(group)
        first, s = and_listed(phrases), "es" * (len(phrases) < 2)
        amount = f" ({self._amount(group)})"
        if self.baseline:
            how = "more" if group.contribution > 0 else "less"
            return f"{first} match{s} {how} here, with ", and_listed(partners[0]) + amount
        is_or_are = "is" if len(phrases) < 2 else "are"
        if len(partners) == 1:
            if group.contribution > 0 and group.kind == PHRASE and [p.lower() for p in partners[0]] == [first.lower()]:
                return "both say ", first + amount
            verb = f"match{s}" if group.contribution > 0 else f"{is_or_are} unlike"
            return f"{first} {verb} ", and_listed(partners[0]) + amount
        if not all(partners):
            label = self.labels[1 if partners[0] else 2]
            return f"{first} match{s} ", f"{and_listed(partners[0] or partners[1])} in {label}{amount}"
        nearer, farther = map(and_listed, partners if group.contribution > 0 else partners[::-1])
        return f"{first} {is_or_are} closer to ", f"{nearer} than to {farther}{amount}"

    def _noun(self, group: Group) -> str:
        if group.is_sum:
            return group.name
        if not group.is_of_text:
            return _quoted(group.name)
        first, *partners = self._phrases(group)
        nearer_first = partners[::-1] if len(partners) > 1 and group.contribution < 0 else partners
        return " with ".join([and_listed(phrases) for phrases in (first, *nearer_first) if phrases][:2])


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


class HitWords(NamedTuple):
    """A hit's score, and what each content word of the query and each other row adds to it."""

    score: float
    sums: Sequence[WordSum]


class HitsSummary:
    """What the hits of a search have in common with the query, and what sets them apart, in up to three sentences."""

    def __init__(self, hits: Sequence[HitWords], *, are_all: bool = True) -> None:
        """Take at least two hits, best first; `are_all` says whether there are no more."""
        self._hits, self._are_all = hits, are_all
        names = joined_names([word for hit in hits for word in hit.sums])
        self._names: dict[str, str] = {}  # by lower case: as first written
        self._are_words: set[str] = set()
        self._values: list[dict[str, float]] = []
        self._partners: list[dict[str, str]] = []
        for hit in hits:
            values, partners = dict[str, float](), dict[str, str]()
            for word in hit.sums:
                name = word.name if word.span is None else names[word.span]
                key = name.lower()
                self._names.setdefault(key, name)
                self._are_words |= {key} if word.span is not None else set()
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
        """Return what most hits match, and what has a small share of every score."""
        n_hits = len(self._hits)
        shared = [key for key in self._order if 2 * len(self._ranks[key]) > n_hits][:_MAX_SHARED]
        shared = shared or [key for key in self._order if len(self._ranks[key]) > 1][:1]
        small = [key for key in self._order if not self._ranks[key] and key in self._are_words][:_MAX_SHARED]
        clauses = []
        for number, key in enumerate(shared):
            count = len(self._ranks[key])
            first = "" if self._are_all else "the first "
            of_all = f"{count:,} of {first}{n_hits:,}"
            if count == n_hits:
                of_all = "both" if n_hits == 2 else f"all {first}{n_hits:,}"
            before = f"{of_all}{'' if number else ' hits'} match"
            if number and count == len(self._ranks[shared[number - 1]]):
                before = ""
            clauses.append(f"{before} {self._with_partners(key, range(n_hits))}".strip())
        common = and_listed(clauses) if clauses else ""
        if small and shared:
            common += f"; little comes from {and_listed((self._quoted(key) for key in small), 'or')}"
        return common

    def _first(self) -> str:
        first, second = self._hits[:2]
        gap = first.score - second.score
        if gap < _MIN_GAP * abs(first.score):
            return f"the first two score nearly the same ({_rounded(first.score)} and {_rounded(second.score)})"
        gaps = {key: self._values[0].get(key, 0.0) - self._values[1].get(key, 0.0) for key in self._order}
        key = max(gaps, key=gaps.__getitem__, default="")
        opening = f"the first leads by {_rounded(gap)}"
        if not key or gaps[key] < _MIN_SHARE * gap:
            return opening
        largest_later = max(values.get(key, 0.0) for values in self._values[1:])
        if largest_later < _MAX_OF_ONLY_HIT * self._largest[key]:
            return f"{opening}: only it matches {self._with_partners(key, [0])}"
        return f"{opening}, mainly by {self._with_partners(key, [0])}"

    def _later(self) -> str:
        """Return what a later hit matches better than the first does."""
        for key in self._order[:_MAX_SHARED]:
            values = [of_hit.get(key, 0.0) for of_hit in self._values]
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
        return _quoted(self._names[key])


def joined_names(words: Iterable[WordSum]) -> dict[Span, str]:
    """Return for each place in the query the longest word there: one part's "G-CSF" is another's "G" and "CSF"."""
    names = {word.span: word.name for word in words if word.span is not None}
    joined, end, widest = dict[Span, str](), 0, (0, 0)
    for span in sorted(names, key=lambda span: (span[0], -span[1])):
        widest = span if span[0] >= end else widest
        end = max(end, span[1])
        joined[span] = names[widest]
    return joined
