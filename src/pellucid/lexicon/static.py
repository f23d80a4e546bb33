"""Static lexicon embeddings: a table says which clusters a word fires, so that no transformer is needed.

Each word of a vocabulary has a sparse row of weights over k clusters. With n_w for how often word w occurs in a text
and a_wj >= 0 for its weight for cluster j,

    w_j = log(1 + sum over w of  n_w a_wj),      embedding = w / |w|

which is the pooling of a `LexiconEmbedder` with a sum in place of the transformer. The cosine of two texts is exactly a
sum over clusters, and a cluster's weight in a text comes from words that can be named. How a table is made from a
lexicon model is in `recipes/lexicon_table.py`.

On disk:

    config.json            the family, and `max_active_dims`
    lexicon.safetensors    starts, clusters, weights and scales of the table; mixing where dimensions were merged
    words.txt              the vocabulary; with it `subwords.json`, the tokenizer that finds a word's known beginning
    dimensions.tsv         the dimensions, for people: names and scales in it are honoured; what `scale` did is here
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import Role
from pellucid.core.dimensions import Dimensions, Edit, Mixing, write_dimensions
from pellucid.core.embedder import Embedder
from pellucid.core.mixing import (
    MAX_TABLE_VALUE,
    after_edit,
    mixing_tensors,
    read_mixed,
    sparse_units,
    strongest_source,
)
from pellucid.core.query import Query, SpanFinder
from pellucid.errors import InputError, ModelFolderError, check_integer, require
from pellucid.native.kernels import SparseTable
from pellucid.persistence.store import is_sound, read_tensors, write_tensors
from pellucid.process import cached_property
from pellucid.static.bulk import BulkRows
from pellucid.static.folder import read_vocabulary, write_vocabulary
from pellucid.static.precision import as_kernel_array
from pellucid.text.unicode import lowercase
from pellucid.text.words import Coverage, Span, Vocabulary, Word, part_known

if TYPE_CHECKING:
    from typing_extensions import Self

_TENSORS, _TABLE = "lexicon.safetensors", "dimensions.tsv"
_MAX_CLUSTERS = 1 << 15  # the numbers of clusters are int16
_MIN_SCALE = 1e-18  # a word whose scale is below fires nothing


class WordClusters(NamedTuple):
    """Which clusters each word fires, and how strongly.

    The entries of word w are those from `starts[w]` to `starts[w + 1]`; entry e is cluster `clusters[e]` with the
    weight `scales[w] * weights[e]`.
    """

    starts: npt.NDArray[np.int32]  # [words + 1]
    clusters: npt.NDArray[np.int16]  # [entries]
    weights: npt.NDArray[np.uint8]  # [entries], above 0
    scales: npt.NDArray[np.float32]  # [words], above 0 where the word has entries

    @classmethod
    def from_weights(cls, table: Any) -> WordClusters:
        """Return a table of weights, SciPy sparse [words, k], rounded to 255ths of each word's largest."""
        from scipy import sparse

        rows = sparse.csr_matrix(table)
        rows.sum_duplicates()
        if rows.shape[1] > _MAX_CLUSTERS:
            raise InputError(f"{rows.shape[1]:,} clusters; a table of words holds at most {_MAX_CLUSTERS:,}")
        if rows.nnz and not (rows.data.min() >= 0 and rows.data.max() <= MAX_TABLE_VALUE):
            raise InputError(f"a word's weight for a cluster is negative, NaN or beyond {MAX_TABLE_VALUE:g}")
        scales = (rows.max(axis=1).toarray().ravel() / 255).astype(np.float32)
        scales[scales < _MIN_SCALE] = 0
        entry_scales = np.repeat(scales, np.diff(rows.indptr))
        steps = np.rint(np.divide(rows.data, entry_scales, out=np.zeros(rows.nnz), where=entry_scales > 0))
        nonzero = steps > 0
        starts = np.concatenate([[0], np.cumsum(nonzero)])[rows.indptr]
        clusters, weights = rows.indices[nonzero].astype(np.int16), steps[nonzero].clip(0, 255).astype(np.uint8)
        return cls(starts.astype(np.int32), clusters, weights, scales)

    def rows(self, words: npt.NDArray[np.int64], k: int) -> Any:
        """Return the weights of some words, float64 CSR [words, k]."""
        from scipy import sparse

        begin, sizes = self.starts[words].astype(np.int64), np.diff(self.starts)[words].astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        entries = np.arange(starts[-1]) + np.repeat(begin - starts[:-1], sizes)
        weights = self.weights[entries] * np.repeat(self.scales[words], sizes).astype(np.float64)
        return sparse.csr_matrix((weights, self.clusters[entries], starts), shape=(len(words), k))

    def take(self, chosen: npt.NDArray[np.int64], k: int) -> WordClusters:
        """Return the table of some of the k clusters, in that order."""
        new_index = np.full(k, -1, np.int16)
        new_index[chosen] = np.arange(len(chosen))
        clusters = new_index[self.clusters]
        selected = clusters >= 0
        starts = np.concatenate([[0], np.cumsum(selected)])[self.starts].astype(np.int32)
        return WordClusters(starts, clusters[selected], self.weights[selected], self.scales)


class _ClusterQuery(Query):
    """A text, its words and the clusters that they fire."""

    def __init__(self, model: StaticLexiconEmbedder, text: str, role: Role) -> None:
        super().__init__(model, text, role)
        self._words: list[Word] = model.vocabulary.split(text)
        self._rows = np.array([model.vocabulary.row(word.text) for word in self._words], np.int64)

    @cached_property
    def coverage_and_gaps(self) -> tuple[Coverage, tuple[Span, ...]]:
        """How much of the text is known, and where the words without a row are."""
        vocabulary, partial, gaps = self.model.vocabulary, list[tuple[str, str, float]](), list[Span]()
        for word, row in zip(self._words, self._rows.tolist()):
            if row < 0:
                gaps.append((word.start, word.end))
            elif not vocabulary.has_row(word.text):
                form = vocabulary.forms[row]
                partial.append((word.text, form, part_known(lowercase(word.text), form)))
        return Coverage.from_words(len(self._words) - len(gaps), len(self._words), partial), tuple(gaps)

    @cached_property
    def _counted(self) -> tuple[npt.NDArray[np.int64], Any]:
        """The distinct rows, and the weights of the clusters of each times its number, float64 CSR [rows, k]."""
        rows, counts = np.unique(self._rows[self._rows >= 0], return_counts=True)
        weights = self.model.table.rows(rows, self.model._clusters)
        return rows, weights.multiply(counts[:, None]).tocsr()

    @cached_property
    def coordinates(self) -> Any:
        """The text's coordinates, float64 CSR [1, dimensions]."""
        from scipy import sparse

        weights = self._counted[1]
        sums = sparse.csr_matrix(np.ones((1, weights.shape[0])) @ weights)
        return sparse_units(sums.log1p(), self.model.mixing, self.model.max_active_dims).astype(np.float64)

    @cached_property
    def span_finder(self) -> SpanFinder:
        """The function from a dimension to where the word is that fires it most."""
        rows, weights = self._counted
        by_cluster = weights.tocsc()
        fired = np.log1p(np.asarray(weights.sum(axis=0)).ravel())

        def find_spans(dimension: int) -> tuple[Span, ...]:
            source = strongest_source(self.model.mixing, fired, dimension)
            entries = slice(by_cluster.indptr[source], by_cluster.indptr[source + 1])
            if entries.start == entries.stop:
                return ()
            row = rows[by_cluster.indices[entries][np.argmax(by_cluster.data[entries])]]
            return tuple((word.start, word.end) for word, word_row in zip(self._words, self._rows) if word_row == row)

        return find_spans


class StaticLexiconEmbedder(Embedder):
    """A text is the weights of k clusters of words, which its own words fire.

    Attributes:
        vocabulary: the words, and the rule that finds a row for any word.
        table: which clusters each word fires, and how strongly.
        mixing: the `Mixing` [k, dimensions] by which the weights are multiplied after pooling, or None; scaling and
            merging dimensions make one.
        max_active_dims: only so many of the largest coordinates of a text are kept; None keeps all.
    """

    family: ClassVar[str] = "static-lexicon"
    query_type: ClassVar[type[Query]] = _ClusterQuery
    _normalizes: ClassVar[bool] = True

    def __init__(
        self,
        vocabulary: Vocabulary,
        table: WordClusters | Any,
        dimensions: Dimensions,
        mixing: Mixing | None = None,
        max_active_dims: int | None = None,
    ) -> None:
        """Take the parts as they are.

        Args:
            vocabulary: the words.
            table: their clusters; a SciPy sparse matrix [words, k] of weights that are not negative is rounded to one.
            dimensions: what the coordinates are called; without `mixing` they are the clusters.
            mixing: [k, dimensions].
            max_active_dims: coordinates kept of a text.

        Raises:
            InputError: the parts do not fit together, or a weight is negative or no finite number.
            MissingExtraError: SciPy is not installed.
        """
        require("scipy", "sparse")
        self.vocabulary, self.mixing, self.max_active_dims = vocabulary, mixing, max_active_dims
        self.table = table if isinstance(table, WordClusters) else WordClusters.from_weights(table)
        self._dimensions = dimensions
        check_integer("max_active_dims", max_active_dims, optional=True)
        scales = self.table.scales
        if not (len(scales) == len(vocabulary) and is_sound(scales, MAX_TABLE_VALUE) and scales.min(initial=0) >= 0):
            raise InputError(
                f"the table has {len(scales):,} scales for {len(vocabulary):,} words, or some that are negative, "
                f"not finite or beyond {MAX_TABLE_VALUE:g}"
            )
        _ = self._kernel_table  # checks the rest: C follows its numbers

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the compiled path: its arrays are views of one another, which copies of them are not."""
        return {name: value for name, value in vars(self).items() if name not in ("_bulk", "_kernel_table")}

    @cached_property
    def _bulk(self) -> BulkRows:
        return BulkRows(self.vocabulary)

    @cached_property
    def _kernel_table(self) -> SparseTable:
        return SparseTable([as_kernel_array(array) for array in self.table], self._clusters)

    @property
    def _clusters(self) -> int:
        """The number of clusters, k."""
        return len(self._dimensions) if self.mixing is None else self.mixing.shape[0]

    @classmethod
    def _read(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        require("scipy", "sparse")
        path = folder / _TENSORS
        for name in ("clusters", "dimensions"):
            if type(config.get(name)) is not int or not 0 < config[name] <= _MAX_CLUSTERS:
                raise ModelFolderError(
                    f"{folder / 'config.json'}: {name!r} is {config.get(name)!r:.40}, expected 1 to {_MAX_CLUSTERS:,}"
                )
        vocabulary = read_vocabulary(folder)
        tensors, _ = read_tensors(path)
        missing = [name for name in WordClusters._fields if name not in tensors]
        if missing:
            raise ModelFolderError(f"{path} holds no {missing[0]!r}; it is of another model or broken")
        # Copied: its indices are followed by SciPy and C, and a mapped file may change or shrink while it is open.
        table = WordClusters(*(np.array(tensors[name]) for name in WordClusters._fields))
        mixing, dimensions = read_mixed(tensors, config["clusters"], config["dimensions"], path)
        return cls(vocabulary, table, dimensions, mixing, config.get("max_active_dims"))

    def _write(self, folder: Path) -> dict[str, Any]:
        write_tensors(folder / _TENSORS, self.table._asdict() | mixing_tensors(self.mixing))
        write_vocabulary(folder, self.vocabulary)
        write_dimensions(folder / _TABLE, self._dimensions)
        config = {"words": len(self.vocabulary), "clusters": self._clusters, "dimensions": len(self._dimensions)}
        return config if self.max_active_dims is None else config | {"max_active_dims": self.max_active_dims}

    def identity(self) -> dict[str, Any]:
        """Return all that the vectors depend on, for `fingerprint`."""
        words = {"words": list(self.vocabulary.words), "subwords": self.vocabulary.subwords}
        table = {**self.table._asdict(), "mixing": self.mixing, "max_active_dims": self.max_active_dims}
        return {**words, **table}

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions: of clusters, unless some were merged."""
        return len(self._dimensions)

    @property
    def dimensions(self) -> Dimensions:
        """The clusters in order; `about` holds the words that fire each most."""
        return self._dimensions

    @property
    def max_seq_length(self) -> float:
        """Infinity: every word of a text is read."""
        return math.inf

    def with_max_active_dims(self, max_active_dims: int | None) -> Self:
        """Return the same model with only the `max_active_dims` largest coordinates of each text; None for all."""
        return self._like(max_active_dims=max_active_dims)

    def _like(self, **changes: Any) -> Self:
        arguments: dict[str, Any] = {
            "table": self.table, "dimensions": self._dimensions, "mixing": self.mixing,
            "max_active_dims": self.max_active_dims, **changes,
        }  # fmt: skip
        return type(self)(self.vocabulary, **arguments)

    def _edited(self, edit: Edit) -> Self:
        used, mixing = after_edit(self.mixing, edit)
        return self._like(table=self.table.take(used, self._clusters), dimensions=edit.dimensions, mixing=mixing)

    def size_text(self) -> str:
        """Return how large the model is, in the family's own units."""
        return f"{len(self.vocabulary):,} words x {len(self._dimensions):,} clusters"

    def _encode(self, texts: list[str], role: Role, *, batch_size: int, show_progress_bar: bool) -> Any:
        """Return CSR float32 [texts, dimensions], rows of length 1 (or 0)."""
        from scipy import sparse

        k, table = self._clusters, self._kernel_table
        blocks = {-1: sparse.csr_matrix((0, k), dtype=np.float32)}

        def pool(worker: Any, first: int, last: int) -> None:
            _, words, ends = worker.find(texts[first:last])
            starts, columns, values = table.pool(words.rows, ends)
            blocks[first] = sparse.csr_matrix((values, columns, starts), shape=(len(ends), k))

        self._bulk.each_block(texts, pool, show_progress_bar)
        rows = sparse.vstack([blocks[first] for first in sorted(blocks)], format="csr")
        if self.mixing is None and self.max_active_dims is None:
            return rows
        return sparse_units(rows, self.mixing, self.max_active_dims)

    def coverage_and_gaps(self, texts: list[str], role: Role = None) -> list[tuple[Coverage, tuple[Span, ...]]]:
        """Return for each text its coverage and the spans that are not known."""
        return [_ClusterQuery(self, text, role).coverage_and_gaps for text in texts]
