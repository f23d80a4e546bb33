"""Whether the estimated reasons of an encoder are a true account; writes a block of docs/results-reasons.md.

    python -m benchmarks.account --data DATA --write
    python -m benchmarks.account --data DATA --mpnet FOLDER --me5 FOLDER --write     # and other encoders

The score of two texts less what all texts share is divided into terms of words and context. Three questions are asked:
how much of it words carry; whether words are credited only for what they do (controls: words of other texts, invented
letters, random words, shuffled sentences, swapped roles, negations); and whether the words that matter are those whose
removal lowers the score (leave-one-out). The constants of `pellucid.dense.words` were chosen on STS12 to 14.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

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
from papers.kit import Interval, bootstrap, interval_of, make_parser, markdown_table, measured, print_block, processor
from pellucid.explain.rows import CONTEXT, SHARED, WORD_PAIR
from pellucid.text.words import ENGLISH_STOP_WORDS

BLOCK = "benchmarks/account.py"
CONTROLS = Path(__file__).with_name("controls.tsv")
N_PAIRS = {STS: 150, SICK: 150, SCIFACT: 50}
N_CONTROLS = 60  # pairs with words of other texts; shuffled sentences
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


def pairs_line(name: str, encoder: Encoder, pairs: Sequence[Pair]) -> list[str]:
    """Return a line of the table of pairs."""
    accounts = [encoder.account(pair.first, pair.second) for pair in pairs]
    specific = [account.specific for account in accounts]
    agreements: tuple[list[float], list[float]] = ([], [])
    small: dict[str, tuple[list[float], list[float]]] = {"account": ([], []), "leave-one-out": ([], [])}
    for pair in pairs:
        truth = leave_one_out(encoder.vectors, pair).values
        added, importance = encoder.word_values(pair)
        for values, agreement in zip((added, importance), agreements):
            agreement.append(float(np.nan_to_num(spearmanr(values, truth)[0])))
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
        accounts = []
        while len(accounts) < N_CONTROLS:
            one, other, words = *draw.sample(texts, 2), words_of()
            if not {one, other} & set(words):
                accounts.append(encoder.account(one, other, words))
        yield [
            name,
            str(len(accounts)),
            written(ratio([a.words for a in accounts], [abs(a.specific) for a in accounts])),
        ]


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
    shuffled = []
    for pair in pairs:
        words = pair.second.rstrip(" .").split()
        if 8 <= len(words) <= 25 and len(shuffled) < N_CONTROLS:
            shuffled.append((pair.second, " ".join(draw.sample(words, len(words))) + "."))
    rows = [line.split("\t") for line in CONTROLS.read_text(encoding="utf-8").splitlines()[1:]]
    named = {kind: [(a, b) for of, a, b in rows if of == kind] for kind in ("role swap", "negation")}
    return {"shuffled words": shuffled, **named}


def page(encoder: Encoder, name: str, data: Path) -> str:
    """Return the tables of an encoder."""
    sets = {name: pairs_of(name, data, count) for name, count in N_PAIRS.items()}
    header = ["pairs", "number", "words, %", "size of context, %", "small words, % (account / leave-one-out)",
              "agreement of terms", "agreement of importance"]  # fmt: skip
    texts = list(dict.fromkeys(text for pair in sets[STS] for text in pair[:2]))
    return "\n\n".join(
        [
            f"### {name}\n\n{encoder.model.reasons!r}",
            markdown_table(header, [pairs_line(name, encoder, pairs) for name, pairs in sets.items()]),
            markdown_table(["explained by", "pairs", "credited to words, %"], list(foreign_words(encoder, texts))),
            markdown_table(["change", "texts", "mean fall", "in words, %", "in context, %"],
                           list(falls(encoder, changes_of(sets[STS])))),
        ]
    )  # fmt: skip


def main() -> None:
    """Measure, print and perhaps write."""
    parser = make_parser(__doc__, data="sts/ and retrieval/", only=[MINILM, MPNET, ME5, STATIC], write=PAGE)
    for name, option in FOLDERS.items():
        parser.add_argument(option, type=Path, metavar="FOLDER", help=f"where {name} is")
    parser.add_argument("--device", default="cpu", help="where encoders run [cpu]")
    options = parser.parse_args()
    text = f"{measured()[:-1]}, {processor()}."
    for name in options.only:
        folder = getattr(options, FOLDERS[name][2:]) if name in FOLDERS else None
        if folder is None and name not in (MINILM, STATIC):
            print(f"{name} is left out: {FOLDERS[name]} is not given")
            continue
        model = None if name == STATIC else sentence_transformer(name, folder, options.device)
        embedder = pellucid.load(pellucid.load(STATIC).encode if model is None else model)
        vectors = Subject(embedder.encode, model)
        text += f"\n\n{page(Encoder(with_words(embedder, name, vectors), vectors), name, options.data)}"
        print_block(BLOCK, text, options.write)


if __name__ == "__main__":
    main()
