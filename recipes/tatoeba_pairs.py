"""English paraphrases from Tatoeba: two English sentences that translate one foreign sentence.

    python -m recipes.tatoeba_pairs --parallel parallel/tatoeba --held-out sts --output tatoeba_pairs.tsv

Tatoeba's sentences (CC BY 2.0 FR, https://tatoeba.org, here by way of manythings.org/anki) are short and everyday. A
foreign sentence may leave open what English must say (German "Sie" is she, they and you), so that some pairs differ in
who is spoken of; that is the noise of this source. Sentences that occur in a set to be tested on are left out.
"""

from __future__ import annotations

import argparse
import csv
import lzma
import random
import unicodedata
from collections.abc import Collection, Iterable
from itertools import combinations
from pathlib import Path

Pair = tuple[str, str]

PER_GROUP = 6
"""Pairs of one foreign sentence at most: a few of them have dozens of translations."""

TEST_COLUMNS = ("sentence1", "sentence2")


def letters(text: str) -> str:
    """Return the letters and digits of a text in lower case: what is left when case and punctuation do not count."""
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())


def paraphrases(path: Path, held_out: Collection[str] = (), per_group: int = PER_GROUP, seed: int = 0) -> list[Pair]:
    """Return pairs of English sentences with a common translation.

    Args:
        path: a `.tsv.xz` file with a header and the columns English, foreign.
        held_out: sentences to leave out, as `letters` gives them.
        per_group: pairs of one foreign sentence at most; drawn where there are more.
        seed: of that draw.

    Returns:
        No pair twice, in whichever order; the two of a pair differ in letters or digits.
    """
    draw = random.Random(seed)
    pairs: list[Pair] = []
    for sentences in _by_translation(path, held_out).values():
        both = list(combinations(sentences, 2))
        pairs += both if len(both) <= per_group else draw.sample(both, per_group)
    return distinct(pairs)


def all_paraphrases(folder: Path, held_out: Collection[str] = (), seed: int = 0) -> list[Pair]:
    """Return the pairs of every `en-*.tsv.xz` of a folder, no pair twice, shuffled."""
    pairs = distinct(pair for path in sorted(folder.glob("en-*.tsv.xz")) for pair in paraphrases(path, held_out))
    random.Random(seed).shuffle(pairs)
    return pairs


def distinct(pairs: Iterable[Pair]) -> list[Pair]:
    """Return the pairs without repetitions, where case, punctuation and the order of the two do not count.

    The first of those that are alike is kept, in the place of the last.
    """
    return list({frozenset(map(letters, pair)): pair for pair in reversed(list(pairs))}.values())[::-1]


def _by_translation(path: Path, held_out: Collection[str]) -> dict[str, list[str]]:
    """Return, for each foreign sentence, its translations that differ from each other and are not held out."""
    groups: dict[str, dict[str, str]] = {}
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        next(file, None)
        for line in file:
            english, _, foreign = line.rstrip("\r\n").partition("\t")
            plain = letters(english)
            if plain and foreign.strip() and plain not in held_out:
                groups.setdefault(foreign.strip(), {}).setdefault(plain, english.strip())
    return {foreign: list(group.values()) for foreign, group in groups.items() if len(group) > 1}


def test_sentences(folder: Path) -> set[str]:
    """Return the sentences of all `.tsv` files under a folder that have the columns sentence1 and sentence2.

    They are as `letters` gives them.
    """
    found: set[str] = set()
    for path in sorted(folder.rglob("*.tsv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                found |= {letters(row[name]) for name in TEST_COLUMNS if row.get(name)}
    return found - {""}


def main() -> None:
    """Read the arguments and write the pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parallel", type=Path, required=True, help="folder of en-*.tsv.xz")
    parser.add_argument(
        "--held-out", type=Path, required=True, help="folder of test sets, .tsv with sentence1, sentence2"
    )
    parser.add_argument("--output", type=Path, required=True, help="one pair a line, a tab between the two")
    arguments = parser.parse_args()
    held_out = test_sentences(arguments.held_out)
    pairs = all_paraphrases(arguments.parallel, held_out)
    arguments.output.write_text("".join(f"{one}\t{two}\n" for one, two in pairs), encoding="utf-8")
    sentences = len({letters(text) for pair in pairs for text in pair})
    print(f"{arguments.output}: {len(pairs)} pairs of {sentences} sentences; {len(held_out)} test sentences held out")


if __name__ == "__main__":
    main()
