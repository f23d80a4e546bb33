"""Compiling and opening the C kernels: which are taken, what is said where none can be, wheels, and sanitizers."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

import hatch_build
import sanitized
from pellucid.errors import InputError, PellucidError
from pellucid.native import kernels, library

_ENCODE = """
import sys, zlib, numpy as np
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.precision import PackedRows, pack
from pellucid.text.words import Vocabulary
random = np.random.default_rng(0)
words = [f"{a}{b}" for a in "abcdefghij" for b in ("", "x", "ss", "lang" * 7)]
texts = [" ".join(random.choice(words, random.integers(0, 400))) + " é中 Ax" for _ in range(300)]
for dimension in (1, 17, 64, 100, 256, 300):
    for kind in ("float32", "float16", "int8", "even", "int4"):
        table, scales = random.standard_normal((len(words), dimension)), None
        if kind in ("float32", "float16"):
            table = table.astype(kind)
        else:
            scales = (np.full(len(words), 0.3) if kind == "even" else random.random(len(words))).astype(np.float32)
            table = (table * 40).astype(np.int8) if kind != "int4" else np.clip(table * 3, -7, 7).astype(np.int8)
            table = table if kind != "int4" else PackedRows(pack(table), dimension)
        model = StaticEmbedder(Vocabulary(words), table, scales=scales)
        rows = model.encode(texts)
        near = (rows[7] == model.encode(texts[7])).all()
        explained = model.explain(texts[0], texts[1])
        apart = zlib.crc32(explained.contributions.tobytes()), [row.key for row in explained.rows[:5]]
        print(dimension, kind, zlib.crc32(rows.tobytes()), near)
        print("explained", *apart)
"""


PROGRAMS = {  # of which each prints what a level gives: results that say so, or hashes
    "encoding": ["-c", _ENCODE],
    **{name: [str(Path(__file__).with_name(f"test_{name}.py"))] for name in ("kernel_arguments", "scan")},
}


def run(command, env):
    return subprocess.run(
        [sys.executable, *command], cwd=sanitized.ROOT, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.full
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_level_of_the_processor_gives_the_same_bits(program):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    outcomes = {level: run(PROGRAMS[program], {**environment, "PELLUCID_NATIVE": level}) for level in library.LEVELS}
    reached = {level: done.stdout for level, done in outcomes.items() if done.returncode == 0}
    assert "plain" in reached and set(reached.values()) == {reached["plain"]}
    assert "False" not in reached["plain"] and reached["plain"].count("\n") > 15
    for level in set(library.LEVELS) - set(reached):
        assert f"PELLUCID_NATIVE is '{level}', and this processor can do" in outcomes[level].stderr


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of the kernels and their sources, which are opened anew."""
    shutil.copytree(Path(library.__file__).parent, tmp_path / "native")
    monkeypatch.setattr(library, "_FOLDER", tmp_path / "native")
    monkeypatch.delenv("PELLUCID_NATIVE", raising=False)
    library.library.cache_clear()
    yield tmp_path / "native"
    library.library.cache_clear()


_KERNELS, _ANOTHER = "compiled/kernels-*", "is of another version than the sources beside it"
_TROUBLES = {  # the files, what becomes of their bytes, and what is said
    "missing": (_KERNELS, lambda content: None, "No such file"),
    "empty": (_KERNELS, lambda content: b"", "file too short"),
    "text": (_KERNELS, lambda content: b"not a library at all " * 100, "invalid ELF header"),
    "stale": ("words.c", lambda content: content + b"/* another argument */", _ANOTHER),
    "another": (_KERNELS, lambda content: content.replace(b"native_sources", b"native_nothing"), _ANOTHER),
}


@pytest.mark.skipif(sys.platform != "linux", reason="the errors are those of Linux")
@pytest.mark.parametrize("trouble", _TROUBLES)
def test_a_library_that_cannot_be_loaded_is_an_error_that_says_how_to_build_it(folder, trouble):
    pattern, damage, message = _TROUBLES[trouble]
    for path in folder.glob(pattern):
        content = damage(path.read_bytes())
        path.unlink() if content is None else path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(PellucidError, match=f"{message}.*Build them with `python hatch_build.py`"):
            library.library()


@pytest.mark.parametrize("value", ["fast", "OFF", "off", "avx", "0", " plain"])
def test_a_wrong_level_is_refused_at_every_use(monkeypatch, folder, value):
    monkeypatch.setenv("PELLUCID_NATIVE", value)
    for _ in range(2):
        with pytest.raises(InputError, match=f"PELLUCID_NATIVE is '{value}'; set it to plain, avx2, avx512, vnni"):
            library.library()


def _compiler(folder, refused):
    """Return a C compiler that fails where its command has a text; with "" it always does."""
    path = folder / "cc"
    real = " ".join(hatch_build.own_compiler())
    path.write_text(f'#!/bin/sh\ncase "$*" in *"{refused}"*) exit 1;; esac\nexec {real} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.skipif(not hatch_build.own_compiler(), reason="there is no C compiler")
def test_a_compiler_that_always_fails_is_passed_over_for_ziglang(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", _compiler(tmp_path, ""))
    assert hatch_build.own_compiler() == [] and hatch_build.KernelBuildHook.dependencies(None) == ["ziglang"]


@pytest.mark.full
@pytest.mark.skipif(not hatch_build.own_compiler(), reason="there is no C compiler")
def test_a_level_that_the_compiler_cannot_do_is_left_out(tmp_path, monkeypatch, folder):
    monkeypatch.setattr(hatch_build, "_ziglang", lambda options: [])
    monkeypatch.setenv("CC", _compiler(tmp_path, "-mavx512f"))
    monkeypatch.setattr(hatch_build, "LEVELS", {level: hatch_build.LEVELS[level] for level in ("plain", "avx512")})
    (compiled,) = hatch_build.compile_kernels(folder=folder / "compiled")
    assert compiled.name.startswith("kernels-plain.")
    assert "avx512" not in str(library.library()._name)


def test_threads_that_open_it_at_once_all_get_it(folder):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: kernels.distinct_values(np.arange(2))[0].tolist(), range(64)))
    assert found == [[0, 1]] * 64


_FORK = """
import os, sys, zlib
import numpy as np
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary
model = StaticEmbedder(Vocabulary(["one", "two"]), np.eye(2, dtype=np.float32))
texts = ["one two", "two two one"] * 2000
if sys.argv[1] == "used before":
    model.encode(texts)
child = os.fork()
rows = zlib.crc32(model.encode(texts).tobytes()) & 0x7F
if not child:
    os._exit(rows)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == rows
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("when", ["used before", "used after"])
def test_a_forked_process_gets_the_same(when):
    done = run(["-c", _FORK, when], os.environ)
    assert done.returncode == 0, done.stderr


# --- wheels for other platforms ---

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
    shutil.copytree(sanitized.ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("bundled", "compiled"))
    licences = ["LICENSE", "LICENSE-CC-BY-SA-4.0", "NOTICE"]
    for name in ("hatch_build.py", "pyproject.toml", "README.md", *licences):
        shutil.copy(sanitized.ROOT / name, tmp_path)
    own_kernel = tmp_path / "src" / "pellucid" / "native" / "compiled" / "kernels-plain.so"
    own_kernel.parent.mkdir()
    own_kernel.write_bytes(b"of this machine")

    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "made")]
    env = {**os.environ, "PELLUCID_TARGET": target, "CC": "no-such-compiler", "PELLUCID_REPOSITORY": "https://e.org/p"}
    subprocess.run(command, cwd=tmp_path, env=env, check=True)

    (wheel,) = (tmp_path / "made").iterdir()
    assert wheel.name.endswith(f"-py3-none-{TAGS[target]}.whl")
    levels = ["avx2", "avx512", "plain", "vnni"] if target.startswith("x86_64") else ["plain"]
    ending = "dylib" if target.endswith("macos") else "so"
    sources = "".join(path.read_text(encoding="utf-8") for path in (sanitized.ROOT / "src/pellucid/native").glob("*.c"))
    exported = re.findall(r"^EXPORT [^(]*?(\w+)\(", sources, re.MULTILINE)
    assert "native_level" in exported and len(exported) > 10
    with ZipFile(wheel) as packed:
        assert sorted(Path(name).name for name in packed.namelist() if "/licenses/" in name) == licences
        metadata = packed.read(next(name for name in packed.namelist() if name.endswith("/METADATA"))).decode()
        assert "License-Expression: Apache-2.0 AND CC-BY-SA-4.0\nLicense-File: " in metadata
        assert "\nProject-URL: Source, https://e.org/p\n" in metadata
        links = re.findall(r"\]\(([^)]+)\)", metadata)
        assert len(links) > 20 and all(re.match("https://e.org/p/(blob|raw)/v[0-9.]+/", link) for link in links)
        native = sorted(name for name in packed.namelist() if name.startswith("pellucid/native/"))
        kernels = [f"pellucid/native/compiled/kernels-{level}.{ending}" for level in levels]
        assert [name for name in native if not name.endswith(".py")] == kernels
        for kernel in kernels:
            content = packed.read(kernel)
            assert [name for name in exported if name.encode() not in content] == []
            assert tempfile.gettempdir().encode() not in content
    assert own_kernel.read_bytes() == b"of this machine"


@pytest.mark.full
@pytest.mark.needs("hatchling")
def test_a_wheel_holds_the_page_of_the_server(tmp_path):
    from hatchling.builders.wheel import WheelBuilder

    (built,) = WheelBuilder(str(sanitized.ROOT)).build(directory=str(tmp_path), versions=["standard"])
    inside = {Path(name).name for name in ZipFile(built).namelist() if name.startswith("pellucid/server/page/")}
    page = {path.name for path in (sanitized.ROOT / "src/pellucid/server/page").iterdir()}
    assert inside == page >= {"index.html", "explorer.js", "style.css"}


# --- the tests of the kernels once more, with AddressSanitizer and UndefinedBehaviorSanitizer watching them ---

TESTS = [
    "tests/native/test_kernel_arguments.py",
    "tests/native/test_scan.py",
    "tests/static/test_kernels.py",
    "tests/static/test_spelling.py",
    "tests/anchors/test_sampling.py",
    "tests/index/test_terms.py",
    "tests/lexicon/test_static_lexicon.py",
]
# Left out: what starts other processes, counts memory or threads, or runs libraries that stop under AddressSanitizer.
LEFT_OUT = "level or without_the_library or memory or tensors or kmeans or other_libraries or fork or spawn or torch"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    found = sanitized.build(tmp_path_factory.mktemp("sanitized")) if sys.platform == "linux" else None
    if found is None:
        pytest.skip("there is no gcc with AddressSanitizer here")
    return {**os.environ, **found}


@pytest.mark.full
@pytest.mark.parametrize("level", library.LEVELS)
def test_nothing_outside_given_memory_is_read_or_written(environment, level):
    env = {**environment, "PELLUCID_NATIVE": level}
    done = run(["-c", "from pellucid.native.library import library; print(library()._name)"], env)
    if "at most" in done.stderr:
        pytest.skip(f"this processor cannot do {level}")
    assert Path(done.stdout).is_relative_to(env["PYTHONPATH"].partition(os.pathsep)[0]), done.stderr[-3000:]
    options = ["-q", "-p", "no:cacheprovider", "-m", "full or not full", "-k", f"not ({LEFT_OUT})"]
    done = run(["-m", "pytest", *TESTS, *options], env)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.full
def test_the_sanitizers_would_tell(environment):
    program = (
        "import numpy as np\n"
        "from pellucid.native.kernels import VectorTable; from pellucid.native.library import library\n"
        "table = VectorTable(np.ones((3, 64), np.float32), None)\n"
        "few, many = np.ones(9), np.ones(999)\n"
        "library().pooling_pairs(*(few.ctypes.data,) * 2, 3, 0, 64, *(many.ctypes.data,) * 3)"
    )
    done = run(["-c", program], environment)
    assert done.returncode != 0 and "AddressSanitizer: heap-buffer-overflow" in done.stderr
