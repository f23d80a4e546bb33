"""Which text answers the question best, and why: `python examples/explain_match.py [MODEL]`."""

from __future__ import annotations

import sys
from pathlib import Path

import rich

import pellucid

QUESTION = "Why are home loans more expensive this year?"
TEXTS = [
    "The central bank raised interest rates, and mortgages cost more.",
    "The home team played its best match of the year.",
    "Expensive restaurants are opening near the river bank.",
]


def main() -> None:
    """Rank the texts, explain the best, compare it with the second, and save the explanation as a page."""
    model = pellucid.load(sys.argv[1] if len(sys.argv) > 1 else "static-en")
    scores = model.similarity(model.encode(QUESTION), model.encode(TEXTS))[0]
    best, second, *_ = sorted(range(len(TEXTS)), key=lambda number: -scores[number])

    why = model.explain(QUESTION, TEXTS[best])
    rich.print(why)
    rich.print(why - model.explain(QUESTION, TEXTS[second]))
    Path("why.html").write_text(why.to_html(), encoding="utf-8")
    rich.print("The explanation is in why.html.")


if __name__ == "__main__":
    main()
