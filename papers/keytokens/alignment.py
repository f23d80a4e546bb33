"""Do a model's text embeddings hold the tokens of their texts? "A Text is Worth Several Tokens", sections 3 and 5.

`align` measures models, `align_embeddings` embeddings made elsewhere. `rates.py` says how, and where it differs from
the published script. `compare_key_tokens` shows the tokens and cosines of the same texts under several instructions or
fine-tunings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from papers.keytokens.rates import EmbeddedTexts, ModelAlignment, Stems, decoded_texts, measure
from papers.kit import Cell, Table
from pellucid.keytokens.adjustments import mean_adjustment
from pellucid.keytokens.embedder import KeyTokenEmbedder
from pellucid.keytokens.head import top_tokens
from pellucid.text.inputs import check_texts

if TYPE_CHECKING:
    from pellucid.core.embedder import Vectors


def align_embeddings(given: Mapping[str, EmbeddedTexts], *, k: int = 10) -> list[ModelAlignment]:
    """Return how far embeddings hold the tokens of their texts (Algorithm 1).

    Args:
        given: name -> the same texts with the embeddings of one model.
        k: of Hit@K, and how many of the first tokens are classed.

    Raises:
        InputError: no text has a token, or `k` is out of range.
        MissingExtraError: snowballstemmer or simplemma is not installed.
    """
    stems = Stems()
    return [measure(name, one, k, stems=stems) for name, one in given.items()]


def align(models: Mapping[str, KeyTokenEmbedder], texts: Iterable[str], *, k: int = 10) -> list[ModelAlignment]:
    """Return how far the embeddings of models hold the tokens of texts (Algorithm 1).

    Each model is measured as it is adjusted, and then with the mean of these texts' embeddings as its only adjustment.

    Args:
        models: name -> model.
        texts: at least one with a token; what a model cannot read of a long one is not embedded, but its tokens count.
        k: of Hit@K, and how many of the first tokens are classed.

    Raises:
        InputError: no text has a token, or `k` is out of range.
        MissingExtraError: snowballstemmer or simplemma is not installed.
    """
    read, given = check_texts(texts), dict[str, EmbeddedTexts]()
    for name, model in models.items():
        embeddings = model.embed(read)
        given[name] = embedded_texts(model, read, embeddings=embeddings)
        moved = model.with_adjustment(mean_adjustment(embeddings))
        given[f"{name}, centred"] = embedded_texts(moved, read, embeddings=embeddings)
    return align_embeddings(given, k=k)


def embedded_texts(
    model: KeyTokenEmbedder, texts: Sequence[str], *, embeddings: Vectors | None = None
) -> EmbeddedTexts:
    """Embed texts and put everything together that decoding them needs.

    Args:
        model: its adjustment, and the layers of its head where it has such, are applied.
        texts: what to embed.
        embeddings: what `model.embed(texts)` gave, where it is known already.

    Raises:
        InputError: an item is no string.
    """
    if embeddings is None:
        embeddings = model.embed(list(texts))
    adjusted = model.adjustment.apply(embeddings)
    return decoded_texts(model.backbone, model.head, texts, adjusted)


def alignment_table(found: Sequence[ModelAlignment]) -> Table:
    """Return the rates, in percent."""
    rows: list[list[Cell]] = []
    for m in found:
        rates = (m.hit, m.lar, m.gar, m.weighted_lar, m.literal, m.stem or 0.0, m.unrelated or 0.0)
        rows.append([m.name, *(100 * rate for rate in rates), f"{m.distinct:,}"])
    columns = ["model", "Hit@10", "LAR", "GAR", "weighted LAR", "in the text", "same stem", "unrelated"]
    return Table([*columns, "different tokens"], rows, len(columns) + 1)


class SettingTokens(NamedTuple):
    """What texts say to one model under one instruction.

    Attributes:
        name: of the model, of the instruction, or of both.
        tokens: of each text the first tokens.
        cosines: of every text's embedding with every other's, adjusted as the model is, [texts, texts].
    """

    name: str
    tokens: list[list[str]]
    cosines: list[list[float]]


def compare_key_tokens(
    models: Mapping[str, KeyTokenEmbedder],
    texts: Iterable[str],
    *,
    instructions: Mapping[str, str] | None = None,
    k: int = 5,
) -> list[SettingTokens]:
    """Return what the same texts say to each model, or to each model under each instruction (Tables 4 and 5).

    Args:
        models: name -> model: one for its instructions, or fine-tunings of one backbone.
        texts: a few.
        instructions: name -> instruction, "" for none; None leaves each model's own.
        k: tokens of each text.

    Raises:
        InputError: a model is of another family, or `k` is out of range.
    """
    read, settings = check_texts(texts), dict[str, KeyTokenEmbedder]()
    for name, model in models.items():
        for title, instruction in (instructions or {}).items():
            settings[title if len(models) == 1 else f"{name}, {title}"] = model.with_instruction(instruction)
        if instructions is None:
            settings[name] = model
    found = []
    for name, model in settings.items():
        embeddings = model.embed(read)
        given, adjusted = embedded_texts(model, read, embeddings=embeddings), model.adjustment.apply(embeddings)
        ids = top_tokens(given.embeddings, given.head, k).ids.tolist()
        tokens = [list(map(given.name, row)) for row in ids]
        found.append(SettingTokens(name, tokens, model.similarity(adjusted, adjusted).tolist()))
    return found


def tokens_table(texts: Sequence[str], settings: Sequence[SettingTokens]) -> Table:
    """Return the tokens of texts by settings."""
    rows = [[text, *(" ".join(setting.tokens[n]) for setting in settings)] for n, text in enumerate(texts)]
    return Table(["text", *(setting.name for setting in settings)], rows, 1 + len(settings))


def cosine_lines(settings: Sequence[SettingTokens]) -> str:
    """Return the cosines of texts, one line a setting."""
    lines = []
    for setting in settings:
        pairs = combinations(range(len(setting.cosines)), 2)
        cosines = ", ".join(f"{i + 1} and {j + 1} {setting.cosines[i][j]:.3f}" for i, j in pairs)
        lines.append(f"- {setting.name}: {cosines}")
    return "\n".join(lines)
