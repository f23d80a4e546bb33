"""Components, variation, contributions and sweeps, against numpy's own SVD and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from papers.keytokens.rates import EmbeddedTexts, measure
from papers.keytokens.spectrum import FACTORS, contributions, sweep, sweep_table, variation, variation_table
from papers.spectra import level, project, shares, split
from pellucid.core.pca import spectrum_of
from pellucid.errors import InputError
from pellucid.transformer.tokenwords import readable


def embeddings(count=60, width=7, seed=0):
    """Rows with one large part in common, as those of language models have."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, width)) * np.arange(width, 0, -1) + 12 * rng.normal(size=width)


def given_texts(rows, head, seed=0):
    rng = np.random.default_rng(seed)
    words = [f"Ġ{name}" for name in "cat dog tree the and of on car bus sea".split()]
    tokens = [set(rng.choice(len(words), 3, replace=False).tolist()) for _ in rows]
    texts = [" ".join(words[n][1:] for n in own) for own in tokens]
    return EmbeddedTexts(texts, rows, tokens, head, readable(words))


HEAD = np.random.default_rng(5).normal(size=(10, 7))


@given(arrays.arrays(np.float64, st.tuples(st.integers(2, 9), st.integers(1, 5)), elements=st.floats(-10, 10)),
       st.booleans(), st.integers(1, 4))  # fmt: skip
def test_blocks_give_what_the_svd_of_all_rows_gives(rows, centred, size):
    wanted = rows - rows.mean(axis=0) if centred else rows
    values = np.linalg.svd(wanted, compute_uv=False)
    if values[0] < 1e-3:
        return
    found = spectrum_of((rows[n : n + size] for n in range(0, len(rows), size)), centred=centred)
    full = np.zeros(rows.shape[1])
    full[: len(values)] = values
    assert found.singular_values == pytest.approx(full, abs=1e-5 * values[0])
    assert found.components @ found.components.T == pytest.approx(np.eye(rows.shape[1]), abs=1e-9)
    # every component stretches the rows by its singular value
    assert np.linalg.norm(wanted @ found.components.T, axis=0) == pytest.approx(full, abs=1e-5 * values[0])
    assert shares(found).sum() == pytest.approx(1) and found.mean == pytest.approx(rows.mean(axis=0))


def test_a_component_points_to_the_side_of_the_mean():
    rows = embeddings()
    found = spectrum_of(rows)
    assert (found.components @ found.mean >= 0).all() and level(found) > 0
    assert spectrum_of(-rows).components == pytest.approx(-found.components)
    right = np.linalg.svd(rows)[2]
    assert abs(found.components @ right.T) == pytest.approx(np.eye(7), abs=1e-6)
    # without a mean: the largest entry is positive
    still = spectrum_of(np.array([[3.0, -4.0], [-3.0, 4.0]]))
    assert still.components[0] == pytest.approx([-0.6, 0.8])


def test_first_and_rest_add_up_and_the_adjustment_is_eq_14():
    rows = embeddings()
    found = spectrum_of(rows)
    first, rest = split(found, rows)
    assert first + rest == pytest.approx(rows) and rest @ found.components[0] == pytest.approx(np.zeros(60), abs=1e-9)
    assert project(found, rows)[:, 0] == pytest.approx(first @ found.components[0])
    adjusted = rows - level(found) * found.components[0]
    assert (adjusted.mean(axis=0) @ found.components[0]) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (np.ones((1, 3)), {}, "1 text has no principal components"),
        (np.ones((0, 3)), {}, "at least 2"),
        (np.zeros((4, 3)), {}, "are zero"),
        (np.zeros((4, 3)), {"centred": True}, "are equal"),
        ([np.ones((2, 3)), np.ones((2, 4))], {}, r"\[n, 3\] is needed"),
        (np.ones(3), {}, r"\[n, d\] is needed"),
        ([np.ones((2, 3)), np.full((1, 3), np.inf)], {}, "embedding 2 holds NaN or infinity"),
    ],
)
def test_what_has_no_components_is_told(rows, options, said):
    with pytest.raises(InputError, match=said):
        spectrum_of(rows, **options)


def test_embeddings_of_another_width_are_told():
    found = spectrum_of(embeddings())
    for call in (project, split):
        with pytest.raises(InputError, match=r"embeddings \[n, 7\]"):
            call(found, np.ones((2, 6)))


def test_variation_is_the_mean_over_texts_of_the_part_along_each_component():
    base = embeddings()
    tuned = 0.5 * base + embeddings(seed=3)
    found = variation(base, tuned, names=("f", "f-hat"))
    components = spectrum_of(base).components
    parts = (tuned - base) @ components.T
    assert [shift.variation for shift in found.components] == pytest.approx(parts.mean(axis=0).tolist())
    assert found.dominance == pytest.approx(parts.mean(axis=0)[0] ** 2 / (parts.mean(axis=0) ** 2).sum())
    halves = variation([base[:25], base[25:]], (tuned[:25], tuned[25:]), names=("f", "f-hat"))
    assert [s.variation for s in halves.components] == pytest.approx([s.variation for s in found.components])
    (row,) = variation_table([found]).rows
    assert row[:3] == ["f", "f-hat", f"{parts.mean(axis=0)[0]:+.2f}"]


def test_a_model_that_was_not_tuned_does_not_vary():
    found = variation(embeddings(), embeddings())
    assert found.dominance == 0.0 and {shift.variation for shift in found.components} == {0.0}


@pytest.mark.parametrize("other", [np.ones((60, 6)), np.ones((59, 7)), [np.ones((30, 7)), np.ones((30, 7))]])
def test_models_of_different_widths_or_texts_do_not_compare(other):
    with pytest.raises(InputError, match="must be of one width"):
        variation(embeddings(), other, names=("a", "b"))


def test_a_tokens_score_is_first_plus_rest():
    rows = embeddings().astype(np.float32)
    texts, spectrum = given_texts(rows, HEAD), spectrum_of(rows)
    table = contributions(spectrum, texts, text=3, k=4)
    scores = HEAD @ rows[3]
    first = float(spectrum.components[0] @ rows[3]) * (HEAD @ spectrum.components[0])
    for by, values in (("score", scores), ("rest", scores - first)):
        best = np.argsort(-values)[:4]
        shown = [row[1:] for row in table.rows if row[0] == by]
        assert [row[0] for row in shown] == [texts.name(token) for token in best]
        numbers = np.array([row[1:] for row in shown], float)
        expected = np.stack([scores, first, scores - first], axis=1)[best]
        assert numbers == pytest.approx(expected, abs=2e-3)


def test_each_step_of_a_sweep_is_the_alignment_of_the_moved_embeddings():
    pytest.importorskip("simplemma")
    rows = embeddings()
    texts, spectrum = given_texts(rows, HEAD), spectrum_of(rows)
    steps = sweep(spectrum, texts, k=3)
    assert [step.factor for step in steps] == list(FACTORS) == sorted(FACTORS)
    assert steps[FACTORS.index(1)].amount == pytest.approx(-level(spectrum))
    for step in steps:
        moved = EmbeddedTexts(
            texts.texts, rows + step.amount * spectrum.components[0], texts.tokens, HEAD, texts.vocabulary
        )
        expected = measure(f"{step.factor:g}", moved, 3, stems=None)
        got = step.alignment
        assert (got.hit, got.lar, got.gar, got.weighted_lar, got.literal) == pytest.approx(
            (expected.hit, expected.lar, expected.gar, expected.weighted_lar, expected.literal)
        )
    assert [row[0] for row in sweep_table(steps).rows] == [f"{factor:g}" for factor in FACTORS]
    assert sweep(spectrum, texts, unit=2.5, k=2)[-1].amount == 2.5 * FACTORS[-1]
