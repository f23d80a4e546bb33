r"""The key-tokens paper's findings on a language model of your own.

    python -m papers.keytokens.tuning FOLDER --layers 10 --data shared/data --output WORK/mixed
    python -m papers.keytokens.language_model FOLDER --tuned WORK/mixed --data shared/data --work-dir WORK --write

FOLDER holds any causal language model of transformers. Measured are Figures 2 to 4 and Tables 2 to 5 of "A Text is
Worth Several Tokens": the model as it is under every pooling, and a version tuned for embedding.
Embeddings and figures are kept in WORK, and a run that was stopped goes on. Weights are read in bfloat16.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

from papers.keytokens.alignment import (
    align_embeddings,
    compare_key_tokens,
    cosine_lines,
    embedded_texts,
    tokens_table,
)
from papers.keytokens.language_page import figures
from papers.keytokens.rates import EmbeddedTexts
from papers.keytokens.retrieval import FIXED, KS, MS, random_head, sparse_scores
from papers.keytokens.spectrum import sweep, sweep_table, variation, variation_table
from papers.keytokens.tuning import BATCH, NOTE, STEPS
from papers.kit import Experiment, Figure, Kept, processor, run_script
from papers.retrieval_sets import dense_hits, read_collection
from papers.spectra import shares, split
from papers.vector_cache import CachedEncoder, Vectors
from pellucid import KeyTokenEmbedder
from pellucid.core.pca import spectrum_of
from pellucid.errors import InputError
from pellucid.evaluation.tasks import find_tasks
from pellucid.keytokens import Adjustment, KeyTokenSettings
from pellucid.keytokens.adjustments import mean_adjustment
from pellucid.keytokens.head import top_tokens
from pellucid.keytokens.states import pooled_states
from pellucid.progress import length_batches
from pellucid.text.tables import read_texts
from pellucid.transformer import open_backbone
from pellucid.transformer.attention import base_states

LENGTH = 96  # tokens read of a text
POOLINGS = ("mean", "weighted_mean", "last", "prompt_eol")
TOGETHER = POOLINGS[:3]  # of one forward pass
PLAIN, TUNED = "as it is", "tuned"
COMPARED = 200  # texts embedded in float32 as well
TABLE_2 = (
    "Revealed in March 2003, it was released across Game Boy Advance, PlayStation 2, GameCube, Xbox and Microsoft "
    "Windows in November 2003"
)
TABLE_4 = [
    "I really enjoyed the movie last night.",
    "I didn't enjoy the movie last night at all.",
    "I had a great time watching the film this afternoon.",
]
INSTRUCTION = (
    "Classify the emotion expressed in the given Twitter message into one of the six emotions: anger, fear, joy, love, "
    "sadness, and surprise."
)
TABLE_5 = ["I like apples.", "I dislike apples."]

BEHIND_START = KeyTokenSettings(start_token=True)


class Encoders:
    """A language model under every pooling; embeddings are kept on disk."""

    def __init__(self, folder: Path, work: Path, settings: KeyTokenSettings = BEHIND_START) -> None:
        """Open nothing yet; `settings` say how a text is read, whatever the pooling."""
        self.folder, self.work, self.settings = folder, work, settings

    def opened(self, dtype: str) -> dict[str, KeyTokenEmbedder]:
        """Open the model; pooling -> embedder, all with one backbone."""
        backbone = open_backbone(self.folder, attention="causal", dtype=dtype, device="cpu")
        settings = replace(self.settings, max_length=min(LENGTH, backbone.max_length), top_k=None)
        return {name: KeyTokenEmbedder(backbone, replace(settings, pooling=name)) for name in POOLINGS}

    @cached_property
    def models(self) -> dict[str, KeyTokenEmbedder]:
        """Pooling -> embedder, in bfloat16."""
        return self.opened("bfloat16")

    @cached_property
    def weights(self) -> str:
        """What the weights are recognised by."""
        found = hashlib.sha256()
        for file in sorted(self.folder.glob("*.safetensors")):
            with open(file, "rb") as stream:
                found.update(hashlib.file_digest(stream, "sha256").digest())
        return found.hexdigest()[:16]

    @cached_property
    def _caches(self) -> dict[str, CachedEncoder]:
        place, name = self.work / "vectors", f"{self.weights}, bfloat16, {LENGTH} tokens"
        if self.settings != BEHIND_START:
            name += f", {self.settings}"
        several = {TOGETHER[0]: TOGETHER, POOLINGS[-1]: POOLINGS[-1:]}
        return {
            first: CachedEncoder(f"{name}, {', '.join(names)}", partial(self._pooled, names), place)
            for first, names in several.items()
        }

    def _pooled(self, poolings: Sequence[str], texts: list[str]) -> Vectors:
        """Return the embeddings by several poolings beside each other, of one forward pass."""
        import torch

        models = [self.models[name] for name in poolings]
        backbone, readings = models[0].backbone, models[0].encodings(texts)
        found = np.zeros((len(texts), len(models) * backbone.dimension), np.float32)
        for batch in length_batches([len(one.ids) for one in readings], 32):
            some = [readings[n] for n in batch]
            with torch.inference_mode():
                ids, mask, _ = backbone.padded(some)
                hidden = base_states(backbone.model, ids, mask).float()
                parts = [pooled_states(hidden, mask, some, model.settings) for model in models]
            found[batch] = np.concatenate(parts, axis=1)
        if not np.isfinite(found).all():
            raise InputError("the backbone gives NaN or infinity; open it with dtype='float32'")
        return found

    def rows(self, pooling: str, texts: list[str]) -> Vectors:
        """Return the embeddings of texts by one pooling, float32 [n, d]."""
        if pooling not in TOGETHER:
            return np.asarray(self._caches[pooling](texts), np.float32)
        both = self._caches[TOGETHER[0]](texts)
        width = both.shape[1] // len(TOGETHER)
        start = TOGETHER.index(pooling) * width
        return np.asarray(both[:, start : start + width], np.float32)


class Bench:
    """The models, the texts and what was measured."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Open nothing yet."""
        folders = {PLAIN: options.model, TUNED: options.tuned}
        self.options = options
        self.encoders = {name: Encoders(folder, options.work_dir) for name, folder in folders.items()}
        names = [one.weights for one in self.encoders.values()]
        counts = (options.skip, options.texts, options.prompted, options.swept, options.words)
        found = find_tasks(options.data)
        self.tasks = {task.name: task for task in found if task.kind == "Retrieval" and task.name in options.sets}
        self.kept = Kept(options.work_dir / f"key-tokens-{'-'.join([*names, *map(str, counts)])}-.jsonl")

    @cached_property
    def sentences(self) -> list[str]:
        """Sentences that no tuning read."""
        given = read_texts(self.options.data / "raw_english/open_licence.txt.xz")
        return list(islice(given, self.options.skip, self.options.skip + self.options.texts))

    def texts(self, pooling: str) -> list[str]:
        """The sentences for a pooling: PromptEOL reads three times as many tokens, and gets fewer."""
        return self.sentences[: self.options.prompted if pooling == "prompt_eol" else None]

    def centred(self, name: str, pooling: str = "mean") -> KeyTokenEmbedder:
        """Return a model that subtracts the mean embedding of the sentences."""
        encoders, texts = self.encoders[name], self.texts(pooling)
        return encoders.models[pooling].with_adjustment(mean_adjustment(encoders.rows(pooling, texts)))

    def pair(self, pooling: str = "mean") -> dict[str, Vectors]:
        """Return the embeddings of the same sentences by each model."""
        return {name: one.rows(pooling, self.texts(pooling)) for name, one in self.encoders.items()}


# --- Measurements -----------------------------------------------------------------------------------------------------


def precision(bench: Bench) -> dict[str, float]:
    """Return how far bfloat16 gives what float32 gives: first tokens after centring, and the least cosine."""
    encoders, texts = bench.encoders[PLAIN], bench.sentences[:COMPARED]
    exact = encoders.opened("float32")["mean"]
    both = [encoders.rows("mean", texts), exact.embed(texts)]
    both = [rows - rows.mean(axis=0) for rows in both]
    ids = [exact.decode(rows, 10).ids for rows in both]
    shared = [len(set(one) & set(other)) / 10 for one, other in zip(*(found.tolist() for found in ids))]
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in both]
    return {
        "texts": len(texts),
        "shared": float(np.mean(shared)),
        "first": float((ids[0][:, 0] == ids[1][:, 0]).mean()),
        "cosine": float((units[0] * units[1]).sum(axis=1).min()),
    }


def rates(bench: Bench, name: str, pooling: str) -> dict[str, Any]:
    """Return the rates of a model's embeddings, plain and centred, each beside those of another text's embedding."""
    texts, encoders = bench.texts(pooling), bench.encoders[name]
    rows, model = encoders.rows(pooling, texts), encoders.models[pooling]
    given = {}
    for kind, adjustment in (("plain", Adjustment()), ("centred", mean_adjustment(rows))):
        given[kind] = embedded_texts(model.with_adjustment(adjustment), texts, embeddings=rows)
        if name == PLAIN and pooling in ("mean", "prompt_eol"):
            moved = np.roll(np.asarray(given[kind].embeddings), -1, axis=0)  # a control: each has the next text's
            given[f"{kind}, of another text"] = replace(given[kind], embeddings=moved)
    return {"rates": rates_of(given)}


def rates_of(given: dict[str, EmbeddedTexts]) -> dict[str, dict[str, Any]]:
    """Return name -> rates as plain numbers."""
    return {one.name: one._asdict() for one in align_embeddings(given)}


def spectrum(bench: Bench) -> dict[str, Any]:
    """Return the first components of the model as it is, and what the tuning and PromptEOL add to them."""
    pair, prompted = bench.pair(), bench.texts("prompt_eol")
    found = spectrum_of(pair[PLAIN])
    encoders = bench.encoders[PLAIN]
    last, asked = encoders.rows("last", prompted), encoders.rows("prompt_eol", prompted)
    tuned = variation(pair[PLAIN], pair[TUNED], names=(PLAIN, TUNED))
    moved = variation_table([tuned, variation(last, asked, names=("last", "PromptEOL"))])
    facts = {"shares": shares(found)[:5].tolist(), "table": vars(moved)}
    return {**facts, "first": tuned.components[0].variation, "dominance": tuned.dominance}


def adjusted(bench: Bench) -> dict[str, Any]:
    """Return the rates of the first component alone, of the rest, and along the way from one to the other."""
    texts = bench.sentences[: bench.options.swept]
    encoders, pair = bench.encoders[PLAIN], bench.pair()
    found, rows = spectrum_of(pair[PLAIN]), pair[PLAIN][: len(texts)]
    given = embedded_texts(encoders.models["mean"], texts, embeddings=rows)
    first, rest = split(found, rows)
    parts = {
        "whole": given,
        "first component": replace(given, embeddings=first),
        "rest": replace(given, embeddings=rest),
    }
    swept = sweep(found, given, unit=variation(pair[PLAIN], pair[TUNED]).components[0].variation)
    steps = {f"{step.factor:g}": step.alignment._asdict() for step in swept}
    return {"texts": len(texts), "parts": rates_of(parts), "table": vars(sweep_table(swept)), "steps": steps}


def tokens_line(model: KeyTokenEmbedder, row: Any, k: int = 10) -> str:
    """Return the first tokens of an embedding, [d], as the paper writes them."""
    ids = top_tokens(np.asarray(row, np.float32)[None], model.head.weight, k).ids[0].tolist()
    spelled = (model.head.spelled[n].replace("Ġ", "_").replace("Ċ", "\\n") for n in ids)
    return " ".join(spelled).replace("|", "\\|")


def table_2(bench: Bench) -> dict[str, str]:
    """Return the first tokens of the paper's text under every pooling."""
    found = {}
    for name, encoders in bench.encoders.items():
        for pooling in POOLINGS if name == PLAIN else POOLINGS[:1]:
            rows = encoders.rows(pooling, [TABLE_2])
            for kind, model in (("", encoders.models[pooling]), (", centred", bench.centred(name, pooling))):
                found[f"{name}, {pooling}{kind}"] = tokens_line(model, model.adjustment.apply(rows)[0])
    return found


def table_3(bench: Bench, task: str, model: str, head: str) -> dict[str, Any]:
    """Return nDCG@10 of each query, dense and for each K and M, the mean of the documents subtracted."""
    encoders, whole = bench.encoders[model], read_collection(bench.tasks[task])
    collection = replace(whole, documents=[" ".join(text.split()[: bench.options.words]) for text in whole.documents])
    queries, documents = (encoders.rows("mean", part) for part in (collection.queries, collection.documents))
    moved, embedder = mean_adjustment(documents), encoders.models["mean"]
    rows = random_head(embedder) if head == "random" else None
    embedder = KeyTokenEmbedder(embedder.backbone, embedder.settings, head=rows, adjustment=moved)
    return {
        "dense": collection.each_ndcg(dense_hits((moved.apply(queries), moved.apply(documents)), collection)),
        "plain": collection.each_ndcg(dense_hits((queries, documents), collection)),
        "grid": list(sparse_scores(embedder, (queries, documents), collection, KS, MS)),
    }


def comparison(models: dict[str, KeyTokenEmbedder], texts: list[str], told: dict[str, str] | None) -> dict[str, Any]:
    """Return tokens and cosines of a few texts."""
    found = compare_key_tokens(models, texts, instructions=told)
    return {
        "tokens": vars(tokens_table(texts, found)),
        "lines": cosine_lines(found),
        "cosines": [one.cosines for one in found],
        "first": [tokens[0] for tokens in found[-1].tokens],
    }


def values_of(bench: Bench) -> dict[str, Any]:
    """Return all figures; what is not yet known is measured."""
    kept, told = bench.kept, {"no instruction": "", "instruction": INSTRUCTION}
    centred = {f"{name}, mean, centred": bench.centred(name) for name in bench.encoders}
    centred[f"{PLAIN}, PromptEOL, centred"] = bench.centred(PLAIN, "prompt_eol")
    alone: dict[str, Callable[[], Any]] = {
        "precision": partial(precision, bench),
        "spectrum": partial(spectrum, bench),
        "table 2": partial(table_2, bench),
        "table 5": partial(comparison, centred, TABLE_5, None),
        "adjusted": partial(adjusted, bench),
    }
    alone |= {f"table 4 | {name}": partial(comparison, {name: model}, TABLE_4, told) for name, model in centred.items()}
    grid = [{"name": name, "pooling": pooling} for name in bench.encoders for pooling in POOLINGS]
    searched = product(bench.tasks, bench.encoders, ("own", "random"))
    lines = [{"task": task, "model": name, "head": head} for task, name, head in searched]
    found = {name: kept.get(name, measure) for name, measure in alone.items()}
    found["rates"] = Experiment(rates, grid).rows(kept, bench)
    return {**found, "table 3": Experiment(table_3, lines).rows(kept, bench)}


def model_facts(bench: Bench) -> Iterator[tuple[str, Figure]]:
    """Yield what the page says of the run and of the models."""
    options, embedder = bench.options, bench.encoders[PLAIN].models["mean"]
    counts = (f"--{name} {getattr(options, name)}" for name in ("texts", "prompted", "swept", "skip", "words"))
    weights = sum(weight.numel() for weight in embedder.backbone.model.parameters())
    yield "written", f"{datetime.date.today()}; {processor()}"
    yield "options", " ".join(counts)
    yield "model", f"{options.model.name}**, {weights / 1e6:,.1f} million parameters, {len(embedder.head):,} tokens"
    yield "tuning", f"`papers/keytokens/tuning.py` ({(options.tuned / NOTE).read_text(encoding='utf-8')})"


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Measure what is not yet known and yield what the page shows."""
    options.work_dir.mkdir(parents=True, exist_ok=True)
    bench = Bench(options)
    values = values_of(bench)
    yield from model_facts(bench)
    yield from figures(values, FIXED)


if __name__ == "__main__":
    numbers = {
        "texts": (10_000, "general sentences"),
        "prompted": (1_000, "of them, for PromptEOL"),
        "swept": (500, "of them, for the amounts of the first component"),
        "skip": (STEPS * BATCH, "sentences left to the tuning"),
        "words": (50, "of a document that are read"),
    }
    run_script(
        measure,
        {
            "model": {"type": Path, "help": "folder of a causal language model"},
            "--tuned": {"type": Path, "required": True, "help": "folder of the same, tuned for embedding"},
            **{f"--{name}": {"type": int, "default": n, "help": text} for name, (n, text) in numbers.items()},
            "--sets": {"nargs": "*", "default": ["cranfield"], "help": "retrieval sets"},
        },
        data="retrieval/ and raw_english/",
        work_dir="vectors and figures",
    )
