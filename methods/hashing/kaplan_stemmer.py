"""Kaplan and Stemmer's private k-means in the central model (NeurIPS 2018): a reconstruction.

The paper's extended abstract fixes the outline: locality sensitive hashing isolates
groups of points, private averages recover their centers; this is repeated on the points
that are farthest from all centers so far, so that smaller groups are found; then k of
the candidates are chosen by private local search, or the candidates with the numbers of
points nearest to them are a private coreset. The hash, the averages, the coreset and
all constants are in a full version that we could not obtain; the ones here are
reconstructed from the tools that the authors name. See docs/kaplan-stemmer.md for the
origin of each part.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

import numpy as np

from pkm.compute import largest_packing
from pkm.compute.kernels.hashing import euclidean_hash
from pkm.methods.constraints import AUTO, Integer, OneOf, Real
from pkm.methods.coreset import CoresetMethod, consistent
from pkm.methods.hashing.local_search import MOVES, plan_search, private_local_search
from pkm.methods.lloyd.noisy_steps import noisy_lloyd_step
from pkm.methods.schedule import Schedule, plan_release
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import (
    SCALE,
    BucketCounts,
    BucketSums,
    Charge,
    Curator,
    Gaussian,
    HashedPoints,
    NearestCounts,
    NearestShells,
    NearestSumsAndCounts,
    PrivacyClaim,
    StabilityHistogram,
    Swaps,
    gaussian_mu,
)
from pkm.privacy.queries.hashed_points import histogram_noise
from pkm.scalars import is_positive

# These constants were chosen on generated mixtures like those of the planted sets, not
# on real data.

# Shares of mu squared.
CANDIDATE_SHARE = 0.5
SELECTION_SHARE = 0.25
LLOYD_SHARE = (
    0.25  # by default; of what it leaves, candidates have twice as much as selection
)
HISTOGRAM_SHARE = 0.5  # of the candidates' part, the rest is for averages
THRESHOLD_DELTA_SHARE = 0.5  # of delta, the rest is for the noise
COARSE_RADIUS = 0.5  # of a coarse average, in radii of the ball
LLOYD_RADIUS = 2  # of a Lloyd step, in the smallest widths, where these are given
# Of a Lloyd step, and at least of a fine average, in radii of the ball: a cluster is
# round, however thin the buckets are that its points fall into.
CLUSTER_RADIUS = 1 / 5
# The same in a ball that points fill, while most of those in a cube are at about half
# of its radius: one that was found (a zoom), and one that is given where features are
# many.
WIDTHS_IN_BALL = 2.0  # over those in a cube
CLUSTER_RADIUS_IN_BALL = 3 / 10
MANY_FEATURES = 16
# Widths of buckets, in radii of the ball over sqrt(d), which is about what a projection
# of the domain on a line extends to: by default, and for many clusters.
WIDTHS = (1.0, 1 / 2)
MANY_CLUSTERS = 50
WIDTHS_FOR_MANY_CLUSTERS = (1.0, 1 / 2, 1 / 4)
# For few features, in radii of the ball.
FEW_FEATURES = 3
WIDTHS_FOR_FEW_FEATURES = (1 / 4, 1 / 8)
WIDTH_FOR_FEW_FEATURES = 1 / 6
REPETITIONS = 2
PROJECTIONS = 4
SMALLEST_CLUSTER = 8  # a bucket must have a share of 1 / (8 k) of the points
N_INIT = 10  # starts of the k-means on candidates, which cost no privacy
# Of a Lloyd step whose radius is released: what the radius costs, of mu squared of all
# steps.
SHELL_SHARE = 0.05
SHELL_RATIO = 2**-0.5
SHELLS = 15  # down to 1/128 of the radius that is planned
TAIL = 2.5  # standard deviations that the number of points outside a radius must exceed
LEFT_OUT = 0.01  # share of the points that may be outside
# By default it is released for more than a few features with at least this many records
# of a center, in standard deviations of the noise that a count would have if it were
# all that is released: n mu / k.
RELEASED_RECORDS = 200.0


#: Rounds, widths and repetitions.
_Hashes = tuple[int, tuple[float, ...], int]


@dataclass(frozen=True)
class LloydFinish:
    """Lloyd steps at the end.

    Attributes
    ----------
    share : float
        Of mu squared, for all steps together; the rest is for candidates and their
        counts.
    n_averaged : int
        Centers are the average of those after the last so many steps.
    min_count : float
        Smallest count that a step divides by, in standard deviations of its noise.
    largest_radius : float
        Of steps whose radius is released, in radii of the ball: more than what is
        planned otherwise, if at all.
    """

    share: float = LLOYD_SHARE
    n_averaged: int = 1
    min_count: float = 0.0
    largest_radius: float = 0.0


@dataclass(frozen=True)
class HashSchedule(Schedule):
    """Histograms and averages of hashes, the choice of centers, Lloyd steps.

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
    shells_mu : float
        Cost of the radius of Lloyd steps where it is released, else 0.
    lloyd_mu : float
        Cost of one Lloyd step.
    fine_radius, lloyd_radius : float
        Of the last average of a bucket, which is at least its width, and of a Lloyd
        step, in radii of the ball.
    n_averages : int
        Releases of averages, for each histogram.
    n_swaps : int
        Of the local search; 0 where candidates are counted.
    n_steps : int
        Lloyd steps.
    finish : LloydFinish
    """

    rounds: int
    widths: tuple[float, ...]
    repetitions: int
    histogram_mu: float
    average_mu: float
    delta: float
    selection_mu: float
    shells_mu: float
    lloyd_mu: float
    fine_radius: float
    lloyd_radius: float
    n_averages: int
    n_swaps: int
    n_steps: int
    finish: LloydFinish

    @property
    def releases(self) -> Sequence[Charge]:
        """Hash by hash, then the choice, the radius of the steps, and the steps."""
        n_hashes = self.rounds * len(self.widths) * self.repetitions
        average_mu = self.average_mu / math.sqrt(self.n_averages)
        histogram = plan_release(
            BucketCounts, StabilityHistogram, mu=self.histogram_mu, delta=self.delta
        )
        average = plan_release(BucketSums, Gaussian, mu=average_mu)
        selection = [plan_release(NearestCounts, Gaussian, mu=self.selection_mu)]
        if self.n_swaps:
            selection = plan_search(self.n_swaps, self.selection_mu)
        shells = plan_release(NearestShells, Gaussian, mu=self.shells_mu)
        step = plan_release(NearestSumsAndCounts, Gaussian, mu=self.lloyd_mu)
        return [
            *[histogram, *[average] * self.n_averages] * n_hashes,
            *selection * (self.selection_mu > 0),
            *[shells] * (self.shells_mu > 0),
            *[step] * self.n_steps,
        ]

    @property
    def threshold(self) -> float:
        """Smallest noisy count that the first round releases, in records."""
        return histogram_noise(
            self.histogram_mu, self.delta, restricted=False
        ).threshold


@dataclass(eq=False, repr=False)
class KaplanStemmer(CoresetMethod):
    """Candidates by hashing and private averages, in two rounds, then k of them.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Total, zero-out adjacency.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6. Half is for the thresholds, half for the Gaussian noise.
    radius : float or "auto", default="auto"
        Of the public ball about the midpoint of the domain that points are moved into,
        in half-widths. ``auto`` is sqrt(d): the whole domain. Buckets and noise are in
        proportion to it, so that a tight ball lowers the error. Beyond 16 features
        points are taken to fill a ball that is given, and ``auto`` widths are twice as
        large in it.
    rounds : int, default=2
        Maximum number of passes; each but the first is on the points farthest from the
        candidates so far.
    keep : float, default=0.5
        Fraction of the points that the next pass is on.
    select : {"counts", "local_search"}, default="counts"
        ``counts`` clusters the candidates weighted by the noisy numbers of points
        nearest to them; ``local_search`` is the paper's choice by the exponential
        mechanism.
    search_rounds : int, default=20
        Swaps of the local search.
    moves : {"all", "round_robin"}, default="all"
        Swaps that the local search draws from.
    lloyd_steps : int, default=1
        Noisy Lloyd steps at the end; without any, their part of the budget goes to the
        other releases.
    step_radius : {"auto", "planned", "released"}, default="auto"
        Beyond which a Lloyd step shortens differences. ``planned`` is a part of the
        ball's radius, the same for any data. ``released`` spends a twentieth of the
        steps' budget on numbers of points by their distance to the nearest center, and
        takes the smallest radius that holds nearly all of them: for clusters that are
        much smaller than the ball. ``auto`` releases it for more than three features
        with at least 200 records of each center, in standard deviations of the noise
        that a count would have if it were all that is released.
    release : {"centers", "candidates"}, default="centers"
        ``candidates`` stops after the last pass and returns all candidates as centers;
        the whole budget is theirs.
    widths : sequence of float or "auto", default="auto"
        Of buckets, in radii of the ball. ``auto`` is 1 / sqrt(d) and half of it: the
        projections of the domain on lines get shorter than the ball with the number of
        features d. For more than 50 clusters also a quarter of it; for up to three
        features 1/4 and 1/8. Widths that are given also set the radii of averages and
        of Lloyd steps: ``[1/2, 1/4]`` is what this method took whatever d before.
    repetitions : int or "auto", default="auto"
        Hashes per width and pass.
    projections : int, default=4
        Of a hash; at most d are used.
    bounds, clip, random_state, secure
        As for :class:`pkm.methods.PrivateKMeans`.

    Raises
    ------
    ValueError
        For too little budget, where there is nothing to fall back to: see Notes.

    Notes
    -----
    ``auto`` takes the first schedule of a public list, from many hashes to one, whose
    threshold is at most n / (3 k): each hash costs budget, and below that no cluster
    would be found. Where the threshold is above n even for a single hash, no bucket can
    pass. Centers then come from a packing that ignores the data and from the Lloyd
    steps; candidates, a coreset, or a schedule that the parameters fix are refused.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.25], [0.5, 0.5]], 5000, axis=0)
    >>> model = KaplanStemmer(n_clusters=2, epsilon=1.0, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(2).tolist())
    [[-0.5, 0.25], [0.5, 0.5]]
    """

    label = "Kaplan-Stemmer"
    color = "#7a3e9d"
    marker = "*"
    claims = {"sound": PrivacyClaim("approximate")}
    constraints = {
        **CoresetMethod.constraints,
        "radius": AUTO | Real(0),
        "rounds": Integer(1),
        "keep": Real(0, 1),
        "select": OneOf("counts", "local_search"),
        "search_rounds": Integer(1),
        "moves": OneOf(*MOVES),
        "lloyd_steps": Integer(0),
        "step_radius": OneOf("auto", "planned", "released"),
        "release": OneOf("centers", "candidates"),
        "repetitions": AUTO | Integer(1),
        "projections": Integer(1),
    }
    noise_key_defaults = {"step_radius": "auto"}
    batched = False
    supports_chunks = True
    supports_ball = True

    _: KW_ONLY
    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    radius: float | Literal["auto"] = "auto"
    rounds: int = 2
    keep: float = 0.5
    select: str = "counts"
    search_rounds: int = 20
    moves: str = "all"
    lloyd_steps: int = 1
    step_radius: str = "auto"
    release: str = "centers"
    widths: Sequence[float] | Literal["auto"] = "auto"
    repetitions: int | Literal["auto"] = "auto"
    projections: int = PROJECTIONS

    def check_parameters(self, n_points: int | None = None) -> None:
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        if self.widths != "auto":
            numbers = not isinstance(self.widths, str) and all(
                is_positive(width) for width in self.widths
            )
            if not (numbers and len(self.widths)):
                raise ValueError(
                    f"widths={self.widths!r} must be 'auto' or one or more positive finite numbers"
                )

    # The schedule

    def schedule(
        self,
        n_points: int,
        n_features: int,
        *,
        only: str | None = None,
        in_ball: bool = False,
        finish: LloydFinish = LloydFinish(),
    ) -> HashSchedule:
        """All releases; see :meth:`PrivateKMeans.schedule`.

        Parameters
        ----------
        n_points, n_features : int
        only : {"centers", "coreset", "candidates"}, optional
            What is to be released: what is not requested needs no budget. Default:
            ``release``.
        in_ball : bool, default=False
            Whether the domain is a ball that points fill. Costs are the same in one.
        finish : LloydFinish, optional

        Returns
        -------
        HashSchedule

        Raises
        ------
        ValueError
            If no bucket can pass and there is nothing to fall back to.
        """
        only = only or self.release
        schedules = [
            self._divide_budget(hashes, n_points, n_features, only, finish)
            for hashes in self._list_hashes(n_features, in_ball)
        ]
        smallest = n_points / (3 * self.n_clusters)
        passing = [schedule for schedule in schedules if schedule.threshold <= smallest]
        schedule = (passing or schedules[-1:])[0]
        fixed = "auto" not in (self.widths, self.repetitions)
        if schedule.threshold > n_points and (only != "centers" or fixed):
            raise ValueError(self._insufficient_budget(schedule, n_points))
        if self.widths != "auto" or n_features <= FEW_FEATURES:
            return schedule
        reach = CLUSTER_RADIUS_IN_BALL if in_ball else CLUSTER_RADIUS
        largest = max(reach, finish.largest_radius) if schedule.shells_mu > 0 else reach
        return replace(schedule, fine_radius=reach, lloyd_radius=largest)

    def _fills_ball(self, curator: Curator) -> bool:
        """Whether points are taken to fill the ball, from public quantities only."""
        d = curator.n_features
        radius = self.resolved_radius(curator) if d > MANY_FEATURES else curator.radius
        return radius < math.sqrt(d)

    def _list_hashes(self, n_features: int, in_ball: bool) -> list[_Hashes]:
        """Rounds, widths and repetitions, from the most hashes to the fewest."""
        if self.widths != "auto":
            widths = tuple(float(width) for width in self.widths)
            single_width = widths
        elif n_features <= FEW_FEATURES:
            widths = WIDTHS_FOR_FEW_FEATURES
            single_width = (WIDTH_FOR_FEW_FEATURES,)
        else:
            relative = (
                WIDTHS_FOR_MANY_CLUSTERS if self.n_clusters > MANY_CLUSTERS else WIDTHS
            )
            unit = (WIDTHS_IN_BALL if in_ball else 1.0) / math.sqrt(n_features)
            widths = tuple(width * unit for width in relative)
            single_width = (WIDTHS[-1] * unit,)
        repetitions = REPETITIONS if self.repetitions == "auto" else self.repetitions
        fewest_repetitions = 1 if self.repetitions == "auto" else self.repetitions
        return [
            (self.rounds, widths, repetitions),
            (self.rounds, widths, fewest_repetitions),
            (self.rounds, single_width, fewest_repetitions),
            (1, single_width, fewest_repetitions),
        ]

    def _divide_budget(
        self,
        hashes: _Hashes,
        n_points: int,
        n_features: int,
        only: str,
        finish: LloydFinish,
    ) -> HashSchedule:
        """Divide the budget among the releases: mu squared in shares, delta evenly."""
        rounds, widths, repetitions = hashes
        n_hashes = rounds * len(widths) * repetitions
        others = CANDIDATE_SHARE + SELECTION_SHARE
        n_steps = self.lloyd_steps if only == "centers" else 0
        lloyd = others * finish.share / (1 - finish.share) if n_steps else 0.0
        selection = 0.0 if only == "candidates" else SELECTION_SHARE
        searches = only == "centers" and self.select == "local_search"
        total = CANDIDATE_SHARE + selection + lloyd
        shells = (
            SHELL_SHARE * lloyd if self._releases_radius(n_points, n_features) else 0.0
        )
        delta = self.resolved_delta(n_points)
        mu = gaussian_mu(self.epsilon, (1 - THRESHOLD_DELTA_SHARE) * delta)
        hash_mu = mu * math.sqrt(CANDIDATE_SHARE / total / n_hashes)
        return HashSchedule(
            rounds=rounds,
            widths=widths,
            repetitions=repetitions,
            histogram_mu=hash_mu * math.sqrt(HISTOGRAM_SHARE),
            average_mu=hash_mu * math.sqrt(1 - HISTOGRAM_SHARE),
            delta=THRESHOLD_DELTA_SHARE * delta / n_hashes,
            selection_mu=mu * math.sqrt(selection / total),
            shells_mu=mu * math.sqrt(shells / total),
            lloyd_mu=mu
            * math.sqrt((lloyd - shells) / total / max(self.lloyd_steps, 1)),
            fine_radius=0.0,
            lloyd_radius=min(widths) * LLOYD_RADIUS,
            # Buckets that use all features are cubes, which one average serves.
            n_averages=1 if self._n_projections(n_features) == n_features else 2,
            n_swaps=self.search_rounds if searches else 0,
            n_steps=n_steps,
            finish=finish,
        )

    def _n_projections(self, n_features: int) -> int:
        """Number of directions of a hash."""
        return (
            n_features
            if n_features <= FEW_FEATURES
            else min(self.projections, n_features)
        )

    def _releases_radius(self, n_points: int, n_features: int) -> bool:
        """Whether the radius of Lloyd steps is released, from public quantities only."""
        if self.step_radius != "auto":
            return self.step_radius == "released"
        mu = gaussian_mu(self.epsilon, self.resolved_delta(n_points))
        records = n_points * mu / self.n_clusters
        return n_features > FEW_FEATURES and records >= RELEASED_RECORDS

    def _insufficient_budget(self, schedule: HashSchedule, n_points: int) -> str:
        """Message that names a sufficient number of records and a sufficient epsilon."""
        delta = schedule.delta
        n_sufficient = math.ceil(schedule.threshold)
        epsilon = self.epsilon
        histogram_share = schedule.histogram_mu / gaussian_mu(self.epsilon, delta)
        while True:
            mu = histogram_share * gaussian_mu(epsilon, delta)
            if histogram_noise(mu, delta, restricted=False).threshold <= n_points:
                break
            epsilon *= 1.1
            if epsilon > 1e6:
                return (
                    f"n={n_points} records are too few for one release: n={n_sufficient} would "
                    f"suffice at epsilon={self.epsilon:g}"
                )
        return (
            f"epsilon={self.epsilon:g} is too little for one release from n={n_points} records: "
            f"buckets need a noisy count of {schedule.threshold:.1f}; about n={n_sufficient} or "
            f"epsilon={epsilon:.3g} would suffice"
        )

    # The releases

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run one replicate; see :meth:`PrivateKMeans.cluster`."""
        in_ball = self._fills_ball(curator)
        schedule = self.schedule(curator.n_points, curator.n_features, in_ball=in_ball)
        return self.follow(curator, schedule)

    def follow(
        self, curator: Curator, schedule: HashSchedule
    ) -> tuple[np.ndarray, int]:
        """Find candidates, choose k of them, and move these."""
        buckets = curator.hashed_points(self.resolved_radius(curator))
        generator = curator.public_rng()

        # Find candidates by hashing and private averages.
        candidates = self._candidates(schedule, buckets, generator)
        if self.release == "candidates":
            return candidates[None], schedule.rounds
        candidates = self._fill_up(candidates, buckets, generator)

        # Choose k of them.
        if schedule.n_swaps == 0:
            counts = _nearest_counts(buckets, candidates, schedule.selection_mu)
            centers = self._cluster_candidates(candidates, counts, schedule, generator)
        else:
            centers = private_local_search(
                buckets,
                candidates,
                self.n_clusters,
                n_swaps=schedule.n_swaps,
                mu=schedule.find(Swaps)[0].mu,
                generator=generator,
                moves=self.moves,
            )

        centers = self._refined(buckets.into_ball(centers), buckets, schedule)
        return centers[None], schedule.rounds

    def _refined(
        self, centers: np.ndarray, buckets: HashedPoints, schedule: HashSchedule
    ) -> np.ndarray:
        """Centers (k, d), int64, after noisy Lloyd steps: the average over the last of them."""
        radius = schedule.lloyd_radius * buckets.radius
        if schedule.shells_mu > 0:
            radius = _radius_of_clusters(buckets, centers, radius, schedule.shells_mu)
        visited: list[np.ndarray] = []
        finish = schedule.finish
        for _ in range(schedule.n_steps):
            centers = noisy_lloyd_step(
                buckets, centers, radius, schedule.lloyd_mu, finish.min_count
            )
            visited.append(centers)
        if finish.n_averaged == 1 or not visited:
            return centers
        return buckets.into_ball(np.mean(visited[-finish.n_averaged :], axis=0))

    def weighted_candidates(self, curator: Curator) -> tuple[np.ndarray, np.ndarray]:
        """Candidates and their noisy numbers of points.

        See :meth:`CoresetMethod.weighted_candidates`.
        """
        in_ball = self._fills_ball(curator)
        schedule = self.schedule(
            curator.n_points, curator.n_features, only="coreset", in_ball=in_ball
        )
        buckets = curator.hashed_points(self.resolved_radius(curator))
        generator = curator.public_rng()
        candidates = self._candidates(schedule, buckets, generator)
        counts = _nearest_counts(buckets, candidates, schedule.selection_mu)
        return candidates, consistent(counts, float(curator.n_points))

    def resolved_radius(self, curator: Curator) -> float:
        """Radius of the ball that points are moved into, in half-widths."""
        return curator.radius if self.radius == "auto" else self.radius

    def _candidates(
        self,
        schedule: HashSchedule,
        buckets: HashedPoints,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Candidates (m, d) of all passes: on the grid, distinct, in lexicographic order."""
        candidates = np.empty((0, buckets.n_features), np.int64)
        for number in range(schedule.rounds):
            # Every pass but the first is on the points farthest from all candidates so
            # far.
            if number:
                buckets.filter_farthest(candidates, self.keep)

            # Find centers of large buckets, in several random hashes of several widths.
            for width in np.repeat(schedule.widths, schedule.repetitions).tolist():
                centers = self._bucket_centers(width, schedule, buckets, generator)
                candidates = np.concatenate([candidates, centers])

            # Without any candidate: the midpoint of the domain.
            if not len(candidates):
                candidates = np.zeros((1, buckets.n_features), np.int64)
            candidates = np.unique(candidates, axis=0)
        return candidates

    def _bucket_centers(
        self,
        width: float,
        schedule: HashSchedule,
        buckets: HashedPoints,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Centers (b, d), int64, of the large buckets of one hash, from noisy averages.

        A coarse average of each bucket, then a fine one of the points near it.
        """
        # Draw a hash: projections on random directions, cut into intervals of the
        # width.
        d = buckets.n_features
        projections = self._n_projections(d)
        width *= buckets.radius
        hashing = euclidean_hash(generator, projections, d, width)

        # Release the codes and counts of the large buckets.
        min_count = buckets.n_restricted / (SMALLEST_CLUSTER * self.n_clusters)
        noise = buckets.histogram_noise(schedule.histogram_mu, schedule.delta)
        codes, counts = buckets.release(BucketCounts(hashing, min_count), counts=noise)[
            "counts"
        ]
        centers = buckets.into_ball(hashing.cell_centers(codes))
        sizes = np.maximum(counts / SCALE, 1.0)

        # The coarse average only has to come within the radius of the fine one, so that
        # it hardly matters which points it clips. Buckets that use all features are
        # cubes: half of their diagonal is enough.
        coarse = COARSE_RADIUS * buckets.radius
        fine = max(width, schedule.fine_radius * buckets.radius)
        radii = [coarse, min(fine, coarse)]
        if schedule.n_averages == 1:
            radii = [width * math.sqrt(projections) / 2]

        # Average the points of each bucket about its center.
        sum_mu = schedule.average_mu / math.sqrt(schedule.n_averages)
        for radius in radii:
            query = BucketSums(hashing, codes, centers, radius)
            noise = Gaussian(buckets.sum_sensitivity(radius) / sum_mu)
            sums = buckets.release(query, sums=noise)["sums"]
            centers = buckets.into_ball(centers + sums / sizes[:, None])
        return centers

    def _fill_up(
        self,
        candidates: np.ndarray,
        buckets: HashedPoints,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Complete the candidates to at least k by packed points of the ball, which ignore data."""
        k = self.n_clusters
        d = buckets.n_features
        if len(candidates) >= k:
            return candidates
        source = np.random.RandomState(int(generator.integers(2**32)))
        inscribed = (
            buckets.radius / math.sqrt(d) * SCALE
        )  # half a side of the cube in the ball
        packed = buckets.into_ball(
            largest_packing(source, k, d, "bisection") * inscribed
        )
        return np.concatenate([candidates, packed[: k - len(candidates)]])

    def _cluster_candidates(
        self,
        candidates: np.ndarray,
        counts: np.ndarray,
        schedule: HashSchedule,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Weighted k-means on the candidates whose counts exceed the noise.

        The k heaviest if these are too few.
        """
        seed = int(generator.integers(2**32))
        weights = np.where(counts < 1 / schedule.selection_mu, 0.0, counts)
        positive = weights > 0
        if np.count_nonzero(weights) <= self.n_clusters:
            heaviest = np.argsort(-counts, kind="stable")[: self.n_clusters]
            return candidates[np.sort(heaviest)].astype(np.float64)
        points = candidates[positive].astype(np.float64)
        return weighted_kmeans(points, weights[positive], self.n_clusters, N_INIT, seed)


def _nearest_counts(
    points: HashedPoints, candidates: np.ndarray, mu: float
) -> np.ndarray:
    """Noisy numbers of points nearest to each candidate, in records: shape (m,), float64."""
    answer = points.release(NearestCounts(candidates), counts=Gaussian(SCALE / mu))
    return answer["counts"] / SCALE


def _radius_of_clusters(
    points: HashedPoints, centers: np.ndarray, largest: float, mu: float
) -> float:
    """Smallest of some radii, up to the largest, that holds nearly all points of all clusters."""
    radii = largest * SHELL_RATIO ** np.arange(SHELLS)
    noise = Gaussian(SCALE / mu)
    counts = (
        points.release(NearestShells(centers, radii), counts=noise)["counts"] / SCALE
    )
    # From outside inward, the first shell at which too many points are that far.
    stddev = np.sqrt(np.arange(1, SHELLS + 1)) / mu
    least = np.maximum(TAIL * stddev, LEFT_OUT * points.n_points)
    too_many = np.flatnonzero(np.cumsum(counts) > least)
    return float(radii[too_many[0]] if len(too_many) else radii[-1])
