"""Cells of shifted quadtrees and soft counts, against plain counting."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.compute.kernels.quadtree import (
    ShiftedRows,
    add_soft_counts,
    cell_centers,
    find_span,
    fullest_occupied_cells,
    lexicographic_order,
    occupied_cells,
)
from pkm.privacy import (
    SCALE,
)


@pytest.mark.parametrize(
    ("d", "levels"),
    [(1, range(0, 4)), (2, range(5)), (3, range(6, 11)), (10, range(8, 11))],
)
def test_cells_agree_with_plain_counting(d, levels):
    rng = np.random.default_rng(d)
    points = rng.integers(-2 * SCALE, 2 * SCALE + 1, (300, d)) // (1 << 12) * (1 << 12)
    points[0] = 2 * SCALE
    points[1] = -2 * SCALE
    shift = rng.integers(0, 4 * SCALE + 1, d)
    for level, cells_at, counts in occupied_cells(points, shift, levels):
        cells = cells_at(slice(None))
        side = 8 * SCALE / 2**level
        indices = np.floor((points + shift + 2 * SCALE) / side).astype(int)
        indices = np.minimum(indices, 2**level - 1)
        expected = Counter(tuple(index) for index in indices.tolist())
        assert [tuple(cell) for cell in cells.tolist()] == sorted(expected)
        assert counts.tolist() == [expected[cell] for cell in sorted(expected)]

        # Every point is in a cell: its center is within half a side.
        centers = cell_centers(cells, shift, level)
        distances = np.abs(centers[:, None] - points).max(axis=2)
        assert (distances.min(axis=0) <= side / 2).all()


@pytest.mark.parametrize("n_fullest", [1, 7, 500])
@pytest.mark.parametrize(("n", "d", "spread"), [(300, 1, 20), (300, 2, 3000), (300, 9, 9000)])
def test_fullest_cells_are_the_first_of_all_cells_by_count(n, d, spread, n_fullest):
    """Of trees that start at the finest level, at one in the middle and at the root."""
    rng = np.random.default_rng(d)
    dense = rng.normal(0, spread, (n, d)).round().astype(np.int32)
    sparse = rng.integers(-2 * SCALE, 2 * SCALE + 1, (n // 3, d), dtype=np.int32)
    shifts = rng.integers(0, 4 * SCALE + 1, (3, d))
    for points in (np.concatenate([dense, sparse]), sparse, sparse[:1]):
        expected = {}
        for tree, shift in enumerate(shifts):
            for level, cells_at, counts in occupied_cells(points, shift, range(12)):
                order = np.argsort(-counts, kind="stable")[:n_fullest]
                expected[tree, level] = cells_at(order).tolist(), counts[order].tolist()
        found = fullest_occupied_cells(points, shifts, 11, n_fullest)
        fullest = {(tree, level): (c.tolist(), m.tolist()) for tree, level, c, m in found}
        assert fullest == expected


def test_largest_shift_stays_in_the_last_cell():
    points = np.full((1, 2), 2 * SCALE)
    shift = np.full(2, 4 * SCALE)
    tree = occupied_cells(points, shift, range(2))
    cells_by_level = [cells_at(slice(None)).tolist() for _, cells_at, _ in tree]
    assert cells_by_level == [[[1, 1]], [[0, 0]]]


def test_no_points_have_no_cells():
    points = np.zeros((0, 2), np.int64)
    shift = np.zeros(2, np.int64)
    levels = [counts.tolist() for _, _, counts in occupied_cells(points, shift, range(3))]
    assert levels == [[], [], []]
    fullest = fullest_occupied_cells(points, shift[None], 3, 1)
    assert [counts.tolist() for *_, counts in fullest] == [[], [], [], []]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 31),
    st.integers(1, 12),
    st.integers(1, 40),
    st.integers(0, 10**6),
)
def test_rows_are_sorted_and_equal_ones_found(bits, d, m, seed):
    rng = np.random.default_rng(seed)
    last = (1 << bits) - 1
    rows = rng.integers(0, 1 << bits, (m, d))
    rows[rng.random((m, d)) < 0.7] = last
    members = rng.permutation(m)[: rng.integers(1, m + 1)]
    # One column has one number only.
    rows[:, rng.integers(d)] = last
    points = (rows - 5) * 4 + rng.integers(0, 4, (m, d))
    shifted = ShiftedRows(points, find_span(points), np.full(d, 20), 2, last)
    order, is_first = lexicographic_order(shifted, members)
    assert shifted.rows(members).tolist() == rows[members].tolist()
    ordered = rows[members[order]].tolist()
    assert ordered == sorted(rows[members].tolist())
    pairs = itertools.pairwise(ordered)
    assert is_first.tolist() == [True, *(row != following for row, following in pairs)]


@pytest.mark.parametrize(("d", "intervals"), [(1, 1), (1, 7), (2, 5), (3, 4)])
def test_soft_counts_keep_every_point_as_a_mean(d, intervals):
    rng = np.random.default_rng(d)
    node_indices = np.array(list(itertools.product(range(intervals + 1), repeat=d)))
    nodes = node_indices * 2 / intervals - 1
    corners = (np.full(d, SCALE), np.full(d, -SCALE))
    for row in (*corners, *rng.integers(-SCALE, SCALE + 1, (20, d))):
        counts = np.zeros(len(nodes), np.int64)
        add_soft_counts(row[None], intervals, counts)
        weights = counts / SCALE
        assert weights.min() >= 0
        assert (weights > 0).sum() <= 2**d
        assert weights.sum() == pytest.approx(1, abs=2**d / SCALE)
        assert weights @ nodes == pytest.approx(row / SCALE, abs=2**d / SCALE)
        # Only nodes around the point have a part in it.
        distances = np.abs(nodes[weights > 0] - row / SCALE)
        assert distances.max() <= 2 / intervals + 1e-9
