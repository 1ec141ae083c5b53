"""Private points clipped to a public ball, for hashing (LSH) and local search.

Queries are on all points or on the remaining ones. At first all points remain;
:meth:`ClippedPoints.filter_farthest` keeps a public number of the remaining points,
which are those farthest from released centers. A record that is present or not then
changes the remaining points by one replacement: without the record the next farthest
point takes its place. Where rows have weights, the weight that a record had goes to the
next farthest rows. So sensitivities of queries on the remaining points are those of a
replacement. The queries are in :mod:`pkm.privacy.queries.clipped_queries`.
"""

import math
from functools import partial

import numpy as np

from pkm.compute import SCALE
from pkm.compute.kernels.clipping import clip_norms, clip_to_ball
from pkm.compute.kernels.farthest import Farthest, farthest
from pkm.compute.kernels.hashing import Hash
from pkm.compute.storage.blocks import Blocks, Shards
from pkm.compute.storage.dask_points import DaskPoints
from pkm.privacy.base import BaseCurator, View
from pkm.privacy.checks import check_grid_integers, check_positive, check_type
from pkm.privacy.mechanisms.stability_histogram import StabilityHistogram

#: Largest number of records with weights whose sums, in 2**-16 grid steps, fit int64: a
#: coordinate of a difference is at most two half-widths, 2**33 of these.
MAX_WEIGHTED = 1 << 29


class ClippedPoints(View):
    """One replicate's points, clipped to a ball around the domain's midpoint.

    It is made by :meth:`pkm.privacy.Curator.clipped_points`. Its queries are
    :class:`BucketCounts` and :class:`BucketSums` on the remaining points, and
    :class:`NearestCounts`, :class:`NearestShells`, :class:`NearestSumsAndCounts`,
    :class:`SecondMoments`, :class:`Swaps` and :class:`CandidateSets` on all points.

    Parameters
    ----------
    curator : BaseCurator
        Curator of one replicate. Answers depend neither on its shards nor on the order
        of the points.
    radius : float
        Radius of the ball, in half-widths of the domain. Points outside are moved to
        its surface (to the grid point next to it inside); at sqrt(d) none is outside.

    Attributes
    ----------
    radius : float
        At most sqrt(d).
    uncompressed_radius : float
        Radius on the grid up to which a zoom compressed no lengths; without compression
        the same as ``radius``.
    n_points, n_remaining, n_features : int
        Public: number of records, those that contribute nothing included; largest
        number of remaining records; number of features.
    is_filtered : bool
        Whether :meth:`filter_farthest` was called: a record then changes the remaining
        points by a replacement.
    resolution : int
        Number of integers per grid step in exact sums: 1, or 2**16 where rows have
        weights.
    """

    def __init__(
        self,
        curator: BaseCurator,
        radius: float,
    ) -> None:
        super().__init__(curator)
        check_positive("radius", radius, ", in half-widths")
        self.n_remaining = self.n_points
        self.resolution = SCALE // self.count_factor
        if self.resolution > 1 and self.n_points > MAX_WEIGHTED:
            raise ValueError(
                f"n={self.n_points} records with weights must be at most "
                f"{MAX_WEIGHTED}, so that sums fit int64"
            )
        self.radius = min(radius, math.sqrt(self.n_features))
        self.uncompressed_radius = self.radius * curator.scale.linear_part
        # A zoom has clipped the points to this ball already, but for rounding, and they
        # are in memory for this run alone: points outside are rewritten in place.
        in_place = curator.is_zoomed and self.radius == curator.radius
        clip = partial(clip_to_ball, radius=self.radius, in_place=in_place)
        self._shards: Shards | Blocks | DaskPoints = curator._shards.map(clip)
        if in_place:
            curator._shards = self._shards
        self.is_filtered = False
        self._remaining: Farthest | None = None

    def filter_farthest(
        self,
        centers: np.ndarray,
        fraction: float,
    ) -> None:
        """Keep the remaining records that are farthest from their nearest center.

        Parameters
        ----------
        centers : ndarray of shape (k, d), int64
            Released, in the domain.
        fraction : float
            Share of the public number of remaining records to keep, in (0, 1); the
            product is rounded down.

        Notes
        -----
        Ties go to the points first in lexicographic order, so that the result is a
        function of the multiset of points. Nothing is released. If two data sets differ
        by one record, or by one replacement, the records that are kept of them differ
        by at most one replacement: a record more shifts the ranks after it by one.

        Where rows have weights, that much weight is kept, and a part of the last row.
        Let two data sets share rows, and each have own rows that weigh one record at
        most. Each keeps the shared rows up to a rank, and some of its own. Let the
        first keep no more shared rows than the second. What only the first keeps is its
        own, and weighs one record at most. Both keep the same weight, so what only the
        second keeps weighs as much.
        """
        self.check_positions(centers)
        if not 0 < fraction < 1:
            raise ValueError(
                f"fraction={fraction} of the records to keep must be in (0, 1)"
            )
        # This number is public: it does not depend on how many null records there are.
        self.n_remaining = math.floor(fraction * self.n_remaining)
        # A copy: every later pass computes the distances to them.
        centers = centers.copy()
        # Rows with weights are selected by their weight, in units of 2**-16 records.
        weight = self.n_remaining * self.resolution
        self._remaining = farthest(self._shards, self._remaining, centers, weight)
        self.is_filtered = True

    def histogram_noise(
        self,
        mu: float,
        delta: float,
    ) -> StabilityHistogram:
        """Noise and threshold of the remaining points' bucket counts at (mu, delta)."""
        return histogram_noise(mu, delta, self.is_filtered)

    def sum_sensitivity(self, radius: float) -> float:
        """L2 sensitivity of bucket sums of the remaining points, in grid steps: public.

        Parameters
        ----------
        radius : float
            Radius of the query, in half-widths.
        """
        # A replacement removes one clipped vector from a sum and adds another.
        return (2 if self.is_filtered else 1) * radius * SCALE

    def cost_range(self, candidates: np.ndarray) -> float:
        """Bound on what a record adds to a cost, in squared half-widths: public.

        No point is farther from a candidate than the ball's far side, or than
        the far corner of the domain.
        """
        # |x - y| <= radius + |y| in the ball; in the box a coordinate differs by at
        # most 1 + |y_h|.
        y = np.abs(candidates) / SCALE
        to_far_side = (self.radius + np.linalg.norm(y, axis=1)) ** 2
        to_far_corner = ((1 + y) ** 2).sum(axis=1)
        return float(np.minimum(to_far_side, to_far_corner).max())

    def clip(self, positions: np.ndarray) -> np.ndarray:
        """Clip positions (m, d), in grid steps, to grid points of ball and domain."""
        return np.clip(clip_norms(positions, self.radius * SCALE), -SCALE, SCALE)

    def check_positions(self, positions: np.ndarray) -> None:
        """Refuse positions (m, d) that are no grid points of the domain."""
        remedy = "; clip them by ClippedPoints.clip"
        check_grid_integers("positions", positions, ("m", self.n_features), remedy)
        if positions.min(initial=0) < -SCALE or positions.max(initial=0) > SCALE:
            raise ValueError(f"positions must lie in the domain{remedy}")

    def check_hash(self, hashing: Hash) -> None:
        """Refuse a hash of points of another width, and a subclass of Hash."""
        check_type("hashing", hashing, Hash)
        n_features = hashing.directions.shape[1]
        if n_features != self.n_features:
            raise ValueError(
                f"hashing of {n_features} features does not fit points of "
                f"{self.n_features}"
            )


def histogram_noise(
    mu: float,
    delta: float,
    is_filtered: bool,
) -> StabilityHistogram:
    """Noise and threshold of bucket counts that cost (mu, delta)."""
    # A replacement changes two counts by 1: sqrt(2) in L2, and two cells may occur for
    # one neighbor only.
    if is_filtered:
        return StabilityHistogram(math.sqrt(2) / mu, delta, 2)
    return StabilityHistogram(1 / mu, delta)
