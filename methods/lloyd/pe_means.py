"""PE-means: centers by private evolution, from noisy counts of nearest members alone.

Humphries, Lin, Yekhanin (2026). A population of candidate centers, its members, evolves
in a public ball. In each generation the records nearest to each member are counted with
noise, and weighted k-means on the members gives k parents. The parents and their
mutants, at random steps from them, are the next population. Nothing is summed: a
generation costs one vector of counts, whose sensitivity does not depend on the ball.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import gamma

from pkm.compute import DIRECTION_SCALE, largest_packing
from pkm.compute.kernels.clipping import clip_norms
from pkm.compute.kernels.hashing import orthonormal
from pkm.compute.kernels.seeding import ball_packing
from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import AUTO, NONE, Integer, Real
from pkm.methods.deltas import inverse_power
from pkm.methods.lloyd.noisy_steps import noisy_lloyd_step
from pkm.methods.schedule import Schedule, plan_release
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import (
    SCALE,
    Charge,
    ClippedPoints,
    Curator,
    Gaussian,
    NearestCounts,
    NearestSumsAndCounts,
    PrivacyClaim,
    gaussian_mu,
)

GENERATIONS_PER_ROOT = 4  # generations over the root of the number of dimensions
MAX_GENERATIONS = {"published": 500, "sound": 32}
RECORDS_PER_MEMBER = 5  # of a population, on average
MIN_MUTANTS = 4  # of a parent
MAX_POPULATION = 2000  # of the sound variant
MUTATION_SCALE = 0.01  # of the ball's radius
LEVY_EXPONENT = 1.75  # stability index of the mutations' steps
RECOVERY_RELEASES = 2  # sums and counts in all features, after a subspace
LLOYD_RADIUS = 0.8  # of the ball's radius over k^(1/d): eta of FastLloyd
# Starts of k-means on a population: post-processing.
N_INIT = {"published": 10, "sound": 3}


@dataclass(frozen=True)
class EvolutionSchedule(Schedule):
    """Counts of every generation, and a Lloyd step.

    Attributes
    ----------
    generations : int
    count_mu : float
        Cost of the counts of one generation.
    mutants : int
        Number of mutants of each parent, at first.
    lloyd_mu : float
        Cost of the Lloyd step at the end; 0 for none.
    """

    generations: int
    count_mu: float
    mutants: int
    lloyd_mu: float

    @property
    def releases(self) -> Sequence[Charge]:
        """Counts of every generation, then the step, if there is one."""
        counts = plan_release(NearestCounts, Gaussian, mu=self.count_mu)
        step = plan_release(NearestSumsAndCounts, Gaussian, mu=self.lloyd_mu)
        return [counts] * self.generations + [step] * (self.lloyd_mu > 0)


class PEMeans(PrivateKMeans):
    """Centers that evolve by noisy counts of the records nearest to each candidate.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Total, zero-out adjacency.
    delta : float or "auto", default="auto"
        ``auto`` is n^-1.1 for ``published`` and 1e-6 for ``sound``.
    variant : {"published", "sound"}, default="sound"
        ``published`` has delta from the exact n, n / 5 members, and as many generations
        as the paper. ``sound`` has a fixed delta, at most 2,000 members and at most 32
        generations.
    radius : float or "auto", default="auto"
        Radius of the public ball about the midpoint of the domain that points are
        clipped to, in half-widths. ``auto`` is sqrt(d): the whole domain.
    generations : int or "auto", default="auto"
        ``auto`` is 4 sqrt(d) max(epsilon, 1) in d features. In a subspace of m
        dimensions it is 4 sqrt(m) - 2, and at least 1. It is at most 500 for
        ``published`` (the paper's budgets need 181), and 32 for ``sound``.
    max_population : int, "auto" or None, default="auto"
        Largest number of members, if each parent has more than four mutants; None for
        n / 5 members.
    dimensions : int or None, default=None
        Dimensions of a random subspace in which the population evolves, if there are
        more than twice as many features. The Lloyd step at the end then gives centers
        in all features.
    finish : float or "auto", default="auto"
        Share of mu squared, in [0, 1), for a Lloyd step at the end. ``auto`` is 0, and
        in a subspace the share of 2 releases among all.
    n_init : int or "auto", default="auto"
        Starts of the k-means on a population; ``auto`` is 10 for ``published``, else 3.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    FedDPKMeans : Public points are the candidates.
    FastLloyd : Sums and counts in every round.
    SynopsisKMeans : Best mean rank of ten methods in the comparison of the docs.

    Notes
    -----
    If at most k members have a count that is kept, the k members with the largest noisy
    counts are the parents. The size of a population depends on released counts; the
    number of releases and their costs do not.

    The authors' code for many features adds one noise value to all coordinates of a
    sum. It makes more releases than it is calibrated for (F-19). Here every coordinate
    has noise of its own, and all releases are charged. Their projection is a Gaussian
    matrix. Here the subspace is orthonormal, and its ball is smaller by the same factor
    as the projected points.

    References
    ----------
    Humphries, T., Lin, Z. and Yekhanin, S. (2026). PE-means. arXiv:2606.00342.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 5000, axis=0)
    >>> model = PEMeans(2, epsilon=4.0, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "PE-means"
    color = "#b5446e"
    marker = "P"
    claims = {
        "published": PrivacyClaim("approximate", flaws=("F-09",)),
        "sound": PrivacyClaim("approximate"),
    }
    constraints = {
        "radius": AUTO | Real(0),
        "generations": AUTO | Integer(1),
        "max_population": AUTO | NONE | Integer(1),
        "dimensions": NONE | Integer(1),
        "finish": AUTO | Real(0, 1, "[)"),
        "n_init": AUTO | Integer(1),
    }
    batched = False  # the sizes of populations follow from what was released
    supports_chunks = True
    published_delta = staticmethod(inverse_power)

    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    variant: str = "sound"
    radius: float | Literal["auto"] = "auto"
    generations: int | Literal["auto"] = "auto"
    max_population: int | Literal["auto"] | None = "auto"
    dimensions: int | None = None
    finish: float | Literal["auto"] = "auto"
    n_init: int | Literal["auto"] = "auto"

    def check_parameters(self, n_points: int | None = None) -> None:
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        if self.dimensions is not None and self.finish == 0:
            raise ValueError(
                "finish=0 leaves the centers in a subspace of dimensions="
                f"{self.dimensions}: give the Lloyd step a share, or 'auto'"
            )

    # The schedule

    def subspace_dimensions(self, n_features: int) -> int | None:
        """Dimensions of the subspace that the population lies in; None without one."""
        m = self.dimensions
        return m if m is not None and n_features > 2 * m else None

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> EvolutionSchedule:
        """All releases; see :meth:`PrivateKMeans.schedule`."""
        m = self.subspace_dimensions(n_features)

        # Number of generations; in a subspace, as many less as releases of the
        # recovery.
        generations = self.generations
        if generations == "auto":
            generations = int(GENERATIONS_PER_ROOT * math.sqrt(m or n_features))
            if m is None:
                generations = int(max(self.epsilon, 1.0) * generations)
            else:
                generations = max(generations - RECOVERY_RELEASES, 1)
            generations = min(generations, MAX_GENERATIONS[self.variant])

        # Mu squared: a share for the Lloyd step, the rest evenly over the generations.
        finish = self.finish
        if finish == "auto":
            n_recovery = 0 if m is None else RECOVERY_RELEASES
            finish = n_recovery / (generations + n_recovery)
        mu = gaussian_mu(self.epsilon, self.resolved_delta(n_points))
        return EvolutionSchedule(
            generations=generations,
            count_mu=mu * math.sqrt((1 - finish) / generations),
            mutants=self._mutants(n_points),
            lloyd_mu=mu * math.sqrt(finish),
        )

    def _mutants(self, n_points: int) -> int:
        """Mutants of each parent at first: a member for five records, with a limit."""
        limit = self.max_population
        if limit == "auto":
            limit = MAX_POPULATION if self.variant == "sound" else None
        mutants = n_points // (RECORDS_PER_MEMBER * self.n_clusters)
        if limit is not None:
            mutants = min(mutants, limit // self.n_clusters - 1)
        return max(mutants, MIN_MUTANTS)

    # The releases

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run one replicate; see :meth:`PrivateKMeans.cluster`."""
        d = curator.n_features
        schedule = self.schedule(curator.n_points, d)
        radius = math.sqrt(d) if self.radius == "auto" else self.radius
        points = curator.clipped_points(radius)
        generator = curator.public_rng()

        # The ball of the population, in a random subspace if there is one.
        m = self.subspace_dimensions(d)
        basis = None
        if m is not None:
            basis = orthonormal(generator, m, d) / DIRECTION_SCALE
        ball = PublicBall(points, basis)

        # The first population: packed points that ignore the data.
        n_members = (schedule.mutants + 1) * self.n_clusters
        if self.variant == "published":
            population = ball_packing(generator, n_members, ball.dimensions)
            population *= ball.radius
        else:
            source = np.random.RandomState(int(generator.integers(2**32)))
            population = largest_packing(source, n_members, ball.dimensions, "halving")
            population *= ball.radius / math.sqrt(ball.dimensions)

        # Generations, then a Lloyd step.
        n_init = N_INIT[self.variant] if self.n_init == "auto" else self.n_init
        centers = evolve(ball, population, self.n_clusters, schedule, generator, n_init)
        if schedule.lloyd_mu > 0:
            radius = points.radius
            if basis is None:
                radius *= min(1.0, LLOYD_RADIUS / self.n_clusters ** (1 / d))
            centers = noisy_lloyd_step(points, centers, radius, schedule.lloyd_mu)
        return centers[None], schedule.generations


class PublicBall:
    """Public ball of candidate centers: that of the points, or one in a subspace.

    Parameters
    ----------
    points : ClippedPoints
    basis : ndarray of shape (m, d), float64, or None
        Orthonormal directions of the subspace, public. None for all features.

    Attributes
    ----------
    dimensions : int
        Dimensions of the candidates.
    radius : float
        In grid steps. In a subspace of m dimensions the radius in all d features times
        sqrt(m / d), the expected norm of a projection.

    Notes
    -----
    A point's squared distances to candidates in the subspace, and their distances in
    the projection, differ by the same constant. So the nearest candidate is the same.
    """

    def __init__(
        self,
        points: ClippedPoints,
        basis: np.ndarray | None,
    ) -> None:
        self.points = points
        self._basis = basis
        self.dimensions = points.n_features if basis is None else len(basis)
        self.radius = (
            points.radius * SCALE * math.sqrt(self.dimensions / points.n_features)
        )

    def clip(self, positions: np.ndarray) -> np.ndarray:
        """Clip positions (n, m) to the ball, in whole grid steps, float64 or int64.

        Without a subspace they are clipped to the domain as well.
        """
        if self._basis is None:
            return self.points.clip(positions).astype(np.float64)
        return clip_norms(positions, self.radius)

    def lift(self, positions: np.ndarray) -> np.ndarray:
        """Map positions (n, m) to grid points in all features, (n, d), int64."""
        if self._basis is not None:
            positions = positions @ self._basis
        return self.points.clip(positions)

    def count_nearest(
        self,
        positions: np.ndarray,
        mu: float,
    ) -> np.ndarray:
        """Release the numbers (n,) of the records nearest to each position."""
        query = NearestCounts(self.lift(positions))
        noise = Gaussian(SCALE / mu)
        return self.points.release(query, counts=noise)["counts"] / SCALE


def cluster_by_counts(
    positions: np.ndarray,
    counts: np.ndarray,
    kept: np.ndarray,
    k: int,
    n_init: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Cluster positions by k-means, weighted by their noisy counts.

    Parameters
    ----------
    positions : ndarray of shape (n, m), float64
    counts : ndarray of shape (n,), float64
    kept : ndarray of shape (n,), bool
        Positions that are clustered. If there are at most k, the k positions with the
        largest counts are the centers.
    k, n_init : int
    generator : numpy.random.Generator
        Public randomness.

    Returns
    -------
    ndarray of shape (at most k, m), float64
    """
    if kept.sum() <= k:
        return positions[np.argsort(-counts, kind="stable")[:k]]
    seed = int(generator.integers(2**32))
    return weighted_kmeans(positions[kept], counts[kept], k, n_init, seed)


def evolve(
    ball: PublicBall,
    population: np.ndarray,
    k: int,
    schedule: EvolutionSchedule,
    generator: np.random.Generator,
    n_init: int,
) -> np.ndarray:
    """Let a population evolve, and return the parents of the last generation.

    Parameters
    ----------
    ball : PublicBall
    population : ndarray of shape (n_members, m), float64
        Public: the first members, in grid steps.
    k : int
    schedule : EvolutionSchedule
    generator : numpy.random.Generator
        Public randomness.
    n_init : int
        Starts of the k-means on a population.

    Returns
    -------
    ndarray of shape (at most k, d), int64
        On the grid.
    """
    mutants = schedule.mutants
    population = ball.clip(population)
    for generation in range(schedule.generations):
        # Noisy numbers of the records nearest to each member.
        counts = ball.count_nearest(population, schedule.count_mu)

        # Keep the largest counts until they sum to n. Halve the mutants where the noise
        # of all counts, as a squared norm, exceeds the kept counts.
        weights = largest_counts(counts, ball.points.n_points)
        if (weights**2).sum() < len(population) / schedule.count_mu**2:
            mutants = max(mutants // 2, MIN_MUTANTS)

        # Parents: weighted k-means of the members.
        kept = weights > 0
        parents = cluster_by_counts(population, counts, kept, k, n_init, generator)

        # The next population: the parents and mutants of each.
        if generation < schedule.generations - 1:
            mutated = np.repeat(parents, mutants, axis=0)
            steps = levy_steps(generator, mutated.shape)
            mutated = mutated + MUTATION_SCALE * ball.radius * steps
            population = ball.clip(np.concatenate([parents, mutated]))
    return ball.lift(parents)


def largest_counts(counts: np.ndarray, total: float) -> np.ndarray:
    """Keep the largest noisy counts until they sum to a public total; others become 0.

    Parameters
    ----------
    counts : ndarray of shape (m,), float64
    total : float

    Returns
    -------
    ndarray of shape (m,), float64
        Not negative.

    Examples
    --------
    >>> largest_counts(np.array([1.0, 7.0, -2.0, 4.0]), 10.0).tolist()
    [0.0, 7.0, 0.0, 4.0]
    """
    order = np.argsort(-counts, kind="stable")
    reached = np.flatnonzero(np.cumsum(counts[order]) >= total)
    n_kept = reached[0] + 1 if len(reached) else len(counts)
    weights = np.zeros_like(counts)
    weights[order[:n_kept]] = np.maximum(counts[order[:n_kept]], 0.0)
    return weights


def levy_steps(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw heavy-tailed random steps: Lévy-stable, by Mantegna's algorithm.

    Parameters
    ----------
    generator : numpy.random.Generator
    shape : tuple of int

    Returns
    -------
    ndarray of that shape, float64

    References
    ----------
    Mantegna, R. N. (1994). Fast, accurate algorithm for numerical simulation of Lévy
    stable stochastic processes. Physical Review E 49(5), 4677-4683.

    Examples
    --------
    >>> steps = levy_steps(np.random.default_rng(0), (10_000,))
    >>> bool(0.3 < np.median(np.abs(steps)) < 0.6)
    True
    """
    # A ratio u / |v|^(1 / beta) of normal variates; sd of u is Mantegna's sigma_u.
    beta = LEVY_EXPONENT
    power = 1 / beta
    numerator = gamma(1 + beta) * math.sin(math.pi * beta / 2)
    denominator = gamma((1 + beta) / 2) * beta * 2 ** ((beta - 1) / 2)
    sd = (numerator / denominator) ** power
    steps = sd * generator.standard_normal(shape)
    divisors = np.abs(generator.standard_normal(shape))
    return steps / divisors**power
