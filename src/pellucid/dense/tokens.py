"""Word pairs of a transformer that pools a mean: what each token's last state adds to the vector, word by word.

The vector of a text is a mean of the states h of its n tokens, brought to length 1, so that

    e = sum over tokens of  h / (n * length of the mean)

exactly. A state knows its neighbours: it is not what its word would say alone. Tokens are summed by the words of the
text that they stand in; what the encoder adds (its special tokens, a prompt) and what is no word are spread over the
words, or parts of their own. What lies along the text's own vector, as most of a state does, the words then share more
equally: it decides the vector's length, which a cosine does not know. One pass of the encoder for each text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from pellucid.core.arrays import Role
from pellucid.core.embedder import Embedder
from pellucid.core.fingerprint import PROBES
from pellucid.core.query import Floats
from pellucid.dense.reasons import Parts, Reasons
from pellucid.dense.tokenized import prompt_of, text_units
from pellucid.dense.vectors import check_vector_of_text, unit_vectors
from pellucid.dense.words import mean_vector
from pellucid.errors import InputError
from pellucid.explain.rows import WORD, Row
from pellucid.process import lock_of
from pellucid.text.unicode import canonicalize, canonicalize_with_offsets, lowercase
from pellucid.text.words import Span, spans_by

SPECIAL, PUNCTUATION, UNKNOWN = "(special tokens)", "(punctuation)", "(unknown words)"
"""The parts that are no word of the text. A prompt's tokens are among the first, blanks among the second."""

_SPECIAL_KEYS = {SPECIAL, PUNCTUATION, UNKNOWN}
_POOLED = {"mean", "mean_sqrt_len_tokens", "weightedmean"}
_APART = 1e-5  # of the cosine of an encoder's vector and the mean of its states from 1, over which it is no mean
_EQUAL = (
    0.8  # of the parts along the text's own vector that words share equally; chosen by deletion, on news and forums
)


class TokenReasons(Reasons):
    """The last states of an encoder that pools their mean.

    Attributes:
        model: the SentenceTransformer.
        common: the mean vector of texts at length 1, which every token carries an equal share of.
        spread: whether special tokens and punctuation are divided among the words, by the lengths of their parts.
    """

    kind: ClassVar[str] = "tokens"
    exact: ClassVar[bool] = True
    reads_all: ClassVar[bool] = True  # the encoder cuts the text itself

    def __init__(self, model: Any, common: Floats, *, spread: bool = True) -> None:
        """Take a SentenceTransformer and the mean vector of texts, float64 [dimension], as `from_model` makes them."""
        self.model, self.common, self.spread = model, common, spread

    @classmethod
    def from_model(cls, encoder: Embedder, texts: Iterable[str] | None = None, *, spread: bool = True) -> TokenReasons:
        """Return the token reasons of an encoder.

        Args:
            encoder: an `EncoderEmbedder` of a SentenceTransformer that pools a mean.
            texts: texts whose mean vector is what all have in common; None for some that come with the package.
            spread: divide special tokens and punctuation among the words, by the lengths of the words' parts; False
                makes them parts of their own.

        Raises:
            InputError: the encoder's vector is no mean of its last states; the message says why.
        """
        why = _why_not(encoder)
        if why is None:
            model: Any = encoder.model  # type: ignore[attr-defined]  # an `EncoderEmbedder`, as `_why_not` checked
            for text, vector in zip(PROBES, unit_vectors(encoder, list(PROBES))):
                cosine = _cosine(states_of(model, text, None)[0].mean(axis=0), vector)
                if cosine < 1 - _APART:
                    why = f"its vector is not the mean of its last states (cosine {cosine:.4f} for {text!r:.40})"
        if why is not None:
            raise InputError(
                f"{encoder!r} cannot be taken apart by its tokens: {why}. "
                'Take it apart by words: model.with_reasons("words")'
            )
        return cls(model, mean_vector(encoder, texts), spread=spread)

    def __repr__(self) -> str:
        """Return one line."""
        return f"TokenReasons({'spread' if self.spread else 'special tokens apart'})"

    def parts(self, text: str, role: Role, vector: Floats) -> Parts:
        """Return a part for each distinct word, and for the rest of the tokens.

        Raises:
            InputError: `vector` is not what the encoder gives for the text in this role.
        """
        tokens, spans, is_unknown = states_of(self.model, text, role)
        tokens /= (len(tokens) * np.linalg.norm(tokens.mean(axis=0))) or 1.0
        check_vector_of_text(_cosine(tokens.sum(axis=0), vector), text, role)
        tokens += (vector - self.common - tokens.sum(axis=0)) / len(
            tokens
        )  # less `common`, and rounding, in equal shares
        keyed_spans = [
            (UNKNOWN, (0, 0)) if unknown and keyed_span[0] not in _SPECIAL_KEYS else keyed_span
            for keyed_span, unknown in zip(_words_of_tokens(text, spans), is_unknown)
        ]
        words = spans_by(dict.fromkeys(keyed_spans))
        row_by_key = {key: row for row, key in enumerate(words)}
        parts = np.zeros((len(words), tokens.shape[1]))
        np.add.at(parts, [row_by_key[key] for key, _ in keyed_spans], tokens)
        keys = list(words)
        if self.spread and not words.keys() <= _SPECIAL_KEYS:
            parts, keys = _spread(parts, keys)
        direction = vector - self.common
        direction /= np.linalg.norm(direction) or 1.0
        along = parts @ direction
        parts -= _EQUAL * np.outer(along - along.mean(), direction)

        def row(part: int) -> Row:
            key = keys[part]
            if key in _SPECIAL_KEYS:
                return Row(key, (key,), 0.0, 0.0, key=(key,), kind=WORD)
            name = canonicalize(text[slice(*words[key][0])])
            return Row(name, (name,), 0.0, 0.0, words[key], key=(key,), kind=WORD)

        return Parts(parts, row)


def states_of(model: Any, text: str, role: Role) -> tuple[Floats, list[Span], list[bool]]:
    """Return the states that a SentenceTransformer's vector of a text is the mean of, and of each token two facts.

    These are where it stands, and whether it is the unknown token. States are weighted as the pooling weights them,
    and went through the linear layers behind it: [tokens, dimension]. The characters of what is not in the text are an
    empty or negative range.
    """
    import torch

    form = canonicalize_with_offsets(text)
    prompt, text = prompt_of(model, role), form.text
    with lock_of(model):
        features = model.preprocess([text], prompt=prompt or None, **_task(role))
        encoding = model.tokenizer.backend_tokenizer.encode(prompt + text)  # cut as there
    read = [(id, span) for id, span, is_real in zip(encoding.ids, encoding.offsets, encoding.attention_mask) if is_real]
    ids = features["input_ids"].reshape(-1)
    real = features.get("attention_mask", torch.ones_like(ids)).reshape(-1).bool()
    if ids[real].tolist() != [id for id, _ in read]:
        raise InputError(
            f"the encoder changes {text!r:.60} before it cuts it into tokens (a chat template, perhaps), so these "
            'cannot be found in it. Take scores apart by words: model.with_reasons("words")'
        )
    model.eval()
    with torch.inference_mode():
        out = model({k: v.to(model.device) if hasattr(v, "to") else v for k, v in features.items()}, **_task(role))
        pooling = model[1]
        left_out = 0 if pooling.include_prompt else min(int(features.get("prompt_length") or 0), len(read))
        states = out["token_embeddings"].reshape(len(ids), -1)[real.to(model.device)][left_out:]
        states = _pooled(states, pooling.pooling_mode, left_out)
        for module in list(model)[2:]:
            states = _through(module, states)
    vectors = states[:, : model.truncate_dim].float().cpu().numpy().astype(np.float64)
    spans = [(start - len(prompt), end - len(prompt)) for _, (start, end) in read[left_out:]]
    char_spans = [form.span(max(start, 0), end) if end > 0 else (start, end) for start, end in spans]
    return vectors, char_spans, [id == model.tokenizer.unk_token_id for id, _ in read[left_out:]]


def _task(role: Role) -> dict[str, str]:
    return {} if role is None else {"task": role}


def _pooled(states: Any, mode: str, left_out: int) -> Any:
    """Return states [tokens, dimension] such that their mean is what the pooling gives."""
    import torch

    states = states.float()
    if mode == "mean_sqrt_len_tokens":
        return states * len(states) ** 0.5
    if mode == "weightedmean":  # by their places, those of a prompt that is left out counted
        weights = torch.arange(len(states), device=states.device) + left_out + 1
        return states * (weights * len(states) / weights.sum())[:, None]
    return states


def _through(module: Any, states: Any) -> Any:
    """Return states such that their mean is what `module` makes of their mean; a bias is in each."""
    name = type(module).__name__
    if name == "Normalize":
        return states / states.mean(dim=0).norm()
    if name == "Dense":
        return module({"sentence_embedding": states.to(module.linear.weight.dtype)})["sentence_embedding"].float()
    return states


def _why_not(encoder: Embedder) -> str | None:
    """Return why an encoder's vector is not a mean of the states of tokens that are seen; None where it may be."""
    model: Any = getattr(encoder, "model", None)
    if not getattr(encoder, "is_sentence_transformer", False):
        return f"it is {'a function' if callable(model) else 'no encoder'}, which shows no states"
    kinds = [type(module).__name__ for module in model]
    if kinds[:2] != ["Transformer", "Pooling"]:
        return f"it is made of {' + '.join(kinds)}, not of a Transformer and a Pooling"
    if not getattr(model.tokenizer, "is_fast", False):
        return "its tokenizer does not say where tokens stand in a text"
    mode = model[1].pooling_mode
    if mode not in _POOLED:
        return f"its pooling is {mode!r}, not a mean"
    for kind, module in zip(kinds[2:], list(model)[2:]):
        if kind not in ("Normalize", "Dense", "Dropout"):
            return f"a {kind} follows its pooling"
        if kind == "Dense" and type(module.activation_function).__name__ != "Identity":
            return f"a Dense with {type(module.activation_function).__name__} follows its pooling, which is not linear"
        if kind == "Dense" and {module.module_input_name, module.module_output_name} != {"sentence_embedding"}:
            return "a Dense follows its pooling that works on something else than its vector"
    return None


def _cosine(first: Any, second: Any) -> float:
    """Return the cosine of two vectors; 1 where one has no length and says nothing."""
    lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / lengths if lengths else 1.0


def _words_of_tokens(text: str, spans: list[Span]) -> list[tuple[str, Span]]:
    """Return the word that each token stands in, in lower case, and where that is; empty for other tokens."""
    words = list(text_units(text))
    word_at_char = np.full(len(text), -1)
    for index, word in enumerate(words):
        word_at_char[slice(*word)] = index
    merged_into = list(range(len(words)))  # of words that one token has parts of, the first
    word_of_token: list[int] = []
    for start, end in spans:
        inside = [index for index in dict.fromkeys(word_at_char[max(start, 0) : max(end, 0)].tolist()) if index >= 0]
        word_of_token.append(inside[0] if inside else -1)
        for index in inside:
            merged_into[index] = merged_into[inside[0]]
    ends = {first: end for first, (_, end) in zip(merged_into, words)}

    def keyed_span(index: int, span: Span) -> tuple[str, Span]:
        if index < 0:
            return PUNCTUATION if span[1] > max(span[0], 0) else SPECIAL, (0, 0)
        first = merged_into[index]
        start, end = words[first][0], ends[first]
        return lowercase(canonicalize(text[start:end])), (start, end)

    return list(map(keyed_span, word_of_token, spans))


def _spread(parts: Floats, keys: list[str]) -> tuple[Floats, list[str]]:
    """Divide the parts that are no words among those that are, in proportion to their lengths.

    What unknown words add stays theirs: it says nothing of the others.
    """
    is_spread = np.array([key in (SPECIAL, PUNCTUATION) for key in keys])
    lengths = np.linalg.norm(parts, axis=1) * [key not in _SPECIAL_KEYS for key in keys]
    shares = lengths / lengths.sum() if lengths.any() else ~is_spread / (~is_spread).sum()
    parts = parts + np.outer(shares, parts[is_spread].sum(axis=0))
    return parts[~is_spread], [key for key, spread in zip(keys, is_spread) if not spread]
