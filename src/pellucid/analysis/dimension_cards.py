"""One dimension: its meaning, how often it fires, its strongest texts, its nearest relatives.

A dimension fires on a text when it carries more than its even share of the embedding there,
coordinate^2 > |embedding|^2 / n; see `coordinates.py`. Coordinates are those of L2-normalised embeddings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from pellucid.analysis.coordinates import Example, check_model, correlations, spread
from pellucid.core.dimensions import Which
from pellucid.core.embedder import Embedder
from pellucid.errors import check_integer
from pellucid.explain.views.parts import (
    AnyPart,
    Fold,
    Heading,
    Note,
    TablePart,
    counted,
    numbers,
    percent,
    signed,
)
from pellucid.explain.views.report import Report

MAX_EXAMPLES = 1000
"""Texts named in a card."""


class Relative(NamedTuple):
    """Another dimension and the correlation of its coordinate with this one's."""

    name: str
    correlation: float


@dataclass(frozen=True, repr=False)
class Card(Report):
    """What a dimension does on a corpus."""

    kind: ClassVar[str] = "card"

    family: str
    dimension: int  # its number, from 0
    dimensions: int  # how many the model has
    name: str
    about: tuple[str, ...]  # its meaning: the anchor text, the words of a cluster, the words at the ends of a direction
    texts: int
    blank: int  # how many more have no known word
    firing_rate: float  # share of the texts that it fires on
    share: float  # mean share of an embedding (its squared length) that it carries; the even share is 1 / dimensions
    common: float  # what it adds to the mean score of two different texts
    mean_score: float  # that score
    strongest: tuple[Example, ...]  # the texts with the largest coordinates above 0, best first; each text once
    # the texts with the lowest coordinates below 0, lowest first; none where no coordinate is negative
    weakest: tuple[Example, ...]
    relatives: tuple[Relative, ...]  # the dimensions with the largest correlation in size

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading(f"Dimension {self.dimension}", self.name, f"{self.family} model")
        yield from self._body()

    def _body(self) -> Iterator[AnyPart]:
        for line in self.about:
            if line != self.name:
                yield Note(line)
        yield Note(
            f"Fires on {percent(self.firing_rate)} of {counted(self.texts, 'text')}. Carries {percent(self.share)} of "
            f"an embedding (even share {percent(1 / self.dimensions)}), and gives {signed(self.common, 4)} of the mean "
            f"score of two texts, {signed(self.mean_score, 4)}."
        )
        for title, examples in (("strongest texts", self.strongest), ("most negative texts", self.weakest)):
            if examples:
                rows = ((signed(e.coordinate), e.coordinate, e.text) for e in examples)
                yield TablePart.of(title, [*numbers(""), ("", "bar"), ""], rows)
        if self.relatives:
            relatives = ((signed(r.correlation, 2), r.correlation, r.name) for r in self.relatives)
            yield TablePart.of("nearest dimensions, by correlation", [*numbers(""), ("", "bar"), ""], relatives)


@dataclass(frozen=True, repr=False)
class Cards(Report):
    """Cards of several dimensions, over one corpus."""

    kind: ClassVar[str] = "cards"
    table: ClassVar[str] = "cards"

    family: str
    dimensions: int  # how many the model has
    texts: int
    cards: tuple[Card, ...]  # the cards, in the order of the model

    def __len__(self) -> int:
        """Return the number of cards."""
        return len(self.cards)

    def __getitem__(self, index: int) -> Card:
        """Return the card at `index`, from 0."""
        return self.cards[index]

    def _parts(self) -> Iterator[AnyPart]:
        shown = f"{len(self.cards):,} of {self.dimensions:,}" if len(self.cards) < self.dimensions else ""
        yield Heading("Dimensions", shown or f"{self.dimensions:,}", f"{self.family} model, {self.texts:,} texts")
        yield Note(
            "Before each name: on how many of the texts it fires, that is, carries "
            "more than its even share of the embedding."
        )
        for index, card in enumerate(self.cards):
            yield Fold(card.name, tuple(card._body()), lead=percent(card.firing_rate), is_open=index == 0)


def cards(
    model: Embedder,
    texts: Iterable[str],
    dimensions: Which | Iterable[Which] | None = None,
    *,
    top_k: int | None = None,
    examples: int = 5,
    seed: int = 0,
) -> Cards:
    """Describe one or several dimensions of `model` by the texts of a corpus.

    Args:
        model: any family.
        texts: a corpus, read once and in blocks; a thousand texts give a fair picture.
        dimensions: a name or index, or several; None takes all.
        top_k: keep only the cards of so many dimensions, those that carry most of the embeddings; None keeps all.
        examples: how many strongest texts, most negative texts and nearest dimensions to name in each card.
        seed: of the sample that is measured where there are more than 20,000 texts.

    Raises:
        InputError: a dimension is unknown, `top_k` is below 1, `examples` is not from 1 to 1,000, or the model knows
            fewer than two texts.
    """
    check_integer("examples", examples, most=MAX_EXAMPLES)
    check_integer("top_k", top_k, optional=True)
    check_model(model)
    all_dimensions = model.dimensions
    indices = sorted(all_dimensions.numbers([range(len(all_dimensions)) if dimensions is None else dimensions]))
    measured = spread(model, texts, seed)
    indices = sorted(sorted(indices, key=lambda index: -measured.shares[index])[:top_k])
    nearest: dict[int, tuple[Relative, ...]] = {}
    for where, block in correlations(measured):
        for index in set(indices).intersection(range(where.start, where.stop)):
            line = block[index - where.start]
            best = np.argsort(-np.abs(line), kind="stable")[:examples].tolist()
            nearest[index] = tuple(Relative(all_dimensions[n].name, float(line[n])) for n in best if line[n])
    model_cards = [
        Card(
            family=model.family,
            dimension=index,
            dimensions=len(all_dimensions),
            name=all_dimensions[index].name,
            about=all_dimensions[index].about,
            texts=measured.texts,
            blank=measured.blank,
            firing_rate=float(measured.firing[index]),
            share=float(measured.shares[index]),
            common=float(measured.common[index]),
            mean_score=float(measured.common.sum()),
            strongest=measured.examples(index, examples),
            weakest=measured.examples(index, examples, sign=-1),
            relatives=nearest[index],
        )
        for index in indices
    ]
    return Cards(model.family, len(all_dimensions), measured.texts, tuple(model_cards))
