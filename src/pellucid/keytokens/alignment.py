"""Is an embedder aligned with the tokens of its texts, more than chance? Two controls answer it.

Measured is the local alignment rate of "A Text is Worth Several Tokens" (Eq. 7): the share of a text's own tokens T
that are among the first |T| of its embedding. Alone it says little: an embedding whose first tokens are `the , and .`
for every text finds some tokens of any. So the same for the embedding of another text, and for the head's rows
turned by a random orthogonal matrix, which keeps their lengths and angles and takes their meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.embedder import Vectors
from pellucid.errors import InputError, check_integer, check_seed, shown
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, numbers, percent
from pellucid.explain.views.report import Report
from pellucid.keytokens.embedder import KeyTokenEmbedder
from pellucid.keytokens.states import before_rows, own_tokens
from pellucid.text.inputs import check_texts
from pellucid.transformer.tokenwords import Rank

MIN_TEXTS = 20  # an interval over fewer says nothing
_INTERVAL_STANDARD_ERRORS = 1.96  # standard errors to either side of a mean hold it in 95 %
_ROTATED, _ANOTHER = "the head rotated", "another text's embedding"

Floats = npt.NDArray[np.float64]


class AlignmentControl(NamedTuple):
    """What a control finds, and how much more the embeddings do."""

    name: str
    rate: float  # mean share of a text's own tokens that are found
    gain: float  # how much higher the share is with each text's embedding and the head as it is
    low: float  # the 95 % confidence interval of the gain
    high: float

    @property
    def is_beaten(self) -> bool | None:
        """Whether the embeddings find more: True if the whole interval is above 0, False if none of it, else None."""
        return True if self.low > 0 else False if self.high <= 0 else None


@dataclass(frozen=True, repr=False)
class TokenAlignment(Report):
    """How many of their own tokens embeddings are aligned with, and whether that is more than chance."""

    kind: ClassVar[str] = "token_alignment"
    table: ClassVar[str] = "controls"

    verdict: str  # "aligned", "not aligned" or "undecided"
    texts: int  # different texts that were looked at
    skipped: int  # how many more were given twice or have no token
    tokens: float  # mean number of different tokens of a text, |T|
    rate: float  # mean share of a text's tokens among the first |T| of its embedding
    draws: int  # random matrices
    seed: int  # of these
    controls: tuple[AlignmentControl, ...]

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Token alignment", self.verdict, counted(self.texts, "text"))
        yield Note(
            f"A text has {self.tokens:.1f} different tokens on average; {percent(self.rate)} of them are among as many "
            "first tokens of its embedding."
        )
        rows = (
            (
                control.name,
                percent(control.rate),
                percent(control.gain),
                f"{percent(control.low)} to {percent(control.high)}",
                _BEATEN_WORDS[control.is_beaten],
            )
            for control in self.controls
        )
        yield TablePart.of("", ["control", *numbers("finds", "the embeddings more by", "95 % interval"), "more?"], rows)
        yield Note(
            f"{_ROTATED}: by {counted(self.draws, 'random orthogonal matrix', 'random orthogonal matrices')}; the rows "
            f"keep their lengths and angles and mean nothing. {_ANOTHER}: what all texts have in common. Aligned: more "
            "than both."
        )
        if self.skipped:
            yield Note(f"{counted(self.skipped, 'text')} left out: given twice, or without a token.")


_BEATEN_WORDS = {True: "yes", False: "no", None: "undecided"}
_VERDICTS = {True: "aligned", False: "not aligned", None: "undecided"}


def token_alignment(model: KeyTokenEmbedder, texts: Iterable[str], *, draws: int = 5, seed: int = 0) -> TokenAlignment:
    """Say whether an embedder is aligned with the tokens of its texts, more than chance.

    Args:
        model: adjusted as it will be used; its `top_k`, signs and edits do not matter.
        texts: like those it will read; 200 of them decide most cases.
        draws: random orthogonal matrices.
        seed: of these.

    Raises:
        InputError: the model is of another family, fewer than 20 different texts have a token, an item is no string, or
            `draws` is not from 1 to 10,000.
    """
    if getattr(model, "family", "") != "keytokens":
        raise InputError(f"only key-token models are decoded to tokens, got {shown(model)}")
    check_integer("draws", draws, most=10_000)  # memory and time grow with them
    check_seed(seed)
    checked_texts = check_texts(texts)
    distinct = list(dict.fromkeys(checked_texts))
    tokens, tokens_by_text = model.head.tokens, dict[str, set[int]]()
    for text, encoding in zip(distinct, model.encodings(distinct), strict=True):
        ids = {token for token in own_tokens(encoding) if tokens[token].rank < Rank.NONE}
        if ids:
            tokens_by_text[text] = ids
    if len(tokens_by_text) < MIN_TEXTS:
        raise InputError(
            f"{len(tokens_by_text)} different texts with a token; at least {MIN_TEXTS} are needed, "
            "and 200 decide most cases"
        )
    rows = before_rows(model.backbone, model.adjustment.apply(model.embed(list(tokens_by_text))))
    token_sets, random = list(tokens_by_text.values()), np.random.default_rng(seed)
    shares = _shares(model, rows, token_sets)
    rotated_shares = np.zeros((draws, len(rows)))
    for draw in range(draws):  # embeddings turned by a matrix meet the rows as rows turned back would meet them
        turned, scale = np.linalg.qr(random.standard_normal((rows.shape[1], rows.shape[1])))
        rotation = turned * np.sign(np.diag(scale))  # the signs make all rotations as likely
        rotated_shares[draw] = _shares(model, rows @ rotation.astype(np.float32), token_sets)
    other_shares = _shares(model, np.roll(rows, -1, axis=0), token_sets)[None]
    controls = (_control(_ROTATED, shares, rotated_shares), _control(_ANOTHER, shares, other_shares))
    beaten = [control.is_beaten for control in controls]
    verdict = _VERDICTS[False if False in beaten else None if None in beaten else True]
    size = float(np.mean([len(tokens) for tokens in token_sets]))
    return TokenAlignment(
        verdict,
        len(tokens_by_text),
        len(checked_texts) - len(tokens_by_text),
        size,
        float(shares.mean()),
        draws,
        seed,
        controls,
    )


def _shares(model: KeyTokenEmbedder, rows: Vectors, token_sets: Sequence[set[int]]) -> Floats:
    """Return the share of each text's tokens among as many first ones of its row, float64 [n]."""
    ids = model.head.top(rows, max(map(len, token_sets))).ids
    shares = [
        len(tokens.intersection(row[: len(tokens)].tolist())) / len(tokens)
        for tokens, row in zip(token_sets, ids, strict=True)
    ]
    return np.array(shares, np.float64)


def _control(name: str, shares: Floats, control_shares: Floats) -> AlignmentControl:
    """Return what a control finds, [draws, texts], and the interval of the gain over texts and draws."""
    gains = shares - control_shares.mean(axis=0)
    error = gains.var(ddof=1) / len(gains)
    if len(control_shares) > 1:
        error += control_shares.mean(axis=1).var(ddof=1) / len(control_shares)
    mean, reach = float(gains.mean()), _INTERVAL_STANDARD_ERRORS * float(np.sqrt(error))
    return AlignmentControl(name, float(control_shares.mean()), mean, mean - reach, mean + reach)
