r"""Learnt weights over anchors: one weight an anchor, then a low-rank metric; does either pass the encoder?

    python -m papers.ldir.learnt --data shared/data --work-dir WORK --write
    python -m papers.ldir.learnt --data shared/data --work-dir WORK --only floors --bfloat16 --write

A text's coordinates z = A x are its products with the anchors. The score under a metric G is z'Gz' divided by the two
lengths. With one weight an anchor G is diagonal, and `model.scale` takes the roots of the weights. With a low-rank
metric G = D + VV' the coordinates are those of its symmetric root, G^(1/2) A: still one row an anchor, as after
`decorrelate`, and `faithfulness` says how far each row still is the similarity to its anchor.

Weights are learnt from pairs that belong together: English sentences that translate one foreign sentence, medical
questions and answers, SciFact's training claims and abstracts. When to stop is chosen on other pairs of the same three
sources. STS and the test queries are scored at the end. What was learnt is kept in WORK: a stopped run goes on. The
floors, random directions and random sentences, are rows of their own, the means of five draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from papers.kit import Figure, Table, run_script
from papers.ldir.baselines import bundled_anchors, decorrelated, texts_of
from papers.ldir.development import Pairs, matched, medquad, paraphrases, reciprocal_rank, scifact_claims
from papers.ldir.names import corpus_sentences, floor_draws
from papers.ldir.scored import GROUPS, Samples, Tests, beginnings, beside, difference, mean_of_draws
from papers.ldir.tables import Encoder, faithfulness, open_encoders
from papers.local_tasks import find_tasks
from papers.retrieval_sets import trained_on
from papers.vector_cache import Vectors, unit_rows

SIZES = (200, 500)
STARTS = (0.0, 0.5)  # strengths of decorrelation that weights are learnt over; at 0 the anchors are as they are
WHOLE = 1.0  # the strength at which no overlap is left
PAIRS, QUESTIONS = (2_000, 6_000), (1_000, 3_000)  # those to choose on come first, the others are learnt from
ANSWER = 40  # words of an answer
TEMPERATURE, BATCH, STEPS, LOOK = 0.05, 256, 180, 30
SEEDS = 1


class Kind(NamedTuple):
    """A way to learn: the rank of V (0 is one weight a row alone), whether from the encoder's cosines, Adam's rate."""

    name: str
    rank: int
    imitates: bool
    rate: float


KINDS = (
    Kind("one weight a row, from pairs", 0, False, 0.003),
    Kind("rank 16, from pairs", 16, False, 0.001),
    Kind("one weight a row, from the encoder's cosines", 0, True, 0.003),
)


class Material(NamedTuple):
    """What weights are learnt from, and what tells when to stop; rows of one encoder at length 1."""

    learn: list[Pairs]
    choose: list[Pairs]


def read_material(data: Path, encoder: Encoder) -> Material:
    """Read and encode the pairs; pairs with a sentence of an STS set are left out."""
    tested = {plain(text) for task in find_tasks(data) if task.kind == "STS" for text in texts_of(task)}
    sentences = [pair for pair in paraphrases(data, PAIRS[1]) if tested.isdisjoint(map(plain, pair))]
    questions, answers = zip(*medquad(data, QUESTIONS[1]))
    answered = list(zip(questions, beginnings(list(answers), ANSWER)))
    claims, abstracts, relevant = scifact_claims(data)
    half = len(claims) // 2

    asked, found = unit_rows(encoder.encode(claims)), unit_rows(encoder.encode(beginnings(abstracts)))
    choose = [matched(sentences[: PAIRS[0]], encoder.encode), matched(answered[: QUESTIONS[0]], encoder.encode)]
    learn = [matched(sentences[PAIRS[0] :], encoder.encode), matched(answered[QUESTIONS[0] :], encoder.encode)]
    return Material(
        [*learn, Pairs(asked[:half], found, relevant[:half])], [*choose, Pairs(asked[half:], found, relevant[half:])]
    )


def plain(text: str) -> str:
    """Return the letters and digits of a text, without case."""
    return "".join(filter(str.isalnum, text.casefold()))


def chosen_by(choose: Sequence[Pairs], matrix: Vectors) -> float:
    """Return the mean over the sources of the mean reciprocal rank x 100."""
    ranks = [
        reciprocal_rank(unit_rows(left @ matrix.T), unit_rows(right @ matrix.T), relevant)
        for left, right, relevant in choose
    ]
    return 100 * float(np.mean(ranks))


def learnt(start: Vectors, material: Material, kind: Kind) -> tuple[Vectors, float]:
    """Learn a metric over the rows of `start`.

    Args:
        start: float32 [n, d].
        material: rows of the same encoder.
        kind: of the metric and what it is learnt from.

    Returns:
        The root of the metric times `start`, float32 [n, d], where it did best on the pairs to choose on, and how it
        did there; `start` itself where nothing learnt was better.
    """
    import torch

    random = torch.Generator().manual_seed(0)
    sources = []
    for pairs in material.learn:
        sides = pairs.left, pairs.right[pairs.relevant.argmax(axis=1)]
        sources.append([torch.from_numpy(rows) for side in sides for rows in (side, side @ start.T)])
    logs = torch.zeros(len(start), requires_grad=True)
    columns = (0.01 * torch.randn(len(start), kind.rank, generator=random)).requires_grad_()
    optimizer = torch.optim.Adam([logs, columns], kind.rate)
    best = (start, chosen_by(material.choose, start))
    for step in range(1, STEPS + 1):
        loss = torch.zeros(())
        for left, left_under, right, right_under in sources:
            drawn = torch.randperm(len(left), generator=random)[:BATCH]
            ones, others = (_under(side[drawn], logs, columns) for side in (left_under, right_under))
            loss = loss + _loss(ones @ others.T, left[drawn] @ right[drawn].T if kind.imitates else None)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % LOOK == 0:
            matrix = rooted(start, logs.detach().numpy(), columns.detach().numpy())
            best = max(best, (matrix, chosen_by(material.choose, matrix)), key=lambda found: found[1])
    return best


def _under(coordinates: Any, logs: Any, columns: Any) -> Any:
    """Return rows at length 1 whose products are scores under the metric diag(exp(2 logs)) + columns columns'."""
    import torch

    return torch.nn.functional.normalize(torch.cat([coordinates * logs.exp(), coordinates @ columns], dim=1))


def _loss(cosines: Any, wanted: Any) -> Any:
    """Return InfoNCE in both directions, or how far the cosines are from those that are wanted."""
    import torch

    if wanted is not None:
        return ((cosines - wanted) ** 2).mean()
    scores, target = cosines / TEMPERATURE, torch.arange(len(cosines))
    return sum(torch.nn.functional.cross_entropy(one, target) for one in (scores, scores.T))


def rooted(start: Vectors, logs: Vectors, columns: Vectors) -> Vectors:
    """Return G^(1/2) times the rows of `start`, with G = diag(exp(2 logs)) + columns columns'."""
    if not columns.size:
        return np.asarray(np.exp(logs)[:, None] * start, np.float32)
    metric = np.diag(np.exp(2 * logs.astype(np.float64))) + columns.astype(np.float64) @ columns.T
    values, axes = np.linalg.eigh(metric)
    return np.asarray((axes * np.sqrt(np.maximum(values, 0))) @ axes.T @ start, np.float32)


# --- What is measured -------------------------------------------------------------------------------------------------


class Model(NamedTuple):
    """A model over an encoder.

    Attributes:
        name: as in the table.
        start: the name of the model that the weights are learnt over; "" where nothing is learnt.
        matrix: float32 [n, d].
        is_learnt: whether the matrix is not what it started from.
        chosen: its mean reciprocal rank x 100 on the pairs to choose on.
        faithful: mean cosine between rows and anchors; None of an encoder.
    """

    name: str
    start: str
    matrix: Vectors
    is_learnt: bool
    chosen: float
    faithful: float | None


ITSELF = "itself"


def models(encoder: Encoder, material: Material, work: Path) -> Iterator[Model]:
    """Yield the encoder, the anchors and what is learnt over either, in the order of the table; made once."""

    def with_learnt(name: str, start: Vectors, anchors: Vectors | None) -> Iterator[Model]:
        def faithful(matrix: Vectors) -> float | None:
            return None if anchors is None else faithfulness(matrix, anchors)

        yield Model(name, "", start, False, chosen_by(material.choose, start), faithful(start))
        for kind in KINDS if not name.endswith(f"at {WHOLE:g}") else ():
            if anchors is not None or not kind.imitates:
                path = work / "learnt" / encoder.folder / f"{name}-{kind.name}-0.npz".replace(" ", "_")
                matrix, value = _kept(path, start, material, kind)
                is_learnt = not np.array_equal(matrix, start)
                yield Model(f"{name}: {kind.name}", name, matrix, is_learnt, value, faithful(matrix))

    rows = np.concatenate([side for pairs in material.learn for side in pairs[:2]])
    axes = np.linalg.eigh(rows.T @ rows)[1].T.astype(np.float32)  # one weight each says more than of the raw columns
    yield from with_learnt(ITSELF, axes, None)
    for n in SIZES:
        anchors = unit_rows(encoder.encode(bundled_anchors(f"anchors-{encoder.folder}-{n}")))
        for strength in (*STARTS, WHOLE):
            name = f"{n} anchors" + (f", decorrelated at {strength:g}" if strength else "")
            yield from with_learnt(name, decorrelated(anchors, strength), anchors)


def _kept(path: Path, start: Vectors, material: Material, kind: Kind) -> tuple[Vectors, float]:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        matrix, value = learnt(start, material, kind)
        np.savez(path, matrix=matrix, value=value)
        print(path.stem, f"{value:.1f}", flush=True)
    with np.load(path) as kept:
        return kept["matrix"], float(kept["value"])


class Line(NamedTuple):
    """A model and its scores."""

    model: Model
    sts: Samples
    retrieval: Samples


def scored(model: Model, tests: Tests) -> Line:
    """Score a model on the test sets."""

    def apply(rows: Vectors) -> Vectors:
        return rows @ model.matrix.T

    return Line(model, tests.sts(apply), tests.retrieval(apply))


def floor_lines(encoder: Encoder, material: Material, tests: Tests, data: Path) -> Iterator[Line]:
    """Yield the encoder, then random directions and random sentences."""
    sentences = unit_rows(encoder.encode(corpus_sentences(data)))
    itself = np.eye(sentences.shape[1], dtype=np.float32)
    yield scored(Model(ITSELF, "", itself, False, chosen_by(material.choose, itself), None), tests)
    for n in SIZES:
        for kind, draws in floor_draws(sentences, n).items():
            chosen = float(np.mean([chosen_by(material.choose, matrix) for matrix in draws]))
            lines = [scored(Model(f"{n} {kind}", "", matrix, False, chosen, None), tests) for matrix in draws]
            sts, retrieval = (mean_of_draws(samples) for samples in zip(*((d.sts, d.retrieval) for d in lines)))
            yield lines[0]._replace(sts=sts, retrieval=retrieval)


# --- The page ---------------------------------------------------------------------------------------------------------


def table(lines: Sequence[Line]) -> Table:
    """Return the table of one encoder."""
    own = next(line for line in lines if line.model.name == ITSELF)
    rest = [name for name in own.retrieval if name != "SciFact"]
    sets = ("STS", "SciFact", "other sets")
    header = ["", "chosen on", *(f"{name}{end}" for name in sets for end in ("", " less the encoder")), "faithful"]
    cells = []
    for line in lines:
        n_seeds = SEEDS if line.model.is_learnt else None
        row: list[Any] = [line.model.name, line.model.chosen, *beside(line.sts, own.sts, n_seeds=n_seeds)]
        for sets in (["SciFact"], rest):
            samples, other = ({name: one.retrieval[name] for name in sets} for one in (line, own))
            row += beside(samples, samples if line is own else other, n_seeds=n_seeds)
        faithful = line.model.faithful
        cells.append([*row, None if faithful is None else f"{faithful:.2f}"])
    return Table(header, cells)


def in_short(lines: Sequence[Line]) -> str:
    """Say which learnt rows over anchors are above the encoder, and above what they start from."""
    by_name = {line.model.name: line for line in lines}
    rows = [line for line in lines if line.model.start not in ("", ITSELF) and line.model.is_learnt]

    def above(other: Callable[[Line], Line], samples: Callable[[Line], Samples]) -> str:
        found = [line.model.name for line in rows if difference(samples(line), samples(other(line)), SEEDS).above()]
        return ", ".join(f"*{name}*" for name in found) or "none"

    kinds: dict[str, Callable[[Line], Samples]] = {
        "STS": lambda line: line.sts,
        "retrieval": lambda line: line.retrieval,
    }
    ends = {"the encoder": lambda _: by_name[ITSELF], "what it starts from": lambda line: by_name[line.model.start]}
    told = [f"- above {end} on {kind}: {above(other, kinds[kind])}." for end, other in ends.items() for kind in kinds]
    head = f"Of the {len(rows)} rows over anchors in which something was learnt, it holds that they are"
    return "\n".join([head, "", *told])


def gains(lines: Sequence[Line]) -> Table:
    """Return the table of what learning adds to what it starts from."""
    by_name = {line.model.name: line for line in lines}
    cells = []
    for line in lines:
        if line.model.start:
            start = by_name[line.model.start]
            n_seeds = SEEDS if line.model.is_learnt else None
            sides = (line.sts, start.sts), (line.retrieval, start.retrieval)
            both = [difference(*side, n_seeds) for side in sides]
            cells.append([line.model.name, *(found.with_verdict() for found in both)])
    return Table(["learnt, less what it starts from", "STS", "retrieval, all sets"], cells)


def said(pairs: Sequence[Pairs]) -> str:
    """Say how many pairs there are of each source."""
    sources = ("sentences of one translation", "medical questions and answers", "training claims of SciFact")
    return ", ".join(f"{len(one.left):,} {source}" for one, source in zip(pairs, sources))


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Learn, score and yield the tables of each encoder."""
    for encoder in open_encoders(options.work_dir, bfloat16=options.bfloat16):
        material, tests = read_material(options.data, encoder), Tests(options.data, encoder.encode, options.sets)
        if "floors" in options.only:
            floors = table(list(floor_lines(encoder, material, tests, options.data)))
            yield f"floor-{encoder.name}", replace(floors, rows=floors.rows[1:])
        if "learnt" not in options.only:
            continue
        chosen = list(models(encoder, material, options.work_dir))  # all is chosen before anything is tested
        lines = [scored(model, tests) for model in chosen]
        yield f"{encoder.name}-claims", in_short(lines)
        yield encoder.name, table(lines)
        yield f"{encoder.name}-gains", gains(lines)
        yield "pairs-learnt", said(material.learn)
        yield "pairs-chosen", said(material.choose)
    if "learnt" in options.only:
        yield "shared", trained_on(next(task for task in find_tasks(options.data) if task.name == "SciFact"))


if __name__ == "__main__":
    sets = {"nargs": "+", "default": GROUPS["retrieval"], "choices": GROUPS["retrieval"], "help": "of retrieval"}
    settings = {"--sets": sets, "--bfloat16": {"action": "store_true", "help": "MiniLM in bfloat16"}}
    data = "sts/, retrieval/, parallel/, retrieval_train/ and raw_english/"
    run_script(measure, settings, data=data, work_dir="vectors", only=("learnt", "floors"))
