"""Make the bundled model `static-multi`: English, German, French, Chinese and Japanese in one space.

    python -m recipes.static_multi --corpus open_licence.txt.xz --parallel DATA/parallel/tatoeba --e5 FOLDER \
        --minilm FOLDER --work-dir WORK --output src/pellucid/bundled/static-multi

The corpus is English, one sentence a line: that of `static-en`. The folder of the sentence pairs holds en-de.tsv.xz and
so on: Tatoeba's sentences (CC BY 2.0 FR, by way of manythings.org/anki) with those of the test sets left out. --e5 is
the folder of intfloat/multilingual-e5-small. Its states at the words are the vectors that training starts from.
--minilm is that of all-MiniLM-L6-v2, which reads the English sentences, and of the others their translations. Then the
table is trained towards the similarities of both in all languages and, in the same runs, on translations, and its
spelling is fitted, for words that it does not know. The teachers read in bfloat16 on a processor that has instructions
for it, and it all takes twenty minutes on two cores there; else in float32, which takes hours. It goes on where it
stopped.
"""

from __future__ import annotations

import argparse
import random
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from papers.vector_cache import CachedEncoder
from pellucid import StaticEmbedder
from pellucid.static import (
    ExtractionSettings,
    PcaSettings,
    RefinementSettings,
    TuningSettings,
    fit_spelling,
    read_parallel,
)
from pellucid.static.bags import Bags
from pellucid.static.training.extraction import Extraction, extract
from pellucid.static.training.languages import join_languages, pair_bags
from pellucid.static.training.tuning import refine
from pellucid.transformer.backbone import half_dtype
from recipes.several_teachers import join_extractions
from recipes.static_languages import add_languages

WORDS = {"en": 34_000, "de": 18_000, "fr": 14_200, "zh": 14_400, "ja": 12_900}
"""How many words of a language that e5 saw are kept at most, the most frequent."""

ENGLISH = ExtractionSettings(sentence_words=(2, 32), enough=50, max_sentences=229_376)
FOREIGN = ExtractionSettings(enough=20, max_sentences=32_768)
PCA = PcaSettings(dimensions=256, drop=7)
UNSEEN = 26_000  # words of a language
"""Words and characters of the pairs that e5 did not see: they start from the translations of their sentences."""

REFINEMENT = RefinementSettings(steps=9_000, learning_rate=0.015)
THEN = RefinementSettings(steps=9_000, learning_rate=0.01, pair_share=0.85)


def open_e5(folder: str) -> Any:
    """Return multilingual-e5-small, which reads every sentence as a query."""
    from sentence_transformers import SentenceTransformer

    return in_half(SentenceTransformer(folder, device="cpu", prompts={"query": "query: "}, default_prompt_name="query"))


def open_minilm(folder: str) -> Any:
    """Return all-MiniLM-L6-v2."""
    from sentence_transformers import SentenceTransformer

    return in_half(SentenceTransformer(folder, device="cpu"))


def in_half(teacher: Any) -> Any:
    """Return a teacher in bfloat16 where this processor computes in it, as it is elsewhere."""
    import torch

    return teacher.to(getattr(torch, half_dtype()))


def words_of(found: Extraction, most: int) -> Extraction:
    """Return the most frequent words of a language that the teacher saw."""
    rows = np.flatnonzero(np.any(found.vectors != 0, axis=1))[:most]
    return Extraction([found.words[row] for row in rows], found.counts[rows], found.vectors[rows], found.sentences)


def foreign_text(parallel: Path, language: str) -> list[str]:
    """Return the sentences of one language, each once, in a shuffled order."""
    texts = list(_translations(parallel, language))
    random.Random(0).shuffle(texts)
    return texts


def _translations(parallel: Path, language: str) -> dict[str, str]:
    """Return the first English translation of each sentence of a language."""
    english: dict[str, str] = {}
    for sentence, foreign in read_parallel(parallel / f"en-{language}.tsv.xz", ("en", language)):
        english.setdefault(foreign, sentence)
    return english


def joint_teacher(found: Extraction, minilm: CachedEncoder, english: list[str]) -> npt.NDArray[np.float16]:
    """Return the vectors of e5 for the sentences of a language and those of MiniLM for their `english`, together."""
    second = replace(found, teacher_vectors=minilm(english).astype(np.float16))
    return join_extractions([found, second]).teacher_vectors


def start_table(found: Mapping[str, Extraction], files: Mapping[tuple[str, str], Path]) -> StaticEmbedder:
    """Return the table that training starts from."""
    brought = {language: words_of(one, WORDS[language]) for language, one in found.items()}
    start = join_languages(brought, files, None, PCA, TuningSettings(steps=0))
    more = add_languages(start, files, vocabulary=UNSEEN, tuning=TuningSettings(steps=0))
    return StaticEmbedder(more.vocabulary, np.vstack([start.vectors, more.vectors[len(start.vocabulary) :]]))


def make(e5: Any, minilm: Any, corpus: Path, parallel: Path, work_dir: Path) -> StaticEmbedder:
    """Return the model."""
    files = {("en", language): parallel / f"en-{language}.tsv.xz" for language in WORDS if language != "en"}
    encode = partial(minilm.encode, batch_size=128, normalize_embeddings=True, show_progress_bar=False)
    second = CachedEncoder("minilm", encode, work_dir)
    found = {"en": extract(e5, corpus, work_dir / "en", ENGLISH)}
    teacher = [joint_teacher(found["en"], second, list(found["en"].sentences))]
    for _, language in files:
        settings, english = replace(FOREIGN, language=language), _translations(parallel, language)
        found[language] = extract(e5, foreign_text(parallel, language), work_dir / language, settings)
        sentences = [english[sentence] for sentence in found[language].sentences]
        teacher.append(joint_teacher(found[language], second, sentences))  # each language less its mean
    start = start_table(found, files)
    pairs = [pair_bags(path, codes, start.vocabulary) for codes, path in files.items()]
    bags = Bags.from_sentences([text for one in found.values() for text in one.sentences], start.vocabulary)
    vectors = start.vectors
    for settings in (REFINEMENT, THEN):
        vectors = refine(vectors, bags, np.concatenate(teacher), settings, pairs=pairs)
    return fit_spelling(StaticEmbedder(start.vocabulary, vectors))


def main() -> None:
    """Read the arguments and make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="English, one sentence a line")
    parser.add_argument("--parallel", type=Path, required=True, help="folder of en-de.tsv.xz and so on")
    parser.add_argument("--e5", required=True, help="folder of multilingual-e5-small")
    parser.add_argument("--minilm", required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--work-dir", type=Path, required=True, help="where the teacher's passes keep their state")
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    arguments = parser.parse_args()
    teachers = open_e5(arguments.e5), open_minilm(arguments.minilm)
    model = make(*teachers, arguments.corpus, arguments.parallel, arguments.work_dir)
    model.save_pretrained(arguments.output, dtype="int4")
    shutil.copy(Path(__file__).with_name("static_multi_card.md"), arguments.output / "README.md")
    print(f"wrote {arguments.output}: {len(model.vocabulary):,} words")


if __name__ == "__main__":
    main()
