"""Common parts of the methods under rho-bounded adjacency: budget, noise on points, clustering."""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal, Protocol, TypeVar

import numpy as np

from pkm.methods.base import PrivateKMeans
from pkm.methods.baselines.kmedian import weighted_kmedian
from pkm.methods.constraints import Integer, OneOf, Real
from pkm.methods.contract import SOUND_DELTA
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import SCALE, Budget, gaussian_mu, snap_centers
from pkm.privacy.budget import Adjacency
from pkm.privacy.queries.numbered_records import diagonal, largest_shift
from pkm.privacy.rho_bounded import RhoBoundedCurator

MAX_NOISED = 2 * SCALE  # noised points are moved into [-2, 2]^d


@dataclass(eq=False, repr=False)
class RhoBoundedMethod(PrivateKMeans):
    """Parameters and budget common to the rho-bounded methods, which describe them."""

    curator = RhoBoundedCurator
    batched = False
    published_delta = staticmethod(lambda n_points: SOUND_DELTA)
    constraints = {
        **PrivateKMeans.constraints,
        "rho": Real(0, unit="half-widths of the domain") | OneOf("diagonal"),
        "p": OneOf(1, 2),
        "calibration": OneOf("classical", "analytic"),
        "n_init": Integer(1),
    }

    _: KW_ONLY
    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    rho: float | Literal["diagonal"] = 0.05
    p: int = 2
    calibration: str = "classical"
    n_init: int = 1

    def budget(self, n_points: int, n_features: int) -> Budget:
        """Budget of one run: epsilon and delta for moves of at most rho."""
        rho = self.resolved_rho(n_features)
        return Budget(self.epsilon, self.resolved_delta(n_points), Adjacency.RHO_BOUNDED, rho)

    def resolved_rho(self, n_features: int) -> float:
        """The largest move that is protected, in half-widths."""
        return diagonal(n_features) if self.rho == "diagonal" else float(self.rho)

    def max_shift(self, n_features: int) -> float:
        """The largest move between grid points, in half-widths."""
        return largest_shift(self.resolved_rho(n_features), n_features)

    def _cluster_released(
        self, points: np.ndarray, weights: np.ndarray, generator: np.random.Generator
    ) -> np.ndarray:
        """Centers (1, k', d), on the grid, of weighted released points: post-processing."""
        solve = weighted_kmeans if self.p == 2 else weighted_kmedian
        seed = int(generator.integers(2**32))
        return snap_centers(solve(points, weights, self.n_clusters, self.n_init, seed))[None]


def noise_multiplier(calibration: str, epsilon: float, delta: float) -> float:
    """Standard deviation of the noise on points per unit of rho."""
    exact = 1 / gaussian_mu(epsilon, delta)
    if calibration == "analytic":
        return exact
    classical = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    if classical < exact:
        raise ValueError(
            f"calibration='classical' gives too little noise for epsilon={epsilon:.4g}, for which "
            "it was not proved; take 'analytic'"
        )
    return classical


def hides_mean(stddev: float, n_points: int) -> bool:
    """Whether noise of that size on points, in half-widths, hides even the mean of all of them."""
    return stddev / math.sqrt(n_points) > MAX_NOISED / SCALE


def sufficient_points(stddev: float) -> int:
    """Number of points from which on their mean is not hidden; see :func:`hides_mean`."""
    return math.ceil((stddev * SCALE / MAX_NOISED) ** 2)


class RhoBoundedSchedule(Protocol):
    """Releases of a run, from public values alone."""

    @property
    def n_sufficient(self) -> int:
        """Number of points from which on the releases are not hidden by noise."""
        ...

    def insufficient_data(self, n_points: int) -> bool:
        """Whether noise hides every release about that many points."""
        ...


Method = TypeVar("Method", bound=RhoBoundedMethod)
Schedule = TypeVar("Schedule", bound=RhoBoundedSchedule)


def sufficient_schedule(
    method: Method,
    n_points: int,
    n_features: int,
    make_schedule: Callable[[Method, int, int], Schedule],
) -> Schedule:
    """Schedule of a run whose releases are not all hidden by noise.

    Parameters
    ----------
    method : RhoBoundedMethod
    n_points, n_features : int
    make_schedule : callable
        From method, n_points and n_features to a schedule.

    Raises
    ------
    ValueError
        If noise hides all releases; the message names a sufficient n and a sufficient epsilon.
    """
    schedule = make_schedule(method, n_points, n_features)
    if not schedule.insufficient_data(n_points):
        return schedule

    def is_sufficient(epsilon: float) -> bool:
        candidate = replace(method, epsilon=epsilon)
        return not make_schedule(candidate, n_points, n_features).insufficient_data(n_points)

    epsilon = _smallest_epsilon(method.epsilon, is_sufficient)
    raise ValueError(
        f"epsilon={method.epsilon} with n={n_points} points and rho={method.rho} is too little for "
        f"any release to locate points: take n >= {schedule.n_sufficient}, epsilon >= {epsilon:g}, "
        "or a smaller rho"
    )


def _smallest_epsilon(epsilon: float, is_sufficient: Callable[[float], bool]) -> float:
    """Smallest sufficient epsilon above a given one, within two percent, in three digits."""
    # Double epsilon until it is sufficient.
    low = epsilon
    high = 2 * epsilon
    while not is_sufficient(high):
        low = high
        high = 2 * high

    # Bisect on the logarithmic scale.
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        if is_sufficient(middle):
            high = middle
        else:
            low = middle

    digits = 10.0 ** (2 - math.floor(math.log10(high)))
    return math.ceil(high * digits) / digits
