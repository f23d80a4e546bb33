"""Search with reasons on one machine: texts in, hits out, and for every hit the terms that its score is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pellucid.index.hits import Hit, Hits
    from pellucid.index.index import Index
    from pellucid.index.records import read_documents

_HOMES = {"Hit": "hits", "Hits": "hits", "Index": "index", "read_documents": "records"}

__all__ = ["Hit", "Hits", "Index", "read_documents"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used; files are read without the engine."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pellucid.index' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"pellucid.index.{_HOMES[name]}"), name)
