r"""Rates of alignment with special tokens as the paper's code has them, and on SNLI and MS MARCO, beside ours.

    python -m papers.keytokens.special_tokens --data shared/data --work-dir WORK --snli FILE ... --msmarco PAIRS \
        --smollm2 SMOLLM2 --tuned WORK/mixed --write

Ours read a language model's text behind a start token, leave that token's state out of the mean, and count no special
token in T. The code of "A Text is Worth Several Tokens" gives the text to the tokenizer as it is: GPT-Neo's and
SmolLM2's add nothing, so that the mean is of all states, the first among them; what a tokenizer does add ([CLS] and
[SEP] of MiniLM) is in T. GPT-Neo's states are weighed by their position there.

FILE holds SNLI's sentences, one a line, such as of its development and test sets; measured are those that the corpus
has, too, as the corpus writes them. PAIRS is the authors' `data/msmarco/sampled500.txt`, a query and a passage a line,
with a tab between them. Embeddings and rates are kept in WORK, and a run that was stopped goes on. Without
--smollm2 the two small models alone are measured.
"""

from __future__ import annotations

import argparse
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from papers.keytokens.alignment import embedded_texts
from papers.keytokens.language_model import BEHIND_START, PLAIN, TUNED, Encoders, moved_on, rates_of
from papers.keytokens.language_page import alignment_claims, rate_rows, rates_table
from papers.keytokens.retrieval import Kept
from papers.keytokens.tuning import BATCH, STEPS
from papers.kit import Claim, Figure, claim_summary, run_script
from papers.models import minilm_path
from papers.vector_cache import CachedEncoder, Vectors
from pellucid import KeyTokenEmbedder
from pellucid.keytokens import Adjustment, KeyTokenSettings
from pellucid.keytokens.adjustments import mean_adjustment
from pellucid.text.tables import read_texts
from pellucid.transformer import open_backbone

OURS, PAPERS = "ours", "the paper's"
READINGS = {OURS: BEHIND_START, PAPERS: KeyTokenSettings(special_tokens=True)}
"""How a language model reads; an encoder's tokenizer adds its special tokens in both."""

POOLINGS = ("mean", "weighted_mean")
GENERAL, SNLI, MSMARCO = "all kinds", "SNLI", "MS MARCO"
NEO, SMOLLM2, MINILM = "GPT-Neo 3M", "SmolLM2-135M", "MiniLM"


def letters_and_digits(text: str) -> str:
    """Return what is compared of a sentence, however its marks and spaces are written."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def shared_sentences(corpus: Path, files: Iterable[Path]) -> Iterator[str]:
    """Yield the corpus's sentences that the files have, too, in the corpus's order."""
    snli = {letters_and_digits(text) for file in files for text in read_texts(file)}
    return (text for text in read_texts(corpus) if letters_and_digits(text) in snli)


@dataclass(frozen=True)
class Model:
    """A language model, as it is or tuned, or the encoder."""

    name: str
    version: str
    folder: Path
    work: Path
    is_encoder: bool = False

    def embeddings(self, reading: str, texts: list[str]) -> Iterator[tuple[str, KeyTokenEmbedder, Vectors]]:
        """Yield each pooling with its embedder and the embeddings of texts."""
        if self.is_encoder:
            embedder = KeyTokenEmbedder(open_backbone(self.folder, head="input"))
            yield POOLINGS[0], embedder, CachedEncoder(self.name, embedder.embed, self.work / "vectors")(texts)
            return
        encoders = Encoders(self.folder, self.work, READINGS[reading])
        for pooling in POOLINGS:
            yield pooling, encoders.models[pooling], encoders.rows(pooling, texts)

    def rates(self, reading: str, texts: list[str]) -> dict[str, dict[str, dict[str, Any]]]:
        """Return pooling -> adjustment -> rates; of the mean also centred, and with another text's embedding."""
        rates = {}
        for pooling, embedder, rows in self.embeddings(reading, texts):
            adjustments = {"plain": Adjustment()}
            if pooling == POOLINGS[0]:
                adjustments["centred"] = mean_adjustment(rows)
            decoded = {}
            for kind, adjustment in adjustments.items():
                adjusted = embedder.with_adjustment(adjustment)
                decoded[kind] = embedded_texts(
                    adjusted, texts, embeddings=rows, special_tokens=reading == PAPERS and self.is_encoder
                )
                if pooling == POOLINGS[0] and self.version == PLAIN:
                    decoded[f"{kind}, of another text"] = moved_on(decoded[kind])
            rates[pooling] = rates_of(decoded)
        return rates


def models(options: argparse.Namespace) -> list[Model]:
    """Return the models; those of SmolLM2 where they are given."""
    neo = options.data / "lm" / "gpt-neo-3m-stories"
    folders = {(NEO, PLAIN): neo, (NEO, TUNED): options.neo_tuned}
    folders |= {(SMOLLM2, PLAIN): options.smollm2, (SMOLLM2, TUNED): options.tuned}
    language_models = [Model(*names, folder, options.work_dir) for names, folder in folders.items() if folder]
    return [*language_models, Model(MINILM, PLAIN, Path(minilm_path()), options.work_dir, is_encoder=True)]


def text_sets(options: argparse.Namespace) -> dict[str, list[str]]:
    """Return as many sentences of each set, none of which a tuning read, and all queries and passages of MS MARCO."""
    corpus = options.data / "raw_english" / "open_licence.txt.xz"
    skip = STEPS * BATCH  # left to the tuning
    tuned_on = set(islice(read_texts(corpus), skip))
    general = list(islice(read_texts(corpus), skip, skip + options.texts))
    shared = (text for text in shared_sentences(corpus, options.snli) if text not in tuned_on)
    sets = {GENERAL: general, SNLI: list(islice(shared, options.texts))}
    if options.msmarco:
        pairs = [line.rstrip("\n").split("\t") for line in options.msmarco.open(encoding="utf-8")]
        sets[MSMARCO] = [text for side in zip(*pairs, strict=True) for text in side]
    return sets


Values = dict[str, dict[str, dict[str, Any]]]
"""Key of `language_page.rate_rows` -> adjustment -> rates, of one set of texts, model and reading."""


def measured(options: argparse.Namespace) -> Iterator[tuple[tuple[str, str, str], Values]]:
    """Yield (set, model, reading) with its rates, measured once."""
    kept = Kept(options.work_dir / "special-tokens.json")
    for title, texts in text_sets(options).items():
        for name in dict.fromkeys(model.name for model in models(options)):
            for reading in READINGS:
                values: Values = {}
                for model in (model for model in models(options) if model.name == name):
                    key = " | ".join([title, name, model.version, str(len(texts)), reading])
                    for pooling, rates in kept.get(key, partial(model.rates, reading, texts)).items():
                        values[f"rates | {model.version} | {pooling} | {len(texts)}"] = rates
                yield (title, name, reading), values


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Measure what is not kept; yield the rates, and where claims hold."""
    claims: list[Claim] = []
    rows: dict[str, dict[str, Any]] = {}
    for place, values in measured(options):
        title, name, reading = place
        rows |= {
            f"{title}; {name}, {label}; {reading}": row
            for label, row in rate_rows(values).items()
            if not label.endswith("centred, of another text")
        }
        for claim in alignment_claims(values):
            where = ", ".join(filter(None, [*place, claim.where]))
            claims.append(claim._replace(where=where))
    yield "texts", f"{options.texts:,}"
    yield "rates", rates_table(rows)
    yield "summary", claim_summary(claims)


if __name__ == "__main__":
    run_script(
        measure,
        {
            "--snli": {"type": Path, "nargs": "+", "required": True, "help": "SNLI's sentences, one a line"},
            "--msmarco": {"type": Path, "metavar": "PAIRS", "help": "queries and passages of MS MARCO"},
            "--neo-tuned": {"type": Path, "help": "folder of the GPT-Neo, tuned for embedding"},
            "--smollm2": {"type": Path, "help": "folder of SmolLM2-135M-Instruct"},
            "--tuned": {"type": Path, "help": "folder of the same, tuned for embedding by the mean of its states"},
            "--texts": {"type": int, "default": 2_000, "help": "sentences of each set"},
        },
        data="raw_english/ and lm/",
        work_dir="vectors and rates",
        threads=1,
    )
