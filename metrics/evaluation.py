"""The metrics by name, and their evaluation for a batch of released centers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial.distance import cdist

import pkm.compute as compute
from pkm.compute import SCALE, Points, cluster_means, mean_within_distances
from pkm.metrics.candidates import best_of
from pkm.metrics.matching import matched_distance, nearest_distances, reference_centers
from pkm.metrics.references import reference_set
from pkm.metrics.silhouettes import sampled_distances, silhouette_sample, silhouettes

#: Points whose distances are computed at once; their memory stays below about 100 MB.
DISTANCE_ROWS = 1 << 14
#: A center is near to a class within this many radii of its mean. A choice of this
#: project: the paper has O(r).
NEAR = 5


@dataclass(frozen=True)
class _Clustering:
    """Released centers and the points; what several metrics need is computed once."""

    points: Points
    centers: np.ndarray
    n_clusters: int
    n_centers: np.ndarray
    classes: np.ndarray | None

    @cached_property
    def labels(self) -> np.ndarray:
        return compute.labels(self.points, self.centers)

    @cached_property
    def squares(self) -> list[int]:
        return compute.inertia(self.points, self.centers)

    @cached_property
    def released(self) -> list[np.ndarray]:
        """Each replicate's own centers, in half-widths."""
        return [
            centers[:n_released] / SCALE
            for centers, n_released in zip(self.centers, self.n_centers, strict=True)
        ]

    @cached_property
    def distances(self) -> tuple[np.ndarray, np.ndarray]:
        return nearest_distances(self.released, reference_set(self.points).centers)

    @cached_property
    def class_means(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Class of each point that has one, sizes and means of the classes (half-widths).

        Outliers (class -1) have no class. None where no point has one.
        """
        classes = self.classes
        if classes is None or not np.any(classes >= 0):
            return None
        inside = classes >= 0
        _, codes, sizes = np.unique(
            classes[inside], return_inverse=True, return_counts=True
        )
        sums = np.zeros((len(sizes), self.points.shape[1]))
        np.add.at(sums, codes, self.points.rows[inside].astype(np.float64))
        return codes, sizes, sums / (sizes[:, None] * SCALE)

    @property
    def diagonal(self) -> float:
        """Length of the domain's diagonal in half-widths."""
        return 2 * np.sqrt(self.points.shape[1])


def nicv(clustering: _Clustering) -> np.ndarray:
    """Mean squared distance of the points to their nearest released center, rounded once."""
    per_unit = clustering.points.shape[0] * SCALE**2
    return np.array([total / per_unit for total in clustering.squares])


def inertia(clustering: _Clustering) -> np.ndarray:
    """Sum of squared distances of the points to their nearest released center, rounded once."""
    return np.array([total / SCALE**2 for total in clustering.squares])


def silhouette(clustering: _Clustering) -> np.ndarray:
    """Mean silhouette; -1 for a single cluster.

    It is exact up to 10,000 points, and above taken over a fixed sample of that many.
    """
    sample = silhouette_sample(clustering.points.shape[0])
    return silhouettes(
        clustering.points, clustering.labels[:, sample], clustering.centers.shape[1]
    )


def davies_bouldin(clustering: _Clustering) -> np.ndarray:
    """Davies-Bouldin index of the labels (lower is better); infinite for a single cluster."""
    means, counts = cluster_means(
        clustering.points, clustering.labels, clustering.centers.shape[1]
    )
    scatter = mean_within_distances(clustering.points, clustering.labels, means, counts)
    scores = []
    for replicate in range(len(counts)):
        nonempty = counts[replicate] > 0
        scores.append(
            _davies_bouldin(means[replicate][nonempty], scatter[replicate][nonempty])
        )
    return np.array(scores)


def _davies_bouldin(means: np.ndarray, scatter: np.ndarray) -> float:
    """Index of one replicate by the means and mean within-distances of its clusters."""
    if len(means) < 2:
        return np.inf
    distances = cdist(means, means)
    # A cluster is not compared with itself.
    distances[distances == 0] = np.inf
    similarities = (scatter[:, None] + scatter) / distances
    return float(similarities.max(axis=1).mean())


def centroid_mse(clustering: _Clustering) -> np.ndarray:
    """Mean squared distance to matched k-means++ centers (App. D of the FastLloyd paper)."""
    reference = reference_centers(clustering.points, clustering.n_clusters)
    return matched_distance(clustering.released, reference, squared=True)


def centroid_distance(clustering: _Clustering) -> np.ndarray:
    """Mean distance to matched k-means++ centers: the MSE of the FastLloyd paper's figures."""
    reference = reference_centers(clustering.points, clustering.n_clusters)
    return matched_distance(clustering.released, reference, squared=False)


def kmeans_distance(clustering: _Clustering) -> np.ndarray:
    """Mean distance from released centers to the nearest reference center, over all references."""
    return clustering.distances[0]


def kmeans_distance_sum(clustering: _Clustering) -> np.ndarray:
    """Sum over the released centers instead of their mean (Definition 9 of the DPM paper)."""
    return clustering.distances[0] * clustering.n_centers


def norm_kmeans_distance(clustering: _Clustering) -> np.ndarray:
    """The k-means distance as a share of the domain's diagonal."""
    return clustering.distances[0] / clustering.diagonal


def reverse_kmeans_distance(clustering: _Clustering) -> np.ndarray:
    """Mean distance from reference centers to the nearest released center, over all references."""
    return clustering.distances[1]


def norm_reverse_kmeans_distance(clustering: _Clustering) -> np.ndarray:
    """The reverse k-means distance as a share of the domain's diagonal."""
    return clustering.distances[1] / clustering.diagonal


def accuracy(clustering: _Clustering) -> np.ndarray:
    """Share of the points whose class is the most frequent one of their cluster.

    NaN where no classes are known. Ties go to the smallest class. Outliers (class -1)
    have no class: they are left out.
    """
    classes = clustering.classes
    if classes is None or not np.any(classes >= 0):
        return np.full(len(clustering.centers), np.nan)
    known, codes = np.unique(classes[classes >= 0], return_inverse=True)
    k = clustering.centers.shape[1]
    shares = []
    for labels in clustering.labels[:, classes >= 0]:
        pairs = labels * np.int64(len(known)) + codes
        table = np.bincount(pairs, minlength=k * len(known)).reshape(k, -1)
        # A tie changes which class a cluster stands for, not how many of its points
        # have it.
        shares.append(table.max(axis=1).sum() / len(codes))
    return np.array(shares)


def mean_distance(clustering: _Clustering) -> np.ndarray:
    """Mean distance of the points to their nearest released center: the cost of k-median over n.

    In half-widths.
    """
    rows = clustering.points.rows
    totals = np.zeros(len(clustering.centers))
    for start in range(0, len(rows), DISTANCE_ROWS):
        block = slice(start, start + DISTANCE_ROWS)
        points = rows[block].astype(np.float64)
        for replicate, centers in enumerate(clustering.centers):
            offsets = points - centers[clustering.labels[replicate, block]]
            totals[replicate] += np.sqrt(np.einsum("ij,ij->i", offsets, offsets)).sum()
    return totals / (len(rows) * SCALE)


def farthest_class(clustering: _Clustering) -> np.ndarray:
    """Largest distance, in half-widths, from a class's mean to its nearest released center.

    It tells whether a clustering has missed a group altogether, however small. Outliers
    (class -1) are left out. NaN without classes.
    """
    if clustering.class_means is None:
        return np.full(len(clustering.centers), np.nan)
    _, _, means = clustering.class_means
    return np.array(
        [cdist(means, centers).min(axis=1).max() for centers in clustering.released]
    )


def unassigned_points(clustering: _Clustering) -> np.ndarray:
    """Number of points in classes that no released center is near; NaN without classes.

    Near to the mean of a class is within ``NEAR (r + 1 / n)`` half-widths, where r is
    the root of twice the mean squared distance of the class to its mean (Kaplan and
    Stemmer 2018, section 3.1: such a center is assigned to the cluster). Outliers
    (class -1) are left out.
    """
    if clustering.class_means is None:
        return np.full(len(clustering.centers), np.nan)
    assert clustering.classes is not None
    codes, sizes, means = clustering.class_means
    rows = clustering.points.rows[clustering.classes >= 0]

    # Sum of squared distances of every class to its mean.
    squares = np.zeros(len(sizes))
    for start in range(0, len(rows), DISTANCE_ROWS):
        block = slice(start, start + DISTANCE_ROWS)
        offsets = rows[block] / SCALE - means[codes[block]]
        squares += np.bincount(
            codes[block], np.einsum("ij,ij->i", offsets, offsets), len(sizes)
        )

    # A center assigned to a class lies within this radius of its mean.
    radius = NEAR * (np.sqrt(2 * squares / sizes) + 1 / clustering.points.shape[0])
    missed = [
        cdist(means, centers).min(axis=1) > radius for centers in clustering.released
    ]
    return np.array([sizes[mask].sum() for mask in missed], dtype=np.float64)


def nicv_best_k(clustering: _Clustering) -> np.ndarray:
    """NICV of the best ``n_clusters`` of the released centers, found by local search on the points.

    The best result that any choice among the candidates could have: a diagnosis without
    privacy, which equals ``nicv`` where no more than ``n_clusters`` centers are
    released.
    """
    points = clustering.points
    per_unit = points.shape[0] * SCALE**2
    values = []
    for centers, n_released in zip(
        clustering.centers, clustering.n_centers, strict=True
    ):
        _, cost = best_of(points, centers[:n_released], clustering.n_clusters)
        values.append(cost / per_unit)
    return np.array(values)


def n_centers(clustering: _Clustering) -> np.ndarray:
    """Number of released centers."""
    return clustering.n_centers.astype(np.float64)


def nonempty_centers(clustering: _Clustering) -> np.ndarray:
    """Number of released centers that are nearest to some point."""
    return np.array(
        [len(np.unique(row)) for row in clustering.labels], dtype=np.float64
    )


def empty_clusters(clustering: _Clustering) -> np.ndarray:
    """Number of released centers that are nearest to no point."""
    return n_centers(clustering) - nonempty_centers(clustering)


_FUNCTIONS: dict[str, Callable[[_Clustering], np.ndarray]] = {
    function.__name__: function
    for function in (
        nicv, silhouette, davies_bouldin, centroid_mse, centroid_distance, empty_clusters, inertia,
        accuracy, kmeans_distance, kmeans_distance_sum, norm_kmeans_distance,
        reverse_kmeans_distance, norm_reverse_kmeans_distance, n_centers, nonempty_centers,
        mean_distance, farthest_class, unassigned_points, nicv_best_k,
    )
}  # fmt: skip
METRICS = tuple(_FUNCTIONS)
#: Those that need the reference clusterings.
REFERENCE_METRICS = tuple(
    name
    for name in METRICS
    if name.endswith(("kmeans_distance", "kmeans_distance_sum"))
)


def check_metrics(metrics: Sequence[str]) -> None:
    """Refuse unknown metric names; the message lists the known ones."""
    for name in metrics:
        if name not in _FUNCTIONS:
            raise ValueError(
                f"metric {name!r} is unknown, choose from {', '.join(METRICS)}"
            )


def prepare_metrics(points: Points, metrics: Sequence[str]) -> None:
    """Compute what metrics need of the points alone: minutes at first, then cached on disk."""
    if set(metrics) & set(REFERENCE_METRICS):
        reference_set(points)


def forget_points() -> None:
    """Drop the points, and what was computed from them, that metrics hold in memory."""
    for cached in (reference_set, reference_centers, sampled_distances):
        cached.cache_clear()


def evaluate(
    points: np.ndarray | Points,
    centers: np.ndarray,
    metrics: Sequence[str],
    n_clusters: int | None = None,
    *,
    labels: np.ndarray | None = None,
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
    labels : ndarray of shape (n,), int, optional
        The points' classes, -1 for outliers; ``accuracy``, ``farthest_class`` and
        ``unassigned_points`` need them.
    n_centers : ndarray of shape (R,), int, optional
        How many of a replicate's k centers it released; copies of its first fill up the
        rest. Default: all.

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
    points = points if isinstance(points, Points) else Points.prepare(points)
    centers = np.asarray(centers)
    if centers.ndim != 3:
        raise ValueError(
            f"centers must have shape (replicate, cluster, {points.shape[1]}), got "
            f"{centers.shape}"
        )
    n_released = _check_released(centers, n_centers)
    classes = None if labels is None else _check_classes(labels, points.shape[0])
    clustering = _Clustering(
        points, centers, n_clusters or centers.shape[1], n_released, classes
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
    filling = np.arange(k) >= n_centers[:, None]
    if np.any((centers != centers[:, :1]).any(axis=2) & filling):
        raise ValueError(
            "centers beyond n_centers must be copies of the replicate's first center"
        )
    return n_centers


def _check_classes(labels: np.ndarray, n: int) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.shape != (n,) or labels.dtype.kind not in "iu":
        raise ValueError(
            f"labels must be {n} integers, one per point, "
            f"got shape {labels.shape} of {labels.dtype}"
        )
    return labels
