"""An index whose documents live in a collection of Qdrant, for more of them than one machine holds.

A passage is a point: its text and metadata are the payload; the vector of each model, and the passage's half of BM25 as
a sparse vector, are named vectors. The server finds candidates for each part of the score. What every part adds to them
is computed here from what comes with them, so that each hit has its reasons.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

import numpy as np

from pellucid.errors import IndexFolderError, InputError, importing, shown
from pellucid.index.arrays import DocumentRows
from pellucid.index.bm25 import impacts
from pellucid.index.commits import Commit, IndexState
from pellucid.index.documents import (
    Document,
    batches,
    records_from_columns,
    validate_documents,
    validate_id,
    warn_left_out,
)
from pellucid.index.hits import Hits, ScoredPassage, hits_for
from pellucid.index.metadata import COLUMNS_PER_FIELD, column_kind, kind_of, parse_where, timestamp
from pellucid.index.models import model_labels, open_models, open_stored_models, store_models
from pellucid.index.parts import Bm25Query, PartQuery
from pellucid.index.plan import Snapshot
from pellucid.index.query import Conditions, SearchQuery, Synonyms, Weights
from pellucid.index.search import plan_of
from pellucid.index.segments import PostingsSpan
from pellucid.index.settings import BM25, check_analyser, check_stored, chosen_settings, settings_for
from pellucid.text.unicode import canonicalize

with importing("qdrant", "qdrant-client"):
    from qdrant_client import QdrantClient
    from qdrant_client import models as qdrant

MIN_CANDIDATES, CANDIDATES_PER_HIT = 100, 10
"""Passages that the server looks for, for each part of the score."""


class QdrantIndex:
    """A search index in a collection of a Qdrant server or cluster, for any number of clients.

    A new version of a document is there before the old one goes. How many passages have a term is counted for each
    search; the mean length of a passage, which is part of what is stored, is that of the first documents.
    """

    def __init__(self, client: QdrantClient | str, name: str, models: Mapping[str, Any] | None = None) -> None:
        """Open an index that `create` has made.

        Args:
            client: of the server, or its address; the key of its API is read from the environment, QDRANT_API_KEY.
            name: of the collection.
            models: name of a part -> model, instead of those that the index would open itself.

        Raises:
            IndexFolderError: there is no such collection, it is no index, or a model is not the one it was made with.
        """
        self.client, self.name, path = _client_of(client, name), name, Path(name)
        stored = None
        if self.client.collection_exists(name):
            stored = (self.client.get_collection(name).config.metadata or {}).get("pellucid")
        try:
            self._settings, self._average = dict(stored["settings"]), float(stored["average"])  # type: ignore[index]
            check_stored(self._settings)
        except (InputError, KeyError, TypeError, ValueError) as error:
            raise IndexFolderError(
                f"the collection {shown(name)} is not there, or holds no index. Make one: QdrantIndex.create"
            ) from error
        check_analyser(self._settings, path / "settings")
        opened = open_stored_models(path, self._settings["models"], models or {}, check=True)
        self._snapshot = Snapshot.from_commit(Commit(IndexState(self._settings), (), (0, 0, 0)), opened)

    @classmethod
    def create(
        cls, client: QdrantClient | str, name: str, models: Any = None, *, weights: Weights = None,
        language: str = "english", stop_words: Iterable[str] | None = None, passage_characters: int = 4000,
        shards: int = 1, replicas: int = 1,
    ) -> QdrantIndex:  # fmt: skip
        """Make an empty index; `models` and what follows are as in `Index.create`.

        Args:
            client: of the server, or its address.
            name: of a new collection.
            models: bundled names, or hub ids. A model that is given as an object is given again to open the index.
            weights: of the parts.
            language: of BM25's stemmer.
            stop_words: words that BM25 leaves out.
            passage_characters: of a passage, at most.
            shards: into how many the collection is divided.
            replicas: on how many nodes each of these lies.

        Raises:
            InputError: there is such a collection, or an argument has a value that cannot be used.
        """
        chosen = chosen_settings(language, stop_words, passage_characters, weights)
        client, opened = _client_of(client, name), open_models(models)
        if client.collection_exists(name):
            raise InputError(f"the collection {shown(name)} exists; open it: QdrantIndex(client, {shown(name)})")
        if several := [part for part, model in opened.items() if model.encoder.family == "multi-vector"]:
            raise InputError(f"{shown(several[0])} has a vector for each token, which only an index on disk has: Index")
        settings = settings_for(chosen, opened)
        settings["models"] = store_models(None, opened)
        dense = {part: model.dimension for part, model in opened.items() if not model.is_sparse}
        sparse = [BM25, *(part for part, model in opened.items() if model.is_sparse)]
        client.create_collection(
            name,
            {part: qdrant.VectorParams(size=size, distance=qdrant.Distance.DOT) for part, size in dense.items()},
            {part: qdrant.SparseVectorParams() for part in sparse},
            shard_number=shards,
            replication_factor=replicas,
            metadata={"pellucid": {"settings": settings, "average": 0.0}},
        )
        for key in ("id", "terms"):  # which conditions name
            client.create_payload_index(name, key, qdrant.PayloadSchemaType.KEYWORD)
        return cls(client, name, {part: model.encoder for part, model in opened.items()})

    def __len__(self) -> int:
        """Return the number of documents."""
        return self._count(qdrant.FieldCondition(key="passage", match=qdrant.MatchValue(value=0)))

    def _count(self, *conditions: Any) -> int:
        """Return the number of passages that meet conditions."""
        return int(self.client.count(self.name, qdrant.Filter(must=list(conditions)) if conditions else None).count)

    def add(
        self,
        texts: Iterable[str],
        *,
        ids: Iterable[str | int] | None = None,
        titles: Iterable[str | None] | None = None,
        metadata: Iterable[Mapping[str, Any] | None] | None = None,
    ) -> int:
        """Add documents; one whose id is there is replaced. Arguments and errors are those of `Index.add`.

        Blocks of 1,000 are sent together; after an error, those before it are there.

        Returns:
            how many were added or replaced.
        """
        left_out: dict[str, str] = {}
        records = records_from_columns(texts, ids, titles, metadata, left_out)
        count = 0
        for block in batches(validate_documents(records, self._settings["passage_characters"])):
            self._store(block)
            count += len(block)
        warn_left_out(left_out, "metadata")
        return count

    def _average_length(self, lengths: Sequence[int] = ()) -> float:
        """Return the mean number of terms of a passage; the first documents set it."""
        if not self._average:  # else it is fixed
            stored = self.client.get_collection(self.name).config.metadata["pellucid"]
            self._average = float(stored["average"]) or sum(lengths) / max(len(lengths), 1)
            if lengths:
                self.client.update_collection(self.name, metadata={"pellucid": {**stored, "average": self._average}})
        return self._average

    def _store(self, documents: Sequence[Document]) -> None:
        """Send documents, and remove what was there under their ids."""
        texts = list(chain.from_iterable(document.passages() for document in documents))
        counts = [Counter(self._snapshot.words.analyser.terms(text)) for text in texts]
        lengths = [of_text.total() for of_text in counts]
        rows = {name: model.document_rows(texts) for name, model in self._snapshot.models.items()}
        points, number, average = list[Any](), 0, self._average_length(lengths)
        for document in documents:
            fields = _fields(document.metadata)
            for passage in range(len(document.ends)):
                terms = list(counts[number])
                halves = impacts(np.array(list(counts[number].values())), lengths[number], average)
                vectors = {BM25: _sparse([_number_of(term) for term in terms], halves)} if terms else {}
                for name, of_model in rows.items():
                    row = of_model[number]
                    vectors |= {name: _sparse(row.indices, row.data) if hasattr(row, "tocsr") else row.tolist()}
                payload = {
                    "id": document.id, "title": document.title, "text": document.text, "ends": list(document.ends),
                    "passage": passage, "length": lengths[number], "terms": terms, "metadata": document.metadata,
                    "fields": fields,
                }  # fmt: skip
                points.append(qdrant.PointStruct(id=uuid4().hex, vector=vectors, payload=payload))
                number += 1
        there = _with_ids(document.id for document in documents)
        before, _ = self.client.scroll(
            self.name, qdrant.Filter(must=[there]), limit=max(1, self._count(there)), with_payload=False
        )
        self.client.upload_points(self.name, points, wait=True)
        if before:  # what another client adds at the same time is not removed
            self.client.delete(self.name, [point.id for point in before], wait=True)

    def delete(self, ids: str | int | Iterable[str | int]) -> None:
        """Remove documents by their ids; those that are not there are passed over."""
        items = [ids] if isinstance(ids, (str, bytes, int)) or not isinstance(ids, Iterable) else ids
        there = _with_ids(validate_id(document_id, "an id") for document_id in items)
        self.client.delete(self.name, qdrant.FilterSelector(filter=qdrant.Filter(must=[there])), wait=True)

    def search(
        self, query: str, top_k: int = 10, *, offset: int = 0, where: Conditions = None, weights: Weights = None,
        word_weights: Weights = None, steer: Weights = None, synonyms: Synonyms = None, min_score: float | None = None,
        exact: bool = False,
    ) -> Hits:  # fmt: skip
        """Return the documents with the highest scores of those that the server finds for a part; see `Index.search`.

        `hits.exact` says whether no other document can have a higher score.

        Args:
            query: a text.
            top_k: how many.
            offset: how many of the best to leave out.
            where: conditions on the metadata.
            weights: of the parts for this search.
            word_weights: what words of the query count.
            steer: texts that the query is moved away from or to.
            synonyms: what words of the query also stand for in BM25.
            min_score: the lowest score of a hit.
            exact: multiply the query with every vector; else the server looks for near ones through a graph.

        Raises:
            InputError: an argument has a value that cannot be used.
        """
        request = SearchQuery(query, top_k, offset, where, weights, word_weights, steer, synonyms, min_score=min_score)
        conditions = _filter_for(where)
        passages, n_passages = _FoundPassages(self), self._count()
        state = IndexState(
            self._settings, documents=len(self), passages=n_passages, terms=self._average_length() * n_passages,  # type: ignore[arg-type]
        )  # fmt: skip
        plan = plan_of(self._snapshot._replace(commit=Commit(state, (passages,), (0, 0, 0))), request)  # type: ignore[arg-type]
        n_candidates = max(MIN_CANDIDATES, CANDIDATES_PER_HIT * (top_k + offset))
        asked_of = {name: _query_for(asked_part) for name, asked_part in plan.parts.items()}
        requests = [
            qdrant.QueryRequest(
                query=vector.tolist() if isinstance(vector, np.ndarray) else vector,
                using=name, limit=n_candidates, filter=conditions, with_payload=True, with_vector=True,
                params=qdrant.SearchParams(exact=True) if exact else None,
            )
            for name, vector in asked_of.items()
        ]  # fmt: skip
        answers = self.client.query_batch_points(self.name, requests) if requests else []
        passages.points = list({point.id: point for answer in answers for point in answer.points}.values())
        best = self._best_passages(passages.points, asked_of, list(plan.weights))[: top_k + offset]
        # What the last candidate of each part has, no passage that was not sent can surpass.
        most = sum(a.points[-1].score for a in answers if len(a.points) == n_candidates)
        is_proven = all(len(answer.points) < n_candidates for answer in answers) or (
            len(best) == top_k + offset and best[-1][0] >= most
        )
        hits = hits_for(plan, [item for score, item in best if min_score is None or score >= min_score][offset:])
        is_exact = is_proven and (exact or not any(isinstance(vector, np.ndarray) for vector in asked_of.values()))
        return Hits(
            plan.query, state.documents, dict(plan.shares), tuple(hits), is_exact, plan.unknown, plan.ignored,
            has_known_words=bool(plan.parts), offset=offset, models=model_labels(self._settings),
            _plan=replace(plan, unknown=()),  # of an unknown word, hundreds of terms would be counted to suggest one
        )  # fmt: skip

    def why_not(self, query: str, id: str | int, top_k: int = 10) -> NoReturn:
        """Refuse: a server ranks its candidates alone."""
        raise InputError("why_not ranks all documents, which Qdrant does not; use an index on disk: pellucid.Index")

    @staticmethod
    def _best_passages(
        points: Sequence[Any], asked_of: Mapping[str, Any], names: Sequence[str]
    ) -> list[tuple[float, ScoredPassage]]:
        """Return the best passage of each document that shares anything with the query, best first, with its score."""
        best: dict[str, tuple[float, ScoredPassage]] = {}
        for row, point in enumerate(points):
            parts = dict.fromkeys(names, 0.0)
            parts |= {name: _product(vector, point.vector.get(name)) for name, vector in asked_of.items()}
            score, document_id = sum(parts.values()), point.payload["id"]
            if any(parts.values()) and (document_id not in best or score > best[document_id][0]):
                best[document_id] = score, ScoredPassage(0, row, row, parts)
        return sorted(best.values(), key=lambda item: (-item[0], points[item[1].row].payload["id"]))


class _FoundPassages:
    """The passages that a search was sent, read as a segment that holds no others; the server counts terms."""

    name = "the collection"

    def __init__(self, index: QdrantIndex) -> None:
        self._index, self.points = index, list[Any]()

    def postings_spans(self, terms: Iterable[str]) -> dict[str, PostingsSpan]:
        """Return how many passages have each term."""
        conditions = {term: qdrant.FieldCondition(key="terms", match=qdrant.MatchValue(value=term)) for term in terms}
        return {term: PostingsSpan(0, 0, self._index._count(condition)) for term, condition in conditions.items()}

    @property
    def lengths(self) -> Any:
        """The number of terms of each passage."""
        return np.array([point.payload["length"] for point in self.points], np.int64)

    def document_id(self, row: int) -> str:
        """Return the id of the document of a passage."""
        return str(self.points[row].payload["id"])

    def document(self, row: int) -> Document:
        """Return the document of a passage."""
        payload = self.points[row].payload
        return Document(
            0, payload["id"], payload["title"], payload["text"], payload["metadata"], tuple(payload["ends"])
        )

    def first_passage(self, row: int) -> int:
        """Return the number that the first passage of a document has, counted from that of a passage of it."""
        return row - int(self.points[row].payload["passage"])

    def rows(self, name: str, dimension: int, passages: Any) -> DocumentRows:
        """Return the stored rows of a model, zeros for none."""
        rows = np.zeros((len(passages), dimension), np.float32)
        for row, passage in zip(rows, passages.tolist()):
            if (stored := self.points[passage].vector.get(name)) is not None:
                row[getattr(stored, "indices", slice(None))] = getattr(stored, "values", stored)
        if not self._index._snapshot.models[name].is_sparse:
            return rows
        from scipy.sparse import csr_matrix

        return csr_matrix(rows)


def _client_of(client: QdrantClient | str, name: str) -> QdrantClient:
    if not isinstance(name, str) or not name:
        raise InputError(f"the collection is called {shown(name)}; give a name, such as 'articles'")
    return QdrantClient(url=client, api_key=os.environ.get("QDRANT_API_KEY")) if isinstance(client, str) else client


def _with_ids(ids: Iterable[str]) -> Any:
    """Return the condition that a passage is of one of some documents."""
    return qdrant.FieldCondition(key="id", match=qdrant.MatchAny(any=list(ids)))


def _sparse(numbers: Any, values: Any) -> Any:
    return qdrant.SparseVector(indices=np.asarray(numbers).tolist(), values=np.asarray(values, np.float64).tolist())


def _query_for(part_query: PartQuery) -> Any:
    """Return what a part asks of the server: a row, or a sparse vector."""
    if isinstance(part_query, Bm25Query):
        return _sparse(list(map(_number_of, part_query.weights)), list(part_query.weights.values()))
    return part_query.vector if part_query.is_dense else _sparse(part_query.vector.indices, part_query.vector.data)


def _number_of(term: str) -> int:
    """Return the coordinate of a term in the sparse vectors of BM25."""
    return int.from_bytes(blake2b(term.encode(), digest_size=4).digest(), "big")


def _product(vector: Any, stored: Any) -> float:
    """Return the product of a query's vector and a stored one, which may be missing."""
    if stored is None:
        return 0.0
    if isinstance(vector, np.ndarray):
        return float(np.asarray(vector, np.float64) @ np.asarray(stored, np.float64))
    values = dict(zip(stored.indices, stored.values))
    return float(sum(values.get(number, 0.0) * value for number, value in zip(vector.indices, vector.values)))


def _key(field: str) -> str:
    """Return a key of the payload for a field of the metadata, whose name may have dots and quotation marks."""
    return field.encode().hex()


def _fields(metadata: Mapping[str, Any]) -> dict[str, dict[str, list[Any]]]:
    """Return metadata as conditions compare them: by field and kind, dates as moments among the strings as well."""
    fields: dict[str, dict[str, list[Any]]] = {}
    for name, value in metadata.items():
        of_field = fields.setdefault(_key(name), {})
        for item in value if isinstance(value, list) else [value]:
            kind = kind_of(item)
            if kind == "d":
                of_field.setdefault("d", []).append(timestamp(item))
            of_field.setdefault(kind.replace("d", "s"), []).append(item if kind != "n" else float(item))
    return fields


def _filter_for(where: Conditions) -> Any:
    """Return conditions as the server reads them."""
    alternatives: Any = where if isinstance(where, Sequence) else [where]
    named = chain.from_iterable(alternative for alternative in alternatives if isinstance(alternative, Mapping))
    names = list(dict.fromkeys(canonicalize(name) for name in named if isinstance(name, str)))
    alternatives = parse_where(where, {name: (number, "ndsb") for number, name in enumerate(names)})
    filters = [
        qdrant.Filter(**{
            key: [
                qdrant.Filter(should=[_condition(names, condition) for condition in test.any_of])
                for test in tests
                if test.negated == (key == "must_not")
            ]
            for key in ("must", "must_not")
        })
        for tests in alternatives
    ]  # fmt: skip
    return qdrant.Filter(should=filters) if filters else None


def _condition(names: Sequence[str], condition: Any) -> Any:
    """Return a condition on a field of the payload."""
    kind = "d" if condition.operator == "dates" else column_kind(condition.column)
    key = f"fields.{_key(names[condition.column // COLUMNS_PER_FIELD])}.{kind}"
    if condition.operator == "exists":
        return qdrant.Filter(must_not=[qdrant.IsEmptyCondition(is_empty=qdrant.PayloadField(key=key))])
    if kind == "s":
        return qdrant.FieldCondition(key=key, match=qdrant.MatchAny(any=list(condition.values)))
    if kind == "b":
        return qdrant.Filter(
            should=[
                qdrant.FieldCondition(key=key, match=qdrant.MatchValue(value=v == "true")) for v in condition.values
            ]
        )
    intervals = (
        condition.values if condition.operator != "in" else [(v, math.nextafter(v, math.inf)) for v in condition.values]
    )
    ranges = [
        qdrant.Range(gte=start if start > -math.inf else None, lt=end if end < math.inf else None)
        for start, end in intervals
    ]
    return qdrant.Filter(should=[qdrant.FieldCondition(key=key, range=interval) for interval in ranges])
