"""spaCy: a component that gives documents, spans and tokens the vectors of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.errors import InputError, missing_extra
from pellucid.integrations.plain import dense, known_arguments, open_model
from pellucid.process import cached_property

try:
    from spacy.language import Language
    from spacy.tokens import Doc, Span, Token
    from spacy.util import minibatch
except ImportError as error:
    raise missing_extra("spacy", "spacy") from error

if TYPE_CHECKING:
    from pellucid.core.embedder import Embedder, Vectors

_KIND = ("._.", "pellucid")  # of the keys in a document's user data; with two characters, as spaCy keeps data of spans


@Language.factory("pellucid", default_config={"model": "static-en"})
def make_component(nlp: Language, name: str, model: str) -> PellucidComponent:
    """Return the component that `nlp.add_pipe("pellucid", config={"model": "static-en"})` adds."""
    return PellucidComponent(model, name)


class PellucidComponent:
    """Gives documents, spans and tokens the vectors of a model, and with them `similarity`.

    Each has the vector of its own text; those of spans and tokens are computed on demand. They are kept in the user
    data of the document.
    """

    @known_arguments
    def __init__(self, model: Any = "static-en", name: str = "pellucid") -> None:
        """Take a model, or its bundled name, folder or hub id, opened at the first use; `name` is the component's."""
        self._model_or_name, self.name = model, name

    @cached_property
    def embedder(self) -> Embedder:  # spaCy asks whether there is a `model`, which would open it
        """The opened model."""
        return open_model(self._model_or_name)

    def __call__(self, doc: Doc) -> Doc:
        """Give a document its vector."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 256) -> Iterator[Doc]:
        """Give documents their vectors, `batch_size` at a time."""
        for docs in map(list, minibatch(stream, batch_size)):
            for doc, row in zip(docs, dense(self.embedder.encode([doc.text for doc in docs]))):
                doc.user_data[_key(doc)] = row
                yield self.restore(doc)

    def restore(self, doc: Doc) -> Doc:
        """Restore the vectors of a document after `Doc.from_bytes`, `Doc.from_docs`, a DocBin or several processes.

        spaCy keeps the vectors then, but drops the functions that return them. Those of joined documents are computed
        on demand.
        """
        for hooks in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
            hooks.update(vector=self._vector, has_vector=self._has_vector, similarity=_similarity)
        return doc

    def to_disk(self, path: str | Path, exclude: Iterable[str] = ()) -> None:
        """Save the model with the pipeline."""
        self.embedder.save_pretrained(path)

    def from_disk(self, path: str | Path, exclude: Iterable[str] = ()) -> PellucidComponent:
        """Open the model that was saved with the pipeline."""
        self.embedder = open_model(path)
        return self

    def _vector(self, span_like: Doc | Span | Token) -> Vectors:
        """Return the vector of a document, span or token."""
        user_data, key = (span_like if isinstance(span_like, Doc) else span_like.doc).user_data, _key(span_like)
        if key not in user_data:
            user_data[key] = dense(self.embedder.encode([span_like.text]))[0]
        vector: Vectors = user_data[key]
        return vector

    def _has_vector(self, span_like: Doc | Span | Token) -> bool:
        return bool(self._vector(span_like).any())


def _key(span_like: Doc | Span | Token) -> tuple[str, str, int, int]:
    """Return the key of a document, span or token in the user data: where its text starts and ends."""
    start = 0 if isinstance(span_like, Doc) else span_like.idx if isinstance(span_like, Token) else span_like.start_char
    return (*_KIND, start, start + len(span_like.text))


def _similarity(first: Any, second: Any) -> float:
    """Return the cosine of two documents, spans or tokens, 0 if a vector is zero."""
    first_vector, second_vector = first.vector, second.vector
    if first_vector.shape != second_vector.shape:
        raise InputError(
            f"{first.text!r:.40} has a vector of {len(first_vector)} numbers and {second.text!r:.40} one of "
            f"{len(second_vector)}; pass both through the same pipeline"
        )
    lengths = float(np.linalg.norm(first_vector) * np.linalg.norm(second_vector))
    return float(first_vector @ second_vector) / lengths if lengths else 0.0
