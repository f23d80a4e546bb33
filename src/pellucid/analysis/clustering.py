"""Topics of many texts: clusters of their embeddings, each named by the words that set it apart.

KMeans (of scikit-learn) makes the clusters, on L2-normalised rows. A name is made of words, and of pairs of
neighbouring words, that texts of the topic hold more often than others: the log-odds ratio of their document counts
over its standard error, with a prior of the counts in all texts (Monroe, Colaresi and Quinn, 2008), times the cosine of
the word's own embedding to what sets the topic apart, the difference of the mean embeddings inside and outside. A word
that the model only guesses is in no name, and two forms of one word are not in the same name.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pellucid.analysis.coordinates import (
    Example,
    Floats,
    Integers,
    check_model,
    cosines_along,
    guessed_words,
    guesses_note,
    known_rows,
    unit_blocks,
)
from pellucid.core.arrays import l2_normalize, vstack
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError, check_integer, check_seed, require
from pellucid.explain.views.parts import AnyPart, Fold, Heading, Note, TablePart, counted, numbers, percent, signed
from pellucid.explain.views.report import Report
from pellucid.text.function_words import content_words, differ_by_ending, function_words
from pellucid.text.unicode import lowercase
from pellucid.text.words import split_words

_TEXTS_PER_TOPIC_SQUARED = 25  # without a number of topics: the square root of texts / 25
_MIN_TOPICS, _MAX_TOPICS = 4, 30  # of those chosen so
_BATCH_ROWS = 20_000  # above this KMeans takes batches
_REDUCED_COLUMNS = 64  # of sparse rows, before they are clustered
_NAME_WORDS, _MAX_WORDS = 3, 10  # in a name, and of a topic in all
_TESTED_WORDS = 60  # of a topic, those with the largest log-odds; each is encoded
_MIN_WORD_TEXTS = 3  # that hold a word, and
_MIN_WORD_SHARE = 0.01  # of the topic's texts
_PRIOR_TEXTS = 500  # that the prior counts for
_SHOWN_WORDS = 5  # in a view; JSON has all
_ENDING = "(?:s|es|ed|ing|er|ers|ly|ment|ments)"
_COLUMNS = (
    "Cohesion is the mean cosine of a topic's texts to their centre. For each word: the texts of the topic and those "
    "elsewhere that hold it; how surely it is more frequent in the topic (log-odds / s.e.); and its pull, the cosine "
    "of its embedding to the direction that sets the topic apart."
)


class TopicWord(NamedTuple):
    """A word of a topic, or two neighbouring words."""

    word: str  # in lower case
    texts: int  # texts of the topic that hold it
    others: int  # texts of all other topics that hold it
    log_odds: float  # log-odds ratio over its standard error
    pull: float  # cosine of its embedding to the difference of the mean embeddings inside and outside


class Topic(NamedTuple):
    """A cluster of texts."""

    name: str
    texts: int
    share: float  # of all texts that have a topic
    cohesion: float  # mean cosine of its texts to their mean
    words: tuple[TopicWord, ...]
    typical: tuple[Example, ...]  # the texts nearest to its mean, with the cosine to it


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
    guessed: tuple[str, ...]  # words that would be in names, had the model a vector for them

    def __len__(self) -> int:
        """Return the number of topics."""
        return len(self.topics)

    def __iter__(self) -> Iterator[Topic]:
        """Yield the topics, largest first."""
        return iter(self.topics)

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Topics", f"{len(self.topics)} topics", f"{counted(self.texts, 'text')}, {self.family} model")
        if self.blank:
            yield Note(f"{counted(self.blank, 'text')} without a word that the model knows: no topic.")
        if self.guessed:
            yield Note(guesses_note(self.guessed, "No name holds them"))
        rows = (
            (f"{topic.texts:,}", topic.share, percent(topic.share), signed(topic.cohesion, 2), topic.name)
            for topic in self.topics
        )
        columns = [("texts", "number"), ("", "bar"), *numbers("share", "cohesion")]
        yield TablePart.of("", [*columns, ("topic", "name")], rows)
        yield Note(_COLUMNS)
        word_columns = [("word", "text"), *numbers("texts", "elsewhere", "log-odds / s.e.", "pull")]
        for topic in self.topics:
            words = (
                (w.word, f"{w.texts:,}", f"{w.others:,}", signed(w.log_odds, 1), signed(w.pull, 2))
                for w in topic.words[:_SHOWN_WORDS]
            )
            typical = ((signed(example.coordinate), example.text) for example in topic.typical)
            tables = (
                TablePart.of("words", word_columns, words),
                TablePart.of("typical texts", [*numbers(""), ("", "name")], typical),
            )
            yield Fold(topic.name, tables, lead=f"{topic.texts:,}")


def topics(
    model: Embedder,
    texts: Iterable[str],
    *,
    n: int | None = None,
    examples: int = 3,
    seed: int = 0,
) -> Topics:
    """Find what many texts are about: clusters named by the words that set them apart.

    Args:
        model: any family. The embeddings of all texts are held in memory.
        texts: 10 or more.
        n: how many topics; None for the square root of a 25th of the texts, 4 to 30. That is a convention, not a
            finding: look at several.
        examples: how many typical texts to name of each topic.
        seed: of KMeans.

    Raises:
        InputError: too few texts, an item that is not a string, or a number out of range.
        MissingExtraError: scikit-learn is not installed.
    """
    require("scikit-learn", "sklearn")
    check_model(model)
    check_integer("examples", examples, 0)
    check_seed(seed)
    blocks = list(unit_blocks(model, texts))
    all_texts = [text for block, _ in blocks for text in block]
    if len(all_texts) < 10:
        raise InputError(f"topics need at least 10 texts, got {len(all_texts)}")
    rows = vstack([rows for _, rows in blocks])
    in_vocabulary = known_rows(rows)
    known_texts = int(in_vocabulary.sum())
    if n is None:
        n = min(max(round(math.sqrt(known_texts / _TEXTS_PER_TOPIC_SQUARED)), _MIN_TOPICS), _MAX_TOPICS)
    check_integer("n", n, 2)
    if n > known_texts // 2:
        raise InputError(f"n is {n}; {known_texts:,} texts with a known word make at most {known_texts // 2} topics")
    labels = np.full(len(all_texts), -1)
    labels[in_vocabulary] = _cluster(rows[np.flatnonzero(in_vocabulary)], n, seed)
    sizes = np.bincount(labels[labels >= 0])  # equal texts may make fewer topics than were asked for
    sums = np.stack([np.asarray(rows[labels == topic].sum(axis=0)).ravel() for topic in range(len(sizes))])
    terms, counts = _count_terms(all_texts, labels, len(sizes))
    records, guessed = list[Topic](), list[str]()
    for topic, size in enumerate(sizes.tolist()):
        members = np.flatnonzero(labels == topic)
        mean = sums[topic] / size
        outside = (sums.sum(axis=0) - sums[topic]) / max(int(sizes.sum()) - size, 1)
        cosines = cosines_along(rows[members], mean)
        words, guesses = _topic_words(model, terms, counts, sizes, topic, mean - outside)
        typical = {all_texts[members[n]]: float(cosines[n]) for n in np.argsort(-cosines, kind="stable").tolist()}
        record = Topic(
            ", ".join(word.word for word in words[:_NAME_WORDS]) or f"topic {topic + 1}",
            size,
            float(size / sizes.sum()),
            float(cosines.mean()),
            tuple(words),
            tuple(Example(*item) for item in typical.items())[:examples],
        )
        records.append(record)
        guessed += guesses
    n_blank, names = len(all_texts) - known_texts, tuple(dict.fromkeys(guessed))
    return Topics(model.family, len(all_texts), n_blank, tuple(records), tuple(labels.tolist()), names)


def _cluster(rows: Any, n: int, seed: int) -> Integers:
    """Return the cluster of each row, the largest cluster first."""
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.decomposition import TruncatedSVD
    from sklearn.exceptions import ConvergenceWarning

    if hasattr(rows, "tocsr") and min(rows.shape) > _REDUCED_COLUMNS:
        rows = TruncatedSVD(_REDUCED_COLUMNS, random_state=seed).fit_transform(rows)
    kmeans = KMeans(n, n_init=3, random_state=seed)
    if rows.shape[0] > _BATCH_ROWS:
        kmeans = MiniBatchKMeans(n, batch_size=4096, n_init=3, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # equal texts: there are fewer topics than were asked for
        assigned = kmeans.fit_predict(rows)
    order = np.argsort(-np.bincount(assigned, minlength=n), kind="stable")
    return np.asarray(np.argsort(order)[assigned])


def _count_terms(texts: list[str], labels: Integers, n_topics: int) -> tuple[Any, Floats]:
    """Return words and pairs of neighbouring words, and how many texts of each topic hold them [topics, terms]."""
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(analyzer=document_terms, binary=True)
    try:
        counts = vectorizer.fit_transform(texts)
    except ValueError:  # no text has a content word
        return np.array([], str), np.zeros((n_topics, 0))
    is_member = labels[:, None] == np.arange(n_topics)
    return vectorizer.get_feature_names_out(), np.asarray((counts.T @ is_member).T, np.float64)


def _topic_words(
    model: Embedder, terms: Any, counts: Floats, sizes: Integers, topic: int, direction: Floats
) -> tuple[list[TopicWord], list[str]]:
    """Return the words that set a topic apart, by falling product of log-odds and pull, and those that are guessed."""
    here, all_texts = counts[topic], counts.sum(axis=0)
    size, n_texts = int(sizes[topic]), int(sizes.sum())
    prior = _PRIOR_TEXTS * all_texts / n_texts
    inside, outside = here + prior, all_texts - here + prior
    with np.errstate(divide="ignore", invalid="ignore"):  # terms of all texts, and of texts without a topic
        odds = inside / (size + _PRIOR_TEXTS - inside)
        odds_outside = outside / (n_texts - size + _PRIOR_TEXTS - outside)
        ratios = np.log(odds / odds_outside) / np.sqrt(1 / inside + 1 / outside)
    log_odds = np.where(all_texts < n_texts, np.nan_to_num(ratios), 0.0)  # a word of all texts sets none apart
    is_frequent = here >= max(_MIN_WORD_TEXTS, _MIN_WORD_SHARE * size)
    candidates = np.flatnonzero((is_frequent if is_frequent.any() else here > 0) & (log_odds > 0))
    candidates = candidates[np.argsort(-log_odds[candidates], kind="stable")][:_TESTED_WORDS]
    is_guessed = np.array(list(map(bool, guessed_words(model, terms[candidates].tolist()))), bool)
    guessed = [term for term in terms[candidates[is_guessed]].tolist() if " " not in term]
    candidates, selected = candidates[~is_guessed], list[TopicWord]()
    if not len(candidates):
        return selected, guessed
    pulls = cosines_along(l2_normalize(model.encode(terms[candidates].tolist())), direction)
    for index in np.argsort(-log_odds[candidates] * np.maximum(pulls, 0), kind="stable").tolist():
        term, word = candidates[index], str(terms[candidates[index]])
        used = [earlier for item in selected for earlier in item.word.split()]
        if not any(_is_one_word(a, b) for a in used for b in word.split()):
            n_here, n_all = int(here[term]), int(all_texts[term])
            selected.append(TopicWord(word, n_here, n_all - n_here, float(log_odds[term]), float(pulls[index])))
    return selected[:_MAX_WORDS], guessed


def document_terms(text: str) -> set[str]:
    """Return the distinct content words of a text and its pairs of neighbouring content words, in lower case."""
    words = [lowercase(word.text) for word in split_words(text)]
    content = content_words(text) - function_words(words).words
    terms = {word for word in words if word in content}
    return terms | {f"{a} {b}" for a, b in pairwise(words) if a in content and b in content and a != b}


def _is_one_word(first: str, second: str) -> bool:
    """Whether two words are forms of one: fee and fees, city and cities, plan and planning, charge and charged."""
    shorter, longer = sorted((first, second), key=len)
    stem = rf"{re.escape(shorter)}{re.escape(shorter[-1])}?|{re.escape(shorter.removesuffix('y'))}i"
    return first == second or differ_by_ending(first, second) or bool(re.fullmatch(rf"(?:{stem}){_ENDING}", longer))
