"""What swapping a word of one group for that of another does to similarities, and what is left without a direction.

The effect on a target is cos(target, text of the first group) - cos(target, same text of the second group), the mean
over pairs of words and templates. Its interval is that mean -/+ t times the standard error of a bootstrap that draws
pairs and templates independently (Owen, "The pigeonhole bootstrap", 2007), with Student's t; its degrees of freedom are
Satterthwaite's, so that many pairs make up for few templates only as far as the effects differ between pairs. Of
several targets those lean clearly that pass Holm's test at 5 %. A direction is fitted on four fifths of the pairs and
judged on the others, five times, so that what is left is not measured on what was fitted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pellucid.analysis.coordinates import Floats, Integers, cosines_along, spearman
from pellucid.analysis.swaps import TEMPLATES, SwappedText, Target, WordPairs
from pellucid.core.embedder import Embedder
from pellucid.core.pca import pair_directions, projection
from pellucid.errors import InputError
from pellucid.progress import check_cancelled
from pellucid.text.function_words import content_words
from pellucid.text.sentences import bundled_sentences


def student_quantile(freedom: int, coverage: float = 0.95) -> float:
    """Return how far a share `coverage` of Student's t distribution reaches to either side."""
    from scipy.stats import t

    return float(t.ppf((1 + coverage) / 2, freedom))


MIN_PAIRS = 3
"""Pairs of words below which no direction is judged: some are held out."""
MAX_TEXTS = 5_000
"""Texts that hold words of the pairs and are tested in both forms."""

_N_DRAWS = 2_000  # of the bootstrap
_DRAW_CELLS = 1 << 24  # counts of drawn texts that are held at once
MIN_GROUP_TEXTS = 20
"""Of a group, with words of it alone, that proxies are looked for in."""
MAX_PROBED_TEXTS = 2_000
"""Of these, that the classifier is fitted and judged on."""

_MAX_FOLDS = 5
_MAX_PROXY_WORDS = 15  # that are listed
_NORMAL_FREEDOM = 10_000  # of Student's t that is normal
_RIDGE = 0.1  # of the probe, times the mean squared length of its texts
_ERROR_RATE = 0.05  # of all targets together
MIN_NEUTRAL_TEXTS = 10
"""Of neutral sentences, that the model knows a word of, below which the cost of a removal is not measured by them."""
_N_NEUTRAL_TEXTS = 300  # sentences by which the cost of a removal is judged
_BLOCK_TEXTS = 512
_EPS = 1e-9
_EFFECT_BOUNDS = (-2.0, 2.0)  # of a difference of cosines
_SAME_DECIMALS = 5  # of vectors of pairs that a model reads as one


class Estimate(NamedTuple):
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


class Lean(NamedTuple):
    """How much nearer a target is to the first group than to the second."""

    target: str
    expected: float | None  # the number given with the target
    effect: Estimate
    is_clear: bool  # by Holm's test over all targets
    effect_after: Estimate | None  # once the direction is removed
    is_clear_after: bool


class Summary(NamedTuple):
    """What all targets together say."""

    mean: Estimate  # of the effects over targets
    spread: Estimate  # standard deviation of the effects over targets, less what is chance
    n_clear: int  # targets that lean clearly
    correlation: Estimate | None  # of the effects and the expected numbers
    effect_size: float | None  # as WEAT's d, of the targets below the median of the expected numbers and above
    text_distance: float  # mean of 1 - cosine of a text and its swapped form


class SwapTest(NamedTuple):
    """The effects of a set of texts."""

    name: str
    n_pairs: int  # pairs of words, or texts
    n_templates: int  # 0 of texts as they are
    target_spread: float  # standard deviation over targets of their similarity to a text: what effects compare with
    before: Summary
    after: Summary | None
    leans: tuple[Lean, ...]  # by falling effect


class Probe(NamedTuple):
    """How often a linear classifier tells the group of texts whose pairs it was not fitted on; chance is one half."""

    name: str
    before: Estimate
    after: Estimate | None


class ProxyWord(NamedTuple):
    """A word of your texts that goes with one group, though it is not of the list."""

    word: str  # in lower case
    first: int  # texts of the first group that hold it
    second: int  # the same of the second
    z: float  # log-odds ratio of the two over its standard error; + for the first group
    pull: float  # cosine of its embedding to the difference of the groups' mean embeddings
    pull_after: float | None  # the same without the direction


class Cost(NamedTuple):
    """What a removal does to texts in general."""

    measure: str
    before: float
    after: float


class _Contexts(NamedTuple):
    """Texts of both groups as rows at length 1, float64 [pairs, templates, dimension]."""

    first: Floats
    second: Floats

    def take(self, pairs: Integers) -> _Contexts:
        """Return some pairs."""
        return _Contexts(self.first[pairs], self.second[pairs])

    def projected(self, matrix: Floats) -> _Contexts:
        """Return the rows without a direction."""
        return _Contexts(_l2_normalized(self.first @ matrix), _l2_normalized(self.second @ matrix))

    def directions(self, n_directions: int) -> Floats:
        """Return the main directions in which the groups differ."""
        width = self.first.shape[-1]
        return pair_directions(self.first.reshape(-1, width), self.second.reshape(-1, width), n_directions)


class _Measured(NamedTuple):
    """Effects [targets, pairs, templates] with the mean distance of the two forms of a text."""

    effects: Floats
    distance: float
    similarity: Floats  # [targets], to the texts of both groups


class BiasMeasurement:
    """A model, the pairs and targets that it knows, and the direction of the groups, fitted on all pairs."""

    def __init__(self, model: Embedder, pairs: WordPairs, targets: Sequence[Target], n_directions: int) -> None:
        """Encode targets and templates, and fit the direction.

        Raises:
            InputError: the model knows fewer than two pairs or targets.
        """
        self.model, self.n_directions = model, n_directions
        self.notes: list[str] = []
        self.targets = self._in_vocabulary(targets, [[target.text] for target in targets], "target")
        self.target_rows = self._rows([target.text for target in self.targets])
        self.pairs = pairs
        self.fit_pairs, self._contexts, self._folds = self._read(pairs)
        self.matrix = self._projection(self._contexts)
        self.n_removed = 0 if self.matrix is None else len(self.matrix) - round(float(np.trace(self.matrix)))
        self._texts: list[SwappedText] = []  # those that were tested

    def test_templates(self, pairs: WordPairs) -> SwapTest:
        """Test pairs in templates; those that the direction was fitted on each without itself."""
        contexts, folds = self._contexts_of(pairs)
        after = None
        if all(matrix is not None for _, matrix in folds):
            measured = [(fold, self._measured_without(contexts.take(fold), matrix)) for fold, matrix in folds]
            after = _joined(len(contexts.first), measured)
        before = _measured(self.target_rows, contexts)
        return self._test(f"{pairs.name} in templates", before, after, len(TEMPLATES))

    def test_texts(self, pairs: WordPairs, texts: Iterable[str]) -> SwapTest:
        """Test texts that hold words of the pairs, in both forms.

        Raises:
            InputError: none does.
        """
        n_texts, distinct = 0, dict[SwappedText, None]()
        for text in texts:
            n_texts += 1
            swapped = pairs.swapped(text)
            if swapped.first != swapped.second:
                distinct[swapped] = None
            if len(distinct) == MAX_TEXTS:
                break
        selected = list({swapped[:2]: swapped for swapped in distinct}.values())  # a repeated text is no new evidence
        if len(selected) < 2:
            raise InputError(
                f"{len(selected)} of {n_texts:,} texts hold a word of {pairs.name}, repeated ones aside; give texts "
                "that do, or other pairs"
            )
        before: list[_Measured] = []
        after: list[_Measured] = []
        for start in range(0, len(selected), _BLOCK_TEXTS):
            check_cancelled()
            block = selected[start : start + _BLOCK_TEXTS]
            rows = self._rows([text for swapped in block for text in swapped[:2]])[:, None]
            contexts = _Contexts(rows[::2], rows[1::2])
            before.append(_measured(self.target_rows, contexts))
            if self.matrix is not None:
                after.append(self._measured_without(contexts, self.matrix))
        self._texts = list(distinct)
        words, guessed = sum(text.n_words for text in selected), sum(text.n_guessed for text in selected)
        self.notes.append(
            f"{len(selected):,} of {n_texts:,} texts hold words of {pairs.name}, {words:,} in all; {guessed:,} have "
            "two counterparts, of which one was guessed. Only words of the list are swapped: names, titles and what "
            "else speaks of the group stay as they are. Intervals are over these texts, with the words they hold; "
            "texts that are the same once swapped count once."
        )
        return self._test("your texts", _chained(before), _chained(after) if after else None, 0)

    def probe(self, pairs: WordPairs) -> Probe | None:
        """Return how well a linear classifier tells the group of texts of pairs it has not seen; None of few pairs."""
        contexts, folds = self._contexts_of(pairs)
        if len(folds) < 2:
            return None
        before = _probe_accuracy(contexts, [(fold, None) for fold, _ in folds])
        is_removed = all(matrix is not None for _, matrix in folds)
        return Probe(f"{pairs.name} in templates", before, _probe_accuracy(contexts, folds) if is_removed else None)

    def text_proxies(self) -> tuple[Probe | None, tuple[ProxyWord, ...]]:
        """Return how well the group of the tested texts is told without the words of the list, and by which words.

        None and no words if a group has fewer than `MIN_GROUP_TEXTS` texts that hold words of it alone.
        """
        texts = [swapped for swapped in self._texts if swapped.group is not None and swapped.remainder.strip()]
        texts = texts[:MAX_PROBED_TEXTS]
        groups = np.array([swapped.group for swapped in texts], np.int64)
        sizes = np.bincount(groups, minlength=2)
        if sizes.min() < MIN_GROUP_TEXTS:
            self.notes.append(
                f"{sizes[0]:,} and {sizes[1]:,} of your texts hold words of one group alone; with {MIN_GROUP_TEXTS} or "
                "more of each, words that go with a group would be looked for."
            )
            return None, ()
        blocks = [texts[start : start + _BLOCK_TEXTS] for start in range(0, len(texts), _BLOCK_TEXTS)]
        rows = np.concatenate([self._rows([swapped.remainder for swapped in block]) for block in blocks])
        after = None if self.matrix is None else _group_accuracy(self._without(rows), groups)
        probe = Probe("your texts without the words", _group_accuracy(rows, groups), after)
        return probe, tuple(self._proxy_words([swapped.remainder for swapped in texts], rows, groups))

    def _proxy_words(self, texts: Sequence[str], rows: Floats, groups: Integers) -> Iterator[ProxyWord]:
        """Yield the words whose odds differ most between the groups, where that is more than chance."""
        counts: tuple[Counter[str], Counter[str]] = Counter(), Counter()
        for text, group in zip(texts, groups.tolist(), strict=True):
            counts[group].update(content_words(text))
        sizes = np.bincount(groups, minlength=2).tolist()
        scored: list[tuple[float, str]] = []
        for word in counts[0].keys() | counts[1].keys():
            cells = [counts[0][word], counts[1][word], sizes[0] - counts[0][word], sizes[1] - counts[1][word]]
            a, b, c, d = (cell + 0.5 for cell in cells)
            scored.append((math.log(a * d / (b * c)) / math.sqrt(1 / a + 1 / b + 1 / c + 1 / d), word))
        critical = student_quantile(_NORMAL_FREEDOM, 1.0 - _ERROR_RATE / max(len(scored), 1))
        scored.sort(key=lambda item: (-abs(item[0]), item[1]))
        words = [(z, word) for z, word in scored[:_MAX_PROXY_WORDS] if abs(z) > critical]
        if not words:
            return
        word_rows, mean = self._rows([word for _, word in words]), rows[groups == 0].mean(axis=0)
        pulls = cosines_along(word_rows, mean - rows[groups == 1].mean(axis=0))
        pulls_after = [None] * len(words)
        if self.matrix is not None:
            projected = self._without(rows)
            direction = projected[groups == 0].mean(axis=0) - projected[groups == 1].mean(axis=0)
            pulls_after = cosines_along(self._without(word_rows), direction).tolist()
        for (z, word), pull, pull_after in zip(words, pulls.tolist(), pulls_after, strict=True):
            yield ProxyWord(word, counts[0][word], counts[1][word], z, pull, pull_after)

    def costs(self, scored_pairs: Sequence[tuple[str, str, float]]) -> Iterator[Cost]:
        """Yield what the removal does to neutral sentences and to pairs that people scored."""
        if self.matrix is None:
            return
        english, _ = bundled_sentences()
        rows = self._rows(english[:: max(1, len(english) // _N_NEUTRAL_TEXTS)][:_N_NEUTRAL_TEXTS])
        rows = rows[rows.any(axis=1)]
        if len(rows) >= MIN_NEUTRAL_TEXTS:
            yield from self._neutral_costs(rows)
        if scored_pairs:
            sides = [self._rows([(first, second)[side] for first, second, _ in scored_pairs]) for side in (0, 1)]
            scores = [pair[2] for pair in scored_pairs]
            ranks = [spearman(np.einsum("nd,nd->n", *rows), scores) for rows in (sides, map(self._without, sides))]
            if ranks[0] is not None:  # else all scores, or all similarities, are the same
                measure = f"Spearman correlation with people's scores of {len(scores):,} pairs"
                yield Cost(measure, ranks[0], ranks[1] or 0.0)

    def _neutral_costs(self, rows: Floats) -> Iterator[Cost]:
        """Yield what the removal does to the similarities of neutral sentences."""
        cosines, cosines_after = (side @ side.T - 2 * np.eye(len(rows)) for side in (rows, self._without(rows)))
        is_same = cosines.argmax(axis=1) == cosines_after.argmax(axis=1)
        yield Cost(
            f"share of {len(rows)} neutral sentences with the same nearest neighbour", 1.0, float(is_same.mean())
        )
        upper = np.triu_indices(len(rows), 1)
        yield Cost("rank correlation of their similarities", 1.0, spearman(cosines[upper], cosines_after[upper]) or 0.0)

    def _read(self, pairs: WordPairs) -> tuple[list[tuple[str, str]], _Contexts, list[Integers]]:
        """Return the texts of the pairs that the model knows, their rows, and the pairs of each fold."""
        usable = [row for row in pairs.rows if row.phrase]
        rows = self._in_vocabulary(usable, [row[:2] for row in usable], "pair")
        texts = [pair for context in replace(pairs, rows=tuple(rows)).contexts() for pair in context]
        encoded = self._rows([text for pair in texts for text in pair])
        shaped = encoded.reshape(len(rows), len(TEMPLATES), 2, -1)
        rounded = shaped.round(_SAME_DECIMALS) + 0.0  # no -0.0
        first_of = {pair.tobytes(): index for index, pair in reversed(list(enumerate(rounded)))}
        distinct = sorted(first_of.values())
        if len(distinct) < 2:
            raise InputError(f"the model reads all {len(rows)} pairs of {pairs.name} as one; give other pairs")
        if len(distinct) < len(rows):
            self.notes.append(f"{len(rows) - len(distinct)} pairs are left out: the model reads them as others.")
        texts = [texts[index * len(TEMPLATES) + n] for index in distinct for n in range(len(TEMPLATES))]
        contexts = _Contexts(shaped[distinct, :, 0], shaped[distinct, :, 1])
        return texts, contexts, _folds([rows[index] for index in distinct])

    def _contexts_of(self, pairs: WordPairs) -> tuple[_Contexts, list[tuple[Integers, Floats | None]]]:
        """Return the rows of pairs, and for each fold of them the matrix that was not fitted on it; None for none."""
        if pairs is not self.pairs:
            _, contexts, folds = self._read(pairs)
            return contexts, [(fold, self.matrix) for fold in folds]
        pair_indices = np.arange(len(self._contexts.first))
        fitted = [self._projection(self._contexts.take(np.setdiff1d(pair_indices, fold))) for fold in self._folds]
        return self._contexts, list(zip(self._folds, fitted, strict=True))

    def _without(self, rows: Floats) -> Floats:
        """Return rows without the direction of the groups."""
        return rows if self.matrix is None else _l2_normalized(rows @ self.matrix)

    def _projection(self, contexts: _Contexts) -> Floats | None:
        """Return the matrix that removes the direction of the groups; None for sparse rows and few pairs."""
        if self.is_sparse or not self.model.has_directions or len(self._folds) < 2:
            return None
        directions = contexts.directions(self.n_directions)
        if not 0 < len(directions) < directions.shape[1]:
            return None
        return projection(directions, [f"direction {number}" for number in range(len(directions))])

    def _measured_without(self, contexts: _Contexts, matrix: Any) -> _Measured:
        return _measured(_l2_normalized(self.target_rows @ matrix), contexts.projected(matrix))

    def _in_vocabulary(self, items: Sequence[Any], texts: Sequence[Sequence[str]], noun: str) -> list[Any]:
        """Return the items all of whose texts the model knows something of."""
        rows = self._rows([text for group in texts for text in group])
        in_vocabulary = iter([bool(row.any()) for row in rows])
        is_covered = [all([next(in_vocabulary) for _ in group]) for group in texts]
        oov = [" / ".join(group) for group, covered in zip(texts, is_covered) if not covered]
        n_covered = len(items) - len(oov)
        if n_covered < 2:
            raise InputError(f"the model knows {n_covered} of {len(items)} {noun}s; at least two are needed")
        if oov:
            self.notes.append(f"Left out, as the model does not know the words: {', '.join(oov):.300}.")
        return [item for item, covered in zip(items, is_covered) if covered]

    def _rows(self, texts: list[str]) -> Floats:
        """Return embeddings at length 1, float64 [texts, dimension]."""
        rows = self.model.similarity_rows(self.model.encode(texts))
        self.is_sparse = hasattr(rows, "toarray")
        return _l2_normalized(np.asarray(rows.toarray() if self.is_sparse else rows, np.float64))

    def _test(self, name: str, before: _Measured, after: _Measured | None, n_templates: int) -> SwapTest:
        expected = [target.expected for target in self.targets]
        (effects, clear), summary = _leans(before), _summary(before, expected)
        effects_after, clear_after = ([None] * len(effects), [False] * len(effects)) if after is None else _leans(after)
        texts = (target.text for target in self.targets)
        leans = map(Lean, texts, expected, effects, clear, effects_after, clear_after)
        return SwapTest(
            name, before.effects.shape[1], n_templates, float(before.similarity.std()), summary,
            None if after is None else _summary(after, expected),
            tuple(sorted(leans, key=lambda lean: -lean.effect.value)),
        )  # fmt: skip


def _l2_normalized(rows: Floats) -> Floats:
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    normalized: Floats = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > _EPS)
    return normalized


def _measured(targets: Floats, contexts: _Contexts) -> _Measured:
    """Return effects [targets, pairs, templates] of texts."""
    first, second = (np.einsum("td,pkd->tpk", targets, rows, optimize=True) for rows in contexts)
    distances = 1.0 - np.einsum("pkd,pkd->pk", contexts.first, contexts.second)
    return _Measured(first - second, float(distances.mean()), (first + second).mean(axis=(1, 2)) / 2)


def _joined(n_pairs: int, folds: Sequence[tuple[Integers, _Measured]]) -> _Measured:
    """Return what was measured of the folds as that of all pairs."""
    sample = folds[0][1].effects
    effects = np.zeros((len(sample), n_pairs, sample.shape[2]))
    for fold, measured in folds:
        effects[:, fold] = measured.effects
    weights = np.array([len(fold) for fold, _ in folds]) / n_pairs
    similarity = sum(weight * measured.similarity for weight, (_, measured) in zip(weights, folds))
    return _Measured(effects, float(sum(w * m.distance for w, (_, m) in zip(weights, folds))), np.asarray(similarity))


def _chained(blocks: Sequence[_Measured]) -> _Measured:
    """Return what was measured of blocks of texts as that of all."""
    sizes = np.cumsum([0, *(block.effects.shape[1] for block in blocks)])
    spans = [np.arange(start, end) for start, end in pairwise(sizes.tolist())]
    return _joined(int(sizes[-1]), list(zip(spans, blocks, strict=True)))


def _folds(rows: Sequence[Any]) -> list[Integers]:
    """Return the pairs that are held out together; pairs that share a word are in one fold."""
    if len(rows) < MIN_PAIRS:
        return [np.arange(len(rows))]
    fold_of: dict[str, int] = {}
    folds: list[list[int]] = [[] for _ in range(min(_MAX_FOLDS, len(rows)))]
    for index, row in enumerate(rows):
        fold = next((fold_of[word] for word in row[:2] if word in fold_of), index % len(folds))
        folds[fold].append(index)
        fold_of |= dict.fromkeys(row[:2], fold)
    return [np.array(fold) for fold in folds if fold]


def _draws(effects: Floats) -> Iterator[Floats]:
    """Yield means over drawn pairs and templates [targets, draws], some draws at a time."""
    _, n_pairs, n_templates = effects.shape
    random = np.random.default_rng(0)
    n_block = max(1, min(_N_DRAWS, _DRAW_CELLS // n_pairs))
    for start in range(0, _N_DRAWS, n_block):
        size = min(n_block, _N_DRAWS - start)
        pairs = random.multinomial(n_pairs, np.full(n_pairs, 1 / n_pairs), size) / n_pairs
        templates = random.multinomial(n_templates, np.full(n_templates, 1 / n_templates), size) / n_templates
        by_template = ((effects[:, :, template] @ pairs.T) * templates[:, template] for template in range(n_templates))
        yield np.sum(list(by_template), axis=0)


def _bootstrap(effects: Floats, *statistics: Callable[[Floats], Floats]) -> list[Floats]:
    """Return each statistic of the means of the draws; a statistic takes means [targets, draws]."""
    blocks = [[statistic(means) for statistic in statistics] for means in _draws(effects)]
    return [np.concatenate(values, axis=-1) for values in zip(*blocks, strict=True)]


class _Scatter(NamedTuple):
    """How far means over pairs and templates are from certain, of effects [n, pairs, templates].

    Attributes:
        factors: [n], what the standard deviation of draws is multiplied by, as pairs and templates are few.
        freedom: degrees of freedom of Student's t, at least 1.
    """

    factors: Floats
    freedom: int

    @classmethod
    def from_effects(cls, effects: Floats) -> _Scatter:
        """Return that of effects, with Satterthwaite's degrees of freedom of all of them together."""
        sizes = effects.shape[1:]
        drawn = np.array([effects.mean(axis=2).var(axis=1), effects.mean(axis=1).var(axis=1)])
        drawn /= np.array(sizes)[:, None]
        free = np.array([max(size - 1, 1) for size in sizes])
        corrected = drawn * (np.array(sizes) / free)[:, None]
        totals, sums = drawn.sum(axis=0), corrected.sum(axis=1)
        factors = np.sqrt(np.divide(corrected.sum(axis=0), totals, out=np.ones_like(totals), where=totals > 0))
        parts = float((sums**2 / free).sum())
        freedom = float(sums.sum()) ** 2 / parts if parts > 0 else float(free[0])
        return cls(factors, max(int(freedom + _EPS), 1))

    def interval(self, value: float, error: float, bounds: tuple[float, float] = (-np.inf, np.inf)) -> Estimate:
        """Return a value with its interval within bounds."""
        return _interval(value, error, self.freedom, bounds)


def _interval(value: float, error: float, freedom: int, bounds: tuple[float, float] = (-np.inf, np.inf)) -> Estimate:
    reach = student_quantile(max(freedom, 1)) * error
    return Estimate(value, max(value - reach, bounds[0]), min(value + reach, bounds[1]))


def _leans(measured: _Measured) -> tuple[list[Estimate], list[bool]]:
    """Return the effect on each target, and whether it is clear by Holm's test over all targets."""
    effects = measured.effects
    n_targets, scatter = len(effects), _Scatter.from_effects(effects)
    means = effects.mean(axis=(1, 2))
    errors = _bootstrap(effects, lambda drawn: drawn)[0].std(axis=-1) * scatter.factors
    ratios = np.abs(means) / np.maximum(errors, _EPS)
    clear = [False] * n_targets
    for rank, target in enumerate(np.argsort(-ratios, kind="stable").tolist()):
        if ratios[target] <= student_quantile(scatter.freedom, 1.0 - _ERROR_RATE / (n_targets - rank)):
            break
        clear[target] = True
    estimates = [scatter.interval(*pair, _EFFECT_BOUNDS) for pair in zip(means.tolist(), errors.tolist())]
    return estimates, clear


def _summary(measured: _Measured, expected: Sequence[float | None]) -> Summary:
    """Return what all targets together say."""
    effects = measured.effects
    means = effects.mean(axis=(1, 2))
    numbers = np.array([np.nan if number is None else number for number in expected])
    numbers = numbers / (np.abs(numbers).max() or 1.0)
    has_numbers = bool(np.isfinite(numbers).all() and np.ptp(numbers) > _EPS)
    scaled = (numbers - numbers.mean()) / numbers.std() if has_numbers else np.zeros(len(numbers))

    even = np.full(len(means), 1 / len(means))

    def correlation(drawn: Floats) -> Floats:
        deviations = np.maximum(drawn.std(axis=0), _EPS)
        correlations: Floats = scaled @ drawn / (len(scaled) * deviations)
        return correlations

    drawn_means, drawn_centred, drawn_correlations = _bootstrap(
        effects, lambda drawn: drawn.mean(axis=0), lambda drawn: drawn - drawn.mean(axis=0), correlation
    )
    common, along_numbers = (
        _Scatter.from_effects(np.tensordot(weights, effects, 1)[None]) for weights in (even, scaled)
    )
    centred = _Scatter.from_effects(effects - effects.mean(axis=0))
    # a draw has that of the pairs and its own
    chance = float(((drawn_centred.std(axis=-1) * centred.factors) ** 2).mean())
    spread = float(np.sqrt(max(float(means.var(ddof=1)) - chance, 0.0)))
    drawn_spreads = np.sqrt(np.maximum(drawn_centred.var(axis=0, ddof=1) - 2 * chance, 0.0))
    is_low, deviation = numbers < np.median(numbers), float(means.std(ddof=1))
    effect_size = None
    if has_numbers and deviation > _EPS:
        effect_size = float(means[is_low].mean() - means[~is_low].mean()) / deviation
    error = float(drawn_correlations.std() * along_numbers.factors[0])
    along = along_numbers.interval(float(correlation(means[:, None])[0]), error, (-1.0, 1.0))
    error = float(drawn_means.std() * common.factors[0])
    return Summary(
        common.interval(float(means.mean()), error, _EFFECT_BOUNDS),
        centred.interval(spread, float(drawn_spreads.std() * centred.factors.mean()), (0.0, 2.0)),
        sum(_leans(measured)[1]),
        along if has_numbers else None,
        effect_size,
        measured.distance,
    )


def _group_accuracy(rows: Floats, groups: Integers) -> Estimate:
    """Return how often ridge regression tells the group of held-out texts, the mean of both groups' shares."""
    correct = np.zeros(len(rows))
    for fold in range(_MAX_FOLDS):
        is_held_out = np.arange(len(rows)) % _MAX_FOLDS == fold
        weights, threshold = _ridge(rows[~is_held_out], np.where(groups[~is_held_out] == 0, 1.0, -1.0))
        correct[is_held_out] = ((rows[is_held_out] @ weights > threshold) == (groups[is_held_out] == 0)).astype(float)
    shares = [correct[groups == group] for group in (0, 1)]
    error = math.sqrt(sum(float(share.var(ddof=1)) / len(share) for share in shares)) / 2
    return _interval(float(np.mean([share.mean() for share in shares])), error, len(rows) - 1, (0.0, 1.0))


def _ridge(rows: Floats, labels: Floats) -> tuple[Floats, float]:
    """Return weights and the threshold of ridge regression on labels of 1 and -1, both counting equally."""
    mean = (rows[labels > 0].mean(axis=0) + rows[labels < 0].mean(axis=0)) / 2
    importance = np.where(labels > 0, 1 / (labels > 0).sum(), 1 / (labels < 0).sum()) * len(labels) / 2
    centred = (rows - mean) * np.sqrt(importance)[:, None]
    targets = labels * np.sqrt(importance)
    ridge = _RIDGE * max(float((centred**2).sum()) / len(centred), _EPS)
    if centred.shape[1] < len(centred):
        weights = np.linalg.solve(centred.T @ centred + ridge * np.eye(centred.shape[1]), centred.T @ targets)
    else:
        weights = centred.T @ np.linalg.solve(centred @ centred.T + ridge * np.eye(len(centred)), targets)
    return weights, float(mean @ weights)


def _probe_accuracy(contexts: _Contexts, folds: Sequence[tuple[Integers, Floats | None]]) -> Estimate:
    """Return the share of texts of held-out pairs whose group ridge regression tells, with an interval over pairs."""
    n_pairs, _, width = contexts.first.shape
    correct = np.zeros(n_pairs)
    for held_out, matrix in folds:
        rows = contexts if matrix is None else contexts.projected(matrix)
        fitted = rows.take(np.setdiff1d(np.arange(n_pairs), held_out))
        texts = np.concatenate([fitted.first.reshape(-1, width), fitted.second.reshape(-1, width)])
        weights, threshold = _ridge(texts, np.repeat([1.0, -1.0], len(texts) // 2))
        first, second = (side @ weights - threshold for side in rows.take(held_out))
        correct[held_out] = ((first > 0).mean(axis=1) + (second < 0).mean(axis=1)) / 2
    error = float(correct.std(ddof=1) / np.sqrt(n_pairs))
    return _interval(float(correct.mean()), error, n_pairs - 1, (0.0, 1.0))
