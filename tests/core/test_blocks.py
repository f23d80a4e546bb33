"""Encoding an iterator of any length, a block at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pellucid.errors import InputError
from pellucid.static.embedder import StaticEmbedder


def test_no_text_gives_no_block(fruit: StaticEmbedder) -> None:
    assert list(fruit.encode_blocks([])) == []


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
