"""The floors of the tables of anchors: rows in the tables' own columns, means of draws."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from papers.kit import Table, read_results, results_path
from papers.ldir import tables
from papers.ldir.scored import FLOOR, GROUPS, RANDOM

TASKS = [task for tasks in GROUPS.values() for task in tasks]


def row(encoder: str, method: str, n: int, variant: str, value: float) -> tables.Row:
    """Return a row whose figures all have one value."""
    scores: dict[str, Any] = {
        "scores": dict.fromkeys(TASKS, value),
        "load": value,
    }
    return {"encoder": encoder, "method": method, "n": n, "variant": variant, **scores}


@pytest.fixture
def rows() -> tables.Rows:
    """The encoders and the floors, whose figures are their numbers."""
    found = []
    for encoder, dimensions in {"MiniLM": 384, "static-en": 256}.items():
        found.append(row(encoder, tables.ENCODER, dimensions, tables.PLAIN, 99.0))
        found += [row(encoder, FLOOR, n, tables.PLAIN, n) for n in tables.SIZES]
        forms = product((FLOOR, RANDOM), tables.CLOSER, tables.FLOOR_FORMS)
        found += [row(encoder, method, n, form, n) for method, n, form in forms]
    return tables.Rows(found)


def test_floors_fit_below_the_tables_of_the_page(rows):
    figures = dict(tables.floor_figures(rows))
    page = {name: entry["figure"] for name, entry in read_results(results_path("ldir.tables")).items()}
    assert all(isinstance(figure, Table) for figure in figures.values())
    for name, floors in figures.items():
        if name != "floor":
            assert list(floors.columns) == list(page[name.removeprefix("floor-")].columns), name
            assert floors.rows and not any("itself" in str(cells[0]) for cells in floors.rows)
    assert figures["floor"].cell("MiniLM, clustering", f"500 {RANDOM}") == "500.0"
    assert figures["floor-clustering-static-en"].rows[0][1:] == list(tables.SIZES)


def test_of_draws_every_figure_is_the_mean():
    mean = tables._mean_of_draws([row("MiniLM", FLOOR, 200, tables.PLAIN, value) for value in (1.0, 2.0, 6.0)])
    assert mean == row("MiniLM", FLOOR, 200, tables.PLAIN, 3.0)
