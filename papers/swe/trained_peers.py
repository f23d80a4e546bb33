r"""fastText and Sent2Vec trained on the sentences of static-en, and optimal transport between its words, beside it.

    python -m papers.swe.trained_peers --work-dir work --fasttext fastText/fasttext --sent2vec sent2vec/fasttext --write

The programs are those of github.com/facebookresearch/fastText (1142dc4) and github.com/epfml/sent2vec (9efbc2d); `make`
builds each. Trained models, 2.4 GB each, and their scores are kept; a training that was stopped begins again. A seed
puts the sentences into another order. On one core fastText takes a quarter of an hour, Sent2Vec six minutes. Settings
are the defaults of fastText (five readings), but for 300 dimensions, and those of the example in Sent2Vec's README
(nine readings), but for 300 dimensions, words from five occurrences on and 2 million buckets. A text of fastText is the
mean of its words' vectors, which subwords give for unknown ones; that of Sent2Vec is what the program prints. Words are
lower-case, without punctuation.
"""

from __future__ import annotations

import argparse
import lzma
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, run

import numpy as np
from scipy import optimize, spatial

import pellucid
from papers.kit import Figure, Kept, Table, experiment, run_script
from papers.ldir.scored import GROUPS, Samples, beside, drawn_counts, mean_of_draws, ranks_of, spearman
from papers.local_tasks import find_tasks
from papers.swe.static_peers import beside_static, encoding, samples_of
from papers.swe.tables import BUNDLED
from papers.vector_cache import Vectors
from pellucid.evaluation.tasks import read_sts

DIMENSIONS = 300
WORD = re.compile(r"\w+(?:'\w+)?")
COMMANDS = {
    "fastText": (f"skipgram -dim {DIMENSIONS} -thread 1", "print-word-vectors"),
    "Sent2Vec": (
        f"sent2vec -dim {DIMENSIONS} -thread 1 -epoch 9 -wordNgrams 2 "
        "-minCount 5 -lr 0.2 -t 0.000005 -dropoutK 4 -neg 10",
        "print-sentence-vectors",
    ),
}
"""Program -> how it trains, and how it prints a vector for each word or line."""

TRANSPORT = {
    "word mover's distance: equal weights, Euclidean": False,
    "word rotator's distance: weighted by length, cosines": True,
}
"""Way of moving words -> whether vectors' lengths weigh them and cosines are the costs."""


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the scores of optimal transport and those of the models of each program."""
    model = pellucid.StaticEmbedder.from_pretrained(BUNDLED)
    own = samples_of(encoding(model), options)
    if "transport" in options.only:
        ways = {"cosine of the means": own["STS"]} | {way: moved(model, way, options) for way in TRANSPORT}
        yield (
            "transport",
            Table(
                ["static-en by", "STS", "STS, more than by the cosine"],
                [[way, *beside(found, ways["cosine of the means"])] for way, found in ways.items()],
            ),
        )
    for name in (name for name in COMMANDS if name in options.only):
        trainings = experiment(name=[name], seed=range(options.seeds))(peer_row)
        draws = trainings.rows(Kept(options.work_dir / "rows-.jsonl"), options)
        mean = {kind: mean_of_draws([draw[kind] for draw in draws]) for kind in own}
        yield name, beside_static({BUNDLED: own, f"{name} ({DIMENSIONS})": mean}, options.seeds)


def peer_row(options: argparse.Namespace, name: str, seed: int) -> dict[str, dict[str, list[float]]]:
    """Return the scores of one model, trained now if need be."""
    with Popen(
        [getattr(options, name.lower()), COMMANDS[name][1], trained(name, seed, options)],
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        encoding="utf-8",
    ) as process:
        found = samples_of(partial(text_rows, cache(partial(printed, process)), name == "fastText"), options)
    return {kind: {task: values.tolist() for task, values in sets.items()} for kind, sets in found.items()}


def trained(name: str, seed: int, options: argparse.Namespace) -> Path:
    """Return the model of a program that learnt from the sentences in the order of `seed`."""
    model: Path = options.work_dir / f"{name}-{seed}.bin"
    if not model.exists():
        part, corpus = model.with_name(f"part-{name}-{seed}"), model.with_name(f"sentences-{seed}.txt")
        with lzma.open(options.data / "raw_english" / "open_licence.txt.xz", "rt", encoding="utf-8") as file:
            lines = [f"{' '.join(WORD.findall(line.lower()))}\n" for line in file]
        corpus.write_text("".join(lines[n] for n in np.random.default_rng(seed).permutation(len(lines))), "utf-8")
        run(
            [getattr(options, name.lower()), *COMMANDS[name][0].split(), "-input", corpus, "-output", part],
            check=True,
            stdout=DEVNULL,
        )
        part.with_suffix(".bin").replace(model)
    return model


def printed(process: Popen[str], line: str) -> Vectors:
    """Return the vector [DIMENSIONS] that a program prints for a line."""
    print(line, file=process.stdin, flush=True)
    return np.array(process.stdout.readline().split()[-DIMENSIONS:], np.float32)  # type: ignore[union-attr]


def text_rows(vector: Callable[[str], Vectors], by_word: bool, texts: list[str]) -> Vectors:
    """Return rows of texts: the mean of their words' vectors, or the vectors of their lines; zeros without words."""
    lines = (found if by_word or not found else [" ".join(found)] for found in map(WORD.findall, map(str.lower, texts)))
    return np.stack([np.mean([vector(line) for line in one] or [np.zeros(DIMENSIONS)], axis=0) for one in lines])


def moved(model: pellucid.StaticEmbedder, way: str, options: argparse.Namespace) -> Samples:
    """Return the scores on STS of the least cost of moving the known words of one text onto those of the other."""
    found = {}
    for task in (task for task in find_tasks(options.data) if task.name in GROUPS["STS"]):
        pairs = read_sts(task)
        costs = [least_cost(model, pair, TRANSPORT[way]) for pair in zip(pairs.sentences1, pairs.sentences2)]
        counts = drawn_counts(len(costs))
        found[task.name] = 100 * spearman(ranks_of(-np.round(costs, 6), counts), ranks_of(pairs.scores, counts), counts)
    return found


def least_cost(model: pellucid.StaticEmbedder, texts: tuple[str, str], by_length: bool) -> float:
    """Return the least cost of moving the known words of one text onto those of another.

    Args:
        model: of their vectors.
        texts: both.
        by_length: a word weighs as much as its vector is long, and a way costs 1 less the cosine; otherwise words weigh
            the same, and a way costs the distance.
    """
    both = list(map(model.text_words, texts))
    sides = [model.word_vectors(words.rows).astype(np.float64) for words in both]
    costs = spatial.distance.cdist(*sides, "cosine" if by_length else "euclidean")
    weights = (words.counts * np.linalg.norm(side, axis=1) ** by_length for words, side in zip(both, sides))
    shares = [weight / weight.sum() for weight in weights]
    flows = [np.repeat(np.eye(len(costs)), costs.shape[1], axis=1), np.tile(np.eye(costs.shape[1]), len(costs))]
    # The first condition follows from the others; with it, rounding may leave no solution.
    return float(optimize.linprog(costs.ravel(), A_eq=np.concatenate(flows)[1:], b_eq=np.concatenate(shares)[1:]).fun)


if __name__ == "__main__":
    run_script(
        measure,
        {
            "--fasttext": {"help": "the program fastText"},
            "--sent2vec": {"help": "the program Sent2Vec"},
            "--seeds": {"type": int, "default": 1, "help": "models of a program [1]"},
        },
        data="raw_english/, sts/ and retrieval/",
        work_dir="sentences and trained models",
        only=(*COMMANDS, "transport"),
        threads=1,
    )
