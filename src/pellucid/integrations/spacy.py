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
    from spacy.tokens import Doc, Token
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
        self._given, self.name = model, name

    @cached_property
    def embedder(self) -> Embedder:  # spaCy asks whether there is a `model`, which would open it
        """The opened model."""
        return open_model(self._given)

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

    def _vector(self, given: Any) -> Vectors:
        """Return the vector of a document, span or token."""
        known, key = (given if isinstance(given, Doc) else given.doc).user_data, _key(given)
        if key not in known:
            known[key] = dense(self.embedder.encode([given.text]))[0]
        vector: Vectors = known[key]
        return vector

    def _has_vector(self, given: Any) -> bool:
        return bool(self._vector(given).any())


def _key(given: Any) -> tuple[str, str, int, int]:
    """Return the key of a document, span or token in the user data: where its text starts and ends."""
    start = 0 if isinstance(given, Doc) else given.idx if isinstance(given, Token) else given.start_char
    return (*_KIND, start, start + len(given.text))


def _similarity(first: Any, second: Any) -> float:
    """Return the cosine of two documents, spans or tokens, 0 if a vector is zero."""
    mine, other = first.vector, second.vector
    if mine.shape != other.shape:
        raise InputError(
            f"{first.text!r:.40} has a vector of {len(mine)} numbers and {second.text!r:.40} one of {len(other)}; pass "
            "both through the same pipeline"
        )
    lengths = float(np.linalg.norm(mine) * np.linalg.norm(other))
    return float(mine @ other) / lengths if lengths else 0.0
