"""Lloyd's algorithm and its private variants: SuLloyd, GLloyd and FastLloyd.

All start from the centers of packed spheres. In each of T rounds they query the curator
for the sums and counts of the points nearest to each center, then move the centers.
They differ in the noise, in the origin of the sums (the domain's midpoint or the
center), and in what is done to centers outside the domain. Source: Diaa,
Humphries, Kerschbaum, "FastLloyd" (USENIX Security 2025), Sec. 5 and App. B; SuLloyd
after Su et al. (CODASPY 2016). Lines are those of FastLloyd's Algorithm 1.

Units: the domain is [-1, 1]^d.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from pkm.compute import exact_limit
from pkm.compute.kernels.center_moves import FOLD, KEEP, TRUNCATE, move_centers
from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import AUTO, FLAG, NONE, Integer, OneOf, Real
from pkm.methods.initialization import starting_centers
from pkm.methods.schedule import Schedule, plan_release
from pkm.methods.zoom import ZoomPlan
from pkm.privacy import (
    NO_CLAIM,
    SCALE,
    Charge,
    Curator,
    Gaussian,
    Laplace,
    PrivacyClaim,
    SumsAndCounts,
    gaussian_mu,
    snap_centers,
)

#: Su et al.'s rho: typical size of a normalized center's coordinate.
TYPICAL_CENTER = 0.225
#: Mean squared error per iteration that the number of iterations is chosen for.
TARGET_ERROR = 0.004
MIN_ITERATIONS = 2
MAX_ITERATIONS = 7
MIN_ALPHA = 1e-6  # below, a radius is less than a grid step


@dataclass(frozen=True)
class Round:
    """One public round of a schedule.

    Attributes
    ----------
    radius : float or None
        The paper's eta, in half-widths: farther points are assigned to no center. None
        for no limit.
    sum_noise, count_noise : Gaussian, Laplace or None
    longest_move : float
        Norm that the move of a center is clipped to, in grid steps.
    """

    radius: float | None
    sum_noise: Gaussian | Laplace | None
    count_noise: Gaussian | Laplace | None
    longest_move: float = math.inf


@dataclass(frozen=True)
class LloydSchedule(Schedule):
    """Rounds of sums and counts, all at the same cost.

    Attributes
    ----------
    rounds : tuple of Round
    cost : Charge or None
        Cost of one round; None without privacy.
    """

    rounds: tuple[Round, ...]
    cost: Charge | None = None

    @property
    def releases(self) -> Sequence[Charge]:
        """Sums and counts, round by round."""
        return [] if self.cost is None else [self.cost] * len(self.rounds)


def count_weight(n_features: int) -> float:
    """Su et al.'s weight of a count against a coordinate of a sum."""
    return (4 * n_features * TYPICAL_CENTER**2) ** (1 / 3)


POSTPROCESSING = {"none": KEEP, "truncate": TRUNCATE, "fold": FOLD}


class Lloyd(PrivateKMeans):
    """Lloyd's algorithm without privacy: seven rounds from the same starting centers.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    variant : {"published", "sound"}, default="sound"
        Sets the default of ``radius_search``. The center of an empty cluster does not
        move in either, as in the authors' runs without privacy.
    initialization : {"packing", "uniform"}, default="packing"
        Centers of spheres of one radius that are packed into the domain (Sec. 5.3.1),
        or uniform points.
    radius_search : {"auto", "halving", "bisection"}, default="auto"
        Search for the largest radius of the spheres. ``auto`` is ``halving`` for
        ``published`` and ``bisection`` for ``sound``.
    n_iterations : int or "auto", default="auto"
        Number of rounds, at least 1. ``auto`` is 7. In private variants it is 2 to 7,
        by a public rule on n, d, k and the budget.
    missing : {"k-pod"}, optional
        Treatment of missing entries, NaN in rows that have others: the coordinate of
        the center that is nearest by the other entries, so that they do not move it
        (Chi, Chi and Baraniuk 2016). Unlike there, such a row weighs the cube of the
        share of its other entries. Default: such a row is the null record.
    bounds, clip, random_state
        As for :class:`pkm.methods.PrivateKMeans`.
    zoom, require_zoom, report, secure, adjacency
        For private methods: leave them out.

    See Also
    --------
    KMeansPlusPlus : Starts by k-means++, and runs until the centers settle.
    FastLloyd : Private, with Gaussian noise on sums about the centers.
    SuLloyd : Private, with Laplace noise.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.0], [0.5, 0.5]], 100, axis=0)
    >>> model = Lloyd(n_clusters=2, bounds=(-1, 1), random_state=0).fit(X)
    >>> model.cluster_centers_.round(3).tolist()
    [[0.5, 0.5], [-0.5, 0.0]]
    """

    label = "Lloyd, non-private"
    color = "#000000"
    marker = "D"
    claims = {"published": NO_CLAIM, "sound": NO_CLAIM}
    constraints = {
        "initialization": OneOf("packing", "uniform"),
        "radius_search": OneOf("auto", "halving", "bisection"),
        "n_iterations": AUTO | Integer(1),
        "missing": NONE | OneOf("k-pod"),
    }
    supports_chunks = True
    relative = False  # whether sums are taken about the centers

    variant: str = "sound"
    initialization: str = "packing"
    radius_search: str = "auto"
    n_iterations: int | Literal["auto"] = "auto"

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run the rounds of the schedule; see :meth:`PrivateKMeans.cluster`."""
        return self.iterate(curator, self._starting_centers(curator))

    def iterate(
        self,
        curator: Curator,
        centers: np.ndarray,
        n_rounds: int | None = None,
    ) -> tuple[np.ndarray, int]:
        """Run the rounds of the schedule from given centers.

        Parameters
        ----------
        curator : Curator
        centers : ndarray of shape (R, k, d), int64
            Released or public, on the grid.
        n_rounds : int, optional
            The first ones only. Default: all.

        Returns
        -------
        centers : ndarray of shape (R, k, d), int64
        n_rounds : int
        """
        rounds = self._schedule_for(curator).rounds[:n_rounds]
        for current in rounds:
            # Lines 5-16: assign points to their nearest centers within the radius, and
            # release the noisy sums and counts of each.
            query = SumsAndCounts(
                centers,
                current.radius,
                self.relative,
                fill=self.missing is not None,
            )
            answer = curator.release(
                query, sums=current.sum_noise, counts=current.count_noise
            )

            # Lines 17-20: move every center to the noisy mean, and post-process.
            centers = move_centers(
                centers,
                answer["sums"],
                answer["counts"],
                self.relative,
                self._keeps_empty(),
                current.longest_move,
                float(exact_limit(curator.n_features)),
                POSTPROCESSING[self._postprocessing()],
            )
        return centers, len(rounds)

    def _schedule_for(self, curator: Curator) -> LloydSchedule:
        """All rounds for the points of a curator."""
        return self.schedule(curator.n_points, curator.n_features)

    def _starting_centers(self, curator: Curator) -> np.ndarray:
        """Starting centers of all replicates."""
        # Line 3: public randomness, without a query.
        search = self.radius_search
        if search == "auto":
            search = "halving" if self.variant == "published" else "bisection"
        return starting_centers(
            curator.public_seeds,
            self.n_clusters,
            curator.n_features,
            self.initialization,
            search,
        )

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> LloydSchedule:
        """All rounds; see :meth:`PrivateKMeans.schedule`."""
        exact = Round(None, None, None)
        return LloydSchedule((exact,) * self._n_rounds(MAX_ITERATIONS))

    def _n_rounds(self, bound: float) -> int:
        """Number of rounds: the parameter, or the bound of the error analysis.

        The bound is clipped to [2, 7] (Sec. 5.5).
        """
        if self.n_iterations != "auto":
            return self.n_iterations
        return int(min(max(bound, MIN_ITERATIONS), MAX_ITERATIONS))

    def _keeps_empty(self) -> bool:
        """Whether a center does not move if its noisy count is below one record."""
        return True

    def _postprocessing(self) -> str:
        """Post-processing of centers outside the domain, a key of POSTPROCESSING."""
        return "none"


class _PrivateLloyd(Lloyd):
    """Parameters of all private variants."""

    constraints = {
        "postprocessing": OneOf("auto", *POSTPROCESSING),
    }

    epsilon: float = 1.0
    postprocessing: str = "auto"

    def _keeps_empty(self) -> bool:
        return self.variant == "sound"

    def _postprocessing(self) -> str:
        if self.postprocessing != "auto":
            return self.postprocessing
        return "none" if self.variant == "published" else "fold"


class SuLloyd(_PrivateLloyd):
    """DP-Lloyd with Laplace noise, and the split and number of rounds of Su et al.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Total over all rounds, zero-out adjacency, pure.
    variant : {"published", "sound"}, default="sound"
        ``published`` is what the FastLloyd paper plots; ``sound`` does not move a
        center whose noisy count is below one.
    postprocessing : {"auto", "none", "truncate", "fold"}, default="auto"
        Treatment of coordinates outside the domain: ``truncate`` clips them to it,
        ``fold`` reflects them at its border (Sec. 5.3.5). ``auto`` is ``none`` for
        ``published`` and ``fold`` for ``sound``.
    initialization, radius_search, n_iterations, missing
        As for :class:`Lloyd`.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    GLloyd : The same sums with Gaussian noise; needs a delta.
    FastLloyd : Sums about the centers, within a radius; needs a delta.
    QuadtreeKMeans : Pure as well; counts of nested grids, for few features.

    Notes
    -----
    Per round epsilon / T is split between sums and counts as d : (4 d rho^2)^(1/3) with
    rho = 0.225.

    References
    ----------
    Su, D., Cao, J., Li, N., Bertino, E. and Jin, H. (2016). Differentially private
    k-means clustering. CODASPY, 26-37.

    Diaa, A., Humphries, T. and Kerschbaum, F. (2025). FastLloyd: federated, accurate,
    secure, and tunable k-means clustering with differential privacy. USENIX Security.
    """

    label = "SuLloyd"
    color = "#d55e00"
    marker = "s"
    claims = {
        "published": PrivacyClaim("pure", flaws=("F-09",)),
        "sound": PrivacyClaim("pure"),
    }

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> LloydSchedule:
        """All rounds; see :meth:`PrivateKMeans.schedule`."""
        n_rounds, coordinate_epsilon, count_epsilon = self._split(n_points, n_features)
        # A sum has the L1 sensitivity d, so that it costs d * coordinate_epsilon.
        sum_noise = Laplace(SCALE / coordinate_epsilon)
        count_noise = Laplace(SCALE / count_epsilon)
        cost = plan_release(SumsAndCounts, Laplace, epsilon=self.epsilon / n_rounds)
        return LloydSchedule((Round(None, sum_noise, count_noise),) * n_rounds, cost)

    def round_error(
        self,
        n_points: int,
        n_features: int,
        n_rounds: int,
    ) -> float:
        """Predicted mean squared error of one of ``n_rounds`` rounds (Su et al.)."""
        epsilon = self.epsilon / n_rounds
        return TARGET_ERROR * (self._least_epsilon(n_points, n_features) / epsilon) ** 2

    def _least_epsilon(
        self,
        n_points: int,
        n_features: int,
    ) -> float:
        """The least epsilon of a round whose predicted error is TARGET_ERROR."""
        # Su et al.'s error 2 k^3 (d + c)^3 / (n epsilon)^2, solved for epsilon: 500 is
        # 2 / TARGET_ERROR.
        n = n_points
        d = n_features
        k = self.n_clusters
        return math.sqrt(500 * k**3 / n**2 * (d + count_weight(d)) ** 3)

    def _split(
        self,
        n_points: int,
        n_features: int,
    ) -> tuple[int, float, float]:
        """Rounds, and the epsilons of a sum's coordinate and of a count in a round."""
        # A round's epsilon is divided between d coordinates and a count as 1 : weight.
        d = n_features
        weight = count_weight(d)
        n_rounds = self._n_rounds(self.epsilon / self._least_epsilon(n_points, d))
        coordinate_epsilon = self.epsilon / n_rounds / (d + weight)
        return n_rounds, coordinate_epsilon, weight * coordinate_epsilon


class _GaussianLloyd(_PrivateLloyd):
    """Variants with Gaussian noise, which have a delta."""

    claims = {
        "published": PrivacyClaim("approximate", flaws=("F-09",)),
        "sound": PrivacyClaim("approximate"),
    }

    delta: float | Literal["auto"] = "auto"

    def _noise_multiplier(self, n_points: int) -> float:
        """The paper's sigma: noise multiplier of one release at the whole budget."""
        return 1 / gaussian_mu(self.epsilon, self.resolved_delta(n_points))

    def _cost(
        self,
        n_points: int,
        n_rounds: int,
    ) -> Charge:
        """Cost of one of ``n_rounds`` rounds that spend the budget together."""
        mu = 1 / (self._noise_multiplier(n_points) * math.sqrt(n_rounds))
        return plan_release(SumsAndCounts, Gaussian, mu=mu)


class GLloyd(_GaussianLloyd):
    """DP-Lloyd with Gaussian noise (FastLloyd paper, App. B.1).

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Total over all rounds, zero-out adjacency.
    delta : float or "auto", default="auto"
        ``auto`` is 1 / (n ln n) for ``published`` and 1e-6 for ``sound``.
    variant, postprocessing, initialization, radius_search, n_iterations, missing
        As for :class:`SuLloyd`.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    FastLloyd : Sums about the centers, with a radius as sensitivity.
    SuLloyd : Laplace noise, for pure privacy.

    References
    ----------
    Diaa, A., Humphries, T. and Kerschbaum, F. (2025). FastLloyd: federated, accurate,
    secure, and tunable k-means clustering with differential privacy. USENIX Security.
    """

    label = "GLloyd"
    color = "#0072b2"
    marker = "^"

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> LloydSchedule:
        """All rounds; see :meth:`PrivateKMeans.schedule`."""
        n = n_points
        d = n_features
        k = self.n_clusters
        sigma = self._noise_multiplier(n)
        count_part = 2 * TYPICAL_CENTER
        total = count_part + math.sqrt(d)

        # Number of rounds at which the error of each is TARGET_ERROR.
        n_rounds = self._n_rounds(
            TARGET_ERROR * n**2 / (k**3 * d * sigma**2 * total**2)
        )

        # Noise of a round, divided between sums and counts for the least error (App.
        # B.1).
        round_sigma = sigma * math.sqrt(n_rounds) * SCALE
        sum_scale = round_sigma * math.sqrt(d) * math.sqrt(total) / d**0.25
        count_scale = round_sigma * math.sqrt(total / count_part)
        round_ = Round(None, Gaussian(sum_scale), Gaussian(count_scale))
        return LloydSchedule((round_,) * n_rounds, self._cost(n, n_rounds))


class FastLloyd(_GaussianLloyd):
    """DP-Lloyd with relative sums inside a radius (FastLloyd paper, Algorithm 1).

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Total over all rounds, zero-out adjacency.
    delta : float or "auto", default="auto"
        ``auto`` is 1 / (n ln n) for ``published`` and 1e-6 for ``sound``.
    variant : {"published", "sound"}, default="sound"
        ``published`` moves a center whatever its noisy count is. ``sound`` does not
        move a center whose noisy count is below one.
    radius_schedule : {"step", "constant"}, default="step"
        Radius of the rounds: half the domain's diagonal in the first round and eta
        afterwards, or eta throughout.
    alpha : float, default=0.8
        Factor of the radius eta = alpha sqrt(d) / k^(1/d), in half-widths (Sec. 5.6).
        At least 1e-6.
    radius_clipping : bool, default=True
        Clip the move of a center to the radius.
    postprocessing : {"auto", "none", "truncate", "fold"}, default="auto"
        As for :class:`SuLloyd`, but ``auto`` is ``fold`` for both variants.
    initialization, radius_search, n_iterations, missing
        As for :class:`Lloyd`.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    SynopsisKMeans : Best mean rank of ten methods in the comparison of the docs.
    GLloyd : Sums of the points themselves, without a radius.
    SuLloyd : Laplace noise, for pure privacy.

    References
    ----------
    Diaa, A., Humphries, T. and Kerschbaum, F. (2025). FastLloyd: federated, accurate,
    secure, and tunable k-means clustering with differential privacy. USENIX Security.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.25], [0.5, 0.5]], 5000, axis=0)
    >>> model = FastLloyd(2, epsilon=1.0, bounds=(-1, 1), random_state=2).fit(X)
    >>> model.cluster_centers_.round(2).tolist(), round(model.ledger_.spent(), 6)
    ([[-0.5, 0.25], [0.5, 0.5]], 1.0)
    """

    label = "FastLloyd"
    color = "#009e73"
    marker = "o"
    constraints = {
        "radius_schedule": OneOf("step", "constant"),
        "alpha": Real(MIN_ALPHA, math.inf, "[)"),
        "radius_clipping": FLAG,
    }
    relative = True
    benefits_from_ball = True

    radius_schedule: str = "step"
    alpha: float = 0.8
    radius_clipping: bool = True

    def radius(
        self,
        n_features: int,
        ball_radius: float | None = None,
    ) -> float:
        """The radius eta (Sec. 5.6), at most the diameter of the domain.

        For a ball, its radius takes the place of half the diagonal, sqrt(d).
        """
        half_diagonal = ball_radius or math.sqrt(n_features)
        eta = self.alpha * half_diagonal / self.n_clusters ** (1 / n_features)
        return min(eta, 2 * half_diagonal)

    def freeze_schedule(self, plan: ZoomPlan) -> Self:
        """Fix the number of rounds to that in a ball, whether or not one is found."""
        if not plan.ball:
            return self
        rounds = self.schedule(plan.n_points, plan.n_features, ball_radius=1.0).rounds
        return replace(self, n_iterations=len(rounds))

    def _schedule_for(self, curator: Curator) -> LloydSchedule:
        """All rounds for the points of a curator, in a box or in a ball."""
        return self.schedule(curator.n_points, curator.n_features, curator.radius)

    def _starting_centers(self, curator: Curator) -> np.ndarray:
        """Starting centers of all replicates, in the cube inscribed in a ball."""
        centers = super()._starting_centers(curator)
        return snap_centers(centers * curator.radius / math.sqrt(curator.n_features))

    def schedule(
        self,
        n_points: int,
        n_features: int,
        ball_radius: float | None = None,
    ) -> LloydSchedule:
        """All rounds, in a box or in a ball."""
        d = n_features
        sigma = self._noise_multiplier(n_points)
        eta = self.radius(d, ball_radius)
        half_diagonal = ball_radius or math.sqrt(d)
        diagonal = 2 * half_diagonal
        n_rounds = self._n_rounds(self._round_bound(n_points, d, ball_radius))

        # Radii of the rounds (Sec. 5.6).
        first = half_diagonal if self.radius_schedule == "step" else eta
        radii = [first] + [eta] * (n_rounds - 1)

        # Sigma of a round is split as sigma^C = (4 d)^(1/4) sigma^R (Eqn. 7; sqrt(4 d)
        # is the diagonal), times the sensitivities: the radius, and 1 (Eqn. 8).
        count_scale = sigma * math.sqrt(n_rounds) * SCALE * math.sqrt(1 + diagonal)
        rounds = []
        for radius in radii:
            sum_noise = Gaussian(count_scale * radius / math.sqrt(diagonal))
            longest_move = radius * SCALE if self.radius_clipping else math.inf
            rounds.append(Round(radius, sum_noise, Gaussian(count_scale), longest_move))
        return LloydSchedule(tuple(rounds), self._cost(n_points, n_rounds))

    def round_error(
        self,
        n_points: int,
        n_features: int,
        n_rounds: int,
    ) -> float:
        """Predicted mean squared error of one of ``n_rounds`` rounds (Sec. 5.5)."""
        return TARGET_ERROR * n_rounds / self._round_bound(n_points, n_features)

    def _round_bound(
        self,
        n_points: int,
        n_features: int,
        ball_radius: float | None = None,
    ) -> float:
        """Number of rounds at which the error of each is TARGET_ERROR (Sec. 5.5)."""
        # The last equation of Sec. 5.5, with 1 + diagonal for 1 + sqrt(4 d).
        n = n_points
        k = self.n_clusters
        sigma = self._noise_multiplier(n)
        eta = self.radius(n_features, ball_radius)
        total = 1 + 2 * (ball_radius or math.sqrt(n_features))
        return 4 * TARGET_ERROR * n**2 / (k**3 * eta**2 * sigma**2 * total**2)

    def _postprocessing(self) -> str:
        return "fold" if self.postprocessing == "auto" else self.postprocessing
