"""What the server answers is bounded in rows, bytes and memory, and odd requests are refused, never a failure."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the server needs pellucid[serve]")

import pellucid
from pellucid.explain.explanation import Explanation
from pellucid.server import ServerSettings, bounds, create_app
from pellucid.server.app import forget_dead_workers
from pellucid.static.embedder import StaticEmbedder
from serving import ask, running, started


@pytest.fixture(scope="module")
def words(static: StaticEmbedder) -> list[str]:
    """Short words with a vector each."""
    known = (word for word in static.vocabulary.words if word.isascii() and word.isalpha() and 3 <= len(word) <= 5)
    return [word for word, _ in zip(known, range(4000))]


@pytest.fixture(scope="module")
def url(static: StaticEmbedder, words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("Stemmer")
    folder = tmp_path_factory.mktemp("bounds") / "index"
    texts = [" ".join(words[start : start + 600]) for start in range(0, 3000, 300)]
    with pellucid.Index.create(folder, {"a": static}) as index:
        index.add(texts, ids=[str(number) for number in range(len(texts))], metadata=[{"n": 1, "s": "x"}] * len(texts))
    save_to = str(folder.parent / "models")
    with running({"static-en": static}, index=str(folder), save_to=save_to, max_body_bytes=1 << 20) as at:
        yield at


def check_sum(found: Any) -> None:
    """The rows of an answer and its remainder add up to its score, and the library reads it."""
    total = sum(row["contribution"] for row in found["rows"]) + found["remainder"]
    assert total == pytest.approx(found["score"], abs=1e-6) and abs(found["remainder"]) < 1e-5
    assert Explanation.from_dict({key: value for key, value in found.items() if key != "notes"}).to_text()


@pytest.mark.full
@pytest.mark.parametrize("notes", [True, False])
def test_rows_beyond_the_limit_are_one_row(url: str, static: StaticEmbedder, words: list[str], *, notes: bool) -> None:
    texts = {"text1": " ".join(words[:300]), "text2": " ".join(words[200:500])}
    status, found = ask(url, "/explain", {**texts, "notes": notes})
    whole = static.explain(*texts.values())
    assert status == 200 and len(found["rows"]) == bounds.MAX_ROWS + 1 < len(whole.rows)
    assert [row["name"] for row in found["rows"][:-1]] == [row.name for row in whole.rows[: bounds.MAX_ROWS]]
    last = found["rows"][-1]
    assert last["kind"] == "rest" and last["name"] == f"the sum of {len(whole.rows) - bounds.MAX_ROWS:,} smaller rows"
    assert last["contribution"] == pytest.approx(whole.contributions[bounds.MAX_ROWS :].sum(), abs=1e-9)
    check_sum(found)
    assert ("notes" in found) == notes


@pytest.mark.full
def test_why_is_bounded_alike(url: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    query = " ".join(words[:100])
    status, found = ask(url, "/why", {"query": query, "id": "1"})
    assert status == 200 and len(found["rows"]) == bounds.MAX_ROWS + 1
    check_sum(found)
    monkeypatch.setattr(bounds, "_MAX_SUBTRACTED_ROWS", 200_000)
    status, found = ask(url, "/why", {"query": query, "id": "1", "below": "2"})
    assert status == 200 and len(found["rows"]) == bounds.MAX_ROWS + 1
    check_sum(found)


def test_differences_of_too_many_rows_are_refused(url: str, words: list[str]) -> None:
    texts = {f"text{number + 1}": " ".join(words[400 * number : 400 * number + 400]) for number in range(3)}
    for path, body in (("/explain", texts), ("/why", {"query": texts["text1"], "id": "1", "below": "2"})):
        status, error = ask(url, path, body)
        assert status == 422 and "at most 100,000 are subtracted" in error["error"], path


@pytest.mark.full
@pytest.mark.parametrize("count", [300, 1000, 1650])
def test_few_words_that_stand_often_are_explained_in_bounded_memory(static: StaticEmbedder, count: int) -> None:
    """Their places make millions of pairs, though there are few rows."""
    explanation = static.explain("ab " * count, "cd " * (count - 3))
    tracemalloc.start()
    found = bounds.explained(explanation, notes=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150 << 20 and sum(group["contribution"] for group in found["groups"]) == pytest.approx(found["score"])


def test_pairs_are_counted_before_they_are_made(
    url: str, words: list[str], static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = {"query": " ".join(words[:500])}
    status, error = ask(url, "/search", {**query, "top_k": 100})
    assert status == 200
    monkeypatch.setattr(bounds, "_MAX_WORD_PAIRS", 100_000)
    for path, body in (("/search", query), ("/why", {**query, "id": "1"})):
        status, error = ask(url, path, body)
        assert status == 422 and "at most 100,000 are read" in error["error"], path
    for text in (
        " ".join(words),
        "a",
        "",
        "日本語の文章です。" * 50,
        "Ünï-ködé… “quoted” — dash",
        "ไทย ไทย",
        "naïve x" * 9,
    ):
        assert len(static.text_words(text).rows) <= bounds._max_words(text) or not text


def test_bytes_beyond_the_limit(url: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"text1": " ".join(words[:100]), "text2": " ".join(words[:100])}
    for home in ("bounds", "bodies"):
        monkeypatch.setattr(f"pellucid.server.{home}.MAX_ANSWER_BYTES", 20_000)
    status, found = ask(url, "/explain", texts)
    assert status == 200 and 10 < len(found["rows"]) < 100 and found["rows"][-1]["kind"] == "rest"
    check_sum(found)
    for path, body in (
        ("/search", {"query": texts["text1"], "rows": 1000}),
        ("/search", {"query": texts["text1"]}),
        ("/embed", {"inputs": words[:200]}),
        ("/dimensions?limit=1000", None),
    ):
        status, error = ask(url, path, body)
        assert status == 422 and "20,000" in error["error"], (path, status, error)
    status, error = ask(url, "/v1/embeddings", {"input": words[:200], "model": "static-en"})
    assert status == 400 and "20,000" in error["error"]["message"]
    assert ask(url, "/embed", {"inputs": "a"})[0] == 200


def test_sparse_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    lexicon = pellucid.load("lexicon-en")
    with running({"lexicon-en": lexicon}) as url:
        texts = ["a loan for a house", "rates", ""]
        status, found = ask(url, "/embed_sparse", {"inputs": texts})
        rows = np.zeros((3, lexicon.get_embedding_dimension()), np.float32)
        for number, entries in enumerate(found):
            for entry in entries:
                rows[number, entry["index"]] = entry["value"]
        assert status == 200
        np.testing.assert_array_equal(rows, lexicon.encode(texts).toarray())
        monkeypatch.setattr(bounds, "MAX_ANSWER_BYTES", 20_000)
        status, error = ask(url, "/embed_sparse", {"inputs": texts * 100})
        assert status == 422 and "20,000 bytes" in error["error"]


@pytest.mark.full
def test_memory_is_bounded(words: list[str], tmp_path: Path, port: int) -> None:
    """Big passages, long queries and many rows, from several clients at once."""
    pytest.importorskip("Stemmer")
    every = pellucid.load("static-multi").vocabulary.words
    unspaced = "".join(word for word in every if len(word) == 1 and word >= "一")[:5000]
    with pellucid.Index.create(tmp_path / "index", ["static-en", "static-multi"], passage_characters=200_000) as index:
        texts = [" ".join(words[start:] + words[:start]) for start in range(0, 4000, 100)]
        index.add([f"{text} {unspaced}" for text in texts], ids=[str(number) for number in range(40)])
    (tmp_path / "0").write_text(unspaced)
    models = ["-m", "static-en", "-m", "static-multi"]
    command = [sys.executable, "-m", "pellucid", "serve", *models, "--port", str(port), "--timeout", "300"]
    long, chinese, mixed = " ".join(words)[:9900], unspaced[:4900], " ".join(words)[:4900]
    requests: list[tuple[str, Any]] = [
        *(("/why", {"query": query, "id": "1"}) for query in (long, chinese, "bank", " ".join(words[:40]))),
        *(("/search", {"query": query, "top_k": 100, "rows": 1000}) for query in (long, chinese, "bank")),
        *(("/search", {"query": " ".join(words[:n]), "top_k": 40, "rows": 1000}) for n in (10, 40, 200)),
        *(("/explain", {"text1": a, "text2": b, "model": "static-multi"}) for a, b in [(mixed, mixed)]),
        ("/explain", {"text1": chinese, "text2": chinese, "model": "static-multi", "notes": True}),
        *(("/explain", {"text1": "a " * n + mixed[:n], "text2": mixed[:2000], "notes": True}) for n in (500, 1500)),
        ("/explain", {f"text{n}": mixed[:1500] for n in (1, 2, 3)}),
    ]
    with started([*command, "--index", str(tmp_path / "index")], port, {}) as (process, url):
        for text in (long, chinese):
            ask(url, "/embed", {"inputs": [text] * 100})
        before = _memory(process.pid, "VmRSS")
        statuses, sizes = [], []

        def client(start: int) -> None:
            for path, body in requests[start:] + requests[:start]:
                status, found = ask(url, path, body)
                statuses.append(status)
                sizes.append(len(json.dumps(found, ensure_ascii=False)))

        crowd = [threading.Thread(target=client, args=(7 * number,)) for number in range(2)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join()
        grown = _memory(process.pid, "VmHWM") - before
    assert set(statuses) <= {200, 422} and {200, 422} <= set(statuses) and len(statuses) == 2 * len(requests)
    assert max(sizes) < 64 << 20 and grown < 700 << 20, (max(sizes), grown >> 20)


def _memory(pid: int, name: str) -> int:
    """Return bytes of a process."""
    return 1024 * int(re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


@pytest.mark.parametrize(
    "texts",
    [
        [""] * 10,
        *(pytest.param(texts, marks=pytest.mark.full) for texts in (["a loan"] * 50, ["", " ", "zzqx"] * 4)),
        pytest.param([""] * 20 + ["dog"], marks=pytest.mark.full),
    ],
)
def test_texts_without_a_difference_are_a_map(texts: list[str], tmp_path: Path) -> None:
    """In a process of its own: t-SNE of rows that are all the same used to end it."""
    script = "import json, sys, pellucid; from pellucid.server.corpus_map import corpus_map as m; import numpy as np; "
    script += (
        "found = m(pellucid.load('static-en'), json.loads(sys.argv[1]), 5); assert np.isfinite(found.points).all()"
    )
    command = [sys.executable, "-W", "ignore", "-c", script, json.dumps(texts)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run(command, check=True, env=environment, cwd=tmp_path, timeout=120)


def test_the_schema_says_what_is_checked(fruit: StaticEmbedder) -> None:
    schema = create_app(ServerSettings(token="t"), {"fruit": fruit}).openapi()
    assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert schema["paths"]["/embed"]["post"]["security"] == [{"token": []}]
    assert schema["paths"]["/health"]["get"]["security"] == []
    assert create_app(models={"fruit": fruit}).openapi()["paths"]["/embed"]["post"]["security"] == []
    for path, item in schema["paths"].items():
        for operation in item.values():
            assert not path.startswith("/v1/") or "422" not in operation["responses"]
    shapes = schema["components"]["schemas"]
    weights = shapes["WhyRequest"]["properties"]["weights"]["anyOf"][0]
    assert weights["maxProperties"] == 100 and weights["additionalProperties"] == {
        "type": "number", "minimum": 0, "maximum": 1e6
    }  # fmt: skip
    texts = shapes["MapRequest"]["properties"]["texts"]["anyOf"][0]
    assert (texts["minItems"], texts["maxItems"]) == (10, 5000)
    assert shapes["EmbedRequest"]["properties"]["dimensions"]["anyOf"][0] == {"type": "integer", "minimum": 1}


def test_it_is_ready_once_nothing_is_left_to_compile(fruit: StaticEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile it answers, also for its health."""
    gate, warmed = threading.Event(), threading.Event()

    def slow(model: Any) -> None:
        gate.wait(20)
        warmed.set()

    monkeypatch.setattr("pellucid.server.service.warm_up", slow)
    app_ready = threading.Event()

    def serve() -> None:
        with running({"fruit": fruit}):
            app_ready.set()

    made: list[Any] = []
    create = create_app
    monkeypatch.setattr("serving.create_app", lambda *args: made.append(create(*args)) or made[0])
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        while not made or not made[0].state.service._batchers:
            time.sleep(0.01)
        service = made[0].state.service
        assert not service.is_ready and not service._batchers["fruit"].is_warm and not app_ready.is_set()
        gate.set()
        assert app_ready.wait(20) and warmed.is_set() and service._batchers["fruit"].is_warm
    finally:
        gate.set()
        thread.join(20)


@pytest.mark.full
def test_health_answers_while_everything_is_imported(port: int) -> None:
    command = [sys.executable, "-m", "pellucid", "serve", "--port", str(port)]
    texts = [f"a loan for house {number}, zzqx Ünï" for number in range(2000)]
    with started(command, port, {}, wait_for="/health") as (_, url):
        assert ask(url, "/ready")[0] in (200, 503)  # a machine that has read the files before may be ready at once
        encoded: list[int] = []

        def encode() -> None:
            for inputs in ("a", texts[:10], texts, "zzqx Ünï"):
                encoded.append(ask(url, "/embed", {"inputs": inputs})[0])
            encoded.append(ask(url, "/explain", {"text1": "a loan", "text2": "zzqx"})[0])

        client = threading.Thread(target=encode)
        start = time.perf_counter()
        client.start()
        waited = []
        while ask(url, "/ready")[0] == 503 or client.is_alive():
            began = time.perf_counter()
            assert ask(url, "/health")[0] == 200
            waited.append(time.perf_counter() - began)
            time.sleep(0.01)
        client.join()
        whole = time.perf_counter() - start
        assert encoded == [200] * 5
        # A loop that waits for the imports or for a batch stands still for most of the time, on any machine.
        assert max(waited) < max(2.0, whole / 2), (whole, sorted(waited)[-9:])


@pytest.mark.full
def test_workers_end_and_are_replaced(port: int) -> None:
    command = [sys.executable, "-m", "pellucid", "serve", "--port", str(port), "--workers", "2"]
    with started(command, port, {}) as (process, url):
        first = _wait(lambda: _workers(process.pid), 2)
        with socket.create_connection(("127.0.0.1", port)) as held:
            held.sendall(b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
            _wait(lambda: [n for n in (_metric(url),) if n == 2], 1)  # this request and the question
            for worker in first:  # which of them has it is not known
                os.kill(worker, signal.SIGKILL)
        second = _wait(lambda: _workers(process.pid) - first, 2)
        for _ in range(100):
            status = 0
            try:
                status = ask(url, "/embed", {"inputs": "a"})[0]
            except OSError:
                time.sleep(0.1)
        assert status == 200
        _wait(lambda: [n for n in (_metric(url),) if n == 1], 1)  # what the dead ones had in work is gone
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        assert not any(Path(f"/proc/{pid}").exists() for pid in first | second)


def test_what_is_no_workers_file_stays_and_breaks_nothing(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    own, dead = os.getpid(), child.pid
    for name in ("abc", "", "9" * 20, f"{own}", f"{dead}"):
        (tmp_path / f"gauge_livesum_{name}.db").touch()
    (tmp_path / f"gauge_liveall_{dead}.db").mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    forget_dead_workers(tmp_path)
    assert before - {path.name for path in tmp_path.iterdir()} == {f"gauge_livesum_{dead}.db"}


def _metric(url: str) -> float:
    return float(re.search(r"^pellucid_requests_running (\S+)", ask(url, "/metrics")[1], re.M)[1])


def _workers(parent: int) -> set[int]:
    """Return the process ids of the workers."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return {int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def _wait(look: Any, count: int) -> Any:
    for _ in range(300):
        found = look()
        if len(found) == count:
            return found
        time.sleep(0.1)
    raise AssertionError(found)


@pytest.mark.full
def test_workers_share_an_index(port: int, tmp_path: Path) -> None:
    pytest.importorskip("Stemmer")
    import inspect

    if "read_only" not in inspect.signature(pellucid.Index.open).parameters:
        pytest.skip("an index is open in one process yet")
    with pellucid.Index.create(tmp_path / "index") as index:
        index.add(["mortgage rates are rising", "a dog in the park"], ids=["a", "b"])
    command = [sys.executable, "-m", "pellucid", "serve", "--port", str(port), "--workers", "2"]
    with started([*command, "--index", str(tmp_path / "index")], port, {}) as (process, url):
        found = {ask(url, "/search", {"query": "park"})[1]["hits"][0]["id"] for _ in range(20)}
        assert found == {"b"}
        assert ask(url, "/index", {"weights": {"bm25": 1}})[0] == 403
        with pellucid.Index.open(tmp_path / "index") as index:
            index.add(["a park with old trees"], ids=["c"])
        answers = _wait(lambda: {ask(url, "/index")[1]["documents"] for _ in range(20)} & {3}, 1)
        assert answers == {3}
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def test_an_index_for_reading_is_not_configured(tmp_path: Path, static: StaticEmbedder, monkeypatch: Any) -> None:
    pytest.importorskip("Stemmer")
    with pellucid.Index.create(tmp_path / "index") as index:
        index.add(["mortgage rates are rising"], ids=["a"])
    given: list[Any] = []
    opened = pellucid.Index.open
    monkeypatch.setattr(pellucid.Index, "open", lambda path, **options: given.append(options) or opened(path))
    settings = {"index": str(tmp_path / "index"), "save_to": str(tmp_path / "models"), "read_only": True}
    with running({"static-en": static}, **settings) as url:
        status, error = ask(url, "/index", {"weights": {"bm25": 1}})
        assert given == [{"read_only": True}] and status == 403 and "only for reading" in error["error"]
