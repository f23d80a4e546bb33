r"""Static models of five languages from a multilingual teacher, each step kept to be looked into.

    python -m papers.swe.language_steps TEACHER --data shared/data --work-dir work --stsb DIR --write

TEACHER is the folder or hub id of multilingual-e5-small. Its pass takes most of an hour on one core and goes on after
an interruption; the models are kept in `work/models`, each made in minutes. `multilingual_teacher.py` has the same
steps on other text and tunes for longer. --stsb is the folder of STS-B in five languages (stsb-multi-mt).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from papers.kit import Figure, Kept, Table, experiment, mean_interval, run_script
from papers.swe.bitext import found_first
from papers.swe.crosslingual import (
    LANGUAGES,
    STEP_SCORES,
    bucc_gold,
    opened_or_made,
    percent,
    step_scores,
    tatoeba,
)
from pellucid import StaticEmbedder
from pellucid.static import ExtractionSettings, PcaSettings, RefinementSettings, TuningSettings
from pellucid.static.bags import Bags
from pellucid.static.training.extraction import Extraction, extract
from pellucid.static.training.languages import join_languages, pair_bags
from pellucid.static.training.tuning import refine, tune_on_pairs
from recipes.several_teachers import join_extractions
from recipes.static_multi import foreign_text, open_e5

ALL = ("en", *LANGUAGES)
ENGLISH = ExtractionSettings(sentence_words=(2, 32), enough=50, max_sentences=327_680)
FOREIGN = ExtractionSettings(cased=True, enough=20, max_sentences=32_768)
WORDS, DROP = 40_000, 7  # of a language; first components left out
_UNTUNED = TuningSettings(steps=0)
_PCA = PcaSettings(drop=DROP, vocabulary=WORDS)
STEPS = {
    "extraction (3.1)": (replace(_PCA, level="none"), _UNTUNED),
    "PCA, first components kept": (replace(_PCA, drop=0), _UNTUNED),
    "PCA without the first 7 (3.2)": (_PCA, _UNTUNED),
}
EXTRACTED, KEPT, DROPPED = STEPS
DISTILLED = {
    "3.2, then distilled, each language by itself": [[code] for code in ALL],
    "3.2, then distilled, all languages together": [list(ALL)],
}
"""Model -> groups of languages; a batch is of one group."""

TUNED = {"3.2, then tuned on translations (3.3)": DROPPED, "first components kept, then tuned": KEPT}
"""Model -> the one that was tuned."""

APART, TOGETHER = DISTILLED
MODELS = (*STEPS, *DISTILLED, *TUNED)
_TRAINING = RefinementSettings(steps=1_000, batch_size=128, temperature=0.05, neighbours=1)  # of a language
_TUNING = TuningSettings(steps=5_000, batch_size=128, evaluate_every=1_000)
Hits = npt.NDArray[np.bool_]


@dataclass(eq=False)
class Languages:
    """What the teacher leaves of each language, read when a model is to be made, and the models made of it.

    Attributes:
        teacher: folder or hub id.
        data: folder of the data sets.
        work_dir: where text, state and models are kept.
    """

    teacher: str
    data: Path
    work_dir: Path

    @cached_property
    def parallel(self) -> dict[tuple[str, str], Path]:
        """The files of sentence pairs."""
        return {("en", code): self.data / "parallel" / "tatoeba" / f"en-{code}.tsv.xz" for code in LANGUAGES}

    def corpus(self, code: str) -> Path:
        """Return the text of a language, one sentence a line."""
        if code == "en":
            return self.data / "raw_english" / "open_licence.txt.xz"
        path = self.work_dir / "text" / f"{code}.txt"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(foreign_text(self.data / "parallel" / "tatoeba", code)) + "\n", encoding="utf-8")
        return path

    @cached_property
    def extracted(self) -> dict[str, Extraction]:
        """What the teacher's pass left; it runs, or goes on, where it is not there."""
        e5 = open_e5(self.teacher)
        settings = {code: ENGLISH if code == "en" else replace(FOREIGN, language=code) for code in ALL}
        return {code: extract(e5, self.corpus(code), self.work_dir / code, settings[code]) for code in ALL}

    @cached_property
    def brought(self) -> dict[str, Extraction]:
        """The words of each language, and as many sentences of each at most."""
        most = FOREIGN.max_sentences
        return {
            code: Extraction(one.words, one.counts, one.vectors, one.sentences[:most])
            for code, one in self.extracted.items()
        }

    def model(self, name: str) -> StaticEmbedder:
        """Make the model of a step, or open the one that is there."""
        return opened_or_made(self.work_dir / "models" / re.sub(r"\W+", "-", name), lambda: self._made(name))

    def _made(self, name: str) -> StaticEmbedder:
        if name in STEPS:
            return join_languages(self.brought, self.parallel, None, *STEPS[name])
        return self._tuned(self.model(TUNED[name])) if name in TUNED else self._distilled(DISTILLED[name])

    def _tuned(self, start: StaticEmbedder) -> StaticEmbedder:
        """Tune a model on the translations of all languages."""
        pairs = [pair_bags(path, codes, start.vocabulary) for codes, path in self.parallel.items()]
        return StaticEmbedder(start.vocabulary, tune_on_pairs(start.vectors.astype(np.float32), pairs, _TUNING))

    def _distilled(self, groups: Sequence[Sequence[str]]) -> StaticEmbedder:
        """Distil each group of languages by itself; a word of several groups gets the mean of its vectors there."""
        start = self.model(DROPPED)
        total, times = np.zeros(start.vectors.shape, np.float32), np.zeros((len(start.vectors), 1), np.float32)
        for codes in groups:
            bags = Bags.from_sentences(
                [text for code in codes for text in self.brought[code].sentences], start.vocabulary
            )
            extracted = [join_extractions([self.extracted[code]]) for code in codes]  # less what each language shares
            teacher = np.concatenate([one.teacher_vectors[: FOREIGN.max_sentences] for one in extracted])
            settings = replace(_TRAINING, steps=_TRAINING.steps * len(codes))
            known = {word for code in codes for word in self.brought[code].words if word in start.vocabulary}
            rows = [start.vocabulary.row(word) for word in known]
            total[rows] += refine(start.vectors.astype(np.float32), bags, teacher, settings)[rows]
            times[rows] += 1
        return StaticEmbedder(start.vocabulary, total / np.maximum(times, 1))


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Make the models and yield the tables."""
    languages, kept = Languages(options.teacher, options.data, options.work_dir), Kept(options.work_dir / "rows-.jsonl")
    if options.stsb:
        rows = cross_row.rows(kept, languages, options.stsb)
        yield "cross-sts", Table(["STS-B, English and", *ALL], [list(row.values()) for row in rows])
    rows = step_row.rows(kept, languages)
    yield "translations", Table(["step", *STEP_SCORES], [list(row.values()) for row in rows])
    yield "differences", differences(languages)


def run_on_teacher(
    measure: Callable[..., Any], options: Mapping[str, Any] | None = None, only: Iterable[str] = ()
) -> None:
    """Run a script about models of a multilingual teacher."""
    teacher = {"teacher": {"help": "folder or hub id of the multilingual teacher"}}
    data = "parallel/ and the test sets"
    run_script(measure, {**teacher, **(options or {})}, data=data, work_dir="text, state and models", only=only)


@experiment(model=MODELS)
def step_row(languages: Languages, model: str) -> dict[str, float]:
    """Return what a step gives."""
    return dict(zip(STEP_SCORES, step_scores(languages.data, languages.model(model))))


@experiment(model=(*MODELS, "static-multi"))
def cross_row(languages: Languages, folder: Path, model: str) -> dict[str, float]:
    """Return Spearman's correlation on STS-B, the first sentence English and the second in another language."""
    import csv

    from scipy.stats import spearmanr

    tables = {code: list(csv.reader((folder / f"stsb-{code}-test.csv").open(encoding="utf-8"))) for code in ALL}
    scores = [float(row[2]) for row in tables["en"]]
    opened = languages.model(model) if model in MODELS else StaticEmbedder.from_pretrained(model)
    first = opened.encode([row[0] for row in tables["en"]])
    cosines = {code: (first * opened.encode([row[1] for row in tables[code]])).sum(axis=1) for code in ALL}
    return {code: percent(spearmanr(found, scores).statistic) for code, found in cosines.items()}


def differences(languages: Languages) -> Table:
    """Return differences of models in points of accuracy to English, with intervals over the sentences."""
    compared = {
        "before tuning, first components left out or kept": (DROPPED, KEPT),
        "after tuning, first components left out or kept": tuple(TUNED),
        "distilled by itself or not at all": (APART, DROPPED),
        "distilled together or not at all": (TOGETHER, DROPPED),
        "distilled together or by itself": (TOGETHER, APART),
    }
    used = {name for pair in compared.values() for name in pair}
    found = {name: all_hits(languages.data, languages.model(name)) for name in sorted(used)}
    rows = [
        [title, *(difference(found[one][test], found[other][test], _seeds(one, other)) for test in found[one])]
        for title, (one, other) in compared.items()
    ]
    return Table(["accuracy, difference in points", *found[DROPPED]], rows)


def _seeds(*models: str) -> int | None:
    """Return how many trainings a comparison of models rests on; None where no step of theirs is drawn at random."""
    return 1 if {*DISTILLED, *TUNED} & set(models) else None


def all_hits(data: Path, model: StaticEmbedder) -> Mapping[str, Hits]:
    """Return which sentences have their translation first, of Tatoeba's four sets together and of BUCC's two."""
    sets = []
    for code in LANGUAGES:
        first = found_first(model, *tatoeba(data, code))
        sets.append(first == np.arange(len(first)))
    found = {"Tatoeba, four languages": np.concatenate(sets)}
    for code in ("de", "zh"):
        queries, english, right = bucc_gold(data, code)
        found[f"BUCC {code}-en"] = found_first(model, queries, english) == right
    return found


def difference(one: Hits, other: Hits, n_seeds: int | None) -> str:
    """Return the difference of two shares of the same sentences in points, its 95 % interval and what that says."""
    return mean_interval(100.0 * (one.astype(np.float64) - other), n_seeds).with_verdict()


if __name__ == "__main__":
    run_on_teacher(measure, {"--stsb": {"type": Path, "help": "folder of stsb-en-test.csv, stsb-de-test.csv, ..."}})
