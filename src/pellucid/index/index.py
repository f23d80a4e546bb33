"""`Index`: documents on disk, found by their words and by what they mean, and for every hit the reason.

    score(query, passage) = w_bm25 BM25 / (the most that the query can reach) + sum over models of w_model cosine

with weights that add up to 1. It is a sum over terms, pairs of words or dimensions, needs no other hit, and compares
across queries. A document's score is that of its best passage.

How it lies on disk, in the order to read: `documents.py` cuts texts into passages, `arrays.py` says what a file holds,
`segments.py` is an open file, `commits.py` the one commit point, from which a reader opens everything, and `writer.py`
makes every change. `collection.py` holds an index open; `plan.py` and `search.py` answer a query, which the parts of
`parts.py` read: each class of `Part` is a way to search.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.errors import IndexFolderError, InputError, PellucidError, check_integer, check_number, shown
from pellucid.index.calibration import calibrate
from pellucid.index.collection import DocumentCollection
from pellucid.index.commits import FORMAT, IndexState, check_format, read_commit, read_stamp
from pellucid.index.comparison import (
    Settings,
    SettingsComparison,
    compare,
    read_settings,
    settings_names,
    with_settings,
    write_settings,
)
from pellucid.index.documents import validate_id
from pellucid.index.evaluation import (
    MAX_GRADE,
    Checks,
    FailedCheck,
    IndexEvaluation,
    JudgedQueries,
    Queries,
    Relevant,
    check,
    evaluate,
)
from pellucid.index.hits import Hit, Hits
from pellucid.index.judgements import read_judgements, write_judgement
from pellucid.index.metadata import KINDS
from pellucid.index.models import (
    model_source,
    open_models,
    open_stored_models,
    store_models,
)
from pellucid.index.parts import ModelPart
from pellucid.index.plan import Snapshot
from pellucid.index.query import Boosts, SearchQuery, Synonyms, Weights
from pellucid.index.search import plan_of, run, score_document
from pellucid.index.settings import (
    check_analyser,
    chosen_settings,
    precomputed_parts,
    settings_for,
    validate_synonyms,
    validate_weights,
    validate_word_weights,
)
from pellucid.index.verification import find_problems
from pellucid.index.why_not import WhyNot, why_not
from pellucid.index.writer import bytes_on_disk, first_commit, sweep_models, write_rebuilt
from pellucid.persistence.folder import allow_external
from pellucid.persistence.store import writing_folder
from pellucid.progress import Progress
from pellucid.text.unicode import well_formed

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_TRIES = 5  # to open models that a rebuild removes meanwhile


class Index(DocumentCollection):
    """Documents that can be searched, in a folder.

    Any number of processes and threads may have it open. What each sees is a commit, the last one at the time of each
    call. Changes are made one after the other, whichever process makes them.
    """

    def __init__(self, folder: Any = "my-index", *opened: Any, read_only: bool = False) -> None:
        """Take what `create` and `open` have opened; these are for users."""
        if not opened:
            path = str(folder) if isinstance(folder, os.PathLike) else folder
            raise InputError(f"Index.open({shown(path, 80)}) opens an index, and Index.create makes an empty one")
        super().__init__(folder, *opened, read_only=read_only)

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
    ) -> Self:
        """Make an empty index.

        Args:
            path: a folder that is empty or not there yet.
            models: name -> model: a bundled name, folder or hub id, a pellucid model, a SentenceTransformer, or a
                function from texts to vectors, which has to be given again at each opening. One model, or a list, get
                names of their own; {} is no model, None is static-en.
            bm25: whether BM25 is a part of the score.
            weights: of the parts, "bm25" among them, brought to the sum 1; None gives the models together 0.3 where
                all are static and else 0.4, in equal shares, and BM25 the rest.
            language: of BM25's stemmer, as "german"; "none" does not stem.
            stop_words: words that BM25 leaves out; None takes the list for English, none for other languages.
            passage_characters: longer texts are cut into passages of at most so many characters.

        Raises:
            InputError: something is in the folder, or an argument has a value that cannot be used.
            MissingExtraError: what `pellucid[search]` brings is not installed.
        """
        folder = Path(os.path.expanduser(path)).absolute()
        _check_vacant(folder)
        chosen = chosen_settings(language, stop_words, passage_characters, weights, bm25=bm25)
        opened = open_models(models)
        settings = settings_for(chosen, opened)
        with writing_folder(folder, _check_vacant) as tmp_path:  # whole or not there; another process may be faster
            settings["models"] = store_models(tmp_path, opened, "models-1")
            first_commit(tmp_path, IndexState(settings))
        index = cls(folder, read_commit(folder), opened, read_only=False)
        index._caller_models = {name: model.encoder for name, model in opened.items()}
        return index

    @classmethod
    def open(
        cls,
        path: str | Path,
        models: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        rebuild: bool = False,
        read_only: bool = False,
        allow_outside: bool = False,
    ) -> Self:
        """Open an index; other processes may have it open too, and change it.

        Args:
            path: the folder.
            models: name -> model, instead of those that the index would open itself.
            rebuild: make all vectors anew from the stored texts; with `models`, for these, as in `create`.
            read_only: refuse every change; nothing is written to the folder.
            allow_outside: also open what the folder names elsewhere: models of the hub that were not downloaded yet. A
                folder from someone else could name anything.

        Raises:
            IndexFolderError: the folder is not an index, is of another version or broken, names a model elsewhere, or a
                model is not the one that the index was made with.
        """
        folder = Path(os.path.expanduser(path)).absolute()
        check_format(folder)
        if rebuild and read_only:
            raise InputError("an index that is opened with read_only=True cannot be rebuilt")
        with allow_external(allow_outside):
            for n_left in reversed(range(MAX_TRIES)):
                commit = read_commit(folder)
                settings, caller_models = commit.state.settings, {} if models is None else models
                try:
                    if not rebuild:
                        check_analyser(settings, folder / "commit.json")
                    if rebuild and models is not None:
                        opened = open_models(models)
                    elif isinstance(caller_models, Mapping):
                        opened = open_stored_models(folder, settings["models"], caller_models, check=not rebuild)
                    else:
                        raise InputError(f"models are {shown(caller_models)}; give a dict: name of the part -> model")
                    break
                except PellucidError:
                    if not n_left or read_stamp(folder) == commit.stamp:
                        raise  # else a rebuild came between, and has removed copies of models
            index = cls(folder, commit, opened, read_only=read_only)
            index._caller_models = dict(models) if isinstance(models, Mapping) else {}
            if rebuild:
                index._rebuild()
        return index

    @property
    def weights(self) -> dict[str, float]:
        """What each part of the score counts, unless a search says otherwise; they add up to 1."""
        return dict(self.snapshot().commit.state.settings["weights"])

    @property
    def word_weights(self) -> dict[str, float]:
        """What single words of a query count, unless a search says otherwise; words that are not here count 1."""
        return validate_word_weights(None, self.snapshot().commit.state.settings)

    @property
    def synonyms(self) -> dict[str, list[str]]:
        """The synonyms of words of a query in BM25, unless a search says otherwise."""
        return validate_synonyms(None, self.snapshot().commit.state.settings)

    def __repr__(self) -> str:
        """Return one short line."""
        state = self._snapshot.commit.state
        return f"<Index {self.folder}: {state.documents:,} documents, {' + '.join(state.settings['weights'])}>"

    # Changes

    def configure(self, *, weights: Weights = None, word_weights: Weights = None, synonyms: Synonyms = None) -> None:
        """Change what searches use by default; no vector is made anew.

        Args:
            weights: of the parts, as in `create`.
            word_weights: of words of the query, as in `search`; {} lets all count 1.
            synonyms: of words of the query, as in `search`, in the place of those before; {} for none.

        Raises:
            InputError: one cannot be used; nothing is changed then.
        """
        with self._exclusive_writer() as writer:
            state = writer.commit.state
            settings = dict(state.settings)
            settings["weights"] = validate_weights(weights, list(settings["weights"]), settings["weights"])
            settings["word_weights"] = validate_word_weights(word_weights, settings)
            if synonyms is not None:  # a calibration is of scores with those before
                settings |= {"synonyms": validate_synonyms(synonyms, settings), "calibration": None}
            writer.save(replace(state, settings=settings))

    def calibrate(self, queries: Sequence[str] | None = None, unrelated: Sequence[str] | None = None) -> None:
        """Learn what a score tells: hits have a `probability` afterwards, and `search` takes `min_probability`.

        A logistic curve over the score of the best hit is fitted and stored, for the weights of the index; after
        another `configure`, or many new documents, call it again.

        Args:
            queries: texts that the documents answer; None makes them of 500 documents: a sentence with words left out,
                searched with its document and without it.
            unrelated: texts that they do not answer; None takes 500 open English sentences of other subjects. For
                documents in other languages give your own.

        Raises:
            InputError: there are less than 20 of either, or the two do not differ in their scores.
        """
        with self._exclusive_writer() as writer:
            state, snapshot = writer.commit.state, self._snapshot._replace(commit=writer.commit)
            word_weights = validate_word_weights(None, state.settings)
            calibration = calibrate(snapshot, state.settings["weights"], word_weights, queries, unrelated)
            writer.save(replace(state, settings={**state.settings, "calibration": calibration._asdict()}))

    def rebuild(self, models: Mapping[str, Any] | Sequence[Any] | Any | None = None) -> None:
        """Make all vectors anew from the stored texts, and count all terms; the old ones serve until it is done.

        Of a model for which vectors were given to `add`, all vectors are kept, unless another model takes its place.

        Args:
            models: others than before, as in `create`; None keeps them.

        Raises:
            InputError: as in `create`.
        """
        self._rebuild(None if models is None else open_models(models))

    def _rebuild(self, models: dict[str, ModelPart] | None = None) -> None:
        with self._exclusive_writer() as writer:
            models = dict(self._snapshot.models if models is None else models)
            snapshot = write_rebuilt(writer, Snapshot.from_commit(writer.commit, models))
            with self._snapshot_lock:
                self._snapshot = snapshot
                self._caller_models = {name: model.encoder for name, model in models.items()}
            sweep_models(self.folder, writer.commit.state)

    # Searches

    def search(
        self,
        query: str,
        top_k: int = 10,
        *,
        offset: int = 0,
        where: Any = None,
        weights: Weights = None,
        word_weights: Weights = None,
        steer: Weights = None,
        synonyms: Synonyms = None,
        boosts: Boosts = None,
        group_by: str | None = None,
        min_score: float | None = None,
        min_probability: float | None = None,
        rerank: Any = None,
        rerank_top: int = 50,
        settings: str | None = None,
    ) -> Hits:
        """Return the documents with the highest scores.

        Args:
            query: a text.
            top_k: how many.
            offset: how many of the best to leave out: 10 for the second page of ten.
            where: conditions on the metadata: {"year": {"gte": 1990}, "lang": "en"} for all of them, a list of such for
                any; the operators are eq, ne, in, nin, gt, gte, lt, lte and exists.
            weights: of the parts for this search: {"bm25": 1} is only BM25. Brought to the sum 1.
            word_weights: what words of the query count in BM25, static models and other encoders: {"immune": 0.3}
                multiplies their terms and pairs of words by 0.3. Models of other families read the query as it is.
            steer: texts that the query is moved away from or to: {"cars": -0.5} subtracts half of what a search for
                "cars" gives, {"price": 0.3} adds. It moves the vectors of dense models, and each text is a term of a
                hit's reasons ("less of 'cars'"). BM25 and sparse models read the query as it is.
            synonyms: other words for words of the query, one way: {"car": ["auto", "automobile"]} finds both
                with "car", and not the reverse. BM25 counts one that the query lacks with 0.8 of the weight, and at
                most as the word itself; in the reasons it is a row of its own, "car ~ auto (synonym)". See the manual
                for forms, stop words and synonyms of several words.
            boosts: what metadata add to the scores of documents that share anything with the query: at most 20, with
                weights from -10 to 10, each a row of the reasons. {"where": {"lang": "en"}, "weight": 0.2} adds 0.2
                where the conditions hold. {"recent": "day", "half_life_days": 30, "weight": 0.3} adds 0.3 to a
                document of today, half of it at 30 days, and nothing without a date; "now" is a date that ages are
                counted from instead. With `rerank` they only choose what it reads, unless it has a weight.
            group_by: a field of the metadata: at most one hit for each of its values, the best. A document of several
                values stands for all of them, and one without the field for itself. Not with `rerank`.
            min_score: the lowest score of a hit, with `rerank` of its scores; None for any. Scores compare across
                queries, not across indexes.
            min_probability: the lowest `hit.probability`, 0 to 1; the index must be calibrated, see `calibrate`.
            rerank: a second stage, which scores the first hits anew: a CrossEncoder of sentence-transformers, or a
                function `score(query, texts)` that gives a number a text (title and best passage). It replaces score
                and order; `hit.before` is what was found. With a weight of its own among `weights` it is a part like
                the others: {**index.weights, "rerank": 1} is half and half.
            rerank_top: how many of the first hits it scores, at least `top_k` + `offset`.
            settings: the name of options that `save_settings` keeps; those that are given here count instead.

        Returns:
            at most `top_k` hits, best first; fewer where fewer share anything with the query, and none where no
            document has a word of it and no model knows one. Functions and transformers know every string.

        Raises:
            InputError: an argument has a value that cannot be used; or the index is closed.
        """
        request = SearchQuery(
            query, top_k, offset, where, weights, word_weights, steer, synonyms, boosts, group_by, min_score,
            min_probability, rerank, rerank_top, settings,
        )  # fmt: skip
        return run(self.snapshot(), with_settings(request, self.folder))

    def why_not(
        self,
        query: str,
        id: str | int,
        top_k: int = 10,
        *,
        offset: int = 0,
        where: Any = None,
        weights: Weights = None,
        word_weights: Weights = None,
        steer: Weights = None,
        synonyms: Synonyms = None,
        boosts: Boosts = None,
        group_by: str | None = None,
        min_score: float | None = None,
        min_probability: float | None = None,
        rerank: Any = None,
        rerank_top: int = 50,
        settings: str | None = None,
    ) -> WhyNot:
        """Return why a search does not find a document: its rank, the gap to the last hit, and causes.

        Each cause has the cheapest change that lets the search find the document among the first `top_k` + `offset`. A
        change is tried by searching with it, and a cause that no search confirms is not named.

        Args:
            query: a text.
            id: of the document, which may be one that is not in the index.
            top_k: how many hits, and all that follows, as in `search`.
            offset: as in `search`.
            where: as in `search`.
            weights: as in `search`.
            word_weights: as in `search`.
            steer: as in `search`.
            synonyms: as in `search`.
            boosts: as in `search`.
            group_by: refused: a document that another of its group hides has no rank.
            min_score: as in `search`.
            min_probability: as in `search`.
            rerank: refused: a second stage scores only the first hits.
            rerank_top: of no use here.
            settings: as in `search`.

        Raises:
            InputError: an argument has a value that cannot be used, or `rerank` or `group_by` is given.
        """
        request = SearchQuery(
            query, top_k, offset, where, weights, word_weights, steer, synonyms, boosts, group_by, min_score,
            min_probability, rerank, rerank_top, settings,
        )  # fmt: skip
        return why_not(self.snapshot(), with_settings(request, self.folder), id)

    def score(
        self, query: str, id: str | int, *, weights: Weights = None, word_weights: Weights = None,
        steer: Weights = None, synonyms: Synonyms = None, boosts: Boosts = None,
    ) -> Hit:  # fmt: skip
        """Return one document as a hit, its score and the reasons, whether or not a search would find it.

        Raises:
            InputError: there is no such document, or an argument has a value that cannot be used.
        """
        snapshot = self.snapshot()
        request = SearchQuery(
            query, weights=weights, word_weights=word_weights, steer=steer, synonyms=synonyms, boosts=boosts
        )
        return score_document(plan_of(snapshot, request), *snapshot.commit.locate(id))

    def evaluate(
        self,
        queries: Queries,
        relevant: Relevant,
        *,
        top_k: int = 10,
        recall_at: int = 100,
        examples: int = 20,
        show_progress_bar: bool = False,
    ) -> IndexEvaluation:
        """Measure how well documents are found that people have judged relevant, by each part and by all together.

        Args:
            queries: id -> text; `pellucid.index.read_queries` reads them from a file.
            relevant: id of a query -> {id of a document: grade}, integers; queries without a text here are left out.
                `pellucid.index.read_qrels` reads them.
            top_k: hits that count for nDCG.
            recall_at: hits that count for recall and MRR.
            examples: how many queries without a relevant document among the first `top_k` are explained: the largest
                rows by which the first hit stands above it.
            show_progress_bar: show a bar, counting searches, once the work has lasted two seconds.

        Raises:
            InputError: an argument has a value that cannot be used, or no query is judged.
            MissingExtraError: pytrec_eval, of `pellucid[eval]`, is not installed.
        """
        check_integer("top_k", top_k)
        check_integer("recall_at", recall_at)
        check_integer("examples", examples, 0)
        judged = JudgedQueries(self.snapshot(), queries, relevant)
        with Progress("evaluating", unit="searches", enabled=show_progress_bar) as progress:
            return evaluate(judged, top_k, recall_at, examples, progress.advance)

    def save_settings(self, name: str, options: Settings | None) -> None:
        """Keep options of a search under a name in the index's folder, in `settings/NAME.json`.

        `search(query, settings=name)` and `compare` take the name.

        Args:
            name: letters, digits, blanks and . - _; an older one of the name is replaced.
            options: as for `compare`, {"boosts": [...], "group_by": "category"}; None removes the name.

        Raises:
            InputError: an unknown option, or one with a value that cannot be used or that is no JSON.
        """
        with self._exclusive_writer():
            write_settings(self.snapshot(), self.folder, name, options)

    def compare(
        self,
        queries: Queries,
        first: Settings | str,
        second: Settings | str,
        relevant: Relevant | None = None,
        *,
        top_k: int = 10,
    ) -> SettingsComparison:
        """Search with two settings, and say which queries find other documents and which terms moved them.

        Args:
            queries: id -> text, as for `evaluate`.
            first: options of `search`, such as {"weights": {"bm25": 1}}, or the name of those that `save_settings`
                keeps; {} is the index as it is.
            second: the same, changed.
            relevant: judgements, as for `evaluate`; with them the nDCG of both is measured, with the 95 % interval of
                the difference over the queries.
            top_k: hits of a query that are compared.

        Raises:
            InputError: an unknown option, or one with a value that cannot be used.
        """
        check_integer("top_k", top_k)
        first_settings, second_settings = (
            read_settings(self.folder, options) if isinstance(options, str) else options for options in (first, second)
        )
        return compare(self.snapshot(), queries, first_settings, second_settings, relevant, top_k)

    def check(self, checks: Checks) -> list[FailedCheck]:
        """Search for documents that queries must find; return the checks that fail, with the ranks that these have.

        Args:
            checks: pairs of a query and the id of a document, which must be among the first 10 hits; or with a third
                value among so many. Or a table with the columns query, id and, if need be, within: a path or a
                `CorpusFile`.

        Raises:
            InputError: there are no checks, or one has a value that cannot be used.
            CorpusError: the file cannot be read, or lacks a column or a cell.
        """
        return check(self.snapshot(), checks)

    def judge(self, query: str, id: str | int, grade: int | None = 1) -> int:
        """Note in the index's folder that a person judged a document for a query.

        Args:
            query: its text.
            id: of a document in the index; to take a judgement back, of any.
            grade: 1 for relevant, 0 for not relevant, up to 1,000 for more so; None takes the judgement back.

        Returns:
            how many judgements the folder holds then.

        Raises:
            InputError: no such document, a blank query, or a grade out of range.
            WritingError: the folder cannot be written.
        """
        query = SearchQuery(query=query).query
        if grade is not None and not query.strip():
            raise InputError("the query is blank; a document is judged for a query with words")
        document_id = validate_id(id, "the id") if grade is None else self[id].id  # it may be deleted
        check_number("grade", grade, least=0, most=MAX_GRADE, integer=True, optional=True)
        return write_judgement(self.folder, well_formed(query), document_id, grade)

    def judgements(self) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
        """Return what `judge` noted, as `evaluate` takes it: queries by id, and the grades of documents by query."""
        return read_judgements(self.folder)

    def info(self) -> dict[str, Any]:
        """Return facts about the index: counts, parts and weights, fields of the metadata, bytes on disk."""
        state = self.snapshot().commit.state
        settings = state.settings
        with_vectors = dict.fromkeys(precomputed_parts(settings), ", with given vectors")
        return {
            "folder": str(self.folder),
            "format": FORMAT,
            "documents": state.documents,
            "passages": state.passages,
            "mean terms of a passage": round(state.average, 1),
            "weights": self.weights,
            "word weights": self.word_weights,
            "synonyms": len(self.synonyms),
            "settings": settings_names(self.folder),
            "models": {m["name"]: model_source(m) + with_vectors.get(m["name"], "") for m in settings["models"]},
            "language": settings["language"],
            "fields": {
                name: " or ".join(word for kind, word in KINDS.items() if kind in kinds)
                for name, (_, kinds) in sorted(state.fields.items())
            },
            "bytes": bytes_on_disk(self.folder),
        }

    def verify(self) -> list[str]:
        """Compare everything that is stored with checksums and texts; return what is wrong.

        The terms of all documents are counted again, and 200 documents are encoded again. The index can be searched
        meanwhile, and not changed, unless it was opened with read_only=True or is on read-only media.
        """
        lock = self.folder / ".lock"
        is_writable = os.access(lock if lock.exists() else self.folder, os.W_OK)  # not on read-only media
        if is_writable and not self._read_only:
            with self._exclusive_writer() as writer:
                return find_problems(self.folder, self._snapshot._replace(commit=writer.commit))
        for _ in range(MAX_TRIES):
            snapshot = self.snapshot()
            problems = find_problems(self.folder, snapshot)
            if not problems or read_stamp(self.folder) == snapshot.commit.stamp:
                return problems  # else another process has removed what was looked at
        raise IndexFolderError(f"{self.folder} is changed all the time; verify it when no other process writes to it")


def _check_vacant(folder: Path) -> set[str]:
    """Check that nothing is in a folder; return the names of files to replace: none."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not empty; open it with Index.open, or give a new name")
    return set()
