"""A server of the test's own, in a thread or a process, and what asks it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn

from pellucid.core.embedder import Embedder
from pellucid.server import ServerSettings, create_app
from pellucid.server.running import TimeoutProtocol


class Slow(Embedder):
    """A model that takes its time, notes what it is given, and chokes on one word."""

    family = "slow"

    def __init__(self, seconds: float = 0.02) -> None:
        self.seconds, self.calls = seconds, []

    def _encode(self, texts, role, *, batch_size, show_progress_bar):
        self.calls.append((len(texts), role))
        time.sleep(self.seconds)
        if "poison" in texts:
            raise RuntimeError("choked")
        return np.array([[len(text), hash(text) % 1000] for text in texts], np.float32)

    def get_embedding_dimension(self) -> int:
        return 2

    def explain(self, text1, text2=None, *, role1=None, role2=None):
        raise NotImplementedError

    def save_pretrained(self, path):
        raise NotImplementedError


@contextlib.contextmanager
def running(models: dict[str, Embedder], patience: int = 30, **settings: Any) -> Iterator[str]:
    """Run a real server on a free port; yield its address."""
    app = create_app(ServerSettings(**settings), models)
    options = {"http": TimeoutProtocol, "timeout_keep_alive": patience, "timeout_graceful_shutdown": 4 * patience}
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", **options))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not (server.started and app.state.service.is_ready):
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


def ask(url: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """Send JSON (or bytes as they are); return the status and what came back."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=300)
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    head = {"content-type": "application/json"} | (headers or {})
    connection.request("GET" if body is None else "POST", path, data, head)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if "json" in answer.getheader("content-type", "") else text.decode()


def connected(url: str, seconds: float = 20) -> socket.socket:
    """Return a connection to a server."""
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=seconds)


def send_raw(url: str, sent: bytes, seconds: float = 20) -> bytes:
    """Send bytes as they are; return all that comes until the server closes the connection."""
    with connected(url, seconds) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@contextlib.contextmanager
def started(
    command: list[str], port: int, variables: dict[str, str], wait_for: str = "/ready"
) -> Iterator[tuple[Any, str]]:
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": paths} | variables
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_answer(f"http://127.0.0.1:{port}", wait_for)
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def wait_for_answer(url: str, path: str) -> None:
    for _ in range(900):
        try:
            if ask(url, path)[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError("the server did not start")
