"""Lexicon embeddings (LENS): each coordinate is how strongly one cluster of words fires anywhere in a text.

After the LENS paper, section 3.2: a transformer reads the text, its vocabulary head has one row c_j for each cluster of
tokens, and with h_i for the state of token i of the text

    w_j = max over i of  log(1 + relu(h_i . c_j)),      embedding = w / |w|

The similarity of two texts is the cosine, and so exactly a sum over clusters; each has a token in either text that
fired it. How the vocabulary is clustered is in `clusters.py`, how a text is read in `transformer/reading.py`, what
torch does in `transformer/backbone.py`. A model on disk:

    config.json            the family, and how the backbone is opened
    lexicon.json           the settings, and the clusters' names and words
    lexicon.safetensors    centroids, assignment of tokens; bias and mixing where there are any; a fingerprint
    dimensions.tsv         the dimensions, for people: names and scales in it are honoured; what `scale` did is here
    backbone/, adapter/    the transformer, as in `transformer/embedder.py`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import Role
from pellucid.core.dimensions import Dimensions, Edit, Mixing
from pellucid.core.embedder import Vectors
from pellucid.core.mixing import after_edit, read_mixed, sparse_units, strongest_source
from pellucid.core.query import Query, SpanFinder
from pellucid.errors import InputError, ModelFolderError, shown
from pellucid.lexicon.clusters import Clusters
from pellucid.process import cached_property
from pellucid.settings import Limits
from pellucid.text.words import Span
from pellucid.transformer.embedder import TransformerEmbedder, stored_settings
from pellucid.transformer.reading import Encoding, ReadingSettings, whole_words

if TYPE_CHECKING:
    from typing_extensions import Self

    from pellucid.transformer.backbone import Backbone


@dataclass(frozen=True)
class LexiconSettings(ReadingSettings):
    """How texts become lexicon embeddings (LENS paper, section 3.2.2).

    Attributes:
        pooling: how the weights of the text's tokens become one: their "max" or "sum", or the weights at the "last"
            position, after the whole text.
        shift: use for a token the state at the position before it, which is where a causal language model predicts
            it. None: for causal language models yes, for encoders no. With it, `end_token=False` also removes the end
            token that the tokenizer adds by itself.
        max_active_dims: keep only so many of the largest coordinates of each text; None keeps all.
    """

    template: str = "{text}"
    pooling: Literal["max", "sum", "last"] = "max"
    shift: bool | None = None
    max_active_dims: Annotated[int | None, Limits(1)] = None

    def resolved(self, tokenizer: Any, predicts_next: bool, context: int) -> Self:
        """Return these settings with everything set that is left to the model; see `ReadingSettings.resolved`."""
        settings = super().resolved(tokenizer, predicts_next, context)
        return replace(settings, shift=predicts_next if self.shift is None else self.shift)


class LexiconQuery(Query):
    """A text as a lexicon model reads it."""

    @cached_property
    def _weighed(self) -> tuple[list[Span], Vectors, npt.NDArray[np.int64]]:
        """The words of the text's tokens, the clusters' weights [1, k] and the token that fired each [k]; one pass."""
        encoding = self.model.encodings([self.text], self.role)[0]
        weights, fired = self.model._weights([encoding])
        return whole_words(self.text, encoding.spans), weights, fired[0]

    @cached_property
    def coordinates(self) -> Any:
        """The row of the text, float64 CSR [1, dimensions]."""
        return self.model._mixed(self._weighed[1]).astype(np.float64)

    @cached_property
    def span_finder(self) -> SpanFinder:
        """The function from a dimension to where in the text it was fired, as a tuple of at most one span."""
        words, weights, fired = self._weighed

        def find_spans(dimension: int) -> tuple[Span, ...]:
            source = strongest_source(self.model.mixing, weights[0], dimension)
            start, end = words[fired[source]] if fired[source] >= 0 else (0, 0)
            return ((start, end),) if end > start else ()

        return find_spans


class LexiconEmbedder(TransformerEmbedder):
    """A text is the weights of k clusters of words.

    A row of an explanation is a cluster that fires in both texts, all of them. It stands in a text at the whole word
    (or words) of the token that fired it; after "last" pooling nowhere. Words that did not fit into what the model can
    read are unknown.

    Attributes:
        backbone: the transformer.
        clusters: its head: centroids, names and words.
        settings: how texts are read and pooled, everything decided.
        bias: float32 [k], added to the clusters' logits, or None.
        mixing: the `Mixing` [k, dimensions] by which the weights are multiplied after pooling, or None; scaling and
            merging dimensions make one.
    """

    family: ClassVar[str] = "lexicon"
    query_type: ClassVar[type[Query]] = LexiconQuery
    _shapes: ClassVar[Mapping[str, str]] = {"centroids": "k d", "fingerprint": "d", "bias?": "k"}
    settings: LexiconSettings

    def __init__(
        self,
        backbone: Backbone,
        clusters: Clusters,
        settings: LexiconSettings | None = None,
        *,
        bias: npt.NDArray[np.float32] | Literal["head"] | None = "head",
        mixed: tuple[Mixing, Dimensions] | None = None,
    ) -> None:
        """Put a head of clusters on a backbone.

        Args:
            backbone: from `open_backbone`.
            clusters: from `cluster_vocabulary` over the backbone's head.
            settings: None takes the paper's.
            bias: added to the clusters' logits, [k]; "head" takes the mean of what the backbone's head adds to the
                tokens of a cluster, where it adds anything; None adds nothing.
            mixed: a mixing [k, dimensions], and as many dimensions; None where the clusters are the dimensions.

        Raises:
            InputError: the parts do not fit together, or the settings do not fit the tokenizer.
        """
        width = clusters.centroids.shape[1]
        if width != backbone.dimension:
            raise InputError(
                f"the clusters' centroids have {width} dimensions and the states of the backbone {backbone.dimension}; "
                "cluster the head of this backbone"
            )
        self.clusters, self.bias = clusters, _checked_bias(bias, backbone, clusters)
        self.mixing = None if mixed is None else mixed[0]
        self._dimensions = mixed[1] if mixed else clusters.dimensions
        if self.mixing is not None and self.mixing.shape != (len(clusters), len(self._dimensions)):
            raise InputError(
                f"mixing of shape {self.mixing.shape} does not lead from {len(clusters)} clusters to "
                f"{len(self._dimensions)} dimensions"
            )
        self._read_with(backbone, settings or LexiconSettings())

    @classmethod
    def _from_files(
        cls, backbone: Backbone, described: Any, tensors: dict[str, npt.NDArray[Any]], path: Path,
        config: Mapping[str, Any],
    ) -> Self:  # fmt: skip
        try:
            settings, words = stored_settings(LexiconSettings, described), _lists(described["words"])
            about = words if described["about"] is None else _lists(described["about"])
            (names,) = _lists([described["names"]])
            assignment = tensors["assignment"].astype(np.int64, casting="safe")
            clusters = Clusters(assignment, tensors["centroids"], list(names), words)
        except (AttributeError, KeyError, TypeError, InputError) as error:
            raise ModelFolderError(f"{path.with_suffix('.json')} does not describe a lexicon model: {error}") from error
        mixing, dimensions = read_mixed(tensors, len(clusters), len(about), path, about)
        if mixing is None:  # what was renamed are the clusters themselves
            clusters = replace(clusters, names=dimensions.names, words=[item.about for item in dimensions])
        mixed = None if mixing is None else (mixing, dimensions)
        return cls(backbone, clusters, settings, bias=tensors.get("bias"), mixed=mixed)

    def save_pretrained(self, path: str | Path, *, backbone_name: str | None = None, dtype: str = "float32") -> None:
        """Write the model to folder `path`, whole or not at all; `dimensions.tsv` may be edited.

        Args:
            path: the folder; a model that is there is replaced in one step.
            backbone_name: keep no copy of the backbone but this name of it (a hub id, or a folder), and the adapter it
                was opened with. Loading then finds it by name.
            dtype: of the centroids and the adapter on disk, "float32" or "float16".

        Raises:
            WritingError: it cannot be written; what was at `path` is untouched.
        """
        self._save(path, backbone_name=backbone_name, dtype=dtype)

    def _described(self, dtype: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any] | None]]:
        if dtype not in ("float32", "float16"):
            raise InputError(f"centroids and adapter are saved as float32 or float16, not {shown(dtype)}")
        clusters, about = self.clusters, [item.about for item in self._dimensions]
        differs = about != clusters.words  # as in models with merged dimensions alone
        described = {"names": clusters.names, "words": clusters.words, "about": about if differs else None}
        arrays = {"centroids": clusters.centroids.astype(dtype), "assignment": clusters.assignment.astype(np.int32)}
        return described, {**arrays, "bias": self.bias}

    def identity(self) -> dict[str, Any]:
        """Return all that the vectors depend on, for `fingerprint`."""
        clusters = {"centroids": self.clusters.centroids, "assignment": self.clusters.assignment}
        return {**super().identity(), **clusters, "bias": self.bias, "mixing": self.mixing}

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions: of clusters, unless some were merged."""
        return len(self._dimensions)

    @property
    def dimensions(self) -> Dimensions:
        """The clusters in order; `about` holds their words, the best-formed first."""
        return self._dimensions

    def with_settings(self, settings: LexiconSettings) -> Self:
        """Return the same model with other settings: `replace(model.settings, max_active_dims=256)` of dataclasses."""
        return self._like(settings=settings)

    def _like(self, **changes: Any) -> Self:
        mixed = None if self.mixing is None else (self.mixing, self._dimensions)
        arguments = {"clusters": self.clusters, "settings": self.settings, "bias": self.bias, "mixed": mixed, **changes}
        return type(self)(self.backbone, **arguments)

    def size_text(self) -> str:
        """Return how large the model is, in the family's own units."""
        return f"{len(self.clusters):,} clusters"

    def _encode(self, texts: list[str], role: Role, *, batch_size: int, show_progress_bar: bool) -> Any:
        """Return CSR float32 [texts, dimensions], rows of length 1 (or 0)."""
        from scipy import sparse

        positions: list[int] = []
        blocks = [sparse.csr_matrix((0, self.get_embedding_dimension()), dtype=np.float32)]
        for batch, encodings in self._batches(texts, role, batch_size, show_progress_bar):
            positions += batch
            blocks.append(self._mixed(self._weights(encodings)[0]))
        rows = sparse.vstack(blocks, format="csr", dtype=np.float32)
        blocks.clear()  # a copy in the order of the texts is made next
        return rows[np.argsort(positions)]

    def _weights(self, encodings: Sequence[Encoding]) -> tuple[Vectors, npt.NDArray[np.int64]]:
        """Return the clusters' weights [texts, k] and the text's token that fired each."""
        head, bias = self._tensors
        return self.backbone.weights(encodings, head, bias, self.settings.pooling)

    @cached_property
    def _tensors(self) -> tuple[Any, Any]:
        bias = None if self.bias is None else self.backbone.tensor(self.bias)
        return self.backbone.tensor(self.clusters.centroids), bias

    def _mixed(self, weights: Vectors) -> Any:
        """Return weights [texts, k] as pruned embeddings of length 1, sparse [texts, dimensions]."""
        from scipy import sparse

        if not np.isfinite(weights).all():
            raise InputError("the backbone gives NaN or infinity; open it with dtype='float32'")
        return sparse_units(sparse.csr_matrix(weights), self.mixing, self.settings.max_active_dims)

    def _edited(self, edit: Edit) -> Self:
        used, mixing = after_edit(self.mixing, edit)
        clusters = self.clusters.take(used)
        bias = None if self.bias is None else self.bias[used]
        if mixing is None:
            clusters = replace(clusters, names=edit.dimensions.names)
            return self._like(clusters=clusters, bias=bias, mixed=None)
        return self._like(clusters=clusters, bias=bias, mixed=(mixing, edit.dimensions))


def _checked_bias(
    bias: npt.NDArray[np.float32] | str | None, backbone: Backbone, clusters: Clusters
) -> npt.NDArray[np.float32] | None:
    """Return the bias given, or for "head" the mean bias of each cluster's tokens where the backbone's head has one."""
    if bias is None:
        return None
    if not isinstance(bias, str):
        checked = np.asarray(bias, np.float32)
        if checked.shape != (len(clusters),) or not np.isfinite(checked).all():
            raise InputError(f"bias must be {len(clusters)} finite numbers, one a cluster, got shape {checked.shape}")
        return checked
    token_bias, assignment = backbone.head_bias, clusters.assignment
    if token_bias is None or not len(assignment):
        return None
    if len(assignment) != len(token_bias):
        raise InputError(
            f"the clusters are of {len(assignment)} tokens and the backbone's head has {len(token_bias)} rows; "
            "cluster the head of this backbone"
        )
    clustered = assignment >= 0
    values = token_bias.float().cpu().numpy()[clustered]
    counts = np.bincount(assignment[clustered], minlength=len(clusters))
    sums = np.bincount(assignment[clustered], weights=values, minlength=len(clusters))
    return (sums / np.maximum(counts, 1)).astype(np.float32)


def _lists(value: Any) -> list[tuple[str, ...]]:
    """Return lists of texts after checking that they are such."""
    if not isinstance(value, list) or not all(isinstance(texts, list) for texts in value):
        raise TypeError(f"there must be lists of texts, not {shown(value)}")
    if not all(isinstance(text, str) for texts in value for text in texts):
        raise TypeError("a word is not a string")
    return [tuple(texts) for texts in value]
