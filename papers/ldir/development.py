"""The development split on which anchor methods and settings are chosen, apart from every test set.

Four figures, x 100, each between cosines of a model's rows:

- paraphrase: mean reciprocal rank of an English Tatoeba sentence's paraphrase among those of 4,000 others. Two English
  sentences are paraphrases when they translate one foreign sentence.
- fidelity: Spearman's correlation of the model's cosines with the encoder's, over 12,000 pairs of held-out raw English
  sentences, from near neighbours to unrelated ones.
- medquad: mean reciprocal rank of a medical question's answer among 2,000.
- scifact: mean reciprocal rank of the first relevant abstract for SciFact's training claims; its test claims stay
  unseen.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from papers.vector_cache import Vectors, distinct, unit_rows

PAIRS, HELD_OUT, ANSWERS = 4000, 8192, 2000
_RANKS = (1, 5, 30)  # neighbours paired with a held-out sentence, beside a random one


class Pairs(NamedTuple):
    """Rows at length 1, float32 [texts, d]: row i of `left` belongs to the rows of `right` that `relevant` marks."""

    left: Vectors
    right: Vectors
    relevant: npt.NDArray[np.bool_]  # [left, right]


class Development(NamedTuple):
    """The encoded split.

    Attributes:
        pairs: name of a figure -> what is found again.
        graded: held-out sentences, and a sentence to compare with each; float32 [texts, d] at length 1.
    """

    pairs: dict[str, Pairs]
    graded: tuple[Vectors, Vectors]


def development_score(split: Development, transform: Callable[[Vectors], Vectors]) -> dict[str, float]:
    """Score a map from an encoder's unit rows to coordinates.

    Args:
        split: of the same encoder.
        transform: float32 [texts, d] -> [texts, n], as `lambda x: x @ anchors.T`.

    Returns:
        paraphrase, medquad, scifact and fidelity (see the module's text), x 100.
    """

    def unit(rows: Vectors) -> Vectors:
        return unit_rows(transform(rows))

    ranks = {name: reciprocal_rank(unit(left), unit(right), r) for name, (left, right, r) in split.pairs.items()}
    own = np.einsum("ij,ij->i", *split.graded)
    model = np.einsum("ij,ij->i", *map(unit, split.graded))
    return {name: 100 * float(value) for name, value in {**ranks, "fidelity": spearmanr(own, model)[0]}.items()}


def reciprocal_rank(queries: Vectors, documents: Vectors, relevant: npt.NDArray[np.bool_]) -> float:
    """Return the mean over queries of 1 / rank of the best relevant document; ties count against it."""
    scores = queries @ documents.T
    best = np.where(relevant, scores, -np.inf).max(axis=1, keepdims=True)
    ranks = 1 + ((scores >= best) & ~relevant).sum(axis=1)
    return float((1 / ranks).mean())


def development_split(data: Path, encode: Callable[[list[str]], Vectors]) -> Development:
    """Read and encode the split.

    Args:
        data: the folder that holds parallel/, raw_english/, retrieval_train/ and retrieval/.
        encode: list of texts -> rows; best one that keeps them.
    """
    claims, abstracts, relevant = scifact_claims(data)
    pairs = {"paraphrase": matched(paraphrases(data), encode), "medquad": matched(medquad(data), encode)}
    pairs["scifact"] = Pairs(unit_rows(encode(claims)), unit_rows(encode(abstracts)), relevant)
    return Development(pairs, graded_pairs(unit_rows(encode(held_out(data)))))


def matched(texts: Sequence[tuple[str, str]], encode: Callable[[list[str]], Vectors]) -> Pairs:
    """Return pairs of texts of which each belongs to its partner alone."""
    left, right = (unit_rows(encode(list(side))) for side in zip(*texts))
    return Pairs(left, right, np.eye(len(left), dtype=bool))


def paraphrases(data: Path, count: int = PAIRS) -> list[tuple[str, str]]:
    """Return pairs of English sentences that translate one foreign sentence; no sentence occurs twice."""
    random = np.random.default_rng(0)
    groups: dict[str, list[str]] = {}
    for path in sorted((data / "parallel" / "tatoeba").glob("en-*.tsv.xz")):
        for line in list(_lines(path))[1:]:
            english, foreign = line.split("\t")
            if len(english.split()) >= 5:
                groups.setdefault(f"{path.name} {foreign}", []).append(english)
    pairs: list[tuple[str, str]] = []
    used: set[frozenset[str]] = set()
    for key in random.permutation(sorted(groups)):
        sentences = [s for s in distinct(groups[key]) if _words(s) not in used]
        if len(sentences) < 2:
            continue
        one, two = (sentences[i] for i in random.permutation(len(sentences))[:2])
        if len(_words(one) ^ _words(two)) < 3:  # "I am" for "I'm": no test of meaning
            continue
        pairs.append((one, two))
        used |= {_words(one), _words(two)}
        if len(pairs) == count:
            break
    return pairs


def _words(sentence: str) -> frozenset[str]:
    return frozenset("".join(c if c.isalnum() else " " for c in sentence.lower()).split())


def held_out(data: Path, count: int = HELD_OUT) -> list[str]:
    """Return the last lines of the raw English corpus: no anchor may be taken from them."""
    return list(_lines(data / "raw_english" / "open_licence.txt.xz"))[-count:]


def graded_pairs(rows: Vectors, count: int = 3000) -> tuple[Vectors, Vectors]:
    """Pair each of the first `count` rows with near neighbours, farther ones and a random row."""
    left, right = [], []
    random = np.random.default_rng(0)
    cosines = rows[:count] @ rows.T
    cosines[np.arange(count), np.arange(count)] = -2
    order = np.argsort(-cosines, axis=1, kind="stable")
    for partner in [order[:, rank - 1] for rank in _RANKS] + [random.permutation(len(rows))[:count]]:
        left.append(rows[:count])
        right.append(rows[partner])
    return np.concatenate(left), np.concatenate(right)


def medquad(data: Path, count: int = ANSWERS) -> list[tuple[str, str]]:
    """Return questions with the first 60 words of their answers, all answers different; the first n are those for n."""
    random = np.random.default_rng(0)
    records = [json.loads(line) for line in _lines(data / "retrieval_train" / "medquad" / "qa.jsonl.xz")]
    pairs: dict[str, str] = {}
    for place in random.permutation(len(records)):
        question, answer = records[place]["question"], " ".join(records[place]["answer"].split()[:60])
        if len(answer.split()) >= 10 and question not in pairs.values():
            pairs.setdefault(answer, question)
        if len(pairs) == count:
            break
    return [(question, answer) for answer, question in pairs.items()]


def scifact_claims(data: Path) -> tuple[list[str], list[str], npt.NDArray[np.bool_]]:
    """Return SciFact's training claims, all abstracts, and which are right for which: bool [claims, abstracts]."""
    from papers.local_tasks import read_records
    from pellucid.evaluation.tasks import find_tasks, read_table

    task = next(task for task in find_tasks(data) if task.name == "SciFact")
    corpus = list(read_records(task.file("corpus.jsonl"), ["_id", "text"]))
    place = {str(record["_id"]): i for i, record in enumerate(corpus)}
    table = read_table(task.file("qrels/train.tsv"), ["query-id", "corpus-id", "score"])
    wanted = {str(r["_id"]): r["text"] for r in read_records(task.file("queries.jsonl"), ["_id", "text"])}
    queries = distinct(table["query-id"])
    relevant = np.zeros((len(queries), len(corpus)), bool)
    for query, document, score in zip(*table.values()):
        relevant[queries.index(query), place[document]] |= int(score) > 0
    texts = [f"{record.get('title', '')} {record['text']}".strip() for record in corpus]  # as MTEB joins them
    return [wanted[query] for query in queries], texts, relevant


def _lines(path: Path) -> Iterator[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\n")
