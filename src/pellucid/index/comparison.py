"""Settings of a search: kept under a name in the folder of an index, and two of them beside each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pellucid.errors import InputError, shown, unknown_name
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, listed, signed
from pellucid.explain.views.report import Report
from pellucid.index.evaluation import JudgedQueries, Queries, Relevant, TopRow, by_id
from pellucid.index.plan import Snapshot
from pellucid.index.query import DEFAULTS, SearchQuery
from pellucid.index.search import plan_of, run, score_document
from pellucid.persistence.store import read_json, write_json

Settings = Mapping[str, Any]
"""Options of a search, as `Index.search` takes them."""

MAX_MOVED_ROWS = 3
_OPTIONS = [name for name in DEFAULTS if name not in ("top_k", "settings")]
FOLDER = "settings"
_NAME = re.compile(r"\w[\w .-]{0,79}")
_N_RESAMPLES = 2_000


def settings_names(index_folder: Path) -> list[str]:
    """Return the names of the settings that an index keeps: a file of JSON for each."""
    return sorted(path.stem for path in (index_folder / FOLDER).glob("*.json"))


def read_settings(index_folder: Path, name: str) -> Settings:
    """Return the options that an index keeps under a name."""
    if name not in (names := settings_names(index_folder)):
        raise InputError(unknown_name("setting", name, names))
    return _checked(read_json(index_folder / FOLDER / f"{name}.json"))


def write_settings(snapshot: Snapshot, index_folder: Path, name: str, options: Settings | None) -> None:
    """Keep the options of a search under a name, once a search has shown that they can be used; None removes it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"the settings are called {shown(name)}; give letters, digits, blanks and . - _, at most 80")
    path = index_folder / FOLDER / f"{name}.json"
    if options is None:
        path.unlink(missing_ok=True)
        return
    run(snapshot, SearchQuery("a", **_checked(options)))
    path.parent.mkdir(exist_ok=True)
    try:
        write_json(path, options)
    except TypeError as error:
        raise InputError(f"settings are kept as JSON: {error}") from error


def _checked(options: Any) -> Settings:
    if not isinstance(options, Mapping):
        raise InputError(f'settings are {shown(options)}; give options of a search: {{"weights": {{"bm25": 1}}}}')
    if wrong := [name for name in options if name not in _OPTIONS]:
        raise InputError(f"settings: {unknown_name('option', wrong[0], _OPTIONS)}")
    return options


def with_settings(request: SearchQuery, index_folder: Path) -> SearchQuery:
    """Return a query with what the settings that it names say of options that it does not give."""
    if request.settings is None:
        return request
    options = read_settings(index_folder, request.settings).items()
    return replace(
        request, settings=None, **{name: v for name, v in options if getattr(request, name) == DEFAULTS[name]}
    )


class ChangedQuery(NamedTuple):
    """A query whose first hits differ.

    Attributes:
        query: its text.
        entered: ids among the first hits with the second settings alone, best first.
        left: ids among them with the first settings alone.
        document: the id of the best hit that entered, or of the first hit where only the order changed.
        moved: the rows of its score that differ most, each with what the second settings add to it.
    """

    query: str
    entered: tuple[str, ...]
    left: tuple[str, ...]
    document: str
    moved: tuple[TopRow, ...]


@dataclass(frozen=True, repr=False)
class SettingsComparison(Report):
    """What a search finds with two settings.

    Attributes:
        queries: how many were asked.
        top_k: hits of a query that are compared.
        changes: the queries whose first hits differ, or stand in another order.
        ndcg: with judgements the mean nDCG with each settings, times 100; else None.
        gain: the second less the first, and the ends of its 95 % interval over queries; else None.
    """

    kind: ClassVar[str] = "settings comparison"
    table: ClassVar[str] = "changes"

    queries: int
    top_k: int
    changes: tuple[ChangedQuery, ...]
    ndcg: tuple[float, float] | None = None
    gain: tuple[float, float, float] | None = None

    def _parts(self) -> Iterator[AnyPart]:
        n_queries = counted(self.queries, "query", "queries")
        yield Heading("Two settings", n_queries, f"{len(self.changes):,} with other first {self.top_k} hits")
        if self.ndcg and self.gain:
            gain, low, high = (signed(value, 1) for value in self.gain)
            verdict = "undecided" if self.gain[1] <= 0 <= self.gain[2] else "better" if self.gain[0] > 0 else "worse"
            yield Note(
                f"nDCG@{self.top_k} {self.ndcg[0]:.1f} and {self.ndcg[1]:.1f}: {gain} ({low} to {high}), {verdict}."
            )
        heads = ("query", "entered", "left", "what moved", "by")
        yield TablePart.of("", heads, map(self._row, self.changes))

    def _row(self, change: ChangedQuery) -> tuple[str, ...]:
        by = ", ".join(f"{name} {signed(value)}" for name, value in change.moved)
        return change.query, listed(change.entered, 3), listed(change.left, 3), change.document, by


def compare(
    snapshot: Snapshot, queries: Queries, first: Settings, second: Settings, relevant: Relevant | None, top_k: int
) -> SettingsComparison:
    """Return what two settings find; see `Index.compare`."""
    first, second = map(_checked, (first, second))
    if not isinstance(queries, Mapping):
        raise InputError(f"queries are {shown(queries, 80)}; give a dict: id -> text")
    ids_by_setting: list[dict[str, list[str]]] = [{}, {}]
    changes: list[ChangedQuery] = []
    for key, text in by_id(queries, "query").items():
        requests = [SearchQuery(query=text, top_k=top_k, **settings) for settings in (first, second)]
        before, after = ([hit.id for hit in run(snapshot, request)] for request in requests)
        ids_by_setting[0][key], ids_by_setting[1][key] = before, after
        if before != after:
            changes.append(_change(snapshot, requests, before, after))
    if relevant is None:
        return SettingsComparison(len(queries), top_k, tuple(changes))
    judged = JudgedQueries(snapshot, queries, relevant)
    values = [
        judged.measured({key: ids[key] for key in judged.texts}, [f"ndcg_cut.{top_k}"])[0] for ids in ids_by_setting
    ]
    gains = values[1] - values[0]
    means = gains[np.random.default_rng(0).integers(0, len(gains), (_N_RESAMPLES, len(gains)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return SettingsComparison(
        len(queries), top_k, tuple(changes), (float(values[0].mean()), float(values[1].mean())),
        (float(gains.mean()), float(low), float(high)),
    )  # fmt: skip


def _change(snapshot: Snapshot, requests: Sequence[SearchQuery], before: list[str], after: list[str]) -> ChangedQuery:
    """Return what became of the first hits of a query, and the terms of the best that entered."""
    entered, left = [id for id in after if id not in before], [id for id in before if id not in after]
    document = [*entered, *after, *before][0]
    hits = [score_document(plan_of(snapshot, request), *snapshot.commit.locate(document)) for request in requests]
    rows = sorted((hits[1].explain() - hits[0].explain()).rows, key=lambda row: -abs(row.contribution))[:MAX_MOVED_ROWS]
    return ChangedQuery(
        requests[0].query,
        tuple(entered),
        tuple(left),
        document,
        tuple(TopRow(row.name, row.contribution) for row in rows),
    )
