r"""Make the bundled model `lexicon-en`: which clusters of lexicon-minilm words fire, as a table.

    python -m recipes.lexicon_en --corpus open_licence.txt.xz --e5 FOLDER --work-dir WORK \
        --output src/pellucid/bundled/lexicon-en

The corpus is the one static-en was made from; FOLDER is multilingual-e5-small. Both teachers read in bfloat16 on
a processor that has instructions for it, where a pass takes some ten minutes, else in float32, which takes an hour; it
goes on where it stopped.

The head of lexicon-minilm is read at the mean state that all-MiniLM-L6-v2 has for a word in sentences; a word that
hardly occurs there takes the clusters of the words nearest to it in static-en. The weights are then trained so that the
cosines of sentences follow those of both teachers.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import pellucid
from pellucid import LexiconEmbedder, StaticEmbedder, StaticLexiconEmbedder
from pellucid.core.arrays import l2_normalize, largest_coordinates
from pellucid.lexicon.static import WordClusters
from pellucid.static import ExtractionSettings, RefinementSettings
from pellucid.static.bags import Bags
from pellucid.static.training.extraction import Extraction, extract
from recipes.lexicon_table import fired_clusters, named_by_words, refine_clusters
from recipes.several_teachers import join_extractions
from recipes.static_en import open_teacher
from recipes.static_multi import in_half

EXTRACTION = ExtractionSettings(sentence_words=(2, 32), enough=50, max_sentences=229_376)
REFINEMENT = RefinementSettings(steps=1_200, learning_rate=0.03, evaluate_every=200)
READ, TRAINED, KEPT = 64, 40, 33  # clusters of a word: read from the head, trained, kept in the end
RARE = 3  # a word that occurs less often is helped by its neighbours
NEIGHBOURS = 8
BLOCK = 256  # words whose neighbours are looked for at a time


def start_table(lexicon: LexiconEmbedder, words: StaticEmbedder, taken: Extraction, bags: Bags) -> Any:
    """Return the clusters that words fire, the rarer words more strongly, CSR [words, k]."""
    place = {word: row for row, word in enumerate(taken.words)}
    rows = np.array([place.get(word, -1) for word in words.vocabulary.words])
    states = np.where(rows[:, None] >= 0, taken.vectors[rows], 0)
    fired = fired_clusters(states, lexicon.clusters, lexicon.bias, most=READ)
    seen, counts = np.any(states != 0, axis=1), np.where(rows >= 0, taken.counts[rows], 0)
    common = seen & (counts >= RARE)
    own = np.where(common, 1.0, np.where(seen, 0.5, 0.0))  # the share of a word's own clusters
    helped = sparse.diags_array(1 - own) @ nearest(words, common) @ fired
    table = largest_coordinates(sparse.csr_matrix(sparse.diags_array(own) @ fired + helped), TRAINED)
    rarity = np.log((len(bags) + 1) / (np.bincount(bags.rows, minlength=len(own)) + 1)) / 8
    return sparse.csr_matrix(sparse.diags_array(rarity) @ table, dtype=np.float32)


def nearest(words: StaticEmbedder, common: np.ndarray) -> Any:
    """Return the shares of the nearest common words in each word that is not common, CSR [words, words]."""
    vectors = l2_normalize(words.word_vectors(np.arange(len(common))))
    known, others, parts = np.flatnonzero(common), np.flatnonzero(~common), []
    candidates = vectors[known]
    for start in range(0, len(others), BLOCK):
        asked = others[start : start + BLOCK]
        cosines = vectors[asked] @ candidates.T
        best = np.argpartition(-cosines, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
        weights = np.take_along_axis(cosines, best, axis=1).clip(0) ** 3
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-6)
        parts.append((np.repeat(asked, NEIGHBOURS), known[best].ravel(), weights.ravel()))
    rows, columns, shares = map(np.concatenate, zip(*parts, strict=True))
    return sparse.csr_matrix((shares, (rows, columns)), shape=(len(common), len(common)))


def make(corpus: Path, e5: Path, work: Path) -> StaticLexiconEmbedder:
    """Return the model."""
    from sentence_transformers import SentenceTransformer

    teacher, words = open_teacher(), pellucid.load("static-en")
    taken = extract(in_half(teacher), corpus, work / "minilm", EXTRACTION)
    asked = replace(EXTRACTION, prompt="query: ")
    second = extract(in_half(SentenceTransformer(str(e5), device="cpu")), corpus, work / "e5", asked)
    vectors = join_extractions([taken, second]).teacher_vectors
    bags = Bags.from_sentences(taken.sentences, words.vocabulary)
    lexicon = LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=teacher[0].auto_model.name_or_path)
    table = refine_clusters(start_table(lexicon, words, taken, bags), bags, vectors, REFINEMENT)
    rounded = WordClusters.from_weights(largest_coordinates(table, KEPT))
    weights = rounded.rows(np.arange(len(words.vocabulary)), table.shape[1])
    model = StaticLexiconEmbedder(words.vocabulary, rounded, named_by_words(words.vocabulary, weights))
    return model.keep(*np.unique(rounded.clusters).tolist())


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
