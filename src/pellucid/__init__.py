"""pellucid: text embeddings that a person can read and a laptop can afford."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pellucid.anchors.embedder import AnchorEmbedder
    from pellucid.base import Embedder
    from pellucid.ensemble.embedder import EnsembleEmbedder
    from pellucid.explanation import Explanation
    from pellucid.index.index import Index
    from pellucid.keytokens.embedder import KeyTokenEmbedder
    from pellucid.lexicon.embedder import LexiconEmbedder
    from pellucid.pretrained import load
    from pellucid.static.embedder import StaticEmbedder

FAMILIES = {
    "static": "static.embedder.StaticEmbedder",
    "anchors": "anchors.embedder.AnchorEmbedder",
    "lexicon": "lexicon.embedder.LexiconEmbedder",
    "keytokens": "keytokens.embedder.KeyTokenEmbedder",
    "ensemble": "ensemble.embedder.EnsembleEmbedder",
    "dense": "research.baselines.DenseEmbedder",  # a baseline
}
"""Family, and its class with the file it is in: a new family is that file, or room, and one line here."""

_HOMES = {
    **{path.rpartition(".")[2]: path.rpartition(".")[0] for path in FAMILIES.values()},
    "Embedder": "base",
    "Explanation": "explanation",
    "Index": "index.index",
    "load": "pretrained",
    "distill": "static.making.distill",
    "errors": "errors",
}

__all__ = [
    "AnchorEmbedder",
    "Embedder",
    "EnsembleEmbedder",
    "Explanation",
    "Index",
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
