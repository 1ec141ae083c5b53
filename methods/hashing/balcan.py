"""Candidates from shifted cubes in a random projection, then private local search.

Balcan, Dick, Liang, Mou, Zhang, ICML 2017: the method that Kaplan and Stemmer build on.
Points are projected at random to a few dimensions, and counted in cubes whose sides are
halved from level to level, on several shifted grids. The midpoints of cubes with many
points are the candidates. k of them are selected by private local search in the
projection. Each selected center is recovered in all dimensions as a private mean of the
points nearest to it in the projection.

Departures from the public code, which spends more than it declares:

- All noise is Gaussian and composed by the ledger. Cubes are released above a threshold
  whose failure is charged. The radius is public, and counts of the recovery are noisy.
- The projection has orthonormal directions, and candidates are lifted to their span. A
  point's squared distances to the lifted candidates, and those in the projection,
  differ by the same constant. So both searches rank sets of candidates alike, up to
  rounding and lifted candidates that are clipped to the domain.
- The cubes of all levels are counted, not only those inside of cubes above the
  threshold. A cube with many points lies in larger ones with at least as many.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from pkm.compute import DIRECTION_SCALE
from pkm.compute.kernels.hashing import Hash, orthonormal
from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import AUTO, Integer, OneOf, Real
from pkm.methods.hashing.local_search import (
    MOVES,
    fill_up,
    plan_search,
    private_local_search,
)
from pkm.methods.lloyd.noisy_steps import noisy_lloyd_step
from pkm.methods.schedule import Schedule, plan_release
from pkm.privacy import (
    SCALE,
    BucketCounts,
    Charge,
    ClippedPoints,
    Curator,
    Gaussian,
    NearestSumsAndCounts,
    PrivacyClaim,
    StabilityHistogram,
    Swaps,
    gaussian_mu,
)

# Shares of mu squared.
CANDIDATE_SHARE = 2 / 3
SEARCH_SHARE = 1 / 12
RECOVERY_SHARE = 1 / 4
THRESHOLD_DELTA_SHARE = 0.5  # of delta, the rest is for the noise
SMALLEST_CLUSTER = 20  # a cube needs at least n / (20 k) points
MAX_CANDIDATES = 500
FEW_FEATURES = 5  # up to here points are not projected
MAX_SWAPS = 20


class Balcan(PrivateKMeans):
    """Private local search among cubes in a projection, then noisy means.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Total, zero-out adjacency. Mu squared is divided as 2/3 for cubes, 1/12 for the
        search, 1/4 for the recovery.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6. Half is for the thresholds, half for the Gaussian noise.
    radius : float or "auto", default="auto"
        Radius of the public ball about the midpoint of the domain that points are
        clipped to, in half-widths. ``auto`` is sqrt(d): the whole domain.
    n_dimensions : int or "auto", default="auto"
        Dimensions of the projection, at most d. ``auto`` is d for up to five features,
        else ln(n) / 2 rounded down.
    shifts : int, default=2
        Number of shifted grids.
    depth : int, default=6
        Levels of cubes, from 1 to 12; the largest have the radius of the ball as side.
    search_rounds : int or "auto", default="auto"
        Swaps of the local search; ``auto`` is k, at most 20.
    moves : {"all", "round_robin"}, default="all"
        Swaps that the local search draws from: of any center, or of the centers in
        turn.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    KaplanStemmer : Hashing in place of cubes, and averages in all features.
    EMMC : Candidates by a maximum cover, then k-means on them.

    Notes
    -----
    If fewer than k cubes are large enough, the centers of packed spheres, which ignore
    the data, complete the candidates.

    References
    ----------
    Balcan, M.-F., Dick, T., Liang, Y., Mou, W. and Zhang, H. (2017). Differentially
    private clustering in high-dimensional Euclidean spaces. ICML, 322-331.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 20_000, axis=0)
    >>> model = Balcan(n_clusters=2, epsilon=4.0, bounds=(-1, 1), random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "Balcan et al."
    color = "#8a6d1f"
    marker = "h"
    claims = {"sound": PrivacyClaim("approximate")}
    constraints = {
        "radius": AUTO | Real(0),
        "n_dimensions": AUTO | Integer(1),
        "shifts": Integer(1),
        "depth": Integer(1, 12),
        "search_rounds": AUTO | Integer(1),
        "moves": OneOf(*MOVES),
    }
    batched = False
    supports_chunks = True
    benefits_from_ball = True

    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    radius: float | Literal["auto"] = "auto"
    n_dimensions: int | Literal["auto"] = "auto"
    shifts: int = 2
    depth: int = 6
    search_rounds: int | Literal["auto"] = "auto"
    moves: str = "all"

    def dimensions(
        self,
        n_points: int,
        n_features: int,
    ) -> int:
        """Number of dimensions that points are projected to."""
        if self.n_dimensions != "auto":
            return min(self.n_dimensions, n_features)
        if n_features <= FEW_FEATURES:
            return n_features
        return min(max(1, int(math.log(n_points) / 2)), n_features)

    def resolved_search_rounds(self) -> int:
        """Number of swaps of the local search."""
        if self.search_rounds == "auto":
            return min(self.n_clusters, MAX_SWAPS)
        return self.search_rounds

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Schedule:
        """All releases; see :meth:`PrivateKMeans.schedule`.

        Half of delta is for the thresholds; mu squared is divided among the steps.
        """
        delta = self.resolved_delta(n_points)
        mu = gaussian_mu(self.epsilon, (1 - THRESHOLD_DELTA_SHARE) * delta)

        # Every level of every shift is a separate release.
        n_cubes = self.shifts * self.depth
        cubes = plan_release(
            BucketCounts,
            StabilityHistogram,
            mu=mu * math.sqrt(CANDIDATE_SHARE / n_cubes),
            delta=THRESHOLD_DELTA_SHARE * delta / n_cubes,
        )
        recovery_mu = mu * math.sqrt(RECOVERY_SHARE)
        return Schedule(
            *[cubes] * n_cubes,
            *plan_search(self.resolved_search_rounds(), mu * math.sqrt(SEARCH_SHARE)),
            plan_release(NearestSumsAndCounts, Gaussian, mu=recovery_mu),
        )

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run one replicate; see :meth:`PrivateKMeans.cluster`."""
        d = curator.n_features
        schedule = self.schedule(curator.n_points, d)

        # Random projection to few dimensions.
        radius = curator.radius if self.radius == "auto" else self.radius
        points = curator.clipped_points(radius)
        generator = curator.public_rng()
        directions = orthonormal(generator, self.dimensions(curator.n_points, d), d)

        # Candidates: the midpoints of cubes with many points.
        cubes = schedule.find(BucketCounts)
        candidates = self._candidates(points, directions, cubes, generator)

        # Select k of them by private local search.
        swaps = schedule.find(Swaps)
        centers = private_local_search(
            points,
            candidates,
            self.n_clusters,
            n_swaps=len(swaps),
            mu=swaps[0].mu,
            generator=generator,
            moves=self.moves,
        )

        # Recovery in all dimensions: noisy means of the points nearest in the
        # projection.
        (recovery,) = schedule.find(NearestSumsAndCounts)
        centers = noisy_lloyd_step(points, centers, points.radius, recovery.mu)
        return centers[None], len(swaps)

    def _candidates(
        self,
        points: ClippedPoints,
        directions: np.ndarray,
        cubes: Sequence[Charge],
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Midpoints (m, d) of large cubes in the span of the directions, on the grid.

        At least k and at most 500, of the largest cubes. ``cubes`` are the releases of
        all levels of all shifts.
        """
        k = self.n_clusters
        min_count = points.n_points / (SMALLEST_CLUSTER * k)

        # Sides are halved without a remainder, so that cubes of all levels nest. Their
        # unit is grid steps over DIRECTION_SCALE.
        ball_steps = points.radius * SCALE * DIRECTION_SCALE
        smallest_side = max(1, round(ball_steps / 2 ** (self.depth - 1)))
        noise = points.histogram_noise(cubes[0].mu, cubes[0].delta)
        midpoints = []
        counts = []
        for _ in range(self.shifts):
            # Shift the cubes at random, the same for all levels.
            side = smallest_side << (self.depth - 1)
            shift = generator.integers(0, side, len(directions))
            for _ in range(self.depth):
                # Release the cubes of this level with a noisy count above the
                # threshold.
                hashing = Hash(directions, shift % side, side)
                query = BucketCounts(hashing, min_count)
                codes, sizes = points.release(query, counts=noise)["counts"]
                midpoints.append(points.clip(hashing.cell_centers(codes)))
                counts.append(sizes)
                side //= 2

        # Keep the largest.
        largest = np.argsort(-np.concatenate(counts), kind="stable")[:MAX_CANDIDATES]
        candidates = np.concatenate(midpoints)[largest]

        # Complete them to k by packed points of the projection.
        span = directions / DIRECTION_SCALE
        return fill_up(candidates, points, k, span, generator)
