"""The application: routes, the explorer's files, and errors in the form of each API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from pellucid.core.embedder import Embedder
from pellucid.errors import VERSION
from pellucid.server.bodies import ApiError, Route, error_answer
from pellucid.server.embedding_api import inference_routes, openai_routes
from pellucid.server.guard import Guard
from pellucid.server.reasons_api import index_routes, model_routes
from pellucid.server.service import ServerSettings, Service

_PAGE = {file.name: file for file in (Path(__file__).parent / "page").iterdir()}
_OPEN = frozenset({"/health", "/openapi.json", "/docs", "/", *(f"/{name}" for name in _PAGE)})  # answered to everybody
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

    handlers: dict[int | type[Exception], Any] = {
        ApiError: _api_error,
        RequestValidationError: _invalid,
        HTTPException: _http_error,
        Exception: _failed,
    }
    app = FastAPI(
        title="pellucid",
        version=VERSION,
        lifespan=lifespan,
        redirect_slashes=False,
        exception_handlers=handlers,
        docs_url=None,  # FastAPI's pages load their scripts from a CDN
        redoc_url=None,
    )
    app.router.route_class = Route
    for routes in (openai_routes, inference_routes, model_routes, index_routes):
        app.router.routes.extend(routes(service).routes)  # as they are: FastAPI would put a router around each
    _add_open_routes(app)
    app.openapi_schema = _schema(app, needs_token=service.settings.token is not None)
    app.add_middleware(Guard, settings=service.settings, open_paths=_OPEN)
    app.state.service = service
    return app


def _add_open_routes(app: FastAPI) -> None:
    """Add what load balancers ask for, and the explorer's files, each under its name."""

    @app.head("/health", include_in_schema=False)
    @app.get("/health", tags=["state"], response_class=Response, responses={200: {"description": "it runs"}})
    async def health() -> Response:
        """Say that the server answers."""
        return Response()

    @app.head("/", include_in_schema=False)
    @app.get("/", tags=["state"], response_class=HTMLResponse)
    async def explorer() -> Response:
        """Return the explorer."""
        return FileResponse(_PAGE["index.html"], headers=_PAGE_HEADERS)

    async def send(request: Request) -> Response:
        return FileResponse(_PAGE[request.url.path.rpartition("/")[2]], headers=_PAGE_HEADERS)

    async def documented(request: Request) -> Response:
        return RedirectResponse("./#api", headers=_PAGE_HEADERS)

    app.add_route("/docs", documented, methods=["GET"], include_in_schema=False)
    for name in _PAGE:
        app.add_route(f"/{name}", send, methods=["GET"], include_in_schema=False)


def _schema(app: FastAPI, *, needs_token: bool) -> dict[str, Any]:
    """Return FastAPI's schema with the token, and without 422 in OpenAI's API."""
    schema = app.openapi()
    token = {"type": "http", "scheme": "bearer", "description": "PELLUCID_TOKEN, where the server has one."}
    schema["components"]["securitySchemes"] = {"token": token}
    for path, item in schema["paths"].items():
        for operation in item.values():
            operation["security"] = [{"token": []}] if needs_token and path not in _OPEN else []
            if path.startswith("/v1/"):
                operation["responses"].pop("422")
    return schema


async def _api_error(request: Request, error: Any) -> Response:
    if any(folder in str(error) for folder in request.app.state.service.folders):
        error = ApiError(500, "the server failed: a file cannot be read")
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
    path, message = request.url.path, str(error.detail)
    if error.status_code == 404:
        message += f": there is no route {path!r:.80}; see /openapi.json"
    response = error_answer(path, ApiError(error.status_code, message))
    response.headers.update(error.headers or {})
    return response
