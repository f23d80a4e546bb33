"""How an index serves several processes at once: searches a second, staleness, memory and disk; prints Markdown.

    python -m benchmarks.many_readers --data shared/data
    python -m benchmarks.many_readers --data shared/data --documents 20000 --seconds 10

Each reader is a process of its own that searches one query after the other; the writer adds ten documents a commit, as
fast as it can. All share the cores of the machine, so that four readers on two cores are no faster than two. Memory is
PSS: pages that several processes map count for each in equal shares. Staleness is the time from the moment that `add`
returns in the writer until another process, which asks again and again, has the document; below 0 it was there before.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import argparse
import datetime
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pellucid
from papers.kit import make_parser
from pellucid.text.tables import read_texts

_BATCH = 10  # documents of a commit of the writer
_ASKED = 40  # commits whose staleness is measured
_OPENED = 5  # times that opening is measured


def main() -> None:
    """Build the index and print the table."""
    parser = make_parser(__doc__, data="raw_english/")
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    asked = parser.parse_args()
    texts = list(islice(read_texts(asked.data / "raw_english" / "open_licence.txt.xz"), 2 * asked.documents))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "index"
        with pellucid.Index.create(folder) as index:
            index.add(texts[: asked.documents], ids=[str(n) for n in range(asked.documents)])
        print("\n".join(measured(folder, texts, asked)))


def measured(folder: Path, texts: list[str], asked: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the report."""
    queries = [" ".join(text.split()[:6]) for text in texts[asked.documents : asked.documents + 500]]
    opening, first = zip(*(_ask(_opening, folder, queries) for _ in range(_OPENED)))
    before = _bytes(folder)
    one = _readers(1, folder, queries, asked.seconds)
    four = _readers(4, folder, queries, asked.seconds)
    disk = _bytes(folder) - before
    new = texts[asked.documents :]
    beside, commits = _beside(folder, queries, new, asked.seconds)
    late = _staleness(folder, new)
    memory = (sum(pss for _, _, pss in four) - sum(pss for _, _, pss in one)) / 3
    yield f"{asked.documents:,} sentences, static-en and BM25, top 10; {os.cpu_count()} shared cores, one thread a "
    yield f"process, {platform.machine()}, Python {platform.python_version()}, {datetime.date.today()}.\n"
    yield "| | searches a second, all together | median search, ms |"
    yield "|---|---:|---:|"
    name = f"four readers beside a writer of {commits:.1f} commits a second"
    for who, found in (("one reader", one), ("four readers", four), (name, beside)):
        rate, median = sum(count for count, _, _ in found), statistics.median(median for _, median, _ in found)
        yield f"| {who} | {rate / asked.seconds:,.0f} | {1000 * median:.1f} |"
    yield "\n| | |"
    yield "|---|---:|"
    low, high = min(late), max(late)
    yield f"| from `add` returning to seen elsewhere, ms: median (least to most) | {_ms(statistics.median(late))} ({_ms(low)} to {_ms(high)}) |"  # noqa: E501
    yield f"| memory of the first reader, MB of PSS | {one[0][2] / 1e6:.0f} |"
    yield f"| memory of each further reader, MB of PSS | {memory / 1e6:.0f} |"
    yield f"| disk of the index, MB | {before / 1e6:.0f} |"
    yield f"| disk of readers, MB | {disk / 1e6:.0f} |"
    yield f"| opening, ms | {_ms(statistics.median(opening))} |"
    yield f"| the first search after it, ms | {_ms(statistics.median(first))} |"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


_SPAWN = multiprocessing.get_context("spawn")


def _started(work: Callable[..., Any], *arguments: Any) -> tuple[Any, Connection]:
    """Start a process that says when it is ready, waits for a word, and sends what `work` returns."""
    mine, other = _SPAWN.Pipe()
    process = _SPAWN.Process(target=work, args=(other, *arguments))
    process.start()
    return process, mine


def _ask(work: Callable[..., Any], *arguments: Any) -> Any:
    process, pipe = _started(work, *arguments)
    found = pipe.recv()
    process.join()
    return found


def _opening(pipe: Connection, folder: Path, queries: list[str]) -> None:
    start = time.perf_counter()
    with pellucid.Index.open(folder, read_only=True) as index:
        opened = time.perf_counter()
        index.search(queries[0])
        pipe.send((opened - start, time.perf_counter() - opened))


def _reading(pipe: Connection, folder: Path, queries: list[str], seconds: float) -> None:
    """Search for some seconds; send how often, the median time and the memory."""
    with pellucid.Index.open(folder, read_only=True) as index:
        for query in queries[:50]:
            index.search(query)
        pipe.send("ready")
        pipe.recv()
        spent, end = [], time.monotonic() + seconds
        while (start := time.monotonic()) < end:
            index.search(queries[len(spent) % len(queries)])
            spent.append(time.monotonic() - start)
        pipe.send((len(spent), statistics.median(spent), _pss()))
        pipe.recv()  # all are measured while all are there


def _pss() -> int:
    rollup = Path("/proc/self/smaps_rollup").read_text()
    (line,) = (line for line in rollup.splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) * 1024


def _readers(count: int, folder: Path, queries: list[str], seconds: float) -> list[tuple[int, float, int]]:
    """Return what each of some readers measured."""
    every = [_started(_reading, folder, queries, seconds) for _ in range(count)]
    for _, pipe in every:
        pipe.recv()
    for _, pipe in every:
        pipe.send("go")
    found = [pipe.recv() for _, pipe in every]
    for process, pipe in every:
        pipe.send("end")
        process.join()
    return found


def _writing(pipe: Connection, folder: Path, texts: list[str]) -> None:
    """Add documents until it is told to end; send how many commits were made in how many seconds."""
    with pellucid.Index.open(folder) as index:
        index.add(texts[:_BATCH])
        pipe.send("ready")
        count, start = 0, time.monotonic()
        while not pipe.poll():
            place = count * _BATCH % (len(texts) - _BATCH)
            index.add(texts[place : place + _BATCH])
            count += 1
        pipe.send(count / (time.monotonic() - start))


def _beside(
    folder: Path, queries: list[str], texts: list[str], seconds: float
) -> tuple[list[tuple[int, float, int]], float]:
    """Return what four readers measured beside a writer, and its commits a second."""
    process, pipe = _started(_writing, folder, texts)
    pipe.recv()
    found = _readers(4, folder, queries, seconds)
    pipe.send("end")
    commits = pipe.recv()
    process.join()
    return found, commits


def _waiting(pipe: Connection, folder: Path) -> None:
    """For each document that is announced, send the moment at which it is there."""
    with pellucid.Index.open(folder, read_only=True) as index:
        pipe.send("ready")
        while name := pipe.recv():
            while name not in index:
                pass
            pipe.send(time.monotonic())


def _staleness(folder: Path, texts: list[str]) -> list[float]:
    """Return for some commits the seconds from the writer's acknowledgement until another process saw it."""
    process, pipe = _started(_waiting, folder)
    pipe.recv()
    late = []
    with pellucid.Index.open(folder) as index:
        for number in range(_ASKED):
            pipe.send(f"new-{number}")
            index.add([texts[number]], ids=[f"new-{number}"])
            done = time.monotonic()
            late.append(pipe.recv() - done)
    pipe.send("")
    process.join()
    return late


if __name__ == "__main__":
    main()
