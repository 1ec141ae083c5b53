"""The separation index of two clusters (Qiu and Joe) and the scaling of clusters to a prescribed one.

The index
---------
Project two clusters with means m1, m2 and covariances S1, S2 on a direction w with w·(m2 - m1) > 0. Cut from each
projection the tails of probability alpha/2 that a normal distribution would have: the intervals (L1, U1) and (L2, U2)
are mean ∓ z·sd. The separation along w is the gap between the intervals over the length they span together,

    J(w) = (L2 - U1) / (U2 - L1) = (r(w) - z) / (r(w) + z),      r(w) = w·(m2 - m1) / (sd1(w) + sd2(w)),

between -1 and 1: negative where the intervals overlap, 0 where they touch. The separation of the two clusters is the
largest J over all directions, that is, the one along the direction of the largest ratio r.

The best direction
------------------
For every mu in (0, 1), (sd1 + sd2)² <= sd1²/mu + sd2²/(1 - mu), with equality at mu = sd1/(sd1 + sd2) (Cauchy-Schwarz).
Largest over w of (w·δ)² over the right-hand side is a quadratic form, so with δ = m2 - m1

    r² = max over mu in (0, 1) of  δᵀ (S1/mu + S2/(1 - mu))⁻¹ δ,       w = (S1/mu + S2/(1 - mu))⁻¹ δ.

The function of mu is concave (a sum of weighted harmonic means of two linear functions), so there is one maximum, and
alternating between the best w for mu and the best mu for w climbs to it without a step length.

What makes it fast
------------------
A pair of clusters enters only through δᵀ(S1 x + S2 y)⁻¹δ as a function of x and y. In coordinates that make S2 the
identity and S1 diagonal with eigenvalues t, this is Σ g/(t x + y) with the weights g the squared coordinates of δ. A
few Lanczos steps of S2⁻¹ S1 from S2⁻¹ δ give as few nodes t and weights g that represent the function (exactly where
there are as many steps as dimensions, by Gauss quadrature with an error that falls geometrically otherwise). From then
on scaling a covariance means scaling the nodes, and moving the centers apart means scaling the weights.

References
----------
Qiu, W. and Joe, H. (2006). Generation of random clusters with specified degree of separation. Journal of
Classification 23(2), 315-334; and Separation index and partial membership for clustering. Computational Statistics and
Data Analysis 50, 585-603.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

ALPHA = 0.05
# Lanczos nodes per pair of clusters. With eigenvalues within a factor of ten of each other the error is below 1e-10.
MAX_NODES = 32
MAX_STEPS = 200


def index_of_ratio(ratio, alpha=ALPHA):
    """Separation index of a ratio "distance of the means over the sum of the standard deviations".

    Examples
    --------
    Two unit normals six standard deviations apart, the textbook's "separated" structure:

    >>> round(float(index_of_ratio(6 / 2)), 4)
    0.2097
    """
    z = norm.ppf(1 - alpha / 2)
    return (ratio - z) / (ratio + z)


def ratio_of_index(index, alpha=ALPHA):
    """Ratio that has the given separation index; the inverse of `index_of_ratio`."""
    z = norm.ppf(1 - alpha / 2)
    return z * (1 + index) / (1 - index)


@dataclass(frozen=True)
class Pairs:
    """All ordered pairs of k clusters, each reduced to m nodes.

    The squared ratio of the pair (i, j) is the maximum over mu of the sum over nodes of
    ``weight / (own / mu + other / (1 - mu))``.

    Attributes
    ----------
    own, other : ndarray of float64, shape (k, k, m)
        Variances of cluster i and of cluster j in each node's direction.
    weight : ndarray of float64, shape (k, k, m)
        Squared distance of the two centers in each node's direction.
    """

    own: np.ndarray
    other: np.ndarray
    weight: np.ndarray

    @property
    def off_diagonal(self):
        """Boolean mask (k, k) of the pairs of two different clusters."""
        return ~np.eye(len(self.own), dtype=bool)


def reduce_pairs(centers, covariances, inverses):
    """Reduce every pair of clusters to nodes and weights by block-free Lanczos, all pairs side by side.

    Parameters
    ----------
    centers : ndarray of float64, shape (k, d)
    covariances, inverses : ndarray of float64, shape (k, d, d)
        Positive definite covariance matrices and their inverses.

    Returns
    -------
    Pairs
    """
    k, d = centers.shape
    first, second = np.triu_indices(k, 1)
    nodes = min(d, MAX_NODES)
    difference = centers[second] - centers[first]
    # `left` holds S2 times `right`; both are kept, so that no step multiplies by S2. Right vectors are S2-orthonormal.
    left = np.zeros((nodes, len(first), d))
    right = np.zeros_like(left)
    diagonal = np.zeros((len(first), nodes))
    off = np.zeros((len(first), nodes))
    residual = difference
    length = None
    for step in range(nodes):
        image = _per_cluster(inverses, residual, second)
        norms = np.sqrt(np.maximum(np.einsum("pd,pd->p", residual, image), 0.0))
        if step == 0:
            length = norms
        # A pair whose Krylov space is exhausted (covariances that are multiples of each other) stops with weight zero.
        alive = norms > 1e-12 * length
        inverse_norms = np.divide(1.0, norms, out=np.zeros_like(norms), where=alive)
        if step > 0:
            off[:, step - 1] = np.where(alive, norms, 0.0)
        left[step] = residual * inverse_norms[:, None]
        right[step] = image * inverse_norms[:, None]
        residual = _per_cluster(covariances, right[step], first)
        diagonal[:, step] = np.einsum("pd,pd->p", residual, right[step])
        # Twice, because once leaves errors that grow with the number of steps.
        for _ in range(2):
            overlap = np.einsum("spd,pd->sp", right[: step + 1], residual)
            residual = residual - np.einsum("sp,spd->pd", overlap, left[: step + 1])
    tridiagonal = np.zeros((len(first), nodes, nodes))
    index = np.arange(nodes)
    tridiagonal[:, index, index] = diagonal
    tridiagonal[:, index[:-1], index[1:]] = off[:, :-1]
    tridiagonal[:, index[1:], index[:-1]] = off[:, :-1]
    values, vectors = np.linalg.eigh(tridiagonal)
    own, other = np.ones((2, k, k, nodes))
    weight = np.zeros((k, k, nodes))
    own[first, second] = other[second, first] = np.maximum(values, 0.0)
    weight[first, second] = weight[second, first] = (length[:, None] * vectors[:, 0, :]) ** 2
    return Pairs(own, other, weight)


def _per_cluster(matrices, vectors, cluster):
    """Multiply each row of `vectors` by the matrix of its cluster, one matrix product per cluster."""
    product = np.empty_like(vectors)
    for i in np.unique(cluster):
        rows = cluster == i
        product[rows] = vectors[rows] @ matrices[i]
    return product


def squared_ratios(own, other, weight):
    """Largest squared ratio over all projection directions, for arrays of node representations.

    Parameters
    ----------
    own, other, weight : ndarray of float64, shape (..., m)
        See `Pairs`.

    Returns
    -------
    ratio2 : ndarray of float64, shape (...)
    mu : ndarray of float64, shape (...)
        Share of the first cluster in the sum of the two standard deviations along the best direction.
    """
    mu = np.full(own.shape[:-1], 0.5)
    for _ in range(MAX_STEPS):
        previous = mu
        mu = _best_share(own, other, weight, mu)
        if np.all(np.abs(mu - previous) < 1e-14):
            break
    return _form(own, other, weight, mu)[0], mu


def _form(own, other, weight, mu):
    """Squared ratio for a given share `mu`, and the harmonic factor of every node."""
    share = mu[..., None]
    harmonic = 1.0 / (own / share + other / (1.0 - share))
    return np.sum(weight * harmonic, axis=-1), harmonic


def _best_share(own, other, weight, mu):
    """Share of the first standard deviation along the best direction for `mu`."""
    _, harmonic = _form(own, other, weight, mu)
    projected = weight * harmonic**2
    sd_own = np.sqrt(np.sum(projected * own, axis=-1))
    sd_other = np.sqrt(np.sum(projected * other, axis=-1))
    total = sd_own + sd_other
    # Two clusters with the same center have no direction at all; any share will do.
    return np.divide(sd_own, total, out=np.full_like(total, 0.5), where=total > 0)


def growth_to_ratio(own, other, weight, target2):
    """Factor by which the first covariance must grow so that the smallest squared ratio of several pairs is `target2`.

    The squared ratio falls with the factor and is convex in it, so Newton's steps from factor 1 never overshoot, and
    with a share `mu` that is not yet the best one they are only shorter.

    Parameters
    ----------
    own, other, weight : ndarray of float64, shape (pairs, m)
    target2 : float
        Prescribed squared ratio.

    Returns
    -------
    float
        At least 1; 1 where a pair is already at the target or closer.
    """
    factor, mu = np.ones(len(own)), np.full(len(own), 0.5)
    for _ in range(MAX_STEPS):
        scaled = own * factor[:, None]
        mu = _best_share(scaled, other, weight, mu)
        ratio2, harmonic = _form(scaled, other, weight, mu)
        slope = np.sum(weight * harmonic**2 * own, axis=-1) / mu
        step = np.maximum(ratio2 - target2, 0.0) / slope
        factor = factor + step
        if np.all(step <= 1e-13 * factor):
            break
    return float(factor.min())


def separations(centers, covariances):
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
    >>> round(float(separations(np.array([[0.0, 0.0], [6.0, 0.0]]), np.array([np.eye(2)] * 2))[0, 1]), 4)
    0.2097
    """
    pairs = reduce_pairs(centers, covariances, np.linalg.inv(covariances))
    ratio2, _ = squared_ratios(pairs.own, pairs.other, pairs.weight)
    return np.where(pairs.off_diagonal, index_of_ratio(np.sqrt(ratio2)), np.nan)


def scale_to_separation(centers, covariances, inverses, separation):
    """Scale centers and covariances so that every cluster has the prescribed separation to its nearest neighbor.

    First the centers are moved apart or together until the closest pair of clusters has the prescribed separation.
    Then the clusters are taken in turn, always the most isolated one that is left, and its covariance grows until its
    nearest neighbor (the cluster of smallest separation from it) is at the prescribed separation. No later step can
    bring two clusters closer than that, so one pass is enough.

    Parameters
    ----------
    centers : ndarray of float64, shape (k, d)
    covariances, inverses : ndarray of float64, shape (k, d, d)
    separation : float
        Prescribed index, in (-1, 1).

    Returns
    -------
    spread : float
        Factor for the centers.
    growth : ndarray of float64, shape (k,)
        Factors for the covariances, each at least 1.
    """
    pairs = reduce_pairs(centers, covariances, inverses)
    apart = pairs.off_diagonal
    target2 = float(ratio_of_index(separation)) ** 2
    own, other, weight = pairs.own.copy(), pairs.other.copy(), pairs.weight
    ratio2 = np.where(apart, squared_ratios(own, other, weight)[0], np.inf)
    spread2 = target2 / ratio2.min()
    weight = weight * spread2
    ratio2 = ratio2 * spread2
    growth = np.ones(len(own))
    waiting = np.ones(len(own), dtype=bool)
    for _ in range(len(own)):
        i = int(np.argmax(np.where(waiting, ratio2.min(axis=1), -np.inf)))
        waiting[i] = False
        others = apart[i]
        growth[i] = growth_to_ratio(own[i, others], other[i, others], weight[i, others], target2)
        own[i] *= growth[i]
        other[:, i] *= growth[i]
        ratio2[i, others] = ratio2[others, i] = squared_ratios(
            own[i, others], other[i, others], weight[i, others]
        )[0]
    return float(np.sqrt(spread2)), growth
