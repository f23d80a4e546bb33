"""Any encoder as an `Embedder`: a SentenceTransformer, or a function from a list of texts to one vector each.

`pellucid.load` makes one, so that the modules above know only `Embedder`. The vectors are the encoder's own, and are
checked. Its dimensions have no names; how its scores are taken apart all the same is in `reasons.py`.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.base import Embedder, Vectors
from pellucid.embeddings import Role, as_rows, explained_texts
from pellucid.encoder.concepts import ConceptReasons
from pellucid.encoder.reasons import EncoderQuery, Reasons
from pellucid.encoder.tokens import TokenReasons
from pellucid.encoder.vectors import TOKENIZING, at_length_1, checked_vectors, prompt_of
from pellucid.encoder.words import Fit, WordReasons, fit_words, words_for
from pellucid.errors import InputError
from pellucid.folder import identify
from pellucid.forks import ForkLock, cached_property
from pellucid.query import Query
from pellucid.store import writing_folder
from pellucid.text import Coverage, Span, words_before
from pellucid.unicode import well_formed
from pellucid.untrusted import without_bars

WAYS = ("words", "tokens", "concepts")
"""How scores are taken apart, the default first."""

_FEW = 32  # texts
_SPECIAL = 64  # tokens that a template and a prompt may add

_FINDING = ForkLock()  # reasons are found once

if TYPE_CHECKING:
    from typing_extensions import Self

    from pellucid.corpus import Corpus
    from pellucid.explanation import Explanation
    from pellucid.static.embedder import StaticEmbedder

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

    def __init__(self, model: Any, reasons: Reasons | str | Path | None = None) -> None:
        """Take an encoder; it is first asked for vectors when there are texts.

        Args:
            model: a SentenceTransformer, or a callable: list of texts -> array, tensor or lists [texts, dimension]. The
                methods `encode_query` and `encode_document` of a callable, where it has them, encode in these roles.
            reasons: how its scores are taken apart, see `with_reasons`; None leaves its vector one row.

        Raises:
            InputError: it is neither, or the reasons are unknown.
        """
        if not callable(model) or isinstance(model, type):  # as a SentenceTransformer is; a class makes objects
            given = f"the class {model.__name__}: make an object" if isinstance(model, type) else type(model).__name__
            raise InputError(
                "an encoder is a SentenceTransformer, a pellucid model, a callable, or the name or folder of a model; "
                f"got {given}"
            )
        if isinstance(reasons, str) and reasons not in WAYS:
            raise InputError(f"reasons are {reasons!r:.60}; they must be {', '.join(WAYS)}, or None")
        self.model = model
        self._dimension: int | None = None
        self._words = reasons if isinstance(reasons, (WordReasons, Path)) else None
        self._reasons = "words" if isinstance(reasons, Path) else reasons

    @property
    def reasons(self) -> Reasons | None:
        """How scores are taken apart; found or fitted when it is first asked for. None where the vector is one row."""
        if isinstance(self._reasons, str):
            with _FINDING:
                if isinstance(self._reasons, str):
                    self._reasons = self._found(self._reasons)
        return self._reasons

    def _found(self, way: str) -> Reasons:
        if way == "tokens":
            return TokenReasons.of(self)
        if isinstance(self._words, Path):
            self._words = WordReasons.from_pretrained(self._words, self)
        self._words = self._words or words_for(self)
        return self._words if way == "words" else ConceptReasons.of_words(self, self._words)

    def with_reasons(self, reasons: Reasons | str | Path | None) -> EncoderEmbedder:
        """Return a model of the same encoder whose scores are taken apart in another way; its vectors are the same.

        Args:
            reasons: "words" (pairs of words, without a pass of the encoder), "tokens" (pairs of words from the states
                of one pass, exact for a transformer with mean pooling), "concepts" (a few words or phrases that both
                texts are about), the folder of reasons that were saved (a `Path`), a `Reasons` object, or None: the
                vector is one row.

        Raises:
            InputError: the way is unknown.
        """
        other = EncoderEmbedder(self.model, reasons)
        other._dimension, other._folder, other._words = self._dimension, self._folder, other._words or self._words
        return other

    def fit_reasons(
        self,
        texts: Corpus | None = None,
        vectors: Any = None,
        *,
        table: StaticEmbedder | None = None,
        work_dir: str | Path | None = None,
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
            work_dir: where vectors are kept, so that an interrupted run resumes with the same call.
            show_progress_bar: show a bar once the work has lasted two seconds.

        Returns:
            What was fitted, and how well it does on texts held out.

        Raises:
            InputError: too few texts, other vectors than texts, or an encoder that gives one text two vectors.
        """
        found = fit_words(self, texts, vectors, table=table, work_dir=work_dir, show_progress_bar=show_progress_bar)
        self._words = self._reasons = found
        return found.fit

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
        from pellucid.explanation import Explanation

        texts, roles = explained_texts(text1, text2, "query", "document")
        if np.shape(vector1) != np.shape(vector2):
            raise InputError(
                f"the vectors have shapes {np.shape(vector1)} and {np.shape(vector2)}; give one vector of each text, "
                "of one encoder"
            )
        rows = at_length_1(checked_vectors([vector1, vector2], texts, self.name, None))
        first, second = (EncoderQuery(self, *of) for of in zip(texts, roles, rows))
        terms = first.terms(second)
        (coverage1, unknown1), (coverage2, unknown2) = first.known, second.known
        return Explanation.from_terms(
            self.family, (text1, text2), float(terms.score or 0.0), terms.values, terms.row, exact=terms.exact,
            unknown=(unknown1, unknown2), coverage=(coverage1, coverage2),
        )  # fmt: skip

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
        texts = list(map(well_formed, texts))
        if self.is_sentence_transformer:
            method = getattr(self.model, f"encode_{role}" if role else "encode")
            with TOKENIZING if len(texts) <= _FEW else nullcontext():  # as explanations do; long work holds up none
                found = method(texts, batch_size=batch_size, show_progress_bar=show_progress_bar)
        else:
            found = (getattr(self.model, f"encode_{role}", self.model) if role else self.model)(texts)
        rows = checked_vectors(found, texts, self.name, self._dimension)
        self._dimension = rows.shape[1]
        return rows

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions; an encoder that was not used yet encodes a text to find out."""
        return self._dimension or int(self.encode("a text").shape[0])

    @property
    def device(self) -> str:
        """The device of the encoder; "cpu" for a function."""
        return str(getattr(self.model, "device", "cpu"))

    def to(self, device: Any) -> Self:
        """Move the encoder, a SentenceTransformer, and return this model; a function cannot be moved."""
        if not self.is_sentence_transformer:
            return super().to(device)
        self.model.to(device)
        return self

    @property
    def tokenizer(self) -> Any:
        """The SentenceTransformer's; a function has none."""
        return self.model.tokenizer if self.is_sentence_transformer else super().tokenizer

    @property
    def prompts(self) -> dict[str, str]:
        """The SentenceTransformer's; a function's are not known."""
        return dict(self.model.prompts) if self.is_sentence_transformer else {}

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
        return [words_before(text, self.end_of_reading(text, role)) for text in map(well_formed, texts)]

    def end_of_reading(self, text: str, role: Role) -> int:
        """Return the character where a SentenceTransformer cuts the text; its end for a function."""
        tokenizer: Any = getattr(self.model, "tokenizer", None)
        longest = self.max_seq_length
        is_cut = self.is_sentence_transformer and getattr(tokenizer, "is_fast", False) and isinstance(longest, int)
        if not is_cut or longest is None or len(text.encode()) + _SPECIAL < longest:  # a piece has a byte or more
            return len(text)
        prompt = prompt_of(self.model, role)
        with TOKENIZING:
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
            at_length_1(rows.astype(np.float32, copy=False)) if isinstance(rows, np.ndarray) else super()._units(rows)
        )

    def _ask(self, texts: list[str], roles: list[Role]) -> list[Query]:
        return [EncoderQuery(self, text, role) for text, role in zip(texts, roles)]

    def _identity(self) -> Any:
        """Return the SentenceTransformer; None for a function, whose fingerprint is of its vectors."""
        return self.model if self.is_sentence_transformer else None

    def save_pretrained(self, path: str | Path, *, create_model_card: bool = True) -> None:
        """Write a SentenceTransformer to folder `path` as its own library does, whole or not at all.

        Word reasons that were fitted to it are written into the folder's folder `reasons`, which that library ignores.

        Args:
            path: the folder; a model that is there is replaced.
            create_model_card: whether that library's card is written too.

        Raises:
            InputError: it is a function, which no folder can hold.
            WritingError: it cannot be written; what was at `path` is untouched.
        """
        is_stock = identify(Path(path)) == "sentence-transformers"  # that library overwrites the files of an older one
        with writing_folder(path, (lambda _: {"reasons"}) if is_stock else None) as folder:
            self.write_modules(folder, create_model_card=create_model_card)
            if isinstance(self._words, Path):
                self._words = WordReasons.from_pretrained(self._words, self)
            if self._words is not None and not self._words.is_ready_made:
                self._words.save_pretrained(folder / "reasons")

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
