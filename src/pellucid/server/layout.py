"""Embeddings as points in the plane and as clusters; of many rows by a process that can be stopped at any moment.

t-SNE puts similar rows side by side, KMeans makes the clusters. scikit-learn cannot be asked to stop, and its t-SNE
takes up to half a minute for 5,000 rows. A process takes one or two seconds to start.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import suppress
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import require
from pellucid.progress import check_cancelled

_COMPONENTS = 50  # that t-SNE sees: as many keep the neighbours, and it is quicker
_PERPLEXITY = 30
_ROUNDING = 1e-6  # rows of length 1 that differ by less differ by rounding
_MIN_PROCESS_ROWS = 1_500  # fewer take three seconds at most
_POLL_S = 0.1  # between two looks at whether the work is cancelled
_PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from pellucid.server.layout import main; main()"

Layout = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]
"""Points, [rows, 2], and the cluster of each row."""


def cancellable_layout(rows: Any, clusters: int) -> Layout:
    """Return what `layout` returns, of many rows computed by a process that is killed if this work is cancelled."""
    require("scikit-learn", "serve")
    if rows.shape[0] < _MIN_PROCESS_ROWS:
        return layout(rows, clusters)
    arrays = {"rows": rows}
    if hasattr(rows, "tocsr"):
        parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
        arrays = parts | {"shape": np.array(rows.shape)}
    paths = json.dumps([path for path in sys.path if path])  # not the working folder, which may hold anything
    command = [sys.executable, "-I", "-W", "ignore", "-c", _PROGRAM, paths]
    with TemporaryFile() as content:  # a pipe would have to be fed
        np.savez(content, clusters=np.array(clusters), **arrays)
        content.seek(0)
        with subprocess.Popen(command, stdin=content, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                answer, complaint = _wait_for(process)
            except BaseException:
                process.kill()
                raise
    if process.returncode:
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"the process that lays out a map ended with {process.returncode}: {last:.200}")
    with np.load(io.BytesIO(answer)) as arrays:
        return arrays["points"], arrays["members"]


def _wait_for(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Return what a process has written once it ends."""
    while True:
        check_cancelled()
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_POLL_S)


def main() -> None:
    """Lay out the rows that come on stdin; the points and clusters go to stdout."""
    with np.load(io.BytesIO(sys.stdin.buffer.read())) as arrays:
        if "rows" in arrays:
            rows: Any = arrays["rows"]
        else:
            from scipy.sparse import csr_matrix

            rows = csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"]))
        points, members = layout(rows, int(arrays["clusters"]))
    content = io.BytesIO()
    np.savez(content, points=points, members=members)
    sys.stdout.buffer.write(content.getvalue())


def layout(rows: Any, clusters: int) -> Layout:
    """Return rows of length 1, dense or CSR, as points in the plane, from -1 to 1, in at most so many clusters."""
    from sklearn.cluster import KMeans
    from sklearn.decomposition import TruncatedSVD
    from sklearn.manifold import TSNE

    count = rows.shape[0]
    width = min(_COMPONENTS, min(rows.shape) - 1)
    reduced = TruncatedSVD(width, random_state=0).fit_transform(rows) if width < rows.shape[1] else rows
    reduced = np.nan_to_num(reduced)  # of texts that are all the same
    members = KMeans(min(clusters, count // 2), n_init=1, random_state=0).fit_predict(reduced)
    points = np.zeros((count, 2))
    if reduced.std(axis=0).max() > _ROUNDING:  # else t-SNE divides by 0, and its tree of NaN ends the process
        perplexity = min(_PERPLEXITY, (count - 1) / 3)
        points = TSNE(2, perplexity=perplexity, init="pca", random_state=0, max_iter=500).fit_transform(reduced)
    points = (points - points.mean(axis=0)) / max(float(np.abs(points - points.mean(axis=0)).max()), 1e-9)
    return np.asarray(points, np.float64), np.asarray(members, np.int64)
