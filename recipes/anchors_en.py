"""Make the bundled anchor models: 200 and 500 anchors over static-en, and over all-MiniLM-L6-v2.

    python -m recipes.anchors_en --corpus open_licence.txt.xz --work-dir WORK --output src/pellucid/bundled

The corpus is the one static-en was made from. Candidates are the first 200,000 of its sentences that a person can read
at a glance. `--only en` takes a minute; MiniLM needs a quarter of an hour on two cores and goes on where it stopped.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import pellucid
from pellucid import AnchorEmbedder, choose_anchors
from pellucid.anchors import CandidateSettings
from recipes.static_en import open_teacher

CANDIDATES = CandidateSettings(words=(4, 20), max_candidates=200_000)
SIZES = (200, 500)
MADE_BY = {"en": ("kmeans", 0.75), "minilm": ("frame", 0.5)}
"""Method and strength of the decorrelation; chosen by papers/ldir/readability.py and papers/ldir/tables.py."""

LEFT_OUT = (  # beginnings of sentences that nobody wants as the name of a dimension
    "My guess? Porn.",
    "I know who the killer is.",
    "Jews have been present",
    "Damn you actually got that comment",
)
METHODS = {
    "kmeans": "the sentences nearest to the centroids of KMeans (`kmeans_points`)",
    "frame": "the first of a greedy choice of small frame potential (`frame_points`)",
}
QUALITY = {  # as README.md and papers/ldir/results.md have it
    "anchors-en-200": "STS 73.7, retrieval 33.7",
    "anchors-en-500": "STS 74.1, retrieval 35.4",
    "anchors-minilm-200": "STS 78.9, retrieval 45.1",
    "anchors-minilm-500": "STS 79.1, retrieval 46.5",
}
HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"


def make(encoder: object, corpus: Path, work_dir: Path, n: int, method: str) -> AnchorEmbedder:
    """Return the model of `n` anchors, not decorrelated."""
    anchors = choose_anchors(encoder, corpus, n + len(LEFT_OUT), method=method, settings=CANDIDATES, work_dir=work_dir)
    wanted = [anchor for anchor in anchors if not anchor.startswith(LEFT_OUT)]
    return AnchorEmbedder(encoder, wanted[:n])


def _write_card(folder: Path, encoder: str, made_by: tuple[str, float], faithful: np.ndarray) -> None:
    """Fill in the card that all four models share."""
    template = Path(__file__).with_name("anchors_en_card.md").read_text(encoding="utf-8")
    facts = {"name": folder.name, "n": len(faithful), "encoder": encoder, "hub_id": HUB_ID}
    facts["quality"] = QUALITY[folder.name]
    facts |= {"method": METHODS[made_by[0]], "strength": made_by[1]}
    card = template.format(**facts, faithful=faithful.mean(), lowest=faithful.min())
    (folder / "README.md").write_text(card, encoding="utf-8")


def main() -> None:
    """Read the arguments and make the four models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--work-dir", type=Path, required=True, help="where candidates and their vectors are kept")
    parser.add_argument("--output", type=Path, required=True, help="folder of the models")
    parser.add_argument("--only", choices=["en", "minilm"], help="make the models of this encoder alone")
    arguments = parser.parse_args()
    encoders = {"en": (lambda: pellucid.load("static-en"), "static-en"), "minilm": (open_teacher, HUB_ID)}
    for short, (opened, name) in encoders.items():
        if arguments.only not in (None, short):
            continue
        encoder, (method, strength) = opened(), MADE_BY[short]
        for size in SIZES:
            folder = arguments.output / f"anchors-{short}-{size}"
            model = make(encoder, arguments.corpus, arguments.work_dir / short, size, method).decorrelate(strength)
            model.save_pretrained(folder, encoder_name=name)
            faithful = model.faithfulness()
            _write_card(folder, name, MADE_BY[short], faithful)
            print(f"anchors-{short}-{size}: faithfulness {faithful.mean():.3f}, lowest {faithful.min():.3f}")


if __name__ == "__main__":
    main()
