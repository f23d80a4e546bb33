r"""Tune a language model for embedding, so that f and f-hat of the key-tokens paper can be compared.

    python -m papers.keytokens.tuning FOLDER --layers 10 --data shared/data --output WORK/mixed

Writes the tuned model, for `papers/keytokens/language_model.py`. Batches are in turn sentences against themselves under
dropout, as unsupervised SimCSE (similarity), and questions against the beginning of their answers (relatedness), on
texts with an open licence. The mean of the states behind the start token is trained with InfoNCE, temperature 0.05;
low-rank adapters of the last layers, in bfloat16 where the processor has instructions for it, are trained and merged. A
measurement of minutes of processor time, not a good embedder; the results are never shipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from papers.kit import make_parser
from papers.local_tasks import read_records
from pellucid.text.tables import read_texts
from pellucid.transformer.backbone import half_dtype

STEPS, BATCH, LENGTH, RATE, TEMPERATURE, DROPOUT, RANK = 120, 32, 24, 1e-3, 0.05, 0.1, 16
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
    states = transformer_of(model)(input_ids=padded, attention_mask=mask, use_cache=False).last_hidden_state
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


def loaded(folder: Path) -> Any:
    """Return a causal language model with dropout of attention, in half precision where the processor is able to."""
    from transformers import AutoModelForCausalLM

    dtype = getattr(torch, half_dtype())
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attention_dropout=DROPOUT)


def with_adapters(model: Any, layers: int) -> Any:
    """Return the model with low-rank adapters of its last layers; those before them need no gradients."""
    from peft import LoraConfig, get_peft_model

    first = model.config.num_hidden_layers - layers
    linear = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    numbers = {name: next(map(int, filter(str.isdigit, name.split("."))), -1) for name in linear}  # the head has none
    last = [name for name in linear if numbers[name] >= first]
    return get_peft_model(model, LoraConfig(r=RANK, lora_alpha=2 * RANK, lora_dropout=DROPOUT, target_modules=last))


def transformer_of(model: Any) -> Any:
    """Return what gives the states, with adapters or without them."""
    return getattr(model, "get_base_model", lambda: model)().base_model


def contrastive(ones: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return InfoNCE of pairs of embeddings, [n, d] each, with the other pairs as negatives."""
    scores = torch.nn.functional.normalize(ones) @ torch.nn.functional.normalize(others).T / TEMPERATURE
    return torch.nn.functional.cross_entropy(scores, torch.arange(len(ones)))


def train(
    model: Any, loss_of: Callable[[int], torch.Tensor], steps: int, name: str, *, rate: float = RATE, warm_up: int = 25
) -> None:
    """Train a model in place.

    Args:
        model: its weights with gradients are trained.
        loss_of: the number of a step -> its loss.
        steps: how many.
        name: printed with the loss.
        rate: the highest learning rate.
        warm_up: steps until the rate is reached.
    """
    model.train()
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=rate)
    rates = [min(1.0, (step + 1) / warm_up) * (1 - step / steps) for step in range(steps + 1)]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rates.__getitem__)
    started, losses = time.process_time(), list[float]()
    for step in range(steps):
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if (step + 1) % 10 == 0:
            said = f"loss {sum(losses[-10:]) / 10:.3f}, {time.process_time() - started:.0f} s"
            print(f"{name}: step {step + 1}, {said}", flush=True)
    model.eval()


def save(model: Any, folder: Path, output: Path) -> None:
    """Write the tuned model; adapters are added to the weights in float32."""
    from transformers import AutoTokenizer

    model.float().merge_and_unload().eval().save_pretrained(output)
    AutoTokenizer.from_pretrained(folder).save_pretrained(output)


def tune(folder: Path, pairs: list[Pair], output: Path, layers: int, steps: int = STEPS) -> None:
    """Tune a model on pairs and save it."""
    from transformers import AutoTokenizer

    torch.manual_seed(0)
    model, tokenizer = with_adapters(loaded(folder), layers), AutoTokenizer.from_pretrained(folder)
    started = time.process_time()

    def loss_of(step: int) -> torch.Tensor:
        first, second = zip(*(pairs[n % len(pairs)] for n in range(step * BATCH, (step + 1) * BATCH)))
        return contrastive(*(embed(model, tokenizer, list(side)) for side in (first, second)))

    train(model, loss_of, steps, output.name)
    save(model, folder, output)
    spent = f"{time.process_time() - started:.0f} s of processor time"
    said = f"{output.name}: {steps} steps of {BATCH} pairs, adapters of the last {layers} layers, {spent}"
    (output / NOTE).write_text(said, encoding="utf-8")


def main() -> None:
    """Tune once."""
    parser = make_parser(__doc__, data="raw_english/ and retrieval_train/")
    parser.add_argument("model", type=Path, help="folder of a causal language model")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--layers", type=int, required=True, help="train adapters of so many last layers")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    tune(options.model, mixed(options.data), options.output, options.layers, options.steps)


if __name__ == "__main__":
    main()
