"""A static folder from a stranger, or a damaged one: our error with the file's name, never a crash."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

import pellucid
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.errors import InputError, ModelFolderError, PellucidError
from pellucid.persistence.store import read_tensors, write_tensors
from pellucid.static import embedder
from pellucid.static import folder as interchange
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary

FILES = ["model.safetensors", "words.txt", "config.json"]


@pytest.fixture(params=["float32", "int8", "int4"])
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


def sabotages():
    """Ways to put something else in the place of a file."""
    return os.mkfifo, lambda path: os.symlink("/dev/zero", path), os.mkdir


def damaged(folder):
    """Yield after each file of a folder, and of the folders in it, was replaced by what is no file."""
    for path in [path for path in sorted(folder.rglob("*")) if path.is_file()]:
        content = path.read_bytes()
        for make in sabotages():
            path.unlink()
            make(path)
            yield path
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            path.write_bytes(content)


def anchors_and_ensemble(model):
    anchors = AnchorEmbedder(model, ["apple", "car"])
    return EnsembleEmbedder({"anchors": anchors, "static": model})


def test_whatever_stands_in_the_place_of_any_file_of_any_of_our_folders(fruit, tmp_path):
    """In a folder of an ensemble there are those of all families that need no torch; nothing waits for ever."""
    tokenizer = Tokenizer(WordPiece({"[UNK]": 0, "app": 1, "##les": 2}, unk_token="[UNK]"))
    model = StaticEmbedder(Vocabulary(fruit.vocabulary.words, tokenizer), fruit.vectors)
    anchors_and_ensemble(model).save_pretrained(tmp_path / "m")
    expected = anchors_and_ensemble(fruit).encode(["apples"])
    opened = 0
    for path in damaged(tmp_path / "m"):
        try:
            found = pellucid.load(tmp_path / "m").encode(["apple"])
        except ModelFolderError as error:
            assert path.is_dir() or str(path) in str(error)
        else:  # a folder in the place of a file that other libraries need, or people
            others = ("README.md", "modules.json", "tokenizer.json")
            assert path.is_dir() and (path.name in others or path.match("anchors/config.json")), path
            assert found.shape == expected.shape
            opened += 1
    assert opened


def test_with_checksums_no_folder_stands_in_the_place_of_a_file_either(fruit, tmp_path, checksums):
    checksums()
    anchors_and_ensemble(fruit).save_pretrained(tmp_path / "m")
    for path in damaged(tmp_path / "m"):
        if path.name != "README.md":
            with pytest.raises(ModelFolderError):
                pellucid.load(tmp_path / "m")


@pytest.mark.parametrize("family", ["anchors", "lexicon", "key tokens"])
def test_no_file_that_a_transformer_library_would_open_may_be_a_pipe(family, tmp_path, checksums):
    pytest.importorskip("sentence_transformers")
    from families import key_token_model, lexicon_model
    from tiny_models import tiny_transformer

    checksums()
    makers = {
        "anchors": lambda: AnchorEmbedder(tiny_transformer(tmp_path / "t", normalize=True), ["the cat", "bank loan"]),
        "lexicon": lexicon_model,
        "key tokens": key_token_model,
    }
    makers[family]().save_pretrained(tmp_path / "m")
    pellucid.load(tmp_path / "m")
    seen = set()
    for path in damaged(tmp_path / "m"):
        if path.name != "README.md":
            seen.add(path.name)
            with pytest.raises(ModelFolderError):
                pellucid.load(tmp_path / "m")
    assert {"config.json", "tokenizer.json", "model.safetensors", "dimensions.tsv"} <= seen | {"dimensions.tsv"}


@pytest.mark.full
def test_a_link_that_leads_back_or_nowhere_does_no_harm(saved):
    (saved / "again").symlink_to(".")
    (saved / "nowhere").symlink_to("absent")
    (saved / "itself").symlink_to("itself")
    assert pellucid.load(saved).encode("apple").any()
    for name in ("more", "and more", "and so on"):
        (saved / name).symlink_to(".")
    with pytest.raises(ModelFolderError, match="more than 100,000 files"):
        pellucid.load(saved)


def test_a_card_that_is_a_pipe_a_device_or_a_folder_does_not_stop_a_save(saved, fruit):
    for make in sabotages():
        (saved / "README.md").rmdir() if (saved / "README.md").is_dir() else (saved / "README.md").unlink()
        make(saved / "README.md")
        fruit.save_pretrained(saved)
        assert (saved / "README.md").is_file()


def test_a_link_that_leads_out_is_refused_outside_of_the_hubs_cache(saved, fruit):
    (saved / "words.txt").rename(saved.parent / "blob")
    (saved / "words.txt").symlink_to("../blob")
    with pytest.raises(ModelFolderError, match=r"words\.txt is a link that leads out"):
        pellucid.load(saved)
    assert pellucid.load(saved, allow_outside=True).vocabulary.words == fruit.vocabulary.words


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
def test_words_that_do_not_fit_the_table_are_refused(saved, words, message):
    (saved / "words.txt").write_bytes(words if isinstance(words, bytes) else words.encode())
    with pytest.raises(ModelFolderError, match=message):
        pellucid.load(saved)


def test_dos_line_ends_do_no_harm(saved, fruit):
    (saved / "words.txt").write_bytes((saved / "words.txt").read_bytes().replace(b"\n", b"\r\n"))
    assert pellucid.load(saved).vocabulary.words == fruit.vocabulary.words


ROWS = np.zeros((6, 3), np.float32)


@pytest.mark.parametrize("saved", ["float32", "int8"], indirect=True)
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
        ({"weights": np.full(6, 3e38, np.float32), "mapping": None}, "non-finite numbers, or such beyond"),
        ({"embeddings": ROWS - 2e30}, "NaN or infinite, or beyond 1e\\+30"),
        ({"embeddings": ROWS.astype(np.float16) - np.inf}, "NaN or infinite"),
    ],
)
def test_tensors_that_make_no_model_are_refused(saved, changes, message):
    rewrite(saved, **changes)
    with pytest.raises(ModelFolderError, match=message):
        pellucid.load(saved)


@pytest.mark.parametrize("scale", ["nan", "inf", "-1", "1e300", "1e999", "-0.5", "1e-400x", "９" * 400])
def test_a_scale_that_is_no_factor_is_refused_by_its_line(saved, scale):
    table = (saved / "dimensions.tsv").read_text().splitlines()
    number, name, _, about = table[2].split("\t")
    (saved / "dimensions.tsv").write_text(
        "\n".join([*table[:2], f"{number}\t{name}\t{scale}\t{about}", *table[3:], ""])
    )
    with pytest.raises(ModelFolderError, match=r"dimensions\.tsv, line 3: the scale is"):
        pellucid.load(saved)


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("searched", [1 << 26, 0])
def test_a_table_too_large_to_be_searched_never_gives_a_number_that_is_none(bulk, value, dtype, searched, monkeypatch):
    """The text that meets it is named; the others are encoded."""
    monkeypatch.setattr(interchange, "_MAX_NAN_CHECK_BYTES", searched)
    monkeypatch.setattr(embedder, "_COMPILE_MIN_CHARS", 0 if bulk else 1 << 30)
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


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39, 10**400, -1, "x", None, []])
def test_weights_of_an_ensemble_that_are_no_share_are_refused(value, fruit, tmp_path):
    anchors_and_ensemble(fruit).save_pretrained(tmp_path / "m")
    for where in (("parts", 0, "weight"), ("parts", 0, "fingerprint", "stored"), ("parts", 1, "dimension")):
        content = (tmp_path / "m" / "ensemble.json").read_text()
        change(tmp_path / "m" / "ensemble.json", where, 1e101 if value == 1e39 else value)
        with pytest.raises(ModelFolderError):
            pellucid.load(tmp_path / "m")
        (tmp_path / "m" / "ensemble.json").write_text(content)


@pytest.mark.parametrize("weights", [[1e308, 1e308], [10**400, 1], [np.nan, 1], [np.inf, 1], ["x", 1], [None, 1]])
def test_weights_that_do_not_add_up_are_refused(weights, fruit):
    with pytest.raises(InputError, match="weights are"):
        EnsembleEmbedder([fruit, fruit], weights)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e16])
def test_anchors_whose_vectors_are_no_numbers_or_overflow_are_refused(value, fruit, tmp_path):
    AnchorEmbedder(fruit, ["apple", "car"]).save_pretrained(tmp_path / "m")
    for dtype in (np.float16, np.float32):
        with np.errstate(over="ignore"):
            vectors = np.array([[1, 0, 0], [0, value, 0]]).astype(dtype)
        write_tensors(tmp_path / "m" / "anchors" / "model.safetensors", {"linear.weight": vectors})
        with pytest.raises(ModelFolderError, match="infinity"):
            pellucid.load(tmp_path / "m")
    with pytest.raises(InputError, match="beyond 1e"):
        AnchorEmbedder.from_parts(
            fruit, np.full((2, 3), value, np.float32), AnchorEmbedder(fruit, ["a car", "pear"]).dimensions
        )


@pytest.mark.parametrize("factor", [np.nan, np.inf, 1e300, 0.0])
def test_the_vector_an_encoder_is_known_by_is_of_numbers(factor, fruit, tmp_path):
    AnchorEmbedder(fruit, ["apple", "car"]).save_pretrained(tmp_path / "m")
    vector = json.loads((tmp_path / "m" / "anchors.json").read_text())["first_vector"]
    change(tmp_path / "m" / "anchors.json", ["first_vector"], [value * factor for value in vector])
    with pytest.raises(ModelFolderError, match="another model"):
        pellucid.load(tmp_path / "m")


def test_a_longer_vector_lets_no_other_encoder_pass(fruit, tmp_path):
    AnchorEmbedder(fruit, ["the apple and car", "car"]).save_pretrained(tmp_path / "m")
    vector = json.loads((tmp_path / "m" / "anchors.json").read_text())["first_vector"]
    change(tmp_path / "m" / "anchors.json", ["first_vector"], [1000 * value for value in vector])
    other = StaticEmbedder(fruit.vocabulary, fruit.vectors[::-1].copy())
    with pytest.raises(ModelFolderError, match="another model"):
        AnchorEmbedder.from_pretrained(tmp_path / "m", encoder=other)


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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_damage_gives_a_model_that_encodes_or_our_error(fruit, tmp_path, data):
    folder = tmp_path / "m"
    if not folder.exists():
        fruit.save_pretrained(tmp_path / "whole")
        folder.mkdir()
    for file in (tmp_path / "whole").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
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
