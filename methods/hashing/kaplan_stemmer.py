"""Kaplan and Stemmer's k-means in the central model (NeurIPS 2018), reconstructed.

The paper's extended abstract fixes the outline (Algorithm Private-k-Means). Locality
sensitive hashing isolates dense sets of points in buckets, and private averages recover
their centers. The next round repeats that on the points farthest from all centers so
far, which finds smaller sets. Then private local search selects k of the candidates. Or
they are a private coreset, with the numbers of points nearest to them. The hash, the
averages, the coreset and all constants are in a full version that we could not obtain;
they are reconstructed from the tools that the authors name. See docs/kaplan-stemmer.md
for the origin of each part.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from pkm.compute.kernels.hashing import euclidean_hash
from pkm.methods.constraints import AUTO, Integer, OneOf, Real
from pkm.methods.coreset import CoresetMethod, project_onto_simplex
from pkm.methods.hashing.local_search import (
    MOVES,
    fill_up,
    plan_search,
    private_local_search,
)
from pkm.methods.lloyd.noisy_steps import noisy_lloyd_step
from pkm.methods.schedule import Schedule, plan_release, smallest_epsilon
from pkm.methods.trees.leaves import Leaves
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import (
    SCALE,
    BucketCounts,
    BucketSums,
    Charge,
    ClippedPoints,
    Curator,
    Gaussian,
    NearestCounts,
    NearestShells,
    NearestSumsAndCounts,
    PrivacyClaim,
    StabilityHistogram,
    Swaps,
    gaussian_mu,
)
from pkm.privacy.queries.clipped_points import histogram_noise
from pkm.scalars import is_positive

# Constants, chosen on generated mixtures like those of the planted sets. Those of a
# released radius were chosen on seven generated families and on celltype, letters,
# shuttle and yeast (docs/studies/synopsis.md).

# Shares of mu squared; that of the Lloyd steps is Refinement.share.
CANDIDATE_SHARE = 0.5
SELECTION_SHARE = 0.25
HISTOGRAM_SHARE = 0.5  # of the candidates' share, the rest is for averages
THRESHOLD_DELTA_SHARE = 0.5  # of delta, the rest is for the noise

# Widths of buckets, in radii of the ball over sqrt(d), the typical length of a
# projection on a line.
WIDTHS = (1.0, 1 / 2)
WIDTHS_FOR_MANY_CLUSTERS = (1.0, 1 / 2, 1 / 4)
MANY_CLUSTERS = 50
# The same for few features, in radii of the ball: of all hashes, and of a single hash.
WIDTHS_FOR_FEW_FEATURES = (1 / 4, 1 / 8)
WIDTH_FOR_FEW_FEATURES = 1 / 6
FEW_FEATURES = 3
REPETITIONS = 2
PROJECTIONS = 4

# Radii of averages and Lloyd steps, in radii of the ball: of the coarse average, and of
# a cluster, for Lloyd steps and as a minimum for the fine average.
COARSE_RADIUS = 0.5
CLUSTER_RADIUS = 1 / 5
LLOYD_RADIUS = 2  # in smallest widths, if these are given or features are few

# Points fill a ball that a zoom found, or that is given with many features. In the ball
# around a cube most points are at about half of its radius, so that widths are smaller.
WIDTHS_IN_BALL = 2.0  # over those in a cube
MANY_FEATURES = 16

N_INIT = 10  # starts of the k-means on candidates, which cost no privacy
# Side of the cube that the records of a candidate are assumed to fill, in widths of the
# finest buckets. Costs over k depend on the spread of records, which is not released.
CANDIDATE_SIDE = 0.5

# A radius of Lloyd steps that is released, by counts of points in shells.
SHELL_SHARE = 0.05  # of mu squared of all steps
SHELL_RATIO = 2**-0.5
SHELLS = 15  # down to 1/128 of the planned radius
# Largest number of points outside: in standard deviations of its noise, and in n.
TAIL = 2.5
MAX_OUTSIDE = 0.01
# "auto" releases it if d > 3 and n mu / k is at least this: the signal-to-noise ratio
# of the count of a cluster at the whole budget.
RELEASED_SNR = 200.0

MAX_EPSILON = 1e6  # largest epsilon that an error message suggests

#: How many hashes a schedule has: rounds, widths of each, repetitions of each width.
_HashNumbers = tuple[int, tuple[float, ...], int]


@dataclass(frozen=True)
class Refinement:
    """Options of the noisy Lloyd steps at the end, which refine the centers.

    Attributes
    ----------
    share : float
        Share of mu squared for all steps together; the rest is for candidates and their
        counts.
    n_averaged : int
        Number of last steps whose centers are averaged.
    min_count : float
        Smallest divisor of a sum, in standard deviations of the count's noise.
    largest_radius : float
        Upper limit of a released radius, in radii of the ball, if it is above the
        planned radius.
    """

    share: float = 0.25
    n_averaged: int = 1
    min_count: float = 0.0
    largest_radius: float = 0.0


@dataclass(frozen=True)
class HashSchedule(Schedule):
    """Histograms and averages of hashes, the selection of centers, Lloyd steps.

    Attributes
    ----------
    rounds : int
    widths : tuple of float
        In radii of the ball.
    repetitions : int
    histogram_mu, average_mu : float
        Cost of one histogram, and of the averages of its buckets.
    delta : float
        Failure probability of the threshold of one histogram.
    selection_mu : float
        Cost of the counts, or of the local search.
    shells_mu : float
        Cost of the radius of Lloyd steps if it is released, else 0.
    lloyd_mu : float
        Cost of one Lloyd step.
    fine_radius, lloyd_radius : float
        Radii of the last average of a bucket (at least its width), and of a Lloyd step,
        in radii of the ball.
    n_averages : int
        Releases of averages for each histogram.
    n_swaps : int
        Swaps of the local search; 0 if candidates are counted.
    n_steps : int
        Number of Lloyd steps.
    refinement : Refinement
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
    refinement: Refinement

    @property
    def releases(self) -> Sequence[Charge]:
        """All hashes of each round, the selection, the radius of steps, the steps."""
        n_hashes = len(self.widths) * self.repetitions
        average_mu = self.average_mu / math.sqrt(self.n_averages)
        histogram = plan_release(
            BucketCounts, StabilityHistogram, mu=self.histogram_mu, delta=self.delta
        )
        average = plan_release(BucketSums, Gaussian, mu=average_mu)
        n_averages = self.n_averages * n_hashes
        selection = [plan_release(NearestCounts, Gaussian, mu=self.selection_mu)]
        if self.n_swaps:
            selection = plan_search(self.n_swaps, self.selection_mu)
        shells = plan_release(NearestShells, Gaussian, mu=self.shells_mu)
        step = plan_release(NearestSumsAndCounts, Gaussian, mu=self.lloyd_mu)
        return [
            *([histogram] * n_hashes + [average] * n_averages) * self.rounds,
            *selection * (self.selection_mu > 0),
            *[shells] * (self.shells_mu > 0),
            *[step] * self.n_steps,
        ]

    @property
    def threshold(self) -> float:
        """Smallest noisy count that the first round releases, in records."""
        return histogram_noise(
            self.histogram_mu, self.delta, is_filtered=False
        ).threshold


class SelectedCenters(NamedTuple):
    """Centers of a run, and the private summary that they were found from.

    Attributes
    ----------
    centers : ndarray of shape (k, d), int64
        On the grid.
    candidates : Leaves or None
        Those whose counts are above the noise, on a linear scale, as cubes of a side
        that is assumed. None after a local search.
    mean_square : float
        Mean squared distance of records to their center before the Lloyd steps, in
        squared half-widths of the grid; 0 if their radius is not released.
    """

    centers: np.ndarray
    candidates: Leaves | None
    mean_square: float


class KaplanStemmer(CoresetMethod):
    """Candidates by hashing and private averages, in two rounds, then k of them.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Total, zero-out adjacency.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6. Half is for the thresholds, half for the Gaussian noise.
    radius : float or "auto", default="auto"
        Radius of the public ball about the midpoint of the domain that points are
        clipped to, in half-widths. ``auto`` is sqrt(d): the whole domain. A tight ball
        lowers the error, because buckets and noise are in proportion to it. Beyond 16
        features points are assumed to fill a ball that is given; ``auto`` widths are
        then twice as large.
    rounds : int, default=2
        Maximum number of rounds. The first one hashes all points, and later ones those
        farthest from the candidates so far.
    keep : float, default=0.5
        Fraction of the points, in (0, 1), that the next round hashes.
    select : {"counts", "local_search"}, default="counts"
        ``counts`` clusters the candidates weighted by the noisy numbers of points
        nearest to them; ``local_search`` is the paper's choice by the exponential
        mechanism.
    search_rounds : int, default=20
        Swaps of the local search.
    moves : {"all", "round_robin"}, default="all"
        Swaps that the local search draws from: of any center, or of the centers in
        turn.
    lloyd_steps : int, default=1
        Number of noisy Lloyd steps at the end. With 0, the other releases have their
        share of the budget.
    step_radius : {"auto", "planned", "released"}, default="auto"
        Norm that a Lloyd step clips differences to the center to. ``planned`` is a part
        of the ball's radius, the same for any data. ``released`` spends a twentieth of
        the steps' budget on the smallest radius that holds nearly all points; it is for
        clusters much smaller than the ball. ``auto`` releases the radius if d > 3 and
        n mu / k >= 200, the signal-to-noise ratio of a cluster's mean count.
    release : {"centers", "candidates"}, default="centers"
        ``candidates`` returns all candidates as centers, at the whole budget.
    widths : sequence of float or "auto", default="auto"
        Widths of buckets, in radii of the ball. ``auto`` is 1 / sqrt(d) and half of it,
        because projections of the domain on lines get shorter than the ball as d grows.
        More than 50 clusters add a quarter of it; up to three features take 1/4 and
        1/8. Widths that are given also set the radii of averages and of Lloyd steps.
    repetitions : int or "auto", default="auto"
        Hashes per width and round. ``auto`` is 2, or 1 where thresholds would be too
        large; see Notes.
    projections : int, default=4
        Projections of a hash; at most d are used.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`.

    Raises
    ------
    ValueError
        If the budget is too small; see Notes.

    See Also
    --------
    KaplanStemmerLocal : Needs no trusted curator.
    SynopsisKMeans : The same hashing with a zoom and six Lloyd steps.
    Balcan : Cubes in a projection in place of hashing.

    Notes
    -----
    Each hash costs budget. ``auto`` takes the first schedule of a public list, from
    many hashes to one, whose threshold is at most n / (3 k). If the threshold is above
    n even for a single hash, no bucket can exceed it. Centers then come from packed
    spheres, which ignore the data, and from the Lloyd steps. Candidates, a coreset, or
    a schedule that the parameters fix are refused.

    References
    ----------
    Kaplan, H. and Stemmer, U. (2018). Differentially private k-means with constant
    multiplicative error. NeurIPS.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.25], [0.5, 0.5]], 5000, axis=0)
    >>> model = KaplanStemmer(n_clusters=2, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(2).tolist())
    [[-0.5, 0.25], [0.5, 0.5]]
    """

    label = "Kaplan-Stemmer"
    color = "#7a3e9d"
    marker = "*"
    claims = {"sound": PrivacyClaim("approximate")}
    constraints = {
        "radius": AUTO | Real(0),
        "rounds": Integer(1),
        "keep": Real(0, 1),
        "select": OneOf("counts", "local_search"),
        "search_rounds": Integer(1),
        "moves": OneOf(*MOVES),
        "lloyd_steps": Integer(0),
        "step_radius": OneOf("auto", "planned", "released"),
        "release": OneOf("centers", "candidates"),
        "widths": None,
        "repetitions": AUTO | Integer(1),
        "projections": Integer(1),
    }
    noise_context_defaults = {"step_radius": "auto"}
    batched = False
    supports_chunks = True
    benefits_from_ball = True
    compresses_tails = True

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
        if self.widths == "auto":
            return
        is_sequence = not isinstance(self.widths, str) and len(self.widths) > 0
        if not (is_sequence and all(map(is_positive, self.widths))):
            raise ValueError(
                f"widths={self.widths!r} must be 'auto' or one or more positive finite "
                "numbers"
            )

    # The schedule

    def schedule(
        self,
        n_points: int,
        n_features: int,
        *,
        result: str | None = None,
        in_ball: bool = False,
        refinement: Refinement = Refinement(),
    ) -> HashSchedule:
        """All releases; see :meth:`PrivateKMeans.schedule`.

        Parameters
        ----------
        n_points, n_features : int
        result : {"centers", "coreset", "candidates"}, optional
            What the run returns; releases that it does not need have no budget.
            Default: ``release``.
        in_ball : bool, default=False
            Whether the domain is a ball that points fill. It does not change the costs.
        refinement : Refinement, optional

        Returns
        -------
        HashSchedule

        Raises
        ------
        ValueError
            If the budget is too small for any bucket; see the Notes of the class.
        """
        result = result or self.release

        def plan(epsilon: float) -> HashSchedule:
            method = replace(self, epsilon=epsilon)
            return method._choose_schedule(
                n_points, n_features, result, in_ball, refinement
            )

        def passes(epsilon: float) -> bool:
            return plan(epsilon).threshold <= n_points

        schedule = plan(self.epsilon)
        is_fixed = "auto" not in (self.widths, self.repetitions)
        can_fall_back = result == "centers" and not is_fixed
        if schedule.threshold <= n_points or can_fall_back:
            return schedule
        sufficient = f"n={math.ceil(schedule.threshold)}"
        if not passes(MAX_EPSILON):
            raise ValueError(
                f"n={n_points} records are too few for one release: {sufficient} would "
                f"suffice at epsilon={self.epsilon:g}"
            )
        epsilon = smallest_epsilon(self.epsilon, passes, MAX_EPSILON)
        raise ValueError(
            f"epsilon={self.epsilon:g} is too little for one release from n={n_points} "
            f"records: buckets need a noisy count of {schedule.threshold:.1f}; about "
            f"{sufficient} or epsilon={epsilon:.3g} would suffice"
        )

    def _choose_schedule(
        self,
        n_points: int,
        n_features: int,
        result: str,
        in_ball: bool,
        refinement: Refinement,
    ) -> HashSchedule:
        """Return the first schedule whose threshold a cluster exceeds, or the last."""
        schedules = [
            self._divide_budget(hashes, n_points, n_features, result, refinement)
            for hashes in self._list_hashes(n_features, in_ball)
        ]
        cluster_size = n_points / (3 * self.n_clusters)
        passing = [plan for plan in schedules if plan.threshold <= cluster_size]
        schedule = (passing or schedules[-1:])[0]
        if self.widths != "auto" or n_features <= FEW_FEATURES:
            return schedule
        largest = CLUSTER_RADIUS
        if schedule.shells_mu > 0:
            largest = max(largest, refinement.largest_radius)
        return replace(schedule, fine_radius=CLUSTER_RADIUS, lloyd_radius=largest)

    def _list_hashes(
        self,
        n_features: int,
        in_ball: bool,
    ) -> list[_HashNumbers]:
        """List the numbers of hashes to try, from the most hashes to the fewest."""
        if self.widths != "auto":
            widths = single = tuple(map(float, self.widths))
        elif n_features <= FEW_FEATURES:
            widths = WIDTHS_FOR_FEW_FEATURES
            single = (WIDTH_FOR_FEW_FEATURES,)
        else:
            is_many = self.n_clusters > MANY_CLUSTERS
            relative = WIDTHS_FOR_MANY_CLUSTERS if is_many else WIDTHS
            length = (WIDTHS_IN_BALL if in_ball else 1.0) / math.sqrt(n_features)
            widths = tuple(width * length for width in relative)
            single = (WIDTHS[-1] * length,)
        if self.repetitions == "auto":
            most = REPETITIONS
            fewest = 1
        else:
            most = fewest = self.repetitions
        return [
            (self.rounds, widths, most),
            (self.rounds, widths, fewest),
            (self.rounds, single, fewest),
            (1, single, fewest),
        ]

    def _divide_budget(
        self,
        hashes: _HashNumbers,
        n_points: int,
        n_features: int,
        result: str,
        refinement: Refinement,
    ) -> HashSchedule:
        """Divide the budget among the releases: mu squared by shares, delta evenly."""
        rounds, widths, repetitions = hashes
        n_hashes = rounds * len(widths) * repetitions
        delta = self.resolved_delta(n_points)
        mu = gaussian_mu(self.epsilon, (1 - THRESHOLD_DELTA_SHARE) * delta)

        # Shares of mu squared, of any sum; a release that is left out has none.
        n_steps = self.lloyd_steps if result == "centers" else 0
        others = CANDIDATE_SHARE + SELECTION_SHARE
        lloyd = others * refinement.share / (1 - refinement.share) if n_steps else 0.0
        selection = 0.0 if result == "candidates" else SELECTION_SHARE
        total = CANDIDATE_SHARE + selection + lloyd

        # A share of the steps' budget for their radius: by the parameter, or by the
        # signal-to-noise ratio.
        is_large = self.signal_to_noise(n_points) >= RELEASED_SNR
        is_released = is_large and n_features > FEW_FEATURES
        if self.step_radius != "auto":
            is_released = self.step_radius == "released"
        shells = SHELL_SHARE * lloyd if is_released else 0.0
        steps = (lloyd - shells) / total / max(self.lloyd_steps, 1)

        hash_mu = mu * math.sqrt(CANDIDATE_SHARE / total / n_hashes)
        searches = result == "centers" and self.select == "local_search"
        return HashSchedule(
            rounds=rounds,
            widths=widths,
            repetitions=repetitions,
            histogram_mu=hash_mu * math.sqrt(HISTOGRAM_SHARE),
            average_mu=hash_mu * math.sqrt(1 - HISTOGRAM_SHARE),
            delta=THRESHOLD_DELTA_SHARE * delta / n_hashes,
            selection_mu=mu * math.sqrt(selection / total),
            shells_mu=mu * math.sqrt(shells / total),
            lloyd_mu=mu * math.sqrt(steps),
            fine_radius=0.0,
            lloyd_radius=min(widths) * LLOYD_RADIUS,
            # Buckets that use all features are cubes: one average is enough.
            n_averages=1 if self._n_projections(n_features) == n_features else 2,
            n_swaps=self.search_rounds if searches else 0,
            n_steps=n_steps,
            refinement=refinement,
        )

    def signal_to_noise(self, n_points: int) -> float:
        """Compute n mu / k: of the count of a cluster, at the whole budget."""
        mu = gaussian_mu(self.epsilon, self.resolved_delta(n_points))
        return n_points * mu / self.n_clusters

    def _n_projections(self, n_features: int) -> int:
        """Number of directions of a hash."""
        if n_features <= FEW_FEATURES:
            return n_features
        return min(self.projections, n_features)

    # The releases

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run one replicate; see :meth:`PrivateKMeans.cluster`."""
        schedule = self._plan_for(curator)
        if self.release == "candidates":
            _, candidates, _ = self._find_candidates(curator, schedule)
            return candidates[None], schedule.rounds
        return self.run(curator, schedule).centers[None], schedule.rounds

    def _plan_for(
        self,
        curator: Curator,
        result: str | None = None,
    ) -> HashSchedule:
        """Plan for a curator, in a ball if points are assumed to fill it."""
        d = curator.n_features
        radius = self.resolved_radius(curator) if d > MANY_FEATURES else curator.radius
        in_ball = radius < math.sqrt(d)
        return self.schedule(curator.n_points, d, result=result, in_ball=in_ball)

    def run(
        self,
        curator: Curator,
        schedule: HashSchedule,
        find_k: Callable[[Leaves], int] | None = None,
    ) -> SelectedCenters:
        """Find candidates, select k of them, and move these by noisy Lloyd steps.

        Parameters
        ----------
        curator : Curator
        schedule : HashSchedule
        find_k : callable, optional
            From the candidates, with their noisy counts, to k. Default: ``n_clusters``,
            with packed points if there are fewer candidates.

        Returns
        -------
        SelectedCenters
        """
        # Steps 1 to 3 of Private-k-Means: candidates.
        buckets, candidates, generator = self._find_candidates(curator, schedule)

        # If they are too few, complete them to k by packed points.
        k = self.n_clusters
        if find_k is None and len(candidates) < k:
            directions = np.eye(buckets.n_features)
            candidates = fill_up(candidates, buckets, k, directions, generator)

        # Select k of them: k-means on noisy counts, or local search (Theorem 2.1).
        summary = None
        if schedule.n_swaps == 0:
            counts = _count_nearest(buckets, candidates, schedule.selection_mu)
            above_noise = (counts >= 1 / schedule.selection_mu) & (counts > 0)
            linear = curator.scale.expand(candidates / SCALE)
            side = CANDIDATE_SIDE * min(schedule.widths) * buckets.radius
            sides = np.full(np.count_nonzero(above_noise), side * SCALE)
            summary = Leaves(linear[above_noise] * SCALE, sides, counts[above_noise])
            summary = summary.or_domain(float(curator.n_points))
            if find_k is not None:
                k = find_k(summary)
            centers = _cluster_candidates(linear, counts, above_noise, k, generator)
            centers = curator.scale.compress(centers) * SCALE
        else:
            centers = private_local_search(
                buckets,
                candidates,
                k,
                n_swaps=schedule.n_swaps,
                mu=schedule.find(Swaps)[0].mu,
                generator=generator,
                moves=self.moves,
            )

        # Move them by noisy Lloyd steps.
        centers, mean_square = _refine(buckets.clip(centers), buckets, schedule)
        return SelectedCenters(centers, summary, mean_square)

    def weighted_candidates(self, curator: Curator) -> tuple[np.ndarray, np.ndarray]:
        """Find candidates, and the noisy numbers of the points nearest to each.

        See :meth:`CoresetMethod.weighted_candidates`.
        """
        schedule = self._plan_for(curator, "coreset")
        buckets, candidates, _ = self._find_candidates(curator, schedule)
        counts = _count_nearest(buckets, candidates, schedule.selection_mu)
        return candidates, project_onto_simplex(counts, float(curator.n_points))

    def resolved_radius(self, curator: Curator) -> float:
        """Radius of the ball that points are clipped to, in half-widths."""
        return curator.radius if self.radius == "auto" else self.radius

    def _find_candidates(
        self,
        curator: Curator,
        schedule: HashSchedule,
    ) -> tuple[ClippedPoints, np.ndarray, np.random.Generator]:
        """Find the distinct candidates (m, d) of all rounds, in lexicographic order.

        Also return the points, and the generator that the hashes are drawn from.
        """
        buckets = curator.clipped_points(self.resolved_radius(curator))
        generator = curator.public_rng()
        candidates = np.empty((0, buckets.n_features), np.int64)
        for round_number in range(schedule.rounds):
            # Step 2b: the points with the largest distance to the candidates so far.
            if round_number:
                buckets.filter_farthest(candidates, self.keep)

            # Step 2a, Private-Centers: centers of heavy buckets, in several random
            # hashes of several widths.
            centers = self._bucket_centers(schedule, buckets, generator)
            candidates = np.concatenate([candidates, *centers])

            # If there is no candidate, take the midpoint of the domain.
            if not len(candidates):
                candidates = np.zeros((1, buckets.n_features), np.int64)
            candidates = np.unique(candidates, axis=0)
        return buckets, candidates, generator

    def _bucket_centers(
        self,
        schedule: HashSchedule,
        buckets: ClippedPoints,
        generator: np.random.Generator,
    ) -> list[np.ndarray]:
        """Centers (b, d), int64, of the heavy buckets of each hash, by averages.

        A bucket is heavy if its noisy count is above the threshold. A coarse average of
        each bucket is followed by a fine one of the points near it. What is released of
        all hashes shares a pass over the points.
        """
        # Draw hashes: intervals of each width along random directions.
        d = buckets.n_features
        projections = self._n_projections(d)
        widths = np.repeat(schedule.widths, schedule.repetitions)
        widths *= buckets.uncompressed_radius
        hashings = [
            euclidean_hash(generator, projections, d, width)
            for width in widths.tolist()
        ]

        # Release the codes and counts of the buckets above the threshold.
        noise = buckets.histogram_noise(schedule.histogram_mu, schedule.delta)
        answers = buckets.release_all(
            [(BucketCounts(hashing), {"counts": noise}) for hashing in hashings]
        )
        codes, counts = zip(*[answer["counts"] for answer in answers], strict=True)
        # A noisy count below 1 is no divisor.
        sizes = [np.maximum(own[:, None] / SCALE, 1.0) for own in counts]
        centers = [
            buckets.clip(hashing.cell_centers(own))
            for hashing, own in zip(hashings, codes, strict=True)
        ]

        # Average the points of each bucket about its center.
        sum_mu = schedule.average_mu / math.sqrt(schedule.n_averages)
        for radii in self._average_radii(schedule, widths, buckets):
            requests = [
                (
                    BucketSums(hashing, own, origins, radius),
                    {"sums": Gaussian(buckets.sum_sensitivity(radius) / sum_mu)},
                )
                for hashing, own, origins, radius in zip(
                    hashings, codes, centers, radii, strict=True
                )
            ]
            answers = buckets.release_all(requests)
            centers = [
                buckets.clip(origins + answer["sums"] / own)
                for origins, answer, own in zip(centers, answers, sizes, strict=True)
            ]
        return centers

    def _average_radii(
        self,
        schedule: HashSchedule,
        widths: np.ndarray,
        buckets: ClippedPoints,
    ) -> list[list[float]]:
        """Radii that each average clips points to, one for each width of a hash."""
        # Buckets that use all features are cubes: half of their diagonal clips nothing.
        if schedule.n_averages == 1:
            projections = self._n_projections(buckets.n_features)
            return [(widths * math.sqrt(projections) / 2).tolist()]
        # A coarse average must be within the radius of the fine one, so that its bias
        # by clipping hardly matters.
        coarse = COARSE_RADIUS * buckets.uncompressed_radius
        least = schedule.fine_radius * buckets.uncompressed_radius
        fine = np.clip(widths, least, None).clip(max=coarse)
        return [[coarse] * len(widths), fine.tolist()]


def _count_nearest(
    points: ClippedPoints, candidates: np.ndarray, mu: float
) -> np.ndarray:
    """Release the numbers (m,) of points nearest to each candidate, in records."""
    answer = points.release(NearestCounts(candidates), counts=Gaussian(SCALE / mu))
    return answer["counts"] / SCALE


def _cluster_candidates(
    candidates: np.ndarray,
    counts: np.ndarray,
    above_noise: np.ndarray,
    k: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Cluster candidates above the noise; take the k heaviest if there are too few."""
    if np.count_nonzero(above_noise) <= k:
        heaviest = np.argsort(-counts, kind="stable")[:k]
        return candidates[np.sort(heaviest)]
    points = candidates[above_noise]
    return weighted_kmeans(points, counts[above_noise], k, N_INIT, generator)


def _refine(
    centers: np.ndarray, points: ClippedPoints, schedule: HashSchedule
) -> tuple[np.ndarray, float]:
    """Move centers (k, d), int64, by noisy Lloyd steps; average those of the last.

    Also return the mean squared distance of points to the starting centers, or 0.
    """
    radius = schedule.lloyd_radius * points.uncompressed_radius
    mean_square = 0.0
    if schedule.shells_mu > 0:
        radius, mean_square = _release_radius(
            points, centers, radius, schedule.shells_mu
        )
    refinement = schedule.refinement
    visited = []
    for _ in range(schedule.n_steps):
        centers = noisy_lloyd_step(
            points, centers, radius, schedule.lloyd_mu, refinement.min_count
        )
        visited.append(centers)
    if refinement.n_averaged > 1 and visited:
        centers = points.clip(np.mean(visited[-refinement.n_averaged :], axis=0))
    return centers, mean_square


def _release_radius(
    points: ClippedPoints, centers: np.ndarray, largest: float, mu: float
) -> tuple[float, float]:
    """Release the smallest radius that holds nearly all points of all clusters.

    Also return the mean squared distance of the points in it.
    """
    radii = largest * SHELL_RATIO ** np.arange(SHELLS)
    query = NearestShells(centers, radii)
    counts = points.release(query, counts=Gaussian(SCALE / mu))["counts"] / SCALE

    # From the outside: the first shell at which too many points are as far.
    stddev = np.sqrt(np.arange(1, SHELLS + 1)) / mu
    max_outside = np.maximum(TAIL * stddev, MAX_OUTSIDE * points.n_points)
    too_many = np.flatnonzero(np.cumsum(counts) > max_outside)
    first = too_many[0] if len(too_many) else -1

    # Points of a shell are taken to be at the root mean square of its two radii.
    inside = counts[first:]
    squares = radii[first:] ** 2 * (1 + SHELL_RATIO**2) / 2
    mean_square = (inside * squares).sum() / max(inside.sum(), 1.0)
    return float(radii[first]), max(float(mean_square), 0.0)
