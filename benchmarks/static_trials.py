r"""Static models of English at the steps before distillation, by type of task; a table of the page.

    python benchmarks/static_trials.py --data shared/data --work-dir work --write docs/results-static.md

The teacher is all-MiniLM-L6-v2 from its PyPI package. It reads 583,196 sentences in bfloat16, 20 minutes on one core
that has instructions for it; that goes on after an interruption. Models and scores are kept in the work folder.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "PELLUCID_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pages import markdown_table, measured, write_block
from pellucid import ExtractionSettings, PcaSettings, RefinementSettings, StaticEmbedder, evaluate
from pellucid.static import Extraction, distill_extraction, extract, subwords_of

sys.path.insert(0, str(Path(__file__).parents[1] / "recipes"))
from static_en import open_teacher

SENTENCES = 131_072  # for the components, the first of those that the teacher read
PCA = PcaSettings(dimensions=256, drop=7, vocabulary=95_000)
STEPS = {
    "extraction": replace(PCA, level="none"),
    "d256-pca-keep": replace(PCA, drop=0),
    "d256-pca": PCA,
}
"""Folder of a model -> settings of step 2; none is distilled."""

MEASURED = {"d256-pca-keep": "PCA, first components kept", "d256-pca": "PCA without the first 7 (3.2)"}
TYPES = ("Classification", "Clustering", "Retrieval", "STS")


@dataclass(eq=False)
class Maker:
    """Makes models, or opens what is there.

    Attributes:
        data: folder of the data sets.
        work_dir: where state, models and scores are kept.
    """

    data: Path
    work_dir: Path

    def model(self, name: str) -> StaticEmbedder:
        """Make the model of a step, or open it."""
        folder = self.work_dir / "models" / name
        if not folder.exists():
            print(f"making {name}", flush=True)
            untrained, subwords = RefinementSettings(steps=0), subwords_of(self._teacher)
            made = distill_extraction(self._extraction, subwords, pca=STEPS[name], refinement=untrained)
            made.save_pretrained(folder, dtype="float16")
        return StaticEmbedder.from_pretrained(folder)

    @cached_property
    def _teacher(self) -> Any:
        import torch

        return open_teacher().to(torch.bfloat16)

    @cached_property
    def _extraction(self) -> Extraction:
        """What the teacher's pass left; it runs, or goes on, where it is not there."""
        corpus = self.data / "raw_english" / "open_licence.txt.xz"
        settings = ExtractionSettings(sentence_words=(2, 32), enough=50)
        found = extract(self._teacher, corpus, self.work_dir / "minilm", settings)
        first = {"sentences": found.sentences[:SENTENCES], "teacher_vectors": found.teacher_vectors[:SENTENCES]}
        return replace(found, **first)

    def scores(self, name: str) -> dict[str, float]:
        """Return the means of the types of tasks, and the sets of classification by themselves; scores are kept."""
        found = evaluate(
            self.model(name), data=self.data, tasks=list(TYPES), cache_dir=self.work_dir / "scores", name=name
        )
        sets = {row.task.removesuffix("Classification"): row.score for row in found.rows if row.type == TYPES[0]}
        return {**{kind: found.means[kind] for kind in TYPES}, **sets}


def main() -> None:
    """Make the models, measure, print the table and write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--work-dir", type=Path, required=True, help="where state, models and scores are kept")
    parser.add_argument("--write", type=Path, help="the page whose table is replaced")
    arguments = parser.parse_args()
    maker = Maker(arguments.data, arguments.work_dir)
    found = {title: maker.scores(name) for name, title in MEASURED.items()}
    columns = next(iter(found.values()))
    table = markdown_table(["step", *columns], [[title, *scores.values()] for title, scores in found.items()])
    text = f"{table}\n{measured()}"
    print(text)
    if arguments.write:
        write_block(arguments.write, "benchmarks/static_trials.py", text)


if __name__ == "__main__":
    main()
