"""The update step of noisy Lloyd iterations: new centers on the grid."""

import numpy as np

from pkm.compute.storage.points import SCALE

KEEP, TRUNCATE, FOLD = range(3)
"""What is done to a coordinate outside the domain [-SCALE, SCALE]."""

_TINY = 1e-9  # records: the published update would divide by zero without it


def fold(coordinates: np.ndarray) -> np.ndarray:
    """Reflect grid coordinates at the borders of the domain until they lie inside.

    Source: FastLloyd paper, Sec. 5.3.5.

    Examples
    --------
    >>> (fold(np.array([1.25, -1.5, 3.5]) * SCALE) / SCALE).tolist()
    [0.75, -0.5, -0.5]
    """
    # A triangle wave of period 4 that is 1 at the upper border.
    from_upper = (coordinates - SCALE) % (4 * SCALE)
    return np.abs(from_upper - 2 * SCALE) - SCALE


def clip_factor(steps: np.ndarray, longest: float) -> np.ndarray:
    """Factors (..., 1) of at most 1 that clip steps (..., d), int64, to a norm.

    The squared length is an integer, so that the factor does not depend on the order of
    its terms.
    """
    lengths = np.sqrt((steps * steps).sum(axis=-1, keepdims=True))
    return np.minimum(1.0, longest / np.maximum(lengths, 1.0))


def move_centers(
    centers: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
    relative: bool,
    keep_empty: bool,
    longest: float,
    limit: float,
    outside: int,
) -> np.ndarray:
    """Move every center to the noisy mean of its points.

    Parameters
    ----------
    centers : ndarray of shape (R, k, d), int64
        In grid steps.
    sums : ndarray of shape (R, k, d), int64
        Noisy, in grid steps.
    counts : ndarray of shape (R, k), int64
        Noisy, in units of 1 / SCALE records.
    relative : bool
        Whether sums are about the centers.
    keep_empty : bool
        Whether a center stays where its noisy count is below one record. Otherwise the
        sum is divided by any count, as published.
    longest : float
        Norm that moves are clipped to, in grid steps; infinite for none.
    limit : float
        Largest coordinate, in grid steps, for which distances are exact; larger ones
        saturate.
    outside : {KEEP, TRUNCATE, FOLD}
        What to do with coordinates outside the domain.

    Returns
    -------
    ndarray of shape (R, k, d), int64
    """
    # Step to the noisy mean, rounded to the grid; saturation keeps it in int64.
    records = counts[..., None] / SCALE
    divisors = np.maximum(records, 1.0) if keep_empty else records + _TINY
    means = sums / divisors
    if relative:
        means += centers
    steps = np.clip(np.rint(means), -limit, limit).astype(np.int64) - centers
    if keep_empty:
        steps[counts < SCALE] = 0

    # Clip the step in norm, move by it, and treat a position outside the domain.
    moves = np.rint(steps * clip_factor(steps, longest)).astype(np.int64)
    positions = centers + moves
    if outside == FOLD:
        return fold(positions)
    return np.clip(positions, -SCALE, SCALE) if outside == TRUNCATE else positions
