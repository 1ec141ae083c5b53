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
# A radius, and the noise of a mean that allows a larger one: in root mean squared
# distances of a cluster's records from its center. Chosen on generated sets and on s1.
RADIUS_FACTOR = 2.0
NOISE_FACTOR = 0.03
# In half-widths: a smaller one would leave out records of a center that is off.
MIN_RADIUS = 1 / 64


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
    within: float | np.ndarray,
    sum_noise: Laplace,
) -> np.ndarray:
    """Radii about centers that hold most records, from a released synopsis.

    Parameters
    ----------
    points : ndarray of shape (m, d), float64
        Of the synopsis, in grid steps.
    weights : ndarray of shape (m,), float64
    centers : ndarray of shape (k, d)
    within : float or ndarray of shape (m,)
        Mean squared distance of the records that a point stands for from it, in squared
        grid steps.
    sum_noise : Laplace
        Of the step's sums; see :func:`step_noise`.

    Returns
    -------
    ndarray of shape (k,), float64
        In half-widths: twice the root mean squared distance, or more, as far as the
        root mean squared noise of the mean stays below 0.03 of it. What is left out
        moves the mean of a skewed cluster, so that a large cluster leaves out less. One
        without weight gets the root mean squared distance of the others.

    Examples
    --------
    >>> points = np.array([[-6554.0], [6554.0]])
    >>> for weight in (10.0, 1000.0):
    ...     weights = np.full(2, weight)
    ...     radii = cluster_radii(points, weights, np.array([[0]]), 0.0, Laplace(4.0))
    ...     print(radii.round(3))
    [0.2]
    [1.061]
    """
    differences = points[:, None, :] - centers[None, :, :]
    squares = (differences * differences).sum(axis=2)
    nearest = squares.argmin(axis=1)
    spread = (squares.min(axis=1) + within) * weights
    cluster_weights = np.bincount(nearest, weights, minlength=len(centers))
    totals = np.bincount(nearest, spread, minlength=len(centers))
    overall = totals.sum() / max(cluster_weights.sum(), 1e-9)
    divisors = np.maximum(cluster_weights, 1e-9)
    variances = np.where(cluster_weights > 0, totals / divisors, overall)

    # The noise of a mean is in proportion to the radius and falls with the number of
    # records.
    d = points.shape[1]
    noise_per_radius = math.sqrt(d * 2 * sum_noise.scale**2) / divisors
    factors = np.maximum(RADIUS_FACTOR, NOISE_FACTOR / noise_per_radius)
    radii = factors * np.sqrt(variances) / SCALE
    return np.clip(radii, MIN_RADIUS, 2 * math.sqrt(d))


def final_step(
    curator: Curator,
    centers: np.ndarray,
    radii: np.ndarray,
    noise: tuple[Laplace, Laplace],
) -> np.ndarray:
    """Move each center by the noisy mean difference of the records near it.

    Parameters
    ----------
    curator : Curator
        Of one replicate.
    centers : ndarray of shape (k, d), int64
        Released, in grid steps.
    radii : ndarray of shape (k,), float64
        From released values, in half-widths: records farther from their nearest center
        are left out.
    noise : tuple
        Of sums and counts; see :func:`step_noise`.

    Returns
    -------
    ndarray of shape (k, d), int64
        On the grid, in the domain.

    Notes
    -----
    A step is multiplied by ``max(0, 1 - E/|step|^2)`` with E the expected square of its
    noise, so that a step that is noise is not made; this is post-processing.
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

    # Shrink steps that may be noise; the center of an empty cluster does not move.
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
        In half-widths: longer differences are shortened to it.
    mu : float
        Cost of the sums and counts together.
    min_count : float, default=0.0
        Smallest count to divide by, in standard deviations of its noise: a smaller one
        may be noise, and would make a step as long as the domain.

    Returns
    -------
    ndarray of shape (k, d), int64
        On the grid, in the ball of the points.
    """
    # Divide mu in proportion to the errors in a mean: that of the sum is sqrt(d) times
    # the radius, that of the count is the distance moved, about half the radius.
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
