"""How well the spelling of a held-out word gives its vector, and what spelling costs and gives in use.

    python benchmarks/spelling.py static-en              held-out words
    python benchmarks/spelling.py static-en --use DATA   STS and retrieval, before and after, and speed

Words are held out evenly over the ranks of the vocabulary, words of more than three letters alone; everything is fitted
on the rest. The figure is the mean cosine to the word's own vector, 0 where a way finds nothing. The ways: the rule of
a model without spelling (the longest prefix of whole word pieces); the longest known prefix of any letters; the split
into the fewest known words of three letters or more, with "s", "es" and "n" between them; ridge regression on hashed
n-grams; and the spelling of `fit_spelling`. Prints markdown.
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import HashingVectorizer

import pellucid
from pellucid import StaticEmbedder
from pellucid.base import Vectors, unit_rows
from pellucid.static import Speller, fit_spelling, ngram_weights
from pellucid.text import Vocabulary

_STS = ("STS12", "STS13", "STS14", "STS15", "STSBenchmark", "SICK-R")
_RETRIEVAL = ("cranfield", "cisi", "npl", "scifact")
_BUCKETS = (1 << 15, 1 << 17)  # of the ridge regressions
_ITERATIONS = 15
_LINKS = ("", "s", "es", "n")


def held_out(model: StaticEmbedder, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the rows held out, `count` or a tenth of the vocabulary, and the others."""
    words = model.vocabulary.words
    rows = np.array([row for row, word in enumerate(words) if word.isalpha() and len(word) > 3])
    rows = rows[rows >= min(1_000, len(words) // 20)]
    each = min(count, len(words) // 10) // 10
    rng = np.random.default_rng(0)
    out = np.sort(np.concatenate([rng.choice(band, each, replace=False) for band in np.array_split(rows, 10)]))
    return out, np.setdiff1d(np.arange(len(words)), out)


def by_prefix(known: dict[str, int], word: str) -> list[int]:
    """Return the number of the longest known word that `word` begins with."""
    return next(([known[word[:end]]] for end in range(len(word), 2, -1) if word[:end] in known), [])


def by_split(known: dict[str, int], word: str) -> list[int]:
    """Return the numbers of the fewest known words that `word` is made of, by dynamic programming."""
    best: list[list[int] | None] = [[], *[None] * len(word)]
    for end in range(3, len(word) + 1):
        for start in range(end - 2):
            before = best[start]
            for link in _LINKS if before is not None and start else ("",):
                part = word[start + len(link) : end]
                if before is not None and word.startswith(link, start) and len(part) > 2 and part in known:
                    found = [*before, known[part]]
                    best[end] = min((best[end] or found), found, key=len)
    return best[-1] or []


def ridge(words: Sequence[str], targets: Vectors, unknown: Sequence[str], buckets: int) -> Vectors:
    """Return predictions by ridge regression on hashed n-grams, by conjugate gradients."""
    hashed = HashingVectorizer(
        analyzer="char", ngram_range=(3, 6), n_features=buckets, alternate_sign=False, dtype=np.float32,
        preprocessor=lambda word: f"<{word.lower()}>",
    )  # fmt: skip
    known = hashed.transform(words)
    back = known.T.tocsr()
    solution = np.zeros((buckets, targets.shape[1]), np.float32)
    residual = back @ targets
    step, square = residual.copy(), (residual**2).sum(axis=0)
    for _ in range(_ITERATIONS):
        moved = back @ (known @ step) + np.float32(0.3) * step
        factor = square / np.maximum((step * moved).sum(axis=0), 1e-12)
        solution += factor * step
        residual -= factor * moved
        new = (residual**2).sum(axis=0)
        step = residual + step * (new / np.maximum(square, 1e-12))
        square = new
    return np.asarray(hashed.transform(unknown) @ solution)


def compare(model: StaticEmbedder, count: int) -> Iterator[tuple[str, float]]:
    """Yield the ways and their mean cosine on held-out words."""
    out, rest = held_out(model, count)
    words, vectors = model.vocabulary.words, model.word_vectors(np.arange(len(model.vocabulary)))
    unknown, kept = [words[row] for row in out.tolist()], [words[row] for row in rest.tolist()]
    table, truth = unit_rows(vectors[rest]), unit_rows(vectors[out])
    vocabulary = Vocabulary(kept, model.vocabulary.subwords)
    known = {word.lower(): number for number, word in enumerate(kept)}
    start = time.process_time()
    weights = ngram_weights(kept, vectors[rest])
    yield "(seconds of processor time to fit it)", time.process_time() - start
    spell = Speller(kept, lambda rows: vectors[rest[rows]], weights)

    def mean(find: Callable[[str], Iterable[int]]) -> float:
        found = [list(find(word)) for word in unknown]
        return cosine(np.array([table[rows].sum(axis=0) if rows else np.zeros(table.shape[1]) for rows in found]))

    def cosine(predicted: npt.NDArray[Any]) -> float:
        return float((unit_rows(predicted) * truth).sum(axis=1).mean())

    def spelled(word: str) -> Vectors:
        found = spell.spell(word)
        return np.zeros(table.shape[1], np.float32) if found is None else found.vector

    yield "the rule without spelling", mean(lambda w: [row] if (row := vocabulary.row(w)) >= 0 else [])
    yield "longest known prefix", mean(lambda w: by_prefix(known, w.lower()))
    yield "fewest known words", mean(lambda w: by_split(known, w.lower()))
    yield "spelling", cosine(np.array([spelled(word) for word in unknown]))
    for buckets in _BUCKETS:
        yield f"ridge, {buckets:,} buckets", cosine(ridge(kept, table, unknown, buckets))


def sts(model: StaticEmbedder, folder: Path) -> float:
    """Return Spearman's correlation on a set of sentence pairs, times 100."""
    file = next(folder / name for name in ("test.tsv", "all.tsv") if (folder / name).exists())
    head, *rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
    one, two, score = (head.index(name) for name in ("sentence1", "sentence2", "score"))
    cosines = (model.encode([row[one] for row in rows]) * model.encode([row[two] for row in rows])).sum(axis=1)
    return 100 * float(spearmanr(cosines, [float(row[score]) for row in rows])[0])


def _records(path: Path) -> list[dict[str, Any]]:
    packed = path.with_name(f"{path.name}.xz")
    text = lzma.open(packed, "rt").read() if packed.exists() else path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line]


def retrieval(model: StaticEmbedder, folder: Path) -> tuple[float, int, float]:
    """Return nDCG@10 times 100, the number of documents, and the seconds of processor time to encode them."""
    documents, queries = _records(folder / "corpus.jsonl"), _records(folder / "queries.jsonl")
    relevant: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split("\t")[:3]
        if int(grade) > 0:
            relevant.setdefault(query, {})[document] = int(grade)
    start = time.process_time()
    rows = model.encode([f"{d.get('title', '')} {d['text']}".strip() for d in documents])
    seconds = time.process_time() - start
    asked = [query for query in queries if query["_id"] in relevant]
    scores = model.encode([query["text"] for query in asked]) @ rows.T
    gains = []
    for query, row in zip(asked, scores):
        grades, best = relevant[query["_id"]], np.argsort(-row, kind="stable")[:10]
        found = [grades.get(documents[number]["_id"], 0) for number in best.tolist()]
        gains.append(_dcg(found) / _dcg(sorted(grades.values(), reverse=True)[:10]))
    return 100 * float(np.mean(gains)), len(documents), seconds


def _dcg(grades: Iterable[int]) -> float:
    return sum(grade / float(np.log2(place + 2)) for place, grade in enumerate(grades))


def in_use(model: StaticEmbedder, data: Path) -> None:
    """Print quality and speed without spelling and with it."""
    spelled = fit_spelling(model)
    for each in (model, spelled):  # compile, and make the index
        each.encode(["the unknownable words " * 50_000])
    print("\n| set | without | with |\n|---|---:|---:|")
    for name in _STS:
        print(
            f"| {name} | {sts(model, data / 'sts' / name):.2f} | {sts(spelled, data / 'sts' / name):.2f} |", flush=True
        )
    times = []
    for name in _RETRIEVAL:
        folder = data / "retrieval" / name
        (before, count, first), (after, _, second) = retrieval(model, folder), retrieval(spelled, folder)
        again = retrieval(spelled, folder)[2]
        times.append(f"| {name} | {count:,} | {first:.2f} | {second:.2f} | {again:.2f} |")
        print(f"| {name}, nDCG@10 | {before:.2f} | {after:.2f} |", flush=True)
    print("\n| seconds | documents | without | with, first time | with, again |\n|---|---:|---:|---:|---:|")
    print("\n".join(times))


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=2_000, help="words held out")
    parser.add_argument("--use", type=Path, help="the folder of the test sets")
    asked = parser.parse_args()
    model = pellucid.load(asked.model)
    if not isinstance(model, StaticEmbedder):
        raise SystemExit(f"{asked.model} is no static model")
    if asked.use:
        in_use(model, asked.use)
        return
    print(f"| {asked.model} | cosine |\n|---|---:|")
    for way, figure in compare(model, asked.count):
        print(f"| {way} | {figure:.3f} |", flush=True)


if __name__ == "__main__":
    main()
