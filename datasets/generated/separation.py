"""Measure the separation index of two clusters (Qiu and Joe); scale clusters to one.

The index
---------
Project two clusters with means m1, m2 and covariances S1, S2 on a direction w with
w·(m2 - m1) > 0. Cut from each projection the tails of probability alpha/2 that a normal
distribution would have. The intervals (L1, U1) and (L2, U2) that are left are
mean ∓ z·sd. The separation along w is the gap between the intervals over the length
that they span together,

    J(w) = (L2 - U1) / (U2 - L1) = (r(w) - z) / (r(w) + z),
    r(w) = w·(m2 - m1) / (sd1(w) + sd2(w)).

It lies between -1 and 1, is negative if the intervals overlap and 0 if they touch. The
separation of the two clusters is the largest J over all directions. That is the J along
the direction of the largest ratio r.

The best direction
------------------
For every mu in (0, 1), (sd1 + sd2)² <= sd1²/mu + sd2²/(1 - mu), with equality at
mu = sd1/(sd1 + sd2) (Cauchy-Schwarz). The maximum over w of (w·δ)² over the right-hand
side is a quadratic form, so with δ = m2 - m1

    r² = max over mu in (0, 1) of  δᵀ (S1/mu + S2/(1 - mu))⁻¹ δ,
    w = (S1/mu + S2/(1 - mu))⁻¹ δ.

The function of mu is a sum of weighted harmonic means of two linear functions. So it is
concave and has one maximum. Alternating between the best w for mu and the best mu for w
climbs to it without a step length.

Reduction to nodes
------------------
A pair of clusters enters only through δᵀ(S1 x + S2 y)⁻¹δ as a function of x and y. In
coordinates that make S2 the identity and S1 diagonal with eigenvalues t, this is
Σ g/(t x + y). The weights g are the squared coordinates of δ. A few Lanczos steps of
S2⁻¹ S1 from S2⁻¹ δ give as few nodes t and weights g that represent the function. They
do so exactly if there are as many steps as dimensions. Otherwise it is Gauss
quadrature, with an error that falls geometrically. From then on scaling a covariance
means scaling the nodes, and scaling the distances between centers means scaling the
weights.

References
----------
Qiu, W. and Joe, H. (2006). Generation of random clusters with specified degree of
separation. Journal of Classification 23(2), 315-334; and Separation index and partial
membership for clustering. Computational Statistics and Data Analysis 50, 585-603.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

#: Quantile of the standard normal distribution that cuts off alpha/2 = 2.5 % at an end.
QUANTILE = 1.959963984540054
#: Lanczos nodes per pair of clusters. With eigenvalues within a factor of ten of each
#: other the error is below 1e-10.
MAX_NODES = 32
MAX_STEPS = 200

Real = TypeVar("Real", float, np.ndarray)


def ratio_to_index(ratio: Real) -> Real:
    """Return the separation index of a ratio.

    The ratio is the distance of the means over the sum of the standard deviations.

    Examples
    --------
    Two unit normals whose means are six standard deviations from each other, the
    textbook's "separated" structure:

    >>> round(float(ratio_to_index(6 / 2)), 4)
    0.2097
    """
    return (ratio - QUANTILE) / (ratio + QUANTILE)


def index_to_ratio(index: Real) -> Real:
    """Return the ratio that has a separation index; see `ratio_to_index`."""
    return QUANTILE * (1 + index) / (1 - index)


@dataclass(frozen=True)
class ReducedPairs:
    """Ordered pairs (i, j) of clusters, each reduced to m nodes of a quadrature.

    The squared ratio of a pair is the maximum over mu of the sum over nodes of
    ``weight / (first / mu + second / (1 - mu))``.

    Attributes
    ----------
    first, second : ndarray of float64, shape (..., m)
        Variances of cluster i and of cluster j in each node's direction.
    weight : ndarray of float64, shape (..., m)
        Squared distance of the two centers in each node's direction.
    """

    first: np.ndarray
    second: np.ndarray
    weight: np.ndarray

    def select(
        self,
        i: int,
    ) -> "ReducedPairs":
        """Return the pairs of cluster i with all others, of all pairs (k, k)."""
        others = np.arange(len(self.first)) != i
        return ReducedPairs(
            self.first[i, others], self.second[i, others], self.weight[i, others]
        )


def reduce_pairs(
    centers: np.ndarray,
    covariances: np.ndarray,
    inverses: np.ndarray,
) -> ReducedPairs:
    """Reduce all pairs of clusters to nodes and weights by Lanczos steps.

    Parameters
    ----------
    centers : ndarray of float64, shape (k, d)
    covariances, inverses : ndarray of float64, shape (k, d, d)
        Positive definite covariance matrices and their inverses.

    Returns
    -------
    ReducedPairs
    """
    k, d = centers.shape
    i, j = np.triu_indices(k, 1)
    n_nodes = min(d, MAX_NODES)
    diagonal, off_diagonal, length = _lanczos(
        centers[j] - centers[i], covariances, inverses, i, j, n_nodes
    )

    # Nodes and weights of the quadrature: eigenvalues of the tridiagonal matrices and
    # the squared first components of their eigenvectors.
    tridiagonal = np.zeros((len(i), n_nodes, n_nodes))
    index = np.arange(n_nodes)
    tridiagonal[:, index, index] = diagonal
    tridiagonal[:, index[:-1], index[1:]] = off_diagonal[:, :-1]
    tridiagonal[:, index[1:], index[:-1]] = off_diagonal[:, :-1]
    values, vectors = np.linalg.eigh(tridiagonal)

    # In each pair's coordinates one covariance is the identity, the other is diagonal.
    first = np.ones((k, k, n_nodes))
    second = np.ones((k, k, n_nodes))
    weight = np.zeros((k, k, n_nodes))
    variances = np.maximum(values, 0.0)
    squares = (length[:, None] * vectors[:, 0, :]) ** 2
    first[i, j] = variances
    second[j, i] = variances
    weight[i, j] = squares
    weight[j, i] = squares
    return ReducedPairs(first, second, weight)


def _lanczos(
    difference: np.ndarray,
    covariances: np.ndarray,
    inverses: np.ndarray,
    i: np.ndarray,
    j: np.ndarray,
    n_nodes: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make Lanczos steps of S2⁻¹ S1 from S2⁻¹ δ for the pairs (i, j) of clusters.

    Returns
    -------
    diagonal, off_diagonal : ndarray of float64, shape (pairs, n_nodes)
        Entries of the tridiagonal matrices; the last column off the diagonal is not
        used.
    length : ndarray of float64, shape (pairs,)
        Norm of the first vector, the root of δᵀ S2⁻¹ δ.
    """
    n_pairs, d = difference.shape
    # `left` holds S2 times `right`; both are stored, so that no step multiplies by S2.
    # The right vectors are S2-orthonormal.
    left = np.zeros((n_nodes, n_pairs, d))
    right = np.zeros_like(left)
    diagonal = np.zeros((n_pairs, n_nodes))
    off_diagonal = np.zeros((n_pairs, n_nodes))
    length = np.zeros(n_pairs)
    residual = difference
    for step in range(n_nodes):
        # Normalize the residual.
        image = _multiply_by_cluster(inverses, residual, j)
        norms = np.sqrt(np.maximum(np.einsum("pd,pd->p", residual, image), 0.0))
        if step == 0:
            length = norms
        # A pair whose Krylov space is exhausted (covariances that are multiples of each
        # other) stops with weight zero.
        active = norms > 1e-12 * length
        inverse_norms = np.divide(1.0, norms, out=np.zeros_like(norms), where=active)
        if step > 0:
            off_diagonal[:, step - 1] = np.where(active, norms, 0.0)
        left[step] = residual * inverse_norms[:, None]
        right[step] = image * inverse_norms[:, None]

        # Multiply by S1, and make the result orthogonal to all vectors so far: twice,
        # because once leaves errors that grow with the number of steps.
        residual = _multiply_by_cluster(covariances, right[step], i)
        diagonal[:, step] = np.einsum("pd,pd->p", residual, right[step])
        for _ in range(2):
            overlap = np.einsum("spd,pd->sp", right[: step + 1], residual)
            residual = residual - np.einsum("sp,spd->pd", overlap, left[: step + 1])
    return diagonal, off_diagonal, length


def _multiply_by_cluster(
    matrices: np.ndarray,
    vectors: np.ndarray,
    cluster: np.ndarray,
) -> np.ndarray:
    """Multiply each row of `vectors` by its cluster's matrix, cluster by cluster."""
    product = np.empty_like(vectors)
    for i in np.unique(cluster):
        rows = cluster == i
        product[rows] = vectors[rows] @ matrices[i]
    return product


def squared_ratios(pairs: ReducedPairs) -> np.ndarray:
    """Find the largest squared ratio over all directions, shape (...)."""
    mu = np.full(pairs.first.shape[:-1], 0.5)
    for _ in range(MAX_STEPS):
        previous = mu
        mu = _update_mu(pairs, mu)
        if np.all(np.abs(mu - previous) < 1e-14):
            break
    return np.sum(pairs.weight * _weight_factors(pairs, mu), axis=-1)


def _weight_factors(
    pairs: ReducedPairs,
    mu: np.ndarray,
) -> np.ndarray:
    """Return the factors of the nodes' weights in the squared ratio for `mu`.

    `mu` is the share of the first cluster in the sum of the two standard deviations.
    """
    share = mu[..., None]
    return 1.0 / (pairs.first / share + pairs.second / (1.0 - share))


def _update_mu(
    pairs: ReducedPairs,
    mu: np.ndarray,
) -> np.ndarray:
    """Return the first deviation's share along the best direction for `mu`."""
    projected = pairs.weight * _weight_factors(pairs, mu) ** 2
    first_deviation = np.sqrt(np.sum(projected * pairs.first, axis=-1))
    second_deviation = np.sqrt(np.sum(projected * pairs.second, axis=-1))
    total = first_deviation + second_deviation
    # For two clusters with the same center any share will do.
    halves = np.full_like(total, 0.5)
    return np.divide(first_deviation, total, out=halves, where=total > 0)


def find_covariance_factor(
    pairs: ReducedPairs,
    squared_target: float,
) -> float:
    """Find the factor of the first covariance at which the smallest ratio is a target.

    The squared ratio decreases with the factor and is convex. So Newton's steps from
    factor 1 never overshoot, and are only shorter with a `mu` that is not yet optimal.

    Parameters
    ----------
    pairs : ReducedPairs
        Several pairs with the same first cluster.
    squared_target : float
        Prescribed squared ratio.

    Returns
    -------
    float
        At least 1; 1 if a pair is already at the target or closer.
    """
    factor = np.ones(len(pairs.first))
    mu = np.full(len(pairs.first), 0.5)
    for _ in range(MAX_STEPS):
        scaled = replace(pairs, first=pairs.first * factor[:, None])
        mu = _update_mu(scaled, mu)
        weights = _weight_factors(scaled, mu)
        squares = np.sum(pairs.weight * weights, axis=-1)
        slope = np.sum(pairs.weight * weights**2 * pairs.first, axis=-1) / mu
        step = np.maximum(squares - squared_target, 0.0) / slope
        factor = factor + step
        if np.all(step <= 1e-13 * factor):
            break
    return float(factor.min())


def separations(
    centers: np.ndarray,
    covariances: np.ndarray,
) -> np.ndarray:
    """Separation index of every pair of clusters along its best projection direction.

    Parameters
    ----------
    centers : ndarray of float64, shape (k, d)
    covariances : ndarray of float64, shape (k, d, d)
        Positive definite.

    Returns
    -------
    ndarray of float64, shape (k, k)
        Symmetric; the diagonal is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> centers = np.array([[0.0, 0.0], [6.0, 0.0]])
    >>> round(float(separations(centers, np.array([np.eye(2)] * 2))[0, 1]), 4)
    0.2097
    """
    pairs = reduce_pairs(centers, covariances, np.linalg.inv(covariances))
    index = ratio_to_index(np.sqrt(squared_ratios(pairs)))
    np.fill_diagonal(index, np.nan)
    return index


def scale_to_separation(
    centers: np.ndarray,
    covariances: np.ndarray,
    inverses: np.ndarray,
    separation: float,
) -> tuple[float, np.ndarray]:
    """Scale clusters so that each has a prescribed separation to its nearest neighbor.

    First all distances between centers are scaled until the closest pair of clusters
    has the prescribed separation. Then the clusters are taken in turn, always the most
    isolated of the remaining ones. Its covariance grows until its nearest neighbor (the
    cluster of smallest separation from it) is at the prescribed separation. No later
    step can bring two clusters closer than that, so one pass is enough.

    Parameters
    ----------
    centers : ndarray of float64, shape (k, d)
    covariances, inverses : ndarray of float64, shape (k, d, d)
    separation : float
        Prescribed index, in (-1, 1).

    Returns
    -------
    center_factor : float
        Factor for the centers.
    covariance_factors : ndarray of float64, shape (k,)
        Factors for the covariances, each at least 1.
    """
    pairs = reduce_pairs(centers, covariances, inverses)
    k = len(centers)
    squared_target = float(index_to_ratio(separation)) ** 2

    # Scale the centers so that the closest pair has the prescribed ratio.
    squares = squared_ratios(pairs)
    np.fill_diagonal(squares, np.inf)
    squared_factor = squared_target / squares.min()
    pairs = replace(pairs, weight=pairs.weight * squared_factor)
    squares = squares * squared_factor

    # Grow the most isolated of the remaining clusters until its nearest neighbor has
    # that ratio.
    factors = np.ones(k)
    remaining = np.ones(k, dtype=bool)
    for _ in range(k):
        i = int(np.argmax(np.where(remaining, squares.min(axis=1), -np.inf)))
        remaining[i] = False
        factors[i] = find_covariance_factor(pairs.select(i), squared_target)
        pairs.first[i] *= factors[i]
        pairs.second[:, i] *= factors[i]
        others = np.arange(k) != i
        updated = squared_ratios(pairs.select(i))
        squares[i, others] = updated
        squares[others, i] = updated
    return float(np.sqrt(squared_factor)), factors
