"""Stability histograms: counts over an unbounded domain, released above a threshold.

Which cells occur is private: empty cells are never released, and a cell of one record
passes the threshold with a small probability only. Source: Korolova, Kenthapadi,
Mishra, Ntoulas 2009; with Gaussian noise as in Wilkins, Kifer, Zhang, Karrer 2024.
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
        Probability that a cell that occurs for one neighbor only is released; in (0,
        1).
    max_changed_cells : int, default=1
        Largest number of cells in which neighbors can differ, over all histograms that
        are released together.

    Attributes
    ----------
    threshold : float
        Smallest noisy count to release, in records: ``1 + stddev * q``, where all of
        ``max_changed_cells`` standard normal variates stay below q with probability
        ``1 - delta``. A cell that occurs for one neighbor only holds one record there.

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
        if not 0 < self.delta < 1:
            raise ValueError(
                f"delta={self.delta} must be in (0, 1) for a histogram over an "
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
        stddev = float(Gaussian.secure_scale(self.stddev * SCALE)) / SCALE
        return 1 + stddev * quantile(self.delta, self.max_changed_cells) + 0.5 / SCALE

    def check(self, sensitivity: Sensitivity) -> None:
        """Refuse too few cells for what neighbors change, and a scale out of range."""
        if self.max_changed_cells < sensitivity.l0:
            raise ValueError(
                f"max_changed_cells={self.max_changed_cells} of the noise must be at "
                f"least {sensitivity.l0:g}: neighbors differ in as many counts"
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
        # Chunk by chunk and block by block, with the noise of one draw: one chunk at a
        # time is in memory.
        add_noise = self._noise.draw_chunks(streams, key)
        least = max(self.threshold, values.min_count) * SCALE
        cells = []
        large_counts = []
        for cells_at, counts in values.chunks():
            noisy = np.empty_like(counts)
            for block in make_slices(len(counts), BLOCK_CELLS):
                noisy[block] = add_noise(counts[block] * SCALE)
            # Names are looked up after the selection: most cells are never named.
            selected = np.flatnonzero(noisy >= least)
            cells.append(cells_at(selected))
            large_counts.append(noisy[selected])
        return [ReleasedCells(np.concatenate(cells), np.concatenate(large_counts))]

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
        Positive, in records.
    min_count : float, default=0
        A public threshold above that of the noise, in records.
    """

    cells: np.ndarray
    counts: np.ndarray
    min_count: float = 0.0

    def chunks(self) -> Iterator[tuple[CellsAt, np.ndarray]]:
        """Return all cells as one chunk; see :attr:`StreamedCells.chunks`."""
        yield self.cells.__getitem__, np.asarray(self.counts, np.int64)


@dataclass(frozen=True)
class StreamedCells:
    """Exact counts of more cells than fit memory, chunk by chunk: private.

    Attributes
    ----------
    chunks : callable
        Returns a new iterator over one or more chunks: a function from indices or a
        slice of the chunk's cells to their names, and the counts. Concatenated they are
        those of :class:`OccupiedCells`.
    min_count : float, default=0
        As in :class:`OccupiedCells`.
    """

    chunks: Callable[[], Iterator[tuple[CellsAt, np.ndarray]]]
    min_count: float = 0.0

    @property
    def cells(self) -> np.ndarray:
        """Names of all cells."""
        return np.concatenate([cells_at(slice(None)) for cells_at, _ in self.chunks()])

    @property
    def counts(self) -> np.ndarray:
        """Counts of all cells."""
        return np.concatenate([counts for _, counts in self.chunks()])


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


def quantile(delta: float, n_variates: int = 1) -> float:
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
