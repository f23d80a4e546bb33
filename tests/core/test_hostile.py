"""A static folder from a stranger, or a damaged one: our error with the file's name, never a crash."""

import json
import os

import numpy as np
import pytest

import pellucid
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.errors import InputError, ModelFolderError
from pellucid.static import precision
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary


@pytest.fixture(params=["float32", "int8", "int4"])
def saved(request, fruit, tmp_path):
    fruit.save_pretrained(tmp_path / "m", dtype=request.param, extra_words=["pears"])
    return tmp_path / "m"


def test_a_link_that_leads_back_or_nowhere_does_no_harm(saved):
    back = ("again", "more", "and more", "and so on")  # followed, they would be 4 ** 40 folders
    for name, target in {"nowhere": "absent", "itself": "itself", **dict.fromkeys(back, ".")}.items():
        (saved / name).symlink_to(target)
    assert pellucid.load(saved).encode("apple").any()


def test_a_card_that_is_a_pipe_a_device_or_a_folder_does_not_stop_a_save(saved, fruit):
    for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path), os.mkdir):
        (saved / "README.md").rmdir() if (saved / "README.md").is_dir() else (saved / "README.md").unlink()
        make(saved / "README.md")
        fruit.save_pretrained(saved)
        assert (saved / "README.md").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("the\napple\npear\ncar\n", "4 words.*[56] rows"),
        ("the\napple\npear\ncar\nbicycle\nboat\n", "6 words.*[56] rows"),
        ("the\napple\npear\ncar\nthe\n", "'the' twice"),
        ("the\napple\npear\ncar\nbicycle", "truncated"),
        (b"the\napple\npear\ncar\n\xff\n", "UTF-8"),
        ("", "0 words"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_words_that_do_not_fit_the_table_are_refused(saved, words, message):
    (saved / "words.txt").write_bytes(words if isinstance(words, bytes) else words.encode())
    with pytest.raises(ModelFolderError, match=message):
        pellucid.load(saved)


@pytest.mark.usefixtures("unchecked")
def test_dos_line_ends_do_no_harm(saved, fruit):
    (saved / "words.txt").write_bytes((saved / "words.txt").read_bytes().replace(b"\n", b"\r\n"))
    assert pellucid.load(saved).vocabulary.words == fruit.vocabulary.words


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("searched", [1 << 26, 0])
def test_a_table_too_large_to_be_searched_never_gives_a_number_that_is_none(value, dtype, searched, monkeypatch):
    """The text that meets it is named; the others are encoded."""
    monkeypatch.setattr(precision, "MAX_NAN_CHECK_BYTES", searched)
    vectors, scales = np.ones((3, 70), np.float32), None
    if dtype == "int8":
        scales = np.array([1, value, 1], np.float32)
    else:
        with np.errstate(over="ignore"):
            vectors[1, 68] = np.float32(value).astype(dtype)
    model = StaticEmbedder(Vocabulary(["fine", "broken", "good"]), vectors.astype(dtype), scales)
    assert np.isfinite(model.encode(["fine good", "good"])).all()
    finite = np.isfinite(model.word_vectors([1])).all()  # 3e38 is, and one path adds up further than the other
    for look in (model.encode, lambda texts: model.explain(texts[-2], "good").score):
        try:
            with np.errstate(all="ignore"):
                found = look(["fine", *["good"] * 1500, "good broken broken", "fine"])
        except InputError as error:
            assert "'good broken broken' are NaN or infinite" in str(error)
        else:
            assert finite and np.isfinite(found).all()


def change(path, where, value):
    """Set the entry of a JSON file that `where` leads to."""
    whole = json.loads(path.read_text())
    inner = whole
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    path.write_text(json.dumps(whole))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e16])
def test_anchors_whose_vectors_are_no_numbers_or_overflow_are_refused(value, fruit):
    with pytest.raises(InputError, match="beyond 1e"):
        AnchorEmbedder.from_parts(
            fruit, np.full((2, 3), value, np.float32), AnchorEmbedder(fruit, ["a car", "pear"]).dimensions
        )


@pytest.mark.usefixtures("unchecked")
def test_a_longer_vector_lets_no_other_encoder_pass(fruit, tmp_path):
    AnchorEmbedder(fruit, ["the apple and car", "car"]).save_pretrained(tmp_path / "m")
    vector = json.loads((tmp_path / "m" / "anchors.json").read_text())["first_vector"]
    change(tmp_path / "m" / "anchors.json", ["first_vector"], [1000 * value for value in vector])
    other = StaticEmbedder(fruit.vocabulary, fruit.vectors[::-1].copy())
    with pytest.raises(ModelFolderError, match="another model"):
        AnchorEmbedder.from_pretrained(tmp_path / "m", encoder=other)


@pytest.mark.usefixtures("unchecked")
def test_no_path_named_inside_the_folder_is_opened(saved, fruit):
    """The names in modules.json and config.json are for other libraries; ours are fixed."""
    secret = saved.parent / "secret"
    secret.write_text("secret")
    (saved / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "../secret", "type": "os.system"}]')
    (saved / "config.json").write_text((saved / "config.json").read_text().replace('"words.txt"', '"../secret"', 1))
    opened = pellucid.load(saved)
    assert opened.vocabulary.words == fruit.vocabulary.words
    opened.save_pretrained(saved)  # replacing a model removes its listed files: only ever inside the folder
    assert secret.read_text() == "secret"


def test_deleting_the_model_while_it_is_open_does_no_harm(saved, fruit):
    opened = pellucid.load(saved)
    for file in saved.iterdir():
        file.unlink()
    assert opened.encode("the apple").any()
