"""The metrics by name, and their evaluation for a batch of released centers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial.distance import cdist

import pkm.compute as compute
from pkm.compute import SCALE, Points, cluster_means, mean_within_distances
from pkm.metrics.candidates import choose_best
from pkm.metrics.matching import matched_distance, nearest_distances, reference_centers
from pkm.metrics.references import reference_set
from pkm.metrics.silhouettes import sampled_distances, silhouette_sample, silhouettes

#: Points whose distances are computed at once. One float64 array of their coordinates
#: takes 103 MB in 784 features, and there are up to three.
DISTANCE_ROWS = 1 << 14
#: A center is near to a class if it lies within this many radii of the class's mean.
#: The number is a choice of this project: the paper has O(r).
NEAR = 5


@dataclass(frozen=True)
class _Classes:
    """The points' known classes (``labels_true``), without outliers, whose class is -1.

    Attributes
    ----------
    has_class : ndarray of shape (n,), bool
        Mask of the points that have a class.
    codes : ndarray of int64
        Class of each of these points, renumbered from 0.
    sizes : ndarray of int64
        Number of points of each class.
    """

    has_class: np.ndarray
    codes: np.ndarray
    sizes: np.ndarray


@dataclass(frozen=True)
class _Clustering:
    """Released centers and the points, with a cache of what several metrics need.

    Attributes
    ----------
    points : Points
    centers : ndarray of shape (R, k, d), int64
        Centers of a replicate that released fewer are padded by copies of its first.
    n_clusters : int
        Number of centers of the reference clustering of ``centroid_mse``.
    n_centers : ndarray of shape (R,), int
        Number of released centers of each replicate.
    point_classes : ndarray of shape (n,), int, or None
        Class of each point, -1 for outliers; None where none is known.
    """

    points: Points
    centers: np.ndarray
    n_clusters: int
    n_centers: np.ndarray
    point_classes: np.ndarray | None

    @cached_property
    def labels(self) -> np.ndarray:
        return compute.labels(self.points, self.centers)

    @cached_property
    def inertias(self) -> list[int]:
        """Return the inertia of each replicate, exact, in squared grid steps."""
        return compute.inertia(self.points, self.centers)

    @property
    def nicv_divisor(self) -> float:
        """Return the divisor that turns a cost in squared grid steps into a NICV."""
        return self.points.total_weight * SCALE**2

    @cached_property
    def released(self) -> list[np.ndarray]:
        """Return each replicate's centers in half-widths, without padding."""
        return [
            centers[:n_released] / SCALE
            for centers, n_released in zip(self.centers, self.n_centers, strict=True)
        ]

    @cached_property
    def kmeans_distances(self) -> tuple[np.ndarray, np.ndarray]:
        """Return ``kmeans_distance`` and ``reverse_kmeans_distance``."""
        references = reference_set(self.points)
        return nearest_distances(self.released, references.centers)

    @cached_property
    def classes(self) -> _Classes | None:
        """Return the classes; None if no point has one."""
        if self.point_classes is None:
            return None
        has_class = self.point_classes >= 0
        if not has_class.any():
            return None
        _, codes, sizes = np.unique(
            self.point_classes[has_class],
            return_inverse=True,
            return_counts=True,
        )
        return _Classes(has_class, codes, sizes)

    @property
    def nan_scores(self) -> np.ndarray:
        """Return NaN for each replicate, the value of class metrics without classes."""
        return np.full(len(self.centers), np.nan)

    @property
    def diagonal(self) -> float:
        """Return the length of the domain's diagonal, 2 sqrt(d) half-widths."""
        return 2 * np.sqrt(self.points.shape[1])

    @cached_property
    def class_means(self) -> np.ndarray:
        """Return the mean of each class in half-widths, shape (classes, d)."""
        assert self.classes is not None
        sizes = self.classes.sizes
        rows = self.points.rows[self.classes.has_class].astype(np.float64)
        sums = np.zeros((len(sizes), rows.shape[1]))
        np.add.at(sums, self.classes.codes, rows)
        return sums / (sizes[:, None] * SCALE)


def nicv(clustering: _Clustering) -> np.ndarray:
    """Mean squared distance of the points to their nearest released center.

    It is in squared half-widths of the domain. The integer total is exact; the division
    alone rounds. Rows of persons have their weights here, in `inertia` and in
    `nicv_best_k`; in other metrics all rows count alike.
    """
    return np.array([total / clustering.nicv_divisor for total in clustering.inertias])


def inertia(clustering: _Clustering) -> np.ndarray:
    """Sum of squared distances of the points to their nearest released center.

    It is in squared half-widths of the domain. The integer total is exact; the division
    alone rounds.
    """
    return np.array([total / SCALE**2 for total in clustering.inertias])


def silhouette(clustering: _Clustering) -> np.ndarray:
    """Mean silhouette; -1 for a single cluster.

    It is exact up to 10,000 points, and above taken over a fixed sample of that many.
    """
    sample = silhouette_sample(clustering.points.shape[0])
    labels = clustering.labels[:, sample]
    k = clustering.centers.shape[1]
    return silhouettes(clustering.points, labels, k)


def davies_bouldin(clustering: _Clustering) -> np.ndarray:
    """Davies-Bouldin index of the labels; infinite for a single cluster.

    Lower is better.
    """
    points = clustering.points
    labels = clustering.labels
    means, counts = cluster_means(points, labels, clustering.centers.shape[1])
    scatter = mean_within_distances(points, labels, means, counts)
    scores = []
    for replicate in range(len(counts)):
        # The index is defined for clusters that have points.
        nonempty = counts[replicate] > 0
        score = _davies_bouldin(
            means[replicate][nonempty],
            scatter[replicate][nonempty],
        )
        scores.append(score)
    return np.array(scores)


def _davies_bouldin(means: np.ndarray, scatter: np.ndarray) -> float:
    """Index of one replicate by the means and mean within-distances of its clusters."""
    if len(means) < 2:
        return np.inf
    distances = cdist(means, means)
    # A cluster is not compared with itself, nor with one of the same mean.
    distances[distances == 0] = np.inf
    # R_ij = (s_i + s_j) / d_ij; the index is the mean over i of the largest R_ij.
    similarities = (scatter[:, None] + scatter) / distances
    return float(similarities.max(axis=1).mean())


def centroid_mse(clustering: _Clustering) -> np.ndarray:
    """Mean squared distance to matched reference centers (FastLloyd, appendix D).

    It is in squared half-widths. The reference is one clustering:
    :func:`pkm.metrics.matching.reference_centers`.
    """
    reference = reference_centers(clustering.points, clustering.n_clusters)
    return matched_distance(clustering.released, reference, squared=True)


def centroid_distance(clustering: _Clustering) -> np.ndarray:
    """Mean distance to matched reference centers, as of ``centroid_mse``.

    It is in half-widths, and what the FastLloyd paper's figures call MSE.
    """
    reference = reference_centers(clustering.points, clustering.n_clusters)
    return matched_distance(clustering.released, reference, squared=False)


def kmeans_distance(clustering: _Clustering) -> np.ndarray:
    """Mean distance from released centers to the nearest reference center.

    It is in half-widths, averaged over the centers, then over the reference
    clusterings, which are twenty: :func:`pkm.metrics.references.reference_set`.
    """
    # DPM's definition 9 is a sum over the centers, which grows with their number.
    return clustering.kmeans_distances[0]


def kmeans_distance_sum(clustering: _Clustering) -> np.ndarray:
    """Sum of the k-means distance over the released centers (DPM, definition 9)."""
    return clustering.kmeans_distances[0] * clustering.n_centers


def norm_kmeans_distance(clustering: _Clustering) -> np.ndarray:
    """The k-means distance as a share of the domain's diagonal."""
    return clustering.kmeans_distances[0] / clustering.diagonal


def reverse_kmeans_distance(clustering: _Clustering) -> np.ndarray:
    """Mean distance from reference centers to the nearest released center.

    It is averaged over the centers, then over the reference clusterings.
    """
    return clustering.kmeans_distances[1]


def norm_reverse_kmeans_distance(clustering: _Clustering) -> np.ndarray:
    """The reverse k-means distance as a share of the domain's diagonal."""
    return clustering.kmeans_distances[1] / clustering.diagonal


def accuracy(clustering: _Clustering) -> np.ndarray:
    """Share of the points whose class is the most frequent one of their cluster.

    NaN if no classes are known. Outliers (class -1) have no class: they are left out.
    """
    classes = clustering.classes
    if classes is None:
        return clustering.nan_scores
    # Pairs (cluster, class) are numbered in C order of the contingency table.
    n_classes = len(classes.sizes)
    shape = (clustering.centers.shape[1], n_classes)
    shares = []
    for labels in clustering.labels[:, classes.has_class]:
        # Labels are int32, which many clusters times many classes could exceed.
        pairs = labels * np.int64(n_classes) + classes.codes
        counts = np.bincount(pairs, minlength=math.prod(shape))
        table = counts.reshape(shape)
        # Ties do not change the number of points of a cluster's most frequent class.
        n_right = table.max(axis=1).sum()
        shares.append(n_right / len(pairs))
    return np.array(shares)


def mean_distance(clustering: _Clustering) -> np.ndarray:
    """Mean distance, in half-widths, of the points to their nearest released center.

    This is the cost of k-median over n.
    """
    # Block by block, so that the float64 copies of points stay small.
    rows = clustering.points.rows
    totals = np.zeros(len(clustering.centers))
    for start in range(0, len(rows), DISTANCE_ROWS):
        block = slice(start, start + DISTANCE_ROWS)
        points = rows[block].astype(np.float64)
        for replicate, centers in enumerate(clustering.centers):
            labels = clustering.labels[replicate, block]
            offsets = points - centers[labels]
            squares = np.einsum("ij,ij->i", offsets, offsets)
            totals[replicate] += np.sqrt(squares).sum()
    return totals / (len(rows) * SCALE)


def farthest_class(clustering: _Clustering) -> np.ndarray:
    """Largest distance, in half-widths, from a class's mean to its nearest center.

    It is large if a clustering has no center near a class, however small the class is.
    Outliers (class -1) are left out. NaN without classes.
    """
    if clustering.classes is None:
        return clustering.nan_scores
    # For each class the nearest center; of these distances the largest.
    means = clustering.class_means
    distances = [cdist(means, centers) for centers in clustering.released]
    nearest = [matrix.min(axis=1) for matrix in distances]
    return np.array([row.max() for row in nearest])


def unassigned_points(clustering: _Clustering) -> np.ndarray:
    """Number of points in classes that no released center is near.

    A center is near if it lies within ``NEAR (r + 1 / n)`` half-widths of the class's
    mean. Here r is the root of twice the mean squared distance of the class's points to
    that mean. Kaplan and Stemmer 2018, section 3.1, assign such a center to the class.
    Outliers (class -1) are left out. NaN without classes.
    """
    classes = clustering.classes
    if classes is None:
        return clustering.nan_scores
    means = clustering.class_means
    rows = clustering.points.rows[classes.has_class]

    # Sum of squared distances of every class to its mean.
    inertias = np.zeros(len(means))
    for start in range(0, len(rows), DISTANCE_ROWS):
        block = slice(start, start + DISTANCE_ROWS)
        codes = classes.codes[block]
        points = rows[block] / SCALE
        offsets = points - means[codes]
        distances = np.einsum("ij,ij->i", offsets, offsets)
        inertias += np.bincount(codes, distances, len(means))

    # A center assigned to a class lies within this radius of its mean.
    spread = np.sqrt(2 * inertias / classes.sizes)
    radius = NEAR * (spread + 1 / clustering.points.shape[0])
    counts = []
    for centers in clustering.released:
        nearest = cdist(means, centers).min(axis=1)
        missed = classes.sizes[nearest > radius]
        counts.append(missed.sum())
    return np.array(counts, dtype=np.float64)


def nicv_best_k(clustering: _Clustering) -> np.ndarray:
    """NICV of the best ``n_clusters`` of the released centers by local search.

    No private choice among the released centers has a smaller NICV, up to the local
    search. It equals ``nicv`` if at most ``n_clusters`` centers are released.
    """
    values = []
    for centers, n_released in zip(
        clustering.centers, clustering.n_centers, strict=True
    ):
        # Without the padding: copies of the first center are no candidates.
        candidates = centers[:n_released]
        _, cost = choose_best(clustering.points, candidates, clustering.n_clusters)
        values.append(cost / clustering.nicv_divisor)
    return np.array(values)


def n_centers(clustering: _Clustering) -> np.ndarray:
    """Number of released centers."""
    return clustering.n_centers.astype(np.float64)


def nonempty_centers(clustering: _Clustering) -> np.ndarray:
    """Number of released centers that are nearest to some point."""
    counts = [len(np.unique(row)) for row in clustering.labels]
    return np.array(counts, dtype=float)


def empty_clusters(clustering: _Clustering) -> np.ndarray:
    """Number of released centers that are nearest to no point."""
    return n_centers(clustering) - nonempty_centers(clustering)


_FUNCTIONS: dict[str, Callable[[_Clustering], np.ndarray]] = {
    function.__name__: function
    for function in (
        nicv,
        silhouette,
        davies_bouldin,
        centroid_mse,
        centroid_distance,
        empty_clusters,
        inertia,
        accuracy,
        kmeans_distance,
        kmeans_distance_sum,
        norm_kmeans_distance,
        reverse_kmeans_distance,
        norm_reverse_kmeans_distance,
        n_centers,
        nonempty_centers,
        mean_distance,
        farthest_class,
        unassigned_points,
        nicv_best_k,
    )
}
METRICS = tuple(_FUNCTIONS)
#: Metrics that need the twenty reference clusterings.
REFERENCE_METRICS = (
    "kmeans_distance",
    "kmeans_distance_sum",
    "norm_kmeans_distance",
    "reverse_kmeans_distance",
    "norm_reverse_kmeans_distance",
)


def check_metrics(metrics: Sequence[str]) -> None:
    """Refuse unknown metric names; the message lists the known ones."""
    for name in metrics:
        if name not in _FUNCTIONS:
            raise ValueError(
                f"metric {name!r} is unknown, choose from {', '.join(METRICS)}"
            )


def prepare_metrics(points: Points, metrics: Sequence[str]) -> None:
    """Compute the reference clusterings, if a metric needs them.

    That takes minutes at first; then it is cached on disk.
    """
    if set(metrics) & set(REFERENCE_METRICS):
        reference_set(points)


def clear_caches() -> None:
    """Drop the points, and what was computed from them, that metrics hold in memory."""
    for cached in (reference_set, reference_centers, sampled_distances):
        cached.cache_clear()


def evaluate(
    points: np.ndarray | Points,
    centers: np.ndarray,
    metrics: Sequence[str],
    n_clusters: int | None = None,
    *,
    labels_true: np.ndarray | None = None,
    n_centers: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Evaluate released centers.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64, or Points
        The points on the grid.
    centers : ndarray of shape (R, k, d), int64
        Released centers on the grid.
    metrics : sequence of str
        Names from :data:`METRICS`.
    n_clusters : int, optional
        Number of centers of the reference clustering of ``centroid_mse`` and
        ``centroid_distance``, and how many ``nicv_best_k`` takes. Default: k.
    labels_true : ndarray of shape (n,), int, optional
        The points' classes, -1 for outliers; ``accuracy``, ``farthest_class`` and
        ``unassigned_points`` need them.
    n_centers : ndarray of shape (R,), int, optional
        How many of its k centers each replicate released; the others must be copies of
        its first one. Default: all.

    Returns
    -------
    dict of str to ndarray of shape (R,), float64

    Raises
    ------
    ValueError
        If a metric is unknown or a shape does not fit the others.

    Examples
    --------
    >>> points = np.array([[-SCALE], [SCALE]])
    >>> evaluate(points, np.array([[[0]]]), ["nicv", "inertia", "silhouette"])
    {'nicv': array([1.]), 'inertia': array([2.]), 'silhouette': array([-1.])}
    """
    check_metrics(metrics)
    if not isinstance(points, Points):
        points = Points.from_grid(points)
    centers = np.asarray(centers)
    if centers.ndim != 3:
        raise ValueError(
            f"centers must have shape (replicate, cluster, {points.shape[1]}), got "
            f"{centers.shape}"
        )
    n_released = _check_released(centers, n_centers)
    n = points.shape[0]
    classes = None if labels_true is None else _check_classes(labels_true, n)
    clustering = _Clustering(
        points,
        centers,
        n_clusters or centers.shape[1],
        n_released,
        classes,
    )
    return {name: _FUNCTIONS[name](clustering) for name in metrics}


def _check_released(centers: np.ndarray, n_centers: np.ndarray | None) -> np.ndarray:
    replicates, k, _ = centers.shape
    if n_centers is None:
        return np.full(replicates, k)
    n_centers = np.asarray(n_centers)
    if n_centers.shape != (replicates,) or n_centers.dtype.kind not in "iu":
        raise ValueError(
            f"n_centers must be {replicates} integers, one per replicate, got "
            f"{n_centers!r}"
        )
    if not np.all((n_centers >= 1) & (n_centers <= k)):
        raise ValueError(
            f"n_centers={n_centers.tolist()} must lie between 1 and {k}, the centers "
            "given"
        )
    # The arrays of replicates are padded to k with copies of their first center.
    is_padding = np.arange(k) >= n_centers[:, None]
    differs = (centers != centers[:, :1]).any(axis=2)
    if np.any(differs & is_padding):
        raise ValueError(
            "centers beyond n_centers must be copies of the replicate's first center"
        )
    return n_centers


def _check_classes(labels_true: np.ndarray, n: int) -> np.ndarray:
    classes = np.asarray(labels_true)
    if classes.shape != (n,) or classes.dtype.kind not in "iu":
        raise ValueError(
            f"labels_true must be {n} integers, one per point, "
            f"got shape {classes.shape} of {classes.dtype}"
        )
    return classes
