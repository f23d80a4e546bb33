"""Attacks on the library: damaged folders and files, and an index with kills, full disks and several writers.

    PYTHONPATH=tests python -m fuzz --cases 10000 --seed 0
    PYTHONPATH=tests python -m fuzz --only damage/static:17 --seed 0

`subjects.py` builds tiny models, `damage.py` breaks them, `indexes.py` attacks an index, `cases.py` runs
each case in a process of its own. What a case does depends on the seed, its kind and its number alone, but for the
moment of a kill by the clock. Linux only.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", PELLUCID_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
