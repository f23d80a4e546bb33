"""The script that measures a CUDA device runs anywhere, and says where there is none."""

import pytest

pytest.importorskip("torch")

from benchmarks.cuda_speed import QUICK, markdown


@pytest.mark.full
def test_a_machine_without_a_device_gets_its_own_rows_and_is_told():
    table = markdown(QUICK, ["cpu"])
    assert table.count("not measured") == 3 and "no GPU" in table
    assert "training step" in table and "pooled head" in table
