"""No page says a verdict of its own: each stands behind figures of which a script's rule made it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from papers import kit
from papers.kit import Interval, Verdict

ROOT = kit.PAPERS.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("benchmarks/*.md"))]
PAGES += [*sorted(ROOT.glob("recipes/*.md")), *sorted(ROOT.glob("src/pellucid/bundled/*/README.md"))]

NUMBER = r"[-+]?\d+(?:\.\d+)?"
ENDS = rf"\(({NUMBER}) to ({NUMBER})\)"
WORD = re.compile(
    r"\b(undecided|do(?:es)? not hold)\b"
    r"|\*\*(holds)\*\*"
    r"|[,:;] (holds)(?=\*?\*?(?:[.,;:)|\n]| in | on | for | at ))"
)
"""A verdict: "holds" only where it is no verb with an object."""

FIGURE = re.compile(rf"{ENDS}([^()|]{{0,60}}?[,:;|] \*{{0,2}})(undecided|unchanged|holds|does not hold)\b")
QUOTED = re.compile(r'"[\w ]{0,40}"|`[^`]*`')
BLOCK = re.compile(r"<!-- ((?:papers|benchmarks)/\S+\.py[^>]*?) -->.*?<!-- end of \1 -->", re.DOTALL)
WHOLE = re.compile(r"# [^\n]*\n\nWritten by `benchmarks/\w+\.py`.*", re.DOTALL)
"""A page all of which a script of benchmarks writes."""

PLACEHOLDER = re.compile(r"\{\{.*?\}\}")


def written_by_scripts() -> str:
    """Return all that scripts wrote: their results, their pages, and their blocks of other pages."""
    stored = [*sorted(kit.PAPERS.rglob("results/*.json")), *sorted(ROOT.glob("benchmarks/results/*.json"))]
    results = "\n".join(path.read_text(encoding="utf-8") for path in stored)
    return "\n".join(
        [
            results.replace('", "', " | "),
            *(m[0] for page in PAGES for part in (WHOLE, BLOCK) for m in part.finditer(read(page))),
        ]
    )


def read(path: Path) -> str:
    """Return a page."""
    return path.read_text(encoding="utf-8")


def by_hand(text: str) -> str:
    """Return what a person wrote of a page and says in his own words: no blocks, placeholders and quotations."""
    for left_out in (WHOLE, BLOCK, PLACEHOLDER, QUOTED):
        text = left_out.sub(" ", text)
    return text


def verdicts(text: str) -> list[str]:
    """Return the verdicts in a text."""
    return [next(filter(None, match.groups())) for match in WORD.finditer(text)]


def figures_with_verdicts(text: str) -> set[tuple[str, str, str]]:
    """Return both ends of each interval that a verdict follows, and the verdict."""
    return {(low, high, word) for low, high, _, word in FIGURE.findall(text)}


@pytest.mark.parametrize("template", kit.templates(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_template_leaves_verdicts_to_scripts(template):
    assert not verdicts(by_hand(read(template))), "use {{script.figure[row; verdict]}}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_verdict_on_another_page_quotes_a_scripts(page):
    text = by_hand(read(page))
    made = figures_with_verdicts(written_by_scripts())
    quoted = [figure for figure in FIGURE.finditer(text) if figure.group(1, 2, 4) in made]
    for figure in reversed(quoted):
        text = text[: figure.start()] + text[figure.end() :]
    assert not verdicts(text), "a verdict stands behind the interval that a script printed it with"


def test_the_words_that_are_verdicts_are_told_from_others():
    said = "Undecided? It **holds**; it is undecided. One, +1.0 (+0.1 to +2.0): holds. This does not hold in German."
    assert verdicts(said) == ["holds", "undecided", "holds", "does not hold"]
    assert not verdicts("A batch holds pairs, and the same holds for rows. The column holds numbers.")
    assert not verdicts(by_hand('the words "holds", "undecided" and `does not hold`, {{a.b[c; verdict]}}'))
    assert figures_with_verdicts("| +0.2 (-0.1 to +0.5) | undecided |") == {("-0.1", "+0.5", "undecided")}


def test_printed_verdicts_are_what_the_rule_makes_of_the_printed_figures():
    difference = re.compile(r"([-+]\d+\.\d) \(([-+]\d+\.\d) to ([-+]\d+\.\d)\), \*{0,2}([a-z ]+?)\*{0,2}\"")
    found = [m for path in sorted(kit.PAPERS.rglob("results/*.json")) for m in difference.findall(read(path))]
    assert len(found) > 200
    for value, low, high, word in found:
        made = Interval(float(value), float(low), float(high)).difference_verdict()
        is_open = float(low) == 0 or float(high) == 0  # a printed 0.0 may be on either side
        few_seeds = word == Verdict.UNDECIDED.value  # which the figures do not show
        assert is_open or few_seeds or word == made.value, (value, low, high, word)
