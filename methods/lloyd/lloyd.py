"""Lloyd's algorithm and its private variants: SuLloyd, GLloyd and FastLloyd.

All start from packed spheres, and in each of T rounds query the curator for the sums
and counts of the points nearest to each center, then move the centers. They differ in
the noise, in whether sums are taken about the midpoint of the domain or about the
center within a radius, and in how released centers are put back into the domain.
Source: Diaa, Humphries, Kerschbaum, "FastLloyd" (USENIX Security 2025), Sec. 5 and App.
B; SuLloyd after Su et al. (CODASPY 2016).

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
from pkm.methods.constraints import AUTO, FLAG, Integer, OneOf, Real
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
        In half-widths: farther points are left out; None for no limit.
    sum_noise, count_noise : Gaussian, Laplace or None
    longest_move : float
        Of a center, in grid steps.
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
        Of one round; None without privacy.
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
    variant : {"published", "sound"}, default="sound"
        Sets the default of ``radius_search``. The center of an empty cluster does not
        move in either, as in the authors' runs without privacy.
    initialization : {"packing", "uniform"}, default="packing"
    radius_search : {"auto", "halving", "bisection"}, default="auto"
        Search for the packing radius; ``auto`` is ``halving`` for ``published`` and
        ``bisection`` for ``sound``.
    n_iterations : int or "auto", default="auto"
    bounds, clip, random_state
        As for :class:`pkm.methods.PrivateKMeans`.

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
        **PrivateKMeans.constraints,
        "variant": OneOf("published", "sound"),
        "initialization": OneOf("packing", "uniform"),
        "radius_search": OneOf("auto", "halving", "bisection"),
        "n_iterations": AUTO | Integer(1),
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
            # Assign points to their nearest centers; release noisy sums and counts.
            query = SumsAndCounts(centers, current.radius, self.relative)
            answer = curator.release(
                query, sums=current.sum_noise, counts=current.count_noise
            )

            # Move every center to the noisy mean.
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
        """Whether a center stays whose count is below one record."""
        return True

    def _postprocessing(self) -> str:
        """What is done to centers that leave the domain."""
        return "none"


class _DPLloyd(Lloyd):
    """Parameters of all private variants."""

    constraints = {
        **Lloyd.constraints,
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


class SuLloyd(_DPLloyd):
    """DP-Lloyd with Laplace noise, and the split and number of rounds of Su et al.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Total over all rounds, zero-out adjacency, pure.
    variant : {"published", "sound"}, default="sound"
        ``published`` is what the FastLloyd paper plots; ``sound`` does not move a
        center whose noisy count is below one.
    postprocessing : {"auto", "none", "truncate", "fold"}, default="auto"
        ``auto`` is ``none`` for ``published`` and ``fold`` for ``sound``.
    initialization, radius_search, n_iterations, bounds, clip, random_state
        As for :class:`Lloyd`.
    secure
        As for :class:`pkm.methods.PrivateKMeans`.

    Notes
    -----
    Per round epsilon / T is split between sums and counts as d : (4 d rho^2)^(1/3) with
    rho = 0.225.
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
        # The sum's L1 sensitivity is d: it costs d * coordinate_epsilon.
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
        """Predicted mean squared error of each of some rounds (Su et al.)."""
        epsilon = self.epsilon / n_rounds
        return TARGET_ERROR * (self._least_epsilon(n_points, n_features) / epsilon) ** 2

    def _least_epsilon(
        self,
        n_points: int,
        n_features: int,
    ) -> float:
        """The least epsilon of a round that keeps to the target error."""
        n = n_points
        d = n_features
        k = self.n_clusters
        return math.sqrt(500 * k**3 / n**2 * (d + count_weight(d)) ** 3)

    def _split(
        self,
        n_points: int,
        n_features: int,
    ) -> tuple[int, float, float]:
        """Rounds, and epsilon of a sum's coordinate and of a count in each of them."""
        d = n_features
        weight = count_weight(d)
        n_rounds = self._n_rounds(self.epsilon / self._least_epsilon(n_points, d))
        coordinate_epsilon = self.epsilon / n_rounds / (d + weight)
        return n_rounds, coordinate_epsilon, weight * coordinate_epsilon


class _GaussianLloyd(_DPLloyd):
    """Variants with Gaussian noise, which have a delta."""

    claims = {
        "published": PrivacyClaim("approximate", flaws=("F-09",)),
        "sound": PrivacyClaim("approximate"),
    }

    delta: float | Literal["auto"] = "auto"

    def _noise_multiplier(self, n_points: int) -> float:
        """Standard deviation of one release of sensitivity 1 that spends the budget."""
        return 1 / gaussian_mu(self.epsilon, self.resolved_delta(n_points))

    def _cost(
        self,
        n_points: int,
        n_rounds: int,
    ) -> Charge:
        """Cost of one of several rounds that spend the budget."""
        mu = 1 / (self._noise_multiplier(n_points) * math.sqrt(n_rounds))
        return plan_release(SumsAndCounts, Gaussian, mu=mu)


class GLloyd(_GaussianLloyd):
    """DP-Lloyd with Gaussian noise (FastLloyd paper, App. B.1).

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Total over all rounds, zero-out adjacency.
    delta : float or "auto", default="auto"
        ``auto`` is 1 / (n ln n) for ``published`` and 1e-6 for ``sound``.
    variant, postprocessing, initialization, radius_search, n_iterations, bounds, clip,
    random_state, secure
        As for :class:`SuLloyd`.
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

        # Rounds that keep the error of each to the target.
        n_rounds = self._n_rounds(
            TARGET_ERROR * n**2 / (k**3 * d * sigma**2 * total**2)
        )

        # Noise of a round, divided between sums and counts for the least error.
        round_sigma = sigma * math.sqrt(n_rounds) * SCALE
        sum_scale = round_sigma * math.sqrt(d) * math.sqrt(total) / d**0.25
        count_scale = round_sigma * math.sqrt(total / count_part)
        one = Round(None, Gaussian(sum_scale), Gaussian(count_scale))
        return LloydSchedule((one,) * n_rounds, self._cost(n, n_rounds))


class FastLloyd(_GaussianLloyd):
    """DP-Lloyd with relative sums inside a radius (FastLloyd paper, Algorithm 1).

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Total over all rounds, zero-out adjacency.
    delta : float or "auto", default="auto"
        ``auto`` is 1 / (n ln n) for ``published`` and 1e-6 for ``sound``.
    variant : {"published", "sound"}, default="sound"
    radius_schedule : {"step", "constant"}, default="step"
        ``step`` takes half the domain's diagonal in the first round, eta afterwards;
        ``constant`` takes eta throughout.
    alpha : float, default=0.8
        Factor of the radius eta = alpha sqrt(d) / k^(1/d) (Sec. 5.6).
    radius_clipping : bool, default=True
        Shorten a center's move to the radius.
    postprocessing : {"auto", "none", "truncate", "fold"}, default="auto"
        ``auto`` is ``fold``.
    initialization, radius_search, n_iterations, bounds, clip, random_state, secure
        As for :class:`SuLloyd`.

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
        **_DPLloyd.constraints,
        "radius_schedule": OneOf("step", "constant"),
        "alpha": Real(MIN_ALPHA, math.inf, "[)"),
        "radius_clipping": FLAG,
    }
    relative = True
    supports_ball = True

    radius_schedule: str = "step"
    alpha: float = 0.8
    radius_clipping: bool = True

    def radius(
        self,
        n_features: int,
        ball: float | None = None,
    ) -> float:
        """The radius eta, at most the domain's diameter.

        Of a box, or of a ball of a given radius: half of the diameter takes the place
        of sqrt(d).
        """
        half = ball or math.sqrt(n_features)
        eta = self.alpha * half / self.n_clusters ** (1 / n_features)
        return min(eta, 2 * half)

    def fix_schedule(self, plan: ZoomPlan) -> Self:
        """Fix the number of rounds: in a ball, whether or not one is found."""
        if not plan.ball:
            return self
        rounds = self.schedule(plan.n_points, plan.n_features, ball=1.0).rounds
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
        ball: float | None = None,
    ) -> LloydSchedule:
        """All rounds, in a box or in a ball of a radius (Algorithm 1)."""
        d = n_features
        sigma = self._noise_multiplier(n_points)
        eta = self.radius(d, ball)
        half = ball or math.sqrt(d)
        diagonal = 2 * half
        n_rounds = self._n_rounds(self._round_bound(n_points, d, ball))

        # The first radius lets centers cross half of the domain, the later ones move by
        # eta.
        first = half if self.radius_schedule == "step" else eta
        radii = [first] + [eta] * (n_rounds - 1)

        # Noise of a round, divided between sums and counts for the least error.
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
        """Predicted mean squared error of each of some rounds within eta (Sec. 5.5)."""
        return TARGET_ERROR * n_rounds / self._round_bound(n_points, n_features)

    def _round_bound(
        self,
        n_points: int,
        n_features: int,
        ball: float | None = None,
    ) -> float:
        """Rounds that keep the error of each to the target (Sec. 5.5)."""
        n = n_points
        k = self.n_clusters
        sigma = self._noise_multiplier(n)
        eta = self.radius(n_features, ball)
        total = 1 + 2 * (ball or math.sqrt(n_features))
        return 4 * TARGET_ERROR * n**2 / (k**3 * eta**2 * sigma**2 * total**2)

    def _postprocessing(self) -> str:
        return "fold" if self.postprocessing == "auto" else self.postprocessing
