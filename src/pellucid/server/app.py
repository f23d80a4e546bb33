"""The application: routes, limits, the token, metrics, and errors in the form of each API."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pellucid.base import Embedder
from pellucid.errors import VERSION
from pellucid.server import inference_api, openai_api, reasons_api
from pellucid.server.errors import ApiError, error_answer
from pellucid.server.service import ServerSettings, Service

_PAGE = {file.name: file for file in (Path(__file__).parent / "page").iterdir()}
_OPEN = {"/health", "/ready", "/metrics", "/", *(f"/{name}" for name in _PAGE)}  # answered without a token
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
        service.start()
        yield
        await service.stop()

    app = FastAPI(title="pellucid", version=VERSION, lifespan=lifespan, docs_url="/docs", redoc_url=None)
    for api in (openai_api, inference_api, reasons_api):
        app.include_router(api.routes(service))
    _add_page(app)
    registry = CollectorRegistry()
    _add_state_routes(app, service, registry)
    app.add_exception_handler(ApiError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(Guard, settings=service.settings, registry=registry)
    if service.settings.hosts is not None:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(service.settings.hosts))
    app.state.service = service
    return app


def _add_page(app: FastAPI) -> None:
    """Add the explorer's files, each under its name."""

    def file(path: Path) -> Callable[[Request], Awaitable[Response]]:
        async def send(_: Request) -> Response:
            return FileResponse(path, headers=_PAGE_HEADERS)

        return send

    app.add_route("/", file(_PAGE["index.html"]), methods=["GET"], include_in_schema=False)
    for name, path in _PAGE.items():
        app.add_route(f"/{name}", file(path), methods=["GET"], include_in_schema=False)


def _add_state_routes(app: FastAPI, service: Service, registry: CollectorRegistry) -> None:
    """Add what load balancers and Prometheus ask for."""

    @app.get("/health", tags=["state"], response_class=Response, responses={200: {"description": "it runs"}})
    async def health() -> Response:
        """Say that the process answers."""
        return Response()

    @app.get("/ready", tags=["state"], response_class=Response, responses={503: {"description": "it starts or ends"}})
    async def ready() -> Response:
        """Say whether requests can be taken."""
        return Response(status_code=200 if service.is_ready else 503)

    @app.get("/metrics", tags=["state"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Return counters in Prometheus' text format."""
        return PlainTextResponse(generate_latest(registry))


async def _refused(request: Request, error: Any) -> Response:
    return error_answer(request.url.path, error)


async def _invalid(request: Request, error: Any) -> Response:
    """Name the first field that is wrong, with its value's fault."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body")
    if first["type"] == "json_invalid":
        return error_answer(request.url.path, ApiError(400, f"the body is no JSON: {first['ctx']['error']}"))
    message = f"{place or 'the body'}: {first['msg']}"
    if not place and "json" not in request.headers.get("content-type", ""):
        message = "the body is read as JSON only with the header Content-Type: application/json"
    return error_answer(request.url.path, ApiError(422, message, place or None))


async def _http_error(request: Request, error: Any) -> Response:
    response = error_answer(request.url.path, ApiError(error.status_code, str(error.detail)))
    response.headers.update(error.headers or {})  # as Allow, which a wrong method is answered with
    return response


class Guard:
    """Token, limits on bodies, time and requests at a time, and metrics, around every request."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, registry: CollectorRegistry) -> None:
        """Take the application and its limits."""
        self.app, self.settings = app, settings
        self._running = 0
        labels = ("route", "status")
        self._count = Counter("pellucid_requests", "requests answered", labels, registry=registry)
        self._time = Histogram("pellucid_request_seconds", "time to the answer", ("route",), registry=registry)
        self._gauge = Gauge("pellucid_requests_running", "requests in work", registry=registry)
        self._gauge.set_function(lambda: self._running)

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
        try:
            await self._guarded(scope, receive, counted)
        finally:
            self._running -= 1
            route = getattr(scope.get("route"), "path", "other")  # a label for every address would have no end
            self._count.labels(route, status).inc()
            self._time.labels(route).observe(perf_counter() - started)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope)
        if refusal is not None:
            await error_answer(scope["path"], refusal)(scope, receive, send)
            return
        is_read = is_started = False
        seen = 0

        async def limited() -> Message:
            nonlocal seen, is_read
            message = await receive()
            seen += len(message.get("body", b""))
            is_read = is_read or not message.get("more_body", False)
            if seen > self.settings.max_body_bytes:
                raise HTTPException(413, self._too_large())
            return message

        async def noted(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        with anyio.move_on_after(self.settings.timeout) as limit:
            await self.app(scope, limited, noted)
        if limit.cancelled_caught and not is_started:
            seconds = f"{self.settings.timeout:g} seconds"
            late = ApiError(504, f"no answer in {seconds}") if is_read else ApiError(408, f"no whole body in {seconds}")
            await error_answer(scope["path"], late)(scope, receive, send)

    def _refusal(self, scope: Scope) -> ApiError | None:
        """Return why a request is not passed on: its token, its length, or too many others."""
        if scope["path"] in _OPEN and scope["method"] == "GET":
            return None
        headers = dict(scope["headers"])
        if self.settings.token is not None:
            expected = f"Bearer {self.settings.token}".encode()
            if not hmac.compare_digest(headers.get(b"authorization", b""), expected):
                return ApiError(401, "the token is missing or wrong; send Authorization: Bearer TOKEN")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.settings.max_body_bytes:
            return ApiError(413, self._too_large())
        if self._running > self.settings.max_waiting:
            return ApiError(429, "too many requests are in work; try again in a moment")
        return None

    def _too_large(self) -> str:
        return f"the body is larger than {self.settings.max_body_bytes:,} bytes; send fewer texts in one request"
