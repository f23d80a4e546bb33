r"""Anchors resampled for a domain: how many stay, how far scores move, what is gained.

    python -m papers.ldir.domain --data shared/data --write

Of the bundled anchors over static-en some are replaced by sentences of the domain: those go whose coordinate varies
least over its texts, and those come that `choose_anchors` finds there (the text nearest to each centroid). Two domains:
SciFact's abstracts (test: claims, nDCG@10) and Banking77's training messages (test: the intent whose mean is nearest).
The share is chosen on SciFact's training claims and on a fifth of the training messages. The control replaces as many
anchors by general ones. The floors are random directions and sentences of the domain drawn at random, the means of five
draws; the ceiling is the encoder.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

import pellucid
from papers.kit import MIN_SEEDS, Figure, Table, mean_interval, run_script
from papers.ldir.baselines import bundled_anchors, decorrelated
from papers.ldir.development import graded_pairs, held_out
from papers.ldir.names import FLOOR
from papers.ldir.readability import HELD_OUT, TOP, Corpus, paired, shared_words
from papers.ldir.scored import random_directions
from papers.local_tasks import find_tasks
from papers.retrieval_sets import dense_hits, read_collection
from papers.sts import sts_spearman
from papers.vector_cache import Vectors, distinct, unit_rows
from pellucid.anchors import kmeans_points, uniform_points
from pellucid.anchors.candidates import candidate_texts
from pellucid.evaluation.tasks import read_table

N, MORE = 200, 500  # bundled anchors that are resampled, and those that the control draws from
SHARES = (0.25, 0.5, 1.0)
STRENGTHS = (0.75, 1.0)  # of the decorrelation; the first is that of the bundled models
NEAREST = 0.9  # no anchor has a greater cosine to another
SHOWN = 6
ENCODER, OWN, CONTROL = "the encoder", "the domain", "general text"
Encode = Callable[[list[str]], Vectors]


class Anchors(NamedTuple):
    """Anchors over an encoder: their texts and, at length 1, their vectors; how far they are decorrelated."""

    texts: list[str]
    vectors: Vectors
    strength: float = STRENGTHS[0]

    def take(self, rows: Sequence[int]) -> Anchors:
        """Return some of them."""
        return self._replace(texts=[self.texts[row] for row in rows], vectors=self.vectors[list(rows)])

    def coordinates(self, rows: Vectors) -> Vectors:
        """Return the coordinates of an encoder's rows, at length 1."""
        return unit_rows(rows @ decorrelated(self.vectors, self.strength).T)


def resampled_anchors(old: Anchors, found: Anchors, rows: Vectors, share: float) -> Anchors:
    """Replace a share of anchors.

    Args:
        old: anchors; first in the result, in their order, are those that stay.
        found: what may come, the best first.
        rows: texts of the domain at length 1, [texts, d].
        share: of the anchors that go, those whose coordinate varies least over `rows`.
    """
    count = round(share * len(old.texts))
    kept = np.sort(np.argsort(-(rows @ old.vectors.T).std(axis=0), kind="stable")[: len(old.texts) - count])
    stay = old.take(kept.tolist())
    vectors, come = stay.vectors, []
    for row, vector in enumerate(found.vectors):
        if len(vectors) < len(old.texts) and not (len(vectors) and (vectors @ vector).max() > NEAREST):
            vectors = np.vstack([vectors, vector])
            come.append(row)
    return Anchors(stay.texts + [found.texts[row] for row in come], vectors, old.strength)


class Domain(NamedTuple):
    """A domain.

    Attributes:
        name: as on the page.
        texts: what anchors may come from.
        tried: scores x 100 of the items that choose the share, by rows of a model.
        tested: of those that test it.
    """

    name: str
    texts: list[str]
    tried: Callable[[Encode], Vectors]
    tested: Callable[[Encode], Vectors]


def scifact(data: Path) -> Domain:
    """Return SciFact's abstracts, tried on training claims, tested on test claims."""
    task = next(task for task in find_tasks(data) if task.name == "SciFact")

    def searched(split: str, encode: Encode) -> Vectors:
        found = read_collection(task, split)
        return np.array(found.each_ndcg(dense_hits((encode(found.queries), encode(found.documents)), found)))

    texts = read_collection(task).documents
    return Domain("SciFact", texts, lambda encode: searched("train", encode), lambda encode: searched("test", encode))


def banking(data: Path) -> Domain:
    """Return Banking77's training messages, tried on every fifth of them, tested on the test messages."""
    folder = data / "classification" / "banking77"
    train, test = (read_table(folder / f"{name}.tsv", ["text", "label"]) for name in ("train", "test"))
    messages, labels = np.array(train["text"]), np.array(train["label"])
    fifth = np.arange(len(messages)) % 5 == 0

    def right(encode: Encode, known: Any, asked: tuple[list[str], Any]) -> Vectors:
        rows, names = encode(messages[known].tolist()), sorted(set(labels[known]))
        means = unit_rows(np.stack([rows[labels[known] == name].mean(axis=0) for name in names]))
        return 100.0 * (np.array(names)[(encode(asked[0]) @ means.T).argmax(axis=1)] == asked[1])

    return Domain(
        "Banking77",
        messages[~fifth].tolist(),
        lambda encode: right(encode, ~fifth, (messages[fifth].tolist(), labels[fifth])),
        lambda encode: right(encode, np.ones(len(labels), bool), (test["text"], np.array(test["label"]))),
    )


class Drift(NamedTuple):
    """How far the scores of pairs moved: Spearman's correlation of old and new ones, and the mean distance."""

    correlation: float
    moved: float


def drift(old: Anchors, new: Anchors, pairs: tuple[Vectors, Vectors]) -> Drift:
    """Compare the scores of pairs of an encoder's rows."""
    before, after = ((a.coordinates(pairs[0]) * a.coordinates(pairs[1])).sum(axis=1) for a in (old, new))
    return Drift(float(spearmanr(before, after)[0]), float(np.abs(before - after).mean()))


class Row(NamedTuple):
    """One set of anchors in a domain, or its encoder; scores x 100."""

    name: str
    anchors: Anchors | None
    tried: float
    tested: Vectors  # of each item
    words: Vectors | None  # [2, pairs]: of the first anchors, of all
    here: Drift | None
    elsewhere: Drift | None
    sts: float


class Bench:
    """static-en with its bundled anchors."""

    def __init__(self, data: Path) -> None:
        """Open the models."""
        self.data, self.model = data, pellucid.load("static-en")
        self._known: dict[tuple[str, ...], Vectors] = {}
        texts = [bundled_anchors(f"anchors-en-{n}") for n in (N, MORE)]
        self.old, self.more = (Anchors(some, self.rows(some)) for some in texts)
        self.general = graded_pairs(self.rows(held_out(data)))

    def rows(self, texts: Sequence[str]) -> Vectors:
        """Return the encoder's rows at length 1, those of a list only once."""
        key = tuple(texts)
        if key not in self._known:
            self._known[key] = unit_rows(np.asarray(self.model.encode(list(key)), np.float32))
        return self._known[key]

    def in_domain(self, domain: Domain) -> Iterator[Row]:
        """Yield the encoder, the anchors as they are, and resampled."""
        every = distinct(candidate_texts(domain.texts))
        every = [every[n] for n in np.random.default_rng(0).permutation(len(every)).tolist()]
        apart, sentences = every[:HELD_OUT], every[HELD_OUT:]
        rows, pairs = self.rows(sentences), paired(apart, self.rows(apart))
        both = (self.rows(pairs.left), self.rows(pairs.right))

        def row(name: str, anchors: Anchors | None, old: Anchors | None = None) -> Row:
            def encode(texts: list[str]) -> Vectors:
                return anchors.coordinates(self.rows(texts)) if anchors else self.rows(texts)

            sts = float(np.mean(list(sts_spearman(encode, self.data).values())))
            words = words_in_common(anchors, pairs, both) if anchors and anchors.texts else None
            given = (graded_pairs(self.rows(apart), len(apart)), self.general)
            here, there = (drift(old, anchors, some) if old and anchors else None for some in given)
            return Row(
                name, anchors, float(domain.tried(encode).mean()), domain.tested(encode), words, here, there, sts
            )

        yield row(ENCODER, None)
        floors: dict[str, Callable[[int], Anchors]] = {
            f"{N} {FLOOR}": lambda seed: Anchors([], random_directions(N, rows.shape[1], seed), 0.0),
            **{
                f"{N} of its sentences at random, strength {strength:g}": lambda seed, strength=strength: Anchors(
                    sentences, rows, strength
                ).take(uniform_points(rows, N, seed=seed).tolist())
                for strength in STRENGTHS
            },
        }
        for name, draw in floors.items():
            yield mean_row(name, [row("", draw(seed)) for seed in range(MIN_SEEDS)])
        drawn = np.random.default_rng(0).permutation(len(self.more.texts)).tolist()
        for strength in STRENGTHS:
            old = self.old._replace(strength=strength)
            yield row(f"{N} general anchors, strength {strength:g}", old)
            for share in SHARES:
                count = round(share * N)
                chosen = [*kmeans_points(rows, count), *kmeans_points(rows, 2 * count)]  # more: some are too near
                found = Anchors([sentences[n] for n in chosen], rows[chosen])
                for kind, source in ((OWN, found), (CONTROL, self.more.take(drawn))):
                    yield row(f"{share:.0%} from {kind}, strength {strength:g}",
                              resampled_anchors(old, source, rows, share), old)  # fmt: skip


def mean_row(name: str, draws: Sequence[Row]) -> Row:
    """Return the mean of some draws of anchors, which none of the table's gains is of."""
    tried, tested, sts = (
        np.mean([getattr(draw, figure) for draw in draws], axis=0) for figure in ("tried", "tested", "sts")
    )
    words = [draw.words for draw in draws if draw.words is not None]
    return Row(name, None, float(tried), tested, np.mean(words, axis=0) if words else None, None, None, float(sts))


def words_in_common(anchors: Anchors, texts: Corpus, rows: tuple[Vectors, Vectors]) -> Vectors:
    """Return how many anchors share a content word with a pair, in per cent: [2, pairs].

    First of the anchors that add most to its score, then of all, which is what chance gives.

    Args:
        anchors: of a model.
        texts: the pairs.
        rows: the encoder's rows of both sides.
    """
    products = np.prod([anchors.coordinates(side) for side in rows], axis=0)
    top = np.argsort(-products, axis=1, kind="stable")[:, :TOP]
    shared = shared_words(anchors.texts, texts)
    return 100 * np.stack([np.take_along_axis(shared, top, axis=1).mean(axis=1), shared.mean(axis=1)])


# --- The page ---------------------------------------------------------------------------------------------------------


def table(rows: list[Row]) -> Table:
    """Return the table of a domain."""
    columns = ["", "stay", "tried", "test", "gain", "over the control", "words", "by chance", "gain beyond chance"]
    columns += ["domain", "moved there", "general", "moved in general", "STS"]
    by_name, old = {row.name: row for row in rows}, rows[0]
    cells: list[list[Any]] = []
    for row in rows:
        before: list[Any] = [row.name, None, row.tried, float(row.tested.mean()), None, None]
        words: list[Any] = [*([None] * 2 if row.words is None else row.words.mean(axis=1).tolist()), None]
        if row.anchors and not row.here:
            old = row
        elif row.anchors and row.words is not None and old.anchors and old.words is not None:
            control = by_name[row.name.replace(OWN, CONTROL)]
            before[1] = len(set(row.anchors.texts) & set(old.anchors.texts))
            before[4] = mean_interval(row.tested - old.tested).with_verdict()
            before[5] = None if control is row else mean_interval(row.tested - control.tested).with_verdict()
            beyond_chance = [first - every for first, every in (row.words, old.words)]
            words[2] = mean_interval(beyond_chance[0] - beyond_chance[1]).with_verdict()
        cells.append([*before, *words, *_shown(row.here), *_shown(row.elsewhere), row.sts])
    return Table(columns, cells)


def _shown(found: Drift | None) -> tuple[str | None, str | None]:
    return (f"{found.correlation:.2f}", f"{found.moved:.2f}") if found else (None, None)


def _report(rows: list[Row]) -> str:
    """Name some anchors that go and come at the share that was chosen."""
    best = max((row for row in rows if OWN in row.name), key=lambda row: row.tried)
    old = next(row for row in rows if row.anchors)
    assert best.anchors and old.anchors
    gone = [text for text in old.anchors.texts if text not in set(best.anchors.texts)]
    come = [text for text in best.anchors.texts if text not in set(old.anchors.texts)]
    lines = [f"Chosen by what was tried: {best.name}. The first of those that go and come:", ""]
    lines += [f"- goes: {text}" for text in gone[:SHOWN]] + [f"- comes: {text}" for text in come[:SHOWN]]
    return "\n".join(lines)


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the table of each domain, and some of the anchors that go and come."""
    bench = Bench(options.data)
    for domain in (scifact(options.data), banking(options.data)):
        rows = list(bench.in_domain(domain))
        yield domain.name, table(rows)
        yield f"{domain.name}-anchors", _report(rows)


if __name__ == "__main__":
    run_script(measure, data="sts/, retrieval/, classification/ and raw_english/")
