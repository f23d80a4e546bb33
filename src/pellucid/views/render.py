"""What every view of an explanation shows, and the view for terminals.

The views agree on what is said: the texts as the user wrote them, the largest rows, one line for the sum of the others,
the remainder where there is one, and the score that all lines add up to. Signs are written as well as coloured. The
terminal view uses rich, which leaves colour out when NO_COLOR is set and all styles when the output is no terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError
from pellucid.explanation import Coverage, Explanation, Row, Span
from pellucid.text import well_formed

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table
    from rich.text import Text

_FOR, _AGAINST = "color(32)", "color(166)"  # a blue and an orange that read on black and on white
_BAR = 12  # characters
_NARROW = 56  # characters; a narrower terminal gets no bars
_LONGEST_TEXT = 1_500  # characters of a text that a terminal shows
_CANCELLED = 0.1  # |score| over the sum of the rows' sizes; below, shares of the score mislead
STRONG, WEAK = 0.5, 0.05  # of the strongest word's contribution; below the second a word is left unmarked

# One character for one, so that spans keep their meaning: what could move the cursor or reorder a line is made visible.
_VISIBLE = (
    {code: chr(0x2400 + code) for code in range(0x20)}
    | dict.fromkeys((*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x61C), 0xFFFD)
    | {ord("\n"): "\u23ce", ord("\r"): " ", ord("\t"): " ", 0x85: "\u23ce", 0x2028: "\u23ce", 0x2029: "\u23ce"}
)


class Summary(NamedTuple):
    """The lines of a table that add up to the score."""

    shown: tuple[Row, ...]
    hidden: int
    hidden_sum: float
    shares: bool
    """Whether shares of the score say anything; not where large terms of both signs nearly cancel."""


class WordMatrix(NamedTuple):
    """The rows of an explanation of word pairs as a table, in text order; `values` adds up to the sum of the rows."""

    words1: list[str]
    words2: list[str]
    values: npt.NDArray[np.float64]  # [words1, words2]
    others1: int
    """How many words the last line of `values` sums up; 0 when it is an ordinary word."""
    others2: int


def summarise(explanation: Explanation, top_k: int) -> Summary:
    """Choose the `top_k` largest rows and sum the others.

    Raises:
        InputError: `top_k` is below 0.
    """
    if top_k < 0:
        raise InputError(f"top_k is {top_k}; it must be at least 0")
    hidden = explanation.rows[top_k:]
    size = sum(abs(row.contribution) for row in explanation.rows)
    shares = any(row.share for row in explanation.rows) and abs(explanation.score) >= _CANCELLED * size
    return Summary(explanation.rows[:top_k], len(hidden), sum(row.contribution for row in hidden), shares)


def title(explanation: Explanation) -> str:
    """Say what the score is."""
    if explanation.text2 is None:
        return "What the text is about"
    return "Similarity" if explanation.text3 is None else "Similarity to text 2 less similarity to text 3"


def text_label(explanation: Explanation, number: int) -> str:
    """Name text 1, 2 or 3."""
    return f"text {number}" if len(explanation.texts) > 1 else "text"


def is_pairs(explanation: Explanation) -> bool:
    """Whether the rows are pairs of words, one of each text."""
    return bool(explanation.rows) and all(len(row.parts) == 2 for row in explanation.rows)


def unit(explanation: Explanation, count: int) -> str:
    """Name `count` rows: word pairs, words or (anchors, clusters) dimensions; rows where they are of several kinds."""
    name = "word pair" if is_pairs(explanation) else "word" if _is_words(explanation) else _other_rows(explanation)
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _other_rows(explanation: Explanation) -> str:
    """Name rows that are no words; pairs of words among them are an ensemble's."""
    return "dimension" if len({len(row.parts) for row in explanation.rows}) < 2 else "row"


def _is_words(explanation: Explanation) -> bool:
    return explanation.text2 is None and all(row.spans1 for row in explanation.rows)


def notes(explanation: Explanation) -> list[str]:
    """Say in sentences what the numbers rest on."""
    if not explanation.rows:
        return ["Nothing to add up: the model knows nothing of " + _blank_texts(explanation) + "."]
    gains = sum(row.contribution for row in explanation.rows if row.contribution > 0)
    losses = sum(row.contribution for row in explanation.rows if row.contribution < 0)
    kind = "adding up to the score exactly" if explanation.exact else "and a remainder, adding up to the score"
    said = [f"{unit(explanation, len(explanation.rows))} {kind}: {gains:+.4f} for, {losses:+.4f} against."]
    if not summarise(explanation, 0).shares:
        said.append("For and against nearly cancel: shares of so small a score would mislead and are not shown.")
    elif explanation.score < 0:
        said.append("The score is negative, so the rows that lower it have the positive shares.")
    return said


def low_coverage(explanation: Explanation) -> list[str]:
    """Say of which texts the model knows little."""
    said = []
    for number, coverage in enumerate(explanation.coverage, 1):
        label = text_label(explanation, number)
        said += little_known(coverage, label if " " in label else f"the {label}")
    return said


def little_known(coverage: Coverage, text: str, unknown: Sequence[str] = ()) -> list[str]:
    """Say that the model knows little of `text`, and which words it does not; nothing where it knows enough."""
    if not coverage.is_low:
        return []
    listed = f" Unknown: {_listed(unknown, 12)}." if unknown else ""
    if not coverage.known:
        return [f"Only 0 of {coverage.total:,} words of {text} known: the model can say nothing of it.{listed}"]
    rests = "it" if coverage.known == 1 else "them"
    return [f"Only {coverage.known:,} of {coverage.total:,} words of {text} known: the score rests on {rests}.{listed}"]


def _listed(words: Sequence[str], most: int) -> str:
    more = f" and {len(words) - most:,} more" if len(words) > most else ""
    return ", ".join(shorten(word, 40) for word in words[:most]) + more


def _blank_texts(explanation: Explanation) -> str:
    """Name the texts that hold no word but unknown ones."""
    if len(explanation.texts) == 1:
        return "the text"
    unknown = (explanation.unknown1, explanation.unknown2, explanation.unknown3)
    blank = []
    for number, (text, spans) in enumerate(zip(explanation.texts, unknown, strict=False), 1):
        characters = list(text)
        for start, end in spans:
            characters[start:end] = " " * (end - start)
        if not any(map(str.isalnum, characters)):
            blank.append(f"text {number}")
    return " and ".join(blank) or "one of the texts"


def unknown_note(explanation: Explanation, text: int, *, most: int = 12) -> str:
    """List the words of a text that the model has no vector for, and count those it knows in part; else empty."""
    words = explanation.unknown_words(text)
    said = ["not in the vocabulary: " + _listed(words, most)] if words else []
    if explanation.coverage and explanation.coverage[text - 1].partly:
        coverage = explanation.coverage[text - 1]
        said.append(f"known by their beginning alone: {coverage.partly:,} of {coverage.total:,} words")
    return "; ".join(said)


def shorten(text: str, length: int) -> str:
    """Cut `text` to `length` characters, the last of them an ellipsis."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "\u2026"


def visible(text: str) -> str:
    """Replace control characters one for one by visible ones, so that a text cannot steer a terminal.

    What a terminal, a picture or Markdown shows of a user's text, name or file goes through here; what a page shows,
    through `page.safe`.
    """
    return well_formed(text).translate(_VISIBLE)


def pieces(explanation: Explanation, text: int, limit: int) -> Iterator[tuple[str, str, float]]:
    """Cut the first `limit` characters of a text into (piece, kind, contribution), kind "word", "unknown" or "plain".

    Joined, the pieces are the user's own text. Where spans overlap, the earlier one keeps the characters.
    """
    content = explanation.texts[text - 1][:limit]
    known = explanation.word_contributions(text)
    missing = (explanation.unknown1, explanation.unknown2, explanation.unknown3)[text - 1]
    marks: list[tuple[Span, str, float]] = [(span, "word", value) for span, value in known.items()]
    marks += [(span, "unknown", 0.0) for span in missing]
    at = 0
    for (start, end), kind, value in sorted(marks):
        start, end = max(start, at), min(end, len(content))
        if start >= end:
            continue
        if start > at:
            yield content[at:start], "plain", 0.0
        yield content[start:end], kind, value
        at = end
    if at < len(content):
        yield content[at:], "plain", 0.0


def strongest(explanation: Explanation) -> float:
    """Return the largest size of a word's contribution over all texts, what highlights are scaled by; never 0."""
    values = [v for n in range(1, len(explanation.texts) + 1) for v in explanation.word_contributions(n).values()]
    return max(map(abs, values), default=0.0) or 1.0


def word_matrix(explanation: Explanation, max_words: int) -> WordMatrix | None:
    """Return the word pairs as a table of the `max_words` strongest words of each side and the sum of the others.

    None where the rows are not pairs. In a difference the columns are the words of text 2, then those of text 3.

    Raises:
        InputError: `max_words` is below 1.
    """
    if max_words < 1:
        raise InputError(f"max_words is {max_words}; it must be at least 1")
    if not is_pairs(explanation):
        return None
    place1: dict[str, Any] = {}
    place2: dict[str, Any] = {}
    for row in explanation.rows:
        place1.setdefault(row.parts[0], row.spans1[:1])
        place2.setdefault(row.parts[1], (not row.spans2, (row.spans2 or row.spans3)[:1]))
    words1, words2 = sorted(place1, key=place1.__getitem__), sorted(place2, key=place2.__getitem__)
    line = {word: number for number, word in enumerate(words1)}
    column = {word: number for number, word in enumerate(words2)}
    values = np.zeros((len(words1), len(words2)))
    for row in explanation.rows:
        values[line[row.parts[0]], column[row.parts[1]]] += row.contribution
    words1, values, others1 = _fold(words1, values, max_words)
    words2, values, others2 = _fold(words2, values.T, max_words)
    return WordMatrix(words1, words2, values.T, others1, others2)


def _fold(words: list[str], values: npt.NDArray[Any], most: int) -> tuple[list[str], npt.NDArray[Any], int]:
    """Keep the `most` lines with the largest values, in order, and add a last line with the sum of the others."""
    others = len(words) - most
    if others <= 1:  # one word takes no more room than a line for the others
        return words, values, 0
    kept = np.sort(np.argsort(-np.abs(values).sum(axis=1), kind="stable")[:most])
    rest = values.sum(axis=0) - values[kept].sum(axis=0)
    return [words[k] for k in kept] + [f"{others:,} more"], np.vstack([values[kept], rest]), others


def decimals(reach: float) -> int:
    """Return how many decimals a heat map writes when its largest pair has size `reach`."""
    return 2 if reach >= 0.05 else 3 if reach >= 0.005 else 4


def plain(explanation: Explanation, *, top_k: int = 10, width: int = 100) -> str:
    """Return the terminal view as plain text, `width` characters wide."""
    from rich.console import Console

    console = Console(file=StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as captured:
        for part in terminal(explanation, top_k=top_k):
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def terminal(explanation: Explanation, *, top_k: int = 10) -> Iterator[RenderableType]:
    """Yield what rich prints: a heading, the texts with their words marked, and the table of the `top_k` rows."""
    from rich.text import Text

    heading = Text(f"{title(explanation)}  ", style="bold")
    heading.append(f"{explanation.score:.4f}")
    yield heading.append(f"   {visible(explanation.family)} model", style="not bold dim")
    for said in low_coverage(explanation):
        yield Text(said, style=f"bold {_AGAINST}")
    yield Text("\n".join(notes(explanation)), style="dim")
    yield ""
    yield _texts(explanation)
    if explanation.rows:
        yield ""
        yield _Rows(explanation, summarise(explanation, top_k))


def _texts(explanation: Explanation) -> Table:
    """Return the texts with their words marked, and below each in words what the marks say."""
    from rich.table import Table
    from rich.text import Text

    scale = strongest(explanation)
    grid = Table.grid("", "", padding=(0, 2, 0, 0))
    grid.columns[1].overflow = "fold"
    for number, text in enumerate(explanation.texts, 1):
        if number > 1:
            grid.add_row()
        line = Text()
        for piece, kind, value in pieces(explanation, number, _LONGEST_TEXT):
            line.append(visible(piece), style=_style(kind, value / scale))
        if len(text) > _LONGEST_TEXT:
            line.append(f" \u2026 {len(text) - _LONGEST_TEXT:,} characters more", style="dim")
        grid.add_row(Text(text_label(explanation, number), style="dim"), line)
        for said in (_leading_words(explanation, number), unknown_note(explanation, number)):
            if said:
                grid.add_row("", Text(visible(said), style="dim"))
    return grid


def _style(kind: str, strength: float) -> str:
    """Colour says the sign, weight the strength; a word with next to no effect is left as it is."""
    if kind == "unknown":
        return "dim italic"
    if kind == "plain" or abs(strength) < WEAK:
        return ""
    colour = _FOR if strength > 0 else _AGAINST
    return f"{colour} underline" + (" bold" if abs(strength) >= STRONG else "")


def _leading_words(explanation: Explanation, number: int, most: int = 6) -> str:
    """Return the strongest words of a text with their signed sums, for readers without colour."""
    sums: dict[str, float] = {}
    text = explanation.texts[number - 1]
    for (start, end), value in explanation.word_contributions(number).items():
        sums[text[start:end]] = sums.get(text[start:end], 0.0) + value
    best = sorted(sums.items(), key=lambda item: -abs(item[1]))[:most]
    return ", ".join(f"{shorten(word, 30)} {value:+.3f}" for word, value in best)


class _Rows:
    """The rows, what is left and the total, fitted to the width and the characters that a terminal has."""

    def __init__(self, explanation: Explanation, summary: Summary) -> None:
        self.explanation, self.summary = explanation, summary

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        from rich.text import Text

        table = _empty_table(self.explanation, self.summary)
        table.columns[2].width = _BAR if options.max_width >= _NARROW else 0

        def add(value: float, text: str, bar: Text | str = "", style: str = "") -> None:
            part = share(value, self.explanation, self.summary)
            table.add_row(f"{value:+.4f}", part, bar, Text(text, style=style))

        largest = max((abs(row.contribution) for row in self.summary.shown), default=0.0) or 1.0
        for row in self.summary.shown:
            bar = _bar(row.contribution / largest, blocks=not options.ascii_only)
            add(row.contribution, visible(shorten(row.name, 120)), bar if options.max_width >= _NARROW else "")
        for value, text in leftovers(self.explanation, self.summary):
            add(value, text, style="dim")
        yield table


def _empty_table(explanation: Explanation, summary: Summary) -> Table:
    """Return the table's head and its total."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False, show_footer=True, footer_style="bold")
    total = share(explanation.score, explanation, summary)
    table.add_column("contribution", f"{explanation.score:+.4f}", justify="right", no_wrap=True)
    table.add_column("share", total, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column(column_title(explanation), "score", overflow="fold")
    return table


def column_title(explanation: Explanation) -> str:
    """Say what the names of the rows are."""
    return "words" if is_pairs(explanation) or _is_words(explanation) else _other_rows(explanation)


def leftovers(explanation: Explanation, summary: Summary) -> list[tuple[float, str]]:
    """Return the lines below the rows that make them add up: the rows not shown, and the remainder."""
    lines = []
    if summary.hidden:
        lines.append((summary.hidden_sum, "sum of " + unit(explanation, summary.hidden).replace(" ", " more ", 1)))
    if not explanation.exact:
        lines.append((explanation.remainder, "remainder: what the rows leave out"))
    return lines


def share(value: float, explanation: Explanation, summary: Summary) -> str:
    """Write `value` as a share of the score, or a dash where shares would mislead."""
    return f"{value / explanation.score:.1%}" if summary.shares else "\u2013"


def _bar(part: float, *, blocks: bool) -> Text:
    """Return a bar as long as the row's size, in the colour of its sign; of # where blocks cannot be written."""
    from rich.text import Text

    whole, left = divmod(round(abs(part) * _BAR * 8), 8)
    line = "\u2588" * whole + ("", *"\u258f\u258e\u258d\u258c\u258b\u258a\u2589")[left]
    return Text(line if blocks else "#" * (whole + (left >= 4)), style=_FOR if part > 0 else _AGAINST)
