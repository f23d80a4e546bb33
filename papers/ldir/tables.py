r"""Our rows in the tables of the LDIR paper, and what becomes of retrieval: what papers/ldir/results.md shows.

    python -m papers.ldir.tables --data shared/data --work-dir WORK --write
    python -m papers.ldir.tables --data shared/data --work-dir WORK --only floors --bfloat16 --write

Candidates for anchors are those of recipes/anchors_en.py and lie in the same folders of WORK (`en`, `minilm`). Vectors,
anchors and scores are kept in WORK, and a run that was killed goes on. Scores are MTEB's. The floors of all tables,
random directions and random sentences, are rows of their own, so that they can be measured alone.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain, product, starmap
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import pellucid
from papers.bm25 import PLAIN as PLAIN_BM25
from papers.bm25 import STEMMED, bm25_scores
from papers.kit import Figure, Kept, Table, cell_text, experiment, run_script, written
from papers.ldir.baselines import BINARY, PLAIN, VARIANTS, Coordinates, bag_of_words, cognitive_load, texts_of
from papers.ldir.frame import frame_points
from papers.ldir.scored import FLOOR, GROUPS, RANDOM, corpus_sentences, floor_draws
from papers.local_tasks import evaluate, find_tasks
from papers.models import bfloat16_encoder, kept_encoder, minilm_path
from papers.vector_cache import CachedEncoder, Vectors, unit_rows
from pellucid import AnchorEmbedder, choose_anchors
from pellucid.anchors import (
    CandidateSettings,
    farthest_points,
    kmeans_points,
    prepare_candidates,
    uniform_points,
)
from pellucid.core.fingerprint import fingerprint

CANDIDATES = CandidateSettings(words=(4, 20), max_candidates=200_000)  # as recipes/anchors_en.py
CHOOSERS = {"uniform": uniform_points, "kmeans": kmeans_points, "fps": farthest_points, "frame": frame_points}
SIZES = (64, 128, 200, 500, 1000)
CLOSER = (200, 500)  # sizes at which the variants are tried; those of the bundled models
METHODS = ("uniform", "kmeans", "fps", "frame")
ENCODER, OURS = "the encoder itself", "decorrelated, strength 0.5"
MORE, WHOLE = "decorrelated, strength 0.75", "decorrelated, strength 1"
MATCHED = {"MiniLM": 200, "static-en": 128}
"""Of the sizes measured the one whose n/d is nearest to the paper's."""

PAPER_METHODS = {"uniform": ("~78", "~47", "~28"), "kmeans": ("~80", "~48", "~30"), "fps": ("82.8", "50.3", "31.4")}
"""LDIR's ablation of the sampling method at 500 anchors: means of STS, retrieval and clustering."""

KINDS = ("STS", "Retrieval", "Clustering")
SEEDS = 3  # of uniform sampling, on STS, and of random directions
FLOOR_FORMS = (PLAIN, OURS, *BINARY)
_SAMPLE = 20_000  # candidates from which means, deviations and medians are taken


Row = dict[str, Any]
"""encoder, method, n, variant; scores (task -> x 100), and load where measured."""


class Encoder(NamedTuple):
    """An encoder: its name as in the page, the name of its folder of candidates, and its vectors, kept on disk."""

    name: str
    folder: str
    encode: CachedEncoder


class Bench:
    """An encoder with its candidates, the sets it is measured on, and what was measured before."""

    def __init__(self, encoder: Encoder, data: Path, work: Path) -> None:
        """Find the sets; nothing is encoded yet."""
        self.encoder, self.data, self.work = encoder, data, work
        self.corpus = data / "raw_english" / "open_licence.txt.xz"
        digest = hashlib.sha256(encoder.encode.name.encode()).hexdigest()[:8]
        self.kept = Kept(work / f"rows-{digest}-.jsonl")
        self.tasks = {kind: [t for t in find_tasks(data) if t.kind == kind] for kind in KINDS}

    def score(self, model: Any, names: Sequence[str] = KINDS) -> dict[str, float]:
        """Return MTEB's main score x 100 of each task, by the names of tasks or of their kinds."""
        scores = self.work / "scores"
        results = evaluate(model, data=self.data, tasks=names, cache_dir=scores, show_progress_bar=False)
        return {row.task: row.score for row in results.rows if row.type in KINDS}

    def anchors(self, method: str, n: int, seed: int = 0) -> list[str]:
        """Return anchor texts, chosen once and kept."""
        most = n if method == "kmeans" else max(SIZES)  # of the other methods the first m are the choice for m
        code = hashlib.sha256(inspect.getsource(CHOOSERS[method]).encode()).hexdigest()[:8]
        settings: dict[str, Any] = {"settings": CANDIDATES, "work_dir": self.work / self.encoder.folder}
        settings |= {"method": frame_points if method == "frame" else method, "seed": seed, "show_progress_bar": False}
        choose = partial(choose_anchors, self.encoder.encode, self.corpus, most, **settings)
        chosen = self.kept.get(f"{method}-{most}-{seed}-{code}", choose)
        return list(chosen[:n])

    def model(self, method: str, n: int, variant: str = PLAIN, seed: int = 0) -> Coordinates:
        """Return the coordinates that `variant` makes of anchors chosen by `method`."""
        vectors = unit_rows(self.encoder.encode(self.anchors(method, n, seed)))
        return VARIANTS[variant](self.encoder.encode, vectors, self.sample)

    @cached_property
    def sample(self) -> Vectors:
        """Rows of the corpus at length 1, for means, deviations and medians."""
        folder = self.work / self.encoder.folder
        candidates = prepare_candidates(self.encoder.encode, self.corpus, CANDIDATES, folder, show_progress_bar=False)
        return unit_rows(np.asarray(candidates.vectors[:_SAMPLE], np.float32))

    @cached_property
    def sentences(self) -> Vectors:
        """Rows of sentences of the corpus at length 1, from which floors are drawn."""
        return unit_rows(self.encoder.encode(corpus_sentences(self.data, _SAMPLE)))

    def measured(self, model: Coordinates, method: str, n: int, variant: str = PLAIN) -> Row:
        """Return a row with the scores of a model."""
        row: Row = {"encoder": self.encoder.name, "method": method, "n": n, "variant": variant}
        return {**row, "scores": self.score(model)}

    def load(self, model: Coordinates) -> float:
        """Return the cognitive load of a model of zeros and ones."""
        return cognitive_load(model, next(task for task in self.tasks["STS"] if task.name == "STSBenchmark"))


def plan() -> list[tuple[str, int, str]]:
    """Return what is measured: method, n and variant."""
    planned = [(method, n, PLAIN) for n in SIZES for method in METHODS]
    planned += [(method, n, OURS) for n in SIZES for method in ("fps", "frame")]
    planned += [("kmeans", n, variant) for n in CLOSER for variant in (MORE, WHOLE)]
    planned += [("frame", n, variant) for n in CLOSER for variant in VARIANTS if variant not in (PLAIN, OURS)]
    return planned


def rows_of(bench: Bench) -> Iterator[Row]:
    """Measure one row of the page after the other."""
    yield _own_row(bench)
    for n in CLOSER:
        yield _bundled_row(bench, n)
    yield from anchor_row.rows(bench.kept, bench)


def _own_row(bench: Bench) -> Row:
    own = Coordinates(bench.encoder.encode, np.eye(bench.encoder.encode(["a"]).shape[1], dtype=np.float32))
    return bench.measured(own, ENCODER, len(own.matrix))


def _bundled_row(bench: Bench, n: int) -> Row:
    encoder, name = bench.encoder, f"anchors-{bench.encoder.folder}-{n}"
    bundled = AnchorEmbedder.from_pretrained(name, encoder=encoder.encode.opened)
    model = Coordinates(encoder.encode, bundled.vectors)
    texts = bench.anchors("uniform", 20)
    if not np.allclose(bundled.encode(texts), model.encode(texts), atol=1e-4):
        raise SystemExit(f"{name}: coordinates from kept vectors differ from the model's; empty --work-dir")
    return bench.measured(model, name, n)


@experiment(*({"method": method, "n": n, "variant": variant} for method, n, variant in plan()))
def anchor_row(bench: Bench, method: str, n: int, variant: str) -> Row:
    """Measure one model."""
    model = bench.model(method, n, variant)
    found = bench.measured(model, method, n, variant)
    if method == "uniform":  # the mean over seeds
        again = [bench.score(bench.model(method, n, variant, seed), ["STS"]) for seed in range(1, SEEDS)]
        found["scores"] |= {
            task: float(np.mean([found["scores"][task], *(a[task] for a in again)])) for task in again[0]
        }
    if variant in BINARY:
        found["load"] = bench.load(model)
    return found


def word_rows(bench: Bench) -> Iterator[Row]:
    """Measure bag of words on STS and retrieval, BM25 on retrieval."""
    counts: dict[str, float] = {}
    for task in bench.tasks["STS"] + bench.tasks["Retrieval"]:  # dense for KMeans, the counts would fill the memory
        counts |= bench.score(bag_of_words(texts_of(task)), [task.name])
    yield {"encoder": "", "method": "bag of words", "n": None, "variant": "", "scores": counts}
    for name, scores in bm25_scores(bench.data).items():
        yield {"encoder": "", "method": name, "n": None, "variant": "", "scores": scores}


def floor_rows(bench: Bench) -> Iterator[Row]:
    """Measure the encoder, random directions (the means of some draws), and one draw of each other floor."""
    yield _own_row(bench)
    yield from floor_row.rows(bench.kept, bench)


FLOORS = [(FLOOR, n, PLAIN, SEEDS) for n in SIZES]
FLOORS += [(*key, 1) for key in product((FLOOR, RANDOM), CLOSER, FLOOR_FORMS) if (key[0], key[2]) != (FLOOR, PLAIN)]


@experiment(*(dict(zip(("method", "n", "variant", "n_draws"), floor)) for floor in FLOORS))
def floor_row(bench: Bench, method: str, n: int, variant: str, n_draws: int) -> Row:
    """Measure draws of one floor."""
    draws = []
    for vectors in floor_draws(bench.sentences, n, n_draws)[method]:
        model = VARIANTS[variant](bench.encoder.encode, vectors, bench.sentences)
        figures = bench.measured(model, method, n, variant)
        if variant in BINARY:
            figures["load"] = bench.load(model)
        draws.append(figures)
    return _mean_of_draws(draws)


def _mean_of_draws(draws: list[Row]) -> Row:
    """Return a row with the mean of each figure."""
    scores = {task: statistics.fmean(draw["scores"][task] for draw in draws) for task in draws[0]["scores"]}
    load = {"load": statistics.fmean(draw["load"] for draw in draws)} if "load" in draws[0] else {}
    return {**draws[0], "scores": scores, **load}


def open_encoders(work: Path, *, bfloat16: bool = False) -> list[Encoder]:
    """Return MiniLM, perhaps in bfloat16, and static-en, their vectors kept in `work`."""
    kept, static = work / "vectors", pellucid.load("static-en")
    digest = fingerprint(static)["stored"]
    name, path = "all-MiniLM-L6-v2", minilm_path()
    minilm = bfloat16_encoder(path, kept, "MiniLM") if bfloat16 else kept_encoder(path, kept, name)
    return [
        Encoder("MiniLM", "minilm", minilm),
        Encoder("static-en", "en", CachedEncoder(f"static-en {digest}", static.encode, kept, static)),
    ]


# --- The tables -------------------------------------------------------------------------------------------------------


class Rows:
    """The measured rows, found by what they are: encoder, method, number of anchors, variant."""

    def __init__(self, rows: Iterable[Row]) -> None:
        """Take in the rows."""
        self._rows = {
            (r["encoder"], r["method"], None if r["method"] == ENCODER else r["n"], r["variant"]): r for r in rows
        }
        self.encoders = list(dict.fromkeys(r["encoder"] for r in self._rows.values() if r["encoder"]))

    def get(self, encoder: str, method: str, n: int | None = None, variant: str = PLAIN) -> Row:
        """Return a row; of an encoder itself without its number of dimensions."""
        return self._rows[encoder, method, n, variant]

    def bundled(self, encoder: str, n: int) -> str:
        """Return the name of the bundled model of `n` anchors."""
        return next(m for (e, m, k, _) in self._rows if (e, k) == (encoder, n) and m.startswith("anchors-"))

    def ratio(self, encoder: str, n: int) -> str:
        """Return the number of anchors over the encoder's dimensions."""
        return f"{n / self.get(encoder, ENCODER)['n']:.2f}"

    def mean(self, group: str, *key: Any) -> float:
        """Return the mean of a group of tasks for the row `key`."""
        return statistics.fmean(self.get(*key)["scores"][task] for task in GROUPS[group])


def mean_of(row: Row, group: str) -> float | None:
    """Return the mean of a group of tasks, or None where the row is not measured on them."""
    scores = [row["scores"].get(task) for task in GROUPS[group]]
    return None if None in scores else statistics.fmean(scores)


def caption(row: Row) -> str:
    """Return the name of a row."""
    if row["method"] == ENCODER:
        return f"{row['encoder']} itself ({row['n']})"
    if not row["encoder"]:
        return str(row["method"])
    if row["method"].startswith("anchors-"):
        return f"{row['method']}, as bundled"
    variant = "" if row["variant"] == PLAIN else f", {row['variant']}"
    return f"{row['encoder']}: {row['method']}{variant} ({row['n']})"


def figures(rows: Rows) -> Iterator[tuple[str, Figure]]:
    """Yield what the page shows."""
    yield "written", written("mteb", "bm25s")
    for name, method in (("bm25", PLAIN_BM25), ("bm25-stemmed", STEMMED)):
        yield name, cell_text(rows.mean("retrieval", "", method, None, ""))
    yield "kept", kept_table(rows)
    yield "sts", sts_table(rows, _sts_keys(rows))
    for group in GROUPS:
        for encoder in rows.encoders:
            yield f"{group}-{encoder}", sizes_table(rows, group, encoder)
    yield from method_figures(rows)
    yield "binary", binary_table(rows, product(rows.encoders, ["frame"], CLOSER, (OURS, PLAIN, *BINARY)))
    for encoder in rows.encoders:
        yield f"variants-{encoder}", variants_table(rows, _variants_keys(rows, encoder))
    yield "losses", "\n".join(losses(rows))


def kept_table(rows: Rows) -> Table:
    """Return what anchors keep of their encoder on STS."""
    lines = []
    for encoder in rows.encoders:
        for n in CLOSER:
            keys = [(ENCODER,), ("fps", n), ("frame", n), ("frame", n, OURS), (rows.bundled(encoder, n), n)]
            means = (rows.mean("STS", encoder, *key) for key in keys)
            lines.append([f"{encoder}, {n} anchors", rows.ratio(encoder, n), *means])
    return Table(["", "n/d", "the encoder", "fps", "frame", "frame, decorrelated", "the bundled model"], lines)


def floor_figures(rows: Rows) -> Iterator[tuple[str, Figure]]:
    """Yield the floors: rows that the page shows below those of the tables, in the same columns."""
    yield "floor", floor_table(rows)
    closer = list(product(rows.encoders, (FLOOR, RANDOM), CLOSER))
    yield "floor-sts", sts_table(rows, closer)
    for group, encoder in product(GROUPS, rows.encoders):
        yield f"floor-{group}-{encoder}", sizes_table(rows, group, encoder, {FLOOR: (FLOOR, PLAIN)})
    yield "floor-methods", methods_table(rows, [FLOOR])
    yield "floor-binary", binary_table(rows, [(*key, variant) for key in closer for variant in FLOOR_FORMS])
    for encoder in rows.encoders:
        keys = product([encoder], (FLOOR, RANDOM), CLOSER, (PLAIN, OURS))
        yield f"floor-variants-{encoder}", variants_table(rows, keys)


def floor_table(rows: Rows) -> Table:
    """Return what random directions and random sentences keep of each encoder, on each group of tasks."""
    keys = list(product(CLOSER, (FLOOR, RANDOM)))
    lines = []
    for encoder, group in product(rows.encoders, GROUPS):
        means = (rows.mean(group, encoder, method, n) for n, method in keys)
        lines.append([f"{encoder}, {group}", rows.mean(group, encoder, ENCODER), *means])
    return Table(["", "the encoder", *(f"{n} {method}" for n, method in keys)], lines)


def _sts_keys(rows: Rows) -> list[tuple[Any, ...]]:
    keys: list[tuple[Any, ...]] = [("", "bag of words", None, "")]
    for encoder in rows.encoders:
        keys.append((encoder, ENCODER))
        for n in reversed(CLOSER):
            keys += [(encoder, rows.bundled(encoder, n), n), (encoder, "frame", n, OURS), (encoder, "frame", n)]
            keys.append((encoder, "fps", n))
    return keys


def sts_table(rows: Rows, keys: Iterable[tuple[Any, ...]]) -> Table:
    """Return the scores of rows on STS."""
    columns = {"12": "STS12", "13": "STS13", "14": "STS14", "15": "STS15", "16": "STS16"}
    columns |= {"STS-B": "STSBenchmark", "SICK-R": "SICK-R"}
    lines = []
    for key in keys:
        row, mean, ratio, share = rows.get(*key), rows.mean("STS", *key), "", ""
        if row["encoder"] and row["method"] != ENCODER:
            ratio = rows.ratio(row["encoder"], row["n"])
            share = f"{mean / rows.mean('STS', row['encoder'], ENCODER):.1%}"
        lines.append([f"**{caption(row)}**", ratio, *map(row["scores"].get, columns.values()), mean, share])
    return Table(["model (dimensions)", "n/d", *columns, "mean of 6", "of its encoder"], lines)


KINDS_BY_SIZE = {method: (method, PLAIN) for method in METHODS} | {
    f"{method}, decorrelated": (method, OURS) for method in ("fps", "frame")
}
"""Row of the tables of sizes -> method and variant."""


def sizes_table(
    rows: Rows, group: str, encoder: str, kinds: Mapping[str, tuple[str, str]] = MappingProxyType(KINDS_BY_SIZE)
) -> Table:
    """Return the mean of a group of tasks by method and number of anchors."""
    lines = [
        [name, *(rows.mean(group, encoder, method, n, variant) for n in SIZES)]
        for name, (method, variant) in kinds.items()
    ]
    return Table(["anchors", *(f"{n} (n/d {rows.ratio(encoder, n)})" for n in SIZES)], lines)


def methods_table(rows: Rows, methods: Sequence[str]) -> Table:
    """Return the paper's table of methods at 500 anchors."""
    both = [(encoder, group) for encoder in rows.encoders for group in GROUPS]
    columns = ["method", *(f"paper, {group}" for group in GROUPS), *map(", ".join, both)]
    lines: list[list[Any]] = [
        [m, *PAPER_METHODS.get(m, (None, None, None)), *(rows.mean(group, encoder, m, 500) for encoder, group in both)]
        for m in methods
    ]
    return Table(columns, lines)


def binary_table(rows: Rows, keys: Iterable[tuple[Any, ...]]) -> Table:
    """Return the scores of rows, and the cognitive load of those of zeros and ones."""
    lines = [[caption(r), *(mean_of(r, group) for group in GROUPS), r.get("load")] for r in starmap(rows.get, keys)]
    return Table(["model", *GROUPS, "cognitive load"], lines)


def method_figures(rows: Rows) -> Iterator[tuple[str, Figure]]:
    """Yield the methods at 500 anchors, and which order they have."""
    yield "methods", methods_table(rows, METHODS)
    order = []
    for encoder in rows.encoders:
        for n in (500, MATCHED[encoder]):
            totals = {m: sum(rows.mean(group, encoder, m, n) for group in GROUPS) for m in METHODS}
            best = ", ".join(sorted(totals, key=lambda m: -totals[m]))
            order.append(f"- {encoder}, {n} anchors (n/d {rows.ratio(encoder, n)}): {best}.")
    yield "order", "\n".join(order)


def _variants_keys(rows: Rows, encoder: str) -> list[tuple[Any, ...]]:
    keys: list[tuple[Any, ...]] = [("", name, None, "") for name in (PLAIN_BM25, STEMMED, "bag of words")]
    keys.append((encoder, ENCODER))
    for n in CLOSER:
        keys += [(encoder, "fps", n, PLAIN), (encoder, "fps", n, OURS)]
        keys += [(encoder, "frame", n, variant) for variant in VARIANTS]
        keys += [(encoder, "kmeans", n, variant) for variant in (MORE, WHOLE)]
        keys.append((encoder, rows.bundled(encoder, n), n))
    return [*keys, (encoder, "frame", 1000, PLAIN), (encoder, "frame", 1000, OURS)]


def variants_table(rows: Rows, keys: Iterable[tuple[Any, ...]]) -> Table:
    """Return retrieval by what is made of anchors."""
    lines = [
        [caption(row), *map(row["scores"].get, GROUPS["retrieval"]), mean_of(row, "retrieval"), mean_of(row, "STS")]
        for row in starmap(rows.get, keys)
    ]
    return Table(["model", "SciFact", "NPL", "CISI", "Cranfield", "mean", "STS"], lines)


def losses(rows: Rows) -> Iterator[str]:
    """Yield in words how much of the loss in retrieval is overlap of anchors."""
    for encoder in rows.encoders:
        for n in CLOSER:
            keys = [(ENCODER,), ("fps", n), ("frame", n), ("frame", n, OURS), ("frame", n, WHOLE)]
            own, *means = (rows.mean("retrieval", encoder, *key) for key in keys)
            fps, frame, half, full = (own - mean for mean in means)
            yield (
                f"- {encoder}, {n} anchors: {fps:.1f} with fps, {frame:.1f} with frame, decorrelated at 0.5 {half:.1f} "
                f"and at 1 {full:.1f}."
            )


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Measure all rows and yield what the page shows."""
    encoders = open_encoders(options.work_dir, bfloat16=options.bfloat16)
    benches = [Bench(encoder, options.data, options.work_dir) for encoder in encoders]
    if "floors" in options.only:
        yield from floor_figures(Rows(chain.from_iterable(map(floor_rows, benches))))
    if "tables" in options.only:
        yield from figures(Rows([*chain.from_iterable(map(rows_of, benches)), *word_rows(benches[-1])]))


if __name__ == "__main__":
    settings = {"--bfloat16": {"action": "store_true", "help": "MiniLM in bfloat16"}}
    data, kept = "sts/, retrieval/, raw_english/ and so on", "candidates, vectors and scores"
    run_script(measure, settings, data=data, work_dir=kept, only=("tables", "floors"))
