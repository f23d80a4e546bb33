r"""Static models of five languages from a real multilingual teacher, step by step.

    python -m papers.swe.multilingual_teacher TEACHER --data shared/data --work-dir work --write

TEACHER is the folder or hub id of multilingual-e5-small. It reads up to 40,000 sentences of each language: the sides of
Tatoeba's training pairs, in English with as many other sentences. That takes most of an hour on one core and goes on
after an interruption; the steps behind it take minutes. Tatoeba's test sentences occur in no training text.
"""

from __future__ import annotations

import argparse
import lzma
import random
import re
from collections.abc import Iterator
from pathlib import Path

from papers.kit import Figure, Table
from papers.swe.crosslingual import LANGUAGES, STEP_SCORES, opened_or_made, step_scores
from papers.swe.language_steps import run_on_teacher
from papers.swe.separation import silhouette
from pellucid import StaticEmbedder
from pellucid.static import ExtractionSettings, PcaSettings, TuningSettings, distill_languages

_SENTENCES, _ENGLISH, _WORDS = 40_000, 36_000, 40_000
_DROP = 7
_UNTUNED = TuningSettings(steps=0)
STEPS = {
    "extraction (3.1)": (PcaSettings(level="none", vocabulary=_WORDS), _UNTUNED),
    "PCA, first components kept": (PcaSettings(drop=0, vocabulary=_WORDS), _UNTUNED),
    "PCA without the first 7 (3.2)": (PcaSettings(drop=_DROP, vocabulary=_WORDS), _UNTUNED),
    "then tuned on translations (3.3)": (PcaSettings(drop=_DROP, vocabulary=_WORDS), TuningSettings()),
    "tuned, first components kept": (PcaSettings(drop=0, vocabulary=_WORDS), TuningSettings()),
}


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Make the models and yield the figures of each step."""
    corpora = write_corpora(options.data, options.work_dir / "text")
    rows = []
    for name in STEPS:
        made = model(options, corpora, name)
        texts = {code: path.read_text(encoding="utf-8").splitlines()[:2_000] for code, path in corpora.items()}
        rows.append([name, *step_scores(options.data, made), f"{silhouette(made, texts):.3f}"])
    yield "steps", Table(["step", *STEP_SCORES, "silhouette"], rows)


def write_corpora(data: Path, folder: Path) -> dict[str, Path]:
    """Write the sentences that the teacher reads, a file a language, the same ones each time."""
    draw = random.Random(0)
    paths = {code: folder / f"{code}.txt" for code in ("en", *LANGUAGES)}
    if all(path.exists() for path in paths.values()):
        return paths
    folder.mkdir(parents=True, exist_ok=True)
    english: list[str] = []
    for code in LANGUAGES:
        with lzma.open(data / "parallel" / "tatoeba" / f"en-{code}.tsv.xz", "rt", encoding="utf-8") as lines:
            pairs = [line.rstrip("\n").split("\t") for line in lines][1:]
        chosen = draw.sample(pairs, min(_SENTENCES, len(pairs)))
        english += [pair[0] for pair in draw.sample(chosen, 6_000)]
        paths[code].write_text("\n".join(pair[1] for pair in chosen) + "\n", encoding="utf-8")
    with lzma.open(data / "raw_english" / "open_licence.txt.xz", "rt", encoding="utf-8") as lines:
        english += draw.sample([line.rstrip("\n") for line in lines], _ENGLISH)
    draw.shuffle(english)
    paths["en"].write_text("\n".join(dict.fromkeys(english)) + "\n", encoding="utf-8")
    return paths


def model(arguments: argparse.Namespace, corpora: dict[str, Path], name: str) -> StaticEmbedder:
    """Make the model of a step, or open the one that is there; the teacher reads the text once for all."""
    pairs = {("en", code): arguments.data / "parallel" / "tatoeba" / f"en-{code}.tsv.xz" for code in LANGUAGES}
    pca, tuning = STEPS[name]

    def make() -> StaticEmbedder:
        return distill_languages(
            arguments.teacher,
            corpora,
            pairs,
            work_dir=arguments.work_dir / "state",
            extraction=ExtractionSettings(cased=True),
            pca=pca,
            tuning=tuning,
        )

    return opened_or_made(arguments.work_dir / re.sub(r"\W+", "-", name), make, "float32")


if __name__ == "__main__":
    run_on_teacher(measure)
