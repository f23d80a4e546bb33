"""A sync: afterwards an index holds what the files hold, or what it held before."""

import json
import random
import shutil
from functools import partial
from types import SimpleNamespace

import pytest

from commands import run_command as run
from forking import at_once
from pellucid import Index
from pellucid.errors import CorpusError, InputError
from resuming import count_writes, stop_at_write

OLD = {f"d{n}": {"text": f"text {n}", "n": n} for n in range(40)}
NEW = dict(list(OLD.items())[5:], d7={"text": "another", "n": 7}, d8={"text": "text 8", "n": 0}, e={"text": "new"})


@pytest.fixture(params=[1, 192 << 20])  # bytes of a piece of a commit
def index(tmp_path, monkeypatch, request):
    monkeypatch.setattr("pellucid.index.writer.MAX_PENDING_BYTES", request.param)
    monkeypatch.setattr("pellucid.index.documents.BATCH_DOCUMENTS", 7)
    for name, documents in (("old.jsonl", OLD), ("new.jsonl", NEW)):
        written(tmp_path / name, documents)
    return Index.create(tmp_path / "index", {})


def written(path, documents):
    path.write_text("".join(json.dumps({"id": id, **row}) + "\n" for id, row in documents.items()))
    return path


def held(index):
    assert index.verify() == []
    return {document.id: {"text": document.text, **document.metadata} for document in index}


def copied(tmp_path, number):
    return Index.open(shutil.copytree(tmp_path / "index", tmp_path / f"{number}"))


def test_after_each_kind_of_change_the_index_is_the_files(index, tmp_path):
    chance, before = random.Random(0), {}
    for _ in range(15):
        ids = [id for id in OLD if chance.random() < 0.8]
        after = {id: chance.choice([OLD[id], OLD[id], {"text": "x", "n": chance.randrange(3)}]) for id in ids}
        same = sum(after.get(id) == row for id, row in before.items())
        both = len(after.keys() & before)
        expected = (len(after) - both, both - same, same, len(before) - both)
        assert index.sync(file := written(tmp_path / "x.jsonl", after), dry_run=True) == expected
        assert held(index) == before
        assert index.sync([file], max_deleted=1) == expected and held(index) == after
        commit, before = index.snapshot().commit.state.commit, after
        assert index.sync(file) == (0, 0, len(after), 0) and index.snapshot().commit.state.commit == commit


def test_a_killed_sync_leaves_the_old_or_the_new_documents(index, tmp_path):
    index.sync(tmp_path / "old.jsonl")
    states = []
    for number in range(1, 1 + count_writes(partial(copied(tmp_path, 0).sync, tmp_path / "new.jsonl"))):
        copy = copied(tmp_path, number)
        stop_at_write(partial(copy.sync, tmp_path / "new.jsonl"), number)
        with Index.open(copy.folder) as fresh:
            states.append(held(fresh))
        assert states[-1] in (OLD, NEW) and held(copy) == states[-1]
        files = {file.name for file in copy.snapshot().commit.state.files()}
        assert {path.name for path in (copy.folder / "segments").iterdir()} == files
    assert OLD in states and NEW in states


def test_two_that_sync_at_once_leave_the_documents_of_one(index, tmp_path):
    opened = [index, *(Index.open(tmp_path / "index") for _ in range(3))]
    names = ["old.jsonl", "new.jsonl"] * 2
    assert at_once(*(partial(i.sync, tmp_path / name, max_deleted=1) for i, name in zip(opened, names))) == []
    assert all(held(each) in (OLD, NEW) for each in opened)


def test_what_is_doubtful_deletes_nothing(tmp_path):
    for name in ("notes/0.md", "notes/1.md", "notes/2.md", "notes/3.md", "notes/4.md", "empty/a.doc", "b.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("id,body\n0.md,x\n")
    with Index.create(tmp_path / "index", {}) as index:
        assert index.sync(tmp_path / "notes") == (5, 0, 0, 0)
        (tmp_path / "notes/0.md").unlink()
        (tmp_path / "notes/1.md").write_bytes(b"\xff\xfe\xff")
        for files, said in (
            (["notes"], "1.md, line 1 is not"), (["notes/2.md"], "4 of 5 documents .*deleted.* --yes"),
            ([], "5 of 5 documents"), (["empty"], "holds no file"), (["none"], "none"), (["b.csv"], "no column"),
            (["notes/2.md", "notes/2.md"], "'2.md' is given twice"), (["empty/a.doc"], "format"),
        ):  # fmt: skip
            with pytest.raises((CorpusError, InputError), match=said):
                index.sync([tmp_path / name for name in files])
        assert len(held(index)) == 5
        (tmp_path / "notes/1.md").write_text("id,body\n0.md,x")
        assert index.sync(tmp_path / "notes") == (0, 0, 4, 1)  # 20 % of 5


def test_the_command_counts_and_asks(tmp_path, monkeypatch, fruit):
    folder, old = tmp_path / "index", written(tmp_path / "old.jsonl", OLD)
    fruit.save_pretrained(tmp_path / "fruit")
    run("index", "build", folder, old, "-m", tmp_path / "fruit")
    few = written(tmp_path / "few.jsonl", {"d0": OLD["d0"], "d1": {"text": "another"}})
    counts = "added 0, changed 1, unchanged 1, deleted 38\n"
    assert run("index", "sync", folder, few, "--dry-run").stdout == counts
    assert "38 of 40 documents" in run("index", "sync", folder, few, code=1).stderr
    with monkeypatch.context() as terminal:
        terminal.setattr("pellucid.cli.search.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
        assert "Delete them?" in run("index", "sync", folder, few, code=1, stdin="n\n").stderr
        assert run("index", "sync", folder, old).stdout == "added 0, changed 0, unchanged 40, deleted 0\n"
        assert run("index", "sync", folder, few, stdin="y\n").stdout.endswith(counts)
    assert run("index", "sync", folder, old).stdout == "added 38, changed 1, unchanged 1, deleted 0\n"
    assert run("index", "sync", folder, few, "--yes").stdout == counts
