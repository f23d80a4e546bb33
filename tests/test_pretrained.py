"""Opening by name, folder and hub id; what every saved folder says about itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pellucid
from pellucid import pretrained
from pellucid.errors import InputError, ModelFolderError
from pellucid.static.embedder import StaticEmbedder
from pellucid.store import write_json
from pellucid.words import Vocabulary

TEXTS = ["the apple", "a pear on a bicycle", "", "unknown"]


@pytest.fixture
def saved(fruit, tmp_path):
    fruit.save_pretrained(tmp_path / "fruit")
    return tmp_path / "fruit"


@pytest.fixture
def never_online(monkeypatch):
    """Any look at the hub fails the test."""
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("went to the hub"))


def test_load_opens_what_was_saved(fruit, saved):
    for opened in (pellucid.load(saved), pellucid.load(str(saved)), StaticEmbedder.from_pretrained(saved)):
        assert type(opened) is StaticEmbedder
        assert opened.vocabulary.words == fruit.vocabulary.words
        np.testing.assert_array_equal(opened.vectors, fruit.vectors)
        np.testing.assert_array_equal(opened.encode(TEXTS), fruit.encode(TEXTS))


def test_a_bundled_name_opens_offline_and_wins_over_a_folder_of_that_name(fruit, tmp_path, monkeypatch, never_online):
    fruit.save_pretrained(tmp_path / "models" / "tiny-en")
    monkeypatch.setattr(pretrained, "_BUNDLED", tmp_path / "models")
    (tmp_path / "here" / "tiny-en").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert pretrained.bundled_models() == ["tiny-en"]
    assert len(pellucid.load("tiny-en").vocabulary) == 5
    with pytest.raises(ModelFolderError, match=r"no config\.json"):
        pellucid.load("./tiny-en")
    with pytest.raises(ModelFolderError, match=r"'tiny-fr'.*tiny-en.*\./my-model.*owner/name"):
        pellucid.load("tiny-fr")


@pytest.mark.parametrize(
    "name",
    ["nonexistent", "./a", "../a/b", "/no/where", "~/no-where", "a/b/c", "vectors/en.txt", "here/model", "a\\b", ""],
)
def test_what_looks_like_a_path_never_goes_to_the_hub(name, tmp_path, monkeypatch, never_online):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFolderError):
        pellucid.load(name)
    with pytest.raises(ModelFolderError):
        pellucid.load(Path("owner/name"))  # a Path is a path


def test_a_hub_id_is_downloaded_without_code(saved, monkeypatch):
    import huggingface_hub

    asked = {}

    def download(repo_id, *, allow_patterns):
        asked[repo_id] = allow_patterns
        return str(saved)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert len(pellucid.load("owner/name").vocabulary) == 5
    assert set(asked) == {"owner/name"}
    assert not any(pattern.endswith((".py", ".bin", ".pkl", "*")) for pattern in asked["owner/name"])


def test_an_unreachable_hub_is_an_error_with_its_cause():
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": "/nonexistent"}
    script = "import pellucid\ntry: pellucid.load('owner/name')\nexcept pellucid.errors.ModelFolderError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert "'owner/name'" in done.stdout and "cannot be reached" in done.stdout and "offline" in done.stdout


@pytest.mark.parametrize("value", [None, 3, ["static-en"]])
def test_load_wants_a_name_or_path(value):
    with pytest.raises(InputError, match="name or path"):
        pellucid.load(value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{oops", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "no object 'pellucid'"),
        ('{"model_type": "model2vec"}', "model2vec.StaticModel"),
        ('{"pellucid": []}', "no object 'pellucid'"),
        ('{"pellucid": {"family": "static"}}', "format None"),
        ('{"pellucid": {"family": "static", "format": 99}}', "Update pellucid"),
        ('{"pellucid": {"family": "static", "format": true}}', "format True"),
        ('{"pellucid": {"family": "aura", "format": 1}}', "family 'aura'.*knows static"),
        ('{"pellucid": {"family": "../../os", "format": 1}}', "knows static"),
        ('{"pellucid": {"family": ["static"], "format": 1}}', "knows static"),
        ('{"pellucid": {"format": 1}}', "family None"),
        ('{"pellucid": {"family": "static", "format": 1}, "x": "' + "y" * (2 << 20) + '"}', "larger than"),
    ],
)
def test_a_config_that_is_not_ours_is_refused(saved, config, message):
    (saved / "config.json").write_text(config)
    with pytest.raises(ModelFolderError, match=message):
        pellucid.load(saved)


def test_another_familys_folder_is_refused_by_the_class(saved):
    write_json(saved / "config.json", {"pellucid": {"family": "anchors", "format": 1}})
    with pytest.raises(ModelFolderError, match="family 'anchors', not 'static'"):
        StaticEmbedder.from_pretrained(saved)


def test_a_new_family_is_one_file_and_one_line(saved, monkeypatch):
    """A module registered in FAMILIES is opened by `load`, with nothing else told about it."""
    import types

    class EchoEmbedder:
        @classmethod
        def from_pretrained(cls, path):
            return f"opened {Path(path).name}"

    module = types.ModuleType("pellucid.echo")
    module.EchoEmbedder = EchoEmbedder
    monkeypatch.setitem(sys.modules, "pellucid.echo", module)
    monkeypatch.setitem(pellucid.FAMILIES, "echo", "echo.EchoEmbedder")
    write_json(saved / "config.json", {"pellucid": {"family": "echo", "format": 1}})
    assert pellucid.load(saved) == "opened fruit"


def test_every_family_in_the_table_exists():
    for family, path in pellucid.FAMILIES.items():
        name = path.rpartition(".")[2]
        assert pretrained.family_class(family, Path()).family == family
        assert getattr(pellucid, name).__name__ == name


def test_the_card_is_written_and_a_card_of_ones_own_is_kept(fruit, saved):
    card = saved / "README.md"
    assert "library_name: pellucid" in card.read_text() and "- words: 5" in card.read_text()
    small = StaticEmbedder(Vocabulary(["one"]), np.ones((1, 3), np.float32))
    small.save_pretrained(saved)
    assert "- words: 1" in card.read_text()  # ours: written anew
    card.write_text("# My fruit")
    fruit.save_pretrained(saved)
    assert card.read_text() == "# My fruit"
    assert len(pellucid.load(saved).vocabulary) == 5


def test_the_config_says_who_wrote_it(saved):
    ours = json.loads((saved / "config.json").read_text())["pellucid"]
    assert ours["family"] == "static" and ours["format"] == 1 and ours["version"] == pellucid.__version__
    present = {entry.name for entry in saved.iterdir()}
    assert set(ours["files"]) == present - {"config.json", "README.md"}


def test_a_model_may_be_saved_over_the_folder_it_is_mapped_from(saved):
    opened = pellucid.load(saved)
    before = opened.encode(TEXTS)
    opened.save_pretrained(saved, dtype="int8")
    np.testing.assert_array_equal(opened.encode(TEXTS), before)  # still the old table
    assert pellucid.load(saved).vectors.dtype == np.int8


def test_mistyped_keywords_are_errors(fruit, saved):
    for call in (
        lambda: pellucid.load(saved, dtyp="int8"),
        lambda: fruit.save_pretrained(saved, dtyp="int8"),
        lambda: StaticEmbedder.from_text_vectors(saved, max_word=3),
    ):
        with pytest.raises(TypeError, match="unexpected keyword"):
            call()


def test_opening_imports_neither_numba_nor_torch_nor_the_hub(saved):
    script = (
        "import sys, pellucid; pellucid.load(sys.argv[1]).encode('the apple');"
        "print([m for m in ('numba', 'torch', 'scipy', 'huggingface_hub', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(saved)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
