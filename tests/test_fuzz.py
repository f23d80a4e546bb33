"""A fixed part of `make fuzz`: nothing damaged opens as something else, nothing killed is left half done."""

from __future__ import annotations

import sys

import pytest

if sys.platform != "linux":
    pytest.skip("forks, /proc and Linux's mounts", allow_module_level=True)
for needed in ("torch", "sentence_transformers", "peft", "datasets", "pyarrow"):
    pytest.importorskip(needed)

from fuzz import cases, jobs, subjects  # noqa: E402
from fuzz.pool import run_all  # noqa: E402

MODELS = ("static", "static-int8", "anchors", "lexicon")
CASES = {"damage": 12, "files": 2, "texts": 1}
TROUBLED = ("save-static", "save-lexicon", "encode-npy", "distill", "anchors", "retrain")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    jobs.prepare()
    return subjects.build(tmp_path_factory.mktemp("fuzz"), MODELS)


def failures(built, wanted):
    kinds = cases.all_kinds(built)
    found = run_all([(kinds[name], number) for name, number in wanted], 1, 0, built, kinds)
    return [f"{result.kind}:{result.number} {result.what}: {result.how[:300]}" for result in found if result.what]


@pytest.mark.parametrize("group", CASES)
def test_damage_and_odd_texts(built, group):
    kinds = [kind for kind in cases.all_kinds(built).values() if kind.group == group]
    wanted = [(kind.name, number) for kind in kinds for number in range(CASES[group])]
    assert failures(built, wanted) == []


@pytest.mark.parametrize("trouble", jobs.TROUBLES)
def test_interrupted_jobs(built, trouble):
    names = [name for name in TROUBLED if trouble != "state" or name in jobs.RESUMED]
    assert failures(built, [(f"{trouble}/{name}", number) for name in names for number in range(2)]) == []


def test_a_silent_change_a_raw_error_and_a_crash_are_found(built, monkeypatch):
    """The attacks can fail: a subject that behaves badly is told."""
    import os

    def badly(rng, built, place):
        how = rng.choice(("raw", "crash", "change"))
        if how == "change":
            raise cases.Failed("silent change", "another vector")
        os.abort() if how == "crash" else {}["no such key"]

    kinds = {"damage/bad": cases.Kind("damage", "bad", badly)}
    found = {result.what for result in run_all([(kinds["damage/bad"], n) for n in range(12)], 2, 0, built, kinds)}
    assert found == {"silent change", "raw error", "crash"}
