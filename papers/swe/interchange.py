r"""How often a static model's folder gives other libraries our vectors; prints the tables of docs/static-measured.md.

    python -m papers.swe.interchange --data shared/data

sentence-transformers and model2vec know the strings that were written out when the folder was saved, not the rule that
finds a word out of vocabulary by its prefix. Measured are sentences of the training corpus (whose words were written
out), of Wikipedia (the answers of WikiQA), of the STS sets, and of the documents of the retrieval sets, all but the
first from texts that were not read when the vocabulary was made.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

import pellucid
from papers.kit import Figure, Table, run_script
from papers.retrieval_sets import dense_score, read_collection
from pellucid.core.embedder import Vectors
from pellucid.evaluation.tasks import find_tasks, read_records, read_sts
from pellucid.persistence.folder import locate
from pellucid.text.corpus import read_texts
from pellucid.text.words import split_words

_MOST = 20_000  # sentences of a set
_SAME = 1e-5  # the largest difference of a coordinate that counts as the same vector


def texts_of(data: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of a set and its sentences, each once."""
    corpus = read_texts(data / "raw_english" / "open_licence.txt.xz")
    yield "the training corpus", list(islice(corpus, _MOST))
    tasks = find_tasks(data)
    answers = read_records(data / "reranking" / "wikiqa" / "test.jsonl", ["positive", "negative"])
    yield "WikiQA", sorted({text for record in answers for text in (*record["positive"], *record["negative"])})
    pairs = [read_sts(task) for task in tasks if task.kind == "STS"]
    yield "STS, six sets", sorted({text for part in pairs for text in (*part.sentences1, *part.sentences2)})
    for task in tasks:
        if task.kind == "Retrieval":
            documents = read_collection(task).documents
            cut = {part for text in documents for part in re.split(r"(?<=[.!?])\s+", text) if split_words(part)}
            yield task.name, sorted(cut)


def same_rows(ours: Vectors, theirs: Vectors) -> npt.NDArray[np.bool_]:
    """Return which rows are equal, bool [n]."""
    return np.asarray(np.abs(ours - theirs).max(axis=1) <= _SAME)


def row_of(model: Any, texts: list[str], folders: list[str]) -> list[str]:
    """Return a line of the table: the shares for each folder, and for the first the mean cosine of the others."""
    ours = model.encode(texts)
    shares: list[str] = []
    cosine = "-"
    for folder in folders:
        for encode in readers(folder).values():
            theirs = encode(texts)
            same = same_rows(ours, theirs)
            shares.append(f"{same.mean():.1%}")
            if len(shares) == 1 and not same.all():
                cosine = f"{(ours[~same] * theirs[~same]).sum(axis=1).mean():.3f}"
    return [f"{len(texts):,}", *shares[:2], cosine, *shares[2:]]


def readers(folder: str) -> dict[str, Callable[[list[str]], Vectors]]:
    """Return what opens the folder without us."""
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer

    plain: Any = SentenceTransformer(folder, device="cpu")
    static = StaticModel.from_pretrained(folder)
    return {
        "sentence-transformers": lambda texts: np.asarray(plain.encode(texts, show_progress_bar=False), np.float32),
        "model2vec": lambda texts: np.asarray(static.encode(texts), np.float32),
    }


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the shares of equal vectors, and what that is worth in retrieval."""
    model: Any = pellucid.load(options.model)
    sets = {name: evenly(texts) for name, texts in texts_of(options.data)}
    words = {word.text for texts in sets.values() for text in texts for word in split_words(text)}
    libraries = ["sentence-transformers", "model2vec", "cosine of the others", "with `extra_words`", ""]
    with TemporaryDirectory() as place:
        told = str(Path(place) / "model")
        model.save_pretrained(told, extra_words=words)
        folders = [str(locate(options.model)), told]
        yield (
            "vectors",
            Table(
                ["", "sentences", *libraries], [[name, *row_of(model, texts, folders)] for name, texts in sets.items()]
            ),
        )
    yield "retrieval", retrieval_table(model, options.data)


def retrieval_table(model: Any, data: Path) -> Table:
    """Return nDCG@10 in sentence-transformers, by the words that the folder was told."""
    rows = []
    for task in find_tasks(data):
        if task.kind != "Retrieval":
            continue
        collection = read_collection(task)
        found = [dense_score((model.encode(collection.queries), model.encode(collection.documents)), collection)]
        words: set[str] = set()
        plain, more = locate(model.source), 0
        with TemporaryDirectory() as place:
            for texts in ([], collection.documents, collection.queries):
                words |= {word.text for text in texts for word in split_words(text)}
                told = Path(place) / str(len(words))
                if words:
                    model.save_pretrained(told, extra_words=words)
                    more = _bytes(told) - _bytes(plain)
                encode = readers(str(told if words else plain))["sentence-transformers"]
                found.append(dense_score((encode(collection.queries), encode(collection.documents)), collection))
        rows.append([task.name, *found, more / 1e6])
    columns = ["here", "there, as bundled", "with the documents' words", "and the queries'", "megabytes more"]
    return Table(["nDCG@10", *columns], rows)


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def evenly(texts: list[str]) -> list[str]:
    """Return at most `_MOST` of the texts, evenly spread."""
    return [texts[n] for n in np.linspace(0, len(texts) - 1, min(_MOST, len(texts))).astype(int)]


if __name__ == "__main__":
    run_script(measure, {"--model": {"default": "static-en", "help": "a static model"}}, data="sts/ and retrieval/")
