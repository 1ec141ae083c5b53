"""Methods of the local model: what they share, and three baselines.

Every user sends one report, randomized on the user's side, and trusts nobody. The baselines are a mean, Lloyd's
algorithm with fresh users in every round, and noise on every point; the method itself is
:class:`pkm.methods.kaplan_stemmer_local.KaplanStemmerLocal`.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from threadpoolctl import threadpool_limits

from pkm.methods.base import PrivateKMeans, is_integer, is_number
from pkm.methods.initialization import starting_centers
from pkm.privacy import SCALE, PrivacyClaim
from pkm.privacy.local_aggregator import Cohort, SingleCell, LocalAggregator, NearestCenter
from pkm.privacy.noise import INITIALIZATION, child
from pkm.privacy.randomizers import DIRECTION, MAX_EPSILON, LocalHashing, check_epsilon

BATCH, EPOCHS = 1 << 13, 10  # of the k-means on noised reports


@dataclass(eq=False, repr=False)
class LocalModel(PrivateKMeans):
    """Parameters and checks common to the methods of the local model; see there."""

    claims: ClassVar[dict[str, PrivacyClaim]] = {"sound": PrivacyClaim("pure", "local", "local")}
    choices: ClassVar[dict[str, tuple]] = {**PrivateKMeans.choices, "secure": (True, False)}
    curator: ClassVar[type] = LocalAggregator
    batched: ClassVar[bool] = False

    _: KW_ONLY
    epsilon: float = 1.0
    radius: float | str = "auto"
    secure: bool = False

    def check_parameters(self, n_points=None):
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        check_epsilon(self.epsilon)
        if self.radius != "auto" and not (is_number(self.radius) and 0 < self.radius < math.inf):
            raise ValueError(f"radius={self.radius!r} must be 'auto' or a positive finite number")

    def resolved_radius(self, n_features: int) -> float:
        """Radius of the public ball, in half-widths: the parameter, at most half of the domain's diagonal."""
        diagonal = math.sqrt(n_features)
        return diagonal if self.radius == "auto" else min(self.radius, diagonal)


@dataclass(eq=False, repr=False)
class LocalMean(LocalModel):
    """One center: the mean of what users send. What no method of the local model may lose to.

    Parameters
    ----------
    n_clusters : int, default=1
        Accepted and without effect.
    epsilon : float, default=1.0
        Of every user's only report: pure, local adjacency. At most 40.
    radius : float or "auto", default="auto"
        Of the public ball about the middle of the domain that users pull their point into, in half-widths. ``auto`` is
        sqrt(d): the whole domain.
    secure : bool, default=False
        Draw the users' randomness from the operating system's entropy instead of the seed.
    bounds, clip, random_state
        As for :class:`pkm.methods.base.PrivateKMeans`.
    """

    label: ClassVar[str] = "local mean as only center"
    color: ClassVar[str] = "#5a5a5a"
    marker: ClassVar[str] = "x"
    n_clusters: int = 1

    def cluster(self, crowd: LocalAggregator) -> tuple[np.ndarray, int]:
        """Ask everyone for one vector; see :meth:`PrivateKMeans.cluster`."""
        (group,) = crowd.cohorts([1.0], self.resolved_radius(crowd.n_features))
        middle = np.zeros((1, crowd.n_features), np.int64)
        sums = group.sums(SingleCell(), np.zeros(1, np.int64), middle, np.array([group.radius]))
        return snapped(sums / SCALE / group.size, group.radius)[None], 1


@dataclass(eq=False, repr=False)
class NoisedReports(LocalModel):
    """k-means on points that users have noised themselves.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon, radius, secure
        As for :class:`LocalMean`.
    n_init : int, default=1
        Starts of the k-means on the reports.
    bounds, clip, random_state
        As for :class:`pkm.methods.base.PrivateKMeans`.

    Notes
    -----
    A report is unbiased but of a length of several radii, whatever the point: clusters drown in it. Nothing is
    deconvolved. The k-means is scikit-learn's on mini-batches: what there is to find does not repay full passes.
    """

    label: ClassVar[str] = "k-means on noisy reports"
    color: ClassVar[str] = "#0072b2"
    marker: ClassVar[str] = "^"
    _: KW_ONLY
    n_init: int = 1

    def check_parameters(self, n_points=None):
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        if not (is_integer(self.n_init) and self.n_init >= 1):
            raise ValueError(f"n_init={self.n_init!r} must be an integer of at least 1")

    def cluster(self, crowd: LocalAggregator) -> tuple[np.ndarray, int]:
        """Ask everyone for a noised point; see :meth:`PrivateKMeans.cluster`."""
        (group,) = crowd.cohorts([1.0], self.resolved_radius(crowd.n_features))
        directions, length = group.reports()
        state = int(np.random.default_rng(child(crowd.seeds[0], INITIALIZATION)).integers(2**32))
        model = MiniBatchKMeans(
            self.n_clusters,
            n_init=self.n_init,
            batch_size=BATCH,
            max_iter=EPOCHS,
            random_state=state,
        )
        with threadpool_limits(1):  # the same bits on any number of cores
            found = model.fit(directions / np.float64(DIRECTION)).cluster_centers_
        return snapped(found * length, group.radius)[None], 1


@dataclass(eq=False, repr=False)
class LocalLloyd(LocalModel):
    """Lloyd's algorithm, every round with users who have not reported before.

    A round has two groups: one says which center is nearest, through a frequency oracle; the other sends its points
    about the middle of the domain, with public random signs. A center moves to the ratio of the two estimates.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon, radius, secure
        As for :class:`LocalMean`.
    n_iterations : int, default=3
        Rounds; each has a share of the users.
    count_share : float, default=0.5
        Of a round's users, who are counted; the others are summed.
    initialization : {"packing", "uniform"}, default="packing"
    bounds, clip, random_state
        As for :class:`pkm.methods.base.PrivateKMeans`.

    Raises
    ------
    ValueError
        For too few users or too little budget; the message says what would do.
    """

    label: ClassVar[str] = "local Lloyd"
    color: ClassVar[str] = "#d55e00"
    marker: ClassVar[str] = "v"
    choices: ClassVar[dict[str, tuple]] = {
        **LocalModel.choices,
        "initialization": ("packing", "uniform"),
    }

    _: KW_ONLY
    n_iterations: int = 3
    count_share: float = 0.5
    initialization: str = "packing"

    def check_parameters(self, n_points=None):
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        if not (is_integer(self.n_iterations) and self.n_iterations >= 1):
            raise ValueError(f"n_iterations={self.n_iterations!r} must be an integer of at least 1")
        if not (is_number(self.count_share) and 0 < self.count_share < 1):
            raise ValueError(f"count_share={self.count_share!r} must be a number in (0, 1)")
        if n_points is not None:
            check_enough(self.epsilon, n_points, self.shares())

    def shares(self) -> list[float]:
        """Shares of the users, two per round."""
        return [self.count_share, 1 - self.count_share] * self.n_iterations

    def cluster(self, crowd: LocalAggregator) -> tuple[np.ndarray, int]:
        """Run all rounds; see :meth:`PrivateKMeans.cluster`."""
        k, d = self.n_clusters, crowd.n_features
        groups = crowd.cohorts(self.shares(), self.resolved_radius(d))
        # Packed into the cube inside the ball.
        start = starting_centers(crowd.seeds, k, d, self.initialization, "bisection")[0]
        centers = snapped(start / SCALE * groups[0].radius / math.sqrt(d), groups[0].radius)
        middle = np.zeros((k, d), np.int64)
        for counted, summed in zip(groups[::2], groups[1::2], strict=True):
            rule, radius = NearestCenter(centers), counted.radius
            counts = counted.counts(rule)
            sums = summed.sums(rule, np.arange(k), middle, np.full(k, radius)) / SCALE
            seen = counts > counted.count_stddev(k)
            sizes = np.where(seen, counts, 1.0) * (summed.size / counted.size)
            centers = np.where(seen[:, None], snapped(sums / sizes[:, None], radius), centers)
        return centers[None], self.n_iterations


def snapped(points: np.ndarray, radius: float) -> np.ndarray:
    """Pull points (m, d), float64, in half-widths, into a ball and the domain, and round them to the grid."""
    lengths = np.sqrt((points * points).sum(axis=1, keepdims=True))
    inside = points * np.minimum(1.0, radius / np.maximum(lengths, np.finfo(float).tiny))
    return np.rint(np.clip(inside, -1.0, 1.0) * SCALE).astype(np.int64)


def steps_of(sums: np.ndarray, sizes: np.ndarray, radii: np.ndarray, group: Cohort) -> np.ndarray:
    """Means from noisy sums, shrunk by the part of their squared length that is noise.

    Parameters
    ----------
    sums : ndarray of shape (m, d), float64
        In grid steps; see :meth:`pkm.privacy.local_aggregator.Cohort.sums`.
    sizes : ndarray of shape (m,), float64
        Estimated numbers of users behind each sum, positive.
    radii : ndarray of shape (m,), float64
        That the sums were asked for with.
    group : Cohort
        That was asked.

    Returns
    -------
    ndarray of shape (m, d), float64
        In half-widths.
    """
    means = sums / SCALE / sizes[:, None]
    noise = means.shape[1] * (group.sum_stddev() * radii / sizes) ** 2
    square = (means * means).sum(axis=1)
    return means * (1 - noise / np.maximum(square, noise))[:, None]


def least_users(epsilon: float) -> float:
    """Users of whom a count stands one standard deviation above zero, if all of them have the value.

    Examples
    --------
    >>> round(least_users(1.0), 2)
    3.69
    """
    return LocalHashing(epsilon, 2).stddev(1) ** 2


def check_enough(epsilon: float, n_users: int, shares: Sequence[float]) -> None:
    """Refuse a schedule of which one count would be lost in its noise, whatever the data.

    Raises
    ------
    ValueError
        The message says which n or epsilon would do.
    """
    share = min(shares) / math.fsum(shares)
    if least_users(epsilon) <= share * n_users:
        return
    enough = f"n={math.ceil(least_users(epsilon) / share)} users"
    low, high = epsilon, MAX_EPSILON
    if least_users(high) <= share * n_users:
        while high - low > 1e-3 * high:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if least_users(middle) <= share * n_users else (middle, high)
        enough += f" or epsilon={high:.3g}"
    raise ValueError(
        f"epsilon={epsilon} is too little for n={n_users} users in {len(shares)} groups, the smallest with a share of "
        f"{share:.3g}: not even a value that all users of a group have would stand out of the noise; {enough} would do"
    )
