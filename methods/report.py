"""Sizes, cost and profiles of the released clusters, with their errors.

After the centers a share of the budget is spent on a report. First the records are
counted by the distance to their nearest center, which gives a radius that holds nearly
all of them. Then a summary of the records nearest to each center is released. The
scales of all noise are public, and so are the errors: intervals hold the exact values
in 95 % of fits, given the centers and the radius.

Lengths are in half-widths of the public domain unless a unit is named.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from scipy.special import ndtr

from pkm.compute import Symlog
from pkm.compute.kernels.shells import RADIUS_SCALE
from pkm.methods.schedule import SharePlan
from pkm.methods.zoom import Zoom, find_radius
from pkm.privacy import (
    SCALE,
    Charge,
    ClusterSummary,
    Curator,
    Gaussian,
    Laplace,
    NearestShells,
    gaussian_mu,
)
from pkm.privacy.mechanisms.additive import MAX_SCALE

CONFIDENCE = 0.95
# Shares of the report's budget: of the radius, and of the parts of the summary.
SHARES = {
    "radius": 0.15,
    "counts": 0.15,
    "sums": 0.2,
    "costs": 0.3,
    "histograms": 0.2,
}
# Shells about the centers: their number, the ratio of their radii, and the share of the
# records that may be beyond the radius.
SHELLS = 40
SHELL_RATIO = 2**-0.25
MAX_BEYOND = 0.01
# Bins of a column, within limits. If bins of an average cluster are equally full, each
# holds at least this many margins of error of its count.
ERRORS_PER_BIN = 2.0
MIN_BINS = 2
MAX_BINS = 16
BISECTIONS = 50  # of an end of an interval


@dataclass(frozen=True)
class ReportPlan(SharePlan):
    """The releases of a report.

    Attributes
    ----------
    share, pure
        As of :class:`pkm.methods.schedule.SharePlan`.
    cost : float
        Cost of all releases: mu of Gaussian noise, or epsilon of Laplace noise.
    """

    cost: float

    @property
    def releases(self) -> Sequence[Charge]:
        """The radius, then the summary."""
        parts = SHARES.keys() - {"radius"}
        return [
            self.plan(NearestShells, self.cost_of("radius")),
            self.plan(ClusterSummary, self.cost_of(*parts)),
        ]

    def noise_of(
        self,
        part: str,
        l1: float = 1.0,
        l2: float = 1.0,
    ) -> Gaussian | Laplace:
        """Noise of a part with given sensitivities, in their units."""
        return self.noise(self.cost_of(part), l1, l2)

    def cost_of(self, *parts: str) -> float:
        """Cost of some parts together."""
        share = math.fsum([SHARES[part] for part in parts])
        return self.cost * (share if self.pure else math.sqrt(share))


def plan_report(
    share: float,
    n_features: int,
    epsilon: float,
    delta: float,
    *,
    pure: bool,
) -> ReportPlan:
    """Plan the releases that a share of the budget buys.

    Parameters
    ----------
    share : float
        Of mu squared at (epsilon, delta), or of epsilon if noise is Laplace.
    n_features : int
    epsilon, delta : float
        Budget of the whole run.
    pure : bool
        Whether noise is Laplace.

    Returns
    -------
    ReportPlan

    Raises
    ------
    ValueError
        If the share is so small that its noise does not fit int64.

    Examples
    --------
    >>> plan = plan_report(0.1, 2, 1.0, 0.0, pure=True)
    >>> [round(charge.epsilon, 3) for charge in plan.releases]
    [0.015, 0.085]
    """
    whole = epsilon if pure else gaussian_mu(epsilon, delta)
    plan = ReportPlan(share, pure, whole * (share if pure else math.sqrt(share)))
    largest = RADIUS_SCALE * math.sqrt(n_features) / plan.cost_of("sums")
    if largest > MAX_SCALE:
        raise ValueError(
            f"report={share:g} of epsilon={epsilon:g} is too little: its noise does "
            "not fit int64; raise report or epsilon, or leave report out"
        )
    return plan


@dataclass(frozen=True, eq=False)
class Profile:
    """Noisy histograms of every column for every cluster.

    Attributes
    ----------
    counts : ndarray of shape (k, d, b), float64
        Noisy numbers of records by bin of a column; some may be negative.
    edges : ndarray of shape (d, b + 1), float64
        Of the bins, in the units of X. Records beyond the ends are in the outer bins.
    error : float
        Half-width of the interval about a noisy number that holds the exact one in 95 %
        of fits.
    is_visible : ndarray of shape (k,), bool
        Whether a cluster is large enough to tell it from none.
    """

    counts: np.ndarray
    edges: np.ndarray
    error: float
    is_visible: np.ndarray


@dataclass(frozen=True, eq=False)
class Report:
    """What is released about the records nearest to each center, with errors.

    Intervals of sizes hold the exact sizes of all clusters together in 95 % of fits,
    and intervals of centers all coordinates of all means.

    Attributes
    ----------
    cluster_sizes : ndarray of shape (k,), float64
        Noisy numbers of records nearest to each center; at least 0.
    cluster_sizes_interval : ndarray of shape (k, 2), float64
    min_visible_size : float
        Smallest noisy size that no empty cluster reaches in 95 % of fits or more.
    centers_interval : ndarray of shape (k, d, 2), float64
        Of the mean of the records nearest to a center. A record that is farther from it
        than ``cost_limit`` counts as one at this distance, in the same direction.
    cost : float
        Sum over records of the squared distance to the nearest center, at most the
        squared ``cost_limit``, in squared half-widths of the bounds.
    cost_interval : ndarray of shape (2,), float64
    cost_limit : float
        The radius that was released, in half-widths of the bounds.
    n_beyond : float
        Noisy number of records that are farther from their center; at least 0.
    profile : Profile
    """

    cluster_sizes: np.ndarray
    cluster_sizes_interval: np.ndarray
    min_visible_size: float
    centers_interval: np.ndarray
    cost: float
    cost_interval: np.ndarray
    cost_limit: float
    n_beyond: float
    profile: Profile

    @property
    def attributes(self) -> dict[str, Any]:
        """Values by the names of an estimator's attributes."""
        return dict(zip(REPORTED, vars(self).values(), strict=True))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Make a report of its attributes, in which arrays are lists."""
        fields = {name.removesuffix("_"): values[name] for name in REPORTED}
        profile = Profile(**_to_arrays(fields.pop("profile")))
        return cls(**_to_arrays(fields), profile=profile)

    def to_units(self, middle: np.ndarray, half_width: np.ndarray) -> Self:
        """Convert positions from half-widths of the public domain to units of X.

        Parameters
        ----------
        middle, half_width : ndarray of shape (d,), float64
            Of the bounds, in the units of X.
        """
        centers = self.centers_interval * half_width[:, None] + middle[:, None]
        edges = self.profile.edges * half_width[:, None] + middle[:, None]
        profile = replace(self.profile, edges=edges)
        return replace(self, centers_interval=centers, profile=profile)


#: Names of an estimator's attributes that a report sets.
REPORTED = tuple([f"{field.name}_" for field in fields(Report)])


def _to_arrays(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace lists by arrays."""
    return {
        name: np.array(value) if isinstance(value, list) else value
        for name, value in values.items()
    }


def release_report(
    curator: Curator,
    plan: ReportPlan,
    centers: np.ndarray,
    zoom: Zoom | None,
) -> Report:
    """Release a report on the records nearest to released centers.

    Parameters
    ----------
    curator : Curator
        Curator of the public domain, of one replicate.
    plan : ReportPlan
    centers : ndarray of shape (k, d), int64
        On the grid of the domain that the zoom found.
    zoom : Zoom or None

    Returns
    -------
    Report
        With positions in half-widths of the public domain.
    """
    if zoom is None:
        return _summarize(curator, plan, centers, 1.0)

    # The grid of a zoom may be compressed. A report is on the linear one of a cube that
    # is twice as wide as what holds the domain that was found and all centers. Records
    # that are clipped to it are then farther from all centers than nearly all others.
    midpoint = zoom.center
    offsets = zoom.to_public(centers) - midpoint
    half_width = 2 * max(zoom.half_width, float(np.abs(offsets).max()))
    report = _summarize(
        curator.rescale(midpoint, half_width, Symlog(1.0, 0.0, by_norm=False)),
        plan,
        np.rint(offsets / half_width * SCALE).astype(np.int64),
        zoom.half_width / half_width,
    )
    report = report.to_units(midpoint, np.full(len(midpoint), half_width))
    return replace(
        report,
        cost=report.cost * half_width**2,
        cost_interval=report.cost_interval * half_width**2,
        cost_limit=report.cost_limit * half_width,
    )


def _summarize(
    curator: Curator,
    plan: ReportPlan,
    centers: np.ndarray,
    domain: float,
) -> Report:
    """Release the radius and the summary, in half-widths of the curator's domain.

    Columns have bins between minus ``domain`` and ``domain``.
    """
    radius, n_beyond = _release_radius(curator, plan, centers)

    # Noise in records, in radii and in squared radii.
    k, d = centers.shape
    count_noise = plan.noise_of("counts")
    sum_noise = plan.noise_of("sums", math.sqrt(d))
    cost_noise = plan.noise_of("costs")
    bin_noise = plan.noise_of("histograms", d, math.sqrt(d))

    # As many bins as an average cluster fills.
    bin_error = bin_noise.margin_of_error(CONFIDENCE)
    affordable = int(curator.n_points / (k * ERRORS_PER_BIN * bin_error))
    n_bins = min(max(affordable, MIN_BINS), MAX_BINS)
    edges = domain * np.linspace(-1.0, 1.0, n_bins + 1)
    thresholds = np.rint(edges[1:-1] * SCALE).astype(np.int64)
    answer = curator.release(
        ClusterSummary(centers, radius, thresholds),
        counts=replace(count_noise, scale=count_noise.scale * SCALE),
        sums=sum_noise,
        costs=cost_noise,
        histograms=replace(bin_noise, scale=bin_noise.scale * SCALE),
    )
    # In records, radii and squared radii, as the noise.
    counts = answer["counts"][0] / SCALE
    sums = answer["sums"][0] / RADIUS_SCALE
    cost = answer["costs"].item() / RADIUS_SCALE

    # Errors follow from the noise alone.
    both_sides = np.array([-1.0, 1.0])
    size_error = count_noise.margin_of_error(CONFIDENCE ** (1 / k))
    cost_error = cost_noise.margin_of_error(CONFIDENCE)
    confidence = CONFIDENCE ** (1 / sums.size)
    means = bound_means(sums, counts, sum_noise, count_noise, confidence)
    return Report(
        cluster_sizes=np.maximum(counts, 0.0),
        cluster_sizes_interval=np.maximum(counts[:, None] + size_error * both_sides, 0),
        min_visible_size=size_error,
        centers_interval=centers[:, :, None] / SCALE + radius * means,
        cost=max(cost, 0.0) * radius**2,
        cost_interval=np.maximum(cost + cost_error * both_sides, 0) * radius**2,
        cost_limit=radius,
        n_beyond=n_beyond,
        profile=Profile(
            counts=answer["histograms"][0] / SCALE,
            edges=np.tile(edges, (d, 1)),
            error=bin_error,
            is_visible=counts >= size_error,
        ),
    )


def _release_radius(
    curator: Curator,
    plan: ReportPlan,
    centers: np.ndarray,
) -> tuple[float, float]:
    """Release the smallest radius about the centers that holds nearly all records.

    Returns
    -------
    radius : float
        In half-widths of the curator's domain.
    n_beyond : float
        Noisy number of records beyond.
    """
    # No record is farther from a center than the far corner of the domain.
    farthest = np.linalg.norm(1 + np.abs(centers) / SCALE, axis=1).max()
    # From the outside, the first shell is taken whose records can be told from noise.
    radii = farthest * SHELL_RATIO ** np.arange(SHELLS)
    points = curator.clipped_points(math.sqrt(curator.n_features))
    noise = plan.noise_of("radius", SCALE, SCALE)
    answer = points.release(NearestShells(centers, radii), counts=noise)
    stddev = plan.stddev(plan.cost_of("radius"), 1.0, 1.0)
    least = MAX_BEYOND * curator.n_points
    return find_radius(answer["counts"] / SCALE, radii, stddev, least)


def bound_means(
    sums: np.ndarray,
    counts: np.ndarray,
    sum_noise: Gaussian | Laplace,
    count_noise: Gaussian | Laplace,
    confidence: float,
) -> np.ndarray:
    """Bound the means of clusters from noisy sums and noisy counts.

    At the exact mean m, the noisy sum less m times the noisy count is noise of a known
    distribution. The interval has the values of m that this does not refute (Fieller
    1954). The coordinates of a cluster share the noise of its count. Given that noise
    their intervals are independent, and hold less often the larger it is. So all hold
    together at least as often as if they were independent (Sidak 1967).

    Parameters
    ----------
    sums : ndarray of shape (k, d), float64
        Of vectors of length 1 at most.
    counts : ndarray of shape (k,), float64
    sum_noise, count_noise : Gaussian or Laplace
        Both of the same type.
    confidence : float
        Of every interval.

    Returns
    -------
    ndarray of shape (k, d, 2), float64
        From -1 to 1 for a cluster whose count cannot be told from 0.

    Examples
    --------
    >>> from pkm.privacy import Gaussian
    >>> noise = Gaussian(1.0)
    >>> sums = np.array([[50.0, 0.0]])
    >>> bound_means(sums, np.array([200.0]), noise, noise, 0.95).round(3).tolist()
    [[[0.24, 0.26], [-0.01, 0.01]]]
    """

    # Whether the noise that a mean implies is no rarer than the confidence allows.
    def are_held(means: np.ndarray) -> np.ndarray:
        distances = np.abs(sums - means * counts[:, None])
        scales = np.abs(means) * count_noise.scale
        if isinstance(sum_noise, Laplace):
            tails = _laplace_tails(distances, sum_noise.scale, scales)
        else:
            tails = 2 * ndtr(-distances / np.hypot(sum_noise.scale, scales))
        return tails >= 1 - confidence

    # What is held is an interval about the estimate if the count can be told from 0.
    is_visible = counts > count_noise.margin_of_error(confidence)
    divisors = np.where(is_visible, counts, 1.0)[:, None]
    estimates = np.clip(sums / divisors, -1.0, 1.0)
    intervals = np.empty((*sums.shape, 2))
    for side, end in enumerate((-1.0, 1.0)):
        # Invariant: inside is held, and outside is not, or it is the end.
        inside = estimates
        outside = np.full(sums.shape, end)
        for _ in range(BISECTIONS):
            middle = (inside + outside) / 2
            held = are_held(middle)
            inside = np.where(held, middle, inside)
            outside = np.where(held, outside, middle)
        intervals[..., side] = np.where(is_visible[:, None], outside, end)
    return intervals


def _laplace_tails(
    distances: np.ndarray, scale: float, scales: np.ndarray
) -> np.ndarray:
    """Probabilities that sums of two Laplace variables exceed distances in size.

    Examples
    --------
    >>> _laplace_tails(np.array([3.0]), 1.0, np.array([0.0, 1.0])).round(4).tolist()
    [0.0498, 0.1245]
    """
    # For scales a and b it is (a^2 exp(-t / a) - b^2 exp(-t / b)) / (a^2 - b^2). Where
    # they are equal or b is 0, a nearby b gives the limit.
    b = np.maximum(scales, 1e-9 * scale)
    b = np.where(np.isclose(b, scale, rtol=1e-6, atol=0), (1 + 2e-6) * scale, b)
    tails = scale**2 * np.exp(-distances / scale) - b**2 * np.exp(-distances / b)
    return tails / (scale**2 - b**2)
