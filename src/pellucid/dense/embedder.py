"""Any encoder as an `Embedder`: a SentenceTransformer, one without torch, or a function from texts to vectors.

`pellucid.load` makes one, so that the modules above know only `Embedder`. The vectors are the encoder's own, and are
checked. Its dimensions have no names; how its scores are taken apart all the same is in `reasons.py`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.core.arrays import MISSING_TEXT, Role, to_2d_array, validate_texts
from pellucid.core.embedder import Embedder, Vectors
from pellucid.core.query import Floats, Query
from pellucid.dense.measured import MeasuredReasons, words_to_leave_out
from pellucid.dense.onnx import OnnxEncoder
from pellucid.dense.reasons import EncoderQuery, EncoderReasons, nameable
from pellucid.dense.sentences import SentenceReasons
from pellucid.dense.tokenized import TokenizedText, tokenize_texts
from pellucid.dense.vectors import at_length_1, checked_vectors, unit_vectors
from pellucid.dense.words import (
    Fit,
    WordReasons,
    fit_words,
    open_texts,
    stored_words,
    words_for,
)
from pellucid.errors import InputError, shown
from pellucid.persistence.folder import is_stock
from pellucid.persistence.store import writing_folder
from pellucid.persistence.untrusted import WITHOUT_BARS, check_folder
from pellucid.process import cached_property, lock_of
from pellucid.progress import Progress
from pellucid.text.words import Coverage, Span

REASON_KINDS = ("words", "sentences", "measured")
"""How scores are taken apart, the default first."""

_MAX_UNIT_ERROR = 1e-2  # of the length of a normalized vector, such as one in half precision
_N_AVERAGED = 256  # sentences whose mean is taken for that of all texts
_TURN_S = 1e-4  # between two batches, that a thread which waits for the lock needs to take it

if TYPE_CHECKING:
    from typing_extensions import Self

    from pellucid.explain.explanation import Explanation
    from pellucid.static.embedder import StaticEmbedder
    from pellucid.text.tables import Corpus

PELLUCID, SENTENCE_TRANSFORMERS, FUNCTION = "pellucid", "sentence-transformers", "function"
"""What a model within another one is opened with, as their folders say: `load`, that library, or nothing."""


class EncoderEmbedder(Embedder):
    """A SentenceTransformer or a function, with the methods of every other model.

    Embeddings are the encoder's own rows, as float32, whatever their lengths.

    Attributes:
        model: the SentenceTransformer or function itself.
    """

    family: ClassVar[str] = "encoder"
    query_type: ClassVar[type[Query]] = EncoderQuery
    _reads_with: ClassVar[str] = "model"
    truncates: ClassVar[bool] = True

    def __init__(self, model: Any, reasons: EncoderReasons | str | Path | None = None, *, fit: bool = False) -> None:
        """Take an encoder; it is first asked for vectors when there are texts.

        Args:
            model: a SentenceTransformer, or a callable: list of texts -> array, tensor or lists [texts, dimension]. The
                methods `encode_query` and `encode_document` of a callable, where it has them, encode in these roles.
            reasons: how its scores are taken apart, see `with_reasons`; None leaves its vector one row.
            fit: whether a function may be called with some thousand sentences, to fit the reasons when they are first
                needed. A SentenceTransformer is fitted without asking.

        Raises:
            InputError: it is neither, or the reasons are unknown.
        """
        if not callable(model) or isinstance(model, type):  # as a SentenceTransformer is; a class makes objects
            kind = f"the class {model.__name__}: make an object" if isinstance(model, type) else type(model).__name__
            raise InputError(
                "an encoder is a SentenceTransformer, a pellucid model, a callable, or the name or folder of a model; "
                f"got {kind}"
            )
        if isinstance(reasons, str) and reasons not in REASON_KINDS:
            raise InputError(f"reasons are {shown(reasons)}; they must be {', '.join(REASON_KINDS)}, or None")
        self.model = model
        self._dimension: int | None = None
        self._fit = fit
        self._shared: dict[str, Floats] = {}  # what models of the same encoder with other reasons need, too
        self._words = reasons if isinstance(reasons, (WordReasons, Path)) else None
        self._reasons: EncoderReasons | str | None = WordReasons.kind if isinstance(reasons, Path) else reasons

    @property
    def reasons(self) -> EncoderReasons | None:
        """How scores are taken apart; found or fitted when it is first asked for. None where the vector is one row.

        Raises:
            InputError: they would have to be fitted by calling a function with thousands of texts.
        """
        self._check_fit()
        if isinstance(self._reasons, str):
            with lock_of(self):  # they are fitted once
                if isinstance(self._reasons, str):
                    self._reasons = self._build_reasons(self._reasons)
        return self._reasons

    @property
    def reasons_at_hand(self) -> EncoderReasons | None:
        """`reasons`, but None for a function that is not fitted: a search over it works all the same."""
        return None if self._needs_fit else self.reasons

    @property
    def _needs_fit(self) -> bool:
        """Whether the reasons are to be fitted to a function that may not be called for it."""
        fits = self._reasons == WordReasons.kind and self._words is None
        return fits and not self._fit and self.is_function

    def _check_fit(self) -> None:
        """Check that no function would have to be called to fit the reasons."""
        if self._needs_fit:
            raise InputError(
                f"{self.name} is a function, and its reasons are not fitted: it would be called with more than 4,000 "
                "short texts, up to 1,024 at a time. Allow it: "
                "pellucid.load(function, fit=True). Or fit on texts whose vectors you have, 200 or more: "
                "model.fit_reasons(texts, vectors). Or do without: model.with_reasons(None)"
            )

    def _build_reasons(self, kind: str) -> EncoderReasons:
        if kind != WordReasons.kind:
            make = MeasuredReasons if kind == MeasuredReasons.kind else SentenceReasons
            return make(EncoderEmbedder(self.model), self._mean_vector())
        self._words = self._words_at_hand() or words_for(self)
        return self._words

    def _words_at_hand(self) -> WordReasons | None:
        """Return the word reasons of this model, opened where they are in a folder; None where it has none yet."""
        if isinstance(self._words, Path):
            self._words = WordReasons.from_pretrained(self._words, self)
        return self._words

    def _mean_vector(self) -> Floats:
        """Return the mean vector of texts: that of word reasons where there are any, else of some hundred sentences."""
        if "mean" not in self._shared:
            words = self._words_at_hand() or (None if self.is_function else stored_words(self))
            if words is None:
                texts, _ = open_texts(self)
                rows = unit_vectors(self, texts[:: max(1, len(texts) // _N_AVERAGED)])
            self._shared["mean"] = rows.mean(axis=0, dtype=np.float64) if words is None else words.common
        return self._shared["mean"]

    def with_reasons(self, reasons: EncoderReasons | str | Path | None) -> EncoderEmbedder:
        """Return a model of the same encoder whose scores are taken apart differently; its vectors are the same.

        Args:
            reasons: "words" (pairs of words, estimated without a pass of the encoder), "sentences" (those of a long
                text, from a pass of each), "measured" (pairs of words, measured by leaving words out: of each text up
                to 139 variants are encoded, and once some hundred sentences unless word reasons are at hand), the
                folder of word reasons that were saved (a `Path`), a `Reasons` object, or None: the vector is one row.

        Raises:
            InputError: the kind is unknown.
        """
        model = EncoderEmbedder(self.model, reasons, fit=self._fit)
        model._dimension, model.folder, model._words = self._dimension, self.folder, model._words or self._words
        model._shared = self._shared
        return model

    def fit_reasons(
        self,
        texts: Corpus | None = None,
        vectors: Any = None,
        *,
        table: StaticEmbedder | None = None,
        show_progress_bar: bool = True,
    ) -> Fit:
        """Fit word reasons on your own texts, so that scores are taken apart in pairs of words as these use them.

        The encoder reads each text once, unless its vectors are given; the rest takes seconds. Without this, reasons
        that come with the package are used (all-MiniLM-L6-v2), or they are fitted on sentences that come with it, when
        they are first needed. `save_pretrained` writes them into the model's folder.

        Args:
            texts: a file or an iterable of texts like those that will be compared, some thousand; None for the
                sentences that come with the package.
            vectors: the encoder's vectors of them, [texts, dimension], of any length.
            table: a static model whose words are used; None takes the better of static-en and static-multi.
            show_progress_bar: show a bar once the work has lasted two seconds.

        Returns:
            What was fitted, and how well it does on texts held out.

        Raises:
            InputError: too few texts, other vectors than texts, or an encoder that gives one text two vectors.
        """
        reasons = fit_words(self, texts, vectors, table=table, show_progress_bar=show_progress_bar)
        self._words = self._reasons = reasons
        return reasons.fit

    def explain(self, text1: str, text2: str = MISSING_TEXT, *, role1: Role = None, role2: Role = None) -> Explanation:
        """Take the cosine of two texts apart, or one text's squared length; see `Embedder.explain`.

        Raises:
            InputError: as there, or the encoder is a function whose reasons are not fitted.
        """
        validate_texts(text1, text2, role1, role2)
        self._check_fit()
        return super().explain(text1, text2, role1=role1, role2=role2)

    def explain_vectors(self, text1: str, vector1: Any, text2: str, vector2: Any) -> Explanation:
        """Take the cosine of two vectors apart that the encoder gave before, kept in FAISS, Qdrant, Chroma or pgvector.

        Args:
            text1: the text of the first, a query.
            vector1: its vector [dimension], of any length.
            text2: the text of the second, a document.
            vector2: its vector.

        Raises:
            InputError: a text is not a string, or a vector has another dimension or is not finite.
        """
        texts, roles = validate_texts(text1, text2, "query", "document")
        if np.shape(vector1) != np.shape(vector2):
            raise InputError(
                f"the vectors have shapes {np.shape(vector1)} and {np.shape(vector2)}; give one vector of each text, "
                "of one encoder"
            )
        rows = at_length_1(checked_vectors([vector1, vector2], texts, self.name, None))
        self._check_fit()
        return self.explain_queries(*(EncoderQuery(self, *arguments) for arguments in zip(texts, roles, rows)))

    @property
    def is_function(self) -> bool:
        """Whether the encoder is a function from texts to vectors, of which nothing else is known."""
        return not hasattr(self.model, "default_prompt_name")

    @property
    def is_sentence_transformer(self) -> bool:
        """Whether the encoder is a SentenceTransformer; that library is not imported."""
        return any(kind.__module__.startswith("sentence_transformers") for kind in type(self.model).__mro__)

    @cached_property
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
        if self.is_function:
            function = getattr(self.model, f"encode_{role}", self.model) if role else self.model
            rows = checked_vectors(function(texts), texts, self.name, self._dimension)
        else:
            rows = self._encode_by_turns(texts, role, batch_size, show_progress_bar)
        self._dimension = rows.shape[1]
        self._check_similarity(rows)
        return rows

    def _check_similarity(self, rows: Vectors) -> None:
        """Check that the encoder compares by the cosine, or by the dot product of vectors of length 1, which is one."""
        name = getattr(self.model, "similarity_fn_name", None) or "cosine"
        if name == "cosine":
            return
        lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
        if name != "dot" or (np.abs(lengths - 1) > _MAX_UNIT_ERROR)[lengths > 0].any():
            raise InputError(
                f"the encoder ({self.name}) compares texts by similarity_fn_name {shown(name)}, which is no cosine; "
                "scores here are cosines and might order texts differently. Accept that: "
                'encoder.similarity_fn_name = "cosine". Or give an encoder that ends in a Normalize module'
            )

    def _encode_by_turns(self, texts: list[str], role: Role, batch_size: int, show_progress_bar: bool) -> Vectors:
        """Encode a batch at a time, between which other threads may use it.

        The batches are those that a SentenceTransformer makes of all the texts: of nearly the same length, the longest
        first.
        """
        method, lock = getattr(self.model, f"encode_{role}" if role else "encode"), lock_of(self.model)
        order = np.argsort([-len(text) for text in texts]).tolist() if len(texts) > batch_size else range(len(texts))
        blocks: list[Vectors] = []
        with Progress("encoding", total=len(texts), enabled=show_progress_bar) as progress:
            for start in range(0, len(texts), batch_size):
                batch = [texts[position] for position in order[start : start + batch_size]]
                if start:
                    time.sleep(_TURN_S)
                with lock:
                    encoded = method(batch, batch_size=batch_size, show_progress_bar=False)
                dimension = blocks[0].shape[1] if blocks else self._dimension
                blocks.append(checked_vectors(encoded, batch, self.name, dimension))
                progress.advance(len(batch))
        rows: Vectors = np.concatenate(blocks)
        rows[order] = rows.copy()
        return rows

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions; an encoder that was not used yet encodes a text to find out."""
        return self._dimension or int(self.encode("a text").shape[0])

    def _prompted(self, texts: list[str], prompt: str) -> tuple[list[str], Role]:
        default = getattr(self.model, "default_prompt_name", None)
        if not self.is_function and default is not None:
            raise InputError(
                f"prompt is {shown(prompt)}, and the encoder puts its own before every text; set its "
                f"default_prompt_name, {shown(default)}, to None"
            )
        return super()._prompted(texts, prompt)

    def tokenized(self, texts: list[str], role: Role) -> list[TokenizedText]:
        """Return texts as the encoder's tokenizer reads them; a function is taken to read all."""
        if self.is_function:
            return [TokenizedText(text, len(text)) for text in texts]
        return tokenize_texts(self.model, texts, role)

    def coverage_and_gaps(self, texts: list[str], role: Role = None) -> list[tuple[Coverage, tuple[Span, ...]]]:
        """A SentenceTransformer reads the words that it has tokens for, before its maximum length; a function all.

        With reasons by words, those without a vector count as unknown.
        """
        return [nameable(text, self.reasons_at_hand) for text in self.tokenized(texts, role)]

    def known_word_spans(self, text: str, role: Role) -> list[Span]:
        """Return where the words of a text are that the model knows."""
        return words_to_leave_out(self.tokenized([text], role)[0])

    def similarity_rows(self, embeddings: Any) -> Any:
        """Return embeddings of this model so that the product of two rows is their similarity."""
        rows = to_2d_array(embeddings)
        return (
            at_length_1(rows.astype(np.float32, copy=False))
            if isinstance(rows, np.ndarray)
            else super().similarity_rows(rows)
        )

    def identity(self) -> Any:
        """Return the SentenceTransformer; None for others, which are known by their vectors, whatever computes them."""
        return self.model if self.is_sentence_transformer else None

    def save_pretrained(self, path: str | Path, *, create_model_card: bool = True) -> None:
        """Write a SentenceTransformer to folder `path` as its own library does, whole or not at all; or an ONNX file.

        Word reasons that were fitted to it are written into the folder's folder `reasons`. That library ignores it; the
        model that `pellucid.load` opens has them.

        Args:
            path: the folder; a model that is there is replaced.
            create_model_card: whether that library's card is written too.

        Raises:
            InputError: it is a function, which no folder can hold.
            WritingError: it cannot be written; what was at `path` is untouched.
        """
        if isinstance(self.model, OnnxEncoder):
            return self._save(path)
        if not self.is_sentence_transformer:
            raise InputError(
                f"{self.name} is a function, which no folder can hold; keep its code, and load what it gave"
            )
        # That library overwrites the files of an older one.
        with writing_folder(path, (lambda _: {"reasons"}) if is_stock(Path(path)) else None) as folder:
            with WITHOUT_BARS:
                self.model.save_pretrained(str(folder), create_model_card=create_model_card)
            check_folder(folder)  # what is refused when it is read is not written
            self._write_words(folder)

    def _write(self, folder: Path) -> Mapping[str, Any]:
        self.model.save_pretrained(folder)
        self._write_words(folder)
        return {"dimension": self.get_embedding_dimension()}

    def _write_words(self, folder: Path) -> None:
        """Write word reasons that were fitted to this encoder."""
        words = self._words_at_hand()
        if words is not None and not words.is_ready_made:
            words.save_pretrained(folder / "reasons")

    @classmethod
    def _read(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        has_words = (folder / "reasons" / "config.json").is_file()
        return cls(OnnxEncoder(folder), folder / "reasons" if has_words else WordReasons.kind)


def opened_with(model: Embedder) -> str:
    """Return what opens a copy of `model`: `PELLUCID`, `SENTENCE_TRANSFORMERS`, or `FUNCTION` for no copy."""
    if not isinstance(model, EncoderEmbedder):
        return PELLUCID
    if model.is_function:
        return FUNCTION
    return SENTENCE_TRANSFORMERS if model.is_sentence_transformer else PELLUCID


def save_copy(model: Embedder, folder: Path) -> str:
    """Write a copy of a model that is within another one, unless it is a function; return what opens it."""
    if not isinstance(model, EncoderEmbedder):
        model.save_pretrained(folder)
    elif not model.is_function:
        model.save_pretrained(folder, create_model_card=False)
    return opened_with(model)
