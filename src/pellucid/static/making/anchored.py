"""Adding languages to a static model from translated sentences alone, without a multilingual teacher.

The vector of a word of a new language is the mean of the known translations of the sentences it occurs in. In the SWE
paper it is the mean of a word's contexts (section 3.1); here translations take the place of contexts. Contrastive
tuning on the same pairs follows (section 3.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.base import Vectors, unit_rows
from pellucid.errors import CorpusError, InputError
from pellucid.static.bags import Bags
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.making.bilingual import Languages, LanguageWords, Parallel, ParallelFiles, named, read_parallel
from pellucid.static.making.segmentation import check_script, word_finder
from pellucid.static.making.training import PairBags, TranslationSettings, scale_of, tune_on_pairs, tuning_folder
from pellucid.text import Vocabulary, unspaced_run

Floats = npt.NDArray[np.float64]

_BLOCK = 65_536  # sentence pairs embedded at a time


@dataclass(frozen=True)
class AnchoringSettings:
    """How languages are added.

    Attributes:
        vocabulary: words of each new language at most, the most frequent.
        min_count: a word must occur this often. The single characters of scripts without spaces are taken in any case
            and beyond `vocabulary`, so that every text of such a script can be cut.
        shrinkage: a word of n occurrences keeps n / (n + shrinkage) of its vector: few sentences say little about it.
        translation: how translations are aligned afterwards.
    """

    vocabulary: int = 50_000
    min_count: int = 2
    shrinkage: float = 2.0
    translation: TranslationSettings = field(default_factory=TranslationSettings)

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InputError: a value is not allowed; the message names it.
        """
        for name, least in (("vocabulary", 1), ("min_count", 1), ("shrinkage", 0)):
            if not getattr(self, name) >= least:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least {least}")


class _Pairs(NamedTuple):
    """The sentence pairs of the known language and a new one."""

    codes: Languages
    known: Sequence[str]
    new: Sequence[str]


def add_languages(
    model: StaticEmbedder,
    parallel: Parallel,
    *,
    known: str = "en",
    settings: AnchoringSettings | None = None,
    work_dir: str | Path | None = None,
    show_progress_bar: bool = True,
) -> StaticEmbedder:
    """Return `model` with the words of further languages.

    A word that the model knows already ("taxi", but also German "die") becomes the average of what it is in each
    language, weighted by how frequent it is there.

    Args:
        model: a static model of the known language.
        parallel: translated sentences by pair of codes, one of them `known`.
        known: the code of the language that the model knows.
        settings: None for the defaults.
        work_dir: where the tuning keeps its state, so that the same call resumes an interrupted run, with the same
            model and text, which is checked; None keeps none.
        show_progress_bar: show bars for what takes longer than two seconds.

    Returns:
        A model with a float32 table: the words of `model` in their rows, then the new ones. Its dimensions are
        unnamed: what was at their ends may have moved.

    Raises:
        CorpusError: parallel text that cannot be read, is misaligned, is in a script its language is not cut into words
            in, or of which too little has a known word on both sides.
        InputError: no static model, a pair without the known language, no pair, or a `work_dir` that belongs to another
            run or other text, or in which a run is at work.
        ModelFolderError: the state in `work_dir` is damaged.
        MissingExtraError: torch, or the segmenter of a language, is not installed.
    """
    if not isinstance(model, StaticEmbedder):
        raise InputError(f"languages are added to a static model, not to a {type(model).__name__}")
    settings = settings or AnchoringSettings()
    texts = [_read(codes, files, known) for codes, files in parallel.items()]
    if not texts:
        raise InputError("there is no parallel text; give some, such as {('en', 'de'): 'pairs.tsv'}")
    new_words = {pairs.codes: _frequent(pairs, model.vocabulary, settings) for pairs in texts}
    words = list(model.vocabulary.words)
    words += dict.fromkeys(word for found in new_words.values() for word in found if word not in model.vocabulary)
    vocabulary = Vocabulary(words, model.vocabulary.subwords)
    bags = [
        PairBags("-".join(pairs.codes), Bags.of(pairs.known, vocabulary), Bags.of(pairs.new, vocabulary))
        for pairs in texts
    ]
    vectors = _joined(model, texts, bags, len(words), settings.shrinkage)
    if settings.translation.steps:
        names = {"-".join(codes): named(files) for codes, files in parallel.items()}
        folder = None if work_dir is None else Path(work_dir)
        with tuning_folder(folder, settings.translation, {"anchoring": asdict(settings), "texts": names}) as work:
            if work is not None:
                for name, pairs in zip(names, texts, strict=True):
                    work.note_texts(name, map("\t".join, zip(pairs.known, pairs.new, strict=True)), names[name])
            vectors = tune_on_pairs(vectors, bags, settings.translation, work=work, show_progress_bar=show_progress_bar)
    return StaticEmbedder(vocabulary, vectors)


def anchored_words(
    encode: Callable[[list[str]], Any],
    files: ParallelFiles,
    languages: Languages,
    settings: AnchoringSettings | None = None,
) -> dict[str, LanguageWords]:
    """Return the words of two languages with vectors in the space of a teacher that knows the first.

    Args:
        encode: the teacher: texts of the first language in, float vectors [texts, D] out. They are put at length 1.
        files: translated sentences, as `read_parallel` takes them.
        languages: the code of the language the teacher knows, and that of the other.
        settings: `vocabulary` and `min_count` count here; None for the defaults.

    Returns:
        By language code, what `join_languages` takes. The words of both languages are the means of the teacher's
        vectors of the sentence pairs they occur in.

    Raises:
        CorpusError: the text cannot be read, or is in a script its language is not cut into words in.
        InputError: a language code that is none.
    """
    settings = settings or AnchoringSettings()
    pairs = _read(languages, files, languages[0])
    anchors = _anchors(encode, pairs)
    brought = {}
    for code, sentences in zip(languages, (pairs.known, pairs.new), strict=True):
        side = _Pairs((languages[0], code), pairs.known, sentences)
        vocabulary = Vocabulary(_frequent(side, Vocabulary([]), settings))
        counts, means = _means(Bags.of(sentences, vocabulary), anchors, len(vocabulary))
        brought[code] = LanguageWords(vocabulary.words, counts, means.astype(np.float32), sentences)
    return brought


def _read(codes: Languages, files: ParallelFiles, known: str) -> _Pairs:
    """Return the sentence pairs of a file, the known language first."""
    if known not in codes or codes[0] == codes[1]:
        raise InputError(
            f"parallel text {'-'.join(codes)} is not of {known!r} and another language; a language is added through "
            f"its translations into {known!r}, or say with known= what the model knows"
        )
    pairs = list(read_parallel(files, codes))
    if not pairs:
        raise CorpusError(f"{named(files)} holds no sentence pair for {'-'.join(codes)}")
    sides = dict(zip(codes, zip(*pairs, strict=True), strict=True))
    new = codes[1] if codes[0] == known else codes[0]
    check_script(new, sides[new])
    return _Pairs((known, new), sides[known], sides[new])


def _frequent(pairs: _Pairs, known: Vocabulary, settings: AnchoringSettings) -> list[str]:
    """Return the words of the new language, most frequent first, in lower case unless the known words are cased."""
    find, cased = word_finder(pairs.codes[1]), known.cased
    counts: Counter[str] = Counter()
    for sentence in pairs.new:
        counts.update(word.text if cased else word.text.lower() for word in find(sentence))
    characters = dict.fromkeys(c for word in counts for c in word if unspaced_run.match(c))
    kept = [word for word, count in counts.most_common() if count >= settings.min_count]
    return [*dict.fromkeys([*kept[: settings.vocabulary], *characters])]


def _joined(
    model: StaticEmbedder, texts: Sequence[_Pairs], bags: Sequence[PairBags], words: int, shrinkage: float
) -> Vectors:
    """Return the table of so many words, float32 [words, d]: each the average of what it is in the languages."""
    own = model.word_vectors(np.arange(len(model.vocabulary))).astype(np.float64)
    total, weight = np.zeros((words, own.shape[1])), np.zeros(words)
    for pairs, pair in zip(texts, bags, strict=True):
        anchors = _anchors(model.encode, pairs)
        counts, means = _means(pair.second, anchors, words)
        centred = (means - anchors.mean(axis=0)) * (counts / np.maximum(counts + shrinkage, 1))[:, None]
        seen = counts > 0
        centred[seen] *= scale_of(own) / scale_of(centred[seen])
        share = counts / max(counts.sum(), 1)
        total[seen] += share[seen, None] * centred[seen]
        weight += share
    known = np.bincount(np.concatenate([pair.first.rows for pair in bags]), minlength=words)[: len(own)]
    share = np.maximum(known / max(known.sum(), 1), 1e-12)  # a word that never occurs here is its own if no one else's
    total[: len(own)] += share[:, None] * own
    weight[: len(own)] += share
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
    blocks = [pairs.known[start : start + _BLOCK] for start in range(0, len(pairs.known), _BLOCK)]
    return np.concatenate([unit_rows(encode(list(block)), np.float64) for block in blocks])
