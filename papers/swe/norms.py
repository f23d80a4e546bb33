"""What the lengths of a static model's vectors follow: parts of speech and frequency, after the paper's section 5.3.

In a mean of words the length of a vector is the weight of its word. The paper finds that the method makes articles,
prepositions and frequent words short and proper nouns long (Figure 2, Table 12), much as the SIF heuristic does by
frequency alone: Spearman's correlation of length and frequency rank.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.analysis.coordinates import Floats, spearman
from pellucid.errors import CorpusError
from pellucid.static.bags import Bags
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.lines import read_lines

Tagged = tuple[str, str]
"""A word and its tag."""

_CONLL_U = 10  # columns: number, form, lemma, universal tag, ...

_CLASSES = {
    "np": "Proper Noun", "nn": "Noun", "nr": "Noun", "at": "Article", "in": "Preposition", "cd": "Numeral",
    "od": "Numeral", "jj": "Adjective", "rb": "Adverb", "rn": "Adverb", "ql": "Adverb", "wrb": "Adverb",
    "wql": "Adverb", "rp": "Particle", "vb": "Verb", "be": "Verb", "do": "Verb", "hv": "Verb", "md": "Modal",
    "pp": "Pronoun", "pn": "Pronoun", "wp": "Pronoun", "dt": "Determiner", "ap": "Determiner", "ab": "Determiner",
    "wdt": "Determiner", "cc": "Conjunction", "cs": "Conjunction", "uh": "Interjection", "ex": "Pronoun",
    "to": "Particle", "*": "Adverb", "fw": "Foreign",
}  # fmt: skip
"""Start of a tag of the Brown corpus -> its class in Figure 2."""


def brown_class(tag: str) -> str:
    """Return the class of a tag of the Brown corpus, "" for punctuation and what has none.

    >>> brown_class("NP-TL"), brown_class("fw-in"), brown_class("wdt"), brown_class(".")
    ('Proper Noun', 'Foreign', 'Determiner', '')
    """
    starts = (tag.lower()[:length] for length in (3, 2, 1))
    return next((_CLASSES[start] for start in starts if start in _CLASSES), "")


def read_tagged(*paths: str | Path) -> Iterator[Tagged]:
    """Yield the words and tags of files, also .gz and .xz.

    A line is "word/TAG word/TAG ...", the form of the Brown corpus, or one of CoNLL-U, whose universal tag is taken.

    Raises:
        CorpusError: a file is missing or broken, or a line (named by its number) has no tag.
    """
    for path in map(Path, paths):
        for number, line in enumerate(read_lines(path, "tagged file"), 1):
            cells = line.strip().split("\t")
            if len(cells) == _CONLL_U:
                pairs = [(cells[1], cells[3])] if cells[0].isdigit() else []  # "1-2" is no single word
            else:
                pieces = [] if line.startswith("# ") else line.split()
                pairs = [(word, tag) for word, _, tag in (piece.rpartition("/") for piece in pieces)]
            if not all(word and tag for word, tag in pairs):
                raise CorpusError(f"{path}, line {number}: {line.strip()!r:.60} has a word without a tag")
            yield from pairs


def norms_by_tag(
    model: StaticEmbedder, tagged: Iterable[Tagged], *, words: int = 10_000, brown: bool = False, least: int = 5
) -> dict[str, float]:
    """Return the mean length of the word vectors of each part of speech (Figure 2, Table 12).

    Args:
        model: a static model.
        tagged: words and tags; a word counts once, under its most frequent tag.
        words: of the most frequent words, as in the paper.
        brown: bring tags of the Brown corpus to the paper's classes.
        least: leave out parts of speech with fewer words.
    """
    tags_of: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for word, tag in tagged:
        name = brown_class(tag) if brown else tag
        key = word if word in model.vocabulary else word.lower()
        if name and key in model.vocabulary:
            tags_of[key][name] += 1
    frequent = sorted(tags_of, key=lambda key: (-tags_of[key].total(), key))[:words]
    members: defaultdict[str, list[float]] = defaultdict(list)
    for key, norm in zip(frequent, _norms(model, [model.vocabulary.row(key) for key in frequent]), strict=True):
        members[tags_of[key].most_common(1)[0][0]].append(norm)
    return {tag: float(np.mean(found)) for tag, found in members.items() if len(found) >= least}


def norms_by_rank(model: StaticEmbedder, texts: Iterable[str] | None = None, *, words: int = 10_000) -> float | None:
    """Return Spearman's correlation of the lengths of word vectors with their frequency ranks.

    Args:
        model: a static model.
        texts: rank words by their counts in these; None takes the order of the vocabulary, which most models have
            with the most frequent word first.
        words: the first in rank, as in the paper. Far down the ranks vectors may become shorter again, since the
            teacher has little to say of very rare words.
    """
    rows, ranks = np.arange(len(model.vocabulary)), np.arange(1, len(model.vocabulary) + 1, dtype=np.float64)
    if texts is not None:
        from scipy.stats import rankdata

        counts = np.bincount(Bags.from_sentences(list(texts), model.vocabulary).rows, minlength=len(model.vocabulary))
        rows = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        ranks = rankdata(-counts[rows])  # equal counts have equal ranks
    return spearman(_norms(model, rows[:words]), ranks[:words])


def _norms(model: StaticEmbedder, rows: Any) -> Floats:
    norms: Floats = np.linalg.norm(model.word_vectors(rows).astype(np.float64), axis=1)
    return norms
