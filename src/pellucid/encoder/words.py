"""Word pairs of any encoder: a table of word vectors mapped into its space, weighted to fit each text's own vector.

A static model's embedding of a text is a mean of word vectors; a matrix, fitted by least squares on some thousand
texts, brings it near to the encoder's vector of the same text. That gives each word of a text a part of the vector:

    c = sum over words of  a_w p_w  + rest,    p_w = count of w * its vector * matrix / length of the static sum

where c is the encoder's vector less the mean of all texts. The weights `a` are those that fit c best and stay near 1
(generalised least squares): the real vector says how much of each word is in it. The rest is what the encoder makes of
the words together: order, negation, context. When a word is left out, some of it goes too, so three quarters of it are
shared among the words by size; it is also the only trace of words that the table does not have. The last quarter stays
a rest, so that a score which the words do not account for shows as a remainder.

No pass of the encoder is needed. The idea of word vectors made from an encoder is that of SWE (Wada et al., section
3.1); map, weights and shares are ours. How well such words predict what the encoder does when they are left out, and
what else was tried, is in docs/results-reasons.md.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pellucid.base import Embedder, Vectors
from pellucid.corpus import Corpus, read_texts
from pellucid.embeddings import Role, check_texts
from pellucid.encoder.reasons import Parts, Reasons
from pellucid.encoder.vectors import at_length_1, checked_vectors, unit_vectors
from pellucid.errors import InputError, ModelFolderError, WritingError, warn
from pellucid.fingerprint import PROBES, check_same, fingerprint, same_model
from pellucid.folder import bundled_models, check_family, read_config, saving
from pellucid.progress import Progress
from pellucid.query import Floats, Integers
from pellucid.rows import WORD, Row
from pellucid.static.embedder import StaticEmbedder, static_model
from pellucid.store import is_sound, read_tensors, write_tensors
from pellucid.text import Word, shown_word
from pellucid.workfolder import WorkFolder

TABLES = ("static-en", "static-multi")
"""The bundled tables that are tried where none is given."""

_FEWEST = 200  # texts to fit on
_HELD_OUT, _MOST_HELD_OUT = 8, 1_000  # one text in so many is not fitted on but judged, at most so many
_RIDGE = 0.3  # of the least squares, in texts
_NEAR_1 = 0.3  # how strongly weights are kept near 1, in mean squared lengths of a part
_STRANGER = 3.0  # how large a word without a vector is taken to be, in the largest part of the text
_CONTEXT = 0.75  # of the rest that is shared among the words
_EQUAL = 0.6  # of the parts along the text's own vector that words share equally
_FLOOR = 0.01  # of the mean variance of the rests, added to each
_SHARD = 1_024  # texts between two checkpoints
_UNSTEADY = 1e-2  # between the coordinates of one text, at length 1, in two calls
_TRIED, _MULTILINGUAL = 100, 0.5  # sentences whose translation is looked for; the share found by one that knows both
_LITTLE = 0.2  # of the variance; words that explain less are warned of
_LEAST = 1e-9  # a mean score below it is 0
_MOST = 200_000  # texts; more add nothing
_AVERAGED = 256  # sentences whose mean stands for that of all texts
_TENSORS = ("map", "metric", "common")
_BUNDLED = Path(__file__).parent.parent / "bundled" / "reasons"


@dataclass(frozen=True)
class Fit:
    """What fitting word reasons found, on texts that were not fitted on.

    Attributes:
        table: the static model whose words are used.
        texts: fitted on, those held out included.
        explained: share of the variance of the encoder's vectors that words explain (R2), before they are weighted.
        remainder: mean size of the remainder of pairs of near texts, over their mean score.
        scale: what the products of parts are multiplied by, so that it is as small as can be.
    """

    table: str
    texts: int
    explained: float
    remainder: float = 0.0
    scale: float = 1.0


class WordReasons(Reasons):
    """Words of a static model, mapped into the space of one encoder.

    Attributes:
        table: the static model.
        fit: how well the words fit, and what they were fitted on.
        fingerprint: of the encoder.
        is_ready_made: whether they come with the package.
    """

    kind: ClassVar[str] = "words"
    is_ready_made = False

    def __init__(
        self, table: StaticEmbedder, arrays: Mapping[str, Any], fit: Fit, fingerprint: Mapping[str, Any]
    ) -> None:
        """Take what `fit_words` makes: "map" and "metric" [table's dimension, dimension], "common" [dimension]."""
        self.table, self.fit, self.fingerprint = table, fit, dict(fingerprint)
        self.arrays = {name: np.asarray(arrays[name]) for name in _TENSORS}
        self.common = self.arrays["common"].astype(np.float64)
        maps = [self.arrays["map"], self.arrays["metric"]]
        self._maps = np.concatenate(maps, axis=1, dtype=np.float32)  # what float32 loses is part of the rest

    def __repr__(self) -> str:
        """Return one line: the words' model, and how much of the variance they explain."""
        return f"WordReasons({self.fit.table}, {self.fit.texts:,} texts, R2 {self.fit.explained:.2f})"

    def parts(self, text: str, role: Role, vector: Floats) -> Parts:
        """Return a part for each distinct word: those with a vector in the table, then the strangers."""
        vocabulary = self.table.vocabulary
        known: dict[int, list[Word]] = {}
        strangers: dict[str, list[Word]] = {}
        for word in vocabulary.split(text):
            lower = word.text.lower()
            if word.text in vocabulary or lower in vocabulary:
                known.setdefault(vocabulary.row(word.text), []).append(word)
            else:
                strangers.setdefault(lower, []).append(word)
        keys, places = [vocabulary.words[row] for row in known], [*known.values(), *strangers.values()]
        keys += strangers

        def row(number: int) -> Row:
            words = places[number]
            name, spans = shown_word(words[0].text), tuple((word.start, word.end) for word in words)
            return Row(name, (name,), 0.0, 0.0, spans, key=(keys[number],), kind=WORD)

        counts = np.array(list(map(len, places)), np.float64)
        return Parts(self._vectors(np.array(list(known), np.int64), counts, vector - self.common), row)

    def _vectors(self, rows: Integers, counts: Floats, vector: Floats) -> Floats:
        """Return the parts [words, dimension] of a centred vector; the words beyond `rows` are strangers."""
        parts = np.zeros((len(counts), len(vector)))
        sums = self.table.word_vectors(rows) * counts[: len(rows), None].astype(np.float32)
        total = sums.sum(axis=0)
        length = math.sqrt(total @ total)
        if length:
            both = ((sums / length) @ self._maps).astype(np.float64)
            mapped, weighed = both[:, : len(vector)], both[:, len(vector) :]  # [words, dimension]
            near = max(_NEAR_1 * float(np.einsum("wd,wd->", weighed, mapped)) / len(rows), _LEAST)
            weights = _solve(weighed, mapped, near, weighed @ vector + near)
            parts[: len(rows)] = weights[:, None] * mapped
        # What the known words leave is the only trace of the others: they get a share of it, as if each were large.
        sizes = np.sqrt(np.einsum("wd,wd->w", parts, parts))
        beyond = _STRANGER * (sizes.max(initial=0.0) or 1.0) * counts[len(rows) :]
        shares = np.concatenate([_CONTEXT * sizes[: len(rows)], beyond]) / ((sizes.sum() + beyond.sum()) or 1.0)
        rest, own = vector - parts.sum(axis=0), vector / (math.sqrt(vector @ vector) or 1.0)
        # What lies along the text's own vector mostly changes its length, and lengths are taken away from a cosine.
        along = parts @ own + shares * (rest @ own)
        evened = _EQUAL * (along.sum() / max(len(along), 1) - along)
        parts += np.array([shares, evened]).T @ np.array([rest, own])
        parts *= math.sqrt(self.fit.scale)
        return parts

    def save_pretrained(self, path: str | Path) -> None:
        """Write the reasons to folder `path`, whole or not at all; a table that does not come with us is written too.

        Raises:
            InputError: `path` holds something else.
            WritingError: it cannot be written.
        """
        facts = {"way": self.kind, "encoder": self.fingerprint, "fit": vars(self.fit)}
        with saving(path, "reasons", facts, has_card=False) as folder:
            write_tensors(folder / "reasons.safetensors", self.arrays)
            if self.fit.table not in bundled_models():
                self.table.save_pretrained(folder / "table")
            facts["table"] = fingerprint(self.table)

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
        facts = check_family(folder, "reasons")
        check_same(f"{encoder!r}, for the reasons in {folder},", fingerprint(encoder), facts.get("encoder"),
                   "Fit them to this one: model.fit_reasons(texts)")  # fmt: skip
        return cls._read(folder, facts, encoder)

    @classmethod
    def _read(cls, folder: Path, facts: Mapping[str, Any], encoder: Embedder) -> WordReasons:
        try:
            fit = Fit(**facts["fit"])
            is_sane = math.isfinite(fit.explained + fit.remainder) and 0 < fit.scale < math.inf
            own = fit.table not in bundled_models()
            table = StaticEmbedder.from_pretrained(folder / "table") if own else _bundled(fit.table)
            arrays, _ = read_tensors(folder / "reasons.safetensors")
            shapes = {name: arrays[name].shape for name in _TENSORS}
        except (KeyError, TypeError) as error:
            raise ModelFolderError(f"{folder} holds no whole reasons: {error}") from error
        if not is_sane:
            raise ModelFolderError(f"{folder} holds no reasons: {fit} is none that was fitted")
        size = table.get_embedding_dimension(), encoder.get_embedding_dimension()
        if shapes["common"] != size[1:] or shapes["map"] != size or shapes["metric"] != size:
            raise ModelFolderError(
                f"{folder / 'reasons.safetensors'} has the shapes {shapes}; {table!r} and {encoder!r} have {size}"
            )
        if not all(is_sound(arrays[name]) for name in _TENSORS):
            raise ModelFolderError(f"{folder / 'reasons.safetensors'} holds NaN or infinity")
        check_same(f"{table!r}, the words of the reasons in {folder},", fingerprint(table), facts.get("table"),
                   "Fit them again: model.fit_reasons(texts)")  # fmt: skip
        return cls(table, arrays, fit, facts["encoder"])


def _solve(left: Floats, right: Floats, ridge: float, target: Floats) -> Floats:
    """Return x of (left @ right.T + ridge) x = target, for matrices [words, d]; memory is linear in the words."""
    n_words, d = left.shape
    if n_words <= d:
        return np.linalg.solve(left @ right.T + ridge * np.eye(n_words), target).astype(np.float64, copy=False)
    inner = np.linalg.solve(right.T @ left + ridge * np.eye(d), right.T @ target)  # by Woodbury's identity
    return (target - left @ inner) / ridge


def fit_words(
    encoder: Embedder,
    corpus: Corpus | None = None,
    vectors: Any = None,
    *,
    table: StaticEmbedder | None = None,
    work_dir: str | Path | None = None,
    show_progress_bar: bool = True,
) -> WordReasons:
    """Fit the words of a static model to an encoder; see `EncoderEmbedder.fit_reasons`."""
    if corpus is None:
        texts, name = open_texts(encoder)
        names: Sequence[str] = [name]
    else:
        texts, names = check_texts(islice(read_texts(corpus), _MOST)), TABLES
    if len(texts) < _FEWEST:
        raise InputError(f"{len(texts)} texts are too few to fit reasons on; give at least {_FEWEST}, best thousands")
    if vectors is None:
        _check_steady(encoder)
        rows = _encoded(encoder, texts, work_dir, show_progress_bar)
    else:
        rows = at_length_1(checked_vectors(vectors, texts, "vectors", None))
    tables = map(_bundled, names) if table is None else [static_model(table, "reasons")]
    fitted = [_fitted(one, texts, rows, fingerprint(encoder)) for one in tables]
    best = max(fitted, key=lambda reasons: reasons.fit.explained)
    if best.fit.explained < _LITTLE:
        warn(
            f"the words of {best.fit.table} explain only {max(best.fit.explained, 0.0):.0%} of the variance of the "
            f"vectors of {encoder!r}; its reasons say little. Fit them on texts like yours, or with a static model of "
            "their language: model.fit_reasons(texts, table=...)"
        )
    return best


def _fitted(table: StaticEmbedder, texts: list[str], vectors: Vectors, known: Mapping[str, Any]) -> WordReasons:
    """Fit one table, and judge it on texts held out."""
    rows = vectors.astype(np.float64)
    common = rows.mean(axis=0)
    rows -= common
    own = table.encode(texts).astype(np.float64)
    held = np.zeros(len(texts), np.bool_)
    held[:: max(_HELD_OUT, len(texts) // _MOST_HELD_OUT)] = True
    mine, theirs = own[~held], rows[~held]
    matrix = np.linalg.solve(mine.T @ mine + _RIDGE * np.eye(own.shape[1]), mine.T @ theirs)
    rests = theirs - mine @ matrix
    values, axes = np.linalg.eigh(rests.T @ rests / len(rests))
    metric = matrix @ (axes / (values.clip(min=0.0) + _FLOOR * values.mean() + _LEAST)) @ axes.T
    metric /= np.abs(metric).max() or 1.0  # a factor changes no weight
    wrong = rows[held] - own[held] @ matrix
    explained = 1.0 - float((wrong**2).sum() / max((rows[held] ** 2).sum(), _LEAST))
    name = table._source if table._source in bundled_models() else "table"
    arrays = {"map": matrix, "metric": metric, "common": common}
    first = WordReasons(table, arrays, Fit(name, len(texts), explained), known)
    return _scaled(first, texts, vectors.astype(np.float64), held)


def _scaled(reasons: WordReasons, texts: list[str], vectors: Floats, held: Any) -> WordReasons:
    """Scale the parts so that the pairs of words of near texts miss their scores by least, and note by how much."""
    chosen = np.flatnonzero(held)
    near = vectors[chosen] @ vectors.T
    near[np.arange(len(chosen)), chosen] = -np.inf
    partners = near.argmax(axis=1)
    used = {*chosen.tolist(), *partners.tolist()}
    sums = {n: reasons.parts(texts[n], None, vectors[n]).vectors.sum(axis=0) for n in used}
    found = np.array([sums[one] @ sums[other] for one, other in zip(chosen.tolist(), partners.tolist())])
    centred = vectors - reasons.common
    wanted = np.einsum("nd,nd->n", centred[chosen], centred[partners])
    scale = max(float(found @ wanted) / (float(found @ found) or 1.0), 1.0)
    scores = np.einsum("nd,nd->n", vectors[chosen], vectors[partners])
    remainder = float(np.abs(wanted - scale * found).mean() / max(float(scores.mean()), _LEAST))
    fit = replace(reasons.fit, scale=scale, remainder=remainder)
    return WordReasons(reasons.table, reasons.arrays, fit, reasons.fingerprint)


def words_for(encoder: Embedder, *, show_progress_bar: bool = True) -> WordReasons:
    """Return word reasons of an encoder: those that come with us, those kept from before, or else fitted and kept.

    They are kept in `~/.cache/pellucid/reasons`, below `$XDG_CACHE_HOME` where set.
    """
    known, kept = fingerprint(encoder), _kept()
    for folder in (_BUNDLED / "minilm", *sorted(kept.glob("*"))):
        try:
            facts = read_config(folder)
        except ModelFolderError:  # of a newer version, or being written
            continue
        if not same_model(known, facts.get("encoder")):
            continue
        try:
            ready = WordReasons._read(folder, check_family(folder, "reasons"), encoder)
        except ModelFolderError as error:
            if folder.parent == _BUNDLED:
                raise
            warn(f"the reasons of {encoder!r} that were kept cannot be used, and are fitted again: {error}")
            break
        ready.is_ready_made = folder.parent == _BUNDLED
        return ready
    found = fit_words(encoder, show_progress_bar=show_progress_bar)
    place = kept / hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
    shutil.rmtree(place, ignore_errors=True)  # what is not whole
    try:
        found.save_pretrained(place)
    except (WritingError, InputError) as error:
        warn(f"the reasons of {encoder!r} cannot be kept, and will be fitted again: {error}")
    return found


@cache
def _bundled(name: str) -> StaticEmbedder:
    """Return a bundled table, which the reasons of all encoders share."""
    return StaticEmbedder.from_pretrained(name)


def _kept() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pellucid" / "reasons"


def open_texts(encoder: Embedder) -> tuple[list[str], str]:
    """Return sentences that come with us to fit an encoder on, and the static model whose words they are.

    English ones for an encoder to which a sentence and its translation are strangers; else of five languages.
    """
    english, pairs = _sentences()
    tried = pairs[:: max(1, len(pairs) // _TRIED)]
    first, second = (unit_vectors(encoder, [row[side] for row in tried]) for side in (0, 1))
    found = float(((first @ second.T).argmax(axis=1) == np.arange(len(tried))).mean())
    if found < _MULTILINGUAL:
        return english, TABLES[0]
    return [*english[: len(english) // 4], *(text for row in pairs for text in row)], TABLES[1]


@cache
def _sentences() -> tuple[list[str], list[list[str]]]:
    """Return the sentences that come with us: English ones, and pairs with a translation."""
    with lzma.open(_BUNDLED / "sentences.tsv.xz", "rt", encoding="utf-8") as file:
        rows = [line.split("\t") for line in file.read().splitlines()]
    return [text for text, translation in rows if not translation], [row for row in rows if row[1]]


def n_fit_texts() -> tuple[int, int]:
    """Return how many texts are encoded to fit reasons without texts: of an English encoder, and of another."""
    english, pairs = _sentences()
    n_checked = 4 * len(PROBES) + 2 * len(pairs[:: max(1, len(pairs) // _TRIED)])
    return len(english) + n_checked, len(english) // 4 + 2 * len(pairs) + n_checked


def mean_vector(encoder: Embedder, texts: Iterable[str] | None = None) -> Floats:
    """Return the mean vector at length 1 of some texts, float64 [dimension]; None for sentences that come with us."""
    if texts is None:
        known, _ = open_texts(encoder)
        chosen = known[:: max(1, len(known) // _AVERAGED)]
    else:
        chosen = check_texts(islice(texts, _MOST))
    if not chosen:
        raise InputError("no texts are given to take the mean vector of; give some hundred, or None")
    mean: Floats = unit_vectors(encoder, chosen).mean(axis=0, dtype=np.float64)
    return mean


def _encoded(encoder: Embedder, texts: list[str], work_dir: str | Path | None, show: bool) -> Vectors:
    """Return the vectors of texts at length 1; with a work folder, those of an earlier run are used."""
    starts = range(0, len(texts), _SHARD)
    with Progress("fitting reasons", total=len(texts), enabled=show) as progress, _half_precision(encoder):

        def encoded(start: int) -> Vectors:
            rows = unit_vectors(encoder, texts[start : start + _SHARD])
            progress.advance(len(rows))
            return rows

        if work_dir is None:
            return np.concatenate([encoded(start) for start in starts])
        with WorkFolder(work_dir) as work:
            work.claim({"encoder": fingerprint(encoder)["stored"]})
            work.note_texts("texts", texts, "the texts")
            for start in starts:
                if work.rows("vectors") > start:
                    progress.advance(min(_SHARD, len(texts) - start))
                    continue
                work.append("vectors", encoded(start))
                work.commit()
            return work.array("vectors")


@contextmanager
def _half_precision(encoder: Embedder) -> Iterator[None]:
    """Let torch compute in bfloat16 where the processor does so itself: twice as fast, and near enough to fit on."""
    from pellucid.transformer.backbone import half_dtype

    torch = sys.modules.get("torch")
    if torch is None or encoder.device != "cpu" or half_dtype() != "bfloat16":
        yield
        return
    with torch.autocast("cpu", torch.bfloat16):
        yield


def _check_steady(encoder: Embedder) -> None:
    """Check that the encoder gives one text the same vector twice."""
    first, second = (unit_vectors(encoder, list(PROBES)) for _ in range(2))
    apart = float(np.abs(first - second).max())
    if apart > _UNSTEADY:
        raise InputError(
            f"{encoder!r} is not deterministic: coordinates of a text differ by up to {apart:.3f} between two calls. "
            "Turn off dropout or sampling (model.eval()), and fit again"
        )
