"""What nobody waits for any more ends; what is slow keeps nobody out; what was read is not read again."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from scipy.sparse import csr_matrix

pytest.importorskip("fastapi", reason="the server needs pellucid[serve]")

import pellucid
from pellucid.index.segments import Segment
from pellucid.persistence.store import read_tensors
from pellucid.progress import CancelledWorkError, Progress, cancellable, check_cancelled
from pellucid.server import ServerSettings, corpus_map, layout, reasons_api
from pellucid.server.bodies import MAX_TESTS, MAX_WHERE_VALUES
from pellucid.server.service import _open_indexes
from pellucid.static.embedder import StaticEmbedder
from serving import Slow, ask, connected, running


@pytest.mark.full
def test_work_ends_with_its_request(static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def describe(self: Any, text: str, **_: Any) -> str:
        try:
            with Progress("thinking", enabled=False) as progress:
                for _ in range(1000):
                    time.sleep(0.01)
                    progress.advance()
        finally:
            ended.set()
        return "done"

    with running({"static-en": static}, timeout=0.3) as url:
        monkeypatch.setattr(StaticEmbedder, "describe", describe)
        assert ask(url, "/describe", {"text": "a"})[0] == 504
        assert ended.wait(1)


def test_encoding_ends_with_its_request(static: StaticEmbedder) -> None:
    class Patient(Slow):
        steps, ended = 0, threading.Event()

        def _encode(self, texts: Any, role: Any, **options: Any) -> Any:
            if "patience" in texts:
                try:
                    for _ in range(1000):
                        check_cancelled()
                        time.sleep(0.01)
                finally:
                    self.ended.set()
            return super()._encode(texts, role, **options)

    model = Patient(0)
    with running({"patient": model}, timeout=0.3) as url:
        assert ask(url, "/embed", {"inputs": "patience"})[0] == 504
        assert model.ended.wait(1)
        assert ask(url, "/embed", {"inputs": "a"})[0] == 200


@pytest.mark.full
@pytest.mark.parametrize("form", [np.asarray, csr_matrix])
def test_a_layout_is_the_same_from_a_process(
    form: Any, static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    rows = form(static.encode([f"{word} {n}" for n in range(5) for word in ("dog", "loan", "river", "cat")]))
    points = layout.tsne(rows)
    monkeypatch.setattr(layout, "_MIN_PROCESS_ROWS", 1)
    there, method = layout.project(rows)
    np.testing.assert_allclose(points, there, atol=1e-6)
    assert method == "t-SNE"
    monkeypatch.setattr(layout, "MAX_TSNE_ROWS", 10)
    many, method = layout.project(rows)
    assert many.shape == (len(points), 2) and np.abs(many).max() == 1 and method in ("PCA", "UMAP")


def test_the_process_of_a_layout_ends_with_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setattr(layout, "_MIN_PROCESS_ROWS", 1)
    monkeypatch.setattr(layout, "_PROGRAM", "import time; time.sleep(60)")
    began = time.perf_counter()
    with pytest.raises(CancelledWorkError), cancellable(lambda: time.perf_counter() - began > 0.3):
        layout.project(np.eye(20))
    assert time.perf_counter() - began < 10
    monkeypatch.setattr(layout, "_PROGRAM", "raise SystemExit('no room')")
    with pytest.raises(RuntimeError, match="no room"):
        layout.project(np.eye(20))


def test_the_index_is_looked_through_once_a_commit(
    static: StaticEmbedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("Stemmer")
    read, overview = [0], reasons_api._overview

    def counted(index: Any) -> Any:
        read[0] += 1
        return overview(index)

    with pellucid.Index.create(tmp_path / "index") as index:
        index.add([f"document {n}" for n in range(50)], metadata=[{"lang": "en", "n": f"{n}"} for n in range(50)])
    monkeypatch.setattr(reasons_api, "_overview", counted)
    with running({"static-en": static}, index=str(tmp_path / "index"), read_only=True) as url:
        first = ask(url, "/index")
        assert first[0] == 200 and first[1]["values"]["lang"] == [{"value": "en", "documents": 50}]
        assert first[1]["all values"] == {"lang": True, "n": False} and len(first[1]["values"]["n"]) == 50
        assert len(first[1]["examples"]) == 4 and read[0] == 1
        assert all(ask(url, "/index") == first for _ in range(5)) and read[0] == 1
        with pellucid.Index.open(tmp_path / "index") as index:
            index.add(["une autre"], metadata=[{"lang": "fr"}])
        values = ask(url, "/index")[1]["values"]["lang"]
        assert [one["value"] for one in values] == ["en", "fr"] and read[0] == 2


def test_several_indexes_are_told_apart(static: StaticEmbedder, tmp_path: Path) -> None:
    pytest.importorskip("Stemmer")
    folders = [tmp_path / name for name in ("first", "second", "other/first")]
    for folder in folders:
        with pellucid.Index.create(folder) as index:
            index.add([f"a loan in {folder.relative_to(tmp_path)}"])
    with running({"static-en": static}, index=tuple(map(str, folders))) as url:
        names = ask(url, "/info")[1]["indexes"]
        assert names == ["first", "second", "first-2"]
        for name, folder in zip([*names, None], [*folders, folders[0]]):
            hits = ask(url, "/search", {"query": "loan", "index": name})[1]["hits"]
            assert hits[0]["text"].endswith(str(folder.relative_to(tmp_path)))
            assert ask(url, "/documents", {"index": name})[1]["documents"][0]["text"] == hits[0]["text"]
        status, error = ask(url, "/search", {"query": "loan", "index": "third"})
        assert status == 404 and "first, second" in error["error"]


def test_the_map_of_an_index_is_made_once(
    static: StaticEmbedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("Stemmer")
    pytest.importorskip("sklearn")
    made, project = [0], corpus_map.project

    def counted(rows: Any) -> Any:
        made[0] += 1
        return project(rows)

    monkeypatch.setattr(corpus_map, "project", counted)
    words = ["a loan from the bank", "a dog in the park", "", "rain and snow"]
    with pellucid.Index.create(tmp_path / "index") as index:
        index.add([f"{words[n % 4]} {n}" for n in range(40)], ids=range(40))
        index.delete(["4"])
    for _ in range(2):  # it survives a restart
        with running({"static-en": static}, index=str(tmp_path / "index")) as url:
            first = ask(url, "/map", {"clusters": 3})[1]
            assert ask(url, "/map", {"clusters": 3})[1] == first and made[0] == 1
            assert first["documents"] == len(first["points"]) == 39 and first["method"] == "t-SNE"
            assert [point["id"] for point in first["points"]] == [str(n) for n in range(40) if n != 4]
            members = [n for n, point in enumerate(first["points"]) if "loan" in point["text"]]
            apart = ask(url, "/contrast", {"members": members, "limit": first["limit"]})[1]
            assert apart["words"][0]["word"] in ("loan", "bank") and apart["texts"] == len(members)
    with running({"static-en": static}, index=str(tmp_path / "index")) as url:
        assert len(ask(url, "/map", {"clusters": 3, "limit": 20})[1]["points"]) == 20 and made[0] == 2
        with pellucid.Index.open(tmp_path / "index") as index:
            index.add(["another loan"])
        assert ask(url, "/map", {"clusters": 3})[1]["documents"] == 40 and made[0] == 3
    assert len(list((tmp_path / "index").glob("map-*"))) == 1
    with pellucid.Index.open(tmp_path / "index") as index:
        assert index.verify() == []


DAMAGE: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"points": np.full((12, 2), np.nan, np.float32)}, {}),
    ({"points": np.full((12, 2), 1e30, np.float32)}, {}),
    ({"points": np.zeros(12, np.float32)}, {}),
    ({"points": np.zeros((12, 2), np.int64)}, {}),
    ({"members": np.full(12, 99, np.int32)}, {}),
    ({"members": np.full(12, -7, np.int32)}, {}),
    ({"members": np.zeros(12, np.float32)}, {}),
    ({"members": np.zeros(11, np.int32)}, {}),
    *(({}, {"topics": text}) for text in ("", "5", "null", "[5]", "[null]", '{"a": 1}', "[" * 5000, "[]")),
    ({}, {"commit": "0"}),
]


@pytest.mark.full
def test_a_stored_map_that_is_damaged_is_made_anew(
    static: StaticEmbedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{word} {n}" for n in range(4) for word in ("a loan from the bank", "a dog", "rain and snow")]
    topics = [corpus_map.MapCluster(label="a", words=["a"], texts=12)]
    new = corpus_map.CorpusMap(np.zeros((12, 2), np.float32), [0] * 12, topics, "PCA")
    monkeypatch.setattr(corpus_map, "map_of_rows", lambda *_: new)
    with pellucid.Index.create(tmp_path / "index", static, bm25=False) as index:
        index.add(texts)

        def drawn() -> Any:
            return corpus_map._map_of_index(index, static, "static-en", corpus_map.MapRequest(), False)

        expected = drawn()
        (path,) = (tmp_path / "index").glob("map-*")
        arrays, notes = read_tensors(path)
        stored, digest = {name: np.array(array) for name, array in arrays.items()}, notes["commit"]
        path.write_bytes(path.read_bytes()[:200])
        assert drawn() == expected and corpus_map._read(path, digest, 12).members == new.members
        for tensors, metadata in DAMAGE:
            path.unlink()
            save_file({**stored, **tensors}, path, {**notes, **metadata})
            with pytest.raises((ValueError, KeyError)):
                corpus_map._read(path, digest, 12)


def test_every_index_is_served_whatever_its_folder_is_called(tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("a/x", "b/x", "c/x-2", "d/x-2")]
    for folder in folders:
        Path(folder).parent.mkdir()
        pellucid.Index.create(folder, {}).close()
    opened = _open_indexes(ServerSettings(index=tuple(folders)))
    assert [str(index.folder) for index in opened.values()] == folders and next(iter(opened)) == "x"
    for index in opened.values():
        index.close()


def test_words_of_all_texts_set_no_topic_apart(static: StaticEmbedder) -> None:
    pytest.importorskip("sklearn")
    made = corpus_map.corpus_map(static, [f"the house {word}" for word in ("loan", "dog", "rain", "tea") * 3], 4)
    assert all("house" not in cluster.words for cluster in made.clusters)


def test_topics_of_many_rows_are_named_by_a_sample(static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setattr(corpus_map, "_MAX_POINTS", 30)
    texts = [f"{word} {n}" for n in range(40) for word in ("a loan from the bank", "a dog in the park", "zzqxw")]
    made = corpus_map.map_of_rows(static, texts, static.encode(texts), 2)
    assert len(made.clusters) == 2 and sum(cluster.texts for cluster in made.clusters) == sum(
        m >= 0 for m in made.members
    )
    loans = {member for text, member in zip(texts, made.members) if "loan" in text}
    assert len(loans) == 1 and loans.isdisjoint(m for text, m in zip(texts, made.members) if "dog" in text)


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs/server.md").read_text(encoding="utf-8")
    settings = ServerSettings()
    for limit in (MAX_TESTS, MAX_WHERE_VALUES, settings.max_texts, settings.max_characters, settings.max_waiting):
        assert f"{limit:,}" in page


def test_a_map_reads_only_the_documents_that_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("Stemmer")
    read, document = list[str](), Segment.document

    def counted(self: Segment, row: int) -> Any:
        read.append(document(self, row).id)
        return document(self, row)

    with pellucid.Index.create(tmp_path / "index") as index:
        for start in (0, 7, 9, 40):
            index.add([f"document {n}" for n in range(start, start + 11)], ids=range(start, start + 11))
        index.delete(["3", "41"])
        ids = [document.id for document in index]
        monkeypatch.setattr(Segment, "document", counted)
        for step in range(1, len(ids) + 2):
            assert [document.id for document in index.snapshot().commit.documents(step)] == ids[::step] == read
            read.clear()


def test_half_sent_bodies_do_not_keep_others_out(static: StaticEmbedder) -> None:
    head = b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    with running({"static-en": static}, max_waiting=8, max_body_bytes=1 << 20, timeout=20) as url, ExitStack() as held:
        for _ in range(30):
            held.enter_context(connected(url)).sendall(head % 100 + b"{")
        large = b'{"inputs": "' + b"a" * ((1 << 20) - 100)
        for _ in range(8):
            held.enter_context(connected(url)).sendall(head % (1 << 20) + large)
        time.sleep(0.3)
        assert ask(url, "/embed", {"inputs": "a"})[0] == 200
        assert ask(url, "/models")[0] == 200


def test_a_body_that_does_not_go_on_is_given_up(static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.server.guard._STALL_S", 0.2)
    head = b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
    with running({"static-en": static}) as url:
        for rest in (b"content-length: 10\r\n\r\n{", b"transfer-encoding: chunked\r\n\r\n5\r\n{"):
            with connected(url) as half:
                half.sendall(head + rest)
                began = time.perf_counter()
                assert half.recv(100).startswith(b"HTTP/1.1 408") and time.perf_counter() - began < 5
