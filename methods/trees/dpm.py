"""DPM: clusters found by splitting the data through sparse regions (Liebenow et al., "DPM").

The domain is split recursively at candidates chosen by a score that favors empty
intervals near the median; a split is accepted if both parts have enough points; the
noisy means of the remaining cells are the centers. The number of centers follows from
the data.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple

import numpy as np

from pkm.compute import middle_and_half_width
from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import AUTO, FLAG, Integer, OneOf, Real
from pkm.methods.contract import inverse_n_root_n
from pkm.methods.schedule import Schedule, count_noise, plan_release
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

# Shares of epsilon for interval size, counts, splits, averages (Sec. 6.1), or without
# the first.
PUBLISHED_SHARES = (0.04, 0.18, 0.18, 0.6)
SOUND_SHARES = (0.0, 0.1875, 0.1875, 0.625)
PERCENTILE = 65.0
# Percentile of the gaps between neighbors of n standard normal values, times n, for
# large n: the limit of the quantiles that the authors tabulate by simulation for their
# Algorithm 2. A test derives it.
GAP_CONSTANT = 4.135930028253561
# Standard deviations that the interval size is chosen from.
MIN_SIGMA = 0.5
MAX_SIGMA = 29.5
SIGMA_STEP = 0.5
COUNT_DELTA_SHARE = 0.2
AVERAGE_DELTA_SHARE = 0.8
EMPTINESS_WEIGHTS = {"published": 5.0, "sound": 3.0}
SOUND_INTERVALS = 127  # per feature: as many as let a code fit a byte
MERGE_STARTS = 10
MAX_ORIGIN_DISTANCE = 1000  # half-widths of the range


class Node(NamedTuple):
    """A cell of a tree and its released count, in records."""

    cell: int
    size: float


def level_budgets(total: float, n_levels: int) -> list[float]:
    """Divide a budget over levels in proportion to sqrt(2)^level (Sec. 3.3).

    Examples
    --------
    >>> [round(epsilon, 4) for epsilon in level_budgets(1.0, 3)]
    [0.2265, 0.3204, 0.4531]
    """
    weights = [math.sqrt(2.0**level) for level in range(n_levels)]
    return [total * weight / math.fsum(weights) for weight in weights]


@dataclass(eq=False, repr=False)
class DPM(PrivateKMeans):
    """Clustering by private separation.

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
        ``published`` follows the paper: an interval size estimated from the data (not
        private for d >= 2), sensitivities padded against noisy counts, averages about
        the origin of the data's units. ``sound`` has a fixed grid of intervals, the
        exact sensitivity of a score whose ranks count from both ends, the public number
        of points, averages about each cell's midpoint with the cell's half-diagonal as
        sensitivity, centers kept in their cells, the counts of rejected parts used, and
        noise scaled so that the ledger's total is the budget.
    shares : "auto" or sequence of 4 floats, default="auto"
        Of epsilon: interval size, counts, splits, averages; they add up to one.
        ``auto`` is 0.04, 0.18, 0.18, 0.6 for ``published``, and the same in proportion
        without the first for ``sound``, where the first must be 0.
    t, q : float, default=0.3 and 1/12
        Centreness at the border between outer and inner ranks, and the share of each
        outer part; ``2 q <= t``.
    emptiness_weight : float or "auto", default="auto"
        Of the emptiness against the centreness. ``auto`` is 5 for ``published`` (Sec.
        5.2) and 3 for ``sound``, whose fixed intervals can be wide for data
        concentrated in a part of the range: with a weight of w, a central split through
        more than 1 / w of the points loses to one that leaves all of them on one side.
        3 was taken after 1, 2, 3 and 5 were tried on the paper's data sets: it is tuned
        on the data that it is evaluated on.
    depth : int, default=7
        Levels of splits: at most 2**depth centers; a cell needs more than n / 2**depth
        points.
    merge : bool, default=False
        Merge the released centers, weighted by their released counts, to ``n_clusters``
        by k-means: costs nothing.
    bounds, clip, random_state, secure
        As for :class:`pkm.methods.PrivateKMeans`. Where features have different bounds,
        ``published`` takes the cube [-1, 1]^d for the data's units.

    Notes
    -----
    ``published`` differs from the authors' code, but not from the paper, where the code
    is not private or the curator does not allow it: points are clipped to the range; an
    empty leaf is averaged with noise like any other; the interval around a candidate is
    the same for emptiness and rank; noise on counts is Laplace on the grid; a cell
    whose released count is below one has scores of 0; gaps are known to 2**-16 of a
    grid step. The exponential mechanism has the factor two that the paper's definition
    lacks (F-12) and its proof needs.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 5000, axis=0)
    >>> model = DPM(n_clusters=2, merge=True, epsilon=1.0, bounds=(-1, 1), random_state=1).fit(X)
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
        **PrivateKMeans.constraints,
        "variant": OneOf("published", "sound"),
        "t": Real(),
        "q": Real(),
        "emptiness_weight": AUTO | Real(),
        "depth": Integer(1, 12),
        "merge": FLAG,
    }
    batched = False
    published_delta = staticmethod(inverse_n_root_n)

    _: KW_ONLY
    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    variant: str = "sound"
    shares: str | Sequence[float] = "auto"
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

    def _shares(self) -> tuple[float, ...]:
        if isinstance(self.shares, str):
            if self.shares != "auto":
                raise ValueError(
                    f"shares={self.shares!r} must be 'auto' or four numbers"
                )
            return PUBLISHED_SHARES if self.variant == "published" else SOUND_SHARES
        shares = (
            tuple(self.shares) if isinstance(self.shares, Sequence | np.ndarray) else ()
        )
        if len(shares) != 4 or not all(is_number(share) for share in shares):
            raise ValueError(
                f"shares={self.shares!r} must be four numbers: interval size, counts, splits, "
                "averages"
            )
        first = shares[0] > 0 if self.variant == "published" else shares[0] == 0
        if not (first and min(shares[1:]) > 0 and abs(math.fsum(shares) - 1) <= 1e-9):
            raise ValueError(
                f"shares={self.shares!r} must be positive and add up to 1; the first must be 0 for "
                "variant='sound'"
            )
        return shares

    def _score(self) -> SplitScore:
        weight = self.emptiness_weight
        if weight == "auto":
            weight = EMPTINESS_WEIGHTS[self.variant]
        return SplitScore(
            self.t, self.q, weight, from_both_ends=self.variant == "sound"
        )

    @property
    def supports_chunks(self) -> bool:
        """Whether all queries are sums over points: the gaps of the published variant are not."""
        return self.variant == "sound"

    @property
    def needs_remainders(self) -> bool:
        """Whether a query reads them: that of the gaps, or those of a zoom."""
        return self.variant == "published" or super().needs_remainders

    def schedule(self, n_points: int, n_features: int) -> Schedule:
        """All releases; see :meth:`PrivateKMeans.schedule`."""
        plan = self._plan_published if self.variant == "published" else self._plan_sound
        return plan(self.resolved_delta(n_points))

    def _plan_published(self, delta: float) -> Schedule:
        """Root count, interval size, a split and a count per level, averages."""
        gap, counts, splits, averages = (
            share * self.epsilon for share in self._shares()
        )
        failure = COUNT_DELTA_SHARE * delta / (self.depth + 1)
        average_mu = gaussian_mu(averages, AVERAGE_DELTA_SHARE * delta)
        root, *count_releases = [
            plan_release(CellCounts, Laplace, epsilon=epsilon)
            for epsilon in level_budgets(counts, self.depth + 1)
        ]
        split_releases = [
            plan_release(Splits, Exponential, epsilon=epsilon, delta=failure)
            for epsilon in level_budgets(splits, self.depth)
        ]
        return Schedule(
            root,
            plan_release(GapPercentile, Percentile, epsilon=gap),
            *itertools.chain(*zip(split_releases, count_releases, strict=True)),
            plan_release(CellSums, Gaussian, mu=average_mu),
        )

    def _plan_sound(self, delta: float) -> Schedule:
        """A split and a count per level, averages; the root's count is n, public."""
        _, counts, splits, averages = (share * self.epsilon for share in self._shares())
        count_mus = level_budgets(counts, self.depth)
        split_epsilons = level_budgets(splits, self.depth)
        average_mu = gaussian_mu(averages, delta)

        # Scale all of it up until the parts, composed tightly, spend the budget.
        factor = largest_multiple(
            [*count_mus, average_mu], split_epsilons, self.epsilon, delta
        )
        releases = []
        for epsilon, mu in zip(split_epsilons, count_mus, strict=True):
            releases.append(plan_release(Splits, Exponential, epsilon=factor * epsilon))
            releases.append(plan_release(CellCounts, Gaussian, mu=factor * mu))
        return Schedule(
            *releases, plan_release(CellSums, Gaussian, mu=factor * average_mu)
        )

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Grow the tree and average its leaves; see :meth:`PrivateKMeans.cluster`."""
        find_centers = self._published if self.variant == "published" else self._sound
        schedule = self.schedule(curator.n_points, curator.n_features)
        centers, sizes = find_centers(curator, schedule)
        if self.merge:
            seed = int(
                child(curator.public_seeds[0], INITIALIZATION).generate_state(1)[0]
            )
            centers = weighted_kmeans(
                centers, sizes, self.n_clusters, MERGE_STARTS, seed
            )
        return snap_centers(centers)[None], self.depth

    def _published(
        self, curator: Curator, schedule: Schedule
    ) -> tuple[np.ndarray, np.ndarray]:
        """Centers (m, d) on the grid and their released counts, as in the paper."""
        origin, half_width = origin_of(curator.domain)

        # Estimate the interval size from the gaps between neighboring values (Algorithm
        # 2).
        size = root_count(curator, schedule)
        (gap_cost,) = schedule.find(GapPercentile)
        answer = curator.release(
            GapPercentile(PERCENTILE), gap=Percentile(gap_cost.epsilon)
        )
        gap = float(answer["gap"][0]) / SCALE * half_width
        width = interval_width(gap, size) / half_width

        # Split recursively at the candidates of highest score.
        tree = curator.partition(BoxGrid.of_intervals(width))
        leaves = self._grow(tree, size, schedule)

        # Average the leaves about the origin, by noisy sums and the counts released
        # already.
        cells = [leaf.cell for leaf in leaves]
        sizes = np.array([max(leaf.size, 1.0) for leaf in leaves])
        origins = np.tile(origin, (len(leaves), 1))
        radius = math.sqrt(curator.n_features) * float(SCALE + abs(origin[0])) / SCALE
        query = CellSums(cells, origins, radius)
        sums = tree.release(query, sums=_sum_noise(schedule))["sums"]
        return origin + sums / sizes[:, None], sizes

    def _sound(
        self, curator: Curator, schedule: Schedule
    ) -> tuple[np.ndarray, np.ndarray]:
        """Centers (m, d) on the grid and their released counts, with the repairs of ``sound``."""
        # Split recursively at the candidates of highest score, on a fixed grid of
        # intervals.
        tree = curator.partition(
            BoxGrid.of_intervals(2 / SOUND_INTERVALS, inside_cell=True)
        )
        leaves = self._grow(tree, float(curator.n_points), schedule)

        # Average each leaf about its midpoint and keep the average inside the leaf.
        cells = [leaf.cell for leaf in leaves]
        sizes = np.array([max(leaf.size, 1.0) for leaf in leaves])
        midpoints = np.array([tree.midpoint(cell) for cell in cells])
        sums = tree.release(CellSums(cells, midpoints), sums=_sum_noise(schedule))[
            "sums"
        ]
        boxes = np.array([tree.box(cell) for cell in cells])
        lower = boxes[:, 0]
        upper = boxes[:, 1]
        return np.clip(midpoints + sums / sizes[:, None], lower, upper), sizes

    def _grow(self, tree: PartitionTree, size: float, schedule: Schedule) -> list[Node]:
        """Split all cells level by level; return the leaves.

        A split is accepted if the released counts of both parts are larger than the
        ``2**depth``-th part of ``size``, the count of the root.
        """
        score = self._score()
        min_size = size / 2**self.depth
        noises = [count_noise(release) for release in schedule.find(CellCounts)]
        part_noises = noises[-self.depth :]  # of the counts of parts, by level
        nodes = [Node(0, size)]
        leaves: list[Node] = []
        for level, split in enumerate(schedule.find(Splits)):
            # Pad the counts that set the scores' sensitivity: each stays below the
            # exact one with probability 1 - delta. The released counts need no padding.
            margin = 0.0
            if self.variant == "published":
                margin = -math.log(2 * split.delta) * noises[level].scale / SCALE

            # Choose one split of every cell by the exponential mechanism.
            query = Splits(
                [node.cell for node in nodes],
                [node.size for node in nodes],
                score,
                margin,
                split.delta,
            )
            choices = tree.release(query, choices=Exponential(split.epsilon))["choices"]
            parts = [
                tree.split(node.cell, *tree.candidate(choice))
                for node, choice in zip(nodes, choices, strict=True)
            ]

            # Count both parts of every split.
            noise = part_noises[level]
            cells = [cell for pair in parts for cell in pair]
            counts = tree.release(CellCounts(cells), counts=noise)["counts"] / SCALE
            children = [
                Node(cell, count) for cell, count in zip(cells, counts, strict=True)
            ]

            # Accept a split if both parts are large enough; otherwise the cell is a
            # leaf.
            accepted: list[Node] = []
            for i, node in enumerate(nodes):
                sizes = [child.size for child in children[2 * i : 2 * i + 2]]
                if min(sizes) > min_size:
                    accepted += children[2 * i : 2 * i + 2]
                elif self.variant == "published" or level == 0:
                    leaves.append(node)
                else:
                    size = averaged_size(
                        node.size, part_noises[level - 1], sum(sizes), noise
                    )
                    leaves.append(Node(node.cell, size))
            nodes = accepted
        return leaves + nodes


def averaged_size(
    size: float,
    noise: Laplace | Gaussian,
    parts_size: float,
    part_noise: Laplace | Gaussian,
) -> float:
    """Mean of a cell's count and the sum of its two parts', by the inverse of their variances."""
    weight = noise.scale**-2
    parts_weight = (2 * part_noise.scale**2) ** -1
    return (weight * size + parts_weight * parts_size) / (weight + parts_weight)


def root_count(curator: Curator, schedule: Schedule) -> float:
    """Noisy number of all points, the first count of a schedule."""
    noise = count_noise(schedule.find(CellCounts)[0])
    answer = curator.whole().release(CellCounts([0]), counts=noise)
    return float(answer["counts"][0] / SCALE)


def _sum_noise(schedule: Schedule) -> Gaussian:
    """Noise of the sums of leaves, in their radii."""
    return Gaussian(1 / schedule.find(CellSums)[0].mu)


def interval_width(gap: float, size: float) -> float:
    """Half of the standard deviation whose normal gaps match a percentile of gaps.

    Parameters
    ----------
    gap : float
        Percentile of the gaps, in the units of the data.
    size : float
        Noisy number of points.

    Returns
    -------
    float
        Half of one of 0.5, 1.0, ..., 29.5 (Algorithm 2, with the table of quantiles
        replaced by its limit), in the units of the data.
    """
    sigma = SIGMA_STEP * round(gap * max(size, 0.0) / GAP_CONSTANT / SIGMA_STEP)
    return min(max(sigma, MIN_SIGMA), MAX_SIGMA) / 2


def origin_of(domain: np.ndarray) -> tuple[np.ndarray, float]:
    """Grid position of the origin that published methods average about, and their half-width.

    That is the origin of the data's units where all features have the same range.
    Features of different ranges are scaled separately before such a method is run, so
    that its units are the cube's: origin 0, half-width 1.

    Raises
    ------
    ValueError
        If the common range is so far from its origin that averages about it are too
        coarse on the grid.
    """
    lower, upper = domain
    midpoint, half_width = middle_and_half_width(lower, upper)
    if not ((lower == lower[0]).all() and (upper == upper[0]).all()):
        return np.zeros(len(lower), np.int64), 1.0
    if abs(midpoint[0]) > MAX_ORIGIN_DISTANCE * half_width[0]:
        raise ValueError(
            f"bounds=({lower[0]}, {upper[0]}) are more than {MAX_ORIGIN_DISTANCE} times their "
            "half-width from zero, about which variant='published' averages: shift the data, or "
            "take variant='sound'"
        )
    origin = np.rint(-midpoint / half_width * SCALE).astype(np.int64)
    return origin, float(half_width[0])
