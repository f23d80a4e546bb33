"""Static word embeddings (SWE): a text is the mean of its words' vectors, at length 1.

After Wada et al., "Static Word Embeddings for Sentence Semantic Representation", section 3 and the inference rule of
section 4.1. Because the embedding is a mean, a cosine is exactly a sum over pairs of words, one of each text:

    cos(a, b) = sum over w in a, v in b of  w . v / (n_a n_b |mean a| |mean b|)

`bulk.py` encodes texts. How a model is made is in `static/training/extraction.py` and `static/training/distill.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import Role, l2_normalize
from pellucid.core.dimensions import (
    Dimension,
    Dimensions,
    Edit,
    read_dimensions,
    scaling,
    selected_columns,
    write_dimensions,
)
from pellucid.core.embedder import Embedder, Vectors
from pellucid.core.query import Query
from pellucid.errors import InputError, check_integer, shown
from pellucid.persistence.folder import locate
from pellucid.persistence.store import is_sound, write_tensors
from pellucid.process import cached_property
from pellucid.static.bulk import BulkEncoder
from pellucid.static.folder import (
    SPELLING,
    STOCK_CONFIG,
    is_stock_vocabulary,
    read_spelling,
    read_static,
    read_text_vectors,
    write_static,
)
from pellucid.static.precision import (
    MAX_ABS_VALUE,
    PackedRows,
    StoredTable,
    floats,
)
from pellucid.static.spelling import BUCKETS, SpelledRows, Speller, ngram_weights
from pellucid.static.words import TextWords, WordQuery
from pellucid.text.unicode import lowercase, unspaced_run
from pellucid.text.words import Coverage, Span, Vocabulary

_TABLE = "dimensions.tsv"
_WORDS = 10_000  # the first of the vocabulary, in most models the commonest: rare words make poor names
_IN_NAME, _IN_ABOUT = 3, 12  # words of each end


def name_directions(model: StaticEmbedder) -> Dimensions:
    """Return the dimensions of `model`, named "high words / low words" and about a dozen words of each end."""
    # Words are compared at length 1, so that a word's frequency, which is in its length, does not choose it.
    rows = [row for row, word in enumerate(model.vocabulary.words[: 2 * _WORDS]) if _names(word)]
    rows = rows[:_WORDS] or list(range(min(len(model.vocabulary), _WORDS)))
    units = l2_normalize(model.word_vectors(rows))
    words = [model.vocabulary.words[row] for row in rows]
    dimensions: list[Dimension] = []
    used_names: set[str] = set()
    for index, column in enumerate(units.T):
        order = np.argsort(column, kind="stable").tolist()
        up, down = ([words[i] for i in end[:_IN_ABOUT]] for end in (order[::-1], order))
        name = f"{', '.join(up[:_IN_NAME])} / {', '.join(down[:_IN_NAME])}"
        name = name if name not in used_names else f"{name} ({index})"
        used_names.add(name)
        dimensions.append(Dimension(name, (f"high: {', '.join(up)}", f"low: {', '.join(down)}")))
    return Dimensions(dimensions)


def _names(word: str) -> bool:
    """Whether `word` can name a dimension: only letters, and more of them than most function words have."""
    return word.isalpha() and len(word) > (1 if unspaced_run.fullmatch(word) else 2)


class StaticEmbedder(Embedder):
    """One vector a word; a text is the mean of its words' vectors, at length 1, the same in every role.

    A row of an explanation is a pair (word of text 1, word of text 2); of one text a word, and its contribution the
    part of the embedding's squared length (1) in its direction. There are at most 250,000. Repeated words are one row,
    upper and lower case together where they have the same vector. A word that is not in the vocabulary but is read as
    its prefix there is named with it: "tokenisers (read as token)"; with spelling, with the known words that weigh most
    in its vector: "tokenisers (read as token + tokens)"; "A320 (unknown)" matches only itself.

    Attributes:
        vocabulary: the words and the rule that finds a row for any word.
        vectors: float32, float16 or int8 [words, dimension]; may be memory-mapped. Of a table of 4 bits that was read
            from a folder, `PackedRows`, which gives int8 for the rows asked for.
        scales: float32 [words], what an int8 row is multiplied with; None for float tables.
        dtype: what `save_pretrained` writes: that of `vectors`, or "int4" for int8 numbers from -7 to 7.
    """

    family: ClassVar[str] = "static"
    query_type: ClassVar[type[Query]] = WordQuery
    reads_texts: ClassVar[bool] = True
    _normalizes: ClassVar[bool] = True
    truncates: ClassVar[bool] = True  # principal directions come first where they matter most

    def __init__(
        self,
        vocabulary: Vocabulary,
        vectors: npt.NDArray[Any] | PackedRows,
        scales: Vectors | None = None,
        *,
        dimensions: Dimensions | None = None,
        spelling: npt.NDArray[np.uint8] | None = None,
        dtype: str | None = None,
    ) -> None:
        """Take the table as it is, without copying.

        Args:
            vocabulary: the words and the rule that finds a row for any word.
            vectors: float32, float16 or int8 [words, dimension].
            scales: float32 [words], only for int8 vectors.
            dimensions: their names; None names them by the words at their ends.
            spelling: uint8, the weights of n-grams that `fit_spelling` fitted, for unknown words; None finds these by
                their beginning alone.
            dtype: what `save_pretrained` writes; None for the dtype of `vectors`. int8 vectors may be "int4".

        Raises:
            InputError: the shapes or dtypes do not fit together.
        """
        if vectors.ndim != 2 or vectors.shape[0] != len(vocabulary):
            raise InputError(f"{len(vocabulary)} words need as many vectors, got an array of shape {vectors.shape}")
        if vectors.dtype not in (np.float32, np.float16, np.int8):
            raise InputError(f"vectors are {vectors.dtype}; float32, float16 and int8 tables are known")
        if (vectors.dtype == np.int8) != (scales is not None):
            raise InputError("an int8 table needs scales, one a row, and a float table has none")
        if scales is not None and (scales.dtype != np.float32 or scales.shape != (len(vectors),)):
            raise InputError(f"scales are {scales.dtype} {list(scales.shape)}, expected float32 [{len(vectors)}]")
        if dimensions is not None and len(dimensions) != vectors.shape[1]:
            raise InputError(f"{len(dimensions)} names for {vectors.shape[1]} dimensions")
        if dtype not in (None, str(vectors.dtype)) and (dtype, str(vectors.dtype)) != ("int4", "int8"):
            raise InputError(f"a table of {vectors.dtype} cannot be {shown(dtype)}; only int8 may be another, 'int4'")
        self.vocabulary, self.vectors, self.scales = vocabulary, vectors, scales
        self.dtype = dtype or str(vectors.dtype)
        self._dimensions = dimensions
        self.spelling = spelling
        if spelling is not None and (spelling.dtype != np.uint8 or spelling.shape != (BUCKETS,)):
            actual = f"{spelling.dtype} {list(spelling.shape)}"
            raise InputError(f"the weights of n-grams are {actual}, not uint8 [{BUCKETS}]")

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the running encoder: its arrays are views of one another, which copies of them are not."""
        return {name: value for name, value in self.__dict__.items() if name not in ("bulk", "_speller")}

    @cached_property
    def bulk(self) -> BulkEncoder:
        """The encoder over the C kernels."""
        return BulkEncoder(self.vocabulary, self.vectors, self.scales, self._speller)

    @cached_property
    def _speller(self) -> Speller | None:
        weights = self.spelling
        return None if weights is None else Speller(self.vocabulary, self.vectors, self.scales, weights)

    def spelled_rows(self) -> SpelledRows | None:
        """Return where words outside the vocabulary get rows, beyond those of the table; None without spelling."""
        return None if self._speller is None else SpelledRows(self._speller, self.vectors.shape[1])

    @classmethod
    def from_pretrained(cls, path_or_id: str | Path) -> StaticEmbedder:
        """Open a static model: a bundled name, a saved folder, a hub id, or a text file of word vectors.

        Such a file has the form of word2vec, GloVe, fastText (.vec) or the SWE authors, a word and its numbers a line,
        and may be packed (.gz, .xz). Its words are known, and no others.

        A table of more than 4 MB is mapped, not read: opening takes milliseconds, and processes that open the same
        folder share its memory. Float tables up to 64 MB are searched for NaN; for larger ones that would mean to read
        them whole, and a text that meets one is refused by `encode` (`pellucid doctor -m` searches tables of any size).

        Raises:
            ModelFolderError: nothing is there, it is of another family, or its files are broken (a text file: in a line
                that is named).
        """
        path = locate(path_or_id)
        if not path.is_file():
            return cls._open(path)
        words, vectors = read_text_vectors(path)
        return cls(Vocabulary(words), vectors)

    @classmethod
    def _read(cls, folder: Path, config: Mapping[str, Any]) -> StaticEmbedder:
        table = read_static(folder)
        model = cls(*table[:3], spelling=read_spelling(folder), dtype=table.dtype)
        if not (folder / _TABLE).exists():
            return model
        dimensions, factors = read_dimensions(folder / _TABLE, model.get_embedding_dimension())
        model = model._with(model.vectors, model.scales, dimensions)
        return model if set(factors) == {1.0} else model._edited(scaling(dimensions, dict(enumerate(factors))))

    def save_pretrained(self, path: str | Path, *, dtype: str | None = None, extra_words: Iterable[str] = ()) -> None:
        """Write the model to folder `path`, whole or not at all.

        model2vec and sentence-transformers (6.2 or later, for the scales of int8) open the folder too; they refuse one
        of int4, and one whose vocabulary cuts scripts without spaces into words. They know the rule for unknown words
        only as far as it is written out: the vocabulary in any case (in a cased vocabulary: lower, Capitalised and
        UPPER), and `extra_words`. For the same vectors there, give the words of your texts; docs/benchmarks.md has
        what is lost without (5.4 points of nDCG@10 on SciFact with static-en).

        Args:
            path: the folder; a model that is there is replaced in one step, its own README.md kept. A folder that
                holds anything else is refused.
            dtype: "float32", "float16", "int8" (a quarter of float32; one scale for the table where its rows are alike
                in length, which encodes faster, else one a row) or "int4" (an eighth, for this library alone); None
                keeps the table's.
            extra_words: strings to look up now for those other readers, for instance rare words of a corpus.

        Raises:
            InputError: an unknown dtype, values it cannot hold, or a word with a line break in it.
            WritingError: it cannot be written; what was at `path` is untouched.
        """
        stored = dtype or self.dtype
        config = {**STOCK_CONFIG, "embedding_dtype": stored} if is_stock_vocabulary(self.vocabulary, stored) else {}
        self._save(path, config=config, dtype=dtype, extra_words=extra_words)

    def _write(self, folder: Path, *, dtype: str | None = None, extra_words: Iterable[str] = ()) -> dict[str, Any]:
        table = StoredTable(self.vocabulary, self.vectors, self.scales, dtype or self.dtype)
        write_static(folder, table, extra_words=extra_words)
        write_dimensions(folder / _TABLE, self.dimensions)
        if self.spelling is not None:
            write_tensors(folder / SPELLING, {"weights": self.spelling})
        return {"words": len(self.vocabulary), "dimension": self.get_embedding_dimension(), "dtype": table.dtype}

    def identity(self) -> dict[str, Any]:
        """Return all that the vectors depend on, for `fingerprint`."""
        words = {"words": list(self.vocabulary.words), "subwords": self.vocabulary.subwords, "spelling": self.spelling}
        # The last key has no meaning: the fingerprints that bundled folders hold were made with it.
        return {**words, "vectors": np.asarray(self.vectors), "scales": self.scales, "unedited": None}

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions of an embedding."""
        return int(self.vectors.shape[1])

    @property
    def dimensions(self) -> Dimensions:
        """The directions of the table, named by the words at their ends unless a person named them."""
        if self._dimensions is None:
            self._dimensions = name_directions(self)
        return self._dimensions

    def _with(self, vectors: Any, scales: Vectors | None, dimensions: Dimensions | None) -> StaticEmbedder:
        """Return the model with another table of the same dtype."""
        spelling, dtype = self.spelling, self.dtype
        return StaticEmbedder(self.vocabulary, vectors, scales, dimensions=dimensions, spelling=spelling, dtype=dtype)

    def _edited(self, edit: Edit) -> StaticEmbedder:
        columns = selected_columns(edit)
        if columns == list(range(self.get_embedding_dimension())):  # only the names change
            return self._with(self.vectors, self.scales, edit.dimensions)
        if columns is not None:  # the table keeps its dtype
            return self._with(self.vectors[:, columns], self.scales, edit.dimensions)
        vectors = edit.mixing.applied(self.word_vectors(np.arange(len(self.vocabulary)))).astype(np.float32)
        if not is_sound(vectors, MAX_ABS_VALUE):
            raise InputError(f"the edits together give vectors beyond {MAX_ABS_VALUE:g}; scale less")
        return StaticEmbedder(self.vocabulary, vectors, dimensions=edit.dimensions, spelling=self.spelling)

    def word_vectors(self, rows: npt.NDArray[np.int64] | Sequence[int]) -> Vectors:
        """Return the vectors of table `rows` as float32 [rows, dimension].

        Raises:
            InputError: `rows` are no integers, or there is no such row.
        """
        try:
            return floats(self.vectors, self.scales, np.asarray(rows, dtype=np.int64))
        except (IndexError, OverflowError, TypeError, ValueError) as error:
            raise InputError(f"rows are {shown(rows)}; give integers from 0 to {len(self.vocabulary) - 1}") from error

    @property
    def max_seq_length(self) -> float:
        """Infinity: every word of a text is read."""
        return math.inf

    def size_text(self) -> str:
        """Return how large the model is, in the family's own units."""
        return f"{len(self.vocabulary):,} words x {self.get_embedding_dimension()}"

    def _encode(self, texts: Any, role: Role, *, batch_size: int, show_progress_bar: bool) -> Vectors:
        return self.bulk.encode(texts, show_progress_bar=show_progress_bar)

    def vectors_for(self, rows: npt.NDArray[np.int64], spelled: SpelledRows | None) -> Vectors:
        """Return the vectors of `rows`, those beyond the table from `spelled`, float32 [rows, dimension]."""
        if spelled is None or not len(spelled):
            return self.word_vectors(rows)
        spelled_index = rows - len(self.vocabulary)
        vectors = np.empty((len(rows), self.get_embedding_dimension()), np.float32)
        vectors[spelled_index < 0] = self.word_vectors(rows[spelled_index < 0])
        vectors[spelled_index >= 0] = spelled.vectors[spelled_index[spelled_index >= 0]]
        return vectors

    def text_words(self, text: str) -> TextWords:
        """Return the words of a text, as explanations show them."""
        vocabulary = self.vocabulary
        words = vocabulary.split(text)
        texts = [word.text for word in words]
        lowered = [(index, lowercase(word)) for index, word in enumerate(texts) if word not in vocabulary]
        unmatched = [(index, lower) for index, lower in lowered if lower not in vocabulary]
        spelled = self.spelled_rows()
        rows = list(map(vocabulary.row, texts)) if spelled is None else spelled.rows(texts)
        return TextWords(vocabulary, rows, words.__getitem__, unmatched, spelled)

    def coverage_and_gaps(self, texts: list[str], role: Role = None) -> list[tuple[Coverage, tuple[Span, ...]]]:
        """Return for each text its coverage and the spans that are not known."""
        return [(words.coverage, words.unknown) for words in map(self.text_words, texts)]

    def nearest_words(self, word_or_text: str, *, top_k: int = 10) -> list[tuple[str, float]]:
        """Return the `top_k` words whose vectors have the highest cosine to a word or text, best first.

        >>> # model.nearest_words("mortgage", top_k=2)  ->  [("mortgage", 1.0), ("mortgages", 0.93)]
        """
        check_integer("top_k", top_k)
        if not isinstance(word_or_text, str):
            raise InputError(f"the text is {shown(word_or_text)} ({type(word_or_text).__name__}); it must be a string")
        vectors = self.word_vectors(np.arange(len(self.vocabulary)))
        scores = self.similarity(self.encode(word_or_text), vectors)[0]
        best = np.argsort(-scores, kind="stable")[:top_k]
        return [(self.vocabulary.words[row], float(scores[row])) for row in best]


def static_model(model: Any, doing: str) -> StaticEmbedder:
    """Return `model` if it is a static one; the error names what needs one, `doing`."""
    if not isinstance(model, StaticEmbedder):
        raise InputError(f"{doing} needs a static model, one with a vector a word; got {type(model).__name__}")
    return model


def fit_spelling(model: StaticEmbedder) -> StaticEmbedder:
    """Return `model` with spelling: an unknown word gets a vector.

    A word of letters gets it from the known words spelled like it and, where few are, from its beginning; a number or
    code from its beginning. Each also has a part that is similar only to itself. Known words keep their
    vectors. Some seconds for 100,000 words; 256 KB more in the folder. Edits of dimensions keep the spelling, which
    then reads the edited table.

    Args:
        model: a static model; it is not changed.

    Raises:
        InputError: it is not static, or fewer than two of its words are of letters only.

    >>> # fit_spelling(pellucid.load("static-en")).save_pretrained("static-en-spelled")
    """
    static_model(model, "spelling")
    weights = ngram_weights(model.vocabulary.words, model.word_vectors(np.arange(len(model.vocabulary))))
    dimensions, dtype = model.dimensions, model.dtype
    return StaticEmbedder(
        model.vocabulary, model.vectors, model.scales, dimensions=dimensions, spelling=weights, dtype=dtype
    )
