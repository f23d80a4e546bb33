"""Folders from a stranger: what would hang, abort, run code, lead elsewhere or ask somebody is refused."""

import json
import os
import pydoc
import shutil
import socket
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from tokenizers import Regex, decoders, pre_tokenizers

import pellucid
import tiny_models
from commands import run_command
from damage import files_of, put, set_entry, set_tensors
from families import lexicon_model, static_model
from pellucid import errors, loading
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.errors import InputError, MissingExtraError, ModelFolderError, PellucidError
from pellucid.persistence import folder as model_folder
from pellucid.persistence.folder import is_hub_id, local_folder
from pellucid.persistence.store import write_json, write_tensors
from pellucid.persistence.untrusted import (
    StoredTokenizer,
    is_safe_regex,
    translate_load_errors,
)
from pellucid.static import precision
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


DEEP = json.loads('{"type": "Sequence", "normalizers": [' * 50 + '{"type": "Lowercase"}' + "]}" * 50)

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
    "a sequence without end": {"normalizer": DEEP},
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


CONFIG, WEIGHTS, WEIGHT_MAP = "config.json", "model.safetensors", "model.safetensors.index.json"


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
BIAS = "bert.encoder.layer.0.attention.output.dense.bias"
SABOTAGES = {
    **{str(changes): (lambda folder, changes=changes: set_entry(folder / CONFIG, (), changes), message)
       for changes, message in CLAIMS},
    **{str(value): (lambda folder, value=value: set_tensors(folder / WEIGHTS, BIAS, put(-1, value)),
                    "holds NaN or infinity|NaN") for value in (np.nan, np.inf)},
    "a pickle": (lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"), "safetensors"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer"),
    **{f"token {number}": (
        lambda folder, number=number: set_entry(folder / "tokenizer.json", ("model", "vocab", "horse"), number),
        f"token of number {number}|tokenizer has") for number in (86, 10**6)},
    **{f"weights in {name}": (lambda folder, files=files: write_json(folder / WEIGHT_MAP, {"weight_map": files}),
                              r"index\.json")
       for name, files in [(name, {"w": name}) for name in ("../model.safetensors", "/dev/zero", "absent.safetensors")]
       + [("none", {})]},
    "a pipe": (lambda folder: os.mkfifo(folder / "merges.txt"), "not a regular file"),
    "a broken file": (lambda folder: (folder / WEIGHTS).write_bytes(b"\xff" * 100), r"model\.safetensors"),
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
    evil = {"AutoConfig": "evil.C", "AutoModel": "evil.M"}
    set_entry(copied / CONFIG, (), {"model_type": "evil", "auto_map": evil})
    with pytest.raises(ModelFolderError, match=r"trust_remote_code|custom code"):
        opened(copied)
    set_entry(copied / CONFIG, (), {"model_type": "bert", "auto_map": {"AutoModelForMaskedLM": "evil.M"}})
    set_entry(copied / "tokenizer_config.json", ("auto_map",), {"AutoTokenizer": ["evil.T", "evil.T"]})
    assert opened(copied).dimension == 32  # the library's own classes serve


def test_a_tokenizer_that_panics_on_some_text_is_our_error(copied):
    from pellucid.keytokens.embedder import KeyTokenEmbedder, KeyTokenSettings

    set_entry(copied / "tokenizer.json", ("pre_tokenizer",), split_at("(a+)+$"))
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
        ({}, r"lora_A.weight holds NaN"),
    ],
)
def test_an_adapter_that_is_more_than_one_is_refused(tmp_path, changes, message):
    from pellucid.transformer.backbone import read_adapter

    weight = np.full((2, 32), 1 if changes else np.nan, np.float32)
    write_tensors(tmp_path / "adapter_model.safetensors", {"lora_A.weight": weight})
    write_json(tmp_path / "adapter_config.json", {**ADAPTER, **changes})
    with pytest.raises(ModelFolderError, match=message) if message else nullcontext():
        assert read_adapter(tmp_path)[0]["r"] == 2


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
        set_entry(stock / CONFIG, ("architectures",), [named])
        np.testing.assert_array_equal(loading.load(stock).encode(["a horse"]), rows)


LAYER = "2_Dense/config.json"
SECOND_LAYER = [
    f"encoder.layer.1.{part}.{kind}"
    for part in ("attention.output.LayerNorm", "attention.output.dense", "attention.self.key", "attention.self.query",
                 "attention.self.value", "intermediate.dense", "output.LayerNorm", "output.dense")
    for kind in ("weight", "bias")
]  # fmt: skip
STOCK_SABOTAGES = [
    *((lambda folder, first=first: set_entry(folder / "modules.json", (0,), first), message) for first, message in (
        ({"type": "os.system"}, "names code from elsewhere"), ({"path": "../bert"}, "not a place in this folder"),
        ({"path": "/tmp"}, "not a place in this folder"), ({"path": 5}, "not a place in this folder"))),
    *((lambda folder, value=value: set_entry(folder / "modules.json", (), value), r"modules\.json")
      for value in ({}, None, [5], "x")),
    (lambda folder: set_entry(folder / LAYER, (), {"in_features": 10**9, "out_features": 10**6}),
     "claims a larger layer"),
    (lambda folder: set_entry(folder / LAYER, (), {"activation_function": "subprocess.Popen"}),
     "names code from elsewhere"),
    (lambda folder: set_tensors(folder / WEIGHTS, "", dict.fromkeys(SECOND_LAYER)), "lacks 16 weights"),
    (lambda folder: set_tensors(folder / WEIGHTS, BIAS.partition(".")[2], put(-1, np.nan)), "NaN"),
    SABOTAGES["a pickle"],
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(STOCK_SABOTAGES)))
def test_a_stock_folder_from_a_stranger_is_refused(stock, number):
    sabotage, message = STOCK_SABOTAGES[number]
    sabotage(stock)
    with pytest.raises(ModelFolderError, match=message):
        loading.load(stock)


# Names and paths


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    """Whoever tries to reach another machine fails the test; the hub is not said to be off, its cache is empty."""
    from huggingface_hub import constants

    for place, name in ((socket.socket, "connect"), (socket, "getaddrinfo")):
        monkeypatch.setattr(place, name, lambda *arguments, **options: pytest.fail("a connection was tried"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


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
    monkeypatch.setattr(metadata, "version", Mock(return_value=version))
    if version is None:
        metadata.version.side_effect = metadata.PackageNotFoundError
    with pytest.raises(MissingExtraError, match=message) if message else nullcontext():
        errors.require(package, extra)


# A static folder from a stranger, or a damaged one: our error with the file's name, never a crash.


@pytest.fixture(params=["float32", "int8", "int4"])
def saved(request, fruit, tmp_path):
    fruit.save_pretrained(tmp_path / "m", dtype=request.param, extra_words=["pears"])
    return tmp_path / "m"


def test_a_link_that_leads_back_or_nowhere_does_no_harm(saved):
    back = ("again", "more", "and more", "and so on")  # followed, they would be 4 ** 40 folders
    for name, target in {"nowhere": "absent", "itself": "itself", **dict.fromkeys(back, ".")}.items():
        (saved / name).symlink_to(target)
    assert pellucid.load(saved).encode("apple").any()


def test_a_card_that_is_a_pipe_a_device_or_a_folder_does_not_stop_a_save(saved, fruit):
    for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path), os.mkdir):
        (saved / "README.md").rmdir() if (saved / "README.md").is_dir() else (saved / "README.md").unlink()
        make(saved / "README.md")
        fruit.save_pretrained(saved)
        assert (saved / "README.md").is_file()


@pytest.mark.usefixtures("unchecked")
def test_dos_line_ends_do_no_harm(saved, fruit):
    (saved / "words.txt").write_bytes((saved / "words.txt").read_bytes().replace(b"\n", b"\r\n"))
    assert pellucid.load(saved).vocabulary.words == fruit.vocabulary.words


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("searched", [1 << 26, 0])
def test_a_table_too_large_to_be_searched_never_gives_a_number_that_is_none(value, dtype, searched, monkeypatch):
    """The text that meets it is named; the others are encoded."""
    monkeypatch.setattr(precision, "MAX_NAN_CHECK_BYTES", searched)
    vectors, scales = np.ones((3, 70), np.float32), None
    if dtype == "int8":
        scales = np.array([1, value, 1], np.float32)
    else:
        with np.errstate(over="ignore"):
            vectors[1, 68] = np.float32(value).astype(dtype)
    model = StaticEmbedder(Vocabulary(["fine", "broken", "good"]), vectors.astype(dtype), scales)
    assert np.isfinite(model.encode(["fine good", "good"])).all()
    finite = np.isfinite(model.word_vectors([1])).all()  # 3e38 is, and one path adds up further than the other
    for look in (model.encode, lambda texts: model.explain(texts[-2], "good").score):
        try:
            with np.errstate(all="ignore"):
                found = look(["fine", *["good"] * 1500, "good broken broken", "fine"])
        except InputError as error:
            assert "'good broken broken' are NaN or infinite" in str(error)
        else:
            assert finite and np.isfinite(found).all()


@pytest.mark.usefixtures("unchecked")
def test_a_longer_vector_lets_no_other_encoder_pass(fruit, tmp_path):
    AnchorEmbedder(fruit, ["the apple and car", "car"]).save_pretrained(tmp_path / "m")
    vector = json.loads((tmp_path / "m" / "anchors.json").read_text())["first_vector"]
    set_entry(tmp_path / "m" / "anchors.json", ("first_vector",), [1000 * value for value in vector])
    other = StaticEmbedder(fruit.vocabulary, fruit.vectors[::-1].copy())
    with pytest.raises(ModelFolderError, match="another model"):
        AnchorEmbedder.from_pretrained(tmp_path / "m", encoder=other)


@pytest.mark.usefixtures("unchecked")
def test_no_path_named_inside_the_folder_is_opened(saved, fruit):
    """The names in modules.json and config.json are for other libraries; ours are fixed."""
    secret = saved.parent / "secret"
    secret.write_text("secret")
    (saved / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "../secret", "type": "os.system"}]')
    (saved / "config.json").write_text((saved / "config.json").read_text().replace('"words.txt"', '"../secret"', 1))
    opened = pellucid.load(saved)
    assert opened.vocabulary.words == fruit.vocabulary.words
    opened.save_pretrained(saved)  # replacing a model removes its listed files: only ever inside the folder
    assert secret.read_text() == "secret"


# A model's folder from somebody else opens nothing outside of itself, and asks nobody, unless the caller allows it.

HUB = "somebody/a-model"
offline = pytest.mark.usefixtures("no_network")


def anchors_of(fruit, folder: Path, encoder: str) -> Path:
    """Save an anchor model that names an encoder."""
    AnchorEmbedder(fruit, ["the apple", "car"]).save_pretrained(folder, encoder_name=encoder)
    return folder


@pytest.fixture
def led_out(fruit, tmp_path):
    """The folder of anchors whose encoder is elsewhere."""
    fruit.save_pretrained(tmp_path / "elsewhere")
    return anchors_of(fruit, tmp_path / "m", str(tmp_path / "elsewhere"))


def adapted(folder: Path, name: str) -> None:
    """Save a lexicon model whose backbone is a base, found elsewhere, with an adapter."""
    lexicon_model().save_pretrained(folder)
    write_json(folder / "backbone/adapter_config.json", {**ADAPTER, "r": 1, "base_model_name_or_path": name})


OUTWARDS = [HUB, "{here}/secret", "../secret", "./../secret", "anchors/../../secret", "~/secret", "name"]


@offline
@pytest.mark.parametrize(
    ("save", "names"),
    [
        (lambda folder, name: AnchorEmbedder(static_model(), ["the cat"]).save_pretrained(folder, encoder_name=name),
         OUTWARDS),
        *(pytest.param(save, OUTWARDS[:3], marks=pytest.mark.needs("torch")) for save in (
            adapted, lambda folder, name: lexicon_model().save_pretrained(folder, backbone_name=name))),
    ],
    ids=["encoder", "adapter", "backbone"],
)  # fmt: skip
def test_what_a_folder_names_elsewhere_is_refused_with_the_way_out(tmp_path, monkeypatch, save, names):
    """A hub id, an absolute path, one with dots, one through a link."""
    monkeypatch.chdir(tmp_path)
    static_model().save_pretrained(tmp_path / "secret")
    for name in (name.format(here=tmp_path) for name in names):
        save(tmp_path / "m", name)
        with pytest.raises(ModelFolderError, match=r"allow_outside=True") as refused:
            pellucid.load(tmp_path / "m")
        assert repr(name)[1:-1] in str(refused.value)


@offline
def test_what_is_allowed_opens(fruit, tmp_path, led_out):
    found = pellucid.load(led_out, allow_outside=True)
    with pytest.raises(ModelFolderError):
        pellucid.load(led_out)  # that was allowed once
    np.testing.assert_allclose(
        found.encode("the apple"), AnchorEmbedder(fruit, ["the apple", "car"]).encode("the apple"), atol=1e-6
    )
    found.save_pretrained(tmp_path / "again")  # keeps the name
    np.testing.assert_allclose(
        pellucid.load(tmp_path / "again", allow_outside=True).encode("car"), found.encode("car"), atol=1e-6
    )
    fruit.save_pretrained(led_out / "inside" / "fruit")
    file = led_out / "config.json"
    file.write_text(file.read_text().replace(str(tmp_path / "elsewhere"), "inside/fruit"))
    pellucid.load(led_out)


@offline
def test_a_bundled_name_opens_and_a_bundled_model_may_name_the_hub(fruit, tmp_path):
    pellucid.load("anchors-en-200").save_pretrained(tmp_path / "m")
    pellucid.load(tmp_path / "m")
    assert model_folder.resolve_reference(model_folder.locate("lexicon-minilm"), HUB) == HUB


@offline
def test_what_is_in_the_hubs_cache_opens_without_asking(fruit, tmp_path):
    snapshot = tmp_path / "cache/models--somebody--a-model/snapshots" / ("0" * 40)
    blobs = snapshot.parents[1] / "blobs"
    fruit.save_pretrained(blobs)
    for blob in files_of(blobs, but=()):
        place = snapshot / blob.relative_to(blobs)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(blob, place.parent))  # as the hub's cache has them
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs/main").write_text("0" * 40)
    opened = pellucid.load(anchors_of(fruit, tmp_path / "m", HUB))
    assert opened.encoder_name == HUB
    np.testing.assert_allclose(
        opened.encode("car"), AnchorEmbedder(fruit, ["the apple", "car"]).encode("car"), atol=1e-6
    )


@offline
@pytest.mark.needs("torch")
def test_a_backbone_elsewhere_opens_where_it_is_allowed(tmp_path):
    model = lexicon_model()
    model.save_pretrained(tmp_path / "m")
    model.save_pretrained(tmp_path / "named", backbone_name=str(tmp_path / "m/backbone"))
    assert pellucid.load(tmp_path / "named", allow_outside=True).backbone.name == str(tmp_path / "m/backbone")


@offline
def test_folders_within_folders_are_asked_too(fruit, tmp_path, led_out):
    """An ensemble of anchors whose encoder is named: what is allowed for one reaches no other."""
    inner = pellucid.load(led_out, allow_outside=True)
    EnsembleEmbedder([inner, fruit]).save_pretrained(tmp_path / "both")
    with pytest.raises(ModelFolderError, match="allow_outside"):
        pellucid.load(tmp_path / "both")
    pellucid.load(tmp_path / "both", allow_outside=True)


@offline
@pytest.mark.needs("pyarrow")
def test_a_corpus_is_encoded_by_what_was_allowed(tmp_path, led_out):
    from pellucid.bulk import encode_corpus

    (tmp_path / "c.txt").write_text("the apple\ncar\n")
    with pytest.raises(PellucidError, match="allow_outside"):
        encode_corpus(str(led_out), tmp_path / "c.txt", tmp_path / "out")
    with model_folder.allow_external(True):
        encode_corpus(str(led_out), tmp_path / "c.txt", tmp_path / "out")


@offline
def test_the_command_line_has_one_switch(led_out, monkeypatch):
    describe = ["describe", "the apple", "--model", led_out]
    assert "allow-outside" in run_command(*describe, code=1).output.replace("\n", "")
    run_command("--allow-outside", *describe)
    monkeypatch.setenv("PELLUCID_ALLOW_OUTSIDE", "1")
    run_command(*describe)
