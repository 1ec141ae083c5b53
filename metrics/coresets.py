"""How well weighted points keep the cost of many sets of centers; without privacy."""

import math

import numpy as np

from pkm.compute import SCALE, Points, cluster_means, inertia, labels

#: Sets of centers that a coreset is compared on (Kaplan and Stemmer, section 1.4, names
#: none).
N_RANDOM = 1000
N_IMPROVED = 100
LLOYD_STEPS = 4


def center_sets(points: Points, k: int, seed: int = 0) -> np.ndarray:
    """Sets of k centers: random ones, and ones that Lloyd steps on the points improved.

    Parameters
    ----------
    points : Points
    k : int
    seed : int, default=0

    Returns
    -------
    ndarray of shape (1100, k, d), int64
        On the grid. The first 1,000 are uniform in the ball that the domain [-1, 1]^d
        contains; the others begin at points drawn uniformly and take four Lloyd steps.

    Examples
    --------
    >>> points = Points.prepare(np.array([[-SCALE], [-SCALE], [SCALE]]))
    >>> sets = center_sets(points, 1)
    >>> sets.shape, (sets[1000:] == -round(SCALE / 3)).all()
    ((1100, 1, 1), np.True_)
    """
    n, d = points.shape
    rng = np.random.default_rng(seed)

    # Uniform in the ball: a direction, and a norm whose d-th power is uniform.
    directions = rng.standard_normal((N_RANDOM, k, d))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    random = directions * rng.random((N_RANDOM, k, 1)) ** (1 / d)

    # From points of the data; a center without points stays where it is.
    improved = points.rows[rng.integers(n, size=(N_IMPROVED, k))].astype(np.int64)
    for _ in range(LLOYD_STEPS):
        means, counts = cluster_means(points, labels(points, improved), k)
        improved = np.where(
            counts[:, :, None] > 0, np.rint(means).astype(np.int64), improved
        )
    return np.concatenate([np.rint(random * SCALE).astype(np.int64), improved])


def costs_of(points: Points, sets: np.ndarray) -> np.ndarray:
    """Cost of every set of centers (m, k, d): sum of squared distances (m,) in half-widths²."""
    return np.array([total / SCALE**2 for total in inertia(points, sets)])


def largest_cost_ratio(
    costs: np.ndarray, estimates: np.ndarray, additive: float
) -> float:
    """Largest factor between costs and their estimates, whichever is larger.

    Parameters
    ----------
    costs, estimates : ndarray of shape (m,)
        On the points and on the coreset.
    additive : float
        Error that is allowed on top of the factor, in the unit of the costs.

    Returns
    -------
    float
        At least 1.

    Raises
    ------
    ValueError
        If the additive error is not positive.

    Examples
    --------
    >>> largest_cost_ratio(np.array([0.0, 8.0]), np.array([2.0, 2.0]), additive=1.0)
    3.0
    """
    if not additive > 0:
        raise ValueError(f"additive={additive!r} must be a number above 0")
    ratios = (estimates + additive) / (costs + additive)
    return float(np.maximum(ratios, 1 / ratios).max())


def central_error(n_points: int, k: int) -> float:
    """Additive error granted to a coreset of the central model, in half-widths²: (ln n)²."""
    return math.log(n_points) ** 2


def local_error(n_points: int, k: int) -> float:
    """Additive error granted to a coreset of the local model, in half-widths²: k sqrt(n).

    Less than the order in the paper's Theorem 4.1 (section 1.2: n^(1/2 + a) k
    max(sqrt(d), sqrt(k)) up to powers of ln n).
    """
    return k * math.sqrt(n_points)
