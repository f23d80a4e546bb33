"""Vectors from elsewhere in an index: given with the documents, kept, refused."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pellucid import Index
from pellucid.errors import IndexFolderError, InputError
from pellucid.index import QueryFunction

IDS = ["a", "b", "c"]
TEXTS = ["apples and pears", "cars and bicycles", "pears on a table"]
ROWS = np.array([[1.0, 0, 0, 0], [0, 2, 0, 0], [3, 0, 4, 0]])


class Counting:
    """A function that is told which texts it was asked for: four numbers of each."""

    def __init__(self):
        self.asked = []

    def __call__(self, texts):
        self.asked += texts
        return np.array([[t.count("a"), t.count("c"), t.count("p"), len(t)] for t in texts], np.float64)


def no_function(texts):
    return Counting()(texts)


def cosines(index, query, name="far"):
    return {own: index.score(query, own, weights={name: 1}).score for own in IDS}


def expected(query, rows=ROWS):
    asked = Counting()([query])[0]
    products = rows @ asked / np.linalg.norm(rows, axis=1) / np.linalg.norm(asked)
    return pytest.approx(dict(zip(IDS, products.tolist())), abs=1e-6)


def everything(index):
    return [(hit.id, hit.score) for hit in index.search("pears and a car", weights={"far": 1})]


@pytest.mark.parametrize("how", [np.asarray, np.float16, np.ndarray.tolist, np.int64], ids=str)
@pytest.mark.parametrize("columns", [list, iter], ids=["lists", "iterators"])
def test_given_vectors_are_stored_and_nothing_is_embedded_twice(tmp_path, how, columns):
    model = Counting()
    with Index.create(tmp_path / "index", {"far": model}) as index:
        model.asked.clear()
        assert index.add(columns(TEXTS), ids=columns(IDS), vectors={"far": how(ROWS)}) == 3
        assert model.asked == []
        assert cosines(index, "a pear") == expected("a pear")
        hit = index.search("a pear", weights={"far": 1})[0]
        assert hit.explain().score == hit.score and hit.id == max(
            cosines(index, "a pear"), key=cosines(index, "a pear").get
        )
        assert index.verify() == []
        assert index.info()["models"] == {"far": "given, with given vectors"}


def test_parts_that_are_not_given_are_encoded_by_their_models(tmp_path, fruit):
    with Index.create(tmp_path / "both", {"far": no_function, "fruit": fruit}) as both:
        both.add(TEXTS, ids=IDS, vectors={"far": ROWS})
        assert cosines(both, "a pear") == expected("a pear")
        hit = both.score("pear", "a", weights={"fruit": 1})
        assert hit.score == pytest.approx(
            float(fruit.similarity(fruit.encode(["pear"]), fruit.encode([TEXTS[0]]))[0, 0])
        )


def test_a_row_stands_for_every_passage_of_its_document(index_of):
    index = index_of(
        ["apples and pears. " * 20, "cars. " * 30, "tables"],
        ids=IDS,
        vectors={"far": ROWS},
        models={"far": no_function},
        passage_characters=100,
    )
    assert len(index["a"].ends) > 2 and cosines(index, "a pear") == expected("a pear")
    assert index.search("pears", weights={"far": 1, "bm25": 1})[0].id in ("a", "c") and index.verify() == []


@given(
    rows=arrays.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        (3, 4),
        elements=st.floats(-(2.0**15), 2.0**15, width=16, allow_subnormal=False),
    )
)
def test_any_finite_rows_become_their_cosines(tmp_path_factory, rows):
    rows = rows.astype(np.float64) * (1e300 if rows.dtype == np.float64 else 1)
    with Index.create(tmp_path_factory.mktemp("i") / "index", {"far": no_function}) as index:
        index.add(TEXTS, ids=IDS, vectors={"far": rows})
        largest = np.abs(rows).max(axis=1, keepdims=True)
        scaled = rows / np.where(largest == 0, 1, largest)
        lengths = np.linalg.norm(scaled, axis=1)
        asked = Counting()(["a pear"])[0]
        products = scaled @ asked / np.where(lengths == 0, 1, lengths) / np.linalg.norm(asked)
        assert cosines(index, "a pear") == pytest.approx(dict(zip(IDS, products)), abs=1e-6)


def test_of_an_iterator_what_has_rows_is_stored_and_the_rest_refused(tmp_path):
    with Index.create(tmp_path / "index", {"far": no_function}) as index:
        with pytest.raises(InputError, match="5 rows for 3 documents; these were stored"):
            index.add(iter(TEXTS), ids=iter(IDS), vectors={"far": np.vstack([ROWS, ROWS[:2]])})
        assert cosines(index, "pear") == expected("pear")


def test_a_sparse_part_takes_sparse_rows(index_of):
    from letters import SparseLetterEmbedder as SparseLetters

    rows = scipy.sparse.csr_matrix(np.eye(3, 26) * 5)
    index = index_of(TEXTS, ids=IDS, vectors={"letters": rows}, models={"letters": SparseLetters()})
    assert [index.score("b", own, weights={"letters": 1}).score for own in "ba"] == [pytest.approx(1.0), 0]
    hit = index.score("abc", "b", weights={"letters": 1})
    assert sum(row.contribution for row in hit.explain().rows) == pytest.approx(hit.score)
    twice = scipy.sparse.csr_matrix(([1.0, 1.0], [1, 1], [0, 2]), (1, 26))

    index.update("a", vectors={"letters": twice})
    assert twice.nnz == 2  # what was given is not changed
    assert index.score("b", "a", weights={"letters": 1}).score == pytest.approx(1.0)


# --- What happens to them later ---


def test_a_callable_may_have_its_own_way_with_queries_and_documents(index_of):
    class Both:
        def __call__(self, texts):
            return [[1.0, 0.0]] * len(texts)

        def encode_query(self, texts):
            return [[0.0, 1.0]] * len(texts)

        def encode_document(self, texts):
            return [[0.6, 0.8]] * len(texts)

    index = index_of(TEXTS, ids=IDS, models={"far": Both()}, bm25=False)
    assert index.search("anything")[0].score == pytest.approx(0.8)


def test_a_change_of_metadata_keeps_the_row_and_a_new_text_is_encoded(index_of):
    model = Counting()
    index = index_of(TEXTS, ids=IDS, vectors={"far": ROWS}, models={"far": model})
    model.asked.clear()
    index.update("a", metadata={"year": 2000})
    assert model.asked == [] and index["a"].metadata == {"year": 2000}
    assert cosines(index, "a pear") == expected("a pear")
    index.update("a", text="ppp")
    assert "ppp" in model.asked
    assert cosines(index, "a pear") == expected("a pear", np.vstack([Counting()(["ppp"]), ROWS[1:]]))
    index.update("a", vectors={"far": np.float32([0, 0, 0, 2])})
    assert cosines(index, "a pear") == expected("a pear", np.vstack([[0, 0, 0, 2], ROWS[1:]]))


def test_a_model_that_encodes_only_queries_takes_documents_with_vectors(index_of):
    index = index_of(
        ["draft"],
        ids=["a"],
        vectors={"far": np.ones((1, 2))},
        models={"far": QueryFunction(lambda texts: np.ones((len(texts), 2)))},
    )
    with pytest.raises(InputError, match="encodes only queries"):
        index.add(["another"], ids=["b"])
    index.update("a", text="final", vectors={"far": [1.0, 0.0]})
    assert index.score("any", "a", weights={"far": 1}).score == pytest.approx(0.5**0.5)


def test_a_rebuild_keeps_the_rows_while_the_model_is_the_same(index_of, fruit):
    model = Counting()
    index = index_of(TEXTS, ids=IDS, vectors={"far": ROWS}, models={"far": model, "fruit": fruit})
    before = everything(index)
    model.asked.clear()
    index.rebuild()
    assert everything(index) == before and not set(model.asked) & set(TEXTS)
    index.rebuild({"far": no_function})
    assert everything(index) == before and index.info()["models"]["far"].endswith("with given vectors")
    index.rebuild({"far": lambda texts: no_function(texts) + 1})
    assert everything(index) != before and "given vectors" not in index.info()["models"]["far"]
    assert index.verify() == []


def test_rows_given_while_another_model_came_are_not_stored(tmp_path):
    with Index.create(tmp_path / "index", {"far": no_function}) as index:
        other = Index.open(tmp_path / "index", {"far": no_function})

        def texts():
            other.rebuild({"far": lambda texts: no_function(texts) + 1})
            yield from TEXTS

        with pytest.raises(IndexFolderError, match="rebuilt"):
            index.add(texts(), ids=iter(IDS), vectors={"far": ROWS})
        assert len(other) == 0
