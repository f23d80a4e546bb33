"""How fast a corpus goes from Parquet to Parquet shards, beside model2vec with the same words and vectors.

    python -m benchmarks.encode_corpus                     1 million sentences
    python -m benchmarks.encode_corpus --texts 100000 --rounds 1

The sentences are those of raw_english, repeated where they do not suffice, in one Parquet file. pellucid encodes them
with 1 and 2 threads into shards; model2vec has no such command, so its row is the loop a person would write: record
batches read with pyarrow, `encode`, and a Parquet writer with the same settings. Each run is a process of its own and
writes to an empty folder; rounds are interleaved, medians are shown. Time is by the clock, from the call to the last
file on disk; processor seconds are the fairer figure where other programs share the machine. Opening and the imports
are in the peak memory, not in the time. Prints markdown.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import argparse
import json
import lzma
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import pellucid
from benchmarks.static_speed import machine, piece_tokenizer, word_tokenizer
from papers.kit import make_parser
from pellucid.text.words import split_words

_RUNS = ("pellucid, 1 thread", "pellucid, 2 threads", "model2vec, 1 thread", "model2vec, whole words, 1 thread")


def write_corpus(data: Path, path: Path, count: int) -> None:
    """Write `count` sentences as one Parquet file with pyarrow's own settings."""
    with lzma.open(data / "raw_english" / "open_licence.txt.xz", "rt", encoding="utf-8") as lines:
        sentences = [line.rstrip("\n") for line in islice(lines, count)]
    pq.write_table(pa.table({"text": list(islice(cycle(sentences), count))}), path)


def peer(whole_words: bool) -> Callable[[list[str]], Any]:
    """Return model2vec's `encode` with the words and vectors of static-en in float32."""
    from model2vec import StaticModel

    model = pellucid.StaticEmbedder.from_pretrained("static-en")
    words = model.vocabulary.words
    table = np.zeros((len(words) + 1, model.get_embedding_dimension()), np.float32)
    table[:-1] = model.word_vectors(np.arange(len(words)))
    for row, word in enumerate(words):
        if not split_words(word):
            table[row] = 0  # a punctuation mark, which we drop and model2vec does not
    tokenizer = word_tokenizer(words) if whole_words else piece_tokenizer(words)
    model2vec = StaticModel(table, tokenizer, normalize=True, max_length=None)
    return lambda texts: model2vec.encode(texts, use_multiprocessing=False)


def by_hand(encode: Callable[[list[str]], Any], corpus: Path, folder: Path) -> None:
    """Encode a Parquet file into another, batch by batch."""
    folder.mkdir()
    writer, first = None, 0
    with pq.ParquetFile(corpus) as file:
        for batch in file.iter_batches(8192):
            rows = np.asarray(encode(batch.column(0).to_pylist()), np.float32)
            lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
            encoded = pa.record_batch({"id": pa.array(np.arange(first, first + len(batch))), "embedding": lists})
            writer = writer or pq.ParquetWriter(
                folder / "embeddings.parquet", encoded.schema, compression="none", use_dictionary=False,
                write_statistics=False, write_page_checksum=True,
            )  # fmt: skip
            writer.write_batch(encoded)
            first += len(batch)
    writer.close()
    with open(folder / "embeddings.parquet", "rb") as written:
        os.fsync(written.fileno())  # as our shards are


def one_run(name: str, corpus: Path) -> dict[str, float]:
    """Do one run in this process; return seconds by clock and processor, and the peak memory in MB."""
    with tempfile.TemporaryDirectory(dir=corpus.parent) as parent:
        folder = Path(parent) / "out"
        encode = peer("whole words" in name) if name.startswith("model2vec") else None
        wall, cpu = time.perf_counter(), time.process_time()
        if encode is None:
            os.environ["PELLUCID_THREADS"] = "2" if "2" in name else "1"
            pellucid.encode_corpus("static-en", corpus, folder)
        else:
            by_hand(encode, corpus, folder)
        seconds = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return {**seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measure(corpus: Path, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Run everything in turn, each in a process of its own."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in _RUNS}
    for _ in range(rounds):
        for name, results in runs.items():
            command = [sys.executable, "-m", "benchmarks.encode_corpus", "--run", name, "--corpus", str(corpus)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            results.append(json.loads(done.stdout.splitlines()[-1]))
    return runs


def markdown(runs: dict[str, list[dict[str, float]]], texts: int, rounds: int) -> str:
    """Return the table of whole runs."""
    middle = {
        name: {key: statistics.median(run[key] for run in found) for key in ("wall", "cpu", "peak")}
        for name, found in runs.items()
    }
    lines = [
        f"{texts:,} sentences of raw_english, Parquet in, Parquet out, static-en. {machine()}. Median of {rounds}.",
        "",
        "| run | texts/s | texts per processor second | peak memory, MB |",
        "|---|---|---|---|",
    ]
    for name, run in middle.items():
        lines.append(f"| {name} | {texts / run['wall']:,.0f} | {texts / run['cpu']:,.0f} | {run['peak']:,.0f} |")
    ours, theirs = middle["pellucid, 1 thread"], middle["model2vec, 1 thread"]
    by = f"{theirs['wall'] / ours['wall']:.1f} by the clock, {theirs['cpu'] / ours['cpu']:.1f} by processor time"
    return "\n".join([*lines, "", f"pellucid with 1 thread is faster than model2vec by {by}."])


def main() -> None:
    """Read the command line and run."""
    parser = make_parser(__doc__, data="raw_english/")
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where files are written while it runs; default: the system's")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        print(json.dumps(one_run(arguments.run, arguments.corpus)))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        corpus = Path(folder) / "corpus.parquet"
        write_corpus(arguments.data, corpus, arguments.texts)
        print(markdown(measure(corpus, arguments.rounds), arguments.texts, arguments.rounds))


if __name__ == "__main__":
    main()
