"""scikit-learn: a model as the first step of a pipeline."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, importing
from pellucid.loading import load

with importing("sklearn", "scikit-learn"):
    from sklearn.base import BaseEstimator, TransformerMixin

if TYPE_CHECKING:
    from pellucid.core.embedder import Embedder


class PellucidVectorizer(TransformerMixin, BaseEstimator):
    """Texts to embeddings, whose columns have the names of the dimensions.

    It needs no `fit`. A pickle holds the name of the model if it was given by name. `set_output(transform="pandas")`
    gives data frames, for dense families.
    """

    def __init__(self, model: Any = "static-en") -> None:
        """Take a bundled name, folder or hub id, opened when it is needed, or a pellucid model."""
        self.model = model

    def fit(self, X: Any, y: Any = None) -> PellucidVectorizer:
        """Open the model; checks `X` as `transform` does."""
        _check_column(X)
        self._opened()
        return self

    def transform(self, X: Iterable[str]) -> Any:
        """Return the embeddings of texts.

        Args:
            X: a list, an array of one dimension, or a pandas series.

        Returns:
            float32 array [texts, dimension], a CSR matrix of a sparse family.

        Raises:
            InputError: a single string, a table or a dict is given, or an item is not a string.
        """
        _check_column(X)
        return self._opened().encode(list(X))

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Return the names of the dimensions."""
        return np.array(self._opened().dimensions.names, dtype=object)

    def _opened(self) -> Embedder:
        if getattr(self, "_opened_from", None) is not self.model:  # set_params may have changed it
            self._embedder = load(self.model) if isinstance(self.model, (str, os.PathLike)) else self.model
            self._opened_from = self.model
        return self._embedder

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters without the opened model."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("_embedder", "_opened_from")}

    def __sklearn_is_fitted__(self) -> bool:
        """Return True: nothing is learned."""
        return True

    def __sklearn_tags__(self) -> Any:
        """Declare that the input is a column of texts."""
        tags = super().__sklearn_tags__()
        tags.requires_fit, tags.no_validation = False, True
        tags.input_tags.string, tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, True, False
        return tags


def _check_column(X: Any) -> None:
    """Check that it is a list of texts, not a string, dict or table, whose items would be read as texts."""
    if isinstance(X, str | bytes | Mapping) or not isinstance(X, Iterable) or getattr(X, "ndim", 1) != 1:
        raise InputError(
            f"X is {type(X).__name__}; give a list, series or array of one dimension, of texts (one column of a "
            "table, such as frame['text'])"
        )
