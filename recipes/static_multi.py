"""Make the bundled model `static-multi`: English, German, French, Chinese and Japanese in one space.

    python recipes/static_multi.py --corpus open_licence.txt.xz --parallel DATA/parallel/tatoeba --e5 FOLDER \
        --english WORK_OF_STATIC_EN --work-dir WORK --output src/pellucid/bundled/static-multi

--english is the work folder of `recipes/static_en.py`, whose passes over English text serve here too: the word vectors
of multilingual-e5-small, and the sentence vectors of both teachers, which English is trained towards. The folder of the
sentence pairs holds en-de.tsv.xz and so on. It takes about twenty minutes on one core and goes on where it stopped.
"""

from __future__ import annotations

import argparse
import random
import shutil
from dataclasses import replace
from pathlib import Path

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
from static_en import EXTRACTION, open_e5, open_teacher

WORDS = {"en": 32_000, "de": 22_000, "fr": 14_000, "zh": 9_000, "ja": 9_000}
"""How many words of a language are kept, the most frequent."""

FOREIGN = ExtractionSettings(cased=True, enough=20, max_sentences=32_768)
PCA = PcaSettings(dimensions=128, drop=7)
REFINEMENT = RefinementSettings(steps=12_000, learning_rate=0.015, pair_share=0.6)


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


def make(corpus: Path, parallel: Path, teachers: list[object], english: Path, work_dir: Path) -> StaticEmbedder:
    """Return the model; the passes over English are taken up from `english`."""
    joint = extract_jointly(teachers, corpus, english, EXTRACTION)
    brought = {"en": words_of(extract(teachers[1], corpus, english / "teacher-2", EXTRACTION), WORDS["en"])}
    for language in list(WORDS)[1:]:
        settings = replace(FOREIGN, language=language)
        found = extract(teachers[1], foreign_text(parallel, language), work_dir / language, settings)
        brought[language] = words_of(found, WORDS[language])
    files = {("en", language): parallel / f"en-{language}.tsv.xz" for language in list(WORDS)[1:]}
    start = join_languages(brought, files, None, JoinSettings(PCA, TranslationSettings(steps=0)))
    pairs = [pair_bags(path, codes, start.vocabulary) for codes, path in files.items()]
    bags = Bags.of(joint.sentences, start.vocabulary)
    return StaticEmbedder(start.vocabulary, refine(start.vectors, bags, joint.teacher_vectors, REFINEMENT, pairs=pairs))


def main() -> None:
    """Read the arguments and make the model."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="English, one sentence a line")
    parser.add_argument("--parallel", type=Path, required=True, help="folder of en-de.tsv.xz and so on")
    parser.add_argument("--e5", required=True, help="folder of multilingual-e5-small")
    parser.add_argument("--english", type=Path, required=True, help="work folder of recipes/static_en.py")
    parser.add_argument("--work-dir", type=Path, required=True, help="where the other passes keep their state")
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    arguments = parser.parse_args()
    teachers = [teacher.to(torch.bfloat16) for teacher in (open_teacher(), open_e5(arguments.e5))]
    model = make(arguments.corpus, arguments.parallel, teachers, arguments.english, arguments.work_dir)
    model.save_pretrained(arguments.output, dtype="int8")
    shutil.copy(Path(__file__).with_name("static_multi_card.md"), arguments.output / "README.md")
    print(f"wrote {arguments.output}: {len(model.vocabulary):,} words")


if __name__ == "__main__":
    main()
