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

    path = tmp_path_factory.mktemp("examples")
    for name in "texts questions answers corpus offers complaints other-mails queries".split():
        turned = SENTENCES[::-1] if name in ("answers", "other-mails") else SENTENCES
        (path / f"{name}.txt").write_text("\n".join(turned) + "\n", encoding="utf-8")
    (path / "ids.txt").write_text("d2\n4983\n", encoding="utf-8")
    for name, field in {"reviews": "review", "questions": "question", "articles": "text", "more": "text"}.items():
        rows = [
            {"id": f"d{n}" if n > 1 else ("4983", "5836")[n], field: text} | facts(n)
            for n, text in enumerate(SENTENCES)
        ]
        (path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    lines = [f'd{n},"{text}","{text}",1.10' for n, text in enumerate(s.replace('"', "") for s in SENTENCES)]
    dated = [f"{line},{2020 + n % 5}-05-01" for n, line in enumerate(lines)]
    (path / "reviews.csv").write_text("id,review,text,version,published\n" + "\n".join(dated) + "\n", encoding="utf-8")
    (path / "more.csv").write_text("id,title,text,version\n" + "\n".join(lines) + "\n", encoding="utf-8")
    offers = [f"{n},{json.dumps(text)}" for n, text in enumerate(s.replace('"', "") for s in SENTENCES)]
    (path / "offers.csv").write_text("id,offer\n" + "\n".join(offers) + "\n", encoding="utf-8")
    pairs = "".join(f"{first}\t{second}\n" for first, second in zip(SENTENCES[:20], SENTENCES[20:]))
    (path / "pairs.tsv").write_text(pairs, encoding="utf-8")
    (path / "log.tsv").write_text(pairs, encoding="utf-8")
    for name in ("corpus", "big"):
        parquet.write_table(pa.table({"key": list(range(40)), "text": SENTENCES}), path / f"{name}.parquet")
    (path / "queries.jsonl").write_text('{"_id": "q1", "text": "the bank"}\n{"_id": "q2", "text": "trains"}\n')
    (path / "qrels").mkdir()
    for name in ("test", "train"):
        (path / "qrels" / f"{name}.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td2\t1\nq2\td3\t1\n")
    (path / "checks.tsv").write_text(f"query\tid\n{SENTENCES[2]}\td2\n", encoding="utf-8")
    (path / "new.json").write_text('{"weights": {"bm25": 1}}', encoding="utf-8")
    (path / "notes-from").mkdir()
    for name, model in {
        "my-model": "static-en", "my-anchors": "anchors-en-200", "my-anchors-edited": "anchors-en-200",
        "mine": "anchors-en-200", "my-lexicon": "lexicon-en",
    }.items():  # fmt: skip
        shutil.copytree(BUNDLED / model, path / name)
    with pellucid.Index.create(path / "built", "static-en") as index:
        index.add(SENTENCES, ids=[row["id"] for row in rows], metadata=[facts(n) for n in range(len(SENTENCES))])
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
    if (
        "-o" in words
        and words[words.index("-o") + 1] not in words[: words.index("-o")]
        and (tmp_path / words[words.index("-o") + 1]).is_dir()
    ):
        shutil.rmtree(tmp_path / words[words.index("-o") + 1])  # a command makes it, and another one reads it
    if "~/notes" in words:
        words[words.index("notes")] = "notes-index"
        words[words.index("~/notes")] = str(tmp_path / "notes")
    given = (tmp_path / source).read_text("utf-8") if source else None
    if source.endswith("log.tsv"):
        given = "\n".join(line.split("\t")[1] for line in (given or "").splitlines()) + "\n"
    ran = CliRunner().invoke(app, words, input=given)
    assert ran.exit_code == 0, (example, ran.stderr, ran.exception)
    assert ran.stdout or ran.stderr or "-o" in words
