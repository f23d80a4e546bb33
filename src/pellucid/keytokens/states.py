"""One embedding a text from a transformer's states, and what its vocabulary head makes of it.

The embedding is what an embedder based on the model would give: a mean of the last hidden states, or one of them.
A head over masked tokens has layers of its own before its rows; they are applied to the pooled embedding, as
"A Text is Worth Several Tokens" does, not to the states that are pooled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid.base import Vectors
from pellucid.errors import InputError
from pellucid.keytokens.settings import KeyTokenSettings
from pellucid.progress import Progress
from pellucid.transformer.attention import base_states, is_causal_lm, through_head
from pellucid.transformer.backbone import Backbone
from pellucid.transformer.reading import Reader, Reading

_BATCH = 32  # texts of one forward pass
_BLOCK = 4_096  # texts sorted by length together


def embed_texts(
    backbone: Backbone,
    reader: Reader,
    settings: KeyTokenSettings,
    texts: Sequence[str],
    instructed: bool,
    progress: Progress,
) -> Vectors:
    """Return the embeddings of any number of texts, float32 [n, d], the longest of a block first through the model.

    Args:
        backbone: the transformer.
        reader: with `settings.reading()`.
        settings: decided ones.
        texts: checked.
        instructed: tell the model the instruction, if there is one.
        progress: is told how many texts are done.

    Raises:
        InputError: the backbone gives NaN or infinity, or no room is left for a text.
    """
    found = np.zeros((len(texts), state_width(backbone)), np.float32)
    cut: list[int] = []
    for start in range(0, len(texts), _BLOCK):
        readings = reader.read(texts[start : start + _BLOCK], instructed=instructed)
        cut += [reading.cut for reading in readings if reading.cut]
        order = np.argsort([-len(reading.ids) for reading in readings], kind="stable")
        for first in range(0, len(order), _BATCH):
            chosen = order[first : first + _BATCH]
            found[start + chosen] = text_embeddings(backbone, [readings[n] for n in chosen], settings)
            progress.advance(len(chosen))
    reader.warn_of_cut(cut, len(texts), stacklevel=5)
    if not np.isfinite(found).all():
        raise InputError("the backbone gives NaN or infinity; open it with dtype='float32'")
    return found


def text_embeddings(backbone: Backbone, readings: Sequence[Reading], settings: KeyTokenSettings) -> Vectors:
    """Return the pooled last hidden states of some texts, float32 [n, d]; zeros for a text without tokens.

    Args:
        backbone: the transformer.
        readings: at least one, of a `Reader` with `settings.reading()`.
        settings: decided ones.
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
