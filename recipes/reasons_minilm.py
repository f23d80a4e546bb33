"""Make what reasons for encoders come with: sentences to fit on, and word reasons of all-MiniLM-L6-v2.

    python -m recipes.reasons_minilm --data DATA --minilm FOLDER --output src/pellucid/bundled/reasons

The sentences are English ones of the open-licence corpus, and pairs of a German, French, Japanese or Chinese sentence
and its English translation from Tatoeba. The reasons are fitted on more of the English ones, which do not come with us.
"""

from __future__ import annotations

import argparse
import lzma
from pathlib import Path

import numpy as np

import pellucid
from pellucid.core.fingerprint import fingerprint
from pellucid.dense.words import fit_words
from pellucid.persistence.store import read_json, write_json, writing
from pellucid.static.embedder import StaticEmbedder

ENGLISH, PAIRS = 4_000, 400  # sentences; pairs of each language
FITTED = 24_000  # English sentences that the reasons of all-MiniLM-L6-v2 are fitted on
WORDS = (4, 40)  # shortest and longest sentence
LANGUAGES = ("de", "fr", "ja", "zh")


def english(data: Path) -> list[str]:
    """Return `FITTED` English sentences, drawn at random."""
    shortest, longest = WORDS
    with lzma.open(data / "raw_english" / "open_licence.txt.xz", "rt", encoding="utf-8") as file:
        lines = [line for line in file.read().splitlines() if shortest <= len(line.split()) <= longest]
    chosen = np.random.default_rng(0).choice(len(lines), FITTED, replace=False)
    return [lines[number] for number in chosen.tolist()]


def pairs(data: Path, language: str) -> list[tuple[str, str]]:
    """Return `PAIRS` sentences of a language with their English translations, drawn at random."""
    with lzma.open(data / "parallel" / "tatoeba" / f"en-{language}.tsv.xz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    rows = [row for row in rows if len(row) == 2 and len(row[0].split()) >= WORDS[0]]
    chosen = np.random.default_rng(0).choice(len(rows), PAIRS, replace=False)
    return [(rows[number][1], rows[number][0]) for number in chosen.tolist()]


def main() -> None:
    """Write the sentences and the reasons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of raw_english and parallel")
    parser.add_argument("--minilm", required=True, help="all-MiniLM-L6-v2: a folder, or its hub id")
    parser.add_argument("--output", type=Path, required=True, help="the folder of reasons in the package")
    options = parser.parse_args()

    sentences = english(options.data)
    rows = [f"{text}\t" for text in sentences[:ENGLISH]]
    rows += [f"{text}\t{translation}" for code in LANGUAGES for text, translation in pairs(options.data, code)]
    options.output.mkdir(parents=True, exist_ok=True)
    with writing(options.output / "sentences.tsv.xz") as aside:
        aside.write_bytes(lzma.compress("".join(f"{row}\n" for row in rows).encode(), preset=9))
    encoder = pellucid.load(options.minilm)
    table = StaticEmbedder.from_pretrained("static-en")
    reasons = fit_words(encoder, sentences, table=table)
    reasons.arrays = {name: array.astype(np.float16) for name, array in reasons.arrays.items()}
    reasons.save_pretrained(options.output / "minilm")
    path = options.output / "minilm" / "config.json"
    config = read_json(path)
    config["pellucid"]["probes"] = fingerprint(pellucid.load(encoder.encode))["functions"][0]  # for the same in int8
    write_json(path, config)
    print(reasons.fit)


if __name__ == "__main__":
    main()
