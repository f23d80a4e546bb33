"""How well the spelling of a held-out word gives its vector, and what spelling costs and gives in use.

    python -m papers.swe.spelling MODEL words        held-out words
    python -m papers.swe.spelling MODEL use          STS, retrieval and classification, without and with
    python -m papers.swe.spelling MODEL speed        texts a second, without and with
    python -m papers.swe.spelling MODEL prefixes     which prefixes may stand for a held-out word
    python -m papers.swe.spelling MODEL prefix-use   the same on the test sets; prefix-speed: time; prefix-notes: notes

Words are held out evenly over the ranks of the vocabulary, words of more than three letters alone; everything is fitted
on the rest. The figure is the mean cosine to the word's own vector, 0 where a method finds nothing. The second column
is of the words that are two or more known words. `--pair` takes a table of parallel sentences and the names of two of
its columns: the vocabulary is cut to the words of both languages, and words that the second has alone are held out.

`prefixes` compares rules for a prefix that ends between two pieces of the teacher's tokenizer: its fewest letters and
the least share of the word's letters that it must have. Words of any kind are held out of the last two thirds of the
vocabulary. Nothing of that is a test set; `prefix-use` prints these, and `prefix-notes` how many texts have a word that
a prefix stands for, and one that notes name. `--typos` changes a share of the longer words of the texts by a letter.
"""

from __future__ import annotations

import argparse
import copy
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise, product
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression

from papers.kit import Figure, Table, bootstrap, interval_of, run_script
from papers.retrieval_sets import Collection, dense_hits, dense_score, read_collection
from papers.sts import sts_spearman
from pellucid import StaticEmbedder
from pellucid.core.arrays import l2_normalize
from pellucid.core.embedder import Vectors
from pellucid.evaluation.tasks import find_tasks, read_sts, read_table
from pellucid.static import fit_spelling, spelling
from pellucid.static.spelling import Speller, ngram_weights
from pellucid.text.corpus import read_texts
from pellucid.text.words import PARTIAL_WORD_THRESHOLD, PrefixRule, part_known, split_words

RETRIEVAL = ("cranfield", "cisi", "npl", "SciFact")
PAPER = PrefixRule()
STRICT = PrefixRule(3, 0.4)  # best by the sentences of the rules of three letters or more, and by SciFact's claims
_NOTHING = PrefixRule(1, 1.0)  # no prefix is a whole word: unknown words are left out
_BUCKETS = (1 << 15, 1 << 17, 1 << 20)  # of the ridge regressions
_TRIED = ((64, 0.5), (128, 1.0))  # neighbours and ridge of spelling
_ITERATIONS = 15
_LINKS = ("", "s", "es", "n")
_LETTERS, _SHARES = (1, 3, 4, 5), (0.0, 0.4, 0.5, 0.6, 0.7, 0.8)  # of rules for prefixes
_PARTS, _LONG, _FEW = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8), 8, 20  # of the table by letters; a cell of fewer is empty
_DRAWS = 5  # of training texts for a classification
_SENTENCES = 200_000  # of the corpus for speed
_REPEATS = 3

Options = argparse.Namespace
Figures = Iterator[tuple[str, Figure]]


def retrieval_set(data: Path, name: str, split: str = "test") -> Collection:
    """Return a retrieval set by its name."""
    return read_collection(next(task for task in find_tasks(data) if task.name == name), split)


def each_ndcg(model: StaticEmbedder, collection: Collection) -> npt.NDArray[np.float64]:
    """Return nDCG@10 x 100 of each query by the cosines of a model, float64 [queries]."""
    rows = model.encode(collection.queries), model.encode(collection.documents)
    return np.array(collection.each_ndcg(dense_hits(rows, collection)))


def _vectors(model: StaticEmbedder) -> Vectors:
    return model.word_vectors(np.arange(len(model.vocabulary)))


def _cosines(rows: Any, others: Any) -> npt.NDArray[Any]:
    """Return the cosine of each row with that in its place."""
    return np.asarray((l2_normalize(rows) * l2_normalize(others)).sum(axis=1))


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]], form: str) -> Table:
    """Return a table whose numbers are written by a format, nan as nothing."""
    return Table(columns, [[name, *("" if np.isnan(x) else format(x, form) for x in row)] for name, *row in rows])


def cut(model: StaticEmbedder, rows: npt.NDArray[np.int64]) -> StaticEmbedder:
    """Return a model of some of the words."""
    scales = None if model.scales is None else model.scales[rows]
    words = [model.vocabulary.words[row] for row in rows.tolist()]
    return StaticEmbedder(model.vocabulary.with_words(words), model.vectors[rows], scales)


# --- Held-out words ---------------------------------------------------------------------------------------------------


def of_pair(model: StaticEmbedder, pair: Sequence[str]) -> tuple[StaticEmbedder, set[str]]:
    """Return a model of the words of two columns of a file, and the words that the second has alone."""
    columns = read_table(Path(pair[0]), pair[1:])
    first, second = ({w.text.lower() for text in columns[name] for w in split_words(text)} for name in pair[1:])
    rows = [row for row, word in enumerate(model.vocabulary.words) if word.lower() in first | second]
    return cut(model, np.array(rows)), {word for word in model.vocabulary.words if word.lower() in second - first}


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


def words_table(model: StaticEmbedder, options: Options) -> Figures:
    """Yield the mean cosine of each method on held-out words, and on compounds among these."""
    model, among = of_pair(model, options.pair) if options.pair else (model, None)
    words, vectors = model.vocabulary.words, _vectors(model)
    out, rest = held_out(words, options.count, among)
    unknown, kept = [words[row] for row in out.tolist()], [words[row] for row in rest.tolist()]
    table, truth = l2_normalize(vectors[rest]), vectors[out]
    vocabulary = model.vocabulary.with_words(kept)
    known = {word.lower(): number for number, word in enumerate(kept)}
    speller = Speller(vocabulary, vectors[rest], None, ngram_weights(kept, vectors[rest]))
    lower = [word.lower() for word in unknown]
    compounds = np.array([len(by_split(known, word)) > 1 for word in lower])

    def found(find: Callable[[str], Iterable[int]]) -> npt.NDArray[Any]:
        rows = [list(find(word)) for word in unknown]
        return np.array([table[several].sum(axis=0) if several else np.zeros(table.shape[1]) for several in rows])

    def ways() -> Iterator[tuple[str, npt.NDArray[Any]]]:
        yield "the rule without spelling", found(lambda w: [at] if (at := vocabulary.row(w)) >= 0 else [])
        yield "longest known prefix", found(lambda w: by_prefix(known, w.lower()))
        yield "fewest known words", (split := found(lambda w: by_split(known, w.lower())))
        yield "spelling", (own := speller.predict_plainly(lower).sums)
        for neighbours, strength in _TRIED:
            with patch.multiple(spelling, NEIGHBOURS=neighbours, RIDGE=strength):
                yield f"spelling, {neighbours} neighbours, ridge {strength:g}", speller.predict_plainly(lower).sums
        parts = l2_normalize(split)
        yield "spelling and, by 0.1, the fewest known words", own + 0.1 * parts
        for buckets in _BUCKETS:
            yield f"ridge, {buckets:,} buckets", (also := ridge(kept, table, unknown, buckets))
        yield "spelling and, by 0.6 and 0.2, the last and the fewest known words", own + 0.6 * also + 0.2 * parts

    rows: list[tuple[str, float, float]] = [(f"({len(out):,} words, {compounds.sum():,} compounds)", np.nan, np.nan)]
    for way, predicted in ways():
        cosines = _cosines(predicted, truth)
        rows.append((way, float(cosines.mean()), float(cosines[compounds].mean())))
    yield "words", _table([options.model, "all", "compounds"], rows, ".3f")


# --- Prefixes ---------------------------------------------------------------------------------------------------------


class _HeldOut(NamedTuple):
    """Words held out, of any kind, a model of the others, and texts with a held-out word."""

    words: list[str]
    truth: Vectors  # [words, dimension] their vectors
    rest: StaticEmbedder
    texts: list[str]
    embeddings: Vectors  # [texts, dimension] those of the whole model

    def by_rule(self, rule: PrefixRule) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """Return the row of each word's prefix, -1 where none may stand for it, and the cosine to that."""
        vocabulary = self.rest.vocabulary.with_prefixes(rule)
        rows = np.array([vocabulary.row(word) for word in self.words], np.int64)
        return rows, _cosines(self.rest.word_vectors(np.maximum(rows, 0)), self.truth)


def hold_out(model: StaticEmbedder, data: Path, count: int) -> _HeldOut:
    """Hold out words of the last two thirds of a vocabulary: those that texts lack are rare, too."""
    words = model.vocabulary.words
    rng = np.random.default_rng(0)
    out = rng.permutation(np.arange(len(words) // 3, len(words)))[:count]
    unknown = [words[row] for row in out.tolist()]
    some = islice(read_texts(data / "raw_english" / "open_licence.txt.xz"), 0, None, 3)
    texts = [text for text in some if not set(unknown).isdisjoint(word.text.lower() for word in split_words(text))]
    rest = cut(model, np.setdiff1d(np.arange(len(words)), out))
    return _HeldOut(unknown, _vectors(model)[out], rest, texts, l2_normalize(model.encode(texts)))


def prefix_tables(model: StaticEmbedder, options: Options) -> Figures:
    """Yield how well prefixes represent held-out words, by letters and by rule."""
    held = hold_out(model, options.data, options.count)
    shares = (f"from {part:.0%}" for part in _PARTS)
    yield "prefix-letters", Table(["letters", "all", *shares], [[name, *cells] for name, cells in by_length(held)])
    rows = [
        [rule, *(f"{one:.3f}" for one in figures[:2]), f"{figures[2]:.4f}", figures[3]]
        for rule, figures in prefix_rules(model, held, options.data)
    ]
    title = f"{len(held.words):,} words, {len(held.texts):,} sentences"
    yield "prefix-rules", Table([title, "read", "cosine", "sentences", "SciFact"], rows)


def prefix_rules(model: StaticEmbedder, held: _HeldOut, data: Path) -> Iterator[tuple[str, list[float]]]:
    """Yield rules for prefixes, and other ways, each with four figures.

    These are the share of the held-out words that are read, the mean cosine of these to their vectors, that of texts
    with such a word to their embeddings by the whole model, and nDCG@10 of SciFact's training claims, no word held out.
    """
    claims = retrieval_set(data, "SciFact", "train")

    def figures(
        rest: StaticEmbedder, whole: StaticEmbedder, is_read: npt.NDArray[np.bool_], cosines: Any
    ) -> list[float]:
        of_texts = (l2_normalize(rest.encode(held.texts)) * held.embeddings).sum(axis=1)
        mean = cosines[is_read].mean() if is_read.any() else np.nan
        return [float(is_read.mean()), float(mean), float(of_texts.mean()), float(each_ndcg(whole, claims).mean())]

    for rule in (_NOTHING, *(PrefixRule(*parts) for parts in product(_LETTERS, _SHARES))):
        rows, cosines = held.by_rule(rule)
        models = held.rest.with_prefixes(*rule), model.with_prefixes(*rule)
        yield "left out" if rule == _NOTHING else _shown(rule), figures(*models, rows >= 0, cosines)
    for rule in (PAPER, STRICT):
        rest, whole = (fit_spelling(one.with_prefixes(*rule)) for one in (held.rest, model))
        assert rest._speller is not None
        vectors, parts = rest._speller.spell([word.lower() for word in held.words])
        yield f"spelling, {_shown(rule)}", figures(rest, whole, parts[:, 0] >= 0, _cosines(vectors, held.truth))


def _shown(rule: PrefixRule) -> str:
    return f"{rule.letters} letter{'s' * (rule.letters > 1)}, {rule.share:.0%} of the word"


def by_length(held: _HeldOut) -> Iterator[tuple[str, list[str]]]:
    """Yield numbers of letters and, for each part of a word that a prefix may be, the mean cosine and how many."""
    rows, cosines = held.by_rule(PAPER)
    letters = np.array([len(held.rest.vocabulary.words[row]) for row in rows.tolist()])
    share = letters / np.array(list(map(len, held.words)))
    for length in range(1, _LONG + 1):
        same = (rows >= 0) & (letters == length if length < _LONG else letters >= length)
        cells = [same & (share >= low) & (share < high) for low, high in pairwise((*_PARTS, 1.0))]
        shown = [f"{cosines[cell].mean():.2f} ({cell.sum()})" if cell.sum() >= _FEW else "" for cell in [same, *cells]]
        yield f"{length}{' or more' * (length == _LONG)}", shown


def prefix_use_tables(model: StaticEmbedder, options: Options) -> Figures:
    """Yield the scores of rules for prefixes on the test sets, and their gains in retrieval, paired over queries."""
    paper, strict, nothing = (model.with_prefixes(*rule) for rule in (PAPER, STRICT, _NOTHING))
    models = {
        "the paper's rule": paper,
        _shown(STRICT): strict,
        "left out": nothing,
        "spelling, the paper's rule": fit_spelling(paper),
        f"spelling, {_shown(STRICT)}": fit_spelling(strict),
    }
    scores = in_use(list(models.values()), options.data, options.typos)
    yield "prefix-scores", _table([options.model, *models], ((name, *row) for name, row in scores), ".2f")
    rows, drawn = [], []
    for name in RETRIEVAL:
        first, *others = (each_ndcg(one, retrieval_set(options.data, name)) for one in models.values())
        drawn.append([bootstrap(other - first, lambda queries: queries.mean(axis=1)) for other in others])
        rows.append([name, *(interval_of(gain).with_verdict() for gain in drawn[-1])])
    rows.append(["mean", *(interval_of(np.mean(several, axis=0)).with_verdict() for several in zip(*drawn))])
    yield "prefix-gains", Table(["more than by the paper's rule", *list(models)[1:]], rows)


def prefix_speed_table(model: StaticEmbedder, options: Options) -> Figures:
    """Yield the processor time by the stricter rule in parts of that by the paper's, in turns."""
    rows = []
    for name, texts in corpora(options.data):
        strict, paper = (_started(model.with_prefixes(*rule)) for rule in (STRICT, PAPER))
        ratios = []
        for turn in range(2 * _REPEATS + 1):
            pair = (strict, paper) if turn % 2 else (paper, strict)
            seconds = {id(one): _seconds(one, texts) for one in pair}
            ratios.append(seconds[id(strict)] / seconds[id(paper)])
        rows.append([name, f"{np.median(ratios):.2f}"])
    yield "prefix-speed", Table(["texts", "of the time by the paper's rule"], rows)


def notes_table(model: StaticEmbedder, options: Options) -> Figures:
    """Yield test sets with shares: of words read as a prefix, of these named in notes, and of texts with a note."""
    vocabulary, rows = model.vocabulary, []
    for name in ("STSBenchmark", *RETRIEVAL):
        if name in RETRIEVAL:
            texts = retrieval_set(options.data, name).documents
        else:
            pairs = read_sts(next(task for task in find_tasks(options.data) if task.name == name))
            texts = [*pairs.sentences1, *pairs.sentences2]
        count, parts = 0, []
        for text in texts:
            words = [word.text for word in vocabulary.split(text)]
            count += len(words)
            others = [(word, vocabulary.row(word)) for word in words if not vocabulary.has_row(word)]
            parts.append([part_known(word.lower(), vocabulary.words[row]) for word, row in others if row >= 0])
        every = list(chain(*parts))
        named = sum(part <= PARTIAL_WORD_THRESHOLD for part in every)
        with_note = sum(min(several, default=1.0) <= PARTIAL_WORD_THRESHOLD for several in parts)
        rows.append((name, len(every) / count, named / len(every), with_note / len(texts)))
    columns = ["texts", "words read as a prefix", "of these named in notes", "texts with a note"]
    yield "prefix-notes", _table(columns, rows, ".1%")


# --- In use -----------------------------------------------------------------------------------------------------------


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
    for name in RETRIEVAL:
        collection, encode = retrieval_set(data, name), [encoder(model) for model in models]
        yield name, [dense_score((one(collection.queries), one(collection.documents)), collection) for one in encode]
    for folder in [] if typos else sorted((data / "classification").iterdir()):
        yield folder.name, [accuracy(encoder(model), folder) for model in models]


def use_table(model: StaticEmbedder, options: Options) -> Figures:
    """Yield the scores on the test sets without and with spelling."""
    scores = in_use([model, fit_spelling(model)], options.data, options.typos)
    yield "use", _table([options.model, "without", "with"], ((name, *pair) for name, pair in scores), ".2f")


def corpora(data: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield real texts: documents of two test sets, and sentences of the English corpus."""
    for name in ("SciFact", "npl"):
        yield f"{name}, documents", retrieval_set(data, name).documents
    yield "corpus, sentences", list(islice(read_texts(data / "raw_english" / "open_licence.txt.xz"), _SENTENCES))


def speed_table(model: StaticEmbedder, options: Options) -> Figures:
    """Yield texts a second without and with spelling, and the time of a new word."""
    spelled, has_row, rows = fit_spelling(model), model.vocabulary.has_row, list[tuple[str, float, float]]()
    for name, texts in corpora(options.data):
        new = sum(not has_row(word) for word in {word.text.lower() for text in texts for word in split_words(text)})
        models = [_started(one) for one in (model, spelled)]
        for what, repeats in (("first time", 1), ("again", _REPEATS)):
            rates = [len(texts) / min(_seconds(one, texts) for _ in range(repeats)) for one in models]
            rows.append((f"{len(texts):,} {name}, {new:,} new words, {what}", rates[0], rates[1]))
    rare = [word for word in model.vocabulary.words[len(model.vocabulary) // 2 :] if word.isalpha() and len(word) > 3]
    sample = [f"{word}x" for word in rare[:200]]
    vectors = _vectors(model)
    speller = Speller(model.vocabulary, vectors, None, ngram_weights(model.vocabulary.words, vectors))
    speller.predict_plainly(sample[:1])  # makes its index
    start = time.process_time()
    speller.predict_plainly(sample)
    readable, compiled = time.process_time() - start, _seconds(_started(spelled), sample)
    rows += [
        (f"microseconds a new word, {way}", np.nan, 1e6 * seconds / len(sample))
        for way, seconds in (("compiled", compiled), ("readable", readable))
    ]
    yield "speed", _table([options.model, "without", "with"], rows, ",.0f")


def _started(model: StaticEmbedder) -> StaticEmbedder:
    """Return a copy that has compiled and indexed what it needs, and knows no unknown words yet."""
    fresh = copy.copy(model)
    fresh.encode(["the unknownable words " * 50_000])
    return fresh


def _seconds(model: StaticEmbedder, texts: list[str]) -> float:
    start = time.process_time()
    model.encode(texts)
    return time.process_time() - start


PARTS = {
    "words": words_table,
    "use": use_table,
    "speed": speed_table,
    "prefixes": prefix_tables,
    "prefix-use": prefix_use_tables,
    "prefix-speed": prefix_speed_table,
    "prefix-notes": notes_table,
}


def measure(options: Options) -> Figures:
    """Yield the tables of a part."""
    model = StaticEmbedder.from_pretrained(options.model)
    if model.spelling is not None:
        model = StaticEmbedder(model.vocabulary, model.vectors, model.scales)
    if options.words:
        model = cut(model, np.arange(options.words))
    yield from PARTS[options.part](model, options)


if __name__ == "__main__":
    run_script(
        measure,
        {
            "model": {},
            "part": {"choices": PARTS},
            "--count": {"type": int, "default": 2_000, "help": "words held out"},
            "--pair": {"nargs": 3, "metavar": ("FILE", "FIRST", "SECOND"), "help": "two languages, for words"},
            "--words": {"type": int, "help": "first words of the vocabulary alone, for use"},
            "--typos": {"type": float, "default": 0.0, "help": "share of the words, for use"},
        },
        data="sts/, retrieval/ and classification/",
    )
