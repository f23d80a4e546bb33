"""What is around every request: host and token, limits on bodies, time and requests in work, and metrics."""

from __future__ import annotations

import hmac
import re
from time import perf_counter

import anyio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pellucid.server.bodies import SMALL_BODY_BYTES, ApiError, error_answer
from pellucid.server.service import ServerSettings

DISCONNECT_KEY = "pellucid.disconnect"
"""The key of a scope under which is the function that ends a request whose client is gone."""

_MAX_BODIES = 8  # of the largest size that are held at a time
_STALL_S = 10.0  # a body of which nothing comes for so long is given up
_PIECE_BYTES = 1 << 18  # longer answers are sent in such pieces, each when the client has read most of those before
_MAX_UNREAD_BYTES = 256 << 20  # of answers that clients have not read yet
_CLIENT_CLOSED = 499  # what the metrics call a request whose client hung up, as nginx does
_PORT = re.compile(rb":\d+$")


class Guard:
    """The limits of all requests together, as middleware."""

    def __init__(
        self, app: ASGIApp, settings: ServerSettings, registry: CollectorRegistry, open_paths: frozenset[str]
    ) -> None:
        """Take the application, its limits, and the paths that are answered without a token."""
        self.app, self.settings, self._open_paths = app, settings, open_paths
        self._hosts = None if settings.hosts is None else {host.lower().encode() for host in settings.hosts}
        self._running = 0  # requests that were read whole and are not answered
        self.body_bytes = 0  # of the requests in work
        self.unread_bytes = 0  # of the answers that are being sent
        labels = ("route", "status")
        self._count = Counter("pellucid_requests", "requests answered", labels, registry=registry)
        self._time = Histogram("pellucid_request_seconds", "time to the answer", ("route",), registry=registry)
        name, description = "pellucid_requests_running", "requests in work"
        self._gauge = Gauge(name, description, registry=registry, multiprocess_mode="livesum")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = perf_counter(), 500

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._gauge.inc()
        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await error_answer(scope["path"], refusal)(scope, receive, send_counted)
            elif not await _Exchange(self, scope, receive, send_counted).run():
                status = _CLIENT_CLOSED
        finally:
            self._gauge.dec()
            route = getattr(scope.get("route"), "path", "other")  # a label for every address would have no end
            self._count.labels(route, status).inc()
            self._time.labels(route).observe(perf_counter() - started)

    def _refusal(self, scope: Scope) -> ApiError | None:
        """Return the error of a request that is not passed on, for its host or token."""
        headers = dict(reversed(scope["headers"]))  # of several with one name the first counts, as in Starlette
        if self._hosts is not None and _PORT.sub(b"", headers.get(b"host", b"").lower()) not in self._hosts:
            return ApiError(400, "the server does not go by this host name; ask it as localhost")
        if self.is_open(scope) or self.settings.token is None:
            return None
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self.settings.token.encode()):
            return ApiError(401, "the token is missing or wrong; send Authorization: Bearer TOKEN")
        return None

    def is_open(self, scope: Scope) -> bool:
        """Whether a request is answered without a token, and however many others are in work."""
        return scope["path"] in self._open_paths and scope["method"] in ("GET", "HEAD")

    def begin(self) -> None:
        """Count a request that was read whole, unless there are too many."""
        if self._running >= self.settings.max_waiting:
            raise HTTPException(429, "too many requests are in work; try again in a moment")
        self._running += 1

    def end(self) -> None:
        """Take a request out of the count."""
        self._running -= 1


class _Exchange:
    """One request and its answer."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self._guard, self._scope, self._receive, self._send = guard, scope, receive, send
        self._limit = anyio.move_on_after(guard.settings.timeout)
        self._head: Message = {}  # sent with the body, which may be refused
        self._body_bytes = 0
        self._is_question = scope["method"] in ("GET", "HEAD")  # whose body is not read
        self._is_read = self._is_running = self._is_started = self._is_gone = False

    async def run(self) -> bool:
        """Answer the request; False if its client hung up before."""
        self._scope[DISCONNECT_KEY] = self._disconnect
        try:
            with self._limit:
                if self._is_question and not self._guard.is_open(self._scope):
                    self._begin()
                await self._guard.app(self._scope, self._receive_limited, self._send_paced)
        except HTTPException as error:  # of `begin`; those of the application are answered there
            refusal = ApiError(error.status_code, error.detail)
            await error_answer(self._scope["path"], refusal)(self._scope, self._receive, self._send)
        finally:
            self._guard.body_bytes -= self._body_bytes
            if self._is_running:
                self._guard.end()
            del self._scope[DISCONNECT_KEY]
        if self._limit.cancelled_caught and not self._is_started and not self._is_gone:
            limit = f"{self._guard.settings.timeout:g} seconds"
            is_whole = self._is_read or self._is_question
            late = ApiError(504, f"no answer in {limit}") if is_whole else ApiError(408, f"no whole body in {limit}")
            await error_answer(self._scope["path"], late)(self._scope, self._receive, self._send)
        return not self._is_gone

    def _disconnect(self) -> None:
        self._is_gone = True
        self._limit.cancel()

    async def _receive_limited(self) -> Message:
        """Return the next part of the body, if it comes in time and there is room."""
        if self._is_read:
            return await self._receive()
        with anyio.move_on_after(_STALL_S) as stall:
            message = await self._receive()
        if stall.cancelled_caught:
            raise HTTPException(408, f"no bytes of the body came for {_STALL_S:g} seconds")
        size, max_bytes = len(message.get("body", b"")), self._guard.settings.max_body_bytes
        self._body_bytes += size
        self._guard.body_bytes += size
        is_small = self._body_bytes <= min(SMALL_BODY_BYTES, max_bytes // _MAX_BODIES)
        if not is_small and self._guard.body_bytes > _MAX_BODIES * max_bytes:
            raise HTTPException(429, "too many large requests are in work; try again in a moment")
        self._is_read = not message.get("more_body", False)
        if self._is_read and message["type"] == "http.request":
            self._begin()
        return message

    def _begin(self) -> None:
        self._guard.begin()
        self._is_running = True

    async def _send_paced(self, message: Message) -> None:
        """Send a part of an answer, unless clients have not read too much of others."""
        if message["type"] == "http.response.start":
            self._head = dict(message)
            return
        if not self._is_started:
            self._is_started = True
            if len(message.get("body", b"")) > _PIECE_BYTES and self._guard.unread_bytes > _MAX_UNREAD_BYTES:
                busy = ApiError(429, "too many large answers wait for their clients; try again in a moment")
                await error_answer(self._scope["path"], busy)(self._scope, self._receive, self._send)
                return
            await self._send(self._head)
        body = message.get("body", b"")
        self._guard.unread_bytes += len(body)  # until the client has read all but the last piece
        try:
            for start in range(_PIECE_BYTES, len(body), _PIECE_BYTES):
                await self._send({**message, "body": body[start - _PIECE_BYTES : start], "more_body": True})
            await self._send({**message, "body": body[max(0, len(body) - 1) // _PIECE_BYTES * _PIECE_BYTES :]})
        finally:
            self._guard.unread_bytes -= len(body)
