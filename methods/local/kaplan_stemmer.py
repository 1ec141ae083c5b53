"""Kaplan-Stemmer in the local model, by randomized reports (NeurIPS 2018, Section 1).

The extended abstract fixes the outline: find candidate centers, estimate how many
points are nearest to each of them, cluster the weighted candidates; all in a constant
number of rounds. How candidates are found, how weights are estimated and how users are
partitioned is in a full version that we could not obtain; this is a reconstruction, see
docs/local-model.md for the origin of each part.

Users are partitioned into disjoint cohorts, one per round; each user reports once and
spends the whole epsilon on it.

1. Heavy boxes: users report, through a frequency oracle, in which box of a public grid
   along a few random directions their point lies.
2. Candidates: users report their point about the midpoint of their box, turned by a
   public random sign, so that the server can sum over any box. The means of the heavy
   boxes are clipped to their box.
3. Weights: users report which candidate is nearest, through an oracle. The weighted
   candidates are a coreset; k-means on them costs nothing.
4. Lloyd steps: users report their point about its nearest center.
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
    LocalModel,
    Reports,
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
PROJECTED_LENGTHS = 2.0  # half the intervals' range, in typical projected radii
HEAVY_STDDEVS = 2.5  # standard deviations of a heavy box above zero
SMALLEST_CLUSTER = 8  # a heavy box has a share of 1 / (8 k) of the users

# Candidates.
MAX_CANDIDATES = 4  # per cluster
FALLBACK = 2  # candidates per cluster, where fewer than k boxes are heavy
MIN_WEIGHT = 1e-9  # of a candidate in the k-means
N_INIT = 10  # starts of the k-means on the candidates, which cost no privacy

# Radii of Lloyd steps, in distances to the nearest other center.
FIRST_RADIUS = 0.5
LATER_RADIUS = 0.3


class KaplanStemmerLocal(CoresetMethod, LocalModel):
    """k-means on weighted means of heavy boxes, from randomized reports.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Of every user's only report: pure, local adjacency. At most 40.
    radius : float or "auto", default="auto"
        Of the public ball about the midpoint of the domain that users move their point
        into, in half-widths. ``auto`` is sqrt(d): the whole domain. Boxes and noise are
        in proportion to it.
    projections : int or "auto", default="auto"
        Number of random directions that boxes are cut along; ``auto`` is min(4, d).
    intervals : int or "auto", default="auto"
        Per direction; ``auto`` is as many as keep a box above the noise, see
        :meth:`resolved_intervals`.
    passes : int, default=1
        Rounds that locate candidates; each but the first about the candidates so far,
        within the size of a box.
    lloyd_steps : int, default=2
        Rounds that move the chosen centers.
    shares : sequence of float or "auto", default="auto"
        Of the users, one per round: heavy boxes, passes, weights, Lloyd steps. ``auto``
        is 0.25, 0.2 over all passes, 0.15, and 0.4 over all steps.
    secure : bool, default=False
        Draw the users' randomness from the operating system's entropy instead of the
        seed.
    bounds, clip, random_state
        As for :class:`pkm.methods.PrivateKMeans`.

    Raises
    ------
    ValueError
        For fewer users than cohorts, and where noise would hide even a box that all
        users of a cohort share; the messages name a sufficient n or epsilon.

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
        **LocalModel.constraints,
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
            That report their box.
        n_projections : int

        Returns
        -------
        int
            The parameter, or as many as make boxes that would each exceed the noise if
            half of them were empty and the others had equally many users, within a
            public range: never so few that k clusters could not be separated.
        """
        if self.intervals != "auto":
            return self.intervals
        noise = HEAVY_STDDEVS * math.sqrt(min_users(self.epsilon))
        n_boxes = 2 * math.sqrt(n_users) / noise
        min_intervals, max_intervals = INTERVALS.get(n_projections, MANY_INTERVALS)
        intervals = round(n_boxes ** (1 / n_projections))
        intervals = min(max(intervals, min_intervals), max_intervals)
        needed = (FALLBACK * self.n_clusters) ** (1 / n_projections)
        return max(intervals, math.ceil(needed - 1e-9))

    def plan_reports(
        self,
        n_points: int,
        n_features: int,
    ) -> Reports:
        """Boxes, sums in every pass, weights, sums in every Lloyd step."""
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
        n_locating = 2 + self.passes
        candidates, weights = self._locate(cohorts[:n_locating], generator)

        # Cluster the weighted candidates; those without weight only where the others
        # are too few.
        k = self.n_clusters
        positive = weights > 0
        if positive.sum() < k:
            positive[:] = True
        points = candidates[positive].astype(np.float64)
        masses = np.maximum(weights[positive], MIN_WEIGHT)
        seed = int(generator.integers(2**32))
        centers = weighted_kmeans(points, masses, k, N_INIT, seed)
        centers = snap_centers(centers)

        # Refine the centers, with fresh users in every step.
        for step, cohort in enumerate(cohorts[n_locating:]):
            radius = LATER_RADIUS if step else FIRST_RADIUS
            centers = self._lloyd_step(cohort, centers, candidates, weights, radius)
        return centers[None], len(cohorts)

    def weighted_candidates(
        self, aggregator: LocalAggregator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find candidates and their weights, without users for Lloyd steps.

        See :meth:`CoresetMethod.weighted_candidates`.
        """
        cohorts = self._divide(aggregator, 2 + self.passes)
        candidates, weights = self._locate(cohorts, aggregator.public_rng())
        return candidates, weights * aggregator.n_points

    def _locate(
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
                # As wide in all directions as a box is in those that it is cut along.
                half_diagonal = boxes.width * math.sqrt(cohort.n_features) / 2
                radii = np.full(len(cells), half_diagonal)
            steps = self._mean_steps(cohort, boxes, cells, candidates, radii, sizes)
            clipped = boxes.clip(cells, candidates / SCALE + steps)
            candidates = snap_to_ball(clipped, cohort.radius)

        # 3. Weights. The number of candidates depends on reports, so the oracle is for
        # its maximum.
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
        d = cohort.n_features
        n_projections = self.resolved_projections(d)
        intervals = self.resolved_intervals(cohort.size, n_projections)
        normals = generator.standard_normal((d, n_projections))
        basis = np.linalg.qr(normals)[0].T

        # A vector of length R has projections of about R / sqrt(d). One more interval
        # makes room for the shift.
        projected = PROJECTED_LENGTHS / math.sqrt(d)
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
        k = self.n_clusters
        counts, stddev = self._count(cohort, boxes, boxes.size)
        fullest = np.argsort(-counts, kind="stable")[: MAX_CANDIDATES * k]
        smallest = cohort.size / (SMALLEST_CLUSTER * k)
        bound = max(HEAVY_STDDEVS * stddev, smallest)
        heavy = fullest[counts[fullest] > bound]
        if len(heavy) < k:
            heavy = fullest[: FALLBACK * k]
        return heavy, np.maximum(counts[heavy], stddev) / cohort.size

    def _midpoints(
        self,
        boxes: Boxes,
        cells: np.ndarray,
        radius: float,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return midpoints on the grid, and how far points of their boxes can be."""
        midpoints = snap_to_ball(boxes.midpoints(cells), radius)
        n_projections = len(boxes.lower)

        # Half a diagonal along the directions of the cuts, the ball's extent across
        # them.
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
        """Move centers by the mean of the users' reports about their nearest center."""
        rule = NearestCenter(centers)
        k = len(centers)

        # Share of the users of each cluster; one without weight counts as barely
        # detectable.
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
        """Shrunken means of the users in cells about their origins, in half-widths.

        The shares are those of all users that are in each cell.
        """
        sums, stddev = self._sum(cohort, rule, cells, origins, radii)
        return shrunken_means(sums, shares * cohort.size, radii, stddev)
