"""Evaluation: MTEB on files, against numbers worked out by hand or by plain scipy."""

import json
import lzma
import socket
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

import pellucid
from pellucid.errors import CorpusError, InputError, MissingExtraError
from pellucid.evaluation.evaluating import MtebEncoder, Results, TaskScore, evaluate
from pellucid.evaluation.tasks import find_tasks, read_table
from pellucid.static.embedder import StaticEmbedder
from refusals import refused
from tasks import RISING, WRITERS, Dark, Planar, score, table, write_retrieval, write_sts


@pytest.fixture
def data(tmp_path):
    """One set of each kind."""
    for write in WRITERS.values():
        write(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Local data must never lead to the network: an attempt fails the test, also where a library hides it."""
    attempts = []

    def refuse(*arguments, **options):
        if "localhost" not in arguments:  # another test's cluster, which still runs, asks for its own metrics
            attempts.append(arguments)
        raise OSError("no network in tests")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    yield
    assert attempts == []


# --- both kinds of task, by hand ---


def test_both_kinds(data, fruit):
    rows = {row.type: row for row in score(fruit, data)}
    assert list(rows) == list(WRITERS) and all(row.seconds >= 0 for row in rows.values())
    found, by_hand = rows["Retrieval"], pytest.approx(100 / np.log2(3), abs=1e-2)  # pear is second, after apple
    assert (found.metric, found.score) == ("ndcg_at_10", by_hand)


class OtherSparse:
    """Another library's model with sparse rows, a matrix and not an array: `*` of two of them is a product."""

    def __init__(self):
        self._model = Dark()

    def encode(self, texts):
        return csr_matrix(self._model.encode(list(texts)))


@pytest.mark.parametrize("sparse", [Dark, OtherSparse])
def test_sparse_rows_score_as_dense_ones(data, sparse):
    dense = {row.task: row.score for row in score(Planar(), data)}
    assert {row.task: row.score for row in score(sparse(), data)} == pytest.approx(dense)


def test_sets_that_mteb_lacks_score_as_its_own(tmp_path, fruit):
    for write in (write_sts, write_retrieval):
        write(tmp_path), write(tmp_path, "mine")
    sts12, mine, scifact, mine_too = score(fruit, tmp_path)
    assert (sts12.score, scifact.score) == (mine.score, mine_too.score)
    assert (mine.task, mine.metric, scifact.task) == ("mine", "cosine_spearman", "SciFact")


def test_queries_and_documents_are_told_apart(data):
    class Roles(Planar):
        def encode_query(self, texts, *, show_progress_bar=False):
            return super().encode(["pear car" for _ in texts])  # sends every query to the car

    assert score(Roles(), data, "Retrieval")[0].scores["recall_at_1"] == 0


def test_compressed_files_read_the_same(data, fruit):
    before = [row.score for row in score(fruit, data)]
    for path in [p for p in data.rglob("*") if p.is_file()]:
        path.with_name(path.name + ".xz").write_bytes(lzma.compress(path.read_bytes()))
        path.unlink()
    assert [row.score for row in score(fruit, data)] == before


# --- choosing ---


def test_tasks_are_chosen_by_name_folder_or_type(data):
    write_sts(data, "STS13")
    for tasks, names in ((["sts13", "scifact"], ["STS13", "SciFact"]), (["STS"], ["STS12", "STS13"])):
        assert [row.task for row in score(Planar(), data, *tasks)] == names
    assert [task.name for task in find_tasks(data)][:3] == ["STS12", "STS13", "SciFact"]


# --- the cache ---


def test_a_score_is_made_once(data):
    model = Planar()
    rows, encoded = score(model, data), model.encoded
    assert score(model, data) == score(Planar(), data) == rows and model.encoded == encoded > 0


def test_one_changed_weight_and_changed_data_give_a_new_score(tmp_path, fruit):
    write_sts(tmp_path)
    vectors = fruit.vectors * np.float32([[1], [1], [-1], [1], [1]])  # pear turns its back on apple
    before = score(fruit, tmp_path)[0].score
    assert score(StaticEmbedder(fruit.vocabulary, vectors), tmp_path)[0].score < before
    assert score(StaticEmbedder(fruit.vocabulary, fruit.vectors), tmp_path)[0].score == before
    write_sts(tmp_path, rows=[(a, b, -gold) for a, b, gold in RISING])
    assert score(fruit, tmp_path)[0].score == pytest.approx(-before)


@pytest.mark.parametrize("content", ["", "{", "{}", '{"row": {"task": "STS12"}}', '{"row": 3}', "[]"])
def test_a_broken_cache_file_is_made_anew(tmp_path, content):
    write_sts(tmp_path / "data")
    (row,) = score(Planar(), tmp_path / "data")
    (entry,) = (tmp_path / "cache").iterdir()
    entry.write_text(content)
    assert score(Planar(), tmp_path / "data")[0].score == row.score
    assert json.loads(entry.read_text())["row"]["task"] == "STS12"


# --- bad data ---


BROKEN = [
    ("retrieval/scifact/queries.jsonl", None, r"file not found: .*scifact/queries\.jsonl"),
    ("sts/STS12/test.tsv", "sentence1\tscore\na\t1\n", r"STS12/test\.tsv has no column 'sentence2'.*sentence1, score"),
    ("sts/STS12/test.tsv", "sentence1\tsentence2\tscore\na\tb\n", "line 2 has 2 cells; the header has 3"),
    ("sts/STS12/test.tsv", "sentence1\tsentence2\tscore\na\tb\t1\na\tb\tgood\n", "line 3: the score 'good' is not"),
    ("sts/STS12/test.tsv", "sentence1\tsentence2\tscore\na\tb\t1\na\tb\t\n", "line 3: the score '' is not"),
    ("sts/STS12/test.tsv", "sentence1\tsentence2\tscore\na\tb\t1\na\tb\tnan\n", "line 3: the score 'nan' is not"),
    ("sts/STS12/test.tsv", "sentence1\tsentence2\tscore\na\tb\tinf\n", "line 2: the score 'inf' is not"),
    ("sts/STS12/test.tsv", "sentence1\tsentence2\tscore\na\tb\t1\nc\td\t1\n", "every score is 1"),
    ("sts/STS12/test.tsv", "sentence1\tsentence2\tscore\n", "nothing below it"),
    ("retrieval/scifact/corpus.jsonl", '{"_id": "d1"}\n', "corpus.jsonl, line 1 is no document; it must be"),
    ("retrieval/scifact/corpus.jsonl", '{"_id": "d1", "text": "a"}\n' * 2, "line 2: document 'd1' is there twice"),
    ("retrieval/scifact/queries.jsonl", '{"_id": "q1", "text": "a"}\n' * 2, "line 2: query 'q1' is there twice"),
    (
        "retrieval/scifact/qrels/test.tsv",
        "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td1\t0\n",
        "'d1' is judged 0 .*and 1",
    ),
    ("retrieval/scifact/corpus.jsonl", "{\n", "corpus.jsonl, line 1: not JSON"),
    ("retrieval/scifact/qrels/test.tsv", "query-id\tcorpus-id\tscore\nq9\td1\t1\n", "no query of queries.jsonl"),
    ("retrieval/scifact/qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\tyes\n", "line 2: invalid literal"),
]


UNKNOWN = [
    (["SciFat"], r"unknown task 'SciFat'; did you mean 'SciFact'\? The tasks are: STS12"),
    ("STS", "tasks is 'STS'; give a list"),
    (["STS21"], r"unknown task 'STS21'; did you mean 'STS"),
]


def of_broken(data, name, content):
    """Evaluate with a file of another content, or none, and check that nothing is encoded."""
    model, path = Planar(), data / name
    path.unlink() if content is None else path.write_text(content)
    try:
        score(model, data, name.split("/")[1])
    finally:
        assert model.encoded == 0


test_what_cannot_be_evaluated_is_named = refused(
    *((lambda data, name=name, content=content: of_broken(data, name, content), message, (InputError, CorpusError))
      for name, content, message in BROKEN),
    *((lambda data, tasks=tasks: evaluate(Planar(), data=data, tasks=tasks), message) for tasks, message in UNKNOWN),
    (lambda tmp_path: evaluate(Planar(), data=tmp_path / "nowhere"), "data folder not found"),
    (lambda tmp_path: evaluate(Planar(), data=tmp_path), "no evaluation set under"),
    (lambda data: score([1, 2], data), r"an encoder is a SentenceTransformer.*got list"),
)  # fmt: skip


@given(
    st.lists(
        st.tuples(*[st.text(st.characters(exclude_characters="\t\n\r\0", exclude_categories=["Cs"]))] * 2), min_size=1
    )
)
def test_any_cell_is_read_as_written(tmp_path_factory, rows):
    path = table(tmp_path_factory.mktemp("cells") / "t.tsv", "a b", rows)
    assert read_table(path, ["b", "a"]) == {"b": [b for _, b in rows], "a": [a for a, _ in rows]}


# --- opening models ---


def test_results_are_named_after_the_given_string_and_kept_in_the_users_cache(tmp_path, fruit, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    write_sts(tmp_path)
    fruit.save_pretrained(tmp_path / "ours")
    folder = str(tmp_path / "ours")
    for model, name, expected in ((folder, None, folder), (fruit, None, "StaticEmbedder"), (fruit, "fruit", "fruit")):
        assert evaluate(model, data=tmp_path, name=name).model == expected
    assert len(list((tmp_path / "xdg/pellucid/eval").glob("*.json"))) == 1


@pytest.mark.parametrize("module", ["mteb", "datasets"])
def test_missing_extra(data, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf'{module} is not installed. Run: pip install "pellucid\[eval\]"'):
        score(Planar(), data)


# --- the results ---


def test_views():
    given = [("STS12", "STS", "spearman", 70.04), ("STS13", "STS", "spearman", 80), ("x", "Retrieval", "n", 5)]
    results = Results("mine", tuple(TaskScore(*row) for row in given))
    assert results.means == {"STS": pytest.approx(75.02), "Retrieval": 5}
    words = [line.split() for line in str(results).splitlines()]
    assert ["STS12", "STS", "spearman", "70.0"] in words and ["mean", "STS", "75.0"] in words
    content = json.loads(results.to_json())
    assert (content["rows"][1]["score"], content["means"], content["kind"]) == (80, results.means, "evaluation")
    assert results.to_frame()["task"].tolist() == ["STS12", "STS13", "x"]


def test_a_score_that_is_undefined_is_null_in_json(tmp_path, fruit):
    write_sts(tmp_path, rows=[("apple", "apple", 1), ("apple", "apple", 2), ("apple", "apple", 3)])
    for _ in range(2):  # made, and read from the cache
        results = evaluate(fruit, data=tmp_path, cache_dir=tmp_path / "cache")
        content = json.loads(results.to_json(), parse_constant=pytest.fail)
        assert np.isnan(results.rows[0].score)
        assert content["rows"][0]["score"] is None and content["means"] == {"STS": None}


def test_mteb_is_told_what_the_model_knows():
    meta = MtebEncoder(pellucid.load("static-en")).mteb_model_meta
    assert meta.embed_dim == 256 and meta.n_parameters > 256 * 90_000
    assert meta.similarity_fn_name.value == "cosine" and meta.open_weights
    type(meta).model_validate(meta.model_dump(exclude={"loader"}) | {"loader": None})  # as MTEB reads its own files
