"""Kaplan and Stemmer's private k-means in the central model (NeurIPS 2018): a reconstruction.

The paper's extended abstract fixes the outline: locality sensitive hashing isolates groups of points, private averages
recover their centers; this is repeated on the points that are farthest from all centers so far, so that smaller groups
are found; then k of the candidates are chosen by private local search, or the candidates with the numbers of points
nearest to them stand for the data as a private coreset. The hash, the averages, the coreset and all constants are in a
full version that we could not obtain; they are ours here, from the tools that the authors name. See
docs/kaplan-stemmer.md for what is whose.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from pkm.compute import largest_packing
from pkm.compute.hashing import euclidean_hash
from pkm.methods.base import PrivateKMeans, is_integer, is_number
from pkm.methods.coreset import CoresetMethod, consistent
from pkm.methods.local_search import MOVES, private_local_search
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import SCALE, Curator, PrivacyClaim, gaussian_mu
from pkm.privacy.hashed_points import HashedPoints, histogram_noise
from pkm.privacy.noise import INITIALIZATION, child

# What is set here was chosen on generated mixtures of the kind that the planted sets are made of, not on real data.
CANDIDATE_SHARE, SELECTION_SHARE, LLOYD_SHARE = 0.5, 0.25, 0.25  # of mu squared
HISTOGRAM_SHARE = 0.5  # of the candidates' part, the rest is for averages
THRESHOLD_DELTA = 0.5  # of delta, the rest is for the noise
COARSE = 0.5  # reach of a coarse average, in radii of the ball
LLOYD_REACH = 2  # of a Lloyd step, in the smallest widths
WIDTHS = (1 / 2, 1 / 4)  # of buckets, in radii of the ball
MANY_CLUSTERS, WIDTHS_FOR_MANY = 50, (1 / 2, 1 / 4, 1 / 8)
FEW_FEATURES, WIDTHS_IN_FEW, WIDTH_IN_FEW = 3, (1 / 4, 1 / 8), 1 / 6
REPETITIONS = 2
PROJECTIONS = 4
SMALLEST_CLUSTER = 8  # a bucket must have a share of 1 / (8 k) of the points
N_INIT = 10  # starts of the k-means on candidates: free


@dataclass(frozen=True)
class Plan:
    """What is asked of the curator, from public quantities only.

    Attributes
    ----------
    rounds : int
    widths : tuple of float
        In radii of the ball.
    repetitions : int
    histogram_mu, average_mu : float
        Cost of one histogram, and of the averages of its buckets.
    delta : float
        Of one histogram's threshold.
    selection_mu : float
        Cost of the counts or of the local search.
    lloyd_mu : float
        Cost of one Lloyd step.
    """

    rounds: int
    widths: tuple[float, ...]
    repetitions: int
    histogram_mu: float
    average_mu: float
    delta: float
    selection_mu: float
    lloyd_mu: float

    @property
    def threshold(self) -> float:
        """Least noisy count that leaves the first round, in records."""
        return histogram_noise(self.histogram_mu, self.delta, restricted=False).threshold


@dataclass(eq=False, repr=False)
class KaplanStemmer(CoresetMethod):
    """Candidates by hashing and private averages, twice over, then k of them.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Total, zero-out adjacency.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6. Half is for the thresholds, half for the Gaussian noise.
    radius : float or "auto", default="auto"
        Of the public ball about the middle of the domain that points are pulled into, in half-widths. ``auto`` is
        sqrt(d): the whole domain. A tight ball is worth a lot: buckets and noise are in proportion to it.
    rounds : int, default=2
        Most passes; each but the first looks at the points farthest from the candidates so far.
    keep : float, default=0.5
        Part of the points that the next pass looks at.
    select : {"counts", "local_search"}, default="counts"
        ``counts`` clusters the candidates weighted by the noisy numbers of points nearest to them; ``local_search`` is
        the paper's choice by the exponential mechanism.
    search_rounds : int, default=20
        Swaps of the local search.
    moves : {"all", "round_robin"}, default="all"
        Swaps that the local search draws from.
    lloyd_steps : int, default=1
        Noisy Lloyd steps at the end; their part of the budget goes to the rest if there are none.
    release : {"centers", "candidates"}, default="centers"
        ``candidates`` stops after the last pass and returns all candidates as centers; the whole budget is theirs.
    widths : sequence of float or "auto", default="auto"
        Of buckets, in radii of the ball.
    repetitions : int or "auto", default="auto"
        Hashes per width and pass.
    projections : int, default=4
        Of a hash; at most d are used.
    secure : bool, default=False
        Draw noise from the operating system's entropy instead of the seed.
    bounds, clip, random_state
        As for :class:`pkm.methods.base.PrivateKMeans`.

    Raises
    ------
    ValueError
        For too little budget, where there is nothing to fall back to: see Notes.

    Notes
    -----
    ``auto`` takes the first schedule of a public list, from many hashes to one, whose threshold is at most n / (3 k):
    each hash costs budget, and below that no cluster would be seen. Where the threshold is above n even for a
    single hash, no bucket can pass. Centers then come from a packing that ignores the data and from the Lloyd steps;
    candidates, a coreset, or a schedule that the parameters fix are refused.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.25], [0.5, 0.5]], 5000, axis=0)
    >>> model = KaplanStemmer(n_clusters=2, epsilon=1.0, random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(2).tolist())
    [[-0.5, 0.25], [0.5, 0.5]]
    """

    label: ClassVar[str] = "Kaplan-Stemmer"
    color: ClassVar[str] = "#7a3e9d"
    marker: ClassVar[str] = "*"
    claims: ClassVar[dict[str, PrivacyClaim]] = {"sound": PrivacyClaim("approximate")}
    choices: ClassVar[dict[str, tuple]] = {
        **PrivateKMeans.choices,
        "select": ("counts", "local_search"),
        "moves": MOVES,
        "release": ("centers", "candidates"),
        "secure": (True, False),
    }
    batched: ClassVar[bool] = False

    _: KW_ONLY
    epsilon: float = 1.0
    delta: float | str = "auto"
    radius: float | str = "auto"
    rounds: int = 2
    keep: float = 0.5
    select: str = "counts"
    search_rounds: int = 20
    moves: str = "all"
    lloyd_steps: int = 1
    release: str = "centers"
    widths: Sequence[float] | str = "auto"
    repetitions: int | str = "auto"
    projections: int = PROJECTIONS
    secure: bool = False

    def check_parameters(self, n_points=None):
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        if self.radius != "auto" and not (is_number(self.radius) and 0 < self.radius < math.inf):
            raise ValueError(f"radius={self.radius!r} must be 'auto' or a positive finite number")
        for name in ("rounds", "search_rounds", "projections"):
            value = getattr(self, name)
            if not (is_integer(value) and value >= 1):
                raise ValueError(f"{name}={value!r} must be an integer of at least 1")
        if not (is_integer(self.lloyd_steps) and self.lloyd_steps >= 0):
            raise ValueError(f"lloyd_steps={self.lloyd_steps!r} must be an integer of at least 0")
        if not (is_number(self.keep) and 0 < self.keep < 1):
            raise ValueError(f"keep={self.keep!r} must be a number in (0, 1)")
        if self.repetitions != "auto" and not (
            is_integer(self.repetitions) and self.repetitions >= 1
        ):
            raise ValueError(
                f"repetitions={self.repetitions!r} must be 'auto' or an integer of at least 1"
            )
        if self.widths != "auto":
            numbers = not isinstance(self.widths, str) and all(
                is_number(w) and 0 < w < math.inf for w in self.widths
            )
            if not (numbers and len(self.widths)):
                raise ValueError(
                    f"widths={self.widths!r} must be 'auto' or one or more positive finite numbers"
                )

    def plan(self, n_points: int, n_features: int, *, only: str = "centers") -> Plan:
        """Everything that is asked, before the first question.

        Parameters
        ----------
        n_points, n_features : int
        only : {"centers", "coreset", "candidates"}, default="centers"
            What is to be released: what is not asked for needs no budget.

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            If no bucket can pass and there is nothing to fall back to.
        """
        lloyd = LLOYD_SHARE if only == "centers" and self.lloyd_steps else 0.0
        selection = 0.0 if only == "candidates" else SELECTION_SHARE
        total = CANDIDATE_SHARE + selection + lloyd
        delta = self.resolved_delta(n_points)
        mu = gaussian_mu(self.epsilon, (1 - THRESHOLD_DELTA) * delta)
        for rounds, widths, repetitions in self._schedules(n_features):
            hashes = rounds * len(widths) * repetitions
            each = mu * math.sqrt(CANDIDATE_SHARE / total / hashes)
            plan = Plan(
                rounds,
                widths,
                repetitions,
                each * math.sqrt(HISTOGRAM_SHARE),
                each * math.sqrt(1 - HISTOGRAM_SHARE),
                THRESHOLD_DELTA * delta / hashes,
                mu * math.sqrt(selection / total),
                mu * math.sqrt(lloyd / total / max(self.lloyd_steps, 1)),
            )
            if plan.threshold <= n_points / (3 * self.n_clusters):
                break
        if plan.threshold > n_points and (
            only != "centers" or "auto" not in (self.widths, self.repetitions)
        ):
            raise ValueError(self._too_little(plan, n_points))
        return plan

    def _schedules(self, n_features: int) -> list[tuple[int, tuple[float, ...], int]]:
        """Rounds, widths and repetitions, from the most hashes to the fewest."""
        if self.widths != "auto":
            several = one = tuple(float(width) for width in self.widths)
        else:
            several = WIDTHS_FOR_MANY if self.n_clusters > MANY_CLUSTERS else WIDTHS
            several = WIDTHS_IN_FEW if n_features <= FEW_FEATURES else several
            one = (WIDTH_IN_FEW if n_features <= FEW_FEATURES else WIDTHS[-1],)
        twice, once = (
            (REPETITIONS, 1) if self.repetitions == "auto" else (self.repetitions, self.repetitions)
        )
        return [
            (self.rounds, several, twice),
            (self.rounds, several, once),
            (self.rounds, one, once),
            (1, one, once),
        ]

    def _too_little(self, plan: Plan, n_points: int) -> str:
        least = math.ceil(plan.threshold)
        epsilon, histogram = self.epsilon, plan.histogram_mu / gaussian_mu(self.epsilon, plan.delta)
        while (
            histogram_noise(
                histogram * gaussian_mu(epsilon, plan.delta), plan.delta, restricted=False
            ).threshold
            > n_points
        ):
            epsilon *= 1.1
            if epsilon > 1e6:
                return f"n={n_points} records are too few for one release: n={least} would do at epsilon={self.epsilon:g}"
        return (
            f"epsilon={self.epsilon:g} is too little for one release from n={n_points} records: buckets need a noisy "
            f"count of {plan.threshold:.1f}; about n={least} or epsilon={epsilon:.3g} would do"
        )

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run one replicate; see :meth:`PrivateKMeans.cluster`."""
        plan = self.plan(curator.n_points, curator.n_features, only=self.release)
        buckets = curator.hashed_points(self._radius(curator.n_features))
        generator = np.random.default_rng(child(curator.seeds[0], INITIALIZATION))
        candidates = self._candidates(plan, buckets, generator)
        if self.release == "candidates":
            return candidates[None], plan.rounds
        candidates = self._padded(candidates, buckets, generator)
        if self.select == "counts":
            centers = self._weighted(
                candidates, buckets.counts(candidates, mu=plan.selection_mu), plan, generator
            )
        else:
            centers = private_local_search(
                buckets,
                candidates,
                self.n_clusters,
                rounds=self.search_rounds,
                mu=plan.selection_mu,
                generator=generator,
                moves=self.moves,
            )
        centers = buckets.into_ball(centers)
        for _ in range(self.lloyd_steps):
            centers = self._lloyd_step(centers, plan, buckets)
        return centers[None], plan.rounds

    def weighted_candidates(self, curator: Curator) -> tuple[np.ndarray, np.ndarray]:
        """Candidates and their noisy numbers of points; see :meth:`CoresetMethod.weighted_candidates`."""
        plan = self.plan(curator.n_points, curator.n_features, only="coreset")
        buckets = curator.hashed_points(self._radius(curator.n_features))
        candidates = self._candidates(
            plan, buckets, np.random.default_rng(child(curator.seeds[0], INITIALIZATION))
        )
        counts = buckets.counts(candidates, mu=plan.selection_mu)
        return candidates, consistent(counts, float(curator.n_points))

    def _radius(self, n_features: int) -> float:
        return math.sqrt(n_features) if self.radius == "auto" else self.radius

    def _candidates(
        self, plan: Plan, buckets: HashedPoints, generator: np.random.Generator
    ) -> np.ndarray:
        """All passes: candidates on the grid, distinct, in lexicographic order; at least one."""
        found = np.empty((0, buckets.n_features), np.int64)
        for number in range(plan.rounds):
            if number:
                buckets.filter_farthest(found, self.keep)
            for width in plan.widths:
                for _ in range(plan.repetitions):
                    found = np.concatenate(
                        [found, self._private_centers(width, plan, buckets, generator)]
                    )
            # The middle of the domain, if there is nothing.
            found = (
                np.unique(found, axis=0)
                if len(found)
                else np.zeros((1, buckets.n_features), np.int64)
            )
        return found

    def _private_centers(
        self, width: float, plan: Plan, buckets: HashedPoints, generator
    ) -> np.ndarray:
        """Centers of the large buckets of one hash: a coarse average, then one of what lies around it."""
        projections = min(self.projections, buckets.n_features)
        if buckets.n_features <= FEW_FEATURES:
            projections = buckets.n_features
        width *= buckets.radius
        hashing = euclidean_hash(generator, projections, buckets.n_features, width)
        least = buckets.n_restricted / (SMALLEST_CLUSTER * self.n_clusters)
        codes, counts = buckets.histogram(
            hashing, mu=plan.histogram_mu, delta=plan.delta, min_count=least
        )
        centers = buckets.into_ball(hashing.cell_centers(codes))
        # The coarse average only has to come within the reach of the fine one: what it shortens hardly matters.
        reaches = (COARSE * buckets.radius, min(width, COARSE * buckets.radius))
        if (
            projections == buckets.n_features
        ):  # buckets are cubes, whose corners are this far from their middles
            reaches = (width * math.sqrt(projections) / 2,)
        for reach in reaches:
            sums = buckets.sums(
                hashing, codes, centers, reach, mu=plan.average_mu / math.sqrt(len(reaches))
            )
            centers = buckets.into_ball(centers + sums / np.maximum(counts, 1.0)[:, None])
        return centers

    def _padded(
        self, candidates: np.ndarray, buckets: HashedPoints, generator: np.random.Generator
    ) -> np.ndarray:
        """At least k distinct candidates: what is missing is packed into the ball, whatever the data are."""
        k, d = self.n_clusters, buckets.n_features
        if len(candidates) >= k:
            return candidates
        source = np.random.RandomState(int(generator.integers(2**32)))
        packed = largest_packing(source, k, d, "bisection") * (
            buckets.radius / math.sqrt(d) * SCALE
        )
        return np.concatenate([candidates, buckets.into_ball(packed)[: k - len(candidates)]])

    def _weighted(self, candidates, counts, plan: Plan, generator) -> np.ndarray:
        """Weighted k-means on candidates whose counts stand out of the noise; the k heaviest if these are too few."""
        weights = np.where(counts < 1 / plan.selection_mu, 0.0, counts)
        state = int(generator.integers(2**32))
        if np.count_nonzero(weights) <= self.n_clusters:
            return candidates[
                np.sort(np.argsort(-counts, kind="stable")[: self.n_clusters])
            ].astype(np.float64)
        some = weights > 0
        return weighted_kmeans(
            candidates[some].astype(np.float64), weights[some], self.n_clusters, N_INIT, state
        )

    def _lloyd_step(self, centers: np.ndarray, plan: Plan, buckets: HashedPoints) -> np.ndarray:
        """Move each center by the noisy mean difference of the points nearest to it."""
        radius = min(plan.widths) * buckets.radius * LLOYD_REACH
        # Of the error of a mean, the sum's part is sqrt(d) radius, the count's the distance moved, say half the radius.
        parts = math.sqrt(buckets.n_features), 0.5
        sum_mu, count_mu = (plan.lloyd_mu * math.sqrt(part / sum(parts)) for part in parts)
        sums, counts = buckets.sums_and_counts(centers, radius, sum_mu=sum_mu, count_mu=count_mu)
        moved = centers + sums / np.maximum(counts, 1.0)[:, None]
        return buckets.into_ball(np.where(counts[:, None] < 1, centers, moved))
