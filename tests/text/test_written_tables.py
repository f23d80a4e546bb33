"""Tables as other programs write them are read back to the same rows, or the message names the line and the way out."""

import csv
import re
import warnings
from contextlib import nullcontext
from datetime import datetime

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pellucid.errors import CorpusError
from pellucid.text import CorpusFile

polars = pytest.importorskip("polars")

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


def written(table):
    return [[str(number), *row] for number, row in enumerate(table, 1)]


def write_csv(path, table, *, encoding="utf-8", start="", **form):
    """Write a table as csv.writer does."""
    with open(path, "w", newline="", encoding=encoding) as file:
        file.write(start)
        csv.writer(file, **form).writerows([NAMES, *written(table)])
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
    st.sampled_from(",;|"),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
)
@example([('say \\"hi\\", then', "x")], ",", "\n", csv.QUOTE_MINIMAL)
@example([("\\", '"'), ("", "NA")], ",", "\r\n", csv.QUOTE_MINIMAL)
def test_dialects_of_csv(folder, table, delimiter, end, quoting):
    path = write_csv(folder / "dialect.csv", table, delimiter=delimiter, lineterminator=end, quoting=quoting)
    rows, said = read(path)
    assert rows == rows_of(table)
    assert any("span lines" in line for line in said) == (path.read_bytes().count(b"\n") > len(table) + 1)


@given(TABLES, st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
def test_tabs_with_quoting(folder, table, quoting):
    path = write_csv(folder / "quoted.tsv", table, delimiter="\t", quoting=quoting)
    same_or_said(path, rows_of(table))
    rows, _ = read(path, quoting="csv")
    assert rows == rows_of(table)


@given(st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=5))
@example([('"We are happy.', "a"), ("Nothing", "b"), ('They said so."', "c")])
@example([('"Who are they?" - "A mirror."', '"')])
def test_tabs_without_quoting(folder, table):
    """A row a line, whatever stands in the cells; only a file that is quoted throughout loses its marks."""
    path = folder / "raw.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in [NAMES, *written(table)]), encoding="utf-8")
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
    pd.DataFrame(written(table), columns=NAMES).to_csv(path, sep=delimiter, index=index)
    expected = rows_of(table)
    if index and delimiter != "\t":  # an unnamed column before the others
        assert any("column 1 has no name" in line for line in read(path)[1])
    assert same_or_said(path, expected) or delimiter == "\t"
    pandas_rows = pd.read_csv(path, sep=delimiter, index_col=0 if index else None, dtype=str, keep_default_na=False)
    assert pandas_rows["text"].str.replace("\r\n", "\n").tolist() == [row["text"] for row in expected]


@given(TABLES, st.sampled_from([",", ";", "\t"]), st.sampled_from(["necessary", "always", "non_numeric"]))
def test_polars(folder, table, delimiter, style):
    path = folder / "polars.csv"
    polars.DataFrame(written(table), schema=NAMES, orient="row").write_csv(path, separator=delimiter, quote_style=style)
    assert same_or_said(path, rows_of(table)) or delimiter == "\t"


def r_table(table, sep=" ", quote=True, escape=True, row_names=True, na="NA"):
    """A table as R's write.table writes it: None is missing, strings are quoted, and rows have names."""

    def cell(value):
        if value is None:
            return na
        if not quote:
            return value
        return '"' + value.replace('"', '\\"' if escape else '""') + '"'

    lines = [sep.join(map(cell, NAMES))]
    for number, row in enumerate(table, 1):
        names = [cell(str(number))] if row_names else []
        lines.append(sep.join([*names, str(number), *map(cell, row)]))
    return "\n".join(lines) + "\n"


R_CELLS = st.none() | st.text(st.sampled_from('",;\t é1xNA'), max_size=6)
R_TABLES = st.lists(st.tuples(R_CELLS, R_CELLS), min_size=1, max_size=5)


@given(R_TABLES, st.sampled_from([" ", ",", ";", "\t"]))
def test_write_table_of_r(folder, table, sep):
    """The default escapes quotation marks with backslashes."""
    path = folder / "r.csv"
    path.write_text(r_table(table, sep, row_names=False), encoding="utf-8")
    expected = rows_of([[cell or "" for cell in row] for row in table])
    assert read(path, quoting="backslash", delimiter=sep)[0] == expected
    is_marked = any('"' in (cell or "") for row in table for cell in row)
    assert same_or_said(path, expected, delimiter=sep) or is_marked


def test_names_of_rows_need_one_in_the_header(folder):
    (folder / "r.csv").write_text('"id","text"\n"1","7","a"\n')
    with pytest.raises(CorpusError, match=r"line 2 has 3 cells; the header has 2, which must name each column"):
        list(CorpusFile(folder / "r.csv"))


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
    with pytest.raises(CorpusError, match=r"x\.txt is a table by its first line.*--delimiter tab"):
        list(CorpusFile(tmp_path / "x.txt"))
    with (
        pytest.warns(UserWarning, match="quotation marks are read as text.*--quoting csv"),
        pytest.raises(CorpusError, match=r"x\.txt, line 4 has 1 cells.*--quoting csv"),
    ):
        list(CorpusFile(tmp_path / "x.txt", delimiter="tab"))
    rows, _ = read(tmp_path / "x.txt", delimiter="tab", quoting="csv")
    assert rows[0]["text"] == 'a "quoted" word' and rows[1] == {"id": "2", "text": "plain", "note": "two\nlines"}


@given(st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=4))
def test_spark_writes_backslashes_before_quotation_marks(folder, table):
    path = folder / "spark.csv"
    cells = [
        [f'"{cell}"' for cell in (cell.replace("\\", "\\\\").replace('"', '\\"') for cell in row)] for row in table
    ]
    lines = [",".join(NAMES), *(",".join([str(n), *row]) for n, row in enumerate(cells, 1))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert read(path, quoting="backslash")[0] == rows_of(table)
    same_or_said(path, rows_of(table)) if any('"' in cell for row in table for cell in row) else None


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
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    rows = [
        ["ID", " Text ", "day", "n"],
        [1, "first", datetime(2024, 1, 2), 0.5],
        [2, 1984, None, None],
        [3, None, None, 7],
    ]
    for row in [[None], *rows]:
        book.active.append(row)
    book.create_sheet("more")
    book.save(tmp_path / "x.xlsx")
    with pytest.warns(UserWarning, match="the first of 2 sheets is read"):
        assert list(CorpusFile(tmp_path / "x.xlsx")) == ["first", "1984", ""]
    values = [row.values for row in CorpusFile(tmp_path / "x.xlsx").rows(is_quiet=True)]
    assert values[0] == {"id": 1, "text": "first", "day": datetime(2024, 1, 2), "n": 0.5}
    (tmp_path / "bad.xlsx").write_bytes(b"PK\3\4 no workbook")
    with pytest.raises(CorpusError, match=r"bad\.xlsx is damaged or no \.xlsx file"):
        list(CorpusFile(tmp_path / "bad.xlsx"))
