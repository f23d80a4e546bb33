"""Sentences that say where a score comes from: the lines of `groups`, with rounded numbers, and what is missing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain
from typing import NamedTuple

from pellucid.explain.checks import MAX_COMPARED_CHARS, Checks, find_changes
from pellucid.explain.groups import COMMON, Group, distinct_phrases
from pellucid.explain.rows import CONTEXT, SCORE_EPS
from pellucid.text.function_words import differ_by_ending, function_words
from pellucid.text.unicode import lowercase

_MIN_SHARE = 0.1  # of the score, or of what it lacks to 1, from which words are named
_MAX_COMPARED = 0.995  # a score up to which is said what keeps it from 1, and how it is among others
_WEAK_PERCENTILE = 95  # of unrelated pairs, below which a score is weak
_MIN_SIZE = 0.02  # of a score, from which a group is a reason for it: less says no more than chance
_MAX_NAMED = 3  # groups named as reasons, words of another text with each, and others of one kind
_MAX_NAME_CHARS = 80  # of a dimension's name
_SAME = "both say "
_MIN_SPELLED_ALIKE, _MIN_SPELLED_CHARS = 0.85, 5  # of the ratio of `difflib`, and of a word
_MAX_SPELLED = 30  # words of text 1 that are compared letter by letter
_SLIGHT = 0.1  # a score below which texts have hardly anything in common, if no line adds half as much
_NUMBER_WORDS = {
    word: str(n) for n, word in enumerate("two three four five six seven eight nine ten eleven twelve".split(), 2)
} | {f"{tens}ty": f"{n}0" for n, tens in enumerate("twen thir for fif six seven eigh nine".split(), 2)}
_NUMBER = re.compile(rf"\d+(?:[.,:-]\d+)*|(?<![\w-])(?:{'|'.join(_NUMBER_WORDS)})(?![\w-])", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_TIED = re.compile(r"\w+(?:[-\u2010\u2011.:]\w+)+")
_ENDING = re.compile(r"(?<=\w{3})(?:ies|y|s|es|ed|ing|en?)$")  # of two forms of one word, in English or German
_NAME = re.compile(r"(?<=[\w,)] )[^\W\d_a-z]\w+|\b\w+[A-Z]\w*")  # a capital that no sentence's beginning gave
_PIECES = frozenset({"n", "t", "don", "won"})  # of "don't", which are words or letters of their own
_WORD_NOT_NUMBERED = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*(?!\W*\d)")  # "no. 7" denies nothing


class Summary(NamedTuple):
    """What a summary is made of.

    Attributes:
        texts: the one, two or three texts.
        labels: what these are called.
        score: what the groups add up to.
        groups: the groups.
        unknown: words without a vector.
        partly: words of which little is known, and what they are read as.
        free: of texts 1 and 2, the words in no group, each with the one that is nearest in the other text, or "".
        has_shares: whether shares of the score say something: not where large terms of both signs nearly cancel.
        subject: what the score is called.
        checks: what changed texts score; None where the lines were not checked.
    """

    texts: Sequence[str]
    labels: Sequence[str]
    score: float
    groups: Sequence[Group]
    unknown: Sequence[str]
    partly: Mapping[str, str]
    free: Sequence[Sequence[tuple[str, str]]]
    has_shares: bool
    subject: str = "Similarity"
    checks: Checks | None = None

    def text(self) -> str:
        """Return the sentences."""
        change, explained = self._change()
        lines = [group for group in self.groups if not group.is_sum]
        lines = [line for line in lines if not explained.issuperset(_words(chain(*self._phrases(line))))] or lines
        is_encoder = any(group.kind == CONTEXT for group in self.groups)
        unexplained = self._unexplained()
        sums = [g for g in self.groups if g.is_sum and abs(g.share) >= _MIN_SHARE and g is not unexplained]
        large = "; ".join(f"{g.name} {self._amount(g)}" for g in sums)  # what is in no line, if it is much
        is_pair = len(self.texts) == 2 and self.subject == "Similarity"  # of a query and a document much differs
        sentences, nearest_label = [self._reasons(lines), large], "nearest"
        if is_pair and abs(self.score) < _SLIGHT and all(2 * line.contribution < _SLIGHT for line in lines):
            sentences, nearest_label = [f"{self._opening()}: hardly anything in common"], ""
        elif unexplained is not None:  # words without a partner say nothing, either
            nearest_label = ""
        elif any(line.share > 0 for line in lines):
            nearest_label = "also near"
        sentences.append(change)
        if is_pair:
            sentences += self._beside_reasons(change, explained, nearest_label)
        elif missing := [_quoted(word) for of_text in self.free for word, nearest in of_text if not nearest]:
            sentences.append(f"not in {self.labels[1]}: {_listed(missing)}")
        if self.unknown:
            words = {lowercase(word): word for word in self.unknown[::-1]}
            where = {word: is_pair and all(_words([word]) <= _words([text]) for text in self.texts) for word in words}
            named = [_quoted(word) + " (in both texts)" * where[lower] for lower, word in reversed(words.items())]
            sentences.append(f"{'words without reasons' if is_encoder else 'unknown words'}: {_listed(named)}")
        if self.partly:
            sentences.append(
                f"hardly known: {_listed([f'{_quoted(w)} (read as {_quoted(r)})' for w, r in self.partly.items()])}"
            )
        if self.checks is None and is_encoder:
            sentences.append("estimated, not checked")
        return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences if sentence)

    def _beside_reasons(self, change: str, explained: set[str], label: str) -> Iterator[str]:
        """Yield what is said of two texts beside reasons: words that are in none, and what the texts differ in."""
        differing = dict(differences(self.texts, self.labels))
        written = [{lowercase(word): word for word in _WORD.findall(text)} for text in self.texts]
        named_words = function_words([*written[0], *written[1]]).words.union(explained, *differing.values())
        pairs = [*self.free[0], *((nearest, word) for word, nearest in self.free[1])]
        pairs = [pair for pair in dict.fromkeys(pairs) if all(pair) and named_words.isdisjoint(_words(pair))]
        yield f"{label}: {_pairs(pairs)}" if label and pairs else ""
        alike = _spelled_alike(*written)
        named_words = named_words.union(*alike, oov_words := _words(chain(self.unknown, self.partly)))
        missing = [
            [_quoted(w) for w, nearest in words if not nearest and lowercase(w) not in named_words]
            for words in self.free
        ]
        labelled = zip(missing, self.labels[1::-1], written[::-1]) if label else ()
        yield "; ".join(
            f"nothing{' known' * (not oov_words.isdisjoint(of_text))} in {text} for {_listed(words, 'or')}"
            for words, text, of_text in labelled
            if words
        )
        yield f"spelled almost alike: {_pairs([(written[0][w], written[1][o]) for w, o in alike])}" if alike else ""
        yield "; ".join(
            sentence
            for sentence, words in differing.items()
            if sentence not in change and not (sentence.startswith("only") and words <= explained)
        )

    def _change(self) -> tuple[str, set[str]]:
        """Return what keeps the score from 1, and the words that it names, in lower case."""
        change = None if self.checks is None else self.checks.change
        if change is None or self.score >= _MAX_COMPARED or change.score - self.score < _MIN_SHARE * (1 - self.score):
            return "", set()
        rise = (change.score - self.score) / (1 - self.score)
        (first, second), how = change.words, "mainly" if rise >= 0.5 else "partly"
        difference, otherwise = f"only {self.labels[not first]} says {_quoted(first or second)}", "otherwise"
        if first and second:
            difference = f"{self.labels[1]} says {_quoted(second)} where {self.labels[0]} says {_quoted(first)}"
            otherwise = f"with {_quoted(first)}"
        return f"below 1 {how} because {difference} ({_rounded(change.score)} {otherwise})", _words(change.words)

    def _opening(self) -> str:
        if len(self.texts) < 3:
            return f"{self.subject} {_rounded(self.score)}{self._standing()}"
        if abs(self.score) <= SCORE_EPS:
            return f"{self.labels[1]} and {self.labels[2]} are equally close to {self.labels[0]}"
        nearer, farther = self.labels[1:] if self.score > 0 else self.labels[:0:-1]
        return f"{nearer} is closer to {self.labels[0]} than {farther} is, by {_size(self.score)}"

    def _standing(self) -> str:
        """Say where the score is among those of unrelated pairs; nothing for equal texts."""
        percentile = self.checks and self.checks.percentile
        if percentile is None or self.score >= _MAX_COMPARED:
            return ""
        if percentile < _WEAK_PERCENTILE:
            return f" (weak: {100 - percentile:.0f}% of unrelated pairs score as high)"
        return f" (higher than {99.9 if percentile >= 99.9 else int(percentile)}% of unrelated pairs)"

    def _unexplained(self) -> Group | None:
        """Return the context where it is half or more of what the score has beyond what all texts share."""
        own = self.score - sum(group.contribution for group in self.groups if group.kind == COMMON)
        is_half = (g for g in self.groups if g.kind == CONTEXT and g.contribution >= max(own, SCORE_EPS) / 2)
        return next(is_half, None)

    def _reasons(self, lines: Sequence[Group]) -> str:
        """Return the sentence of the groups that raise the score most, and of the one that lowers it most."""
        opening = self._opening()
        if (context := self._unexplained()) is not None:
            how = 'model.with_reasons("measured")' if self.subject == "Similarity" else "hit.measured()"
            opening += f", mostly not explained by words ({_signed(context.contribution)}; {how} measures it)"
        large = [line for line in lines if abs(line.contribution) >= _MIN_SIZE or len(self.texts) == 1]
        if not self.has_shares:
            sides = [[line for line in large if line.contribution * sign > 0][:1] for sign in (1, -1)]
            named = [*map(self._clause, sides[0]), *(f"against it, {self._clause(line)}" for line in sides[1])]
            return f"{opening}: {'; '.join(named)}; the two nearly cancel" if all(sides) else opening
        falls = {line: 1 - line.without / self.score for line in large if line.without is not None}
        sizes = {line: max(line.share, falls.get(line, 0.0)) for line in large or lines if line.share > 0}
        largest = max(sizes.values(), default=0.0)
        chosen = [line for line, size in sizes.items() if size >= min(_MIN_SHARE, largest / 2)][:_MAX_NAMED]
        if len(self.texts) == 1 and chosen:
            how = "mainly" if sum(line.share for line in chosen) >= 0.5 else "partly"
            return f"{how} about {and_listed(f'{self._noun(line)} ({self._amount(line)})' for line in chosen)}"
        against = [line for line in large if line.share <= -_MIN_SHARE and falls.get(line, -1.0) < 0][:1]
        if not chosen:
            is_of_pairs = len(self.texts) == 2 and "other words" in [group.kind for group in self.groups]
            return opening + ": no words stand out" * is_of_pairs
        clauses = list(map(self._clause, chosen))
        same = [clause.removeprefix(_SAME) for clause in clauses if clause.startswith(_SAME)]
        other_clauses = [clause for clause in clauses if not clause.startswith(_SAME)]
        reasons = ", ".join([f"{_SAME}{and_listed(same)}", *other_clauses] if same else other_clauses)
        if largest < _MIN_SHARE:
            return f"{opening}, spread over many words: {reasons}"
        if falls and max(map(falls.__getitem__, falls.keys() & chosen), default=1.0) < _MIN_SHARE:
            reasons = f"{reasons}; {self._without_two(len(chosen))}"
        return "; ".join([f"{opening}: {reasons}", *(f"against it, {self._clause(line)}" for line in against)])

    def _without_two(self, n_lines: int) -> str:
        """Say that no single line is missed while the others remain."""
        both = None if self.checks is None else self.checks.without_two
        if n_lines > 1 and both is not None and 1 - both / self.score >= _MIN_SHARE:
            return f"either {'of the first two ' * (n_lines > 2)}would do, without both {_rounded(both)}"
        return "no words alone carry it"

    def _amount(self, group: Group) -> str:
        """Return what a group adds; of one text the share of its score, 1, unless that would be more than all of it."""
        is_share = len(self.texts) == 1 and abs(group.share) <= 1
        return f"{group.share:.0%}" if is_share else _signed(group.contribution)

    def _phrases(self, group: Group) -> list[list[str]]:
        """Return the phrases of each text that a group names, quoted."""
        spans = zip(self.texts, (group.spans1, group.spans2, group.spans3))
        return [[f'"{phrase}"' for phrase in distinct_phrases(text, of_text)[:_MAX_NAMED]] for text, of_text in spans]

    def _clause(self, group: Group) -> str:
        """Return what a group says, and what it adds."""
        (phrases, *partners), amount = self._phrases(group), self._amount(group)
        if group.without is not None:
            joint = (
                ", yet" if group.without > self.score + 0.005 and group.contribution > 0 else ";"
            )  # the other words alone are closer
            them = "them" if group.spans1[1:] + group.spans2[1:] else "it"
            amount += f"{joint} without {them} {_rounded(group.without)}"
        amount = f"({amount})"
        if not group.is_of_text or not phrases or not any(partners):
            return f"{self._noun(group)} {amount}"
        first, is_or_are = and_listed(phrases), "is" if len(phrases) < 2 else "are"
        if len(self.texts) == 2:
            return f"{_relation(phrases, partners[0], group.contribution)} {amount}"
        if not all(partners):
            label, only = self.labels[1 if partners[0] else 2], partners[0] or partners[1]
            if _words(phrases) == _words(only):
                return f"{label} says {first}, too {amount}"
            return f"{first} {is_or_are} close to {and_listed(only)} in {label} {amount}"
        nearer, farther = map(and_listed, partners if group.contribution > 0 else partners[::-1])
        return f"{first} {is_or_are} closer to {nearer} than to {farther} {amount}"

    def _noun(self, group: Group) -> str:
        phrases = next(filter(None, self._phrases(group)), []) if group.is_of_text else []
        return and_listed(phrases) if phrases else _quoted(group.name)


def _relation(phrases: Sequence[str], partners: Sequence[str], value: float) -> str:
    """Say how words of text 1 are related to those of text 2: no more than closeness is shown by a number."""
    first, second, is_or_are = and_listed(phrases), and_listed(partners), "is" if len(phrases) < 2 else "are"
    if value < 0:
        return f"{first} {is_or_are} unlike {second}"
    tied = [sorted(_TIED.findall(lowercase(of_text))) for of_text in (first, second)]
    if tied[0] != tied[1]:  # "low-cost" and "low" and "cost", 2:1 and 1:2
        return f"{first} {is_or_are} close to {second}"
    if _words(phrases) == _words(partners):
        return f"{_SAME}{first}"
    forms = [[{word, _ENDING.sub("", word)} for word in _words(of_text)] for of_text in (phrases, partners)]
    if all(any(form & other for other in others) for one, others in (forms, forms[::-1]) for form in one):
        forms_of = "is a form of" if len(phrases) < 2 else "are forms of"
        same = [phrase for phrase in phrases if lowercase(phrase) in map(lowercase, partners)]
        return f"{_SAME}{and_listed(same)}" if same else f"{first} {forms_of} {second}"
    return f"{first} {is_or_are} close to {second}"


def _words(phrases: Iterable[str]) -> set[str]:
    """Return the words of some phrases, in lower case."""
    return {word for phrase in phrases for word in _WORD.findall(lowercase(phrase))}


def differences(texts: Sequence[str], labels: Sequence[str]) -> Iterator[tuple[str, set[str]]]:
    """Yield what two short texts differ in whatever a model thinks of it, and the words that say so, in lower case.

    These are numbers, names that stand in each other's place, and whether one of the texts denies.
    """
    if max(map(len, texts)) > MAX_COMPARED_CHARS:
        return
    # quantities may be equal: 750 ml and 0.75 l
    numbers = ("numbers that only one text has", _lone_numbers(texts))
    for what, of_texts in (numbers, ("the names differ", _exchanged_names(texts))):
        if all(of_texts):
            named = " / ".join(", ".join(of_text[:_MAX_NAMED]) for of_text in of_texts)
            yield f"{what}: {named}", {lowercase(name) for of_text in of_texts for name in of_text}
    for number, denying in _lone_denials(texts):
        yield f'only {labels[number]} says "{denying[0]}"', {*denying}


def unsupported_details(claim: str, source: str, passage: str) -> Iterator[str]:
    """Yield what a sentence says and the sentence of a passage that it is compared with does not.

    These are numbers that the source lacks, names that the passage lacks or that stand in each other's place, and a
    negation that only one of the two has.
    """
    in_passage, is_named = _words([passage]), not _has_no_names((claim,))
    changes = [change.words for change in find_changes((claim, source))] if is_named else []
    names = [name for name, old in changes if name[:1].isupper() and old[:1].isupper() and not _are_forms(name, old)]
    names += [  # a name has no form of one or two letters
        name for name in (_NAME.findall(claim) if is_named else ()) if lowercase(name) != name
        and not (_words([name]) <= in_passage or any(len(word) > 2 and _are_forms(name, word) for word in in_passage))
    ]  # fmt: skip
    for what, words in (("numbers", _lone_numbers((claim, source))[0]), ("names", [*dict.fromkeys(names)])):
        if words:
            yield f"{what} not in the source: {_listed(words)}"
    for number, denying in _lone_denials((claim, source)):
        yield f"only the {('answer', 'source')[number]} says {_quoted(denying[0])}"


def _lone_numbers(texts: Sequence[str]) -> list[list[str]]:
    """Return the numbers of each of two texts that the other one lacks, as they are written."""
    numbers = [
        {
            _value_of(number): number
            for number in _NUMBER.findall(text)
            if ":" not in number
            or not re.search(r"\d\s?[ap][.]?m\b", " ".join(texts), re.IGNORECASE)  # 7:45 pm is 19:45
        }
        for text in texts
    ]
    pieces = [{value: set(re.findall(r"[\d.]+", value)) for value in of_text} for of_text in numbers]
    return [
        # "2010-2015" says the same as "from 2010 to 2015", and 2:1 not as 1:2
        [of_text[n] for n in own if n not in other and not own[n] <= {*other} and n not in set().union(*other.values())]
        for of_text, own, other in zip(numbers, pieces, pieces[::-1])
    ]


def _lone_denials(texts: Sequence[str]) -> list[tuple[int, list[str]]]:
    """Return the index of the text that denies where the other one does not, with its words that do, in lower case."""
    words = [_WORD_NOT_NUMBERED.findall(lowercase(text)) for text in texts]
    denying = [
        [w for w in of_text if w in denial or w.endswith(("n't", "n\u2019t"))]
        for of_text, denial in ((of_text, function_words(of_text).negation - _PIECES) for of_text in words)
    ]
    return [(number, denying[number]) for number in (0, 1) if denying[number] and not denying[1 - number]]


def _value_of(number: str) -> str:
    """Return a number without its commas and the zeros behind its point, so that 1,249.00 is 1249."""
    plain = _NUMBER_WORDS.get(number.lower(), number.replace(",", ""))
    return re.sub(r"(?<![\d.])0+(?=\d)|[.]0+(?!\d)|(?<=[.]\d)0+(?!\d)", "", plain)


def _exchanged_names(texts: Sequence[str]) -> list[list[str]]:
    """Return the names of two texts that stand in each other's place."""
    if _has_no_names(texts):
        return [[], []]
    changes = [change.words for change in find_changes((texts[0], texts[1])) if all(map(_is_name, change.words, texts))]
    return [[words[text] for words in changes if not _are_forms(*words)] for text in (0, 1)]


def _has_no_names(texts: Iterable[str]) -> bool:
    """Whether a capital letter tells no name: of German texts, and of headlines with Most Words Written So."""
    words = [word for text in texts for word in _WORD.findall(text)]
    n_capitals = sum(word[0].isupper() for word in words)
    return 2 * n_capitals > len(words) or "nicht" in function_words(map(lowercase, words)).negation


def _are_forms(first: str, second: str) -> bool:
    """Whether two names may be of one: "Mexico" and "Mexican", "Hong Kong" and "Hong-Kong"."""
    shorter, longer = sorted(("".join(filter(str.isalpha, lowercase(name))) for name in (first, second)), key=len)
    return longer.startswith(shorter) or differ_by_ending(shorter, longer)


def _is_name(words: str, text: str) -> bool:
    """Whether each of some words has a capital letter that no sentence's beginning gave it."""
    is_capital = len(words) > 2 and all(word[0].isupper() for word in words.split())
    return is_capital and re.search(rf"[\w,)] {re.escape(words)}\b", text) is not None


def _spelled_alike(words: Iterable[str], other_words: Collection[str]) -> list[tuple[str, str]]:
    """Return words beside those of another text that differ in a letter inside: what is misspelt, not another form."""
    long = [word for word in words if word.isalpha() and len(word) >= _MIN_SPELLED_CHARS][:_MAX_SPELLED]
    best = [(word, match) for word in long for match in get_close_matches(word, other_words, 1, _MIN_SPELLED_ALIKE)]
    return [(word, match) for word, match in best if word != match and word[-1] == match[-1] and match not in long]


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


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    return and_listed(
        f"{_quoted(first)} {'in both' if lowercase(first) == lowercase(second) else f'to {_quoted(second)}'}"
        for first, second in pairs[:_MAX_NAMED]
    )


def _listed(names: Sequence[str], joint: str = "and") -> str:
    """Write the first of some names, and say how many more there are."""
    more = len(names) - _MAX_NAMED
    return and_listed([*names[:_MAX_NAMED], *[f"{more:,} more"] * (more > 0)], joint)
