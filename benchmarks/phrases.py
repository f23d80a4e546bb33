"""How well matched phrases agree with those that people marked, and how much of a score a few lines hold.

    python -m benchmarks.phrases --data ../shared/data

The first table is SemEval-2016 task 2 (interpretable STS): people cut two sentences into chunks and matched these. Each
pair of a word and a word of matched chunks counts; F1 is over all pairs of a set. The constants of `pellucid.phrases`
were chosen on answers-students. The second table says how much of what words add is in the phrase lines of `groups()`.
"""

from __future__ import annotations

import argparse
import csv
import lzma
import re
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

import pellucid
from papers.retrieval_sets import read_collection
from pellucid.base import Embedder
from pellucid.evaluation.tasks import find_tasks
from pellucid.explanation import Explanation
from pellucid.grouping import COMMON
from pellucid.rows import CONTEXT, REMAINDER, WORD_PAIR
from pellucid.text import Span

SETS = ("answers-students", "images")
Pairs = set[tuple[int, int]]


class Sentences(NamedTuple):
    """Two sentences as lists of tokens, and the pairs of tokens that people matched."""

    first: list[str]
    second: list[str]
    pairs: Pairs


def read_sentences(path: Path) -> Iterator[Sentences]:
    """Yield the sentences of a file of word alignments; chunks that match nothing have no pairs."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        blocks = file.read().split("<sentence ")[1:]
    for block in blocks:
        sides = [_inner(block, tag).strip().split("\n") for tag in ("source", "translation")]
        first, second = ([line.split(" ")[1] for line in lines] for lines in sides)
        pairs: Pairs = set()
        for line in _inner(block, "alignment").split("\n"):
            found = re.match(r"([\d ]+) <==> ([\d ]+) // (\S+) //", line)
            if found and not found[3].startswith(("NOALI", "ALIC")):
                chunks = ([int(number) - 1 for number in found[n].split() if number != "0"] for n in (1, 2))
                one, other = chunks
                pairs |= {(a, b) for a in one for b in other}
        yield Sentences(first, second, pairs)


def _inner(block: str, tag: str) -> str:
    return block.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]


def token_pairs(sentences: Sentences, spans: Collection[tuple[Span, Span]]) -> Pairs:
    """Return pairs of tokens for pairs of the spans of words, in texts that join the tokens with blanks."""
    starts = [np.cumsum([0, *(len(token) + 1 for token in side)]) for side in (sentences.first, sentences.second)]

    def token(side: int, span: tuple[int, int]) -> int:
        return int(np.searchsorted(starts[side], span[0], "right")) - 1

    return {(token(0, one), token(1, other)) for one, other in spans}


def same_words(sentences: Sentences) -> Pairs:
    """Return pairs of the same word."""
    return {
        (a, b)
        for a, one in enumerate(sentences.first)
        for b, other in enumerate(sentences.second)
        if one.lower() == other.lower()
    }


def best_pairs(why: Explanation, sentences: Sentences) -> Pairs:
    """Return pairs of words of which each is the other's best, from the rows alone."""
    best: list[dict[tuple[int, int], tuple[float, tuple[int, int]]]] = [{}, {}]
    for row in why.rows:
        if row.kind == WORD_PAIR and row.contribution > 0:
            for one in row.spans1:
                for other in row.spans2:
                    for side, (of, to) in enumerate(((one, other), (other, one))):
                        best[side][of] = max(best[side].get(of, (0.0, to)), (row.contribution, to))
    mutual = {(one, other) for one, (_, other) in best[0].items() if best[1].get(other, (0.0, one))[1] == one}
    return token_pairs(sentences, mutual)


def f1(found: list[Pairs], gold: list[Pairs]) -> str:
    """Return F1, precision and recall over all pairs."""
    right = sum(len(one & other) for one, other in zip(found, gold))
    n_found, n_gold = sum(map(len, found)), sum(map(len, gold))
    return f"{2 * right / (n_found + n_gold):.3f} | {right / max(n_found, 1):.3f} | {right / n_gold:.3f}"


def alignment_table(models: dict[str, Embedder], data: Path) -> None:
    """Print how well each model's phrases agree with people's."""
    print("| | set | F1 | precision | recall |\n|---|---|---|---|---|")
    for name in SETS:
        sentences = list(read_sentences(data / f"alignment/ists2016/{name}.wa.xz"))
        gold = [one.pairs for one in sentences]
        print(f"| same words | {name} | {f1(list(map(same_words, sentences)), gold)} |")
        for label, model in models.items():
            why = [model.explain(" ".join(one.first), " ".join(one.second)) for one in sentences]
            pairs = [best_pairs(*item) for item in zip(why, sentences)]
            print(f"| {label}, best word pairs | {name} | {f1(pairs, gold)} |")
            phrases = [token_pairs(one, own._grouped.matched_words()) for own, one in zip(why, sentences)]
            print(f"| **{label}, phrases** | {name} | {f1(phrases, gold)} |", flush=True)


def pairs_of(data: Path, n_pairs: int) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield sets of two texts each: sentences, news, and claims with the abstract that is evidence for each."""
    for name, path in (("STS-B", "sts/STSBenchmark/test.tsv"), ("MRPC", "pair_classification/MRPC/test.tsv")):
        with (data / path).open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            yield name, [(row["sentence1"], row["sentence2"]) for row in islice(rows, n_pairs)]
    collection = read_collection(next(task for task in find_tasks(data) if task.name == "SciFact"))
    documents = dict(zip(collection.ids, collection.documents))
    relevant = zip(collection.queries, collection.relevant.values())
    yield "SciFact", [(query, documents[next(iter(ids))]) for query, ids in islice(relevant, n_pairs)]


def line_table(model: Embedder, data: Path, n_pairs: int) -> None:
    """Print what share of what words carry is held by the phrase lines, and how many lines there are in all."""
    print("\n| pairs | words' sum in phrase lines, median | at least 80% | lines, most | phrase lines, mean |")
    print("|---|---|---|---|---|")
    for name, pairs in pairs_of(data, n_pairs):
        shares, n_lines, n_phrases = [], [], []
        for first, second in pairs:
            groups = model.explain(first, second).groups()
            words = sum(g.contribution for g in groups if g.kind not in (CONTEXT, COMMON, REMAINDER))
            phrases = [group.contribution for group in groups if not group.is_sum]
            n_lines.append(len(groups))
            n_phrases.append(len(phrases))
            if abs(words) > 0.02:
                shares.append(sum(phrases) / words)
        held = np.array(shares)
        row = f"{np.median(held):.2f} | {np.mean(held >= 0.8):.0%} | {max(n_lines)} | {np.mean(n_phrases):.1f}"
        print(f"| {name} ({len(pairs)}) | {row} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with alignment/ists2016")
    parser.add_argument("--encoder", help="a sentence-transformers model, for estimated and exact reasons")
    parser.add_argument("--pairs", type=int, default=500, help="pairs of each set for the second table")
    parser.add_argument("--lines-only", action="store_true", help="leave out the first table")
    options = parser.parse_args()
    static = pellucid.load("static-en")
    models: dict[str, Embedder] = {"static-en": static}
    if options.encoder:
        encoder = pellucid.load(options.encoder)
        models |= {"estimated": encoder, "tokens": encoder.with_reasons("tokens")}
    if not options.lines_only:
        alignment_table(models, options.data)
    line_table(static, options.data, options.pairs)


if __name__ == "__main__":
    main()
