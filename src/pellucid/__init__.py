"""pellucid: text embeddings that a person can read and a laptop can afford."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pellucid.anchors import AnchorEmbedder
    from pellucid.base import Embedder
    from pellucid.ensemble import EnsembleEmbedder
    from pellucid.explanation import Explanation
    from pellucid.keytokens import KeyTokenEmbedder
    from pellucid.lexicon import LexiconEmbedder
    from pellucid.pretrained import load
    from pellucid.static import StaticEmbedder

FAMILIES = {
    "static": "StaticEmbedder",
    "anchors": "AnchorEmbedder",
    "lexicon": "LexiconEmbedder",
    "keytokens": "KeyTokenEmbedder",
    "ensemble": "EnsembleEmbedder",
    "dense": "DenseEmbedder",  # a baseline
}
"""Family, which is also its file, and its class: a new family is that file and one line here."""

_HOMES = {
    **{name: family for family, name in FAMILIES.items()},
    "Embedder": "base",
    "Explanation": "explanation",
    "load": "pretrained",
    "distill": "distill",
    "errors": "errors",
}

__all__ = [
    "AnchorEmbedder",
    "Embedder",
    "EnsembleEmbedder",
    "Explanation",
    "KeyTokenEmbedder",
    "LexiconEmbedder",
    "StaticEmbedder",
    "__version__",
    "distill",
    "load",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import pellucid` stays fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pellucid' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"pellucid.{_HOMES[name]}")
    return module if name == _HOMES[name] else getattr(module, name)  # importing a module makes it an attribute anyway


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
