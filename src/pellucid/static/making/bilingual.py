"""A static model of several languages from a multilingual sentence transformer and translated sentences (SWE paper).

1. Extraction in each language with its own word segmentation (section 3.1); case is kept, as in the paper.
2. One table: a word of several languages gets the average of its vectors. PCA on the sentence vectors of all languages
   together, the same number of each, without the first components (section 3.2): these encode the language, and with
   them a sentence is nearer to any other of its language than to its translation.
3. Two-way contrastive tuning on translated sentences (section 3.3), over several language pairs at once; appendix A of
   the paper proposes this for more than two languages and does not try it.

Parallel text is one `.tsv` file of two columns, or two text files aligned line by line (each also `.xz` or `.gz`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from pellucid.base import Vectors
from pellucid.corpus import UNPACKERS, Corpus, read_lines
from pellucid.errors import CorpusError, InputError
from pellucid.static.bags import Bags
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.making.distill import PcaSettings, check_pca, open_teacher, rotate, subwords_of
from pellucid.static.making.extraction import ExtractionSettings, count_words, extract, spool
from pellucid.static.making.segmentation import check_script, word_finder
from pellucid.static.making.training import PairBags, TranslationSettings, tune_on_pairs, tuning_folder
from pellucid.text import Vocabulary
from pellucid.workfolder import WorkFolder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer


ParallelFiles = Union[str, "os.PathLike[str]", tuple["str | os.PathLike[str]", "str | os.PathLike[str]"]]
"""The path of a `.tsv` file, or a tuple of the paths of two line-aligned files."""

Languages = tuple[str, str]
"""The codes of two languages, such as ("en", "de")."""

Parallel = Mapping[Languages, ParallelFiles]
"""Parallel files by the codes of their two languages: {("en", "de"): "pairs.tsv"}."""

_NOT_LINES = (".jsonl", ".json", ".parquet", ".tsv", ".csv")
_CODE = re.compile(r"[a-z]{2,3}")
_SENTENCES = 100_000  # of a language, for PCA; as in the paper's code
_BLOCK = 65_536  # sentence pairs looked up at a time


class LanguageWords(NamedTuple):
    """What one language brings.

    Attributes:
        words: its vocabulary, most frequent first.
        counts: int64 [words], how often they occur.
        vectors: float32 [words, D], in the space of the teacher; a word with a zero row is left out.
        sentences: some text, for the principal components.
    """

    words: Sequence[str]
    counts: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.float32]
    sentences: Sequence[str]


@dataclass(frozen=True)
class JoinSettings:
    """How languages are brought together.

    Attributes:
        pca: of step 2; its `vocabulary` holds for each language.
        translation: of step 3.
    """

    pca: PcaSettings = field(default_factory=PcaSettings)
    translation: TranslationSettings = field(default_factory=TranslationSettings)


def distill_languages(
    teacher: str | SentenceTransformer,
    corpora: Mapping[str, Corpus],
    parallel: Parallel,
    *,
    work_dir: str | Path,
    extraction: ExtractionSettings | None = None,
    join: JoinSettings | None = None,
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
        join: settings of steps 2 and 3; None for the defaults.
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
    work_dir, join = Path(work_dir), join or JoinSettings()
    corpora = _checked(corpora, parallel, work_dir)
    teacher = open_teacher(teacher)
    check_pca(join.pca, int(teacher[0].get_embedding_dimension()))
    settings = {code: replace(extraction or ExtractionSettings(cased=True), language=code) for code in corpora}
    counted = [
        count_words(teacher, corpus, work_dir / code, settings[code], show_progress_bar=show_progress_bar)
        for code, corpus in corpora.items()
    ]
    check_known(Vocabulary(list(dict.fromkeys(chain.from_iterable(counted)))), parallel)
    brought = {}
    for code, corpus in corpora.items():
        found = extract(teacher, corpus, work_dir / code, settings[code], show_progress_bar=show_progress_bar)
        brought[code] = LanguageWords(found.words, found.counts, found.vectors, _sample(found.sentences))
    return join_languages(
        brought, parallel, subwords_of(teacher), join, work_dir=work_dir, show_progress_bar=show_progress_bar
    )


def join_languages(
    languages: Mapping[str, LanguageWords],
    parallel: Parallel,
    subwords: Tokenizer | None,
    settings: JoinSettings | None = None,
    *,
    work_dir: Path | None = None,
    show_progress_bar: bool = True,
) -> StaticEmbedder:
    """Do steps 2 and 3: one table of `languages`, PCA of all, contrastive tuning on `parallel` text.

    Args:
        languages: word vectors and sentences by language code.
        parallel: translated sentences by pair of codes.
        subwords: the teacher's tokenizer, for words out of the vocabulary.
        settings: of both steps; None for the defaults.
        work_dir: where the tuning keeps its state; None keeps none.
        show_progress_bar: show bars for what takes longer than two seconds.

    Raises:
        CorpusError: parallel text that cannot be read, or of which too few sentences hold a known word.
        InputError: a language without parallel text, settings that do not fit together, or the state in `work_dir` is
            of other vectors or other text.
        ModelFolderError: the state in `work_dir` is damaged.
    """
    settings = settings or JoinSettings()
    check_pairs(languages, parallel)
    words, vectors = merge_words(list(languages.values()), settings.pca.vocabulary)
    check_pca(settings.pca, vectors.shape[1])
    vocabulary = Vocabulary(words, subwords)
    vectors = _projected(vectors, languages, vocabulary, settings.pca)
    if settings.translation.steps:
        texts = {"-".join(codes): named(files) for codes, files in parallel.items()}
        with tuning_folder(work_dir, settings.translation, {"pca": asdict(settings.pca), "texts": texts}) as work:
            pairs = [pair_bags(files, codes, vocabulary, work) for codes, files in parallel.items()]
            vectors = tune_on_pairs(
                vectors, pairs, settings.translation, work=work, show_progress_bar=show_progress_bar
            )
    return StaticEmbedder(vocabulary, vectors)


def merge_words(languages: Sequence[LanguageWords], limit: int | None = None) -> tuple[list[str], Vectors]:
    """Return the words of all `languages` and their vectors, float32 [words, D].

    A word of several languages gets the average of its vectors there. The order is by frequency: a word's share of its
    language's text, summed over the languages. `limit` keeps so many words of each language, the most frequent.
    """
    row_of: dict[str, int] = {}
    kept = [np.flatnonzero(np.any(language.vectors != 0, axis=1))[:limit] for language in languages]
    rows = [
        np.array([row_of.setdefault(language.words[i], len(row_of)) for i in seen], np.int64)
        for language, seen in zip(languages, kept)
    ]
    sums = np.zeros((len(row_of), languages[0].vectors.shape[1]), np.float32)
    number, share = np.zeros(len(row_of), np.int64), np.zeros(len(row_of))
    for language, seen, places in zip(languages, kept, rows):
        sums[places] += language.vectors[seen]  # a word occurs once in a language
        number[places] += 1
        share[places] += language.counts[seen] / language.counts.sum()
    order = np.argsort(-share, kind="stable")
    words = list(row_of)
    vectors: Vectors = (sums[order] / number[order, None]).astype(np.float32)
    return [words[row] for row in order], vectors


def check_pairs(languages: Mapping[str, object], parallel: Parallel) -> None:
    """Refuse language pairs that do not connect every language with every other.

    Raises:
        InputError: fewer than two languages, a pair of an unknown language or of one with itself,
            or languages that no pair connects with the others.
    """
    if len(languages) < 2:
        raise InputError(f"a model across languages needs at least two, got {', '.join(languages) or 'none'}")
    for pair in parallel:
        if not isinstance(pair, tuple) or len(pair) != 2 or pair[0] == pair[1]:
            raise InputError(f"parallel text is given for two languages, such as ('en', 'de'); got {pair!r}")
        for code in pair:
            if code not in languages:
                raise InputError(f"parallel text {'-'.join(pair)}: {code!r} is none of {', '.join(languages)}")
    first, *others = _connected(languages, parallel)
    if others:
        groups = " | ".join(", ".join(group) for group in (first, *others))
        raise InputError(
            f"these languages share no parallel text: {groups}. Without it they would not come to one space; "
            f"give text such as {first[0]}-{others[0][0]}"
        )


def _connected(languages: Mapping[str, object], parallel: Parallel) -> list[list[str]]:
    """Return the groups of languages that chains of pairs connect."""
    group_of = {code: [code] for code in languages}
    for one, other in parallel:
        if group_of[one] is not group_of[other]:
            group_of[one].extend(group_of[other])
            for code in group_of[other]:
                group_of[code] = group_of[one]
    return list({id(group): group for group in group_of.values()}.values())


def check_known(vocabulary: Vocabulary, parallel: Parallel) -> None:
    """Refuse parallel text of which one side has no word in common with `vocabulary`.

    Raises:
        CorpusError: there is such a side; the message names the file and the language.
    """
    for languages, files in parallel.items():
        unknown = set(languages)
        for sides in _bags_in_blocks(files, languages, vocabulary):
            unknown -= {code for code, side in zip(languages, sides) if len(side.rows)}
            if not unknown:
                break
        if unknown:
            code = min(unknown)
            raise CorpusError(
                f"no word of the {code!r} side of {named(files)} occurs in the corpora; is it text of that language, "
                "and cut into words?"
            )


def _checked(corpora: Mapping[str, Corpus], parallel: Parallel, work_dir: Path) -> dict[str, Corpus]:
    """Check all text, so that an error shows now and not after hours; return the corpora as files."""
    check_pairs(corpora, parallel)
    for code in corpora:
        word_finder(code)  # is it a code, and is its segmenter there?
    for languages, files in parallel.items():
        if not sum(1 for _ in read_parallel(files, languages)):
            raise CorpusError(f"{named(files)} holds no sentence pair for {'-'.join(languages)}")
    return {code: _spooled(code, corpus, work_dir / code) for code, corpus in corpora.items()}


def _spooled(code: str, corpus: Corpus, work_dir: Path) -> Corpus:
    """Return a corpus as a file, its script checked."""
    with WorkFolder(work_dir) as work:
        kept = spool(corpus, work)
        check_script(code, kept)
        work.commit()  # only now: a corpus that was refused must not be kept for the next try
    return kept


def _projected(
    vectors: Vectors, languages: Mapping[str, LanguageWords], vocabulary: Vocabulary, pca: PcaSettings
) -> Vectors:
    """Return `vectors` on the principal components of the sentences, as many of each language."""
    if pca.level == "none":
        return vectors
    if pca.level == "word":
        return rotate(vectors, vectors, pca)
    bags = {code: Bags.of(_sample(brought.sentences), vocabulary) for code, brought in languages.items()}
    filled = {code: np.flatnonzero(np.diff(bag.offsets)) for code, bag in bags.items()}
    count = min(map(len, filled.values()))
    if not count:
        empty = next(code for code, sentences in filled.items() if not len(sentences))
        raise CorpusError(f"no sentence of {empty!r} holds a word of the vocabulary")
    sample = [bags[code].take(found[_spread(len(found), count)]).means(vectors) for code, found in filled.items()]
    return rotate(vectors, np.concatenate(sample), pca)


def _spread(items: int, count: int) -> npt.NDArray[np.int64]:
    """Return the numbers of `count` of so many items, evenly from the first to the last; all where there are fewer."""
    return np.arange(min(items, count)) * items // min(items, count) if items else np.zeros(0, np.int64)


def _sample(sentences: Sequence[str]) -> list[str]:
    return [sentences[i] for i in _spread(len(sentences), _SENTENCES).tolist()]


def pair_bags(
    files: ParallelFiles, languages: Languages, vocabulary: Vocabulary, work: WorkFolder | None = None
) -> PairBags:
    """Return the sentence pairs of `files` as rows of one table, for `tune_on_pairs`.

    Raises:
        CorpusError: they cannot be read, or are misaligned.
        InputError: they are not the pairs that the run in `work` was begun with.
    """
    if work is not None:
        lines = ("\t".join(pair) for pair in read_parallel(files, languages))
        work.note_texts("-".join(languages), lines, named(files))
    blocks = list(_bags_in_blocks(files, languages, vocabulary))
    return PairBags("-".join(languages), *(_concatenated([block[side] for block in blocks]) for side in (0, 1)))


def _bags_in_blocks(files: ParallelFiles, languages: Languages, vocabulary: Vocabulary) -> Iterator[tuple[Bags, Bags]]:
    pairs = read_parallel(files, languages)
    while block := list(islice(pairs, _BLOCK)):
        first, second = zip(*block)
        yield Bags.of(first, vocabulary), Bags.of(second, vocabulary)


def _concatenated(bags: Sequence[Bags]) -> Bags:
    sizes = np.concatenate([np.diff(bag.offsets) for bag in bags])
    return Bags(np.concatenate([bag.rows for bag in bags]), np.concatenate([[0], np.cumsum(sizes)]))


def read_parallel(files: ParallelFiles, languages: Languages) -> Iterator[tuple[str, str]]:
    """Yield the sentences of `files` in the order of `languages`, each with its translation.

    A first row of a `.tsv` file that holds the two codes is a header; it may name the columns the other way round. A
    line that is empty in both languages is passed over.

    Raises:
        CorpusError: a file is absent, damaged or of an unknown format, the two differ in their number of lines, a row
            has not two columns, or a sentence has no translation. The message names the file and the line.
        InputError: `files` is neither a path nor a tuple of two.
    """
    if isinstance(files, (str, os.PathLike)):
        yield from _read_columns(Path(files), languages)
    elif isinstance(files, tuple) and len(files) == 2 and all(isinstance(f, (str, os.PathLike)) for f in files):
        yield from _read_aligned(Path(files[0]), Path(files[1]))
    else:
        raise InputError(f"parallel text is the path of a .tsv file or a tuple of two paths, got {files!r:.80}")


def named(files: ParallelFiles) -> str:
    """Return what messages call `files`."""
    return " and ".join(map(str, files)) if isinstance(files, tuple) else str(files)


def _read_columns(path: Path, languages: Languages) -> Iterator[tuple[str, str]]:
    if _kind(path) != ".tsv":
        raise CorpusError(
            f"{path} is not a .tsv file (also .xz, .gz); parallel text is one file of two columns with a tab between "
            "them, or two files aligned line by line"
        )
    first = 0  # column of the first language
    for number, line in enumerate(read_lines(path, "parallel file"), 1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 2:
            found = "no tab" if len(cells) == 1 else f"{len(cells)} columns"
            raise CorpusError(f"{path}, line {number}: {found}; a row is a sentence, a tab and its translation")
        column = _column_of(cells, languages, path) if number == 1 else None
        if column is not None:
            first = column
            continue
        if not all(cells):
            raise CorpusError(f"{path}, line {number}: a sentence has no translation ({''.join(cells)!r:.60})")
        yield cells[first], cells[1 - first]


def _named_by(cell: str, language: str) -> bool:
    """Whether a header's `cell` is the code of a language, with or without its region."""
    return cell.lower() in (language.lower(), language.lower().partition("-")[0])


def _column_of(cells: list[str], languages: Languages, path: Path) -> int | None:
    """Return the column of the first language if `cells` are a header, else None; refuse one of other languages."""
    for column in (0, 1):
        if _named_by(cells[column], languages[0]) and _named_by(cells[1 - column], languages[1]):
            return column
    if all(map(_CODE.fullmatch, cells)) and any(_named_by(cell, code) for cell in cells for code in languages):
        raise CorpusError(f"{path} holds {cells[0]} and {cells[1]} by its header, not {' and '.join(languages)}")
    return None


def _read_aligned(first: Path, second: Path) -> Iterator[tuple[str, str]]:
    for path in (first, second):
        if _kind(path) in _NOT_LINES:
            raise CorpusError(f"{path} is not plain text; two aligned files hold one sentence a line")
    for number, (one, other) in enumerate(
        zip_longest(*(read_lines(path, "parallel file") for path in (first, second))), 1
    ):
        if one is None or other is None:
            raise _misaligned(first, second)
        one, other = one.strip(), other.strip()
        if one and other:
            yield one, other
        elif one or other:
            empty, full = (second, one) if one else (first, other)
            raise CorpusError(
                f"{empty}, line {number} is empty, but its counterpart is {full!r:.60}; remove the line from both files"
            )


def _misaligned(first: Path, second: Path) -> CorpusError:
    counts = [sum(1 for _ in read_lines(path)) for path in (first, second)]
    return CorpusError(
        f"{first} has {counts[0]:,} lines and {second} has {counts[1]:,}; aligned files have the same number, line n "
        "of one being the translation of line n of the other"
    )


def _kind(path: Path) -> str:
    """Return the last suffix of `path` that does not name a packer."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix not in UNPACKERS), "")
