"""How far the percentiles of scores hold: how many unrelated pairs of fresh texts are above a percentile.

    python -m benchmarks.percentiles --data ../shared/data [--model static-en] [--texts 100]

Prints markdown: the share of pairs of texts of different collections that score higher than 95 % of unrelated pairs,
which 5 % should, by the number of words of the shorter text; by how much such shares differ from what is claimed, in
the mean of the lengths and of the percentiles 50, 75, 90, 95 and 99; the same share of pairs of one collection, which
often share a subject; and of pairs that are related, how many are called weak. The floor is one background for all
lengths, the ceiling the scores of other pairs of the same texts. With static-multi it says, too, of how many pairs of
German sentences nothing is said, and how many would be above the 95th percentile of English ones.
"""

from __future__ import annotations

import json
import lzma
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faithfulness import model_by_name
from papers.kit import make_parser
from pellucid.core.background import MAX_WORDS
from pellucid.evaluation.tasks import read_table
from pellucid.text.words import split_words

PERCENTILES = (50, 75, 90, 95, 99)
STS = (("12", "MSRpar"), ("14", "deft-forum"), ("14", "tweet-news"), ("15", "headlines"), ("15", "images"))
N_PAIRS = 8_000  # of different collections; half of them are the ceiling
N_CUT = 4  # every fourth text has at most four words

Pair = tuple[str, str]
Scores = Callable[[Pair], Any]


def json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file, which may be compressed."""
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def sts_pairs(data: Path, year: str, subset: str = "", grade: float = 0) -> list[Pair]:
    """Return the pairs of a year, or of a subset of it, of a grade or more."""
    table = read_table(data / "sts" / f"STS{year}" / "test.tsv", ["sentence1", "sentence2", "score", "subset"])
    rows = zip(*table.values())
    return [(first, second) for first, second, cell, of in rows if subset in ("", of) and cell and float(cell) >= grade]


def read_texts(data: Path, count: int) -> list[list[str]]:
    """Return `count` texts of each collection: sentences, titles, questions, answers, abstracts; some cut."""
    rng, wikiqa = random.Random(0), json_lines(data / "reranking" / "wikiqa" / "test.jsonl")
    scifact = json_lines(data / "retrieval" / "scifact" / "corpus.jsonl.xz")
    collections: list[Iterable[str]] = [
        *([text for pair in sts_pairs(data, *of) for text in pair] for of in STS),
        read_table(data / "sts" / "SICK-R" / "test.tsv", ["sentence1"])["sentence1"],
        *(
            read_table(data / "clustering" / name / "test.tsv", ["text"])["text"]
            for name in ("stackoverflow_titles", "search_snippets")
        ),
        [row["query"] for row in wikiqa],
        [text for row in wikiqa for text in row["negative"]],
        [row["title"] for row in scifact],
        [row["text"] for row in scifact],
        *(
            [row["text"] for row in json_lines(data / "retrieval" / name)]
            for name in ("cranfield/corpus.jsonl", "cisi/corpus.jsonl", "npl/corpus.jsonl.xz")
        ),
    ]
    drawn = [rng.sample(sorted({text for text in texts if split_words(text)}), count) for texts in collections]
    return [
        [text if n % N_CUT else " ".join(text.split()[: rng.randint(1, 4)]) for n, text in enumerate(texts)]
        for texts in drawn
    ]


def related_pairs(data: Path, count: int) -> list[list[Pair]]:
    """Return pairs of STS sets of grade 4 or more, questions with answers, claims with abstracts that judge them."""
    folder, rng = data / "retrieval" / "scifact", random.Random(0)
    abstracts = {row["_id"]: row["text"] for row in json_lines(folder / "corpus.jsonl.xz")}
    claims = {row["_id"]: row["text"] for row in json_lines(folder / "queries.jsonl")}
    judged = read_table(folder / "qrels" / "test.tsv", ["query-id", "corpus-id"])
    wikiqa = json_lines(data / "reranking" / "wikiqa" / "test.jsonl")
    sets = [
        [pair for year in ("12", "13", "14", "15") for pair in sts_pairs(data, year, grade=4)],
        [(row["query"], row["positive"][0]) for row in wikiqa if row["positive"]],
        [(claims[claim], abstracts[abstract]) for claim, abstract in zip(*judged.values())],
    ]
    return [rng.sample(sorted(set(pairs)), count) for pairs in sets]


def length_class(pair: Pair) -> int:
    """Return the class of the shorter text."""
    return int(np.searchsorted(MAX_WORDS, min(len(split_words(text)) for text in pair)))


def scores_of(model: Any, pairs: list[Pair]) -> Any:
    """Return the scores of pairs."""
    first, second = zip(*pairs)
    return np.asarray(model.similarity_pairwise(model.encode(list(first)), model.encode(list(second))))


def percentiles(model: Any, pairs: list[Pair], background: Scores) -> Any:
    """Return the percentile of each pair of texts that has a background."""
    known = [(others, s) for pair, s in zip(pairs, scores_of(model, pairs)) if len(others := background(pair))]
    return np.array([100 * np.searchsorted(others, score) / (len(others) + 1) for others, score in known])


class Cached:
    """A model that encodes each text once."""

    def __init__(self, model: Any, texts: Iterable[str]) -> None:
        """Take the model, and all texts that are asked for."""
        distinct = list(dict.fromkeys(texts))
        self.similarity_pairwise = model.similarity_pairwise
        self._rows = dict(zip(distinct, model.encode(distinct)))

    def encode(self, texts: list[str]) -> Any:
        """Return their rows."""
        return np.stack([self._rows[text] for text in texts])


def main() -> None:
    """Print the table."""
    parser = make_parser(__doc__, data="sts/ and retrieval/")
    parser.add_argument("--model", default="static-en")
    parser.add_argument("--texts", type=int, default=100, help="of each collection")
    arguments = parser.parse_args()
    model = model_by_name(arguments.model)
    collections, related = read_texts(arguments.data, arguments.texts), related_pairs(arguments.data, arguments.texts)
    rng = random.Random(0)
    draws = (rng.sample(collections, 2) for _ in range(N_PAIRS))
    different = [(rng.choice(first), rng.choice(second)) for first, second in draws]
    same: list[Pair] = [(a, b) for texts in collections for a, b in zip(texts, [*texts[7:], *texts[:7]])]
    cached = Cached(model, [t for pairs in (different, same, *related) for pair in pairs for t in pair])
    tested, others = different[: N_PAIRS // 2], different[N_PAIRS // 2 :]
    by_class = {n: [pair for pair in others if length_class(pair) == n] for n in range(len(MAX_WORDS) + 1)}
    ceiling = {n: np.sort(scores_of(cached, pairs)) for n, pairs in by_class.items()}
    sentence = "These are six words, no more"
    backgrounds: dict[str, Scores] = {
        "of such lengths": lambda pair: model.background(*pair),
        "floor: one for all lengths": lambda _: model.background(sentence, sentence),
        "ceiling: other pairs of the same texts": lambda pair: ceiling[length_class(pair)],
    }
    print("| | to 4 words | to 15 | to 40 | more | error | one collection | STS | WikiQA | SciFact |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, background in backgrounds.items():
        of_class = [
            percentiles(cached, [pair for pair in tested if length_class(pair) == n], background) for n in by_class
        ]
        errors = [abs((values >= p).mean() - (1 - p / 100)) for values in of_class for p in PERCENTILES]
        cells = [f"{(values >= 95).mean():.1%}" for values in of_class] + [f"{np.mean(errors):.3f}"]
        cells.append(f"{(percentiles(cached, same, background) >= 95).mean():.0%}")
        cells += [f"{(percentiles(cached, pairs, background) < 95).mean():.0%}" for pairs in related]
        print(f"| {arguments.model}, {name} | {' | '.join(cells)} |")
    if arguments.model == "static-multi":
        path = arguments.data / "crosslingual" / "bucc2018_sample" / "de-en.de.tsv.xz"
        with lzma.open(path, "rt", encoding="utf-8") as file:
            texts = rng.sample([line.rstrip("\n").split("\t")[1] for line in file], 2_000)
        german = list(zip(texts[::2], texts[1::2]))
        silent = np.mean([not len(model.background(*pair)) for pair in german])
        in_english = percentiles(model, german, lambda pair: model.background(*(re.sub(r"\w+", "w", t) for t in pair)))
        print(
            f"\nOf {silent:.1%} of German pairs nothing is said; {(in_english >= 95).mean():.0%} would be above 95 %."
        )


if __name__ == "__main__":
    main()
