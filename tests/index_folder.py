"""A small index with everything in it, what it answers, and how its commit is written anew: for attacks on it."""

import hashlib
import json
import random
from unittest.mock import patch

import numpy as np

from damage import files_of
from pellucid import Index
from pellucid.index import arrays
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary

WORDS = "loan house bank river money beach horse grass rate sun rain car road tree bird fish".split()
QUERIES = ["loan house", "river bank money", "unique7 tree", "fish rain bird"]
WHERES = [None, {"year": {"gte": 1950}}, {"kind": "x"}, {"day": {"lt": "2024-01-05"}}, {"tags": ["x", "z"]}]


def build(folder, seed=0):
    """An index with several segments, rows that are gone, rows in 8 bits, and a model of its own."""
    chance = random.Random(seed)
    vectors = np.random.default_rng(seed).normal(size=(len(WORDS), 130)).astype(np.float32)
    metadata = [
        {"year": 1900 + 9 * n, "kind": "xyz"[n % 3], "day": f"2024-01-{1 + n % 9:02d}", "tags": ["x", n, n % 2 == 0]}
        for n in range(12)
    ]
    ids = [f"d{n}" for n in range(12)]
    texts = [" ".join(chance.choices(WORDS, k=8)) + f" unique{n}" for n in range(12)]
    texts[3] = "\n\n".join(texts[:6])  # several passages
    models = {"words": StaticEmbedder(Vocabulary(WORDS), vectors)}
    with (
        patch.object(arrays, "COARSE_ROWS", 1),  # rows in 8 bits, too
        Index.create(folder, models, passage_characters=100) as index,
    ):
        for part in (slice(0, 6), slice(6, 9), slice(9, 12)):
            index.add(texts[part], ids=ids[part], metadata=metadata[part], titles=[f"title {own}" for own in ids[part]])
        index.delete(["d1", "d7"])


def answers(folder):
    """Everything that can be asked of an index."""
    with Index.open(folder, read_only=True) as index:
        found = []
        for query in QUERIES:
            for where in WHERES:
                hits = index.search(query, 20, where=where)
                found += [(h.id, round(h.score, 5), h.text, h.title, str(h.metadata)) for h in hits]
                found += [str(row) for row in hits[0].reasons.top(3)] if hits else []
        documents = [(d.id, d.text, d.title, json.dumps(d.metadata), d.ends) for d in index]
        singles = [(index[own].text, index.score(QUERIES[0], own).score) for own, *_ in documents]
        return found, documents, singles, len(index), "d3" in index, index.info()["fields"]


def verified(folder):
    with Index.open(folder, read_only=True) as index:
        return index.verify()


EDITED = ("README.md", "config.json", "dimensions.tsv")
"""Files of a model that have no checksum in it: people edit them."""


def state_of(folder):
    return json.loads((folder / "commit.json").read_bytes())["state"]


def seal(folder, state):
    content = state if isinstance(state, bytes) else json.dumps(state).encode()
    digest = hashlib.sha256(content).hexdigest().encode()
    (folder / "commit.json").write_bytes(b'{"sha256": "' + digest + b'",\n"state": ' + content + b"}\n")


def contents(folder):
    """Return the bytes of every file but the lock, by its path in the folder."""
    return {
        file.relative_to(folder): file.read_bytes() for file in files_of(folder, but=[".lock"]) if not file.is_symlink()
    }
