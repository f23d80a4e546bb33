"""Clusters of a lexicon model that fire for the letters of a word and not for its meaning (LENS paper, section 5.5).

The paper shows such clusters by example: `tuple` fires for "tutoring", `count` for "county", as their tokens share a
piece. Two things can be measured over a corpus, and the report has both for each cluster among a text's strongest:

    lookalike   the share of its firings by a word that is not the cluster's own, shares a piece of letters with one of
                the cluster's first words, and is no nearer to them in meaning than words and clusters drawn at random
    alike       how much more alike two texts are that it fires on, through different words, than any two texts; at 0
                or below, sharing the cluster means nothing

Meaning is that of another encoder, which has other blind spots than the model.

    python -m papers.lens.letters --data shared/data

prints the example of docs/lexicon.md, `lexicon-minilm`, in about a minute.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import numpy as np

from papers.kit import Figure, run_script
from papers.models import minilm_path
from pellucid.analysis.coordinates import Floats, Integers, known_rows
from pellucid.core.dimensions import Dimension
from pellucid.core.embedder import Embedder
from pellucid.dense.vectors import unit_vectors
from pellucid.errors import InputError
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, numbers, percent, signed
from pellucid.explain.views.report import Report
from pellucid.lexicon.embedder import LexiconEmbedder
from pellucid.loading import load
from pellucid.progress import Progress
from pellucid.text.corpus import read_texts
from pellucid.text.inputs import check_texts
from pellucid.text.unicode import well_formed

VERDICTS = ("lookalike", "scattered")
_BATCH = 32  # texts of one forward pass
_ACTIVE = 256  # coordinates kept of a text, where the model keeps more
_FIRST = 3  # words of a cluster that say what it means
_PAIRS = 4_096  # compared at once
_SHARD = "…"  # as `tokenwords` marks a piece of a word
_SHOWN = 20  # clusters in a view
_WORDS = 5  # words of each in a view
_DRAWN = 5_000  # pairs of a word and a cluster, or of texts, that "at random" rests on
_STRONGEST = 50  # texts of a cluster that are compared with each other
_START, _INSIDE = 2, 3  # letters of a shared piece at least: at the start of both words, elsewhere


class Firing(NamedTuple):
    """A cluster among the strongest of a text: which text, which cluster, what fired it, and its coordinate."""

    text: int
    dimension: int
    word: str
    weight: float


def fired_words(model: LexiconEmbedder, texts: Sequence[str], top_k: int) -> tuple[list[int], list[Firing]]:
    """Return the texts that fire anything, by number, and what fired the strongest clusters of each.

    Args:
        model: with a pooling that knows what fired.
        texts: any number; of each as much counts as the model reads.
        top_k: clusters of each text.

    Returns:
        The firings text by text, the strongest first, with coordinates of rows of length 1, of which at most 256
        (more if `top_k` is) are kept. Firings by what is no word (a mark of punctuation) are left out.
    """
    n_active = max(top_k, _ACTIVE)
    n_active = min(n_active, model.settings.max_active_dims or n_active)
    model = model.with_settings(replace(model.settings, max_active_dims=n_active))
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))  # those of a batch are of like lengths
    known, firings = list[int](), list[Firing]()
    with Progress("encoding", total=len(texts)) as progress:
        for first in range(0, len(order), _BATCH):
            numbers = order[first : first + _BATCH]
            queries = model.analyze_texts([well_formed(texts[number]) for number in numbers], [None] * len(numbers))
            for number, query in zip(numbers, queries, strict=True):
                row, find_spans = query.coordinates, query.span_finder
                assert find_spans is not None  # every lexicon model has one
                known += [number] * bool(row.nnz)
                for n in np.argsort(-row.data, kind="stable")[:top_k].tolist():
                    dimension = int(row.indices[n])
                    for start, end in find_spans(dimension):
                        word = query.text[start:end].casefold()
                        if any(map(str.isalnum, word)):
                            firings.append(Firing(number, dimension, word, float(row.data[n])))
            progress.advance(len(numbers))
    return sorted(known), sorted(firings, key=lambda f: (f.text, -f.weight))


def own_words(dimension: Dimension) -> frozenset[str]:
    """Return the words and pieces of a cluster, as a text has them, in lower case."""
    return frozenset(map(_plain, dimension.about))


def first_words(dimension: Dimension, *, whole: bool = False) -> list[str]:
    """Return the best-formed words of a cluster; with `whole` no pieces of words, unless it has nothing else."""
    words = [word for word in dimension.about if any(map(str.isalnum, word))][:_FIRST]
    if whole:
        words = [word for word in words if not word.startswith(_SHARD)] or words
    return list(dict.fromkeys(map(_plain, words)))


def _plain(word: str) -> str:
    return word.removeprefix(_SHARD).casefold()


def shared_piece(word: str, other: str) -> str:
    """Return the letters by which two words look alike, "" where they do not.

    That is a beginning of two letters or more that both have, if it is a third of the shorter word; or three letters or
    more that begin or end one of them, but not an ending of both, which is grammar (`riding`, `tuning`), unless it is
    the whole of one.

    >>> [shared_piece(*pair) for pair in (("tutoring", "tuple"), ("hangar", "anger"), ("riding", "tuning"))]
    ['tu', 'ang', '']
    """
    match = SequenceMatcher(None, word, other, autojunk=False).find_longest_match(0, len(word), 0, len(other))
    piece = word[match.a : match.a + match.size]
    ends = [match.a + match.size == len(word), match.b + match.size == len(other)]
    begins = [match.a == 0, match.b == 0]
    whole = any(begin and end for begin, end in zip(begins, ends, strict=True))
    if len(piece) >= _INSIDE and (whole or (any(begins + ends) and not all(ends))):
        return piece
    start = next((n for n, (a, b) in enumerate(zip(word, other)) if a != b), min(len(word), len(other)))
    return word[:start] if start >= max(_START, min(len(word), len(other)) / 3) else ""


def _cosines(units: Any, pairs: Integers) -> Floats:
    """Return the cosines of pairs [n, 2] of rows of length 1 (or 0)."""
    cosines = np.zeros(len(pairs))
    for start in range(0, len(pairs), _PAIRS):
        a, b = (units[rows] for rows in pairs[start : start + _PAIRS].T)
        product = a.multiply(b) if hasattr(a, "multiply") else a * b
        cosines[start : start + _PAIRS] = np.asarray(product.sum(axis=1), np.float64).ravel()
    return cosines


@dataclass(frozen=True)
class FiringThresholds:
    """From where on a cluster is reported.

    Attributes:
        top_k: a cluster counts where it is among so many of the largest coordinates of a text (the paper's 10).
        texts: it is judged if that is so in at least so many texts.
        lookalike: a lookalike has at least this share of its firings by lookalike words.
        unrelated: a word is unrelated to a cluster that is no nearer to it than this share of random pairs are.
        pairs: "scattered" needs at least so many pairs of texts.
    """

    top_k: int = 10
    texts: int = 3
    lookalike: float = 0.5
    unrelated: float = 0.95
    pairs: int = 45


class FiringWord(NamedTuple):
    """A word that fired a cluster.

    Attributes:
        word: in lower case.
        texts: in how many texts.
        piece: the letters it shares with one of the cluster's first words; "" for none, and for the cluster's own word.
        related: share of random pairs of a word and a cluster that are no more alike in meaning; 1 for the cluster's
            own word, None where the meaning is not known, as an encoder may not know a word.
        lookalike: whether it has a piece of the cluster and not its meaning.
    """

    word: str
    texts: int
    piece: str
    related: float | None
    lookalike: bool


class FiringCluster(NamedTuple):
    """What was measured of one cluster.

    Attributes:
        name: of the dimension.
        verdict: "", "lookalike", "scattered", or both with a comma between them.
        texts: in how many texts it was among the strongest.
        lookalike: share of these in which a lookalike word fired it.
        alike: how much more alike texts are that different words of theirs make share it; None without such texts.
        pairs: of texts that `alike` rests on.
        words: what fired it, the commonest first.
    """

    name: str
    verdict: str
    texts: int
    lookalike: float
    alike: float | None
    pairs: int
    words: tuple[FiringWord, ...]


@dataclass(frozen=True, repr=False)
class LexicalFiring(Report):
    """Which clusters of a model fire for letters, not for meaning.

    Attributes:
        family: the family of the model.
        texts: the number of texts.
        meaning: whose.
        mean_score: mean cosine of two texts drawn at random.
        chance: share of random pairs of a word and a cluster that would pass for lookalikes.
        thresholds: what the verdicts were made with.
        measured: the clusters that were judged: those with a verdict first, then by falling number of texts.
    """

    kind: ClassVar[str] = "firing"
    table: ClassVar[str] = "measured"

    family: str
    texts: int
    meaning: str
    mean_score: float
    chance: float
    thresholds: FiringThresholds
    measured: tuple[FiringCluster, ...]

    def of(self, verdict: str) -> list[FiringCluster]:
        """Return the clusters with a verdict: "lookalike" or "scattered"."""
        return [cluster for cluster in self.measured if verdict in cluster.verdict.split(", ")]

    @property
    def names(self) -> list[str]:
        """The clusters with a verdict, for `model.without(*report.names)`."""
        return [cluster.name for cluster in self.measured if cluster.verdict]

    def _parts(self) -> Iterator[AnyPart]:
        limits = self.thresholds
        counts = ", ".join(f"{len(self.of(verdict))} {verdict}" for verdict in VERDICTS)
        yield Heading("Lexical firing", counted(len(self.names), "cluster"), f"{counts}, {self.family} model")
        yield Note(
            f"{counted(len(self.measured), 'cluster')} among the {limits.top_k} strongest of {limits.texts} texts or "
            f"more, over {counted(self.texts, 'text')}. Meaning is {self.meaning}. Two random texts score "
            f"{signed(self.mean_score, 4)}; of random words and clusters {percent(self.chance)} pass for lookalikes."
        )
        titles = (
            f"lookalike: {percent(limits.lookalike)} of the firings or more by words that only look like its own",
            "scattered: texts that share it through different words are no more alike than any two",
        )
        for verdict, title in zip(VERDICTS, titles, strict=True):
            found = self.of(verdict)
            more = f" (the first {_SHOWN})" if len(found) > _SHOWN else ""
            yield _table(f"{len(found):,} {title}{more}", found[:_SHOWN]) if found else Note(f"None {title}.")


def _table(title: str, clusters: Sequence[FiringCluster]) -> TablePart:
    """Return the table of some clusters; a star marks lookalike words."""
    rows = []
    for c in clusters:
        words = ", ".join(f"{w.word}{'*' if w.lookalike else ''} ({w.texts})" for w in c.words[:_WORDS])
        rows.append((c.name, words, f"{c.texts:,}", percent(c.lookalike), signed(c.alike)))
    return TablePart.of(title, ["cluster", "fired by", *numbers("texts", "lookalike", "alike")], rows)


def lexical_firing(
    model: Embedder,
    texts: Iterable[str],
    *,
    encoder: Any = "static-en",
    thresholds: FiringThresholds | None = None,
    seed: int = 0,
) -> LexicalFiring:
    """Find the clusters of `model` that fire for the letters of words and not for their meaning.

    Args:
        model: a lexicon model, with "max" or "sum" pooling.
        texts: like those the model is for, some thousands; they are held in memory.
        encoder: whose meaning counts, what `pellucid.load` takes.
        thresholds: where verdicts begin; None takes the defaults.
        seed: of the random pairs.

    Raises:
        InputError: the model is of another family, its clusters have no words or its pooling knows none, it knows
            fewer than two of the texts, or an item is no string.
    """
    limits = thresholds or FiringThresholds()
    if not isinstance(model, LexiconEmbedder):
        raise InputError(f"only a lexicon model has clusters that words fire, got {type(model).__name__}")
    if model.settings.pooling == "last":
        raise InputError("after 'last' pooling no word is known to have fired a cluster; use 'max' or 'sum'")
    if not any(item.about for item in model.dimensions):
        raise InputError("the model's clusters have no words; open it with the backbone it was trained from")
    texts, encoder = check_texts(texts), load(encoder)
    known, firings = fired_words(model, texts, limits.top_k)
    if len(known) < 2:
        raise InputError(f"at least two texts that the model knows something of are needed, got {len(known)}")
    vectors, random = unit_vectors(encoder, list(texts)), np.random.default_rng(seed)
    drawn = random.choice(known, (2, _DRAWN)).T
    any_two = float(_cosines(vectors, drawn[drawn[:, 0] != drawn[:, 1]]).mean())
    words, chance = _judged_words(model, firings, encoder, limits, random)
    by_dimension: dict[int, list[Firing]] = {}
    for firing in firings:
        by_dimension.setdefault(firing.dimension, []).append(firing)
    measured = [
        _cluster(model.dimensions.names[dimension], group, words, vectors, any_two, limits)
        for dimension, group in by_dimension.items()
        if len(group) >= limits.texts
    ]
    return LexicalFiring(
        family=model.family,
        texts=len(known),
        meaning=f"that of {getattr(encoder, 'name', type(encoder).__name__)}",
        mean_score=any_two,
        chance=chance,
        thresholds=limits,
        measured=tuple(sorted(measured, key=lambda c: (not c.verdict, -c.texts, c.name))),
    )


def _judged_words(
    model: LexiconEmbedder,
    firings: Sequence[Firing],
    encoder: Embedder,
    limits: FiringThresholds,
    random: np.random.Generator,
) -> tuple[dict[tuple[str, int], FiringWord], float]:
    """Return each word and the cluster it fired, compared with random pairs, and the share of lookalikes in those."""
    dimensions = sorted({firing.dimension for firing in firings})
    own = {j: own_words(model.dimensions[j]) for j in dimensions}
    first = {j: first_words(model.dimensions[j]) for j in dimensions}
    meant = {j: first_words(model.dimensions[j], whole=True) for j in dimensions}
    pairs = sorted({(f.word, f.dimension) for f in firings if f.word not in own[f.dimension]})
    spoken = sorted({firing.word for firing in firings})
    chosen = zip(random.integers(len(spoken), size=_DRAWN), random.integers(len(dimensions), size=_DRAWN))
    at_random = [(spoken[a], dimensions[b]) for a, b in chosen]
    at_random = [(word, j) for word, j in at_random if word not in own[j] and first[j]]
    every = [*pairs, *at_random]
    values = _related([(word, meant[j]) for word, j in every], encoder)
    floor = np.sort(values[len(pairs) :])
    floor = floor[~np.isnan(floor)]
    ranks = np.searchsorted(floor, values, side="right") / max(len(floor), 1)
    judged = []
    for (word, j), value, rank in zip(every, values, ranks, strict=True):
        piece = max((shared_piece(word, other) for other in first[j]), key=len, default="")
        related = None if np.isnan(value) else float(rank)
        is_lookalike = bool(piece) and related is not None and related <= limits.unrelated
        judged.append(FiringWord(word, 0, piece, related, is_lookalike))
    chance = sum(word.lookalike for word in judged[len(pairs) :]) / max(len(floor), 1)
    return dict(zip(pairs, judged, strict=False)), chance


def _related(pairs: Sequence[tuple[str, Sequence[str]]], encoder: Embedder) -> Floats:
    """Return for each word and words of a cluster the largest cosine; NaN where the encoder knows none of them."""
    words = sorted({word for word, _ in pairs} | {other for _, others in pairs for other in others})
    vectors, index = unit_vectors(encoder, words), {word: n for n, word in enumerate(words)}
    known, related = known_rows(vectors), np.full(len(pairs), np.nan)
    flat = [
        (n, index[word], index[other])
        for n, (word, others) in enumerate(pairs)
        for other in others
        if known[index[word]] and known[index[other]]
    ]
    if flat:
        positions = np.array(flat)
        np.fmax.at(related, positions[:, 0], _cosines(vectors, positions[:, 1:]))
    return related


def _cluster(
    name: str,
    firings: Sequence[Firing],
    words: Mapping[tuple[str, int], FiringWord],
    vectors: Any,
    any_two: float,
    limits: FiringThresholds,
) -> FiringCluster:
    """Return what was measured of one cluster; a word that is not among `words` is the cluster's own."""
    counts, dimension = Counter(firing.word for firing in firings), firings[0].dimension
    spoken = tuple(
        words.get((word, dimension), FiringWord(word, 0, "", 1.0, False))._replace(texts=count)
        for word, count in counts.most_common()
    )
    share = sum(word.texts for word in spoken if word.lookalike) / len(firings)
    strongest = sorted(firings, key=lambda firing: -firing.weight)[:_STRONGEST]
    pairs = [(a.text, b.text) for n, a in enumerate(strongest) for b in strongest[:n] if a.word != b.word]
    alike = float(_cosines(vectors, np.array(pairs)).mean()) - any_two if pairs else None
    verdicts = [VERDICTS[0]] if share >= limits.lookalike else []
    if alike is not None and alike <= 0 and len(pairs) >= limits.pairs:
        verdicts.append(VERDICTS[1])
    return FiringCluster(name, ", ".join(verdicts), len(firings), share, alike, len(pairs), spoken)


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the report on the first sentences of the corpus of static-en."""
    model = LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=minilm_path())
    texts = islice(read_texts(options.data / "raw_english" / "open_licence.txt.xz"), 3_000)
    yield "firing", str(lexical_firing(model, texts))


if __name__ == "__main__":
    run_script(measure, data="raw_english/")
