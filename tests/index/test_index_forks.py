"""An index in forked processes: threads of a child lose nothing, and a child leaves alone what is its parent's."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("Stemmer")

import pellucid
import pellucid.index.segments as segments
import pellucid.index.writer as writer_module
from forking import HAS_FORK, at_once, in_fork
from index_writer import created, vectors
from pellucid.errors import InputError
from pellucid.persistence.store import locked

pytestmark = [HAS_FORK, pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")]


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Merges come soon."""
    monkeypatch.setattr(writer_module, "FANOUT", 2)


@pytest.fixture
def rarely_alone():
    """Threads take turns at every chance."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def output_of(script, folder):
    """Run a script in a process without threads; return what it printed, or its errors."""
    command = [sys.executable, "-c", textwrap.dedent(script), str(folder), str(Path(__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if not done.returncode else done.stderr


def writers(index, name, count=3):
    """Threads that add a document each, and one that searches before."""

    def add(number):
        if not number:
            index.search("abc")
        index.add(["of a child"], ids=[f"{name}-{number}"])

    return [lambda number=number: add(number) for number in range(count)]


def test_no_thread_of_a_child_is_without_the_lock_of_another_one(tmp_path, monkeypatch):
    """One makes locks slowly, if it makes any; one is slow in its change; one begins last."""
    index, lock, save = created(tmp_path / "index"), threading.RLock, writer_module.Writer.save
    index.add(["abc"], ids=["first"])

    def slow_lock():
        time.sleep(0.2 * (threading.current_thread().name == "0"))
        return lock()

    def slow_save(*arguments):
        time.sleep(0.6 * (threading.current_thread().name == "1"))
        save(*arguments)

    def child():
        monkeypatch.setattr(threading, "RLock", slow_lock)
        monkeypatch.setattr(writer_module.Writer, "save", slow_save)
        threads = [threading.Thread(target=work, name=f"{n}") for n, work in enumerate(writers(index, "child", 3))]
        for thread in threads:
            thread.start()
            time.sleep(0.05 if thread.name == "0" else 1)
        for thread in threads:
            thread.join()

    held = threading.Event()

    def hold():
        with locked(tmp_path / "index", 5):
            held.set()
            time.sleep(0.8)

    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(5)
    assert in_fork(child) == "None"
    other.join()
    assert {document.id for document in index} == {"first", *(f"child-{n}" for n in range(3))}
    assert index.verify() == []


@pytest.mark.full
def test_children_that_fork_again_lose_nothing(tmp_path, rarely_alone):
    """What a thread of the parent does meanwhile is in the attack "forks" of `test_index_durability.py`."""
    index = created(tmp_path / "index")

    def child(name):
        errors = at_once(*writers(index, name))
        said = in_fork(lambda: at_once(*writers(index, f"{name}-of")))
        return errors + [said] * (said != "[]")

    for number in range(12):
        assert in_fork(lambda number=number: child(number), 90) == "[]"
    names = [f"{number}{of}" for number in range(12) for of in ("", "-of")]
    assert {document.id for document in index} == {f"{name}-{n}" for name in names for n in range(3)}
    assert index.verify() == []


@pytest.mark.parametrize("ending", ["raise", "return", "close"])
def test_a_child_forked_within_a_change_does_not_make_it(tmp_path, ending):
    """A model that forks: the parent's change is made once, whole; the child is told, and can make its own."""
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
        said = f"{type(error).__name__}: {error}"
    if not children[0]:
        try:
            if ending != "close":
                index.add(["abc"], ids=["child"])
                said += f" {'child' in index}"
        except BaseException as error:
            said += f" {error!r}"
        os.write(pipe, said.encode())
        os._exit(0)
    os.waitpid(children[0], 0)
    os.close(pipe)
    with os.fdopen(reader) as file:
        child = file.read()
    refusals = {"raise": "RuntimeError", "return": "IndexFolderError", "close": "InputError"}
    assert child.startswith(refusals[ending])
    assert child.endswith("True") or ending == "close"
    assert said == "" and index["a"].text == "fork" and len(index) == 3 - (ending == "close")
    assert index.verify() == []


def test_a_child_that_ends_leaves_all_of_an_open_index(tmp_path):
    """By the interpreter's end, by the end of a block, by close, and with a change of a thread of the parent."""
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
    assert output_of(script, tmp_path / "index") == "sound\n"


@pytest.mark.full
def test_a_child_never_writes_the_files_of_an_engine_that_its_parent_has_open(tmp_path):
    pytest.importorskip("qdrant_edge")
    script = """
    import os, sys
    from pathlib import Path
    import pellucid
    from pellucid.engines import Edge
    sys.path.insert(0, sys.argv[2])
    from index_writer import vectors
    folder = Path(sys.argv[1])
    def files():
        return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))
    index = pellucid.Index.create(folder, {"letters": vectors}, engine=Edge())
    index.add(["abc", "cab"], ids=["a", "b"])
    before = files()
    for how in ("end", "close", "delete"):
        if not (child := os.fork()):
            try:
                index.search("abc")
            except pellucid.errors.InputError:
                if how == "close":
                    index.close()
                if how == "delete":
                    del index
                sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert files() == before, how
    index.add(["abc"], ids=["c"])
    assert len(index) == 3 and index.verify() == []
    print("sound")
    """
    assert output_of(script, tmp_path / "index") == "sound\n"


def test_hits_of_the_parent_can_be_explained_in_a_child_whatever_its_threads_were_doing(tmp_path):
    """The words of an index are read under a lock, by each thread that explains."""
    index = pellucid.Index.create(tmp_path / "index")
    index.add(["a loan for a house", "the rate of mortgages"], ids=["a", "b"])
    hits, held, done = index.search("house loans"), threading.Event(), threading.Event()

    def hold():
        with index._snapshot.words._lock:
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    try:
        said = in_fork(lambda: (hits[0].explain().score, [hit.id for hit in index.search("loan")]), 20)
    finally:
        done.set()
        thread.join()
    assert said == repr((hits[0].explain().score, [hit.id for hit in index.search("loan")]))


def test_a_word_has_its_own_number_wherever_it_was_interrupted(tmp_path):
    """A process that is forked, or an interrupt, between the two halves of learning a word."""
    index = pellucid.Index.create(tmp_path / "index", {})
    words = index._snapshot.words

    class Interrupted(list):
        def append(self, word):
            raise KeyboardInterrupt

    spelled, words._spelled = words._spelled, Interrupted(words._spelled)
    with pytest.raises(KeyboardInterrupt):
        words._number("house")
    words._spelled = spelled
    numbers = [words._number(word) for word in ("loan", "house", "loan")]
    assert [words._spelled[number] for number in numbers] == ["loan", "house", "loan"]


def test_an_open_index_is_neither_copied_nor_pickled(tmp_path):
    index = created(tmp_path / "index")
    for work in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InputError, match=r"opens it by its folder: pellucid\.Index\.open\('.*index'\)"):
            work(index)


def test_a_child_forked_while_a_property_is_computed_can_compute_it(tmp_path, monkeypatch):
    """No lock is left behind that a thread of the parent held: up to Python 3.11 functools' properties have one."""
    index = created(tmp_path / "index")
    index.add(["a b c", "abc", "c"], ids=["a", "b", "c"])
    index.delete(["a"])
    started, go_on = threading.Event(), threading.Event()

    def slow(*arguments, **options):
        if threading.current_thread() is not threading.main_thread():
            started.set()
            go_on.wait(60)
        return np.ones(*arguments, **options)

    segment = index._snapshot.commit.segments[0]
    vars(segment).pop("live", None)
    monkeypatch.setattr(segments, "np", SimpleNamespace(**{**vars(np), "ones": slow}))
    thread = threading.Thread(target=lambda: segment.live)
    thread.start()
    assert started.wait(10)
    try:
        assert in_fork(lambda: [hit.id for hit in index.search("abc")], 20) == "['b', 'c']"
    finally:
        go_on.set()
        thread.join()
