"""The errors: each message names the thing, its value and what to do."""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from numbers import Integral, Real
from reprlib import Repr
from typing import Any

VERSION = "0.1.0"
"""Of the library. It stands here, at the bottom, because the build, every saved folder and some messages name it."""

MAX_WRITTEN_BITS = 2000
"""Of an integer; Python may refuse to write one of 640 digits."""

_MAX_PLAIN = 1 << 53  # an integer up to this one is compared as it is


class PellucidError(Exception):
    """Base of every error pellucid raises on purpose."""


class InputError(PellucidError, ValueError):
    """An argument has a value the call cannot use."""


class ModelFolderError(PellucidError, ValueError):
    """A model folder or file is missing, truncated, of another family or not trustworthy."""


class IndexFolderError(PellucidError, ValueError):
    """A search index is missing, broken, of another version, or another process keeps changing it."""


class ReadingError(ModelFolderError, IndexFolderError):
    """A file exists and cannot be read now: too many open files, no permission, a failing disk. It is not damaged."""


class WritingError(PellucidError, OSError):
    """A file or folder cannot be written: no space, no permission, a read-only disk."""


class CorpusError(PellucidError, ValueError):
    """A corpus cannot be read or holds no usable text."""


class MissingExtraError(PellucidError, ImportError):
    """An optional dependency is not installed; the message holds the pip line."""


class _Shown(Repr):
    """Writes what may be large, nested deep, or an integer of more digits than Python writes."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 1000  # the caller cuts the whole

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() <= MAX_WRITTEN_BITS else f"an integer of {x.bit_length():,} bits"


def shown(value: object, max_chars: int = 60) -> str:
    """Return a value of any kind and size for a message, as `repr` writes it, but cut."""
    return _Shown().repr(value)[:max_chars]


def check_number(
    name: str, value: object, *, least: float = -math.inf, most: float = math.inf, above: float = -math.inf,
    below: float = math.inf, integer: bool = False, optional: bool = False,
) -> None:  # fmt: skip
    """Check that an argument is a finite number, at `least`, at `most`, `above` and `below` what is given."""
    if value is None and optional:
        return
    if type(value) is int and max(least, -_MAX_PLAIN) <= value <= min(most, _MAX_PLAIN) and above < value < below:
        return  # the commonest, in a tenth of the time
    is_number = isinstance(value, Integral if integer else Real) and not isinstance(value, bool)
    number: Any = value.item() if hasattr(value, "item") else value  # numpy warns of float32 beside larger limits
    if is_number and abs(number) <= sys.float_info.max and least <= number <= most and above < number < below:
        return
    ends = {"at least": least, "above": above, "at most": most, "below": below}
    limits = " and ".join(
        f"{end} {limit:,}" if isinstance(limit, int) else f"{end} {limit:g}"
        for end, limit in ends.items()
        if math.isfinite(limit)
    )
    expected = f"{'an integer' if integer else 'a number'}, {limits or 'finite'}{', or None' * optional}"
    raise InputError(f"{name} is {shown(value)}; it must be {expected}")


def check_integer(name: str, value: object, least: int = 1, most: float = math.inf, *, optional: bool = False) -> None:
    """Check that an argument is an integer, at `least` and at `most` what is given."""
    check_number(name, value, least=least, most=most, integer=True, optional=optional)


def check_seed(seed: object) -> None:
    """Check that `seed` begins random numbers, of numpy and of scikit-learn."""
    check_integer("seed", seed, 0, 2**32 - 1)


def check_choice(name: str, value: object, allowed: Collection[Any]) -> None:
    """Check that an argument is one of the `allowed` values; 1 does not pass for True."""
    if not any(value == choice and type(value) is type(choice) for choice in allowed):
        raise InputError(f"{name} is {shown(value)}; it must be one of {', '.join(map(str, allowed))}")


_SYNONYMS = (  # words of other libraries and servers for one argument
    {"where", "filter", "filters", "condition", "conditions", "metadata_filter", "pre_filter"},
    {"top_k", "k", "limit", "size", "top_n", "n_results", "max_results", "similarity_top_k", "num_results", "count"},
    {"query", "q", "text", "text1", "question", "query_text", "search"},
    {"texts", "documents", "docs", "passages", "sentences", "inputs", "input", "corpus"},
    {"model", "model_id", "model_name", "model_path", "name"},
    {"eq", "=", "==", "is", "equals", "equal"},
    {"ne", "!=", "<>", "not", "not_eq", "neq"},
    {"in", "any", "any_of", "one_of"},
    {"nin", "not_in", "not in", "none_of"},
    {"gt", ">"},
    {"gte", ">=", "ge", "min", "from", "after"},
    {"lt", "<"},
    {"lte", "<=", "le", "max", "to", "before"},
    {"word_weights", "boost", "boosts"},
    {"index", "index_path", "path", "folder"},
)


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the one of `names` that is most like an unknown `name` or means the same, None if none is."""
    name, folded = name.casefold()[:200], {candidate.casefold(): candidate for candidate in names}
    synonyms = next((group for group in _SYNONYMS if name in group), set[str]())
    close = get_close_matches(name, folded, 1, 0.75) or [candidate for candidate in folded if candidate in synonyms]
    close = close or get_close_matches(name, folded, 1)
    return folded[close[0]] if close else None


def unknown_name(kind: str, name: Any, names: Collection[str]) -> str:
    """Return the message for a `name` of a `kind`, such as "field", that is not in `names`."""
    similar_name = nearest_name(name if isinstance(name, str) else shown(name), names)
    hint = "the" if similar_name is None else f"did you mean {similar_name!r}? The"
    there = f"{hint} {kind}s are: {', '.join(names):.500}" if names else f"there are no {kind}s"
    return f"unknown {kind} {shown(name, 80)}; {there}"


def missing_extra(module: str, extra: str) -> MissingExtraError:
    """Return the error for an optional `module` that pellucid's `extra` installs."""
    return MissingExtraError(f"{module} is not installed. Run: {install_hint(extra)}")


@contextmanager
def importing(extra: str, package: str = "") -> Iterator[None]:
    """Say of what is imported within and is not installed which of pellucid's extras holds it.

    Args:
        extra: the name of the extra.
        package: what is called absent; "" for the module that is.
    """
    try:
        yield
    except ImportError as error:
        raise missing_extra(package or str(error.name), extra) from error


def install_hint(extra: str, options: str = "") -> str:
    """Return the command that installs an extra, from a package index and in a clone."""
    return f'pip install{options} "pellucid[{extra}]" (in a clone of pellucid: pip install{options} ".[{extra}]")'


_OLDEST = {
    "sentence_transformers": (6, 2),
    "transformers": (5, 6, 2),
    "mcp": (2,),
}  # older ones run code from a folder, or lack parts


def require(module: str, extra: str = "torch") -> None:
    """Check that an optional library, of pellucid's `extra`, is installed and new enough."""
    from importlib import metadata  # as slow to import as the rest of pellucid's first module

    try:
        installed = metadata.version(module)
    except metadata.PackageNotFoundError as error:
        raise missing_extra(module.replace("_", "-"), extra) from error
    oldest = _OLDEST.get(module, ())
    if tuple(int(part) for part in re.findall(r"\d+", installed)[:3]) < oldest:
        raise MissingExtraError(
            f"{module.replace('_', '-')} {installed} is installed, and {'.'.join(map(str, oldest))} or newer is "
            f"needed. Run: {install_hint(extra, ' -U')}"
        )


def warn(message: str) -> None:
    """Warn the caller of the library, from any depth within it."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "pellucid":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


@contextmanager
def without_panic(what: Any) -> Iterator[None]:
    """Turn errors of tokenizers, bare exceptions and panics of Rust, into a ModelFolderError about `what`."""
    try:
        yield
    except BaseException as error:
        if not is_panic(error) and type(error) is not Exception:
            raise
        raise ModelFolderError(f"{what} cannot be used: {error!s:.300}") from error


def is_panic(error: BaseException) -> bool:
    """Whether an error is a panic of Rust code; the class has no name that could be imported."""
    return type(error).__name__ == "PanicException"
