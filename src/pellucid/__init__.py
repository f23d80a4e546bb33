"""pellucid: text embeddings that a person can read and a laptop can afford."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pellucid.anchors.embedder import AnchorEmbedder
    from pellucid.base import Embedder
    from pellucid.ensemble.embedder import EnsembleEmbedder
    from pellucid.explanation import Explanation
    from pellucid.keytokens.embedder import KeyTokenEmbedder
    from pellucid.lexicon.embedder import LexiconEmbedder
    from pellucid.pretrained import load
    from pellucid.static.embedder import StaticEmbedder

_HOMES = {
    "Embedder": "base",
    "Explanation": "explanation",
    "load": "pretrained",
    "distill": "static.making.distill",
    "errors": "errors",
}
"""Public name -> the file it is in; the classes of families are in `pretrained.FAMILIES`."""

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
    from importlib import import_module

    if name == "__version__":
        return import_module("pellucid.errors").VERSION
    home = _HOMES.get(name)
    if home is None and name.endswith("Embedder"):
        paths = (path.rpartition(".") for path in import_module("pellucid.pretrained").FAMILIES.values())
        home = next((module for module, _, found in paths if found == name), None)
    if home is None:
        raise AttributeError(f"module 'pellucid' has no attribute {name!r}")
    module = import_module(f"pellucid.{home}")
    return module if name == home else getattr(module, name)  # importing a module makes it an attribute anyway


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
