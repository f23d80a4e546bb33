"""How fast static encoding is, beside wordllama, model2vec and sentence-transformers, in one run on one thread each.

    python -m benchmarks.static_speed                  the bundled model
    python -m benchmarks.static_speed --synthetic      90,000 words of the corpus with random int8 vectors
    python -m benchmarks.static_speed --long           also 10 million texts from an iterator
    python -m benchmarks.static_speed --start          only what the first calls of a process cost
    python -m benchmarks.static_speed --explain        only what an explanation costs beside encoding the two texts

The texts are those of STS12 to STS15, repeated. The peers hold the same words and vectors in float32 (wordllama its
own); model2vec twice, with the tokenizer its models come with (BERT's normaliser and word pieces) and with the leanest
that gives it our words. Rounds are interleaved after a short one that is not counted, each in an order drawn with
`--seed`: an encoder finds the caches as the one before it left them, so none may always follow the same one. Medians
and best rounds are shown, by the clock and by the processor's time: the latter is the fairer one where other programs
share the machine. With `--call` an array is dropped before the next call, as by a program that writes it away. The
bandwidth is that of reading random rows of a table of the same size in C, which takes a compiler. Prints markdown;
`--json` keeps the numbers.

Explanations are those of queries of SciFact and abstracts that answer them, by processor time.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import argparse
import ctypes
import datetime
import json
import lzma
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

import hatch_build
import pellucid
from papers.kit import make_parser, processor
from pellucid import StaticEmbedder
from pellucid.static.bulk import BulkEncoder
from pellucid.static.precision import PackedRows, convert, pack, quantize
from pellucid.text.words import Vocabulary, split_words

_SETS = ("STS12", "STS13", "STS14", "STS15")
_SIZES = (1_000, 10_000, 100_000, 1_000_000)
_Encode = Callable[[list[str]], Any]


def sts_texts(data: Path) -> list[str]:
    """Return both sentences of every pair of the test sets, in order."""
    texts: list[str] = []
    for name in _SETS:
        lines = (data / "sts" / name / "test.tsv").read_text(encoding="utf-8").split("\n")[1:]
        texts += chain.from_iterable(line.split("\t")[:2] for line in lines if line)
    return texts


def synthetic_model(data: Path, words: int = 90_000, dimension: int = 256) -> StaticEmbedder:
    """Return a model of the corpus's most frequent words with random int8 vectors."""
    counts: Counter[str] = Counter()
    with lzma.open(data / "raw_english" / "open_licence.txt.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            counts.update(re.findall(r"\w+", line.lower()))
    kept = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:words]]
    rng = np.random.default_rng(0)
    vectors = rng.integers(-127, 128, (len(kept), dimension), dtype=np.int8)
    return StaticEmbedder(Vocabulary(kept), vectors, rng.uniform(0.001, 0.01, len(kept)).astype(np.float32))


def word_tokenizer(words: Sequence[str]) -> Any:
    """Return the tokenizer that gives the peers the same words: lower case, BERT's pre-tokenizer, whole words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.normalizers import Lowercase
    from tokenizers.pre_tokenizers import BertPreTokenizer

    tokenizer = Tokenizer(WordLevel({**{word: i for i, word in enumerate(words)}, "[UNK]": len(words)}, "[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = Lowercase(), BertPreTokenizer()
    return tokenizer


def piece_tokenizer(words: Sequence[str]) -> Any:
    """Return the kind of tokenizer that model2vec's published models have, for the same words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    pieces = WordPiece({**{word: i for i, word in enumerate(words)}, "[UNK]": len(words)}, unk_token="[UNK]")
    tokenizer = Tokenizer(pieces)
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    return tokenizer


def peers(model: StaticEmbedder) -> dict[str, _Encode]:
    """Return the peers' encode functions by name."""
    import torch
    import wordllama
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    torch.set_num_threads(1)
    table = np.zeros((len(model.vocabulary) + 1, model.get_embedding_dimension()), np.float32)
    table[:-1] = model.word_vectors(np.arange(len(model.vocabulary)))
    for row, word in enumerate(model.vocabulary.words):
        if not split_words(word):
            table[row] = 0  # a punctuation mark, which we drop and the peers do not
    tokenizer = word_tokenizer(model.vocabulary.words)
    m2v = StaticModel(table, piece_tokenizer(model.vocabulary.words), normalize=True, max_length=None)
    lean = StaticModel(table, tokenizer, normalize=True, max_length=None)
    st = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=table), Normalize()], device="cpu")
    folder = Path(wordllama.__file__).parent
    llama = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    return {
        f"model2vec {version('model2vec')}": lambda texts: m2v.encode(texts, use_multiprocessing=False),
        f"model2vec {version('model2vec')}, whole words": lambda texts: lean.encode(texts, use_multiprocessing=False),
        f"sentence-transformers {version('sentence-transformers')} StaticEmbedding": lambda texts: st.encode(
            texts, batch_size=1024, show_progress_bar=False
        ),
        f"wordllama {version('wordllama')}": lambda texts: llama.embed(texts, norm=True),
    }


def own_forms(model: StaticEmbedder, many: list[str]) -> dict[str, _Encode]:
    """Return what else we can encode: the table in other forms."""
    vectors = model.word_vectors(np.arange(len(model.vocabulary)))
    numbers, scales = quantize(vectors, "int4")
    packed = BulkEncoder(model.vocabulary, PackedRows(pack(numbers), numbers.shape[1]), scales)
    even = BulkEncoder(model.vocabulary, *convert(vectors, None, "int8"))
    packed.threads = even.threads = 1
    return {
        "pellucid, one scale": even.encode,
        "pellucid, 4 bits": packed.encode,
    }


def timed(encode: _Encode, texts: list[str]) -> tuple[float, float]:
    """Return the seconds by the clock and of this process's processor time."""
    wall, cpu = time.perf_counter(), time.process_time()
    encode(texts)
    return time.perf_counter() - wall, time.process_time() - cpu


def shuffled_rounds(names: Sequence[str], rounds: int, seed: int) -> list[list[str]]:
    """Return the order of the encoders in each round: drawn, but each is first equally often, give or take one."""
    rng = random.Random(seed)
    firsts = [name for _ in range(-(-rounds // len(names))) for name in rng.sample(names, len(names))]
    orders = []
    for first in firsts[:rounds]:
        rest = [name for name in names if name != first]
        orders.append([first, *rng.sample(rest, len(rest))])
    return orders


def race(encoders: dict[str, _Encode], texts: list[str], rounds: int, seed: int) -> dict[str, dict[str, float]]:
    """Time the encoders in turn, `rounds` times after one short round; return texts/s by clock and processor."""
    for encode in encoders.values():
        encode(texts[:2000])
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in encoders}
    for order in shuffled_rounds(list(encoders), rounds, seed):
        for name in order:
            seconds[name].append(timed(encoders[name], texts))
    return {
        name: {
            "texts_per_s": len(texts) / statistics.median(wall for wall, _ in times),
            "texts_per_cpu_s": len(texts) / statistics.median(cpu for _, cpu in times),
            "best_texts_per_cpu_s": len(texts) / min(cpu for _, cpu in times),
            "spread": max(wall for wall, _ in times) / min(wall for wall, _ in times),
        }
        for name, times in seconds.items()
    }


_READ_ROWS = """
#include <stdint.h>
uint64_t read_rows(const uint64_t *table, int64_t numbers, const int32_t *rows, int64_t count, int64_t ahead)
{
    uint64_t total = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i + ahead < count)
            for (int64_t at = 0; at < numbers; at += 8) /* a cache line */
                __builtin_prefetch(table + rows[i + ahead] * numbers + at);
        for (int64_t at = 0; at < numbers; at++)
            total += table[rows[i] * numbers + at];
    }
    return total;
}
"""


def row_bandwidth(shape: tuple[int, int], itemsize: int, rounds: int) -> float:
    """Return the bytes per second of processor time at which random rows of a table this large can be read.

    C reads them, as fast as it can with each of some distances at which rows are requested ahead.
    """
    rng = np.random.default_rng(0)
    table = rng.integers(0, 1 << 60, (shape[0], shape[1] * itemsize // 8))
    rows = rng.integers(0, shape[0], 4_000_000, dtype=np.int32)
    with tempfile.TemporaryDirectory() as folder:
        source, path = Path(folder) / "read_rows.c", Path(folder) / "read_rows.so"
        source.write_text(_READ_ROWS, encoding="utf-8")
        flags = ["-O3", "-march=native", "-shared", "-fPIC", "-o", str(path), str(source)]
        subprocess.run([*hatch_build.own_compiler(), *flags], check=True)
        read = ctypes.CDLL(str(path)).read_rows
    read.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]

    def seconds(ahead: int) -> float:
        given = table.ctypes.data, table.shape[1], rows.ctypes.data, len(rows), ahead
        return timed(lambda _: read(*given), [])[1]

    seconds(1)
    best = min(seconds(ahead) for _ in range(rounds + 2) for ahead in (4, 8, 16, 32))
    return int(rows.size) * table.shape[1] * 8 / best


def scaling(model: StaticEmbedder, texts: list[str], rounds: int) -> list[dict[str, float]]:
    """Time 1 k to 1 M texts on 1 and 2 threads, by the clock."""
    results = []
    for size in _SIZES:
        some = list(islice(cycle(texts), size))
        for threads in (1, 2):
            encoder = BulkEncoder(model.vocabulary, model.vectors, model.scales)
            encoder.threads = threads
            encoder.encode(some[:4096])
            best = statistics.median(timed(encoder.encode, some)[0] for _ in range(rounds))
            results.append({"texts": size, "threads": threads, "texts_per_s": size / best})
    return results


def peak_mb() -> float:
    """Return the most memory this process has had since the last reset."""
    return int(re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024


def stream(model: StaticEmbedder, texts: list[str], size: int) -> dict[str, float]:
    """Encode `size` texts from an iterator in blocks; Linux tells the most memory needed since the start of it."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before, wall = peak_mb(), time.perf_counter()
    source, rows = islice(cycle(texts), size), 0
    while block := list(islice(source, 65_536)):
        rows += len(model.encode(block))
    seconds = time.perf_counter() - wall
    return {"texts": rows, "texts_per_s": rows / seconds, "peak_mb": peak_mb(), "peak_before_mb": before}


def streams(arguments: argparse.Namespace, sizes: Sequence[int]) -> Iterator[dict[str, float]]:
    """Run `stream` for each size in a process of its own, so that each has its own peak memory."""
    given = ["--synthetic"] if arguments.synthetic else ["--model", arguments.model]
    for size in sizes:
        command = [
            sys.executable,
            "-m",
            "benchmarks.static_speed",
            "--data",
            str(arguments.data),
            *given,
            "--stream",
            str(size),
        ]
        yield json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def explanations(data: Path, rounds: int) -> list[dict[str, Any]]:
    """Time `encode` of a query and an abstract, `explain` of the two, and the same with ten rows read.

    A model has read as many texts before that C finds the words, and these once.
    """
    pairs = scifact_pairs(data)
    results = []
    for name in ("static-en", "anchors-en-500"):
        steps: dict[str, Callable[[Any, str, str], Any]] = {
            "encode": lambda model, a, b: (model.encode_query(a), model.encode_document(b)),
            "explain": lambda model, a, b: model.explain(a, b, role1="query", role2="document").score,
            "ten rows": lambda model, a, b: model.explain(a, b, role1="query", role2="document").rows[:10],
        }
        seconds: dict[str, list[float]] = {step: [] for step in steps}
        for _ in range(rounds):
            model = pellucid.load(name)
            model.encode("word " * 1_000)
            for step, call in steps.items():
                for pair in pairs:
                    call(model, *pair)
                begun = time.process_time()
                for pair in pairs:
                    call(model, *pair)
                seconds[step].append((time.process_time() - begun) / len(pairs))
        medians = {step: statistics.median(times) * 1000 for step, times in seconds.items()}
        results.append({"model": name, "pairs": len(pairs), **medians})
    return results


def scifact_pairs(data: Path, count: int = 15) -> list[tuple[str, str]]:
    """Return queries and the abstracts that answer them, title first."""
    folder = data / "retrieval" / "scifact"
    with lzma.open(folder / "corpus.jsonl.xz", "rt", encoding="utf-8") as lines:
        abstracts = {row["_id"]: f"{row['title']} {row['text']}" for row in map(json.loads, lines)}
    queries = {row["_id"]: row["text"] for row in map(json.loads, (folder / "queries.jsonl").open(encoding="utf-8"))}
    judged = (folder / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [(queries[query], abstracts[found]) for query, found, _ in (line.split("\t") for line in judged[:count])]


def explanations_markdown(results: list[dict[str, Any]]) -> str:
    """Return the table of `explanations`."""
    lines = [
        f"Milliseconds of processor time for a query and an abstract of SciFact, {results[0]['pairs']} pairs.",
        "",
        "| model | encode both | explain | over encode | explain, ten rows read | ten rows over encode |",
        "|---|---|---|---|---|---|",
    ]
    for row in results:
        encode, explain, read = row["encode"], row["explain"], row["ten rows"]
        ratios = f"{explain:.3f} | {explain / encode:.1f} | {read:.3f} | {read / encode:.1f}"
        lines.append(f"| {row['model']} | {encode:.3f} | {ratios} |")
    return "\n".join(lines)


_START = """
import json, sys, time
seconds = [time.process_time()]
def lap(_): seconds.append(time.process_time())
import pellucid; lap(None)
pellucid.load, pellucid.StaticEmbedder; lap(None)
model = pellucid.load(sys.argv[1]); lap(None)
two = ["a man is playing a guitar", "the weather is nice today"]
for texts in (two, 200 * two, 200 * two, two[:1]): lap(model.encode(texts))
print(json.dumps([1000 * (end - begin) for begin, end in zip(seconds, seconds[1:])]))
"""
_START_STEPS = (
    "import pellucid", "import numpy and the family", "load the model", "encode 2 texts, readable path",
    "encode 400 texts, the kernels start", "encode 400 texts again", "encode 1 text",
)  # fmt: skip


def start_markdown(model: str, rounds: int) -> str:
    """Return a table of what each of the first steps of a process costs, one not counted, `rounds` processes."""
    command = [sys.executable, "-c", _START, model]
    outputs = [subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout for _ in range(rounds + 1)]
    columns = zip(*map(json.loads, outputs[1:]))
    lines = ["| step | least, ms | median, ms |", "|---|---|---|"]
    lines += [f"| {step} | {min(ms):.1f} | {statistics.median(ms):.1f} |" for step, ms in zip(_START_STEPS, columns)]
    return "\n".join(lines)


def machine() -> str:
    """Describe the processor and the versions that matter."""
    return (
        f"{processor()}, {os.cpu_count()} cores, {platform.system()}; Python {platform.python_version()}, "
        f"numpy {np.__version__}; load {os.getloadavg()[0]:.1f}"
    )


def contestants(model: StaticEmbedder, texts: list[str], size: int | None = None) -> dict[str, _Encode]:
    """Return the encoders of a race on one thread, which get `size` texts a call, None all of them."""
    encoder = BulkEncoder(model.vocabulary, model.vectors, model.scales)
    encoder.threads = 1
    encoders: dict[str, _Encode] = {"pellucid": encoder.encode, **own_forms(model, texts), **peers(model)}
    if size is None:
        return encoders

    def in_calls(encode: _Encode) -> _Encode:
        def encode_all(texts: list[str]) -> None:
            for start in range(0, len(texts), size):
                encode(texts[start : start + size])

        return encode_all

    return {name: in_calls(encode) for name, encode in encoders.items() if "Arrow" not in name}


def measure(arguments: argparse.Namespace, model: StaticEmbedder, texts: list[str]) -> dict[str, Any]:
    """Run everything and return the numbers."""
    many = list(islice(cycle(texts), -(-arguments.texts // len(texts)) * len(texts)))
    encoders = contestants(model, many)
    others = [name for name in encoders if not name.startswith("pellucid")]
    agreement = [float(np.abs(encoders["pellucid"](texts) - encoders[name](texts)).max()) for name in others[1:3]]
    known = sum(model.vocabulary.row(word.text) >= 0 for text in texts for word in split_words(text)) / len(texts)
    bandwidth = row_bandwidth(model.vectors.shape, model.vectors.itemsize, arguments.rounds)
    results = race(encoders, many, arguments.rounds, arguments.seed)
    row_bytes = model.get_embedding_dimension() * model.vectors.itemsize
    used = results["pellucid"]["texts_per_cpu_s"] * known * row_bytes
    return {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "data": f"{', '.join(_SETS)} texts ({len(texts):,}), repeated to {len(many):,}; {known:.1f} known words each",
        "table": f"{model.vectors.shape[0]:,} x {model.vectors.shape[1]} {model.vectors.dtype}",
        "rounds": arguments.rounds,
        "seed": arguments.seed,
        "encoders": results,
        "largest_difference_to_model2vec_and_st": agreement,
        "row_bandwidth_gb_s": bandwidth / 1e9,
        "rows_read_gb_s": used / 1e9,
        "bandwidth_share": used / bandwidth,
        "scaling": scaling(model, texts, arguments.rounds),
        "explanations": explanations(arguments.data, arguments.rounds),
        "streams": list(streams(arguments, (100_000, 1_000_000, *([10_000_000] if arguments.long else [])))),
    }


def race_markdown(encoders: dict[str, dict[str, float]]) -> str:
    """Return the table of a race."""
    ours = encoders["pellucid"]
    lines = [
        "| encoder | texts/s | pellucid is faster by | texts per processor second | by | best round | by | "
        "slowest/fastest round |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, speed in encoders.items():
        rates = ("texts_per_s", "texts_per_cpu_s", "best_texts_per_cpu_s")
        cells = " | ".join(f"{speed[rate]:,.0f} | {ours[rate] / speed[rate]:.1f}" for rate in rates)
        lines.append(f"| {name} | {cells} | {speed['spread']:.2f} |")
    return "\n".join(lines)


def markdown(numbers: dict[str, Any]) -> str:
    """Return the report."""
    differences = " and ".join(f"{value:.0e}" for value in numbers["largest_difference_to_model2vec_and_st"])
    lines = [
        f"Static encoding, {numbers['date']}. {numbers['machine']}.",
        f"Data: {numbers['data']}. Table: {numbers['table']}. One thread each, median of {numbers['rounds']} rounds "
        f"in orders drawn with seed {numbers['seed']}.",
        "",
        race_markdown(numbers["encoders"]),
        "",
        f"Largest difference of an embedding to model2vec's and sentence-transformers': {differences}.",
        f"Rows read: {numbers['rows_read_gb_s']:.1f} GB/s; random rows of such a table can be read at "
        f"{numbers['row_bandwidth_gb_s']:.1f} GB/s: a share of {numbers['bandwidth_share']:.0%}, all steps counted.",
        "",
        "| texts | threads | texts/s |",
        "|---|---|---|",
        *(f"| {row['texts']:,} | {row['threads']} | {row['texts_per_s']:,.0f} |" for row in numbers["scaling"]),
        "",
        "| texts from an iterator | texts/s | peak memory, MB | of which before the first text |",
        "|---|---|---|---|",
        *(
            f"| {row['texts']:,} | {row['texts_per_s']:,.0f} | {row['peak_mb']:,.0f} | {row['peak_before_mb']:,.0f} |"
            for row in numbers["streams"]
        ),
        "",
        explanations_markdown(numbers["explanations"]),
    ]
    return "\n".join(lines)


def main() -> None:
    """Read the command line and run."""
    parser = make_parser(__doc__, data="sts/ and raw_english/")
    parser.add_argument("--model", default="static-en", help="a bundled name or a model folder")
    parser.add_argument("--synthetic", action="store_true", help="random vectors instead of a model")
    parser.add_argument("--texts", type=int, default=200_000, help="at least so many texts a round")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0, help="of the order of the encoders in each round")
    parser.add_argument("--long", action="store_true", help="also stream 10 million texts")
    parser.add_argument("--start", action="store_true", help="time the first calls of a process alone")
    parser.add_argument("--explain", action="store_true", help="time explanations alone")
    parser.add_argument("--call", type=int, help="race alone, with so many texts a call")
    parser.add_argument("--json", type=Path, help="write the numbers to this file too")
    parser.add_argument("--stream", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.explain:
        print(f"{machine()}\n\n{explanations_markdown(explanations(arguments.data, arguments.rounds))}")
        return
    if arguments.start:
        print(f"{machine()}; processor time of {arguments.rounds} processes\n")
        print(start_markdown(arguments.model, arguments.rounds))
        return
    if arguments.synthetic:
        model = synthetic_model(arguments.data)
    else:
        model = StaticEmbedder.from_pretrained(arguments.model)
    texts = sts_texts(arguments.data)
    if arguments.call:
        many = list(islice(cycle(texts), -(-arguments.texts // len(texts)) * len(texts)))
        results = race(contestants(model, many, arguments.call), many, arguments.rounds, arguments.seed)
        print(
            f"{machine()}; {os.environ.get('PELLUCID_NATIVE') or 'best'} kernels; one thread each; "
            f"{len(many):,} texts, {arguments.call:,} a call; {arguments.rounds} rounds, seed {arguments.seed}\n\n"
            f"{race_markdown(results)}"
        )
        return
    if arguments.stream:
        print(json.dumps(stream(model, texts, arguments.stream)))
        return
    numbers = measure(arguments, model, texts)
    print(markdown(numbers))
    if arguments.json:
        arguments.json.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
