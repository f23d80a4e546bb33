"""The C that finds the best passages: nothing better is left out, BM25 is that of numpy, every level gives the same.

Run as a program, this file prints what the level named by PELLUCID_NATIVE gives.
"""

import hashlib
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pellucid.index import arrays
from pellucid.index.bm25 import K1, B, impacts
from pellucid.native.scan import MAX_CODE, BestScores, Bm25Lists, Bm25Terms, Codes, DensePart, PassageScan, pack_codes
from refusals import refused

AVERAGE = 7.5


Case = namedtuple("Case", "ends lists lengths weights rows vectors others n_boosts allowed")
"""A segment with a query, in numpy; `lists` are of each term the passages and counts."""


def make_case(seed, passages, dimensions, kind="plain", terms=3):
    """Return a segment of random passages: with ties, rows of zeros, long passages, several passages a document."""
    rng, size = np.random.default_rng(seed), 1e-44 if kind == "tiny" else 0.3  # no number of float32 is much smaller
    rows = [rng.standard_normal((passages, dimension)) for dimension in dimensions]
    for matrix in rows:
        if kind == "ties":
            matrix[:] = matrix[rng.integers(0, min(3, passages), passages)]
        if kind == "spiked":
            matrix[:, 0] += 30
        if kind == "tiny":
            matrix[:] = np.sign(matrix)
        matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
        matrix[rng.random(passages) < (0.9 if kind == "zeros" else 0.1)] = 0
    lists = []
    for _ in range(terms):
        chosen = np.flatnonzero(rng.random(passages) < rng.choice([0.0, 0.1, 1.0]))
        lists.append((chosen.astype(np.uint32), rng.integers(1, 5, len(chosen)).astype(np.int32)))
    lengths = rng.integers(0, 30, passages).astype(np.int32)
    lengths[rng.random(passages) < 0.05] = 5000
    breaks = np.flatnonzero(rng.random(passages - 1) < 0.5) + 1 if passages > 1 else np.zeros(0, np.int64)
    vectors = [(rng.standard_normal(dimension) * size / dimension**0.5).astype(np.float32) for dimension in dimensions]
    return Case(
        np.append(breaks, passages) if kind == "passages" else None, lists, lengths, rng.random(terms) / 3,
        [matrix.astype(np.float32) for matrix in rows], vectors,
        rng.choice([0.0, -0.1, 0.2], (2, passages)).astype(np.float32) if kind in ("others", "boosts") else None,
        int(kind == "boosts"),
        rng.random(passages) < 0.7 if kind == "allowed" else None,
    )  # fmt: skip


def codes_of(rows):
    """Return rows in 8 bits as a segment stores them."""
    with patch.object(arrays, "COARSE_ROWS", 1):
        tensors = arrays._dense("x", rows)
    return Codes(*(tensors[f"{name}:x"] for name in Codes._fields))


def bm25_of(case):
    """Return BM25 of each passage as numpy adds it up."""
    passages = np.concatenate([np.zeros(0, np.uint32), *(passages for passages, _ in case.lists)])
    counts = np.concatenate([np.zeros(0, np.int32), *(counts for _, counts in case.lists)])
    weights = np.repeat(case.weights, [len(passages) for passages, _ in case.lists])
    values = weights * impacts(counts, case.lengths[passages], AVERAGE)
    return np.bincount(passages, values, len(case.lengths)).astype(np.float32)


def scan_of(case):
    """Return the C for a case; rows have 8 bits where there are 40 or more."""
    parts = [DensePart(matrix, codes_of(matrix) if len(matrix) >= 40 else None) for matrix in case.rows]
    if not case.lists:
        return PassageScan(len(case.lengths), case.ends, None, parts), None
    lists = Bm25Lists(*(np.concatenate(arrays) for arrays in zip(*case.lists)), case.lengths)
    ends = np.cumsum([0, *(len(passages) for passages, _ in case.lists)])
    spans = np.ascontiguousarray(np.stack([ends[:-1], ends[1:]]))
    return PassageScan(len(case.lengths), case.ends, lists, parts), Bm25Terms(spans, case.weights, K1, B, AVERAGE)


def candidates_of(case, best):
    """Return what the C finds of a case."""
    scan, terms = scan_of(case)
    vectors = np.concatenate([np.zeros(0, np.float32), *case.vectors])
    return scan.candidates(best, terms, vectors, case.others, case.allowed, case.n_boosts)


def exact_scores(case):
    """Return the score of each passage, and which share anything with the query."""
    parts = [np.einsum("ij,j->i", rows, vector) for rows, vector in zip(case.rows, case.vectors)]
    parts += [bm25_of(case)] if case.lists else []
    parts += list(case.others) if case.others is not None else []
    is_shared = np.any([part != 0 for part in parts[: len(parts) - case.n_boosts]], axis=0)
    if case.allowed is not None:
        is_shared &= case.allowed
    return np.sum([part.astype(np.float64) for part in parts], axis=0), is_shared


cases = st.builds(
    make_case,
    st.integers(0, 1 << 30),
    st.sampled_from([1, 2, 39, 40, 41, 200, 5000]),
    st.lists(st.sampled_from([1, 7, 63, 64, 65, 130, 256, 700]), max_size=2),
    st.sampled_from(["plain", "ties", "spiked", "tiny", "zeros", "passages", "others", "boosts", "allowed"]),
    st.integers(1, 4),
)


@settings(max_examples=60, deadline=None)
@example([make_case(0, 200, [17], "tiny", terms=0)], 10, False)
@given(st.lists(cases, min_size=1, max_size=2), st.sampled_from([0, 1, 3, 10, 6000]), st.booleans())
def test_no_better_passage_is_left_out(segments, k, is_limited):
    scores = [exact_scores(case) for case in segments]
    middle = float(np.median(np.concatenate([score for score, _ in scores]))) if is_limited else -np.inf
    best = BestScores(k, middle)
    found = [candidates_of(case, best) for case in segments]
    documents = []
    for number, (case, (score, is_shared)) in enumerate(zip(segments, scores)):
        owners = np.arange(len(score)) if case.ends is None else case.ends.searchsorted(np.arange(len(score)), "right")
        documents += [(-score[p], number, int(owners[p]), int(p)) for p in np.flatnonzero(is_shared)]
    first = {}
    for negative, number, owner, passage in sorted(documents):
        if -negative >= middle and len(first) < k:
            first.setdefault((number, owner), (number, passage))
    kept = {(n, int(p)) for n, (passages, uppers, _) in enumerate(found) for p in passages[uppers >= best.threshold]}
    assert set(first.values()) <= kept
    for case, (score, _), (passages, uppers, bm25) in zip(segments, scores, found):
        assert (uppers >= score[passages]).all() and (np.diff(passages) > 0).all()
        assert not case.lists or np.array_equal(bm25, bm25_of(case))
        assert k or (len(passages), best.threshold) == (0, middle)


def test_few_passages_are_candidates_and_those_that_cannot_be_are_not_read():
    case = make_case(1, 5000, [256])
    most = float(exact_scores(case)[0].max())
    few, none = (candidates_of(case, BestScores(10, least))[0] for least in (-np.inf, most + 1))
    assert 10 <= len(few) < 100 and len(none) == 0


@pytest.mark.parametrize("dimension", [1, 2, 127, 128, 129, 384])
def test_codes_are_packed_in_two_arrays_of_4_bits(dimension):
    codes = np.random.default_rng(dimension).integers(-MAX_CODE, MAX_CODE, (50, dimension), np.int8, endpoint=True)
    codes[0], codes[1] = MAX_CODE, -MAX_CODE
    packed = Codes(*pack_codes(codes), np.ones(50, np.float32), np.zeros(50, np.float32))
    assert packed.high.shape == packed.low.shape == (50, (dimension + 1) // 2)
    assert np.array_equal(packed.unpacked(dimension), codes)


@pytest.mark.parametrize("kind", ["alike", "spiked", "plain"])
@pytest.mark.parametrize("k", [0, 1, 10, 30_000])
def test_the_best_are_found_whether_the_high_bits_leave_few_rows_or_most(kind, k):
    """Without terms, in several trials: rows that are nearly the same, or have one large number, are told late."""
    case = make_case(7, 20_000, [130], "plain" if kind == "alike" else kind, terms=0)
    if kind == "alike":
        case.rows[0][:15_000] += 3 * case.rows[0][:1]  # then few are left
    case.rows[0][7000] = case.rows[0][19_999] = case.rows[0][3]  # with ties
    query = case._replace(vectors=[(case.rows[0][3] + case.vectors[0] / 3).astype(np.float32)])
    scores, is_shared = exact_scores(query)
    best = np.lexsort((np.arange(len(scores)), np.where(is_shared, -scores, np.inf)))[: min(k, int(is_shared.sum()))]
    scan, _ = scan_of(query)

    def found(_):
        return scan.candidates(BestScores(k, -np.inf), None, query.vectors[0], None, None)

    with ThreadPoolExecutor(2) as threads:
        several = list(threads.map(found, range(4)))
    for passages, uppers, _ in several:
        assert set(best.tolist()) <= set(passages.tolist()) and (uppers >= scores[passages]).all()
        assert np.array_equal(passages, several[0][0]) and np.array_equal(uppers, several[0][1])
    assert len(several[0][0]) < 300 or k > 10 or kind == "spiked"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", [8, 400])
def test_rows_that_are_no_numbers_are_seen(value, size):
    rows = np.ones((size, 70), np.float32)
    codes = codes_of(rows)
    assert DensePart(rows).is_finite and DensePart(rows, codes).is_finite
    codes.scales[size // 2] = value
    assert not DensePart(rows, codes).is_finite
    rows[size // 2, 69] = value
    assert not DensePart(rows).is_finite


def scanned(*, passages=None, span=None):
    """Find what a query shares with 200 passages, with other postings or another place of them."""
    case, best = make_case(3, 200, [8], terms=1)._replace(weights=np.ones(1)), BestScores(5, -np.inf)
    if passages is not None:
        postings = np.array(passages, np.uint32), np.ones(len(passages), np.int32)
        candidates_of(case._replace(lists=[postings]), best)
    terms = Bm25Terms(np.array([span], np.int64).T.copy(), np.ones(1), K1, B, AVERAGE)
    scan_of(case)[0].candidates(best, terms, case.vectors[0], None, None)


WRONG = {
    "float64": lambda array: array.astype(np.float64),
    "longer": lambda array: np.repeat(array, 2, axis=-1),
    "strided": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
}


def scanned_with(name, wrong):
    """Find what a query shares with 200 passages, with an array of another form."""
    case = make_case(5, 200, [256], "others")._replace(allowed=np.ones(200, np.bool_))
    scan, terms = scan_of(case)
    given = {"vectors": case.vectors[0], "sparse": case.others, "allowed": case.allowed}
    given |= codes_of(case.rows[0])._asdict()
    given[name] = WRONG[wrong](given[name])
    DensePart(case.rows[0], Codes(*(given.pop(field) for field in Codes._fields)))
    scan.candidates(BestScores(3, -np.inf), terms, **given)


test_postings_outside_of_the_segment_and_arrays_of_another_form_are_refused = refused(
    *((lambda passages=passages: scanned(passages=passages), "outside the passages", ValueError) for passages in (
        [200], [5, 1 << 31], [2**32 - 1], [9, 5000, 7])),
    *((lambda span=span: scanned(span=span), "outside the") for span in ([-1, 2], [3, 2], [0, 1 << 40])),
    *((lambda ends=ends: PassageScan(200, np.array(ends, np.int64), None, []), "do not divide") for ends in (
        [], [0, 200], [100], [100, 100, 200], [150, 100, 200], [100, 201])),
    *((lambda name=name, wrong=wrong: scanned_with(name, wrong), "the C function takes") for wrong in WRONG
      for name in ("high", "low", "scales", "errors", "vectors", "sparse", "allowed")),
)  # fmt: skip


def digests():
    """Name and hash what is found, by case."""
    for dimension, kind, passages in product(
        (1, 31, 64, 100, 256, 2500), ("plain", "ties", "passages", "others", "boosts", "allowed"), (30, 700)
    ):
        best = BestScores(10, -np.inf)
        found = candidates_of(make_case(dimension, passages, [dimension, 70], kind), best)
        content = b"".join(array.tobytes() for array in found) + repr(best.threshold).encode()
        yield f"{dimension} {kind} {passages}", hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    print(*digests(), sep="\n")
