"""How far a model made again is from the bundled one."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np

from papers.swe.rebuilt import alike
from pellucid import StaticEmbedder
from pellucid.text.words import Vocabulary

WORDS = ["apple", "pear", "car", "road"]
TEXTS = ["apple pear", "pear car", "car road", "road apple", "apple apple car"]


def written(folder: Path) -> Path:
    """Write the sentences where the data have them."""
    (folder / "raw_english").mkdir()
    (folder / "raw_english" / "open_licence.txt.xz").write_bytes(lzma.compress("\n".join(TEXTS).encode()))
    return folder


def test_a_model_turned_round_is_as_the_first_and_another_is_not(tmp_path: Path) -> None:
    """Only cosines count: a rotation is no difference. Another vocabulary and other rows are."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4, 3)).astype(np.float32)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0].astype(np.float32)
    first, turned = StaticEmbedder(Vocabulary(WORDS), rows), StaticEmbedder(Vocabulary(WORDS), rows @ turn)
    data = written(tmp_path)
    said = alike([first, turned], data)
    assert "4 of 4 words are in both" in said and "all pairs of 5 sentences" in said
    assert "correlate by 1.0000 and differ by 0.000 on average, 0.000 in" in said
    other = StaticEmbedder(Vocabulary(["apple", "pear", "car", "street"]), rng.normal(size=(4, 3)).astype(np.float32))
    said = alike([first, other], data)
    assert "3 of 4 words are in both" in said and "by 1.0000" not in said and "differ by 0.000" not in said
