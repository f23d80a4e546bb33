"""Damaged and crafted folders of an index: our error, or the right answer; and `verify` finds every flipped byte."""

import math
import os
import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import pellucid.index.commits as commits
from damage import LOSSES, damages, files_of, flips
from index_folder import EDITED, answers, build, seal, state_of, verified
from pellucid import Index
from pellucid.errors import IndexFolderError, PellucidError
from pellucid.native.scan import Codes
from pellucid.persistence import store
from pellucid.persistence.store import checksum, read_tensors, write_tensors


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage") / "index"
    build(folder)
    return folder


@pytest.mark.parametrize("kind", ["small", "edited", "large"])
@pytest.mark.parametrize("regions", [4, pytest.param(400, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_told_or_changes_nothing_and_verify_finds_it(whole, tmp_path, monkeypatch, regions, kind):
    """Of a large file, which is not verified when it is opened, nothing is read outside of an array."""
    good, folder, wrong = answers(whole), copied(whole, tmp_path), []
    monkeypatch.setattr(commits, "MAX_VERIFIED_BYTES", 0 if kind == "large" else 4 << 20)
    place = folder / "segments" if kind == "large" else folder
    files = [file for file in files_of(place, but=[".lock"]) if (file.name in EDITED) == (kind == "edited")]
    for file, how in damages(folder, flips(regions, regions), files):
        with suppress(PellucidError):
            if answers(folder) != good and kind != "large":
                wrong.append((str(file), how, "other answers"))
        with suppress(PellucidError):
            if not verified(folder):
                wrong.append((str(file), how, "verify finds nothing"))
    assert wrong == []


@pytest.mark.parametrize("how", [*(how for how in LOSSES if how != "another file"), "a link elsewhere"])
def test_a_file_that_is_none_is_told_at_once(whole, tmp_path, how):
    folder = copied(whole, tmp_path)
    elsewhere = {"a link elsewhere": lambda path, content: path.symlink_to(whole / path.relative_to(folder))}
    own = [path for path in files_of(folder, but=[".lock"]) if path.name not in EDITED]
    files = [path for path in own if how in LOSSES or path.parent.name == "segments"]
    for path, _ in damages(folder, {how: (LOSSES | elsewhere)[how]}, files):
        started = time.monotonic()
        with pytest.raises(PellucidError):
            answers(folder)
            assert verified(folder) == []
            raise AssertionError(f"{path} {how}")
        assert time.monotonic() - started < 5


# Crafted folders, with checksums that are right


def copied(whole, place):
    return Path(shutil.copytree(whole, place / "crafted"))


def craft(folder, change, number=0, gone=False):
    """Change the arrays of a file and write what its commit says of it anew."""
    state = state_of(folder)
    record = state["segments"][number][1 if gone else 0]
    path = folder / "segments" / record[0]
    tensors = {name: tensor.copy() for name, tensor in read_tensors(path)[0].items()}
    change(tensors)
    path.unlink()
    write_tensors(path, tensors)
    record[1:] = [checksum(path), path.stat().st_size]
    seal(folder, state)


def is_refused(folder, said=""):
    """Our error with these words, in bounded time, wherever it comes out; nothing else."""
    started = time.monotonic()
    with pytest.raises(PellucidError, match=said):
        answers(folder)
        if verified(folder):
            raise IndexFolderError("verify has told it")
    assert time.monotonic() - started < 20


def set_file(value, place=0, number=0):
    def change(state):
        state["segments"][number][0][place] = value

    return change


def put(**values):
    return lambda state: state.update(values)


def put_setting(name, value):
    return lambda state: state["settings"].__setitem__(name, value)


def put_model(name, value):
    return lambda state: state["settings"]["models"][0].__setitem__(name, value)


NAMES = ["../x", "/etc/passwd", "..", ".", "", "a/b", "\0", "x" * 5000, ".hidden", 5, None, ["a"], "index.json",
         "segments", "C:\\x", "a.safetensors\n"]  # fmt: skip
ODD_FINGERPRINT = {"stored": "", "functions": [{"dimension": 4, "probes": [[["a"], [1.0]]]}]}
STORED = {
    **{f"weights {value!r}": put_setting("weights", value) for value in (
        {"bm25": "much", "words": 1}, {"bm25": math.nan, "words": 1}, {"bm25": -1, "words": 2},
        {"bm25": 0, "words": 0}, {"bm25": 1, "other": 1}, [1, 2])},
    **{f"{name} {value!r:.40}": put_setting(name, value) for name, value in (
        ("word_weights", {"a": math.inf}), ("word_weights", {"a": math.nan}), ("word_weights", ["a"]),
        ("synonyms", {"car": "auto"}), ("synonyms", {"car": ["a" * 201]}), ("calibration", 3), ("calibration", {}),
        ("calibration", {"slope": -1.0, "intercept": 0.0, "weights": {}, "word_weights": {}}))},
}  # fmt: skip
STATES: dict[str, Callable[..., object]] = {
    **{f"a file {name!r:.20}": set_file(name) for name in NAMES},
    "another checksum": set_file("0" * 64, 1),
    "no checksum": set_file(None, 1),
    "a huge file": set_file(2**60, 2),
    "a negative file": set_file(-1, 2),
    "a file of true": set_file(True, 2),
    "one file twice": lambda state: state["segments"].append(state["segments"][0]),
    "other order": lambda state: state["segments"].reverse(),
    "one file less": lambda state: state["segments"].pop(),
    "no files": put(segments=[]),
    "files are a number": put(segments=7),
    "gone of another": lambda state: state["segments"][0].__setitem__(1, state["segments"][1][0]),
    "nothing gone": lambda state: state["segments"][0].__setitem__(1, None),
    "no settings": put(settings=None),
    "settings are a list": put(settings=[1]),
    "no documents": put(documents=0),
    "many documents": put(documents=10**30),
    "half a document": put(documents=9.5),
    "negative passages": put(passages=-3),
    "a next number that is taken": put(next=2),
    "terms are a string": put(terms="many"),
    "an unknown entry": put(unknown=1),
    "fields are a list": put(fields=[1, 2]),
    "fields of no number": put(fields={"year": ["a", "n"]}),
    "fields of one number": lambda state: state["fields"].update({name: [0, "n"] for name in state["fields"]}),
    "fields are too few": put(fields={}),
    "fields of other kinds": lambda state: state["fields"].update(year=[state["fields"]["year"][0], "q"]),
    "bm25 is a string": put_setting("bm25", "yes"),
    "bm25 is off": put_setting("bm25", False),
    "no language": put_setting("language", None),
    "an unknown language": put_setting("language", "klingon"),
    "stop words are numbers": put_setting("stop_words", [1]),
    "passages without end": put_setting("passage_characters", 0),
    "a model outside": put_model("copy", "../../model"),
    "a model above": put_model("copy", "models-1/.."),
    "a model at an absolute path": put_model("copy", "/tmp"),
    "a model of a number": put_model("copy", 5),
    "no fingerprint": put_model("fingerprint", {}),
    "an odd fingerprint": put_model("fingerprint", ODD_FINGERPRINT),
    "another dimension": lambda state: state["settings"]["models"][0].update(dimension=3),
    "a model without a name": put_model("name", None),
    "no models": put_setting("models", None),
    "one model twice": lambda state: state["settings"]["models"].append(state["settings"]["models"][0]),
    **STORED,
}
NO_STATES = [b"", b"null", b"[]", b"7", b'"x"', b"{", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 100_000, b"\xff",
             b"NaN", b"{}"]  # fmt: skip


@pytest.mark.parametrize("name", [*STATES, *range(len(NO_STATES))])
def test_a_crafted_commit_is_refused(whole, tmp_path, name):
    folder = copied(whole, tmp_path)
    state = state_of(folder) if name in STATES else NO_STATES[name]
    if name in STATES:
        STATES[name](state)
    seal(folder, state)
    is_refused(folder)
    if name not in STATES:
        (folder / "commit.json").write_bytes(state)
        is_refused(folder)
    if name in STORED:  # by whoever opens it, not by a search
        with pytest.raises(IndexFolderError, match=r"commit\.json is damaged: .*(weight|synonym|calibration)"):
            Index.open(folder)


def packed_into(name, items):
    """Put other strings of bytes in the place of a segment's."""

    def change(tensors):
        own = [items] * len(tensors[f"{name}.ends"]) if isinstance(items, bytes) else items
        tensors[f"{name}.data"] = np.frombuffer(b"".join(own), np.uint8)
        tensors[f"{name}.ends"] = np.cumsum([len(one) for one in own], dtype=np.int64)

    return change


def put_at(name, place, value):
    return lambda tensors: tensors[name].reshape(-1).__setitem__(place, value)


def typed(name, kind):
    return lambda tensors: tensors.__setitem__(name, tensors[name].astype(kind))


def shortened(name):
    return lambda tensors: tensors.__setitem__(name, tensors[name][:-1])


def without(name):
    return lambda tensors: tensors.pop(name)


def wide(name):
    return lambda tensors: tensors.__setitem__(name, np.repeat(tensors[name], 2, axis=1))


VECTORS = "vectors:words"
ARRAYS = {
    "text that is not UTF-8": packed_into("text", b"\xff\xfe"),
    "an id that is not UTF-8": packed_into("id", b"\xff\xfe"),
    "metadata that are a list": packed_into("metadata", b"[1, 2]"),
    "metadata that are a number": packed_into("metadata", b"7"),
    "metadata that are no JSON": packed_into("metadata", b"{nothing"),
    "deep metadata": packed_into("metadata", b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "deep lists of metadata": packed_into("metadata", b'{"year":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "a long number in the metadata": packed_into("metadata", b'{"year": ' + b"9" * 10_000 + b"}"),
    "metadata of an unknown field": packed_into("metadata", b'{"never registered": 1}'),
    "metadata of odd values": packed_into("metadata", b'{"year": {"a": null}}'),
    "words that are not UTF-8": lambda tensors: tensors.__setitem__("words.data", tensors["words.data"] | 128),
    "NaN in a vector": put_at(VECTORS, 3, np.nan),
    "NaN everywhere": lambda tensors: tensors[VECTORS].fill(np.nan),
    "infinity in a vector": put_at(VECTORS, 3, np.inf),
    "vectors of more dimensions": lambda t: t.__setitem__(VECTORS, np.zeros((len(t["cuts"]), 9), np.float32)),
    "vectors in one row": lambda t: t.__setitem__(VECTORS, t[VECTORS].reshape(-1)),
    "vectors of three dimensions": lambda t: t.__setitem__(VECTORS, t[VECTORS][None]),
    **{f"{kind} of another width": wide(f"{kind}:words") for kind in ("high", "low")},
    **{f"no {kind}": without(f"{kind}:words") for kind in Codes._fields},
    "no vectors": without(VECTORS),
    "sparse in the place of dense": lambda t: t.update({"rows:words.ends": t["passages"]}),
    "no terms": without("bm25.keys"),
    "no lengths": without("bm25.lengths"),
    "no columns": without("column.keys"),
    "an unknown array": lambda tensors: tensors.update(unknown=np.zeros(3)),
    "key_ends that lie": put_at("bm25.key_ends", 0, 10**6),
    "key_ends that fall": put_at("bm25.key_ends", 2, 0),
    "key_ends below 0": put_at("bm25.key_ends", 0, -5),
    "columns' key_ends that lie": put_at("column.key_ends", 0, 99),
    "keys that fall": lambda tensors: tensors.__setitem__("bm25.keys", tensors["bm25.keys"][::-1].copy()),
    "terms of passages that are not there": put_at("bm25.rows", 0, 10**6),
    "terms of a passage below 0": put_at("bm25.rows", 0, -1),
    "columns of documents that are not there": put_at("column.rows", 0, 10**6),
    "columns of words that are not there": lambda t: t["column.values"].fill(1e9),
    "columns of NaN": lambda tensors: tensors["column.values"].fill(np.nan),
    "counts below 0": put_at("bm25.values", 0, -7),
    "cuts elsewhere": put_at("cuts", 0, 10**12),
    "ends that lie": put_at("text.ends", 0, 10**6),
    "passages that lie": put_at("passages", 0, 10**6),
    "a document without passages": put_at("passages", 0, 0),
    "numbers that fall": put_at("numbers", 0, 10**6),
    "numbers below 0": put_at("numbers", 0, -1),
    "an order of ids that lies": put_at("id.order", 0, 10**6),
    "an order of ids below 0": put_at("id.order", 0, -1),
    "no documents": lambda t: t.update({name: tensor[:0] for name, tensor in t.items()}),
    **{f"{name} of another type": typed(name, kind) for name, kind in {
        "numbers": "f4", "passages": "f8", "cuts": "i4", "id.order": "f4", "id.hash": "u1", "text.data": "i1",
        "text.ends": "f4", "bm25.rows": "f4", "bm25.values": "f4", "bm25.key_ends": "f4",
        "column.values": "i4", VECTORS: "i8", "words.times": "f4"}.items()},
    **{f"{name} is shorter": shortened(name) for name in ("numbers", "passages", "cuts", "id.order", "id.hash",
        "text.ends", "bm25.rows", "bm25.values", "bm25.lengths", VECTORS, "words.times", "column.rows")},
}  # fmt: skip


GONE: dict[str, Callable[[dict[str, np.ndarray]], object]] = {
    **{f"gone: {name}": lambda tensors, rows=rows: tensors.update(rows=np.array(rows, np.int32), other=np.zeros(1))
       for name, rows in {
           "a row too high": [10**6], "a row below 0": [-1, 0], "rows that fall": [2, 1], "a row twice": [1, 1],
           "a row too high between": [0, 10**6, 1], "none": [], "other rows": [0, 1, 2],
           "rows that wrap in 32 bits": [0, 2**31 - 1, -(2**31), -1, 5]}.items()},
    "gone: no rows": lambda tensors: tensors.update(other=tensors.pop("rows")),
    "gone: rows of floats": typed("rows", "f4"),
    "gone: rows of int64": typed("rows", "i8"),
}  # fmt: skip


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", [*ARRAYS, *GONE])
def test_a_crafted_segment_is_refused(whole, tmp_path, monkeypatch, name, large):
    if large and name in ("counts below 0", "cuts elsewhere"):
        pytest.skip("numbers of large files are not looked at")
    monkeypatch.setattr(commits, "MAX_VERIFIED_BYTES", 0 if large else 4 << 20)
    folder = copied(whole, tmp_path)
    craft(folder, (ARRAYS | GONE)[name], gone=name in GONE)
    is_refused(folder, r"is damaged: .+\. Restore it, or build the index anew|verify has told it")


@pytest.mark.parametrize("name", ["id.hash", "id.order", "id.data", "id.ends"])
def test_ids_that_find_no_document_are_told(whole, tmp_path, name):
    """A table of ids that is made wrong with a checksum that is right was a KeyError of `verify`."""

    def change(tensors):
        array = tensors[name]
        array[:] = np.roll(array, 1) if name == "id.order" else array
        array[len(array) // 2] += name != "id.order"

    folder = copied(whole, tmp_path)
    craft(folder, change)
    assert any("is not found by its id" in problem for problem in verified(folder))


def test_links_out_of_the_folder_are_not_followed(whole, tmp_path):
    """Neither is a file elsewhere read as a segment, nor are files elsewhere swept away, nor is one the lock."""
    folder, elsewhere = copied(whole, tmp_path), tmp_path / "elsewhere"
    (folder / "segments").rename(elsewhere)
    (elsewhere / "precious.txt").write_text("kept")
    (folder / "segments").symlink_to(elsewhere)
    with pytest.raises(IndexFolderError, match="is a link"):
        Index.open(folder)
    assert (elsewhere / "precious.txt").exists()
    (folder / "segments").unlink()
    elsewhere.rename(folder / "segments")
    outwards = {"out": lambda path, content: path.symlink_to(whole / path.relative_to(folder))}
    for _ in damages(folder, outwards, [*(folder / "segments").glob("*.safetensors")]):
        with pytest.raises(IndexFolderError, match="is a link"):
            Index.open(folder)
    precious = tmp_path / "precious.txt"
    precious.write_text("kept")
    (folder / ".lock").unlink()
    (folder / ".lock").symlink_to(precious)
    with Index.open(folder) as index, pytest.raises(PellucidError, match="must be a file"):
        index.add(["a new document"], ids=["new"])
    assert precious.read_text() == "kept"


def test_damage_of_a_large_file_does_not_go_into_a_merged_or_rebuilt_one(whole, tmp_path, monkeypatch):
    """The new file would have a checksum that is right, and nothing would find the damage any more."""
    monkeypatch.setattr(commits, "MAX_VERIFIED_BYTES", 0)
    folder = copied(whole, tmp_path)
    name = folder / "segments" / state_of(folder)["segments"][0][0][0]
    content = name.read_bytes()
    place = content.index(b"unique0")
    name.write_bytes(content[:place] + b"U" + content[place + 1 :])
    with Index.open(folder) as index:
        with pytest.raises(IndexFolderError, match=r"is not what was written.*restore"):
            for n in range(100):
                index.add([f"text {n}"], ids=[f"new{n}"])
        assert index.verify() != []
        assert "new0" in index  # what was added is there
        with pytest.raises(IndexFolderError, match="checksum differs"):
            index.rebuild()
        assert len(index.verify()) == 1
        name.write_bytes(content)
        index.rebuild()
        assert index.verify() == []


@pytest.mark.parametrize("cases", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_segments_that_change_in_place_while_they_are_open_give_hits_or_our_error(whole, tmp_path, monkeypatch, cases):
    monkeypatch.setattr(store, "MAX_READ_BYTES", 0)  # small files are mapped, too
    chance = random.Random(cases)
    for number in range(cases):
        folder = tmp_path / str(number)
        shutil.copytree(whole, folder)
        index = Index.open(folder, read_only=True)
        index.search("loan house")
        for path in (folder / "segments").glob("*.safetensors"):
            sizes = [array.nbytes for array in read_tensors(path)[0].values()]  # in the order of the file
            start = int.from_bytes(path.read_bytes()[:8], "little")
            with open(path, "r+b") as file:
                file.seek(8 + start)
                for size in sizes:
                    pattern = chance.choice([b"\xff", b"\0", b"\xff\xff\xff\x7f", b"\xff" * 7 + b"\x7f", b"\x01\x02"])
                    if chance.random() < 0.3:
                        file.write((pattern * size)[:size])
                    else:
                        file.seek(size, os.SEEK_CUR)
        for ask in (
            lambda index: [hit.reasons for hit in index.search("loan house", top_k=3)],
            lambda index: index.search("bank", where={"year": {"gte": 1950}}),
            lambda index: [index.score("bank", document.id) for document in index],
        ):
            with suppress(PellucidError):
                ask(index)
