"""The words of a text itself: the only ones that a PromptReps embedding weighs.

PromptReps (Zhuang et al., section 3) looks at the logits of one position, where most of a vocabulary has some weight,
and keeps the tokens of the words that occur in the text, lower-cased, without function words and punctuation. A text
of function words alone keeps its ten strongest tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError
from pellucid.words import split_words

if TYPE_CHECKING:
    from pellucid.base import Vectors
    from pellucid.transformer.reading import Reading

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
    """Return the ids of the tokens that the words of `text` are written with, each word by itself and in lower case.

    Args:
        text: all of it counts, also what is longer than the model reads.
        tokenizer: of tokenizers.
    """
    words = dict.fromkeys(word.text.lower() for word in split_words(text))
    kept = [word for word in words if word not in FUNCTION_WORDS]
    encoded = tokenizer.encode_batch(kept, add_special_tokens=False) if kept else []
    return tuple(dict.fromkeys(token for one in encoded for token in one.ids))


def kept_own_words(weights: Vectors, readings: Sequence[Reading], assignment: npt.NDArray[np.int64]) -> Vectors:
    """Return weights [texts, k] without those of words that a text does not have, where its reading names any.

    Args:
        weights: float32 [texts, k], of 0 or more; changed in place.
        readings: one a text.
        assignment: int64 [vocabulary], the cluster of each token, -1 for none.

    Raises:
        InputError: the clusters do not know their tokens.
    """
    for row, reading in zip(weights, readings, strict=True):
        if reading.words is None:
            continue
        if not len(assignment):
            raise InputError("own_words needs clusters that know their tokens; these have centroids alone")
        found = assignment[list(reading.words)]
        columns = found[found >= 0]
        if not len(columns):
            columns = np.argsort(-row, kind="stable")[:_WITHOUT_WORDS]
        left_out = np.ones(len(row), bool)
        left_out[columns] = False
        row[left_out] = 0
    return weights
