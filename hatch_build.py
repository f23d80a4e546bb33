"""Compiles the C kernels when pellucid is installed or a wheel is built, and writes addresses into its metadata.

The compiler is $CC, else cc. Where it is absent or fails, it is the one of the PyPI package ziglang, which is installed
for the build. A level that no compiler can do is left out, except "plain". PELLUCID_TARGET names another platform for
ziglang to compile for: "aarch64-linux", see `TARGETS`.

    python hatch_build.py                   # compile in a clone, after a change to a C file
    python hatch_build.py --wheels DIR      # wheels for all of `TARGETS`; needs pip install hatchling ziglang

PELLUCID_REPOSITORY is the address of the repository, such as https://github.com/OWNER/pellucid. If it is set, a package
index shows it, and README's links lead there; .github/workflows/release.yml sets it to its own.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent
FOLDER = ROOT / "src" / "pellucid" / "native"
FLAGS = ["-std=c11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden", "-Wall",
         "-Werror=implicit-function-declaration", "-Wno-psabi", "-shared"]  # fmt: skip
# A dylib is called by the path it was written to if nothing else is said.
OWN_FLAGS = {"so": "-fPIC", "dylib": "-fPIC -Wl,-install_name,@rpath/{}", "dll": ""}
# x86-64 alone has levels: a file for what every such processor can do, and one for each set of newer instructions.
LEVELS = {
    "plain": [],
    "avx2": ["-mavx2", "-mbmi", "-mbmi2", "-mpopcnt", "-mf16c"],
    "avx512": ["-mavx2", "-mbmi", "-mbmi2", "-mpopcnt", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512vl"],
}
LEVELS["vnni"] = [*LEVELS["avx512"], "-mavx512vnni"]


class Target(NamedTuple):
    """A platform to compile for."""

    zig: str  # as ziglang calls it
    tag: str  # as wheels call it
    ending: str = "so"

    @property
    def has_levels(self) -> bool:
        """Whether it is x86-64."""
        return self.zig.startswith("x86_64")


TARGETS = {
    "x86_64-linux": Target("x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64"),
    "aarch64-linux": Target("aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64"),
    "x86_64-musl": Target("x86_64-linux-musl", "musllinux_1_2_x86_64"),
    "aarch64-musl": Target("aarch64-linux-musl", "musllinux_1_2_aarch64"),
    "x86_64-macos": Target("x86_64-macos.11.0", "macosx_11_0_x86_64", "dylib"),
    "aarch64-macos": Target("aarch64-macos.11.0", "macosx_11_0_arm64", "dylib"),
    "x86_64-windows": Target("x86_64-windows-gnu", "win_amd64", "dll"),
}


def this_platform() -> Target:
    """Return the platform that this runs on."""
    tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    return Target(machine, tag, {"darwin": "dylib", "win32": "dll"}.get(sys.platform, "so"))


def own_compiler() -> list[str]:
    """Return the command of this machine's C compiler, [] where there is none that works."""
    names = (os.environ.get("CC", ""), *map(shutil.which, ("cc", "gcc", "clang")))
    compiler = shlex.split(next(filter(None, names), ""))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "trial.c")
        source.write_text("#include <math.h>\n#include <string.h>\nint f(void) { return 0; }\n", encoding="utf-8")
        return compiler if compiler and _compiles([*compiler, "-shared", "-o", f"{source}.o", str(source)]) else []


def _compiles(command: list[str]) -> bool:
    """Whether a compiler's command succeeds; what it writes is shown."""
    try:
        return subprocess.run(command, check=False).returncode == 0
    except OSError:
        return False


def _ziglang(options: list[str]) -> list[str]:
    """Return the command of ziglang's compiler, [] where it is not installed."""
    if importlib.util.find_spec("ziglang") is None:
        return []
    return [sys.executable, "-m", "ziglang", "cc", "-s", *options]  # -s: else the files name folders here


def sources_number() -> int:
    """Return the number that a compiled file carries: library.py computes it of the sources beside it, and compares."""
    return zlib.crc32(b"".join(path.read_bytes() for path in sorted(FOLDER.glob("*.[ch]"))))


def compile_kernels(target: str = "", folder: Path = FOLDER / "compiled") -> list[Path]:
    """Compile the kernels into a folder, one beside their sources if none is named, and return the files."""
    folder.mkdir(exist_ok=True)
    aim = TARGETS[target] if target else this_platform()
    zig = _ziglang(["-target", aim.zig] if target else [])
    compilers = [compiler for compiler in ([] if target else own_compiler(), zig) if compiler]
    if not compilers:
        sys.exit("pellucid: no C compiler works; install one (apt-get install gcc), or pip install ziglang")
    compiled = []
    for level in LEVELS if aim.has_levels else ["plain"]:
        path = folder / f"kernels-{level}.{aim.ending}"
        tmp_path = path.with_suffix(f".{os.getpid()}")  # a process may have the old file open
        flags = [*FLAGS, *LEVELS[level], *OWN_FLAGS[aim.ending].format(path.name).split()]
        flags.append(f"-DPELLUCID_SOURCES={sources_number()}u")
        sources = sorted(str(source) for source in FOLDER.glob("*.c"))
        if any(_compiles([*compiler, *flags, "-o", str(tmp_path), *sources, "-lm"]) for compiler in compilers):
            tmp_path.replace(path)
            compiled.append(path)
            continue
        if level == "plain":
            sys.exit("pellucid: the kernels cannot be compiled; install another C compiler, or pip install ziglang")
        path.unlink(missing_ok=True)  # of an earlier version
        sys.stderr.write(f"pellucid: no compiler can do the level {level!r}; a lower one will serve\n")
    return compiled


def absolute_links(text: str, repository: str, version: str) -> str:
    """Return Markdown whose links to files lead to a repository: a package index has the README alone."""
    for mark, view in (("!", "raw"), ("", "blob")):  # an image, another file
        link = rf"(?<!!){mark}(\[[^\[\]]*\])\((?!https?:|#)([^)]+)\)"
        text = re.sub(link, rf"{mark}\1({repository}/{view}/v{version}/\2)", text)
    return text


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # run as a script
    BuildHookInterface = MetadataHookInterface = object


class AddressHook(MetadataHookInterface):  # type: ignore[misc]
    """Takes README.md, and the addresses in it, from the repository that PELLUCID_REPOSITORY names."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` and `urls`."""
        text, repository = (ROOT / "README.md").read_text(encoding="utf-8"), os.environ.get("PELLUCID_REPOSITORY", "")
        metadata["urls"] = {}
        if repository:
            text = absolute_links(text, repository, metadata["version"])
            metadata["urls"] = {
                "Source": repository,
                "Documentation": f"{repository}/blob/v{metadata['version']}/docs/index.md",
                "Changes": f"{repository}/blob/v{metadata['version']}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class KernelBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Compiles the kernels for a wheel or an editable installation."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what the build needs besides hatchling."""
        return [] if own_compiler() and not os.environ.get("PELLUCID_TARGET") else ["ziglang"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tag the wheel with the platform: it goes with every Python."""
        target = os.environ.get("PELLUCID_TARGET", "")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{(TARGETS[target] if target else this_platform()).tag}"
        if version == "editable":
            compile_kernels(target)
            return
        self._aside = tempfile.TemporaryDirectory()  # those of a clone stay as they are
        for path in compile_kernels(target, Path(self._aside.name)):
            build_data["force_include"][str(path)] = f"pellucid/native/compiled/{path.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel has taken."""
        if version != "editable":
            self._aside.cleanup()


def build_wheels(folder: str) -> None:
    """Build a wheel for each platform with ziglang."""
    for target in TARGETS:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(Path(folder).resolve())]
        subprocess.run(command, cwd=ROOT, env=os.environ | {"PELLUCID_TARGET": target}, check=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            compile_kernels(os.environ.get("PELLUCID_TARGET", ""))
        case ["--wheels", folder]:
            build_wheels(folder)
        case _:
            sys.exit(__doc__)
