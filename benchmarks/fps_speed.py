"""How fast 500 anchors are chosen by farthest point sampling, beside the published algorithm, on one thread each.

    python -m benchmarks.fps_speed                         synthetic vectors
    python -m benchmarks.fps_speed --vectors FOLDER        real ones: .npy files [rows, d], taken in order of name
    python -m benchmarks.fps_speed --sizes 100000 --anchors 200

Peers: the published algorithm, written from its description (squared Euclidean distance in float32, least distances
begun at 1e10, each pick computed from two N x d temporaries), and the same choice by one matrix-vector product a pick.
Every pick of theirs does the same work, so `--peer-picks` picks are timed and multiplied; the published one gets a
warm-up pick first. Ours is timed whole, its first reading of all rows included. Rounds are interleaved and medians are
shown, by the clock and by the processor's time: the latter is the fairer one where other programs share the machine.

The synthetic vectors are of length 1: 2,000 centres on the sphere, drawn with a spectrum that falls as 1 / sqrt(k),
plus noise of the same spectrum around each. Prints markdown; `--json` keeps the numbers.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import argparse
import datetime
import json
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from papers.kit import make_parser, processor
from pellucid.anchors import farthest_points
from pellucid.native.farthest import FarthestPoints

_BLOCK = 65_536


def synthetic(count: int, dimension: int, seed: int = 0) -> np.ndarray:
    """Return float16 rows of length 1, a mixture of Gaussians on the sphere."""
    rng = np.random.default_rng(seed)
    spectrum = 1 / np.sqrt(np.arange(1, dimension + 1, dtype=np.float32))
    centres = rng.normal(size=(2000, dimension)).astype(np.float32) * spectrum
    vectors = np.empty((count, dimension), np.float16)
    for first in range(0, count, _BLOCK):
        size = min(_BLOCK, count - first)
        rows = centres[rng.integers(len(centres), size=size)]
        rows = rows + rng.standard_normal((size, dimension), np.float32) * spectrum
        vectors[first : first + size] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return vectors


def real(folder: Path, count: int) -> np.ndarray:
    """Return up to `count` rows of the folder's files as float16."""
    parts: list[np.ndarray] = []
    found = 0
    for path in sorted(folder.glob("*.npy")):
        part = np.load(path, mmap_mode="r")[: count - found]
        parts.append(np.asarray(part, np.float16))
        found += len(part)
        if found == count:
            break
    return np.concatenate(parts)


def published(vectors: np.ndarray, picks: int, start: int) -> list[int]:
    """The paper's choice, as its code makes it."""
    least = np.full(len(vectors), 1e10, np.float32)
    chosen = [start]
    while len(chosen) < picks + 1:
        distances = ((vectors - vectors[chosen[-1]]) ** 2).sum(axis=1)
        least = np.minimum(least, distances)
        chosen.append(int(least.argmax()))
    return chosen


def eager(vectors: np.ndarray, picks: int, start: int) -> list[int]:
    """One matrix-vector product a pick, on rows of length 1."""
    greatest = np.full(len(vectors), -np.inf, np.float32)
    chosen = [start]
    while len(chosen) < picks + 1:
        np.maximum(greatest, vectors @ vectors[chosen[-1]], out=greatest)
        greatest[chosen[-1]] = np.inf
        chosen.append(int(greatest.argmin()))
    return chosen


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float, float]:
    """Return the result, the seconds by the clock and those of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    result = function(*arguments)
    return result, time.perf_counter() - clock, time.process_time() - processor


def read_bandwidth(rounds: int = 7) -> float:
    """Return the bytes a second at which one thread takes the squared length of 512 MB of float32 (BLAS)."""
    values = np.ones(1 << 27, np.float32)
    return values.nbytes / statistics.median(timed(np.dot, values, values)[2] for _ in range(rounds))


def peak_of_ours(vectors: np.ndarray, anchors: int) -> float:
    """Return how many MB of arrays one choice has at its peak beside the vectors."""
    tracemalloc.start()
    farthest_points(vectors, anchors, start=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def work_of_ours(vectors: np.ndarray, anchors: int) -> tuple[int, int]:
    """Return how many rows are read and how many similarities computed after the first reading of all."""
    bits = vectors.view(np.uint16) if vectors.dtype == np.float16 else vectors
    with FarthestPoints(bits, anchors) as search:
        search.measure()
        search.take(0)
        while len(search.picks) < anchors:
            search.take(search.farthest())
        return search.n_reads, search.n_products


def measure(vectors: np.ndarray, anchors: int, peer_picks: int, rounds: int, bandwidth: float) -> dict[str, Any]:
    """Time all three on the same rows; return the figures."""
    farthest_points(vectors[:4096], 32, start=0)  # opens the library
    memory = peak_of_ours(vectors, anchors)
    wide = vectors.astype(np.float32)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    picks: dict[str, list[int]] = {}
    times: dict[str, list[tuple[float, float]]] = {"published": [], "eager": [], "ours": []}
    published(wide, 1, 0)
    for _ in range(rounds):
        for name, peer in (("published", published), ("eager", eager)):
            picks[name], clock, processor = timed(peer, wide, peer_picks, 0)
            scale = (anchors - 1) / peer_picks
            times[name].append((clock * scale, processor * scale))
        chosen, clock, processor = timed(lambda: farthest_points(vectors, anchors, start=0))
        times["ours"].append((clock, processor))
    ours = chosen.tolist()
    reads, products = work_of_ours(vectors, anchors)
    seconds = {name: [statistics.median(column) for column in zip(*values)] for name, values in times.items()}
    bytes_read = (reads + len(vectors)) * vectors.shape[1] * vectors.itemsize
    return {
        "rows": len(vectors),
        "seconds": seconds,
        "ratios": {name: [theirs / mine for theirs, mine in zip(seconds[name], seconds["ours"])] for name in seconds},
        "same picks as eager": sum(a == b for a, b in zip(picks["eager"], ours)) / len(picks["eager"]),
        "same picks as published": sum(a == b for a, b in zip(picks["published"], ours)) / len(picks["published"]),
        "row reads": reads + len(vectors),
        "row reads of eager": len(vectors) * (anchors - 1),
        "similarities": products,
        "bandwidth": bytes_read / seconds["ours"][1],
        "bandwidth share": bytes_read / seconds["ours"][1] / bandwidth,
        "seconds at full bandwidth": wide.nbytes * (anchors - 1) / bandwidth,
        "extra memory MB": memory,
    }


def report(results: list[dict[str, Any]], anchors: int, arguments: argparse.Namespace, bandwidth: float) -> str:
    """Return the figures as markdown."""
    lines = [
        f"{anchors} anchors, {arguments.dimension} dimensions, {arguments.vectors or 'synthetic vectors'}; one thread; "
        f"medians of {arguments.rounds}; peers timed on {arguments.peer_picks} picks and multiplied. {machine()}.",
        "",
        "| candidates | method | seconds | processor s | times as long as ours | processor |",
        "|---|---|---|---|---|---|",
    ]
    names = {"published": "published algorithm", "eager": "one product a pick", "ours": "`farthest_points`"}
    for result in results:
        for key, name in names.items():
            clock, processor = result["seconds"][key]
            ratio, ratio_processor = result["ratios"][key]
            lines.append(
                f"| {result['rows']:,} | {name} | {clock:.2f} | {processor:.2f} | {ratio:.0f} | {ratio_processor:.0f} |"
            )
    lines += ["", f"One thread reads float32 at {bandwidth / 1e9:.1f} GB/s.", ""]
    for result in results:
        lines.append(
            f"- {result['rows']:,} candidates: {result['row reads']:,} rows read where one product a pick reads "
            f"{result['row reads of eager']:,} ({result['row reads of eager'] / result['row reads']:.0f} times as "
            f"many), {result['similarities']:,} similarities ({result['similarities'] / result['rows']:.0f} a "
            f"candidate). {result['bandwidth'] / 1e9:.1f} GB/s, {result['bandwidth share']:.0%} of the bandwidth. One "
            f"product a pick would take {result['seconds at full bandwidth']:.1f} s at full bandwidth. "
            f"{result['extra memory MB']:.0f} MB beside the vectors. First {arguments.peer_picks} picks equal: "
            f"{result['same picks as eager']:.0%} (product), {result['same picks as published']:.0%} (published)."
        )
    return "\n".join(lines)


def machine() -> str:
    """Name the processor, the versions and the day."""
    load = os.getloadavg()[0]
    return f"{processor()}, load {load:.1f}, numpy {np.__version__}, {datetime.date.today()}"


def main() -> None:
    """Read the arguments, measure, print."""
    parser = make_parser(__doc__)
    parser.add_argument("--vectors", type=Path, help="folder of .npy files")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--anchors", type=int, default=500)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--peer-picks", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    bandwidth = read_bandwidth()
    results = []
    for size in arguments.sizes:
        vectors = real(arguments.vectors, size) if arguments.vectors else synthetic(size, arguments.dimension)
        arguments.dimension = vectors.shape[1]
        results.append(measure(vectors, arguments.anchors, arguments.peer_picks, arguments.rounds, bandwidth))
        print(f"{size:,} done", file=sys.stderr)
    print(report(results, arguments.anchors, arguments, bandwidth))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
