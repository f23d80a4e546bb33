"""What the families that run a transformer have in common: how texts are read and batched, and how it is saved.

    backbone/              the transformer and its tokenizer, as transformers writes them; absent where it is named
    adapter/               the adapter that is merged into a named backbone, as peft writes it

A model's `config.json` says which, and how it is opened. A fingerprint, a mean state of the backbone, is kept with the
model: a backbone found by name that gives another one is refused.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import Role
from pellucid.core.dimensions import Mixing, write_dimensions
from pellucid.core.embedder import Embedder
from pellucid.core.fingerprint import check_same
from pellucid.core.mixing import mixing_tensors, read_arrays
from pellucid.errors import InputError, ModelFolderError, shown, warn
from pellucid.persistence.folder import resolve_reference
from pellucid.persistence.store import read_json, write_json, write_tensors
from pellucid.persistence.untrusted import WITHOUT_BARS, check_folder
from pellucid.progress import Progress, length_batches
from pellucid.text.words import Coverage, Span, words_before
from pellucid.transformer.backbone import Backbone, open_backbone, write_adapter
from pellucid.transformer.reading import Encoding, Reader, ReadingSettings

if TYPE_CHECKING:
    from typing_extensions import Self

BACKBONE, ADAPTER = "backbone", "adapter"
_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")  # of a copy, beside its weights
_BLOCK_TEXTS = 4_096  # tokenised and sorted by length together


class TransformerEmbedder(Embedder):
    """A model that runs a transformer; a family adds what it makes of the hidden states.

    Attributes:
        backbone: the transformer.
        settings: how texts are read, with nothing left open.
    """

    _reads_with: ClassVar[str] = "backbone"
    _shapes: ClassVar[Mapping[str, str]]  # of the tensors that a folder holds, see `read_arrays`
    backbone: Backbone
    settings: ReadingSettings
    mixing: Mixing | None

    def _read_with(self, backbone: Backbone, settings: ReadingSettings) -> None:
        self.backbone = backbone
        self.settings = settings.resolved(backbone.tokenizer, backbone.predicts_next, backbone.max_length)
        self._reader = Reader(backbone.tokenizer, self.settings)

    @classmethod
    def from_pretrained(cls, path_or_id: str | Path, *, backbone: Backbone | str | Path | None = None) -> Self:
        """Open a saved model of the family: a bundled name, a folder or a hub id.

        Args:
            path_or_id: where it is.
            backbone: the transformer to use instead of the folder's or the one it names; opened, or a folder or hub id.

        Raises:
            ModelFolderError: nothing is there, its files are broken or do not fit together, or the backbone is another
                one than the model was made with.
        """
        return cls._open(path_or_id, backbone=backbone)

    @classmethod
    def _read(cls, folder: Path, config: Mapping[str, Any], *, backbone: Backbone | str | Path | None = None) -> Self:
        path, described = folder / f"{cls.family}.safetensors", read_json(folder / f"{cls.family}.json")
        tensors = read_arrays(path, cls._shapes)
        opened = read_backbone(folder, config, backbone, tensors["fingerprint"])
        return cls._from_files(opened, described, tensors, path, config)

    @classmethod
    def _from_files(
        cls, backbone: Backbone, described: Any, tensors: dict[str, npt.NDArray[Any]], path: Path,
        config: Mapping[str, Any],
    ) -> Self:  # fmt: skip
        """Return the model of what its files hold; `path` is the one of tensors."""
        raise NotImplementedError

    def _write(self, folder: Path, *, backbone_name: str | None = None, dtype: str = "float32") -> dict[str, Any]:
        described, tensors = self._described(dtype)
        write_backbone(folder, self.backbone, backbone_name, dtype)
        stored = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        stored |= {"fingerprint": self.backbone.fingerprint(), **mixing_tensors(self.mixing)}
        write_tensors(folder / f"{self.family}.safetensors", stored)
        write_json(folder / f"{self.family}.json", {"settings": asdict(self.settings), **described}, indent=None)
        write_dimensions(folder / "dimensions.tsv", self.dimensions)
        return {"dimensions": len(self.dimensions), **backbone_config(self.backbone, backbone_name)}

    def _described(self, dtype: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any] | None]]:
        """Return what the files of JSON and of tensors, as `dtype`, hold of the family's own."""
        raise NotImplementedError

    @abstractmethod
    def with_settings(self, settings: Any) -> Self:
        """Return the same model with other settings: `replace(model.settings, max_length=128)` of dataclasses."""

    def with_instruction(self, instruction: str) -> Self:
        """Return the same model with an instruction before each text that is not a document; "" for none."""
        return self.with_settings(replace(self.settings, instruction=instruction))

    def identity(self) -> dict[str, Any]:
        """Return what every family here depends on; one adds its own."""
        backbone = self.backbone
        read = {"attention": backbone.attention, "head_kind": backbone.head_kind, "settings": self.settings}
        return {**read, "weights": backbone.model, "tokenizer": backbone.tokenizer}

    @property
    def max_seq_length(self) -> int:
        """The most tokens read, special tokens, template and instruction included."""
        return self._reader.max_length

    def _prompted(self, texts: list[str], prompt: str) -> tuple[list[str], Role]:
        if prompt:
            raise InputError(
                f"prompt is {shown(prompt)}; this model has a template for instructions: "
                "model.with_instruction(...) before encode_query. prompt='' leaves the instruction out"
            )
        return texts, "document"

    def encodings(self, texts: list[str], role: Role = None) -> list[Encoding]:
        """Return how the model reads `texts` in a role: any but documents with the instruction where one is set."""
        return self._reader.read(texts, instructed=role != "document")

    def coverage_and_gaps(self, texts: list[str], role: Role = None) -> list[tuple[Coverage, tuple[Span, ...]]]:
        """Return for each text its coverage and the spans that are not known."""
        blocks = (texts[start : start + _BLOCK_TEXTS] for start in range(0, len(texts), _BLOCK_TEXTS))
        return [  # where a text was cut, the words behind did not fit
            words_before(text, encoding.spans[-1][1] if encoding.cut else len(text))
            for block in blocks
            for text, encoding in zip(block, self.encodings(block, role))
        ]

    def _batches(
        self, texts: list[str], role: Role, batch_size: int, show_progress_bar: bool
    ) -> Iterator[tuple[list[int], list[Encoding]]]:
        """Yield batches of texts of about one length: their positions and encodings. Warn at the end of texts cut."""
        cut: list[int] = []
        with Progress("encoding", total=len(texts), enabled=show_progress_bar) as progress:
            for start in range(0, len(texts), _BLOCK_TEXTS):
                encodings = self.encodings(texts[start : start + _BLOCK_TEXTS], role)
                cut += [encoding.cut for encoding in encodings if encoding.cut]
                for batch in length_batches([len(encoding.ids) for encoding in encodings], batch_size):
                    yield [start + n for n in batch], [encodings[n] for n in batch]
                    progress.advance(len(batch))
        if cut:
            warn(
                f"{len(cut)} of {len(texts)} texts are longer than the {self.max_seq_length} tokens the model reads; "
                f"{sum(cut)} tokens at their ends were left out (at most {max(cut)} of one text)"
            )


def stored_settings(kind: type[ReadingSettings], described: Any) -> Any:
    """Return the settings in a file of JSON, of a kind; one that is off and not known may be of another version."""
    stored = described["settings"].items()
    return kind(**{name: value for name, value in stored if value or hasattr(kind, name)})


def backbone_config(backbone: Backbone, name: str | None) -> dict[str, Any]:
    """Return what `config.json` says about a backbone that is kept by `name`, or, where that is None, as a copy."""
    return {
        "backbone": name or BACKBONE,
        "attention": backbone.attention,
        "head": backbone.head_kind,
        "dtype": str(backbone.model.dtype).removeprefix("torch."),
        "adapter": name is not None and backbone.adapter is not None,
    }


def write_backbone(folder: Path, backbone: Backbone, name: str | None, dtype: str = "float32") -> None:
    """Write a copy of the backbone into `folder`, or, where it is kept by name, only its adapter, as `dtype`."""
    if name is None:
        with WITHOUT_BARS:
            backbone.model.save_pretrained(folder / BACKBONE)
            backbone.tokenizer.save_pretrained(folder / BACKBONE)
        check_folder(folder / BACKBONE)  # what is refused when it is read is not written
    elif backbone.adapter is not None:
        config, tensors = backbone.adapter
        write_adapter(folder / ADAPTER, ({**config, "base_model_name_or_path": name}, tensors), dtype)


def read_backbone(
    folder: Path, config: Mapping[str, Any], instead: Backbone | str | Path | None, fingerprint: npt.NDArray[np.float32]
) -> Backbone:
    """Return the transformer in the folder, named in its config or given, after checking that it is the same one."""
    opened = instead if isinstance(instead, Backbone) else _open_backbone(folder, config, instead)
    hint = "An adapter may be missing, or the attention be another"
    check_same(f"{folder}: the backbone {opened.name!r}", opened.fingerprint(), fingerprint, hint)
    return opened


def _open_backbone(folder: Path, config: Mapping[str, Any], instead: str | Path | None) -> Backbone:
    name, attention, head = (config.get(key) for key in ("backbone", "attention", "head"))
    if not all(isinstance(value, str) for value in (name, attention, head)):
        raise ModelFolderError(f"{folder / 'config.json'} must name the backbone, its attention and its head")
    inside = name == BACKBONE and instead is None
    where = folder / BACKBONE if inside else (instead or resolve_reference(folder, str(name)))
    missing = [file for file in _FILES if inside and not (folder / BACKBONE / file).is_file()]
    if missing:
        raise ModelFolderError(f"file not found: {folder / BACKBONE / missing[0]}")
    adapter = folder / ADAPTER if not inside and (folder / ADAPTER).exists() else None
    if adapter is None and config.get("adapter", False) and instead is None:
        raise ModelFolderError(f"{folder} was saved with an adapter, and there is no {folder / ADAPTER}")
    dtype = config.get("dtype", "float32")
    try:
        opened = open_backbone(where, attention=attention, head=head, adapter=adapter, dtype=dtype)  # type: ignore[arg-type]
    except InputError as error:
        raise ModelFolderError(f"{folder}: its backbone {str(where)!r} cannot be used: {error}") from error
    except ModelFolderError as error:
        if inside or instead is not None:
            raise
        hint = f"If you have it in a folder, give it: from_pretrained({str(folder)!r}, backbone='the/folder')"
        raise ModelFolderError(f"{folder} needs the transformer {name!r}. {hint}. {error}") from error
    return replace(opened, name=str(instead or where if inside or instead else name))
