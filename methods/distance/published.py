"""DistDP as published: Algorithms 1 and 2 of Epasto et al. (2023) with the constants of Appendix E.

The budget has three equal parts: the noised points, the fine cells of quadtrees, and the regions
with their summaries. Units: radii and the noise on points are in half-widths, released points in
grid steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pkm.compute.kernels.nearest import nearest_of_many
from pkm.compute.kernels.quadtree import fullest_occupied_cells
from pkm.methods.distance.parameters import DistDPParameters
from pkm.methods.distance.rho_bounded import (
    hides_mean,
    noise_multiplier,
    sufficient_points,
)
from pkm.methods.distance.tree import (
    Histogram,
    RegionTrees,
    clipped_noised,
    draw_shifts,
    fullest_cells,
    released_histograms,
)
from pkm.methods.hashing.lsh_splits import COUNTS_TO_SUM
from pkm.methods.schedule import Schedule, plan_release
from pkm.privacy import (
    SCALE,
    Budget,
    Charge,
    Gaussian,
    Laplace,
    Query,
    StabilityHistogram,
    gaussian_mu,
    largest_multiple,
)
from pkm.privacy.queries.clipped_regions import (
    ClippedRegions,
    LargeRegions,
    RegionCounts,
    RegionSizes,
    RegionSums,
    two_sums_sensitivity,
)
from pkm.privacy.queries.moved_records import AllPoints, QuadtreeCounts, SortedGaussian
from pkm.privacy.rho_bounded import RhoBoundedCurator


@dataclass(frozen=True)
class PublishedSchedule(Schedule):
    """Releases and public constants of a run of the published variant.

    Attributes
    ----------
    part : Budget
        Each of the three parts.
    stddev : float
        Of the noise on points, in half-widths.
    far_distance : float
        From all crude centers, beyond which a noised point is far, in half-widths.
    radius : float
        Of a region's ball, in half-widths.
    min_size : float
        Smallest size of a region that noise does not hide: a threshold, or the standard deviation
        of sizes that are released without one.
    multiple : float
        Of the library's shares of the sums and counts of a tree, which the budget allows.
    planned : tuple of Charge
        All releases.
    """

    part: Budget
    stddev: float
    far_distance: float
    radius: float
    min_size: float
    multiple: float
    planned: tuple[Charge, ...]

    @property
    def releases(self) -> Sequence[Charge]:
        """Noised points, fine cells, sizes of regions, their trees."""
        return self.planned

    @property
    def n_sufficient(self) -> int:
        """Number of points from which on their mean or a region is not hidden by noise."""
        return min(math.ceil(self.min_size), sufficient_points(self.stddev))

    def insufficient_data(self, n_points: int) -> bool:
        """Whether noise hides both the mean of the noised points and the size of any region."""
        return self.min_size > n_points and hides_mean(self.stddev, n_points)


def published_schedule(
    method: DistDPParameters, n_points: int, n_features: int
) -> PublishedSchedule:
    """Work out the constants from public values."""
    max_shift = method.max_shift(n_features)
    part = method.published_part(n_points)
    stddev = noise_multiplier(method.calibration, part.epsilon, part.delta) * max_shift
    far_distance = method.far_factor(n_points, n_features) * max_shift
    if method.ball == "capped":
        radius = min(far_distance, math.sqrt(n_features))
    elif method.ball == "printed":
        radius = min(far_distance, math.sqrt(n_features) * max_shift)
    else:
        radius = float(method.ball)

    planned = [
        plan_release(AllPoints, Gaussian, mu=max_shift / stddev),
        *[_plan_histogram(QuadtreeCounts, noise) for noise in _fine_noises(method, part)],
    ]
    tree_epsilon = part.epsilon
    tree_delta = part.delta
    if method.regions == "noised":
        min_size = _min_region(method, n_points, n_features)
    else:
        noise = _sizes_noise(method, part)
        if isinstance(noise, StabilityHistogram):
            min_size = noise.threshold
            planned.append(_plan_histogram(RegionSizes, noise))
        else:
            min_size = noise.scale / SCALE
            planned.append(plan_release(RegionSizes, Gaussian, mu=math.sqrt(2) / min_size))
        tree_epsilon *= 1 - method.size_share
        tree_delta *= 1 - method.size_share

    # Every record is in depth + 1 counts; both records of a move, unless only one is charged.
    charge_both = method.replacement == "charged"
    n_counts = (method.depth + 1) * (2 if charge_both else 1)
    sensitivity = 1.0
    if charge_both:
        sensitivity = two_sums_sensitivity(radius, max_shift, n_features) / radius
    count_shares = [1 / COUNTS_TO_SUM] * n_counts
    multiple = largest_multiple([sensitivity], count_shares, tree_epsilon, tree_delta)
    count = plan_release(RegionCounts, Laplace, epsilon=multiple / COUNTS_TO_SUM)
    second = replace(count, label=f"{count.label}_second_record")
    planned += [count, *[second] * charge_both] * (method.depth + 1)
    planned.append(plan_release(RegionSums, Gaussian, mu=multiple * sensitivity))
    return PublishedSchedule(part, stddev, far_distance, radius, min_size, multiple, tuple(planned))


def _plan_histogram(query: type[Query], noise: StabilityHistogram) -> Charge:
    """Counts above a threshold."""
    mu = math.sqrt(noise.cells) / noise.stddev
    return plan_release(query, StabilityHistogram, mu=mu, delta=noise.delta)


def published_coreset(
    method: DistDPParameters,
    curator: RhoBoundedCurator,
    schedule: PublishedSchedule,
    generator: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted points (m, d) of Algorithm 1, in grid steps, and their weights (m,)."""
    # Release all points with noise (Algorithm 1, step 1).
    noise = SortedGaussian(schedule.stddev * SCALE)
    released = curator.release(AllPoints(), points=noise)["points"][0]
    noised = clipped_noised(released)
    del released  # all points: memory is needed below

    # Crude centers from the fullest cells of shifted quadtrees (Algorithm 2).
    centers = _crude_centers(method, curator, noised, generator, schedule.part)

    # Points far from all centers remain as released.
    nearest, distance = nearest_of_many(noised, centers)
    is_far = distance > schedule.far_distance * SCALE

    # Assign the other points to regions, and summarize each region.
    if method.regions == "true":
        assigned = _assign_true_points(method, curator, schedule, centers, is_far)
    else:
        assigned = _assign_noised_points(method, curator, schedule, centers, nearest, is_far)
    points, weights = _summarize(method, assigned, centers, schedule, generator)

    points = np.concatenate([points, noised[assigned.ungrouped]])
    weights = np.concatenate([weights, np.ones(assigned.ungrouped.sum())])
    # Without any region or far point: the noised points, which are released in any case.
    if not len(points):
        return noised.astype(np.float64), np.ones(curator.n_points)
    return points, weights


# Crude centers


def _crude_centers(
    method: DistDPParameters,
    curator: RhoBoundedCurator,
    noised: np.ndarray,
    generator: np.random.Generator,
    part: Budget,
) -> np.ndarray:
    """Crude centers (m, d), int64: coarse cells are counted on noised points, fine ones on true."""
    shifts = draw_shifts(generator, method.quadtrees, curator.n_features)
    histograms = list(fullest_occupied_cells(noised, shifts, method.coarse, method.resolved_cells))
    histograms += _fine_histograms(method, curator, shifts, part)
    return np.unique(fullest_cells(histograms, shifts, method.resolved_cells), axis=0)


def _fine_histograms(
    method: DistDPParameters, curator: RhoBoundedCurator, shifts: np.ndarray, part: Budget
) -> list[Histogram]:
    """Noisy counts of the fine cells of all trees: one release, or one for each histogram."""
    levels = range(method.coarse + 1, method.finest + 1)
    noise, *_ = _fine_noises(method, part)
    if method.fine_counts == "joint":
        (released,) = curator.release(QuadtreeCounts(shifts, levels), counts=noise)["counts"]
        return released_histograms(released)

    histograms = []
    for tree in range(method.quadtrees):
        for level in levels:
            query = QuadtreeCounts(shifts[tree : tree + 1], range(level, level + 1))
            (released,) = curator.release(query, counts=noise)["counts"]
            histograms += [(tree, *rest) for _, *rest in released_histograms(released)]
    return histograms


def _fine_noises(method: DistDPParameters, part: Budget) -> list[StabilityHistogram]:
    """Noise of the releases of fine cells: one, or one for each histogram."""
    n = method.quadtrees * (method.finest - method.coarse)
    if method.fine_counts == "joint":
        return [_cells_noise(part.epsilon, part.delta, n)]
    return [_cells_noise(part.epsilon / n, part.delta / n, 1)] * n


def _cells_noise(epsilon: float, delta: float, n_histograms: int) -> StabilityHistogram:
    """Noise and threshold of histograms that are released together.

    A move changes two counts of each, by 1; half of delta is for the threshold.
    """
    n_changes = 2 * n_histograms
    stddev = math.sqrt(n_changes) / gaussian_mu(epsilon, delta / 2)
    return StabilityHistogram(stddev, delta / 2, n_changes)


# Regions


@dataclass(frozen=True)
class _Assignment:
    """Points assigned to regions."""

    regions: ClippedRegions
    roots: np.ndarray  # regions to summarize
    ungrouped: np.ndarray  # mask of the points that remain as released


def _assign_true_points(
    method: DistDPParameters,
    curator: RhoBoundedCurator,
    schedule: PublishedSchedule,
    centers: np.ndarray,
    is_far: np.ndarray,
) -> _Assignment:
    """Regions by the center nearest to the true point (Appendix E), whose sizes are private."""
    charge_both = method.replacement == "charged"
    regions = curator.regions(centers, schedule.radius, members=~is_far, charge_both=charge_both)
    roots = _positive_regions(regions, _sizes_noise(method, schedule.part))
    return _Assignment(regions, roots, is_far)


def _positive_regions(regions: ClippedRegions, noise: StabilityHistogram | Gaussian) -> np.ndarray:
    """Regions whose sizes are released, and are above zero."""
    if isinstance(noise, StabilityHistogram):
        large = regions.release(LargeRegions(), counts=noise)["counts"]
        return large.cells[large.counts > 0]
    return np.flatnonzero(regions.release(RegionSizes(), counts=noise)["counts"] > 0)


def _assign_noised_points(
    method: DistDPParameters,
    curator: RhoBoundedCurator,
    schedule: PublishedSchedule,
    centers: np.ndarray,
    nearest: np.ndarray,
    is_far: np.ndarray,
) -> _Assignment:
    """Regions by the center nearest to the noised point (Algorithm 1), whose sizes are public.

    The noised points of small regions remain as released.
    """
    sizes = np.bincount(nearest[~is_far], minlength=len(centers))
    ungrouped = is_far | (sizes < schedule.min_size)[nearest]
    groups = np.where(ungrouped, -1, nearest)
    charge_both = method.replacement == "charged"
    regions = curator.regions(centers, schedule.radius, groups=groups, charge_both=charge_both)
    roots = np.unique(groups[groups >= 0])
    return _Assignment(regions, roots, ungrouped)


def _sizes_noise(method: DistDPParameters, part: Budget) -> StabilityHistogram | Gaussian:
    """Noise of the sizes of regions, of which two change, by 1 each.

    Half of the delta of a threshold is for the threshold itself.
    """
    epsilon = part.epsilon * method.size_share
    delta = part.delta * method.size_share
    if method.sizes == "noisy":
        return Gaussian(math.sqrt(2) / gaussian_mu(epsilon, delta) * SCALE)
    return StabilityHistogram(math.sqrt(2) / gaussian_mu(epsilon, delta / 2), delta / 2, 2)


def _min_region(method: DistDPParameters, n_points: int, n_features: int) -> float:
    """Smallest region of noised points: the parameter, or the paper's T with constant 1."""
    if method.least_region != "auto":
        return float(method.least_region)
    k = method.n_clusters
    log = math.log(1 / method.resolved_delta(n_points))
    for_clusters = k * math.log(n_points) ** 2 * log
    for_features = k * math.sqrt(n_features * log)
    return (for_clusters + for_features) / method.epsilon


def _summarize(
    method: DistDPParameters,
    assigned: _Assignment,
    centers: np.ndarray,
    schedule: PublishedSchedule,
    generator: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted points (m, d) and weights (m,) of regions, by the library's tree and shares."""
    regions = assigned.regions
    sensitivity = regions.sum_sensitivity / schedule.radius
    alpha = 1 / schedule.multiple

    # Grow a tree in every region.
    n_clusters = method.n_clusters
    if method.coreset_clusters != "auto":
        n_clusters = method.coreset_clusters
    count_noise = Laplace(SCALE * COUNTS_TO_SUM * alpha)
    trees = RegionTrees(
        regions,
        centers,
        schedule.radius,
        n_clusters=n_clusters,
        depth=method.depth,
        count_noise=count_noise,
        sum_noise=Gaussian(alpha / sensitivity),
    )
    counts = regions.release(RegionCounts(assigned.roots), counts=count_noise)["counts"]
    sizes = np.maximum(counts / SCALE, 1.0)
    return trees.grow(assigned.roots, sizes, generator)
