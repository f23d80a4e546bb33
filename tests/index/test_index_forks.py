"""An index is opened after a fork: a child is told so, and leaves alone what is its parent's."""

import copy
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import pellucid
from forking import HAS_FORK, in_fork
from index_writer import created, opened, vectors
from pellucid.errors import InputError

pytestmark = [HAS_FORK, pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")]


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
