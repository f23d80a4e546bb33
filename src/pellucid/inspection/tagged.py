"""Reading texts with part-of-speech tags: "word/TAG word/TAG" lines, "word TAG" lines, tab-separated and CoNLL-U files.

Tags are taken as they are, or brought to the coarse classes of the static-word-embeddings paper's Figure 2 by the Brown
corpus's or the Penn Treebank's tag set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pellucid.corpus import read_lines
from pellucid.errors import CorpusError, InputError

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
    slashed: bool | None = None  # whether the file has words with a slash and a tag; its first line tells
    for number, line in enumerate(lines, 1):
        pieces = line.split()
        if not pieces or (line.startswith("# ") and len(pieces) > 2):  # a comment of CoNLL-U
            continue
        if "\t" in line:
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
    """Return the word and tag of a line with tabs; numbers such as "1-2" in CoNLL-U stand for no single word."""
    columns = [column.strip() for column in columns]
    if len(columns) == _CONLL_U:
        return [(columns[1], columns[3])] if columns[0].isdigit() else []
    return [(columns[0], columns[1])]


def _slashed(pieces: list[str]) -> list[Tagged]:
    parts = [piece.rpartition("/") for piece in pieces]
    return [(word, tag) for word, _, tag in parts]
