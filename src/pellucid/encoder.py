"""Any encoder as an `Embedder`: a SentenceTransformer, or a function from a list of texts to one vector each.

`pellucid.load` makes one, so that the modules above know only `Embedder`. The vectors are checked here. The dimensions
have no names, so that an explanation is one row: the whole vector.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pellucid.base import Embedder, Vectors
from pellucid.embeddings import Role, as_rows
from pellucid.errors import InputError
from pellucid.folder import identify
from pellucid.query import Query
from pellucid.store import writing_folder
from pellucid.text import Coverage, Span, well_formed, words_before
from pellucid.untrusted import without_bars

OURS, STOCK, FUNCTION = "pellucid", "sentence-transformers", "function"
"""What a model within another one is opened with, as their folders say: `load`, that library, or nothing."""


class EncoderEmbedder(Embedder):
    """A SentenceTransformer or a function, with the methods of every other model.

    Embeddings are the encoder's own rows, as float32, whatever their lengths.

    Attributes:
        model: the SentenceTransformer or function itself.
    """

    family: ClassVar[str] = "encoder"
    _truncates: ClassVar[bool] = True

    def __init__(self, model: Any) -> None:
        """Take an encoder; it is first asked for vectors when there are texts.

        Args:
            model: a SentenceTransformer, or a callable: list of texts -> array, tensor or lists [texts, dimension]. The
                methods `encode_query` and `encode_document` of a callable, where it has them, encode in these roles.

        Raises:
            InputError: it is neither.
        """
        if not callable(model):  # as a SentenceTransformer is
            raise InputError(
                "an encoder is a SentenceTransformer, a pellucid model, a callable, or the name or folder of a model; "
                f"got {type(model).__name__}"
            )
        self.model = model
        self._dimension: int | None = None

    @property
    def is_sentence_transformer(self) -> bool:
        """Whether the encoder is a SentenceTransformer; that library is not imported."""
        return any(kind.__module__.startswith("sentence_transformers") for kind in type(self.model).__mro__)

    @property
    def name(self) -> str:
        """The name or folder of the encoder's transformer, or the name of its function or class."""
        if self.is_sentence_transformer:
            config = getattr(getattr(self.model[0], "auto_model", None), "config", None)
            return Path(getattr(config, "_name_or_path", "")).name or type(self.model).__name__
        return str(getattr(self.model, "__name__", type(self.model).__name__)).strip("<>")

    def __repr__(self) -> str:
        """Return one line: the class and the encoder's name."""
        return f"{type(self).__name__}({self.name})"

    def _encode(self, texts: list[str], role: Role, *, batch_size: int, show_progress_bar: bool) -> Vectors:
        if not texts:
            return np.zeros((0, self.get_embedding_dimension()), np.float32)
        texts = list(map(well_formed, texts))
        if self.is_sentence_transformer:
            method = getattr(self.model, f"encode_{role}" if role else "encode")
            found = method(texts, batch_size=batch_size, show_progress_bar=show_progress_bar)
        else:
            found = (getattr(self.model, f"encode_{role}", self.model) if role else self.model)(texts)
        rows = _checked(found, texts, self.name, self._dimension)
        self._dimension = rows.shape[1]
        return rows

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions; an encoder that was not used yet encodes a text to find out."""
        return self._dimension or int(self.encode("a text").shape[0])

    @property
    def device(self) -> str:
        """The device of the encoder; "cpu" for a function."""
        return str(getattr(self.model, "device", "cpu"))

    @property
    def max_seq_length(self) -> float | None:
        """The longest text that the encoder reads, in tokens; None for a function."""
        longest: float | None = getattr(self.model, "max_seq_length", None)
        return longest

    def tokenize(self, texts: list[str]) -> dict[str, Any]:
        """Return what the encoder's `tokenize` does.

        Raises:
            InputError: it has none.
        """
        if not hasattr(self.model, "tokenize"):
            return super().tokenize(texts)
        ids: dict[str, Any] = self.model.tokenize(texts)
        return ids

    def _prompted(self, texts: list[str], prompt: str) -> tuple[list[str], Role]:
        default = getattr(self.model, "default_prompt_name", None)
        if self.is_sentence_transformer and default is not None:
            raise InputError(
                f"prompt is {prompt!r:.60}, and the encoder puts its own before every text; set its "
                f"default_prompt_name, {default!r:.40}, to None"
            )
        return super()._prompted(texts, prompt)

    def _known(self, texts: list[str], role: Role = None) -> list[tuple[Coverage, tuple[Span, ...]]]:
        """For a SentenceTransformer, all words before its maximum length are known; for a function, all."""
        return [words_before(text, self._end_of_reading(text, role)) for text in map(well_formed, texts)]

    def _end_of_reading(self, text: str, role: Role) -> int:
        """Return the character where a SentenceTransformer cuts the text; its end for a function."""
        tokenizer: Any = getattr(self.model, "tokenizer", None)
        longest = self.max_seq_length
        is_cut = self.is_sentence_transformer and getattr(tokenizer, "is_fast", False) and isinstance(longest, int)
        if not is_cut:
            return len(text)
        prompt = self.model.prompts.get(role or self.model.default_prompt_name) or ""
        read = tokenizer(
            prompt + text, truncation=True, max_length=longest, return_offsets_mapping=True,
            return_overflowing_tokens=True,
        )  # fmt: skip
        if len(read["offset_mapping"]) < 2:  # nothing was cut
            return len(text)
        return max(0, int(max(end for _, end in read["offset_mapping"][0])) - len(prompt))

    def _units(self, embeddings: Any) -> Any:
        rows = as_rows(embeddings)
        return (
            _at_length_1(rows.astype(np.float32, copy=False)) if isinstance(rows, np.ndarray) else super()._units(rows)
        )

    def _ask(self, texts: list[str], roles: list[Role]) -> list[Query]:
        def coordinates(text: str, role: Role) -> Any:
            return unit_vectors(self, [text], role=role)[0].astype(np.float64)

        return [Query(self, *of, partial(coordinates, *of)) for of in zip(texts, roles)]

    def _identity(self) -> Any:
        """Return the SentenceTransformer; None for a function, whose fingerprint is of its vectors."""
        return self.model if self.is_sentence_transformer else None

    def save_pretrained(self, path: str | Path, *, create_model_card: bool = True) -> None:
        """Write a SentenceTransformer to folder `path` as its own library does, whole or not at all.

        Args:
            path: the folder; a model that is there is replaced.
            create_model_card: whether that library's card is written too.

        Raises:
            InputError: it is a function, which no folder can hold.
            WritingError: it cannot be written; what was at `path` is untouched.
        """
        is_stock = identify(Path(path)) == "sentence-transformers"  # that library overwrites the files of an older one
        with writing_folder(path, (lambda _: set()) if is_stock else None) as folder:
            self.write_modules(folder, create_model_card=create_model_card)

    def write_modules(self, folder: Path, *, create_model_card: bool = False) -> None:
        """Write a SentenceTransformer's files into a folder that may hold other files."""
        if not self.is_sentence_transformer:
            raise InputError(
                f"{self.name} is a function, which no folder can hold; keep its code, and load what it gave"
            )
        with without_bars():
            self.model.save_pretrained(str(folder), create_model_card=create_model_card)


def opened_with(model: Embedder) -> str:
    """Return what opens a copy of `model`: `OURS`, `STOCK`, or `FUNCTION` where there can be no copy."""
    if not isinstance(model, EncoderEmbedder):
        return OURS
    return STOCK if model.is_sentence_transformer else FUNCTION


def unit_vectors(
    model: Embedder,
    texts: list[str],
    *,
    role: Role = None,
    batch_size: int = 32,
    dimension: int | None = None,
    show_progress_bar: bool = False,
) -> Vectors:
    """Return checked embeddings at length 1, dense float32 [texts, d]; `dimension` is what must come out."""
    if not texts:
        return np.zeros((0, dimension or model.get_embedding_dimension()), np.float32)
    encode = getattr(model, f"encode_{role}" if role else "encode")
    rows = encode(list(map(well_formed, texts)), batch_size=batch_size, show_progress_bar=show_progress_bar)
    return _at_length_1(_checked(rows, texts, getattr(model, "name", type(model).__name__), dimension))


def _checked(vectors: Any, texts: list[str], name: str, dimension: int | None) -> Vectors:
    """Return what an encoder gave (array, tensor, lists) as float32 with one finite row for each text."""
    if hasattr(vectors, "toarray"):
        vectors = vectors.toarray()
    if hasattr(vectors, "detach"):
        vectors = vectors.detach().float().cpu().numpy()
    try:
        rows: Vectors = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"the encoder did not give an array of numbers: {error}") from error
    if rows.ndim != 2 or len(rows) != len(texts):
        raise InputError(f"the encoder ({name}) gave an array of shape {rows.shape} for {len(texts)} texts")
    if dimension is not None and rows.shape[1] != dimension:
        raise InputError(
            f"the encoder ({name}) gives {rows.shape[1]} dimensions, before it gave {dimension}; "
            "give the encoder that the anchors were made with"
        )
    broken = ~np.isfinite(rows).all(axis=1)
    if broken.any():
        raise InputError(
            f"the encoder ({name}) gave NaN or infinity for {int(broken.sum())} of {len(texts)} texts, "
            f"the first is {texts[int(broken.argmax())]!r:.60}"
        )
    return rows


def _at_length_1(rows: Vectors) -> Vectors:
    """Return rows at length 1, or zero; their squares, which may leave float32, are summed in float64."""
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))[:, None]
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)  # type: ignore[no-any-return]
