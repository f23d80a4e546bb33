"""The application: routes, limits, token, metrics, and errors in the form of each API."""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pellucid.base import Embedder
from pellucid.errors import VERSION
from pellucid.server.bodies import ApiError, error_answer
from pellucid.server.corpus_map import map_routes
from pellucid.server.embedding_api import inference_routes, info_routes, openai_routes
from pellucid.server.reasons_api import index_routes, model_routes, saving_routes
from pellucid.server.service import ServerSettings, Service

_PAGE = {file.name: file for file in (Path(__file__).parent / "page").iterdir()}
_STATE = ("/health", "/ready", "/metrics")
_OPEN = {*_STATE, "/openapi.json", "/docs", "/", *(f"/{name}" for name in _PAGE)}  # answered without a token
_BODIES = 8  # of the largest size may be held at a time
_SENT = 1 << 18  # bytes: longer answers are sent in such pieces, each when the client has read most of those before
_MOST_UNREAD = 256 << 20  # bytes of answers that clients have not read yet
HANG_UP = "pellucid.hang_up"  # what a scope calls the way to end a request whose client is gone
_GONE = 499  # what the metrics call such a request, as nginx does
_PORT = re.compile(rb":\d+$")
_PAGE_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def create_app(settings: ServerSettings | None = None, models: Mapping[str, Embedder] | None = None) -> FastAPI:
    """Return the ASGI application.

    Args:
        settings: what is served, and the limits.
        models: opened models by name, in the place of those that `settings` names.

    Raises:
        PellucidError: a model or the index cannot be opened.
    """
    service = Service(settings or ServerSettings(), models)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start(also=app.openapi)
        yield
        await service.stop()

    without_pages: dict[str, Any] = {"docs_url": None, "redoc_url": None}  # FastAPI's load their scripts from a CDN
    app = FastAPI(title="pellucid", version=VERSION, lifespan=lifespan, **without_pages)
    apis = openai_routes, inference_routes, info_routes, model_routes, index_routes, map_routes, saving_routes
    for routes in apis:
        app.router.routes.extend(routes(service).routes)  # as they are: FastAPI would put a router around each
    _add_page(app)
    registry = CollectorRegistry()
    _add_state_routes(app, service, registry)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _failed)
    app.openapi = _described_with_token(app, service.settings.token is not None)  # type: ignore[method-assign]
    app.add_middleware(Guard, settings=service.settings, registry=registry)
    app.state.service = service
    return app


def _add_page(app: FastAPI) -> None:
    """Add the explorer's files, each under its name."""

    async def send(request: Request) -> Response:
        return FileResponse(_PAGE[request.url.path.rpartition("/")[2]], headers=_PAGE_HEADERS)

    @app.head("/", include_in_schema=False)
    @app.get("/", tags=["state"], response_class=HTMLResponse)
    async def explorer() -> Response:
        """Return the explorer."""
        return FileResponse(_PAGE["index.html"], headers=_PAGE_HEADERS)

    async def documented(request: Request) -> Response:
        return RedirectResponse("./#api", headers=_PAGE_HEADERS)

    app.add_route("/docs", documented, methods=["GET"], include_in_schema=False)
    for name in _PAGE:
        app.add_route(f"/{name}", send, methods=["GET"], include_in_schema=False)


def _add_state_routes(app: FastAPI, service: Service, registry: CollectorRegistry) -> None:
    """Add what load balancers and Prometheus ask for."""

    @app.head("/health", include_in_schema=False)
    @app.get("/health", tags=["state"], response_class=Response, responses={200: {"description": "it runs"}})
    async def health() -> Response:
        """Say that the process answers."""
        return Response()

    @app.head("/ready", include_in_schema=False)
    @app.get("/ready", tags=["state"], response_class=Response, responses={503: {"description": "it starts or ends"}})
    async def ready() -> Response:
        """Say whether requests can be taken: nothing is left to import or to index."""
        return Response(status_code=200 if service.is_ready else 503)

    @app.get("/metrics", tags=["state"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Return counters in Prometheus' text format, those of all workers together."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return PlainTextResponse(generate_latest(registry))
        forget_dead_workers(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))
        every = CollectorRegistry()
        MultiProcessCollector(every)  # type: ignore[no-untyped-call]
        return PlainTextResponse(generate_latest(every))


def forget_dead_workers(folder: Path) -> None:
    """Take the requests that workers had in work when they were killed out of the count.

    Args:
        folder: where the workers keep what they count, `gauge_livesum_<process id>.db` among it.
    """
    if os.name != "posix":  # elsewhere signal 0 is no question; there such requests stay in the count
        return
    for path in folder.glob("gauge_live*_*.db"):
        with suppress(ValueError, OverflowError, OSError):  # no worker's file, or somebody else's process
            try:
                os.kill(int(path.stem.rpartition("_")[2]), 0)
            except ProcessLookupError:
                path.unlink()  # unless another worker has done it


def _described_with_token(app: FastAPI, needed: bool) -> Callable[[], dict[str, Any]]:
    """Return FastAPI's `openapi` with the token, and without 422 in OpenAI's API."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = plain()
            token = {"type": "http", "scheme": "bearer", "description": "PELLUCID_TOKEN, where the server has one."}
            schema["components"]["securitySchemes"] = {"token": token}
            for path, item in schema["paths"].items():
                for method, operation in item.items():
                    is_open = path in _OPEN and method == "get"
                    operation["security"] = [{"token": []}] if needed and not is_open else []
                    if path.startswith("/v1/"):
                        operation["responses"].pop("422")
        return app.openapi_schema or {}

    return described


async def _api_error(request: Request, error: Any) -> Response:
    return error_answer(request.url.path, error)


async def _invalid(request: Request, error: Any) -> Response:
    """Name the first wrong field, and what is wrong."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body")
    if first["type"] == "json_invalid":
        return error_answer(request.url.path, ApiError(400, f"the body is not JSON: {first['ctx']['error']}"))
    return error_answer(request.url.path, ApiError(422, f"{place or 'the body'}: {first['msg']}", place or None))


async def _failed(request: Request, error: Any) -> Response:
    """Answer 500; the server logs the traceback."""
    return error_answer(request.url.path, ApiError(500, f"the server failed: {type(error).__name__}"))


async def _http_error(request: Request, error: Any) -> Response:
    response = error_answer(request.url.path, ApiError(error.status_code, str(error.detail)))
    response.headers.update(error.headers or {})
    if error.status_code == 405:  # Starlette only names those of the first route
        routes = [route for route in request.app.routes if getattr(route, "path", None) == request.url.path]
        response.headers["allow"] = ", ".join(sorted({method for route in routes for method in route.methods}))
    return response


class Guard:
    """Token, limits on bodies, time and requests at a time, and metrics, around every request."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, registry: CollectorRegistry) -> None:
        """Take the application and its limits."""
        self.app, self.settings = app, settings
        self._hosts = None if settings.hosts is None else {host.lower().encode() for host in settings.hosts}
        self._running = 0
        self._held = 0  # bytes of the bodies in work
        self._unread = 0  # bytes of the answers that are being sent
        labels = ("route", "status")
        self._count = Counter("pellucid_requests", "requests answered", labels, registry=registry)
        self._time = Histogram("pellucid_request_seconds", "time to the answer", ("route",), registry=registry)
        name, about = "pellucid_requests_running", "requests in work"
        self._gauge = Gauge(name, about, registry=registry, multiprocess_mode="livesum")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = perf_counter(), 500

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._running += 1
        self._gauge.inc()
        try:
            if not await self._guarded(scope, receive, counted):
                status = _GONE
        finally:
            self._running -= 1
            self._gauge.dec()
            route = getattr(scope.get("route"), "path", "other")  # a label for every address would have no end
            self._count.labels(route, status).inc()
            self._time.labels(route).observe(perf_counter() - started)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answer a request; False if its client hung up before."""
        refusal = self._refusal(scope)
        if refusal is not None:
            await error_answer(scope["path"], refusal)(scope, receive, send)
            return True
        is_read = is_started = is_gone = False
        seen, head = 0, dict[str, Any]()

        async def limited() -> Message:
            nonlocal seen, is_read
            message = await receive()
            size = len(message.get("body", b""))
            seen += size
            self._held += size
            is_read = is_read or not message.get("more_body", False)
            if seen > self.settings.max_body_bytes:
                raise HTTPException(413, self._too_large())
            if self._held > _BODIES * self.settings.max_body_bytes:
                raise HTTPException(429, "too many large requests are in work; try again in a moment")
            return message

        def hang_up() -> None:
            nonlocal is_gone
            is_gone = True
            limit.cancel()

        async def paced(message: Message) -> None:
            nonlocal is_started, head
            if message["type"] == "http.response.start":
                head = dict(message)  # sent with the body, which may be refused
                return
            if not is_started:
                is_started = True
                if len(message.get("body", b"")) > _SENT and self._unread > _MOST_UNREAD:
                    busy = ApiError(429, "too many large answers wait for their clients; try again in a moment")
                    await error_answer(scope["path"], busy)(scope, receive, send)
                    return
                await send(head)
            await self._send_body(message, send)

        limit = anyio.move_on_after(self.settings.timeout)
        scope[HANG_UP] = hang_up
        try:
            with limit:
                await self.app(scope, limited, paced)
        finally:
            self._held -= seen
            del scope[HANG_UP]
        if limit.cancelled_caught and not is_started and not is_gone:
            seconds = f"{self.settings.timeout:g} seconds"
            late = ApiError(504, f"no answer in {seconds}") if is_read else ApiError(408, f"no whole body in {seconds}")
            await error_answer(scope["path"], late)(scope, receive, send)
        return not is_gone

    async def _send_body(self, message: Message, send: Send) -> None:
        """Send a part of an answer, and count it until the client has read all but the last piece."""
        body = message.get("body", b"")
        self._unread += len(body)
        try:
            for start in range(_SENT, len(body), _SENT):
                await send({**message, "body": body[start - _SENT : start], "more_body": True})
            await send({**message, "body": body[max(0, len(body) - 1) // _SENT * _SENT :]})
        finally:
            self._unread -= len(body)

    def _refusal(self, scope: Scope) -> ApiError | None:
        """Return the error of a request that is not passed on: its host, token or length, or too many others."""
        headers = dict(reversed(scope["headers"]))  # of several with one name the first counts, as in Starlette
        if self._hosts is not None and _PORT.sub(b"", headers.get(b"host", b"").lower()) not in self._hosts:
            return ApiError(400, "the server does not go by this host name; ask it as localhost")
        if scope["path"] in _OPEN and scope["method"] in ("GET", "HEAD"):
            return None
        if self.settings.token is not None:
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self.settings.token.encode()):
                return ApiError(401, "the token is missing or wrong; send Authorization: Bearer TOKEN")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.settings.max_body_bytes:
            return ApiError(413, self._too_large())
        if self._running > self.settings.max_waiting:
            return ApiError(429, "too many requests are in work; try again in a moment")
        return None

    def _too_large(self) -> str:
        return f"the body is larger than {self.settings.max_body_bytes:,} bytes; send fewer texts in one request"
