"""Silhouettes, and distances inside clusters, of many labelings of the same points."""

import numpy as np
from numba import njit

from pkm.compute.simd.lanes import LANES, add_doubles, load
from pkm.compute.storage.points import Points, make_slices

TILE = 32  # points per tile: their distances to one point are consecutive in memory
STRIP = 8 * TILE  # points per matrix product


def distance_tiles(points: Points) -> np.ndarray:
    """All pairwise distances, laid out for :func:`mean_silhouettes`.

    Parameters
    ----------
    points : Points
        n points; memory is 4 n^2 bytes.

    Returns
    -------
    ndarray of shape (ceil(n / 32), n, 32), float32
        Tile t holds the distances, in grid steps, of all points to points 32 t to 32 t
        + 31 (zero beyond the last). Squares are exact; single precision halves the
        memory traffic and changes a mean silhouette by less than 1e-6.
    """
    n = points.shape[0]
    rows = points.rows.astype(np.float64)
    tiles = np.zeros((-(-n // TILE), n, TILE), np.float32)
    for strip in make_slices(n, STRIP):
        # |x - y|^2 = |x|^2 - 2 x.y + |y|^2: integers below 2**53, hence exact.
        squares = rows @ rows[strip].T
        squares *= -2.0
        squares += points.squared_norms[:, None]
        squares += points.squared_norms[strip]
        for start in range(0, squares.shape[1], TILE):
            columns = squares[:, start : start + TILE]
            tile = tiles[(strip.start + start) // TILE, :, : columns.shape[1]]
            np.sqrt(columns, out=tile, casting="same_kind")
    return tiles


def mean_silhouettes(
    tiles: np.ndarray,
    labels: np.ndarray,
    k: int,
) -> np.ndarray:
    """Mean silhouette of each labeling (Rousseeuw 1987).

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
        -1 where fewer than two clusters have points; the only point of a cluster counts
        0.

    Examples
    --------
    >>> tiles = distance_tiles(Points.from_grid(np.array([[0], [1], [10], [11]])))
    >>> mean_silhouettes(tiles, np.array([[0, 0, 1, 1]], np.int32), 2).round(4).tolist()
    [0.8997]
    """
    n_replicates, n = labels.shape
    counts = np.stack([np.bincount(row, minlength=k) for row in labels])
    labels_of_points = np.ascontiguousarray(labels.T)
    scores = np.zeros(n_replicates)
    # totals[r, j, w]: sum of the distances of point w of a tile to cluster j.
    totals = np.empty((n_replicates, k, TILE))
    for t, tile in enumerate(tiles):
        totals[:] = 0.0
        _add_distances(tile.reshape(-1), labels_of_points, totals.reshape(-1))
        _add_silhouettes(
            totals,
            counts,
            labels,
            t * TILE,
            scores,
        )
    n_occupied = (counts > 0).sum(axis=1)
    return np.where(n_occupied < 2, -1.0, scores / n)


@njit(cache=True)
def _add_distances(
    distances: np.ndarray,
    labels: np.ndarray,
    totals: np.ndarray,
) -> None:
    """Add rows of distances (n * TILE,) to totals (R * k * TILE,) by labels (n, R).

    The inner loop runs over replicates, so that successive additions are to different
    sums: neighboring points often have the same label, and each would wait for the
    last.
    """
    # OUT: totals, flat: replicate r and label j begin at (r * k + j) * TILE.
    n, n_replicates = labels.shape
    size = len(totals) // n_replicates
    for i in range(n):
        for r in range(n_replicates):
            first = r * size + np.int64(labels[i, r]) * TILE
            for w in range(0, TILE, LANES):
                add_doubles(totals, first + w, load(distances, i * TILE + w))


@njit(cache=True)
def _add_silhouettes(
    totals: np.ndarray,
    counts: np.ndarray,
    labels: np.ndarray,
    start: int,
    scores: np.ndarray,
) -> None:
    """Add the silhouettes of a tile of points, from ``start`` on, to scores (R,)."""
    k = totals.shape[1]
    for r in range(labels.shape[0]):
        for w in range(min(TILE, labels.shape[1] - start)):
            label = labels[r, start + w]
            if counts[r, label] == 1:
                continue
            # Rousseeuw's a and b: mean distance to the point's own cluster, and to the
            # nearest other one. The silhouette is (b - a) / max(a, b).
            within = totals[r, label, w] / (counts[r, label] - 1)
            between = np.inf
            for j in range(k):
                if j != label and counts[r, j] > 0:
                    between = min(between, totals[r, j, w] / counts[r, j])
            larger = max(within, between)
            if larger > 0:
                scores[r] += (between - within) / larger


def cluster_means(
    points: Points,
    labels: np.ndarray,
    k: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Means of the points of each label and their numbers.

    Parameters
    ----------
    points : Points
        n points with d features.
    labels : ndarray of shape (R, n), integer
        Values in [0, k).
    k : int

    Returns
    -------
    means : ndarray of shape (R, k, d), float64
        In grid steps; 0 for empty clusters.
    counts : ndarray of shape (R, k), int64
    """
    n_replicates = len(labels)
    d = points.shape[1]
    means = np.zeros((n_replicates, k, d))
    counts = np.empty((n_replicates, k), np.int64)
    for r, row in enumerate(labels):
        counts[r] = np.bincount(row, minlength=k)
        occupied = np.flatnonzero(counts[r])
        # Sorted by label, the points of a cluster are consecutive and are summed at
        # once.
        order = np.argsort(row, kind="stable")
        ends = np.cumsum(counts[r, occupied])
        starts = ends - counts[r, occupied]
        rows = points.rows[order]
        means[r, occupied] = np.add.reduceat(rows, starts, axis=0, dtype=np.float64)
        means[r] /= np.maximum(counts[r], 1)[:, None]
    return means, counts


def mean_within_distances(
    points: Points,
    labels: np.ndarray,
    means: np.ndarray,
    counts: np.ndarray,
) -> np.ndarray:
    """Mean distance of clusters' points to their means, in grid steps; 0 if empty."""
    totals = np.empty(counts.shape)
    for r, row in enumerate(labels):
        # Squares are added in the order of the features, distances in that of points.
        pairs = zip(points.rows.T, means[r].T, strict=True)
        squares = sum((column - mean[row]) ** 2 for column, mean in pairs)
        totals[r] = np.bincount(row, np.sqrt(squares), len(means[r]))
    return totals / np.maximum(counts, 1)
