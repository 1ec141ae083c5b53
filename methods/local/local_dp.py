"""Methods of the local model: their base class, and three baselines.

Every user sends one report, randomized on the user's side, so that no other party is
trusted. Users are divided into disjoint cohorts; those of one answer the same query.
The baselines are a mean, Lloyd's algorithm with other users in every round, and noise
on every point. The method that they are compared with is
:class:`pkm.methods.KaplanStemmerLocal`.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Literal

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from threadpoolctl import threadpool_limits

from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import AUTO, Integer, OneOf, Real
from pkm.methods.initialization import starting_centers
from pkm.methods.schedule import Schedule, plan_release, smallest_epsilon
from pkm.privacy import SCALE, PrivacyClaim, Query
from pkm.privacy.budget import Adjacency
from pkm.privacy.local_aggregator import (
    Cohort,
    LocalAggregator,
    LocalCounts,
    LocalPoints,
    LocalSums,
    NearestCenter,
    Rule,
    SingleCell,
)
from pkm.privacy.mechanisms.randomizers import (
    MAX_EPSILON,
    REPORT_SCALE,
    LocalHashing,
    SignedSums,
    VectorRandomizer,
    check_epsilon,
    frequency_oracle,
)

# Of the mini-batch k-means on noisy points.
BATCH_SIZE = 1 << 13
MAX_EPOCHS = 10

#: Query and randomizer of every cohort, in order.
CohortPlan = list[tuple[type[Query], Any]]


class LocalModel(PrivateKMeans):
    """Base class of the methods of the local model: common parameters and steps."""

    claims = {"sound": PrivacyClaim("pure", Adjacency.LOCAL, "local")}
    constraints = {"radius": AUTO | Real(0)}
    curator = LocalAggregator
    batched = False

    epsilon: float = 1.0
    radius: float | Literal["auto"] = "auto"

    def check_parameters(self, n_points: int | None = None) -> None:
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        check_epsilon(self.epsilon)
        shares = self.resolved_shares()
        # A baseline with one cohort may return noise.
        if n_points is not None and len(shares) > 1:
            check_sufficient_users(self.epsilon, n_points, shares)

    def resolved_shares(self) -> Sequence[float]:
        """Shares of the users, of any sum, one per cohort."""
        return [1.0]

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Schedule:
        """All releases; see :meth:`PrivateKMeans.schedule`.

        Every cohort of users makes one release, at the whole epsilon.
        """
        reports = self.plan_reports(n_points, n_features)
        releases = [
            plan_release(query, mechanism, epsilon=self.epsilon, group=cohort)
            for cohort, (query, mechanism) in enumerate(reports)
        ]
        return Schedule(*releases)

    @abstractmethod
    def plan_reports(
        self,
        n_points: int,
        n_features: int,
    ) -> CohortPlan:
        """Query and randomizer of every cohort."""

    def _divide(
        self,
        aggregator: LocalAggregator,
        n_cohorts: int | None = None,
    ) -> list[Cohort]:
        """Partition the users into cohorts, with points clipped to the ball."""
        radius = None if self.radius == "auto" else self.radius
        return aggregator.cohorts(self.resolved_shares()[:n_cohorts], radius)

    def _count(
        self,
        cohort: Cohort,
        rule: Rule,
        n_values: int,
    ) -> tuple[np.ndarray, float]:
        """Estimate the number of users in each cell, and the noise of a count of 0."""
        # A frequency oracle: every user reports one cell at the whole epsilon.
        oracle = frequency_oracle(self.epsilon, n_values, cohort.key)
        counts = cohort.release(LocalCounts(rule), counts=oracle)["counts"]
        return counts / SCALE, oracle.stddev(cohort.size)

    def _sum(
        self,
        cohort: Cohort,
        rule: Rule,
        cells: np.ndarray,
        origins: np.ndarray,
        radii: np.ndarray,
    ) -> tuple[np.ndarray, float]:
        """Estimate sums (m, d) of differences to origins, and their noise, in radii."""
        # Every user reports one vector at the whole epsilon.
        randomizer = SignedSums(self.epsilon, cohort.n_features, cohort.key)
        query = LocalSums(rule, cells, origins, radii)
        sums = cohort.release(query, sums=randomizer)["sums"]
        return sums / SCALE, randomizer.sum_stddev(cohort.size)


class LocalMean(LocalModel):
    """Mean of the users' reports as the only center: a baseline.

    Parameters
    ----------
    n_clusters : int, default=1
        Accepted and without effect.
    epsilon : float, default=1.0
        Budget of every user's only report: pure, local adjacency. At most 40.
    radius : float or "auto", default="auto"
        Radius of the public ball about the midpoint of the domain that users clip their
        point to, in half-widths. ``auto`` is sqrt(d): the whole domain.
    secure : bool, default=False
        Draw the users' randomness from the operating system's entropy instead of the
        seed.
    bounds, clip, random_state, missing
        As for :class:`pkm.methods.PrivateKMeans`.
    zoom, require_zoom, report, adjacency
        For methods with a trusted curator: leave them out.

    See Also
    --------
    NoisyMean : The mean in the central model.
    KaplanStemmerLocal : More centers than one.
    """

    label = "local mean as only center"
    color = "#5a5a5a"
    marker = "x"
    n_clusters: int = field(default=1, kw_only=False)

    def plan_reports(
        self,
        n_points: int,
        n_features: int,
    ) -> CohortPlan:
        """One cohort: the sum of its points."""
        return [(LocalSums, SignedSums)]

    def cluster(self, aggregator: LocalAggregator) -> tuple[np.ndarray, int]:
        """Sum one report per user; see :meth:`PrivateKMeans.cluster`."""
        # One cell with all users; differences to the midpoint of the domain.
        (cohort,) = self._divide(aggregator)
        origin = np.zeros((1, aggregator.n_features), np.int64)
        radii = np.array([cohort.radius])
        cell = np.zeros(1, np.int64)
        sums, _ = self._sum(cohort, SingleCell(), cell, origin, radii)
        return snap_to_ball(sums / cohort.size, cohort.radius)[None], 1


class NoisedReports(LocalModel):
    """k-means on the users' noisy points.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon, radius, secure
        As for :class:`LocalMean`.
    n_init : int, default=1
        Starts of the k-means on the reports; they cost no privacy.
    bounds, clip, random_state, missing
        As for :class:`pkm.methods.PrivateKMeans`.
    zoom, require_zoom, report, adjacency
        For methods with a trusted curator: leave them out.

    See Also
    --------
    KaplanStemmerLocal : Counts and sums in place of noisy points.
    LocalMean : One center, the mean of all reports.
    NoisedPoints : A curator's noise for moves of at most rho.

    Notes
    -----
    Reports are unbiased. Their norm is several radii for any point, so that noise hides
    the clusters; it is not deconvolved. The k-means is scikit-learn's on mini-batches:
    full passes would hardly be better.
    """

    label = "k-means on noisy reports"
    color = "#0072b2"
    marker = "^"
    constraints = {"n_init": Integer(1)}

    n_init: int = 1

    def plan_reports(
        self,
        n_points: int,
        n_features: int,
    ) -> CohortPlan:
        """One cohort: its noisy points."""
        return [(LocalPoints, VectorRandomizer)]

    def cluster(self, aggregator: LocalAggregator) -> tuple[np.ndarray, int]:
        """Cluster one noised point per user; see :meth:`PrivateKMeans.cluster`."""
        # Noisy points: directions times a public length.
        (cohort,) = self._divide(aggregator)
        randomizer = VectorRandomizer(self.epsilon, aggregator.n_features)
        directions = cohort.release(LocalPoints(), points=randomizer)["points"]

        # Mini-batch k-means on the reports: post-processing.
        seed = int(aggregator.public_rng().integers(2**32))
        model = MiniBatchKMeans(
            self.n_clusters,
            n_init=self.n_init,  # pyright: ignore[reportArgumentType]
            batch_size=BATCH_SIZE,
            max_iter=MAX_EPOCHS,
            random_state=seed,
        )
        with threadpool_limits(1):  # the same bits on any number of cores
            model.fit(directions / np.float64(REPORT_SCALE))
        length = randomizer.length * cohort.radius
        centers = np.asarray(model.cluster_centers_) * length
        return snap_to_ball(centers, cohort.radius)[None], 1


class LocalLloyd(LocalModel):
    """Lloyd's algorithm, every round with users who have not reported before.

    A round has two cohorts. One reports the nearest center, through a frequency oracle.
    The other reports its points, with public random signs, so that the server can sum
    them for any cluster. A center moves to the ratio of sum and count.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon, radius, secure
        As for :class:`LocalMean`.
    n_iterations : int, default=3
        Number of rounds; each has an equal share of the users.
    count_share : float, default=0.5
        Share of a round's users, in (0, 1), whose nearest center is counted. The points
        of the others are summed.
    initialization : {"packing", "uniform"}, default="packing"
        Starting centers in the cube inscribed in the ball: those of packed spheres, or
        uniform points.
    bounds, clip, random_state, missing
        As for :class:`pkm.methods.PrivateKMeans`.
    zoom, require_zoom, report, adjacency
        For methods with a trusted curator: leave them out.

    Raises
    ------
    ValueError
        For too few users or too little budget; the message names a sufficient n or
        epsilon.

    See Also
    --------
    KaplanStemmerLocal : Finds heavy boxes first; their means are candidates.
    NoisedReports : All users report their points at once, and no rounds.
    FastLloyd : The central method; needs a trusted curator.
    """

    label = "local Lloyd"
    color = "#d55e00"
    marker = "v"
    constraints = {
        "n_iterations": Integer(1),
        "count_share": Real(0, 1),
        "initialization": OneOf("packing", "uniform"),
    }

    n_iterations: int = 3
    count_share: float = 0.5
    initialization: str = "packing"

    def plan_reports(
        self,
        n_points: int,
        n_features: int,
    ) -> CohortPlan:
        """Counts and sums, round by round."""
        oracle = frequency_oracle(self.epsilon, self.n_clusters)
        return [(LocalCounts, oracle), (LocalSums, SignedSums)] * self.n_iterations

    def resolved_shares(self) -> Sequence[float]:
        """Shares of the users: two cohorts per round."""
        return [self.count_share, 1 - self.count_share] * self.n_iterations

    def cluster(self, aggregator: LocalAggregator) -> tuple[np.ndarray, int]:
        """Run all rounds; see :meth:`PrivateKMeans.cluster`."""
        k = self.n_clusters
        d = aggregator.n_features
        cohorts = self._divide(aggregator)

        # Starting centers, in the cube inscribed in the ball.
        seeds = aggregator.public_seeds
        start = starting_centers(seeds, k, d, self.initialization, "bisection")[0]
        radius = cohorts[0].radius
        start = start / SCALE * radius / math.sqrt(d)
        centers = snap_to_ball(start, radius)

        cells = np.arange(k)
        origins = np.zeros((k, d), np.int64)
        radii = np.full(k, radius)
        rounds = zip(cohorts[::2], cohorts[1::2], strict=True)
        for count_cohort, sum_cohort in rounds:
            # Count users of one cohort by their nearest center; sum points of the
            # other.
            rule = NearestCenter(centers)
            counts, stddev = self._count(count_cohort, rule, k)
            sums, _ = self._sum(sum_cohort, rule, cells, origins, radii)

            # Move centers whose counts exceed the noise to the means. The counts are
            # scaled to the size of the other cohort.
            above_noise = counts > stddev
            sizes = np.where(above_noise, counts, 1.0)
            sizes *= sum_cohort.size / count_cohort.size
            means = snap_to_ball(sums / sizes[:, None], radius)
            centers = np.where(above_noise[:, None], means, centers)
        return centers[None], self.n_iterations


def snap_to_ball(
    points: np.ndarray,
    radius: float,
) -> np.ndarray:
    """Clip points (m, d), in half-widths, to a ball and the domain, on the grid."""
    # Clip the norm, then the coordinates.
    squares = points * points
    lengths = np.sqrt(squares.sum(axis=1, keepdims=True))
    lengths = np.maximum(lengths, np.finfo(float).tiny)
    inside = points * np.minimum(1.0, radius / lengths)
    inside = np.clip(inside, -1.0, 1.0)
    return np.rint(inside * SCALE).astype(np.int64)


def shrunken_means(
    sums: np.ndarray,
    sizes: np.ndarray,
    radii: np.ndarray,
    stddev: float,
) -> np.ndarray:
    """Means of noisy sums, by positive-part shrinkage as of James and Stein.

    Parameters
    ----------
    sums : ndarray of shape (m, d), float64
        In half-widths; see :class:`pkm.privacy.local_aggregator.LocalSums`.
    sizes : ndarray of shape (m,), float64
        Estimated numbers of users in each sum, positive.
    radii : ndarray of shape (m,), float64
        Norms that the summed vectors are clipped to, in half-widths.
    stddev : float
        Largest standard deviation of a sum's coordinate, in radii.

    Returns
    -------
    ndarray of shape (m, d), float64
        In half-widths.
    """
    # Factor max(0, 1 - E / |mean|^2), E the expected square of the mean's noise.
    d = sums.shape[1]
    means = sums / sizes[:, None]
    noise = d * (stddev * radii / sizes) ** 2
    square = (means * means).sum(axis=1)
    factors = 1 - noise / np.maximum(square, noise)
    return means * factors[:, None]


def min_users(epsilon: float) -> float:
    """Return the n for which the count of n users has noise of standard deviation n.

    The deviation is that of a value that no user has.

    Examples
    --------
    >>> round(min_users(1.0), 2)
    3.69
    """
    return LocalHashing(epsilon, 2).stddev(1) ** 2


def check_sufficient_users(
    epsilon: float,
    n_users: int,
    shares: Sequence[float],
) -> None:
    """Refuse a schedule in which noise hides a count for any data.

    Raises
    ------
    ValueError
        The message names a sufficient n and a sufficient epsilon.
    """
    # The smallest cohort has the largest noise.
    share = min(shares) / math.fsum(shares)

    def suffices(epsilon: float) -> bool:
        return min_users(epsilon) <= share * n_users

    if suffices(epsilon):
        return
    sufficient = f"n={math.ceil(min_users(epsilon) / share)} users"
    if suffices(MAX_EPSILON):
        smallest = smallest_epsilon(epsilon, suffices, MAX_EPSILON)
        sufficient += f" or epsilon={smallest:.3g}"
    raise ValueError(
        f"epsilon={epsilon} is too little for n={n_users} users in {len(shares)} "
        f"cohorts, the smallest with a share of {share:.3g}: noise would hide even a "
        f"value that all users of a cohort have; {sufficient} would suffice"
    )
