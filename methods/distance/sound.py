"""The sound variant of DistDP: one of four strategies, chosen by public values alone.

All releases are Gaussian (but for the thresholds, which cost delta) and share mu^2. See
docs/distance-based.md. Units: radii, errors and the noise on points are in half-widths, released
points in grid steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pkm.compute.kernels.nearest import nearest_of_many
from pkm.compute.kernels.quadtree import fullest_occupied_cells
from pkm.methods.distance.parameters import DistDPParameters
from pkm.methods.distance.rho_bounded import (
    hides_mean,
    sufficient_points,
)
from pkm.methods.distance.tree import (
    RegionTrees,
    clipped_noised,
    draw_shifts,
    fullest_cells,
    released_histograms,
)
from pkm.methods.schedule import Schedule, plan_release
from pkm.privacy import SCALE, Charge, Gaussian, StabilityHistogram, gaussian_mu
from pkm.privacy.queries.clipped_regions import RegionCounts, RegionSums
from pkm.privacy.queries.moved_records import (
    MAX_FEATURES,
    MAX_NODES,
    AllPoints,
    GroupSums,
    QuadtreeCounts,
    SoftCounts,
    SortedGaussian,
    Total,
    soft_sensitivity,
)
from pkm.privacy.rho_bounded import RhoBoundedCurator

#: Share of mu^2 for the tree's mean: small, because n is public and a move changes it little.
CENTERING_SHARE = 0.01
#: Weight of the grid's noise against its sides: empty nodes attract centers.
NOISE_WEIGHT = 2.0
MAX_INTERVALS = 512
#: Assumed error of adaptive cells where half an average cluster just passes their threshold.
ADAPTIVE_ERROR = 0.03
THRESHOLD_DELTA_SHARE = 0.2  # for the threshold of adaptive cells
EXTRA_LEVELS = 3  # of the tree, beyond what halving the points requires


# The public rule


@dataclass(frozen=True)
class SoundSchedule(Schedule):
    """Strategy and noise of the sound variant, from rho, epsilon, delta, n, d and k alone.

    Attributes
    ----------
    errors : dict
        Rough error of a point's position per feature, in half-widths, by strategy: ``groups`` of
        true points by noised points (the noise on these), ``grid`` of soft counts (its sides, and
        what the counts' noise adds to the center of an average cluster), ``cells`` of quadtrees on
        true points, which adapt to the data (where half a cluster passes their threshold: a
        constant there, and less as smaller parts of a cluster pass), ``tree`` of hyperplanes (the
        size of its leaves).
    mu : float
        Of the whole run.
    stddev : float
        Of the noise on points, in half-widths.
    intervals : int
        Of the grid.
    points_share : float
        Of mu squared, for the noised points; the rest is for the sums of groups.
    cells_mu, cells_delta : float
        Of adaptive cells; mu is as much again for the sizes of their regions.
    tree_mu : float
        Of the tree's sums, and as much of its counts.
    depth : int
        Levels of the tree.
    """

    errors: dict[str, float]
    mu: float
    stddev: float
    intervals: int
    points_share: float
    cells_mu: float
    cells_delta: float
    tree_mu: float
    depth: int

    @property
    def releases(self) -> Sequence[Charge]:
        """Those of the strategy."""
        if self.strategy == "groups":
            parts = [(AllPoints, self.points_share), (GroupSums, 1 - self.points_share)]
        elif self.strategy == "grid":
            parts = [(SoftCounts, 1.0)]
        elif self.strategy == "cells":
            cells = plan_release(
                QuadtreeCounts, StabilityHistogram, mu=self.cells_mu, delta=self.cells_delta
            )
            return [cells, plan_release(RegionCounts, Gaussian, mu=self.cells_mu)]
        else:
            tree_share = (self.tree_mu / self.mu) ** 2
            parts = [
                (Total, CENTERING_SHARE),
                *[(RegionCounts, tree_share / self.depth)] * self.depth,
                (RegionSums, tree_share),
            ]
        return [
            plan_release(query, Gaussian, mu=self.mu * math.sqrt(share)) for query, share in parts
        ]

    @property
    def strategy(self) -> str:
        """The strategy with the smallest error."""
        return min(self.errors, key=lambda name: self.errors[name])

    @property
    def n_sufficient(self) -> int:
        """Number of points from which on their mean or their count is not hidden by noise."""
        return min(math.ceil(math.sqrt(2) / self.mu), sufficient_points(self.stddev))

    def insufficient_data(self, n_points: int) -> bool:
        """Whether noise hides both the mean of the noised points and a count of all points."""
        return hides_mean(self.stddev, n_points) and math.sqrt(2) / self.mu > n_points


def sound_schedule(method: DistDPParameters, n_points: int, n_features: int) -> SoundSchedule:
    """Work out the schedule from public values."""
    n = n_points
    d = n_features
    max_shift = method.max_shift(d)
    k = method.n_clusters
    mu = gaussian_mu(method.epsilon, method.resolved_delta(n))

    # Groups: the noise on the points.
    stddev = max_shift / (mu * math.sqrt(method.points_share))

    # The grid: the best number of intervals.
    grid_error, intervals = _best_grid(n, d, k, mu, max_shift)

    # The tree: leaves of about twice the smallest size, as cubes that share the domain equally.
    tree_mu = mu * math.sqrt((1 - CENTERING_SHARE) / 2)
    noise_size = 10 * math.sqrt(2 * d) / tree_mu
    cluster_size = n / (2 * k)
    min_size = max(1.0, min(noise_size, cluster_size))
    n_leaves = max(1.0, n / (2 * min_size))
    depth = min(method.depth, math.ceil(math.log2(n_leaves)) + EXTRA_LEVELS)
    tree_error = n_leaves ** (-1 / d) / math.sqrt(3)

    # Adaptive cells: where half a cluster passes the threshold, and not in many features. A cluster
    # holds more and smaller cells that pass as the threshold falls, so that more budget or more
    # points lower this error as they lower that of the grid.
    errors = {"groups": stddev, "grid": grid_error, "tree": tree_error}
    cells_noise, cells_mu = _cells_noise(method, n)
    passing_part = 2 * k * cells_noise.threshold / n
    if d <= MAX_FEATURES and passing_part <= 1:
        errors["cells"] = ADAPTIVE_ERROR * passing_part ** (1 / d)
    return SoundSchedule(
        errors,
        mu,
        stddev,
        intervals,
        points_share=method.points_share,
        cells_mu=cells_mu,
        cells_delta=cells_noise.delta,
        tree_mu=tree_mu,
        depth=depth,
    )


def _best_grid(n: int, d: int, k: int, mu: float, max_shift: float) -> tuple[float, int]:
    """Smallest error of a grid of soft counts, and its number of intervals.

    The error has two parts: half a side on average, and the distance that the noise of the counts
    moves the center of a cluster which fills the k-th part of the domain.
    """
    best_error = math.inf
    best_intervals = 0
    for intervals in range(1, MAX_INTERVALS + 1):
        n_nodes = (intervals + 1) ** d
        if n_nodes > MAX_NODES or d > MAX_FEATURES:
            break
        noise = soft_sensitivity(d, 2 / intervals, max_shift) / mu
        rounding_error = 2 / (intervals * math.sqrt(12))
        noise_error = NOISE_WEIGHT * noise * math.sqrt(k * n_nodes / 3) * k ** (-1 / d) / n
        error = math.hypot(rounding_error, noise_error)
        if error < best_error:
            best_error = error
            best_intervals = intervals
    return best_error, best_intervals


def sound_coreset(
    method: DistDPParameters,
    curator: RhoBoundedCurator,
    schedule: SoundSchedule,
    generator: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted points (m, d), in grid steps, and weights (m,), by the best of four strategies."""
    strategies = {"groups": _groups, "grid": _grid, "cells": _cells, "tree": _tree}
    return strategies[schedule.strategy](method, curator, generator, schedule)


# Groups


def _groups(
    method: DistDPParameters,
    curator: RhoBoundedCurator,
    generator: np.random.Generator,
    schedule: SoundSchedule,
) -> tuple[np.ndarray, np.ndarray]:
    """Means of the true points of groups that noised points define.

    Far points, and points of small groups, remain as released.
    """
    # Release all points with noise, and group them around the fullest cells of quadtrees.
    noise = SortedGaussian(schedule.stddev * SCALE)
    released = curator.release(AllPoints(), points=noise)["points"][0]
    noised = clipped_noised(released)
    del released  # all points: memory is needed below
    shifts = draw_shifts(generator, method.quadtrees, curator.n_features)
    histograms = fullest_occupied_cells(noised, shifts, method.finest, method.resolved_cells)
    centers = np.unique(fullest_cells(histograms, shifts, method.resolved_cells), axis=0)
    nearest, distance = nearest_of_many(noised, centers)

    # From this size on a group's mean carries less noise than the mean of its noised points.
    max_small = method.points_share / (1 - method.points_share)
    is_far = distance > 2 * math.sqrt(curator.n_features) * schedule.stddev * SCALE
    sizes = np.bincount(nearest[~is_far], minlength=len(centers))
    ungrouped = is_far | (sizes <= max_small)[nearest]

    # Release the sums of the true points of the groups: a move changes one of them by rho.
    groups = np.where(ungrouped, -1, nearest)
    del nearest, distance, is_far
    sums_mu = schedule.mu * math.sqrt(1 - method.points_share)
    noise = Gaussian(curator.max_shift * SCALE / sums_mu)
    sums = curator.release(GroupSums(groups, len(centers)), sums=noise)["sums"][0]
    sizes = np.bincount(groups[~ungrouped], minlength=len(centers))
    present = sizes > 0
    points = np.concatenate([sums[present] / sizes[present, None], noised[ungrouped]])
    return points, np.concatenate([sizes[present], np.ones(ungrouped.sum())])


# Grid


def _grid(
    method: DistDPParameters,
    curator: RhoBoundedCurator,
    generator: np.random.Generator,
    schedule: SoundSchedule,
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of a public grid, weighted by soft counts, where these exceed the noise."""
    intervals = schedule.intervals
    n_features = curator.n_features
    stddev = soft_sensitivity(n_features, 2 / intervals, curator.max_shift) / schedule.mu
    released = curator.release(SoftCounts(intervals), counts=Gaussian(stddev * SCALE))
    weights = released["counts"].ravel() / SCALE
    selected = _above_noise(weights, stddev, method.n_clusters)
    if not len(selected):
        return np.zeros((1, n_features)), np.ones(1)
    nodes = np.stack(np.unravel_index(selected, (intervals + 1,) * n_features), axis=1)
    return (2 * nodes / intervals - 1) * SCALE, weights[selected]


def _above_noise(weights: np.ndarray, stddev: float, n_clusters: int) -> np.ndarray:
    """Indices of weights above the noise level, or of the k largest; positive ones alone."""
    # The largest of that many normal variates stays below this bound.
    bound = stddev * math.sqrt(2 * math.log(max(len(weights), 2)))
    n_above = int((weights >= bound).sum())
    order = np.argsort(-weights, kind="stable")
    selected = order[: max(n_above, n_clusters)]
    return selected[weights[selected] > 0]


# Cells


def _cells_noise(method: DistDPParameters, n_points: int) -> tuple[StabilityHistogram, float]:
    """Noise of the adaptive cells, and mu of their regions' sizes: each has half of mu^2."""
    delta = method.resolved_delta(n_points)
    mu = gaussian_mu(method.epsilon, (1 - THRESHOLD_DELTA_SHARE) * delta) / math.sqrt(2)
    n_changes = 2 * method.quadtrees * method.finest
    stddev = math.sqrt(n_changes) / mu
    return StabilityHistogram(stddev, THRESHOLD_DELTA_SHARE * delta, n_changes), mu


def _cells(
    method: DistDPParameters,
    curator: RhoBoundedCurator,
    generator: np.random.Generator,
    schedule: SoundSchedule,
) -> tuple[np.ndarray, np.ndarray]:
    """Centers of the fullest cells of quadtrees on true points, weighted by the points nearest."""
    n_features = curator.n_features
    noise, mu = _cells_noise(method, curator.n_points)

    # Release the counts of the cells of all levels that pass the threshold.
    shifts = draw_shifts(generator, method.quadtrees, n_features)
    query = QuadtreeCounts(shifts, range(1, method.finest + 1))
    (released,) = curator.release(query, counts=noise)["counts"]
    centers = fullest_cells(released_histograms(released), shifts, method.resolved_cells)
    centers = np.clip(centers, -SCALE, SCALE)
    if not len(centers):
        centers = np.zeros((1, n_features), np.int64)
    centers = np.unique(centers, axis=0)

    # Count the points nearest to each of their centers: a move changes two counts.
    stddev = math.sqrt(2) / mu
    regions = curator.regions(centers, 2 * math.sqrt(n_features))
    query = RegionCounts(np.arange(len(centers)))
    sizes = regions.release(query, counts=Gaussian(stddev * SCALE))["counts"] / SCALE
    selected = _above_noise(sizes, stddev, method.n_clusters)
    if not len(selected):
        return centers[:1].astype(np.float64), np.ones(1)
    return centers[selected].astype(np.float64), sizes[selected]


# Tree


def _tree(
    method: DistDPParameters,
    curator: RhoBoundedCurator,
    generator: np.random.Generator,
    schedule: SoundSchedule,
) -> tuple[np.ndarray, np.ndarray]:
    """Leaves of one tree of hyperplanes on all points; the noise covers both records of a move."""
    # Release the mean, through which the hyperplanes pass.
    mean_mu = schedule.mu * math.sqrt(CENTERING_SHARE)
    noise = Gaussian(curator.max_shift * SCALE / mean_mu)
    total = curator.release(Total(), sums=noise)["sums"][0]
    mean = np.rint(total / curator.n_points)
    center = np.clip(mean, -SCALE, SCALE).astype(np.int64)[None]

    # One region with all points: its ball reaches the farthest corner, so nothing is clipped.
    shifted_bounds = SCALE + np.abs(center)
    radius = math.sqrt((shifted_bounds**2).sum()) / SCALE
    trees = RegionTrees(
        curator.regions(center, radius),
        center,
        radius,
        n_clusters=method.n_clusters,
        depth=schedule.depth,
        count_noise=Gaussian(SCALE * math.sqrt(2 * schedule.depth) / schedule.tree_mu),
        sum_noise=Gaussian(1 / schedule.tree_mu),
    )
    root = np.zeros(1, np.int64)
    return trees.grow(root, np.array([float(curator.n_points)]), generator)
