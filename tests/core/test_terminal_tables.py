"""Tables in a terminal of any width: no column, title or number is lost, and no line is too long."""

import re
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.explain.views.parts import Column, Fold, TablePart
from pellucid.explain.views.terminal import plain
from pellucid.static.embedder import StaticEmbedder

_WORDS = st.text("abcdefg", min_size=1, max_size=12)
_CELLS = {
    "text": st.lists(_WORDS, max_size=12).map(" ".join) | st.text("xyz", min_size=30, max_size=60),
    "number": st.floats(-1000, 1000).map("{:+.4f}".format) | st.just("+0.030 [0.021, 0.038]"),
    "bar": st.none() | st.floats(-1, 1),
    "name": st.lists(_WORDS, max_size=12).map(" ".join),
    "code": st.lists(_WORDS, max_size=4).map(" ".join),
}


@st.composite
def tables(draw: st.DrawFn) -> TablePart:
    kinds = [*draw(st.lists(st.sampled_from(sorted(_CELLS)), max_size=7)), "text"]
    columns = tuple(Column(draw(st.lists(_WORDS, max_size=3).map(" ".join)), kind) for kind in kinds)
    rows = st.tuples(*(_CELLS[kind] for kind in kinds))
    return TablePart("", columns, tuple(draw(st.lists(rows, min_size=1, max_size=4))))


def squeezed(text: str) -> str:
    return re.sub(r"[\s\u2500]+", "", text)


def check(table: TablePart, view: str, width: int) -> None:
    """Check that all that a table says is in a view of it."""
    assert max(map(len, view.splitlines()), default=0) <= width
    words = set(view.split())
    for number, column in enumerate(table.columns):
        if column.kind not in ("bar", "code") and any(row[number] for row in table.rows):
            assert all(word in words for word in column.title.split() if len(word) < 20)
    for row in table.rows:
        for column, cell in zip(table.columns, row, strict=True):
            if column.kind == "number":
                assert all(word in words for word in cell.split())
            elif column.kind == "text":  # a cell that is folded stands beside others
                pieces = [cell] if len(cell) < 12 else cell.split()
                assert all(word in words for piece in pieces for word in piece.split() if len(word) <= 12)
            elif column.kind == "name" and len(cell) <= 20:
                assert all(word in words for word in cell.split())


@given(tables(), st.integers(36, 120), st.booleans())
def test_no_column_is_lost_at_any_width(table: TablePart, width: int, is_folded: bool) -> None:
    check(table, plain([Fold("more", (table,))] if is_folded else [table], width=width), width)


@given(tables(), st.integers(12, 35))
def test_a_narrow_view_has_all_characters(table: TablePart, width: int) -> None:
    view = squeezed(plain([table], width=width))
    for row in table.rows:
        for column, cell in zip(table.columns, row, strict=True):
            if column.kind not in ("bar", "code", "name"):
                assert all(letter in view for letter in squeezed(cell))


def test_a_table_that_fits_is_drawn_side_by_side_and_one_that_does_not_row_by_row() -> None:
    numbers = [("mean fall of the top", "number"), ("random", "number"), ("difference", "number"), "dimension"]
    table = TablePart.of("", numbers, [["+0.030 [0.021, 0.038]"] * 3 + ["the first"], ["+0.1"] * 3 + ["the second"]])
    assert plain([table], width=100).splitlines()[1].split("   ")[-1].strip() == "dimension"
    assert "mean fall of the top" in plain([table], width=110)
    stacked = plain([table], width=60).splitlines()
    assert stacked[1] == "mean fall of the top  +0.030 [0.021, 0.038]"
    assert stacked[4:7] == ["dimension             the first", "", "mean fall of the top  +0.1"]


def test_names_are_cut_before_texts_wrap_and_code_is_left_out_before_either() -> None:
    columns = [("name", "name"), "because", ("edit", "code"), ("share", "number"), ("", "bar")]
    cells = ("a long name " * 5, "a reason of more than a few words", "model.without(3)", "12.5%", 0.5)
    table = TablePart.of("", columns, [cells, cells])

    def lines(width: int) -> list[str]:
        return plain([table], width=width).splitlines()[3:]

    assert "\u2026" not in lines(150)[0] and "without(3)" in lines(150)[0]
    assert "\u2026" not in lines(124)[0] and "without(3)" not in lines(124)[0] and "\u2588" in lines(124)[0]
    for width in (110, 80, 68, 64):
        view = lines(width)
        assert len(view) == 2 and cells[1] in view[0] and "\u2026" in view[0] and "12.5%" in view[0]
    assert len(lines(50)) == 4  # the reason wraps


@pytest.mark.parametrize("command", ["audit", "compare", "bias"])
def test_rows_of_reports_stay_on_one_line_at_80_columns(fruit: StaticEmbedder, command: str) -> None:
    longer = " ".join(["apple and pear, the car, a bicycle"] * 3)
    texts = [f"{text} {longer}" for text in ("the apple", "a pear", "the car", "a bicycle", "pear apple", "car pear")]
    pairs = list(zip(texts, texts[::-1]))
    anchors = AnchorEmbedder(fruit, [*texts, "they are here by the car"])
    report: Any = {
        "audit": lambda: pellucid.audit(anchors, texts * 200),
        "compare": lambda: pellucid.compare({"a" * 40: fruit, "b" * 40: anchors}, pairs),
        "bias": lambda: pellucid.bias(fruit, [("apple", "pear"), ("car", "bicycle")], targets=texts),
    }[command]()
    folds_and_parts = (part.parts if isinstance(part, Fold) else [part] for part in report._parts())
    for part in chain.from_iterable(folds_and_parts):
        if isinstance(part, TablePart) and any(column.title for column in part.columns):
            lines = plain([part._replace(title="")], width=80).splitlines()
            rule = next(number for number, line in enumerate(lines) if set(line.strip()) == {"\u2500"})
            assert len(lines) - rule - 1 == len(part.rows) + len(part.sums) + bool(part.foot), "\n".join(lines)


def test_a_table_that_fits_with_less_space_keeps_its_rows_on_a_line_each() -> None:
    numbers = [("k", "number"), *[(title, "number") for title in ("fall, top", "fall, random", "difference", "share")]]
    table = TablePart.of("", numbers, [[k, *["0.053 [0.046, 0.060]"] * 3, "100.0%"] for k in ("1", "20")])
    for width in (80, 76):
        lines = plain([table], width=width).splitlines()
        assert len(lines) == 5 and lines[0] == "" and max(map(len, lines)) <= width
