"""How a file is damaged: by chance in its bytes, in its place on disk, or in what its format says.

Every function takes a `random.Random` and the content and returns another content; which is used on what is in
`broken`. Raw JSON tokens that Python would not write (numbers of 5,000 digits, 100,000 brackets) are put in by name.
"""

import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from damage import PLACES

Change = Callable[[random.Random, bytes], bytes]


def copy(source: Path, target: Path) -> None:
    """Copy a folder, sharing the bytes of its files: what changes one must write a new file."""
    shutil.copytree(source, target, copy_function=os.link)


def damage_folder(rng: random.Random, folder: Path, other: Path) -> str:
    """Break one file of a model folder, seldom two; return what was done. `other` is another model like it."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != "README.md")
    return ", ".join([_damage_one(rng, folder, rng.choice(files), other) for _ in range(1 + (rng.random() < 0.1))])


def _damage_one(rng: random.Random, folder: Path, file: Path, other: Path) -> str:
    name = file.relative_to(folder)
    if not file.is_file():
        return f"{name} as it is"
    kind = rng.random()
    if kind < 0.1:
        how = rng.choice(sorted(PLACES))
        file.unlink()
        PLACES[how](file, b"")
        return f"{name}: {how}"
    if kind < 0.2:
        siblings = sorted(one for one in [*folder.rglob("*"), *([other / name] * 9)] if one.is_file() and one != file)
        source = rng.choice(siblings)
        replace(file, source.read_bytes())
        return f"{name}: {'the other model' if source == other / name else source.relative_to(folder)} in its place"
    how, content = broken(rng, file.read_bytes(), file.suffix)
    replace(file, content)
    return f"{name}: {how}"


def unseal(folder: Path) -> None:
    """Take the checksums out of a model and those in it, as who tampers with it would, or an older version had none."""
    for file in folder.rglob("config.json"):
        config = json.loads(file.read_bytes())
        if config.get("pellucid", {}).pop("sha256", None) is not None:
            replace(file, json.dumps(config).encode())


def replace(file: Path, content: bytes) -> None:
    """Write a new file; the old one may be shared with others."""
    file.unlink()
    file.write_bytes(content)


def broken(rng: random.Random, content: bytes, suffix: str) -> tuple[str, bytes]:
    """Damage content by chance or by its format; return the name of the way and the new content."""
    ways = _BYTES if rng.random() < 0.5 else _BY_FORMAT.get(suffix, _BYTES)
    way = rng.choice(ways)
    try:
        return way.__name__, way(rng, content)
    except (ValueError, LookupError, TypeError, RecursionError, struct.error):  # a second damage finds no form any more
        return "flip", flip(rng, content)


# Bytes


def flip(rng: random.Random, content: bytes) -> bytes:
    """Flip one to eight bits."""
    changed = bytearray(content or b"\0")
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng: random.Random, content: bytes) -> bytes:
    """Keep the beginning alone."""
    return content[: rng.choice((0, 1, 8, len(content) // 2, len(content) - 1, rng.randrange(len(content) + 1)))]


def patch(rng: random.Random, content: bytes) -> bytes:
    """Put zeros, other bytes or nothing over a stretch, write it twice, or put bytes before it."""
    start = rng.choice((0, len(content), *[rng.randrange(len(content) + 1)] * 9))
    stretch = content[start : start + rng.choice((1, 4, 64, 1024))]
    between = rng.choice((b"\0", b"\r", b"\xff\xfe", b"\xef\xbb\xbf", rng.randbytes(9)))
    new = rng.choice((bytes(len(stretch)), rng.randbytes(len(stretch)), b"", stretch * 2, between + stretch))
    return content[:start] + new + content[start + len(stretch) :]


# JSON

_RAW = {
    "@digits@": "9" * 5000,
    "@long@": "9" * 400,
    "@brackets@": "[" * 100_000 + "]" * 100_000,
    "@objects@": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "@nan@": "NaN",
    "@infinity@": "Infinity",
    "@overflow@": "1e999",
    "@surrogate@": '"\\ud800"',
    "@null@": '"\\u0000"',
}
_VALUES = [
    None, True, False, 0, -1, 1, 2, 7, 0.5, -0.0, 1e308, 2**31, 2**63, 2**64, 10**30, "", "x", "x" * 100_000, [], {},
    [[]], [None], {"": None}, "../../../../etc/passwd", "/dev/zero", "{text}", "{0.__class__}", "%s%n", "float16",
    "owner/name", "__class__", *_RAW,
]  # fmt: skip


def json_entry(rng: random.Random, content: bytes) -> bytes:
    """Change an entry found by walking down from the root at random: see `_other_value`, or it is gone or doubled."""
    whole: list[Any] = [json.loads(content)]
    holder, key = whole, 0
    while isinstance(holder[key], (list, dict)) and holder[key] and rng.random() < 0.85:
        holder = holder[key]
        key = rng.choice(_keys(holder))
    how = rng.random()
    if how < 0.17:
        del holder[key]
    elif how < 0.34 and isinstance(holder, list):
        holder[key:key] = [holder[key]] * rng.choice((1, 2, 1000))
    elif how < 0.34:
        holder[rng.choice((f"{key}x", "", "pellucid", "auto_map", *_keys(holder)))] = holder[key]
    else:
        holder[key] = _other_value(rng, holder[key])
    text = json.dumps(whole[0] if whole else None, ensure_ascii=False)
    for name, raw in _RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text.encode("utf-8", "surrogatepass")


def _other_value(rng: random.Random, value: Any) -> Any:
    """Return another value of the same kind or of any; a count that is one off, a flag, a sign."""
    near = [other for other in _VALUES if type(other) is type(value)]
    if isinstance(value, bool):
        near = [not value]
    elif isinstance(value, (int, float)):
        near += [value + 1, value - 1, -value, value * 2, value * 1000, float(value)]
    return rng.choice(near if near and rng.random() < 0.5 else _VALUES)


def _keys(holder: Any) -> list[Any]:
    return list(range(len(holder))) if isinstance(holder, list) else list(holder)


# Tokenizers

_REPLACE = {"type": "Replace", "pattern": {"Regex": "(a|a)*b"}, "content": ""}
_GROWING = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}
_HOSTILE: dict[str, list[Any]] = {
    "normalizer": [
        {"type": "Sequence", "normalizers": [_GROWING] * 20},
        {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "a" * 10**6}] * 9},
        {**_REPLACE, "pattern": {"Regex": "(a+)+$|(?=a)*"}},
        {**_REPLACE, "pattern": {"Regex": "(?:(?:a?){64}){64}a{64}"}},
        {**_REPLACE, "pattern": {"Regex": "("}},
        {**_REPLACE, "pattern": {"String": ""}},
        {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
        {"type": "Precompiled", "precompiled_charsmap": ""},
        _REPLACE,
    ],
    "pre_tokenizer": [
        {"type": "Split", "pattern": {"Regex": "(a*)*b|(?:a|aa)+$"}, "behavior": "Isolated", "invert": False},
        {"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": True},
        {"type": "Sequence", "pretokenizers": []},
        {"type": "FixedLength", "length": 0},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False},
    ],
    "post_processor": [
        {"type": "Sequence", "processors": []},
        {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x", "type_id": 0}}] * 1000, "pair": [],
         "special_tokens": {"x": {"id": "x", "ids": list(range(1000)), "tokens": ["x"] * 1000}}},
        {"type": "BertProcessing", "sep": ["x", 10**6], "cls": ["y", 10**6]},
    ],
    "model": [
        {"type": "WordPiece", "unk_token": "gone", "continuing_subword_prefix": "", "max_input_chars_per_word": 2**60,
         "vocab": {"a": 0, "": 1}},
        {"type": "WordPiece", "unk_token": "x", "continuing_subword_prefix": "", "max_input_chars_per_word": 100,
         "vocab": {"a": 2**32 - 1}},
        {"type": "Unigram", "unk_id": 5, "vocab": [["a", 0.0]], "byte_fallback": False},
        {"type": "Unigram", "unk_id": None, "vocab": [], "byte_fallback": True},
        {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "a"]], "dropout": 0.5},
        {"type": "BPE", "vocab": {}, "merges": [], "dropout": None, "unk_token": None},
        {"type": "WordLevel", "vocab": {}, "unk_token": "gone"},
    ],
    "added_tokens": [
        [{"id": 2**32 - 1, "content": "a", "single_word": False, "lstrip": False, "rstrip": False,
          "normalized": False, "special": False}],
        [{"id": 0, "content": "", "single_word": False, "lstrip": True, "rstrip": True, "normalized": True,
          "special": True}],
    ],
    "padding": [{"strategy": {"Fixed": 2**40}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 0,
                 "pad_type_id": 0, "pad_token": "x"}],
    "truncation": [{"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 9}],
    "decoder": [{"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}],
}  # fmt: skip


def damage_tokenizer(rng: random.Random, file: Path) -> str:
    """Put a hostile part into a tokenizer, or another value; return what was done."""
    described = json.loads(file.read_bytes())
    if rng.random() < 0.3:
        replace(file, json_entry(rng, file.read_bytes()))
        return f"{file.name}: json_entry"
    part, number = rng.choice([(part, number) for part in _HOSTILE for number in range(len(_HOSTILE[part]))])
    described[part] = _HOSTILE[part][number]
    replace(file, json.dumps(described).encode())
    return f"{file.name}: hostile {part} {number}"


# Safetensors


def tensor_header(rng: random.Random, content: bytes) -> bytes:
    """Change the header and keep its length right."""
    size = struct.unpack("<Q", content[:8])[0]
    header = json_entry(rng, content[8 : 8 + size])
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def tensor_value(rng: random.Random, content: bytes) -> bytes:
    """Put NaN, infinity, the largest number, zero or another number into a tensor, once or everywhere."""
    start, end, kind = _tensor(rng, content)
    form = {"F64": "<d", "F32": "<f", "F16": "<e", "I64": "<q", "I32": "<i", "I16": "<h", "I8": "<b"}.get(kind, "<B")
    width = struct.calcsize(form)
    values: list[Any] = [0, 1, -1, 127] if kind.startswith(("I", "U")) else [0.0, 1.0, -1.0, 1e-30, 6e4]
    if kind.startswith("F"):
        values += [float("nan"), float("inf"), float("-inf")] + ([3e38] if kind != "F16" else [])
    value = struct.pack(form, abs(rng.choice(values)) if kind.startswith("U") else rng.choice(values))
    if rng.random() < 0.2:
        return content[:start] + value * ((end - start) // width) + content[end:]
    place = start + width * rng.randrange((end - start) // width)
    return content[:place] + value + content[place + width :]


def tensor_rolled(rng: random.Random, content: bytes) -> bytes:
    """Shift the bytes of a tensor, the end to the beginning."""
    start, end, _ = _tensor(rng, content)
    by = rng.randrange(end - start)
    return content[:start] + content[start + by : end] + content[start : start + by] + content[end:]


def _tensor(rng: random.Random, content: bytes) -> tuple[int, int, str]:
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    entry = header[rng.choice(sorted(name for name in header if name != "__metadata__"))]
    start, end = entry["data_offsets"]
    return 8 + size + start, 8 + size + end, entry["dtype"]


# Lines and cells

_LINES = [
    b"", b" ", b"\t", b"\r", b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbfa", "a\u2028b\x85c".encode(), b"a\rb",
    b"x" * 200_000, b'"' * 3, b"=1+1\t2\t3\t4", b"a 1e999", b"a nan nan", b"-1 -1", b"0 0", b"null", b"\x1f\x8b",
]  # fmt: skip
_CELLS = [b"", b" ", b"0", b"-1", b"1", b"2", b"nan", b"inf", b"1e308", b"1_0", "٣".encode(), b"9" * 5000, b'"', b'"a',
          b"a\rb", b'"a\nb"', b"=1+1", b"\0", b"\xff", b"x" * 200_000]  # fmt: skip


def line(rng: random.Random, content: bytes) -> bytes:
    """Put an odd line between, drop a line, write it twice, let it change places, or end all as other systems do."""
    lines = content.split(b"\n")
    one, other, how = rng.randrange(len(lines)), rng.randrange(len(lines)), rng.randrange(5)
    if how == 0:
        return content.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\x0b", "\u2028".encode())))
    if how == 1:
        lines[one], lines[other] = lines[other], lines[one]
    else:
        lines[one : one + 1] = rng.choice(([], [lines[one]] * 2, [rng.choice(_LINES), lines[one]]))
    return b"\n".join(lines)


def cell(rng: random.Random, content: bytes) -> bytes:
    """Put something else into a cell, or take one away."""
    lines = content.split(b"\n")
    number = rng.randrange(len(lines))
    gap = b"\t" if b"\t" in content else b" "
    cells = lines[number].split(gap)
    place = rng.randrange(len(cells))
    cells[place : place + 1] = rng.choice(([], [rng.choice(_CELLS)], [rng.choice(_CELLS)], [cells[place]] * 2))
    lines[number] = gap.join(cells)
    return b"\n".join(lines)


_BYTES: tuple[Change, ...] = (flip, cut, patch, patch)
_BY_FORMAT: dict[str, tuple[Change, ...]] = {
    ".json": (json_entry,),
    ".safetensors": (tensor_header, tensor_header, tensor_value, tensor_value, tensor_rolled),
    ".txt": (line, line, cell),
    ".tsv": (line, cell),
}
