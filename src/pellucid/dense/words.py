"""Estimated reasons of any encoder: pairs of words, from two stored vectors and a fitted table, without a pass.

A static model's embedding of a text is a mean of word vectors; a matrix, fitted by least squares on some thousand
texts, brings it near to the encoder's vector of the same text. With c the encoder's vector less the mean of all texts
and less the directions that say a text's length and script (`form_directions`), a word begins as

    y_w = count of w * its vector * matrix / length of the static sum

and has the weight a_w that fits c best and stays near 1 (ridge regression): the real vector says how much of each word
is in it. The sum W of the a_w y_w points to where the words alone would put the text. It is brought to the length of c
as far as it points to where c does:

    part of w = a_w y_w * |c| / |W| * min(1, max(0, cos(W, c)) / full fit) ** 3

so that the words of another text, which point elsewhere, are credited with little. Small words lie along W in nearly
every text and change its length more than its direction, so `EVEN_SHARE` of what words have along W is divided among
them equally; their sum stays. What the two texts' parts leave of the score is *context*: what the encoder makes of the
words together, such as order and negation. It is one term and never shared out. A word without a vector, and a word
that negates others, has no part.

No pass of the encoder is needed. The idea of word vectors made from an encoder is that of SWE (Wada et al., section
3.1); map, weights and lengths are ours.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pellucid.core.arrays import Role
from pellucid.core.embedder import Embedder, Vectors
from pellucid.core.fingerprint import PROBES, check_same, fingerprint, same_model, same_vectors
from pellucid.core.query import Floats
from pellucid.dense.reasons import EncoderReasons, Parts
from pellucid.dense.vectors import at_length_1, checked_vectors, form_directions, unit_vectors
from pellucid.errors import InputError, ModelFolderError, WritingError, warn
from pellucid.explain.rows import WORD, Row
from pellucid.persistence.folder import bundled_models, cache_folder, check_family, read_config, saving
from pellucid.persistence.store import is_sound, read_tensors, write_tensors
from pellucid.progress import Progress
from pellucid.static.embedder import StaticEmbedder, static_model
from pellucid.text.function_words import negations
from pellucid.text.inputs import check_texts
from pellucid.text.sentences import bundled_sentences
from pellucid.text.tables import Corpus, read_texts
from pellucid.text.unicode import lowercase
from pellucid.text.words import Span, Vocabulary, Word

TABLES = ("static-en", "static-multi")
"""The bundled tables that are tried where none is given."""

MIN_FIT_TEXTS, MAX_FIT_TEXTS = 200, 200_000
_HELD_OUT_EVERY, _MAX_HELD_OUT = 8, 1_000  # one text in so many is not fitted on but judged, at most so many
_RIDGE = 0.3  # of the least squares, in texts

WEIGHT_RIDGE = 1.9
"""How strongly weights of words are kept near 1: times the variance that words leave over what they explain, in mean
squared lengths of a word's part, and at least 1.

The less words explain, the more free weights bend the words of any text towards any vector.
"""
FULL_FIT_RATIO = 0.75
"""The cosine of words and vector that counts as a full fit, over the median of texts held out.

Words that fit the vector of a text less than that have shorter parts.
"""
FIT_POWER = 3
"""How steeply they get shorter: the least power with which words that stand in neither text get at most 10 % of own
words' credit, on the collections and encoders of docs/results-reasons.md."""
EVEN_SHARE = 0.15
"""Of what words have along their own sum, divided among them equally."""

_IMPORTANCE_EVEN, _OOV_WEIGHT = 0.7, 3.0
"""The same share for importance, chosen for agreement with leave-one-out (docs/results-reasons.md); and how large a
word without a vector is taken to be, in the largest part of the text."""

_BLOCK_TEXTS = 1_024  # encoded in one call
_MAX_UNSTEADY = 1e-2  # difference of a coordinate of one text, at length 1, in two calls
_N_PROBED, _MULTILINGUAL_SHARE = 100, 0.5  # translations looked for; share found by an encoder of both languages
_MIN_EXPLAINED = 0.2  # of the variance; words that explain less are warned of
_MIN_FULL_FIT = 0.1  # of an encoder whose vectors words hardly fit
_EPS = 1e-9
_MAX_STORED = 1e15  # of a number in saved reasons
_BUNDLED = Path(__file__).parent.parent / "bundled" / "reasons"


@dataclass(frozen=True)
class Fit:
    """What fitting word reasons found, on texts that were not fitted on.

    Attributes:
        table: the static model whose words are used.
        texts: fitted on, those held out included.
        explained: share of the variance of the encoder's vectors that words explain (R2), before they are weighted and
            without what says the form of a text.
        full_fit: cosine of a text's words and its vector from which the words speak for its whole length.
    """

    table: str
    texts: int
    explained: float
    full_fit: float = 0.6


class WordReasons(EncoderReasons):
    """Words of a static model, mapped into the space of one encoder.

    Attributes:
        table: the static model.
        fit: how well the words fit, and what they were fitted on.
        fingerprint: of the encoder.
        is_ready_made: whether they come with the package.
    """

    kind: ClassVar[str] = "words"
    has_context: ClassVar[bool] = True
    is_ready_made = False

    def __init__(
        self, table: StaticEmbedder, arrays: Mapping[str, Any], fit: Fit, fingerprint: Mapping[str, Any]
    ) -> None:
        """Take what `fit_words` makes.

        Args:
            table: the static model.
            arrays: "map" [table's dimension, dimension], "common" [dimension] and "form" [directions, dimension], the
                orthonormal directions that say the form of a text, if any.
            fit: how well they fit.
            fingerprint: of the encoder.
        """
        self.table, self.fit, self.fingerprint = table, fit, dict(fingerprint)
        self.arrays = dict(arrays)
        self.common = arrays["common"].astype(np.float64)
        self._form: Floats = arrays["form"].astype(np.float64)
        self._map: Vectors = arrays["map"].astype(np.float32)  # what float32 loses is part of the context
        explained = min(max(fit.explained, _MIN_EXPLAINED), 1.0)
        self._ridge = max(1.0, WEIGHT_RIDGE * (1.0 - explained) / explained)

    def __repr__(self) -> str:
        """Return one line: the words' model, and how much of the variance they explain."""
        return f"WordReasons({self.fit.table}, {self.fit.texts:,} texts, R2 {self.fit.explained:.2f})"

    def parts(self, text: str, role: Role, vector: Floats) -> Parts:
        """Return a part for each distinct word with a vector in the table, except words that negate others."""
        table_words, oov_words = _words(self.table.vocabulary, text)
        keys, words_by_part = list(table_words), [*table_words.values(), *oov_words.values()]
        oov_counts = np.array(list(map(len, oov_words.values())), np.float64)
        centred = self.centred(vector)
        parts = self._account(self._mapped(table_words), centred)

        def row(number: int) -> Row:
            words = words_by_part[number]
            name, spans = words[0].text, tuple((word.start, word.end) for word in words)
            return Row(name, (name,), 0.0, 0.0, spans, key=(self.table.vocabulary.forms[keys[number]],), kind=WORD)

        def importance(vector2: Floats) -> list[tuple[Span, float]]:
            values = _importance(parts, oov_counts, centred, self.centred(vector2)).tolist()
            return [
                ((w.start, w.end), value / len(words)) for words, value in zip(words_by_part, values) for w in words
            ]

        def spans() -> list[tuple[Span, ...]]:
            return [tuple([word[1:] for word in words]) for words in table_words.values()]

        return Parts(parts, row, spans=spans, importance=importance)

    def centred(self, vectors: Floats) -> Floats:
        """Return vectors less the mean of all texts, and less what says the form of a text."""
        centred = vectors - self.common
        return centred - centred @ self._form.T @ self._form

    def words_without_part(self, text: str) -> tuple[Span, ...]:
        """Return the words that the table lacks; those that negate others are known, though they have no part."""
        oov_words = _words(self.table.vocabulary, text)[1].items()
        return tuple(sorted(word[1:] for lower, words in oov_words if lower not in negations() for word in words))

    def _mapped(self, words: Mapping[int, Sequence[Word]]) -> Floats:
        """Return words in the encoder's space [words, dimension], over the length of the static sum."""
        counts = np.array(list(map(len, words.values())), np.float32)
        sums = self.table.word_vectors(np.array(list(words), np.int64)) * counts[:, None]
        total = sums.sum(axis=0)
        return ((sums / (_length(total) or 1.0)) @ self._map).astype(np.float64)

    def fit_cosine(self, text: str, centred: Floats) -> float:
        """Return how far the words of a text point to where its vector, less the mean of all, does: a cosine."""
        total = _weighted(self._mapped(_words(self.table.vocabulary, text)[0]), centred, self._ridge).sum(axis=0)
        return float(total @ centred) / max(_length(total) * _length(centred), _EPS)

    def _account(self, mapped: Floats, centred: Floats) -> Floats:
        """Return the parts of a text's centred vector [words, dimension]; see the equations above."""
        parts = _weighted(mapped, centred, self._ridge)
        words_vector = parts.sum(axis=0)
        length, of_text = _length(words_vector), _length(centred)
        if not length or not of_text:
            return np.zeros_like(parts)
        direction = words_vector / length
        along = parts @ direction
        fit = min(1.0, max(0.0, float(direction @ centred) / of_text) / self.fit.full_fit)
        return (parts - EVEN_SHARE * np.outer(along - along.mean(), direction)) * (fit**FIT_POWER * of_text / length)

    def save_pretrained(self, path: str | Path) -> None:
        """Write the reasons to folder `path`, whole or not at all; a table that does not come with us is written too.

        Raises:
            InputError: `path` holds something else.
            WritingError: it cannot be written.
        """
        config = {"way": self.kind, "encoder": self.fingerprint, "fit": vars(self.fit)}
        with saving(path, "reasons", config, has_card=False) as folder:
            write_tensors(folder / "reasons.safetensors", self.arrays)
            if self.fit.table not in bundled_models():
                self.table.save_pretrained(folder / "table")
            config["table"] = fingerprint(self.table)

    @classmethod
    def from_pretrained(cls, path: str | Path, encoder: Embedder) -> WordReasons:
        """Open reasons that were saved.

        Args:
            path: the folder.
            encoder: the encoder that they are of.

        Raises:
            ModelFolderError: nothing whole is there, or it was fitted to another encoder.
        """
        folder = Path(path)
        config = check_family(folder, "reasons")
        check_same(f"{encoder!r}, for the reasons in {folder},", fingerprint(encoder), config.get("encoder"),
                   "Fit them to this one: model.fit_reasons(texts)")  # fmt: skip
        return cls._read(folder, config, encoder)

    @classmethod
    def _read(cls, folder: Path, config: Mapping[str, Any], encoder: Embedder) -> WordReasons:
        try:
            fit = Fit(**config["fit"])
            numbers = fit.explained, fit.full_fit
            is_fit = type(fit.table) is str and type(fit.texts) is int and {*map(type, numbers)} <= {int, float}
            if config.get("way") != cls.kind or not is_fit:
                raise ModelFolderError(f"{folder} holds no reasons by words: {fit!r:.200}")
            if not all(abs(number) < _MAX_STORED for number in numbers) or not 0 < fit.full_fit <= 1:
                raise ModelFolderError(f"{folder} holds no reasons that were fitted: {fit!r:.200}")
            is_bundled = fit.table in bundled_models()
            table = _bundled(fit.table) if is_bundled else StaticEmbedder.from_pretrained(folder / "table")
            arrays, _ = read_tensors(folder / "reasons.safetensors")
        except (KeyError, TypeError) as error:
            raise ModelFolderError(f"{folder} holds no whole reasons: {error}") from error
        size = table.get_embedding_dimension(), encoder.get_embedding_dimension()
        arrays.setdefault("form", np.zeros((0, size[1])))  # as bundled
        shapes = {name: array.shape for name, array in arrays.items()}
        if shapes != {"map": size, "common": size[1:], "form": arrays["form"].shape[:1] + size[1:]}:
            raise ModelFolderError(
                f"{folder / 'reasons.safetensors'} has the shapes {shapes}; {table!r} and {encoder!r} have {size}"
            )
        if not all(is_sound(array, _MAX_STORED) for array in arrays.values()):
            raise ModelFolderError(
                f"{folder / 'reasons.safetensors'} holds NaN, infinity or numbers beyond {_MAX_STORED:g}"
            )
        check_same(f"{table!r}, the words of the reasons in {folder},", fingerprint(table), config.get("table"),
                   "Fit them again: model.fit_reasons(texts)")  # fmt: skip
        return cls(table, arrays, fit, config["encoder"])


@lru_cache(maxsize=32)  # a text's parts and its unknown words are asked for one after the other
def _words(vocabulary: Vocabulary, text: str) -> tuple[Mapping[int, list[Word]], Mapping[str, list[Word]]]:
    """Return the words of a text that have a part, by row of the table, and all others, in lower case."""
    table_words: dict[int, list[Word]] = {}
    oov_words: dict[str, list[Word]] = {}
    for word in vocabulary.split(text):
        row, lower = _row_and_lower(vocabulary, word.text)
        if row >= 0:
            table_words.setdefault(row, []).append(word)
        else:
            oov_words.setdefault(lower, []).append(word)
    return table_words, oov_words


@lru_cache(maxsize=1 << 14)  # words: those of a corpus are met again and again
def _row_and_lower(vocabulary: Vocabulary, word: str) -> tuple[int, str]:
    """Return the row of a word that has a part, else -1, and the word in lower case."""
    lower = lowercase(word)
    has_part = lower not in negations() and (word in vocabulary or lower in vocabulary)
    return vocabulary.row(word) if has_part else -1, lower


def _weighted(mapped: Floats, centred: Floats, ridge: float) -> Floats:
    """Return words [words, dimension] times the weights near 1 that fit the vector best."""
    if not len(mapped):
        return mapped
    strength = max(ridge * float(np.einsum("wd,wd->", mapped, mapped)) / len(mapped), _EPS)
    return _solve(mapped, strength, mapped @ centred + strength)[:, None] * mapped


def _solve(rows: Floats, ridge: float, target: Floats) -> Floats:
    """Return x of (rows @ rows.T + ridge) x = target, for a matrix [words, d]; memory is linear in the words."""
    n_words, d = rows.shape
    if n_words <= d:
        gram = rows @ rows.T
        gram.flat[:: n_words + 1] += ridge
        return np.linalg.solve(gram, target).astype(np.float64, copy=False)
    inner = np.linalg.solve(rows.T @ rows + ridge * np.eye(d), rows.T @ target)  # by Woodbury's identity
    return (target - rows @ inner) / ridge


def _importance(parts: Floats, oov_counts: Floats, centred: Floats, vector2: Floats) -> Floats:
    """Return an estimate of how much the score with `vector2` falls without each word: an order, not an account.

    When a word goes, some of the context goes too: it is shared among the words by size here, and those beyond `parts`,
    which have no vector, get a share as if they were large. What lies along the text's own vector changes its length,
    which a cosine does not know, and is divided more equally.
    """
    sizes = np.linalg.norm(parts, axis=1)
    sizes = np.append(sizes, _OOV_WEIGHT * (sizes.max(initial=0.0) or 1.0) * oov_counts)
    of_context = np.outer(sizes / (sizes.sum() or 1.0), centred - parts.sum(axis=0))
    of_context[: len(parts)] += parts
    direction = centred / (_length(centred) or 1.0)
    along = of_context @ direction
    even = along.sum() / max(len(along), 1) - along
    return np.asarray(of_context @ vector2 + _IMPORTANCE_EVEN * even * float(direction @ vector2))


def fit_words(
    encoder: Embedder,
    corpus: Corpus | None = None,
    vectors: Any = None,
    *,
    table: StaticEmbedder | None = None,
    show_progress_bar: bool = True,
) -> WordReasons:
    """Fit the words of a static model to an encoder; see `EncoderEmbedder.fit_reasons`."""
    if corpus is None:
        texts, name = open_texts(encoder)
        names: Sequence[str] = [name]
    else:
        texts, names = check_texts(islice(read_texts(corpus), MAX_FIT_TEXTS)), TABLES
    if len(texts) < MIN_FIT_TEXTS:
        raise InputError(
            f"{len(texts)} texts are too few to fit reasons on; give at least {MIN_FIT_TEXTS}, best thousands"
        )
    if vectors is None:
        first, second = (unit_vectors(encoder, list(PROBES)) for _ in range(2))
        apart = float(np.abs(first - second).max())
        if apart > _MAX_UNSTEADY:
            raise InputError(
                f"{encoder!r} is not deterministic: coordinates of a text differ by up to {apart:.3f} between two "
                "calls. Turn off dropout or sampling (model.eval()), and fit again"
            )
        blocks = []
        with Progress("fitting reasons", total=len(texts), enabled=show_progress_bar) as progress:
            for start in range(0, len(texts), _BLOCK_TEXTS):
                blocks.append(unit_vectors(encoder, texts[start : start + _BLOCK_TEXTS]))
                progress.advance(len(blocks[-1]))
        rows = np.concatenate(blocks)
    else:
        rows = at_length_1(checked_vectors(vectors, texts, "vectors", None))
    tables = map(_bundled, names) if table is None else [static_model(table, "reasons")]
    fitted = [_fitted(table, texts, rows, fingerprint(encoder)) for table in tables]
    best = max(fitted, key=lambda reasons: reasons.fit.explained)
    if best.fit.explained < _MIN_EXPLAINED:
        warn(
            f"the words of {best.fit.table} explain only {max(best.fit.explained, 0.0):.0%} of the variance of the "
            f"vectors of {encoder!r}; its reasons say little. Fit them on texts like yours, or with a static model of "
            "their language: model.fit_reasons(texts, table=...)"
        )
    return best


def _fitted(
    table: StaticEmbedder, texts: list[str], vectors: Vectors, encoder_fingerprint: Mapping[str, Any]
) -> WordReasons:
    """Fit one table, and judge it on texts held out."""
    rows = vectors.astype(np.float64)
    common = rows.mean(axis=0)
    rows -= common
    embeddings = table.encode(texts).astype(np.float64)
    is_held_out = np.zeros(len(texts), np.bool_)
    is_held_out[:: max(_HELD_OUT_EVERY, len(texts) // _MAX_HELD_OUT)] = True
    form = form_directions(texts, rows, is_held_out)
    rows -= rows @ form.T @ form
    fit_embeddings, fit_rows = embeddings[~is_held_out], rows[~is_held_out]
    matrix = np.linalg.solve(
        fit_embeddings.T @ fit_embeddings + _RIDGE * np.eye(embeddings.shape[1]), fit_embeddings.T @ fit_rows
    )
    residuals = rows[is_held_out] - embeddings[is_held_out] @ matrix
    variance = float((rows[is_held_out] ** 2).sum())
    explained = 1.0 - float((residuals**2).sum()) / variance if variance > _EPS else 0.0
    name = table.source if table.source in bundled_models() else "table"
    arrays = {"map": matrix, "common": common, "form": form}
    reasons = WordReasons(table, arrays, Fit(name, len(texts), explained), encoder_fingerprint)
    held_out = np.flatnonzero(is_held_out).tolist()
    centred = reasons.centred(vectors[held_out].astype(np.float64))
    cosines = [reasons.fit_cosine(texts[n], row) for n, row in zip(held_out, centred)]
    full_fit = min(max(FULL_FIT_RATIO * float(np.median(cosines)), _MIN_FULL_FIT), 1.0)
    reasons.fit = replace(reasons.fit, full_fit=full_fit)
    return reasons


def _length(vector: Any) -> float:
    return math.sqrt(vector @ vector)


def words_for(encoder: Embedder, *, show_progress_bar: bool = True) -> WordReasons:
    """Return word reasons of an encoder: those that come with us, those kept from before, or else fitted and kept.

    They are kept in `~/.cache/pellucid/reasons`, below `$XDG_CACHE_HOME` where set.
    """
    identity = fingerprint(encoder)
    stored = stored_words(encoder, identity)
    if stored is not None:
        return stored
    reasons = fit_words(encoder, show_progress_bar=show_progress_bar)
    folder = cache_folder("reasons") / hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
    shutil.rmtree(folder, ignore_errors=True)  # what is not whole
    try:
        reasons.save_pretrained(folder)
    except (WritingError, InputError) as error:
        warn(f"the reasons of {encoder!r} cannot be kept, and will be fitted again: {error}")
    return reasons


def stored_words(encoder: Embedder, identity: Mapping[str, Any] | None = None) -> WordReasons | None:
    """Return the bundled or cached word reasons of an encoder, None without; `identity` is its fingerprint if known."""
    identity = identity or fingerprint(encoder)
    for folder in (_BUNDLED / "minilm", *sorted(cache_folder("reasons").glob("*"))):
        try:
            config = read_config(folder)
        except ModelFolderError:  # of a newer version, or being written
            continue
        if not same_model(identity, config.get("encoder")) and not same_vectors(identity, config.get("probes")):
            continue
        try:
            ready = WordReasons._read(folder, check_family(folder, "reasons"), encoder)
        except ModelFolderError as error:
            if folder.parent == _BUNDLED:
                raise
            warn(f"the reasons of {encoder!r} that were kept cannot be used: {error}")
            break
        ready.is_ready_made = folder.parent == _BUNDLED
        return ready
    return None


@cache
def _bundled(name: str) -> StaticEmbedder:
    """Return a bundled table, which the reasons of all encoders share."""
    return StaticEmbedder.from_pretrained(name)


def open_texts(encoder: Embedder) -> tuple[list[str], str]:
    """Return sentences that come with us to fit an encoder on, and the static model whose words they are.

    English ones for an encoder that does not match translations; else of five languages.
    """
    english, pairs = bundled_sentences()
    tried = pairs[:: max(1, len(pairs) // _N_PROBED)]
    first, second = (unit_vectors(encoder, [row[side] for row in tried]) for side in (0, 1))
    share_matched = float(((first @ second.T).argmax(axis=1) == np.arange(len(tried))).mean())
    if share_matched < _MULTILINGUAL_SHARE:
        return english, TABLES[0]
    return [*english[: len(english) // 4], *(text for row in pairs for text in row)], TABLES[1]
