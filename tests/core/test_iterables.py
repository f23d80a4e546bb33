"""Whatever takes texts takes them as a list, a tuple, an array or a generator, which can be read only once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.errors import InputError
from pellucid.static.embedder import StaticEmbedder

TEXTS = [
    f"{first} {second}" for first in ("the apple", "a pear", "a car") for second in ("red", "car", "pear", "apple")
]
PAIRS = list(pairwise(TEXTS))

Give = Callable[[Iterable[Any]], Any]
CALLS: dict[str, Callable[[Any, Any, Give], Any]] = {
    "encode": lambda static, anchors, give: static.encode(give(TEXTS)).tolist(),
    "encode_blocks": lambda static, anchors, give: [rows.tolist() for rows in static.encode_blocks(give(TEXTS))],
    "audit": lambda static, anchors, give: pellucid.audit(anchors, give(TEXTS)).to_json(),
    "cards": lambda static, anchors, give: pellucid.cards(anchors, give(TEXTS)).to_json(),
    "compare": lambda static, anchors, give: pellucid.compare([static, anchors], give(PAIRS)).to_json(),
    "duplicates": lambda static, anchors, give: pellucid.duplicates(give(TEXTS), static).to_json(),
    "rank": lambda static, anchors, give: pellucid.rank(static, "red apple", give(TEXTS)).to_json(),
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
    texts = np.array(TEXTS, object)
    np.testing.assert_array_equal(fruit.encode(texts), fruit.encode(TEXTS))


def test_only_one_block_is_read_ahead(fruit: StaticEmbedder) -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "apple"

    blocks = fruit.encode_blocks(endless(), block_size=7)
    assert read == 0
    assert len(next(blocks)) == len(next(blocks)) == 7
    assert read == 14


def test_bad_input_is_named(fruit: StaticEmbedder) -> None:
    with pytest.raises(InputError, match="text 5 is NoneType"):
        list(fruit.encode_blocks(["apple"] * 5 + [None], block_size=2))  # type: ignore[list-item]
    with pytest.raises(InputError, match="texts is one string, 'apple'"):
        fruit.encode_blocks("apple")
    with pytest.raises(InputError, match="must be an iterable of strings, got 7"):
        fruit.encode_blocks(7)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="block_size is 0"):
        fruit.encode_blocks(["apple"], block_size=0)
