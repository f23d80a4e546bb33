"""`pellucid index` and `pellucid search`: documents in from every kind of file, hits and reasons out."""

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("Stemmer")

from commands import run_command as run
from pellucid.errors import CorpusError, PellucidError
from pellucid.index import Index
from pellucid.index.metadata import AsHeld
from pellucid.index.records import read_documents
from pellucid.text import CorpusFile

ROWS = [
    {"id": "1", "title": "Fruit", "text": "Apples and pears grow on trees.", "year": 1999},
    {"id": "2", "title": "", "text": "Cars have four wheels.", "year": 2005, "metadata": {"lang": "en"}},
]


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path, rows, fruit):
    fruit.save_pretrained(tmp_path / "fruit")
    run("index", "build", tmp_path / "index", rows, "-m", tmp_path / "fruit")
    return tmp_path / "index"


def test_an_index_is_built_asked_and_changed(folder, tmp_path):
    shown = run("search", folder, "an apple tree").stdout
    assert "[Apples] and pears grow on [trees]" in shown and "1  Fruit" in shown and "apple → Apples" in shown
    for option, expected in (("--rows", "bm25: apple ~ Apples"), ("--check", "; without ")):
        assert expected in run("search", folder, "an apple tree", option).stdout
    (tmp_path / "more.txt").write_text("A bicycle\n\nAnother bicycle and a car\n")
    said = run("index", "add", folder, tmp_path / "more.txt").stderr
    assert "added 2, 4 documents" in said and "no longer in the files stays" in said
    found = [
        json.loads(line)
        for line in run("search", folder, "--json", "-k", 1, stdin="bicycle\ncar\n").stdout.splitlines()
    ]
    assert [hits["hits"][0]["id"] for hits in found] == ["more.txt:1", "more.txt:3"]
    run("index", "delete", folder, "more.txt:1", "more.txt:3")
    assert "no document 'x'" in run("index", "delete", folder, "x", code=1).stderr
    assert json.loads(run("index", "list", folder, "--json").stdout)["documents"] == 2
    assert "fields: lang (string), year (number)" in run("index", "list", folder).stdout
    assert "all is well" in run("index", "verify", folder).stdout
    assert run("search", folder, "zzz").stdout.startswith("No word of the query is known, so there are no hits.\n")


def test_words_that_are_not_searched_are_named(folder):
    shown = run("search", folder, "the zzzz apple \x1bqqqq ++").stdout
    assert shown.splitlines()[:2] == [
        "Not found in any document: zzzz, qqqq", "Not searched (stop words and signs): the, ++",
    ] and "[Apples]" in shown  # fmt: skip
    hits = json.loads(run("search", folder, "the zzzz apple", "--json").stdout)
    assert (hits["unknown"], hits["ignored"], hits["has_known_words"]) == (["zzzz"], ["the"], True)
    assert "Not " not in run("search", folder, "apple").stdout


def test_the_sentence_of_a_hit_stands_below_it_and_one_hit_can_be_set_apart(folder):
    from pellucid import Index

    with Index.open(folder) as index:
        hits = index.search("apples and cars")
        apart = hits.why(1)
    lines = run("search", folder, "apples and cars").stdout.splitlines()
    for rank, hit in enumerate(hits, 1):
        below = next(n for n, line in enumerate(lines) if line.startswith(f"  {rank}  ")) + 1
        assert lines[below].strip() == hit.explain().summary().partition(": ")[2]
        assert lines[below + 1].strip().replace("[", "").replace("]", "") == hit.text and "[" in lines[below + 1]
    assert run("search", folder, "apples and cars", "--why", "1").stdout.split() == str(apart).split()
    assert "rank 3 is not in this list of 2" in run("search", folder, "apples and cars", "--why", "3", code=1).stderr


def test_of_a_long_text_the_words_around_the_match_are_shown_and_marked(tmp_path):
    text = f"{'Nothing of interest stands in here. ' * 20}In it, a man eats ripe pears. {'More of the same. ' * 20}"
    with Index.create(tmp_path / "index", {}) as index:
        index.add([text], titles=["About pears"])
        hit = index.search("a man and pears")[0]
    assert hit.snippet == "In it, a man eats ripe pears."
    assert 'both say "pears"' in hit.summary() and hit.summary().endswith(f'In the document: "{hit.snippet}"')
    shown = run("search", tmp_path / "index", "a man and pears").stdout
    assert "About [pears]" in shown and "In it, a [man] eats ripe [pears]. More" in shown


def test_hits_with_a_low_score_are_left_out(folder):
    every = json.loads(run("search", folder, "apple", "--json").stdout)["hits"]
    least = every[0]["score"]
    shown = json.loads(run("search", folder, "apple", "--json", "--min-score", str(least)).stdout)["hits"]
    assert [hit["id"] for hit in shown] == [hit["id"] for hit in every if hit["score"] >= least]
    ran = run("search", folder, "apple", "--min-score", "5")
    assert ran.stdout == "No hits.\n" and not ran.stderr
    assert "min_score is nan" in run("search", folder, "apple", "--min-score", "nan", code=1).stderr


def test_conditions_and_weights(folder):
    def ids(*options):
        found = json.loads(run("search", folder, "apples and cars", "--json", *options).stdout)
        return [hit["id"] for hit in found["hits"]]

    assert ids("--where", "year>=2000") == ids("--where", "lang=en") == ["2"]
    assert ids("--where", "year > 1990", "--where", "year!=2005") == ["1"]
    assert set(json.loads(run("search", folder, "car", "--json", "--weight", "bm25=1").stdout)["weights"].values()) == {
        0,
        1,
    }
    assert "no dense model of this search" in run("search", folder, "car", "--steer", "qqq=-1", code=1).stderr
    assert ids("--steer", "apple=-0.5") == ids()  # the model knows no word of the query
    assert "is not TEXT=NUMBER" in run("search", folder, "x", "--steer", "cars", code=2).stderr
    assert "yaer" in run("search", folder, "x", "--where", "yaer=1", code=1).stderr
    assert "is not FIELD>=VALUE" in run("search", folder, "x", "--where", "year", code=2).stderr
    assert "is not PART=NUMBER" in run("search", folder, "x", "--weight", "bm25", code=2).stderr


def test_errors_are_one_line(tmp_path, rows):
    for arguments, said in (
        (["search", tmp_path / "none", "x"], "does not exist"),
        (["search", rows, "x"], "rows.jsonl is a file, and an index is a folder"),
        (["index", "build", tmp_path / "i", tmp_path / "none.txt"], "file not found"),
        (["index", "build", rows.parent, rows], "is not empty"),
        (["index", "build", rows.parent, rows, "--overwrite"], "is not an index"),
        (["index", "build", tmp_path / "i", rows, "--type", "yaer=number"], "no document of"),
        (["index", "build", tmp_path / "i", rows, "--type", "year=int"], "is 'int'"),
        (["index", "add", rows.parent, rows], "is no index"),
    ):
        error = run(*arguments, code=1).stderr
        assert error.startswith("error: ") and said in error and error.count("\n") == 1


# What a new user types wrongly, and words of the answer; `index` is an index, `rows.jsonl` and `more.csv` are files.
MISTAKES = [
    ("search index an apple tree", 2, 'pellucid search INDEX "several words"'),
    ("search apple index", 1, "swapped; the index comes first: pellucid search index apple"),
    ("search index x --where year:1999", 2, "such as lang=en"),
    ("index compare index --queries rows.jsonl --second guides", 1, "unknown setting 'guides'"),
    ("index compare index --queries rows.jsonl --second new.json", 1, "file not found: new.json"),
    ("search index x -k abc", 2, "'abc' is not a whole number"),
    ("search index x -k 0", 2, "0 is too small; give 1 or more"),
    ("search index x --html none/hits.html", 1, "there is no folder none"),
    ("search index x -o none/hits.csv", 1, "there is no folder none"),
    ("search damaged x", 1, "commit.json cannot be read: No such file or directory. Restore it, or build"),
    ("index build rows.jsonl new", 1, "swapped; the index comes first: pellucid index build new rows.jsonl"),
    ("index add rows.jsonl index", 1, "swapped; the index comes first: pellucid index add index rows.jsonl"),
    ("index add index more.csv", 0, "no document had colour before; --leave-out leaves"),
    ("index add index more.csv", 0, "more.csv: 2 of 3 documents have no text"),
    ("index list index --descending", 2, "give --sort FIELD"),
    ("nosuch index", 2, "No such command 'nosuch'."),
    ("report rows.jsonl", 2, "name your texts with --texts FILE"),
    ("bias --targets index", 1, "the texts of an index: pellucid index list index -o texts.csv"),
    ("duplicates index --keep kept.txt", 2, "not stdin or an index"),
    ("index evaluate index --queries rows.jsonl --qrels bad.tsv", 1, "A cell cannot hold '\\t' or a line break\n"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "code", "words"), MISTAKES)
def test_a_mistake_gets_the_way_out(folder, tmp_path, monkeypatch, command, code, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/index.json").write_bytes((folder / "index.json").read_bytes())
    (tmp_path / "more.csv").write_text("text,colour\nA pear,green\n,red\n  ,blue\n")
    (tmp_path / "bad.tsv").write_text("query-id\tcorpus-id\tscore\n1\n")
    (tmp_path / "rows.jsonl").write_text((tmp_path / "rows.jsonl").read_text().replace('"id"', '"_id"'))
    before = set(tmp_path.iterdir())
    shown = run(*command.split(), code=code).stderr
    assert words in shown, shown
    assert set(tmp_path.iterdir()) == before


def test_an_index_is_taken_where_texts_are(folder):
    for command, words in (("audit", "over 2 texts"), ("duplicates", "0 of 2 texts"), ("encode", "Cars have four")):
        assert words in run(command, folder).stdout
    assert run("index", "list", folder, "--where", "year>=2000").stdout.startswith("  1  2\n")
    for stdin, headings in (("apple\ncar\n", ["Query: apple", "Query: car"]), (None, [])):
        printed = run("search", folder, *([] if stdin else ["apple"]), stdin=stdin).stdout.splitlines()
        assert [line for line in printed if line.startswith("Query")] == headings


def test_wrong_input_is_one_line_with_its_place(tmp_path, folder):
    for name, content, said in (
        ("a.jsonl", '{"text": "x", "id": 1.5}', "{}, line 1: the id 1.5 is float"),
        ("a.jsonl", '{"text": "x", "_id": {"$oid": "7"}}', "{}, line 1: the id {{'$oid': '7'}} is dict"),
        ("a.jsonl", '{"text": "x", "n": ' + '{"a":' * 100_000, "{}, line 1: not JSON (nested too deeply)"),
        ("a.jsonl", '{"text": "x", "n": ' + "[" * 100_000, "{}, line 1: not JSON (nested too deeply)"),
    ):
        (tmp_path / name).write_text(content)
        for command in (["build", tmp_path / "new"], ["add", folder]):
            error = run("index", *command, tmp_path / name, code=1).stderr
            assert error.startswith("error: ") and error.count("\n") == 1, error
            assert said.format(tmp_path / name) in error, error
        assert not (tmp_path / "new").exists() and len(Index.open(folder)) == 2


def test_a_huge_number_of_hits_gives_all(folder):
    assert len(json.loads(run("search", folder, "apples and cars", "--json", "-k", 2**63).stdout)["hits"]) == 2
    assert run("search", folder, "x", "-k", "9" * 5000, code=2).stderr.count("Traceback") == 0


def test_integer_ids(tmp_path, fruit):
    fruit.save_pretrained(tmp_path / "fruit")
    (tmp_path / "a.jsonl").write_text('{"id": 7, "text": "apple"}\n{"id": -8, "text": "pear"}\n{"text": "tree"}\n')
    run("index", "build", tmp_path / "index", tmp_path / "a.jsonl", "-m", tmp_path / "fruit")
    run("index", "delete", tmp_path / "index", 7)
    run("index", "delete", tmp_path / "index", "--", -8)
    with Index.open(tmp_path / "index") as index:
        assert [document.id for document in index] == ["a.jsonl:3"]
        index.add(["one more"])
        index.add(["apple"], ids=[7])
    run("index", "delete", tmp_path / "index", 7)
    assert "2 are left" not in run("index", "delete", tmp_path / "index", "a.jsonl:3").stderr


# --- A build that fails or is interrupted ---


SCRIPT = "import sys; from pellucid.cli.app import main; main()"


def building(tmp_path, *options):
    """Start a build that reads a pipe, and return the process and the pipe's end."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "index", "build", tmp_path / "index", tmp_path / "pipe.jsonl", "-m",
         tmp_path / "fruit", *options],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    return process, open(tmp_path / "pipe.jsonl", "w")  # waits for the reader


def started(tmp_path, pipe):
    """Give a build some of its documents, and wait until it writes its folder beside the index."""
    for number in range(1200):
        pipe.write(json.dumps({"id": number, "text": f"apple {number}"}) + "\n")
    pipe.flush()
    for _ in range(3000):
        if list(tmp_path.glob(".index.*.part/*/commit.json")):
            return
        time.sleep(0.02)
    raise AssertionError("no folder was made")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("options", [(), ("--overwrite",)])
@pytest.mark.parametrize("end", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGKILL])
def test_an_ended_build_is_no_index_and_what_a_kill_leaves_is_cleared_away(tmp_path, rows, fruit, options, end):
    fruit.save_pretrained(tmp_path / "fruit")
    if options:
        run("index", "build", tmp_path / "index", rows, "-m", tmp_path / "fruit")
    before = {path.name for path in tmp_path.iterdir()} | {"pipe.jsonl"}
    process, pipe = building(tmp_path, *options)
    started(tmp_path, pipe)
    process.send_signal(end)
    said = process.communicate()[1]
    left = {path.name for path in tmp_path.iterdir()} - before
    if end == signal.SIGINT:
        assert "interrupted" in said and process.returncode == 130 and not left
    else:
        assert any(name.endswith(".part") for name in left)
    assert not options or (len(held := Index.open(tmp_path / "index")) == 2 and not held.verify())
    run("index", "build", tmp_path / "index", rows, "-m", tmp_path / "fruit", *options)
    assert {path.name for path in tmp_path.iterdir()} == before | {"index"}
    with Index.open(tmp_path / "index") as index:
        assert len(index) == 2 and not index.verify()


@pytest.mark.full
def test_a_build_that_fails_late_leaves_what_was_there(tmp_path, folder):
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n' * 1500 + "{")
    for target, options in (("new", []), ("index", ["--overwrite"])):
        assert "line 1501" in run("index", "build", tmp_path / target, tmp_path / "bad.jsonl", *options, code=1).stderr
    assert not (tmp_path / "new").exists() and not list(tmp_path.glob(".*"))
    with Index.open(folder) as index:
        assert len(index) == 2


def test_an_index_is_replaced_when_the_new_one_is_complete(tmp_path, folder, rows):
    (tmp_path / "new.jsonl").write_text('{"id": "n", "text": "A new apple"}\n')
    (folder / "notes.txt").write_text("mine")
    assert "--overwrite" in run("index", "build", folder, tmp_path / "new.jsonl", code=1).stderr
    with Index.open(folder) as reader:
        held = reader.search("apple")[0]
        run("index", "build", folder, tmp_path / "new.jsonl", "-m", tmp_path / "fruit", "--overwrite")
        assert [hit.id for hit in reader.search("apple")] == ["n"] and held.reasons.top(1)  # the hit is of before
    assert (folder / "notes.txt").read_text() == "mine"
    for broken in ("commit.json", "segments"):  # damaged, and still an index that may go
        path = folder / broken
        path.write_text("x") if path.is_file() else path.rename(tmp_path / "gone")
        run("index", "build", folder, rows, "-m", tmp_path / "fruit", "--overwrite")
        assert len(Index.open(folder)) == 2


def test_what_is_no_index_is_not_replaced(tmp_path, rows, fruit):
    fruit.save_pretrained(tmp_path / "model")
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/index.json").write_text('["pellucid"]')
    for name in ("model", "file", "other"):
        for options in ([], ["--overwrite"]):
            assert "not an index" in run("index", "build", tmp_path / name, rows, *options, code=1).stderr
    assert (tmp_path / "model/config.json").exists() and (tmp_path / "file").read_text() == "x"


def test_a_change_that_waits_while_the_index_is_replaced_is_refused(tmp_path, folder, rows):
    """Its lock is of a folder that is gone: it must not write into the new one."""
    from pellucid.persistence.store import locked

    errors = []

    def change():
        with Index.open(folder) as index:
            try:
                index.add(["A late apple"], ids=["late"])
            except PellucidError as error:
                errors.append(str(error))

    with locked(folder):
        thread = threading.Thread(target=change)
        thread.start()
        time.sleep(0.5)
        folder.rename(tmp_path / "old")
        run("index", "build", folder, rows, "-m", tmp_path / "fruit")
    thread.join()
    assert errors and "was replaced" in errors[0]
    with Index.open(folder) as index:
        assert len(index) == 2 and not index.verify()


# --- Types of columns ---


CELLS = {
    "number": ["5", "-0.25", ".5", "0", "1e-05", "2.5E+3", "1e+99", "12345678", " 7 "],
    "date": ["2024-05-31", "2024-05-31T10:00", "2024-05-31 10:00:00Z", "1999-01-01T00:00:00.25+02:00"],
    "boolean": ["true", "False", "TRUE"],
    "string": ["007", "+49151", "1e5", "1_000", "1,5", "5%", "yes", "0x1f", "inf", "12345678901234567890", "1e+999",
               "\u0663", "2024-W22-5", "20240531T10", "2024-13-01", "--", "5 stars", "x" * 100],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "cell"), [(kind, cell) for kind, cells in CELLS.items() for cell in cells])
def test_what_a_cell_is(tmp_path, kind, cell):
    with open(tmp_path / "x.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "text", "x", "y"], ["1", "t", cell, "2024-05-31"], ["2", "t", "", ""]])
    held = {}
    found = list(read_documents(tmp_path / "x.csv", index_types=held))
    assert held == {"x": kind, "y": "date"} and "x" not in found[1].metadata
    expected = {"number": lambda: float(cell), "boolean": lambda: cell.lower() == "true"}.get(kind, lambda: cell)()
    assert found[0].metadata["x"] == expected and found[0].metadata["y"] == "2024-05-31"


def write_table(path, cells, name="x"):
    path.write_text(f"id,text,{name}\n" + "".join(f"{n},a text,{cell}\n" for n, cell in enumerate(cells, 1)))


def test_a_column_has_a_type_if_all_of_its_cells_have(tmp_path):
    def read(cells, **options):
        notes, held = [], {}
        write_table(tmp_path / "x.csv", cells)
        found = [
            r.metadata.get("x")
            for r in read_documents(CorpusFile(tmp_path / "x.csv", **options), index_types=held, note=notes.append)
        ]
        return found, held["x"] if held else None, notes

    assert read(["1", "2.5", "", "NaN", "n/a"]) == ([1, 2.5, None, None, None], "number", [
        "x.csv: x (number); other columns hold strings"])  # fmt: skip
    late = ["7"] * 20_000 + ["unknown"]  # far behind any sample
    found, kind, notes = read(late)
    assert found == late and kind == "string"
    assert notes == [
        "x.csv: 'x' holds strings: 20,000 of 20,001 cells are numbers, and 'unknown' in line 20,002 is not"
    ]
    assert read(["5", "a", "b"])[1:] == ("string", []) and read(["NA", "NA"])[:2] == (["NA", "NA"], "string")
    assert read(["true", "1"])[1] == "string" and read(["", ""])[1] is None
    for cells, kind, values in (
        (["5", "7"], "string", ["5", "7"]),
        (["007", "+1", "1e5", "null"], "number", [7, 1, 100000, None]),
        (["yes", "0", "T"], "boolean", [True, False, True]),
    ):
        assert read(cells, types={"x": kind})[0] == values
    for cells, kind, message in (
        (["1", "many"], "number",
         r"x.csv, line 3: 'x' is 'many', and not a number, as the given type says.*--type x=string"),
        (["2024-5-1"], "date", r"line 2: 'x' is '2024-5-1', and not a date"),
    ):  # fmt: skip
        with pytest.raises(CorpusError, match=message):
            read(cells, types={"x": kind})


def test_a_type_that_is_given_holds_in_every_kind_of_file(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": "a", "x": ["1", 2]}\n{"text": "b"}\n{"text": "c", "x": "7"}\n')
    assert [r.metadata.get("x") for r in read_documents(CorpusFile(tmp_path / "x.jsonl", types={"x": "number"}))] == [
        [1, 2],
        None,
        7,
    ]
    assert next(read_documents(CorpusFile(tmp_path / "x.jsonl", types={"x": "string"}))).metadata["x"] == ["1", "2"]
    with pytest.raises(CorpusError, match="line 1: 'x' is '1', and not a date"):
        list(read_documents(CorpusFile(tmp_path / "x.jsonl", types={"x": "date"})))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_the_first_rows_of_a_pipe_decide(tmp_path):
    def read(cells, **options):
        path = tmp_path / "x.csv"
        os.mkfifo(path)
        writer = threading.Thread(target=write_table, args=(path, cells))
        writer.start()
        try:
            return [r.metadata.get("x") for r in read_documents(CorpusFile(path, **options))]
        finally:
            writer.join(10)
            path.unlink()

    assert read(["1"] * 10_001) == [1] * 10_001 and read(["1", "many"]) == ["1", "many"]
    with pytest.raises(
        CorpusError, match=r"line 12002: 'x' is 'many', and not a number, as in the rows before.*--type"
    ):
        read(["1"] * 12_000 + ["many"])
    assert read(["1"] * 10_000 + ["many"], types={"x": "string"})[-1] == "many"


def test_a_column_has_one_type_in_all_files_and_in_the_index(tmp_path, fruit):
    fruit.save_pretrained(tmp_path / "fruit")
    for name, *cells in (("a", "1", "2"), ("b", "3", "unknown"), ("c", "007", "008"), ("d", "123", "456")):
        write_table(tmp_path / f"{name}.csv", cells, "x" if name in "ab" else "zip")
    build = ["index", "build", tmp_path / "index", "-m", tmp_path / "fruit"]
    said = "'x' is 'unknown', and not a number, as elsewhere in the index"
    assert said in run(*build, tmp_path / "a.csv", tmp_path / "b.csv", code=1).stderr
    assert "note: a.csv: x (number)" in run(*build, tmp_path / "a.csv").stderr
    assert said in run("index", "add", tmp_path / "index", tmp_path / "b.csv", code=1).stderr
    for name in ("c.csv", "d.csv"):  # the second replaces, and zip stays a string
        run("index", "add", tmp_path / "index", tmp_path / name)
    assert "fields: x (number), zip (string)" in run("index", "list", tmp_path / "index").stdout
    run("index", "add", tmp_path / "index", tmp_path / "b.csv", "--type", "x=string")
    assert json.loads(run("index", "list", tmp_path / "index", "--json").stdout)["fields"]["x"] == "number or string"


def test_numbers_and_dates_of_a_table_can_be_compared(tmp_path, fruit):
    fruit.save_pretrained(tmp_path / "fruit")
    (tmp_path / "r.csv").write_text(
        "id,text,stars,day,zip,lang,ok\n1,apple,2,2024-05-01,0123,en,true\n2,apple,5,2023-01-01,2,de,false\n"
    )
    run("index", "build", tmp_path / "index", tmp_path / "r.csv", "-m", tmp_path / "fruit")

    def ids(*conditions, code=0):
        options = [option for one in conditions for option in ("--where", one)]
        ran = run("search", tmp_path / "index", "apple", "--json", *options, code=code)
        return ran.stderr if code else "".join(sorted(hit["id"] for hit in json.loads(ran.stdout)["hits"]))

    for condition, expected in {
        "stars>=2": "12", "stars>2": "2", "stars=2": "1", "stars==2.0": "1", "stars!=2": "2", "stars!=x": "12",
        "day>=2024-05-01": "1", "day=2023-01-01": "2", "day<2024-01-01T00:00": "2", "zip=2": "2", "zip=0123": "1",
        "zip='2'": "2", "zip!=2": "1", "lang=en": "1", "ok=true": "1", "ok=FALSE": "2", 'ok!="true"': "12",
    }.items():  # fmt: skip
        assert ids(condition) == expected, condition
    assert ids("stars>=2", "stars<5") == "1" and ids("lang!=en", "lang!=de") == ""
    for condition, said in {
        "zip>=2": "field 'zip' holds strings, and gte (>=) asks for the number 2: this can never match. Numbers",
        "stars='2'": "field 'stars' holds numbers, and eq (=) asks for the string '2'",
        "stars=two": "field 'stars' holds numbers, and eq (=) asks for the string 'two'",
        "stars>=2024-05-01": "field 'stars' holds numbers, and gte (>=) asks for the date",
        "day>=2024": "field 'day' holds dates, and gte (>=) asks for the number 2024: this can never match. Write",
        "day=May": "field 'day' holds dates, and eq (=) asks for the string 'May'",
        "day>=2024-W22-5": "gte (>=) of field 'day' is '2024-W22-5'; it needs a date, such as 2024-05-31",
        "day>=2024-13-01": "gte (>=) of field 'day' is '2024-13-01'",
        "lang>=2024-05-31": "field 'lang' holds strings, and gte (>=) asks for the date",
        "stars>=4,5": "gte (>=) of field 'stars' is '4,5'; it needs a number, such as 12.5",
        "ok=maybe": "field 'ok' holds booleans, and eq (=) asks for the string 'maybe'",
        "ok>=true": "gte (>=) of field 'ok' is True",
        "stars>=" + "9" * 400: "the value for field 'stars'",
    }.items():
        error = ids(condition, code=1)
        assert said in error and error.count("\n") == 1, error
    assert "is given twice" in ids("stars>2", "stars>3", code=2) and "is not FIELD>=VALUE" in ids("stars=>3", code=2)


def test_a_typed_value_is_what_the_field_holds(tmp_path):
    with Index.create(tmp_path / "index", {}) as index:
        values = [2, "2", True, "true", "2024-05-31", ["3", 4]]
        index.add(["word"] * 6, ids=list("abcdef"), metadata=[{"x": value} for value in values])

        def ids(where):
            return "".join(sorted(hit.id for hit in index.search("word", where={"x": where})))

        assert ids({"eq": AsHeld("2")}) == "ab" and ids({"eq": "2"}) == "b" and ids({"eq": 2}) == "a"
        assert ids({"eq": AsHeld("true")}) == "cd" and ids({"ne": AsHeld("2")}) == "cdef"
        assert ids({"nin": [AsHeld("2"), AsHeld("true")]}) == "ef"
        assert ids({"gte": AsHeld("3")}) == "f" and ids({"gte": AsHeld("2024-01-01")}) == "e"
        assert ids({"eq": AsHeld("3"), "gte": 3}) == "f"
        assert index.info()["fields"] == {"x": "number or date or boolean or string"}


# --- Files ---


def test_folders_of_text_and_markdown(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/one.md").write_text("# A title\n\nSome *text*.\n")
    (tmp_path / "two.txt").write_text("\ufeffLine one\nline two\n", encoding="utf-8")
    (tmp_path / "three.bin").write_bytes(b"\xff")
    found = list(read_documents(tmp_path))
    assert [tuple(r)[:3] for r in found] == [
        ("deep/one.md", "A title", "Some *text*."),
        ("two.txt", "", "Line one\nline two"),
    ]


def test_columns_have_other_names(tmp_path):
    (tmp_path / "x.csv").write_text("key,review,stars\na,good,5\n")
    found = list(read_documents(CorpusFile(tmp_path / "x.csv", field="review", id_field="key")))
    assert [record[:4] for record in found] == [("a", "", "good", {"stars": 5})]
    (tmp_path / "x.jsonl").write_text('"a plain string"\n{"_id": 7, "text": "t"}\n')
    assert [(r.id, r.text) for r in read_documents(tmp_path / "x.jsonl")] == [
        ("x.jsonl:1", "a plain string"),
        ("7", "t"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.txt", b"fine\nb\xe9d\n", "x.txt, line 2 is not UTF-8"),
        ("x.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', "x.jsonl, line 2 is not UTF-8"),
        ("x.jsonl", b'{"text": "a"}\n{"text": \n', "x.jsonl, line 2: not JSON"),
        ("x.jsonl", b'{"txt": "a"}\n', "x.jsonl, line 1: no field 'text'; it has txt"),
        ("x.jsonl", b"[1]\n", "x.jsonl, line 1 is list"),
        ("x.jsonl", b'{"text": "a", "title": [3]}\n', "the title under 'title' is list"),
        ("x.csv", b"id,text\n1,a\n2,\xff\n", "x.csv, line 3 is not UTF-8"),
        ("x.csv", b"id,text\n1\n", "x.csv, line 2 has 1 cells; the header has 2"),
        ("x.csv", b'id,text\n1,"a\n', "x.csv, line 2: a quotation mark opens a cell, and none closes it"),
        ("x.parquet", b"no parquet", "not a parquet file"),
        ("x.gz", b"x", "cannot tell the format"),
        ("x.txt.gz", b"no gzip", "is damaged"),
        ("x.md", b"one\ntwo\n\xff", "x.md, line 3 is not UTF-8"),
        ("x.doc", b"x", "cannot tell the format"),
        ("x.parquet.gz", b"x", "cannot tell the format"),
        ("x.txt", "a text".encode("utf-16-be"), "is UTF-16.*--encoding utf-16-be"),
        ("x.md", "# a".encode("utf-32-le"), "is UTF-16, UTF-32.*--encoding utf-32-le"),
        ("x.csv", "id,text".encode("utf-16-le"), "is UTF-16"),
        ("x.jsonl", b"[" * 100_000, "line 1: not JSON .nested too deeply"),
        ("x.jsonl", b'{"text": "a", "n": ' + b"1" * 5000 + b"}", "too many digits"),
        ("none", None, "file not found"),
        (".", None, "holds no file"),
    ],
)
def test_broken_files_are_named_with_their_line(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=said):
        list(read_documents(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.txt", b"a" * 101),
        ("x.jsonl", json.dumps({"text": "a" * 101}).encode()),
        ("x.csv", b"id,text\n1," + b"a" * 101),
        ("x.csv", b'id,text\n1,"' + b"a" * 60 + b"\n" + b"a" * 60 + b'"\n'),
        ("x.md", b"word\n" * 21),
        ("x.md", b"a" * 101),
    ],
)
def test_no_line_or_text_fills_the_memory(tmp_path, monkeypatch, name, content):
    for module in ("text.lines", "text.delimited", "text.tables", "index.records"):
        monkeypatch.setattr(f"pellucid.{module}.MAX_TEXT_CHARS", 100)
    csv.field_size_limit(100)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=r"longer than 100|none closes it within 100"):
        list(read_documents(tmp_path / name))


def test_files_follow_the_rules_of_every_corpus(tmp_path):
    def texts(name, content):
        (tmp_path / name).write_bytes(content)
        return [(record.id, record.text) for record in read_documents(tmp_path / name)]

    bom = b"\xef\xbb\xbf"
    assert texts("x.txt", bom + b"a\r\n \n\xe2\x80\xa8b\x0cc") == [("x.txt:1", "a"), ("x.txt:3", "\u2028b\x0cc")]
    assert texts("x.jsonl", bom + b'{"text": null}\r\n\r\nnull\r\n"c"') == [
        ("x.jsonl:1", ""),
        ("x.jsonl:3", ""),
        ("x.jsonl:4", "c"),
    ]
    assert texts("x.csv", bom + b'id,text\r\n1,"a\r\nb"\r\n2,\r\n') == [("1", "a\nb"), ("2", "")]
    assert texts("x.md.gz", gzip.compress(bom + b"# T\r\na\r\nb\r\n")) == [("x.md.gz", "a\nb")]
