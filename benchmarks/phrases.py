"""How well matched phrases agree with those that people marked, and how much of a score a few lines hold.

    python -m benchmarks.phrases --data ../shared/data

The first table is SemEval-2016 task 2 (interpretable STS): people cut two sentences into chunks and matched these. Each
pair of a word and a word of matched chunks counts; F1 is over all pairs of a set. The constants of
`pellucid.explain.phrases` were chosen on answers-students, and so were layer and method of simalign. With an encoder,
peers stand in the table: simalign on the encoder's states, and the matrices of retrivex and xplainsim, computed as in
`faithfulness_ways.py`: pairs that are each other's best, and FlowAlign by xplainsim's own function. The second table
says how much of what words add is in the phrase lines of `groups()`.
"""

from __future__ import annotations

import argparse
import csv
import lzma
import re
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pellucid
from benchmarks.faithfulness import MINILM, sentence_transformer
from benchmarks.faithfulness_ways import RETRIVEX, RETRIVEX_LAST, XPLAINSIM, Jacobians, Rows, Subject
from papers.retrieval_sets import read_collection
from pellucid.core.embedder import Embedder
from pellucid.evaluation.tasks import find_tasks
from pellucid.explain.explanation import Explanation
from pellucid.explain.groups import COMMON
from pellucid.explain.rows import CONTEXT, REMAINDER, WORD_PAIR
from pellucid.text.words import Span

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


Aligner = Callable[[Sentences], Pairs]


def matrix_of(setting: Jacobians, subject: Subject, sentences: Sentences, mean: bool) -> Rows:
    """Return a package's matrix of two sentences with a row and a column a token: sums of word pieces, or means."""
    texts = [" ".join(side) for side in sentences[:2]]
    table, *reads = setting.table(subject, *texts)
    for axis, (read, side) in enumerate(zip(reads, sentences)):
        ends = np.cumsum([len(token) + 1 for token in side])
        inside = np.array([end > start for start, end in read.spans])
        owner = np.array([np.searchsorted(ends, start, "right") for start, _ in read.spans])
        shares = (owner == np.arange(len(side))[:, None]) & inside
        weights = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1) if mean else shares.astype(float)
        table = np.moveaxis(np.tensordot(weights, table, (1, axis)), 0, axis)
    return table


def mutual(setting: Jacobians, subject: Subject, sentences: Sentences) -> Pairs:
    """Return the pairs of tokens that are the largest of their row and column of a package's matrix."""
    table = matrix_of(setting, subject, sentences, mean=False)
    return {(a, int(b)) for a, b in enumerate(table.argmax(axis=1)) if table[:, b].argmax() == a and table[a, b] > 0}


def flow_aligned(subject: Subject, sentences: Sentences) -> Pairs:
    """Return the pairs that xplainsim's FlowAlign leaves of its matrix, at its own threshold."""
    import torch
    from xplain.attribution.postprocessing import flow_align  # type: ignore[import-not-found]

    found = flow_align(torch.from_numpy(matrix_of(XPLAINSIM, subject, sentences, mean=True)))
    return {(int(a), int(b)) for a, b in zip(*np.nonzero(found))}


def aligners(folder: str, device: str, chosen_on: list[Sentences]) -> dict[str, Aligner]:
    """Return the peers' ways to align two sentences by an encoder."""
    from simalign import SentenceAligner  # type: ignore[import-not-found]

    model = sentence_transformer(MINILM, Path(folder), device)
    subject = Subject(model.encode, model)
    gold, best = [one.pairs for one in chosen_on], ("", "", lambda _: set())
    for layer in range(1, model[0].auto_model.config.num_hidden_layers + 1):
        aligner = SentenceAligner(folder, "bpe", matching_methods="mai", device=device, layer=layer)
        found = [aligner.get_word_aligns(one.first, one.second) for one in chosen_on]
        for method in ("mwmf", "inter", "itermax"):
            score = f1([set(one[method]) for one in found], gold)
            label = f"simalign, layer {layer}, {method}"
            print(f"{label}: {score}", flush=True)
            best = max(best, (score, label, partial(_simaligned, aligner, method)), key=lambda one: one[0])
    return {
        best[1]: best[2],
        "retrivex": partial(mutual, RETRIVEX, subject),
        "retrivex, last layer": partial(mutual, RETRIVEX_LAST, subject),
        "xplainsim": partial(mutual, XPLAINSIM, subject),
        "xplainsim, FlowAlign": partial(flow_aligned, subject),
    }


def _simaligned(aligner: Any, method: str, sentences: Sentences) -> Pairs:
    return set(aligner.get_word_aligns(sentences.first, sentences.second)[method])


def f1(found: list[Pairs], gold: list[Pairs]) -> str:
    """Return F1, precision and recall over all pairs."""
    right = sum(len(one & other) for one, other in zip(found, gold))
    n_found, n_gold = sum(map(len, found)), sum(map(len, gold))
    return f"{2 * right / (n_found + n_gold):.3f} | {right / max(n_found, 1):.3f} | {right / n_gold:.3f}"


def alignment_table(models: dict[str, Embedder], peers: dict[str, Aligner], sets: dict[str, list[Sentences]]) -> None:
    """Print how well each model's phrases agree with people's."""
    print("| | set | F1 | precision | recall |\n|---|---|---|---|---|")
    for name, sentences in sets.items():
        gold = [one.pairs for one in sentences]
        print(f"| same words | {name} | {f1(list(map(same_words, sentences)), gold)} |")
        for label, align in peers.items():
            print(f"| {label} | {name} | {f1(list(map(align, sentences)), gold)} |", flush=True)
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
    parser.add_argument(
        "--peers", action="store_true", help="with an encoder, simalign, retrivex and xplainsim as well"
    )
    parser.add_argument("--device", default="cpu", help="where the encoder runs [cpu]")
    parser.add_argument("--pairs", type=int, default=500, help="pairs of each set for the second table")
    parser.add_argument("--lines-only", action="store_true", help="leave out the first table")
    parser.add_argument("--sentences", type=int, help="so many of each set of the first table alone, to try it out")
    options = parser.parse_args()
    static = pellucid.load("static-en")
    models: dict[str, Embedder] = {"static-en": static}
    if options.encoder:
        encoder = pellucid.load(options.encoder)
        models |= {"estimated": encoder, "tokens": encoder.with_reasons("tokens")}
    if not options.lines_only:
        sets = {
            name: list(islice(read_sentences(options.data / f"alignment/ists2016/{name}.wa.xz"), options.sentences))
            for name in SETS
        }
        peers = aligners(options.encoder, options.device, sets[SETS[0]]) if options.peers and options.encoder else {}
        alignment_table(models, peers, sets)
    line_table(static, options.data, options.pairs)


if __name__ == "__main__":
    main()
