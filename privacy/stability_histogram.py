"""Counts of the cells of an unbounded domain: only large noisy counts are released.

Which cells occur is private: empty cells are never released, and a cell of one record passes the
threshold with small probability only. Source: Korolova, Kenthapadi, Mishra, Ntoulas 2009; with
Gaussian noise as in Wilkins, Kifer, Zhang, Karrer 2024.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri_exp

from pkm.privacy.grid import SCALE
from pkm.privacy.mechanisms import Gaussian
from pkm.privacy.noise import Key, NoiseStreams


@dataclass(frozen=True)
class StabilityHistogram:
    """Gaussian noise on the counts of the cells that occur, and a threshold for their release.

    Parameters
    ----------
    stddev : float
        Standard deviation of the noise, in records.
    delta : float
        Probability that a cell which occurs for one neighbor only is released; in (0, 1).
    cells : int, default=1
        Largest number of cells in which neighbors can differ, over all histograms that are released
        together.

    Attributes
    ----------
    threshold : float
        Smallest noisy count to release, in records: ``1 + stddev * q``, where all of ``cells``
        standard normal variates stay below q with probability ``1 - delta``. A cell that occurs for
        one neighbor only holds one record there.

    Examples
    --------
    >>> round(StabilityHistogram(10.0, 1e-6).threshold, 2)
    48.53
    """

    stddev: float
    delta: float
    cells: int = 1

    def __post_init__(self) -> None:
        if not (self.stddev > 0 and math.isfinite(self.stddev)):
            raise ValueError(f"stddev={self.stddev} must be positive and finite")
        if not 0 < self.delta < 1:
            raise ValueError(
                f"delta={self.delta} must be in (0, 1) for a histogram over an unbounded domain"
            )
        if self.cells < 1:
            raise ValueError(f"cells={self.cells} must be at least 1")

    @property
    def threshold(self) -> float:
        """Smallest noisy count to release, in records."""
        # Noise is rounded to the grid: half a step below, a count could be rounded up to the
        # threshold.
        return 1 + self.stddev * quantile(self.delta, self.cells) + 0.5 / SCALE

    def release(
        self,
        counts: np.ndarray,
        streams: NoiseStreams,
        key: Key,
        min_count: float = 0.0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Add noise to the exact counts of cells that occur and select the large ones.

        Parameters
        ----------
        counts : ndarray of shape (m,), int64
            Positive, in records, in a public order that does not depend on that of the records.
        streams : NoiseStreams
            Of one replicate.
        key : tuple
            Of a release that has been charged.
        min_count : float, default=0
            A higher public threshold, in records.

        Returns
        -------
        selected : ndarray of int64
            Indices of the cells whose counts are released.
        noisy : ndarray of float64
            Their noisy counts, in records.
        """
        noise = Gaussian(self.stddev * SCALE)
        exact = np.asarray(counts, np.int64)[None] * SCALE
        noisy = noise.add(exact, streams, key)[0] / SCALE
        selected = np.flatnonzero(noisy >= max(self.threshold, min_count))
        return selected, noisy[selected]


def quantile(delta: float, cells: int = 1) -> float:
    """Quantile that the largest of ``cells`` standard normal variates exceeds with ``delta``.

    Examples
    --------
    >>> float(round(quantile(0.025), 6))
    1.959964
    """
    # One minus the cells-th root of 1 - delta, without cancellation.
    tail = -math.expm1(math.log1p(-delta) / cells)
    return float(-ndtri_exp(math.log(tail)))
