"""The commands that look into a model, change it and make anchor models, on a model of five words."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

import pellucid
from commands import run_command
from pellucid.analysis.ranking import rank
from tables import check_views

LINES = ["the apple", "a pear", "The car and the bicycle", "apple apple pear", "bicycle", "pear and car", "the bicycle"]
EDIT = ("edit", "-m", "fruit", "-o", "mine")
CHOOSE = ("choose-anchors", "corpus.txt", "-m", "fruit")


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
    monkeypatch.setattr("pellucid.cli.input.open_model", lambda *_: model)
    return model


PAIRS = [f"apple {b} and the {a} car\tthe {a} pear, a {b} bicycle of apple" for a in ("big", "old") for b in "xyz"]


def test_reasons_are_checked_of_texts_and_of_pairs(run, encoder, tmp_path):
    (tmp_path / "long.tsv").write_text("\n".join(PAIRS))
    check = encoder.check_reasons([tuple(line.split("\t")) for line in PAIRS])
    shown = " ".join(run("check-reasons", "long.tsv", "--pairs").stdout.split())
    assert " ".join(check.verdict.split()) in shown and "Check of reasons agreement" in shown
    record = json.loads(run("check-reasons", "long.tsv", "--pairs", "--json", "--roles", "query,document").stdout)
    assert record["kind"] == "reasons-check" and record["pairs"] + record["skipped"] == len(PAIRS)
    (tmp_path / "long.txt").write_text("\n".join(PAIRS).replace("\t", "\n"))
    few = json.loads(run("check-reasons", "long.txt", "-n", 6, "--json").stdout)
    assert few["pairs"] + few["skipped"] == 6
    assert run("check-reasons", "-", "-n", 6, "--json", stdin=(tmp_path / "long.txt").read_text()).stdout
    told = run("check-reasons", "long.tsv", "--pairs", "--html", "check.html")
    assert told.stderr.endswith("wrote check.html\n") and "Check of reasons" in (tmp_path / "check.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["texts.txt", "-n", 4], "-n", 2),
        (["nowhere.txt"], "nowhere.txt", 1),
        (["texts.txt"], "are too few to find pairs among", 1),
        (["texts.txt", "--pairs"], "tab", 1),
        (["pairs.tsv", "--pairs", "--roles", "query,reader"], "reader", 2),
    ],
)
def test_a_check_that_cannot_be_made_is_told(run, encoder, arguments, message, code):
    assert message in run("check-reasons", *arguments, code=code).stderr


def test_reasons_of_a_model_that_is_no_encoder_are_exact(run):
    for command in (["check-reasons", "texts.txt"], ["explain", "apple", "pear", "--reasons", "measured"]):
        told = run(*command, "-m", "fruit", code=1).stderr
        assert "whose rows are exact" in told and "give one with --model" in " ".join(told.split())


@pytest.mark.parametrize("kind", ["words", "measured", "sentences"])
def test_a_command_takes_the_kind_of_reasons(run, encoder, kind):
    shown = run("explain", "apple and pear", "the pear", "--reasons", kind).stdout
    why = encoder.with_reasons(kind).explain("apple and pear", "the pear")
    assert shown.split() == str(why).split()
    assert ("texts read" in shown) == (kind == "measured")


def test_the_fewest_words_that_hold_a_similarity_up(run, fruit):
    texts = "apple pear", "the apple, a bicycle"
    expected = fruit.counterfactual(*texts, below=0.5)
    shown = run("explain", *texts, "--below", 0.5, "-m", "fruit").stdout
    assert " ".join(str(expected).split()) == " ".join(shown.split()) and "the score falls below" in " ".join(
        shown.split()
    )
    record = json.loads(run("explain", *texts, "--below", 0.5, "-m", "fruit", "--json").stdout)
    assert record == json.loads(expected.to_json()) and record["score_without"] < 0.5 <= record["score"]
    run("explain", *texts, "--below", 0.5, "-m", "fruit", "--html", "gone.html")


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["apple pear", "--below", 0.5], "needs both A and B", 2),
        (["apple pear", "apple car", "--below", 0.99], "is below 0.99 already", 1),
        (["apple pear", "apple apple", "--below", 0.1], "no removal brings the score below 0.1", 1),
        (["apple", "apple", "--below", 0.1], "fewer than two words", 1),
        (["apple", "apple", "--below", "nan"], "below is nan; it must be a number, finite", 1),
        (["apple pear", "apple car", "--below", "x"], "x", 2),
    ],
)
def test_a_counterfactual_that_cannot_be_found_is_told(run, arguments, message, code):
    assert message in run("explain", *arguments, "-m", "fruit", code=code).stderr


def test_dimensions_are_listed_by_number_and_name(run, fruit):
    lines = run("dimensions", "-m", "fruit").stdout.splitlines()
    assert lines == [f"{number}\t{name}" for number, name in enumerate(fruit.dimensions.names)]
    first = json.loads(run("dimensions", "-m", "fruit", "--json").stdout.splitlines()[0])
    assert first["dimension"] == 0 and first["name"] == fruit.dimensions.names[0]


def test_a_card_by_number_and_by_name_is_the_same(run, fruit):
    by_number = json.loads(run("cards", "texts.txt", "--dimension", "2", "-m", "fruit", "--json").stdout)
    by_name = json.loads(
        run("cards", "texts.txt", "--dimension", fruit.dimensions.names[2], "-m", "fruit", "--json").stdout
    )
    assert by_number == by_name and by_number["kind"] == "card"


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("audit", ["audit", "texts.txt"]),
        ("deletion", ["deletion-test", "pairs.tsv", "--top-k", "2"]),
        ("deletion", ["deletion-test", "pairs.tsv", "--units", "words"]),
        ("ranking", ["rank", "apple", "texts.txt", "--top-k", "2"]),
        ("contrast", ["contrast", "texts.txt", "texts.txt"]),
    ],
)
def test_reports_go_to_the_screen_to_json_and_to_a_page(run, tmp_path, kind, arguments):
    assert json.loads(run(*arguments, "-m", "fruit", "--json").stdout)["kind"] == kind
    assert "static model" in run(*arguments, "-m", "fruit").stdout
    told = run(*arguments, "-m", "fruit", "--html", "page.html")
    assert told.stdout == "" and told.stderr == "wrote page.html\n"
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_pictures_and_the_page_of_all_cards(run, tmp_path):
    run("audit", "texts.txt", "-m", "fruit", "--plot", "audit.png")
    assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")
    run("cards", "texts.txt", "-m", "fruit", "--html", "cards.html")
    assert (tmp_path / "cards.html").stat().st_size > 1000


def test_an_edited_model_is_what_the_methods_make(run, fruit):
    run(*EDIT, "--without", "1", "--rename", "0=fruit", "--scale", "2=0.5")
    mine = pellucid.load("mine")
    names = fruit.dimensions.names
    expected = fruit.scale({2: 0.5}).without(1).rename({names[0]: "fruit"})
    assert mine.dimensions.names == expected.dimensions.names == ["fruit", names[2]]
    assert mine.encode(LINES) == pytest.approx(expected.encode(LINES), abs=1e-6)
    compared = json.loads(run("compare", "pairs.tsv", "-m", "fruit", "-m", "mine", "--json").stdout)
    assert compared["names"] == ["fruit", "mine"] and len(compared["scores"]) == len(LINES) - 1


@pytest.mark.parametrize(
    ("options", "message", "code"),
    [
        ([], "nothing to edit", 1),
        (["--without", "no such"], "no dimension is called", 1),
        (["--scale", "1"], "is not DIMENSION=FACTOR", 2),
        (["--scale", "1=much"], "is not DIMENSION=FACTOR", 2),
        (["--rename", "1=a", "--rename", "1=b"], "'1' is given twice", 2),
        (["--merge", "1"], "two dimensions", 1),
    ],
)
def test_an_edit_that_cannot_be_made_is_told_and_writes_nothing(run, tmp_path, options, message, code):
    assert message in run(*EDIT, *options, code=code).stderr
    assert not (tmp_path / "mine").exists()


def test_an_anchor_model_is_made_over_a_static_one_and_can_be_made_again(run, tmp_path):
    pytest.importorskip("ftfy")
    pytest.importorskip("py3langid")
    lines = [
        "The apple is on the table.",
        "A pear is a sweet fruit.",
        "The car stops at home.",
        "He has a bicycle.",
    ]
    (tmp_path / "corpus.txt").write_text("\n".join([*lines, "http://apple.com/pear", "car"]))
    told = run(*CHOOSE, "-n", 2, "-o", "anchors", "--decorrelate", 0)
    assert "2 anchors over fruit" in told.stderr
    model = pellucid.load("anchors")
    assert len(model.dimensions) == 2 and set(model.dimensions.names) <= set(lines)
    assert model.encode(model.dimensions.names).diagonal() == pytest.approx([1, 1], abs=1e-5)
    again = run(
        "choose-anchors",
        "-m",
        "fruit",
        "corpus.txt",
        "-n",
        1,
        "-o",
        "one",
        "--work-dir",
        "anchors.work",
        "--method",
        "fps",
    )
    assert "1 anchors" in again.stderr
    assert "5 anchors asked for" in run(*CHOOSE, "-n", 5, "-o", "five", code=1).stderr


def test_an_edit_changes_the_weights_of_words(run, fruit):
    run(*EDIT, "--word", "pear=0.5", "--without", "1")
    expected = fruit.reweight({"pear": 0.5}).without(1)
    assert pellucid.load("mine").vectors.tolist() == expected.vectors.tolist()
    assert "not in the vocabulary" in run(*EDIT, "--overwrite", "--word", "qqq=1", code=1).stderr
    assert "is not WORD=FACTOR" in run(*EDIT, "--overwrite", "--word", "pear", code=2).stderr


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


def test_what_is_listed_is_no_formula_and_steers_no_terminal(run, fruit):
    names = {0: "=1+1", 1: "-", 2: "\x1b[31m[red]\x9b1m\u202ered\ttab\nline"}
    fruit.rename(names).save_pretrained("mine")
    shown = run("dimensions", "-m", "mine").stdout
    assert shown == "0\t'=1+1\n1\t'-\n2\t\u241b[31m[red]\ufffd1m\ufffdred tab\u23celine\n"
    listed = run("dimensions", "-m", "mine", "--json").stdout
    assert not {"\x9b", "\u202e"} & set(listed)
    assert [json.loads(line)["name"] for line in listed.splitlines()] == list(names.values())
    assert pellucid.load("mine").dimensions.names == list(names.values())


def test_a_query_of_unknown_words_is_said_to_be_unknown(run):
    told = run("rank", "zebra quagga", "texts.txt", "-m", "fruit").stdout
    assert "The query is unknown: the model knows none of its words (zebra, quagga)." in told
    assert "the apple" not in told  # no ranking of zeros
    found = json.loads(run("rank", "zebra quagga", "texts.txt", "-m", "fruit", "--json").stdout)
    assert found["coverage"] == {"known": 0, "total": 2, "partly": 0, "share": 0.0, "read_as": []}
    assert found["unknown"] == ["zebra", "quagga"]
    told = " ".join(run("rank", "apple zebra quagga", "texts.txt", "-m", "fruit").stdout.split())
    assert "Only 1 of 3 words of the query known" in told and "Unknown: zebra, quagga." in told and "the apple" in told
    assert "order means nothing" in run("rank", "", "texts.txt", "-m", "fruit").stdout
    assert "known" not in run("rank", "apple zebra", "texts.txt", "-m", "fruit").stdout


def test_a_ranking_names_the_documents_of_which_little_is_known(fruit):
    found = rank(fruit, "apple", ["car", "apple zebra\x1b quagga", "pear"])
    assert [round(item.coverage.share, 2) for item in found.ranked] == [0.33, 1, 1]
    assert "Fewer than half of the words are known of 1 document: rank 1." in check_views(found)
    assert "Fewer than half" in found.to_markdown() and "Fewer than half" in str(found)


def test_an_anchor_model_of_the_command_line_opens_in_plain_sentence_transformers(run, tmp_path, monkeypatch):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    monkeypatch.setattr("pellucid.persistence.folder._BUNDLED", tmp_path)  # a bundled encoder was kept by name alone
    (tmp_path / "corpus.txt").write_text("the apple\nthe car\n")
    run(*CHOOSE, "-n", 2, "-o", "anchors", "--unfiltered")
    plain = sentence_transformers.SentenceTransformer(str(tmp_path / "anchors"), device="cpu")
    assert plain.encode(LINES) == pytest.approx(pellucid.load(tmp_path / "anchors").encode(LINES), abs=1e-5)
