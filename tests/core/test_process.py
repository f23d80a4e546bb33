"""What pellucid changes of the whole process is as before afterwards, whatever threads do at the same time."""

import csv
import locale
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from pellucid.persistence.checkpoints import WorkFolder
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
        rng = torch.random.get_rng_state().tolist()
        state["torch"] = (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(), rng)
    return state


@given(st.lists(st.integers(0, THREADS - 1), max_size=20))
def test_a_setting_is_undone_by_the_last_of_any_threads_that_come_and_go(turns):
    """In each turn one thread enters, or leaves where it is inside."""
    value = ["as before"]

    def change() -> Callable[[], object]:
        before, value[0] = value[0], f"changed from {value[0]}"
        return lambda: value.__setitem__(0, before)

    setting, inside = ProcessSetting(change), set[int]()
    threads = [ThreadPoolExecutor(1) for _ in range(THREADS)]
    try:
        for turn in [*turns, *range(THREADS)]:
            if turn in inside:
                inside.remove(turn)
                threads[turn].submit(setting.__exit__).result()
            elif len(inside) or turns:
                inside.add(turn)
                threads[turn].submit(setting.__enter__).result()
            assert value == ["changed from as before" if inside else "as before"]
        for turn in inside:
            threads[turn].submit(setting.__exit__).result()
    finally:
        for thread in threads:
            thread.shutdown()
    assert value == ["as before"]


def overlapping(first: Any, second: Any) -> None:
    """Enter two contexts in two threads; the first is left while the second is still inside."""
    entered, left = threading.Event(), threading.Event()

    def one() -> None:
        with first:
            entered.wait(10)
        left.set()

    def other() -> None:
        with second:
            entered.set()
            left.wait(10)

    threads = [threading.Thread(target=work) for work in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


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
