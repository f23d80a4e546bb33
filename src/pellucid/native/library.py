"""The C library: opened once, for this processor; `kernels.py` calls its functions."""

from __future__ import annotations

import ctypes
import os
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from pellucid.errors import InputError, PellucidError

LEVELS = ("plain", "avx2", "avx512", "vnni")
"""What a processor can do, with a file of kernels for each; elsewhere than on x86-64 there is "plain" alone."""

_FOLDER = Path(__file__).parent
_SIGNATURES = """
words_count_characters i o i i p
words_join_list     i o i p p i i p
words_find          i p p i p i i p i p p
words_forget        - p
words_insert        - p p i
words_learn         - p p p p p i
words_look_again    i p p p i i
words_list_tokens   - p p p i p
words_group         i p p i p p p p p
words_distinct      i p i p i p p p
pooling_pool        i p p p i p i p p p p
pooling_products    - p p i p p i p i p p p p
pooling_pairs       - p p i i i p p p
pooling_pool_sparse i p p p i p p i p p p
farthest_measure    i p i i p
farthest_take       - p i i
farthest_search     - p i i i p p
spelling_predict    i p p p p p i p p p
terms_index         - p
terms_read          - p p p i p p
terms_count         i p p p i p p p p
terms_invert        - p p p i p p p p
scan_longest        d p i
scan_segment        i p p p p p p p
"""
"""What each function returns and takes: i an int64_t, d a double, p an address, o a Python object, - nothing."""


@cache
def library() -> ctypes.CDLL:
    """Return the library for this processor.

    The environment variable PELLUCID_NATIVE names a level ("plain", "avx2", "avx512", "vnni").

    Raises:
        InputError: PELLUCID_NATIVE is none of these, or the processor lacks what the level needs.
        PellucidError: the compiled kernels are absent or damaged.
    """
    level = os.environ.get("PELLUCID_NATIVE", "")
    if level not in ("", *LEVELS):
        raise InputError(f"the environment variable PELLUCID_NATIVE is {level!r}; set it to {', '.join(LEVELS)}")
    try:
        best = _open("plain").native_level()
        if level and LEVELS.index(level) > best:
            raise InputError(f"PELLUCID_NATIVE is {level!r}, and this processor can do {LEVELS[best]!r} at most")
        best_built = next(level for level in reversed(LEVELS[: best + 1]) if _path(level).exists())
        return _open(level or best_built)
    except (OSError, AttributeError) as error:
        raise PellucidError(
            f"the compiled kernels cannot be loaded: {error}. Build them with `python hatch_build.py` in a clone, or "
            "install pellucid again"
        ) from error


def _path(level: str) -> Path:
    ending = {"darwin": "dylib", "win32": "dll"}.get(sys.platform, "so")
    return _FOLDER / "compiled" / f"kernels-{level}.{ending}"  # in a folder of their own: else they look like modules


def _open(level: str) -> ctypes.CDLL:
    path = _path(level)
    library = ctypes.CDLL(str(path))
    sources = b"".join(source.read_bytes() for source in sorted(_FOLDER.glob("*.[ch]")))
    sources_checksum = getattr(library, "native_sources", None)
    if sources and (sources_checksum is None or sources_checksum() & 0xFFFFFFFF != zlib.crc32(sources)):
        raise OSError(f"{path} is of another version than the sources beside it")
    library.native_level.restype = ctypes.c_int64
    kinds: dict[str, Any] = {
        "i": ctypes.c_int64, "d": ctypes.c_double, "p": ctypes.c_void_p, "o": ctypes.py_object, "-": None,
    }  # fmt: skip
    for name, returned, *arguments in map(str.split, _SIGNATURES.strip().splitlines()):
        if "o" in arguments:  # it calls Python's functions: it keeps the lock, and their errors are raised
            prototype = ctypes.PYFUNCTYPE(kinds[returned], *(kinds[argument] for argument in arguments))
            setattr(library, name, prototype((name, library)))
            continue
        function = getattr(library, name)
        function.restype, function.argtypes = kinds[returned], [kinds[argument] for argument in arguments]
    return library
