"""Many processes at one index: what was committed outlives kills, a reader sees one commit, nothing is lost."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("Stemmer")

import pellucid
import pellucid.index.commits as commits
import pellucid.index.writer as writer_module
from index_writer import look, opened, pairs, text_of, vectors, wrong_in
from pellucid.errors import IndexFolderError, InputError, PellucidError, WritingError
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary

PROGRAM = Path(__file__).parents[1] / "index_writer.py"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="mounts and forks of Linux")


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Merges come soon."""
    monkeypatch.setattr(writer_module, "FANOUT", 2)


def started(*arguments):
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def created(folder):
    return pellucid.Index.create(folder, {"letters": vectors}, passage_characters=400)


def killed_writer(folder, seed, *, delay=0.0, operation=0):
    """Run the writer until its death, `delay` seconds after it has opened or at a file operation; what it said."""
    process = started("write", folder, seed, operation)
    assert process.stdout.readline() == "open\n"
    if not operation:
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
    said = process.stdout.read().splitlines()
    assert process.wait() == -signal.SIGKILL
    return said


def applied(documents, change):
    """The documents after a change: id -> text."""
    if change["kind"] == "add":
        return documents | dict.fromkeys(change["ids"], text_of(change["version"], change["size"]))
    if change["kind"] == "delete":
        return {own: text for own, text in documents.items() if own not in change["ids"]}
    return documents


def allowed(documents, said):
    """What the index may hold after the lines that a killed writer said: its last change may have been made or not."""
    whole = [json.loads(line) for line in said if line.startswith("{") and line.endswith("}")]
    done = said.count("done")
    for change in whole[:done]:
        documents = applied(documents, change)
    return [documents] + [applied(documents, change) for change in whole[done : done + 1]]


def survive(folder, kills, seed):
    """Kill writers, by the clock and at file operations; nothing acknowledged is lost, and all is sound."""
    chance = random.Random(seed)
    created(folder).close()
    documents = {}
    for kill in range(kills):
        how = {"operation": chance.randint(1, 400)} if kill % 2 else {"delay": chance.uniform(0, 0.5)}
        said = killed_writer(folder, 1000 * seed + kill, **how)
        with opened(folder) as index:
            found = {document.id: document.text for document in index}
            assert found in allowed(documents, said), how
            assert look(index) == "" and index.verify() == []
            documents = found
            assert len(index) == len(documents)
        names = {path.name for path in folder.iterdir()}
        assert names >= {"commit.json", "index.json", "segments"}
    with opened(folder) as index:  # the next commit removes all that is left over
        index.add(["abc"], ids=["last"])
        used = {file.name for pair in index._snapshot.commit.state.segments for file in pair if file}
    assert {path.name for path in (folder / "segments").iterdir()} == used
    assert [path.name for path in folder.glob(".*") if path.name != ".lock"] == []


@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.full)])
def test_what_was_committed_outlives_kills_at_random_moments(tmp_path, kills):
    survive(tmp_path / "index", kills, seed=1)


@pytest.mark.slow
def test_what_was_committed_outlives_a_hundred_kills(tmp_path):
    survive(tmp_path / "index", kills=100, seed=2)


# Readers beside a writer


def read_beside(folder, seconds, kills, seed):
    """Let four readers look while one writes; kill readers and writers, and start others. Return looks and commits."""
    created(folder).close()
    chance, looks, commits_seen, killed = random.Random(seed), 0, 0, 0
    writer = started("write", folder, seed, 0)
    readers = [started("read", folder, seconds) for _ in range(4)]
    for process in (writer, *readers):
        assert process.stdout.readline() == "open\n"
    drain = threading.Thread(target=lambda: writer.stdout.read())
    drain.start()
    end = time.monotonic() + seconds
    while killed < kills:
        time.sleep(max(0.0, (end - time.monotonic()) / (2 * (kills - killed))) * chance.random())
        if killed % 3 == 2:
            writer.kill()
            writer.wait()
            drain.join()
            writer = started("write", folder, seed + 1000 + killed, 0)
            assert writer.stdout.readline() == "open\n"
            drain = threading.Thread(target=lambda own=writer: own.stdout.read())
            drain.start()
        else:
            place = chance.randrange(len(readers))
            if readers[place].poll() is None:
                readers[place].kill()
                readers[place].communicate()
            elif readers[place].returncode != -signal.SIGKILL:
                looks, commits_seen = counted(readers[place], looks, commits_seen)
            readers[place] = started("read", folder, max(0.5, end - time.monotonic()))
            assert readers[place].stdout.readline() == "open\n"
        killed += 1
    for reader in readers:
        looks, commits_seen = counted(reader, looks, commits_seen)
    writer.kill()
    writer.wait()
    drain.join()
    with opened(folder) as index:
        assert look(index) == "" and index.verify() == []
    return looks, commits_seen


def counted(reader, looks, commits_seen):
    said = reader.communicate()[0].split()
    assert reader.returncode == 0, " ".join(said)
    return looks + int(said[1]), max(commits_seen, int(said[2]))


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.full)])
def test_readers_see_one_commit_while_another_process_writes(tmp_path, kills):
    looks, commits_seen = read_beside(tmp_path / "index", 1 + kills, kills, seed=3)
    assert looks > 0 and commits_seen > 1


@pytest.mark.slow
def test_readers_see_one_commit_through_a_hundred_kills(tmp_path):
    looks, commits_seen = read_beside(tmp_path / "index", 150, 100, seed=4)
    assert looks > 100 and commits_seen > 50


@pytest.mark.full
def test_a_reader_that_opens_meets_no_file_that_a_merge_removes(tmp_path):
    """Opening again and again while every commit removes files: the later commit is taken, no error is told."""
    folder, stop, problems, opens = tmp_path / "index", threading.Event(), [], 0
    index = created(folder)
    index.add([text_of(0, 1)] * 2, ids=["a0", "b0"], metadata=[{"version": 0}] * 2)

    def write():
        version = 0
        while not stop.is_set():
            version += 1
            index.add([text_of(version, 1)] * 2, ids=["a0", "b0"], metadata=[{"version": version}] * 2)

    writer = threading.Thread(target=write)
    writer.start()
    end = time.monotonic() + 3
    try:
        while time.monotonic() < end:
            commit = commits.read_commit(folder)
            problems += [problem for problem in [wrong_in(commit.documents())] if problem]
            opens += 1
    finally:
        stop.set()
        writer.join()
    assert problems == [] and opens > 20
    assert index.verify() == []


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


@pytest.mark.full
@pytest.mark.parametrize("count", [12, pytest.param(150, marks=pytest.mark.slow)])
def test_no_acknowledged_document_of_two_writers_is_lost(tmp_path, count):
    with created(tmp_path / "index") as index:
        writers = [started("add", tmp_path / "index", name, count) for name in ("one", "two")]
        own = [f"own-{number}" for number in range(5)]
        for name in own:
            index.add([f"text {name} abc"], ids=[name])
        said = [writer.communicate()[0].split() for writer in writers]
        assert [writer.returncode for writer in writers] == [0, 0]
        assert [len(one) for one in said] == [count, count]
        assert {document.id for document in index} == {*said[0], *said[1], *own}
        assert index.verify() == []


def test_threads_of_one_index_and_of_two_lose_nothing(tmp_path):
    folder, errors = tmp_path / "index", []
    first = created(folder)
    second = opened(folder)

    def work(index, name):
        try:
            for number in range(12):
                index.add([f"text {name} {number} abc"], ids=[f"{name}-{number}"])
                assert f"{name}-{number}" in index
                if number % 4 == 3:
                    index.delete([f"{name}-{number}"])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index, f"{n}{k}")) for n, index in enumerate((first, second))
               for k in range(2)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
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


def test_a_copy_made_while_another_thread_writes_opens_or_says_why_not(tmp_path):
    """In one process: the lock of the original is not lost by reading its file."""
    folder, stop, count = tmp_path / "index", threading.Event(), [0]
    index = created(folder)
    changes, outcomes = random.Random(6), []

    def write():
        while not stop.is_set():
            count[0] += 1
            for _ in pairs(index, changes, version=count[0]):
                pass

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(30):
            copy = tmp_path / f"copy-{number}"
            try:
                shutil.copytree(folder, copy)
            except shutil.Error:
                outcomes.append("not copied")  # a file went meanwhile, as the copy says
                continue
            try:
                with opened(copy) as made:
                    assert look(made) == "" and made.verify() == []
                    made.add(["abc"], ids=["new"])
                outcomes.append("opened")
            except IndexFolderError as error:
                assert "lacks a file that its commit names" in str(error) or "is damaged" in str(error)
                outcomes.append("refused")
    finally:
        stop.set()
        writer.join()
    shutil.copytree(folder, tmp_path / "at rest")
    with opened(tmp_path / "at rest") as made:
        assert look(made) == "" and made.verify() == []
    assert look(index) == "" and index.verify() == []


def test_reading_the_files_of_an_index_releases_no_lock(tmp_path):
    """Within a change the folder is copied; another process must still wait."""
    folder = tmp_path / "index"
    script = (
        "import sys\nfrom pathlib import Path\nfrom pellucid.errors import InputError\n"
        "from pellucid.persistence.store import locked\n"
        "try:\n    with locked(Path(sys.argv[1])): print('in')\nexcept InputError: print('waits')"
    )
    with created(folder) as index:
        index.add(["abc"], ids=["a"])
        with index._exclusive_writer():
            shutil.copytree(folder, tmp_path / "copy")
            ran = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True)
        assert ran.stdout == "waits\n", ran.stderr
    with opened(tmp_path / "copy") as copy:
        copy.add(["abc"], ids=["b"])


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


@pytest.fixture
def disk(tmp_path):
    """A small file system of its own, and what makes it read-only, writable, or of another size; for root."""
    if sys.platform != "linux" or os.geteuid():
        pytest.skip("needs root, for a small file system")
    place = tmp_path / "disk"
    place.mkdir()

    def mount(*options):
        ran = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place)], capture_output=True
        )
        if ran.returncode:
            pytest.skip("file systems cannot be mounted here")

    mount("size=256m")
    yield place, mount
    subprocess.run(["umount", "-l", str(place)], check=False)


def test_an_index_on_read_only_media_is_searched_and_not_changed(disk):
    place, mount = disk
    with created(place / "index") as index:
        index.add([text_of(1, 60)] * 2, ids=["a0", "b0"], metadata=[{"version": 1}] * 2)
    mount("remount", "ro")
    for read_only in (True, False):
        with opened(place / "index", read_only=read_only) as index:
            assert look(index) == ""
            with pytest.raises((WritingError, InputError)):
                index.add(["y"], ids=["x"])
            assert look(index) == "" and index.verify() == []


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


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.full) for n in range(1, 20))])
def test_a_full_disk_leaves_what_was_there(disk, monkeypatch, seed):
    """Whatever it is that finds no room: a segment, a merge, a rebuild, a commit."""
    place, mount = disk
    monkeypatch.setattr("pellucid.index.writer.MIN_FREE_BYTES", -(1 << 40))
    chance, refused = random.Random(seed), 0
    index = created(place / "index")
    documents = {}
    for version in range(1, 40):
        used = sum(-(-path.stat().st_size // 4096) * 4096 for path in place.rglob("*") if path.is_file())
        tight = version > 3 and version % 2
        mount("remount", f"size={used + chance.randrange(0, 20_000) if tight else 256 << 20}")
        try:
            (change,) = pairs(index, chance, version=version)
            documents = applied(documents, change)
        except WritingError as error:
            refused += 1
            assert error.errno == errno.ENOSPC and "Nothing that was there is changed" in str(error)
        assert {document.id: document.text for document in index} == documents
        assert look(index) == ""
        with opened(place / "index", read_only=True) as reader:
            assert look(reader) == "" and {document.id: document.text for document in reader} == documents
    mount("remount", "size=256m")
    index.add([text_of(99, 1)] * 2, ids=["a0", "b0"], metadata=[{"version": 99}] * 2)
    assert look(index) == "" and index.verify() == [] and refused
    used = {file.name for pair in index._snapshot.commit.state.segments for file in pair if file}
    assert {path.name for path in (place / "index" / "segments").iterdir()} == used


# Making one


def test_of_many_that_create_one_index_one_does_and_none_removes_it(tmp_path):
    folder, outcomes, start = tmp_path / "index", [], threading.Barrier(8)

    def create(number):
        start.wait()
        try:
            with created(folder) as index:
                index.add(["abc"], ids=[f"d{number}"])
            outcomes.append("made")
        except PellucidError as error:
            outcomes.append(f"{error}")

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("made") == 1
    assert all("exists and is not empty" in outcome for outcome in outcomes if outcome != "made")
    with opened(folder) as index:
        assert len(index) == 1 and index.verify() == []
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_an_index_that_is_open_stays_the_same_wherever_the_process_goes(tmp_path, monkeypatch):
    """By a relative path, `create` and `open`, searched and changed, with a model that was given by a relative path."""
    monkeypatch.chdir(tmp_path)
    StaticEmbedder(Vocabulary(["loan", "house"]), np.eye(2, dtype=np.float32)).save_pretrained("my-model")
    with pellucid.Index.create("my-index", "my-model") as index, pellucid.Index.open("./my-index") as again:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        index.add(["a loan"], ids=["a"])
        again.add(["a house"], ids=["b"])
        assert [hit.id for hit in index.search("loan")] == [hit.id for hit in again.search("loan")] == ["a"]
        again.rebuild()  # its copy of the model is made from there, too
        assert index.verify() == again.verify() == [] and not any((tmp_path / "elsewhere").iterdir())
    shutil.rmtree(tmp_path / "my-model")
    with pellucid.Index.open(tmp_path / "my-index", rebuild=True) as index:
        assert len(index) == 2
    with pellucid.Index.open("../my-index") as index:
        assert [hit.id for hit in index.search("loan")] == ["a"]


def test_an_index_opened_twice_in_one_process_is_one(tmp_path):
    with created(tmp_path / "index") as first, opened(tmp_path / "index") as second:
        first.add(["abc"], ids=["a"])
        second.add(["abc"], ids=["b"])
        assert len(first) == len(second) == 2
        first.delete("b")
        assert "b" not in second


def test_of_many_that_create_one_index_one_has_it(tmp_path):
    folder, problems, start = tmp_path / "index", [], threading.Barrier(8)

    def create(number):
        start.wait()
        try:
            with pellucid.Index.create(folder, {"letters": vectors}) as index:
                index.add(["abc"], ids=[f"d{number}"])
        except InputError as error:
            problems.append(error)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(problems) == 7 and all("is not empty" in str(error) for error in problems)
    with opened(folder) as index:
        assert len(index) == 1 and index.verify() == []


def test_a_folder_with_something_else_is_never_replaced(tmp_path):
    """Neither a model nor files of the user."""
    StaticEmbedder(Vocabulary(["a", "b"]), np.eye(2, dtype=np.float32)).save_pretrained(tmp_path / "model")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("kept")
    before = facts(tmp_path)
    for name in ("model", "mine"):
        with pytest.raises(InputError, match="is not empty"):
            pellucid.Index.create(tmp_path / name, {"letters": vectors})
    assert facts(tmp_path) == before


@pytest.mark.parametrize("name", [".", "..", "a\0b"])
def test_a_part_has_a_name_that_its_copy_can_have(tmp_path, name):
    with pytest.raises(InputError, match="a part is called"):
        pellucid.Index.create(tmp_path / "index", {name: vectors})
