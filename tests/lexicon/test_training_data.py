"""Training rows: read as published, bad ones named by file and line, nothing usable lost."""

from __future__ import annotations

import gzip
import json
import warnings

import numpy as np
import pytest

from pellucid.errors import CorpusError, InputError
from pellucid.lexicon.training_data import RowError, TrainingRow, TrainingSet, read_training_sets, write_rows

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


def written(path, *lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_a_row_as_published_is_read(tmp_path):
    [training_set] = read_training_sets(
        written(tmp_path / "medical.jsonl", GOOD, {"query": "q", "pos": "one text"}, "")
    )[:1]
    assert training_set.rows == [
        TrainingRow(
            "what cures it",
            ("medicine",),
            ("a horse", "a beach"),
            (4.5,),
            (-1.0, 0.25),
            "Given a question, retrieve answers",
            "normal",
        )
    ]
    assert training_set.name == "medical-normal"


def test_rows_without_type_or_negatives_are_retrieval(tmp_path):
    [training_set] = read_training_sets(written(tmp_path / "pairs.v2.jsonl", {"query": "q", "pos": ["p"], "neg": None}))
    assert (training_set.name, training_set.type, training_set.in_batch) == ("pairs", "retrieval", True)
    assert training_set.rows == [TrainingRow("q", ("p",))]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{", "not JSON"),
        ([1], "a row is an object"),
        ({"pos": ["p"]}, "'query' is missing"),
        ({"query": "q"}, "'pos' is missing"),
        ({"query": "q", "pos": []}, "'pos' is empty"),
        ({"query": " ", "pos": ["p"]}, "'query' holds ' '"),
        ({"query": "q", "pos": ["p", 3]}, "'pos' holds 3"),
        ({"query": "q", "pos": {"a": 1}}, "'pos' is {'a': 1}, which is not a list of texts"),
        ({"query": "q", "pos": ["p"], "neg": [""]}, "'neg' holds ''"),
        ({"query": "q", "pos": ["p"], "prompt": 5}, "'prompt' is 5"),
        ({"query": "q", "pos": ["p"], "pos_scores": [1, 2], "neg_scores": []}, "'pos_scores' and 'pos' do not match"),
        ({"query": "q", "pos": ["p"], "neg": ["n"], "pos_scores": [1]}, "'neg_scores' and 'neg' do not match: none"),
        ({"query": "q", "pos": ["p"], "neg": ["n"], "neg_scores": [1]}, "'pos_scores' and 'pos' do not match: none"),
        ('{"query": "q", "pos": ["p"], "pos_scores": [NaN]}', "'pos_scores' holds nan"),
        ({"query": "q", "pos": ["p"], "pos_scores": [True]}, "'pos_scores' holds True"),
        ({"query": "q", "pos": ["p"], "pos_scores": 2.0}, "'pos_scores' is 2.0, which is not a list of numbers"),
        ({"query": "q", "pos": ["p"], "type": "symmetric_class"}, "'neg' is empty, and a query of type"),
    ],
)
def test_a_bad_row_is_left_out_and_named_by_file_and_line(tmp_path, row, reason):
    path = written(tmp_path / "rows.jsonl", GOOD, "", row, GOOD)
    with pytest.warns(UserWarning, match="1 of 3 rows left out"):
        [training_set] = read_training_sets(path)
    assert len(training_set) == 2
    [problem] = training_set.problems
    assert problem.startswith(f"{path}, line 3: ") and reason in problem


def test_scores_may_be_null_and_absent_without_negatives(tmp_path):
    rows = [
        {"query": "q", "pos": ["p"], "pos_scores": None, "neg_scores": None},
        {"query": "q", "pos": ["p"], "neg": [], "pos_scores": [2], "neg_scores": []},
        {"query": "q", "pos": ["p"], "pos_scores": [2.0]},
        {"query": "q", "pos": ["p"], "pos_scores": [], "neg_scores": []},
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        [training_set] = read_training_sets(written(tmp_path / "a.jsonl", *rows))
    assert [(row.pos_scores, row.neg_scores) for row in training_set.rows] == [
        (None, None),
        ((2,), ()),
        ((2.0,), ()),
        (None, None),
    ]


def test_a_file_without_a_valid_row_says_why(tmp_path):
    path = written(tmp_path / "bad.jsonl", *[{"query": "q"}] * 7)
    with pytest.raises(CorpusError, match="no row to train on") as error:
        read_training_sets(path)
    assert f"{path}, line 1: 'pos' is missing" in str(error.value) and "and 2 more" in str(error.value)
    with pytest.raises(CorpusError, match="it is empty"):
        read_training_sets(written(tmp_path / "empty.jsonl"))


def test_files_that_are_none(tmp_path):
    with pytest.raises(CorpusError, match="not found"):
        read_training_sets(tmp_path / "absent.jsonl")
    with pytest.raises(CorpusError, match="cannot tell the format"):
        read_training_sets(written(tmp_path / "rows.csv", "a,b"))
    broken = tmp_path / "rows.jsonl.gz"
    broken.write_bytes(gzip.compress(json.dumps(GOOD).encode())[:-9])
    with pytest.raises(CorpusError, match="damaged"):
        read_training_sets(broken)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 is no parquet file")
    with pytest.raises(CorpusError, match="not a parquet file"):
        read_training_sets(tmp_path / "rows.parquet")
    with pytest.raises(CorpusError, match="no training files"):
        read_training_sets([])


def test_compressed_lines_and_parquet_give_the_same_rows(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    rows = [GOOD, {**GOOD, "query": "other", "pos_scores": None, "neg_scores": None}]
    plain = read_training_sets(written(tmp_path / "rows.jsonl", *rows))[0].rows
    with gzip.open(tmp_path / "rows.jsonl.gz", "wt") as lines:
        lines.write("\n".join(map(json.dumps, rows)))
    parquet.write_table(pyarrow.Table.from_pylist([*rows, {**GOOD, "query": ""}]), tmp_path / "rows.parquet")
    assert read_training_sets(tmp_path / "rows.jsonl.gz")[0].rows == plain
    with pytest.warns(UserWarning, match="rows.parquet, row 3: 'query' holds ''"):
        assert read_training_sets(tmp_path / "rows.parquet")[0].rows == plain


def test_a_set_is_of_one_type_and_names_differ(tmp_path):
    (tmp_path / "other").mkdir()
    first = written(tmp_path / "a.jsonl", GOOD, {**GOOD, "type": "symmetric_sts"}, GOOD)
    second = written(tmp_path / "other" / "a.jsonl", GOOD, {**GOOD, "type": "symmetric_sts"})
    sets = read_training_sets([first, second])
    assert [(s.name, len(s)) for s in sets] == [
        ("a-normal", 2),
        ("a-symmetric_sts", 1),
        ("a-normal-2", 1),
        ("a-symmetric_sts-2", 1),
    ]
    with pytest.raises(CorpusError, match="holds rows of the types"):
        TrainingSet("mixed", [TrainingRow("q", ("p",)), TrainingRow("q", ("p",), ("n",), type="symmetric_sts")])


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
    assert training_set.group_size(8) == size
    assert training_set.group_size(2) == 2


def test_rows_come_back_as_they_were_written(tmp_path):
    rows = [
        TrainingRow("ü\u2028 query", ("p", "p2"), ("n",), (1.5, 2.0), (0.25,), "prompt", "normal"),
        TrainingRow("q", ("p",), type="normal"),
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    assert read_training_sets(tmp_path / "rows.jsonl")[0].rows == rows


def test_a_row_checks_itself():
    with pytest.raises(RowError, match="'pos' is empty"):
        TrainingRow("q", ())


AXES = {"car": 0, "vehicle": 0, "boat": 0, "doctor": 1, "medicine": 1, "beach": 2}


def by_axis(texts):
    """Texts of one axis are alike: 'vehicle' and 'car' by 0.9 of a right angle's cosine, others not at all."""
    vectors = np.zeros((len(texts), 5), np.float32)
    for row, text in enumerate(texts):
        vectors[row, AXES[text]] = 1
        vectors[row, 3] = {"boat": 0.5, "vehicle": 0.2}.get(text, 0)
    return vectors


def test_mining_takes_the_nearest_texts_that_do_not_belong_to_the_query():
    pytest.importorskip("sentence_transformers")
    from pellucid.lexicon.training_data import mine_negatives

    rows = [
        TrainingRow("car", ("vehicle",), ("kept or replaced",), (1.0,), (0.0,)),
        TrainingRow("doctor", ("medicine",)),
        TrainingRow("car", ("car",)),
    ]
    mined = mine_negatives(rows, by_axis, corpus=["boat", "beach", "doctor"], count=1)
    # Both rows ask for "car": neither of their positives is a negative; the boat is far enough below the vehicle.
    assert mined[0].neg == mined[2].neg == ("boat",)
    assert mined[0].pos_scores is None and mined[0].neg_scores is None
    assert mined[1].neg[0] in ("boat", "beach", "vehicle", "car")  # all at a right angle; "doctor" is the query's equal
    with pytest.raises(InputError, match="nothing to mine"):
        mine_negatives([], by_axis)


def test_mining_passes_over_what_is_as_near_as_the_positive():
    pytest.importorskip("sentence_transformers")
    from pellucid.lexicon.training_data import mine_negatives

    rows = [TrainingRow("car", ("boat",))]
    assert mine_negatives(rows, by_axis, corpus=["vehicle", "beach"], count=2)[0].neg == ("beach",)


def test_scores_are_cosines_over_a_temperature_or_a_cross_encoders():
    from pellucid.lexicon.training_data import score_rows

    class Reranker:
        def predict(self, pairs, **options):
            return np.array([len(query) - len(text) for query, text in pairs], float)

    rows = [TrainingRow("car", ("vehicle", "car"), ("beach",)), TrainingRow("doctor", ("medicine",))]
    scored = score_rows(rows, by_axis, temperature=0.05)
    assert scored[0].pos_scores == pytest.approx((20 / np.sqrt(1.04), 20)) and scored[0].neg_scores == (0.0,)
    assert scored[1].pos_scores == pytest.approx((20,)) and scored[1].neg_scores == ()
    assert [row.pos_scores + row.neg_scores for row in score_rows(rows, Reranker())] == [(-4.0, 0.0, -2.0), (-2.0,)]
