"""How probable it is that a hit answers its query: a logistic curve over the score, fitted on the index itself.

Queries that the documents answer are sentences of some documents with words left out, each searched with its own
document and without it: a real query copies no document. Queries that they do not answer are sentences of other
subjects. The curve rises with the score, so a least probability is a least score, and a search does nothing more.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from pellucid.errors import InputError
from pellucid.index.plan import Snapshot, plan_query
from pellucid.index.search import search
from pellucid.index.settings import Calibration, validate_synonyms
from pellucid.text.sentences import bundled_sentences, sentence_spans

MAX_CALIBRATION_QUERIES = 500  # of either kind
MIN_CALIBRATION_QUERIES = 20
_QUERY_WORDS = 4, 20  # of a query made from a document
_NEWTON_STEPS, _RIDGE = 30, 1e-6  # which keeps the slope finite where no scores of the two kinds overlap


def calibrate(
    snapshot: Snapshot, weights: Mapping[str, float], word_weights: Mapping[str, float],
    queries: Sequence[str] | None, unrelated: Sequence[str] | None,
) -> Calibration:  # fmt: skip
    """Fit the curve on queries that the documents answer and on others, see `Index.calibrate`."""
    rng = random.Random(0)
    pairs = list(_own_queries(snapshot, rng)) if queries is None else [(query, "") for query in queries]
    if unrelated is None:
        unrelated = rng.sample(bundled_sentences()[0], MAX_CALIBRATION_QUERIES)
    if min(len(pairs), len(unrelated)) < MIN_CALIBRATION_QUERIES:
        raise InputError(
            f"{len(pairs)} queries that the documents answer and {len(unrelated)} others are too few to calibrate; "
            f"give at least {MIN_CALIBRATION_QUERIES} of either"
        )
    best, synonyms = list[float](), validate_synonyms(None, snapshot.commit.state.settings)
    for query, id in [*pairs, *((query, "") for query in unrelated)]:
        hits = search(plan_query(query, weights, snapshot, word_weights, synonyms=synonyms), 2)
        best += [next((hit.score for hit in hits if hit.id not in left_out), 0.0) for left_out in ((), (id,))]
    scores, is_answered = np.array(best), np.arange(len(best)) < 2 * len(pairs)
    shares = np.where(is_answered, 0.25 / len(pairs), 0.25 / len(unrelated))
    mean, spread = float(scores.mean()), float(scores.std()) or 1.0
    inputs, odds = np.stack([np.ones(len(scores)), (scores - mean) / spread], axis=1), np.zeros(2)
    for _ in range(_NEWTON_STEPS):
        fitted = 0.5 + 0.5 * np.tanh(inputs @ odds / 2)
        gradient = inputs.T @ (shares * (fitted - is_answered)) + _RIDGE * odds
        curvature = (inputs * (shares * fitted * (1 - fitted))[:, None]).T @ inputs + _RIDGE * np.eye(2)
        odds -= np.linalg.solve(curvature, gradient)
    slope = float(odds[1]) / spread
    if not slope > 0:
        raise InputError("queries that the documents answer score no higher than others; nothing can be calibrated")
    return Calibration(slope, float(odds[0]) - slope * mean, dict(weights), dict(word_weights))


def _own_queries(snapshot: Snapshot, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Yield queries made from documents, each with the id of its document."""
    commit = snapshot.commit
    documents = commit.documents(max(1, commit.state.documents // MAX_CALIBRATION_QUERIES))
    for document in islice(documents, MAX_CALIBRATION_QUERIES):
        sentences = [document.text[slice(*span)].split() for span in sentence_spans(document.text)]
        if long_enough := [words for words in sentences if len(words) >= _QUERY_WORDS[0]]:
            words = rng.choice(long_enough)
            selected = sorted(rng.sample(range(len(words)), min(len(words), rng.randint(*_QUERY_WORDS))))
            yield " ".join(words[n] for n in selected), document.id
