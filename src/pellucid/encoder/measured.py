"""Measured reasons of any encoder or reranker: Shapley values of words, found by leaving words out.

The value of some words of a text is the vector that the encoder gives for the text without the others; of no words it
is `common`, the mean of all texts. A word's part is what it adds to the words before it, on average over the orders in
which the words can be put: its Shapley value, which is a vector here. The parts add up to the text's vector less
`common`, whatever the encoder is. So the score of two texts less what all texts have in common is the sum of the
products of their parts, without context: what words do together is divided among them.

With up to `MAX_EXACT_PLAYERS` words all sets of words are encoded. Of more words random orders are drawn, the same for
the same text, each followed by its reverse (antithetic sampling, which has smaller errors), and the spread between the
pairs gives the standard error. A text of more than `MAX_PLAYERS` words is divided into phrases, sentences or groups of
these, so that the number of texts to encode is bounded.

A reranker's score of a query and a passage is taken apart in the same way: the value of some words of the passage is
the score of the passage without the others, down to the score of an empty passage.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.base import Embedder
from pellucid.embeddings import Role
from pellucid.encoder.reasons import EncoderQuery, Parts, Reasons
from pellucid.encoder.tokenized import TokenizedText, text_units
from pellucid.encoder.vectors import at_length_1, checked_vectors
from pellucid.encoder.words import mean_vector
from pellucid.errors import InputError
from pellucid.grouping import phrase_text
from pellucid.phrases import cut_into_phrases, words_of_text
from pellucid.query import Floats, Terms
from pellucid.rows import EMBEDDING, WORD, Measurement, Row
from pellucid.sentences import sentence_spans
from pellucid.text import Span
from pellucid.unicode import canonicalize, lowercase

N_ORDER_PAIRS = 3
"""Pairs of a random order and its reverse: on STS-B the values then agree with 8 other pairs by a rank correlation of
.93, and with leaving out single words by .81; 2 pairs give .91 and .78, 8 pairs .94 and .81."""
MAX_EXACT_PLAYERS = 5
"""Words of a text of which all sets are encoded: 2^5 texts, no more than the drawn orders would need."""
MAX_PLAYERS = 24
"""Words, or phrases of a longer text, that are left out one by one: at most 2 * 3 * 23 + 1 texts are encoded."""

NO_WORDS = "(no words)"
"""The part of a text that has none."""
EMPTY_PASSAGE = "the score of an empty passage"
_MIN_SAME_COSINE = (
    1 - 1e-3
)  # of a stored vector and what the encoder gives; rounding to half precision and int8 is less

Players = list[tuple[Span, ...]]
"""What is left out of a text, each with the words that it holds, by where they stand."""


class Coalitions(NamedTuple):
    """The sets of players whose values are needed, and how Shapley values follow from them."""

    members: npt.NDArray[np.bool_]  # [sets, players]; first no player, then all
    weights: Floats  # [estimates, players, sets]; each estimate @ values of the sets: Shapley values

    def values(self, of_sets: Floats) -> tuple[Floats, Floats]:
        """Return Shapley values [players, ...] and the estimates that they are the mean of [estimates, players, ...].

        Args:
            of_sets: the values of the sets, numbers [sets] or vectors [sets, dimension].
        """
        estimates = np.tensordot(self.weights, of_sets, axes=1)
        return estimates.mean(axis=0), estimates


def coalitions(n_players: int, n_pairs: int = N_ORDER_PAIRS, seed: int = 0) -> Coalitions:
    """Return the sets of `n_players` that are measured: all of few players, else those of `n_pairs` random orders."""
    if n_players <= MAX_EXACT_PLAYERS:
        return _all_sets(n_players)
    draw = np.random.default_rng(seed)
    numbers: dict[tuple[int, ...], int] = {(): 0, tuple(range(n_players)): 1}
    steps: list[tuple[int, int, int, int]] = []  # of an estimate: a player, the set with it and the set before
    for pair in range(n_pairs):
        order = draw.permutation(n_players).tolist()
        for one in (order, order[::-1]):
            before = 0
            for length, player in enumerate(one, 1):
                number = numbers.setdefault(tuple(sorted(one[:length])), len(numbers))
                steps.append((pair, player, number, before))
                before = number
    members = np.zeros((len(numbers), n_players), np.bool_)
    for number, players in enumerate(numbers):
        members[number, list(players)] = True
    weights = np.zeros((n_pairs, n_players, len(numbers)))
    for pair, player, after, before in steps:
        weights[pair, player, after] += 0.5
        weights[pair, player, before] -= 0.5
    return Coalitions(members, weights)


@lru_cache
def _all_sets(n_players: int) -> Coalitions:
    """Return all sets of a few players, with the weights of the exact Shapley values."""
    codes = sorted(range(2**n_players), key=lambda code: (code > 0) + (0 < code < 2**n_players - 1))
    members = np.array([[code >> player & 1 for player in range(n_players)] for code in codes], np.bool_)
    members = members.reshape(len(codes), n_players)
    weights = np.zeros((1, n_players, len(codes)))
    for number, inside in enumerate(members):
        size = int(inside.sum())
        for player in range(n_players):
            others = size - int(inside[player])
            orders = math.factorial(others) * math.factorial(n_players - others - 1) / math.factorial(n_players)
            weights[0, player, number] = orders if inside[player] else -orders
    return Coalitions(members, weights)


def players_of(text: str, words: Sequence[Span], max_players: int = MAX_PLAYERS) -> Players:
    """Return what is left out of a text: its words, or where they are too many phrases, sentences, or runs of these.

    Args:
        text: the text.
        words: where its words stand, in order.
        max_players: how many there may be.
    """
    if len(words) <= max_players:
        return [(word,) for word in words]
    starts = cut_into_phrases(words_of_text(text, words)).starts
    phrases = [list(range(start, end)) for start, end in zip(starts, [*starts[1:], len(words)])]
    ends = [end for _, end in sentence_spans(text)]
    sentences = [list(own) for _, own in groupby(phrases, lambda phrase: bisect_right(ends, words[phrase[0]][0]))]
    longest = max(map(len, sentences))
    length = next((n for n in range(1, longest) if sum(-(-len(s) // n) for s in sentences) <= max_players), longest)
    units = [unit for sentence in sentences for unit in _joined(sentence, -(-len(sentence) // length))]
    return [tuple(words[n] for n in unit) for unit in _joined(units, min(max_players, len(units)))]


def _joined(runs: list[list[int]], count: int) -> list[list[int]]:
    """Join neighbouring runs to `count` ones of about equally many."""
    cuts = [len(runs) * n // count for n in range(count + 1)]
    return [[word for run in runs[start:end] for word in run] for start, end in pairwise(cuts)]


def words_to_leave_out(read: TokenizedText) -> list[Span]:
    """Return where the words stand that the encoder reads of a text."""
    unread = set(read.unread)
    return [span for span in text_units(read.text[: read.end]) if span not in unread]


def without(text: str, spans: Iterable[Span]) -> str:
    """Return a text without some places, and without the doubled blanks that they leave."""
    gaps, shortened, end = sorted(spans), "", 0
    if not gaps:
        return text
    for start, stop in [*gaps, (len(text), len(text))]:
        piece = text[end:start]
        is_doubled = end and piece[:1].isspace() and (not shortened or shortened[-1].isspace())
        shortened += piece.lstrip() if is_doubled else piece
        end = max(end, stop)
    return shortened.rstrip()


def _seed(text: str) -> int:
    """Return a number that depends on the text alone, so that its orders do."""
    return int.from_bytes(hashlib.blake2b(canonicalize(text).encode("utf-8", "replace"), digest_size=8).digest(), "big")


class Variants:
    """A text without each of the sets of words whose values are needed."""

    def __init__(self, text: str, words: Sequence[Span], n_pairs: int, max_players: int) -> None:
        """Take a text and where those of its words stand that can be left out."""
        self.text = text
        self.players = players_of(text, words, max_players)
        self.coalitions = coalitions(len(self.players), n_pairs, _seed(text))

    @property
    def texts(self) -> list[str]:
        """The text without the players outside of each set; of no player, the first, nothing is encoded."""
        members = self.coalitions.members[1:]
        gaps = ([span for player in np.flatnonzero(~inside) for span in self.players[player]] for inside in members)
        return [without(self.text, spans) for spans in gaps]

    def rows(self) -> tuple[list[Row], Floats]:
        """Return a row for each distinct player, and which players it holds [rows, players]."""
        spans: dict[str, list[Span]] = {}
        number: list[int] = []
        for words in self.players:
            key = lowercase(" ".join(canonicalize(self.text[words[0][0] : words[-1][1]]).split()))
            spans.setdefault(key, []).append((words[0][0], words[-1][1]))
            number.append(list(spans).index(key))
        names = (canonicalize(phrase_text(self.text, own[0])) for own in spans.values())
        rows = [
            Row(name, (name,), 0.0, 0.0, tuple(own), key=(key,), kind=WORD)
            for name, (key, own) in zip(names, spans.items())
        ]
        holds = np.zeros((len(rows), len(number)))
        holds[number, np.arange(len(number))] = 1.0
        return rows, holds


class MeasuredReasons(Reasons):
    """Shapley values of the words of a text, or of phrases of a long one, as vectors in the space of the encoder.

    Attributes:
        encoder: the model whose vectors are taken apart.
        common: the mean vector of texts at length 1, which a text without words is taken to have.
        n_pairs: pairs of a random order of the words and its reverse.
        max_players: how many words of a text are left out; of a longer one phrases, or sentences.
    """

    kind: ClassVar[str] = "measured"
    exact: ClassVar[bool] = True
    reads_all: ClassVar[bool] = True  # what the encoder does not read is left as it is

    def __init__(
        self, encoder: Embedder, common: Floats, *, n_pairs: int = N_ORDER_PAIRS, max_players: int = MAX_PLAYERS
    ) -> None:
        """Take a model and the mean vector of texts, float64 [dimension]; `of` makes it.

        Raises:
            InputError: `n_pairs` is below 2, which has no standard error, or `max_players` below 1.
        """
        if n_pairs < 2 or max_players < 1:
            raise InputError(f"n_pairs is {n_pairs} and max_players {max_players}; give at least 2 and 1")
        self.encoder, self.common = encoder, np.asarray(common, np.float64)
        self.n_pairs, self.max_players = n_pairs, max_players

    @classmethod
    def of(cls, encoder: Embedder, texts: Iterable[str] | None = None, **options: int) -> MeasuredReasons:
        """Return the measured reasons of an encoder.

        Args:
            encoder: any model with dense vectors.
            texts: texts whose mean vector is what all have in common, some hundred; None for some that come with the
                package. Each is encoded once.
            options: `n_pairs` and `max_players`.
        """
        return cls(encoder, mean_vector(encoder, texts), **options)

    @property
    def max_texts(self) -> int:
        """How many texts are encoded at most to measure one text."""
        n_sets: int = 2 ** min(MAX_EXACT_PLAYERS, self.max_players) - 1
        return max(n_sets, 2 * self.n_pairs * (self.max_players - 1) + 1)

    def __repr__(self) -> str:
        """Return one line: what it costs."""
        return (
            f"MeasuredReasons({self.n_pairs} pairs of orders, at most {self.max_texts:,} texts encoded for each text)"
        )

    def parts(self, text: str, role: Role, vector: Floats) -> Parts:
        """Return a part for each distinct word, or phrase of a long text; the encoder reads up to `max_texts` texts.

        Raises:
            InputError: `vector` is not what the encoder gives for the text in this role.
        """
        return self._measured([(text, role, vector)])[0][0]

    def prepare(self, queries: Sequence[EncoderQuery]) -> None:
        """Measure texts together: what they need is encoded in one call for each role, each text once."""
        waiting = [query for query in queries if "parts" not in vars(query)]
        read = ("vector", "unit")
        texts = [(q.text, q.role, q.unit if any(name in vars(q) for name in read) else None) for q in waiting]
        for query, (parts, row) in zip(waiting, self._measured(texts)):
            if "vector" not in vars(query):
                query.vector = row
            query.parts = parts

    def _measured(self, texts: Sequence[tuple[str, Role, Floats | None]]) -> list[tuple[Parts, Any]]:
        """Return of each text the parts, and the row that the encoder gives for it."""
        variants = []
        for text, role, _ in texts:
            (read,) = self.encoder.tokenized([text], role) if hasattr(self.encoder, "tokenized") else (None,)
            read = TokenizedText(text, len(text)) if read is None else read
            variants.append(Variants(text[: read.end], words_to_leave_out(read), self.n_pairs, self.max_players))
        needed: dict[Role, dict[str, int]] = {}
        for (text, role, _), own in zip(texts, variants):
            of_role = needed.setdefault(role, {})
            for variant in (text, *own.texts[1:]):
                of_role.setdefault(variant, len(of_role))
        rows = {role: self._encoded(list(of_role), role) for role, of_role in needed.items()}
        measured = []
        for (text, role, vector), own in zip(texts, variants):
            numbers = [needed[role][variant] for variant in (text, *own.texts[1:])]
            row = rows[role][needed[role][text]]
            measured.append((self._parts(own, text, role, vector, rows[role][numbers]), row))
        return measured

    def _encoded(self, texts: list[str], role: Role) -> Any:
        """Return what the encoder gives for distinct texts, float32 [texts, dimension]."""
        encode = getattr(self.encoder, f"encode_{role}" if role else "encode")
        return checked_vectors(encode(texts), texts, repr(self.encoder), len(self.common))

    def _parts(self, own: Variants, text: str, role: Role, vector: Floats | None, rows: Any) -> Parts:
        """Return the parts of a text, given what the encoder gives for it and for its variants after it."""
        of_sets = np.concatenate([self.common[None], at_length_1(rows).astype(np.float64)])
        of_sets[~of_sets.any(axis=1)] = self.common  # of a text that the encoder knows nothing of
        if vector is not None and vector.any():
            if float(vector @ of_sets[1]) < _MIN_SAME_COSINE:
                raise InputError(
                    f"the vector of {text!r:.60}{'' if role is None else f' as a {role}'} has a cosine of "
                    f"{float(vector @ of_sets[1]):.3f} to what the encoder gives now: it is of another model, prompt "
                    "or role. Encode the text again, or explain it in the role in which it was encoded"
                )
            of_sets[1] = vector
        if not own.players:
            row = Row(NO_WORDS, (NO_WORDS,), 0.0, 0.0, key=(NO_WORDS,), kind=WORD)
            return Parts((of_sets[1] - self.common)[None], [row].__getitem__, n_texts=1)
        values, estimates = own.coalitions.values(of_sets)
        row_of, holds = own.rows()
        return Parts(holds @ values, row_of.__getitem__, estimates=holds @ estimates, n_texts=len(set(own.texts)))

    def products(self, first: Parts, second: Parts) -> Terms:
        """Return what each pair of parts adds to the product of two texts' vectors."""
        whole1, whole2 = first.vectors.sum(axis=0), second.vectors.sum(axis=0)
        errors = np.concatenate([standard_errors(first, whole2), standard_errors(second, whole1)])
        measurement = Measurement(first.n_texts + second.n_texts, root_mean_square(errors))
        return super().products(first, second)._replace(measurement=measurement)

    def measurement(self, parts: Parts, other: Floats) -> Measurement:
        """Return how the parts of one text were measured, where they are multiplied with a vector."""
        return Measurement(parts.n_texts, root_mean_square(standard_errors(parts, other)))


def standard_errors(parts: Parts, other: Floats) -> Floats:
    """Return the standard error of the product of each part with a vector, float64 [parts]; 0 where all is measured."""
    estimates = parts.estimates
    if estimates is None or len(estimates) < 2:
        return np.zeros(len(parts.vectors))
    products = estimates @ other
    errors: Floats = products.std(axis=0, ddof=1) / math.sqrt(len(products))
    return errors


def root_mean_square(values: Floats) -> float:
    """Return the root of the mean square of some numbers; 0 for none."""
    return float(np.sqrt(np.mean(values**2))) if len(values) else 0.0


def passage_terms(score: Callable[[list[str]], Floats], text: str, own_score: float, weight: float = 1.0) -> Terms:
    """Take the score of a passage apart by its words: what a reranker, or any function of a text, makes of them.

    Args:
        score: from texts to their scores, called once with all that is needed.
        text: the passage.
        own_score: its score.
        weight: what all values are multiplied by.

    Returns:
        A value for each distinct word, or phrase of a long passage, and the score of an empty passage; they add up to
        the score. Rows have their places as `spans2`.
    """
    own = Variants(text, list(text_units(text)), N_ORDER_PAIRS, MAX_PLAYERS)
    texts = list(dict.fromkeys(["", *own.texts[1:]]))
    scores = dict(zip(texts, score(texts).tolist()))
    of_sets = np.array([scores[""], own_score, *(scores[variant] for variant in own.texts[1:])])
    rows = [Row(EMPTY_PASSAGE, (EMPTY_PASSAGE,), 0.0, 0.0, key=(EMPTY_PASSAGE,), kind=EMBEDDING)]
    values = np.array([scores[""]])
    marks: list[tuple[Span, float]] = []
    error = 0.0
    if own.players:
        shapley, estimates = own.coalitions.values(of_sets)
        words, holds = own.rows()
        sums = holds @ shapley
        if len(estimates) > 1:
            spread = (estimates @ holds.T).std(axis=0, ddof=1) / math.sqrt(len(estimates))
            error = root_mean_square(spread)
        rows = [*(row._replace(spans1=(), spans2=row.spans1) for row in words), *rows]
        values = np.append(sums, values)
        marks = sorted(((words[0][0], words[-1][1]), value) for words, value in zip(own.players, shapley.tolist()))
    else:
        values = np.array([own_score])
    return Terms(
        values * weight,
        rows.__getitem__,
        np.array([value for _, value in marks]) * weight,
        np.array([span for span, _ in marks], np.int64).reshape(-1, 2),
        measurement=Measurement(len(texts), error * abs(weight)),
    )
