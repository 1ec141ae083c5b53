"""Records clipped to balls around public centers, under rho-bounded adjacency."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pkm.compute.kernels.clipping import clip_norms
from pkm.compute.storage.points import make_slices
from pkm.privacy.base import View
from pkm.privacy.checks import are_different_indices, check_range
from pkm.privacy.grid import SCALE
from pkm.privacy.mechanisms.stability_histogram import OccupiedCells
from pkm.privacy.queries.sums import (
    GAUSSIAN_COUNTS,
    GAUSSIAN_SUMS,
    LARGE_COUNTS,
    ONE_COUNT,
    TWO_COUNTS,
    CountQuery,
    vector_sensitivity,
)
from pkm.privacy.query import RHO_BOUNDED, Answer, Query, Sensitivities

#: L2 norm of the change if one count falls by 1 and another rises by 1.
TWO_RECORDS = math.sqrt(2)
ONE_RECORD_FLAW = "F-17"  # id of the flaw of charging a move as one record
MAX_NORMAL = 1 << 20  # largest entry of a normal vector
BLOCK_ROWS = 1 << 16  # rows that are processed at a time


class ClippedRegions(View):
    """Clipped records in regions, which public hyperplanes split into cells.

    It is made by :meth:`pkm.privacy.rho_bounded.RhoBoundedCurator.regions`. A region
    has a center, and its records are differences from the center, clipped to a ball.

    Cells 0 .. m - 1 are the regions. A move takes a record from one cell to another, of
    the same or of another region. It is charged as the removal of one record and the
    addition of another. Each of these two records lies in one of disjoint cells.

    Its queries are :class:`RegionSizes`, :class:`LargeRegions`, :class:`RegionCounts`
    and :class:`RegionSums`.

    Parameters
    ----------
    curator : RhoBoundedCurator
        It charges and draws all releases. Records move by at most its ``max_shift``.
    rows : ndarray of shape (n, d), int32
        Private: the records, in grid steps.
    centers : ndarray of shape (m, d), int64
        Public: center of each region, in grid steps.
    cell : ndarray of shape (n,), int
        Private: the region of each record.
    radius : float
        Radius of the balls, in half-widths.
    charge_both : bool
        Whether a move is charged as two records, or as one (with a flaw).

    Attributes
    ----------
    n_cells : int
        Number of cells so far, those that were split included.
    n_features : int
    charge_both : bool
    sum_sensitivity : float
        L2 sensitivity of the sums of disjoint cells, in half-widths: see
        :func:`two_sums_sensitivity`, or the radius if a move is charged as one record.
    """

    def __init__(
        self,
        curator: Any,
        rows: np.ndarray,
        centers: np.ndarray,
        cell: np.ndarray,
        radius: float,
        *,
        charge_both: bool,
    ) -> None:
        super().__init__(curator)
        self._rows = rows
        self._centers = centers
        self._cell = np.array(cell, np.int64)
        self._region = np.arange(len(centers))  # region of each cell
        self.n_cells = len(centers)
        self.charge_both = charge_both
        self._radius = radius
        self.sum_sensitivity = radius
        if charge_both:
            self.sum_sensitivity = two_sums_sensitivity(
                radius, curator.max_shift, self.n_features
            )

    @cached_property
    def _points(self) -> np.ndarray:
        """Records minus their region's center, clipped, in grid steps."""
        # Computed when a query or a split needs them, block by block to bound memory.
        clipped = np.empty(self._rows.shape, np.int64)
        for block in make_slices(len(clipped), BLOCK_ROWS):
            centers = self._centers[self._region[self._cell[block]]]
            relative = self._rows[block] - centers
            clipped[block] = clip_norms(relative, self._radius * SCALE)
        return clipped

    def split(
        self, cells: Sequence[int] | np.ndarray, normal: np.ndarray
    ) -> np.ndarray:
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
            The two children of each cell; the second has the records on the side that
            the normal points to.
        """
        cells = np.asarray(cells, np.int64)
        check_range("normal", normal, -MAX_NORMAL, MAX_NORMAL)

        # Number the children: the i-th cell is split into n_cells + 2 i and n_cells + 2
        # i + 1.
        first_child = np.full(self.n_cells, -1, np.int64)
        first_child[cells] = self.n_cells + 2 * np.arange(len(cells))

        # Move the records of the cells to their child.
        target = first_child[self._cell]
        moving = np.flatnonzero(target >= 0)
        is_second = self._points[moving] @ np.asarray(normal, np.int64) >= 0
        self._cell[moving] = target[moving] + is_second

        # The cells that were split stay, empty; children belong to their region.
        self.n_cells += 2 * len(cells)
        new_regions = np.repeat(self._region[cells], 2)
        self._region = np.concatenate([self._region, new_regions])
        return first_child[cells][:, None] + [0, 1]

    def _counts(self) -> np.ndarray:
        return np.bincount(self._cell, minlength=self.n_cells)


def two_sums_sensitivity(
    radius: float,
    max_shift: float,
    n_features: int,
) -> float:
    """L2 sensitivity of sums of disjoint cells to a move, in half-widths.

    Examples
    --------
    >>> two_sums_sensitivity(1.0, 0.1, 2) == math.sqrt(2)
    True
    """
    # If a record moves from one cell to another, two sums change by at most the radius
    # each: sqrt(2) radius in L2. Inside a cell the sum changes as the record moves: by
    # at most ``max_shift`` and one grid step of rounding per coordinate, and at most
    # the diameter of the ball.
    rounding = math.sqrt(n_features) / SCALE
    inside = min(max_shift + rounding, 2 * radius)
    return max(TWO_RECORDS * radius, inside)


@dataclass(frozen=True, eq=False)
class RegionSizes(CountQuery):
    """Sizes of all cells, empty ones included: the regions, if none was split.

    Empty cells may be named, because centers and hyperplanes are public.

    Notes
    -----
    Its part is ``counts`` (n_cells,), int64, in units of 2**-16 records. A move changes
    at most two of them by one.
    """

    label = "region_sizes"
    mechanisms = GAUSSIAN_COUNTS
    view = ClippedRegions
    adjacencies = RHO_BOUNDED

    def sensitivity(self, source: ClippedRegions) -> Sensitivities:
        """A move changes two sizes by 1 each."""
        return {"counts": TWO_COUNTS}

    def count(self, source: ClippedRegions) -> np.ndarray:
        """Count the records of all cells."""
        return source._counts()


@dataclass(frozen=True, eq=False)
class LargeRegions(RegionSizes):
    """Cells with a large noisy size, and their sizes: regions, if none was split.

    Notes
    -----
    Its part is ``counts``, a :class:`ReleasedCells` of the cells' numbers. A move
    changes at most two sizes by one, and an occupied cell that is empty for the
    neighbor holds one record.
    """

    mechanisms = LARGE_COUNTS

    def exact(self, source: ClippedRegions) -> Answer:
        """The cells that are not empty."""
        # Empty cells are left out: the threshold hides which ones are occupied.
        counts = self.count(source)
        occupied = np.flatnonzero(counts)
        return {"counts": OccupiedCells(occupied, counts[occupied])}


class _RegionQuery(Query):
    """Base class of the queries on regions; a move may be charged as one record."""

    view = ClippedRegions
    adjacencies = RHO_BOUNDED

    def flaw(self, source: ClippedRegions) -> str:
        """The flaw of charging a move as one record."""
        return "" if source.charge_both else ONE_RECORD_FLAW


@dataclass(frozen=True, eq=False)
class RegionCounts(_RegionQuery, CountQuery):
    """Numbers of records in cells of the regions.

    Parameters
    ----------
    cells : ndarray of int
        Different cells; one that was split is empty. A release without cells is
        charged, too.

    Notes
    -----
    Its part is ``counts`` (len(cells),), int64, in units of 2**-16 records. A move
    changes two of them by one, in L2 by sqrt(2); with Laplace noise two releases are
    charged, one for each record.
    """

    label = "region_counts"

    cells: np.ndarray

    def check(self, source: ClippedRegions) -> None:
        """Refuse cells that do not exist or are named twice."""
        cells = self.cells.tolist()
        if not are_different_indices(cells, source.n_cells):
            raise ValueError(
                f"cells={cells} must be different and below {source.n_cells}"
            )

    def sensitivity(self, source: ClippedRegions) -> Sensitivities:
        """A move changes two counts by 1 each; one if it is charged as one record."""
        return {"counts": TWO_COUNTS if source.charge_both else ONE_COUNT}

    def n_changed_records(self, source: ClippedRegions) -> int:
        """Two: one record less in one cell, and one more in another."""
        return 2 if source.charge_both else 1

    def count(self, source: ClippedRegions) -> np.ndarray:
        """Count the records of the cells."""
        return source._counts()[self.cells]


@dataclass(frozen=True, eq=False)
class RegionSums(_RegionQuery):
    """Sums of the clipped records about their region's center, over groups of cells.

    Parameters
    ----------
    groups : ndarray of shape (n_cells,), int
        Public: the group that each cell belongs to, -1 for none. Cells of a group are
        disjoint and of one region.
    n_groups : int

    Notes
    -----
    Its part is ``sums`` (n_groups, d), int64, in grid steps. A move changes at most two
    of them, by :attr:`ClippedRegions.sum_sensitivity` in L2. That is the unit of the
    noise. So its scale is the noise multiplier, and the cost is known before the
    regions.
    """

    label = "region_sums"
    mechanisms = GAUSSIAN_SUMS

    groups: np.ndarray
    n_groups: int

    def check(self, source: ClippedRegions) -> None:
        """Refuse groups of too few cells, or of cells of different regions."""
        groups = self.groups
        if groups.shape != (source.n_cells,):
            raise ValueError(f"groups must have {source.n_cells} entries, one per cell")
        check_range("groups", groups, -1, self.n_groups - 1)

        # Records of two regions are relative to two centers: a move inside such a group
        # could change its sum by twice the radius.
        is_grouped = groups >= 0
        pairs = np.stack([groups[is_grouped], source._region[is_grouped]])
        if np.unique(pairs, axis=1).shape[1] > len(np.unique(pairs[0])):
            raise ValueError(
                "groups must not unite cells of different regions, whose records lie "
                "about different centers"
            )

    def sensitivity(self, source: ClippedRegions) -> Sensitivities:
        """Two sums; one sum by the radius if a move is charged as one record."""
        # In units of the L2 sensitivity, and twice d coordinates change at most.
        unit = source.sum_sensitivity * SCALE
        return {"sums": vector_sensitivity(1.0, 2 * source.n_features, unit)}

    def exact(self, source: ClippedRegions) -> Answer:
        """Exact sums."""
        sums = group_sums(source._points, self.groups[source._cell], self.n_groups)
        return {"sums": sums[None]}


def group_sums(
    rows: np.ndarray,
    groups: np.ndarray,
    n_groups: int,
) -> np.ndarray:
    """Exact sums of rows per group, (n_groups, d), int64, without group -1."""
    is_grouped = groups >= 0
    rows = rows[is_grouped]
    groups = groups[is_grouped]
    # Sums are integers below 2**53: exact in float64, in any order.
    columns = [
        np.bincount(groups, weights=column, minlength=n_groups) for column in rows.T
    ]
    return np.stack(columns, axis=1).astype(np.int64)
