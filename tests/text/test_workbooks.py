"""Tables that we write read back to the same cells, run nothing, and hostile workbooks take bounded time and memory."""

import csv
import re
import time
import zipfile
from contextlib import nullcontext

import pytest

openpyxl = pytest.importorskip("openpyxl")

from pellucid.cli.output import write_table  # noqa: E402
from pellucid.errors import CorpusError  # noqa: E402
from pellucid.index.records import read_documents  # noqa: E402
from pellucid.text import CorpusFile  # noqa: E402

STARTS = ["", "'", "''", "\x01", "\x00\x0b", "\ufffe", "\uffff", "\t", "\r", "\uff1d"]
BODIES = ["=1+1", "+41 44", "-7", "@desk", "plain", '=HYPERLINK("http://x/?"&A1)', "#N/A", "#DIV/0!"]
CELLS = [start + body for start in STARTS for body in BODIES]
NOT_XML = "[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("suffix", ["csv", "tsv", "xlsx", "jsonl"])
def test_what_is_written_is_no_formula_and_reads_back(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    rows = [(f"-{n}", cell, f"={n}", cell or "x") for n, cell in enumerate(CELLS)]
    write_table(path, ["id", "text", "title", "note"], rows)
    if suffix in ("csv", "tsv"):
        with open(path, encoding="utf-8-sig", newline="") as file:
            cells = [cell for row in csv.reader(file, delimiter="\t" if suffix == "tsv" else ",") for cell in row]
        assert not [cell for cell in cells if re.match(f"{NOT_XML}*[=+\\-@\uff1d\t\r]", cell)]
    if suffix == "xlsx":
        assert not re.search(rb"<f[ >]|t=\"e\"", zipfile.ZipFile(path).read("xl/worksheets/sheet1.xml"))
    read = list(read_documents(path))
    line_ends = (lambda text: text.replace("\r", "\n")) if suffix in ("csv", "tsv", "xlsx") else str
    kept = (lambda text: line_ends(re.sub(NOT_XML, "", text))) if suffix == "xlsx" else line_ends
    assert [record.id for record in read] == [row[0] for row in rows]
    assert [record.title for record in read] == [row[2] for row in rows]
    assert [record.text for record in read] == [kept(row[1]) for row in rows]
    assert [r.metadata.get("note") for r in read if "#N/A" not in r.text] == [
        kept(row[3]) for row in rows if "#N/A" not in row[1]
    ]


def test_a_workbook_says_which_cells_it_cuts(tmp_path, capsys):
    write_table(tmp_path / "t.xlsx", ["text"], [["a" * 40_000], ["\N{TULIP}" * 40_000], ["short"], ["a\x01b"]])
    assert "note: 2 cells are cut at 32,767 characters" in capsys.readouterr().err
    cells = [row[0] for row in openpyxl.load_workbook(tmp_path / "t.xlsx").active.iter_rows(values_only=True)]
    assert [len(cell.encode("utf-16-le")) // 2 for cell in cells] == [4, 32_767, 32_766, 5, 2]


def _workbook(path, rows):
    """Write a workbook whose sheet holds some XML below a header with the column text."""
    book = openpyxl.Workbook()
    book.active.append(["text"])
    book.save(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    parts[sheet] = parts[sheet].replace(b"</sheetData>", rows.encode() + b"</sheetData>")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


TEXT = '<c r="{0}" t="inlineStr"><is><t>{1}</t></is></c>'


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (f'<row r="99999999999">{TEXT.format("A99999999999", "x")}</row>', "has a row beyond 1,048,576"),
        ("".join(f'<row r="{n}">{TEXT.format(f"XFD{n}", "z")}</row>' for n in range(2, 5000)), None),
        (f'<row r="2">{TEXT.format("A2", "a" * 30_000_000)}</row>', "unpacks to"),
        ("<row>" + "<c/>" * 3_000_000 + "</row>", "unpacks to"),
    ],
)
def test_hostile_workbooks_are_bounded(tmp_path, rows, said):
    path, begun = _workbook(tmp_path / "t.xlsx", rows), time.process_time()
    with pytest.raises(CorpusError, match=said) if said else nullcontext():
        assert list(CorpusFile(path)) == []  # nothing stands below the header
    assert time.process_time() - begun < 8


def test_errors_are_missing_and_formulas_without_a_value_are_named(tmp_path):
    book = openpyxl.Workbook()
    for row in (["id", "text", "price"], ["a", "a tulip", 5], ["b", "a rose", "#N/A"], ["c", "a daisy", "#DIV/0!"]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    assert [record.metadata for record in read_documents(tmp_path / "t.xlsx")] == [{"price": 5}, {}, {}]
    book.active["B3"] = '="a rose for "&"Anna"'
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(CorpusError, match=r"t\.xlsx, cell B3 holds a formula without a value"):
        list(CorpusFile(tmp_path / "t.xlsx"))
