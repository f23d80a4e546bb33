"""The command line of the golden set; see the package."""

import argparse
import sys
from pathlib import Path

from golden.records import differences, explanations, read_records, searches, write_records

FOLDER = Path(__file__).parent


def main() -> None:
    """Compare this version with the stored records, or store its own."""
    parser = argparse.ArgumentParser(description="Compare searches and explanations with the golden set.")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--write", action="store_true", help="store this version's records")
    arguments = parser.parse_args()
    n_differences = 0
    for name, compute in {"searches": searches, "explanations": explanations}.items():
        path, records = FOLDER / f"{name}.jsonl", list(compute(arguments.data))
        if arguments.write:
            write_records(path, records)
            continue
        stored = read_records(path)
        lines = differences(stored, records)
        n_differences += len(lines)
        print(f"{name}: {len(stored)} records, {len(lines)} differences", *lines[:20], sep="\n  ")
    sys.exit(n_differences > 0)


if __name__ == "__main__":
    main()
