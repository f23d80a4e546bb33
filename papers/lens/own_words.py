"""Lexicon models that keep of a text the coordinates of its own words alone, as PromptReps does (Zhuang et al.)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.embedder import Vectors
from pellucid.errors import InputError
from pellucid.lexicon import LexiconEmbedder
from pellucid.text.unicode import canonicalize, lowercase
from pellucid.text.words import Span, split_words
from pellucid.transformer.backbone import Backbone
from pellucid.transformer.reading import Encoding, Reader, ReadingSettings

_WITHOUT_WORDS = 10  # tokens, as in the published code

FUNCTION_WORDS = frozenset(
    """
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves this that these those who whom whose which what when where
    why how am is are was were be been being have has had having do does did doing done will would shall should can
    could may might must a an the and or nor but if then else than because as until while though although since so of
    at by for with without within about against between among into onto through during before after above below to
    from up down in out on off over under upon per via again further once here there now just only own same too very
    not no yes all any both each every either neither few more most other another some such also ever never always
    s t d m o re ve ll don didn doesn isn aren wasn weren won wouldn shouldn couldn hasn haven hadn ain mustn needn
    """.split()
)
"""English words that carry no topic. The published code takes NLTK's list, which is about the same."""


def own_word_ids(text: str, tokenizer: Any) -> tuple[int, ...]:
    """Return the ids of the tokens that all words of `text` are written with, each word alone and in lower case."""
    words = dict.fromkeys(lowercase(word.text) for word in split_words(text))
    content_words = [word for word in words if word not in FUNCTION_WORDS]
    encodings = tokenizer.encode_batch(content_words, add_special_tokens=False) if content_words else []
    return tuple(dict.fromkeys(token for encoding in encodings for token in encoding.ids))


def keep_own_words(weights: Vectors, readings: Sequence[Any], assignment: npt.NDArray[np.int64]) -> Vectors:
    """Set weights [texts, k] to 0 for clusters without a word of the text."""
    for row, encoding in zip(weights, readings, strict=True):
        if not len(assignment):
            raise InputError("own words need clusters that know their tokens; these have only centroids")
        word_clusters = assignment[list(encoding.words)]
        columns = word_clusters[word_clusters >= 0]
        if not len(columns):
            columns = np.argsort(-row, kind="stable")[:_WITHOUT_WORDS]
        left_out = np.ones(len(row), bool)
        left_out[columns] = False
        row[left_out] = 0
    return weights


class OwnWordsReading(NamedTuple):
    """An `Encoding` and the ids of the tokens of the text's own words."""

    ids: list[int]
    first: int
    spans: list[Span]
    last: int
    cut: int
    words: tuple[int, ...]


class OwnWordsReader(Reader):
    """A reader that also notes the text's own words."""

    def read(self, texts: Sequence[str], **options: Any) -> list[Any]:
        """Return the encodings of `texts` with their own words."""
        words = (own_word_ids(canonicalize(text), self._plain) for text in texts)
        return [OwnWordsReading(*encoding, own) for encoding, own in zip(super().read(texts, **options), words)]


class OwnWordsEmbedder(LexiconEmbedder):
    """A lexicon model that keeps only the coordinates of a text's own words, function words excepted."""

    def _read_with(self, backbone: Backbone, settings: ReadingSettings) -> None:
        super()._read_with(backbone, settings)
        self._reader = OwnWordsReader(backbone.tokenizer, self.settings)

    def _weights(self, encodings: Sequence[Encoding]) -> tuple[Vectors, npt.NDArray[np.int64]]:
        weights, fired = super()._weights(encodings)
        return keep_own_words(weights, encodings, self.clusters.assignment), fired

    def _write(self, folder: Path, **options: Any) -> dict[str, Any]:
        raise InputError("a model of a text's own words is not saved: it would be opened as a plain lexicon model")
