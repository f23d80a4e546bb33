"""The application behind uvicorn."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil
from typing import Any

import uvicorn

from pellucid.core.embedder import Embedder
from pellucid.errors import InputError
from pellucid.server.app import create_app
from pellucid.server.service import ServerSettings


def serve(
    settings: ServerSettings,
    models: Mapping[str, Embedder] | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    started: Callable[[str], object] = str,
) -> None:
    """Serve until SIGTERM or Ctrl-C; what was accepted by then is still answered.

    Args:
        settings: what is served, and the limits.
        models: opened models by name, in the place of those that `settings` names.
        host: the address to listen on. Without a token only loopback is allowed.
        port: to listen on; 0 takes a free one.
        started: called once all is opened, with the address of the explorer.

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
        "host": host, "port": port, "workers": 1, "ws": "none", "proxy_headers": False,
        "timeout_keep_alive": 30, "timeout_graceful_shutdown": ceil(settings.timeout), "log_level": "warning",
        "access_log": False, "server_header": False,
    }  # fmt: skip
    address = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
    app = create_app(settings, models)
    started(address)
    uvicorn.run(app, **options)


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
