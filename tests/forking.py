"""Work in a forked process, and in several threads at once."""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

HAS_FORK = pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")


def in_fork(work: Callable[[], Any], seconds: float = 60) -> str:
    """Run `work` in a forked process; return what it returned, or how it failed; where it hangs is told on stderr."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        faulthandler.register(signal.SIGUSR1, file=2)
        try:
            said = repr(work())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode()[:60_000])
        os._exit(0)
    os.close(writer)
    end, status = time.monotonic() + seconds, 0
    while time.monotonic() < end and not status:
        status = os.waitpid(child, os.WNOHANG)[0]
        time.sleep(0.01)
    if not status:
        os.kill(child, signal.SIGUSR1)
        time.sleep(0.5)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as file:
        return file.read().decode() if status else "hanging"


def at_once(*work: Callable[[], Any]) -> list[str]:
    """Do several things in threads of their own, which begin together; return the errors."""
    begin, errors = threading.Barrier(len(work)), list[str]()

    def run(one: Callable[[], Any]) -> None:
        begin.wait(30)
        try:
            one()
        except BaseException as error:
            errors.append(f"{type(error).__name__}: {error}"[:400])

    threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    return errors + ["a thread hangs"] * sum(thread.is_alive() for thread in threads)
