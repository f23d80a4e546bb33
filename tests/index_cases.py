"""What an index finds: conditions and the documents they choose, BM25 from its definition."""

import math
from collections import Counter

from pellucid.index.bm25 import K1, B
from pellucid.index.terms import Analyser


def brute_bm25(query, texts):
    """BM25 over its greatest possible value, from its definition."""
    analyser = Analyser()
    documents = [Counter(analyser.terms(text)) for text in texts]
    average = sum(sum(d.values()) for d in documents) / len(documents)
    asked = Counter(analyser.terms(query))

    def idf(term):
        having = sum(term in document for document in documents)
        return math.log(1 + (len(documents) - having + 0.5) / (having + 0.5)) if having else 0.0

    idfs = {term: idf(term) for term in asked}
    most = sum(n * idfs[t] * (K1 + 1) for t, n in asked.items()) or 1.0

    def impact(count, document):
        return count * (K1 + 1) / (count + K1 * (1 - B + B * sum(document.values()) / average))

    return [sum(n * idfs[t] * impact(d[t], d) for t, n in asked.items()) / most for d in documents]


CONDITIONS = [
    ({"year": 1999}, "a"),
    ({"year": {"gte": 1999}}, "abd"),
    ({"year": {"gt": 1999, "lt": 2010}}, "b"),
    ({"year": {"lte": 1999.0}}, "a"),
    ({"year": [1999, 2024]}, "ad"),
    ({"year": {"in": [2005]}}, "b"),
    ({"year": {"nin": [1999, 2005]}}, "cd"),
    ({"year": {"ne": 1999}}, "bcd"),
    ({"year": {"exists": True}}, "abd"),
    ({"year": {"exists": False}}, "c"),
    ({"tag": "red"}, "ab"),
    ({"tag": ["blue", "green"]}, "bc"),
    ({"tag": {"ne": "red"}}, "cd"),
    ({"ok": True}, "a"),
    ({"ok": {"in": [True, False]}}, "ab"),
    ({"odd name.[x] \u00e9": "yes"}, "d"),
    ({"mixed": 1}, "a"),
    ({"mixed": "1"}, "b"),
    ({"mixed": {"exists": True}}, "ab"),
    ({"when": {"gte": "2024-01-01"}}, "b"),
    ({"year": {"gte": 1999}, "tag": "red"}, "ab"),
    ([{"year": 1999}, {"tag": "green"}], "ac"),
    ({}, "abcd"),
]

CONDITIONS_METADATA = [
    {"year": 1999, "tag": "red", "ok": True, "mixed": 1, "when": "2023-12-31"},
    {"year": 2005, "tag": ["red", "blue"], "ok": False, "mixed": "1", "when": "2024-05-01T10:00:00Z"},
    {"tag": "green", "year": None},
    {"year": 2024, "odd name.[x] \u00e9": "yes"},
]
