"""What static models compute, in a form to read: the reference that the C kernels are compared with."""

from collections.abc import Sequence

import numpy as np

from pellucid.core.arrays import l2_normalize
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.spelling import COMMON, NEIGHBOURS, RIDGE, NgramIndex, Predicted, Speller, _ngrams, marked_codes
from pellucid.text.unicode import lowercase


def plain_rows(model: StaticEmbedder, texts: Sequence[str]) -> np.ndarray:
    """Return the embeddings of texts: the sums of their words' vectors, in float64, at length 1."""
    rows = np.zeros((len(texts), model.get_embedding_dimension()))
    for row, text in zip(rows, texts):
        words, spelled = [word.text for word in model.vocabulary.split(text)], model.spelled_rows()
        numbers = np.array(list(map(model.vocabulary.row, words)) if spelled is None else spelled.rows(words), np.int64)
        row[:] = model.vectors_for(numbers[numbers >= 0], spelled).sum(axis=0, dtype=np.float64)
        row /= np.linalg.norm(row) or 1
    return rows


def plain_predictions(speller: Speller, words: Sequence[str]) -> Predicted:
    """Return what a speller predicts: known words with most n-grams in common, weighted by a ridge regression."""
    shape = len(words), NEIGHBOURS
    sums = np.zeros((len(words), speller.vectors.shape[1]))
    predicted = Predicted(np.full(shape, -1, np.int32), np.zeros(shape), sums)
    for word, neighbours, shares, total in zip(words, *predicted):
        nearest = _nearest(speller.index, word) if word else np.zeros(0, np.int64)
        if len(nearest):
            rows, count = speller.index.rows[nearest], len(nearest)
            neighbours[:count] = rows
            known = [lowercase(speller.vocabulary.words[row]) for row in rows.tolist()]
            shares[:count] = _shares(speller.index, [*known, word])
            total[:] = shares[:count] @ l2_normalize(speller.vectors_for(rows), np.float64)
    return predicted


def _nearest(index: NgramIndex, word: str) -> np.ndarray:
    """Return the known words, as numbers in the index, that are most similar to a word."""
    buckets = np.unique(_ngrams(*marked_codes([word]))[1])
    counts = index.starts[buckets + 1] - index.starts[buckets]
    useful = buckets[(counts > 0) & (counts <= COMMON) & (index.weights[buckets] > 0)]
    if not len(useful):
        return np.zeros(0, np.int64)
    lists = [index.members[index.starts[bucket] : index.starts[bucket + 1]] for bucket in useful.tolist()]
    candidates, positions = np.unique(np.concatenate(lists), return_inverse=True)
    shared = np.bincount(positions, np.repeat(index.weights[useful], list(map(len, lists))))
    similar = shared * shared / index.squares[candidates]
    return candidates[np.argsort(-similar, kind="stable")[:NEIGHBOURS]].astype(np.int64)


def _shares(index: NgramIndex, words: list[str]) -> np.ndarray:
    """Return the weights of all words but the last in the prediction of the last, float64 [words - 1]."""
    word_indices, buckets = _ngrams(*marked_codes(words))
    distinct, columns = np.unique(buckets, return_inverse=True)
    features = np.zeros((len(words), len(distinct)))
    features[word_indices, columns] = np.sqrt(index.weights[buckets] / 255)
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-9)
    kernel = (features @ features.T).clip(0) ** 1.5
    return np.linalg.solve(kernel[:-1, :-1] + RIDGE * np.eye(len(words) - 1), kernel[:-1, -1])
