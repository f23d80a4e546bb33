"""Folders that released versions wrote: a later version opens each, and it answers as it did then.

At a release, `PYTHONPATH=src:tests python tests/released/test_released.py` writes those of the new version.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

import index_folder
import pellucid
from families import ANCHORS, WORDS, dense_rows, static_lexicon_model
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary
from tiny_models import backbone_of, tiny_transformer

FOLDER = Path(__file__).parent
TEXTS = ["The Cat sat on a horse", "a man on a horse: river bank", "loans"]
NEED_TORCH = {"anchors", "key-tokens", "lexicon"}


def models(folder):
    """A small model of each family, by the name of its folder."""
    from pellucid.keytokens.embedder import KeyTokenEmbedder
    from pellucid.keytokens.states import KeyTokenSettings
    from pellucid.lexicon.clusters import cluster_vocabulary
    from pellucid.lexicon.embedder import LexiconEmbedder

    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 8)).astype(np.float32)
    static = StaticEmbedder(Vocabulary(WORDS), vectors)
    smallest = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    backbone = backbone_of("bert", **smallest)
    return {
        "static": static,
        "static-lexicon": static_lexicon_model().with_max_active_dims(2),
        "anchors": AnchorEmbedder(tiny_transformer(folder, normalize=True), ANCHORS),
        "ensemble": EnsembleEmbedder([static, static_lexicon_model()], weights=[0.75, 0.25]),
        "lexicon": LexiconEmbedder(backbone, cluster_vocabulary(backbone.head, backbone.tokenizer, 12)).scale({0: 0.5}),
        "key-tokens": KeyTokenEmbedder(backbone_of("llama", "causal", **smallest), KeyTokenSettings(top_k=40)),
    }


def answers(folder):
    """What a model's folder gives for `TEXTS`, or an index's for a query, as numbers by name."""
    if folder.name == "index":
        with pellucid.Index.open(folder, read_only=True) as index:
            hits = list(index.search("loan house", 3, where={"year": {"gte": 1910}}))
        found = {f"{hit.id}: {row.name}": row.contribution for hit in hits for row in hit.reasons.top(50)}
        return found | {hit.id: hit.score for hit in hits}
    model = pellucid.load(folder)
    vectors = dense_rows(model.encode(TEXTS))
    found = {f"{text} {n}": float(vectors[row, n]) for row, text in enumerate(TEXTS) for n in vectors[row].nonzero()[0]}
    why = model.explain(*TEXTS[:2])
    return found | {f"row {row.name}": row.contribution for row in why.rows} | {"score": why.score}


@pytest.mark.parametrize("folder", [path.parent for path in sorted(FOLDER.glob("*/*/answers.json"))], ids=str)
def test_the_folder_of_a_released_version_answers_as_it_did(folder, tmp_path):
    if folder.name in NEED_TORCH:
        pytest.importorskip("sentence_transformers")
    there = shutil.copytree(folder, tmp_path / folder.name)
    stored = json.loads((there / "answers.json").read_text(encoding="utf-8"))
    (there / "answers.json").unlink()
    assert answers(there) == pytest.approx(stored, abs=2e-5)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as tmp:
        home = FOLDER / pellucid.__version__
        for name, model in models(Path(tmp)).items():
            model.save_pretrained(home / name)
        index_folder.build(home / "index")
        for path in home.iterdir():
            numbers = {name: round(number, 6) for name, number in answers(path).items()}
            (path / "answers.json").write_text(json.dumps(numbers, indent=0), encoding="utf-8")
