r"""How many principal components hold the variance of extracted vectors (footnote 8 of the static-word paper).

    python -m papers.swe.variance --data shared/data --state "all-mpnet-base-v2=FOLDER" --write

FOLDER is the work folder in which `pellucid.static` keeps a teacher's pass over the corpus of static-en, or what it has
of a pass so far. Components are those of step 2, of sentence means of word vectors, and those of the words' vectors.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from papers.kit import Figure, Table, run_script
from papers.spectra import shares
from papers.swe.tables import name_and_model
from pellucid.core.embedder import Vectors
from pellucid.core.pca import Moments
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.static.bags import Bags
from pellucid.static.training.extraction import usable_sentences
from pellucid.text.tables import read_texts
from pellucid.text.words import Vocabulary
from recipes.static_en import EXTRACTION

VARIANCE = (0.9, 0.95, 0.99)
KEPT_DIMENSIONS = (1 / 3, 2 / 3)  # of all; the paper keeps 256 of 768
BLOCK_SENTENCES = 4_096
MIN_OCCURRENCES = (1, 10)


def extracted(folder: Path, corpus: Path) -> tuple[list[str], np.ndarray, Vectors, list[str]]:
    """Return the words, how often each was seen, their vectors, and the sentences of a pass, whole or not."""
    with WorkFolder(folder) as work:
        tensors, words = work.load("sums"), list(read_texts(work.file("words")))
        n_sentences = len(work.array("teacher"))
    occurrences = np.array(tensors["used"])
    vectors = (np.array(tensors["sums"]) / np.maximum(occurrences, 1)[:, None]).astype(np.float32)
    return words, occurrences, vectors, list(islice(usable_sentences(corpus, EXTRACTION), n_sentences))


def variance_rows(teacher: str, folder: Path, corpus: Path) -> Iterator[list[Any]]:
    """Yield rows of the table: of sentences and of words, of all words and of those seen more often."""
    words, occurrences, vectors, sentences = extracted(folder, corpus)
    for least in MIN_OCCURRENCES:
        seen = np.flatnonzero(occurrences >= least)
        bags = Bags.from_sentences(sentences, Vocabulary([words[n] for n in seen.tolist()]))
        filled = np.flatnonzero(np.diff(bags.offsets))
        means, each = Moments(), Moments()
        for start in range(0, len(filled), BLOCK_SENTENCES):
            means.add(bags.take(filled[start : start + BLOCK_SENTENCES]).means(vectors[seen]))
        each.add(vectors[seen])
        which = f", words seen {least} times or more" if least > 1 else ""
        for title, moments in (("sentences", means), ("words", each)):
            yield [f"{teacher}, {title}{which}", f"{moments.count:,}", str(len(moments.mean)), *cells(moments)]


def cells(moments: Moments) -> list[str]:
    """Return how many components hold each share of the variance, and the share that some of them hold."""
    held = np.cumsum(shares(moments.spectrum(centred=True)))
    counts = [str(int(np.searchsorted(held, share)) + 1) for share in VARIANCE]
    return counts + [f"{held[round(len(moments.mean) * part) - 1]:.1%}" for part in KEPT_DIMENSIONS]


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the table."""
    corpus = options.data / "raw_english" / "open_licence.txt.xz"
    rows = [row for name, folder in options.state for row in variance_rows(name, Path(folder), corpus)]
    columns = [*(f"for {share:.0%}" for share in VARIANCE), "a third holds", "two thirds hold"]
    yield "variance", Table(["components of", "vectors", "dimensions", *columns], rows)


if __name__ == "__main__":
    run_script(
        measure,
        {"--state": {"action": "append", "required": True, "type": name_and_model, "metavar": "NAME=FOLDER"}},
        data="raw_english/",
        threads=1,
    )
