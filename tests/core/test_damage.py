"""Folders of the transformer families with a damaged file: the same vectors or our error, never anything else."""

from __future__ import annotations

import copy
import json
import math
import os
import random
import shutil
import signal
import struct
import warnings
from contextlib import contextmanager

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

import pellucid  # noqa: E402
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
from pellucid.transformer.backbone import open_backbone, prepare  # noqa: E402
from tiny_models import byte_level, sentence_piece, tiny_model, word_piece  # noqa: E402

KINDS = ["lexicon", "named", "keytokens", "anchors", "ensemble"]
TEXTS = ["The man is riding a horse.", "a doctor gave the sick boy medicine", "", "cars"]
SECONDS = 30  # no case may take longer


def bert_backbone():
    tokenizer = word_piece()
    return prepare(tiny_model("bert", len(tokenizer)), tokenizer, attention="bidirectional", device="cpu")


def llama_backbone():
    tokenizer = sentence_piece()
    return prepare(tiny_model("llama", len(tokenizer)), tokenizer, attention="causal", device="cpu")


def stock(folder):
    """A SentenceTransformer of a tiny transformer, whose files lie in `folder`."""
    tokenizer = word_piece()
    tiny_model("bert", len(tokenizer), headless=True).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    modules = sentence_transformers.sentence_transformer.modules
    transformer = modules.Transformer(str(folder))
    return sentence_transformers.SentenceTransformer(
        modules=[transformer, modules.Pooling(transformer.get_embedding_dimension())], device="cpu"
    )


def write_adapter_of(folder, base):
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    model = copy.deepcopy(base)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.3)
    adapted.save_pretrained(folder)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder of each kind."""
    root = tmp_path_factory.mktemp("whole")
    bert, llama = bert_backbone(), llama_backbone()
    model = LexiconEmbedder(bert, cluster_vocabulary(bert.head, bert.tokenizer, 12))
    model.scale({model.dimensions.names[0]: 2.0}).save_pretrained(root / "lexicon")
    llama.model.save_pretrained(root / "llama")
    llama.tokenizer.save_pretrained(root / "llama")
    write_adapter_of(root / "lora", llama.model)
    named = open_backbone(root / "llama", adapter=root / "lora", device="cpu")
    named = LexiconEmbedder(named, cluster_vocabulary(named.head, named.tokenizer, 12))
    named.save_pretrained(root / "named", backbone_name=str(root / "llama"))
    mean = Adjustment("mean", np.linspace(-1, 1, 32, dtype=np.float32), 0.0, 5)
    tokens = KeyTokenEmbedder(llama, KeyTokenSettings(top_k=30, signs="signed"), adjustment=mean)
    names = tokens.dimensions.names
    tokens.merge(*names[40:42]).save_pretrained(root / "keytokens")
    encoder = stock(root / "stock")
    AnchorEmbedder(encoder, ["a horse", "the doctor", "cars"]).save_pretrained(root / "anchors")
    EnsembleEmbedder({"named": named, "stock": encoder}).save_pretrained(root / "ensemble")
    return root


@pytest.fixture(scope="module")
def expected(saved):
    return {kind: vectors(saved / kind) for kind in KINDS}


def vectors(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = pellucid.load(folder, allow_outside=True).encode(TEXTS)  # one names its backbone
    return plain(rows)


def plain(rows):
    return rows.toarray() if hasattr(rows, "toarray") else rows


@contextmanager
def in_time(what):
    def stop(number, frame):
        raise TimeoutError(what)

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def files_of(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "README.md")


# The ways of damage: each changes `folder` and says what it did, or returns None where it does not apply


def truncate(folder, rng):
    file = rng.choice(files_of(folder))
    size = file.stat().st_size
    kept = rng.choice([0, 1, 7, size // 2, max(0, size - 1), rng.randrange(size)])
    os.truncate(file, kept)
    return f"{file.relative_to(folder)} cut to {kept} of {size}"


def remove(folder, rng):
    file = rng.choice(files_of(folder))
    file.unlink()
    return f"{file.relative_to(folder)} deleted"


def empty(folder, rng):
    file = rng.choice(files_of(folder))
    file.write_bytes(b"")
    return f"{file.relative_to(folder)} emptied"


def into_folder(folder, rng):
    file = rng.choice(files_of(folder))
    file.unlink()
    file.mkdir()
    return f"{file.relative_to(folder)} made a folder"


def into_pipe(folder, rng):
    file = rng.choice(files_of(folder))
    file.unlink()
    os.mkfifo(file)
    return f"{file.relative_to(folder)} made a pipe"


def swap(folder, rng):
    first, second = rng.sample(files_of(folder), 2)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    return f"{first.relative_to(folder)} and {second.relative_to(folder)} swapped"


NONSENSE = [-1, 10**9, 10**18, 10**400, 1e300, math.nan, -math.inf, [], {}, [[]], "", "../../x", "\ud800", "x" * 99999]
WHOLE = ["[]", "null", '"x"', "5", "{}", "[" * 100_000, '{"a": ' * 50_000, '{"x": ' + "9" * 5000 + "}", "NaN"]


def places(value, path=()):
    """Every place in a JSON value; of a long list or object some."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for _, (key, one) in zip(range(60), inner):
        yield from places(one, (*path, key))


def mutate(folder, rng):
    file = rng.choice([f for f in files_of(folder) if f.suffix == ".json"])
    if rng.random() < 0.15:
        content = rng.choice(WHOLE)
        file.write_text(content)
        return f"{file.relative_to(folder)} is {content[:20]}"
    value = json.loads(file.read_text(encoding="utf-8"))
    path = rng.choice([path for path in places(value) if path])
    owner = value
    for key in path[:-1]:
        owner = owner[key]
    new = rng.choice(NONSENSE)
    owner[path[-1]] = new
    file.write_text(json.dumps(value))
    return f"{file.relative_to(folder)}: {path} = {new!r:.40}"


def flip(folder, rng):
    file = rng.choice([f for f in files_of(folder) if f.stat().st_size])
    content = bytearray(file.read_bytes())
    head = 8 + struct.unpack("<Q", content[:8])[0] if file.suffix == ".safetensors" else len(content)
    for _ in range(rng.choice([1, 1, 8])):
        content[rng.randrange(min(head, len(content)))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)
    return f"{file.relative_to(folder)} flipped"


STRICT = [truncate, remove, empty, into_folder, into_pipe, swap]
"""Damage after which a model that opens must give the same vectors."""


def outcome(folder, expected, what, strict):
    """Open and encode; return "same", "other" or "refused", and let anything that is not our error through."""
    with in_time(what), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            rows = vectors(folder)
        except PellucidError:
            return "refused"
    if rows.shape == expected.shape and np.array_equal(rows, expected):
        return "same"
    assert not strict, f"{what}: other vectors, and no error"
    assert np.isfinite(rows).all() and len(rows) == len(TEXTS), what
    return "other"


def run_damage(saved, expected, place, kinds, ways, seeds):
    """Do each way of damage to each kind with each seed; return what came of it and the failures."""
    counts, failures = {}, []
    for kind in kinds:
        for seed in seeds:
            for way in ways:
                folder = place / "m"
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(saved / kind, folder)
                what = f"{kind} {way.__name__} {seed}: {way(folder, random.Random(f'{kind}{way.__name__}{seed}'))}"
                try:
                    found = outcome(folder, expected[kind], what, way in STRICT)
                    counts[found] = counts.get(found, 0) + 1
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:  # a panic of Rust code is no Exception
                    failures.append(f"{what}: {type(error).__name__}: {error!s:.300}")
    return counts, failures


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_damage_gives_the_same_vectors_or_our_error(saved, expected, tmp_path, kind):
    counts, failures = run_damage(saved, expected, tmp_path, [kind], [*STRICT, mutate, flip], range(4))
    assert not failures, "\n".join(failures)
    assert counts["refused"] > 10


# Numbers and settings that make no model


def rewrite(path, **changes):
    tensors = {name: np.array(array) for name, array in read_tensors(path)[0].items()}
    write_tensors(path, {**tensors, **changes})


BROKEN_TABLES = [
    ("lexicon", "lexicon.safetensors", "centroids", np.full((12, 32), np.nan, np.float32)),
    ("lexicon", "lexicon.safetensors", "centroids", np.full((12, 32), 1e300)),
    ("lexicon", "lexicon.safetensors", "centroids", np.full((12, 32), 1e30, np.float32)),
    ("lexicon", "lexicon.safetensors", "centroids", np.ones((12, 32), np.int32)),
    ("lexicon", "lexicon.safetensors", "centroids", np.ones((12, 31), np.float32)),
    ("lexicon", "lexicon.safetensors", "centroids", np.ones((11, 32), np.float32)),
    ("lexicon", "lexicon.safetensors", "assignment", np.full(86, 0.5)),
    ("lexicon", "lexicon.safetensors", "assignment", np.full(86, 12, np.int32)),
    ("lexicon", "lexicon.safetensors", "bias", np.full(12, np.inf, np.float32)),
    ("lexicon", "lexicon.safetensors", "fingerprint", np.full(32, np.nan, np.float32)),
    ("lexicon", "lexicon.safetensors", "fingerprint", np.zeros(32, np.float32)),
    ("lexicon", "lexicon.safetensors", "fingerprint", np.full(32, 1e19, np.float32)),
    ("keytokens", "keytokens.safetensors", "fingerprint", np.full(32, np.nan, np.float32)),
    ("keytokens", "keytokens.safetensors", "fingerprint", np.zeros(32, np.float32)),
    ("keytokens", "keytokens.safetensors", "fingerprint", np.zeros((1, 32), np.float32)),
    ("keytokens", "keytokens.safetensors", "fingerprint", np.zeros(0, np.float32)),
    ("keytokens", "keytokens.safetensors", "offset", np.full(32, np.nan, np.float32)),
    ("keytokens", "keytokens.safetensors", "offset", np.full(32, 1e300)),
    ("keytokens", "keytokens.safetensors", "offset", np.zeros(31, np.float32)),
    ("keytokens", "keytokens.safetensors", "head", np.full((5, 32), np.inf)),
    ("keytokens", "keytokens.safetensors", "mixing_rows", np.zeros(3, np.int32)),
    ("anchors", "anchors.json", "first_vector", [math.inf] * 32),
    ("anchors", "anchors.json", "first_vector", [math.nan] * 32),
    ("anchors", "anchors.json", "first_vector", [1e9] * 32),
]


@pytest.mark.parametrize(("kind", "file", "field", "value"), BROKEN_TABLES)
def test_numbers_that_make_no_model_are_refused_with_the_file(saved, tmp_path, kind, file, field, value):
    shutil.copytree(saved / kind, tmp_path / "m")
    path = tmp_path / "m" / file
    if file.endswith(".json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    else:
        rewrite(path, **{field: value})
    with pytest.raises(ModelFolderError, match=rf"{tmp_path}/m"):
        pellucid.load(tmp_path / "m")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_a_mixing_that_is_not_finite_is_refused(saved, tmp_path, value):
    shutil.copytree(saved / "keytokens", tmp_path / "m")
    path = tmp_path / "m" / "keytokens.safetensors"
    values = np.array(read_tensors(path)[0]["mixing_values"])
    values[0] = value
    rewrite(path, mixing_values=values)
    with pytest.raises(ModelFolderError, match="broken mixing"):
        pellucid.load(tmp_path / "m")


BROKEN_SETTINGS = [
    ("lexicon", "lexicon.json", "settings", {"shift": 1}),
    ("lexicon", "lexicon.json", "settings", {"end_token": 0.0}),
    ("lexicon", "lexicon.json", "settings", {"max_length": True}),
    ("lexicon", "lexicon.json", "settings", {"max_length": -5}),
    ("lexicon", "lexicon.json", "settings", {"max_length": 10**9}),
    ("lexicon", "lexicon.json", "settings", {"max_active_dims": "5"}),
    ("lexicon", "lexicon.json", "settings", {"pooling": ["max"]}),
    ("lexicon", "lexicon.json", "settings", {"unheard_of": 1}),
    ("keytokens", "keytokens.json", "settings", {"top_k": -1}),
    ("keytokens", "keytokens.json", "settings", {"top_k": 10**9}),
    ("keytokens", "keytokens.json", "settings", {"top_k": True}),
    ("keytokens", "keytokens.json", "settings", {"special_tokens": 1}),
    ("keytokens", "keytokens.json", "settings", {"normalize": "yes"}),
    ("keytokens", "keytokens.json", "adjustment", {"strength": math.nan}),
    ("keytokens", "keytokens.json", "adjustment", {"strength": "1"}),
    ("keytokens", "keytokens.json", "adjustment", {"strength": 10**400}),
    ("keytokens", "keytokens.json", "adjustment", {"texts": -1}),
    ("keytokens", "keytokens.json", "adjustment", {"kind": "none"}),
    ("keytokens", "config.json", "pellucid", {"dimensions": 10**12}),
    ("keytokens", "config.json", "pellucid", {"dtype": "float8"}),
    ("named", "config.json", "pellucid", {"backbone": "missing/x.json"}),
]


@pytest.mark.parametrize(("kind", "file", "owner", "changes"), BROKEN_SETTINGS)
def test_settings_that_make_no_model_are_refused(saved, tmp_path, kind, file, owner, changes):
    shutil.copytree(saved / kind, tmp_path / "m")
    path = tmp_path / "m" / file
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, owner: {**value[owner], **changes}}))
    with pytest.raises(ModelFolderError, match=rf"{tmp_path}/m"):
        pellucid.load(tmp_path / "m")


@pytest.mark.parametrize(
    "changes",
    [
        {"weight": math.nan},
        {"weight": 10**400},
        {"weight": True},
        {"dimension": True},
        {"fingerprint": {}},
        {"fingerprint": {"stored": 10**400, "functions": []}},
        {"fingerprint": {"stored": "00", "functions": [{}]}},
        {"fingerprint": []},
        {"opened": "shell"},
        {"name": 5},
    ],
)
def test_a_part_that_is_not_described_is_refused(saved, tmp_path, changes):
    shutil.copytree(saved / "ensemble", tmp_path / "m")
    path = tmp_path / "m" / "ensemble.json"
    value = json.loads(path.read_text())
    value["parts"][0] |= changes
    path.write_text(json.dumps(value))
    with pytest.raises(ModelFolderError, match=rf"{tmp_path}/m"):
        pellucid.load(tmp_path / "m")


@pytest.mark.usefixtures("outside_allowed")
def test_an_adapter_that_was_lost_is_missed(saved, tmp_path):
    """The bare transformer may be so near that its states alone do not tell."""
    shutil.copytree(saved / "named", tmp_path / "m")
    shutil.rmtree(tmp_path / "m" / "adapter")
    with pytest.raises(ModelFolderError, match="was saved with an adapter"):
        pellucid.load(tmp_path / "m")


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


def gpt2_backbone():
    tokenizer = byte_level()
    return prepare(tiny_model("gpt2", len(tokenizer)), tokenizer, attention="causal", device="cpu")


def embedders():
    gpt2, bert = gpt2_backbone(), bert_backbone()
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
        assert not plain(model.encode(["", ""])).any() and plain(model.encode([""])).shape[0] == 1
        batch = plain(model.encode(ODD))
        assert np.isfinite(batch).all() and not batch[0].any() and batch[-1].any()
        for text, row in zip(ODD, batch, strict=True):
            np.testing.assert_allclose(plain(model.encode([text]))[0], row, atol=2e-5)
        assert model.explain("", "").score == 0 and model.explain("", "horse").score == 0
