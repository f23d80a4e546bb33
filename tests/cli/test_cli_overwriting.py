"""No command replaces what is there unless it is told to, or changes what it was given."""

import shutil

import numpy as np
import pytest

import pellucid
from commands import all_commands, run_command
from pellucid.bulk import duplicates, write_kept
from pellucid.errors import InputError

FILES = ("--html", "--keep")


def commands():
    """Yield the arguments that call each command, and the options of it that name an output."""
    for arguments, command in all_commands():
        options = {option for param in command.params for option in param.opts}
        outputs = [option for option in ("--output", *FILES) if option in options]
        given = list(arguments)
        for param in command.params:
            if param.required and not {"--output"} & set(param.opts):
                given += ["here.txt"] if not param.opts[0].startswith("-") else [param.opts[0], "here.txt"]
        for output in outputs:
            yield pytest.param(given, output, "--overwrite" in options, id=f"{' '.join(arguments)} {output}")


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.fixture
def run(fruit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fruit.save_pretrained("fruit")
    (tmp_path / "here.txt").write_text("the apple\na pear\nthe apple\n")
    return lambda *arguments, code=0: run_command(*arguments, code=code).stderr


@pytest.mark.parametrize(("arguments", "output", "has_option"), [*commands()])
def test_what_is_there_is_refused_before_any_work(run, tmp_path, arguments, output, has_option):
    is_file = output in FILES or arguments == ["encode"]
    target = tmp_path / ("out.npy" if is_file else "made")
    if is_file:
        target.write_text("mine")
    else:
        shutil.copytree("fruit", target)
    before = contents(tmp_path)
    said = run(*arguments, output, target.name, code=1)
    assert said == f"error: {target.name} exists and is not empty; replace it with --overwrite, or give a new name\n"
    assert contents(tmp_path) == before and has_option


def test_an_output_is_replaced_on_request(run, tmp_path):
    (tmp_path / "page.html").write_text("mine")
    (tmp_path / "rows.npy").write_text("mine")
    run("explain", "apple", "pear", "-m", "fruit", "--html", "page.html", "--overwrite")
    run("encode", "here.txt", "-m", "fruit", "--overwrite", "-o", "rows.npy")
    assert "<html" in (tmp_path / "page.html").read_text() and np.load("rows.npy").shape == (3, 3)
    run("edit", "-m", "fruit", "-o", "mine", "--without", "0")
    run("edit", "-m", "fruit", "-o", "mine", "--without", "1", "--overwrite")
    assert pellucid.load("mine").dimensions.names == [pellucid.load("fruit").dimensions.names[n] for n in (0, 2)]
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "letter.txt").write_text("mine")
    said = run("edit", "-m", "fruit", "-o", "notes", "--without", "1", "--overwrite", code=1)
    assert "holds no pellucid model" in said and (tmp_path / "notes" / "letter.txt").read_text() == "mine"


def test_an_input_is_replaced_on_request(run, tmp_path):
    run("edit", "-m", "fruit", "-o", "./fruit", "--without", "0", "--overwrite")
    assert len(pellucid.load("fruit").dimensions) == 2
    run("duplicates", "here.txt", "-m", "fruit", "--keep", "here.txt", "--overwrite")
    assert (tmp_path / "here.txt").read_text() == "the apple\na pear\n"


@pytest.mark.parametrize("kind", ["empty file", "empty folder", "nothing"])
def test_what_holds_nothing_is_no_reason_to_ask(run, tmp_path, kind):
    if kind == "empty folder":
        (tmp_path / "made").mkdir()
        run("edit", "-m", "fruit", "-o", "made", "--without", "0")
        return
    if kind == "empty file":
        (tmp_path / "rows.npy").touch()
    run("encode", "here.txt", "-m", "fruit", "-o", "rows.npy")


def test_functions_that_write_a_file_replace_none_unasked(tmp_path, fruit):
    texts, other = tmp_path / "texts.txt", tmp_path / "other.txt"
    texts.write_text("apple\napple\npear\n")
    other.write_text("mine")
    report = duplicates(texts, fruit)
    with pytest.raises(InputError, match=r"other\.txt exists and is not empty; give overwrite=True"):
        write_kept(texts, report, other)
    assert other.read_text() == "mine"
    write_kept(texts, report, other, overwrite=True)
    write_kept(texts, report, texts)
    assert other.read_text() == texts.read_text() == "apple\npear\n"
