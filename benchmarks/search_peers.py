"""What people would use for search today, each as its own documents show it: an index made, and its best ten asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from papers.retrieval_sets import Collection
from papers.vector_cache import Vectors
from pellucid.index.bm25 import impacts, query_weights
from pellucid.index.terms import Analyser

Ask = Callable[[str], dict[str, float]]
"""A query -> the ids of the best ten documents and their scores."""


def tantivy(collection: Collection, folder: Path, analyser: Any = None) -> Ask:
    """Index with tantivy, in memory, with its English stemmer and no stop words, or with another analyser."""
    import tantivy

    schema = tantivy.SchemaBuilder()
    schema.add_text_field("text", stored=False, tokenizer_name="en_stem" if analyser is None else "chosen")
    schema.add_integer_field("number", stored=True)
    index = tantivy.Index(schema.build())
    if analyser is not None:
        index.register_tokenizer("chosen", analyser)
    writer = index.writer(heap_size=50_000_000, num_threads=1)
    for number, text in enumerate(collection.documents):
        writer.add_document(tantivy.Document(text=text, number=number))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def ask(query: str) -> dict[str, float]:
        words = "".join(c if c.isalnum() else " " for c in query.lower())
        if not words.strip():
            return {}
        hits = searcher.search(index.parse_query(words, ["text"]), 10).hits
        return {collection.ids[searcher.doc(where)["number"][0]]: score for score, where in hits}

    return ask


def tantivy_with_stop_words(collection: Collection, folder: Path) -> Ask:
    """Index with tantivy as `tantivy` does, without the words of its English stop list."""
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    builder = TextAnalyzerBuilder(Tokenizer.simple()).filter(Filter.remove_long(40)).filter(Filter.lowercase())
    analyser = builder.filter(Filter.stopword("english")).filter(Filter.stemmer("english")).build()
    return tantivy(collection, folder, analyser)


def bm25s(collection: Collection, folder: Path) -> Ask:
    """Index with bm25s, its longer list of stop words and PyStemmer."""
    import bm25s
    import Stemmer

    words: dict[str, Any] = {"stopwords": "en_plus", "stemmer": Stemmer.Stemmer("english"), "show_progress": False}
    index = bm25s.BM25()
    index.index(bm25s.tokenize(collection.documents, **words), show_progress=False)

    def ask(query: str) -> dict[str, float]:
        found, scores = index.retrieve(bm25s.tokenize([query], **words), k=10, show_progress=False)
        return {collection.ids[n]: float(score) for n, score in zip(found[0].tolist(), scores[0].tolist())}

    return ask


def seismic(collection: Collection, folder: Path) -> Ask:
    """Index our BM25 as sparse vectors with Seismic, whose search is approximate; settings for about 1,000 postings."""
    from seismic import SeismicDataset, SeismicIndex

    analyser = Analyser()
    counts = [Counter(analyser.terms(text)) for text in collection.documents]
    having = Counter(term for own in counts for term in own)
    average = sum(sum(passage.values()) for passage in counts) / len(counts)
    dataset = SeismicDataset()
    for id, own in zip(collection.ids, counts):
        times = np.array(list(own.values()), np.float32)
        values = impacts(times, times.sum(), average).astype(np.float32)
        dataset.add_document(id, np.array(list(own), dtype="U100"), values)
    index = SeismicIndex.build_from_dataset(dataset, n_postings=1000, num_threads=1)

    def ask(query: str) -> dict[str, float]:
        weights = query_weights(analyser.query(query).weights, having, len(counts), 1.0)
        if not weights:
            return {}
        terms, values = np.array(list(weights), dtype="U100"), np.array(list(weights.values()), np.float32)
        found = index.search("q", terms, values, k=10, query_cut=10, heap_factor=0.8)
        return {id: score for _, score, id in found}

    return ask


def faiss(encode: Callable[[list[str]], Vectors], lists: int = 0) -> Callable[[Collection, Path], Ask]:
    """Return what indexes vectors with faiss: FlatIP, or IVF of so many lists of which 8 are searched."""

    def made(collection: Collection, folder: Path) -> Ask:
        import faiss

        rows = encode(collection.documents)
        index: Any = faiss.IndexFlatIP(rows.shape[1])
        if lists:
            index = faiss.IndexIVFFlat(index, rows.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
            index.train(rows)
            index.nprobe = 8
        index.add(rows)

        def ask(query: str) -> dict[str, float]:
            scores, found = index.search(np.ascontiguousarray(encode([query])), 10)
            return {collection.ids[n]: s for n, s in zip(found[0].tolist(), scores[0].tolist()) if n >= 0}

        return ask

    return made


def txtai(model: str) -> Callable[[Collection, Path], Ask]:
    """Return what indexes with txtai and a sentence transformer: its hybrid, weighted half and half as it is there."""

    def made(collection: Collection, folder: Path) -> Ask:
        from txtai import Embeddings

        index = Embeddings(path=model, hybrid=True, content=False, gpu=False)
        index.index(zip(collection.ids, collection.documents))
        return lambda query: dict(index.search(query, 10))

    return made


def chromadb(model: Any) -> Callable[[Collection, Path], Ask]:
    """Return what indexes with chromadb and a sentence transformer, by cosine; it has no hybrid on one machine."""

    def made(collection: Collection, folder: Path) -> Ask:
        import chromadb
        from chromadb.config import Settings

        client = chromadb.PersistentClient(str(folder), settings=Settings(anonymized_telemetry=False))
        index = client.create_collection("documents", embedding_function=None, metadata={"hnsw:space": "cosine"})
        for start in range(0, len(collection.ids), 1000):
            some = slice(start, start + 1000)
            rows = model.encode(collection.documents[some], show_progress_bar=False)
            index.add(ids=collection.ids[some], documents=collection.documents[some], embeddings=rows)

        def ask(query: str) -> dict[str, float]:
            found: Any = index.query(query_embeddings=model.encode([query]), n_results=10)
            return {own: 1 - distance for own, distance in zip(found["ids"][0], found["distances"][0])}

        return ask

    return made
