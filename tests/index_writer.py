"""Changes of an index that show half of a commit: documents come and go in pairs, of which both hold one version."""

import numpy as np

import pellucid
import pellucid.index.writer as writer

PAIRS = 20


def vectors(texts):
    """Three counts of letters: a model that needs no file."""
    return np.array([[text.count(letter) + 1 for letter in "abc"] for text in texts], np.float32)


def text_of(version, size):
    """A text that says its version in every passage of it."""
    return " ".join([f"version{version} abc"] * size)


def small():
    """Let merges come soon, and disks be as full as they like."""
    writer.FANOUT = 2
    writer.MIN_FREE_BYTES = -(1 << 40)


def created(folder):
    return pellucid.Index.create(folder, {"letters": vectors}, passage_characters=400)


def opened(folder, **settings):
    return pellucid.Index.open(folder, models={"letters": vectors}, **settings)


def pairs(index, changes, *, version):
    """Make a random change, all of it in one commit; yield what it will be, and whether it was made."""
    own = sorted(changes.sample(range(PAIRS), changes.randint(1, 6)))
    ids = [f"{side}{number}" for number in own for side in "ab"]
    kind = changes.choice(
        ["add", "add", "add", "delete", "rebuild", "update"] if version % 5 == 0 else ["add", "delete"]
    )
    size = changes.choice([1, 5, 60])
    yield {"kind": kind, "ids": ids, "version": version, "size": size}
    if kind == "add":
        index.add([text_of(version, size)] * len(ids), ids=ids, metadata=[{"version": version}] * len(ids))
    elif kind == "delete":
        index.delete(ids, missing_ok=True)
    elif kind == "rebuild":
        index.rebuild()
    else:
        index.configure(word_weights={"abc": version % 7 + 1})


def wrong_in(documents):
    """Say what cannot be of one commit."""
    found = {document.id: document for document in documents}
    for number in range(PAIRS):
        first, second = found.get(f"a{number}"), found.get(f"b{number}")
        if (first is None) != (second is None) or (first is not None and first.text != second.text):
            return f"pair {number}: {first!r:.80} beside {second!r:.80}"
        if first is not None and {word for word in first.text.split() if word != "abc"} != {
            f"version{first.metadata['version']}"
        }:
            return f"{first.id} holds {first.text!r:.60} and {first.metadata}"
    return ""


def look(index):
    """Search and read in every way; return what is wrong, "" where nothing is."""
    hits = index.search("abc", top_k=1000)
    if not hits.exact or len({hit.id for hit in hits}) != len(hits) or hits.documents != len(hits):
        return f"{len(hits)} hits of {hits.documents} documents, exact: {hits.exact}"
    if problem := wrong_in([hit for hit in hits]):
        return f"a search: {problem}"
    for hit in hits[:3]:
        if abs(sum(row.contribution for row in hit.reasons.top(100)) - hit.score) > 1e-5:
            return f"the reasons of {hit.id} do not add up to {hit.score}"
    return wrong_in(index) and f"an iteration: {wrong_in(index)}"
