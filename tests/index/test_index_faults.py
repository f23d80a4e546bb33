"""One failing system call, at each place of each change of an index: the commit before or after is there, whole."""

import errno
import os
import shutil
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import pellucid.index.commits as commits
import pellucid.index.writer as writer_module
from pellucid import Index
from pellucid.errors import InputError, PellucidError, WritingError
from pellucid.persistence import store
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary

CALLS = [
    (os, "fsync"), (os, "replace"), (os, "unlink"), (os, "utime"), (os, "chmod"), (Path, "unlink"), (Path, "touch"),
    (Path, "mkdir"), (Path, "write_bytes"), (Path, "write_text"), (store, "save_file"), (os, "rmdir"),
]  # fmt: skip


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


@contextmanager
def failing_call(position, number, *, after=False):
    """Let the system call at a position fail, before or after it is made; yield what counts them."""
    count = [0]

    def failing(original):
        def call(*arguments, **options):
            count[0] += 1
            is_it = count[0] == position
            if is_it and not after:
                raise OSError(number, os.strerror(number))
            result = original(*arguments, **options)
            if is_it:
                raise OSError(number, os.strerror(number))
            return result

        return call

    with ExitStack() as stack:
        for owner, name in CALLS:
            stack.enter_context(patch.object(owner, name, failing(getattr(owner, name))))
        yield count


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
    monkeypatch.setattr(writer_module, "FANOUT", 2)
    monkeypatch.setattr(store, "MAX_REPLACE_S", 0.0)

    def run(position):
        folder = tmp_path / str(position)
        shutil.copytree(whole, folder)
        with Index.open(folder) as index:
            before, error = texts(index), None
            with failing_call(position, number, after=after) as count:
                try:
                    CHANGES[change](index)
                except (PellucidError, OSError) as caught:
                    error = caught
            with Index.open(folder) as fresh:
                states = (before, expected or texts(fresh))
                assert texts(fresh) == texts(index) and fresh.verify() == [], position
            if error is None:
                assert texts(index) == states[1], position
            else:
                assert isinstance(error, WritingError), position
                assert texts(index) in states, position
                said_unchanged = "Nothing that was there is changed" in str(error)
                assert not said_unchanged or texts(index) == before, f"{position}: {error}"
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


def test_a_busy_file_is_replaced_when_it_is_free(tmp_path):
    """As on Windows, where a file that a reader has open for a moment cannot be replaced."""
    replace, left = os.replace, [2]

    def busy(source, target):
        if str(target).endswith("commit.json") and left[0]:
            left[0] -= 1
            raise PermissionError(errno.EACCES, "used by another process", str(target))
        return replace(source, target)

    with Index.create(tmp_path / "index", {}) as index:
        with patch.object(os, "replace", busy):
            index.add(["a cat"])
        assert len(index) == 1
        left[0] = 10**6
        with (
            patch.object(os, "replace", busy),
            patch.object(store, "MAX_REPLACE_S", 0.05),
            pytest.raises(WritingError, match=r"commit\.json.*close the programs"),
        ):
            index.add(["a dog"])
        assert len(index) == 1 and index.verify() == []
