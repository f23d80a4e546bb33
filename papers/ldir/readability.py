r"""Do the anchors that an explanation names say what the texts have in common?

    python -m papers.ldir.readability --data shared/data --work-dir WORK --write
    python -m papers.ldir.readability --data shared/data --work-dir WORK --only floors --write

The pairs are texts that no anchor may be taken from, each with its fifth nearest. MiniLM, in bfloat16, is the judge of
topics. What was measured is kept in WORK, so a stopped run resumes. The floors, random directions named by the nearest
candidates and random sentences, are rows of their own.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import lzma
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import pellucid
from papers.kit import Figure, Table, run_script
from papers.ldir.baselines import decorrelated
from papers.ldir.development import held_out
from papers.ldir.names import FLOOR, Named, nearest_names
from papers.ldir.scored import random_directions
from papers.models import bfloat16_encoder, minilm_path
from papers.retrieval_sets import dense_score, read_collection
from papers.sts import sts_spearman
from papers.vector_cache import CachedEncoder, Vectors, distinct, unit_rows
from pellucid.anchors import CandidateSettings, frame_points, kmeans_points, prepare_candidates, uniform_points
from pellucid.evaluation.evaluating import cache_key
from pellucid.evaluation.tasks import find_tasks
from pellucid.text.function_words import content_words

PAIRS, HELD_OUT, TOP = 250, 2_000, 5
_POOL = 4_096  # candidates that facility location looks at
Rows = npt.NDArray[np.int64]


class Choice(NamedTuple):
    """How a model is made: how many anchors, by which method, decorrelated how far, and how many coordinates it keeps.

    `keeps` above 0 makes a sparse code: but for so many the greatest, less the next one, coordinates become 0.
    """

    method: str
    n: int = 200
    strength: float = 1.0
    keeps: int = 0

    def __str__(self) -> str:
        """Name it as in the page."""
        code = f", the {self.keeps} greatest alone" if self.keeps else ""
        return f"{self.method}, {self.n}, strength {self.strength:g}{code}"


EVERYWHERE = [Choice("frame", strength=0.5), Choice("kmeans", strength=0.75), Choice("kmeans")]
GENERAL = [
    *EVERYWHERE, Choice("uniform"), Choice("frame"), Choice("ica"), Choice("facility location"),
    Choice("kmeans", strength=0.5), Choice("kmeans", keeps=20), Choice("kmeans", keeps=50),
    Choice("frame", 500, 0.5), Choice("kmeans", 500, 0.75), Choice("kmeans", 500),
]  # fmt: skip
FLOORS = [Choice(FLOOR, strength=0.0), Choice("uniform", strength=0.0), Choice("uniform", strength=0.75)]


def facility_location(vectors: Vectors, n: int, *, seed: int = 0) -> Rows:
    """Choose `n` rows greedily so that the mean of every row's greatest cosine to one of them is greatest."""
    drawn = np.random.default_rng(seed).permutation(len(vectors))[:_POOL]
    cosines = np.maximum(unit_rows(vectors[drawn]) @ unit_rows(vectors[drawn]).T, 0)
    reached, picks = np.zeros(len(drawn), np.float32), []
    for _ in range(n):
        gains = np.maximum(cosines - reached, 0).sum(axis=1)
        picks.append(int(gains.argmax()))
        reached = np.maximum(reached, cosines[picks[-1]])
    return drawn[picks]


def independent_components(vectors: Vectors, n: int, *, seed: int = 0) -> Rows:
    """Choose the row nearest to each of `n` orthogonal directions w with the greatest sum of max(w . x, 0)^4.

    That is independent component analysis by kurtosis, without whitening: few texts are far along a component.
    """
    rng = np.random.default_rng(seed)
    sample = unit_rows(vectors[rng.permutation(len(vectors))[: 4 * _POOL]])
    axes = rng.normal(size=(n, sample.shape[1])).astype(np.float32)
    for _ in range(25):
        left, _, right = np.linalg.svd(np.maximum(sample @ axes.T, 0).T ** 3 @ sample, full_matrices=False)
        axes = left @ right
    return (unit_rows(vectors) @ axes.T).argmax(axis=0)


CHOOSERS: dict[str, Callable[..., Rows]] = {
    "uniform": uniform_points, "kmeans": kmeans_points, "frame": frame_points, "ica": independent_components,
    "facility location": facility_location,
}  # fmt: skip


def choose(vectors: Vectors, method: str, n: int) -> Named:
    """Choose rows as anchors, or draw directions and name each by the row nearest to it."""
    if method == FLOOR:
        return nearest_names(vectors, random_directions(n, vectors.shape[1], 0))
    rows = CHOOSERS[method](vectors, n)
    return Named(vectors[rows], rows)


class Corpus(NamedTuple):
    """Pairs of texts that no anchor is taken from, and candidates for anchors with their vectors at length 1."""

    left: list[str]
    right: list[str]
    texts: Sequence[str] = ()
    vectors: Vectors | None = None


def paired(texts: list[str], rows: Vectors) -> Corpus:
    """Pair the first of some texts with their fifth nearest of them."""
    fifth = np.argsort(-(rows[:PAIRS] @ rows.T), axis=1, kind="stable")[:, 5].tolist()  # the first is the text itself
    return Corpus(texts[:PAIRS], [texts[n] for n in fifth])


def read_corpora(data: Path) -> Iterator[tuple[str, list[str] | Path, list[str], CandidateSettings]]:
    """Yield the name of each corpus, its texts, some that are held out, and the settings of candidates."""
    general = CandidateSettings(words=(4, 20), max_candidates=40_000)
    yield "general", data / "raw_english/open_licence.txt.xz", held_out(data, 2 * HELD_OUT), general
    with lzma.open(data / "retrieval_train/medquad/qa.jsonl.xz", "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    tenth = [hashlib.md5((r["focus"] or "").encode()).digest()[0] < 26 for r in records]  # of the subjects
    answers = [r["answer"] for r in records]
    sentences = [s.strip() for a, held in zip(answers, tenth) if held for s in a.split(". ")]
    yield "MedQuAD", [a for a, held in zip(answers, tenth) if not held], sentences, CandidateSettings()
    for name, folder in (("snippets", "search_snippets"), ("titles", "stackoverflow_titles")):
        lines = (data / "clustering" / folder / "test.tsv").read_text(encoding="utf-8").split("\n")[1:]
        texts = distinct(line.split("\t")[0].strip() for line in lines if line.strip())
        yield name, texts[HELD_OUT:], texts[:HELD_OUT], CandidateSettings()


class Bench:
    """The encoder, the judge, and what was measured before."""

    def __init__(self, data: Path, work: Path) -> None:
        """Open the encoder and the judge."""
        self.data, self.work = data, work
        self.static = pellucid.load("static-en")
        self.fingerprint = cache_key(self.static)
        self.encode = CachedEncoder(f"static-en {self.fingerprint}", self.static.encode, work / "vectors")
        self.judge = bfloat16_encoder(minilm_path(), work / "vectors", "MiniLM, 64 tokens,")
        self.judge.opened.max_seq_length = 64
        self.tasks = [task for task in find_tasks(data) if task.kind == "Retrieval"]

    def corpus(self, name: str, texts: Any, held: list[str], settings: CandidateSettings) -> Corpus:
        """Filter and encode a corpus, and pair the texts held out."""
        folder = self.work / self.fingerprint / name
        candidates = prepare_candidates(self.static, texts, settings, folder, show_progress_bar=False)
        vectors = unit_rows(np.asarray(candidates.vectors, np.float32))
        held = [text for text in distinct(held) if len(content_words(text)) > 1]
        held = [held[i] for i in np.random.default_rng(0).permutation(len(held))[:HELD_OUT]]
        pairs = paired(held, unit_rows(self.encode(held)))
        return pairs._replace(texts=candidates.texts(np.arange(len(vectors))), vectors=vectors)

    def row(self, corpus: Corpus, choice: Choice, *, sets: bool) -> dict[str, float]:
        """Measure one model: readability, and with `sets` STS and retrieval."""
        named = choose(corpus.vectors, choice.method, choice.n)
        matrix = decorrelated(named.directions, choice.strength)

        def encode(texts: list[str]) -> Vectors:
            return _code(unit_rows(self.encode(texts)) @ matrix.T, choice.keeps)

        found = readability(encode, self.judge, [corpus.texts[i] for i in named.names], corpus)
        found["faithful"] = float((unit_rows(matrix) * corpus.vectors[named.names]).sum(axis=1).mean())
        if sets:
            found["STS"] = float(np.mean(list(sts_spearman(encode, self.data).values())))
            collections = [read_collection(task) for task in self.tasks]
            found["retrieval"] = float(np.mean([dense_score((encode(c.queries), encode(c.documents)), c)
                                                for c in collections]))  # fmt: skip
        return found


def _code(coordinates: Vectors, keeps: int) -> Vectors:
    if not keeps:
        return coordinates
    next_one = -np.partition(-coordinates, keeps, axis=1)[:, keeps : keeps + 1]
    code: Vectors = np.maximum(coordinates - np.maximum(next_one, 0), 0)
    return code


def readability(encode: Any, judge: Any, anchors: list[str], corpus: Corpus) -> dict[str, float]:
    """Measure what the five anchors that add most to a score say of its two texts; x 100, but for cosines."""
    first, second = (unit_rows(encode(texts)) for texts in (corpus.left, corpus.right))
    products = first * second
    scores = products.sum(axis=1)
    top = np.argsort(-products, axis=1, kind="stable")[:, :TOP]
    kept = np.ones(products.shape, np.float32)
    np.put_along_axis(kept, top, 0, axis=1)
    lengths = np.sqrt((kept * first**2).sum(axis=1) * (kept * second**2).sum(axis=1))
    rest = (kept * products).sum(axis=1) / np.maximum(lengths, 1e-9)
    known = scores > 0.05
    topics = unit_rows(judge(corpus.left)) + unit_rows(judge(corpus.right))
    alike = topics @ unit_rows(judge(anchors)).T / 2
    shared = shared_words(anchors, corpus)
    return {
        "share": 100 * float(np.median(1 - (kept * products).sum(axis=1)[known] / scores[known])),
        "fall": 100 * float(np.median(1 - rest[known] / scores[known])),
        "topic": float(np.take_along_axis(alike, top, axis=1).mean()),
        "topic by chance": float(alike.mean()),
        "words": 100 * float(np.take_along_axis(shared, top, axis=1).mean()),
        "words by chance": 100 * float(shared.mean()),
    }


def shared_words(anchors: list[str], corpus: Corpus) -> npt.NDArray[np.bool_]:
    """Say for each pair and anchor whether the anchor has a content word of the texts, compared by five letters."""

    def stems(text: str) -> set[str]:
        return {word[:5] for word in content_words(text)}

    of_anchors = [stems(anchor) for anchor in anchors]
    of_pairs = [stems(a) | stems(b) for a, b in zip(corpus.left, corpus.right)]
    return np.array([[not pair.isdisjoint(anchor) for anchor in of_anchors] for pair in of_pairs])


def measure(bench: Bench, planned: dict[str, list[Choice]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return corpus -> choice -> figures; what is missing is measured and kept.

    Args:
        bench: the encoder and the judge.
        planned: corpus -> choices; of a corpus that is not named those of "".
    """
    path = bench.work / f"readability-{bench.fingerprint}.json"
    known: dict[str, dict[str, dict[str, float]]] = json.loads(path.read_text()) if path.exists() else {}
    for name, *given in read_corpora(bench.data):
        rows = known.setdefault(name, {})
        missing = [choice for choice in planned.get(name, planned[""]) if str(choice) not in rows]
        corpus = bench.corpus(name, *given) if missing else None
        for choice in missing:
            assert corpus is not None
            rows[str(choice)] = bench.row(corpus, choice, sets=name == "general")
            print(name, choice, json.dumps(rows[str(choice)]), flush=True)
            path.write_text(json.dumps(known), encoding="utf-8")
    return known


COLUMNS = ("share", "fall", "topic", "topic by chance", "words", "words by chance", "faithful", "STS", "retrieval")


def tables(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield a table for each corpus."""
    bench = Bench(options.data, options.work_dir)
    plans = {"": {"general": GENERAL, "": EVERYWHERE}, "floor-": {"": FLOORS}}
    for start, planned in plans.items():
        if ("floors" if start else "choices") not in options.only:
            continue
        yield f"{start}date", str(datetime.date.today())
        for name, rows in measure(bench, planned).items():
            used = [column for column in COLUMNS if any(column in row for row in rows.values())]
            choices = [str(choice) for choice in planned.get(name, planned[""])]
            cells = [[choice, *(_cell(column, rows[choice].get(column)) for column in used)] for choice in choices]
            yield f"{start}{name}", Table(["anchors", *used], cells)


def _cell(column: str, value: float | None) -> str | float | None:
    return f"{value:.2f}" if value is not None and column.startswith(("topic", "faithful")) else value


if __name__ == "__main__":
    data, kept = "raw_english/, retrieval_train/ and so on", "candidates, vectors and figures"
    run_script(tables, data=data, work_dir=kept, only=("choices", "floors"))
