"""What a forked process can use, whatever the threads of its parent were doing: locks, owners, cached properties.

Of all threads only the one that forked lives on in the child. A lock that another one held is never released there, and
what it was changing stays as it was at that moment. So locks are renewed before anything else can run in the child, and
what belongs to the parent (a file lock, a change of an index, a folder of an engine) is left alone by the child.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property:
        """As in functools, without the lock that it has up to Python 3.11.

        All objects of a class share that lock, so that a child that is forked while a thread computes the property of
        one of them would wait for it for ever. Here two threads may compute the same value.
        """

        def __init__(self, function: Any) -> None:
            """Take what computes the value."""
            self._function, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            """Learn the name under which the value is kept."""
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            """Compute and keep the value; from then on it is found first."""
            if instance is None:
                return self
            value = vars(instance)[self._name] = self._function(instance)
            return value


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
    """Return what stands for this process; a forked child has another, also where the system uses a number again."""
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
