"""Compiling and opening the C kernels: which are taken, and what is said where none can be."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import hatch_build
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
    **{name: [str(Path(__file__).with_name(f"test_{name}.py"))] for name in ("farthest_spelling", "scan")},
}


def _printed_at(level, program):
    environment = {**os.environ, "PELLUCID_NATIVE": level, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, *program], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.full
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_level_of_the_processor_gives_the_same_bits(program):
    outcomes = {level: _printed_at(level, PROGRAMS[program]) for level in library.LEVELS}
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


def _kernels(folder):
    return sorted(folder.glob("compiled/kernels-*"))


def _fill(content):
    return lambda folder: [path.write_bytes(content) for path in _kernels(folder)] and None


def _remove(folder):
    for path in _kernels(folder):
        path.unlink()


def _change_a_source(folder):
    with open(folder / "words.c", "a", encoding="utf-8") as file:
        file.write("/* another argument */")


def _compile_another(folder):
    """Put a library there that has none of our functions."""
    (folder.parent / "other.c").write_text("int nothing(void) { return 0; }\n", encoding="utf-8")
    for path in _kernels(folder):
        path.unlink()
        subprocess.run(
            [*hatch_build.own_compiler(), "-shared", "-fPIC", "-o", path, folder.parent / "other.c"], check=True
        )


_TROUBLES = {
    "missing": (_remove, "No such file"),
    "empty": (_fill(b""), "file too short"),
    "text": (_fill(b"not a library at all " * 100), "invalid ELF header"),
    "stale": (_change_a_source, "is of another version than the sources beside it"),
    "another": (_compile_another, "is of another version than the sources beside it"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="the errors are those of Linux")
@pytest.mark.parametrize("trouble", _TROUBLES)
def test_a_library_that_cannot_be_loaded_is_an_error_that_says_how_to_build_it(folder, trouble):
    damage, message = _TROUBLES[trouble]
    damage(folder)
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
    done = subprocess.run([sys.executable, "-c", _FORK, when], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
