"""Checks of an untrusted folder before transformers and sentence-transformers open it; SECURITY.md says against what.

These libraries trust it: they allocate the sizes in `config.json`, make absent weights random, may run code, and run a
tokenizer as described, with regular expressions of exponential time and replacements that multiply a text. Failures in
Rust are panics, which are not an `Exception`; `translate_load_errors` turns all that these libraries raise into ours.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from pellucid.errors import (
    InputError,
    ModelFolderError,
    PellucidError,
    is_panic,
    missing_extra,
    require,
    without_panic,
)
from pellucid.persistence.store import open_tensors, parse_json, read_json
from pellucid.process import ProcessSetting

TOKENIZER = "tokenizer.json"
MAX_TOKENIZER = 1 << 26  # bytes; the largest published ones have half of it

_MAX_PARTS = 32  # of a sequence of normalizers, or of what stands beside it
_MAX_GROWTH = 64  # times a text may grow by the replacements of a tokenizer
_MAX_PIECE_BYTES = 64  # bytes that a character map may replace a character with
_MAX_STRING_CHARS = 1 << 15  # characters of any string in a part of a tokenizer
_PARTS = {
    "normalizer": "BertNormalizer Strip StripAccents NFC NFD NFKC NFKD Sequence Lowercase Nmt Precompiled Replace "
    "Prepend ByteLevel",
    "pre_tokenizer": "BertPreTokenizer ByteLevel CharDelimiterSplit Metaspace Whitespace Sequence Split Punctuation "
    "WhitespaceSplit Digits UnicodeScripts FixedLength",
    "model": "BPE WordPiece WordLevel Unigram",
    "post_processor": "RobertaProcessing BertProcessing ByteLevel TemplateProcessing Sequence",
    "decoder": "BPEDecoder ByteLevel WordPiece Metaspace CTC Sequence Replace Fuse Strip ByteFallback",
}
_RANDOM = ("dropout", "alpha", "nbest_size")  # settings of a model that cuts the same text in different ways
_JSON = (
    "config.json generation_config.json tokenizer_config.json special_tokens_map.json added_tokens.json "
    "model.safetensors.index.json sentence_bert_config.json"
).split()
_INDEX = "model.safetensors.index.json"
_COUNT_KEYS = re.compile("layer|expert|label|block|stage|depth")  # settings that say how often something is made
_MIN_COUNT_LIMIT = 1000  # that such a setting may be, whatever the number of tensors
EXTRA_PARAMS = 1 << 27  # numbers a model may hold beside its weights, such as masks
_MAX_REGEX_CHARS = 4_096
_ESCAPE = re.compile(r"\\(?:[pP]\{[^{}]*\}|[^1-9gkXR])", re.DOTALL)
_CLASS = re.compile(r"\[[^\[\]]*\]")
_FLAGS = re.compile(r"\(\?[imsx-]+\)")
_GROUP = re.compile(
    r"\((?:\?(?:[imsx-]*:|[=!]|<[=!]))?((?!\?)[^()]*)\)([*+?]|\{\d*(?:,\d*)?\})?"
)  # content, repetition
_VARIABLE = re.compile(r"[*+|]|\{\d{4}|\{\d*,")
_FIXED = re.compile(r"\?|\{\d{1,3}\}")


class StoredTokenizer:
    """A tokenizer's file, read and not trusted yet; called, the tokenizer without padding and truncation."""

    def __init__(self, content: bytes, path: Path) -> None:
        """Take what is in the file `path`."""
        self.content, self.path = content, path

    def described(self) -> dict[str, Any]:
        """Return what the file says, checked, in a fifth of the time that it takes to make the tokenizer."""
        described = parse_json(self.content, f"{self.path} is not a tokenizer")
        check_tokenizer(described, self.path, regexes=True)
        return {**described, "padding": None, "truncation": None}

    def __call__(self) -> Tokenizer:
        """Return the tokenizer."""
        try:
            with without_panic(self.path):
                return Tokenizer.from_str(json.dumps(self.described()))
        except ModelFolderError:
            raise
        except Exception as error:  # the library raises nothing more precise
            raise ModelFolderError(f"{self.path} is not a tokenizer: {error!s:.300}") from error


def check_tokenizer(described: Any, path: Path, *, regexes: bool = False) -> None:
    """Check that a tokenizer cannot take endless time or memory; `regexes`: exponential expressions too."""
    if not isinstance(described, dict) or not isinstance(described.get("model"), dict):
        raise ModelFolderError(f"{path} is not a tokenizer: it has no model")
    growth = 1.0
    for role, kinds in _PARTS.items():
        parts = list(_parts(described.get(role), f"{path}: {role}"))
        if len(parts) > _MAX_PARTS:
            raise ModelFolderError(f"{path}: {role} has more than {_MAX_PARTS} parts")
        for part in parts:
            _check_part(part, role, kinds.split(), path, regexes)
        growth *= math.prod(map(_growth, parts))
    if growth > _MAX_GROWTH:
        raise ModelFolderError(f"{path}: its replacements may make a text {growth:,.0f} times as long")


def _parts(part: Any, path: str, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield a part of a tokenizer and, of a sequence, its parts."""
    if part is None:
        return
    if not isinstance(part, dict) or depth > 4:
        raise ModelFolderError(f"{path} is not an object, or too deep: {part!r:.80}")
    yield part
    for key in ("normalizers", "pretokenizers", "processors", "decoders"):
        inner = part.get(key, [])
        if not isinstance(inner, list) or len(inner) > _MAX_PARTS:
            raise ModelFolderError(f"{path} has no list of at most {_MAX_PARTS} {key}")
        for item in inner:
            yield from _parts(item, path, depth + 1)


def _check_part(part: dict[str, Any], role: str, kinds: list[str], path: Path, regexes: bool) -> None:
    """Check that a part is of a known kind, not random, and its strings not endless."""
    kind = part.get("type", "WordPiece" if role == "model" else None)  # old files do not say it
    if kind not in kinds:
        raise ModelFolderError(f"{path}: {role} is of kind {kind!r:.40}; known are {', '.join(kinds)}")
    random = [name for name in _RANDOM if role == "model" and part.get(name)]
    if random:
        raise ModelFolderError(f"{path}: the model's {random[0]} is {part[random[0]]!r:.40}; it would cut at random")
    if kind == "Precompiled":
        _check_map(part.get("precompiled_charsmap"), path)
        return
    pattern = part.get("pattern")
    pattern = pattern if isinstance(pattern, dict) else {"String": pattern}
    if any(len(value) > _MAX_STRING_CHARS for value in (*part.values(), *pattern.values()) if isinstance(value, str)):
        raise ModelFolderError(f"{path}: {role} {kind} holds a string of more than {_MAX_STRING_CHARS:,} characters")
    regex = pattern.get("Regex")
    if regexes and isinstance(regex, str) and not is_safe_regex(regex):
        raise ModelFolderError(f"{path}: {role} has a regular expression that may take endless time: {regex!r:.80}")


def _check_map(encoded: Any, path: Path) -> None:
    """Check that a map of characters does not replace one with a long text."""
    try:
        content = base64.b64decode(encoded or "", validate=True)
        size = struct.unpack_from("<I", content)[0] if content else 0
    except (ValueError, TypeError, struct.error) as error:
        raise ModelFolderError(f"{path}: its map of characters is broken: {error}") from error
    if max(map(len, content[4 + size :].split(b"\0"))) > _MAX_PIECE_BYTES:
        raise ModelFolderError(f"{path}: its map of characters has entries of more than {_MAX_PIECE_BYTES} bytes")


def _growth(part: dict[str, Any]) -> float:
    """Return how many times as long a replacement may make a text."""
    if part.get("type") not in ("Replace", "Prepend"):
        return 1.0
    content, pattern = part.get("content", ""), part.get("pattern", {})
    if part["type"] == "Prepend":  # in front of every piece, which may be a character
        return 1.0 if len(str(part.get("prepend", ""))) <= 16 else math.inf
    matched = pattern.get("String") if isinstance(pattern, dict) else pattern
    if matched is None:  # an expression may match between two characters
        return 1.0 + len(str(content))
    return max(1.0, len(str(content)) / len(matched)) if isinstance(matched, str) and matched else math.inf


def is_safe_regex(pattern: str) -> bool:
    """Whether a regular expression cannot take exponential time: no repeated group holds a repetition or a choice."""
    if len(pattern) > _MAX_REGEX_CHARS:
        return False
    reduced, n_classes = _CLASS.subn("a", _ESCAPE.sub("a", pattern))
    while n_classes:  # one in another
        reduced, n_classes = _CLASS.subn("a", reduced)
    if "\\" in reduced or "[" in reduced:  # a reference to a group, or a class without end
        return False
    reduced = _FLAGS.sub("", reduced)
    while group := _GROUP.search(reduced):  # an innermost one
        is_repeated = bool(group[2]) and not _FIXED.fullmatch(group[2])
        varies = _VARIABLE.search(group[1]) is not None
        if is_repeated and varies:
            return False
        reduced = reduced[: group.start()] + ("+" if is_repeated or varies else "a") + reduced[group.end() :]
    return "(" not in reduced and ")" not in reduced


def check_folder(folder: Path) -> None:
    """Check that the folder of a transformer or tokenizer can be opened safely."""
    for entry in folder.iterdir():
        if not entry.is_file() and not entry.is_dir():
            raise ModelFolderError(f"{entry} is not a regular file")
    for name in _JSON:
        if (folder / name).exists() and not isinstance(read_json(folder / name), dict):
            raise ModelFolderError(f"{folder / name} holds no JSON object")
    if (folder / _INDEX).exists():  # of several files of weights, which must be beside it
        files = read_json(folder / _INDEX).get("weight_map")
        names = set(map(str, files.values())) if isinstance(files, dict) else {""}
        wrong = [name for name in names if Path(name).name != name or not (folder / name).is_file()]
        if wrong or not names:
            raise ModelFolderError(f"{folder / _INDEX} names {[*wrong, 'no file'][0]!r:.80}, which is not beside it")
    if (folder / TOKENIZER).exists():
        check_tokenizer(read_json(folder / TOKENIZER, max_bytes=MAX_TOKENIZER), folder / TOKENIZER)
    if (folder / "config.json").exists():
        _check_config(read_json(folder / "config.json"), len(tensor_sizes(folder)), folder / "config.json")


def check_modules(folder: Path) -> None:
    """Check that a folder's modules are sentence-transformers' own, and their files safe to open."""
    modules = read_json(folder / "modules.json") if (folder / "modules.json").exists() else [{"path": ""}]
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ModelFolderError(f"{folder / 'modules.json'} must hold a list of modules")
    for module in modules:
        kind, path = module.get("type", "sentence_transformers."), module.get("path")
        if not isinstance(path, str) or Path(path).is_absolute() or ".." in Path(path).parts:
            raise ModelFolderError(f"{folder / 'modules.json'}: {path!r:.80} is not a place in this folder")
        if not isinstance(kind, str) or not kind.startswith("sentence_transformers."):
            raise ModelFolderError(f"{folder / 'modules.json'} names code from elsewhere, {kind!r:.80}")
        module_folder = folder / path
        if module_folder.is_dir():
            _check_module(module_folder)
            if kind.rpartition(".")[2] in ("", "Transformer"):
                _check_transformer(module_folder)


def _check_transformer(folder: Path) -> None:
    """Check that a module's transformer has all its weights; missing ones would be random."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    check_size(transformers.AutoModel, config, folder)
    named: Any = getattr(transformers, str((config.architectures or [""])[0]), None)  # half of a T5 is a model, too
    is_known_class = isinstance(named, type) and issubclass(named, transformers.PreTrainedModel)
    missing: list[str] = []
    for loader in (*[named] * is_known_class, transformers.AutoModel):  # a head that the config names may be missing
        _, loading_info = loader.from_pretrained(
            str(folder), device_map="meta", output_loading_info=True, local_files_only=True, use_safetensors=True
        )
        missing = sorted(key for key in loading_info["missing_keys"] if "pooler" not in key)
        if not missing:
            return
    raise ModelFolderError(f"{folder} lacks {len(missing)} weights ({missing[0]}, ...), which would be random")


def _check_module(folder: Path) -> None:
    """Check that a module's weights are not pickled, and as many as its `config.json` claims."""
    check_folder(folder)
    n_numbers = sum(tensor_sizes(folder).values())
    pickled = next(chain(folder.glob("*.bin"), folder.glob("*.pt"), folder.glob("*.pth")), None)
    if pickled and not n_numbers:
        raise ModelFolderError(f"{pickled} is a pickle, which is never opened; save the model as safetensors")
    path = folder / "config.json"
    config = read_json(path) if path.exists() else {}
    if (
        math.prod(value for key, value in config.items() if "_features" in key and type(value) is int)
        > 4 * n_numbers + 1
    ):
        raise ModelFolderError(f"{path} claims a larger layer than the weights beside it, {n_numbers:,} numbers")
    activation = config.get("activation_function", "torch.nn.modules.")
    is_named = activation in ("relu", "log1p_relu")  # of SpladePooling
    if not is_named and not (isinstance(activation, str) and activation.startswith("torch.nn.modules.")):
        raise ModelFolderError(f"{path} names code from elsewhere, {activation!r:.80}")


def _check_config(config: Any, tensors: int, path: Path) -> None:
    """Check that no setting makes far more of something than there are tensors, or names code."""
    for key, value in config.items() if isinstance(config, dict) else ():
        if _COUNT_KEYS.search(key) and type(value) is int and value > max(_MIN_COUNT_LIMIT, tensors):
            raise ModelFolderError(f"{path}: {key} is {value!r:.40}, and the weights beside it are {tensors} tensors")
        if "implementation" in key and "/" in str(value):
            raise ModelFolderError(f"{path}: {key} names code from elsewhere, {value!r:.80}; remove it")
        _check_config(value, tensors, path)


def tensor_sizes(folder: Path) -> dict[str, int]:
    """Return how many numbers each tensor of the safetensors files in `folder` holds; only headers are read."""
    sizes: dict[str, int] = {}
    for file in sorted(folder.glob("*.safetensors")):
        if not file.is_file():
            raise ModelFolderError(f"{file} is not a regular file")
        with open_tensors(file) as tensors:
            sizes |= {name: math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys()}
    return sizes


def check_size(loader: Any, config: Any, folder: Path) -> None:
    """Check that a configuration does not claim a far larger model than the weights in `folder` are."""
    import torch

    n_numbers = sum(tensor_sizes(folder).values())
    if not n_numbers:
        raise ModelFolderError(f"{folder} holds no weights in safetensors files; others are never opened")
    with torch.device("meta"):
        model = loader.from_config(config, trust_remote_code=False)
    claimed = sum(tensor.numel() for tensor in chain(model.parameters(), model.buffers()))
    if claimed > 4 * n_numbers + EXTRA_PARAMS:
        raise ModelFolderError(
            f"{folder / 'config.json'} describes a model of {claimed:,} numbers, and the safetensors files beside it "
            f"hold {n_numbers:,}"
        )


def check_finite(model: Any, name: str) -> None:
    """Check that weights are finite."""
    for key, weight in model.named_parameters():
        if weight.is_floating_point() and weight.numel():
            low, high = weight.detach().aminmax()  # no copy of a large table
            if not math.isfinite(low.item()) or not math.isfinite(high.item()):
                raise ModelFolderError(f"{name}: the weight {key} holds NaN or infinity; download the model again")


def check_token_ids(tokenizer: Any, rows: int) -> None:
    """Check that a tokenizer has words, and no ids beyond a model's `rows` input embeddings."""
    vocabulary = tokenizer.get_vocab()
    out_of_range = [number for number in (*vocabulary.values(), *tokenizer("a")["input_ids"]) if not 0 <= number < rows]
    if out_of_range:
        raise InputError(
            f"the tokenizer has a token of number {out_of_range[0]}, and the model {rows} input embeddings; they are "
            "of different models, or the model was not resized after tokens were added"
        )
    if len(vocabulary) <= len(tokenizer.all_special_ids):
        raise InputError(f"the tokenizer has {len(vocabulary)} special tokens and no word; its {TOKENIZER} is missing")


@contextmanager
def translate_load_errors(name: str) -> Iterator[None]:
    """Turn whatever transformers raises while it opens something into our errors, without bars, on one thread."""
    require("torch")  # transformers imports without it and fails later
    require("transformers")
    try:
        with WITHOUT_BARS, one_thread():
            yield
    except PellucidError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise  # the user's own interruption
        if isinstance(error, ModuleNotFoundError) and error.name in ("torch", "transformers", "peft"):
            raise missing_extra(error.name, "torch") from error
        raise ModelFolderError(f"transformers cannot open {name!r}: {' '.join(str(error).split()):.1000}") from error


def _use_one_thread() -> Callable[[], object]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    return partial(torch.set_num_threads, threads)


_ONE_THREAD = ProcessSetting(_use_one_thread)


@contextmanager
def one_thread() -> Iterator[int]:
    """Let torch compute on one thread, and yield how many it has otherwise.

    Over a handful of tokens, threads wait longer than they compute.
    """
    import torch

    is_nested = _ONE_THREAD.has_this_thread()
    with _ONE_THREAD as undo:
        torch.set_num_threads(1)  # the number is of the process and, once a thread has computed, of that thread, too
        try:
            yield undo.args[0]  # type: ignore[attr-defined]
        finally:
            if not is_nested:
                undo()


def _hide_bars() -> Callable[[], object]:
    from transformers.utils import logging as bars

    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    return bars.enable_progress_bar if shown else lambda: None


WITHOUT_BARS = ProcessSetting(_hide_bars)
"""The context in which transformers draws no bar for each file that it reads or writes."""
