"""Alignment of embeddings with the tokens of their texts: Algorithm 1 of "A Text is Worth Several Tokens", its rates.

T is the set of a text's tokens, A^K the K tokens that score highest for its embedding through the backbone's head.
Hit@K is the share of texts with a token of T in A^K (Eq. 6); the local alignment rate the mean share of T found in
A^|T| (Eq. 7); the global one the share of all texts' tokens that are found in any (Eq. 8). The cut-off is |T| of each
text, as the paper defines it; its published script cuts at ten tokens, which keeps the local rate below 10 / |T|.

Special tokens are not counted in T, nor are those of an instruction or a template; the published script counts special
tokens. A^K is taken from the whole vocabulary. The rates reward stop words as much as
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


class Stems:
    """The forms under which an English word is compared with others, each word looked up once."""

    def __init__(self) -> None:
        """Open the stemmer.

        Raises:
            MissingExtraError: snowballstemmer or simplemma is not installed.
        """
        with importing("align"):
            import simplemma
            import snowballstemmer
        self._lemmatize: Any = simplemma.lemmatize
        self._stemmer: Any = snowballstemmer.stemmer("english")
        self._known: dict[str, frozenset[tuple[str, str]]] = {}

    def forms(self, word: str) -> frozenset[tuple[str, str]]:
        """Return a word's stem and lemma, in lower case; nothing for what holds no letter and no digit.

        Two words are of one stem or lemma where their forms have an element in common.
        """
        if word not in self._known:
            lower = word.strip().casefold()
            forms = (
                ("stem", self._stemmer.stemWord(lower)),
                ("lemma", self._lemmatize(lower, lang="en").casefold()),
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


def measure(name: str, given: EmbeddedTexts, k: int = 10, *, stems: Stems | None) -> ModelAlignment:
    """Return the rates of one model (Algorithm 1; Eq. 6 to 8).

    Args:
        name: of the model.
        given: its embeddings.
        k: of Hit@K and of the classes.
        stems: to class tokens by stem and lemma; None leaves the classes out.

    Raises:
        InputError: no text has a token, `k` is out of range, or an embedding holds NaN or infinity.
    """
    own = {n: set(tokens) for n, tokens in enumerate(given.tokens) if tokens}
    if not own:
        raise InputError(f"none of the {len(given.texts)} texts has a token; there is nothing to align with")
    holding = Counter(token for tokens in own.values() for token in tokens)
    weights = {token: float(np.log(len(own) / count)) for token, count in holding.items()}
    hits, local, weighted = 0, list[float](), list[float]()
    matched, seen, classes = set[int](), set[int](), Counter[str]()
    for n, ids in _ranked(given, own, k):
        found = own[n].intersection(ids[: len(own[n])])
        hits += not own[n].isdisjoint(ids[:k])
        local.append(len(found) / len(own[n]))
        whole = sum(weights[token] for token in own[n])
        if whole > 0:  # else every token is in all texts
            weighted.append(sum(weights[token] for token in found) / whole)
        matched |= found
        seen.update(ids[:k])
        classes.update(given.relations(n, ids[:k], stems))
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
    )


def _ranked(given: EmbeddedTexts, own: dict[int, set[int]], k: int) -> Iterator[tuple[int, list[int]]]:
    """Yield the number of each text with tokens and its first tokens, K or |T| at least."""
    rows, numbers = np.asarray(given.embeddings, np.float32), list(own)
    for start in range(0, len(numbers), _TEXTS):
        block = numbers[start : start + _TEXTS]
        top = top_tokens(rows[block], given.head, max(k, *(len(own[n]) for n in block)))
        yield from zip(block, top.ids.tolist())


def decoded_texts(backbone: Backbone, head: TokenHead, texts: Sequence[str], embeddings: Vectors) -> EmbeddedTexts:
    """Put everything together that decoding the embeddings of texts needs.

    Args:
        backbone: what the embeddings are from; the layers of its head, where it has such, are applied.
        head: the rows to decode with.
        texts: n strings.
        embeddings: float32 [n, d], adjusted.
    """
    rows, weight = before_rows(backbone, embeddings), head.weight
    if head.bias is not None:  # as one more column
        rows, weight = (
            np.column_stack([rows, np.ones(len(rows), np.float32)]),
            np.column_stack([head.rows(), head.bias]),
        )
    return EmbeddedTexts(texts, rows, literal_tokens(backbone.tokenizer, texts), weight, head.tokens)


def literal_tokens(tokenizer: Any, texts: Sequence[str]) -> list[frozenset[int]]:
    """Return the set T of each text's tokens, of the whole text however long it is.

    Args:
        tokenizer: a fast one of transformers. A special token's string in a text is read as text.
        texts: what to read.
    """
    from tokenizers import Tokenizer

    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = True
    omitted = vocabulary_of(tokenizer)[1]
    encoded = copy.encode_batch([well_formed(text) for text in texts], add_special_tokens=False)
    return [frozenset(encoding.ids) - omitted for encoding in encoded]
