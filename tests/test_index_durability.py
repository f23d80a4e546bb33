"""What was committed outlives a killed process; nothing half-written is ever seen."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("Stemmer")

import pellucid
from index_writer import text_of, vectors
from pellucid.errors import IndexFolderError

WRITER = Path(__file__).with_name("index_writer.py")


def killed_writer(folder, seed, delay):
    """Run the writer, kill it `delay` seconds after it has opened the index, return what it said."""
    command = [sys.executable, str(WRITER), str(folder), str(seed)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert process.stdout.readline() == "open\n"
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    said = process.stdout.read().splitlines()
    process.wait()
    return said


def applied(documents, change):
    """The documents after a change: id -> text."""
    if change["kind"] == "add":
        texts = [text_of(change["version"], size) for size in change["sizes"]]
        return documents | dict(zip(change["ids"], texts))
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
    chance = random.Random(seed)
    pellucid.Index.create(folder, {"letters": vectors}, passage_characters=400).close()
    documents = {}
    for kill in range(kills):
        said = killed_writer(folder, 1000 * seed + kill, chance.uniform(0, 0.35))
        with pellucid.Index.open(folder, models={"letters": vectors}) as index:
            found = {document.id: document.text for document in index}
            assert found in allowed(documents, said)
            assert index.verify() == []
            documents = found
            assert len(index) == len(documents)
            for own, text in random.Random(kill).sample(sorted(documents.items()), min(3, len(documents))):
                hits = index.search(text.split()[0], top_k=50, weights={"bm25": 1})
                assert [hit.id for hit in hits].count(own) == 1
                assert {hit.text.split()[0] for hit in hits} == {text.split()[0]}


@pytest.mark.parametrize("kills", [1, pytest.param(4, marks=pytest.mark.full)])
def test_what_was_committed_outlives_kills_at_random_moments(tmp_path, kills):
    survive(tmp_path / "index", kills, seed=1)


@pytest.mark.slow
def test_what_was_committed_outlives_a_hundred_kills(tmp_path):
    survive(tmp_path / "index", kills=100, seed=2)


def test_a_second_process_is_told_that_the_index_is_open(tmp_path):
    index = pellucid.Index.create(tmp_path / "index", {"letters": vectors})
    index.add(["a"], ["abc"])
    script = "import sys, pellucid\npellucid.Index.open(sys.argv[1])"
    ran = subprocess.run([sys.executable, "-c", script, str(tmp_path / "index")], capture_output=True, text=True)
    assert ran.returncode == 1 and "is open in another process" in ran.stderr
    with pytest.raises(IndexFolderError, match="is open in another process"):
        pellucid.Index.open(tmp_path / "index")  # nor twice in one process
    assert index.search("abc")[0].id == "a"
    index.close()
    with pellucid.Index.open(tmp_path / "index", models={"letters": vectors}) as again:
        assert len(again) == 1
