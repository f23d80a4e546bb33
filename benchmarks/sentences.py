"""How far the lines of explanations are earned: what happens to a score without the words of a line.

    python -m benchmarks.sentences --data ../shared/data [--model static-en] [--pairs 100]

Prints markdown, for pairs of three STS sets with a grade of 2.5 or more, of lines as the account estimates them and as
`explain` checks them: lines in the mean, and how often the first one is that whose words lower the score most when they
are left out of both texts, or of text 2 alone; the rank correlation of the number that orders the lines with the fall;
and of lines that claim 40 % of the score or more, those whose words lower it by less than 10 % without the sentence
saying so. A checked line is in its place because of its fall, so that its first and third figure follow. The floor is
equal words, the longest first.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from benchmarks.faithfulness import model_by_name
from papers.kit import make_parser
from pellucid.explain.checks import without
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


def equal_words(text1: str, text2: str) -> list[tuple[float, Any, Any]]:
    """Return the floor: the words that both texts have, the longest first."""
    first, second = (
        {text[word.start : word.end].lower(): (word.start, word.end) for word in split_words(text)}
        for text in (text1, text2)
    )
    return [
        (len(word), (first[word],), (second[word],))
        for word in sorted(first.keys() & second, key=lambda word: (len(word), word))[::-1]
    ]


class Line(NamedTuple):
    """A line of an explanation, or of the floor."""

    number: float  # what it is ordered by
    share: float  # of the score, as claimed
    fall: float  # share by which the score falls without its words
    fall_of_second: float  # the same where they are left out of text 2 alone
    is_checked: bool = False


def measured(model: Any, pairs: list[tuple[str, str]], kind: str) -> Iterator[list[Line]]:
    """Yield the lines of each pair in the order in which they are shown."""
    for text1, text2 in pairs:
        why = model.explain(text1, text2)
        if kind == "estimated":
            why = replace(why, is_checked=False)
        lines = [g for g in why.groups() if g.kind == "phrase" and g.share > 0]
        places = [(g.spans1, g.spans2) for g in lines]
        numbers = [g.contribution if g.without is None else why.score - g.without for g in lines]
        if kind == "floor":
            numbers, places = zip(*[(n, (s1, s2)) for n, s1, s2 in equal_words(text1, text2)] or [((), ())])
        if not places or not places[0]:
            continue
        texts1 = [without(text1, spans1) for spans1, _ in places]
        texts2 = [without(text2, spans2) for _, spans2 in places]
        both = model.similarity_pairwise(model.encode(texts1), model.encode(texts2))
        second = model.similarity(model.encode([text1]), model.encode(texts2))[0]
        falls = zip(1 - np.asarray(both) / why.score, 1 - np.asarray(second) / why.score)
        shares = [0.0] * len(places) if kind == "floor" else [g.share for g in lines]
        yield [Line(n, share, *map(float, fall), kind == "checked") for n, share, fall in zip(numbers, shares, falls)]


def main() -> None:
    """Print the table."""
    parser = make_parser(__doc__, data="sts/ and retrieval/")
    parser.add_argument("--model", default="static-en")
    parser.add_argument("--pairs", type=int, default=100, help="of each set")
    arguments = parser.parse_args()
    model = model_by_name(arguments.model)
    pairs = [pair for name in SETS for pair in read_pairs(arguments.data, name, arguments.pairs)]
    print("| | lines | first is largest | of text 2 alone | rank correlation | claims of 40 % | false, unsaid |")
    print("|---|---|---|---|---|---|---|")
    for kind in ("checked", "estimated", "floor"):
        pairs_lines = list(measured(model, pairs, kind))
        several = [lines for lines in pairs_lines if len(lines) > 1]
        first = statistics.mean(lines[0].fall == max(line.fall for line in lines) for lines in pairs_lines)
        second = statistics.mean(
            lines[0].fall_of_second == max(line.fall_of_second for line in lines) for lines in pairs_lines
        )
        ranks = [stats.spearmanr([x.number for x in lines], [x.fall for x in lines]).statistic for lines in several]
        claims = [line for lines in pairs_lines for line in lines if line.share >= 0.4]
        false = sum(line.fall < 0.1 and not line.is_checked for line in claims)
        print(
            f"| {arguments.model}, {kind} | {statistics.mean(map(len, pairs_lines)):.1f} | {first:.0%} | {second:.0%} "
            f"| {np.nanmean(ranks):.2f} | {len(claims)} | {false} |"
        )


if __name__ == "__main__":
    main()
