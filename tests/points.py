"""Vectors to choose points from."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

small_numbers = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 70), st.integers(1, 5)), elements=st.integers(-3, 3).map(float)
)


def clusters(count: int = 5000, dimension: int = 48, dtype: type = np.float32) -> np.ndarray:
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(60, dimension))
    return (centres[rng.integers(60, size=count)] + 0.5 * rng.normal(size=(count, dimension))).astype(dtype)
