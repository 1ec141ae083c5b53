"""The metrics by name, and their evaluation for a batch of released centres."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.spatial.distance import cdist

from compute import SCALE, Points, cluster_means, distance_tiles, inertia, labels, mean_silhouettes, mean_spreads
from metrics.matching import matched_distance, reference_centres

SILHOUETTE_POINTS = 10_000  # above, a fixed sample of so many points
SILHOUETTE_SEED = 0


@dataclass(frozen=True)
class _Clustering:
    """Released centres on the points they are judged by; labels are found once for all metrics."""

    points: Points
    centres: np.ndarray
    n_clusters: int

    @cached_property
    def labels(self) -> np.ndarray:
        return labels(self.points, self.centres)

    @cached_property
    def units(self) -> np.ndarray:
        return self.centres / SCALE


def nicv(clustering: _Clustering) -> np.ndarray:
    """Mean squared distance of the points to their nearest released centre, exact before the one rounding."""
    per_unit = clustering.points.shape[0] * SCALE**2
    return np.array([total / per_unit for total in inertia(clustering.points, clustering.centres)])


def silhouette(clustering: _Clustering) -> np.ndarray:
    """Mean silhouette; -1 for a single cluster; exact up to 10,000 points, above on a fixed sample of so many."""
    points = clustering.points
    sample = silhouette_sample(points.shape[0])
    found = np.ascontiguousarray(clustering.labels[:, sample])
    return mean_silhouettes(_distances(points), found, clustering.centres.shape[1])


def silhouette_sample(n: int) -> np.ndarray:
    """Indices of the points that silhouettes of n points are taken over."""
    if n <= SILHOUETTE_POINTS:
        return np.arange(n)
    return np.sort(np.random.default_rng(SILHOUETTE_SEED).choice(n, SILHOUETTE_POINTS, replace=False))


@lru_cache(maxsize=1)  # the cells of a data set follow each other; one matrix can take 400 MB
def _distances(points: Points) -> np.ndarray:
    return distance_tiles(Points.prepare(points.rows[silhouette_sample(points.shape[0])]))


def davies_bouldin(clustering: _Clustering) -> np.ndarray:
    """Davies-Bouldin index of the labels (lower is better); infinite for a single cluster."""
    means, counts = cluster_means(clustering.points, clustering.labels, clustering.centres.shape[1])
    spreads = mean_spreads(clustering.points, clustering.labels, means, counts)
    return np.array([_davies_bouldin(m[c > 0], s[c > 0]) for m, c, s in zip(means, counts, spreads, strict=True)])


def _davies_bouldin(means: np.ndarray, spreads: np.ndarray) -> float:
    if len(means) < 2:
        return np.inf
    apart = cdist(means, means)
    apart[apart == 0] = np.inf  # a cluster is not compared with itself
    return float(((spreads[:, None] + spreads) / apart).max(axis=1).mean())


def centroid_mse(clustering: _Clustering) -> np.ndarray:
    """Mean squared distance to matched k-means++ centres (App. D of the FastLloyd paper)."""
    reference = reference_centres(clustering.points, clustering.n_clusters)
    return matched_distance(clustering.units, reference, squared=True)


def centroid_distance(clustering: _Clustering) -> np.ndarray:
    """Mean distance to matched k-means++ centres: what the FastLloyd paper's figures show under the name of MSE."""
    reference = reference_centres(clustering.points, clustering.n_clusters)
    return matched_distance(clustering.units, reference, squared=False)


def empty_clusters(clustering: _Clustering) -> np.ndarray:
    """Number of released centres that are nearest to no point."""
    k = clustering.centres.shape[1]
    return np.array([k - len(np.unique(row)) for row in clustering.labels], dtype=np.float64)


_FUNCTIONS: dict[str, Callable[[_Clustering], np.ndarray]] = {
    function.__name__: function
    for function in (nicv, silhouette, davies_bouldin, centroid_mse, centroid_distance, empty_clusters)
}
METRICS = tuple(_FUNCTIONS)


def check_metrics(metrics: Sequence[str]) -> None:
    """Refuse unknown metric names; the message lists the known ones."""
    for name in metrics:
        if name not in _FUNCTIONS:
            raise ValueError(f"metric {name!r} is unknown, choose from {', '.join(METRICS)}")


def evaluate(points, centres: np.ndarray, metrics: Sequence[str], n_clusters: int | None = None) -> dict:
    """Evaluate released centres.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64, or Points
        The points on the grid.
    centres : ndarray of shape (R, k, d), int64
        Released centres on the grid.
    metrics : sequence of str
        Names from :data:`METRICS`.
    n_clusters : int, optional
        Number of centres of the reference clustering. Default: k.

    Returns
    -------
    dict of str to ndarray of shape (R,), float64

    Examples
    --------
    >>> evaluate(np.array([[0], [2 * SCALE]]), np.array([[[SCALE]]]), ["nicv", "silhouette"])
    {'nicv': array([1.]), 'silhouette': array([-1.])}
    """
    check_metrics(metrics)
    points = points if isinstance(points, Points) else Points.prepare(points)
    clustering = _Clustering(points, np.asarray(centres), n_clusters or np.shape(centres)[1])
    return {name: _FUNCTIONS[name](clustering) for name in metrics}
