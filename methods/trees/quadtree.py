"""Weighted k-means on the leaves of a private quadtree: counts of nested grids, pure.

An adaptive relative of EUGkM (Su et al. 2016) in the family of private spatial
decompositions (Cormode, Procopiuc, Srivastava, Shen and Yu 2012; Zhang, Xiao and Xie
2016): cells are small where records are dense, and large elsewhere. The cells of all
levels are counted, because a record lies in one cell of each. The noisy counts decide
which cells are split and which are leaves.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import Integer, Real
from pkm.methods.lloyd.noisy_steps import cluster_radii, shrunken_lloyd_step, step_noise
from pkm.methods.schedule import Schedule, plan_release
from pkm.methods.trees.eugkm import grid_intervals
from pkm.methods.trees.far_leaves import cut_far_part, find_far_leaves
from pkm.methods.trees.leaves import Leaves, gather_leaves
from pkm.methods.trees.levels import consistent_levels, repeat_for_children
from pkm.privacy import (
    MAX_CELLS,
    SCALE,
    Budget,
    Charge,
    Curator,
    GridCounts,
    Laplace,
    PrivacyClaim,
    SumsAndCounts,
    snap_centers,
)

MAX_FEATURES = int(math.log2(MAX_CELLS))  # a grid has at least two intervals in each
MIN_LEVELS = 2
MAX_LEVELS = 9

# Chosen on generated sets and on s1, at the first freeze of docs/studies/synopsis.md.
# Smallest count of a cell that is split: in standard deviations of its children's sum.
SPLIT_FACTOR = 0.7
# Smallest count of a leaf above the finest level: in standard deviations of a count.
MIN_LEAF_FACTOR = 1.0
# Signal-to-noise ratio n epsilon / k: the mean count of a cluster over the scale of
# Laplace noise. Below the first there is one grid, below the second no Lloyd step.
TREE_SNR = 70.0
STEP_SNR = 400


def select_leaves(
    counts: list[np.ndarray],
    thresholds: np.ndarray,
    smallest: np.ndarray,
    total: float,
) -> Leaves:
    """Select the leaves of a tree whose cells are split above a threshold.

    Parameters
    ----------
    counts : list of ndarray, float64
        Consistent, of each level.
    thresholds : ndarray of shape (levels - 1,)
        A cell is split if its count exceeds the level's threshold and its parent is
        split. Its children that are not split are leaves, and so are the cells of the
        finest level.
    smallest : ndarray of shape (levels,)
        Leaves of a level with at most this count are left out.
    total : float
        The public number of records.

    Returns
    -------
    Leaves
        In order of decreasing weight, until the weights sum to the total. One leaf, the
        domain, if none has a positive weight.
    """
    grids = []
    is_reached = np.ones(counts[0].shape, bool)
    for level, level_counts in enumerate(counts):
        # The children of split cells; those that are not split are leaves.
        if level:
            is_reached = repeat_for_children(is_reached)
        is_leaf = is_reached
        if level < len(counts) - 1:
            is_split = is_reached & (level_counts > thresholds[level])
            is_leaf = is_reached & ~is_split
            is_reached = is_split
        positions = np.argwhere(is_leaf & (level_counts > smallest[level]))
        weights = level_counts[tuple(positions.T)]
        grids.append((len(level_counts), positions, weights))

    # Keep the heaviest leaves, up to the number of records; the others are noise.
    leaves = gather_leaves(grids).or_domain(total)
    order = np.argsort(-leaves.weights, kind="stable")
    cumulated = np.cumsum(leaves.weights[order])
    n_kept = np.searchsorted(cumulated, total) + 1
    return leaves.take(order[:n_kept])


def consistent_leaves(
    counts: list[np.ndarray],
    deviations: np.ndarray,
    total: float,
) -> Leaves:
    """Make the counts consistent, and select leaves; see :class:`TreeParameters`."""
    consistent_levels(counts, deviations**2, total)

    # Split a cell if its count exceeds the noise of the sum of its children.
    n_children = 2 ** counts[0].ndim
    thresholds = SPLIT_FACTOR * math.sqrt(n_children) * deviations[1:]

    # Drop large leaves of few records: they move centers into space that may be empty.
    smallest = MIN_LEAF_FACTOR * deviations
    smallest[-1] = 0.0
    return select_leaves(counts, thresholds, smallest, total)


@dataclass(frozen=True)
class TreeParameters:
    """Levels of a tree, their shares of epsilon, and how its leaves are found.

    Levels are counted from the balanced level, log2 of (n epsilon)^(2 / (d + 2)). There
    rounding to cells and noise make equal errors if records are uniform on the domain.

    Attributes
    ----------
    growth : float
        Ratio of the shares of a level and the one before it, up to ``peak_level``.
    peak_level : float
        The level with the largest share.
    decay : float
        Ratio of the shares of a level and the one before it, beyond ``peak_level``.
    finest_level : float
    min_snr : float
        Smallest n epsilon / k of a tree; below it there is one grid.
    find_leaves : callable
        From the released counts of all levels (overwritten), the standard deviation of
        a count of each, and the number of records, to the leaves.
    postprocess : callable, optional
        From centers (k, d), int64, and leaves to the centers that are released, where
        no Lloyd step is made. Default: unchanged centers.
    """

    growth: float
    peak_level: float
    decay: float
    finest_level: float
    min_snr: float = TREE_SNR
    find_leaves: Callable[[list[np.ndarray], np.ndarray, float], Leaves] = (
        consistent_leaves
    )
    postprocess: Callable[[np.ndarray, Leaves], np.ndarray] | None = None


#: Levels up to the balanced one, which has the largest share.
BALANCED = TreeParameters(
    growth=2 ** (1 / 6),
    peak_level=0.0,
    decay=2 ** (1 / 6),
    finest_level=0.0,
)


@dataclass(frozen=True)
class TreeSchedule(Schedule):
    """Counts of all levels of a tree, and a Lloyd step.

    Attributes
    ----------
    tree : TreeParameters
    intervals : tuple of int
        Number of intervals per feature, of each level.
    epsilons : tuple of float
        Cost of the counts of each level.
    step_epsilon : float
        Cost of the Lloyd step; 0 for none.
    """

    tree: TreeParameters
    intervals: tuple[int, ...]
    epsilons: tuple[float, ...]
    step_epsilon: float = 0.0

    @property
    def releases(self) -> Sequence[Charge]:
        """Counts level by level, then the step, if there is one."""
        counts = [
            plan_release(GridCounts, Laplace, epsilon=epsilon)
            for epsilon in self.epsilons
        ]
        step = plan_release(SumsAndCounts, Laplace, epsilon=self.step_epsilon)
        return counts + [step] * (self.step_epsilon > 0)


class QuadtreeKMeans(PrivateKMeans):
    """Weighted k-means on the leaves of a private quadtree, and one Lloyd step.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Pure, zero-out adjacency: a record changes one count of each level, and one sum
        and count of the step.
    step_share : float, default=0.25
        Share of epsilon for the Lloyd step; 0 for no step. The step is made where
        n epsilon / k >= 400.
    n_init : int, default=10
        Starts of the k-means on the leaves; they cost no privacy.
    bounds, clip, random_state, secure
        As for :class:`pkm.methods.PrivateKMeans`.

    Notes
    -----
    For up to about four features; a grid of two intervals in each feature must have at
    most 2**22 cells. Reconstructed from the cited ideas; the constants are of this
    project.

    References
    ----------
    Cormode, G., Procopiuc, C., Srivastava, D., Shen, E. and Yu, T. (2012).
    Differentially private spatial decompositions. ICDE, 20-31.

    Zhang, J., Xiao, X. and Xie, X. (2016). PrivTree: a differentially private algorithm
    for hierarchical decompositions. SIGMOD, 155-170.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 5000, axis=0)
    >>> model = QuadtreeKMeans(n_clusters=2, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "quadtree"
    color = "#1b7837"
    marker = "s"
    claims = {"sound": PrivacyClaim("pure")}
    constraints = {
        **PrivateKMeans.constraints,
        "step_share": Real(0, 1, "[)"),
        "n_init": Integer(1),
    }
    supports_chunks = True
    compresses_tails = True
    batched = False  # millions of cells for one replicate at a time

    epsilon: float = 1.0
    step_share: float = 0.25
    n_init: int = 10

    def budget(
        self,
        n_points: int,
        n_features: int,
    ) -> Budget | None:
        """Budget of one run; refuses more features than a quadtree serves."""
        if n_features > MAX_FEATURES:
            raise ValueError(
                f"d={n_features} features are too many: two intervals in each make "
                f"more than {MAX_CELLS} cells, so that at most {MAX_FEATURES} are "
                "served; take a method for more features, such as KaplanStemmer"
            )
        return super().budget(n_points, n_features)

    def schedule(
        self,
        n_points: int,
        n_features: int,
        tree: TreeParameters = BALANCED,
    ) -> TreeSchedule:
        """All releases; see :meth:`PrivateKMeans.schedule`.

        Level j, from 1, has ``2**j`` intervals per feature, and at most ``MAX_CELLS``
        cells. Where n epsilon / k is below ``min_snr`` there is one level, the grid of
        :func:`pkm.methods.trees.eugkm.grid_intervals`, and no step.

        Examples
        --------
        >>> QuadtreeKMeans(1).schedule(100, 2).intervals
        (2, 4, 8)
        >>> schedule = QuadtreeKMeans(5).schedule(100, 2)
        >>> schedule.intervals, schedule.epsilons, schedule.step_epsilon
        ((8,), (1.0,), 0.0)
        """
        k = self.n_clusters
        d = n_features
        epsilon = self.epsilon
        # Too little signal for a tree: one grid with the whole budget.
        snr = n_points * epsilon / k
        if snr < tree.min_snr:
            intervals = grid_intervals(n_points, d, k, epsilon, "balanced", MAX_CELLS)
            return TreeSchedule(tree, (intervals,), (epsilon,))

        # Number of levels, counted from the balanced one.
        step_epsilon = self.step_share * epsilon if snr >= STEP_SNR else 0.0
        tree_epsilon = epsilon - step_epsilon
        tree_records = max(n_points * tree_epsilon, 1.0)
        balanced = 2 / (d + 2) * math.log2(tree_records)
        most = min(MAX_LEVELS, MAX_FEATURES // d)
        n_levels = max(round(balanced + tree.finest_level), MIN_LEVELS)
        n_levels = min(n_levels, most)

        # Shares of epsilon: geometric up to the peak level, and beyond it.
        levels = np.arange(1, n_levels + 1) - (balanced + tree.peak_level)
        weights = np.where(levels <= 0, tree.growth**levels, tree.decay**levels)
        epsilons = tree_epsilon * weights / weights.sum()
        intervals = tuple(2**level for level in range(1, n_levels + 1))
        return TreeSchedule(tree, intervals, tuple(epsilons.tolist()), step_epsilon)

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run the schedule; see :meth:`PrivateKMeans.cluster`."""
        schedule = self.schedule(curator.n_points, curator.n_features)
        return self.run(curator, schedule)

    def run(self, curator: Curator, schedule: TreeSchedule) -> tuple[np.ndarray, int]:
        """Release the tree, cluster its leaves, make a step."""
        # Count the cells of all levels, in records: a release for each level.
        counts = []
        epsilons = np.array(schedule.epsilons)
        for intervals, epsilon in zip(schedule.intervals, epsilons, strict=True):
            query = GridCounts(intervals)
            answer = curator.release(query, counts=Laplace(SCALE / epsilon))
            counts.append(answer["counts"][0] / SCALE)

        # Find the leaves, and cluster their weighted midpoints on a linear scale.
        tree = schedule.tree
        scale = curator.scale
        total = float(curator.n_points)
        deviations = math.sqrt(2) / epsilons
        far = find_far_leaves(counts, deviations, scale)
        leaves = cut_far_part(tree.find_leaves(counts, deviations, total), scale)
        leaves = leaves.append(far).or_domain(total)
        linear = leaves.expand(scale)
        centers = linear.cluster(self.n_clusters, self.n_init, curator.public_rng())

        # Make a Lloyd step; without one the centers are only post-processed.
        has_step = schedule.step_epsilon > 0
        if not has_step and tree.postprocess is not None:
            centers = tree.postprocess(centers, linear)
        centers = snap_centers(scale.compress(centers / SCALE) * SCALE)
        if not has_step:
            return centers[None], 1
        d = curator.n_features
        noise = step_noise(d, schedule.step_epsilon)
        within_cell = d * leaves.sides**2 / 12  # variance of a uniform point
        radii = cluster_radii(
            leaves.midpoints, leaves.weights, centers, within_cell, noise[0]
        )
        return shrunken_lloyd_step(curator, centers, radii, noise)[None], 2
