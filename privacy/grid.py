"""The 2^-16 grid that private data, released centers and noise are rounded to.

half-width
    Half the length of the public domain in one feature. The domain is mapped to [-1,
    1]^d, so a length of 1 is one half-width of the domain in the units of the data.
grid step
    2^-16 half-widths, the distance between neighboring grid positions of a feature. In
    grid steps the domain is [-65536, 65536]^d and every coordinate is an integer;
    :data:`SCALE` is the number of grid steps per half-width. Counts are released in
    units of 2^-16 records, on the same integers.

Sums of grid points are integers, sensitivities are exact, and adding rounded noise is
exact post-processing of the continuous mechanism (rounding to nearest commutes with
adding an integer).
"""

import numpy as np
from numpy.typing import ArrayLike

from pkm.compute import SCALE, exact_limit

__all__ = ["MAX_CELLS", "SCALE", "snap", "snap_centers", "to_half_widths"]

MAX_CELLS = 1 << 22  # of queries that count all cells of a public grid


def snap(points: ArrayLike) -> np.ndarray:
    """Round coordinates in [-1, 1] to the nearest grid point.

    Parameters
    ----------
    points : array-like, float
        Coordinates in half-widths of the domain.

    Returns
    -------
    ndarray of the same shape, int64
        In grid steps: multiples of 2**-16, given as integers in [-65536, 65536].

    Raises
    ------
    ValueError
        If a coordinate is not finite or lies outside [-1, 1].

    Examples
    --------
    >>> snap([-1.0, 0.25, 1.0]).tolist()
    [-65536, 16384, 65536]
    """
    coordinates = np.asarray(points, dtype=np.float64)
    if not np.isfinite(coordinates).all():
        raise ValueError(
            "points must be finite; remove or impute rows with NaN or infinite values"
        )
    if coordinates.size and np.abs(coordinates).max() > 1.0:
        raise ValueError("points must lie in [-1, 1]; clip them to the public domain")
    return np.rint(coordinates * SCALE).astype(np.int64)


def snap_centers(centers: np.ndarray) -> np.ndarray:
    """Round released centers to the grid; saturate at the limit of exact distances.

    Parameters
    ----------
    centers : ndarray of shape (..., d), float64
        In grid steps. Infinite values saturate.

    Returns
    -------
    ndarray of the same shape, int64
        In grid steps.

    Raises
    ------
    ValueError
        If a coordinate is NaN.
    """
    if np.isnan(centers).any():
        raise ValueError("centers must not be NaN; guard the division that made them")
    # Beyond the limit squared distances are no exact integers in float64.
    limit = exact_limit(centers.shape[-1])
    rounded = np.rint(centers)
    return np.minimum(np.maximum(rounded, -limit), limit).astype(np.int64)


def to_half_widths(positions: ArrayLike) -> np.ndarray:
    """Convert positions in grid steps to float64, in half-widths of the domain."""
    return np.asarray(positions, dtype=np.float64) / SCALE
