"""Projection of points into a unit ball, nearest centers there, and sums."""

import math
from collections.abc import Sequence

import numpy as np
from numba import njit

from pkm.compute.kernels.lloyd import nearest_center
from pkm.compute.storage.points import EXACT_BITS, SCALE, Points, make_slices

PROJECTION_BLOCK = 4096  # points per matrix product
#: With at least so many features per projected dimension, projections are kept in
#: memory: they then take at most half of the memory of the points.
KEPT_FEATURES = 4


class Projection:
    """Points under a projection into the unit ball, scaled and clipped to it.

    Points are projected in every pass, because the projections of points with few
    features take more memory than the points. Projections that take less are kept.

    Parameters
    ----------
    shards : sequence of Points
        n points together, with d integer coordinates.
    matrix : ndarray of shape (m, d), int64
        Small enough that the products are exact in any order.
    length : float
        Norm that is scaled to 1, in the units of the products.

    Attributes
    ----------
    shape : tuple of int
        n, m.

    Raises
    ------
    ValueError
        If the matrix does not fit the points or is too large.

    Examples
    --------
    >>> shards = [Points.from_grid(np.array(rows)) for rows in ([[2], [8]], [[6]])]
    >>> projection = Projection(shards, np.array([[1], [0]]), 8.0)
    >>> projection[1:].tolist(), projection[[2, 0]].tolist()
    ([[1.0, 0.0], [0.75, 0.0]], [[0.75, 0.0], [0.25, 0.0]])
    """

    def __init__(
        self,
        shards: Sequence[Points],
        matrix: np.ndarray,
        length: float,
    ):
        d = shards[0].shape[1]
        is_integer = np.issubdtype(matrix.dtype, np.integer)
        fits = matrix.ndim == 2 and matrix.shape[1] == d and 0 not in matrix.shape
        if not (fits and is_integer):
            raise ValueError(
                f"matrix must be integers of shape (m, {d}), "
                f"got {matrix.dtype} of shape "
                f"{matrix.shape}"
            )
        # Partial sums of a product stay below d * SCALE * largest_entry < 2^53.
        largest_entry = int(np.abs(matrix).max())
        if largest_entry * SCALE * d >= 1 << EXACT_BITS:
            raise ValueError(
                f"matrix has entries up to {largest_entry}: "
                f"products of {d} of them are not exact"
            )
        if not 0 < length < math.inf:
            raise ValueError(f"length={length} must be positive and finite")
        self._shards = shards
        self._transposed = matrix.T.astype(np.float64)
        self._length = length
        self._ends = np.cumsum([len(shard.rows) for shard in shards])
        self.shape = (int(self._ends[-1]), len(matrix))
        self._kept: np.ndarray | None = None
        if d >= KEPT_FEATURES * len(matrix):
            kept = np.empty(self.shape)
            for block in make_slices(len(self), PROJECTION_BLOCK):
                kept[block] = self[block]
            self._kept = kept

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, selected: slice | np.ndarray | Sequence[int]) -> np.ndarray:
        """Projections (b, m), float64, of the points that a slice or indices select."""
        if self._kept is not None:
            return self._kept[selected]
        # Products are integers, hence exact; only scaling and clipping round.
        projected = self.rows(selected).astype(np.float64) @ self._transposed
        projected /= self._length
        # Squares are added in the order of the dimensions.
        squares = np.asarray(sum(column * column for column in projected.T))
        outside = squares > 1.0
        projected[outside] /= np.sqrt(squares[outside])[:, None]
        return projected

    def rows(self, selected: slice | np.ndarray | Sequence[int]) -> np.ndarray:
        """Coordinates (b, d), float32, of points by their indices over all shards."""
        if len(self._shards) == 1:
            return self._shards[0].rows[selected]
        is_slice = isinstance(selected, slice)
        numbers = (
            np.arange(*selected.indices(len(self)))
            if is_slice
            else np.asarray(selected)
        )
        # A shard holds the indices from the end of the one before to below its own end.
        shard_of = np.searchsorted(self._ends, numbers, side="right")
        rows = np.empty((len(numbers), len(self._transposed)), np.float32)
        for i in np.unique(shard_of):
            shard = self._shards[i]
            first = self._ends[i] - len(shard.rows)
            rows[shard_of == i] = shard.rows[numbers[shard_of == i] - first]
        return rows


@njit(cache=True)
def nearest_labels(
    projected: np.ndarray,  # IN (n, m)
    centers: np.ndarray,  # IN (k, m)
) -> np.ndarray:
    """Center (k, m) nearest to each projected point (n, m), ties to the first.

    Examples
    --------
    >>> projected = np.array([[0.0], [0.5], [1.0]])
    >>> nearest_labels(projected, np.array([[0.0], [1.0]])).tolist()
    [0, 0, 1]
    """
    labels = np.empty(len(projected), np.int64)
    for i in range(len(projected)):
        labels[i], _ = nearest_center(projected, i, centers)
    return labels


def label_sums(
    rows: np.ndarray,
    labels: np.ndarray,
    k: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Sums (k, d) and counts (k,), int64, of rows (n, d), float32, by label."""
    # float64 weights are exact: sums are below 2**53.
    sums = [np.bincount(labels, column, k) for column in rows.T]
    counts = np.bincount(labels, minlength=k)
    return np.column_stack(sums).astype(np.int64), counts
