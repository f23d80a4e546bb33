"""Many processes at one index: what was committed outlives kills, a reader sees one commit, nothing is lost."""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

import pellucid
import pellucid.index.commits as commits
import pellucid.index.writer as writer_module
from forking import at_once
from index_writer import created, look, opened, text_of
from pellucid.errors import IndexFolderError, InputError


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Merges come soon."""
    monkeypatch.setattr(writer_module, "FANOUT", 2)


@pytest.mark.skipif(sys.platform != "linux", reason="forks and mounts of Linux")
@pytest.mark.parametrize(
    "attack",
    ["kill", *(pytest.param(n, marks=pytest.mark.full) for n in ("writers", "readers", "full", "readonly"))],
)
def test_what_was_acknowledged_is_there_and_whole_after_an_attack(tmp_path, attack):
    """One round of each attack of `make fuzz`, which says what is asserted; a mount ends with its process.

    The process is a new one: it forks, and libraries of other tests may have threads here that a fork cannot have.
    """
    code = (
        "import random, sys; from pathlib import Path; from fuzz.indexes import ATTACKS; from fuzz.processes import "
        "own_mounts; own_mounts(); print(bool(ATTACKS[sys.argv[1]](random.Random(0), None, Path(sys.argv[2]))))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, f"index-{attack}", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0 and ran.stdout.splitlines()[-1] == "True", ran.stderr[-2000:]


# Readers beside a writer


def test_a_file_that_goes_between_two_looks_is_one_of_an_earlier_commit(tmp_path, monkeypatch):
    """Wherever a merge removes a file while it is being opened, the reader takes the later commit."""
    folder = tmp_path / "index"
    with created(folder) as index:
        segments = sys.modules["pellucid.index.segments"]
        for module, step in ((segments, "read_tensors"), (commits.File, "find_problem"), (commits, "checksum")):
            index.delete([own.id for own in index])
            index.add([text_of(1, 1)] * 2, ids=["a0", "b0"], metadata=[{"version": 1}] * 2)
            original, calls = getattr(module, step), []

            def late(*arguments, original=original, calls=calls):
                if not calls:
                    calls.append(1)
                    index.add([text_of(2, 1)] * 2, ids=["a0", "b0"], metadata=[{"version": 2}] * 2)
                return original(*arguments)

            with monkeypatch.context() as patched:
                patched.setattr(module, step, late)
                commit = commits.read_commit(folder)
            assert {document.metadata["version"] for document in commit.documents()} == {2}, step


def test_a_commit_of_the_same_moment_is_seen(tmp_path, monkeypatch):
    """Clocks of files tick in milliseconds, and numbers of files are used again."""
    with created(tmp_path / "index") as index, opened(tmp_path / "index", read_only=True) as reader:
        original, stamps = os.stat, set()
        for number in range(100):
            index.configure(word_weights={"abc": number % 5 + 1})
            stamps.add(original(tmp_path / "index" / "commit.json").st_mtime_ns)
            assert reader.word_weights == {"abc": number % 5 + 1}
    assert len(stamps) == 100


def test_a_clock_that_is_set_back_hides_no_commit(tmp_path):
    path = tmp_path / "index" / "commit.json"
    with created(tmp_path / "index") as index:
        later = time.time_ns() + 10**12
        os.utime(path, ns=(later, later))
        index.configure(word_weights={"abc": 2})
        assert path.stat().st_mtime_ns > later


# Several writers


def test_threads_of_one_index_and_of_two_lose_nothing(tmp_path):
    first, second = created(tmp_path / "index"), opened(tmp_path / "index")

    def work(index, name):
        for number in range(12):
            index.add([f"text {name} {number} abc"], ids=[f"{name}-{number}"])
            assert f"{name}-{number}" in index
            if number % 4 == 3:
                index.delete([f"{name}-{number}"])

    threads = [(index, f"{n}{k}") for n, index in enumerate((first, second)) for k in range(2)]
    assert at_once(*(partial(work, *arguments) for arguments in threads)) == []
    expected = {f"{n}{k}-{number}" for n in range(2) for k in range(2) for number in range(12) if number % 4 != 3}
    assert {document.id for document in first} == {document.id for document in second} == expected
    assert first.verify() == [] and second.verify() == []


def test_a_commit_over_a_later_one_is_refused(tmp_path):
    """Where a lock is not seen, as on some network drives, no acknowledged document is written over."""
    with created(tmp_path / "index") as index:
        writer = writer_module.Writer(tmp_path / "index", index._snapshot.commit)
        index.add(["abc"], ids=["theirs"])
        with pytest.raises(IndexFolderError, match="changed by another process"):
            writer.save(writer.commit.state)
        assert "theirs" in index
        late = index._snapshot.commit
        with opened(tmp_path / "index") as other:
            other.add(["abc"], ids=["more"])
        assert (
            writer_module.Writer(tmp_path / "index", late).commit.state.documents == 2
        )  # one that starts takes the later


# Copies, read-only media, full disks


def facts(folder):
    every = [folder, *sorted(folder.rglob("*"))]
    return [(str(path), path.stat().st_mtime_ns, path.stat().st_ctime_ns, path.stat().st_size) for path in every]


def test_what_is_opened_read_only_is_not_written(tmp_path):
    with created(tmp_path / "index") as index:
        index.add([text_of(1, 60)] * 2, ids=["a0", "b0"], metadata=[{"version": 1}] * 2)
    before = facts(tmp_path / "index")
    with opened(tmp_path / "index", read_only=True) as index:
        assert look(index) == "" and index.verify() == [] and len(index.info()) > 5
        assert index["a0"].id == "a0" and index.score("abc", "a0").score > 0
        for change in (
            lambda: index.add(["y"], ids=["x"]),
            lambda: index.update("a0", text="y"),
            lambda: index.delete("a0"),
            lambda: index.configure(weights={"bm25": 1}),
            index.rebuild,
        ):
            with pytest.raises(InputError, match="read_only=True"):
                change()
    assert facts(tmp_path / "index") == before


def test_what_is_wrong_is_found_on_media_that_cannot_be_written(tmp_path, monkeypatch):
    """Also a file that is not there; where another process removes one meanwhile, the next commit is looked at."""
    with created(tmp_path / "index") as index:
        for number in range(3):
            index.add([text_of(1, 60)], ids=[f"a{number}"])
        lost = next((tmp_path / "index" / "segments").iterdir())
    monkeypatch.setattr(os, "access", lambda *arguments: False)
    with opened(tmp_path / "index") as index, opened(tmp_path / "index", read_only=True) as reader:
        assert index.verify() == reader.verify() == []
        content = lost.read_bytes()
        lost.unlink()
        assert index.verify() == reader.verify() == [f"{lost.name} is missing"]
        lost.write_bytes(content[:-1] + b"x")
        assert "its checksum differs" in index.verify()[0]
        lost.write_bytes(content)
        find_problems = pellucid.index.index.find_problems

        def looked_at(*arguments):
            monkeypatch.undo()
            with opened(tmp_path / "index") as other:
                other.add(["abc"], ids=["late"])
            return [*find_problems(*arguments), "a file was missing"]

        monkeypatch.setattr("pellucid.index.index.find_problems", looked_at)
        assert reader.verify() == [] and len(reader) == 4


# Making one


def test_of_many_that_create_one_index_one_does_and_none_removes_it(tmp_path):
    folder = tmp_path / "index"

    def create():
        with created(folder) as index:
            index.add(["abc"], ids=["d"])

    errors = at_once(*[create] * 8)
    assert len(errors) == 7 and all(error.startswith("InputError") and "is not empty" in error for error in errors)
    with opened(folder) as index:
        assert len(index) == 1 and index.verify() == []
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
