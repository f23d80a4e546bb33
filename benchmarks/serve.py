"""The server under load, beside a plain FastAPI server around model2vec with the same table, in one run.

    python -m benchmarks.serve                 # requests a second and latencies; needs wrk (apt-get install wrk)
    python -m benchmarks.serve --soak 600      # ten minutes of clients that mean no good
    python -m benchmarks.serve --write         # either of them: what is printed goes into benchmarks/serve.md too

infinity-emb is no server of this table: its version 0.0.78 opens transformers alone ('StaticEmbedding' object has no
attribute 'auto_model').

Each server runs in a process of its own with one thread for numbers. `wrk` is the client: it keeps 1, 16 or 64
connections busy with requests of 1 or 64 texts. Before, a client of ours sends other texts in every request and checks
each row against the library.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1, unless_set=True)

import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from http.client import HTTPConnection
from pathlib import Path
from random import Random

import numpy as np
import orjson

import pellucid
from papers.kit import make_parser, processor, write_block

WORDS = "the bank raised interest rates on home loans and mortgage costs for young families in many large towns".split()

PLAIN = """
import sys, uvicorn
from fastapi import FastAPI
from model2vec import StaticModel
from pydantic import BaseModel
model = StaticModel.from_pretrained(sys.argv[1])
app = FastAPI()
class Body(BaseModel):
    input: list[str]
    model: str
@app.post("/v1/embeddings")
def embeddings(body: Body):
    rows = model.encode(body.input)
    data = [{"object": "embedding", "index": i, "embedding": row.tolist()} for i, row in enumerate(rows)]
    return {"object": "list", "data": data, "model": body.model}
uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
"""

LEAN = (
    PLAIN.replace("from pydantic", "import orjson\nfrom starlette.responses import Response\nfrom pydantic")
    .replace("row.tolist()", "row")
    .replace("    return {", "    return Response(orjson.dumps({")
    .replace("body.model}", "body.model}, option=orjson.OPT_SERIALIZE_NUMPY), media_type='application/json')")
)


@contextmanager
def server(command: list[str]) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Run a server; its last argument is to be the port. Yield the port and the process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([*command, str(port)])
    try:
        for _ in range(600):
            try:
                post(port, ["ready"])
                break
            except OSError:
                time.sleep(0.1)
        yield port, process
    finally:
        process.terminate()
        process.wait(30)


def post(port: int, texts: list[str], encoding: str = "float") -> list[list[float]]:
    """Return the rows of texts."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    body = orjson.dumps({"model": "static-en", "input": texts, "encoding_format": encoding})
    connection.request("POST", "/v1/embeddings", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    found = orjson.loads(answer.read())
    connection.close()
    if answer.status != 200:
        raise OSError(found)
    return [row["embedding"] for row in found["data"]]


def texts_of(random: Random, count: int) -> list[str]:
    """Return texts of 8 to 24 words."""
    return [" ".join(random.choices(WORDS, k=random.randint(8, 24))) for _ in range(count)]


def check(port: int, rounds: int = 40) -> int:
    """Send different texts from 16 threads at once; return how many rows were compared, all of them right."""
    model = pellucid.load("static-en")
    compared, wrong = [], []

    def client(seed: int) -> None:
        random = Random(seed)
        for _ in range(rounds):
            texts = texts_of(random, random.choice((1, 64)))
            rows = np.array(post(port, texts), np.float32)
            (compared if np.allclose(rows, model.encode(texts), atol=1e-5) else wrong).append(len(texts))

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong or not compared:
        raise SystemExit(f"{len(wrong)} answers were not those of their texts")
    return sum(compared)


def load(port: int, connections: int, body: bytes, seconds: int, script: Path) -> tuple[float, float, float]:
    """Return requests a second, and the median and the 99th percentile of the latency in milliseconds, from wrk."""
    headers = 'wrk.method = "POST"\nwrk.headers["content-type"] = "application/json"\n'
    script.write_text(f"{headers}wrk.body = [==[{body.decode()}]==]\n")
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "--latency", "-s", str(script)]
    address = f"http://127.0.0.1:{port}/v1/embeddings"
    said = subprocess.run([*command, address], capture_output=True, text=True).stdout
    if "Non-2xx" in said:
        raise SystemExit(said)
    found = [re.search(what, said) for what in (r"Requests/sec: +(\S+)", r" 50% +(\S+)", r" 99% +(\S+)")]
    rate, half, most = (match[1] if match else "0ms" for match in found)
    return float(rate), _milliseconds(half), _milliseconds(most)


def _milliseconds(text: str) -> float:
    number, unit = re.findall(r"([\d.]+)(us|ms|s|m)", text)[0]
    return float(number) * {"us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4}[unit]


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def private_megabytes(pid: int) -> float:
    """Return the memory that a process and its children share with nobody."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    own = sum(int(number) for number in re.findall(r"Private_\w+: +(\d+)", rollup)) / 1024
    return own + sum(private_megabytes(int(child)) for child in children)


def table(seconds: int) -> str:
    """Print the table of servers, and return it."""
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        pellucid.load("static-en").save_pretrained(folder / "model")  # model2vec opens it
        (folder / "plain.py").write_text(PLAIN)
        (folder / "lean.py").write_text(LEAN)
        servers = {
            "pellucid serve": [sys.executable, "-m", "pellucid", "serve", "--port"],
            "pellucid serve, base64": [sys.executable, "-m", "pellucid", "serve", "--port"],
            "model2vec, plain FastAPI": [sys.executable, str(folder / "plain.py"), str(folder / "model")],
            "model2vec, FastAPI with orjson": [sys.executable, str(folder / "lean.py"), str(folder / "model")],
        }
        say("| server | texts | connections | requests/s | a second of its processor | p50 ms | p99 ms |")
        say("|---|---:|---:|---:|---:|---:|---:|")
        notes = []
        for name, command in servers.items():
            encoding = "base64" if "base64" in name else "float"
            with server(command) as (port, process):
                rows = check(port)
                for texts in (1, 64):
                    sent = {"model": "static-en", "input": texts_of(Random(0), texts), "encoding_format": encoding}
                    for connections in (1, 16, 64):
                        before = processor_seconds(process.pid)
                        rate, half, most = load(port, connections, orjson.dumps(sent), seconds, folder / "post.lua")
                        own = rate * seconds / (processor_seconds(process.pid) - before)
                        what = f"{name} | {texts} | {connections}"
                        say(f"| {what} | {rate:,.0f} | {own:,.0f} | {half:.1f} | {most:.1f} |")
                notes.append(f"{name} {private_megabytes(process.pid):.0f} MB")
    about = f"{platform.machine()}, {os.cpu_count()} cores, {processor()}, {date.today()}, {seconds} s a line"
    say(f"\n{about}; {rows:,} rows of each server checked before.\nPrivate memory: {', '.join(notes)}.")
    return "\n".join(lines)


def soak(seconds: int) -> str:
    """Attack a server; print what became of it, and return it."""
    with server([sys.executable, "-m", "pellucid", "serve", "--port"]) as (port, process):
        model = pellucid.load("static-en")
        counts = dict.fromkeys(("right", "wrong", "failed", "hung up", "oversized", "malformed", "silent"), 0)
        ends = time.monotonic() + seconds
        before = private_megabytes(process.pid)

        def honest(random: Random) -> None:
            texts = texts_of(random, random.choice((1, 64)))
            try:
                rows = np.array(post(port, texts), np.float32)
                counts["right" if np.allclose(rows, model.encode(texts), atol=1e-5) else "wrong"] += 1
            except OSError:
                counts["failed"] += 1

        def hang_up(random: Random) -> None:
            body = orjson.dumps({"model": "static-en", "input": texts_of(random, 1000)})
            with socket.create_connection(("127.0.0.1", port)) as connection:
                head = "POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                head += f"content-length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body[: random.randint(0, len(body))])
            counts["hung up"] += 1

        def oversized(_: Random) -> None:
            try:
                connection = HTTPConnection("127.0.0.1", port, timeout=30)
                connection.request("POST", "/embed", b"a" * (17 << 20), {"content-type": "application/json"})
                connection.getresponse()
            except OSError:
                pass  # the server closes before it has read all of it
            counts["oversized"] += 1

        def malformed(random: Random) -> None:
            connection = HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("POST", "/v1/embeddings", random.randbytes(200), {"content-type": "application/json"})
            assert connection.getresponse().status in (400, 422)
            counts["malformed"] += 1

        def silent(_: Random) -> None:
            with socket.create_connection(("127.0.0.1", port)):
                time.sleep(1)
            counts["silent"] += 1

        def client(seed: int, kinds: list) -> None:  # type: ignore[type-arg]
            random = Random(seed)
            while time.monotonic() < ends:
                random.choice(kinds)(random)

        crowd = [[honest]] * 6 + [[hang_up, oversized, malformed, silent]] * 6
        threads = [threading.Thread(target=client, args=item) for item in enumerate(crowd)]
        for thread in threads:
            thread.start()
        time.sleep(seconds / 4)
        early = private_megabytes(process.pid)
        for thread in threads:
            thread.join()
        honest(Random(99))
        late = private_megabytes(process.pid)
        said = f"{seconds} s: " + ", ".join(f"{count:,} {name}" for name, count in counts.items())
        memory = f"{before:.0f} MB at the start, {early:.0f} MB after a quarter, {late:.0f} MB at the end"
        said += f".\nPrivate memory: {memory}."
        print(said)
        if counts["wrong"] or counts["failed"]:
            raise SystemExit("answers were lost or mixed")
        return said


if __name__ == "__main__":
    parser = make_parser(__doc__, write=Path(__file__).with_suffix(".md"))
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    parser.add_argument("--soak", type=int, default=0, help="seconds of attack, in place of the table")
    given = parser.parse_args()
    found = soak(given.soak) if given.soak else table(given.seconds)
    if given.write:
        write_block(given.write, f"benchmarks/serve.py {'soak' if given.soak else 'load'}", found)
