"""The application: routes, the explorer's files, state, metrics, and errors in the form of each API."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route as StarletteRoute

from pellucid.core.embedder import Embedder
from pellucid.errors import VERSION
from pellucid.server.bodies import ApiError, Route, error_answer
from pellucid.server.corpus_map import map_routes
from pellucid.server.embedding_api import inference_routes, info_routes, openai_routes
from pellucid.server.guard import Guard
from pellucid.server.reasons_api import index_routes, model_routes, saving_routes
from pellucid.server.service import ServerSettings, Service

_PAGE = {file.name: file for file in (Path(__file__).parent / "page").iterdir()}
_STATE = ("/health", "/ready", "/metrics")
_OPEN = frozenset({*_STATE, "/openapi.json", "/docs", "/", *(f"/{name}" for name in _PAGE)})  # without a token
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
    app = FastAPI(title="pellucid", version=VERSION, lifespan=lifespan, redirect_slashes=False, **without_pages)
    app.router.route_class = Route
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
    app.add_middleware(Guard, settings=service.settings, registry=registry, open_paths=_OPEN)
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
        all_workers = CollectorRegistry()
        MultiProcessCollector(all_workers)  # type: ignore[no-untyped-call]
        return PlainTextResponse(generate_latest(all_workers))


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
    """Name the first wrong parameter of a query string, and what is wrong; bodies are checked by `Route`."""
    first = error.errors()[0]
    name = str(first["loc"][-1])
    return error_answer(request.url.path, ApiError(422, f"{name}: {first['msg']}", name))


async def _failed(request: Request, error: Any) -> Response:
    """Answer 500; the server logs the traceback."""
    return error_answer(request.url.path, ApiError(500, f"the server failed: {type(error).__name__}"))


async def _http_error(request: Request, error: Any) -> Response:
    """Answer an error of Starlette's: no such route, or not with this method."""
    path, routes = request.url.path, [route for route in request.app.routes if isinstance(route, StarletteRoute)]
    message = str(error.detail)
    if error.status_code == 404:
        paths = [route.path for route in routes if route.include_in_schema]
        matches = get_close_matches(path.rstrip("/"), paths, 1)
        hint = f"did you mean {matches[0]}?" if matches else "see /openapi.json"
        message += f": there is no route {path!r:.80}; {hint}"
    response = error_answer(path, ApiError(error.status_code, message))
    response.headers.update(error.headers or {})
    if error.status_code == 405:  # Starlette only names those of the first route
        methods = {method for route in routes if route.path_regex.match(path) for method in route.methods or ()}
        response.headers["allow"] = ", ".join(sorted(methods))
    return response
