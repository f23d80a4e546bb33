"""A corpus: the texts of a file, see `CorpusFile`, or any iterable of strings.

As many texts come out as there are lines, rows or items: a blank line and a null are the empty text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Union

from pellucid.embeddings import describe_item, iterate_texts
from pellucid.errors import CorpusError
from pellucid.files.corpus_file import CorpusFile
from pellucid.files.lines import is_stream

Corpus = Union[str, "os.PathLike[str]", Iterable[str]]
"""A path, a `CorpusFile`, or an iterable of texts (a list, a generator, a column of a data frame, ...)."""


def corpus_file(corpus: Corpus, field: str = "text") -> CorpusFile | None:
    """Return the file that a corpus names, whose texts are in `field` unless it says so itself; None for texts."""
    if isinstance(corpus, CorpusFile):
        return corpus
    return CorpusFile(corpus, field=field) if isinstance(corpus, (str, os.PathLike)) else None


def is_path(corpus: Corpus) -> bool:
    """Whether `corpus` names a file that can be read again, rather than a pipe or the texts themselves."""
    file = corpus_file(corpus)
    return file is not None and not is_stream(file.source)


def read_texts(corpus: Corpus, *, field: str = "text") -> Iterator[str]:
    """Yield the texts of a corpus in order, in bounded memory; `field` is the column or key in a file named by a path.

    Raises:
        CorpusError: the file cannot be read, or something is no text.
        InputError: a table, a mapping or the like stands in place of texts.
    """
    file = corpus_file(corpus, field)
    if file is not None:
        yield from file
        return
    for index, text in enumerate(iterate_texts(corpus)):
        value = text.as_py() if hasattr(text, "as_py") else text  # of Arrow
        if not isinstance(value, str):
            raise CorpusError(f"corpus item {index} is {describe_item(value)}")
        yield value
