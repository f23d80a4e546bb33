"""One way to damage what is on disk: each file of a folder, one after the other, is lost, cut, replaced or flipped."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.persistence.store import read_tensors, write_tensors

PLACES: dict[str, Callable[[Path, bytes], object]] = {
    "gone": lambda path, content: None,
    "a pipe": lambda path, content: os.mkfifo(path),
    "an endless device": lambda path, content: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path, content: path.symlink_to(path.name),
    "a link to nothing": lambda path, content: path.symlink_to("gone"),
    "a link to its folder": lambda path, content: path.symlink_to("."),
    "a folder": lambda path, content: path.mkdir(),
}
"""What stands in the place of a file: nothing that could be read."""

LOSSES = PLACES | {
    "empty": lambda path, content: path.write_bytes(b""),
    "one byte": lambda path, content: path.write_bytes(content[:1]),
    "half": lambda path, content: path.write_bytes(content[: len(content) // 2]),
    "two bytes less": lambda path, content: path.write_bytes(content[:-2]),
    "longer": lambda path, content: path.write_bytes(content + b"\0"),
    "another file": lambda path, content: path.write_bytes(path.with_name("config.json").read_bytes()[:-2])
    if path.with_name("config.json").is_file() else path.write_bytes(b"{}"),
    "noise": lambda path, content: path.write_bytes(flipped(content, len(content) // 2, 0xFF)),
}  # fmt: skip


def flipped(content: bytes, place: int, bits: int = 1) -> bytes:
    """Return content with some bits of one byte flipped."""
    return content[:place] + bytes([content[place] ^ bits]) + content[place + 1 :]


def flips(count: int, seed: int = 0) -> dict[str, Callable[[Path, bytes], object]]:
    """Return ways to flip one bit: in the first and the last bytes, and in `count` regions of equal size between."""
    chance = np.random.default_rng(seed)
    shares, bits = (np.arange(count) + chance.random(count)) / count, 1 << chance.integers(0, 8, count)
    ways = {
        f"bit {bit} at {share:.3f}": (lambda size, share=share: int(share * size), int(bit))
        for share, bit in zip(shares, bits)
    }
    ways |= {f"byte {place}": (lambda size, place=place: place % size, 1) for place in (0, 7, 8, 23, -24, -2)}
    return {
        how: lambda path, content, where=where, bit=bit: path.write_bytes(flipped(content, where(len(content)), bit))
        for how, (where, bit) in ways.items()
    }


def files_of(folder: Path, *, but: Iterable[str] = ("README.md", ".lock")) -> list[Path]:
    """Return the files of a folder, without those of some names."""
    return [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name not in but]


def damages(
    folder: Path, ways: dict[str, Callable[[Path, bytes], object]] = LOSSES, files: Iterable[Path] | None = None
) -> Iterator[tuple[Path, str]]:
    """Damage each file in each way; yield its path and the way, and then mend it."""
    for file in files_of(folder) if files is None else files:
        content = file.read_bytes()
        for how, damage in ways.items():
            file.unlink()
            damage(file, content)
            yield file, how
            file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink(missing_ok=True)
            file.write_bytes(content)


def set_entry(path: Path, where: tuple[str | int, ...], value: Any) -> None:
    """Set the entry of a JSON file that `where` leads to, all of it if to nothing; merge what is an object."""
    whole: Any = {"": json.loads(path.read_text(encoding="utf-8"))}
    inner, (*keys, key) = whole, ("", *where)
    for outer in keys:
        inner = inner[outer]
    owner = inner[key] if isinstance(inner, list) else inner.get(key)
    inner[key] = {**owner, **value} if isinstance(owner, dict) and isinstance(value, dict) and value else value
    path.write_text(json.dumps(whole[""]))


def set_tensors(path: Path, name: str, value: Any) -> None:
    """Put an array, or what a function makes of the one that is there, into a file of tensors; None takes it out.

    A value that is a dict has several, by name.
    """
    tensors = {own: np.array(array) for own, array in read_tensors(path)[0].items()}
    for own, new in value.items() if isinstance(value, dict) else ((name, value),):
        tensors[own] = new(tensors[own]) if callable(new) else new
    write_tensors(path, {own: tensor for own, tensor in tensors.items() if tensor is not None})


def put(place: Any, value: Any) -> Callable[[Any], Any]:
    """Return a function that puts numbers into an array, for `set_tensors`."""

    def changed(array: Any) -> Any:
        array[place] = value
        return array

    return changed
