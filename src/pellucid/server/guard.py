"""What is around every request: host, token, size of the body, time, and how many are in work."""

from __future__ import annotations

import asyncio
import hmac
import re

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pellucid.server.bodies import ApiError, error_answer
from pellucid.server.service import ServerSettings

_MAX_QUESTION_BYTES = 1 << 20  # of a body that holds no corpus; conditions of more take seconds to read
_CORPUS_PATHS = ("/v1/embeddings", "/embed", "/rerank")
_PORT = re.compile(rb":\d+$")


class Guard:
    """The limits of requests, as middleware."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, open_paths: frozenset[str]) -> None:
        """Take the application, its limits, and the paths that are answered to everybody."""
        self.app, self.settings, self._open_paths = app, settings, open_paths
        self._token = None if settings.token is None else settings.token.strip().encode("utf-8", "surrogateescape")
        self._hosts = None if settings.hosts is None else {host.lower().encode() for host in settings.hosts}
        self._n_running = 0  # requests that were read whole and are not answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        is_open = scope["type"] != "http" or (scope["path"] in self._open_paths and scope["method"] in ("GET", "HEAD"))
        if is_open:
            await self.app(scope, receive, send)
            return
        try:
            self._check_access(scope)
            await self._answer(scope, receive, send)
        except ApiError as error:
            await error_answer(scope["path"], error)(scope, receive, send)

    def _check_access(self, scope: Scope) -> None:
        """Check the token; without one the host, which a web page that means no good cannot choose."""
        headers = dict(reversed(scope["headers"]))  # of several with one name the first counts, as in Starlette
        if self._token is not None:
            scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
                raise ApiError(401, "the token is missing or wrong; send Authorization: Bearer TOKEN")
        elif self._hosts is not None and _PORT.sub(b"", headers.get(b"host", b"").lower()) not in self._hosts:
            raise ApiError(400, "the server does not go by this host name; start it with --allow-host NAME")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request unless its time is over; its work ends with it, also when its client is gone."""
        has_begun = False

        async def send_noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        async def end_with_client(limit: anyio.CancelScope) -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            limit.cancel()

        async def replay() -> Message:
            return message

        with anyio.move_on_after(self.settings.timeout) as limit:
            message = await self._read(scope, receive)
            if message["type"] == "http.disconnect":
                return
            if self._n_running >= self.settings.max_waiting:
                raise ApiError(429, "too many requests are in work; try again in a moment")
            self._n_running += 1
            watcher = asyncio.create_task(end_with_client(limit))
            try:
                await self.app(scope, replay, send_noted)
            finally:
                watcher.cancel()
                self._n_running -= 1
        if limit.cancelled_caught and not has_begun:  # a client that is gone does not read it
            raise ApiError(504, f"no answer in {self.settings.timeout:g} seconds")

    async def _read(self, scope: Scope, receive: Receive) -> Message:
        """Return the whole body of a request as one message, unless it is too large."""
        body, max_bytes = bytearray(), self.settings.max_body_bytes
        if scope["path"] not in _CORPUS_PATHS:
            max_bytes = min(max_bytes, _MAX_QUESTION_BYTES)
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > max_bytes:
                raise ApiError(413, f"the body is larger than {max_bytes:,} bytes; send less in one request")
            if not message.get("more_body", False):
                return {**message, "body": bytes(body)}
