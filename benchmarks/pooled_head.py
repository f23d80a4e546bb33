"""Time and memory of the pooled vocabulary head, beside the usual orders, in one run.

    python -m benchmarks.pooled_head                 on the CPU, one thread: 16 texts x 128 tokens, d 1024, k 8000
    python -m benchmarks.pooled_head --threads 2
    python -m benchmarks.pooled_head --long          also four times the texts and twice the tokens (3 GB of memory)
    python -m benchmarks.pooled_head --gpu           on a CUDA device alone

Peers: the order of the LENS paper's code (all logits, log(1 + relu), mask, maximum); the same with the maximum first;
that in slices under torch.utils.checkpoint;
sentence-transformers' Dense and SpladePooling; and the bare matrix product, which none of them can beat. Rounds are
interleaved after one that is not counted; medians are shown, by the clock and by the processor's time, the latter being
the fairer one where other programs share the machine. Memory is the most the process holds during a call beyond what
it held before, with what the call returns. Where a CUDA device is at hand, the same is measured there at 64 texts x 512
tokens, d 4096, k 8000 in bfloat16. Prints markdown; `--json` keeps the numbers.
"""

from __future__ import annotations

import argparse
import os
import sys

_PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
_PARSER.add_argument("--threads", type=int, default=1)
_PARSER.add_argument("--rounds", type=int, default=7)
_PARSER.add_argument("--long", action="store_true", help="also 64 texts x 256 tokens")
_PARSER.add_argument("--quick", action="store_true", help="8 texts x 128 tokens, d 512, k 4000 alone")
_PARSER.add_argument("--gpu", action="store_true", help="the CUDA device alone")
_PARSER.add_argument("--json", help="write the numbers to this file too")
_ARGUMENTS = _PARSER.parse_args() if __name__ == "__main__" else _PARSER.parse_args([])
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = str(_ARGUMENTS.threads)

import ctypes
import datetime
import gc
import json
import platform
import re
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.checkpoint import checkpoint

from papers.kit import processor
from pellucid.transformer import max_pooled

_Pool = Callable[[Any, Any, Any], Any]
_OURS, _PAPER, _FIRST, _BARE = "pellucid", "the paper's order", "maximum first", "matrix product alone"
_CHECKPOINTED, _SLICE_ROWS = "maximum first, checkpointed", 1_024  # clusters in a slice
_STOCK = f"sentence-transformers {version('sentence-transformers')}"


class Shape(NamedTuple):
    """The size of a batch."""

    texts: int
    tokens: int
    depth: int
    clusters: int

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.texts} texts x {self.tokens} tokens, d {self.depth}, k {self.clusters}"


class Mode(NamedTuple):
    """What is measured: whether lengths differ, and what has a gradient."""

    name: str
    ragged: bool = False
    hidden: bool = False
    weight: bool = False


MODES = (
    Mode("forward"),
    Mode("forward, texts of 1 token to all", ragged=True),
    Mode("training, head frozen", hidden=True),
    Mode("training", hidden=True, weight=True),
)


def paper_order(hidden: Any, mask: Any, weight: Any) -> Any:
    """All logits, saturated, masked, then the maximum."""
    return (torch.log1p(torch.relu(hidden @ weight.t())) * mask[..., None]).amax(dim=1)


def maximum_first(hidden: Any, mask: Any, weight: Any) -> Any:
    """All logits, masked, the maximum, then saturated."""
    logits = (hidden @ weight.t()).masked_fill(~mask[..., None], float("-inf"))
    return torch.log1p(torch.relu(logits.amax(dim=1)))


def checkpointed(hidden: Any, mask: Any, weight: Any) -> Any:
    """The maximum first, a slice of clusters at a time, whose logits are computed again for the gradient."""
    slices = [checkpoint(maximum_first, hidden, mask, rows, use_reentrant=False) for rows in weight.split(_SLICE_ROWS)]
    return torch.cat(slices, dim=1)


def bare(hidden: Any, mask: Any, weight: Any) -> Any:
    """The logits and nothing else."""
    return hidden @ weight.t()


def stock(shape: Shape, weight: Any) -> _Pool:
    """Return sentence-transformers' modules for the same head; the weight is theirs."""
    from sentence_transformers.sentence_transformer.modules import Dense
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    dense = Dense(
        shape.depth,
        shape.clusters,
        bias=False,
        activation_function=None,
        module_input_name="token_embeddings",
        module_output_name="token_embeddings",
    ).to(weight.device)
    dense.linear.weight = torch.nn.Parameter(weight)
    pooling = SpladePooling("max")

    def pool(hidden: Any, mask: Any, weight: Any) -> Any:
        dense.linear.weight.requires_grad_(weight.requires_grad)
        pooling.train(hidden.requires_grad)  # without gradients it works in place
        features = {"token_embeddings": hidden, "attention_mask": mask}
        return pooling(dense(features))["sentence_embedding"]

    return pool


class Batch:
    """Tensors of one shape, and one call of a head on them."""

    def __init__(self, shape: Shape, mode: Mode, device: str, dtype: Any) -> None:
        """Draw them."""
        torch.manual_seed(0)
        self.hidden = torch.randn(shape[:3], device=device, dtype=dtype).requires_grad_(mode.hidden)
        self.weight = torch.randn(shape.clusters, shape.depth, device=device, dtype=dtype) / shape.depth**0.5
        self.weight.requires_grad_(mode.weight)
        lengths = torch.randint(1, shape.tokens + 1, (shape.texts, 1), device=device)
        lengths = lengths if mode.ragged else torch.full_like(lengths, shape.tokens)
        self.mask = torch.arange(shape.tokens, device=device) < lengths
        self.upstream = torch.randn(shape.texts, shape.clusters, device=device)
        self.pools: dict[str, _Pool] = {
            _OURS: lambda *given: max_pooled(*given)[0],
            _PAPER: paper_order,
            _FIRST: maximum_first,
            _CHECKPOINTED: checkpointed,
            _STOCK: stock(shape, self.weight),
        }

    def call(self, name: str) -> Any:
        """Run a head forward, and back where something has a gradient; return what it gave."""
        if name == _BARE:
            with torch.no_grad():
                return bare(self.hidden, self.mask, self.weight)
        training = self.hidden.requires_grad
        with torch.set_grad_enabled(training):
            values = self.pools[name](self.hidden, self.mask, self.weight)
        if training:
            values.backward(self.upstream.to(values.dtype))
        return values.detach()

    def clear(self) -> None:
        """Forget the gradients, sentence-transformers' own one too."""
        self.hidden.grad = self.weight.grad = None
        parameter = self.pools[_STOCK].__closure__[0].cell_contents.linear.weight  # type: ignore[attr-defined]
        parameter.grad = None


def in_memory(what: str) -> float:
    """Return a line of /proc/self/status in MB."""
    return int(re.findall(rf"{what}:\s*(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024


def measured_on_cpu(batch: Batch, name: str) -> tuple[float, float, float]:
    """Return seconds by the clock and of processor time, and MB at the peak."""
    batch.clear()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # give freed memory back to the system, or the next call's first MB cost nothing
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before, wall, cpu = in_memory("VmRSS"), time.perf_counter(), time.process_time()
    batch.call(name)
    return time.perf_counter() - wall, time.process_time() - cpu, in_memory("VmHWM") - before


def measured_on_cuda(batch: Batch, name: str) -> tuple[float, float, float]:
    """Return seconds of the device, twice, and MB at the peak."""
    batch.clear()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    batch.call(name)
    end.record()
    torch.cuda.synchronize()
    seconds = start.elapsed_time(end) / 1000
    return seconds, seconds, (torch.cuda.max_memory_allocated() - before) / 2**20


def race(shape: Shape, mode: Mode, rounds: int, device: str = "cpu", dtype: Any = torch.float32) -> dict[str, Any]:
    """Measure all heads in turn and return their medians."""
    batch = Batch(shape, mode, device, dtype)
    names = [*batch.pools, *([] if mode.hidden else [_BARE])]
    reference = batch.call(_PAPER).float()
    apart = max(float((batch.call(name).float() - reference).abs().max()) for name in batch.pools)
    measure = measured_on_cpu if device == "cpu" else measured_on_cuda
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    for counted in range(-1, rounds):
        for name in names:
            figures = measure(batch, name)
            if counted >= 0:
                found[name].append(figures)
    columns = ("wall_s", "cpu_s", "peak_mb")
    medians = {n: dict(zip(columns, map(statistics.median, zip(*rows)))) for n, rows in found.items()}
    return {"shape": str(shape), "mode": mode.name, "largest_difference": apart, "heads": medians}


def table(run: dict[str, Any]) -> list[str]:
    """Return one race as markdown."""
    ours = run["heads"][_OURS]
    lines = [
        "",
        f"**{run['mode']}**, {run['shape']}; largest difference between results: {run['largest_difference']:.0e}",
        "",
        "| head | s by the clock | times ours | processor s | times ours | peak MB | times ours |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, figures in run["heads"].items():
        cells = []
        for column, digits in (("wall_s", 4), ("cpu_s", 4), ("peak_mb", 0)):
            value = figures[column]
            cells += [f"{value:,.{digits}f}", f"{value / ours[column]:.2f}" if ours[column] else ""]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def machine() -> str:
    """Describe the machine and the versions that matter."""
    device = f"; {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return (
        f"{processor()}, {os.cpu_count()} cores, {_ARGUMENTS.threads} thread(s){device}; "
        f"Python {platform.python_version()}, torch {torch.__version__}; load {os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    """Run everything and print it."""
    if sys.platform != "linux":
        raise SystemExit("the memory is read from /proc, which only Linux has")
    torch.set_num_threads(_ARGUMENTS.threads)
    first = Shape(8, 128, 512, 4000) if _ARGUMENTS.quick else Shape(16, 128, 1024, 8000)
    shapes = [first, *([Shape(64, 256, 1024, 8000)] if _ARGUMENTS.long else [])]
    runs = [race(shape, mode, _ARGUMENTS.rounds) for shape in shapes if not _ARGUMENTS.gpu for mode in MODES]
    large, cuda = Shape(64, 512, 4096, 8000), []
    if torch.cuda.is_available():
        cuda = [race(large, mode, _ARGUMENTS.rounds, "cuda", torch.bfloat16) for mode in MODES]
    print(f"Pooled head, {datetime.date.today().isoformat()}. {machine()}. Median of {_ARGUMENTS.rounds} rounds.")
    print("\n".join(line for run in [*runs, *cuda] for line in table(run)))
    if not cuda:
        print(f"\nCUDA ({large}, bfloat16): not measured, no device at hand.")
    if _ARGUMENTS.json:
        numbers = {"machine": machine(), "cpu": runs, "cuda": cuda}
        Path(_ARGUMENTS.json).write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
