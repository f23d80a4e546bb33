"""Index abstracts, find out why a hit is wrong, fix it, and see what changed; see `docs/benchmarks.md`.

    python examples/search_scifact.py --data scifact
    python examples/search_scifact.py --data scifact --query 822 --word cause

The folder is one of BEIR: corpus.jsonl, queries.jsonl, qrels/train.tsv and qrels/test.tsv. The query whose first hit is
wrong and the word to change are chosen on the training queries; the test queries only say what it did.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import tempfile
import time
from pathlib import Path

import pellucid
from pellucid.index import Hits, read_qrels, read_queries

Judged = dict[str, set[str]]
"""Query -> the documents that are right."""


def build(data: Path, folder: Path) -> pellucid.Index:
    """Return an index of the abstracts: BM25 and static-en."""
    path = _file(data, "corpus.jsonl")
    content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    records = [json.loads(line) for line in content.splitlines()]
    index = pellucid.Index.create(folder)
    index.add(
        [record["text"] for record in records],
        ids=[record["_id"] for record in records],
        titles=[record.get("title") or "" for record in records],
    )
    return index


def judged(data: Path, split: str) -> Judged:
    """Return the right documents of each query of a split."""
    grades = read_qrels(_file(data, f"qrels/{split}.tsv"))
    found = {query: {document for document, grade in row.items() if grade > 0} for query, row in grades.items()}
    return {query: documents for query, documents in found.items() if documents}


def _file(data: Path, name: str) -> Path:
    """Return a file of the set, which may be packed."""
    packed = data / f"{name}.xz"
    return packed if packed.exists() else data / name


def asked(index: pellucid.Index, queries: dict[str, str], right: Judged) -> dict[str, list[str]]:
    """Return the ids of the ten hits of each query."""
    return {query: [hit.id for hit in index.search(queries[query], 10)] for query in right}


def ndcg(found: dict[str, list[str]], right: Judged) -> float:
    """Return nDCG@10 x 100."""
    gains = [1 / math.log2(place + 2) for place in range(10)]
    scores = [
        sum(gain for gain, document in zip(gains, found[query]) if document in wanted) / sum(gains[: len(wanted)])
        for query, wanted in right.items()
    ]
    return 100 * sum(scores) / len(scores)


def show(index: pellucid.Index, query: str, right: set[str]) -> None:
    """Print the first hits, and what puts a wrong first hit above the first right one."""
    hits = index.search(query, 10)
    print(first_hits(hits, right))
    places = [rank for rank, hit in enumerate(hits, 1) if hit.id in right]
    if places and places[0] > 1:
        print(f"\nwhat puts hit 1 above hit {places[0]}, which is right:")
        for row in hits.why(1, places[0]).reasons(4):
            print(f"  {row.contribution:+.4f}  {row.name}")


def first_hits(hits: Hits, right: set[str], most: int = 3) -> str:
    """Return the first hits as lines: score, whether it is right, title, the largest reasons."""
    lines = []
    for rank, hit in enumerate(hits[:most], 1):
        reasons = ", ".join(f"{row.name} {row.contribution:+.3f}" for row in hit.reasons.top(3))
        mark = "right" if hit.id in right else "wrong"
        lines.append(f"{rank}  {hit.score:.4f}  {mark}  {hit.title[:80]}\n     {reasons}")
    return "\n".join(lines)


def what_changed(before: dict[str, list[str]], after: dict[str, list[str]], right: Judged) -> str:
    """Say in a line what a change did to the queries of a split."""
    moved = [query for query in right if before[query][:1] != after[query][:1]]
    better = sum(bool(right[query].intersection(after[query][:1])) for query in moved)
    worse = sum(bool(right[query].intersection(before[query][:1])) for query in moved)
    scores = f"nDCG@10 {ndcg(before, right):.2f} -> {ndcg(after, right):.2f}"
    order = sum(before[query] != after[query] for query in right)
    return (
        f"{scores}; {order} of {len(right)} queries have other hits; the first hit moved in {len(moved)}: "
        f"to a right one in {better}, from a right one in {worse} ({', '.join(moved) or 'none'})"
    )


def main() -> None:
    """Index, ask, look, mend, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="The folder of the set.")
    parser.add_argument("--query", default="795", help="Id of the query to look at.")
    parser.add_argument("--word", default="play", help="The word of queries whose weight is changed.")
    parser.add_argument("--factor", type=float, default=0.3, help="How much the word counts then.")
    given = parser.parse_args()
    queries = read_queries(_file(given.data, "queries.jsonl"))
    splits = {split: judged(given.data, split) for split in ("train", "test")}
    right = {**splits["test"], **splits["train"]}[given.query]
    with tempfile.TemporaryDirectory() as work:
        start = time.perf_counter()
        with build(given.data, Path(work) / "index") as index:
            print(f"{len(index):,} documents indexed in {time.perf_counter() - start:.1f} s\n")
            print(f"query {given.query}: {queries[given.query]}")
            show(index, queries[given.query], right)
            before = {split: asked(index, queries, wanted) for split, wanted in splits.items()}

            print(f"\n{given.word!r} counts {given.factor:g} in all queries\n")
            index.configure(word_weights={given.word: given.factor})
            show(index, queries[given.query], right)
            for split, its_right in splits.items():
                print(f"\n{split}: {what_changed(before[split], asked(index, queries, its_right), its_right)}")


if __name__ == "__main__":
    main()
