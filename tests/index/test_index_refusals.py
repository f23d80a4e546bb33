"""What an index refuses, with what it says of it: one table. Nothing is stored by a call that is refused."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from letters import SparseLetterEmbedder as SparseLetters
from pellucid import CorpusFile, Index
from pellucid.errors import CorpusError, InputError, ModelFolderError
from pellucid.index.listing import document_number
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary

TEXTS = {
    "a": "an apple and a pear",
    "b": "the car follows the bicycle",
    "c": "apples and pears, and no car",
    "d": "a bicycle",
}
QUERIES = {"1": "apples", "2": "a car"}
RELEVANT = {"1": {"a": 2, "c": 1}, "2": {"b": 1}}
ROWS = np.array([[1.0, 0, 0, 0], [0, 2, 0, 0], [3, 0, 4, 0]])
LETTERS = scipy.sparse.csr_matrix(np.eye(3, 26) * 5)


def far(texts: list[str]) -> np.ndarray:
    """Four numbers of each text."""
    return np.array([[t.count("a"), t.count("c"), t.count("p"), len(t)] for t in texts], np.float64)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, module_fruit: StaticEmbedder) -> Iterator[Index]:
    models = {"fruit": module_fruit, "far": far, "letters": SparseLetters()}
    fields = [{"n": n, "even": n % 2 == 0, "kind": f"{n}", "day": "2024-05-31", "number or text": n or "none"}
              for n in range(4)]  # fmt: skip
    with Index.create(tmp_path_factory.mktemp("refusals") / "index", models) as made:
        made.add(TEXTS.values(), ids=TEXTS, metadata=fields)
        made.save_settings("words only", {"weights": {"bm25": 1}})
        (made.folder / "settings/broken.json").write_text('{"wheights": 1}')
        yield made
        assert made.verify() == []


CONDITIONS: list[tuple[Any, str]] = [
    ({"yaer": 1}, "no document of this index has a field 'yaer'; its fields are day, even, kind, n, number or text"),
    ({"n": {"near": 1}}, "unknown operator 'near'"),
    ({"n": {"gte": "much"}}, "gte (>=) of field 'n' is 'much'; it needs a number"),
    ({"n": {"gte": math.nan}}, "the value for field 'n' is nan"),
    ({"n": {"exists": 1}}, "exists of field 'n'"),
    ({"n": [1, "one"]}, "mixes kinds"),
    ({"n": {"eq": [1]}}, "eq of field 'n'"),
    ({"n": object()}, "field 'n'"),
    ("n>1", "where is 'n>1'"),
    (5, "where is 5"),
    (["n>1"], "a condition is 'n>1'"),
    ({"kind": ""}, "exists"),
    # conditions that no value of a field can meet
    ({"kind": {"gte": 2}}, "field 'kind' holds strings, and gte (>=) asks for the number 2"),
    (
        {"kind": 2},
        "field 'kind' holds strings, and eq (=) asks for the number 2: this can never match. Numbers of a "
        "table that are read as strings: pellucid index build --type kind=number",
    ),
    ({"number or text": True}, "holds numbers and strings, and eq (=) asks for the boolean True: this can never match"),
    ({"n": {"gte": 10**400}}, "the value for field 'n' is an integer of 1,329 bits; give a number up to 1e308"),
    ({"kind": {"lt": "2024-05-31"}}, "field 'kind' holds strings, and lt (<) asks for the date"),
    ({"n": {"in": ["1"]}}, "field 'n' holds numbers, and in asks for the string '1'"),
    ({"n": True}, "field 'n' holds numbers, and eq (=) asks for the boolean True"),
    ({"day": 2024}, "field 'day' holds dates, and eq (=) asks for the number 2024: this can never match. Write a date"),
    ({"day": ["May", "June"]}, "field 'day' holds dates, and in asks for the string 'May'"),
    ({"day": {"gte": "2024-W22-5"}}, "gte (>=) of field 'day' is '2024-W22-5'; it needs a date, such as 2024-05-31"),
    ({"even": 1}, "field 'even' holds booleans, and eq (=) asks for the number 1"),
    ([{"n": 1}, {"even": "true"}], "field 'even' holds booleans"),
]
DOCUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"ids": ["x", "y", "x"], "texts": ["1", "2", "3"]}, "id 'x' is given twice: item 0 and item 2"),
    ({"ids": ["x", "y"], "texts": ["1"]}, "equally many"),
    ({"ids": ["x"], "texts": ["1", "2"]}, "equally many"),
    ({"ids": ["x", 7.5], "texts": ["1", "2"]}, "id 1 is 7.5"),
    ({"ids": ["x", True], "texts": ["1", "2"]}, "id 1 is True"),
    ({"ids": ["x", 10**700], "texts": ["1", "2"]}, "give an id of at most 600 digits"),
    ({"ids": ["x", ""], "texts": ["1", "2"]}, "id 1 is ''"),
    ({"ids": ["x", "\ud800"], "texts": ["1", "2"]}, "half a character"),
    ({"ids": ["x", "y"], "texts": ["1", None]}, "the text of document 'y' is NoneType"),
    ({"ids": ["x", "y"], "texts": ["1", b"2"]}, "the text of document 'y' is bytes"),
    ({"ids": "xy", "texts": ["1", "2"]}, "ids is one string"),
    ({"ids": ["x", "y"], "texts": ["1", "2"], "titles": ["one"]}, "titles and metadata must be equally many"),
    ({"texts": ["1", "2"], "metadata": {"year": [1, 2]}}, "metadata is one dict; give a list"),
    *(({"texts": ["1", "2"], "ids": ["w", "x"], "metadata": [None, fields]}, said)
      for fields, said in (([1], "document 'x'"), *((dict(n=value), "field 'n' of document 'x' is <object")
                                                    for value in (object(), [object()], {"deep": object()})))),
    ({"texts": CorpusFile("a.csv")}, "add_files"),
]  # fmt: skip
VECTORS: list[tuple[Any, str]] = [
    ({"other": ROWS}, "models of the index are fruit, far, letters"),
    ({"bm25": ROWS}, "models of the index are"),
    ({"fruit": np.ones((3, 3))}, "would not fit"),
    ({"far": ROWS[:2]}, "2 rows for 3 documents"),
    ({"far": np.vstack([ROWS, ROWS])}, "6 rows for 3 documents"),
    ({"far": ROWS[:, :3]}, "shape (3, 3); its model has 4 dimensions"),
    ({"far": ROWS[0]}, "shape (4,)"),
    ({"far": [[1, 2], [1]]}, "are no array"),
    *(({"far": rows}, "give an array of numbers")
      for rows in (ROWS.astype(str), ROWS.astype(complex), ROWS.astype(bool), [[None] * 4] * 3)),
    ({"far": np.where(ROWS == 3, np.nan, ROWS)}, "NaN or infinity within the rows from 0 to 2"),
    ({"far": np.where(ROWS == 3, np.inf, ROWS)}, "NaN or infinity"),
    ({"far": scipy.sparse.csr_matrix(ROWS)}, "sparse matrix, and its model is dense"),
    ({"letters": -LETTERS}, "below 0"),
    ({"letters": LETTERS.toarray()}, "give a scipy CSR matrix"),
    ([ROWS], "give a dict"),
    (3, "vectors are int; give a dict"),
]  # fmt: skip
STEER: list[tuple[Any, str]] = [
    (["cars"], "give a dict"),
    ("cars", "give a dict"),
    ({"cars": "much"}, "'much'; give a text"),
    *(({text: weight}, "from -10 to 10")
      for text, weight in (("cars", math.nan), ("cars", 11), (" ", 1), (3, 1), ("cars", np.float32("nan")),
                           ("cars", np.True_))),
    ({"qqqq": -0.5}, "no dense model of this search knows a word of it"),
    ({"qqqq": -0.5, "apple": 0.5}, "steer has 'qqqq', and"),
]  # fmt: skip
RECENT = {"recent": "day", "half_life_days": 30, "weight": 0.4}
BOOSTS: list[tuple[Any, str]] = [
    ({"where": {"kind": "1"}, "weight": 1}, "give a list of at most 20, such as"),
    ([{"where": {"kind": "1"}, "weight": 1}] * 21, "give a list of at most 20"),
    (["kind"], "a boost is 'kind'; give a dict such as {"),
    *(
        ([{"where": {"kind": "1"}, **more}], said)
        for more, said in (
            ({"where": None, "weight": 1}, "a boost is {"),
            ({"weight": 1, "recnt": "day"}, "a boost is {'recnt'"),
            ({}, "is None; it must be a number"),
            ({"weight": 11}, "is 11; it must be"),
            ({"weight": math.nan}, "is nan; it must be a number, at least -10 and at most 10"),
        )
    ),
    ([{"where": {"kinb": "1"}, "weight": 1}], "a field 'kinb'; did you mean 'kind'"),
    ([{"where": {"kind": 5}, "weight": 1}], "this can never match"),
    ([{"where": 5, "weight": 1}], "where is 5; it is a dict"),
    *(
        ([{**RECENT, **more}], said)
        for more, said in (
            ({"half_life_days": 0}, " is 0; it must be a number, at least 0.001"),
            ({"half_life_days": 1_000_001}, " is 1000001; it must be a number, at least 0.001 and at most 1e+06"),
            ({"recent": "dya"}, "did you mean 'day'"),
            ({"recent": "n"}, "field 'n' holds numbers"),
            ({"recent": "n", "now": 7}, "field 'n' is '7'; it needs"),
            ({"now": 0}, "field 'day' is '0'; it needs"),
            ({"now": "soon"}, "of field 'day' is 'soon'; it needs"),
        )
    ),
]
RERANKERS: list[tuple[Any, dict[str, Any], str]] = [
    (lambda query, texts: [1.0], {}, "shape (1,) for 4 texts"),
    (lambda query, texts: np.ones((4, 2)), {}, "shape (4, 2) for 4 texts"),
    (lambda query, texts: 1.0, {}, "shape () for"),
    (lambda query, texts: None, {}, "gave"),
    (lambda query, texts: ["a"] * 4, {}, "no array of numbers"),
    (lambda query, texts: [math.nan] * 4, {}, "gave nan for document '"),
    (lambda query, texts: [0.0] * 3 + [math.inf], {}, "gave inf for document '"),
    ("cross-encoder/ms-marco", {}, "give a CrossEncoder"),
    (far, {"rerank_top": 0}, "rerank_top is 0; it must be"),
    (far, {"rerank_top": True}, "rerank_top is True"),
    (far, {"weights": {"rerank": 1}}, "name the parts that find"),
    (far, {"weights": {"bm25": 1, "rerank": -1}}, "none negative"),
    (None, {"weights": {"bm25": 1, "rerank": 1}}, "no part of the index is called rerank"),
    (None, {"rerank_top": "a"}, "rerank_top is 'a'; it must be"),
    *((None, {"top_k": top_k}, "top_k is") for top_k in (0, -1, 1.5, "3", True)),
    *((None, {"min_score": least}, "min_score is") for least in ("0.3", True, math.nan, math.inf, [0.1])),
    (None, {"min_probability": 0.5}, "needs an index that is calibrated"),
    (far, {"min_probability": 0.5}, "leave out rerank"),
]
JUDGEMENTS: list[tuple[Any, Any, dict[str, Any], str]] = [
    (QUERIES, {"1": {"a": 1.5}}, {}, "integers"),
    (QUERIES, {"1": {"a": 2**40}}, {}, "integers up to 1,000"),
    (QUERIES, {"1": ["a"]}, {}, "integers"),
    (QUERIES, {"1": {"a": True}}, {}, "integers"),
    (QUERIES, {"1": {"a": 1, "\u00fc": 1, "u\u0308": 0}}, {}, "is there twice"),
    ({"1": "apple", 1: "pear"}, {"1": {"a": 1}}, {}, "query '1' is there twice"),
    (QUERIES, {"7": {"a": 1}}, {}, "same set"),
    (QUERIES, {"1": {"a": 0}}, {}, "same set"),
    ({"1": 5}, {"1": {"a": 1}}, {}, "must be a string"),
    (list(QUERIES), RELEVANT, {}, "read_queries"),
    (QUERIES, RELEVANT, {"top_k": 0}, "top_k is 0"),
    (QUERIES, RELEVANT, {"recall_at": True}, "recall_at is True"),
    (QUERIES, RELEVANT, {"examples": -1}, "examples is -1"),
]
CALLS: list[Any] = [
    *((lambda index, where=where: index.search("apple", where=where), said) for where, said in CONDITIONS),
    *((lambda index, where=where: index.documents(where, sort="n"), said) for where, said in CONDITIONS),
    *((lambda index, options=options: index.add(**options), said) for options, said in DOCUMENTS),
    *((lambda index, vectors=vectors: index.add(["1", "2", "3"], vectors=vectors), said) for vectors, said in VECTORS),
    *((lambda index, steer=steer: index.search("apple", weights={"fruit": 1}, steer=steer), said)
      for steer, said in STEER),
    (lambda index: index.search("apple", weights={"bm25": 1}, steer={"apple": -0.5}), "no dense model"),
    (lambda index: index.search("apple", weights=["bm25"]), "weights are ['bm25']; give a dict: name of a part -> "),
    (lambda index: index.search("apple", word_weights=["car"]), "word_weights are ['car']; give a dict: word -> "),
    *((lambda index, synonyms=synonyms: index.search("apple", synonyms=synonyms), said) for synonyms, said in (
        (["auto"], "synonyms are ['auto']; give a dict: word -> words"),
        ({"car": "auto"}, "the synonyms of 'car' are 'auto'; give words of at most 200 characters"),
        ({"car": [5]}, "the synonyms of 'car' are [5]"), ({5: ["car"]}, "the synonyms of 5 are ['car']"),
        ({"car": ["x" * 201]}, "give words of at most 200 characters"))),
    *((lambda index, boosts=boosts: index.search("apple", boosts=boosts), said) for boosts, said in BOOSTS),
    (lambda index: index.search("apple", group_by="kinb"), "a field 'kinb'; did you mean 'kind'"),
    (lambda index: index.search("apple", group_by="kind", rerank=far), "leave out rerank"),
    *((lambda index, rerank=rerank, options=options: index.search("apple pear", rerank=rerank, **options), said)
      for rerank, options, said in RERANKERS),
    *(pytest.param(lambda index, one=one: index.evaluate(*one[:2], **one[2]), one[3],
                   marks=pytest.mark.needs("pytrec_eval")) for one in JUDGEMENTS),
    # changes
    (lambda index: index.delete(["c", "x"]), "no document 'x'"),
    (lambda index: index.delete(0.5), "an id is 0.5 "),
    (lambda index: index.update("x", text="x"), "no document 'x'"),
    *((lambda index, wrong=wrong: index.update("a", vectors={"far": wrong}), "vectors of 'far'")
      for wrong in ([1.0, 2.0], 5, None, "x", np.ones((1, 4)), [[1.0] * 4], np.ones((2, 4)))),
    *((lambda index, wrong=wrong: index.update("a", vectors={"letters": wrong}), "for 1 documents")
      for wrong in (LETTERS, LETTERS[:0])),
    (lambda index: index.add(iter("12"), ids=iter("xy"), vectors={"far": ROWS[:1]}), "more documents came"),
    (lambda index: index.add_files(3), "files is 3; give a path"),
    (lambda index: index.add_files(["none.csv"]), "none.csv"),
    (lambda index: index.add_files(["x.doc"]), "x.doc"),
    (lambda index: index.add("a text"), "texts"),
    (lambda index: index.configure(weights={"other": 1}, word_weights={}), "no part of the index"),
    (lambda index: index.configure(word_weights={"car": -1}), "'car' is -1"),
    (lambda index: index.calibrate(["lens"]), "too few to calibrate"),
    # documents by conditions
    *((lambda index, field=field: index.documents(sort=field), "unknown field") for field in ("", 5, ["n"], {})),
    (lambda index: index.count(by=True), "unknown field"),
    (lambda index: index.count(by="kinb"), "did you mean 'kind'"),
    (lambda index: index.documents(offset=-1), "offset is -1"),
    (lambda index: index.documents(limit=0), "limit is 0"),
    *((lambda index, after=after: index.documents(after=after), "after is") for after in ("x", -1, True, "9" * 19)),
    (lambda index: document_number("x"), "after is"),
    (lambda index: index.documents(after=1, sort="n"), "offset with sort"),
    # hits
    (lambda index: index.search("apple").explain([1]), "rank [1] is not in this list"),
    (lambda index: index.search("apple").explain(0), "not in this list"),
    (lambda index: index.search("apple", offset=1).explain(1), "in this list of 3, whose first rank is 2"),
    (lambda index: index.search("apple")[0].lines([1]), "k is [1]; it must be"),
    (lambda index: index.search("apple")[0].explain().reasons(0.5), "top_k is 0.5; it must be"),
    (lambda index: index.search("apple").why(1, "x"), "no document 'x' is in the index"),
    (lambda index: index.search("apple", rerank=lambda query, texts: [0.0] * 4).why(1, "d"), "give two ranks"),
    (lambda index: index.why_not("a", "a", rerank=far), "leave out rerank"),
    (lambda index: index.why_not("a", "a", group_by="kind"), "leave out group_by"),
    (lambda index: index.why_not("a", "a", where={"kinb": 1}), "did you mean 'kind'"),
    (lambda index: index.why_not("a", "a", top_k=0), "top_k is 0"),
    # judgements
    *((lambda index, id=id, grade=grade: index.judge("a car", id, grade), said)
      for id, grade, said in (("gone", 1, "gone"), ("b", -1, "grade"), ("b", 1001, "grade"), ("b", True, "grade"))),
    (lambda index: index.judge(" \n", "b"), "the query is blank"),
    (lambda index: index.compare(["a car"], {}, {}), "give a dict"),
    # options kept under a name
    *((lambda index, name=name, options=options: index.save_settings(name, options), said)
      for name, options, said in (
          ("../x", {}, "the settings are called '../x'; give letters"), (5, {}, "are called 5"),
          ("x" * 81, {}, "at most 80"),
          ("x", {"weigths": {}}, "did you mean 'weights'"), ("x", {"weights": {"bm": 1}}, "no part of the index"),
          ("x", {"settings": "b.2"}, "unknown option 'settings'"), ("x", ["weights"], "give options of a search"),
          ("x", {"rerank": lambda query, texts: [0.0] * len(texts)}, "kept as JSON"), ("x", {"offset": -1}, "is -1"),
          ("x", {"boosts": [{"where": {"lang": "en"}, "weight": 1}]}, "a field 'lang'"))),
    *((lambda index, name=name: index.search("a car", settings=name), said)
      for name, said in (
          ("b.2", "unknown setting 'b.2'; the settings are: broken, words only"), ("../d", "unknown"),
          ("words onyl", "did you mean 'words only'"), ("broken", "unknown option 'wheights'"))),
    (lambda index: index.compare(QUERIES, {}, {"weigths": {}}), "did you mean 'weights'"),
    *((lambda index, checks=checks: index.check(checks), said) for checks, said in (
        ([], "no checks"), (5, "no checks"), (["ab"], "check 1 is 'ab'"), ([("a", "b", 0)], "within of check 1 is 0"),
        ([("a", None)], "the id of check 1 is None"))),
]  # fmt: skip


@pytest.mark.parametrize(("call", "said"), CALLS, ids=range(len(CALLS)))
def test_what_is_refused_is_said_and_stores_nothing(index: Index, call: Callable[[Index], Any], said: str) -> None:
    before = [*index], index.weights, index.word_weights
    with pytest.raises((InputError, CorpusError)) as refused:
        call(index)
    assert said in str(refused.value)
    assert before == ([*index], index.weights, index.word_weights)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"models": {}, "bm25": False}, "needs a model, or BM25"),
        ({"models": {"bm25": far}}, "a part is called 'bm25'"),
        *(({"models": {name: far}}, "a part is called") for name in ("a/b", ".", "..", "a\0b")),
        ({"models": {"m": 3}}, "an encoder is"),
        ({"models": {}, "language": "klingon"}, "language is 'klingon'; there are stemmers for arabic, "),
        ({"models": {}, "stop_words": "the"}, "stop_words is 'the'; give a list of words"),
        ({"models": {}, "passage_characters": 99}, "passage_characters is 99; it must be an integer, at least 100"),
        ({"models": {}, "weights": {"m": 1}}, "no part of the index is called m"),
        ({"models": {}, "weights": {"bm25": 0}}, "one above 0"),
        ({"models": {"m": far}, "weights": {"bm25": 1, "m": -1}}, "none negative"),
        ({"models": {"m": far}, "weights": {"bm25": 1e308, "m": 1e308}}, "up to a million"),
        ({"models": "no-such-model"}, "no model"),
        ({"models": {"m": StaticEmbedder(Vocabulary(["apple"]), np.full((1, 4), 1e31, np.float32))}},
         "not finite as float32, or beyond 1e+30"),
    ],
)  # fmt: skip
def test_what_cannot_be_created_leaves_nothing(tmp_path: Any, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises((InputError, ModelFolderError)) as refused:
        Index.create(tmp_path / "index", **arguments)
    assert said in str(refused.value) and not (tmp_path / "index").exists()
