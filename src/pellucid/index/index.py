"""`Index`: documents on disk, found by their words and by what they mean, and for every hit the reason.

    score(query, passage) = w_bm25 BM25 / (the most that the query can reach) + sum over models of w_model cosine

with weights that add up to 1. It is a sum over terms, pairs of words or dimensions, needs no other hit, and compares
across queries. A document's score is that of its best passage.

How it lies on disk: `documents.py` holds the texts and is the one commit point, `engine.py` the vectors.
"""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pellucid.errors import VERSION, EngineError, InputError, WritingError
from pellucid.index.bm25 import Analyser, each_once, total
from pellucid.index.documents import (
    FORMAT,
    PASSAGE_BITS,
    Document,
    Documents,
    State,
    batch_of,
    check_format,
    check_space,
    drafts,
    size_on_disk,
)
from pellucid.index.engine import (
    Edge,
    Engine,
    EngineSettings,
    Generation,
    chosen_engine,
    engine_of,
    written_engine,
)
from pellucid.index.hits import Hit, Hits
from pellucid.index.metadata import parse_where, register
from pellucid.index.models import (
    BM25,
    Model,
    Weights,
    check_settings,
    checked_weights,
    checked_word_weights,
    default_weights,
    kinds,
    open_models,
    opened_models,
    settings_with,
    written_models,
)
from pellucid.index.searching import Parts, Question
from pellucid.index.verifying import document_vectors, fill, points, recounted, stored_vectors, wrong_parts
from pellucid.index.words import Words
from pellucid.progress import Progress
from pellucid.static.embedder import StaticEmbedder
from pellucid.store import write_json
from pellucid.text import well_formed

if TYPE_CHECKING:
    from typing_extensions import Self

_DRIFT = 1.1  # the mean length of a passage may change so much before the stored impacts are computed anew
_RENEWED = 0.1  # and only once this share of the passages is new or gone: all renewals together cost O(changes)
_SAMPLE = 500  # documents of a list that the first mean length is taken from
_LEAST_FREE = 64 << 20  # bytes of the disk: the engine maps its files, and a full disk would end the process


class Index:
    """Documents that can be searched, in a folder; one process at a time, any number of threads."""

    def __init__(self, folder: Path, documents: Documents, models: dict[str, Model], engines: EngineSettings) -> None:
        """Take what `create` and `open` have opened; they give the engine afterwards."""
        self.folder, self._documents, self._models, self._engines = folder, documents, models, engines
        self._open_engine: Engine | None = None
        self._behind = False  # whether documents that are gone still have to go from the engine
        self._writing = threading.RLock()
        self._set_up()

    def _set_up(self) -> None:
        settings = self._documents.state.settings
        self._analyser = Analyser(settings["language"], settings["stop_words"])
        self._words = self._new_words()

    def _new_words(self) -> Words:
        models = {name: model.encoder for name, model in self._models.items()}
        return Words(self._analyser, {n: model for n, model in models.items() if isinstance(model, StaticEmbedder)})

    @classmethod
    def create(
        cls,
        path: str | Path,
        models: Mapping[str, Any] | Sequence[Any] | Any | None = None,
        *,
        bm25: bool = True,
        weights: Mapping[str, float] | None = None,
        language: str = "english",
        stop_words: Iterable[str] | None = None,
        passage_characters: int = 4000,
        engine: EngineSettings | None = None,
    ) -> Self:
        """Make an empty index.

        Args:
            path: a folder that is empty or not there yet.
            models: name -> model: a bundled name, folder or hub id, a pellucid model, a SentenceTransformer, or a
                function from a list of texts to vectors, which has to be given again at each opening. One model, or a
                list, get names of their own; None is static-en; {} none.
            bm25: whether BM25 is a part of the score.
            weights: of the parts, "bm25" among them, brought to the sum 1; None gives the models together 0.3 where
                all are static and else 0.4, in equal shares, and BM25 the rest.
            language: of BM25's stemmer, as "german"; "none" does not stem.
            stop_words: words that BM25 leaves out; None takes the list for English, none for other languages.
            passage_characters: longer texts are cut into passages of at most so many characters.
            engine: where the vectors lie: one of `pellucid.engines`; None is this process and the index's folder.

        Raises:
            InputError: something is in the folder, or an argument has a value that cannot be used.
            MissingExtraError: what `pellucid[search]` brings is not installed.
        """
        folder = Path(path)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} exists and is not empty; open it with Index.open, or give a new name")
        if not isinstance(passage_characters, int) or passage_characters < 100:
            raise InputError(f"passage_characters is {passage_characters!r:.40}; it must be an integer from 100 up")
        opened = open_models(models)
        engines = engine or Edge()
        analyser = Analyser(language, stop_words)  # refuses what is wrong
        stops = None if stop_words is None else sorted({word.lower() for word in stop_words})
        settings = {
            "bm25": bool(bm25), "language": language, "stop_words": stops, "passage_characters": passage_characters,
            "weights": checked_weights(weights, [BM25] * bool(bm25) + list(opened), default_weights(opened, bm25)),
            "engine": written_engine(engines), "analyser": analyser.fingerprint,
        }  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        try:
            settings["models"] = written_models(folder, opened, "models-1")
            state = State(settings)
            opened_engine = engines.create(Generation(folder, state.engine, *kinds(opened, bm25)))
            index = cls(folder, Documents(folder / "documents.sqlite", state), opened, engines)
            index._open_engine = opened_engine
            write_json(folder / "index.json", {"pellucid-index": {"format": FORMAT, "version": VERSION}})
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return index

    @classmethod
    def open(
        cls,
        path: str | Path,
        models: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        engine: EngineSettings | None = None,
        rebuild: bool = False,
    ) -> Self:
        """Open an index, and finish or undo what a crash has interrupted.

        Args:
            path: the folder.
            models: name -> model, in the place of those the index would open itself.
            engine: other settings of its engine, such as a new address, for this time; with `rebuild` also another
                engine, to which the index moves.
            rebuild: make all vectors anew from the stored texts; with `models`, for these, as in `create`.

        Raises:
            EngineError: its engine cannot be reached.
            IndexFolderError: it is no index, of a newer version, broken, open in another process, or a model is
                another one than it was made with.
        """
        folder = Path(path)
        check_format(folder)
        documents = Documents(folder / "documents.sqlite")
        try:
            state = documents.state
            if not rebuild:
                check_settings(state.settings, documents.path)
            if rebuild and models is not None:
                opened = open_models(models)
            else:
                given = {} if models is None else models
                if not isinstance(given, Mapping):
                    raise InputError(f"models are {given!r:.60}; give a dict: name of the part -> model")
                opened = opened_models(folder, state.settings["models"], given, check=not rebuild)
            index = cls(folder, documents, opened, chosen_engine(engine, state.settings, other=rebuild))
            if rebuild:
                index._renew(reuse=False)
            else:
                generation = Generation(folder, state.engine, *kinds(opened, state.settings["bm25"]))
                index._open_engine = index._engines.open(generation)
                index._repair()
            index._sweep()
        except BaseException:
            documents.close()
            raise
        return index

    def close(self) -> None:
        """Release the folder; what was added is on disk already."""
        with self._writing:
            engine, self._open_engine = self._open_engine, None
            try:
                if engine is not None:
                    engine.close()
            finally:
                self._documents.close()

    def __enter__(self) -> Self:
        """Return the index; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    @property
    def _engine(self) -> Engine:
        if self._open_engine is None:
            raise InputError(f"the index {self.folder} is closed; open it again: pellucid.Index.open")
        return self._open_engine

    def _check_open(self) -> None:
        _ = self._engine

    @property
    def weights(self) -> dict[str, float]:
        """What each part of the score counts, unless a search says otherwise; they add up to 1."""
        return dict(self._documents.state.settings["weights"])

    @property
    def word_weights(self) -> dict[str, float]:
        """What single words of a query count, unless a search says otherwise; words that are not here count 1."""
        return dict(self._documents.state.settings.get("word_weights", {}))

    def __len__(self) -> int:
        """Return the number of documents."""
        return self._documents.state.documents

    def __contains__(self, id: object) -> bool:
        """Whether there is a document of this id."""
        self._check_open()
        return isinstance(id, str) and bool(self._documents.by_id([id]))

    def __getitem__(self, id: str) -> Document:
        """Return a document by its id.

        Raises:
            InputError: there is none.
        """
        self._check_open()
        found = self._documents.by_id([id]) if isinstance(id, str) else []
        if not found:
            raise InputError(f"no document {id!r:.80} is in the index")
        return found[0]

    def __iter__(self) -> Iterator[Document]:
        """Yield every document, in the order of adding."""
        self._check_open()
        for block in self._documents.all():
            yield from block

    def __repr__(self) -> str:
        """Return one short line."""
        return f"<Index {self.folder}: {len(self):,} documents, {' + '.join(self.weights)}>"

    def add(
        self,
        ids: Iterable[str],
        texts: Iterable[str],
        *,
        titles: Iterable[str | None] | None = None,
        metadata: Iterable[Mapping[str, Any] | None] | None = None,
        show_progress_bar: bool = False,
    ) -> int:
        """Add documents; one whose id is there is replaced.

        They are committed in batches of at most 1,000: after a crash a batch is there whole or not at all, and all are
        there when this returns. A list that cannot be added is refused before anything is stored; of an iterator, what
        came in batches before the error stays.

        Args:
            ids: any strings, each once.
            texts: as many. Long ones are cut into passages, at the ends of paragraphs or sentences where possible.
            titles: as many, or None for none. A title is part of each passage.
            metadata: as many dicts of strings, numbers, booleans, or lists of such; for `where`.
            show_progress_bar: show a bar, counting documents, once the work has lasted two seconds.

        Returns:
            how many were added.

        Raises:
            InputError: an item is of the wrong kind or there are not equally many, an id occurs twice, a document is
                too long, or a model gives NaN.
            WritingError: the disk is full; what was committed is safe.
        """
        columns = (ids, texts, titles, metadata)
        checked = drafts(*columns, self._documents.state.settings["passage_characters"])
        count, average = 0, 0.0
        with self._writing, Progress("indexing", unit="documents", enabled=show_progress_bar) as progress:
            self._check_open()
            if all(column is None or isinstance(column, Sequence) for column in columns):
                every = list(checked)  # all of it is checked before any is stored
                average, checked = self._first_average(every), iter(every)
            while batch := batch_of(checked):
                self._commit(batch, self._documents.by_id([document.id for document in batch]), average)
                count += len(batch)
                progress.advance(len(batch))
            self._settle()
        return count

    def update(
        self,
        id: str,
        *,
        text: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Change a document; what is not given stays as it is.

        Raises:
            InputError: there is no such document, or a value is of the wrong kind.
        """
        with self._writing:
            old = self[id]
            self.add(
                [id],
                [old.text if text is None else text],
                titles=[old.title if title is None else title],
                metadata=[old.metadata if metadata is None else metadata],
            )

    def delete(self, ids: str | Iterable[str], *, missing_ok: bool = False) -> int:
        """Remove documents by their ids, all in one commit; return how many.

        Raises:
            InputError: one is not there, and `missing_ok` is off; nothing is removed then.
        """
        wanted = [ids] if isinstance(ids, str) else list(dict.fromkeys(ids))
        with self._writing:
            self._check_open()
            found = self._documents.by_id(wanted)
            absent = set(wanted) - {document.id for document in found}
            if absent and not missing_ok:
                raise InputError(f"no document {min(absent)!r:.80} is in the index; nothing was removed")
            if found:
                self._commit([], found)
                self._settle()
        return len(found)

    def configure(self, *, weights: Weights = None, word_weights: Weights = None) -> None:
        """Change what searches count when they do not say it themselves; no vector is made anew.

        Args:
            weights: of the parts, as in `create`.
            word_weights: of words of the query, as in `search`; {} lets all count 1.

        Raises:
            InputError: one cannot be used; nothing is changed then.
        """
        with self._writing:
            self._check_open()
            settings = dict(self._documents.state.settings)
            settings["weights"] = checked_weights(weights, list(self.weights), self.weights)
            settings["word_weights"] = dict(checked_word_weights(word_weights, self.word_weights))
            with self._documents.commit(replace(self._documents.state, settings=settings)):
                pass

    def _first_average(self, documents: Sequence[Document]) -> float:
        """Return the mean length of a passage of a sample of documents, spread over all of them."""
        counts = self._term_counts(documents[:: max(1, len(documents) // _SAMPLE)])
        return total(counts) / len(counts) if counts else 0.0

    def _commit(self, drafts: list[Document], old: list[Document], average: float = 0.0) -> None:
        """Make `drafts` visible and `old` gone, both or neither; `average` holds for an index that has none yet."""
        check_space(self.folder, _LEAST_FREE)
        state = self._documents.state
        first = self._documents.next_number()
        new = [draft._replace(number=first + n) for n, draft in enumerate(drafts)]
        counts, gone = self._term_counts(new), self._term_counts(old)
        fields = dict(state.fields)
        keys = [key for document in new for key in register(document.metadata, fields)]
        after = replace(
            state,
            fields=fields,
            documents=state.documents + len(new) - len(old),
            passages=state.passages + sum(len(d.ends) for d in new) - sum(len(d.ends) for d in old),
            terms=state.terms + total(counts) - total(gone),
        )
        after.average = state.average or average or after.mean_length
        after.changed += sum(len(document.ends) for document in (*new, *old))
        made = points(self._documents, new, counts, after, document_vectors(self._models, new))
        try:
            if self._behind:
                self._engine.delete(self._documents.garbage())
            for key in keys:
                self._engine.index_payload(key)
            self._engine.put(made)
            self._engine.flush()
            change = Counter(each_once(counts))
            change.subtract(each_once(gone))
            with self._documents.commit(after):
                self._documents.replace(new, old, change)
        except BaseException:
            self._behind = True
            with suppress(Exception):
                self._documents.skip(new)
                self._engine.delete(point for document in new for point in document.points())
            raise
        self._behind = True  # until they are gone: the change is made whether or not the engine answers now
        with suppress(EngineError):
            self._engine.delete(point for document in old for point in document.points())
            self._behind = False

    def _term_counts(self, documents: Iterable[Document]) -> list[Counter[str]]:
        """Return for each passage how often each term stands in it; nothing without BM25."""
        if not self._documents.state.settings["bm25"]:
            return []
        return [Counter(self._analyser.terms(text)) for document in documents for text in document.passages()]

    def _settle(self) -> None:
        """After a change: compute the impacts anew if the mean length has moved far, and let the engine tidy up."""
        state = self._documents.state
        with suppress(EngineError):
            self._engine.optimize()
        moved = state.average and not 1 / _DRIFT < state.mean_length / state.average < _DRIFT
        if state.passages and moved and state.changed >= _RENEWED * state.passages:
            with suppress(WritingError, EngineError):  # the documents are stored; the next change tries again
                self._renew(reuse=True)

    def _repair(self) -> None:
        """Finish what a crash has left: passages that were never committed, and those that were to go."""
        self._engine.delete(self._engine.numbers(self._documents.next_number() << PASSAGE_BITS))
        with suppress(WritingError):  # a full disk can still be searched
            self._documents.skip()
        self._engine.delete(self._documents.garbage())

    def _sweep(self) -> None:
        """Remove engines and copies of models not in use: of earlier ones, or of a rebuild that did not end."""
        state = self._documents.state
        with suppress(EngineError):  # the next opening tries again
            self._engines.sweep(self.folder, state.engine)
        used = {str(model["copy"]).partition("/")[0] for model in state.settings["models"]}
        for other in self.folder.glob("models-*"):
            if other.name not in used:
                shutil.rmtree(other, ignore_errors=True)

    def rebuild(self, models: Mapping[str, Any] | Sequence[Any] | Any | None = None) -> None:
        """Make all vectors anew from the stored texts, and count all terms; the old ones serve until it is done.

        Args:
            models: others than before, as in `create`; None keeps them.

        Raises:
            InputError: as in `create`.
        """
        with self._writing:
            self._check_open()
            self._renew(reuse=False, models=None if models is None else open_models(models))

    def _renew(self, *, reuse: bool, models: dict[str, Model] | None = None) -> None:
        """Fill a new engine and put it in the place of the old one, in one commit.

        Args:
            reuse: take the models' vectors over, and only compute BM25's; else everything, and count all terms again.
            models: others than before.
        """
        old = self._documents.state
        check_space(self.folder, _LEAST_FREE + 2 * sum(map(size_on_disk, self.folder.rglob("*"))))
        models = models or self._models
        number = int(old.engine.rpartition("-")[2]) + 1
        after, having = (replace(old), None) if reuse else recounted(self._documents, self._term_counts)
        after.engine, after.average, after.changed = f"engine-{number}", after.mean_length, 0
        if not reuse:
            after.settings = settings_with(old.settings, models)
            after.settings["engine"] = written_engine(self._engines)
            after.settings["models"] = written_models(self.folder, models, f"models-{number}")
        generation = Generation(self.folder, after.engine, *kinds(models, after.settings["bm25"]))
        engine = self._engines.create(generation)
        taken = partial(stored_vectors, self._engine) if reuse else document_vectors
        fill(engine, after, self._documents, self._term_counts, lambda block: taken(models, block))
        with self._documents.lock:
            with self._documents.commit(after):
                self._documents.start_anew(having)
            self._open_engine, self._models = engine, models  # the old engine closes with the last search that uses it
            self._set_up()
        former = engine_of(old.settings.get("engine", written_engine(Edge())))
        if former.kind != self._engines.kind:
            with suppress(EngineError):
                former.sweep(self.folder, after.engine)
        self._sweep()

    def search(
        self, query: str, top_k: int = 10, *, where: Any = None, weights: Weights = None, word_weights: Weights = None
    ) -> Hits:
        """Return the documents with the highest scores.

        Args:
            query: a text.
            top_k: how many.
            where: conditions on the metadata: {"year": {"gte": 1990}, "lang": "en"} for all of them, a list of such for
                any; the operators are eq, ne, in, nin, gt, gte, lt, lte and exists.
            weights: of the parts for this search: {"bm25": 1} is BM25 alone. Brought to the sum 1.
            word_weights: what words of the query count in BM25 and static models: {"immune": 0.3} multiplies their
                terms and pairs of words by 0.3. Other models read the query as it is.

        Returns:
            at most `top_k` hits, best first; fewer where fewer share anything with the query.

        Raises:
            InputError: an argument has a value that cannot be used; or the index is closed.
        """
        self._check_open()
        if not isinstance(query, str):
            raise InputError(f"the query is {query!r:.40} ({type(query).__name__}); it must be a string")
        if not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 1:
            raise InputError(f"top_k is {top_k!r:.40}; it must be an integer from 1 up")
        query = well_formed(query)
        while True:
            parts = self._parts()
            conditions = parse_where(where, parts.state.fields)
            question = self._question(query, parts, weights, word_weights)
            try:
                hits, exact = question.search(top_k, conditions)
            except EngineError:
                if self._documents.state.engine == parts.state.engine:
                    raise
                continue  # a rebuild has removed the engine that was asked
            if self._documents.state is parts.state:  # else a commit came between, and may have hidden a document
                return Hits(query, parts.state.documents, question.shares, tuple(hits), exact)

    def score(self, query: str, id: str, *, weights: Weights = None, word_weights: Weights = None) -> Hit:
        """Return one document as a hit, whether or not a search would find it: its score and the reasons.

        Raises:
            InputError: there is no such document, or an argument has a value that cannot be used.
        """
        with self._documents.lock:
            document, parts = self[id], self._parts()
            return self._question(well_formed(query), parts, weights, word_weights).score(document)

    def _question(self, query: str, parts: Parts, weights: Weights, word_weights: Weights) -> Question:
        settings = parts.state.settings
        shares = checked_weights(weights, list(settings["weights"]), settings["weights"])
        return Question(query, shares, parts, checked_word_weights(word_weights, settings.get("word_weights", {})))

    def _parts(self) -> Parts:
        """Return what a question is asked of."""
        with self._documents.lock:
            state, engine = self._documents.state, self._engine
            if self._words.full:
                self._words = self._new_words()
            return Parts(self._words, self._models, self._documents, state, engine, lambda: self._engine)

    def info(self) -> dict[str, Any]:
        """Return what the index is: counts, parts and weights, fields of the metadata, bytes on disk."""
        self._check_open()
        state, settings = self._documents.state, self._documents.state.settings
        sources = {m["name"]: m["source"] or ("a copy" if m["copy"] else "given") for m in settings["models"]}
        return {
            "folder": str(self.folder),
            "format": FORMAT,
            "documents": state.documents,
            "passages": state.passages,
            "mean terms of a passage": round(state.mean_length, 1),
            "weights": self.weights,
            "word weights": self.word_weights,
            "models": sources,
            "language": settings["language"],
            "engine": self._engines.kind,
            "fields": sorted(state.fields),
            "bytes": sum(map(size_on_disk, self.folder.rglob("*"))),
        }

    def verify(self) -> list[str]:
        """Hold everything that is stored against the texts; return what is wrong, nothing where all is well.

        The file of documents is checked, every passage must be in the engine and no other, counts and BM25's vectors
        are computed again for all, the models' vectors for 200 documents.
        """
        with self._writing:
            self._check_open()
            return wrong_parts(self._documents, self._engine, self._models, self._term_counts)
