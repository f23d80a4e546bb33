r"""Chinese and Japanese of static-multi cut otherwise, or tuned further: is either better?

    python -m papers.swe.segmenting --data shared/data --write

Static-multi cuts Chinese and Japanese into the longest words of its vocabulary, from the left. Here the same table is
read by other cuts, and its words of these two scripts are trained on with Tatoeba's pairs, all else kept as it is. What
is measured is whether the translation of a sentence is found, both ways, among up to 20,000: of pairs held out of the
training of static-multi, never of a test set.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

import pellucid
from papers.kit import Figure, Table, mean_interval, run_script
from papers.vector_cache import Vectors, unit_rows
from pellucid import StaticEmbedder
from pellucid.static import read_parallel
from pellucid.static.bags import Bags
from pellucid.text.unicode import unspaced_run
from pellucid.text.words import split_words

LANGUAGES = {"zh": ("Chinese", 2), "ja": ("Japanese", 3)}  # the number of the pairs in recipes/static_multi.py
HELD_OUT, MORE = 0.02, 20_000  # as in training; other pairs that a translation is looked for among
LONGEST = 8  # characters of a word
BATCH, STEPS, TEMPERATURE = 512, 600, 0.05
CHARACTERS = (0.1, 0.3)
TUNED = ((0.003, 0.0), (0.01, 0.0), (0.01, 0.3))  # Adam's rate, and how strongly words are held where they were
AS_IS = "the longest known, from the left (as it is)"

Cut = Callable[[str], list[str]]
Hits = npt.NDArray[np.float64]


class Pairs(NamedTuple):
    """Sentences of a language with English vectors at length 1; the first `held` of `asked` are held out."""

    foreign: list[str]
    english: Vectors
    asked: npt.NDArray[np.int64]
    held: int
    trained: npt.NDArray[np.int64]


def read_pairs(model: StaticEmbedder, path: Path, code: str) -> Pairs:
    """Return the pairs as `train` of static-multi split them; no text stands twice among those asked for."""
    english, foreign = map(list, zip(*read_parallel(path, ("en", code))))
    known = [np.diff(Bags.from_sentences(side, model.vocabulary).offsets) > 0 for side in (english, foreign)]
    usable = np.flatnonzero(known[0] & known[1])
    order = np.random.default_rng([0, LANGUAGES[code][1]]).permutation(usable)
    held = order[: int(len(order) * HELD_OUT)]
    texts = {side[n] for n in held for side in (english, foreign)}
    trained = np.array([n for n in order[len(held) :] if not {english[n], foreign[n]} & texts])
    seen, asked = set[str](), []
    for n in (*held, *order[len(held) :][:MORE]):
        if english[n] not in seen and foreign[n] not in seen:
            seen |= {english[n], foreign[n]}
            asked.append(n)
    count = int(np.isin(asked, held).sum())
    return Pairs(foreign, unit_rows(model.encode(english)), np.array(asked), count, trained)


# --- Cuts -------------------------------------------------------------------------------------------------------------


def from_the_right(known: Any, run: str) -> list[str]:
    """Return the longest known words, from the right."""
    found: list[str] = []
    end = len(run)
    while end:
        start = next((n for n in range(max(0, end - LONGEST), end) if run[n:end] in known), end - 1)
        found.append(run[start:end])
        end = start
    return found[::-1]


def cheapest(cost: Callable[[str], float], known: Any, run: str) -> list[str]:
    """Return the words whose costs add up to least; a character that is not known is one."""
    best, back = [0.0, *[math.inf] * len(run)], [0] * (len(run) + 1)
    for start in range(len(run)):
        for end in range(start + 1, min(start + LONGEST, len(run)) + 1):
            word = run[start:end]
            if (word in known or end == start + 1) and best[start] + cost(word) < best[end]:
                best[end], back[end] = best[start] + cost(word), start
    found, end = [], len(run)
    while end:
        found.append(run[back[end] : end])
        end = back[end]
    return found[::-1]


def every_known(known: Any, run: str) -> list[str]:
    """Return all known words that stand in a run, those in others too."""
    spans = ((n, m) for n in range(len(run)) for m in range(n + 1, min(n + LONGEST, len(run)) + 1))
    return [run[n:m] for n, m in spans if run[n:m] in known]


def cuts(model: StaticEmbedder, texts: Sequence[str]) -> dict[str, Cut]:
    """Return name -> how a run without spaces is cut; probabilities are of words in `texts`."""
    vocabulary = model.vocabulary
    runs = [run[0] for text in texts for run in unspaced_run.finditer(text)]
    longest: Cut = lambda run: [word.text for word in vocabulary.split(run)]  # noqa: E731
    probable = longest
    for _ in range(3):
        counts = Counter(word for run in runs for word in probable(run))
        logs = {word: -math.log((count + 0.5) / counts.total()) for word, count in counts.items()}
        most = -math.log(0.01 / counts.total())
        probable = partial(cheapest, lambda word, logs=logs, most=most: logs.get(word, most), vocabulary)
    return {
        AS_IS: longest,
        "the longest known, from the right": partial(from_the_right, vocabulary),
        "the fewest words": partial(cheapest, lambda word: 1 - len(word) / 100, vocabulary),
        "the most probable words": probable,
        "all known words, one in another": partial(every_known, vocabulary),
    }


def weights(model: StaticEmbedder, texts: Sequence[str], cut: Cut, characters: float = 0.0) -> Any:
    """Return how often each text has each word, CSR [texts, words]; a word's characters count `characters` each."""
    rows, columns, values = [], [], []
    for n, text in enumerate(texts):
        parts: list[tuple[str, float]] = []
        for word, *_ in split_words(text):
            done = 0
            for run in unspaced_run.finditer(word):
                parts.append((word[done : run.start()], 1.0))
                for part in cut(run[0]):
                    parts.append((part, 1.0))
                    parts += [(mark, characters) for mark in part if characters and len(part) > 1]
                done = run.end()
            parts.append((word[done:], 1.0))
        for part, value in parts:
            if part and (row := model.vocabulary.row(part)) >= 0:
                rows.append(n)
                columns.append(row)
                values.append(value)
    shape = len(texts), len(model.vocabulary)
    return sparse.csr_matrix((values, (rows, columns)), shape=shape, dtype=np.float32)


# --- Measurements -----------------------------------------------------------------------------------------------------


def hits(pairs: Pairs, rows: Vectors) -> Hits:
    """Return x 100 whether each held-out pair is found, both ways, of the foreign rows of `pairs.asked`; [held, 2]."""
    foreign, english = unit_rows(rows), pairs.english[pairs.asked]
    place = np.arange(pairs.held)
    ways = [(ones[: pairs.held] @ others.T).argmax(axis=1) for ones, others in ((foreign, english), (english, foreign))]
    return 100.0 * np.stack([way == place for way in ways], axis=1)


def tuned(model: StaticEmbedder, table: Vectors, pairs: Pairs, counts: Any, rate: float, pull: float) -> Vectors:
    """Return the table with its words of unspaced scripts trained on the pairs by InfoNCE, both ways."""
    import torch

    own = np.array([n for n in np.unique(counts.indices) if unspaced_run.search(model.vocabulary.words[n])])
    moved = torch.tensor(table[own], requires_grad=True)
    start, english = moved.detach().clone(), torch.from_numpy(pairs.english)
    rest = table.copy()
    rest[own] = 0
    fixed, counts = torch.from_numpy(counts @ rest), sparse.csr_matrix(counts[:, own])
    optimizer, random = torch.optim.Adam([moved], rate), np.random.default_rng(0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / STEPS)
    for _ in range(STEPS):
        drawn = random.choice(pairs.trained, BATCH, replace=False)
        part = sparse.coo_matrix(counts[drawn])
        given = torch.sparse_coo_tensor(np.stack(part.coords), part.data, part.shape)
        rows = torch.nn.functional.normalize(torch.sparse.mm(given, moved) + fixed[drawn])
        scores, target = rows @ english[drawn].T / TEMPERATURE, torch.arange(BATCH)
        loss = sum(torch.nn.functional.cross_entropy(one, target) for one in (scores, scores.T))
        loss = loss + pull * ((moved - start) ** 2).sum(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    found = table.copy()
    found[own] = moved.detach().numpy()
    return found


def hits_by_cut(model: StaticEmbedder, pairs: Pairs) -> dict[str, Hits]:
    """Return way -> hits."""
    table = model.word_vectors(np.arange(len(model.vocabulary))).astype(np.float32)
    asked = [pairs.foreign[n] for n in pairs.asked]
    ways, found = cuts(model, [pairs.foreign[n] for n in pairs.trained]), {}
    for name, cut in ways.items():
        found[name] = hits(pairs, weights(model, asked, cut) @ table)
    for share in CHARACTERS:
        rows = weights(model, asked, ways[AS_IS], share) @ table
        found[f"and the characters of each word, {share} each"] = hits(pairs, rows)
    counts = weights(model, pairs.foreign, ways[AS_IS])
    for rate, pull in TUNED:
        rows = counts[pairs.asked] @ tuned(model, table, pairs, counts, rate, pull)
        name = f"words tuned for {STEPS} batches, rate {rate}" + f", held back by {pull}" * bool(pull)
        found[name] = hits(pairs, rows)
    return found


def table_of(found: dict[str, dict[str, Hits]]) -> Table:
    """Return the table: accuracy, mean of both directions, and its difference to the model as it is."""
    lines = []
    for way in next(iter(found.values())):
        line: list[Any] = [way]
        for hits_of in found.values():
            gain = hits_of[way].mean(axis=1) - hits_of[AS_IS].mean(axis=1)
            line += [float(hits_of[way].mean()), None if way == AS_IS else mean_interval(gain).with_verdict()]
        lines.append(line)
    return Table(["", *(cell for language in found for cell in (language, f"{language}, more than as it is"))], lines)


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield how many pairs there are, and the table."""
    model, accuracies, sizes = pellucid.load("static-multi"), dict[str, dict[str, Hits]](), []
    for code, (name, _) in LANGUAGES.items():
        pairs = read_pairs(model, options.data / f"parallel/tatoeba/en-{code}.tsv.xz", code)
        accuracies[name] = hits_by_cut(model, pairs)
        sizes.append(f"{name}: {pairs.held} pairs among {len(pairs.asked):,}")
    yield "pairs", "; ".join(sizes)
    yield "accuracy", table_of(accuracies)


if __name__ == "__main__":
    run_script(measure, data="parallel/tatoeba/", threads=1)
