"""The options that the scripts share: where data is, where work is kept, what is made, which page is written."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def make_parser(
    description: str | None,
    *,
    data: str = "",
    work_dir: str = "",
    only: Iterable[str] = (),
    write: Path | None = None,
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
        name = "/".join(write.parts[-3:] if write.parent.parent.name == "papers" else write.parts[-2:])
        parser.add_argument(
            "--write", nargs="?", type=Path, const=write, metavar="PAGE", help=f"into this page, too [{name}]"
        )
    return parser
