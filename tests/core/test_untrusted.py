"""Files from a stranger: tokenizers, configurations and weights that would hang, abort or run code are refused."""

import json
import os
import pydoc
import shutil
import socket
from importlib import metadata

import numpy as np
import pytest
from tokenizers import Regex, decoders, pre_tokenizers

import pellucid
import tiny_models
from pellucid import errors, loading
from pellucid.errors import InputError, MissingExtraError, ModelFolderError, PellucidError
from pellucid.persistence.folder import is_hub_id, local_folder
from pellucid.persistence.store import write_json, write_tensors
from pellucid.persistence.untrusted import (
    StoredTokenizer,
    is_safe_regex,
    translate_load_errors,
)
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary

LLAMA3 = "|".join(
    [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
CORPUS = ["a man is riding a horse on the beach", "tokenisers and tokens"]


def word_piece():
    tokenizer = tiny_models.piece_tokenizer(["token", "##iser", "##s"], lowercase=True)
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def described(**changes):
    return {**json.loads(word_piece().to_str()), **changes}


def replacing(*pairs):
    parts = [{"type": "Replace", "pattern": pattern, "content": content} for pattern, content in pairs]
    return {"type": "Sequence", "normalizers": parts}


def split_at(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def deep(depth):
    part = {"type": "Lowercase"}
    for _ in range(depth):
        part = {"type": "Sequence", "normalizers": [part]}
    return part


HOSTILE = {
    "a chain of replacements": {"normalizer": replacing(*[({"String": "a"}, "aa")] * 30)},
    "a long chain": {"normalizer": replacing(*[({"String": "a"}, "a")] * 1000)},
    "one long replacement": {"normalizer": replacing(({"String": "a"}, "a" * 100_000))},
    "a replacement of nothing": {"normalizer": replacing(({"String": ""}, "b"))},
    "replacements between all characters": {"normalizer": replacing(*[({"Regex": "x*"}, "abcdefgh")] * 3)},
    "a long text in front": {"normalizer": {"type": "Prepend", "prepend": "a" * 10_000}},
    "exponential time": {"pre_tokenizer": split_at("(a+)+$")},
    "exponential time in a choice": {"pre_tokenizer": split_at("(?:a|aa)*$")},
    "a reference backwards": {"pre_tokenizer": split_at(r"(a)\1")},
    "an unknown normalizer": {"normalizer": {"type": "Shell", "command": "true"}},
    "an unknown model": {"model": {"type": "Remote", "vocab": {}}},
    "no model": {"model": None},
    "random pieces": {"model": {"type": "BPE", "dropout": 0.5, "vocab": {"a": 0}, "merges": []}},
    "a part that is a list": {"normalizer": []},
    "a sequence without end": {"normalizer": deep(50)},
    "a map with long entries": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAG" + "Fh" * 5000}},
    "a map that is none": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "?"}},
}


NO_TOKENIZERS = ["[]", "null", '"x"', "[" * 100_000, "9" * 5000, "{}", "", '{"model": {}}', "\udcff"]
WITHOUT_UNKNOWN = [
    {"type": "WordPiece", "unk_token": "gone", "continuing_subword_prefix": "", "max_input_chars_per_word": 9,
     "vocab": {}},
    {"type": "WordLevel", "unk_token": "gone", "vocab": {}},
    {"type": "Unigram", "unk_id": None, "vocab": [], "byte_fallback": True},
]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((json.dumps(described(**part)), r"subwords\.json") for part in HOSTILE.values()),
        *((content, r"subwords\.json") for content in NO_TOKENIZERS),
        *((json.dumps(described(model=model)), r"subwords\.json cannot be used: .*(nknown|UNK)")
          for model in WITHOUT_UNKNOWN),
    ],
    ids=[*HOSTILE, *range(len(NO_TOKENIZERS)), *(model["type"] for model in WITHOUT_UNKNOWN)],
)  # fmt: skip
@pytest.mark.usefixtures("unchecked")
def test_a_hostile_tokenizer_is_refused_at_the_first_unknown_word(tmp_path, content, message):
    model = StaticEmbedder(Vocabulary(["token", "horse"], word_piece()), np.eye(2, dtype=np.float32))
    model.save_pretrained(tmp_path / "m")
    assert pellucid.load(tmp_path / "m").encode("tokenisers").any()
    (tmp_path / "m" / "subwords.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ModelFolderError, match=message):
        pellucid.load(tmp_path / "m").encode("tokenisers aaaaaa")


def test_a_panic_of_the_tokenizer_is_our_error_when_a_word_is_looked_up():
    tokenizer = word_piece()
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
    with pytest.raises(ModelFolderError, match="retry-limit"):
        Vocabulary(["horse"], tokenizer).row("a" * 60 + "b")


@pytest.mark.needs("transformers")
@pytest.mark.parametrize("make", ["word_piece", "sentence_piece", "byte_level"])
def test_the_tokenizers_of_published_models_open(tmp_path, make):
    tokenizer = getattr(tiny_models, make)().backend_tokenizer
    tokenizer.enable_padding(length=50)
    tokenizer.enable_truncation(3)
    tokenizer.save(str(tmp_path / "t.json"))
    opened = StoredTokenizer((tmp_path / "t.json").read_bytes(), tmp_path)()
    assert opened.padding is None and opened.truncation is None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    assert [opened.encode(text).tokens for text in CORPUS] == [tokenizer.encode(text).tokens for text in CORPUS]


def test_regular_expressions_that_need_no_exponential_time():
    published = [
        LLAMA3,
        " {2,}",
        r" ?[^(\s|[.,!?…。，、।۔،])]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}]*[\p{Ll}\p{Lm}]+(?i:'s|'t)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+""",
        r"\p{N}{1,3}(?=(?:\p{N}{3})+\b)",
    ]
    assert all(map(is_safe_regex, published))
    exponential = ["(a+)+$", "(a|a)*b", "(a*)*", "((a))*+(b{2,})*", "(a{1,9}){2,9}", "((a+))+", "(?:(?:a|b))+x"]
    unknown = [r"(a)\1", r"(a)(b\1)", "(a[)", "(?~a)", "(?>a+)+", r"\g<1>", "(", "[", ")", "(?<n>a)", "a" * 5000]
    assert not any(map(is_safe_regex, exponential + unknown))


# Folders of transformers


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """The folder of a tiny transformer."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("transformer") / "bert"
    tokenizer = tiny_models.word_piece()
    tiny_models.tiny_model("bert", len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def copied(bert, tmp_path):
    shutil.copytree(bert, tmp_path / "bert")
    return tmp_path / "bert"


def opened(folder):
    from pellucid.transformer.backbone import open_backbone

    return open_backbone(folder, device="cpu")


def change(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}))


def set_weight(folder, value):
    """Put a number into the fourth table of weights."""
    from safetensors.numpy import load_file

    weights = load_file(folder / "model.safetensors")
    weights[sorted(weights)[3]].flat[-1] = value
    write_tensors(folder / "model.safetensors", weights)


def add_token(folder, number):
    described = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    described["model"]["vocab"]["horse"] = number
    (folder / "tokenizer.json").write_text(json.dumps(described))


def name_weights(folder, *names):
    write_json(folder / "model.safetensors.index.json", {"weight_map": {f"w{n}": name for n, name in enumerate(names)}})


CLAIMS = [  # of a configuration, what the weights do not hold
    ({"hidden_size": 10**9, "num_attention_heads": 1}, "describes a model of|out of memory|overflow"),
    ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000"),
    ({"num_labels": 10**9}, "num_labels is 1000000000"),
    ({"intermediate_size": 10**12}, "describes a model of"),
    ({"max_position_embeddings": 10**12}, "describes a model of"),
    ({"num_attention_heads": 0}, "cannot open|cannot run"),
    ({"vocab_size": 7}, "cannot open"),
    ({"attn_implementation": "someone/kernel"}, "names code from elsewhere"),
    ({"model_type": "llama"}, "cannot open|lacks"),
    ({"architectures": 5}, "cannot open"),
    ({"num_hidden_layers": 3}, "lacks 16 of the weights"),
]
SABOTAGES = {
    **{str(changes): (lambda folder, changes=changes: change(folder / "config.json", **changes), message)
       for changes, message in CLAIMS},
    "NaN": (lambda folder: set_weight(folder, np.nan), "holds NaN or infinity|NaN"),
    "infinity": (lambda folder: set_weight(folder, np.inf), "holds NaN or infinity|NaN"),
    "a pickle": (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "safetensors"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer"),
    "a token too many": (lambda folder: add_token(folder, 86), "token of number 86|tokenizer has"),
    "a token far off": (lambda folder: add_token(folder, 10**6), "token of number 1000000|tokenizer has"),
    "weights elsewhere": (lambda folder: name_weights(folder, "../model.safetensors"), r"index\.json"),
    "weights without end": (lambda folder: name_weights(folder, "/dev/zero"), r"index\.json"),
    "absent weights": (lambda folder: name_weights(folder, "absent.safetensors"), r"index\.json"),
    "no weights": (name_weights, r"index\.json"),
    "a pipe": (lambda folder: os.mkfifo(folder / "merges.txt"), "not a regular file"),
    "a broken file": (lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 100), r"model\.safetensors"),
}  # fmt: skip


@pytest.mark.parametrize("how", SABOTAGES)
def test_a_folder_of_a_transformer_that_lies_is_refused_by_name(copied, monkeypatch, how):
    monkeypatch.setattr("torch.load", lambda *a, **k: pytest.fail("a pickle was opened"))
    sabotage, message = SABOTAGES[how]
    sabotage(copied)
    with pytest.raises(PellucidError, match=message):
        opened(copied)


def test_code_named_in_a_folder_is_never_run_nor_asked_for(copied, monkeypatch):
    (copied / "evil.py").write_text("raise SystemExit('run')\n")
    monkeypatch.setattr("builtins.input", lambda *a: pytest.fail("asked to run code"))
    change(copied / "config.json", model_type="evil", auto_map={"AutoConfig": "evil.C", "AutoModel": "evil.M"})
    with pytest.raises(ModelFolderError, match=r"trust_remote_code|custom code"):
        opened(copied)
    change(copied / "config.json", model_type="bert", auto_map={"AutoModelForMaskedLM": "evil.M"})
    change(copied / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", "evil.T"]})
    assert opened(copied).dimension == 32  # the library's own classes serve


def test_a_tokenizer_that_panics_on_some_text_is_our_error(copied):
    from pellucid.keytokens.embedder import KeyTokenEmbedder, KeyTokenSettings

    described = json.loads((copied / "tokenizer.json").read_text(encoding="utf-8"))
    (copied / "tokenizer.json").write_text(json.dumps({**described, "pre_tokenizer": split_at("(a+)+$")}))
    model = KeyTokenEmbedder(opened(copied), KeyTokenSettings(top_k=5))
    with pytest.raises(ModelFolderError, match="retry-limit"):
        model.encode("a" * 60 + "b")


@pytest.mark.needs("transformers")
def test_an_interruption_of_the_user_is_no_error_of_the_folder():
    for kind in (KeyboardInterrupt, SystemExit):
        with pytest.raises(kind), translate_load_errors("x"):
            raise kind


ADAPTER = {"peft_type": "LORA", "r": 2, "target_modules": ["query"], "lora_alpha": 4, "task_type": None}


@pytest.mark.needs("peft")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"r": 10**9}, "the rank is 1000000000"),
        ({"r": True}, "the rank is True"),
        ({"rank_pattern": {"x": 10**9}}, "the rank is 1000000000"),
        ({"rank_pattern": []}, None),
        ({"rank_pattern": [1]}, "must be objects"),
        ({"peft_type": "PROMPT_TUNING"}, "no low-rank|not describe"),
        ({"megatron_config": {"a": 1}, "megatron_core": "antigravity"}, "megatron_config is set"),
        ({"layer_replication": [[0, 10**6]]}, "layer_replication is set"),
        ({"target_modules": "(a+)+$"}, "endless time"),
    ],
)
def test_an_adapter_that_is_more_than_one_is_refused(tmp_path, changes, message):
    from pellucid.transformer.backbone import read_adapter

    write_tensors(tmp_path / "adapter_model.safetensors", {"lora_A.weight": np.ones((2, 32), np.float32)})
    (tmp_path / "adapter_config.json").write_text(json.dumps({**ADAPTER, **changes}))
    if message is None:
        assert read_adapter(tmp_path)[0]["r"] == 2
        return
    with pytest.raises(ModelFolderError, match=message):
        read_adapter(tmp_path)
    write_tensors(tmp_path / "adapter_model.safetensors", {"lora_A.weight": np.full((2, 32), np.nan, np.float32)})
    with pytest.raises(ModelFolderError, match=r"lora_A.weight holds NaN"):
        read_adapter(tmp_path)


# Modules of sentence-transformers


@pytest.fixture
def stock(bert, tmp_path):
    """The folder of a SentenceTransformer: a transformer, a pooling and a layer."""
    library = pytest.importorskip("sentence_transformers")
    parts = library.sentence_transformer.modules
    layers = [parts.Transformer(str(bert)), parts.Pooling(32), parts.Dense(32, 8)]
    library.SentenceTransformer(modules=layers, device="cpu").save_pretrained(str(tmp_path / "st"))
    return tmp_path / "st"


def test_a_stock_folder_opens(stock):
    rows = loading.load(stock).encode(["a horse"])
    assert rows.shape == (1, 8)
    for named in ("BertForMaskedLM", "BertForSequenceClassification", "NoSuchModel"):  # its head is not in the folder
        change(stock / "config.json", architectures=[named])
        np.testing.assert_array_equal(loading.load(stock).encode(["a horse"]), rows)


def change_modules(folder, first):
    modules = json.loads((folder / "modules.json").read_text())
    write_json(folder / "modules.json", [{**modules[0], **first}, *modules[1:]])


def change_layer(folder, **changes):
    change(folder / json.loads((folder / "modules.json").read_text())[2]["path"] / "config.json", **changes)


def drop_layer(folder):
    from safetensors.numpy import load_file

    rest = {name: rows for name, rows in load_file(folder / "model.safetensors").items() if "layer.1." not in name}
    write_tensors(folder / "model.safetensors", rest)


STOCK_SABOTAGES = [
    *((lambda folder, first=first: change_modules(folder, first), message) for first, message in (
        ({"type": "os.system"}, "names code from elsewhere"), ({"path": "../bert"}, "not a place in this folder"),
        ({"path": "/tmp"}, "not a place in this folder"), ({"path": 5}, "not a place in this folder"))),
    *((lambda folder, content=content: (folder / "modules.json").write_text(content), r"modules\.json")
      for content in ("{}", "null", "[5]", '"x"')),
    (lambda folder: change_layer(folder, in_features=10**9, out_features=10**6), "claims a larger layer"),
    (lambda folder: change_layer(folder, activation_function="subprocess.Popen"), "names code from elsewhere"),
    (drop_layer, "lacks 16 weights"),
    SABOTAGES["NaN"], SABOTAGES["a pickle"],
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(STOCK_SABOTAGES)))
def test_a_stock_folder_from_a_stranger_is_refused(stock, number):
    sabotage, message = STOCK_SABOTAGES[number]
    sabotage(stock)
    with pytest.raises(ModelFolderError, match=message):
        loading.load(stock)


# Names and paths


@pytest.fixture
def no_network(monkeypatch):
    """Any attempt to reach another machine fails the test; the hub is not said to be off."""

    def refuse(*arguments):
        pytest.fail("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)


OPENERS = [
    "pellucid.load", "pellucid.persistence.folder.locate", "pellucid.persistence.folder.is_stock",
    "pellucid.loading.open_sentence_transformer", "pellucid.static.training.distill.open_teacher",
    "pellucid.lexicon.embedder.LexiconEmbedder.from_pretrained",
    *(f"pellucid.transformer.backbone.{name}" for name in ("open_backbone", "read_transformer_config")),
]  # fmt: skip


@pytest.mark.parametrize("spec", ["./x", "../x/y", "models/x", "{here}/x", "x.d/y", "models/empty", "./models/empty"])
@pytest.mark.parametrize("name", OPENERS)
def test_a_path_is_never_asked_of_the_hub(no_network, tmp_path, monkeypatch, name, spec):
    if name not in OPENERS[:3]:
        pytest.importorskip("torch")
    (tmp_path / "models" / "empty").mkdir(parents=True)
    (tmp_path / "x.d").mkdir()
    monkeypatch.chdir(tmp_path)
    place = spec.format(here=tmp_path)
    opener = pydoc.locate(name)
    for given in (place, tmp_path / place):
        if name.endswith("is_stock"):
            assert not opener(given)
            continue
        if (name.endswith("locate") and "empty" in spec) or (name.endswith("open_teacher") and given != place):
            continue  # a folder that is there; an object
        with pytest.raises((ModelFolderError, InputError)) as caught:
            opener(given)
        assert str(place.removeprefix("./")) in str(caught.value)


def test_what_is_asked_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert is_hub_id("owner/name") and not is_hub_id("here/name") and not is_hub_id("owner/name.json")
    assert local_folder("owner/name") is None and local_folder("gpt2") is None
    assert local_folder("here") is not None and str(local_folder("here")) == "here"
    for path in ("here/x", "./x", "a/b/c", "~/x", "a\\b", "", tmp_path / "x"):
        with pytest.raises(ModelFolderError):
            local_folder(path)


# Installed libraries


def _absent(name):
    raise metadata.PackageNotFoundError(name)


@pytest.mark.parametrize(
    ("version", "package", "extra", "message"),
    [
        (
            "5.1.2",
            "sentence_transformers",
            "torch",
            r'5\.1\.2 is installed, and 6\.2 .*pip install -U "pellucid\[torch\]"',
        ),
        ("4.57.1", "transformers", "torch", r"transformers 4\.57\.1 is installed, and 5\.6\.2"),
        ("6.1.9", "sentence_transformers", "torch", "6.1.9 is installed"),
        (None, "sentence_transformers", "torch", 'sentence-transformers is not installed. Run: pip install "pellucid'),
        (None, "fastapi", "serve", r'"pellucid\[serve\]" \(in a clone of pellucid: pip install "\.\[serve\]"'),
        *((version, "sentence_transformers", "torch", None) for version in ("6.2.0", "6.10", "7.0.0rc1", "6.2.dev0")),
    ],
)
def test_libraries_that_are_absent_or_too_old_are_refused_with_the_line_to_run(
    monkeypatch, version, package, extra, message
):
    monkeypatch.setattr(metadata, "version", _absent if version is None else lambda name: version)
    if message is None:
        errors.require(package, extra)
        return
    with pytest.raises(MissingExtraError, match=message):
        errors.require(package, extra)
