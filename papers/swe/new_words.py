"""Words of 2015 to 2026: does static-en place them among words of their kind, and what gives them a vector?

    python -m papers.swe.new_words --data shared/data [--write]

`new_words.tsv` has 200 words with five words each that belong near them, written by hand before anything was measured.
A word is right if the mean of its cosines to its five words is higher than to the five words of 19 in 20 other words of
the test (those that share one of the five are left out), found if one of its five is among the ten words nearest to it,
of every fourth of the vocabulary and all fives. A word without a vector is neither. Half of the words are for choosing
what tells vectors that find from others, and its threshold; the others for measuring it alone.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.metrics import roc_auc_score

from papers.kit import Figure, Table, mean_interval, run_script
from papers.sts import sts_spearman
from papers.swe.spelling import RETRIEVAL, STRICT, each_ndcg, retrieval_set
from pellucid import StaticEmbedder
from pellucid.core.arrays import l2_normalize
from pellucid.evaluation.tasks import find_tasks, read_sts, read_table
from pellucid.static import add_words, fit_spelling
from pellucid.text.corpus import read_texts
from recipes.static_en import open_teacher

_BETTER = 0.95  # share of the controls whose words are farther away than a right word's own
_EACH, _FIRST = 4, 10  # every so many words are looked through, for the nearest
_PAIRS = (
    ("the teacher alone", "the paper's rule for prefixes"), ("the teacher alone", "spelling"),
    ("spelling", "the paper's rule for prefixes"), ("the stricter rule for prefixes", "the paper's rule for prefixes"),
)  # fmt: skip
_OCCURRENCES = 1
_SENTENCES = 5_000  # of the corpus, beside those with a new word, for the map
_LETTERS = re.compile(r"\w+")
_NEAR = 10  # neighbours whose letters are compared
_TEMPLATES = ("What is {}?", "People talk about {}.", "I read an article on {} yesterday.", "{} is new.")

Floats = npt.NDArray[np.float64]
Embed = Any
"""A function from words to vectors [words, dimension]; zeros for a word that it does not know."""


class Judged(NamedTuple):
    """Which words have a vector, which are right, and which are found; see above."""

    read: npt.NDArray[np.bool_]
    right: npt.NDArray[np.bool_]
    found: npt.NDArray[np.bool_]


class Words(NamedTuple):
    """The test: words, the five that belong near each, and which are for measuring alone."""

    words: list[str]
    near: list[list[str]]
    kept: npt.NDArray[np.bool_]

    @classmethod
    def read(cls) -> Words:
        """Read the words."""
        found = read_table(Path(__file__).with_suffix(".tsv"), ["word", "half", "neighbours"])
        kept = np.array([half == "measuring" for half in found["half"]])
        return cls(found["word"], [near.split() for near in found["neighbours"]], kept)

    def judged(self, every: Sequence[str], embed: Embed, near: Embed | None = None, first: int = _FIRST) -> Judged:
        """Judge the vectors that `embed` gives the words, beside those that `near` gives `every` known one."""
        number = {word: place for place, word in enumerate(every)}
        cosines = l2_normalize(embed(self.words)) @ l2_normalize((near or embed)(every)).T
        read = cosines.any(axis=1)
        sets = np.array([[number[word] for word in five] for five in self.near])
        for place, word in enumerate(self.words):  # the word itself is no neighbour
            if word in number:
                cosines[place, number[word]] = -1
        means = cosines[:, sets].mean(axis=2)  # [words, words whose five they are]
        apart = np.array([[set(one).isdisjoint(other) for other in self.near] for one in self.near])
        farther = (means < np.diag(means)[:, None]) & apart
        share = farther.sum(axis=1) / apart.sum(axis=1)
        last = -np.partition(-cosines, first - 1, axis=1)[:, first - 1]
        found = np.take_along_axis(cosines, sets, axis=1).max(axis=1) >= last
        return Judged(read, (share >= _BETTER) & read, found & read)


class Measure(NamedTuple):
    """What may tell right vectors from wrong ones: higher for right ones."""

    name: str
    values: Floats


def measures(
    words: Sequence[str], vectors: Any, spelled: StaticEmbedder, model: StaticEmbedder, teacher: Any
) -> list[Measure]:
    """Return measures of words and the vectors [words, d] that the teacher alone gives them in the model's space."""
    every = model.vocabulary.words
    pieces = [[piece.removeprefix("##") for piece in teacher.tokenizer.tokenize(word)] for word in words]
    own = l2_normalize(teacher.encode(list(words)))
    parts = l2_normalize(np.array([teacher.encode(cut).mean(axis=0) for cut in pieces]))
    cosines = l2_normalize(vectors) @ l2_normalize(model.word_vectors(np.arange(len(every)))).T
    near = np.argsort(-cosines, axis=1)[:, :_NEAR]
    overlap = [np.mean([_alike(word, every[n]) for n in row]) for word, row in zip(words, near.tolist())]
    read = np.stack([teacher.encode([form.format(word) for word in words]) for form in _TEMPLATES])
    read = l2_normalize((read - read.mean(axis=1, keepdims=True)).reshape(-1, read.shape[2])).reshape(read.shape)
    consistent = np.mean([(a * b).sum(axis=1) for n, a in enumerate(read) for b in read[:n]], axis=0)
    ordered = np.take_along_axis(cosines, near, axis=1)
    found = {
        "few pieces": [-len(cut) for cut in pieces],
        "longest piece, share of the word": [max(map(len, cut)) / len(word) for cut, word in zip(pieces, words)],
        "neighbours spelled otherwise": -np.array(overlap),
        "neighbours are common words": -np.log(near + 1).mean(axis=1),
        "cosine of the nearest neighbour": ordered[:, 0],
        "the same, less that of the tenth": ordered[:, 0] - ordered[:, -1],
        "unlike the mean of its pieces": -(own * parts).sum(axis=1),
        "the same in four templates": consistent,
        "cosine to the vector by spelling": (l2_normalize(vectors) * l2_normalize(spelled.encode(list(words)))).sum(
            axis=1
        ),
    }
    return [Measure(name, np.asarray(values, np.float64)) for name, values in found.items()]


def _alike(one: str, other: str) -> float:
    """Return how many trigrams two words share, of those of the shorter (Dice would punish long ones)."""
    first, second = ({f"<{w}>"[n : n + 3] for n in range(len(w))} for w in (one, other))
    return len(first & second) / min(len(first), len(second))


def threshold(values: Floats, right: npt.NDArray[np.bool_]) -> float:
    """Return the value from which on a vector passes that judges most words rightly."""
    cuts = np.unique(values)
    return float(max(cuts, key=lambda cut: ((values >= cut) == right).mean()))


def with_context(model: StaticEmbedder, words: Sequence[str], teacher: Any, corpus: Path) -> StaticEmbedder:
    """Return the model with those of the words that the corpus has often enough."""
    wanted, found = set(words), Counter[str]()
    texts: list[str] = []
    for number, text in enumerate(read_texts(corpus)):
        here = wanted.intersection(_LETTERS.findall(text.lower()))
        found.update(here)
        if here or number < _SENTENCES:
            texts.append(text)
    print("in the corpus:", {word: number for word, number in found.most_common()})
    often = [word for word in words if found[word] >= _OCCURRENCES]
    return add_words(model, often, teacher, texts, show_progress_bar=False) if often else model


def embedder(model: StaticEmbedder, only: Iterable[str] | None = None) -> Embed:
    """Return the vectors of words in a model, of some alone."""
    some = None if only is None else set(only)

    def embed(words: Sequence[str]) -> Any:
        vectors = np.array(model.encode(list(words)))
        if some is not None:
            vectors[[word not in some for word in words]] = 0
        return vectors

    return embed


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield what each method finds, the measures, and the test sets with the words."""
    test, teacher = Words.read(), open_teacher()
    model = StaticEmbedder.from_pretrained("static-en")
    new = np.array([not model.vocabulary.has_row(word) for word in test.words])
    unknown = [word for word, is_new in zip(test.words, new) if is_new]
    alone = add_words(model, unknown, teacher, show_progress_bar=False)
    spelled = fit_spelling(model)
    context = with_context(model, unknown, teacher, options.data / "raw_english" / "open_licence.txt.xz")
    by_known = embedder(model)
    methods = {
        "MiniLM itself": (teacher.encode,),
        "the paper's rule for prefixes": (by_known, by_known),
        "the stricter rule for prefixes": (embedder(model.with_prefixes(*STRICT)), by_known),
        "spelling": (embedder(spelled), by_known),
        "the teacher alone": (embedder(alone), by_known),
        "the sum of both": (lambda words: embedder(alone)(words) + embedder(spelled)(words), by_known),
        "the teacher in context": (embedder(context, context.vocabulary.words), by_known),
    }
    fives = list(dict.fromkeys(word for five in test.near for word in five))
    every = list(dict.fromkeys([*fives, *model.vocabulary.words[::_EACH]]))
    judged = {name: test.judged(every, *method) for name, method in methods.items()}
    floor = test.judged(every, lambda words: embedder(alone)([*words[1:], words[0]]), by_known)
    judged["floor: the vector of another word"] = floor
    parts = {"known": ~new, "unknown": new, "choosing": new & ~test.kept, "measuring": new & test.kept}
    yield (
        "counts",
        f"{(~new).sum()} words are known, {new.sum()} unknown, of these {(new & test.kept).sum()} for measuring.",
    )
    rows = [
        [name, *(f"{which[part].mean():.0%}" for part in parts.values() for which in each)]
        for name, each in judged.items()
    ]
    yield "methods", Table(["way", *(f"{name}: {what}" for name in parts for what in ("read", "right", "found"))], rows)
    yield "differences", differences(judged, {name: parts[name] for name in ("choosing", "measuring")})
    yield "definitions", definitions(test, new, dict(list(methods.items())[1:]), fives, model.vocabulary.words)
    vectors = alone.encode(unknown)
    table, passes = judge(
        test, new, judged["the teacher alone"].found, measures(unknown, vectors, spelled, model, teacher)
    )
    yield "measures", table
    yield "in-use", in_use(model, alone, unknown, options.data)
    print("in context:", *(word for word in unknown if word in context.vocabulary))
    print("pass:", *(word for word, good in zip(unknown, passes) if good))


def differences(judged: dict[str, Judged], halves: dict[str, npt.NDArray[np.bool_]]) -> Table:
    """Return the table of what a way has more than another, paired over the unknown words of each half."""
    rows = []
    for better, worse in _PAIRS:
        cells = []
        for half in halves.values():
            for one, other in zip(judged[better][1:], judged[worse][1:]):
                gain = 100.0 * (one[half].astype(float) - other[half])
                cells.append(mean_interval(gain).with_verdict())
        rows.append([f"{better} - {worse}", *cells])
    return Table(["more words", *(f"{half}: {what}" for half in halves for what in ("right", "found"))], rows)


def definitions(
    test: Words, new: npt.NDArray[np.bool_], ways: dict[str, Any], fives: Sequence[str], words: Sequence[str]
) -> Table:
    """Return the table of the unknown words found by other definitions of found; the teacher itself is too slow."""
    several = {
        f"{_FIRST} of all fives": (fives, _FIRST), "25 of all words": (words, 25), "100 of all words": (words, 100),
        f"{_FIRST} of all words": (words, _FIRST),
    }  # fmt: skip
    rows = []
    for name, (embed, near) in ways.items():
        found = [test.judged(every, embed, near, first).found[new] for every, first in several.values()]
        rows.append([name, *(f"{part.mean():.0%}" for part in found)])
    return Table(["unknown words found, if among the nearest", *several], rows)


def in_use(model: StaticEmbedder, grown: StaticEmbedder, words: Sequence[str], data: Path) -> Table:
    """Return the table of the test sets without and with the words, and of how many texts hold one."""
    some = set(words)

    def holding(texts: Iterable[str]) -> str:
        held = [not some.isdisjoint(_LETTERS.findall(text.lower())) for text in texts]
        return f"{sum(held):,} of {len(held):,}"

    without, with_words = (sts_spearman(one.encode, data) for one in (model, grown))
    rows = []
    for task in find_tasks(data):
        if task.name in without:
            pairs = read_sts(task)
            texts = holding([*pairs.sentences1, *pairs.sentences2])
            rows.append([task.name, f"{without[task.name]:.2f}", f"{with_words[task.name]:.2f}", "", texts])
    for name in RETRIEVAL:
        found = retrieval_set(data, name)
        scores = [each_ndcg(one, found) for one in (model, grown)]
        gain = mean_interval(scores[1] - scores[0])
        means = [f"{score.mean():.2f}" for score in scores]
        rows.append([name, *means, gain.signed(), holding([*found.queries, *found.documents])])
    return Table(["test set", "static-en", f"with {len(words)} words", "gain", "texts with one"], rows)


def judge(
    test: Words, new: npt.NDArray[np.bool_], right: npt.NDArray[np.bool_], found: Sequence[Measure]
) -> tuple[Table, npt.NDArray[np.bool_]]:
    """Return the table of the measures, and which unknown words pass by the best one of the first half."""
    right, kept = right[new], test.kept[new]
    rows, best = [], (-1.0, np.zeros(len(right), bool))
    for measure in found:
        values = measure.values
        cut = threshold(values[~kept], right[~kept])
        passes = values >= cut
        judged = [(passes == right)[part].mean() for part in (~kept, kept)]
        areas = [roc_auc_score(right[part], values[part]) for part in (~kept, kept)]
        precise = f"{right[kept & passes].mean():.0%}" if (kept & passes).any() else ""
        share = (passes & right & kept).sum() / max((right & kept).sum(), 1)
        rows.append([measure.name, f"{areas[0]:.2f}", f"{cut:.2f}", f"{judged[0]:.0%}", f"{areas[1]:.2f}",
                     f"{judged[1]:.0%}", f"{passes[kept].mean():.0%}", precise, f"{share:.0%}"])  # fmt: skip
        best = max(best, (areas[0], passes), key=lambda pair: pair[0])
    head = ["measure", "AUC, choosing", "threshold", "judged rightly, choosing", "AUC, measuring",
            "judged rightly, measuring", "pass", "of these found", "of those found"]  # fmt: skip
    rows.append(["all pass", "", "", f"{right[~kept].mean():.0%}", "", f"{right[kept].mean():.0%}", "100%",
                 f"{right[kept].mean():.0%}", "100%"])  # fmt: skip
    return Table(head, rows), best[1]


if __name__ == "__main__":
    run_script(measure, data="raw_english/", threads=1)
