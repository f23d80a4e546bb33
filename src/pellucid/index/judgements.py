"""What people judged relevant to a query, in the folder of an index, in BEIR's format.

`pellucid index evaluate` reads it, and so does any other program that reads queries.jsonl and qrels.tsv.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pellucid.errors import InputError
from pellucid.evaluation.tasks import read_qrels, read_queries
from pellucid.persistence.store import locked, translate_os_errors, writing

FOLDER = "judgements"
_QUERIES, _QRELS = "queries.jsonl", "qrels.tsv"
_PATIENCE_S = 10.0


def read_judgements(index_folder: Path) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Return the judged queries by id, and by query the grade of each judged document."""
    folder = index_folder / FOLDER
    # Judgements are written after queries.
    return (read_queries(folder / _QUERIES), read_qrels(folder / _QRELS)) if (folder / _QRELS).is_file() else ({}, {})


def write_judgement(index_folder: Path, query: str, id: str, grade: int | None) -> int:
    """Add the grade of a document for a query, or replace it; None removes it. Return how many there are."""
    folder = index_folder / FOLDER
    if any(sign in id for sign in "\t\r\n"):
        raise InputError(f"the id {id!r:.80} has a tab or a line break, which the format of judgements cannot hold")
    with translate_os_errors(folder):
        folder.mkdir(exist_ok=True)
    with locked(folder, _PATIENCE_S):
        queries, grades = read_judgements(index_folder)
        query_id = hashlib.sha256(query.encode()).hexdigest()[:16]
        queries[query_id] = query
        other_grades = {document: n for document, n in grades.get(query_id, {}).items() if document != id}
        grades[query_id] = other_grades if grade is None else {**other_grades, id: grade}
        lines = (json.dumps({"_id": key, "text": text}) for key, text in queries.items())
        rows = (f"{key}\t{document}\t{n}" for key, judged in grades.items() for document, n in judged.items())
        for name, content in ((_QUERIES, lines), (_QRELS, ("query-id\tcorpus-id\tscore", *rows))):
            with writing(folder / name) as path:
                path.write_bytes("".join(f"{line}\n" for line in content).encode())
        return sum(map(len, grades.values()))
