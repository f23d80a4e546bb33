"""Topics of many texts: clusters of their embeddings, each named by the words that set it apart, and their change.

KMeans (of scikit-learn) makes the clusters, on L2-normalised rows. A name is made of words, and of pairs of
neighbouring words, that texts of the topic hold more often than others: the log-odds ratio of their document counts
over its standard error, with a prior of the counts in all texts (Monroe, Colaresi and Quinn, 2008), times the cosine of
the word's own embedding to what sets the topic apart, the difference of the mean embeddings inside and outside.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from pellucid.analysis.coordinates import Example, Floats, Integers, check_model, known_rows, unit_blocks
from pellucid.analysis.groups import cosines_along, extreme_examples
from pellucid.core.arrays import l2_normalize, vstack
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError, check_integer, check_seed, require, shown
from pellucid.explain.views.figure import Canvas
from pellucid.explain.views.parts import AnyPart, Fold, Heading, Note, TablePart, counted, numbers, percent, signed
from pellucid.explain.views.report import Report
from pellucid.progress import check_cancelled
from pellucid.text.function_words import content_words, differ_by_ending, function_words
from pellucid.text.unicode import lowercase
from pellucid.text.words import split_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEXTS_PER_TOPIC_SQUARED = 25  # without a number of topics: the square root of texts / 25
_MIN_TOPICS, _MAX_TOPICS = 4, 30  # of those chosen so
_BATCH_ROWS = 20_000  # above this KMeans takes batches
_REDUCED_COLUMNS = 64  # of sparse rows, before they are clustered
_NAME_WORDS, _MAX_WORDS = 3, 10  # in a name, and of a topic in all
_TESTED_WORDS = 60  # of a topic, those with the largest log-odds; each is encoded
_MIN_WORD_TEXTS = 3  # that hold a word, and
_MIN_WORD_SHARE = 0.01  # of the topic's texts
_PRIOR_TEXTS = 500  # that the prior counts for
_COLUMNS = (
    "Cohesion is the mean cosine of a topic's texts to their centre. For each word: the texts of the topic and those "
    "elsewhere that hold it; how surely it is more frequent in the topic (log-odds / s.e.); and its pull, the cosine "
    "of its embedding to the direction that sets the topic apart."
)
_SHOWN_WORDS, _SHOWN_PERIODS = 5, 5  # in a view; JSON and plots have all
_MAX_YEARS, _MAX_MONTHS = 3, 3  # above 3 years a period is a year, above 3 months a month, else a day


class TopicWord(NamedTuple):
    """A word of a topic, or two neighbouring words."""

    word: str  # in lower case
    texts: int  # texts of the topic that hold it
    others: int  # texts of all other topics that hold it
    log_odds: float  # log-odds ratio over its standard error
    pull: float  # cosine of its embedding to the difference of the mean embeddings inside and outside


class Period(NamedTuple):
    """The texts of a topic in a year, a month or a day."""

    period: str  # such as 2024, 2024-05 or 2024-05-31
    texts: int
    share: float  # of all texts of the period that have a topic


class Topic(NamedTuple):
    """A cluster of texts."""

    name: str
    texts: int
    share: float  # of all texts that have a topic
    cohesion: float  # mean cosine of its texts to their mean
    change: float  # its share in the later half of the dated texts less that in the earlier half; 0 without dates
    change_low: float  # ends of the 95 % interval of that
    change_high: float
    words: tuple[TopicWord, ...]
    typical: tuple[Example, ...]  # the texts nearest to its mean, with the cosine to it
    periods: tuple[Period, ...]  # in order; none without dates


@dataclass(frozen=True, repr=False)
class Topics(Report):
    """What many texts are about."""

    kind: ClassVar[str] = "topics"
    table: ClassVar[str] = "topics"

    family: str
    texts: int  # how many texts were read
    blank: int  # how many of them have no known word, and so no topic
    topics: tuple[Topic, ...]  # by falling size
    labels: tuple[int, ...]  # the index of the topic of each text, -1 for none

    def __len__(self) -> int:
        """Return the number of topics."""
        return len(self.topics)

    def __iter__(self) -> Iterator[Topic]:
        """Yield the topics, largest first."""
        return iter(self.topics)

    def plot(self, *, dark: bool = False) -> Figure:
        """Return a matplotlib Figure: the share of each topic in each period, or the sizes of the topics."""
        periods = self.topics[0].periods
        names = [topic.name for topic in self.topics]
        if periods:
            values = np.array([[period.share for period in topic.periods] for topic in self.topics])
            size = 4.2 + 0.42 * len(periods), 1.9 + 0.28 * len(names)
            canvas = Canvas(size, "Topics over time", f"{counted(self.texts, 'text')}", dark=dark)
            canvas.heat_map(
                canvas.panel(), values, names, [p.period for p in periods], "share of the texts of a period"
            )
            return canvas.figure
        canvas = Canvas((7.4, 1.5 + 0.27 * len(names)), "Topics", f"{counted(self.texts, 'text')}", dark=dark)
        axes = canvas.panel(across="texts")
        sizes = [topic.texts for topic in self.topics]
        canvas.bars(axes, sizes, [f"{size:,}" for size in sizes])
        canvas.names(axes, names)
        return canvas.figure

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Topics", f"{len(self.topics)} topics", f"{counted(self.texts, 'text')}, {self.family} model")
        if self.blank:
            yield Note(f"{counted(self.blank, 'text')} without a word that the model knows: no topic.")
        dated = bool(self.topics[0].periods)
        rows = []
        for topic in self.topics:
            moved = (f"{_points(topic.change)} ({_trend(topic)})",) if dated else ()
            rows.append(
                (f"{topic.texts:,}", topic.share, percent(topic.share), signed(topic.cohesion, 2), *moved, topic.name)
            )
        columns = [("texts", "number"), ("", "bar"), *numbers("share", "cohesion")]
        yield TablePart.of("", [*columns, *(numbers("later - earlier") if dated else ()), ("topic", "name")], rows)
        if dated:
            yield _over_time(self.topics)
        yield Note(_COLUMNS)
        for topic in self.topics:
            yield Fold(topic.name, tuple(_body(topic)), lead=f"{topic.texts:,}")


def _over_time(topics: Sequence[Topic]) -> TablePart:
    """Return the share of each topic in some spans of time, each of about equally many periods."""
    names, counts = [period.period for period in topics[0].periods], [[p.texts for p in t.periods] for t in topics]
    n_spans = min(len(names), _SHOWN_PERIODS)
    spans = list(pairwise(len(names) * cut // n_spans for cut in range(n_spans + 1)))
    sums = np.array([[sum(of_topic[start:end]) for start, end in spans] for of_topic in counts])
    titles = [names[start] + (f" to {names[end - 1]}" if end - start > 1 else "") for start, end in spans]
    shares = (sums / sums.sum(axis=0)).tolist()
    rows = ((*map(percent, line), topic.name) for line, topic in zip(shares, topics, strict=True))
    return TablePart.of("Share over time", [*numbers(*titles), ("topic", "name")], rows)


def _body(topic: Topic) -> Iterator[AnyPart]:
    rows = [
        (w.word, f"{w.texts:,}", f"{w.others:,}", signed(w.log_odds, 1), signed(w.pull, 2))
        for w in topic.words[:_SHOWN_WORDS]
    ]
    yield TablePart.of("words", [("word", "text"), *numbers("texts", "elsewhere", "log-odds / s.e.", "pull")], rows)
    yield TablePart.of(
        "typical texts", [*numbers(""), ("", "name")], ((signed(e.coordinate), e.text) for e in topic.typical)
    )


def _points(change: float) -> str:
    return f"{signed(100 * change, 1)} points"


def _trend(topic: Topic) -> str:
    if topic.change_low > 0:
        return "grows"
    return "shrinks" if topic.change_high < 0 else "undecided"


def topics(
    model: Embedder,
    texts: Iterable[str],
    *,
    n: int | None = None,
    dates: Iterable[Any] | None = None,
    examples: int = 3,
    seed: int = 0,
) -> Topics:
    """Find what many texts are about: clusters named by the words that set them apart.

    Args:
        model: any family. The embeddings of all texts are held in memory.
        texts: 10 or more.
        n: how many topics; None for the square root of a 25th of the texts, 4 to 30. That is a convention, not a
            finding: look at several.
        dates: a date for each text, as ISO 8601 string, `datetime.date`, or None where it has none; then topics have
            periods and a change, the share in the later half less that in the earlier half, with a 95 % interval.
        examples: how many typical texts to name of each topic.
        seed: of KMeans.

    Raises:
        InputError: too few texts or dates, an item that is not a string, a date that is none, or a number out of range.
        MissingExtraError: scikit-learn is not installed.
    """
    require("scikit-learn", "sklearn")
    check_model(model)
    if dates is not None and not isinstance(dates, Iterable):
        raise InputError(f"dates are {shown(dates)}; give a date or None for each text")
    days = None if dates is None else [_day(index, value) for index, value in enumerate(dates)]
    blocks = list(unit_blocks(model, texts))
    rows = vstack([rows for _, rows in blocks]) if blocks else None
    all_texts = [text for block, _ in blocks for text in block]
    return topics_of_rows(model, all_texts, rows, n=n, days=days, examples=examples, seed=seed)


def topics_of_rows(
    model: Embedder,
    all_texts: list[str],
    rows: Any,
    *,
    n: int | None = None,
    days: list[date | None] | None = None,
    examples: int = 3,
    seed: int = 0,
) -> Topics:
    """Return the topics of texts whose L2-normalised embeddings are `rows`; the model encodes words for their names."""
    check_integer("examples", examples, 0)
    check_seed(seed)
    if len(all_texts) < 10:
        raise InputError(f"topics need at least 10 texts, got {len(all_texts)}")
    if days is not None and len(days) != len(all_texts):
        raise InputError(f"there are {len(days):,} dates for {len(all_texts):,} texts; give one for each, or None")
    in_vocabulary = known_rows(rows)
    known_texts = int(in_vocabulary.sum())
    if n is None:
        n = min(max(round(math.sqrt(known_texts / _TEXTS_PER_TOPIC_SQUARED)), _MIN_TOPICS), _MAX_TOPICS)
    check_integer("n", n, 2)
    if n > known_texts // 2:
        raise InputError(f"n is {n}; {known_texts:,} texts with a known word make at most {known_texts // 2} topics")
    labels = np.full(len(all_texts), -1)
    labels[in_vocabulary] = _cluster(rows[np.flatnonzero(in_vocabulary)], n, seed)
    return Topics(
        model.family,
        len(all_texts),
        len(all_texts) - known_texts,
        tuple(_describe(model, all_texts, rows, labels, days, examples)),
        tuple(labels.tolist()),
    )


_MISSING = ("", "na", "nan", "nat", "none", "null")  # a cell without a date, as programs write it


def _day(index: int, value: Any) -> date | None:
    """Return the day of a date; None for a missing date."""
    try:
        text = str(value).strip()
    except ValueError:  # it holds an integer of more digits than Python writes
        text = shown(value)
    if value is None or value != value or text.lower() in _MISSING:  # NaN, of pandas
        return None
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return datetime.fromisoformat(text).date()
    except ValueError as error:
        raise InputError(f"date {index} is {shown(value)}; give ISO 8601, such as 2024-05-31, or None") from error


def _cluster(rows: Any, n: int, seed: int) -> Integers:
    """Return the cluster of each row, the largest cluster first."""
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.decomposition import TruncatedSVD
    from sklearn.exceptions import ConvergenceWarning

    if hasattr(rows, "tocsr") and min(rows.shape) > _REDUCED_COLUMNS:
        rows = TruncatedSVD(_REDUCED_COLUMNS, random_state=seed).fit_transform(rows)
    if rows.shape[0] > _BATCH_ROWS:
        kmeans = MiniBatchKMeans(n, batch_size=4096, n_init=3, random_state=seed)
    else:
        kmeans = KMeans(n, n_init=3, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # equal texts: there are fewer topics than were asked for
        assigned = kmeans.fit_predict(rows)
    sizes = np.bincount(assigned, minlength=n)
    order = np.argsort(-sizes, kind="stable")
    ranks = np.empty(n, np.int64)
    ranks[order] = np.arange(n)
    ranked: Integers = ranks[assigned]
    return ranked


def _describe(
    model: Embedder, texts: list[str], rows: Any, labels: Integers, days: list[date | None] | None, examples: int
) -> Iterator[Topic]:
    """Yield the topics; one that no text fell into is left out."""
    n = int(labels.max()) + 1
    sizes = np.bincount(labels[labels >= 0], minlength=n)
    sums = np.stack([np.asarray(rows[np.flatnonzero(labels == topic)].sum(axis=0)).ravel() for topic in range(n)])
    names = _Names(model, texts, labels, n)
    periods = None if days is None else _Periods(days, labels, n)
    for topic in range(n):
        check_cancelled()
        members = np.flatnonzero(labels == topic)
        other_sum = sums.sum(axis=0) - sums[topic]
        mean = sums[topic] / sizes[topic]
        direction = mean - other_sum / max(int(sizes.sum() - sizes[topic]), 1)
        cosines = cosines_along(rows[members], mean)
        words = names.words(topic, direction)
        change = (0.0, 0.0, 0.0) if periods is None else periods.change(topic)
        yield Topic(
            ", ".join(word.word for word in words[:_NAME_WORDS]) or f"topic {topic + 1}",
            int(sizes[topic]),
            float(sizes[topic] / sizes.sum()),
            float(cosines.mean()),
            *change,
            tuple(words),
            extreme_examples([texts[index] for index in members.tolist()], cosines, examples)[0],
            () if periods is None else periods.of_topic(topic),
        )


class _Names:
    """Document counts of words, and of pairs of neighbouring words, by topic."""

    def __init__(self, model: Embedder, texts: list[str], labels: Integers, n: int) -> None:
        self._model = model
        self._counts: list[Counter[str]] = [Counter() for _ in range(n)]
        self._sizes = np.bincount(labels[labels >= 0], minlength=n)
        for text, label in zip(texts, labels.tolist(), strict=True):
            check_cancelled()
            if label >= 0:
                self._counts[label].update(document_terms(text))
        self._all: Counter[str] = Counter()
        for counts in self._counts:
            self._all.update(counts)

    def words(self, topic: int, direction: Floats) -> list[TopicWord]:
        """Return the words that set a topic apart, by falling product of log-odds and pull."""
        min_texts = max(_MIN_WORD_TEXTS, _MIN_WORD_SHARE * self._sizes[topic])
        candidates = [(word, count) for word, count in self._counts[topic].items() if count >= min_texts]
        if not candidates:
            candidates = self._counts[topic].most_common(_TESTED_WORDS)
        scored = sorted(
            ((self._log_odds(topic, word), word) for word, _ in candidates), key=lambda pair: (-pair[0], pair[1])
        )
        tested = [(z, word) for z, word in scored[:_TESTED_WORDS] if z > 0]
        if not tested:
            return []
        rows = l2_normalize(self._model.encode([word for _, word in tested]))
        pulls = cosines_along(rows, direction)
        items = [
            TopicWord(word, here, self._all[word] - here, z, float(pull))
            for (z, word), pull in zip(tested, pulls.tolist(), strict=True)
            for here in [self._counts[topic][word]]
        ]
        items.sort(key=lambda item: -item.log_odds * max(item.pull, 0))
        return _distinct(items)

    def _log_odds(self, topic: int, word: str) -> float:
        """Return the log-odds ratio of a word in a topic against the other topics, over its standard error."""
        here, size = self._counts[topic][word], int(self._sizes[topic])
        there, other_texts = self._all[word] - here, int(self._sizes.sum()) - size
        if self._all[word] == size + other_texts:  # a word of all texts sets none apart
            return 0.0
        prior = _PRIOR_TEXTS * self._all[word] / (size + other_texts)
        inside = (here + prior) / (size + _PRIOR_TEXTS - here - prior)
        outside = (there + prior) / (other_texts + _PRIOR_TEXTS - there - prior)
        return math.log(inside / outside) / math.sqrt(1 / (here + prior) + 1 / (there + prior))


def document_terms(text: str) -> set[str]:
    """Return the distinct content words of a text and its pairs of neighbouring content words, in lower case."""
    words = [lowercase(word.text) for word in split_words(text)]
    content = content_words(text) - function_words(words).words
    terms = {word for word in words if word in content}
    return terms | {f"{a} {b}" for a, b in pairwise(words) if a in content and b in content and a != b}


def _distinct(items: Sequence[TopicWord]) -> list[TopicWord]:
    """Return the first items that share no word with an earlier one, endings aside."""
    selected: list[TopicWord] = []
    for item in items:
        new = item.word.split()
        if not any(a == b or differ_by_ending(a, b) for earlier in selected for a in earlier.word.split() for b in new):
            selected.append(item)
        if len(selected) == _MAX_WORDS:
            break
    return selected


class _Periods:
    """The dated texts of each topic, by period."""

    def __init__(self, days: list[date | None], labels: Integers, n: int) -> None:
        dated = sorted((day, label) for day, label in zip(days, labels.tolist(), strict=True) if day and label >= 0)
        if len(dated) < 2:
            raise InputError(f"{counted(len(dated), 'text')} with a topic have a date; give dates for two or more")
        first, last = dated[0][0], dated[-1][0]
        months = 12 * (last.year - first.year) + last.month - first.month
        form = "%Y" if months > 12 * _MAX_YEARS else "%Y-%m" if months > _MAX_MONTHS else "%Y-%m-%d"
        self._names = sorted({day.strftime(form) for day, _ in dated})
        index_of = {name: index for index, name in enumerate(self._names)}
        self._counts = np.zeros((n, len(self._names)), np.int64)
        np.add.at(self._counts, ([label for _, label in dated], [index_of[day.strftime(form)] for day, _ in dated]), 1)
        middle = dated[len(dated) // 2][0]
        self._halves = np.zeros((2, n), np.int64)
        np.add.at(self._halves, ([int(day >= middle) for day, _ in dated], [label for _, label in dated]), 1)

    def of_topic(self, topic: int) -> tuple[Period, ...]:
        """Return the periods of a topic."""
        totals = self._counts.sum(axis=0).tolist()
        counts = self._counts[topic].tolist()
        return tuple(Period(name, count, count / total) for name, count, total in zip(self._names, counts, totals))

    def change(self, topic: int) -> tuple[float, float, float]:
        """Return the share in the later half less that in the earlier, with Newcombe's interval (method 10, 1998)."""
        from scipy.stats import binomtest

        counts, totals = self._halves[:, topic].tolist(), self._halves.sum(axis=1).tolist()
        if not all(totals):
            return 0.0, -1.0, 1.0
        (p1, p2), tests = np.divide(counts, totals).tolist(), map(binomtest, counts, totals)
        (low1, high1), (low2, high2) = (test.proportion_ci(0.95, "wilson") for test in tests)
        low, high = math.hypot(p2 - low2, high1 - p1), math.hypot(high2 - p2, p1 - low1)
        return p2 - p1, p2 - p1 - low, p2 - p1 + high
