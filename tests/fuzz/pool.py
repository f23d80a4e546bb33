"""A few long-lived processes that run cases, and a watch over them: a process that hangs or dies is replaced.

The processes are forked from one in which everything is imported and built, so that a case costs its own work alone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

from fuzz import cases, processes
from fuzz.cases import Kind, Result, run_case
from fuzz.subjects import Subjects

_LONGEST = 8 * processes.LIMIT  # seconds of a case of several children, each with a limit of its own


class Worker:
    """A process that runs one case after another."""

    def __init__(self, number: int, seed: int, subjects: Subjects, kinds: dict[str, Kind]) -> None:
        """Fork it."""
        self.number, self.asked, self.since = number, (Kind("", "", _nothing), 0), 0.0
        self.pipe, other = Pipe()
        self.process = os.fork()
        if not self.process:
            self.pipe.close()
            _serve(other, subjects.place / f"worker-{number}-{os.getpid()}", seed, subjects, kinds)
        other.close()

    def ask(self, kind: Kind, number: int) -> None:
        """Let it run a case."""
        self.asked, self.since = (kind, number), time.monotonic()
        self.pipe.send((kind.name, number))

    @property
    def late(self) -> bool:
        """Whether the case takes longer than it may."""
        return time.monotonic() - self.since > cases.SLOW.get(self.asked[0].group, _LONGEST)

    def result(self) -> Result:
        """Return how the case ended; "crash" where the process died of it."""
        kind, number = self.asked
        try:
            found: Result = self.pipe.recv()
            return found
        except (EOFError, ConnectionError):
            status = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
            return Result(kind.name, number, "crash", f"the process ended with {status}", time.monotonic() - self.since)

    def end(self) -> None:
        """Kill it and what it started."""
        try:
            os.killpg(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        self.pipe.close()


def _nothing(*arguments: object) -> str:
    return ""


def _serve(pipe: Connection, place: Path, seed: int, subjects: Subjects, kinds: dict[str, Kind]) -> None:
    """Run what is asked for until the pipe closes; never returns."""
    os.setpgid(0, 0)
    processes.end_with_parent()
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
    processes.own_mounts()
    cases.watch()
    place.mkdir()
    try:
        while True:
            name, number = pipe.recv()
            pipe.send(run_case(kinds[name], number, seed, subjects, place))
    except BaseException:
        os._exit(0)


def run_all(
    wanted: Iterable[tuple[Kind, int]], workers: int, seed: int, subjects: Subjects, kinds: dict[str, Kind]
) -> Iterator[Result]:
    """Run cases in `workers` processes and yield how they end, in the order they do."""
    left = iter(wanted)
    team: list[Worker] = []
    try:
        for number in range(workers):
            if (case := next(left, None)) is not None:
                team.append(Worker(number, seed, subjects, kinds))
                team[-1].ask(*case)
        while team:
            ready = wait([worker.pipe for worker in team], timeout=1)
            for place, worker in list(enumerate(team)):
                if worker.pipe in ready:
                    result = worker.result()
                elif worker.late:
                    kind, number = worker.asked
                    result = Result(kind.name, number, "hang", "no end", time.monotonic() - worker.since)
                else:
                    continue
                yield result
                if result.what in ("crash", "hang") and not (result.what == "hang" and worker.pipe in ready):
                    worker.end()
                    worker = team[place] = Worker(worker.number, seed, subjects, kinds)
                if (case := next(left, None)) is not None:
                    worker.ask(*case)
                else:
                    worker.end()
                    team[place] = None  # type: ignore[call-overload]
            team = [worker for worker in team if worker is not None]
    finally:
        for worker in team:
            worker.end()
