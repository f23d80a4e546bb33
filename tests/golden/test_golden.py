"""Searches and explanations give what they gave when the golden set was stored."""

import pytest

from golden.records import FOLDER, RECORDS, compare, differences, read_records


@pytest.mark.full
@pytest.mark.parametrize("name", RECORDS)
def test_nothing_has_changed(name, shared):
    assert not differences(read_records(FOLDER / f"{name}.jsonl"), RECORDS[name](shared / "data"))


def test_a_difference_is_seen():
    stored = {"name": "a", "score": 0.5, "rows": {"1": 0.25, "2": 0.25}}
    assert not compare("a", stored, {"name": "a", "score": 0.500009, "rows": {"2": 0.25, "1": 0.25, "3": 0.0}})
    assert len(compare("a", stored, {"name": "a", "score": 0.50002, "rows": {"1": 0.25}})) == 2
    hits = [{"id": "x", "score": 0.9}, {"id": "y", "score": 0.4}]
    assert differences([{"name": "q", "hits": hits}], [{"name": "q", "hits": [{"id": "z", "score": 0.9}, hits[1]]}])
    assert differences([stored], []) == ["a: missing"]
