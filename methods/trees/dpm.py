"""DPM: clusters by splitting the data through sparse regions (Liebenow et al., "DPM").

The domain is split recursively at the centers of intervals, chosen by a score that
favors empty intervals near the median. A split is accepted if both children have enough
points. The noisy means of the remaining cells are the centers, whose number follows
from the data. Algorithms, lines and definitions are those of the paper.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import AUTO, FLAG, Integer, Real
from pkm.methods.deltas import inverse_n_root_n
from pkm.methods.schedule import Schedule, counting_noise, plan_release
from pkm.methods.trees.splitting import Node, count_children, count_root, find_origin
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import (
    SCALE,
    BoxGrid,
    CellCounts,
    CellSums,
    Curator,
    Exponential,
    GapPercentile,
    Gaussian,
    Laplace,
    PartitionTree,
    Percentile,
    PrivacyClaim,
    Splits,
    SplitScore,
    gaussian_mu,
    largest_multiple,
    snap_centers,
)
from pkm.privacy.mechanisms.noise import INITIALIZATION, child
from pkm.scalars import is_number

# Shares of epsilon for the paper's eps_int, eps_cnt, eps_exp and eps_avg (Sec. 6.1):
# interval size, counts, splits, averages. The sound variant has no interval size.
PUBLISHED_SHARES = (0.04, 0.18, 0.18, 0.6)
SOUND_SHARES = (0.0, 0.1875, 0.1875, 0.625)
PERCENTILE = 65.0  # Algorithm 2, line 9
# Percentile of the gaps between neighbors of n standard normal values, times n, for
# large n: the limit of the quantiles that the authors tabulate by simulation (Algorithm
# 2, lines 3-7). A test derives it.
GAP_CONSTANT = 4.135930028253561
# Candidates of the standard deviation ("sigmas" of Algorithm 2), in the data's units.
MIN_SIGMA = 0.5
MAX_SIGMA = 29.5
SIGMA_STEP = 0.5
COUNT_DELTA_SHARE = 0.2  # of delta, for counts that are too large (lambda, Sec. 3.3)
AVERAGE_DELTA_SHARE = 0.8
EMPTINESS_WEIGHTS = {"published": 5.0, "sound": 3.0}
SOUND_INTERVALS = 127  # per feature: the number of an interval fits a byte
MERGE_STARTS = 10


def level_budgets(
    total: float,
    n_levels: int,
) -> list[float]:
    """Divide a budget over levels in proportion to sqrt(2)^level (Sec. 3.3).

    Examples
    --------
    >>> [round(epsilon, 4) for epsilon in level_budgets(1.0, 3)]
    [0.2265, 0.3204, 0.4531]
    """
    weights = [math.sqrt(2.0**level) for level in range(n_levels)]
    return [total * weight / math.fsum(weights) for weight in weights]


class DPM(PrivateKMeans):
    """Clustering by private separation: splits through sparse regions of the data.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers to merge to; without ``merge`` it has no effect: the number of
        centers follows from the data.
    epsilon : float, default=1.0
        Total, zero-out adjacency.
    delta : float or "auto", default="auto"
        ``auto`` is 1 / (n sqrt(n)) for ``published`` and 1e-6 for ``sound``.
    variant : {"published", "sound"}, default="sound"
        ``published`` follows the paper. The interval size is estimated from the data
        (not private for d >= 2). Sensitivities are from noisy counts less an offset,
        and averages about the origin of the data's units. ``sound`` has a fixed grid of
        intervals, the exact sensitivity of a score whose ranks count from both ends,
        and the public number of points. Its averages are about each cell's midpoint,
        with the half-diagonal of the cell as sensitivity; centers are clipped to their
        cells. Counts of rejected children are used, and noise is scaled so that the
        ledger's total is the budget.
    shares : "auto" or sequence of 4 floats, default="auto"
        Shares of epsilon for interval size, counts, splits and averages; their sum is
        1. ``auto`` is 0.04, 0.18, 0.18, 0.6 for ``published``. For ``sound`` the first
        must be 0, and ``auto`` keeps the proportions of the others.
    t, q : float, default=0.3 and 1/12
        Positive parameters of the centreness (Definition 6), with ``2 q <= t``. The
        centreness is a function of a split's rank. It rises from 0 to t over the first
        q n ranks, then to 1 at the median, and falls symmetrically.
    emptiness_weight : float or "auto", default="auto"
        The paper's alpha (Definition 7): the score is the centreness plus alpha times
        the emptiness, the fraction of points outside of the interval. ``auto`` is 5 for
        ``published`` (Sec. 5.2) and 3 for ``sound``, whose fixed intervals can hold
        many points: a central interval with more than 1 / alpha of them has a lower
        score than an empty one at the border. 3 was taken after 1, 2, 3 and 5 were
        tried on the paper's data sets: it is tuned on the data that it is evaluated on.
    depth : int, default=7
        The paper's tau_r: levels of splits, from 1 to 12, for at most 2**depth centers.
        A cell needs more than n / 2**depth points (tau_e).
    merge : bool, default=False
        Merge the released centers, weighted by their released counts, to ``n_clusters``
        by k-means. It costs no privacy.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`. Where features have different bounds,
        ``published`` takes the cube [-1, 1]^d for the data's units.

    See Also
    --------
    HST : Cuts boxes at random in place of scored splits; releases at most k centers.
    LSHSplits : Splits by random hyperplanes, then k-means.
    SynopsisKMeans : Chooses a number of clusters with ``n_clusters="auto"``.

    Notes
    -----
    ``published`` is the paper's algorithm. It differs from the authors' code where that
    is not private, or the curator does not allow it. Points are clipped to the range.
    An empty leaf is averaged with noise like any other. The interval around a candidate
    is the same for emptiness and rank. Noise on counts is Laplace on the grid. A cell
    whose released count is below one has scores of 0. Gaps are known to 2**-16 of a
    grid step. The exponential mechanism has the factor two that the paper's definition
    lacks (F-12) and its proof needs.

    References
    ----------
    Liebenow, J., Schütt, Y., Braun, T., Gehrke, M., Thaeter, F. and Mohammadi, E.
    (2024). DPM: clustering sensitive data through separation. CCS.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 5000, axis=0)
    >>> model = DPM(n_clusters=2, merge=True, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "DPM"
    color = "#cc79a7"
    marker = "D"
    claims = {
        "published": PrivacyClaim(
            "approximate", flaws=("F-13", "F-14", "F-15", "F-16")
        ),
        "sound": PrivacyClaim("approximate"),
    }
    constraints = {
        "shares": None,
        "t": Real(),
        "q": Real(),
        "emptiness_weight": AUTO | Real(),
        "depth": Integer(1, 12),
        "merge": FLAG,
    }
    batched = False
    published_delta = staticmethod(inverse_n_root_n)

    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    variant: str = "sound"
    shares: Sequence[float] | Literal["auto"] = "auto"
    t: float = 0.3
    q: float = 1 / 12
    emptiness_weight: float | Literal["auto"] = "auto"
    depth: int = 7
    merge: bool = False

    def check_parameters(self, n_points: int | None = None) -> None:
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        self._score()
        self._shares()

    def _shares(self) -> Sequence[float]:
        """Shares of epsilon: interval size, counts, splits, averages."""
        is_published = self.variant == "published"
        if isinstance(self.shares, str) and self.shares == "auto":
            return PUBLISHED_SHARES if is_published else SOUND_SHARES
        if isinstance(self.shares, Sequence | np.ndarray):
            shares = tuple(self.shares)
            if len(shares) == 4 and all(map(is_number, shares)):
                first, *others = shares
                is_first_allowed = first > 0 if is_published else first == 0
                adds_up = abs(math.fsum(shares) - 1) <= 1e-9
                if is_first_allowed and min(others) > 0 and adds_up:
                    return shares
        raise ValueError(
            f"shares={self.shares!r} must be 'auto' or four numbers (interval size, "
            "counts, splits, averages) that must be positive and add up to 1; the "
            "first must be 0 for variant='sound'"
        )

    def _score(self) -> SplitScore:
        weight = self.emptiness_weight
        if weight == "auto":
            weight = EMPTINESS_WEIGHTS[self.variant]
        return SplitScore(
            self.t, self.q, weight, from_both_ends=self.variant == "sound"
        )

    @property
    def supports_chunks(self) -> bool:
        """Whether all queries are sums over points; the gaps of Algorithm 2 are not."""
        return self.variant == "sound"

    @property
    def needs_remainders(self) -> bool:
        """Whether a query reads the remainders of rounding: the gaps, or a zoom."""
        return self.variant == "published" or super().needs_remainders

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Schedule:
        """All releases; see :meth:`PrivateKMeans.schedule`.

        A split and a count per level, and averages. ``published`` counts the root and
        estimates the interval size first.
        """
        delta = self.resolved_delta(n_points)
        gap, counts, splits, averages = (
            share * self.epsilon for share in self._shares()
        )
        # Budgets of the levels (Algorithm 1, lines 4-5), and the offset's delta (line
        # 6).
        split_epsilons = level_budgets(splits, self.depth)
        if self.variant == "published":
            count_delta = COUNT_DELTA_SHARE * delta / (self.depth + 1)
            root, *count_releases = [
                plan_release(CellCounts, Laplace, epsilon=epsilon)
                for epsilon in level_budgets(counts, self.depth + 1)
            ]
            first = [root, plan_release(GapPercentile, Percentile, epsilon=gap)]
            average_mu = gaussian_mu(averages, AVERAGE_DELTA_SHARE * delta)
        else:
            # Scale all costs up until they spend the budget, composed tightly.
            count_delta = 0.0
            mus = [*level_budgets(counts, self.depth), gaussian_mu(averages, delta)]
            factor = largest_multiple(mus, split_epsilons, self.epsilon, delta)
            *count_mus, average_mu = [factor * mu for mu in mus]
            split_epsilons = [factor * epsilon for epsilon in split_epsilons]
            count_releases = [
                plan_release(CellCounts, Gaussian, mu=mu) for mu in count_mus
            ]
            first = []
        split_releases = [
            plan_release(Splits, Exponential, epsilon=epsilon, delta=count_delta)
            for epsilon in split_epsilons
        ]
        levels = zip(split_releases, count_releases, strict=True)
        average = plan_release(CellSums, Gaussian, mu=average_mu)
        return Schedule(*first, *itertools.chain(*levels), average)

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Grow the tree and average its leaves; see :meth:`PrivateKMeans.cluster`."""
        d = curator.n_features
        schedule = self.schedule(curator.n_points, d)

        # Intervals: the root's count and the interval size beta (Algorithm 1, lines
        # 7-9), or the public n and a fixed size.
        is_published = self.variant == "published"
        if is_published:
            origin, half_width = find_origin(curator.domain)
            size = count_root(curator, schedule)
            width = _release_width(curator, schedule, size, half_width)
        else:
            size = float(curator.n_points)
            width = 2 / SOUND_INTERVALS
        grid = BoxGrid.of_intervals(width, inside_cell=not is_published)

        # BuildClustering (lines 10, 13-21).
        tree = curator.partition(grid)
        leaves = self._grow(tree, size, schedule)
        cells = [leaf.cell for leaf in leaves]
        sizes = np.array([max(leaf.size, 1.0) for leaf in leaves])

        # DPAvg (line 11): a noisy sum over the count that is already released, about
        # the origin, or about the midpoint of the leaf.
        if is_published:
            origins = np.tile(origin, (len(cells), 1))
            farthest = float(SCALE + abs(origin[0]))
            radius = math.sqrt(d) * farthest / SCALE
        else:
            origins = np.array([tree.midpoint(cell) for cell in cells])
            radius = None
        noise = Gaussian(1 / schedule.find(CellSums)[0].mu)  # in radii
        query = CellSums(cells, origins, radius)
        sums = tree.release(query, sums=noise)["sums"]
        centers = origins + sums / sizes[:, None]
        if not is_published:
            boxes = np.array([tree.box(cell) for cell in cells])
            lower = boxes[:, 0]
            upper = boxes[:, 1]
            centers = np.clip(centers, lower, upper)

        # Merge by k-means on the weighted centers: post-processing.
        if self.merge:
            key = child(curator.public_seeds[0], INITIALIZATION)
            seed = int(key.generate_state(1)[0])
            k = self.n_clusters
            centers = weighted_kmeans(centers, sizes, k, MERGE_STARTS, seed)
        return snap_centers(centers)[None], self.depth

    def _grow(
        self,
        tree: PartitionTree,
        size: float,
        schedule: Schedule,
    ) -> list[Node]:
        """Split all cells level by level; return the leaves.

        A split is accepted if the released counts of both children are larger than
        ``size / 2**depth``, with ``size`` the count of the root.
        """
        is_published = self.variant == "published"
        score = self._score()
        min_size = size / 2**self.depth
        noises = [counting_noise(release) for release in schedule.find(CellCounts)]
        child_noises = noises[-self.depth :]  # of the counts of children, by level
        nodes = [Node(0, size)]
        leaves: list[Node] = []
        for level, split in enumerate(schedule.find(Splits)):
            # The offset lambda (line 6): the count that sets a score's sensitivity,
            # less lambda, is below the exact one with probability 1 - delta.
            margin = 0.0
            if is_published:
                margin = -math.log(2 * split.delta) * noises[level].scale / SCALE

            # Split (lines 22-28): the exponential mechanism on the scores of a cell.
            cells = [node.cell for node in nodes]
            sizes = [node.size for node in nodes]
            query = Splits(cells, sizes, score, margin, split.delta)
            mechanism = Exponential(split.epsilon)
            choices = tree.release(query, choices=mechanism)["choices"]
            candidates = map(tree.candidate, choices)
            pairs = [
                tree.split(cell, *candidate)
                for cell, candidate in zip(cells, candidates, strict=True)
            ]

            # Count both children (lines 16-17). If one has at most tau_e points, the
            # cell is a leaf (line 18).
            noise = child_noises[level]
            counted = count_children(tree, pairs, noise)
            accepted: list[Node] = []
            for node, children in zip(nodes, counted, strict=True):
                child_sizes = [child.size for child in children]
                if min(child_sizes) > min_size:
                    accepted += children
                elif is_published or level == 0:
                    leaves.append(node)
                else:
                    node_noise = child_noises[level - 1]
                    total = sum(child_sizes)
                    size = averaged_size(node.size, node_noise, total, noise)
                    leaves.append(Node(node.cell, size))
            nodes = accepted
        return leaves + nodes


def averaged_size(
    size: float,
    noise: Laplace | Gaussian,
    children_size: float,
    child_noise: Laplace | Gaussian,
) -> float:
    """Average a cell's count and the sum of its children's, by inverse variance."""
    weight = noise.scale**-2
    child_weight = (2 * child_noise.scale**2) ** -1
    return (weight * size + child_weight * children_size) / (weight + child_weight)


def _release_width(
    curator: Curator,
    schedule: Schedule,
    size: float,
    half_width: float,
) -> float:
    """Estimate the interval size from gaps of neighboring values (Algorithm 2)."""
    (release,) = schedule.find(GapPercentile)
    noise = Percentile(release.epsilon)
    answer = curator.release(GapPercentile(PERCENTILE), gap=noise)
    gap = float(answer["gap"][0]) / SCALE * half_width
    return interval_width(gap, size) / half_width


def interval_width(
    gap: float,
    size: float,
) -> float:
    """Interval size: half the standard deviation of normal values with the same gaps.

    Parameters
    ----------
    gap : float
        Percentile of the gaps between neighboring values, in the units of the data.
    size : float
        Noisy number of points.

    Returns
    -------
    float
        Half of one of 0.5, 1.0, ..., 29.5 (Algorithm 2, with the table of quantiles
        replaced by its limit), in the units of the data.
    """
    sigma = gap * max(size, 0.0) / GAP_CONSTANT
    sigma = SIGMA_STEP * round(sigma / SIGMA_STEP)
    return min(max(sigma, MIN_SIGMA), MAX_SIGMA) / 2
