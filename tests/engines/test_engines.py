"""One contract for every engine: the same calls, the same answers, and nothing half-written is ever seen."""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("qdrant_edge")

import pellucid
from index_cases import CONDITIONS, CONDITIONS_METADATA, SparseLetters, brute_bm25
from pellucid import Index
from pellucid.engines.edge import Edge
from pellucid.errors import EngineError, IndexFolderError, InputError
from pellucid.index import writer
from pellucid.index.engine import Condition, Generation, Point
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary

pytestmark = [
    pytest.mark.full, pytest.mark.filterwarnings("ignore:.*local.*:UserWarning"),
    pytest.mark.usefixtures("outside_allowed"),
]  # fmt: skip
WORDS = [f"w{n}" for n in range(60)]


@pytest.fixture(scope="module")
def milvus():
    """The address of a Milvus server that was started here."""
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    command = [str(Path(sys.executable).with_name("milvus-lite")), "server", "--data-dir", str(folder)]
    server = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and server.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", int(port)), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        else:
            pytest.skip("milvus-lite server does not start here")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def local_qdrant(monkeypatch):
    """Every client is one and the same in local mode: the collections outlive a closed index."""
    client = pytest.importorskip("qdrant_client").QdrantClient(":memory:")
    lock = threading.Lock()  # the local mode is for one thread

    class Shared:
        def __init__(self, **settings):
            pass

        def close(self):
            pass

        def __getattr__(self, name):
            def call(*arguments, **named):
                with lock:
                    return getattr(client, name)(*arguments, **named)

            return call

    monkeypatch.setattr("pellucid.engines.qdrant.QdrantClient", Shared)
    return client


@pytest.fixture(params=["edge", "qdrant", "milvus"])
def engine(request):
    """The settings of an engine, for one index."""
    name = f"test_{uuid.uuid4().hex}"
    if request.param == "edge":
        return Edge(exact=True)
    if request.param == "qdrant":
        request.getfixturevalue("local_qdrant")
        return pellucid.engines.Qdrant(url="http://127.0.0.1:1", collection=name, shards=3, replicas=2, exact=True)
    return pellucid.engines.Milvus(request.getfixturevalue("milvus"), name, graph=False)


@pytest.fixture(scope="module")
def words():
    return StaticEmbedder(Vocabulary(WORDS), np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32))


def texts_of(count, seed=0):
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, 20))) for _ in range(count)]


def ids_of(hits):
    return sorted(hit.id for hit in hits)


# --- The engine itself ---


def test_an_engine_answers_as_a_matrix_product(engine, tmp_path):
    chance = np.random.default_rng(0)
    vectors = {}
    for number in range(1 << 16, 201 << 16, 1 << 16):
        own = {"dense-part": chance.normal(size=5).astype(np.float32)} if number % 3 else {}
        if number % 5:
            own["sparse part"] = (np.sort(chance.choice(40, 6, False)), chance.random(6).astype(np.float32) + 0.1)
        vectors[number] = own
    made = engine.create(Generation(tmp_path, "engine-1", {"dense-part": 5}, {"sparse part": False}))
    try:
        made.index_payload("n0")
        made.put([Point(number, own, {"n0": [float(number >> 16)]}) for number, own in vectors.items()])
        made.flush()
        made.optimize()
        assert list(made.numbers()) == sorted(vectors)
        assert list(made.numbers(150 << 16)) == sorted(vectors)[149:]
        check_vectors(made.vectors(vectors, ["dense-part", "sparse part"]), vectors)
        queries = {"dense-part": chance.normal(size=5).astype(np.float32),
                   "sparse part": (np.array([3, 7, 11]), np.array([0.5, 1.0, 2.0], np.float32))}  # fmt: skip
        every = {name: products_of(vectors, name, query) for name, query in queries.items()}
        check_found(made.search(queries, 20), every, 20)
        some = {number: number >> 16 for number in vectors if number >> 16 > 150}
        above = ((Condition("n0", "range", {"gt": 150.0}),),)
        check_found(made.search(queries, 20, above), {n: pick(found, some) for n, found in every.items()}, 20)
        asked = {name: sorted(vectors)[:30] for name in queries}
        for name, found in made.products(queries, asked).items():
            assert drop_zeros(found) == pytest.approx(drop_zeros(pick(every[name], asked[name])), abs=1e-5)
        assert made.products(queries, {}) in ({}, {name: {} for name in queries})
        made.delete([1 << 16, 2 << 16, 999 << 16])
        made.flush()
        assert list(made.numbers()) == sorted(vectors)[2:]
    finally:
        made.close()


def products_of(vectors, name, query):
    """Number -> product, of the points that have the part."""
    found = {}
    for number, own in vectors.items():
        if name in own and name == "dense-part":
            found[number] = float(own[name] @ query)
        elif name in own:
            weights = dict(zip(*(side.tolist() for side in query)))
            found[number] = sum(weights.get(n, 0.0) * v for n, v in zip(*(side.tolist() for side in own[name])))
    return found


def check_found(answer, every, limit):
    """The answer is the best of all products; zeros do not matter, nor do points that lack the part."""
    for name, found in answer.items():
        best = sorted(drop_zeros(every[name]).values(), reverse=True)[:limit]
        assert list(found.values()) == sorted(found.values(), reverse=True)
        found = drop_zeros(found)
        assert list(found.values()) == pytest.approx(best[: len(found)], abs=1e-5)
        assert len(found) == len(best) or best[len(found)] < 0
        assert found == pytest.approx({number: every[name][number] for number in found}, abs=1e-5)


def check_vectors(stored, vectors):
    assert stored.keys() == vectors.keys()
    for number, own in vectors.items():
        assert stored[number].keys() == own.keys()
        for name, vector in own.items():
            if name == "dense-part":
                assert stored[number][name] == pytest.approx(vector)
            else:
                found, given = (dict(zip(*(side.tolist() for side in one))) for one in (stored[number][name], vector))
                assert found == pytest.approx(given)


def pick(found, numbers):
    return {number: found[number] for number in numbers if number in found}


def drop_zeros(found):
    return {number: product for number, product in found.items() if product}


# --- The index on it ---


def test_hybrid_search_is_looking_at_every_document(engine, tmp_path, words):
    texts = texts_of(400)
    letters = SparseLetters()
    models = {"words": words, "letters": letters}
    weights = {"bm25": 0.3, "words": 0.4, "letters": 0.3}
    with Index.create(tmp_path / "index", models, weights=weights, engine=engine) as index:
        index.add(texts, ids=[str(n) for n in range(len(texts))])
        assert index.verify() == []
        for query in texts_of(5, seed=1):
            cosines = words.similarity(words.encode([query]), words.encode(texts))[0]
            similar = letters.similarity(letters.encode([query]), letters.encode(texts))[0]
            every = 0.3 * np.array(brute_bm25(query, texts)) + 0.4 * cosines + 0.3 * similar
            hits = index.search(query, 20)
            assert hits.exact
            assert [hit.score for hit in hits] == pytest.approx(np.sort(every)[::-1][:20].tolist(), abs=2e-6)
            for hit in hits[:5]:
                assert hit.score == pytest.approx(every[int(hit.id)], abs=2e-6)
                assert sum(row.contribution for row in hit.explain().rows) == pytest.approx(hit.score, abs=1e-5)


def test_conditions_mean_the_same_everywhere(engine, tmp_path):
    with Index.create(tmp_path / "index", {"letters": SparseLetters()}, engine=engine) as index:
        index.add(["common word"] * 4, ids=list("abcd"), metadata=CONDITIONS_METADATA)
        for where, found in CONDITIONS:
            assert ids_of(index.search("common", where=where)) == sorted(found), where
        odd = {"tag": 'a"b\\c] or id > 0 #\n\u65e5\u672c ' + "long " * 200}
        index.add(["common word"], ids=["odd"], metadata=[odd | {"years": [1.5, 1990, 2030]}])
        assert ids_of(index.search("common", where=odd)) == ["odd"]
        assert ids_of(index.search("common", where={"tag": odd["tag"] + "x"})) == []
        assert ids_of(index.search("common", where={"years": {"gt": 1989, "lt": 1991}})) == ["odd"]
        assert ids_of(index.search("common", where={"years": {"gte": 2031}})) == []


def test_documents_change(engine, tmp_path, fruit):
    with Index.create(tmp_path / "index", {"fruit": fruit}, passage_characters=100, engine=engine) as index:
        index.add(["an apple", "the car", "pear " * 100], ids=["a", "b", "c"], metadata=[{"n": 1}, {"n": 2}, None])
        assert index.search("apple", weights={"bm25": 1})[0].id == "a" and index.verify() == []
        index.add(["a bicycle", "a pear"], ids=["a", "c"])
        assert ids_of(index.search("apple", weights={"bm25": 1})) == [] and len(index) == 3
        assert index.search("pear", weights={"bm25": 1})[0].text == "a pear"
        index.update("b", metadata={"n": 77})
        assert ids_of(index.search("car", where={"n": 77})) == ["b"]
        index.delete(["b"])
        assert ids_of(index.search("car bicycle pear")) == ["a", "c"] and index.verify() == []


def test_an_index_finds_its_engine_again(engine, tmp_path, fruit):
    with Index.create(tmp_path / "index", {"fruit": fruit}, engine=engine) as index:
        index.add(["an apple", "the car"], ids=["a", "b"])
        before = {hit.id: hit.score for hit in index.search("an apple and a car")}
    with Index.open(tmp_path / "index") as index:
        assert {hit.id: hit.score for hit in index.search("an apple and a car")} == pytest.approx(before)
        assert index.verify() == [] and index.info()["engine"] == engine.kind
        index.add(["a pear"], ids=["c"])
        index.rebuild({"fruit": fruit.without(2)})
        assert index.verify() == [] and index._snapshot.commit.state.engine == "engine-2"
        if engine.kind == "qdrant":
            names = [found.name for found in engine._client().get_collections().collections]
            assert [name for name in names if name.startswith(engine.collection)] == [f"{engine.collection}-engine-2"]
        elif engine.kind == "milvus":
            names = [name for name in engine._client().list_collections() if name.startswith(engine.collection)]
            assert names == [f"{engine.collection}_engine_2"]
    with Index.open(tmp_path / "index") as index:
        if engine.kind == "edge":
            assert [folder.name for folder in index.folder.glob("engine-*")] == ["engine-2"]
        assert ids_of(index.search("apple pear car")) == ["a", "b", "c"]


def test_lost_vectors_are_an_error_and_can_be_made_anew(engine, tmp_path, fruit):
    with Index.create(tmp_path / "index", {"fruit": fruit}, engine=engine) as index:
        index.add(["an apple", "the car"], ids=["a", "b"])
    engine.sweep(tmp_path / "index", "none of them")
    with pytest.raises((IndexFolderError, EngineError), match="pellucid index rebuild"):
        Index.open(tmp_path / "index")
    with Index.open(tmp_path / "index", rebuild=True) as index:
        assert index.verify() == [] and ids_of(index.search("apple car")) == ["a", "b"]


def test_a_crash_between_engine_and_commit_leaves_nothing(engine, tmp_path, fruit, monkeypatch):
    index = Index.create(tmp_path / "index", {"fruit": fruit}, passage_characters=100, engine=engine)
    index.add(["an apple", "the car"], ids=["a", "b"])
    with monkeypatch.context() as crash:  # nothing of what would tidy up is done
        crash.setattr(writer, "_write_state", lambda *arguments: 1 / 0)
        crash.setattr(writer, "_delete", lambda *arguments: None)
        with pytest.raises(ZeroDivisionError):
            index.add(["pear " * 200, "a pear"], ids=["a", "x"])
    assert len(list(index._snapshot.engine.numbers())) > 2 and ids_of(index.search("pear", weights={"bm25": 1})) == []
    index.close()
    with Index.open(tmp_path / "index") as index:
        assert index.verify() == [] and ids_of(index.search("apple pear car")) == ["a", "b"]
        index.add(["a pear"], ids=["y"])
        assert index.verify() == [] and ids_of(index.search("pear", weights={"bm25": 1})) == ["y"]


def test_an_engine_that_fails_half_way_leaves_nothing_of_another_document(engine, tmp_path, fruit, monkeypatch):
    with Index.create(tmp_path / "index", {"fruit": fruit}, passage_characters=100, engine=engine) as index:
        index.add(["an apple", "the car"], ids=["a", "b"])

        def gone(*arguments):
            raise EngineError("no way there")

        with monkeypatch.context() as cut:
            cut.setattr(index._snapshot.engine, "delete", gone)
            index.add(["a pear"], ids=["a"])  # is committed; that the old one has to go is kept in mind
        assert ids_of(index.search("apple", weights={"bm25": 1})) == []
        with monkeypatch.context() as cut:  # the points arrive, and nothing after them
            cut.setattr(index._snapshot.engine, "flush", gone)
            with pytest.raises(EngineError, match="no way there"):
                index.add(["pear " * 200], ids=["x"])
            cut.setattr(index._snapshot.engine, "delete", gone)
            with pytest.raises(EngineError, match="no way there"):
                index.add(["pear " * 200], ids=["x"])
        assert ids_of(index.search("pear", weights={"bm25": 1})) == ["a"]
        index.add(["short"], ids=["y"])
        assert index.verify() == [] and ids_of(index.search("pear short", weights={"bm25": 1})) == ["a", "y"]


def test_searches_while_the_index_changes(engine, tmp_path, words):
    with Index.create(tmp_path / "index", {"words": words}, engine=engine) as index:
        index.add(["w0 w1"] * 20, ids=[str(n) for n in range(20)])
        done, seen = threading.Event(), []

        def search():
            while not done.is_set():
                try:
                    seen.append([hit.id for hit in index.search("w0 w1 w2", 30)])
                except Exception as error:
                    seen.append(error)

        thread = threading.Thread(target=search)
        thread.start()
        try:
            for version in range(2):
                index.add([f"w0 w1 w{version}"] * 20, ids=[str(n) for n in range(20)])
                index.rebuild()
        finally:
            done.set()
            thread.join()
        assert seen and all(isinstance(ids, list) and len(ids) == len(set(ids)) == 20 for ids in seen), seen
        assert index.verify() == []


def test_an_index_moves_to_another_engine(engine, tmp_path, fruit):
    with Index.create(tmp_path / "index", {"fruit": fruit}) as index:
        index.add(["an apple", "the car"], ids=["a", "b"])
        before = {hit.id: hit.score for hit in index.search("apple car")}
    with pytest.raises(InputError, match=r"rebuild=True"):
        Index.open(tmp_path / "index", engine=engine)
    with Index.open(tmp_path / "index", engine=engine, rebuild=True) as index:
        assert {hit.id: hit.score for hit in index.search("apple car")} == pytest.approx(before)
        assert index.verify() == [] and index.info()["engine"] == engine.kind
    with Index.open(tmp_path / "index", engine="local", rebuild=True) as index:
        assert index.verify() == [] and index.info()["engine"] == "local"
    with Index.open(tmp_path / "index") as index:
        assert index.verify() == [] and ids_of(index.search("apple car")) == ["a", "b"]
        assert [folder.name for folder in index.folder.glob("engine-*")] == []


def test_no_secret_is_written_down(engine, tmp_path, monkeypatch):
    monkeypatch.setenv("QDRANT_API_KEY", "very-secret")
    monkeypatch.setenv("MILVUS_TOKEN", "very-secret")
    Index.create(tmp_path / "index", {"letters": SparseLetters()}, engine=engine).close()
    for file in (tmp_path / "index").rglob("*"):
        assert file.is_dir() or b"very-secret" not in file.read_bytes()


# --- What one of them cannot do ---


class Signed(SparseLetters):
    def _encode(self, texts, role, **options):
        return super()._encode(texts, role, **options) * -1.0


def test_milvus_refuses_negative_sparse_values_and_too_many_numbers(tmp_path, milvus):
    engine = pellucid.engines.Milvus(milvus, f"test_{uuid.uuid4().hex}")
    with pytest.raises(InputError, match="negative sparse values"):
        Index.create(tmp_path / "index", {"signed": Signed()}, engine=engine)
    assert not (tmp_path / "index").exists()
    with Index.create(tmp_path / "index", {"letters": SparseLetters()}, engine=engine) as index:
        with pytest.raises(InputError, match="holds 17 numbers or dates"):
            index.add(["text"], ids=["a"], metadata=[{"n": list(range(17))}])
        index.add(["text"], ids=["b"], metadata=[{"n": list(range(16)), "when": "2024-05-31"}])
        assert index.verify() == [] and ids_of(index.search("text", where={"n": {"gt": 14}})) == ["b"]
        with pytest.raises(InputError, match="2024-05-31"):
            index.search("text", where={"when": {"gt": "20240531"}})


def test_milvus_searches_a_graph_unless_told_otherwise(tmp_path, milvus, words):
    texts = texts_of(1500)
    engine = pellucid.engines.Milvus(milvus, f"test_{uuid.uuid4().hex}")
    with Index.create(tmp_path / "index", {"words": words}, bm25=False, engine=engine) as index:
        index.add(texts, ids=[str(n) for n in range(len(texts))])
        found = wanted = 0
        for query in texts_of(5, seed=1):
            cosines = words.similarity(words.encode([query]), words.encode(texts))[0]
            best = np.sort(cosines)[::-1][:10]
            scores = [hit.score for hit in index.search(query, 10)]
            found += sum(score > best[-1] - 1e-5 for score in scores)
            wanted += 10
        assert found >= 0.9 * wanted
        assert not index.search("w1", 10).exact  # a graph may miss some


@pytest.mark.slow
def test_a_graph_says_that_it_may_miss_some(tmp_path):
    """Qdrant Edge builds its graph from about 50,000 vectors on; with `exact` every product is computed."""
    chance = np.random.default_rng(0)
    rows = chance.normal(size=(70_000, 256)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    table = {str(n): row for n, row in enumerate(rows)}

    def model(texts):
        return np.array([table.get(text, rows[0]) for text in texts])

    for engine in (Edge(), Edge(exact=True), None):
        folder = tmp_path / f"{engine}"
        with Index.create(folder, {"m": model}, bm25=False, engine=engine) as index:
            index.add(list(table), ids=list(table))
            for number in range(0, 70_000, 3500):
                best = np.sort(rows @ rows[number])[::-1][:10]
                hits = index.search(str(number), 10)
                right = [hit.score for hit in hits] == pytest.approx(best.tolist(), abs=1e-5)
                assert right or not hits.exact
            assert hits.exact == (engine != Edge())


@pytest.mark.parametrize("kind", ["qdrant", "milvus"])
def test_the_collections_of_another_index_are_left_alone(kind, tmp_path, request, fruit):
    engine = request.getfixturevalue("local_qdrant" if kind == "qdrant" else "milvus")
    name = f"test_{uuid.uuid4().hex}"
    engine = (
        pellucid.engines.Qdrant("http://127.0.0.1:1", name)
        if kind == "qdrant"
        else pellucid.engines.Milvus(engine, name)
    )
    letters = {"letters": SparseLetters()}
    with Index.create(tmp_path / "one", letters, engine=engine) as index:
        index.add(["apple"], ids=["a"])
        with pytest.raises(InputError, match="give another name"):
            Index.create(tmp_path / "two", letters, engine=engine)
        assert not (tmp_path / "two").exists() and ids_of(index.search("apple")) == ["a"]


@pytest.mark.parametrize("kind", ["qdrant", "milvus"])
def test_a_server_that_is_not_there(kind, tmp_path):
    engines = pellucid.engines
    pytest.importorskip("qdrant_client" if kind == "qdrant" else "pymilvus")
    engine = (
        engines.Qdrant("http://127.0.0.1:9", "x") if kind == "qdrant" else engines.Milvus("http://127.0.0.1:9", "x")
    )
    with pytest.raises(EngineError, match=r"at http://127\.0\.0\.1:9"):
        Index.create(tmp_path / "index", {"letters": SparseLetters()}, engine=engine)
    assert not (tmp_path / "index").exists()


def test_settings_that_cannot_be(tmp_path):
    pytest.importorskip("qdrant_client")
    pytest.importorskip("pymilvus")
    with pytest.raises(InputError, match="the collection is 'a/b'"):
        pellucid.engines.Qdrant("http://127.0.0.1:9", "a/b")
    with pytest.raises(InputError, match="the collection is 'a-b'"):
        pellucid.engines.Milvus("http://127.0.0.1:9", "a-b")
    with pytest.raises(InputError, match="the engine is 'qdrant'"):
        Index.create(tmp_path / "index", {"letters": SparseLetters()}, engine="qdrant")
    with pytest.raises(InputError, match="leave the engine out"):
        Index.create(tmp_path / "index", {}, engine=Edge())
    with Index.create(tmp_path / "index", {}) as index, index._exclusive_writer() as writer:
        state = writer.commit.state
        assert state.settings["engine"] == {"kind": "local"}
        writer.save(replace(state, settings=state.settings | {"engine": {"kind": "later"}}), ())
    with pytest.raises(IndexFolderError, match="does not know"):
        Index.open(tmp_path / "index")
