"""What was committed outlives kills, failing calls and forks; a reader sees one commit, and nothing is lost."""

import copy
import errno
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import pellucid
import pellucid.index.commits as commits
import pellucid.index.writer as writer_module
from faults import failing_call
from forking import HAS_FORK, at_once, in_fork
from index_writer import created, look, opened, text_of, vectors
from pellucid import Index
from pellucid.errors import IndexFolderError, InputError, WritingError
from pellucid.persistence import store
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of a fork


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


# One failing system call, at each place of each change: the commit before or after is there, whole


def model():
    return StaticEmbedder(Vocabulary(["loan", "house", "bank"]), np.eye(3, dtype=np.float32))


CHANGES = {
    "add": lambda index: index.add(["a loan", "a house"], ids=["new", "0-0"]),
    "update": lambda index: index.update("1-0", text="a bank"),
    "delete": lambda index: index.delete(["0-0", "0-1", "0-2"]),  # most of a segment, which is merged then
    "merge": lambda index: index.add(["a house"] * 16, ids=[f"m{n}" for n in range(16)]),
    "rebuild": lambda index: index.rebuild(),
    "settings": lambda index: index.configure(word_weights={"loan": 2.0}),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults") / "index"
    with Index.create(folder, {"words": model()}) as index:
        for number in range(3):
            index.add(["a loan", "a house", "a bank", "the bank"], ids=[f"{number}-{n}" for n in range(4)])
    return folder


def texts(index):
    return {document.id: document.text for document in index}, index.word_weights


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("number", "after", "step"),
    [
        (errno.EIO, False, 7),
        *(
            pytest.param(number, after, 1, marks=pytest.mark.full)
            for number, after in ((errno.EIO, False), (errno.ENOSPC, False), (errno.EIO, True))
        ),
    ],
)
def test_a_failing_call_leaves_the_commit_before_or_after(whole, tmp_path, monkeypatch, change, number, after, step):
    """The files of the commit on disk are there, what the call says of it is true, and the next change is made."""
    monkeypatch.setattr(store, "MAX_REPLACE_S", 0.0)

    def run(position):
        folder = tmp_path / str(position)
        shutil.copytree(whole, folder)
        with Index.open(folder) as index:
            before, error = texts(index), None
            with failing_call(position, number, after=after) as count:
                try:
                    CHANGES[change](index)
                except WritingError as caught:
                    error = caught
            with Index.open(folder) as fresh:
                states = (before, expected or texts(fresh))
                assert texts(fresh) == texts(index) and fresh.verify() == [], position
            is_unchanged = "Nothing that was there is changed" in str(error)
            assert texts(index) in states[error is None : 2 - is_unchanged], f"{position}: {error}"
            index.add(["late"], ids=["late"])
        with Index.open(folder) as fresh:
            assert "late" in fresh and fresh.verify() == [], position
        named = {file.name for file in commits.read_state(folder).files()}
        assert {path.name for path in (folder / "segments").iterdir()} == named, position
        shutil.rmtree(folder)
        return count[0], states[1]

    expected = None
    n_calls, expected = run(0)
    for position in range(n_calls, 0, -step):  # the last ones put the commit in place
        run(position)


def test_an_index_whose_creation_fails_is_not_there_or_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "MAX_REPLACE_S", 0.0)
    with failing_call(0, errno.ENOSPC) as count:
        Index.create(tmp_path / "0", {}).close()
    for position in range(1, count[0] + 1):
        folder = tmp_path / str(position)
        with failing_call(position, errno.ENOSPC), suppress(WritingError):
            Index.create(folder, {}).close()
        if folder.exists():
            with Index.open(folder) as index:
                assert len(index) == 0 and index.verify() == []


def test_a_commit_that_no_reader_would_open_is_not_written(index_of, monkeypatch):
    monkeypatch.setattr(writer_module, "MAX_COMMIT_BYTES", 5000)
    index = index_of(["first"], ids=["first"])
    with pytest.raises(InputError, match=r"field names .* put what differs"):
        index.add(["more"], ids=["more"], metadata=[{f"votes of {n}": 1 for n in range(500)}])
    assert [document.id for document in index] == ["first"] and index.verify() == []


# Forks: a child is told to open the index, and leaves alone what is its parent's


@HAS_FORK
def test_a_child_is_told_to_open_the_index_itself(tmp_path):
    """Whatever a thread of the parent was doing: no lock is waited for that nobody will release."""
    folder = tmp_path / "index"
    index = created(folder)
    index.add(["abc", "cab"], ids=["a", "b"])
    hits = index.search("abc")
    held, done = threading.Event(), threading.Event()

    def hold():
        with index._snapshot_lock, index._snapshot.words._lock, index._exclusive_writer():
            held.set()
            done.wait(30)

    def child():
        calls = (
            lambda: index.search("abc"), lambda: len(index), lambda: index["a"], lambda: list(index), index.verify,
            lambda: index.add(["abc"]), lambda: index.delete(["a"]), index.rebuild, lambda: index.weights,
        )  # fmt: skip
        for call in calls:
            with pytest.raises(InputError, match=r"index was opened by the process .* pellucid\.Index\.open\("):
                call()
        with pytest.raises(InputError, match="open the index and search here"):
            hits[0].explain()
        index.close()
        with opened(folder) as mine:
            return [hit.id for hit in mine.search("abc", top_k=1)], hits[0].id

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    try:
        assert in_fork(child, 20) == "(['a'], 'a')"
    finally:
        done.set()
        thread.join()
    assert hits[0].explain().score == hits[0].score and index.verify() == []


@HAS_FORK
@pytest.mark.parametrize("ending", ["raise", "return", "close"])
def test_a_child_forked_within_a_change_does_not_make_it(tmp_path, ending):
    """A model that forks: the parent's change is made once, whole; the child is told, and opens its own."""
    children = []

    def forking(texts):
        if "fork" in texts and not children:
            children.append(os.fork())
            if not children[0] and ending == "raise":
                raise RuntimeError("in the child")
            if not children[0] and ending == "close":
                index.close()
        return vectors(texts)

    index = pellucid.Index.create(tmp_path / "index", {"letters": forking})
    index.add(["abc", "cab"], ids=["a", "b"])
    reader, pipe = os.pipe()
    said = ""
    try:
        index.update("a", text="fork")  # within the change, since the old document is read in it
    except Exception as error:
        said = type(error).__name__
    if not children[0]:
        os.write(pipe, said.encode())
        os._exit(0)
    os.waitpid(children[0], 0)
    os.close(pipe)
    with os.fdopen(reader) as file:
        assert file.read() == ("RuntimeError" if ending == "raise" else "InputError")
    assert said == "" and index["a"].text == "fork" and len(index) == 2 and index.verify() == []


@HAS_FORK
def test_a_child_that_ends_leaves_all_of_an_open_index(tmp_path):
    """By the interpreter's end, by the end of a block and by close, with a change of a thread of the parent."""
    script = """
    import os, sys, threading
    from pathlib import Path
    import pellucid, pellucid.index.writer as writer_module
    sys.path.insert(0, sys.argv[2])
    from index_writer import vectors
    folder, begun, go_on, save = Path(sys.argv[1]), threading.Event(), threading.Event(), writer_module.Writer.save
    def slow(*arguments):
        begun.set()
        go_on.wait(30)
        save(*arguments)
    def files():
        return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))
    with pellucid.Index.create(folder, {"letters": vectors}) as index:
        index.add(["abc"], ids=["a"])
        writer_module.Writer.save = slow
        thread = threading.Thread(target=index.add, args=(["abc"],), kwargs={"ids": ["b"]})
        thread.start()
        begun.wait(30)
        before = files()
        for how in ("end", "close", "block"):
            if not (child := os.fork()):
                if how == "close":
                    index.close()
                if how != "block":
                    sys.exit(0)
                break
            assert os.waitpid(child, 0)[1] == 0
            assert files() == before, how
        if child:
            go_on.set()
            thread.join()
            index.add(["abc"], ids=["c"])
            assert len(index) == 3 and index.verify() == []
            print("sound")
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "index"), str(Path(__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "sound\n", done.stderr


def test_an_open_index_is_neither_copied_nor_pickled(tmp_path):
    index = created(tmp_path / "index")
    for work in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InputError, match=r"opens it by its folder: pellucid\.Index\.open\('.*index'\)"):
            work(index)
