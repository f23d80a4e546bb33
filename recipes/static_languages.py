"""Make `static-en-de` and its like: the bundled static-en with the words of further languages.

    python -m recipes.static_languages --parallel DATA/parallel/tatoeba --languages de --output static-en-de
    python -m recipes.static_languages --parallel DATA/parallel/tatoeba --languages de fr zh ja --output five-languages

The folder holds en-de.tsv.xz and so on: Tatoeba's sentences (CC BY 2.0 FR, by way of manythings.org/anki) with those of
the test sets left out. A language takes one to two minutes on one core.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pellucid
from pellucid import StaticEmbedder
from pellucid.static import TuningSettings, add_languages

STEPS = {"de": 2_000, "fr": 2_000, "zh": 1_000, "ja": 1_000}
"""Batches by language, about as many as the loss on held-out pairs goes down for."""


def make(parallel: Path, languages: list[str]) -> StaticEmbedder:
    """Return static-en with the words of `languages`; `parallel` is the folder of the sentence pairs."""
    english = pellucid.load("static-en")
    assert isinstance(english, StaticEmbedder)
    steps = sum(STEPS.get(language, 2_000) for language in languages)
    tuning = TuningSettings(steps=steps, learning_rate=0.02, evaluate_every=250)
    files = {("en", language): parallel / f"en-{language}.tsv.xz" for language in languages}
    return add_languages(english, files, tuning=tuning)


def main() -> None:
    """Read the arguments and make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parallel", type=Path, required=True, help="folder of en-de.tsv.xz and so on")
    parser.add_argument("--languages", nargs="+", default=list(STEPS), help="codes, such as de fr")
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    arguments = parser.parse_args()
    model = make(arguments.parallel, arguments.languages)
    model.save_pretrained(arguments.output, dtype="int8")
    print(f"wrote {arguments.output}: {len(model.vocabulary):,} words")


if __name__ == "__main__":
    main()
