"""Static lexicon embeddings: a table of words and the clusters they fire, by hand and against a plain reference."""

import copy
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from families import reopened
from pellucid import StaticLexiconEmbedder
from pellucid.core import Dimension, Dimensions
from pellucid.errors import InputError
from pellucid.lexicon.static import WordClusters
from pellucid.text.words import Vocabulary
from refusals import refused

WORDS = ["bank", "loan", "mortgage", "river", "the", "new", "ﬀ", "東京"]
NAMES = ["money", "debts", "water", "cities"]
WEIGHTS = np.array(
    [[2, 0, 1, 0], [1, 4, 0, 0], [1, 3, 0, 0], [0, 0, 5, 0], [0, 0, 0, 0], [0, 0, 0, 2], [0.5, 0, 0, 0], [0, 0, 0, 3]]
)


def dimensions(names=NAMES):
    return Dimensions(Dimension(name, (name, f"{name}s")) for name in names)


@pytest.fixture(scope="module")
def model():
    return StaticLexiconEmbedder(Vocabulary(WORDS), TABLE, dimensions())


TABLE = sparse.csr_matrix(WEIGHTS)


def rounded(model):
    """The table as dense numbers."""
    return model.table.rows(np.arange(len(WORDS)), len(NAMES)).toarray()


def reference(model, text):
    """The embedding, word by word."""
    total = np.zeros(len(NAMES))
    for word in model.vocabulary.split(text):
        row = model.vocabulary.row(word.text)
        total += rounded(model)[row] if row >= 0 else 0
    weights = np.log1p(total)
    return weights / (np.linalg.norm(weights) or 1.0)


def test_weights_are_rounded_to_255ths_of_a_words_largest(model):
    most = WEIGHTS.max(axis=1, keepdims=True)
    assert (np.abs(rounded(model) - WEIGHTS) <= most / 255 / 2 + 1e-6).all()
    assert rounded(model).max(axis=1) == pytest.approx(most.ravel())
    again = WordClusters.from_weights(sparse.csr_matrix(rounded(model)))
    assert (again.weights == model.table.weights).all() and again.scales == pytest.approx(model.table.scales)


def test_a_text_by_hand(model):
    row = model.encode("Bank of the river bank").toarray()[0]
    expected = np.log1p([2 * 2, 0, 2 * rounded(model)[0, 2] + 5, 0])
    assert row == pytest.approx(expected / np.linalg.norm(expected), abs=1e-6)
    assert (model.encode("nothing known").nnz, model.encode([]).shape) == (0, (0, 4))


TEXT = st.lists(st.sampled_from([*WORDS, "Bank", "New York", "東京都", "zebra", "!", "\0", "é", ""]), max_size=8).map(
    " ".join
)


@given(texts=st.lists(TEXT | st.text(max_size=10), max_size=6))
def test_texts_are_encoded_as_the_reference(model, texts):
    expected = np.array([reference(model, text) for text in texts]).reshape(len(texts), 4)
    rows = model.encode(texts)
    assert rows.dtype == np.float32 and rows.has_sorted_indices and (rows.data > 0).all()
    assert rows.toarray() == pytest.approx(expected, abs=1e-6)


def test_many_texts_in_blocks_and_threads(monkeypatch, model):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice([*WORDS, "zebra"], rng.integers(0, 9))) for _ in range(3_000)] + ["bank " * 50_000]
    expected = np.array([reference(model, text) for text in texts])
    for threads in ("1", "3"):
        monkeypatch.setenv("PELLUCID_THREADS", threads)
        assert copy.copy(model).encode(texts).toarray() == pytest.approx(expected, abs=1e-6)


def test_rows_of_an_explanation_are_the_clusters_and_name_the_word(model):
    texts = "The bank of New York gives a loan, and the Bank a mortgage.", "a loan at the river"
    why, (first, second) = model.explain(*texts), (reference(model, text) for text in texts)
    assert {row.name: row.contribution for row in why.rows} == pytest.approx(
        {name: value for name, value in zip(NAMES, first * second) if value}, abs=1e-6
    )
    standing = {row.name: [[text[slice(*span)] for span in spans] for text, spans in zip(texts, row[4:6])]
                for row in why.rows}  # fmt: skip
    assert standing == {
        "money": [["bank", "Bank"], ["loan"]], "debts": [["loan"], ["loan"]], "water": [["bank", "Bank"], ["river"]],
    }  # fmt: skip
    known = why.coverage[0]
    assert (why.unknown_words(), known.known, known.total) == (["of", "York", "gives", "a", "and"], 7, 13)
    assert model.describe("river loan", top_k=1).startswith("mostly about: water (")


def test_so_many_dimensions_are_kept(model):
    few = model.with_max_active_dims(1)
    assert np.diff(few.encode(["the bank", "a loan", "New York", ""]).indptr).tolist() == [1, 1, 1, 0]
    assert few.encode("bank").toarray()[0, 0] == 1 and model.without("water").mixing is None  # a smaller table


test_parts_that_do_not_fit_are_refused = refused(
    *(
        (lambda parts=parts: StaticLexiconEmbedder(Vocabulary(WORDS), *parts), message)
        for parts, message in [
            ((TABLE[:5], dimensions()), "5 scales for 8 words"),
            ((TABLE, dimensions(NAMES[:3])), "columns are 0 to 3, and must be from 0 to 2"),
            ((-TABLE, dimensions()), "negative"),
            ((TABLE * np.nan, dimensions()), "NaN"),
            ((TABLE, dimensions(), None, 0), "max_active_dims is 0"),
            ((sparse.csr_matrix((8, 40_000)), dimensions()), "at most 32,768"),
        ]
    ),
)


@pytest.mark.parametrize("value", [None, 3, 1 << 40])
def test_any_number_of_dimensions_may_be_the_largest(model, tmp_path, value):
    assert reopened(model.with_max_active_dims(value), tmp_path / "m").max_active_dims == value


def test_it_needs_no_torch(model, tmp_path):
    model.save_pretrained(tmp_path / "m")
    script = (
        "import sys; sys.modules['torch'] = None; sys.modules['transformers'] = None; import pellucid;"
        f"m = pellucid.load({str(tmp_path / 'm')!r}); print(m.encode(['a bank']).nnz, m.describe('a bank loan'));"
        "assert not {'sklearn', 'sentence_transformers', 'peft'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("2 mostly about: ")


def test_clusters_are_called_by_the_words_that_fire_them(model, opened):
    named_by_words = opened("recipes.lexicon_table").named_by_words
    table = sparse.csr_matrix(np.column_stack([WEIGHTS, WEIGHTS[:, 1] * 2, np.zeros(8)]))
    names = named_by_words(model.vocabulary, table)
    expected = [
        "bank, loan, mortgage",
        "loan, mortgage",
        "river, bank",
        "東京, new",
        "loan, mortgage (2)",
        "nothing",
    ]
    assert names.names == expected
    assert names[0].about == ("bank", "loan", "mortgage", "ﬀ") and names["nothing"].about == ()
    few = named_by_words(model.vocabulary, table, among=2)
    assert few.names[:4] == ["bank, loan", "loan", "bank", "東京, new"]  # the last has no word among the first two


@pytest.mark.parametrize("factor", [1e6, 1e-3])
def test_any_number_of_scalings_is_refused_or_opens_with_the_same_vectors(model, tmp_path, factor):
    for _ in range(5):
        try:
            model = model.scale({0: factor})
        except InputError as error:
            assert "1e+18" in str(error)
            return
        opened = reopened(model, tmp_path / "m")
        assert np.allclose(opened.encode("bank loan").toarray(), model.encode("bank loan").toarray(), atol=1e-6)
        model = opened
