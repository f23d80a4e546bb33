"""Concepts of a score, steered queries and removed directions; writes blocks of benchmarks/reasons.md.

    pip install --no-deps simlens
    python -m benchmarks.concepts --data DATA --work-dir WORK --write                        # all-MiniLM-L6-v2
    python -m benchmarks.concepts --data DATA --work-dir WORK --encoder static-en --write

Concepts are learned from sentences of the open-licence corpus, on which no test set is. Judged are pairs of STS-B,
SICK-R and SciFact: how much of a score less what all texts share stands in five named rows, and what is left over.
Names are tested on other sentences. Queries are steered, and directions removed, on snippets of eight domains.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import argparse
import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata, spearmanr

import pellucid
from benchmarks.faithfulness import MINILM, PAGE, SCIFACT, SICK, STATIC, STS, pairs_of, sentence_transformer
from papers.kit import bootstrap, interval_of, make_parser, markdown_table, measured, print_block, processor
from papers.retrieval_sets import read_collection
from pellucid.core.pca import projection, spectrum_of
from pellucid.dense import ConceptReasons, EncoderEmbedder
from pellucid.dense.learning import MIN_NAME_AUC, learned_directions
from pellucid.dense.words import WordReasons, encode_resumable
from pellucid.evaluation.tasks import find_tasks, read_table
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import split_words
from recipes.reasons_minilm import english

BLOCK = "benchmarks/concepts.py"
N_PAIRS = {STS: 150, SICK: 150, SCIFACT: 50}
HELD_OUT = 4  # of `ConceptReasons.learned`: one text in so many
N_FRESH = 3_000  # texts that names are tested on, none of which was learned from or chose a name
SIMLENS_TEXTS = 3_000
DOMAINS = ("business", "computers", "culture", "education and science", "engineering", "health", "politics", "sports")
N_SNIPPETS = 150  # of each domain
STEERED = (-0.25, -0.5, -1.0)
SPORTS = ("sports", "football", "tennis", "boxing", "basketball", "Olympic games", "hockey", "athletes")
OTHERS = ("window", "letter", "sugar", "north", "cotton", "engine", "dream", "copper")
Floats = npt.NDArray[np.float64]


class Rows(NamedTuple):
    """What a way makes of a score: the rows' values and names, None for a row that has none, and their whole."""

    values: Floats
    names: Sequence[str | None]
    whole: float


Way = Callable[[Floats, Floats], Rows]


class Pairs(NamedTuple):
    """Pairs of texts and their vectors at length 1."""

    firsts: list[str]
    seconds: list[str]
    rows1: Floats
    rows2: Floats


def unit(rows: Any) -> Floats:
    """Return rows at length 1."""
    rows = np.asarray(rows, np.float64)
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True).clip(min=1e-12))


def by_concepts(reasons: ConceptReasons) -> Way:
    """Return the rows of concepts."""

    def rows(first: Floats, second: Floats) -> Rows:
        terms = reasons.products(*(reasons.parts("", None, vector) for vector in (first, second)))
        names = [terms.row(n).name for n in range(len(terms.values))]
        named = [name if reasons.is_named(reasons.number(name)) else None for name in names]
        return Rows(terms.values, named, float((first - reasons.common) @ (second - reasons.common)))

    return rows


def by_components(components: Floats, common: Floats) -> Way:
    """Return the products along principal components, which add up and have no name; here each counts as named."""

    def rows(first: Floats, second: Floats) -> Rows:
        values = (components @ (first - common)) * (components @ (second - common))
        return Rows(values, [f"component {n}" for n in range(len(values))], float(values.sum()))

    return rows


def by_simlens(explainer: Any) -> Way:
    """Return the features of a bundle of SimLens; they are of the whole score."""

    def rows(first: Floats, second: Floats) -> Rows:
        why = explainer.explain(first, second, level="feature", top_k=10_000)
        contributions = list(why.contributions)
        return Rows(np.array([c.value for c in contributions]), [c.name for c in contributions], float(first @ second))

    return rows


def simlens_bundle(texts: list[str], vectors: Floats, path: Path) -> Any:
    """Return what `simlens.autofit` makes of texts: a top-k autoencoder, with names from keywords; kept at `path`."""
    from simlens import Bundle, autofit  # type: ignore[import-not-found]

    if not path.exists():
        payloads = [{"text": text} for text in texts]
        rows = vectors.astype(np.float32)
        autofit(vectors=rows, payloads=payloads, items=texts, certify=False, backend="torch").save(path)
    return Bundle.load(path)


def pair_cells(way: Way, pairs: Pairs) -> list[str]:
    """Return the share of five named rows, what is left over, and how far five rows order the pairs as the score."""
    five, left, whole, stands = [], [], [], []
    for text1, text2, first, second in zip(*pairs):
        values, names, total = way(first, second)
        named = np.array([name is not None for name in names], np.bool_)
        best = np.flatnonzero(named)[np.argsort(-values[named], kind="stable")[:5]]
        five.append(float(values[best].sum()))
        left.append(abs(total - float(values.sum())))
        whole.append(total)
        words = {word.text.lower() for word in split_words(f"{text1} {text2}")}
        stands += [any(word in words for word in str(names[n]).lower().replace(",", "").split()) for n in best]
    share = interval_of(
        bootstrap(np.array([five, whole]).T, lambda drawn: 100 * drawn[..., 0].sum(axis=1) / drawn[..., 1].sum(axis=1))
    )
    return [
        f"{share.value:.0f} ({share.low:.0f} to {share.high:.0f})", f"{100 * sum(left) / sum(whole):.0f}",
        f"{spearmanr(five, whole).statistic:.2f}", f"{100 * np.mean(stands):.0f}",
    ]  # fmt: skip


class Reader:
    """A static model that reads texts and names without the encoder, as `pellucid.dense.learning` does."""

    def __init__(self, texts: list[str]) -> None:
        """Take the texts that names are tested on."""
        self._model = pellucid.load("static-en")
        rows = self._model.encode(texts)
        self._rows = unit(rows - rows.mean(axis=0))

    def areas(self, names: Sequence[str | None], fires: Any) -> Floats:
        """Return of each name how often a text that fires is nearer to it than one that does not; NaN for none."""
        areas = np.full(len(names), np.nan)
        for concept, name in enumerate(names):
            is_firing = np.asarray(fires[:, [concept]].toarray()).ravel() > 0
            count = int(is_firing.sum())
            if name is None or not 5 <= count < len(is_firing):
                continue
            direction = unit(self._model.encode(name.split(", "))).sum(axis=0)
            ranks = rankdata(self._rows @ direction)[is_firing].sum()
            areas[concept] = (ranks - count * (count + 1) / 2) / (count * (len(is_firing) - count))
        return areas


def name_cells(reader: Reader, names: Sequence[str | None], fires: Any) -> list[str]:
    """Return how many concepts have a name, how many of these pass, and how many names of another concept would."""
    areas = reader.areas(names, fires)
    others = reader.areas([*names[1:], names[0]], fires)
    tested = ~np.isnan(areas)
    passing = float((areas[tested] >= MIN_NAME_AUC).mean()) if tested.any() else 0.0
    wrong = others[~np.isnan(others)]
    return [
        f"{len(names):,}", f"{100 * np.mean([name is not None for name in names]):.0f}", f"{tested.sum():,}",
        f"{np.median(areas[tested]):.2f}", f"{100 * passing:.0f}", f"{100 * np.mean(wrong >= MIN_NAME_AUC):.0f}",
    ]  # fmt: skip


def matched(first: Any, second: Any) -> list[str]:
    """Return the mean cosine of directions matched one to one, and the share of at least 0.8 and 0.9."""
    cosines = np.asarray(first, np.float64) @ np.asarray(second, np.float64).T
    best = cosines[linear_sum_assignment(-cosines)]
    return [f"{best.mean():.2f}", f"{100 * (best >= 0.8).mean():.0f}", f"{100 * (best >= 0.9).mean():.0f}"]


class Subject:
    """An encoder with its vectors of the corpus; what it encodes is kept in the work folder."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        """Open the encoder, and encode what was not encoded before."""
        self.name, self._work_dir = name, options.work_dir
        self.texts = english(options.data)[: 2 * options.texts]
        if name == STATIC:
            static = StaticEmbedder.from_pretrained(STATIC)
            self.model = EncoderEmbedder(partial(encode_with, static))
            self.vectors = unit(static.encode(self.texts))
            self.model.fit_reasons(self.texts[:4_000], self.vectors[:4_000], table=static, show_progress_bar=False)
        else:
            self.model = EncoderEmbedder(sentence_transformer(name, None), "words")
            self.vectors = unit(encode_resumable(self.model, english(options.data), options.work_dir / name, True))
            self.vectors = self.vectors[: len(self.texts)]
        assert isinstance(self.model.reasons, WordReasons)
        self.words = self.model.reasons

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts at length 1, read from the work folder where they were encoded before."""
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
        path = self._work_dir / f"{self.name}-{digest}.npy"
        if not path.exists():
            np.save(path, self.model.encode(list(texts)))
        return unit(np.load(path))

    def pairs(self, data: Path) -> dict[str, Pairs]:
        """Return the pairs that are judged."""
        sets = {}
        for name, count in N_PAIRS.items():
            pairs = pairs_of(name, data, count)
            texts = [pair.first for pair in pairs], [pair.second for pair in pairs]
            sets[name] = Pairs(*texts, *(self.encode(side) for side in texts))
        return sets


def encode_with(model: Any, texts: list[str]) -> Any:
    """Encode by a model, as a function without its families' methods."""
    return model.encode(texts)


def concept_tables(subject: Subject, options: argparse.Namespace) -> Iterator[str]:
    """Return the tables of concepts of one encoder."""
    half, most = options.texts, 8
    texts, vectors, common = subject.texts[:half], subject.vectors[:half], subject.words.common
    rng = np.random.default_rng(0)
    learned = ConceptReasons.learned(
        subject.model, texts, vectors, concepts=options.concepts, most=most, show_progress_bar=True
    )
    random = ConceptReasons(learned.names, rng.normal(size=learned.directions.shape), common, most=most)
    words = {n: ConceptReasons.from_words(subject.model, subject.words, most=n) for n in (16, most)}
    components = spectrum_of(vectors, centred=True)
    ways: dict[str, Way] = {
        "random directions, 8 a text": by_concepts(random),
        **{f"words as concepts, {n} a text": by_concepts(reasons) for n, reasons in words.items()},
        f"**learned**, {len(learned.names):,} from {half:,} texts, 8 a text": by_concepts(learned),
        "principal components (no names)": by_components(components.components, components.mean),
    }
    names = {"words as concepts, 8 a text": words[most], "**learned**, 8 a text": learned}
    fresh = slice(half, half + N_FRESH)
    reader, fresh_vectors = Reader(subject.texts[fresh]), subject.vectors[fresh]
    lines = [
        [label, *name_cells(reader, [n if r.is_named(i) else None for i, n in enumerate(r.names)],
                            r.weights(fresh_vectors))]
        for label, r in names.items()
    ]  # fmt: skip
    if subject.name == MINILM and options.simlens:
        from scipy import sparse
        from simlens import Explainer

        bundle = simlens_bundle(texts[:SIMLENS_TEXTS], vectors[:SIMLENS_TEXTS], options.work_dir / "bundle.simlens")
        explainer = Explainer(bundle)
        ways[f"SimLens, {len(bundle.feature_names):,} from {SIMLENS_TEXTS:,} texts"] = by_simlens(explainer)
        codes = [explainer._sae.encode_np(row) for row in fresh_vectors.astype(np.float32)]
        lines.append(["SimLens", *name_cells(reader, bundle.feature_names, sparse.csr_array(np.array(codes)))])
    sets = subject.pairs(options.data)
    columns = ("five named rows, %", "left over, %", "agreement", "stands in a text, %")
    head = ["rows", *(f"{name}: {column}" for name in sets for column in columns)]
    cells = [
        [label, *(cell for pairs in sets.values() for cell in pair_cells(way, pairs))] for label, way in ways.items()
    ]
    yield f"{learned!r}; R2 {learned.fit.explained:.2f} on texts held out."  # type: ignore[union-attr]
    yield markdown_table(head, cells)
    yield markdown_table(["names", "concepts", "named, %", "tested", "area, median", "pass, %",
                          "names of another concept that pass, %"], lines)  # fmt: skip
    yield stability(subject, learned, options)


def stability(subject: Subject, learned: ConceptReasons, options: argparse.Namespace) -> str:
    """Return a table of how far concepts are found again."""
    half, count, most = options.texts, len(learned.names), learned.most
    again = []
    for label, vectors, seed in (
        ("another seed", subject.vectors[:half], 1),
        ("other texts", subject.vectors[half:], 0),
    ):
        train = vectors[np.arange(len(vectors)) % HELD_OUT != HELD_OUT - 1]
        directions = learned_directions((train - train.mean(axis=0)).astype(np.float32), count, most, seed)
        again.append([label, *matched(learned.directions, directions)])
    rng = np.random.default_rng(0)
    again.append(["random directions", *matched(learned.directions, unit(rng.normal(size=learned.directions.shape)))])
    return markdown_table(["learned again with", "cosine, matched", "0.8 or more, %", "0.9 or more, %"], again)


# Steering and removal


class Snippets(NamedTuple):
    """Snippets of eight domains, and their vectors at length 1."""

    labels: npt.NDArray[np.int64]
    rows: Floats

    def tops(self, queries: Floats) -> npt.NDArray[np.int64]:
        """Return the ten nearest of each query that is a snippet moved, without itself: [snippets, 10]."""
        scores = queries @ self.rows.T
        np.fill_diagonal(scores, -np.inf)
        return np.argsort(-scores, axis=1, kind="stable")[:, :10]


def snippets_of(subject: Subject, data: Path) -> Snippets:
    """Return as many snippets of each domain, encoded."""
    columns = read_table(data / "clustering" / "search_snippets" / "test.tsv", ["text", "label"])
    labels = np.array(list(map(int, columns["label"]))) - 1
    rng = np.random.default_rng(0)
    chosen = np.concatenate([rng.permutation(np.flatnonzero(labels == n))[:N_SNIPPETS] for n in range(len(DOMAINS))])
    return Snippets(labels[chosen], subject.encode([columns["text"][n] for n in chosen.tolist()]))


def steering_table(subject: Subject, data: Path) -> str:
    """Return what queries find that are steered from the commonest wrong domain among their hits."""
    snippets, names = snippets_of(subject, data), subject.encode(DOMAINS)
    before = snippets.labels[snippets.tops(snippets.rows)]
    is_wrong = before != snippets.labels[:, None]
    counts = np.array([np.bincount(row[wrong], minlength=len(DOMAINS)) for row, wrong in zip(before, is_wrong)])
    mixed = np.flatnonzero(counts.max(axis=1) >= 2)  # queries with two hits or more of one other domain
    away = counts.argmax(axis=1)
    lines = []
    for weight in (0.0, *STEERED):
        after = snippets.labels[snippets.tops(snippets.rows + weight * names[away])][mixed]
        lines.append([
            f"{weight:g}", f"{100 * (after == away[mixed, None]).mean():.0f}",
            f"{100 * (after == snippets.labels[mixed, None]).mean():.0f}",
        ])  # fmt: skip
    head = [f"weight of the other domain's name ({len(mixed)} queries)", "hits of that domain, %", "hits of its own, %"]
    return markdown_table(head, lines)


def removal_table(subject: Subject, data: Path) -> str:
    """Return what removing directions changes: hits of a domain, of others, STS-B and Cranfield."""
    snippets = snippets_of(subject, data)
    task = next(task for task in find_tasks(data) if task.name.lower() == "cranfield")
    collection = read_collection(task)
    queries, documents = subject.encode(collection.queries), subject.encode(collection.documents)
    columns = read_table(data / "sts" / "STSBenchmark" / "test.tsv", ["sentence1", "sentence2", "score"])
    gold = [float(score) for score in columns["score"]]
    sides = [subject.encode(columns[name]) for name in ("sentence1", "sentence2")]
    common = subject.words.common
    is_sports = snippets.labels == DOMAINS.index("sports")
    base = snippets.tops(snippets.rows)
    lines = []
    cases: dict[str, Sequence[str]] = {
        "nothing": (), '"sports"': SPORTS[:1], "eight texts of sports": SPORTS, "eight other words": OTHERS,
    }  # fmt: skip
    for label, texts in cases.items():
        matrix = np.eye(len(common))
        if texts:
            matrix = projection(subject.encode(texts) - common, list(texts))
        rows = unit(snippets.rows @ matrix)
        tops = Snippets(snippets.labels, rows).tops(rows)
        same = snippets.labels[tops] == snippets.labels[:, None]
        stays = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(base.tolist(), tops.tolist())])
        first, second = (unit(side @ matrix) for side in sides)
        scores = unit(queries @ matrix) @ unit(documents @ matrix).T
        best = np.argsort(-scores, axis=1, kind="stable")[:, :100]
        hits = [{collection.ids[n]: float(row[n]) for n in order} for row, order in zip(scores, best.tolist())]
        correlation = spearmanr(np.einsum("nd,nd->n", first, second), gold).statistic
        lines.append([
            label, f"{100 * same[is_sports].mean():.0f}", f"{100 * same[~is_sports].mean():.0f}", f"{100 * stays:.0f}",
            f"{100 * correlation:.1f}", f"{collection.ndcg(hits):.1f}",
        ])  # fmt: skip
    head = ["removed", "sports: hits of sports, %", "others: hits of their domain, %", "first ten that stay, %",
            "STS-B, Spearman", "Cranfield, nDCG@10"]  # fmt: skip
    return markdown_table(head, lines)


def main() -> None:
    """Measure, print and perhaps write."""
    parser = make_parser(__doc__, data="raw_english/, sts/, retrieval/ and clustering/", write=PAGE)
    parser.add_argument("--work-dir", type=Path, required=True, help="where vectors of the corpus are kept")
    parser.add_argument("--texts", type=int, default=12_000, help="that concepts are learned from")
    parser.add_argument("--concepts", type=int, default=1_024)
    parser.add_argument("--encoder", choices=(MINILM, STATIC), default=MINILM)
    parser.add_argument("--part", choices=("concepts", "steering"), help="measure this alone")
    parser.add_argument("--no-simlens", dest="simlens", action="store_false", help="leave SimLens out")
    options = parser.parse_args()
    subject = Subject(options.encoder, options)
    head = f"{measured()[:-1]}, {processor()}"
    if options.part != "concepts":
        tables = [steering_table(subject, options.data), removal_table(subject, options.data)]
        print_block(f"{BLOCK} {options.encoder}, steering", "\n\n".join([f"{head}.", *tables]), options.write)
    if options.part != "steering":
        simlens = f"; simlens {version('simlens')}" if options.simlens and options.encoder == MINILM else ""
        tables = list(concept_tables(subject, options))
        print_block(f"{BLOCK} {options.encoder}", "\n\n".join([f"{head}{simlens}.", *tables]), options.write)


if __name__ == "__main__":
    main()
