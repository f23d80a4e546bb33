"""The index: changes, opening, models, settings and vectors from elsewhere."""

import shutil
from collections import Counter
from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as extra_numpy

import pellucid.index.bm25 as bm25
import pellucid.index.terms as terms
from files import written
from index_folder import seal, state_of
from letters import SparseLetterEmbedder as SparseLetters
from pellucid import Index
from pellucid.errors import IndexFolderError, InputError, WritingError
from pellucid.index import QueryFunction, writer
from pellucid.index.documents import passage_ends
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.unicode import well_formed
from refusals import refused
from tables import HOSTILE

TEXTS = {
    "a": "An apple and a pear stand on the table",
    "b": "The car follows the bicycle",
    "c": "Apples! Apples and pears, and no car",
    "d": "A bicycle",
    "e": "the the the",
    "f": "Something else entirely: tax law",
}


def lengths(texts):
    """A function as a model: three numbers of each text."""
    return np.array([[len(t), t.count("a"), t.count(" ")] for t in texts], np.float32)


@pytest.fixture
def index(index_of, fruit):
    fields = [{"n": n, "even": n % 2 == 0, "kind": f"{n}", "day": "2024-05-31"} for n in range(len(TEXTS))]
    return index_of(TEXTS.values(), ids=TEXTS, metadata=fields, models={"fruit": fruit})


def test_a_closed_index_says_so(tmp_path):
    index = Index.create(tmp_path / "index", {})
    index.close(), index.close()
    for ask in (
        lambda: index.search("x"),
        lambda: index["a"],
        lambda: "a" in index,
        lambda: list(index),
        lambda: index.add(["y"], ids=["x"]),
        lambda: index.delete(["x"]),
        lambda: index.rebuild(),
        lambda: index.info(),
        lambda: index.verify(),
    ):
        with pytest.raises(InputError, match="is closed"):
            ask()


# --- Changes ---


def test_documents_are_replaced_changed_and_removed(index):
    assert index.add(["A new text about trains"], ids=["a"], titles=["Rails"]) == 1 and len(index) == len(TEXTS)
    assert index.search("trains")[0].id == "a" and index["a"].title == "Rails"
    assert "a" not in [hit.id for hit in index.search("pear table", weights={"bm25": 1})]
    index.update("a", metadata={"n": 77})
    assert index["a"].text == "A new text about trains" and index["a"].title == "Rails"
    assert [hit.id for hit in index.search("trains", where={"n": 77})] == ["a"]
    assert index.delete(["a", "b"]) == 2 and "a" not in index and "c" in index
    assert not list(index.search("trains", weights={"bm25": 1}))
    assert index.delete(["a"], missing_ok=True) == 0 and index.verify() == []


@given(st.text(alphabet="ab .\n\u3002", max_size=300), st.integers(5, 50))
def test_passages_are_the_text_in_pieces(text, limit):
    ends = passage_ends(text, limit)
    starts = (0, *ends[:-1])
    assert "".join(text[start:end] for start, end in zip(starts, ends)) == text
    assert all(0 < end - start <= limit for start, end in zip(starts, ends)) or not text


TEXT_LISTS = st.lists(st.tuples(st.sampled_from(["a loan", "a cat", ""]), st.sampled_from([None, {"n": 1}, {"n": 2}])))


@given(TEXT_LISTS, TEXT_LISTS)
def test_documents_without_ids_are_added_once(tmp_path_factory, rows, more):
    with Index.create(tmp_path_factory.mktemp("ids") / "index", {}) as index:
        texts, metadata = [text for text, _ in rows], [fields for _, fields in rows]
        assert index.add(texts, metadata=metadata) == len(index) == len(rows)  # equal ones, too, are so many
        before = {document.id: document for document in index}
        assert index.add(iter(texts), metadata=metadata) == 0 and {d.id: d for d in index} == before
        index.add([text for text, _ in more], metadata=[fields for _, fields in more])
        counts = Counter((text, str(fields or {})) for text, fields in rows)
        counts |= Counter((text, str(fields or {})) for text, fields in more)
        assert Counter((document.text, str(document.metadata)) for document in index) == counts


def test_a_document_that_is_too_long(index_of):
    index = index_of([], ids=[], passage_characters=100)
    with pytest.raises(InputError, match="at most 65,536"):
        index.add(["a b " * 1_700_000], ids=["x"])
    assert len(index) == 0


def test_a_model_that_gives_nan_stores_nothing(index_of):
    def broken(texts):
        return np.where([["bad" in text] for text in texts], np.nan, lengths(texts))

    index = index_of(["fine"], ids=["a"], models={"m": broken})
    with pytest.raises(InputError, match="NaN"):
        index.add(["good", "a bad one"], ids=["b", "c"])
    assert len(index) == 1 and index.verify() == []


def test_odd_texts_and_ids_come_back_as_they_are(index_of):
    ids = ["a b", "\u6f22\u5b57", "x" * 3000, "'; DROP TABLE documents; --", "\n"] + [
        f"h{n}" for n in range(len(HOSTILE))
    ]
    texts = ["", " ", "a\x00b word", "\u6771\u4eac\u30bf\u30ef\u30fc word", "word", *HOSTILE]
    index = index_of(texts, ids=ids)
    assert [document.id for document in index] == ids
    assert [document.text for document in index] == [well_formed(text) for text in texts]
    assert {hit.id for hit in index.search("word")} == {ids[2], ids[3], ids[4]}
    assert [hit.id for hit in index.search("\u30bf\u30ef\u30fc")] == [ids[3]]
    assert index.delete(ids) == len(ids) and index.verify() == []
    index.add(["word"], ids=["x"], titles=["\ud800"], metadata=[{"\ud800 name": "\udfff", "n": 2**53}])
    assert [hit.id for hit in index.search("word", where={"\ufffd name": "\udfff", "n": 2**53})] == ["x"]


# --- Blocks of documents ---


@pytest.mark.parametrize(
    ("limit", "commits"), [("MAX_PENDING_BYTES", 3), ("MAX_PENDING_TERMS", 3), ("MAX_PENDING_S", 3), ("FANOUT", 1)]
)
def test_a_build_is_one_commit_unless_it_is_much_or_takes_long(tmp_path, monkeypatch, limit, commits):
    monkeypatch.setattr(writer, limit, 0)
    with Index.create(tmp_path / "index", {}) as index:
        before = index.snapshot().commit.state.commit
        index.add((f"text number{n}" for n in range(2500)), ids=range(2500))
        assert index.snapshot().commit.state.commit == before + commits
        assert index.verify() == []


@pytest.mark.parametrize("error", [InputError, KeyboardInterrupt])
def test_the_blocks_before_an_error_or_an_interrupt_stay(tmp_path, error):
    def read():
        yield from (f"text {n}" for n in range(2500))
        raise error

    with Index.create(tmp_path / "index", {}) as index:
        with pytest.raises(error):
            index.add(read(), ids=map(str, range(3000)))
        assert sorted(map(int, (document.id for document in index))) == list(range(2000))
        assert index.verify() == []


def test_what_a_disk_refuses_is_not_tried_again(index_of, monkeypatch):
    index = index_of([])
    replace = Mock(side_effect=WritingError(28, "full"))
    monkeypatch.setattr("pellucid.index.collection.replace_documents", replace)
    with pytest.raises(WritingError):
        index.add(f"text {n}" for n in range(1500))
    assert replace.call_count == 1 and len(index) == 0


# --- Opening, models, formats ---


def test_another_model_is_refused_and_a_function_given_again(index, index_of, fruit):
    vectors = fruit.vectors.copy()
    vectors[1, 1] += 0.01  # one word a little
    other, made = StaticEmbedder(fruit.vocabulary, vectors), index_of(["a text"], ids=["a"], models={"m": lengths})
    for folder, models, said in (
        (index.folder, {"fruit": other}, r"the model 'fruit' .* is another model"),
        (index.folder, {"nut": fruit}, "no model 'nut'"),
        (made.folder, {}, "is a function"),
        (made.folder, {"m": lambda texts: lengths(texts)[:, ::-1]}, "is another model"),
    ):
        with pytest.raises((IndexFolderError, InputError), match=said):
            Index.open(folder, models)
    Index.open(index.folder, {"fruit": fruit}).close()
    with Index.open(made.folder, {"m": lambda texts: lengths(texts) * 2}) as again:  # length is no matter
        assert again.search("a text")[0].id == "a"


def test_rebuilding_repairs_and_changes_models(tmp_path, index, fruit):
    without = fruit.without(2)
    index.rebuild({"fruit": without})
    assert index.verify() == [] and len(list(index.folder.glob("models-*"))) == 1
    words = index.search("apple", weights={"fruit": 1})
    assert words[0].score == pytest.approx(float(without.similarity_pairwise(
        without.encode(["apple"]), without.encode([words[0].text]))[0]), abs=1e-6)  # fmt: skip
    with Index.open(tmp_path / "index") as index:
        assert index.verify() == [] and len(index) == len(TEXTS)
    with Index.open(tmp_path / "index", {"fruit": fruit}, rebuild=True) as index:
        assert index.verify() == [] and index.search("apples")[0].id == "c"


test_folders_that_are_no_index = refused(
    (lambda tmp_path: Index.open(tmp_path / "nowhere"), "does not exist", IndexFolderError),
    (lambda tmp_path: Index.open(tmp_path), "is no index", IndexFolderError),
    *((lambda tmp_path, text=text: Index.open(written(tmp_path / "index.json", text).parent), said, IndexFolderError)
      for text, said in (("{}", r"index\.json is of something else"),
                         ('{"pellucid-index": {"format": 1}}', r"has format 1; pellucid .* reads 4"))),
)  # fmt: skip


def test_a_full_disk_is_told_before_anything_is_lost(index, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(WritingError, match="What was committed is safe"):
        index.add(["y"], ids=["x"])
    monkeypatch.undo()
    index.add(["y"], ids=["x"])
    assert index.verify() == []


def test_settings_are_changed_without_new_vectors(index):
    files = sorted((index.folder / "segments").iterdir())
    before = index.search("apple car", weights={"fruit": 1}, word_weights={"car": 0.1})
    index.configure(weights={"fruit": 1}, word_weights={"car": 0.1})
    assert sorted((index.folder / "segments").iterdir()) == files
    assert index.search("apple car").to_dict() == before.to_dict()
    with Index.open(index.folder) as opened:
        assert opened.weights == {"bm25": 0.0, "fruit": 1.0} and opened.word_weights == {"car": 0.1}
        opened.configure(word_weights={})
        assert index.weights["fruit"] == 1 and index.word_weights == {} and index.verify() == []


@pytest.mark.parametrize(
    ("module", "setting", "value"),
    [(bm25, "K1", 2.0), (terms, "ENGLISH_STOP_WORDS", frozenset(["apple"])), (terms, "MAX_ACRONYM_LETTERS", 3)],
)
def test_bm25_of_another_version_is_refused(index, monkeypatch, module, setting, value):
    index.configure(weights={"bm25": 0.5, "fruit": 0.5})
    monkeypatch.setattr(module, setting, value)
    with pytest.raises(IndexFolderError, match="another stemmer, stop words, k1 or b"):
        Index.open(index.folder)
    with Index.open(index.folder, rebuild=True) as opened:
        assert opened.verify() == [] and opened.weights["bm25"] == 0.5
    Index.open(index.folder).close()


# --- Kinds of fields ---


def test_a_field_knows_the_kinds_of_its_values(index_of):
    values = [1, 2.5, "a", "2024-05-31", "2024-05-31T10:00:00.5+02:00", "2024-W22-5", "20240531", True, ["b", 3], None]
    index = index_of(
        ["word"] * len(values), metadata=[{"x": value, f"of {n}": value} for n, value in enumerate(values)]
    )
    fields = index.info()["fields"]
    assert fields["x"] == "number or date or boolean or string"
    named = ["number", "number", "string", "date", "date", "string", "string", "boolean", "number or string"]
    assert [fields[f"of {n}"] for n in range(9)] == named and "of 9" not in fields
    index.rebuild()
    assert index.info()["fields"] == fields and not index.verify()


@pytest.mark.parametrize("source", ["someone/model-of-the-hub", "/etc", "../elsewhere"])
def test_an_index_from_elsewhere_asks_nobody(tmp_path, index, fruit, monkeypatch, source):
    fruit.save_pretrained(tmp_path / "elsewhere")
    state = state_of(index.folder)
    state["settings"]["models"][0].update(source=source, copy=None)
    seal(index.folder, state)
    monkeypatch.setattr("socket.socket.connect", lambda *arguments: pytest.fail("a connection was opened"))
    with pytest.raises(IndexFolderError, match="allow_outside=True"):
        Index.open(tmp_path / "index")


def test_an_index_holds_a_copy_of_a_model_given_by_its_folder(tmp_path, index_of, fruit):
    fruit.save_pretrained(tmp_path / "model")
    index_of(["an apple"], ids=["a"], models={"m": tmp_path / "model"})
    shutil.rmtree(tmp_path / "model")
    with Index.open(tmp_path / "index") as index:
        assert index.search("apple")[0].id == "a" and index.info()["models"] == {"m": str(tmp_path / "model")}
        index.rebuild()
        assert index.verify() == []


# --- Vectors from elsewhere ---


IDS = ["a", "b", "c"]
FRUITS = ["apples and pears", "cars and bicycles", "pears on a table"]
ROWS = np.array([[1.0, 0, 0, 0], [0, 2, 0, 0], [3, 0, 4, 0]])


def counts(texts):
    """Four numbers of each text."""
    return np.array([[t.count("a"), t.count("c"), t.count("p"), len(t)] for t in texts], np.float64)


@pytest.fixture
def model():
    """The same, which knows how it was called."""
    return Mock(spec=[], side_effect=counts)


def asked(model):
    return {text for call in model.call_args_list for text in call.args[0]}


def cosines(index, query, name="far"):
    return {own: index.score(query, own, weights={name: 1}).score for own in IDS}


def expected(query, rows=ROWS):
    asked = counts([query])[0]
    products = rows @ asked / np.linalg.norm(rows, axis=1) / np.linalg.norm(asked)
    return pytest.approx(dict(zip(IDS, products.tolist())), abs=1e-6)


def everything(index):
    return [(hit.id, hit.score) for hit in index.search("pears and a car", weights={"far": 1})]


@pytest.mark.parametrize("how", [np.asarray, np.float16, np.ndarray.tolist, np.int64], ids=str)
@pytest.mark.parametrize("columns", [list, iter], ids=["lists", "iterators"])
def test_given_vectors_are_stored_and_nothing_is_embedded_twice(index_of, model, how, columns):
    index = index_of([], models={"far": model})
    model.reset_mock()
    assert index.add(columns(FRUITS), ids=columns(IDS), vectors={"far": how(ROWS)}) == 3
    assert not asked(model)
    assert cosines(index, "a pear") == expected("a pear")
    hit = index.search("a pear", weights={"far": 1})[0]
    assert hit.explain().score == hit.score and hit.id == max(
        cosines(index, "a pear"), key=cosines(index, "a pear").get
    )
    assert index.verify() == []
    assert index.info()["models"] == {"far": "given, with given vectors"}


def test_a_row_stands_for_every_passage_of_its_document(index_of):
    index = index_of(
        ["apples and pears. " * 20, "cars. " * 30, "tables"],
        ids=IDS,
        vectors={"far": ROWS},
        models={"far": counts},
        passage_characters=100,
    )
    assert len(index["a"].ends) > 2 and cosines(index, "a pear") == expected("a pear")
    assert index.search("pears", weights={"far": 1, "bm25": 1})[0].id in ("a", "c") and index.verify() == []


@given(
    rows=extra_numpy.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        (3, 4),
        elements=st.floats(-(2.0**15), 2.0**15, width=16, allow_subnormal=False),
    )
)
def test_any_finite_rows_become_their_cosines(tmp_path_factory, rows):
    rows = rows.astype(np.float64) * (1e300 if rows.dtype == np.float64 else 1)
    with Index.create(tmp_path_factory.mktemp("i") / "index", {"far": counts}) as index:
        index.add(FRUITS, ids=IDS, vectors={"far": rows})
        largest = np.abs(rows).max(axis=1, keepdims=True)
        scaled = rows / np.where(largest == 0, 1, largest)
        lengths = np.linalg.norm(scaled, axis=1)
        asked = counts(["a pear"])[0]
        products = scaled @ asked / np.where(lengths == 0, 1, lengths) / np.linalg.norm(asked)
        assert cosines(index, "a pear") == pytest.approx(dict(zip(IDS, products)), abs=1e-6)


def test_of_an_iterator_what_has_rows_is_stored_and_the_rest_refused(tmp_path):
    with Index.create(tmp_path / "index", {"far": counts}) as index:
        with pytest.raises(InputError, match="5 rows for 3 documents; these were stored"):
            index.add(iter(FRUITS), ids=iter(IDS), vectors={"far": np.vstack([ROWS, ROWS[:2]])})
        assert cosines(index, "pear") == expected("pear")


def test_a_sparse_part_takes_sparse_rows(index_of):
    rows = scipy.sparse.csr_matrix(np.eye(3, 26) * 5)
    index = index_of(FRUITS, ids=IDS, vectors={"letters": rows}, models={"letters": SparseLetters()})
    assert [index.score("b", own, weights={"letters": 1}).score for own in "ba"] == [pytest.approx(1.0), 0]
    hit = index.score("abc", "b", weights={"letters": 1})
    assert sum(row.contribution for row in hit.explain().rows) == pytest.approx(hit.score)
    twice = scipy.sparse.csr_matrix(([1.0, 1.0], [1, 1], [0, 2]), (1, 26))

    index.update("a", vectors={"letters": twice})
    assert twice.nnz == 2  # what was given is not changed
    assert index.score("b", "a", weights={"letters": 1}).score == pytest.approx(1.0)


def test_a_model_may_have_its_own_way_with_queries_or_encode_only_these(index_of):
    model = QueryFunction(lambda texts: np.repeat([[0.0, 1.0]], len(texts), axis=0))
    index = index_of(["draft"], ids=["a"], vectors={"far": np.ones((1, 2))}, models={"far": model}, bm25=False)
    with pytest.raises(InputError, match="encodes only queries"):
        index.add(["another"], ids=["b"])
    index.update("a", text="final", vectors={"far": [1.0, 1.0]})
    assert index.score("any", "a").score == pytest.approx(0.5**0.5)
    model.encode_document = lambda texts: [[0.6, 0.8]] * len(texts)
    index.update("a", text="another")
    assert index.search("anything")[0].score == pytest.approx(0.8)


def test_a_change_of_metadata_keeps_the_row_and_a_new_text_is_encoded(index_of, model):
    index = index_of(FRUITS, ids=IDS, vectors={"far": ROWS}, models={"far": model})
    model.reset_mock()
    index.update("a", metadata={"year": 2000})
    assert not asked(model) and index["a"].metadata == {"year": 2000}
    assert cosines(index, "a pear") == expected("a pear")
    index.update("a", text="ppp")
    assert "ppp" in asked(model)
    assert cosines(index, "a pear") == expected("a pear", np.vstack([counts(["ppp"]), ROWS[1:]]))
    index.update("a", vectors={"far": np.float32([0, 0, 0, 2])})
    assert cosines(index, "a pear") == expected("a pear", np.vstack([[0, 0, 0, 2], ROWS[1:]]))


def test_a_rebuild_keeps_the_rows_while_the_model_is_the_same(index_of, model, fruit):
    index = index_of(FRUITS, ids=IDS, vectors={"far": ROWS}, models={"far": model, "fruit": fruit})
    before = everything(index)
    own = float(fruit.similarity(fruit.encode(["pear"]), fruit.encode([FRUITS[0]]))[0, 0])
    assert index.score("pear", "a", weights={"fruit": 1}).score == pytest.approx(own)  # encoded by its model
    model.reset_mock()
    index.rebuild()
    assert everything(index) == before and not asked(model) & set(FRUITS)
    index.rebuild({"far": counts})
    assert everything(index) == before and index.info()["models"]["far"].endswith("with given vectors")
    index.rebuild({"far": lambda texts: counts(texts) + 1})
    assert everything(index) != before and "given vectors" not in index.info()["models"]["far"]
    assert index.verify() == []


def test_rows_given_while_another_model_came_are_not_stored(tmp_path):
    with Index.create(tmp_path / "index", {"far": counts}) as index:
        other = Index.open(tmp_path / "index", {"far": counts})

        def texts():
            other.rebuild({"far": lambda texts: counts(texts) + 1})
            yield from FRUITS

        with pytest.raises(IndexFolderError, match="rebuilt"):
            index.add(texts(), ids=iter(IDS), vectors={"far": ROWS})
        assert len(other) == 0
