"""What sets a group of texts apart from others: a cluster, a class, twenty examples of a complaint.

The mean cosine of two different texts of a group is a sum over dimensions, and so is that of a text of the group and
one outside it. Their difference, the separation, therefore has one part a dimension, exactly:

    within  = sum over j of (S_j^2 - Q_j) / (N (N - 1))          S_j, Q_j: sum of the coordinates and of their squares
    between = sum over j of m_j m'_j                             m_j, m'_j: mean coordinate in the group and outside
    separation = within - between = sum over j of part_j

Coordinates are those of L2-normalised embeddings; a text without a known word is a zero row, whose cosine to every
other is 0, as in `similarity`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.analysis.coordinates import (
    Example,
    Floats,
    average_ranks,
    column_chunks,
    cosines_along,
    extreme_examples,
    guessed_words,
    known_rows,
    unit_blocks,
)
from pellucid.core.arrays import l2_normalize, vstack
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError, check_integer, shown
from pellucid.explain.views.parts import AnyPart, Fold, Heading, Note, TablePart, counted, numbers, signed
from pellucid.explain.views.report import Report
from pellucid.progress import check_cancelled
from pellucid.text.unicode import lowercase
from pellucid.text.words import split_words

_N_SHOWN_ROWS = 10  # rows in a view
_MAX_WORDS = 2_000  # of the group's texts, the commonest; each is encoded
_SMALL_GROUP_TEXTS = 10
_DEVIATION_EPS = 1e-9  # a standard deviation below this is rounding


Mask = npt.NDArray[np.bool_]


class Separation(NamedTuple):
    """Arrays over the dimensions: the parts of within and between, the means, Cohen's d and the AUC."""

    within: Floats
    between: Floats
    mean: Floats
    mean_others: Floats
    effect: Floats
    auc: Floats


def _separations(rows: Any, members: Sequence[Mask]) -> list[Separation]:
    """Return the parts of the separation of each group from all other rows."""
    separations = [Separation(*(np.zeros(rows.shape[1]) for _ in Separation._fields)) for _ in members]
    for where, part in column_chunks(rows):
        ranks = np.stack([average_ranks(column) for column in part.T], axis=1)
        for member, separation in zip(members, separations, strict=True):
            inside, outside = part[member], part[~member]
            n, m = len(inside), len(outside)
            mean, mean_others = inside.mean(axis=0), outside.mean(axis=0)
            separation.within[where] = (inside.sum(axis=0) ** 2 - (inside**2).sum(axis=0)) / (n * (n - 1))
            separation.between[where] = mean * mean_others
            separation.mean[where], separation.mean_others[where] = mean, mean_others
            pooled = np.sqrt((n * inside.var(axis=0) + m * outside.var(axis=0)) / (n + m - 2))
            np.divide(mean - mean_others, pooled, out=separation.effect[where], where=pooled > _DEVIATION_EPS)
            # the Mann-Whitney statistic over n m
            separation.auc[where] = (ranks[member].sum(axis=0) - n * (n + 1) / 2) / (n * m)
    return separations


class ContrastRow(NamedTuple):
    """A dimension's part in the separation."""

    name: str
    part: float  # what it gives to the separation; the parts add up to it
    mean: float  # mean coordinate in the group
    mean_others: float  # mean coordinate outside
    effect: float  # Cohen's d, the difference of the means over the pooled standard deviation; 0 where nothing varies
    auc: float  # how often a text of the group has the larger coordinate than one outside, ties counting half


class ContrastWord(NamedTuple):
    """A word of the group's texts that points in the direction of the group."""

    word: str  # in lower case
    pull: float  # cosine of the word's own embedding to the difference of the two mean embeddings
    texts: int  # texts of the group that hold it
    others: int  # texts outside that hold it


@dataclass(frozen=True, repr=False)
class Contrast(Report):
    """What sets a group of texts apart from others."""

    kind: ClassVar[str] = "contrast"
    table: ClassVar[str] = "rows"

    family: str
    group: str
    texts: int  # how many texts it has
    others: int  # how many texts there are outside
    blank: int  # how many texts of both sides have no known word
    within: float  # mean cosine of two different texts of the group
    between: float  # mean cosine of a text of the group and one outside
    # every dimension, by falling size of its part; the parts add up to within less between
    rows: tuple[ContrastRow, ...]
    words: tuple[ContrastWord, ...]  # words of the group's texts, by falling pull
    typical: tuple[Example, ...]  # texts of the group that are furthest in its direction, with the cosine to it
    untypical: tuple[Example, ...]  # texts of the group that are least in its direction

    @property
    def separation(self) -> float:
        """How much more alike two texts of the group are than one of them and one outside."""
        return self.within - self.between

    def _parts(self) -> Iterator[AnyPart]:
        sizes = f"{counted(self.texts, 'text')} against {self.others:,}, {self.family} model"
        yield Heading("What sets apart", self.group, sizes)
        yield from self._body()

    def _body(self) -> Iterator[AnyPart]:
        yield Note(
            f"Two of its texts score {signed(self.within, 4)} on average, one of them and one other "
            f"{signed(self.between, 4)}. The dimensions' parts add up to the difference, the separation."
        )
        shown, unshown = self.rows[:_N_SHOWN_ROWS], self.rows[_N_SHOWN_ROWS:]
        rows: list[tuple[Any, ...]] = []
        for r in shown:
            written = signed(r.mean), signed(r.mean_others), signed(r.effect, 2), f"{r.auc:.2f}"
            rows.append((signed(r.part, 4), r.part, *written, r.name))
        if unshown:
            total = signed(sum(r.part for r in unshown), 4)
            rows.append((total, None, "", "", "", "", f"sum of {counted(len(unshown), 'more dimension')}"))
        columns = [
            ("part", "number"),
            ("", "bar"),
            *numbers("mean", "elsewhere", "effect d", "AUC"),
            ("dimension", "name"),
        ]
        yield TablePart.of("", columns, rows, (signed(self.separation, 4), None, "", "", "", "", "separation"))
        if self.words:
            of_words = [
                (signed(w.pull, 2), w.pull, f"{w.texts:,}", f"{w.others:,}", w.word) for w in self.words[:_N_SHOWN_ROWS]
            ]
            columns = [("pull", "number"), ("", "bar"), *numbers("texts", "elsewhere"), ("word", "text")]
            yield TablePart.of("words that point its way", columns, of_words)
        for title, examples in (("most typical texts", self.typical), ("least typical texts", self.untypical)):
            if examples:
                yield TablePart.of(title, [*numbers(""), ""], ((signed(e.coordinate), e.text) for e in examples))


class GroupRow(NamedTuple):
    """A group as a row of a table; `reasons` are the dimensions with the largest parts."""

    group: str
    texts: int
    within: float
    between: float
    separation: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Contrasts(Report):
    """What sets each of several groups apart from all the others."""

    kind: ClassVar[str] = "contrasts"

    family: str
    groups: tuple[Contrast, ...]  # one contrast a group, in the order in which they were given
    guessed: tuple[str, ...]  # frequent words that are in no list, as the model has no vector of their own for them

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.groups)

    def __iter__(self) -> Iterator[Contrast]:
        """Yield the contrasts."""
        return iter(self.groups)

    def __getitem__(self, group: str) -> Contrast:
        """Return the contrast of a group by its name."""
        for contrast in self.groups:
            if contrast.group == str(group):
                return contrast
        raise InputError(
            f"no group is called {str(group)!r:.60}; there are {', '.join(c.group for c in self.groups):.200}"
        )

    def _parts(self) -> Iterator[AnyPart]:
        texts = sum(contrast.texts for contrast in self.groups)
        yield Heading("What sets apart", f"{len(self.groups)} groups", f"{counted(texts, 'text')}, {self.family} model")
        rows = [
            (r.group, f"{r.texts:,}", signed(r.within), signed(r.between), signed(r.separation), ", ".join(r.reasons))
            for r in self._records()
        ]
        columns = ["group", *numbers("texts", "within", "to others", "separation"), "mostly by"]
        yield TablePart.of("", columns, rows)
        if self.guessed:
            words = ", ".join(self.guessed[:_N_SHOWN_ROWS])
            yield Note(f"Not in the lists of words, as the model has no vector of their own for them: {words}.")
        for contrast in self.groups:
            yield Fold(contrast.group, tuple(contrast._body()), lead=signed(contrast.separation))

    def _records(self) -> Sequence[GroupRow]:
        return [
            GroupRow(c.group, c.texts, c.within, c.between, c.separation, tuple(row.name for row in c.rows[:3]))
            for c in self.groups
        ]


def contrast(
    model: Embedder,
    groups: Mapping[str, Iterable[str]] | Iterable[str],
    others: Iterable[str] | None = None,
    *,
    examples: int = 5,
) -> Contrasts:
    """Find for each group of texts which dimensions and words set it apart from all the others.

    Args:
        model: any family. The embeddings of all texts are held in memory.
        groups: name -> its texts; at least two groups, with two texts or more in each. Or the texts of one group.
        others: the texts outside of that one group; the two are then called "group" and "others".
        examples: how many typical and untypical texts to name of each group, and three times as many words.

    Raises:
        InputError: too few groups or texts, an item that is not a string, a side without a known word, or `examples` is
            below 0.
    """
    check_integer("examples", examples, 0)
    if others is not None and not isinstance(groups, Mapping):
        groups = {"group": groups, "others": others}
    elif others is not None:
        raise InputError("groups is a mapping and others is given; put the other texts into the mapping")
    if not isinstance(groups, Mapping) or len(groups) < 2:
        raise InputError(f"at least two groups are needed, as a dict from each name to its texts: {shown(groups)}")
    encoded = {name: list(unit_blocks(model, texts)) for name, texts in groups.items()}
    texts = {name: [text for block, _ in blocks for text in block] for name, blocks in encoded.items()}
    for name, group_texts in texts.items():
        if len(group_texts) < 2:
            raise InputError(f"group {shown(name)} has {counted(len(group_texts), 'text')}; at least two are needed")
    rows = vstack([rows for blocks in encoded.values() for _, rows in blocks])
    group_ids = np.repeat(np.arange(len(texts)), [len(group_texts) for group_texts in texts.values()])
    members = [group_ids == index for index in range(len(texts))]
    in_vocabulary = known_rows(rows)
    for name, member in zip(texts, members):
        if not in_vocabulary[member].any() or not in_vocabulary[~member].any():
            raise InputError(f"the model knows no word of {shown(name)}, or none of all other texts")
    words = _Pulls(model, [text for group_texts in texts.values() for text in group_texts])
    contrasts = []
    for (name, group_texts), member, apart in zip(texts.items(), members, _separations(rows, members), strict=True):
        direction = apart.mean - apart.mean_others
        typical, untypical = extreme_examples(
            group_texts, cosines_along(rows[np.flatnonzero(member)], direction), examples
        )
        group_contrast = Contrast(
            family=model.family,
            group=str(name),
            texts=len(group_texts),
            others=len(member) - len(group_texts),
            blank=int((~in_vocabulary).sum()),
            within=float(apart.within.sum()),
            between=float(apart.between.sum()),
            rows=tuple(_rows(model, apart)),
            words=tuple(words.along(member, direction, 3 * examples)),
            typical=typical,
            untypical=untypical,
        )
        contrasts.append(group_contrast)
    return Contrasts(model.family, tuple(contrasts), tuple(dict.fromkeys(words.guessed)))


class _Pulls:
    """The words of the texts and their embeddings, for all groups."""

    def __init__(self, model: Embedder, texts: Sequence[str]) -> None:
        self._model, self.guessed = model, list[str]()  # words that are left out
        self._texts = [{lowercase(word.text) for word in split_words(text)} for text in texts]

    def along(self, member: Mask, direction: Floats, max_words: int) -> list[ContrastWord]:
        """Return the words of a group's texts that point along `direction`; rare ones may be typing errors."""
        check_cancelled()
        here: Counter[str] = Counter()
        there: Counter[str] = Counter()
        for words, inside in zip(self._texts, member.tolist(), strict=True):
            (here if inside else there).update(words)
        size = int(member.sum())
        min_texts = max(size / 100, 2 if size >= _SMALL_GROUP_TEXTS else 1)
        frequent = [word for word, count in here.most_common(_MAX_WORDS) if count >= min_texts]
        guesses = guessed_words(self._model, frequent)
        chosen = [word for word, guessed in zip(frequent, guesses) if not guessed]
        self.guessed += [word for word, guessed in zip(frequent, guesses) if guessed]
        if not chosen or max_words < 1:
            return []
        pulls = cosines_along(l2_normalize(self._model.encode(chosen)), direction)
        best = [n for n in np.argsort(-pulls, kind="stable")[:max_words].tolist() if pulls[n] > 0]
        return [ContrastWord(chosen[n], float(pulls[n]), here[chosen[n]], there[chosen[n]]) for n in best]


def _rows(model: Embedder, apart: Separation) -> Iterator[ContrastRow]:
    parts = apart.within - apart.between
    names = model.dimensions.names
    columns = [column.tolist() for column in (parts, apart.mean, apart.mean_others, apart.effect, apart.auc)]
    for index in np.argsort(-np.abs(parts), kind="stable").tolist():
        yield ContrastRow(names[index], *(column[index] for column in columns))
