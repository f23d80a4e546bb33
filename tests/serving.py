"""A server of the test's own, in a thread or a process, and what asks it."""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn

from pellucid import Index
from pellucid.core.embedder import Embedder
from pellucid.server import ServerSettings, create_app


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


@contextlib.contextmanager
def running(models: dict[str, Embedder], app: Any = None, **settings: Any) -> Iterator[str]:
    """Run a real server on a free port, with an `app` of the test's own if there is one; yield its address."""
    app = create_app(ServerSettings(**settings), models) if app is None else app
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


def indexed(folder: Path, texts: Any, models: Any = None, **of_documents: Any) -> str:
    """Make an index of some texts; return its folder."""
    with Index.create(folder, models) as index:
        index.add(texts, **of_documents)
    return str(folder)


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


def send_raw(url: str, sent: bytes, seconds: float = 20) -> bytes:
    """Send bytes as they are; return all that comes until the server closes the connection."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@contextlib.contextmanager
def started(command: list[str], port: int, variables: dict[str, str]) -> Iterator[tuple[Any, str]]:
    """Start a server as a process, and wait until it answers; yield the process and its address."""
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": paths} | variables
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _answers(url) or process.poll() is not None)
        assert process.poll() is None, process.stderr.read()
        yield process, url
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        return ask(url, "/health")[0] == 200
    except OSError:
        return False


def wait_until(is_done: Callable[[], bool], seconds: float = 90) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.1)
