"""Every family: what was saved opens alike, edits of the table count, and a save is whole or has not been."""

import json
import warnings

import numpy as np
import pytest

import pellucid
from families import FAMILIES, STATIC, TEXTS, VARIANTS, cell, dense_rows, edit_table, opened, reopened
from resuming import count_writes, stop_at_write

each_family = pytest.mark.parametrize("name", FAMILIES)
WITH_TABLE = [name for name in FAMILIES if not name.startswith("ensemble")]
each_table = pytest.mark.parametrize("name", WITH_TABLE)


def same(first, second, atol=1e-6):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(dense_rows(first.encode(TEXTS)), dense_rows(second.encode(TEXTS)), atol=atol)
    assert list(first.dimensions) == list(second.dimensions)


def odd_names(model):
    """Edit a model: names that a table must protect, a merged dimension, one scaled, one left out."""
    names = model.dimensions.names
    odd = model.rename({names[0]: "=SUM(1)", names[1]: "--", names[2]: "a | b"}).merge(names[3], names[4])
    return odd.scale({"--": 0.5}).without("=SUM(1)")


@pytest.mark.parametrize("name", [*FAMILIES, *VARIANTS])
def test_a_saved_model_opens_alike_and_is_saved_alike(model, name, tmp_path):
    after = reopened(model, tmp_path / "m")
    assert type(after) is type(model)
    same(after, model)
    for setting in ("settings", "max_active_dims"):
        assert getattr(after, setting, None) == getattr(model, setting, None)
    if name == "key tokens, adjusted":
        assert (after.adjustment.kind, after.adjustment.strength) == ("component", -1.0)
    if "lexicon" in name and "static" not in name:
        assert (after.clusters.assignment == model.clusters.assignment).all()
    pairs = [each.explain(TEXTS[0], TEXTS[4]) for each in (after, model)]
    assert pairs[0].score == pytest.approx(pairs[1].score, abs=1e-5)
    assert all(file.sound for file in pellucid.verify(tmp_path / "m"))
    files = [file for file in (tmp_path / "m").rglob("*") if file.is_file()]
    assert not [file for file in files if file.suffix in (".bin", ".pt", ".pkl", ".pth")]
    after.save_pretrained(tmp_path / "again")
    for file in (file for file in files if name in STATIC and file.name != "README.md"):  # it names its folder
        assert (tmp_path / "again" / file.relative_to(tmp_path / "m")).read_bytes() == file.read_bytes(), file
    after.save_pretrained(tmp_path / "m")  # over what it is mapped from
    same(after, model)
    same(opened(model, tmp_path / "m"), model)


@each_table
def test_an_edited_model_opens_with_its_names_and_scales(model, name, tmp_path):
    edited = odd_names(model)
    again = reopened(edited, tmp_path / "m")
    same(again, edited, atol=1e-3 if name == "anchors" else 1e-5)  # rows of anchors over static models may be float16
    assert again.dimensions.names[:2] == ["--", "a | b"]


@each_table
def test_a_name_and_a_scale_that_a_person_changed_count(model, name, tmp_path):
    model.save_pretrained(tmp_path / "m")
    number = int(dense_rows(model.encode([TEXTS[0]]))[0].argmax())
    edit_table(tmp_path / "m", cell(number, 1, "of mine"))
    edit_table(tmp_path / "m", cell(number, 2, " 5e-1 "))
    after = opened(model, tmp_path / "m")
    same(after, model.scale({number: 0.5}).rename({number: "of mine"}), atol=2e-3)
    same(reopened(after, tmp_path / "again"), after, atol=2e-3)  # the scale is in the weights, and not applied twice


@each_family
def test_an_interrupted_save_leaves_the_model_that_was_there(model, name, tmp_path):
    model.save_pretrained(tmp_path / "models" / "m")
    other = model.scale({1: 0.5}) if name in WITH_TABLE else model
    last = count_writes(lambda: other.save_pretrained(tmp_path / "other"))
    for number in sorted({1, last // 2 or 1, last}):
        stop_at_write(lambda: other.save_pretrained(tmp_path / "models" / "m"), number)
        after = opened(model, tmp_path / "models" / "m")
        same(after, other if number == last else model)  # at the last the new one is in its place
        assert [entry.name for entry in (tmp_path / "models").iterdir()] == ["m"]
    other.save_pretrained(tmp_path / "models" / "m")
    same(opened(model, tmp_path / "models" / "m"), other)


@pytest.mark.parametrize("name", [*STATIC, "lexicon", "key tokens"])
def test_the_config_says_what_was_written(model, name, tmp_path):
    model.save_pretrained(tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())["pellucid"]
    assert (config["family"], config["format"], config["version"]) == (model.family, 1, pellucid.__version__)
    assert set(config["files"]) == {entry.name for entry in (tmp_path / "m").iterdir()} - {"config.json", "README.md"}
    assert "library_name: pellucid" in (tmp_path / "m" / "README.md").read_text()
