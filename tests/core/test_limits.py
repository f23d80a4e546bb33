"""What the process has too little of is named, with the way out: nothing that is whole is called damaged or absent."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pellucid
from forking import HAS_FORK, in_fork
from index_writer import vectors
from pellucid.errors import PellucidError
from pellucid.persistence import store
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.persistence.folder import verify
from pellucid.static.embedder import StaticEmbedder

resource = pytest.importorskip("resource")
pytestmark = [HAS_FORK, pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc of Linux")]

MISLEADING = re.compile("damage|broken|Restore|anew|missing|not found|holds no|is no|not whole|another process")


def run_with_descriptors(left: int, work: Callable[[], Any]) -> str:
    """Run `work` in a process that may open only so many files more; return "" or the error."""
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


def add(folder: Path) -> None:
    with pellucid.Index.open(folder, {"letters": vectors}) as index:
        index.add(["a loan"], ids=["new"])


def search(folder: Path) -> None:
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


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "work"),
    [
        ("model", pellucid.load),
        ("model", verify),
        ("model", lambda folder: pellucid.load(folder).save_pretrained(folder)),
        ("work", save_run),
        ("index", search),
        ("index", add),
    ],
)
def test_too_many_open_files_are_called_so(folders, kind, work):
    said = [in_fork(lambda left=left: run_with_descriptors(left, lambda: work(folders[kind]))) for left in range(12)]
    errors = [error for error in said if error != "''"]
    assert errors and said[-1] == "''"
    for error in errors:
        assert "Too many open files" in error and "ulimit -n" in error and not MISLEADING.search(error)


def test_an_address_space_that_is_too_small_is_called_so(tmp_path):
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
