r"""What embeddings of real models say in tokens, beside the key-tokens paper: alignment, spectrum, instructions.

    python -m papers.keytokens.tables --data shared/data [--tuned FOLDER ...] --write

The texts are the image captions of STS14, which the small language model at hand knows the words of;
nothing is trained or chosen on them. The paper's numbers are for models of 1.3 to 7 billion parameters on Wikipedia.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from papers.keytokens.alignment import (
    align,
    compare_key_tokens,
    cosine_lines,
    embedded_texts,
    tokens_table,
)
from papers.keytokens.rates import ModelAlignment
from papers.keytokens.spectrum import contributions, sweep, sweep_table, variation, variation_table
from papers.kit import Figure, Table, run_script
from papers.models import minilm_path
from papers.spectra import level, shares
from pellucid import KeyTokenEmbedder, LexiconEmbedder
from pellucid.core.pca import Spectrum, spectrum_of
from pellucid.evaluation.tasks import read_table
from pellucid.keytokens import KeyTokenSettings
from pellucid.keytokens.head import top_tokens
from pellucid.text.tables import read_texts
from pellucid.transformer import open_backbone

GENERAL = 10_000
NEO, MINILM = "GPT-Neo 3M", "all-MiniLM-L6-v2"
TABLE_2 = (
    "Revealed in March 2003, it was released across Game Boy Advance, PlayStation 2, GameCube, Xbox and Microsoft "
    "Windows in November 2003"
)
TABLE_4 = [
    "I really enjoyed the movie last night.",
    "I didn't enjoy the movie last night at all.",
    "I had a great time watching the film this afternoon.",
]
INSTRUCTION = (
    "Classify the emotion expressed in the given Twitter message into one of the six emotions: anger, fear, joy, love, "
    "sadness, and surprise."
)
TABLE_5 = ["I like apples.", "I dislike apples."]


def captions(data: Path) -> list[str]:
    """Return the different image captions of STS14."""
    columns = read_table(data / "sts/STS14/test.tsv", ["sentence1", "sentence2", "subset"])
    return list(dict.fromkeys(chain.from_iterable(row[:2] for row in zip(*columns.values()) if row[2] == "images")))


def embedders(data: Path, tuned: Sequence[Path]) -> dict[str, KeyTokenEmbedder]:
    """Open the models."""
    neo = open_backbone(data / "lm/gpt-neo-3m-stories", attention="causal")
    found = {
        f"{NEO}, mean": KeyTokenEmbedder(neo, KeyTokenSettings(start_token=True)),
        f"{NEO}, last": KeyTokenEmbedder(neo, KeyTokenSettings(pooling="last", start_token=True)),
        f"{NEO}, prompt EOL": KeyTokenEmbedder(neo, KeyTokenSettings(pooling="prompt_eol", start_token=True)),
    }
    head = neo.head.numpy()
    for folder in tuned:
        backbone = open_backbone(folder, attention="causal", head="input")
        model = KeyTokenEmbedder(backbone, KeyTokenSettings(start_token=True), head=head)
        found[f"tuned: {folder.name}"] = model
    weights = minilm_path()
    found[f"{MINILM}, input embeddings"] = KeyTokenEmbedder(open_backbone(weights, head="input"))
    lexicon = LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=weights)
    found["lexicon-minilm's transformer, input embeddings"] = KeyTokenEmbedder(lexicon.backbone)
    return found


def alignment_table(found: Sequence[ModelAlignment]) -> Table:
    """Return the rates, in percent."""
    rows = []
    for m in found:
        rates = (m.hit, m.lar, m.gar, m.weighted_lar, m.literal, m.stem or 0.0, m.unrelated or 0.0)
        rows.append([m.name, *(100 * rate for rate in rates), f"{m.distinct:,}"])
    columns = ["model", "Hit@10", "LAR", "GAR", "weighted LAR", "in the text", "same stem", "unrelated"]
    return Table([*columns, "different tokens"], rows, len(columns) + 1)


def tokens_line(model: KeyTokenEmbedder, text: str, k: int = 10) -> str:
    """Return the first tokens of a text, as the paper writes them."""
    given = embedded_texts(model, [text])
    ids = top_tokens(given.embeddings, given.head, k).ids[0].tolist()
    spelled = [model.head.spelled[n].replace("Ġ", "_").replace("Ċ", "\\n") for n in ids]
    return " ".join(spelled).replace("|", "\\|")


def table_2(models: dict[str, KeyTokenEmbedder], texts: list[str]) -> Table:
    """Return our rows of the paper's Table 2."""
    rows = []
    for name, model in models.items():
        for title, one in ((name, model), (f"{name}, centred", model.fitted(texts, "mean"))):
            rows.append([title, f"`{tokens_line(one, TABLE_2)}`"])
    return Table(["model", "first 10 tokens"], rows, 2)


def general_changes(data: Path, models: dict[str, KeyTokenEmbedder]) -> Iterator[tuple[str, Figure]]:
    """Yield the spectrum and the variation over sentences of all kinds, as many texts as the paper takes."""
    texts = list(islice(read_texts(data / "raw_english/open_licence.txt.xz"), GENERAL))
    base = f"{NEO}, mean"
    rows = {name: model.embed(texts) for name, model in models.items() if name == base or name.startswith("tuned")}
    yield "general-shares", said_shares(spectrum_of(rows[base]))
    changes = [variation(rows[base], other, names=(base, name)) for name, other in rows.items() if name != base]
    yield "general-changes", variation_table(changes)


def said_shares(found: Spectrum) -> str:
    """Say what the first components hold."""
    shown = ", ".join(f"{share:.1%}" for share in shares(found)[:5])
    return f"{shown}; the mean's part along the first: {level(found):+.2f}"


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the tables."""
    texts, models = captions(options.data), embedders(options.data, options.tuned)
    yield "rates", alignment_table(align(models, texts))
    yield "tokens", table_2(models, texts)
    base = models[f"{NEO}, mean"]
    rows = base.embed(texts)
    found, given = spectrum_of(rows), embedded_texts(base, texts, embeddings=rows)
    yield "shares", said_shares(found)
    pairs = [(f"{NEO}, last", f"{NEO}, prompt EOL")]
    pairs += [(f"{NEO}, mean", name) for name in models if name.startswith("tuned")]
    changes = [variation(models[a].embed(texts), models[b].embed(texts), names=(a, b)) for a, b in pairs]
    yield "changes", variation_table(changes)
    yield from general_changes(options.data, models)
    yield "contributions", contributions(found, given, text=2)
    swept = sweep(found, given)
    yield "sweep", sweep_table(swept)
    told = {"no instruction": "", "instruction": INSTRUCTION}
    four = compare_key_tokens({NEO: base.fitted(texts, "mean")}, TABLE_4, instructions=told)
    yield "instructions", tokens_table(TABLE_4, four)
    yield "instruction-cosines", cosine_lines(four)
    centred = {
        name: model.fitted(texts, "mean") for name, model in models.items() if not name.endswith(("EOL", "last"))
    }
    five = compare_key_tokens(centred, TABLE_5)
    yield "likes", tokens_table(TABLE_5, five)
    yield "like-cosines", cosine_lines(five)


if __name__ == "__main__":
    run_script(
        measure,
        {
            "--tuned": {"type": Path, "nargs": "*", "default": [], "help": "tuned versions of the small model"},
        },
        data="sts/, raw_english/ and lm/",
    )
