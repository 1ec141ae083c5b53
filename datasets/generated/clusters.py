"""Random normal clusters with a prescribed separation from their nearest neighbors.

The construction is that of Qiu and Joe.

1. Centers are put at the vertices of a simplex of equal edges. If there are more
   clusters than vertices, all vertices but the first are repeated, shifted by one more
   edge along the first axis each time. A random rotation is applied.
2. Every cluster has its own covariance: eigenvalues uniform in [1, 10] and a uniformly
   random orthogonal basis.
3. The distances between centers are scaled, and covariances grow, until the separation
   index of each cluster to its nearest neighbor is the prescribed one
   (`pkm.datasets.generated.separation`).
4. Points are drawn from the normal distributions. Outliers are drawn uniformly from the
   box of four standard deviations of the whole mixture around its mean. The rows are
   shuffled.

Values are rounded to four decimals, as a published text file would hold them. This also
removes the last bits of a particular BLAS from the data. BLAS runs on one thread
meanwhile, so that the points do not depend on the number of threads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from pkm.datasets.generated.separation import scale_to_separation

EIGENVALUES = (1.0, 10.0)
OUTLIER_DEVIATIONS = 4.0  # standard deviations of the mixture
DOMAIN_DEVIATIONS = 5.0  # standard deviations of a cluster
DECIMALS = 4
OUTLIER = -1


@dataclass(frozen=True)
class Clusters:
    """Parameters of normal clusters, the distributions that points are drawn from.

    Attributes
    ----------
    centers : ndarray of float64, shape (k, d)
    variances : ndarray of float64, shape (k, d)
        Eigenvalues of each covariance.
    axes : ndarray of float64, shape (k, d, d)
        Eigenvectors of each covariance, as columns.
    """

    centers: np.ndarray
    variances: np.ndarray
    axes: np.ndarray

    def covariances(self) -> np.ndarray:
        """Covariance matrices, shape (k, d, d)."""
        return _compose(self.axes, self.variances)

    def column_variances(self) -> np.ndarray:
        """Variance of each cluster along each coordinate, shape (k, d)."""
        return np.einsum("kij,kj->ki", self.axes**2, self.variances)


def _compose(
    axes: np.ndarray,
    values: np.ndarray,
) -> np.ndarray:
    """Return symmetric matrices with these eigenvectors and eigenvalues, (k, d, d)."""
    return (axes * values[:, None, :]) @ axes.transpose(0, 2, 1)


def simplex_centers(
    n_clusters: int,
    n_dimensions: int,
) -> np.ndarray:
    """Put centers on a simplex of edge 2 and, if they are too many, on shifted copies.

    Parameters
    ----------
    n_clusters : int
    n_dimensions : int
        At least 2.

    Returns
    -------
    ndarray of float64, shape (n_clusters, n_dimensions)
        The smallest distance between two centers is 2.

    Examples
    --------
    >>> simplex_centers(4, 2).round(3).tolist()
    [[-1.0, 0.0], [1.0, 0.0], [0.0, 1.732], [3.0, 0.0]]
    """
    if n_dimensions < 2:
        raise ValueError(f"n_dimensions={n_dimensions} should be at least 2")

    # Vertices of the simplex: the first edge, then one more dimension at a time.
    vertices = np.zeros((n_dimensions + 1, n_dimensions))
    vertices[0, 0] = -1.0
    vertices[1, 0] = 1.0
    for p in range(2, n_dimensions + 1):
        # Above the center of the vertices so far, at the height that keeps the edge at
        # 2.
        vertices[p, : p - 1] = vertices[:p, : p - 1].mean(axis=0)
        vertices[p, p - 1] = np.sqrt(2.0 * (p + 1) / p)
    centers = vertices[: min(n_clusters, n_dimensions + 1)]

    # Further centers: shifted copies of all vertices but the first.
    n_shifted = n_clusters - len(centers)
    rounds, vertex = np.divmod(np.arange(n_shifted), n_dimensions)
    shifted = vertices[1 + vertex]
    shifted[:, 0] += 2.0 * (rounds + 1)
    return np.concatenate([centers, shifted])


def random_rotation(
    generator: np.random.Generator,
    n_dimensions: int,
) -> np.ndarray:
    """Draw an orthogonal matrix uniformly (Haar), shape (d, d)."""
    q, r = np.linalg.qr(generator.standard_normal((n_dimensions, n_dimensions)))
    return q * np.sign(np.diag(r))


def random_clusters(
    generator: np.random.Generator,
    n_clusters: int,
    n_dimensions: int,
    separation: float,
) -> Clusters:
    """Draw clusters with a prescribed separation index to the nearest neighbor.

    Parameters
    ----------
    generator : numpy.random.Generator
    n_clusters : int
        At least 2.
    n_dimensions : int
        At least 2.
    separation : float
        Prescribed separation index, in (-1, 1).

    Returns
    -------
    Clusters

    Raises
    ------
    ValueError
        If an argument is out of range.
    """
    if n_clusters < 2:
        raise ValueError(
            f"n_clusters={n_clusters} should be at least 2: the separation of one "
            "cluster is not defined"
        )
    if not -1 < separation < 1:
        raise ValueError(f"separation={separation} should be between -1 and 1")
    with threadpool_limits(limits=1):
        # The order of the draws (rotation, eigenvalues, bases) determines the data
        # sets.
        rotation = random_rotation(generator, n_dimensions)
        centers = simplex_centers(n_clusters, n_dimensions) @ rotation.T
        variances = generator.uniform(*EIGENVALUES, (n_clusters, n_dimensions))
        bases = [random_rotation(generator, n_dimensions) for _ in range(n_clusters)]
        axes = np.stack(bases)
        center_factor, covariance_factors = scale_to_separation(
            centers,
            _compose(axes, variances),
            _compose(axes, 1 / variances),
            separation,
        )
    return Clusters(
        centers * center_factor, variances * covariance_factors[:, None], axes
    )


def mixture_box(
    clusters: Clusters,
    sizes: Sequence[int] | np.ndarray,
) -> np.ndarray:
    """Return the box of four deviations of the mixture around its mean, shape (2, d).

    Outliers are drawn in it.
    """
    weights = np.asarray(sizes) / np.sum(sizes)
    mean = weights @ clusters.centers
    variance = weights @ (clusters.column_variances() + (clusters.centers - mean) ** 2)
    half_width = OUTLIER_DEVIATIONS * np.sqrt(variance)
    return np.stack([mean - half_width, mean + half_width])


def bound_clusters(
    clusters: Clusters,
    sizes: Sequence[int] | np.ndarray,
) -> np.ndarray:
    """Return the public box, shape (2, d), by the generator's parameters alone.

    It holds the box of the outliers and five standard deviations around each center,
    rounded outwards to integers.
    """
    box = mixture_box(clusters, sizes)
    half_width = DOMAIN_DEVIATIONS * np.sqrt(clusters.column_variances())
    lower = np.minimum(box[0], (clusters.centers - half_width).min(axis=0))
    upper = np.maximum(box[1], (clusters.centers + half_width).max(axis=0))
    return np.stack([np.floor(lower), np.ceil(upper)])


def draw_clusters(
    generator: np.random.Generator,
    clusters: Clusters,
    sizes: Sequence[int] | np.ndarray,
    n_outliers: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw points of the clusters and outliers, in random order.

    Parameters
    ----------
    generator : numpy.random.Generator
    clusters : Clusters
    sizes : sequence of int, length k
    n_outliers : int

    Returns
    -------
    points : ndarray of float64, shape (sum(sizes) + n_outliers, d)
    labels : ndarray of int64
        Cluster of each point, -1 for outliers.
    """
    n_dimensions = clusters.centers.shape[1]
    blocks = []

    # Draw each cluster: standard normal points, scaled along its axes and moved to its
    # center.
    with threadpool_limits(limits=1):
        for center, variances, axes, size in zip(
            clusters.centers, clusters.variances, clusters.axes, sizes, strict=True
        ):
            normal = generator.standard_normal((size, n_dimensions))
            blocks.append(center + (normal * np.sqrt(variances)) @ axes.T)

    # Draw the outliers uniformly in the box of the mixture.
    lower, upper = mixture_box(clusters, sizes)
    blocks.append(generator.uniform(lower, upper, (n_outliers, n_dimensions)))

    # Shuffle points and labels together.
    points = np.concatenate(blocks).round(DECIMALS)
    labels = np.repeat(np.append(np.arange(len(sizes)), OUTLIER), [*sizes, n_outliers])
    order = generator.permutation(len(points))
    return points[order], labels[order]
