"""Wheels for other platforms: what their names say, and what is in them."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
TAGS = {
    "aarch64-linux": "manylinux_2_17_aarch64",
    "aarch64-musl": "musllinux_1_2_aarch64",
    "x86_64-macos": "macosx_11_0_x86_64",
}
"""Without Windows: where ziglang has not compiled for it before, it builds the system's libraries for minutes."""


@pytest.mark.full
@pytest.mark.needs("ziglang", "hatchling")
@pytest.mark.parametrize("target", TAGS)
def test_a_wheel_has_the_kernels_of_its_platform_alone(target, tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("bundled", "compiled"))
    licences = ["LICENSE", "LICENSE-CC-BY-SA-4.0", "NOTICE"]
    for name in ("hatch_build.py", "pyproject.toml", "README.md", *licences):
        shutil.copy(ROOT / name, tmp_path)
    own = tmp_path / "src" / "pellucid" / "native" / "compiled" / "kernels-plain.so"
    own.parent.mkdir()
    own.write_bytes(b"of this machine")

    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "made")]
    env = {**os.environ, "PELLUCID_TARGET": target, "CC": "no-such-compiler", "PELLUCID_REPOSITORY": "https://e.org/p"}
    subprocess.run(command, cwd=tmp_path, env=env, check=True)

    (wheel,) = (tmp_path / "made").iterdir()
    assert wheel.name.endswith(f"-py3-none-{TAGS[target]}.whl")
    levels = ["avx2", "avx512", "plain", "vnni"] if target.startswith("x86_64") else ["plain"]
    ending = "dylib" if target.endswith("macos") else "so"
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/pellucid/native").glob("*.c"))
    exported = re.findall(r"^EXPORT [^(]*?(\w+)\(", sources, re.MULTILINE)
    assert "native_level" in exported and len(exported) > 10
    with ZipFile(wheel) as packed:
        assert sorted(Path(name).name for name in packed.namelist() if "/licenses/" in name) == licences
        metadata = packed.read(next(name for name in packed.namelist() if name.endswith("/METADATA"))).decode()
        assert "License-Expression: Apache-2.0 AND CC-BY-SA-4.0\nLicense-File: " in metadata
        assert "\nProject-URL: Source, https://e.org/p\n" in metadata
        links = re.findall(r"\]\(([^)]+)\)", metadata)
        assert len(links) > 20 and all(re.match("https://e.org/p/(blob|raw)/v[0-9.]+/", link) for link in links)
        page = {name for name in packed.namelist() if name.startswith("pellucid/server/page/")}
        assert page == {f"pellucid/server/page/{path.name}" for path in (ROOT / "src/pellucid/server/page").iterdir()}
        assert "pellucid/server/page/index.html" in page
        native = sorted(name for name in packed.namelist() if name.startswith("pellucid/native/"))
        kernels = [f"pellucid/native/compiled/kernels-{level}.{ending}" for level in levels]
        assert [name for name in native if not name.endswith(".py")] == kernels
        for kernel in kernels:
            content = packed.read(kernel)
            assert [name for name in exported if name.encode() not in content] == []
            assert tempfile.gettempdir().encode() not in content
    assert own.read_bytes() == b"of this machine"
