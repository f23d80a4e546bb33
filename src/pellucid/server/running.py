"""`serve`: the application behind uvicorn, in one process or several."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import threading
import time
import webbrowser
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any
from urllib.request import urlopen

import uvicorn
from fastapi import FastAPI
from pydantic import TypeAdapter
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pellucid.base import Embedder
from pellucid.errors import InputError
from pellucid.server.app import create_app
from pellucid.server.service import ServerSettings

_SETTINGS = "PELLUCID_SERVER"  # the environment variable by which the workers get the settings
_SHUTDOWN = 60  # seconds that requests have to end in
_MOST_CONNECTIONS = 2000


class _ImpatientProtocol(HttpToolsProtocol):  # type: ignore[misc]
    """HTTP that closes a connection on which no whole head of a request comes; uvicorn waits for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.loop.call_later(self.config.timeout_keep_alive, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if getattr(self, "cycle", None) is None and not self.transport.is_closing():
            self.transport.close()


def serve(
    settings: ServerSettings,
    models: Mapping[str, Embedder] | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    workers: int = 1,
    page: str | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; what was accepted by then is still answered.

    Args:
        settings: what is served, and the limits.
        models: opened models by name, in the place of those that `settings` names; for one worker.
        host: the address to listen on. On loopback alone no token is needed.
        port: to listen on.
        workers: processes; they share the tables of mapped models. An index is open in one process only.
        page: open the explorer in a browser at this view, as "#search?q=aspirin", once the server is ready.

    Raises:
        InputError: other machines could reach a server without a token, or several workers should share an index.
        PellucidError: a model or the index cannot be opened.
    """
    is_local = _is_loopback(host)
    if not is_local and settings.token is None:
        raise InputError(f"{host} can be reached from other machines, and there is no token; set PELLUCID_TOKEN")
    if workers > 1 and settings.index is not None:
        raise InputError(f"{workers} workers cannot share an index, which one process opens; serve it with one worker")
    if is_local:
        settings = replace(settings, hosts=("localhost", "127.0.0.1", "[::1]", host))
    options: dict[str, Any] = {
        "host": host, "port": port, "http": _ImpatientProtocol, "timeout_graceful_shutdown": _SHUTDOWN,
        "timeout_keep_alive": 30, "limit_concurrency": _MOST_CONNECTIONS, "log_level": "warning", "access_log": False,
        "server_header": False,
    }  # fmt: skip
    if page is not None:
        threading.Thread(target=_open_page, args=(f"http://{host}:{port}/", page), daemon=True).start()
    if workers == 1:
        uvicorn.run(create_app(settings, models), **options)
        return
    os.environ[_SETTINGS] = json.dumps(asdict(settings))
    uvicorn.run("pellucid.server.running:_worker_app", factory=True, workers=workers, **options)


def _open_page(address: str, page: str) -> None:
    """Open a view in the browser once the server answers."""
    for _ in range(600):
        time.sleep(0.1)
        with suppress(OSError), urlopen(f"{address}ready"):
            webbrowser.open(address + page)
            return


def _worker_app() -> FastAPI:
    """Return the application of one of several workers."""
    return create_app(TypeAdapter(ServerSettings).validate_json(os.environ[_SETTINGS]))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
