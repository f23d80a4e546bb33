"""Whether the estimated reasons of an encoder are a true account; writes a block of benchmarks/reasons.md for each.

    python -m benchmarks.account --data DATA --work-dir work --write
    python -m benchmarks.account --data DATA --work-dir work --mpnet FOLDER --me5 FOLDER --write     # other encoders

The score of two texts less what all texts share is divided into terms of words and context. Four questions are asked:
how much of it words carry; whether words are credited only for what they do (controls: words of other texts, invented
letters, random words, shuffled sentences, swapped roles, negations); whether the words that matter are those whose
removal lowers the score (leave-one-out); and what, without a pass, tells the pairs where they do not. The constants of
`pellucid.dense.words` were chosen on STS12 to 14.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata, spearmanr

import pellucid
from benchmarks.faithfulness import (
    FOLDERS,
    ME5,
    MINILM,
    MPNET,
    PAGE,
    SCIFACT,
    SICK,
    STATIC,
    STS,
    pairs_of,
    sentence_transformer,
    with_words,
)
from benchmarks.faithfulness_ways import Pair, Subject, leave_one_out
from papers.kit import (
    Interval,
    Verdict,
    bootstrap,
    interval_of,
    make_parser,
    markdown_table,
    measured,
    print_block,
    processor,
)
from papers.vector_cache import CachedEncoder
from pellucid.explain.rows import CONTEXT, SHARED, WORD_PAIR
from pellucid.text.function_words import ENGLISH_STOP_WORDS

BLOCK = "benchmarks/account.py"
CONTROLS = Path(__file__).with_name("controls.tsv")
N_PAIRS = {STS: 150, SICK: 150, SCIFACT: 50}
N_FOREIGN, N_SHUFFLED = 500, 60  # pairs with words of other texts; sentences
MAX_FOREIGN = 5.0  # % that words of other texts may be credited with
MAX_SIGN = -0.3  # rank correlation of a sign of unfaithful pairs with agreement
MIN_SPECIFIC = 0.05  # score less the shared part, below which context is not divided by it
MIN_FALL = 0.05  # mean fall of the score below which its division says nothing
INVENTED = ("xqzv wrtk plmv", "zzqx vvkp")


class Account(NamedTuple):
    """The terms of a score by kind."""

    words: float
    context: float
    common: float

    @property
    def specific(self) -> float:
        """The score less what all texts share."""
        return self.words + self.context


def account_of(explanation: Any) -> Account:
    """Return the sums of an explanation's rows by kind."""
    sums = dict.fromkeys((WORD_PAIR, CONTEXT, SHARED), 0.0)
    for row in explanation.rows:
        sums[row.kind] += row.contribution
    return Account(*sums.values())


class Encoder:
    """An encoder with estimated reasons, whose vectors are kept."""

    def __init__(self, model: Any, vectors: Subject) -> None:
        """Take an `EncoderEmbedder` with word reasons."""
        self.model, self.vectors = model, vectors

    def account(self, first: str, second: str, words_of: Sequence[str] = ()) -> Account:
        """Return the account of two texts, or of their vectors and the words of two other texts."""
        vector1, vector2 = self.vectors([first, second])
        text1, text2 = words_of or (first, second)
        return account_of(self.model.explain_vectors(text1, vector1, text2, vector2))

    def fit_cosine(self, first: str, second: str) -> float:
        """Return how far the words of two texts, not weighted, point to where their vectors do."""
        reasons = self.model.reasons
        product = 1.0
        for text, vector in zip((first, second), self.vectors([first, second])):
            words, centred = reasons.table.encode(text) @ reasons.arrays["map"], reasons.centred(vector)
            product *= float(words @ centred) / max(float(np.linalg.norm(words) * np.linalg.norm(centred)), 1e-9)
        return product

    def word_values(self, pair: Pair) -> tuple[list[float], list[float]]:
        """Return what each word of text 2 adds to the score, and its importance."""
        vector1, vector2 = self.vectors([pair.first, pair.second])
        why = self.model.explain_vectors(pair.first, vector1, pair.second, vector2)
        importance = self.model.reasons.parts(pair.second, "document", vector2).importance(vector1)
        return pair.by_word(why.word_contributions(2)), pair.by_word(dict(importance))


def ratio(part: Sequence[float], whole: Sequence[float]) -> Interval:
    """Return the sum of `part` over that of `whole` in percent, with its interval over items."""
    items = np.array([part, whole], np.float64).T
    sums = bootstrap(items, lambda drawn: 100 * drawn[..., 0].sum(axis=1) / drawn[..., 1].sum(axis=1))
    return interval_of(sums)


def mean(values: Sequence[float]) -> Interval:
    """Return the mean of values with its interval over items."""
    return interval_of(bootstrap(np.array(values, np.float64), lambda drawn: drawn.mean(axis=1)))


def written(interval: Interval, places: int = 0) -> str:
    """Write a value and its interval."""
    return f"{interval.value:.{places}f} ({interval.low:.{places}f} to {interval.high:.{places}f})"


def pairs_line(name: str, encoder: Encoder, pairs: Sequence[Pair], signs: Signs) -> list[str]:
    """Return a line of the table of pairs, and add to what may tell unfaithful ones."""
    accounts = [encoder.account(pair.first, pair.second) for pair in pairs]
    specific = [account.specific for account in accounts]
    agreements: tuple[list[float], list[float]] = ([], [])
    signs.new_set()
    small: dict[str, tuple[list[float], list[float]]] = {"account": ([], []), "leave-one-out": ([], [])}
    for pair in pairs:
        truth = leave_one_out(encoder.vectors, pair).values
        added, importance = encoder.word_values(pair)
        for values, agreement in zip((added, importance), agreements):
            agreement.append(float(np.nan_to_num(spearmanr(values, truth)[0])))
        account = accounts[len(agreements[0]) - 1]
        signs.add(
            {
                "context over score less the shared part": abs(account.context) / max(account.specific, MIN_SPECIFIC),
                "words point elsewhere than the vectors": 1 - encoder.fit_cosine(pair.first, pair.second),
                "terms and importance disagree": -float(np.nan_to_num(np.corrcoef(added, importance)[0, 1])),
            },
            agreements[0][-1],
        )
        is_small = [pair.second[slice(*spans[0])].lower() in ENGLISH_STOP_WORDS for spans in pair.words]
        for kind, values in (("account", added), ("leave-one-out", truth)):
            small[kind][0].append(float(np.dot(values, is_small)))
            small[kind][1].append(float(np.sum(values)))
    return [
        name,
        str(len(pairs)),
        written(ratio([account.words for account in accounts], specific)),
        written(ratio([abs(account.context) for account in accounts], specific)),
        " / ".join(f"{ratio(*small[kind]).value:.0f}" for kind in small),
        written(mean(agreements[0]), 2),
        written(mean(agreements[1]), 2),
    ]


class Signs:
    """What may tell, without a pass, pairs whose words agree little with leave-one-out; ranks are within each set."""

    def __init__(self) -> None:
        """Start without pairs."""
        self._sets: list[list[tuple[dict[str, float], float]]] = []

    def new_set(self) -> None:
        """Begin a set of pairs."""
        self._sets.append([])

    def add(self, signs: dict[str, float], agreement: float) -> None:
        """Take the signs of a pair and how far the terms of its words agree with leave-one-out."""
        self._sets[-1].append((signs, agreement))

    def lines(self) -> Iterator[list[str]]:
        """Yield a line for each sign: its rank correlation with agreement, and whether it is -0.3 or less."""
        for name in self._sets[0][0][0]:
            ranks = [
                np.array([rankdata(values) / len(pairs) - 0.5 for values in zip(*[(s[name], a) for s, a in pairs])]).T
                for pairs in self._sets
            ]
            correlation = interval_of(bootstrap(np.concatenate(ranks), _correlations))
            yield [name, written(correlation, 2), str(Verdict.from_truth(correlation.at_most(MAX_SIGN)))]


def _correlations(drawn: Any) -> Any:
    centred = drawn - drawn.mean(axis=1, keepdims=True)
    return centred.prod(axis=2).sum(axis=1) / np.sqrt(np.square(centred).sum(axis=1).prod(axis=1))


def foreign_words(encoder: Encoder, texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield lines on pairs whose vectors are explained by words that are not theirs; 0 is right."""
    draw = random.Random(1)
    vocabulary = [word for word in encoder.model.reasons.table.vocabulary.words[2_000:20_000] if word.isalpha()]
    sources: dict[str, Callable[[], tuple[str, str]]] = {
        "words of two other texts": lambda: (draw.choice(texts), draw.choice(texts)),
        "random words": lambda: (" ".join(draw.sample(vocabulary, 8)), " ".join(draw.sample(vocabulary, 8))),
        'the word "and"': lambda: ("and", "and"),
        "invented letters": lambda: INVENTED,
    }
    for name, words_of in sources.items():
        accounts = list[Any]()
        while len(accounts) < N_FOREIGN:
            one, other, words = *draw.sample(texts, 2), words_of()
            if not {one, other} & set(words):
                accounts.append(encoder.account(one, other, words))
        credit = ratio([a.words for a in accounts], [abs(a.specific) for a in accounts])
        yield [name, str(len(accounts)), written(credit, 1), str(Verdict.from_truth(credit.at_most(MAX_FOREIGN)))]


def falls(encoder: Encoder, changes: dict[str, list[tuple[str, str]]]) -> Iterator[list[str]]:
    """Yield lines on what a change of word order or a negation takes from a text's score with itself."""
    for name, pairs in changes.items():
        before = [encoder.account(text, text) for text, _ in pairs]
        after = [encoder.account(text, changed) for text, changed in pairs]
        fall = [a.specific - b.specific for a, b in zip(before, after)]
        words, context = (
            [getattr(a, of) - getattr(b, of) for a, b in zip(before, after)] for of in ("words", "context")
        )
        few = "" if np.mean(fall) >= MIN_FALL else " (too small to divide)"
        yield [
            name,
            str(len(pairs)),
            f"{np.mean(fall):.3f}{few}",
            written(ratio(words, fall)),
            written(ratio(context, fall)),
        ]


def changes_of(pairs: Sequence[Pair]) -> dict[str, list[tuple[str, str]]]:
    """Return sentences and what they are changed to, by kind of change."""
    draw = random.Random(5)
    shuffled = list[tuple[str, str]]()
    for pair in pairs:
        words = pair.second.rstrip(" .").split()
        if 8 <= len(words) <= 25 and len(shuffled) < N_SHUFFLED:
            shuffled.append((pair.second, " ".join(draw.sample(words, len(words))) + "."))
    rows = [line.split("\t") for line in CONTROLS.read_text(encoding="utf-8").splitlines()[1:]]
    named = {kind: [(a, b) for of, a, b in rows if of == kind] for kind in ("role swap", "negation")}
    return {"shuffled words": shuffled, **named}


def page(encoder: Encoder, data: Path, names: Sequence[str]) -> str:
    """Return the tables of an encoder on some sets of pairs."""
    sets = {name: pairs_of(name, data, N_PAIRS[name]) for name in names}
    similar = pairs_of(STS, data, N_PAIRS[STS])
    header = ["pairs", "number", "words, %", "size of context, %", "small words, % (account / leave-one-out)",
              "agreement of terms", "agreement of importance"]  # fmt: skip
    texts = list(dict.fromkeys(text for pair in similar for text in pair[:2]))
    signs = Signs()
    return "\n\n".join(
        [
            f"{encoder.model.reasons!r}",
            markdown_table(header, [pairs_line(name, encoder, pairs, signs) for name, pairs in sets.items()]),
            markdown_table(["sign of a pair whose order of words is wrong", "correlation", "-0.3 or less"],
                           list(signs.lines())),
            markdown_table(["explained by", "pairs", "credited to words, %", "at most 5 %"],
                           list(foreign_words(encoder, texts))),
            markdown_table(["change", "texts", "mean fall", "in words, %", "in context, %"],
                           list(falls(encoder, changes_of(similar)))),
        ]
    )  # fmt: skip


def main() -> None:
    """Measure, print and perhaps write."""
    names = [MINILM, MPNET, ME5, STATIC]
    parser = make_parser(__doc__, data="sts/ and retrieval/", work_dir="vectors", only=names, write=PAGE)
    parser.add_argument("--sets", nargs="+", choices=list(N_PAIRS), default=list(N_PAIRS), help="of pairs [all]")
    for name, option in FOLDERS.items():
        parser.add_argument(option, type=Path, metavar="FOLDER", help=f"where {name} is")
    parser.add_argument("--device", default="cpu", help="where encoders run [cpu]")
    options = parser.parse_args()
    for name in options.only:
        folder = getattr(options, FOLDERS[name][2:]) if name in FOLDERS else None
        if folder is None and name not in (MINILM, STATIC):
            print(f"{name} is left out: {FOLDERS[name]} is not given")
            continue
        model = None if name == STATIC else sentence_transformer(name, folder, options.device)
        embedder = pellucid.load(pellucid.load(STATIC).encode if model is None else model)
        prompt = Subject(embedder.encode, model).prompt
        vectors = Subject(CachedEncoder(f"{name}|{prompt}", embedder.encode, options.work_dir), model)
        text = page(Encoder(with_words(embedder, name, vectors), vectors), options.data, options.sets)
        print_block(f"{BLOCK} {name}", f"{measured()[:-1]}, {processor()}.\n\n{text}", options.write)


if __name__ == "__main__":
    main()
