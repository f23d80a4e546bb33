"""Make the bundled model `lexicon-en`: which clusters of lexicon-minilm words fire, as a table.

    python recipes/lexicon_en.py --data DATA --e5 FOLDER --work-dir WORK --output src/pellucid/bundled/lexicon-en

DATA holds raw_english and retrieval_train/medquad; FOLDER is multilingual-e5-small. The teachers' passes take about an
hour on two cores each and go on where they stopped; those of `static-en` are the same and may be used. Training takes
minutes.

The head of lexicon-minilm is read at the mean state that all-MiniLM-L6-v2 has for a word in sentences. The weights are
then trained: the cosines of sentences follow those of both teachers, and questions find their answers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from pellucid import ExtractionSettings, LexiconEmbedder, RefinementSettings, StaticLexiconEmbedder
from pellucid.base import unit_rows
from pellucid.lexicon import WordClusters, fired_clusters, named_by_words, refine_clusters
from pellucid.static import Bags, Extraction, PairBags, extract, subwords_of
from pellucid.text import Vocabulary
from pellucid.workfolder import WorkFolder
from static_en import open_teacher

EXTRACTION = ExtractionSettings(sentence_words=(2, 32), enough=50)
WORDS = 95_000
CLUSTERS_OF_A_WORD = 48
SENTENCES = 229_376  # trained on
REFINEMENT = RefinementSettings(steps=1_200, learning_rate=0.03, evaluate_every=100, pair_share=0.25)
ANSWER = 120  # words of an answer
HELD_OUT = 26  # of 256 parts of MedQuAD's subjects: what settings were chosen by


def joint_vectors(first: Extraction, second: Extraction) -> np.ndarray:
    """Return the sentence vectors of both teachers side by side, each centred and with half the weight."""
    count = len(second.sentences)
    if first.sentences[:count] != second.sentences:
        raise SystemExit("the teachers read different sentences; give an empty --work-dir")
    parts = [one.teacher_vectors[:count].astype(np.float32) for one in (first, second)]
    return np.hstack([(unit_rows(part - part.mean(axis=0)) * np.sqrt(0.5)).astype(np.float16) for part in parts])


def start_table(lexicon: LexiconEmbedder, states: np.ndarray, bags: Bags) -> Any:
    """Return the clusters that words fire, the rarer words more strongly."""
    counts = np.bincount(bags.rows, minlength=len(states))
    rarity = np.log((len(bags) + 1) / (counts + 1)) / 8
    fired = fired_clusters(states, lexicon.clusters, lexicon.bias, most=CLUSTERS_OF_A_WORD)
    return sparse.csr_matrix(sparse.diags_array(rarity.astype(np.float32)) @ fired)


def questions(data: Path) -> Iterator[tuple[str, str]]:
    """Yield MedQuAD's questions (CC BY 4.0) and the beginnings of their answers, but for a tenth of the subjects."""
    with lzma.open(data / "retrieval_train" / "medquad" / "qa.jsonl.xz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            if hashlib.md5((row["focus"] or "").lower().encode()).digest()[0] >= HELD_OUT:
                yield row["question"], " ".join(row["answer"].split()[:ANSWER])


def make(data: Path, e5: Path, work: Path) -> StaticLexiconEmbedder:
    """Return the model."""
    from sentence_transformers import SentenceTransformer

    corpus, teacher = data / "raw_english" / "open_licence.txt.xz", open_teacher()
    taken = extract(teacher, corpus, work / "minilm", EXTRACTION)
    asked = replace(EXTRACTION, prompt="query: ", max_sentences=SENTENCES)
    second = extract(SentenceTransformer(str(e5), device="cpu"), corpus, work / "e5", asked)
    seen = np.flatnonzero(np.any(taken.vectors != 0, axis=1))[:WORDS]
    vocabulary = Vocabulary([taken.words[row] for row in seen], subwords_of(teacher))
    bags = Bags.of(second.sentences, vocabulary)
    lexicon = LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=teacher[0].auto_model.name_or_path)
    asking, answering = zip(*questions(data), strict=True)
    pairs = [PairBags("medical questions", Bags.of(asking, vocabulary), Bags.of(answering, vocabulary))]
    start, vectors = start_table(lexicon, taken.vectors[seen], bags), joint_vectors(taken, second)
    with WorkFolder(work / "training") as folder:
        table = refine_clusters(start, bags, vectors, REFINEMENT, pairs=pairs, work=folder)
    table = WordClusters.of(table)
    weights = table.rows(np.arange(len(vocabulary)), len(lexicon.clusters))
    model = StaticLexiconEmbedder(vocabulary, table, named_by_words(vocabulary, weights))
    return model.keep(*np.unique(table.clusters).tolist())


def main() -> None:
    """Read the arguments and make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--e5", type=Path, required=True, help="folder of multilingual-e5-small")
    parser.add_argument("--work-dir", type=Path, required=True, help="where passes and training keep their state")
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    arguments = parser.parse_args()
    model = make(arguments.data, arguments.e5, arguments.work_dir)
    model.save_pretrained(arguments.output)
    shutil.copy(Path(__file__).with_name("lexicon_en_card.md"), arguments.output / "README.md")
    print(f"{arguments.output}: {model}, {len(model.table.clusters) / len(model.vocabulary):.1f} clusters a word")


if __name__ == "__main__":
    main()
