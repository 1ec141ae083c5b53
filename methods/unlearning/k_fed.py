"""K-FED: one-shot federated clustering, for comparison.

Source: Dennis, Li, Smith, "Heterogeneity for the win" (2021). Clients cluster in a
projection to few dimensions, then in all of them; the server takes the first client's
centers and adds the farthest ones of the others. Then it makes one step of Lloyd's
algorithm over all clients' centers. It claims no privacy and cannot remove points.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from pkm.compute import SCALE, Points
from pkm.methods.constraints import NONE, Integer, check_constraints
from pkm.methods.unlearning.client_lloyd import local_lloyd
from pkm.privacy import NO_CLAIM
from pkm.privacy.mechanisms.noise import INITIALIZATION, child

#: The core of a seed: points whose distances to all other seeds are this many times
#: larger.
CORE_RATIO = 3.0


@dataclass(frozen=True)
class KFed:
    """One-shot federated clustering.

    Parameters
    ----------
    n_clusters : int
        Clusters of the server.
    client_clusters : int, optional
        Clusters of each client. Default: ``n_clusters``, as in the unlearning paper;
        the server then starts from the first client's centers alone.

    Raises
    ------
    ValueError
        If a number is not a positive integer.

    See Also
    --------
    Unlearning : Exact removals of points.
    KMeansPlusPlus : All points in one place.

    References
    ----------
    Dennis, D. K., Li, T. and Smith, V. (2021). Heterogeneity for the win: one-shot
    federated clustering. ICML, 2611-2620.
    """

    label = "K-FED"
    color = "#d55e00"
    marker = "s"
    claim = NO_CLAIM
    constraints = {"n_clusters": Integer(1), "client_clusters": Integer(1) | NONE}

    n_clusters: int
    client_clusters: int | None = None

    def __post_init__(self):
        check_constraints(self.constraints, vars(self))

    def fit(
        self,
        client_points: Sequence[Points],
        seed: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cluster the clients' points.

        Parameters
        ----------
        client_points : sequence of Points
            One per client.
        seed : int

        Returns
        -------
        centers : ndarray of shape (at most k, d), float64
            In half-widths.
        labels : ndarray of shape (n,), int64
            Global cluster of every point, client by client: that of its client's
            center.
        """
        # Every client clusters its points.
        k = self.client_clusters or self.n_clusters
        sequences = child(seed, INITIALIZATION).spawn(len(client_points))
        client_results = [
            client_centers(
                points.rows.astype(np.float64) / SCALE,
                k,
                np.random.default_rng(sequence),
            )
            for points, sequence in zip(client_points, sequences, strict=True)
            if points.shape[0]
        ]

        # The server's start: the first client's centers, and the farthest of the
        # others.
        sent = np.concatenate([centers for centers, _ in client_results])
        n_distinct = len(np.unique(sent, axis=0))
        start = client_results[0][0][: self.n_clusters]
        while len(start) < min(self.n_clusters, n_distinct):
            nearest = cdist(sent, start, "sqeuclidean").min(axis=1)
            start = np.vstack([start, sent[nearest.argmax()]])

        # One step of Lloyd's algorithm over the clients' centers.
        global_labels = cdist(sent, start, "sqeuclidean").argmin(axis=1)
        clusters = global_labels == np.arange(len(start))[:, None]
        centers = mean_clusters(sent, clusters, start)

        # A point has the label of its client's center.
        point_labels = []
        first = 0
        for client, labels in client_results:
            point_labels.append(global_labels[first + labels])
            first += len(client)
        return centers, np.concatenate(point_labels)


def client_centers(
    points: np.ndarray,
    k: int,
    generator: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Centers of one client and the label of each of its points.

    A seed whose core is empty is its own center.
    """
    # Project the points to their first principal directions.
    k = min(k, len(np.unique(points, axis=0)))
    rank = min(k, *points.shape)
    _, _, axes = np.linalg.svd(points, full_matrices=False)
    projected = points @ axes[:rank].T

    # Choose seeds by k-means++.
    seeds = [int(generator.integers(len(points)))]
    while len(seeds) < k:
        squares = cdist(projected, projected[seeds], "sqeuclidean").min(axis=1)
        if not squares.any():
            break
        probabilities = squares / squares.sum()
        seeds.append(int(generator.choice(len(points), p=probabilities)))

    # Start Lloyd's algorithm from the means of the cores: points much nearer to one
    # seed than to all others.
    squares = cdist(projected, projected[seeds], "sqeuclidean")
    distances = np.sqrt(squares)
    is_same_seed = np.eye(len(seeds), dtype=bool)[None]
    other = np.where(is_same_seed, np.inf, distances[:, None, :])
    nearest_other = other.min(axis=2)
    cores = CORE_RATIO * distances <= nearest_other
    return local_lloyd(points, mean_clusters(points, cores.T, points[seeds]))


def mean_clusters(
    points: np.ndarray,
    clusters: np.ndarray,
    defaults: np.ndarray,
) -> np.ndarray:
    """Means (k, d) of clusters, given by masks (k, n); an empty one has its default."""
    means = [
        points[cluster].mean(axis=0) if cluster.any() else default
        for cluster, default in zip(clusters, defaults, strict=True)
    ]
    return np.array(means)
