"""AIR-Bench, of which MTEB has no task: a set as it is published, written as `evaluate` reads retrieval sets.

python -m papers.lens.air_bench PUBLISHED DATA/retrieval/AIR-Bench_qa_wiki_en

corpus.jsonl          id, text
dev_queries.jsonl     id, text
dev_qrels.jsonl       qid, docid, relevance
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pellucid.evaluation.tasks import read_records


def convert(published: Path, folder: Path) -> None:
    """Write the set in folder `published` with the names of files and fields of other sets.

    Raises:
        InputError: a line lacks a field.
        CorpusError: a file is absent, damaged or not JSON.
    """
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, source in (("corpus.jsonl", "corpus.jsonl"), ("queries.jsonl", "dev_queries.jsonl")):
        with open(folder / name, "w", encoding="utf-8") as file:
            for record in read_records(published / source, ["id", "text"]):
                file.write(json.dumps({"_id": record["id"], "text": record["text"]}) + "\n")
    with open(folder / "qrels" / "test.tsv", "w", encoding="utf-8") as file:
        file.write("query-id\tcorpus-id\tscore\n")
        for record in read_records(published / "dev_qrels.jsonl", ["qid", "docid", "relevance"]):
            file.write(f"{record['qid']}\t{record['docid']}\t{record['relevance']}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("published", type=Path, help="the folder with the three files")
    parser.add_argument("folder", type=Path, help="where the set is written")
    given = parser.parse_args()
    convert(given.published, given.folder)
