"""The command line: what it writes, where, and how it ends; no command replaces what is there unless it is told to.

The examples in the help of every command are parsed, and those that need no teacher and no server are run.
"""

import gzip
import json
import lzma
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.main
from typer.testing import CliRunner

import pellucid
from commands import all_commands, run_command
from files import written
from pellucid import __version__, progress
from pellucid.bulk import duplicates, read_shards, write_kept
from pellucid.cli import app as cli
from pellucid.cli.app import app
from pellucid.errors import InputError
from pellucid.persistence import folder as model_folder
from pellucid.persistence.folder import bundled_models, locate
from tables import CONTROLS

TEXTS = ["the apple", "a pear", "", "unheard of", "The car and the bicycle", "apple apple pear"]


@pytest.fixture
def models(fruit, tmp_path_factory, monkeypatch) -> Path:
    """A folder of bundled models with `static-en` in it, which is the fruit model."""
    folder = tmp_path_factory.mktemp("models")
    fruit.save_pretrained(folder / "static-en")
    monkeypatch.setattr(model_folder, "_BUNDLED", folder)
    return folder


@pytest.fixture
def run(models, tmp_path, monkeypatch):
    """Run a command in this process and in an empty folder, with the bundled models of `models`."""
    monkeypatch.chdir(tmp_path)
    return run_command


@pytest.fixture
def texts(tmp_path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


def shell(model: Path, script: str, **more: object) -> subprocess.CompletedProcess[str]:
    """Run a line of shell with `pellucid` and `$MODEL` in it."""
    command = f"pellucid() {{ '{sys.executable}' -m pellucid \"$@\"; }}; set -o pipefail; {script}"
    environment = {
        **os.environ,
        "PYTHONWARNINGS": "ignore:PELLUCID_NATIVE is off",  # what `make plain` chose to do without
        "MODEL": str(model / "static-en"),
        **more,
    }
    return subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=60)


# --- encode -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("block", "options"), [(1, []), (5, []), (100, []), (5, ["texts.jsonl", "--field", "body"])])
def test_npy_holds_what_encode_returns(run, texts, fruit, tmp_path, monkeypatch, block, options):
    monkeypatch.setattr(cli, "_BLOCK_TEXTS", block)
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in TEXTS))
    run("encode", *(options or [texts]), "-o", tmp_path / "rows.npy")
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert rows.dtype == np.float32 and rows.shape == (len(TEXTS), 3) and (rows == fruit.encode(TEXTS)).all()


def test_json_lines_go_to_stdout_and_keep_every_bit(run, texts, fruit):
    lines = [json.loads(line) for line in run("encode", texts).stdout.splitlines()]
    assert [line["text"] for line in lines] == TEXTS
    assert (np.array([line["embedding"] for line in lines], np.float32) == fruit.encode(TEXTS)).all()


@pytest.mark.parametrize("suffix", ["npy", "jsonl"])
def test_no_texts_give_a_whole_file_without_rows(run, tmp_path, suffix):
    path = tmp_path / f"rows.{suffix}"
    run("encode", "-", "-o", path, stdin="")
    assert (np.load(path).shape == (0, 3)) if suffix == "npy" else (path.read_text() == "")


def test_stdin_is_read_as_utf8_lines(run):
    lines = run("encode", stdin="apple\r\npear\n\u00e9t\u00e9").stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["apple", "pear", "\u00e9t\u00e9"]


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_are_read_like_files(models):
    ended = shell(
        models,
        "pellucid encode <(printf 'a pear\\n\\nthe apple') -m $MODEL"
        " && pellucid compare <(printf 'car\\tcar\\n') -m $MODEL -m static-en --json",
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines[:3]] == ["a pear", "", "the apple"]
    assert json.loads("".join(lines[3:]))["pairs"] == [["car", "car"]]


_READERS = {
    "encode": ["encode", "{}", "-o", "out.npy"],
    "duplicates": ["duplicates", "{}"],
    "audit": ["audit", "{}"],
    "compare": ["compare", "{}", "-m", "static-en", "-m", "static-en"],
    "topics": ["topics", "{}", "-n", "2"],
    "bias": ["bias", "--pairs", "{}"],
    "model": ["encode", "good.txt", "-m", "{}", "-o", "out.npy"],
}


_SILENT = ("serve", "mcp", "evaluate", "doctor")  # they wait, ask the hub, or report what is wrong


@pytest.mark.full
@pytest.mark.parametrize("value", ["", "nan"])
def test_a_wrong_value_of_any_option_ends_well_or_with_one_line(run, value):
    Path("good.txt").write_text("the apple\na pear\nthe car\n", encoding="utf-8")
    tried = 0
    for path, command in all_commands():
        given = ["good.txt" for one in command.params if one.param_type_name == "argument" and one.required]
        options = [one.opts[0] for one in command.params if one.param_type_name == "option" and not one.is_flag]
        for option in options if path[0] not in _SILENT else ():
            ended = CliRunner().invoke(app, [*path, *given, option, value], prog_name="pellucid", input="")
            called = f"{' '.join(path)} {option} {value!r}"
            assert ended.exit_code in (0, 1, 2), f"{called}: {ended.exception!r}"
            said = [line for line in ended.stderr.splitlines() if not line.startswith("note: ")]
            assert ended.exit_code != 1 or (len(said) == 1 and said[0].startswith("error: ")), f"{called}: {said}"
            tried += 1
    assert tried > 60


@pytest.mark.full
@pytest.mark.parametrize("command", _READERS)
def test_odd_and_damaged_input_ends_well_or_with_one_line(run, command):
    good = "the apple\na pear\nthe car\n"
    odd = {
        "good.txt": good.encode(), "empty.txt": b"", "blank.txt": b"\n \n", "open.txt": b"apple", "dos.txt": b"\r\n",
        "long.txt": b"apple " * 20_000, "binary.txt": bytes(range(256)), "wide.txt": good.encode("utf-16"),
        "half.txt.gz": gzip.compress(good.encode())[:-9], "odd.txt.gz": gzip.compress(b"a\n" * 99)[:20] + b"\xff" * 9,
        "half.txt.xz": lzma.compress(good.encode())[:-9], "deep.jsonl": b"[" * 100_000, "null.jsonl": b"null\n",
        "digits.jsonl": b'{"n": ' + b"9" * 5000 + b"}", "lone.jsonl": b'"\\ud800"\n', "empty.parquet": b"",
        "broken.parquet": b"PAR1" + bytes(99) + b"PAR1", "table.csv": b"a,b\n", "pairs.tsv": b"apple\tpear\n",
        "name": b"apple\n",
    }  # fmt: skip
    for name, content in odd.items():
        Path(name).write_bytes(content)
    Path("folder.txt").mkdir()
    pq.write_table(pa.table({"text": [1, 2]}), "numbers.parquet")
    for name in [*odd, "folder.txt", "numbers.parquet", "absent.txt", "/dev/null"]:
        ended = CliRunner().invoke(app, [argument.format(name) for argument in _READERS[command]], prog_name="pellucid")
        assert ended.exit_code in (0, 1), f"{name}: {ended.exception!r}"
        said = ended.stderr.replace(f"note: {name} holds no texts\n", "")
        assert ended.exit_code == 0 or (said.startswith("error: ") and said.count("\n") == 1), name
        assert not re.search(r"\wSettings\b|near_duplicates|batch_size|\wError\b", ended.stderr), ended.stderr


def test_an_error_half_way_leaves_the_old_file_and_nothing_else(run, tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "_BLOCK_TEXTS", 1)
    (tmp_path / "texts.jsonl").write_text('"apple"\n"pear"\nbroken\n')
    (tmp_path / "rows.npy").write_bytes(b"old")
    command = ["encode", tmp_path / "texts.jsonl", "-o", tmp_path / "rows.npy", "--overwrite"]
    assert "line 3" in run(*command, code=1).stderr
    assert (tmp_path / "rows.npy").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.npy", "texts.jsonl"]


def test_a_folder_means_shards(run, texts, fruit, tmp_path):
    assert run("encode", texts, tmp_path / "out").stderr.strip().endswith("out: 1 shard")
    (shard,) = read_shards(tmp_path / "out")
    np.testing.assert_allclose(shard.rows, fruit.encode(TEXTS), atol=1e-6)
    assert shard.ids == list(range(len(TEXTS)))
    pq.write_table(pa.table({"key": ["a", "b"], "body": ["apple", "car"]}), tmp_path / "c.parquet")
    run("encode", tmp_path / "c.parquet", tmp_path / "named", "--id-field", "key", "--field", "body")
    assert next(read_shards(tmp_path / "named")).ids == ["a", "b"]


# --- explain, describe, models ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shown", "options"), [([], {}), (["--rows", "--top-k", "1"], {"rows": True, "top_k": 1})])
@pytest.mark.parametrize(
    ("texts", "explained"),
    [
        (["the bicycle"], lambda m: m.explain("the bicycle")),
        (["apples.txt "], lambda m: m.explain("apples.txt ")),  # with a blank behind it no file
        (["the apple", "apple pear"], lambda m: m.explain("the apple", "apple pear")),
        (["apple", "pear", "--than", "car"], lambda m: m.explain("apple", "pear") - m.explain("apple", "car")),
    ],
)
def test_explain_prints_what_the_library_explains(run, fruit, texts, explained, shown, options):
    why = explained(fruit)
    assert run("explain", *texts, *shown).stdout.split() == why.to_text(**options).split()
    assert json.loads(run("explain", *texts, "--json").stdout) == json.loads(why.to_json())


def test_describe_texts_or_stdin(run):
    assert run("describe", "the apple", "--top-k", "1").stdout == "mostly about: apple (97%)\n"
    lines = run("describe", "--json", stdin="pear\n\n").stdout.splitlines()
    assert [json.loads(line)["description"] for line in lines] == [
        "mostly about: pear (100%)",
        "nothing this model knows",
    ]


def test_models_lists_what_the_card_says(run, models):
    (models / "static-en" / "README.md").write_text(
        "---\nlicense: mit\nquality: STS 50.0\nlanguage:\n- en\n- pt-BR\ntags:\n- x\n---\n"
        "\n# Fruit\n\nFive words\nto test with.\n\nMore.\n"
    )
    facts = json.loads(run("models", "--json").stdout)
    expected = {
        "name": "static-en", "family": "static", "about": "Five words to test with.", "licence": "mit",
        "languages": "en, pt-BR", "needs": "nothing more", "quality": "STS 50.0",
        "card": str(models / "static-en" / "README.md"),
    }  # fmt: skip
    assert {name: facts[name] for name in expected} == expected
    assert "Five words to test with." in run("models").stdout


def test_eval_passes_its_arguments_on_and_prints_a_table(run, monkeypatch, tmp_path):
    from pellucid.evaluation import evaluating

    row = evaluating.TaskScore("STS15", "STS", "cosine_spearman", 83.14)
    monkeypatch.setattr(evaluating, "evaluate", asked := Mock(return_value=evaluating.Results("toy", (row,))))
    shown = run("evaluate", "-m", "toy", "--data", tmp_path, "--task", "STS15", "--task", "SICK-R").stdout
    assert "STS15 STS cosine_spearman 83.1" in " ".join(shown.split())
    assert json.loads(run("evaluate", "-m", "toy", "--data", tmp_path, "--json").stdout)["rows"][0]["score"] == 83.14
    assert asked.call_args_list == [
        call("toy", data=tmp_path, tasks=tasks, cache_dir=None) for tasks in (["STS15", "SICK-R"], None)
    ]


def test_distill_saves_the_model_in_the_form_asked_for(run, monkeypatch, tmp_path, fruit):
    import pellucid.static.training.distill  # the module, whose function is replaced

    monkeypatch.setattr(pellucid.static.training.distill, "distill", asked := Mock(return_value=fruit))
    Path("corpus.txt").write_text("an apple\n")
    options = ["--dimensions", "64", "--vocabulary", "1000", "--steps", "5", "--cased", "--dtype", "int8"]
    result = run("distill", "corpus.txt", "--teacher", "teacher", "-o", tmp_path / "model", *options)
    assert result.stdout == "" and "5 words, 3 dimensions" in result.stderr
    assert pellucid.load(tmp_path / "model").vectors.dtype == np.int8
    (teacher, corpus), settings = asked.call_args
    words = settings["extraction"]
    assert (teacher, str(corpus), settings["work_dir"]) == ("teacher", "corpus.txt", tmp_path / "model.work")
    assert (settings["pca"].dimensions, settings["refinement"].steps, words.max_vocabulary, words.cased) == (
        64, 5, 1000, True,
    )  # fmt: skip


# What is typed wrongly, how it ends, and words of the answer; static-en has five words here.
MISTAKES = [
    ("encode texts.txt -o rows.csv", 1, "rows.csv"),
    ("encode texts.txt -o .", 1, "a folder after FILE for shards"),
    ("encode texts.txt -m statik-en", 1, "'statik-en'"),
    ("encode texts.txt --id-field key", 2, "folder of shards"),
    ("encode texts.txt out -o a.npy", 2, "--output"),
    ("encode - out", 2, "FILE"),
    ("duplicates --keep b.txt", 2, "not stdin or an index"),
    ("encode field.jsonl", 1, "'text'"),
    ("encode empty.txt", 1, "empty.txt holds no texts\n"),
    ("encode texts.txt --role passage", 1, "prompt_name is 'passage'"),
    ("encode --otuput x", 2, "Usage: pellucid"),
    ("explain", 2, "Usage: pellucid"),
    ("explain a --top-k -1", 2, "Usage: pellucid"),
    ("explain apple --than car", 2, "both A and B"),
    ("explain apple texts.txt", 1, "is a file"),
    ("explain apples.txt", 1, "Put a blank behind it"),
    ("explain a b --roles query,passage", 1, "role is 'passage'"),
    ("explain a --roles query,document", 1, "there is no second text"),
    ("explain apple pear --reasons measured", 1, "whose rows are exact"),
    ("describe texts.txt", 1, "pellucid describe < texts.txt"),
    ("topics texts.txt -o labels.parquet", 1, "end its name in one of: .csv, .tsv"),
    ("explian a b", 2, "'explain'"),
    ("similarity a b", 2, "No such command"),
    ("distill absent.txt --teacher no/such-teacher -o made", 1, "not found: absent.txt"),
    ("edit -o mine", 1, "nothing to edit"),
    ("edit -o mine --without none", 1, "no dimension is called"),
    ("edit -o mine --scale 1", 2, "is not DIMENSION=FACTOR"),
    ("edit -o mine --scale 1=much", 2, "is not DIMENSION=FACTOR"),
    ("edit -o mine --rename 1=a --rename 1=b", 2, "'1' is given twice"),
    ("edit -o mine --merge 1", 1, "two dimensions"),
    ("edit -o mine --rename 0=x --rename 1=x", 1, "have the same name"),
]


@pytest.mark.parametrize(("command", "code", "words"), MISTAKES)
def test_a_mistake_gets_the_way_out_and_writes_nothing(run, texts, tmp_path, command, code, words):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "field.jsonl").write_text('{"body": "apple"}\n')
    before = set(tmp_path.iterdir())
    said = run(*command.split(), code=code).stderr
    assert words in " ".join(said.split()) + "\n", said
    assert code == 2 or (said.startswith("error: ") and said.count("\n") == 1)
    assert set(tmp_path.iterdir()) == before


def test_no_texts_on_stdin_are_said(run):
    assert {run(command, stdin="").stderr for command in ("encode", "describe")} == {"note: stdin holds no texts\n"}


# --- how it ends ------------------------------------------------------------------------------------------------------


def test_version(run):
    assert run("--version").stdout == f"pellucid {__version__}\n"


@pytest.mark.parametrize("missing", ["tokenizers", "safetensors", "numpy"])
def test_a_broken_installation_is_told_in_one_line(missing):
    start = f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['pellucid', 'doctor']"
    program = f"{start}; from pellucid.cli.app import main; main()"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    *_, last = ended.stderr.splitlines()
    assert ended.returncode == 1 and missing in last and "pip install --force-reinstall pellucid" in last
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("pellucid doctor >&-", (0, "", "")),
        ("pellucid describe apple -m $MODEL >&-", (0, "", "")),
        ("yes apple | head -n 100000 | pellucid describe -m $MODEL | head -n 1",
         (141, "mostly about: apple (100%)\n", "")),
        pytest.param("pellucid describe apple -m $MODEL > /dev/full", (1, "", "error: No space left on device\n"),
                     marks=pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")),
    ],
)  # fmt: skip
def test_a_closed_output_is_quiet_and_a_full_disk_is_told_in_one_line(models, command, expected):
    ended = shell(models, command)
    assert (ended.returncode, ended.stdout, ended.stderr) == expected


def test_a_real_interrupt_leaves_no_file(models, tmp_path):
    command = [sys.executable, "-m", "pellucid", "encode", "-m", models / "static-en", "-o", tmp_path / "rows.npy"]
    # a test run started in the background of a shell ignores SIGINT, and so would its children
    listen = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        command, text=True, preexec_fn=listen, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        while not any(path.suffix == ".part" for path in tmp_path.iterdir()):  # it is there as soon as reading begins
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130 and told == "interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_starts_without_the_heavy_packages():
    script = (
        "import sys, pellucid.cli.app as cli\n"
        "print(*sys.modules)\n"
        "try: cli.app(['index', 'list', 'none', '--limit', '3'])\n"
        "finally: print(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    at_start, after_listing = map(str.split, ran.stdout.splitlines())
    assert "typer" in at_start and not {"numpy", "scipy", "tokenizers", "torch", "rich.console"} & set(at_start)
    assert "none does not exist" in ran.stderr
    assert not {"pydantic", "http.client"} & set(after_listing)  # which typer and the hub's proxies need


HOSTILE = "apple \x1b]0;title\x07[red]\x9b1m\u202e \u2066 <b>"


def test_no_text_or_file_can_steer_the_terminal(run, tmp_path):
    shown = [
        run("describe", HOSTILE), run("explain", HOSTILE, HOSTILE), run("explain", HOSTILE, "--json"),
        run("describe", HOSTILE, "--json"), run("explain", HOSTILE + " zebra" * 20, HOSTILE, "--json"),
        run("describe", HOSTILE), run("explain", HOSTILE, "--html", tmp_path / "\x1b[31m.html"),
        run("audit", tmp_path / "\x1b[31m\u202e.txt", code=1), run("models"),
    ]  # fmt: skip
    for result in shown:
        assert not re.search(CONTROLS, result.stdout + result.stderr)
    assert json.loads(shown[2].stdout)["text1"] == HOSTILE and json.loads(shown[4].stdout)["text2"] == HOSTILE
    assert "[red]" in shown[1].stdout


def test_a_warning_is_one_line_that_steers_no_terminal(capsys):
    cli._show_warning(UserWarning("a \x1b[31m\nb"), UserWarning)
    assert capsys.readouterr().err == "warning: a \u241b[31m b\n"


# --- finding one's way ------------------------------------------------------------------------------------------------


def test_help_lists_every_command_under_a_heading_with_its_whole_summary(run):
    said = run("--help").stdout
    assert "Commands:" not in said and "..." not in said.partition("Embed and explain:")[2]
    listed = {name for group in cli.Commands.headings.values() for name in group}
    commands = typer.main.get_command(app)
    assert listed == set(commands.list_commands(None))
    for name in listed:
        assert " ".join(commands.get_command(None, name).help.split("\n\n")[0].split()) in " ".join(said.split()), name
        options = [param.opts for param in commands.get_command(None, name).params if param.name in ("model", "models")]
        assert options in ([], [["--model", "-m"]]), name


def test_doctor_says_what_works(run, models, fruit, tmp_path):
    said = run("doctor").stdout
    assert f"pellucid: {__version__}" in said and "which add up to it" in said and "WRONG" not in said
    (models / "static-en" / "model.safetensors").write_bytes(b"damaged")
    found = run("doctor", "--json", code=1).stdout.splitlines()
    fruit.save_pretrained(tmp_path / "m")
    (tmp_path / "m" / "words.txt").write_text("the\npear\napple\ncar\nbicycle\n")
    assert f"{tmp_path / 'm'}/words.txt" in run("doctor", "-m", tmp_path / "m", code=1).stdout
    assert {line["about"] for line in map(json.loads, found) if not line["sound"]} == {"models", "self-test"}


def test_doctor_goes_on_behind_every_fault(run, models, monkeypatch):
    """A wrong setting, an installation without metadata and a damaged model are findings, not the end of it."""
    shutil.copytree(models / "static-en", models / "second")
    (models / "second" / "config.json").write_text("{")
    monkeypatch.setenv("PELLUCID_THREADS", "many")
    monkeypatch.setattr(metadata, "requires", lambda name: metadata.distribution("no-such-package"))
    found = list(map(json.loads, run("doctor", "--json", code=1).stdout.splitlines()))
    assert [line["about"] for line in found if not line["sound"]] == ["versions", "extras", "models"]
    assert [line["about"] for line in found if line["sound"]][-2:] == ["self-test", "environment"]
    said = {line["about"]: line["found"] for line in found}
    assert "PELLUCID_THREADS is 'many'" in said["versions"] and "second: " in said["models"]
    assert "no-such-package" in said["extras"] and "PELLUCID_THREADS=many" in said["environment"]


def test_without_a_terminal_long_work_prints_lines(monkeypatch, capsys):
    seconds = iter([0, 0, 10, 31, 32, 59, 61])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(seconds))
    with progress.Progress("reading", total=50) as bar:
        for _ in range(5):
            bar.advance(10)
    assert capsys.readouterr().err == "reading: 20 of 50 texts after 31 s\nreading: 50 of 50 texts after 61 s\n"


# --- looking into a model and changing it -----------------------------------------------------------------------------


@pytest.fixture
def encoder(monkeypatch, fruit):
    """The model that every command opens: an encoder with fitted reasons."""
    model, draw = pellucid.load(lambda texts: fruit.encode(texts) + 0.1), np.random.default_rng(0)
    texts = [" ".join(draw.choice(fruit.vocabulary.forms, draw.integers(1, 6))) for _ in range(250)]
    model.fit_reasons(texts, table=fruit, show_progress_bar=False)
    monkeypatch.setattr("pellucid.cli.app.open_model", lambda *_: model)
    return model


@pytest.mark.parametrize("kind", ["words", "measured", "sentences"])
def test_a_command_takes_the_kind_of_reasons(run, encoder, kind):
    shown = run("explain", "apple and pear", "the pear", "--reasons", kind).stdout
    assert shown.split() == str(encoder.with_reasons(kind).explain("apple and pear", "the pear")).split()
    assert ("texts read" in shown) == (kind == "measured")


@pytest.mark.parametrize(
    ("command", "key", "said"),
    [
        (["audit", "texts.txt"], ("kind", "audit"), "static model"),
        (["duplicates", "texts.txt"], ("kind", "duplicates"), "static model"),
        (["explain", "apple", "pear"], ("text2", "pear"), "is close to"),
    ],
)
def test_reports_go_to_the_screen_to_json_and_to_a_page(run, texts, command, key, said):
    assert key in json.loads(run(*command, "--json").stdout).items() and said in run(*command).stdout
    told = run(*command, "--html", "page.html")
    assert (told.stdout, told.stderr) == ("", "wrote page.html\n")
    assert Path("page.html").read_text().startswith("<!doctype html>")


def test_an_edited_model_is_what_the_methods_make(run, fruit, models):
    first, second, third = fruit.dimensions.names
    run("edit", "-o", "mine", "--without", "1", "--rename", "0=fruit", "--scale", "2=0.5")
    mine, expected = pellucid.load("mine"), fruit.scale({2: 0.5}).without(1).rename({first: "fruit"})
    assert mine.dimensions.names == expected.dimensions.names == ["fruit", third]
    assert mine.encode(TEXTS) == pytest.approx(expected.encode(TEXTS), abs=1e-6)
    Path("pairs.tsv").write_text("the apple\ta pear\nbicycle\tpear and car\n")
    compared = json.loads(run("compare", "pairs.tsv", "-m", "static-en", "-m", "mine", "--json").stdout)
    assert compared["names"] == ["static-en", "mine"] and len(compared["scores"]) == 2
    for edits, names in (
        (["--rename", "0=fruit", "--rename", "1=wheels", "--merge", "0", "--merge", "1"], ["fruit + wheels", third]),
        # what was called so before is gone
        (["--rename", f"0={second}", "--rename", f"1={first}", "--without", first], [first, third]),
    ):
        run("edit", "-o", "mine", "--overwrite", *edits)
        assert pellucid.load("mine").dimensions.names == names


# --- files that are there ---------------------------------------------------------------------------------------------


def outputs():
    """Yield the arguments that call each command, an option of it that names an output, and whether it may replace."""
    for arguments, command in all_commands():
        options = {option for param in command.params for option in param.opts}
        given = list(arguments)
        for param in command.params:
            if param.required and "--output" not in param.opts:
                given += [*([param.opts[0]] if param.opts[0].startswith("-") else []), "texts.txt"]
        for output in {"--output", "--html", "--keep"} & options:
            yield pytest.param(given, output, "--overwrite" in options, id=f"{' '.join(arguments)} {output}")


@pytest.mark.parametrize(("arguments", "output", "has_option"), sorted(outputs(), key=str))
def test_what_is_there_is_refused_before_any_work(run, texts, models, tmp_path, arguments, output, has_option):
    name = {"edit": "made", "distill": "made", "encode": "out.npy"}.get(arguments[0], "out.csv")
    shutil.copytree(models / "static-en", name) if name == "made" else Path(name).write_text("mine")

    def contents():
        return {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")}

    before, said = contents(), run(*arguments, output, name, code=1).stderr
    assert said == f"error: {name} exists and is not empty; replace it with --overwrite, or give a new name\n"
    assert contents() == before and has_option


def test_an_output_is_replaced_on_request(run, texts, fruit):
    for name in ("page.html", "rows.npy", "kept.txt"):
        Path(name).write_text("mine")
    run("explain", "apple", "pear", "--html", "page.html", "--overwrite")
    run("encode", texts, "--overwrite", "-o", "rows.npy")
    assert "<html" in Path("page.html").read_text() and len(np.load("rows.npy")) == len(TEXTS)
    run("edit", "-o", "mine", "--without", "0")
    run("edit", "-m", "mine", "-o", "./mine", "--without", "0", "--overwrite")
    assert pellucid.load("mine").dimensions.names == fruit.dimensions.names[2:]
    Path("notes").mkdir()
    Path("notes/letter.txt").write_text("mine")
    said = run("edit", "-o", "notes", "--without", "1", "--overwrite", code=1).stderr
    assert "holds no pellucid model" in said and Path("notes/letter.txt").read_text() == "mine"
    texts.write_text("the apple\na pear\nthe apple\n")
    run("duplicates", texts, "--keep", "kept.txt", "--overwrite")
    assert Path("kept.txt").read_text() == "the apple\na pear\n"


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir])
def test_what_holds_nothing_is_no_reason_to_ask(run, texts, make):
    make(Path("out.npy"))
    run(*(["encode", texts] if make is Path.touch else ["edit", "--without", "0"]), "-o", "out.npy")


def test_functions_that_write_a_file_replace_none_unasked(tmp_path, fruit):
    texts, other = written(tmp_path / "texts.txt", "apple\napple\npear\n"), written(tmp_path / "other.txt", "mine")
    with pytest.raises(InputError, match=r"other\.txt exists and is not empty; give overwrite=True"):
        write_kept(texts, duplicates(texts, fruit), other)
    assert other.read_text() == "mine"


# --- the examples of the help -----------------------------------------------------------------------------------------

SENTENCES = (Path(__file__).parents[2] / "examples" / "sentences.txt").read_text("utf-8").splitlines()[:40]
EXAMPLES = [
    " ".join(line.split())
    for _, command in all_commands()
    for line in map(str.strip, (command.help or "").replace("\\\n", " ").splitlines())
    if line.startswith("pellucid ") or " | pellucid " in line
]


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
    """Whether it ends by itself, trains nothing and needs no encoder."""
    is_long = bool({"serve", "mcp", "distill", "evaluate"} & set(words[:2]))
    return not is_long and not any("/all-" in word or word == "my-encoder" for word in words)


def facts_of(number: int) -> dict[str, Any]:
    """Return the metadata of a document."""
    return {
        "year": 2010 + number, "lang": "en", "version": "1.10", "day": f"2024-06-{1 + number % 28:02d}",
        "status": "open" if number % 2 else "closed",
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file that the examples name."""
    if not {"static-en", "anchors-en-200", "lexicon-en"} <= set(bundled_models()):
        pytest.skip("the bundled models are not in this checkout")
    path, lines = tmp_path_factory.mktemp("examples"), "\n".join(SENTENCES) + "\n"
    ids, plain = ["4983", "5836", *(f"d{n}" for n in range(2, 40))], [text.replace('"', "") for text in SENTENCES]
    as_json = {
        field: "".join(
            json.dumps({"id": id, field: text} | facts_of(n)) + "\n" for n, (id, text) in enumerate(zip(ids, SENTENCES))
        )
        for field in ("review", "question", "text")
    }
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
        pq.write_table(pa.table({"key": list(range(40)), "text": SENTENCES}), path / f"{name}.parquet")
    (path / "notes-from").mkdir()
    for name, model in {
        "my-model": "static-en", "my-anchors": "anchors-en-200", "my-anchors-edited": "anchors-en-200",
        "mine": "anchors-en-200", "my-lexicon": "lexicon-en",
    }.items():  # fmt: skip
        shutil.copytree(locate(model), path / name)
    with pellucid.Index.create(path / "built", "static-en") as index:
        index.add(SENTENCES, ids=ids, metadata=[facts_of(n) for n in range(len(SENTENCES))])
        for name in ("live", "guides"):
            index.save_settings(name, {"weights": {"bm25": 1}})
    return path


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_parsed(example: str) -> None:
    words, _ = _arguments(example)
    path, command = next((path, command) for path, command in all_commands() if path == tuple(words[: len(path)]))
    command.make_context(command.name, words[len(path) :])  # wrong options and missing arguments raise


@pytest.mark.full
@pytest.mark.needs("Stemmer")
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
