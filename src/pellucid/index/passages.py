"""Where a long text is cut into passages."""

from __future__ import annotations

import re

_BREAKS = [re.compile(p) for p in (r"\n\s*\n", r"\n", r"[.!?\u2026]['\")\]]*\s+|[\u3002\uff01\uff1f]", r"\s+")]


def passage_ends(text: str, limit: int) -> tuple[int, ...]:
    """Return where each passage of `text` ends, in characters; passages are as equal as their breaks allow.

    Args:
        text: any text.
        limit: the most characters of a passage.

    >>> passage_ends("One. Two. Three. Four.", 12)
    (10, 22)
    """
    ends: list[int] = []
    start = 0
    while len(text) - start > limit:
        left = -(-(len(text) - start) // limit)  # passages that the rest needs
        wish = (len(text) - start) // left
        start = _break_near(text, start + wish, start + wish // 2, start + limit)
        ends.append(start)
    return (*ends, len(text))


def _break_near(text: str, wish: int, first: int, last: int) -> int:
    """Return the best place for a cut near `wish`: after a paragraph, else after a line, a sentence or a word."""
    reach = (last - first) // 4
    for pattern in _BREAKS:
        found = [match.end() for match in pattern.finditer(text, first, last) if abs(match.end() - wish) <= reach]
        if found:
            return min(found, key=lambda end: abs(end - wish))
    return wish
