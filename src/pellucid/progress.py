"""A progress bar for work of more than two seconds (lines in a log), the order of texts in a model, and cancellation.

Bars go to stderr. `show_progress_bar=False` silences one call, the environment variable PELLUCID_PROGRESS=0 all.
Long loops call `check_cancelled`, so that a server can stop work that nobody waits for any more.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

_PATIENCE_S = 2.0
_LINE_S = 30.0  # between two lines where there is no terminal

_is_cancelled: ContextVar[Callable[[], bool] | None] = ContextVar("is_cancelled", default=None)


class CancelledWorkError(Exception):
    """The result is no longer wanted; only work inside `cancellable` raises it."""


@contextmanager
def cancellable(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """Let `check_cancelled` end the work inside once `is_cancelled()` is true, in this thread alone."""
    token = _is_cancelled.set(is_cancelled)
    try:
        yield
    finally:
        _is_cancelled.reset(token)


def check_cancelled() -> None:
    """Raise `CancelledWorkError` if the work that calls this is cancelled; long loops call it once a step."""
    is_cancelled = _is_cancelled.get()
    if is_cancelled is not None and is_cancelled():
        raise CancelledWorkError


class Progress:
    """A bar on stderr that appears once the work has lasted two seconds; in a log a line every half minute."""

    def __init__(
        self, description: str, *, total: int | None = None, unit: str = "texts", enabled: bool = True
    ) -> None:
        """Describe the work; `total` is in `unit`s, None when it is not known."""
        self.description, self.total, self.unit = description, total, unit
        self._enabled = enabled and os.environ.get("PELLUCID_PROGRESS", "1") != "0"
        self._done = 0
        self._started = time.monotonic()
        self._bar: Any = None  # rich's, made when it is needed
        self._next = _PATIENCE_S  # seconds until it is, or until the next line

    def __enter__(self) -> Progress:
        """Start the clock."""
        self._started = time.monotonic()
        return self

    def advance(self, count: int = 1, note: str = "") -> None:
        """Count `count` more units as done; `note` is shown beside the bar (a loss, a file name)."""
        self._done += count
        check_cancelled()
        if not self._enabled:
            return
        if self._bar is None and (lasted := time.monotonic() - self._started) > self._next:
            self._show(lasted, note)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, note=note)

    def _show(self, lasted: float, note: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        console = Console(stderr=True)
        if not (console.is_terminal or console.is_jupyter):  # a log file: rich would leave an empty line there
            if lasted >= _LINE_S:
                total = "" if self.total is None else f" of {self.total:,}"
                line = f"{self.description}: {self._done:,}{total} {self.unit} after {lasted:.0f} s {note}"
                sys.stderr.write(line.rstrip() + "\n")
            self._next = (lasted // _LINE_S + 1) * _LINE_S
            return
        self._bar = RichProgress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(self.unit),
            TimeRemainingColumn(), TextColumn("{task.fields[note]}"), console=console, transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task(self.description, total=self.total, completed=self._done, note="")
        self._bar.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()


def length_batches(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Yield numbers of texts in batches of similar length, the longest first: padding and memory cost least."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    for start in range(0, len(order), size):
        yield order[start : start + size]
