"""Texts in memory as Arrow keeps them: UTF-8 and offsets, of which no string is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError
from pellucid.text.inputs import check_texts


class Utf8Texts:
    """Texts as Arrow keeps them: text i is `data[offsets[i]:offsets[i + 1]]`, valid UTF-8."""

    def __init__(self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> None:
        """Take the bytes of all texts and the int64 offsets, one more than there are texts, without copying."""
        self.data, self.offsets = (
            np.require(data, requirements=["C", "A"]),
            np.require(offsets, requirements=["C", "A"]),
        )
        for array, kind in ((self.data, np.dtype(np.uint8)), (self.offsets, np.dtype(np.int64))):
            if array.dtype != kind or array.ndim != 1:
                raise InputError(f"texts in memory are uint8 with int64 offsets, got {array.dtype} {list(array.shape)}")
        rising = len(self.offsets) > 0 and not (self.offsets[1:] < self.offsets[:-1]).any()
        if not rising or self.offsets[0] < 0 or self.offsets[-1] > len(self.data):
            raise InputError(f"the offsets of texts must rise, from 0 to at most the {len(self.data):,} bytes")

    def __len__(self) -> int:
        """Return how many texts there are."""
        return len(self.offsets) - 1

    def __getitem__(self, selection: slice) -> Utf8Texts:
        """Return some of them, without copying."""
        first, last, _ = selection.indices(len(self))
        return Utf8Texts(self.data, self.offsets[first : last + 1])

    def decoded(self) -> list[str]:
        """Return the texts as strings.

        Raises:
            InputError: a text is not UTF-8.
        """
        start, end = int(self.offsets[0]), int(self.offsets[-1])
        content, edges = self.data[start:end].tobytes(), (self.offsets - start).tolist()
        with named_encoding():
            return [content[first:last].decode() for first, last in pairwise(edges)]


def arrow_texts(texts: Any) -> Utf8Texts:
    """Return the texts of an Arrow array, or of one in chunks, without copying those of one array.

    Raises:
        InputError: it holds something else than texts, or a null.
    """
    import pyarrow as pa

    kind = texts.type.value_type if pa.types.is_dictionary(texts.type) else texts.type
    if str(kind) not in ("string", "large_string", "string_view", "null"):
        raise InputError(f"texts are an Arrow array of {texts.type!s:.80}; give one of strings")
    texts = texts.cast(pa.large_string())  # also of a dictionary, whose values may be null
    if texts.null_count:
        first = texts.is_null().index(True).as_py()
        check_texts(texts[first : first + 1], first=first)
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return Utf8Texts(np.zeros(0, np.uint8), np.zeros(len(texts) + 1, np.int64))
    text_offsets = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return Utf8Texts(np.frombuffer(data, np.uint8), text_offsets)


@contextmanager
def named_encoding() -> Iterator[None]:
    """Say which encoding texts are expected in where they are in another."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise InputError(f"a text is not UTF-8: {error.reason}; decode it in its encoding") from error
