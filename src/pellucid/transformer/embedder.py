"""What the families that run a transformer have in common: how texts are read, batched and reported as cut."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pellucid.base import Embedder
from pellucid.embeddings import Role
from pellucid.errors import InputError, warn
from pellucid.progress import Progress, length_batches
from pellucid.text import Coverage, Span
from pellucid.transformer.reading import Reader, Reading, ReadingSettings, known_words

if TYPE_CHECKING:
    from typing_extensions import Self

    from pellucid.transformer.backbone import Backbone

_BLOCK = 4_096  # texts tokenised and sorted by length together


class TransformerEmbedder(Embedder):
    """A model that runs a transformer; a family adds what it makes of the hidden states.

    Attributes:
        backbone: the transformer.
        settings: how texts are read, with nothing left open.
    """

    backbone: Backbone
    settings: ReadingSettings

    def _read_with(self, backbone: Backbone, settings: ReadingSettings) -> None:
        """Set the transformer and how it reads texts."""
        self.backbone = backbone
        self.settings = settings.decided(backbone.tokenizer, backbone.predicts_next, backbone.max_length)
        self._reader = Reader(backbone.tokenizer, self.settings)

    @abstractmethod
    def with_settings(self, settings: Any) -> Self:
        """Return the same model with other settings: `replace(model.settings, max_length=128)` of dataclasses."""

    def with_instruction(self, instruction: str) -> Self:
        """Return the same model with an instruction before each text that is no document; "" for none."""
        return self.with_settings(replace(self.settings, instruction=instruction))

    def _identity(self) -> dict[str, Any]:
        """Return what every family here depends on; one adds its own."""
        backbone = self.backbone
        read = {"attention": backbone.attention, "head_kind": backbone.head_kind, "settings": self.settings}
        return {**read, "weights": backbone.model, "tokenizer": backbone.tokenizer}

    @property
    def device(self) -> str:
        """The backbone's device, as torch names it."""
        return str(self.backbone.device)

    @property
    def max_seq_length(self) -> int:
        """The most tokens read, special tokens, template and instruction included."""
        return self._reader.max_length

    def tokenize(self, texts: list[str]) -> dict[str, Any]:
        """Return "input_ids" and "attention_mask" [texts, L] of texts as `encode` reads them, padded on the right."""
        ids, mask, _ = self.backbone.padded(self._reader.read_as(texts, None))
        return {"input_ids": ids, "attention_mask": mask}

    def _prompted(self, texts: list[str], prompt: str) -> tuple[list[str], Role]:
        if prompt:
            raise InputError(
                f"prompt is {prompt!r:.60}; this model has a template for instructions: "
                "model.with_instruction(...) before encode_query. prompt='' leaves the instruction out"
            )
        return texts, "document"

    def _known(self, texts: list[str], role: Role = None) -> list[tuple[Coverage, tuple[Span, ...]]]:
        found: list[tuple[Coverage, tuple[Span, ...]]] = []
        for start in range(0, len(texts), _BLOCK):
            block = texts[start : start + _BLOCK]
            found += map(known_words, block, self._reader.read_as(block, role))
        return found

    def _batches(
        self, texts: list[str], role: Role, batch_size: int, show_progress_bar: bool
    ) -> Iterator[tuple[list[int], list[Reading]]]:
        """Yield batches of texts of about one length: their positions and readings. Warn at the end of texts cut."""
        cut: list[int] = []
        with Progress("encoding", total=len(texts), enabled=show_progress_bar) as progress:
            for start in range(0, len(texts), _BLOCK):
                readings = self._reader.read_as(texts[start : start + _BLOCK], role)
                cut += [reading.cut for reading in readings if reading.cut]
                for batch in length_batches([len(reading.ids) for reading in readings], batch_size):
                    yield [start + n for n in batch], [readings[n] for n in batch]
                    progress.advance(len(batch))
        if cut:
            warn(
                f"{len(cut)} of {len(texts)} texts are longer than the {self.max_seq_length} tokens the model reads; "
                f"{sum(cut)} tokens at their ends were left out (at most {max(cut)} of one text)"
            )
