"""The vocabulary head: its rows, their tokens, and the tokens that an embedding is nearest to.

The score of token t for embedding h is e_t . h, the head's row times the embedding ("A Text is Worth Several Tokens",
Algorithm 1). A matrix of texts x vocabulary never exists: the head is read in chunks, and only the best k so far are
kept. Equal scores go to the lower id, so the order does not depend on the chunks.

The rows are the backbone's own, or another model's: an embedder is often published without the head of the language
model it was made from. Special tokens, placeholders, lone bytes and rows beyond the tokenizer's last token are never
decoded to; the others are called text tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.base import Vectors
from pellucid.dimensions import Dimension, Dimensions
from pellucid.errors import InputError, ModelFolderError
from pellucid.folder import locate
from pellucid.transformer.tokenwords import Rank, Token, readable, vocabulary_of

if TYPE_CHECKING:
    from pellucid.transformer.backbone import Backbone

Rows = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
CHUNK = 8192  # rows of the head at a time
TEXTS = 512  # embeddings at a time
_LOW = np.int64(0xFFFFFFFF)
_SPARE_ROWS = 4096  # rows of a head beyond the tokenizer's tokens; heads are padded to round numbers
_OUTPUT = ("lm_head.weight", "embed_out.weight", "output.weight", "lm_head.decoder.weight")
_INPUT = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight", "tok_embeddings.weight")
_ELLIPSIS = "…"


class TokenHead:
    """One row a token.

    Attributes:
        weight: [V, d], an array or a tensor of torch in any floating type.
        bias: float32 [V] added to the logits, or None.
        spelled: the tokens as the tokenizer spells them, "" where a row has none.
        tokens: how they read.
        shown: int64, the ids of the text tokens, ascending.
    """

    def __init__(self, weight: Any, tokenizer: Any, bias: Any = None) -> None:
        """Put rows and tokens together.

        Args:
            weight: [V, d].
            tokenizer: of transformers or the tokenizers library.
            bias: [V], or None.

        Raises:
            InputError: the rows are no matrix or not finite, the tokenizer does not belong to them, or it has no
                text token.
        """
        if getattr(weight, "ndim", 0) != 2 or 0 in weight.shape:
            raise InputError(f"a head is a matrix [vocabulary, d], got {list(getattr(weight, 'shape', ()))}")
        spelled, special = vocabulary_of(tokenizer)
        spelled = _without_added(spelled, tokenizer, weight.shape[0])
        spare = weight.shape[0] - len(spelled)
        if not 0 <= spare <= _SPARE_ROWS:
            raise InputError(
                f"the head has {weight.shape[0]:,} rows and the tokenizer {len(spelled):,} tokens; they are not of the "
                "same model" + (" (resize the model's embeddings after adding tokens)" if spare < 0 else "")
            )
        self.weight = weight
        self.bias = None if bias is None else head_rows(bias, 0, len(bias))
        if self.bias is not None and self.bias.shape != (weight.shape[0],):
            raise InputError(f"the bias has shape {self.bias.shape}; the head has {weight.shape[0]:,} rows")
        self.spelled = spelled + [""] * spare
        self.tokens: list[Token] = readable(self.spelled, special)
        self.shown = np.array([n for n, token in enumerate(self.tokens) if token.rank < Rank.NONE], np.int64)
        if not len(self.shown):
            raise InputError("the tokenizer has no text token")

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.weight.shape[0])

    @property
    def dimension(self) -> int:
        """The length of a row."""
        return int(self.weight.shape[1])

    @cached_property
    def dimensions(self) -> Dimensions:
        """One dimension a row, named as the token reads; `about` holds its spelling in the tokenizer."""
        names: list[str] = []
        taken: set[str] = set()
        for number in range(len(self)):
            name = plain = self._plain_name(number)
            again = 1
            while name in taken:
                again += 1
                name = f"{plain} ({again})"
            taken.add(name)
            names.append(name)
        return Dimensions(
            Dimension(name, (spelling,) if spelling else ()) for name, spelling in zip(names, self.spelled, strict=True)
        )

    def _plain_name(self, number: int) -> str:
        token = self.tokens[number]
        if token.rank == Rank.INNER:  # "man" in "fireman", as distinct from the word
            return _ELLIPSIS + token.text
        return token.text or self.spelled[number].strip() or f"unused {number}"

    def check_k(self, k: int) -> None:
        """Refuse a number of tokens that there are not."""
        if type(k) is not int or not 1 <= k <= len(self.shown):
            raise InputError(f"k is {k!r:.40}; it must be a whole number from 1 to the {len(self.shown):,} tokens")

    def words(self, ids: Sequence[int], scores: Sequence[float], k: int) -> list[tuple[str, float]]:
        """Return the first `k` different words among some tokens, best first, with their scores."""
        found: dict[str, float] = {}
        for number, score in zip(ids, scores, strict=True):
            if self.tokens[number].rank != Rank.SHARD:
                found.setdefault(self.tokens[number].text, float(score))
            if len(found) == k:
                break
        return list(found.items())

    def kept(self, vectors: Vectors, known: npt.NDArray[np.bool_], k: int | None, signs: str) -> Any:
        """Return the logits that are kept of each vector, CSR float32 [n, V].

        Args:
            vectors: float32 [n, d].
            known: bool [n]; the others' rows are empty.
            k: how many of the largest, None for all.
            signs: "positive" drops those of 0 or less, "signed" keeps them.
        """
        from scipy import sparse

        count = len(self.shown) if k is None else k
        top = self.top(vectors, count)
        values = np.where(known[:, None], top.scores, 0)
        if signs == "positive":
            values = np.maximum(values, 0)
        ends = np.arange(len(vectors) + 1) * count
        found = sparse.csr_matrix((values.ravel(), top.ids.ravel(), ends), shape=(len(vectors), len(self)))
        found.eliminate_zeros()
        return found

    def rows(self) -> Vectors:
        """Return all rows, float32 [V, d]."""
        return head_rows(self.weight, 0, len(self))

    def top(self, vectors: Vectors, k: int) -> TopTokens:
        """Return the `k` tokens that score highest for each vector, best first; text tokens alone.

        Args:
            vectors: float32 [n, d], what the rows are multiplied with.
            k: from 1 to the number of `shown` tokens.

        Raises:
            InputError: `k` is out of range, the vectors are of another width, or one is not finite.
        """
        self.check_k(k)
        vectors = np.asarray(vectors, np.float32)
        if self.bias is not None:  # the bias as one more column
            vectors = np.concatenate([vectors, np.ones((len(vectors), 1), np.float32)], axis=1)
        found = top_tokens(vectors, HeadRows(self.weight, self.bias, self.shown), k)
        return TopTokens(self.shown[found.ids], found.scores)


def open_token_head(backbone: Backbone, head: Any) -> TokenHead:
    """Return the head to decode a backbone's embeddings with; see `KeyTokenEmbedder`.

    Raises:
        InputError: its input embeddings would serve, and its config says that they are not its head; or head and
            tokenizer do not belong together.
        ModelFolderError: `head` names a model that has none.
    """
    if head is not None:
        rows = read_head(head) if isinstance(head, (str, Path)) else head
        return TokenHead(rows, backbone.tokenizer)
    config = backbone.model.config
    if backbone.head_kind == "input" and backbone.predicts_next and not getattr(config, "tie_word_embeddings", False):
        raise InputError(
            f"{backbone.name or type(backbone.model).__name__}: the input embeddings of this model are not its head "
            "(tie_word_embeddings is false), and its states do not align with them. Open it with head='lm', or, where "
            "the head was not published with it, give the language model it was made from: head='owner/name'"
        )
    return TokenHead(backbone.head, backbone.tokenizer, backbone.head_bias)


def _without_added(spelled: list[str], tokenizer: Any, rows: int) -> list[str]:
    """Return the tokens that a head has rows for; what was added to the tokenizer later (SGPT's brackets) has none."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    added = backend.get_added_tokens_decoder() if hasattr(backend, "get_added_tokens_decoder") else {}
    return spelled[:rows] if all(number in added for number in range(rows, len(spelled))) else spelled


class TopTokens(NamedTuple):
    """The first k tokens of each text: `ids` int64 [n, k] and `scores` float32 [n, k], best first."""

    ids: Ids
    scores: Rows


def top_tokens(embeddings: npt.ArrayLike, head: Any, k: int, *, chunk: int = CHUNK) -> TopTokens:
    """Return the `k` tokens that score highest for each embedding (Algorithm 1, lines 6 to 11).

    Args:
        embeddings: [n, d] numbers.
        head: [V, d], an array or a tensor of torch in any floating type; it is read in chunks.
        k: from 1 to V.
        chunk: rows of the head at a time.

    Raises:
        InputError: `k` is out of range, the widths differ, or an embedding or the head holds NaN or infinity.
    """
    rows, found = checked(embeddings, head, k), []
    for first in range(0, max(1, len(rows)), TEXTS):
        block = rows[first : first + TEXTS]
        kept = np.zeros((len(block), 0), np.int64)
        for start, part in head_chunks(head, chunk):
            kept = largest_keys(kept, block @ part.T, start, k)
        found.append(tokens_of_keys(kept))
    return TopTokens(*map(np.concatenate, zip(*found)))


def checked(embeddings: npt.ArrayLike, head: Any, k: int) -> Rows:
    """Return the embeddings as float32 [n, d] after checking that they and `k` fit the head."""
    rows = np.asarray(embeddings, np.float32)
    if rows.ndim != 2 or rows.shape[1] != head.shape[1]:
        raise InputError(
            f"embeddings of shape {rows.shape} do not fit a head of shape {tuple(head.shape)}; the second numbers must "
            "be equal. A head belongs to the backbone that the embeddings come from"
        )
    if type(k) is not int or not 1 <= k <= head.shape[0]:
        raise InputError(f"k is {k!r:.40}; it must be a whole number from 1 to the {head.shape[0]:,} rows of the head")
    if not np.isfinite(rows).all():
        broken = int(np.argmin(np.isfinite(rows).all(axis=1)))
        raise InputError(f"embedding {broken} holds NaN or infinity; leave its text out")
    return rows


class HeadRows:
    """Some or all rows of a head, with its bias as one more column for embeddings with a 1 behind them."""

    def __init__(self, weight: Any, bias: npt.ArrayLike | None = None, chosen: Ids | None = None) -> None:
        """Take rows [V, d], a bias [V] or None, and the ascending ids of the rows wanted, None for all."""
        self._weight, self._bias = weight, None if bias is None else np.asarray(bias, np.float32)
        self._ids = np.arange(weight.shape[0]) if chosen is None else chosen
        self.shape = (len(self._ids), weight.shape[1] + (bias is not None))

    def __getitem__(self, part: slice) -> Rows:
        """Return rows float32 [n, d], or [n, d + 1] with the bias."""
        ids = self._ids[part]
        if not len(ids):
            return np.zeros((0, self.shape[1]), np.float32)
        rows = head_rows(self._weight, int(ids[0]), int(ids[-1]) + 1)
        rows = rows if len(rows) == len(ids) else rows[ids - ids[0]]
        return rows if self._bias is None else np.column_stack([rows, self._bias[ids]])


def head_rows(head: Any, start: int, stop: int) -> Rows:
    """Return rows of a head as float32, whatever holds them."""
    part = head[start:stop]
    if hasattr(part, "detach"):
        part = part.detach().float().cpu().numpy()
    return np.asarray(part, np.float32)


def head_chunks(head: Any, chunk: int) -> Iterator[tuple[int, Rows]]:
    """Yield the rows of a head in chunks, float32, each with the number of its first row.

    Raises:
        InputError: one holds NaN or infinity.
    """
    for start in range(0, head.shape[0], chunk):
        part = head_rows(head, start, start + chunk)
        if not np.isfinite(part).all():
            raise InputError(f"the head holds NaN or infinity among its rows {start:,} to {start + len(part) - 1:,}")
        yield start, part


def largest_keys(kept: Ids, scores: Rows, start: int, k: int) -> Ids:
    """Return the `k` largest keys of each text, in no order, of those kept so far and a chunk's scores [n, chunk].

    A key is one int64 made of a score and the id of its token: keys are ordered by score, then by the lower id.
    """
    bits = (scores + np.float32(0)).view(np.int32)  # -0.0 + 0.0 is 0.0: equal scores have equal bits
    ordered = (bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))).astype(np.int64)
    ids = np.arange(start, start + scores.shape[1], dtype=np.int64)
    keys = np.concatenate([kept, (ordered << 32) | (_LOW - ids)], axis=1)
    return np.partition(keys, keys.shape[1] - k, axis=1)[:, -k:] if keys.shape[1] > k else keys


def tokens_of_keys(keys: Ids) -> TopTokens:
    """Return ids and scores of the keys, best first."""
    keys = np.sort(keys, axis=1)[:, ::-1]
    ordered = (keys >> 32).astype(np.int32)
    scores = (ordered ^ ((ordered >> 31) & np.int32(0x7FFFFFFF))).view(np.float32)
    return TopTokens(_LOW - (keys & _LOW), scores)


def read_head(name_or_path: str | Path) -> Vectors:
    """Read the head of a published language model without the rest of it, float32 [V, d].

    Args:
        name_or_path: a folder or hub id with safetensors files.

    Raises:
        ModelFolderError: there is no head; the message says which tensors were looked for. Or the model is said to use
            its input embeddings as head, and holds another one.
    """
    folder = locate(name_or_path)
    tied = _tied(folder)
    where = _tensors(folder)
    output = next((name for name in where if any(_ends(name, key) for key in _OUTPUT)), None)
    inputs = next((name for name in where if any(_ends(name, key) for key in _INPUT)), None)
    if output is None and not (tied and inputs):
        raise ModelFolderError(
            f"{folder} holds no head: none of its {len(where)} tensors is called {', '.join(_OUTPUT)}"
            + ("" if tied else f", and its config does not say that the input embeddings ({inputs}) are the head")
        )
    rows = _read(where[output or inputs or ""], output or inputs or "")
    if output and inputs and tied:
        others = _read(where[inputs], inputs)
        if others.shape != rows.shape or not np.allclose(others, rows, atol=1e-3):
            raise ModelFolderError(
                f"{folder}: tie_word_embeddings says that {inputs} is the head, and {output} differs from it; one of "
                "the two is wrong. Correct config.json"
            )
    return rows


def _tied(folder: Path) -> bool:
    """Whether a model's input embeddings are its head; where its config does not say, its architecture does."""
    from pellucid.transformer.backbone import read_transformer_config

    return bool(getattr(read_transformer_config(folder), "tie_word_embeddings", False))


def _ends(name: str, key: str) -> bool:
    return name == key or name.endswith("." + key)


def _tensors(folder: Path) -> dict[str, Path]:
    """Return the file of each tensor of a model in safetensors files."""
    from safetensors import safe_open

    from pellucid.untrusted import tensor_sizes

    tensor_sizes(folder)  # refuses broken files
    found: dict[str, Path] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(str(file), framework="np") as tensors:
            found |= dict.fromkeys(tensors.keys(), file)
    if not found:
        raise ModelFolderError(f"{folder} holds no safetensors file; a head is read from such alone")
    return found


def _read(file: Path, name: str) -> Vectors:
    """Return one tensor as float32; bfloat16 needs torch."""
    from safetensors import safe_open

    with safe_open(str(file), framework="pt") as tensors:
        rows: Vectors = tensors.get_tensor(name).float().numpy()
    if rows.ndim != 2:
        raise ModelFolderError(f"{file}: {name} is no matrix, it has shape {list(rows.shape)}")
    return rows
