"""The application behind uvicorn, in one process or several."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from math import ceil
from typing import Any
from urllib.request import urlopen

import uvicorn
from fastapi import FastAPI
from pydantic import TypeAdapter
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pellucid.core.embedder import Embedder
from pellucid.errors import InputError
from pellucid.persistence.store import temporary_folder
from pellucid.process import environment
from pellucid.server.app import create_app
from pellucid.server.guard import DISCONNECT_KEY
from pellucid.server.service import ServerSettings, Service

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_SETTINGS = "PELLUCID_SERVER"  # the environment variable by which the workers get the settings
_MAX_CONNECTIONS = 2000
_MAX_OPEN_FILES = 4096  # that the process may have open, where the system allows it: connections are files
_MAX_HEAD_BYTES = 64 << 10  # of a head with its trailers, or of the frames of a chunked body beyond its length
_FEED_BYTES = 8 << 10  # that the parser gets at a time: a head that goes over the limit is noticed so soon
_LINGER_S = 1.0  # for the rest of a head that is refused
_LAST_MOMENT = 0.1  # seconds at the end, for requests that have arrived and were not read yet
_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class TimeoutProtocol(HttpToolsProtocol):  # type: ignore[misc]
    """uvicorn's HTTP with limits for hostile clients."""

    # uvicorn waits forever for the head of a request and for a client that does not read its answer, takes heads of any
    # length and any number of connections, lets a request run on whose client is gone, reads headers behind a body, and
    # at the end drops requests that it has not read.

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to watch the connection, or end it if there are too many."""
        super().connection_made(transport)
        self._frame_bytes = self._head_bytes = 0
        self._has_head = self._is_refused = False
        self._unanswered: deque[Any] = deque()
        self._timer: asyncio.TimerHandle | None = None
        if len(self.connections) > _MAX_CONNECTIONS:
            transport.abort()
        else:
            self._look_later(None, self.loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        """End the request whose client is gone."""
        if self._timer is not None:
            self._timer.cancel()
        for cycle in self._unanswered:  # uvicorn only knows the last of several
            cycle.disconnected = True
            cycle.scope.get(DISCONNECT_KEY, lambda: None)()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close after a moment: requests that have arrived on an idle connection are still answered."""
        self.loop.call_later(_LAST_MOMENT, super().shutdown)

    def data_received(self, data: bytes) -> None:
        """Read bytes, and end a connection with too many of them outside bodies."""
        for start in range(0, len(data), _FEED_BYTES):
            if self.transport.is_closing() or self._is_refused:
                return
            piece = data[start : start + _FEED_BYTES]
            self._frame_bytes += len(piece)
            super().data_received(piece)
            if max(self._frame_bytes, self._head_bytes) > _MAX_HEAD_BYTES and not self.transport.is_closing():
                self._refuse_head()

    def _refuse_head(self) -> None:
        """Answer 431 after what was asked before; of a request whose head was passed on nothing can be answered."""
        self._is_refused = True
        if self._has_head:
            self.transport.abort()
        elif self._unanswered:
            self.flow.pause_reading()
        else:
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.write_eof()  # closed at once, with bytes unread, the client might not see the answer
            self.loop.call_later(_LINGER_S, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be read; a head over the limit is what the parser gave up for its callbacks' sake."""
        if self._head_bytes > _MAX_HEAD_BYTES:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        """Begin to read a head."""
        self._has_head, self._head_bytes = False, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a part of the address."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; those after a chunked body are dropped."""
        self._count_head(len(name) + len(value) + len(b": \r\n"))
        if not self._has_head:
            super().on_header(name, value)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > _MAX_HEAD_BYTES:
            raise ValueError("the head is too large")  # which ends the parser

    def on_headers_complete(self) -> None:
        """Note a request."""
        self._has_head = True
        super().on_headers_complete()
        self._unanswered.append(self.cycle)

    def on_response_complete(self) -> None:
        """Forget a request; they are answered in order."""
        self._unanswered.popleft()
        super().on_response_complete()
        if self._is_refused and not self._unanswered and not self.transport.is_closing():
            self._refuse_head()

    def on_body(self, body: bytes) -> None:
        """Take a body out of the count, and allow as much again for its frames, but no more than a head may have."""
        self._frame_bytes = max(self._frame_bytes - 2 * len(body), -_MAX_HEAD_BYTES)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Begin a new count."""
        self._frame_bytes, self._has_head = 0, False
        super().on_message_complete()

    def _look_later(self, cycle: Any, since: float) -> None:
        self._timer = self.loop.call_later(self.config.timeout_keep_alive, self._look, cycle, since)

    def _look(self, last: Any, since: float) -> None:
        """Close a connection on which nothing has begun since the last look, unless an answer is being made."""
        now, cycle = self.loop.time(), self.cycle
        since = since if cycle is last else now
        is_busy = bool(self._unanswered)
        if now - since > (self.config.timeout_graceful_shutdown if is_busy else 0):
            self.transport.abort()  # close() would wait until the client has read everything
        else:
            self._look_later(cycle, since)


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
        workers: processes; they share the tables of mapped models, and open the index only for reading. Models are
            saved by one.
        started: called once the server answers, with the address of the explorer, in a thread of its own.

    Raises:
        InputError: other machines could reach a server without a token, several workers should save, or it cannot
            listen at this address.
        PellucidError: a model or the index cannot be opened.
    """
    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = host == "localhost"
    if not is_local and settings.token is None:
        raise InputError(f"{host} can be reached from other machines, and there is no token; set PELLUCID_TOKEN")
    if workers > 1 and settings.save_to is not None:
        raise InputError(f"{workers} workers cannot save, since only one of them would serve it; save with one worker")
    port = _free_port(host, port)
    if is_local:
        settings = replace(settings, hosts=("localhost", "127.0.0.1", "[::1]", host))
    options: dict[str, Any] = {
        "host": host, "port": port, "http": TimeoutProtocol, "ws": "none", "proxy_headers": False,
        "timeout_keep_alive": 30, "timeout_graceful_shutdown": ceil(settings.timeout), "log_level": "warning",
        "access_log": False, "server_header": False,
    }  # fmt: skip
    if started is not None:
        address = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
        threading.Thread(target=_when_ready, args=(address, started), daemon=True).start()
    if workers == 1:
        with _many_open_files():
            uvicorn.run(create_app(settings, models), **options)
        return
    settings = replace(settings, read_only=True)
    for index in Service(settings).indexes.values():  # opened once: a worker that cannot would start again and again
        index.close()
    with (
        _many_open_files(),
        temporary_folder(prefix="pellucid-metrics-") as metrics,
        environment(_SETTINGS, json.dumps(asdict(settings))),
        environment("PROMETHEUS_MULTIPROC_DIR", str(metrics)),  # where the workers add up what they count
    ):
        uvicorn.run("pellucid.server.running:_worker_app", factory=True, workers=workers, **options)


@contextmanager
def _many_open_files() -> Iterator[None]:
    """Let the process have as many files open as there may be connections; the limit is often 1,024."""
    with ExitStack() as stack:
        if resource is not None:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            most = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, hard)
            if soft != resource.RLIM_INFINITY and soft < most:
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
                stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        yield


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
    return create_app(TypeAdapter(ServerSettings).validate_json(os.environ[_SETTINGS]))
