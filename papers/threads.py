"""How many threads a script's libraries start: set before numpy, torch or tokenizers are imported."""

from __future__ import annotations

import os

_NUMBERS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "PELLUCID_THREADS",
)


def set_threads(count: int | None, *, unless_set: bool = False) -> None:
    """Set the number of threads in the environment, for this process and those that it starts.

    Args:
        count: of the libraries that compute with numbers; None leaves it as it is. Tokenizers always get one thread:
            with more they warn at every fork.
        unless_set: keep what the environment has.
    """
    wanted = {} if count is None else dict.fromkeys(_NUMBERS, str(count))
    for name, value in {**wanted, "TOKENIZERS_PARALLELISM": "false"}.items():
        if not (unless_set and name in os.environ):
            os.environ[name] = value
