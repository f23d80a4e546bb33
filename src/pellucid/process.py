"""The process: locks and cached properties that survive a fork, and settings of the process changed for a while.

Of all threads only the one that forked lives on in the child. A lock that another one held is never released there, and
what it was changing stays as it was at that moment. So locks are renewed before anything else can run in the child, and
what belongs to the parent (a file lock, a change of an index, a folder of an engine) is left alone by the child.

Settings are torch's threads, warnings, environment variables and random states.

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
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import cache
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from pellucid.errors import InputError

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:
    import functools

    class cached_property(functools.cached_property):
        """As in functools, without the lock that all objects of a class share up to Python 3.11.

        A child that is forked while a thread holds it would wait for it for ever. Two threads may compute one value.
        """

        def __init__(self, function: Any) -> None:
            """Take what computes the value."""
            super().__init__(function)
            self.lock = nullcontext()


class ForkAware(Protocol):
    """What changes in a forked child."""

    def after_fork(self) -> None:
        """Called once in the child, in its only thread and before any other code of the child."""


_FORKING = RLock()  # held while the process forks, and while something is made that a child has to know of
_LOCKS: WeakSet[Any] = WeakSet()
_LOCKS_OF: WeakKeyDictionary[Any, RLock] = WeakKeyDictionary()  # by the object that each guards
_FORK_AWARE: WeakSet[ForkAware] = WeakSet()
_IMMORTAL: list[Any] = []
_process = object()


def current_process() -> object:
    """Return an id of this process; a forked child has another, even if the system reuses a number."""
    return _process


def fork_lock() -> RLock:
    """Return a reentrant lock of threads. In a forked child it is free, unless the thread that forked holds it."""
    lock = RLock()
    with _FORKING:
        _LOCKS.add(lock)
    return lock


def lock_of(owner: Any) -> RLock:
    """Return the lock of an object, as long as it lives; in a forked child it is free, as `fork_lock` says."""
    lock = _LOCKS_OF.get(owner)
    if lock is None:
        with _FORKING:
            lock = _LOCKS_OF.setdefault(owner, fork_lock())
    return lock


def call_after_fork(item: ForkAware) -> None:
    """Call `item.after_fork()` in each child forked from now on, if the item exists there."""
    with _FORKING:
        _FORK_AWARE.add(item)


def without_forks() -> AbstractContextManager[object]:
    """Return a context in which no thread forks; for moments, since a fork waits for its end."""
    return _FORKING


def never_destroy(item: Any) -> None:
    """Keep an object of the parent in a child beyond the end: its destructor would write the parent's files."""
    import ctypes

    _IMMORTAL.append(item)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(item))


def _after_fork_in_child() -> None:
    global _process
    _process = object()
    _FORKING._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does with its locks
    for lock in list(_LOCKS):
        if not lock._is_owned():
            lock._at_fork_reinit()
    for item in list(_FORK_AWARE):
        item.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_FORKING.acquire, after_in_parent=_FORKING.release, after_in_child=_after_fork_in_child)


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
        """Forget the parent's threads in a forked child, which does not have them."""
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


def default_threads() -> int:
    """Return the number of threads asked for by PELLUCID_THREADS, otherwise of cores this process may use."""
    setting = os.environ.get("PELLUCID_THREADS", "")
    if not setting:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not setting.isdigit() or int(setting) < 1:
        raise InputError(f"the environment variable PELLUCID_THREADS is {setting!r}; set it to a number from 1 up")
    return int(setting)
