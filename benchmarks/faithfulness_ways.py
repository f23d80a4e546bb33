"""Ways to say which words a cosine rests on, others' and ours; `benchmarks/faithfulness.py` compares them.

Each takes an encoder and two texts, and gives every distinct word of the second text a value. A word that occurs more
than once is one word. Values of tokens go to the word they stand in; those outside every word, as of [CLS], to none.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.rows import CONTEXT, SHARED
from pellucid.text import Span, split_words

Rows = npt.NDArray[np.float64]

YARDSTICK, RANDOM = "leave one word out", "random words"
WORDS, TOKENS, BOTH = "words", "tokens", "words and tokens"
OURS = (WORDS, TOKENS, "concepts")
NOT_WEIGHTED, SECOND_ONLY = "words, not weighted", "words of the second text only"
SIMPLER = (NOT_WEIGHTED, SECOND_ONLY, BOTH)

STEPS = 20  # of the integrals of gradients
JACOBIAN_STEPS = 10
ORDERS = 5  # of the words, each forwards and backwards, that SHAP takes them out in; its own default is 10


class Pair(NamedTuple):
    """Two texts, and the places of each distinct word of the second."""

    first: str
    second: str
    words: tuple[tuple[Span, ...], ...]

    @classmethod
    def of(cls, first: str, second: str) -> Pair:
        """Find the words, in the order of their first places; case makes no other word."""
        places: dict[str, list[Span]] = {}
        for word in split_words(second):
            places.setdefault(word.text.lower(), []).append((word.start, word.end))
        return cls(first, second, tuple(map(tuple, places.values())))

    def without(self, words: Sequence[int]) -> str:
        """Return the second text with a space in the place of each of these words."""
        left = list(self.second)
        for start, end in (span for word in words for span in self.words[word]):
            left[start:end] = [" "] + [""] * (end - start - 1)
        return "".join(left)

    def by_word(self, spans: Mapping[Span, float]) -> list[float]:
        """Return the sums of what stands in each word; what stands in several is split evenly."""
        values = [0.0] * len(self.words)
        for (start, end), value in spans.items():
            inside = [
                number
                for number, places in enumerate(self.words)
                if any(start < right and left < end for left, right in places)
            ]
            for number in inside:
                values[number] += value / len(inside)
        return values


class Found(NamedTuple):
    """What a way finds in a pair.

    Attributes:
        values: of each distinct word of the second text.
        passes: of the encoder, beyond one of each text.
        five: sum of its five largest rows, None for a way whose values do not add up to the score.
        remainder: the score less the rows of words, tokens or concepts and what all texts share.
        shared: the part of the score that the way gives to all texts, and counts in no row.
    """

    values: list[float]
    passes: float = 0.0
    five: float | None = None
    remainder: float | None = None
    shared: float = 0.0

    @classmethod
    def added_up(cls, values: Sequence[float], rows: Any, score: float, passes: float) -> Found:
        """Return what rows that add up to a score, but for a remainder, make of it."""
        rows = np.asarray(rows, np.float64).ravel()
        return cls(list(map(float, values)), passes, float(np.sort(rows)[::-1][:5].sum()), score - float(rows.sum()))


class Subject:
    """An encoder that is explained.

    Attributes:
        model: the SentenceTransformer; None for a function.
        prompt: what stands before every text.
    """

    def __init__(self, encode: Callable[[list[str]], Any], model: Any = None) -> None:
        """Take a function, list of texts -> float rows [texts, d], and the SentenceTransformer behind it."""
        self._encode = encode
        self.model = model
        self.prompt = (model.prompts.get(model.default_prompt_name) or "") if model is not None else ""
        self._known: dict[str, Rows] = {}
        self._planned: dict[str, None] | None = None

    def __call__(self, texts: Sequence[str]) -> Rows:
        """Return a row of length 1 for each text; the encoder reads what was not read before."""
        if self._planned is not None:
            self._planned.update(dict.fromkeys(texts))
            return np.ones((len(texts), 1))
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        if missing:
            rows = np.asarray(self._encode(missing), np.float64)
            rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
            self._known.update(zip(missing, rows))
        return np.array([self._known[text] for text in texts])

    def scores(self, first: str, seconds: Sequence[str]) -> Rows:
        """Return the cosines of a text to others."""
        rows = self([first, *seconds])
        cosines: Rows = rows[1:] @ rows[0]
        return cosines

    def read_ahead(self, work: Callable[[], Any]) -> None:
        """Do work twice: now without the encoder, to learn which texts it will ask for, which are then read at once."""
        self._planned = {}
        try:
            work()
            texts = list(self._planned)
        finally:
            self._planned = None
        self(texts)

    def forget(self, but: Sequence[str]) -> None:
        """Forget what was read but for some texts, so that time is taken of reading the others."""
        self._known = {text: self._known[text] for text in but}


class Way(NamedTuple):
    """A way to explain a cosine."""

    explain: Callable[[Subject, Pair], Found]
    plans: bool = True  # whether the texts it asks for do not depend on their vectors
    kept: bool = True  # whether its results may be kept between runs
    asked: Callable[[Subject, Pair], Any] | None = None  # what is timed, where `explain` does more than find values


def at_random(subject: Subject, pair: Pair) -> Found:
    """Values by chance, always the same for two texts."""
    seed = zlib.crc32("\n".join(pair[:2]).encode())
    return Found(np.random.default_rng(seed).random(len(pair.words)).tolist())


def leave_one_out(subject: Subject, pair: Pair) -> Found:
    """The fall of the score without the word."""
    alone = [pair.without([word]) for word in range(len(pair.words))]
    whole, *scores = subject.scores(pair.first, [pair.second, *alone]).tolist()
    return Found([whole - score for score in scores], len(alone))


def txtai(subject: Subject, pair: Pair) -> Found:
    """The rule of `Embeddings.explain` in txtai 9.14 (txtai/embeddings/search/explain.py, Apache 2.0).

    The text is split at blanks; a token's value is the score less the size of the score without it, the others joined
    by one blank.
    """
    tokens = pair.second.split()
    texts = [" ".join(tokens[:n] + tokens[n + 1 :]) for n in range(len(tokens))]
    whole, *scores = subject.scores(pair.first, [pair.second, *texts]).tolist()
    spans, end = {}, 0
    for token, score in zip(tokens, scores):
        start = pair.second.index(token, end)
        end = start + len(token)
        spans[start, end] = whole - abs(score)
    return Found(pair.by_word(spans), len(texts))


class _Words:
    """Which words stay, as `shap` asks for it."""

    def __init__(self, count: int) -> None:
        self.shape = (1, count)

    def __call__(self, mask: Any, given: Any) -> tuple[Any]:
        return (mask[None],)


def shapley(subject: Subject, pair: Pair) -> Found:
    """Shapley values by `shap.explainers.Permutation`: words are taken out as elsewhere here, down to no word."""
    import shap  # type: ignore[import-not-found]

    count, asked = len(pair.words), 0

    def scores(masks: Any) -> Any:
        nonlocal asked
        asked += len(masks)
        return subject.scores(pair.first, [pair.without(np.flatnonzero(~mask.astype(bool)).tolist()) for mask in masks])

    explainer = shap.explainers.Permutation(scores, _Words(count), seed=0)
    found = explainer(np.ones((1, count)), max_evals=ORDERS * (2 * count + 1), silent=True)
    return Found.added_up(found.values[0], found.values[0], float(subject.scores(pair.first, [pair.second])[0]), asked)


class _Read(NamedTuple):
    """A text as the transformer reads it."""

    features: dict[str, Any]  # one row
    empty: dict[str, Any]  # the same with the padding token for all but special tokens
    spans: list[Span]  # of each token in the text; (0, 0) outside

    def by_span(self, values: Sequence[float]) -> dict[Span, float]:
        """Return the sums of the tokens of each place."""
        sums: dict[Span, float] = {}
        for (start, end), value in zip(self.spans, values):
            if end > max(start, 0):
                sums[max(start, 0), end] = sums.get((max(start, 0), end), 0.0) + float(value)
        return sums


def tokens_of(subject: Subject, text: str) -> _Read:
    """Return what the transformer reads of a text, prompt and special tokens included."""
    tokenizer, before = subject.model.tokenizer, len(subject.prompt)
    read = tokenizer(
        subject.prompt + text, truncation=True, max_length=subject.model.max_seq_length, return_tensors="pt",
        return_offsets_mapping=True, return_special_tokens_mask=True,
    )  # fmt: skip
    spans = [(start - before, end - before) for start, end in read.pop("offset_mapping")[0].tolist()]
    special = read.pop("special_tokens_mask").bool()
    empty = {**read, "input_ids": read["input_ids"].masked_fill(~special, tokenizer.pad_token_id)}
    return _Read(dict(read), empty, spans)


def pooled(subject: Subject, features: dict[str, Any], start: int = 0) -> Any:
    """Return the rows of length 1 that the modules from `start` on make of features."""
    import torch

    features = dict(features)
    for module in list(subject.model)[start:]:
        features = module(features)
    return torch.nn.functional.normalize(features["sentence_embedding"], dim=1)


@contextmanager
def _giving(layer: Any, states: Any) -> Iterator[None]:
    """Let a layer give these states."""
    handle = layer.register_forward_hook(lambda *_: states)
    try:
        yield
    finally:
        handle.remove()


def _repeated(features: dict[str, Any], times: int) -> dict[str, Any]:
    return {name: value.expand(times, -1) for name, value in features.items()}


def _steps(count: int) -> Any:
    import torch

    return ((torch.arange(count) + 0.5) / count)[:, None, None]


def integrated_gradients(subject: Subject, pair: Pair) -> Found:
    """Integrated gradients of the cosine by the input embeddings of the second text.

    Sundararajan et al. 2017. The baseline is the text with the padding token for every token that is not special; the
    integral is a sum of 20 midpoints.
    """
    import torch

    with torch.no_grad():
        target = pooled(subject, tokens_of(subject, pair.first).features)[0]
        read = tokens_of(subject, pair.second)
        layer = subject.model[0].auto_model.get_input_embeddings()
        full, base = layer(read.features["input_ids"]), layer(read.empty["input_ids"])
        score = float(pooled(subject, read.features)[0] @ target)
    along = (base + _steps(STEPS) * (full - base)).requires_grad_()
    with torch.enable_grad(), _giving(layer, along):
        (pooled(subject, _repeated(read.features, STEPS)) @ target).sum().backward()
    values = ((full - base)[0] * along.grad.mean(dim=0)).sum(dim=1).tolist()
    return Found.added_up(pair.by_word(read.by_span(values)), values, score, 2 * STEPS)


def integrated_jacobians(subject: Subject, pair: Pair) -> Found:
    """Integrated Jacobians of both texts, from the input of the last layer: a token x token matrix.

    Moeller et al. 2023 and 2024, the approximate form for a model that was not tuned to a neutral reference, which is
    the text with padding tokens as for integrated gradients. The matrix is
    (a - a')^T J_a^T J_b (b - b'): a directional derivative for each token gives J (x - x') token by token.
    """
    (first, passes1), (second, passes2) = (_contributions(subject, text) for text in pair[:2])
    table = first[0] @ second[0].T
    values = second[1].by_span(table.sum(axis=0).tolist())
    score = float(subject.scores(pair.first, [pair.second])[0])
    return Found.added_up(pair.by_word(values), table, score, passes1 + passes2)


def _contributions(subject: Subject, text: str) -> tuple[tuple[Rows, _Read], float]:
    """Return J (x - x') of each token of a text, [tokens, d], and how many passes of the encoder that is worth."""
    import torch
    from torch.autograd import forward_ad
    from torch.nn.attention import SDPBackend, sdpa_kernel

    layers = subject.model[0].auto_model.encoder.layer
    read = tokens_of(subject, text)
    caught: list[tuple[Any, dict[str, Any]]] = []
    handle = layers[-1].register_forward_pre_hook(
        lambda _, given, named: caught.append((given, named)), with_kwargs=True
    )
    with torch.no_grad():
        for features in (read.features, read.empty):
            pooled(subject, features)
        handle.remove()
        (states, *others), named = caught[0]
        base, tokens = caught[1][0][0], len(read.spans)
        along = base + _steps(JACOBIAN_STEPS) * (states - base)  # [steps, tokens, d]
        rows = []
        for token in range(tokens):
            direction = torch.zeros_like(along)
            direction[:, token] = (states - base)[0, token]
            with forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):  # the others have no forward derivative
                made = layers[-1](forward_ad.make_dual(along, direction), *others, **named)
                made = made[0] if isinstance(made, tuple) else made
                mask = read.features["attention_mask"].expand(len(along), -1)
                made_of = pooled(subject, {"token_embeddings": made, "attention_mask": mask}, 1)
                rows.append(forward_ad.unpack_dual(made_of).tangent.mean(dim=0))
    passes = 2 * tokens * JACOBIAN_STEPS / len(layers) + 2
    return (torch.stack(rows).double().numpy(), read), passes


PEERS = {
    RANDOM: Way(at_random),
    YARDSTICK: Way(leave_one_out),
    "txtai": Way(txtai),
    "SHAP": Way(shapley),
    "integrated gradients": Way(integrated_gradients, plans=False),
    "integrated Jacobians": Way(integrated_jacobians, plans=False),
}


def ours(model: Any) -> dict[str, Way]:
    """Return our ways to explain an encoder, and simpler ones that they are made from.

    Args:
        model: an `EncoderEmbedder` whose word reasons are found.
    """
    static = model.reasons.table
    ways: dict[str, Way] = {}
    for kind in OURS if model.is_sentence_transformer else [kind for kind in OURS if kind != TOKENS]:
        made = model.with_reasons(model.reasons if kind == WORDS else kind)
        ways[kind] = own(cache(partial(explained_by, made, kind)), partial(values_by, made, kind))
    if TOKENS in ways:
        two = [ways[WORDS], ways[TOKENS]]
        ways[BOTH] = own(
            lambda *of: _mean(*(way.explain(*of) for way in two)), lambda *of: [_asked(w, *of) for w in two]
        )
    ways[NOT_WEIGHTED] = own(partial(_mapped, model.reasons, ("first", "second")))
    ways[SECOND_ONLY] = own(partial(_mapped, model.reasons, ("second",)))
    ways["the static model's own pairs"] = own(
        lambda _, pair: Found(pair.by_word(static.explain(pair.first, pair.second).word_contributions(2)))
    )
    return ways


def own(explain: Any, asked: Any = None) -> Way:
    """Return a way of ours, which is never kept: it may have changed."""
    return Way(explain, plans=False, kept=False, asked=asked)


def _asked(way: Way, subject: Subject, pair: Pair) -> Any:
    return (way.asked or way.explain)(subject, pair)


def values_by(model: Any, kind: str, subject: Subject, pair: Pair) -> tuple[Any, list[float]]:
    """Return an explanation and the values of words, from the vectors alone where no state of the encoder is needed."""
    if kind == TOKENS:
        explanation = model.explain(pair.first, pair.second)
    else:
        first, second = subject([pair.first, pair.second])
        explanation = model.explain_vectors(pair.first, first, pair.second, second)
        if kind == WORDS:
            parts = model.reasons.parts(pair.second, None, second)
            return explanation, pair.by_word(dict(parts.importance(first)))
    return explanation, pair.by_word(explanation.word_contributions(2))


def explained_by(model: Any, kind: str, subject: Subject, pair: Pair) -> Found:
    """Return what an explanation of ours says."""
    explanation, values = values_by(model, kind, subject, pair)
    shared, context = (sum(row.contribution for row in explanation.rows if row.kind == of) for of in (SHARED, CONTEXT))
    named = (row.contribution for row in explanation.rows if row.kind not in (SHARED, CONTEXT))
    five = sum(sorted(named, reverse=True)[:5])
    return Found(values, 2.0 * (kind == TOKENS), five, context + explanation.remainder, shared)


def _mean(one: Found, other: Found) -> Found:
    return Found([(a + b) / 2 for a, b in zip(one.values, other.values)], one.passes + other.passes)


def _mapped(reasons: Any, known: tuple[str, ...], subject: Subject, pair: Pair) -> Found:
    """Return the products of words of the static table, mapped and no more, with each other or with the real vector."""
    first, second = subject([pair.first, pair.second])
    parts, spans = _parts(reasons, pair.second)
    other = _parts(reasons, pair.first)[0] if "first" in known else (first - reasons.common)[None]
    table = other @ parts.T
    shared = float((first + second - reasons.common) @ reasons.common)
    values: dict[Span, float] = {}
    for places, value in zip(spans, table.sum(axis=0).tolist()):
        for place in places:
            values[place] = values.get(place, 0.0) + value / len(places)
    found = Found.added_up(pair.by_word(values), table, float(first @ second) - shared, 0.0)
    return found._replace(shared=shared)


def _parts(reasons: Any, text: str) -> tuple[Rows, list[tuple[Span, ...]]]:
    words = reasons.table.text_words(text)
    rows = reasons.table.vectors_for(words.rows, words.spelled).astype(np.float64) * words.counts[:, None]
    rows /= np.linalg.norm(rows.sum(axis=0)) or 1.0
    return rows @ reasons.arrays["map"], [words.row(number).spans1 for number in range(len(rows))]
