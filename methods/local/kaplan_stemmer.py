"""Kaplan-Stemmer in the local model, by randomized reports (NeurIPS 2018, Section 1).

The extended abstract fixes the outline (Section 1.4): find candidate centers, estimate
how many points are nearest to each of them, and cluster the weighted candidates, all in
a constant number of rounds. The steps are in a full version that we could not obtain;
these are reconstructed, see docs/local-model.md for the origin of each part.

Users are partitioned into disjoint cohorts, one per round. Each user reports once, at
the whole epsilon.

1. Heavy boxes: through a frequency oracle, users report the box that holds their point,
   of a public grid along a few random directions. A box is heavy if many points are in
   it, as in the heavy-hitters problem.
2. Candidates: users report the difference of their point to the midpoint of its box,
   times a public random sign. So the server can sum over any box. The means of the
   heavy boxes are clipped to the box.
3. Weights: through an oracle, users report their nearest candidate. The weighted
   candidates are a coreset; k-means on it is post-processing.
4. Lloyd steps: users report the difference of their point to its nearest center.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.spatial.distance import cdist

from pkm.compute import DIRECTION_SCALE
from pkm.methods.constraints import AUTO, Integer
from pkm.methods.coreset import CoresetMethod, project_onto_simplex
from pkm.methods.local.local_dp import (
    CohortPlan,
    LocalModel,
    min_users,
    shrunken_means,
    snap_to_ball,
)
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import SCALE, snap_centers
from pkm.privacy.local_aggregator import (
    Boxes,
    Cohort,
    LocalAggregator,
    LocalCounts,
    LocalSums,
    NearestCenter,
    Rule,
    cohort_sizes,
)
from pkm.privacy.mechanisms.randomizers import SignedSums, frequency_oracle
from pkm.scalars import is_positive

# Constants of this project.

# Shares of the users.
HEAVY_SHARE = 0.25
SUM_SHARE = 0.2
WEIGHT_SHARE = 0.15
STEP_SHARE = 0.4

# Boxes.
MAX_PROJECTIONS = 4
#: Smallest and largest number of intervals per direction, by number of directions.
INTERVALS = {
    1: (8, 64),
    2: (6, 12),
    3: (5, 7),
    4: (5, 5),
}
MANY_INTERVALS = (4, 4)  # along more directions
# Half of the range of the intervals, in radii over sqrt(d), the typical length of a
# projection.
RANGE_LENGTHS = 2.0
MIN_DEVIATIONS = 2.5  # smallest count of a heavy box, in standard deviations
SMALLEST_CLUSTER = 8  # a heavy box needs at least n / (8 k) users

# Candidates.
MAX_CANDIDATES = 4  # per cluster
MIN_CANDIDATES = 2  # per cluster, if fewer than k boxes are heavy
MIN_WEIGHT = 1e-9  # of a candidate in the k-means
N_INIT = 10  # starts of the k-means on the candidates: post-processing

# Radii of Lloyd steps, in distances to the nearest other center.
FIRST_RADIUS = 0.5
LATER_RADIUS = 0.3


class KaplanStemmerLocal(CoresetMethod, LocalModel):
    """k-means on weighted means of heavy boxes, from randomized reports.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Budget of every user's only report: pure, local adjacency. At most 40.
    radius : float or "auto", default="auto"
        Radius of the public ball about the midpoint of the domain that users clip their
        point to, in half-widths. ``auto`` is sqrt(d): the whole domain. Boxes and noise
        are in proportion to it.
    projections : int or "auto", default="auto"
        Number of random directions that boxes are cut along; ``auto`` is min(4, d).
    intervals : int or "auto", default="auto"
        Intervals per direction. ``auto`` is as many as keep a box above the noise; see
        :meth:`resolved_intervals`.
    passes : int, default=1
        Rounds in which the heavy boxes are averaged. In the second and later ones,
        users report differences to the candidates so far, clipped to the size of a box.
    lloyd_steps : int, default=2
        Rounds of Lloyd steps.
    shares : sequence of float or "auto", default="auto"
        Shares of the users, one per round: heavy boxes, passes, weights, Lloyd steps.
        ``auto`` is 0.25, 0.2 over all passes, 0.15, and 0.4 over all steps.
    secure : bool, default=False
        Draw the users' randomness from the operating system's entropy instead of the
        seed.
    bounds, clip, random_state, missing
        As for :class:`pkm.methods.PrivateKMeans`.
    zoom, require_zoom, report, adjacency
        For methods with a trusted curator: leave them out.

    Raises
    ------
    ValueError
        For fewer users than cohorts, and if noise would hide even a box with all users
        of a cohort. The messages name a sufficient n or epsilon.

    See Also
    --------
    KaplanStemmer : The central method; needs a trusted curator.
    LocalLloyd : Rounds of Lloyd's algorithm, a baseline.
    NoisedReports : Noise on every point, a baseline.

    References
    ----------
    Kaplan, H. and Stemmer, U. (2018). Differentially private k-means with constant
    multiplicative error. NeurIPS.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 20000, axis=0)
    >>> model = KaplanStemmerLocal(2, epsilon=4.0, bounds=(-1, 1), random_state=1)
    >>> model = model.fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "Kaplan-Stemmer, local"
    color = "#7a3e9d"
    marker = "o"
    constraints = {
        "shares": None,
        "projections": AUTO | Integer(1),
        "intervals": AUTO | Integer(2),
        "passes": Integer(1),
        "lloyd_steps": Integer(0),
    }

    projections: int | Literal["auto"] = "auto"
    intervals: int | Literal["auto"] = "auto"
    passes: int = 1
    lloyd_steps: int = 2
    shares: Sequence[float] | Literal["auto"] = "auto"

    def resolved_shares(self) -> Sequence[float]:
        """Shares of the users, of any sum, one per round."""
        if self.shares == "auto":
            n_steps = self.lloyd_steps
            passes = [SUM_SHARE / self.passes] * self.passes
            steps = [STEP_SHARE / max(n_steps, 1)] * n_steps
            return [HEAVY_SHARE, *passes, WEIGHT_SHARE, *steps]
        n_rounds = 2 + self.passes + self.lloyd_steps
        is_text = isinstance(self.shares, str)
        if is_text or list(map(is_positive, self.shares)) != [True] * n_rounds:
            raise ValueError(
                f"shares={self.shares!r} must be 'auto' or {n_rounds} positive "
                "numbers, one per round"
            )
        return self.shares

    def resolved_projections(self, n_features: int) -> int:
        """Number of directions: the parameter, at most d."""
        if self.projections == "auto":
            return min(MAX_PROJECTIONS, n_features)
        return min(self.projections, n_features)

    def resolved_intervals(
        self,
        n_users: int,
        n_projections: int,
    ) -> int:
        """Intervals per direction.

        Parameters
        ----------
        n_users : int
            Number of users that report their box.
        n_projections : int

        Returns
        -------
        int
            The parameter, unless it is ``auto``. Otherwise the largest number at which
            counts exceed the noise if half of the boxes are empty and the others have
            equal counts. It is kept in a public range, then raised for at least 2 k
            boxes.
        """
        if self.intervals != "auto":
            return self.intervals
        # With m boxes a count is 2 n / m, and its noise in proportion to sqrt(n).
        noise = MIN_DEVIATIONS * math.sqrt(min_users(self.epsilon))
        n_boxes = 2 * math.sqrt(n_users) / noise
        min_intervals, max_intervals = INTERVALS.get(n_projections, MANY_INTERVALS)
        intervals = round(n_boxes ** (1 / n_projections))
        intervals = min(max(intervals, min_intervals), max_intervals)
        needed = (MIN_CANDIDATES * self.n_clusters) ** (1 / n_projections)
        return max(intervals, math.ceil(needed - 1e-9))

    def plan_reports(
        self,
        n_points: int,
        n_features: int,
    ) -> CohortPlan:
        """Cohorts: counts of boxes, sums in every pass, weights, sums in every step."""
        n_users = cohort_sizes(n_points, self.resolved_shares())[0]
        n_projections = self.resolved_projections(n_features)
        intervals = self.resolved_intervals(n_users, n_projections)
        n_boxes = intervals**n_projections
        n_candidates = MAX_CANDIDATES * self.n_clusters
        return [
            (LocalCounts, frequency_oracle(self.epsilon, n_boxes)),
            *[(LocalSums, SignedSums)] * self.passes,
            (LocalCounts, frequency_oracle(self.epsilon, n_candidates)),
            *[(LocalSums, SignedSums)] * self.lloyd_steps,
        ]

    def cluster(self, aggregator: LocalAggregator) -> tuple[np.ndarray, int]:
        """Run all rounds; see :meth:`PrivateKMeans.cluster`."""
        cohorts = self._divide(aggregator)
        generator = aggregator.public_rng()
        n_before_steps = 2 + self.passes
        candidates, weights = self._find_candidates(cohorts[:n_before_steps], generator)

        # k-means on the candidates with weight; on all if they are fewer than k.
        k = self.n_clusters
        positive = weights > 0
        if positive.sum() < k:
            positive[:] = True
        points = candidates[positive].astype(np.float64)
        positive_weights = np.maximum(weights[positive], MIN_WEIGHT)
        centers = weighted_kmeans(points, positive_weights, k, N_INIT, generator)
        centers = snap_centers(centers)

        # 4. Lloyd steps, each with users who have not reported before.
        for step, cohort in enumerate(cohorts[n_before_steps:]):
            radius = LATER_RADIUS if step else FIRST_RADIUS
            centers = self._lloyd_step(cohort, centers, candidates, weights, radius)
        return centers[None], len(cohorts)

    def weighted_candidates(
        self, aggregator: LocalAggregator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find candidates and their weights; all users report for these.

        See :meth:`CoresetMethod.weighted_candidates`.
        """
        cohorts = self._divide(aggregator, 2 + self.passes)
        candidates, weights = self._find_candidates(cohorts, aggregator.public_rng())
        return candidates, weights * aggregator.n_points

    def _find_candidates(
        self,
        cohorts: Sequence[Cohort],
        generator: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find candidates (m, d) and their shares (m,) of the users, of sum 1."""
        box_cohort, *sum_cohorts, weight_cohort = cohorts

        # 1. Heavy boxes; their midpoints are the first candidates.
        boxes = self._draw_boxes(box_cohort, generator)
        cells, sizes = self._heavy_boxes(box_cohort, boxes)
        candidates, radii = self._midpoints(boxes, cells, box_cohort.radius)

        # 2. Means of the users in each heavy box.
        for number, cohort in enumerate(sum_cohorts):
            if number:
                # Half the diagonal of a cube with the side of a box.
                half_diagonal = boxes.width * math.sqrt(cohort.n_features) / 2
                radii = np.full(len(cells), half_diagonal)
            steps = self._mean_steps(cohort, boxes, cells, candidates, radii, sizes)
            clipped = boxes.clip(cells, candidates / SCALE + steps)
            candidates = snap_to_ball(clipped, cohort.radius)

        # 3. Weights. The number of candidates depends on reports: the oracle is for its
        # maximum.
        rule = NearestCenter(candidates)
        most = MAX_CANDIDATES * self.n_clusters
        counts, _ = self._count(weight_cohort, rule, most)
        size = float(weight_cohort.size)
        return candidates, project_onto_simplex(counts, size) / size

    def _draw_boxes(
        self,
        cohort: Cohort,
        generator: np.random.Generator,
    ) -> Boxes:
        """Draw boxes along a basis of a random subspace, shifted at random."""
        # Orthonormal directions of the subspace.
        d = cohort.n_features
        n_projections = self.resolved_projections(d)
        intervals = self.resolved_intervals(cohort.size, n_projections)
        normals = generator.standard_normal((d, n_projections))
        basis = np.linalg.qr(normals)[0].T

        # A vector of norm R has projections of about R / sqrt(d). One interval more
        # than the range needs allows for the shift.
        projected = RANGE_LENGTHS / math.sqrt(d)
        half_range = cohort.radius * min(1.0, projected)
        width = 2 * half_range / (intervals - 1)
        lower = -half_range - width * generator.random(n_projections)
        directions = np.rint(basis * DIRECTION_SCALE).astype(np.int64)
        return Boxes(directions, lower, width, intervals)

    def _heavy_boxes(
        self,
        cohort: Cohort,
        boxes: Boxes,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find heavy boxes, and their estimated shares of all users."""
        # The fullest boxes that exceed the noise and a minimum share, or at least 2 k.
        k = self.n_clusters
        counts, stddev = self._count(cohort, boxes, boxes.size)
        fullest = np.argsort(-counts, kind="stable")[: MAX_CANDIDATES * k]
        smallest = cohort.size / (SMALLEST_CLUSTER * k)
        bound = max(MIN_DEVIATIONS * stddev, smallest)
        heavy = fullest[counts[fullest] > bound]
        if len(heavy) < k:
            heavy = fullest[: MIN_CANDIDATES * k]
        return heavy, np.maximum(counts[heavy], stddev) / cohort.size

    def _midpoints(
        self,
        boxes: Boxes,
        cells: np.ndarray,
        radius: float,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return midpoints of boxes on the grid, and the radii of the boxes."""
        midpoints = snap_to_ball(boxes.midpoints(cells), radius)
        n_projections = len(boxes.lower)

        # Radius: half a diagonal of the box in the subspace; across it, the ball.
        along = boxes.width * math.sqrt(n_projections) / 2
        across = np.zeros(len(cells))
        if n_projections < midpoints.shape[1]:
            squares = midpoints.astype(np.float64) ** 2
            squared_norms = squares.sum(axis=1) / SCALE**2
            across = np.maximum(radius**2 - squared_norms, 0.0)
        return midpoints, np.sqrt(along**2 + across)

    def _lloyd_step(
        self,
        cohort: Cohort,
        centers: np.ndarray,
        candidates: np.ndarray,
        weights: np.ndarray,
        relative_radius: float,
    ) -> np.ndarray:
        """Move centers by the means of users' differences to their nearest center."""
        rule = NearestCenter(centers)
        k = len(centers)

        # Share of the users of each cluster, at least that of a heavy box.
        shares = np.bincount(rule.cells(candidates), weights, k)
        shares = np.maximum(shares, 1 / (SMALLEST_CLUSTER * self.n_clusters))

        # Radius of each cluster, from the distance to the nearest other center.
        distances = cdist(centers, centers) / SCALE
        np.fill_diagonal(distances, np.inf)
        nearest = distances.min(axis=1)
        radii = relative_radius * nearest
        radii = np.clip(radii, 1 / SCALE, 2 * cohort.radius)

        cells = np.arange(k)
        steps = self._mean_steps(cohort, rule, cells, centers, radii, shares)
        return snap_to_ball(centers / SCALE + steps, cohort.radius)

    def _mean_steps(
        self,
        cohort: Cohort,
        rule: Rule,
        cells: np.ndarray,
        origins: np.ndarray,
        radii: np.ndarray,
        shares: np.ndarray,
    ) -> np.ndarray:
        """Shrunken means of users' differences to the origin of their cell.

        In half-widths; an origin is the midpoint of a box, a candidate or a center.

        ``shares`` has the share of all users in each cell.
        """
        sums, stddev = self._sum(cohort, rule, cells, origins, radii)
        return shrunken_means(sums, shares * cohort.size, radii, stddev)
