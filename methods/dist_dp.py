"""k-means and k-median under distance-based privacy (Epasto, Mirrokni, Narayanan, Zhong 2023), and what it is held to.

Neighbors differ in one record, moved by at most rho. Every point is released with noise of rho's size; crude centers
come from cells of shifted quadtrees; points far from all of them stay as they were released, and of the rest every
region leaves a small weighted summary. See docs/distance-based.md for what the paper says and what it leaves open.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import numpy as np
from sklearn.base import clone

from pkm.compute import DIRECTION_SCALE
from pkm.compute.quadtree import cell_centers, nearest_of_many, occupied_cells
from pkm.methods.base import SOUND_DELTA, PrivateKMeans, is_integer, is_number
from pkm.methods.kmedian import weighted_kmedian
from pkm.methods.lsh_splits import BRANCH, COUNTS_TO_SUM
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import (
    SCALE,
    Budget,
    Gaussian,
    Laplace,
    PrivacyClaim,
    StabilityHistogram,
    gaussian_mu,
    largest_multiple,
    snap_centers,
)
from pkm.privacy.budget import Adjacency
from pkm.privacy.noise import INITIALIZATION, child
from pkm.privacy.rho_bounded import (
    MAX_COLUMNS,
    MAX_NODES,
    ClippedRegions,
    RhoBoundedCurator,
    diagonal,
    soft_sensitivity,
)

BOX = 2 * SCALE  # noised points are moved into [-2, 2]^d
WIDEST_SHIFT = 4 * SCALE
CELLS_PER_CLUSTER = 4
CENTRING = 0.01  # share of mu^2 for the tree's mean: n is public and a move small, so that little is enough
CAUTION = (
    2.0  # by which the grid's noise counts for more than its sides: empty nodes attract centers
)
MAX_INTERVALS = 512
FINE = 0.06  # error that adaptive cells are credited with, whatever the data
HIDDEN = 0.2  # share of delta for the threshold of adaptive cells
SPARE_LEVELS = 3  # of the tree, beyond what halving the points asks for


@dataclass(eq=False, repr=False)
class _Moving(PrivateKMeans):
    """What the methods under rho-bounded adjacency share."""

    curator: ClassVar[type] = RhoBoundedCurator
    batched: ClassVar[bool] = False
    published_delta = staticmethod(lambda n_points: SOUND_DELTA)
    choices: ClassVar[dict[str, tuple]] = {
        **PrivateKMeans.choices,
        "p": (1, 2),
        "calibration": ("classical", "analytic"),
        "secure": (True, False),
    }

    _: KW_ONLY
    epsilon: float = 1.0
    delta: float | str = "auto"
    rho: float | str = 0.05
    p: int = 2
    calibration: str = "classical"
    n_init: int = 1
    secure: bool = False

    def budget(self, n_points: int, n_features: int) -> Budget:
        """Budget of one run: epsilon and delta for moves of at most rho."""
        rho = diagonal(n_features) if self.rho == "diagonal" else float(self.rho)
        return Budget(self.epsilon, self.resolved_delta(n_points), Adjacency.RHO_BOUNDED, rho)

    def check_parameters(self, n_points=None):
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        if not (self.rho == "diagonal" or (is_number(self.rho) and 0 < self.rho < math.inf)):
            raise ValueError(
                f"rho={self.rho!r} must be a positive finite number, in half-widths of the domain, or 'diagonal'"
            )
        if not (is_integer(self.n_init) and self.n_init >= 1):
            raise ValueError(f"n_init={self.n_init!r} must be an integer of at least 1")

    def _clustered(self, points: np.ndarray, weights: np.ndarray, seed: int) -> np.ndarray:
        """Centers on the grid (1, k', d) for weighted released points: post-processing."""
        solve = weighted_kmeans if self.p == 2 else weighted_kmedian
        return snap_centers(solve(points, weights, self.n_clusters, self.n_init, seed))[None]


@dataclass(eq=False, repr=False)
class DistDP(_Moving):
    """Clustering under distance-based privacy.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Total, for neighbors that differ by the move of one point by at most rho.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6, the paper's.
    rho : float or "diagonal", default=0.05
        In half-widths of the domain; at most its diagonal, 2 sqrt(d), which the word stands for: then any move is
        protected, as the replacement of a record. A matter of policy, never taken from data.
    p : {2, 1}, default=2
        k-means or k-median.
    variant : {"published", "sound"}, default="sound"
        ``published`` is Algorithms 1 and 2 with the constants of Appendix E, in three equal parts of the budget.
        ``sound`` groups true points by their released positions, so that a move changes one sum by rho and nothing
        else. Where the noise on points leaves too little of them, by a public rule (:class:`Plan`), it releases soft
        counts of a grid, or cells of quadtrees, or a tree of hyperplanes on all points.
    calibration : {"classical", "analytic"}, default="classical"
        ``published``: noise on the points by the paper's formula, or by the exact one (a quarter less noise).
    regions : {"true", "noised"}, default="true"
        ``published``: a point belongs to the crude center nearest to its true place (Appendix E), with sizes that need
        a threshold, or to the one nearest to its noised place (Algorithm 1), with public sizes.
    ball : {"capped", "printed"} or float, default="capped"
        ``published``: radius of a region's ball. ``capped``: the far distance, at most sqrt(d). ``printed``:
        min(S, sqrt(d)) rho, to the letter. A number: half-widths.
    replacement : {"charged", "uncharged"}, default="charged"
        ``published``: the summaries' noise covers both records that a move changes, or one as the library that the
        paper plugs in (flaw F-17).
    least_region : float or "auto", default="auto"
        ``published`` with ``regions="noised"``: smaller regions keep their noised points. ``auto`` is the paper's T
        with constant 1: (k ln(n)^2 ln(1/delta) + k sqrt(d ln(1/delta))) / epsilon.
    sizes : {"thresholded", "noisy"}, default="thresholded"
        ``published`` with ``regions="true"``: only sizes above a threshold leave, or those of all regions, whose
        centers are public, with noise for the whole delta of their part; regions of a size up to 0 are dropped.
    size_share : float, default=0.5
        ``published`` with ``regions="true"``: part of the third part's epsilon and delta that sizes have;
        summaries have the rest.
    fine_counts : {"joint", "split"}, default="joint"
        ``published``: all histograms of fine cells as one release, or each at an even share of its part's epsilon and
        delta.
    coreset_clusters : int or "auto", default="auto"
        ``published``: the number of clusters that the summaries' trees are told, by which they choose their least
        cells; ``auto`` is k.
    quadtrees : int, default=5
    coarse, finest : int, default=5 and 10
        Levels 0 .. coarse are counted on noised points, the rest, to the finest, on true ones (``published``) or on
        noised ones as well (``sound``). Level l has cells of side 8 / 2^l half-widths.
    cells : int or "auto", default="auto"
        Fullest cells of each level of each tree that become crude centers; ``auto`` is 4 k.
    depth : int, default=20
        Most levels of a tree of hyperplanes.
    points_share : float, default=0.9
        ``sound``: share of mu^2 for the noised points; the rest goes to the sums.
    n_init : int, default=1
        Starts of the final clustering.
    bounds, clip, random_state
        As for :class:`pkm.methods.base.PrivateKMeans`.
    secure : bool, default=False
        Draw noise from the operating system's entropy instead of the seed.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.25], [0.5, 0.5]], 5000, axis=0)
    >>> model = DistDP(n_clusters=2, rho=0.01, random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label: ClassVar[str] = "dist-DP"
    color: ClassVar[str] = "#e69f00"
    marker: ClassVar[str] = "o"
    claims: ClassVar[dict[str, PrivacyClaim]] = {
        "published": PrivacyClaim("approximate", Adjacency.RHO_BOUNDED),
        "sound": PrivacyClaim("approximate", Adjacency.RHO_BOUNDED),
    }
    choices: ClassVar[dict[str, tuple]] = {
        **_Moving.choices,
        "variant": ("published", "sound"),
        "regions": ("true", "noised"),
        "replacement": ("charged", "uncharged"),
        "sizes": ("thresholded", "noisy"),
        "fine_counts": ("joint", "split"),
    }

    _: KW_ONLY
    variant: str = "sound"
    regions: str = "true"
    ball: float | str = "capped"
    replacement: str = "charged"
    least_region: float | str = "auto"
    sizes: str = "thresholded"
    size_share: float = 0.5
    fine_counts: str = "joint"
    coreset_clusters: int | str = "auto"
    quadtrees: int = 5
    coarse: int = 5
    finest: int = 10
    cells: int | str = "auto"
    depth: int = 20
    points_share: float = 0.9

    @property
    def claim(self) -> PrivacyClaim:
        """The claim of the chosen variant; with one record charged for two it carries the flaw."""
        claim = self.claims[self.variant]
        flawed = self.variant == "published" and self.replacement == "uncharged"
        return replace(claim, flaws=("F-17",)) if flawed else claim

    def check_parameters(self, n_points=None):
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        if self.variant not in self.claims:
            raise ValueError(
                f"variant={self.variant!r} is unknown, choose one of 'published', 'sound'"
            )
        super().check_parameters(n_points)
        for name, lowest, highest in (
            ("quadtrees", 1, 64),
            ("depth", 1, 60),
            ("coarse", 0, 17),
            ("finest", 1, 18),
        ):
            value = getattr(self, name)
            if not (is_integer(value) and lowest <= value <= highest):
                raise ValueError(f"{name}={value!r} must be an integer from {lowest} to {highest}")
        if not self.coarse < self.finest:
            raise ValueError(f"finest={self.finest} must be above coarse={self.coarse}")
        for name in ("cells", "coreset_clusters"):
            value = getattr(self, name)
            if value != "auto" and not (is_integer(value) and value >= 1):
                raise ValueError(f"{name}={value!r} must be 'auto' or an integer of at least 1")
        for name, words in (("ball", ("capped", "printed")), ("least_region", ("auto",))):
            value = getattr(self, name)
            if value not in words and not (is_number(value) and 0 < value < math.inf):
                raise ValueError(
                    f"{name}={value!r} must be a positive number or one of {', '.join(map(repr, words))}"
                )
        for name in ("points_share", "size_share"):
            value = getattr(self, name)
            if not (is_number(value) and 0 < value < 1):
                raise ValueError(f"{name}={value!r} must be a number in (0, 1)")
        if self.variant == "published":
            part = self._part(n_points)
            _points_multiplier(self.calibration, part.epsilon, part.delta)

    def cluster(self, curator: RhoBoundedCurator) -> tuple[np.ndarray, int]:
        """Summarise and cluster; see :meth:`PrivateKMeans.cluster`."""
        generator = np.random.default_rng(child(curator.seeds[0], INITIALIZATION))
        summarize = self._published if self.variant == "published" else self._sound
        points, weights = summarize(curator, generator)
        if self.variant == "sound":
            points = np.clip(points, -SCALE, SCALE)
        return self._clustered(points, weights, int(generator.integers(2**32))), 1

    def _part(self, n_points) -> Budget:
        """Budget of each of three: the noised points, the fine cells, the regions with their summaries."""
        # Of one column, whatever the number of columns: epsilon and delta are all that is read.
        return self.budget(n_points, 1).split([1, 1, 1])[0]

    # As published

    def _published(self, curator: RhoBoundedCurator, generator) -> tuple[np.ndarray, np.ndarray]:
        """Weighted points of Algorithm 1."""
        n, d = curator.n_points, curator.n_features
        part = self._part(n)
        deviation = _points_multiplier(self.calibration, part.epsilon, part.delta) * curator.max_shift
        far_distance = self.far_factor(n, d) * curator.max_shift
        radius = self._radius(far_distance, curator.max_shift, d)
        least = self._least(n, d, part)
        if least > n and _blind(deviation, n):
            enough = min(math.ceil(least), math.ceil((deviation * SCALE / BOX) ** 2))
            self._refuse(n, enough, lambda epsilon: self._says_something(epsilon, curator))
        noised = np.clip(curator.noised_points(Gaussian(deviation * SCALE)), -BOX, BOX)
        centers = self._crude_centers(curator, noised, generator, part)
        nearest, distance = nearest_of_many(noised, centers)
        far = distance > far_distance * SCALE
        if self.regions == "true":
            single = far
            regions = curator.regions(
                centers, radius, members=~far, charged=self.replacement == "charged"
            )
            cells, noisy = regions.sizes(self._sizes_noise(part))
            cells = cells[noisy > 0]
            epsilon, delta = (
                part.epsilon * (1 - self.size_share),
                part.delta * (1 - self.size_share),
            )
        else:
            small = np.bincount(nearest[~far], minlength=len(centers)) < least
            single = far | small[nearest]
            groups = np.where(single, -1, nearest)
            regions = curator.regions(
                centers, radius, groups=groups, charged=self.replacement == "charged"
            )
            cells, (epsilon, delta) = np.unique(groups[groups >= 0]), (part.epsilon, part.delta)
        points, weights = self._summaries(
            regions, cells, centers, radius, epsilon, delta, generator
        )
        points = np.concatenate([points, noised[single]])
        weights = np.concatenate([weights, np.ones(single.sum())])
        if not len(
            points
        ):  # no region left and no point was far: the noised points are released all the same
            return noised.astype(np.float64), np.ones(n)
        return points, weights

    def far_factor(self, n_points: int, n_features: int) -> float:
        """The paper's S: points farther than S rho from all crude centers are far; a matter of utility alone."""
        epsilon, delta = self.epsilon / 6, self.resolved_delta(n_points) / 6
        return math.sqrt(2 * math.log(1.25 / delta) * n_features) / epsilon

    def _radius(self, far_distance: float, rho: float, d: int) -> float:
        """Radius of a region's ball, in half-widths."""
        if self.ball == "capped":
            return min(far_distance, math.sqrt(d))
        if self.ball == "printed":
            return min(far_distance, math.sqrt(d) * rho)
        return float(self.ball)

    def _sizes_noise(self, part: Budget) -> StabilityHistogram | Gaussian:
        """Noise of the sizes of regions, of which two change, by one each; half of a threshold's delta is its own."""
        epsilon, delta = part.epsilon * self.size_share, part.delta * self.size_share
        if self.sizes == "noisy":
            return Gaussian(math.sqrt(2) / gaussian_mu(epsilon, delta) * SCALE)
        return StabilityHistogram(math.sqrt(2) / gaussian_mu(epsilon, delta / 2), delta / 2, 2)

    def _least(self, n: int, d: int, part: Budget) -> float:
        """Size that a region needs to be seen: a threshold, or the noise on sizes that leave without one."""
        if self.regions == "noised":
            return self._least_region(n, d)
        noise = self._sizes_noise(part)
        return noise.threshold if isinstance(noise, StabilityHistogram) else noise.scale / SCALE

    def _least_region(self, n: int, d: int) -> float:
        if self.least_region != "auto":
            return float(self.least_region)
        k, log = self.n_clusters, math.log(1 / self.resolved_delta(n))
        return (k * math.log(n) ** 2 * log + k * math.sqrt(d * log)) / self.epsilon

    def _fullest(self) -> int:
        return CELLS_PER_CLUSTER * self.n_clusters if self.cells == "auto" else self.cells

    def _crude_centers(self, curator, noised, generator, part: Budget | None) -> np.ndarray:
        """Middles of the fullest cells of shifted quadtrees, (m, d), int64; without a part from noised points alone."""
        shifts = generator.integers(0, WIDEST_SHIFT + 1, (self.quadtrees, curator.n_features))
        last = self.finest if part is None else self.coarse
        found = [
            (i, *each)
            for i, shift in enumerate(shifts)
            for each in occupied_cells(noised, shift, range(last + 1))
        ]
        if part is not None:
            found += self._fine_cells(curator, shifts, part)
        return np.unique(self._middles_of_fullest(found, shifts), axis=0)

    def _fine_cells(self, curator, shifts: np.ndarray, part: Budget) -> list:
        """StabilityHistogram counts of the fine cells of all trees: one release, or one for each histogram."""
        fine = range(self.coarse + 1, self.finest + 1)
        histograms = self.quadtrees * len(fine)
        if self.fine_counts == "joint":
            return curator.cell_counts(
                shifts, fine, _fine_noise(part.epsilon, part.delta, histograms)
            )
        noise = _fine_noise(part.epsilon / histograms, part.delta / histograms, 1)
        return [
            (tree, *each[1:])
            for tree in range(self.quadtrees)
            for level in fine
            for each in curator.cell_counts(shifts[tree : tree + 1], range(level, level + 1), noise)
        ]

    def _middles_of_fullest(self, found, shifts) -> np.ndarray:
        some = [np.empty((0, shifts.shape[1]), np.int64)]
        for tree, level, cells, counts in found:
            fullest = np.argsort(-counts, kind="stable")[: self._fullest()]
            some.append(cell_centers(cells[fullest], shifts[tree], level))
        return np.concatenate(some)

    def _summaries(
        self, regions: ClippedRegions, cells, centers, radius, epsilon, delta, generator
    ):
        """Weighted points (m, d) and weights (m,) of all regions, by the library's tree and the library's shares."""
        # Every record is in depth + 1 counts; both records of a move, unless only one is charged.
        counts = (self.depth + 1) * (2 if self.replacement == "charged" else 1)
        sensitivity = regions.sum_sensitivity / radius
        alpha = 1 / largest_multiple([sensitivity], [1 / COUNTS_TO_SUM] * counts, epsilon, delta)
        count_noise = Laplace(SCALE * COUNTS_TO_SUM * alpha)
        sizes = np.maximum(regions.counts(cells, count_noise), 1.0)
        return grow(
            regions,
            cells,
            sizes,
            centers,
            radius,
            self.depth,
            count_noise,
            alpha / sensitivity,
            self.n_clusters if self.coreset_clusters == "auto" else self.coreset_clusters,
            generator,
        )

    def _says_something(self, epsilon: float, curator: RhoBoundedCurator) -> bool:
        other = self._with_epsilon(epsilon)
        part = other._part(curator.n_points)
        least = other._least(curator.n_points, curator.n_features, part)
        deviation = _points_multiplier(self.calibration, part.epsilon, part.delta) * curator.max_shift
        return least <= curator.n_points or not _blind(deviation, curator.n_points)

    def _with_epsilon(self, epsilon: float) -> "DistDP":
        return clone(self).set_params(epsilon=epsilon)

    def _refuse(self, n: int, enough_points: int, enough: Callable[[float], bool]) -> None:
        raise ValueError(
            f"epsilon={self.epsilon} with n={n} points and rho={self.rho} is too little for any release to say where "
            f"points are: take n >= {enough_points}, epsilon >= {_least_epsilon(self.epsilon, enough):g}, or a "
            "smaller rho"
        )

    # As we would have it

    def _sound(self, curator: RhoBoundedCurator, generator) -> tuple[np.ndarray, np.ndarray]:
        """Weighted points by the best of four ways, chosen by public values."""
        n, d = curator.n_points, curator.n_features
        plan = self.plan(n, d, curator.max_shift)
        if plan.starved(n):
            enough = min(
                math.ceil(math.sqrt(2) / plan.mu), math.ceil((plan.deviation * SCALE / BOX) ** 2)
            )

            def says_something(epsilon):
                return not self._with_epsilon(epsilon).plan(n, d, curator.max_shift).starved(n)

            self._refuse(n, enough, says_something)
        ways = {
            "groups": self._by_groups,
            "grid": self._by_grid,
            "cells": self._by_cells,
            "tree": self._by_tree,
        }
        return ways[plan.way](curator, generator, plan)

    def plan(self, n_points: int, n_features: int, reach: float) -> "Plan":
        """What ``sound`` does for public values: see :class:`Plan`."""
        n, d, k = n_points, n_features, self.n_clusters
        mu = gaussian_mu(self.epsilon, self.resolved_delta(n))
        deviation = reach / (mu * math.sqrt(self.points_share))
        # The grid: half a side on average, and what the counts' noise moves a cluster of the domain's k equal parts.
        grid, intervals = math.inf, 0
        for m in range(1, MAX_INTERVALS + 1):
            nodes = (m + 1) ** d
            if nodes > MAX_NODES or d > MAX_COLUMNS:
                break
            noise = soft_sensitivity(d, 2 / m, reach) / mu
            error = math.hypot(
                2 / (m * math.sqrt(12)),
                CAUTION * noise * math.sqrt(k * nodes / 3) * k ** (-1 / d) / n,
            )
            if error < grid:
                grid, intervals = error, m
        # The tree: leaves of about twice the least size, taken for cubes that share the domain equally.
        share = mu * math.sqrt((1 - CENTRING) / 2)
        least = max(1.0, min(10 * math.sqrt(2 * d) / share, n / (2 * k)))
        leaves = max(1.0, n / (2 * least))
        depth = min(self.depth, math.ceil(math.log2(leaves)) + SPARE_LEVELS)
        errors = {"groups": deviation, "grid": grid, "tree": leaves ** (-1 / d) / math.sqrt(3)}
        # Adaptive cells: where a part of a cluster passes the threshold, and not in many columns.
        cells, _ = self._cells_noise(n)
        if d <= MAX_COLUMNS and 2 * k * cells.threshold <= n:
            errors["cells"] = FINE
        return Plan(errors, mu, deviation, intervals, share, depth)

    def _by_groups(self, curator, generator, plan: "Plan") -> tuple[np.ndarray, np.ndarray]:
        """Means of the true points of groups that noised points define; far and lonely points as they were released."""
        d = curator.n_features
        noised = np.clip(curator.noised_points(Gaussian(plan.deviation * SCALE)), -BOX, BOX)
        centers = self._crude_centers(curator, noised, generator, None)
        nearest, distance = nearest_of_many(noised, centers)
        far = distance > 2 * math.sqrt(d) * plan.deviation * SCALE
        sizes = np.bincount(nearest[~far], minlength=len(centers))
        # From this size on a group's mean carries less noise than the mean of its noised points.
        single = far | (sizes <= self.points_share / (1 - self.points_share))[nearest]
        groups = np.where(single, -1, nearest)
        noise = Gaussian(curator.max_shift * SCALE / (plan.mu * math.sqrt(1 - self.points_share)))
        sums = curator.group_sums(groups, len(centers), noise)
        sizes = np.bincount(groups[~single], minlength=len(centers))
        present = sizes > 0
        points = np.concatenate([sums[present] / sizes[present, None], noised[single]])
        return points, np.concatenate([sizes[present], np.ones(single.sum())])

    def _by_grid(self, curator, generator, plan: "Plan") -> tuple[np.ndarray, np.ndarray]:
        """Nodes of a public grid, weighted by soft counts, where these stand out from the noise on empty nodes."""
        d = curator.n_features
        deviation = soft_sensitivity(d, 2 / plan.intervals, curator.max_shift) / plan.mu
        weights = curator.soft_counts(plan.intervals, Gaussian(deviation * SCALE)).ravel() / SCALE
        kept = self._standing_out(weights, deviation)
        if not len(kept):
            return np.zeros((1, d)), np.ones(1)
        places = np.stack(np.unravel_index(kept, (plan.intervals + 1,) * d), axis=1)
        return (2 * places / plan.intervals - 1) * SCALE, weights[kept]

    def _standing_out(self, weights: np.ndarray, deviation: float) -> np.ndarray:
        """Indices of weights above what noise alone would reach, at least k of the positive ones if there are."""
        order = np.argsort(-weights, kind="stable")
        # What the largest of that many normal variates stays below.
        clear = int((weights >= deviation * math.sqrt(2 * math.log(max(len(weights), 2)))).sum())
        kept = order[: max(clear, self.n_clusters)]
        return kept[weights[kept] > 0]

    def _cells_noise(self, n: int) -> tuple[StabilityHistogram, float]:
        """Noise of the adaptive cells, and mu of their regions' sizes: each has half of mu^2."""
        delta = self.resolved_delta(n)
        mu = gaussian_mu(self.epsilon, (1 - HIDDEN) * delta) / math.sqrt(2)
        changes = 2 * self.quadtrees * self.finest
        return StabilityHistogram(math.sqrt(changes) / mu, HIDDEN * delta, changes), mu

    def _by_cells(self, curator, generator, plan: "Plan") -> tuple[np.ndarray, np.ndarray]:
        """Middles of the fullest cells of quadtrees on true points, weighted by how many points are nearest to each."""
        noise, mu = self._cells_noise(curator.n_points)
        shifts = generator.integers(0, WIDEST_SHIFT + 1, (self.quadtrees, curator.n_features))
        found = curator.cell_counts(shifts, range(1, self.finest + 1), noise)
        centers = np.clip(self._middles_of_fullest(found, shifts), -SCALE, SCALE)
        if not len(centers):
            centers = np.zeros((1, curator.n_features), np.int64)
        centers = np.unique(centers, axis=0)
        deviation = math.sqrt(2) / mu
        regions = curator.regions(centers, 2 * math.sqrt(curator.n_features))
        sizes = regions.counts(np.arange(len(centers)), Gaussian(deviation * SCALE))
        kept = self._standing_out(sizes, deviation)
        if not len(kept):
            return centers[:1].astype(np.float64), np.ones(1)
        return centers[kept].astype(np.float64), sizes[kept]

    def _by_tree(self, curator, generator, plan: "Plan") -> tuple[np.ndarray, np.ndarray]:
        """Leaves of one tree of hyperplanes on all points, with noise for a record that leaves and one that comes."""
        noise = Gaussian(curator.max_shift * SCALE / (plan.mu * math.sqrt(CENTRING)))
        mean = curator.total(noise) / curator.n_points
        about = np.clip(np.rint(mean), -SCALE, SCALE).astype(np.int64)[None]
        radius = (
            math.sqrt(((SCALE + np.abs(about)) ** 2).sum()) / SCALE
        )  # the farthest corner: nothing is clipped
        regions = curator.regions(about, radius)
        count_noise = Gaussian(SCALE * math.sqrt(2 * plan.depth) / plan.share)
        sizes = np.array([float(curator.n_points)])
        return grow(
            regions,
            np.zeros(1, np.int64),
            sizes,
            about,
            radius,
            plan.depth,
            count_noise,
            1 / plan.share,
            self.n_clusters,
            generator,
        )


@dataclass(frozen=True)
class Plan:
    """What ``sound`` does, worked out from rho, epsilon, delta, n, d and k alone.

    Attributes
    ----------
    errors : dict
        Rough error of a point's place per column, in half-widths, by way: ``groups`` of true points by noised points
        (the noise on these), ``grid`` of soft counts (its sides, and what the counts' noise adds to the center of an
        average cluster), ``cells`` of quadtrees on true points, which adapt to the data (a constant, where half a
        cluster passes their threshold), ``tree`` of hyperplanes (the size of its leaves).
    mu : float
        Of the whole run.
    deviation : float
        Of the noise on points, in half-widths.
    intervals : int
        Of the grid.
    share : float
        Of mu, for the tree's sums, and as much for its counts.
    depth : int
        Levels of the tree.
    """

    errors: dict[str, float]
    mu: float
    deviation: float
    intervals: int
    share: float
    depth: int

    @property
    def way(self) -> str:
        """The way with the smallest error."""
        return min(self.errors, key=self.errors.get)

    def starved(self, n_points: int) -> bool:
        """Whether noise hides both the mean of the noised points and a count of all points."""
        return _blind(self.deviation, n_points) and math.sqrt(2) / self.mu > n_points


def grow(
    regions: ClippedRegions,
    cells: np.ndarray,
    sizes: np.ndarray,
    centers: np.ndarray,
    radius: float,
    depth: int,
    count_noise: Gaussian | Laplace,
    multiplier: float,
    k: int,
    generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Split regions by random hyperplanes through their centers while cells are large; return what the leaves hold.

    The tree of LSH-Splits (:mod:`pkm.methods.lsh_splits`), grown for all regions at once.

    Parameters
    ----------
    regions : ClippedRegions
    cells : ndarray of shape (m,), int64
        ClippedRegions to split.
    sizes : ndarray of shape (m,), float64
        Their released sizes.
    centers : ndarray, int64
        Of all regions.
    radius : float
        In half-widths.
    depth : int
        Levels; the counts of all are paid for.
    count_noise : Gaussian or Laplace
    multiplier : float
        Noise of the sums per unit of their sensitivity.
    k : int
    generator : numpy.random.Generator
        Of public randomness.

    Returns
    -------
    points : ndarray of shape (leaves, d), float64
        In grid steps.
    weights : ndarray of shape (leaves,), float64
    """
    d = centers.shape[1]
    per_radius = multiplier * regions.sum_sensitivity / radius
    least = np.maximum(
        1.0, np.minimum(int(10 * math.sqrt(d) * per_radius), np.floor(sizes / (2 * k)))
    )
    region, cells, sizes = cells.copy(), cells.copy(), sizes.copy()
    leaves, unions = [], []  # (region, size) per leaf, and the cells that it is made of
    for normal in np.rint(generator.standard_normal((depth, d)) * DIRECTION_SCALE).astype(np.int64):
        large = sizes >= BRANCH * least
        leaves += zip(region[~large], sizes[~large], strict=True)
        unions += cells[~large, None].tolist()
        region, sizes, least = region[large], sizes[large], least[large]
        parts = regions.split(cells[large], normal)
        counts = regions.counts(parts.ravel(), count_noise).reshape(parts.shape)
        kept = counts >= least[:, None]
        # A cell of which neither part is large enough stays whole.
        whole = ~kept.any(axis=1)
        leaves += zip(region[whole], sizes[whole], strict=True)
        unions += parts[whole].tolist()
        row, _ = np.nonzero(kept)
        region, least, cells, sizes = region[row], least[row], parts[kept], counts[kept]
    leaves += zip(region, sizes, strict=True)
    unions += cells[:, None].tolist()
    owner = np.full(regions.n_cells, -1, np.int64)
    for leaf, union in enumerate(unions):
        owner[union] = leaf
    sums = regions.sums(owner, len(leaves), multiplier)
    weights = np.array([size for _, size in leaves], np.float64)
    means = sums / weights[:, None]
    length = np.sqrt((means * means).sum(axis=1, keepdims=True))
    means *= np.minimum(1.0, radius * SCALE / np.maximum(length, 1.0))
    return centers[np.array([region for region, _ in leaves], np.int64)] + means, weights


@dataclass(eq=False, repr=False)
class NoisedPoints(_Moving):
    """Cluster the noised points, on which the whole budget is spent: the paper's naive baseline ("random points").

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon, delta, rho, p, n_init, secure
        As for :class:`DistDP`.
    calibration : {"classical", "analytic"}, default="classical"
        The paper's formula, or the exact one.
    project : float or None, default=2.0
        Coordinates of noised points are moved into [-project, project], in half-widths, as Appendix E has it for those
        of the paper's own method; None leaves them where they are. Centers are moved into the domain.
    bounds, clip, random_state
        As for :class:`pkm.methods.base.PrivateKMeans`.
    """

    label: ClassVar[str] = "dist-DP random points"
    color: ClassVar[str] = "#7a7a7a"
    marker: ClassVar[str] = "X"
    claims: ClassVar[dict[str, PrivacyClaim]] = {
        "sound": PrivacyClaim("approximate", Adjacency.RHO_BOUNDED)
    }

    _: KW_ONLY
    project: float | None = BOX / SCALE

    def check_parameters(self, n_points=None):
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        if self.project is not None and not (
            is_number(self.project) and 0 < self.project < math.inf
        ):
            raise ValueError(
                f"project={self.project!r} must be None or a positive finite number, in half-widths"
            )
        _points_multiplier(self.calibration, self.epsilon, self.resolved_delta(n_points))

    def cluster(self, curator: RhoBoundedCurator) -> tuple[np.ndarray, int]:
        """Noise, project, cluster; see :meth:`PrivateKMeans.cluster`."""
        multiplier = _points_multiplier(
            self.calibration, self.epsilon, self.resolved_delta(curator.n_points)
        )
        noised = curator.noised_points(Gaussian(multiplier * curator.max_shift * SCALE)).astype(
            np.float64
        )
        if self.project is not None:
            noised = np.clip(noised, -self.project * SCALE, self.project * SCALE)
        generator = np.random.default_rng(child(curator.seeds[0], INITIALIZATION))
        centers = self._clustered(noised, np.ones(curator.n_points), int(generator.integers(2**32)))
        return np.clip(centers, -SCALE, SCALE), 1


def _points_multiplier(calibration: str, epsilon: float, delta: float) -> float:
    """Standard deviation of the noise on points per unit of rho."""
    exact = 1 / gaussian_mu(epsilon, delta)
    if calibration == "analytic":
        return exact
    classical = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    if classical < exact:
        raise ValueError(
            f"calibration='classical' gives too little noise for epsilon={epsilon:.4g}, for which it was not proved; "
            "take 'analytic'"
        )
    return classical


def _fine_noise(epsilon: float, delta: float, histograms: int) -> StabilityHistogram:
    """StabilityHistogram counts of histograms released together: two of each change, by one; half of delta is for hiding."""
    changes = 2 * histograms
    return StabilityHistogram(
        math.sqrt(changes) / gaussian_mu(epsilon, delta / 2), delta / 2, changes
    )


def _blind(deviation: float, n: int) -> bool:
    """Whether noise on points hides even the mean of all of them."""
    return deviation / math.sqrt(n) > BOX / SCALE


def _least_epsilon(epsilon: float, enough: Callable[[float], bool]) -> float:
    """Smallest epsilon from which on a public condition holds, within two percent, in three digits."""
    low, high = epsilon, 2 * epsilon
    while not enough(high):
        low, high = high, 2 * high
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    digits = 10.0 ** (2 - math.floor(math.log10(high)))
    return math.ceil(high * digits) / digits
