"""A static folder from a stranger, or a damaged one: our error with the file's name, never a crash."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pellucid
from pellucid.errors import InputError, ModelFolderError, PellucidError
from pellucid.store import read_tensors, write_tensors

FILES = ["model.safetensors", "words.txt", "config.json"]


@pytest.fixture(params=["float32", "int8"])
def saved(request, fruit, tmp_path):
    fruit.save_pretrained(tmp_path / "m", dtype=request.param, extra_words=["pears"])
    return tmp_path / "m"


def rewrite(folder, **changes):
    tensors = {**read_tensors(folder / "model.safetensors")[0], **changes}
    write_tensors(folder / "model.safetensors", {k: np.array(v) for k, v in tensors.items() if v is not None})


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(saved, name):
    (saved / name).unlink()
    with pytest.raises(ModelFolderError, match=name):
        pellucid.load(saved)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_is_refused(saved, name):
    content = (saved / name).read_bytes()
    for kept in (0, 1, len(content) // 2, len(content) - 2):
        (saved / name).write_bytes(content[:kept])
        with pytest.raises(ModelFolderError):
            pellucid.load(saved)


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_or_endless_device_in_place_of_a_file_is_refused(saved, name):
    for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path), os.mkdir):
        (saved / name).rmdir() if (saved / name).is_dir() else (saved / name).unlink()
        make(saved / name)
        with pytest.raises(ModelFolderError, match="not a regular file"):
            pellucid.load(saved)


def test_a_link_to_the_same_file_elsewhere_is_followed_as_in_the_hubs_cache(saved, fruit):
    (saved / "words.txt").rename(saved.parent / "blob")
    (saved / "words.txt").symlink_to("../blob")
    assert pellucid.load(saved).vocabulary.words == fruit.vocabulary.words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("the\napple\npear\ncar\n", "4 words.*6 rows"),
        ("the\napple\npear\ncar\nbicycle\nboat\n", "6 words.*6 rows"),
        ("the\napple\npear\ncar\nthe\n", "'the' twice"),
        ("the\napple\npear\ncar\nbicycle", "truncated"),
        (b"the\napple\npear\ncar\n\xff\n", "UTF-8"),
        ("", "0 words"),
    ],
)
def test_words_that_do_not_fit_the_table_are_refused(saved, words, message):
    (saved / "words.txt").write_bytes(words if isinstance(words, bytes) else words.encode())
    with pytest.raises(ModelFolderError, match=message):
        pellucid.load(saved)


def test_dos_line_ends_do_no_harm(saved, fruit):
    (saved / "words.txt").write_bytes((saved / "words.txt").read_bytes().replace(b"\n", b"\r\n"))
    assert pellucid.load(saved).vocabulary.words == fruit.vocabulary.words


ROWS = np.zeros((6, 3), np.float32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embeddings": None}, "no table 'embeddings'"),
        ({"embeddings": ROWS.ravel()}, "no table 'embeddings'"),
        ({"embeddings": ROWS[:, :0]}, "no table 'embeddings'"),
        ({"embeddings": ROWS.astype(np.float64)}, "no table 'embeddings'"),
        ({"embeddings": ROWS.astype(np.int64)}, "no table 'embeddings'"),
        ({"embeddings": ROWS[:-1]}, "5 words.*5 rows"),
        ({"embeddings": ROWS + np.nan}, "NaN or infinite"),
        ({"embeddings": (ROWS + np.inf).astype(np.float16)}, "NaN or infinite"),
        ({"mapping": np.arange(7) + 100}, "outside the 6 rows"),
        ({"mapping": np.arange(7) - 1}, "outside the 6 rows"),
        ({"mapping": np.zeros(7, np.float32)}, "must be integers"),
        ({"mapping": np.zeros((7, 1), np.int64)}, "must be integers"),
        ({"mapping": np.zeros(0, np.int64), "weights": None, "embeddings": ROWS}, "must be integers"),
        ({"embeddings": ROWS.astype(np.int8), "weights": None}, "without 'weights'"),
        ({"weights": np.ones(3, np.float32)}, "expected float32"),
        ({"weights": np.ones(6, np.float64), "mapping": None}, "expected float32"),
        ({"weights": np.full(6, np.nan, np.float32), "mapping": None}, "negative or non-finite"),
        ({"weights": np.full(6, -1, np.float32), "mapping": None}, "negative or non-finite"),
    ],
)
def test_tensors_that_make_no_model_are_refused(saved, changes, message):
    rewrite(saved, **changes)
    with pytest.raises(ModelFolderError, match=message):
        pellucid.load(saved)


def test_no_path_named_inside_the_folder_is_opened(saved, fruit):
    """The names in modules.json and config.json are for other libraries; ours are fixed."""
    secret = saved.parent / "secret"
    secret.write_text("secret")
    (saved / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "../secret", "type": "os.system"}]')
    config = (saved / "config.json").read_text()
    (saved / "config.json").write_text(config.replace('"words.txt"', '"../secret"', 1))
    opened = pellucid.load(saved)
    assert opened.vocabulary.words == fruit.vocabulary.words
    opened.save_pretrained(saved)  # replacing a model removes its listed files: only ever inside the folder
    assert secret.read_text() == "secret"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(data=st.data())
def test_random_damage_gives_a_model_that_encodes_or_our_error(fruit, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("damaged") / "m"
    fruit.save_pretrained(folder)
    name = data.draw(st.sampled_from(FILES))
    content = bytearray((folder / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (folder / name).write_bytes(content)
    try:
        embeddings = pellucid.load(folder).encode(["the apple", "x"])
    except PellucidError:
        return
    assert embeddings.shape[0] == 2


def test_deleting_the_model_while_it_is_open_does_no_harm(saved, fruit):
    opened = pellucid.load(saved)
    for file in saved.iterdir():
        file.unlink()
    assert opened.encode("the apple").any()


def test_saving_into_a_folder_of_something_else_is_refused(fruit, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"jpg")
    with pytest.raises(InputError, match="photos exists and holds no pellucid model"):
        fruit.save_pretrained(tmp_path / "photos")
    assert (tmp_path / "photos" / "a.jpg").exists()
