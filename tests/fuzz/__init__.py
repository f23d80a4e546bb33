"""Attacks on the library: damaged folders and files, kills, full disks, two writers, odd texts.

    PYTHONPATH=tests python -m fuzz --cases 10000 --kills 300 --seed 0
    PYTHONPATH=tests python -m fuzz --only kill/distill:17 --seed 0

`subjects.py` builds tiny models and files, `damage.py` breaks them, `jobs.py` interrupts work in `processes.py`,
`indexes.py` attacks an index, `texts.py` makes texts, `pool.py` runs cases in a few long-lived processes and ends those
that hang. What a case does depends on the seed, its kind and its number alone, but for the moment of a kill by the
clock. Linux only.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", PELLUCID_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
