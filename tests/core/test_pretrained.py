"""Opening by name, folder and hub id; what every saved folder says about itself."""

from pathlib import Path

import numpy as np
import pytest

import pellucid
from damage import put, set_entry, set_tensors
from pellucid import loading
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.errors import InputError, ModelFolderError
from pellucid.persistence import folder as model_folder
from pellucid.persistence.store import checksum
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary

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


def test_a_tilde_is_the_home_wherever_a_path_is_given(fruit, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    fruit.save_pretrained("~/models/fruit")
    for opened in (
        pellucid.load("~/models/fruit"),
        pellucid.load(Path("~/models/fruit")),
        pellucid.load("~/models/fruit/"),
    ):
        np.testing.assert_array_equal(opened.encode(TEXTS), fruit.encode(TEXTS))
    assert list(loading.load_by_name(["~/models/fruit"])) == ["fruit"]
    EnsembleEmbedder(["~/models/fruit", fruit]).save_pretrained("~/models/both")
    assert pellucid.load("~/models/both").names == ["static", "static 2"]
    with pellucid.Index.create("~/index", "~/models/fruit", bm25=False) as index:
        index.add(TEXTS[:2])
    with pellucid.Index.open("~/index") as index:
        assert index.search("apple")[0].text == "the apple"
    assert [entry.name for entry in tmp_path.iterdir()] == ["home"]
    for unknown in ("~/models/pear", "~nobody-has-this-name/fruit"):
        with pytest.raises(ModelFolderError, match="no model"):
            pellucid.load(unknown)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("https://huggingface.co/owner/name", "is an address; give owner/name"),
        ("https://example.com/owner/name", "is an address; give owner/name"),
        ("file:///etc/passwd", "is an address; give owner/name"),
        ("bert-base-uncased", r"no model 'bert-base-uncased'.* or a hub id \(owner/name\)"),
        ("all", "no model 'all'"),
        ("all-MiniLM", "no model 'all-MiniLM'"),
        ("static-en-v2", "no model 'static-en-v2'"),
        ("paraphrase-of-mine", "no model"),
        ("static_en", "Did you mean 'static-en'"),
    ],
)
def test_other_addresses_and_names_without_an_owner_are_not_looked_up(never_online, name, message):
    with pytest.raises(ModelFolderError, match=message):
        pellucid.load(name)


def test_a_name_of_sentence_transformers_needs_no_owner(tmp_path, monkeypatch):
    """As in that library; a file of the name comes first, and a folder may not name what must be looked up."""
    asked = []
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda repo, file, **_: asked.append(repo))
    monkeypatch.setattr(
        "huggingface_hub.hf_hub_download", lambda repo, file, **_: (_ for _ in ()).throw(OSError("away"))
    )
    multilingual = "paraphrase-multilingual-MiniLM-L12-v2"
    for name in ("all-MiniLM-L6-v2", "multi-qa-mpnet-base-dot-v1", "LaBSE", "gtr-t5-xl", multilingual):
        with pytest.raises(ModelFolderError, match=f"'sentence-transformers/{name}' is not a folder here"):
            pellucid.load(name)
        assert asked.pop() == f"sentence-transformers/{name}"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "all-MiniLM-L6-v2").mkdir()
    with pytest.raises(ModelFolderError, match="holds no model"):
        pellucid.load("all-MiniLM-L6-v2")
    assert asked == []


def test_a_path_is_served_by_its_last_part(fruit, tmp_path, monkeypatch):
    fruit.save_pretrained(tmp_path / "a" / "mine")
    fruit.save_pretrained(tmp_path / "b" / "mine")
    monkeypatch.chdir(tmp_path / "a" / "mine")
    for given in (str(tmp_path / "a" / "mine"), ".", "../mine/", "../../b/mine"):
        assert list(loading.load_by_name([given])) == ["mine"]
    assert list(loading.load_by_name(["anchors-en-200", "."])) == ["anchors-en-200", "mine"]
    with pytest.raises(InputError, match="two models are called 'mine'"):
        loading.load_by_name([".", "../../b/mine"])


def test_a_bundled_name_opens_offline_and_wins_over_a_folder_of_that_name(fruit, tmp_path, monkeypatch, never_online):
    fruit.save_pretrained(tmp_path / "models" / "tiny-en")
    monkeypatch.setattr(model_folder, "_BUNDLED", tmp_path / "models")
    (tmp_path / "here" / "tiny-en").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert model_folder.bundled_models() == ["tiny-en"] and len(pellucid.load("tiny-en").vocabulary) == 5
    for name, message in (
        ("./tiny-en", r"no config\.json"),
        ("tiny-fr", r"'tiny-fr'.*tiny-en.*\./my-model.*owner/name"),
    ):
        with pytest.raises(ModelFolderError, match=message):
            pellucid.load(name)


def test_a_hub_id_is_downloaded_without_code(saved, monkeypatch):
    import huggingface_hub

    asked = {}

    def download(repo_id, *, allow_patterns, local_files_only):
        asked[repo_id] = allow_patterns
        return str(saved)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda repo, file, **_: str(saved / file))
    assert len(pellucid.load("owner/name").vocabulary) == 5
    assert set(asked) == {"owner/name"}
    assert not any(pattern.endswith((".py", ".bin", ".pkl", "*")) for pattern in asked["owner/name"])


def test_without_a_network_the_error_comes_at_once(monkeypatch, tmp_path):
    """The hub's library tries six times, over half a minute; each kind of model is fetched by another of its calls."""
    from huggingface_hub import constants

    def no_address(*_, **__):
        raise OSError(-2, "Name or service not known")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("socket.getaddrinfo", no_address)
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it tries again"))
    for open_model in (pellucid.load, loading.open_sentence_transformer, pellucid.StaticEmbedder.from_pretrained):
        with pytest.raises(ModelFolderError, match=r"owner/name") as raised:
            open_model("owner/name")
        assert len(str(raised.value).splitlines()) == 1
    with pytest.raises(ModelFolderError, match=r"cannot be reached: its host has no address\. Check the network"):
        pellucid.load("owner/name")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelFolderError, match=r"'owner/name'.*cannot be reached.*offline"):
        pellucid.load("owner/name")


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
        ('{"pellucid": {"family": "anchors", "format": 1}}', "family 'anchors', not 'static'"),
        ('{"pellucid": {"family": "static", "format": 1}, "x": "' + "y" * (2 << 20) + '"}', "larger than"),
    ],
)
def test_a_config_that_is_not_ours_is_refused(saved, config, message):
    (saved / "config.json").write_text(config)
    with pytest.raises(ModelFolderError, match=message):
        (StaticEmbedder.from_pretrained if "not 'static'" in message else pellucid.load)(saved)


def test_every_family_in_the_table_exists():
    for family, path in loading.FAMILIES.items():
        module, _, name = path.rpartition(".")
        made = getattr(pellucid, name)
        assert (made.family, made.__module__, made.__name__) == (family, f"pellucid.{module}", name)


def test_the_card_is_written_and_a_card_of_ones_own_is_kept(fruit, saved):
    card = saved / "README.md"
    assert "library_name: pellucid" in card.read_text() and "- words: 5" in card.read_text()
    StaticEmbedder(Vocabulary(["one"]), np.ones((1, 3), np.float32)).save_pretrained(saved)
    assert "- words: 1" in card.read_text()  # ours: written anew
    card.write_text("# My fruit")
    fruit.save_pretrained(saved)
    assert card.read_text() == "# My fruit" and len(pellucid.load(saved).vocabulary) == 5


# --- checksums


@pytest.mark.parametrize(
    "sums", [[], "x", {"words.txt": 3}, {"../secret": "0"}, {"/etc/passwd": "0"}, {"a/../../b": "0"}, {"": "0"}, None]
)
def test_checksums_of_files_elsewhere_are_refused(saved, sums):
    set_entry(saved / "config.json", ("pellucid", "sha256"), sums)
    for look in (pellucid.load, model_folder.verify):
        with pytest.raises(ModelFolderError, match="'sha256' must be"):
            look(saved)


def test_verify_searches_tables_for_nan_whatever_their_checksum(saved):
    table = saved / "model.safetensors"
    set_tensors(table, "embeddings", put((2, 1), np.nan))
    set_entry(saved / "config.json", ("pellucid", "sha256"), {table.name: checksum(table)})
    assert [file.name for file in model_folder.verify(saved) if "NaN or infinity" in file.state] == [table.name]


@pytest.mark.parametrize("name", model_folder.bundled_models())
def test_the_files_of_the_bundled_models_are_as_they_were_made(name):
    states = model_folder.verify(name)
    assert all(file.sound and file.state != "has no checksum" for file in states)
    assert sum(file.state == "ok" for file in states) >= 3
