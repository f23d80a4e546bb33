"""How far the lines of explanations are earned: what happens to a score without the words of a line.

    python -m benchmarks.sentences --data ../shared/data [--model static-en] [--pairs 100]

Prints markdown, for pairs of three STS sets with a grade of 2.5 or more: lines in the mean, the share of the score that
they hold in the median, how often the first line is the one whose words lower the score most when they are left out of
both texts, and of lines that claim 40 % of the score or more, those whose words lower it by less than 10 %. Below them
stands a floor: the same for lines of equal words, weighted by their length alone.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pellucid
from pellucid.text.words import split_words

SETS = ("SICK-R", "STS13", "STS15")


def read_pairs(data: Path, name: str, count: int) -> list[tuple[str, str]]:
    """Return `count` pairs of a set, drawn with a fixed seed, of five words or more."""
    rows = []
    for file in sorted((data / "sts" / name).glob("*.tsv")):
        header, *lines = (line.split("\t") for line in file.read_text(encoding="utf-8").splitlines())
        score = header.index("score")
        rows += [(cells[0], cells[1]) for cells in lines if float(cells[score]) >= 2.5 and len(cells[1].split()) > 4]
    return random.Random(0).sample(sorted(set(rows)), count)


def without(text: str, spans: tuple[tuple[int, int], ...]) -> str:
    """Return a text without what stands at some places."""
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + text[end:]
    return text


def equal_words(text1: str, text2: str) -> list[tuple[float, Any, Any]]:
    """Return the floor: the words that both texts have, the longest first."""
    first, second = (
        {text[word.start : word.end].lower(): (word.start, word.end) for word in split_words(text)}
        for text in (text1, text2)
    )
    return [(len(word), (first[word],), (second[word],)) for word in sorted(first.keys() & second, key=len)[::-1]]


def measured(model: Any, pairs: list[tuple[str, str]], *, floor: bool) -> Iterator[list[tuple[float, float]]]:
    """Yield of each pair the share of the score that each line claims, and the share by which it falls."""
    for text1, text2 in pairs:
        why = model.explain(text1, text2)
        lines = [(g.share, g.spans1, g.spans2) for g in why.groups(None) if g.kind == "phrase" and g.share > 0]
        lines = equal_words(text1, text2) if floor else lines
        shorter = [(without(text1, spans1), without(text2, spans2)) for _, spans1, spans2 in lines]
        vectors = [model.encode([text for pair in shorter for text in pair])] if lines else []
        scores = [
            float(model.similarity(vectors[0][[2 * n]], vectors[0][[2 * n + 1]])[0, 0]) for n in range(len(lines))
        ]
        yield [(share, 1 - score / why.score) for (share, *_), score in zip(lines, scores)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--model", default="static-en")
    parser.add_argument("--pairs", type=int, default=100, help="of each set")
    arguments = parser.parse_args()
    model = pellucid.load(arguments.model)
    pairs = [pair for name in SETS for pair in read_pairs(arguments.data, name, arguments.pairs)]
    print("| | lines | hold | first is largest | claims of 40 % | of these false |\n|---|---|---|---|---|---|")
    for name, floor in ((arguments.model, False), ("equal words, the longest first", True)):
        found = [lines for lines in measured(model, pairs, floor=floor) if lines]
        first = [max(falls := [fall for _, fall in lines]) == falls[0] for lines in found]
        claims = [fall for lines in found for share, fall in lines if share >= 0.4 and not floor]
        held = statistics.median(sum(share for share, _ in lines) for lines in found)
        print(
            f"| {name} | {statistics.mean(map(len, found)):.1f} | {'' if floor else f'{held:.0%}'} "
            f"| {statistics.mean(first):.0%} of {len(first)} | {'' if floor else len(claims)} "
            f"| {'' if floor else sum(fall < 0.1 for fall in claims)} |"
        )


if __name__ == "__main__":
    main()
