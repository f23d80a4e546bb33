"""Odd texts: the C kernels against the readable path, explanations that add up, and canonically equal texts."""

from __future__ import annotations

import random
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import pellucid
from fuzz.processes import Failed
from pellucid.index.terms import Analyser
from pellucid.text.unicode import canonicalize, graphemes, well_formed
from tiny_models import WORDS

BATCH = 100  # texts of a case
_EXPLAINED = 8  # of them
_GAP = 1e-5
_PIECES = [
    *WORDS, *map(str.upper, WORDS), "sick boy", "sick▁boy", "SICK  boy", "東京都に", "medicines", "medic", "ine", "##s",
    "[UNK]", "[CLS]", "<query>", "é", "e\u0301", "İstanbul", "ß", "ﬁ", "Σίσυφος", "👩🏽\u200d🚀", "\u202e", "\ufeff",
    "\x00", "\x1c", "\u2028", "a" * 130, "\u0300" * 40, "1e999", "�", "\U0010ffff", "ツ", "ーー", "ไทย", "한국어", "ْ",
    "\ud800", "T恤", "$x^{", "<b>&amp;</b>", "\x1b[31m",
]  # fmt: skip
_GAPS = ["", " ", "  ", "\t", "\n", "\r\n", "-", ".", ",", "'", "’", "\u00a0", "\u200b", "\u3000", "▁", "_", "/"]


def text(rng: random.Random) -> str:
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


def check(rng: random.Random, model: Any) -> str:
    """Encode a batch of texts and explain some; return what was done."""
    texts = [text(rng) for _ in range(BATCH)]
    rows = _dense(model.encode(texts))
    if rows.shape != (BATCH, model.get_embedding_dimension()) or not np.isfinite(rows).all():
        raise Failed("wrong vectors", f"shape {rows.shape}, finite: {np.isfinite(rows).all()}")
    scores = model.similarity_pairwise(model.encode(texts[:-1]), model.encode(texts[1:]))
    for number in range(_EXPLAINED):
        one, other = texts[number], texts[number + 1]
        _check_adds_up(model.explain(one), None, (one,))
        _check_adds_up(model.explain(one, other), float(scores[number]), (one, other))
    _check_equal(texts, [equivalent(rng, one) for one in texts], model)
    return f"{BATCH} texts"


def equivalent(rng: random.Random, text: str) -> str:
    """Return a string that Unicode calls equivalent to `text`: some of its characters composed, some decomposed."""
    clean = well_formed(text)
    return "".join(unicodedata.normalize(rng.choice(("NFC", "NFD")), clean[a:b]) for a, b in graphemes(clean))


def _check_equal(texts: list[str], others: list[str], model: Any) -> None:
    """Check that equal texts have equal embeddings and explanations."""
    rows = _dense(model.encode(texts + others))
    gaps = np.abs(rows[: len(texts)] - rows[len(texts) :]).max(axis=1)
    if gaps.max() > _GAP:
        worst = int(gaps.argmax())
        raise Failed("equal texts differ", f"{texts[worst]!r} and {others[worst]!r} by {gaps.max():.2g}")
    for number in range(_EXPLAINED):
        one, other = texts[number], others[number]
        first, second = (model.explain(version, texts[-1]) for version in (one, other))
        rows = [sorted((row.name, row.contribution) for row in why.rows) for why in (first, second)]
        names, values = ([[row[at] for row in found] for found in rows] for at in (0, 1))
        is_close = names[0] == names[1] and np.allclose(*map(sorted, values), atol=_GAP)
        if not is_close or first.coverage != second.coverage:
            raise Failed("equal texts differ", f"{one!r} and {other!r} are explained in two ways")


def _as_rows(explanation: Any) -> Any:
    return explanation.score, explanation.coverage, [(row.name, row.contribution) for row in explanation.rows]


def check_search(rng: random.Random, model: Any, place: Path) -> str:
    """Search two indexes of equal texts with equal queries; return what was done."""
    texts = [one for one in (text(rng) for _ in range(BATCH)) if one.strip()]
    versions = texts, [equivalent(rng, one) for one in texts]
    language = rng.choice(("english", "german", "none"))
    analyser = Analyser(language)
    for one, other in zip(*versions):
        if Counter(analyser.terms(one)) != Counter(analyser.terms(other)):
            raise Failed("equal texts differ", f"{one!r} and {other!r} have other terms")
    answers = []
    for number, documents in enumerate(versions):
        with pellucid.Index.create(place / f"index-{number}", {"m": model}, language=language) as index:
            index.add(documents, ids=[str(n) for n in range(len(documents))])
            answers.append([_answer(index, query) for query in documents[:_EXPLAINED]])
    for query, first, second in zip(texts, *answers):
        if first != second:
            raise Failed("equal texts differ", f"{query!r} finds {first!r:.300} or {second!r:.300}")
    return f"{len(texts)} documents"


def _answer(index: pellucid.Index, query: str) -> Any:
    hits = index.search(query, 5)
    named = [tuple(map(canonicalize, words)) for words in (hits.unknown, hits.ignored)]
    return named, [(hit.id, hit.score, hit.parts, _as_rows(hit.explain())) for hit in hits]


def _dense(rows: Any) -> Any:
    return rows.toarray() if hasattr(rows, "toarray") else rows


def _check_adds_up(explanation: Any, score: float | None, texts: tuple[str, ...]) -> None:
    total = sum(row.contribution for row in explanation.rows) + explanation.remainder
    if abs(total - explanation.score) > 1e-6:
        raise Failed("rows do not add up", f"{texts!r}: the rows give {total!r}, the score is {explanation.score!r}")
    if score is not None and abs(explanation.score - score) > _GAP:
        raise Failed("wrong score", f"{texts!r}: explained as {explanation.score!r}, similarity is {score!r}")
    str(explanation).encode("utf-8")
