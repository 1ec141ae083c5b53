"""The non-private clusterings that the k-means distance is measured to: the best found by a search over k.

The search is a function of the points alone. One run of scikit-learn's k-means (one k-means++ start) is made for every
number of clusters of a grid, then twenty more at the two numbers whose run had the highest silhouettes; of all runs the
twenty of highest silhouette are the references. All seeds are fixed and one thread is used, so the same points have the
same references in every process. The outcome is kept on disk, under a hash of the points and of everything that
decides the search, and in memory for the life of the process.
"""

import fcntl
import hashlib
import io
import json
import os
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import sklearn
from sklearn.cluster import KMeans, kmeans_plusplus
from threadpoolctl import threadpool_limits

from pkm.compute import SCALE, Points, cluster_means
from pkm.compute.silhouette import __file__ as partition_room
from pkm.metrics.silhouettes import __file__ as silhouettes_room
from pkm.metrics.silhouettes import silhouette_sample, silhouettes

#: The files that decide what the search finds, beside the versions of what they import: a change makes it anew.
SOURCES = (Path(__file__), Path(silhouettes_room), Path(partition_room))
#: The first seed of the search: no replicate of a baseline has it, which would then be compared with itself.
FIRST_SEED = 1_000_000
GRID = (*range(2, 13), 14, 16, 20, 24, 26, 28, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128)
BEST = 2  # numbers of clusters that are run again
RUNS = 20  # how often
TOP = 20  # how many runs become references
CACHE_VARIABLE = "PKM_CACHE"
DIGEST_SIZE = hashlib.sha256().digest_size


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


@lru_cache(maxsize=2)  # the cells of a data set follow each other
def reference_set(points: Points) -> ReferenceSet:
    """Reference clusterings of some points; searched for once, then read from the cache.

    Parameters
    ----------
    points : Points

    Returns
    -------
    ReferenceSet
    """
    folder = cache_folder() / "references"
    path = folder / f"{search_key(points)}.bin"
    found = None
    try:
        found = load(path)
        if found is not None:
            return found
        folder.mkdir(parents=True, exist_ok=True)
        with locked(path.with_suffix(".lock")):
            # Another process may have made the same search while this one waited.
            found = load(path) or search(points)
            save(path, found)
    except OSError as error:
        told = f"reference clusterings cannot be kept in {folder} ({error.strerror}): they are searched for again"
        warnings.warn(
            f"{told} in every process; set {CACHE_VARIABLE} to a folder that can be written",
            stacklevel=2,
        )
    return found or search(points)


def reference_silhouettes(points: Points) -> list[tuple[int, float]]:
    """List the number of clusters and the best silhouette that the search found with it, by number of clusters."""
    best: dict[int, float] = {}
    for k, score in reference_set(points).runs:
        best[k] = max(score, best.get(k, -np.inf))
    return sorted(best.items())


def search(points: Points) -> ReferenceSet:
    """Make the search; see the module's text.

    Where the points do not allow for two clusters that differ, everything is one cluster.
    """
    most = min(points.shape[0] - 1, len(np.unique(points.rows, axis=0)))
    grid = [k for k in GRID if k <= most] or [1]
    with threadpool_limits(limits=1):
        runs = judged(points, [(k, 0) for k in grid])
        best = [k for k, *_ in sorted(runs, key=rank)[:BEST]]
        runs += judged(points, [(k, seed) for k in best for seed in range(1, RUNS + 1)])
        chosen = [centers_of(points, labels, k) for k, _, _, labels in sorted(runs, key=rank)[:TOP]]
    return ReferenceSet(tuple(chosen), tuple((k, score) for k, _, score, _ in runs))


def judged(
    points: Points, asked: list[tuple[int, int]]
) -> list[tuple[int, int, float, np.ndarray]]:
    """Run k-means for each (k, seed); return (k, seed, silhouette, labels)."""
    # Starts in double and iterations in single precision: each is the quicker one for scikit-learn.
    double, single = points.rows.astype(np.float64) / SCALE, points.rows / np.float32(SCALE)
    norms, found = points.norms / SCALE**2, []
    for k, seed in asked:
        start, _ = kmeans_plusplus(double, k, x_squared_norms=norms, random_state=FIRST_SEED + seed)
        found.append(KMeans(k, init=start.astype(np.float32), n_init=1).fit(single).labels_)
    found = np.stack(found)
    scores = silhouettes(
        points, found[:, silhouette_sample(points.shape[0])], max(k for k, _ in asked)
    )
    return [
        (k, seed, float(score), each)
        for (k, seed), score, each in zip(asked, scores, found, strict=True)
    ]


def rank(run: tuple) -> tuple:
    """Order runs by silhouette, the highest first; ties by k, then by seed."""
    k, seed, score, _ = run
    return -score, k, seed


def centers_of(points: Points, labels: np.ndarray, k: int) -> np.ndarray:
    """Means of the points of each label that has some, in half-widths; exact before the one division."""
    means, counts = cluster_means(points, labels[None], k)
    return means[0][counts[0] > 0] / SCALE


def search_key(points: Points) -> str:
    """Hash the points and everything that decides what the search finds."""
    sources = [hashlib.sha256(path.read_bytes()).hexdigest() for path in SOURCES]
    decided = [sources, sklearn.__version__, np.__version__]
    return hashlib.sha256(points.digest + json.dumps(decided).encode()).hexdigest()


def cache_folder() -> Path:
    """Folder for what is kept between runs: PKM_CACHE or ``~/.cache/private-kmeans-bench``."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "private-kmeans-bench"


def save(path: Path, found: ReferenceSet) -> None:
    """Keep the outcome of a search, behind a checksum; a crash leaves nothing half written."""
    content = io.BytesIO()
    ks, scores = zip(*found.runs, strict=True)
    sizes = [len(each) for each in found.centers]
    np.savez(content, centers=np.concatenate(found.centers), sizes=sizes, ks=ks, scores=scores)
    content = content.getvalue()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load(path: Path) -> ReferenceSet | None:
    """Read the outcome of a search; None where there is none or the file is damaged."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if hashlib.sha256(content[DIGEST_SIZE:]).digest() != content[:DIGEST_SIZE]:
        return None
    with np.load(io.BytesIO(content[DIGEST_SIZE:])) as stored:
        centers = np.split(stored["centers"], np.cumsum(stored["sizes"])[:-1])
        runs = zip(stored["ks"].tolist(), stored["scores"].tolist(), strict=True)
        return ReferenceSet(tuple(centers), tuple(runs))


@contextmanager
def locked(path: Path):
    """Hold a lock among processes during a block; it goes with the process that holds it."""
    with open(path, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
