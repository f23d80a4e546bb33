r"""A bundled model made again by its recipe: how far is it from the one in the package?

    python -m recipes.static_en --corpus open_licence.txt.xz --work-dir WORK --output MODEL
    python -m papers.swe.rebuilt static-en MODEL --data shared/data --write papers/swe/static_en.md

Prints which words both have, how alike the cosines of the same pairs of sentences are, and the scores of both on STS
and retrieval with the interval of the difference, paired over pairs and queries. Documents are read whole. Of a model
of several languages it prints which translations are found, too: the mean of both directions' accuracy on Tatoeba, and
the accuracy from BUCC's gold sentences to all English ones.
"""

from __future__ import annotations

from papers.threads import set_threads

set_threads(None)

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.stats import pearsonr

import pellucid
from papers.evidence import bootstrap, interval_of
from papers.ldir.page import GROUPS
from papers.ldir.scored import Tests, difference
from papers.local_tasks import find_tasks
from papers.options import make_parser
from papers.pages import markdown_table, measured, print_block, wrapped
from papers.retrieval_sets import dense_hits, read_collection
from papers.swe.bitext import nearest
from papers.swe.crosslingual import LANGUAGES, bucc, tatoeba
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
        yield [name, float(first[name][0]), float(second[name][0]), difference(second, first).told()]
    yield [
        "STS",
        *(float(np.mean([s[0] for s in one.values()])) for one in found),
        difference(found[1], found[0]).told(),
    ]
    tasks, gains, means = {task.name: task for task in find_tasks(data)}, [], []
    for name in GROUPS["retrieval"]:
        collection = read_collection(tasks[name])
        rows = [(encoded(model, collection.queries), encoded(model, collection.documents)) for model in models]
        each = [np.array(collection.each_ndcg(dense_hits(pair, collection))) for pair in rows]
        gains.append(bootstrap(each[1] - each[0], lambda drawn: drawn.mean(axis=1)))
        means.append([float(one.mean()) for one in each])
        yield [name, *means[-1], interval_of(gains[-1]).told()]
    yield ["retrieval", *np.mean(means, axis=0).tolist(), interval_of(np.mean(gains, axis=0)).told()]


def translations(models: Sequence[Any], data: Path) -> Iterator[list[Any]]:
    """Yield a set of translations, the share x 100 that each model finds, and what the second has more."""
    for code in LANGUAGES:
        foreign, english = tatoeba(data, code)
        own = np.arange(len(english))
        yield _translated(
            f"Tatoeba {code}", [(found(m, foreign, english, own), found(m, english, foreign, own)) for m in models]
        )
    for code in ("de", "zh"):
        (foreign, english), gold = bucc(data, code)
        asked, right = zip(*gold)
        queries = [foreign[n] for n in asked]
        yield _translated(f"BUCC {code}", [(found(m, queries, english, np.array(right)),) for m in models])


def found(model: Any, queries: Sequence[str], texts: Sequence[str], right: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return x 100 whether the nearest of the texts to each query is the right one, float64 [queries]."""
    return 100.0 * (nearest(encoded(model, queries), encoded(model, texts), 1)[0][:, 0] == right)


def _translated(name: str, ways: Sequence[tuple[npt.NDArray[Any], ...]]) -> list[Any]:
    """Return a line of the table: of each model, the hits of one or two directions."""
    first, second = (np.mean(each, axis=0) for each in ways)
    gain = interval_of(bootstrap(second - first, lambda drawn: drawn.mean(axis=1)))
    return [name, float(first.mean()), float(second.mean()), gain.told()]


def main() -> None:
    """Print the comparison."""
    parser = make_parser(
        __doc__, data="raw_english/, sts/ and retrieval/", write=Path(__file__).with_name("static_en.md")
    )
    parser.add_argument("bundled")
    parser.add_argument("rebuilt")
    options = parser.parse_args()
    models = [pellucid.load(options.bundled), pellucid.load(options.rebuilt)]
    said = wrapped(f"{options.bundled}: {alike(models, options.data)}.\n")
    lines = [
        *scores(models, options.data),
        *(translations(models, options.data) if options.bundled == "static-multi" else ()),
    ]
    table = markdown_table(["", "in the package", "made again", "more"], lines)
    name = f"papers/swe/rebuilt.py {options.bundled}"
    print_block(name, f"{said}\n{table}\n{measured()}", options.write)


if __name__ == "__main__":
    main()
