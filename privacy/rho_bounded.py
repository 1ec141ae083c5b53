"""The curator under rho-bounded adjacency.

Neighbors differ in one record, which is moved by at most rho. Sensitivities are derived
query by query, in :mod:`pkm.privacy.queries.moved_records` and
:mod:`pkm.privacy.queries.clipped_regions`. A sum of the records changes by at most rho.
Counts of the records in cells change as if one record were removed and another added,
however short the move, because it may cross the border of a cell. If records are
grouped by released data, a move does not change the group of the record.

Records have no public order. They are released sorted by their noisy values, and later
queries name them by their position in the release. Noise is drawn independently for
each record. So sorting is post-processing of a release in which records have public
numbers.
"""

import math

import numpy as np

from pkm.compute import exact_limit
from pkm.compute.kernels.nearest import nearest_of_many
from pkm.compute.kernels.quadtree import ShiftedRows, find_span, lexicographic_order
from pkm.privacy.base import BaseCurator
from pkm.privacy.budget import Adjacency
from pkm.privacy.checks import check_grid_integers, check_positive, check_range
from pkm.privacy.grid import SCALE
from pkm.privacy.queries.clipped_regions import (
    ClippedRegions,
    LargeRegions,
    RegionCounts,
    RegionSizes,
    RegionSums,
)
from pkm.privacy.queries.moved_records import (
    AllPoints,
    GroupSums,
    QuadtreeCounts,
    SoftCounts,
    Total,
)


class RhoBoundedCurator(BaseCurator):
    """Curator of one replicate for neighbors that differ by the move of one record.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64, or Points, or a sequence of either
        Private points on the grid, whole or in shards; answers depend neither on their
        order nor on the shards.
    ledger : Ledger
        Its budget must be one under ``rho_bounded``; rho is in half-widths of the
        domain.
    streams : NoiseStreams
        Streams of one replicate.
    domain : array-like of shape (2, d), optional
        Public bounds, in the units of the data, that the grid represents. Default: -1
        and 1.

    Attributes
    ----------
    n_points, n_features, n_replicates : int
        Public: neighbors have the same number of points.
    public_seeds : tuple of int
    domain : ndarray of shape (2, d), float64
    max_shift : float
        Largest move of a grid point, in half-widths. If a point moves by rho before it
        is rounded to the grid, it moves by at most rho + sqrt(d) grid steps after, and
        by at most the diagonal of the domain.

    Raises
    ------
    ValueError
        If the ledger has another adjacency, rho exceeds the domain's diagonal 2
        sqrt(d), a point lies off the domain, or there is more than one replicate.

    Examples
    --------
    >>> from pkm.privacy import Budget, Ledger, NoiseStreams
    >>> from pkm.privacy.queries.moved_records import SortedGaussian
    >>> ledger = Ledger(Budget(1.0, 1e-6, "rho_bounded", rho=0.25))
    >>> points = np.zeros((3, 2), np.int64)
    >>> curator = RhoBoundedCurator(points, ledger, NoiseStreams([0]))
    >>> answer = curator.release(AllPoints(), points=SortedGaussian(2.0 * SCALE))
    >>> answer["points"].shape, len(ledger.charges)
    ((1, 3, 2), 1)
    """

    adjacencies = (Adjacency.RHO_BOUNDED,)
    needs_ledger = True
    serves = (
        AllPoints,
        Total,
        GroupSums,
        QuadtreeCounts,
        SoftCounts,
        RegionSizes,
        LargeRegions,
        RegionCounts,
        RegionSums,
    )

    def _set_up(self) -> None:
        self.check_single("a curator")
        ledger = self._ledger
        assert ledger is not None and ledger.budget.rho is not None  # checked before
        self.max_shift = largest_shift(ledger.budget.rho, self.n_features)

        # Sort the records, so that seeded noise does not depend on their given order.
        shards = [shard.rows for shard in self._shards]
        # The float32 coordinates are integers: this cast changes none.
        rows = np.concatenate(shards, dtype=np.int32, casting="unsafe")
        shifted = ShiftedRows(
            rows, find_span(rows), np.zeros(self.n_features, np.int64)
        )
        order, _ = lexicographic_order(shifted, np.arange(len(rows)))
        self._rows = rows.take(order, axis=0)
        self._released = False

    def number_records(self, order: np.ndarray) -> None:
        """Reorder the records as they were released: queries name them by position."""
        self._rows = self._rows.take(order, axis=0)
        self._released = True

    def check_groups(
        self,
        groups: np.ndarray,
        n_groups: int,
    ) -> None:
        """Refuse groups of records that are not numbers from -1 to n_groups - 1."""
        self._check_records("groups", groups, np.integer, "integers")
        check_range("groups", groups, -1, n_groups - 1)

    def check_members(self, members: np.ndarray) -> None:
        """Refuse a mask of members that is not one bool for each released record."""
        self._check_records("members", members, np.bool_, "bools")

    def _check_records(
        self, name: str, values: np.ndarray, dtype: type, dtype_name: str
    ) -> None:
        """Refuse an array that does not have one value per released record."""
        # Before the release the order of the records is private: no query may use it.
        if not self._released:
            raise ValueError(f"{name} name released records; release AllPoints first")
        fits = np.issubdtype(values.dtype, dtype)
        if values.shape != (self.n_points,) or not fits:
            raise ValueError(
                f"{name} must be {self.n_points} {dtype_name}, got {values.dtype} of "
                f"shape {values.shape}"
            )

    def regions(
        self,
        centers: np.ndarray,
        radius: float,
        *,
        groups: np.ndarray | None = None,
        members: np.ndarray | None = None,
        charge_both: bool = True,
    ) -> ClippedRegions:
        """Assign records to regions around public centers, and clip them to balls.

        Parameters
        ----------
        centers : ndarray of shape (m, d), int64
            Released or public, in grid steps, at most
            :func:`~pkm.compute.exact_limit` in size.
        radius : float
            Radius of the balls, in half-widths.
        groups : ndarray of shape (n,), int, optional
            Region of each released record, -1 for none. Default: the center nearest to
            the *true* point, so that a move may change the region.
        members : ndarray of shape (n,), bool, optional
            Released records to assign, if regions follow from true points. Default:
            all.
        charge_both : bool, default=True
            Charge a move as two records. False charges one, as under add-remove
            adjacency; the charges are then marked with the flaw.

        Returns
        -------
        ClippedRegions
        """
        centers = np.asarray(centers)
        limit = exact_limit(self.n_features)
        check_range("centers", centers, -limit, limit, ", in grid steps")
        check_grid_integers("centers", centers, ("m", self.n_features))
        if not len(centers):
            raise ValueError(f"centers={centers} must be at least one: give a center")
        check_positive("radius", radius)

        # Assign records to regions, by released data or by the nearest center: either
        # way a record's region does not depend on the other records.
        if groups is not None:
            self.check_groups(groups, len(centers))
            rows = self._rows[groups >= 0]
            region = groups[groups >= 0]
        else:
            if members is not None:
                self.check_members(members)
            rows = self._rows if members is None else self._rows[members]
            region = nearest_of_many(rows, centers)[0]
        return ClippedRegions(
            self, rows, centers, region, radius, charge_both=charge_both
        )


def largest_shift(rho: float, n_features: int) -> float:
    """Largest move between grid points of a record that moves by at most rho.

    Raises
    ------
    ValueError
        If rho is above the diagonal of the domain.

    Examples
    --------
    >>> largest_shift(0.25, 4) * SCALE
    16386.0
    """
    largest = diagonal(n_features)
    if rho > largest:
        raise ValueError(
            f"rho={rho} must be at most the diagonal {largest:.6g} of the domain, in "
            "half-widths: no point can move farther, that would be replace_one"
        )
    # Rounding moves each coordinate of either position by at most half a grid step.
    return min(rho + math.sqrt(n_features) / SCALE, largest)


def diagonal(n_features: int) -> float:
    """Diagonal of the domain [-1, 1]^d, in half-widths.

    No point moves farther: moves up to it are arbitrary replacements of a record.

    Examples
    --------
    >>> diagonal(4)
    4.0
    """
    return 2 * math.sqrt(n_features)
