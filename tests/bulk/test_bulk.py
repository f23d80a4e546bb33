"""A corpus in shards, equal to `encode` whatever the moment of a crash; near-duplicates beside a plain reference."""

import gzip
import lzma
import math
import os
import random
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import pellucid
from damage import LOSSES, damages, flips
from families import first_letters
from letters import SparseLetterEmbedder
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.bulk import (
    BatchEncoder,
    Shard,
    corpora,
    duplicates,
    encode_corpus,
    near_duplicates,
    read_shards,
    write_kept,
)
from pellucid.bulk.signs import find_numbers, find_signed_names
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.errors import CorpusError, InputError, MissingExtraError, ModelFolderError, WritingError
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.persistence.store import checksum
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary
from refusals import refused
from resuming import stopped_at_writes

WORDS = ["the", "apple", "pear", "car", "bicycle", "unheard", "été", "車"]
SMALL = {"shard_size": 7}


def some_texts(count: int) -> list[str]:
    choose = random.Random(count)
    return ["", *(" ".join(choose.choices(WORDS, k=choose.randrange(6))) for _ in range(count - 1))]


class Letters(SparseLetterEmbedder):
    """A sparse model, for which a query has one letter more."""

    def _encode(self, texts, role, **options):
        return super()._encode([text + "z" * (role == "query") for text in texts], role, **options)


@pytest.fixture
def corpus(tmp_path) -> Path:
    """Fifty texts with ids, in row groups that are no shards."""
    path = tmp_path / "corpus.parquet"
    table = pa.table({"text": some_texts(50), "key": [f"k{i}" for i in range(50)], "n": [*range(100, 150)]})
    pq.write_table(table, path, row_group_size=11)
    return path


def whole(folder: Path) -> Shard:
    ids, rows = zip(*read_shards(folder))
    stack = sparse.vstack if hasattr(rows[0], "tocsr") else np.concatenate
    return Shard([own for some in ids for own in some], stack(rows))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("shard-*"))}


# --- the function of a batch ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
@pytest.mark.parametrize("form", [pa.RecordBatch, pa.Table])
def test_a_batch_has_the_rows_of_encode(fruit, kind, form):
    found = [*some_texts(30), None]
    columns = {"id": pa.array(range(31)), "text": pa.array(found, pa.string()).cast(kind), "more": pa.array(found)}
    encoded = BatchEncoder(fruit)(form.from_pydict(columns).slice(3))
    assert type(encoded) is form and encoded.schema.names == ["id", "more", "embedding"]
    rows = np.array(encoded.column("embedding").to_pylist(), np.float32)
    assert (rows == fruit.encode([text or "" for text in found[3:]])).all()
    assert not rows[-1].any()
    assert encoded.schema.field("embedding").type == pa.list_(pa.float32(), 3)


def test_a_sparse_batch_has_indices_and_values():
    encoded = BatchEncoder(Letters(), role="query")(pa.record_batch({"text": ["abb", ""]}))
    assert encoded.to_pylist() == [
        {"indices": [0, 1, 25], "values": pytest.approx([6**-0.5, 4 * 6**-0.5 / 2, 6**-0.5])},
        {"indices": [25], "values": [1]},
    ]
    assert [str(field.type) for field in encoded.schema] == ["list<item: int32>", "list<item: float>"]


def not_utf8() -> pa.Array:
    return pa.Array.from_buffers(pa.string(), 3, pa.array([b"apple", b"pe\xffr", b"\xf8\x88\x80\x80\x80"]).buffers())


test_what_is_no_batch_of_texts_is_named = refused(
    *((lambda fruit, columns=columns: BatchEncoder(fruit)(pa.record_batch(columns)), message, (InputError, CorpusError))
      for columns, message in [
        ({"body": ["a"]}, "no column 'text'; the columns are body"),
        ({"text": [1]}, "holds int64, not text"),
        ({"text": [b"a"]}, "holds binary, not text"),
        ({"text": ["a"], "embedding": [1]}, "called 'embedding'"),
        ({"id": [7, 8, 9], "text": not_utf8()}, r"not UTF-8, or damaged: .*index 1"),
    ]),
)  # fmt: skip


# --- a corpus ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id_field", "size", "group"),
    [(None, 1, 4), (None, 3, 1), ("n", 3, 50), (None, 8, 11), ("n", 8, 11), ("key", 8, 11), ("key", 11, 4),
     (None, 50, 50), ("n", 1000, 1)],
)  # fmt: skip
def test_shards_hold_what_encode_gives(fruit, corpus, tmp_path, id_field, size, group):
    pq.write_table(pq.read_table(corpus), corpus, row_group_size=group)
    paths = encode_corpus(fruit, corpus, tmp_path / "out", id_field=id_field, shard_size=size)
    assert [path.name for path in paths] == [f"shard-{n:06d}.parquet" for n in range(-(-50 // size))]
    found = whole(tmp_path / "out")
    assert found.ids == list({None: range(50), "n": range(100, 150), "key": map("k{}".format, range(50))}[id_field])
    assert (found.rows == fruit.encode(some_texts(50))).all() and found.rows.dtype == np.float32


def test_sparse_shards(corpus, tmp_path):
    encode_corpus(Letters(), corpus, tmp_path / "out", role="query", shard_size=20)
    assert (whole(tmp_path / "out").rows != Letters().encode_query(some_texts(50))).nnz == 0
    assert all(shard.rows.shape[1] == 26 for shard in read_shards(tmp_path / "out"))


@pytest.mark.parametrize(
    ("name", "content", "id_field", "ids"),
    [
        ("c.txt.xz", lzma.compress("apple\n\nété pear\n".encode()), None, [0, 1, 2]),
        ("c.csv.gz", gzip.compress('own,text\r\nb,"apple"\r\na,\r\nc,été pear\r\n'.encode()), "own", ["b", "a", "c"]),
        ("c.tsv", "own\ttext\nb\tapple\na\t\nc\tété pear\n".encode(), "own", ["b", "a", "c"]),
        ("c.jsonl", '{"id": 7, "text": "apple \\ud800"}\n{"id": 5, "text": ""}\n{"id": 6, "text": "été pear"}'.encode(),
         "id", [7, 5, 6]),
    ],
)  # fmt: skip
def test_every_format_gives_the_same(fruit, tmp_path, name, content, id_field, ids):
    encode_corpus(fruit, written(tmp_path / name, content), tmp_path / "out", id_field=id_field, shard_size=2)
    assert whole(tmp_path / "out").ids == ids
    assert (whole(tmp_path / "out").rows == fruit.encode(["apple", "", "été pear"])).all()


def written(path: Path, value) -> Path:
    if callable(value):
        value(path)
    elif isinstance(value, bytes):
        path.write_bytes(value)
    else:
        pq.write_table(value, path)
    return path


def same_names(*names: str) -> pa.Table:
    return pa.table([pa.array(["a", "b"])] * len(names), names=names)


BAD = {
    "absent": ("a.txt", lambda path: None, {}, "not found: .*a.txt"),
    "pipe": ("pipe.txt", os.mkfifo, {}, "read only once"),
    "shard size": ("a.txt", b"x\n", {"shard_size": 0}, "shard_size is 0"),
    "role": ("a.txt", b"x\n", {"role": "x"}, "role is 'x'"),
    "texts twice": ("a.parquet", same_names("text", "text"), {}, r"a\.parquet has several columns 'text'"),
    "ids twice": ("a.parquet", same_names("id", "id", "text"), {"id_field": "id"}, "has several columns 'id'"),
    "unknown": ("a.doc", b"a", {}, "cannot tell the format"),
    "empty": ("a.txt", b"", {}, "a.txt holds no texts"),
    "no rows": ("a.parquet", pa.table({"text": pa.array([], pa.string())}), {}, "holds no texts"),
    "no parquet": ("a.parquet", b"PAR1" + bytes(99), {}, "is damaged or not a parquet file"),
    "no column": ("a.parquet", pa.table({"b": ["x"]}), {}, "no column 'text'; it has b"),
    "numbers": ("a.parquet", pa.table({"text": [1]}), {}, "row 1: 'text' holds a number, 1"),
    "no id": ("a.parquet", pa.table({"text": ["x"]}), {"id_field": "own"}, "no column 'own'; it has text"),
    "odd id": ("a.parquet", pa.table({"text": ["x"], "o": [0.5]}), {"id_field": "o"}, "float; ids are strings"),
    "null id": ("a.parquet", pa.table({"text": ["x"] * 2, "o": ["k", None]}), {"id_field": "o"}, "row 2: no id"),
    "no field": ("a.jsonl", b'{"body": "x"}', {}, "line 1: no field 'text'"),
    "no own": ("a.jsonl", b'{"text": "x"}', {"id_field": "own"}, "line 1: no id under 'own'"),
    "mixed": ("a.jsonl", b'{"text": "", "o": 1}\n{"text": "", "o": "k"}', {"id_field": "o"}, "of several types"),
    "list id": ("a.jsonl", b'{"text": "", "o": [1]}', {"id_field": "o"}, r"the id \[1\] is list"),
    "plain": ("a.txt", b"x\n", {"id_field": "own"}, "no id under 'own'"),
    "same": ("a.jsonl", b"{}", {"id_field": "text"}, "both 'text'"),
    "latin": ("a.txt", b"apple\nr\xe9sum\xe9\n", {}, "line 2 is not UTF-8"),
    "latin parquet": (
        "a.parquet",
        pa.table({"text": not_utf8()}),
        {},
        "a.parquet, after row 0, is damaged, not UTF-8",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_and_leaves_no_shard(fruit, tmp_path, case):
    name, value, arguments, message = BAD[case]
    with pytest.raises((CorpusError, InputError), match=message):
        encode_corpus(fruit, written(tmp_path / name, value), tmp_path / "out", **arguments)
    assert not list(tmp_path.glob("out/*shard*")) and not list(tmp_path.glob("out/*.parquet"))
    written(tmp_path / "good.txt", b"apple\n")
    assert len(encode_corpus(fruit, tmp_path / "good.txt", tmp_path / "out")) == 1


# --- resuming ---------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_stop_at_any_write_changes_nothing(fruit, corpus, tmp_path):
    (tmp_path / "runs").mkdir()
    job = partial(encode_corpus, fruit, corpus, **SMALL)
    for folder, paths in stopped_at_writes(job, tmp_path / "runs", most=99):
        assert len(paths) == 8
        assert content(folder) == content(tmp_path / "runs/0")
        assert sorted(path.name for path in folder.iterdir() if path.name != ".lock") == sorted(
            ["state.json", *content(folder)]
        )


def test_another_run_is_refused_by_name(fruit, corpus, tmp_path):
    encode_corpus(fruit, corpus, tmp_path / "out", **SMALL)
    before = content(tmp_path / "out")
    other = written(tmp_path / "other.parquet", pa.table({"text": some_texts(49), "n": [*range(49)]}))
    turned = pellucid.StaticEmbedder(fruit.vocabulary, -fruit.vectors)
    for model, file, arguments, message in [
        (turned, corpus, SMALL, "StaticEmbedder.*, for the embeddings in .*, is another model"),
        (fruit, other, SMALL, r"another run \(different: corpus\)"),
        (fruit, corpus, {**SMALL, "id_field": "n"}, r"\(different: id_field\)"),
        (fruit, corpus, {"shard_size": 9}, r"\(different: shard_size\)"),
    ]:
        with pytest.raises(InputError, match=message):
            encode_corpus(model, file, tmp_path / "out", **arguments)
    assert content(tmp_path / "out") == before


def test_a_folder_of_something_else_is_left_alone(fruit, corpus, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/letter.txt").write_text("dear")
    with pytest.raises(InputError, match="something else than an encoded corpus"):
        encode_corpus(fruit, corpus, tmp_path / "home")
    with pytest.raises(WritingError, match=r"letter\.txt"):
        encode_corpus(fruit, corpus, tmp_path / "home/letter.txt")
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["letter.txt"]
    with pytest.raises(InputError, match="holds no encoded corpus"):
        read_shards(tmp_path / "home")


def test_a_damaged_shard_is_named_and_made_anew_and_no_other(fruit, corpus, tmp_path):
    first, *others = encode_corpus(fruit, corpus, tmp_path / "out", **SMALL)
    before, times = content(tmp_path / "out"), {path: path.stat().st_mtime_ns for path in others}
    for _ in damages(tmp_path / "out", {how: LOSSES[how] for how in ("gone", "two bytes less")}, [first]):
        with pytest.raises(ModelFolderError, match=first.name):
            list(read_shards(tmp_path / "out"))
        first.unlink(missing_ok=True)
        encode_corpus(fruit, corpus, tmp_path / "out", **SMALL)
        assert content(tmp_path / "out") == before and {path: path.stat().st_mtime_ns for path in others} == times


SCRIPT = """
import sys
from pellucid.bulk import encode_corpus
encode_corpus(sys.argv[1], sys.argv[2], sys.argv[3], shard_size=int(sys.argv[4]))
"""


def started(*arguments: object, script: str = SCRIPT, **more: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **more)


@pytest.mark.full
def test_no_space_is_named_and_loses_nothing(fruit, tmp_path):
    fruit.save_pretrained(tmp_path / "model")
    file = written(tmp_path / "c.parquet", pa.table({"text": some_texts(30_000)}))
    script = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n" + SCRIPT
    process = started(tmp_path / "model", file, tmp_path / "out", 25_000, script=script)
    assert "WritingError" in process.communicate()[1] and process.returncode == 1
    assert len(content(tmp_path / "out")) <= 1  # the second shard is small
    encode_corpus(str(tmp_path / "model"), file, tmp_path / "out", shard_size=25_000)
    assert (whole(tmp_path / "out").rows == fruit.encode(some_texts(30_000))).all()


@pytest.mark.full
def test_memory_does_not_grow_with_the_corpus(tmp_path):
    words = [f"w{n}" for n in range(1000)]
    vectors = np.random.default_rng(0).normal(size=(1000, 256)).astype(np.float32)
    pellucid.StaticEmbedder(Vocabulary(words), vectors).save_pretrained(tmp_path / "model")
    peaks = []
    script = SCRIPT + "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    for count in (40_000, 400_000):  # rows of 40 and 400 MB
        table = pa.table({"text": [f"w{n % 1000} w{n % 77}" for n in range(count)]})
        file = written(tmp_path / f"{count}.parquet", table)
        process = started(tmp_path / "model", file, tmp_path / f"out-{count}", 16_384, script=script)
        peaks.append(int(process.communicate()[1].split()[-1]) / 1024)
        shutil.rmtree(tmp_path / f"out-{count}")
    assert peaks[1] < peaks[0] + 100, peaks


# --- Ray and Spark ---------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_model_encodes_a_dataset_of_ray(fruit, tmp_path):
    """The lines of docs/scale.md."""
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    fruit.save_pretrained(tmp_path / "model")
    ray.init(num_cpus=1, include_dashboard=False, _node_ip_address="127.0.0.1")
    try:
        dataset = ray.data.from_arrow(pa.table({"body": some_texts(20)}))
        encoded = dataset.map_batches(
            BatchEncoder, fn_constructor_args=(str(tmp_path / "model"),), fn_constructor_kwargs={"column": "body"},
            batch_format="pyarrow", compute=ray.data.ActorPoolStrategy(size=1),
        )  # fmt: skip
        rows = np.array([row["embedding"] for row in encoded.take_all()], np.float32)
    finally:
        ray.shutdown()
    assert (rows == fruit.encode(some_texts(20))).all()


@pytest.mark.full
def test_a_model_encodes_a_frame_of_spark(fruit, monkeypatch):
    """The lines of docs/scale.md."""
    sql = pytest.importorskip("pyspark.sql")
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        pytest.skip("Spark needs Java, and there is none")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # the workers' Python; the one on PATH may lack pellucid
    session = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        frame, encode = session.createDataFrame([(text,) for text in some_texts(20)], ["text"]), BatchEncoder(fruit)
        lists = pa.schema([("embedding", pa.list_(pa.float32()))])
        encoded = frame.mapInArrow(lambda some: (encode(b).cast(lists) for b in some), "embedding array<float>")
        rows = np.array([row.embedding for row in encoded.collect()], np.float32)
    finally:
        session.stop()
    assert (rows == fruit.encode(some_texts(20))).all()


# --- damaged and hostile shards ---------------------------------------------------------------------------------------


def _encoded(model, folder: Path):
    """Encode a few texts with ids, and return the path of the one shard."""
    if not (folder / "c.parquet").exists():
        written(folder / "c.parquet", pa.table({"text": some_texts(30), "key": [f"k{i}" for i in range(30)]}))
    return encode_corpus(model, folder / "c.parquet", folder / "out", id_field="key")[0]


@pytest.mark.parametrize("sparse_rows", [False, True])
def test_no_flipped_bit_of_a_shard_or_of_the_manifest_is_read(fruit, tmp_path, sparse_rows):
    """Each region of each file: the first and last bytes, and places in all parts between."""
    shard = _encoded(Letters() if sparse_rows else fruit, tmp_path)
    ways = flips(150) | {how: LOSSES[how] for how in ("empty", "one byte", "half", "two bytes less")}
    for _ in damages(tmp_path / "out", ways, [shard, tmp_path / "out/state.json"]):
        with pytest.raises((ModelFolderError, InputError), match=r"shard-000000|state\.json"):
            list(read_shards(tmp_path / "out"))
    assert len(whole(tmp_path / "out").ids) == 30


def _claimed(folder: Path, **facts) -> None:
    """Write a manifest whose checksums fit what is there by now, as someone does who means it."""
    with WorkFolder(folder) as work:
        shards = {name: {**known, "sha256": checksum(folder / name)} for name, known in work.metadata["shards"].items()}
        work.commit({"shards": shards, **facts})


def with_numbers(table: pa.Table, number: int) -> pa.Table:
    """Put a number into the place of every coordinate of sparse rows."""
    lists = table.column("indices").combine_chunks()
    wrong = pa.ListArray.from_arrays(lists.offsets, pa.array(np.full(len(lists.values), number, np.int32)))
    return table.set_column(table.column_names.index("indices"), "indices", wrong)


CHANGES = [
    *((Letters(), lambda t, number=number: with_numbers(t, number)) for number in (-1, 26, 2**31 - 1)),
    *((first_letters, change) for change in (
        lambda t: t.slice(0, 29),
        lambda t: t.append_column("embedding", t.column("embedding")).drop(["key"]),
        lambda t: t.set_column(1, "embedding", pa.array([[0.0] * 7] * 30, pa.list_(pa.float32(), 7))),
        lambda t: t.set_column(1, "embedding", pa.array([[0.0] * 8] * 30, pa.list_(pa.float64(), 8))),
        lambda t: t.set_column(1, "embedding", pa.array([None, *[[0.0] * 8] * 29], pa.list_(pa.float32(), 8))),
        lambda t: t.rename_columns(["key", "rows"]),
    )),
]  # fmt: skip
NO_MANIFESTS = [
    {"dimension": -3}, {"dimension": True}, {"dimension": "8"}, {"texts": 31}, {"texts": []}, {"shards": ["a"]},
    {"shards": {"../c.parquet": {"texts": 30, "size": 1, "sha256": ""}}}, {"shards": {"a.parquet": None}},
]  # fmt: skip


def read_changed(model, folder: Path, change=lambda table: table, **facts) -> None:
    """Read a shard that was changed, with a manifest that has its checksum and other facts."""
    shard = _encoded(model, folder)
    pq.write_table(change(pq.read_table(shard)), shard)
    _claimed(folder / "out", **facts)
    list(read_shards(folder / "out"))


def read_nested(folder: Path, depth: int) -> None:
    shard = _encoded(first_letters, folder)
    shard.with_name("state.json").write_text('{"facts": ' + "[" * depth + "]" * depth + "}")
    read_shards(folder / "out")


def test_a_shard_that_is_written_anew_as_it_was_is_read(tmp_path):
    read_changed(first_letters, tmp_path)


test_shards_and_manifests_that_are_not_as_they_should_be_are_refused = refused(
    *((lambda tmp_path, model=model, change=change: read_changed(model, tmp_path, change), "shard-000000",
       ModelFolderError) for model, change in CHANGES),
    *((lambda tmp_path, facts=facts: read_changed(first_letters, tmp_path, **facts), r"state\.json does not describe",
       ModelFolderError) for facts in NO_MANIFESTS),
    *((lambda tmp_path, depth=depth: read_nested(tmp_path, depth), r"state\.json is damaged", ModelFolderError)
      for depth in (200, 900, 1000, 100_000)),
)  # fmt: skip


def test_a_shard_that_no_manifest_names_is_made_anew(fruit, corpus, tmp_path):
    """A run that was killed between a shard and its checksum: the file may be anything."""
    paths = encode_corpus(fruit, corpus, tmp_path / "out", **SMALL)
    before = content(tmp_path / "out")
    with WorkFolder(tmp_path / "out") as work:
        kept = {name: known for name, known in work.metadata["shards"].items() if name != paths[1].name}
        work.commit({"shards": kept, "complete": False})
    paths[1].write_bytes(b"half a shard")
    encode_corpus(fruit, corpus, tmp_path / "out", **SMALL)
    assert content(tmp_path / "out") == before


# --- a corpus that changes while it is read ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["c.parquet", "c.txt"])
@pytest.mark.parametrize("n_more", [0, 1])
def test_a_corpus_that_changes_while_it_is_read_is_refused(fruit, tmp_path, name, n_more, monkeypatch):
    """No shard holds rows of another corpus than the one whose checksum the manifest has."""
    texts = [f"apple {'pear ' * (n % 3)}" for n in range(40)]
    write, changes = corpora._write_shard, iter([lambda: None, lambda: save([*texts[::-1], *["more"] * n_more])])

    def save(texts):
        lines = "".join(f"{text}\n" for text in texts).encode()
        return written(tmp_path / name, pa.table({"text": texts}) if name == "c.parquet" else lines)

    run = partial(encode_corpus, fruit, save(texts), tmp_path / "out", shard_size=10)

    def changing(*given):
        next(changes, bool)()
        return write(*given)

    monkeypatch.setattr(corpora, "_write_shard", changing)
    with pytest.raises(CorpusError, match="was changed while it was read"):
        run()
    with pytest.raises(InputError, match="has not ended"):
        list(read_shards(tmp_path / "out"))
    assert content(tmp_path / "out")  # what was encoded stays
    save(texts)
    run()
    np.testing.assert_array_equal(whole(tmp_path / "out").rows, fruit.encode(texts))


# --- files that stand for more than they are --------------------------------------------------------------------------


DONE = ("read", "encoded")


def _bomb(path: Path, kind: str) -> Path:
    """Write a small Parquet file of gigabytes of text."""
    million = pa.array(["a " * (1 << 19)])
    array = million.take(pa.array([0] * 1_100))
    if kind == "dictionary":
        array = pa.DictionaryArray.from_arrays(pa.array(np.zeros(6_000, np.int32)), million)
    options = {"prefixes": {"column_encoding": {"text": "DELTA_BYTE_ARRAY"}}}.get(kind, {})
    pq.write_table(
        pa.table({"text": array}), path, compression="zstd", use_dictionary=kind == "dictionary",
        data_page_size=1 << 30, dictionary_pagesize_limit=1 << 30, **options,
    )  # fmt: skip
    return path


LIMITED = """
import resource, sys
limit = int(sys.argv[3]) << 20
import pellucid.text.tables, pellucid.text.parquet, pellucid.bulk.corpora
from pellucid.errors import PellucidError
taken = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (taken + limit, taken + limit))
try:
    if sys.argv[1] == "texts":
        print("read", sum(map(len, pellucid.text.tables.read_texts(sys.argv[2]))))
    else:
        import numpy as np
        def encode(texts):
            return np.ones((len(texts), 2), np.float32)
        print("encoded", len(pellucid.bulk.corpora.encode_corpus(encode, sys.argv[2], sys.argv[2] + ".out")))
except PellucidError as error:
    print("refused", type(error).__name__, error)
"""


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory in the way of Linux")
@pytest.mark.parametrize("what", ["texts", "corpus"])
@pytest.mark.parametrize("kind", ["dictionary", "prefixes", "plain"])
def test_a_small_file_that_stands_for_gigabytes_takes_little_memory(tmp_path, kind, what):
    path = _bomb(tmp_path / "bomb.parquet", kind)
    assert path.stat().st_size < 1 << 18
    command = [sys.executable, "-c", LIMITED, what, str(path), "900"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    assert ("refused CorpusError" in said and "unpack to" in said) if kind == "plain" else said.startswith(DONE), said


# --- near-duplicates --------------------------------------------------------------------------------------------------


NAMES = [start + chr(97 + number) for start in ("word", "term") for number in range(20)] + ["5", "7"]


@pytest.fixture(scope="module")
def model():
    vectors = np.random.default_rng(0).normal(size=(len(NAMES), 16)).astype(np.float32)
    vectors[41] = vectors[40] + 0.1  # 5 and 7 are nearly one
    return StaticEmbedder(Vocabulary(NAMES), vectors)


def random_texts(count, seed=1, words=NAMES):
    """Texts of few words, many of them alike, some equal, some unknown."""
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice(words, draw.integers(2, 6))) for _ in range(count)]
    edited = [" ".join([*texts[n].split()[:-1], words[n % len(words)]]) for n in draw.integers(0, count, count)]
    mixed = texts + edited + [text.title() for text in texts[::5]] + texts[::7] + ["?!", "", "?!", "unheard of"]
    return [mixed[n] for n in draw.permutation(len(mixed))]


def plain(model, texts, threshold, same_numbers=False):
    """Return for each text that is not kept the number of the kept one and the score, by comparing in order."""
    rows, kept, found = model.encode(texts), [], {}
    scores = model.similarity(rows, rows).round(6)
    signs = [(find_signed_names(text), find_numbers(text) if same_numbers else ()) for text in texts]
    for number, text in enumerate(texts):
        first = texts.index(text)
        if first < number:
            found[number] = found.get(first, (first, 1.0))
            continue
        best = max([n for n in kept if signs[n] == signs[number]], key=lambda n: scores[n, number], default=None)
        if best is not None and scores[best, number] >= threshold:
            found[number] = (best, scores[best, number])
        else:
            kept.append(number)
    return found


def check(texts, model, threshold, same_numbers=False):
    """Check what is found among texts, which come one by one, against a plain comparison."""
    report = duplicates(iter(texts), model, threshold=threshold, same_numbers=same_numbers)
    expected = plain(model, texts, threshold, same_numbers)
    assert {pair.duplicate for pair in report.pairs} == expected.keys()
    for pair in report.pairs:  # of two kept texts with one score either may be named
        assert pair.score == pytest.approx(expected[pair.duplicate][1], abs=3e-6)
    for group in report.groups:
        assert group.least == pytest.approx(min(expected[number][1] for number in group.duplicates), abs=3e-6)
    sizes = [len(group.duplicates) for group in report.groups]
    assert sizes == sorted(sizes, reverse=True) and sum(sizes) == len(expected)


@pytest.mark.parametrize("same_numbers", [False, True])
@pytest.mark.parametrize("block", [7, 2048])
@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.9, 1.0])
def test_the_pairs_are_those_of_a_plain_comparison(model, monkeypatch, block, threshold, same_numbers):
    monkeypatch.setattr(near_duplicates, "_CHUNK_TEXTS", block)
    for seed, words in ((1, NAMES), (2, [*NAMES[:6], "5", "7"])):
        check(random_texts(100, seed, words), model, threshold, same_numbers)


@pytest.mark.needs("faiss")
@pytest.mark.full
@pytest.mark.parametrize("exact", [20, 60])
def test_cells_find_what_a_plain_comparison_does(model, monkeypatch, exact):
    for name, value in {"_CHUNK_TEXTS": 16, "_MAX_EXACT_ROWS": exact, "_N_PROBED_CELLS": 1000}.items():
        monkeypatch.setattr(near_duplicates, name, value)
    for threshold, same_numbers in ((0.8, False), (1.0, False), (0.9, True)):
        check(random_texts(150), model, threshold, same_numbers)


@pytest.mark.needs("faiss")
@pytest.mark.full
def test_cells_hold_the_rows_they_were_given(monkeypatch):
    monkeypatch.setattr(near_duplicates, "_MAX_EXACT_ROWS", 50)
    rows = np.random.default_rng(0).normal(size=(900, 8)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    held, numbers = near_duplicates.KeptTexts(), np.arange(900)
    for start in range(0, 900, 30):
        held.add(rows[start : start + 30], numbers[start : start + 30] + 5, numbers[start : start + 30] % 3)
    assert held._rebuilt_at > 200  # made anew twice
    found, scores = held.nearest(rows, numbers % 3, 0.9)
    np.testing.assert_array_equal(found, numbers + 5)
    np.testing.assert_allclose(scores, 1, atol=near_duplicates._FLOAT16)


def test_a_text_with_other_numbers_is_a_duplicate_unless_that_is_ruled_out(model):
    texts = ["worda wordb wordc 5", "worda wordb wordc 7", "Wordc, wordb: worda 5!"]
    found = duplicates(texts, model)
    assert [(pair.kept, pair.duplicate, pair.numbers_differ) for pair in found.pairs] == [(0, 1, True), (0, 2, False)]
    assert (found.pairs[0].only_kept, found.pairs[0].only_duplicate) == (("5",), ("7",))
    assert "The numbers differ in 1 pair" in found.to_text()
    strict = duplicates(texts, model, same_numbers=True)
    assert [(pair.kept, pair.duplicate) for pair in strict.pairs] == [(0, 2)]
    assert strict.pairs[0].difference == "case, punctuation or order"


OTHER_NUMBERS = [
    ("2024-01-02", "2024-02-01"), ("10.0.0.1", "1.0.0.10"), ("-5", "5"), ("+5", "-5"), ("1e5", "1e-5"),
    ("v1.10.2", "v1.2.10"), ("10 to 20", "20 to 10"), ("10:30", "10:03"), ("5-10", "10-5"), ("3/4", "4/3"),
    ("01.02.2024", "02.01.2024"), ("XJ-900/2", "XJ-900/3"), ("1.5", "15"), ("1.5", "1,5"), (".5", "5"),
    ("1.000", "1,000"), ("1.50", "1.5"), ("50%", "50"), ("$5", "€5"), ("$5", "5"), ("<5", ">5"), ("p < .05", "p > .05"),
    ("±5", "5"), ("18+", "18"), ("5k", "5m"), ("10²", "10³"), ("10⁻⁵", "10⁵"), ("10^5", "10^-5"), ("½", "¼"),
    ("\u22125", "5"), ("(-5)", "(5)"), ("x=-5", "x=5"), ("-$5", "$5"), ("2+3", "2-3"), ("٥", "٦"), ("٣/٤", "٤/٣"),
    ("+49 30 12", "+49 31 02"),
]  # fmt: skip
SAME_NUMBERS = [
    ("1,000", "1000"), ("1,000,000", "1.000.000"), ("1,000.5", "1.000,5"), ("1'000", "1000"), ("1\u202f000", "1000"),
    ("\u22125", "-5"), ("5 - 10", "5\u201310"), ("5!", "5"), ("(5),", "5"), ("5 kg", "5kg"), ("COVID-19", "covid 19"),
    ("50 %", "50%"), ("5 €", "€5"), ("٥", "5"), ("５", "5"), ("½", "1/2"), ("10²", "10^2"), ("p<.05", "P < 0.05"),
    ("1e5", "1E5"), ("#5", "5"), ("3 / 4", "3/4"), ("US$5", "$5"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), OTHER_NUMBERS)
def test_numbers_are_compared_with_their_signs_and_in_their_order(model, first, second):
    assert find_numbers(first) != find_numbers(second)
    texts = [f"worda wordb {first} wordc", f"worda wordb {second} wordc"]
    assert duplicates(texts, model, same_numbers=True, threshold=0.01).representative_indices == [0, 1]
    loose = duplicates(texts, model, threshold=0.01).pairs
    assert all(pair.numbers_differ and "punctuation" not in pair.difference for pair in loose)


@pytest.mark.parametrize(("first", "second"), SAME_NUMBERS)
def test_a_number_may_be_written_in_several_ways(first, second):
    assert find_numbers(f"of {first}") == find_numbers(f"Of {second}") != ()


@given(st.lists(st.integers(-(10**6), 10**6) | st.decimals(-1000, 1000, places=2), min_size=1, max_size=4), st.data())
def test_other_numbers_or_another_order_are_told(numbers, data):
    others = data.draw(st.permutations(numbers) | st.lists(st.integers(-99, 99), min_size=1, max_size=4))
    same = list(map(str, numbers)) == list(map(str, others))
    first, second = ("from " + " to ".join(map(str, several)) for several in (numbers, others))
    assert (find_numbers(first) == find_numbers(second)) == same


@pytest.mark.parametrize("digits", ["٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９"])
@given(number=st.decimals(-(10**9), 10**9, places=1))
def test_digits_of_every_script_are_the_same(digits, number):
    text = str(number)
    assert find_numbers(text.translate(dict(zip(map(ord, "0123456789"), digits)))) == find_numbers(text)


@pytest.mark.parametrize(
    ("first", "second"),
    [("C++", "C#"), ("C", "C++"), ("F#", "F"), (".NET", "net"), ("A+", "A-"), ("AB-", "AB"), ("O\u2212", "O+"),
     ("CD4+", "CD4-"), ("A*", "A"), ("Na+", "Na"), ("Notepad++", "Notepad")],
)  # fmt: skip
def test_names_in_signs_are_told_apart(first, second):
    every = StaticEmbedder(
        Vocabulary("c f net a ab o cd4 na notepad developer wanted".split()), np.ones((11, 3), np.float32)
    )
    assert duplicates([f"{first} developer wanted", f"{second} developer wanted"], every).representative_indices == [
        0,
        1,
    ]
    same = duplicates([f"{first} developer wanted", f"wanted: ({first}, developer)!"], every)
    assert same.representative_indices == [0] and same.pairs[0].difference == "case, punctuation or order"


@pytest.mark.parametrize(
    "text", ["pre- and post-war", "18+", "price*", "example.net", "1. word- 2", "#python @home", "- a"]
)
def test_other_signs_are_punctuation(text):
    assert find_signed_names(text) == ()


@pytest.mark.parametrize(
    "piece", [" ", "a", "1", "1,", "-", "1 ", "a+", "<", "A1", "1'", "1.000", "^", "1 + ", "²", "\u0661"]
)
def test_long_texts_take_time_in_proportion(piece):
    started = time.process_time()
    for text in (piece * 30_000, "5" + piece * 30_000):
        find_numbers(text)
        find_signed_names(text)
    assert time.process_time() - started < 5


def test_every_removed_text_is_within_the_threshold_of_a_kept_one_also_in_a_chain():
    turns = np.linspace(0, np.pi / 2, 12)  # neighbours have a cosine of 0.99, the ends 0
    words = [f"w{chr(97 + number)}" for number in range(12)]
    chain = StaticEmbedder(Vocabulary(words), np.stack([np.cos(turns), np.sin(turns)], axis=1).astype(np.float32))
    check(words, chain, 0.95)
    assert duplicates(words, chain, threshold=0.95).representative_indices == [0, 3, 6, 9]


@pytest.mark.parametrize(
    ("texts", "threshold", "pairs", "equal_and_unknown"),
    [
        # many texts of one form make a pair each
        ([f"worda wordb wordc {'!' * number}" for number in range(100)], 0.9, [(0, n) for n in range(1, 100)], (0, 0)),
        # of texts without a known word only equal ones
        (["unheard", "never seen", "", "unheard", "..."], 0.01, [(0, 3)], (1, 4)),
        # an equal text of a removed one goes to the kept one
        (["worda wordb", "wordb worda worda wordb", "wordb worda worda wordb"], 0.9, [(0, 1), (0, 2)], (1, 0)),
    ],
)
def test_which_text_is_kept_in_the_place_of_which(model, texts, threshold, pairs, equal_and_unknown):
    found = duplicates(texts, model, threshold=threshold)
    assert [(pair.kept, pair.duplicate) for pair in found.pairs] == pairs
    assert (found.equal, found.unknown) == equal_and_unknown
    assert set(found.representative_indices) == set(range(len(texts))) - {duplicate for _, duplicate in pairs}


def test_a_pair_has_reasons_that_add_up_to_its_score(model):
    found = duplicates(random_texts(60), model)
    for number, pair in enumerate(found.pairs):
        why = found.explain(number)
        if why.coverage[0].known:
            assert sum(row.contribution for row in why.rows) == pytest.approx(pair.score, abs=2e-6)


def test_other_families(model):
    check(["worda"], model, 0.9)
    for other in (AnchorEmbedder(model, NAMES[:5]), EnsembleEmbedder([model, AnchorEmbedder(model, NAMES[:9])])):
        check(random_texts(60), other, 0.8)
    check(random_texts(60, words=[*"abcdefghij"]), SparseLetterEmbedder(), 0.9)


class Broken(SparseLetterEmbedder):
    """A model that gives NaN for the last of some texts."""

    def _encode(self, texts, role, **options):
        rows = super()._encode(texts, role, **options)
        rows.data[-1] = np.nan
        return rows


@pytest.fixture
def without_faiss(monkeypatch):
    monkeypatch.setattr(near_duplicates, "_MAX_EXACT_ROWS", 3)
    monkeypatch.setitem(sys.modules, "faiss", None)


test_what_cannot_be_compared_is_refused = refused(
    *((lambda model, threshold=threshold: duplicates(["worda"], model, threshold=threshold), "threshold")
      for threshold in (0, -1, 1.01, math.nan, "0.9", None)),
    (lambda model: duplicates([], model), "no text"),
    (lambda model: duplicates(["worda", None], model), "item 1", CorpusError),
    (lambda model: duplicates(Path("absent.txt"), model), "not found", CorpusError),
    (lambda: duplicates(["worda"], len), r"the encoder \(len\)"),
    (lambda: duplicates(["a", "b", "c"], Broken()), "text 2"),
    (lambda model: duplicates(["worda"] * 2, model).explain(1), "the first is 0"),
    (lambda model, without_faiss: duplicates(NAMES, model), r"pellucid\[scale\]", MissingExtraError),
    (lambda model, tmp_path: write_other(model, tmp_path, "b.jsonl", "\n".join(CORPUS)), r"\.txt"),
    (lambda model, tmp_path: write_other(model, tmp_path, "b.txt", "worda\n"), "has 1 texts, and 6 were expected",
     CorpusError),
)  # fmt: skip


def write_other(model, folder: Path, name: str, text: str) -> None:
    """Write what is left of a file that has another text by then, and check that nothing is written."""
    source = written(folder / "a.txt", "\n".join(CORPUS).encode())
    found = duplicates(source, model)
    source.write_text(text, encoding="utf-8")
    try:
        write_kept(source, found, folder / name)
    finally:
        assert [*folder.iterdir()] == [source]


CORPUS = ["worda wordb", "Wordb worda!", "wordc", "wordc", "", "wordd worde wordf"]
LEFT = ["worda wordb", "wordc", "", "wordd worde wordf"]


@pytest.mark.parametrize("names", [("a.txt", "b.txt"), ("a.txt.gz", "b.txt"), ("a.txt", "a.txt")])
def test_what_is_left_of_a_text_file(model, tmp_path, names):
    source, target = (tmp_path / name for name in names)
    with (gzip.open if source.suffix == ".gz" else open)(source, "wt", encoding="utf-8") as file:
        file.write("\n".join(CORPUS) + "\n")
    write_kept(source, duplicates(source, model), target)
    with (gzip.open if target.suffix == ".gz" else open)(target, "rt", encoding="utf-8") as file:
        assert file.read() == "\n".join(LEFT) + "\n"


def test_texts_that_differ_by_a_guessed_word_are_no_duplicates():
    texts = ["Latisha signed the contract", "Lakisha signed the contract", "latisha signed the contract!"]
    result = pellucid.duplicates(texts, threshold=0.95)
    assert [(pair.kept, pair.duplicate) for pair in result.pairs] == [(0, 2)]
    assert result.guessed == ("latisha", "lakisha") and "only guesses: latisha, lakisha." in " ".join(
        str(result).split()
    )
