"""What a score of a model means: the scores of unrelated texts that are as long."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import Role
from pellucid.text.function_words import function_words
from pellucid.text.sentences import bundled_sentences
from pellucid.text.unicode import lowercase
from pellucid.text.words import split_words

MAX_WORDS = (4, 15, 40)
"""Of a text of each class of lengths but the last: scores of long texts are higher, those of short ones vary more."""
N_TEXTS = 60  # of a class; with 300 the shares of unrelated pairs above a percentile differ by less than one in 100
_JOINED = 4  # sentences of the longest class that are one text of the last: few sentences are that long

_ARRAYS: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()  # by model: rows of a class, scores of two


def background(model: Any, texts: Sequence[str], roles: Sequence[Role]) -> npt.NDArray[np.float64]:
    """Return the scores of unrelated texts for two texts that a model reads in two roles, see `Embedder.background`."""
    words = [[lowercase(word.text) for word in split_words(text)] for text in texts]
    is_latin = all(2 * len(text.encode("ascii", "ignore")) >= len(text) for text in texts)
    if (
        not is_latin or not all(words) or any(function_words(of_text) is not function_words(()) for of_text in words)
    ):  # of English
        return np.zeros(0)
    arrays = _ARRAYS.setdefault(model, {})
    keys = tuple((bisect_left(MAX_WORDS, len(of_text)), role) for of_text, role in zip(words, roles))
    for length_class, role in {*keys} - arrays.keys():
        arrays[length_class, role] = model._encode_each(_texts(length_class), [role] * N_TEXTS)
    if keys not in arrays:
        similarities = np.asarray(model.similarity(*map(arrays.__getitem__, keys)), np.float64)
        arrays[keys] = np.sort(similarities[~np.eye(N_TEXTS, dtype=bool)])  # of no text with itself
    return np.asarray(arrays[keys])


@cache
def _texts(length_class: int) -> list[str]:
    """Return English texts of a class on different subjects: sentences, or several of them joined."""
    n_joined, of_class = (_JOINED, length_class - 1) if length_class == len(MAX_WORDS) else (1, length_class)
    sentences = [text for text in bundled_sentences()[0] if bisect_left(MAX_WORDS, len(split_words(text))) == of_class]
    selected = random.Random(0).sample(sentences, N_TEXTS * n_joined)
    return [" ".join(selected[number::N_TEXTS]) for number in range(N_TEXTS)]
