"""Vectors of FAISS, Qdrant, Chroma and pgvector, explained: `python examples/explain_vectors.py [MODEL]`.

The store finds the texts; what it keeps, the texts and the encoder's vectors, is all that reasons need. The encoder
reads the question, and nothing else again. A section whose library or server is not there is left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import pellucid

QUESTION = "Why are home loans more expensive this year?"
TEXTS = [
    "The central bank raised interest rates, and mortgages cost more.",
    "The home team played its best match of the year.",
    "Expensive restaurants are opening near the river bank.",
]

Stored = tuple[str, Any]
"""A text as a store keeps it, and its vector."""


def in_faiss(vectors: Any, question: Any) -> Stored:
    """FAISS: the index gives a vector back by its number."""
    import faiss

    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    number = int(index.search(question[None], 1)[1][0, 0])
    return TEXTS[number], index.reconstruct(number)


def in_qdrant(vectors: Any, question: Any) -> Stored:
    """Qdrant: `with_vectors=True` sends the vectors along."""
    from qdrant_client import QdrantClient, models

    client = QdrantClient(":memory:")
    client.create_collection("texts", models.VectorParams(size=vectors.shape[1], distance=models.Distance.COSINE))
    payloads = [{"text": text} for text in TEXTS]
    client.upsert("texts", models.Batch(ids=[*range(len(TEXTS))], vectors=vectors.tolist(), payloads=payloads))
    (found,) = client.query_points("texts", question.tolist(), limit=1, with_vectors=True, with_payload=True).points
    return found.payload["text"], found.vector


def in_chroma(vectors: Any, question: Any) -> Stored:
    """Chroma: ask for "embeddings" and "documents"."""
    import chromadb

    texts = chromadb.EphemeralClient().get_or_create_collection("texts", metadata={"hnsw:space": "cosine"})
    texts.upsert(ids=[str(n) for n in range(len(TEXTS))], documents=TEXTS, embeddings=vectors.tolist())
    found = texts.query([question.tolist()], n_results=1, include=["documents", "embeddings"])
    return found["documents"][0][0], found["embeddings"][0][0]


def in_pgvector(vectors: Any, question: Any) -> Stored:
    """The extension pgvector of PostgreSQL: select the text and the vector; $PGVECTOR_URL names the server."""
    import psycopg

    as_sql = [f"[{','.join(map(str, row))}]" for row in (*vectors.tolist(), question.tolist())]
    with psycopg.connect(os.environ["PGVECTOR_URL"]) as server:
        server.execute("CREATE EXTENSION IF NOT EXISTS vector")
        server.execute(f"CREATE TEMPORARY TABLE texts (text text, embedding vector({vectors.shape[1]}))")
        for row in zip(TEXTS, as_sql):
            server.execute("INSERT INTO texts VALUES (%s, %s)", row)
        nearest = "SELECT text, embedding FROM texts ORDER BY embedding <=> %s LIMIT 1"
        text, vector = server.execute(nearest, as_sql[-1:]).fetchone() or ("", "")
        return text, np.fromstring(vector.strip("[]"), np.float32, sep=",")


STORES: dict[str, Callable[[Any, Any], Stored]] = {
    "FAISS": in_faiss,
    "Qdrant": in_qdrant,
    "Chroma": in_chroma,
    "pgvector": in_pgvector,
}


def main(encoder: Any = "sentence-transformers/all-MiniLM-L6-v2") -> None:
    """Put the texts into each store, let it find the best one, and say why it is."""
    model = pellucid.load(encoder)
    vectors, question = model.encode_document(TEXTS), model.encode_query(QUESTION)
    for name, best_of in STORES.items():
        try:
            text, vector = best_of(vectors, question)
        except (ImportError, KeyError) as missing:
            print(f"{name}: left out, {missing} is missing")
            continue
        print(f"\n{name}\n{model.explain_vectors(QUESTION, question, text, vector).to_text(top_k=4)}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
