r"""Make the bundled model `lexicon-en`: which clusters of lexicon-minilm words fire, as a table.

    python recipes/lexicon_en.py --corpus open_licence.txt.xz --e5 FOLDER --work-dir WORK \
        --output src/pellucid/bundled/lexicon-en

The corpus is the one static-en was made from; FOLDER is multilingual-e5-small. The teachers' passes take about an hour
on two cores each and go on where they stopped. Training takes minutes.

The head of lexicon-minilm is read at the mean state that all-MiniLM-L6-v2 has for a word in sentences. The weights are
then trained: the cosines of sentences follow those of both teachers. Questions with their answers (MedQuAD) as a
quarter of the batches made STS and retrieval worse.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from pellucid import ExtractionSettings, LexiconEmbedder, RefinementSettings, StaticLexiconEmbedder
from pellucid.base import unit_rows
from pellucid.lexicon import WordClusters, fired_clusters, named_by_words, refine_clusters
from pellucid.static import Bags, Extraction, extract, subwords_of
from pellucid.text import Vocabulary
from pellucid.workfolder import WorkFolder
from static_en import open_teacher

EXTRACTION = ExtractionSettings(sentence_words=(2, 32), enough=50)
WORDS = 95_000
CLUSTERS_OF_A_WORD = 48
SENTENCES = 229_376  # trained on
REFINEMENT = RefinementSettings(steps=1_200, learning_rate=0.03, evaluate_every=200)


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


def make(corpus: Path, e5: Path, work: Path) -> StaticLexiconEmbedder:
    """Return the model."""
    from sentence_transformers import SentenceTransformer

    teacher = open_teacher()
    taken = extract(teacher, corpus, work / "minilm", EXTRACTION)
    asked = replace(EXTRACTION, prompt="query: ", max_sentences=SENTENCES)
    second = extract(SentenceTransformer(str(e5), device="cpu"), corpus, work / "e5", asked)
    seen = np.flatnonzero(np.any(taken.vectors != 0, axis=1))[:WORDS]
    vocabulary = Vocabulary([taken.words[row] for row in seen], subwords_of(teacher))
    bags = Bags.of(second.sentences, vocabulary)
    lexicon = LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=teacher[0].auto_model.name_or_path)
    start, vectors = start_table(lexicon, taken.vectors[seen], bags), joint_vectors(taken, second)
    with WorkFolder(work / "training") as folder:
        table = refine_clusters(start, bags, vectors, REFINEMENT, work=folder)
    table = WordClusters.of(table)
    weights = table.rows(np.arange(len(vocabulary)), len(lexicon.clusters))
    model = StaticLexiconEmbedder(vocabulary, table, named_by_words(vocabulary, weights))
    return model.keep(*np.unique(table.clusters).tolist())


def main() -> None:
    """Read the arguments and make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--e5", type=Path, required=True, help="folder of multilingual-e5-small")
    parser.add_argument("--work-dir", type=Path, required=True, help="where passes and training keep their state")
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    arguments = parser.parse_args()
    model = make(arguments.corpus, arguments.e5, arguments.work_dir)
    model.save_pretrained(arguments.output)
    shutil.copy(Path(__file__).with_name("lexicon_en_card.md"), arguments.output / "README.md")
    print(f"{arguments.output}: {model}, {len(model.table.clusters) / len(model.vocabulary):.1f} clusters a word")


if __name__ == "__main__":
    main()
