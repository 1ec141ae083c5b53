"""The 2^-16 grid on which private data, released centers and noise live.

The public domain is mapped to [-1, 1]^d and the box to integers in [-65536, 65536]^d. Sums of points are then
integers, sensitivities are exact, and adding rounded noise is exact post-processing of the continuous mechanism
(rounding to nearest commutes with adding an integer).
"""

import numpy as np

from pkm.compute import SCALE, exact_limit


def snap(points) -> np.ndarray:
    """Round coordinates in [-1, 1] to the nearest grid point.

    Parameters
    ----------
    points : array-like, float
        Coordinates in units of the half-width of the domain.

    Returns
    -------
    ndarray of the same shape, int64
        Multiples of 2**-16, given as integers in [-65536, 65536].

    Raises
    ------
    ValueError
        If a coordinate is not finite or lies outside [-1, 1].

    Examples
    --------
    >>> snap([-1.0, 0.25, 1.0]).tolist()
    [-65536, 16384, 65536]
    """
    points = np.asarray(points, dtype=np.float64)
    if not np.isfinite(points).all():
        raise ValueError("points must be finite; remove or impute rows with NaN or infinite values")
    if points.size and np.abs(points).max() > 1.0:
        raise ValueError("points must lie in [-1, 1]; clip them to the public domain")
    return np.rint(points * SCALE).astype(np.int64)


def snap_centers(centers) -> np.ndarray:
    """Round released centers, in grid steps, to the grid and saturate them where distances would cease to be exact.

    Parameters
    ----------
    centers : ndarray of shape (..., d), float64
        In grid steps. Infinite values saturate.

    Returns
    -------
    ndarray of the same shape, int64

    Raises
    ------
    ValueError
        If a coordinate is NaN.
    """
    if np.isnan(centers).any():
        raise ValueError("centers must not be NaN; guard the division that made them")
    limit = exact_limit(centers.shape[-1])
    return np.minimum(np.maximum(np.rint(centers), -limit), limit).astype(np.int64)


def to_unit(grid) -> np.ndarray:
    """Map grid integers to float64 coordinates in units of the half-width of the domain."""
    return np.asarray(grid, dtype=np.float64) / SCALE
