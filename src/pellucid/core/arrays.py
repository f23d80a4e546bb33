"""The arguments of `encode` and `explain`, the role of a text, and the arrays, sparse matrices and tensors they give.

The arguments are those of sentence-transformers 6.2, in its order and with its defaults: `SparseEncoder`'s come last.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, check_choice, check_integer, require, shown
from pellucid.text.inputs import refuse_tables

Role = Literal["query", "document"] | None
"""What a text is encoded as; None where it is neither."""

ROLES = ("query", "document")
_MAX_EXPLAIN_CHARS = 10_000  # characters


class EncodeOptions(NamedTuple):
    """The arguments of `encode` besides the texts; `Embedder.encode` says what each means."""

    prompt_name: str | None = None
    prompt: str | None = None
    batch_size: int = 32
    show_progress_bar: bool | None = None
    output_value: str | None = "sentence_embedding"
    precision: str | None = "float32"
    convert_to_numpy: bool = True
    convert_to_tensor: bool | None = None
    device: Any = None
    normalize_embeddings: bool = False
    truncate_dim: int | None = None
    pool: Any = None
    chunk_size: int | None = None
    convert_to_sparse_tensor: bool | None = None
    save_to_cpu: bool = False
    max_active_dims: int | None = None

    def check(self) -> None:
        """Check that some model accepts these values."""
        check_choice("prompt_name", self.prompt_name, (None, *ROLES))
        if not isinstance(self.prompt, str | None):
            raise InputError(f"prompt is {shown(self.prompt)}; it must be a string")
        check_integer("batch_size", self.batch_size)
        check_integer("truncate_dim", self.truncate_dim, optional=True)
        check_integer("max_active_dims", self.max_active_dims, optional=True)
        check_choice("output_value", self.output_value, ("sentence_embedding",))  # explain(text) tells of words
        if self.precision not in (None, "float32"):
            raise InputError(
                f"precision is {shown(self.precision)}, and embeddings are float32; "
                "sentence_transformers.quantize_embeddings rounds them"
            )
        check_choice("pool", self.pool, (None,))  # encode starts no processes; encode_corpus takes any number of texts
        check_choice("chunk_size", self.chunk_size, (None,))

    def applied(self, rows: Any, device: str) -> Any:
        """Return float32 rows [texts, dimension], dense or CSR, as asked: cut, at length 1, as tensors."""
        for name in ("convert_to_sparse_tensor", "max_active_dims"):
            if getattr(self, name) and not hasattr(rows, "tocsr"):
                value = getattr(self, name)
                raise InputError(f"{name} is {value}, and this model's embeddings are dense; leave it out")
        if self.max_active_dims is not None:
            rows = largest_coordinates(rows, self.max_active_dims)
        if self.truncate_dim is not None:
            rows = rows[:, : self.truncate_dim]
        if self.normalize_embeddings:
            rows = l2_normalize(rows)
        sparse = self.convert_to_sparse_tensor  # given, it asks for tensors: one, unless a list is asked for
        if self.convert_to_numpy and sparse is None and not self.convert_to_tensor:
            return rows
        if sparse is False and hasattr(rows, "tocsr"):
            rows = rows.toarray()
        tensor = as_tensor(rows, "cpu" if self.save_to_cpu else device)
        is_one = sparse is not None if self.convert_to_tensor is None else self.convert_to_tensor
        return tensor if is_one else list(tensor)


TokenVectors = npt.NDArray[np.object_]
"""The vectors of the tokens of some texts: of each text float32 [tokens, dimension]."""

_BLOCK_TEXTS = 256  # whose products with a query are held at once

PLAIN = EncodeOptions()


def validate_role(role: Any) -> Role:
    """Return `role` after checking it."""
    if role not in (None, *ROLES):
        raise InputError(f"role is {shown(role)}; it must be 'query', 'document' or None")
    return role  # type: ignore[no-any-return]


MISSING_TEXT: Any = ...
"""Stands where a second text may be given: None there is a value that is missing."""


def validate_texts(
    text1: str, text2: str = MISSING_TEXT, role1: Role = None, role2: Role = None
) -> tuple[list[str], list[Role]]:
    """Return the one or two checked texts of `explain`, and as many roles."""
    texts = [text1] if text2 is MISSING_TEXT else [text1, text2]
    for text in texts:
        if type(text) is not str:
            refuse_tables(text)
        if not isinstance(text, str):
            raise InputError(f"explain takes texts, got {type(text).__name__} ({shown(text)}); pass a str")
    roles = [validate_role(role) for role in (role1, role2)]
    if text2 is MISSING_TEXT and role2 is not None:
        raise InputError(f"role2 is {shown(role2)}, and there is no second text; give role1 for the first")
    return texts, roles[: len(texts)]


def check_explained(*texts: str) -> None:
    """Check that texts are short enough for a server: pairs of words grow with the product of their lengths."""
    total = sum(map(len, texts))
    if total > _MAX_EXPLAIN_CHARS:
        raise InputError(
            f"the texts have {total:,} characters; at most {_MAX_EXPLAIN_CHARS:,} are explained at once. "
            "Give the passages that count"
        )


def largest_coordinates(rows: Any, top_k: int) -> Any:
    """Return CSR rows of which only the `top_k` largest values, by amount, are left; `rows` itself is changed."""
    is_selected = np.zeros(rows.nnz, bool)
    for start, end in zip(rows.indptr[:-1], rows.indptr[1:]):
        part = np.abs(rows.data[start:end])
        chosen = np.argpartition(-part, top_k - 1)[:top_k] if len(part) > top_k else np.arange(len(part))
        is_selected[start + chosen] = True
    rows.data[~is_selected] = 0
    rows.eliminate_zeros()
    return rows


def as_tensor(rows: Any, device: Any) -> Any:
    """Return rows as a torch tensor; sparse ones in COO, as `SparseEncoder` gives them."""
    require("torch")
    import torch

    if not hasattr(rows, "tocsr"):
        return torch.from_numpy(np.ascontiguousarray(rows)).to(device)
    entries = rows.tocoo()
    indices = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
    tensor = torch.sparse_coo_tensor(indices, torch.from_numpy(entries.data), entries.shape, check_invariants=False)
    return tensor.to(device).coalesce()


def to_2d_array(embeddings: Any) -> Any:
    """Return embeddings in any form `encode` gives (array, CSR, tensor, list of these) as a 2-d array or CSR matrix."""
    if isinstance(embeddings, list | tuple) and embeddings and hasattr(embeddings[0], "detach"):
        import torch

        embeddings = torch.stack(list(embeddings))
    if hasattr(embeddings, "detach"):
        embeddings = embeddings.detach().cpu()
        if not embeddings.is_sparse:
            return np.atleast_2d(embeddings.numpy())
        from scipy import sparse

        rows = (embeddings if embeddings.dim() == 2 else embeddings.unsqueeze(0)).coalesce()
        return sparse.csr_matrix((rows.values().numpy(), rows.indices().numpy()), shape=tuple(rows.shape))
    if hasattr(embeddings, "tocsr"):
        return embeddings.tocsr()
    array = np.asarray(embeddings)
    if array.dtype.kind in "USO":
        raise InputError(
            f"similarity takes embeddings, got {shown(embeddings)}; encode texts first: "
            "model.similarity(model.encode(texts1), model.encode(texts2)). explain(text1, text2) takes texts"
        )
    return np.atleast_2d(array)


def match_container(inputs: tuple[Any, ...], array: npt.NDArray[Any]) -> Any:
    """Return an array as a tensor, on the same device, where one of `inputs` is a tensor or a list of them."""
    for embeddings in inputs:
        first = embeddings[0] if isinstance(embeddings, list | tuple) and embeddings else embeddings
        if hasattr(first, "detach"):
            return as_tensor(array, first.device)
    return array


def l2_normalize(embeddings: Any, dtype: Any = np.float32) -> Any:
    """Return `embeddings` as 2-d with rows of length 1; zero rows stay zero. A dense array becomes one of `dtype`."""
    rows = to_2d_array(embeddings)
    if hasattr(rows, "tocsr"):
        lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1))).ravel()
        scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        return rows.multiply(scale[:, None]).tocsr()
    array = rows.astype(dtype, copy=False)
    lengths = np.linalg.norm(array, axis=1, keepdims=True)
    return np.divide(array, lengths, out=np.zeros_like(array), where=lengths > 0)


def cosines(first: Any, second: Any) -> npt.NDArray[np.float32]:
    """Return the cosines of all rows of two dense arrays, float32 [first, second]; those of zero rows are 0."""
    return np.asarray(l2_normalize(first) @ l2_normalize(second).T)


def flattened(rows: TokenVectors) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return the vectors of all tokens of some texts, float32 [tokens, dimension], and where each text's end."""
    ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
    return np.concatenate([*rows]) if len(rows) else np.zeros((0, 0), np.float32), ends


def largest_products(
    query: npt.NDArray[np.float32], vectors: npt.NDArray[np.float32], ends: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Return for each text the largest product of each vector of a query with one of its, float32 [texts, query].

    `vectors` are those of all texts, and `ends` where each text's end; a text without vectors has 0.
    """
    largest, starts = np.zeros((len(ends), len(query)), np.float32), np.append(0, ends)[:-1]
    for first in range(0, len(ends), _BLOCK_TEXTS):
        block = first + np.flatnonzero(ends[first : first + _BLOCK_TEXTS] > starts[first : first + _BLOCK_TEXTS])
        if len(block):
            products = vectors[starts[block[0]] : ends[block[-1]]] @ query.T
            largest[block] = np.maximum.reduceat(products, starts[block] - starts[block[0]])
    return largest


def vstack(blocks: list[Any]) -> Any:
    """Put blocks of rows, dense or CSR, below each other."""
    if not hasattr(blocks[0], "tocsr"):
        return np.concatenate(blocks)
    from scipy import sparse

    return sparse.vstack(blocks, format="csr")
