"""Find what is wrong with a model on your texts, change it, and show what changed: `docs/toolkit.md` tells the story.

    python examples/mend_a_model.py banking77/train.tsv banking77/test.tsv

Both files have a heading "text<TAB>label" and a labelled text a line. The labels of the first are not looked at; those
of the second only say whether neighbours have the same one.
"""

from __future__ import annotations

import csv
import lzma
import sys
from pathlib import Path

import numpy as np

import pellucid
from pellucid import Embedder, audit, cards, compare


def read_table(path: Path) -> dict[str, list[str]]:
    """Return the columns text and label of a table with tabs, plain or packed."""
    with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    return {column: [row[column] for row in rows] for column in ("text", "label")}


def neighbours(model: Embedder, texts: list[str], labels: list[str], draws: int = 20) -> str:
    """Return how well a text's neighbours share its label, and the mean scores within labels and between them."""
    embeddings = model.encode(texts)
    scores = model.similarity(embeddings, embeddings)
    others = ~np.eye(len(texts), dtype=bool)
    same = np.array(labels)[:, None] == np.array(labels)
    nearest = np.argsort(-np.where(others, scores, -2), axis=1)[:, :draws]
    precision = np.take_along_axis(same, nearest, axis=1).mean()
    within, between = scores[same & others].mean(), scores[~same].mean()
    return f"{100 * precision:.1f} % of {draws} neighbours right; score within {within:.3f}, between {between:.3f}"


def main() -> None:
    """Audit, look at the worst dimension, remove what is crowded, compare."""
    train, test = (read_table(Path(name)) for name in sys.argv[1:3])
    model = pellucid.load("anchors-en-200")
    found = audit(model, train["text"])
    print(found)
    crowded = [finding.dimensions[0] for finding in found.findings_for("crowded")]
    print(cards(model, train["text"], crowded[0])[0])

    better = model.without(*crowded)
    random = np.random.default_rng(0).choice(len(model.dimensions), len(crowded), replace=False).tolist()
    for name, one in (("before", model), ("without the crowded", better), ("without others", model.without(*random))):
        print(f"{name:20} {neighbours(one, test['text'], test['label'])}")

    pairs = list(zip(test["text"][:400:2], test["text"][1:400:2]))
    print(compare({"before": model, "after": better}, pairs, top_k=2))


if __name__ == "__main__":
    main()
