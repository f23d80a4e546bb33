"""The commands that look into a model, change it and make anchor models, on a model of five words."""

import json
from itertools import pairwise

import numpy as np
import pytest

import pellucid
from commands import run_command

LINES = ["the apple", "a pear", "The car and the bicycle", "apple apple pear", "bicycle", "pear and car", "the bicycle"]
EDIT = ("edit", "-m", "fruit", "-o", "mine")


@pytest.fixture
def run(fruit, tmp_path, monkeypatch):
    """Run a command in a folder with the model "fruit", texts and pairs; it must end with exit code `code`."""
    monkeypatch.chdir(tmp_path)
    fruit.save_pretrained("fruit")
    (tmp_path / "texts.txt").write_text("\n".join(LINES) + "\n")
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairwise(LINES)))
    return run_command


@pytest.fixture
def encoder(monkeypatch, fruit):
    """The model that every command opens: an encoder with fitted reasons."""

    def encode(texts):
        return fruit.encode(texts) + 0.1

    words = fruit.vocabulary.forms
    model = pellucid.load(encode)
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(words, draw.integers(1, 6))) for _ in range(250)]
    model.fit_reasons(texts, table=fruit, show_progress_bar=False)
    monkeypatch.setattr("pellucid.cli.app.open_model", lambda *_: model)
    return model


@pytest.mark.parametrize("kind", ["words", "measured", "sentences"])
def test_a_command_takes_the_kind_of_reasons(run, encoder, kind):
    shown = run("explain", "apple and pear", "the pear", "--reasons", kind).stdout
    assert shown.split() == str(encoder.with_reasons(kind).explain("apple and pear", "the pear")).split()
    assert ("texts read" in shown) == (kind == "measured")


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("audit", ["audit", "texts.txt"]),
        ("duplicates", ["duplicates", "texts.txt"]),
    ],
)
def test_reports_go_to_the_screen_to_json_and_to_a_page(run, tmp_path, kind, arguments):
    assert json.loads(run(*arguments, "-m", "fruit", "--json").stdout)["kind"] == kind
    assert "static model" in run(*arguments, "-m", "fruit").stdout
    told = run(*arguments, "-m", "fruit", "--html", "page.html")
    assert told.stdout == "" and told.stderr == "wrote page.html\n"
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_an_edited_model_is_what_the_methods_make(run, fruit):
    run(*EDIT, "--without", "1", "--rename", "0=fruit", "--scale", "2=0.5")
    mine = pellucid.load("mine")
    names = fruit.dimensions.names
    expected = fruit.scale({2: 0.5}).without(1).rename({names[0]: "fruit"})
    assert mine.dimensions.names == expected.dimensions.names == ["fruit", names[2]]
    assert mine.encode(LINES) == pytest.approx(expected.encode(LINES), abs=1e-6)
    compared = json.loads(run("compare", "pairs.tsv", "-m", "fruit", "-m", "mine", "--json").stdout)
    assert compared["names"] == ["fruit", "mine"] and len(compared["scores"]) == len(LINES) - 1


def test_an_edit_renames_first_as_its_help_says(run):
    """Also a dimension that is merged: its new name is in that of the whole."""
    run(*EDIT, "--rename", "0=fruit", "--rename", "1=wheels", "--merge", "0", "--merge", "1")
    assert pellucid.load("mine").dimensions.names[0] == "fruit + wheels"
    names = pellucid.load("fruit").dimensions.names
    renamed = ["--rename", f"0={names[1]}", "--rename", f"1={names[0]}", "--without", names[0]]
    run(*EDIT, "--overwrite", *renamed)
    assert pellucid.load("mine").dimensions.names == [names[0], names[2]]  # what was called so before is gone
    said = run(*EDIT, "--overwrite", "--rename", f"0={names[1]}", "--without", "1", code=1).stderr
    assert "have the same name" in said
