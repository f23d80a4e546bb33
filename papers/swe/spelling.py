"""How well the spelling of a held-out word gives its vector, and what spelling costs and gives in use.

    python -m papers.swe.spelling MODEL                   held-out words
    python -m papers.swe.spelling MODEL --pair FILE en de held-out words of the second of two languages
    python -m papers.swe.spelling MODEL --use             STS, retrieval and classification, without and with
    python -m papers.swe.spelling MODEL --speed           texts a second, without and with

Words are held out evenly over the ranks of the vocabulary, words of more than three letters alone; everything is fitted
on the rest. The figure is the mean cosine to the word's own vector, 0 where a way finds nothing. The ways: the rule of
a model without spelling (the longest prefix of whole word pieces); the longest known prefix of any letters; the split
into the fewest known words of three letters or more, with "s", "es" and "n" between them; ridge regression on hashed
n-grams; and the spelling of `fit_spelling`. The second column is of the words that are two or more known words.
`--pair` takes a table of parallel sentences and the names of two of its columns. The vocabulary is then cut to the
words of both languages, and words that the second has alone are held out.

`--words` cuts the vocabulary to its first words, `--typos` changes a share of the longer words of the texts by a letter
(left out, put in, replaced, or two swapped), each for `--use`. Prints markdown.
"""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression

import pellucid
from papers.options import make_parser
from papers.retrieval_sets import dense_score, read_collection
from papers.sts import sts_spearman
from pellucid import StaticEmbedder
from pellucid.base import Vectors
from pellucid.corpus import read_texts
from pellucid.embeddings import unit_rows
from pellucid.evaluation.tasks import find_tasks, read_table
from pellucid.static import fit_spelling
from pellucid.static.spelling import Speller, ngram_weights
from pellucid.text import Vocabulary, split_words

_RETRIEVAL = ("cranfield", "cisi", "npl", "SciFact")
_BUCKETS = (1 << 15, 1 << 17)  # of the ridge regressions
_ITERATIONS = 15
_LINKS = ("", "s", "es", "n")
_DRAWS = 5  # of training texts for a classification
_SENTENCES = 200_000  # of the corpus for speed
_REPEATS = 3


def held_out(
    words: Sequence[str], count: int, among: set[str] | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the rows held out, `count` or a tenth of the vocabulary, and the others."""
    chosen = words if among is None else among
    rows = np.array([row for row, word in enumerate(words) if word.isalpha() and len(word) > 3 and word in chosen])
    rows = rows[rows >= min(1_000, len(words) // 20)]
    each = min(count, len(rows) // 10) // 10
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


def compare(model: StaticEmbedder, count: int, among: set[str] | None) -> Iterator[tuple[str, float, float]]:
    """Yield the ways and their mean cosine on held-out words, and on compounds among these."""
    words, vectors = model.vocabulary.words, _vectors(model)
    out, rest = held_out(words, count, among)
    unknown, kept = [words[row] for row in out.tolist()], [words[row] for row in rest.tolist()]
    table, truth = unit_rows(vectors[rest]), unit_rows(vectors[out])
    vocabulary = Vocabulary(kept, model.vocabulary.subwords)
    known = {word.lower(): number for number, word in enumerate(kept)}
    speller = Speller(vocabulary, lambda rows: vectors[rest[rows]], ngram_weights(kept, vectors[rest]))
    compounds = np.array([len(by_split(known, word.lower())) > 1 for word in unknown])

    def found(find: Callable[[str], Iterable[int]]) -> npt.NDArray[Any]:
        rows = [list(find(word)) for word in unknown]
        return np.array([table[several].sum(axis=0) if several else np.zeros(table.shape[1]) for several in rows])

    def row(way: str, predicted: npt.NDArray[Any]) -> tuple[str, float, float]:
        cosines = (unit_rows(predicted) * truth).sum(axis=1)
        return way, float(cosines.mean()), float(cosines[compounds].mean())

    yield f"({len(unknown):,} words, {compounds.sum():,} compounds)", np.nan, np.nan
    yield row("the rule without spelling", found(lambda w: [at] if (at := vocabulary.row(w)) >= 0 else []))
    yield row("longest known prefix", found(lambda w: by_prefix(known, w.lower())))
    yield row("fewest known words", found(lambda w: by_split(known, w.lower())))
    yield row("spelling", speller.predict([word.lower() for word in unknown]).sums)
    for buckets in _BUCKETS:
        yield row(f"ridge, {buckets:,} buckets", ridge(kept, table, unknown, buckets))


def with_typos(text: str, share: float, rng: random.Random) -> str:
    """Return a text with a letter wrong in a share of its words of four letters or more."""
    pieces = text.split(" ")
    for number, word in enumerate(pieces):
        if len(word) > 3 and word.isalpha() and rng.random() < share:
            at, letter = rng.randrange(len(word) - 1), rng.choice("abcdefghijklmnopqrstuvwxyz")
            swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
            others = (word[:at] + word[at + 1 :], word[:at] + letter + word[at:], word[:at] + letter + word[at + 1 :])
            pieces[number] = rng.choice((swapped, *others))
    return " ".join(pieces)


def accuracy(encode: Callable[[list[str]], Vectors], folder: Path) -> float:
    """Return the accuracy, times 100, of logistic regression on 2,000 texts, of each label as many; the mean of draws.

    One draw is too little: between two of them a model's accuracy on tweets differs by up to a point.
    """
    train, test = (read_table(folder / f"{part}.tsv", ["text", "label"]) for part in ("train", "test"))
    of_label: dict[str, list[int]] = {}
    for number, label in enumerate(train["label"]):
        of_label.setdefault(label, []).append(number)
    rng = np.random.default_rng(0)
    tested, scores = encode(test["text"]), []
    for _ in range(_DRAWS):
        few = list(chain(*(rng.permutation(numbers)[: 2_000 // len(of_label)] for numbers in of_label.values())))
        fitted = LogisticRegression(C=10, max_iter=300).fit(
            encode([train["text"][n] for n in few]), [train["label"][n] for n in few]
        )
        scores.append(100 * float(fitted.score(tested, test["label"])))
    return float(np.mean(scores))


def in_use(models: Sequence[StaticEmbedder], data: Path, typos: float) -> Iterator[tuple[str, list[float]]]:
    """Yield each set and the score of each model."""

    def encoder(model: StaticEmbedder) -> Callable[[list[str]], Vectors]:
        rng = random.Random(0)
        return lambda texts: model.encode([with_typos(text, typos, rng) for text in texts] if typos else texts)

    sts = [sts_spearman(encoder(model), data) for model in models]
    yield from ((name, [scores[name] for scores in sts]) for name in sts[0])
    tasks = {task.name: task for task in find_tasks(data)}
    for name in _RETRIEVAL:
        collection, encode = read_collection(tasks[name]), [encoder(model) for model in models]
        yield name, [dense_score((one(collection.queries), one(collection.documents)), collection) for one in encode]
    for folder in [] if typos else sorted((data / "classification").iterdir()):
        yield folder.name, [accuracy(encoder(model), folder) for model in models]


def cut(model: StaticEmbedder, rows: npt.NDArray[np.int64]) -> StaticEmbedder:
    """Return a model of some of the words."""
    scales = None if model.scales is None else model.scales[rows]
    words = [model.vocabulary.words[row] for row in rows.tolist()]
    return StaticEmbedder(Vocabulary(words, model.vocabulary.subwords), model.vectors[rows], scales)


def of_pair(model: StaticEmbedder, pair: Sequence[str]) -> tuple[StaticEmbedder, set[str]]:
    """Return a model of the words of two columns of a file, and the words that the second has alone."""
    columns = read_table(Path(pair[0]), pair[1:])
    first, second = ({w.text.lower() for text in columns[name] for w in split_words(text)} for name in pair[1:])
    rows = [row for row, word in enumerate(model.vocabulary.words) if word.lower() in first | second]
    return cut(model, np.array(rows)), {word for word in model.vocabulary.words if word.lower() in second - first}


def corpora(data: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield real texts: documents of two test sets, and sentences of the English corpus."""
    tasks = {task.name: task for task in find_tasks(data)}
    for name in ("SciFact", "npl"):
        yield f"{name}, documents", read_collection(tasks[name]).documents
    yield "corpus, sentences", list(islice(read_texts(data / "raw_english" / "open_licence.txt.xz"), _SENTENCES))


def speed(model: StaticEmbedder, data: Path) -> Iterator[tuple[str, float, float]]:
    """Yield rates of texts a second without and with spelling, and the time of a new word."""
    spelled, has_row = fit_spelling(model), model.vocabulary.has_row
    for name, texts in corpora(data):
        words = {word.text.lower() for text in texts for word in split_words(text)}
        models = [_started(one) for one in (model, spelled)]
        for what, repeats in (("first time", 1), ("again", _REPEATS)):
            rates = [len(texts) / min(_seconds(one, texts) for _ in range(repeats)) for one in models]
            yield f"{len(texts):,} {name}, {sum(not has_row(word) for word in words):,} new words, {what}", *rates
    rare = [word for word in model.vocabulary.words[len(model.vocabulary) // 2 :] if word.isalpha() and len(word) > 3]
    sample = [f"{word}x" for word in rare[:200]]
    speller = Speller(model.vocabulary, model.word_vectors, ngram_weights(model.vocabulary.words, _vectors(model)))
    speller.spell(sample[:1])  # makes its index
    start = time.process_time()
    speller.spell(sample)
    readable, compiled = time.process_time() - start, _seconds(_started(spelled), sample)
    yield "microseconds a new word, compiled", np.nan, 1e6 * compiled / len(sample)
    yield "microseconds a new word, readable", np.nan, 1e6 * readable / len(sample)


def _vectors(model: StaticEmbedder) -> Vectors:
    return model.word_vectors(np.arange(len(model.vocabulary)))


def _started(model: StaticEmbedder) -> StaticEmbedder:
    """Return a copy that has compiled and indexed what it needs, and knows no unknown words yet."""
    fresh = copy.copy(model)
    fresh.encode(["the unknownable words " * 50_000])
    return fresh


def _seconds(model: StaticEmbedder, texts: list[str]) -> float:
    start = time.process_time()
    model.encode(texts)
    return time.process_time() - start


def main() -> None:
    """Print what was asked for."""
    parser = make_parser(__doc__, data="sts/, retrieval/ and classification/")
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=2_000, help="words held out")
    parser.add_argument("--pair", nargs=3, metavar=("FILE", "FIRST", "SECOND"), help="two languages, see above")
    parser.add_argument("--use", action="store_true", help="the test sets, without and with")
    parser.add_argument("--words", type=int, help="of the vocabulary, for --use")
    parser.add_argument("--typos", type=float, default=0.0, help="share of the words, for --use")
    parser.add_argument("--speed", action="store_true", help="texts a second, without and with")
    asked = parser.parse_args()
    model = pellucid.load(asked.model)
    if not isinstance(model, StaticEmbedder):
        raise SystemExit(f"{asked.model} is no static model")
    if model.spelling is not None:
        model = StaticEmbedder(model.vocabulary, model.vectors, model.scales)
    if asked.words:
        model = cut(model, np.arange(asked.words))
    if asked.use:
        print(f"| {asked.model} | without | with |\n|---|---:|---:|")
        for name, scores in in_use([model, fit_spelling(model)], asked.data, asked.typos):
            print(f"| {name} | {' | '.join(f'{score:.2f}' for score in scores)} |", flush=True)
    elif asked.speed:
        print(f"| {asked.model} | without | with |\n|---|---:|---:|")
        for what, without, with_spelling in speed(model, asked.data):
            print(f"| {what} | {without:,.0f} | {with_spelling:,.0f} |".replace("nan", ""), flush=True)
    else:
        among = None
        if asked.pair:
            model, among = of_pair(model, asked.pair)
        print(f"| {asked.model} | all | compounds |\n|---|---:|---:|")
        for way, every, compound in compare(model, asked.count, among):
            print(f"| {way} | {every:.3f} | {compound:.3f} |".replace("nan", ""), flush=True)


if __name__ == "__main__":
    main()
