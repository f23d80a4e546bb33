"""Names, edits and `dimensions.tsv`, for anchors and static models alike: what a person changes is what comes back."""

import csv
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from families import cell, edit_table, hashed, opened, reopened
from files import written
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.core.dimensions import Dimension, Dimensions, Mixing, read_dimensions, write_dimensions
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError, ModelFolderError
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary
from refusals import refused

WORDS = [f"w{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(40)]
PROBES = ["waa wab", "wac", "wad wae waf wba", "zebra", "", "wbb WBC wbn"]


def static() -> StaticEmbedder:
    vectors = np.random.default_rng(5).normal(size=(len(WORDS), 6)).astype(np.float32)
    return StaticEmbedder(Vocabulary(WORDS), vectors)


def encoder(texts: list[str]) -> np.ndarray:
    return hashed([text.replace("zero", " ") for text in texts])  # which it maps to zero


def anchors() -> AnchorEmbedder:
    return AnchorEmbedder(encoder, [f"anchor {n}" for n in range(6)])


MODELS: dict[str, Callable[[], Embedder]] = {
    "anchors": anchors,
    "static": static,
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Embedder:
    return MODELS[request.param]()


_FACTORS = st.floats(-2, 2, width=16)


@given(
    st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 4), _FACTORS)),
    st.dictionaries(st.integers(0, 4), st.tuples(st.integers(0, 3), _FACTORS)),
)
def test_a_mixing_computes_as_a_sparse_matrix_of_scipy_does(entries, later) -> None:
    mixings, matrices = [], []
    for some, shape in ((entries, (4, 5)), (later, (5, 4))):
        columns, factors = zip(*some.values()) if some else ((), ())
        mixing = Mixing.from_entries(list(some), columns, factors, shape)
        expected = sparse.coo_array((np.array(factors, float), (list(some), columns)), shape).toarray()
        np.testing.assert_array_equal(mixing.matrix.toarray(), expected)
        np.testing.assert_array_equal(mixing.without_zeros().matrix.toarray(), expected)
        assert len(mixing.without_zeros().factors) == np.count_nonzero(expected) and not mixing.is_identity
        mixings.append(mixing)
        matrices.append(expected)
    rows = np.arange(12, dtype=np.float32).reshape(3, 4) / 7
    np.testing.assert_allclose(mixings[0].applied(rows), rows @ matrices[0], atol=1e-12)
    np.testing.assert_allclose(mixings[0].then(mixings[1]).matrix.toarray(), matrices[0] @ matrices[1], atol=1e-12)


@given(st.integers(2, 5), st.data())
def test_merging_equal_dimensions_changes_no_score(count: int, data: st.DataObject) -> None:
    base = np.random.default_rng(count).normal(size=(len(WORDS), 2)).astype(np.float32)
    columns = data.draw(st.permutations([0] * count + [1]))
    names = Dimensions(Dimension(f"d{n}", (f"d{n}",)) for n in range(count + 1))
    equal = [n for n, column in enumerate(columns) if column == 0]
    model = StaticEmbedder(Vocabulary(WORDS), base[:, columns], dimensions=names)
    merged = model.merge(*equal)
    assert len(merged.dimensions) == 2
    scores = [m.similarity(*[m.encode(PROBES)] * 2) for m in (model, merged)]
    np.testing.assert_allclose(*scores, atol=1e-5)
    rows = np.random.default_rng(1).normal(size=(2, 8)).astype(np.float32)[columns]
    model = AnchorEmbedder.from_parts(hashed, rows, names)
    scores = [m.similarity(*[m.encode(PROBES)] * 2) for m in (model, model.merge(equal))]
    np.testing.assert_allclose(*scores, atol=1e-5)


def test_merged_dimensions_remember_what_they_are_about(model: Embedder) -> None:
    about = [dimension.about for dimension in model.dimensions]
    names = model.dimensions.names
    merged = model.merge(names[3], 1)
    assert (merged.dimensions.names, merged.dimensions[1].about) == (
        [names[0], f"{names[3]} + {names[1]}", names[2], *names[4:]],
        tuple(dict.fromkeys(about[3] + about[1])),
    )
    assert set(about[1] + about[2] + about[3]) == set(merged.merge(1, 2, name="all").dimensions["all"].about)
    assert model.merge(0, 1, name=names[1]).dimensions.names == names[1:]  # the old name is free
    assert len(model.merge(*range(6)).dimensions) == 1


def test_names_are_known_by_text_and_number(model: Embedder) -> None:
    names = model.dimensions.names
    assert len(set(names)) == 6
    assert model.dimensions[names[2]] == model.dimensions[2] == model.dimensions[-4] == model.dimensions[np.int64(2)]
    assert model.without(names[2]).dimensions.names == names[:2] + names[3:]
    assert model.without(names[2], 2, -4, [2]).dimensions.names == names[:2] + names[3:]
    assert model.keep(n for n in (5, 1)).dimensions.names == [names[1], names[5]]
    renamed = model.rename({names[0]: "money", 1: names[0]})
    assert (renamed.dimensions.names, renamed.dimensions[0].about) == (
        ["money", names[0], *names[2:]],
        model.dimensions[0].about,
    )
    assert list(model.dimensions)[1] is model.dimensions[1]
    first = ", ".join(f"{name!r:.60}" for name in names[:3])
    assert repr(model.dimensions) == f"<6 dimensions: {first}, ...>"
    assert repr(model.keep(0, 1, 2).dimensions) == f"<3 dimensions: {first}>"


SENTENCES = ["The bank lends money.", "A boat on the river.", "Rain is likely today in the north."]


test_the_nearest_name_is_suggested = refused(
    *((lambda edit=edit, arguments=arguments: getattr(AnchorEmbedder(hashed, SENTENCES), edit)(*arguments),
       f"no dimension is called '{wrong}'; {said}")
      for wrong, said in (
          *zip(["The bank lend money", "a boat on a river", "Rain is"], map("did you mean '{}'".format, SENTENCES)),
          ("xyzzy", f"the first is '{SENTENCES[0]}'"))
      for edit, arguments in {"without": (wrong,), "keep": (wrong,), "merge": (0, wrong), "scale": ({wrong: 2},),
                              "rename": ({wrong: "a"},)}.items()),
)  # fmt: skip


EDITS = [
    (lambda m: StaticEmbedder(["a"], np.ones((1, 2), np.float32), dimensions=Dimensions([Dimension("x")])),
     "1 names for 2 dimensions"),
    (lambda m: m.without(6), "no dimension 6; there are 6, counted from 0"),
    (lambda m: m.without(-7), "no dimension -7"),
    (lambda m: m.without(), "no dimension is given"),
    (lambda m: m.without([]), "no dimension is given"),
    (lambda m: m.without(*range(6)), "without these 6 dimensions none is left"),
    (lambda m: m.without(1.5), "by its name or number, got 1.5"),
    (lambda m: m.without(None), "by its name or number, got None"),
    (lambda m: m.without(True), "by its name or number, got True"),
    (lambda m: m.keep(), "no dimension is given"),
    (lambda m: m.keep([[0]]), "by its name or number"),
    (lambda m: m.merge(0), "two dimensions or more, got 1"),
    (lambda m: m.merge(0, 0, -6), "two dimensions or more, got 1"),
    (lambda m: m.merge(0, 1, name=m.dimensions.names[2]), "have the same name"),
    (lambda m: m.merge(0, 1, name=" "), "empty name"),
    (lambda m: m.scale({0: -1}), "the factor of .* is -1"),
    (lambda m: m.scale({0: float("nan")}), "the factor of .* is nan"),
    (lambda m: m.scale({0: float("inf")}), "the factor of .* is inf"),
    (lambda m: m.scale({0: 1e30}), "must be between 0 and a million"),
    (lambda m: m.scale({0: "2"}), "the factor of .* is '2'"),
    (lambda m: m.scale({0: 1, -6: 2}), "is given twice"),
    (lambda m: m.scale([0.5] * 6), "give a mapping from dimensions to values, got list"),
    (lambda m: m.rename({0: ""}), "empty name"),
    (lambda m: m.rename({0: m.dimensions.names[1]}), "have the same name"),
    (lambda m: m.rename({0: "x", 1: "x"}), "dimensions 0 and 1 have the same name 'x'"),
    (lambda m: m.rename({0: None}), "a name is a string"),
    (lambda m: m.rename("x"), "give a mapping"),
]  # fmt: skip
test_edits_that_cannot_be = refused(
    *((lambda make=make, edit=edit: edit(make()), message) for make in MODELS.values() for edit, message in EDITS),
    (lambda: Mixing.from_entries([0, 0], [0, 1], [1.0, 1.0], (4, 5)), "two entries", ValueError),
)


# --- dimensions.tsv as a person edits it


def test_the_table_says_what_the_model_is(model: Embedder, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "model")
    lines = (tmp_path / "model" / "dimensions.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "dimension\tname\tscale\tabout" and len(lines) == 7
    for number, (line, dimension) in enumerate(zip(lines[1:], model.dimensions, strict=True)):
        assert line.split("\t") == [str(number), dimension.name, "1", " | ".join(dimension.about)]


def test_an_anchor_text_changed_in_the_table_is_encoded_anew(tmp_path: Path) -> None:
    model = AnchorEmbedder(hashed, ["one", "two", "three"]).scale({1: 2, 2: 3}).rename({2: "number"})
    model.save_pretrained(tmp_path / "model")
    edit_table(tmp_path / "model", cell(1, 3, 'a\tbetter\n"two"'))
    edit_table(tmp_path / "model", cell(2, 3, "four"))
    after = opened(model, tmp_path / "model")
    expected = AnchorEmbedder(hashed, ["one", 'a\tbetter\n"two"', "four"]).scale({1: 2, 2: 3})
    np.testing.assert_allclose(after.encode(PROBES), expected.encode(PROBES), rtol=1e-3, atol=2e-3)
    assert after.dimensions.names == ["one", 'a better "two"', "number"]  # a name of one's own stays
    assert [item.about for item in after.dimensions] == [("one",), ('a\tbetter\n"two"',), ("four",)]
    assert list(reopened(after, tmp_path / "again").dimensions) == list(after.dimensions)


def test_bars_in_a_changed_cell_separate_texts_unless_a_backslash_says_no(tmp_path: Path) -> None:
    anchors().save_pretrained(tmp_path / "model")
    edit_table(tmp_path / "model", cell(0, 3, "one | two"))
    edit_table(tmp_path / "model", cell(1, 3, r"two \| three"))
    after = opened(anchors(), tmp_path / "model")
    assert ([item.about for item in after.dimensions][:2], after.dimensions.names[:2]) == (
        [("one", "two"), ("two | three",)],
        ["one | two", "two | three"],
    )
    mean = hashed(["one", "two"])
    mean = (mean / np.linalg.norm(mean, axis=1, keepdims=True)).sum(axis=0)
    np.testing.assert_allclose(after.vectors[0], mean / np.linalg.norm(mean), atol=1e-3)


def test_the_table_as_a_spreadsheet_writes_it(model: Embedder, tmp_path: Path) -> None:
    """In another order, with blank rows, a byte order mark and CRLF, and every cell quoted."""
    model.save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "dimensions.tsv"
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, dialect="excel-tab"))
    with open(path, "w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, dialect="excel-tab", quoting=csv.QUOTE_ALL).writerows([rows[0], *rows[:0:-1], [""] * 4])
    assert path.read_bytes().startswith(b'\xef\xbb\xbf"dimension"\t') and b"\r\n" in path.read_bytes()
    assert list(opened(model, tmp_path / "model").dimensions) == list(model.dimensions)


TABLES = [
    (lambda rows: rows[:3] + rows[4:], r"1 of 6 dimensions have no row \(2\).* set its scale to 0"),
    (lambda rows: rows[:2], r"5 of 6 dimensions have no row \(1, 2, 3, 4, 5\)"),
    (lambda rows: rows[:1], r"6 of 6 dimensions have no row \(0, 1, 2, 3, 4 ...\)"),
    (lambda rows: [*rows, rows[2]], "line 8: dimension 1 has a second row; leave one of them"),
    (lambda rows: rows[1:], "must begin with the heading dimension name scale about"),
    (lambda rows: [], "must begin with the heading"),
    (lambda rows: [[*rows[0], "note"], *rows[1:]], "must begin with the heading"),
    (lambda rows: [*rows[:2], rows[2][:3], *rows[3:]], "line 3 has 3 cells, not 4"),
    (lambda rows: [*rows[:2], [*rows[2], "x"], *rows[3:]], "line 3 has 5 cells, not 4"),
    (cell(0, 0, "6"), "line 2: '6' is not a dimension; they are 0 to 5"),
    (cell(0, 0, "-1"), "'-1' is not a dimension"),
    (cell(0, 0, "zero"), "'zero' is not a dimension"),
    (cell(0, 0, "²"), "is not a dimension"),
    (cell(0, 0, "9" * 6000), "is not a dimension"),
    (cell(0, 2, "much"), "line 2: the scale is 'much'; it must be a number"),
    (cell(0, 2, "0,5"), "the scale is '0,5'"),
    (cell(0, 2, ""), "the scale is ''"),
    (cell(0, 2, "-1"), "the scale is '-1'"),
    (cell(0, 2, "nan"), "the scale is 'nan'"),
    (cell(0, 2, "inf"), "the scale is 'inf'"),
    (cell(0, 2, "1e-400x"), "the scale is '1e-400x'"),
    (cell(1, 2, "９" * 400), "line 3: the scale is"),
    (cell(0, 2, "1e400"), "the scale is '1e400'"),
    (cell(0, 2, "1e30"), "between 0 and a million"),
    (cell(0, 1, ""), "dimension 0 has an empty name"),
    (lambda rows: cell(0, 1, rows[2][1])(rows), "dimensions 0 and 1 have the same name"),
]
ANCHOR_TEXTS = [
    ("", "the anchor text of 'anchor 2' is empty; to drop a dimension use model.without"),
    (" ", "is empty"),
    ("zero", r"the encoder maps anchor 0 \('zero'\) to zero"),
    ("anchor 3", "dimensions 2 and 3 have the same name"),
]


@pytest.mark.parametrize(
    ("make", "change", "message"),
    [
        *((make, change, message) for make in MODELS.values() for change, message in TABLES),
        *((anchors, cell(2, 3, text), message) for text, message in ANCHOR_TEXTS),
    ],
)
def test_a_table_that_cannot_be(tmp_path: Path, make, change, message: str) -> None:
    make().save_pretrained(tmp_path / "model")
    edit_table(tmp_path / "model", change)
    with pytest.raises(ModelFolderError, match=message) as caught:
        opened(make(), tmp_path / "model")
    assert "dimensions.tsv" in str(caught.value)


@pytest.fixture
def small_tables(monkeypatch):
    monkeypatch.setattr("pellucid.core.dimensions._MAX_BYTES", 1000)


HEADING = b"dimension\tname\tscale\tabout\n"
test_a_file_that_is_no_table = refused(
    *((lambda tmp_path, small_tables, content=content: read_dimensions(written(tmp_path / "d.tsv", content), 1),
       message, ModelFolderError)
      for content, message in (
          (HEADING + b"0\t\xfc\t1\tx\n", "is not UTF-8"),
          (HEADING + b'0\t"a"b\t1\tx\n', "line 2: "),
          (HEADING + b'0\t"a\t1\tx\n', "line 2: unexpected end of data; check its quotation marks"),
          (b"dimension,name,scale,about\n0,a,1,x\n", "separated by tabs"),
          (b"", "must begin with the heading"),
          (HEADING + b"0\ta\t1\t" + b"x" * 1000, "larger than the 1,000 bytes"))),
)  # fmt: skip


hostile = st.text(st.characters(exclude_characters="\x00", exclude_categories=()), min_size=1, max_size=12) | (
    st.lists(
        st.sampled_from(['"', "\t", "\n", "\r", "\r\n", "\u2028", "\x85", " | ", "'", "\ufeff", "a", "=1", *"|\\ +-@"]),
        min_size=1,
    )
).map("".join)


@given(st.lists(st.tuples(hostile, st.lists(hostile, min_size=1, max_size=3)), max_size=5))
def test_any_text_survives_the_table(tmp_path_factory: pytest.TempPathFactory, items) -> None:
    try:
        dimensions = Dimensions(Dimension(name, tuple(about)) for name, about in items)
    except InputError:  # two names alike, or a blank one
        return
    if not items:
        return
    path = tmp_path_factory.getbasetemp() / "any.tsv"
    write_dimensions(path, dimensions)
    again, scales = read_dimensions(path, len(dimensions))
    assert list(again) == list(dimensions)
    with open(path, encoding="utf-8", newline="") as file:
        cells = [cell for row in csv.reader(file, dialect="excel-tab") for cell in row]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) for cell in cells)  # formulas
    assert set(scales) == {1.0}


ODD = [
    'say "no"',
    '"quoted"',
    "a\tb",
    "one\ntwo",
    "one\r\ntwo three",
    "carriage\rreturn",
    "line\u2028separator",
    "\ufeffmark",
    "lone \ud800",
    "=1+1",
]


def test_odd_anchor_texts_come_back_unchanged(tmp_path: Path) -> None:
    encoder = Mock(spec=[], side_effect=hashed)
    model = AnchorEmbedder(encoder, [*ODD, "long " * 60_000])
    model.save_pretrained(tmp_path / "model")
    encoder.reset_mock()
    after = AnchorEmbedder.from_pretrained(tmp_path / "model", encoder=encoder)
    encoder.assert_called_once_with([ODD[0]])  # the check alone: nothing counts as changed
    assert list(after.dimensions) == list(model.dimensions)
    assert all("\n" not in name and "\t" not in name for name in after.dimensions.names)


# --- the names of static dimensions


def test_directions_are_named_by_the_words_at_their_ends() -> None:
    words = ["the", "loan", "bank", "river", "boat", "42", "of"]
    vectors = np.array([[0, 1], [9, 1], [3, 0], [-1, 0], [-7, 1], [90, 0], [-90, 0]], np.float32)
    model = StaticEmbedder(Vocabulary(words), vectors)
    first = model.dimensions[0]
    # compared at length 1; no numbers, no short words
    assert (first.name, first.about) == (
        "bank, loan, the / river, boat, the",
        ("high: bank, loan, the, boat, river", "low: river, boat, the, loan, bank"),
    )
    assert model.dimensions is model.dimensions


def test_directions_of_the_same_ends_are_told_apart() -> None:
    vectors = np.repeat(np.array([[1], [2], [-1]], np.float32), 3, axis=1)
    names = StaticEmbedder(Vocabulary(["apple", "pear", "car"]), vectors).dimensions.names
    assert len(set(names)) == 3 and names[1].endswith(" (1)") and names[2].endswith(" (2)")


@pytest.mark.parametrize("words", [[], ["a"], ["42", "of"]])
def test_a_vocabulary_of_hardly_any_words_has_names_too(words: list[str], tmp_path: Path) -> None:
    model = StaticEmbedder(Vocabulary(words), np.ones((len(words), 3), np.float32))
    assert len(set(model.dimensions.names)) == 3
    if words:
        assert list(reopened(model, tmp_path / "model").dimensions) == list(model.dimensions)


def test_a_family_without_edits_says_so() -> None:
    class Fixed(StaticEmbedder):
        family = "fixed"
        dimensions = Embedder.dimensions
        _edited = Embedder._edited

    model = Fixed(Vocabulary(["a"]), np.ones((1, 2), np.float32))
    assert model.dimensions.names == ["dimension 0", "dimension 1"]
    with pytest.raises(InputError, match="the dimensions of a fixed model cannot be edited"):
        model.without(0)
