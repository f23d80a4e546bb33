"""Edits of dimensions in families with sparse rows; tests/core has those of dense ones."""

import numpy as np
import pytest

from families import TEXTS, dense_rows


def scaled(rows, first, second):
    rows = rows.copy()
    rows[:, [first, second]] *= 0.5, 0
    return rows


def merged(rows, first, second):
    rows = rows.copy()
    rows[:, first] = (rows[:, first] + rows[:, second]) / 2**0.5
    return np.delete(rows, second, axis=1)


# an edit of the numbers of some dimensions, in order, and what it does to rows before they get length 1
EDITS = {
    "without": (lambda model, a, b, c: model.without(model.dimensions.names[a], c),
                lambda rows, a, b, c: np.delete(rows, [a, c], axis=1)),
    "keep": (lambda model, a, b, c: model.keep(c, a), lambda rows, a, b, c: rows[:, [a, c]]),
    "rename": (lambda model, a, b, c: model.rename({a: "mine", b: "yours", c: "theirs"}), lambda rows, *_: rows),
    "scale": (lambda model, a, b, c: model.scale({a: 0.5, b: 0}), lambda rows, a, b, c: scaled(rows, a, b)),
    "merge": (lambda model, a, b, c: model.merge(a, c, name="both"), lambda rows, a, b, c: merged(rows, a, c)),
    "all": (lambda model, a, b, c: model.scale({a: 0.5, b: 0}).merge(a, c).without(0).rename({0: "x"}),
            lambda rows, a, b, c: np.delete(merged(scaled(rows, a, b), a, c), 0, axis=1)),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("name", ["static lexicon", "lexicon", "key tokens"])
def test_edits_do_to_rows_what_they_say(model, name, edit):
    before = dense_rows(model.encode(TEXTS))
    strongest = sorted(np.argsort(-np.minimum(before[0], before[4]) - before.mean(axis=0) / 99)[:3].tolist())
    change, expected = EDITS[edit]
    after, rows = change(model, *strongest), expected(before, *strongest)
    units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    np.testing.assert_allclose(dense_rows(after.encode(TEXTS)), rows if name == "key tokens" else units, atol=1e-5)
    assert len(after.dimensions) == rows.shape[1]
    why = after.explain(TEXTS[0], TEXTS[4])
    assert why.score == pytest.approx(float(units[0] @ units[4]), abs=1e-5)
    assert {row.name for row in why.rows} & {"mine", "yours", "theirs"} or edit != "rename"
    assert name != "lexicon" or all(row.spans1 and row.spans2 for row in why.rows)
