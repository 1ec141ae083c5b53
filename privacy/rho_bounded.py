"""The curator under rho-bounded adjacency.

Neighbors differ in one record, which is moved by at most rho. Sensitivities are derived
query by query, in :mod:`pkm.privacy.queries.moved_records` and
:mod:`pkm.privacy.queries.clipped_regions`. A sum of the records changes by at most rho.
Counts of the records in cells change as if one record were removed and another added,
however short the move, because it may cross the border of a cell. If records are
grouped by released data, a move does not change the group of the record.
"""

import numpy as np

from pkm.compute.kernels.clipping import clip_norms
from pkm.compute.kernels.nearest import nearest_of_many
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
    BLOCK_ROWS,
    AllPoints,
    GroupSums,
    QuadtreeCounts,
    SoftCounts,
    Total,
)
from pkm.privacy.queries.numbered_records import NumberedRecords

MAX_CENTER = 1 << 40  # grid steps; differences from such centers are exact


class RhoBoundedCurator(NumberedRecords):
    """Curator of one replicate for neighbors that differ by the move of one record.

    Its parameters are those of :class:`NumberedRecords`.

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
            Released or public, in grid steps.
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
        check_range("centers", centers, -MAX_CENTER, MAX_CENTER, ", in grid steps")
        check_grid_integers("centers", centers, ("m", self.n_features))
        if not len(centers):
            raise ValueError(f"centers={centers} must be at least one: give a center")
        check_positive("radius", radius)

        # Assign records to regions, by released data or by the nearest center: either
        # way a record's region does not depend on the other records.
        rows = self._rows
        if groups is not None:
            self.check_groups(groups, len(centers))
            rows = rows[groups >= 0]
            region = groups[groups >= 0]
        else:
            if members is not None:
                self.check_members(members)
                rows = rows[members]
            region = nearest_of_many(rows, centers)[0]

        # Called once, and only if a query needs the clipped records.
        def clip() -> np.ndarray:
            # Records relative to their center, block by block to bound memory.
            clipped = np.empty(rows.shape, np.int64)
            for start in range(0, len(rows), BLOCK_ROWS):
                block = slice(start, start + BLOCK_ROWS)
                relative = rows[block] - centers[region[block]]
                clipped[block] = clip_norms(relative, radius * SCALE)
            return clipped

        return ClippedRegions(
            self, clip, region, len(centers), radius, charge_both=charge_both
        )
