"""One embedding of a text from the states of a transformer, and its settings.

A masked language model's head has layers before its rows. They are applied to the pooled embedding, as in
"A Text is Worth Several Tokens", not to the states that are pooled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from pellucid.core.embedder import Vectors
from pellucid.errors import InputError
from pellucid.settings import Limits
from pellucid.transformer.attention import base_states, is_causal_lm, lm_head_logits
from pellucid.transformer.backbone import Backbone
from pellucid.transformer.reading import Encoding, ReadingSettings

if TYPE_CHECKING:
    from typing_extensions import Self

PROMPT_EOL = 'This sentence : "{text}" means in one word:"'
"""PromptEOL's template, with the spaces of its authors' code: the next token would be the one word."""


_BATCH_TEXTS = 32  # of one forward pass


@dataclass(frozen=True)
class KeyTokenSettings(ReadingSettings):
    """How texts are read, pooled and decoded ("A Text is Worth Several Tokens", sections 2.1, 2.2 and 3.2).

    Attributes:
        pooling: which states are averaged: "mean", "weighted_mean" (SGPT: the j-th state counts j times), only the
            "last" one, or "prompt_eol": the last one, with the template `PROMPT_EOL` unless another is given.
        start_token: put the tokenizer's start token before the text unless the tokenizer does so itself.
        end_token: put its end token after the text unless the tokenizer does so itself; "last" is then its state.
        special_tokens: average over the states of special tokens and of the template as well. None: for encoders yes,
            as sentence-transformers does, for causal language models no, because their first state is of another size
            than all others.
        through_end: average over what the template puts after the text as well (LLM2Vec).
        normalize: L2-normalise the embedding before it is decoded, for models that were trained so.
        top_k: how many tokens are kept of a text, those with the largest logits; None keeps all.
        signs: "positive" keeps no token whose logit is 0 or less; "signed" keeps the largest `top_k` whatever their
            sign (the paper's Eq. 15).
    """

    template: str | None = None
    end_token: bool | None = False
    pooling: Literal["mean", "weighted_mean", "last", "prompt_eol"] = "mean"
    start_token: bool = False
    special_tokens: bool | None = None
    through_end: bool = False
    normalize: bool = False
    top_k: Annotated[int | None, Limits(1)] = 256
    signs: Literal["positive", "signed"] = "positive"

    def resolved(self, tokenizer: Any, predicts_next: bool, context: int) -> Self:
        """Return these settings with everything set that is left to the model; see `ReadingSettings.resolved`."""
        settings = super().resolved(tokenizer, predicts_next, context)
        asks = self.template is None and self.pooling == "prompt_eol"
        return replace(
            settings,
            template=PROMPT_EOL if asks else settings.template,
            special_tokens=not predicts_next if self.special_tokens is None else self.special_tokens,
        )


def text_embeddings(backbone: Backbone, encodings: Sequence[Encoding], settings: KeyTokenSettings) -> Vectors:
    """Return the pooled last hidden states of some texts, float32 [n, d]; zeros for a text without tokens."""
    import torch

    with torch.inference_mode():
        ids, mask, _ = backbone.padded(encodings)
        rows = pooled_states(base_states(backbone.model, ids, mask).float(), mask, encodings, settings)
    if not np.isfinite(rows).all():
        raise InputError("the backbone gives NaN or infinity; open it with dtype='float32'")
    return rows


def pooled_states(hidden: Any, mask: Any, encodings: Sequence[Encoding], settings: KeyTokenSettings) -> Vectors:
    """Return the embeddings that the states [n, L, d] of some texts become, float32 [n, d]."""
    import torch

    shares = torch.from_numpy(_shares(encodings, mask.cpu().numpy(), settings)).to(hidden.device)
    pooled = torch.einsum("bl,bld->bd", shares, hidden)
    return np.asarray((torch.nn.functional.normalize(pooled, dim=1) if settings.normalize else pooled).cpu().numpy())


def _shares(encodings: Sequence[Encoding], mask: Any, settings: KeyTokenSettings) -> Vectors:
    """Return the share of each state in its text's embedding, [n, L]; rows add up to 1, or to 0 without tokens."""
    shares = np.zeros(mask.shape, np.float32)
    for row, encoding in zip(shares, encodings, strict=True):
        if not encoding.spans:
            continue
        if settings.pooling in ("last", "prompt_eol"):
            row[encoding.last] = 1
            continue
        first, count = encoding.first, len(encoding.spans)
        if settings.special_tokens:
            first, count = 0, len(encoding.ids)
        elif settings.through_end:
            count = len(encoding.ids) - first
        weights = np.arange(1, count + 1) if settings.pooling == "weighted_mean" else np.ones(count)
        row[first : first + count] = weights / weights.sum()
    return shares


def own_tokens(encoding: Encoding) -> list[int]:
    """Return the ids of the text's own tokens, without what is put around them."""
    return encoding.ids[encoding.first : encoding.first + len(encoding.spans)]


def has_layers(backbone: Backbone) -> bool:
    """Whether the head has layers before its rows."""
    return backbone.head_kind == "lm" and not is_causal_lm(backbone.model.config)


def state_width(backbone: Backbone) -> int:
    """Return the length of an embedding: of a state before the head's own layers, if it has any."""
    return int(backbone.model.config.hidden_size) if has_layers(backbone) else backbone.dimension


def before_rows(backbone: Backbone, embeddings: Vectors) -> Vectors:
    """Return what the rows of the head are multiplied with: the embeddings behind the head's own layers, [n, d]."""
    import torch

    if not has_layers(backbone) or not len(embeddings):
        return embeddings
    batches = []
    with torch.inference_mode():
        for start in range(0, len(embeddings), _BATCH_TEXTS):
            part = backbone.tensor(embeddings[start : start + _BATCH_TEXTS])
            batches.append(lm_head_logits(backbone.model, part[:, None])[:, 0].float().cpu().numpy())
    return np.concatenate(batches)
