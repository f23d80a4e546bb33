"""Make the bundled model `static-multi`: English, German, French, Chinese and Japanese in one space.

    python recipes/static_multi.py --corpus open_licence.txt.xz --parallel DATA/parallel/tatoeba --e5 FOLDER \
        --work-dir WORK --output src/pellucid/bundled/static-multi

The corpus is English, one sentence a line: that of `static-en`. The folder of the sentence pairs holds en-de.tsv.xz and
so on: Tatoeba's sentences (CC BY 2.0 FR, by way of manythings.org/anki) with those of the test sets left out. --e5 is
the folder of intfloat/multilingual-e5-small, whose states at the words are the vectors that training starts from.
English is trained towards its sentence vectors and those of all-MiniLM-L6-v2 together, and all languages towards their
translations, in one run. The teachers read in bfloat16; on a core that has instructions for it all takes about an hour,
and it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pellucid import (
    ExtractionSettings,
    JoinSettings,
    PcaSettings,
    RefinementSettings,
    StaticEmbedder,
    TranslationSettings,
)
from pellucid.static import (
    Bags,
    Extraction,
    LanguageWords,
    extract,
    extract_jointly,
    join_languages,
    pair_bags,
    read_parallel,
    refine,
)
from static_en import open_teacher

WORDS = {"en": 32_000, "de": 22_000, "fr": 14_000, "zh": 9_000, "ja": 9_000}
"""How many words of a language are kept, the most frequent."""

ENGLISH = ExtractionSettings(sentence_words=(2, 32), enough=50, max_sentences=229_376)
FOREIGN = ExtractionSettings(enough=20, max_sentences=32_768)
PCA = PcaSettings(dimensions=128, drop=7)
REFINEMENT = RefinementSettings(steps=12_000, learning_rate=0.015, pair_share=0.6)


def open_e5(folder: str) -> Any:
    """Return multilingual-e5-small, which reads every sentence as a query."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(folder, device="cpu", prompts={"query": "query: "}, default_prompt_name="query")


def words_of(found: Extraction, most: int) -> LanguageWords:
    """Return the most frequent words of a language that the teacher saw."""
    rows = np.flatnonzero(np.any(found.vectors != 0, axis=1))[:most]
    return LanguageWords([found.words[row] for row in rows], found.counts[rows], found.vectors[rows], found.sentences)


def foreign_text(parallel: Path, language: str) -> list[str]:
    """Return the sentences of one language, each once, in a shuffled order."""
    pairs = read_parallel(parallel / f"en-{language}.tsv.xz", ("en", language))
    texts = list(dict.fromkeys(foreign for _, foreign in pairs))
    random.Random(0).shuffle(texts)
    return texts


def make(corpus: Path, parallel: Path, teachers: list[Any], work_dir: Path) -> StaticEmbedder:
    """Return the model; the last of the teachers is the multilingual one."""
    joint = extract_jointly(teachers, corpus, work_dir / "en", ENGLISH)
    found = extract(teachers[-1], corpus, work_dir / "en" / f"teacher-{len(teachers)}", ENGLISH)  # it is there by now
    brought = {"en": words_of(found, WORDS["en"])}
    files = {("en", language): parallel / f"en-{language}.tsv.xz" for language in WORDS if language != "en"}
    for _, language in files:
        settings = replace(FOREIGN, language=language)
        found = extract(teachers[-1], foreign_text(parallel, language), work_dir / language, settings)
        brought[language] = words_of(found, WORDS[language])
    start = join_languages(brought, files, None, JoinSettings(PCA, TranslationSettings(steps=0)))
    pairs = [pair_bags(path, codes, start.vocabulary) for codes, path in files.items()]
    bags = Bags.of(joint.sentences, start.vocabulary)
    vectors = refine(start.vectors, bags, joint.teacher_vectors, REFINEMENT, pairs=pairs)
    return StaticEmbedder(start.vocabulary, vectors)


def main() -> None:
    """Read the arguments and make the model."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="English, one sentence a line")
    parser.add_argument("--parallel", type=Path, required=True, help="folder of en-de.tsv.xz and so on")
    parser.add_argument("--e5", required=True, help="folder of multilingual-e5-small")
    parser.add_argument("--work-dir", type=Path, required=True, help="where the teachers' passes keep their state")
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    arguments = parser.parse_args()
    teachers = [teacher.to(torch.bfloat16) for teacher in (open_teacher(), open_e5(arguments.e5))]
    model = make(arguments.corpus, arguments.parallel, teachers, arguments.work_dir)
    model.save_pretrained(arguments.output, dtype="int8")
    shutil.copy(Path(__file__).with_name("static_multi_card.md"), arguments.output / "README.md")
    print(f"wrote {arguments.output}: {len(model.vocabulary):,} words")


if __name__ == "__main__":
    main()
