"""Kaplan-Stemmer in the local model: a few rounds of randomized reports (Kaplan, Stemmer, NeurIPS 2018, Section 1).

The extended abstract fixes the outline: find candidate centers, estimate how many points are nearest to each of them,
cluster the weighted candidates; all in a constant number of rounds. How candidates are found, how weights are estimated
and how users are shared out is in a full version that we could not obtain; what stands here is a reconstruction, see
docs/local-model.md for what is whose.

Users are dealt out into disjoint groups, one per round; each user reports once and spends the whole epsilon on it.

1. Heavy boxes: users say, through a frequency oracle, in which box of a public grid along a few random directions their
   point lies.
2. Candidates: users send their point about the middle of their box, turned by a public random sign, so that the server
   can sum over any box; the means of the heavy boxes are moved into their own box.
3. Weights: users say which candidate is nearest, through an oracle. The weighted candidates are a coreset; k-means on
   them costs nothing.
4. Lloyd steps: users send their point about its nearest center.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from scipy.spatial.distance import cdist

from pkm.compute import DIRECTION_SCALE
from pkm.methods.base import is_integer, is_number
from pkm.methods.coreset import CoresetMethod, consistent
from pkm.methods.local_dp import LocalModel, check_enough, least_users, snapped, steps_of
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import SCALE, snap_centers
from pkm.privacy.local_aggregator import Boxes, Cohort, LocalAggregator, NearestCenter
from pkm.privacy.noise import INITIALIZATION, child

HEAVY_SHARE, SUM_SHARE, WEIGHT_SHARE, STEP_SHARE = 0.25, 0.2, 0.15, 0.4  # of the users
MAX_PROJECTIONS = 4
INTERVALS = {
    1: (8, 64),
    2: (6, 12),
    3: (5, 7),
    4: (5, 5),
}  # fewest and most per direction, by number of directions
MANY_INTERVALS = (4, 4)  # along more directions
REACH = (
    2.0  # intervals cover that many typical lengths of a projection of the ball's longest vectors
)
CERTAIN = 2.5  # standard deviations that a heavy box stands above zero
SMALLEST_CLUSTER = 8  # a heavy box has a share of 1 / (8 k) of the users
MAX_CANDIDATES = 4  # per cluster
FALLBACK = 2  # candidates per cluster, where fewer than k boxes are heavy
FIRST_REACH, LATER_REACH = 0.5, 0.3  # of a Lloyd step, in distances to the nearest other center
MIN_WEIGHT = 1e-9  # of a candidate that the k-means is given
N_INIT = 10  # starts of the k-means on the candidates: free


@dataclass(eq=False, repr=False)
class KaplanStemmerLocal(CoresetMethod, LocalModel):
    """Heavy boxes, their means, the candidates' weights, and k-means on those, from randomized reports.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Of every user's only report: pure, local adjacency. At most 40.
    radius : float or "auto", default="auto"
        Of the public ball about the middle of the domain that users pull their point into, in half-widths. ``auto`` is
        sqrt(d): the whole domain. Boxes and noise are in proportion to it.
    projections : int or "auto", default="auto"
        Number of random directions that boxes are cut along; ``auto`` is min(4, d).
    intervals : int or "auto", default="auto"
        Per direction; ``auto`` is as many as still let a box stand out, see :meth:`resolved_intervals`.
    passes : int, default=1
        Rounds that locate candidates; each but the first about the candidates so far, within the size of a box.
    lloyd_steps : int, default=2
        Rounds that move the chosen centers.
    shares : sequence of float or "auto", default="auto"
        Of the users, one per round: heavy boxes, passes, weights, Lloyd steps. ``auto`` is 0.25, 0.2 over all passes,
        0.15, and 0.4 over all steps.
    secure : bool, default=False
        Draw the users' randomness from the operating system's entropy instead of the seed.
    bounds, clip, random_state
        As for :class:`pkm.methods.base.PrivateKMeans`.

    Raises
    ------
    ValueError
        For fewer users than groups, and where not even a box that all users of a group share would stand out of the
        noise; the messages say what would do.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.25], [0.5, 0.5]], 20000, axis=0)
    >>> model = KaplanStemmerLocal(n_clusters=2, epsilon=4.0, random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label: ClassVar[str] = "Kaplan-Stemmer, local"
    color: ClassVar[str] = "#7a3e9d"
    marker: ClassVar[str] = "o"
    _: KW_ONLY
    projections: int | str = "auto"
    intervals: int | str = "auto"
    passes: int = 1
    lloyd_steps: int = 2
    shares: Sequence[float] | str = "auto"

    def check_parameters(self, n_points=None):
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        for name, least in (("projections", 1), ("intervals", 2)):
            value = getattr(self, name)
            if value != "auto" and not (is_integer(value) and value >= least):
                raise ValueError(
                    f"{name}={value!r} must be 'auto' or an integer of at least {least}"
                )
        for name, least in (("passes", 1), ("lloyd_steps", 0)):
            value = getattr(self, name)
            if not (is_integer(value) and value >= least):
                raise ValueError(f"{name}={value!r} must be an integer of at least {least}")
        rounds = 2 + self.passes + self.lloyd_steps
        if self.shares != "auto":
            several = not isinstance(self.shares, str) and all(
                is_number(share) for share in self.shares
            )
            if not (
                several
                and len(self.shares) == rounds
                and all(0 < share < math.inf for share in self.shares)
            ):
                raise ValueError(
                    f"shares={self.shares!r} must be 'auto' or {rounds} positive numbers, one per round"
                )
        if n_points is not None:
            check_enough(self.epsilon, n_points, self.resolved_shares(self.lloyd_steps))

    def resolved_shares(self, lloyd_steps: int) -> tuple[float, ...]:
        """Shares of the users, one per round, with that many Lloyd steps; they need not add up to 1."""
        rounds = 2 + self.passes + lloyd_steps
        if self.shares != "auto":
            return tuple(self.shares)[:rounds]
        passes, steps = (
            (SUM_SHARE / self.passes,) * self.passes,
            (STEP_SHARE / max(lloyd_steps, 1),) * lloyd_steps,
        )
        return HEAVY_SHARE, *passes, WEIGHT_SHARE, *steps

    def resolved_projections(self, n_features: int) -> int:
        """Number of directions: the parameter, at most d."""
        return min(MAX_PROJECTIONS if self.projections == "auto" else self.projections, n_features)

    def resolved_intervals(self, n_users: int, n_projections: int) -> int:
        """Intervals per direction.

        Parameters
        ----------
        n_users : int
            Who report their box.
        n_projections : int

        Returns
        -------
        int
            The parameter, or what makes as many boxes as could each stand out of the noise if half of them were empty
            and the others alike, within a public range: never so few that k clusters could not be told apart.
        """
        if self.intervals != "auto":
            return self.intervals
        boxes = 2 * math.sqrt(n_users) / (CERTAIN * math.sqrt(least_users(self.epsilon)))
        fewest, most = INTERVALS.get(n_projections, MANY_INTERVALS)
        needed = (FALLBACK * self.n_clusters) ** (1 / n_projections)
        return max(
            min(max(round(boxes ** (1 / n_projections)), fewest), most), math.ceil(needed - 1e-9)
        )

    def cluster(self, crowd: LocalAggregator) -> tuple[np.ndarray, int]:
        """Run all rounds; see :meth:`PrivateKMeans.cluster`."""
        groups = crowd.cohorts(
            self.resolved_shares(self.lloyd_steps), self.resolved_radius(crowd.n_features)
        )
        generator = np.random.default_rng(child(crowd.seeds[0], INITIALIZATION))
        last = len(groups) - self.lloyd_steps
        candidates, weights = self._candidates_with_shares(groups[:last], generator)
        # Candidates without weight serve only where there are too few others.
        kept = (
            weights > 0 if (weights > 0).sum() >= self.n_clusters else np.full(len(weights), True)
        )
        state = int(generator.integers(2**32))
        points, masses = candidates[kept].astype(np.float64), np.maximum(weights[kept], MIN_WEIGHT)
        centers = snap_centers(weighted_kmeans(points, masses, self.n_clusters, N_INIT, state))
        for i, group in enumerate(groups[last:]):
            centers = self._lloyd_step(
                group, centers, candidates, weights, LATER_REACH if i else FIRST_REACH
            )
        return centers[None], len(groups)

    def weighted_candidates(self, crowd: LocalAggregator) -> tuple[np.ndarray, np.ndarray]:
        """Candidates and their weights; see :meth:`CoresetMethod.weighted_candidates`. No user is kept for steps."""
        groups = crowd.cohorts(self.resolved_shares(0), self.resolved_radius(crowd.n_features))
        generator = np.random.default_rng(child(crowd.seeds[0], INITIALIZATION))
        candidates, shares = self._candidates_with_shares(groups, generator)
        return candidates, shares * crowd.n_points

    def _candidates_with_shares(
        self, groups: list[Cohort], generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Candidates (m, d), int64, on the grid, and their shares of the users (m,), which add up to 1."""
        first, *passes, last = groups
        boxes = self._boxes(first, generator)
        cells, sizes = self._heavy(first, boxes)
        candidates, radii = self._middles(boxes, cells, first.radius)
        for i, group in enumerate(passes):
            if i:
                # As wide in all directions as a box is in those that it is cut along.
                radii = np.full(len(cells), boxes.width * math.sqrt(first.n_features) / 2)
            steps = steps_of(
                group.sums(boxes, cells, candidates, radii), sizes * group.size, radii, group
            )
            candidates = snapped(boxes.clip(cells, candidates / SCALE + steps), first.radius)
        # The number of candidates is an outcome; the oracle is made for as many as there can be.
        counts = last.counts(NearestCenter(candidates), MAX_CANDIDATES * self.n_clusters)
        return candidates, consistent(counts, float(last.size)) / last.size

    def _boxes(self, group: Cohort, generator) -> Boxes:
        """Boxes along an orthonormal basis of a uniformly random subspace, shifted at random."""
        d = group.n_features
        m = self.resolved_projections(d)
        intervals = self.resolved_intervals(group.size, m)
        basis = np.linalg.qr(generator.standard_normal((d, m)))[0].T
        # A projection of a vector of length R is about R / sqrt(d) long; one interval more is room for the shift.
        half = group.radius * min(1.0, REACH / math.sqrt(d))
        width = 2 * half / (intervals - 1)
        lower = -half - width * generator.random(m)
        return Boxes(np.rint(basis * DIRECTION_SCALE).astype(np.int64), lower, width, intervals)

    def _heavy(self, group: Cohort, boxes: Boxes) -> tuple[np.ndarray, np.ndarray]:
        """Heavy boxes, and their estimated shares of all users."""
        counts, noise = group.counts(boxes), group.count_stddev(boxes.size)
        order = np.argsort(-counts, kind="stable")[: MAX_CANDIDATES * self.n_clusters]
        least = max(CERTAIN * noise, group.size / (SMALLEST_CLUSTER * self.n_clusters))
        cells = order[counts[order] > least]
        if len(cells) < self.n_clusters:
            cells = order[: FALLBACK * self.n_clusters]
        return cells, np.maximum(counts[cells], noise) / group.size

    def _middles(
        self, boxes: Boxes, cells: np.ndarray, radius: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Middles of boxes on the grid, and about how far points of the box can be from them, in half-widths."""
        middles = snapped(boxes.midpoints(cells), radius)
        along = boxes.width * math.sqrt(len(boxes.lower)) / 2
        square = (middles.astype(np.float64) ** 2).sum(axis=1) / SCALE**2
        across = radius**2 - square if len(boxes.lower) < middles.shape[1] else 0.0
        return middles, np.sqrt(along**2 + np.maximum(across, 0.0)) + np.zeros(len(cells))

    def _lloyd_step(self, group: Cohort, centers, candidates, weights, reach: float) -> np.ndarray:
        """Move centers by the mean of what users send about their nearest center."""
        rule, k = NearestCenter(centers), len(centers)
        shares = np.bincount(rule.cells(candidates), weights, k)
        # A cluster of which the weights know nothing counts as one that they would hardly have seen.
        shares = np.maximum(shares, 1 / (SMALLEST_CLUSTER * self.n_clusters))
        apart = cdist(centers, centers) / SCALE
        np.fill_diagonal(apart, np.inf)
        radii = np.clip(reach * apart.min(axis=1), 1 / SCALE, 2 * group.radius)
        steps = steps_of(
            group.sums(rule, np.arange(k), centers, radii), shares * group.size, radii, group
        )
        return snapped(centers / SCALE + steps, group.radius)
