"""EM-MC: candidate centers by a private maximum cover in few dimensions.

Nguyen, Chaturvedi, Xu, AAAI 2021. Points are projected to about log10(n) dimensions.
On grids from fine to coarse the exponential mechanism picks grid points that cover many
of them. The picked points, weighted by noisy counts, are clustered by k-means in the
projection. The points of each of the k clusters are then averaged privately in all
dimensions.

The radii, dimensions and shares of the budget are those of the re-implementation in the
DPM study (its Section 6). Departures:

- Scale and clipping are public: 1.5 times half of the domain's diagonal, which allows
  for the distortion of the projection.
- Grids start at a fixed smallest radius. On a finer grid the many empty grid points
  outweigh all but a large part of the points, so that most picks ignore the data.
- Clusters are averaged by noisy sums and counts about the midpoint of the domain. That
  needs less noise than averages whose noise is set by a noisy size.
- No cluster is dropped.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from pkm.compute import DIRECTION_SCALE
from pkm.compute.kernels.lattice import cached_lattice, cover_scales
from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import AUTO, Integer, Real
from pkm.methods.deltas import inverse_n_root_n
from pkm.methods.lloyd.lloyd import TYPICAL_CENTER
from pkm.methods.schedule import Schedule, plan_release
from pkm.privacy import (
    SCALE,
    Charge,
    CoverPicks,
    Curator,
    Gaussian,
    Laplace,
    MaximumCover,
    PrivacyClaim,
    ProjectedCounts,
    ProjectedSumsAndCounts,
    gaussian_mu,
    snap_centers,
)
from pkm.privacy.ledger import largest_multiple
from pkm.privacy.mechanisms.noise import INITIALIZATION, child
from pkm.privacy.queries.projection import cover_epsilon, cover_weight

# Constants of the re-implementation in the DPM study (its Section 6).
COUNT_SHARE = 0.2  # of epsilon, as the next two
AVERAGE_SHARE = 0.6
COVER_SHARE = 0.2
COVER_DELTA_SHARE = 0.5  # of delta, the rest is for the averages
GAMMA = 0.99  # distortion of the projection, and ratio of a grid's side to its cover

# Constants of this implementation.
CLIP_FACTOR = 1.5  # norm that projected points are clipped to, in half-diagonals
MAX_DIMENSIONS = 6
SMALLEST_RADII = (0.01, 0.01, 0.01, 0.01, 0.05, 0.1)  # in 1, 2, ... dimensions
MIN_RADIUS = 0.002  # the lookup tables of finer grids take seconds
N_INIT = 10  # starts of the k-means on candidates, which cost no privacy


@dataclass(frozen=True)
class CoverSchedule(Schedule):
    """Picks of a cover, counts of the candidates, averages of the clusters.

    Attributes
    ----------
    cover : MaximumCover
        Mechanism that picks the grid points.
    candidate_epsilon : float
        Cost of the candidates' counts.
    sum_mu, count_mu : float
        Costs of the clusters' sums and counts.
    """

    cover: MaximumCover
    candidate_epsilon: float
    sum_mu: float
    count_mu: float

    @property
    def releases(self) -> Sequence[Charge]:
        """The cover, the counts and the averages."""
        delta = self.cover.delta
        cover_cost = cover_epsilon(self.cover.weight, delta)
        mu = math.hypot(self.sum_mu, self.count_mu)
        return [
            plan_release(CoverPicks, MaximumCover, epsilon=cover_cost, delta=delta),
            plan_release(ProjectedCounts, Laplace, epsilon=self.candidate_epsilon),
            plan_release(ProjectedSumsAndCounts, Gaussian, mu=mu),
        ]


class EMMC(PrivateKMeans):
    """k-means on candidates from a private maximum cover in few dimensions.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Total, zero-out adjacency: 0.2 for the candidates' counts, 0.6 for the averages,
        0.2 for the cover.
    delta : float or "auto", default="auto"
        ``auto`` is 1 / (n sqrt n) for ``published`` and 1e-6 for ``sound``. Half is for
        the cover.
    variant : {"published", "sound"}, default="sound"
        ``published`` weighs a covered point by the paper's epsilon / (2 ln(e / delta))
        and adds the shares of the budget up; ``sound`` takes the largest weight that
        its share of the budget allows, and composes all costs tightly.
    smallest_radius : float or "auto", default="auto"
        Smallest of the paper's radii that is used, in [0.002, 1]; the unit is 1.5 times
        half of the domain's diagonal. ``auto`` is 0.01 in up to four projected
        dimensions, 0.05 in five, 0.1 in six. Finer grids have so many points that time
        and memory would depend on the data.
    n_dimensions : int or "auto", default="auto"
        Dimensions of the projection, at most 6; ``auto`` is floor(log10(n) / 0.99^2).
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    Balcan : Candidates from cubes in a projection, then a local search.
    KaplanStemmer : Candidates by hashing and averages in all features.

    References
    ----------
    Nguyen, H. L., Chaturvedi, A. and Xu, E. Z. (2021). Differentially private k-means
    via exponential mechanism and max cover. AAAI, 9101-9108.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.25], [0.5, 0.5]], 20_000, axis=0)
    >>> model = EMMC(n_clusters=2, epsilon=4.0, bounds=(-1, 1), random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.round(2).tolist())
    [[-0.5, 0.25], [0.5, 0.5]]
    """

    label = "EM-MC"
    color = "#e69f00"
    marker = "X"
    claims = {
        "published": PrivacyClaim("approximate", flaws=("F-09",)),
        "sound": PrivacyClaim("approximate"),
    }
    constraints = {
        "smallest_radius": AUTO | Real(MIN_RADIUS, 1, "[]"),
        "n_dimensions": AUTO | Integer(1, MAX_DIMENSIONS),
    }
    batched = False
    published_delta = staticmethod(inverse_n_root_n)

    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    variant: str = "sound"
    smallest_radius: float | Literal["auto"] = "auto"
    n_dimensions: int | Literal["auto"] = "auto"

    def check_parameters(self, n_points: int | None = None) -> None:
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        if n_points is not None and not self.hides_n:
            # The finest grid has the largest tables: the lattice refuses those that are
            # too large.
            finest_side, _ = self._scales(n_points)[0]
            cached_lattice(self.dimensions(n_points), finest_side)

    def dimensions(self, n_points: int) -> int:
        """Number of dimensions that points are projected to."""
        if self.n_dimensions != "auto":
            return self.n_dimensions
        n_dimensions = int(math.log10(n_points) / GAMMA**2)
        return min(max(n_dimensions, 1), MAX_DIMENSIONS)

    def _scales(self, n_points: int) -> tuple[tuple[float, float], ...]:
        """Side and cover radius of every grid, from fine to coarse."""
        m = self.dimensions(n_points)
        radius = self.smallest_radius
        if radius == "auto":
            radius = SMALLEST_RADII[m - 1]
        return tuple(cover_scales(n_points, m, GAMMA, radius))

    @property
    def n_picks(self) -> int:
        """Number of grid points picked per grid."""
        return math.ceil(self.n_clusters * math.log(math.ceil(1 / GAMMA)))

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> CoverSchedule:
        """All releases; see :meth:`PrivateKMeans.schedule`."""
        # Divide the budget over the candidates' counts, the cover and the averages.
        epsilon = self.epsilon
        delta = self.resolved_delta(n_points)
        count_epsilon = COUNT_SHARE * epsilon
        cover_budget = COVER_SHARE * epsilon
        cover_delta = COVER_DELTA_SHARE * delta
        average_delta = delta - cover_delta
        mu = gaussian_mu(AVERAGE_SHARE * epsilon, average_delta)

        # For "sound", scale all costs up until they spend the budget, composed tightly.
        if self.variant == "sound":
            factor = largest_multiple(
                [mu], [count_epsilon, cover_budget], epsilon, average_delta
            )
            mu *= factor
            count_epsilon *= factor
            cover_budget *= factor

        # Weight of a covered point in the exponents of the exponential mechanism.
        weight = cover_weight(cover_budget, cover_delta)
        if self.variant == "published":
            log = math.log(math.e / cover_delta)
            weight = min(weight, cover_budget / (2 * log))

        # Divide the averages' mu in proportion to the errors that they make in a mean:
        # that of the sum, and that of the count times the expected distance from the
        # midpoint.
        sum_error = math.sqrt(n_features)
        count_error = 2 * TYPICAL_CENTER
        total = sum_error + count_error
        return CoverSchedule(
            cover=MaximumCover(weight, cover_delta),
            candidate_epsilon=count_epsilon,
            sum_mu=mu * math.sqrt(sum_error / total),
            count_mu=mu * math.sqrt(count_error / total),
        )

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run one replicate: cover, counts, k-means on candidates, averages."""
        d = curator.n_features
        m = self.dimensions(curator.n_points)
        schedule = self.schedule(curator.n_points, d)

        # Project at random to m dimensions. Entries of the matrix are rounded, so that
        # products are exact; points are scaled into the unit ball and clipped to it.
        bits = np.random.MT19937(child(curator.public_seeds[0], INITIALIZATION))
        generator = np.random.RandomState(bits)
        matrix = np.rint(generator.standard_normal((m, d)) * DIRECTION_SCALE)
        length = CLIP_FACTOR * math.sqrt(d) * SCALE * math.sqrt(m) * DIRECTION_SCALE
        projected = curator.projection(matrix.astype(np.int64), length)

        # Candidates: the private maximum cover on each grid.
        query = CoverPicks(self._scales(curator.n_points), self.n_picks)
        candidates = projected.release(query, picks=schedule.cover)["picks"]

        # Weights: noisy numbers of the points nearest to each candidate.
        noise = Laplace(SCALE / schedule.candidate_epsilon)
        answer = projected.release(ProjectedCounts(candidates), counts=noise)
        weights = np.maximum(np.ceil(answer["counts"] / SCALE), 0.0)
        weights[find_repeated(candidates)] = 0.0

        # k-means on the weighted candidates, in the projection: post-processing.
        centers = cluster_candidates(candidates, weights, self.n_clusters, generator)

        # Average the points of each cluster in all dimensions.
        answer = projected.release(
            ProjectedSumsAndCounts(centers),
            sums=Gaussian(math.sqrt(d) * SCALE / schedule.sum_mu),
            counts=Gaussian(SCALE / schedule.count_mu),
        )
        sizes = np.maximum(answer["counts"] / SCALE, 1.0)
        means = answer["sums"] / sizes[:, None]
        return np.clip(snap_centers(means), -SCALE, SCALE)[None], 1


def find_repeated(candidates: np.ndarray) -> np.ndarray:
    """Mark candidates that were picked before; points count for the first pick.

    Examples
    --------
    >>> find_repeated(np.array([[0.0, 0.5], [0.5, 0.0], [0.0, 0.5]])).tolist()
    [False, False, True]
    """
    is_repeated = np.ones(len(candidates), bool)
    _, first = np.unique(candidates, axis=0, return_index=True)
    is_repeated[first] = False
    return is_repeated


def cluster_candidates(
    candidates: np.ndarray,
    sample_weight: np.ndarray,
    k: int,
    generator: np.random.RandomState,
) -> np.ndarray:
    """Cluster weighted candidates into k centers.

    Parameters
    ----------
    candidates : ndarray of shape (c, m), float64
    sample_weight : ndarray of shape (c,), float64
        Not negative.
    k : int
    generator : numpy.random.RandomState

    Returns
    -------
    ndarray of shape (k, m), float64
        By k-means where more than k candidates have weight; otherwise the k heaviest,
        the lightest of them repeated where there are too few.
    """
    heaviest = np.argsort(-sample_weight, kind="stable")
    if np.count_nonzero(sample_weight) <= k:
        ranks = np.minimum(np.arange(k), len(heaviest) - 1)
        return candidates[heaviest[ranks]]
    positive = sample_weight > 0
    # One thread sums the few hundred candidates in one order on every machine.
    with threadpool_limits(limits=1):
        model = KMeans(k, random_state=generator).set_params(n_init=N_INIT)
        model.fit(candidates[positive], sample_weight=sample_weight[positive])
    return model.cluster_centers_
