"""A model on a server with OpenAI's API: texts go to POST {url}/embeddings, and vectors come back.

It can be a model of an index, or the encoder of anchors. No folder contacts a server by itself: an index with such a
part gets it again at each opening. Errors are made of text alone, in which the key is hidden.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import numpy as np

from pellucid.core.arrays import Role
from pellucid.core.embedder import Vectors
from pellucid.errors import VERSION, EngineError, InputError, check_integer, check_number, require, shown
from pellucid.text.inputs import check_texts
from pellucid.text.unicode import well_formed

MAX_TRIES = 3
RETRY_STATUSES = (408, 429, 500, 502, 503, 504)
MAX_TIMEOUT_S = 1e6
MAX_PAUSE_S = 20.0  # a server may ask for more in Retry-After
MAX_ANSWER_BYTES = 256 << 20
MAX_QUOTE_CHARS = 300
_SECRET_FIELD = re.compile(r"(^|[_.-])(api-?)?(key|token|secret|password|signature|sig)$", re.IGNORECASE)
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Answer(NamedTuple):
    """What a server sent, or with the status 0 why nothing came."""

    status: int
    body: bytes
    pause_s: float | None = None  # that it asks for


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
        key: str | None = "OPENAI_API_KEY",
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
                not set, or None, no key is sent.
            batch_size: texts of a request.
            timeout: seconds for the texts of one request: all tries, the pauses between them, and the whole answer.
            roles: fields that are added to requests for "query" and "document", for a model that distinguishes them:
                {"query": {"input_type": "query"}}.

        Raises:
            InputError: an argument is invalid.
        """
        parts = _split_url(url)
        if not isinstance(model, str) or not model:
            raise InputError(f"the model is {shown(model)}; give its name on the server")
        if key is not None and not (isinstance(key, str) and _ENVIRONMENT_NAME.fullmatch(key)):
            raise InputError("key is no name of an environment variable; set one to the key, and give its name")
        check_integer("batch_size", batch_size)
        check_integer("dimension", dimension, optional=True)
        check_number("timeout", timeout, above=0, most=MAX_TIMEOUT_S)
        self.url, self.model, self.dimension, self.batch_size, self.timeout = url, model, dimension, batch_size, timeout
        self._key, self._roles = key, _check_roles(roles)
        self._width = 0  # of the vectors, once there were some
        self._endpoint = urlunsplit(parts._replace(path=parts.path.rstrip("/") + "/embeddings", fragment=""))
        self.address = f"{model} at {urlunsplit(parts._replace(query='', fragment=''))}"

    def __repr__(self) -> str:
        """Return one short line."""
        return f"<EmbeddingServer {self.address}>"

    def __call__(self, texts: list[str]) -> Vectors:
        """Return the vectors of texts in no role, float32 [texts, d]; a row is zero for a text without a word.

        Raises:
            InputError: an item is not a string, or the key cannot be sent.
            EngineError: the server cannot be reached in time, refuses, or answers no vectors.
            MissingExtraError: httpx2 is not installed.
        """
        return self._rows(texts, None)

    def encode_query(self, texts: list[str]) -> Vectors:
        """Return the vectors of queries, as a call does."""
        return self._rows(texts, "query")

    def encode_document(self, texts: list[str]) -> Vectors:
        """Return the vectors of documents, as a call does."""
        return self._rows(texts, "document")

    def _rows(self, texts: Any, role: Role) -> Vectors:
        if isinstance(texts, str):
            raise InputError(f"texts is one string, {shown(texts)}; give a list of texts")
        texts = check_texts(texts)
        positions = [position for position, text in enumerate(texts) if text.strip()]  # OpenAI refuses empty ones
        inputs = [well_formed(texts[position]) for position in positions] or ["a"] * (not self._width)
        starts = range(0, len(inputs), self.batch_size)
        batches = [self._batch(inputs[start : start + self.batch_size], role) for start in starts]
        rows = np.zeros((len(texts), self._width), np.float32)
        if positions:
            rows[positions] = np.concatenate(batches)
        return rows

    def _batch(self, texts: list[str], role: Role) -> Vectors:
        """Return the vectors of the texts of one request, float32 [texts, d]; where it may help, ask again."""
        require("httpx2", "search")
        if not _read_key(self._key).isascii() or not _read_key(self._key).isprintable():  # an error would quote it
            raise InputError(f"the environment variable {self._key} holds what no HTTP header can; set it again")
        fields = {"model": self.model, "input": texts, "encoding_format": "float", **self._roles.get(role or "", {})}
        if self.dimension is not None:
            fields.setdefault("dimensions", self.dimension)
        request, end = json.dumps(fields).encode(), time.monotonic() + self.timeout
        for attempt in range(MAX_TRIES):
            answer = _post(self._endpoint, request, self._key, end)
            if 200 <= answer.status < 300:
                return self._vectors(answer.body, len(texts))
            pause_s = 0.5 * 2**attempt if answer.pause_s is None else answer.pause_s
            is_temporary = answer.status in (0, *RETRY_STATUSES) and time.monotonic() + pause_s < end
            if not is_temporary or attempt == MAX_TRIES - 1:
                break
            time.sleep(pause_s)
        message = f"answered {answer.status}" if answer.status else "cannot be reached"
        raise EngineError(f"{self.address} {message}: {self._quote(answer.body)}{self._hint(answer.status)}")

    def _vectors(self, body: bytes, n_texts: int) -> Vectors:
        """Return the vectors that an answer holds, float32 [texts, d] in the order of the texts."""
        try:
            items = json.loads(body)["data"]
            indices = [item.get("index", n) for n, item in enumerate(items)]
            rows = np.array([item["embedding"] for item in items], np.float64)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise EngineError(f"{self.address} answered no list of embeddings: {self._quote(body)}") from None
        if len(rows) != n_texts or sorted(indices, key=repr) != sorted(range(n_texts), key=repr):
            raise EngineError(
                f"{self.address} answered {len(rows)} embeddings for {n_texts} texts, or not one for each"
            )
        width = self.dimension or self._width or (rows.shape[1] if rows.ndim == 2 else 0)
        if rows.ndim != 2 or rows.shape[1] != width or not width:
            raise EngineError(
                f"{self.address} answered rows of the shape {rows.shape}; {width} dimensions are expected"
            )
        if not (np.abs(rows) <= np.finfo(np.float32).max).all():
            raise EngineError(f"{self.address} answered NaN, infinity or a number beyond float32")
        self._width = width
        return rows[np.argsort(indices)].astype(np.float32)

    def _hint(self, status: int) -> str:
        if status in (401, 403):
            variable = (
                f" {self._key}" if self._key and self._key.isupper() else ""
            )  # else it may be the key, by mistake
            was_sent = "its key is" if _read_key(self._key) else "no key was sent; it would be"
            return f" ({was_sent} read from the environment variable{variable} that key= names)"
        return " (redirects are not followed; give the address that it leads to)" if 300 <= status < 400 else ""

    def _quote(self, body: bytes) -> str:
        """Return the beginning of what a server said, in one line and without the key."""
        text = body.decode("utf-8", "replace")
        text = text.replace(key, "...") if (key := _read_key(self._key)) else text
        return " ".join("".join(c if c.isprintable() else " " for c in text[:MAX_QUOTE_CHARS]).split()) or "(nothing)"


def _post(url: str, body: bytes, key_variable: str | None, end: float) -> _Answer:
    """Post a body; return the answer, or why there is none before the time `end`."""
    import httpx2

    headers = {"Content-Type": "application/json", "User-Agent": f"pellucid/{VERSION}"}
    if key := _read_key(key_variable):
        headers["Authorization"] = f"Bearer {key}"
    content, left_s = bytearray(), max(end - time.monotonic(), 1e-3)
    try:
        with (
            httpx2.Client(timeout=left_s, follow_redirects=False) as client,
            client.stream("POST", url, content=body, headers=headers) as response,
        ):
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > MAX_ANSWER_BYTES:
                    return _Answer(413, f"more than {MAX_ANSWER_BYTES >> 20} MB; take a smaller batch_size".encode())
                if time.monotonic() > end:
                    return _Answer(0, b"no complete answer in time")
            return _Answer(response.status_code, bytes(content), _pause_s(response.headers.get("retry-after", "")))
    except Exception as error:  # of several libraries: a name, a certificate, a proxy, broken chunks
        return _Answer(0, (str(error) or type(error).__name__).encode())


def _pause_s(retry_after: str) -> float | None:
    """Return the seconds that a Retry-After asks for; None where it says none."""
    return min(float(retry_after), MAX_PAUSE_S) if retry_after.isascii() and retry_after.isdigit() else None


def _read_key(variable: str | None) -> str:
    return os.environ.get(variable, "").strip() if variable else ""


def _split_url(url: str) -> Any:
    """Return the parts of an address after checking that it can be asked, and holds no secret."""
    try:
        parts = urlsplit(url if isinstance(url, str) and url.isprintable() and " " not in url else "")
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        names = [name for name, _ in parse_qsl(parts.query)]
    except ValueError:  # a port or an IPv6 address that is none
        is_usable = False
    if not is_usable:
        shown = (
            "invalid" if isinstance(url, str) and {"@", "?"} & set(url) else f"{url!r:.80}"
        )  # there may be a key in it
        raise InputError(f"the url is {shown}; give one such as 'http://localhost:8000/v1'")
    if "@" in parts.netloc or any(map(_SECRET_FIELD.search, names)):
        raise InputError("the url holds a name, password or key; put the key into an environment variable: key='NAME'")
    return parts


def _check_roles(roles: Any) -> dict[str, dict[str, Any]]:
    """Return the fields of requests by role."""
    if roles is not None and not isinstance(roles, Mapping):
        raise InputError(f"roles are {type(roles).__name__}; give a dict: {{'query': {{'input_type': 'query'}}}}")
    if unknown := set(roles or {}) - {"query", "document"}:
        raise InputError(f"roles name {shown(min(map(str, unknown)))}; there are 'query' and 'document'")
    for role, fields in (roles or {}).items():
        if not isinstance(fields, Mapping) or {"input", "model"} & set(fields):
            raise InputError(
                f"the fields of role {shown(role)} are {shown(fields)}; give a dict without 'input' and 'model'"
            )
        try:
            json.dumps(dict(fields), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"the fields of role {shown(role)} cannot be written as JSON: {error}") from None
    return {role: dict(fields) for role, fields in (roles or {}).items()}
