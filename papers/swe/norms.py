"""What the lengths of a static model's vectors follow: parts of speech and frequency, after the paper's section 5.3.

In a mean of words the length of a vector is the weight of its word. The paper finds that the method makes articles,
prepositions and frequent words short and proper nouns long (Figure 2, Table 12), much as the SIF heuristic does by
frequency alone: Spearman's correlation of length and frequency rank.

Tagged texts are read from "word/TAG word/TAG" lines, "word TAG" lines, tab-separated and CoNLL-U files. Tags are taken
as they are, or brought to the coarse classes of Figure 2 by the Brown corpus's or the Penn Treebank's tag set.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pellucid.analysis.coordinates import Floats, spearman
from pellucid.errors import CorpusError, InputError
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, numbers, signed
from pellucid.explain.views.report import Report
from pellucid.static.bags import Bags
from pellucid.static.embedder import StaticEmbedder, static_model
from pellucid.text.lines import read_lines
from pellucid.text.words import display_form

Tagged = tuple[str, str]
"""A word and its tag."""

_CONLL_U = 10  # columns: number, form, lemma, universal tag, ...

_BROWN = (
    ("np", "Proper Noun"), ("nn", "Noun"), ("nr", "Noun"), ("at", "Article"), ("in", "Preposition"),
    ("cd", "Numeral"), ("od", "Numeral"), ("jj", "Adjective"), ("rb", "Adverb"), ("rn", "Adverb"), ("ql", "Adverb"),
    ("wrb", "Adverb"), ("wql", "Adverb"), ("rp", "Particle"), ("vb", "Verb"), ("be", "Verb"), ("do", "Verb"),
    ("hv", "Verb"), ("md", "Modal"), ("pp", "Pronoun"), ("pn", "Pronoun"), ("wp", "Pronoun"), ("dt", "Determiner"),
    ("ap", "Determiner"), ("ab", "Determiner"), ("wdt", "Determiner"), ("cc", "Conjunction"), ("cs", "Conjunction"),
    ("uh", "Interjection"), ("ex", "Pronoun"), ("to", "Particle"), ("*", "Adverb"),
)  # fmt: skip
_PENN = (
    ("nnp", "Proper Noun"), ("nn", "Noun"), ("cd", "Numeral"), ("jj", "Adjective"), ("rb", "Adverb"),
    ("wrb", "Adverb"), ("rp", "Particle"), ("vb", "Verb"), ("md", "Modal"), ("prp", "Pronoun"), ("wp", "Pronoun"),
    ("ex", "Pronoun"), ("in", "Preposition"), ("dt", "Determiner"), ("pdt", "Determiner"), ("wdt", "Determiner"),
    ("cc", "Conjunction"), ("uh", "Interjection"), ("to", "Particle"),
)  # fmt: skip
TAGSETS = ("as-is", "brown", "penn")


def coarse(tagset: str) -> Callable[[str], str]:
    """Return the function from a tag to its class, "" for punctuation and what has none.

    >>> coarse("brown")("NP-TL"), coarse("brown")("fw-in"), coarse("penn")("VBZ"), coarse("brown")(".")
    ('Proper Noun', 'Foreign', 'Verb', '')

    Raises:
        InputError: the tag set is unknown.
    """
    if tagset not in TAGSETS:
        raise InputError(f"tag set {tagset!r:.40} is unknown; known are {', '.join(TAGSETS)}")
    if tagset == "as-is":
        return lambda tag: tag
    classes = sorted(_BROWN if tagset == "brown" else _PENN, key=lambda item: -len(item[0]))

    def to_class(tag: str) -> str:
        tag = tag.lower()
        if tag.startswith("fw"):
            return "Foreign"
        return next((name for start, name in classes if tag.startswith(start)), "")

    return to_class


def read_tagged(*paths: str | Path) -> Iterator[Tagged]:
    """Yield the words and tags of files, also .gz and .xz.

    A line is "word/TAG word/TAG ...", the form of the Brown corpus; or one word and its tag, with a space or a tab
    between them; or CoNLL-U, whose universal tag is taken. Empty lines and CoNLL-U's "#" comments are passed over.

    Raises:
        CorpusError: a file is missing or broken, or a line (named by its number) has no tag.
    """
    for path in map(Path, paths):
        yield from _read_lines(read_lines(path, "tagged file"), path)


def _read_lines(lines: Iterable[str], path: Path) -> Iterator[Tagged]:
    slashed: bool | None = None  # whether the file has words with a slash and a tag; decided by its first line
    for number, line in enumerate(lines, 1):
        pieces = line.split()
        if not pieces or (line.startswith("# ") and len(pieces) > 2):  # a comment of CoNLL-U
            continue
        if "\t" in line.lstrip():  # the lines of the Brown corpus begin with a tab
            pairs = _columns(line.split("\t"))
        else:
            slashed = all("/" in piece for piece in pieces) if slashed is None else slashed
            pairs = _slashed(pieces) if slashed else [(pieces[0], pieces[1] if len(pieces) == 2 else "")]
        if not all(word and tag for word, tag in pairs):
            raise CorpusError(
                f"{path}, line {number}: {line.strip()!r:.60} has a word without a tag; a line is 'word TAG', "
                "'word/TAG word/TAG ...', or has tabs between columns"
            )
        yield from pairs


def _columns(columns: list[str]) -> list[Tagged]:
    """Return the word and tag of a line with tabs; numbers such as "1-2" in CoNLL-U are no single word."""
    columns = [column.strip() for column in columns]
    if len(columns) == _CONLL_U:
        return [(columns[1], columns[3])] if columns[0].isdigit() else []
    return [(columns[0], columns[1])]


def _slashed(pieces: list[str]) -> list[Tagged]:
    parts = [piece.rpartition("/") for piece in pieces]
    return [(word, tag) for word, _, tag in parts]


_EXAMPLES = 5  # words of a class or band
_LEAST = 3  # words: a correlation of fewer means nothing
_HEADS = (*numbers("mean", "sd", "relative"), ("", "bar"))


class TagNorm(NamedTuple):
    """The vectors of one part of speech.

    Attributes:
        tag: the part of speech.
        words: how many words it has, each counted once.
        mean: length of a vector.
        deviation: standard deviation of the lengths.
        relative: `mean` over the largest `mean` of all parts of speech.
        examples: its most frequent words.
    """

    tag: str
    words: int
    mean: float
    deviation: float
    relative: float
    examples: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class TagNorms(Report):
    """Lengths of word vectors by part of speech.

    Attributes:
        tokens: tagged words that were read.
        unknown: share of them that are no single word of the model.
        words: different words that were compared, the most frequent.
        left_out: words of parts of speech that have too few of them.
        tags: by descending mean length.
    """

    kind: ClassVar[str] = "tag-norms"
    table: ClassVar[str] = "tags"

    tokens: int
    unknown: float
    words: int
    left_out: int
    tags: tuple[TagNorm, ...]

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Vector length by part of speech", counted(self.words, "word"), "static model")
        rare = f" {self.left_out:,} words of rarer parts of speech are left out." if self.left_out else ""
        yield Note(
            f"The most frequent words of {self.tokens:,} tagged ones, each under its most frequent tag; "
            f"{self.unknown:.1%} are no single word of the model.{rare}"
        )
        heads = ("part of speech", ("words", "number"), *_HEADS, "most frequent")
        yield TablePart.of("", heads, ((t.tag, f"{t.words:,}", *_lengths(t), ", ".join(t.examples)) for t in self.tags))


class RankBand(NamedTuple):
    """Words of a band of frequency ranks.

    Attributes:
        first: rank of the first of them.
        last: rank of the last.
        mean: length of a vector.
        deviation: standard deviation of the lengths.
        relative: `mean` over the mean of the last band, of the rarest words.
        examples: the first words.
    """

    first: int
    last: int
    mean: float
    deviation: float
    relative: float
    examples: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class RankNorms(Report):
    """Lengths of word vectors by frequency rank.

    Attributes:
        ranked_by: "vocabulary" for the order of the vocabulary, "texts" for counts in given ones.
        words: how many were compared.
        correlation: Spearman's, of length and rank; above 0 frequent words are shorter. None where it has no value.
        bands: of ranks, ten times as wide each.
    """

    kind: ClassVar[str] = "rank-norms"
    table: ClassVar[str] = "bands"

    ranked_by: str
    words: int
    correlation: float | None
    bands: tuple[RankBand, ...]

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Vector length by frequency", signed(self.correlation), "Spearman's correlation with the rank")
        by = "their place in the vocabulary" if self.ranked_by == "vocabulary" else "their count in the texts"
        yield Note(
            f"Of {counted(self.words, 'word')}, ranked by {by}. Above 0, frequent words are shorter and weigh less in "
            "a mean, as with the SIF heuristic."
        )
        rows = ((f"{b.first:,} to {b.last:,}", *_lengths(b), ", ".join(b.examples)) for b in self.bands)
        yield TablePart.of("", ("ranks", *_HEADS, "first of them"), rows)


def norms_by_tag(
    model: StaticEmbedder, tagged: Iterable[Tagged], *, words: int = 10_000, tagset: str = "as-is", least: int = 5
) -> TagNorms:
    """Compare the lengths of word vectors by part of speech (Figure 2, Table 12).

    Args:
        model: a static model.
        tagged: words and tags, as `read_tagged` reads them; a word counts under its most frequent tag.
        words: compare so many of the most frequent words, as in the paper.
        tagset: "brown" or "penn" brings tags to the paper's classes, "as-is" keeps them.
        least: leave out parts of speech with fewer words.

    Raises:
        InputError: the model is not static, no word is known, or no part of speech has `least` words.
    """
    static_model(model, "comparing lengths")
    to_class = coarse(tagset)
    tags_of: defaultdict[str, Counter[str]] = defaultdict(Counter)
    tokens = unknown = 0
    for word, tag in tagged:
        name = to_class(tag)
        if not name:
            continue
        tokens += 1
        key = word if word in model.vocabulary else word.lower()
        if key in model.vocabulary:
            tags_of[key][name] += 1
        else:
            unknown += 1
    if not tags_of:
        raise InputError(f"none of {tokens:,} tagged words is in the vocabulary; is it another language or format?")
    frequent = sorted(tags_of, key=lambda key: (-tags_of[key].total(), key))[:words]
    found, left_out = _by_tag(model, frequent, tags_of, least)
    return TagNorms(tokens, unknown / tokens, len(frequent), left_out, found)


def _by_tag(
    model: StaticEmbedder, frequent: list[str], tags_of: dict[str, Counter[str]], least: int
) -> tuple[tuple[TagNorm, ...], int]:
    """Return the parts of speech by descending mean, and the number of words in those with fewer than `least`."""
    norm_of = dict(zip(frequent, _norms(model, [model.vocabulary.row(key) for key in frequent]).tolist(), strict=True))
    members: defaultdict[str, list[str]] = defaultdict(list)
    for key in frequent:
        members[tags_of[key].most_common(1)[0][0]].append(key)
    kept = {tag: keys for tag, keys in members.items() if len(keys) >= least}
    if not kept:
        raise InputError(f"no part of speech has {least} known words, the largest {max(map(len, members.values()))}")
    lengths = {tag: np.array([norm_of[key] for key in keys]) for tag, keys in kept.items()}
    largest = max(float(values.mean()) for values in lengths.values()) or 1.0
    found = [
        TagNorm(tag, len(keys), mean := float(lengths[tag].mean()), float(lengths[tag].std()), mean / largest,
                tuple(map(display_form, keys[:_EXAMPLES])))
        for tag, keys in kept.items()
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda t: -t.mean)), len(frequent) - sum(map(len, kept.values()))


def norms_by_rank(
    model: StaticEmbedder, texts: Iterable[str] | None = None, *, words: int | None = 10_000
) -> RankNorms:
    """Compare the lengths of word vectors with the frequency ranks of the words.

    Args:
        model: a static model.
        texts: rank words by their counts in these; None takes the order of the vocabulary, which most models have
            with the most frequent word first.
        words: compare only so many, the first in rank, as in the paper; None takes all. Far down the ranks vectors
            may become shorter again, since the teacher has little to say of very rare words.

    Raises:
        InputError: the model is not static, or fewer than three words are left.
    """
    static_model(model, "comparing lengths")
    rows, ranks = np.arange(len(model.vocabulary)), np.arange(1, len(model.vocabulary) + 1, dtype=np.float64)
    if texts is not None:
        from scipy.stats import rankdata

        counts = np.bincount(Bags.from_sentences(list(texts), model.vocabulary).rows, minlength=len(model.vocabulary))
        rows = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        ranks = rankdata(-counts[rows])  # equal counts have equal ranks
    rows, ranks = rows[:words], ranks[:words]
    if len(rows) < _LEAST:
        raise InputError(f"{len(rows)} words are left to compare; at least {_LEAST} are needed. Give more text")
    norms = _norms(model, rows)
    names = [display_form(model.vocabulary.words[row]) for row in rows.tolist()]
    ranked_by = "vocabulary" if texts is None else "texts"
    return RankNorms(ranked_by, len(rows), spearman(norms, ranks), _bands(norms, names))


def _lengths(row: TagNorm | RankBand) -> tuple[str, str, str, float]:
    """Return the cells below `_HEADS`."""
    return f"{row.mean:.3f}", f"{row.deviation:.3f}", f"{row.relative:.2f}", row.relative


def _norms(model: StaticEmbedder, rows: Any) -> Floats:
    norms: Floats = np.linalg.norm(model.word_vectors(rows).astype(np.float64), axis=1)
    return norms


def _bands(norms: Floats, names: list[str]) -> tuple[RankBand, ...]:
    edges = [0]
    while edges[-1] < len(norms):
        edges.append(min(max(10, edges[-1] * 10), len(norms)))
    last = float(norms[edges[-2] :].mean()) or 1.0
    return tuple(
        RankBand(a + 1, b, mean := float(norms[a:b].mean()), float(norms[a:b].std()), mean / last,
                 tuple(names[a : min(b, a + _EXAMPLES)]))
        for a, b in pairwise(edges)
    )  # fmt: skip
