r"""Is key-token search better than the same search without meaning?

    python -m papers.keytokens.control --data shared/data --work-dir WORK --e5 E5 --smollm2 SMOLLM2 --write
    python -m papers.keytokens.control --write          (draws the tables again from papers/keytokens/control)

The search of "A Text is Worth Several Tokens", section 5.1, with a query's own tokens, its aligned tokens, or both:
over the head of an encoder, over the same head turned by a random orthogonal matrix, and over random rows. Embeddings
and scores are kept in WORK, and a run that was killed goes on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from papers.bm25 import PLAIN, STEMMED, Bm25
from papers.keytokens.heads import random_head, rotated_head
from papers.keytokens.index import ALIGNED, BOTH, OWN, Cell, searches
from papers.keytokens.retrieval import Kept
from papers.kit import Claim, Figure, Interval, Table, claim_summary, interval_of, resampled, run_script
from papers.models import minilm_path
from papers.retrieval_sets import TITLES, Collection, dense_hits, read_collection
from papers.vector_cache import CachedEncoder, Vectors
from pellucid import KeyTokenEmbedder
from pellucid.evaluation.tasks import LocalTask, find_tasks, read_table
from pellucid.keytokens import Adjustment, KeyTokenSettings, token_alignment
from pellucid.keytokens.adjustments import mean_adjustment
from pellucid.text.corpus import read_texts
from pellucid.transformer import open_backbone

KEPT = Path(__file__).with_name("control")
KS, MS = (1000, 2000, 3000), (25, 50, 75, 100)
HEAD, ROTATED, RANDOM = "head", "rotated", "random"
WHICH, KINDS = (OWN, ALIGNED, BOTH), (HEAD, ROTATED, RANDOM)
NONE, MEAN, CENTRED = "none", "mean of the documents", "mean of the sentences"
OURS, PAPERS = "ours", "the paper's"
DRAWS = 5
SAMPLE = 1000  # documents of a set
SENTENCES = 100  # of a language, for the alignment
LANGUAGES = {"de": "German", "fr": "French", "ja": "Japanese", "zh": "Chinese"}
E5 = "e5"
CELLS = [Cell(which, k, m) for k in KS for which in WHICH for m in (MS if which != OWN else (0,))]
_TOLD = (Cell(OWN, 2000, 0), Cell(ALIGNED, 2000, 100), Cell(BOTH, 2000, 100))  # while it runs


# --- The encoders -----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Encoder:
    """An encoder, its vectors and its heads.

    Attributes:
        name: of the encoder.
        folder: of its weights.
        settings: how it reads, pools and decodes.
        work: where vectors are kept.
        words: how many first words of a document are read; None for all that the encoder can read.
        attention: as `open_backbone` has it.
    """

    name: str
    folder: str | Path
    settings: KeyTokenSettings
    work: Path
    words: int | None = None
    attention: Any = "bidirectional"

    @cached_property
    def model(self) -> KeyTokenEmbedder:
        """The embedder, decoded by its own head or its input embeddings."""
        return KeyTokenEmbedder(open_backbone(self.folder, device="cpu", attention=self.attention), self.settings)

    @cached_property
    def _caches(self) -> dict[str, CachedEncoder]:
        return {
            role: CachedEncoder(
                f"{self.name}, {role}",
                lambda texts, role=role: self.model.embed(texts, role=role),
                self.work / "vectors",
            )
            for role in ("query", "document")
        }

    def embed(self, texts: list[str], role: str) -> Vectors:
        """Return the embeddings of texts, float32 [n, d]."""
        return np.asarray(self._caches[role](texts), np.float32)

    def over(self, kind: str, draw: int) -> KeyTokenEmbedder:
        """Return the embedder over its head, or over a control of it, of which this is one draw."""
        if kind == HEAD:
            return self.model
        rows = {ROTATED: rotated_head, RANDOM: random_head}[kind](self.model, draw)
        return KeyTokenEmbedder(self.model.backbone, self.model.settings, head=rows)


def encoders(options: argparse.Namespace) -> Iterator[Encoder]:
    """Yield the encoders; the last two where their folders are given."""
    yield Encoder("MiniLM", minilm_path(), KeyTokenSettings(normalize=True, max_length=256), options.work_dir)
    if options.e5:
        settings = KeyTokenSettings(normalize=True, template="passage: {text}", query_template="query: {text}")
        yield Encoder(E5, options.e5, settings, options.work_dir, 50)
    if options.smollm2:
        settings = KeyTokenSettings(pooling="prompt_eol", start_token=True)
        yield Encoder("SmolLM2", options.smollm2, settings, options.work_dir, 50, "causal")


# --- Measurements -----------------------------------------------------------------------------------------------------


def sampled(ids: Sequence[str], right: set[str], count: int) -> list[int]:
    """Return the places of `count` documents in their order: all right ones, and others drawn at random."""
    drawn = np.random.default_rng(0).permutation(len(ids)).tolist()
    return sorted(sorted(drawn, key=lambda n: ids[n] not in right)[: max(count, len(right))])


class Set:
    """A retrieval set as an encoder reads it, with the training queries of SciFact behind the test queries."""

    def __init__(self, encoder: Encoder, task: LocalTask) -> None:
        """Read it."""
        self.encoder, self.name, self.work = encoder, task.name, encoder.work / "scores"
        parts = [read_collection(task)] + ([read_collection(task, "train")] if task.name == "SciFact" else [])
        right = {document for part in parts for found in part.relevant.values() for document in found}
        chosen = sampled(parts[0].ids, right, SAMPLE)
        texts = [parts[0].documents[n] for n in chosen]
        if encoder.words:
            texts = [" ".join(text.split()[: encoder.words]) for text in texts]
        self.parts = [replace(part, ids=[part.ids[n] for n in chosen], documents=texts) for part in parts]

    @cached_property
    def rows(self) -> tuple[Vectors, Vectors]:
        """The embeddings of all queries and of the documents."""
        queries = [text for part in self.parts for text in part.queries]
        return self.encoder.embed(queries, "query"), self.encoder.embed(self.parts[0].documents, "document")

    def grid(self, kind: str, draw: int, adjustment: str) -> Vectors:
        """Return nDCG@10 x 100 of each query for each of `CELLS`, [cells, queries]; measured once.

        Those of the training are left out of all draws but the first, which chooses.
        """
        path = self.work / f"{self.encoder.name}-{self.name}-{kind}-{draw}-{adjustment.split()[0]}.npy"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            queries, documents = self.rows
            model = self.encoder.over(kind, draw).with_adjustment(
                mean_adjustment(documents) if adjustment == MEAN else Adjustment()
            )
            found: dict[Cell, list[float]] = {cell: [] for cell in CELLS}
            for part, where in self.split(self.parts[: None if draw == 0 else 1]):
                for cell, index, tokens in searches(model, part.queries, (queries[where], documents), CELLS):
                    hits = [{part.ids[n]: score for n, score in index.hits(ids)} for ids in tokens]
                    found[cell] += part.each_ndcg(hits)
            np.save(path, np.array([found[cell] for cell in CELLS], np.float32))
            print(path.stem, *(f"{cell.which} {np.mean(found[cell]):.1f}" for cell in _TOLD), flush=True)
        grid: Vectors = np.load(path)
        return grid

    def split(self, parts: Sequence[Collection]) -> Iterator[tuple[Collection, slice]]:
        """Yield the sets of queries with where their rows are."""
        start = 0
        for part in parts:
            yield part, slice(start, start + len(part.queries))
            start += len(part.queries)

    def dense(self, adjustment: str) -> Vectors:
        """Return nDCG@10 x 100 of each query by the cosines of the embeddings."""
        offset = self.rows[1].mean(axis=0) if adjustment == MEAN else np.float32(0)
        queries, documents = (rows - offset for rows in self.rows)
        each = (part.each_ndcg(dense_hits((queries[where], documents), part)) for part, where in self.split(self.parts))
        return np.array(list(chain.from_iterable(each)), np.float32)

    def bm25(self, name: str) -> Vectors:
        """Return nDCG@10 x 100 of each test query by BM25 on the same texts."""
        part = self.parts[0]
        return np.array(part.each_ndcg(Bm25(part, name).hits(part.queries)), np.float32)

    @property
    def tested(self) -> int:
        """How many of the queries are of the test; those behind them are of the training."""
        return len(self.parts[0].queries)


def draws_of(kind: str, draws: int) -> range:
    """Return the draws of a kind of head; the head itself has one."""
    return range(1 if kind == HEAD else draws)


def choose(scifact: Set) -> dict[str, Any]:
    """Return what SciFact's training queries choose: the adjustment of dense search, and each line's cell."""
    after = slice(scifact.tested, None)
    dense = max((NONE, MEAN), key=lambda kind: scifact.dense(kind)[after].mean())
    found: dict[str, Any] = {"dense": dense}
    for kind in KINDS:
        means = {adjustment: scifact.grid(kind, 0, adjustment)[:, after].mean(axis=1) for adjustment in (NONE, MEAN)}
        for which in WHICH:
            scores = {(a, n): means[a][n] for a in means for n, cell in enumerate(CELLS) if cell.which == which}
            found[f"{kind} | {which}"] = max(scores, key=lambda one: float(scores[one]))
    return found


def measured(some: Set, chosen: Mapping[str, Any], draws: int) -> dict[str, Any]:
    """Return nDCG of each test query, in tenths: of dense search, BM25, and every line under both protocols."""
    test = slice(some.tested)
    found: dict[str, Any] = {"documents": len(some.parts[0].ids), "queries": some.tested}
    found["dense"] = tenths(some.dense(chosen["dense"])[test])
    found |= {name: tenths(some.bm25(name)) for name in (PLAIN, STEMMED)}
    for kind in KINDS:
        for which in WHICH:
            adjustment, place = chosen[f"{kind} | {which}"]
            ours = [some.grid(kind, n, adjustment)[place, test] for n in draws_of(kind, draws)]
            best = [_best(some.grid(kind, n, NONE)[:, test], which) for n in draws_of(kind, draws)]
            found[f"{OURS} | {kind} | {which}"] = [tenths(each) for each in ours]
            found[f"{PAPERS} | {kind} | {which}"] = [tenths(each) for each in best]
    return found


def _best(grid: Vectors, which: str) -> Vectors:
    """Return the values of the best cell of a kind, [queries]."""
    of_kind = grid[[n for n, cell in enumerate(CELLS) if cell.which == which]]
    found: Vectors = of_kind[of_kind.mean(axis=1).argmax()]
    return found


def tenths(values: Vectors) -> list[int]:
    """Return values as whole numbers of tenths, as they are kept."""
    return [round(value) for value in (10 * values).tolist()]


def alignments(encoder: Encoder, data: Path) -> dict[str, Any]:
    """Return what `token_alignment` says of an encoder, over sentences of each language it is for; measured once."""
    kept = Kept(encoder.work / f"{encoder.name}-alignment.json")

    def report(texts: list[str], adjustment: str) -> dict[str, Any]:
        model = encoder.model.fitted(texts, "mean") if adjustment == CENTRED else encoder.model
        return token_alignment(model, texts).to_dict()

    for language, texts in sentences(data, list(LANGUAGES) if encoder.name == E5 else []).items():
        for adjustment in (NONE, CENTRED):
            kept.get(f"{language} | {adjustment}", partial(report, texts, adjustment))
    return kept.values


def sentences(data: Path, codes: Sequence[str]) -> dict[str, list[str]]:
    """Return language -> sentences: English of all kinds, and of Tatoeba one side each of translations from English."""
    found = {"English": list(islice(read_texts(data / "raw_english/open_licence.txt.xz"), SENTENCES))}
    for code in codes:
        english, foreign = read_table(data / f"parallel/tatoeba/en-{code}.tsv.xz", ["en", code]).values()
        drawn = np.random.default_rng(0).permutation(len(foreign)).tolist()
        found[LANGUAGES[code]] = list(dict.fromkeys(foreign[n] for n in drawn))[:SENTENCES]
        if code == codes[0]:
            found["English, Tatoeba"] = list(dict.fromkeys(english[n] for n in drawn))[:SENTENCES]
    return found


def measure_missing(options: argparse.Namespace) -> None:
    """Measure what is not yet known, and keep what the tables need."""
    tasks = {task.name: task for task in find_tasks(options.data) if task.kind == "Retrieval"}
    for encoder in encoders(options):
        if encoder.name not in options.only:
            continue
        chosen = choose(Set(encoder, tasks["SciFact"]))
        kept: dict[str, Any] = {"words": encoder.words, "chosen": said_choice(chosen), "sets": {}, "alignment": {}}
        for title in options.sets:
            kept["sets"][title] = measured(Set(encoder, tasks[title]), chosen, options.draws)
            keep(encoder.name, kept)
        kept["alignment"] = alignments(encoder, options.data)
        keep(encoder.name, kept)


def keep(name: str, kept: Mapping[str, Any]) -> None:
    """Write what the tables need of an encoder."""
    KEPT.mkdir(exist_ok=True)
    (KEPT / f"{name}.json").write_text(json.dumps(kept, separators=(",", ":")) + "\n", encoding="utf-8")


def said_choice(chosen: Mapping[str, Any]) -> dict[str, str]:
    """Return what was chosen as a table writes it."""
    found = {"dense": chosen["dense"]}
    for line, (adjustment, place) in ((line, one) for line, one in chosen.items() if line != "dense"):
        cell = CELLS[place]
        found[line] = f"K {cell.k:,}" + (f", M {cell.m}" if cell.m else "") + f", {adjustment}"
    return found


# --- The page ---------------------------------------------------------------------------------------------------------

NAMES = ("MiniLM", E5, "SmolLM2")


def difference(ones: Any, others: Any) -> Interval:
    """Return the mean difference of two lines [draws, queries], in points, and its interval over queries and draws."""
    one, other = (np.asarray(values, np.float64) / 10 for values in (ones, others))
    drawn = np.random.default_rng(1)
    scores = [one.mean() - other.mean()]
    for queries in resampled(one.shape[1]):
        means = (values[drawn.integers(0, len(values), len(values))][:, queries].mean() for values in (one, other))
        scores.append(next(means) - next(means))
    return interval_of(np.array(scores))


def mean_of(values: Any) -> float:
    """Return the mean of kept tenths, in points."""
    return float(np.mean(values)) / 10


def lines_of(kept: Mapping[str, Any], protocol: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield of each set and kind of query tokens the name of both, the kind, and the values of each head."""
    for name, found in kept["sets"].items():
        for which in WHICH:
            yield TITLES[name], which, {kind: found[f"{protocol} | {kind} | {which}"] for kind in KINDS}


def control_table(kept: Mapping[str, Any], protocol: str) -> Table:
    """Return what the three heads find, and the differences."""
    lines = []
    for title, which, found in lines_of(kept, protocol):
        means = [mean_of(found[kind]) for kind in KINDS]
        gains = [difference(found[HEAD], found[kind]).with_verdict() for kind in (ROTATED, RANDOM)]
        lines.append([f"{title}, {which}", *means, *gains])
    return Table(["", *KINDS, "head - rotated", "head - random"], lines)


def claims(all_kept: Mapping[str, Mapping[str, Any]]) -> Iterator[Claim]:
    """Yield each claim on the head, its controls and its searches, wherever it was tested."""

    def test(text: str, where: str, ones: Any, others: Any) -> Claim:
        gain = difference(ones, others)
        return Claim(text, gain.difference_verdict(), gain.signed(), where=where)

    for name, kept in all_kept.items():
        for protocol in (OURS, PAPERS):
            every = list(lines_of(kept, protocol))
            aligned = {title: values[HEAD] for title, which, values in every if which == ALIGNED}
            for title, which, values in every:
                where = f"{name} on {title}, {protocol}"
                for kind, rows in ((ROTATED, "the head rotated"), (RANDOM, "random rows")):
                    text = f"Over the head, {_SEARCHES[which]} finds more than over {rows}"
                    yield test(text, where, values[HEAD], values[kind])
                if which == BOTH:
                    text = "Over the head, both find more than aligned tokens alone"
                    yield test(text, where, values[HEAD], aligned[title])


_SEARCHES = {
    OWN: "a search with the query's own tokens",
    ALIGNED: "a search with its aligned tokens",
    BOTH: "a search with both",
}


def alignment_table(all_kept: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return which encoders are aligned with the tokens of their texts, more than the controls."""
    lines = []
    for name, kept in all_kept.items():
        for key, found in kept["alignment"].items():
            intervals = (Interval(*(100 * one[end] for end in ("gain", "low", "high"))) for one in found["controls"])
            language, _, adjustment = key.partition(" | ")
            gains = (interval.with_verdict() for interval in intervals)
            lines.append([f"{name}, {language}", adjustment, 100 * found["rate"], *gains])
    return Table(["", "adjustment", "own tokens", "more than rotated", "more than of another text"], lines, 2)


def search_table(all_kept: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return each search over the head, by our protocol, between BM25 and the encoder's dense search."""
    lines: list[list[Any]] = []
    for name, kept in all_kept.items():
        for title, found in kept["sets"].items():
            where, dense, bm25 = f"{name} on {TITLES[title]}", [found["dense"]], [found[PLAIN]]
            both = f"{mean_of(found[PLAIN]):.1f} / {mean_of(found[STEMMED]):.1f}"
            lines.append([f"{where}: BM25 / stemmed", both, None, None])
            lines.append([f"{where}: dense", mean_of(dense), difference(dense, bm25).with_verdict(), None])
            for which in WHICH:
                values = found[f"{OURS} | {HEAD} | {which}"]
                gains = (difference(values, beside).with_verdict() for beside in (bm25, dense))
                lines.append([f"{where}: {which}", mean_of(values), *gains])
    return Table(["", "nDCG@10", "more than BM25", "more than dense"], lines)


def chosen_table(all_kept: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return what was chosen on SciFact's training queries."""
    keys = ["dense", *(f"{kind} | {which}" for which in WHICH for kind in KINDS)]
    rows = [[key.replace(" |", ","), *(kept["chosen"][key] for kept in all_kept.values())] for key in keys]
    return Table(["", *all_kept], rows, 1 + len(all_kept))


def figures() -> Iterator[tuple[str, Figure]]:
    """Yield what the page shows, from what was kept of each encoder."""
    paths = [KEPT / f"{name}.json" for name in NAMES]
    all_kept = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()}
    yield "claims", claim_summary(claims(all_kept))
    for name, kept in all_kept.items():
        read = f"first {kept['words']} words of a document" if kept["words"] else "first 256 tokens of a document"
        sizes = "; ".join(f"{TITLES[title]} {found['documents']:,} documents" for title, found in kept["sets"].items())
        draws = len(next(iter(kept["sets"].values()))[f"{OURS} | {RANDOM} | {OWN}"])
        yield f"{name}-sizes", f"Reads the {read}; {sizes}; {draws} draws of each control"
        yield f"{name}-ours", control_table(kept, OURS)
        yield f"{name}-paper", control_table(kept, PAPERS)
    yield "alignment", alignment_table(all_kept)
    yield "search", search_table(all_kept)
    yield "chosen", chosen_table(all_kept)


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Measure where a folder to work in is given, and yield what the page shows."""
    if options.work_dir:
        measure_missing(options)
    yield from figures()


if __name__ == "__main__":
    run_script(
        measure,
        {
            "--work-dir": {"type": Path, "help": "where vectors and scores are kept; without it nothing is measured"},
            "--e5": {"type": Path, "help": "folder of multilingual-e5-small"},
            "--smollm2": {"type": Path, "help": "folder of SmolLM2-135M-Instruct"},
            "--sets": {"nargs": "+", "default": ["SciFact"], "choices": TITLES, "help": "retrieval sets"},
            "--draws": {"type": int, "default": DRAWS, "help": "of each control"},
        },
        data="retrieval/",
        only=NAMES,
    )
