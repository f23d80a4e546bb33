"""A fixed part of `make fuzz`: nothing damaged opens as something else."""

import os
import sys

import pytest

if sys.platform != "linux":
    pytest.skip("forks, /proc and the mounts of Linux", allow_module_level=True)
for needed in ("torch", "sentence_transformers", "peft", "datasets", "pyarrow"):
    pytest.importorskip(needed)

from fuzz import cases, subjects  # noqa: E402

MODELS = ("static", "static-int8", "static-int4", "static-spelling", "static-lexicon", "anchors", "lexicon", "ensemble")
CASES = {"damage": 15, "hostile": 5, "index-damage": 60}
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return subjects.build(tmp_path_factory.mktemp("fuzz"), MODELS)


@pytest.mark.parametrize("group", CASES)
def test_a_fixed_part_of_the_fuzz(built, group):
    kinds = cases.all_kinds(built)
    wanted = [(kind, number) for kind in kinds.values() if kind.group == group for number in range(CASES[group])]
    results = list(cases.run_all(wanted, 2, 0, built))
    assert results and [f"{one.kind}:{one.number} {one.what}: {one.how[:300]}" for one in results if one.what] == []


def test_a_silent_change_a_raw_error_a_crash_a_hang_and_a_look_outside_are_told(built):
    def badly(rng, built, place):
        how = rng.choice(("raw", "crash", "change", "hang", "outside"))
        if how == "change":
            raise cases.Failed("silent change", "another vector")
        if how == "hang":
            os.read(os.pipe()[0], 1)
        if how == "outside":
            os.system("true")
        else:
            os._exit(3) if how == "crash" else {}["no such key"]

    kind = cases.Kind("bad", "one", badly, seconds=3)
    found = {result.what for result in cases.run_all([(kind, number) for number in range(12)], 2, 0, built)}
    assert found == {"silent change", "raw error", "crash", "hang", "reached out"}
