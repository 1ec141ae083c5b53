"""k-means and k-median under distance-based privacy (Epasto et al. 2023).

Neighbors differ in one record, moved by at most rho. Every point is released with noise
in proportion to rho. Crude centers (the paper's bicriteria approximation F) are centers
of cells of shifted quadtrees. Points far from all of them remain as released; the
others are summarized by a semi-coreset for each region. See docs/distance-based.md for
what the paper leaves open.

Here are Algorithms 1 and 2 with the constants of Appendix E. Each third of their budget
is for one step: the noised points, the fine cells of quadtrees, and the regions with
their semi-coresets. Units: radii and the noise on points are in half-widths, released
points in grid steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from pkm.methods.constraints import AUTO, Integer, OneOf, Real
from pkm.methods.distance.rho_bounded import CLAIM
from pkm.methods.distance.sound import SoundDistDP, sufficient_points
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
from pkm.methods.hashing.lsh_splits import COUNTS_TO_SUM
from pkm.methods.schedule import Schedule, counting_noise, plan_release
from pkm.privacy import (
    SCALE,
    Charge,
    Gaussian,
    Laplace,
    PrivacyClaim,
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
from pkm.privacy.queries.moved_records import QuadtreeCounts
from pkm.privacy.rho_bounded import RhoBoundedCurator


@dataclass(frozen=True)
class PublishedSchedule(Schedule):
    """Releases and public constants of a run of the published variant.

    Attributes
    ----------
    n_sufficient : int
        Smallest number of points at which noise does not hide all releases.
    far_distance : float
        The paper's rho S, in half-widths: a noised point is far if its distance to all
        crude centers is larger.
    radius : float
        Radius of a region's ball, in half-widths.
    min_size : float
        The paper's T, the smallest region of noised points; 0 for other regions.
    """

    _releases: Sequence[Charge]
    n_sufficient: int
    far_distance: float
    radius: float
    min_size: float


class DistDP(SoundDistDP):
    """k-means or k-median under distance-based privacy: records may move by rho.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Total, for neighbors that differ by the move of one point by at most rho.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6, the paper's.
    rho : float or "diagonal", default=0.05
        In half-widths of the domain, at most its diagonal 2 sqrt(d). ``diagonal`` is
        that value, at which the replacement of a record is protected. It is a matter of
        policy, never taken from data.
    p : {2, 1}, default=2
        k-means or k-median.
    variant : {"published", "sound"}, default="sound"
        ``published`` is Algorithms 1 and 2 with the constants of Appendix E, each step
        with a third of the budget. ``sound`` groups true points by their released
        positions, so that a move changes one sum by rho and nothing else. If the noise
        on points is too large for that, it releases other counts: nodes of a grid,
        cells of quadtrees, or a tree of hyperplanes. The choice is public
        (:class:`pkm.methods.distance.sound.SoundSchedule`).
    calibration : {"classical", "analytic"}, default="classical"
        ``published``: noise on the points by the paper's formula, or by the exact
        calibration of the Gaussian mechanism (a quarter less noise).
    regions : {"true", "noised"}, default="true"
        ``published``: a point belongs to the crude center nearest to its true position
        (Appendix E), or to its noised position (Algorithm 1). Sizes are private or
        public accordingly.
    ball : {"capped", "printed"} or float, default="capped"
        ``published``: radius of a region's ball. ``capped``: min(rho S, sqrt(d)).
        ``printed``: min(S, sqrt(d)) rho, as in Appendix E. A number: in half-widths.
    replacement : {"charged", "uncharged"}, default="charged"
        ``published``: semi-coresets with noise for the replacement of a record; or for
        its addition or removal, as in the paper's library (flaw F-17).
    least_region : float or "auto", default="auto"
        ``published`` with ``regions="noised"``: smaller regions keep their noised
        points. ``auto`` is the paper's T with constant 1: (k ln(n)^2 ln(1/delta) + k
        sqrt(d ln(1/delta))) / epsilon.
    sizes : {"thresholded", "noisy"}, default="thresholded"
        ``published`` with ``regions="true"``: sizes of regions are released above a
        threshold, or for all regions, because their centers are public. Regions whose
        size is at most 0 are dropped.
    size_share : float, default=0.5
        ``published`` with ``regions="true"``: share, in (0, 1), of the last third of
        the budget for the sizes. The rest is for the semi-coresets.
    fine_counts : {"joint", "split"}, default="joint"
        ``published``: all histograms of fine cells as one release, or each at an even
        share of their third of the budget.
    coreset_clusters : int or "auto", default="auto"
        ``published``: number of clusters that sets the smallest cells of the
        semi-coresets' trees; ``auto`` is k.
    quadtrees : int, default=5
        Number of quadtrees with random shifts, from 1 to 64.
    coarse, finest : int, default=5 and 10
        The paper's L1 and L2. Levels 0 .. coarse are counted on noised points, levels
        coarse + 1 .. finest on true points (``published``) or on noised points too
        (``sound``). Level l has cells of side 8 / 2^l half-widths. ``finest`` is at
        most 18 and above ``coarse``.
    cells : int or "auto", default="auto"
        Number of cells with the largest counts, of each level of each tree, whose
        centers are crude centers; ``auto`` is 4 k.
    depth : int, default=20
        Maximum number of levels of a tree of hyperplanes, from 1 to 60.
    points_share : float, default=0.9
        ``sound``: share of mu^2, in (0, 1), for the noised points; the rest goes to the
        sums.
    n_init : int, default=1
        Starts of the final clustering; they cost no privacy.
    bounds, clip, random_state, secure, missing
        As for :class:`pkm.methods.PrivateKMeans`.
    zoom, require_zoom, report, adjacency
        For methods under zero-out adjacency: leave them out.

    See Also
    --------
    NoisedPoints : The paper's baseline: noised points, and no other release.
    KMedian : The reference without privacy, for ``p=1``.
    SynopsisKMeans : Protects the presence of a record, not moves by rho.

    References
    ----------
    Epasto, A., Mirrokni, V., Narayanan, S. and Zhong, P. (2023). k-means clustering
    with distance-based privacy. NeurIPS.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.25], [0.5, 0.5]], 5000, axis=0)
    >>> model = DistDP(n_clusters=2, rho=0.01, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "dist-DP"
    color = "#e69f00"
    marker = "o"
    claims = {"published": CLAIM, "sound": CLAIM}
    constraints = {
        "regions": OneOf("true", "noised"),
        "ball": Real(0) | OneOf("capped", "printed"),
        "replacement": OneOf("charged", "uncharged"),
        "least_region": AUTO | Real(0),
        "sizes": OneOf("thresholded", "noisy"),
        "size_share": Real(0, 1),
        "fine_counts": OneOf("joint", "split"),
        "coreset_clusters": AUTO | Integer(1),
        "coarse": Integer(0, 17),
    }

    variant: str = "sound"
    regions: str = "true"
    ball: float | Literal["capped", "printed"] = "capped"
    replacement: str = "charged"
    least_region: float | Literal["auto"] = "auto"
    sizes: str = "thresholded"
    size_share: float = 0.5
    fine_counts: str = "joint"
    coreset_clusters: int | Literal["auto"] = "auto"
    coarse: int = 5

    @property
    def claim(self) -> PrivacyClaim:
        """The claim of the variant, with its flaw for ``replacement="uncharged"``."""
        if self.variant == "published" and self.replacement == "uncharged":
            return replace(CLAIM, flaws=("F-17",))
        return CLAIM

    def check_parameters(self, n_points: int | None = None) -> None:
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        if not self.coarse < self.finest:
            raise ValueError(f"finest={self.finest} must be above coarse={self.coarse}")
        if self.variant == "published":
            # Epsilon and delta depend neither on n nor on d.
            self._plan_points(*self._third_of_budget(1))

    def cluster(self, curator: RhoBoundedCurator) -> tuple[np.ndarray, int]:
        """Release and cluster points; see :meth:`PrivateKMeans.cluster`."""
        is_published = self.variant == "published"
        release = self._release_coreset if is_published else self._release_sound_coreset
        generator = curator.public_rng()
        points, weights = release(curator, generator)
        return self._cluster_released(points, weights, generator), 1

    def _third_of_budget(self, n_points: int) -> tuple[float, float]:
        """Return epsilon and delta of each of the three steps of ``published``."""
        third = self.budget(n_points, 1).split([1, 1, 1])[0]
        return third.epsilon, third.delta

    def choose_schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Any:
        """All releases of the variant, even where noise hides them.

        Returns
        -------
        PublishedSchedule or SoundSchedule
        """
        if self.variant == "sound":
            return super().choose_schedule(n_points, n_features)
        n = n_points
        d = n_features
        max_shift = self.max_shift(d)
        delta = self.resolved_delta(n)
        third_epsilon, third_delta = self._third_of_budget(n)

        # The paper's S (Appendix E) times rho. It affects utility alone, not privacy.
        log = math.log(1.25 / (delta / 6))
        far_distance = math.sqrt(2 * log * d) / (self.epsilon / 6) * max_shift
        if self.ball == "capped":
            radius = min(far_distance, math.sqrt(d))
        elif self.ball == "printed":
            radius = min(far_distance, math.sqrt(d) * max_shift)
        else:
            radius = float(self.ball)

        # The first two thirds of the budget: noised points, and fine cells.
        points = self._plan_points(third_epsilon, third_delta)
        n_cells = 1
        if self.fine_counts == "split":
            n_cells = self.quadtrees * (self.finest - self.coarse)
        cells = _plan_threshold(
            QuadtreeCounts, third_epsilon / n_cells, third_delta / n_cells
        )

        # The last third: sizes, where they are private, and semi-coresets.
        share = 0.0
        sizes = []
        min_size = 0.0
        if self.regions == "true":
            share = self.size_share
            size_epsilon = third_epsilon * share
            size_delta = third_delta * share
            if self.sizes == "thresholded":
                size = _plan_threshold(RegionSizes, size_epsilon, size_delta)
                visible_size = threshold_noise(size, 2).threshold
            else:
                mu = gaussian_mu(size_epsilon, size_delta)
                size = plan_release(RegionSizes, Gaussian, mu=mu)
                visible_size = math.sqrt(2) / mu
            sizes = [size]
        elif self.least_region == "auto":
            # The paper's T with constant 1.
            log = math.log(1 / delta)
            for_clusters = self.n_clusters * math.log(n) ** 2 * log
            for_features = self.n_clusters * math.sqrt(d * log)
            visible_size = min_size = (for_clusters + for_features) / self.epsilon
        else:
            visible_size = min_size = float(self.least_region)
        trees = self._plan_trees(
            radius, d, third_epsilon * (1 - share), third_delta * (1 - share)
        )
        return PublishedSchedule(
            [points, *[cells] * n_cells, *sizes, *trees],
            sufficient_points(max_shift / points.mu, visible_size),
            far_distance,
            radius,
            min_size,
        )

    def _plan_trees(
        self,
        radius: float,
        d: int,
        epsilon: float,
        delta: float,
    ) -> list[Charge]:
        """Plan the trees: the largest multiple of the library's shares."""
        # A record is in depth + 1 counts. A replacement changes two records, unless
        # only one is charged.
        both = self.replacement == "charged"
        sensitivity = 1.0
        if both:
            sums = two_sums_sensitivity(radius, self.max_shift(d), d)
            sensitivity = sums / radius
        n_counts = (self.depth + 1) * (1 + both)
        shares = [1 / COUNTS_TO_SUM] * n_counts
        multiple = largest_multiple([sensitivity], shares, epsilon, delta)
        count = plan_release(RegionCounts, Laplace, epsilon=multiple / COUNTS_TO_SUM)
        second = replace(count, label=f"{count.label}_second_record")
        sums = plan_release(RegionSums, Gaussian, mu=multiple * sensitivity)
        return [*[count, *[second] * both] * (self.depth + 1), sums]

    # Algorithm 1: regions and their semi-coresets

    def _release_coreset(
        self,
        curator: RhoBoundedCurator,
        generator: Generator,
    ) -> WeightedPoints:
        """Release the points of Algorithm 1, in grid steps, and their weights."""
        schedule = self.schedule(curator.n_points, curator.n_features)

        # Line 6: release all points with noise.
        noised = release_clipped_points(curator, schedule.releases[0])

        # F, by Algorithm 2: crude centers from the fullest cells of shifted quadtrees.
        centers = self._release_crude_centers(curator, noised, generator, schedule)

        # Lines 7-10 and 13-14: points far from all centers, and points of small groups,
        # remain as released.
        groups = group_points(noised, centers, schedule.far_distance, schedule.min_size)
        is_grouped = groups >= 0

        # Line 12: the regions of the others, by the center nearest to the noised point;
        # or, with private sizes, by the one nearest to the true point (Appendix E).
        by_true = self.regions == "true"
        assignment = {"members": is_grouped} if by_true else {"groups": groups}
        both = self.replacement == "charged"
        regions = curator.regions(
            centers, schedule.radius, charge_both=both, **assignment
        )
        if by_true:
            roots = _release_positive_regions(regions, schedule)
        else:
            roots = np.unique(groups[is_grouped])

        # Line 16: the semi-coreset of each region, the leaves of the library's tree.
        noise = counting_noise(schedule.find(RegionCounts)[0])
        counts = regions.release(RegionCounts(roots), counts=noise)["counts"]
        n_clusters = self.coreset_clusters
        if n_clusters == "auto":
            n_clusters = self.n_clusters
        leaves, sizes = grow_trees(
            regions,
            centers,
            schedule.radius,
            roots,
            np.maximum(counts / SCALE, 1.0),
            generator,
            n_clusters=n_clusters,
            depth=self.depth,
            count_noise=noise,
            sum_noise=Gaussian(1 / schedule.find(RegionSums)[0].mu),
        )

        # Line 17: the union with the points without a region. If it is empty, all
        # noised points, which are released in any case.
        points, weights = append_ungrouped(leaves, sizes, noised, groups)
        if not len(points):
            return noised.astype(np.float64), np.ones(len(noised))
        return points, weights

    # Algorithm 2: crude centers

    def _release_crude_centers(
        self,
        curator: RhoBoundedCurator,
        noised: np.ndarray,
        generator: Generator,
        schedule: PublishedSchedule,
    ) -> np.ndarray:
        """Release crude centers (m, d), int64: fullest cells of shifted quadtrees."""
        # Lines 8-13: random shifts; coarse cells are counted on noised points.
        shifts = draw_shifts(generator, self.quadtrees, curator.n_features)
        centers = [find_fullest_cells(noised, shifts, self.coarse, self.n_fullest)]

        # Lines 14-18: fine cells are counted on true points, above a threshold: one
        # release for all trees and levels, or one for each of them.
        levels = range(self.coarse + 1, self.finest + 1)
        queries = [QuadtreeCounts(shifts, levels)]
        if self.fine_counts == "split":
            queries = [
                QuadtreeCounts(shift[None], range(level, level + 1))
                for shift in shifts
                for level in levels
            ]
        for query, release in zip(queries, schedule.find(QuadtreeCounts), strict=True):
            cells = release_fullest_cells(curator, query, release, self.n_fullest)
            centers.append(cells)
        return np.unique(np.concatenate(centers), axis=0)


def _release_positive_regions(
    regions: ClippedRegions,
    schedule: PublishedSchedule,
) -> np.ndarray:
    """Release the sizes of regions; return those whose size is above zero."""
    # A move changes two sizes, by 1 each.
    (release,) = schedule.find(RegionSizes)
    if release.delta:
        noise = threshold_noise(release, 2)
        large = regions.release(LargeRegions(), counts=noise)["counts"]
        return large.cells[large.counts > 0]
    noise = Gaussian(math.sqrt(2) / release.mu * SCALE)
    counts = regions.release(RegionSizes(), counts=noise)["counts"]
    return np.flatnonzero(counts > 0)


def _plan_threshold(
    query: type[Query],
    epsilon: float,
    delta: float,
) -> Charge:
    """Plan a release of counts above a threshold, which has half of delta."""
    mu = gaussian_mu(epsilon, delta / 2)
    return plan_release(query, StabilityHistogram, mu=mu, delta=delta / 2)
