"""Who writes the shards of a run: threads or processes of this machine, Ray, or Spark.

An engine takes the numbers of the shards to write and yields what is remembered of each once it is written. All of them
do the same, `write_shard`, and move nothing but numbers: a worker reads its rows and writes its file by itself.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from pellucid import errors
from pellucid.base import Embedder
from pellucid.bulk.shards import Job, Written, opened, write_shard
from pellucid.errors import MissingExtraError, PellucidError, missing_extra
from pellucid.static.embedder import StaticEmbedder

import pyarrow as pa  # isort: skip  # after shards, which says what to install where it is absent


def in_this_process(encoder: Embedder, workers: int) -> bool:
    """Whether local workers are threads: the compiled functions of static models let others run, Python does not."""
    return workers == 1 or isinstance(encoder, StaticEmbedder)


def _locally(job: Job, pending: list[int], workers: int) -> Iterator[Written]:
    workers = min(workers, len(pending))
    pool: Executor = ThreadPoolExecutor(workers)
    if in_this_process(job.model, workers):
        opened(job)  # once, not in every thread
    else:
        method = multiprocessing.get_context("spawn")  # a copy of a process with threads may hang
        pool = ProcessPoolExecutor(workers, method, _prepare, (max(1, (os.cpu_count() or 1) // workers),))
    try:
        for done in as_completed([pool.submit(write_shard, job, number) for number in pending]):
            yield done.result()
    except BrokenProcessPool as error:
        raise PellucidError(
            "a worker process has ended (killed, or out of memory, or the script that started it lacks "
            'if __name__ == "__main__":). What is encoded stays; start the run again to go on, with fewer workers '
            "where memory is short"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
        opened.cache_clear()


def _prepare(threads: int) -> None:
    """Set up a worker process: its share of the cores, and an end when the process that started it is killed."""
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


_SCHEMA = pa.schema({"number": "int64", "texts": "int64", "size": "int64", "sha256": "string", "error": "string"})
_COLUMNS = "number long, texts long, size long, sha256 string, error string"  # the same for Spark


class _Shards:
    """Shards as rows of a table, the form in which Ray and Spark hand out work and take results."""

    def __init__(self, job: Job, pending: list[int]) -> None:
        self.job, self.pending = job, pending

    def __call__(self, batch: Any) -> Any:
        """Write the shards at the places in column `id`; return what is remembered of each, or what was wrong."""
        done = [self._written(self.pending[place]) for place in batch.column("id").to_pylist()]
        return pa.Table.from_pylist(done, _SCHEMA)

    def over(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Do the same for an iterator of record batches."""
        for batch in batches:
            yield from self(batch).to_batches()

    def _written(self, number: int) -> dict[str, Any]:
        try:
            return {**write_shard(self.job, number)._asdict(), "error": ""}
        except PellucidError as error:
            return {**Written(number, 0, 0, "")._asdict(), "error": f"{type(error).__name__}: {error}"}


def _returned(row: Any) -> Written:
    """Return what is remembered of a shard, or raise its error here."""
    if row["error"]:
        name, _, said = row["error"].partition(": ")
        raise getattr(errors, name)(said)
    return Written(int(row["number"]), int(row["texts"]), int(row["size"]), str(row["sha256"]))


def _on_ray(job: Job, pending: list[int], workers: int) -> Iterator[Written]:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise missing_extra("ray", "scale") from error
    started = not ray.is_initialized()
    if started and os.environ.get("RAY_ADDRESS"):
        ray.init()
    elif started:  # one more than the workers, for Ray's own tasks
        ray.init(num_cpus=workers + 1, include_dashboard=False, _node_ip_address="127.0.0.1")
    try:
        numbers = ray.data.range(len(pending), override_num_blocks=len(pending))
        actors = ray.data.ActorPoolStrategy(size=min(workers, len(pending)))
        written = numbers.map_batches(
            _Shards, fn_constructor_args=(job, pending), batch_size=1, batch_format="pyarrow", compute=actors
        )
        yield from map(_returned, written.iter_rows())
    finally:
        if started:
            ray.shutdown()


def _on_spark(job: Job, pending: list[int], workers: int) -> Iterator[Written]:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise missing_extra("pyspark", "scale") from error
    session = SparkSession.getActiveSession()
    started = session is None
    session = session or _local_spark(SparkSession.builder, workers)
    try:
        numbers = session.range(0, len(pending), 1, len(pending))  # a partition a shard
        written = numbers.mapInArrow(_Shards(job, pending).over, _COLUMNS)
        yield from map(_returned, written.collect())
    finally:
        if started:
            session.stop()


def _local_spark(builder: Any, workers: int) -> Any:
    """Start Spark on this machine."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the first python on the path
    builder = builder.master(f"local[{workers}]").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.enabled", "false")
    try:
        return builder.getOrCreate()
    except Exception as error:  # of several classes, none of them Spark's own where there is no Java
        if "JAVA" not in str(error).upper():
            raise
        raise MissingExtraError(
            "Spark does not start without Java 17 or newer. Install one, or say with JAVA_HOME where it is"
        ) from error


ENGINES: dict[str, Callable[[Job, list[int], int], Iterator[Written]]] = {
    "local": _locally,
    "ray": _on_ray,
    "spark": _on_spark,
}
"""Name and function: shards to write, by number, and workers in; what is remembered of each shard out."""
