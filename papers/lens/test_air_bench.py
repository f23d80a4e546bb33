"""A set of AIR-Bench scores as the same set in the usual layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from papers.lens.air_bench import convert
from pellucid.errors import InputError
from pellucid.static.embedder import StaticEmbedder
from tasks import records, score, write_retrieval


def test_a_set_of_air_bench_scores_as_it_does_in_the_usual_layout(tmp_path: Path, fruit: StaticEmbedder) -> None:
    published, folder = tmp_path / "published", tmp_path / "data" / "retrieval" / "AIR-Bench_qa_wiki_en"
    texts = {"d1": "apple", "d2": "pear", "d3": "car"}
    records(published / "corpus.jsonl", [{"id": k, "text": v} for k, v in texts.items()])
    records(published / "dev_queries.jsonl", [{"id": "q1", "text": "the apple"}, {"id": "q2", "text": "no judgement"}])
    labels = [{"qid": "q1", "docid": "d2", "relevance": 1}, {"qid": "q1", "docid": "d3", "relevance": 0}]
    records(published / "dev_qrels.jsonl", labels)
    convert(published, folder)
    write_retrieval(tmp_path / "data", "usual")
    air, usual = score(fruit, tmp_path / "data", "Retrieval")
    assert (air.task, air.metric) == ("AIR-Bench_qa_wiki_en", "ndcg_at_10")
    assert air.score == usual.score == pytest.approx(100 / np.log2(3))  # "pear" comes second
    records(published / "dev_qrels.jsonl", [{"qid": "q1", "docid": "d2"}])
    with pytest.raises(InputError, match=r"dev_qrels\.jsonl, line 1 has no field 'relevance'"):
        convert(published, folder)


@pytest.mark.full
def test_mteb_has_no_task_of_air_bench() -> None:
    """Once it has, this reader and the page that says so can go."""
    import mteb

    names = [task.metadata.name.lower() for task in mteb.get_tasks(languages=["eng"])]
    assert len(names) > 100 and not any(name.startswith(("air-bench", "airbench")) for name in names)
