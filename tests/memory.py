"""How much memory a call takes at most."""

import tracemalloc


def peak_of(call):
    """Return the most bytes that Python holds for a call, above what it held before."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
