"""Make the bundled anchor models over static-en and over minilm.

    python -m recipes.anchors_en --corpus open_licence.txt.xz --work-dir WORK --output src/pellucid/bundled

The corpus is the one static-en was made from. Candidates are the first 200,000 of its sentences that a person can read
at a glance. Those over static-en take a minute; those over minilm, chosen by the vectors of all-MiniLM-L6-v2, a quarter
of an hour on two cores; rerun to resume.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import pellucid
from papers.ldir.frame import frame_points
from pellucid import AnchorEmbedder, choose_anchors
from pellucid.anchors import CandidateSettings
from recipes.static_en import open_teacher

CANDIDATES = CandidateSettings(words=(4, 20), max_candidates=200_000)
HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"


class Plan(NamedTuple):
    """How a model is made, chosen by papers/ldir/tables.py and by its names, and how good it is.

    Attributes:
        n: anchors.
        encoder: "en" (static-en) or "minilm".
        method: of `choose_anchors`.
        strength: of the decorrelation; 0 is none.
        quality: as README.md and the pages of papers/ldir have it.
    """

    n: int
    encoder: str
    method: str
    strength: float
    quality: str


PLANS = {
    "anchors-en-200": Plan(200, "en", "kmeans", 0.75, "STS 73.7, retrieval 33.7"),
    "anchors-en-500": Plan(500, "en", "kmeans", 0.75, "STS 74.1, retrieval 35.4"),
    "anchors-en-plain-500": Plan(500, "en", "fps", 0.0, "STS 73.1, retrieval 32.1"),
    "anchors-minilm-200": Plan(200, "minilm", "frame", 0.5, "STS 78.9, retrieval 45.1"),
    "anchors-minilm-500": Plan(500, "minilm", "frame", 0.5, "STS 79.1, retrieval 46.5"),
}

LEFT_OUT = (  # beginnings of sentences that nobody wants as the name of a dimension
    "My guess? Porn.",
    "I know who the killer is.",
    "Jews have been present",
    "Damn you actually got that comment",
    "Shithole universe i mean.",
)
MAX_LEFT_OUT = 4  # of these in one model
METHODS = {
    "kmeans": "the sentences nearest to the centroids of KMeans (`kmeans_points`)",
    "frame": "the first of a greedy choice of small frame potential (`frame_points` of `papers/ldir/frame.py`)",
    "fps": "farthest points (`farthest_points`): each is the sentence least similar to its nearest anchor",
}


def make(encoder: object, corpus: Path, work_dir: Path, plan: Plan) -> AnchorEmbedder:
    """Return the model of a plan."""
    method = frame_points if plan.method == "frame" else plan.method
    settings: dict[str, Any] = {"method": method, "settings": CANDIDATES, "work_dir": work_dir / plan.encoder}
    anchors = choose_anchors(encoder, corpus, plan.n + MAX_LEFT_OUT, **settings)
    anchors = [anchor for anchor in anchors if not anchor.startswith(LEFT_OUT)]
    model = AnchorEmbedder(encoder, anchors[: plan.n])
    model = model.decorrelate(plan.strength) if plan.strength else model
    vectors = model.vectors.astype(np.float16).astype(np.float32)  # saved in half the size
    return AnchorEmbedder.from_parts(encoder, vectors, model.dimensions)


def card_text(name: str, encoder: str, faithful: npt.NDArray[np.float32]) -> str:
    """Fill in the card that all models share."""
    plan = PLANS[name]
    dimension = "the similarity to one sentence"
    made = "as the paper has them, and neither weighted nor decorrelated: a coordinate is the cosine to its anchor."
    if plan.strength:
        dimension += (
            " less what\nthe anchors have in common (the highest coordinate is another sentence's than the nearest for "
            "9 to 25 % of texts, by model\nand text)"
        )
        made = (
            f"then decorrelated at strength {plan.strength}: the cosine between what a\ncoordinate measures and its "
            f"anchor is {faithful.mean():.3f} on average, {faithful.min():.3f} at least. The paper chooses anchors by\n"
            "farthest points and does not decorrelate them (`anchors-en-plain-500`)."
        )
    template = Path(__file__).with_name("anchors_en_card.md").read_text(encoding="utf-8")
    fields = {"name": name, "n": plan.n, "encoder": encoder, "hub_id": HUB_ID, "quality": plan.quality}
    return template.format(**fields, method=METHODS[plan.method], made=made, dimension=dimension)


def main() -> None:
    """Read the arguments and make the models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--work-dir", type=Path, required=True, help="where candidates and their vectors are kept")
    parser.add_argument("--output", type=Path, required=True, help="folder of the models")
    parser.add_argument("--only", nargs="+", choices=PLANS, default=list(PLANS), help="these models alone [all]")
    arguments = parser.parse_args()
    encoders = {"en": (lambda: pellucid.load("static-en"), "static-en"), "minilm": (open_teacher, "minilm")}
    for name in arguments.only:
        open_encoder, encoder_name = encoders[PLANS[name].encoder]
        model = make(open_encoder(), arguments.corpus, arguments.work_dir, PLANS[name])
        folder = arguments.output / name
        model.save_pretrained(folder, encoder_name=encoder_name)
        faithful = model.faithfulness()
        (folder / "README.md").write_text(card_text(name, encoder_name, faithful), encoding="utf-8")
        print(f"{name}: faithfulness {faithful.mean():.3f}, lowest {faithful.min():.3f}")


if __name__ == "__main__":
    main()
