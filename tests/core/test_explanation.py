"""The views of an explanation: each says the same numbers, which add up, about any text and at any width."""

import copy
import html
import pickle
import re
import sys
from dataclasses import replace
from io import StringIO
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.errors import MissingExtraError
from pellucid.explain.explanation import Explanation
from pellucid.explain.groups import phrase_text
from pellucid.explain.rows import SHARED, JoinedRows, Measurement, PairTable, Row
from pellucid.explain.views.page import page
from pellucid.explain.views.parts import Column, Fold, Piece, TablePart, bars, counted, cut, listed, percent, signed
from pellucid.explain.views.terminal import plain
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Coverage, Vocabulary
from refusals import refused
from tables import CONTROLS, check_json, check_page, check_terminal
from tiny_models import piece_tokenizer

HOSTILE = [
    "</p></div><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)> & &amp;',
    "$x^{ \\frac apple",
    "[bold]apple[/bold] [/] [link=x]pear",
    "apple \x1b[31mpear\x1b]0;title\x07 \x00\x08\x9b1m",
    "שלום apple مرحبا \u202epear\u202c \u2067car",
    "e\u0301cole 👩‍👩‍👧 apple\u0301 日本 🍎",
    "apple\r\npear\u2028car\x85the\tapple",
    "\ud800apple \udfff",
    "",
    " ",
    "apple " * 10_000,
    "x" * 50_000,
]


def anchors(exact: bool = False) -> Explanation:
    """An explanation as a family with one part a row gives it."""
    rows = [Row("home loans", ("home loans",), 0.4, 0.0), Row("<b>weather</b>", ("<b>weather</b>",), -0.1, 0.0)]
    return Explanation.from_terms("anchors", ("a text", "b text"), 0.3 if exact else 0.5, rows, exact=exact)


@given(st.integers(0, 4), st.integers(0, 4), st.booleans(), st.integers(0, 100))
def test_the_words_of_a_table_of_pairs_add_up_as_its_rows_do(width1: int, width2: int, shared: bool, seed: int) -> None:
    random = np.random.default_rng(seed)

    def word(side: str, number: int) -> Row:
        spans = tuple((start, start + 1) for start in range(number, 6, number + 2))
        return Row(f"{side}{number}", (f"{side}{number}",), 0.0, 0.0, spans, key=(f"{side}{number}",))

    pairs = PairTable(lambda number: word("a", number), lambda number: word("b", number), (width1, width2))
    common = Row("common", ("common",), 0.0, 0.0, kind=SHARED)
    made = JoinedRows([("", width1 * width2, pairs), ("", int(shared), lambda _: common)])
    values = random.standard_normal(width1 * width2 + shared)
    whole = Explanation.from_terms("static", ("a text", "b text"), float(values.sum()), values, made)
    plain = Explanation("static", "a text", "b text", whole.score, tuple(whole.rows), True)
    for text in (1, 2):
        assert list(whole.word_contributions(text)) == list(plain.word_contributions(text))
        assert whole.word_contributions(text) == pytest.approx(plain.word_contributions(text))


@st.composite
def explanations(draw: st.DrawFn) -> Explanation:
    """An explanation by a random model of one or two random texts, or a difference of two."""
    words = ["apple", "pear", "car", "the", "日本", "école"]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    model = StaticEmbedder(Vocabulary(words), rng.normal(size=(6, 4)).astype(np.float32))
    text = st.text(max_size=15) | st.lists(st.sampled_from([*words, *HOSTILE[:9]]), max_size=8).map(" ".join)
    kind = draw(st.sampled_from(["one", "two", "difference"]))
    if kind == "one":
        return model.explain(draw(text))
    first = draw(text)
    why = model.explain(first, draw(text))
    return why if kind == "two" else why - model.explain(first, draw(text))


def numbers(view: str) -> list[float]:
    """Return the contribution column of a plain table, score last."""
    return [float(match) for match in re.findall(r"^ *([+-]\d+\.\d{4}) ", view, re.MULTILINE)]


def of_terms(score: float, *rows: Row, text2: str = "b", exact: bool = True) -> Explanation:
    return Explanation.from_terms("anchors", ("a", text2), score, rows, exact=exact)


def of_values(score: float, *values: float) -> Explanation:
    """An explanation whose rows are made of numbers."""
    names = [f"d{number}" for number in range(len(values))]
    return Explanation.from_terms(
        "anchors", ("a", "b"), score, np.array(values), lambda n: Row(names[n], (names[n],), 0.0, 0.0)
    )


X, TWICE = Row("x", ("x",), 0.4, 0.0), [Row("the", ("the",), 0.25, 0.0), Row("the", ("the",), 0.5, 0.0)]
test_what_cannot_be_is_refused = refused(
    (lambda fruit: fruit.explain("apple").word_contributions(2), "text is 2; this explanation has texts 1 to 1"),
    (lambda fruit: fruit.explain("apple").to_html(top_k=-1), "top_k is -1"),
    (lambda fruit: fruit.explain("apple").groups(0), "k is 0"),
    *((lambda fruit, why=why: why(fruit).check(), "explain the two texts anew") for why in (
        lambda m: m.explain("apple"), lambda m: m.explain("car", "apple") - m.explain("car", "pear"),
        lambda m: pickle.loads(pickle.dumps(m.explain("apple pear", "car apple"))))),
    (lambda monkeypatch: (monkeypatch.setitem(sys.modules, "pandas", None), anchors().to_frame()),
     r'pip install "pellucid\[frames\]"', MissingExtraError),
    (lambda: of_terms(0.5, X), "or exact=False"),
    (lambda: of_terms(float("nan"), X), "nan"),
    (lambda: of_terms(0.75, *TWICE), "the rows hold 'the' twice"),  # subtraction would lose one of the two
    (lambda: of_terms(0.40005, X), "miss the score"),  # too much for rounding
    (lambda: of_terms(0.4, X._replace(contribution=float("inf")), exact=False), "not a finite number"),
    (lambda: of_values(0.3, 0.2), "miss the score"),
    (lambda: of_values(0.3, np.nan), "not a finite number"),
    (lambda fruit: fruit.explain("pear", "apple") - fruit.explain("apple", "pear"), "same text 1"),
    (lambda fruit: fruit.explain("a text", "apple") - anchors(), "family anchors"),
    (lambda fruit: fruit.explain("apple") - fruit.explain("apple"), "two texts"),
    (lambda fruit: fruit.explain("apple", "pear") - 1, "unsupported operand", TypeError),
)  # fmt: skip


def test_the_dict_of_a_small_explanation_is_pinned(fruit: StaticEmbedder) -> None:
    assert fruit.explain("pear zebra").to_dict() == {
        "version": 2,
        "summary": 'Mainly about "pear" (100%). Unknown words: "zebra".',
        "family": "static",
        "text1": "pear zebra",
        "text2": None,
        "score": pytest.approx(1.0),
        "rows": [
            {
                "name": "pear",
                "parts": ["pear"],
                "contribution": pytest.approx(1.0),
                "share": pytest.approx(1.0),
                "spans1": [[0, 4]],
                "spans2": [],
                "spans3": [],
                "key": ["pear", "pear"],
                "kind": "word",
            }
        ],
        "remainder": pytest.approx(0.0, abs=1e-15),
        "percentile": None,
        "exact": True,
        "unknown1": [[5, 10]],
        "unknown2": [],
        "text3": None,
        "unknown3": [],
        "coverage": [{"known": 1, "total": 2, "partly": 0, "share": 0.5, "read_as": []}],
        "measurement": None,
        "groups": [
            {
                "name": "pear",
                "contribution": pytest.approx(1.0),
                "share": pytest.approx(1.0),
                "kind": "phrase",
                "spans1": [[0, 4]],
                "spans2": [],
                "spans3": [],
                "without": None,
            }
        ],
    }


@pytest.mark.full
@given(explanations())
def test_json_fits_the_schema(why: Explanation) -> None:
    why.to_json().encode("utf-8")
    assert check_json(why) == why.to_dict()


def test_a_term_that_is_there_twice_needs_a_key_of_its_own() -> None:
    told = [row._replace(key=(str(number),)) for number, row in enumerate(TWICE)]
    gap = of_terms(0.75, *told) - of_terms(0.25, told[0], text2="c")
    assert sorted(row.contribution for row in gap.rows) == [0.0, 0.5] and gap.score == 0.5


def test_what_is_left_over_is_the_remainder_and_nothing_sets_it_to_zero() -> None:
    assert of_terms(0.4000001, X).remainder == pytest.approx(1e-7, rel=1e-6)
    assert of_terms(0.40005, X, exact=False).remainder == 0.40005 - 0.4
    assert repr(anchors()) == "<Explanation anchors: score 0.5000, 2 rows, remainder +0.2000>"
    assert (anchors() - anchors()).remainder == 0
    assert [(why - anchors()).exact for why in (anchors(), anchors(exact=True))] == [False, False]
    assert [row.name for row in of_terms(0.8, X._replace(name="y", parts=("y",)), X).rows] == ["x", "y"]  # by name


def test_a_word_in_another_spelling_is_the_same_term(fruit: StaticEmbedder) -> None:
    why = fruit.explain("apple", "Apple pear") - fruit.explain("Apple".lower(), "the apple")
    assert len([row for row in why.rows if "pple × " in row.name and row.name.lower().endswith("apple")]) == 1
    cased = StaticEmbedder(Vocabulary(["US", "us", "the"]), np.eye(3, dtype=np.float32) + 0.1)
    why = cased.explain("us", "US us Us") - cased.explain("us", "us")
    assert sorted(row.key for row in why.rows) == [("us", "us", "US", "us"), ("us", "us", "us", "us")]


def test_rows_made_of_numbers_are_those_that_are_written_out() -> None:
    why = of_values(0.2, 0.1, -0.4, 0.0, 0.5)
    assert [row.name for row in why.rows] == ["d3", "d1", "d0", "d2"]
    assert why.contributions.tolist() == [0.5, -0.4, 0.1, 0.0] and why.remainder == pytest.approx(0, abs=1e-15)
    assert [row.name for row in why.reasons(9)] == ["d3", "d0"] and [row.name for row in why.reasons(1)] == ["d3"]
    assert why.rows[1] == Row("d1", ("d1",), -0.4, pytest.approx(-2.0), key=("d1", "d1"))
    eager = Explanation.from_terms("anchors", ("a", "b"), 0.2, list(why.rows))
    assert why == eager == pickle.loads(pickle.dumps(why)) == copy.deepcopy(why) and hash(why) == hash(eager)
    assert str(why) == str(eager) and (why - eager).score == 0


def test_an_explanation_keeps_no_vectors_and_a_copy_no_model(fruit: StaticEmbedder) -> None:
    """Who keeps a thousand explanations should not keep their texts' vectors."""
    why = fruit.explain("apple pear", "car apple")
    assert why.pair is not None and set(vars(why.pair)) == {"_model", "_roles"}
    unread, checked, copied = pickle.loads(pickle.dumps(why)), why.groups(), pickle.loads(pickle.dumps(why))
    assert copied == why and copied.pair is None and copied.groups() == checked
    assert unread.groups()[0].without is None  # nothing is scored for a copy


def test_every_view_says_of_which_text_little_is_known(fruit: StaticEmbedder) -> None:
    why, said = fruit.explain("apple zebra quagga", "apple pear"), "Only 1 of 3 words of text 1 known"
    assert [coverage.share for coverage in why.coverage] == [1 / 3, 1.0]
    assert '<span class="unknown" title="not in the vocabulary">zebra</span>' in why.to_html()
    assert f'<p class="warning" dir="auto">{said}' in why.to_html() and "words of text 2 known" not in str(why)
    assert why.to_frame().attrs["coverage"] == (1 / 3, 1.0)
    gap = fruit.explain("apple", "pear") - fruit.explain("apple", "car zebra quagga")
    assert "Only 1 of 3 words of text 3 known" in str(gap) and gap.unknown_words(3) == ["zebra", "quagga"]
    assert "Similarity to text 2 less similarity to text 3" in str(gap)
    assert "Only 0 of 2 words of the text known: the model can say nothing of it." in str(fruit.explain("zebra quagga"))
    assert "words of" not in str(fruit.explain("apple zebra", "apple")) + str(fruit.explain(""))  # half is enough
    for text1, text2, blank in (("zebra", "apple", "text 1"), ("a zebra", "quagga", "text 1 and text 2")):
        assert f"the model knows nothing of {blank}." in fruit.explain(text1, text2).summary()


def test_a_word_known_by_its_beginning_counts_its_letters_and_is_told_apart() -> None:
    subwords = piece_tokenizer(["token", "##iser", "##s"])
    model = StaticEmbedder(Vocabulary(["token", "the"], subwords), np.eye(2, dtype=np.float32))
    why = model.explain("the tokenisers zebra Token tokeniser")
    read = ("tokenisers", "token"), ("tokeniser", "token")
    assert why.coverage == (Coverage(4, 5, partly=2, share=(2 + 5 / 10 + 5 / 9) / 5, read_as=read),)
    counts = {"known": 4, "total": 5, "partly": 2, "share": (2 + 5 / 10 + 5 / 9) / 5}
    assert why.to_dict()["coverage"] == [counts | {"read_as": [["tokenisers", "token"], ["tokeniser", "token"]]}]
    assert model.coverage("the tokenisers zebra Token tokeniser") == np.float32((2 + 5 / 10 + 5 / 9) / 5)
    assert 'only partly known: "tokenisers" read as "token", "tokeniser" read as "token"' in " ".join(str(why).split())
    assert "only partly known: &quot;tokenisers&quot; read as &quot;token&quot;" in why.to_html()
    few = model.explain("tokenisers zebra", "the")
    said = "Only 25% (1 of 2 words, 1 of them partly) of text 1 known: the score rests on it."
    assert few.coverage[0].share == 0.25 and said in str(few)
    described = "mostly about: tokenisers (read as token) (100%) (only 25% (1 of 2 words, 1 of them partly) known)"
    assert model.describe("tokenisers zebra") == described


@given(
    st.lists(st.tuples(st.text(min_size=1), st.text(), st.floats(0, 1)), max_size=9),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_a_coverage_lies_between_whole_and_partly_known(partly: list, whole: int, unknown: int) -> None:
    known = Coverage.from_words(whole + len(partly), whole + len(partly) + unknown, partly)
    assert (known.known, known.partly) == (whole + len(partly), len(partly))
    assert known.share == pytest.approx((whole + sum(part for *_, part in partly)) / known.total if known.total else 1)
    assert {word.lower() for word, _ in known.read_as} == {w.lower() for w, _, part in partly if part <= 2 / 3}


def test_a_family_from_a_file_cannot_steer_a_terminal(fruit: StaticEmbedder) -> None:
    why = replace(fruit.explain("apple [red]", "pear"), family="\x1b[31m[red]<b>")
    check_terminal(why)
    assert "\x1b" not in repr(why) + str(why) and "<b>" not in why.to_html().replace("<b>0.", "")
    assert "[red]" in str(why)


@pytest.mark.needs("pandas")
def test_frame_adds_up_with_the_remainder(fruit: StaticEmbedder) -> None:
    frame = fruit.explain("apple car", "pear bicycle").to_frame()
    assert list(frame.columns) == [
        "name",
        "parts",
        "contribution",
        "share",
        "spans1",
        "spans2",
        "spans3",
        "key",
        "kind",
    ]
    assert frame["contribution"].sum() == pytest.approx(frame.attrs["score"])
    assert (frame.attrs["family"], frame.attrs["exact"]) == ("static", True)
    frame = anchors().to_frame()
    assert (*frame[["contribution", "share"]].sum(), frame["name"].iloc[-1]) == (
        pytest.approx(0.5), pytest.approx(1.0), "(remainder)",
    )  # fmt: skip
    assert fruit.explain("").to_frame().empty


@given(explanations(), st.integers(0, 12))
def test_the_terminal_tables_add_up_however_many_rows_are_shown(why: Explanation, top_k: int) -> None:
    lines, view = numbers(why.to_text()), why.to_text(rows=True, top_k=top_k, width=100)
    assert "\x1b" not in view and numbers(view)[: len(lines)] == lines
    *rows, score = numbers(view)[len(lines) :] or [0.0]
    for table in (lines[:-1], rows):
        assert abs(sum(table) - score) <= 5e-5 * (len(table) + 1)
    assert abs(score - why.score) <= 5e-5
    assert len(rows) == min(top_k, len(why.rows)) + (len(why.rows) > top_k)


def test_a_notebook_gets_nothing_beside_the_text(fruit: StaticEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    why = fruit.explain("apple", "pear")
    shown: list[object] = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda segments, text: shown.append(text))
    expected = why.to_text()
    assert "adding up to the score" in expected and str(why) == expected and shown == []


@pytest.mark.parametrize(
    ("context", "words", "said"),
    [
        (
            0.26,
            0.74,
            "The words account for +0.74 of +1.00; the rest is not explained by words. Measure it: model.with_",
        ),
        (-0.26, 1.26, "The words account for +1.26 of +1.00"),
        (0.06, 0.1, "The words account for +0.10 of +0.16"),
        (0.24, 0.76, None),
        (0.04, 0.1, None),  # a small one, of a score near that of any two texts
    ],
)
def test_a_view_warns_of_a_context_that_is_more_than_a_quarter(context: float, words: float, said: str | None) -> None:
    kinds = {"shared part": 0.3, "context": context, "word": words}
    why = of_terms(0.3 + context + words, *(Row(kind, (kind,), v, 0.0, kind=kind) for kind, v in kinds.items()))
    warnings = re.findall('<p class="warning" dir="auto">(.*?)</p>', why.to_html())
    assert len(warnings) == bool(said) and "".join(warnings).startswith(said or "")


@pytest.mark.parametrize(
    ("values", "styles"),
    [
        ([1.0, -0.25, 0.0], [("for", "left:20.0%;width:80.0%"), ("against", "left:0.0%;width:20.0%")]),
        ([-1.0, 0.5], [("against", "left:0.0%;width:66.7%"), ("for", "left:66.7%;width:33.3%")]),
    ],
)
def test_bars_of_a_page_begin_at_0_on_one_scale(values: list[float], styles: list[tuple[str, str]]) -> None:
    table = TablePart("", (Column("", "bar"),), tuple((value,) for value in values))
    assert re.findall('<i class="(.*?)" style="(.*?)">', page([table], fragment=True)) == styles


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (percent(0.0), "0.0%"), (percent(0.0004), "< 0.1%"), (percent(0.0006), "0.1%"),
        (signed(None), "\u2013"), (signed(-0.0004), "0.000"), (signed(0.5, 1), "+0.5"),
        (counted(0, "text"), "0 texts"), (counted(1, "text"), "1 text"), (counted(2000, "box", "boxes"), "2,000 boxes"),
        (listed("a" * 12), "a" + ", a" * 11), (listed("a" * 14), "a" + ", a" * 11 + " and 2 more"),
        (listed(["a" * 40, "b" * 41]), "a" * 40 + ", " + "b" * 39 + "\u2026"),
        (bars([None, 0.25, -0.5]), [None, 0.5, -1.0]),
        ([piece.text for piece in cut([Piece("abc"), Piece("de")], 5)], ["abc", "de"]),
        ([piece.text for piece in cut([Piece("abc"), Piece("de")], 2)], ["ab", " \u2026 3 characters more"]),
    ],
)  # fmt: skip
def test_numbers_and_names_are_written_so(written: object, expected: object) -> None:
    assert written == expected


@pytest.mark.parametrize(
    ("error", "said"), [(0.0, "no sampling error"), (0.0123, "the standard error of what a word adds is 0.0123")]
)
def test_a_view_says_how_rows_were_measured(error: float, said: str) -> None:
    why = replace(of_terms(-0.4, X._replace(contribution=-0.4)), measurement=Measurement(9, error))
    lines = str(why).splitlines()
    assert f"Measured by leaving words out: 9 texts read, {said}." in lines
    assert "The score is negative, so the rows that lower it have the positive shares." in lines


def test_shares_are_not_shown_where_they_mislead() -> None:
    view = str(of_values(0.001, 0.400, -0.399))
    assert "%" not in view and "nearly cancel" in view


@pytest.mark.parametrize(
    ("environment", "terminal", "colour", "underline"),
    [({}, True, True, True), ({"NO_COLOR": "1"}, True, False, True), ({}, False, False, False)],
)
def test_colour_follows_the_terminal_and_no_color(
    fruit: StaticEmbedder, environment: dict[str, str], terminal: bool, colour: bool, underline: bool
) -> None:
    from rich.console import Console

    written = StringIO()
    console = Console(
        file=written, force_terminal=terminal, width=100, _environ={"TERM": "xterm-256color", **environment}
    )
    console.print(fruit.explain("apple pear", "apple car"))
    codes = "".join(re.findall(r"\x1b\[([\d;]*)m", written.getvalue()))
    assert ("38;5" in codes) == colour
    assert bool(codes) == underline
    assert "+0." in written.getvalue()


@pytest.mark.parametrize("text", [*HOSTILE[:11], *(pytest.param(t, marks=pytest.mark.full) for t in HOSTILE[11:])])
def test_no_text_can_steer_a_terminal_or_a_page(fruit: StaticEmbedder, text: str) -> None:
    for why in (fruit.explain(text, "apple " + text), fruit.explain("pear", text), fruit.explain(text)):
        check_terminal(why)
        assert not re.search(CONTROLS.replace("\u061c\u200e\u200f", ""), str(why))
        assert "[bold]" in str(why) or "[bold]" not in text
        check_page(why)


@given(explanations())
def test_pages_show_the_texts_as_they_are(why: Explanation) -> None:
    shown = re.findall('<p class="own" dir="auto">(.*?)</p>', why.to_html(fragment=True), re.DOTALL)
    for own, text in zip(shown, why.texts, strict=True):
        controls = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202d\u202e]"  # shown by a sign of the same length
        pattern = ".".join(map(re.escape, re.split(controls, text)))
        assert re.fullmatch(pattern, html.unescape(re.sub("<[^>]*>", "", own)), re.DOTALL)


def test_a_word_of_both_other_texts_is_one_row_of_a_difference(fruit: StaticEmbedder) -> None:
    why = fruit.explain("apple", "apple pear") - fruit.explain("apple", "the apple")
    row = next(row for row in why.rows if row.name == "apple × apple")
    assert (row.spans1, row.spans2, row.spans3) == (((0, 5),), ((0, 5),), ((4, 9),))


def test_a_notebook_sets_no_dollars_as_formulas(fruit: StaticEmbedder) -> None:
    html = fruit.explain("apple for $5 or $10", "pear")._repr_html_()
    assert html.startswith('<div class="pellucid mathjax_ignore tex2jax_ignore">')
    assert "&lt;b&gt;weather&lt;/b&gt;" in anchors()._repr_html_()


@pytest.mark.parametrize(
    ("phrase", "name"),
    [
        ("manager 'pass", "manager pass"),
        ("the 'pass' manager", "the 'pass' manager"),
        ('said "no', "said no"),
        ("(see page", "see page"),
        ("don't, the boys' (own)", "don't, the boys' (own)"),
        ("\u201eHaus", "Haus"),
        ("\u201eHaus\u201c", "\u201eHaus\u201c"),
        ("l\u2019eau", "l\u2019eau"),
        ("a" * 70, "a" * 59 + "\u2026"),
        ("a" * 60, "a" * 60),
        ("word " * 20, "word " * 11 + "word\u2026"),
        ("longword " * 8, "longword " * 5 + "longword\u2026"),
    ],
)
def test_a_name_is_short_and_has_no_half_of_a_pair_of_marks(phrase: str, name: str) -> None:
    assert phrase_text(phrase, (0, len(phrase))) == name


def test_the_terminal_view_says_what_it_shows(fruit: StaticEmbedder) -> None:
    view = str(fruit.explain("apple pear zebra", "apple, quagga"))
    assert 'Similarity 0.98 (higher than 98% of unrelated pairs): both say "apple" (+0.59; without it ' in view
    assert "2 word pairs adding up to the score exactly" in view and "not in the vocabulary: zebra" in view
    narrow = fruit.explain("apple pear", "apple car").to_text(width=48, rows=True)
    assert "apple \u00d7 apple" in narrow and max(map(len, narrow.splitlines())) <= 48
    assert "sum of 1 more word pair\n" in fruit.explain("apple pear", "apple").to_text(rows=True, top_k=1)
    assert numbers(str(anchors())) == [0.4, -0.1, 0.2, 0.5] and "what the rows leave out" in str(anchors())


# Tables in a terminal of any width: no column, title or number is lost, and no line is too long.

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


def check_table(table: TablePart, view: str, width: int) -> None:
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
    check_table(table, plain([Fold("more", (table,))] if is_folded else [table], width=width), width)


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
    for part in chain.from_iterable(each.parts if isinstance(each, Fold) else [each] for each in report._parts()):
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
