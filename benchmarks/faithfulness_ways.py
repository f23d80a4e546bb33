"""Ways to say which words a cosine rests on, others' and ours; `benchmarks/faithfulness.py` compares them.

Each takes an encoder and two texts, and gives every distinct word of the second text a value. A word that occurs more
than once is one word. Values of tokens go to the word they stand in; those outside every word, as of [CLS], to none.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from pellucid.explain.rows import CONTEXT, SHARED
from pellucid.text.words import Span, split_words

Rows = npt.NDArray[np.float64]

YARDSTICK, RANDOM = "leave one word out", "random words"
WORDS, TOKENS, BOTH = "words", "tokens", "words and tokens"
OURS = (WORDS, TOKENS, "concepts")
NOT_WEIGHTED, SECOND_ONLY = "words, not weighted", "words of the second text only"
SIMPLER = (NOT_WEIGHTED, SECOND_ONLY, BOTH)

STEPS = 20  # of the integrals of gradients
_MAX_STATES = 150_000  # token states that a forward derivative is taken of at once
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
    is_timed: bool = True  # not where the package takes another way to the same values


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
    """`Embeddings.explain` of txtai: for each piece between blanks, the score less the size of the score without it."""
    from txtai import Embeddings  # type: ignore[import-not-found]

    asked = 0

    def transform(texts: Sequence[str]) -> Any:
        nonlocal asked
        asked += len(texts)
        return subject(list(texts)).astype(np.float32)

    embeddings = Embeddings({"method": "external", "transform": transform, "content": False})
    tokens = embeddings.explain(pair.first, [pair.second])[0]["tokens"]
    spans, end = {}, 0
    for token, value in tokens:
        start = pair.second.index(token, end)
        end = start + len(token)
        spans[start, end] = float(value)
    return Found(pair.by_word(spans), asked)


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
    read = {name: value.to(subject.model.device) for name, value in read.items()}
    special = read.pop("special_tokens_mask").bool()
    empty = {**read, "input_ids": read["input_ids"].masked_fill(~special, tokenizer.pad_token_id)}
    return _Read(read, empty, spans)


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
    along = (base + _steps(STEPS).to(base.device) * (full - base)).requires_grad_()
    with torch.enable_grad(), _giving(layer, along):
        (pooled(subject, _repeated(read.features, STEPS)) @ target).sum().backward()
    values = ((full - base)[0] * along.grad.mean(dim=0)).sum(dim=1).tolist()
    return Found.added_up(pair.by_word(read.by_span(values)), values, score, 2 * STEPS)


class Jacobians(NamedTuple):
    """A setting of integrated Jacobians of both texts: a token x token matrix (Moeller et al. 2023 and 2024).

    The matrix is (a - a')^T J_a^T J_b (b - b'), J being the mean derivative of the embedding by the input of a layer,
    on the way from the reference to the text. It is the approximate form, for a model that was not tuned to a neutral
    reference. The packages take a backward pass for each number of the embedding; here a forward derivative for each
    token gives J (x - x') token by token, which is all that the matrix is made of.

    Attributes:
        layer: by whose input the derivative is taken.
        steps: points of the way, at 1, 1 - 1 / steps, ... 1 / steps of it, as both packages have them.
        ids: of the reference, (first, middle, last) token; None for padding between the text's special tokens.
        all_modules: whether the embedding is that of all modules, or of the pooling alone; its length is divided by.
    """

    layer: int
    steps: int
    ids: tuple[int, int, int] | None = None
    all_modules: bool = True

    def __call__(self, subject: Subject, pair: Pair) -> Found:
        """Return what the matrix gives to the words of the second text."""
        table, _, read = self.table(subject, pair.first, pair.second)
        score = float(subject.scores(pair.first, [pair.second])[0])
        values = pair.by_word(read.by_span(table.sum(axis=0).tolist()))
        return Found.added_up(values, table, score, self._passes(subject))

    def table(self, subject: Subject, first: str, second: str) -> tuple[Rows, _Read, _Read]:
        """Return the matrix of two texts, and how each was read."""
        (rows1, read1), (rows2, read2) = (self._contributions(subject, text) for text in (first, second))
        return rows1 @ rows2.T, read1, read2

    def _passes(self, subject: Subject) -> float:
        """Return what the package takes: for each text one pass, and a backward one for each number, of all steps."""
        layers = subject.model[0].auto_model.encoder.layer
        share = (len(layers) - self.layer % len(layers)) / len(layers)
        return 2 * share * self.steps * (1 + int(subject.model.get_embedding_dimension()))

    def _contributions(self, subject: Subject, text: str) -> tuple[Rows, _Read]:
        """Return J (x - x') of each token of a text, [tokens, d]."""
        import torch
        from torch.autograd import forward_ad
        from torch.nn.attention import SDPBackend, sdpa_kernel

        layers = subject.model[0].auto_model.encoder.layer[self.layer :]
        read = tokens_of(subject, text)
        with torch.no_grad():
            (states, *others), named = _input_of(layers[0], subject, read.features)
            (base, *_), _ = _input_of(layers[0], subject, self._reference(read))
            share = 1 - torch.arange(self.steps, device=base.device) / self.steps
            along = base + share[:, None, None] * (states - base)
            tokens, rows = len(read.spans), []
            chunk = max(1, _MAX_STATES // (self.steps * tokens))  # tokens at a time
            for start in range(0, tokens, chunk):
                part = range(start, min(start + chunk, tokens))
                direction = torch.zeros(len(part), *along.shape, device=base.device)
                for number, token in enumerate(part):
                    direction[number, :, token] = (states - base)[0, token]
                with forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):  # the others have no forward derivative
                    made = forward_ad.make_dual(along.repeat(len(part), 1, 1), direction.flatten(0, 1))
                    for layer in layers:
                        made = layer(made, *others, **named)
                        made = made[0] if isinstance(made, tuple) else made
                    mask = read.features["attention_mask"].expand(len(made), -1)
                    features = {"token_embeddings": made, "attention_mask": mask}
                    made = self._embedding(subject, features)
                    tangents = forward_ad.unpack_dual(made).tangent
                    rows.append(tangents.reshape(len(part), self.steps, -1).mean(dim=1))
            whole = torch.cat(rows) / self._embedding(subject, subject.model[0](dict(read.features))).norm()
        return whole.double().cpu().numpy(), read

    def _reference(self, read: _Read) -> dict[str, Any]:
        if self.ids is None:
            return read.empty
        first, middle, last = self.ids
        ids = read.features["input_ids"].clone().fill_(middle)
        ids[:, 0], ids[:, -1] = first, last
        return {**read.features, "input_ids": ids}

    def _embedding(self, subject: Subject, features: dict[str, Any]) -> Any:
        """Return what the modules after the transformer make of states, or the pooling alone."""
        modules = list(subject.model)[1:] if self.all_modules else list(subject.model)[1:2]
        for module in modules:
            features = module(features)
        return features["sentence_embedding"]


def _input_of(layer: Any, subject: Subject, features: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments that a layer is called with for features."""
    caught: list[tuple[Any, dict[str, Any]]] = []
    handle = layer.register_forward_pre_hook(lambda _, given, named: caught.append((given, named)), with_kwargs=True)
    try:
        subject.model[0](dict(features))
    finally:
        handle.remove()
    return caught[0]


RETRIVEX, RETRIVEX_LAST = Jacobians(0, 250), Jacobians(-1, 250)
XPLAINSIM = Jacobians(-2, 50, (0, 1, 2), all_modules=False)
"""The matrices of retrivex 0.1.0, as it comes and from the last layer, and of xplainsim 0.9.4 as it comes."""


def by_retrivex(setting: Jacobians, folder: str, first: str, second: str) -> Rows:
    """Return the matrix of two texts as the package computes it."""
    from retrivex.stransformers import IntJacobianExplainableTransformer  # type: ignore[import-not-found]

    model = IntJacobianExplainableTransformer(folder)
    layer = setting.layer % len(model[0].auto_model.encoder.layer)
    table, *_ = model.explain(
        first, second, layer_index=layer, num_interpolation_steps=setting.steps, move_to_cpu=False, show_progress=False
    )
    return np.asarray(table.numpy(), np.float64)


def by_xplainsim(setting: Jacobians, folder: str, first: str, second: str) -> Rows:
    """Return the matrix of two texts as the package computes it."""
    from xplain.attribution import ModelFactory  # type: ignore[import-not-found]

    known = {name: kind for name, (kind, _) in ModelFactory._get_model_reference_dict().items()}
    name = next((name for name in known if Path(folder).name in name), folder)
    models = {name: (known[name], folder)} if name in known else {}
    with patch.object(ModelFactory, "_get_model_reference_dict", lambda: models):  # it opens hub names alone
        model = ModelFactory.build(name, layer_idx=setting.layer, N_steps=setting.steps)
    table, *_ = model.explain_similarity(first, second, move_to_cpu=False, verbose=False)
    return np.asarray(table.numpy(), np.float64)


def simlens(subject: Subject, pair: Pair) -> Found:
    """The dimensions' products by `simlens.Explainer`, which add up to the cosine; none is of a word."""
    from simlens import Explainer  # type: ignore[import-not-found]

    first, second = subject([pair.first, pair.second])
    rows = Explainer(metric="cosine").explain(first, second, level="dim", top_k=len(first)).contributions
    values = [row.value for row in rows]
    return Found.added_up([0.0] * len(pair.words), values, float(first @ second), 0.0)


PEERS = {
    RANDOM: Way(at_random),
    YARDSTICK: Way(leave_one_out),
    "txtai": Way(txtai),
    "SHAP": Way(shapley),
    "integrated gradients": Way(integrated_gradients, plans=False),
    "retrivex": Way(RETRIVEX, plans=False, is_timed=False),
    "retrivex, last layer": Way(RETRIVEX_LAST, plans=False, is_timed=False),
    "xplainsim": Way(XPLAINSIM, plans=False, is_timed=False),
    "SimLens": Way(simlens, plans=False, kept=False),
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
