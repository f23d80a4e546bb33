r"""The LENS paper's claims on SmolLM2: its 30 layers as lexicon models and as dense ones, all trained alike.

    python -m papers.lens.language_model --data shared/data --model SMOLLM2 --e5 E5 --work-dir WORK --write
    python -m papers.lens.kept_results --write

`recipes/lexicon_smollm2.py` trains every model. Adapters, embeddings of the test texts and what was measured on them
are kept in WORK, and a run that was stopped goes on. `--trials` measures the settings that were chosen from, on batches
that no row is trained on. `--grid` makes other rows with five seeds each and keeps what every test item came to in
`results/smollm2`, from which the second command makes tables. `--floors MINILM` measures BM25, static-en,
all-MiniLM-L6-v2 in that folder and lexicon-minilm on the same items.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from transformers import AutoTokenizer

from papers.bm25 import bm25_table
from papers.kit import Figure, read_or_make, run_script
from papers.lens.baselines import echo, promptreps, promptreps_dense
from papers.lens.kept_results import FLOORS, PRUNED, floor_name, grid, keep, kept_row, made_of
from papers.lens.language_page import (
    CENTRED_ON,
    CLUSTERS,
    FAILING,
    KEPT,
    KINDS,
    LARGEST,
    PROMPTED,
    ROWS,
    TRIALS,
    Measured,
    figures,
)
from papers.lens.samples import Sample, samples
from papers.lens.tables import QUERIES, pruned, side_by_side
from papers.vector_cache import CachedEncoder, distinct
from pellucid import LexiconEmbedder, load
from pellucid.core.arrays import l2_normalize
from pellucid.lexicon import LexiconSettings
from pellucid.persistence.store import read_json, write_json
from pellucid.transformer import open_backbone
from pellucid.transformer.backbone import half_dtype
from recipes.lexicon_head import load_clusters
from recipes.lexicon_smollm2 import (
    LENGTH,
    START,
    TRAINING,
    Row,
    Source,
    clusters_of,
    held_out,
    short_sentences,
    source_of,
    trained,
)

RESULTS = Path(__file__).with_name("results") / "smollm2"
PROMPT = 96  # tokens that prompted rows may read more


class Bench:
    """The samples, and what was measured on them before."""

    def __init__(self, source: Source, kinds: Sequence[str] = KINDS) -> None:
        """Read the test sets of some kinds; no model yet."""
        self.source = source
        self.samples = [sample for sample in samples(source.data) if sample.kind in kinds]
        self.texts = distinct(text for sample in self.samples for text in sample.texts)
        self.place = {text: n for n, text in enumerate(self.texts)}

    def path(self, row: Row) -> Path:
        """Return where facts of a row are kept, written when its embeddings are."""
        return self.source.work / "rows" / f"{row.name}.json"

    def encode(self, row: Row) -> None:
        """Train a row and encode the test texts with it."""
        start = time.process_time()
        model = trained(self.source, row)
        seconds, start = time.process_time() - start, time.process_time()
        self.embeddings(row.name, partial(model.encode, batch_size=64, show_progress_bar=False))
        model.backbone.lower.save()
        self.path(row).parent.mkdir(exist_ok=True)
        reading = time.process_time() - start
        facts = {"training_seconds": round(seconds, 1), "reading_seconds": round(reading, 1), "dtype": half_dtype()}
        if self.source.device != "cpu":
            facts["device"] = torch.cuda.get_device_name()
        write_json(self.path(row), facts)
        print(f"{row.name}: {seconds:.0f} s of processor time for the training", flush=True)

    def embeddings(self, name: str, encode: Callable[[list[str]], Any]) -> Any:
        """Return the embeddings of all test texts under a name; those that are not kept yet are made."""
        return CachedEncoder(name, encode, self.source.work / "vectors")(self.texts)

    def rows(self, row: Row) -> Any:
        """Return the kept embeddings of all test texts."""
        return self.embeddings(row.name, _refuse)

    def keep_row(self, row: Row) -> None:
        """Keep what every test item came to, with a row's embeddings and with what is made of them after the fact."""
        whole, facts = self.rows(row), {"row": asdict(row), **read_json(self.path(row))}
        made: dict[str, Callable[[], Any]] = {}
        if row.clusters is None:
            made |= {f"top-{most}": partial(pruned, whole, most) for most in PRUNED}
            made |= {f"4000-{way}": partial(grouped, self.source, whole, way) for way in ("maximum", "sum")}
        for end in made_of(row).values():
            self.keep(RESULTS, f"{row.name}-{end}", made[end](), facts)
        self.keep(RESULTS, row.name, whole, facts)  # the last one: what is written of a row is not made again

    def keep(self, folder: Path, name: str, rows: Any, facts: dict[str, Any]) -> None:
        """Keep what every test item comes to by embeddings of all test texts."""
        items = {s.name: s.items(rows[[self.place[text] for text in s.texts]]) for s in self.samples}
        active = round(rows.nnz / len(self.texts), 1) if sparse.issparse(rows) else None
        keep(folder, name, self.samples, items, {**facts, "coordinates": active})

    def measured(self, name: str, rows: Callable[[], Any]) -> Measured:
        """Return the scores of some embeddings of the test texts, with bootstrap samples of each; measured once."""
        folder = self.source.work / "items"
        if (found := kept_row(folder, name)) is None:
            self.keep(folder, name, rows(), {})
            found = kept_row(folder, name)
        return found


def _refuse(texts: list[str]) -> Any:
    raise SystemExit(f"{len(texts)} test texts are not encoded; run without --kept")


def held_out_losses(source: Source, row: Row) -> list[float]:
    """Return a row's mean loss on batches that no row is trained on, and on sentences, paraphrases and questions; kept.

    Of sentences it is the divergence from the teachers, 0 for a model that has their cosines.
    """

    def losses() -> list[float]:
        model, found = trained(source, row), dict[str, list[float]]()
        for kind, texts, others in held_out(source):
            found.setdefault(kind, []).append(_loss(model, texts, others))
        model.backbone.lower.save()
        every = [loss for part in found.values() for loss in part]
        return [float(np.mean(part)) for part in (every, *found.values())]

    return list(read_or_make(held_out_path(source, row), losses))


def held_out_path(source: Source, row: Row) -> Path:
    """Return where a row's losses are kept."""
    return source.work / "held-out" / f"{row.name}.json"


def _loss(model: Any, texts: list[str], others: Any) -> float:
    """Return the loss of a batch: texts and the teachers' vectors, or texts and those that belong to them."""
    first = torch.tensor(_array(model.encode(texts)))
    if isinstance(others, list):
        cosines = first @ torch.tensor(_array(model.encode(others))).T / TRAINING.temperature
        return float(torch.nn.functional.cross_entropy(cosines, torch.arange(len(first))))
    parts = [first, torch.tensor(l2_normalize(others.astype(np.float32)))]
    cosines = [rows @ rows.T / TRAINING.similarity_temperature for rows in parts]
    student, teacher = (part.fill_diagonal_(-1e4).log_softmax(dim=1) for part in cosines)
    return float(torch.nn.functional.kl_div(student, teacher, reduction="batchmean", log_target=True))


def _array(rows: Any) -> np.ndarray:
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows, np.float32)


def grouped(source: Source, rows: Any, way: str) -> Any:
    """Return the embeddings by all tokens with the 4,000 clusters' coordinates: "maximum" or "sum" of their tokens'."""
    each = (Row(clusters=None), Row(clusters=4000))  # no row of this work folder may have made them yet
    tokens, clusters = (clusters_of(source, row) for row in each)
    group = np.empty(tokens.assignment.max() + 1, np.int64)
    group[tokens.assignment[tokens.assignment >= 0]] = clusters.assignment[tokens.assignment >= 0]
    count, starts = len(clusters.centroids), range(0, rows.shape[0], 256)
    found = [_grouped(rows[start : start + 256], group, count, way) for start in starts]
    return l2_normalize(sparse.vstack(found, format="csr"))


def _grouped(rows: Any, group: np.ndarray, count: int, way: str) -> Any:
    """Return a few texts' embeddings by groups of coordinates."""
    one = sparse.coo_matrix(rows)
    places = one.row.astype(np.int64) * count + group[one.col]
    order = np.argsort(places, kind="stable")
    starts = np.flatnonzero(np.diff(places[order], prepend=-1))
    if not len(starts):
        return sparse.csr_matrix((one.shape[0], count), dtype=np.float32)
    values = (np.maximum if way == "maximum" else np.add).reduceat(one.data[order], starts)
    return sparse.csr_matrix((values, np.divmod(places[order][starts], count)), shape=(one.shape[0], count))


def frequencies(rows: Any) -> np.ndarray:
    """Return in how many of the texts each cluster fires, as a share."""
    return np.bincount(rows.indices, minlength=rows.shape[1]) / rows.shape[0]


def weighted(rows: Any) -> Any:
    """Return the embeddings with each cluster times log(1 / its frequency among these texts) (section 5.5)."""
    weights = np.log(1 / np.maximum(frequencies(rows), 1 / rows.shape[0]))
    scaled = sparse.csr_matrix(rows.multiply(weights[None, :]), dtype=np.float32)
    scaled.eliminate_zeros()
    return l2_normalize(scaled)


def all_measured(bench: Bench, done: Mapping[str, Row]) -> dict[str, Measured]:
    """Return label -> what was measured: of the rows, and of what is made of their embeddings."""
    found = {label: bench.measured(row.name, partial(bench.rows, row)) for label, row in done.items()}
    lexicon, dense = bench.rows(ROWS["lexicon"]), bench.rows(ROWS["dense"])
    made: dict[str, Callable[[], Any]] = {f"top-{most}": partial(pruned, lexicon, most) for most in KEPT}
    made |= {"idf": partial(weighted, lexicon), "hybrid": partial(side_by_side, lexicon, dense)}
    if (other := "dense, second seed") in done:
        made["two dense"] = lambda: side_by_side(dense, bench.rows(done[other]))
    whole = ROWS["lexicon"].name
    found |= {label: bench.measured(f"{whole}-{label}", rows) for label, rows in made.items()}
    asked = [label for label in PROMPTED if (bench.source.work / "items" / f"{label}.json").exists()]
    return found | {label: bench.measured(label, partial(prompted_rows, bench, label)) for label in asked}


def prompted(source: Source, label: str) -> Any:
    """Return the whole language model as it is, asked as `label` says."""
    backbone = open_backbone(source.model, attention="causal", dtype=half_dtype(), device="cpu")
    if label == "echo":
        model = echo(backbone)
        return model.with_settings(replace(model.settings, max_length=2 * LENGTH + PROMPT, max_active_dims=LARGEST))
    make = promptreps if label == "PromptReps" else promptreps_dense
    return make(backbone, max_length=LENGTH + PROMPT)


def prompted_rows(bench: Bench, label: str) -> Any:
    """Return the embeddings of all test texts by a prompted row; kept."""
    return bench.embeddings(
        label, partial(prompted(bench.source, label).encode, batch_size=64, show_progress_bar=False)
    )


def whole_model(source: Source, texts: list[str]) -> LexiconEmbedder:
    """Return the language model with the same clusters, one way, nothing trained, less the texts' mean state.

    A start token comes before each text and is not pooled: the state of whatever is first is like no other.
    """
    backbone = open_backbone(source.model, attention="causal", dtype=half_dtype(), device="cpu")
    clusters = load_clusters(source.work / "clusters-4000")
    states = []
    with torch.inference_mode():
        for text in texts:
            ids = torch.tensor([backbone.tokenizer(START + text)["input_ids"]])
            states.append(backbone.states(ids, torch.ones_like(ids))[0, 1:].float())
    mean = torch.cat(states).mean(dim=0).numpy()
    settings = LexiconSettings(template=START + "{text}", pooling="sum", shift=False, end_token=False)
    return LexiconEmbedder(backbone, clusters, settings, bias=-(clusters.centroids @ mean))


def strongest(bench: Bench) -> dict[str, list[list[str]]]:
    """Return the names of the strongest clusters of the paper's queries, made once.

    Of each query: in the trained model, the same weighted down by frequency, and in the model before any training.
    """

    def names() -> dict[str, list[list[str]]]:
        asked = {**dict.fromkeys(QUERIES, 5), **dict.fromkeys(FAILING, 10)}
        model = trained(bench.source, ROWS["lexicon"])
        rows = model.encode(list(asked)).toarray()
        seldom = np.log(1 / np.maximum(frequencies(bench.rows(ROWS["lexicon"])), 1 / len(bench.texts)))
        before = whole_model(bench.source, short_sentences(bench.source, CENTRED_ON))
        plain = before.encode(list(asked)).toarray()
        found = {}
        for n, (text, most) in enumerate(asked.items()):
            orders = [np.argsort(-weights)[:most] for weights in (rows[n], rows[n] * seldom, plain[n])]
            found[text] = [[model.dimensions.names[j] for j in order] for order in orders]
        return found

    return dict(read_or_make(bench.source.work / "queries.json", names))


def cluster_words(source: Source) -> dict[str, list[str]]:
    """Return the words of the clusters that hold the tokens whose clusters the paper prints."""
    clusters = load_clusters(source.work / "clusters-4000")
    tokenizer = AutoTokenizer.from_pretrained(source.model, local_files_only=True)
    first = [tokenizer.encode(token, add_special_tokens=False)[0] for token in CLUSTERS]
    return {token: list(clusters.words[clusters.assignment[n]][:6]) for token, n in zip(CLUSTERS, first)}


def as_read(source: Source, texts: list[str]) -> list[str]:
    """Return of each text what the rows of the language model read of it: so many of its tokens."""
    tokenizer = AutoTokenizer.from_pretrained(source.model, local_files_only=True)
    most = LENGTH - 2  # behind the start token, before the end token
    read = tokenizer(texts, add_special_tokens=False, truncation=True, max_length=most, return_offsets_mapping=True)
    return [text[: offsets[-1][1]] if offsets else text for text, offsets in zip(texts, read["offset_mapping"])]


def floors(bench: Bench, minilm: Path) -> None:
    """Keep what the test items come to without a trained language model, by as much of each text."""
    texts = as_read(bench.source, bench.texts)
    cut = [(len(text.split()), len(read.split())) for text, read in zip(bench.texts, texts) if len(read) < len(text)]
    facts = {"texts": len(texts), "cut": len(cut), "words": round(float(np.mean([read for _, read in cut])), 1)}
    models = [load("static-en"), load(str(minilm)), LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=minilm)]
    for label, model in zip(FLOORS[2:], models):
        bench.keep(RESULTS, floor_name(label), l2_normalize(model.encode(texts)), facts)
    read = dict(zip(bench.texts, texts))
    ranking = [sample for sample in bench.samples if sample.queries]
    for label in FLOORS[:2]:
        items = {s.name: s.items(_bm25_rows(s, [read[text] for text in s.texts], label)) for s in ranking}
        keep(RESULTS, floor_name(label), ranking, items, {**facts, "coordinates": None})


def _bm25_rows(sample: Sample, texts: list[str], name: str) -> np.ndarray:
    """Return rows whose product of a query and a document is BM25's score of it, [texts, queries]."""
    asked = np.isin(np.arange(len(texts)), sample.queries)
    rows = np.zeros((len(texts), len(sample.queries)), np.float32)
    rows[asked] = np.eye(len(sample.queries))
    documents = [text for text, query in zip(texts, asked) if not query]
    rows[~asked] = bm25_table([texts[n] for n in sample.queries], documents, name).T
    return rows


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Do the rows that are not kept and yield what the page shows; of other rows keep the results alone."""
    bench = Bench(source_of(options))
    if options.floors:
        floors(bench, options.floors)
    for row in grid() if options.grid else ():
        if not (RESULTS / f"{row.name}.json").exists():
            if not bench.path(row).exists():
                bench.encode(row)
            bench.keep_row(row)
    if options.grid or options.floors:
        return
    for label in options.rows:
        if not bench.path(ROWS[label]).exists():
            bench.encode(ROWS[label])
    for label in options.prompted:
        bench.measured(label, partial(prompted_rows, bench, label))
    done = {label: row for label, row in ROWS.items() if bench.path(row).exists()}
    for label in TRIALS if options.trials else ():
        held_out_losses(bench.source, TRIALS[label])
    paths = {label: held_out_path(bench.source, row) for label, row in TRIALS.items()}
    shown = {
        "queries": strongest(bench),
        "clusters": cluster_words(bench.source),
        "seconds": {label: read_json(bench.path(row))["training_seconds"] for label, row in done.items()},
        "trials": {label: read_json(path) for label, path in paths.items() if path.exists()},
    }
    yield from figures(all_measured(bench, done), shown)


if __name__ == "__main__":
    run_script(
        measure,
        {
            "--model": {"type": Path, "required": True, "help": "folder of SmolLM2-135M-Instruct"},
            "--e5": {"type": Path, "required": True, "help": "folder of multilingual-e5-small"},
            "--device": {"default": "cpu", "help": "where models are trained and read: cpu, cuda [%(default)s]"},
            "--rows": {"nargs": "*", "choices": list(ROWS), "default": list(ROWS), "help": "make these only [all]"},
            "--prompted": {"nargs": "*", "choices": PROMPTED, "default": [], "help": "rows that are not trained"},
            "--trials": {"action": "store_true", "help": "measure what the settings were chosen from"},
            "--grid": {"action": "store_true", "help": "make the rows of five seeds and keep their results"},
            "--floors": {"type": Path, "metavar": "MINILM", "help": "measure what needs no training"},
        },
        data="the test sets and text to train on",
        work_dir="vectors, clusters and checkpoints",
        threads=1,
    )
