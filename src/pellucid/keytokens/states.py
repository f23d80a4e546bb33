"""How a text becomes one embedding, and how many tokens of the vocabulary are kept of it.

One embedding a text from a transformer's states, and what its vocabulary head makes of it.

The embedding is what an embedder based on the model would give: a mean of the last hidden states, or one of them.
A head over masked tokens has layers of its own before its rows; they are applied to the pooled embedding, as
"A Text is Worth Several Tokens" does, not to the states that are pooled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from pellucid.base import Vectors
from pellucid.encoding import Role
from pellucid.errors import InputError
from pellucid.progress import Progress
from pellucid.transformer.attention import base_states, is_causal_lm, through_head
from pellucid.transformer.backbone import Backbone
from pellucid.transformer.reading import Reader, Reading, Settings

KeyPooling = Literal["mean", "weighted_mean", "last", "prompt_eol"]
KEY_POOLINGS = ("mean", "weighted_mean", "last", "prompt_eol")
Signs = Literal["positive", "signed"]
SIGNS = ("positive", "signed")

PROMPT_EOL = 'This sentence : "{text}" means in one word:"'
"""PromptEOL's template, with the spaces of its authors' code: the next token would be the one word."""


@dataclass(frozen=True)
class KeyTokenSettings:
    """How texts are read, pooled and decoded ("A Text is Worth Several Tokens", sections 2.1, 2.2 and 3.2).

    Attributes:
        pooling: which states are averaged: "mean", "weighted_mean" (SGPT: the j-th state counts j times), only the
            "last" one, or "prompt_eol": the last one, behind the template `PROMPT_EOL`.
        start_token: put the tokenizer's start token before the text where the tokenizer does not.
        end_token: put its end token behind the text where the tokenizer does not; "last" is then its state.
        special_tokens: average over the states of special tokens and of the template as well. None: for encoders yes,
            as sentence-transformers does, for causal language models no, because their first state is of another size
            than all others.
        through_end: average over what the template puts behind the text as well (LLM2Vec).
        normalize: bring the embedding to length 1 before it is decoded, for models that were trained so.
        similarity: "cosine" or "dot", what the embedding was trained for; `dense_similarity` follows it.
        template: what a text stands in; `{text}` is replaced by it. None: `PROMPT_EOL` for that pooling, else nothing.
        instructed_template: the same where there is an instruction, which replaces `{instruction}`.
        instruction: the task, told to the model before each text that is no document; "" for none.
        max_length: tokens read at most, with all that stands around the text; a longer text is cut, with a warning.
            None: what the model can read, at most 512.
        top_k: how many tokens are kept of a text, those with the largest logits; None keeps all.
        signs: "positive" keeps no token whose logit is 0 or less; "signed" keeps the largest `top_k` whatever their
            sign (the paper's Eq. 15).
    """

    pooling: KeyPooling = "mean"
    start_token: bool = False
    end_token: bool = False
    special_tokens: bool | None = None
    through_end: bool = False
    normalize: bool = False
    similarity: Literal["cosine", "dot"] = "cosine"
    template: str | None = None
    instructed_template: str = "Instruct: {instruction}\nQuery: {text}"
    instruction: str = ""
    max_length: int | None = None
    top_k: int | None = 256
    signs: Signs = "positive"

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InputError: one is of no use; the message names it.
        """
        for name, allowed in (("pooling", KEY_POOLINGS), ("signs", SIGNS), ("similarity", ("cosine", "dot"))):
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} is {getattr(self, name)!r:.40}; it must be one of {', '.join(allowed)}")
        for name in ("start_token", "end_token", "through_end", "normalize"):
            if type(getattr(self, name)) is not bool:
                raise InputError(f"{name} is {getattr(self, name)!r:.40}; it must be True or False")
        if self.special_tokens is not None and type(self.special_tokens) is not bool:
            raise InputError(f"special_tokens is {self.special_tokens!r:.40}; it must be True, False or None")
        if self.top_k is not None and (type(self.top_k) is not int or self.top_k < 1):
            raise InputError(f"top_k is {self.top_k!r:.40}; it must be a whole number of 1 or more, or None for all")
        self.reading()

    @property
    def takes_last(self) -> bool:
        """Whether the embedding is the state at the last position."""
        return self.pooling in ("last", "prompt_eol")

    def reading(self) -> Settings:
        """Return how a text is read; a start token is what `Settings` calls a shift.

        Raises:
            InputError: a template, the instruction or `max_length` is of no use.
        """
        default = PROMPT_EOL if self.pooling == "prompt_eol" else "{text}"
        return Settings(
            pooling="last",
            shift=self.start_token,
            end_token=self.end_token,
            template=default if self.template is None else self.template,
            instructed_template=self.instructed_template,
            instruction=self.instruction,
            max_length=self.max_length,
        )

    def decided(self, tokenizer: Any, predicts_next: bool, context: int) -> KeyTokenSettings:
        """Return these settings with everything set that is left to the model.

        Args:
            tokenizer: the model's.
            predicts_next: whether it is a causal language model.
            context: tokens the model can read.

        Raises:
            InputError: `max_length` is more than that.
        """
        read = self.reading().decided(tokenizer, predicts_next, context)
        special = not predicts_next if self.special_tokens is None else self.special_tokens
        return replace(self, template=read.template, max_length=read.max_length, special_tokens=special)


_BATCH = 32  # embeddings through the head's own layers at a time
_BLOCK = 4_096  # texts sorted by length together


def embed_texts(
    backbone: Backbone,
    reader: Reader,
    settings: KeyTokenSettings,
    texts: Sequence[str],
    role: Role,
    batch_size: int,
    progress: Progress,
) -> Vectors:
    """Return the embeddings of any number of texts, float32 [n, d], the longest of a block first through the model.

    Args:
        backbone: the transformer.
        reader: with `settings.reading()`.
        settings: decided ones.
        texts: checked.
        role: any but documents are told the instruction, if there is one.
        batch_size: texts of one forward pass.
        progress: is told how many texts are done.

    Raises:
        InputError: the backbone gives NaN or infinity, or no room is left for a text.
    """
    found = np.zeros((len(texts), state_width(backbone)), np.float32)
    cut: list[int] = []
    for start in range(0, len(texts), _BLOCK):
        readings = reader.read_as(texts[start : start + _BLOCK], role)
        cut += [reading.cut for reading in readings if reading.cut]
        order = np.argsort([-len(reading.ids) for reading in readings], kind="stable")
        for first in range(0, len(order), batch_size):
            chosen = order[first : first + batch_size]
            found[start + chosen] = text_embeddings(backbone, [readings[n] for n in chosen], settings)
            progress.advance(len(chosen))
    reader.warn_of_cut(cut, len(texts), stacklevel=6)
    return found


def text_embeddings(backbone: Backbone, readings: Sequence[Reading], settings: KeyTokenSettings) -> Vectors:
    """Return the pooled last hidden states of some texts, float32 [n, d]; zeros for a text without tokens.

    Args:
        backbone: the transformer.
        readings: at least one, of a `Reader` with `settings.reading()`.
        settings: decided ones.

    Raises:
        InputError: the backbone gives NaN or infinity.
    """
    import torch

    with torch.inference_mode():
        ids, mask, _ = backbone.padded(readings)
        hidden = base_states(backbone.model, ids, mask).float()
        shares = _shares(readings, mask.cpu().numpy(), settings)
        pooled = torch.einsum("bl,bld->bd", torch.from_numpy(shares).to(hidden.device), hidden)
        if settings.normalize:
            pooled = torch.nn.functional.normalize(pooled, dim=1)
    found: Vectors = pooled.cpu().numpy()
    if not np.isfinite(found).all():
        raise InputError("the backbone gives NaN or infinity; open it with dtype='float32'")
    return found


def _shares(readings: Sequence[Reading], mask: Any, settings: KeyTokenSettings) -> Vectors:
    """Return the share of each state in its text's embedding, [n, L]; rows add up to 1, or to 0 without tokens."""
    shares = np.zeros(mask.shape, np.float32)
    for row, reading in zip(shares, readings, strict=True):
        if not reading.spans:
            continue
        if settings.takes_last:
            row[reading.last] = 1
            continue
        first, count = reading.first + settings.start_token, len(reading.spans)
        if settings.special_tokens:
            first, count = 0, len(reading.ids)
        elif settings.through_end:
            count = len(reading.ids) - first
        weights = np.arange(1, count + 1) if settings.pooling == "weighted_mean" else np.ones(count)
        row[first : first + count] = weights / weights.sum()
    return shares


def own_tokens(reading: Reading, settings: KeyTokenSettings) -> list[int]:
    """Return the ids of the text's own tokens, without what stands around them."""
    first = reading.first + settings.start_token
    return reading.ids[first : first + len(reading.spans)]


def has_layers(backbone: Backbone) -> bool:
    """Whether the head has layers of its own before its rows."""
    return backbone.head_kind == "lm" and not is_causal_lm(backbone.model.config)


def state_width(backbone: Backbone) -> int:
    """Return the length of an embedding: of a state before the head's own layers, if it has such."""
    return int(backbone.model.config.hidden_size) if has_layers(backbone) else backbone.dimension


def before_rows(backbone: Backbone, embeddings: Vectors) -> Vectors:
    """Return what the rows of the head are multiplied with: the embeddings behind the head's own layers, [n, d]."""
    import torch

    if not has_layers(backbone) or not len(embeddings):
        return embeddings
    parts = []
    with torch.inference_mode():
        for start in range(0, len(embeddings), _BATCH):
            part = backbone.tensor(embeddings[start : start + _BATCH])
            parts.append(through_head(backbone.model, part[:, None])[:, 0].float().cpu().numpy())
    found: Vectors = np.concatenate(parts)
    return found
