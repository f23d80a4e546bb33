"""Static models of several languages from a multilingual teacher (SWE paper).

`distill_languages` takes a multilingual sentence transformer and translated sentences:

1. Extraction in each language with its own word segmentation (section 3.1); case is kept, as in the paper.
2. One table: a word of several languages gets the average of its vectors. PCA on the sentence vectors of all languages
   together, the same number of each, without the first components (section 3.2): these encode the language, and with
   them a sentence is nearer to any other of its language than to its translation.
3. Two-way contrastive tuning on translated sentences (section 3.3), over several language pairs at once; appendix A of
   the paper proposes this for more than two languages and does not try it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pellucid.core.embedder import Vectors
from pellucid.errors import CorpusError, InputError, shown
from pellucid.static.bags import Bags
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.training.distill import PcaSettings, Teacher, open_teacher, rotate, subwords_of
from pellucid.static.training.extraction import Extraction, ExtractionSettings, extract
from pellucid.static.training.parallel import Languages, Parallel, read_parallel
from pellucid.static.training.segmentation import word_finder
from pellucid.static.training.tuning import PairBags, TuningSettings, tune_on_pairs
from pellucid.text.tables import Corpus
from pellucid.text.words import Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SENTENCES = 100_000  # of a language, for PCA; as in the paper's code
_BLOCK = 65_536  # sentence pairs looked up or embedded at a time


def distill_languages(
    teacher: Teacher,
    corpora: Mapping[str, Corpus],
    parallel: Parallel,
    *,
    work_dir: str | Path,
    extraction: ExtractionSettings | None = None,
    pca: PcaSettings | None = None,
    tuning: TuningSettings | None = None,
    show_progress_bar: bool = True,
) -> StaticEmbedder:
    """Make a static model of several languages from a multilingual `teacher`.

    The text is checked before the teacher starts.

    Args:
        teacher: a SentenceTransformer that embeds translations alike, or the folder or hub id of one.
        corpora: sentences by language code, each a file or an iterable as for `distill`.
        parallel: translated sentences by pair of codes; through these pairs every language must be connected with
            every other.
        work_dir: where the state is kept, a folder for each language; the same call resumes an interrupted run. All
            text is then read again and must be the same, as for `distill`.
        extraction: settings of step 1 for each language; None for the defaults with case kept. `language` is set here.
        pca: settings of step 2; its `vocabulary` holds for each language.
        tuning: settings of step 3.
        show_progress_bar: show bars for what takes longer than two seconds.

    Returns:
        The model, with a float32 table in which all languages share one space.

    Raises:
        MissingExtraError: sentence-transformers, or the segmenter of a language, is not installed.
        CorpusError: text cannot be read or lacks translations, or shares too few words with the other text of its
            language.
        InputError: a language without parallel text, settings that do not fit together, or a `work_dir` that belongs
            to another run or other text, or in which a run is at work.
        ModelFolderError: the state in `work_dir` is damaged.
    """
    work_dir, pca = Path(work_dir), pca or PcaSettings()
    check_translations(corpora, parallel)
    for code in corpora:
        word_finder(code)  # checks the code and that its segmenter is installed
    for codes, file in parallel.items():
        if not sum(1 for _ in read_parallel(file, codes)):  # all of it is checked
            raise CorpusError(f"{file} holds no sentence pair for {'-'.join(codes)}")
    teacher = open_teacher(teacher)
    pca.check(int(teacher[0].get_embedding_dimension()))
    shared_settings = extraction or ExtractionSettings(cased=True)
    brought = {}
    for code, corpus in corpora.items():
        settings = replace(shared_settings, language=code)
        extracted = extract(teacher, corpus, work_dir / code, settings, show_progress_bar=show_progress_bar)
        brought[code] = replace(extracted, sentences=_sample(extracted.sentences))
    subwords = subwords_of(teacher)
    return join_languages(brought, parallel, subwords, pca, tuning, show_progress_bar=show_progress_bar)


def join_languages(
    languages: Mapping[str, Extraction],
    parallel: Parallel,
    subwords: Tokenizer | None,
    pca: PcaSettings | None = None,
    tuning: TuningSettings | None = None,
    *,
    show_progress_bar: bool = True,
) -> StaticEmbedder:
    """Do steps 2 and 3: one table of `languages`, PCA of all, contrastive tuning on `parallel` text."""
    # `subwords` is the teacher's tokenizer, for words out of the vocabulary.
    pca, tuning = pca or PcaSettings(), tuning or TuningSettings()
    check_translations(languages, parallel)
    words, vectors = merge_words(list(languages.values()), pca.vocabulary)
    pca.check(vectors.shape[1])
    vocabulary = Vocabulary(words, subwords)
    if pca.level != "none":
        sample = vectors if pca.level == "word" else _sentence_means(vectors, languages, vocabulary)
        vectors = rotate(vectors, sample, pca)
    if tuning.steps:
        pairs = [pair_bags(file, codes, vocabulary) for codes, file in parallel.items()]
        vectors = tune_on_pairs(vectors, pairs, tuning, show_progress_bar=show_progress_bar)
    return StaticEmbedder(vocabulary, vectors)


def merge_words(languages: Sequence[Extraction], limit: int | None = None) -> tuple[list[str], Vectors]:
    """Return the words of all `languages` and their vectors, float32 [words, D].

    A word of several languages gets the average of its vectors there. The order is by frequency: a word's share of its
    language's text, summed over the languages. `limit` keeps so many words of each language, the most frequent.
    """
    row_by_word: dict[str, int] = {}
    selected = [np.flatnonzero(np.any(language.vectors != 0, axis=1))[:limit] for language in languages]
    rows = [
        np.array([row_by_word.setdefault(language.words[i], len(row_by_word)) for i in seen], np.int64)
        for language, seen in zip(languages, selected)
    ]
    sums = np.zeros((len(row_by_word), languages[0].vectors.shape[1]), np.float32)
    n_languages, share = np.zeros(len(row_by_word), np.int64), np.zeros(len(row_by_word))
    for language, seen, targets in zip(languages, selected, rows):
        sums[targets] += language.vectors[seen]  # a word occurs once in a language
        n_languages[targets] += 1
        share[targets] += language.counts[seen] / language.counts.sum()
    order = np.argsort(-share, kind="stable")
    words = list(row_by_word)
    vectors: Vectors = (sums[order] / n_languages[order, None]).astype(np.float32)
    return [words[row] for row in order], vectors


def check_translations(languages: Mapping[str, object], parallel: Parallel) -> None:
    """Check that language pairs connect every language with every other."""
    if len(languages) < 2:
        raise InputError(f"a model across languages needs at least two, got {', '.join(languages) or 'none'}")
    for pair in parallel:
        if not isinstance(pair, tuple) or len(pair) != 2 or pair[0] == pair[1]:
            raise InputError(f"parallel text is given for two languages, such as ('en', 'de'); got {shown(pair)}")
        for code in pair:
            if code not in languages:
                raise InputError(f"parallel text {'-'.join(pair)}: {code!r} is not among {', '.join(languages)}")
    connected = set(list(languages)[:1])
    for _ in languages:
        for pair in parallel:
            connected |= set(pair) if connected & set(pair) else set()
    apart = [code for code in languages if code not in connected]
    if apart:
        first = next(iter(languages))
        raise InputError(
            f"{', '.join(apart)} share no parallel text with {first}. Without it they would not come to one "
            f"space; give text such as {first}-{apart[0]}"
        )


def _sentence_means(vectors: Vectors, languages: Mapping[str, Extraction], vocabulary: Vocabulary) -> Vectors:
    """Return the means of the words of sentences, as many of each language."""
    bags = {code: Bags.from_sentences(_sample(brought.sentences), vocabulary) for code, brought in languages.items()}
    filled = {code: np.flatnonzero(np.diff(bag.offsets)) for code, bag in bags.items()}
    count = min(map(len, filled.values()))
    if not count:
        empty = next(code for code, sentences in filled.items() if not len(sentences))
        raise CorpusError(f"no sentence of {empty!r} holds a word of the vocabulary")
    return np.concatenate(
        [bags[code].take(indices[_spread(len(indices), count)]).means(vectors) for code, indices in filled.items()]
    )


def _spread(items: int, count: int) -> npt.NDArray[np.int64]:
    """Return the numbers of `count` of so many items, evenly from the first to the last; all where there are fewer."""
    return np.arange(min(items, count)) * items // min(items, count) if items else np.zeros(0, np.int64)


def _sample(sentences: Sequence[str]) -> list[str]:
    return [sentences[i] for i in _spread(len(sentences), _SENTENCES).tolist()]


def pair_bags(file: str | os.PathLike[str], languages: Languages, vocabulary: Vocabulary) -> PairBags:
    """Return the sentence pairs of a `.tsv` file as rows of one table."""
    blocks, pairs = list[list[Bags]](), read_parallel(file, languages)
    while block := list(islice(pairs, _BLOCK)):
        blocks.append([Bags.from_sentences(side, vocabulary) for side in zip(*block)])
    joined = []
    for bags in zip(*blocks):
        sizes = np.concatenate([np.diff(bag.offsets) for bag in bags])
        rows = np.concatenate([bag.rows for bag in bags])
        joined.append(Bags(rows, np.concatenate([[0], np.cumsum(sizes)])))
    if not joined:
        raise CorpusError(f"{file} holds no sentence pair for {'-'.join(languages)}")
    return PairBags("-".join(languages), *joined)
