"""What the command line writes: results to the terminal or to files, JSON lines, facts about models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pellucid.errors import InputError

if TYPE_CHECKING:
    from pellucid.views.shown import Shown

_STEERING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")  # beyond those JSON has no room for


def say(text: str, *, err: bool = False) -> None:
    """Print a line that may hold a user's text, name or file, with control characters made visible."""
    from pellucid.views.parts import visible

    typer.echo(visible(text), err=err)


def json_line(value: Any) -> str:
    """Return `value` as JSON on one line."""
    import json

    return shown_json(json.dumps(value, ensure_ascii=False))


def shown_json(text: str) -> str:
    """Return JSON with the characters that could steer a terminal written as escapes, which says the same."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def show(
    result: Shown,
    json: bool,
    html: Path | None,
    plot: Path | None,
    *,
    plain: bool = False,
    top: int | None = None,
) -> None:
    """Write a result to the files asked for, else to stdout, as JSON or for people.

    Args:
        result: an explanation or a report.
        json: print JSON.
        html: a page to write.
        plot: a picture to write; it has a limit of its own.
        plain: no colour, even in a terminal.
        top: rows of an explanation to show.
    """
    from pellucid.store import writing

    limits = {} if top is None else {"top_k": top}
    if html is not None:
        with writing(html) as aside:
            aside.write_text(result.to_html(**limits), encoding="utf-8")  # type: ignore[arg-type]
    if plot is not None:
        _save_figure(result.plot(), plot)  # type: ignore[attr-defined]
    for path in filter(None, (html, plot)):
        say(f"wrote {path}", err=True)
    if json:
        typer.echo(shown_json(result.to_json()))  # type: ignore[attr-defined]
    elif html is None and plot is None:
        _print(result, plain, limits)


def _print(result: Shown, plain: bool, limits: dict[str, int]) -> None:
    """Print a result, in colour where stdout is a terminal and `plain` is not asked for."""
    from rich.console import Console

    from pellucid.views.terminal import Lines

    console = Console(highlight=False, no_color=plain or None, soft_wrap=False)
    if plain or not console.is_terminal:
        typer.echo(result.to_text(width=console.width, **limits))
    else:
        console.print(Lines(result._parts(**limits)))


def _save_figure(figure: Any, path: Path) -> None:
    from pellucid.store import writing

    kinds = figure.canvas.get_supported_filetypes()
    kind = path.suffix.lower().removeprefix(".")
    if kind not in kinds:
        raise InputError(f"cannot draw {path}; end its name in one of: {', '.join(sorted(kinds))}")
    with writing(path) as aside:
        figure.savefig(aside, format=kind, bbox_inches="tight")


def model_facts(name: str) -> dict[str, Any]:
    """Return what a person chooses a bundled model by: what its config and its card say, its needs and its size."""
    from pellucid.pretrained import locate, read_config

    folder = locate(name)
    config = read_config(folder)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    facts = {key: value for key, value in config.items() if key not in ("format", "files", "sha256")}
    card = folder / "README.md"
    about = {"name": name, **_card(card), "needs": _needs(config)}
    return {**about, **facts, "megabytes": round(size / 1e6, 1), "card": str(card)}


def _needs(config: dict[str, Any]) -> str:
    """Say what a model needs beside its folder and the core of pellucid."""
    from pellucid.pretrained import bundled_models

    source = config.get("encoder") or config.get("backbone")
    if config["family"] == "static" or source in bundled_models():
        return "nothing more"
    fetched = f", and {source} from the Hugging Face hub" if "/" in str(source) else ""
    return f"pellucid[torch]{fetched}"


def _card(path: Path) -> dict[str, str]:
    """Return what a model card's heading says of licence and languages, and the first paragraph below its title."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    licence = re.search(r"^license: *(.+)$", text, re.MULTILINE)
    languages = re.search(r"^language:((?: .+)?(?:\n- .+)*)", text, re.MULTILINE)
    about = re.search(r"^# .*\n\n((?:[^\n#].*\n)+)", text, re.MULTILINE)
    found = {
        "about": about and " ".join(about[1].split()),
        "licence": licence and licence[1].strip(),
        "languages": languages and ", ".join(re.findall(r"[\w-]*\w", languages[1])),
    }
    return {key: value for key, value in found.items() if value}
