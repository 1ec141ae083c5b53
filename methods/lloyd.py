"""Lloyd's algorithm and its differentially private kin: SuLloyd, GLloyd, FastLloyd.

All follow one skeleton: start from packed spheres, and in each of T rounds ask the curator for the sums and counts of
the points nearest to each center, then move the centers. They differ in the noise, in whether sums are taken about the
middle of the domain or about the center within a radius, and in how released centers are put back into the domain.
Source: Diaa, Humphries, Kerschbaum, "FastLloyd" (USENIX Security 2025), Sec. 5 and App. B; SuLloyd after Su et al.
(CODASPY 2016).

Units: the domain is [-1, 1]^d.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from pkm.methods.base import PrivateKMeans, is_integer, is_number
from pkm.methods.initialization import starting_centers
from pkm.privacy import (
    NO_CLAIM,
    SCALE,
    Curator,
    Gaussian,
    Laplace,
    PrivacyClaim,
    gaussian_mu,
    snap_centers,
)

TYPICAL_CENTER = 0.225  # Su et al.'s rho: typical size of a normalized center's coordinate
TARGET_ERROR = 0.004  # mean squared error per iteration that the number of iterations is chosen for
FEWEST, MOST = 2, 7  # iterations
MIN_ALPHA = 1e-6  # below, a radius is less than a grid step
_TINY = 1e-9  # keeps the division of the published update finite


@dataclass(frozen=True)
class Round:
    """One round of the schedule, all of it public: the radius (None: no limit) and the two noises."""

    radius: float | None
    sum_noise: Gaussian | Laplace | None
    count_noise: Gaussian | Laplace | None


def iterations(bound: float) -> int:
    """Cut the number of iterations that the error analysis allows to between 2 and 7 (Sec. 5.5)."""
    return int(min(max(bound, FEWEST), MOST))


def count_weight(n_features: int) -> float:
    """Su et al.'s weight of a count against a coordinate of a sum."""
    return (4 * n_features * TYPICAL_CENTER**2) ** (1 / 3)


def fold(centers: np.ndarray) -> np.ndarray:
    """Reflect grid coordinates at the borders of [-1, 1] until they lie inside (Sec. 5.3.5).

    Examples
    --------
    >>> (fold(np.array([[1.25, -1.5, 3.5]]) * SCALE) / SCALE).tolist()
    [[0.75, -0.5, -0.5]]
    """
    from_lower = np.mod(centers + SCALE, 4 * SCALE)
    return np.where(from_lower > 2 * SCALE, 4 * SCALE - from_lower, from_lower) - SCALE


def truncate(centers: np.ndarray) -> np.ndarray:
    """Move each grid coordinate to the nearest in [-1, 1]."""
    return np.clip(centers, -SCALE, SCALE)


def shorten(step: np.ndarray, longest: float) -> np.ndarray:
    """Scale steps (..., d) on the grid down to length ``longest`` where they exceed it, and round to the grid.

    Squared lengths are integers, so the outcome does not depend on how the steps lie in memory.
    """
    length = np.sqrt((step * step).sum(axis=-1, keepdims=True).astype(np.float64))
    return np.rint(step * np.minimum(1.0, longest / np.maximum(length, 1.0))).astype(np.int64)


POSTPROCESSING = {"none": lambda centers: centers, "truncate": truncate, "fold": fold}


@dataclass(eq=False, repr=False)
class Lloyd(PrivateKMeans):
    """Lloyd's algorithm without privacy, from the same starting centers, for seven rounds.

    Parameters
    ----------
    n_clusters : int, default=8
    variant : {"published", "sound"}, default="sound"
        ``published`` sends an empty cluster to the middle of the domain, as the published update does; ``sound``
        leaves it where it is. Also chooses the default of ``radius_search``.
    initialization : {"packing", "uniform"}, default="packing"
    radius_search : {"auto", "halving", "bisection"}, default="auto"
        Search for the packing radius; ``auto`` is ``halving`` for ``published`` and ``bisection`` for ``sound``.
    n_iterations : int or "auto", default="auto"
    bounds, clip, random_state
        As for :class:`pkm.methods.base.PrivateKMeans`.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.0], [0.5, 0.5]], 100, axis=0)
    >>> Lloyd(n_clusters=2, random_state=0).fit(X).cluster_centers_.round(3).tolist()
    [[0.5, 0.5], [-0.5, 0.0]]
    """

    claims: ClassVar[dict[str, PrivacyClaim]] = {"published": NO_CLAIM, "sound": NO_CLAIM}
    choices: ClassVar[dict[str, tuple]] = {
        **PrivateKMeans.choices,
        "variant": ("published", "sound"),
        "initialization": ("packing", "uniform"),
        "radius_search": ("auto", "halving", "bisection"),
    }
    relative: ClassVar[bool] = False

    _: KW_ONLY
    variant: str = "sound"
    initialization: str = "packing"
    radius_search: str = "auto"
    n_iterations: int | str = "auto"

    def check_parameters(self, n_points=None):
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        rounds = self.n_iterations
        if rounds != "auto" and not (is_integer(rounds) and rounds >= 1):
            raise ValueError(f"n_iterations={rounds!r} must be 'auto' or an integer of at least 1")

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run the rounds of the schedule; see :meth:`PrivateKMeans.cluster`."""
        schedule, centers = (
            self.schedule(curator.n_points, curator.n_features),
            self._start(curator),
        )
        for this in schedule:
            sums, counts = curator.sums_and_counts(
                centers,
                radius=this.radius,
                relative=self.relative,
                sum_noise=this.sum_noise,
                count_noise=this.count_noise,
            )
            centers = self._move(centers, sums, counts, this.radius)
        return centers, len(schedule)

    def _start(self, curator: Curator) -> np.ndarray:
        """Starting centers of all replicates."""
        search = self.radius_search
        if search == "auto":
            search = "halving" if self.variant == "published" else "bisection"
        return starting_centers(
            curator.seeds, self.n_clusters, curator.n_features, self.initialization, search
        )

    def schedule(self, n_points: int, n_features: int) -> Sequence[Round]:
        """All rounds, from public quantities only."""
        return [Round(None, None, None)] * self._rounds(MOST)

    def _rounds(self, bound: float) -> int:
        return iterations(bound) if self.n_iterations == "auto" else self.n_iterations

    def _move(self, centers, sums, counts, radius) -> np.ndarray:
        weights = counts[:, :, None] / SCALE
        if self.variant == "sound":
            moved = sums / np.maximum(weights, 1.0) + (centers if self.relative else 0)
            return snap_centers(np.where(weights < 1.0, centers, moved))
        return snap_centers(sums / (weights + _TINY) + (centers if self.relative else 0))


@dataclass(eq=False, repr=False)
class _DPLloyd(Lloyd):
    """Parameters common to the private kin."""

    choices: ClassVar[dict[str, tuple]] = {
        **Lloyd.choices,
        "postprocessing": ("auto", *POSTPROCESSING),
        "secure": (True, False),
    }

    _: KW_ONLY
    epsilon: float = 1.0
    postprocessing: str = "auto"
    secure: bool = False

    def _move(self, centers, sums, counts, radius):
        return POSTPROCESSING[self._postprocessing()](super()._move(centers, sums, counts, radius))

    def _postprocessing(self) -> str:
        if self.postprocessing != "auto":
            return self.postprocessing
        return "none" if self.variant == "published" else "fold"


@dataclass(eq=False, repr=False)
class SuLloyd(_DPLloyd):
    """DP-Lloyd with Laplace noise and Su et al.'s split and number of rounds.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Total over all rounds, zero-out adjacency, pure.
    variant : {"published", "sound"}, default="sound"
        ``published`` is what the FastLloyd paper plots; ``sound`` keeps a center whose noisy count is below one.
    postprocessing : {"auto", "none", "truncate", "fold"}, default="auto"
        ``auto`` is ``none`` for ``published`` and ``fold`` for ``sound``.
    initialization, radius_search, n_iterations, bounds, clip, random_state
        As for :class:`Lloyd`.
    secure : bool, default=False
        Draw noise from the operating system's entropy instead of the seed.

    Notes
    -----
    Per round epsilon / T is split between sums and counts as d : (4 d rho^2)^(1/3) with rho = 0.225.
    """

    claims: ClassVar[dict[str, PrivacyClaim]] = {
        "published": PrivacyClaim("pure", flaws=("F-09",)),
        "sound": PrivacyClaim("pure"),
    }

    def schedule(self, n_points, n_features):
        """All rounds, from public quantities only."""
        rounds, per_coordinate, per_count = self._split(n_points, n_features)
        sum_noise = Laplace(SCALE / per_coordinate)  # L1 sensitivity d, epsilon d * per_coordinate
        return [Round(None, sum_noise, Laplace(SCALE / per_count))] * rounds

    def _split(self, n_points: int, n_features: int) -> tuple[int, float, float]:
        """Rounds, and epsilon of a sum's coordinate and of a count in each of them."""
        n, d, k = n_points, n_features, self.n_clusters
        weight = count_weight(d)
        least_epsilon = math.sqrt(500 * k**3 / n**2 * (d + weight) ** 3)
        rounds = self._rounds(self.epsilon / least_epsilon)
        per_unit = self.epsilon / rounds / (d + weight)
        return rounds, per_unit, weight * per_unit


@dataclass(eq=False, repr=False)
class _GaussianLloyd(_DPLloyd):
    """The private kin with Gaussian noise: they have a delta."""

    claims: ClassVar[dict[str, PrivacyClaim]] = {
        "published": PrivacyClaim("approximate", flaws=("F-09",)),
        "sound": PrivacyClaim("approximate"),
    }

    _: KW_ONLY
    delta: float | str = "auto"

    def _noise_multiplier(self, n_points: int) -> float:
        return 1 / gaussian_mu(self.epsilon, self.resolved_delta(n_points))


@dataclass(eq=False, repr=False)
class GLloyd(_GaussianLloyd):
    """DP-Lloyd with Gaussian noise (FastLloyd paper, App. B.1).

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Total over all rounds, zero-out adjacency.
    delta : float or "auto", default="auto"
        ``auto`` is 1 / (n ln n) for ``published`` and 1e-6 for ``sound``.
    variant, postprocessing, initialization, radius_search, n_iterations, bounds, clip, random_state, secure
        As for :class:`SuLloyd`.
    """

    def schedule(self, n_points, n_features):
        """All rounds, from public quantities only."""
        n, d, k = n_points, n_features, self.n_clusters
        sigma = self._noise_multiplier(n)
        both = 2 * TYPICAL_CENTER + math.sqrt(d)
        rounds = self._rounds(TARGET_ERROR * n**2 / (k**3 * d * sigma**2 * both**2))
        per_round = sigma * math.sqrt(rounds) * SCALE
        sum_noise = Gaussian(per_round * math.sqrt(d) * math.sqrt(both) / d**0.25)
        count_noise = Gaussian(per_round * math.sqrt(both / (2 * TYPICAL_CENTER)))
        return [Round(None, sum_noise, count_noise)] * rounds


@dataclass(eq=False, repr=False)
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
        ``step`` uses half the domain's diagonal in the first round, eta afterwards; ``constant`` uses eta throughout.
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
    >>> model = FastLloyd(n_clusters=2, epsilon=1.0, random_state=1).fit(X)
    >>> model.cluster_centers_.round(2).tolist(), round(model.ledger_.spent(), 6)
    ([[-0.5, 0.25], [0.5, 0.5]], 1.0)
    """

    choices: ClassVar[dict[str, tuple]] = {
        **_DPLloyd.choices,
        "radius_schedule": ("step", "constant"),
        "radius_clipping": (True, False),
    }
    relative: ClassVar[bool] = True

    _: KW_ONLY
    radius_schedule: str = "step"
    alpha: float = 0.8
    radius_clipping: bool = True

    def check_parameters(self, n_points=None):
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        if not (is_number(self.alpha) and MIN_ALPHA <= self.alpha < math.inf):
            raise ValueError(
                f"alpha={self.alpha!r} must be a finite number of at least {MIN_ALPHA}"
            )

    def radius(self, n_features: int) -> float:
        """The radius eta, at most the domain's diagonal."""
        eta = self.alpha * math.sqrt(n_features) / self.n_clusters ** (1 / n_features)
        return min(eta, 2 * math.sqrt(n_features))

    def schedule(self, n_points, n_features):
        """All rounds, from public quantities only."""
        n, d, k = n_points, n_features, self.n_clusters
        sigma, eta = self._noise_multiplier(n), self.radius(d)
        root = math.sqrt(4 * d)
        rounds = self._rounds(
            4 * TARGET_ERROR * n**2 / (k**3 * eta**2 * sigma**2 * (1 + root) ** 2)
        )
        first = math.sqrt(d) if self.radius_schedule == "step" else eta
        per_round = sigma * math.sqrt(rounds) * SCALE * math.sqrt(1 + root)
        return [
            Round(radius, Gaussian(per_round * radius / math.sqrt(root)), Gaussian(per_round))
            for radius in (first, *[eta] * (rounds - 1))
        ]

    def _move(self, centers, sums, counts, radius):
        moved = Lloyd._move(self, centers, sums, counts, radius)
        if self.radius_clipping:
            moved = centers + shorten(moved - centers, radius * SCALE)
        return POSTPROCESSING[self._postprocessing()](moved)

    def _postprocessing(self):
        return "fold" if self.postprocessing == "auto" else self.postprocessing
