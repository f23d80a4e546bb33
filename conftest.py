"""Fixtures: a model small enough to check by hand, and the optional real data."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny matrices: a second thread only waits, for long on a busy machine

import numpy as np
import pytest
from hypothesis import settings

import pellucid
from pellucid.dense import words
from pellucid.persistence import folder as model_folder
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary

# Without deadlines: a busy machine is no failure. `make full` asks every property with the second profile. The first
# two draw the same examples in every run, so that a change fails for what it changes; `make properties` draws others.
settings.register_profile("quick", deadline=None, max_examples=10, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=100, derandomize=True)
settings.register_profile("random", deadline=None, max_examples=100)
settings.load_profile("quick")

SHARED = Path(__file__).resolve().parents[1] / "shared"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test whose name differs from process to process: two processes share the tests by name."""
    for item in items:
        if re.search(r" at 0x[0-9a-f]{6}", item.nodeid):
            raise pytest.UsageError(f"{item.nodeid} is named by the address of an object; give its parameters ids")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their parameter: gzip writes the second of packing, so two processes would name two tests."""
    return argname if isinstance(val, bytes) else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test if a library that its mark `needs` names is not installed."""
    for mark in item.iter_markers("needs"):
        for library in mark.args:
            pytest.importorskip(library, reason=f"{library} is not installed")


@pytest.fixture(scope="session", autouse=True)
def kept_reasons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Reasons of encoders are kept in a folder of the tests, and fitted on a few hundred sentences."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        open_texts = words.open_texts
        patch.setattr(words, "open_texts", lambda encoder: (open_texts(encoder)[0][:240], "static-en"))
        yield


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let damaged folders reach the code that reads them, which must not rely on checksums."""
    monkeypatch.setattr(model_folder, "verify_checksums", lambda *folder, **most: None)


@pytest.fixture
def outside_allowed() -> Iterator[None]:
    """Folders may lead out of themselves: what they name is opened wherever it is."""
    with model_folder.allow_external(True):
        yield


@pytest.fixture
def shared() -> Path:
    """The folder of real data beside the checkout; tests that need it are skipped without it."""
    if not (SHARED / "data").is_dir():
        pytest.skip(f"real data not found at {SHARED}")
    return SHARED


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A function that imports a script by its dotted name; what it sets for threads is undone."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "PELLUCID_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    return importlib.import_module


@pytest.fixture(scope="session")
def static() -> StaticEmbedder:
    """The bundled static model of English."""
    return pellucid.load("static-en")


def _fruit() -> StaticEmbedder:
    words = ["the", "apple", "pear", "car", "bicycle"]
    vectors = np.array([[0.1, 0.1, 0.1], [3, 0, 0], [2, 1, 0], [0, 0, 2], [0, 1, 3]], np.float32)
    return StaticEmbedder(Vocabulary(words), vectors)


@pytest.fixture
def fruit() -> StaticEmbedder:
    """Five words in three dimensions: two fruits alike, two vehicles alike, and a short `the`."""
    return _fruit()


@pytest.fixture(scope="module")
def module_fruit() -> StaticEmbedder:
    """The same for what is built once for the tests of a module."""
    return _fruit()
