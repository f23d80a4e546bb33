"""Copies of rows keep format, header and quoting."""

import csv
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from pellucid import CorpusFile, duplicates
from pellucid.bulk import write_kept
from pellucid.cli.app import app
from pellucid.errors import CorpusError, InputError
from pellucid.text.tables import check_copy, copy_rows

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


def test_duplicates_keep_a_table_with_its_header(tmp_path, fruit):
    source, target = tmp_path / "x.csv.gz", tmp_path / "y.csv"
    frame = pd.DataFrame(
        {"id": [1, 2, 3, 4], "text": ["apple", "car", "apple", "pear, car\nbicycle"], "n": [5, 6, 7, 8]}
    )
    frame.to_csv(source, index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_kept(source, duplicates(source, fruit), target)
    assert pd.read_csv(target).equals(frame.drop(2).reset_index(drop=True))
    for file, copy, message in (
        (source, "y.txt", r"is \.csv; end the name of .*y\.txt"),
        ("x.json", "y.json", r"copies of \.json files cannot be written"),
    ):
        with pytest.raises(InputError, match=message):
            check_copy(CorpusFile(file), tmp_path / copy)
    with pytest.raises(CorpusError, match="has 4 texts, and 3 were expected"):
        copy_rows(CorpusFile(source), target, np.ones(3, bool))


def test_the_command_keeps_rows_and_refuses_other_formats_first(tmp_path, fruit):
    fruit.save_pretrained(tmp_path / "fruit")
    (tmp_path / "x.csv").write_text("id,body\n1,apple\n2,car\n3,apple\n")

    def run(*arguments):
        return CliRunner().invoke(app, ["duplicates", *map(str, arguments), "-m", str(tmp_path / "fruit")])

    kept = run(tmp_path / "x.csv", "--field", "body", "--keep", tmp_path / "y.csv", "-o", tmp_path / "pairs.csv")
    assert kept.exit_code == 0 and "2 of 3 texts" in kept.stderr
    assert [
        tuple(row.values[name] for name in ("row", "kept_row", "kept_text"))
        for row in CorpusFile(tmp_path / "pairs.csv").rows()
    ] == [("3", "1", "apple")]
    assert (tmp_path / "y.csv").read_text() == "id,body\n1,apple\n2,car\n"
    refused = run(tmp_path / "x.csv", "--field", "body", "--keep", tmp_path / "y.parquet")
    assert refused.exit_code == 1 and "x.csv is .csv; end the name of" in refused.stderr
