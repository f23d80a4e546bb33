"""What a vector says of a text's form alone, its length and its script, as directions that all its words share.

Some encoders put the length of a text and its language into its vector: of the variance of multilingual-e5-small's
vectors a tenth. Any word of another text of that length would be credited with it, so it belongs to what texts have in
common. A direction counts as form where features that know nothing of the words explain half of the texts' variance
along it, on texts held out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pellucid.core.query import Floats

MIN_FORM_R2 = 0.5
"""Of the variance along a direction, explained by form; all-MiniLM-L6-v2 and static-en have none above 0.42."""
_ENDS = (".", "!", "?", "\u3002", "\uff01", "\uff1f")
_EPS = 1e-9


def text_form(text: str) -> list[float]:
    """Return the features of a text's form: its length, the scripts of its letters, and how it begins and ends."""
    letters = [character for character in text if character.isalpha()]
    stripped = text.strip()

    def share(n_letters: int) -> float:
        return n_letters / max(len(letters), 1)

    return [
        float(np.log(max(len(text), 1))),
        share(sum(not letter.isascii() for letter in letters)),
        share(sum(letter.lower() == letter.upper() for letter in letters)),
        share(sum("\u3041" <= letter <= "\u30ff" for letter in letters)),  # hiragana and katakana
        float(stripped.endswith(_ENDS)),
        float(stripped[:1].isupper()),
    ]


def form_directions(texts: Sequence[str], centred: Floats, held_out: npt.NDArray[np.bool_]) -> Floats:
    """Return the directions in which vectors say the form of their texts.

    Args:
        texts: with their vectors.
        centred: the vectors less their mean, float64 [texts, dimension].
        held_out: which texts judge the directions, and are not fitted on [texts].

    Returns:
        Orthonormal rows, float64 [directions, dimension]; none where the vectors say little of form.
    """
    features = np.array(list(map(text_form, texts)))
    spread = features[~held_out].std(axis=0)
    features = features[:, spread > _EPS]
    features = (features - features[~held_out].mean(axis=0)) / spread[spread > _EPS]
    slopes = np.linalg.lstsq(features[~held_out], centred[~held_out], rcond=None)[0]
    directions = np.linalg.svd(features[~held_out] @ slopes, full_matrices=False)[2][: features.shape[1]]
    along = centred[held_out] @ directions.T
    wrong = along - features[held_out] @ slopes @ directions.T
    variance = np.square(along).sum(axis=0)
    is_form = (variance > _EPS) & (np.square(wrong).sum(axis=0) <= (1.0 - MIN_FORM_R2) * variance)
    return directions[is_form]  # type: ignore[no-any-return]
