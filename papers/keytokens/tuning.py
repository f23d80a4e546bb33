r"""Tune a language model for embedding, so that f and f-hat of the key-tokens paper can be compared.

    python -m papers.keytokens.tuning --data shared/data --output WORK
    python -m papers.keytokens.tuning --data shared/data --output WORK --model FOLDER --layers 10 --only mixed

Writes WORK/simcse (a sentence against itself under dropout, as unsupervised SimCSE: similarity) and
WORK/question-answer (a question against the beginning of its answer: relatedness), for `tables.py --tuned`;
"mixed" alternates between batches of both. The mean of the states behind the start token is trained with InfoNCE,
temperature 0.05, on texts with an open licence. With `--layers`, low-rank adapters of the last layers are trained, in
bfloat16 where the processor has instructions for it, and merged. A measurement of minutes of processor time, not a good
embedder; the results are never shipped.
"""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from papers.kit import make_parser
from papers.local_tasks import read_records
from pellucid.text.tables import read_texts
from pellucid.transformer.backbone import half_dtype

STEPS, BATCH, LENGTH, RATE, TEMPERATURE, DROPOUT = 120, 32, 24, 5e-4, 0.05, 0.1
RANK, ADAPTER_RATE = 16, 1e-3
NOTE = "tuning.txt"  # how a tuned model was made, in its folder
Pair = tuple[str, str]


def sentences(data: Path) -> list[Pair]:
    """Return sentences, each twice."""
    return [(text, text) for text in islice(read_texts(data / "raw_english/open_licence.txt.xz"), STEPS * BATCH)]


def questions(data: Path) -> list[Pair]:
    """Return medical questions with their answers, in an order that mixes the sources."""
    rows = list(read_records(data / "retrieval_train/medquad/qa.jsonl.xz", ["question", "answer"]))
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).tolist()
    return [(rows[n]["question"], rows[n]["answer"]) for n in order]


def embed(model: Any, tokenizer: Any, texts: list[str]) -> torch.Tensor:
    """Return the mean state of each text behind the start token, [n, d], with gradients."""
    start = tokenizer.bos_token_id
    ids = [[start, *tokenizer.encode(text)[:LENGTH]] for text in texts]
    longest = max(map(len, ids))
    padded = torch.tensor([row + [start] * (longest - len(row)) for row in ids])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids])
    transformer = getattr(model, "get_base_model", lambda: model)().base_model  # with adapters or without
    states = transformer(input_ids=padded, attention_mask=mask, use_cache=False).last_hidden_state
    own = mask.clone()
    own[:, 0] = 0
    states = states.float()
    return (states * own[:, :, None]).sum(dim=1) / own.sum(dim=1, keepdim=True).clamp(min=1)


def mixed(data: Path) -> list[Pair]:
    """Return batches of sentences and of questions in turn."""
    kinds = sentences(data), questions(data)
    return [
        pair for start in range(0, STEPS * BATCH, BATCH) for pairs in kinds for pair in pairs[start : start + BATCH]
    ]


def opened(folder: Path, layers: int | None) -> Any:
    """Return the model with what is trained: all weights but the token embeddings, which are the head as well.

    Args:
        folder: of the language model.
        layers: of how many last layers adapters are trained instead; the layers before them need no gradients.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    names = ("embed_dropout", "attention_dropout", "resid_dropout")
    config = AutoConfig.from_pretrained(folder)
    rates = {name: DROPOUT for name in names if hasattr(config, name)}
    dtype = getattr(torch, half_dtype()) if layers else torch.float32
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **rates)
    if layers is None:
        model.get_input_embeddings().weight.requires_grad_(False)
        return model
    from peft import LoraConfig, get_peft_model

    first = config.num_hidden_layers - layers
    linear = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    numbers = {name: next(map(int, filter(str.isdigit, name.split("."))), -1) for name in linear}  # the head has none
    last = [name for name in linear if numbers[name] >= first]
    return get_peft_model(model, LoraConfig(r=RANK, lora_alpha=2 * RANK, lora_dropout=DROPOUT, target_modules=last))


def save(model: Any, folder: Path, output: Path) -> None:
    """Write the tuned model; adapters are added to the weights in float32."""
    from transformers import AutoTokenizer

    whole = model.float().merge_and_unload() if hasattr(model, "merge_and_unload") else model
    whole.eval().save_pretrained(output)
    AutoTokenizer.from_pretrained(folder).save_pretrained(output)


def tune(folder: Path, pairs: list[Pair], output: Path, layers: int | None, steps: int = STEPS) -> None:
    """Tune a model on pairs and save it."""
    from transformers import AutoTokenizer

    torch.manual_seed(0)
    model, tokenizer = opened(folder, layers).train(), AutoTokenizer.from_pretrained(folder)
    rate = RATE if layers is None else ADAPTER_RATE
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 25) * (1 - step / steps))
    started, sums = time.process_time(), 0.0
    for step in range(steps):
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
    save(model, folder, output)
    what = "all weights but the token embeddings" if layers is None else f"adapters of the last {layers} layers"
    spent = f"{time.process_time() - started:.0f} s of processor time"
    said = f"{output.name}: {steps} steps of {BATCH} pairs, {what}, {spent}"
    (output / NOTE).write_text(said, encoding="utf-8")


def main() -> None:
    """Tune once for each kind of pairs."""
    parser = make_parser(__doc__, data="raw_english/, retrieval_train/ and lm/", only=KINDS)
    parser.add_argument("--output", type=Path, required=True)
    parser.set_defaults(only=["simcse", "question-answer"])
    parser.add_argument("--model", type=Path, help="another language model's folder")
    parser.add_argument("--layers", type=int, help="train adapters of so many last layers")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    for name in options.only:
        folder = options.model or options.data / "lm/gpt-neo-3m-stories"
        tune(folder, KINDS[name](options.data), options.output / name, options.layers, options.steps)


KINDS = {"simcse": sentences, "question-answer": questions, "mixed": mixed}


if __name__ == "__main__":
    main()
