"""What the sentences and lines of explanations are worth: three questions; prints markdown.

    python -m benchmarks.sentences --data ../shared/data [--only lines edits hits] [--model static-en] [--pairs 100]

*lines*: what happens to a score without the words of a line, for pairs of three STS sets with a grade of 2.5 or more,
of lines as the account estimates them and as `explain` checks them: lines in the mean, and how often the first one is
that whose words lower the score most when they are left out of both texts, or of text 2 alone; the rank correlation of
the number that orders the lines with the fall; and of lines that claim 40 % of the score or more, those whose words
lower it by less than 10 % without the sentence saying so. A checked line is in its place because of its fall, so that
its first and third figure follow. The floor is equal words, the longest first.

*edits*: how often an explanation names the one word in which two texts were made to differ. One word of a text of five
STS sets is exchanged: an antonym, a thing, a number, a price, a verdict, a date or a name. *Edited* compares the text
with itself, *paraphrase* with the other text of its pair (a grade of 3.5 or more, which has the word, too). Counted are
up to 60 pairs of a kind in which the sentence of what keeps the score from 1, or the line of numbers and names that
differ, names the word. The floor is the first difference of the two texts' words, of no model.

*hits*: whether the sentence of a hit names what matches: words of the query, and the document's words around them, of
300 hits: the first three of 25 queries, drawn with a fixed seed, of each of four collections, from an index with BM25
and static-en. Counted are sentences that name no word of the query although rows do, and snippets that hold no word
that matches. Below them stands the floor: the first twelve words of the passage instead of the snippet.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import pellucid
from benchmarks.faithfulness import model_by_name
from papers.kit import make_parser
from papers.local_tasks import read_records
from pellucid.evaluation.tasks import find_tasks
from pellucid.explain.checks import without
from pellucid.explain.summary import differences
from pellucid.index import Hit
from pellucid.text.words import split_words

LINE_SETS, EDIT_SETS = ("SICK-R", "STS13", "STS15"), ("SICK-R", "STS12", "STS13", "STS14", "STS15")
COLLECTIONS = ("cisi", "cranfield", "npl", "scifact")
N_EDITS, N_QUERIES, N_HITS, N_WORDS = 60, 25, 3, 12


def graded_pairs(data: Path, names: Sequence[str]) -> set[tuple[str, str, float]]:
    """Return the pairs of some STS sets with their grades."""
    rows = set[tuple[str, str, float]]()
    for file in (file for name in names for file in sorted((data / "sts" / name).glob("*.tsv"))):
        header, *lines = (line.split("\t") for line in file.read_text(encoding="utf-8").splitlines())
        rows |= {(cells[0], cells[1], float(cells[header.index("score")])) for cells in lines}
    return rows


# --- Lines ------------------------------------------------------------------------------------------------------------


def equal_words(text1: str, text2: str) -> list[tuple[float, Any, Any]]:
    """Return the floor: the words that both texts have, the longest first."""
    first, second = (
        {text[word.start : word.end].lower(): (word.start, word.end) for word in split_words(text)}
        for text in (text1, text2)
    )
    return [
        (len(word), (first[word],), (second[word],))
        for word in sorted(first.keys() & second, key=lambda word: (len(word), word))[::-1]
    ]


class Line(NamedTuple):
    """A line of an explanation, or of the floor."""

    number: float  # what it is ordered by
    share: float  # of the score, as claimed
    fall: float  # share by which the score falls without its words
    fall_of_second: float  # the same where they are left out of text 2 alone
    is_checked: bool = False


def measured(model: Any, pairs: list[tuple[str, str]], kind: str) -> Iterator[list[Line]]:
    """Yield the lines of each pair in the order in which they are shown."""
    for text1, text2 in pairs:
        why = model.explain(text1, text2)
        if kind == "estimated":
            why = replace(why, is_checked=False)
        lines = [g for g in why.groups() if g.kind == "phrase" and g.share > 0]
        places = [(g.spans1, g.spans2) for g in lines]
        numbers = [g.contribution if g.without is None else why.score - g.without for g in lines]
        if kind == "floor":
            numbers, places = zip(*[(n, (s1, s2)) for n, s1, s2 in equal_words(text1, text2)] or [((), ())])
        if not places or not places[0]:
            continue
        texts1 = [without(text1, spans1) for spans1, _ in places]
        texts2 = [without(text2, spans2) for _, spans2 in places]
        both = model.similarity_pairwise(model.encode(texts1), model.encode(texts2))
        second = model.similarity(model.encode([text1]), model.encode(texts2))[0]
        falls = zip(1 - np.asarray(both) / why.score, 1 - np.asarray(second) / why.score)
        shares = [0.0] * len(places) if kind == "floor" else [g.share for g in lines]
        yield [Line(n, share, *map(float, fall), kind == "checked") for n, share, fall in zip(numbers, shares, falls)]


def line_table(options: argparse.Namespace) -> Iterator[str]:
    """Yield the table of lines."""
    model, pairs = model_by_name(options.model), list[tuple[str, str]]()
    for name in LINE_SETS:
        graded = graded_pairs(options.data, [name])
        long = {(first, second) for first, second, grade in graded if grade >= 2.5 and len(second.split()) > 4}
        pairs += random.Random(0).sample(sorted(long), options.pairs)
    yield "| | lines | first is largest | of text 2 alone | rank correlation | claims of 40 % | false, unsaid |"
    yield "|---|---|---|---|---|---|---|"
    for kind in ("checked", "estimated", "floor"):
        pairs_lines = list(measured(model, pairs, kind))
        several = [lines for lines in pairs_lines if len(lines) > 1]
        first = statistics.mean(lines[0].fall == max(line.fall for line in lines) for lines in pairs_lines)
        second = statistics.mean(
            lines[0].fall_of_second == max(line.fall_of_second for line in lines) for lines in pairs_lines
        )
        ranks = [stats.spearmanr([x.number for x in lines], [x.fall for x in lines]).statistic for lines in several]
        claims = [line for lines in pairs_lines for line in lines if line.share >= 0.4]
        false = sum(line.fall < 0.1 and not line.is_checked for line in claims)
        yield (
            f"| {options.model}, {kind} | {statistics.mean(map(len, pairs_lines)):.1f} | {first:.0%} | {second:.0%} "
            f"| {np.nanmean(ranks):.2f} | {len(claims)} | {false} |"
        )


# --- Edits ------------------------------------------------------------------------------------------------------------

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

    text1: str
    text2: str
    word: str
    other: str


def exchanged(kind: str, word: str, rng: random.Random) -> str | None:
    """Return what a word is exchanged for; None where it is of another kind."""
    rows = WORDS[kind].split()
    for row in rows:
        if "/" in row and word in row.split("/"):
            return row.replace(word, "", 1).strip("/")
    others = [row for row in rows if row != word and "/" not in row and row.isdigit() == word.isdigit()]
    return rng.choice(others) if word in rows and others else None


def edits(data: Path, *, paraphrase: bool) -> dict[str, list[Edit]]:
    """Return up to 60 edits of each kind, drawn with a fixed seed."""
    rows, rng = graded_pairs(data, EDIT_SETS), random.Random(0)
    found: dict[str, list[Edit]] = {kind: [] for kind in WORDS}
    for first, second, grade in rng.sample(sorted(rows), len(rows)):
        if len(first.split()) < 5 or (paraphrase and (grade < 3.5 or first.lower() == second.lower())):
            continue
        text = second if paraphrase else first
        for kind, word in ((kind, word) for word in re.findall(r"\w+", text) for kind in WORDS):
            other = exchanged(kind, word, rng) if text.split().count(word) == 1 and word in first.split() else None
            if other and other not in first and other not in second and len(found[kind]) < N_EDITS:
                found[kind].append(Edit(first, re.sub(rf"\b{word}\b", other, text), word, other))
                break
    return found


def is_named(edit: Edit, words: str) -> bool:
    """Whether some words hold the exchanged one."""
    return not {edit.word.lower(), edit.other.lower()}.isdisjoint(re.findall(r"\w+", words.lower()))


def first_difference(edit: Edit) -> str:
    """Return the floor: the words of the first place in which the two texts differ."""
    words = [re.findall(r"\w+", text) for text in edit[:2]]
    codes = SequenceMatcher(None, words[0], words[1], autojunk=False).get_opcodes()
    a, b, c, d = next(code[1:] for code in codes if code[0] != "equal")
    return " ".join(words[0][a:b] + words[1][c:d])


def edit_table(options: argparse.Namespace) -> Iterator[str]:
    """Yield the table of edits."""
    model = model_by_name(options.model)
    yield "| | pairs | named | by the sentence | by the line of differences | floor |\n|---|---|---|---|---|---|"
    for paraphrase in (False, True):
        for kind, of_kind in edits(options.data, paraphrase=paraphrase).items():
            shares = [0, 0, 0, 0]
            for edit in of_kind:
                summary = model.explain(edit.text1, edit.text2).summary()
                sentence = re.search(r"Below 1 \w+ because (.*?) \(\d", summary)
                lines = [line for line, _ in differences(edit[:2], ("text 1", "text 2"))]
                named = sentence is not None and is_named(edit, sentence[1]), any(is_named(edit, x) for x in lines)
                for n, is_one in enumerate((any(named), *named, is_named(edit, first_difference(edit)))):
                    shares[n] += is_one
            what = f"{'paraphrase' if paraphrase else 'edited'}, {kind}"
            yield f"| {what} | {len(of_kind)} | {' | '.join(f'{n / max(1, len(of_kind)):.0%}' for n in shares)} |"


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


def words_of(text: str) -> set[str]:
    """Return the words of a text, in lower case."""
    return set(re.findall(r"\w+", text.lower()))


def names_the_query(query: str, hit: Hit) -> bool:
    """Whether the sentence says of a word of the query that it matches, or no row is of one."""
    said = re.sub(r"\b[Nn]ot(hing)? in .*", "", hit.explain().summary())
    named = words_of(" ".join(re.findall(r'"([^"]*)"', said)))
    return bool(named & words_of(query)) or not any(row.spans1 for row in hit.reasons.top(10))


def hit_counts(options: argparse.Namespace) -> Iterator[str]:
    """Yield the counts of hits."""
    n_hits = n_silent = n_without = n_beginnings = 0
    for query, hit in hits_of(options.data):
        text, marks = (hit.text, hit.marks.text) if hit.marks.text else (hit.title, hit.marks.title)
        matches = [" ".join(text[start:end].split()) for start, end, _ in marks]
        snippet, beginning = " ".join(hit.snippet.split()), " ".join(text.split()[:N_WORDS])
        n_hits += 1
        n_silent += not names_the_query(query, hit)
        n_without += bool(matches) and not any(match in snippet for match in matches)
        n_beginnings += bool(matches) and not any(match in beginning for match in matches)
    yield f"{n_hits} hits: {n_silent} sentences name no word of the query although rows do"
    yield f"{n_without} snippets hold no word that matches; the first {N_WORDS} words of the text, {n_beginnings}"


TABLES = {"lines": line_table, "edits": edit_table, "hits": hit_counts}


if __name__ == "__main__":
    parser = make_parser(__doc__, data="sts/ and retrieval/", only=TABLES)
    parser.add_argument("--model", default="static-en", help="of lines and edits [%(default)s]")
    parser.add_argument("--pairs", type=int, default=100, help="of each set, for lines [%(default)s]")
    options = parser.parse_args()
    for name in options.only:
        print("\n".join(TABLES[name](options)), flush=True)
