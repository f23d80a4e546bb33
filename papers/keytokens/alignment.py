"""Do a model's text embeddings hold the tokens of their texts? "A Text is Worth Several Tokens", sections 3 and 5.

`align` measures one model or several, with and without an instruction; `align_embeddings` does the same for embeddings
made elsewhere. `rates.py` says how, and where it differs from the published script.
`compare_key_tokens` shows the tokens and cosines of the same texts under several instructions or fine-tunings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from papers.keytokens.rates import AlignedText, EmbeddedTexts, ModelAlignment, Stems, decoded_texts, measure
from papers.kit import Table
from pellucid.errors import InputError
from pellucid.explain.views.parts import AnyPart, Fold, Heading, Note, TablePart, counted, numbers, percent
from pellucid.explain.views.report import Report
from pellucid.keytokens.adjustments import mean_adjustment
from pellucid.keytokens.embedder import KeyTokenEmbedder
from pellucid.keytokens.head import top_tokens
from pellucid.keytokens.states import KeyTokenSettings
from pellucid.loading import load
from pellucid.persistence.folder import locate
from pellucid.persistence.store import read_json
from pellucid.text.inputs import check_texts
from pellucid.transformer.attention import is_causal_lm
from pellucid.transformer.backbone import Attention, open_backbone, read_transformer_config

if TYPE_CHECKING:
    from pellucid.core.embedder import Vectors


_MARKS = {"literal": "*", "stem": "~"}


@dataclass(frozen=True, repr=False)
class Alignment(Report):
    """How far the embeddings of one model or several hold the tokens of the same texts.

    Attributes:
        k: of Hit@K, and how many of the first tokens are classed.
        models: the rates of each, in the order given.
    """

    kind: ClassVar[str] = "alignment"
    table: ClassVar[str] = "models"

    k: int
    models: tuple[ModelAlignment, ...]

    def _parts(self) -> Iterator[AnyPart]:
        first = self.models[0]
        yield Heading("Alignment with", counted(first.texts, "text"), f"{first.tokens:.1f} different tokens each")
        if first.blank:
            yield Note(f"{counted(first.blank, 'text')} more without a token left out.")
        yield self._rates()
        yield Note(
            f"Hit@{self.k}: texts with one of their tokens among the first {self.k} of the vocabulary. LAR: share of a "
            "text's different tokens T among its first |T|. GAR: share of all texts' tokens found so in any text. "
            "Weighted: tokens of few texts count more. Special tokens of the texts are not counted."
        )
        yield self._classes()
        if first.examples:
            others = ", ~ has the stem or lemma of a word there; the others are not literally related"
            yield Note(f"* stands in the text{'' if first.stem is None else others}.")
        for number in range(min(len(model.examples) for model in self.models)):
            yield self._example(number)

    def _rates(self) -> TablePart:
        columns = ["model", *numbers(f"Hit@{self.k}", "LAR", "GAR", "weighted LAR"), ("", "bar")]
        rows = (
            (model.name, *map(percent, (model.hit, model.lar, model.gar, model.weighted_lar)), model.weighted_lar)
            for model in self.models
        )
        return TablePart.of("how much of the texts is said", columns, rows)

    def _classes(self) -> TablePart:
        rows = []
        for model in self.models:
            shares = (model.literal, model.stem, model.unrelated)
            written = ("\u2013" if share is None else percent(share) for share in shares)
            rows.append((model.name, *written, f"{model.distinct:,}"))
        columns = ["model", *numbers("in the text", "same stem", "unrelated", "different")]
        return TablePart.of(f"what the first {self.k} tokens are", columns, rows)

    def _example(self, number: int) -> Fold:
        rows = ((model.name, _marked(model.examples[number])) for model in self.models)
        shown = TablePart.of("", ["model", f"first {self.k} tokens (* in the text, ~ a stem of it)"], rows)
        return Fold(self.models[0].examples[number].text, (shown,), is_open=number < 3)


def _marked(aligned: AlignedText) -> str:
    """Return the tokens, marked by how they are related to the text."""
    return " ".join(token.token + _MARKS.get(token.relation, "") for token in aligned.tokens)


def align_embeddings(
    given: Mapping[str, EmbeddedTexts], *, k: int = 10, language: str | None = "en", examples: int = 5
) -> Alignment:
    """Measure how far embeddings hold the tokens of their texts (Algorithm 1).

    Args:
        given: name -> the same texts with the embeddings of one model.
        k: of Hit@K, and how many of the first tokens are classed.
        language: whose stems and lemmas are compared, a key of `LANGUAGES`; None leaves those classes out.
        examples: texts whose tokens are kept, the first ones.

    Raises:
        InputError: the texts differ or none has a token, `k` is out of range, the language is not known, or the parts
            of a model do not fit together.
        MissingExtraError: snowballstemmer or simplemma is not installed.
    """
    if not given:
        raise InputError("no model to look at; give at least one")
    (first, one), *others = given.items()
    for name, other in others:
        if list(other.texts) != list(one.texts):
            raise InputError(f"{name!r:.60} was given other texts than {first!r:.60}; rates are compared on the same")
    stems = None if language is None else Stems(language)
    return Alignment(k, tuple(measure(name, one, k, stems=stems, examples=examples) for name, one in given.items()))


def align(
    models: Mapping[str, KeyTokenEmbedder],
    texts: Iterable[str],
    *,
    instruction: str | None = None,
    centred: bool = False,
    k: int = 10,
    language: str | None = "en",
    examples: int = 5,
) -> Alignment:
    """Measure how far the embeddings of models hold the tokens of texts (Algorithm 1), adjusted as each model is.

    Args:
        models: name -> model.
        texts: at least one with a token; what a model cannot read of a long one is not embedded, but its tokens count.
        instruction: measure each model twice, without an instruction and with this one.
        centred: measure each also with the mean of these texts' embeddings as its only adjustment.
        k: of Hit@K, and how many of the first tokens are classed.
        language: whose stems and lemmas are compared, a key of `LANGUAGES`; None leaves those classes out.
        examples: texts whose tokens are kept, the first ones.

    Raises:
        InputError: a model is of another family, no text has a token, or `k` the language is not valid.
        MissingExtraError: snowballstemmer or simplemma is not installed.
    """
    read = check_texts(texts)
    settings: dict[str, KeyTokenEmbedder] = {}
    for name, model in models.items():
        if not isinstance(model, KeyTokenEmbedder):
            raise InputError(f"{name!r:.80} is {type(model).__name__}; only key-token models are decoded to tokens")
        settings[name] = model if instruction is None else model.with_instruction("")
        if instruction is not None:
            settings[f"{name}, instructed"] = model.with_instruction(instruction)
    given: dict[str, EmbeddedTexts] = {}
    for name, model in settings.items():
        embeddings = model.embed(read)
        given[name] = embedded_texts(model, read, embeddings=embeddings)
        if centred:
            moved = model.with_adjustment(mean_adjustment(embeddings))
            given[f"{name}, centred"] = embedded_texts(moved, read, embeddings=embeddings)
    return align_embeddings(given, k=k, language=language, examples=examples)


def open_decoder(name: str, pooling: Any) -> Any:
    """Open a saved model, or one that decodes the transformer in a folder or on the hub by its own head."""
    settings, folder = KeyTokenSettings(pooling=pooling, top_k=None), locate(name)
    if folder.is_file() or "pellucid" in read_json(folder / "config.json"):
        return load(name)
    attention: Attention = "causal" if is_causal_lm(read_transformer_config(folder)) else "bidirectional"
    return KeyTokenEmbedder(open_backbone(folder, attention=attention), settings)


def embedded_texts(
    model: KeyTokenEmbedder, texts: Sequence[str], *, embeddings: Vectors | None = None, special_tokens: bool = False
) -> EmbeddedTexts:
    """Embed texts and put everything together that decoding them needs.

    Args:
        model: its adjustment, and the layers of its head where it has such, are applied.
        texts: what to embed.
        embeddings: what `model.embed(texts)` gave, where it is known already.
        special_tokens: count in T the special tokens that the tokenizer adds, as the paper's code does.

    Raises:
        InputError: an item is no string.
    """
    if embeddings is None:
        embeddings = model.embed(list(texts))
    adjusted = model.adjustment.apply(embeddings)
    return decoded_texts(model.backbone, model.head, texts, adjusted, special_tokens)


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
