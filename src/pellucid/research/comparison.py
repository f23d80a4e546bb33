"""What the same texts say under several instructions, or after several fine-tunings, side by side.

"A Text is Worth Several Tokens", sections 5.2 and 5.3: an instruction moves a text's key tokens (from "movie" to
"joy"), and training data decides whether "I dislike apples" is about apples or about disliking. `compare_key_tokens`
shows the tokens of each text under each setting, with the cosines of the texts, in one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.base import check_texts
from pellucid.errors import InputError
from pellucid.keytokens.alignment import AlignedText, Stems, aligned_texts
from pellucid.research.alignment import LEGEND, LONGEST_TOKEN, TOKEN_STYLE, check_family, embedded_texts, words_of
from pellucid.views.figure import Canvas, short_name
from pellucid.views.parts import AnyPart, Column, Fold, Heading, Note, TablePart, counted
from pellucid.views.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pellucid.keytokens.embedder import KeyTokenEmbedder


class SettingTokens(NamedTuple):
    """What the texts say to one model under one instruction.

    Attributes:
        name: of the model, of the instruction, or of both.
        instruction: the task given to the model; "" for none.
        texts: each text with its first tokens.
        cosines: of every text's embedding with every other's, adjusted as the model is.
    """

    name: str
    instruction: str
    texts: tuple[AlignedText, ...]
    cosines: tuple[tuple[float, ...], ...]


class ReadingRow(NamedTuple):
    """A token of a text under a setting, as a row of a table."""

    setting: str
    text: str
    rank: int
    token: str
    score: float
    relation: str


@dataclass(frozen=True, repr=False)
class KeyTokenComparison(Report):
    """The key tokens and cosines of the same texts under several settings.

    Attributes:
        texts: the texts.
        settings: models under instructions, in the order given.
    """

    kind: ClassVar[str] = "keytokens"

    texts: tuple[str, ...]
    settings: tuple[SettingTokens, ...]

    def plot(self, *, dark: bool = False) -> Figure:
        """Return a matplotlib Figure: the tokens of each text by setting, and the cosines as heat maps."""
        wide, lines = len(self.settings), max((len(a.tokens) for s in self.settings for a in s.texts), default=0)
        tall = len(self.texts) * (0.5 + 0.2 * lines)
        title, below = "What the same texts say", "bold: in the text; italic: of the same stem"
        canvas = Canvas((2.6 + 2.0 * wide, 3.2 + tall), title, below, dark=dark)
        grid = canvas.figure.add_gridspec(2, wide, height_ratios=[tall, 2.0])
        for column, setting in enumerate(self.settings):
            axes = canvas.panel(grid[0, column], short_name(setting.name, 34))
            _write_tokens(canvas, axes, setting.texts, column == 0, lines)
            _draw_cosines(canvas, canvas.panel(grid[1, column], "cosine"), np.array(setting.cosines))
        return canvas.figure

    def _records(self) -> Sequence[ReadingRow]:
        return [
            ReadingRow(setting.name, aligned.text, rank, token.token, token.score, token.relation)
            for setting in self.settings
            for aligned in setting.texts
            for rank, token in enumerate(aligned.tokens, 1)
        ]

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading(
            "Key tokens of", counted(len(self.texts), "text"), f"under {counted(len(self.settings), 'setting')}"
        )
        for setting in self.settings:
            if setting.instruction:
                yield Note(f"{setting.name}: {setting.instruction}")
        yield Note(LEGEND)
        for number, text in enumerate(self.texts):
            rows = tuple((setting.name, words_of(setting.texts[number])) for setting in self.settings)
            table = TablePart("", (Column("setting"), Column("first tokens", "words")), rows)
            yield Fold(text, (table,), lead=str(number + 1), is_open=True)
        if len(self.texts) > 1:
            yield self._cosines()

    def _cosines(self) -> TablePart:
        columns = (Column("texts"), *(Column(setting.name, "number") for setting in self.settings))
        pairs = [(i, j) for i in range(len(self.texts)) for j in range(i + 1, len(self.texts))]
        rows = (
            (f"{i + 1} and {j + 1}", *(f"{setting.cosines[i][j]:.3f}" for setting in self.settings)) for i, j in pairs
        )
        return TablePart("cosines", columns, tuple(rows))


def compare_key_tokens(
    models: Mapping[str, KeyTokenEmbedder],
    texts: Iterable[str],
    *,
    instructions: Mapping[str, str] | None = None,
    k: int = 5,
    language: str = "en",
) -> KeyTokenComparison:
    """Show what the same texts say to each model, or to each model under each instruction (Tables 4 and 5).

    Args:
        models: name -> model: one for its instructions, two fine-tunings of one backbone to tell them apart.
        texts: a few.
        instructions: name -> instruction, "" for none; None leaves each model's own.
        k: tokens of each text.
        language: whose stems and lemmas are compared, a key of `LANGUAGES`.

    Raises:
        InputError: there is no model, no instruction or no text, a model is of another family, or `k` or the language
            is not valid.
        MissingExtraError: snowballstemmer or simplemma is not installed.
    """
    read = check_texts(texts)
    if not models or not read or instructions == {}:
        raise InputError(
            f"{len(models)} models, {len(read)} texts and "
            f"{'their own' if instructions is None else len(instructions)} instructions; at least one of each is needed"
        )
    stems = Stems(language)
    settings = [_setting(name, model, read, k, stems) for name, model in _under(models, instructions)]
    return KeyTokenComparison(tuple(read), tuple(settings))


def _under(
    models: Mapping[str, KeyTokenEmbedder], instructions: Mapping[str, str] | None
) -> Iterator[tuple[str, KeyTokenEmbedder]]:
    """Yield each model under each instruction, named by what differs."""
    for name, model in models.items():
        check_family(name, model)
        for told, instruction in (instructions or {}).items():
            both = told if len(models) == 1 else f"{name}, {told}"
            yield both, model.with_instruction(instruction)
        if instructions is None:
            yield name, model


def _setting(name: str, model: KeyTokenEmbedder, texts: list[str], k: int, stems: Stems) -> SettingTokens:
    embeddings = model.embed(texts)
    given = embedded_texts(model, texts, embeddings=embeddings)
    adjusted = model.adjustment.apply(embeddings)
    cosines = tuple(tuple(row) for row in model.similarity(adjusted, adjusted).tolist())
    return SettingTokens(name, model.settings.instruction, tuple(aligned_texts(given, k, stems=stems)), cosines)


def _write_tokens(canvas: Canvas, axes: Axes, texts: Sequence[AlignedText], lead: bool, lines: int) -> None:
    """Write the tokens of each text below one another, the text itself above them in the first column."""
    colours = canvas.colours
    axes.spines[:].set_visible(False)
    axes.set(xlim=(0, 1), ylim=(len(texts) * (lines + 2.5), 0), xticks=[], yticks=[])
    for number, aligned in enumerate(texts):
        top = number * (lines + 2.5) + 1
        if lead:
            said = f"{number + 1}. {short_name(aligned.text, 70)}"
            axes.text(0, top, said, fontsize=8, color=colours.ink, alpha=0.75, parse_math=False, va="center")
        for line, token in enumerate(aligned.tokens, 1):
            style = TOKEN_STYLE.get(token.relation, {})
            options = {"fontsize": 9, "color": colours.adds if style else colours.ink, "va": "center", **style}
            axes.text(0.04, top + line, short_name(token.token, LONGEST_TOKEN), parse_math=False, **options)


def _draw_cosines(canvas: Canvas, axes: Axes, values: npt.NDArray[np.float64]) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    numbers = [str(n) for n in range(1, len(values) + 1)]
    shades = LinearSegmentedColormap.from_list("pellucid", [canvas.colours.paper, canvas.colours.adds])
    axes.imshow(values, cmap=shades, vmin=0, vmax=1.6)
    axes.set_xticks(range(len(numbers)), numbers)
    axes.set_yticks(range(len(numbers)), numbers)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for (line, column), value in np.ndenumerate(values):
        axes.text(column, line, f"{value:.2f}", ha="center", va="center", fontsize=8, color=canvas.colours.ink)
