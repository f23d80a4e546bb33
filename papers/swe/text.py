r"""How many places of a word are needed, and whether long text serves as well as sentences.

    python -m papers.swe.text --data shared/data --work-dir work --write

The teacher is all-MiniLM-L6-v2 from its PyPI package, in bfloat16. For the first table a model is made from a word's
first place, its first three, and so on, and another from as many places that come next; for the second from MedQuAD's
answers as passages and as the sentences of these passages. Each pass takes some minutes on one core that has
instructions for bfloat16, and what it gives is kept.
"""

from __future__ import annotations

import argparse
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

from papers.kit import Figure, Kept, Table, experiment, run_script
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
STRETCHES = [(0, count) for count in PLACES] + [(count, 2 * count) for count in PLACES[:-1]]  # of which models are made
LEAST = 400  # sentences that hold a word
WORDS = (2, 20)  # of a sentence
BATCH = 64  # sentences
PASSAGES, LENGTH = 6_000, 100  # of MedQuAD, words of one at least
TRAINING = replace(TRAINED, steps=1_000)
READ = ExtractionSettings(sentence_words=(1, 1_000))
TASKS = ("STS", "Retrieval")
FORMS = ("sentences", "passages")


@dataclass(eq=False)
class Trials:
    """What the models are made of and measured on.

    Attributes:
        data: folder of the data sets.
        work_dir: where the teacher's passes are kept.
    """

    data: Path
    work_dir: Path

    @cached_property
    def teacher(self) -> Any:
        """The teacher, in bfloat16 where that is fast."""
        return in_half(open_teacher())

    def start(self, found: Extraction) -> StaticEmbedder:
        """Return the model of what a pass left, not distilled."""
        return distill_extraction(found, subwords_of(self.teacher), pca=PCA, refinement=UNTRAINED)

    def scores(self, model: StaticEmbedder) -> dict[str, float]:
        """Return the means of STS and retrieval."""
        means = evaluate(model, data=self.data, tasks=TASKS).means
        return {kind: means[kind] for kind in TASKS}

    @cached_property
    def chosen(self) -> tuple[list[str], list[str]]:
        """Words that stand in enough sentences, and sentences that hold each often enough."""
        return chosen_text(self.data / "raw_english" / "open_licence.txt.xz")

    @cached_property
    def sums(self) -> Any:
        """The sums of the teacher's vectors of each word in each stretch of its places: [stretches, words, d].

        Batches hold sentences of one length and come in a random order, so that early places are not the short ones.
        """
        words, texts = self.chosen
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        random.Random(0).shuffle(batches)
        row_of = {word: row for row, word in enumerate(words)}
        stretch_of = np.searchsorted(EDGES, np.arange(EDGES[-1]), side="right") - 1
        sums = np.zeros((len(EDGES) - 1, len(words), self.teacher.get_embedding_dimension()), np.float32)
        seen = np.zeros(len(words), np.int64)
        for batch in batches:
            for row, vector in self._read([texts[number] for number in batch], row_of):
                if seen[row] < EDGES[-1]:
                    sums[stretch_of[seen[row]], row] += vector
                    seen[row] += 1
        return sums

    def _read(self, texts: Sequence[str], row_of: dict[str, int]) -> Iterator[tuple[int, Any]]:
        """Yield the word and the teacher's vector of each place."""
        _, states, spans = forward(self.teacher, texts, "")
        places = [[word._replace(text=word.text.lower()) for word in split_words(text)] for text in texts]
        return zip(*word_vectors(texts, places, states, spans, row_of))

    @cached_property
    def passes(self) -> dict[str, Extraction]:
        """What the teacher's pass leaves of the same text as sentences and as passages."""
        passages = list(medquad_passages(self.data))
        texts = {"sentences": list(chain.from_iterable(passages)), "passages": [" ".join(one) for one in passages]}
        return {name: extract(self.teacher, some, self.work_dir / name, READ) for name, some in texts.items()}


@experiment(*({"first": first, "last": last} for first, last in STRETCHES))
def places_row(trials: Trials, first: int, last: int) -> dict[str, float]:
    """Return the scores of a model of some places of each word, with the same words and sentences for all."""
    words, texts = trials.chosen
    vectors = trials.sums[EDGES.index(first) : EDGES.index(last)].sum(axis=0) / (last - first)
    found = Extraction(words, np.ones(len(words), np.int64), vectors, texts, np.zeros((0, 1), np.float16))
    return trials.scores(trials.start(found))


@experiment(extracted=FORMS, distilled=("-", *FORMS))
def passages_row(trials: Trials, extracted: str, distilled: str) -> dict[str, float]:
    """Return the scores of a model extracted from a form of the text and distilled on one, or not."""
    start = trials.start(trials.passes[extracted])
    return trials.scores(start if distilled == "-" else tuned(start, trials.passes[distilled]))


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


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Make the models that are not measured yet and yield the tables."""
    trials, kept = Trials(options.data, options.work_dir), Kept(options.work_dir / "rows-.jsonl")
    if "places" in options.only:
        scores = {(row["first"], row["last"]): [row[k] for k in TASKS] for row in places_row.rows(kept, trials)}
        lines = [[str(n), *scores[0, n], *scores.get((n, 2 * n), [None] * len(TASKS))] for n in PLACES]
        yield "places", Table(["places of a word", *TASKS, "STS, the next", "Retrieval, the next"], lines)
    if "passages" in options.only:
        rows = [list(row.values()) for row in passages_row.rows(kept, trials)]
        yield "passages", Table(["extracted from", "distilled on", *TASKS], rows, left=2)


if __name__ == "__main__":
    run_script(
        measure, data="raw_english/ and so on", work_dir="state and scores", only=("places", "passages"), threads=1
    )
