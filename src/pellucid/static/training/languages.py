"""Static models of several languages (SWE paper): from a multilingual teacher, or only from translated sentences.

`distill_languages`, with a multilingual sentence transformer and translated sentences:

1. Extraction in each language with its own word segmentation (section 3.1); case is kept, as in the paper.
2. One table: a word of several languages gets the average of its vectors. PCA on the sentence vectors of all languages
   together, the same number of each, without the first components (section 3.2): these encode the language, and with
   them a sentence is nearer to any other of its language than to its translation.
3. Two-way contrastive tuning on translated sentences (section 3.3), over several language pairs at once; appendix A of
   the paper proposes this for more than two languages and does not try it.

`add_languages`, without a multilingual teacher: the vector of a word of a new language is the mean of the known
translations of the sentences it occurs in. In the paper it is the mean of a word's contexts; here translations take the
place of contexts. Tuning on the same pairs follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import l2_normalize
from pellucid.core.embedder import Vectors
from pellucid.errors import CorpusError, InputError, check_integer, shown
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.static.bags import Bags
from pellucid.static.embedder import StaticEmbedder, static_model
from pellucid.static.training.distill import PcaSettings, Teacher, open_teacher, rotate, subwords_of
from pellucid.static.training.extraction import ExtractionSettings, count_words, extract, prompted, spool
from pellucid.static.training.parallel import Languages, Parallel, ParallelFiles, file_names, read_parallel
from pellucid.static.training.segmentation import check_script, word_finder
from pellucid.static.training.tuning import PairBags, TuningSettings, scale_of, tune_on_pairs
from pellucid.text.tables import Corpus
from pellucid.text.unicode import lowercase, unspaced_run
from pellucid.text.words import Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SENTENCES = 100_000  # of a language, for PCA; as in the paper's code
_BLOCK = 65_536  # sentence pairs looked up or embedded at a time
_SHRINKAGE = 2.0  # a word of n occurrences keeps n / (n + 2) of its vector: few sentences are weak evidence

Floats = npt.NDArray[np.float64]


class LanguageWords(NamedTuple):
    """What one language brings to a model of several."""

    words: Sequence[str]  # its vocabulary, most frequent first
    counts: npt.NDArray[np.int64]  # [words] how often they occur
    vectors: npt.NDArray[np.float32]  # [words, D] in the space of the teacher; a word with a zero row is left out
    sentences: Sequence[str]  # some text, for the principal components


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
        CorpusError: text cannot be read, is misaligned, is in a script its language is not cut into words in, or
            shares no word with the other text of its language.
        InputError: a language without parallel text, settings that do not fit together, or a `work_dir` that belongs
            to another run or other text, or in which a run is at work.
        ModelFolderError: the state in `work_dir` is damaged.
    """
    work_dir, pca = Path(work_dir), pca or PcaSettings()
    _check_text(corpora, parallel)
    corpora = {code: _spooled(code, corpus, work_dir / code) for code, corpus in corpora.items()}
    teacher = open_teacher(teacher)
    pca.check(int(teacher[0].get_embedding_dimension()))
    shared_settings = prompted(extraction or ExtractionSettings(cased=True), teacher)
    settings = {code: replace(shared_settings, language=code) for code in corpora}
    words: dict[str, None] = {}
    for code, corpus in corpora.items():
        with WorkFolder(work_dir / code) as work:
            words |= dict.fromkeys(count_words(teacher, corpus, work, settings[code], show_progress_bar)[0])
    check_known(Vocabulary(list(words)), parallel)
    brought = {}
    for code, corpus in corpora.items():
        extracted = extract(teacher, corpus, work_dir / code, settings[code], show_progress_bar=show_progress_bar)
        brought[code] = LanguageWords(
            extracted.words, extracted.counts, extracted.vectors, _sample(extracted.sentences)
        )
    subwords = subwords_of(teacher)
    return join_languages(brought, parallel, subwords, pca, tuning, show_progress_bar=show_progress_bar)


def _check_text(corpora: Mapping[str, Corpus], parallel: Parallel) -> None:
    """Check the codes of languages, that their segmenters are installed, and that all pairs have sentences."""
    check_pairs(corpora, parallel)
    for code in corpora:
        word_finder(code)
    for codes, files in parallel.items():
        if not sum(1 for _ in read_parallel(files, codes)):
            raise CorpusError(f"{file_names(files)} holds no sentence pair for {'-'.join(codes)}")


def join_languages(
    languages: Mapping[str, LanguageWords],
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
    check_pairs(languages, parallel)
    words, vectors = merge_words(list(languages.values()), pca.vocabulary)
    pca.check(vectors.shape[1])
    vocabulary = Vocabulary(words, subwords)
    if pca.level == "word":
        vectors = rotate(vectors, vectors, pca)
    elif pca.level == "sentence":
        vectors = rotate(vectors, _sentence_means(vectors, languages, vocabulary), pca)
    if tuning.steps:
        pairs = [pair_bags(files, codes, vocabulary) for codes, files in parallel.items()]
        vectors = tune_on_pairs(vectors, pairs, tuning, show_progress_bar=show_progress_bar)
    return StaticEmbedder(vocabulary, vectors)


def merge_words(languages: Sequence[LanguageWords], limit: int | None = None) -> tuple[list[str], Vectors]:
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


def check_pairs(languages: Mapping[str, object], parallel: Parallel) -> None:
    """Check that language pairs connect every language with every other."""
    if len(languages) < 2:
        raise InputError(f"a model across languages needs at least two, got {', '.join(languages) or 'none'}")
    group_of = {code: [code] for code in languages}
    for pair in parallel:
        if not isinstance(pair, tuple) or len(pair) != 2 or pair[0] == pair[1]:
            raise InputError(f"parallel text is given for two languages, such as ('en', 'de'); got {shown(pair)}")
        for code in pair:
            if code not in languages:
                raise InputError(f"parallel text {'-'.join(pair)}: {code!r} is not among {', '.join(languages)}")
        group1, group2 = (group_of[code] for code in pair)
        if group1 is not group2:
            group1.extend(group2)
            group_of.update(dict.fromkeys(group2, group1))
    first_group, *other_groups = {id(group): group for group in group_of.values()}.values()
    if other_groups:
        groups = " | ".join(", ".join(group) for group in (first_group, *other_groups))
        raise InputError(
            f"these languages share no parallel text: {groups}. Without it they would not come to one space; "
            f"give text such as {first_group[0]}-{other_groups[0][0]}"
        )


def check_known(vocabulary: Vocabulary, parallel: Parallel) -> None:
    """Check that both sides of all parallel text have a word in common with `vocabulary`."""
    for languages, files in parallel.items():
        unknown = set(languages)
        for sides in _bags_in_blocks(files, languages, vocabulary):
            unknown -= {code for code, side in zip(languages, sides) if len(side.rows)}
            if not unknown:
                break
        if unknown:
            code = min(unknown)
            raise CorpusError(
                f"no word of the {code!r} side of {file_names(files)} occurs in the corpora; is it text of that "
                "language, and cut into words?"
            )


def _spooled(code: str, corpus: Corpus, work_dir: Path) -> Corpus:
    """Return a corpus as a file, its script checked."""
    with WorkFolder(work_dir) as work:
        spooled = spool(corpus, work)
        check_script(code, spooled)
        work.commit()  # only now: a corpus that was refused must not be kept for the next try
    return spooled


def _sentence_means(vectors: Vectors, languages: Mapping[str, LanguageWords], vocabulary: Vocabulary) -> Vectors:
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


def pair_bags(files: ParallelFiles, languages: Languages, vocabulary: Vocabulary) -> PairBags:
    """Return the sentence pairs of `files` as rows of one table."""
    sides = zip(*_bags_in_blocks(files, languages, vocabulary))
    joined = []
    for bags in sides:
        sizes = np.concatenate([np.diff(bag.offsets) for bag in bags])
        rows = np.concatenate([bag.rows for bag in bags])
        joined.append(Bags(rows, np.concatenate([[0], np.cumsum(sizes)])))
    if not joined:
        raise CorpusError(f"{file_names(files)} holds no sentence pair for {'-'.join(languages)}")
    return PairBags("-".join(languages), *joined)


def _bags_in_blocks(files: ParallelFiles, languages: Languages, vocabulary: Vocabulary) -> Iterator[tuple[Bags, Bags]]:
    pairs = read_parallel(files, languages)
    while block := list(islice(pairs, _BLOCK)):
        first, second = zip(*block)
        yield Bags.from_sentences(first, vocabulary), Bags.from_sentences(second, vocabulary)


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
        CorpusError: parallel text that cannot be read, is misaligned, is in a script its language is not cut into words
            in, or of which too little has a known word on both sides.
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
    grown = model.vocabulary.with_words([*model.vocabulary.words, *new])
    bags = [pairs.bags(grown) for pairs in texts]
    vectors = _joined(model, texts, bags, len(grown))
    if tuning.steps:
        vectors = tune_on_pairs(vectors, bags, tuning, show_progress_bar=show_progress_bar)
    return StaticEmbedder(grown, vectors)


def anchored_words(
    encode: Callable[[list[str]], Any],
    files: ParallelFiles,
    languages: Languages,
    *,
    vocabulary: int = 50_000,
    min_count: int = 2,
) -> dict[str, LanguageWords]:
    """Return the words of two languages, by code, with vectors in the space of a teacher that knows the first."""
    # The words of both languages are the means of the teacher's vectors (`encode`: texts in, float vectors [texts, D]
    # out) of the sentence pairs they occur in. `join_languages` takes them.
    pairs = _read(languages, files, languages[0])
    anchors = _anchors(encode, pairs)
    brought = {}
    for code, sentences in zip(languages, (pairs.known_sentences, pairs.new_sentences), strict=True):
        language_vocabulary = Vocabulary(_frequent(code, sentences, vocabulary, min_count, cased=False))
        counts, means = _means(Bags.from_sentences(sentences, language_vocabulary), anchors, len(language_vocabulary))
        brought[code] = LanguageWords(language_vocabulary.words, counts, means.astype(np.float32), sentences)
    return brought


def _read(codes: Languages, files: ParallelFiles, known_language: str) -> _Pairs:
    """Return the sentence pairs of a file, the known language first."""
    if known_language not in codes or codes[0] == codes[1]:
        raise InputError(
            f"parallel text {'-'.join(codes)} is not of {known_language!r} and another language; a language is added "
            f"through its translations into {known_language!r}, or give with known_language= the language that the "
            "model knows"
        )
    pairs = list(read_parallel(files, codes))
    if not pairs:
        raise CorpusError(f"{file_names(files)} holds no sentence pair for {'-'.join(codes)}")
    sides = dict(zip(codes, zip(*pairs, strict=True), strict=True))
    new_language = codes[1] if codes[0] == known_language else codes[0]
    check_script(new_language, sides[new_language])
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
