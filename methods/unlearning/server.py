"""A server of federated clusters whose fit is repaired after a removal.

Its centers are a function of the sum of the clients' messages and of public randomness.
They are the best of several starts: k-means++ seeds by an exponential race of the bins,
then steps of Lloyd's algorithm. Sums and counts are integers, so that a repaired fit
has, bit for bit, the centers of a fit from scratch: see
:mod:`pkm.compute.kernels.incremental_lloyd`. Units: bins, counted from the middle one.
"""

import numpy as np

from pkm.compute.kernels.incremental_lloyd import (
    TOLERANCE,
    change_weights,
    hashed_arrival_times,
    seeds_unchanged,
    update_steps,
    weighted_race,
)

STARTS = 10
MAX_STEPS = 30  # of a start


class RepairedServer:
    """Weighted k-means on bins, with changes of their weights.

    Parameters
    ----------
    n_clusters : int
    bins : ndarray of shape (m, d), int64
        All different.
    weights : ndarray of shape (m,), int64
        Positive.
    seed : int
        Public: arrival times are hashes of the seed and the bin.
    capacity : int
        Largest number of bins.

    Examples
    --------
    >>> bins = np.array([[0, 0], [0, 2], [90, 0]])
    >>> server = RepairedServer(2, bins, np.array([3, 1, 2]), 0, 3)
    >>> server.change(np.array([[0, 2]]), np.array([-1]))
    >>> server.centers.tolist()
    [[0.0, 0.0], [90.0, 0.0]]
    """

    def __init__(
        self,
        n_clusters: int,
        bins: np.ndarray,
        weights: np.ndarray,
        seed: int,
        capacity: int,
    ):
        # The input: bins and their weights, by row; the first m rows are in use.
        d = bins.shape[1]
        self.m = 0
        self._key = np.uint64(seed)
        self._bins = np.zeros((capacity, d), np.int64)
        self._weights = np.zeros(capacity, np.int64)
        self._times = np.zeros((capacity, STARTS, n_clusters))
        self._row_of: dict[bytes, int] = {}

        # The race of each start: its seeds, and their arrival times.
        self._seeds = np.zeros((STARTS, n_clusters, d), np.int64)
        self._arrivals = np.full((STARTS, n_clusters), np.inf)
        self._n_seeds = np.zeros(STARTS, np.int64)

        # Lloyd's steps of each start. A label stays while its slack, the difference of
        # the two smallest distances, exceeds twice the move of the centers.
        by_step = (STARTS, MAX_STEPS)
        self._n_steps = np.zeros(STARTS, np.int64)
        self._labels = np.full((*by_step, capacity), -1, np.int32)
        self._slacks = np.zeros((*by_step, capacity))
        self._moved = np.zeros(by_step)
        self._centers = np.zeros((STARTS, MAX_STEPS + 1, n_clusters, d))
        self._sums = np.zeros((*by_step, n_clusters, d), np.int64)
        self._counts = np.zeros((*by_step, n_clusters), np.int64)
        self.change(bins, weights)

    @property
    def received(self) -> tuple[np.ndarray, np.ndarray]:
        """Bins, in lexicographic order, and their weights."""
        bins = self._bins[: self.m]
        order = np.lexsort(bins.T[::-1])
        return bins[order], self._weights[: self.m][order]

    @property
    def centers(self) -> np.ndarray:
        """Centers (at most k, d) of the start of least cost, in lexicographic order."""
        # Least cost: the sum of squares, the same for all starts, less that explained
        # by the means.
        starts = np.arange(STARTS)
        last = self._n_steps - 1
        sums = self._sums[starts, last].astype(np.float64)
        counts = np.maximum(self._counts[starts, last], 1)
        squares = (sums**2).sum(axis=2)
        explained = (squares / counts).sum(axis=1)
        best = int(explained.argmax())
        centers = self._centers[best, self._n_steps[best], : self._n_seeds[best]]
        return centers[np.lexsort(centers.T[::-1])]

    def change(
        self,
        bins: np.ndarray,
        changes: np.ndarray,
    ) -> None:
        """Add changes to the weights of bins, and repair the fit.

        Parameters
        ----------
        bins : ndarray of shape (c, d), int64
            All different.
        changes : ndarray of shape (c,), int64
            Not 0. A bin without weight is new, and a bin whose weight becomes 0 is
            removed.

        Raises
        ------
        ValueError
            If a weight would be negative.
        """
        known = [self._row_of.get(bin_.tobytes(), -1) for bin_ in bins]
        rows = np.array(known, np.int64)
        old_weights = np.where(rows < 0, 0, self._weights[rows])
        weights = old_weights + changes
        if (weights < 0).any():
            raise ValueError(
                f"changes={changes.tolist()} must leave weights of at least 0"
            )
        times = np.empty((len(bins), *self._times.shape[1:]))
        present = rows >= 0
        times[present] = self._times[rows[present]]
        times[~present] = self._hashed_times(bins[~present])

        # Update the sums of all steps, by the labels of each step.
        self._weights[rows[present]] = weights[present]
        for r in range(STARTS):
            change_weights(
                self._bins,
                rows[present],
                changes[present],
                self._n_steps[r],
                self._labels[r],
                self._sums[r],
                self._counts[r],
            )

        # Remove the bins without weight, and append new ones.
        for row in sorted(rows[present & (weights == 0)].tolist(), reverse=True):
            self._delete_row(row)
        for c in np.flatnonzero(~present):
            self._add_row(bins[c], weights[c], times[c])

        # Run the races again that can have another outcome, and repair the steps.
        for r in range(STARTS):
            has_same_seeds = self._n_steps[r] > 0 and seeds_unchanged(
                bins,
                old_weights,
                weights,
                times[:, r],
                self._seeds[r],
                self._arrivals[r],
            )
            self._repair(r, has_same_seeds)

    def _hashed_times(self, bins: np.ndarray) -> np.ndarray:
        """Arrival times of bins, of shape (c, starts, k)."""
        _, starts, k = self._times.shape
        contiguous = np.ascontiguousarray(bins)
        times = hashed_arrival_times(contiguous, self._key, starts * k)
        return times.reshape(-1, starts, k)

    def _add_row(
        self,
        bin_: np.ndarray,
        weight: int,
        times: np.ndarray,
    ) -> None:
        """Add a bin, without a label in any step."""
        row = self.m
        self._bins[row] = bin_
        self._weights[row] = weight
        self._times[row] = times
        self._labels[:, :, row] = -1
        self._row_of[bin_.tobytes()] = row
        self.m = row + 1

    def _delete_row(self, row: int) -> None:
        """Overwrite a bin by the last one, and the last one by zeros."""
        last = self.m - 1
        del self._row_of[self._bins[row].tobytes()]
        if row < last:
            self._row_of[self._bins[last].tobytes()] = row
        for array in (self._bins, self._weights, self._times):
            array[row] = array[last]
            array[last] = 0
        for array in (self._labels, self._slacks):
            array[:, :, row] = array[:, :, last]
            array[:, :, last] = 0
        self.m = last

    def _repair(
        self,
        r: int,
        has_same_seeds: bool,
    ) -> None:
        """Repair one start; run its race first unless its seeds are the same."""
        # Seeds by the race; other seeds make all steps invalid.
        m = self.m
        n_valid = int(self._n_steps[r])
        if not has_same_seeds:
            before = self._seeds[r].copy()
            self._n_seeds[r] = weighted_race(
                self._bins[:m],
                self._weights[:m],
                self._times[:m, r],
                self._seeds[r],
                self._arrivals[r],
            )
            if not np.array_equal(before, self._seeds[r]):
                n_valid = 0
                self._centers[r] = 0
                self._centers[r, 0] = self._seeds[r]

        # Lloyd's steps: labels that can have changed, sums, centers.
        steps = update_steps(
            self._bins[:m],
            self._weights[:m],
            self._n_seeds[r],
            n_valid,
            self._tolerance,
            self._labels[r],
            self._slacks[r],
            self._moved[r],
            self._centers[r],
            self._sums[r],
            self._counts[r],
        )

        # Clear steps that are no longer taken: they hold data of removed bins.
        for array in (self._moved, self._sums, self._counts):
            array[r, steps:] = 0
        self._centers[r, steps + 1 :] = 0
        self._n_steps[r] = steps

    @property
    def _tolerance(self) -> float:
        """Bound on the rounding errors of two distances between bins and centers."""
        _, d = self._bins.shape
        extent = float(np.abs(self._bins[: self.m]).max())
        return 2 * TOLERANCE * extent * np.sqrt(d)
