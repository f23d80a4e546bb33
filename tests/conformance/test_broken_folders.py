"""A folder that is damaged, or describes no model: the same vectors or our error with the file, never anything else."""

import math
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")
pytest.importorskip("peft")

import pellucid
from damage import LOSSES, PLACES, damages, flips, put, set_entry, set_tensors
from families import dense_rows
from fuzz import subjects
from pellucid.errors import ModelFolderError, PellucidError
from pellucid.keytokens.embedder import KeyTokenEmbedder
from pellucid.keytokens.states import KeyTokenSettings
from pellucid.lexicon import LexiconSettings
from pellucid.lexicon.clusters import cluster_vocabulary
from pellucid.lexicon.embedder import LexiconEmbedder
from pellucid.persistence import folder as model_folder
from tiny_models import backbone_of, byte_level

SLOW = ("anchors-transformer", "lexicon", "lexicon-adapter", "keytokens", "ensemble", "static-ensemble")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder of each kind, with what it gives."""
    return subjects.build(tmp_path_factory.mktemp("whole")).folders


@pytest.fixture
def folder(built, kind, tmp_path):
    """A copy of the folder of a kind."""
    return Path(shutil.copytree(built[kind].path, tmp_path / "m"))


# One file is gone, cut short, changed, or something else

KINDS = [pytest.param(kind, marks=[pytest.mark.full] * (kind in SLOW)) for kind in subjects.MODELS]
EVERY_FILE = [
    *(pytest.param(*kind.values, True, marks=kind.marks) for kind in KINDS),
    *((kind, False) for kind in subjects.MODELS if kind not in SLOW),
]


@pytest.mark.parametrize(("kind", "is_small"), EVERY_FILE)
def test_a_damaged_file_is_refused_by_name_or_the_model_is_as_it_was(built, folder, kind, is_small, monkeypatch):
    """All but those that people edit have a checksum; of a large model it is compared by `verify` alone."""
    if not is_small:
        monkeypatch.setattr(model_folder, "_MAX_CHECKED_BYTES", 0)
    (folder / "notes.txt").write_text("mine")
    states = {file.name: file.state for file in model_folder.verify(folder)}
    edited = {name for name in states if name == "config.json" or name.endswith(("README.md", "dimensions.tsv"))}
    needed = ["config.json", *["dimensions.tsv"] * (model_folder.read_config(folder)["family"] != "static")]
    assert {name for name, state in states.items() if state == "ok"} == states.keys() - edited
    for file, how in damages(folder, LOSSES | flips(1), [folder / name for name in sorted(states)]):
        name, change, message = file.relative_to(folder).as_posix(), "", ""
        try:
            change = built[kind].check(folder)
        except PellucidError as error:
            message = str(error)
        if name not in edited and (is_small or how in PLACES):
            assert file.name in message, (name, how, message)
        if name in needed and how in LOSSES.keys() - {"noise", "longer", "two bytes less"}:
            assert message, (name, how)
        assert "finite: False" not in change and (not change or not is_small or name in edited - {"config.json"}), (
            name,
            how,
            change,
        )
        with suppress(ModelFolderError):  # of what is no file
            unsound = [file.name for file in model_folder.verify(folder) if not file.sound]
            assert name == "config.json" or unsound == [name] * (name not in edited), (name, how)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.full] * (kind in SLOW)) for kind in subjects.MODELS]
)
def test_a_link_that_leads_out_is_refused(built, folder, kind):
    """In the place of each file and folder, to one like it elsewhere; the model itself may be found by a link."""
    for path in sorted(folder.rglob("*")):
        aside = path.rename(folder.with_name("aside"))
        path.symlink_to(built[kind].path / path.relative_to(folder))
        with pytest.raises(ModelFolderError, match="a link that leads out of the folder"):
            pellucid.load(folder)
        with model_folder.allow_external(True):
            assert built[kind].check(folder) == ""
        path.unlink()
        aside.rename(path)
    (folder / "another.txt").symlink_to("config.json")  # a link that stays inside
    folder.with_name("linked").symlink_to(folder)
    assert built[kind].check(folder.with_name("linked")) == ""


# Numbers, settings and words that make no model


def full(value, *shape, dtype=np.float32):
    return np.full(shape, value, dtype)


N_WORDS = 22
ROWS = full(0, N_WORDS + 1, 8)
WORDS = "".join(f"word{n}\n" for n in range(N_WORDS))
SETTINGS, PARTS = ("settings",), ("parts", 0)
NO_NUMBERS = (math.nan, math.inf, 1e101, 10**400, -1, "x", None, [])
NO_COUNTS = [0, -1, 3, "4", None, True, 1 << 40]
CRAFTED = {  # of a kind and its file: an entry, what is put there, and what is said of it
    ("lexicon", "lexicon.safetensors"): [
        *(("centroids", full(value, 30, 32, dtype=dtype)) for value, dtype in (
            (np.nan, "f4"), (1e300, "f8"), (1e30, "f4"), (1, "i4"))),
        ("centroids", full(1, 30, 31)), ("centroids", full(1, 29, 32)),
        ("assignment", lambda rows: rows + 0.5), ("assignment", lambda rows: rows * 0 + np.int32(30)),
        ("bias", full(np.inf, 30)),
        ("fingerprint", full(np.nan, 32)), ("fingerprint", full(0, 32)), ("fingerprint", full(1e19, 32)),
    ],
    ("keytokens", "keytokens.safetensors"): [
        ("fingerprint", full(np.nan, 32)), ("fingerprint", full(0, 32)), ("fingerprint", full(0, 1, 32)),
        ("fingerprint", full(0, 0)), ("offset", full(np.nan, 32)),
        ("offset", full(1e300, 32, dtype=np.float64)), ("offset", full(0, 31)),
        ("head", full(np.inf, 5, 32, dtype=np.float64)), ("mixing_rows", full(0, 3, dtype=np.int32)),
        *(("mixing_values", put(0, value), "broken mixing") for value in (np.nan, np.inf, 1e300)),
    ],
    ("static-lexicon", "lexicon.safetensors"): [
        ("starts", lambda starts: starts[::-1].copy()), ("clusters", lambda clusters: clusters + np.int16(12)),
        ("weights", lambda weights: weights[:-1]), ("scales", lambda scales: -scales),
        ("scales", lambda scales: np.full_like(scales, np.inf)),
        ("starts", lambda starts: starts.astype(np.int64)),
        ("starts", put(slice(1, 4), (2**31 - 1, -(2**31), -1))),  # whose differences, in 32 bits, are all above 0
        ("clusters", None), ("mixing_rows", np.zeros(1, np.int32)),
    ],
    ("anchors", "anchors/model.safetensors"): [
        ("linear.weight", full(np.nan, 12, 8), "holds NaN, infinity"), ("linear.weight", None, "must be any x any"),
        *(("linear.weight", change, "must be any x any") for change in (
            lambda rows: rows.astype(np.int8), lambda rows: rows[0], lambda rows: rows[:0])),
        ("linear.weight", lambda rows: rows[:, :2], "'first_vector' of 2"),
        *(("linear.weight", lambda rows, value=value, dtype=dtype: put((1, 1), value)(rows.astype(dtype)), "infinity")
          for value in (np.nan, np.inf, -np.inf) for dtype in (np.float16, np.float32)),
        ("linear.weight", put((1, 1), 1e16), "infinity"),
    ],
    **{(kind, "model.safetensors"): [
        ("embeddings", None, "no table 'embeddings'"), ("embeddings", ROWS.ravel(), "no table 'embeddings'"),
        ("embeddings", ROWS[:, :0], "no table 'embeddings'"),
        ("embeddings", ROWS.astype(np.float64), "no table 'embeddings'"),
        ("embeddings", ROWS.astype(np.int64), "no table 'embeddings'"),
        ("embeddings", ROWS[:-1], f"{N_WORDS} words.*{N_WORDS} rows"),
        ("embeddings", ROWS + np.nan, "NaN or infinite"),
        ("embeddings", (ROWS + np.inf).astype(np.float16), "NaN or infinite"),
        ("mapping", np.arange(N_WORDS + 2) + 100, f"outside the {N_WORDS + 1} rows"),
        ("mapping", np.arange(N_WORDS + 2) - 1, f"outside the {N_WORDS + 1} rows"),
        ("mapping", full(0, N_WORDS + 2), "must be integers"),
        ("mapping", full(0, N_WORDS + 2, 1, dtype=np.int64), "must be integers"),
        ((), {"mapping": np.zeros(0, np.int64), "weights": None, "embeddings": ROWS}, "must be integers"),
        ((), {"embeddings": ROWS.astype(np.int8), "weights": None}, "an int8 table needs scales"),
        ("weights", full(1, 3), "expected float32"),
        *(((), {"weights": full(value, N_WORDS + 1, dtype=dtype), "mapping": None}, message)
          for value, dtype, message in (
              (1, "f8", "expected float32"), (np.nan, "f4", "negative or non-finite"),
              (-1, "f4", "negative or non-finite"), (3e38, "f4", "non-finite numbers, or such beyond"))),
        ("embeddings", ROWS - 2e30, "NaN or infinite, or beyond 1e\\+30"),
        ("embeddings", ROWS.astype(np.float16) - np.inf, "NaN or infinite"),
    ] for kind in ("static", "static-int8")},
    **{(kind, "words.txt"): [((), content.encode(), message) for content, message in (
        (WORDS[:-7], "21 words.*2[23] rows"), (WORDS + "one\n", "23 words.*2[23] rows"),
        (WORDS[:-7] + "word3\n", "'word3' twice"), (WORDS[:-1], "truncated"), ("", "0 words"))]
        + [((), WORDS[:-7].encode() + b"\xff\n", "UTF-8")]
       for kind in ("static", "static-int8", "static-int4")},
    ("lexicon", "lexicon.json"): [
        *((SETTINGS, setting) for setting in (
            {"shift": 1}, {"end_token": 0.0}, {"max_length": True}, {"max_length": -5}, {"max_length": 10**9},
            {"max_active_dims": "5"}, {"pooling": ["max"]}, {"unheard_of": 1})),
        (("words",), [], "does not describe a lexicon model"),
        (SETTINGS, {"pooling": "none"}, "does not describe a lexicon model: pooling"),
        (SETTINGS, {"colour": 1}, "does not describe a lexicon model"),
        (("about",), [["a"]], "is not a dimension|1 dimensions|broken mixing"),
    ],
    ("keytokens", "keytokens.json"): [
        *((SETTINGS, setting, r"keytokens\.json") for setting in (
            {"top_k": -1}, {"top_k": True}, {"special_tokens": 1}, {"normalize": "yes"}, {"pooling": "max"})),
        (SETTINGS, {"top_k": 10**9}),
        *((("adjustment",), changes, r"keytokens\.json") for changes in (
            {"strength": math.nan}, {"strength": "1"}, {"strength": 10**400}, {"texts": -1}, {"kind": "none"})),
        (("adjustment",), None, r"keytokens\.json"),
    ],
    ("keytokens", "config.json"): [
        (("pellucid", "dimensions"), 10**12), (("pellucid", "dtype"), "float8"),
    ],
    ("lexicon-adapter", "config.json"): [(("pellucid", "backbone"), "missing/x.json")],
    ("anchors-transformer", "anchors.json"): [
        *((("first_vector",), [value] * 32) for value in (math.inf, math.nan, 1e9)),
    ],
    ("anchors", "anchors.json"): [
        (("anchors",), [["a cat"]], "must hold 12 lists of texts"),
        (("anchors",), [["a"], [], *[["b"]] * 10], "must hold 12 lists"),
        (("first_vector",), [1.0], "'first_vector' of 8"),
        *((("first_vector",), [factor, *[0.0] * 7], "another model") for factor in (math.nan, math.inf, 1e300, 0.0)),
    ],
    ("anchors", "config.json"): [(("pellucid", "encoder"), None, "names no encoder: None")],
    ("static-lexicon", "config.json"): [
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
    ("static-ensemble", "ensemble.json"): [
        ((*PARTS, *key), value)
        for key in (["weight"], ["dimension"], ["fingerprint", "stored"]) for value in NO_NUMBERS
    ],
}  # fmt: skip


def refused(built, folder, message=None):
    with pytest.raises(ModelFolderError, match=message) as error:
        built.check(folder)
    assert str(folder) in str(error.value)


@pytest.mark.parametrize(("kind", "file"), CRAFTED)
@pytest.mark.usefixtures("unchecked")
def test_what_makes_no_model_is_refused(built, folder, kind, file):
    path, content = folder / file, (folder / file).read_bytes()
    no_objects = [((), []), ((), b"[")] * (path.suffix == ".json")
    for where, value, *message in [*CRAFTED[kind, file], *no_objects]:
        if isinstance(value, bytes):
            path.write_bytes(value)
        else:
            (set_tensors if path.suffix == ".safetensors" else set_entry)(path, where, value)
        refused(built[kind], folder, *message)
        path.write_bytes(content)


@pytest.mark.parametrize("kind", ["lexicon-adapter"])
@pytest.mark.usefixtures("unchecked")
def test_an_adapter_that_was_lost_is_missed(built, folder, kind):
    """The bare transformer may be so near that its states alone do not tell."""
    shutil.rmtree(folder / "adapter")
    refused(built[kind], folder, "was saved with an adapter")


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
