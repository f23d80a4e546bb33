"""A lexicon model's coordinates as dense rows in FAISS, beside the sparse search of `pellucid.Index`, on NPL.

    python -m papers.lens.faiss_search --data DATA --work-dir WORK --write

Embeddings are lexicon-minilm's; encoding is not measured. FAISS holds all coordinates as float32 and is asked one query
at a time. Times are processor time of one thread, medians over the queries of three interleaved rounds. A hit is right
if its cosine is no lower than that of the tenth document.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import pellucid
from papers.kit import Figure, Table, run_script, written
from papers.lens.tables import kept_rows, lexicon
from papers.local_tasks import NamedEncoder
from papers.models import minilm_path
from papers.retrieval_sets import Collection, read_collection
from papers.vector_cache import Vectors
from pellucid.evaluation.tasks import find_tasks

LINKS, CELLS = 32, 256  # of a document in the graph of HNSW; of the inverted file
KEPT = 256  # coordinates of a pruned row
OURS, PRUNED, EXACT = "pellucid.Index", f"pellucid.Index, {KEPT} largest", "FAISS, exact"
GRAPH, FILE = f"FAISS, HNSW, {LINKS} links", f"FAISS, inverted file, {CELLS} cells"
WAYS = [
    *((name, "") for name in (OURS, PRUNED, EXACT)),
    *((GRAPH, f"efSearch={width}") for width in (16, 64, 256)),
    *((FILE, f"nprobe={cells}") for cells in (4, 16, 64)),
]
"""What searches, and what is set of it."""


class Sparse:
    """The library's own index of given rows, asked as FAISS's are: queries are known by their numbers."""

    def __init__(self, folder: Path, encoder: NamedEncoder, collection: Collection) -> None:
        """Index the documents' rows; none is encoded later while time is taken."""
        model = pellucid.LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=minilm_path())
        self.index, self.queries = pellucid.Index.create(folder, {"lexicon": model}, bm25=False), collection.queries
        rows = encoder.encode(collection.documents)
        self.index.add(collection.documents, ids=list(range(len(collection.ids))), vectors={"lexicon": rows})
        model.encode_query = encoder.encode
        self.mb = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6

    def search(self, number: int) -> list[int]:
        """Return the ten documents nearest to a query."""
        return [int(hit.id) for hit in self.index.search(self.queries[number], top_k=10)]


class Dense:
    """An index of FAISS, and the queries as dense rows."""

    def __init__(self, index: Any, dense: Any, queries: Any) -> None:
        """Index the documents' rows, float32."""
        import faiss

        if not index.is_trained:
            index.train(dense)
        index.add(dense)
        self.index, self.queries, self.mb = index, queries, faiss.serialize_index(index).nbytes / 1e6

    def search(self, number: int) -> list[int]:
        """Return the ten documents nearest to a query, -1 for one that was not found."""
        found: list[int] = self.index.search(self.queries[number : number + 1], 10)[1][0].tolist()
        return found


def faiss_indexes(rows: Any, queries: Any, cells: int = CELLS) -> dict[str, Dense]:
    """Return FAISS's indexes of CSR rows as dense ones: all rows, a graph and an inverted file."""
    import faiss

    faiss.omp_set_num_threads(1)
    size, product = rows.shape[1], faiss.METRIC_INNER_PRODUCT
    inverted = faiss.IndexIVFFlat(faiss.IndexFlatIP(size), size, cells, product)
    made = {EXACT: faiss.IndexFlatIP(size), GRAPH: faiss.IndexHNSWFlat(size, LINKS, product), FILE: inverted}
    return {name: Dense(index, rows.toarray(), queries.toarray()) for name, index in made.items()}


def compared(made: Mapping[str, Any], cosines: Vectors, collection: Collection) -> Table:
    """Search in all ways and return what comes of it.

    Args:
        made: name -> `Sparse` or `Dense`.
        cosines: of all queries and documents, [queries, documents].
        collection: the documents, for nDCG@10.
    """
    import faiss

    tenth = np.partition(cosines, -10, axis=1)[:, [-10]]
    found, taken = np.zeros((len(WAYS), len(cosines), 10), int), np.zeros((3, len(WAYS), len(cosines)))
    for turn, way, number in np.ndindex(taken.shape):
        name, setting = WAYS[way]
        if setting:
            faiss.ParameterSpace().set_index_parameters(made[name].index, setting)
        start = time.process_time()
        hits = made[name].search(number)
        taken[turn, way, number], found[way, number] = time.process_time() - start, hits
    lines, times = [], np.median(taken, axis=(0, 2))
    for (name, setting), numbers, seconds in zip(WAYS, found, times):
        scores = np.where(numbers < 0, -1, np.take_along_axis(cosines, numbers, axis=1))
        ranked = [{collection.ids[n]: -float(rank) for rank, n in enumerate(of) if n >= 0} for of in numbers]
        right = f"{(scores >= tenth - 1e-5).mean():.1%}"
        ratio = f"{seconds / times[WAYS.index((EXACT, ''))]:.2f}"
        lines.append([name, setting or None, right, collection.ndcg(ranked), ratio, made[name].mb])
    return Table(["", "set", "of the right ten", "nDCG@10", "time of a query", "MB"], lines, 2)


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield what is searched in and the table of all ways."""
    npl = read_collection(next(task for task in find_tasks(options.data) if task.name == "npl"))
    model = pellucid.LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=minilm_path())
    encoder = kept_rows(model, options.work_dir / "vectors")
    rows, queries = encoder(npl.documents), encoder(npl.queries)
    yield "written", written("faiss-cpu")
    yield "coordinates", f"{rows.nnz / rows.shape[0]:,.0f}"
    with TemporaryDirectory() as folder:
        ours = {OURS: None, PRUNED: KEPT}
        made = {name: Sparse(Path(folder) / name, lexicon(encoder, kept), npl) for name, kept in ours.items()}
        yield "ways", compared(made | faiss_indexes(rows, queries), (queries @ rows.T).toarray(), npl)


if __name__ == "__main__":
    run_script(measure, data="retrieval/", work_dir="embeddings", threads=1)
