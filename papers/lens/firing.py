"""Which clusters of `lexicon-minilm` fire for letters and not for meaning: the example of docs/lexicon.md.

    python -m papers.lens.firing --data shared/data

Meaning is that of `static-en`; with it the whole takes less than a minute on one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice

import pellucid
from papers.kit import Figure, run_script
from papers.lens.letters import lexical_firing
from papers.models import minilm_path
from pellucid.text.corpus import read_texts

SENTENCES = 3_000


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the report."""
    model = pellucid.LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=minilm_path())
    texts = list(islice(read_texts(options.data / "raw_english" / "open_licence.txt.xz"), SENTENCES))
    yield "firing", str(lexical_firing(model, texts, encoder=pellucid.load("static-en")))


if __name__ == "__main__":
    run_script(measure, data="raw_english/")
