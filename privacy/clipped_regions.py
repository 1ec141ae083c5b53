"""Records clipped to balls around public centers, under rho-bounded adjacency."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from pkm.privacy.grid import SCALE
from pkm.privacy.ledger import ChargeRelease, StreamKey
from pkm.privacy.mechanisms import Gaussian, Laplace
from pkm.privacy.noise import NoiseStreams
from pkm.privacy.query import Sensitivity
from pkm.privacy.stability_histogram import StabilityHistogram

#: L2 norm of the change if one count decreases and another increases by 1.
TWO_RECORDS = math.sqrt(2)
UNCHARGED = "F-17"  # the flaw of charging a move as one record
MAX_NORMAL = 1 << 20  # largest entry of a normal vector


class ClippedRegions:
    """Clipped records in regions, which public hyperplanes split into cells.

    Made by :meth:`pkm.privacy.rho_bounded.RhoBoundedCurator.regions`.

    Cells 0 .. m - 1 are the regions. A move takes a record out of one cell and puts it into
    another, of the same region or of another one: it is charged as the removal of one record and
    the addition of another. Given earlier answers, each of these two records lies in one of any
    disjoint cells.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64
        Private: clipped records about their region's center, in grid steps.
    cell : ndarray of shape (n,), int
        Private: the region of each record.
    n_cells : int
        Number of regions.
    radius : float
        Of the balls, in half-widths.
    max_shift : float
        Largest move of a record, in half-widths.
    charge_both : bool
        Whether a move is charged as two records, or as one (with a flaw).
    streams : NoiseStreams
        Of one replicate.
    charge : callable
        Charges a release and returns its stream key.

    Attributes
    ----------
    n_cells : int
        Cells so far, those that were split included.
    sum_sensitivity : float
        L2 sensitivity of the sums of disjoint cells, in half-widths. Between two cells, one sum
        loses and another gains at most the radius: sqrt(2) radius. Inside a cell the sum moves with
        the record: by at most ``max_shift`` and a grid step of rounding per coordinate, or across
        the ball.
    """

    def __init__(
        self,
        points: np.ndarray,
        cell: np.ndarray,
        n_cells: int,
        radius: float,
        max_shift: float,
        charge_both: bool,
        streams: NoiseStreams,
        charge: ChargeRelease,
    ) -> None:
        self._points = points
        self._cell = cell
        self._charge_both = charge_both
        self._region = np.arange(n_cells)  # of each cell
        self._streams = streams
        self._charge = charge
        self.n_cells = n_cells
        inside = min(max_shift + math.sqrt(points.shape[1]) / SCALE, 2 * radius)
        self.sum_sensitivity = max(TWO_RECORDS * radius, inside) if charge_both else radius

    def sizes(self, noise: StabilityHistogram | Gaussian) -> tuple[np.ndarray, np.ndarray]:
        """Noisy sizes of regions in records, before any split.

        Parameters
        ----------
        noise : StabilityHistogram or Gaussian
            StabilityHistogram: only large sizes are released, and ``cells`` of the noise must be 2.
            Gaussian: the sizes of all regions are released, empty ones included; their names are
            public, for their centers are.

        Returns
        -------
        cells : ndarray of int64
            The regions whose sizes are released.
        noisy : ndarray of float64
            In records; those of Gaussian noise may be negative.

        Notes
        -----
        A move changes at most two sizes by one: L2 sensitivity sqrt(2).
        """
        if isinstance(noise, Gaussian):
            details = {"count_scale": noise.scale / SCALE, "count_sensitivity": TWO_RECORDS}
            mu = TWO_RECORDS * SCALE / noise.scale
            key = self._charge("region_sizes", noise.name, mu=mu, details=details)
            exact = self._counts() * SCALE
            noisy = noise.draw(exact[None], self._streams, key)[0] / SCALE
            return np.arange(self.n_cells), noisy

        if noise.cells < 2:
            raise ValueError(
                f"cells={noise.cells} of the noise must be at least 2: a move changes two sizes"
            )
        details = {
            "count_scale": noise.stddev,
            "count_sensitivity": TWO_RECORDS,
            "least": noise.threshold,
        }
        mu = TWO_RECORDS / noise.stddev
        key = self._charge(
            "region_sizes", "gaussian_threshold", mu=mu, delta=noise.delta, details=details
        )
        exact = self._counts()
        present = np.flatnonzero(exact)  # empty regions are never released
        selected, noisy = noise.release(exact[present], self._streams, key)
        return present[selected], noisy

    def counts(self, cells: Sequence[int] | np.ndarray, noise: Gaussian | Laplace) -> np.ndarray:
        """Noisy numbers of records.

        Parameters
        ----------
        cells : sequence of int
            Different cells that are not split; may be empty, the release is charged all the same.
        noise : Gaussian or Laplace

        Returns
        -------
        ndarray of shape (len(cells),), float64
            In records.

        Notes
        -----
        Two of the counts change by one: mu is sqrt(2) over the scale; with Laplace noise two
        releases are charged.
        """
        cells = np.asarray(cells, np.int64)
        are_different = len(np.unique(cells)) == len(cells)
        if not are_different or cells.min(initial=0) < 0 or cells.max(initial=-1) >= self.n_cells:
            raise ValueError(f"cells={cells.tolist()} must be different and below {self.n_cells}")
        key = self._charge_counts(noise)
        exact = self._counts()[cells] * SCALE
        return noise.draw(exact[None], self._streams, key)[0] / SCALE

    def _charge_counts(self, noise: Gaussian | Laplace) -> StreamKey:
        """Charge a release of counts and return its stream key; a move may cost two charges."""
        flaw = "" if self._charge_both else UNCHARGED
        details = {"count_scale": noise.scale / SCALE, "count_sensitivity": 1.0}
        epsilon = SCALE / noise.scale
        if isinstance(noise, Gaussian):
            sensitivity = TWO_RECORDS if self._charge_both else 1.0
            details["count_sensitivity"] = sensitivity
            mu = SCALE / noise.scale * sensitivity
            return self._charge("region_counts", noise.name, mu=mu, details=details, flaw=flaw)
        key = self._charge("region_counts", noise.name, epsilon=epsilon, details=details, flaw=flaw)
        if self._charge_both:
            self._charge(
                "region_counts_second_record", noise.name, epsilon=epsilon, details=details
            )
        return key

    def split(self, cells: Sequence[int] | np.ndarray, normal: np.ndarray) -> np.ndarray:
        """Split cells by a public hyperplane through their region's center.

        Parameters
        ----------
        cells : sequence of int
            Different cells that are not split.
        normal : ndarray of shape (d,), int64
            Entries of at most 2**20 in size, so that products are exact.

        Returns
        -------
        ndarray of shape (len(cells), 2), int64
            The two parts of each; records on the side that the normal points to are in the second.
        """
        cells = np.asarray(cells, np.int64)
        largest = np.abs(normal).max(initial=0)
        if largest > MAX_NORMAL:
            raise ValueError(f"normal must have entries of at most {MAX_NORMAL}, got {largest}")

        # Number the parts: the i-th cell is split into n_cells + 2 i and n_cells + 2 i + 1.
        first_part = np.full(self.n_cells, -1, np.int64)
        first_part[cells] = self.n_cells + 2 * np.arange(len(cells))

        # Move the records of the cells to their part.
        target = first_part[self._cell]
        moving = np.flatnonzero(target >= 0)
        is_second = self._points[moving] @ np.asarray(normal, np.int64) >= 0
        self._cell[moving] = target[moving] + is_second

        self.n_cells += 2 * len(cells)
        new_regions = np.repeat(self._region[cells], 2)
        self._region = np.concatenate([self._region, new_regions])
        return first_part[cells][:, None] + [0, 1]

    def sums(self, groups: ArrayLike, n_groups: int, multiplier: float) -> np.ndarray:
        """Noisy sums of the clipped records about their region's center, over groups of cells.

        Parameters
        ----------
        groups : ndarray of shape (n_cells,), int
            Public: the group that each cell belongs to, -1 for none.
        n_groups : int
        multiplier : float
            Standard deviation of the Gaussian noise per unit of :attr:`sum_sensitivity`.

        Returns
        -------
        ndarray of shape (n_groups, d), int64
            In grid steps.
        """
        groups = np.asarray(groups)
        is_in_range = groups.min(initial=-1) >= -1 and groups.max(initial=-1) < n_groups
        if groups.shape != (self.n_cells,) or not is_in_range:
            raise ValueError(f"groups must have {self.n_cells} entries from -1 to {n_groups - 1}")

        # In a group about two centers, a move could change the sum by twice the radius.
        is_grouped = groups >= 0
        group_and_region = np.stack([groups[is_grouped], self._region[is_grouped]])
        n_pairs = np.unique(group_and_region, axis=1).shape[1]
        if n_pairs > len(np.unique(groups[is_grouped])):
            raise ValueError(
                "groups must not unite cells of different regions, whose records lie about "
                "different centers"
            )

        # The cost is known before the regions are: the multiplier alone.
        noise = Gaussian(multiplier)
        key = self._charge(
            "region_sums",
            noise.name,
            mu=1 / multiplier,
            details={"multiplier": multiplier},
            flaw="" if self._charge_both else UNCHARGED,
        )
        exact = group_sums(self._points, groups[self._cell], n_groups)
        unit = self.sum_sensitivity * SCALE
        return noise.draw(exact[None], self._streams, key, Sensitivity(0.0, 0.0, unit=unit))[0]

    def _counts(self) -> np.ndarray:
        return np.bincount(self._cell, minlength=self.n_cells)


def group_sums(rows: np.ndarray, groups: np.ndarray, n_groups: int) -> np.ndarray:
    """Exact sums of integer rows per group, (n_groups, d), int64; group -1 is left out."""
    is_grouped = groups >= 0
    rows = rows[is_grouped]
    groups = groups[is_grouped]
    # Integers below 2**53: their float64 sums are exact in any order.
    columns = [np.bincount(groups, weights=column, minlength=n_groups) for column in rows.T]
    return np.stack(columns, axis=1).astype(np.int64)
