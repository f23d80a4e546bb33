"""A model has one fingerprint: equal for what is the same model, another after any change of what it computes with."""

import copy
import json
import pickle
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from families import ANCHORS, FAMILIES, first_letters, reopened, static_model
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.core.fingerprint import fingerprint, same_model
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.errors import InputError
from pellucid.lexicon.static import StaticLexiconEmbedder
from pellucid.persistence.folder import bundled_models, locate
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary
from tiny_models import tiny_transformer


def same(first, second):
    return same_model(fingerprint(pellucid.load(first)), json.loads(json.dumps(fingerprint(pellucid.load(second)))))


def assert_all_differ(models):
    prints = [fingerprint(pellucid.load(model)) for model in models]
    assert [pair for pair in combinations(range(len(models)), 2) if same_model(*(prints[n] for n in pair))] == []


@pytest.mark.parametrize("name", FAMILIES)
def test_copies_and_saved_models_have_the_fingerprint_of_the_first(model, name, tmp_path):
    for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert fingerprint(other) == fingerprint(model)
    once = reopened(model, tmp_path / "once")
    assert same(once, model) and same(reopened(once, tmp_path / "twice"), model)


@pytest.mark.full
def test_fingerprints_of_all_families_and_their_edits_differ(every_family, tmp_path):
    """Whatever changes a vector is refused: a dimension left out, scaled or merged, in every family."""
    found = []
    for name, model in every_family.items():
        found.append((name, model))
        if "ensemble" not in name:
            found += [(name, edited) for edited in (model.without(1), model.scale({2: 1.001}), model.merge(0, 2))]
            assert same(model.rename({0: "another name"}), model)
            for number, (_, edited) in enumerate(found[-3:]):
                edited.save_pretrained(tmp_path / f"{name}{number}")
                assert same(pellucid.load(tmp_path / f"{name}{number}"), edited), (name, number)
    assert_all_differ([each for _, each in found])


@pytest.mark.needs("torch")
def test_every_setting_of_a_transformer_counts(every_family):
    lexicon, tokens = every_family["lexicon"], every_family["key tokens"]
    others = [
        lexicon.with_settings(replace(lexicon.settings, pooling="sum")),
        lexicon.with_settings(replace(lexicon.settings, max_length=9)),
        lexicon.with_instruction("find"),
        tokens.with_settings(replace(tokens.settings, top_k=19)),
    ]
    assert_all_differ([lexicon, tokens, *others])


def test_one_weight_of_a_transformer_counts(every_family):
    torch = pytest.importorskip("torch")
    for name in ("lexicon", "key tokens"):
        model = copy.deepcopy(every_family[name])
        for weight in list(model.backbone.model.parameters())[::7]:
            with torch.no_grad():
                before = weight.view(-1)[-1].item()
                weight.view(-1)[-1] = float(np.nextafter(np.float32(before), np.float32(9)))
                assert not same(model, every_family[name])
                weight.view(-1)[-1] = before
        assert same(model, every_family[name])


def test_settings_and_weights_of_a_sentence_transformer_count(tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    model = tiny_transformer(tmp_path / "bert", normalize=True)
    model.save_pretrained(str(tmp_path / "saved"))
    assert same(pellucid.loading.open_sentence_transformer(tmp_path / "saved"), model)

    def changed(change):
        other = copy.deepcopy(model)
        change(other)
        return other

    def weight(other):
        with torch.no_grad():
            next(other.parameters()).view(-1)[3] += 1e-6

    others = [
        changed(weight),
        changed(lambda other: setattr(other, "max_seq_length", 5)),
        changed(lambda other: other.prompts.update(query="find: ")),
        changed(lambda other: setattr(other, "truncate_dim", 7)),
        changed(lambda other: other.half()),
        changed(lambda other: setattr(other[0].auto_model.config, "layer_norm_eps", 1e-3)),
        changed(lambda other: other.bfloat16()),
        changed(lambda other: other[1].__init__(16, pooling_mode="cls")),
    ]
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
    found = [model]
    for dtype in ("float32", "float16", "int8", "int4"):
        model.save_pretrained(tmp_path / dtype, dtype=dtype)
        found.append(pellucid.load(tmp_path / dtype))
    assert same(found[2], model)  # float16, as it was
    assert_all_differ([model, found[1], found[3], found[4]])


def test_subwords_and_spelling_count():
    model = static_model()
    assert not same(model, StaticEmbedder(Vocabulary(model.vocabulary.words), model.vectors))
    english = pellucid.load("static-multi")
    plain = StaticEmbedder(english.vocabulary, english.vectors, english.scales)
    assert english.spelling is not None and not same(english, plain)
    rows = np.eye(2, dtype=np.float32)
    assert not same(StaticEmbedder(Vocabulary(["ab", "c"]), rows), StaticEmbedder(Vocabulary(["a", "bc"]), rows))


@pytest.mark.parametrize("weights", [[1, 2], [0.1, 0.7], [1 / 3, 0.12345]])
def test_weights_of_an_ensemble_count_and_survive_saving(fruit, tmp_path, weights):
    model = EnsembleEmbedder([fruit, static_model()], weights)
    model.save_pretrained(tmp_path / "m")
    assert same(pellucid.load(tmp_path / "m"), model) and not same(model, model.with_weights([1, 1]))


def test_functions_are_known_by_their_vectors():
    def near(texts):
        return first_letters(texts) + 1e-5

    def other(texts):
        return first_letters(texts)[:, ::-1]

    assert same(first_letters, near) and not same(first_letters, other)
    assert same(AnchorEmbedder(first_letters, ANCHORS), AnchorEmbedder(first_letters, ANCHORS))
    one, two = (EnsembleEmbedder([f, g]) for f, g in ((first_letters, other), (other, first_letters)))
    assert not same(one, two) and same(one, copy.copy(one))


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
    model.save_pretrained(tmp_path / "m")
    again = pellucid.load(tmp_path / "m")
    assert same(again, model)
    again.scale({0: 1000}).save_pretrained(tmp_path / "m")
    assert not same(pellucid.load(tmp_path / "m"), model)
    assert locate(name).exists() and isinstance(model, (StaticEmbedder, AnchorEmbedder, StaticLexiconEmbedder))
