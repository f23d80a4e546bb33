"""Explanations: rows that add up to a score, groups of phrases and a summary made of them, and their views."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.explain.explanation import Explanation as Explanation
    from pellucid.explain.groups import Group as Group
    from pellucid.explain.rows import Row as Row
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "pellucid.explain.explanation": "Explanation",
            "pellucid.explain.groups": "Group",
            "pellucid.explain.rows": "Row",
        },
    )
