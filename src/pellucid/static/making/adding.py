"""Adding words and phrases to a static model, with vectors from a teacher.

The teacher gives each new entry a vector: the mean of its states at the entry's occurrences in sentences, or its
embedding of the entry alone. Words that the model has get theirs in the same way, and a map from the teacher's space
into the model's is fitted on them (`merging.py`). The other rows keep every bit.

The weight of a word in a sentence is the length of its vector. A new word's is predicted from the teacher's vector; a
phrase whose words are all known gets the length of their sum, which is what these words weighed before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pellucid.base import Embedder, Vectors, check_texts, unit_rows
from pellucid.corpus import Corpus, read_texts
from pellucid.encoder import EncoderEmbedder, unit_vectors
from pellucid.errors import CorpusError, InputError
from pellucid.pretrained import load
from pellucid.progress import Progress, length_batches
from pellucid.static.embedder import StaticEmbedder, static_model
from pellucid.static.folder import check_writable
from pellucid.static.making.extraction import forward, word_vectors
from pellucid.static.making.merging import FitQuality, fit_space
from pellucid.static.precision import quantize
from pellucid.text import JOINER, Vocabulary, Word, shown_word, split_words, well_formed
from pellucid.views.parts import AnyPart, Column, Heading, Note, TablePart, counted
from pellucid.views.report import Report

_NEAREST = 4  # words named in the report
_BLOCK = 64  # entries whose neighbours are looked for at a time


@dataclass(frozen=True)
class AddingSettings:
    """How words are added.

    Attributes:
        occurrences: with sentences, read so many that hold an entry; more only if they hold another entry too.
        fit_words: without sentences, fit the map on so many words of the model, evenly over its vocabulary.
        fit_sentences: with sentences, read at most so many of them for words the model knows.
        replace: give words that the model has already a new vector, instead of refusing them.
        prompt: put before each text for the teacher.
        batch_size: texts in one pass of the teacher.
        seed: of the words held out to measure the map.
    """

    occurrences: int = 100
    fit_words: int = 5_000
    fit_sentences: int = 5_000
    replace: bool = False
    prompt: str = ""
    batch_size: int = 64
    seed: int = 0


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
        how = (
            "as the teacher reads each by itself" if self.source == "words" else "as the teacher reads them in context"
        )
        yield Note(f"{self.words_before:,} words before, {self.words_after:,} now; {how}.")
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
    settings: AddingSettings | None = None,
    show_progress_bar: bool = True,
) -> tuple[StaticEmbedder, Addition]:
    """Return `model` with more words and phrases, and a report of them.

    Args:
        model: a static model; it is not changed.
        words: entries. Several words are a phrase, which replaces them wherever they follow each other.
        teacher: what `pellucid.load` takes; to read sentences a SentenceTransformer or its folder or hub id, best the
            one that the model was made from.
        sentences: texts that hold the entries, with others for the map; a file or an iterable. None lets the teacher
            read each entry by itself.
        settings: None for the defaults.
        show_progress_bar: show bars for what takes longer than two seconds.

    Returns:
        The new model, with a table of the same dtype, and what was added.

    Raises:
        InputError: an entry is empty, double, known already, or cannot be found in a text as it is written.
        CorpusError: an entry is in no sentence, or the sentences know too few words of the model.
        MissingExtraError: sentence-transformers is not installed.
    """
    static_model(model, "adding words")
    settings = settings or AddingSettings()
    keys = _keys(model.vocabulary, check_texts([words] if isinstance(words, str) else words), settings.replace)
    new = [key for key in keys if key not in model.vocabulary]
    vocabulary = Vocabulary([*model.vocabulary.words, *new], model.vocabulary.subwords)
    _check_found(vocabulary, keys)
    opened = load(teacher)
    if sentences is None:
        known, source, vectors = _by_themselves(model, opened, keys, settings)
        counts: Sequence[int] = [0] * len(keys)
    else:
        read = EntryStates(vocabulary, list(keys), settings)
        known, source, vectors, counts = read.run(opened, sentences, show_progress_bar)
    mapping, quality = fit_space(source, model.word_vectors(known), seed=settings.seed)
    mapped = _with_weights(mapping(vectors), list(keys), model)
    made = _with_rows(model, vocabulary, list(keys), mapped)
    added = tuple(
        AddedWord(shown_word(key), count, float(np.linalg.norm(vector)), nearest)
        for key, count, vector, nearest in zip(keys, counts, mapped, _nearest(made, list(keys)), strict=True)
    )
    how = "words" if sentences is None else "sentences"
    return made, Addition(how, len(model.vocabulary), len(vocabulary), quality, added)


def _keys(vocabulary: Vocabulary, entries: Sequence[str], replace: bool) -> dict[str, str]:
    """Return the key of each entry and the entry, after checking them."""
    if not entries:
        raise InputError("no word to add; give at least one")
    check_writable(entries)
    keys: dict[str, str] = {}
    known = []
    for entry in entries:
        found = [word.text for word in split_words(entry)]
        if not found:
            raise InputError(f"{entry!r:.60} holds no word; punctuation and spaces alone cannot be added")
        key = JOINER.join(found)
        key = key if vocabulary.cased else key.lower()
        if len(found) == 1 and entry.strip() != found[0]:
            raise InputError(f"{entry!r:.60} is the one word {found[0]!r} to a static model, which drops punctuation; "
                             f"give {found[0]!r}")  # fmt: skip
        if key in keys:
            raise InputError(f"{entry!r:.60} and {keys[key]!r:.60} are the same entry; give it once")
        keys[key] = entry
        known += [entry] if key in vocabulary else []
    if known and not replace:
        raise InputError(f"{counted(len(known), 'entry is', 'entries are')} in the vocabulary already, the first is "
                         f"{known[0]!r:.60}; leave them out, or allow it with replace (--replace)")  # fmt: skip
    return keys


def _check_found(vocabulary: Vocabulary, keys: dict[str, str]) -> None:
    """Refuse an entry that a text with just that entry would not find."""
    for key, entry in keys.items():
        found = [word.text for word in vocabulary.split(entry)]
        if len(found) != 1 or vocabulary.row(found[0]) != vocabulary.row(key):
            parts = " ".join(word.text for word in split_words(entry))
            raise InputError(f"{entry!r:.60} would never be found in a text, which is cut into {', '.join(found)}; "
                             f"a phrase has spaces alone between its words, as {parts!r:.60}")  # fmt: skip


class EntryStates:
    """Mean states of a teacher at new entries in sentences, and at words the model knows, on which a map is fitted."""

    def __init__(self, vocabulary: Vocabulary, keys: list[str], settings: AddingSettings) -> None:
        """Take the vocabulary with the new entries, and their keys."""
        self._vocabulary, self._keys, self._settings = vocabulary, keys, settings
        self._new = set(keys)
        self._seen: Counter[str] = Counter()

    def run(
        self, teacher: Embedder, sentences: Corpus, show_progress_bar: bool
    ) -> tuple[list[int], Vectors, Vectors, list[int]]:
        """Return rows of known words, their mean states, those of the new entries, and the entries' occurrences.

        Raises:
            InputError: `teacher` is no SentenceTransformer, the kind that shows its states.
            CorpusError: an entry is in no sentence that the teacher reads whole.
        """
        if not isinstance(teacher, EncoderEmbedder) or not teacher.is_sentence_transformer:
            raise InputError(
                "only a sentence-transformers model reads words in sentences, and the teacher is none; leave the "
                "sentences out"
            )
        texts = self._selected(sentences)
        words = dict.fromkeys(word.text for text in texts for word in self._words(text))
        number_of = {word: number for number, word in enumerate(words)}
        sums, used = self._sums(teacher.model, texts, number_of, show_progress_bar)
        missing = [key for key in self._keys if not used[number_of[key]]]
        if missing:
            raise CorpusError(
                f"the teacher reads {shown_word(missing[0])!r} in no sentence whole; give shorter sentences"
            )
        means = sums / np.maximum(used, 1)[:, None].astype(np.float32)
        known = [word for word in words if word not in self._new and used[number_of[word]]]
        rows = [self._vocabulary.row(word) for word in known]
        entries = [number_of[key] for key in self._keys]
        return rows, means[[number_of[word] for word in known]], means[entries], used[entries].tolist()

    def _words(self, text: str) -> list[Word]:
        """Return the words of `text` that have a row, under the name that the row has."""
        every = self._vocabulary.words
        found = [(word, self._vocabulary.row(word.text)) for word in self._vocabulary.split(text)]
        return [
            Word(every[row], word.start, word.end)
            for word, row in found
            if row >= 0 and every[row] in (word.text, word.text.lower())
        ]

    def _selected(self, sentences: Corpus) -> list[str]:
        """Return the sentences to read: those with an entry that is still needed, and the first few others."""
        texts: list[str] = []
        others, most = 0, self._settings.occurrences
        for sentence in map(well_formed, read_texts(sentences)):
            here = {word.text for word in self._words(sentence)} & self._new
            if any(self._seen[key] < most for key in here):
                self._seen.update(here)
                texts.append(sentence)
            elif not here and others < self._settings.fit_sentences and sentence.strip():
                others += 1
                texts.append(sentence)
            elif others >= self._settings.fit_sentences and min(map(self._seen.__getitem__, self._keys)) >= most:
                break
        missing = [shown_word(key) for key in self._keys if not self._seen[key]]
        if missing:
            raise CorpusError(
                f"{counted(len(missing), 'entry is', 'entries are')} in no sentence, the first "
                f"is {missing[0]!r}; give sentences that hold it, or none at all to have it read by itself"
            )
        return texts

    def _sums(
        self, teacher: Any, texts: list[str], number_of: dict[str, int], show_progress_bar: bool
    ) -> tuple[Vectors, Any]:
        """Return the sums of states [words, D] and how many occurrences they hold [words]."""
        width = int(teacher[0].get_embedding_dimension())
        sums, used = np.zeros((len(number_of), width), np.float32), np.zeros(len(number_of), np.int64)
        batches = length_batches(list(map(len, texts)), self._settings.batch_size)
        with Progress("teacher", total=len(texts), unit="sentences", enabled=show_progress_bar) as progress:
            for batch in ([texts[n] for n in numbers] for numbers in batches):
                _, states, offsets = forward(teacher, batch, self._settings.prompt)
                rows, vectors = word_vectors(batch, list(map(self._words, batch)), states, offsets, number_of)
                np.add.at(sums, rows, vectors)
                np.add.at(used, rows, 1)
                progress.advance(len(batch))
        return sums, used


def _by_themselves(
    model: StaticEmbedder, teacher: Embedder, keys: dict[str, str], settings: AddingSettings
) -> tuple[list[int], Vectors, Vectors]:
    """Return rows of known words, the teacher's vectors of them, and those of the new entries."""
    rows = [row for row, word in enumerate(model.vocabulary.words) if word not in keys and split_words(word)]
    chosen = [rows[n] for n in np.unique(np.linspace(0, len(rows) - 1, settings.fit_words).astype(int))] if rows else []
    texts = [shown_word(model.vocabulary.words[row]) for row in chosen] + [entry.strip() for entry in keys.values()]
    vectors = unit_vectors(teacher, [settings.prompt + text for text in texts])
    return chosen, vectors[: len(chosen)], vectors[len(chosen) :]


def _with_weights(mapped: Vectors, keys: list[str], model: StaticEmbedder) -> Vectors:
    """Give each phrase whose words are all known the length of their sum."""
    for number, key in enumerate(keys):
        rows = [model.vocabulary.row(part) for part in key.split(JOINER)]
        if len(rows) > 1 and min(rows) >= 0:
            length = np.linalg.norm(model.word_vectors(rows).sum(axis=0))
            mapped[number] *= length / max(float(np.linalg.norm(mapped[number])), 1e-12)
    return mapped


def _with_rows(model: StaticEmbedder, vocabulary: Vocabulary, keys: list[str], vectors: Vectors) -> StaticEmbedder:
    """Return the model with `vectors` as the rows of `keys`, in the dtype of its table; other rows are not touched."""
    size = (len(vocabulary), model.get_embedding_dimension())
    table = np.zeros(size, model.vectors.dtype)
    table[: len(model.vocabulary)] = model.vectors
    rows = [vocabulary.row(key) for key in keys]
    scales = None
    if model.scales is not None:
        scales = np.zeros(len(vocabulary), np.float32)
        scales[: len(model.scales)] = model.scales
        table[rows], scales[rows] = quantize(vectors)
    else:
        table[rows] = vectors
    return StaticEmbedder(vocabulary, table, scales, dimensions=model.dimensions)


def _nearest(model: StaticEmbedder, keys: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield the words nearest to each of `keys`, without itself."""
    units = unit_rows(model.word_vectors(np.arange(len(model.vocabulary))))
    own = [model.vocabulary.row(key) for key in keys]
    most = min(_NEAREST + 1, len(units))
    for start in range(0, len(own), _BLOCK):
        block = own[start : start + _BLOCK]
        for row, scores in zip(block, units[block] @ units.T, strict=True):
            best = np.argpartition(-scores, most - 1)[:most]
            best = best[np.argsort(-scores[best], kind="stable")]
            yield tuple(shown_word(model.vocabulary.words[n]) for n in best.tolist() if n != row)[:_NEAREST]
