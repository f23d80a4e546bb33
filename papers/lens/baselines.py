"""What the LENS paper measures itself against, on any backbone and with the same interface (sections 2 and 3.1).

    splade            log(1 + relu(logit)), max over the text's tokens, one dimension a token (Formal et al.)
    echo              the same on a text that is given twice, of which the second is pooled, so that a model that reads
                      from left to right has seen all of it (Mistral-SPLADE, Doshi et al., after Springer et al.)
    promptreps        the logits of the next word after a prompt that asks for one word (Zhuang et al.)
    promptreps_dense  its dense half: the state these logits come from
    dense             the state at the last position, or the mean of the text's own tokens, L2-normalised

Nobody can read the coordinates of a dense vector, so its explanation is one row: the whole vector.
None of them is trained here: the papers' SPLADE and Mistral-SPLADE are, and train on from these with `train_lexicon`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from papers.lens.own_words import OwnWordsEmbedder
from pellucid.core.arrays import Role, l2_normalize
from pellucid.core.embedder import Vectors
from pellucid.core.mixing import finite
from pellucid.errors import InputError, ModelFolderError
from pellucid.lexicon import LexiconSettings
from pellucid.lexicon.clusters import Clusters, cluster_vocabulary
from pellucid.lexicon.embedder import LexiconEmbedder
from pellucid.persistence.store import read_json, write_json
from pellucid.transformer.backbone import Backbone
from pellucid.transformer.embedder import TransformerEmbedder, backbone_config, read_backbone, write_backbone
from pellucid.transformer.reading import Encoding

if TYPE_CHECKING:
    from typing_extensions import Self


DensePooling = Literal["last", "mean"]
_POOLINGS = ("last", "mean")
_FACTS = "dense.json"


class DenseEmbedder(TransformerEmbedder):
    """A text is one state of a transformer, or the mean of several.

    Attributes:
        backbone: the transformer.
        settings: how texts are read, everything decided; its own `pooling` is ignored.
        pooling: "last" or "mean".
    """

    family: ClassVar[str] = "dense"
    settings: LexiconSettings
    truncates: ClassVar[bool] = True  # as far as the transformer was trained for it

    def __init__(
        self, backbone: Backbone, settings: LexiconSettings | None = None, *, pooling: DensePooling = "last"
    ) -> None:
        """Take the states of a backbone as they are.

        Args:
            backbone: from `open_backbone`.
            settings: how texts are read; None reads them plainly. `shift` stays off unless it is set.
            pooling: "last" takes the state at the last position, of the end token where there is one (E5-Mistral's
                way); "mean" the mean over the text's own tokens, without those around it.

        Raises:
            InputError: the pooling is another, or the settings do not fit the tokenizer.
        """
        if pooling not in _POOLINGS:
            raise InputError(f"pooling is {pooling!r:.40}; it must be one of {', '.join(_POOLINGS)}")
        given = settings or LexiconSettings()
        given = replace(given, shift=bool(given.shift))  # a state is about its own token; only logits look ahead
        self._read_with(backbone, given)
        self.pooling = pooling

    @classmethod
    def _read(cls, folder: Path, facts: Mapping[str, Any], *, backbone: Backbone | str | Path | None = None) -> Self:
        described = read_json(folder / _FACTS)
        try:
            settings, pooling = LexiconSettings(**described["settings"]), described["pooling"]
            known = np.array(described["fingerprint"], np.float64)
            expected = finite(known, (-1,), f"{folder / _FACTS}: 'fingerprint'")
            return cls(read_backbone(folder, facts, backbone, expected), settings, pooling=pooling)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, ModelFolderError):
                raise
            raise ModelFolderError(f"{folder / _FACTS} does not describe a dense model: {error!r:.300}") from error

    def _write(self, folder: Path, *, backbone_name: str | None = None, dtype: str = "float32") -> dict[str, Any]:
        write_backbone(folder, self.backbone, None)
        known = [round(value, 6) for value in self.backbone.fingerprint().tolist()]
        described = {"settings": asdict(self.settings), "pooling": self.pooling, "fingerprint": known}
        write_json(folder / _FACTS, described)
        own = {"dimensions": self.get_embedding_dimension(), "pooling": self.pooling}
        return own | backbone_config(self.backbone, None)

    def identity(self) -> dict[str, Any]:
        """Return all that the vectors depend on, for `fingerprint`."""
        return {**super().identity(), "pooling": self.pooling}

    def get_embedding_dimension(self) -> int:
        """Return the length of a state."""
        return self.backbone.dimension if self.backbone.predicts_next else int(self.backbone.model.config.hidden_size)

    def with_settings(self, settings: LexiconSettings) -> Self:
        """Return the same model with other settings."""
        return type(self)(self.backbone, settings, pooling=self.pooling)

    def _encode(self, texts: list[str], role: Role, *, batch_size: int, show_progress_bar: bool) -> Vectors:
        """Return float32 [texts, d], rows of length 1, and 0 for a text without tokens."""
        rows = np.zeros((len(texts), self.get_embedding_dimension()), np.float32)
        for batch, readings in self._batches(texts, role, batch_size, show_progress_bar):
            rows[batch] = self._pooled(readings)
        if not np.isfinite(rows).all():
            raise InputError("the backbone gives NaN or infinity; open it with dtype='float32'")
        units: Vectors = l2_normalize(rows)
        return units

    def _pooled(self, readings: Sequence[Encoding]) -> Vectors:
        """Return the pooled states of some texts, float32 [B, d]."""
        import torch

        with torch.inference_mode():
            ids, mask, own = self.backbone.padded(readings)
            hidden = self._states(ids, mask).float()
            if self.pooling == "mean":
                counts = own.sum(dim=1, keepdim=True).clamp(min=1)
                pooled = (hidden * own[:, :, None]).sum(dim=1) / counts
            else:
                last = torch.tensor([reading.last for reading in readings], device=hidden.device)
                pooled = hidden[torch.arange(len(last), device=hidden.device), last.clamp(min=0)] * (last >= 0)[:, None]
        rows: Vectors = pooled.cpu().numpy()
        return rows

    def _states(self, ids: Any, mask: Any) -> Any:
        """Return the transformer's last states [B, L, d]; of an encoder not what its head makes of them."""
        if self.backbone.predicts_next:
            return self.backbone.states(ids, mask)
        return self.backbone.model.base_model(input_ids=ids, attention_mask=mask).last_hidden_state

    def _strongest(self, text: str, top_k: int) -> list[str]:
        """Say that nothing can be said."""
        return ["a dense vector, whose dimensions have no names"]


ECHO_SETTINGS = LexiconSettings(
    template="Document: {text}\nDocument again: {text}",
    query_template="Query: {text}\nQuery again: {text}",
    instructed_template="Instruct: {instruction},\nQuery: {text}\nQuery again: {text}",
)
"""The templates of "Repetition Improves Language Model Embeddings", with the space that their tokenizer puts in."""

_SYSTEM = "You are an AI assistant that can understand human language."
_ASKED = (
    '{kind}: "{{text}}". Use one most important word to represent the {noun} in retrieval task. '
    "Make sure your word is in lowercase."
)
_ANSWER = 'The word is: "'
_MOST_WORDS = 128  # tokens of a text that PromptReps keeps


def splade(backbone: Backbone) -> LexiconEmbedder:
    """Return a model with one dimension for each token of the vocabulary: a lexicon model without clusters.

    As everywhere here, special tokens are not pooled; SPLADE pools them.
    """
    return LexiconEmbedder(backbone, _unclustered(backbone))


def echo(backbone: Backbone) -> LexiconEmbedder:
    """Return a model that is given each text twice and pools the second time; a text may have half of `max_length`.

    Args:
        backbone: a causal language model with attention="causal"; where attention looks both ways the first time is
            of no use.
    """
    return LexiconEmbedder(backbone, _unclustered(backbone), ECHO_SETTINGS)


def promptreps(backbone: Backbone, *, max_length: int | None = None) -> LexiconEmbedder:
    """Return PromptReps' sparse half: a text weighs its own words by how likely they are the one word asked for.

    Kept are the tokens of the text's own words (`own_words.py`), at most 128. Unlike in the published
    code the weights are not rounded to whole hundredths, and the score is the cosine, not the product. Queries are
    asked about as a query, documents as a passage; an instruction is ignored.

    Args:
        backbone: a causal language model with attention="causal", best one that follows instructions: its chat
            template is used where the tokenizer has one.
        max_length: tokens read at most, with the prompt; None is what the model can read, at most 512.

    Raises:
        InputError: the backbone is no causal language model, or attention looks both ways.
    """
    return OwnWordsEmbedder(backbone, _unclustered(backbone), _asking(backbone, max_length))


def promptreps_dense(backbone: Backbone, *, max_length: int | None = None) -> DenseEmbedder:
    """Return PromptReps' dense half: the last state at the position that predicts the word.

    Args:
        backbone: as of `promptreps`.
        max_length: as there.

    Raises:
        InputError: as there.
    """
    return DenseEmbedder(backbone, _asking(backbone, max_length), pooling="last")


def _unclustered(backbone: Backbone) -> Clusters:
    return cluster_vocabulary(backbone.head, backbone.tokenizer, None)


def _asking(backbone: Backbone, max_length: int | None) -> LexiconSettings:
    """Return settings that ask for one word and pool at the position that predicts it."""
    if not backbone.predicts_next or backbone.attention != "causal":
        problem = (
            "reads in both directions: open it with attention='causal'" if backbone.predicts_next else "predicts none"
        )
        raise InputError(f"PromptReps asks a causal language model for the next word; this backbone {problem}")
    document, query = (_prompt(backbone.tokenizer, kind) for kind in ("Passage", "Query"))
    settings = LexiconSettings(pooling="last", shift=True, end_token=False, template=document, query_template=query)
    return replace(settings, instructed_template=query, max_length=max_length, max_active_dims=_MOST_WORDS)


def _prompt(tokenizer: Any, kind: str) -> str:
    """Return the published prompt around `{text}`, in the tokenizer's chat format where it has one."""
    asked = _ASKED.format(kind=kind, noun=kind.lower())
    if not getattr(tokenizer, "chat_template", None):
        return f"{_SYSTEM} {asked} {_ANSWER}"
    from jinja2 import TemplateError

    answer = {"role": "assistant", "content": _ANSWER}
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": asked}, answer]
    try:
        prompt = _rendered(tokenizer, messages)
    except TemplateError:  # no system's turn in this format; the published prompt for Mistral does the same
        prompt = _rendered(tokenizer, [{"role": "user", "content": f"{_SYSTEM} {asked}"}, answer])
    return prompt.removeprefix(tokenizer.bos_token or "")  # the reader puts it there


def _rendered(tokenizer: Any, messages: list[dict[str, str]]) -> str:
    return str(tokenizer.apply_chat_template(messages, tokenize=False, continue_final_message=True))
