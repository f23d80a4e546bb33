"""Attacks on a search: odd queries and settings, C beside all products in Python."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np

from fuzz.processes import Failed
from index_folder import WORDS, every_passage
from pellucid import Index, StaticEmbedder
from pellucid.errors import PellucidError
from pellucid.index import arrays
from pellucid.text.words import Vocabulary

if TYPE_CHECKING:
    from fuzz.subjects import Subjects

_SEARCHES = 20
_ROUNDING = 1e-6  # of a score
_WEIGHTS = (0, 5e-324, 1e-300, 1e-30, 1e-9, 0.5, 1, 3, 1e6)
_FACTORS = (-1e6, -1, 0, 1e-30, 0.01, 1, 2, 1e6)
_WHERES: tuple[Any, ...] = (
    {"n": 0}, {"n": {"lt": 0}}, {"part": 0}, {"n": {"gte": 2}}, {"n": {"in": [1]}}, [{"n": 0}, {"part": 1}],
    {"n": {"ne": 0}},
)  # fmt: skip

_PIECES = [
    *WORDS, *map(str.upper, WORDS), "sick boy", "sick▁boy", "SICK  boy", "東京都に", "medicines", "medic", "ine", "##s",
    "[UNK]", "[CLS]", "<query>", "é", "e\u0301", "İstanbul", "ß", "ﬁ", "Σίσυφος", "👩🏽\u200d🚀", "\u202e", "\ufeff",
    "\x00", "\x1c", "\u2028", "a" * 130, "\u0300" * 40, "1e999", "�", "\U0010ffff", "ツ", "ーー", "ไทย", "한국어", "ْ",
    "\ud800", "T恤", "$x^{", "<b>&amp;</b>", "\x1b[31m",
]  # fmt: skip
_GAPS = ["", " ", "  ", "\t", "\n", "\r\n", "-", ".", ",", "'", "’", "\u00a0", "\u200b", "\u3000", "▁", "_", "/"]


def odd(rng: random.Random, subjects: Subjects, place: Path) -> str:
    """Search a random index with odd settings: all products in Python find the same, and reasons add up."""
    refused = n_hits = 0
    with patch.object(arrays, "COARSE_ROWS", rng.choice((1, 1, 50))), _random_index(rng, place / "index") as index:
        for _ in range(_SEARCHES):
            query, settings = _random_search(rng, index)
            hits = _answer(index, query, settings)
            with patch("pellucid.index.search._scan", every_passage):
                twin = _answer(index, query, settings)
            if not _are_same(hits, twin):
                raise Failed("other hits", f"{query!r:.200} {settings}: {hits!r:.300}, and in Python {twin!r:.300}")
            refused += isinstance(hits, str)
            n_hits += 0 if isinstance(hits, str) else len(hits)
            if rng.random() < 0.2 and not isinstance(hits, str):
                _check_reasons(index, query, {**settings, "top_k": 3})
    return f"{n_hits} hits, {refused} searches refused"


def _random_index(rng: random.Random, folder: Path) -> Index:
    """Return an index of rows that are long, short, alike or zero, in several segments; some of it is deleted."""
    dimension = rng.choice((1, 4, 63, 64, 130, 257))
    vectors = np.random.default_rng(rng.randrange(10**9)).normal(size=(len(WORDS), dimension)).astype(np.float32)
    vectors[rng.randrange(len(WORDS))] *= rng.choice((0, 1, 50))
    vectors[:, rng.randrange(dimension)] += rng.choice((0, 0, 50))
    vectors *= np.float32(rng.choice((1, 1, 1e-30, 1e-3, 1e25)))
    models: dict[str, Any] = {"words": StaticEmbedder(Vocabulary(WORDS), vectors)}
    if rng.random() < 0.5:
        models["letters"] = lambda texts: np.array([[t.count(c) + 1 for c in "abcdefgh"] for t in texts], np.float32)
    index = Index.create(folder, models, bm25=rng.random() < 0.8, passage_characters=rng.choice((100, 400, 4000)))
    n_texts = rng.choice((1, 3, 30, 200))
    for part in range(rng.choice((1, 2, 4))):
        texts = [_random_text(rng) for _ in range(n_texts)]
        metadata = [{"n": number, "part": part} for number in range(n_texts)]
        index.add(texts, ids=[f"{part}-{number}" for number in range(n_texts)], metadata=metadata)
    ids = [document.id for document in index]
    index.delete(rng.sample(ids, rng.choice((0, 1, len(ids) // 2, len(ids) - 1))))
    return index


def _random_text(rng: random.Random) -> str:
    if rng.random() < 0.15:
        return rng.choice((_odd_text(rng), ""))
    return " ".join(rng.choices(WORDS, k=rng.choice((1, 3, 8, 40))))


def _odd_text(rng: random.Random) -> str:
    """Return a text of words, pieces, marks and any code points."""
    parts = []
    for _ in range(rng.choice((0, 1, 2, 3, 5, 8, 30))):
        kind = rng.random()
        if kind < 0.7:
            parts.append(rng.choice(_PIECES))
        else:
            parts.append(chr(rng.choice((rng.randrange(0x250), rng.randrange(0x3000), rng.randrange(0x110000)))))
        parts.append(rng.choice(_GAPS))
    return "".join(parts)


def _random_search(rng: random.Random, index: Index) -> tuple[str, dict[str, Any]]:
    """Return a query and arguments of a search, all of which it takes or refuses."""
    query = rng.choice((_random_text(rng), _odd_text(rng), "loan " * 50, "zzz", "the of"))
    settings: dict[str, Any] = {"top_k": rng.choice((1, 2, 3, 10, len(index), len(index) + 5, 10**9))}
    choices: dict[str, Callable[[], Any]] = {
        "where": lambda: rng.choice(_WHERES),
        "weights": lambda: {name: rng.choice(_WEIGHTS) for name in index.weights},
        "min_score": lambda: rng.choice((-1e300, -1, 0, 1e-9, 0.1, 0.5, 0.9, 1, 5, 1e300)),
        "word_weights": lambda: {rng.choice(WORDS): rng.choice(_FACTORS)},
        "steer": lambda: {rng.choice(WORDS): rng.choice(_FACTORS)},
        "offset": lambda: rng.choice((0, 1, 5, 10**6)),
    }
    return query, settings | {name: choose() for name, choose in choices.items() if rng.random() < 0.35}


def _answer(index: Index, query: str, settings: dict[str, Any]) -> list[tuple[str, float]] | str:
    try:
        return [(hit.id, hit.score) for hit in index.search(query, **settings)]
    except PellucidError as error:
        return str(error)


def _are_same(hits: list[tuple[str, float]] | str, twin: list[tuple[str, float]] | str) -> bool:
    if isinstance(hits, str) or isinstance(twin, str):
        return hits == twin
    scores, twin_scores = ([score for _, score in found] for found in (hits, twin))
    return [own for own, _ in hits] == [own for own, _ in twin] and np.allclose(scores, twin_scores, rtol=_ROUNDING)


def _check_reasons(index: Index, query: str, settings: dict[str, Any]) -> None:
    for hit in index.search(query, **settings):
        why = hit.explain()
        values = [row.contribution for row in why.rows]
        if abs(sum(values) + why.remainder - hit.score) > 1e-5 * max(1.0, sum(map(abs, values))):
            raise Failed(
                "rows do not add up", f"{query!r:.200} {settings}: {hit.id} has {hit.score}, not {sum(values)}"
            )
        hit.reasons.highlights()
        str(why)
