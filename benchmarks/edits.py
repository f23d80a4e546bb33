"""How often an explanation names the one word in which two texts were made to differ.

    python -m benchmarks.edits --data ../shared/data [--model static-en] [--pairs 60]

Prints markdown. One word of a text of five STS sets is exchanged: an antonym, a thing, a number, a price, a verdict, a
date or a name. *Edited* compares the text with itself, *paraphrase* with the other text of its pair (a grade of 3.5 or
more, which has the word, too). Counted are pairs in which the sentence of what keeps the score from 1, or the line of
numbers and names that differ, names the word. The floor is the first difference of the two texts' words, of no model.
"""

from __future__ import annotations

import random
import re
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from benchmarks.faithfulness import model_by_name
from papers.kit import make_parser
from pellucid.explain.summary import differences

SETS = ("SICK-R", "STS12", "STS13", "STS14", "STS15")
WORDS = {  # pairs with a stroke change to each other, others to any word of the row
    "antonym": "young/old big/small large/little open/closed black/white up/down inside/outside fast/slow happy/sad "
    "high/low long/short empty/full hot/cold clean/dirty rise/fall male/female left/right early/late first/last "
    "day/night",
    "thing": "dog cat horse bird monkey guitar piano flute drum bike motorcycle car bus boat train ball beach egg",
    "number": "two three four five six seven eight nine ten twelve 2 3 4 5 6 7 8 9 10 11 12 15 20 25 30 40 50 100 200",
    "verdict": "approved/rejected guilty/innocent won/lost passed/failed accepted/refused confirmed/denied wins/loses "
    "supports/opposes agreed/refused allowed/banned released/arrested",
    "date": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "name": "China Russia Iran Syria Iraq Egypt Israel India Pakistan France Germany Britain Japan Ukraine Turkey",
}


class Edit(NamedTuple):
    """Two texts that differ in a word that was exchanged."""

    text1: str
    text2: str
    word: str
    other: str


def exchanged(kind: str, word: str, rng: random.Random) -> str | None:
    """Return what a word is exchanged for; None where it is of another kind."""
    rows = WORDS[kind].split()
    for row in rows:
        if "/" in row and word in row.split("/"):
            return row.replace(word, "", 1).strip("/")
    others = [row for row in rows if row != word and "/" not in row and row.isdigit() == word.isdigit()]
    return rng.choice(others) if word in rows and others else None


def edits(data: Path, count: int, *, paraphrase: bool) -> dict[str, list[Edit]]:
    """Return up to `count` edits of each kind, drawn with a fixed seed."""
    rows, rng = set[tuple[str, str, float]](), random.Random(0)
    for file in (file for name in SETS for file in sorted((data / "sts" / name).glob("*.tsv"))):
        header, *lines = (line.split("\t") for line in file.read_text(encoding="utf-8").splitlines())
        rows |= {(cells[0], cells[1], float(cells[header.index("score")])) for cells in lines}
    found: dict[str, list[Edit]] = {kind: [] for kind in WORDS}
    for first, second, grade in rng.sample(sorted(rows), len(rows)):
        if len(first.split()) < 5 or (paraphrase and (grade < 3.5 or first.lower() == second.lower())):
            continue
        text = second if paraphrase else first
        for kind, word in ((kind, word) for word in re.findall(r"\w+", text) for kind in WORDS):
            other = exchanged(kind, word, rng) if text.split().count(word) == 1 and word in first.split() else None
            if other and other not in first and other not in second and len(found[kind]) < count:
                found[kind].append(Edit(first, re.sub(rf"\b{word}\b", other, text), word, other))
                break
    return found


def is_named(edit: Edit, words: str) -> bool:
    """Whether some words hold the exchanged one."""
    return not {edit.word.lower(), edit.other.lower()}.isdisjoint(re.findall(r"\w+", words.lower()))


def first_difference(edit: Edit) -> str:
    """Return the floor: the words of the first place in which the two texts differ."""
    words = [re.findall(r"\w+", text) for text in edit[:2]]
    codes = SequenceMatcher(None, words[0], words[1], autojunk=False).get_opcodes()
    a, b, c, d = next(code[1:] for code in codes if code[0] != "equal")
    return " ".join(words[0][a:b] + words[1][c:d])


def main() -> None:
    """Print the table."""
    parser = make_parser(__doc__, data="sts/ and retrieval/")
    parser.add_argument("--model", default="static-en")
    parser.add_argument("--pairs", type=int, default=60, help="of each kind, at most")
    arguments = parser.parse_args()
    model = model_by_name(arguments.model)
    print("| | pairs | named | by the sentence | by the line of differences | floor |\n|---|---|---|---|---|---|")
    for paraphrase in (False, True):
        for kind, of_kind in edits(arguments.data, arguments.pairs, paraphrase=paraphrase).items():
            shares = [0, 0, 0, 0]
            for edit in of_kind:
                summary = model.explain(edit.text1, edit.text2).summary()
                sentence = re.search(r"Below 1 \w+ because (.*?) \(\d", summary)
                lines = [line for line, _ in differences(edit[:2], ("text 1", "text 2"))]
                named = sentence is not None and is_named(edit, sentence[1]), any(is_named(edit, x) for x in lines)
                for n, is_one in enumerate((any(named), *named, is_named(edit, first_difference(edit)))):
                    shares[n] += is_one
            what = f"{'paraphrase' if paraphrase else 'edited'}, {kind}"
            print(f"| {what} | {len(of_kind)} | {' | '.join(f'{n / max(1, len(of_kind)):.0%}' for n in shares)} |")


if __name__ == "__main__":
    main()
