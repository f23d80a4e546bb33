"""What text embeddings say as their first principal component is taken away or added.

"A Text is Worth Several Tokens", Eq. 14 and Figure 4b: h + lambda u_1 for several lambda, with the tokens it is aligned
with and, beside the paper, the rates of alignment at each. All amounts share one pass over the head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pellucid.errors import InputError
from pellucid.keytokens.alignment import EmbeddedTexts, ModelAlignment, Stems, measure_shifted
from pellucid.pca import Spectrum
from pellucid.research.alignment import LEGEND, draw_scores, words_of
from pellucid.views.figure import Canvas
from pellucid.views.parts import AnyPart, Column, Fold, Heading, Note, TablePart, bars, counted, percent, signed
from pellucid.views.report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        unit: the amount that factor 1 stands for: v_1 where given, else minus the mean part along u_1.
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
        columns = (*(Column(title, "number") for title in titles), Column("", "bar"))
        lengths = bars([step.alignment.weighted_lar for step in self.steps])
        yield TablePart("", columns, tuple((*_sweep_cells(step), bar) for step, bar in zip(self.steps, lengths)))
        yield Note(LEGEND if first.stem is not None else "* stands in the text.")
        for number in range(len(first.examples)):
            rows = tuple((f"{step.factor:g}", words_of(step.alignment.examples[number])) for step in self.steps)
            columns = (Column("factor", "number"), Column(f"first {self.k} tokens", "words"))
            yield Fold(first.examples[number].text, (TablePart("", columns, rows),), is_open=number < 3)


def _sweep_cells(step: SweepStep) -> tuple[str, ...]:
    rates = step.alignment
    shares = map(percent, (rates.hit, rates.lar, rates.gar, rates.weighted_lar, rates.literal))
    return (f"{step.factor:g}", signed(step.amount), *shares, f"{rates.distinct:,}")


def sweep(
    found: Spectrum,
    given: EmbeddedTexts,
    *,
    unit: float | None = None,
    factors: Sequence[float] = FACTORS,
    k: int = 10,
    language: str | None = "en",
    examples: int = 3,
) -> Sweep:
    """Add factor x unit x u_1 to embeddings, for each factor, and measure what they then say (Eq. 14).

    Args:
        found: the spectrum of the backbone's embeddings.
        given: texts with embeddings of the backbone.
        unit: the paper's v_1, `Variation.first`, where there is a tuned model; None takes the amount that makes the
            mean part along u_1 zero.
        factors: of the unit, in any order.
        k: of Hit@K, and tokens shown.
        language: whose stems are compared; None leaves those classes out.
        examples: texts whose tokens are kept.

    Raises:
        InputError: there is no factor, the widths differ, or as `measure`.
        MissingExtraError: snowballstemmer or simplemma is not installed.
    """
    size = -found.level if unit is None else unit
    ordered = sorted(set(map(float, factors)))
    if not ordered:
        raise InputError("no factor to sweep over; give at least one, such as [0.0, 1.0]")
    amounts = {f"{factor:g}": factor * size + 0.0 for factor in ordered}
    if len(amounts) < len(ordered):
        raise InputError("two factors are the same to six digits; give one of them")
    stems = None if language is None else Stems(language)
    measured = measure_shifted(amounts, given, found.first, k, stems=stems, examples=examples)
    return Sweep(k, size, tuple(map(SweepStep, ordered, amounts.values(), measured)))
