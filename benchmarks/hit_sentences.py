"""Whether the sentence of a hit names what matches: words of the query, and the document's words around them.

    python -m benchmarks.hit_sentences --data ../shared/data

Takes 300 hits: the first three of 25 queries, drawn with a fixed seed, of each of four collections, from an index with
BM25 and static-en. Prints how many sentences name no word of the query although rows do, and how many snippets hold no
word that matches. Below them stands the floor: the first twelve words of the passage instead of the snippet.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pellucid
from papers.kit import make_parser
from papers.local_tasks import read_records
from pellucid.evaluation.tasks import find_tasks
from pellucid.index import Hit

COLLECTIONS = ("cisi", "cranfield", "npl", "scifact")
N_QUERIES, N_HITS, N_WORDS = 25, 3, 12


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


def main() -> None:
    """Print the counts."""
    arguments = make_parser(__doc__, data="retrieval/").parse_args()
    n_hits = n_silent = n_without = n_beginnings = 0
    for query, hit in hits_of(arguments.data):
        text, marks = (hit.text, hit.marks.text) if hit.marks.text else (hit.title, hit.marks.title)
        matches = [" ".join(text[start:end].split()) for start, end, _ in marks]
        snippet, beginning = " ".join(hit.snippet.split()), " ".join(text.split()[:N_WORDS])
        n_hits += 1
        n_silent += not names_the_query(query, hit)
        n_without += bool(matches) and not any(match in snippet for match in matches)
        n_beginnings += bool(matches) and not any(match in beginning for match in matches)
    print(f"{n_hits} hits: {n_silent} sentences name no word of the query although rows do")
    print(f"{n_without} snippets hold no word that matches; the first {N_WORDS} words of the text, {n_beginnings}")


if __name__ == "__main__":
    main()
