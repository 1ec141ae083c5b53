"""Sums of distances inside and between the clusters of many labellings of the same points."""

import numpy as np
from numba import njit

from pkm.compute.nearest import Points

TILE = 32  # points whose distances to all others lie side by side
STRIP = 8 * TILE  # points per matrix product
BLOCK = 128  # points per step: 128 x 32 distances stay in the first-level cache


def distance_tiles(points: Points) -> np.ndarray:
    """All pairwise distances, laid out for :func:`mean_silhouettes`.

    Parameters
    ----------
    points : Points
        n points; memory is 4 n^2 bytes.

    Returns
    -------
    ndarray of shape (ceil(n / 32), n, 32), float32
        Tile t holds the distances of all points to points 32 t to 32 t + 31 (zero beyond the last). Squares are exact;
        single precision halves the traffic and moves a mean silhouette by less than 1e-6.
    """
    n = points.shape[0]
    rows = points.rows.astype(np.float64)
    tiles = np.zeros((-(-n // TILE), n, TILE), np.float32)
    for first in range(0, n, STRIP):
        strip = slice(first, min(first + STRIP, n))
        squares = rows @ rows[strip].T
        squares *= -2.0
        squares += points.norms[:, None]
        squares += points.norms[strip]
        for start in range(first, strip.stop, TILE):
            some = squares[:, start - first : start - first + TILE]
            np.sqrt(some, out=tiles[start // TILE, :, : some.shape[1]], casting="same_kind")
    return tiles


@njit(cache=True)
def _add_distances(distances, labels, totals):
    """Add the distances (n, TILE) to totals (replicates, k, TILE) by the labels (replicates, n) of their rows."""
    n = distances.shape[0]
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        for r in range(labels.shape[0]):
            for i in range(start, stop):
                j = labels[r, i]
                for w in range(TILE):
                    totals[r, j, w] += distances[i, w]


@njit(cache=True)
def _add_silhouettes(totals, counts, labels, start, scores):
    """Add the silhouette of each point of a tile to scores (replicates,)."""
    k = totals.shape[1]
    for r in range(labels.shape[0]):
        for w in range(min(TILE, labels.shape[1] - start)):
            own = labels[r, start + w]
            if counts[r, own] == 1:
                continue
            inside = totals[r, own, w] / (counts[r, own] - 1)
            outside = np.inf
            for j in range(k):
                if j != own and counts[r, j] > 0:
                    outside = min(outside, totals[r, j, w] / counts[r, j])
            largest = max(inside, outside)
            if largest > 0:
                scores[r] += (outside - inside) / largest


def mean_silhouettes(tiles: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """Mean silhouette of each labelling (Rousseeuw 1987).

    Parameters
    ----------
    tiles : ndarray
        Distances of n points, from :func:`distance_tiles`.
    labels : ndarray of shape (R, n), int32
        Values in [0, k).
    k : int

    Returns
    -------
    ndarray of shape (R,), float64
        -1 where fewer than two clusters have points; a point alone in its cluster counts 0.

    Examples
    --------
    >>> tiles = distance_tiles(Points.prepare(np.array([[0], [1], [10], [11]])))
    >>> mean_silhouettes(tiles, np.array([[0, 0, 1, 1]], np.int32), 2).round(4).tolist()
    [0.8997]
    """
    n = labels.shape[1]
    counts = np.stack([np.bincount(row, minlength=k) for row in labels])
    scores, totals = np.zeros(len(labels)), np.empty((len(labels), k, TILE))
    for t, tile in enumerate(tiles):
        totals[:] = 0.0
        _add_distances(tile, labels, totals)
        _add_silhouettes(totals, counts, labels, t * TILE, scores)
    return np.where((counts > 0).sum(axis=1) < 2, -1.0, scores / n)


@njit(cache=True)
def _spread(rows, labels, means, totals):
    n, d = rows.shape
    for r in range(labels.shape[0]):
        for i in range(n):
            j = labels[r, i]
            square = 0.0
            for h in range(d):
                step = rows[i, h] - means[r, j, h]
                square += step * step
            totals[r, j] += np.sqrt(square)


def cluster_means(points: Points, labels: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the points of each label and their counts, shapes (R, k, d) and (R, k); empty clusters have mean 0."""
    replicates, d = len(labels), points.shape[1]
    means, counts = np.empty((replicates, k, d)), np.empty((replicates, k), np.int64)
    for r, row in enumerate(labels):
        counts[r] = np.bincount(row, minlength=k)
        order = np.argsort(row, kind="stable")
        present = np.flatnonzero(counts[r])
        starts = np.concatenate([[0], np.cumsum(counts[r][present])[:-1]])
        means[r] = 0.0
        means[r, present] = np.add.reduceat(points.rows[order], starts, axis=0, dtype=np.float64)
        means[r] /= np.maximum(counts[r], 1)[:, None]
    return means, counts


def mean_spreads(
    points: Points, labels: np.ndarray, means: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Mean distance of each cluster's points to its mean, shape (R, k); 0 for empty clusters."""
    totals = np.zeros(counts.shape)
    _spread(points.rows, labels, means, totals)
    return totals / np.maximum(counts, 1)
