"""Embeddings as points in the plane; of many rows by a process that can be stopped at any moment.

t-SNE puts similar rows side by side. scikit-learn cannot be asked to stop, and its t-SNE takes up to half a minute for
5,000 rows; a process takes one or two seconds to start. More rows are projected by UMAP where its package is installed,
otherwise by PCA, which takes a second for 30,000.
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

MAX_TSNE_ROWS = 5_000
_COMPONENTS = 50  # that t-SNE sees: as many keep the neighbours, and it is quicker
_PERPLEXITY = 30
_ROUNDING = 1e-6  # rows of length 1 that differ by less differ by rounding
_MIN_PROCESS_ROWS = 1_500  # fewer take three seconds at most
_POLL_S = 0.1  # between two looks at whether the work is cancelled
_PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from pellucid.server.layout import main; main()"

Points = npt.NDArray[np.float32]
"""Points in the plane from -1 to 1, float32 [rows, 2]."""


def project(rows: Any) -> tuple[Points, str]:
    """Return L2-normalised rows, dense or CSR, as points, and the name of the method."""
    require("scikit-learn", "serve")
    if rows.shape[0] <= MAX_TSNE_ROWS:
        return _cancellable_tsne(rows), "t-SNE"
    try:
        from umap import UMAP
    except ImportError:
        return _scaled(_reduced(rows, 2)), "PCA"
    return _scaled(UMAP(metric="cosine", random_state=0).fit_transform(rows)), "UMAP"


def _cancellable_tsne(rows: Any) -> Points:
    """Return what `tsne` returns, of many rows computed by a process that is killed if this work is cancelled."""
    if rows.shape[0] < _MIN_PROCESS_ROWS:
        return tsne(rows)
    arrays = {"rows": rows}
    if hasattr(rows, "tocsr"):
        parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
        arrays = parts | {"shape": np.array(rows.shape)}
    paths = json.dumps([path for path in sys.path if path])  # not the working folder, which may hold anything
    command = [sys.executable, "-I", "-W", "ignore", "-c", _PROGRAM, paths]
    with TemporaryFile() as content:  # a pipe would have to be fed
        np.savez(content, **arrays)
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
        points: Points = arrays["points"]
        return points


def _wait_for(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Return what a process has written once it ends."""
    while True:
        check_cancelled()
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_POLL_S)


def main() -> None:
    """Lay out the rows that come on stdin; the points go to stdout."""
    with np.load(io.BytesIO(sys.stdin.buffer.read())) as arrays:
        if "rows" in arrays:
            rows: Any = arrays["rows"]
        else:
            from scipy.sparse import csr_matrix

            rows = csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"]))
        points = tsne(rows)
    content = io.BytesIO()
    np.savez(content, points=points)
    sys.stdout.buffer.write(content.getvalue())


def tsne(rows: Any) -> Points:
    """Return L2-normalised rows, dense or CSR, as points."""
    from sklearn.manifold import TSNE

    count = rows.shape[0]
    width = min(_COMPONENTS, min(rows.shape) - 1)
    reduced = np.nan_to_num(_reduced(rows, width) if width < rows.shape[1] else rows)  # NaN of texts all the same
    points = np.zeros((count, 2))
    if reduced.std(axis=0).max() > _ROUNDING:  # else t-SNE divides by 0, and its tree of NaN ends the process
        perplexity = min(_PERPLEXITY, (count - 1) / 3)
        points = TSNE(2, perplexity=perplexity, init="pca", random_state=0, max_iter=500).fit_transform(reduced)
    return _scaled(points)


def _reduced(rows: Any, width: int) -> Any:
    """Return the first principal components of rows; CSR rows are not centred."""
    from sklearn.decomposition import PCA, TruncatedSVD

    if hasattr(rows, "tocsr"):
        return TruncatedSVD(width, random_state=0).fit_transform(rows)
    return PCA(width, svd_solver="randomized", random_state=0).fit_transform(rows)


def _scaled(points: Any) -> Points:
    points = points - points.mean(axis=0)
    return np.asarray(points / max(float(np.abs(points).max()), 1e-9), np.float32)
