"""How good an index finds what is judged: the measures, and what was missed."""

import json
import sys
from unittest.mock import Mock

import numpy as np
import pytest

pytest.importorskip("pytrec_eval")

from benchmarks import search
from benchmarks.search import DEFAULT, difference_table, mean_of_sets
from commands import run_command as run
from files import written
from pellucid import CorpusFile, Index
from pellucid.errors import CorpusError, InputError, MissingExtraError
from pellucid.index import read_qrels, read_queries
from pellucid.index.comparison import SettingsComparison
from refusals import refused
from tables import check_views

DOCUMENTS = {
    "a": "apples and pears grow on trees",
    "b": "a car follows a bicycle",
    "c": "the pear stands on the table",
    "d": "tax law of the country",
}
QUERIES = {"1": "apples", "2": "a car", "3": "law of the table", "4": "nobody judged this"}
RELEVANT = {"1": {"a": 2, "c": 1}, "2": {"b": 1, "d": 0}, "3": {"d": 1}, "9": {"a": 1}}


def ndcg(run, grades, k):
    """nDCG from its definition, with the gains as trec_eval has them."""
    gains = [grades.get(own, 0) / np.log2(rank + 1) for rank, own in enumerate(run[:k], 1)]
    best = sorted(grades.values(), reverse=True)[:k]
    return 100 * sum(gains) / sum(grade / np.log2(rank + 1) for rank, grade in enumerate(best, 1))


@pytest.fixture
def index(index_of, fruit):
    return index_of(DOCUMENTS.values(), ids=DOCUMENTS, models={"fruit": fruit})


def test_the_measures_are_those_of_what_searches_find(index):
    found = index.evaluate(QUERIES, RELEVANT, top_k=2, recall_at=3)
    check_views(found)
    assert (found.queries, found.left_out, found.absent, found.documents) == (3, 1, 0, 4)
    assert [row.part for row in found.measures] == ["bm25", "fruit", "together"]
    for row in found.measures:
        weights = None if row.part == "together" else {row.part: 1}
        runs = {q: [hit.id for hit in index.search(QUERIES[q], 3, weights=weights)] for q in "123"}
        of = {q: {own for own, grade in RELEVANT[q].items() if grade} for q in "123"}
        assert row.ndcg == pytest.approx(np.mean([ndcg(runs[q], RELEVANT[q], 2) for q in "123"]))
        assert row.recall == pytest.approx(np.mean([100 * len(of[q] & set(runs[q])) / len(of[q]) for q in "123"]))
        ranks = [next((1 / n for n, own in enumerate(runs[q], 1) if own in of[q]), 0.0) for q in "123"]
        assert row.mrr == pytest.approx(100 * np.mean(ranks))


def test_what_was_missed_is_said_with_what_it_lacked(index):
    found = index.evaluate({"x": "car", "y": "zzz"}, {"x": {"a": 1, "gone": 1}, "y": {"gone": 1}}, top_k=1)
    assert found.missed == 2 and found.absent == 1 and "not in the index" in str(found)
    assert found.to_html().count('class="warning"') == 1
    one, other = found.examples
    assert (one.document, one.first, other.score, other.first) == ("a", "b", None, "")
    assert one.first_score == index.search("car")[0].score and one.score == index.score("car", "a").score
    why = index.search("car")[0].explain() - index.score("car", "a").explain()
    assert one.lacked[0] == (why.rows[0].name, why.rows[0].contribution) and one.lacked[0].contribution > 0
    assert index.evaluate({"x": "car"}, {"x": {"a": 1}}, top_k=1, examples=0).examples == ()
    assert index.evaluate({"x": "car"}, {"x": {"b": 1}}, top_k=1).missed == 0
    ranked = index.evaluate({"x": "pear"}, {"x": {"a": 1}}, top_k=1)
    assert (ranked.measures[0].part, ranked.examples[0].rank) == ("bm25", 2)


def test_a_query_is_encoded_once_for_all_weights(index_of):
    model = Mock(spec=[], side_effect=lambda texts: np.array([[t.count("a"), t.count("e"), 1] for t in texts]))
    index = index_of(DOCUMENTS.values(), ids=DOCUMENTS, models={"one": model})
    model.reset_mock()
    queries = {str(n): f"pear {n}" for n in range(25)}
    index.evaluate(queries, {q: {"c": 1} for q in queries})
    assert sorted(text for call in model.call_args_list for text in call.args[0]) == sorted(queries.values())


def test_ids_may_be_anything_and_grades_are_bounded(index_of):
    index = index_of(["one apple", "two pears", "three cars", "four laws"], ids=[1, "a\0b", "a\0c", " "])
    queries = {1: "apple", "2\0x": "pears", "2\0y": "cars", "\ud800": "laws \ud800"}
    relevant = {1: {1: 1, "\udfff": -3}, "2\0x": {"a\0b": 1000}, "2\0y": {"a\0c": 1}, "\ud800": {" ": 1}}
    (row,) = index.evaluate(queries, relevant).measures
    assert row.ndcg == row.mrr == row.recall == 100


# --- Files, judgements and settings ---


TSV = "query-id\tcorpus-id\tscore\n"
test_what_cannot_be_evaluated_is_named = refused(
    (lambda index, monkeypatch: (monkeypatch.setitem(sys.modules, "pytrec_eval", None),
                                 index.evaluate(QUERIES, RELEVANT)), r"pellucid\[eval\]", MissingExtraError),
    (lambda index: (index.add(["x"], ids=["two\tcolumns"]), index.judge("a car", "two\tcolumns", 1)), "tab"),
    (lambda index, tmp_path: index.check(written(tmp_path / "c.tsv", "query\tdoc\na\tb\n")), "no column", CorpusError),
    *((lambda tmp_path, text=text: read_queries(written(tmp_path / "q.jsonl", text)), said, CorpusError)
      for text, said in (
          ('{"_id": "1", "text": "a"}\n{"_id": "1", "text": "b"}', "line 2: query '1' is there twice"),
          ('{"_id": "1"}', "line 1 is no query"),
          ('\n["a"]', "line 2 is no query"),
          ("{", "line 1: not JSON"))),
    *((lambda tmp_path, text=text: read_qrels(written(tmp_path / "q.tsv", text)), said, CorpusError)
      for text, said in (
          (f"{TSV}1\ta\tx", "line 2: invalid literal"),
          ("1 0 a 1\n1 0 b 1", "has no column 'query-id'"),
          (f"{TSV}1\ta", "line 2"),
          (f"{TSV}1\ta\tnan", "line 2: invalid literal"),
          (f"{TSV}1\ta\t1\n1\ta\t0", "line 3: document 'a' is judged 0 .*and 1 before"))),
)  # fmt: skip


def test_judgements_lie_beside_the_index_and_are_evaluated(index, tmp_path, fruit):
    assert index.judgements() == ({}, {})
    for query, own, grade in [("a car", "b", 1), ("a car", "d", 0), ("law\t\n\ud800", "d", 3), ("a car", "d", None)]:
        index.judge(query, own, grade)
    queries, grades = index.judgements()
    judged = {text: grades[key] for key, text in queries.items()}
    assert judged == {"a car": {"b": 1}, "law\t\n\ufffd": {"d": 3}}
    assert index.evaluate(queries, grades).queries == 2 and len(index) == 4 and index.verify() == []
    documents = tmp_path / "new.jsonl"
    documents.write_text('{"id": "b", "text": "a car"}')
    fruit.save_pretrained(tmp_path / "fruit")
    run("index", "build", index.folder, documents, "-m", tmp_path / "fruit", "--overwrite")
    folder, page = index.folder / "judgements", tmp_path / "x.html"
    said = [run("index", "evaluate", index.folder, *options, "-k", 1, "--json").stdout
            for options in ([], ["--queries", folder / "queries.jsonl", "--qrels", folder / "qrels.tsv"])]  # fmt: skip
    run("index", "evaluate", index.folder, "--html", page)
    with Index.open(index.folder) as built:
        assert [*map(json.loads, said)] == [built.evaluate(queries, grades, top_k=1).to_dict()] * 2
    assert "finds what all miss" in page.read_text("utf-8")
    index.delete("b")
    assert index.judge("a car", "b", None) == 1  # of a document that is gone, too


def test_two_settings_are_compared_query_by_query(index):
    bm25, both = {"weights": {"bm25": 1}}, {"weights": {"bm25": 1, "fruit": 1}, "word_weights": {"car": 0}}
    found = index.compare(QUERIES, bm25, both, RELEVANT, top_k=1)
    check_views(found)
    runs = [{q: [h.id for h in index.search(QUERIES[q], 1, **options)] for q in QUERIES} for options in (bm25, both)]
    assert [one.query for one in found.changes] == [QUERIES[q] for q in QUERIES if runs[0][q] != runs[1][q]]
    (change,) = [one for one in found.changes if one.query == "a car"]
    gaps = [index.score("a car", change.document, **options) for options in (both, bm25)]
    rows = {row.name: row.contribution for row in (gaps[0].explain() - gaps[1].explain()).rows}
    assert all(rows[name] == pytest.approx(value) for name, value in change.moved) and change.moved
    means = [np.mean([ndcg(run[q], RELEVANT[q], 1) for q in "123"]) for run in runs]
    assert found.ndcg == pytest.approx(means) and found.gain[0] == pytest.approx(means[1] - means[0])
    assert found.gain[1] <= found.gain[0] <= found.gain[2]
    assert index.compare(QUERIES, both, both, RELEVANT).changes == ()
    assert index.compare({1: "a car"}, {}, bm25, {1: {"b": 1}}).queries == 1  # ids as evaluate takes them


@pytest.mark.parametrize(
    ("gain", "verdict"), [((1, 0.5, 2), "better"), ((-1, -2, -0.5), "worse"), ((1, 0, 2), "undecided")]
)
def test_a_gain_is_a_verdict_where_its_interval_has_no_0(gain, verdict):
    found = SettingsComparison(9, 10, (), (50.0, 51.0), gain)
    assert str(found).splitlines()[1].endswith(f", {verdict}.")


def test_settings_are_kept_under_a_name(tmp_path):
    (table := tmp_path / "d.jsonl").write_text(
        '{"id": "a", "text": "apples and a car"}\n{"id": "b", "text": "a car"}\n'
    )
    (asked := tmp_path / "q.txt").write_text("apples, a car\n\n")
    run("index", "build", tmp_path / "index", table)
    with Index.open(tmp_path / "index") as made:
        plain = made.search("a car").to_dict()
        assert made.info()["settings"] == [] and plain["weights"]["bm25"] == pytest.approx(0.7)
        made.save_settings("words only", {"weights": {"bm25": 1}, "offset": 1})
        made.save_settings("b.2", {"min_score": np.float64(0.2)})
        kept = made.search("a car", settings="words only")
        assert kept.offset == 1 and kept.weights == {"bm25": 1.0, "static-en": 0.0}
        assert made.search("a car", settings="words only", offset=2, weights={"static-en": 1}).weights["bm25"] == 0
        wanted = made.compare({"1": "apples, a car"}, {"min_score": 0.2}, {"weights": {"bm25": 1}, "offset": 1})
        assert made.compare({"1": "apples, a car"}, "b.2", "words only").to_dict() == wanted.to_dict()
        made.rebuild()
    run("index", "build", tmp_path / "index", table, "--overwrite")
    shown = run("index", "compare", tmp_path / "index", "--queries", asked, "--first", "b.2", "--second", "words only")
    assert (
        "apples, a car" in shown.stdout and "1 query" in shown.stdout and "1 with other first 10 hits" in shown.stdout
    )
    with Index.open(tmp_path / "index") as made:
        assert made.info()["settings"] == ["b.2", "words only"]
        assert made.search("a car", settings="words only").to_dict() == kept.to_dict()
        made.save_settings("b.2", None)
        made.save_settings("b.2", None)
        assert made.info()["settings"] == ["words only"]
    with Index.open(tmp_path / "index", read_only=True) as made, pytest.raises(InputError, match="read_only"):
        made.save_settings("x", {})


def test_a_check_that_fails_has_its_rank(index_of, tmp_path):
    (table := tmp_path / "c.tsv").write_text("query\tid\twithin\nhorse\th\t\ncars\t29\t30\ncars\t29\t\nhorse\tnix\t\n")
    made = index_of([*(f"text {n} about cars" for n in range(30)), "a horse"], ids=[*range(30), "h"])
    assert made.check([("horse", "h"), ("cars", 29, 30), ("cars", "0", 1)]) == []
    assert made.check(table) == made.check(CorpusFile(table)) == [("cars", "29", 10, 30), ("horse", "nix", 10, None)]
    shown = run("index", "check", made.folder, table, code=1).stdout
    assert shown == "cars: 29 is rank 30; it must be within 10\nhorse: nix is not in the index; it must be within 10\n"


# --- The benchmark of search ---


def test_a_difference_is_the_mean_over_sets_and_gets_a_verdict():
    sets = [np.array([2.0] * 50), np.array([0.0, 2.0] * 20)]
    interval = mean_of_sets(sets)
    assert interval.value == 1.5 and 1.2 < interval.low < 1.5 < interval.high < 1.8
    *_, row = difference_table({"BM25 alone": [np.zeros(50), np.zeros(40)], DEFAULT: sets})
    assert row.startswith(f"| {DEFAULT} - BM25 alone | +1.5 (") and row.endswith("| **holds** |")


@pytest.mark.parametrize(("model", "option"), [("potion-base-8M", "--potion"), ("mpnet", "--vectors")])
def test_a_model_that_is_not_at_hand_is_refused_before_anything_is_measured(model, option, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["search", "--models", "static-en", model])
    with pytest.raises(SystemExit):
        search.main()
    assert f"needs {option}" in capsys.readouterr().err
