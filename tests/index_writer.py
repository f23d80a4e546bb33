"""A process that changes an index until it is killed, and says on stdout what was committed."""

from __future__ import annotations

import json
import random
import sys

import numpy as np

import pellucid


def vectors(texts):
    """Three counts of letters: a model that needs no file."""
    return np.array([[text.count(letter) + 1 for letter in "abc"] for text in texts], np.float32)


def text_of(version, size):
    """A text that says its version in every passage of it."""
    return " ".join([f"version{version} abc"] * size)


def main(folder, seed):
    chance = random.Random(seed)
    with pellucid.Index.open(folder, models={"letters": vectors}) as index:
        print("open", flush=True)
        version = seed * 1_000_000
        while True:
            version += 1
            ids = [f"d{number}" for number in sorted(chance.sample(range(40), chance.randint(1, 12)))]
            kind = chance.choice(["add", "add", "add", "delete", "rebuild"] if version % 7 == 0 else ["add", "delete"])
            sizes = [chance.choice([1, 5, 60]) for _ in ids]
            print(json.dumps({"kind": kind, "ids": ids, "version": version, "sizes": sizes}), flush=True)
            if kind == "add":
                texts = [text_of(version, size) for size in sizes]
                index.add(ids, texts, metadata=[{"version": version}] * len(ids))
            elif kind == "delete":
                index.delete(ids, missing_ok=True)
            else:
                index.rebuild()
            print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
