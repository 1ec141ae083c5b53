"""Clients of federated clustering with removals: of MUFC, DC-KMeans, Q-k-means.

The state of a client holds no data of a removed point: rows are overwritten. Its seeds
are the starting centers of k-means++, drawn by an exponential race. The next seed is
the point with the smallest quotient of its arrival time, an exponential variate, and
its squared distance to the seeds. It is distributed as in k-means++, and removing
another point leaves it the same.

Source: Pan et al., "Machine unlearning of federated clusters" (ICLR 2023), Alg. 1 and
3; Ginart et al., "Making AI forget you" (2019), for Q-k-means. Units: grid steps.
"""

import itertools
from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import cdist

from pkm.compute import exponential_race
from pkm.methods.unlearning.client_lloyd import local_lloyd

#: Standard exponential variates of a given shape.
DrawTimes = Callable[[tuple[int, ...]], np.ndarray]
QUANTIZED_STEPS = 10  # of Lloyd's algorithm in Q-k-means


class SeedingClient:
    """Client of MUFC: its points, and its centers, which are its k-means++ seeds.

    Parameters
    ----------
    rows : ndarray of shape (n, d), float32
        Points, integer-valued.
    ids : ndarray of shape (n,), int64
    arrival_times : ndarray of shape (n, k), float64
        Arrival time of each point in each step of the seeding.
    bin_side : float
        Side of the bins to which Q-k-means rounds centers.

    Attributes
    ----------
    n : int
        Number of remaining points: the first rows of the three arrays. The others are
        zero.
    seeds : ndarray of shape (k,), int64
        Rows of the seeds; only the first `n_seeds` are in use.
    n_seeds : int
        Fewer than k where there are fewer distinct points.
    sizes : ndarray of shape (k,), int64
        Points in each cluster.
    centers : ndarray of shape (at most k, d), float64
    """

    def __init__(
        self,
        rows: np.ndarray,
        ids: np.ndarray,
        arrival_times: np.ndarray,
        bin_side: float,
    ):
        k = arrival_times.shape[1]
        self.bin_side = bin_side
        self.rows = rows
        self.ids = ids
        self.arrival_times = arrival_times
        self.n = len(ids)
        self.seeds = np.zeros(k, np.int64)
        self.sizes = np.zeros(k, np.int64)
        self.n_seeds = 0
        self.centers = np.empty((0, rows.shape[1]))

    @property
    def seed_ids(self) -> np.ndarray:
        """Ids of the seeds, in the order in which they were chosen."""
        return self.ids[self.seeds[: self.n_seeds]]

    def fit(self, row_of: np.ndarray) -> None:
        """Compute the centers; write the row of each point into ``row_of``, by id."""
        row_of[self.ids] = np.arange(self.n)
        self._seed(0)

    def remove(
        self,
        ids: list[int],
        row_of: np.ndarray,
        draw: DrawTimes | None,
    ) -> bool:
        """Remove points.

        Parameters
        ----------
        ids : list of int
        row_of : ndarray
            Row of each point by id; kept up to date.
        draw : callable or None
            From a shape to new arrival times, for the seeds that are drawn again. None
            keeps the times.

        Returns
        -------
        bool
            Whether seeds were drawn again, or the client was refitted.
        """
        removed = self.rows[row_of[ids]]
        first = self._delete_points(ids, row_of)

        # Alg. 3, lines 2-3: without a seed among the points, the seeds stay. Only the
        # sizes of clusters change.
        if first is None:
            nearest = nearest_centers(removed, self.centers)
            self.sizes -= np.bincount(nearest, minlength=len(self.sizes))

        # Lines 5-14: keep the seeds before the first removed one, and draw the others
        # again.
        if first is not None:
            self._redraw_times(first, draw)
            self._seed(first)
        return first is not None

    def _delete_points(
        self,
        ids: list[int],
        row_of: np.ndarray,
    ) -> int | None:
        """Delete points; return the first step of the seeding that had chosen one."""
        steps = np.flatnonzero(np.isin(self.seed_ids, ids)).tolist()
        for point in ids:
            self._delete_row(point, row_of)
        return min(steps, default=None)

    def _delete_row(
        self,
        point: int,
        row_of: np.ndarray,
    ) -> None:
        """Overwrite a point by the last one, and the last row by zeros."""
        # Copy the last row over that of the point, and clear it.
        row = int(row_of[point])
        last = self.n - 1
        for array in (self.rows, self.ids, self.arrival_times):
            array[row] = array[last]
            array[last] = 0

        # The last point has a new row.
        seeds = self.seeds[: self.n_seeds]
        seeds[seeds == last] = row
        self.n = last
        row_of[point] = 0
        if row < last:
            row_of[self.ids[row]] = row

    def _redraw_times(
        self,
        first: int,
        draw: DrawTimes | None,
    ) -> None:
        """Draw new arrival times for a step and all later ones."""
        if draw is not None:
            later = self.arrival_times[: self.n, first:]
            later[:] = draw(later.shape)

    def _seed(self, first: int) -> None:
        """Choose the seeds from a step on by the race (Alg. 1, line 2)."""
        n = self.n
        if n:
            self.n_seeds = exponential_race(
                self.rows[:n],
                self.arrival_times[:n],
                self.ids[:n],
                self.seeds,
                first,
                self.sizes,
            )
        else:
            self.n_seeds = 0
            self.seeds[:] = 0
            self.sizes[:] = 0
        self.centers = self.rows[self.seeds[: self.n_seeds]].astype(np.float64)


class LloydClient(SeedingClient):
    """Leaf of DC-KMeans: its centers are means, and it is refitted after a removal."""

    def fit(self, row_of: np.ndarray) -> None:
        """See :meth:`SeedingClient.fit`."""
        # Sort rows by id, so that float sums do not depend on earlier removals.
        n = self.n
        order = np.argsort(self.ids[:n])
        for array in (self.rows, self.ids, self.arrival_times):
            array[:n] = array[order]
        row_of[self.ids[:n]] = np.arange(n)

        # Lloyd's algorithm from the k-means++ seeds.
        self._seed(0)
        if n:
            points = self.rows[:n].astype(np.float64)
            self.centers, labels = local_lloyd(points, self.centers)
            self.sizes[:] = np.bincount(labels, minlength=len(self.sizes))

    def remove(
        self,
        ids: list[int],
        row_of: np.ndarray,
        draw: DrawTimes | None,
    ) -> bool:
        """See :meth:`SeedingClient.remove`."""
        first = self._delete_points(ids, row_of)
        self._redraw_times(first or 0, draw)
        self.fit(row_of)
        return True


class QuantizedClient(SeedingClient):
    """Client of Q-k-means: it is refitted where a removal moves a rounded center.

    After every step of Lloyd's algorithm the centers are rounded to bins. So they
    mostly stay the same without one point, and then only the sums change. The number of
    steps is fixed, bins are not shifted at random, and an empty cluster keeps its
    center.
    """

    #: Of each step: centers, and the sum and the number of the points nearest to each.
    _steps: list[tuple[np.ndarray, np.ndarray, np.ndarray]]

    def remove(
        self,
        ids: list[int],
        row_of: np.ndarray,
        draw: DrawTimes | None,
    ) -> bool:
        """See :meth:`SeedingClient.remove`."""
        removed = self.rows[row_of[ids]]
        first = self._delete_points(ids, row_of)
        if first is not None:
            self._redraw_times(first, draw)
        elif self._keeps_centers(removed):
            return False
        self._seed(first or 0)
        return True

    def _seed(self, first: int) -> None:
        """Choose seeds, and start Lloyd's algorithm from them."""
        super()._seed(first)
        self._steps = []
        rows = self.rows[: self.n]
        centers = self.centers
        for _ in range(QUANTIZED_STEPS + 1 if self.n else 0):
            self.centers = centers
            step = (centers, *self._assign(rows, centers))
            self._steps.append(step)
            centers = self._round_means(*step)
        self._count_points()

    def _count_points(self) -> None:
        """Take the sizes of the clusters from the last step."""
        for _, _, counts in self._steps[-1:]:
            self.sizes[: len(counts)] = counts

    def _keeps_centers(self, removed: np.ndarray) -> bool:
        """Take points out of the sums; whether all rounded centers stay."""
        for centers, sums, counts in self._steps:
            removed_sums, removed_counts = self._assign(removed, centers)
            sums -= removed_sums
            counts -= removed_counts
        self._count_points()
        return all(
            np.array_equal(self._round_means(*step), following[0])
            for step, following in itertools.pairwise(self._steps)
        )

    @staticmethod
    def _assign(rows: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums and numbers of the points nearest to each center: exact integers."""
        labels = nearest_centers(rows, centers)
        sums = np.zeros(centers.shape, np.int64)
        np.add.at(sums, labels, rows.astype(np.int64))
        return sums, np.bincount(labels, minlength=len(centers))

    def _round_means(
        self,
        centers: np.ndarray,
        sums: np.ndarray,
        counts: np.ndarray,
    ) -> np.ndarray:
        """Round means to bins; an empty cluster keeps its center."""
        means = sums / np.maximum(counts, 1)[:, None]
        rounded = np.floor(means / self.bin_side + 0.5) * self.bin_side
        return np.where(counts[:, None] > 0, rounded, centers)


def nearest_centers(rows: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Find the center nearest to each row, ties to the first: shape (m,)."""
    return cdist(rows.astype(np.float64), centers, "sqeuclidean").argmin(axis=1)
