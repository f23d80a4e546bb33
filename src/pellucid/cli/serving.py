"""The commands that serve models: `pellucid serve` over HTTP, `pellucid mcp` to assistants."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from pellucid.cli.input import ModelsOption
from pellucid.cli.output import say
from pellucid.errors import require

commands = typer.Typer()

_Rerank = Annotated[str | None, typer.Option(help="A CrossEncoder for searches that ask for it, folder or hub id.")]


@commands.command()
def serve(
    index: Annotated[list[Path] | None, typer.Option(help="An index to search; repeat for more.")] = None,
    models: ModelsOption = ["static-en"],  # noqa: B006 - typer's way to say it
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on.")] = 8080,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A host name that a proxy uses; repeat for more.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Request timeout (s).")] = 60,
    rerank: _Rerank = None,
    judge: Annotated[bool, typer.Option("--judge", help="Let the page's users judge hits; see Index.judge.")] = False,
) -> None:
    """Serve models and indexes over HTTP, with a page to explore them.

    Routes: /v1/embeddings of OpenAI; /embed and /rerank of text-embeddings-inference;
    /explain, /describe, /dimensions, /search and others, listed in /openapi.json. The
    first model is the default. The server writes nothing,
    but judgements with --judge.

    Only this machine can reach the server unless you set --host; clients must then send
    the token in the environment variable PELLUCID_TOKEN. Without a token, requests must
    ask for localhost, or a name of --allow-host. Needs pellucid[serve].

    \b
    Examples:
      pellucid serve
      pellucid serve -m static-en -m ./my-lexicon --index my-index
      pellucid serve --index my-index --index other-index
      PELLUCID_TOKEN=secret pellucid serve --host 0.0.0.0
    """
    for module in ("fastapi", "uvicorn", "orjson"):  # before anything is opened
        require(module, "serve")
    from pellucid.server import ServerSettings
    from pellucid.server import serve as run

    run(
        ServerSettings(
            models=tuple(models),
            index=tuple(map(str, index or ())),
            hosts=tuple(allow_host or ()),
            token=os.environ.get("PELLUCID_TOKEN") or None,
            timeout=timeout,
            rerank=rerank,
            judge=judge,
        ),
        host=host,
        port=port,
        started=lambda url: say(f"{url} serves {', '.join(models)}; press Ctrl-C to stop", err=True),
    )


@commands.command()
def mcp(
    index: Annotated[Path | None, typer.Option(help="An index to search.")] = None,
    models: ModelsOption = ["static-en"],  # noqa: B006 - typer's way to say it
    rerank: _Rerank = None,
) -> None:
    """Serve models, and an index, to an assistant (Model Context Protocol, over stdio).

    The tools are explain (why two texts are similar), describe (what a text is
    about), cite (which sentences of passages support an answer) and, with --index,
    search (documents with the reasons for their scores), why_not (why a document is not
    found) and compare (what other options find). The first model is the default. Needs
    pellucid[mcp].

    \b
    Examples:
      pellucid mcp
      pellucid mcp -m static-en -m ./my-lexicon --index my-index
    """
    require("mcp", "mcp")
    from pellucid.index.index import Index
    from pellucid.integrations import mcp as server
    from pellucid.loading import load_by_name, open_sentence_transformer

    opened = None if index is None else Index.open(index)
    server.create_server(
        load_by_name(models), opened, rerank and open_sentence_transformer(rerank, "CrossEncoder")
    ).run("stdio")  # until stdin ends; nothing else may be written to stdout
