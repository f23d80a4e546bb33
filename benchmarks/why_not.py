r"""Whether `Index.why_not` names the cause for which a search fails, and whether its change works; prints markdown.

    python -m benchmarks.why_not --data shared/data --documents 200000

Searches are made to fail, 25 of each of eight kinds, among sentences of shared/data/raw_english; every tenth document
is five sentences, cut into passages of 200 characters. A search counts as a failure if the document is not among its
first ten hits, and as one of its kind if it is without what was done to it: with the id, without the condition or
bound, the words of other documents or the wrong letter, with other weights, without copies, or in an index that does
not cut documents. A cause is right if it is the first, and named if it is any. A change works if a search with it
finds the document; of copies, once they are deleted, and of passages, in the index that does not cut. Milliseconds are
processor time of one process on one thread.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import datetime
import lzma
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NamedTuple

import pellucid
from papers.kit import make_parser
from pellucid.index.why_not import Cause

PER_KIND, COPIES, TOP_K, MIN_LETTERS, PASSAGE = 25, 12, 10, 5, 200
YEARS = range(1950, 2025)
KINDS = {
    "id that is not there": {"absent"}, "condition": {"condition"}, "bound": {"min_score", "offset"},
    "word that it lacks": {"word", "words"}, "misspelt word": {"spelling"}, "passages": {"passages"},
    "weights": {"weights"}, "copies": {"copies"},
}  # fmt: skip
"""Kinds of failures, and the kinds of causes that are right."""


class Case(NamedTuple):
    """A search that fails."""

    kind: str
    query: str
    id: str
    options: dict[str, Any]
    document: str
    """The id that is meant."""


class Cases:
    """An index, the same documents without cuts, and searches that fail."""

    def __init__(self, sentences: list[str], folder: Path, seed: int) -> None:
        """Make both indexes."""
        self.random = random.Random(seed)
        texts = [" ".join(sentences[n : n + 5]) if n % 10 == 0 else text for n, text in enumerate(sentences)]
        self.texts = {f"doc-{n}": text for n, text in enumerate(texts)}
        for n in self.random.sample(range(len(texts)), 4 * PER_KIND):
            self.texts |= {f"copy-{n}-{copy}": f"{texts[n]}{'!' * copy}" for copy in range(COPIES)}
            self.texts[f"target-{n}"] = f"{texts[n]} {self.random.choice(sentences)}"
        self.ids = {kind: [id for id in self.texts if id.startswith(kind)] for kind in ("doc", "target")}
        metadata = [{"year": self.random.choice(YEARS), "part": n % 3} for n in range(len(self.texts))]
        self.metadata = dict(zip(self.texts, metadata))
        self.index, self.whole = (
            pellucid.Index.create(folder / str(size), passage_characters=size) for size in (PASSAGE, 100 * PASSAGE)
        )
        for index in (self.index, self.whole):
            index.add(self.texts.values(), ids=self.texts, metadata=metadata)

    def finds(self, query: str, id: str, index: Any = None, **options: Any) -> bool:
        """Return whether a search finds a document."""
        return any(hit.id == id for hit in (index or self.index).search(query, TOP_K, **options))

    def words(self, text: str, count: int) -> list[str]:
        """Return some long words of a text."""
        words = sorted({word.strip(".,;:!?\"'()").lower() for word in text.split()})
        words = [word for word in words if len(word) >= MIN_LETTERS and word.isalpha()]
        return self.random.sample(words, min(count, len(words)))

    def draw(self, kind: str) -> Case | None:
        """Return a search that fails, and would not without a cause of a kind; None where what was drawn is none."""
        id = self.random.choice(self.ids["target" if kind == "copies" else "doc"])
        text, options, asked_id, is_found_without = self.texts[id], dict[str, Any](), id, True
        words = self.words(text, 3)
        query = right = " ".join(words)
        if len(words) < 3 or (kind == "passages") != (len(text) > 2 * PASSAGE):
            return None
        if kind == "id that is not there":
            asked_id = self.random.choice([id.upper(), id.replace("-", ""), id.replace("-", "_"), f" {id}"])
        elif kind == "condition":
            options["where"] = {"part": self.metadata[id]["part"], "year": {"gt": self.metadata[id]["year"]}}
        elif kind == "bound":
            options = (
                {"offset": TOP_K}
                if self.random.random() < 0.5
                else {"min_score": self.index.score(query, id).score + 0.05}
            )
        elif kind == "word that it lacks":
            query = " ".join([*words[:2], *self.words(self.texts[self.random.choice(self.ids["doc"])], 2)])
            right = " ".join(words[:2])
        elif kind == "misspelt word":
            at = self.random.randrange(1, len(words[0]) - 1)
            query = " ".join([words[0][:at] + self.random.choice(ascii_lowercase) + words[0][at + 1 :], *words[1:]])
        elif kind == "passages":
            query, right = " ".join([*self.words(text[:PASSAGE], 2), *self.words(text[-PASSAGE:], 2)]), ""
            is_found_without = self.finds(query, id, self.whole)
        elif kind == "weights":
            options["weights"] = {"static-en": 1}
        elif kind == "copies":
            copies = [other.id for other in self.index.search(query, TOP_K) if other.id.startswith("copy")]
            right, is_found_without = "", len(copies) > TOP_K // 2
        is_found_without &= not right or self.finds(right, id)
        is_lost = asked_id != id or not self.finds(query, id, **options)
        return Case(kind, query, asked_id, options, id) if is_lost and is_found_without else None

    def results(self, kind: str) -> Iterator[tuple[bool, bool, bool, float]]:
        """Yield of failures of a kind whether the first cause is right, any is, the change works, and milliseconds."""
        while True:
            if case := self.draw(kind):
                start = time.process_time()
                causes = self.index.why_not(case.query, case.id, TOP_K, **case.options).causes
                spent, kinds = 1000 * (time.process_time() - start), [cause.kind in KINDS[kind] for cause in causes]
                yield kinds[:1] == [True], any(kinds), bool(causes) and self.works(case, causes[0]), spent

    def works(self, case: Case, cause: Cause) -> bool:
        """Return whether a search with the change of a cause finds the document."""
        if cause.kind == "absent":
            return self.finds(case.query, case.document) and cause.ids[:1] == (case.document,)
        if cause.kind == "copies":
            self.index.delete(cause.ids)
        index = self.whole if cause.kind == "passages" else self.index
        return self.finds(**{"query": case.query, "id": case.document, "index": index, **case.options, **cause.options})


def main() -> None:
    """Print the tables."""
    parser = make_parser(__doc__, data="raw_english")
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with lzma.open(arguments.data / "raw_english" / "open_licence.txt.xz", "rt", encoding="utf-8") as file:
        sentences = [line.strip() for line in islice(file, arguments.documents)]
    with tempfile.TemporaryDirectory() as folder:
        cases = Cases(sentences, Path(folder), arguments.seed)
        results = [list(islice(cases.results(kind), PER_KIND)) for kind in KINDS]  # those with copies come last
    print(f"{datetime.date.today()}, {len(cases.texts):,} documents\n")
    print("| failure | right | named | works | ms, median | ms, most |\n|---|---|---|---|---|---|")
    for kind, of_kind in [*zip(KINDS, results), ("all", list(chain(*results)))]:
        shares = " | ".join(f"{100 * statistics.mean(column):.0f} %" for column in list(zip(*of_kind))[:3])
        times = [result[3] for result in of_kind]
        print(f"| {kind} | {shares} | {statistics.median(times):.0f} | {max(times):.0f} |")


if __name__ == "__main__":
    main()
