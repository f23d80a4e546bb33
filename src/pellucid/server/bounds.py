"""Explanations and hits as JSON of bounded size.

An answer is written piece by piece up to the limit, so that no request can fill the memory. Of an explanation the
largest rows are kept, and the others become one row, their sum: rows and remainder still add up to the score. Any other
answer that is too large is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from pellucid.explain.explanation import Explanation
from pellucid.explain.rows import READ_AS, WORD, WORD_PAIR, Row, share_of
from pellucid.explain.views.parts import Note
from pellucid.explain.views.report import json_value
from pellucid.progress import check_cancelled
from pellucid.server.bodies import MAX_ANSWER_BYTES, ApiError
from pellucid.text.unicode import normalize, unspaced_run
from pellucid.text.words import split_words

if TYPE_CHECKING:
    from pellucid.index.hits import Hit, Hits

MAX_ROWS = 10_000  # of one explanation; those beyond are one row
REST_KIND = "rest"  # the kind of that row
_MAX_SUBTRACTED_ROWS = 100_000  # rows of each of two explanations: a difference makes all of them, a kilobyte each
_MAX_WORD_PAIRS = 4_000_000  # of words of a query and of its hits, about 50 bytes each meanwhile


def explained(explanation: Explanation, *, notes: bool = False) -> dict[str, Any]:
    """Return `Explanation.to_dict` with at most 10,000 rows, fewer if they are large, and the views' `notes`."""
    n_rows, n_bytes = len(explanation.rows), 0
    readable = {
        "summary": explanation.summary(), "percentile": explanation.percentile, "groups": json_value(explanation.lines)
    }  # fmt: skip
    rows, fragments = list[Row](), list[orjson.Fragment]()
    for index in range(min(n_rows, MAX_ROWS)):  # one by one: rows are made when they are read
        check_cancelled()
        row = explanation.rows[index]
        text = _json(row._asdict())
        n_bytes += len(text)
        if n_bytes > MAX_ANSWER_BYTES // 2:  # texts and coverage are in the other half
            break
        rows.append(row)
        fragments.append(orjson.Fragment(text))
    if len(rows) < n_rows:
        value = float(explanation.contributions[len(rows) :].sum())
        name = f"the sum of {n_rows - len(rows):,} smaller rows"
        rows.append(Row(name, (), value, share_of(value, explanation.score), key=(REST_KIND,), kind=REST_KIND))
        fragments.append(orjson.Fragment(_json(rows[-1]._asdict())))
        explanation = replace(explanation, rows=tuple(rows))
    plain = replace(explanation, rows=(), is_checked=False).to_dict() | readable
    plain |= {"rows": fragments, "remainder": explanation.remainder}
    if notes:
        plain["notes"] = [part._asdict() for part in explanation._parts() if isinstance(part, Note)]
    return plain


def subtract(first: Explanation, *compared: Explanation) -> Explanation:
    """Return an explanation, less another one where that is given, unless they have too many rows."""
    for explanation in (first, *compared) if compared else ():
        if len(explanation.rows) > _MAX_SUBTRACTED_ROWS:
            limit = f"at most {_MAX_SUBTRACTED_ROWS:,} are subtracted; give shorter texts"
            raise ApiError(422, f"one of the explanations has {len(explanation.rows):,} rows; {limit}")
    return first - compared[0] if compared else first


def check_explained_pairs(query: str, hits: Collection[Hit], models: int) -> None:
    """Check that the reasons of hits fit the memory: a static model has a value for each pair of words."""
    texts = [f"{hit.title} {hit.text}" for hit in hits]
    if models * len(query) * sum(map(len, texts)) <= _MAX_WORD_PAIRS:
        return
    pairs = models * _max_words(query) * sum(map(_max_words, texts))
    if pairs > _MAX_WORD_PAIRS:
        raise ApiError(
            422,
            f"the words of the query and of {len(texts)} documents make {pairs:,} pairs; at most "
            f"{_MAX_WORD_PAIRS:,} are read for one answer. Shorten the query, or ask for fewer documents",
            "query",
        )


def _max_words(text: str) -> int:
    """Return how many distinct words a model can find in a text, at most."""
    form = normalize(text).text
    words = len({word.text for word in split_words(form)})
    runs = set(unspaced_run.findall(form))
    return words + len(set("".join(runs))) + sum(map(len, runs)) // 2  # of one character, and of two or more


def limit_hits(hits: Hits, rows: int, models: int) -> dict[str, Any]:
    """Return `Hits.to_dict`, with the largest `rows` rows of each hit."""
    check_explained_pairs(hits.query, hits, models)
    plain = (hit.to_dict() | ({"rows": _plain_rows(hit, rows)} if rows else {}) for hit in hits)
    return replace(hits, hits=()).to_dict() | {"hits": written(plain, "ask for fewer hits or rows")}


def _plain_rows(hit: Hit, count: int) -> list[dict[str, Any]]:
    return [
        {"name": row.name, "contribution": row.contribution, "kind": row.kind, "handle": _handle(row, hit.parts)}
        for row in hit.reasons.top(count)
    ]


def written(items: Iterable[Any], hint: str) -> list[orjson.Fragment]:
    """Return items as JSON, each written before the next is made; the `hint` ends the error."""
    texts, n_bytes = [], 0
    for item in items:
        check_cancelled()
        texts.append(_json(item))
        n_bytes += len(texts[-1])
        if n_bytes > MAX_ANSWER_BYTES:
            raise ApiError(422, f"the answer would have more than {MAX_ANSWER_BYTES:,} bytes; {hint}")
    return list(map(orjson.Fragment, texts))


def _json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def _handle(row: Row, parts: Collection[str]) -> str:
    """Return the query's word or the dimension, which a person may give another weight."""
    if row.kind in (WORD, WORD_PAIR):
        return row.parts[0].partition(READ_AS)[0]
    return row.name if len(parts) > 1 else f"{next(iter(parts))}: {row.name}"  # the name has it only among several
