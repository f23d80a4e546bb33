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
import lzma
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from papers.bm25 import PLAIN, STEMMED, Bm25
from papers.keytokens.heads import random_head, rotated_head
from papers.keytokens.index import KeyTokenIndex
from papers.kit import Claim, Figure, Interval, Table, claim_summary, interval_of, resampled, run_script
from papers.models import minilm_path
from papers.retrieval_sets import TITLES, dense_hits, read_collection
from papers.vector_cache import CachedEncoder, Vectors
from pellucid import KeyTokenEmbedder
from pellucid.evaluation.tasks import LocalTask, find_tasks
from pellucid.keytokens import Adjustment, KeyTokenSettings, token_alignment
from pellucid.keytokens.adjustments import mean_adjustment
from pellucid.persistence.store import read_json, write_json
from pellucid.text.corpus import read_texts
from pellucid.transformer import open_backbone

KEPT = Path(__file__).with_name("control")
KS, MS = (1000, 2000, 3000), (25, 50, 75, 100)
OWN, ALIGNED, BOTH = "own", "aligned", "both"
HEAD, ROTATED, RANDOM = "head", "rotated", "random"
WHICH, KINDS = (OWN, ALIGNED, BOTH), (HEAD, ROTATED, RANDOM)
NONE, MEAN, CENTRED = "none", "mean of the documents", "mean of the sentences"
OURS, PAPERS = "ours", "the paper's"
DRAWS = 5
SAMPLE = 1000  # documents of a set
SENTENCES = 100  # of a language, for the alignment
LANGUAGES = {"de": "German", "fr": "French", "ja": "Japanese", "zh": "Chinese"}
E5 = "e5"
_BLOCK = 128  # documents decoded together


class Cell(NamedTuple):
    """How documents are found: the tokens of a query that count, K tokens of a document, M aligned ones of a query."""

    which: str
    k: int
    m: int


_TOLD = ((OWN, 0), (ALIGNED, 100), (BOTH, 100))  # while it runs, at K 2,000
CELLS = [Cell(which, k, m) for k in KS for which in (OWN, ALIGNED, BOTH) for m in (MS if which != OWN else (0,))]


# --- The encoders -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """An encoder to be measured.

    Attributes:
        folder: of its weights.
        settings: how it reads, pools and decodes.
        attention: of a language model; None for an encoder.
        words: how many first words of a document are read; None for all that the encoder can read.
        documents: of how many documents a set is made: all that are right for a query, and others drawn at random;
            None for all.
    """

    folder: str
    settings: KeyTokenSettings
    attention: Any = None
    words: int | None = None
    documents: int | None = None


def sources(e5: Path | None, smollm2: Path | None) -> dict[str, Source]:
    """Return the encoders by name; the last two where their folders are given."""
    minilm = minilm_path()
    found = {"MiniLM": Source(minilm, KeyTokenSettings(normalize=True, max_length=256), documents=SAMPLE)}
    if e5:
        settings = KeyTokenSettings(normalize=True, template="passage: {text}", query_template="query: {text}")
        found[E5] = Source(str(e5), settings, words=50, documents=SAMPLE)
    if smollm2:
        settings = KeyTokenSettings(pooling="prompt_eol", start_token=True)
        found["SmolLM2"] = Source(str(smollm2), settings, "causal", 50, SAMPLE)
    return found


class Encoder:
    """An encoder, its vectors and its heads."""

    def __init__(self, name: str, source: Source, work: Path) -> None:
        """Open nothing yet."""
        self.name, self.source = name, source
        self._caches = {
            role: CachedEncoder(f"{name}, {role}", partial(self._embed, role=role), work / "vectors")
            for role in ("query", "document")
        }

    @cached_property
    def model(self) -> KeyTokenEmbedder:
        """The embedder, decoded by its own head or its input embeddings."""
        options = {} if self.source.attention is None else {"attention": self.source.attention}
        return KeyTokenEmbedder(open_backbone(self.source.folder, device="cpu", **options), self.source.settings)

    def _embed(self, texts: list[str], role: Any) -> Vectors:
        return self.model.embed(texts, role=role)

    def embed(self, texts: list[str], role: str) -> Vectors:
        """Return the embeddings of texts, float32 [n, d]."""
        return np.asarray(self._caches[role](texts), np.float32)

    def head(self, kind: str, draw: int) -> Vectors:
        """Return the rows of the text tokens, float32 [n, d]; of a control, one draw of it."""
        makers = {ROTATED: rotated_head, RANDOM: random_head}
        rows = makers[kind](self.model, draw) if kind in makers else self.model.head.rows()
        return rows[self.model.head.shown]

    def own(self, texts: list[str]) -> Any:
        """Return the tokens of queries as CSR [n, text tokens] of ones."""
        index = KeyTokenIndex.build(self.model, [], top_k=1)
        place = {token: n for n, token in enumerate(self.model.head.shown.tolist())}
        return ones([[place[t] for t in tokens.tolist()] for tokens in index.query_tokens(texts, expand=0)], len(place))


def ones(rows: Sequence[Sequence[int]], width: int) -> Any:
    """Return sets of numbers as CSR float32 [n, width] of ones."""
    ends = np.cumsum([0, *map(len, rows)])
    columns = np.array([n for row in rows for n in row], np.int64)
    return sparse.csr_matrix((np.ones(len(columns), np.float32), columns, ends), shape=(len(rows), width))


# --- Search -----------------------------------------------------------------------------------------------------------


def largest(rows: Vectors, head: Vectors, k: int) -> tuple[npt.NDArray[np.int64], Vectors]:
    """Return the k tokens of the largest logits of each embedding, best first: ids and logits [n, k]."""
    import torch

    weight, found = torch.from_numpy(head), []
    for start in range(0, len(rows), _BLOCK):
        found.append(torch.topk(torch.from_numpy(rows[start : start + _BLOCK]) @ weight.T, k, dim=1))
    values, ids = (torch.cat(part).numpy() for part in zip(*found, strict=True))
    return ids, values


def searched(
    own: Any, aligned: npt.NDArray[np.int64], top: tuple[npt.NDArray[np.int64], Vectors], cells: Sequence[Cell] = CELLS
) -> Iterator[tuple[Cell, Vectors]]:
    """Yield the scores (Eq. 16) of all documents for all queries in each cell, [queries, documents].

    Args:
        own: the queries' own tokens, CSR [queries, tokens] of ones.
        aligned: their aligned tokens, best first, at least as many as the largest M.
        top: ids and logits of the documents' tokens, best first, at least as many as the largest K.
        cells: what is asked; the M of one K ascend.

    Yields:
        each cell with its scores; -inf where a document shares no token with the query.
    """
    ids, logits = top
    for k in dict.fromkeys(cell.k for cell in cells):
        ends = np.arange(len(ids) + 1) * k
        parts = (logits[:, :k].ravel(), ids[:, :k].ravel(), ends)
        lists = sparse.csr_matrix(parts, shape=(len(ids), own.shape[1])).T.tocsr()
        for which in dict.fromkeys(cell.which for cell in cells if cell.k == k):
            sums = np.full((own.shape[0], len(ids)), -np.inf, np.float32)
            if which in (OWN, BOTH):
                add(sums, own, lists)
            before = 0
            for cell in (cell for cell in cells if (cell.k, cell.which) == (k, which)):
                more = ones(aligned[:, before : cell.m].tolist(), own.shape[1])
                add(sums, more - more.multiply(own) if which == BOTH else more, lists)
                before = cell.m
                yield cell, sums


def add(sums: Vectors, tokens: Any, lists: Any) -> None:
    """Add the logits of sets of tokens [queries, tokens], in lists [tokens, documents], to sums; -inf counts as 0."""
    tokens = sparse.csr_matrix(tokens)
    tokens.eliminate_zeros()
    found = (tokens @ lists).tocoo()
    before = sums[found.row, found.col]
    sums[found.row, found.col] = np.where(np.isneginf(before), 0, before) + found.data


def hits(scores: Vectors, ids: Sequence[str]) -> list[dict[str, float]]:
    """Return the ten best documents of each query that were found at all."""
    most = min(10, scores.shape[1])
    best = np.argpartition(-scores, most - 1, axis=1)[:, :most]
    values = np.take_along_axis(scores, best, axis=1)
    return [
        {ids[n]: score for n, score in zip(row, found, strict=True) if score > -np.inf}
        for row, found in zip(best.tolist(), values.tolist(), strict=True)
    ]


# --- Measurements -----------------------------------------------------------------------------------------------------


def sampled(ids: Sequence[str], right: Collection[str], count: int | None) -> list[int]:
    """Return the places of `count` documents in their order: all right ones, and others drawn at random; None: all."""
    if count is None or count >= len(ids):
        return list(range(len(ids)))
    drawn = np.random.default_rng(0).permutation(len(ids)).tolist()
    return sorted(sorted(drawn, key=lambda n: ids[n] not in right)[: max(count, len(right))])


class Set:
    """A retrieval set as an encoder reads it, with the training queries of SciFact behind the test queries."""

    def __init__(self, encoder: Encoder, task: LocalTask, work: Path) -> None:
        """Read it."""
        self.encoder, self.name, self.work = encoder, task.name, work / "scores"
        parts = [read_collection(task)] + ([read_collection(task, "train")] if task.name == "SciFact" else [])
        right = {document for part in parts for found in part.relevant.values() for document in found}
        chosen = sampled(parts[0].ids, right, encoder.source.documents)
        texts = [" ".join(parts[0].documents[n].split()[: encoder.source.words]) for n in chosen]
        if encoder.source.words is None:
            texts = [parts[0].documents[n] for n in chosen]
        self.parts = [replace(part, ids=[part.ids[n] for n in chosen], documents=texts) for part in parts]

    @cached_property
    def rows(self) -> tuple[Vectors, Vectors]:
        """The embeddings of all queries and of the documents."""
        queries = [text for part in self.parts for text in part.queries]
        return self.encoder.embed(queries, "query"), self.encoder.embed(self.parts[0].documents, "document")

    @cached_property
    def own(self) -> Any:
        """The queries' own tokens."""
        return self.encoder.own([text for part in self.parts for text in part.queries])

    def each(self, scores: Vectors) -> Vectors:
        """Return nDCG@10 x 100 of each query, those of the test first; of these alone, where scores are of these."""
        found, values, start = hits(scores, self.parts[0].ids), [], 0
        for part in self.parts[: 1 if len(scores) == self.tested else None]:
            values += part.each_ndcg(found[start : start + len(part.queries)])
            start += len(part.queries)
        return np.array(values, np.float32)

    def grid(self, kind: str, draw: int, adjustment: str) -> Vectors:
        """Return nDCG@10 x 100 of each query for each of `CELLS`, [cells, queries]; measured once.

        Those of the training are left out of all draws but the first, which chooses.
        """
        path = self.work / f"{self.encoder.name}-{self.name}-{kind}-{draw}-{adjustment.split()[0]}.npy"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            offset = self.rows[1].mean(axis=0) if adjustment == MEAN else np.float32(0)
            queries, documents = (part - offset for part in self.rows)
            head = self.encoder.head(kind, draw)
            top = largest(documents, head, max(KS))
            asked = slice(None if draw == 0 else self.tested)
            aligned = largest(queries[asked], head, max(MS))[0]
            each = {cell: self.each(sums) for cell, sums in searched(self.own[asked], aligned, top)}
            np.save(path, np.stack([each[cell] for cell in CELLS]))
            print(path.stem, *(f"{which} {each[Cell(which, 2000, m)].mean():.1f}" for which, m in _TOLD), flush=True)
        found: Vectors = np.load(path)
        return found

    def dense(self, adjustment: str) -> Vectors:
        """Return nDCG@10 x 100 of each query by the cosines of the embeddings."""
        offset = self.rows[1].mean(axis=0) if adjustment == MEAN else np.float32(0)
        queries, documents = (rows - offset for rows in self.rows)
        values, start = [], 0
        for part in self.parts:
            values += part.each_ndcg(dense_hits((queries[start : start + len(part.queries)], documents), part))
            start += len(part.queries)
        return np.array(values, np.float32)

    def bm25(self, name: str) -> Vectors:
        """Return nDCG@10 x 100 of each test query by BM25 on the same texts."""
        part, engine = self.parts[0], Bm25(name)
        engine.index([{"id": i, "text": text} for i, text in zip(part.ids, part.documents, strict=True)])
        asked = [{"id": query, "text": text} for query, text in zip(part.relevant, part.queries, strict=True)]
        found = engine.search(asked, top_k=10)
        return np.array(part.each_ndcg([found[query] for query in part.relevant]), np.float32)

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


def alignments(encoder: Encoder, data: Path, work: Path) -> dict[str, Any]:
    """Return what `token_alignment` says of an encoder, over sentences of each language it is for; measured once."""
    path = work / f"{encoder.name}-alignment.json"
    found: dict[str, Any] = read_json(path) if path.exists() else {}
    for language, texts in sentences(data, list(LANGUAGES) if encoder.name == E5 else []).items():
        if f"{language} | {CENTRED}" in found:
            continue
        moved = mean_adjustment(encoder.model.embed(texts))
        for kind, adjustment in ((NONE, Adjustment()), (CENTRED, moved)):
            report = token_alignment(encoder.model.with_adjustment(adjustment), texts)
            found[f"{language} | {kind}"] = report.to_dict()
        write_json(path, found)
    return found


def sentences(data: Path, codes: Sequence[str]) -> dict[str, list[str]]:
    """Return language -> sentences: English of all kinds, and of Tatoeba one side each of translations from English."""
    found = {"English": list(islice(read_texts(data / "raw_english/open_licence.txt.xz"), SENTENCES))}
    for code in codes:
        with lzma.open(data / f"parallel/tatoeba/en-{code}.tsv.xz", "rt", encoding="utf-8") as file:
            pairs = [line.rstrip("\n").split("\t") for line in file][1:]
        drawn = np.random.default_rng(0).permutation(len(pairs)).tolist()
        found[LANGUAGES[code]] = list(dict.fromkeys(pairs[n][1] for n in drawn))[:SENTENCES]
        if code == codes[0]:
            found["English, Tatoeba"] = list(dict.fromkeys(pairs[n][0] for n in drawn))[:SENTENCES]
    return found


def measure_missing(options: argparse.Namespace) -> None:
    """Measure what is not yet known, and keep what the tables need."""
    tasks = {task.name: task for task in find_tasks(options.data) if task.kind == "Retrieval"}
    for name, source in sources(options.e5, options.smollm2).items():
        if name not in options.only:
            continue
        encoder = Encoder(name, source, options.work_dir)
        chosen = choose(Set(encoder, tasks["SciFact"], options.work_dir))
        kept: dict[str, Any] = {"words": source.words, "chosen": said_choice(chosen), "sets": {}, "alignment": {}}
        for title in options.sets:
            kept["sets"][title] = measured(Set(encoder, tasks[title], options.work_dir), chosen, options.draws)
            keep(name, kept)
        kept["alignment"] = alignments(encoder, options.data, options.work_dir)
        keep(name, kept)


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
        return Claim(text, gain.above(), gain.signed(), where=where)

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
