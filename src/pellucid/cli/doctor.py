"""What is installed here and works without a network: `pellucid doctor`."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np

import pellucid
from pellucid.errors import PellucidError, install_hint
from pellucid.persistence.folder import bundled_models, verify
from pellucid.process import default_threads


class Examined(NamedTuple):
    """One thing that was looked at.

    Attributes:
        about: what it is, such as "kernels" or "extra torch".
        found: what is there, in words.
        sound: False where pellucid does not work as it should; an extra that is not installed is sound.
    """

    about: str
    found: str
    sound: bool = True


def examine(model: str | None = None) -> Iterator[Examined]:
    """Look at versions, kernels, extras, models and settings, and try the first model; a fault does not end it.

    Args:
        model: another model whose files are checked.
    """
    for subject, look in (
        ("versions", _versions),
        ("kernels", _kernels),
        ("extras", _extras),
        ("models", partial(_models, [model] if model else [])),
        ("self-test", _self_test),
    ):
        try:
            yield from look()
        except Exception as error:  # whatever is wrong here is what was asked for
            kind = "" if isinstance(error, PellucidError) else f"{type(error).__name__}: "
            yield Examined(subject, f"{kind}{error}", sound=False)
    variables = [f"{name}={'...' if 'TOKEN' in name else value}" for name, value in sorted(os.environ.items())
             if name.startswith("PELLUCID_")]  # fmt: skip
    yield Examined("environment", ", ".join(variables) or "no variable PELLUCID_... is set")


def _versions() -> Iterator[Examined]:
    """Yield the versions of what every installation has."""
    yield Examined("pellucid", f"{pellucid.__version__} in {Path(pellucid.__file__).parent}")
    yield Examined("python", f"{platform.python_version()}, {sys.executable}; {platform.platform()}")
    yield Examined("threads", f"{default_threads()} of {os.cpu_count()} cores; PELLUCID_THREADS changes it")
    libraries = ("numpy", "tokenizers", "safetensors", "huggingface-hub", "typer", "rich")
    yield Examined("libraries", ", ".join(f"{name} {metadata.version(name)}" for name in libraries))


def _kernels() -> Iterator[Examined]:
    """Yield which compiled kernels run."""
    from pellucid.native.library import library

    yield Examined("kernels", Path(str(library()._name)).stem.removeprefix("kernels-"))


def _extras() -> Iterator[Examined]:
    """Yield what each extra lacks."""
    needed: dict[str, list[str]] = {}
    for line in metadata.requires("pellucid") or ():
        requirement, extra = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"]([\w-]+)", line)
        if requirement and extra and requirement[0] != "pellucid" and extra[1] not in ("test", "full", "docs", "dev"):
            needed.setdefault(extra[1], []).append(requirement[0])
    installed = {re.sub(r"[-_.]+", "-", str(distribution.name)).lower() for distribution in metadata.distributions()}
    complete = []
    for extra_name, names in sorted(needed.items()):
        absent = [name for name in names if re.sub(r"[-_.]+", "-", name).lower() not in installed]
        if absent:
            yield Examined(f"extra {extra_name}", f"without {', '.join(absent)}: {install_hint(extra_name)}")
        else:
            complete.append(extra_name)
    yield Examined("extras", f"complete: {', '.join(complete) or 'none'}")


def _models(more: list[str]) -> Iterator[Examined]:
    """Check the files of the bundled models and of others."""
    broken, names = [], list(dict.fromkeys([*bundled_models(), *more]))
    for name in names:
        try:
            broken += [f"{name}/{file.name} {file.state}" for file in verify(name) if not file.sound]
        except PellucidError as error:
            broken.append(f"{name}: {error}")
    yield Examined("models", ", ".join(broken or names) or "none is bundled", bool(names) and not broken)


def _self_test() -> Iterator[Examined]:
    """Take a score apart."""
    model = "static-en"
    why = pellucid.load(model).explain("a loan for a house", "mortgage rates")
    difference = abs(float(np.sum(why.contributions)) + why.remainder - why.score)
    adds_up = difference < 1e-6
    rows = f"{model} explains {why.score:.4f} with {len(why.contributions)} rows, which add up to it"
    yield Examined("self-test", rows if adds_up else f"{rows} with an error of {difference}", adds_up)
