"""The update step of noisy Lloyd iterations: new centers on the grid."""

import math

import numpy as np
from numba import njit, vectorize

from pkm.compute.storage.points import SCALE

KEEP, TRUNCATE, FOLD = range(3)
"""What is done to a coordinate outside the domain [-SCALE, SCALE]."""

_TINY = 1e-9  # records: the published update would divide by zero without it


@vectorize(cache=True)
def fold(coordinate: int) -> int:
    """Reflect a grid coordinate at the borders of the domain until it lies inside.

    Source: FastLloyd paper, Sec. 5.3.5.

    Examples
    --------
    >>> (fold(np.array([1.25, -1.5, 3.5]) * SCALE) / SCALE).tolist()
    [0.75, -0.5, -0.5]
    """
    # A triangle wave of period 4 that is 1 at the upper border.
    from_upper = (coordinate - SCALE) % (4 * SCALE)
    return abs(from_upper - 2 * SCALE) - SCALE


@njit(cache=True)
def clip_factor(step: np.ndarray, longest: float) -> float:
    """Factor of at most 1 that clips a step (d,), int64, to the norm ``longest``.

    The squared length is an integer, so that the factor does not depend on the order of
    its terms.
    """
    squared_length = 0
    for h in range(len(step)):
        squared_length += step[h] * step[h]
    return min(1.0, longest / max(math.sqrt(squared_length), 1.0))


@njit(cache=True)
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
    # IN: centers, sums, counts. OUT: moved, each entry written once.
    moved = np.empty_like(centers)
    step = np.empty(centers.shape[2], np.int64)
    for r in range(centers.shape[0]):
        for j in range(centers.shape[1]):
            # Step to the noisy mean, rounded to the grid; saturation keeps it in int64.
            records = counts[r, j] / SCALE
            stays = keep_empty and records < 1.0
            divisor = max(records, 1.0) if keep_empty else records + _TINY
            for h in range(len(step)):
                center = centers[r, j, h]
                mean = sums[r, j, h] / divisor + (center if relative else 0)
                mean = min(max(np.rint(mean), -limit), limit)
                step[h] = 0 if stays else np.int64(mean) - center

            # Clip the step in norm, move by it, and treat a position outside the
            # domain.
            factor = 1.0 if longest == math.inf else clip_factor(step, longest)
            for h in range(len(step)):
                position = centers[r, j, h] + np.int64(np.rint(step[h] * factor))
                if outside == FOLD:
                    position = fold(position)
                elif outside == TRUNCATE:
                    position = min(max(position, -SCALE), SCALE)
                moved[r, j, h] = position
    return moved
