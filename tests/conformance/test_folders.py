"""Every family: what was saved, copied or edited is the model it should be, and a save is whole or absent."""

import copy
import json
import pickle
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from families import (
    ANCHORS,
    FAMILIES,
    STATIC,
    TEXTS,
    VARIANTS,
    WORDS,
    cell,
    dense_rows,
    edit_table,
    first_letters,
    opened,
    reopened,
    static_model,
)
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.core.fingerprint import fingerprint, same_model
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.errors import InputError
from pellucid.persistence.folder import bundled_models
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary
from resuming import count_writes, stop_at_write
from tiny_models import tiny_transformer

WITH_TABLE = [name for name in FAMILIES if not name.startswith("ensemble")]
each_table = pytest.mark.parametrize("name", WITH_TABLE)


def same(first, second, atol=1e-6):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(dense_rows(first.encode(TEXTS)), dense_rows(second.encode(TEXTS)), atol=atol)
    assert list(first.dimensions) == list(second.dimensions)


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
    assert is_same(after, model)
    after.save_pretrained(tmp_path / "again")
    assert is_same(opened(model, tmp_path / "again"), model)
    for file in (file for file in files if name in STATIC and file.name != "README.md"):  # it names its folder
        assert (tmp_path / "again" / file.relative_to(tmp_path / "m")).read_bytes() == file.read_bytes(), file
    after.save_pretrained(tmp_path / "m")  # over what it is mapped from
    same(after, model)
    same(opened(model, tmp_path / "m"), model)


@each_table
def test_an_edited_model_opens_with_its_names_and_scales(model, name, tmp_path):
    renamed = model.rename({0: "=SUM(1)", 1: "--", 2: "a | b"})  # names that a table must protect
    edited = renamed.merge(3, 4).scale({"--": 0.5}).without("=SUM(1)")
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


@pytest.mark.parametrize("name", FAMILIES)
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


# A model that was used may be pickled, copied, sent to other processes and shared by threads: always equal vectors.

MANY = [f"{first} {second}." for first in TEXTS for second in TEXTS] * 400  # enough to start the compiled encoder


def many(model, name="static"):
    """The rows of some texts; of many where they start the compiled encoder."""
    return dense_rows(model.encode(MANY if name in STATIC else TEXTS))


@pytest.mark.full
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("copied", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy, copy.copy])
def test_a_copy_of_a_used_model_gives_equal_vectors(model, name, copied):
    expected, other = many(model, name), copied(model)
    assert other is not model
    for each in (other, model, copied(other)):
        np.testing.assert_allclose(many(each, name), expected, atol=1e-6)
        np.testing.assert_allclose(dense_rows(each.encode([*TEXTS[:1], *TEXTS]))[1:], many(each, ""), atol=1e-6)
        assert fingerprint(each) == fingerprint(model)


def each_encoded(models):
    """What another process gives, and the models' fingerprints there."""
    return {name: (many(model, name), fingerprint(model)) for name, model in models.items()}


@pytest.mark.full
def test_workers_of_joblib_that_map_the_arrays_give_equal_vectors_and_fingerprints(every_family):
    joblib = pytest.importorskip("joblib")
    (found,) = joblib.Parallel(n_jobs=2, max_nbytes=256)([joblib.delayed(each_encoded)(every_family)])
    for name, (rows, known) in each_encoded(every_family).items():
        np.testing.assert_allclose(found[name][0], rows, atol=1e-6, err_msg=name)
        assert found[name][1] == known, name


@pytest.mark.full
@pytest.mark.parametrize("name", FAMILIES)
def test_threads_that_share_a_model_get_equal_vectors(model, name):
    shared = copy.deepcopy(model)  # not started: the threads do that too
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: many(shared, name), range(8)):
            np.testing.assert_allclose(found, many(model, name), atol=1e-6)


@pytest.mark.parametrize("processes", [0, pytest.param(2, marks=pytest.mark.full)])
def test_a_model_whose_folder_is_gone_or_another_one_pickles(tmp_path: Path, processes: int):
    """What other processes get is what was opened, not what is at the path by then."""
    joblib = pytest.importorskip("joblib")
    model = static_model()
    expected = many(model)
    model.save_pretrained(tmp_path / "m")
    opened = pellucid.load(tmp_path / "m")
    pellucid.StaticEmbedder(Vocabulary(WORDS), -model.vectors).save_pretrained(tmp_path / "m")
    replaced = joblib.Parallel(n_jobs=processes or 1, max_nbytes=256)([joblib.delayed(many)(opened)] * processes)
    shutil.rmtree(tmp_path / "m")
    for found in (*replaced, many(pickle.loads(pickle.dumps(opened))), many(opened)):
        np.testing.assert_allclose(found, expected, atol=1e-6)


# A model has one fingerprint: equal for what is the same model, another after any change of what it computes with.


def is_same(first, second):
    return same_model(fingerprint(pellucid.load(first)), json.loads(json.dumps(fingerprint(pellucid.load(second)))))


def assert_all_differ(models):
    prints = [fingerprint(pellucid.load(model)) for model in models]
    assert [pair for pair in combinations(range(len(models)), 2) if same_model(*(prints[n] for n in pair))] == []


@pytest.mark.needs("torch")
@pytest.mark.full
def test_fingerprints_of_all_families_and_their_edits_differ(every_family, tmp_path):
    """Whatever changes a vector is refused: a dimension left out, scaled or merged, in every family."""
    found = []
    for name, model in every_family.items():
        found.append((name, model))
        if "ensemble" not in name:
            found += [(name, edited) for edited in (model.without(1), model.scale({2: 1.001}), model.merge(0, 2))]
            assert is_same(model.rename({0: "another name"}), model)
            for number, (_, edited) in enumerate(found[-3:]):
                assert is_same(reopened(edited, tmp_path / f"{name}{number}"), edited), (name, number)
    lexicon, tokens = every_family["lexicon"], every_family["key tokens"]
    others = [
        *(lexicon.with_settings(replace(lexicon.settings, **{key: value}))
          for key, value in (("pooling", "sum"), ("max_length", 9), ("instruction", "find"))),
        tokens.with_settings(replace(tokens.settings, top_k=19)),
    ]  # fmt: skip
    assert_all_differ([*(each for _, each in found), *others])


@pytest.mark.needs("torch")
def test_one_weight_of_a_transformer_counts(every_family):
    for name in ("lexicon", "key tokens"):
        model = copy.deepcopy(every_family[name])
        for weight in list(model.backbone.model.parameters())[::7]:
            values = weight.detach().numpy().reshape(-1)  # the same memory
            before, values[-1] = values[-1], np.nextafter(values[-1], np.float32(9))
            assert not is_same(model, every_family[name])
            values[-1] = before
        assert is_same(model, every_family[name])


def test_settings_and_weights_of_a_sentence_transformer_count(tmp_path):
    model = tiny_transformer(tmp_path / "bert", normalize=True)
    model.save_pretrained(str(tmp_path / "saved"))
    assert is_same(pellucid.loading.open_sentence_transformer(tmp_path / "saved"), model)

    others = [copy.deepcopy(model) for _ in range(8)]
    for other, change in zip(others, (
        lambda other: next(other.parameters()).data.view(-1)[3].add_(1e-6),
        lambda other: setattr(other, "max_seq_length", 5),
        lambda other: other.prompts.update(query="find: "),
        lambda other: setattr(other, "truncate_dim", 7),
        lambda other: other.half(),
        lambda other: setattr(other[0].auto_model.config, "layer_norm_eps", 1e-3),
        lambda other: other.bfloat16(),
        lambda other: other[1].__init__(16, pooling_mode="cls"),
    ), strict=True):  # fmt: skip
        change(other)
    assert_all_differ([model, *others])


@given(st.data())
def test_any_flipped_bit_of_a_static_model_makes_it_another(data):
    dtype = data.draw(st.sampled_from([np.float32, np.float16, np.int8]))
    words = data.draw(st.lists(st.text(min_size=1, max_size=4), min_size=2, max_size=6, unique=True))
    values = np.arange(len(words) * 3).reshape(-1, 3).astype(dtype)
    scales = np.ones(len(words), np.float32) if dtype == np.int8 else None
    known = fingerprint(StaticEmbedder(Vocabulary(words), values, scales))
    assert same_model(known, fingerprint(StaticEmbedder(Vocabulary(words), np.asfortranarray(values), scales)))
    for array in [values] if scales is None else [values, scales]:
        flipped = array.copy()
        place = data.draw(st.integers(0, flipped.nbytes - 1))
        flipped.view(np.uint8).reshape(-1)[place] ^= 1 << data.draw(st.integers(0, 7))
        parts = (flipped, scales) if array is values else (values, flipped)
        assert not same_model(known, fingerprint(StaticEmbedder(Vocabulary(words), *parts)))
    swapped = [words[1], words[0], *words[2:]]
    assert not same_model(known, fingerprint(StaticEmbedder(Vocabulary(swapped), values, scales)))


def test_every_way_of_saving_a_static_model_is_a_model_of_its_own(tmp_path):
    model = static_model()
    dtypes = ("float32", "float16", "int8", "int4")
    saved = {dtype: reopened(model, tmp_path / dtype, dtype=dtype) for dtype in dtypes}
    assert is_same(saved.pop("float16"), model)  # as it was
    assert_all_differ([model, *saved.values()])


def test_subwords_and_spelling_count():
    model = static_model()
    assert not is_same(model, StaticEmbedder(Vocabulary(model.vocabulary.words), model.vectors))
    english = pellucid.load("static-multi")
    plain = StaticEmbedder(english.vocabulary, english.vectors, english.scales)
    assert english.spelling is not None and not is_same(english, plain)
    rows = np.eye(2, dtype=np.float32)
    assert not is_same(StaticEmbedder(Vocabulary(["ab", "c"]), rows), StaticEmbedder(Vocabulary(["a", "bc"]), rows))


@pytest.mark.parametrize("weights", [[1, 2], [0.1, 0.7], [1 / 3, 0.12345]])
def test_weights_of_an_ensemble_count_and_survive_saving(fruit, tmp_path, weights):
    model = EnsembleEmbedder([fruit, static_model()], weights)
    assert is_same(reopened(model, tmp_path / "m"), model) and not is_same(model, model.with_weights([1, 1]))


def test_functions_are_known_by_their_vectors():
    def other(texts):
        return first_letters(texts)[:, ::-1]

    assert is_same(first_letters, lambda texts: first_letters(texts) + 1e-5) and not is_same(first_letters, other)
    assert is_same(AnchorEmbedder(first_letters, ANCHORS), AnchorEmbedder(first_letters, ANCHORS))
    one, two = (EnsembleEmbedder([f, g]) for f, g in ((first_letters, other), (other, first_letters)))
    assert not is_same(one, two) and is_same(one, copy.copy(one))


def test_what_is_no_fingerprint_is_no_model():
    known = fingerprint(pellucid.load(first_letters))
    for broken in ({}, {"stored": known["stored"]}, {**known, "functions": [{}]}, {**known, "functions": 3}, None, []):
        assert not same_model(known, broken) and not same_model(broken, known)
    with pytest.raises(InputError, match="only an opened model"):
        fingerprint("static-en")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full) if name.startswith("static") or name == "lexicon-en" else name
        for name in bundled_models()
        if "minilm" not in name
    ],
)
def test_bundled_models_saved_and_opened_are_the_same_ones(name, tmp_path):
    model = pellucid.load(name)
    again = reopened(model, tmp_path / "m")
    assert is_same(again, model)
    assert not is_same(reopened(again.scale({0: 1000}), tmp_path / "m"), model)


# Edits of dimensions


def scaled(rows, first, second):
    rows = rows.copy()
    rows[:, [first, second]] *= 0.5, 0
    return rows


def merged(rows, first, second):
    rows = rows.copy()
    rows[:, first] = (rows[:, first] + rows[:, second]) / 2**0.5
    return np.delete(rows, second, axis=1)


# an edit of the numbers of some dimensions, in order, and what it does to rows before they get length 1
EDITS = {
    "without": (lambda model, a, b, c: model.without(model.dimensions.names[a], c),
                lambda rows, a, b, c: np.delete(rows, [a, c], axis=1)),
    "keep": (lambda model, a, b, c: model.keep(c, a), lambda rows, a, b, c: rows[:, [a, c]]),
    "rename": (lambda model, a, b, c: model.rename({a: "mine", b: "yours", c: "theirs"}), lambda rows, *_: rows),
    "scale": (lambda model, a, b, c: model.scale({a: 0.5, b: 0}), lambda rows, a, b, c: scaled(rows, a, b)),
    "merge": (lambda model, a, b, c: model.merge(a, c, name="both"), lambda rows, a, b, c: merged(rows, a, c)),
    "merge twice": (lambda model, a, b, c: model.merge(a, b, name="ab").merge("ab", c - 1),
                    lambda rows, a, b, c: merged(merged(rows, a, b), a, c - 1)),
    "all": (lambda model, a, b, c: model.scale({a: 0.5, b: 0}).merge(a, c).without(0).rename({0: "x"}),
            lambda rows, a, b, c: np.delete(merged(scaled(rows, a, b), a, c), 0, axis=1)),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("name", [*WITH_TABLE, "static, float32", "static, int8"])
def test_edits_do_to_rows_what_they_say(model, name, edit):
    before = dense_rows(model.encode(TEXTS))
    strongest = sorted(np.argsort(-np.minimum(before[0], before[4]) - before.mean(axis=0) / 99)[:3].tolist())
    change, expected = EDITS[edit]
    after, rows = change(model, *strongest), expected(before, *strongest)
    assert type(after) is type(model) and (dense_rows(model.encode(TEXTS)) == before).all()
    units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    np.testing.assert_allclose(
        dense_rows(after.encode(TEXTS)), units if name.startswith(("static", "lexicon")) else rows, atol=1e-5
    )
    assert len(after.dimensions) == rows.shape[1]
    why = after.explain(TEXTS[0], TEXTS[4])
    assert why.score == pytest.approx(float(units[0] @ units[4]), abs=1e-5)
    assert (
        {row.name for row in why.rows} & {"mine", "yours", "theirs"}
        or edit != "rename"
        or why.rows[0].kind == "word pair"
    )
    assert name != "lexicon" or all(row.spans1 and row.spans2 for row in why.rows)
