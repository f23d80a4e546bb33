"""Several poolings of one forward pass, for tables in which embedders differ in their pooling alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pellucid.core.embedder import Vectors
from pellucid.errors import InputError
from pellucid.keytokens.states import KeyTokenSettings, pooled_states
from pellucid.transformer.attention import base_states
from pellucid.transformer.backbone import Backbone
from pellucid.transformer.reading import Encoding


def pooled_embeddings(
    backbone: Backbone, readings: Sequence[Encoding], several: Sequence[KeyTokenSettings]
) -> list[Vectors]:
    """Return the embeddings of some texts under several settings that read texts alike, of one forward pass.

    Args:
        backbone: the transformer.
        readings: at least one, `KeyTokenEmbedder.encodings` of any of the settings.
        several: decided ones, such as the `settings` of embedders that differ in their pooling alone.

    Returns:
        for each of the settings float32 [n, d], as `KeyTokenEmbedder.embed` gives it.

    Raises:
        InputError: the backbone gives NaN or infinity.
    """
    import torch

    with torch.inference_mode():
        ids, mask, _ = backbone.padded(readings)
        hidden = base_states(backbone.model, ids, mask).float()
        found = [pooled_states(hidden, mask, readings, one) for one in several]
    if not all(np.isfinite(rows).all() for rows in found):
        raise InputError("the backbone gives NaN or infinity; open it with dtype='float32'")
    return found
