r"""How many places of a word are needed, and whether long text serves as well as sentences.

    python -m papers.swe.text --data shared/data --work-dir work --write

The teacher is all-MiniLM-L6-v2 from its PyPI package, in bfloat16. For the first table a model is made from a word's
first place, its first three, and so on, and another from as many places that come next; for the second from MedQuAD's
answers as passages and as the sentences of these passages. Each pass takes some minutes on one core that has
instructions for bfloat16, and what it gives is kept.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from papers.kit import Figure, Table, run_script
from papers.local_tasks import read_records
from papers.swe.trials import PCA, TRAINED, UNTRAINED
from pellucid import StaticEmbedder, evaluate
from pellucid.static import ExtractionSettings
from pellucid.static.bags import Bags
from pellucid.static.training.distill import distill_extraction, subwords_of
from pellucid.static.training.extraction import Extraction, extract, forward, word_vectors
from pellucid.static.training.tuning import refine
from pellucid.text.tables import read_texts
from pellucid.text.words import split_words
from recipes.several_teachers import join_extractions
from recipes.static_en import open_teacher
from recipes.static_multi import in_half

PLACES = (1, 3, 10, 30, 100, 200)  # of each word
EDGES = sorted({0, *PLACES, *(2 * count for count in PLACES[:-1])})  # between the stretches of places summed apart
LEAST = 400  # sentences that hold a word
WORDS = (2, 20)  # of a sentence
BATCH = 64  # sentences
PASSAGES, LENGTH = 6_000, 100  # of MedQuAD, words of one at least
TRAINING = replace(TRAINED, steps=1_000)
READ = ExtractionSettings(sentence_words=(1, 1_000))
TASKS = ("STS", "Retrieval")


@dataclass(eq=False)
class Trials:
    """What the models are made of and measured on.

    Attributes:
        data: folder of the data sets.
        work_dir: where state and scores are kept.
    """

    data: Path
    work_dir: Path

    @cached_property
    def teacher(self) -> Any:
        """The teacher, in bfloat16 where that is fast."""
        return in_half(open_teacher())

    def scores(self, model: StaticEmbedder) -> list[float]:
        """Return the means of STS and retrieval."""
        means = evaluate(model, data=self.data, tasks=TASKS, cache_dir=self.work_dir / "scores").means
        return [means[kind] for kind in TASKS]

    def places(self) -> Table:
        """Return what each number of places gives, with the same words and sentences."""
        words, texts = chosen_text(self.data / "raw_english" / "open_licence.txt.xz")
        print(f"{len(words):,} words, {len(texts):,} sentences", flush=True)
        sums = self.place_sums(words, texts)

        def model(first: int, last: int) -> StaticEmbedder:
            inside = slice(EDGES.index(first), EDGES.index(last))
            vectors = sums[inside].sum(axis=0) / (last - first)
            found = Extraction(words, np.ones(len(words), np.int64), vectors, texts, np.zeros((0, 1), np.float16))
            return distill_extraction(found, subwords_of(self.teacher), pca=PCA, refinement=UNTRAINED)

        rows = [
            [str(count), *self.scores(model(0, count)), *(self.scores(model(count, 2 * count)) if more else [None] * 2)]
            for count, more in zip(PLACES, [*PLACES[1:], None])
        ]
        return Table(["places of a word", *TASKS, "STS, the next", "Retrieval, the next"], rows)

    def place_sums(self, words: Sequence[str], texts: Sequence[str]) -> Any:
        """Return the sums of the teacher's vectors of each word in each stretch of its places: [stretches, words, d].

        Batches hold sentences of one length and come in a random order, so that early places are not the short ones.
        """
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        random.Random(0).shuffle(batches)
        row_of = {word: row for row, word in enumerate(words)}
        stretch_of = np.searchsorted(EDGES, np.arange(EDGES[-1]), side="right") - 1
        digest = hashlib.sha256(repr([EDGES, *words, *texts]).encode()).hexdigest()[:16]
        path = self.work_dir / f"places-{digest}.npy"
        if not path.exists():
            sums = np.zeros((len(EDGES) - 1, len(words), self.teacher.get_embedding_dimension()), np.float32)
            seen = np.zeros(len(words), np.int64)
            for batch in batches:
                for row, vector in self._read([texts[number] for number in batch], row_of):
                    if seen[row] < EDGES[-1]:
                        sums[stretch_of[seen[row]], row] += vector
                        seen[row] += 1
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, sums)
        return np.load(path)

    def _read(self, texts: Sequence[str], row_of: dict[str, int]) -> Iterator[tuple[int, Any]]:
        """Yield the word and the teacher's vector of each place."""
        _, states, spans = forward(self.teacher, texts, "")
        places = [[word._replace(text=word.text.lower()) for word in split_words(text)] for text in texts]
        return zip(*word_vectors(texts, places, states, spans, row_of))

    def passages(self) -> Table:
        """Return what the same text gives as passages and as sentences, to the teacher's pass and to distillation."""
        passages = list(medquad_passages(self.data))
        texts = {"sentences": list(chain.from_iterable(passages)), "passages": [" ".join(one) for one in passages]}
        read = {name: extract(self.teacher, some, self.work_dir / name, READ) for name, some in texts.items()}
        rows = []
        for name, found in read.items():
            print(f"{name}: {len(found.sentences):,}", flush=True)
            start = distill_extraction(found, subwords_of(self.teacher), pca=PCA, refinement=UNTRAINED)
            rows.append([name, "-", *self.scores(start)])
            rows += [[name, other, *self.scores(tuned(start, read[other]))] for other in read]
        return Table(["extracted from", "distilled on", *TASKS], rows, left=2)


def chosen_text(corpus: Path) -> tuple[list[str], list[str]]:
    """Return the words that stand in enough sentences, and sentences that hold each often enough.

    The rarest word chooses first, so that what it takes serves the others.
    """
    texts, holding = list(read_texts(corpus)), defaultdict(list)
    for number, text in enumerate(texts):
        found = lower_words(text)
        if WORDS[0] <= len(found) <= WORDS[1]:
            for word in found:
                holding[word].append(number)
    common = [word for word in holding if len(holding[word]) >= LEAST]
    words = sorted(common, key=lambda word: len(holding[word]))
    seen, taken = Counter[str](), set[int]()
    for word in words:
        for number in holding[word]:
            if seen[word] >= EDGES[-1]:
                break
            if number not in taken:
                taken.add(number)
                seen.update(lower_words(texts[number]))
    return words[::-1], [texts[number] for number in sorted(taken)]


def lower_words(text: str) -> set[str]:
    """Return the words of a text, in lower case."""
    return {word.text.lower() for word in split_words(text)}


def medquad_passages(data: Path) -> Iterator[list[str]]:
    """Yield passages of MedQuAD's answers, each a list of its sentences, from all of them in turn."""
    answers = dict.fromkeys(" ".join(one["answer"].split()) for one in
                            read_records(data / "retrieval_train/medquad/qa.jsonl.xz", ["answer"]))  # fmt: skip
    found = []
    for answer in random.Random(0).sample(list(answers), len(answers)):
        passage: list[str] = []
        for sentence in re.split(r"(?<=[.!?]) +(?=[A-Z])", answer):
            passage.append(sentence)
            if sum(len(part.split()) for part in passage) >= LENGTH:
                found.append(passage)
                passage = []
        if len(found) >= PASSAGES:
            break
    yield from found[:PASSAGES]


def tuned(start: StaticEmbedder, read: Extraction) -> StaticEmbedder:
    """Return a model distilled on some text."""
    vectors, bags = (
        start.word_vectors(np.arange(len(start.vocabulary))),
        Bags.from_sentences(read.sentences, start.vocabulary),
    )
    teacher = join_extractions([read]).teacher_vectors
    return StaticEmbedder(start.vocabulary, refine(vectors, bags, teacher, TRAINING))


TABLES = {"places": Trials.places, "passages": Trials.passages}


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Make the models and yield the tables."""
    trials = Trials(options.data, options.work_dir)
    for name in options.only:
        yield name, TABLES[name](trials)


if __name__ == "__main__":
    run_script(measure, data="raw_english/ and so on", work_dir="state and scores", only=TABLES, threads=1)
