"""The settings of an index: what was chosen when it was made, and the weights of the parts of a score and of words.

They come from a user or, in a commit, from anyone: `check_stored` sees that they are such as are written, and
`check_analyser`, which is left out before a rebuild, that the terms of queries are those that were counted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.errors import IndexFolderError, InputError, check_integer, shown
from pellucid.index import bm25
from pellucid.index.query import Synonyms, Weights
from pellucid.index.terms import Analyser
from pellucid.text.unicode import normalize

BM25 = "bm25"
"""The name of the part that is no model."""

STATIC_WEIGHT, TRANSFORMER_WEIGHT = 0.3, 0.4
"""Of all models together, beside BM25."""

MAX_WEIGHT = 1e6
MAX_STEER = 10.0
MAX_SYNONYM_CHARS = 200  # of a word or its synonym, whose terms are remembered
_PRECOMPUTED_KEY = "given_vectors"

_FINGERPRINT = {"stored": str, "functions": [{"dimension": int, "probes": [[float]]}]}
_SETTINGS = {
    "bm25": bool,
    "language": str,
    "stop_words": (None, [str]),
    "passage_characters": int,
    "weights": dict,
    "models": [
        {"name": str, "source": (None, str), "copy": (None, str), "files": {str: str}, "dimension": int,
         "fingerprint": _FINGERPRINT}
    ],
}  # fmt: skip


class Calibration(NamedTuple):
    """The probability that a best hit of some score answers its query, for searches with some weights.

    Half of the queries are taken to have an answer.

    Attributes:
        slope: of the log odds over the score.
        intercept: the log odds at a score of 0.
        weights: of the parts of the score.
        word_weights: of words of the query.
    """

    slope: float
    intercept: float
    weights: Mapping[str, float]
    word_weights: Mapping[str, float]

    def probability(self, score: float) -> float:
        """Return the probability at a score, from 0 to 1."""
        return 0.5 + 0.5 * math.tanh((self.intercept + self.slope * score) / 2)

    def min_score(self, probability: float) -> float:
        """Return the lowest score that has a probability."""
        if not 0 < probability < 1:
            return math.inf if probability >= 1 else -math.inf
        return (math.log(probability / (1 - probability)) - self.intercept) / self.slope


def stored_calibration(settings: Mapping[str, Any]) -> Calibration | None:
    """Return the calibration in settings, None for none.

    Raises:
        InputError: it is none that `calibrate` gives.
    """
    stored = settings.get("calibration")
    if stored is None:
        return None
    numbers = {"slope": float, "intercept": float}
    is_sound = _fits(stored, {**numbers, "weights": dict, "word_weights": dict}) and len(stored) == 4
    if not is_sound or not all(math.isfinite(stored[name]) for name in numbers) or stored["slope"] <= 0:
        raise InputError(f"the calibration is {stored!s:.200}")
    return Calibration(**stored)


def _fits(value: Any, shape: Any) -> bool:
    """Whether a value of JSON has a shape: a type, None, one of several, a list of one, or a dict by names or type."""
    if isinstance(shape, tuple):
        return any(_fits(value, item_shape) for item_shape in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(item, shape[0]) for item in value)
    if shape == {str: str}:
        return isinstance(value, dict) and all(_fits(item, str) for item in value.values())
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(
            name in value and _fits(value[name], item_shape) for name, item_shape in shape.items()
        )
    return value is None if shape is None else type(value) is shape


def check_stored(settings: dict[str, Any]) -> None:
    """Check that settings are such as are written.

    Raises:
        ValueError, KeyError, TypeError, InputError: they are not.
    """
    for name, shape in _SETTINGS.items():
        if not _fits(settings[name], shape):
            raise ValueError(f"{name} of its settings: {settings[name]!s:.60}")
    if settings["passage_characters"] < 1:
        raise ValueError("passages have no length")
    for model in settings["models"]:
        _check_copy(model)
    weights, parts = settings["weights"], _part_names(settings, [model["name"] for model in settings["models"]])
    if sorted(weights) != sorted(parts):  # nor do two models have one name
        raise ValueError(f"weights are {weights!s:.200}, and the parts of the index {', '.join(parts)}")
    validate_weights(weights, parts, weights)
    validate_word_weights(None, settings)
    validate_synonyms(None, settings)
    stored_calibration(settings)


def _check_copy(model: Mapping[str, Any]) -> None:
    """Check that the copy of a model is in a subfolder of the index, and has its files there."""
    subfolder, name = model["copy"], f"{model['name']!r:.60}"
    is_inside = subfolder is None or re.fullmatch(r"models-[0-9]{1,15}/[^/\0]+", subfolder)
    if not is_inside or str(subfolder).endswith(("/.", "/..")):
        raise ValueError(f"the copy of the model {name} is at {subfolder!r:.60}")
    if any(Path(file).is_absolute() or ".." in Path(file).parts for file in model["files"]):
        raise ValueError(f"the copy of the model {name} has files outside of it")


def precomputed_parts(settings: Mapping[str, Any]) -> list[str]:
    """Return the parts that have rows from elsewhere."""
    names = settings.get(_PRECOMPUTED_KEY, [])
    return [model["name"] for model in settings["models"] if isinstance(names, list) and model["name"] in names]


def with_precomputed(settings: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return settings that say which parts have such rows."""
    return {**settings, _PRECOMPUTED_KEY: sorted(set(names))}


def chosen_settings(
    language: str, stop_words: Iterable[str] | None, passage_characters: int, weights: Weights, *, bm25: bool = True
) -> dict[str, Any]:
    """Return what a user chooses for a new index, checked; see `Index.create`."""
    check_integer("passage_characters", passage_characters, 100)
    if isinstance(stop_words, str):  # whose letters would be the words
        raise InputError(f"stop_words is {shown(stop_words)}; give a list of words")
    stops = None if stop_words is None else sorted({word.lower() for word in stop_words})
    return {
        "bm25": bool(bm25), "language": language, "stop_words": stops, "passage_characters": passage_characters,
        "weights": weights,
    }  # fmt: skip


def settings_for(settings: Mapping[str, Any], models: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with BM25's fingerprint and weights for some models: the defaults where they are None."""
    names = list(models)
    together = max((model.weight for model in models.values()), default=0.0)
    together = 1.0 if names and not settings["bm25"] else together
    default = {BM25: 1.0 - together, **{name: together / len(names) for name in names}}
    weights = validate_weights(settings["weights"], _part_names(settings, names), default)
    return {**settings, "weights": weights, "analyser": _bm25_fingerprint(settings)}


def rebuilt_settings(settings: Mapping[str, Any], models: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an index for other models; weights stay if they are of the same parts."""
    stays = set(settings["weights"]) == set(_part_names(settings, list(models)))
    return settings_for({**settings, "weights": settings["weights"] if stays else None, "calibration": None}, models)


def _part_names(settings: Mapping[str, Any], models: list[str]) -> list[str]:
    return [BM25, *models] if settings["bm25"] else models


def _bm25_fingerprint(settings: Mapping[str, Any]) -> str:
    """Return what tells whether stored halves of BM25 are comparable."""
    return f"k1 {bm25.K1}, b {bm25.B}, terms {Analyser(settings['language'], settings['stop_words']).fingerprint}"


def validate_weights(weights: Weights, parts: Sequence[str], default: Mapping[str, float]) -> dict[str, float]:
    """Return the weights of all parts, brought to the sum 1; parts that are not named count 0."""
    if not parts:
        raise InputError("an index needs a model, or BM25")
    if weights is None:
        return {part: default[part] for part in parts}
    if not isinstance(weights, Mapping):
        raise InputError(f"weights are {shown(weights)}; give a dict: name of a part -> weight")
    if unknown := [part for part in weights if part not in parts]:
        name = f"{unknown[0]:.60}" if isinstance(unknown[0], str) else shown(unknown[0])
        raise InputError(f"no part of the index is called {name}; its parts are {', '.join(parts)}")
    values: list[Any] = [weights.get(part, 0.0) for part in parts]
    if not all(map(_is_weight, values)) or not any(values):
        raise InputError(
            f"weights are {shown(weights, 200)}; they must be numbers up to a million, none negative and one above 0"
        )
    total = sum(map(float, values))
    return {part: float(value) / total for part, value in zip(parts, values)}


def _is_weight(value: Any) -> bool:
    is_number = isinstance(value, Real)  # numpy's are, too
    return is_number and 0 <= value <= MAX_WEIGHT


def validate_word_weights(weights: Weights, settings: Mapping[str, Any]) -> dict[str, float]:
    """Return what words of a query count; None takes those of the settings."""
    weights = settings.get("word_weights", {}) if weights is None else weights
    if not isinstance(weights, Mapping):
        raise InputError(f"word_weights are {shown(weights)}; give a dict: word -> weight")
    for word, factor in weights.items():
        if not isinstance(word, str) or not _is_weight(factor):
            raise InputError(f"the weight of the word {shown(word)} is {shown(factor)}; give one from 0 to a million")
    return {normalize(word).text: float(factor) for word, factor in weights.items()}


def validate_synonyms(synonyms: Synonyms, settings: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the synonyms of words of a query; None takes what the settings have."""
    synonyms = settings.get("synonyms", {}) if synonyms is None else synonyms
    if not isinstance(synonyms, Mapping):
        raise InputError(f'synonyms are {shown(synonyms)}; give a dict: word -> words, such as {{"car": ["auto"]}}')
    for word, synonyms_of_word in synonyms.items():
        is_list = isinstance(synonyms_of_word, (list, tuple))
        if not is_list or not all(
            isinstance(text, str) and len(text) <= MAX_SYNONYM_CHARS for text in (word, *synonyms_of_word)
        ):
            raise InputError(
                f"the synonyms of {shown(word)} are {shown(synonyms_of_word)}; give words of at most "
                f'{MAX_SYNONYM_CHARS} characters, such as "car": ["auto"]'
            )
    return {word: list(synonyms_of_word) for word, synonyms_of_word in synonyms.items()}


def validate_steer(steer: Weights) -> dict[str, float]:
    """Return the texts that a query is moved to or away from, with their weights other than 0."""
    if steer is None:
        return {}
    if not isinstance(steer, Mapping):
        raise InputError(f'steer is {shown(steer)}; give a dict: text -> weight, such as {{"cars": -0.5}}')
    weight: Any
    for text, weight in steer.items():
        is_number = isinstance(weight, Real) and not isinstance(weight, bool)
        if not isinstance(text, str) or not text.strip() or not is_number or not abs(weight) <= MAX_STEER:
            raise InputError(
                f"the weight of {shown(text)} in steer is {shown(weight)}; give a text, and one from -10 to 10"
            )
    return {text: float(weight) for text, weight in steer.items() if weight}


def check_analyser(settings: Mapping[str, Any], file: Path) -> None:
    """Check that BM25 was counted with this version's analyser, as the settings in `file` say."""
    fingerprint_now = _bm25_fingerprint(settings)
    if settings["bm25"] and settings.get("analyser", fingerprint_now) != fingerprint_now:
        raise IndexFolderError(
            f"BM25 in {file.parent} was counted with another stemmer, stop words, k1 or b than this pellucid has. "
            "Count anew: open the index with rebuild=True"
        )
