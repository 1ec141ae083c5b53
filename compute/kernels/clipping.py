"""Vectors that are shortened to a radius, toward zero, and their sums."""

import math
from dataclasses import replace

import numpy as np
from numba import njit

from pkm.compute.kernels.nearest import labels
from pkm.compute.storage.blocks import Sums
from pkm.compute.storage.points import SCALE, Points, squared_norms_of

BLOCK = 1 << 15  # points whose temporary arrays exist at once
SHRINKAGE = (
    1 - 2.0**-48
)  # outweighs the rounding of the root and the quotient of a clipping


def clip_norms(rows: np.ndarray, radius: float) -> np.ndarray:
    """Grid vectors (n, d), int64: those longer than a radius shortened to it, toward zero."""
    rows = np.asarray(rows, np.float64)
    squared_norms = (rows * rows).sum(axis=1)
    clipped = np.empty(rows.shape, np.int64)
    _clip_norms(rows, squared_norms, float(radius), clipped)
    return clipped


@njit(cache=True, nogil=True)
def _clip_norms(
    rows: np.ndarray,
    squared_norms: np.ndarray,
    radius: float,
    clipped: np.ndarray,
) -> None:
    squared_radius = radius * radius
    for i in range(rows.shape[0]):
        factor = 1.0
        if squared_norms[i] > squared_radius:
            factor = radius / math.sqrt(squared_norms[i]) * SHRINKAGE
        for h in range(rows.shape[1]):
            clipped[i, h] = np.int64(rows[i, h] * factor)


def pull_into_ball(points: Points, radius: float, in_place: bool) -> Points:
    """Pull points outside a ball to its surface, in place or as a copy; radius in half-widths."""
    # At sqrt(d) no point of the domain is outside, though the root's square may be
    # rounded to less than d.
    limit = radius * SCALE
    holds_domain = radius >= math.sqrt(points.shape[1])
    all_outside = (
        () if holds_domain else np.flatnonzero(points.squared_norms > limit * limit)
    )
    if not len(all_outside):
        # What is computed of them is kept for the view alone.
        return replace(points)
    rows = points.rows if in_place else points.rows.copy()
    squared_norms = points.squared_norms if in_place else points.squared_norms.copy()
    for start in range(0, len(all_outside), BLOCK):
        outside = all_outside[start : start + BLOCK]
        rows[outside] = clip_norms(rows[outside], limit)
        squared_norms[outside] = squared_norms_of(rows[outside])
    return Points(rows, squared_norms, n_null=points.n_null)


def clipped_sums(
    points: Points,
    labels: np.ndarray,
    origins: np.ndarray,
    radius: float,
) -> np.ndarray:
    """Sum of the differences of each bucket's points from its origin, each clipped in norm.

    Parameters
    ----------
    points : Points
    labels : ndarray of shape (n,), int32
        Bucket of each point; points with -1 are left out.
    origins : ndarray of shape (b, d), int64
        In grid steps.
    radius : float
        In grid steps.

    Returns
    -------
    ndarray of shape (b, d), int64
        No point adds more than the radius in length.
    """
    sums = np.zeros(origins.shape, np.int64)
    _clipped_sums(points.rows, labels, origins, float(radius), sums)
    return sums


@njit(cache=True, nogil=True)
def _clipped_sums(
    rows: np.ndarray,
    labels: np.ndarray,
    origins: np.ndarray,
    radius: float,
    sums: np.ndarray,
) -> None:
    d = rows.shape[1]
    squared_radius = radius * radius
    for i in range(rows.shape[0]):
        label = labels[i]
        if label < 0:
            continue
        square = 0.0
        for h in range(d):
            step = np.float64(rows[i, h]) - origins[label, h]
            square += step * step
        if square <= squared_radius:
            for h in range(d):
                sums[label, h] += np.int64(rows[i, h]) - origins[label, h]
        else:
            factor = radius / math.sqrt(square) * SHRINKAGE
            for h in range(d):
                # Toward zero: no longer than the radius.
                step = np.float64(rows[i, h]) - origins[label, h]
                sums[label, h] += np.int64(step * factor)


def nearest_clipped_sums(points: Points, centers: np.ndarray, radius: float) -> Sums:
    """Clipped sums about each center of the points nearest to it, and their numbers."""
    nearest = labels(points, centers[None])[0]
    sums = clipped_sums(points, nearest, centers, radius)
    return sums, np.bincount(nearest, minlength=len(centers))
