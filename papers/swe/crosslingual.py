r"""How well static models made of static-en and Tatoeba's translations find translations.

    python -m papers.swe.crosslingual --data shared/data --work-dir work --write
    python -m papers.swe.crosslingual --data shared/data --write

The second line measures the bundled static-multi and nothing else. Models are made as `recipes/static_languages.py`
makes them and kept in the work folder.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import pellucid
from papers.kit import Figure, Table, run_script
from papers.sts import sts_spearman
from papers.swe.bitext import f1_in_all, mine_pairs, mining_f1, translation_scores
from pellucid import StaticEmbedder
from pellucid.evaluation.tasks import read_table
from pellucid.static import PcaSettings, TuningSettings
from pellucid.static.training.languages import join_languages
from recipes.static_languages import anchored_words, make

LANGUAGES = ("de", "fr", "zh", "ja")
TATOEBA = {"de": "deu", "fr": "fra", "zh": "cmn", "ja": "jpn"}
GOALS = {"de": 90, "fr": 90, "zh": 75, "ja": 65}
PAPER = {"de": 95.1, "zh": 87.9, "ja": 79.0}  # SWE paper, table 4: its bilingual models, mGTE as teacher, CCMatrix
PAPER_MGTE = {"de": 97.8, "zh": 95.7, "ja": 93.1}  # the teacher itself
PAPER_M2V = {"de": 73.5, "zh": 26.6, "ja": 15.3}
PAPER_BUCC = {"de": (96.3, 98.6), "zh": (94.6, 98.2)}  # its bilingual models, mGTE
PAPER_STEPS = {  # table 6, mean of BUCC and Tatoeba; for Japanese Tatoeba alone
    "extraction (3.1)": {"de": 51.6, "zh": 45.0, "ja": 28.6},
    "PCA without the first components (3.2)": {"de": 93.8, "zh": 88.6, "ja": 74.6},
    "PCA with them (no ABTT)": {"de": 49.6, "zh": 39.2, "ja": 33.2},
    "tuned on translations (3.3)": {"de": 95.7, "zh": 91.2, "ja": 79.0},
}
_DROP = 7

Pairs = tuple[list[str], list[str]]


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Make the models and yield the tables: of static-multi alone without a folder to work in."""
    data, work_dir = options.data, options.work_dir
    if work_dir is None:
        yield from _bundled(data)
        return
    models = {language: _model(data, work_dir, [language]) for language in LANGUAGES}
    together = {"one model of five languages": _model(data, work_dir, list(LANGUAGES))}
    yield "tatoeba", _table_of_results(data, models, list(together.values()))
    yield "bucc", _table_of_bucc(data, models, together)
    yield "across", _table_across(data, together)
    english = {"static-en": pellucid.load("static-en"), **{f"static-en-{n}": model for n, model in models.items()}}
    yield "english", _table_of_english(data, {**english, **together})
    yield "steps", _table_of_steps(data, options.minilm)


def _bundled(data: Path) -> Iterator[tuple[str, Figure]]:
    """Yield the tables of static-multi, as it is and with unknown words left out."""
    model = StaticEmbedder.from_pretrained("static-multi")
    plain = StaticEmbedder(model.vocabulary, model.vectors, model.scales)
    rows = []
    for language in LANGUAGES:
        scores, without = (translation_scores(each, *tatoeba(data, language)) for each in (model, plain))
        cells = (scores.f1, scores.f1_back, _accuracy(scores), without.f1, without.f1_back)
        rows.append([f"en-{language}", *map(percent, cells)])
    directions = ["F1 to English", "F1 from English"]
    head = ["Tatoeba", *directions, "accuracy, mean", *(f"without spelling: {name}" for name in directions)]
    yield "multi-tatoeba", Table(head, rows)
    models = {"static-multi": model, "static-multi without spelling": plain}
    yield "multi-bucc", _table_of_bucc(data, {}, models)
    yield "multi-across", _table_across(data, models)
    yield "multi-english", _table_of_english(data, models)


def _model(data: Path, work_dir: Path, languages: list[str]) -> StaticEmbedder:
    folder = work_dir / f"static-en-{'-'.join(languages)}"
    return opened_or_made(folder, lambda: make(data / "parallel" / "tatoeba", languages), "int8")


def opened_or_made(
    folder: Path, make: Callable[[], StaticEmbedder], dtype: Literal["float32", "float16", "int8"] = "float16"
) -> StaticEmbedder:
    """Open the model in a folder; where there is none, it is made and saved first."""
    if not folder.exists():
        print(f"making {folder.name}", flush=True)
        make().save_pretrained(folder, dtype=dtype)
    return StaticEmbedder.from_pretrained(folder)


def tatoeba(data: Path, language: str) -> Pairs:
    """Return the test sentences of a language and their English translations."""
    path = data / "crosslingual" / "tatoeba_v1" / f"{TATOEBA[language]}-eng.tsv"
    table = read_table(path, ["sentence1", "eng"])
    return table["sentence1"], table["eng"]


def _table_of_results(data: Path, models: dict[str, StaticEmbedder], together: Sequence[StaticEmbedder]) -> Table:
    rows = []
    for language, model in models.items():
        pairs = tatoeba(data, language)
        scores, *joint = (translation_scores(each, *pairs) for each in (model, *together))
        rows.append(
            [
                f"en-{language}",
                *map(percent, (scores.f1, scores.f1_back, _accuracy(scores))),
                *(f"{percent(found.f1):.1f} / {percent(found.f1_back):.1f}" for found in joint),
                GOALS[language],
                *(paper.get(language, "") for paper in (PAPER, PAPER_MGTE, PAPER_M2V)),
            ]
        )
    head = ["Tatoeba", "F1 to English", "F1 from English", "accuracy, mean", "one of five languages: F1"]
    return Table([*head, "goal", "paper: SWE", "paper: mGTE, its teacher", "paper: Model2Vec multilingual"], rows)


def _table_of_bucc(data: Path, models: dict[str, StaticEmbedder], together: dict[str, StaticEmbedder]) -> Table:
    rows = []
    for language in ("de", "zh"):
        sides, gold = bucc(data, language)
        own = {f"static-en-{language}": models[language]} if models else {}
        for name, model in {**own, **together}.items():
            mined = mining_f1(mine_pairs(model, *sides), gold)
            f1 = f1_bucc(data, model, language)
            rows.append([f"{language}-en", name, percent(f1), percent(mined), *PAPER_BUCC[language]])
    paper = ["paper: SWE (MTEB's larger set)", "paper: mGTE, its teacher"]
    return Table(["BUCC sample", "model", "F1 as in MTEB", "F1 of mining", *paper], rows)


def f1_tatoeba(data: Path, model: StaticEmbedder, code: str) -> float:
    """Return F1 to English as MTEB has Tatoeba."""
    return translation_scores(model, *tatoeba(data, code)).f1


def f1_bucc(data: Path, model: StaticEmbedder, code: str) -> float:
    """Return F1 of BUCC's gold sentences among all English ones."""
    queries, english, right = bucc_gold(data, code)
    return f1_in_all(model, queries, english, right)


STEP_SCORES = (*(f"en-{code}" for code in LANGUAGES), "BUCC de-en", "BUCC zh-en", "English STS")


def step_scores(data: Path, model: StaticEmbedder) -> list[float]:
    """Return the scores of a step, as `STEP_SCORES` has them: F1 to English, and the mean of English STS; x 100."""
    scores = [f1_tatoeba(data, model, code) for code in LANGUAGES]
    scores += [f1_bucc(data, model, code) for code in ("de", "zh")]
    return [*map(percent, scores), statistics.fmean(sts_spearman(model.encode, data).values())]


def bucc_gold(data: Path, language: str) -> tuple[list[str], list[str], npt.NDArray[np.int64]]:
    """Return the sentences of BUCC's sample that have a translation, all English ones, and which it is."""
    (foreign, english), gold = bucc(data, language)
    return [foreign[one] for one, _ in gold], english, np.array([other for _, other in gold])


def bucc(data: Path, language: str) -> tuple[Pairs, list[tuple[int, int]]]:
    """Return BUCC's sample of a language and English, and which pairs are translations."""
    folder = data / "crosslingual" / "bucc2018_sample"
    tables = [read_table(folder / f"{language}-en.{side}.tsv.xz", ["id", "text"]) for side in (language, "en")]
    number = [{name: n for n, name in enumerate(table["id"])} for table in tables]
    gold = read_table(folder / f"{language}-en.gold.tsv", [f"id_{language}", "id_en"])
    pairs = [(number[0][one], number[1][other]) for one, other in zip(gold[f"id_{language}"], gold["id_en"])]
    return (tables[0]["text"], tables[1]["text"]), pairs


def _table_across(data: Path, together: dict[str, StaticEmbedder]) -> Table:
    """Return the scores of languages that were never trained together, through the English sentences they share."""
    by_english = {
        language: {english: foreign for foreign, english in zip(*tatoeba(data, language))} for language in LANGUAGES
    }
    rows = []
    for n, one in enumerate(LANGUAGES):
        for other in LANGUAGES[n + 1 :]:
            shared = sorted(by_english[one].keys() & by_english[other].keys())
            if len(shared) < 20:
                continue
            pairs = [by_english[one][text] for text in shared], [by_english[other][text] for text in shared]
            accuracies = [percent(_accuracy(translation_scores(model, *pairs))) for model in together.values()]
            rows.append([f"{one}-{other}", len(shared), *accuracies])
    head = ["never trained together", "sentences", *(f"{name}: accuracy, mean" for name in together)]
    return Table(head, rows)


def _table_of_english(data: Path, models: dict[str, StaticEmbedder]) -> Table:
    rows = []
    for name, model in models.items():
        scores = sts_spearman(model.encode, data)
        rows.append([name, f"{len(model.vocabulary):,}", *scores.values(), statistics.fmean(scores.values())])
    return Table(["English STS", "words", *scores, "mean"], rows)


def _table_of_steps(data: Path, minilm: Sequence[str]) -> Table:
    """Return what each step gives where PCA is that of the paper: with anchored vectors in place of extracted ones."""
    static = pellucid.load("static-en")
    rows = []
    for name, settings in _steps():
        row = [name]
        for language in ("de", "zh", "ja"):
            row.append(percent(_step(data, language, static.encode, settings)))
            row.append(PAPER_STEPS.get(name, {}).get(language, ""))
        for language in minilm:
            row.append(percent(_step(data, language, _minilm_encode, settings)))
        rows.append(row)
    both = "paper, mean of BUCC and Tatoeba"
    head = ["en-de", f"en-de: {both}", "en-zh", f"en-zh: {both}", "en-ja", "en-ja: paper, Tatoeba"]
    return Table(["Tatoeba, F1 to English", *head, *(f"en-{code}, MiniLM as teacher" for code in minilm)], rows)


def _steps() -> Iterator[tuple[str, tuple[PcaSettings, TuningSettings]]]:
    untuned, tuned = TuningSettings(steps=0), TuningSettings(1_000, learning_rate=0.02, evaluate_every=250)
    yield "extraction (3.1)", (PcaSettings(level="none"), untuned)
    yield "PCA with them (no ABTT)", (PcaSettings(drop=0), untuned)
    yield ("PCA without the first components (3.2)", (PcaSettings(dimensions=256 - _DROP, drop=_DROP), untuned))
    yield "tuned on translations (3.3)", (PcaSettings(dimensions=256 - _DROP, drop=_DROP), tuned)
    yield "tuned, no ABTT", (PcaSettings(drop=0), tuned)


def _step(data: Path, language: str, encode: Any, settings: tuple[PcaSettings, TuningSettings]) -> float:
    path, codes = data / "parallel" / "tatoeba" / f"en-{language}.tsv.xz", ("en", language)
    model = join_languages(_brought(encode, path, codes), {codes: path}, None, *settings)
    return f1_tatoeba(data, model, language)


_brought = cache(anchored_words)


def _minilm_encode(texts: list[str]) -> Any:
    from recipes.static_en import open_teacher

    return open_teacher().encode(texts, batch_size=64)


def _accuracy(scores: Any) -> float:
    return float((scores.accuracy + scores.accuracy_back) / 2)


def percent(share: float) -> float:
    """Return a share in percent."""
    return 100 * float(share)


if __name__ == "__main__":
    run_script(
        measure,
        {
            "--work-dir": {"type": Path, "help": "where models are made and kept; without it: static-multi alone"},
            "--minilm": {"nargs": "*", "default": [], "help": "languages anchored to MiniLM as well, such as zh"},
        },
        data="parallel/ and the test sets",
    )
