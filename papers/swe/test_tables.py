"""The scripts of the pages about static models: from text to tables in small, with no kept state, on tiny teachers."""

from __future__ import annotations

import json
import lzma
import random
from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import pytest

from pellucid.evaluation.evaluating import Results, TaskScore
from pellucid.static import ExtractionSettings
from pellucid.static.training.extraction import extract
from tiny_models import tiny_teacher

for _name in ("sentence_transformers", "mteb", "sklearn", "matplotlib", "jieba", "sudachipy"):
    pytest.importorskip(_name)

WORDS = {
    "en": "the cat dog bird sees likes finds tree house river market price bank loan water stone road on fast two old",
    "de": "der hund vogel sieht mag findet baum haus fluss markt preis geld wasser stein weg auf schnell zwei alt neu",
    "fr": "le chat chien oiseau voit aime trouve arbre maison fleuve marche prix argent eau pierre route sur vite",
    "zh": "我们 你们 他们 中国 学生 老师 朋友 今天 明天 昨天 喜欢 知道 学习 工作 电影 音乐 汽车 苹果 天气 世界 问题",
    "ja": "私 彼女 学校 先生 友達 今日 明日 昨日 好き 知る 勉強 仕事 映画 音楽 自動車 りんご 天気 世界 問題 病院 山 川",
}
TAGS = {"the": "at", "on": "in", "fast": "rb", "two": "cd", "sees": "vb", "old": "jj", "cat": "nn", "bank": "np"}
FEW = {"steps": 20, "batch_size": 16, "evaluate_every": 10}
CODES = {"de": "deu", "fr": "fra", "zh": "cmn", "ja": "jpn"}
FILE = {"en": "en_ewt", "de": "de_gsd", "fr": "fr_gsd", "zh": "zh_gsdsimp", "ja": "ja_gsd"}


def said(code, number):
    """Return a sentence of a language, the same for the same number."""
    words = random.Random(number).choices(WORDS[code].split(), k=6)
    return "".join(words) if code in ("zh", "ja") else " ".join(words)


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with (lzma.open if path.suffix == ".xz" else open)(path, "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def write_sets(data):
    """Write sets of every type, of few texts."""
    english = [said("en", number) for number in range(60)]
    pairs = [f"{one}\t{other}\t{number % 6}" for number, (one, other) in enumerate(pairwise(english))]
    for name in ("STS12", "STSBenchmark"):
        write(data / f"sts/{name}/test.tsv", ["sentence1\tsentence2\tscore", *pairs])
    labelled = ["text\tlabel", *(f"{text}\t{text.split()[0]}" for text in english)]
    for name in ("banking77", "emotion", "tweet_sentiment_extraction"):
        write(data / f"classification/{name}/train.tsv", labelled)
        write(data / f"classification/{name}/test.tsv", labelled)
    for name in ("stackoverflow_titles", "search_snippets"):
        write(data / f"clustering/{name}/test.tsv", labelled)
    marked = [f"{one}\t{other}\t{number % 2}" for number, (one, other) in enumerate(pairwise(english))]
    write(data / "pair_classification/mine/test.tsv", ["sentence1\tsentence2\tlabel", *marked])
    ranked = {"query": english[0], "positive": [english[1]], "negative": english[2:5]}
    write(data / "reranking/mine/test.jsonl", [json.dumps(ranked)])
    for name in ("corpus", "queries"):
        records = [{"_id": f"{name[0]}{number}", "title": "", "text": text} for number, text in enumerate(english[:9])]
        write(data / f"retrieval/scifact/{name}.jsonl", map(json.dumps, records))
    write(data / "retrieval/scifact/qrels/test.tsv", ["query-id\tcorpus-id\tscore", "q1\tc1\t1", "q2\tc3\t1"])


def write_text(data):
    """Write what teachers read, and translations."""
    write(data / "raw_english/open_licence.txt.xz", dict.fromkeys(said("en", number) for number in range(600)))
    answers = [". ".join(said("en", 9 * number + n).capitalize() for n in range(9)) + "." for number in range(60)]
    write(data / "retrieval_train/medquad/qa.jsonl.xz", (json.dumps({"answer": answer}) for answer in answers))
    for code, name in CODES.items():
        pairs = [f"{said('en', number)}\t{said(code, number)}" for number in range(300)]
        write(data / f"parallel/tatoeba/en-{code}.tsv.xz", [f"en\t{code}", *pairs])
        tests = [f"{said(code, number)}\t{said('en', number)}" for number in range(700, 730)]
        write(data / f"crosslingual/tatoeba_v1/{name}-eng.tsv", ["sentence1\teng", *tests])
    for code in ("de", "zh"):
        folder = data / "crosslingual/bucc2018_sample"
        for side in (code, "en"):
            texts = [f"{side}-{number}\t{said(side, number)}" for number in range(40)]
            write(folder / f"{code}-en.{side}.tsv.xz", ["id\ttext", *texts])
        write(folder / f"{code}-en.gold.tsv", [f"id_{code}\tid_en", *(f"{code}-{n}\ten-{n}" for n in range(9))])


def write_tagged(folder):
    """Write tagged text, ratings and STS-B in several languages."""
    tagged = [" ".join(f"{word}/{TAGS.get(word, 'nn')}" for word in said("en", n).split()) for n in range(100)]
    write(folder / "brown/ca01", tagged)
    for code in CODES:
        tags = ["PROPN", "NOUN", "DET"]
        rows = [f"{n}\t{word}\t_\t{tags[n % 3]}" + "\t_" * 6 for n, word in enumerate(WORDS[code].split(), 1)]
        write(folder / f"{FILE[code]}-ud-dev.conllu", rows)
    write(folder / "concreteness.txt", ["Word\tBigram\tConc.M", *(f"{w}\t0\t{n}" for n, w in enumerate(TAGS))])
    for part in ("train", "dev", "test"):
        write(
            folder / f"squinky-{part}.tsv",
            ["text\tlabel", *(f"{said('en', n)}\t{'high' if n % 2 else 'low'}" for n in range(9))],
        )
    write(
        folder / "in_formal_sentences.tsv", ["id\tscore\ttext", *(f"{n}\t{n / 9}\t{said('de', n)}" for n in range(9))]
    )
    for code in WORDS:
        write(folder / f"stsb-{code}-test.csv", [f"{said('en', n)},{said(code, n)},{n % 6}" for n in range(20)])


@pytest.fixture
def teacher(tmp_path):
    """A teacher of all the words, as both teachers; a Chinese or Japanese character is a piece of its own."""
    pieces = {piece for words in WORDS.values() for word in words.split() for piece in (word, *word)}
    made = tiny_teacher(tmp_path / "teacher", [*sorted(pieces), ".", ":", "query"], 24, length=100)
    made.prompts, made.default_prompt_name = {"query": "query: "}, "query"
    return made


@pytest.fixture
def world(tmp_path):
    """Folders of data and tagged text."""
    write_sets(tmp_path / "data")
    write_text(tmp_path / "data")
    write_tagged(tmp_path / "tagged")
    return tmp_path


@pytest.fixture
def trials(opened, teacher, monkeypatch):
    """The script of trials, of eight dimensions and twenty batches."""
    script = opened("papers.swe.trials")

    def short(trial):
        training = replace(trial.training, **FEW) if trial.training.steps else trial.training
        return replace(trial, pca=replace(trial.pca, dimensions=8), training=training)

    monkeypatch.setattr(script, "TRIALS", {name: short(trial) for name, trial in script.TRIALS.items()})
    monkeypatch.setattr(script, "open_teacher", lambda: teacher)
    monkeypatch.setattr(script, "open_e5", lambda folder: teacher)
    return script


@pytest.fixture
def steps(opened, teacher, monkeypatch):
    """The script of five languages, likewise."""
    script = opened("papers.swe.language_steps")
    joined = {name: (replace(pca, dimensions=8), tuning) for name, (pca, tuning) in script.STEPS.items()}
    monkeypatch.setattr(script, "STEPS", joined)
    for name in ("_TRAINING", "_TUNING"):
        monkeypatch.setattr(script, name, replace(getattr(script, name), **FEW))
    monkeypatch.setattr(script, "open_e5", lambda folder: teacher)
    return script


def figures_of(script, **options):
    """Run a script as a command; every cell of its tables is filled."""
    figures = dict(script.measure(SimpleNamespace(**options)))
    assert "nan" not in "".join(map(str, figures.values()))
    return figures


@pytest.mark.slow
def test_trials_from_text_to_tables(world, trials, monkeypatch):
    options = {"data": world / "data", "work_dir": world / "work", "e5": "e5", "only": list(trials.TABLES)}
    figures = figures_of(trials, **options)
    for name, table in figures.items():
        assert [row[0] for row in table.rows] == list(trials.TABLES[name].values())
    monkeypatch.setattr(trials, "extract", None)  # all is kept
    assert figures_of(trials, **options) == figures


@pytest.mark.slow
def test_a_table_of_the_second_teacher_needs_it(world, trials):
    with pytest.raises(SystemExit, match="needs --e5"):
        figures_of(trials, data=world / "data", work_dir=world / "work", only=["teachers"], e5=None)


@pytest.mark.slow
def test_places_and_passages_from_text_to_tables(world, trials, opened, monkeypatch):
    script = opened("papers.swe.text")
    for name, value in {"PLACES": (1, 3), "EDGES": [0, 1, 2, 3], "LEAST": 4, "PASSAGES": 60, "LENGTH": 20}.items():
        monkeypatch.setattr(script, name, value)
    stretches = [{"first": first, "last": last} for first, last in ((0, 1), (0, 3), (1, 2))]
    monkeypatch.setattr(script, "places_row", replace(script.places_row, grid=stretches))
    for name in ("PCA", "TRAINING"):
        monkeypatch.setattr(script, name, getattr(trials.TRIALS["d256"], name.lower()))
    monkeypatch.setattr(script, "open_teacher", trials.open_teacher)
    figures = figures_of(script, data=world / "data", work_dir=world / "work", only=["places", "passages"])
    assert [row[0] for row in figures["places"].rows] == ["1", "3"]
    assert figures["passages"].rows[-1][:2] == ["passages", "passages"]


@pytest.mark.full
def test_the_places_of_a_word_are_those_of_extraction(trials, opened, teacher, monkeypatch, tmp_path):
    script, texts, words = opened("papers.swe.text"), [said("en", number) for number in range(30)], WORDS["en"].split()
    for name, value in {"EDGES": [0, 2, 1_000], "BATCH": 4, "open_teacher": trials.open_teacher}.items():
        monkeypatch.setattr(script, name, value)
    teacher.default_prompt_name = None
    made = script.Trials(tmp_path, tmp_path)
    made.chosen = words, texts
    sums = made.sums
    whole = extract(teacher, texts, tmp_path / "whole", ExtractionSettings(occurrences=1_000))
    rows = [words.index(word) for word in whole.words]
    assert sums.sum(axis=0)[rows] / whole.counts[:, None] == pytest.approx(whole.vectors, abs=1e-3)
    assert 0 < abs(sums[0]).sum() < abs(sums[1]).sum()


@pytest.mark.slow
def test_languages_and_components_from_text_to_tables(world, trials, steps, opened, teacher, monkeypatch):
    options = {"teacher": "teacher", "data": world / "data", "work_dir": world / "multi"}
    figures = figures_of(steps, **options, stsb=world / "tagged")
    assert all([row[0] for row in figures[name].rows][: len(steps.MODELS)] == list(steps.MODELS)
               for name in ("cross-sts", "translations"))  # fmt: skip
    script = opened("papers.swe.component_tables")
    monkeypatch.setattr(script, "POINTS", 16)
    monkeypatch.setattr(script, "WORDS", len(WORDS["en"].split()))
    monkeypatch.setattr(script, "open_e5", lambda folder: teacher)
    monkeypatch.setattr(script, "norms_by_tag", partial(script.norms_by_tag, least=1))
    monkeypatch.setattr(script.Given, "others", lambda given: {"static-en": given.english("d256-pca")})
    inputs = {"english": world / "work", "tagged": world / "tagged", "ratings": world / "tagged", "folder": world}
    assert list(figures_of(script, **options, **inputs, only=list(script.TABLES))) == list(script.TABLES)
    assert (world / "languages-apart.png").stat().st_size > 10_000


@pytest.fixture
def tables(opened):
    """The script that writes papers/swe/results.md."""
    return opened("papers.swe.tables")


def test_the_papers_tables(tables):
    def results(scores):
        return Results("m", tuple(TaskScore(name, "STS", "cosine_spearman", score)
                                  for name, score in zip(tables.TEACHER_IN_PAPER, scores)))  # fmt: skip

    teacher = [72.37, 80.60, 75.60, 85.39, 82.03, 77.58]
    both = {tables.TEACHER: results(teacher), "static-en": results([score / 2 for score in teacher])}
    row = "| **static-en** | 36.2 | 40.3 | 37.8 | 42.7 | - | - | - | 41.0 | 38.8 | - | 39.5 | 50.0% |"
    assert tables.sts_table(both).lines().splitlines()[1] == row
    assert "comes out as in the paper on all six sets" in tables.check_teacher(tables.scores(both[tables.TEACHER]))
    other = tables.scores(results([*teacher[:5], 77.4]))
    assert "does **not** come out as in the paper on SICK-R" in tables.check_teacher(other)
    steps = str(tables.ablations(both, tables.STEPS))
    assert "| **+ distillation (3.3), as bundled** | 39.5 | - | - |" in steps
    assert "| **extraction (3.1)** | - | - | - |" in steps
