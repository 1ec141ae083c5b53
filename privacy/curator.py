"""The central curator and its views of the points.

For every query the curator charges the ledger, computes the exact answer, adds noise,
and returns integers on the grid. Exact answers are returned only to methods that claim
no privacy.
"""

from functools import partial

import numpy as np

from pkm.compute import (
    SCALE,
    Points,
    Symlog,
    digitize,
    hyperplane_sides,
    middle_and_half_width,
)
from pkm.compute.storage.blocks import Blocks, Shards
from pkm.compute.storage.dask_points import DaskPoints
from pkm.compute.storage.grid_file import GridFile
from pkm.privacy.base import BaseCurator, DisclosureError
from pkm.privacy.checks import check_type
from pkm.privacy.queries.clipped_points import ClippedPoints
from pkm.privacy.queries.clipped_queries import (
    BucketCounts,
    BucketSums,
    CandidateSets,
    NearestCounts,
    NearestShells,
    NearestSumsAndCounts,
    SecondMoments,
    Swaps,
)
from pkm.privacy.queries.marginals import DependentColumns, Marginals, WorstApproximated
from pkm.privacy.queries.projection import (
    CoverPicks,
    ProjectedCounts,
    ProjectedPoints,
    ProjectedSumsAndCounts,
)
from pkm.privacy.queries.shells import ClippedSum, ShellCounts, SideCounts
from pkm.privacy.queries.summary import ClusterSummary
from pkm.privacy.queries.sums import (
    CountsAndBoundedSums,
    GapPercentile,
    GridCounts,
    RecordCount,
    SumsAndCounts,
)
from pkm.privacy.queries.tree import (
    BoxGrid,
    CellCounts,
    CellSums,
    PartitionTree,
    Splits,
)
from pkm.privacy.query import ONE_RECORD_ADJACENCIES


class Curator(BaseCurator):
    """Central curator for a batch of replicates.

    Neighbors differ in the presence of a record, and n is public (zero-out adjacency)
    or released (add-remove).

    Parameters
    ----------
    points : ndarray of shape (n, d), int64, or Points, or a sequence of either
        Private points on the grid, whole or in shards; answers do not depend on the
        shards.
    ledger : Ledger or None
        None for methods that claim no privacy; only these get exact answers.
    streams : NoiseStreams
        Noise streams of all replicates.
    domain : array-like of shape (2, d), optional
        Public bounds, in the units of the data, that the grid represents. Default: -1
        and 1.

    Attributes
    ----------
    n_points, n_features, n_replicates : int
        Public. Under add-remove adjacency ``n_points`` is the released number of
        records, and secret before the release.
    public_seeds : tuple of int
        One per replicate, for public randomness; the seeds of the noise are different.
    domain : ndarray of shape (2, d), float64

    Raises
    ------
    ValueError
        If a point lies outside the domain, shards differ in width, or the ledger has
        another adjacency.
    """

    adjacencies = ONE_RECORD_ADJACENCIES
    serves = (
        SumsAndCounts,
        CountsAndBoundedSums,
        GridCounts,
        RecordCount,
        GapPercentile,
        ShellCounts,
        SideCounts,
        ClippedSum,
        Marginals,
        DependentColumns,
        WorstApproximated,
        CellCounts,
        CellSums,
        Splits,
        BucketCounts,
        BucketSums,
        NearestCounts,
        NearestShells,
        NearestSumsAndCounts,
        SecondMoments,
        Swaps,
        CandidateSets,
        CoverPicks,
        ProjectedCounts,
        ProjectedSumsAndCounts,
        ClusterSummary,
    )

    def rescale(
        self, center: np.ndarray, half_width: float, scale: Symlog
    ) -> "Curator":
        """Return a curator of the points in a smaller domain, with the same ledger.

        Nothing is released: the points are quantized again, on the grid of the domain.

        Parameters
        ----------
        center : ndarray of shape (d,), float64
            Center of the new domain, released or public, in half-widths of this one.
        half_width : float
            Half-width of the new domain in every feature, in half-widths of this one.
        scale : Symlog
            Where points outside the domain are on its grid. By norm, all points are
            then in a ball.

        Returns
        -------
        Curator

        Examples
        --------
        >>> from pkm.privacy import NoiseStreams
        >>> curator = Curator(np.array([[600], [700]]), None, NoiseStreams([0]))
        >>> clipped = Symlog(50.0, 0.0, by_norm=False)
        >>> inner = curator.rescale(np.array([0.0]), 0.02, clipped)
        >>> inner.domain.ravel().tolist(), inner.disclose().ravel().tolist()
        ([-0.02, 0.02], [30000.0, 35000.0])
        """
        middle, half_widths = middle_and_half_width(*self.domain)
        # The new domain in the units of the data, for the released results.
        domain = middle + half_widths * np.array(
            [center - half_width, center + half_width]
        )
        rescale = partial(
            Points.rescale, center=center, half_width=half_width, scale=scale
        )
        inner = self._with_points(self._shards.map(rescale).persist(), domain)
        inner.scale = scale
        # The scale divides by the image of the largest norm.
        if scale.by_norm:
            inner.radius = 1.0
        # Points in memory are copies of this run's own, which it may rewrite.
        inner.is_zoomed = isinstance(inner._shards, Shards)
        return inner

    def with_bounds(self, bounds: np.ndarray) -> "Curator":
        """Return a curator of the points in other bounds, with the same ledger.

        Nothing is released: the rows behind the points are quantized again.

        Parameters
        ----------
        bounds : ndarray of shape (2, d), float64
            Released or public, in the units of the data.

        Raises
        ------
        TypeError
            If the points are on the grid already.
        """
        is_in_memory = isinstance(self._shards, Shards)
        rows = getattr(self._shards, "rows", None)
        if is_in_memory or isinstance(rows, GridFile):
            raise TypeError("points on a grid have its bounds: give rows to fit")
        # A copy: whoever holds the array of bounds could change the domain.
        return self._with_points(self._shards.with_bounds(*bounds), bounds.copy())

    def _with_points(
        self,
        shards: Shards | Blocks | DaskPoints,
        domain: np.ndarray,
    ) -> "Curator":
        """Return a curator of the same points in another form."""
        other = type(self)(shards, self._ledger, self._streams, domain)
        # It may be a released number.
        other._n_points = self._n_points
        # One count of rounds for both: they share the ledger and the noise streams.
        other._rounds = self._rounds
        return other

    def persist_points(self) -> None:
        """Quantize points once, not in every pass, if their rows are in memory."""
        self._shards = self._shards.persist()

    def whole(self) -> PartitionTree:
        """Return a tree of one cell with all points, which cannot be split."""
        return PartitionTree(self)

    def partition(self, grid: BoxGrid) -> PartitionTree:
        """Return a tree over the points, to be split on a public grid.

        See :class:`pkm.privacy.queries.tree.PartitionTree` for the queries on its
        cells.
        """
        check_type("grid", grid, BoxGrid)
        # A point's code in a feature is the number of its bin.
        code = partial(digitize, thresholds=grid.thresholds)
        return PartitionTree(self, code, self.n_features, grid)

    def hyperplanes(
        self,
        normals: np.ndarray,
        origin: np.ndarray,
    ) -> PartitionTree:
        """Return a tree over the points, to be split by public hyperplanes.

        Parameters
        ----------
        normals : ndarray of shape (m, d), int64
            Entries of at most 2**20 in size.
        origin : ndarray of shape (d,), int64
            Released or public point of the domain that all hyperplanes contain, in grid
            steps.

        Returns
        -------
        PartitionTree
            To be split by feature 0 .. m - 1; points on the side that the normal points
            to go to the second part.
        """
        # A point's code for a hyperplane is 0 or 1, its side.
        code = partial(hyperplane_sides, normals=normals, origin=origin)
        return PartitionTree(self, code, len(normals))

    def projection(
        self,
        matrix: np.ndarray,
        length: float,
    ) -> ProjectedPoints:
        """Project the points by a public matrix into the unit ball.

        Parameters
        ----------
        matrix : ndarray of shape (m, d), int64
            Small enough that products are exact.
        length : float
            Projected points are divided by it and clipped to the unit ball.

        Returns
        -------
        ProjectedPoints
            With the queries on them.
        """
        return ProjectedPoints(self, matrix, length)

    def clipped_points(self, radius: float) -> ClippedPoints:
        """Clip the points to a public ball around the domain's midpoint.

        Parameters
        ----------
        radius : float
            In half-widths of the domain; sqrt(d) leaves all points where they are.

        Returns
        -------
        ClippedPoints
            With the queries on them.
        """
        return ClippedPoints(self, radius)

    def disclose(self) -> np.ndarray:
        """Return the points (n, d), in grid steps, to methods that claim no privacy.

        Raises
        ------
        DisclosureError
            Under any privacy claim.
        """
        self._require_no_claim("disclose would return the points")
        return np.concatenate([shard.rows for shard in self._shards])

    def disclose_weights(self) -> np.ndarray | None:
        """Return the weights of the points (n,), in records, as :meth:`disclose`.

        None where each point is a record.
        """
        self._require_no_claim("disclose_weights would return weights of points")
        if not self._shards.has_weights:
            return None
        return np.concatenate([shard.weights for shard in self._shards]) / SCALE

    def _require_no_claim(self, what: str) -> None:
        # There is a ledger if and only if privacy is claimed.
        if self._ledger is not None:
            raise DisclosureError(
                f"{what}, but the method claims privacy: release queries"
            )
