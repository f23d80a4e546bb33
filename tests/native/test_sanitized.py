"""The tests of the C kernels once more, with AddressSanitizer and UndefinedBehaviorSanitizer watching them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sanitized
from pellucid.native.library import LEVELS

TESTS = [
    "tests/native/test_farthest_spelling.py",
    "tests/native/test_hostile_arguments.py",
    "tests/native/test_scan.py",
    "tests/static/test_kernels.py",
    "tests/static/test_spelling.py",
    "tests/anchors/test_sampling.py",
    "tests/index/test_counting.py",
    "tests/lexicon/test_static_lexicon.py",
]
# Left out: what starts other processes, counts memory or threads, or runs libraries that stop under AddressSanitizer.
LEFT_OUT = "level or without_the_library or memory or tensors or kmeans or other_libraries or fork or spawn or torch"
PROGRAM = "from pellucid.native.library import library; print(library()._name)"


def run(command, env):
    return subprocess.run(
        [sys.executable, *command], cwd=sanitized.ROOT, env=env, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    found = sanitized.build(tmp_path_factory.mktemp("sanitized")) if sys.platform == "linux" else None
    if found is None:
        pytest.skip("there is no gcc with AddressSanitizer here")
    return {**os.environ, **found}


@pytest.mark.full
@pytest.mark.parametrize("level", LEVELS)
def test_nothing_outside_given_memory_is_read_or_written(environment, level):
    env = {**environment, "PELLUCID_NATIVE": level}
    done = run(["-c", PROGRAM], env)
    if "at most" in done.stderr:
        pytest.skip(f"this processor cannot do {level}")
    assert Path(done.stdout).is_relative_to(env["PYTHONPATH"].partition(os.pathsep)[0]), done.stderr[-3000:]
    options = ["-q", "-p", "no:cacheprovider", "-m", "full or not full", "-k", f"not ({LEFT_OUT})"]
    done = run(["-m", "pytest", *TESTS, *options], env)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.full
def test_the_sanitizers_would_tell(environment):
    program = (
        "import numpy as np; from pellucid.native.kernels import Table; from pellucid.native.library import library\n"
        "table = Table(np.ones((3, 64), np.float32), None)\n"
        "few, many = np.ones(9), np.ones(999)\n"
        "library().pooling_pairs(*(few.ctypes.data,) * 2, 3, 0, 64, *(many.ctypes.data,) * 3)"
    )
    done = run(["-c", program], environment)
    assert done.returncode != 0 and "AddressSanitizer: heap-buffer-overflow" in done.stderr
