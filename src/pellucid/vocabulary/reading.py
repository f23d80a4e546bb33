"""A teacher's mean states at the places of words and phrases in sentences, for adding them to a static model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.base import Vectors
from pellucid.corpus import Corpus, read_texts
from pellucid.encoders import is_sentence_transformer
from pellucid.errors import CorpusError, InputError
from pellucid.progress import Progress
from pellucid.views.report import counted
from pellucid.words import Vocabulary, Word, shown_word, well_formed


@dataclass(frozen=True)
class AddingSettings:
    """How words are added.

    Attributes:
        occurrences: with sentences, read so many that hold an entry; more only where another entry stands in them.
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


class Reading:
    """The teacher's reading of the sentences that hold new entries, and of some others for the words of the model."""

    def __init__(self, vocabulary: Vocabulary, keys: list[str], settings: AddingSettings) -> None:
        """Take the vocabulary with the new entries, and their keys."""
        self._vocabulary, self._keys, self._settings = vocabulary, keys, settings
        self._new = set(keys)
        self._seen: Counter[str] = Counter()

    def run(
        self, teacher: Any, sentences: Corpus, show_progress_bar: bool
    ) -> tuple[list[int], Vectors, Vectors, list[int]]:
        """Return rows of known words, their mean states, those of the new entries, and the entries' occurrences.

        Raises:
            InputError: `teacher` is no SentenceTransformer, the kind that shows its states.
            CorpusError: an entry stands in no sentence that the teacher reads whole.
        """
        if not is_sentence_transformer(teacher):
            raise InputError(
                "only a sentence-transformers model reads words in sentences, and the teacher is none; leave the "
                "sentences out"
            )
        texts = self._selected(sentences)
        words = dict.fromkeys(word.text for text in texts for word in self._words(text))
        number_of = {word: number for number, word in enumerate(words)}
        sums, used = self._sums(teacher, texts, number_of, show_progress_bar)
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
                f"{counted(len(missing), 'entry stands', 'entries stand')} in no sentence, the first "
                f"is {missing[0]!r}; give sentences that hold it, or none at all to have it read by itself"
            )
        return texts

    def _sums(
        self, teacher: Any, texts: list[str], number_of: dict[str, int], show_progress_bar: bool
    ) -> tuple[Vectors, Any]:
        """Return the sums of states [words, D] and how many occurrences they hold [words]."""
        from pellucid.distillation.teacher import forward, word_vectors

        width = int(teacher[0].get_embedding_dimension())
        sums, used = np.zeros((len(number_of), width), np.float32), np.zeros(len(number_of), np.int64)
        ordered = sorted(texts, key=len)
        size = self._settings.batch_size
        with Progress("teacher", total=len(texts), unit="sentences", enabled=show_progress_bar) as progress:
            for start in range(0, len(ordered), size):
                batch = ordered[start : start + size]
                _, states, offsets = forward(teacher, batch, self._settings.prompt)
                rows, vectors = word_vectors(batch, list(map(self._words, batch)), states, offsets, number_of)
                np.add.at(sums, rows, vectors)
                np.add.at(used, rows, 1)
                progress.advance(len(batch))
        return sums, used
