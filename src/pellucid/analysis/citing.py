"""Which sentences of passages support the sentences of an answer, and in what they differ from it.

A sentence supports another if a logistic function of four numbers says so:

    closeness    its similarity, in standard deviations above unrelated texts of such a length (`core/background.py`)
    said         the share of the other's words that it says, each counting log(1 + sentences / (1 + those with it))
    and of both, how far they are below the best of all sentences of the passages.

The function was fitted with static-en on the training claims of SciFact by `python -m benchmarks.citations --fit`. It
tells what a sentence is about, and not whether it agrees: numbers, names and negations are compared beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pellucid.core.embedder import Embedder
from pellucid.core.query import Floats
from pellucid.errors import InputError, check_integer, check_number, shown
from pellucid.explain.explanation import Explanation
from pellucid.explain.summary import unsupported_details
from pellucid.explain.views.parts import AnyPart, Heading, TablePart, counted, shorten, visible
from pellucid.explain.views.report import Report
from pellucid.loading import load
from pellucid.progress import check_cancelled
from pellucid.text.inputs import check_texts
from pellucid.text.sentences import bundled_sentences, sentence_spans
from pellucid.text.unicode import canonicalize, lowercase
from pellucid.text.words import split_words

MIN_PROBABILITY = 0.1
"""From which a sentence is a support: the best mean F1 on the training claims of SciFact, with up to 3 a claim."""
SUPPORTED_PROBABILITY = 0.25
"""From which a support says that the sentence is supported: of training claims searched for in five abstracts, 63 % of
those with evidence and 31 % of those without, the best mean accuracy. From `MIN_PROBABILITY`, 99 % and 94 %."""
_BIAS, _COEFFICIENTS = -3.70, (0.20, 4.52, 0.09, 2.65)
_MAX_SHOWN, _MAX_SIZE = 200, 200_000_000
"""Characters of a sentence in a line; those of an answer times sentences of passages, a few hundred MB meanwhile."""
_ROLES: dict[str, Any] = {"role1": "query", "role2": "document"}


class Support(NamedTuple):
    """A sentence of a passage that supports one of the answer: `passages[passage][start:end]`."""

    passage: int  # its index in the passages, from 0
    start: int  # of the sentence, in characters of the passage as given
    end: int  # of the sentence
    text: str  # the sentence
    score: float  # its similarity to the sentence of the answer
    probability: float | None  # that it is evidence; None where the sentence of the answer is not English
    differences: tuple[str, ...]  # numbers, names and negations in which the two differ

    def __str__(self) -> str:
        """Return the place, the beginning of the sentence, the probability or else the score, and the differences."""
        value = self.score if self.probability is None else self.probability
        location = f'[passage {self.passage}, {self.start}:{self.end}] "{shorten(self.text, _MAX_SHOWN)}" {value:.2f}'
        return visible("; ".join([location, *self.differences]))


@dataclass(frozen=True)
class Citation:
    """A sentence of an answer, `answer[start:end]`, and the sentences of passages that support it."""

    start: int  # of the sentence, in characters of the answer as given
    end: int  # of the sentence
    text: str  # the sentence
    is_supported: bool  # whether a support of probability 0.25 or more differs in no number, name or negation
    supports: tuple[Support, ...]  # the most probable first; none for a sentence that nothing supports
    _model: Embedder = field(compare=False, repr=False)

    def explain(self, number: int = 0) -> Explanation:
        """Return what the score of one of the supports is made of, the first by default.

        Raises:
            InputError: there is no such support.
        """
        check_integer("number", number, 0, len(self.supports) - 1)
        return self._model.explain(self.text, self.supports[number].text, **_ROLES)

    def __str__(self) -> str:
        """Return the sentence and its supports, or "unsupported"."""
        return f"{visible(shorten(self.text, _MAX_SHOWN))} -> {'; '.join(map(str, self.supports)) or 'unsupported'}"


@dataclass(frozen=True, repr=False)
class Citations(Sequence[Citation], Report):
    """The sentences of an answer, each with what supports it: a sequence of `Citation`, and a report with views."""

    kind: ClassVar[str] = "citations"
    table: ClassVar[str] = "citations"

    answer: str
    family: str  # of the model that compared the sentences
    citations: tuple[Citation, ...]  # one for each sentence of the answer, in order

    def __getitem__(self, number: Any) -> Any:
        """Return the citation of a sentence by its number from 0."""
        return self.citations[number]

    def __len__(self) -> int:
        """Return the number of sentences of the answer."""
        return len(self.citations)

    def _parts(self) -> Iterator[AnyPart]:
        n_supported = sum(citation.is_supported for citation in self)
        yield Heading("Supported", f"{n_supported} of {counted(len(self), 'sentence')}", f"{self.family} model")
        rows = ((one.text, str(support)) for one in self for support in one.supports or ("unsupported",))
        yield TablePart.of("", ["sentence", "supported by"], rows)


def cite(
    answer: str, passages: Iterable[str], model: Any = "static-en", *, top_k: int = 3,
    min_probability: float = MIN_PROBABILITY,
) -> Citations:  # fmt: skip
    """Find the sentences of passages that support each sentence of an answer.

    A support is about what the sentence says; whether it agrees, no embedding shows. Numbers and names of the sentence
    that the passage does not have, and a negation that only one of the two has, are its `differences`. A citation
    `is_supported` if a support without differences has a probability of 0.25 or more.

    Args:
        answer: a text.
        passages: the texts that it may be drawn from.
        model: what `load` takes.
        top_k: supports of a sentence, at most.
        min_probability: of a support, 0 to 1.

    Raises:
        InputError: the answer or a passage is not a string, a number is out of range, or the texts are too long.
    """
    if not isinstance(answer, str):
        raise InputError(f"the answer is {shown(answer)} ({type(answer).__name__}); it must be a string")
    check_integer("top_k", top_k)
    check_number("min_probability", min_probability, least=0, most=1)
    opened, texts, spans, citations = load(model), check_texts(passages), sentence_spans(answer), list[Citation]()
    sentences = [(n, i, end, text[i:end]) for n, text in enumerate(texts) for i, end in sentence_spans(text)]
    check_integer(
        "characters of the answer times sentences of the passages", len(answer) * len(sentences), 0, _MAX_SIZE
    )
    found_by = evidence(opened, [answer[slice(*span)] for span in spans], [sentence for *_, sentence in sentences])
    for span, (scores, numbers, is_english) in zip(spans, found_by):
        text, values = answer[slice(*span)], probabilities(numbers)
        best = [n for n in map(int, np.argsort(-values, kind="stable")[:top_k]) if values[n] >= min_probability]
        supports = tuple(
            Support(
                *sentences[n], float(scores[n]), float(values[n]) if is_english else None,
                tuple(unsupported_details(text, sentences[n][-1], texts[sentences[n][0]])),
            )
            for n in best
        )  # fmt: skip
        agreeing = [float(values[n]) for n, support in zip(best, supports) if not support.differences]
        is_supported = max(agreeing, default=0) >= SUPPORTED_PROBABILITY
        citations.append(Citation(*span, text, is_supported, supports, opened))
    return Citations(answer, opened.family, tuple(citations))


def evidence(
    model: Embedder, answer_sentences: list[str], passage_sentences: list[str]
) -> Iterator[tuple[Floats, Floats, bool]]:
    """Yield for each sentence of an answer what speaks for sentences of passages.

    That is their similarity, float64 [found]; the four numbers of the module, [found, 4]; and whether it is English.
    """
    vocabulary = sorted(set().union(*map(_words, answer_sentences)))
    in_passages, in_answer = (
        np.array([[word in words for word in vocabulary] for words in map(_words, texts)], np.float32).reshape(
            len(texts), len(vocabulary)
        )
        for texts in (passage_sentences, answer_sentences)
    )
    similarities = np.asarray(
        model.similarity(model.encode_query(answer_sentences), model.encode_document(passage_sentences)), np.float64
    )
    for sentence, scores, of_words in zip(
        answer_sentences, similarities, in_answer * np.log1p(len(passage_sentences) / (1 + in_passages.sum(axis=0)))
    ):
        check_cancelled()
        unrelated = model.background(sentence, sentence, **_ROLES)
        scale = unrelated if len(unrelated) else model.background(*bundled_sentences()[0][:2], **_ROLES)
        numbers = np.stack(
            [(scores - scale.mean()) / (scale.std() or 1.0), in_passages @ of_words / (of_words.sum() or 1.0)], axis=1
        )
        yield scores, np.hstack([numbers, numbers - numbers.max(axis=0, initial=-np.inf)]), len(unrelated) > 0


def probabilities(numbers: Floats) -> Floats:
    """Return how probable it is that sentences of passages are evidence, float64 [found], from their four numbers."""
    return np.asarray(0.5 + 0.5 * np.tanh((_BIAS + numbers @ _COEFFICIENTS) / 2))


def _words(sentence: str) -> set[str]:
    return {lowercase(word.text) for word in split_words(canonicalize(sentence))}
