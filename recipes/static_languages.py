"""Make `static-en-de` and its like: the bundled static-en with the words of further languages.

    python -m recipes.static_languages --parallel DATA/parallel/tatoeba --languages de --output static-en-de
    python -m recipes.static_languages --parallel DATA/parallel/tatoeba --languages de fr zh ja --output five-languages

The folder holds en-de.tsv.xz and so on: Tatoeba's sentences (CC BY 2.0 FR, by way of manythings.org/anki) with those of
the test sets left out. A language takes one to two minutes on one core.

`add_languages` needs no multilingual teacher: the vector of a word of a new language is the mean of the known
translations of the sentences it occurs in. In the paper it is the mean of a word's contexts; here translations take the
place of contexts. Tuning on the same pairs follows.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import pellucid
from pellucid import StaticEmbedder
from pellucid.core.arrays import l2_normalize
from pellucid.core.embedder import Vectors
from pellucid.errors import CorpusError, InputError, check_integer
from pellucid.static import TuningSettings
from pellucid.static.bags import Bags
from pellucid.static.embedder import static_model
from pellucid.static.training.extraction import Extraction
from pellucid.static.training.parallel import Languages, Parallel, read_parallel
from pellucid.static.training.segmentation import word_finder
from pellucid.static.training.tuning import PairBags, scale_of, tune_on_pairs
from pellucid.text.unicode import lowercase, unspaced_run
from pellucid.text.words import Vocabulary

_BLOCK = 65_536  # sentence pairs embedded at a time
_SHRINKAGE = 2.0  # a word of n occurrences keeps n / (n + 2) of its vector: few sentences are weak evidence

Floats = npt.NDArray[np.float64]

STEPS = {"de": 2_000, "fr": 2_000, "zh": 1_000, "ja": 1_000}
"""Batches by language, about as many as the loss on held-out pairs goes down for."""


def make(parallel: Path, languages: list[str]) -> StaticEmbedder:
    """Return static-en with the words of `languages`; `parallel` is the folder of the sentence pairs."""
    english = pellucid.load("static-en")
    assert isinstance(english, StaticEmbedder)
    steps = sum(STEPS.get(language, 2_000) for language in languages)
    tuning = TuningSettings(steps=steps, learning_rate=0.02, evaluate_every=250)
    files = {("en", language): parallel / f"en-{language}.tsv.xz" for language in languages}
    return add_languages(english, files, tuning=tuning)


class _Pairs(NamedTuple):
    """The sentence pairs of the known language and a new one."""

    codes: Languages
    known_sentences: Sequence[str]
    new_sentences: Sequence[str]

    def bags(self, vocabulary: Vocabulary) -> PairBags:
        """Return them as rows of the vocabulary."""
        return PairBags("-".join(self.codes), *(Bags.from_sentences(side, vocabulary) for side in self[1:]))


def add_languages(
    model: StaticEmbedder,
    parallel: Parallel,
    *,
    known_language: str = "en",
    vocabulary: int = 50_000,
    min_count: int = 2,
    tuning: TuningSettings | None = None,
    show_progress_bar: bool = True,
) -> StaticEmbedder:
    """Return `model` with the words of further languages.

    A word that the model knows already ("taxi", but also German "die") becomes the average of what it is in each
    language, weighted by how frequent it is there.

    Args:
        model: a static model of the known language.
        parallel: translated sentences by pair of codes, one of them `known_language`.
        known_language: the code of the language that the model knows.
        vocabulary: words of each new language at most, the most frequent.
        min_count: a word must occur this often. The single characters of scripts without spaces are taken in any case
            and beyond `vocabulary`, so that every text of such a script can be cut.
        tuning: how translations are aligned afterwards; None for the defaults.
        show_progress_bar: show bars for what takes longer than two seconds.

    Returns:
        A model with a float32 table: the words of `model` in their rows, then the new ones. Its dimensions are
        unnamed: what was at their ends may have moved.

    Raises:
        CorpusError: parallel text that cannot be read or lacks translations, or of which too little has a known word on
            both sides.
        InputError: no static model, a pair without the known language, or no pair.
        MissingExtraError: torch, or the segmenter of a language, is not installed.
    """
    static_model(model, "adding languages")
    tuning = tuning or TuningSettings()
    texts = [_read(codes, files, known_language) for codes, files in parallel.items()]
    if not texts:
        raise InputError("there is no parallel text; give some, such as {('en', 'de'): 'pairs.tsv'}")
    cased = model.vocabulary.cased
    frequent = [_frequent(pairs.codes[1], pairs.new_sentences, vocabulary, min_count, cased) for pairs in texts]
    new = dict.fromkeys(word for language_words in frequent for word in language_words if word not in model.vocabulary)
    known = model.vocabulary
    grown = Vocabulary([*known.words, *new], known.subwords)
    bags = [pairs.bags(grown) for pairs in texts]
    vectors = _joined(model, texts, bags, len(grown))
    if tuning.steps:
        vectors = tune_on_pairs(vectors, bags, tuning, show_progress_bar=show_progress_bar)
    return StaticEmbedder(grown, vectors)


def anchored_words(
    encode: Callable[[list[str]], Any],
    file: str | os.PathLike[str],
    languages: Languages,
    *,
    vocabulary: int = 50_000,
    min_count: int = 2,
) -> dict[str, Extraction]:
    """Return the words of two languages, by code, with vectors in the space of a teacher that knows the first."""
    # The words of both languages are the means of the teacher's vectors (`encode`: texts in, float vectors [texts, D]
    # out) of the sentence pairs they occur in. `join_languages` takes them.
    pairs = _read(languages, file, languages[0])
    anchors = _anchors(encode, pairs)
    brought = {}
    for code, sentences in zip(languages, (pairs.known_sentences, pairs.new_sentences), strict=True):
        language_vocabulary = Vocabulary(_frequent(code, sentences, vocabulary, min_count, cased=False))
        counts, means = _means(Bags.from_sentences(sentences, language_vocabulary), anchors, len(language_vocabulary))
        brought[code] = Extraction(language_vocabulary.words, counts, means.astype(np.float32), sentences)
    return brought


def _read(codes: Languages, file: str | os.PathLike[str], known_language: str) -> _Pairs:
    """Return the sentence pairs of a file, the known language first."""
    if known_language not in codes or codes[0] == codes[1]:
        raise InputError(
            f"parallel text {'-'.join(codes)} is not of {known_language!r} and another language; a language is added "
            f"through its translations into {known_language!r}, or give with known_language= the language that the "
            "model knows"
        )
    pairs = list(read_parallel(file, codes))
    if not pairs:
        raise CorpusError(f"{file} holds no sentence pair for {'-'.join(codes)}")
    sides = dict(zip(codes, zip(*pairs, strict=True), strict=True))
    new_language = codes[1] if codes[0] == known_language else codes[0]
    return _Pairs((known_language, new_language), sides[known_language], sides[new_language])


def _frequent(language: str, sentences: Sequence[str], max_words: int, min_count: int, cased: bool) -> list[str]:
    """Return the words of a new language, most frequent first, in lower case unless the known words are cased."""
    for name, value in (("vocabulary", max_words), ("min_count", min_count)):
        check_integer(name, value)
    find = word_finder(language)
    counts: Counter[str] = Counter()
    for sentence in sentences:
        counts.update(word.text if cased else lowercase(word.text) for word in find(sentence))
    characters = dict.fromkeys(c for word in counts for c in word if unspaced_run.match(c))
    frequent = [word for word, count in counts.most_common() if count >= min_count]
    return [*dict.fromkeys([*frequent[:max_words], *characters])]


def _joined(model: StaticEmbedder, texts: Sequence[_Pairs], bags: Sequence[PairBags], words: int) -> Vectors:
    """Return the table of so many words, float32 [words, d]: each the average of what it is in the languages."""
    model_vectors = model.word_vectors(np.arange(len(model.vocabulary))).astype(np.float64)
    total, weight = np.zeros((words, model_vectors.shape[1])), np.zeros(words)
    for pairs, pair in zip(texts, bags, strict=True):
        anchors = _anchors(model.encode, pairs)
        counts, means = _means(pair.second, anchors, words)
        centred = (means - anchors.mean(axis=0)) * (counts / (counts + _SHRINKAGE))[:, None]
        seen = counts > 0
        centred[seen] *= scale_of(model_vectors) / scale_of(centred[seen])
        share = counts / max(counts.sum(), 1)
        total[seen] += share[seen, None] * centred[seen]
        weight += share
    model_counts = np.bincount(np.concatenate([pair.first.rows for pair in bags]), minlength=words)[
        : len(model_vectors)
    ]
    share = np.maximum(
        model_counts / max(model_counts.sum(), 1), 1e-12
    )  # a word that never occurs here is its own if no one else's
    total[: len(model_vectors)] += share[:, None] * model_vectors
    weight[: len(model_vectors)] += share
    vectors: Vectors = (total / np.maximum(weight, 1e-300)[:, None]).astype(np.float32)
    return vectors


def _means(bags: Bags, anchors: Floats, words: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return how often each word occurs, and the mean of the anchors of the sentences it occurs in [words, d]."""
    from scipy.sparse import csr_matrix

    ones = np.ones(len(bags.rows))
    occurs = csr_matrix((ones, bags.rows, bags.offsets), shape=(len(bags), words))
    counts = np.bincount(bags.rows, minlength=words)
    return counts, np.asarray(occurs.T @ anchors) / np.maximum(counts, 1)[:, None]


def _anchors(encode: Callable[[list[str]], Any], pairs: _Pairs) -> Floats:
    """Return the vectors of the known sides at length 1."""
    blocks = [pairs.known_sentences[start : start + _BLOCK] for start in range(0, len(pairs.known_sentences), _BLOCK)]
    return np.concatenate([l2_normalize(encode(list(block)), np.float64) for block in blocks])


def main() -> None:
    """Read the arguments and make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parallel", type=Path, required=True, help="folder of en-de.tsv.xz and so on")
    parser.add_argument("--languages", nargs="+", default=list(STEPS), help="codes, such as de fr")
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    arguments = parser.parse_args()
    model = make(arguments.parallel, arguments.languages)
    model.save_pretrained(arguments.output, dtype="int8")
    print(f"wrote {arguments.output}: {len(model.vocabulary):,} words")


if __name__ == "__main__":
    main()
