"""Why did my vector database return this? `python examples/explain_vectors.py [ENCODER]`.

The vectors are in FAISS, Qdrant, Chroma or PostgreSQL with pgvector; reasons need the two texts and their vectors, and
no pass of the encoder. Each store is asked where its client is installed; PostgreSQL where PGVECTOR_URL names one.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable

import numpy as np

import pellucid

PASSAGES = [
    "To end your plan, open Settings and choose Unsubscribe.",
    "We accept credit cards, bank transfers and gift cards.",
    "A parcel takes two days within the country.",
]
QUESTION = "how do I cancel my subscription?"


def ask_faiss(vectors: np.ndarray, query: np.ndarray) -> tuple[int, np.ndarray]:
    """Return the number of the nearest passage, and its vector as FAISS keeps it."""
    import faiss

    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    _, ((best,),) = index.search(query[None], 1)
    return int(best), index.reconstruct(int(best))


def ask_qdrant(vectors: np.ndarray, query: np.ndarray) -> tuple[int, np.ndarray]:
    """The same of Qdrant."""
    from qdrant_client import QdrantClient
    from qdrant_client.models import Distance, PointStruct, VectorParams

    client = QdrantClient(":memory:")
    client.create_collection("help", VectorParams(size=vectors.shape[1], distance=Distance.COSINE))
    client.upsert("help", [PointStruct(id=number, vector=row.tolist()) for number, row in enumerate(vectors)])
    (best,) = client.query_points("help", query=query.tolist(), limit=1, with_vectors=True).points
    return int(best.id), np.array(best.vector, np.float32)


def ask_chroma(vectors: np.ndarray, query: np.ndarray) -> tuple[int, np.ndarray]:
    """The same of Chroma."""
    import chromadb

    collection = chromadb.EphemeralClient().create_collection("help", metadata={"hnsw:space": "cosine"})
    collection.add(ids=[str(number) for number in range(len(vectors))], embeddings=vectors.tolist())
    found = collection.query(query_embeddings=[query.tolist()], n_results=1, include=["embeddings"])
    return int(found["ids"][0][0]), np.array(found["embeddings"][0][0], np.float32)


def ask_pgvector(vectors: np.ndarray, query: np.ndarray) -> tuple[int, np.ndarray]:
    """The same of PostgreSQL."""
    import psycopg
    from pgvector.psycopg import register_vector

    with psycopg.connect(os.environ["PGVECTOR_URL"], autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        register_vector(connection)
        connection.execute(f"CREATE TEMPORARY TABLE help (id int, embedding vector({vectors.shape[1]}))")
        for number, row in enumerate(vectors):
            connection.execute("INSERT INTO help VALUES (%s, %s)", (number, row))
        nearest = "SELECT id, embedding FROM help ORDER BY embedding <=> %s LIMIT 1"
        best, vector = connection.execute(nearest, (query,)).fetchone()
    return int(best), np.asarray(vector, np.float32)


STORES: dict[str, Callable[[np.ndarray, np.ndarray], tuple[int, np.ndarray]]] = {
    "faiss": ask_faiss, "qdrant_client": ask_qdrant, "chromadb": ask_chroma, "pgvector": ask_pgvector,
}  # fmt: skip


def main() -> None:
    """Ask each store, and explain what it returned."""
    model = pellucid.load(sys.argv[1] if len(sys.argv) > 1 else "sentence-transformers/all-MiniLM-L6-v2")
    vectors, query = model.encode_document(PASSAGES), model.encode_query(QUESTION)
    for client, ask in STORES.items():
        if importlib.util.find_spec(client) is None or (client == "pgvector" and "PGVECTOR_URL" not in os.environ):
            print(f"{client} is not here: left out")
            continue
        best, vector = ask(vectors, query)
        why = model.explain_vectors(QUESTION, query, PASSAGES[best], vector)
        rows = ", ".join(f"{row.name} {row.contribution:+.3f}" for row in why.rows[:3])
        print(f"{client}: {PASSAGES[best]} {why.score:.3f} = {rows}, ... and a remainder of {why.remainder:+.3f}")


if __name__ == "__main__":
    main()
