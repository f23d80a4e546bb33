"""pellucid: text embeddings that a person can read and a laptop can afford."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pellucid.base import Embedder
    from pellucid.explanation import Explanation
    from pellucid.loading import load
    from pellucid.static import StaticEmbedder

_HOMES = {
    "Embedder": "base",
    "Explanation": "explanation",
    "StaticEmbedder": "static",
    "load": "loading",
    "distill": "distill",
    "errors": "errors",
}

__all__ = ["Embedder", "Explanation", "StaticEmbedder", "__version__", "distill", "load"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import pellucid` stays fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pellucid' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"pellucid.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
