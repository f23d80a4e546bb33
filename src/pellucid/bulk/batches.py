"""Encoding as a function of an Arrow record batch: texts in, embeddings out, every other column kept.

`encode_corpus` calls it, or a user's pipeline in Ray, Spark or Polars. A row depends only on its text and its batch,
not on what was encoded before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pellucid.core.arrays import Role, validate_role
from pellucid.dense.embedder import EncoderEmbedder
from pellucid.errors import CorpusError, InputError, importing
from pellucid.loading import load

with importing("parquet", "pyarrow"):
    import pyarrow as pa

EMBEDDING, INDICES, VALUES = "embedding", "indices", "values"
"""The columns of a dense embedding, and the two of a sparse one."""


class BatchEncoder:
    """A model as a function of Arrow record batches.

    >>> encode = BatchEncoder("static-en")  # doctest: +SKIP
    >>> encode(pa.record_batch({"id": [7], "text": ["a loan for a house"]})).column_names  # doctest: +SKIP
    ['id', 'embedding']
    """

    def __init__(self, model: Any, *, column: str = "text", role: Role = None) -> None:
        """Open the model.

        Args:
            model: a bundled name, a folder, a hub id, a pellucid model or a SentenceTransformer.
            column: of the texts.
            role: what they are encoded as: "query", "document", or None for what `encode` does.

        Raises:
            InputError: it is not a model, or there is no such role.
            ModelFolderError: the model is broken.
        """
        self.column, self.role = column, validate_role(role)
        self.encoder = load(model)

    def __call__(self, batch: Any) -> Any:
        """Return the batch with its texts replaced by their embeddings.

        Args:
            batch: a pyarrow RecordBatch or Table whose column of texts is a string type; a null is the empty text.

        Returns:
            The same kind, without that column, and with `embedding` (a list of float32 of the model's dimension), or
            for a sparse model `indices` (lists of int32) and `values` (lists of float32). Rows are those of `encode`;
            a model of another library gives them at length 1.

        Raises:
            InputError: there is no such column, or it holds something else; or a column has the name of a result.
            CorpusError: a text is not UTF-8; the message says which.
        """
        column_index = _checked_column(batch.schema, self.column)
        other_columns = batch.remove_column(column_index)
        texts = batch.column(column_index).cast(pa.large_string())
        texts = texts.fill_null("") if texts.null_count else texts
        try:  # Parquet files may hold other bytes than UTF-8, on which the C kernels rely
            texts.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CorpusError(f"the texts are not UTF-8, or damaged: {error}") from error
        rows = getattr(self.encoder, f"encode_{self.role}" if self.role else "encode")(texts.to_pylist())
        if isinstance(self.encoder, EncoderEmbedder):
            rows = self.encoder.similarity_rows(rows)
        if not hasattr(rows, "tocsr"):
            values = pa.array(np.ascontiguousarray(rows, np.float32).reshape(-1))
            return other_columns.append_column(EMBEDDING, pa.FixedSizeListArray.from_arrays(values, rows.shape[1]))
        rows = rows.tocsr()
        starts = pa.array(rows.indptr, pa.int32())
        for name, array in ((INDICES, rows.indices.astype(np.int32)), (VALUES, rows.data.astype(np.float32))):
            other_columns = other_columns.append_column(name, pa.ListArray.from_arrays(starts, pa.array(array)))
        return other_columns


def _checked_column(schema: Any, column: str) -> int:
    """Return the index of the column of texts, after checking that it holds text and no column has a reserved name."""
    if schema.names.count(column) != 1:
        many = "several columns" if column in schema.names else "no column"
        raise InputError(f"there is {many} {column!r:.80}; the columns are {', '.join(schema.names)!s:.300}")
    index: int = schema.names.index(column)
    kind = schema.field(index).type
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    if str(inner) not in ("string", "large_string", "string_view", "null"):
        raise InputError(f"column {column!r:.80} holds {kind!s:.80}, not text; name the column of the texts")
    if reserved := {EMBEDDING, INDICES, VALUES} & {*schema.names} - {column}:
        raise InputError(f"a column is called {min(reserved)!r}, as that of the embeddings is; give it another name")
    return index
