"""The sound variant of DistDP: one of four strategies, chosen by public values alone.

All releases are Gaussian and share mu^2; thresholds also cost delta. Soft counts are
numbers of points at the nodes of a grid, by multilinear weights. See
docs/distance-based.md. Units: radii, errors and the noise on points are in half-widths,
released points in grid steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from pkm.methods.constraints import AUTO, Integer, Real
from pkm.methods.distance.rho_bounded import MAX_NOISED, RhoBoundedMethod
from pkm.methods.distance.tree import (
    WeightedPoints,
    append_ungrouped,
    draw_shifts,
    find_fullest_cells,
    group_points,
    grow_trees,
    release_clipped_points,
    release_fullest_cells,
    threshold_noise,
)
from pkm.methods.schedule import Schedule, plan_release, smallest_epsilon
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

# Constants of this project.
CELLS_PER_CLUSTER = 4
# Share of mu^2 for the tree's mean: small, because n is public.
CENTERING_SHARE = 0.01
NOISE_WEIGHT = 2.0  # weight of the grid's noise: empty nodes attract centers
MAX_INTERVALS = 512
# Error of quadtree cells if half an average cluster just passes their threshold:
# assumed.
CELLS_ERROR = 0.03
THRESHOLD_DELTA_SHARE = 0.2  # for the threshold of quadtree cells
EXTRA_LEVELS = 3  # of the tree, in addition to log2 of the number of leaves


@dataclass(frozen=True)
class SoundSchedule(Schedule):
    """Releases of the sound variant, from public parameters, n and d alone.

    Attributes
    ----------
    n_sufficient : int
        Smallest number of points whose releases exceed their noise.
    strategy : {"groups", "grid", "tree", "cells"}
        The one with the smallest estimate of the error of a point's position.
    intervals : int
        Intervals of the grid in each dimension.
    """

    _releases: Sequence[Charge]
    n_sufficient: int
    strategy: str
    intervals: int


class SoundDistDP(RhoBoundedMethod):
    """Sound variant of :class:`pkm.methods.DistDP`, which describes the parameters."""

    constraints = {
        "quadtrees": Integer(1, 64),
        "finest": Integer(1, 18),
        "cells": AUTO | Integer(1),
        "depth": Integer(1, 60),
        "points_share": Real(0, 1),
    }

    quadtrees: int = 5
    finest: int = 10
    cells: int | Literal["auto"] = "auto"
    depth: int = 20
    points_share: float = 0.9

    @property
    def n_fullest(self) -> int:
        """Number of cells, of each level of a tree, whose centers are crude centers."""
        if self.cells == "auto":
            return CELLS_PER_CLUSTER * self.n_clusters
        return self.cells

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Any:
        """All releases; see :meth:`PrivateKMeans.schedule`.

        Raises
        ------
        ValueError
            If noise hides all releases; the message names a sufficient n and epsilon.
        """

        def plan(epsilon: float) -> Any:
            return replace(self, epsilon=epsilon).choose_schedule(n_points, n_features)

        def suffices(epsilon: float) -> bool:
            return n_points >= plan(epsilon).n_sufficient

        schedule = plan(self.epsilon)
        if n_points >= schedule.n_sufficient:
            return schedule
        epsilon = smallest_epsilon(self.epsilon, suffices)
        raise ValueError(
            f"epsilon={self.epsilon} with n={n_points} points and rho={self.rho} is "
            "too little for any release to locate points: take "
            f"n >= {schedule.n_sufficient}, epsilon >= {epsilon:g}, or a smaller rho"
        )

    def choose_schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Any:
        """Choose the strategy and its noise, even where noise hides all releases.

        Returns
        -------
        SoundSchedule
        """
        n = n_points
        d = n_features
        k = self.n_clusters
        delta = self.resolved_delta(n)
        mu = gaussian_mu(self.epsilon, delta)
        max_shift = self.max_shift(d)

        # Groups: the noise on the points.
        points_mu = mu * math.sqrt(self.points_share)
        sums_mu = mu * math.sqrt(1 - self.points_share)
        points = plan_release(AllPoints, SortedGaussian, mu=points_mu)
        sums = plan_release(GroupSums, Gaussian, mu=sums_mu)
        stddev = max_shift / points_mu

        # The grid: the best number of intervals.
        grid_error, intervals = _find_best_grid(n, d, k, mu, max_shift)
        grid = plan_release(SoftCounts, Gaussian, mu=mu)

        # Cells: half of mu^2 for their counts, half for the sizes of their regions.
        cells_delta = THRESHOLD_DELTA_SHARE * delta
        total_mu = gaussian_mu(self.epsilon, (1 - THRESHOLD_DELTA_SHARE) * delta)
        cells_mu = total_mu / math.sqrt(2)
        cells = plan_release(
            QuadtreeCounts, StabilityHistogram, mu=cells_mu, delta=cells_delta
        )
        sizes = plan_release(RegionCounts, Gaussian, mu=cells_mu)

        strategies = {
            "groups": (stddev, [points, sums]),
            "grid": (grid_error, [grid]),
            "tree": self._plan_tree(n, d, mu),
        }
        # Cells are for few features, if half an average cluster passes the threshold.
        # At a lower threshold more and smaller cells of a cluster pass, so that the
        # error falls with n and the budget, as that of the grid.
        threshold = threshold_noise(cells, 2 * self.quadtrees * self.finest).threshold
        passing_fraction = 2 * k * threshold / n
        if d <= MAX_FEATURES and passing_fraction <= 1:
            error = CELLS_ERROR * passing_fraction ** (1 / d)
            strategies["cells"] = (error, [cells, sizes])

        strategy = min(strategies, key=lambda name: strategies[name][0])
        n_sufficient = sufficient_points(stddev, math.sqrt(2) / mu)
        return SoundSchedule(strategies[strategy][1], n_sufficient, strategy, intervals)

    def _plan_tree(
        self,
        n: int,
        d: int,
        mu: float,
    ) -> tuple[float, list[Charge]]:
        """Plan one tree of hyperplanes: its error and its releases."""
        # After the mean's share, half of mu^2 is for the sums, half for the counts.
        tree_mu = mu * math.sqrt((1 - CENTERING_SHARE) / 2)

        # Number of leaves of about twice the smallest size. The error is that of
        # rounding to as many cubes of equal size.
        noise_size = 10 * math.sqrt(2 * d) / tree_mu
        cluster_size = n / (2 * self.n_clusters)
        min_size = max(1.0, min(noise_size, cluster_size))
        n_leaves = max(1.0, n / (2 * min_size))
        needed = math.ceil(math.log2(n_leaves)) + EXTRA_LEVELS
        depth = min(self.depth, needed)
        mean = plan_release(Total, Gaussian, mu=mu * math.sqrt(CENTERING_SHARE))
        count = plan_release(RegionCounts, Gaussian, mu=tree_mu / math.sqrt(depth))
        sums = plan_release(RegionSums, Gaussian, mu=tree_mu)
        error = n_leaves ** (-1 / d) / math.sqrt(3)
        return error, [mean, *[count] * depth, sums]

    def _release_sound_coreset(
        self,
        curator: RhoBoundedCurator,
        generator: Generator,
    ) -> WeightedPoints:
        """Release points, in grid steps, and their weights, by the best strategy."""
        schedule = self.schedule(curator.n_points, curator.n_features)
        strategies = {
            "groups": self._release_groups,
            "grid": self._release_grid,
            "cells": self._release_cells,
            "tree": self._release_tree,
        }
        points, weights = strategies[schedule.strategy](curator, generator, schedule)
        return np.clip(points, -SCALE, SCALE), weights

    def _release_groups(
        self,
        curator: RhoBoundedCurator,
        generator: Generator,
        schedule: SoundSchedule,
    ) -> WeightedPoints:
        """Release means of true points, in groups that noised points define.

        Far points, and points of small groups, remain as released.
        """
        # Release all points with noise.
        points, sums = schedule.releases
        noised = release_clipped_points(curator, points)

        # Group them around the fullest cells of quadtrees. From the smallest size on
        # the mean of a group has less noise than the mean of its noised points.
        d = curator.n_features
        shifts = draw_shifts(generator, self.quadtrees, d)
        centers = find_fullest_cells(noised, shifts, self.finest, self.n_fullest)
        centers = np.unique(centers, axis=0)
        far_distance = 2 * math.sqrt(d) * curator.max_shift / points.mu
        min_size = math.floor(self.points_share / (1 - self.points_share)) + 1
        groups = group_points(noised, centers, far_distance, min_size)

        # Release the sums of the true points of the groups: a move changes one of them
        # by rho.
        noise = Gaussian(curator.max_shift * SCALE / sums.mu)
        query = GroupSums(groups, len(centers))
        totals = curator.release(query, sums=noise)["sums"][0]
        sizes = np.bincount(groups[groups >= 0], minlength=len(centers))
        present = sizes > 0
        means = totals[present] / sizes[present, None]
        return append_ungrouped(means, sizes[present], noised, groups)

    def _release_grid(
        self,
        curator: RhoBoundedCurator,
        generator: Generator,
        schedule: SoundSchedule,
    ) -> WeightedPoints:
        """Release soft counts of a public grid; return the nodes above the noise."""
        (grid,) = schedule.releases
        intervals = schedule.intervals
        d = curator.n_features
        stddev = soft_sensitivity(d, 2 / intervals, curator.max_shift) / grid.mu
        noise = Gaussian(stddev * SCALE)
        counts = curator.release(SoftCounts(intervals), counts=noise)["counts"]
        weights = counts.ravel() / SCALE
        selected = _select_above_noise(weights, stddev, self.n_clusters)
        if not len(selected):
            return np.zeros((1, d)), np.ones(1)
        shape = (intervals + 1,) * d
        nodes = np.stack(np.unravel_index(selected, shape), axis=1)
        points = (2 * nodes / intervals - 1) * SCALE
        return points, weights[selected]

    def _release_cells(
        self,
        curator: RhoBoundedCurator,
        generator: Generator,
        schedule: SoundSchedule,
    ) -> WeightedPoints:
        """Release the fullest cells of true points, and count the points nearest."""
        # Release the counts of the cells of all levels that pass the threshold.
        cells, sizes = schedule.releases
        d = curator.n_features
        shifts = draw_shifts(generator, self.quadtrees, d)
        query = QuadtreeCounts(shifts, range(1, self.finest + 1))
        centers = release_fullest_cells(curator, query, cells, self.n_fullest)
        if not len(centers):
            centers = np.zeros((1, d), np.int64)
        centers = np.clip(centers, -SCALE, SCALE)
        centers = np.unique(centers, axis=0)

        # Count the points nearest to each of their centers: a move changes two counts.
        stddev = math.sqrt(2) / sizes.mu
        regions = curator.regions(centers, 2 * math.sqrt(d))
        query = RegionCounts(np.arange(len(centers)))
        noise = Gaussian(stddev * SCALE)
        counts = regions.release(query, counts=noise)["counts"]
        weights = counts / SCALE
        selected = _select_above_noise(weights, stddev, self.n_clusters)
        if not len(selected):
            return centers[:1].astype(np.float64), np.ones(1)
        return centers[selected].astype(np.float64), weights[selected]

    def _release_tree(
        self,
        curator: RhoBoundedCurator,
        generator: Generator,
        schedule: SoundSchedule,
    ) -> WeightedPoints:
        """Release one tree on all points, with noise for a replacement."""
        # Release the mean, through which the hyperplanes pass.
        mean, *counts, sums = schedule.releases
        noise = Gaussian(curator.max_shift * SCALE / mean.mu)
        total = curator.release(Total(), sums=noise)["sums"][0]
        center = np.rint(total / curator.n_points)
        center = np.clip(center, -SCALE, SCALE)
        center = center.astype(np.int64)[None]

        # One region with all points. Its ball holds the domain: nothing is clipped.
        farthest = SCALE + np.abs(center)
        radius = math.sqrt((farthest**2).sum()) / SCALE
        return grow_trees(
            curator.regions(center, radius),
            center,
            radius,
            np.zeros(1, np.int64),
            np.array([float(curator.n_points)]),
            generator,
            n_clusters=self.n_clusters,
            depth=len(counts),
            count_noise=Gaussian(SCALE * math.sqrt(2) / counts[0].mu),
            sum_noise=Gaussian(1 / sums.mu),
        )


def sufficient_points(
    stddev: float,
    min_size: float,
) -> int:
    """Smallest number of points whose mean or count exceeds its noise.

    Parameters
    ----------
    stddev : float
        Standard deviation of the noise on points, in half-widths.
    min_size : float
        Smallest count that noise does not hide.

    Returns
    -------
    int
    """
    return math.ceil(min(min_size, (stddev / MAX_NOISED) ** 2))


def _find_best_grid(
    n: int,
    d: int,
    k: int,
    mu: float,
    max_shift: float,
) -> tuple[float, int]:
    """Smallest error of a grid of soft counts, and its number of intervals.

    The error has two parts: rounding to nodes, and the move of a center by the noise of
    counts, for a cluster on 1 / k of the domain.
    """
    best = math.inf, 0
    for intervals in range(1, MAX_INTERVALS + 1):
        n_nodes = (intervals + 1) ** d
        if n_nodes > MAX_NODES or d > MAX_FEATURES:
            break
        # Root mean square of a uniform rounding error, and noise over the cluster's
        # size.
        noise = soft_sensitivity(d, 2 / intervals, max_shift) / mu
        rounding_error = 2 / (intervals * math.sqrt(12))
        cluster_noise = NOISE_WEIGHT * noise * math.sqrt(k * n_nodes / 3)
        noise_error = cluster_noise * k ** (-1 / d) / n
        error = math.hypot(rounding_error, noise_error)
        best = min(best, (error, intervals))
    return best


def _select_above_noise(
    weights: np.ndarray,
    stddev: float,
    n_clusters: int,
) -> np.ndarray:
    """Select the positive weights that are above the noise, or among the k largest."""
    # Expected maximum of as many normal variates, sigma sqrt(2 ln m), as a bound.
    log = math.log(max(len(weights), 2))
    bound = stddev * math.sqrt(2 * log)
    n_above = int((weights >= bound).sum())
    order = np.argsort(-weights, kind="stable")
    selected = order[: max(n_above, n_clusters)]
    return selected[weights[selected] > 0]
