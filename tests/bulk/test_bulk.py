"""A corpus in shards: equal to `encode`, whatever the format or the moment of a crash."""

import gzip
import lzma
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

import pellucid
from damage import LOSSES, damages, flips
from pellucid.bulk import BatchEncoder, Shard, corpora, encode_corpus, read_shards
from pellucid.core.embedder import Embedder
from pellucid.errors import CorpusError, InputError, ModelFolderError, PellucidError, WritingError
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.persistence.store import checksum
from pellucid.text.words import Vocabulary
from resuming import stopped_at_writes

WORDS = ["the", "apple", "pear", "car", "bicycle", "unheard", "été", "車"]
SMALL = {"shard_size": 7}


def some_texts(count: int) -> list[str]:
    choose = random.Random(count)
    return ["", *(" ".join(choose.choices(WORDS, k=choose.randrange(6))) for _ in range(count - 1))]


class Letters(Embedder):
    """A sparse model: how often each of 26 letters occurs, and once more in queries."""

    family = "letters"

    def _encode(self, texts, role, *, batch_size, show_progress_bar):
        counts = np.array([[text.count(chr(97 + i)) for i in range(26)] for text in texts], np.float32).reshape(-1, 26)
        return sparse.csr_matrix(np.where(counts, counts + (role == "query"), 0).astype(np.float32))

    def get_embedding_dimension(self):
        return 26


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
    assert encoded.to_pylist() == [{"indices": [0, 1], "values": [2.0, 3.0]}, {"indices": [], "values": []}]
    assert [str(field.type) for field in encoded.schema] == ["list<item: int32>", "list<item: float>"]


def not_utf8() -> pa.Array:
    return pa.Array.from_buffers(pa.string(), 3, pa.array([b"apple", b"pe\xffr", b"\xf8\x88\x80\x80\x80"]).buffers())


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"body": ["a"]}, "no column 'text'; the columns are body"),
        ({"text": [1]}, "holds int64, not text"),
        ({"text": [b"a"]}, "holds binary, not text"),
        ({"text": ["a"], "embedding": [1]}, "called 'embedding'"),
        ({"id": [7, 8, 9], "text": not_utf8()}, r"not UTF-8, or damaged: .*index 1"),
    ],
)
def test_what_is_no_batch_of_texts_is_named(fruit, columns, message):
    with pytest.raises((InputError, CorpusError), match=message):
        BatchEncoder(fruit)(pa.record_batch(columns))


# --- a corpus ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id_field", [None, "n", "key"])
def test_shards_hold_what_encode_gives(fruit, corpus, tmp_path, id_field):
    paths = encode_corpus(fruit, corpus, tmp_path / "out", id_field=id_field, shard_size=8)
    assert [path.name for path in paths] == [f"shard-{n:06d}.parquet" for n in range(7)]
    found = whole(tmp_path / "out")
    assert found.ids == list({None: range(50), "n": range(100, 150), "key": map("k{}".format, range(50))}[id_field])
    assert (found.rows == fruit.encode(some_texts(50))).all() and found.rows.dtype == np.float32


def test_sparse_shards(corpus, tmp_path):
    encode_corpus(Letters(), corpus, tmp_path / "out", role="query", shard_size=20)
    assert (whole(tmp_path / "out").rows != Letters().encode_query(some_texts(50))).nnz == 0
    assert all(shard.rows.shape[1] == 26 for shard in read_shards(tmp_path / "out"))


@pytest.mark.parametrize("size", [1, 3, 11, 50, 1000])
@pytest.mark.parametrize("group", [1, 4, 50])
def test_shards_and_row_groups_of_any_size(fruit, tmp_path, size, group):
    pq.write_table(pa.table({"text": some_texts(50)}), tmp_path / "c.parquet", row_group_size=group)
    encode_corpus(fruit, tmp_path / "c.parquet", tmp_path / "out", shard_size=size)
    assert (whole(tmp_path / "out").rows == fruit.encode(some_texts(50))).all()


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


def written(path: Path, value: bytes | pa.Table | Callable[[Path], object]) -> Path:
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


def test_what_is_there_is_not_made_again(fruit, corpus, tmp_path):
    first, *others = encode_corpus(fruit, corpus, tmp_path / "out", **SMALL)
    before = {path: path.stat().st_mtime_ns for path in others}
    first.unlink()
    encode_corpus(fruit, corpus, tmp_path / "out", **SMALL)
    assert first.exists() and {path: path.stat().st_mtime_ns for path in others} == before


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


def test_damage_is_named_and_mended(fruit, corpus, tmp_path):
    paths = encode_corpus(fruit, corpus, tmp_path / "out", **SMALL)
    before = content(tmp_path / "out")
    for damage in (before[paths[2].name][:-9], None):
        paths[2].unlink()
        if damage is not None:
            paths[2].write_bytes(damage)
        with pytest.raises(ModelFolderError, match=paths[2].name):
            list(read_shards(tmp_path / "out"))
        paths[2].unlink(missing_ok=True)
        encode_corpus(fruit, corpus, tmp_path / "out", **SMALL)
        assert content(tmp_path / "out") == before


def test_an_unfinished_run_is_not_read(fruit, tmp_path):
    table = pa.table({"text": pa.concat_arrays([pa.array(["apple"] * 300), not_utf8()])})
    with pytest.raises(CorpusError, match="not UTF-8"):
        encode_corpus(fruit, written(tmp_path / "c.parquet", table), tmp_path / "out", **SMALL)
    assert content(tmp_path / "out")  # what was encoded stays
    with pytest.raises(InputError, match="has not ended"):
        read_shards(tmp_path / "out")


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
    assert issubclass(WritingError, PellucidError)


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


CHANGES = [  # of sparse rows and of dense ones
    *((True, lambda t, number=number: with_numbers(t, number)) for number in (-1, 26, 2**31 - 1)),
    *((False, change) for change in (
        lambda t: t.slice(0, 29),
        lambda t: t.append_column("embedding", t.column("embedding")).drop(["key"]),
        lambda t: t.set_column(1, "embedding", pa.array([[0.0, 1.0]] * 30, pa.list_(pa.float32(), 2))),
        lambda t: t.set_column(1, "embedding", pa.array([[0.0, 1.0, 2.0]] * 30, pa.list_(pa.float64(), 3))),
        lambda t: t.set_column(1, "embedding", pa.array([None, *[[0.0, 1.0, 2.0]] * 29], pa.list_(pa.float32(), 3))),
        lambda t: t.rename_columns(["key", "rows"]),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("is_sparse", "change"), CHANGES)
def test_a_shard_has_the_rows_and_columns_it_should(fruit, tmp_path, is_sparse, change):
    shard = _encoded(Letters() if is_sparse else fruit, tmp_path)
    pq.write_table(change(pq.read_table(shard)), shard)
    _claimed(tmp_path / "out")
    with pytest.raises(ModelFolderError, match="shard-000000"):
        list(read_shards(tmp_path / "out"))


@pytest.mark.parametrize(
    "facts",
    [
        {"dimension": -3}, {"dimension": True}, {"dimension": "3"}, {"texts": 31}, {"texts": []}, {"shards": ["a"]},
        {"shards": {"../c.parquet": {"texts": 30, "size": 1, "sha256": ""}}}, {"shards": {"a.parquet": None}},
    ],
)  # fmt: skip
def test_a_manifest_that_describes_no_shards_is_refused(fruit, tmp_path, facts):
    _encoded(fruit, tmp_path)
    _claimed(tmp_path / "out")
    with WorkFolder(tmp_path / "out") as work:
        work.commit(facts)
    with pytest.raises(ModelFolderError, match=r"state\.json does not describe"):
        list(read_shards(tmp_path / "out"))


def test_a_manifest_nested_deeply_is_damaged(fruit, tmp_path):
    _encoded(fruit, tmp_path)
    for depth in (200, 900, 1000, 100_000):
        (tmp_path / "out/state.json").write_text('{"facts": ' + "[" * depth + "]" * depth + "}")
        with pytest.raises(ModelFolderError, match=r"state\.json is damaged"):
            read_shards(tmp_path / "out")


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
    file, texts = tmp_path / name, [f"apple {'pear ' * (n % 3)}" for n in range(40)]
    write, calls = corpora._write_shard, []

    def save(texts):
        written(file, pa.table({"text": texts}) if name == "c.parquet" else "".join(f"{t}\n" for t in texts).encode())

    def changing(*arguments):
        calls.append(1)
        if len(calls) == 2:
            save([*texts[::-1], *["more"] * n_more])
        return write(*arguments)

    save(texts)
    monkeypatch.setattr(corpora, "_write_shard", changing)
    form = {"shard_size": 10}
    with pytest.raises(CorpusError, match="was changed while it was read"):
        encode_corpus(fruit, file, tmp_path / "out", **form)
    with pytest.raises(InputError, match="has not ended"):
        list(read_shards(tmp_path / "out"))
    save(texts)
    encode_corpus(fruit, file, tmp_path / "out", **form)
    np.testing.assert_array_equal(whole(tmp_path / "out").rows, fruit.encode(texts))


# --- files that stand for more than they are --------------------------------------------------------------------------


DONE = ("read", "encoded")


def _bomb(path: Path, kind: str) -> Path:
    """Write a small Parquet file of gigabytes of text."""
    million = pa.array(["a " * (1 << 19)])
    array: Any = million.take(pa.array([0] * 1_100))
    if kind == "dictionary":
        array = pa.DictionaryArray.from_arrays(pa.array(np.zeros(6_000, np.int32)), million)
    options: dict[str, Any] = {"prefixes": {"column_encoding": {"text": "DELTA_BYTE_ARRAY"}}}.get(kind, {})
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
