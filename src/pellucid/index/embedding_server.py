"""A model on a server with OpenAI's API: texts go to POST {url}/embeddings, and vectors come back.

It can be a model of an index, or the encoder of anchors. No folder contacts a server by itself: an index with such a
part gets it again at each opening.

A server may do anything: stall, send a byte a second, break off, answer something else, quote the key. The requests of
a batch run in a thread of their own, which the caller leaves when the time is over, and come back as an `_Answer` or a
`_Failure`. So the errors raised here are made of text alone, and no frame of their tracebacks holds the key.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import cache
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import numpy as np

from pellucid.core.arrays import Role
from pellucid.core.embedder import Vectors
from pellucid.errors import VERSION, EngineError, InputError, check_integer, check_number, require, shown, warn
from pellucid.text.inputs import check_texts
from pellucid.text.unicode import well_formed

MAX_TRIES = 3
RETRY_STATUSES = (408, 429, 500, 502, 503, 504)
MAX_TIMEOUT_S = 1e6
MAX_PAUSE_S = 20.0  # a server may ask for more in Retry-After
MAX_ANSWER_BYTES = 256 << 20
MAX_ANSWER_BYTES_PER_TEXT = 1 << 20  # 30,000 numbers, written out in full
MAX_ERROR_BYTES = 1 << 16
MAX_ERROR_S = 2.0  # for the text of an error, whose status is enough
MAX_QUOTE_CHARS = 300
MAX_NAME_CHARS = 100
_THREAD_GRACE_S = 0.5  # for a cancelled request to end
_KEY_PIECE_CHARS = 8  # as much of the key is hidden in a quotation
_SECRET_FIELD = re.compile(r"(^|[_.-])(api-?)?(key|token|secret|password|signature|sig)$", re.IGNORECASE)
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HTML = re.compile(r"\s*<(!doctype|html|head|body|\?xml)", re.IGNORECASE)
_HTML_TAG = re.compile(r"<[^<>]*>")


class _Answer(NamedTuple):
    """What a server sent."""

    status: int
    body: bytes
    retry_after: str = ""


class _Failure(NamedTuple):
    """Why there are no vectors, and whether a later try may have them."""

    message: str
    is_temporary: bool = False
    pause_s: float | None = None  # that the server asks for


class _InvalidAnswer(ValueError):
    """The body of an answer is no list of embeddings; the message says what is wrong."""


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
        self._answer_model = ""  # as answers name it
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
        self._check_key()
        fields = {"model": self.model, "input": texts, "encoding_format": "float", **self._roles.get(role or "", {})}
        if self.dimension is not None:
            fields.setdefault("dimensions", self.dimension)
        request, end, message = json.dumps(fields).encode(), time.monotonic() + self.timeout, ""
        for attempt in range(MAX_TRIES):
            outcome = self._try(request, len(texts), end - time.monotonic())
            if not isinstance(outcome, _Failure):
                return outcome
            message = f"{self.address} {outcome.message}"
            if not outcome.is_temporary or attempt == MAX_TRIES - 1:
                break
            pause_s = 0.5 * 2**attempt if outcome.pause_s is None else outcome.pause_s
            if pause_s >= end - time.monotonic():
                message += f"; another try in {pause_s:g} s is beyond the timeout of {self.timeout:g} s"
                break
            time.sleep(pause_s)
        raise EngineError(message)

    def _try(self, request: bytes, n_texts: int, seconds: float) -> Vectors | _Failure:
        """Ask once, and return the vectors or why there are none."""
        max_bytes = min(MAX_ANSWER_BYTES, (n_texts + 1) * MAX_ANSWER_BYTES_PER_TEXT)
        answer = self._send(request, max_bytes, seconds)
        if isinstance(answer, _Failure):
            return answer._replace(message=self._without_key(answer.message))
        if not 200 <= answer.status < 300:
            message = f"answered {answer.status}: {self._quote(answer.body)}{self._hint(answer.status)}"
            return _Failure(message, answer.status in RETRY_STATUSES, _pause_s(answer.retry_after))
        try:
            vectors, answer_model = _parse(answer.body, n_texts)
        except _InvalidAnswer as error:
            return _Failure(f"answered {error}: {self._quote(answer.body)}")
        width = self.dimension or self._width or vectors.shape[1]
        if vectors.shape[1] != width:
            return _Failure(f"gives {vectors.shape[1]} dimensions, and {width} are expected")
        self._width = width
        return self._check_model(answer_model) or vectors

    def _send(self, request: bytes, max_bytes: int, seconds: float) -> _Answer | _Failure:
        """Post a request from a thread of its own, whose event loop ends it in time whatever the server does."""
        import asyncio

        outcomes: SimpleQueue[_Answer | _Failure] = SimpleQueue()
        late = _Failure(f"cannot be reached in time: no complete answer within {self.timeout:g} seconds")

        async def exchange() -> None:
            post = _post(self._endpoint, request, self._key, max_bytes, error_s=min(MAX_ERROR_S, seconds / 2))
            try:
                outcomes.put(await asyncio.wait_for(post, seconds))
            except (asyncio.TimeoutError, TimeoutError):
                outcomes.put(late)
            except _InvalidAnswer as error:
                outcomes.put(_Failure(f"answered {error}"))
            except Exception as error:  # of several libraries: a name, a certificate, a proxy, broken chunks
                outcomes.put(_Failure(f"cannot be reached: {str(error) or type(error).__name__}", is_temporary=True))

        Thread(target=lambda: asyncio.run(exchange()), daemon=True, name="pellucid-embedding-server").start()
        try:
            return outcomes.get(timeout=max(seconds, 0.0) + _THREAD_GRACE_S)
        except Empty:  # such as a look-up of the host's name, which cannot be cancelled
            return late

    def _check_key(self) -> None:
        """Check that a header can hold the key: errors of HTTP libraries would quote it, and so would a frame."""
        if not _read_key(self._key).isascii() or not _read_key(self._key).isprintable():
            raise InputError(f"the environment variable {self._key} holds what no HTTP header can; set it again")

    def _check_model(self, answer_model: str) -> _Failure | None:
        """Note which model answers: return a failure if another one did before, warn of a name that was not asked."""
        name, before = self._without_key(answer_model)[:MAX_NAME_CHARS], self._answer_model
        self._answer_model = name or before
        if before and before != self._answer_model:
            return _Failure(f"answered as model {name!r}, and before as {before!r}; vectors of two models differ")
        answered, requested = (text.casefold().rpartition("/")[2] for text in (name, self.model))
        if not before and answered not in requested and requested not in answered:
            warn(f"{self.address} answered as model {name!r}; check the name")
        return None

    def _hint(self, status: int) -> str:
        if status in (401, 403):
            if self._key and _read_key(self._key):
                return f" (the key is taken from the environment variable {self._key})"
            named = f" {self._key}" if self._key and self._key.isupper() else ""  # else it may be the key, by mistake
            return f" (no key was sent: the environment variable{named} that key= names is not set)"
        return " (redirects are not followed; give the address that it leads to)" if 300 <= status < 400 else ""

    def _quote(self, body: bytes) -> str:
        """Return the beginning of what a server said, in one line: an error's message, or the text of a page."""
        text = body[:MAX_ERROR_BYTES].decode("utf-8", "replace")
        if _HTML.match(text):
            text = "(an HTML page) " + _HTML_TAG.sub(" ", text)
        else:
            with suppress(ValueError, RecursionError):
                text = _error_message(json.loads(text)) or text
        line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
        return self._without_key(line)[:MAX_QUOTE_CHARS] or "(nothing)"

    def _without_key(self, text: str) -> str:
        """Return a text in which no piece of the key is left."""
        key = _read_key(self._key)
        size = min(_KEY_PIECE_CHARS, len(key))
        pieces = {key[start : start + size] for start in range(len(key) - size + 1)} if key else set()
        is_secret = np.zeros(len(text) + 1, np.bool_)
        for start in range(len(text) - size + 1):
            if text[start : start + size] in pieces:
                is_secret[start : start + size] = True
        starts = is_secret & ~np.concatenate([[False], is_secret[:-1]])
        return "".join("..." if first else "" if secret else c for c, secret, first in zip(text, is_secret, starts))


async def _post(url: str, body: bytes, key_variable: str | None, max_bytes: int, *, error_s: float) -> _Answer:
    """Post a body, and return the answer; of an error what comes within `error_s` seconds."""
    import asyncio

    import httpx2

    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"pellucid/{VERSION}",
        "Accept-Encoding": "gzip",
        "Connection": "close",
    }
    if key := _read_key(key_variable):
        headers["Authorization"] = f"Bearer {key}"
    client = httpx2.AsyncClient(timeout=None, follow_redirects=False, verify=_tls_context())
    async with client, client.stream("POST", url, content=body, headers=headers) as response:
        is_error = not 200 <= response.status_code < 300
        if "," in (encoding := response.headers.get("content-encoding", "")):  # a small body may be large at each step
            raise _InvalidAnswer(f"in the encoding {encoding!r:.60}, which is not asked for")
        content = bytearray()

        async def read() -> None:
            async for chunk in response.aiter_bytes():
                content.extend(chunk)
                if is_error and len(content) > MAX_ERROR_BYTES:
                    return
                if len(content) > max_bytes:
                    raise _InvalidAnswer(f"longer than {max_bytes >> 20} MB; take a smaller batch_size")

        if not is_error:
            await read()
        else:
            with suppress(httpx2.HTTPError, asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(read(), error_s)
        return _Answer(response.status_code, bytes(content), response.headers.get("retry-after", ""))


@cache
def _tls_context() -> Any:
    """Return the certificates of this machine, whose reading takes a tenth of a second."""
    import httpx2

    return httpx2.create_ssl_context()


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


def _pause_s(retry_after: str) -> float | None:
    """Return the seconds that a Retry-After asks for, a number or a date; None where it says nothing usable."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError, IndexError, OSError):
            return None
        seconds = seconds if seconds > 0 else math.nan  # a date that has passed
    return min(seconds, MAX_PAUSE_S) if seconds >= 0 else None  # not for NaN


def _parse(body: bytes, n_texts: int) -> tuple[Vectors, str]:
    """Return the vectors that an answer holds, float32 [texts, d] in the order of the texts, and its model's name."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise _InvalidAnswer("no JSON; is the url right, without '/embeddings'?") from None
    items = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) and "embedding" in item for item in items):
        raise _InvalidAnswer("with an error" if _error_message(answer) else "no list of embeddings")
    if len(items) != n_texts:
        raise _InvalidAnswer(f"{len(items)} embeddings for {n_texts} texts")
    numbers = [item["index"] for item in items if "index" in item] or list(range(n_texts))
    if set(map(type, numbers)) != {int} or sorted(numbers) != list(range(n_texts)):  # True is no number here
        raise _InvalidAnswer(f"embeddings whose 'index' are not the numbers from 0 to {n_texts - 1}, each once")
    rows = [_vector(item["embedding"], number) for number, item in zip(numbers, items)]
    if len(widths := {len(row) for row in rows}) > 1 or 0 in widths:
        raise _InvalidAnswer(f"embeddings of {min(widths)} to {max(widths)} dimensions")
    model = answer.get("model")
    return np.stack([row for _, row in sorted(zip(numbers, rows), key=lambda item: item[0])]), (
        model if isinstance(model, str) else ""
    )


def _vector(embedding: Any, number: int) -> Vectors:
    """Return one embedding, a list of numbers or the base64 of little-endian float32, as float32 [d]."""
    if isinstance(embedding, str):
        try:
            row = np.frombuffer(base64.b64decode(embedding, validate=True), "<f4").astype(np.float32)
        except ValueError:
            raise _InvalidAnswer(f"embedding {number} that is no base64 of float32 numbers") from None
    elif isinstance(embedding, list) and {*map(type, embedding)} <= {int, float}:
        try:
            with np.errstate(over="ignore"):
                row = np.array(embedding, np.float64).astype(np.float32)
        except OverflowError:
            row = np.full(1, np.inf, np.float32)
    else:
        raise _InvalidAnswer(f"embedding {number} that is no list of numbers")
    if not np.isfinite(row).all():
        raise _InvalidAnswer(f"embedding {number} with NaN, infinity or a number beyond float32")
    return row


def _error_message(answer: Any) -> str:
    """Return the message of an object that says that something went wrong; "" for any other."""
    for _ in range(2):  # {"error": {"message": "..."}}
        if isinstance(answer, dict):
            answer = next((answer[field] for field in ("error", "message", "detail") if answer.get(field)), "")
    return answer if isinstance(answer, str) else ""
