"""Stability histograms: counts over an unbounded domain, released above a threshold.

A cell occurs if it holds a record; which cells occur is private. Empty cells are never
released, and a cell of one record passes the threshold with a small probability only.
Source: Korolova, Kenthapadi, Mishra, Ntoulas 2009; with Gaussian noise as in Wilkins,
Kifer, Zhang, Karrer 2024.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri_exp

from pkm.compute.kernels.quadtree import CellsAt
from pkm.compute.storage.points import make_slices
from pkm.privacy.checks import check_positive, freeze_fields
from pkm.privacy.grid import SCALE
from pkm.privacy.mechanisms.additive import Cost, Gaussian
from pkm.privacy.mechanisms.noise import Key, NoiseStreams
from pkm.privacy.query import Sensitivity

BLOCK_CELLS = 1 << 16  # cells whose noise is drawn at a time


@dataclass(frozen=True)
class StabilityHistogram:
    """Gaussian noise on counts of cells that occur, and a threshold for release.

    Parameters
    ----------
    stddev : float
        Standard deviation of the noise, in records.
    delta : float
        Probability that any cell that occurs for one neighbor only is released; in (0,
        0.5].
    max_changed_cells : int, default=1
        Largest number of cells in which neighbors can differ by a record each, over all
        histograms that are released together. A record may be spread over cells.

    Attributes
    ----------
    threshold : float
        Smallest noisy count to release, in records: ``1 + s * q`` plus half a grid
        step. Here s is the standard deviation of secure noise, which is slightly above
        ``stddev``. All of ``max_changed_cells`` standard normal variates stay below q
        with probability ``1 - delta``. A cell that occurs for one neighbor only holds
        one record there, or a part of one, for which :meth:`find_threshold` is higher.

    Notes
    -----
    Rows with weights spread a record over cells. Let it add v records to a cell that
    holds n without it; the v of all cells add up to 1 at most. Write u(m, t) for minus
    the logarithm of the probability that the noisy count of m records is below t. Let g
    be ``-log(1 - delta)`` over ``max_changed_cells``, so that ``u(1, T) <= g`` for the
    threshold T (and a delta up to 1/2). For n < 1 the cell has the least threshold
    T(n), of at least T, with ``u(n, T(n)) <= n g``. It falls with n; an empty cell has
    none.

    Let both neighbors release the cell from T(n) on: that costs what the noise does.
    The one with the record releases it from T(n + v) on. Its noisy count must not be
    between the two: the exponent of that is ``x = u(n + v, T(n + v)) - u(n + v,
    T(n))``. It is at most v g; for every spread they are at most g together:

    - If n + v <= 1 and T(n) > T, then ``x <= (n + v) g - u(n, T(n)) = v g``.
    - If n < 1 < n + v and T(n) > T, let L(m) be u(m, T), and k the slope of log L at 1.
      L is log-concave, because the ratio of its slope to L falls with m. So ``u(n + v,
      T(n)) >= n g L(n + v) / L(n)``, and ``x <= g (exp(k (n + v - 1)) - n exp(k v))``.
      As exp is convex, that is at most ``g (1 - n)``, which is less than v g.
    - Else the thresholds are equal.

    Examples
    --------
    >>> round(StabilityHistogram(10.0, 1e-6).threshold, 2)
    48.53
    """

    stddev: float
    delta: float
    max_changed_cells: int = 1
    name = "gaussian_threshold"

    def __post_init__(self) -> None:
        freeze_fields(self)
        check_positive("stddev", self.stddev)
        if not 0 < self.delta <= 0.5:
            raise ValueError(
                f"delta={self.delta} must be in (0, 0.5] for a histogram over an "
                "unbounded domain"
            )
        if self.max_changed_cells < 1:
            raise ValueError(
                f"max_changed_cells={self.max_changed_cells} must be at least 1"
            )

    @property
    def threshold(self) -> float:
        """Smallest noisy count to release, in records."""
        # Noise is rounded to the grid: a count half a step below the threshold could be
        # rounded up to it. Secure noise has a slightly larger scale.
        margin = self._secure_stddev * quantile(self.delta, self.max_changed_cells)
        return 1 + margin + 0.5 / SCALE

    def find_threshold(self, count: float, is_secure: bool = False) -> float:
        """Smallest noisy count to release of a cell, by its exact count, in records.

        Below one record it is so high that a cell of v records passes with probability
        at most ``1 - (1 - delta)**v``; infinite for an empty cell.

        Examples
        --------
        >>> noise = StabilityHistogram(10.0, 1e-6)
        >>> [round(noise.find_threshold(count), 1) for count in (1, 0.5, 1e-4)]
        [48.5, 49.4, 63.6]
        """
        if count >= 1:
            return self.threshold
        if count <= 0:
            return math.inf
        # The scale of the noise itself: a larger one would not do.
        stddev = self._secure_stddev if is_secure else self.stddev
        margin = stddev * quantile(self.delta, self.max_changed_cells / count)
        return max(self.threshold, count + margin + 0.5 / SCALE)

    def check(self, sensitivity: Sensitivity) -> None:
        """Refuse too few cells for what neighbors change, and a scale out of range."""
        # A person's record may lie in many cells, and is one record in all of them.
        n_changed = sensitivity.l1 / SCALE
        if self.max_changed_cells < n_changed:
            raise ValueError(
                f"max_changed_cells={self.max_changed_cells} of the noise must be at "
                f"least {n_changed:g}: neighbors differ in as many counts"
            )
        self._noise.check(sensitivity)

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Cost of the Gaussian noise, and the threshold's delta."""
        # Cells of both neighbors: Gaussian. Cells of one only: released with at most
        # delta.
        return Cost(mu=self._noise.cost(sensitivity).mu, delta=self.delta)

    def details(self, sensitivity: Sensitivity) -> dict[str, float]:
        """Scale, sensitivity and threshold for the ledger, in records."""
        return {**self._noise.details(sensitivity), "threshold": self.threshold}

    def draw(
        self,
        values: "OccupiedCells | StreamedCells",
        streams: NoiseStreams,
        key: Key,
        sensitivity: Sensitivity,
    ) -> list["ReleasedCells"]:
        """Add noise to the counts of cells that occur, and select the large ones.

        Parameters
        ----------
        values : OccupiedCells or StreamedCells
        streams : NoiseStreams
            Streams of one replicate.
        key : tuple
        sensitivity : Sensitivity

        Returns
        -------
        list of one ReleasedCells
        """
        # Histogram by histogram and block by block, with the noise of one draw: one
        # histogram at a time is in memory.
        add_noise = self._noise.draw_blocks(streams, key)
        least = max(self.threshold, values.min_count) * SCALE
        cells = []
        large_counts = []
        for cells_at, counts in values.histograms():
            noisy = np.empty_like(counts)
            for block in make_slices(len(counts), BLOCK_CELLS):
                noisy[block] = add_noise(counts[block] * values.count_factor)
            # Names of cells are looked up after the selection, which drops most cells.
            passes = noisy >= least
            # Below the count of one record the threshold is higher.
            one_record = SCALE // values.count_factor
            for cell in np.flatnonzero(passes & (counts < one_record)):
                count = int(counts[cell]) / one_record
                own = self.find_threshold(count, streams.secure)
                passes[cell] = noisy[cell] >= own * SCALE
            selected = np.flatnonzero(passes)
            cells.append(cells_at(selected))
            large_counts.append(noisy[selected])
        return [ReleasedCells(np.concatenate(cells), np.concatenate(large_counts))]

    @property
    def _secure_stddev(self) -> float:
        """Standard deviation of secure noise, in records."""
        return float(Gaussian.secure_scale(self.stddev * SCALE)) / SCALE

    @property
    def _noise(self) -> Gaussian:
        return Gaussian(self.stddev * SCALE)


class OccupiedCells(NamedTuple):
    """Exact counts of the cells that occur: private.

    Attributes
    ----------
    cells : ndarray of shape (m, ...)
        The cells, in a public order that does not depend on that of the
        records.
    counts : ndarray of shape (m,), int64
        Positive.
    min_count : float, default=0
        A public threshold above that of the noise, in records.
    count_factor : int, default=2**16
        Factor that turns counts into units of 2**-16 records.
    """

    cells: np.ndarray
    counts: np.ndarray
    min_count: float = 0.0
    count_factor: int = SCALE

    def histograms(self) -> Iterator[tuple[CellsAt, np.ndarray]]:
        """Return all cells as one histogram; see :class:`StreamedCells`."""
        yield self.cells.__getitem__, np.asarray(self.counts, np.int64)


@dataclass(frozen=True)
class StreamedCells:
    """Exact counts of several histograms, which together may not fit memory: private.

    Attributes
    ----------
    histograms : callable
        Returns a new iterator over one or more histograms. Each is a function from
        indices or a slice of its cells to their names, and an array of counts. All
        together are as one :class:`OccupiedCells`.
    min_count : float, default=0
    count_factor : int, default=2**16
        As in :class:`OccupiedCells`.
    """

    histograms: Callable[[], Iterator[tuple[CellsAt, np.ndarray]]]
    min_count: float = 0.0
    count_factor: int = SCALE

    @property
    def cells(self) -> np.ndarray:
        """Names of all cells."""
        return np.concatenate(
            [cells_at(slice(None)) for cells_at, _ in self.histograms()]
        )

    @property
    def counts(self) -> np.ndarray:
        """Counts of all cells."""
        return np.concatenate([counts for _, counts in self.histograms()])


class ReleasedCells(NamedTuple):
    """Cells whose noisy counts passed the threshold, in the order of their names.

    Attributes
    ----------
    cells : ndarray of shape (b, ...)
    counts : ndarray of shape (b,), int64
        In units of 2**-16 records.
    """

    cells: np.ndarray
    counts: np.ndarray


def quantile(delta: float, n_variates: float = 1) -> float:
    """Quantile of the largest of ``n_variates`` normal ones: exceeded with delta.

    Examples
    --------
    >>> float(round(quantile(0.025), 6))
    1.959964
    """
    # Tail of one variate: one minus the n_variates-th root of 1 - delta, without
    # cancellation.
    tail = -math.expm1(math.log1p(-delta) / n_variates)
    return float(-ndtri_exp(math.log(tail)))
