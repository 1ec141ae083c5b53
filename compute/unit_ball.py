"""Projection of points into a unit ball of few dimensions, nearest centers there, and sums."""

import math

import numpy as np
from numba import njit

from pkm.compute.lloyd import nearest_center
from pkm.compute.points import EXACT_BITS, SCALE, Points

PROJECTION_BLOCK = 4096  # points per matrix product


def project(points: Points, matrix: np.ndarray, length: float) -> np.ndarray:
    """Project points, scale them, and clip them to the unit ball.

    Parameters
    ----------
    points : Points
        n points with d integer coordinates.
    matrix : ndarray of shape (m, d), int64
        Small enough that the products are exact in any order.
    length : float
        Length that is mapped to 1, in the units of the products.

    Returns
    -------
    ndarray of shape (n, m), float64

    Raises
    ------
    ValueError
        If the matrix does not fit the points or is too large.
    """
    d = points.shape[1]
    is_integer = np.issubdtype(matrix.dtype, np.integer)
    fits = matrix.ndim == 2 and matrix.shape[1] == d and 0 not in matrix.shape
    if not (fits and is_integer):
        raise ValueError(
            f"matrix must be integers of shape (m, {d}), got {matrix.dtype} of shape {matrix.shape}"
        )
    largest_entry = int(np.abs(matrix).max())
    if largest_entry * SCALE * d >= 1 << EXACT_BITS:
        raise ValueError(
            f"matrix has entries up to {largest_entry}: products of {d} of them are not exact"
        )
    if not 0 < length < math.inf:
        raise ValueError(f"length={length} must be positive and finite")
    transposed = matrix.T.astype(np.float64)
    projected = np.empty((points.shape[0], len(matrix)))
    for start in range(0, len(projected), PROJECTION_BLOCK):
        block = slice(start, start + PROJECTION_BLOCK)
        projected[block] = points.rows[block].astype(np.float64) @ transposed
    _clip_to_ball(projected, length)
    return projected


@njit(cache=True)
def _clip_to_ball(projected: np.ndarray, length: float) -> None:
    """Divide rows by a length, and by their norm where that is above 1, in place."""
    for i in range(projected.shape[0]):
        square = 0.0
        for h in range(projected.shape[1]):
            projected[i, h] /= length
            square += projected[i, h] * projected[i, h]
        if square > 1.0:
            norm = np.sqrt(square)
            for h in range(projected.shape[1]):
                projected[i, h] /= norm


def nearest_labels(projected: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Index of the center (k, m) nearest to each projected point (n, m), ties to the lower one.

    Examples
    --------
    >>> nearest_labels(np.array([[0.0], [0.5], [1.0]]), np.array([[0.0], [1.0]])).tolist()
    [0, 0, 1]
    """
    labels = np.empty(len(projected), np.int64)
    _nearest_labels(projected, np.ascontiguousarray(centers, np.float64), labels)
    return labels


@njit(cache=True)
def _nearest_labels(projected: np.ndarray, centers: np.ndarray, labels: np.ndarray) -> None:
    for i in range(projected.shape[0]):
        labels[i], _ = nearest_center(projected, i, centers)


def label_sums(points: Points, labels: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums (k, d) and counts (k,) of the points of each label, int64."""
    sums = np.zeros((k, points.shape[1]), np.int64)
    _add_rows(points.rows, labels, sums)
    return sums, np.bincount(labels, minlength=k)


@njit(cache=True)
def _add_rows(rows: np.ndarray, labels: np.ndarray, sums: np.ndarray) -> None:
    for i in range(rows.shape[0]):
        for h in range(rows.shape[1]):
            sums[labels[i], h] += np.int64(rows[i, h])
