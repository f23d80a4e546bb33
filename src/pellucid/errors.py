"""The errors pellucid raises. Each message names the thing, the value it had and the way out."""

from __future__ import annotations


class PellucidError(Exception):
    """Base of every error pellucid raises on purpose."""


class InputError(PellucidError, ValueError):
    """An argument has a value the call cannot use."""


class ModelFolderError(PellucidError, ValueError):
    """A model folder or file is missing, truncated, of another family or not trustworthy."""


class IndexFolderError(PellucidError, ValueError):
    """A search index is missing, broken, too new, or open in another process."""


class WritingError(PellucidError, OSError):
    """A file or folder cannot be written: no space, no permission, a read-only disk."""


class CorpusError(PellucidError, ValueError):
    """A corpus cannot be read or holds nothing usable."""


class MissingExtraError(PellucidError, ImportError):
    """An optional dependency is not installed; the message holds the pip line."""


def missing_extra(module: str, extra: str) -> MissingExtraError:
    """Return the error for an absent optional `module` that `pip install "pellucid[extra]"` brings."""
    return MissingExtraError(f'{module} is not installed. Run: pip install "pellucid[{extra}]"')
