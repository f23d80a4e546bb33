"""Settings of the whole process that are changed for a while: torch's threads, warnings, variables, random numbers.

Any number of threads may ask for the same change at once. Each for itself would save what another one has changed, and
put that back at the end for good.
"""

from __future__ import annotations

import os
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from threading import get_ident
from typing import Any

import numpy as np

from pellucid.forks import call_after_fork, fork_lock


class ProcessSetting:
    """A change of a setting, made by the first thread that enters and undone by the last one that leaves."""

    def __init__(self, change: Callable[[], Callable[[], object]]) -> None:
        """Take what makes the change, and returns what undoes it."""
        self._change, self._lock = change, fork_lock()
        self._inside: Counter[int] = Counter()  # how often each thread is
        self._undo: Callable[[], object] = lambda: None
        call_after_fork(self)

    def __enter__(self) -> Callable[[], object]:
        """Make the change, unless it is made; return what undoes it."""
        with self._lock:
            if not self._inside:
                self._undo = self._change()
            self._inside[get_ident()] += 1
            return self._undo

    def __exit__(self, *error: object) -> None:
        """Undo it, unless another thread is inside."""
        with self._lock:
            self._inside[get_ident()] -= 1
            if not self._inside[get_ident()]:
                del self._inside[get_ident()]
            if not self._inside.total():
                self._inside.clear()
                self._undo()

    def has_this_thread(self) -> bool:
        """Whether this thread is inside."""
        return get_ident() in self._inside

    def after_fork(self) -> None:
        """Forget in a child the threads that are not there."""
        here = self._inside.pop(get_ident(), 0)
        other_threads = bool(self._inside)
        self._inside.clear()
        if here:
            self._inside[get_ident()] = here
        elif other_threads:
            with suppress(Exception):
                self._undo()


@cache
def ignored_warnings(category: type[Warning], message: str = "", module: str = "") -> ProcessSetting:
    """Return a context in which warnings are not shown whose text and module begin with these regular expressions."""

    def change() -> Callable[[], object]:
        patterns = [
            re.compile(pattern, flags) if pattern else None for pattern, flags in ((message, re.I), (module, 0))
        ]
        item = ("ignore", patterns[0], category, patterns[1], 0)
        warnings.filters.insert(0, item)  # type: ignore[attr-defined]

        def undo() -> None:
            with suppress(ValueError):  # the program has set other filters meanwhile
                warnings.filters.remove(item)  # type: ignore[attr-defined]

        return undo

    return ProcessSetting(change)


@contextmanager
def environment(name: str, value: str, *, is_default: bool = False) -> Iterator[None]:
    """Set an environment variable for a while; with `is_default` only where it is not set."""
    before = os.environ.get(name)
    if before is None or not is_default:
        os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


@contextmanager
def kept_random_states() -> Iterator[None]:
    """Leave the random numbers of the process as they were: libraries that train seed all there are."""
    states: tuple[Any, Any] = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch = sys.modules.get("torch")
    with ExitStack() as stack:
        if torch is not None:
            devices = range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)
            stack.enter_context(torch.random.fork_rng(devices))
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002
