"""How well a coreset approximates the costs of many sets of centers, non-privately."""

import math

import numpy as np

from pkm.compute import SCALE, Points, cluster_means, inertia, labels

#: Sets of centers that a coreset is compared on. Kaplan and Stemmer name none (section
#: 1.4).
N_RANDOM = 1000
N_IMPROVED = 100
LLOYD_STEPS = 4


def center_sets(
    points: Points,
    k: int,
    seed: int = 0,
) -> np.ndarray:
    """Draw sets of k centers: random ones, and others improved by Lloyd steps.

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
    >>> points = Points.from_grid(np.array([[-SCALE], [-SCALE], [SCALE]]))
    >>> sets = center_sets(points, 1)
    >>> sets.shape, (sets[1000:] == -round(SCALE / 3)).all()
    ((1100, 1, 1), np.True_)
    """
    n, d = points.shape
    rng = np.random.default_rng(seed)

    # Uniform in the unit ball: a uniform direction, and a norm whose d-th power is
    # uniform.
    directions = rng.standard_normal((N_RANDOM, k, d))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    norms = rng.random((N_RANDOM, k, 1)) ** (1 / d)
    in_ball = directions * norms * SCALE
    random = np.rint(in_ball).astype(np.int64)

    # Lloyd steps from points of the data; a center without points stays.
    starts = rng.integers(n, size=(N_IMPROVED, k))
    improved = points.rows[starts].astype(np.int64)
    for _ in range(LLOYD_STEPS):
        nearest = labels(points, improved)
        means, counts = cluster_means(points, nearest, k)
        moved = np.rint(means).astype(np.int64)
        has_points = counts[:, :, None] > 0
        improved = np.where(has_points, moved, improved)
    return np.concatenate([random, improved])


def compute_costs(points: Points, sets: np.ndarray) -> np.ndarray:
    """Compute the cost of every set of centers (m, k, d) in half-widths², shape (m,).

    The cost is the sum of squared distances of the points to the nearest center.
    """
    totals = inertia(points, sets)
    return np.array([total / SCALE**2 for total in totals])


def largest_cost_ratio(
    costs: np.ndarray,
    estimates: np.ndarray,
    additive: float,
) -> float:
    """Return the largest factor between a cost and its estimate, in either direction.

    Parameters
    ----------
    costs, estimates : ndarray of shape (m,)
        On the points and on the coreset.
    additive : float
        Additive error of a coreset: added to both before they are divided, in the unit
        of the costs.

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
    factors = np.maximum(ratios, 1 / ratios)
    return float(factors.max())


def central_additive_error(n_points: int, k: int) -> float:
    """Return the additive error of a coreset in the central model: (ln n)².

    In half-widths².
    """
    return math.log(n_points) ** 2


def local_additive_error(n_points: int, k: int) -> float:
    """Return the additive error of a coreset in the local model: k sqrt(n).

    In half-widths². It is of smaller order than the paper's Theorem 4.1 (section 1.2:
    n^(1/2 + a) k max(sqrt(d), sqrt(k)) up to powers of ln n).
    """
    return k * math.sqrt(n_points)
