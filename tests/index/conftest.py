"""An index needs pellucid[search]; without it there is nothing to test here."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pellucid import Index

collect_ignore_glob = [] if find_spec("Stemmer") else ["test_*.py"]


@pytest.fixture
def index_of(tmp_path: Path) -> Iterator[Callable[..., Index]]:
    """Make an index of texts in `tmp_path / "index"`, or beside it, which is closed when the test ends."""
    numbers = count()
    with ExitStack() as stack:

        def make(texts: Any, ids: Any = None, *, models: Any = (), metadata: Any = None, **settings: Any) -> Index:
            of_documents = {name: settings.pop(name) for name in ("titles", "vectors") if name in settings}
            folder = tmp_path / f"index{'-more' * next(numbers)}"
            index = stack.enter_context(Index.create(folder, models or {}, **settings))
            index.add(texts, ids=ids, metadata=metadata, **of_documents)
            return index

        yield make
