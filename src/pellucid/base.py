"""The contract that every family keeps: sentence-transformers' names, and `explain`.

A family implements `_encode` (texts in, one row each out), `explain` and the saving of its own files. Everything else
is here, so that a view, a command or a benchmark written against `Embedder` works for a family added later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError
from pellucid.progress import Progress

if TYPE_CHECKING:
    from typing_extensions import Self

    from pellucid.dimensions import Dimensions, Edit, Which
    from pellucid.explanation import Coverage, Explanation, Span

Vectors = npt.NDArray[np.float32]


class Embedder(ABC):
    """A text embedding model whose scores can be taken apart."""

    family: ClassVar[str]
    """The name stored in `config.json`: which class opens the folder."""

    @abstractmethod
    def _encode(self, texts: list[str], *, show_progress_bar: bool) -> Any:
        """Return one row for each of the checked, well-formed `texts`."""

    @abstractmethod
    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions of an embedding."""

    @abstractmethod
    def explain(self, text1: str, text2: str | None = None) -> Explanation:
        """Take the similarity of two texts apart, or one text's embedding when `text2` is None."""

    @abstractmethod
    def save_pretrained(self, path: str | Path) -> None:
        """Write the model to folder `path`, whole or not at all."""

    def encode(self, texts: str | Iterable[str], *, show_progress_bar: bool = False) -> Any:
        """Return the embeddings of `texts`.

        Args:
            texts: a text, or any iterable of texts. One string gives one embedding (1-d), as in sentence-transformers.
            show_progress_bar: show a bar, counting texts, once the work has lasted two seconds.

        Returns:
            float32 array [texts, dimension] (a CSR matrix for the sparse families). Rows are zero for a text the model
            knows nothing of; their length is 1 in the static family, and in the others means what the family says.

        Raises:
            InputError: an item is not a string; the message gives its position.
        """
        if isinstance(texts, str):
            return self._encode([texts], show_progress_bar=False)[0]
        return self._encode(check_texts(texts), show_progress_bar=show_progress_bar)

    def encode_blocks(
        self, texts: Iterable[str], *, block_size: int = 65_536, show_progress_bar: bool = False
    ) -> Iterator[Any]:
        """Encode texts of any number, a block at a time, so that memory does not grow with them.

        Args:
            texts: any iterable of texts; it is read as the blocks are asked for.
            block_size: texts in a block; the last may have fewer.
            show_progress_bar: show one bar, counting texts, once the work has lasted two seconds.

        Yields:
            what `encode` returns for the texts of a block, in order.

        Raises:
            InputError: an item is not a string (the message gives its position), `texts` is one string, or
                `block_size` is below 1.
        """
        if isinstance(texts, str) or not isinstance(texts, Iterable):
            raise InputError(f"encode_blocks takes an iterable of texts, got {texts!r:.40}; for one text use encode")
        if block_size < 1:
            raise InputError(f"block_size is {block_size}; it must be at least 1")
        return self._encode_blocks(iter(texts), block_size, show_progress_bar)

    def _encode_blocks(self, texts: Iterator[str], block_size: int, show_progress_bar: bool) -> Iterator[Any]:
        done = 0
        with Progress("encoding", enabled=show_progress_bar) as progress:
            while block := check_texts(islice(texts, block_size), first=done):
                yield self._encode(block, show_progress_bar=False)
                done += len(block)
                progress.advance(len(block))

    def encode_query(self, texts: str | Iterable[str], *, show_progress_bar: bool = False) -> Any:
        """Encode search queries; the same as `encode` where a family does not tell them from documents."""
        return self.encode(texts, show_progress_bar=show_progress_bar)

    def encode_document(self, texts: str | Iterable[str], *, show_progress_bar: bool = False) -> Any:
        """Encode documents; the same as `encode` where a family does not tell them from queries."""
        return self.encode(texts, show_progress_bar=show_progress_bar)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Vectors:
        """Return the cosine of every row of `embeddings1` to every row of `embeddings2`.

        Returns:
            float32 [rows 1, rows 2]; 0 wherever a row is zero, never NaN.
        """
        return _dense(unit_rows(embeddings1) @ unit_rows(embeddings2).T)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Vectors:
        """Return the cosine of each row of `embeddings1` to the same row of `embeddings2`, float32 [rows].

        Raises:
            InputError: the two have different numbers of rows.
        """
        first, second = unit_rows(embeddings1), unit_rows(embeddings2)
        if first.shape[0] != second.shape[0]:
            raise InputError(f"similarity_pairwise needs equally many rows, got {first.shape[0]} and {second.shape[0]}")
        product = first.multiply(second) if hasattr(first, "multiply") else first * second
        return np.asarray(product.sum(axis=1), dtype=np.float32).ravel()

    def coverage(self, texts: str | Iterable[str]) -> Any:
        """Return how much of each text the model knows.

        That is the share of the text's words, each counted as often as it occurs, that have a vector. A transformer has
        a token for everything: there it is the share of the words before it cuts the text. A word found by its
        beginning alone counts as known. A text without words has 1: nothing in it is unknown.

        Args:
            texts: a text, or any iterable of texts.

        Returns:
            float32 [texts], from 0 to 1; one number for one string.

        Raises:
            InputError: an item is not a string.
        """
        checked = check_texts([texts] if isinstance(texts, str) else texts)
        shares = self._shares(checked)
        return shares[0] if isinstance(texts, str) else shares

    def _shares(self, texts: list[str]) -> Vectors:
        """Return the coverage of checked texts."""
        return np.array([known.share for known, _ in self._known(texts)], np.float32)

    def _known(self, texts: list[str]) -> list[tuple[Coverage, tuple[Span, ...]]]:
        """Return for each text how much of it is known, and the stretches that are not; here, all is known."""
        from pellucid.explanation import words_before

        return [words_before(text, len(text)) for text in texts]

    def describe(self, text: str, *, top_k: int = 5) -> str:
        """Say in one line what `text` is mostly about for this model, strongest first, and where it knows little of it.

        Raises:
            InputError: `text` is no string, or `top_k` is below 1.
        """
        if top_k < 1:
            raise InputError(f"top_k is {top_k}; it must be at least 1")
        explained_texts(text, None)
        return self._strongest(text, top_k) + _little_known(self._known([text])[0][0])

    def _strongest(self, text: str, top_k: int) -> str:
        """Return what `text` is mostly about."""
        rows = self.explain(text).reasons(top_k)
        if not rows:
            return "nothing this model knows"
        return "mostly about: " + ", ".join(f"{row.name} ({_percent(row.share)})" for row in rows)

    @property
    def dimensions(self) -> Dimensions:
        """The dimensions in order, each with a name and what it is about; found by number or by name."""
        from pellucid.dimensions import Dimension, Dimensions

        return Dimensions(Dimension(f"dimension {number}") for number in range(self.get_embedding_dimension()))

    def without(self, *dimensions: Which | Iterable[Which]) -> Self:
        """Return a model that lacks some dimensions, given by name or number.

        Raises:
            InputError: a dimension is unknown (the message suggests the nearest name), or none would be left.
        """
        from pellucid.dimensions import removal

        return self._edited(removal(self.dimensions, dimensions))

    def keep(self, *dimensions: Which | Iterable[Which]) -> Self:
        """Return a model of these dimensions alone, in the order of this one.

        Raises:
            InputError: a dimension is unknown, or none is given.
        """
        from pellucid.dimensions import selection

        return self._edited(selection(self.dimensions, dimensions))

    def scale(self, factors: Mapping[Which, float]) -> Self:
        """Return a model whose coordinates are multiplied: below 1 a dimension counts less, at 0 not at all.

        A dimension's part in the product of two embeddings grows with the square of its factor.

        Raises:
            InputError: a dimension is unknown, or a factor is not between 0 and a million.
        """
        from pellucid.dimensions import scaling

        return self._edited(scaling(self.dimensions, factors))

    def rename(self, names: Mapping[Which, str]) -> Self:
        """Return a model in which some dimensions, given by old name or number, have other names.

        Raises:
            InputError: a dimension is unknown, or a new name is empty or taken.
        """
        from pellucid.dimensions import renaming

        return self._edited(renaming(self.dimensions, names))

    def merge(self, *dimensions: Which | Iterable[Which], name: str | None = None) -> Self:
        """Return a model in which several dimensions are one, in the place of the first.

        Its coordinate is their sum over the square root of their number, so that merging equal ones changes no score.

        Args:
            dimensions: two or more, by name or number.
            name: of the new dimension; None joins the old ones.

        Raises:
            InputError: a dimension is unknown, fewer than two are given, or the name is taken.
        """
        from pellucid.dimensions import merging

        return self._edited(merging(self.dimensions, dimensions, name))

    def _edited(self, edit: Edit) -> Self:
        """Return this model after `edit`; what a family implements to make its dimensions editable."""
        raise InputError(f"the dimensions of a {self.family} model cannot be edited")

    def push_to_hub(self, repo_id: str, *, private: bool = False, token: str | None = None) -> str:
        """Upload the model to the Hugging Face hub and return the address of the commit."""
        import tempfile

        from huggingface_hub import HfApi

        api = HfApi(token=token)
        api.create_repo(repo_id, private=private, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(Path(folder) / "model")
            return str(api.upload_folder(repo_id=repo_id, folder_path=Path(folder) / "model"))


def check_texts(texts: Iterable[str], *, first: int = 0) -> list[str]:
    """Return `texts` as a list after checking that every item is a string; the first has number `first`.

    Raises:
        InputError: `texts` is not iterable, or an item is not a string (numpy strings are).
    """
    try:
        checked = list(texts)
    except TypeError as error:
        raise InputError(f"texts must be a string or an iterable of strings, got {type(texts).__name__}") from error
    if set(map(type, checked)) - {str}:  # one pass in C; the loop below only runs to find the culprit
        for position, text in enumerate(checked, first):
            if not isinstance(text, str):
                raise InputError(
                    f"text {position} is {type(text).__name__} ({text!r:.40}); every text must be a str. "
                    "Replace missing values by '' or leave them out"
                )
    return checked


def explained_texts(text1: str, text2: str | None) -> list[str]:
    """Return the one or two texts that `explain` is asked about.

    Raises:
        InputError: one is no string.
    """
    texts = [text1] if text2 is None else [text1, text2]
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"explain takes texts, got {type(text).__name__} ({text!r:.40}); pass a str")
    return texts


def _little_known(coverage: Coverage) -> str:
    return f" (only {coverage.known:,} of {coverage.total:,} words known)" if coverage.known and coverage.is_low else ""


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1%}"


def unit_rows(embeddings: Any, dtype: Any = np.float32) -> Any:
    """Return `embeddings` as 2-d with rows of length 1; zero rows stay zero. A dense array becomes one of `dtype`."""
    if hasattr(embeddings, "tocsr"):
        lengths = np.sqrt(np.asarray(embeddings.multiply(embeddings).sum(axis=1))).ravel()
        scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        return embeddings.tocsr().multiply(scale[:, None]).tocsr()
    array = np.atleast_2d(np.asarray(embeddings, dtype=dtype))
    lengths = np.linalg.norm(array, axis=1, keepdims=True)
    return np.divide(array, lengths, out=np.zeros_like(array), where=lengths > 0)


def _dense(matrix: Any) -> Vectors:
    return np.asarray(matrix.todense() if hasattr(matrix, "todense") else matrix, dtype=np.float32)
