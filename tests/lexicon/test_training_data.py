"""Training rows: read as published, bad ones named by file and line, nothing usable lost."""

import gzip
import json
import re
from pathlib import Path

import pytest

from files import written
from pellucid.errors import CorpusError
from pellucid.lexicon import TrainingSet, read_training_sets
from pellucid.lexicon.training_data import TrainingRow
from refusals import refused

GOOD = {
    "query": "what cures it",
    "pos": ["medicine"],
    "neg": ["a horse", "a beach"],
    "pos_scores": [4.5],
    "neg_scores": [-1.0, 0.25],
    "prompt": "Given a question, retrieve answers",
    "type": "normal",
    "category": "another program's field",
}


def jsonl(path, *lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_a_row_as_published_is_read(tmp_path):
    first = read_training_sets(jsonl(tmp_path / "medical.jsonl", GOOD, {"query": "q", "pos": "one text"}, ""))[0]
    scores, prompt = ((4.5,), (-1.0, 0.25)), "Given a question, retrieve answers"
    row = TrainingRow("what cures it", ("medicine",), ("a horse", "a beach"), *scores, prompt, "normal")
    assert (first.rows, first.name) == ([row], "medical-normal")


def test_rows_without_type_or_negatives_are_retrieval(tmp_path):
    [found] = read_training_sets(jsonl(tmp_path / "pairs.v2.jsonl", {"query": "q", "pos": ["p"], "neg": None}))
    assert (found.name, found.type, found.in_batch, found.rows) == (
        "pairs", "retrieval", True, [TrainingRow("q", ("p",))],
    )  # fmt: skip


BAD_ROWS = [
    ("{", "not JSON"),
    ([1], "a row is an object"),
    ({"pos": ["p"]}, "'query' holds ''"),
    ({"query": "q"}, "'pos' is empty"),
    ({"query": "q", "pos": []}, "'pos' is empty"),
    ({"query": " ", "pos": ["p"]}, "'query' holds ' '"),
    ({"query": "q", "pos": ["p", 3]}, "'pos' holds 3"),
    ({"query": "q", "pos": {"a": 1}}, "'pos' is {'a': 1}, which is not a list"),
    ({"query": "q", "pos": ["p"], "neg": [""]}, "'neg' holds ''"),
    ({"query": "q", "pos": ["p"], "prompt": 5}, "prompt is 5; it must be a string"),
    ({"query": "q", "pos": ["p"], "pos_scores": [1, 2], "neg_scores": []}, "'pos_scores' and 'pos' do not match"),
    ({"query": "q", "pos": ["p"], "neg": ["n"], "pos_scores": [1]}, "'neg_scores' and 'neg' do not match: none"),
    ({"query": "q", "pos": ["p"], "neg": ["n"], "neg_scores": [1]}, "'pos_scores' and 'pos' do not match: none"),
    ('{"query": "q", "pos": ["p"], "pos_scores": [NaN]}', "a score of 'pos_scores' is nan"),
    ({"query": "q", "pos": ["p"], "pos_scores": [True]}, "a score of 'pos_scores' is True"),
    ({"query": "q", "pos": ["p"], "pos_scores": 2.0}, "'pos_scores' is 2.0, which is not a list"),
    ({"query": "q", "pos": ["p"], "type": "symmetric_class"}, "'neg' is empty, and a query of type"),
]
MIXED = [TrainingRow("q", ("p",)), TrainingRow("q", ("p",), ("n",), type="symmetric_sts")]


test_a_bad_row_is_named_by_file_and_line_and_a_bad_file_by_name = refused(
    *((lambda tmp_path, row=row: read_training_sets(jsonl(tmp_path / "rows.jsonl", GOOD, "", row, GOOD)),
       rf"rows\.jsonl, line 3: .*{re.escape(reason)}", CorpusError) for row, reason in BAD_ROWS),
    *((lambda tmp_path, name=name, content=content, files=files: read_training_sets(
        files(written(tmp_path / name, content))), message, CorpusError)
      for name, content, message in [
          ("rows.csv", b"a,b", r"\.jsonl \(also packed\) or \.parquet, not"),
          ("rows.jsonl.gz", gzip.compress(json.dumps(GOOD).encode())[:-9], "damaged"),
          ("rows.parquet", b"PAR1 is no parquet file", "not a parquet file"),
          ("empty.jsonl", b"", "no row to train on"),
      ] for files in (Path, lambda path: [path])),
    (lambda tmp_path: read_training_sets(tmp_path / "absent.jsonl"), "not found", CorpusError),
    (lambda: read_training_sets([]), "no training files", CorpusError),
    (lambda: TrainingSet("mixed", MIXED), "holds rows of the types", CorpusError),
    (lambda: TrainingSet("empty", []), "the training set 'empty' has no rows", CorpusError),
)  # fmt: skip


def test_scores_may_be_null_and_absent_without_negatives(tmp_path):
    rows = [
        {"query": "q", "pos": ["p"], "pos_scores": None, "neg_scores": None},
        {"query": "q", "pos": ["p"], "neg": [], "pos_scores": [2], "neg_scores": []},
        {"query": "q", "pos": ["p"], "pos_scores": [2.0]},
        {"query": "q", "pos": ["p"], "pos_scores": [], "neg_scores": []},
    ]
    [training_set] = read_training_sets(jsonl(tmp_path / "a.jsonl", *rows))
    assert [(row.pos_scores, row.neg_scores) for row in training_set.rows] == [
        (None, None),
        ((2,), ()),
        ((2.0,), ()),
        (None, None),
    ]


@pytest.mark.needs("pyarrow.parquet")
def test_compressed_lines_and_parquet_give_the_same_rows(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    rows = [GOOD, {**GOOD, "query": "other", "pos_scores": None, "neg_scores": None}]
    plain = read_training_sets(jsonl(tmp_path / "rows.jsonl", *rows))[0].rows
    with gzip.open(tmp_path / "rows.jsonl.gz", "wt") as lines:
        lines.write("\n".join(map(json.dumps, rows)))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    for name in ("rows.jsonl.gz", "rows.parquet"):
        assert read_training_sets(tmp_path / name)[0].rows == plain


def test_a_set_is_of_one_type(tmp_path):
    (tmp_path / "other").mkdir()
    first = jsonl(tmp_path / "a.jsonl", GOOD, {**GOOD, "type": "symmetric_sts"}, GOOD)
    sets = read_training_sets([first, jsonl(tmp_path / "other" / "a.jsonl", GOOD, {**GOOD, "type": "symmetric_sts"})])
    assert [(s.name, len(s)) for s in sets] == [
        ("a-normal", 2),
        ("a-symmetric_sts", 1),
        ("a-normal", 1),
        ("a-symmetric_sts", 1),
    ]


@pytest.mark.parametrize(
    ("kind", "in_batch", "instructed", "size"),
    [
        ("retrieval", True, False, 4),
        ("normal", True, False, 4),
        ("only_1neg", True, False, 2),
        ("symmetric_sts", False, True, 4),
        ("symmetric_class", False, False, 4),
        ("symmetric_clustering", False, True, 4),
    ],
)
def test_the_type_decides_how_a_query_is_compared(kind, in_batch, instructed, size):
    training_set = TrainingSet(
        "s", [TrainingRow("q", ("p",), ("a", "b", "c"), type=kind), TrainingRow("q", ("p",), ("a",), type=kind)]
    )
    assert (training_set.in_batch, training_set.candidates_instructed) == (in_batch, instructed)
    assert (training_set.group_size(8), training_set.group_size(2)) == (size, 2)
