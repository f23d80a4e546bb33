"""A fixed part of `make fuzz`: nothing damaged opens as something else, nothing killed is left half done."""

from __future__ import annotations

import os
import sys

import pytest

if sys.platform != "linux":
    pytest.skip("forks, /proc and the mounts of Linux", allow_module_level=True)
for needed in ("torch", "sentence_transformers", "peft", "datasets", "pyarrow"):
    pytest.importorskip(needed)

from fuzz import cases, jobs, subjects  # noqa: E402
from fuzz.pool import run_all  # noqa: E402

MODELS = ("static", "static-int8", "static-int4", "static-spelling", "static-lexicon", "anchors", "lexicon")
CASES = {
    "damage": 3,
    "hostile": 1,
    "live": 2,
    "files": 1,
    "texts": 1,
    "index-damage": 15,
    "index-hostile": 15,
    "search-odd": 3,
}
CASES |= dict.fromkeys(
    ("index-kill", "index-writers", "index-readers", "index-forks", "index-full", "index-readonly", "search-threads"), 1
)
TROUBLED = {
    "kill": ["save-static", "distill", "save-lexicon", "save-static"],
    "full": ["save-static", "save-lexicon"],
    "readonly": ["save-static", "distill"],
    "writers": ["save-static"],
    "state": ["distill", "anchors", "distill"],
}
ROUNDS = 5  # times the cases, and of each trouble the first jobs
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    jobs.prepare()
    return subjects.build(tmp_path_factory.mktemp("fuzz"), MODELS)


@pytest.fixture(scope="module")
def results(built):
    """All cases in one process, which measures an undisturbed job once."""
    kinds = cases.all_kinds(built)
    wanted = [(kind, number) for kind in kinds.values() for number in range(ROUNDS * CASES.get(kind.group, 0))]
    for trouble, names in TROUBLED.items():
        wanted += [(kinds[f"{trouble}/{name}"], number) for number, name in enumerate(names[:ROUNDS])]
    return list(run_all(wanted, 1, 0, built, kinds))


@pytest.mark.parametrize("group", [*CASES, *TROUBLED])
def test_a_fixed_part_of_the_fuzz(results, group):
    found = [result for result in results if result.kind.startswith(f"{group}/")]
    assert len(found) >= 1
    assert [f"{one.kind}:{one.number} {one.what}: {one.how[:300]}" for one in found if one.what] == []


def test_a_silent_change_a_raw_error_a_crash_and_a_hang_are_told(built, monkeypatch):
    def badly(rng, built, place):
        how = rng.choice(("raw", "crash", "change", "hang"))
        if how == "change":
            raise cases.Failed("silent change", "another vector")
        if how == "hang":
            os.read(os.pipe()[0], 1)
        os._exit(3) if how == "crash" else {}["no such key"]

    monkeypatch.setitem(cases.SLOW, "bad", 0.5)
    kinds = {"bad/one": cases.Kind("bad", "one", badly)}
    found = {result.what for result in run_all([(kinds["bad/one"], n) for n in range(8)], 2, 0, built, kinds)}
    assert found == {"silent change", "raw error", "crash", "hang"}
