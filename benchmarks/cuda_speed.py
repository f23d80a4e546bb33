"""What a CUDA device gains: a training step of a lexicon model and the pooled head, beside the CPU, in one run.

    python -m benchmarks.cuda_speed            a BERT of random weights, 6 layers of 384, 32 rows of 5 texts a step
    python -m benchmarks.cuda_speed --quick    sizes that take seconds; says that the code runs, not how fast

The seconds of a step are the difference between a long and a short training, over the steps between them: opening and
saving are not counted. The head's are medians of 5 calls forward and back, the weight frozen. Float32 on both; the CPU
has all its threads. Without a device the CPU's rows are printed alone, and the last line says so. The first line
names the device.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.pooled_head import MODES, Batch, Shape
from papers.kit import processor
from pellucid.lexicon.clusters import cluster_vocabulary
from pellucid.lexicon.embedder import LexiconEmbedder
from pellucid.lexicon.training import TrainingSettings, train_lexicon
from pellucid.lexicon.training_data import TrainingRow, TrainingSet
from pellucid.transformer.backbone import prepare

_WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "bdfgklmnprst"]


class Size(NamedTuple):
    """How large the model, its batches and the head's are."""

    hidden: int
    layers: int
    clusters: int
    batch: int
    words: int  # of a text
    steps: int  # of the short training; the long one has three times as many
    head: Shape


FULL = Size(384, 6, 500, 32, 60, 5, Shape(16, 128, 1024, 8000))
QUICK = Size(32, 1, 20, 4, 8, 1, Shape(2, 8, 16, 32))


def model(size: Size, device: str) -> LexiconEmbedder:
    """Return a lexicon model of random weights that knows `_WORDS`."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = Tokenizer(WordLevel({word: row for row, word in enumerate([*special, *_WORDS])}, "[UNK]"))
    words.pre_tokenizer = Whitespace()
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **dict(zip(names, special)))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=size.hidden, num_hidden_layers=size.layers, num_attention_heads=4,
        intermediate_size=4 * size.hidden, max_position_embeddings=512, pad_token_id=0,
    )  # fmt: skip
    backbone = prepare(BertForMaskedLM(config).eval(), tokenizer, attention="bidirectional", device=device)
    return LexiconEmbedder(backbone, cluster_vocabulary(backbone.head, tokenizer, size.clusters))


def step_seconds(size: Size, device: str) -> float:
    """Return the seconds that one step of `train_lexicon` takes."""

    def text(number: int) -> str:
        return " ".join(_WORDS[(number * 7919 + place * 104_729) % len(_WORDS)] for place in range(size.words))

    rows = [TrainingRow(text(8 * n), (text(8 * n + 1),), tuple(text(8 * n + k) for k in (2, 3, 4))) for n in range(256)]

    def train(steps: int) -> float:
        settings = TrainingSettings(
            max_steps=steps, batch_size=size.batch, group_size=4, warmup_steps=0, save_steps=1_000, bf16=False
        )
        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            student = model(size, device)
            train_lexicon(
                student, [TrainingSet("pairs", rows)], Path(folder) / "run", settings, show_progress_bar=False
            )
            return time.perf_counter() - begun

    train(1)  # which compiles and allocates what later ones find ready
    short, long = train(size.steps), train(3 * size.steps)
    return (long - short) / (2 * size.steps)


def head_seconds(size: Size, device: str) -> float:
    """Return the median seconds of the pooled head, forward and back."""
    batch = Batch(size.head, next(mode for mode in MODES if "frozen" in mode.name), device, torch.float32)

    def call() -> float:
        batch.clear()
        begun = time.perf_counter()
        batch.call("pellucid")
        if device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter() - begun

    return statistics.median([call() for _ in range(6)][1:])


def markdown(size: Size, devices: list[str]) -> str:
    """Measure each row on each device and return the table."""
    name = torch.cuda.get_device_name() if "cuda" in devices else "no CUDA device"
    layers = f"{size.layers} layers of {size.hidden}"
    rows: dict[str, Callable[[Size, str], float]] = {
        f"training step, {size.batch} rows of 5 texts x {size.words} words, {layers}": step_seconds,
        f"pooled head, {size.head}": head_seconds,
    }
    lines = [
        f"{processor()}, {torch.get_num_threads()} of {os.cpu_count()} cores; {name}; torch {torch.__version__}",
        "",
        f"| | {' | '.join(f'{device}, s' for device in devices)} | CUDA is faster by |",
        f"|---|{'---|' * (len(devices) + 1)}",
    ]
    for label, measure in rows.items():
        seconds = [measure(size, device) for device in devices]
        gain = f"{seconds[0] / seconds[1]:.1f}" if len(seconds) > 1 else "not measured"
        lines.append(f"| {label} | {' | '.join(f'{value:.4f}' for value in seconds)} | {gain} |")
    if "cuda" not in devices:
        lines += ["", "CUDA: not measured, this machine has no GPU that torch can use."]
    return "\n".join(lines)


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    size = QUICK if parser.parse_args().quick else FULL
    print(markdown(size, ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]))


if __name__ == "__main__":
    main()
