"""What tuning does to the principal components of an embedding space, and which tokens the first of them feeds.

"A Text is Worth Several Tokens", section 4, on the spectra of `pca.py`: `variation` is its Figure 3,
`contributions` its Figure 4a, `sweep` its Figure 4b: the tokens of h + lambda u_1, and the rates, for several lambda.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from papers.keytokens.alignment import LEGEND, draw_scores, words_of
from papers.keytokens.rates import EmbeddedTexts, ModelAlignment, Relations, Stems, measure_shifted
from papers.spectra import level, project, shares, split
from pellucid.core.pca import Moments, Spectrum, blocks
from pellucid.errors import InputError
from pellucid.explain.views.figure import Canvas
from pellucid.explain.views.parts import AnyPart, Fold, Heading, Note, TablePart, counted, numbers, percent, signed
from pellucid.explain.views.report import Report
from pellucid.keytokens.head import head_rows, top_tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_SHOWN = 12  # components in a table


class Shift(NamedTuple):
    """One component and how tuning moves the embeddings along it.

    Attributes:
        component: its number, from 1.
        share: of the backbone embeddings' squared length.
        level: the mean backbone embedding's part along it.
        variation: v_j, what tuning adds to that on average (Eq. 10).
        deviation: the standard deviation of what it adds, over the texts.
    """

    component: int
    share: float
    level: float
    variation: float
    deviation: float


@dataclass(frozen=True, repr=False)
class Variation(Report):
    """How fine-tuning moves text embeddings along each principal component of its backbone's.

    Attributes:
        base: the name of the backbone.
        tuned: the name of its fine-tuned version.
        texts: the number of texts.
        dominance: the share of the first component in the squared length of v.
        components: all of them, by descending singular value.
    """

    kind: ClassVar[str] = "variation"
    table: ClassVar[str] = "components"

    base: str
    tuned: str
    texts: int
    dominance: float
    components: tuple[Shift, ...]

    @property
    def first(self) -> float:
        """v_1, the amount lambda of the paper's adjustment h + lambda u_1."""
        return self.components[0].variation

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Variation", f"{self.base} \u2192 {self.tuned}", counted(self.texts, "text"))
        largest = max(self.components, key=lambda shift: abs(shift.variation))
        yield Note(
            f"v_1 is {signed(self.first)}, {percent(self.dominance)} of the squared length of v; the largest is "
            f"v_{largest.component}, {signed(largest.variation)}. A component points to the side of the backbone's "
            "mean embedding, so that below 0 tuning takes away from what the texts have in common."
        )
        columns = [("j", "number"), ("v_j", "bar"), *numbers("share of the backbone", "mean part", "v_j", "deviation")]
        rows = []
        for c in self.components[:_SHOWN]:
            written = percent(c.share), signed(c.level), signed(c.variation), f"{c.deviation:.3f}"
            rows.append((str(c.component), c.variation, *written))
        title = f"the first {len(rows)} of {counted(len(self.components), 'component')}"
        yield TablePart.of(title, columns, rows)


def variation(base: Any, tuned: Any, *, names: tuple[str, str] = ("backbone", "tuned")) -> Variation:
    """Measure how tuning moves embeddings along the principal components of the backbone's (Eq. 9 and 10).

    Args:
        base: the backbone's embeddings, [n, d], or an iterable of blocks.
        tuned: the tuned model's of the same texts, in the same order and the same blocks.
        names: of the two.

    Raises:
        InputError: the models differ in width or the numbers of texts differ, there are fewer than two texts, or a
            number is NaN or infinity.
    """
    moments, shifts = Moments(), Moments()
    for one, other in zip_longest(blocks(base), blocks(tuned)):
        if one is None or other is None or np.shape(one) != np.shape(other):
            shapes = [None if block is None else np.shape(block) for block in (one, other)]
            raise InputError(
                f"the blocks have shapes {shapes[0]} ({names[0]}) and {shapes[1]} ({names[1]}); both models must be of "
                "one width, the tuned one made from the backbone, and embed the same texts in the same blocks"
            )
        moments.add(one)
        shifts.add(np.asarray(other, np.float64) - np.asarray(one, np.float64))
    found = moments.spectrum()
    moved = found.components @ shifts.mean
    spread = np.einsum("jd,de,je->j", found.components, shifts.second(centred=True), found.components, optimize=True)
    levels, length = found.components @ found.mean, float(moved @ moved)
    deviations = np.sqrt(np.maximum(spread, 0.0))
    numbers = zip(shares(found).tolist(), levels.tolist(), moved.tolist(), deviations.tolist())
    components = tuple(Shift(j, *values) for j, values in enumerate(numbers, 1))
    return Variation(*names, moments.count, float(moved[0] ** 2 / length) if length > 0 else 0.0, components)


class Contribution(NamedTuple):
    """A token's score for a text, split in two (Eq. 12).

    Attributes:
        token: as it reads.
        relation: to the text: "literal", "stem", "unrelated", or "" where not looked up.
        score: the sum of `first` and `rest`.
        first: what the first principal component gives.
        rest: what the other components give.
    """

    token: str
    relation: str
    score: float
    first: float
    rest: float


@dataclass(frozen=True, repr=False)
class Contributions(Report):
    """The scores of the first tokens of a text, split into the first principal component and the rest.

    Attributes:
        text: the text.
        part: the length of its embedding along u_1.
        top: the tokens that score highest, best first.
        by_rest: those that score highest without the first component.
        correlation: of first and rest over the whole vocabulary, Pearson's; 0 where one is constant.
    """

    kind: ClassVar[str] = "contributions"
    table: ClassVar[str] = "top"

    text: str
    part: float
    top: tuple[Contribution, ...]
    by_rest: tuple[Contribution, ...]
    correlation: float

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Scores by component of", self.text)
        yield Note(f"score = first principal component + rest. The embedding's part along it is {signed(self.part)}.")
        yield _contribution_table("tokens that score highest", self.top)
        yield _contribution_table("tokens that score highest without the first component", self.by_rest)


def _contribution_table(title: str, rows: Sequence[Contribution]) -> TablePart:
    columns = ["token", ("rest", "bar"), *numbers("score", "first", "rest"), "in the text"]
    cells = ((r.token, r.rest, signed(r.score), signed(r.first), signed(r.rest), r.relation) for r in rows)
    return TablePart.of(title, columns, cells)


def contributions(
    found: Spectrum, given: EmbeddedTexts, *, text: int = 0, k: int = 10, language: str | None = "en"
) -> Contributions:
    """Split the scores of a text's first tokens into the first component's part and the rest (Eq. 11 and 12).

    Args:
        found: the spectrum of the backbone's embeddings.
        given: texts with embeddings.
        text: the number of the text.
        k: tokens shown.
        language: whose stems are compared; None marks literal tokens only.

    Raises:
        InputError: there is no such text, `k` is out of range, or the widths differ.
        MissingExtraError: snowballstemmer or simplemma is not installed.
    """
    if not 0 <= text < len(given.texts):
        raise InputError(f"text is {text}; there are {len(given.texts)} texts, numbered from 0")
    row = np.asarray(given.embeddings, np.float32)[text : text + 1]
    part, (first, rest) = float(project(found, row)[0, 0]), split(found, row)
    related = Relations(given.vocabulary, None if language is None else Stems(language))

    def rows(ids: list[int]) -> tuple[Contribution, ...]:
        relations = related.relations(given.texts[text], given.tokens[text], ids)
        tokens = np.concatenate([head_rows(given.head, token, token + 1) for token in ids]).astype(np.float64)
        parts = zip((tokens @ first[0]).tolist(), (tokens @ rest[0]).tolist())
        return tuple(
            Contribution(related.name(token), relation, one + other, one, other)
            for token, relation, (one, other) in zip(ids, relations, parts)
        )

    top, without = (rows(top_tokens(part, given.head, k).ids[0].tolist()) for part in (row, rest))
    return Contributions(given.texts[text], part, top, without, _correlation(given.head, first[0], rest[0]))


def _correlation(head: Any, first: npt.NDArray[np.float64], rest: npt.NDArray[np.float64]) -> float:
    """Return Pearson's correlation over the vocabulary of E first and E rest, the head read in chunks."""
    moments = Moments()
    both = np.stack([first, rest], axis=1)
    for start in range(0, head.shape[0], 8192):
        moments.add(head_rows(head, start, start + 8192) @ both)
    covariance = moments.second(centred=True)
    spread = float(covariance[0, 0] * covariance[1, 1])
    return float(covariance[0, 1] / np.sqrt(spread)) if spread > 0 else 0.0


FACTORS = (0.0, 0.5, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5)
"""Of the amount that takes the first component out on average, or of v_1."""


class SweepStep(NamedTuple):
    """One amount of the first component added.

    Attributes:
        factor: the amount over the sweep's unit.
        amount: lambda of h + lambda u_1.
        alignment: the rates of the moved embeddings, and their tokens for some texts.
    """

    factor: float
    amount: float
    alignment: ModelAlignment


@dataclass(frozen=True, repr=False)
class Sweep(Report):
    """The tokens that embeddings say as more and more of the first component is added to them or taken away.

    Attributes:
        k: of Hit@K, and tokens shown.
        unit: the amount of factor 1: v_1 where given, else minus the mean part along u_1.
        steps: by ascending factor.
    """

    kind: ClassVar[str] = "sweep"
    table: ClassVar[str] = "steps"

    k: int
    unit: float
    steps: tuple[SweepStep, ...]

    @property
    def best(self) -> SweepStep:
        """The step with the largest weighted local alignment rate; the first of equals."""
        return max(self.steps, key=lambda step: step.alignment.weighted_lar)

    def plot(self, *, dark: bool = False) -> Figure:
        """Return a matplotlib Figure: tokens and scores of a text at some steps (Figure 4b), and the rates over all."""
        first = self.steps[0].alignment
        below = first.examples[0].text if first.examples else f"{first.texts:,} texts"
        canvas = Canvas((9.4, 5.6), "The first principal component, taken away step by step", below, dark=dark)
        grid = canvas.figure.add_gridspec(2, 4, height_ratios=[1, 1.15])
        axes = canvas.panel(grid[0, :], across=f"\u03bb in units of {signed(self.unit)}", down="%")
        factors = [step.factor for step in self.steps]
        rates = {"hit": f"Hit@{self.k}", "lar": "LAR", "gar": "GAR", "weighted_lar": "weighted LAR"}
        for (rate, label), colour in zip(rates.items(), canvas.colours.series, strict=False):
            values = [100 * getattr(step.alignment, rate) for step in self.steps]
            axes.plot(factors, values, color=colour, marker="o", markersize=3.5, linewidth=1.5, label=label)
        canvas.legend(axes, loc="center left", at=(1.0, 0.5))
        for column, step in enumerate(self._four() if first.examples else ()):
            title = f"\u03bb = {signed(step.amount, 2)}"
            draw_scores(canvas, canvas.panel(grid[1, column], title, "score"), step.alignment.examples[0])
        return canvas.figure

    def _four(self) -> list[SweepStep]:
        """Return at most four steps: those nearest to factor 0, to the best one, to 0.95 and to 1.05."""
        factors = [step.factor for step in self.steps]
        wanted = (0.0, self.best.factor, 0.95, 1.05)
        nearest = {min(range(len(factors)), key=lambda n: abs(factors[n] - factor)) for factor in wanted}
        return [self.steps[n] for n in sorted(nearest)]

    def _parts(self) -> Iterator[AnyPart]:
        first = self.steps[0].alignment
        yield Heading("First component, amount added", f"h + \u03bb u\u2081, unit {signed(self.unit)}",
                      counted(first.texts, "text"))  # fmt: skip
        best = self.best
        yield Note(f"Weighted LAR is largest at {best.factor:g} of the unit, \u03bb = {signed(best.amount)}.")
        titles = ("factor", "\u03bb", f"Hit@{self.k}", "LAR", "GAR", "weighted LAR", "in text", "distinct")
        rows = ((*_sweep_cells(step), step.alignment.weighted_lar) for step in self.steps)
        yield TablePart.of("", [*numbers(*titles), ("", "bar")], rows)
        yield Note(LEGEND if first.stem is not None else "* stands in the text.")
        for number in range(len(first.examples)):
            tokens = ((f"{step.factor:g}", words_of(step.alignment.examples[number])) for step in self.steps)
            shown = TablePart.of("", [("factor", "number"), (f"first {self.k} tokens", "words")], tokens)
            yield Fold(first.examples[number].text, (shown,), is_open=number < 3)


def _sweep_cells(step: SweepStep) -> tuple[str, ...]:
    rates = step.alignment
    found = map(percent, (rates.hit, rates.lar, rates.gar, rates.weighted_lar, rates.literal))
    return (f"{step.factor:g}", signed(step.amount), *found, f"{rates.distinct:,}")


def sweep(
    found: Spectrum,
    given: EmbeddedTexts,
    *,
    unit: float | None = None,
    k: int = 10,
    language: str | None = "en",
    examples: int = 3,
) -> Sweep:
    """Add factor x unit x u_1 to embeddings, for each of `FACTORS`, and measure what they then say (Eq. 14).

    Args:
        found: the spectrum of the backbone's embeddings.
        given: texts with embeddings of the backbone.
        unit: the paper's v_1, `Variation.first`, where there is a tuned model; None takes the amount that makes the
            mean part along u_1 zero.
        k: of Hit@K, and tokens shown.
        language: whose stems are compared; None leaves those classes out.
        examples: texts whose tokens are kept.

    Raises:
        InputError: the widths differ, or as `measure`.
        MissingExtraError: snowballstemmer or simplemma is not installed.
    """
    size = -level(found) if unit is None else unit
    amounts = {f"{factor:g}": factor * size + 0.0 for factor in FACTORS}
    stems = None if language is None else Stems(language)
    measured = measure_shifted(amounts, given, found.first, k, stems=stems, examples=examples)
    return Sweep(k, size, tuple(map(SweepStep, FACTORS, amounts.values(), measured)))
