"""Files are whole or absent; tensors are what was written, and a lying header is refused."""

import errno
import json
import os
import re
import struct
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from damage import damages, flips
from faults import failing_call
from forking import HAS_FORK, in_fork
from pellucid.core import dimensions
from pellucid.core.dimensions import Dimension, Dimensions, write_dimensions
from pellucid.errors import InputError, ModelFolderError, WritingError
from pellucid.persistence import store
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.persistence.folder import saving
from resuming import assert_damage_is_refused


def write_model(path, text):
    with store.writing_folder(path) as folder:
        (folder / "words.txt").write_text(text)
        (folder / "config.json").write_text(json.dumps({"pellucid": {"files": ["words.txt"]}}))


@pytest.fixture
def old_model(tmp_path):
    write_model(tmp_path / "m", "old")


def names(path):
    return sorted(entry.name for entry in path.iterdir())


def put(files):
    """Write texts into files of the folder of the process, where `write_model` saves models."""
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def everything():
    """Return all that is in the folder of the process."""
    return {path: path.read_bytes() if path.is_file() else path.lstat().st_mode for path in Path().rglob("*")}


def failing(code):
    """Return a function that fails as the system does."""

    def fail(*arguments, **options):
        raise OSError(code, os.strerror(code))

    return fail


def safetensors_bytes(header, data=b""):
    described = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(described)) + described + data


def test_written_tensors_are_read_by_the_safetensors_library_and_the_other_way_round(tmp_path):
    tensors = {
        "bytes": np.arange(5, dtype=np.int8),
        "halves": np.arange(6, dtype=np.float16).reshape(2, 3),
        "floats": np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2],
        "empty": np.zeros((0, 7), np.int64),
        "number": np.array(3.5),
    }
    store.write_tensors(tmp_path / "a.safetensors", tensors, {"note": "é"})
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, tmp_path / "b.safetensors", {"note": "é"})
    for read in (load_file(tmp_path / "a.safetensors"), store.read_tensors(tmp_path / "b.safetensors")[0]):
        assert read.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert read[name].dtype == tensor.dtype
            np.testing.assert_array_equal(read[name].reshape(tensor.shape), tensor)
    mapped, metadata = store.read_tensors(tmp_path / "a.safetensors")
    assert metadata == {"note": "é"}
    assert not mapped["floats"].flags.writeable and mapped["floats"].flags.aligned


@given(arrays.arrays(st.sampled_from([np.float32, np.int8, np.int64]), arrays.array_shapes(min_side=0)))
def test_any_array_comes_back(tmp_path_factory, array):
    path = tmp_path_factory.mktemp("any") / "x.safetensors"
    store.write_tensors(path, {"x": array})
    np.testing.assert_array_equal(store.read_tensors(path)[0]["x"], array)


def entry(shape, start, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    "content",
    {
        "nothing": b"",
        "short": b"1234567",
        "header beyond the file": struct.pack("<Q", 1 << 60) + b"{}",
        "not JSON": safetensors_bytes(b"{oops"),
        "not UTF-8": safetensors_bytes(b'{"\xff": 1}'),
        "deep": safetensors_bytes(b"[" * 200_000),
        "endless number": safetensors_bytes(b"9" * 10_000),
        "a list": safetensors_bytes([]),
        "entry is a number": safetensors_bytes({"x": 1}),
        "no dtype": safetensors_bytes({"x": {"shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
        "unknown dtype": safetensors_bytes({"x": entry([1], 0, 4, "Q7")}, bytes(4)),
        "dtype is a list": safetensors_bytes({"x": entry([1], 0, 4, [])}, bytes(4)),
        "shape of strings": safetensors_bytes({"x": entry(["a", "b"], 0, 4)}, bytes(4)),
        "shape of bools": safetensors_bytes({"x": entry([True], 0, 4)}, bytes(4)),
        "negative side": safetensors_bytes({"x": entry([-1, -1], 0, 4)}, bytes(4)),
        "overflowing shape": safetensors_bytes({"x": entry([2**62, 4], 0, 0)}),
        "huge side times zero": safetensors_bytes({"x": entry([2**70, 0], 0, 0)}),
        "two huge sides times zero": safetensors_bytes({"x": entry([2**40, 2**40, 0], 0, 0)}),
        "many axes": safetensors_bytes({"x": entry([1] * 100, 0, 4)}, bytes(4)),
        "beyond the end": safetensors_bytes({"x": entry([2], 0, 8)}, bytes(4)),
        "offsets reversed": safetensors_bytes({"x": entry([1], 4, 0)}, bytes(4)),
        "three offsets": safetensors_bytes({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 4]}}, bytes(4)),
        "overlap": safetensors_bytes({"x": entry([1], 0, 4), "y": entry([1], 0, 4)}, bytes(4)),
        "hole": safetensors_bytes({"x": entry([1], 4, 8)}, bytes(8)),
        "bytes left over": safetensors_bytes({"x": entry([1], 0, 4)}, bytes(8)),
    }.items(),
    ids=lambda item: item[0],
)
def test_a_lying_header_is_refused_with_the_files_name(tmp_path, content):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content[1])
    with pytest.raises(ModelFolderError, match=r"bad\.safetensors"):
        store.read_tensors(path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "not a regular file"), (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (os.mkdir, "not a regular file"), (lambda path: None, "not found"),
        (lambda path: path.write_text("[" + " " * 100 + "]"), "50 bytes"),
    ],
)  # fmt: skip
def test_what_is_no_file_or_a_large_one_is_not_read(tmp_path, make, message):
    make(tmp_path / "x.json")
    with pytest.raises(ModelFolderError, match=message):
        store.read_json(tmp_path / "x.json", max_bytes=50)


MODEL = {"m/words.txt": "old", "m/config.json": '{"pellucid": {"files": ["words.txt"]}}'}
REFUSED = [  # what is there, what is written, and the message
    *((lambda: put({"folder/x": ""}), lambda name=name: store.write_json(name, 1), "is a folder; give the name of a f")
      for name in ("", ".", "..", "folder", "folder/..")),
    *((lambda file=file, text=text: put({file: text}), lambda file=file: write_model(file.partition("/")[0], "new"),
       "Give a new name")
      for file, text in (("thesis/chapter1.txt", "years"), ("other/config.json", '{"model_type": "bert"}'), ("f", ""))),
    *((lambda pipe=pipe: (put(MODEL | {"m/notes/x": ""}), os.mkfifo(pipe)), lambda: write_model("m", "new"),
       rf"{pipe} is neither a file nor a link.*new name") for pipe in ("m/queue", "m/notes/queue")),
    *((lambda: (put({"file": ""}), os.symlink("loop", "loop")), lambda write=write, place=place: write(place),
       rf"cannot write .*{place}")
      for place in ("file/model", "a" * 300, "loop/model")
      for write in (lambda place: write_model(place, "new"), lambda place: WorkFolder(place).__enter__())),
    *((lambda make=make, lock=lock: (put({"work/x": ""}), make(Path(lock))), write, rf"{lock} must be a file")
      for make in (os.mkdir, os.mkfifo, lambda path: path.symlink_to("."), lambda path: path.symlink_to(path.name))
      for lock, write in (("work/.lock", lambda: WorkFolder("work").__enter__()),
                          (".x.json.lock", lambda: store.write_json("x.json", 1)))),
    *((lambda: put({"x": "before"}), write, r"x would have .* can be opened again; it is not written") for write in (
        lambda: store.write_json("x", ["x" * 100], max_bytes=99),
        lambda: store.write_tensors("x", {"n" * 300: np.zeros(1)}),
        lambda: write_dimensions("x", Dimensions([Dimension("n" * 300)])))),
    (lambda: None, lambda: save_settings("b" * (1 << 20)), "config.json would have"),
    pytest.param(lambda: os.chmod(".", 0o500), lambda: store.write_json("value.json", 1), r"value\.json",
                 marks=pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")),
]  # fmt: skip


def save_settings(value):
    with saving("m", "x", {"a": value}):
        pass


@pytest.mark.parametrize(("make", "write", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_written_is_refused_and_what_is_there_stays(tmp_path, monkeypatch, make, write, message):
    monkeypatch.chdir(tmp_path)
    for module, limit in ((store, "_MAX_HEADER"), (dimensions, "_MAX_BYTES")):
        monkeypatch.setattr(module, limit, 256)
    make()
    before = everything()
    with pytest.raises((InputError, WritingError), match=message):
        write()
    assert everything() == before


@pytest.mark.parametrize("in_one_step", [True, False])
def test_a_model_is_replaced_and_its_owners_files_stay_the_same_files(tmp_path, monkeypatch, in_one_step):
    """Whatever their size, also where a save fails; links stay links; other file systems get copies."""
    if not in_one_step:
        monkeypatch.setattr(store, "_exchange", lambda first, second: False)
    (tmp_path / "m").mkdir()
    write_model(tmp_path / "m", "old")  # in the place of an empty folder
    (tmp_path / "m" / ".git").mkdir()
    (tmp_path / "m" / "zeros").symlink_to("/dev/zero")
    files = [tmp_path / "m" / name for name in ("notes.md", ".git/HEAD", "private")]
    for file in files:
        file.write_text("mine")
    files[2].chmod(0o600)
    inodes, modes = [file.stat().st_ino for file in files], [file.stat().st_mode for file in files]
    with store.writing_folder(tmp_path / "m") as folder:
        (folder / "config.json").write_text('{"pellucid": {}}')
    with pytest.raises(RuntimeError), store.writing_folder(tmp_path / "m") as folder:
        (folder / "words.txt").write_text("half")
        raise RuntimeError("in the middle")
    assert names(tmp_path / "m") == [".git", "config.json", "notes.md", "private", "zeros"]  # words.txt was the model's
    assert [file.stat().st_ino for file in files] == inodes and all(file.stat().st_nlink == 1 for file in files)
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    (tmp_path / "link").symlink_to("m")
    write_model(tmp_path / "link", "newer")
    assert [file.read_text() for file in files] == ["mine"] * 3 and (tmp_path / "m" / "zeros").is_symlink()
    assert [file.stat().st_mode for file in files] == modes and names(tmp_path) == ["link", "m"]
    assert (tmp_path / "link").is_symlink() and (tmp_path / "m" / "words.txt").read_text() == "newer"


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_files_have_the_mode_that_the_process_gives_new_ones_which_never_changes(tmp_path, monkeypatch, mask):
    """Other threads make files at the same time: the umask is the process's own, and is not touched."""
    before = os.umask(mask)
    try:
        monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask was changed"))
        (tmp_path / "folder").mkdir()
        (tmp_path / "file").touch()
        store.write_tensors(tmp_path / "x.safetensors", {"x": np.zeros(3)})  # by a library that renames, too
        with store.writing_folder(tmp_path / "m") as folder:
            save_file({"x": np.zeros(3)}, folder / "x.safetensors")
            (folder / "nested").mkdir()
            (folder / "nested" / "run.sh").touch(0o777)
    finally:
        monkeypatch.undo()
        os.umask(before)
    for path in ("x.safetensors", "m/x.safetensors"):
        assert (tmp_path / path).stat().st_mode == (tmp_path / "file").stat().st_mode
    for path in ("m", "m/nested"):
        assert (tmp_path / path).stat().st_mode == (tmp_path / "folder").stat().st_mode


def write_run(path, text):
    with WorkFolder(path) as work:
        work.append("rows", np.full((1, 2), text == "new", np.float16))
        work.save("table", {"x": np.full(3, text == "new", np.int8)})
        work.commit({"text": text, "n_rows": len(work.array("rows"))})


def read_run(path):
    """Return what was committed last, after checking that what was appended and saved is of that moment."""
    with WorkFolder(path) as work:
        text, rows = work.metadata["text"], work.array("rows")
        assert len(rows) == work.metadata["n_rows"] and (rows[-1] == (text == "new")).all()
        assert (work.load("table")["x"] == (text == "new")).all()
        return text


KINDS = {
    "file": (store.write_json, store.read_json),
    "model": (write_model, lambda path: (path / "words.txt").read_text()),
    "run": (write_run, read_run),
}


@HAS_FORK
@pytest.mark.parametrize("how", ["once", "lasting", pytest.param("is_killed", marks=pytest.mark.full)])
@pytest.mark.parametrize(("kind", "in_one_step"), [("file", True), ("run", True), ("model", True), ("model", False)])
def test_at_whichever_call_a_disk_is_full_or_a_writer_killed_the_old_one_is_there_or_the_new(
    tmp_path, monkeypatch, kind, in_one_step, how
):
    """What is left is in nobody's way: the next one puts back what was aside and removes the rest."""
    path, (write, read), n_aside = tmp_path / "m", KINDS[kind], 0
    monkeypatch.setattr(store, "MAX_REPLACE_S", 0.0)
    if not in_one_step:
        monkeypatch.setattr(store, "_exchange", lambda first, second: False)

    def attempt(position):
        with failing_call(position, errno.ENOSPC, **{how: True} if how != "once" else {}) as count:
            write(path, "new")
        return count[0]

    write(path, "old")
    if kind == "model":
        (path / "notes.md").write_text("mine")
    for position in range(1, 1 + attempt(0)):
        write(path, "old")
        assert names(tmp_path) == ["m"] and len([*path.glob("table.*")]) < 2
        assert kind != "model" or (path / "notes.md").read_text() == "mine"
        message = ""
        try:
            in_fork(partial(attempt, position)) if how == "is_killed" else attempt(position)
        except WritingError as error:
            message = str(error)
            assert "No space left on device" in message and str(path) in message and error.errno == errno.ENOSPC
        is_aside = not path.exists() and (how == "is_killed" or "m is at" in message)
        n_aside += is_aside
        assert is_aside or read(path) in ("old", "new")
        if "Nothing that was there is changed" in message:
            assert read(path) == "old" and "free some space" in message
    assert bool(n_aside) == (not in_one_step and how != "once")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_is_found_wherever_it_is(dtype, value, monkeypatch, tmp_path):
    monkeypatch.setattr(store, "_BLOCK", 4)
    for place in range(11):
        array = np.full(11, -3, dtype)
        assert store.is_sound(array)
        array[place] = value
        assert not store.is_sound(array)
        store.write_tensors(tmp_path / "x.safetensors", {"a": np.ones(3, np.int8), "b": array})
        assert store.broken_tensor(tmp_path / "x.safetensors") == "b"


@pytest.mark.parametrize(
    ("bits", "broken"),  # 1, -2 and the largest number, then NaN and infinity
    [([0x3F80, 0xC000, 0x7F7F], None), ([0x3F80, 0x7FC0, 0xC000], "x"), ([0x3F80, 0x3F80, 0xFF80], "x")],
)
def test_bfloat16_is_searched_without_torch(tmp_path, bits, broken):
    described = safetensors_bytes({"x": entry([3], 0, 6, "BF16")}, np.array(bits, "<u2").tobytes())
    (tmp_path / "x.safetensors").write_bytes(described)
    assert store.broken_tensor(tmp_path / "x.safetensors") == broken
    with pytest.raises(ModelFolderError, match="broken header"):
        store.read_tensors(tmp_path / "x.safetensors")


def test_numbers_beyond_a_bound_are_found():
    assert store.is_sound(np.array([1e15, -1e15], np.float64), 1e15)
    assert not store.is_sound(np.array([1.0, -2e15], np.float32), 1e15)
    assert store.is_sound(np.zeros((0, 3), np.float32)) and store.is_sound(np.array([200], np.uint8), 1)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"), WritingError),
        (Exception("No space left on device (os error 28)"), WritingError),  # of tokenizers
        (
            RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
            WritingError,
        ),  # torch.save
        (OSError(errno.EIO, os.strerror(errno.EIO)), WritingError),
        *((error, type(error)) for error in (RuntimeError("no (os error 2)"), KeyError("x"))),
        (InputError("no (os error 28)"), InputError),
    ],
)
def test_a_full_disk_that_another_library_met_is_named_too_and_other_errors_stay(tmp_path, error, expected):
    message = r"cannot write .*model: (No space|Input/output)" if expected is WritingError else re.escape(str(error))
    with pytest.raises(expected, match=message), store.writing_folder(tmp_path / "model"):
        raise error
    assert not names(tmp_path)


def test_what_killed_writers_of_a_file_left_is_removed_and_nothing_else(tmp_path):
    others = [".x.json.bak", ".x.json.part", ".x.json.y.abcd1234.part", ".y.json.abcd1234.part", "x.json.abcd1234.part"]
    for name in [".x.json.abcd1234.part", ".x.json.lock", *others]:
        (tmp_path / name).write_text("half")
    store.write_json(tmp_path / "x.json", 1)
    assert names(tmp_path) == sorted(["x.json", *others])


@HAS_FORK
def test_what_a_library_left_beside_its_file_when_it_was_killed_is_removed_by_the_next_writer(tmp_path, monkeypatch):
    def killed(tensors, path, metadata):
        path.with_name(".tmpAbC123").touch()  # as safetensors does
        os._exit(0)

    with monkeypatch.context() as patch:
        patch.setattr(store, "save_file", killed)
        in_fork(lambda: store.write_tensors(tmp_path / "a.safetensors", {"a": np.zeros(3)}))
    assert len([*tmp_path.rglob("*")]) > 3
    with store.writing(tmp_path / "b.safetensors") as other:  # of a living writer
        other.write_text("b")
        store.write_tensors(tmp_path / "a.safetensors", {"a": np.zeros(3)})
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["a.safetensors", "b.safetensors"]


@pytest.mark.parametrize(("kind", "n_refusals"), [("file", 2), ("model", 2), ("file", 10**6)])
def test_what_is_busy_is_tried_again_for_a_second(tmp_path, monkeypatch, kind, n_refusals):
    """On Windows nothing can be renamed while somebody reads it."""
    replace, left, (write, read) = os.replace, [n_refusals], KINDS[kind]

    def busy(source, target):
        if left[0]:
            left[0] -= 1
            failing(errno.EACCES)()
        replace(source, target)

    write(tmp_path / "m", "old")
    monkeypatch.setattr(store, "_exchange", lambda first, second: False)
    monkeypatch.setattr(store, "MAX_REPLACE_S", 0.1)
    monkeypatch.setattr(os, "replace", busy)
    with pytest.raises(WritingError, match=r"replace .*m: .*close the programs") if left[0] > 9 else nullcontext():
        write(tmp_path / "m", "new")
    assert read(tmp_path / "m") == ("old" if left[0] else "new") and names(tmp_path) == ["m"]


@pytest.mark.usefixtures("old_model")
def test_the_second_saver_waits_for_the_first(tmp_path):
    """Else it takes over files of a model that it did not know of when it began."""

    def save_more():
        with store.writing_folder(tmp_path / "m") as folder:
            (folder / "subwords.json").write_text("{}")
            (folder / "config.json").write_text(json.dumps({"pellucid": {"files": ["subwords.json"]}}))

    with ThreadPoolExecutor(1) as pool:
        with store.writing_folder(tmp_path / "m") as folder:
            (folder / "words.txt").write_text("first")
            (folder / "config.json").write_text(json.dumps({"pellucid": {"files": ["words.txt"]}}))
            second = pool.submit(save_more)
            time.sleep(0.3)
            assert not second.done()
        second.result()
    assert names(tmp_path / "m") == ["config.json", "subwords.json"] and names(tmp_path) == ["m"]


def test_a_saver_that_waits_for_too_long_is_told_for_whom(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_PATIENCE", 0.1)
    with (
        store.writing(tmp_path / "x.json"),
        pytest.raises(WritingError, match=rf"process {os.getpid()} since .* has been"),
    ):
        store.write_json(tmp_path / "x.json", 1)
    store.write_json(tmp_path / "x.json", 2)
    assert names(tmp_path) == ["x.json"]


def test_a_file_system_without_locks_is_written_to_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("filelock.FileLock.acquire", failing(errno.ENOLCK))
    (tmp_path / ".x.json.abcd1234.part").write_text("perhaps another's")
    store.write_json(tmp_path / "x.json", 1)
    assert names(tmp_path) == [".x.json.abcd1234.part", "x.json"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no exchange in one step")
def test_a_reader_sees_a_whole_model_at_every_moment_of_a_save(tmp_path):
    write_model(tmp_path / "m", "version 0")
    script = """
    import sys
    sys.path[:0] = [sys.argv[2], sys.argv[2] + "/.."]
    from test_store import write_model
    for version in range(30):
        write_model(sys.argv[1], f"version {version}")
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "m"), os.path.dirname(__file__)]
    seen = set()
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            seen.add((tmp_path / "m" / "words.txt").read_text())
            time.sleep(0.0005)
    assert process.returncode == 0
    assert len(seen) > 1 and all(text.startswith("version") for text in seen)


# Work folders


def read_in(folder, texts, stop=None, commit=True):
    """Read texts under one key, up to `stop`; return those that came."""
    with WorkFolder(folder) as work:
        came = []
        for text in work.texts("corpus", texts, "texts.txt"):
            came.append(text)
            if len(came) == stop:
                break
        if commit:
            work.commit({"read": len(came)})
        return came


TEXTS = [f"text {number}" for number in range(3_000)]


@pytest.mark.parametrize("stop", [1, 1024, 1500, 2999, 3000, None])
def test_texts_read_before_are_proven_and_the_others_noted(tmp_path, stop):
    assert read_in(tmp_path, TEXTS, stop) == TEXTS[:stop]
    assert read_in(tmp_path, iter(TEXTS)) == TEXTS and read_in(tmp_path, TEXTS) == TEXTS
    assert len(json.loads((tmp_path / "state.json").read_text())["texts"]["corpus"]["blocks"]) == 3


@pytest.mark.parametrize("place", [0, 1023, 1024, 1499])
@pytest.mark.parametrize(
    "changed",
    [
        lambda text, later, *others: [f"{text}!", later, *others],
        lambda text, *others: [*others],
        lambda text, later, *others: [text + later[0], later[1:], *others],  # the same characters in the same order
    ],
    ids=["other", "less", "moved"],
)
def test_no_text_that_changed_gets_out(tmp_path, place, changed):
    read_in(tmp_path, TEXTS, 1500)
    before = (tmp_path / "state.json").read_bytes()
    texts = [*TEXTS[:place], *changed(*TEXTS[place:])]
    came = []
    first, last = (0, 1024) if place < 1024 else (1024, 2048)
    told = rf"texts\.txt is not .* {tmp_path} .*: texts {first + 1:,} to {last:,} are not the same.*Give that"
    with WorkFolder(tmp_path) as work, pytest.raises(InputError, match=told):
        came.extend(work.texts("corpus", texts, "texts.txt"))
    assert (came, (tmp_path / "state.json").read_bytes()) == (TEXTS[:first], before)
    assert read_in(tmp_path, TEXTS) == TEXTS


@pytest.mark.parametrize(
    ("n_texts", "message"),
    [
        (2049, "texts 2,049 to 2,049 are not the same"),
        (1024, "it ends after 1,024 texts"),
        (1026, "texts 1,025 to 1,026 are not the same"),
    ],
)
def test_a_corpus_that_ended_may_neither_grow_nor_shrink(tmp_path, n_texts, message):
    read_in(tmp_path, TEXTS[:2048])
    with pytest.raises(InputError, match=message):
        read_in(tmp_path, TEXTS[:n_texts])


def test_settings_and_texts_that_were_not_committed_do_not_count(tmp_path):
    read_in(tmp_path, ["a", "b"], commit=False)
    with WorkFolder(tmp_path) as work:
        work.bind_settings({"n": 1})
    with WorkFolder(tmp_path) as work:
        work.bind_settings({"n": 2})
        assert list(work.texts("corpus", ["c"], "texts.txt")) == ["c"] and not work.metadata
        work.commit()
        with pytest.raises(InputError, match=r"another run \(different: m, n\); give the same arguments"):
            work.bind_settings({"m": 2, "n": 3})


def test_any_damage_of_a_work_folder_is_refused_by_name(tmp_path):
    def run(folder):
        with WorkFolder(folder) as work:
            if "rows" not in work:
                work.append("rows", np.arange(6).reshape(3, 2))
                work.save("table", {"x": np.arange(5.0)})
                work.save_texts("words", ["a", "b", "é"])
                work.commit({"step": 1})
            work.array("rows"), work.load("table"), work.file("words")

    run(tmp_path / "work")
    run(tmp_path / "work")
    assert assert_damage_is_refused(run, tmp_path / "work") == 4
    for _ in damages(tmp_path / "work", flips(500), [tmp_path / "work" / "state.json"]):
        with pytest.raises(ModelFolderError, match=r"state\.json"):
            run(tmp_path / "work")


@HAS_FORK
def test_the_second_run_in_a_folder_is_told_who_holds_it(tmp_path):
    told = rf"work is in use by process {os.getpid()} since 20[-\d]{{8}} [:\d]{{8}}; wait until it has ended"

    def second():
        with pytest.raises(InputError, match=told), WorkFolder(tmp_path / "work"):
            pass

    with WorkFolder(tmp_path / "work") as first:
        assert in_fork(second) == "None"
        second()
        assert not WorkFolder(tmp_path / "work").read()["facts"]  # by a further process of the same run
        first.commit({"step": 2})
    with WorkFolder(tmp_path / "work") as work:
        assert work.metadata == {"step": 2}


def test_rows_that_could_not_be_appended_do_not_count(tmp_path, monkeypatch):
    with WorkFolder(tmp_path) as work:
        monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
        with pytest.raises(WritingError, match=r"rows\.state\.bin: No space left"):
            work.append("rows", np.zeros(3))
        assert "rows" not in work
