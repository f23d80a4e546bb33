"""A model's folder from somebody else opens nothing outside of itself, and asks nobody, unless the caller allows it."""

import json
import os
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import pellucid
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.cli.app import app
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.errors import ModelFolderError, PellucidError
from pellucid.persistence import folder as model_folder

HUB = "somebody/a-model"


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch, tmp_path):
    """Whoever opens a socket fails the test; the hub's cache is an empty folder."""

    def refused(*arguments, **options):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


def anchors(fruit, folder: Path, encoder: str) -> Path:
    """Save an anchor model that names an encoder."""
    AnchorEmbedder(fruit, ["the apple", "car"]).save_pretrained(folder, encoder_name=encoder)
    return folder


def test_what_a_folder_names_elsewhere_is_refused_with_the_way_out(fruit, tmp_path, monkeypatch):
    """A hub id, an absolute path, one with dots, one through a link."""
    monkeypatch.chdir(tmp_path)
    fruit.save_pretrained(tmp_path / "secret")
    names = [HUB, str(tmp_path / "secret"), "../secret", "./../secret", "anchors/../../secret", "~/secret", "name"]
    for number, name in enumerate(names):
        folder = anchors(fruit, tmp_path / f"m{number}", name)
        with pytest.raises(ModelFolderError, match=r"allow_outside=True") as refused:
            pellucid.load(folder)
        assert repr(name)[1:-1] in str(refused.value)


def test_what_is_allowed_opens(fruit, tmp_path, monkeypatch):
    fruit.save_pretrained(tmp_path / "elsewhere")
    folder = anchors(fruit, tmp_path / "m", str(tmp_path / "elsewhere"))
    with pytest.raises(ModelFolderError):
        pellucid.load(folder)
    found = pellucid.load(folder, allow_outside=True)
    with pytest.raises(ModelFolderError):
        pellucid.load(folder)  # that was allowed once
    np.testing.assert_allclose(
        found.encode("the apple"), AnchorEmbedder(fruit, ["the apple", "car"]).encode("the apple"), atol=1e-6
    )
    found.save_pretrained(tmp_path / "again")  # keeps the name
    np.testing.assert_allclose(
        pellucid.load(tmp_path / "again", allow_outside=True).encode("car"), found.encode("car"), atol=1e-6
    )
    (folder / "inside").mkdir()
    fruit.save_pretrained(folder / "inside" / "fruit")
    file = folder / "config.json"
    file.write_text(file.read_text().replace(str(tmp_path / "elsewhere"), "inside/fruit"))
    pellucid.load(folder)


def test_a_bundled_name_opens_and_a_bundled_model_may_name_the_hub(fruit, tmp_path):
    pellucid.load("anchors-en-200").save_pretrained(tmp_path / "m")
    pellucid.load(tmp_path / "m")
    assert model_folder.resolve_reference(model_folder.locate("lexicon-minilm"), HUB) == HUB


def test_what_is_in_the_hubs_cache_opens_without_asking(fruit, tmp_path):
    snapshot = tmp_path / "cache/models--somebody--a-model/snapshots" / ("0" * 40)
    fruit.save_pretrained(tmp_path / "plain")
    blobs = snapshot.parents[1] / "blobs"
    blobs.mkdir(parents=True)
    for number, file in enumerate(sorted(p for p in (tmp_path / "plain").rglob("*") if p.is_file())):
        place = snapshot / file.relative_to(tmp_path / "plain")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, blobs / str(number))
        place.symlink_to(os.path.relpath(blobs / str(number), place.parent))  # as the hub's cache has them
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs/main").write_text("0" * 40)
    opened = pellucid.load(anchors(fruit, tmp_path / "m", HUB))
    assert opened.encoder_name == HUB
    np.testing.assert_allclose(
        opened.encode("car"), AnchorEmbedder(fruit, ["the apple", "car"]).encode("car"), atol=1e-6
    )


@pytest.mark.parametrize("family", ["static", "anchors", "ensemble", "static-lexicon"])
def test_links_that_lead_out_are_refused(fruit, tmp_path, family):
    """Every file and folder of a model, replaced by a link to one like it elsewhere."""
    models = {
        "static": fruit,
        "anchors": AnchorEmbedder(fruit, ["the apple", "car"]),
        "ensemble": EnsembleEmbedder([fruit, fruit]),
        "static-lexicon": None,
    }
    model = models[family] or pellucid.load("lexicon-en").keep(*range(20))
    model.save_pretrained(tmp_path / "m")
    shutil.copytree(tmp_path / "m", tmp_path / "elsewhere")
    for place in sorted((tmp_path / "m").rglob("*")):
        own = place.relative_to(tmp_path / "m")
        aside = tmp_path / "aside"
        place.rename(aside)
        place.symlink_to(tmp_path / "elsewhere" / own)
        with pytest.raises(ModelFolderError, match="a link that leads out of the folder"):
            pellucid.load(tmp_path / "m")
        pellucid.load(tmp_path / "m", allow_outside=True)
        place.unlink()
        aside.rename(place)
    (tmp_path / "m/another.txt").symlink_to("config.json")  # a link that stays inside
    pellucid.load(tmp_path / "m")
    (tmp_path / "linked").symlink_to(tmp_path / "m")  # the folder itself may be found by a link
    pellucid.load(tmp_path / "linked")


@pytest.mark.needs("torch")
def test_a_backbone_and_an_adapter_elsewhere_are_refused(tmp_path):
    from families import lexicon_model

    model = lexicon_model()
    model.save_pretrained(tmp_path / "m")
    shutil.copytree(tmp_path / "m/backbone", tmp_path / "elsewhere")
    for name in (HUB, str(tmp_path / "elsewhere"), "../elsewhere"):
        model.save_pretrained(tmp_path / "named", backbone_name=name)
        with pytest.raises(ModelFolderError, match="allow_outside=True"):
            pellucid.load(tmp_path / "named")
        adapter = {"peft_type": "LORA", "r": 1, "base_model_name_or_path": name}
        (tmp_path / "m/backbone/adapter_config.json").write_text(json.dumps(adapter))
        with pytest.raises(ModelFolderError, match="allow_outside=True"):
            pellucid.load(tmp_path / "m")
    model.save_pretrained(tmp_path / "named", backbone_name=str(tmp_path / "elsewhere"))
    assert pellucid.load(tmp_path / "named", allow_outside=True).backbone.name == str(tmp_path / "elsewhere")


def test_folders_within_folders_are_asked_too(fruit, tmp_path):
    """An ensemble of anchors whose encoder is named: what is allowed for one reaches no other."""
    fruit.save_pretrained(tmp_path / "elsewhere")
    inner = AnchorEmbedder(fruit, ["the apple"])
    inner.encoder_name = str(tmp_path / "elsewhere")
    EnsembleEmbedder([inner, fruit]).save_pretrained(tmp_path / "m")
    with pytest.raises(ModelFolderError, match="allow_outside"):
        pellucid.load(tmp_path / "m")
    pellucid.load(tmp_path / "m", allow_outside=True)


@pytest.mark.needs("pyarrow")
def test_a_corpus_is_encoded_by_what_was_allowed(fruit, tmp_path):
    from pellucid.bulk import encode_corpus

    fruit.save_pretrained(tmp_path / "elsewhere")
    folder = anchors(fruit, tmp_path / "m", str(tmp_path / "elsewhere"))
    (tmp_path / "c.txt").write_text("the apple\ncar\n")
    with pytest.raises(PellucidError, match="allow_outside"):
        encode_corpus(str(folder), tmp_path / "c.txt", tmp_path / "out")
    with model_folder.allow_external(True):
        encode_corpus(str(folder), tmp_path / "c.txt", tmp_path / "out")


def test_the_command_line_has_one_switch(fruit, tmp_path):
    fruit.save_pretrained(tmp_path / "elsewhere")
    folder = anchors(fruit, tmp_path / "m", str(tmp_path / "elsewhere"))
    run = CliRunner().invoke
    refused = run(app, ["describe", "the apple", "--model", str(folder)])
    assert refused.exit_code and "allow-outside" in refused.output.replace("\n", "")
    assert run(app, ["--allow-outside", "describe", "the apple", "--model", str(folder)]).exit_code == 0
    allowed = {"PELLUCID_ALLOW_OUTSIDE": "1"}
    assert run(app, ["describe", "the apple", "--model", str(folder)], env=allowed).exit_code == 0
