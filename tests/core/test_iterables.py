"""Whatever takes texts takes them as a list, a tuple, an array or a generator, which can be read only once."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.static.embedder import StaticEmbedder

TEXTS = [
    f"{first} {second}" for first in ("the apple", "a pear", "a car") for second in ("red", "car", "pear", "apple")
]
PAIRS = list(pairwise(TEXTS))

Give = Callable[[Iterable[Any]], Any]
CALLS: dict[str, Callable[[Any, Any, Give], Any]] = {
    "encode": lambda static, anchors, give: static.encode(give(TEXTS)).tolist(),
    "audit": lambda static, anchors, give: pellucid.audit(anchors, give(TEXTS)).to_json(),
    "cards": lambda static, anchors, give: pellucid.cards(anchors, give(TEXTS)).to_json(),
    "compare": lambda static, anchors, give: pellucid.compare([static, anchors], give(PAIRS)).to_json(),
    "duplicates": lambda static, anchors, give: pellucid.duplicates(give(TEXTS), static).to_json(),
    "choose_anchors": lambda static, anchors, give: pellucid.choose_anchors(
        static, give(f"{text} and {text} of a long enough text" for text in TEXTS), 2, show_progress_bar=False
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "give", [iter, tuple, lambda items: (item for item in items)], ids=["iter", "tuple", "generator"]
)
def test_texts_that_can_be_read_once_give_what_a_list_does(name: str, give: Give, fruit: StaticEmbedder) -> None:
    anchors = AnchorEmbedder(fruit, ["apple", "a car", "the pear"])
    assert CALLS[name](fruit, anchors, give) == CALLS[name](fruit, anchors, list)


def test_an_array_of_strings_is_texts(fruit: StaticEmbedder) -> None:
    np.testing.assert_array_equal(fruit.encode(np.array(TEXTS, object)), fruit.encode(TEXTS))
