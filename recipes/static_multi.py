"""Make the bundled model `static-multi`: English, German, French, Chinese and Japanese in one space.

    python recipes/static_multi.py --corpus open_licence.txt.xz --parallel DATA/parallel/tatoeba --e5 FOLDER \
        --work-dir WORK --output src/pellucid/bundled/static-multi

The corpus is English, one sentence a line: that of `static-en`. The folder of the sentence pairs holds en-de.tsv.xz and
so on: Tatoeba's sentences (CC BY 2.0 FR, by way of manythings.org/anki) with those of the test sets left out. --e5 is
the folder of intfloat/multilingual-e5-small. Its states at the words are the vectors that training starts from. Then
the table is trained towards the teacher's similarities in all languages and, in the same runs, on translations. The
teacher reads in bfloat16; on a core that has instructions for it all takes about an hour, and it goes on where it
stopped.
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
    join_extractions,
    join_languages,
    pair_bags,
    read_parallel,
    refine,
)

WORDS = {"en": 29_000, "de": 18_000, "fr": 14_200, "zh": 12_000, "ja": 11_000}
"""How many words of a language are kept at most, the most frequent."""

ENGLISH = ExtractionSettings(sentence_words=(2, 32), enough=50, max_sentences=262_144)
FOREIGN = ExtractionSettings(enough=20, max_sentences=32_768)
PCA = PcaSettings(dimensions=128, drop=7)
REFINEMENT = RefinementSettings(steps=7_000, learning_rate=0.015)
THEN = RefinementSettings(steps=7_500, learning_rate=0.01, pair_share=0.85)


def open_e5(folder: str) -> Any:
    """Return multilingual-e5-small, which reads every sentence as a query."""
    import torch
    from sentence_transformers import SentenceTransformer

    e5 = SentenceTransformer(folder, device="cpu", prompts={"query": "query: "}, default_prompt_name="query")
    return e5.to(torch.bfloat16)


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


def make(e5: Any, corpus: Path, parallel: Path, work_dir: Path) -> StaticEmbedder:
    """Return the model."""
    files = {("en", language): parallel / f"en-{language}.tsv.xz" for language in WORDS if language != "en"}
    found = {"en": extract(e5, corpus, work_dir / "en", ENGLISH)}
    for _, language in files:
        settings = replace(FOREIGN, language=language)
        found[language] = extract(e5, foreign_text(parallel, language), work_dir / language, settings)
    brought = {language: words_of(one, WORDS[language]) for language, one in found.items()}
    start = join_languages(brought, files, None, JoinSettings(PCA, TranslationSettings(steps=0)))
    pairs = [pair_bags(path, codes, start.vocabulary) for codes, path in files.items()]
    bags = Bags.of([text for one in found.values() for text in one.sentences], start.vocabulary)
    teacher = np.concatenate([join_extractions([one]).teacher_vectors for one in found.values()])  # each centred
    vectors = refine(start.vectors, bags, teacher, REFINEMENT, pairs=pairs)
    return StaticEmbedder(start.vocabulary, refine(vectors, bags, teacher, THEN, pairs=pairs))


def main() -> None:
    """Read the arguments and make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="English, one sentence a line")
    parser.add_argument("--parallel", type=Path, required=True, help="folder of en-de.tsv.xz and so on")
    parser.add_argument("--e5", required=True, help="folder of multilingual-e5-small")
    parser.add_argument("--work-dir", type=Path, required=True, help="where the teacher's passes keep their state")
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    arguments = parser.parse_args()
    model = make(open_e5(arguments.e5), arguments.corpus, arguments.parallel, arguments.work_dir)
    model.save_pretrained(arguments.output, dtype="int8")
    shutil.copy(Path(__file__).with_name("static_multi_card.md"), arguments.output / "README.md")
    print(f"wrote {arguments.output}: {len(model.vocabulary):,} words")


if __name__ == "__main__":
    main()
