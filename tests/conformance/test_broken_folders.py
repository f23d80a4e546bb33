"""A folder that is damaged, or describes no model: the same vectors or our error with the file, never anything else."""

import json
import math
import shutil
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

import pellucid  # noqa: E402
from damage import PLACES, damages, files_of  # noqa: E402
from families import dense_rows, static_lexicon_model, static_model  # noqa: E402
from pellucid.anchors.embedder import AnchorEmbedder  # noqa: E402
from pellucid.ensemble.embedder import EnsembleEmbedder  # noqa: E402
from pellucid.errors import ModelFolderError, PellucidError  # noqa: E402
from pellucid.keytokens.adjustments import Adjustment  # noqa: E402
from pellucid.keytokens.embedder import KeyTokenEmbedder  # noqa: E402
from pellucid.keytokens.states import KeyTokenSettings  # noqa: E402
from pellucid.lexicon import LexiconSettings  # noqa: E402
from pellucid.lexicon.clusters import cluster_vocabulary  # noqa: E402
from pellucid.lexicon.embedder import LexiconEmbedder  # noqa: E402
from pellucid.persistence.store import read_tensors, write_tensors  # noqa: E402
from pellucid.transformer.backbone import open_backbone  # noqa: E402
from tiny_models import WORDS, backbone_of, byte_level, random_adapter, saved_backbone, tiny_teacher  # noqa: E402

STATIC_FILES = ["model.safetensors", "words.txt", "config.json"]
FILES = {  # those of the library itself, without which nothing opens
    "static": STATIC_FILES, "int8": STATIC_FILES, "int4": STATIC_FILES,
    "static lexicon": ["lexicon.safetensors", "words.txt", "config.json", "dimensions.tsv"],
    "static anchors": ["anchors.json", "anchors/model.safetensors", "config.json", "dimensions.tsv"],
    "lexicon": ["lexicon.safetensors", "lexicon.json", "config.json", "dimensions.tsv"],
    "named": ["lexicon.safetensors", "lexicon.json", "config.json", "dimensions.tsv"],
    "key tokens": ["keytokens.safetensors", "keytokens.json", "config.json", "dimensions.tsv"],
    "anchors": ["anchors.json", "config.json", "dimensions.tsv"],
    "ensemble": ["ensemble.json", "config.json"],
    "static ensemble": ["ensemble.json", "config.json"],
}  # fmt: skip
TEXTS = ["The man is riding a horse.", "a doctor gave the sick boy medicine", "", "cars", "the apple, a pear"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory, module_fruit):
    """A folder of each kind."""
    root = tmp_path_factory.mktemp("whole")
    bert, llama = backbone_of("bert"), backbone_of("llama", "causal")
    adapter = random_adapter(root / "lora", saved_backbone(llama, root / "llama"))
    adapted = open_backbone(root / "llama", adapter=adapter, device="cpu")
    lexicon, named = (LexiconEmbedder(b, cluster_vocabulary(b.head, b.tokenizer, 12)) for b in (bert, adapted))
    mean = Adjustment("mean", np.linspace(-1, 1, 32, dtype=np.float32), 0.0, 5)
    tokens = KeyTokenEmbedder(llama, KeyTokenSettings(top_k=30, signs="signed"), adjustment=mean)
    encoder, words = tiny_teacher(root / "stock", WORDS, 32), static_model()
    members = {"anchors": AnchorEmbedder(words, ["the cat", "bank loan"]), "static": words}
    models = dict.fromkeys(("static", "int8", "int4"), module_fruit) | {
        "lexicon": lexicon.scale({0: 2.0}), "named": named, "key tokens": tokens.merge(40, 41),
        "anchors": AnchorEmbedder(encoder, ["a horse", "the doctor", "cars"]),
        "ensemble": EnsembleEmbedder({"named": named, "stock": encoder}),
        "static anchors": AnchorEmbedder(module_fruit, ["apple", "apple and pear", "the car"]),
        "static ensemble": EnsembleEmbedder(members), "static lexicon": static_lexicon_model(),
    }  # fmt: skip
    options = {"named": {"backbone_name": str(root / "llama")}}
    options |= {name: {"dtype": name.replace("static", "float32"), "extra_words": ["pears"]} for name in [*models][:3]}
    for name, model in models.items():
        model.save_pretrained(root / name, **options.get(name, {}))
    return root


@pytest.fixture(scope="module")
def expected(saved):
    return {kind: vectors(saved / kind) for kind in FILES}


@pytest.fixture
def folder(saved, kind, tmp_path):
    """A copy of the folder of a kind."""
    shutil.copytree(saved / kind, tmp_path / "m")
    return tmp_path / "m"


def vectors(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dense_rows(pellucid.load(folder, allow_outside=True).encode(TEXTS))  # one names its backbone


def refused(folder, message=None):
    with pytest.raises(ModelFolderError, match=message) as error:
        vectors(folder)
    assert str(folder) in str(error.value)


def outcome(folder, expected, what, strict):
    """Open and encode; return "same", "other" or our error's text, and let any other error through."""
    try:
        rows = vectors(folder)
    except PellucidError as error:
        return f"refused: {error}"
    if rows.shape == expected.shape and np.array_equal(rows, expected):
        return "same"
    assert not strict, f"{what}: other vectors, and no error"
    assert np.isfinite(rows).all() and len(rows) == len(TEXTS), what
    return "other"


# Files that are gone, cut short, or something else

TORCH = ("lexicon", "named", "key tokens", "anchors", "ensemble")


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.full] * (kind in TORCH)) for kind in FILES])
def test_a_file_that_is_lost_cut_or_no_file_is_refused_or_nobody_needs_it(folder, expected, kind):
    for file, loss in damages(folder):
        name = str(file.relative_to(folder))
        is_edit = loss in ("noise", "longer") or name.endswith("dimensions.tsv")  # which may be another model
        found = outcome(folder, expected[kind], f"{name}: {loss}", strict=not is_edit)
        may_open = name not in FILES[kind] or (is_edit and loss in ("noise", "longer", "two bytes less"))
        assert found.startswith("refused") or may_open, (name, loss)
        if kind not in TORCH and loss in ("gone", "a pipe", "an endless device") and name in FILES[kind]:
            assert name in found, (name, loss)


@pytest.mark.parametrize("kind", [kind for kind in FILES if kind not in TORCH])
def test_with_checksums_nothing_but_a_file_stands_in_the_place_of_a_file(folder, kind):
    vectors(folder)
    for _ in damages(folder, {how: PLACES[how] for how in ("a pipe", "an endless device", "a folder")}):
        refused(folder)
    assert {"config.json", "dimensions.tsv"} <= {file.name for file in files_of(folder)}


# Numbers and settings that make no model


def rewrite(path, changes):
    tensors = {name: np.array(array) for name, array in read_tensors(path)[0].items()}
    for name, value in changes.items():
        tensors[name] = value(tensors) if callable(value) else value
    write_tensors(path, {name: tensor for name, tensor in tensors.items() if tensor is not None})


def change(path, where, value):
    """Set the entry of a JSON file that `where` leads to; merge what is an object."""
    whole = inner = json.loads(path.read_text())
    for key in where[:-1]:
        inner = inner[key]
    owner = inner[where[-1]] if isinstance(value, dict) else None
    inner[where[-1]] = {**owner, **value} if isinstance(owner, dict) and value else value
    path.write_text(json.dumps(whole))


def full(value, *shape, dtype=np.float32):
    return np.full(shape, value, dtype)


def falling(tensors):
    """Starts whose differences, in 32 bits, are all above 0."""
    broken = tensors["starts"].copy()
    broken[1:4] = 2**31 - 1, -(2**31), -1
    return broken


ROWS = np.zeros((6, 3), np.float32)
EYE = np.eye(3, dtype=np.float32)
TABLES = {
    ("lexicon", "lexicon.safetensors"): [
        ("centroids", full(np.nan, 12, 32)), ("centroids", full(1e300, 12, 32, dtype=np.float64)),
        ("centroids", full(1e30, 12, 32)), ("centroids", full(1, 12, 32, dtype=np.int32)),
        ("centroids", full(1, 12, 31)), ("centroids", full(1, 11, 32)),
        ("assignment", full(0.5, 86, dtype=np.float64)), ("assignment", full(12, 86, dtype=np.int32)),
        ("bias", full(np.inf, 12)),
        ("fingerprint", full(np.nan, 32)), ("fingerprint", full(0, 32)), ("fingerprint", full(1e19, 32)),
    ],
    ("key tokens", "keytokens.safetensors"): [
        ("fingerprint", full(np.nan, 32)), ("fingerprint", full(0, 32)), ("fingerprint", full(0, 1, 32)),
        ("fingerprint", full(0, 0)), ("offset", full(np.nan, 32)),
        ("offset", full(1e300, 32, dtype=np.float64)), ("offset", full(0, 31)),
        ("head", full(np.inf, 5, 32, dtype=np.float64)), ("mixing_rows", full(0, 3, dtype=np.int32)),
        *(("mixing_values", lambda t, value=value: np.r_[value, t["mixing_values"][1:]], "broken mixing")
          for value in (np.nan, np.inf, 1e300)),
    ],
    ("static lexicon", "lexicon.safetensors"): [
        ("starts", lambda t: t["starts"][::-1].copy()), ("clusters", lambda t: t["clusters"] + np.int16(12)),
        ("weights", lambda t: t["weights"][:-1]), ("scales", lambda t: -t["scales"]),
        ("scales", lambda t: np.full_like(t["scales"], np.inf)),
        ("starts", lambda t: t["starts"].astype(np.int64)), ("starts", falling), ("clusters", None),
        ("mixing_rows", np.zeros(1, np.int32)),
    ],
    ("static anchors", "anchors/model.safetensors"): [
        ("linear.weight", EYE * np.nan, "holds NaN, infinity"), ("linear.weight", None, "must be any x any"),
        ("linear.weight", EYE.astype(np.int8), "must be any x any"),
        ("linear.weight", EYE[0], "must be any x any"), ("linear.weight", EYE[:0], "must be any x any"),
        ("linear.weight", EYE[:, :2], "'first_vector' of 2"),
        *(("linear.weight", (np.diag([1, value, 1])).astype(dtype), "infinity")
          for value in (np.nan, np.inf, -np.inf) for dtype in (np.float16, np.float32)),
        ("linear.weight", np.diag([1, 1e16, 1]).astype(np.float32), "infinity"),
    ],
    **{(kind, "model.safetensors"): [
        ("embeddings", None, "no table 'embeddings'"), ("embeddings", ROWS.ravel(), "no table 'embeddings'"),
        ("embeddings", ROWS[:, :0], "no table 'embeddings'"),
        ("embeddings", ROWS.astype(np.float64), "no table 'embeddings'"),
        ("embeddings", ROWS.astype(np.int64), "no table 'embeddings'"), ("embeddings", ROWS[:-1], "5 words.*5 rows"),
        ("embeddings", ROWS + np.nan, "NaN or infinite"),
        ("embeddings", (ROWS + np.inf).astype(np.float16), "NaN or infinite"),
        ("mapping", np.arange(7) + 100, "outside the 6 rows"), ("mapping", np.arange(7) - 1, "outside the 6 rows"),
        ("mapping", np.zeros(7, np.float32), "must be integers"),
        ("mapping", np.zeros((7, 1), np.int64), "must be integers"),
        ({"mapping": np.zeros(0, np.int64), "weights": None, "embeddings": ROWS}, "must be integers"),
        ({"embeddings": ROWS.astype(np.int8), "weights": None}, "an int8 table needs scales"),
        ("weights", np.ones(3, np.float32), "expected float32"),
        ({"weights": np.ones(6, np.float64), "mapping": None}, "expected float32"),
        ({"weights": np.full(6, np.nan, np.float32), "mapping": None}, "negative or non-finite"),
        ({"weights": np.full(6, -1, np.float32), "mapping": None}, "negative or non-finite"),
        ({"weights": np.full(6, 3e38, np.float32), "mapping": None}, "non-finite numbers, or such beyond"),
        ("embeddings", ROWS - 2e30, "NaN or infinite, or beyond 1e\\+30"),
        ("embeddings", ROWS.astype(np.float16) - np.inf, "NaN or infinite"),
    ] for kind in ("static", "int8")},
}  # fmt: skip


@pytest.mark.parametrize(("kind", "file"), TABLES)
@pytest.mark.usefixtures("unchecked")
def test_numbers_that_make_no_model_are_refused(folder, kind, file):
    content = (folder / file).read_bytes()
    for changes, *more in TABLES[kind, file]:
        if isinstance(changes, str):
            changes = {changes: more.pop(0)}
        rewrite(folder / file, changes)
        refused(folder, *more)
        (folder / file).write_bytes(content)


SETTINGS, PARTS = ("settings",), ("parts", 0)
NO_COUNTS = [0, -1, 3, "4", None, True, 1 << 40]
DESCRIPTIONS = {
    ("lexicon", "lexicon.json"): [
        *((SETTINGS, setting) for setting in (
            {"shift": 1}, {"end_token": 0.0}, {"max_length": True}, {"max_length": -5}, {"max_length": 10**9},
            {"max_active_dims": "5"}, {"pooling": ["max"]}, {"unheard_of": 1})),
        (("words",), [], "does not describe a lexicon model"),
        (SETTINGS, {"pooling": "none"}, "does not describe a lexicon model: pooling"),
        (SETTINGS, {"colour": 1}, "does not describe a lexicon model"),
        (("about",), [["a"]], "is not a dimension|1 dimensions|broken mixing"),
    ],
    ("key tokens", "keytokens.json"): [
        *((SETTINGS, setting, r"keytokens\.json") for setting in (
            {"top_k": -1}, {"top_k": True}, {"special_tokens": 1}, {"normalize": "yes"}, {"pooling": "max"})),
        (SETTINGS, {"top_k": 10**9}),
        *((("adjustment",), changes, r"keytokens\.json") for changes in (
            {"strength": math.nan}, {"strength": "1"}, {"strength": 10**400}, {"texts": -1}, {"kind": "none"})),
        (("adjustment",), None, r"keytokens\.json"),
    ],
    ("key tokens", "config.json"): [
        (("pellucid", "dimensions"), 10**12), (("pellucid", "dtype"), "float8"),
    ],
    ("named", "config.json"): [(("pellucid", "backbone"), "missing/x.json")],
    ("anchors", "anchors.json"): [
        *((("first_vector",), [value] * 32) for value in (math.inf, math.nan, 1e9)),
    ],
    ("static anchors", "anchors.json"): [
        (("anchors",), [["a cat"]], "must hold 3 lists of texts"),
        (("anchors",), [["a"], [], ["b"]], "must hold 3 lists"),
        (("first_vector",), [1.0], "'first_vector' of 3"),
        *((("first_vector",), [factor, 0.0, 0.0], "another model") for factor in (math.nan, math.inf, 1e300, 0.0)),
    ],
    ("static anchors", "config.json"): [(("pellucid", "encoder"), None, "names no encoder: None")],
    ("static lexicon", "config.json"): [
        *((("pellucid", key), value) for key in ("clusters", "dimensions") for value in NO_COUNTS),
        *((("pellucid", "max_active_dims"), value) for value in (0, -1, "4", True)),
    ],
    ("ensemble", "ensemble.json"): [
        *((PARTS, part) for part in (
            {"weight": math.nan}, {"weight": 10**400}, {"weight": True}, {"weight": -1}, {"weight": "1"},
            {"dimension": True}, {"fingerprint": {}}, {"fingerprint": {"stored": 10**400, "functions": []}},
            {"fingerprint": {"stored": "00", "functions": [{}]}}, {"fingerprint": []}, {"fingerprint": None},
            {"opened": "shell"}, {"opened": "pickle"}, {"name": 5}, {"name": "stock"})),
        (("parts",), [], "does not describe an ensemble"), (("parts",), [1], "does not describe an ensemble"),
    ],
    ("static ensemble", "ensemble.json"): [
        ((*PARTS, key), value)
        for key in ("weight", "dimension") for value in (math.nan, math.inf, 1e101, 10**400, -1, "x", None, [])
    ] + [((*PARTS, "fingerprint", "stored"), value)
         for value in (math.nan, math.inf, 1e101, 10**400, -1, "x", None, [])],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "file"), DESCRIPTIONS)
@pytest.mark.usefixtures("unchecked")
def test_settings_that_make_no_model_are_refused(folder, kind, file):
    content = (folder / file).read_text()
    for where, value, *message in DESCRIPTIONS[kind, file]:
        change(folder / file, where, value)
        refused(folder, *message)
        (folder / file).write_text(content)
    for no_object in ("[]", "["):
        (folder / file).write_text(no_object)
        refused(folder)


@pytest.mark.parametrize("kind", ["named"])
@pytest.mark.usefixtures("unchecked")
def test_an_adapter_that_was_lost_is_missed(folder, kind):
    """The bare transformer may be so near that its states alone do not tell."""
    shutil.rmtree(folder / "adapter")
    refused(folder, "was saved with an adapter")


# Texts without tokens

ODD = [
    "",
    " ",
    "\n\t",
    "\0",
    "\ud800",
    "[CLS]",
    "[PAD][SEP]",
    "<|endoftext|>",
    "\u200b",
    "\u0301",
    "a" * 100_000,
    "horse",
]


def embedders():
    gpt2, bert = backbone_of("gpt2", "causal", tokenizer=byte_level()), backbone_of("bert")
    for pooling in ("mean", "weighted_mean", "last"):
        yield KeyTokenEmbedder(gpt2, KeyTokenSettings(pooling=pooling, top_k=30, signs="signed"))
        yield KeyTokenEmbedder(bert, KeyTokenSettings(pooling=pooling, top_k=30, signs="signed", normalize=True))
    for backbone in (gpt2, bert):
        clusters = cluster_vocabulary(backbone.head, backbone.tokenizer, 12)
        for pooling in ("max", "sum", "last"):
            yield LexiconEmbedder(backbone, clusters, LexiconSettings(pooling=pooling, shift=False, end_token=False))


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*longer than")
def test_texts_without_tokens_give_zero_rows_alone_and_in_any_batch():
    for model in embedders():
        assert not dense_rows(model.encode(["", ""])).any() and dense_rows(model.encode([""])).shape[0] == 1
        batch = dense_rows(model.encode(ODD))
        assert np.isfinite(batch).all() and not batch[0].any() and batch[-1].any()
        for text, row in zip(ODD, batch, strict=True):
            np.testing.assert_allclose(dense_rows(model.encode([text]))[0], row, atol=2e-5)
        assert model.explain("", "").score == 0 and model.explain("", "horse").score == 0
