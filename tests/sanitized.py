"""The package with kernels compiled for AddressSanitizer and UndefinedBehaviorSanitizer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKS = "-g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"


def build(folder: Path) -> dict[str, str] | None:
    """Copy the package, compile its kernels with the checks and return the environment to run it in; None without gcc.

    Python's own memory comes from malloc, so that what lies beyond a string or an array is watched, too.
    """
    compiler = shutil.which("gcc")
    found = [
        subprocess.run([compiler, f"-print-file-name=lib{name}.so"], capture_output=True, text=True).stdout.strip()
        for name in ("asan", "ubsan")
        if compiler
    ]
    if not found or not all(Path(library).is_absolute() for library in found):
        return None
    source = folder / "src" / "pellucid"
    shutil.copytree(ROOT / "src" / "pellucid", source, ignore=shutil.ignore_patterns("bundled"))
    (source / "bundled").symlink_to(ROOT / "src" / "pellucid" / "bundled")
    shutil.copy(ROOT / "hatch_build.py", folder)
    subprocess.run(
        [sys.executable, "hatch_build.py"], cwd=folder, env={**os.environ, "CC": f"{compiler} {CHECKS}"}, check=True
    )
    return {
        "PYTHONPATH": os.pathsep.join(map(str, (folder / "src", ROOT, ROOT / "tests"))),
        "LD_PRELOAD": " ".join(found),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "PYTHONMALLOC": "malloc",
        "PELLUCID_CHECKED": "1",
    }
