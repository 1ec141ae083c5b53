"""Private points in a public ball, as Kaplan-Stemmer and local search see them.

There are two sets: all points, and the restricted set of those that were farthest from
released centers. A record that is present or not (zero-out adjacency) changes the
restricted set by one replacement, because without it the next farthest is in the set;
so the sensitivities of queries on the restricted set are those of a replacement. The
queries are in :mod:`pkm.privacy.queries.hashed_queries`.
"""

import math
from functools import partial

import numpy as np

from pkm.compute import SCALE
from pkm.compute.kernels.clipping import clip_norms, pull_into_ball
from pkm.compute.kernels.farthest import Farthest, farthest
from pkm.compute.kernels.hashing import Hash
from pkm.compute.storage.blocks import Blocks, Shards
from pkm.compute.storage.dask_points import DaskPoints
from pkm.privacy.base import BaseCurator, View
from pkm.privacy.checks import check_grid_integers, check_positive, check_type
from pkm.privacy.mechanisms.stability_histogram import StabilityHistogram


class HashedPoints(View):
    """One replicate's points, pulled into a ball around the domain's midpoint.

    Made by :meth:`pkm.privacy.Curator.hashed_points`. Its queries are
    :class:`BucketCounts` and :class:`BucketSums` on the restricted set, which is all
    points at first, and :class:`NearestCounts`, :class:`NearestShells`,
    :class:`NearestSumsAndCounts`, :class:`SecondMoments`, :class:`Swaps` and
    :class:`CandidateSets` on all points.

    Parameters
    ----------
    curator : BaseCurator
        Of one replicate. Answers depend neither on its shards nor on the order of the
        points.
    radius : float
        Of the ball, in half-widths of the domain. Points outside are moved to its
        surface (to the grid point next to it inside); at sqrt(d) no point is outside.

    Attributes
    ----------
    radius : float
        At most sqrt(d).
    n_points, n_restricted, n_features : int
        Public: number of records, those that contribute nothing included, largest
        number of records of the restricted set, number of features.
    is_restricted : bool
        Whether the restricted set is not all points: then a record changes it by a
        replacement.
    """

    def __init__(
        self,
        curator: BaseCurator,
        radius: float,
    ) -> None:
        curator.check_single(type(self).__name__)
        check_positive("radius", radius, ", in half-widths")
        super().__init__(curator)
        self.n_points = curator.n_points
        self.n_restricted = curator.n_points
        self.n_features = curator.n_features
        self.radius = min(radius, math.sqrt(self.n_features))
        # What a zoom has entered is in its ball but for rounding, and in memory for
        # this run alone.
        in_place = curator.is_zoomed and self.radius == curator.radius
        into_ball = partial(pull_into_ball, radius=self.radius, in_place=in_place)
        self._all: Shards | Blocks | DaskPoints = curator._shards.map(into_ball)
        if in_place:
            curator._shards = self._all
        self.is_restricted = False
        self._restricted: Farthest | None = None

    def filter_farthest(
        self,
        centers: np.ndarray,
        fraction: float,
    ) -> None:
        """Restrict the set to the records that are farthest from their nearest center.

        Parameters
        ----------
        centers : ndarray of shape (k, d), int64
            Released, in the domain.
        fraction : float
            Of the restricted set's public number of records to keep, in (0, 1); the
            number is rounded down.

        Notes
        -----
        Ties go to the points first in lexicographic order, so that the set is a
        function of the points as a multiset. Nothing is released. If two sets differ by
        one record, or by one replacement, their restrictions differ by at most one
        replacement: but for the record itself, both hold the farthest ones that the
        smaller takes.
        """
        self.check_positions(centers)
        if not 0 < fraction < 1:
            raise ValueError(
                f"fraction={fraction} of the records to keep must be in (0, 1)"
            )
        self.n_restricted = math.floor(fraction * self.n_restricted)
        # A copy: later passes find the distances anew.
        centers = centers.copy()
        self._restricted = farthest(
            self._all, self._restricted, centers, self.n_restricted
        )
        self.is_restricted = True

    def histogram_noise(
        self,
        mu: float,
        delta: float,
    ) -> StabilityHistogram:
        """Noise and threshold of restricted bucket counts that cost (mu, delta)."""
        return histogram_noise(mu, delta, self.is_restricted)

    def sum_sensitivity(self, radius: float) -> float:
        """L2 sensitivity of bucket sums of the restricted set, in grid steps: public.

        Parameters
        ----------
        radius : float
            Of the query, in half-widths.
        """
        return (2 if self.is_restricted else 1) * radius * SCALE

    def cost_range(self, candidates: np.ndarray) -> float:
        """Bound on what a record adds to a cost, in squared half-widths: public.

        No point is farther from a candidate than the ball's far side, or than
        the far corner of the domain.
        """
        y = np.abs(candidates) / SCALE
        norms = np.sqrt((y * y).sum(axis=1))
        to_far_side = (self.radius + norms) ** 2
        to_far_corner = ((1 + y) ** 2).sum(axis=1)
        return float(np.minimum(to_far_side, to_far_corner).max())

    def into_ball(self, positions: np.ndarray) -> np.ndarray:
        """Round positions (m, d), in grid steps, to grid points of ball and domain."""
        return np.clip(clip_norms(positions, self.radius * SCALE), -SCALE, SCALE)

    def check_positions(self, positions: np.ndarray) -> None:
        """Refuse positions (m, d) that are no grid points of the domain."""
        remedy = "; release them through into_ball"
        check_grid_integers("positions", positions, ("m", self.n_features), remedy)
        if positions.min(initial=0) < -SCALE or positions.max(initial=0) > SCALE:
            raise ValueError(
                "positions must lie in the domain; release them through into_ball"
            )

    def check_hash(self, hashing: Hash) -> None:
        """Refuse a hash of points of another width, and code that is not ours."""
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
    restricted: bool,
) -> StabilityHistogram:
    """Noise and threshold of bucket counts that cost (mu, delta)."""
    if restricted:
        return StabilityHistogram(math.sqrt(2) / mu, delta, 2)
    return StabilityHistogram(1 / mu, delta)
