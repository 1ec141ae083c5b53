"""Weighted k-means on the cells of a private quadtree: counts of nested grids, pure.

A relative of EUGkM (Su et al. 2016) in the family of private spatial decompositions
(Cormode, Procopiuc, Srivastava, Shen and Yu 2012). The cells of all levels are counted;
a record lies in one cell of each. Coarse counts show which parts of the domain are
empty, and the finest cells of the others are clustered.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import Integer, Real
from pkm.methods.lloyd.noisy_steps import cluster_radii, shrunken_lloyd_step, step_noise
from pkm.methods.schedule import Schedule, plan_release
from pkm.methods.trees.far_leaves import cut_far_part, find_far_leaves
from pkm.methods.trees.leaves import Leaves, gather_leaves
from pkm.methods.trees.levels import (
    average_with_children,
    find_large_cells,
    nonnegative_cells,
)
from pkm.privacy import (
    MAX_CELLS,
    SCALE,
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

# Levels are counted from the balanced one, log2 of (n epsilon)^(2 / (d + 2)). There the
# noise of a cluster's cells moves its center as far as rounding to cells does. Records
# that fill a small part of the domain lie in few cells, whose counts exceed the noise
# on finer levels, too. docs/studies/synopsis.md has what each constant earns.

FINEST_LEVEL = 1.0
# Ratio of the shares of epsilon of a level and the one before it, up to the balanced
# level; finer ones have its share.
GROWTH = 1.4
# Cells with fewer records than this, in standard deviations of their noise, are left
# out, but at most this share of all records.
MIN_COUNT = 0.5
MAX_LEFT_OUT = 0.2
STEP_SNR = 400.0  # from this n epsilon / k on there is a Lloyd step


@dataclass(frozen=True)
class TreeSchedule(Schedule):
    """Counts of all levels of a tree, and a Lloyd step.

    Attributes
    ----------
    intervals : tuple of int
        Number of intervals per feature, of each level.
    epsilons : tuple of float
        Cost of the counts of each level.
    step_epsilon : float
        Cost of the Lloyd step; 0 for none.
    """

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
        return [*counts, step] if self.step_epsilon > 0 else counts


class QuadtreeKMeans(PrivateKMeans):
    """Weighted k-means on the leaves of a private quadtree, and one Lloyd step.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Pure, zero-out adjacency: a record changes one count of each level, and one sum
        and count of the step.
    step_share : float, default=0.25
        Share of epsilon for the Lloyd step, in [0, 1); 0 for no step. The step is made
        where n epsilon / k >= 400.
    n_init : int, default=10
        Starts of the k-means on the leaves; they cost no privacy.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    SynopsisKMeans : This method up to three features, and hashing beyond.
    EUGkM : A single grid, as published.
    KaplanStemmer : For more features; needs a delta.

    Notes
    -----
    For up to about four features; a grid of two intervals in each feature must have at
    most 2**22 cells. Reconstructed from the cited ideas; the constants are of this
    project.

    References
    ----------
    Cormode, G., Procopiuc, C., Srivastava, D., Shen, E. and Yu, T. (2012).
    Differentially private spatial decompositions. ICDE, 20-31.

    Hay, M., Rastogi, V., Miklau, G. and Suciu, D. (2010). Boosting the accuracy of
    differentially private histograms through consistency. VLDB, 1021-1032, section 4.

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
        "step_share": Real(0, 1, "[)"),
        "n_init": Integer(1),
    }
    supports_chunks = True
    compresses_tails = True
    batched = False  # millions of cells for one replicate at a time

    epsilon: float = 1.0
    step_share: float = 0.25
    n_init: int = 10

    def check_features(self, n_features: int) -> None:
        """Refuse more features than a quadtree serves."""
        if n_features > MAX_FEATURES:
            raise ValueError(
                f"d={n_features} features are too many: two intervals in each make "
                f"more than {MAX_CELLS} cells, so that at most {MAX_FEATURES} are "
                "served; take a method for more features, such as KaplanStemmer"
            )

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> TreeSchedule:
        """All releases; see :meth:`PrivateKMeans.schedule`.

        Level j, from 1, has ``2**j`` intervals per feature, and at most ``MAX_CELLS``
        cells.

        Examples
        --------
        >>> schedule = QuadtreeKMeans(5).schedule(100, 2)
        >>> schedule.intervals, schedule.step_epsilon
        ((2, 4, 8, 16), 0.0)
        """
        d = n_features
        snr = n_points * self.epsilon / self.n_clusters
        step_epsilon = self.step_share * self.epsilon if snr >= STEP_SNR else 0.0
        tree_epsilon = self.epsilon - step_epsilon

        # Number of levels, counted from the balanced one.
        balanced = 2 / (d + 2) * math.log2(max(n_points * tree_epsilon, 1.0))
        n_levels = max(round(balanced + FINEST_LEVEL), MIN_LEVELS)
        n_levels = min(n_levels, MAX_LEVELS, MAX_FEATURES // d)

        # Shares of epsilon: geometric up to the balanced level, then even.
        levels = np.arange(1, n_levels + 1) - balanced
        weights = GROWTH ** np.minimum(levels, 0.0)
        epsilons = tree_epsilon * weights / weights.sum()
        intervals = tuple(2**level for level in range(1, n_levels + 1))
        return TreeSchedule(intervals, tuple(epsilons.tolist()), step_epsilon)

    def cluster(
        self,
        curator: Curator,
        find_k: Callable[[Leaves], int] | None = None,
    ) -> tuple[np.ndarray, int, Leaves]:
        """Release the tree, cluster its leaves, make a step.

        See :meth:`PrivateKMeans.cluster`. The returned leaves are on a linear scale.
        ``find_k`` chooses the number of clusters from them, in place of
        ``n_clusters``.
        """
        schedule = self.schedule(curator.n_points, curator.n_features)

        # Count the cells of all levels, in records: a release for each level.
        epsilons = np.array(schedule.epsilons)
        noises = [{"counts": Laplace(SCALE / epsilon)} for epsilon in epsilons]
        grids = map(GridCounts, schedule.intervals)
        answers = curator.release_all(list(zip(grids, noises, strict=True)))
        counts = [answer["counts"][0] / SCALE for answer in answers]

        # Find the leaves, and cluster their weighted midpoints on a linear scale.
        scale = curator.scale
        total = float(curator.n_points)
        deviations = np.sqrt(average_with_children(counts, 2 / epsilons**2))
        positions, weights = nonnegative_cells(counts, total)
        min_count = MIN_COUNT * deviations[-1]
        is_large = find_large_cells(weights, min_count, MAX_LEFT_OUT)
        finest = schedule.intervals[-1], positions[is_large], weights[is_large]
        leaves = cut_far_part(gather_leaves([finest]), scale)
        far = find_far_leaves(counts, deviations, scale)
        leaves = leaves.append(far).or_domain(total)
        linear = leaves.expand(scale)
        k = self.n_clusters if find_k is None else find_k(linear)
        centers = linear.cluster(k, self.n_init, curator.public_rng())
        centers = snap_centers(scale.compress(centers / SCALE) * SCALE)
        if schedule.step_epsilon == 0:
            return centers[None], 1, linear
        d = curator.n_features
        noise = step_noise(d, schedule.step_epsilon)
        radii = cluster_radii(leaves.midpoints, leaves.weights, centers, leaves.spread)
        return shrunken_lloyd_step(curator, centers, radii, noise)[None], 2, linear
