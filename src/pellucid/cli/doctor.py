"""What is installed here and works without a network: `pellucid doctor`."""

from __future__ import annotations

import os
import platform
import re
import sys
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np


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


def examine() -> Iterator[Examined]:
    """Look at versions, kernels, extras, models and settings, and try the first model."""
    import pellucid
    from pellucid.native.library import native
    from pellucid.static.bulk import default_threads

    yield Examined("pellucid", f"{pellucid.__version__} in {Path(pellucid.__file__).parent}")
    yield Examined("python", f"{platform.python_version()}, {sys.executable}; {platform.platform()}")
    libraries = ("numpy", "tokenizers", "safetensors", "huggingface-hub", "typer", "rich")
    yield Examined("libraries", ", ".join(f"{name} {metadata.version(name)}" for name in libraries))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernels = native()
    said = "; ".join(str(warning.message) for warning in caught)
    level = "" if kernels is None else Path(str(kernels._name)).stem.removeprefix("kernels-")
    yield Examined("kernels", level or said or "not loaded: slow Python does their work", kernels is not None)
    yield Examined("threads", f"{default_threads()} of {os.cpu_count()} cores; PELLUCID_THREADS changes it")
    yield from _extras()
    yield from _models()
    yield Examined("hub", _hub())
    given = [f"{name}={'...' if 'TOKEN' in name else value}" for name, value in sorted(os.environ.items())
             if name.startswith("PELLUCID_")]  # fmt: skip
    yield Examined("environment", ", ".join(given) or "no variable PELLUCID_... is set")


def _extras() -> Iterator[Examined]:
    """Yield what each extra lacks."""
    needed: dict[str, list[str]] = {}
    for line in metadata.requires("pellucid") or ():
        found, extra = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"]([\w-]+)", line)
        if found and extra and found[0] != "pellucid" and extra[1] not in ("test", "full", "docs", "dev"):
            needed.setdefault(extra[1], []).append(found[0])
    installed = {re.sub(r"[-_.]+", "-", str(one.name)).lower() for one in metadata.distributions()}
    complete = []
    for extra_name, names in sorted(needed.items()):
        absent = [name for name in names if re.sub(r"[-_.]+", "-", name).lower() not in installed]
        if absent:
            lacking = f'without {", ".join(absent)}: pip install "pellucid[{extra_name}]"'
            yield Examined(f"extra {extra_name}", lacking)
        else:
            complete.append(extra_name)
    yield Examined("extras", f"complete: {', '.join(complete) or 'none'}")


def _models() -> Iterator[Examined]:
    """Check the files of the bundled models, and what the first of them says."""
    import pellucid
    from pellucid.errors import PellucidError
    from pellucid.folder import bundled_models, verify

    names = bundled_models()
    broken = [f"{name}/{file.name} {file.state}" for name in names for file in verify(name) if not file.sound]
    yield Examined("models", ", ".join(broken or names) or "none is bundled", bool(names) and not broken)
    if not names:
        return
    model = "static-en" if "static-en" in names else names[0]
    try:
        why = pellucid.load(model).explain("a loan for a house", "mortgage rates")
    except PellucidError as error:
        yield Examined("self-test", f"{model} does not explain: {error}", sound=False)
        return
    difference = abs(float(np.sum(why.contributions)) + why.remainder - why.score)
    held = difference < 1e-6
    told = f"{model} explains {why.score:.4f} with {len(why.contributions)} rows"
    yield Examined("self-test", f"{told}, which add up to it{'' if held else f' but for {difference}'}", held)


def _hub() -> str:
    """Return which models of the hub can be opened without a network."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE)
    kept = sorted(path.name.removeprefix("models--").replace("--", "/") for path in folder.glob("models--*"))
    shown = ", ".join(kept[:8]) + (f" and {len(kept) - 8} more" if len(kept) > 8 else "")
    return f"{'never asked (HF_HUB_OFFLINE)' if constants.HF_HUB_OFFLINE else 'asked where a name needs it'}; " + (
        f"kept in {folder}: {shown}" if kept else f"nothing is kept in {folder}"
    )
