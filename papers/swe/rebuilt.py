r"""A bundled model made again by its recipe: how far is it from the one in the package?

    python -m recipes.static_en --corpus open_licence.txt.xz --work-dir WORK --output MODEL
    python -m papers.swe.rebuilt static-en MODEL --data shared/data --write

Prints which words both have, how alike the cosines of the same pairs of sentences are, and the scores of both on STS
and retrieval with the interval of the difference, paired over pairs and queries. Documents are read whole. Of a model
of several languages it prints which translations are found, too: the mean of both directions' accuracy on Tatoeba, and
the accuracy from BUCC's gold sentences to all English ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.stats import pearsonr

import pellucid
from papers.kit import (
    PAPERS,
    Figure,
    Table,
    bootstrap,
    interval_of,
    mean_interval,
    measured,
    run_script,
    wrapped,
    write_block,
)
from papers.ldir.scored import GROUPS, Tests, difference
from papers.local_tasks import find_tasks
from papers.retrieval_sets import dense_hits, read_collection
from papers.swe.bitext import found_first
from papers.swe.crosslingual import LANGUAGES, bucc_gold, tatoeba
from papers.vector_cache import Vectors, unit_rows
from pellucid.text.corpus import read_texts

SENTENCES = 4_000


def encoded(model: Any, texts: Sequence[str]) -> Vectors:
    """Return dense rows of texts at length 1."""
    rows = model.encode(list(texts))
    return unit_rows(rows.toarray() if sparse.issparse(rows) else rows)


def alike(models: Sequence[Any], data: Path) -> str:
    """Return in words what both models have of each other."""
    words = [set(model.vocabulary.words) for model in models]
    texts = list(islice(read_texts(data / "raw_english" / "open_licence.txt.xz"), SENTENCES))
    place = np.triu_indices(len(texts), 1)
    cosines = [(rows @ rows.T)[place] for rows in (encoded(model, texts) for model in models)]
    apart = np.abs(cosines[0] - cosines[1])
    return (
        f"{len(words[0] & words[1]):,} of {len(words[0]):,} words are in both; over all pairs of {len(texts):,} "
        f"sentences the cosines correlate by {pearsonr(*cosines)[0]:.4f} and differ by {apart.mean():.3f} on average, "
        f"{np.quantile(apart, 0.99):.3f} in one of a hundred pairs"
    )


def scores(models: Sequence[Any], data: Path) -> Iterator[list[Any]]:
    """Yield a set, the scores of both models, and what the second has more."""
    found = [Tests(data, lambda texts, m=model: encoded(m, texts)).sts(lambda rows: rows) for model in models]  # type: ignore[misc]
    for name in found[0]:
        first, second = ({name: one[name]} for one in found)
        yield [name, float(first[name][0]), float(second[name][0]), difference(second, first).with_verdict()]
    yield [
        "STS",
        *(float(np.mean([s[0] for s in one.values()])) for one in found),
        difference(found[1], found[0]).with_verdict(),
    ]
    tasks, gains, means = {task.name: task for task in find_tasks(data)}, [], []
    for name in GROUPS["retrieval"]:
        collection = read_collection(tasks[name])
        rows = [(encoded(model, collection.queries), encoded(model, collection.documents)) for model in models]
        each = [np.array(collection.each_ndcg(dense_hits(pair, collection))) for pair in rows]
        gains.append(bootstrap(each[1] - each[0], lambda drawn: drawn.mean(axis=1)))
        means.append([float(one.mean()) for one in each])
        yield [name, *means[-1], interval_of(gains[-1]).with_verdict()]
    yield ["retrieval", *np.mean(means, axis=0).tolist(), interval_of(np.mean(gains, axis=0)).with_verdict()]


def translations(models: Sequence[Any], data: Path) -> Iterator[list[Any]]:
    """Yield a set of translations, the share x 100 that each model finds, and what the second has more."""
    for code in LANGUAGES:
        foreign, english = tatoeba(data, code)
        own = np.arange(len(english))
        ways = ((foreign, english), (english, foreign))
        yield _translated(f"Tatoeba {code}", [[found_first(m, *way) == own for way in ways] for m in models])
    for code in ("de", "zh"):
        queries, english, right = bucc_gold(data, code)
        yield _translated(f"BUCC {code}", [[found_first(m, queries, english) == right] for m in models])


def _translated(name: str, hits: Sequence[Sequence[npt.NDArray[np.bool_]]]) -> list[Any]:
    """Return a line of the table: of each model, the hits of one or two directions."""
    first, second = (100 * np.mean(each, axis=0) for each in hits)
    return [name, float(first.mean()), float(second.mean()), mean_interval(second - first).with_verdict()]


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the comparison; that of lexicon-en goes into a page of the manual."""
    name, models = options.bundled, [pellucid.load(options.bundled), pellucid.load(options.rebuilt)]
    likeness = wrapped(f"{name}: {alike(models, options.data)}.")
    rows = [*scores(models, options.data), *(translations(models, options.data) if name == "static-multi" else ())]
    table = Table(["", "in the package", "made again", "more"], rows)
    yield f"{name}-likeness", likeness
    yield name, table
    if options.write and name == "lexicon-en":
        page = PAPERS.parent / "docs" / "lexicon.md"
        write_block(page, f"papers/swe/rebuilt.py {name}", f"{likeness}\n\n{table}\n\n{measured()}")


if __name__ == "__main__":
    run_script(measure, {"bundled": {}, "rebuilt": {}}, data="raw_english/, sts/ and retrieval/")
