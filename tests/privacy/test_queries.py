"""Every query under every adjacency: what neighbors change, by brute force, and what is refused.

The queries are those that the curators serve: one that is missing in the table of examples makes
the tests fail. Pairs of neighbors are random and seeded; a bound holds for each of them, so no test
fails by chance.
"""

import dataclasses
import math
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest

from pkm.compute import DIRECTION_SCALE, Points
from pkm.compute.kernels.hashing import euclidean_hash
from pkm.privacy import (
    SCALE,
    Adjacency,
    BoundedLaplace,
    BoxGrid,
    BucketCounts,
    BucketSums,
    Budget,
    CandidateSets,
    CellCounts,
    CellSums,
    ClippedSum,
    CountsAndBoundedSums,
    CoverPicks,
    Curator,
    DependentColumns,
    Exponential,
    GapPercentile,
    Gaussian,
    GridCounts,
    Laplace,
    Ledger,
    Marginals,
    MaximumCover,
    NearestCounts,
    NearestShells,
    NearestSumsAndCounts,
    NoiseStreams,
    Percentile,
    ProjectedCounts,
    ProjectedSumsAndCounts,
    SecondMoments,
    ShellCounts,
    SideCounts,
    Splits,
    SplitScore,
    StabilityHistogram,
    SumsAndCounts,
    Swaps,
    WorstApproximated,
    snap,
)
from pkm.privacy.local_aggregator import (
    Boxes,
    LocalAggregator,
    LocalCounts,
    LocalPoints,
    LocalSums,
    NearestCenter,
    ReportReuseError,
    SingleCell,
)
from pkm.privacy.mechanisms.additive import MAX_SCALE, Cost
from pkm.privacy.mechanisms.randomizers import (
    DirectResponse,
    HadamardResponse,
    LocalDomain,
    LocalHashing,
    SignedSums,
    UserCells,
    VectorRandomizer,
)
from pkm.privacy.mechanisms.selection import OrderStatistics, ScoreRange
from pkm.privacy.mechanisms.stability_histogram import OccupiedCells, StreamedCells
from pkm.privacy.queries.clipped_regions import LargeRegions, RegionCounts, RegionSizes, RegionSums
from pkm.privacy.queries.moved_records import (
    AllPoints,
    GroupSums,
    QuadtreeCounts,
    SoftCounts,
    SortedGaussian,
    Total,
)
from pkm.privacy.queries.projection import CoverProblem
from pkm.privacy.query import Query
from pkm.privacy.rho_bounded import RhoBoundedCurator

CURATORS = (Curator, RhoBoundedCurator, LocalAggregator)
SERVED = [kind for curator in CURATORS for kind in curator.serves]
N_PAIRS = 100
ROUNDING = 1e-9  # relative


# Examples: random public arguments of each query, and the view that it is answered on


class Example(NamedTuple):
    """A query, and a function that makes the view of a curator."""

    query: Query
    view_of: object = lambda curator: curator


def positions(rng, *shape):
    """Grid positions: corners of the domain, where changes are largest, or any."""
    if rng.random() < 0.5:
        return rng.choice([-SCALE, SCALE], shape)
    return rng.integers(-SCALE, SCALE + 1, shape)


def number(rng, largest=4):
    return int(rng.integers(1, largest + 1))


def some_radius(rng, d):
    return float(rng.uniform(0.2, 2 * math.sqrt(d)))


def absolute_sums(rng, d):
    return Example(SumsAndCounts(positions(rng, 1, number(rng), d)))


def near_sums(rng, d):
    radius = some_radius(rng, d)
    return Example(SumsAndCounts(positions(rng, 1, number(rng), d), radius))


def relative_sums(rng, d):
    radius = some_radius(rng, d)
    return Example(SumsAndCounts(positions(rng, 1, number(rng), d), radius, relative=True))


def sums_within_radii(rng, d):
    """One radius for each center."""
    k = number(rng)
    radii = rng.uniform(0.2, 2 * math.sqrt(d), (1, k))
    return Example(SumsAndCounts(positions(rng, 1, k, d), radii, relative=True))


def bounded_sums(rng, d):
    return Example(CountsAndBoundedSums(positions(rng, 1, number(rng), d), positions(rng, d)))


def grid_counts(rng, d):
    return Example(GridCounts(number(rng, 5)))


def gap_percentile(rng, d):
    """Of one feature: of more, the charge carries the flaw F-13 and the bound does not hold."""
    return Example(GapPercentile(float(rng.uniform(0, 100))))


def some_radii(rng, d):
    return some_radius(rng, d) * 2.0 ** -np.arange(number(rng))


def shell_counts(box):
    def example(rng, d):
        return Example(ShellCounts(positions(rng, d) / SCALE, some_radii(rng, d), box))

    return example


def side_counts(rng, d):
    return Example(SideCounts(positions(rng, d) / SCALE, some_radii(rng, d)))


def clipped_sum(rng, d):
    return Example(ClippedSum(positions(rng, d) / SCALE, some_radius(rng, d)))


def some_tables(rng, d):
    """Columns of some tables, and inner edges of all columns."""
    tables = [tuple(rng.permutation(d)[: number(rng, d)].tolist()) for _ in range(number(rng))]
    edges = [np.unique(rng.integers(-SCALE, SCALE + 1, number(rng))) for _ in range(d)]
    return tables, edges


def marginals(rng, d):
    return Example(Marginals(*some_tables(rng, d)))


def dependent_columns(rng, d):
    tables, edges = some_tables(rng, d)
    shares = [rng.dirichlet(np.ones(len(inner) + 1)) for inner in edges]
    return Example(DependentColumns(tables, edges, shares))


def worst_approximated(rng, d):
    tables, edges = some_tables(rng, d)
    shapes = [tuple(len(edges[h]) + 1 for h in columns) for columns in tables]
    expected = [rng.uniform(0, 5, shape) for shape in shapes]
    weights = [int(rng.integers(1, 4)) for _ in tables]
    offsets = rng.uniform(0, 9, len(tables))
    return Example(WorstApproximated(tables, edges, expected, weights, offsets))


def grown_tree(rng, d, grid):
    """A function that splits the tree of a curator at random, and the leaves."""
    splits = []
    leaves = [0]
    for i in range(rng.integers(5)):
        cell = leaves.pop(rng.integers(len(leaves)))
        splits.append((cell, int(rng.integers(d)), int(rng.integers(1, grid.n_bins))))
        leaves += [2 * i + 1, 2 * i + 2]

    def view_of(curator):
        tree = curator.partition(grid)
        for split in splits:
            tree.split(*split)
        return tree

    return view_of, leaves


def split_cells(rng, d):
    """The tree and leaves of random splits on a grid."""
    return grown_tree(rng, d, BoxGrid.of_intervals(float(rng.uniform(0.1, 1.0))))


def all_in_one_cell(rng, d):
    return Curator.whole, [0]


def hyperplane_cells(rng, d):
    normals = rng.integers(-SCALE, SCALE, (2, d))
    origin = positions(rng, d)

    def view_of(curator):
        tree = curator.hyperplanes(normals, origin)
        for cell, level in ((0, 0), (1, 1), (2, 1)):
            tree.split(cell, level)
        return tree

    return view_of, [3, 4, 5, 6]


def cell_counts(cells_of):
    def example(rng, d):
        view_of, leaves = cells_of(rng, d)
        return Example(CellCounts(leaves), view_of)

    return example


def cell_sums(cells_of):
    def example(rng, d):
        view_of, leaves = cells_of(rng, d)
        origins = positions(rng, len(leaves), d) * number(rng, 2)
        # A radius that covers every cell, or the exact distances.
        radius = None if rng.random() < 0.7 else 3 * math.sqrt(d)
        return Example(CellSums(leaves, origins, radius), view_of)

    return example


def splits(from_both_ends):
    def example(rng, d):
        grid = BoxGrid.of_intervals(float(rng.uniform(0.1, 1.0)), inside_cell=from_both_ends)
        view_of, leaves = grown_tree(rng, d, grid)
        score = SplitScore(0.3, 1 / 12, float(rng.uniform(0.5, 10)), from_both_ends)
        sizes = rng.uniform(-2, 20, len(leaves))
        margin = float(rng.choice([0.0, 2.0]))
        return Example(Splits(leaves, sizes, score, margin), view_of)

    return example


def pulled_points(rng, d, restricted=False):
    """A function that pulls the points of a curator into a ball, and keeps the farthest."""
    radius = some_radius(rng, d)
    released = [positions(rng, number(rng), d) for _ in range(number(rng, 2))]

    def view_of(curator):
        points = curator.hashed_points(radius)
        for centers in released if restricted else []:
            points.filter_farthest(centers, 0.6)
        return points

    return view_of


def bucket_counts(restricted):
    def example(rng, d):
        hashing = euclidean_hash(rng, 1, d, some_radius(rng, d))
        return Example(BucketCounts(hashing), pulled_points(rng, d, restricted))

    return example


def bucket_sums(restricted):
    def example(rng, d):
        hashing = euclidean_hash(rng, 1, d, float(rng.uniform(0.5, 2)))
        sample = rng.integers(-SCALE, SCALE + 1, (200, d))
        codes = np.unique(hashing.codes(Points.prepare(sample)))
        radius = float(rng.uniform(0.2, 1.0))
        query = BucketSums(hashing, codes, positions(rng, len(codes), d), radius)
        return Example(query, pulled_points(rng, d, restricted))

    return example


def nearest_counts(rng, d):
    return Example(NearestCounts(positions(rng, number(rng), d)), pulled_points(rng, d))


def nearest_shells(rng, d):
    radii = 2 * math.sqrt(d) * 2.0 ** -np.arange(number(rng, 6) + 1)
    query = NearestShells(positions(rng, number(rng), d), radii)
    return Example(query, pulled_points(rng, d))


def nearest_sums(rng, d):
    query = NearestSumsAndCounts(positions(rng, number(rng), d), some_radius(rng, d))
    return Example(query, pulled_points(rng, d))


def second_moments(rng, d):
    return Example(SecondMoments(), pulled_points(rng, d))


def swaps(rng, d):
    candidates = positions(rng, 5, d)
    current = rng.choice(5, number(rng, 3), replace=False)
    slots = np.arange(len(current))[: number(rng, len(current))]
    return Example(Swaps(candidates, current, slots), pulled_points(rng, d))


def candidate_sets(rng, d):
    sets = rng.integers(0, 6, (number(rng), number(rng, 3)))
    return Example(CandidateSets(positions(rng, 6, d), sets), pulled_points(rng, d))


def projected(rng, d):
    """A function that projects the points of a curator, and the number of dimensions."""
    n_dimensions = number(rng, 2)
    matrix = rng.integers(-DIRECTION_SCALE, DIRECTION_SCALE, (n_dimensions, d))
    length = float(rng.uniform(0.5, 2)) * SCALE * DIRECTION_SCALE
    return lambda curator: curator.projection(matrix, length), n_dimensions


def cover_picks(rng, d):
    view_of, _ = projected(rng, d)
    return Example(CoverPicks(((0.5, 0.4), (0.25, 0.6)), number(rng)), view_of)


def projected_counts(rng, d):
    view_of, n_dimensions = projected(rng, d)
    centers = rng.uniform(-1, 1, (number(rng), n_dimensions))
    return Example(ProjectedCounts(centers), view_of)


def projected_sums(rng, d):
    view_of, n_dimensions = projected(rng, d)
    centers = rng.uniform(-1, 1, (number(rng), n_dimensions))
    return Example(ProjectedSumsAndCounts(centers), view_of)


N_MOVED = 12  # records of a curator under rho-bounded adjacency


def numbered(curator):
    """The curator after its points were released in the order in which they were given."""
    if not curator._released:
        rows = np.concatenate([shard.rows for shard in curator._shards]).astype(np.int64)
        curator.number_records(np.argsort(np.lexsort(rows.T[::-1])))
    return curator


def all_points(rng, d):
    return Example(AllPoints())


def total(rng, d):
    return Example(Total())


def group_sums(rng, d):
    n_groups = number(rng)
    return Example(GroupSums(rng.integers(-1, n_groups, N_MOVED), n_groups), numbered)


def quadtree_counts(rng, d):
    shifts = rng.integers(0, 4 * SCALE, (number(rng, 3), d))
    first = int(rng.integers(1, 5))
    return Example(QuadtreeCounts(shifts, range(first, first + number(rng))))


def soft_counts(rng, d):
    return Example(SoftCounts(number(rng, 8)))


def regions(rng, d, n_splits):
    """A function that makes and splits regions, by true points or by groups; region of each cell.

    Cells that were split are in region -1.
    """
    centers = positions(rng, number(rng), d)
    radius = float(rng.uniform(0.1, 1.0))
    groups = rng.integers(-1, len(centers), N_MOVED) if rng.random() < 0.3 else None
    members = rng.random(N_MOVED) < 0.8 if groups is None and rng.random() < 0.5 else None
    region = list(range(len(centers)))
    rounds = []
    for _ in range(n_splits):
        leaves = [cell for cell, center in enumerate(region) if center >= 0]
        cells = rng.choice(leaves, number(rng, len(leaves)), replace=False)
        rounds.append((cells, rng.integers(-SCALE, SCALE, d)))
        for cell in cells:
            region += [region[cell]] * 2
            region[cell] = -1

    def view_of(curator):
        if groups is not None or members is not None:
            numbered(curator)
        view = curator.regions(centers, radius, groups=groups, members=members)
        for cells, normal in rounds:
            view.split(cells, normal)
        return view

    return view_of, np.array(region)


def region_sizes(rng, d):
    return Example(RegionSizes(), regions(rng, d, 0)[0])


def large_regions(rng, d):
    return Example(LargeRegions(), regions(rng, d, 0)[0])


def region_counts(rng, d):
    view_of, region = regions(rng, d, number(rng, 3) - 1)
    leaves = np.flatnonzero(region >= 0)
    return Example(RegionCounts(leaves[rng.random(len(leaves)) < 0.9]), view_of)


def region_sums(rng, d):
    view_of, region = regions(rng, d, number(rng, 3) - 1)
    # Two groups in every region; some cells are in none.
    side = rng.integers(0, 2, len(region))
    is_grouped = (region >= 0) & (rng.random(len(region)) < 0.9)
    groups = np.where(is_grouped, 2 * region + side, -1)
    return Example(RegionSums(groups, 2 * region.max() + 2), view_of)


def first_cohort(radius):
    return lambda aggregator: aggregator.cohorts([0.7, 0.3], radius)[0]


def some_rule(rng, d):
    rules = (
        SingleCell(),
        NearestCenter(positions(rng, number(rng), d)),
        Boxes(np.eye(d, dtype=np.int64)[:1] * SCALE, np.array([-1.0]), 0.5, 4),
    )
    return rules[rng.integers(3)]


def local_counts(rng, d):
    return Example(LocalCounts(some_rule(rng, d)), first_cohort(some_radius(rng, d)))


def local_sums(rng, d):
    rule = some_rule(rng, d)
    cells = rng.permutation(rule.size)[: number(rng, rule.size)]
    origins = positions(rng, len(cells), d)
    query = LocalSums(rule, cells, origins, rng.uniform(0.2, 2.0, len(cells)))
    return Example(query, first_cohort(some_radius(rng, d)))


def local_points(rng, d):
    return Example(LocalPoints(), first_cohort(some_radius(rng, d)))


#: Examples of each query. Bounds are nearly reached in each of them, but for what carries a flaw:
#: see test_bounds_that_do_not_hold_are_flagged.
EXAMPLES = {
    SumsAndCounts: (absolute_sums, near_sums, relative_sums, sums_within_radii),
    CountsAndBoundedSums: (bounded_sums,),
    GridCounts: (grid_counts,),
    GapPercentile: (gap_percentile,),
    ShellCounts: (shell_counts(False), shell_counts(True)),
    SideCounts: (side_counts,),
    Marginals: (marginals,),
    DependentColumns: (dependent_columns,),
    WorstApproximated: (worst_approximated,),
    ClippedSum: (clipped_sum,),
    CellCounts: tuple(map(cell_counts, (split_cells, all_in_one_cell, hyperplane_cells))),
    CellSums: tuple(map(cell_sums, (split_cells, all_in_one_cell, hyperplane_cells))),
    Splits: (splits(True), splits(False)),
    BucketCounts: (bucket_counts(False), bucket_counts(True)),
    BucketSums: (bucket_sums(False), bucket_sums(True)),
    NearestCounts: (nearest_counts,),
    NearestShells: (nearest_shells,),
    NearestSumsAndCounts: (nearest_sums,),
    SecondMoments: (second_moments,),
    Swaps: (swaps,),
    CandidateSets: (candidate_sets,),
    CoverPicks: (cover_picks,),
    ProjectedCounts: (projected_counts,),
    ProjectedSumsAndCounts: (projected_sums,),
    AllPoints: (all_points,),
    Total: (total,),
    GroupSums: (group_sums,),
    QuadtreeCounts: (quadtree_counts,),
    SoftCounts: (soft_counts,),
    RegionSizes: (region_sizes,),
    LargeRegions: (large_regions,),
    RegionCounts: (region_counts,),
    RegionSums: (region_sums,),
    LocalCounts: (local_counts,),
    LocalSums: (local_sums,),
    LocalPoints: (local_points,),
}


# Neighbors


def sharded(rng, rows, n_null=0):
    """Points in one shard or two, with null records in the last."""
    if rng.random() < 0.5:
        return [Points.prepare(rows, n_null)]
    cut = rng.integers(len(rows) + 1)
    return [Points.prepare(rows[:cut]), Points.prepare(rows[cut:], n_null)]


def presence_pair(rng, d, adjacency, least=1):
    """Curators of neighbors that differ in the presence of a record; the larger has ``least``."""
    n = least - 1 + number(rng, 20)
    rows = positions(rng, n, d)
    fewer = np.delete(rows, rng.integers(n), axis=0)
    n_null = 1 if adjacency is Adjacency.ZERO_OUT else 0
    shards = sharded(rng, rows)
    fewer_shards = sharded(rng, fewer, n_null)
    # No curator is made for add-remove: exact answers need no ledger.
    return [Curator(points, None, NoiseStreams([0])) for points in (shards, fewer_shards)]


def moved_pair(rng, d):
    """Curators of neighbors that differ by the move of a record, before it is rounded."""
    rho = float(rng.choice([0.01, 0.2, 1.0, 2.0]) * rng.uniform(0.5, 1))
    raw = positions(rng, N_MOVED, d) / SCALE
    direction = rng.standard_normal(d)
    if rng.random() < 0.5:
        direction = np.sign(direction) * (np.arange(d) == rng.integers(d))
    moved = raw.copy()
    moved[0] = np.clip(raw[0] + rho * direction / np.linalg.norm(direction), -1, 1)
    budget = Budget(1e6, 0.5, "rho_bounded", rho=rho)
    return [
        RhoBoundedCurator([Points.prepare(snap(rows))], Ledger(budget), NoiseStreams([0]))
        for rows in (raw, moved)
    ]


def replaced_pair(rng, d):
    """Aggregators of neighbors that differ in the point of a user."""
    rows = positions(rng, 10, d)
    replaced = rows.copy()
    replaced[rng.integers(10)] = positions(rng, d)
    budget = Budget(1.0, adjacency=Adjacency.LOCAL)
    return [
        LocalAggregator(sharded(rng, points), Ledger(budget), NoiseStreams([0]))
        for points in (rows, replaced)
    ]


def neighbors(rng, d, adjacency, least=1):
    if adjacency is Adjacency.RHO_BOUNDED:
        return moved_pair(rng, d)
    if adjacency is Adjacency.LOCAL:
        return replaced_pair(rng, d)
    return presence_pair(rng, d, adjacency, least)


# What they change, over the bound


#: Norms of a sensitivity that a mechanism is charged by.
CHARGED = {
    Gaussian: ("l2",),
    SortedGaussian: ("l2",),
    Laplace: ("l1",),
    StabilityHistogram: ("l2", "l0"),
    BoundedLaplace: ("linf", "l0"),
}


def norm_ratios(change, sensitivity):
    """Norms of a change over their bounds."""
    entries = (np.abs(change) / sensitivity.unit).ravel().astype(float)
    norms = {
        "l1": entries.sum(),
        "l2": np.linalg.norm(entries),
        "linf": entries.max(initial=0.0),
        "l0": np.count_nonzero(entries),
    }
    return {name: norm / getattr(sensitivity, name) for name, norm in norms.items()}


def change_of_cells(exact, neighbor):
    """Change of the counts of the cells that occur for either neighbor.

    Those that occur for one of them only hold one record there, as thresholds assume.
    """
    counts, neighbor_counts = (
        Counter(dict(zip(map(str, each.cells.tolist()), each.counts.tolist(), strict=True)))
        for each in (exact, neighbor)
    )
    assert len(counts) == len(exact.cells)  # no cell twice
    assert exact.min_count == neighbor.min_count
    for cell in counts.keys() ^ neighbor_counts.keys():
        assert counts[cell] + neighbor_counts[cell] == 1
    cells = sorted(counts.keys() | neighbor_counts.keys())
    return np.array([counts[cell] - neighbor_counts[cell] for cell in cells]) * SCALE


def change_of_rows(exact, neighbor):
    """Change of the one row that differs, whatever the order of the others: rows are released
    without it.
    """
    rows, neighbor_rows = (Counter(map(tuple, each[0].tolist())) for each in (exact, neighbor))
    gone = list((rows - neighbor_rows).elements())
    new = list((neighbor_rows - rows).elements())
    assert len(gone) == len(new) <= 1
    return np.subtract(gone, new)


def spread_ratio(exact, neighbor, sensitivity):
    """Change of the differences of scores, summed over the selections, over its bounds."""
    changes = np.atleast_1d(sensitivity.change)
    # Scores may lie in an array that is used again for the next selection.
    scores = [each.copy() for each in exact]
    neighbor_scores = [each.copy() for each in neighbor]
    assert len(scores) == len(neighbor_scores) == len(changes)
    ratio = 0.0
    for one, other, change in zip(scores, neighbor_scores, changes, strict=True):
        is_allowed = np.isfinite(one)
        assert (is_allowed == np.isfinite(other)).all()  # which candidates are allowed is public
        if is_allowed.any():
            ratio += np.ptp(one[is_allowed] - other[is_allowed]) / change
    return ratio


def rank_ratio(exact, neighbor, sensitivity):
    """Change of the differences of all values' utilities, over its bound."""
    ends = np.concatenate([[0.0], exact.ordered, neighbor.ordered, [exact.upper]])
    values = (np.unique(ends)[1:] + np.unique(ends)[:-1]) / 2
    utilities = [
        -np.abs(np.searchsorted(each.ordered, values) - each.rank) for each in (exact, neighbor)
    ]
    return np.ptp(utilities[0] - utilities[1]) / sensitivity.change


def cover_ratio(rng, exact, neighbor, sensitivity):
    """Change of the numbers of points that grid points cover after equal picks, over its bound."""
    assert sensitivity.one_sided
    left = [exact.points[:], neighbor.points[:]]
    ratio = 0.0
    for side, radius in exact.scales:
        steps = np.arange(-math.floor(1 / side), math.floor(1 / side) + 1) * side
        axes = np.meshgrid(*[steps] * exact.points.shape[1])
        grid = np.stack([axis.ravel() for axis in axes], axis=1)
        for _ in range(exact.n_picks):
            covered = [np.linalg.norm(points[:, None] - grid, axis=2) <= radius for points in left]
            changes = covered[0].sum(axis=0) - covered[1].sum(axis=0)
            assert changes.min() >= 0 or changes.max() <= 0
            ratio = max(ratio, np.abs(changes).max() / sensitivity.change)
            pick = rng.integers(len(grid))
            left = [left[i][~covered[i][:, pick]] for i in range(2)]
    return ratio


def loss_ratio(query, part, exact, neighbor, domain):
    """Largest privacy loss of a report of the one user who differs, over its epsilon."""
    epsilon = 1.0
    losses = [0.0]
    n_changed = 0
    for one, other in zip(exact, neighbor, strict=True):
        assert (one.users == other.users).all()
        changed = (one.cells != other.cells).copy()
        if not isinstance(one, UserCells):
            changed |= (one.vectors != other.vectors).any(axis=1)
        n_changed += changed.sum()
        for i in np.flatnonzero(changed):
            for kind in query.mechanisms[part]:
                losses += report_losses(kind(epsilon, domain.size), one, other, i)
    assert n_changed <= 1
    return max(losses) / epsilon


def report_losses(randomizer, one, other, i):
    """Log ratios of the probabilities of a user's reports."""
    if isinstance(one, UserCells):
        assert max(one.cells[i], other.cells[i]) < randomizer.size
        probabilities = randomizer.probabilities(int(one.users[i]))
        ratios = probabilities[one.cells[i]] / probabilities[other.cells[i]]
    else:
        assert one.vectors[i].shape == other.vectors[i].shape == (randomizer.dimensions,)
        directions = np.random.default_rng(0).standard_normal((50, randomizer.dimensions))
        densities = [
            randomizer.density(np.broadcast_to(each.vectors[i], directions.shape), directions)
            for each in (one, other)
        ]
        ratios = densities[0] / densities[1]
    return np.abs(np.log(ratios)).tolist()


def ratios_of(rng, query, part, exact, neighbor, sensitivity):
    """What a pair changes over the bounds, by name."""
    if isinstance(sensitivity, LocalDomain):
        return {"loss": loss_ratio(query, part, exact, neighbor, sensitivity)}
    if isinstance(exact, CoverProblem):
        return {"spread": cover_ratio(rng, exact, neighbor, sensitivity)}
    if isinstance(exact, OrderStatistics):
        return {"spread": rank_ratio(exact, neighbor, sensitivity)}
    if isinstance(sensitivity, ScoreRange):
        return {"spread": spread_ratio(exact, neighbor, sensitivity)}
    if isinstance(exact, OccupiedCells | StreamedCells):
        return norm_ratios(change_of_cells(exact, neighbor), sensitivity)
    if isinstance(query, AllPoints):
        return norm_ratios(change_of_rows(exact, neighbor), sensitivity)
    assert exact.dtype == neighbor.dtype == np.int64
    return norm_ratios(exact - neighbor, sensitivity)


def is_charged(query, part, name):
    """Whether a mechanism of a part is charged by a norm."""
    return any(name in CHARGED.get(kind, (name,)) for kind in query.mechanisms[part])


CASES = [
    pytest.param(example, adjacency, id=f"{kind.__name__}-{variant}-{adjacency}")
    for kind in SERVED
    for variant, example in enumerate(EXAMPLES.get(kind, ()))
    for adjacency in kind.adjacencies
]


def test_every_query_has_an_example():
    assert EXAMPLES.keys() == set(SERVED)
    assert all(kind.adjacencies and EXAMPLES[kind] for kind in SERVED)


@pytest.mark.parametrize(("example", "adjacency"), CASES)
def test_neighbors_change_within_the_sensitivity(example, adjacency):
    """In every norm, for every pair; and nearly as much for one of them in every norm that a
    mechanism is charged by: a bound twice too large would waste half of the budget.
    """
    rng = np.random.default_rng(0)
    largest = Counter()
    for _ in range(N_PAIRS):
        # Of no point there are no gaps: see test_gaps_of_null_records_alone.
        d, least = (1, 2) if example is gap_percentile else (number(rng, 3), 1)
        query, view_of = example(rng, d)
        views = [view_of(curator) for curator in neighbors(rng, d, adjacency, least)]
        for view in views:
            query.check(view)
            assert not query.flaw(view)
        sensitivities, neighbor_sensitivities = (query.sensitivity(view) for view in views)
        exact, neighbor = (query.exact(view) for view in views)
        for part in query.mechanisms:
            sensitivity = sensitivities[part]
            # Bounds are public.
            np.testing.assert_equal(neighbor_sensitivities[part], sensitivity)
            ratios = ratios_of(rng, query, part, exact[part], neighbor[part], sensitivity)
            for name, ratio in ratios.items():
                assert ratio <= 1 + ROUNDING, f"{part} in {name}: {query}"
                if is_charged(query, part, name):
                    largest[part, name] = max(largest[part, name], ratio)
    not_reached = {key: ratio for key, ratio in largest.items() if ratio < 0.5}
    assert largest.keys()
    assert not not_reached


def test_bounds_that_do_not_hold_are_flagged():
    """What the examples leave out: gaps of two features, and a move charged as one record."""
    curator, _, percentile = asked(GapPercentile)
    assert percentile.flaw(curator) == "F-13"

    curator, _, _ = asked(RegionCounts)
    rows = np.zeros((1, 2), int)
    view = curator.regions(rows, 0.5, charge_both=False)
    for query in (RegionCounts(np.array([0])), RegionSums(np.array([0]), 1)):
        assert query.flaw(view) == "F-17"


def test_gaps_of_null_records_alone():
    """A record more or less must not decide whether the release fails."""
    curator = Curator([Points.prepare(np.empty((0, 1), int), 1)], None, NoiseStreams([0]))
    assert GapPercentile(50.0).exact(curator)["gap"].ordered.size == 0


# What is refused, before anything is charged or drawn


class NoDraws(NoiseStreams):
    """A source that refuses every draw."""

    def normal(self, key, shape):
        raise AssertionError("noise was drawn for a query that must be refused")

    laplace = uniform = gumbel = normal


BUDGETS = {
    Curator: Budget(1e6, 0.5),
    RhoBoundedCurator: Budget(1e6, 0.5, "rho_bounded", rho=0.5),
    LocalAggregator: Budget(1.0, adjacency=Adjacency.LOCAL),
}

#: A mechanism of each type, which any part of the examples accepts.
MECHANISMS = {
    type(mechanism): mechanism
    for mechanism in (
        Gaussian(9.0 * SCALE),
        Laplace(9.0 * SCALE),
        SortedGaussian(9.0 * SCALE),
        BoundedLaplace(0.1, 4.0 * SCALE),
        StabilityHistogram(9.0, 1e-6, 64),
        Exponential(0.1),
        Percentile(0.1),
        MaximumCover(0.1, 1e-6),
        DirectResponse(1.0, 8),
        LocalHashing(1.0, 8),
        HadamardResponse(1.0, 8),
        SignedSums(1.0, 2),
        VectorRandomizer(1.0, 2),
    )
}
PARTS = [
    pytest.param(kind, part, mechanism, id=f"{kind.__name__}-{part}-{mechanism.__name__}")
    for kind in SERVED
    for part, mechanisms in kind.mechanisms.items()
    for mechanism in mechanisms
]
#: Those with additive noise, which has a scale.
SCALED = (Gaussian, Laplace, SortedGaussian, StabilityHistogram)
SCALED_PARTS = [case for case in PARTS if case.values[2] in SCALED]


def asked(kind, streams=None, ledger=None, example=0):
    """A curator, a view of it, and a query that is well-posed for it."""
    rng = np.random.default_rng(0)
    holder = next(curator for curator in CURATORS if kind in curator.serves)
    query, view_of = EXAMPLES[kind][example](rng, 2)
    points = rng.integers(-SCALE, SCALE + 1, (N_MOVED, 2))
    curator = holder(points, ledger or Ledger(BUDGETS[holder]), streams or NoDraws([0]))
    return curator, view_of(curator), query


def noise_of(query):
    return {part: MECHANISMS[kinds[0]] for part, kinds in query.mechanisms.items()}


def fields_of(value):
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


@pytest.mark.parametrize(("kind", "part", "mechanism"), PARTS)
def test_well_posed_queries_are_released_and_charged(kind, part, mechanism):
    """What the tests below start from."""
    curator, view, query = asked(kind, NoiseStreams([0]))
    answer = view.release(query, **noise_of(query) | {part: MECHANISMS[mechanism]})
    assert answer.keys() == query.mechanisms.keys()
    # Laplace noise on counts that a move changes is charged for both records.
    is_charged_twice = kind is RegionCounts and mechanism is Laplace
    assert len(curator._ledger.charges) == (2 if is_charged_twice else 1)
    assert curator._ledger.charges[0].label == query.label


def wide(rows):
    """The same with a feature more."""
    return np.concatenate([rows, rows[..., :1]], axis=-1)


def halves(positions):
    """Positions between grid points."""
    return positions + 0.5


def outside(positions):
    """Positions off the domain."""
    return positions + 3 * SCALE


def repeated(values):
    """The first one twice."""
    return np.concatenate([values[:1], values])


def filled(value):
    return lambda values: np.full(np.shape(values), value)


HASH_OF_THREE = euclidean_hash(np.random.default_rng(0), 1, 3, 1.0)

#: Queries, arguments that are ill-posed (functions are called on those of the example), messages.
ILL_POSED = (
    (SumsAndCounts, {"centers": halves}, "centers must be grid integers"),
    (SumsAndCounts, {"centers": repeated}, "for 1 replicates"),
    (SumsAndCounts, {"radius": 0.0}, "radius=0.0 must be positive"),
    (SumsAndCounts, {"radius": math.nan}, "radius=nan must be positive"),
    (SumsAndCounts, {"radius": math.inf}, "radius=inf must be positive and finite"),
    (SumsAndCounts, {"relative": True}, "relative sums need a radius"),
    (CountsAndBoundedSums, {"centers": halves}, "centers must be grid integers"),
    (CountsAndBoundedSums, {"centers": repeated}, "for 1 replicates"),
    (GridCounts, {"intervals": 0}, "intervals=0 must be at least 1"),
    (GridCounts, {"intervals": 30_000}, "intervals=30000"),
    (GapPercentile, {"percent": -1.0}, "percent=-1.0 must be between"),
    (GapPercentile, {"percent": 101.0}, "percent=101.0"),
    (GapPercentile, {"percent": math.nan}, "percent=nan"),
    (ShellCounts, {"center": wide}, "center must be finite float64"),
    (ShellCounts, {"center": filled(math.nan)}, "center must be finite float64"),
    (ShellCounts, {"radii": lambda radii: radii[:0]}, "radii must be finite, positive"),
    (ShellCounts, {"radii": repeated}, "radii must be finite, positive and decreasing"),
    (ShellCounts, {"radii": filled(math.inf)}, "radii must be finite"),
    (ShellCounts, {"box": 2}, "box=2 must be True or False"),
    (SideCounts, {"center": wide}, "center must be finite float64"),
    (SideCounts, {"radii": lambda radii: -radii}, "radii must be finite, positive"),
    (ClippedSum, {"center": filled(math.inf)}, "center must be finite float64"),
    (ClippedSum, {"radius": 0.0}, "radius=0.0 must be positive"),
    (ClippedSum, {"radius": math.nan}, "radius=nan must be positive"),
    (Marginals, {"tables": [(0, 0)]}, r"columns=\(0, 0\) of a table must be"),
    (Marginals, {"tables": [(9,)]}, r"columns=\(9,\) of a table must be"),
    (Marginals, {"tables": []}, "tables have 0 cells"),
    (Marginals, {"edges": repeated}, "edges must be of 2 columns, got 3"),
    (
        Marginals,
        {"edges": lambda edges: [edges[0], edges[1][::-1].repeat(2)]},
        r"edges\[1\] must be",
    ),
    (DependentColumns, {"tables": []}, "tables have 0 cells"),
    (DependentColumns, {"edges": lambda edges: edges[:1]}, "edges must be of 2 columns, got 1"),
    (DependentColumns, {"shares": lambda shares: shares[:1]}, "shares must be of 2 columns"),
    (
        DependentColumns,
        {"shares": lambda shares: [-each for each in shares]},
        r"shares\[0\] must be",
    ),
    (WorstApproximated, {"tables": []}, "tables have 0 cells"),
    (WorstApproximated, {"edges": lambda edges: edges[:1]}, "edges must be of 2 columns, got 1"),
    (WorstApproximated, {"weights": lambda weights: weights[1:]}, "weights must be of"),
    (WorstApproximated, {"weights": lambda weights: [0 for _ in weights]}, "weights=0 must be"),
    (WorstApproximated, {"weights": lambda weights: [0.5 for _ in weights]}, "weights=0.5 must be"),
    (WorstApproximated, {"offsets": filled(math.nan)}, "offsets=nan must be"),
    (
        WorstApproximated,
        {"expected": lambda expected: [each[:-1] for each in expected]},
        "expected counts of columns",
    ),
    (
        WorstApproximated,
        {"expected": lambda expected: [each * math.inf for each in expected]},
        "expected counts of columns",
    ),
    (CellCounts, {"cells": [99]}, r"cells=\[99\] must be among"),
    (CellCounts, {"cells": [-1]}, r"cells=\[-1\] must be among"),
    (CellCounts, {"cells": repeated}, "named once"),
    (CellCounts, {"cells": lambda leaves: [0, leaves[-1]]}, "overlap"),
    (CellSums, {"cells": lambda leaves: [99, *leaves[1:]]}, "must be among"),
    (CellSums, {"cells": lambda leaves: [leaves[0]] * len(leaves)}, "named once"),
    (CellSums, {"origins": halves}, "origins must be grid integers"),
    (CellSums, {"origins": wide}, "origins must be grid integers of shape"),
    (CellSums, {"origins": lambda origins: origins + (1 << 58)}, "too far away"),
    (CellSums, {"radius": 0.001}, "radius=0.001 must cover"),
    (CellSums, {"radius": math.nan}, "at most"),
    (CellSums, {"radius": math.inf}, "at most"),
    (Splits, {"cells": lambda leaves: [99, *leaves[1:]]}, "must be among"),
    (Splits, {"sizes": repeated}, "sizes must be"),
    (Splits, {"sizes": filled(math.nan)}, "sizes must be"),
    (Splits, {"sizes": filled(math.inf)}, "sizes must be"),
    (Splits, {"margin": -1.0}, "margin=-1.0 must not be negative"),
    (Splits, {"margin": math.nan}, "margin=nan must not be negative"),
    (Splits, {"failure": -1e-9}, "delta=-1e-09"),
    (BucketCounts, {"hashing": HASH_OF_THREE}, "hashing of 3 features"),
    (BucketSums, {"hashing": HASH_OF_THREE}, "hashing of 3 features"),
    (BucketSums, {"origins": halves}, "positions must be grid integers"),
    (BucketSums, {"origins": wide}, "positions must be grid integers of shape"),
    (BucketSums, {"origins": outside}, "must lie in the domain"),
    (BucketSums, {"origins": repeated}, "increasing numbers, one for each"),
    (BucketSums, {"codes": lambda codes: codes[::-1]}, "increasing numbers"),
    (BucketSums, {"radius": 0.0}, "radius=0.0 must be positive"),
    (BucketSums, {"radius": math.inf}, "radius=inf must be positive"),
    (NearestCounts, {"centers": halves}, "positions must be grid integers"),
    (NearestCounts, {"centers": wide}, "positions must be grid integers of shape"),
    (NearestCounts, {"centers": outside}, "must lie in the domain"),
    (NearestShells, {"centers": halves}, "positions must be grid integers"),
    (NearestShells, {"centers": outside}, "must lie in the domain"),
    (NearestShells, {"radii": np.array([1.0, 2.0])}, "radii must be finite, positive and decre"),
    (NearestShells, {"radii": np.array([math.nan])}, "radii must be finite, positive and decre"),
    (NearestSumsAndCounts, {"centers": halves}, "positions must be grid integers"),
    (NearestSumsAndCounts, {"centers": wide}, "positions must be grid integers of shape"),
    (NearestSumsAndCounts, {"centers": outside}, "must lie in the domain"),
    (NearestSumsAndCounts, {"radius": -1.0}, "radius=-1.0 must be positive"),
    (NearestSumsAndCounts, {"radius": math.nan}, "radius=nan must be positive"),
    (Swaps, {"candidates": halves}, "positions must be grid integers"),
    (Swaps, {"candidates": outside}, "must lie in the domain"),
    (Swaps, {"current": np.array([5])}, "current must be one or more indices from 0 to 4"),
    (Swaps, {"current": np.array([-1])}, "current must be"),
    (Swaps, {"slots": [3]}, "slots must be one or more indices"),
    (Swaps, {"slots": []}, "slots must be one or more indices"),
    (CandidateSets, {"candidates": halves}, "positions must be grid integers"),
    (CandidateSets, {"candidates": outside}, "must lie in the domain"),
    (CandidateSets, {"sets": np.array([[6]])}, "sets must be one or more indices from 0 to 5"),
    (CandidateSets, {"sets": np.empty((0, 2), int)}, "sets must be one or more indices"),
    (CoverPicks, {"n_picks": 0}, "n_picks=0"),
    (CoverPicks, {"scales": ()}, "number of scales, 0"),
    (ProjectedCounts, {"centers": wide}, "centers must have shape"),
    (ProjectedCounts, {"centers": lambda centers: centers[:0]}, "with k >= 1"),
    (ProjectedCounts, {"centers": filled(math.nan)}, "centers must be finite"),
    (ProjectedSumsAndCounts, {"centers": wide}, "centers must have shape"),
    (ProjectedSumsAndCounts, {"centers": lambda centers: centers[:0]}, "with k >= 1"),
    (ProjectedSumsAndCounts, {"centers": filled(math.inf)}, "centers must be finite"),
    (GroupSums, {"groups": repeated}, "groups must be 12 integers"),
    (GroupSums, {"groups": halves}, "groups must be 12 integers"),
    (GroupSums, {"groups": filled(99)}, "groups must be from -1 to"),
    (GroupSums, {"groups": filled(-2)}, "groups must be from -1 to"),
    (QuadtreeCounts, {"shifts": halves}, "shifts must be grid integers"),
    (QuadtreeCounts, {"shifts": wide}, "shifts must be grid integers of shape"),
    (QuadtreeCounts, {"levels": range(1, 6, 2)}, "must be consecutive"),
    (SoftCounts, {"intervals": 0}, "intervals=0 in 2 features"),
    (SoftCounts, {"intervals": 600}, "at most 262144 nodes"),
    (RegionCounts, {"cells": repeated}, "must be different"),
    (RegionCounts, {"cells": np.array([99])}, "must be different and below"),
    (RegionCounts, {"cells": np.array([-1])}, "must be different and below"),
    (RegionSums, {"groups": repeated}, "groups must have"),
    (RegionSums, {"groups": filled(99)}, "groups must have"),
    (RegionSums, {"groups": filled(0)}, "must not unite cells of different regions"),
    (LocalCounts, {"rule": object()}, "must be one of SingleCell"),
    (LocalSums, {"rule": object()}, "must be one of SingleCell"),
    (LocalSums, {"cells": filled(99)}, "must name one or more cells"),
    (LocalSums, {"cells": repeated}, "must name one or more cells"),
    (LocalSums, {"origins": wide}, "origins, of shape"),
    (LocalSums, {"radii": filled(0.0)}, "positive radii must be given"),
    (LocalSums, {"radii": filled(math.nan)}, "positive radii must be given"),
)


#: Refused after the charge, if at all.
REFUSED_LATE = (
    (SumsAndCounts, {"centers": wide}, "shape"),
    (CountsAndBoundedSums, {"centers": wide}, "shape"),
    (GridCounts, {"intervals": 2.5}, "intervals=2.5"),
    (NearestCounts, {"centers": lambda centers: centers[:0]}, "centers"),
    (NearestShells, {"centers": lambda centers: centers[:0]}, "centers"),
    (NearestSumsAndCounts, {"centers": lambda centers: centers[:0]}, "centers"),
    (CountsAndBoundedSums, {"origin": halves}, "origin"),
    (CountsAndBoundedSums, {"origin": wide}, "origin"),
    (CoverPicks, {"scales": ((math.nan, 0.5),)}, "scales"),
    (CoverPicks, {"scales": ((0.5, math.nan),)}, "scales"),
    (CoverPicks, {"scales": ((-0.5, 0.5),)}, "scales"),
    (QuadtreeCounts, {"levels": range(30, 32)}, "levels"),
    (QuadtreeCounts, {"shifts": filled(-9 * SCALE)}, "shifts"),
)


def test_every_argument_is_checked_in_some_case():
    """But for those that have no ill-posed values of their own."""
    tested = {(kind, name) for kind, arguments, _ in ILL_POSED for name in arguments}
    tested |= {(kind, name) for kind, arguments, _ in REFUSED_LATE for name in arguments}
    arguments = {(kind, field.name) for kind in SERVED for field in dataclasses.fields(kind)}
    assert arguments - tested == {
        (BucketCounts, "min_count"),  # raises a threshold
        (Splits, "score"),  # refuses its own arguments
        (GroupSums, "n_groups"),  # checked with the groups
        (RegionSums, "n_groups"),
    }


@pytest.mark.parametrize(("kind", "arguments", "message"), [*ILL_POSED, *REFUSED_LATE])
def test_ill_posed_queries_are_refused(kind, arguments, message):
    curator, view, query = asked(kind)
    values = {
        name: value(getattr(query, name)) if callable(value) else value
        for name, value in arguments.items()
    }
    with pytest.raises((ValueError, TypeError), match=message):
        view.release(dataclasses.replace(query, **values), **noise_of(query))
    assert curator._ledger.charges == ()


@pytest.mark.parametrize("n_replicates", [1, 2])
def test_queries_on_the_wrong_view_or_state_are_refused(n_replicates):
    """Splits of hyperplane cells, percentiles of two replicates, records without numbers."""
    points = np.zeros((N_MOVED, 2), int)
    ledger = Ledger(BUDGETS[Curator])
    curator = Curator(points, ledger, NoDraws(range(n_replicates)))
    if n_replicates == 2:
        with pytest.raises(ValueError, match="gap_percentile serves one replicate at a time"):
            curator.release(GapPercentile(50.0), gap=Percentile(0.1))
    else:
        tree = curator.hyperplanes(np.ones((1, 2), int), np.zeros(2, int))
        query = Splits([0], [3.0], SplitScore(0.3, 1 / 12, 5.0, True))
        with pytest.raises(ValueError, match="on a grid only"):
            tree.release(query, choices=Exponential(0.1))
    assert ledger.charges == ()


def test_records_are_named_after_their_only_release():
    ledger = Ledger(BUDGETS[RhoBoundedCurator])
    curator = RhoBoundedCurator(np.zeros((2, 2), int), ledger, NoDraws([0]))
    noise = Gaussian(SCALE)
    with pytest.raises(ValueError, match="groups name released records"):
        curator.release(GroupSums(np.zeros(2, int), 1), sums=noise)
    numbered(curator)
    with pytest.raises(ValueError, match="noised_points can be released once"):
        curator.release(AllPoints(), points=SortedGaussian(SCALE))
    assert ledger.charges == ()


@pytest.mark.parametrize("kind", LocalAggregator.serves)
def test_users_report_once(kind):
    aggregator, cohort, query = asked(kind, NoiseStreams([0]))
    with pytest.raises(TypeError, match="is a query on Cohort, not on LocalAggregator"):
        aggregator.release(query, **noise_of(query))
    assert aggregator._ledger.charges == ()
    cohort.release(query, **noise_of(query))
    charges = aggregator._ledger.charges
    with pytest.raises(ReportReuseError, match="cohort 0 has reported"):
        cohort.release(query, **noise_of(query))
    assert aggregator._ledger.charges == charges


@pytest.mark.parametrize("kind", SERVED)
def test_parts_without_noise_are_refused(kind):
    curator, view, query = asked(kind)
    noise = noise_of(query)
    extra = noise | {"other": Gaussian(SCALE)}
    for given in ({}, extra):
        with pytest.raises(TypeError, match="give one mechanism for each"):
            view.release(query, **given)
    for part in noise:
        for given in (noise | {part: None}, dict.fromkeys(noise)):
            with pytest.raises(PermissionError, match="would return exact answers"):
                view.release(query, **given)
        with pytest.raises(TypeError, match="and no subclass"):
            view.release(query, **noise | {part: 1.0})
    assert curator._ledger.charges == ()


@pytest.mark.parametrize("kind", Curator.serves)
def test_exact_answers_of_curators_without_a_ledger(kind):
    """Only those that methods without a claim are meant to have; and none with noise."""
    rng = np.random.default_rng(0)
    query, view_of = EXAMPLES[kind][0](rng, 1 if kind is GapPercentile else 2)
    points = np.zeros((N_MOVED, 1 if kind is GapPercentile else 2), int)
    view = view_of(Curator(points, None, NoDraws([0])))
    noise = noise_of(query)
    with pytest.raises(ValueError, match="needs a ledger"):
        view.release(query, **noise)
    exact = dict.fromkeys(noise)
    if query.exact_without_ledger:
        assert view.release(query, **exact).keys() == noise.keys()
    else:
        with pytest.raises(ValueError, match="needs a ledger"):
            view.release(query, **exact)
    assert query.exact_without_ledger == (kind is SumsAndCounts)


# Subclasses draw and charge as they like


class Quiet(Gaussian):
    """Gaussian noise that is charged and not added."""

    def draw(self, values, streams, key, sensitivity=None):
        return values


class Cheap(Gaussian):
    """Gaussian noise at any price."""

    def cost(self, sensitivity):
        return Cost(mu=1e-9)


@pytest.mark.parametrize("subclass", [Quiet, Cheap])
@pytest.mark.parametrize("kind", SERVED)
def test_subclasses_of_gaussian_noise_are_refused(kind, subclass):
    curator, view, query = asked(kind)
    noise = noise_of(query)
    for part in noise:
        with pytest.raises(TypeError, match=f"{part}={subclass.__name__}.*no subclass"):
            view.release(query, **noise | {part: subclass(9.0 * SCALE)})
    assert curator._ledger.charges == ()


OVERRIDES = {
    "Quiet": {"draw": lambda self, values, *_: values},
    "Cheap": {"cost": lambda self, sensitivity: Cost()},
    "Unchecked": {"check": lambda self, sensitivity: None},
    "Equal": {},
}


@pytest.mark.parametrize("name", OVERRIDES)
@pytest.mark.parametrize(("kind", "part", "mechanism"), PARTS)
def test_subclasses_of_mechanisms_are_refused(kind, part, mechanism, name):
    curator, view, query = asked(kind)
    subclass = type(name, (mechanism,), OVERRIDES[name])
    given = subclass(**fields_of(MECHANISMS[mechanism]))
    with pytest.raises(TypeError, match=f"{part}={name}.*no subclass"):
        view.release(query, **noise_of(query) | {part: given})
    assert curator._ledger.charges == ()


@pytest.mark.parametrize("kind", SERVED)
def test_subclasses_of_queries_are_refused(kind):
    """One could bound less than neighbors change, or answer more than it is charged for."""
    curator, view, query = asked(kind)
    for overrides in ({}, {"sensitivity": lambda self, view: {}}):
        subclass = type("Free", (kind,), overrides)
        with pytest.raises(TypeError, match="is not served by"):
            view.release(subclass(**fields_of(query)), **noise_of(query))
    assert curator._ledger.charges == ()


@pytest.mark.parametrize("kind", SERVED)
def test_queries_of_other_curators_are_refused(kind):
    _, _, query = asked(kind)
    for other in CURATORS:
        if kind not in other.serves:
            points = np.zeros((N_MOVED, 2), int)
            curator = other(points, Ledger(BUDGETS[other]), NoDraws([0]))
            with pytest.raises(TypeError, match=f"is not served by {other.__name__}"):
                curator.release(query, **noise_of(query))
            assert curator._ledger.charges == ()


@pytest.mark.parametrize("kind", SERVED)
def test_views_of_another_curator_are_refused(kind):
    """Its points would be charged to the wrong ledger."""
    curator, view, query = asked(kind)
    other, other_view, _ = asked(kind)
    noise = noise_of(query)
    for holder, foreign in ((curator, other_view), (other, view), (curator, other)):
        with pytest.raises(ValueError, match="is of another curator"):
            holder.release_from(foreign, query, noise)
    assert curator._ledger.charges == other._ledger.charges == ()


# Noise that integers do not carry


def scaled(mechanism, scale):
    """A mechanism with noise of a scale, in grid steps."""
    if mechanism is StabilityHistogram:
        return StabilityHistogram(scale / SCALE, 1e-6, 64)
    return mechanism(scale)


@pytest.mark.parametrize(("kind", "part", "mechanism"), SCALED_PARTS)
def test_noise_beyond_the_largest_scale_is_refused(kind, part, mechanism):
    """It would leave the low bits of an answer, and then all of it, as they are."""
    curator, view, query = asked(kind)
    sensitivity = query.sensitivity(view)[part]
    largest = MAX_SCALE / np.max(sensitivity.unit)
    for scale in (1e40, 2 * largest, largest * (1 + 1e-9)):
        noise = noise_of(query) | {part: scaled(mechanism, scale)}
        with pytest.raises(ValueError, match=r"must be at most 1.76e\+13"):
            view.release(query, **noise)
    assert curator._ledger.charges == ()
    scaled(mechanism, largest * (1 - 1e-9)).check(sensitivity)


def test_bounded_noise_beyond_the_largest_scale_is_refused():
    """At an epsilon of 1e-20 the noise is lost in rounding, and sums are released as they are."""
    curator, view, query = asked(CountsAndBoundedSums, NoiseStreams([0]))
    mechanism = BoundedLaplace(1e-20, 2.0 * SCALE)
    with pytest.raises(ValueError, match="at most"):
        view.release(query, counts=Laplace(SCALE), sums=mechanism)
    assert curator._ledger.charges == ()
