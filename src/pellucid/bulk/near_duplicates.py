"""Near-duplicates of a corpus: which texts nearly repeat an earlier one, and how they differ.

The texts are read in order. A text is a duplicate if an earlier kept text reaches the threshold; otherwise it is kept.
So every removed text is within the threshold of a kept one. With connected components this would not hold: in a chain
of small changes the first text and the last may have nothing in common. Each text is compared with the kept ones only:
ten thousand texts of one form make ten thousand pairs here, and fifty million there.

The nearest kept text comes from `KeptTexts`; every pair that it proposes is scored again by the model before it is
reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as data_field
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.analysis.coordinates import guessed_words, guesses_note
from pellucid.bulk.signs import find_numbers, find_signed_names
from pellucid.core.arrays import l2_normalize, to_2d_array
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError, check_number, importing
from pellucid.explain.explanation import Explanation
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, listed, numbers, percent
from pellucid.explain.views.report import Report
from pellucid.loading import load
from pellucid.persistence.store import check_vacant, writing
from pellucid.process import cached_property
from pellucid.progress import Progress
from pellucid.text.tables import Corpus, CorpusFile, check_copy, copy_rows, corpus_file, read_texts
from pellucid.text.unicode import canonicalize, lowercase
from pellucid.text.words import split_words

Numbers = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

_CHUNK_TEXTS = 2_048
_SCORE_DECIMALS = 6  # decimals of a score, as many as float32 has
_CANDIDATES = 16  # nearest kept texts in the cells, of which the first with the same signature counts
_SHOWN = 10  # rows of a printed table


class DuplicatePair(NamedTuple):
    """A text and the earlier one that is kept in its place.

    Attributes:
        kept: number of the kept text in the corpus, from 0.
        duplicate: number of the other.
        score: their cosine, to six decimals; 1 for equal texts.
        kept_text: the kept text.
        duplicate_text: the other.
        only_kept: words of the kept text that the other lacks, in lower case.
        only_duplicate: words of the other that the kept text lacks.
        numbers_differ: whether the two hold different numbers, or these in another order.
    """

    kept: int
    duplicate: int
    score: float
    kept_text: str
    duplicate_text: str
    only_kept: tuple[str, ...]
    only_duplicate: tuple[str, ...]
    numbers_differ: bool

    @property
    def difference(self) -> str:
        """The words that differ, as "5 / 7"; where they are the same, what else differs."""
        texts = self.kept_text, self.duplicate_text
        sides: Sequence[Sequence[str]] = (self.only_kept, self.only_duplicate)
        if not any(sides) and self.numbers_differ:  # in signs between digits, or in their order
            sides = list(map(find_numbers, texts))
        if any(sides):
            return " / ".join(listed(words, 6) or "\u2013" for words in sides)
        return "nothing" if len(set(map(canonicalize, texts))) == 1 else "case, punctuation or order"


class DuplicateGroup(NamedTuple):
    """A kept text and its duplicates."""

    kept: int  # number of the kept text
    text: str
    duplicates: tuple[int, ...]  # numbers of the others
    least: float  # the lowest score of one of them to the kept text. Two of them may be less alike.


@dataclass(frozen=True, repr=False)
class Duplicates(Report):
    """The near-duplicates of a corpus.

    Attributes:
        family: the family of the model.
        threshold: the score from which a text is a duplicate.
        texts: how many there are in all.
        equal: how many duplicates are equal to an earlier text, character for character.
        unknown: how many different texts have no known word; they are duplicates only of equal texts.
        pairs: one for each text that is not kept, in the order of the corpus.
        groups: the kept texts that have duplicates, the largest group first.
        guessed: words that the model only guesses, the first 1,000; texts that differ by one are no duplicates.
        model: the model, for `explain`; not part of the data forms.
    """

    kind: ClassVar[str] = "duplicates"
    table: ClassVar[str] = "pairs"

    family: str
    threshold: float
    texts: int
    equal: int
    unknown: int
    pairs: tuple[DuplicatePair, ...]
    groups: tuple[DuplicateGroup, ...]
    guessed: tuple[str, ...]
    model: Embedder = data_field(compare=False)

    @cached_property
    def representative_indices(self) -> list[int]:
        """The indices of the texts that are left when each group is reduced to its kept text."""
        duplicates = {pair.duplicate for pair in self.pairs}
        return [index for index in range(self.texts) if index not in duplicates]

    def explain(self, pair: int) -> Explanation:
        """Return what the score of a pair, given by its place in `pairs`, is made of.

        Raises:
            InputError: there is no such pair.
        """
        if not 0 <= pair < len(self.pairs):
            raise InputError(f"pair {pair} is not in this list of {len(self.pairs):,}; the first is 0")
        return self.model.explain(self.pairs[pair].kept_text, self.pairs[pair].duplicate_text)

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading(
            "Near-duplicates",
            f"{len(self.pairs):,} of {counted(self.texts, 'text')}",
            f"{self.family} model, threshold {self.threshold:g}",
        )
        yield Note(
            f"{percent(len(self.pairs) / self.texts)} resemble an earlier text that is kept; {self.equal:,} are equal "
            "to one."
        )
        differ = sum(pair.numbers_differ for pair in self.pairs)
        if differ:
            yield Note(
                f"The numbers differ in {counted(differ, 'pair')}; same_numbers=True keeps these texts.",
                is_warning=True,
            )
        if self.unknown:
            yield Note(f"{counted(self.unknown, 'different text')} without a known word.", is_warning=True)
        if self.guessed:
            yield Note(guesses_note(self.guessed, "Texts that differ by one are no duplicates"))
        if self.groups:
            rows = [(f"{len(g.duplicates) + 1:,}", f"{g.least:.4f}", g.text) for g in self.groups[:_SHOWN]]
            yield TablePart.of("Largest groups", [*numbers("texts", "least score"), "kept"], rows)
        near_pairs = sorted(
            (pair for pair in self.pairs if pair.kept_text != pair.duplicate_text), key=lambda p: p.score
        )
        if near_pairs:
            pairs = [(f"{p.score:.4f}", p.kept_text, p.duplicate_text, p.difference) for p in near_pairs[:_SHOWN]]
            titles = [*numbers("score"), "kept", "duplicate", "words that differ"]
            yield TablePart.of("Pairs nearest to the threshold", titles, pairs)


def duplicates(
    texts: Corpus,
    model: Embedder | str | Path = "static-en",
    *,
    threshold: float = 0.9,
    same_numbers: bool = False,
    field: str = "text",
    show_progress_bar: bool = False,
) -> Duplicates:
    """Return which texts of a corpus nearly repeat an earlier one.

    A text is a duplicate if an earlier text that is kept has at least the threshold's cosine to it. So every removed
    text is within the threshold of a kept one; two texts of a group may be less alike. Of a text without a known word,
    only equal texts are duplicates. Texts with other names in signs ("C++" and "C#", "A+" and "A-", ".NET") are not,
    though models read their letters alone; nor are texts that differ by a word for which the model has no vector, and
    which it guesses from its letters ("Latisha signed", "Lakisha signed").

    All pairs are compared exactly up to 32,768 kept texts, and for sparse embeddings always, in time that grows with
    the square of their number. Beyond, candidates come from faiss and a few duplicates may be missed; docs/toolkit.md
    says how many. Memory: two bytes a dimension for each kept text, and the texts.

    Args:
        texts: a file (.txt with a text a line, .csv, .tsv, .jsonl, .json, .parquet, .xlsx), a `CorpusFile`, which says
            how one is read, or an iterable of texts.
        model: of any family, or its name.
        threshold: a cosine above 0 and up to 1. Equal words in another order have 1 in a static model.
        same_numbers: keep texts whose numbers differ, or have another order; their embeddings may be nearly the same.
            A number is compared as it is written, with its sign, separators, exponent, comparison, currency or "%":
            2024-01-02 is not 2024-02-01, and 1.5 neither 1,5 nor 15. Only thousands may be grouped: 1,000 is 1000.
        field: the column or key that holds the text, in a file named by a path.
        show_progress_bar: show a bar, counting texts, once the work has lasted two seconds.

    Raises:
        CorpusError: the file cannot be read, or an item is not a string.
        InputError: there is no text, `threshold` is out of range, or the model gives NaN.
        MissingExtraError: the corpus is large, and faiss is not installed: `pellucid[scale]`.
    """
    check_number("threshold", threshold, above=0, most=1)
    model = load(model)
    corpus = list(read_texts(texts, field=field))
    if not corpus:
        raise InputError("the corpus holds no text; there is nothing to compare")
    first_index: dict[str, int] = {}
    firsts = np.array([first_index.setdefault(canonicalize(text), index) for index, text in enumerate(corpus)])
    is_first = firsts == np.arange(len(corpus))
    finder, representatives = _Finder(model, threshold, same_numbers), np.full(len(corpus), -1)
    with Progress("comparing", enabled=show_progress_bar) as progress:
        for start in range(0, len(corpus), _CHUNK_TEXTS):
            chunk = start + np.flatnonzero(is_first[start : start + _CHUNK_TEXTS])
            finder.compare(chunk, [corpus[index] for index in chunk.tolist()], representatives)
            progress.advance(min(_CHUNK_TEXTS, len(corpus) - start))
    scores = _score_pairs(finder, corpus, representatives)
    equal = np.flatnonzero(~is_first)
    representatives[equal] = np.where(representatives[firsts[equal]] < 0, firsts[equal], representatives[firsts[equal]])
    scores[equal] = scores[firsts[equal]]
    duplicate_indices = np.flatnonzero(representatives >= 0).tolist()
    pairs = tuple(_pair(corpus, int(representatives[n]), n, float(scores[n])) for n in duplicate_indices)
    members: dict[int, list[DuplicatePair]] = {}
    for pair in pairs:
        members.setdefault(pair.kept, []).append(pair)
    groups = [
        DuplicateGroup(first, group[0].kept_text, tuple(p.duplicate for p in group), min(p.score for p in group))
        for first, group in members.items()
    ]
    return Duplicates(
        family=model.family,
        threshold=float(threshold),
        texts=len(corpus),
        equal=len(equal),
        unknown=finder.unknown,
        pairs=pairs,
        groups=tuple(sorted(groups, key=lambda group: (-len(group.duplicates), group.kept))),
        guessed=tuple(finder.guessed),
        model=model,
    )


class _Finder:
    """What is known after some texts: those that are kept, and what the model does not know."""

    def __init__(self, model: Embedder, threshold: float, same_numbers: bool) -> None:
        self.model, self.threshold, self.same_numbers = model, threshold, same_numbers
        self.unknown = 0  # different texts without a known word
        self.guessed: dict[str, None] = {}  # words that the model guesses
        self._numbers: dict[Any, int] = {((), (), ()): 0}  # of what two duplicates must share
        self._kept_texts = KeptTexts()

    def compare(self, indices: Numbers, texts: list[str], representatives: Numbers) -> None:
        """Compare different texts with those that are kept and with each other, and set their representatives."""
        rows = _rows(self.model, texts, indices)
        is_known = np.asarray(abs(rows).sum(axis=1)).ravel() > 0
        self.unknown += int((~is_known).sum())
        if not is_known.any():
            return
        rows, indices = rows[np.flatnonzero(is_known)], indices[is_known]
        known_texts = [text for text, has_word in zip(texts, is_known) if has_word]
        guesses = guessed_words(self.model, known_texts)
        self.guessed |= dict.fromkeys(islice(chain(*guesses), 1_000 - len(self.guessed)))
        shared = (
            (find_signed_names(text), tuple(sorted(words)), find_numbers(text) if self.same_numbers else ())
            for text, words in zip(known_texts, guesses)
        )
        signatures = np.array([self._numbers.setdefault(key, len(self._numbers)) for key in shared])
        nearest, scores = self._kept_texts.nearest(rows, signatures, self.threshold)
        similarities = _similarities(rows, signatures, rows, signatures)
        is_close = np.tril(_reaches(similarities, self.threshold), -1)
        for row in np.flatnonzero(is_close.any(axis=1)).tolist():
            earlier = np.flatnonzero(is_close[row] & (nearest < 0))
            if len(earlier):
                best = earlier[similarities[row, earlier].argmax()]
                if similarities[row, best] > scores[row]:
                    nearest[row] = indices[best]
        representatives[indices] = nearest
        is_kept = nearest < 0
        self._kept_texts.add(rows[np.flatnonzero(is_kept)], indices[is_kept], signatures[is_kept])


def _score_pairs(finder: _Finder, corpus: Sequence[str], representatives: Numbers) -> npt.NDArray[np.float64]:
    """Return the score of each text to its representative, 1 for none; drop candidates that were one by rounding."""
    scores, duplicate = np.ones(len(corpus)), np.flatnonzero(representatives >= 0)
    for start in range(0, len(duplicate), _CHUNK_TEXTS):
        chunk = duplicate[start : start + _CHUNK_TEXTS]
        sides = (finder.model.encode([corpus[n] for n in side.tolist()]) for side in (representatives[chunk], chunk))
        scores[chunk] = np.round(finder.model.similarity_pairwise(*sides).astype(np.float64), _SCORE_DECIMALS)
    is_below = scores < finder.threshold
    representatives[is_below], scores[is_below] = -1, 1
    return scores


def _pair(texts: Sequence[str], representative: int, duplicate: int, score: float) -> DuplicatePair:
    first, second = texts[representative], texts[duplicate]
    words1, words2 = (Counter(lowercase(word.text) for word in split_words(text)) for text in (first, second))
    return DuplicatePair(
        kept=representative,
        duplicate=duplicate,
        score=score,
        kept_text=first,
        duplicate_text=second,
        only_kept=tuple((words1 - words2).elements()),
        only_duplicate=tuple((words2 - words1).elements()),
        numbers_differ=find_numbers(first) != find_numbers(second),
    )


def _rows(model: Embedder, texts: list[str], indices: Numbers) -> Any:
    """Return rows whose products are the model's similarities."""
    encoded = model.encode(texts)
    rows = to_2d_array(encoded) if model.similarity_fn_name == "dot" else l2_normalize(encoded)
    is_broken = ~np.isfinite(np.asarray(rows.sum(axis=1)).ravel())
    if is_broken.any():
        index = indices[is_broken.argmax()]
        raise InputError(f"the model gives NaN or infinity for text {index}; check its tables with pellucid doctor -m")
    return rows


def _reaches(scores: Any, threshold: float) -> Any:
    """Return which scores reach the threshold, rounded as they are reported."""
    return scores >= threshold - 0.5 * 10**-_SCORE_DECIMALS


def write_kept(
    corpus: str | Path | CorpusFile,
    report: Duplicates,
    output: str | Path,
    *,
    field: str = "text",
    overwrite: bool = False,
) -> None:
    """Write a corpus without its duplicates: the same lines, or rows with all their columns under the same header.

    Args:
        corpus: the file that `report` is about.
        report: from `duplicates`.
        output: the new file, with the ending of `corpus`, not packed; `corpus` itself, too.
        field: the column or key that holds the text, in a file named by a path.
        overwrite: replace another file that is there.

    Raises:
        InputError: `output` has another format, or is there already.
        CorpusError: the corpus cannot be read, or is not the one that the report is about.
        WritingError: the file cannot be written; what was there is untouched.
    """
    file = corpus_file(corpus, field)
    if file is None:
        raise InputError(f"rows are written from a file, got {type(corpus).__name__}")
    target = Path(output)
    check_copy(file, target)
    if not overwrite and not (target.exists() and target.samefile(file.path)):
        check_vacant(target, "give overwrite=True to replace it")
    is_kept = np.ones(report.texts, np.bool_)
    is_kept[[pair.duplicate for pair in report.pairs]] = False
    with writing(target) as tmp_path:
        copy_rows(file, tmp_path, is_kept)


_MAX_EXACT_ROWS = 32_768  # dense rows that are compared one by one
_GROWTH = 4
_N_PROBED_CELLS = 8  # cells that a question looks into
_SAMPLE = 50  # rows a cell that the centres are found from
_STEPS = 8  # of KMeans: later ones move few rows
_FLOAT16 = 2.0**-11  # the largest change of a product of two unit rows by float16


class KeptTexts:
    """The rows of kept texts, added a block at a time, and a search for the one with the largest product."""

    # Exact while the rows are few, or sparse. Many go into cells of faiss (an inverted file): float16 rows around
    # centres of KMeans; a search looks into the nearest cells. The centres are found anew whenever there are four times
    # as many rows, so that they fit rows in any order, such as sorted by subject.

    def __init__(self) -> None:
        """Begin without rows."""
        self._indices = self._signatures = np.zeros(0, np.int64)
        self._blocks: list[tuple[Any, Numbers, Numbers]] = []  # rows, indices, signatures
        self._cells: Any = None
        self._rebuilt_at = 0

    def nearest(self, rows: Any, signatures: Numbers, threshold: float) -> tuple[Numbers, Scores]:
        """Return for each row the index of the nearest kept text that has its signature, and the score.

        Below the threshold, less what float16 may change, they are -1 and minus infinity.
        """
        count = np.arange(len(signatures))
        nearest, scores = np.full(len(count), -1), np.full(len(count), -np.inf, np.float32)
        for similarities, indices in self._candidates(rows, signatures):
            best = similarities.argmax(axis=1)
            best_scores, best_indices = similarities[count, best], np.broadcast_to(indices, similarities.shape)
            nearest = np.where(best_scores > scores, best_indices[count, best], nearest)
            scores = np.maximum(scores, best_scores)
        is_near = _reaches(scores, threshold - (_FLOAT16 if self._cells is not None else 0))
        return np.where(is_near, nearest, -1), np.where(is_near, scores, np.float32(-np.inf))

    def _candidates(self, rows: Any, signatures: Numbers) -> Iterator[tuple[Scores, Numbers]]:
        """Yield products of the rows with kept ones, [n, m], and the indices of these, [m] or [n, m]."""
        if self._cells is not None:
            similarities, positions = self._cells.search(np.ascontiguousarray(rows, np.float32), _CANDIDATES)
            similarities[(positions < 0) | (self._signatures[positions] != signatures[:, None])] = -np.inf
            yield similarities, self._indices[positions]
        for block, indices, block_signatures in self._blocks:
            yield _similarities(rows, signatures, block, block_signatures), indices

    def add(self, rows: Any, indices: Numbers, signatures: Numbers) -> None:
        """Add rows of texts: float32 [n, dimension], an array or CSR."""
        if not len(indices):
            return
        self._indices, self._signatures = np.append(self._indices, indices), np.append(self._signatures, signatures)
        if self._cells is not None:
            self._cells.add(np.ascontiguousarray(rows, np.float32))
        else:
            self._blocks.append((rows, indices, signatures))
        count = len(self._indices)
        if count > _MAX_EXACT_ROWS and count >= _GROWTH * self._rebuilt_at and not hasattr(rows, "tocsr"):
            self._rebuild(count)

    def _rebuild(self, count: int) -> None:
        """Put all rows into new cells."""
        with importing("scale", "faiss-cpu"):
            import faiss
        rows = self._cells.reconstruct_n(0, count) if self._cells else np.concatenate([b[0] for b in self._blocks])
        cells = int(4 * count**0.5)
        sample = np.unique(np.linspace(0, count - 1, min(count, cells * _SAMPLE)).astype(np.int64))
        cells, dimension = min(cells, len(sample)), rows.shape[1]
        index = faiss.IndexIVFScalarQuantizer(
            faiss.IndexFlatIP(dimension), dimension, cells, faiss.ScalarQuantizer.QT_fp16,
            faiss.METRIC_INNER_PRODUCT, False,
        )  # fmt: skip
        index.cp.niter, index.cp.max_points_per_centroid, index.cp.min_points_per_centroid = _STEPS, _SAMPLE, 1
        index.nprobe = min(_N_PROBED_CELLS, cells)
        index.train(rows[sample])
        index.add(rows)
        self._cells, self._blocks, self._rebuilt_at = index, [], count


def _similarities(rows: Any, signatures: Numbers, other_rows: Any, other_signatures: Numbers) -> Scores:
    """Return the product of each row with each of `others`, minus infinity where their signatures differ."""
    product = rows @ other_rows.T
    similarities = np.asarray(product.toarray() if hasattr(product, "toarray") else product, np.float32)
    if signatures.any() or other_signatures.any():
        np.copyto(similarities, -np.inf, where=signatures[:, None] != other_signatures)
    return similarities
