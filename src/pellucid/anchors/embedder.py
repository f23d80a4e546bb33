"""Anchor embeddings (LDIR): each coordinate of a text is its cosine to one known sentence.

After the LDIR paper, section "Key designs": emb(t)_j = cos(Enc(t), Enc(a_j)) for anchor texts a_1 ... a_n under any
frozen encoder. The similarity of two texts is the cosine of their coordinates, and so exactly a sum over anchors:

    sim(s, t) = sum over j of  emb(s)_j emb(t)_j / (|emb(s)| |emb(t)|)

How anchors are chosen is in `sampling.py`; the files of a model are in `folder.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from pellucid.anchors.folder import anchor_vectors, read_folder, write_folder
from pellucid.base import Embedder, Vectors
from pellucid.dimensions import Dimension, Dimensions, Edit, on_one_line
from pellucid.embeddings import Role, check_texts
from pellucid.encoder import unit_vectors
from pellucid.errors import InputError
from pellucid.pretrained import load
from pellucid.store import is_sound
from pellucid.text import Coverage, Span

if TYPE_CHECKING:
    from typing_extensions import Self

_LARGEST = 1e15  # the squares of coordinates stay within float32


class AnchorEmbedder(Embedder):
    """A text is its cosines to n anchor texts.

    A row of an explanation is an anchor, all of them; coverage and what is unknown are the encoder's. Which words make
    a text similar to an anchor: `model.encoder.explain(text, anchor)`, where the encoder is a pellucid model.

    Attributes:
        encoder: the model that the cosines are taken under; a SentenceTransformer or callable is its `encoder.model`.
        encoder_name: what the encoder is saved as instead of a copy; set when a model is opened that was saved so.
        vectors: float32 [n, d], one row an anchor; its length is the anchor's weight: 1 unless given or edited.
    """

    family: ClassVar[str] = "anchors"

    def __init__(self, encoder: Any, anchors: Sequence[str], *, weights: Sequence[float] | None = None) -> None:
        """Encode the anchors.

        Args:
            encoder: what `pellucid.load` takes: a name, a SentenceTransformer, a pellucid model, or a callable: list of
                texts -> array [texts, d].
            anchors: the anchor texts, each once; `read_anchors` reads them from a file.
            weights: one positive factor an anchor, by which its cosine is multiplied; None takes 1 for all.

        Raises:
            InputError: no anchors, one twice, one that the encoder maps to zero, or weights that do not fit.
        """
        texts = check_texts([anchors] if isinstance(anchors, str) else anchors)
        if not texts:
            raise InputError("an anchor model needs at least one anchor text")
        self._dimensions = Dimensions(Dimension(name, (text,)) for name, text in zip(_names(texts), texts))
        self.encoder = load(encoder)
        self.encoder_name: str | None = None
        self.vectors = anchor_vectors(self.encoder, texts) * _checked_weights(weights, len(texts))[:, None]

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
            raise InputError("a dimension of an anchor model has its anchor text in `about`; one has none")
        if not is_sound(vectors, _LARGEST):
            raise InputError(f"the anchors' vectors hold NaN, infinity or numbers beyond {_LARGEST:g}")
        model = cls.__new__(cls)
        model.encoder, model.encoder_name = load(encoder), encoder_name
        model.vectors, model._dimensions = vectors, dimensions
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
    def _read(cls, folder: Path, facts: Mapping[str, Any], encoder: Any = None) -> Self:
        return cls.from_parts(*read_folder(folder, facts.get("encoder"), encoder))

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
        return write_folder(folder, self, encoder_name or None)

    def _identity(self) -> dict[str, Any]:
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
        lengths: npt.NDArray[np.float32] = np.linalg.norm(self.vectors, axis=1)
        return lengths

    @property
    def device(self) -> str:
        """The encoder's."""
        return self.encoder.device

    @property
    def max_seq_length(self) -> float | None:
        """The encoder's."""
        return self.encoder.max_seq_length

    def tokenize(self, texts: list[str]) -> dict[str, Any]:
        """Return what the encoder's `tokenize` does.

        Raises:
            InputError: it has none.
        """
        return self.encoder.tokenize(texts)

    def _size(self) -> str:
        return f"{len(self.vectors):,} anchors"

    def _prompted(self, texts: list[str], prompt: str) -> tuple[list[str], Role]:
        return self.encoder._prompted(texts, prompt)

    def _encode(self, texts: list[str], role: Role, *, batch_size: int, show_progress_bar: bool) -> Vectors:
        """Return the coordinates, a query's and a document's with the encoder's own prompt for them."""
        vectors = unit_vectors(
            self.encoder, texts, role=role, dimension=self.vectors.shape[1], batch_size=batch_size,
            show_progress_bar=show_progress_bar,
        )  # fmt: skip
        coordinates: Vectors = vectors @ self.vectors.T
        return coordinates

    def _known(self, texts: list[str], role: Role = None) -> list[tuple[Coverage, tuple[Span, ...]]]:
        return self.encoder._known(texts, role)

    def _strongest(self, text: str, top_k: int) -> str:
        """Return the anchors that `text` is closest to, with their coordinates (cosines, unless weighted)."""
        coordinates = self.encode(text)
        best = [j for j in np.argsort(-coordinates, kind="stable")[:top_k].tolist() if coordinates[j] > 0]
        if not best:
            return "nothing this model knows"
        return "mostly about: " + ", ".join(f"{self._dimensions.names[j]} ({coordinates[j]:.2f})" for j in best)

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
        if not 0 <= strength <= 1:
            raise InputError(f"strength is {strength}; it must be between 0 and 1")
        left, sizes, right = np.linalg.svd(self.vectors.astype(np.float64), full_matrices=False)
        known = sizes > sizes.max() * 1e-6
        vectors = (left[:, known] * sizes[known] ** (1 - strength)) @ right[known]
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
        faithful: npt.NDArray[np.float32] = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
        return faithful

    def _edited(self, edit: Edit) -> Self:
        vectors = (edit.mixing.T @ self.vectors).astype(np.float32)
        return self._changed(vectors, edit.dimensions)

    def _changed(self, vectors: Vectors, dimensions: Dimensions) -> Self:
        return self.from_parts(self.encoder, vectors, dimensions, encoder_name=self.encoder_name)


def _names(texts: list[str]) -> list[str]:
    """Return the anchors on one line each, which is what they are called."""
    names = list(map(on_one_line, texts))
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        first, second = [number for number, other in enumerate(names) if other == name][:2]
        raise InputError(f"anchors {first} and {second} are the same text, {name!r:.80}; give each text once")
    return names


def _checked_weights(weights: Sequence[float] | None, count: int) -> npt.NDArray[np.float32]:
    checked = np.ones(count, np.float32) if weights is None else np.asarray(weights, np.float32)
    if checked.shape != (count,) or not (np.isfinite(checked) & (checked > 0)).all():
        raise InputError(f"weights must be {count} positive numbers, one an anchor, got shape {checked.shape}")
    return checked
