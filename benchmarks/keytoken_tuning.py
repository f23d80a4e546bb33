r"""Tune the small language model for embedding, twice, so that f and f-hat of the key-tokens paper can be compared.

    python benchmarks/keytoken_tuning.py --data shared/data --output WORK

Writes WORK/simcse (a sentence against itself under dropout, as unsupervised SimCSE: similarity) and
WORK/question-answer (a question against the beginning of its answer: relatedness), for `keytoken_tables.py --tuned`.
The mean of the states behind the start token is trained with InfoNCE, temperature 0.05, on texts with an open licence.
A measurement on a minute of processor time each, not a good embedder; the results are never shipped.
"""

from __future__ import annotations

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import json
import lzma
import time
from itertools import islice
from pathlib import Path
from typing import Any

import torch

STEPS, BATCH, LENGTH, RATE, TEMPERATURE, DROPOUT = 120, 32, 24, 5e-4, 0.05, 0.1
Pair = tuple[str, str]


def sentences(data: Path) -> list[Pair]:
    """Return sentences, each twice."""
    with lzma.open(data / "raw_english/open_licence.txt.xz", "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in islice(file, STEPS * BATCH)]
    return [(line, line) for line in lines]


def questions(data: Path) -> list[Pair]:
    """Return medical questions with their answers, in an order that mixes the sources."""
    with lzma.open(data / "retrieval_train/medquad/qa.jsonl.xz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).tolist()
    return [(rows[n]["question"], rows[n]["answer"]) for n in order]


def embed(model: Any, tokenizer: Any, texts: list[str]) -> torch.Tensor:
    """Return the mean state of each text behind the start token, [n, d], with gradients."""
    start = tokenizer.bos_token_id
    ids = [[start, *tokenizer.encode(text)[:LENGTH]] for text in texts]
    longest = max(map(len, ids))
    padded = torch.tensor([row + [start] * (longest - len(row)) for row in ids])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids])
    states = model.transformer(input_ids=padded, attention_mask=mask, use_cache=False).last_hidden_state
    own = mask.clone()
    own[:, 0] = 0
    return (states * own[:, :, None]).sum(dim=1) / own.sum(dim=1, keepdim=True).clamp(min=1)


def tune(folder: Path, pairs: list[Pair], output: Path) -> None:
    """Tune all weights but the token embeddings, which are the head as well, and save the model."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    rates = dict.fromkeys(("embed_dropout", "attention_dropout", "resid_dropout"), DROPOUT)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **rates).train()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model.get_input_embeddings().weight.requires_grad_(False)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 25) * (1 - step / STEPS))
    started, sums = time.process_time(), 0.0
    for step in range(STEPS):
        first, second = zip(*(pairs[n % len(pairs)] for n in range(step * BATCH, (step + 1) * BATCH)))
        ones, others = (embed(model, tokenizer, list(side)) for side in (first, second))
        scores = torch.nn.functional.normalize(ones) @ torch.nn.functional.normalize(others).T / TEMPERATURE
        loss = torch.nn.functional.cross_entropy(scores, torch.arange(BATCH))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        sums += loss.item()
        if (step + 1) % 20 == 0:
            print(
                f"{output.name}: step {step + 1}, loss {sums / 20:.3f}, {time.process_time() - started:.0f} s",
                flush=True,
            )
            sums = 0.0
    model.eval().save_pretrained(output)
    tokenizer.save_pretrained(output)


def main() -> None:
    """Tune twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--only", choices=("simcse", "question-answer"))
    options = parser.parse_args()
    for name, pairs in (("simcse", sentences), ("question-answer", questions)):
        if options.only not in (None, name):
            continue
        tune(options.data / "lm/gpt-neo-3m-stories", pairs(options.data), options.output / name)


if __name__ == "__main__":
    main()
