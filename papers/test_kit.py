"""The rule by which a claim holds and its intervals; results written, read and shown; pages as their templates."""

from __future__ import annotations

import argparse
import re
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers import kit
from papers.kit import (
    MIN_SEEDS,
    Interval,
    Table,
    Verdict,
    bootstrap,
    interval_of,
    interval_of_means,
    mean_interval,
    read_results,
    resampled,
    write_results,
)

RULE = re.compile(r"\s*\|(\s*:?-+:?\s*\|)+\s*")
"""What stands below the header of a table in Markdown."""

LEFT_OUT = {".venv", "node_modules", ".git"}

ENDS = st.floats(-20, 20).map(lambda end: round(end, 2))


@pytest.mark.parametrize(
    ("low", "high", "bound", "above", "said"),
    [
        (0.1, 0.9, 0, True, "**holds**"),
        (-0.9, -0.1, 0, False, "**does not hold**"),
        (-0.1, 0.1, 0, None, "undecided"),
        (0.0, 0.1, 0, None, "undecided"),  # 0 is not above 0
        (-0.1, 0.0, 0, False, "**does not hold**"),
        (0.0, 0.0, 0, False, "unchanged"),
        (80.0, 80.0, 80, False, "unchanged"),
        (70, 79, 80, False, "**does not hold**"),
        (79, 81, 80, None, "undecided"),
        (81, 90, 80, True, "**holds**"),
    ],
)
def test_a_claim_holds_if_all_of_its_interval_is_above_the_bound(low, high, bound, above, said):
    found = Interval((low + high) / 2, low, high)
    assert found.above(bound) is above and str(found.verdict(bound)) == said
    assert found.at_most(bound) is (None if above is None else not above)


def test_what_is_not_a_number_decides_nothing():
    unknown = Interval(np.nan, np.nan, np.nan)
    assert unknown.verdict() is Verdict.UNDECIDED and unknown.within(1) is None


def test_samples_are_the_same_items_for_every_model():
    worse = np.random.default_rng(0).uniform(size=60)

    def score(items):
        return 100 * items.mean(axis=-1)

    found = bootstrap(worse, score)
    assert found.shape == (1001,) and found[0] == pytest.approx(100 * worse.mean())
    assert bootstrap(worse + 0.1, score) - found == pytest.approx(10)
    assert found[1:].std() == pytest.approx(100 * worse.std() / np.sqrt(60), rel=0.15)
    assert (resampled(7, 3) == resampled(7, 3)).all() and resampled(7, 3).max() < 7


def test_the_interval_of_a_mean_is_two_standard_errors_to_each_side():
    values = np.random.default_rng(1).normal(3, 1, 400)
    drawn = interval_of(bootstrap(values, lambda items: items.mean(axis=-1)))
    told = interval_of_means(values.mean(), values.std() / 20)
    assert drawn[:3] == pytest.approx(told[:3], abs=0.02) and drawn == mean_interval(values)
    assert interval_of_means(1.0, 0.3, 0.4)[:3] == pytest.approx((1, 0.02, 1.98))  # errors of two means: 0.5
    assert interval_of_means(1.0, 0.3, 0.4).with_verdict() == "+1.0 (+0.0 to +2.0), **holds**"


@given(ENDS, ENDS, ENDS, st.integers(1, MIN_SEEDS - 1))
def test_too_few_seeds_decide_nothing_and_enough_what_the_interval_does(one, other, bound, few):
    whole = Interval((one + other) / 2, min(one, other), max(one, other))
    assert whole._replace(n_seeds=few).verdict(bound, same=1.0) is Verdict.UNDECIDED
    assert whole._replace(n_seeds=few).within(abs(bound)) is None
    assert whole._replace(n_seeds=MIN_SEEDS).verdict(bound) is whole.verdict(bound)


@given(ENDS, ENDS, st.floats(0, 20))
def test_two_things_are_the_same_if_all_of_the_interval_is_within_the_bound(one, other, bound):
    whole = Interval((one + other) / 2, min(one, other), max(one, other))
    inside, outside = whole.low >= -bound and whole.high <= bound, whole.low > bound or whole.high < -bound
    assert whole.within(bound) is (True if inside else False if outside else None)
    assert whole.within(bound) is whole._replace(low=-whole.high, high=-whole.low).within(bound)
    assert (whole.verdict(same=bound) is Verdict.UNCHANGED) == inside


@given(ENDS, ENDS)
def test_a_verdict_on_points_is_what_a_reader_of_the_printed_figures_comes_to(one, other):
    whole = Interval((one + other) / 2, min(one, other), max(one, other))
    printed = Interval(*(float(f"{end:.1f}") for end in whole[:3]))
    if 0 not in printed[1:3] or printed[1:3] == (0, 0):
        assert whole.difference_verdict() is printed.difference_verdict()


CELLS = st.none() | st.integers(-99, 99) | st.text('ab|*{}\\\n"é')


@given(
    st.dictionaries(
        st.text("ab-1", min_size=1), CELLS | st.lists(st.tuples(CELLS, CELLS)).map(lambda r: Table(["x", "y"], r))
    )
)
def test_results_are_read_as_they_were_written(tmp_path_factory, figures):
    path = tmp_path_factory.mktemp("kit") / "results" / "a.json"
    write_results(path, figures)
    write_results(path, {"one more": 1.0})
    kept = {name: entry["figure"] for name, entry in read_results(path).items()}
    assert {name: str(figure) for name, figure in kept.items()} == {
        **{name: str(figure) for name, figure in figures.items()},
        "one more": "1.0",
    }


def test_an_experiment_is_measured_once_for_each_setting_in_parts_and_goes_on(tmp_path):
    asked = []

    @kit.experiment(chooser=["fps", "é\u2028"], n=[2, 3])
    def scores(factor, chooser, n):
        asked.append((chooser, n))
        return {"score": factor * n}

    first = scores.rows(kit.Kept(tmp_path / "rows-0.jsonl"), 10, part=0, parts=2)
    assert asked == [("fps", 2), ("é\u2028", 2)] and first[0] == {"chooser": "fps", "n": 2, "score": 20}
    with open(tmp_path / "rows-0.jsonl", "ab") as file:
        file.write('\n["killed hé'.encode()[:-1])
    rows = scores.rows(kit.Kept(tmp_path / "rows-1.jsonl"), 10, part=1, parts=2)
    assert [row["score"] for row in rows] == [20, 30, 20, 30] and len(asked) == 4
    assert scores.rows(kit.Kept(tmp_path / "rows-0.jsonl"), 10) == rows and len(asked) == 4
    kit.Experiment(scores.measure, scores.grid, version=2).rows(kit.Kept(tmp_path / "rows-0.jsonl"), 10)
    assert len(asked) == 8  # another version is measured anew
    assert scores.rows(kit.Kept(tmp_path / "rows-0.jsonl"), 10) == rows  # behind the line that was cut off


def test_a_page_is_its_template_with_the_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(kit, "PAPERS", tmp_path)
    table = Table(
        ["model", "**score**", "verdict"], [["**ours**", 1.26, Verdict.HOLDS], ["a", None, Verdict.UNDECIDED]]
    )
    write_results(kit.results_path("papers.swe.x"), {"scores": table, "n": 3}, "yesterday on x86")
    page = (
        "{{x.scores}}\n{{x.n}} {{x.scores[ours; score & verdict]}} {{x.scores.measured}}\n| p | 9 |\n{{x.scores.rows}}"
        "\n{{x.scores<verdict | a*>}}\n{{x.scores.rows<score>}}"
    )
    (tmp_path / "swe" / "p.md.template").write_text(page)
    kit.write_pages()
    rows = "| **ours** | 1.3 | **holds** |\n| a | - | undecided |"
    want = f"| model | **score** | verdict |\n|---|---:|---:|\n{rows}\n3 1.3, holds yesterday on x86\n| p | 9 |\n{rows}"
    want += "\n| model | verdict |\n|---|---:|\n| a | undecided |\n| **ours** | 1.3 |\n| a | - |"
    assert (tmp_path / "swe" / "p.md").read_text() == want
    for missing, message in (
        ("{{x.m}}", "no figure 'm'"),
        ("{{x.scores[b; score]}}", "no row 'b'"),
        ("{{x.scores<score | b*>}}", "no rows"),
    ):
        (tmp_path / "swe" / "p.md.template").write_text(missing)
        with pytest.raises(LookupError, match=message):
            kit.write_pages()


@given(st.lists(st.text("ab*"), min_size=1, max_size=6))
def test_no_table_has_two_columns_of_one_name(names):
    shown = [name.replace("**", "") for name in names]
    if any(name and shown.count(name) > 1 for name in shown):
        with pytest.raises(ValueError, match="two columns are named"):
            Table(names, [])
    else:
        table = Table(names, [[float(n) for n in range(len(names))]])
        assert all(table.cell("0.0", name) == f"{shown.index(name)}.0" for name in shown)


PAGES = [path for path in sorted(kit.PAPERS.parent.rglob("*.md")) if not set(path.parts) & LEFT_OUT]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(kit.PAPERS.parent).as_posix())
def test_each_column_of_a_pages_tables_has_a_heading_of_its_own_and_each_row_every_column(page):
    header: list[str] = []
    for line, below in pairwise([*page.read_text(encoding="utf-8").splitlines(), ""]):
        cells = [cell.strip().replace("**", "") for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
        if RULE.fullmatch(below):
            header = cells
            assert not kit.repeated(header), line
        header = header if line.strip().startswith("|") else []
        assert not header or len(cells) == len(header), line


@pytest.mark.parametrize("template", kit.templates(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_pages_are_as_templates_and_results_give_them(template):
    assert template.with_suffix("").read_text(encoding="utf-8") == kit.render(template), "run: python -m papers.kit"


@pytest.mark.parametrize("write", [True, False])
def test_a_script_prints_and_keeps_what_it_measures(write, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kit, "PAPERS", tmp_path)
    monkeypatch.setattr(kit, "write_pages", lambda: None)
    monkeypatch.setitem(sys.modules, "__main__", argparse.Namespace(
        __doc__="Counts.", __spec__=argparse.Namespace(name="papers.swe.counts")))  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["x", "--times", "2", *["--write"] * write])
    kit.run_script(lambda options: [("n", 3 * options.times)], {"--times": {"type": int}})
    assert capsys.readouterr().out == "n\n\n6\n\n"
    assert kit.results_path("swe.counts").exists() == write
