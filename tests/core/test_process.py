"""The process: what is changed of it is as before afterwards, what it forks and what it lacks."""

import csv
import locale
import logging
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from forking import HAS_FORK, in_fork
from index_writer import vectors
from pellucid.errors import PellucidError, WritingError
from pellucid.persistence import store
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.persistence.folder import verify
from pellucid.persistence.store import writing
from pellucid.process import ProcessSetting, ignored_warnings, kept_random_states
from pellucid.static.embedder import StaticEmbedder

THREADS = 3


def process_state() -> dict[str, Any]:
    """All of the process that a library can change and another part of the program relies on."""
    mask = os.umask(0)
    os.umask(mask)
    torch = sys.modules.get("torch")
    state = {
        "folder": os.getcwd(),
        "variables": dict(os.environ),
        "umask": mask,
        "locale": locale.setlocale(locale.LC_ALL, None),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "warnings": (warnings.showwarning, list(warnings.filters)),  # type: ignore[attr-defined]
        "logging": (logging.root.level, list(logging.root.handlers), logging.root.manager.disable),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook),
        "streams": (sys.stdout, sys.stderr, sys.stdin),
        "limits": (sys.getrecursionlimit(), sys.getswitchinterval(), csv.field_size_limit()),
        "numbers": (np.geterr(), np.get_printoptions(), str(np.random.get_state()), random.getstate()),  # noqa: NPY002
    }
    if torch is not None:
        state["torch"] = (
            torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(),
            torch.random.get_rng_state().tolist(),
        )  # fmt: skip
    return state


@given(st.lists(st.integers(0, THREADS - 1), max_size=20))
def test_a_setting_is_undone_by_the_last_of_any_threads_that_come_and_go(turns):
    """In each turn one thread enters, or leaves where it is inside."""
    value = ["as before"]

    def change() -> Callable[[], object]:
        before, value[0] = value[0], f"changed from {value[0]}"
        return lambda: value.__setitem__(0, before)

    setting, inside = ProcessSetting(change), set[int]()
    with ExitStack() as stack:
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(THREADS)]
        leaving = [turn for turn in range(THREADS) if turns.count(turn) % 2]
        for turn in [*turns, *leaving]:
            threads[turn].submit(setting.__exit__ if turn in inside else setting.__enter__).result()
            inside ^= {turn}
            assert value == ["changed from as before" if inside else "as before"]
    assert not inside


def overlapping(*contexts: Any) -> None:
    """Enter contexts in threads of their own; the first is left while the others are still inside."""
    with ExitStack() as stack:
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in contexts]
        for thread, context in zip(threads, contexts):
            thread.submit(context.__enter__).result()
        for thread, context in zip(threads, contexts):
            thread.submit(context.__exit__, None, None, None).result()


def test_filters_of_warnings_are_the_programs_own_again():
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # one that pellucid asks for, too
        before = list(warnings.filters)  # type: ignore[attr-defined]
        overlapping(ignored_warnings(FutureWarning), ignored_warnings(DeprecationWarning))
        overlapping(ignored_warnings(FutureWarning, "(?s)The task"), ignored_warnings(FutureWarning, "(?s)The task"))
        with ignored_warnings(FutureWarning, "the task .* is old"):
            warnings.warn("The task x is old", FutureWarning, stacklevel=1)
            with pytest.raises(FutureWarning):
                warnings.warn("Another", FutureWarning, stacklevel=1)
        assert list(warnings.filters) == before  # type: ignore[attr-defined]
        with ignored_warnings(FutureWarning):
            warnings.resetwarnings()  # the program sets others meanwhile
        assert not list(warnings.filters)  # type: ignore[attr-defined]


def work_with_a_model(folder: Path, fruit: StaticEmbedder) -> None:
    fruit.save_pretrained(folder / "model")
    model = pellucid.load(folder / "model")
    model.encode(["apple", "pear"])
    model.explain("apple", "pear").to_html()
    model.describe("apple")


def work_with_an_index(folder: Path, fruit: StaticEmbedder) -> None:
    pytest.importorskip("Stemmer")
    with pellucid.Index.create(folder / "index", {"fruit": fruit}) as index:
        index.add(["apple", "pear"], ids=["a", "b"])
        index.search("apple")[0].explain()
        index.verify()
        index.rebuild()


def work_with_files(folder: Path, fruit: StaticEmbedder) -> None:
    (folder / "texts.csv").write_text("text\napple\n" + "pear " * 50_000 + "\n")
    pellucid.duplicates(folder / "texts.csv", fruit).to_html()
    pytest.importorskip("pyarrow")
    from pellucid.bulk import encode_corpus

    encode_corpus(fruit, folder / "texts.csv", folder / "shards")


def work_with_an_encoder(folder: Path, fruit: StaticEmbedder) -> None:
    pytest.importorskip("sentence_transformers")
    from tiny_models import tiny_transformer

    source = folder.parent / "source"
    if not source.exists():
        tiny_transformer(folder / "bert", normalize=True).save_pretrained(str(source))
    model = pellucid.load(source)
    model.encode(["the cat", "a loan"])
    model.explain("the cat", "a loan")
    model.save_pretrained(folder / "again")


def work_with_training(folder: Path, fruit: StaticEmbedder) -> None:
    pytest.importorskip("peft")
    from pellucid.lexicon import TrainingSettings, train_lexicon
    from pellucid.lexicon.training_data import TrainingRow, TrainingSet
    from tiny_models import tiny_lexicon

    with kept_random_states():
        model = tiny_lexicon()
    rows = [TrainingRow("car", ("vehicle",), ("beach",)), TrainingRow("boy", ("man",), ("horse",))]
    settings = TrainingSettings(epochs=1, batch_size=2, group_size=2, rank=4, warmup_steps=0)
    train_lexicon(model, [TrainingSet("pairs", rows)], folder / "run", settings, show_progress_bar=False)


@pytest.mark.parametrize(
    "work",
    [
        work_with_a_model,
        work_with_an_index,
        work_with_files,
        pytest.param(work_with_an_encoder, marks=pytest.mark.full),
        pytest.param(work_with_training, marks=pytest.mark.full),
    ],
)
def test_the_process_is_as_before_whatever_was_done(tmp_path, fruit, work):
    (tmp_path / "first").mkdir()
    work(tmp_path / "first", fruit)  # libraries that are imported may change what they like
    before = process_state()
    (tmp_path / "second").mkdir()
    work(tmp_path / "second", fruit)
    after = process_state()
    assert {name for name in before if before[name] != after[name]} == set()


def test_what_is_open_stays_the_same_wherever_the_process_goes(tmp_path, monkeypatch, fruit):
    """By relative paths: a model that is saved again, a run, and a file that is being written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    fruit.save_pretrained("model", extra_words=["kiwi"])
    model = pellucid.load("model")
    with WorkFolder("work") as work, writing("file.txt") as tmp:
        tmp.write_text("whole")
        monkeypatch.chdir("elsewhere")
        work.commit({"step": 1})
        work.append("rows", np.zeros((2, 2)))
        work.commit()
        work.save("tensors", {"x": np.zeros(3)})
        work.commit()
    model.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "tokenizer.json").read_bytes() == (tmp_path / "model" / "tokenizer.json").read_bytes()
    assert (tmp_path / "file.txt").read_text() == "whole" and not any((tmp_path / "elsewhere").iterdir())
    with WorkFolder(tmp_path / "work") as work:
        assert work.metadata == {"step": 1} and len(work.array("rows")) == 2 and "tensors" in work


# A forked child finishes, releases and removes nothing that its parent is about.

Writer = Callable[[Path], AbstractContextManager[Any]]


WRITERS: dict[str, Writer] = {
    "file": store.writing,
    "model": store.writing_folder,
    "lock": lambda path: path.mkdir(exist_ok=True) or store.locked(path),
    "run": WorkFolder,
    "scratch": lambda path: store.temporary_folder(parent=path.parent),
}


def others_wait(path: Path, writer: Writer) -> bool:
    """Whether another process meets the lock."""

    def write() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "_PATIENCE", 0.05)
            with writer(path):
                pass

    return any(error in in_fork(write) for error in ("has been writing it", "is in use by"))


@HAS_FORK
@pytest.mark.parametrize("error", [None, SystemExit("the child")])
@pytest.mark.parametrize("name", WRITERS)
def test_a_child_that_leaves_the_blocks_of_its_parent_takes_nothing_with_it(tmp_path, name, error):
    """It ends the block without an error or with one; the parent has lock and files, and ends."""
    path, writer = tmp_path / "there", WRITERS[name]
    with ExitStack() as stack:
        tmp = stack.enter_context(writer(path))
        if isinstance(tmp, Path):
            (tmp if tmp.is_file() else tmp / "config.json").write_text('{"pellucid": {}}')
        before = sorted(entry.name for entry in tmp_path.rglob("*"))
        ended = in_fork(lambda: stack.__exit__(type(error) if error else None, error, None))
        assert ended.startswith("WritingError") == (name in ("file", "model") and error is None)
        assert sorted(entry.name for entry in tmp_path.rglob("*")) == before
        assert name == "scratch" or others_wait(path, writer)
    assert name not in ("file", "model") or (path if path.is_file() else path / "config.json").read_text()
    assert not {entry.name for entry in tmp_path.iterdir()} - {"there"}
    assert name == "scratch" or not others_wait(path, writer)


@HAS_FORK
def test_a_child_commits_nothing_to_the_run_of_its_parent(tmp_path):
    with WorkFolder(tmp_path / "work") as work:
        work.commit({"step": 1})
        state = (tmp_path / "work" / "state.json").read_bytes()

        def child() -> None:
            for write in (lambda: work.commit({"step": 9}), lambda: work.append("rows", np.zeros((1, 2)))):
                with pytest.raises(WritingError, match="forked from the one that is writing it"):
                    write()

        assert (in_fork(child), (tmp_path / "work" / "state.json").read_bytes()) == ("None", state)
        work.commit({"step": 2})
    with WorkFolder(tmp_path / "work") as work:
        assert work.metadata == {"step": 2}


@HAS_FORK
def test_a_lock_ends_with_the_process_that_took_it_also_where_a_child_lives_on(tmp_path):
    (tmp_path / "folder").mkdir()
    script = """
    import os, sys, time
    from pathlib import Path
    from pellucid.persistence import store
    with store.locked(Path(sys.argv[1])):
        if not os.fork():
            print(os.getpid(), flush=True)  # by the child: only once it runs has it closed its copy of the lock
        time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "folder")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            process.send_signal(signal.SIGKILL)
            process.wait()
            os.kill(child, 0)  # it is there
            with store.locked(tmp_path / "folder"):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


# What the process has too little of is named, with the way out: nothing that is whole is called damaged or absent.

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc of Linux")
MISLEADING = re.compile("damage|broken|Restore|anew|missing|not found|holds no|is no|not whole|another process")


def run_with_descriptors(left: int, work: Callable[[], Any]) -> str:
    """Run `work` in a process that may open only so many files more; return "" or the error."""
    import resource

    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        for handle in held[:left]:
            os.close(handle)
    try:
        work()
    except PellucidError as error:
        return f"{error}"
    return ""


def save_run(folder: Path) -> None:
    with WorkFolder(folder) as work:
        work.commit({"step": 2})


def add_to(folder: Path) -> None:
    with pellucid.Index.open(folder, {"letters": vectors}) as index:
        index.add(["a loan"], ids=["new"])


def search_in(folder: Path) -> None:
    with pellucid.Index.open(folder, {"letters": vectors}) as index:
        index.search("loan")
        index.verify()


@pytest.fixture
def folders(tmp_path: Path, fruit: StaticEmbedder) -> dict[str, Path]:
    folders = {name: tmp_path / name for name in ("model", "work", "index")}
    fruit.save_pretrained(folders["model"])
    save_run(folders["work"])
    with pellucid.Index.create(folders["index"], {"letters": vectors}, bm25=False) as index:
        for number in range(7):
            index.add(["a loan"], ids=[f"{number}"])
    return folders


@ON_LINUX
@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "work"),
    [
        ("model", pellucid.load),
        ("model", verify),
        ("model", lambda folder: pellucid.load(folder).save_pretrained(folder)),
        ("work", save_run),
        ("index", search_in),
        ("index", add_to),
    ],
)
def test_too_many_open_files_are_called_so(folders, kind, work):
    said = [in_fork(lambda left=left: run_with_descriptors(left, lambda: work(folders[kind]))) for left in range(12)]
    errors = [error for error in said if error != "''"]
    assert errors and said[-1] == "''"
    for error in errors:
        assert "Too many open files" in error and "ulimit -n" in error and not MISLEADING.search(error)


@ON_LINUX
def test_an_address_space_that_is_too_small_is_called_so(tmp_path):
    import resource

    store.write_tensors(tmp_path / "x.safetensors", {"x": np.zeros(8 << 20)})

    def read() -> None:
        most = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") + (32 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
        store.read_tensors(tmp_path / "x.safetensors")

    assert re.match(r"ReadingError: cannot read .*x\.safetensors: Cannot allocate memory.*ulimit -v", in_fork(read))


def test_a_file_without_permission_is_not_damaged(tmp_path, monkeypatch):
    store.write_json(tmp_path / "x.json", 1)

    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(pellucid.errors.ReadingError, match=r"cannot read .*x\.json: Permission denied$"):
        store.read_json(tmp_path / "x.json")


# What the core gives without any extra, in a process that has none.

ROOT = Path(__file__).resolve().parents[2]
BLOCKED = """
import sys
from importlib import metadata

EXTRAS = {"scipy", "torch", "sentence_transformers", "transformers", "sklearn", "peft", "accelerate", "datasets",
          "mteb", "pandas", "wordllama", "model2vec", "bm25s", "ftfy", "py3langid", "snowballstemmer", "simplemma",
          "jieba", "sudachipy", "pythainlp", "matplotlib", "pyarrow", "Stemmer", "ray", "pyspark",
          "qdrant_client", "pymilvus", "faiss"}

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
found = metadata.version

def version(name):
    if name.replace("-", "_") in EXTRAS:
        raise metadata.PackageNotFoundError(name)
    return found(name)

metadata.version = version
"""


def without_extras(code: str) -> subprocess.CompletedProcess[str]:
    """Run code where no extra can be imported."""
    return subprocess.run([sys.executable, "-c", BLOCKED + code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("room", ["", ".bulk", ".index", ".lexicon", ".static", ".transformer"])
def test_a_core_install_can_be_listed(room):
    """Star import, hasattr, getmembers and pydoc are what editors, notebooks and documentation tools do."""
    done = without_extras(f"""
import inspect, pydoc, pellucid{room} as package

exec("from pellucid{room} import *")
for name in package.__all__:
    assert hasattr(package, name) and name in globals(), name
assert {{name for name, _ in inspect.getmembers(package)}} >= set(package.__all__)
text = pydoc.plain(pydoc.render_doc("pellucid{room}"))
assert all(name in text for name in package.__all__)
for _, thing in inspect.getmembers(package):
    assert isinstance(thing, str) or pydoc.render_doc(thing)
""")
    assert done.returncode == 0, done.stderr


def test_what_is_heavy_is_imported_when_it_is_needed(fruit, tmp_path):
    fruit.save_pretrained(tmp_path / "fruit")
    script = (
        "import sys, pellucid.explain.explanation as explanation, pellucid\n"
        "pellucid.load('static-en').encode(['a loan']), pellucid.load(sys.argv[1]).describe('the apple')\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "fruit"], capture_output=True, text=True, check=True
    )
    heavy = {
        "scipy", "torch", "transformers", "sentence_transformers", "sklearn", "huggingface_hub", "rich",
        "matplotlib", "pandas", "pyarrow", "mteb", "pellucid.static.training", "pellucid.explain.views.page",
    }  # fmt: skip
    assert not heavy & set(done.stdout.split())


def test_an_absent_name_says_what_to_install_where_it_is_used():
    done = without_extras("""
import pellucid
from pellucid import encode_corpus
from pellucid.errors import MissingExtraError

try:
    pellucid.Index.create("x", {})
except MissingExtraError as error:
    assert str(error).startswith("PyStemmer is not installed"), error
else:
    raise AssertionError
try:
    encode_corpus("a.txt", "out")
except ImportError as error:
    assert str(error).startswith("pyarrow is not installed"), error
else:
    raise AssertionError
try:
    pellucid.Indx
except AttributeError:
    print("ok")
""")
    assert done.stdout == "ok\n", done.stderr


def test_the_families_with_dense_vectors_do_without_scipy(tmp_path):
    done = without_extras(f"""
import numpy as np
import pellucid

texts = ["The bank raised the rate.", "Mortgages got dearer.", "A zorblattish cat sleeps.", "Cats sleep a lot."]
for name in ("static-multi", "anchors-en-200"):
    model = pellucid.load(name)
    first, second, third = model.dimensions.names[:3]
    edited = model.without(third).scale({{first: 0.5}}).merge(first, second)
    edited.save_pretrained({str(tmp_path)!r} + "/" + name)
    opened = pellucid.load({str(tmp_path)!r} + "/" + name)
    assert np.abs(opened.encode(texts) - edited.encode(texts)).max() < 1e-5
    assert edited.explain(texts[0], texts[2]).score == opened.explain(texts[0], texts[2]).score
pairs = [tuple(texts[:2]), tuple(texts[2:]), tuple(texts[1:3])]
models = dict(one=model, other=edited)
pellucid.compare(models, pairs)
pellucid.EnsembleEmbedder(models).merge(0, 1).encode(texts)
try:
    pellucid.load("lexicon-en")
except pellucid.errors.MissingExtraError as error:
    assert str(error).startswith('scipy is not installed. Run: pip install "pellucid[sparse]" (in a clone'), error
    print("ok")
""")
    assert done.stdout == "ok\n", done.stderr
