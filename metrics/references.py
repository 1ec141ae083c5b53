"""Reference clusterings of the k-means distance: the best of a search over k.

The search is a function of the points alone, without privacy. It makes one run of
scikit-learn's k-means (one k-means++ start) for every number of clusters of a grid.
The two numbers whose runs had the highest silhouettes get twenty more runs each. The
references are the twenty runs of highest silhouette among all. All seeds are fixed and
one thread is used, so the same points have the same references in every process. The
outcome is cached in memory, and on disk under a hash of the points, of `SOURCES` and of
the versions of libraries.
"""

import hashlib
import io
import json
import shutil
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import sklearn
from sklearn.cluster import KMeans, kmeans_plusplus
from threadpoolctl import threadpool_limits

from pkm.compute import SCALE, Points, cluster_means
from pkm.compute.kernels.silhouette import __file__ as sums_file
from pkm.files import (
    CACHE_VARIABLE,
    cache_folder,
    create_owner_folder,
    locked,
    read_with_checksum,
    write_with_checksum,
)
from pkm.metrics.silhouettes import __file__ as silhouettes_file
from pkm.metrics.silhouettes import silhouette_sample, silhouettes
from pkm.source import code_digest

#: If the code of one of these files changes, or the version of a library, the search is
#: made again. Changes of other modules that they import, such as `simd/lanes.py` and
#: `storage/points.py`, are not noticed.
SOURCES = (Path(__file__), Path(silhouettes_file), Path(sums_file))
#: First seed of the search. It is above the seeds of all replicates, so that no
#: non-private k-means is its own reference.
FIRST_SEED = 1_000_000
GRID = (*range(2, 13), 14, 16, 20, 24, 26, 28, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128)
#: How many numbers of clusters are repeated, and how often.
N_REPEATED = 2
N_REPEATS = 20
#: How many runs become references: the top 20, as in section 6.2 of the DPM paper.
N_REFERENCES = 20
#: Runs that take longer are kept on disk until the search is done.
KEPT_SECONDS = 0.1


@dataclass(frozen=True, eq=False)
class ReferenceSet:
    """Outcome of the search.

    Attributes
    ----------
    centers : tuple of ndarray of shape (k, d), float64
        The chosen clusterings, the best silhouette first, in half-widths of the domain.
    runs : tuple of (int, float)
        Number of clusters and silhouette of every run, in the order they were made.
    """

    centers: tuple[np.ndarray, ...]
    runs: tuple[tuple[int, float], ...]


@dataclass(frozen=True, eq=False)
class KMeansRun:
    """One run of k-means.

    Attributes
    ----------
    k, seed : int
    silhouette : float
    labels : ndarray of shape (n,), int32
    """

    k: int
    seed: int
    silhouette: float
    labels: np.ndarray

    @property
    def sort_key(self) -> tuple[float, int, int]:
        """Order by silhouette, the highest first; ties by k, then by seed."""
        return -self.silhouette, self.k, self.seed


@lru_cache(maxsize=2)  # the cells of a data set follow each other
def reference_set(points: Points) -> ReferenceSet:
    """Return the reference clusterings of some points.

    They are searched for once, then read from the cache.

    Parameters
    ----------
    points : Points

    Returns
    -------
    ReferenceSet
    """
    folder = cache_folder() / "references"
    path = folder / f"{search_key(points)}.bin"
    references = None
    try:
        references = load(path)
        if references is not None:
            return references
        # Names and content tell of the points, which may be somebody's own.
        create_owner_folder(folder)
        with locked(path.with_suffix(".lock")):
            # Another process may have made the same search while this one waited.
            references = load(path) or search(points, path.with_suffix(".runs"))
            save(path, references)
        shutil.rmtree(path.with_suffix(".runs"), ignore_errors=True)
    except OSError as error:
        warnings.warn(
            f"reference clusterings cannot be kept in {folder} ({error.strerror}): "
            f"they are searched for again in every process; set {CACHE_VARIABLE} to a "
            "folder that can be written",
            stacklevel=2,
        )
    return references or search(points)


def search(points: Points, folder: Path | None = None) -> ReferenceSet:
    """Make the search; see the module's text.

    With fewer than three points, or two distinct ones, there is one cluster.

    Parameters
    ----------
    points : Points
    folder : Path, optional
        Where long runs of k-means are stored, so that an interrupted search can
        continue.
    """
    n_distinct = len(np.unique(points.rows, axis=0))
    largest_k = min(points.shape[0] - 1, n_distinct)
    grid = [k for k in GRID if k <= largest_k] or [1]
    with threadpool_limits(limits=1):
        # One run for every number of clusters.
        runs = run_k_means(points, [(k, 0) for k in grid], folder)

        # More runs at the numbers of clusters of highest silhouette.
        ranked = sorted(runs, key=lambda run: run.sort_key)
        repeats = [
            (run.k, seed)
            for run in ranked[:N_REPEATED]
            for seed in range(1, N_REPEATS + 1)
        ]
        runs += run_k_means(points, repeats, folder)

        # The best of all runs are the references.
        ranked = sorted(runs, key=lambda run: run.sort_key)
        centers = [
            compute_centers(points, run.labels, run.k) for run in ranked[:N_REFERENCES]
        ]
    silhouettes_by_run = [(run.k, run.silhouette) for run in runs]
    return ReferenceSet(tuple(centers), tuple(silhouettes_by_run))


def run_k_means(
    points: Points,
    starts: Sequence[tuple[int, int]],
    folder: Path | None = None,
) -> list[KMeansRun]:
    """Run k-means for each (k, seed); `folder` as in `search`.

    Returns
    -------
    list of KMeansRun
        In the order of `starts`.
    """
    # k-means++ in double and iterations in single precision: in scikit-learn each is
    # faster so.
    double = points.rows.astype(np.float64) / SCALE
    single = points.rows / np.float32(SCALE)
    squared_norms = points.squared_norms / SCALE**2

    def fit(k: int, seed: int) -> np.ndarray:
        centers, _ = kmeans_plusplus(
            double,
            k,
            x_squared_norms=squared_norms,
            random_state=FIRST_SEED + seed,
        )
        # Without annotations in scikit-learn the types of its parameters are guessed
        # from defaults.
        kmeans = KMeans(
            k,
            init=centers.astype(np.float32),  # type: ignore[reportArgumentType]
            n_init=1,  # type: ignore[reportArgumentType]
        )
        return np.asarray(kmeans.fit(single).labels_)

    rows = []
    for k, seed in starts:
        path = None if folder is None else folder / f"{k}-{seed}"
        stored = None if path is None else read_with_checksum(path)
        if stored is not None:
            rows.append(np.frombuffer(stored, dtype=np.int32))
            continue
        started = time.perf_counter()
        row = fit(k, seed)
        seconds = time.perf_counter() - started
        if path is not None and seconds > KEPT_SECONDS:
            write_with_checksum(path, row.tobytes())
        rows.append(row)
    labels = np.stack(rows)

    # All silhouettes at once: they share the distances between points.
    sample = silhouette_sample(points.shape[0])
    largest_k = max(k for k, _ in starts)
    scores = silhouettes(points, labels[:, sample], largest_k)
    return [
        KMeansRun(k, seed, float(score), row)
        for (k, seed), score, row in zip(starts, scores, labels, strict=True)
    ]


def compute_centers(
    points: Points,
    labels: np.ndarray,
    k: int,
) -> np.ndarray:
    """Compute the means of the non-empty clusters, in half-widths.

    The integer sums are exact; the divisions alone round.
    """
    means, counts = cluster_means(points, labels[None], k)
    is_nonempty = counts[0] > 0
    return means[0][is_nonempty] / SCALE


def search_key(points: Points) -> str:
    """Hash the points, the code of `SOURCES` and the versions of libraries."""
    versions = [
        code_digest(*SOURCES),
        sklearn.__version__,
        np.__version__,
    ]
    content = points.digest + json.dumps(versions).encode()
    return hashlib.sha256(content).hexdigest()


def save(path: Path, references: ReferenceSet) -> None:
    """Write the outcome of a search atomically."""
    ks, scores = zip(*references.runs, strict=True)
    sizes = [len(centers) for centers in references.centers]
    file = io.BytesIO()
    np.savez(
        file,
        centers=np.concatenate(references.centers),
        sizes=sizes,
        ks=ks,
        scores=scores,
    )
    write_with_checksum(path, file.getvalue())


def load(path: Path) -> ReferenceSet | None:
    """Read the outcome of a search; None if there is none or the file is damaged."""
    content = read_with_checksum(path)
    if content is None:
        return None
    with np.load(io.BytesIO(content)) as stored:
        ends = np.cumsum(stored["sizes"])
        centers = np.split(stored["centers"], ends[:-1])
        ks = stored["ks"].tolist()
        scores = stored["scores"].tolist()
    runs = zip(ks, scores, strict=True)
    return ReferenceSet(tuple(centers), tuple(runs))
