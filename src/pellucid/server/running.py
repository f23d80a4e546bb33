"""The application behind uvicorn, in one process or several."""

from __future__ import annotations

import ipaddress
import json
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from math import ceil
from typing import Any
from urllib.request import urlopen

import uvicorn
from fastapi import FastAPI

from pellucid.core.embedder import Embedder
from pellucid.errors import InputError
from pellucid.server.app import create_app
from pellucid.server.service import ServerSettings, Service

_SETTINGS = "PELLUCID_SERVER"  # the environment variable by which the workers get the settings


def serve(
    settings: ServerSettings,
    models: Mapping[str, Embedder] | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    workers: int = 1,
    started: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; what was accepted by then is still answered.

    Args:
        settings: what is served, and the limits.
        models: opened models by name, in the place of those that `settings` names; for one worker.
        host: the address to listen on. Without a token only loopback is allowed.
        port: to listen on; 0 takes a free one.
        workers: processes; they share the tables of mapped models, and open the index only for reading.
        started: called once the server answers, with the address of the explorer, in a thread of its own.

    Raises:
        InputError: other machines could reach a server without a token, or it cannot listen at this address.
        PellucidError: a model or the index cannot be opened.
    """
    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = host == "localhost"
    if not is_local and settings.token is None:
        raise InputError(f"{host} can be reached from other machines, and there is no token; set PELLUCID_TOKEN")
    port = _free_port(host, port)
    settings = replace(settings, hosts=(*(settings.hosts or ()), "localhost", "127.0.0.1", "[::1]", host))
    options: dict[str, Any] = {
        "host": host, "port": port, "workers": workers, "ws": "none", "proxy_headers": False,
        "timeout_keep_alive": 30, "timeout_graceful_shutdown": ceil(settings.timeout), "log_level": "warning",
        "access_log": False, "server_header": False,
    }  # fmt: skip
    if started is not None:
        address = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
        threading.Thread(target=_when_ready, args=(address, started), daemon=True).start()
    if workers == 1:
        uvicorn.run(create_app(settings, models), **options)
        return
    settings = replace(settings, read_only=True)
    for index in Service(settings).indexes.values():  # opened once: a worker that cannot would start again and again
        index.close()
    os.environ[_SETTINGS] = json.dumps(asdict(settings))  # which workers inherit
    uvicorn.run("pellucid.server.running:_worker_app", factory=True, **options)
    del os.environ[_SETTINGS]


def _free_port(host: str, port: int) -> int:
    """Return a port that can be listened on, `port` unless that is 0; uvicorn would check after opening the models."""
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as free:
            return int(free.getsockname()[1])
    except OSError as error:
        where = f"{host} at port {port}"
        raise InputError(
            f"cannot listen on {where}: {error.strerror}; stop that process, or give another --port"
        ) from error


def _when_ready(address: str, started: Callable[[str], None]) -> None:
    """Call `started` once the server answers."""
    while True:
        time.sleep(0.1)
        with suppress(OSError), urlopen(f"{address}health"):
            started(address)
            return


def _worker_app() -> FastAPI:
    """Return the application of one of several workers."""
    threading.Thread(target=_end_with_supervisor, daemon=True).start()
    return create_app(ServerSettings(**json.loads(os.environ[_SETTINGS])))


def _end_with_supervisor() -> None:
    """End this worker when the process that started it is gone: it would hold the port for ever."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)
