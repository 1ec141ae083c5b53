"""The domain of the points, found privately in public bounds that are too wide.

A share of the budget is spent on a ball or a cube that holds nearly all points. It is
found by noisy counts of shells about a center and by clipped means. The method then
runs in it with the rest of the budget. Points outside are clipped to it or, for methods
that can use them, compressed on a logarithmic scale. Source: Biswas, Dong, Kamath,
Ullman, "CoinPress" (NeurIPS 2020), whose steps these are, with counts of shells instead
of a known radius. See docs/zoom.md.

Lengths are in half-widths of the domain unless a unit is named.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pkm.compute import Symlog
from pkm.methods.schedule import SharePlan, smallest_epsilon
from pkm.privacy import (
    SCALE,
    Charge,
    ClippedSum,
    Curator,
    ShellCounts,
    SideCounts,
    gaussian_mu,
)

# These constants were chosen on the families of tools/studies/families.py.

MANY_FEATURES = 4  # from here on a ball, for methods that support one
FEW_FEATURES = 3  # up to here both ends of every column are found at the end
# Rounds: a count of shells in each, clipped means between them.
MIN_ROUNDS = 3
MAX_ROUNDS = 8
ERRORS_PER_ROUND = 4.0  # radius after a round, in errors of its mean
# The guard, a public rule for when noise is small enough for a zoom. Largest errors of
# a mean, in radii, and of a count, in n.
MAX_MEAN_ERROR = 0.2
MAX_COUNT_ERROR = 1 / 16
# A radius is the smallest one with few points outside: at most this many standard
# deviations of their noise or, if they are compressed and it is more, this share of n.
TAIL = 2.5
MAX_OUTSIDE = 0.025
SOFTNESS = 0.5  # of the compression of points outside; see Symlog
# Ratios of the radii of neighboring shells: in the first rounds, and in the last.
COARSE_RATIO = 2**-1.0
COARSE_SHELLS = 23
FINE_RATIO = 2**-0.25
FINE_SHELLS = 31
# Smallest half-width of a found domain: points have 32 fractional bits, 10 of them for
# the new grid.
MIN_HALF_WIDTH = 2.0**-22
MAX_EPSILON = 1e6  # largest epsilon that an error message suggests
MAX_RELATIVE_WIDTH = 0.9  # a larger domain, over the public one, is not used


@dataclass(frozen=True)
class ZoomPlan(SharePlan):
    """The releases that find a domain.

    Attributes
    ----------
    share, pure
        As of :class:`pkm.methods.schedule.SharePlan`.
    n_points, n_features : int
    ball : bool
        Whether the domain is a ball; otherwise it is a cube.
    rounds : int
    mean_cost, count_cost, last_cost : float
        Cost of a mean, of a count of shells, and of the last count: mu of Gaussian
        noise, or epsilon of Laplace noise.
    """

    n_points: int
    n_features: int
    ball: bool
    rounds: int
    mean_cost: float
    count_cost: float
    last_cost: float

    @property
    def releases(self) -> Sequence[Charge]:
        """Shells and a mean in every round; shells or sides alone in the last."""
        last = SideCounts if self.has_sides else ShellCounts
        shells = self.plan(ShellCounts, self.count_cost)
        mean = self.plan(ClippedSum, self.mean_cost)
        return [
            *[shells, mean] * (self.rounds - 1),
            self.plan(last, self.last_cost),
        ]

    @property
    def has_sides(self) -> bool:
        """Whether the last round counts shells on both sides of every column."""
        return _has_sides(self.ball, self.n_features)


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
    scale : Symlog
        Where records outside are on the grid of the found domain. By norm, the domain
        is a ball whose radius is the half-width; otherwise it is a cube.
    n_outside : float
        Released noisy number of records outside.
    """

    share: float
    center: np.ndarray
    half_width: float
    scale: Symlog
    n_outside: float

    @property
    def bounds(self) -> np.ndarray:
        """Lower and upper bounds (2, d), in half-widths of the public domain."""
        return np.array([self.center - self.half_width, self.center + self.half_width])

    def to_public(self, centers: np.ndarray) -> np.ndarray:
        """Convert centers, in grid steps here, to half-widths of the public domain.

        Centers outside the public domain are clipped to it.
        """
        lengths = self.scale.expand(centers / SCALE) * self.half_width
        return np.clip(self.center + lengths, -1.0, 1.0)


def _has_sides(ball: bool, n_features: int) -> bool:
    return not ball and n_features <= FEW_FEATURES


def plan_zoom(
    share: float,
    max_share: float,
    n_points: int,
    n_features: int,
    epsilon: float,
    delta: float,
    *,
    benefits_from_ball: bool,
) -> ZoomPlan | None:
    """Plan the rounds that a share of the budget allows.

    Parameters
    ----------
    share, max_share : float
        Least and largest share, of mu squared at (epsilon, delta), or of epsilon if
        delta is 0.
    n_points, n_features : int
    epsilon, delta : float
        Budget of the whole run.
    benefits_from_ball : bool
        As of :class:`pkm.methods.contract.ClusteringMethod`.

    Returns
    -------
    ZoomPlan or None
        None if the largest share is too little for the guard; see docs/zoom.md.

    Examples
    --------
    >>> plan = plan_zoom(0.1, 0.1, 20_000, 16, 1.0, 1e-6, benefits_from_ball=True)
    >>> plan.ball, plan.rounds, plan.share
    (True, 6, 0.1)
    """
    pure = delta == 0
    ball = benefits_from_ball and n_features >= MANY_FEATURES
    d = n_features

    # The least costs: noise is as large as the guard allows. The sensitivity of a
    # mean is sqrt(d) in L1 and 1 in L2, that of side counts d and sqrt(d).
    n_sides = d if _has_sides(ball, d) else 1
    count_cost = 1 / (MAX_COUNT_ERROR * n_points)
    mean_cost = math.sqrt(d) / (MAX_MEAN_ERROR * n_points)
    if pure:
        power = 1
        budget = epsilon
        count_cost *= math.sqrt(2)
        mean_cost *= math.sqrt(2 * d)
        last_cost = n_sides * count_cost
    else:
        power = 2
        budget = gaussian_mu(epsilon, delta)
        last_cost = math.sqrt(n_sides) * count_cost

    # The fewest rounds that could find the smallest domain, or as many as are
    # affordable. Each release is at the same multiple of its least cost.
    plan = None
    for rounds in range(MIN_ROUNDS, MAX_ROUNDS + 1):
        earlier = (rounds - 1) * (mean_cost**power + count_cost**power)
        least_share = (earlier + last_cost**power) / budget**power
        if least_share > max_share:
            break
        used_share = max(share, least_share)
        multiple = (used_share / least_share) ** (1 / power)
        plan = ZoomPlan(
            share=used_share,
            n_points=n_points,
            n_features=d,
            ball=ball,
            rounds=rounds,
            mean_cost=multiple * mean_cost,
            count_cost=multiple * count_cost,
            last_cost=multiple * last_cost,
            pure=pure,
        )
        # A round leaves a radius of some errors of its mean, in radii.
        shrinkage = ERRORS_PER_ROUND * MAX_MEAN_ERROR / multiple
        if shrinkage ** (rounds - 1) <= MIN_HALF_WIDTH:
            break
    return plan


def insufficient_budget(
    plan_for: Callable[[int, float], ZoomPlan | None],
    share: float,
    n: int,
    epsilon: float,
) -> str:
    """Write the error message of a required zoom, with a sufficient n and epsilon.

    Parameters
    ----------
    plan_for : callable
        From a number of records and an epsilon to the plan.
    share : float
    n : int
    epsilon : float

    Returns
    -------
    str
    """
    # Search geometrically, in steps of 5 %.
    n_sufficient = n
    while plan_for(n_sufficient, epsilon) is None:
        n_sufficient = math.ceil(1.05 * n_sufficient)
    sufficient = f"n={n_sufficient}"

    def suffices(epsilon: float) -> bool:
        return plan_for(n, epsilon) is not None

    if suffices(MAX_EPSILON):
        smallest = smallest_epsilon(epsilon, suffices, MAX_EPSILON)
        sufficient += f" or epsilon={smallest:.3g}"
    return (
        f"zoom={share:g} of epsilon={epsilon:g} is too little to "
        f"find a domain of n={n} records: about {sufficient} would suffice; leave "
        "require_zoom out to run in the public bounds"
    )


def find_domain(
    curator: Curator,
    plan: ZoomPlan,
    *,
    compress: bool = False,
) -> Zoom | None:
    """Find the domain of the points by noisy releases, for one replicate.

    Parameters
    ----------
    curator : Curator
        Curator of the public domain.
    plan : ZoomPlan
    compress : bool, default=False
        Whether points outside are compressed on a logarithmic scale. The domain then
        holds all but a few per cent of the points; otherwise nearly all.

    Returns
    -------
    Zoom or None
        None if the domain is hardly smaller than the public one.
    """
    d = plan.n_features
    center = np.zeros(d)
    radius = math.sqrt(d)
    max_outside = MAX_OUTSIDE * plan.n_points if compress else 0.0

    # CoinPress steps: the radius that holds nearly all points, then their clipped mean.
    for _ in range(plan.rounds - 1):
        radii = radius * COARSE_RATIO ** np.arange(COARSE_SHELLS)
        counts = _release_shells(curator, plan, plan.count_cost, center, radii, False)
        stddev = plan.stddev(plan.count_cost, 1.0, 1.0)
        radius, _ = find_radius(counts, radii, stddev, max_outside)

        # Move the center, and enlarge the radius by the length of the move, at most to
        # the domain's farthest corner.
        step = _release_step(curator, plan, center, radius)
        moved = np.clip(center + step, -1.0, 1.0)
        length = float(np.linalg.norm(moved - center))
        center = moved
        farthest = np.linalg.norm(1 + np.abs(center))
        radius = min(radius + length, float(farthest))

    # Last round: a ball, a cube about the mean, or a cube by both ends of every column.
    radii = radius * FINE_RATIO ** np.arange(FINE_SHELLS)
    if plan.has_sides:
        center, half_width, n_outside = _release_cube(
            curator, plan, center, radii, max_outside
        )
    else:
        is_cube = not plan.ball
        counts = _release_shells(curator, plan, plan.last_cost, center, radii, is_cube)
        stddev = plan.stddev(plan.last_cost, 1.0, 1.0)
        half_width, n_outside = find_radius(counts, radii, stddev, max_outside)
    if half_width >= MAX_RELATIVE_WIDTH * (math.sqrt(d) if plan.ball else 1.0):
        return None

    # The farthest that a point of the public domain can be, in half-widths.
    lengths = (1 + np.abs(center)) / half_width
    largest = float(np.linalg.norm(lengths) if plan.ball else lengths.max())
    scale = Symlog(largest, SOFTNESS if compress else 0.0, by_norm=plan.ball)
    return Zoom(plan.share, center, half_width, scale, n_outside)


def _release_shells(
    curator: Curator,
    plan: ZoomPlan,
    cost: float,
    center: np.ndarray,
    radii: np.ndarray,
    is_cube: bool,
) -> np.ndarray:
    """Release the numbers of points in shells about a center, in records."""
    # A record is in one shell: it changes one count by 1.
    noise = plan.noise(cost, SCALE, SCALE)
    answer = curator.release(ShellCounts(center, radii, is_cube), counts=noise)
    return answer["counts"][0] / SCALE


def find_radius(
    counts: np.ndarray,
    radii: np.ndarray,
    stddev: float,
    max_outside: float,
) -> tuple[float, float]:
    """Smallest radius that leaves few points outside, and their noisy number.

    Shells are added from the outside until their count is above both its noise and
    ``max_outside``. If it never is, the radius is the largest one.
    """
    # Noise of a sum of m counts: sqrt(m) standard deviations.
    outside = np.cumsum(counts)
    limits = TAIL * stddev * np.sqrt(np.arange(1, len(counts) + 1))
    too_many = np.flatnonzero(outside > np.maximum(limits, max_outside))
    first = int(too_many[0]) if len(too_many) else 0
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
    l1 = math.sqrt(plan.n_features) * SCALE
    noise = plan.noise(plan.mean_cost, l1, SCALE)
    answer = curator.release(ClippedSum(center, radius), sums=noise)
    return answer["sums"][0] / SCALE * (radius / plan.n_points)


def _release_cube(
    curator: Curator,
    plan: ZoomPlan,
    center: np.ndarray,
    radii: np.ndarray,
    max_outside: float,
) -> tuple[np.ndarray, float, float]:
    """Find a cube by both ends of every column; its side is the widest column."""
    # A record is in one shell of each of d columns: L1 norm d, L2 norm sqrt(d).
    d = plan.n_features
    noise = plan.noise(plan.last_cost, d * SCALE, math.sqrt(d) * SCALE)
    answer: dict[str, Any] = curator.release(SideCounts(center, radii), counts=noise)
    counts = answer["counts"][0] / SCALE
    stddev = plan.stddev(plan.last_cost, d, math.sqrt(d))
    sides = [
        find_radius(side, radii, stddev, max_outside / (2 * d))
        for column in counts
        for side in column
    ]

    # By column: the lengths below and above the center.
    lengths, n_outside = np.array(sides).reshape(d, 2, 2).T
    below, above = lengths
    middle = center + (above - below) / 2
    half_width = float((above + below).max() / 2)
    return middle, half_width, float(n_outside.T.sum())
