"""Queries on points of which a record moves: what a move changes.

Statistical tests use fixed seeds; their p-values leave odds below one in a million.
"""

import math
from collections import Counter

import numpy as np
import pytest
from moves import NEGLIGIBLE, after_move, cells_of, curator, draw_move, exact, points_of, with_move
from scipy import stats

from pkm.privacy import SCALE, Gaussian, StabilityHistogram, snap
from pkm.privacy.queries.moved_records import (
    GroupSums,
    SoftCounts,
    Total,
    _sorted_order,
    soft_sensitivity,
)


@pytest.mark.parametrize("spread", [2, 1 << 10, 1 << 50])
def test_noised_rows_are_sorted_with_equal_ones_in_random_order(spread):
    rng = np.random.default_rng(spread)
    rows = rng.integers(-spread, spread, (500, 3))
    rows[250:] = rows[:250]
    ties = rng.permutation(500) / 500
    assert (_sorted_order(rows, ties) == np.lexsort((ties, *rows.T[::-1]))).all()


@pytest.mark.slow
@pytest.mark.parametrize("rho", [1e-6, 0.003, 0.2, 1.5])
@pytest.mark.parametrize("d", [1, 2, 4])
def test_a_move_changes_points_and_sums_within_max_shift(d, rho):
    rng = np.random.default_rng(d)
    noise = Gaussian(NEGLIGIBLE)
    farthest = 0.0
    for _ in range(100):
        rows, i, moved = draw_move(rng, d, rho)
        original = exact(rows, rho)
        farthest = max(farthest, np.linalg.norm(moved - rows[i]))
        noised = points_of(original, NEGLIGIBLE)
        assert (noised == rows[np.lexsort(rows.T[::-1])]).all()

        neighbor = after_move(original, rows[i], moved)
        largest = original.max_shift * SCALE
        groups = rng.integers(-1, 3, len(rows))
        query = GroupSums(groups, 3)
        (sums,) = original.release(query, sums=noise)["sums"]
        (neighbor_sums,) = neighbor.release(query, sums=noise)["sums"]
        exact_sums = [original._rows[groups == group].sum(axis=0) for group in range(3)]
        assert (sums == exact_sums).all()
        assert np.linalg.norm(sums - neighbor_sums) <= largest

        (total,) = original.release(Total(), sums=noise)["sums"]
        (neighbor_total,) = neighbor.release(Total(), sums=noise)["sums"]
        assert np.linalg.norm(total - neighbor_total) <= largest
    assert farthest > 0.9 * min(rho, 1.0) * SCALE  # moves of the full length were among them


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "trees", "levels"),
    [(1, 3, range(4, 9)), (3, 3, range(4, 9)), (2, 1, range(6, 7))],
)
def test_a_move_changes_two_cells_of_every_histogram(d, trees, levels, every_cell_is_released):
    rng = np.random.default_rng(d)
    noise = StabilityHistogram(1e-9, 1e-6, 2 * trees * len(levels))
    keys = [(tree, level) for tree in range(trees) for level in reversed(levels)]

    def histograms(points, shifts):
        releases = cells_of(exact(points), shifts, levels, noise)
        assert [release[:2] for release in releases] == keys
        tables = []
        for *_, cells, counts in releases:
            table = Counter(dict(zip(map(tuple, cells), counts, strict=True)))
            assert sum(table.values()) == len(points)
            tables.append(table)
        return tables

    largest_change = 0
    for _ in range(50):
        rows, i, moved = draw_move(rng, d, 0.6)
        shifts = rng.integers(0, 4 * SCALE + 1, (trees, d))
        tables = histograms(rows, shifts)
        neighbor_tables = histograms(with_move(rows, i, moved), shifts)
        squared_change = 0
        for table, neighbor_table in zip(tables, neighbor_tables, strict=True):
            cells = table.keys() | neighbor_table.keys()
            changes = [table[cell] - neighbor_table[cell] for cell in cells]
            assert sorted(filter(None, changes)) in ([], [-1, 1])
            squared_change += sum(change * change for change in changes)
        assert squared_change <= noise.max_changed_cells
        largest_change = max(largest_change, squared_change)
    assert largest_change == noise.max_changed_cells


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "side", "rho"),
    [
        (1, 0.5, 0.05),
        (2, 0.25, 0.2),
        (3, 0.4, 0.1),
        (4, 1.0, 0.4),
        (2, 0.1, 0.5),
    ],
)
def test_a_move_changes_soft_counts_within_their_sensitivity(d, side, rho):
    rng = np.random.default_rng(d)
    intervals = round(2 / side)
    max_shift = exact(np.zeros((1, d), np.int64), rho).max_shift
    sensitivity = soft_sensitivity(d, 2 / intervals, max_shift)

    def soft_counts(points):
        holder = exact(points, rho)
        answer = holder.release(SoftCounts(intervals), counts=Gaussian(NEGLIGIBLE))
        return answer["counts"].ravel() / SCALE

    largest_change = 0.0
    for trial in range(300):
        rows, i, moved = draw_move(rng, d, rho, n=3)
        if trial % 3 == 0:
            # Moves at a node, along the diagonal: where weights change fastest.
            node = 2 / intervals * rng.integers(0, intervals + 1, d) - 1
            direction = np.sign(node + 1e-9) / math.sqrt(d)
            rows[i] = snap(node)
            moved = snap(np.clip(node - direction * rho, -1, 1))
        neighbor = with_move(rows, i, moved)
        change = np.linalg.norm(soft_counts(rows) - soft_counts(neighbor))
        assert change <= sensitivity
        largest_change = max(largest_change, change)
    assert largest_change > 0.5 * sensitivity  # the bound is not idle


@pytest.mark.statistical
def test_released_order_hides_the_private_order(monkeypatch):
    """Where noised values are equal, which true point comes first is a fair coin."""
    monkeypatch.setattr(Gaussian, "draw", lambda self, values, *_: values * 0)
    rows = snap(np.array([[-0.5], [0.5]]))
    n_first = 0
    for seed in range(400):
        shuffled = curator(rows, seed=seed)
        points_of(shuffled, 10.0 * SCALE)
        n_first += shuffled._rows[0, 0] < 0
    assert stats.binomtest(int(n_first), 400).pvalue > 1e-6
