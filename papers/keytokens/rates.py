"""Alignment of embeddings with the tokens of their texts: Algorithm 1 of "A Text is Worth Several Tokens", its rates.

T is the set of a text's tokens, A^K the K tokens that score highest for its embedding through the backbone's head.
Hit@K is the share of texts with a token of T in A^K (Eq. 6); the local alignment rate the mean share of T found in
A^|T| (Eq. 7); the global one the share of all texts' tokens that are found in any (Eq. 8). The cut-off is |T| of each
text, as the paper defines it; its published script cuts at ten tokens, which keeps the local rate below 10 / |T|.

Special tokens are not counted in T, nor are those of an instruction or a template; the published script counts special
tokens. A^K is taken from the whole vocabulary. The rates reward stop words as much as any other token, hence one rate
more, which is not the paper's: the local rate with each token weighted by ln(texts / texts that hold it).

Words are forms of one another if they share a stem (snowballstemmer) or lemma (simplemma).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, missing_extra
from pellucid.keytokens.head import (
    BLOCK_EMBEDDINGS,
    CHUNK_ROWS,
    HeadRows,
    Rows,
    TokenHead,
    TopTokens,
    checked,
    head_chunks,
    largest_keys,
    tokens_of_keys,
    top_tokens,
)
from pellucid.keytokens.states import before_rows
from pellucid.text.unicode import well_formed
from pellucid.text.words import split_words
from pellucid.transformer.tokenwords import Rank, Token, vocabulary_of

if TYPE_CHECKING:
    from pellucid.core.embedder import Vectors
    from pellucid.transformer.backbone import Backbone

LANGUAGES = {
    "da": "danish", "de": "german", "en": "english", "es": "spanish", "fi": "finnish", "fr": "french",
    "hu": "hungarian", "it": "italian", "nl": "dutch", "nb": "norwegian", "pt": "portuguese", "ro": "romanian",
    "ru": "russian", "sv": "swedish", "tr": "turkish",
}  # fmt: skip
"""Language code of simplemma -> name of snowballstemmer's algorithm."""


class Stems:
    """The forms under which a word is compared with others, each word looked up once."""

    def __init__(self, language: str = "en") -> None:
        """Open the stemmer.

        Args:
            language: one of `LANGUAGES`.

        Raises:
            InputError: it is none of them.
            MissingExtraError: snowballstemmer or simplemma is not installed.
        """
        if language not in LANGUAGES:
            raise InputError(f"language is {language!r:.40}; it must be one of {', '.join(LANGUAGES)}")
        try:
            import simplemma
            import snowballstemmer
        except ImportError as error:
            raise missing_extra(error.name or "simplemma", "align") from error
        self.language = language
        self._lemmatize: Any = simplemma.lemmatize
        self._stemmer: Any = snowballstemmer.stemmer(LANGUAGES[language])
        self._known: dict[str, frozenset[tuple[str, str]]] = {}

    def forms(self, word: str) -> frozenset[tuple[str, str]]:
        """Return a word's stem and lemma, in lower case; nothing for what holds no letter and no digit.

        Two words are of one stem or lemma where their forms have an element in common.
        """
        if word not in self._known:
            self._known[word] = self._forms(word)
        return self._known[word]

    def _forms(self, word: str) -> frozenset[tuple[str, str]]:
        lower = word.strip().casefold()
        if not any(map(str.isalnum, lower)):
            return frozenset()
        lemma = self._lemmatize(lower, lang=self.language)
        return frozenset({("stem", self._stemmer.stemWord(lower)), ("lemma", lemma.casefold())})


Relation = Literal["literal", "stem", "unrelated"]

_TEXTS = 512  # ranked at a time


@dataclass(frozen=True)
class EmbeddedTexts:
    """Texts with their embeddings by one model, and what the embeddings are decoded with.

    Attributes:
        texts: n strings.
        embeddings: float32 [n, d].
        tokens: for each text the ids of its own tokens, special ones left out.
        head: [V, d], the rows of the backbone's head; an array or a tensor of torch.
        vocabulary: how each of the V tokens reads (`tokenwords.readable`).
    """

    texts: Sequence[str]
    embeddings: npt.ArrayLike
    tokens: Sequence[Collection[int]]
    head: Any
    vocabulary: Sequence[Token]

    def __post_init__(self) -> None:
        """Check that the parts fit together.

        Raises:
            InputError: they do not.
        """
        counts = (len(self.texts), np.shape(self.embeddings)[0], len(self.tokens))
        if len(set(counts)) > 1:
            raise InputError(
                "{} texts, {} embeddings and {} sets of tokens; as many of each are needed".format(*counts)
            )
        rows = self.head.shape[0]
        if len(self.vocabulary) > rows:
            raise InputError(
                f"the tokenizer has {len(self.vocabulary):,} tokens and the head {rows:,} rows; they are of different "
                "models"
            )
        largest = max((max(own, default=-1) for own in self.tokens), default=-1)
        if largest >= rows:
            raise InputError(f"a text holds token {largest}, and the head has {rows:,} rows; they are of two models")


class AlignedToken(NamedTuple):
    """A token as it reads, its score for the embedding, and how it is related to the text; "" where not looked at."""

    token: str
    score: float
    relation: str


class AlignedText(NamedTuple):
    """A text and the tokens that its embedding is aligned with, best first."""

    text: str
    tokens: tuple[AlignedToken, ...]


class ModelAlignment(NamedTuple):
    """How far the embeddings of one model are aligned with the tokens of their texts.

    Attributes:
        name: of the model.
        texts: how many were looked at.
        blank: how many more have no token.
        tokens: the mean number of different tokens in a text, |T|.
        hit: Hit@K.
        lar: the local alignment rate.
        gar: the global alignment rate.
        weighted_lar: the local rate with each token weighted by ln(texts / texts that hold it).
        lar_error: the standard error of `lar` over the texts; 0 for one text.
        literal: share of the first K tokens that are in the text.
        stem: share that are not, but have the stem or lemma of a word or token of the text; None if not looked at.
        unrelated: the rest; None if not looked at.
        distinct: how many different tokens are among the first K of any text.
        examples: of some texts, the first K tokens.
    """

    name: str
    texts: int
    blank: int
    tokens: float
    hit: float
    lar: float
    gar: float
    weighted_lar: float
    lar_error: float
    literal: float
    stem: float | None
    unrelated: float | None
    distinct: int
    examples: tuple[AlignedText, ...]


def aligned_texts(given: EmbeddedTexts, k: int, *, stems: Stems | None = None) -> Iterable[AlignedText]:
    """Yield each text with the first `k` tokens of its embedding, classed where `stems` is given."""
    rows = np.asarray(given.embeddings, np.float32)
    related = Relations(given.vocabulary, stems)
    for start in range(0, len(rows), _TEXTS):
        ids, scores = top_tokens(rows[start : start + _TEXTS], given.head, k)
        for n, (found, values) in enumerate(zip(ids.tolist(), scores.tolist()), start):
            yield related.aligned(given.texts[n], given.tokens[n], found, values)


def measure(name: str, given: EmbeddedTexts, k: int = 10, *, stems: Stems | None, examples: int = 5) -> ModelAlignment:
    """Return the rates of one model (Algorithm 1; Eq. 6 to 8).

    Args:
        name: of the model.
        given: its embeddings.
        k: of Hit@K and of the classes.
        stems: to class tokens by stem and lemma; None leaves the classes out.
        examples: texts shown, the first ones.

    Raises:
        InputError: no text has a token, `k` is out of range, or an embedding holds NaN or infinity.
    """

    def rank(rows: Rows, depth: int) -> list[TopTokens]:
        return [top_tokens(rows, given.head, depth)]

    return _measured([name], given, k, rank, stems, examples)[0]


def measure_shifted(
    amounts: Mapping[str, float],
    given: EmbeddedTexts,
    direction: npt.ArrayLike,
    k: int = 10,
    *,
    stems: Stems | None,
    examples: int = 5,
) -> list[ModelAlignment]:
    """Return the rates of h + amount x direction for each named amount, as `measure`, in one pass over the head."""

    def rank(rows: Rows, depth: int) -> list[TopTokens]:
        return shifted_top_tokens(rows, given.head, depth, direction, list(amounts.values()))

    return _measured(list(amounts), given, k, rank, stems, examples)


def _measured(
    names: Sequence[str],
    given: EmbeddedTexts,
    k: int,
    rank: Callable[[Rows, int], list[TopTokens]],
    stems: Stems | None,
    examples: int,
) -> list[ModelAlignment]:
    """Return the rates of as many rankings as there are names."""
    own = [set(tokens) for tokens in given.tokens]
    kept = [n for n, tokens in enumerate(own) if tokens]
    if not kept:
        raise InputError(f"none of the {len(own)} texts has a token; there is nothing to align with")
    rows, related = np.asarray(given.embeddings, np.float32), Relations(given.vocabulary, stems)
    tallies = [_Tally([own[n] for n in kept], k, examples) for _ in names]
    for start in range(0, len(kept), _TEXTS):
        block = kept[start : start + _TEXTS]
        depth = max(k, *(len(own[n]) for n in block))  # of A: each text is cut at its own |T|
        for tally, (ids, scores) in zip(tallies, rank(rows[block], depth)):
            for n, found, values in zip(block, ids.tolist(), scores[:, :k].tolist()):
                tally.add(own[n], found, related.aligned(given.texts[n], own[n], found[:k], values))
    return [tally.result(name, len(own) - len(kept), stems is not None) for name, tally in zip(names, tallies)]


class _Tally:
    """The sums behind the rates."""

    def __init__(self, own: Sequence[set[int]], k: int, examples: int) -> None:
        """Take the token sets of all texts, none empty, and how many texts are kept as examples."""
        self._k, self._texts, self._most = k, len(own), examples
        self._sizes = sum(map(len, own))
        held = Counter(token for tokens in own for token in tokens)
        self._weights = {token: float(np.log(len(own) / count)) for token, count in held.items()}
        self._hits, self._weighted, self._weighable = 0, 0.0, 0
        self._local: list[float] = []
        self._matched: set[int] = set()
        self._seen: set[int] = set()
        self._classes: Counter[str] = Counter()
        self._examples: list[AlignedText] = []

    def add(self, own: set[int], found: Sequence[int], aligned: AlignedText) -> None:
        """Take in a text: its tokens, the tokens found, best first, and how the first k read."""
        matched = own.intersection(found[: len(own)])
        self._hits += not own.isdisjoint(found[: self._k])
        self._local.append(len(matched) / len(own))
        self._matched |= matched
        self._seen.update(found[: self._k])
        self._classes.update(token.relation for token in aligned.tokens)
        if len(self._examples) < self._most:
            self._examples.append(aligned)
        whole = sum(self._weights[token] for token in own)
        if whole > 0:  # else every token is in all texts
            self._weighable += 1
            self._weighted += sum(self._weights[token] for token in matched) / whole

    def result(self, name: str, blank: int, classed: bool) -> ModelAlignment:
        """Return the rates."""
        shares = {relation: count / (self._texts * self._k) for relation, count in self._classes.items()}
        return ModelAlignment(
            name,
            self._texts,
            blank,
            self._sizes / self._texts,
            self._hits / self._texts,
            float(np.mean(self._local)),
            len(self._matched) / len(self._weights),
            self._weighted / max(self._weighable, 1),
            float(np.std(self._local) / np.sqrt(max(self._texts - 1, 1))),
            shares.get("literal", 0.0),
            shares.get("stem", 0.0) if classed else None,
            shares.get("unrelated", 0.0) if classed else None,
            len(self._seen),
            tuple(self._examples),
        )


class Relations:
    """How tokens are related to a text, each token's stem looked up once."""

    def __init__(self, vocabulary: Sequence[Token], stems: Stems | None) -> None:
        """Take how the tokens read; without `stems` only literal tokens are recognised."""
        self._vocabulary, self._stems = vocabulary, stems
        self._known: dict[int, frozenset[tuple[str, str]]] = {}

    def name(self, token: int) -> str:
        """Return how a token reads; its number where it has no text."""
        text = self._vocabulary[token].text if token < len(self._vocabulary) else ""
        return text or f"<{token}>"

    def aligned(self, text: str, own: Collection[int], found: Sequence[int], scores: Sequence[float]) -> AlignedText:
        """Return a text with the tokens found."""
        relations = self.relations(text, own, found)
        return AlignedText(text, tuple(map(AlignedToken, map(self.name, found), scores, relations)))

    def relations(self, text: str, own: Collection[int], found: Sequence[int]) -> list[str]:
        """Return of each token found "literal", "stem" or "unrelated"; "" for the last two where stems are unknown.

        A token is compared with the tokens of the text, as in the paper, and with its words, which a tokenizer may
        have cut in two.
        """
        literal = set(own)
        if self._stems is None:
            return ["literal" if token in literal else "" for token in found]
        forms = set[tuple[str, str]]().union(*map(self._forms, literal))
        forms.update(form for word in split_words(text) for form in self._stems.forms(word.text))
        return [self._relation(token, literal, forms) for token in found]

    def _relation(self, token: int, literal: set[int], forms: set[tuple[str, str]]) -> Relation:
        if token in literal:
            return "literal"
        return "unrelated" if forms.isdisjoint(self._forms(token)) else "stem"

    def _forms(self, token: int) -> frozenset[tuple[str, str]]:
        """Return the stem and lemma of a token; nothing for signs and for tokens without a text."""
        if token not in self._known:
            piece = self._vocabulary[token] if token < len(self._vocabulary) else Token("", Rank.NONE)
            plain = piece.rank in (Rank.SIGN, Rank.NONE) or self._stems is None
            self._known[token] = frozenset() if plain else self._stems.forms(piece.text.lstrip("\u2026"))  # type: ignore[union-attr]
        return self._known[token]


def decoded_texts(backbone: Backbone, head: TokenHead, texts: Sequence[str], embeddings: Vectors) -> EmbeddedTexts:
    """Put everything together that decoding the embeddings of texts needs.

    Args:
        backbone: what the embeddings are from; the layers of its head, where it has such, are applied.
        head: the rows to decode with.
        texts: n strings.
        embeddings: float32 [n, d], adjusted.
    """
    rows, weight = decodable(backbone, head, embeddings)
    return EmbeddedTexts(texts, rows, literal_tokens(backbone.tokenizer, texts), weight, head.tokens)


def shifted_top_tokens(
    embeddings: npt.ArrayLike,
    head: Any,
    k: int,
    direction: npt.ArrayLike,
    amounts: Sequence[float],
    *,
    chunk: int = CHUNK_ROWS,
) -> list[TopTokens]:
    """Return the top tokens of h + amount x direction for each amount, with one pass over the head for all of them.

    The scores are E h + amount (E direction), which is E (h + amount direction) up to rounding.

    Args:
        embeddings: [n, d].
        head: [V, d], as in `top_tokens`.
        k: from 1 to V.
        direction: [d].
        amounts: how much of the direction is added; at least one.
        chunk: rows of the head at a time.

    Raises:
        InputError: as in `top_tokens`, or there is no amount.
    """
    if not len(amounts):
        raise InputError("no amount to shift by; give at least one, such as [0.0]")
    rows, along = checked(embeddings, head, k), np.asarray(direction, np.float32)
    if along.shape != rows.shape[1:]:
        raise InputError(f"the direction has shape {along.shape}; the embeddings are {rows.shape[1]} wide")
    found: list[list[TopTokens]] = [[] for _ in amounts]
    for first in range(0, max(1, len(rows)), BLOCK_EMBEDDINGS):
        block = rows[first : first + BLOCK_EMBEDDINGS]
        kept = [np.zeros((len(block), 0), np.int64) for _ in amounts]
        for start, part in head_chunks(head, chunk):
            scores, moves = block @ part.T, part @ along
            for n, amount in enumerate(np.asarray(amounts, np.float32)):
                kept[n] = largest_keys(kept[n], scores + amount * moves, start, k)
        for tops, keys in zip(found, kept, strict=True):
            tops.append(tokens_of_keys(keys))
    return [TopTokens(*map(np.concatenate, zip(*tops))) for tops in found]


def decodable(backbone: Backbone, head: TokenHead, embeddings: Vectors) -> tuple[Vectors, Any]:
    """Return embeddings [n, d] behind the head's own layers, and the rows to multiply them with; a bias as a column."""
    rows = before_rows(backbone, embeddings)
    if head.bias is None:
        return rows, head.weight
    return np.column_stack([rows, np.ones(len(rows), np.float32)]), HeadRows(head.weight, head.bias)


def literal_tokens(tokenizer: Any, texts: Sequence[str]) -> list[frozenset[int]]:
    """Return the set T of each text's tokens, special ones left out, of the whole text however long it is.

    Args:
        tokenizer: a fast one of transformers. A special token's string in a text is read as text.
        texts: what to read.
    """
    from tokenizers import Tokenizer

    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = True
    special = vocabulary_of(tokenizer)[1]
    encoded = copy.encode_batch([well_formed(text) for text in texts], add_special_tokens=False)
    return [frozenset(one.ids) - special for one in encoded]
