r"""What docs/keytokens.md shows of key-token models: words, adjustments, what K tokens keep of the dense cosine.

    python -m papers.keytokens.embedder --data shared/data [--texts 1000] [--pairs 500]

Adjustments are fitted and chosen on open-licence English sentences; the pairs of STS14 are only
measured, and nothing is chosen by them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from papers.keytokens.adjusting import choose_adjustment
from papers.kit import Figure, Table, run_script
from papers.models import minilm_path
from pellucid import KeyTokenEmbedder
from pellucid.evaluation.tasks import find_tasks, read_sts
from pellucid.keytokens import KeyTokenSettings
from pellucid.text.tables import read_texts
from pellucid.transformer import open_backbone

TEXT, OTHER = "Mom baked a chocolate cake for my birthday.", "She made cookies and a pie."
TOP_KS = (16, 64, 256, 1024, None)


def pairs(data: Path, count: int) -> tuple[list[str], list[str], list[float]]:
    """Return so many pairs of STS14, drawn at random, and their gold scores."""
    columns = read_sts(next(task for task in find_tasks(data) if task.name == "STS14"))
    drawn = np.random.default_rng(0).permutation(len(columns.scores))[:count].tolist()
    first, second, gold = ([column[n] for n in drawn] for column in columns)
    return first, second, gold


def words(model: KeyTokenEmbedder) -> str:
    """Return the key tokens of the example."""
    return " ".join(name for name, _ in model.key_tokens(TEXT, 10))


def fidelity(model: KeyTokenEmbedder, given: tuple[list[str], list[str], list[float]]) -> list[str]:
    """Return Spearman to the gold scores and to the dense cosine, for the dense cosine and for each K."""
    first, second, gold = given
    embeddings = [model.embed(texts) for texts in (first, second)]
    dense = model.similarity_pairwise(*(model.adjustment.apply(rows) for rows in embeddings))
    cells = [f"{100 * spearmanr(dense, gold)[0]:.1f}"]
    for k in TOP_KS:
        kept = model.with_settings(replace(model.settings, top_k=k))
        cosines = kept.similarity_pairwise(kept.encode(first), kept.encode(second))
        cells.append(f"{100 * spearmanr(cosines, gold)[0]:.1f} / {100 * spearmanr(cosines, dense)[0]:.1f}")
    return cells


def model_figures(name: str, model: KeyTokenEmbedder, texts: Sequence[str], given: Any) -> Iterator[tuple[str, Figure]]:
    """Yield everything about one model."""
    choice = choose_adjustment(model, texts)
    yield f"{name}: scores", ", ".join(f"{key} {value:.3f}" for key, value in choice.scores.items())
    adjusted = {"none": model, **{kind: model.fitted(texts, kind) for kind in ("mean", "component")}}
    best = {f"best: {choice.best}": model.with_adjustment(choice.adjustment)}
    yield (
        f"{name}: words",
        Table(["adjustment", "key tokens"], [[k, words(m)] for k, m in (adjusted | best).items()], 2),
    )
    columns = ["adjustment", "dense", *("all" if k is None else f"K = {k}" for k in TOP_KS)]
    yield f"{name}: kept", Table(columns, [[kind, *fidelity(one, given)] for kind, one in adjusted.items()], 7)
    yield f"{name}: example", f"{adjusted['mean'].describe(TEXT)}\n\n{adjusted['mean'].explain(TEXT, OTHER)}"


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the tables of both models."""
    texts = list(islice(read_texts(options.data / "raw_english/open_licence.txt.xz"), options.texts))
    given = pairs(options.data, options.pairs)
    neo = open_backbone(options.data / "lm/gpt-neo-3m-stories", attention="causal", device="cpu")
    yield from model_figures("GPT-Neo 3M", KeyTokenEmbedder(neo, KeyTokenSettings(start_token=True)), texts, given)
    mini = open_backbone(minilm_path(), device="cpu")
    yield from model_figures("MiniLM", KeyTokenEmbedder(mini), texts, given)


if __name__ == "__main__":
    numbers = {"--texts": 1000, "--pairs": 500}
    options = {name: {"type": int, "default": number} for name, number in numbers.items()}
    run_script(measure, options, data="raw_english/, sts/ and lm/")
