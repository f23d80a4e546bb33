"""Checks of arguments: one rule for numbers and one for choices, values that none can write, texts in any form."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.core.arrays import validate_role
from pellucid.core.dimensions import Dimension, Dimensions
from pellucid.errors import InputError, check_choice, check_integer, check_number, shown
from pellucid.explain.views.report import json_text
from pellucid.index.documents import validate_id
from pellucid.index.listing import document_number
from pellucid.index.metadata import parse_where
from pellucid.index.settings import validate_steer, validate_synonyms, validate_weights, validate_word_weights
from pellucid.settings import Limits, Settings
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.inputs import check_texts
from pellucid.text.tables import CorpusFile
from refusals import refused

NO_NUMBERS = [True, "3", None, [1], 1j, math.nan, math.inf, -math.inf, 10**400, np.float32("nan")]


@given(st.integers(-5, 5) | st.floats(-5, 5), st.integers(-5, 5), st.integers(-5, 5))
def test_a_number_passes_just_where_it_keeps_to_its_limits(value, low, high):
    for limits, fits in (
        ({"least": low, "most": high}, low <= value <= high),
        ({"above": low, "below": high}, low < value < high),
    ):
        for number in (value, np.float64(value)):
            if fits:
                check_number("n", number, **limits)
                continue
            with pytest.raises(InputError, match=r"^n is .*; it must be a number, "):
                check_number("n", number, **limits)


OPTIONAL_TRUTH = partial(check_choice, allowed=(True, None))
WRONG = [  # a check, a value that does not pass, and what it must be
    *((check_number, value, "a number, finite") for value in NO_NUMBERS),
    *((partial(check_integer, least=-math.inf), value, "an integer, finite") for value in NO_NUMBERS),
    *((partial(check_integer, most=6), value, "an integer, at least 1 and at most 6")
      for value in (0, 7, 2.0, np.float32(2))),
    *((partial(check_integer, most=10_000), 10_000 + beyond, "an integer, at least 1 and at most 10,000")
      for beyond in (1, 10**20, 10**500, 10**5000)),
    *((check_number, 10**308 * (1 + beyond), "a number, finite") for beyond in (1, 10**20, 10**500, 10**5000)),
    *((OPTIONAL_TRUTH, value, "one of True, None") for value in (1, "True", 0, "None")),
]  # fmt: skip


@pytest.mark.parametrize(("check", "value", "expected"), WRONG, ids=range(len(WRONG)))
def test_a_value_that_does_not_pass_is_told_what_it_must_be(check, value, expected):
    with pytest.raises(InputError, match=rf"^n is .*; it must be {expected}$"):
        check("n", value)


def test_integers_are_those_of_python_and_numpy_and_a_choice_may_be_none():
    for check, value in ((check_integer, 1), (check_integer, np.int64(6)), (OPTIONAL_TRUTH, None)):
        check("n", value)


@dataclass
class Junk(Settings):
    n: Annotated[int | None, Limits(above=0)] = None
    share: Annotated[float, Limits(0, 1)] = 1
    kind: Literal["a", "b"] | None = None
    flag: bool = True
    text: str | None = ""


@pytest.mark.parametrize(
    ("field", "good", "wrong", "expected"),
    [
        ("n", 3, [0.5, 0, "3"], "must be an integer, above 0, or None"),
        ("share", 0.5, [None, -1, True], "must be a number, at least 0 and at most 1"),
        ("kind", "b", ["c", True], "must be one of a, b, None"),
        ("flag", False, [1, None], "must be one of True, False"),
        ("text", None, [3, b"a"], "must be a string, or None"),
    ],
)
def test_the_types_of_settings_say_what_they_may_be(field, good, wrong, expected):
    assert getattr(Junk(**{field: good}), field) == good
    for value in wrong:
        with pytest.raises(InputError, match=f"^{field} is .*; it {expected}$"):
            Junk(**{field: value})


JUNK = [
    float("nan"),
    float("inf"),
    10**30,
    -1,
    True,
    "3",
    b"3",
    [3],
    {},
    2j,
    object(),
    np.float32("nan"),
    np.bool_(True),
]


FRUITS = ["the apple", "a pear", "the car", "a bicycle", "apple and pear", "car and bicycle"] * 3
ANALYSES: dict[str, Callable[[StaticEmbedder, Any], object]] = {
    "seed of audit": lambda fruit, junk: pellucid.audit(fruit, FRUITS, seed=junk),
    "thresholds": lambda fruit, junk: pellucid.audit(fruit, FRUITS, thresholds=junk),
    "seed of cards": lambda fruit, junk: pellucid.cards(fruit, FRUITS, seed=junk),
    "seed of topics": lambda fruit, junk: pellucid.topics(fruit, FRUITS, n=2, seed=junk),
    "gold": lambda fruit, junk: pellucid.compare([fruit, fruit], list(pairwise(FRUITS)), gold=junk),
    "below": lambda fruit, junk: fruit.counterfactual("apple", "the apple car", below=junk),
}


test_numbers_and_settings_of_analyses_and_widths_of_views_are_checked = refused(
    *((lambda fruit, call=call, junk=junk: call(fruit, junk), None) for name, call in ANALYSES.items() for junk in JUNK
      if name != "below" or not isinstance(junk, int) or isinstance(junk, bool)),  # a cosine can be below any integer
    *((lambda fruit, show=show, width=width: show(fruit).to_text(width=width), "width")
      for show in (lambda fruit: fruit.explain("apple", "pear"), lambda fruit: pellucid.cards(fruit, FRUITS))
      for width in (float("nan"), 2.5, "80", None, 0, True, [80])),
)  # fmt: skip


# --- Values that Python cannot write ---

PLAIN_MODEL = StaticEmbedder(["cat"], np.ones((1, 4), np.float32))
HUGE = 10**5000  # Python writes integers of at most 4,300 digits
_huge = st.integers(4000, 6000).map(lambda digits: 10**digits)
_values = st.recursive(
    _huge | st.integers() | st.text() | st.none(),
    lambda items: (
        st.lists(items, max_size=3) | st.tuples(items) | st.dictionaries(_huge | st.text(), items, max_size=3)
    ),
    max_leaves=8,
)


@given(_values, st.integers(1, 200))
def test_every_value_can_be_shown(value: object, max_chars: int) -> None:
    assert len(shown(value, max_chars)) <= max_chars


def test_a_value_is_shown_as_it_is_unless_it_is_large() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    nested: object = 1
    for _ in range(100_000):
        nested = [nested]
    for value in ("text", 3, 0.5, [1, 2], {"a": 1}, None, ("a",), np.float32(2)):
        assert shown(value) == repr(value)
    assert shown(HUGE) == "an integer of 16,610 bits" and shown([HUGE]) == "[an integer of 16,610 bits]"
    assert shown("a" * 10_000) == "'" + "a" * 59 and shown(nested).startswith("[[") and "Broken" in shown(Broken(), 200)


SETTINGS: dict[str, Callable[[object], object]] = {
    "weights of parts": lambda value: validate_weights({"bm25": value}, ["bm25"], {}),
    "weights": lambda value: validate_weights(value, ["bm25"], {}),
    "a part": lambda value: validate_weights({value: 1}, ["bm25"], {}),
    "word weights": lambda value: validate_word_weights({"cat": value}, {}),
    "a weighted word": lambda value: validate_word_weights({value: 1}, {}),
    "synonyms": lambda value: validate_synonyms({"cat": [value]}, {}),
    "a word with synonyms": lambda value: validate_synonyms({value: ["cat"]}, {}),
    "steer": lambda value: validate_steer({"cats": value}),
    "steered text": lambda value: validate_steer({value: 1}),
    "id": lambda value: validate_id(value if isinstance(value, int) else [value], "id"),
    "cursor": document_number,
    "where": lambda value: parse_where({value: 1}, {}),
    "texts": lambda value: check_texts([value]),
    "no texts": lambda value: check_texts(value if isinstance(value, int) else {0: value}),
    "role": validate_role,
    "dimension": lambda value: Dimensions([Dimension("x")]).number(value),
    "delimiter": lambda value: CorpusFile("x.csv", delimiter=value),
    "type": lambda value: CorpusFile("x.csv", types={"year": value}),
    "rows": PLAIN_MODEL.word_vectors,
    "choice": lambda value: check_choice("level", value, ["word"]),
    "number": lambda value: check_number("n", value),
}


test_a_setting_that_cannot_be_written_gets_our_error = refused(
    *((lambda check=check, value=value: check(value), None)
      for check in SETTINGS.values() for value in (HUGE, -HUGE, (HUGE,))),
)  # fmt: skip


def test_json_is_indented_by_a_number_of_blanks_that_fits(tmp_path: Path) -> None:
    with pellucid.Index.create(tmp_path / "index") as index:
        index.add(["the cat sleeps"])
        hits = index.search("cat")
    for view in (hits, hits[0].explain()):
        for indent in (HUGE, -1, 10**9, 0.5, [HUGE]):
            with pytest.raises(InputError, match=r"^indent is .* at least 0 and at most 100, or None"):
                view.to_json(indent=indent)
        has_lines = [view.to_json(indent=indent).count("\n") > 2 for indent in (None, 0, 2, "\t")]
        assert has_lines == [False, True, True, True]
    assert json_text({"scores": [math.nan, -math.inf, 0.5]}, None) == '{"scores": [null, null, 0.5]}'


test_what_is_no_model_is_named_with_what_to_give = refused(
    *((lambda function=function, model=model: function(model),
       r"^model is .*; give a model, such as pellucid\.load\('static-en'\)")
      for function in (
        lambda model: pellucid.audit(model, ["a"]), lambda model: pellucid.cards(model, ["a"]),
        lambda model: pellucid.topics(model, ["a"] * 10), lambda model: pellucid.bias(model, "gender"),
        lambda model: pellucid.report(model))
      for model in (3, "static-en", None, HUGE, [], StaticEmbedder)),
)  # fmt: skip


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int8, np.int64, float, int])
def test_weights_may_be_numbers_of_numpy(kind: type) -> None:
    assert validate_weights({"bm25": kind(2), "m": kind(2)}, ["bm25", "m"], {}) == {"bm25": 0.5, "m": 0.5}
    assert validate_word_weights({"cat": kind(2)}, {}) == {"cat": 2.0}


# Whatever takes texts takes them as a list, a tuple, an array or a generator, which can be read only once.

MANY_TEXTS = [
    f"{first} {second}" for first in ("the apple", "a pear", "a car") for second in ("red", "car", "pear", "apple")
]
PAIRS = list(pairwise(MANY_TEXTS))

Giving = Callable[[Iterable[Any]], Any]
CALLS: dict[str, Callable[[Any, Any, Giving], Any]] = {
    "encode": lambda static, anchors, give: static.encode(give(MANY_TEXTS)).tolist(),
    "audit": lambda static, anchors, give: pellucid.audit(anchors, give(MANY_TEXTS)).to_json(),
    "cards": lambda static, anchors, give: pellucid.cards(anchors, give(MANY_TEXTS)).to_json(),
    "compare": lambda static, anchors, give: pellucid.compare([static, anchors], give(PAIRS)).to_json(),
    "duplicates": lambda static, anchors, give: pellucid.duplicates(give(MANY_TEXTS), static).to_json(),
    "choose_anchors": lambda static, anchors, give: pellucid.choose_anchors(
        static, give(f"{text} and {text} of a long enough text" for text in MANY_TEXTS), 2, show_progress_bar=False
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "give", [iter, tuple, lambda items: (item for item in items)], ids=["iter", "tuple", "generator"]
)
def test_texts_that_can_be_read_once_give_what_a_list_does(name: str, give: Giving, fruit: StaticEmbedder) -> None:
    anchors = AnchorEmbedder(fruit, ["apple", "a car", "the pear"])
    assert CALLS[name](fruit, anchors, give) == CALLS[name](fruit, anchors, list)


def test_an_array_of_strings_is_texts(fruit: StaticEmbedder) -> None:
    np.testing.assert_array_equal(fruit.encode(np.array(MANY_TEXTS, object)), fruit.encode(MANY_TEXTS))
