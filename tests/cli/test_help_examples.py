"""The examples in the help of every command: they are parsed, and those that need no teacher and no server are run."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pellucid
from commands import all_commands
from files import written
from pellucid.cli.app import app
from pellucid.persistence.folder import bundled_models

pytest.importorskip("Stemmer")
pytest.importorskip("pyarrow")

BUNDLED = Path(pellucid.__file__).parent / "bundled"
SENTENCES = (Path(__file__).parents[2] / "examples" / "sentences.txt").read_text("utf-8").splitlines()[:40]
_UNTIL_STOPPED = ("serve", "mcp")
_NEED_TRAINING = ("distill", "evaluate")


def _examples() -> list[str]:
    found = []
    for _, command in all_commands():
        text = (command.help or "").replace("\\\n", " ")
        for line in map(str.strip, text.splitlines()):
            if line.startswith("pellucid ") or " | pellucid " in line:
                found.append(" ".join(line.split()))
    return found


EXAMPLES = _examples()


def _arguments(example: str) -> tuple[list[str], str]:
    """Return the arguments of an example, and the file that it reads from stdin, "" for none."""
    before, bar, command = example.rpartition("| pellucid ")
    words = shlex.split(command.removeprefix("pellucid "), comments=False)
    source = shlex.split(before)[-1] if bar else ""
    for sign in ("<", ">"):
        if sign in words:
            place = words.index(sign)
            source = words[place + 1] if sign == "<" else source
            del words[place : place + 2]
    return words, source


def _is_run(words: list[str]) -> bool:
    needs = set(words[:2]).intersection((*_UNTIL_STOPPED, *_NEED_TRAINING))
    return not needs and not any("/all-" in word or word == "my-encoder" for word in words)


def facts(number: int) -> dict[str, Any]:
    """Return the metadata of a document."""
    day, status = f"2024-06-{1 + number % 28:02d}", "open" if number % 2 else "closed"
    return {"year": 2010 + number, "lang": "en", "version": "1.10", "day": day, "status": status}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file that the examples name."""
    if not {"static-en", "anchors-en-200", "lexicon-en"} <= set(bundled_models()):
        pytest.skip("the bundled models are not in this checkout")
    import pyarrow as pa
    from pyarrow import parquet

    path, lines = tmp_path_factory.mktemp("examples"), "\n".join(SENTENCES) + "\n"
    ids, plain = ["4983", "5836", *(f"d{n}" for n in range(2, 40))], [text.replace('"', "") for text in SENTENCES]
    rows = {field: [{"id": id, field: text} | facts(n) for n, (id, text) in enumerate(zip(ids, SENTENCES))]
            for field in ("review", "question", "text")}  # fmt: skip
    as_json = {field: "".join(json.dumps(row) + "\n" for row in of_field) for field, of_field in rows.items()}
    cells = [f'd{n},"{text}","{text}",1.10' for n, text in enumerate(plain)]
    pairs = "".join(f"{first}\t{second}\n" for first, second in zip(SENTENCES[:20], SENTENCES[20:]))
    for name, content in {
        **{f"{name}.txt": lines for name in "texts questions corpus offers complaints queries".split()},
        **{f"{name}.txt": "".join(lines.splitlines(keepends=True)[::-1]) for name in ("answers", "other-mails")},
        "ids.txt": "d2\n4983\n", "log.tsv": pairs, "pairs.tsv": pairs, "reviews.jsonl": as_json["review"],
        "questions.jsonl": as_json["question"], "articles.jsonl": as_json["text"], "more.jsonl": as_json["text"],
        "reviews.csv": "id,review,text,version,published\n"
        + "".join(f"{line},{2020 + n % 5}-05-01\n" for n, line in enumerate(cells)),
        "more.csv": "id,title,text,version\n" + "".join(f"{line}\n" for line in cells),
        "offers.csv": "id,offer\n" + "".join(f"{n},{json.dumps(text)}\n" for n, text in enumerate(plain)),
        "queries.jsonl": '{"_id": "q1", "text": "the bank"}\n{"_id": "q2", "text": "trains"}\n',
        **dict.fromkeys(("qrels/test.tsv", "qrels/train.tsv"), "query-id\tcorpus-id\tscore\nq1\td2\t1\nq2\td3\t1\n"),
        "checks.tsv": f"query\tid\n{SENTENCES[2]}\td2\n", "new.json": '{"weights": {"bm25": 1}}',
    }.items():  # fmt: skip
        (path / name).parent.mkdir(exist_ok=True)
        written(path / name, content)
    for name in ("corpus", "big"):
        parquet.write_table(pa.table({"key": list(range(40)), "text": SENTENCES}), path / f"{name}.parquet")
    (path / "notes-from").mkdir()
    for name, model in {
        "my-model": "static-en", "my-anchors": "anchors-en-200", "my-anchors-edited": "anchors-en-200",
        "mine": "anchors-en-200", "my-lexicon": "lexicon-en",
    }.items():  # fmt: skip
        shutil.copytree(BUNDLED / model, path / name)
    with pellucid.Index.create(path / "built", "static-en") as index:
        index.add(SENTENCES, ids=ids, metadata=[facts(n) for n in range(len(SENTENCES))])
        for name in ("live", "guides"):
            index.save_settings(name, {"weights": {"bm25": 1}})
    return path


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_parsed(example: str) -> None:
    words, _ = _arguments(example)
    path, command = next((path, command) for path, command in all_commands() if path == tuple(words[: len(path)]))
    command.make_context(command.name, words[len(path) :])  # wrong options and missing arguments raise


@pytest.mark.full
@pytest.mark.parametrize("example", [example for example in EXAMPLES if _is_run(_arguments(example)[0])])
def test_an_example_runs(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str) -> None:
    for entry in folder.iterdir():
        (shutil.copytree if entry.is_dir() else shutil.copy)(entry, tmp_path / entry.name)
    if "index build" not in example:
        (tmp_path / "built").rename(tmp_path / "my-index")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "notes-from").rename(tmp_path / "notes")
    (tmp_path / "notes" / "a.md").write_text("# A note\n\nof some words\n", encoding="utf-8")
    words, source = _arguments(example)
    made = words[words.index("-o") + 1] if "-o" in words else ""
    if made and made not in words[: words.index("-o")] and (tmp_path / made).is_dir():
        shutil.rmtree(tmp_path / made)  # a command makes it, and another one reads it
    if "~/notes" in words:
        words[words.index("notes")] = "notes-index"
        words[words.index("~/notes")] = str(tmp_path / "notes")
    given = (tmp_path / source).read_text("utf-8") if source else None
    if source.endswith("log.tsv"):
        given = "\n".join(line.split("\t")[1] for line in (given or "").splitlines()) + "\n"
    ran = CliRunner().invoke(app, words, input=given)
    assert ran.exit_code == 0, (example, ran.stderr, ran.exception)
    assert ran.stdout or ran.stderr or "-o" in words
