"""Single noisy steps of Lloyd's algorithm, for methods that have centers already."""

import math

import numpy as np

from pkm.privacy import (
    SCALE,
    ClippedPoints,
    Curator,
    Gaussian,
    Laplace,
    NearestSumsAndCounts,
    SumsAndCounts,
    snap_centers,
)

SUM_SHARE = 0.75  # of the step's epsilon; the rest is for the counts
# Radius of a cluster, in root mean squared distances of its records from its center.
# Chosen on generated sets, of which a third are skewed.
RADIUS_FACTOR = 2.0
MIN_RADIUS = 1 / 64  # in half-widths: allows for the error of the center


def step_noise(n_features: int, epsilon: float) -> tuple[Laplace, Laplace]:
    """Noise of the sums, in multiples of the radius, and of the counts.

    Parameters
    ----------
    n_features : int
    epsilon : float
        Cost of the step.

    Returns
    -------
    sums, counts : Laplace

    Examples
    --------
    >>> sums, counts = step_noise(4, 1.0)
    >>> sums.scale, counts.scale / SCALE
    (2.6666666666666665, 4.0)
    """
    sum_scale = math.sqrt(n_features) / (SUM_SHARE * epsilon)
    count_scale = SCALE / ((1 - SUM_SHARE) * epsilon)
    return Laplace(sum_scale), Laplace(count_scale)


def cluster_radii(
    points: np.ndarray,
    weights: np.ndarray,
    centers: np.ndarray,
    within_cell: float | np.ndarray,
) -> np.ndarray:
    """Radii about centers that hold most records, from released weighted points.

    Parameters
    ----------
    points : ndarray of shape (m, d), float64
        In grid steps.
    weights : ndarray of shape (m,), float64
    centers : ndarray of shape (k, d)
    within_cell : float or ndarray of shape (m,)
        Mean squared distance of records from the weighted point that represents them,
        in squared grid steps.

    Returns
    -------
    ndarray of shape (k,), float64
        In half-widths: two root mean squared distances of the cluster's records, or of
        all records for a cluster without weight. They are clipped to 1/64 .. 2 sqrt(d).

    Examples
    --------
    >>> points = np.array([[-6554.0], [6554.0]])
    >>> cluster_radii(points, np.full(2, 10.0), np.array([[0]]), 0.0).round(3).tolist()
    [0.2]
    """
    # Assign the weighted points; variance of each cluster, in squared grid steps.
    differences = points[:, None, :] - centers[None, :, :]
    squares = (differences * differences).sum(axis=2)
    nearest = squares.argmin(axis=1)
    spread = (squares.min(axis=1) + within_cell) * weights
    cluster_weights = np.bincount(nearest, weights, minlength=len(centers))
    totals = np.bincount(nearest, spread, minlength=len(centers))
    overall = totals.sum() / max(cluster_weights.sum(), 1e-9)
    divisors = np.maximum(cluster_weights, 1e-9)
    variances = np.where(cluster_weights > 0, totals / divisors, overall)

    radii = RADIUS_FACTOR * np.sqrt(variances) / SCALE
    return np.clip(radii, MIN_RADIUS, 2 * math.sqrt(points.shape[1]))


def shrunken_lloyd_step(
    curator: Curator,
    centers: np.ndarray,
    radii: np.ndarray,
    noise: tuple[Laplace, Laplace],
) -> np.ndarray:
    """Move each center by the noisy mean difference of its records, shrunken.

    Parameters
    ----------
    curator : Curator
        Curator of one replicate.
    centers : ndarray of shape (k, d), int64
        Released, in grid steps.
    radii : ndarray of shape (k,), float64
        From released values, in half-widths. Records farther from their nearest center
        are not summed.
    noise : tuple
        Noise of sums and counts; see :func:`step_noise`.

    Returns
    -------
    ndarray of shape (k, d), int64
        On the grid, in the domain.

    Notes
    -----
    A step is multiplied by ``max(0, 1 - E/|step|^2)``, E the expected square of its
    noise: positive-part shrinkage as of James and Stein. It is post-processing.
    """
    sum_noise, count_noise = noise
    query = SumsAndCounts(centers[None], radii[None], relative=True)
    answer = curator.release(query, sums=sum_noise, counts=count_noise)
    sums = answer["sums"][0]
    counts = answer["counts"][0] / SCALE

    # The noisy step, and the expected square of its noise.
    divisor = np.maximum(counts, 1.0)
    steps = sums / divisor[:, None]
    sum_variance = centers.shape[1] * 2 * sum_noise.scale**2
    noise_squares = sum_variance * (radii * SCALE / divisor) ** 2

    # Positive-part shrinkage; the center of an empty cluster does not move.
    squares = np.maximum((steps * steps).sum(axis=1), 1.0)
    factors = np.maximum(0.0, 1 - noise_squares / squares)
    factors[counts < 1] = 0.0
    moved = centers + factors[:, None] * steps
    return snap_centers(np.clip(moved, -SCALE, SCALE))


def noisy_lloyd_step(
    points: ClippedPoints,
    centers: np.ndarray,
    radius: float,
    mu: float,
    min_count: float = 0.0,
) -> np.ndarray:
    """Move each center by the noisy mean difference of the points nearest to it.

    Parameters
    ----------
    points : ClippedPoints
    centers : ndarray of shape (k, d), int64
        Released, in the domain, in grid steps.
    radius : float
        Norm that differences to the center are clipped to, in half-widths.
    mu : float
        Cost of the sums and counts together.
    min_count : float, default=0.0
        Smallest divisor of a sum, in standard deviations of the count's noise. A count
        that is only noise would make a step as long as the domain.

    Returns
    -------
    ndarray of shape (k, d), int64
        On the grid, in the ball of the points.
    """
    # Divide mu in proportion to the errors of a mean, in radii: sqrt(d) from the sum,
    # and the distance moved, about 1/2, from the count.
    sum_part = math.sqrt(points.n_features)
    total = sum_part + 0.5
    sum_mu = mu * math.sqrt(sum_part / total)
    count_mu = mu * math.sqrt(0.5 / total)
    answer = points.release(
        NearestSumsAndCounts(centers, radius),
        sums=Gaussian(radius * SCALE / sum_mu),
        counts=Gaussian(SCALE / count_mu),
    )

    # The center of an empty cluster does not move.
    counts = answer["counts"] / SCALE
    divisor = np.maximum(counts, max(1.0, min_count / count_mu))
    moved = centers + answer["sums"] / divisor[:, None]
    return points.clip(np.where(counts[:, None] < 1, centers, moved))
