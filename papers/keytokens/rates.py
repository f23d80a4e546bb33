"""Alignment of embeddings with the tokens of their texts: Algorithm 1 of "A Text is Worth Several Tokens", its rates.

T is the set of a text's tokens, A^K the K tokens that score highest for its embedding through the backbone's head.
Hit@K is the share of texts with a token of T in A^K (Eq. 6); the local alignment rate the mean share of T found in
A^|T| (Eq. 7); the global one the share of all texts' tokens that are found in any (Eq. 8). The cut-off is |T| of each
text, as the paper defines it; its published script cuts at ten tokens, which keeps the local rate below 10 / |T|.

Special tokens are not counted in T, nor are those of an instruction or a template; the published script counts special
tokens, as `special_tokens=True` does. A^K is taken from the whole vocabulary. The rates reward stop words as much as
any other token, hence one rate more, which is not the paper's: the local rate with each token weighted by
ln(texts / texts that hold it).

Words are forms of one another if they share a stem (snowballstemmer) or lemma (simplemma).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, importing
from pellucid.keytokens.head import TokenHead, top_tokens
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
        with importing("align"):
            import simplemma
            import snowballstemmer
        self.language = language
        self._lemmatize: Any = simplemma.lemmatize
        self._stemmer: Any = snowballstemmer.stemmer(LANGUAGES[language])
        self._known: dict[str, frozenset[tuple[str, str]]] = {}

    def forms(self, word: str) -> frozenset[tuple[str, str]]:
        """Return a word's stem and lemma, in lower case; nothing for what holds no letter and no digit.

        Two words are of one stem or lemma where their forms have an element in common.
        """
        if word not in self._known:
            lower = word.strip().casefold()
            forms = (
                ("stem", self._stemmer.stemWord(lower)),
                ("lemma", self._lemmatize(lower, lang=self.language).casefold()),
            )
            self._known[word] = frozenset(forms if any(map(str.isalnum, lower)) else ())
        return self._known[word]


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

    def name(self, token: int) -> str:
        """Return how a token reads; its number where it has no text."""
        text = self.vocabulary[token].text if token < len(self.vocabulary) else ""
        return text or f"<{token}>"

    def relations(self, number: int, found: Sequence[int], stems: Stems | None) -> list[str]:
        """Return of each token found for a text "literal", "stem" or "unrelated"; without `stems` "literal" or "".

        A token is compared with the tokens of the text, as in the paper, and with its words, which a tokenizer may
        have cut in two.
        """
        own = set(self.tokens[number])
        if stems is None:
            return ["literal" if token in own else "" for token in found]

        def forms(token: int) -> frozenset[tuple[str, str]]:
            piece = self.vocabulary[token] if token < len(self.vocabulary) else Token("", Rank.NONE)
            return frozenset() if piece.rank in (Rank.SIGN, Rank.NONE) else stems.forms(piece.text.lstrip("\u2026"))

        words = (stems.forms(word.text) for word in split_words(self.texts[number]))
        known = frozenset[tuple[str, str]]().union(*map(forms, own), *words)
        return [
            "literal" if token in own else "unrelated" if known.isdisjoint(forms(token)) else "stem" for token in found
        ]


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
    own = {n: set(tokens) for n, tokens in enumerate(given.tokens) if tokens}
    if not own:
        raise InputError(f"none of the {len(given.texts)} texts has a token; there is nothing to align with")
    holding = Counter(token for tokens in own.values() for token in tokens)
    weights = {token: float(np.log(len(own) / count)) for token, count in holding.items()}
    hits, local, weighted = 0, list[float](), list[float]()
    matched, seen, classes, shown = set[int](), set[int](), Counter[str](), list[AlignedText]()
    for n, ids, scores in _ranked(given, own, k):
        relations = given.relations(n, ids[:k], stems)
        if len(shown) < examples:
            tokens = map(AlignedToken, map(given.name, ids[:k]), scores, relations)
            shown.append(AlignedText(given.texts[n], tuple(tokens)))
        found = own[n].intersection(ids[: len(own[n])])
        hits += not own[n].isdisjoint(ids[:k])
        local.append(len(found) / len(own[n]))
        whole = sum(weights[token] for token in own[n])
        if whole > 0:  # else every token is in all texts
            weighted.append(sum(weights[token] for token in found) / whole)
        matched |= found
        seen.update(ids[:k])
        classes.update(relations)
    shares = {relation: classes[relation] / (len(own) * k) for relation in ("literal", "stem", "unrelated")}
    return ModelAlignment(
        name,
        texts=len(own),
        blank=len(given.texts) - len(own),
        tokens=sum(map(len, own.values())) / len(own),
        hit=hits / len(own),
        lar=float(np.mean(local)),
        gar=len(matched) / len(weights),
        weighted_lar=sum(weighted) / max(len(weighted), 1),
        lar_error=float(np.std(local) / np.sqrt(max(len(own) - 1, 1))),
        literal=shares["literal"],
        stem=None if stems is None else shares["stem"],
        unrelated=None if stems is None else shares["unrelated"],
        distinct=len(seen),
        examples=tuple(shown),
    )


def _ranked(given: EmbeddedTexts, own: dict[int, set[int]], k: int) -> Iterator[tuple[int, list[int], list[float]]]:
    """Yield the number of each text with tokens, its first tokens, K or |T| at least, and their scores."""
    rows, numbers = np.asarray(given.embeddings, np.float32), list(own)
    for start in range(0, len(numbers), _TEXTS):
        block = numbers[start : start + _TEXTS]
        top = top_tokens(rows[block], given.head, max(k, *(len(own[n]) for n in block)))
        yield from zip(block, top.ids.tolist(), top.scores.tolist())


def decoded_texts(
    backbone: Backbone, head: TokenHead, texts: Sequence[str], embeddings: Vectors, special_tokens: bool = False
) -> EmbeddedTexts:
    """Put everything together that decoding the embeddings of texts needs.

    Args:
        backbone: what the embeddings are from; the layers of its head, where it has such, are applied.
        head: the rows to decode with.
        texts: n strings.
        embeddings: float32 [n, d], adjusted.
        special_tokens: count in T the special tokens that the tokenizer adds.
    """
    rows, weight = before_rows(backbone, embeddings), head.weight
    if head.bias is not None:  # as one more column
        rows, weight = (
            np.column_stack([rows, np.ones(len(rows), np.float32)]),
            np.column_stack([head.rows(), head.bias]),
        )
    return EmbeddedTexts(texts, rows, literal_tokens(backbone.tokenizer, texts, special_tokens), weight, head.tokens)


def literal_tokens(tokenizer: Any, texts: Sequence[str], special_tokens: bool = False) -> list[frozenset[int]]:
    """Return the set T of each text's tokens, of the whole text however long it is.

    Args:
        tokenizer: a fast one of transformers. A special token's string in a text is read as text.
        texts: what to read.
        special_tokens: count the special tokens that the tokenizer adds; without, no special token is counted.
    """
    from tokenizers import Tokenizer

    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = True
    omitted = frozenset[int]() if special_tokens else vocabulary_of(tokenizer)[1]
    encoded = copy.encode_batch([well_formed(text) for text in texts], add_special_tokens=special_tokens)
    return [frozenset(encoding.ids) - omitted for encoding in encoded]
