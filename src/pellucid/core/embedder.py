"""The contract of every family: sentence-transformers' names, `explain`, edits, opening and saving.

A family implements `_encode` (texts and their role in, one row each out), reads and writes its own files, and overrides
`analyze_texts` where it can explain more than products of coordinates. Code written for `Embedder` then works for it.
What the arguments of `encode` do to the rows is in `arrays.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import (
    MISSING_TEXT,
    PLAIN,
    EncodeOptions,
    Role,
    l2_normalize,
    match_container,
    validate_role,
    validate_texts,
    vstack,
)
from pellucid.core.background import background
from pellucid.core.dimensions import EditableModel
from pellucid.core.query import EncodedPair, Query
from pellucid.errors import InputError, ModelFolderError, check_integer
from pellucid.persistence.folder import check_family, locate, saving
from pellucid.persistence.store import temporary_folder
from pellucid.text.inputs import check_texts
from pellucid.text.unicode import canonicalize
from pellucid.text.words import split_words, words_before

if TYPE_CHECKING:
    from typing_extensions import Self

    from pellucid.core.removal import Counterfactual
    from pellucid.explain.explanation import Explanation
    from pellucid.text.words import Coverage, Span

Vectors = npt.NDArray[np.float32]
P = ParamSpec("P")
T = TypeVar("T")


def same_arguments(method: Callable[P, T]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Give a method that passes its arguments on to `method` the types and the signature of that."""

    def decorated(wrapper: Callable[..., T]) -> Callable[P, T]:
        wrapper.__wrapped__ = method  # type: ignore[attr-defined]  # which `inspect.signature` shows
        return wrapper

    return decorated


class Embedder(EditableModel):
    """A text embedding model whose scores can be taken apart."""

    similarity_fn_name: ClassVar[str] = "cosine"
    """What `similarity` computes of two rows of `encode`, in sentence-transformers' words."""

    query_type: ClassVar[type[Query]] = Query  # a text as the family reads it
    _normalizes: ClassVar[bool] = False  # whether `_encode` takes texts in any Unicode form; else they come in NFC
    reads_texts: ClassVar[bool] = False  # whether reasons are read from texts, so that another vector would not fit
    truncates: ClassVar[bool] = False  # whether the first dimensions alone are a smaller model

    @abstractmethod
    def _encode(self, texts: list[str], role: Role, *, batch_size: int, show_progress_bar: bool) -> Any:
        """Return one row for each of the checked `texts`; only a transformer looks at `batch_size`."""

    def analyze_texts(self, texts: list[str], roles: list[Role]) -> Sequence[Query]:
        """Read one or two checked texts once: for each its vector, how much of it is known, and terms of similarities.

        A family that knows more than products of coordinates has a `query_type` of its own.
        """
        return [self.query_type(self, text, role) for text, role in zip(texts, roles, strict=True)]

    def explain(self, text1: str, text2: str = MISSING_TEXT, *, role1: Role = None, role2: Role = None) -> Explanation:
        """Take the similarity of two texts apart, or one text's embedding where no `text2` is given.

        The class says what a row is. For one text, rows are the parts of the embedding's squared length.

        Args:
            text1: a text.
            text2: another; None is an error, as it is a text that is missing.
            role1: what text 1 is encoded as: "query", "document", or None for what `encode` does.
            role2: the same of text 2. What a search computes is explained with role1="query", role2="document".

        Raises:
            InputError: a text is not a string, a role is unknown, or there would be too many rows.
        """
        queries = self.analyze_texts(*validate_texts(text1, text2, role1, role2))
        explanation = self.explain_queries(*queries)
        return explanation if explanation.pair is None else explanation.check()

    def background(self, text1: str, text2: str, *, role1: Role = None, role2: Role = None) -> npt.NDArray[np.float64]:
        """Return the scores of 3,540 pairs of unrelated texts of such lengths: what a score of the two means.

        Args:
            text1: a text; its number of words decides with which of the bundled sentences it is compared: those of up
                to 4, 15 or 40 words, or several joined. 60 of a length are encoded when they are first needed.
            text2: another.
            role1: as for `explain`.
            role2: the same of text 2.

        Returns:
            Ascending, float64 [pairs]; empty where a text is not English, as the sentences are.

        Raises:
            InputError: a text is not a string, or a role is unknown.
        """
        return background(self, *validate_texts(text1, text2, role1, role2))

    def counterfactual(
        self, text1: str, text2: str, *, below: float, role1: Role = None, role2: Role = None
    ) -> Counterfactual:
        """Return the fewest words of text 2 whose removal brings the similarity below a threshold.

        The shortened texts are encoded, a few hundred at most. The word is removed first that counts most, and words
        are put back that are not needed; of a text of more than 24 words phrases or sentences.

        Args:
            text1: a text, which stays as it is.
            text2: the text whose words are removed.
            below: the threshold.
            role1: as for `explain`.
            role2: the same of text 2.

        Raises:
            InputError: as for `explain`; or the similarity is below already, or stays above as long as a word is left.
        """
        from pellucid.core.removal import Passage, fewest_removals

        texts, roles = validate_texts(text1, text2, role1, role2)
        vector = self._encode_each([texts[0]], [roles[0]])

        def score(shortened: list[str]) -> npt.NDArray[np.float64]:
            similarities = self.similarity(vector, self._encode_each(shortened, [roles[1]]))
            return np.asarray(similarities, np.float64).ravel()

        (own_score,) = score([texts[1]]).tolist()
        return fewest_removals(Passage(texts[1], self.known_word_spans(texts[1], roles[1]), own_score, score), below)

    def known_word_spans(self, text: str, role: Role) -> list[Span]:
        """Return where the words of a text stand that the model knows."""
        unknown = set(self.coverage_and_gaps([text], role)[0][1])
        return [span for word in split_words(text) if (span := (word.start, word.end)) not in unknown]

    def explain_queries(self, first: Query, *second: Query) -> Explanation:
        """Return the explanation of one text, or of two, that were read before."""
        from pellucid.explain.explanation import Explanation

        terms = first.terms(*second)
        coverage, unknown = zip(*(query.coverage_and_gaps for query in (first, *second)))
        score = float(terms.values.sum()) if terms.score is None else terms.score
        texts = first.text, second[0].text if second else None
        return Explanation.from_terms(
            self.family, texts, score, terms.values, terms.row, exact=terms.exact,
            unknown=(*unknown, ())[:2], coverage=coverage, measurement=terms.measurement,
            pair=EncodedPair(self, first.role, second[0].role) if second else None,
        )  # fmt: skip

    @classmethod
    def from_pretrained(cls, path_or_id: str | Path) -> Self:
        """Open a saved model: a bundled name, a folder that `save_pretrained` wrote, or a hub id.

        Raises:
            ModelFolderError: there is no such model, it is of another family, or its files are broken.
        """
        return cls._open(path_or_id)

    @classmethod
    def _open(cls, path_or_id: str | Path, **options: Any) -> Self:
        """Find a folder, check it and read it; `options` are further arguments of a family's `_read`."""
        folder = locate(path_or_id)
        config = check_family(folder, cls.family)
        try:
            model = cls._read(folder, config, **options)
        except InputError as error:
            raise ModelFolderError(f"{folder}: {error}") from error
        model.folder = folder.absolute()  # the process may go to another folder
        return model

    @classmethod
    def _read(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        """Return the model in a checked folder, of which `config` is what `_write` returned."""
        raise InputError(f"a {cls.family} model cannot be opened from a folder")

    def save_pretrained(self, path: str | Path) -> None:
        """Write the model to folder `path`, whole or not at all.

        Raises:
            InputError: `path` holds something other than a model, or the model has a part that cannot be saved.
            WritingError: it cannot be written; what was at `path` is untouched.
        """
        self._save(path)

    def push_to_hub(self, repo_id: str, *, private: bool = False, token: str | None = None) -> str:
        """Upload the model to the Hugging Face hub and return the address of the commit."""
        from huggingface_hub import HfApi

        api = HfApi(token=token)
        api.create_repo(repo_id, private=private, exist_ok=True)
        with temporary_folder() as folder:
            self.save_pretrained(folder / "model")
            return str(api.upload_folder(repo_id=repo_id, folder_path=folder / "model"))

    def _save(self, path: str | Path, *, config: Mapping[str, Any] | None = None, **options: Any) -> None:
        """Replace the folder `path`; `config` is the top of `config.json`, `options` go to `_write`."""
        model_config: dict[str, Any] = {}
        with saving(path, self.family, model_config, config) as folder:
            model_config |= self._write(folder, **options)

    def _write(self, folder: Path) -> Mapping[str, Any]:
        """Write the files of the model into an empty folder and return what `config.json` and the model card say."""
        raise InputError(f"a {self.family} model cannot be saved")

    def identity(self) -> Mapping[str, Any] | None:
        """Return all that the vectors depend on, for `fingerprint`; None to identify the model by its vectors."""
        return None

    def encode(
        self, inputs: str | Iterable[str], prompt_name: str | None = None, prompt: str | None = None,
        batch_size: int = 32, show_progress_bar: bool | None = None,
        output_value: str | None = "sentence_embedding", precision: str | None = "float32",
        convert_to_numpy: bool = True, convert_to_tensor: bool | None = None, device: Any = None,
        normalize_embeddings: bool = False, truncate_dim: int | None = None, pool: Any = None,
        chunk_size: int | None = None, *, convert_to_sparse_tensor: bool | None = None, save_to_cpu: bool = False,
        max_active_dims: int | None = None,
    ) -> Any:  # fmt: skip
        """Return the embeddings of texts. The arguments are those of sentence-transformers' `encode`.

        Args:
            inputs: a text, or any iterable of texts, such as a list, a pandas Series or an Arrow array. One string
                gives one embedding (1-d), as in sentence-transformers.
            prompt_name: "query" or "document": encode as `encode_query` or `encode_document` does.
            prompt: a string put before every text, instead of the model's own. A transformer with instructions takes
                only "": its instructions have a template (`with_instruction`).
            batch_size: texts of one pass through a transformer; the embeddings do not depend on it.
            show_progress_bar: show a bar, counting texts, once the work has lasted two seconds.
            output_value: "sentence_embedding".
            precision: "float32", or None; `sentence_transformers.quantize_embeddings` rounds embeddings.
            convert_to_numpy: False gives a list of torch tensors, one a text.
            convert_to_tensor: give one torch tensor, of a sparse family in COO as `SparseEncoder` does. None is False,
                and True where `convert_to_sparse_tensor` is given, whose tensors are one there unless it is False.
            device: the one that the model is on, or None; the model stays where it is.
            normalize_embeddings: bring rows to length 1; those of the static and lexicon families have it already.
            truncate_dim: keep so many of the first dimensions, in families where these say most.
            pool: None; no processes are started.
            chunk_size: None.
            convert_to_sparse_tensor: of a sparse family, give tensors, in COO (True) or filled up (False).
            save_to_cpu: put tensors into the memory of the processor, wherever the model is.
            max_active_dims: of a sparse family, keep so many of the largest values of each row.

        Returns:
            float32 array [texts, dimension] (a CSR matrix for the sparse families), unless the arguments say otherwise.
            Rows are zero for a text without anything known; their length is 1 in the static family, and in the others
            as the class says.

        Raises:
            InputError: an item is not a string (the message gives its position), or the model cannot do what an
                argument asks for.
            MissingExtraError: tensors are asked for, and torch is not installed.
        """
        options = EncodeOptions(
            prompt_name, prompt, batch_size, show_progress_bar, output_value, precision, convert_to_numpy,
            convert_to_tensor, device, normalize_embeddings, truncate_dim, pool, chunk_size,
            convert_to_sparse_tensor, save_to_cpu, max_active_dims,
        )  # fmt: skip
        single = isinstance(inputs, str)
        role: Role = None
        plain = options == PLAIN
        texts = [inputs] if isinstance(inputs, str) else check_texts(inputs)
        if not plain:
            texts, role = self._resolve_role_and_prompt(texts, options)
        bar = bool(options.show_progress_bar) and not single
        rows = self._encode(self.canonical_texts(texts), role, batch_size=options.batch_size, show_progress_bar=bar)
        if not plain:
            rows = options.applied(rows, self.device)
        return rows[0] if single else rows

    @same_arguments(encode)
    def encode_query(self, inputs: Any, prompt_name: str | None = None, *positional: Any, **named: Any) -> Any:
        """Encode search queries, with `encode`'s arguments; in some families the same as `encode`."""
        return self.encode(inputs, prompt_name or "query", *positional, **named)

    @same_arguments(encode)
    def encode_document(self, inputs: Any, prompt_name: str | None = None, *positional: Any, **named: Any) -> Any:
        """Encode documents, with `encode`'s arguments; in some families the same as `encode`."""
        return self.encode(inputs, prompt_name or "document", *positional, **named)

    def _resolve_role_and_prompt(self, texts: list[str], options: EncodeOptions) -> tuple[list[str], Role]:
        """Check the options against this model; return the texts with their prompt, and their role."""
        options.check()
        if options.device is not None and not self._computes_on(options.device):
            raise InputError(
                f"device is {str(options.device)!r:.40}, and this {self.family} model computes on {self.device!r}; "
                "leave it out, or open the model there"
            )
        if options.truncate_dim is not None and not self.truncates:
            raise InputError(
                f"truncate_dim is {options.truncate_dim}, and the first dimensions of a {self.family} model are no "
                "better than the others; choose some by name or number with model.keep(...)"
            )
        if options.prompt is not None:
            return self._prompted(texts, options.prompt)
        return texts, validate_role(options.prompt_name)

    def _prompted(self, texts: list[str], prompt: str) -> tuple[list[str], Role]:
        """Return texts with `prompt` before them, and a role in which the model adds no prompt of its own."""
        return [prompt + text for text in texts], None

    def _encode_each(self, texts: list[str], roles: Sequence[Role]) -> Any:
        """Return one row for each of some texts, each in its own role."""
        if len(set(roles)) == 1:
            forms = self.canonical_texts(texts)
            return self._encode(forms, roles[0], batch_size=PLAIN.batch_size, show_progress_bar=False)
        rows = [self._encode_each([text], [role]) for text, role in zip(texts, roles, strict=True)]
        return vstack(rows)

    def canonical_texts(self, texts: Any) -> Any:
        """Return checked texts as `_encode` takes them: equivalent strings are one text for every model."""
        return texts if self._normalizes else list(map(canonicalize, texts))

    def size_text(self) -> str:
        """Return how large the model is, in the family's own units."""
        return f"{self.get_embedding_dimension():,} dimensions"

    def __repr__(self) -> str:
        """Return one line: family, source and size."""
        return f"{type(self).__name__}({': '.join(filter(None, (self.source, self.size_text())))})"

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the cosine of every row of `embeddings1` to every row of `embeddings2`.

        Args:
            embeddings1: in any form that `encode` gives: arrays, sparse matrices, tensors or lists of them.
            embeddings2: the same.

        Returns:
            float32 [rows 1, rows 2]; 0 wherever a row is zero, never NaN. An array, or a torch tensor on the same
            device where one of the two is made of tensors.

        Raises:
            InputError: they are texts, which must be encoded first, or have different numbers of dimensions.
        """
        first, second = self._both_similarity_rows(embeddings1, embeddings2)
        product = first @ second.T
        cosines = np.asarray(product.todense() if hasattr(product, "todense") else product, dtype=np.float32)
        return match_container((embeddings1, embeddings2), cosines)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the cosine of each row of `embeddings1` to the same row of `embeddings2`.

        Returns:
            float32 [rows], an array or a tensor as of `similarity`.

        Raises:
            InputError: the two have different numbers of rows or dimensions.
        """
        first, second = self._both_similarity_rows(embeddings1, embeddings2)
        if first.shape[0] != second.shape[0]:
            raise InputError(f"similarity_pairwise needs equally many rows, got {first.shape[0]} and {second.shape[0]}")
        product = first.multiply(second) if hasattr(first, "multiply") else first * second
        cosines = np.asarray(product.sum(axis=1), dtype=np.float32).ravel()
        return match_container((embeddings1, embeddings2), cosines)

    def _both_similarity_rows(self, embeddings1: Any, embeddings2: Any) -> tuple[Any, Any]:
        """Return the rows of two arguments at length 1, which must be of one model."""
        first, second = self.similarity_rows(embeddings1), self.similarity_rows(embeddings2)
        if first.shape[1] != second.shape[1]:
            raise InputError(
                f"the embeddings have {first.shape[1]:,} and {second.shape[1]:,} dimensions; compare those of one model"
            )
        return first, second

    def similarity_rows(self, embeddings: Any) -> Any:
        """Return embeddings of this model so that the product of two rows is their similarity."""
        return l2_normalize(embeddings)

    def coverage(self, texts: str | Iterable[str], *, role: Role = None) -> Any:
        """Return how much of each text the model knows.

        That is the share of the text's words, each counted as often as it occurs, that have a vector. A transformer has
        a token for everything: there it is the share of the words before it cuts the text. A word found by its
        beginning alone counts by the share of its letters that this has ("chatgpt" read as "chat" 4/7), one found by
        its spelling half. A text without words has 1: nothing in it is unknown.

        Args:
            texts: a text, or any iterable of texts.
            role: what they are encoded as; an instruction leaves less room for a query.

        Returns:
            float32 [texts], from 0 to 1; one number for one string.

        Raises:
            InputError: an item is not a string, or the role is unknown.
        """
        checked, role = check_texts([texts] if isinstance(texts, str) else texts), validate_role(role)
        shares = np.array([coverage.share for coverage, _ in self.coverage_and_gaps(checked, role)], np.float32)
        return shares[0] if isinstance(texts, str) else shares

    def coverage_and_gaps(self, texts: list[str], role: Role = None) -> list[tuple[Coverage, tuple[Span, ...]]]:
        """Return for each text its coverage and the spans that are not known; here, all is known."""
        return [words_before(text, len(text)) for text in texts]

    def describe(self, text: str, *, top_k: int = 5) -> str:
        """Say in one line what `text` is mostly about for this model, strongest first, and if few words are known.

        Raises:
            InputError: `text` is not a string, or `top_k` is below 1.
        """
        check_integer("top_k", top_k)
        validate_texts(text)
        coverage = self.coverage_and_gaps([text])[0][0]
        names = self._strongest(text, top_k)
        strongest = f"mostly about: {', '.join(names)}" if names else "nothing this model knows"
        if not (coverage.known and coverage.is_low):
            return strongest
        return f"{strongest} (only {coverage.summary} known)"

    def _strongest(self, text: str, top_k: int) -> list[str]:
        """Return the names of what `text` is mostly about, each with its share."""
        rows = self.explain(text).reasons(top_k)
        return [f"{row.name} ({row.share:{'.0%' if row.share >= 0.01 else '.1%'}})" for row in rows]
