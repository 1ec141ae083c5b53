"""Norm clipping of grid vectors, rounded toward zero, and sums of clipped vectors."""

import math
from dataclasses import replace

import numpy as np
from numba import njit

from pkm.compute.kernels.nearest import labels, labels_by_present, sums_and_counts
from pkm.compute.storage.blocks import Arrays
from pkm.compute.storage.points import (
    FASTMATH,
    SCALE,
    Points,
    count_labels,
    make_slices,
    multiply_units,
    read_weights,
    square_norms,
    weight,
)

#: Clipped vectors are shorter by this factor, because root and quotient may round up.
SHRINKAGE = 1 - 2.0**-48


def clip_norms(rows: np.ndarray, radius: float) -> np.ndarray:
    """Clip the norms of grid vectors (n, d) to a radius: int64, rounded toward zero."""
    rows = np.asarray(rows, np.float64)
    squared_norms = (rows * rows).sum(axis=1)
    # Vectors inside the ball are unchanged: their factor is exactly 1. Truncation
    # toward zero makes no other one longer than the radius.
    outside = squared_norms > radius * radius
    factors = np.ones(len(rows))
    factors[outside] = radius / np.sqrt(squared_norms[outside]) * SHRINKAGE
    return (rows * factors[:, None]).astype(np.int64)


def clip_to_ball(points: Points, radius: float, in_place: bool) -> Points:
    """Clip points to a ball about the origin, in place or as a copy.

    The radius is in half-widths. Points outside are moved to the surface.
    """
    # At sqrt(d) no point of the domain is outside, though the root's square may be
    # rounded to less than d.
    limit = radius * SCALE
    holds_domain = radius >= math.sqrt(points.shape[1])
    all_outside = (
        () if holds_domain else np.flatnonzero(points.squared_norms > limit * limit)
    )
    if not len(all_outside):
        # The result shares the arrays. Its cache is its own, and is freed with it.
        return replace(points)
    # OUT: rows and their norms, of the points outside alone.
    rows = points.rows if in_place else points.rows.copy()
    squared_norms = points.squared_norms if in_place else points.squared_norms.copy()
    for block in make_slices(len(all_outside)):
        outside = all_outside[block]
        rows[outside] = clip_norms(rows[outside], limit)
        squared_norms[outside] = square_norms(rows[outside])
    return replace(points, rows=rows, squared_norms=squared_norms, remainders=None)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def clipped_sums(
    rows: np.ndarray,
    weights: np.ndarray,
    labels: np.ndarray,
    origins: np.ndarray,
    radius: float,
    keep_fractions: bool,
) -> np.ndarray:
    """Sum the differences of each bucket's points from its origin, clipped in norm.

    Parameters
    ----------
    rows : ndarray of shape (n, d), float32
    weights : ndarray of shape (n,), int32, or (0,)
        In units of 2**-16 records; empty where a row is one record.
    labels : ndarray of shape (n,), int32
        Bucket of each point; points with -1 are left out.
    origins : ndarray of shape (b, d), int64
        In grid steps.
    radius : float
        In grid steps.
    keep_fractions : bool
        Whether sums of rows with weights are exact, in 2**-16 grid steps. Otherwise
        what a row adds is rounded toward zero to whole steps.

    Returns
    -------
    ndarray of shape (b, d), int64
        No point adds more than its weight times the radius in length.
    """
    n, d = rows.shape
    sums = np.zeros(origins.shape, np.int64)
    squared_radius = radius * radius
    diffs = np.empty(d)
    for i in range(n):
        label = labels[i]
        if label < 0:
            continue
        # Differences and their squares are integers: their sum is exact in any order.
        sq_dist = 0.0
        for h in range(d):
            diff = np.float64(rows[i, h]) - np.float64(origins[label, h])
            diffs[h] = diff
            sq_dist += diff * diff
        # Differences of whole records inside the radius are integers: the product is
        # exact.
        factor = 1.0
        copies = weight(weights, i)
        if len(weights) and not keep_fractions:
            factor = copies / SCALE
            copies = 1
        if sq_dist > squared_radius:
            factor *= _shrink(sq_dist, radius)
        for h in range(d):
            # Truncation toward zero: the sum changes by no more than the radius.
            sums[label, h] += np.int64(diffs[h] * factor) * copies
    return sums


@njit(cache=True, nogil=True)
def _shrink(sq_dist: float, radius: float) -> float:
    """Factor that clips a vector; its operations are rounded in this order."""
    return radius / math.sqrt(sq_dist) * SHRINKAGE


def nearest_clipped_sums(
    points: Points,
    centers: np.ndarray,
    radius: float,
) -> Arrays:
    """Clipped sums about each center of the points nearest to it, and their numbers.

    Sums of rows with weights are in 2**-16 grid steps.
    """
    nearest = labels(points, centers[None])[0]
    weights = read_weights(points)
    sums = clipped_sums(points.rows, weights, nearest, centers, float(radius), True)
    return sums, count_labels(nearest, weights, len(centers))


def sums_about(
    points: Points,
    centers: np.ndarray,
    origins: np.ndarray,
    max_squared_distance: float | np.ndarray | None = None,
    *,
    fill: bool = False,
) -> Arrays:
    """Sums about origins (R, k, d) of the points nearest to each center, and counts.

    The arguments are those of :func:`sums_and_counts`; counts are in units of 2**-16
    records. What a row with a weight adds to a sum is rounded toward zero, so that the
    rows of a person add no more than one record. With `fill` a missing entry has the
    coordinate, clipped to the domain, of the center that is nearest by the other
    entries. About that center it adds 0. A row with missing entries has the weight of
    :func:`weigh_present`.
    """
    is_missing = points.is_missing if fill else None
    weights = points.weights if is_missing is None else weigh_present(points)
    if weights is None:
        sums, counts = sums_and_counts(points, centers, max_squared_distance)
        # The sum of x - c over a cell is the sum of x less the count times c.
        sums -= counts[:, :, None] * origins
        return sums, counts * SCALE
    sums = np.empty(origins.shape, np.int64)
    counts = np.empty(origins.shape[:2], np.int64)
    find = labels if is_missing is None else labels_by_present
    nearest = find(points, centers, max_squared_distance)
    rows = points.rows
    for r, row in enumerate(nearest):
        if is_missing is not None:
            # The origin is clipped, too: it may be a center outside of the domain.
            center = np.clip(centers[r], -SCALE, SCALE)
            origin = np.clip(origins[r], -SCALE, SCALE)
            values = origins[r] + (center - origin)
            rows = np.where(is_missing, values[row], points.rows)
        sums[r] = clipped_sums(rows, weights, row, origins[r], np.inf, False)
        inside = row >= 0
        counts[r] = count_labels(row[inside], weights[inside], centers.shape[1])
    return sums, counts


def weigh_present(points: Points) -> np.ndarray:
    """Weights of points with missing entries: the cube of the share of their entries.

    About its center a missing entry adds 0, and so holds the center back. The fewer
    entries a row has, the more often its center is the wrong one, too.

    Returns
    -------
    ndarray of shape (n,), int32
        In units of 2**-16 records, rounded down; multiplied by those that rows have.

    Examples
    --------
    >>> rows = np.array([[0.5, np.nan], [0.5, 0.5]])
    >>> box = -np.ones(2), np.ones(2)
    >>> points, _ = Points.quantize(rows, *box, keep_missing=True)
    >>> (weigh_present(points) / SCALE).tolist()
    [0.125, 1.0]
    """
    assert points.is_missing is not None, "points have missing entries"
    share = (~points.is_missing).mean(axis=1)
    units = (SCALE * (share * share * share)).astype(np.int32)
    if points.weights is None:
        return units
    return multiply_units(units, points.weights)
