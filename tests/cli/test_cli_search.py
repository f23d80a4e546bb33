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
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("Stemmer")

from commands import run_command as run
from files import written
from pellucid.errors import CorpusError, PellucidError
from pellucid.index import Index
from pellucid.index.metadata import AsHeld
from pellucid.index.records import read_documents
from pellucid.persistence.store import locked
from pellucid.text import CorpusFile
from refusals import refused

ROWS = [
    {"id": 1, "title": "Fruit", "text": "Apples and pears grow on trees.", "year": 1999},
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
    found = map(json.loads, run("search", folder, "--json", "-k", 1, stdin="bicycle\ncar\n").stdout.splitlines())
    assert [hits["hits"][0]["id"] for hits in found] == ["more.txt:1", "more.txt:3"]
    run("index", "delete", folder, "more.txt:1", "more.txt:3")
    assert json.loads(run("index", "list", folder, "--json").stdout)["documents"] == 2
    assert "fields: lang (string), year (number)" in run("index", "list", folder).stdout
    assert "all is well" in run("index", "verify", folder).stdout
    assert run("search", folder, "zzz").stdout.startswith("No word of the query is known, so there are no hits.\n")


def test_words_that_are_not_searched_are_named(folder):
    shown = run("search", folder, "the zzzz apple \x1bqqqq ++").stdout
    assert shown.splitlines()[:2] == [
        "Not found in any document: zzzz, qqqq", "Not searched (stop words and signs): the, ++",
    ] and "[Apples]" in shown  # fmt: skip
    assert "Not " not in run("search", folder, "apple").stdout


def test_the_sentence_of_a_hit_stands_below_it_and_one_hit_can_be_set_apart(folder):
    with Index.open(folder) as index:
        hits = index.search("apples and cars")
        apart = hits.why(1)
    lines = run("search", folder, "apples and cars").stdout.splitlines()
    for rank, hit in enumerate(hits, 1):
        below = next(n for n, line in enumerate(lines) if line.startswith(f"  {rank}  ")) + 1
        assert lines[below].strip() == hit.explain().summary().partition(": ")[2]
        assert lines[below + 1].strip().replace("[", "").replace("]", "") == hit.text and "[" in lines[below + 1]
    assert run("search", folder, "apples and cars", "--why", "1").stdout.split() == str(apart).split()


def test_of_a_long_text_the_words_around_the_match_are_shown_and_marked(tmp_path):
    text = f"{'Nothing of interest stands in here. ' * 20}In it, a man eats ripe pears. {'More of the same. ' * 20}"
    with Index.create(tmp_path / "index", {}) as index:
        index.add([text], titles=["About pears"])
        hit = index.search("a man and pears")[0]
    assert hit.snippet == "In it, a man eats ripe pears."
    assert 'both say "pears"' in hit.summary() and hit.summary().endswith(f'In the document: "{hit.snippet}"')
    shown = run("search", tmp_path / "index", "a man and pears").stdout
    assert "About [pears]" in shown and "In it, a [man] eats ripe [pears]. More" in shown


# What a new user types wrongly, and words of the answer; `index` is an index, `rows.jsonl` and `more.csv` are files.
MISTAKES = [
    ("search index an apple tree", 2, 'pellucid search INDEX "several words"'),
    ("search apple index", 1, "swapped; the index comes first: pellucid search index apple"),
    ("search none x", 1, "does not exist"),
    ("search rows.jsonl x", 1, "rows.jsonl is a file, and an index is a folder"),
    ("search index apple --min-score 5", 0, "No hits. "),
    ("search index apple --min-score nan", 1, "min_score is nan"),
    ("search index apple --why 3", 1, "rank 3 is not in this list of 1"),
    ("search index apple --steer qqq=-1", 1, "no dense model of this search"),
    ("search index x --steer cars", 2, "is not TEXT=NUMBER"),
    ("search index x --weight bm25", 2, "is not PART=NUMBER"),
    ("search index x --where yaer=1", 1, "yaer"),
    ("search index x --where year", 2, "is not FIELD>=VALUE"),
    ("search index x --where year>2 --where year>3", 2, "is given twice"),
    ("search index x --where year=>3", 2, "is not FIELD>=VALUE"),
    (f"search index apple -k {2**63}", 0, "[Apples] and pears"),
    (f"search index x -k {'9' * 5000}", 2, "is not a whole number"),
    ("index delete index x", 1, "no document 'x'"),
    ("index build new none.txt", 1, "file not found"),
    ("index build . rows.jsonl", 1, "is not empty"),
    ("index build . rows.jsonl --overwrite", 1, "is not an index"),
    ("index build index rows.jsonl", 1, "replace it with --overwrite"),
    ("index build new rows.jsonl --type yaer=number", 1, "no document of"),
    ("index build new rows.jsonl --type year=int", 1, "is 'int'"),
    ("index build new bad.jsonl", 1, "bad.jsonl, line 2: the id 1.5 is float"),
    ("index add index bad.jsonl", 1, "bad.jsonl, line 2: the id 1.5 is float"),
    ("index add . rows.jsonl", 1, "is no index"),
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
    ("index evaluate index --queries rows.jsonl --qrels bad.tsv", 1, "A cell cannot hold '\\t' or a line break "),
    *((f"index build {name} rows.jsonl{option}", 1, "not an index")  # which nothing replaces
      for name in ("fruit", "more.csv", "other") for option in ("", " --overwrite")),
    *(pytest.param(f"index build {options}", 1, "late.jsonl, line 1501", marks=pytest.mark.full)
      for options in ("new late.jsonl", "index late.jsonl --overwrite")),
]  # fmt: skip


@pytest.mark.parametrize(("command", "code", "words"), MISTAKES)
def test_a_mistake_gets_the_way_out(folder, tmp_path, monkeypatch, command, code, words):
    monkeypatch.chdir(tmp_path)
    for name, content in {
        "damaged/index.json": (folder / "index.json").read_bytes(),
        "other/index.json": '["pellucid"]',
        "more.csv": "text,colour\nA pear,green\n,red\n  ,blue\n",
        "bad.tsv": "query-id\tcorpus-id\tscore\n1\n",
        "bad.jsonl": '{"text": "x"}\n{"text": "x", "id": 1.5}',
        "late.jsonl": '{"text": "a"}\n' * 1500 + "{",
        "rows.jsonl": (tmp_path / "rows.jsonl").read_text().replace('"id"', '"_id"'),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        written(tmp_path / name, content)
    before = set(tmp_path.rglob("*")) - set(folder.rglob("*"))
    ended = run(*command.split(), code=code)
    assert words in " ".join(ended.output.split()) + " ", ended.output
    assert code != 1 or (ended.stderr.startswith("error: ") and ended.stderr.count("\n") == 1)
    assert set(tmp_path.rglob("*")) - set(folder.rglob("*")) == before and len(Index.open(folder)) in (
        (2, 5) if code == 0 else (2,)
    )


def test_an_index_is_taken_where_texts_are(folder):
    for command, words in (("audit", "over 2 texts"), ("duplicates", "0 of 2 texts"), ("encode", "Cars have four")):
        assert words in run(command, folder).stdout
    assert run("index", "list", folder, "--where", "year>=2000").stdout.startswith("  1  2\n")
    for stdin, headings in (("apple\ncar\n", ["Query: apple", "Query: car"]), (None, [])):
        printed = run("search", folder, *([] if stdin else ["apple"]), stdin=stdin).stdout.splitlines()
        assert [line for line in printed if line.startswith("Query")] == headings


# --- A build that fails or is interrupted ---


SCRIPT = "import sys; from pellucid.cli.app import main; main()"


def started(tmp_path, *options):
    """Start a build that reads a pipe, and wait until it writes its folder beside the index; return both."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "index", "build", tmp_path / "index", tmp_path / "pipe.jsonl", "-m",
         tmp_path / "fruit", *options],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    pipe = open(tmp_path / "pipe.jsonl", "w", buffering=1)  # waits for the reader
    pipe.writelines(json.dumps({"id": number, "text": f"apple {number}"}) + "\n" for number in range(1200))
    while not list(tmp_path.glob(".index.*.part/*/commit.json")):
        assert process.poll() is None
        time.sleep(0.02)
    return process, pipe


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("options", [(), ("--overwrite",)])
@pytest.mark.parametrize("end", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGKILL])
def test_an_ended_build_is_no_index_and_what_a_kill_leaves_is_cleared_away(tmp_path, rows, fruit, options, end):
    fruit.save_pretrained(tmp_path / "fruit")
    if options:
        run("index", "build", tmp_path / "index", rows, "-m", tmp_path / "fruit")
    before = {path.name for path in tmp_path.iterdir()} | {"pipe.jsonl"}
    process, _pipe = started(tmp_path, *options)
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


def test_an_index_is_replaced_when_the_new_one_is_complete(tmp_path, folder, rows):
    (tmp_path / "new.jsonl").write_text('{"id": "n", "text": "A new apple"}\n')
    (folder / "notes.txt").write_text("mine")
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


def test_a_change_that_waits_while_the_index_is_replaced_is_refused(tmp_path, folder, rows, monkeypatch):
    """Its lock is of a folder that is gone: it must not write into the new one."""
    monkeypatch.setattr("pellucid.cli.search._PATIENCE", 0.1)
    with ThreadPoolExecutor() as threads, Index.open(folder) as opened:
        with locked(folder):
            change = threads.submit(opened.add, ["A late apple"])
            replace = ["index", "build", folder, rows, "-m", tmp_path / "fruit", "--overwrite"]
            assert "is in use by process" in run(*replace, code=1).stderr
            time.sleep(0.5)
            folder.rename(tmp_path / "old")
            run("index", "build", folder, rows, "-m", tmp_path / "fruit")
        with pytest.raises(PellucidError, match="was replaced"):
            change.result()
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


def column(path, cells=None, name="x", **options):
    """Write cells into a column of a table, unless it is there; return its values, its type, and what is said."""
    if cells is not None:
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["id", "text", name], *([n, "a text", cell] for n, cell in enumerate(cells))])
    notes, types = [], {}
    records = list(read_documents(CorpusFile(path, **options), index_types=types, note=notes.append))
    return [record.metadata.get(name) for record in records], types.get(name), notes


@pytest.mark.parametrize(("kind", "cell"), [(kind, cell) for kind, cells in CELLS.items() for cell in cells])
def test_what_a_cell_is(tmp_path, kind, cell):
    expected = {"number": lambda: float(cell), "boolean": lambda: cell.lower() == "true"}.get(kind, lambda: cell)()
    assert column(tmp_path / "x.csv", [cell, ""])[:2] == ([expected, None], kind)


LATE = ["7"] * 20_000 + ["unknown"]  # far behind any sample


@pytest.mark.parametrize(
    ("cells", "given", "values", "kind", "notes"),
    [
        (["1", "2.5", "", "NaN", "n/a"], None, [1, 2.5, None, None, None], "number",
         ["x.csv: x (number); other columns hold strings"]),
        (LATE, None, LATE, "string",
         ["x.csv: 'x' holds strings: 20,000 of 20,001 cells are numbers, and 'unknown' in line 20,002 is not"]),
        (["5", "a", "b"], None, ["5", "a", "b"], "string", []),
        (["NA", "NA"], None, ["NA", "NA"], "string", []),
        (["true", "1"], None, ["true", "1"], "string",
         ["x.csv: 'x' holds strings: 1 of 2 cells are booleans, and '1' in line 3 is not"]),
        (["", ""], None, [None, None], None, []),
        (["5", "7"], "string", ["5", "7"], None, []),
        (["007", "+1", "1e5", "null"], "number", [7, 1, 100000, None], None,
         ["x.csv: x (number); other columns hold strings"]),
        (["yes", "0", "T"], "boolean", [True, False, True], None, ["x.csv: x (boolean); other columns hold strings"]),
    ],
)  # fmt: skip
def test_a_column_has_a_type_if_all_of_its_cells_have(tmp_path, cells, given, values, kind, notes):
    found = column(tmp_path / "x.csv", cells, **({"types": {"x": given}} if given else {}))
    assert found == (values, kind, notes)


def test_a_type_that_is_given_holds_in_every_kind_of_file(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": "a", "x": ["1", 2]}\n{"text": "b"}\n{"text": "c", "x": "7"}\n')
    for kind, values in (("number", [[1, 2], None, 7]), ("string", [["1", "2"], None, "7"])):
        assert column(tmp_path / "x.jsonl", types={"x": kind})[0] == values


def piped(path, cells, **options):
    """Return the column of a table that comes through a pipe."""
    column(path.with_name("table.csv"), cells, types={"x": "string"})
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(path.with_name("table.csv").read_bytes()))
    writer.start()
    try:
        return column(path, **options)[0]
    finally:
        writer.join(10)
        path.unlink()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_the_first_rows_of_a_pipe_decide(tmp_path):
    path = tmp_path / "x.csv"
    assert piped(path, ["1"] * 10_001) == [1] * 10_001 and piped(path, ["1", "many"]) == ["1", "many"]
    assert piped(path, ["1"] * 10_000 + ["many"], types={"x": "string"})[-1] == "many"


test_a_cell_of_another_type_is_named_by_its_line = refused(
    (lambda tmp_path: column(tmp_path / "x.csv", ["1", "many"], types={"x": "number"}),
     r"x.csv, line 3: 'x' is 'many', and not a number, as the given type says.*--type x=string", CorpusError),
    (lambda tmp_path: column(tmp_path / "x.csv", ["2024-5-1"], types={"x": "date"}),
     r"line 2: 'x' is '2024-5-1', and not a date", CorpusError),
    (lambda tmp_path: column(written(tmp_path / "x.jsonl", '{"text": "a", "x": ["1", 2]}\n'), types={"x": "date"}),
     "line 1: 'x' is '1', and not a date", CorpusError),
    (lambda tmp_path: piped(tmp_path / "x.csv", ["1"] * 12_000 + ["many"]),
     r"line 12002: 'x' is 'many', and not a number, as in the rows before.*--type", CorpusError),
)  # fmt: skip


def test_a_column_has_one_type_in_all_files_and_in_the_index(tmp_path, fruit):
    fruit.save_pretrained(tmp_path / "fruit")
    for name, *cells in (("a", "1", "2"), ("b", "3", "unknown"), ("c", "007", "008"), ("d", "123", "456")):
        column(tmp_path / f"{name}.csv", cells, "x" if name in "ab" else "zip")
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
        "zip='2'": "2", "zip!=2": "1", "lang=en": "1", "lang=en|de": "12", "lang!=en|de": "", 'lang="en|de"': "",
        "ok=true": "1", "ok=FALSE": "2", 'ok!="true"': "12",
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


BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("name", "content", "options", "records"),
    [
        ("notes/deep/one.md", b"# A title\n\nSome *text*.\n", {}, [("deep/one.md", "A title", "Some *text*.", {})]),
        ("notes/two.txt", BOM + b"Line one\nline two\n", {}, [("two.txt", "", "Line one\nline two", {})]),
        ("x.csv", b"key,review,stars\na,good,5\n", {"field": "review", "id_field": "key"},
         [("a", "", "good", {"stars": 5})]),
        ("x.jsonl", b'"a plain string"\n{"_id": 7, "text": "t"}\n', {},
         [("x.jsonl:1", "", "a plain string", {}), ("7", "", "t", {})]),
        ("x.txt", BOM + b"a\r\n \n\xe2\x80\xa8b\x0cc", {},
         [("x.txt:1", "", "a", {}), ("x.txt:3", "", "\u2028b\x0cc", {})]),
        ("x.jsonl", BOM + b'{"text": null}\r\n\r\nnull\r\n"c"', {},
         [("x.jsonl:1", "", "", {}), ("x.jsonl:3", "", "", {}), ("x.jsonl:4", "", "c", {})]),
        ("x.csv", BOM + b'id,text\r\n1,"a\r\nb"\r\n2,\r\n', {}, [("1", "", "a\nb", {}), ("2", "", "", {})]),
        ("x.md.gz", gzip.compress(BOM + b"# T\r\na\r\nb\r\n"), {}, [("x.md.gz", "T", "a\nb", {})]),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*span lines")
def test_what_the_documents_of_a_file_are(tmp_path, name, content, options, records):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(content)
    file = CorpusFile(tmp_path / name.partition("/")[0], **options)
    assert [record[:4] for record in read_documents(file)] == records


BROKEN = [
    ("x.txt", b"fine\nb\xe9d\n", "x.txt, line 2 is not UTF-8"),
    ("x.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', "x.jsonl, line 2 is not UTF-8"),
    ("x.jsonl", b'{"text": "a"}\n{"text": \n', "x.jsonl, line 2: not JSON"),
    ("x.jsonl", b'{"txt": "a"}\n', "x.jsonl, line 1: no field 'text'; it has txt"),
    ("x.jsonl", b"[1]\n", "x.jsonl, line 1 is list"),
    ("x.jsonl", b'{"text": "a", "title": [3]}\n', "the title under 'title' is list"),
    ("x.jsonl", b'{"text": "x", "_id": {"$oid": "7"}}', r"line 1: the id {'\$oid': '7'} is dict"),
    ("x.jsonl", b'{"text": "x", "n": ' + b'{"a":' * 100_000, "not JSON .nested too deeply"),
    ("x.jsonl", b'{"text": "x", "n": ' + b"[" * 100_000, "not JSON .nested too deeply"),
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
]

test_broken_files_are_named_with_their_line = refused(
    *((lambda tmp_path, name=name, content=content: list(read_documents(written(tmp_path / name, content))), said,
       CorpusError) for name, content, said in BROKEN),
    (lambda tmp_path: list(read_documents(tmp_path / "none")), "file not found", CorpusError),
    (lambda tmp_path: list(read_documents(tmp_path)), "holds no file", CorpusError),
)  # fmt: skip


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
