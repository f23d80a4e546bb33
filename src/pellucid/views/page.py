"""The HTML view of an explanation: one self-contained piece, no script, every text escaped.

Backgrounds are transparent or see-through tints and text keeps the colour of the page around it, so that the piece
reads on light and on dark. It follows the reader's system, and where a notebook or documentation theme says otherwise,
that.
Blue adds to the score, orange lowers it, a pair that colour-blind eyes tell apart; every number also has its sign.
"""

from __future__ import annotations

from html import escape

from pellucid.explanation import Explanation
from pellucid.text import well_formed
from pellucid.views.render import (
    WEAK,
    Summary,
    WordMatrix,
    column_title,
    decimals,
    leftovers,
    low_coverage,
    notes,
    pieces,
    share,
    shorten,
    strongest,
    summarise,
    text_label,
    title,
    unknown_note,
    word_matrix,
)

_LONGEST_TEXT = 20_000  # characters of a text that a page shows
_MATRIX_WORDS = 16  # a side; more do not fit a screen
_DEEPEST = 0.62  # opacity of the strongest tint; text on it keeps a contrast above 4.5 in both schemes
_CONTROLS = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\r"} | {
    code: 0xFFFD
    for code in (*range(0x7F, 0xA0), 0x202D, 0x202E)  # the last two turn the order of letters around
}

_LIGHT = "--for: 0 114 178; --against: 213 94 0; --line: rgb(0 0 0 / .22)"
_DARK = "--for: 56 150 220; --against: 230 130 30; --line: rgb(255 255 255 / .28)"
_LIGHT_THEMES = (
    '[data-jp-theme-light="true"]',
    ".vscode-light",
    '[data-theme="light"]',
    '[data-md-color-scheme="default"]',
)
_DARK_THEMES = (
    '[data-jp-theme-light="false"]',
    ".vscode-dark",
    "html[theme=dark]",
    '[data-theme="dark"]',
    '[data-md-color-scheme="slate"]',
)
STYLE = """
.pellucid { LIGHT; font: 14px/1.5 system-ui, sans-serif; max-width: 62em; background: transparent; }
@media (prefers-color-scheme: dark) { .pellucid { DARK; } }
:is(ON_LIGHT) .pellucid { LIGHT; }
:is(ON_DARK) .pellucid { DARK; }
.pellucid p { margin: .2em 0; }
.pellucid .head b { font-size: 1.5em; margin: 0 .4em; font-variant-numeric: tabular-nums; }
.pellucid .warning { font-weight: 600; border-left: 3px solid rgb(var(--against)); padding-left: .6em; }
.pellucid .dim { opacity: .72; font-size: .93em; }
.pellucid .text { margin: .8em 0; padding-left: .8em; border-left: 2px solid var(--line); }
.pellucid .text .own { white-space: pre-wrap; overflow-wrap: anywhere; max-height: 18em; overflow: auto;
  font-size: 1.1em; line-height: 1.8; }
.pellucid mark { color: inherit; border-radius: .2em; padding: .1em 0; background: transparent; }
.pellucid .for { background: rgb(var(--for) / var(--tint)) !important; }
.pellucid .against { background: rgb(var(--against) / var(--tint)) !important; }
.pellucid mark.for { border-bottom: 2px solid rgb(var(--for)); }
.pellucid mark.against { border-bottom: 2px dashed rgb(var(--against)); }
.pellucid .unknown { border-bottom: 2px dotted; opacity: .72; }
.pellucid .legend { font-size: .9em; }
.pellucid .scroll { overflow-x: auto; }
.pellucid table { border-collapse: collapse; margin: 1em 0; border: 0; font-size: 1em; color: inherit; }
.pellucid tr, .pellucid th, .pellucid td { background: transparent !important; color: inherit; border: 0; }
.pellucid th { font-weight: 600; }
.pellucid caption { text-align: start; white-space: nowrap; caption-side: top; color: inherit; padding: 0 0 .3em; }
.pellucid .rows td, .pellucid .rows th { padding: .1em .7em; text-align: right; font-variant-numeric: tabular-nums; }
.pellucid .rows .name { text-align: start; overflow-wrap: anywhere; white-space: normal; }
.pellucid .rows thead th { border-bottom: 1px solid var(--line); }
.pellucid .rows tfoot td { border-top: 1px solid var(--line); font-weight: 600; }
.pellucid .bar { position: relative; width: 11em; min-width: 6em; }
.pellucid .bar i { position: absolute; top: 50%; height: .85em; transform: translateY(-50%);
  border-radius: 2px; --tint: 1; }
.pellucid .grid td { width: 3em; min-width: 3em; height: 2em; padding: .1em; text-align: center; font-size: .86em;
  font-variant-numeric: tabular-nums; border: 1px solid var(--line); }
.pellucid .grid th { font-weight: 400; padding: .2em .5em; text-align: right; white-space: nowrap; }
.pellucid .grid thead th { writing-mode: vertical-rl; transform: rotate(180deg); text-align: left; }
.pellucid .grid thead td { border: 0; }
.pellucid .grid .sum { border: 0; font-weight: 600; opacity: .85; }
""".strip()
STYLE = STYLE.replace("ON_LIGHT", ", ".join(_LIGHT_THEMES)).replace("ON_DARK", ", ".join(_DARK_THEMES))
STYLE = STYLE.replace("LIGHT;", f"{_LIGHT};").replace("DARK;", f"{_DARK};")

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
</head>
<body>
{body}
</body>
</html>
"""


def page(explanation: Explanation, *, top_k: int, fragment: bool) -> str:
    """Return the explanation as a page, or as a piece of one."""
    scale = strongest(explanation)
    parts = [f'<div class="pellucid"><style>{STYLE}</style>', _heading(explanation)]
    parts += [_text(explanation, number, scale) for number in range(1, len(explanation.texts) + 1)]
    parts.append(_legend(explanation))
    if explanation.rows:
        parts.append(_table(explanation, summarise(explanation, top_k)))
    matrix = word_matrix(explanation, _MATRIX_WORDS)
    if matrix is not None:
        parts.append(_grid(matrix))
    body = "\n".join([*parts, "</div>"])
    if fragment:
        return body
    return PAGE.format(title=f"{title(explanation)} {explanation.score:.4f}", body=body)


def safe(text: str) -> str:
    """Escape `text` for HTML, after making control characters visible."""
    return escape(well_formed(text).translate(_CONTROLS))


def _sign(value: float) -> str:
    return "for" if value > 0 else "against" if value < 0 else ""


def _tint(value: float, scale: float) -> str:
    """Return the class and tint of `value`, as attributes."""
    return f'class="{_sign(value)}" style="--tint:{min(abs(value) / scale, 1.0) * _DEEPEST:.2f}"'


def _heading(explanation: Explanation) -> str:
    head = f'<p class="head">{title(explanation)}<b>{explanation.score:.4f}</b>'
    head += f'<span class="dim">{safe(explanation.family)} model</span></p>'
    head += "".join(f'<p class="warning">{safe(said)}</p>' for said in low_coverage(explanation))
    return head + "".join(f'<p class="dim">{safe(note)}</p>' for note in notes(explanation))


def _text(explanation: Explanation, number: int, scale: float) -> str:
    """Return a text as the user wrote it, its words tinted by what they add."""
    own = "".join(_piece(*piece, scale) for piece in pieces(explanation, number, _LONGEST_TEXT))
    left = len(explanation.texts[number - 1]) - _LONGEST_TEXT
    if left > 0:
        own += f'<span class="dim"> \u2026 {left:,} characters more</span>'
    label = text_label(explanation, number)
    unknown = unknown_note(explanation, number)
    said = f'<p class="dim" dir="auto">{safe(unknown)}</p>' if unknown else ""
    return f'<div class="text"><p class="dim">{label}</p><p class="own" dir="auto">{own}</p>{said}</div>'


def _legend(explanation: Explanation) -> str:
    """Say what the tints mean, where words are tinted."""
    if not any(explanation.word_contributions(number) for number in range(1, len(explanation.texts) + 1)):
        return ""
    return (
        '<p class="legend"><mark class="for" style="--tint:.4">adds to the score</mark>&ensp;'
        '<mark class="against" style="--tint:.4">lowers it</mark>&ensp;'
        '<span class="unknown">not in the vocabulary</span></p>'
    )


def _piece(text: str, kind: str, value: float, scale: float) -> str:
    if kind == "unknown":
        return f'<span class="unknown" title="not in the vocabulary">{safe(text)}</span>'
    if kind == "plain":
        return safe(text)
    if abs(value) < WEAK * scale:
        return f'<span title="{value:+.4f}">{safe(text)}</span>'
    return f'<mark {_tint(value, scale)} title="{value:+.4f}">{safe(text)}</mark>'


def _table(explanation: Explanation, summary: Summary) -> str:
    """Return the largest rows, what is left, and the score they add up to."""
    low = min((row.contribution for row in summary.shown), default=0.0)
    high = max((row.contribution for row in summary.shown), default=0.0)
    zero, extent = max(-low, 0.0), (max(high, 0.0) - min(low, 0.0)) or 1.0

    def line(value: float, name: str, bar: str = "", cell: str = 'class="name"') -> str:
        part = share(value, explanation, summary)
        return f'<tr><td>{value:+.4f}</td><td>{part}</td><td class="bar">{bar}</td><td {cell}>{name}</td></tr>'

    body = []
    for row in summary.shown:
        left = (zero + min(row.contribution, 0.0)) / extent
        place = f"left:{left:.1%};width:{abs(row.contribution) / extent:.1%}"
        bar = f'<i class="{_sign(row.contribution)}" style="{place}"></i>'
        body.append(line(row.contribution, f"<bdi>{safe(shorten(row.name, 200))}</bdi>", bar))
    body += [line(value, text, cell='class="name dim"') for value, text in leftovers(explanation, summary)]
    head = f'<th>contribution</th><th>share</th><th></th><th class="name">{column_title(explanation)}</th>'
    foot = line(explanation.score, "score")
    return (
        f'<div class="scroll"><table class="rows"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody><tfoot>{foot}</tfoot></table></div>"
    )


def _grid(matrix: WordMatrix) -> str:
    """Return the word pairs as a heat map: words of text 1 down, words of the other text across, sums at the ends."""
    lines, columns = (len(matrix.words1) - bool(matrix.others1), len(matrix.words2) - bool(matrix.others2))
    scale = float(abs(matrix.values[:lines, :columns]).max(initial=0.0)) or 1.0
    places = decimals(scale)
    across = "".join(f'<th scope="col">{_word(word)}</th>' for word in matrix.words2)
    body = []
    for i, word in enumerate(matrix.words1):
        # A sum of many words is no pair: it has its number, but no tint that would drown the pairs.
        cells = [
            f"<td {_tint(value, scale) if i < lines and j < columns else ''}>{_number(value, places)}</td>"
            for j, value in enumerate(matrix.values[i].tolist())
        ]
        total = f'<td class="sum">{_sum(matrix.values[i].sum(), places)}</td>'
        body.append(f'<tr><th scope="row">{_word(word)}</th>{"".join(cells)}{total}</tr>')
    sums = "".join(f'<td class="sum">{_sum(value, places)}</td>' for value in matrix.values.sum(axis=0).tolist())
    foot = f'<tr><th scope="row">sum</th>{sums}<td class="sum">{_sum(matrix.values.sum(), places)}</td></tr>'
    return (
        '<div class="scroll"><table class="grid"><caption class="dim">words of text 1 down, '
        "of the other text across</caption>"
        f'<thead><tr><td></td>{across}<th scope="col">sum</th></tr></thead><tbody>{"".join(body)}{foot}</tbody>'
        "</table></div>"
    )


def _word(word: str) -> str:
    return f"<bdi>{safe(shorten(word, 24))}</bdi>"


def _number(value: float, places: int) -> str:
    """Write a pair's contribution; nothing where it would be +0.00."""
    return f"{value:+.{places}f}" if abs(value) >= 0.5 * 10**-places else ""


def _sum(value: float, places: int) -> str:
    return _number(value, places) or "0"
