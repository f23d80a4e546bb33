"""Copies of rows keep format, header and quoting."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import run_command
from pellucid import CorpusFile, duplicates
from pellucid.bulk import write_kept
from pellucid.errors import CorpusError
from pellucid.text.tables import check_copy, copy_rows
from refusals import refused

TEXTS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff"), max_size=8),
    min_size=1,
    max_size=8,
)
NAMES = ["x.csv", "x.tsv", "x.txt", "x.jsonl", "x.ndjson", "x.parquet"]


def written(path, texts):
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


@given(TEXTS, st.integers(0, 255), st.sampled_from(NAMES))
def test_selected_rows_are_copied_with_all_their_columns(tmp_path_factory, texts, bits, name):
    folder = tmp_path_factory.mktemp("copies")
    frame = written(folder / name, texts)
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
    for selected, expected in ([True] * 4, rows), ([False, True, True, False], [*rows[:2], *rows[3:6]]):
        copy_rows(file, tmp_path / "y.csv", np.array(selected))
        assert (tmp_path / "y.csv").read_text("utf-8") == "\n".join(expected) + "\n"


@pytest.mark.filterwarnings("ignore")
def test_duplicates_keep_a_table_with_its_header(tmp_path, fruit):
    source, target = tmp_path / "x.csv.gz", tmp_path / "y.csv"
    texts = ["apple", "car", "apple", "pear, car\nbicycle"]
    frame = pd.DataFrame({"id": [1, 2, 3, 4], "text": texts, "n": [5, 6, 7, 8]})
    frame.to_csv(source, index=False)
    write_kept(source, duplicates(source, fruit), target)
    assert pd.read_csv(target).equals(frame.drop(2).reset_index(drop=True))


@pytest.fixture
def source(tmp_path):
    (tmp_path / "x.csv").write_text("text\napple\ncar\npear\napple\n")
    return tmp_path / "x.csv"


test_what_cannot_be_copied_is_refused = refused(
    (lambda source: check_copy(CorpusFile(source), source.with_name("y.txt")), r"is \.csv; end the name of .*y\.txt"),
    (
        lambda tmp_path: check_copy(CorpusFile("x.json"), tmp_path / "y.json"),
        r"copies of \.json files cannot be written",
    ),
    (
        lambda source: copy_rows(CorpusFile(source), source.with_name("y.csv"), np.ones(3, bool)),
        "has 4 texts, and 3 were expected",
        CorpusError,
    ),
)


def test_the_command_keeps_rows_and_refuses_other_formats_first(tmp_path, fruit, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fruit.save_pretrained("fruit")
    Path("x.csv").write_text("id,body\n1,apple\n2,car\n3,apple\n")
    command = ["duplicates", "x.csv", "--field", "body", "-m", "fruit", "--keep"]
    assert "2 of 3 texts" in run_command(*command, "y.csv", "-o", "pairs.csv").stderr
    (pair,) = (row.values for row in CorpusFile("pairs.csv").rows())
    assert [pair[name] for name in ("row", "kept_row", "kept_text")] == ["3", "1", "apple"]
    assert Path("y.csv").read_text() == "id,body\n1,apple\n2,car\n"
    assert "x.csv is .csv; end the name of" in run_command(*command, "y.parquet", code=1).stderr
