"""How texts become lexicon embeddings: pooling, shift, and which coordinates of a text are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pellucid.errors import InputError, check_choice, check_numbers
from pellucid.text import split_words
from pellucid.transformer.reading import Reading, ReadingSettings

if TYPE_CHECKING:
    from typing_extensions import Self

    from pellucid.base import Vectors

Pooling = Literal["max", "sum", "last"]
POOLINGS = ("max", "sum", "last")


@dataclass(frozen=True)
class LexiconSettings(ReadingSettings):
    """How texts become lexicon embeddings (LENS paper, section 3.2.2).

    Attributes:
        pooling: how the weights of the text's tokens become one: their "max" or "sum", or the weights at the "last"
            position, after the whole text.
        shift: use for a token the state at the position before it, which is where a causal language model predicts
            it. None: for causal language models yes, for encoders no. With it, `end_token=False` also removes the end
            token that the tokenizer adds by itself.
        takes_instruction: whether the model was trained with instructions.
        own_words: keep only the coordinates of the text's own words, function words excepted (PromptReps).
        max_active_dims: keep only so many of the largest coordinates of each text; None keeps all.
    """

    pooling: Pooling = "max"
    shift: bool | None = None
    takes_instruction: bool = False
    own_words: bool = False
    max_active_dims: int | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InputError: a value is not allowed; the message names it.
        """
        super().__post_init__()
        if self.template is None:
            raise InputError("template is None; it must be a string")
        check_choice(self, POOLINGS, "pooling")
        check_choice(self, (True, False, None), "shift")
        check_choice(self, (True, False), "takes_instruction", "own_words")
        check_numbers(self, "max_active_dims", least=1, whole=True, optional=True)

    @property
    def adds_start(self) -> bool:
        """Whether there must be a token before the text: with a shift, the first token's state is there."""
        return bool(self.shift)

    @property
    def looks_back(self) -> bool:
        """Whether a token's state is the one at the position before it."""
        return bool(self.shift)

    def kept_tokens(self, text: str, tokenizer: Tokenizer) -> tuple[int, ...] | None:
        """Return the ids of the tokens of the text's own words, where only they are kept."""
        return own_word_ids(text, tokenizer) if self.own_words else None

    def decided(self, tokenizer: Any, predicts_next: bool, context: int) -> Self:
        """Return these settings with everything set that is left to the model; see `ReadingSettings.decided`."""
        settings = super().decided(tokenizer, predicts_next, context)
        return replace(settings, shift=predicts_next if self.shift is None else self.shift)


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
    """Return the ids of the tokens that all words of `text` are written with, each by itself and in lower case."""
    words = dict.fromkeys(word.text.lower() for word in split_words(text))
    kept = [word for word in words if word not in FUNCTION_WORDS]
    encoded = tokenizer.encode_batch(kept, add_special_tokens=False) if kept else []
    return tuple(dict.fromkeys(token for one in encoded for token in one.ids))


def kept_own_words(weights: Vectors, readings: Sequence[Reading], assignment: npt.NDArray[np.int64]) -> Vectors:
    """Set weights [texts, k] to 0 for clusters without a word of the text, where its reading names words."""
    for row, reading in zip(weights, readings, strict=True):
        if reading.words is None:
            continue
        if not len(assignment):
            raise InputError("own_words needs clusters that know their tokens; these have only centroids")
        found = assignment[list(reading.words)]
        columns = found[found >= 0]
        if not len(columns):
            columns = np.argsort(-row, kind="stable")[:_WITHOUT_WORDS]
        left_out = np.ones(len(row), bool)
        left_out[columns] = False
        row[left_out] = 0
    return weights
