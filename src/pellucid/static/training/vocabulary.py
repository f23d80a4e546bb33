"""Changes of a vocabulary: words added with vectors from a teacher, pruned, and unknown ones spelled.

For adding, the teacher gives each new entry a vector: the mean of its states at the entry's occurrences in sentences,
or its embedding of the entry by itself. Words that the model has get theirs in the same way, and a map from the
teacher's space into the model's is fitted on them. The other rows keep every bit.

The weight of a word in a sentence is the length of its vector. A new word's is predicted from the teacher's vector; a
phrase whose words are all known gets the length of their sum, which is what these words weighed before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.analysis.coordinates import spearman
from pellucid.core.arrays import l2_normalize
from pellucid.core.embedder import Embedder, Vectors
from pellucid.dense.embedder import EncoderEmbedder
from pellucid.dense.vectors import unit_vectors
from pellucid.errors import CorpusError, InputError, shown
from pellucid.explain.views.parts import AnyPart, Column, Heading, Note, TablePart, counted, percent, signed
from pellucid.explain.views.report import Report
from pellucid.loading import load
from pellucid.progress import Progress, length_batches
from pellucid.static.bags import RowCounts, count_rows
from pellucid.static.embedder import StaticEmbedder, static_model
from pellucid.static.folder import check_writable
from pellucid.static.precision import common_scale, quantize
from pellucid.static.spelling import ngram_weights
from pellucid.static.training.extraction import forward, word_vectors
from pellucid.text.inputs import check_texts
from pellucid.text.tables import Corpus, read_texts
from pellucid.text.unicode import canonicalize, lowercase, normalize
from pellucid.text.words import JOINER, Vocabulary, Word, display_form, split_words

_OCCURRENCES = 100  # sentences read that hold an entry; more only if they hold another entry too
_FIT_WORDS = 5_000  # words of the model that the map is fitted on, evenly over its vocabulary
_FIT_SENTENCES = 5_000  # sentences read for words that the model knows
_BATCH = 64  # sentences in one pass of the teacher
_N_NEAREST_WORDS = 4  # words named in the report
_BLOCK = 64  # entries whose neighbours are looked for at a time
_COMPARED = 10_000  # texts whose embeddings are compared before and after pruning
_MIN_FIT_WORDS = 20  # words to fit a map on
_POOR = 0.5  # mean cosine of a map
_HELD_OUT, _MAX_HELD_OUT = 0.1, 2_000  # of the pairs, to measure the fit; as many again to choose the penalty
_PENALTIES = tuple(10.0**n for n in range(-6, 2))  # in units of the mean variance of the source
_OUTER = (1, 99)  # percentiles of the lengths seen; predicted ones stay between them

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


class FitQuality(NamedTuple):
    """How well a map works on words that it was not fitted on.

    Attributes:
        words: pairs it was fitted on in the end, the held-out ones among them.
        held_out: pairs it was measured on, before that.
        cosine: mean cosine of a mapped vector and the true one.
        first: share of held-out words whose mapped vector is nearest to their own, among all pairs' words.
        length_correlation: Spearman's, of mapped and true lengths; None where one side is constant.
    """

    words: int
    held_out: int
    cosine: float
    first: float
    length_correlation: float | None

    def parts(self) -> Iterator[AnyPart]:
        """Yield the numbers as parts of a report, with a warning where they are bad."""
        heads = tuple(Column(t, "number") for t in ("fitted on", "held out", "cosine", "found first", "lengths"))
        row = (f"{self.words:,}", f"{self.held_out:,}", f"{self.cosine:.3f}", percent(self.first),
               signed(self.length_correlation))  # fmt: skip
        yield TablePart("the map, on words held out", heads, (row,))
        if self.cosine < _POOR:
            yield Note("The map is poor: mapped words are only roughly where they belong. See what is nearest to them.")


@dataclass(frozen=True)
class SpaceMap:
    """An affine map of directions, and one of the logarithm of lengths."""

    matrix: Floats  # [D, d]
    offset: Floats  # [d]
    length_weights: Floats  # [D + 1], for the direction and the logarithm of the length
    length_offset: float
    lengths: tuple[float, float]  # the smallest and the largest that it gives

    def __call__(self, rows: Vectors) -> Vectors:
        """Return vectors [n, D] in the other space, float32 [n, d]; a zero row stays zero."""
        units = l2_normalize(rows, np.float64)
        directions = l2_normalize(units @ self.matrix + self.offset, np.float64)
        logarithms = _length_features(rows) @ self.length_weights + self.length_offset
        lengths = np.exp(np.clip(logarithms, *np.log(self.lengths)))
        mapped: Vectors = (directions * lengths[:, None] * units.any(axis=1)[:, None]).astype(np.float32)
        return mapped


def fit_space(source: Vectors, target: Vectors) -> tuple[SpaceMap, FitQuality]:
    """Fit the map from `source` [n, D] to `target` [n, d], whose rows belong to the same words."""
    # Ridge regression; the penalty is chosen on a part of the pairs. Directions and lengths are fitted apart: a map
    # fitted to whole vectors draws every length towards the mean, and a word's length is its weight in a sentence.
    paired = np.flatnonzero(source.any(axis=1) & target.any(axis=1))
    if len(paired) < _MIN_FIT_WORDS:
        raise InputError(f"{len(paired)} words to fit a map on, and at least {_MIN_FIT_WORDS} are needed")
    source, target = source[paired], target[paired]
    order = np.random.default_rng(0).permutation(len(source))
    n_held_out = min(max(int(len(order) * _HELD_OUT), 2), _MAX_HELD_OUT)
    test, validation, train = order[:n_held_out], order[n_held_out : 2 * n_held_out], order[2 * n_held_out :]
    penalties = _choose_penalties(source, target, train, validation)
    mapped = _fit_map(source[order[n_held_out:]], target[order[n_held_out:]], penalties)(source[test])
    directions, target_units = l2_normalize(mapped), l2_normalize(target)
    cosines = (directions * target_units[test]).sum(axis=1)
    nearest = np.array([int((target_units @ direction).argmax()) for direction in directions])
    lengths, true = (np.linalg.norm(rows, axis=1) for rows in (mapped, target[test]))
    correlation = None if len(test) < 3 else spearman(lengths, true)
    quality = FitQuality(len(target), len(test), float(cosines.mean()), float((nearest == test).mean()), correlation)
    return _fit_map(source, target, penalties), quality


def _length_features(rows: Vectors) -> Floats:
    """Return the direction of each row and the logarithm of its length, [n, D + 1]."""
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    return np.column_stack([l2_normalize(rows, np.float64), np.log(np.maximum(lengths, 1e-12))])


def _fit_map(source: Vectors, target: Vectors, penalties: tuple[float, float]) -> SpaceMap:
    """Return the map with these penalties for directions and for lengths."""
    lengths = np.linalg.norm(target.astype(np.float64), axis=1)
    low, high = np.percentile(lengths, _OUTER).tolist()
    weights, shift = _ridge(_length_features(source), np.log(lengths)[:, None], [penalties[1]])[0]
    matrix, offset = _ridge(l2_normalize(source, np.float64), l2_normalize(target, np.float64), [penalties[0]])[0]
    return SpaceMap(matrix, offset, weights[:, 0], float(shift[0]), (low, high))


def _ridge(x: Floats, y: Floats, penalties: list[float]) -> list[tuple[Floats, Floats]]:
    """Return weights [D, d] and offset [d] of least squares for each penalty on the weights."""
    mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
    centred = x - mean_x
    values, vectors = np.linalg.eigh(centred.T @ centred)
    values = np.maximum(values, 0.0)
    scale = float(values.mean()) or 1.0
    projections = vectors.T @ (centred.T @ (y - mean_y))
    solutions = []
    for penalty in penalties:
        weights = vectors @ (projections / (values + penalty * scale)[:, None])
        solutions.append((weights, mean_y - mean_x @ weights))
    return solutions


def _choose_penalties(source: Vectors, target: Vectors, train: Rows, validation: Rows) -> tuple[float, float]:
    """Return the penalties for directions and for lengths that do best on the pairs `validation`."""
    units, target_units = l2_normalize(source, np.float64), l2_normalize(target, np.float64)
    features = _length_features(source)
    logarithms = np.log(np.linalg.norm(target.astype(np.float64), axis=1))[:, None]
    cosines, misses = [], []
    for weights, offset in _ridge(units[train], target_units[train], list(_PENALTIES)):
        mapped = l2_normalize(units[validation] @ weights + offset, np.float64)
        cosines.append(float((mapped * target_units[validation]).sum(axis=1).mean()))
    for weights, offset in _ridge(features[train], logarithms[train], list(_PENALTIES)):
        misses.append(float(np.square(features[validation] @ weights + offset - logarithms[validation]).mean()))
    return _PENALTIES[int(np.argmax(cosines))], _PENALTIES[int(np.argmin(misses))]


class AddedWord(NamedTuple):
    """An entry that was added: its occurrences (0 without sentences), the length of its vector, its neighbours."""

    word: str
    occurrences: int
    length: float
    nearest: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Addition(Report):
    """What was added to a static model, and how far the map into its space can be trusted.

    Attributes:
        source: "words" where the teacher read entries by themselves, "sentences" where it read them in context.
        words_before: size of the vocabulary before.
        words_after: size after.
        fit: the map on words held out.
        added: the entries in the order given.
    """

    kind: ClassVar[str] = "vocabulary-addition"
    table: ClassVar[str] = "added"

    source: str
    words_before: int
    words_after: int
    fit: FitQuality
    added: tuple[AddedWord, ...]

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Added", counted(len(self.added), "word or phrase", "words and phrases"), "static model")
        how = "reads each alone" if self.source == "words" else "reads them in context"
        yield Note(f"{self.words_before:,} words before, {self.words_after:,} now; as the teacher {how}.")
        yield from self.fit.parts()
        heads = (Column("added"), Column("occurrences", "number"), Column("length", "number"), Column("nearest words"))
        rows = tuple((a.word, f"{a.occurrences:,}", f"{a.length:.2f}", ", ".join(a.nearest)) for a in self.added)
        yield TablePart("", heads, rows)


def add_words(
    model: StaticEmbedder,
    words: Iterable[str],
    teacher: Any,
    sentences: Corpus | None = None,
    *,
    replace: bool = False,
    prompt: str = "",
    show_progress_bar: bool = True,
) -> StaticEmbedder:
    """Return `model` with more words and phrases; the new model's `report` is an `Addition`.

    Args:
        model: a static model; it is not changed.
        words: entries. Several words are a phrase, which replaces them wherever they follow each other.
        teacher: a SentenceTransformer or its folder or hub id, best the one that the model was made from; without
            sentences any encoder.
        sentences: a file or an iterable of texts: 100 that hold an entry are read, and 5,000 others for the map. None
            lets the teacher read each entry alone.
        replace: give words that the model has already a new vector, instead of refusing them.
        prompt: put before each text for the teacher.
        show_progress_bar: show bars for what takes longer than two seconds.

    Returns:
        The new model, with a table of the same dtype.

    Raises:
        InputError: an entry is empty, double, known already, or cannot be found in a text as it is written.
        CorpusError: an entry is in no sentence, or the sentences know too few words of the model.
        MissingExtraError: sentence-transformers is not installed.
    """
    static_model(model, "adding words")
    entries = _entries(model.vocabulary, check_texts([words] if isinstance(words, str) else words), replace)
    keys = list(entries)
    new_keys = [key for key in keys if key not in model.vocabulary]
    vocabulary = model.vocabulary.with_words([*model.vocabulary.words, *new_keys])
    _check_each_is_one_word(vocabulary, entries)
    opened = load(teacher)
    if sentences is None:
        rows = [row for row, word in enumerate(model.vocabulary.words) if word not in entries and split_words(word)]
        indices = np.unique(np.linspace(0, len(rows) - 1, _FIT_WORDS).astype(int))
        fit_rows = [rows[n] for n in indices.tolist()] if rows else []
        texts = [display_form(model.vocabulary.words[row]) for row in fit_rows] + [e.strip() for e in entries.values()]
        teacher_vectors = unit_vectors(opened, [prompt + text for text in texts])
        source, vectors, counts = teacher_vectors[: len(fit_rows)], teacher_vectors[len(fit_rows) :], [0] * len(keys)
    else:
        fit_rows, source, vectors, counts = read_in_sentences(
            vocabulary, keys, opened, sentences, prompt, show_progress_bar
        )
    mapping, quality = fit_space(source, model.word_vectors(fit_rows))
    mapped = mapping(vectors)
    _scale_phrases(model, keys, mapped)
    extended = _with_rows(model, vocabulary, keys, mapped)
    added = tuple(
        AddedWord(display_form(key), count, float(np.linalg.norm(vector)), nearest)
        for key, count, vector, nearest in zip(keys, counts, mapped, _nearest(extended, keys), strict=True)
    )
    source_kind = "words" if sentences is None else "sentences"
    extended.report = Addition(source_kind, len(model.vocabulary), len(vocabulary), quality, added)
    return extended


def _check_each_is_one_word(vocabulary: Vocabulary, entries: Mapping[str, str]) -> None:
    """Check that the extended vocabulary reads each entry as the one word of its key."""
    for key, entry in entries.items():
        entry_words = [word.text for word in vocabulary.split(entry)]
        if len(entry_words) != 1 or vocabulary.row(entry_words[0]) != vocabulary.row(key):
            spaced = " ".join(word.text for word in split_words(entry))
            raise InputError(f"{entry!r:.60} would never be found in a text, which is cut into "
                             f"{', '.join(entry_words)}; a phrase has only spaces between its words, as "
                             f"{spaced!r:.60}")  # fmt: skip


def _scale_phrases(model: StaticEmbedder, keys: Sequence[str], vectors: Any) -> None:
    """Give the vector of a phrase whose words are all known the length of their sum."""
    for vector, key in zip(vectors, keys):
        rows = [model.vocabulary.row(word) for word in key.split(JOINER)]
        if len(rows) > 1 and min(rows) >= 0:
            length = np.linalg.norm(model.word_vectors(rows).sum(axis=0))
            vector *= length / max(float(np.linalg.norm(vector)), 1e-12)


def _entries(vocabulary: Vocabulary, entries: Sequence[str], replace: bool) -> dict[str, str]:
    """Return the key of each entry and the entry, after checking them."""
    if not entries:
        raise InputError("no word to add; give at least one")
    check_writable(entries)
    keys: dict[str, str] = {}
    existing = []
    for entry in entries:
        entry_words = [word.text for word in split_words(entry)]
        if not entry_words:
            raise InputError(f"{entry!r:.60} holds no word, only punctuation and spaces")
        key = JOINER.join(entry_words)
        key = key if vocabulary.cased else lowercase(key)
        if len(entry_words) == 1 and normalize(entry).text.strip() != entry_words[0]:
            raise InputError(f"{entry!r:.60} is the one word {entry_words[0]!r} to a static model, which drops "
                             f"punctuation; give {entry_words[0]!r}")  # fmt: skip
        if key in keys:
            raise InputError(f"{entry!r:.60} and {keys[key]!r:.60} are the same entry; give it once")
        keys[key] = entry
        existing += [entry] if key in vocabulary else []
    if existing and not replace:
        raise InputError(f"{counted(len(existing), 'entry is', 'entries are')} in the vocabulary already, the first is "
                         f"{existing[0]!r:.60}; leave them out, or allow it with replace (--replace)")  # fmt: skip
    return keys


def read_in_sentences(
    vocabulary: Vocabulary, keys: list[str], teacher: Embedder, sentences: Corpus, prompt: str, show_progress_bar: bool
) -> tuple[list[int], Vectors, Vectors, list[int]]:
    """Return rows of known words, a teacher's mean states at them and at new entries, and how often these occur."""
    if not isinstance(teacher, EncoderEmbedder) or not teacher.is_sentence_transformer:
        raise InputError(
            f"only a sentence-transformers model reads words in sentences, and the teacher is a "
            f"{type(teacher).__name__}; leave the sentences out"
        )
    words_of = partial(_named_by_rows, vocabulary)
    texts = _sentences_with(keys, sentences, words_of)
    index_by_word = {w: n for n, w in enumerate(dict.fromkeys(word.text for t in texts for word in words_of(t)))}
    width = int(teacher.model[0].get_embedding_dimension())
    sums: Vectors = np.zeros((len(index_by_word), width), np.float32)
    used: npt.NDArray[np.int64] = np.zeros(len(index_by_word), np.int64)
    with Progress("teacher", total=len(texts), unit="sentences", enabled=show_progress_bar) as progress:
        for indices in length_batches(list(map(len, texts)), _BATCH):
            batch = [texts[n] for n in indices]
            _, states, offsets = forward(teacher.model, batch, prompt)
            rows, vectors = word_vectors(batch, list(map(words_of, batch)), states, offsets, index_by_word)
            np.add.at(sums, rows, vectors)
            np.add.at(used, rows, 1)
            progress.advance(len(batch))
    missing = [key for key in keys if not used[index_by_word[key]]]
    if missing:
        raise CorpusError(
            f"the teacher reads {display_form(missing[0])!r} in no sentence whole; give shorter sentences"
        )
    means: Vectors = np.divide(sums, np.maximum(used, 1)[:, None], dtype=np.float32)
    new = set(keys)
    fit_words = [word for word, index in index_by_word.items() if word not in new and used[index]]
    entries = [index_by_word[key] for key in keys]
    fit_rows = [vocabulary.row(word) for word in fit_words]
    return fit_rows, means[[index_by_word[word] for word in fit_words]], means[entries], used[entries].tolist()


def _named_by_rows(vocabulary: Vocabulary, text: str) -> list[Word]:
    """Return the words of `text` that have a row, under the name that the row has."""
    word_rows = [(word, vocabulary.row(word.text)) for word in vocabulary.split(text)]
    return [
        Word(vocabulary.words[row], word.start, word.end)
        for word, row in word_rows
        if row >= 0 and vocabulary.forms[row] in (word.text, lowercase(word.text))
    ]


def _sentences_with(keys: list[str], sentences: Corpus, words_of: Callable[[str], list[Word]]) -> list[str]:
    """Return the sentences to read: those with an entry that is still needed, and the first few others."""
    texts: list[str] = []
    occurrences: Counter[str] = Counter()
    n_others, new = 0, set(keys)
    for sentence in map(canonicalize, read_texts(sentences)):
        new_entries = {word.text for word in words_of(sentence)} & new
        if any(occurrences[key] < _OCCURRENCES for key in new_entries):
            occurrences.update(new_entries)
            texts.append(sentence)
        elif not new_entries and n_others < _FIT_SENTENCES and sentence.strip():
            n_others += 1
            texts.append(sentence)
        elif n_others >= _FIT_SENTENCES and min(occurrences[key] for key in keys) >= _OCCURRENCES:
            break
    missing = [display_form(key) for key in keys if not occurrences[key]]
    if missing:
        raise CorpusError(
            f"{counted(len(missing), 'entry is', 'entries are')} in no sentence, the first "
            f"is {missing[0]!r}; give sentences that contain it, or no sentences, so that it is read alone"
        )
    return texts


def _with_rows(model: StaticEmbedder, vocabulary: Vocabulary, keys: list[str], vectors: Vectors) -> StaticEmbedder:
    """Return the model with `vectors` as the rows of `keys`, in the dtype of its table; other rows are not touched."""
    table = np.zeros((len(vocabulary), model.get_embedding_dimension()), model.vectors.dtype)
    table[: len(model.vocabulary)] = model.vectors
    rows = [vocabulary.row(key) for key in keys]
    scales = None
    if model.scales is not None:
        scales = np.zeros(len(vocabulary), np.float32)
        scales[: len(model.scales)] = model.scales
        even = model.scales[0] if len(model.scales) and np.ptp(model.scales) == 0 else None
        scale = None if even is None else common_scale(np.abs(vectors).max(axis=1), even)
        table[rows], scales[rows] = quantize(vectors, scale=scale)
    else:
        table[rows] = vectors
    return StaticEmbedder(vocabulary, table, scales, dimensions=model.dimensions)


def _nearest(model: StaticEmbedder, keys: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield the words nearest to each of `keys`, without itself."""
    units = l2_normalize(model.word_vectors(np.arange(len(model.vocabulary))))
    rows = [model.vocabulary.row(key) for key in keys]
    n_best = min(_N_NEAREST_WORDS + 1, len(units))
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        for row, scores in zip(block, units[block] @ units.T, strict=True):
            best = np.argpartition(-scores, n_best - 1)[:n_best]
            best = best[np.argsort(-scores[best], kind="stable")]
            yield tuple(display_form(model.vocabulary.words[n]) for n in best.tolist() if n != row)[:_N_NEAREST_WORDS]


@dataclass(frozen=True, repr=False)
class Pruning(Report):
    """What pruning did to a static model.

    Attributes:
        words_before: size of the vocabulary before.
        words_after: size after.
        bytes_before: size of the table before.
        bytes_after: size after.
        texts: how many the corpus has; 0 without one, and the numbers below are then None.
        coverage_before: share of the corpus's words that had a row.
        coverage_after: share that has one now.
        compared: texts whose embeddings were compared, the first 10,000.
        unchanged: share of them with the same embedding as before.
        mean_cosine: of the embeddings before and after; of texts that both know.
        lost: texts that the model knew and knows no more.
    """

    kind: ClassVar[str] = "vocabulary-pruning"

    words_before: int
    words_after: int
    bytes_before: int
    bytes_after: int
    texts: int = 0
    coverage_before: float | None = None
    coverage_after: float | None = None
    compared: int = 0
    unchanged: float | None = None
    mean_cosine: float | None = None
    lost: int = 0

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Pruned", counted(self.words_after, "word"), "static model")
        heads = (Column(""), Column("before", "number"), Column("after", "number"))
        rows: list[tuple[str, ...]] = [
            ("words", f"{self.words_before:,}", f"{self.words_after:,}"),
            ("table, MB", f"{self.bytes_before / 1e6:.1f}", f"{self.bytes_after / 1e6:.1f}"),
        ]
        if self.coverage_before is not None and self.coverage_after is not None:
            rows.append(
                ("words of the corpus that are known", percent(self.coverage_before), percent(self.coverage_after))
            )
        yield TablePart("", heads, tuple(rows))
        if self.mean_cosine is not None and self.unchanged is not None:
            yield Note(
                f"Of {counted(self.compared, 'text')}, {percent(self.unchanged)} have the embedding they had; the mean "
                f"cosine to it is {self.mean_cosine:.4f}; {self.lost:,} have no known word any more."
            )


def prune(
    model: StaticEmbedder, texts: Iterable[str] | None = None, *, min_count: int = 1, max_words: int | None = None
) -> StaticEmbedder:
    """Return `model` with only the words that a corpus uses; the new model's `report` is a `Pruning`.

    A word that texts find by its prefix counts as used. With `min_count` 1 and no `max_words`, the embeddings of the
    corpus are exactly what they were.

    Args:
        model: a static model; it is not changed.
        texts: the corpus, which is held in memory; None keeps the first `max_words` of the vocabulary.
        min_count: keep words that the corpus uses so often.
        max_words: keep at most so many, those that the corpus uses most.

    Returns:
        The smaller model, its words in the order they had.

    Raises:
        InputError: neither a corpus nor `max_words`, a number below 1, or no word is left.
    """
    static_model(model, "pruning")
    if not all(type(value) is int and value >= 1 for value in (min_count, 1 if max_words is None else max_words)):
        raise InputError(
            f"min_count is {shown(min_count)} and max_words {shown(max_words)}; both are integers from 1 up"
        )
    if texts is None and max_words is None:
        raise InputError("give a corpus, whose words stay, or max_words, or both")
    texts = None if texts is None else check_texts(texts)  # read several times: before, after, and a sample of both
    used = None if texts is None else count_rows(model.vocabulary, texts)
    rows = np.arange(len(model.vocabulary))[:max_words] if used is None else _used_rows(used, min_count, max_words)
    words = [model.vocabulary.words[row] for row in rows.tolist()]
    scales = None if model.scales is None else model.scales[rows]
    vocabulary = model.vocabulary.with_words(words)
    pruned = StaticEmbedder(vocabulary, model.vectors[rows], scales, dimensions=model.dimensions, dtype=model.dtype)
    old_size, new_size = (m.vectors.nbytes + (0 if m.scales is None else m.scales.nbytes) for m in (model, pruned))
    sizes = (len(model.vocabulary), len(rows), old_size, new_size)
    if texts is None or used is None:
        pruned.report = Pruning(*sizes)
        return pruned
    still_used = count_rows(pruned.vocabulary, texts)
    sample = list(islice(texts, _COMPARED))
    old, new = (l2_normalize(m.encode(sample), np.float64) for m in (model, pruned))
    known_before, known_after = old.any(axis=1), new.any(axis=1)
    both = known_before & known_after
    unchanged = float(np.isclose(old, new, atol=1e-6).all(axis=1).mean())
    mean_cosine = float((old * new).sum(axis=1)[both].mean()) if both.any() else None
    shares = (
        used.tokens_in_vocabulary / max(used.tokens, 1),
        still_used.tokens_in_vocabulary / max(still_used.tokens, 1),
    )
    lost = int((known_before & ~known_after).sum())
    pruned.report = Pruning(*sizes, used.texts, *shares, len(sample), unchanged, mean_cosine, lost)
    return pruned


def _used_rows(used: RowCounts, min_count: int, max_words: int | None) -> Rows:
    """Return the rows that a corpus uses often enough, at most `max_words`, ascending."""
    order = np.argsort(-used.counts, kind="stable")[:max_words]
    rows = np.sort(order[used.counts[order] >= min_count])
    if not used.tokens_in_vocabulary:
        raise InputError(f"the corpus holds no word that the model knows, in {used.texts:,} texts with "
                         f"{used.tokens:,} words")  # fmt: skip
    if not len(rows):
        raise InputError(f"no word of the model occurs {min_count:,} times in the corpus, the commonest "
                         f"{used.counts.max():,} times")  # fmt: skip
    return rows


def fit_spelling(model: StaticEmbedder) -> StaticEmbedder:
    """Return `model` with spelling: an unknown word gets a vector.

    A word of letters gets it from the known words spelled like it and, where few are, from its beginning; a number or
    code from its beginning. Each also has a part that is similar only to itself. Known words keep their
    vectors. Some seconds for 100,000 words; 256 KB more in the folder. Edits of dimensions keep the spelling. Functions
    that change the words or train their vectors return a model without: fit it again.

    Saving it writes out only the `extra_words` given there, not those of the folder that `model` was opened from.

    Args:
        model: a static model; it is not changed.

    Raises:
        InputError: it is not static, or fewer than two of its words are of letters only.

    >>> # fit_spelling(pellucid.load("static-en")).save_pretrained("static-en-spelled")
    """
    static_model(model, "spelling")
    weights = ngram_weights(model.vocabulary.words, model.word_vectors(np.arange(len(model.vocabulary))))
    dimensions, dtype = model.dimensions, model.dtype
    return StaticEmbedder(
        model.vocabulary, model.vectors, model.scales, dimensions=dimensions, spelling=weights, dtype=dtype
    )
