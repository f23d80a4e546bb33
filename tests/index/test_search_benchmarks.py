"""What the benchmark of search says of its figures, and what it refuses."""

import numpy as np
import pytest

from benchmarks import search
from benchmarks.search import DEFAULT, difference_table, mean_of_sets


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
