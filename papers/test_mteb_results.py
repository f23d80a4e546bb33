"""MTEB reads the scores of the bundled models as its own, and they are those that the page shows."""

from __future__ import annotations

import json
import re

import pytest

from papers import kit, mteb_results

FILES = sorted((mteb_results.FOLDER / "results").glob("*/*/[A-Z]*.json"))


@pytest.fixture(scope="module")
def shown():
    return kit.read_results(kit.results_path("mteb_results"))["scores"]["figure"]


def test_mteb_reads_every_file_and_finds_what_the_page_shows(shown):
    mteb = pytest.importorskip("mteb")
    from mteb.results import TaskResult

    read = {}
    for path in FILES:
        result = TaskResult.from_disk(path)
        assert result.task_name == path.stem and result.dataset_revision == mteb.get_task(path.stem).metadata.revision
        read[path.parents[1].name, path.stem.removesuffix("Classification")] = 100 * result.get_score()
    for name, *scores in shown.rows:
        for task, score in zip(shown.columns[1:], scores, strict=True):
            assert read.pop((f"pellucid__{name}", task)) == pytest.approx(score, abs=1e-3)
    assert not read, "the page lacks these"


def test_mteb_loads_the_folder_as_a_cache(shown):
    mteb = pytest.importorskip("mteb")
    loaded = mteb.ResultCache(mteb_results.FOLDER).load_results(include_remote=False)
    names = {result.model_name for result in loaded.model_results}
    assert names == {f"pellucid/{row[0]}" for row in shown.rows}
    assert sum(len(result.task_results) for result in loaded.model_results) == len(FILES)


def test_files_name_nothing_of_the_machine():
    for path in (mteb_results.FOLDER / "results").glob("*/*/*.json*"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w:/.])/\w", text), "an absolute path"
    assert all(json.loads(path.read_text(encoding="utf-8"))["kg_co2_emissions"] is None for path in FILES)


def test_a_set_is_measured_by_its_items_and_characters(tmp_path):
    folder = tmp_path / "retrieval" / "scifact"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "1", "title": "ab", "text": "cd"}\n{"_id": "2", "text": "efg"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "7", "text": "hi"}\n{"_id": "8", "text": "not judged"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n7\t2\t1\n")
    pytest.importorskip("mteb")
    (task,) = mteb_results.find_tasks(tmp_path)
    made = task.make()
    assert mteb_results.size_at_hand(task, made) == (3, len("ab cd") + len("efg") + len("hi"))
    assert mteb_results.size_in_mteb(made) == (5_483, 7_798_555)
