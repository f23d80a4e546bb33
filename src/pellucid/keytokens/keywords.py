"""Where the tokens of an explanation stand in a text, and the words a reader sees for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pellucid.base import unit_rows
from pellucid.explanation import Explanation, Row, Span
from pellucid.keytokens.states import own_tokens
from pellucid.transformer.reading import known_words, whole_words
from pellucid.transformer.tokenwords import Rank, Token
from pellucid.words import split_words, well_formed

if TYPE_CHECKING:
    from pellucid.keytokens.embedder import KeyTokenEmbedder


def explained(model: KeyTokenEmbedder, texts: list[str]) -> Explanation:
    """Take the cosine of one or two checked texts apart; see `KeyTokenEmbedder.explain`."""
    readings = model.readings(texts)
    units = unit_rows(model.encode(texts)).astype(np.float64)
    products = units[0].multiply(units[-1]).tocsr()
    clean = [well_formed(text) for text in texts]
    places = [
        Places(text, own_tokens(reading, model.settings), reading.spans, model.head.tokens)
        for text, reading in zip(clean, readings, strict=True)
    ]
    terms = word_rows(model, products.indices.tolist(), products.data.tolist(), places)
    coverage, left_out = zip(*map(known_words, clean, readings))
    both = (texts[0], texts[1] if len(texts) == 2 else None)
    return Explanation.from_terms(
        model.family, both, float(products.sum()), terms, exact=False, unknown=(*left_out, ())[:2], coverage=coverage
    )


class Places:
    """The words of one text, found by a token's number or by the word."""

    def __init__(self, text: str, ids: Sequence[int], spans: Sequence[Span], tokens: Sequence[Token]) -> None:
        """Look up which tokens a text has.

        Args:
            text: the text.
            ids: its own tokens.
            spans: the characters each stands for.
            tokens: how the tokens of the vocabulary read.
        """
        self.text = text
        self._tokens: dict[int, list[Span]] = {}
        self._words: dict[str, list[Span]] = {}
        whole = whole_words(text, spans)
        for token, span in zip(ids, whole, strict=True):
            if span[1] > span[0]:
                self._add(self._tokens.setdefault(token, []), span)
                if tokens[token].rank != Rank.SHARD:
                    self._add(self._words.setdefault(tokens[token].text.casefold(), []), span)
        for word in split_words(text):
            self._add(self._words.setdefault(word.text.casefold(), []), (word.start, word.end))

    @staticmethod
    def _add(spans: list[Span], span: Span) -> None:
        if span not in spans:
            spans.append(span)

    def of(self, number: int, token: Token) -> tuple[Span, ...]:
        """Return where a token stands: the words that hold it, and those it is whatever their pieces."""
        spans = [*self._tokens.get(number, []), *self._words.get(token.text.casefold(), [])]
        return tuple(sorted(set(spans)))


def word_rows(
    model: KeyTokenEmbedder, numbers: Sequence[int], values: Sequence[float], places: Sequence[Places]
) -> list[Row]:
    """Return the terms of a score, one a word; shards of words that stand in no text are left out.

    Args:
        model: whose dimensions they are.
        numbers: of the dimensions.
        values: what each adds.
        places: of the one or two texts.
    """
    found: dict[str, Row] = {}
    names, spelled = model.dimensions.names, model.head.dimensions.names
    columns = None if model.mixing is None else model.mixing.tocsc()
    for number, value in zip(numbers, values, strict=True):
        sources = [number] if columns is None else columns.indices[slice(*columns.indptr[number : number + 2])].tolist()
        spans = [_union(place.of(n, model.head.tokens[n]) for n in sources) for place in places]
        name = names[number]
        if [spelled[n] for n in sources] == [name]:  # a token as it is
            name = _shown(name, model.head.tokens[sources[0]], places, spans)
        if not name:
            continue
        first, second, *_ = (*spans, ())
        row = Row(name, (names[number],), value, 0.0, first, second, key=("word", name))
        found[name] = row if name not in found else _joined(found[name], row)
    return list(found.values())


def _shown(name: str, token: Token, places: Sequence[Places], spans: Sequence[tuple[Span, ...]]) -> str:
    """Return the word a reader sees for a token, "" for a shard that stands in no text."""
    if token.rank == Rank.INNER:
        return token.text
    if token.rank != Rank.SHARD:
        return name
    words = [place.text[start:end] for place, found in zip(places, spans, strict=True) for start, end in found]
    return words[0].casefold() if words else ""


def _union(spans: Iterable[tuple[Span, ...]]) -> tuple[Span, ...]:
    return tuple(sorted({span for some in spans for span in some}))


def _joined(first: Row, second: Row) -> Row:
    """Return two rows of one word as one."""
    return first._replace(
        parts=first.parts + second.parts,
        contribution=first.contribution + second.contribution,
        spans1=_union([first.spans1, second.spans1]),
        spans2=_union([first.spans2, second.spans2]),
    )
