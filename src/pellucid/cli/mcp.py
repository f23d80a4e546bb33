"""The command that serves models to assistants: `pellucid mcp`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pellucid.errors import require

commands = typer.Typer()


@commands.command()
def mcp(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL...", help="Bundled names, folders or hub ids.")
    ] = None,
    index: Annotated[Path | None, typer.Option(help="An index to search.")] = None,
) -> None:
    """Serve models, and an index, to an assistant (Model Context Protocol, over stdio).

    The tools are explain (why two texts are similar), describe (what a text is about)
    and, with --index, search (documents with the reasons for their scores). The first
    model, static-en without any, answers calls that name none. Needs pellucid[mcp].

    \b
    Examples:
      pellucid mcp
      pellucid mcp static-en ./my-lexicon --index my-index
    """
    require("mcp", "mcp")
    from pellucid.integrations import mcp as server
    from pellucid.integrations.plain import open_index, open_model

    opened = {name: open_model(name) for name in models or ["static-en"]}
    server.run(opened, None if index is None else open_index(index))
