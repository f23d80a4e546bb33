"""The words at the ends of a static model's principal components, after the paper's section 5.2 (Table 8).

The components are those of word vectors, or of the sentence means of a corpus, which is what the method itself drops
the first of ("all but the top"). They are centred. A word's value along one is (v - mean) . u.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import numpy as np

from papers.spectra import shares
from pellucid.core.embedder import Vectors
from pellucid.core.pca import Moments, Spectrum
from pellucid.errors import InputError
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, numbers, percent, signed
from pellucid.explain.views.report import Report
from pellucid.static.bags import Bags
from pellucid.static.embedder import StaticEmbedder, static_model
from pellucid.text.inputs import check_texts, refuse_tables
from pellucid.text.words import display_form

_WORDS = 10_000  # the paper looks among so many of the most frequent
_BLOCK = 4_096  # texts at a time


class WordValue(NamedTuple):
    """A word and its value along a component."""

    word: str
    value: float


class Component(NamedTuple):
    """One principal component.

    Attributes:
        number: 1 for the first.
        share: of the variance.
        cumulative: share of all components up to this one.
        largest: the words with the largest values, the largest first.
        smallest: the words with the smallest values, the smallest first.
    """

    number: int
    share: float
    cumulative: float
    largest: tuple[WordValue, ...]
    smallest: tuple[WordValue, ...]


class ComponentRow(NamedTuple):
    """A word at an end of a component, as a row of a table; `end` is "largest" or "smallest"."""

    component: int
    share: float
    end: str
    word: str
    value: float


@dataclass(frozen=True, repr=False)
class Components(Report):
    """Principal components of a static model, by the words at their ends.

    Attributes:
        of: what they are the components of, "words" or "sentences".
        vectors: the number of these.
        blank: sentences without a known word.
        words: the ends were looked for among so many words.
        shares: of the variance, all components in order.
        components: those asked for.
    """

    kind: ClassVar[str] = "components"

    of: str
    vectors: int
    blank: int
    words: int
    shares: tuple[float, ...]
    components: tuple[Component, ...]

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Principal components", self.of, "static model")
        blank = f"; {self.blank:,} more hold no known word" if self.blank else ""
        yield Note(
            f"Of {counted(self.vectors, self.of[:-1] + ' vector')}{blank}. "
            f"Words are the ends among the first {self.words:,} of the vocabulary."
        )
        for component in self.components:
            title = (
                f"component {component.number}: {percent(component.share)} of the variance, "
                f"{percent(component.cumulative)} with those before it"
            )
            pairs = zip(component.largest, component.smallest, strict=True)
            rows = ((a.word, signed(a.value), b.word, signed(b.value)) for a, b in pairs)
            yield TablePart.of(title, ["largest", *numbers(""), "smallest", *numbers("")], rows)

    def _records(self) -> Sequence[ComponentRow]:
        return [
            ComponentRow(c.number, c.share, end, *word)
            for c in self.components
            for end, words in (("largest", c.largest), ("smallest", c.smallest))
            for word in words
        ]


def principal_components(
    model: StaticEmbedder,
    texts: Iterable[str] | None = None,
    *,
    components: Iterable[int] | None = None,
    top_k: int = 5,
    words: int = _WORDS,
) -> Components:
    """Find the principal components of a static model and the words at their ends.

    Args:
        model: a static model.
        texts: sentences; the components are then those of their means. None takes the vectors of the first `words`.
        components: which to show, from 1 on; None takes the first three.
        top_k: words of each end.
        words: look among so many of the vocabulary, in most models the most frequent.

    Raises:
        InputError: the model is not static, a number is out of range, or fewer than two vectors are known.
    """
    static_model(model, "the components of words")
    width = model.get_embedding_dimension()
    wanted = list(dict.fromkeys(range(1, min(width, 3) + 1) if components is None else components))
    for number in wanted:
        if not 1 <= number <= width:
            raise InputError(f"component {number} does not exist; this model has components 1 to {width}")
    if top_k < 1 or words < 2:
        raise InputError(f"top_k is {top_k} and words {words}; at least 1 word of 2 is needed")
    vectors = model.word_vectors(np.arange(len(model.vocabulary))[:words])
    read, moments = 0, Moments()
    for count, rows in [(len(vectors), vectors)] if texts is None else mean_blocks(model, texts):
        read += count
        moments.add(rows)
    if texts is not None and moments.count < 2:
        raise InputError(
            f"{moments.count} of {read:,} texts hold a word that the model knows; components need at least 2 such texts"
        )
    spectrum = moments.spectrum(centred=True)
    values = (vectors - spectrum.mean) @ spectrum.components.T[:, [number - 1 for number in wanted]]
    names = [display_form(word) for word in model.vocabulary.words[:words]]
    found = tuple(
        _component(spectrum, number, names, column, top_k) for number, column in zip(wanted, values.T, strict=True)
    )
    of = "words" if texts is None else "sentences"
    return Components(of, moments.count, read - moments.count, len(names), tuple(shares(spectrum).tolist()), found)


def mean_blocks(model: StaticEmbedder, texts: Iterable[str]) -> Iterator[tuple[int, Vectors]]:
    """Yield how many texts were read and the means of the words of those that the model knows, float32 [known, d].

    Raises:
        InputError: `texts` is one string, or an item is no string.
    """
    refuse_tables(texts)
    if isinstance(texts, str):
        raise InputError(f"give an iterable of texts, got {texts!r:.60}")
    vectors = model.word_vectors(np.arange(len(model.vocabulary)))
    rest, done = iter(texts), 0
    while block := check_texts(islice(rest, _BLOCK), first=done):
        bags = Bags.from_sentences(block, model.vocabulary)
        yield len(block), bags.take(np.flatnonzero(np.diff(bags.offsets))).means(vectors)
        done += len(block)


def _component(spectrum: Spectrum, number: int, words: list[str], values: Any, top_k: int) -> Component:
    order = np.argsort(values, kind="stable")
    ends = [
        tuple(WordValue(words[row], float(values[row])) for row in end.tolist())
        for end in (order[::-1][:top_k], order[:top_k])
    ]
    part = shares(spectrum)
    return Component(number, float(part[number - 1]), float(part[:number].sum()), ends[0], ends[1])
