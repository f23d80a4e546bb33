"""One static model of two: the words of both in the space of the first.

The second model's vectors are mapped onto the first's, by a map that is fitted on the words that both have
(`maps.py`). Dimensions stay those of the first. The other way to join static models, their tables side by
side, so that a score is the weighted mean of theirs, is `EnsembleEmbedder.merged`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from pellucid.errors import InputError
from pellucid.inspection.tableviews import all_vectors, static_model
from pellucid.static.embedder import StaticEmbedder
from pellucid.views.report import Heading, Note, Part, Report, counted
from pellucid.vocabulary.maps import METHODS, FitQuality, fit_space
from pellucid.words import Vocabulary

SHARED = ("mean", "first")


@dataclass(frozen=True, repr=False)
class Merging(Report):
    """How two static models became one.

    Attributes:
        words_first: words of the first.
        words_second: words of the second.
        shared: words of both.
        words: of the merged model.
        method: of the map.
        rule: what shared words got, the "mean" of both vectors or the "first".
        fit: the map on words held out.
    """

    kind: ClassVar[str] = "vocabulary-merging"

    words_first: int
    words_second: int
    shared: int
    words: int
    method: str
    rule: str
    fit: FitQuality

    def __repr__(self) -> str:
        """Return one short line."""
        return f"<Merging over {self.shared:,} shared words, held-out cosine {self.fit.cosine:.3f}>"

    def _parts(self) -> Iterator[Part]:
        yield Heading("Merged", counted(self.words, "word"), "static model")
        rule = "the mean of both vectors" if self.rule == "mean" else "the first model's vector"
        yield Note(
            f"{self.words_first:,} words of the first and {self.words_second:,} of the second, {self.shared:,} of them "
            f"shared; these have {rule}. The second is mapped onto the first ({self.method})."
        )
        yield from self.fit.parts()

    def _records(self) -> Sequence[tuple[Any, ...]]:
        return [(self.words_first, self.words_second, self.shared, self.words, self.method, self.rule, *self.fit)]

    def _columns(self) -> Sequence[str]:
        names = [item.name for item in fields(self) if item.name != "fit"]
        return (*names, *(f"fit_{name}" for name in FitQuality._fields))


def merge_vocabularies(
    first: StaticEmbedder,
    second: StaticEmbedder,
    *,
    method: str = "least-squares",
    shared: str = "mean",
    seed: int = 0,
) -> tuple[StaticEmbedder, Merging]:
    """Return one static model with the words of two, in the space of the first, and a report of the fit.

    Args:
        first: whose space, dimensions and teacher's tokenizer stay.
        second: whose vectors are mapped onto the first's; it may have other dimensions.
        method: "least-squares" or "procrustes", a rotation, which leaves the second's cosines among its own words as
            they are (if it has no more dimensions than the first).
        shared: what words of both get: the "mean" of the two vectors, or the "first".
        seed: of the shared words held out to measure the map.

    Returns:
        A float32 model, the first's words in front, and the report.

    Raises:
        InputError: a model is not static, a choice is unknown, or too few words are shared to fit a map on.
    """
    for model in (first, second):
        static_model(model, "merging vocabularies")
    if shared not in SHARED or method not in METHODS:
        raise InputError(f"method {method!r:.40} or shared {shared!r:.40} is unknown; method is "
                         f"{' or '.join(METHODS)}, shared {' or '.join(SHARED)}")  # fmt: skip
    common = [word for word in second.vocabulary.words if word in first.vocabulary]
    _check_common(first, second, len(common), method)
    mine, theirs = ([model.vocabulary.row(word) for word in common] for model in (first, second))
    mapping, quality = fit_space(second.word_vectors(theirs), first.word_vectors(mine), method=method, seed=seed)
    mapped = mapping(all_vectors(second))
    table = all_vectors(first)
    if shared == "mean":
        table[mine] = (table[mine] + mapped[theirs]) / 2
    new = [row for row, word in enumerate(second.vocabulary.words) if word not in first.vocabulary]
    words = [*first.vocabulary.words, *(second.vocabulary.words[row] for row in new)]
    subwords = first.vocabulary.subwords or second.vocabulary.subwords
    made = StaticEmbedder(Vocabulary(words, subwords), np.vstack([table, mapped[new]]), dimensions=first.dimensions)
    sizes = (len(first.vocabulary), len(second.vocabulary), len(common), len(words))
    return made, Merging(*sizes, method, shared, quality)


def _check_common(first: StaticEmbedder, second: StaticEmbedder, common: int, method: str) -> None:
    """Refuse to fit a map on fewer words than it has dimensions to find."""
    width = second.get_embedding_dimension()
    needed = max(20, width)
    if common >= needed:
        return
    starts = [", ".join(map(repr, model.vocabulary.words[:3])) for model in (first, second)]
    raise InputError(
        f"the models share {common:,} words, and a map of {width} dimensions needs at least {needed:,} (the first "
        f"begins with {starts[0]}, the second with {starts[1]}); use models of one language and spelling, or put "
        "them side by side with EnsembleEmbedder, which needs no shared word"
    )
