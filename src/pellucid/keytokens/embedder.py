"""Key tokens: the embedding of a language model, decoded into tokens of its vocabulary.

After "A Text is Worth Several Tokens": an embedding h of a text, multiplied with the rows e_t of the head of the
language model it comes from, gives each token a logit, and the tokens with the largest are key tokens of the text.

    logit(t) = e_t . h            or, adjusted,  e_t . (h + offset)

A dimension is a token. `encode` keeps the `top_k` largest logits of a text, by default only those above 0 (raw logits
may all be negative; an adjustment brings the key tokens above it). `embed` gives h itself.

`explain` takes apart the cosine of two such rows, which is what `similarity` gives, what an index computes and what the
edits of dimensions change; one row of it is what one word gives. It is not the cosine of the embeddings h: a product
of tokens' logits has no share of that. Shards of words that stand in neither text ("ession") are not shown: what they
give is the remainder, and `exact` is False.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import PLAIN, Role, validate_role, validate_texts
from pellucid.core.dimensions import Dimensions, Edit, Mixing, scaling
from pellucid.core.embedder import Vectors
from pellucid.core.mixing import mixed_rows, read_mixed
from pellucid.core.query import Query, Terms
from pellucid.errors import InputError, ModelFolderError, check_choice, check_integer, warn
from pellucid.explain.rows import KEY_TOKEN, Row
from pellucid.keytokens.adjustments import Adjustment, component_adjustment, mean_adjustment
from pellucid.keytokens.head import TokenHead, TopTokens
from pellucid.keytokens.states import (
    KeyTokenSettings,
    before_rows,
    own_tokens,
    state_width,
    text_embeddings,
)
from pellucid.process import cached_property
from pellucid.text.inputs import check_texts
from pellucid.text.unicode import canonicalize
from pellucid.text.words import Span, split_words
from pellucid.transformer.embedder import TransformerEmbedder, stored_settings
from pellucid.transformer.reading import whole_words
from pellucid.transformer.tokenwords import Rank, Token

if TYPE_CHECKING:
    from typing_extensions import Self

    from pellucid.transformer.backbone import Backbone


class WordSpans:
    """The words of one text, by a token's id or by the word."""

    def __init__(self, text: str, ids: Sequence[int], spans: Sequence[Span], tokens: Sequence[Token]) -> None:
        """Take a text, the ids and characters of its own tokens, and how the tokens of the vocabulary read."""
        self.text = text
        self._tokens: dict[int, set[Span]] = {}
        self._words: dict[str, set[Span]] = {}
        for token, span in zip(ids, whole_words(text, spans), strict=True):
            if span[1] > span[0]:
                self._tokens.setdefault(token, set()).add(span)
                if tokens[token].rank != Rank.SHARD:
                    self._words.setdefault(tokens[token].text.casefold(), set()).add(span)
        for word in split_words(text):
            self._words.setdefault(word.text.casefold(), set()).add((word.start, word.end))

    def spans_for(self, token_id: int, token: Token) -> tuple[Span, ...]:
        """Return the spans of a token: of the words that hold it, and of those it spells, however they are split."""
        return tuple(sorted(self._tokens.get(token_id, set()) | self._words.get(token.text.casefold(), set())))


def word_rows(
    model: KeyTokenEmbedder, dimension_ids: Sequence[int], values: Sequence[float], word_spans: Sequence[WordSpans]
) -> list[Row]:
    """Return the terms of a score, one a word, of dimensions and what each adds; shards in no text are left out."""
    rows: dict[str, Row] = {}
    names, spelled = model.dimensions.names, model.head.dimensions.names
    columns = None if model.mixing is None else model.mixing.matrix.tocsc()
    for dimension_id, value in zip(dimension_ids, values, strict=True):
        sources = (
            [dimension_id]
            if columns is None
            else columns.indices[slice(*columns.indptr[dimension_id : dimension_id + 2])].tolist()
        )
        spans = [
            _union(words.spans_for(token_id, model.head.tokens[token_id]) for token_id in sources)
            for words in word_spans
        ]
        name = names[dimension_id]
        if [spelled[token_id] for token_id in sources] == [name]:  # a token as it is
            name = _shown(name, model.head.tokens[sources[0]], word_spans, spans)
        if not name:
            continue
        first, second, *_ = (*spans, ())
        row = rows.get(name, Row(name, (), 0.0, 0.0, key=("word", name), kind=KEY_TOKEN))
        rows[name] = row._replace(  # several tokens may spell it
            parts=(*row.parts, names[dimension_id]), contribution=row.contribution + value,
            spans1=_union([row.spans1, first]), spans2=_union([row.spans2, second]),
        )  # fmt: skip
    return list(rows.values())


def _shown(name: str, token: Token, word_spans: Sequence[WordSpans], spans: Sequence[tuple[Span, ...]]) -> str:
    """Return the word a reader sees for a token, "" for a shard that stands in no text."""
    if token.rank == Rank.INNER:
        return token.text
    if token.rank != Rank.SHARD:
        return name
    words = [
        side.text[start:end] for side, token_spans in zip(word_spans, spans, strict=True) for start, end in token_spans
    ]
    return canonicalize(words[0]).casefold() if words else ""


def _union(spans: Iterable[tuple[Span, ...]]) -> tuple[Span, ...]:
    return tuple(sorted({span for word_spans in spans for span in word_spans}))


class KeyTokenQuery(Query):
    """A text as a key-token model reads it; the terms of a cosine are words, and shards of words its remainder."""

    @cached_property
    def words(self) -> WordSpans:
        """Where the text's words are."""
        encoding = self.model.encodings([self.text], self.role)[0]
        return WordSpans(self.text, own_tokens(encoding), encoding.spans, self.model.head.tokens)

    def terms(self, other_query: Query | None = None) -> Terms:
        """Return a row a word, the largest first."""
        products = self.coordinates.multiply((other_query or self).coordinates).tocsr()
        word_spans = [self.words, other_query.words] if isinstance(other_query, KeyTokenQuery) else [self.words]
        rows = word_rows(self.model, products.indices.tolist(), products.data.tolist(), word_spans)
        rows.sort(key=lambda row: (-abs(row.contribution), row.name))
        values = np.array([row.contribution for row in rows], np.float64)
        return Terms(values, rows.__getitem__, score=float(products.sum()), exact=False)


_BLOCK_TEXTS = 4_096  # decoded together


class KeyTokenEmbedder(TransformerEmbedder):
    """A text is the logits of the tokens its embedding is aligned with.

    A row of an explanation is a word kept of both texts. It stands where a text has it, or has a token of it; most key
    tokens stand nowhere in the text. Tokens that are shards of words and in neither text are summed in the remainder.
    Words that did not fit into what the model can read are unknown.

    Attributes:
        backbone: the transformer.
        head: the rows an embedding is decoded with, and their tokens.
        given_head: whether the head is another model's than the backbone's.
        settings: how texts are read, pooled and decoded, everything decided.
        adjustment: what is added to an embedding before it is decoded.
        mixing: the `Mixing` [V, dimensions] by which the tokens' logits are multiplied, or None; edits make one.
    """

    family: ClassVar[str] = "keytokens"
    query_type: ClassVar[type[Query]] = KeyTokenQuery
    _shapes: ClassVar[Mapping[str, str]] = {"fingerprint": "d", "offset?": "s", "head?": "v d"}
    settings: KeyTokenSettings

    def __init__(
        self,
        backbone: Backbone,
        settings: KeyTokenSettings | None = None,
        *,
        head: Any = None,
        adjustment: Adjustment | None = None,
    ) -> None:
        """Decode the embeddings of a backbone.

        Args:
            backbone: from `open_backbone`; the paper's decoders read with `attention="causal"` unless they were
                trained otherwise.
            settings: None takes the mean of the states.
            head: rows to decode with, [V, d], such as `open_backbone(name).head` of the language model that an embedder
                was made from. None takes the backbone's own.
            adjustment: from `fitted` of another model on the same backbone; None for none.

        Raises:
            InputError: head, tokenizer and backbone do not belong together, or the settings do not fit.
        """
        tied = getattr(backbone.model.config, "tie_word_embeddings", False)
        if head is None and backbone.head_kind == "input" and backbone.predicts_next and not tied:
            raise InputError(
                f"{backbone.name or type(backbone.model).__name__}: the input embeddings of this model are not its "
                "head (tie_word_embeddings is false), and its states do not align with them. Open it with head='lm', "
                "or, where the head was not published with it, give that of the language model it was made from: "
                "head=open_backbone('owner/name').head"
            )
        rows, bias = (backbone.head, backbone.head_bias) if head is None else (head, None)
        self.head, self.given_head = TokenHead(rows, backbone.tokenizer, bias), head is not None
        if self.head.dimension != backbone.dimension:
            raise InputError(
                f"the rows of the head have {self.head.dimension} dimensions and the embeddings of the backbone "
                f"{backbone.dimension}; give the head of the language model that the backbone was made from"
            )
        self.mixing: Mixing | None = None
        self._mixed_dimensions: Dimensions | None = None
        self._set(backbone, settings or KeyTokenSettings(), adjustment or Adjustment())

    def _set(self, backbone: Backbone, settings: KeyTokenSettings, adjustment: Adjustment) -> None:
        """Set the transformer, settings and adjustment, after checking that they fit the head."""
        check_integer("top_k", settings.top_k, most=len(self.head.shown), optional=True)
        width = state_width(backbone)
        if adjustment.offset is not None and len(adjustment.offset) != width:
            raise InputError(f"the adjustment is of {len(adjustment.offset)} dimensions and the embeddings of {width}")
        self._read_with(backbone, settings)
        self.adjustment = adjustment

    def _changed(self, settings: KeyTokenSettings | None = None, adjustment: Adjustment | None = None) -> Self:
        model = copy(self)
        model.folder = None  # it was opened from none
        model._set(self.backbone, settings or self.settings, adjustment or self.adjustment)
        return model

    @classmethod
    def _from_files(
        cls, backbone: Backbone, described: Any, tensors: dict[str, npt.NDArray[Any]], path: Path,
        config: Mapping[str, Any],
    ) -> Self:  # fmt: skip
        try:
            settings = stored_settings(KeyTokenSettings, described)
            adjustment = Adjustment(offset=tensors.get("offset"), **described["adjustment"])
        except (AttributeError, KeyError, TypeError, InputError) as error:
            raise ModelFolderError(
                f"{path.with_suffix('.json')} does not describe a key-token model: {error}"
            ) from error
        model = cls(backbone, settings, head=tensors.get("head"), adjustment=adjustment)
        tokens, count = model.dimensions, config.get("dimensions")
        if type(count) is not int or not 1 <= count <= len(tokens):
            raise ModelFolderError(
                f"{path.parent / 'config.json'} must say how many dimensions the model has, 1 to {len(tokens)}, "
                f"not {count!r:.40}"
            )
        saved = None if "mixing_values" in tensors else [token.about for token in tokens]
        mixing, dimensions = read_mixed(tensors, len(tokens), count, path, saved)
        if mixing is not None or list(dimensions) != list(tokens):
            model.mixing = (mixing or scaling(dimensions, {}).mixing).without_zeros()
            model._mixed_dimensions = dimensions
        return model

    def save_pretrained(self, path: str | Path, *, backbone_name: str | None = None) -> None:
        """Write the model to folder `path`, whole or not at all; `dimensions.tsv` may be edited.

        Args:
            path: the folder; a model that is there is replaced in one step.
            backbone_name: keep no copy of the backbone but this name of it (a hub id, or a folder), and the adapter it
                was opened with. Loading then finds it by name.

        Raises:
            WritingError: it cannot be written; what was at `path` is untouched.
        """
        self._save(path, backbone_name=backbone_name)

    def _described(self, dtype: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any] | None]]:
        adjustment = {key: value for key, value in asdict(self.adjustment).items() if key != "offset"}
        head = self.head.rows() if self.given_head else None
        return {"adjustment": adjustment}, {"offset": self.adjustment.offset, "head": head}

    def identity(self) -> dict[str, Any]:
        """Return all that the vectors depend on, for `fingerprint`."""
        head = {"rows": self.head.rows(), "bias": self.head.bias} if self.given_head else None
        return {**super().identity(), "head": head, "offset": self.adjustment.offset, "mixing": self.mixing}

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions: of rows of the head, unless dimensions were dropped or merged."""
        return len(self.head) if self.mixing is None else self.mixing.shape[1]

    @property
    def dimensions(self) -> Dimensions:
        """The tokens in order of their ids, each named as it reads; `about` holds the tokenizer's spelling."""
        return self._mixed_dimensions or self.head.dimensions

    def with_settings(self, settings: KeyTokenSettings) -> Self:
        """Return the same model with other settings: `replace(model.settings, top_k=1000)` of dataclasses."""
        return self._changed(settings)

    def with_adjustment(self, adjustment: Adjustment) -> Self:
        """Return the same model with another adjustment, such as one fitted on other texts."""
        return self._changed(adjustment=adjustment)

    def fitted(
        self,
        texts: Iterable[str],
        adjustment: Literal["mean", "component"] = "mean",
        *,
        strength: float | None = None,
        show_progress_bar: bool = False,
    ) -> Self:
        """Return the same model with an adjustment fitted on a sample of texts.

        Args:
            texts: such as the model will be used on; some hundreds do.
            adjustment: "mean" subtracts their mean embedding; "component" adds a multiple of their first principal
                component (paper, section 4.3).
            strength: for "component", its lambda; None fits it: it takes the component's mean out.
            show_progress_bar: show a bar, counting texts.

        Raises:
            InputError: too few texts, an unknown adjustment, or `strength` given for another one.
        """
        check_choice("adjustment", adjustment, ("mean", "component"))
        if adjustment == "mean" and strength is not None:
            raise InputError("strength belongs to the adjustment 'component', not to 'mean'")
        rows = self.embed(check_texts(texts), show_progress_bar=show_progress_bar)
        is_mean = adjustment == "mean"
        return self.with_adjustment(mean_adjustment(rows) if is_mean else component_adjustment(rows, strength))

    def embed(self, texts: str | Iterable[str], *, role: Role = None, show_progress_bar: bool = False) -> Vectors:
        """Return the embeddings of the language model itself, before any adjustment.

        Args:
            texts: a text, or any iterable of texts.
            role: "document" reads them without the instruction; "query" and None with it.
            show_progress_bar: show a bar, counting texts.

        Returns:
            float32 [n, d], [d] for one string; zeros for a text without tokens.

        Raises:
            InputError: an item is not a string, there is no such role, or the backbone gives NaN or infinity.
        """
        checked = check_texts([texts] if isinstance(texts, str) else texts)
        embeddings = self._embedded(checked, validate_role(role), PLAIN.batch_size, show_progress_bar)
        return embeddings[0] if isinstance(texts, str) else embeddings

    def decode(self, embeddings: Any, k: int = 10) -> TopTokens:
        """Return the `k` tokens each embedding is aligned with (paper, Algorithm 1), adjusted as the model is.

        Args:
            embeddings: float [n, d] from `embed`, not adjusted.
            k: from 1 to the number of text tokens.

        Returns:
            ids int64 [n, k] and logits float32 [n, k], best first. A zero row, a text without tokens, has ids too,
            which mean nothing.

        Raises:
            InputError: `k` is out of range, or the embeddings are of another width or not finite.
        """
        rows = np.asarray(embeddings, np.float32)
        if rows.ndim != 2 or rows.shape[1] != state_width(self.backbone):
            raise InputError(
                f"embeddings of shape {rows.shape} are not [n, {state_width(self.backbone)}]; use model.embed"
            )
        return self.head.top(before_rows(self.backbone, self.adjustment.apply(rows)), k)

    def key_tokens(self, text: str, k: int = 10) -> list[tuple[str, float]]:
        """Return the `k` words `text` is most aligned with and their logits, which may be negative; [] without tokens.

        Shards of words are left out, and a word that several tokens spell is given once; `decode` gives every token.

        Raises:
            InputError: `text` is not a string, or `k` is out of range.
        """
        embedding = self.embed(validate_texts(text)[0])
        check_integer("k", k, most=len(self.head.shown))
        top = self.decode(embedding, len(self.head.shown))
        if not embedding.any():
            return []
        word_scores: dict[str, float] = {}
        for token, score in zip(map(self.head.tokens.__getitem__, top.ids[0].tolist()), top.scores[0].tolist()):
            if token.rank != Rank.SHARD:
                word_scores.setdefault(token.text, score)
        return list(word_scores.items())[:k]

    def size_text(self) -> str:
        """Return how large the model is, in the family's own units."""
        return f"{self.get_embedding_dimension():,} tokens"

    def _encode(self, texts: list[str], role: Role, *, batch_size: int, show_progress_bar: bool) -> Any:
        return self._rows(self._embedded(texts, role, batch_size, show_progress_bar))

    def _embedded(self, texts: list[str], role: Role, batch_size: int, show_progress_bar: bool) -> Vectors:
        """Return the embeddings [texts, d], not adjusted; zeros for a text without tokens."""
        embeddings = np.zeros((len(texts), state_width(self.backbone)), np.float32)
        for batch, encodings in self._batches(texts, role, batch_size, show_progress_bar):
            embeddings[batch] = text_embeddings(self.backbone, encodings, self.settings)
        return embeddings

    def _rows(self, embeddings: Vectors) -> Any:
        """Return the logits kept of each embedding, CSR float32 [texts, dimensions]."""
        from scipy import sparse

        blocks = [sparse.csr_matrix((0, self.get_embedding_dimension()), dtype=np.float32)]
        silent = 0
        for start in range(0, len(embeddings), _BLOCK_TEXTS):
            block = embeddings[start : start + _BLOCK_TEXTS]
            is_known: Any = block.any(axis=1)
            vectors = before_rows(self.backbone, self.adjustment.apply(block))
            rows = self.head.top_logits(vectors, is_known, self.settings.top_k, self.settings.signs)
            silent += int((is_known & (np.diff(rows.indptr) == 0)).sum())
            blocks.append(mixed_rows(rows, self.mixing))
        if silent:
            warn(
                f"{silent} of {len(embeddings)} texts have no token with a logit above 0, and so no embedding; "
                "fit an adjustment (model.fitted), or keep the signs (signs='signed')"
            )
        logits = sparse.vstack(blocks, format="csr", dtype=np.float32)
        logits.eliminate_zeros()
        logits.sort_indices()
        return logits

    def _edited(self, edit: Edit) -> Self:
        model = self._changed()
        model.mixing, model._mixed_dimensions = edit.after(self.mixing).without_zeros(), edit.dimensions
        return model
