"""Anchor embeddings (LDIR): each coordinate of a text is its similarity to an anchor, less what anchors share.

After the LDIR paper, section "Key designs": emb(t)_j = cos(Enc(t), Enc(a_j)) for anchor texts a_1 ... a_n under any
frozen encoder; `decorrelate` takes out what the anchors share. The similarity of two texts is the cosine of their
coordinates, and so exactly a sum over anchors:

    sim(s, t) = sum over j of  emb(s)_j emb(t)_j / (|emb(s)| |emb(t)|)

How anchors are chosen is in `sampling.py`. On disk:

    config.json        the family, and the encoder: a copy, its name, or that it was a callable
    encoder/           a copy of the encoder; absent where it is named, or a callable
    anchors/           a stock Dense module whose rows are the anchors
    anchors.json       the anchor texts, and the encoder's vector of the first, by which another encoder is noticed
    dimensions.tsv     the anchors, for people: a text that was changed in it is encoded again when the model is opened

With an encoder that sentence-transformers can open (one of its own, a static model, anchors over these) it opens the
folder too: the encoder's modules, Normalize and Dense.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import Role, l2_normalize
from pellucid.core.dimensions import (
    Dimension,
    Dimensions,
    Edit,
    read_dimensions,
    scaling,
    write_dimensions,
)
from pellucid.core.embedder import Embedder, Vectors
from pellucid.core.fingerprint import check_same
from pellucid.core.mixing import finite
from pellucid.dense.embedder import FUNCTION, PELLUCID, SENTENCE_TRANSFORMERS, save_copy
from pellucid.dense.onnx import FILE as ONNX_FILE
from pellucid.dense.vectors import unit_vectors
from pellucid.errors import InputError, ModelFolderError, check_number, warn
from pellucid.loading import load
from pellucid.persistence.folder import resolve_reference
from pellucid.persistence.store import is_sound, read_json, read_tensors, write_json, write_tensors
from pellucid.text.inputs import check_texts
from pellucid.text.lines import read_lines
from pellucid.text.words import Coverage, Span

if TYPE_CHECKING:
    from typing_extensions import Self

_MAX_COORDINATE = 1e15  # the squares of coordinates stay within float32
_DENSE = "anchors"  # the folder of the Dense module
_WEIGHT = "linear.weight"
_ENCODER = "encoder"  # the folder of a copy of the encoder
_MODULES, _PROMPTS = "modules.json", "config_sentence_transformers.json"  # of a SentenceTransformer
_MAX_LIST = 1 << 28  # bytes
_IDENTITY = "torch.nn.modules.linear.Identity"


def read_anchors(path: str | Path) -> list[str]:
    """Read anchor texts: a JSON list, a JSON object of them in order (the authors' published form), or a line each.

    Raises:
        CorpusError: a file of lines is missing or no UTF-8.
        ModelFolderError: the file is missing, no JSON of that form, or holds no text.
    """
    is_json = Path(path).suffix.lower() == ".json"
    loaded = read_json(path, max_bytes=_MAX_LIST) if is_json else list(read_lines(Path(path), "anchors"))
    texts = list(loaded.values()) if isinstance(loaded, dict) else loaded
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ModelFolderError(f"{path} must hold a list of texts, or an object whose values are texts")
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise ModelFolderError(f"{path} holds no text")
    return texts


class AnchorEmbedder(Embedder):
    """A text is its cosines to n anchor texts.

    A row of an explanation is an anchor, all of them; coverage and what is unknown are the encoder's. Which words make
    a text similar to an anchor: `model.encoder.explain(text, anchor)`, where the encoder is a pellucid model.

    Attributes:
        encoder: the model that the cosines are taken under; a SentenceTransformer or callable is its `encoder.model`.
        encoder_name: what the encoder is saved as instead of a copy; set when a model is opened that was saved so.
        vectors: float32 [n, d], one row an anchor; its length is the anchor's weight: 1 unless edited.
    """

    family: ClassVar[str] = "anchors"
    _reads_with: ClassVar[str] = "encoder"

    def __init__(self, encoder: Any, anchors: Sequence[str]) -> None:
        """Encode the anchors.

        Args:
            encoder: what `pellucid.load` takes: a name, a SentenceTransformer, a pellucid model, or a callable: list of
                texts -> array [texts, d].
            anchors: the anchor texts, each once; `read_anchors` reads them from a file.

        Raises:
            InputError: no anchors, one twice, or one that the encoder maps to zero.
        """
        texts = check_texts([anchors] if isinstance(anchors, str) else anchors)
        if not texts:
            raise InputError("an anchor model needs at least one anchor text")
        names = [" ".join(text.split()) for text in texts]
        self._dimensions = Dimensions(Dimension(name, (text,)) for name, text in zip(names, texts))
        self.encoder = load(encoder)
        self.encoder_name: str | None = None
        self.vectors = np.ascontiguousarray(anchor_vectors(self.encoder, texts))

    @classmethod
    def from_parts(
        cls, encoder: Any, vectors: Vectors, dimensions: Dimensions, encoder_name: str | None = None
    ) -> Self:
        """Return a model of anchors that are encoded already.

        Args:
            encoder: as in the constructor.
            vectors: float32 [n, d]; a row's direction is the encoded anchor, its length the weight.
            dimensions: n of them.
            encoder_name: see the attribute.

        Raises:
            InputError: the numbers of vectors and dimensions differ, a dimension has no anchor text, or a number in
                `vectors` is NaN, infinite or beyond 1e15.
        """
        if vectors.ndim != 2 or len(vectors) != len(dimensions):
            raise InputError(f"{len(dimensions)} dimensions need as many vectors, got shape {vectors.shape}")
        if not all(dimension.about for dimension in dimensions):
            raise InputError("a dimension of an anchor model needs its anchor text in `about`")
        if not is_sound(vectors, _MAX_COORDINATE):
            raise InputError(f"the anchors' vectors hold NaN, infinity or numbers beyond {_MAX_COORDINATE:g}")
        model = cls.__new__(cls)
        model.encoder, model.encoder_name = load(encoder), encoder_name
        # Laid out otherwise, BLAS rounds otherwise: an edited model would differ from itself, saved and opened.
        model.vectors, model._dimensions = np.require(vectors, np.float32, ["C", "A"]), dimensions
        return model

    @classmethod
    def from_pretrained(cls, path_or_id: str | Path, *, encoder: Any = None) -> Self:
        """Open an anchor model: a bundled name, a saved folder or a hub id.

        Args:
            path_or_id: where it is.
            encoder: what to use instead of the folder's, as for the constructor; needed where it was a callable.

        Raises:
            ModelFolderError: nothing is there, its files are broken or do not fit together, or the encoder is missing
                or another one than the anchors were made with.
        """
        return cls._open(path_or_id, encoder=encoder)

    @classmethod
    def _read(cls, folder: Path, config: Mapping[str, Any], encoder: Any = None) -> Self:
        name = config.get("encoder")
        path = folder / _DENSE / "model.safetensors"
        vectors = finite(read_tensors(path)[0].get(_WEIGHT, np.zeros(0)), (-1, -1), f"{path}: {_WEIGHT!r}")
        anchor_texts, first = _read_record(folder / "anchors.json", vectors.shape)
        dimensions, scales = read_dimensions(folder / "dimensions.tsv", len(vectors), anchor_texts)
        opened = _read_encoder(folder, name) if encoder is None else load(encoder)
        now = unit_vectors(opened, [anchor_texts[0][0]], dimension=len(first))[0]
        hint = "Give the encoder that the anchors were made with"
        check_same(f"{folder}: the encoder, by its vector for the first anchor,", now, first, hint)
        try:
            vectors, dimensions = _with_edits(opened, vectors, anchor_texts, dimensions, scales)
        except InputError as error:
            raise ModelFolderError(f"{folder / 'dimensions.tsv'}: {error}") from error
        return cls.from_parts(
            opened, vectors, dimensions, None if name in (SENTENCE_TRANSFORMERS, PELLUCID, FUNCTION) else name
        )

    def save_pretrained(self, path: str | Path, *, encoder_name: str | None = None) -> None:
        """Write the model to folder `path`, whole or not at all.

        With a copy of a SentenceTransformer or static model as encoder, or of anchors over one, plain
        sentence-transformers opens the folder and gives the same coordinates; over a static model as far as that
        library knows the words (see `StaticEmbedder.save_pretrained`). `dimensions.tsv` holds the anchors and may be
        edited (docs/anchors.md). There is a warning where stock modules cannot express the encoder.

        Args:
            path: the folder; a model that is there is replaced in one step.
            encoder_name: keep no copy of the encoder but this name of it: of a bundled model, or a hub id. Loading then
                finds it by name, and plain sentence-transformers cannot open the folder. "" writes a copy. None does
                as the folder does that the model was opened from, and otherwise writes a copy.

        Raises:
            WritingError: it cannot be written; what was at `path` is untouched.
        """
        self._save(path, encoder_name=self.encoder_name if encoder_name is None else encoder_name)

    def _write(self, folder: Path, encoder_name: str = "") -> dict[str, Any]:
        rows, columns = self.vectors.shape
        encoder = encoder_name or save_copy(self.encoder, folder / _ENCODER)
        is_stock = (folder / _ENCODER / _MODULES).exists() and not (folder / _ENCODER / ONNX_FILE).exists()
        if is_stock:
            _write_modules(folder)
        elif encoder == PELLUCID:
            warn(
                f"plain sentence-transformers will not open this anchor model, pellucid does: the encoder "
                f"({type(self.encoder).__name__}) has no form in modules of that library"
            )
        (folder / _DENSE).mkdir()
        with np.errstate(over="ignore"):
            half = self.vectors.astype(np.float16)
        # Half the size, where no other library reads it.
        stored = half if not is_stock and np.array_equal(half, self.vectors) else self.vectors
        dense = {"in_features": columns, "out_features": rows, "bias": False, "activation_function": _IDENTITY}
        write_json(folder / _DENSE / "config.json", dense)
        write_tensors(folder / _DENSE / "model.safetensors", {_WEIGHT: stored})
        anchor_texts = [list(dimension.about) for dimension in self.dimensions]
        first = unit_vectors(self.encoder, anchor_texts[0][:1], dimension=columns)[0]  # which identifies the encoder
        write_json(
            folder / "anchors.json", {"anchors": anchor_texts, "first_vector": [round(x, 6) for x in first.tolist()]}
        )
        write_dimensions(folder / "dimensions.tsv", self.dimensions)
        return {"anchors": rows, "encoder_dimension": columns, "encoder": encoder}

    def identity(self) -> dict[str, Any]:
        """Return all that the vectors depend on, for `fingerprint`."""
        return {"encoder": self.encoder, "vectors": self.vectors}

    def get_embedding_dimension(self) -> int:
        """Return the number of anchors."""
        return len(self.vectors)

    @property
    def dimensions(self) -> Dimensions:
        """The anchors in order; `about` holds the anchor text, after a merge several."""
        return self._dimensions

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """What each anchor's cosine is multiplied by, float32 [n]."""
        return np.asarray(np.linalg.norm(self.vectors, axis=1))

    def size_text(self) -> str:
        """Return how large the model is, in the family's own units."""
        return f"{len(self.vectors):,} anchors"

    def _prompted(self, texts: list[str], prompt: str) -> tuple[list[str], Role]:
        return self.encoder._prompted(texts, prompt)

    def _encode(self, texts: list[str], role: Role, *, batch_size: int, show_progress_bar: bool) -> Vectors:
        """Return the coordinates, a query's and a document's with the encoder's own prompt for them."""
        vectors = unit_vectors(
            self.encoder, texts, role=role, dimension=self.vectors.shape[1], batch_size=batch_size,
            show_progress_bar=show_progress_bar,
        )  # fmt: skip
        return vectors @ self.vectors.T

    def coverage_and_gaps(self, texts: list[str], role: Role = None) -> list[tuple[Coverage, tuple[Span, ...]]]:
        """Return for each text its coverage and the spans that are not known."""
        return self.encoder.coverage_and_gaps(texts, role)

    def _strongest(self, text: str, top_k: int) -> list[str]:
        """Return the anchors that `text` is closest to, with their coordinates (cosines, unless weighted)."""
        coordinates = self.encode(text)
        best = np.argsort(-coordinates, kind="stable")[:top_k].tolist()
        return [f"{self._dimensions.names[j]} ({coordinates[j]:.2f})" for j in best if coordinates[j] > 0]

    def decorrelate(self, strength: float = 0.75) -> Self:
        """Return a model whose anchors have less in common, so that it is closer to its encoder.

        Anchors overlap: what two of them share counts twice in every score. The vectors A [n, d] become
        (A A')^(-strength/2) A, at the mean length they had: of all ways to take the overlap out, the one that moves the
        anchors least (symmetric orthogonalisation: Löwdin 1950; ZCA whitening: Kessy, Lewin and Strimmer 2018). At
        strength 1 and with n >= d the scores are the encoder's own; `faithfulness` measures the cost for each anchor.

        Args:
            strength: from 0, which changes nothing, to 1, which leaves no overlap.

        Raises:
            InputError: `strength` is not between 0 and 1.
        """
        check_number("strength", strength, least=0, most=1)
        left, sizes, right = np.linalg.svd(self.vectors.astype(np.float64), full_matrices=False)
        is_nonzero = sizes > sizes.max() * 1e-6
        vectors = (left[:, is_nonzero] * sizes[is_nonzero] ** (1 - strength)) @ right[is_nonzero]
        vectors[self.weights == 0] = 0  # silenced, and not rounding
        vectors *= self.weights.mean() / (np.linalg.norm(vectors, axis=1).mean() or 1)  # 0 where all are scaled to 0
        return self._changed(vectors.astype(np.float32), self._dimensions)

    def faithfulness(self) -> npt.NDArray[np.float32]:
        """Return how far each coordinate still is the similarity to its anchor text.

        Returns:
            float32 [n]: the cosine of each row of `vectors` to what the encoder gives for the anchor (after a merge,
            for the mean of the anchors); 1 unless the model was decorrelated, or anchors of unequal weight were merged.
        """
        texts = [text for dimension in self._dimensions for text in dimension.about]
        starts = np.cumsum([0] + [len(dimension.about) for dimension in self._dimensions])[:-1]
        anchors = np.add.reduceat(unit_vectors(self.encoder, texts, dimension=self.vectors.shape[1]), starts, axis=0)
        lengths = self.weights * np.linalg.norm(anchors, axis=1)
        products = np.einsum("nd,nd->n", self.vectors, anchors)
        return np.asarray(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0))

    def _edited(self, edit: Edit) -> Self:
        return self._changed(edit.mixing.applied(self.vectors.T).T.astype(np.float32), edit.dimensions)

    def _changed(self, vectors: Vectors, dimensions: Dimensions) -> Self:
        return self.from_parts(self.encoder, vectors, dimensions, encoder_name=self.encoder_name)


def anchor_vectors(encoder: Embedder, texts: list[str], *, dimension: int | None = None) -> Vectors:
    """Return the encoded anchors at length 1, float32 [n, d], after checking that none is zero."""
    vectors = unit_vectors(encoder, texts, dimension=dimension)
    empty = np.flatnonzero(~vectors.any(axis=1))
    if len(empty):
        raise InputError(
            f"the encoder maps anchor {empty[0]} ({texts[empty[0]]!r:.60}) to zero"
            + (f", and {len(empty) - 1} more" if len(empty) > 1 else "")
            + "; leave it out: no text is similar to it"
        )
    return vectors


def _write_modules(folder: Path) -> None:
    """Write what plain sentence-transformers opens: the modules of the encoder's copy, Normalize and Dense."""
    copied = read_json(folder / _ENCODER / _MODULES)
    modules = [{**module, "path": (Path(_ENCODER) / module["path"]).as_posix()} for module in copied]
    if not modules[-1]["type"].endswith("Normalize"):
        modules.append(_module(len(modules), f"{len(modules)}_Normalize", "Normalize"))
    write_json(folder / _MODULES, [*modules, _module(len(modules), _DENSE, "Dense")])
    prompts = folder / _ENCODER / _PROMPTS
    if prompts.exists():
        shutil.copy(prompts, folder)


def _module(index: int, path: str, kind: str) -> dict[str, Any]:
    return {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}


def _read_record(path: Path, shape: tuple[int, ...]) -> tuple[list[tuple[str, ...]], Vectors]:
    """Return the anchors' texts, and what the encoder gave for the first of them."""
    record = read_json(path)
    anchor_texts, vector = (
        (record.get("anchors"), record.get("first_vector")) if isinstance(record, dict) else (None, None)
    )
    are_texts = isinstance(anchor_texts, list) and all(
        isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts) for texts in anchor_texts
    )
    if not are_texts or anchor_texts is None or len(anchor_texts) != shape[0]:
        raise ModelFolderError(f"{path} must hold {shape[0]} lists of texts, one an anchor; it is of another model")
    if not (isinstance(vector, list) and len(vector) == shape[1] and all(isinstance(x, float) for x in vector)):
        raise ModelFolderError(f"{path} must hold a 'first_vector' of {shape[1]} numbers; it is of another model")
    with np.errstate(all="ignore"):  # zeros, NaN and what overflows become NaN, which is like no vector
        first = np.array(vector, np.float64)
        return anchor_texts, (first / np.linalg.norm(first)).astype(np.float32)


def _read_encoder(folder: Path, name: Any) -> Embedder:
    """Open the encoder that is in the folder, or the one of that name."""
    if name == FUNCTION:
        raise ModelFolderError(
            f"{folder} was made with a function as encoder, which no file can hold; "
            "give it: AnchorEmbedder.from_pretrained(folder, encoder=function)"
        )
    if not isinstance(name, str):
        raise ModelFolderError(f"{folder / 'config.json'} names no encoder: {name!r:.40}")
    if name in (PELLUCID, SENTENCE_TRANSFORMERS):
        return load(folder / _ENCODER)
    path_or_id = resolve_reference(folder, name)
    try:
        return load(path_or_id)
    except (InputError, ModelFolderError) as error:
        raise ModelFolderError(
            f"{folder} has anchors for the encoder {name!r}, which cannot be opened: {error}. "
            "If you have it elsewhere: AnchorEmbedder.from_pretrained(model, encoder=encoder)"
        ) from error


def _with_edits(
    encoder: Embedder,
    vectors: Vectors,
    anchor_texts: list[tuple[str, ...]],
    table: Dimensions,
    scales: Sequence[float],
) -> tuple[Vectors, Dimensions]:
    """Return the vectors and dimensions after what was changed in `dimensions.tsv`."""
    items = [_with_text(item, texts) for item, texts in zip(table, anchor_texts, strict=True)]
    dimensions = Dimensions(items)
    changed = [n for n, texts in enumerate(anchor_texts) if items[n].about != Dimension("", texts).about]
    if changed:
        texts = [text for n in changed for text in items[n].about]
        starts = np.cumsum([0] + [len(items[n].about) for n in changed])[:-1]
        sums = np.add.reduceat(anchor_vectors(encoder, texts, dimension=vectors.shape[1]), starts, axis=0)
        lengths = np.linalg.norm(vectors[changed], axis=1, keepdims=True)
        vectors = vectors.copy()
        vectors[changed] = l2_normalize(sums) * lengths
    if set(scales) != {1.0}:
        factors = scaling(dimensions, dict(enumerate(scales))).mixing.factors
        vectors = (vectors * factors[:, None]).astype(np.float32)
    return vectors, dimensions


def _with_text(item: Dimension, before: tuple[str, ...]) -> Dimension:
    """Return the dimension as the table has it; a name that was the anchor text follows it."""
    if not item.about or not all(map(str.strip, item.about)):
        raise InputError(f"the anchor text of {item.name!r:.80} is empty; to drop a dimension use model.without")
    named_by_text = len(before) == 1 and item.name == " ".join(before[0].split())
    return replace(item, name=" ".join(" | ".join(item.about).split()) if named_by_text else item.name)
