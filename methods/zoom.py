"""The domain of the points, found privately in public bounds that are too wide.

A share of the budget is spent on a ball or a cube that holds nearly all points. It is
found by noisy counts of shells about a center and by clipped means. The method then
runs in it with the rest of the budget. Source: Biswas, Dong, Kamath, Ullman,
"CoinPress" (NeurIPS 2020), whose steps these are, with counts of shells instead of a
known radius. See docs/zoom.md.

Lengths are in half-widths of the domain unless a unit is named.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pkm.methods.schedule import Schedule, plan_release
from pkm.privacy import (
    SCALE,
    Charge,
    ClippedSum,
    Curator,
    Gaussian,
    Laplace,
    ShellCounts,
    SideCounts,
    gaussian_mu,
)

# These constants were chosen on generated sets and five real ones: celltype, letters,
# shuttle, s1 and yeast.

ROUNDS = 3  # a count of shells in each, clipped means between them
N_RELEASES = 2 * ROUNDS - 1
MANY_FEATURES = 4  # from here on a ball, for methods that support one
FEW_FEATURES = 3  # up to here both ends of every column are found at the end
TAIL = 2.5  # largest number of points outside a radius, in standard deviations
# Ratios of the radii of neighboring shells: in the first rounds, and in the last.
COARSE_RATIO = 2**-0.5
COARSE_SHELLS = 31
FINE_RATIO = 2**-0.25
FINE_SHELLS = 31
# Smallest half-width of a found domain: points have 32 fractional bits, 16 of them for
# the new grid.
MIN_HALF_WIDTH = 2.0**-15
MAX_RELATIVE_WIDTH = 0.9  # a larger domain, over the public one, is not used
# The guard, a public rule for when noise is small enough for a zoom: the error of a
# mean in radii; and NOISE_DEVIATIONS standard deviations of a count, in n.
MAX_MEAN_ERROR = 0.1
MAX_NOISE = 0.25
NOISE_DEVIATIONS = 12.0


@dataclass(frozen=True)
class ZoomPlan(Schedule):
    """The releases that find a domain, all at the same cost.

    Attributes
    ----------
    share : float
        Share of the budget.
    n_points, n_features : int
    ball : bool
        Whether the domain is a ball; otherwise it is a cube.
    cost : float
        Cost of one release: mu of Gaussian noise, or epsilon of Laplace noise.
    pure : bool
        Whether noise is Laplace.
    """

    share: float
    n_points: int
    n_features: int
    ball: bool
    cost: float
    pure: bool

    @property
    def releases(self) -> Sequence[Charge]:
        """Shells and a mean in every round; shells or sides alone in the last."""
        shells, mean, sides = (
            plan_release(query, Laplace, epsilon=self.cost)
            if self.pure
            else plan_release(query, Gaussian, mu=self.cost)
            for query in (ShellCounts, ClippedSum, SideCounts)
        )
        last = sides if self.has_sides else shells
        return [*[shells, mean] * (ROUNDS - 1), last]

    @property
    def mu(self) -> float:
        """Cost of all releases together with Gaussian noise; 0 with Laplace noise."""
        return 0.0 if self.pure else self.cost * math.sqrt(N_RELEASES)

    @property
    def has_sides(self) -> bool:
        """Whether the last round counts shells on both sides of every column."""
        return not self.ball and self.n_features <= FEW_FEATURES

    def noise(
        self,
        l1: float,
        l2: float,
    ) -> Gaussian | Laplace:
        """Noise of one release with given L1 and L2 sensitivities, in their units."""
        return Laplace(l1 / self.cost) if self.pure else Gaussian(l2 / self.cost)

    def stddev(
        self,
        l1: float,
        l2: float,
    ) -> float:
        """Standard deviation of this noise."""
        return math.sqrt(2) * l1 / self.cost if self.pure else l2 / self.cost

    @property
    def mean_error(self) -> float:
        """Root mean square norm of the noise of a clipped mean, in radii."""
        d = self.n_features
        return math.sqrt(d) * self.stddev(math.sqrt(d), 1.0) / self.n_points

    @property
    def count_stddev(self) -> float:
        """Standard deviation of the noise of a count in the last round, in records."""
        d = self.n_features if self.has_sides else 1
        return self.stddev(d, math.sqrt(d))

    @property
    def is_affordable(self) -> bool:
        """Whether noise is small enough for a zoom: the guard of docs/zoom.md."""
        return (
            self.mean_error <= MAX_MEAN_ERROR
            and NOISE_DEVIATIONS * self.count_stddev <= MAX_NOISE * self.n_points
        )


@dataclass(frozen=True, eq=False)
class Zoom:
    """A domain that was found, described by released and public values alone.

    Attributes
    ----------
    share : float
        Share of the budget that was spent on it.
    center : ndarray of shape (d,), float64
        Center of the domain, in half-widths of the public domain.
    half_width : float
        Half-width of the domain in every feature, in half-widths of the public one.
    radius : float
        Radius of the ball that points are clipped to, in half-widths of the found
        domain; sqrt(d) for a cube.
    n_outside : float
        Released noisy number of records outside, which are clipped to the domain.
    """

    share: float
    center: np.ndarray
    half_width: float
    radius: float
    n_outside: float

    @property
    def bounds(self) -> np.ndarray:
        """Lower and upper bounds (2, d), in half-widths of the public domain."""
        return np.array([self.center - self.half_width, self.center + self.half_width])

    def to_public(self, centers: np.ndarray) -> np.ndarray:
        """Convert centers, in grid steps here, to half-widths of the public domain.

        Centers outside the public domain are clipped to it.
        """
        return np.clip(self.center + centers * (self.half_width / SCALE), -1.0, 1.0)


def plan_zoom(
    share: float,
    n_points: int,
    n_features: int,
    epsilon: float,
    delta: float,
    *,
    benefits_from_ball: bool,
) -> ZoomPlan:
    """Divide a share of the budget evenly over the releases.

    Parameters
    ----------
    share : float
        Share of mu squared at (epsilon, delta), or of epsilon if delta is 0.
    n_points, n_features : int
    epsilon, delta : float
        Budget of the whole run.
    benefits_from_ball : bool
        As of :class:`pkm.methods.contract.ClusteringMethod`.

    Returns
    -------
    ZoomPlan

    Examples
    --------
    >>> plan = plan_zoom(0.1, 20_000, 16, 1.0, 1e-6, benefits_from_ball=True)
    >>> plan.ball, round(plan.mean_error, 4), plan.is_affordable
    (True, 0.006, True)
    """
    pure = delta == 0
    if pure:
        cost = share * epsilon / N_RELEASES
    else:
        cost = gaussian_mu(epsilon, delta) * math.sqrt(share / N_RELEASES)
    ball = benefits_from_ball and n_features >= MANY_FEATURES
    return ZoomPlan(share, n_points, n_features, ball, cost, pure)


def insufficient_budget(
    plan_of: Callable[[int, float], ZoomPlan],
    n: int,
    epsilon: float,
) -> str:
    """Write the error message of a required zoom, with a sufficient n and epsilon.

    Parameters
    ----------
    plan_of : callable
        From a number of records and an epsilon to the plan.
    n : int
    epsilon : float

    Returns
    -------
    str
    """
    # Search geometrically, in steps of 5 %.
    n_sufficient = n
    while not plan_of(n_sufficient, epsilon).is_affordable:
        n_sufficient = math.ceil(1.05 * n_sufficient)
    epsilon_sufficient = epsilon
    while not plan_of(n, epsilon_sufficient).is_affordable and epsilon_sufficient < 1e6:
        epsilon_sufficient *= 1.05
    sufficient = f"n={n_sufficient}"
    if epsilon_sufficient < 1e6:
        sufficient += f" or epsilon={epsilon_sufficient:.3g}"
    return (
        f"zoom={plan_of(n, epsilon).share:g} of epsilon={epsilon:g} is too little to "
        f"find a domain of n={n} records: about {sufficient} would suffice; leave "
        "require_zoom out to run in the public bounds"
    )


def find_domain(curator: Curator, plan: ZoomPlan) -> Zoom | None:
    """Find the domain of the points by noisy releases, for one replicate.

    Parameters
    ----------
    curator : Curator
        Curator of the public domain.
    plan : ZoomPlan

    Returns
    -------
    Zoom or None
        None if the domain is hardly smaller than the public one.
    """
    d = plan.n_features
    center = np.zeros(d)
    radius = math.sqrt(d)

    # CoinPress steps: the radius that holds nearly all points, then their clipped mean.
    for _ in range(ROUNDS - 1):
        radii = radius * COARSE_RATIO ** np.arange(COARSE_SHELLS)
        radius, _ = _release_radius(curator, plan, center, radii, box=False)

        # Move the center, and enlarge the radius by the length of the move.
        step = _release_step(curator, plan, center, radius)
        moved = np.clip(center + step, -1.0, 1.0)
        length = float(np.linalg.norm(moved - center))
        center = moved
        radius = min(radius + length, 2 * radius, 2 * math.sqrt(d))

    # Last round: a ball, a cube about the mean, or a cube by both ends of every column.
    radii = radius * FINE_RATIO ** np.arange(FINE_SHELLS)
    if plan.has_sides:
        zoom = _release_cube(curator, plan, center, radii)
    else:
        is_cube = not plan.ball
        half_width, n_outside = _release_radius(
            curator, plan, center, radii, box=is_cube
        )
        radius = 1.0 if plan.ball else math.sqrt(d)
        zoom = Zoom(plan.share, center, half_width, radius, n_outside)
    largest = MAX_RELATIVE_WIDTH * (math.sqrt(d) if plan.ball else 1.0)
    return zoom if zoom.half_width < largest else None


def _release_radius(
    curator: Curator,
    plan: ZoomPlan,
    center: np.ndarray,
    radii: np.ndarray,
    *,
    box: bool,
) -> tuple[float, float]:
    """Find the radius by noisy counts of shells about a center; see `_find_radius`."""
    # A record is in one shell: it changes one count by 1.
    noise = plan.noise(SCALE, SCALE)
    answer = curator.release(ShellCounts(center, radii, box), counts=noise)
    return _find_radius(answer["counts"][0] / SCALE, radii, plan.stddev(1.0, 1.0))


def _find_radius(
    counts: np.ndarray,
    radii: np.ndarray,
    stddev: float,
) -> tuple[float, float]:
    """Smallest radius with no visible points outside, and the noisy number outside.

    From the outside, shells are added until their count exceeds TAIL standard
    deviations of its noise. If it never does, the radius is the largest one.
    """
    # Noise of a sum of m counts: sqrt(m) standard deviations.
    outside = np.cumsum(counts)
    limits = TAIL * stddev * np.sqrt(np.arange(1, len(counts) + 1))
    visible = np.flatnonzero(outside > limits)
    first = int(visible[0]) if len(visible) else 0
    n_outside = float(outside[first - 1]) if first else 0.0
    return max(float(radii[first]), MIN_HALF_WIDTH), max(n_outside, 0.0)


def _release_step(
    curator: Curator,
    plan: ZoomPlan,
    center: np.ndarray,
    radius: float,
) -> np.ndarray:
    """Release the mean of differences to the center, each clipped to the radius."""
    # In radii a record adds a vector of L2 norm 1, and of L1 norm sqrt(d).
    noise = plan.noise(math.sqrt(plan.n_features) * SCALE, SCALE)
    answer = curator.release(ClippedSum(center, radius), sums=noise)
    return answer["sums"][0] / SCALE * (radius / plan.n_points)


def _release_cube(
    curator: Curator,
    plan: ZoomPlan,
    center: np.ndarray,
    radii: np.ndarray,
) -> Zoom:
    """Find a cube by both ends of every column; its side is the widest column."""
    # A record is in one shell of each of d columns: L1 norm d, L2 norm sqrt(d).
    d = plan.n_features
    noise = plan.noise(d * SCALE, math.sqrt(d) * SCALE)
    answer: dict[str, Any] = curator.release(SideCounts(center, radii), counts=noise)
    counts = answer["counts"][0] / SCALE
    stddev = plan.count_stddev
    sides = [_find_radius(side, radii, stddev) for column in counts for side in column]

    # By column: the lengths below and above the center.
    lengths, n_outside = np.array(sides).reshape(d, 2, 2).T
    below, above = lengths
    middle = center + (above - below) / 2
    half_width = float((above + below).max() / 2)
    total_outside = float(n_outside.T.sum())
    return Zoom(plan.share, middle, half_width, math.sqrt(d), total_outside)
