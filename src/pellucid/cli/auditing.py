"""The command that tests a model for bias."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pellucid.cli.input import FILE_DEFAULTS, FileOptions, HtmlOption, JsonOption, corpus_file, open_model, reads_texts
from pellucid.cli.output import say, show

commands = typer.Typer()

_Model = Annotated[str, typer.Argument(help="A bundled name, a folder, or a Hugging Face hub id.")]
_PairsOption = Annotated[
    str, typer.Option(help="gender, names, nationality; or a table whose first two columns hold a word of each group.")
]
_TextsOption = Annotated[Path | None, typer.Option(help="Your texts: those with words of the pairs are swapped.")]
_TargetsOption = Annotated[str, typer.Option(help="occupations, adjectives; or a file with the texts to compare with.")]
_StsOption = Annotated[Path | None, typer.Option(help="Pairs with people's scores, to see what a removal costs.")]


@commands.command()
@reads_texts
def bias(
    model: _Model = "static-en",
    pairs: _PairsOption = "gender",
    texts: _TextsOption = None,
    targets: _TargetsOption = "occupations",
    proxies: Annotated[
        str | None, typer.Option(help="Other pairs of the same attribute. [default: names, for gender]")
    ] = None,
    sts: _StsOption = None,
    directions: Annotated[int, typer.Option(min=1, help="How many directions are removed.")] = 1,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the model without these directions to a folder.")
    ] = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Test whether a model puts occupations or your texts nearer to one group, before and after a removal.

    Swaps words such as he and she in templates and in your texts. No result proves that a
    model is fair, or that anybody was discriminated against.

    \b
    Examples:
      pellucid bias static-en --pairs gender
      pellucid bias my-encoder --pairs my-pairs.csv --texts letters.csv --field body
      pellucid bias static-en --pairs names --targets adjectives --html bias.html
      pellucid bias static-en --sts sts.tsv -o static-en-without-gender
    """
    from pellucid.analysis.bias_audit import bias as measure

    opened = open_model(model)
    corpus = None if texts is None else corpus_file(texts, file_options)
    result = measure(opened, pairs, texts=corpus, targets=targets, proxies=proxies, sts=sts, n_directions=directions)
    if output is not None:
        result.without_direction(opened).save_pretrained(output)
        say(f"wrote {output}: {directions} of the directions of {result.pairs} removed", err=True)
    show(result, json, html)
