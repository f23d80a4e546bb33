"""What sets a group of texts apart from others: a cluster, a class, a complaint's twenty examples.

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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.analysis.coordinates import Example, Floats, column_chunks, known_rows, unit_blocks
from pellucid.base import Embedder, unit_rows
from pellucid.embeddings import stacked
from pellucid.errors import InputError
from pellucid.text import split_words
from pellucid.views.figure import Canvas
from pellucid.views.parts import AnyPart, Column, Fold, Heading, Note, TablePart, counted, numbers, signed
from pellucid.views.report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_SHOWN = 10  # rows in a view
_MOST_BARS = 15  # of a picture
_EACH, _MOST_LINES = 3, 40  # dimensions of a group, and of all, in a picture
_MOST_WORDS = 2_000  # of the group's texts, the commonest; each is encoded
_SMALL_GROUP = 10  # texts
_NO_SPREAD = 1e-9  # a standard deviation below this is rounding


Mask = npt.NDArray[np.bool_]


class Encoded(NamedTuple):
    """Texts with their unit rows, dense float32 or CSR; unknown texts are zero rows."""

    texts: list[str]
    rows: Any


class Separation(NamedTuple):
    """Arrays over the dimensions: the parts of within and between, the means, Cohen's d and the AUC."""

    within: Floats
    between: Floats
    mean: Floats
    mean_others: Floats
    effect: Floats
    auc: Floats


def encoded(model: Embedder, texts: Iterable[str], least: int, what: str) -> Encoded:
    """Encode the texts of one side.

    Raises:
        InputError: fewer than `least` texts, or an item is no string.
    """
    blocks, every = [], []
    for block, rows in unit_blocks(model, texts):
        blocks.append(rows)
        every += block
    if len(every) < least:
        raise InputError(f"{what} has {len(every)} texts; at least {least} are needed")
    return Encoded(every, stacked(blocks))


def separate(rows: Any, members: Sequence[Mask]) -> list[Separation]:
    """Take the separation of each group from all other rows apart; memory is bounded by the rows themselves."""
    from scipy.stats import rankdata

    width = rows.shape[1]
    found = [Separation(*(np.zeros(width) for _ in Separation._fields)) for _ in members]
    for where, part in column_chunks(rows):
        ranks = rankdata(part, axis=0)
        for member, separation in zip(members, found, strict=True):
            values = _columns_apart(part[member], part[~member], ranks[member])
            for whole, value in zip(separation, values, strict=True):
                whole[where] = value
    return found


def _columns_apart(mine: Floats, theirs: Floats, ranks: Floats) -> Separation:
    """Return the separation in some columns; `ranks` are those of `mine` among all rows."""
    n, m = len(mine), len(theirs)
    total, mean, mean_others = mine.sum(axis=0), mine.mean(axis=0), theirs.mean(axis=0)
    within = (total**2 - (mine**2).sum(axis=0)) / (n * (n - 1))
    pooled = np.sqrt((n * mine.var(axis=0) + m * theirs.var(axis=0)) / (n + m - 2))
    gap = mean - mean_others
    effect = np.divide(gap, pooled, out=np.zeros_like(gap), where=pooled > _NO_SPREAD)
    auc = (ranks.sum(axis=0) - n * (n + 1) / 2) / (n * m)  # the Mann-Whitney statistic over n m
    return Separation(within, mean * mean_others, mean, mean_others, effect, auc)


def along(rows: Any, direction: Floats) -> Floats:
    """Return the cosine of each unit row to `direction`; 0 where that is nothing."""
    length = float(np.linalg.norm(direction))
    if length <= _NO_SPREAD:
        return np.zeros(rows.shape[0])
    cosines: Floats = np.asarray(rows @ (direction / length), np.float64).ravel()
    return cosines


class _Pulls:
    """Which words the texts hold, and what the model makes of each alone; read once for all groups."""

    def __init__(self, model: Embedder, texts: Sequence[str]) -> None:
        """Split the texts."""
        self._model, self._texts = model, [{word.text.lower() for word in split_words(text)} for text in texts]
        self._rows: dict[str, Any] = {}

    def along(self, member: Mask, direction: Floats, most: int) -> list[tuple[str, float, int, int]]:
        """Return the words of a group's texts that point along `direction`, and the texts of each side that hold them.

        Only words of at least 1 % of the texts, and of two unless the group is small, so that no typing error counts.
        """
        here: Counter[str] = Counter()
        there: Counter[str] = Counter()
        for words, inside in zip(self._texts, member.tolist(), strict=True):
            (here if inside else there).update(words)
        size = int(member.sum())
        least = max(size / 100, 2 if size >= _SMALL_GROUP else 1)
        chosen = [word for word, count in here.most_common(_MOST_WORDS) if count >= least]
        if not chosen or most < 1:
            return []
        pulls = along(self._encoded(chosen), direction)
        best = [n for n in np.argsort(-pulls, kind="stable")[:most].tolist() if pulls[n] > 0]
        return [(chosen[n], float(pulls[n]), here[chosen[n]], there[chosen[n]]) for n in best]

    def _encoded(self, words: list[str]) -> Any:
        """Return the unit rows of `words`, encoding those that no group had before."""
        new = [word for word in words if word not in self._rows]
        if new:
            rows = unit_rows(self._model.encode(new))
            self._rows.update((word, rows[[number]]) for number, word in enumerate(new))
        return stacked([self._rows[word] for word in words])


class ContrastRow(NamedTuple):
    """A dimension's part in what sets a group apart.

    Attributes:
        name: of the dimension.
        part: what it gives to the separation; the parts add up to it.
        mean: mean coordinate in the group.
        mean_others: mean coordinate outside.
        effect: Cohen's d, the difference of the means over the pooled standard deviation; 0 where nothing varies.
        auc: how often a text of the group has the larger coordinate than one outside, ties counting half.
    """

    name: str
    part: float
    mean: float
    mean_others: float
    effect: float
    auc: float


class ContrastWord(NamedTuple):
    """A word of the group's texts that points in the direction of the group.

    Attributes:
        word: in lower case.
        pull: cosine of the word's own embedding to the difference of the two mean embeddings.
        texts: texts of the group that hold it.
        others: texts outside that hold it.
    """

    word: str
    pull: float
    texts: int
    others: int


@dataclass(frozen=True, repr=False)
class Contrast(Report):
    """What sets a group of texts apart from others.

    Attributes:
        family: the family of the model.
        group: its name.
        texts: how many texts it has.
        others: how many texts there are outside.
        blank: how many texts of both sides have no known word.
        within: mean cosine of two different texts of the group.
        between: mean cosine of a text of the group and one outside.
        rows: every dimension, by falling size of its part; the parts add up to within less between.
        words: words of the group's texts, by falling pull.
        typical: texts of the group that are furthest in its direction, with the cosine to it.
        untypical: texts of the group that are least in its direction.
    """

    kind: ClassVar[str] = "contrast"
    table: ClassVar[str] = "rows"

    family: str
    group: str
    texts: int
    others: int
    blank: int
    within: float
    between: float
    rows: tuple[ContrastRow, ...]
    words: tuple[ContrastWord, ...]
    typical: tuple[Example, ...]
    untypical: tuple[Example, ...]

    @property
    def separation(self) -> float:
        """How much more alike two texts of the group are than one of them and one outside."""
        return self.within - self.between

    def plot(self, *, dark: bool = False) -> Figure:
        """Return a matplotlib Figure: the largest parts of the separation as bars."""
        shown = self.rows[:_MOST_BARS]
        values = [row.part for row in shown]
        below = f"these: {signed(sum(values), 4)} of the separation, {signed(self.separation, 4)}"
        canvas = Canvas((7.4, 1.5 + 0.27 * len(values)), f"What sets apart {self.group}", below, dark=dark)
        axes = canvas.panel(across="part of the separation")
        canvas.bars(axes, values, [signed(value, 4) for value in values])
        canvas.names(axes, [row.name for row in shown])
        return canvas.figure

    def _parts(self) -> Iterator[AnyPart]:
        sizes = f"{counted(self.texts, 'text')} against {self.others:,}, {self.family} model"
        yield Heading("What sets apart", self.group, sizes)
        yield from self._body()

    def _body(self) -> Iterator[AnyPart]:
        """Yield everything below the heading."""
        yield Note(
            f"Two of its texts score {signed(self.within, 4)} on average, one of them and one other "
            f"{signed(self.between, 4)}. The dimensions' parts add up to the difference, the separation."
        )
        yield self._table()
        if self.words:
            yield self._word_table()
        for title, examples in (("most typical texts", self.typical), ("least typical texts", self.untypical)):
            if examples:
                yield TablePart.of(title, [*numbers(""), ""], ((signed(e.coordinate), e.text) for e in examples))

    def _table(self) -> TablePart:
        """Return the largest parts, the sum of the others, and the separation."""
        shown, rest = self.rows[:_SHOWN], self.rows[_SHOWN:]
        rows: list[tuple[Any, ...]] = []
        for r in shown:
            written = signed(r.mean), signed(r.mean_others), signed(r.effect, 2), f"{r.auc:.2f}"
            rows.append((signed(r.part, 4), r.part, *written, r.name))
        if rest:
            total = signed(sum(r.part for r in rest), 4)
            rows.append((total, None, "", "", "", "", f"sum of {counted(len(rest), 'more dimension')}"))
        columns = [("part", "number"), ("", "bar"), *numbers("mean", "elsewhere", "effect d", "AUC"), "dimension"]
        return TablePart.of("", columns, rows, (signed(self.separation, 4), None, "", "", "", "", "separation"))

    def _word_table(self) -> TablePart:
        shown = self.words[:_SHOWN]
        rows = tuple((signed(w.pull, 2), w.pull, f"{w.texts:,}", f"{w.others:,}", w.word) for w in shown)
        columns = [("pull", "number"), ("", "bar"), *numbers("texts", "elsewhere"), ("word", "text")]
        return TablePart("words that point its way", tuple(Column(*column) for column in columns), rows)


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
    """What sets each of several groups apart from all the others.

    Attributes:
        family: the family of the model.
        groups: one contrast a group, in the order in which the labels first occur.
    """

    kind: ClassVar[str] = "contrasts"

    family: str
    groups: tuple[Contrast, ...]

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.groups)

    def __iter__(self) -> Iterator[Contrast]:
        """Yield the contrasts."""
        return iter(self.groups)

    def __getitem__(self, group: str) -> Contrast:
        """Return the contrast of a group by its name.

        Raises:
            InputError: there is no such group.
        """
        for contrast in self.groups:
            if contrast.group == str(group):
                return contrast
        raise InputError(
            f"no group is called {str(group)!r:.60}; there are {', '.join(c.group for c in self.groups):.200}"
        )

    def plot(self, *, dark: bool = False) -> Figure:
        """Return a matplotlib Figure: the largest dimensions of each group against all groups, coloured by effect."""
        names = list(dict.fromkeys(row.name for group in self.groups for row in group.rows[:_EACH]))[:_MOST_LINES]
        effects = [{row.name: row.effect for row in group.rows} for group in self.groups]
        values = np.array([[effect[name] for effect in effects] for name in names])
        size = 4.2 + 0.42 * len(self.groups), 1.9 + 0.24 * len(names)
        canvas = Canvas(size, "What sets the groups apart", dark=dark)
        groups = [group.group for group in self.groups]
        canvas.heat_map(canvas.panel(), values, names, groups, "effect, Cohen's d against all others")
        return canvas.figure

    def _parts(self) -> Iterator[AnyPart]:
        texts = sum(contrast.texts for contrast in self.groups)
        yield Heading("What sets apart", f"{len(self.groups)} groups", f"{counted(texts, 'text')}, {self.family} model")
        rows = [
            (r.group, f"{r.texts:,}", signed(r.within), signed(r.between), signed(r.separation), ", ".join(r.reasons))
            for r in self._records()
        ]
        columns = ["group", *numbers("texts", "within", "to others", "separation"), "mostly by"]
        yield TablePart.of("", columns, rows)
        for contrast in self.groups:
            yield Fold(contrast.group, tuple(contrast._body()), lead=signed(contrast.separation))

    def _records(self) -> Sequence[GroupRow]:
        return [
            GroupRow(c.group, c.texts, c.within, c.between, c.separation, tuple(row.name for row in c.rows[:3]))
            for c in self.groups
        ]


def contrast(
    model: Embedder,
    group: Iterable[str],
    others: Iterable[str],
    *,
    name: str = "the group",
    examples: int = 5,
) -> Contrast:
    """Say which dimensions set a group of texts apart from others.

    Args:
        model: any family. The embeddings of all texts are held in memory.
        group: at least two texts.
        others: at least one text.
        name: what to call the group.
        examples: how many typical and untypical texts to name, and three times as many words.

    Raises:
        InputError: too few texts, an item that is no string, the model knows nothing of a whole side, or `examples` is
            below 0.
    """
    _check_examples(examples)
    inside, outside = encoded(model, group, 2, "the group"), encoded(model, others, 1, "the other side")
    every = Encoded(inside.texts + outside.texts, stacked([inside.rows, outside.rows]))
    member = np.arange(len(every.texts)) < len(inside.texts)
    return _contrasts(model, every, {name: member}, examples)[0]


def contrast_all(model: Embedder, texts: Iterable[str], labels: Iterable[Any], *, examples: int = 5) -> Contrasts:
    """Say for each group of labelled texts what sets it apart from all the others.

    Args:
        model: any family. The embeddings of all texts are held in memory.
        texts: the texts.
        labels: one for each text: a class, or the number of a cluster; groups are named by `str` of it.
        examples: how many typical and untypical texts to name of each group, and three times as many words.

    Raises:
        InputError: as many labels as texts are needed, at least two groups, and two texts in each.
    """
    _check_examples(examples)
    every, names = encoded(model, texts, 4, "the corpus"), [str(label) for label in labels]
    if len(names) != len(every.texts):
        raise InputError(f"{len(every.texts):,} texts need as many labels, got {len(names):,}")
    counts, groups = Counter(names), np.array(names)
    alone = [group for group, count in counts.items() if count < 2]
    if len(counts) < 2 or alone:
        found = f"group {alone[0]!r:.60} has one text" if alone else f"there is one group, {names[0]!r:.60}"
        raise InputError(f"at least two groups of two texts or more are needed; {found}")
    return Contrasts(model.family, _contrasts(model, every, {g: groups == g for g in counts}, examples))


def _contrasts(model: Embedder, every: Encoded, members: dict[str, Mask], examples: int) -> tuple[Contrast, ...]:
    """Return the contrast of each group to all texts outside it."""
    known = known_rows(every.rows)
    for name, member in members.items():
        if not known[member].any() or not known[~member].any():
            raise InputError(f"the model knows nothing of any text of {name!r:.60}, or of any other text")
    words = _Pulls(model, every.texts)
    separations = separate(every.rows, list(members.values()))
    made = []
    for (name, member), apart in zip(members.items(), separations, strict=True):
        direction = apart.mean - apart.mean_others
        inside = np.flatnonzero(member)
        texts = [every.texts[number] for number in inside.tolist()]
        typical, untypical = _examples(texts, along(every.rows[inside], direction), examples)
        one = Contrast(
            family=model.family,
            group=name,
            texts=len(inside),
            others=len(member) - len(inside),
            blank=int((~known).sum()),
            within=float(apart.within.sum()),
            between=float(apart.between.sum()),
            rows=tuple(_rows(model, apart)),
            words=tuple(ContrastWord(*word) for word in words.along(member, direction, 3 * examples)),
            typical=typical,
            untypical=untypical,
        )
        made.append(one)
    return tuple(made)


def _rows(model: Embedder, apart: Separation) -> Iterator[ContrastRow]:
    parts = apart.within - apart.between
    names = model.dimensions.names
    columns = [column.tolist() for column in (parts, apart.mean, apart.mean_others, apart.effect, apart.auc)]
    for number in np.argsort(-np.abs(parts), kind="stable").tolist():
        yield ContrastRow(names[number], *(column[number] for column in columns))


def _examples(texts: list[str], cosines: Floats, most: int) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Return the distinct texts with the largest cosines, and those with the smallest that are not among them."""
    order = np.argsort(-cosines, kind="stable").tolist()
    ranked = list(dict.fromkeys(texts[number] for number in order))
    value = {texts[number]: float(cosines[number]) for number in order}
    best = ranked[:most]
    last = ranked[len(best) :][::-1][:most]
    return tuple(Example(text, value[text]) for text in best), tuple(Example(text, value[text]) for text in last)


def _check_examples(examples: int) -> None:
    if examples < 0:
        raise InputError(f"examples is {examples}; it must be at least 0")
