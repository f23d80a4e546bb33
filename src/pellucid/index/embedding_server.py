"""A model on a server with OpenAI's API: texts go to POST {url}/embeddings, and vectors come back.

It can be a model of an index, or the encoder of anchors. No folder contacts a server by itself: an index with such a
part gets it again at each opening.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import numpy as np

from pellucid.embeddings import Role
from pellucid.errors import VERSION, EngineError, InputError, check_integer
from pellucid.unicode import well_formed

_TRIES = 3
_BUSY = (408, 429, 500, 502, 503, 504)  # worth another try
_LONGEST_PAUSE = 20.0  # seconds; a server may ask for more in Retry-After
_LARGEST_ANSWER = 256 << 20  # bytes
_CHUNK = 1 << 16


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: the key would go to another address."""

    def redirect_request(self, *request: Any) -> None:
        return None


class EmbeddingServer:
    """A model at an address, such as OpenAI's, vLLM's, Ollama's, text-embeddings-inference's or `pellucid serve`'s.

    Attributes:
        url: as "http://host:8000/v1".
        model: its name there.
        address: both, as messages and an index name them.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        dimension: int | None = None,
        key: str = "OPENAI_API_KEY",
        batch_size: int = 64,
        timeout: float = 60.0,
        roles: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Keep the settings; no request is made yet.

        Args:
            url: what "/embeddings" is added to.
            model: the name of a model there.
            dimension: ask for vectors of so many numbers; None takes what comes.
            key: the environment variable with the key, which is read at each request and written nowhere. Where it is
                not set, none is sent.
            batch_size: texts of a request.
            timeout: seconds that a request may take; after three that fail, an error.
            roles: fields that are added to requests for "query" and "document", for a model that distinguishes them:
                {"query": {"input_type": "query"}}.

        Raises:
            InputError: an argument has a value that cannot be used.
        """
        parts = urlsplit(url if isinstance(url, str) else "")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"the url is {url!r:.80}; give one such as 'http://localhost:8000/v1'")
        if "@" in parts.netloc:
            raise InputError("the url holds a name or password; put the key into an environment variable: key='NAME'")
        if not isinstance(model, str) or not model:
            raise InputError(f"the model is {model!r:.60}; give its name on the server")
        check_integer("batch_size", batch_size)
        check_integer("dimension", 1 if dimension is None else dimension)
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < 1e6:
            raise InputError(f"timeout is {timeout!r:.40}; it must be seconds above 0")
        if unknown := set(roles or {}) - {"query", "document"}:
            raise InputError(f"roles name {min(map(str, unknown))!r:.40}; there are 'query' and 'document'")
        self.url, self.model, self.dimension, self.batch_size, self.timeout = url, model, dimension, batch_size, timeout
        self._key, self._roles = key, {role: dict(fields) for role, fields in (roles or {}).items()}
        self._width = 0  # of the vectors, once there were some
        self._path = urlunsplit(parts._replace(path=parts.path.rstrip("/") + "/embeddings", fragment=""))
        self.address = f"{model} at {urlunsplit(parts._replace(query='', fragment=''))}"

    def __repr__(self) -> str:
        """Return one short line."""
        return f"<EmbeddingServer {self.address}>"

    def __call__(self, texts: list[str]) -> Any:
        """Return the vectors of texts in no role, float32 [texts, d]; a row is zero for a text without a word."""
        return self._rows(texts, None)

    def encode_query(self, texts: list[str]) -> Any:
        """Return the vectors of queries, as a call does."""
        return self._rows(texts, "query")

    def encode_document(self, texts: list[str]) -> Any:
        """Return the vectors of documents, as a call does."""
        return self._rows(texts, "document")

    def _rows(self, texts: list[str], role: Role) -> Any:
        full = [number for number, text in enumerate(texts) if text.strip()]  # OpenAI refuses empty ones
        asked = [well_formed(texts[number]) for number in full] or ["a"] * (not self._width)
        steps = range(0, len(asked), self.batch_size)
        found = [self._vectors(asked[start : start + self.batch_size], role) for start in steps]
        rows = np.zeros((len(texts), self._width), np.float32)
        if full:
            rows[full] = np.concatenate(found)
        return rows

    def _vectors(self, texts: list[str], role: Role) -> Any:
        """Return the vectors of the texts of one request, float32 [texts, d]."""
        body = {"model": self.model, "input": texts, "encoding_format": "float", **self._roles.get(role or "", {})}
        if self.dimension is not None:
            body.setdefault("dimensions", self.dimension)
        answer = self._post(json.dumps(body).encode())
        try:
            items = json.loads(answer)["data"]
            places = [item.get("index", place) for place, item in enumerate(items)]
            vectors = np.array([_numbers(item["embedding"]) for item in items], np.float32)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise EngineError(f"{self.address} answered no list of embeddings: {answer[:200]!r}") from error
        if vectors.ndim != 2 or not vectors.size or sorted(places, key=str) != sorted(range(len(texts)), key=str):
            raise EngineError(f"{self.address} answered {len(items)} embeddings for {len(texts)} texts")
        width = self.dimension or self._width or vectors.shape[1]
        if vectors.shape[1] != width:
            raise EngineError(f"{self.address} gives {vectors.shape[1]} dimensions, and {width} are expected")
        self._width = width
        ordered = np.empty_like(vectors)
        ordered[places] = vectors
        return ordered

    def _post(self, body: bytes) -> bytes:
        """Return the answer to a request; it is made again where a later one may succeed."""
        headers = {"Content-Type": "application/json", "User-Agent": f"pellucid/{VERSION}"}
        if key := os.environ.get(self._key, "").strip():
            headers["Authorization"] = f"Bearer {key}"
        request = Request(self._path, body, headers, method="POST")
        for left in reversed(range(_TRIES)):
            pause = 0.5 * 2 ** (_TRIES - 1 - left)
            try:
                return self._read(request)
            except HTTPError as error:
                if not left or error.code not in _BUSY:
                    answer = error.read(2000).decode("utf-8", "replace").replace(key or "\0", "...")
                    hint = ""
                    if error.code in (401, 403):
                        hint = f" (the key is taken from the environment variable {self._key})"
                    elif 300 <= error.code < 400:
                        hint = " (an address that is not the right one: redirects are not followed)"
                    raise EngineError(f"{self.address} answered {error.code}: {answer:.300}{hint}") from None
                with suppress(ValueError):  # a date
                    pause = min(max(float(error.headers.get("Retry-After") or pause), 0.0), _LONGEST_PAUSE)
            except (URLError, HTTPException, OSError, ValueError) as error:
                if not left or isinstance(error, ValueError):
                    raise EngineError(f"{self.address} cannot be reached: {error!s:.300}") from None
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _read(self, request: Request) -> bytes:
        end, answer = time.monotonic() + self.timeout, bytearray()
        with build_opener(_NoRedirects).open(request, timeout=self.timeout) as response:
            while chunk := response.read1(_CHUNK):
                answer += chunk
                if len(answer) > _LARGEST_ANSWER:
                    raise ValueError(f"the answer is longer than {_LARGEST_ANSWER >> 20} MB; take a smaller batch_size")
                if time.monotonic() > end:
                    raise TimeoutError(f"the answer took more than {self.timeout:g} seconds")
        return bytes(answer)


def _numbers(embedding: Any) -> Any:
    """Return an embedding, which may be base64 of little-endian float32."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
    if not isinstance(embedding, list):
        raise TypeError("an embedding is a list of numbers")
    return np.array(embedding, np.float32)
