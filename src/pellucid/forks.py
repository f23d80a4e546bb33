"""What a forked process can use whatever the threads of its parent held: locks, and properties computed once."""

from __future__ import annotations

import os
import sys
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

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


class ForkLock:
    """A lock of threads for the life of a module; a forked child gets a free one, whoever held the parent's."""

    def __init__(self) -> None:
        """Make it."""
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        """Wait for it."""
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        """Free it."""
        self._lock.release()


_LOCKS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_MAKING_LOCKS = ForkLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LOCKS.clear)


def lock_of(owner: Any) -> Any:
    """Return the lock of an object, as long as it lives; a forked child gets a free one, whoever held the parent's."""
    with _MAKING_LOCKS:
        return _LOCKS.setdefault(owner, RLock())
