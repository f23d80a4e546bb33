"""How results are told: intervals and verdicts, tables, results as JSON, pages as templates, and one main for scripts.

    python -m papers.kit

writes all pages anew: papers/PAPER/PAGE.md is PAGE.md.template with each {{script.figure}} replaced by what the script
measured, from papers/PAPER/results/script.json. {{script.figure<b & c | x*>}} is a table's first column, b and c, in
the rows x*; {{script.figure.measured}} is the day and machine.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PAPERS = Path(__file__).parent
DATA = PAPERS.parents[1] / "shared" / "data"
DRAWS = 1000
"""Bootstrap samples."""

MIN_SEEDS = 5
"""With fewer, all have one sign by chance in more than one case of twenty."""

SAME_AS_PRINTED = 0.05
"""Points: an interval within them is printed as +0.0 (+0.0 to +0.0), and its two sides count as the same."""

THREAD_SETTINGS = ("OMP", "OPENBLAS", "MKL", "RAYON")

# --- Claims -----------------------------------------------------------------------------------------------------------


class Verdict(Enum):
    """What a measurement says of a claim; in Markdown bold where it decides it."""

    HOLDS = "holds"
    DOES_NOT_HOLD = "does not hold"
    UNCHANGED = "unchanged"
    UNDECIDED = "undecided"
    NO_INTERVAL = "no interval"

    @classmethod
    def from_truth(cls, holds: bool | None) -> Verdict:
        """Return the verdict on a claim that holds, does not, or is undecided (None)."""
        return {True: cls.HOLDS, False: cls.DOES_NOT_HOLD, None: cls.UNDECIDED}[holds]

    def __str__(self) -> str:
        """Write it in Markdown."""
        return f"**{self.value}**" if self in (Verdict.HOLDS, Verdict.DOES_NOT_HOLD) else self.value


class Interval(NamedTuple):
    """A value and the ends of its 95 % interval (or of all its seeds).

    Attributes:
        value: what was measured.
        low: the lower end.
        high: the upper end.
        n_seeds: how many trainings it is of, where the claim is of a way to train; None where it is of models as they
            are, and chance lies in the test items alone.
    """

    value: float
    low: float
    high: float
    n_seeds: int | None = None

    def above(self, bound: float = 0.0) -> bool | None:
        """Return whether the value is above a bound: the rule of every page.

        Args:
            bound: what the claim says it is above.

        Returns:
            True if all of the interval is above, False if none of it, None (undecided) otherwise and for too few seeds.
        """
        if self.n_seeds is not None and self.n_seeds < MIN_SEEDS:
            return None
        return True if self.low > bound else False if self.high <= bound else None

    def at_most(self, bound: float = 0.0) -> bool | None:
        """Return whether the value is no more than a bound, by the same rule."""
        is_above = self.above(bound)
        return None if is_above is None else not is_above

    def within(self, bound: float) -> bool | None:
        """Return whether the value is the same as 0 up to a bound: equivalence, by the same rule.

        Args:
            bound: how large a difference may be that does not count, 0 for identity.

        Returns:
            True if all of the interval is within ± bound, False if none of it, None otherwise and for too few seeds.
        """
        sides = self.at_most(bound), self._replace(low=-self.high, high=-self.low).at_most(bound)
        return False if False in sides else None if None in sides else True

    def verdict(self, bound: float = 0.0, *, same: float = 0.0) -> Verdict:
        """Return what the interval says of the claim that the value is above a bound.

        Args:
            bound: what the claim says it is above.
            same: how far from the bound the interval may reach and count as unchanged; 0: if it is the bound itself.
        """
        if self.shifted(-bound).within(same):
            return Verdict.UNCHANGED
        return Verdict.from_truth(self.above(bound))

    def shifted(self, by: float) -> Interval:
        """Return the interval of the value plus a number."""
        return self._replace(value=self.value + by, low=self.low + by, high=self.high + by)

    def signed(self) -> str:
        """Write a difference."""
        return f"{self.value:+.1f} ({self.low:+.1f} to {self.high:+.1f})"

    def difference_verdict(self) -> Verdict:
        """Return what a difference in points says of the claim that it is above 0, or unchanged as it is printed."""
        return self.verdict(same=SAME_AS_PRINTED)

    def with_verdict(self) -> str:
        """Write a difference in points and what it says of the claim that it is above 0."""
        return f"{self.signed()}, {self.difference_verdict()}"


class Claim(NamedTuple):
    """A claim and whether it holds here.

    Attributes:
        text: the claim.
        verdict: what was found of it.
        measured: what it rests on here.
        paper: what it rests on in the paper.
        where: on which set or model, if it is tested more than once.
    """

    text: str
    verdict: Verdict
    measured: str
    paper: str = "-"
    where: str = ""


def by_claim(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """Return the tests of each claim."""
    tests: dict[str, list[Claim]] = {}
    for claim in claims:
        tests.setdefault(claim.text, []).append(claim)
    return tests


def resampled(count: int, draws: int = DRAWS) -> npt.NDArray[np.int64]:
    """Return the items of bootstrap samples of `count` items, [draws, count]; always the same ones."""
    import numpy as np

    return np.random.default_rng(0).integers(0, count, (draws, count))


def bootstrap(
    items: npt.NDArray[Any], score: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], draws: int = DRAWS
) -> npt.NDArray[Any]:
    """Return the score of items [count, ...], and then that of each bootstrap sample of them: [1 + draws].

    Args:
        items: what is drawn.
        score: of items [samples, count, ...], one for each sample.
        draws: how many samples.
    """
    import numpy as np

    return np.concatenate([score(items[None]), score(items[resampled(len(items), draws)])])


def interval_of(scores: npt.NDArray[Any], n_seeds: int | None = None) -> Interval:
    """Return the 95 % interval of a score from those of its bootstrap samples, [1 + draws].

    Args:
        scores: of all items, and then of each sample.
        n_seeds: as `Interval` has it.
    """
    import numpy as np

    low, high = np.quantile(scores[1:], (0.025, 0.975))
    return Interval(float(scores[0]), float(low), float(high), n_seeds)


def mean_interval(items: npt.NDArray[Any], n_seeds: int | None = None) -> Interval:
    """Return the 95 % interval of the mean of items [count], by bootstrap; `n_seeds` as `Interval` has it."""
    return interval_of(bootstrap(items, lambda drawn: drawn.mean(axis=1)), n_seeds)


def interval_of_means(difference: float, *errors: float) -> Interval:
    """Return the 95 % interval of a sum or difference of means with these standard errors."""
    half = 1.96 * sum(error**2 for error in errors) ** 0.5
    return Interval(difference, difference - half, difference + half)


# --- Tables and pages -------------------------------------------------------------------------------------------------

Cell = str | float | int | Verdict | None


@dataclass(frozen=True)
class Table:
    """A table of results.

    Attributes:
        columns: the header; no two are the same but for bold, empty ones aside.
        rows: the cells of each row; a float is written with one decimal, None as a dash.
        left: how many columns are text.

    Raises:
        ValueError: two columns have one name.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    left: int = 1

    def __post_init__(self) -> None:
        """Check the header."""
        if twice := repeated(self._names()):
            raise ValueError(f"two columns are named {twice[0]!r}; name each by its set and its metric")

    def _names(self) -> list[str]:
        return [name.replace("**", "") for name in self.columns]

    def __str__(self) -> str:
        """Return the table in Markdown."""
        rule = "|".join(["---"] * self.left + ["---:"] * (len(self.columns) - self.left))
        return f"| {' | '.join(self.columns)} |\n|{rule}|\n{self.lines()}"

    def lines(self) -> str:
        """Return the rows in Markdown, without the header."""
        return "\n".join(f"| {' | '.join(map(cell_text, row))} |" for row in self.rows)

    def select(self, columns: str, rows: str) -> Table:
        """Return the table with its first column and some others, and with some of its rows.

        Args:
            columns: their names, joined by " & ", or none for all.
            rows: patterns of the first cell or the first two, such as "MiniLM*", joined by " & ", or none for all.

        Raises:
            LookupError: there is no such column or row.
        """
        names = self._names()
        chosen = [0, *map(names.index, columns.split(" & "))] if columns else range(len(names))
        keys = [", ".join(map(cell_text, row[:2])).replace("**", "") for row in self.rows]
        lines = set()
        for pattern in rows.split(" & "):
            found = {i for i, key in enumerate(keys) if fnmatchcase(key, f"{pattern or '*'}, *")}
            found = found or {i for i, key in enumerate(keys) if fnmatchcase(key, pattern)}
            if not found:
                raise LookupError(f"the table of {', '.join(names)} has no rows {pattern!r}")
            lines |= found
        left = sum(column < self.left for column in chosen)
        return Table(
            [self.columns[c] for c in chosen], [[self.rows[line][c] for c in chosen] for line in sorted(lines)], left
        )

    def cell(self, row: str, column: str) -> str:
        """Return the cell of a row, named by its first cell or its first two, as it is shown but for bold.

        Raises:
            LookupError: there is no such cell.
        """
        columns = self._names()
        for cells in ([cell_text(cell).replace("**", "") for cell in one] for one in self.rows):
            if row in (cells[0], ", ".join(cells[:2])) and column in columns:
                return cells[columns.index(column)]
        raise LookupError(f"the table of {', '.join(self.columns)} has no row {row!r} with a column {column!r}")


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, empty ones aside."""
    return [name for name, count in Counter(names).items() if name and count > 1]


Figure = Table | str | float
"""What a script measures and a page shows: a table, text or a number."""


def markdown_table(header: Sequence[str], lines: Iterable[Sequence[Any]], left: int = 1) -> str:
    """Return a table in Markdown, with a line break at its end."""
    return f"{Table(header, list(lines), left)}\n"


def cell_text(value: Cell) -> str:
    """Write a cell: a float with one decimal, None as a dash."""
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def wrapped(text: str, indent: str = "", width: int = 120) -> str:
    """Return a paragraph in lines of at most `width` characters, all but the first indented."""
    from textwrap import fill

    return fill(" ".join(text.split()), width, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)


def processor() -> str:
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    return names[0] if names else platform.processor()


def date_and_machine() -> str:
    """Return when and on what figures are measured."""
    return f"{datetime.date.today()} on {platform.machine()}, Python {platform.python_version()}"


def measured() -> str:
    """Say when and on what figures were measured."""
    return f"Measured {date_and_machine()}."


def written(*packages: str) -> str:
    """Say when, on how many cores and with which versions of these packages figures are written."""
    versions = (f"{name} {version(name).partition('+')[0]}" for name in packages)
    system = f"{datetime.date.today()}; Python {platform.python_version()}, {os.cpu_count()} cores"
    return ", ".join([system, *versions])


class Kept:
    """What was measured, a line of JSON each; nothing is measured twice, and a run that was stopped goes on.

    Several processes may measure parts: each reads the files of all whose names begin alike, and writes its own.

    Attributes:
        path: the file that is written, such as "work/rows-0.jsonl".
        values: key -> what was measured.
    """

    def __init__(self, path: Path) -> None:
        """Read what is there; the line at which a process was killed does not count."""
        self.path, self.values = path, dict[str, Any]()
        for file in sorted(path.parent.glob(f"{path.stem.rstrip('0123456789')}*{path.suffix}")):
            # A killed process may leave half a character, and JSON may hold other separators of lines than "\n".
            for line in file.read_text(encoding="utf-8", errors="replace").split("\n"):
                with suppress(json.JSONDecodeError):
                    key, value = json.loads(line)
                    self.values[key] = value

    def get(self, key: str, measure: Callable[[], Any]) -> Any:
        """Return the value of `key`, measured now if need be."""
        if key not in self.values:
            line = json.dumps([key, measure()], ensure_ascii=False)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(f"\n{line}")
            self.values[key] = json.loads(line)[1]
            print(line[:300], flush=True)
        return self.values[key]


@dataclass(frozen=True)
class Experiment:
    """A function that returns figures, measured once for each of its settings.

    Attributes:
        measure: what is given, and settings by their names -> figures as JSON has them.
        grid: the settings of each row.
        version: another one measures anew.
    """

    measure: Callable[..., Mapping[str, Any]]
    grid: Sequence[Mapping[str, Any]]
    version: int = 1

    def rows(self, kept: Kept, *given: Any, part: int = 0, parts: int = 1) -> list[dict[str, Any]]:
        """Return the settings and figures of each row; of the rows that are not kept only this part is measured."""
        found = []
        for number, settings in enumerate(self.grid):
            key = json.dumps([self.measure.__name__, self.version, settings], ensure_ascii=False)
            if number % parts == part or key in kept.values:
                found.append({**settings, **kept.get(key, partial(self.measure, *given, **settings))})
        return found


def experiment(*settings: Mapping[str, Any], version: int = 1, **grid: Iterable[Any]) -> Callable[..., Experiment]:
    """Return what makes an experiment of a function: `@experiment(chooser=["fps", "kmeans"], seed=range(5))`.

    Args:
        settings: of single rows, where not every combination is measured.
        version: as `Experiment` has it.
        grid: name -> values, of which every combination is measured.
    """
    rows = settings or tuple(dict(zip(grid, values)) for values in product(*grid.values()))
    return partial(Experiment, grid=rows, version=version)


def results_path(script: str) -> Path:
    """Return where the results of a script such as "swe.trials" are."""
    *folders, name = script.removeprefix("papers.").split(".")
    return PAPERS.joinpath(*folders, "results", f"{name}.json")


@cache
def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """Return name -> what was measured ("figure") and when ("measured")."""
    results: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for entry in results.values():
        if isinstance(entry["figure"], dict):
            entry["figure"] = Table(**entry["figure"])
    return results


def write_results(path: Path, figures: Mapping[str, Figure], measured: str | None = None) -> None:
    """Add figures to the results of a script; those of the same names are replaced."""
    measured = measured or date_and_machine()
    results = read_results(path) | {name: {"measured": measured, "figure": figure} for name, figure in figures.items()}
    lines = (f"{_json(name)}: {{\n {_json(entry)[1:]}" for name, entry in results.items())
    text = "{\n" + ",\n".join(lines) + "\n}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")
    read_results.cache_clear()


PLACEHOLDER = re.compile(
    r"\{\{([\w.]+?)\.([\w-]+)(?:\.(measured|rows))?(?:<([^|>]*)\|?([^>]*)>|\[([^]]+); ([^];]+)\])?\}\}"
)


def _json(value: Any) -> str:
    """Write JSON in one line, but each row of a table in a line of its own."""
    if isinstance(value, Table):
        rows = ",\n  ".join(map(_json, value.rows))
        return f'{{"columns": {_json(value.columns)}, "left": {value.left}, "rows": [\n  {rows}]}}'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_json(name)}: {_json(entry)}" for name, entry in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False, default=_verdict_text)


def _verdict_text(value: Any) -> str:
    """Return a verdict as JSON has it; nothing else needs to be told how."""
    if isinstance(value, Verdict):
        return str(value)
    raise TypeError(f"{value!r:.60} is a {type(value).__name__}, which no result has")


def look_up(
    script: str,
    name: str,
    attribute: str | None = None,
    columns: str | None = None,
    rows: str | None = None,
    row: str = "",
    column: str = "",
) -> str:
    """Return what a placeholder stands for.

    Args:
        script: such as "swe.trials".
        name: of the figure.
        attribute: "rows" for a table without its header, "measured" for the day and machine.
        columns: of a table, to choose from it as `Table.select` does.
        rows: of a table, to choose from it.
        row: of a table, for one of its cells.
        column: of the cell, or several with " & " between, whose cells are joined.

    Raises:
        LookupError: there is no such figure or cell.
    """
    results = read_results(results_path(script))
    if name not in results:
        raise LookupError(f"{results_path(script)} has no figure {name!r}")
    figure = results[name]["figure"]
    if columns or rows:
        figure = figure.select((columns or "").strip(), (rows or "").strip())
    if row:
        return ", ".join(figure.cell(row, name) for name in column.split(" & "))
    return results[name]["measured"] if attribute == "measured" else figure.lines() if attribute else str(figure)


def render(template: Path) -> str:
    """Return a page: its template with the figures in place."""
    paper = ".".join(template.parent.relative_to(PAPERS).parts)
    text = template.read_text(encoding="utf-8")
    return PLACEHOLDER.sub(lambda found: look_up(f"{paper}.{found[1]}".strip("."), *found.groups()[1:]), text)


def templates() -> list[Path]:
    """Return the templates of all pages."""
    return sorted(PAPERS.rglob("*.md.template"))


def write_pages() -> None:
    """Write all pages from their templates."""
    for template in templates():
        template.with_suffix("").write_text(render(template), encoding="utf-8")


def write_block(page: Path, name: str, text: str) -> None:
    """Replace what stands in a hand-written page between the comments `name` and `end of name`.

    Raises:
        LookupError: the page has no such comments.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    content = page.read_text(encoding="utf-8")
    if begin not in content or end not in content:
        raise LookupError(f"{page} has no lines {begin!r} and {end!r}")
    before, rest = content.split(begin, 1)
    page.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{rest.split(end, 1)[1]}", encoding="utf-8")


def print_block(name: str, text: str, page: Path | None) -> None:
    """Print tables, and write them into a page's block `name` where a page is given."""
    print(text, flush=True)
    if page:
        write_block(page, name, text)


# --- Scripts ----------------------------------------------------------------------------------------------------------


def make_parser(
    description: str | None, *, data: str = "", work_dir: str = "", only: Iterable[str] = (), write: Path | None = None
) -> argparse.ArgumentParser:
    """Return a parser with those of the shared options that a script needs.

    Args:
        description: the script's own docstring.
        data: what the folder of data holds, for --data.
        work_dir: what is kept between runs, for --work-dir.
        only: the parts that --only chooses from; without it all are chosen.
        write: the page that --write replaces, or replaces the script's tables in, unless it names another.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if data:
        parser.add_argument("--data", type=Path, default=DATA, help=f"folder with {data} [../shared/data]")
    if work_dir:
        parser.add_argument("--work-dir", type=Path, required=True, help=f"where {work_dir} are kept")
    if parts := list(only):
        parser.add_argument("--only", nargs="+", choices=parts, default=parts, help="these alone [all]")
    if write:
        name = "/".join(write.parts[-2:])
        parser.add_argument(
            "--write", nargs="?", type=Path, const=write, metavar="PAGE", help=f"into this page, too [{name}]"
        )
    return parser


def set_threads(count: int | None, *, unless_set: bool = False) -> None:
    """Set the number of threads of this process and those that it starts.

    Libraries that are loaded later read it from the environment, those that are there are told.

    Args:
        count: of the libraries that compute with numbers; None leaves it as it is. Tokenizers always get one thread:
            with more they warn at every fork.
        unless_set: keep what the environment has.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if count is None or (unless_set and "OMP_NUM_THREADS" in os.environ):
        return
    names = (*(f"{name}_NUM_THREADS" for name in THREAD_SETTINGS), "PELLUCID_THREADS")
    os.environ.update(dict.fromkeys(names, str(count)))
    if "numpy" in sys.modules:
        from threadpoolctl import threadpool_limits

        threadpool_limits(count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


def run_script(
    measure: Callable[[argparse.Namespace], Iterable[tuple[str, Figure]]],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    data: str = "",
    work_dir: str = "",
    only: Iterable[str] = (),
    threads: int | None = None,
) -> None:
    """Run a script: parse its options, print what it measures and, with --write, keep it and write the pages.

    Args:
        measure: options -> name and figure of each result, as they come.
        options: name -> arguments of `add_argument`, beside the shared ones.
        data: as `make_parser` has it.
        work_dir: as there.
        only: as there.
        threads: as `set_threads` has them, unless OMP_NUM_THREADS is set.
    """
    set_threads(threads, unless_set=True)
    script = sys.modules["__main__"]
    parser = make_parser(script.__doc__, data=data, work_dir=work_dir, only=only)
    parser.add_argument("--write", action="store_true", help="keep the results and write the pages")
    for name, settings in (options or {}).items():
        parser.add_argument(name, **settings)
    chosen = parser.parse_args()
    path = results_path(script.__spec__.name)  # type: ignore[union-attr]
    for name, figure in measure(chosen):
        print(f"{name}\n\n{figure}\n", flush=True)
        if chosen.write:
            write_results(path, {name: figure})
            write_pages()


if __name__ == "__main__":
    write_pages()
