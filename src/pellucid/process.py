"""Settings of the process, changed for a while: torch's threads, warnings and random states.

Any number of threads may ask for the same change at once. Each for itself would save what another one has changed, and
put that back at the end for good.

What holds files or locks belongs to the process that opened it: open an index or a work folder after a fork.
"""

from __future__ import annotations

import os
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from threading import Lock, RLock, get_ident
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from pellucid.errors import InputError

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:
    import functools

    class cached_property(functools.cached_property):
        """As in functools, without the lock that all objects of a class share up to Python 3.11.

        With it the vectors of two queries would be computed one after the other. Two threads may compute one value.
        """

        def __init__(self, function: Any) -> None:
            """Take what computes the value."""
            super().__init__(function)
            self.lock = nullcontext()


_LOCKS_OF: WeakKeyDictionary[Any, RLock] = WeakKeyDictionary()  # by the object that each guards


def lock_of(owner: Any) -> RLock:
    """Return the reentrant lock of threads of an object, as long as it lives."""
    return _LOCKS_OF.setdefault(owner, RLock())


class ProcessSetting:
    """A change of a setting, made by the first thread that enters and undone by the last one that leaves."""

    def __init__(self, change: Callable[[], Callable[[], object]]) -> None:
        """Take what makes the change, and returns what undoes it."""
        self._change, self._lock = change, Lock()
        self._inside: Counter[int] = Counter()  # how often each thread is
        self._undo: Callable[[], object] = lambda: None

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
            self._inside += Counter()  # drops the threads that have left
            if not self._inside:
                self._undo()

    def has_this_thread(self) -> bool:
        """Whether this thread is inside."""
        return get_ident() in self._inside


@cache
def ignored_warnings(category: type[Warning], message: str = "", module: str = "") -> ProcessSetting:
    """Return a context in which warnings are not shown whose text and module begin with these regular expressions."""

    def change() -> Callable[[], object]:
        item = ("ignore", re.compile(message, re.I), category, re.compile(module), 0)
        warnings.filters.insert(0, item)  # type: ignore[attr-defined]

        def undo() -> None:
            with suppress(ValueError):  # the program has set other filters meanwhile
                warnings.filters.remove(item)  # type: ignore[attr-defined]

        return undo

    return ProcessSetting(change)


@contextmanager
def kept_random_states() -> Iterator[None]:
    """Leave the random numbers of the process as they were: libraries that train seed all there are."""
    states: tuple[Any, Any] = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch = sys.modules.get("torch")
    n_devices = torch.cuda.device_count() if torch is not None and torch.cuda.is_initialized() else 0
    with nullcontext() if torch is None else torch.random.fork_rng(range(n_devices)):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002


def default_threads() -> int:
    """Return the number of threads asked for by PELLUCID_THREADS, otherwise of cores this process may use."""
    setting = os.environ.get("PELLUCID_THREADS", "")
    if not setting:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not setting.isdigit() or int(setting) < 1:
        raise InputError(f"the environment variable PELLUCID_THREADS is {setting!r}; set it to a number from 1 up")
    return int(setting)
