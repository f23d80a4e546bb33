"""The papers' questions to a model, from the command line: `python -m papers COMMAND`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pellucid.cli.app import Commands
from pellucid.cli.input import HtmlOption, JsonOption, open_model, read
from pellucid.cli.output import show
from pellucid.errors import InputError

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="What the four papers ask of a model.",
)

_Static = Annotated[str, typer.Argument(help="A static model: a bundled name, a folder, or a hub id.")]
_Texts = Annotated[str, typer.Argument(help="A .txt (one text a line), .jsonl or .parquet; - is stdin.")]
_MoreTexts = Annotated[str | None, typer.Argument(help="A .txt (one text a line), .jsonl or .parquet; - is stdin.")]
_Words = Annotated[int, typer.Option(min=3, help="Look at so many of the most frequent words.")]


@app.command()
def align(
    models: Annotated[list[str], typer.Argument(help="Key-token models, or transformers: folders or hub ids.")],
    texts: _Texts,
    instruction: Annotated[str | None, typer.Option(help="Look at each model also with this instruction.")] = None,
    centred: Annotated[bool, typer.Option("--centred", help="Look at each also less its mean embedding.")] = False,
    pooling: Annotated[str, typer.Option(help="Of transformers: mean, weighted_mean, last or prompt_eol.")] = "mean",
    top_k: Annotated[
        int, typer.Option("--top-k", "-k", min=1, help="How many of the first tokens are looked at.")
    ] = 10,
    language: Annotated[str, typer.Option(help="Whose stems and lemmas are compared; none leaves them out.")] = "en",
    json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Show how far the embeddings of models hold the tokens of their texts, and which (key tokens, section 3)."""
    from papers.keytokens.alignment import align as make
    from papers.keytokens.alignment import open_decoder

    opened = {name: open_decoder(name, pooling) for name in dict.fromkeys(models)}
    stems = None if language == "none" else language
    found = make(opened, list(read(texts)), instruction=instruction, centred=centred, k=top_k, language=stems)
    show(found, json, html)


@app.command()
def components(
    model: _Static,
    texts: _MoreTexts = None,
    component: Annotated[list[int] | None, typer.Option(help="To show; repeat for more. [default: 1 2 3]")] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="Words of each end of a component.")] = 5,
    words: _Words = 10_000,
    json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Show the words at the ends of principal components; with a file of texts, those of its sentence means (SWE)."""
    from papers.swe.components import principal_components

    given = read(texts) if texts else None
    show(principal_components(_model(model), given, components=component, top_k=top_k, words=words), json, html)


@app.command()
def ranks(
    model: _Static, texts: _MoreTexts = None, words: _Words = 10_000, json: JsonOption = False, html: HtmlOption = None
) -> None:
    """Show the length of a static model's vectors by frequency; with a file of texts, by frequency in that (SWE)."""
    from papers.swe.norms import norms_by_rank

    show(norms_by_rank(_model(model), read(texts) if texts else None, words=words), json, html)


@app.command()
def tags(
    model: _Static,
    files: Annotated[list[str], typer.Argument(help='Tagged: "word/TAG" or "word TAG" lines, tabs, CoNLL-U.')],
    words: _Words = 10_000,
    tagset: Annotated[str, typer.Option(help="brown or penn brings tags to the paper's classes; as-is.")] = "as-is",
    json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Show the length of a static model's vectors by part of speech (SWE)."""
    from papers.swe.norms import norms_by_tag, read_tagged

    show(norms_by_tag(_model(model), read_tagged(*files), words=words, tagset=tagset), json, html)


@app.command()
def languages(
    model: _Static,
    files: Annotated[list[str], typer.Argument(help="NAME=FILE for each language, a word or sentence a line.")],
    drop: Annotated[int, typer.Option(min=1, help="First components left out.")] = 7,
    sample: Annotated[int, typer.Option(min=3, help="Items of each language.")] = 1_000,
    json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Show how far languages are apart, with and without the first components (SWE)."""
    from papers.swe.separation import language_separation

    given = {}
    for argument in files:
        name, equals, file = argument.partition("=")
        if not equals or not name or not file:
            raise InputError(f"{argument!r:.60} is not NAME=FILE, such as de=german.txt")
        if name in given:
            raise InputError("a language is given twice; its words go into one file")
        given[name] = read(file)
    show(language_separation(_model(model), given, drop=drop, sample=sample), json, html)


def _model(name: str) -> Any:
    return open_model(name)  # another family is refused where it is used


if __name__ == "__main__":
    app(prog_name="python -m papers")
