"""Store what this version gives as the golden set; see the package."""

import sys
from pathlib import Path

from golden.records import FOLDER, RECORDS, write_records

for name, compute in RECORDS.items():
    write_records(FOLDER / f"{name}.jsonl", list(compute(Path(sys.argv[1]))))
