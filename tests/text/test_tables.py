"""Tables and texts of files: read as other programs write them, written so that they read back, copied row by row."""

import csv
import re
import time
import warnings
import zipfile
from contextlib import nullcontext
from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commands import run_command
from files import written
from pellucid import CorpusFile
from pellucid.cli.output import write_table
from pellucid.errors import CorpusError
from pellucid.index.records import read_documents
from pellucid.text.tables import check_copy, copy_rows
from refusals import refused

openpyxl = pytest.importorskip("openpyxl")

MARKS = "\"'\\,;\t|\n é€ NA1x"
CELLS = st.text(st.sampled_from(MARKS), max_size=8) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff"), max_size=6
)
PLAIN = st.text(st.sampled_from("\"'\\,;| é1x"), max_size=8)  # no line ends, no tabs
TABLES = st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=5)
NAMES = ["id", "text", "note"]


def rows_of(table):
    """Rows as a reader should give them: an id, two cells; line ends in cells are line feeds."""
    cells = [[cell.replace("\r\n", "\n") for cell in row] for row in table]
    return [{"id": str(number), "text": text, "note": note} for number, (text, note) in enumerate(cells, 1)]


def numbered(table):
    return [[str(number), *row] for number, row in enumerate(table, 1)]


def write_csv(path, table, *, encoding="utf-8", start="", **form):
    """Write a table as csv.writer does."""
    with open(path, "w", newline="", encoding=encoding) as file:
        file.write(start)
        csv.writer(file, **form).writerows([NAMES, *numbered(table)])
    return path


def read(path, **options):
    """The rows of a file and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = [row.values for row in CorpusFile(path, **options).rows()]
    return [{name: cell or "" for name, cell in row.items()} for row in rows], [str(w.message) for w in caught]


def same_or_said(path, expected, **options):
    """Read a file: the same rows, or an error or a warning that names a line and an option."""
    try:
        rows, said = read(path, **options)
    except CorpusError as error:
        assert re.search(r"line \d+", str(error)) and "--" in str(error), error
        return False
    assert rows == expected or any("--quoting" in line for line in said), (rows, expected, said)
    return rows == expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@given(
    TABLES,
    st.sampled_from(",;|\t"),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
)
@example([('say \\"hi\\", then', "x")], ",", "\n", csv.QUOTE_MINIMAL)
@example([("\\", '"'), ("", "NA")], ",", "\r\n", csv.QUOTE_MINIMAL)
def test_dialects_of_csv(folder, table, delimiter, end, quoting):
    path = write_csv(folder / "dialect.csv", table, delimiter=delimiter, lineterminator=end, quoting=quoting)
    assert same_or_said(path, rows_of(table)) or delimiter == "\t"
    rows, said = read(path, quoting="csv")
    assert rows == rows_of(table)
    assert any("span lines" in line for line in said) == (path.read_bytes().count(b"\n") > len(table) + 1)


@given(st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=5))
@example([('"We are happy.', "a"), ("Nothing", "b"), ('They said so."', "c")])
@example([('"Who are they?" - "A mirror."', '"')])
def test_tabs_without_quoting(folder, table):
    """A row a line, whatever stands in the cells; only a file that is quoted throughout loses its marks."""
    path = folder / "raw.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in [NAMES, *numbered(table)]), encoding="utf-8")
    rows, _ = read(path)
    assert len(rows) == len(table)
    if rows != rows_of(table):  # each cell that has a mark is quoted as a writer would
        cells = [cell for row in table for cell in row if '"' in cell]
        assert cells and all(re.fullmatch(r'"(?:[^"]|"")*"', cell) for cell in cells)
    assert read(path, quoting="none")[0] == rows_of(table)


@given(
    TABLES, st.sampled_from([",", ";", "\t", "|"]), st.booleans(), st.sampled_from(["", ".gz", ".bz2", ".xz", ".zip"])
)
def test_pandas(folder, table, delimiter, index, packed):
    path = folder / f"pandas.csv{packed}"
    pd.DataFrame(numbered(table), columns=NAMES).to_csv(path, sep=delimiter, index=index)
    expected = rows_of(table)
    if index and delimiter != "\t":  # an unnamed column before the others
        assert any("column 1 has no name" in line for line in read(path)[1])
    assert same_or_said(path, expected) or delimiter == "\t"
    pandas_rows = pd.read_csv(path, sep=delimiter, index_col=0 if index else None, dtype=str, keep_default_na=False)
    assert pandas_rows["text"].str.replace("\r\n", "\n").tolist() == [row["text"] for row in expected]


@given(TABLES, st.sampled_from([",", ";", "\t"]), st.sampled_from(["necessary", "always", "non_numeric"]))
def test_polars(folder, table, delimiter, style):
    frame = pytest.importorskip("polars").DataFrame(numbered(table), schema=NAMES, orient="row")
    frame.write_csv(folder / "polars.csv", separator=delimiter, quote_style=style)
    assert same_or_said(folder / "polars.csv", rows_of(table)) or delimiter == "\t"


def r_table(table, sep=" ", escape=True, row_names=True, na="NA"):
    """A table as R's write.table writes it: None is missing, strings are quoted, and rows have names."""

    def cell(value):
        marks = {"\\": "\\\\", '"': '\\"'} if escape else {'"': '""'}
        return na if value is None else f'"{value.translate(str.maketrans(marks))}"'

    lines = [sep.join(map(cell, NAMES))]
    for number, row in enumerate(table, 1):
        lines.append(sep.join([*[cell(str(number))] * row_names, str(number), *map(cell, row)]))
    return "\n".join(lines) + "\n"


R_CELLS = st.none() | st.text(st.sampled_from('",;\t é1xNA'), max_size=6)
R_TABLES = st.lists(st.tuples(R_CELLS, R_CELLS), min_size=1, max_size=5)


@given(R_TABLES | st.lists(st.tuples(PLAIN, PLAIN), min_size=1), st.sampled_from([" ", ",", ";", "\t"]))
def test_backslashes_before_quotation_marks_as_r_and_spark_write_them(folder, table, sep):
    path = folder / "r.csv"
    path.write_text(r_table(table, sep, row_names=False), encoding="utf-8")
    expected = rows_of([[cell or "" for cell in row] for row in table])
    assert read(path, quoting="backslash", delimiter=sep)[0] == expected
    characters = {*"".join(cell or "" for row in table for cell in row)}
    if '"' in characters or "\\" not in characters:  # a backslash before anything else is one in csv
        assert same_or_said(path, expected, delimiter=sep) or '"' in characters


@given(R_TABLES, st.booleans())
def test_write_csv_of_r(folder, table, row_names):
    path = folder / "r.csv"
    text = r_table(table, ",", escape=False, row_names=row_names)
    path.write_text(('"",' if row_names else "") + text, encoding="utf-8")
    rows = list(CorpusFile(path).rows(is_quiet=True))
    assert [(row.values["text"], row.values["note"]) for row in rows] == table  # NA is missing, "NA" is a word


@given(st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=4), st.sampled_from(["cp1252", "utf-8-sig", "utf-16"]))
def test_habits_of_excel(folder, table, encoding):
    given_encoding = encoding if encoding == "cp1252" else None
    for start in ("", "sep=;\r\n"):
        path = write_csv(folder / "excel.csv", table, encoding=encoding, start=start, delimiter=";")
        assert read(path, encoding=given_encoding)[0] == rows_of(table)
        if encoding == "cp1252" and any("é" in cell for row in table for cell in row):
            with pytest.raises(CorpusError, match=r"excel\.csv, line \d+ is not UTF-8.*--encoding"):
                read(path)
    old = write_csv(folder / "mac.csv", table, encoding="mac-roman", delimiter=";", lineterminator="\r")
    assert read(old, encoding="mac-roman")[0] == rows_of(table)


def test_unicode_text_of_excel_is_a_table(tmp_path):
    content = 'id\ttext\tnote\r\n1\t"a ""quoted"" word"\tü\r\n2\tplain\t"two\nlines"\r\n'
    (tmp_path / "x.txt").write_bytes(content.encode("utf-16"))
    with (
        pytest.warns(UserWarning, match="quotation marks are read as text.*--quoting csv"),
        pytest.raises(CorpusError, match=r"x\.txt, line 4 has 1 cells.*--quoting csv"),
    ):
        list(CorpusFile(tmp_path / "x.txt", delimiter="tab"))
    rows, _ = read(tmp_path / "x.txt", delimiter="tab", quoting="csv")
    assert rows[0]["text"] == 'a "quoted" word' and rows[1] == {"id": "2", "text": "plain", "note": "two\nlines"}


@pytest.mark.parametrize("orient", ["records", "table", "values", "split"])
def test_json_of_pandas(tmp_path, orient):
    frame = pd.DataFrame({"id": [1, 2], "text": ["a", None], "n": [0.5, float("nan")]})
    for name in ("x.json", "lines.json", "lines.ndjson"):
        frame.to_json(tmp_path / name, orient="records", lines="lines" in name)
        assert list(CorpusFile(tmp_path / name)) == ["a", ""]
    frame.to_json(tmp_path / "x.json", orient=orient)
    with (
        pytest.raises(CorpusError, match=r"row 1|is one object .* and no table")
        if orient != "records"
        else nullcontext()
    ):
        list(CorpusFile(tmp_path / "x.json"))


def test_workbooks(tmp_path):
    book = openpyxl.Workbook()
    for row in (
        [None],
        ["ID", " Text ", "day", "n"],
        [1, "first", datetime(2024, 1, 2), 0.5],
        [2, 1984, None, None],
        [3, None, None, 7],
    ):
        book.active.append(row)
    book.create_sheet("more")
    book.save(tmp_path / "x.xlsx")
    with pytest.warns(UserWarning, match="the first of 2 sheets is read"):
        assert list(CorpusFile(tmp_path / "x.xlsx")) == ["first", "1984", ""]
    values = [row.values for row in CorpusFile(tmp_path / "x.xlsx").rows(is_quiet=True)]
    assert values[0] == {"id": 1, "text": "first", "day": datetime(2024, 1, 2), "n": 0.5}


BODIES = ["=1+1", "+41 44", "-7", "@desk", "plain", '=HYPERLINK("http://x/?"&A1)', "#N/A", "#DIV/0!"]
FORMULAS = [
    start + body
    for start in ["", "'", "''", "\x01", "\x00\x0b", "\ufffe", "\uffff", "\t", "\r", "\uff1d"]
    for body in BODIES
]
NOT_XML = "[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("suffix", ["csv", "tsv", "xlsx", "jsonl"])
def test_what_is_written_is_no_formula_and_reads_back(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    rows = [(f"-{n}", cell, f"={n}", cell or "x") for n, cell in enumerate(FORMULAS)]
    write_table(path, ["id", "text", "title", "note"], rows)
    if suffix in ("csv", "tsv"):
        with open(path, encoding="utf-8-sig", newline="") as file:
            cells = [cell for row in csv.reader(file, delimiter="\t" if suffix == "tsv" else ",") for cell in row]
        assert not [cell for cell in cells if re.match(f"{NOT_XML}*[=+\\-@\uff1d\t\r]", cell)]
    if suffix == "xlsx":
        assert not re.search(rb"<f[ >]|t=\"e\"", zipfile.ZipFile(path).read("xl/worksheets/sheet1.xml"))
    documents = list(read_documents(path))
    line_ends = (lambda text: text.replace("\r", "\n")) if suffix in ("csv", "tsv", "xlsx") else str
    kept = (lambda text: line_ends(re.sub(NOT_XML, "", text))) if suffix == "xlsx" else line_ends
    assert [record.id for record in documents] == [row[0] for row in rows]
    assert [record.title for record in documents] == [row[2] for row in rows]
    assert [record.text for record in documents] == [kept(row[1]) for row in rows]
    assert [r.metadata.get("note") for r in documents if "#N/A" not in r.text] == [
        kept(row[3]) for row in rows if "#N/A" not in row[1]
    ]


def test_a_workbook_says_which_cells_it_cuts(tmp_path, capsys):
    write_table(tmp_path / "t.xlsx", ["text"], [["a" * 40_000], ["\N{TULIP}" * 40_000], ["short"], ["a\x01b"]])
    assert "note: 2 cells are cut at 32,767 characters" in capsys.readouterr().err
    cells = [row[0] for row in openpyxl.load_workbook(tmp_path / "t.xlsx").active.iter_rows(values_only=True)]
    assert [len(cell.encode("utf-16-le")) // 2 for cell in cells] == [4, 32_767, 32_766, 5, 2]


def _workbook(path, rows):
    """Write a workbook whose sheet holds some XML below a header with the column text."""
    pd.DataFrame(columns=["text"]).to_excel(path, index=False)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    parts[sheet] = parts[sheet].replace(b"</sheetData>", rows.encode() + b"</sheetData>")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


TEXT_CELL = '<c r="{0}" t="inlineStr"><is><t>{1}</t></is></c>'


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (f'<row r="99999999999">{TEXT_CELL.format("A99999999999", "x")}</row>', "has a row beyond 1,048,576"),
        ("".join(f'<row r="{n}">{TEXT_CELL.format(f"XFD{n}", "z")}</row>' for n in range(2, 5000)), None),
        (f'<row r="2">{TEXT_CELL.format("A2", "a" * 30_000_000)}</row>', "unpacks to"),
        ("<row>" + "<c/>" * 3_000_000 + "</row>", "unpacks to"),
    ],
)
def test_hostile_workbooks_are_bounded(tmp_path, rows, said):
    path, begun = _workbook(tmp_path / "t.xlsx", rows), time.process_time()
    with pytest.raises(CorpusError, match=said) if said else nullcontext():
        assert list(CorpusFile(path)) == []  # nothing stands below the header
    assert time.process_time() - begun < 8


def test_errors_are_missing_and_formulas_without_a_value_are_named(tmp_path):
    texts = ["a tulip", "a rose", "a daisy"]
    frame = pd.DataFrame({"id": list("abc"), "text": texts, "price": [5, "#N/A", "#DIV/0!"]})
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    assert [record.metadata for record in read_documents(tmp_path / "t.xlsx")] == [{"price": 5}, {}, {}]
    frame.loc[1, "text"] = '="a rose for "&"Anna"'
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    with pytest.raises(CorpusError, match=r"t\.xlsx, cell B3 holds a formula without a value"):
        list(CorpusFile(tmp_path / "t.xlsx"))


TEXTS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff"), max_size=8),
    min_size=1,
    max_size=8,
)
FILES = ["x.csv", "x.tsv", "x.txt", "x.jsonl", "x.ndjson", "x.parquet"]


def write_frame(path, texts):
    frame = pd.DataFrame({"n": range(len(texts)), "text": texts, "note": [f"{text}!" for text in texts]})
    kind = next(suffix for suffix in path.suffixes)
    if kind in (".csv", ".tsv"):
        frame.to_csv(path, sep="\t" if kind == ".tsv" else ";", index=False, quoting=csv.QUOTE_ALL)
    elif kind == ".parquet":
        frame.to_parquet(path)
    elif kind == ".txt":
        frame["text"] = [text.replace("\n", " ") for text in texts]
        path.write_text("".join(f"{text}\n" for text in frame["text"]), encoding="utf-8", newline="")
    else:
        frame.to_json(path, orient="records", lines=True, force_ascii=False)
    return frame


@given(TEXTS, st.integers(0, 255), st.sampled_from(FILES))
def test_selected_rows_are_copied_with_all_their_columns(tmp_path_factory, texts, bits, name):
    folder = tmp_path_factory.mktemp("copies")
    frame = write_frame(folder / name, texts)
    selected = np.array([bool(bits >> n & 1) for n in range(len(texts))])
    copy_rows(CorpusFile(folder / name), folder / f"y{name[1:]}", selected)
    rows = [row.values for row in CorpusFile(folder / f"y{name[1:]}").rows(is_quiet=True)]
    expected = frame[selected]
    if name == "x.txt":
        assert rows == expected["text"].tolist()
        return
    assert [row["text"] or "" for row in rows] == expected["text"].tolist()
    assert [row["note"] for row in rows] == expected["note"].tolist()
    if name in ("x.csv", "x.tsv"):
        first, second = ((folder / f"{own}{name[1:]}").read_bytes().partition(b"\n")[0] for own in "xy")
        assert first == second


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_copies_are_utf8_with_line_feeds(tmp_path, encoding, end):
    rows = ["sep=;", "id;text", '1;"a;b"', "2;café", '3;"two', 'lines"', "4;d"]
    (tmp_path / "x.csv").write_bytes((end.join(rows) + end).encode(encoding))
    file = CorpusFile(tmp_path / "x.csv", encoding=encoding if encoding == "cp1252" else None)
    for selected, expected in ([True] * 4, rows), ([False, True, False, True], [*rows[:2], rows[3], rows[6]]):
        copy_rows(file, tmp_path / "y.csv", np.array(selected))
        assert (tmp_path / "y.csv").read_text("utf-8") == "\n".join(expected) + "\n"


test_what_cannot_be_read_or_copied_is_refused = refused(
    *((lambda tmp_path, name=name, content=content: list(CorpusFile(written(tmp_path / name, content))),
       message, CorpusError)
      for name, content, message in [
        ("r.csv", b'"id","text"\n"1","7","a"\n', "line 2 has 3 cells; the header has 2, which must name each column"),
        ("x.txt", "id\ttext\n1\tü\n".encode("utf-16"), r"x\.txt is a table by its first line.*--delimiter tab"),
        ("x.xlsx", b"PK\3\4 no workbook", r"x\.xlsx is damaged or no \.xlsx file"),
      ]),
    (lambda tmp_path: check_copy(CorpusFile("x.csv"), tmp_path / "y.txt"), r"is \.csv; end the name of .*y\.txt"),
    (lambda tmp_path: check_copy(CorpusFile("x.json"), tmp_path / "y.json"),
     r"copies of \.json files cannot be written"),
    (lambda tmp_path: copy_rows(
        CorpusFile(written(tmp_path / "x.csv", "text\napple\ncar\n")), tmp_path / "y.csv", [True] * 3),
     "has 2 texts, and 3 were expected", CorpusError),
)  # fmt: skip


def test_the_command_keeps_rows_and_refuses_other_formats_first(tmp_path, fruit, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fruit.save_pretrained("fruit")
    texts = ["apple", "car", "apple", "pear, car\nbicycle"]
    frame = pd.DataFrame({"id": [1, 2, 3, 4], "body": texts, "n": [5, 6, 7, 8]})
    frame.to_csv("x.csv.gz", index=False)
    command = ["duplicates", "x.csv.gz", "--field", "body", "-m", "fruit", "--keep"]
    assert "3 of 4 texts" in run_command(*command, "y.csv", "-o", "pairs.csv").stderr
    (pair,) = (row.values for row in CorpusFile("pairs.csv").rows())
    assert [pair[name] for name in ("row", "kept_row", "kept_text")] == ["3", "1", "apple"]
    assert pd.read_csv("y.csv").equals(frame.drop(2).reset_index(drop=True))
    assert "x.csv.gz is .csv; end the name of" in run_command(*command, "y.parquet", code=1).stderr
