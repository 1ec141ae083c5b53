"""Points in a ball: which of them are kept, and what a record changes."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from curators import curator_of
from hashed import counts_of, curator, grid_points, hashed
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.compute import Points
from pkm.methods.weights import weigh_rows
from pkm.privacy import SCALE, Curator, NoiseStreams


def kept_rows(buckets):
    return counts_of(buckets._shards, buckets._remaining)


@pytest.mark.slow
@given(
    st.integers(0, 10**6),
    st.integers(2, 12),
    st.sampled_from([0.3, 0.5, 0.9]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_record_changes_the_remaining_points_by_one(seed, n, share, tied):
    """It replaces one record at most: also after a second restriction, and for every record."""
    kind = "tied" if tied else "spread"
    rows = grid_points(n, 2, seed, kind)
    center_sets = [grid_points(2, 2, seed + i, kind) for i in (1, 2)]
    for record in range(n):
        buckets = hashed(rows, n, 2.0)
        neighbor = hashed(np.delete(rows, record, axis=0), n, 2.0)
        for centers in center_sets:
            buckets.filter_farthest(centers, share)
            neighbor.filter_farthest(centers, share)
            assert buckets.n_remaining == neighbor.n_remaining
            kept = kept_rows(buckets)
            neighbor_kept = kept_rows(neighbor)
            assert (kept - neighbor_kept).total() <= 1
            assert (neighbor_kept - kept).total() <= 1


@given(
    st.integers(0, 10**6),
    st.integers(2, 14),
    st.integers(1, 5),
    st.sampled_from([0.3, 0.5, 0.9]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_person_changes_the_remaining_points_by_the_weight_of_a_record(
    seed, n, n_persons, share, tied
):
    """Whatever the number of rows, of which the last one is cut."""
    kind = "tied" if tied else "spread"
    rows = grid_points(n, 2, seed, kind)
    groups = np.random.default_rng(seed).integers(n_persons, size=n)
    weights = weigh_rows(n, groups).units
    for person in range(n_persons):
        stays = groups != person
        sides = [
            hashed(weigh(rows[present], weights[present]), n_persons, 2.0)
            for present in (np.ones(n, bool), stays)
        ]
        for i in (1, 2):
            for side in sides:
                side.filter_farthest(grid_points(2, 2, seed + i, kind), share)
            kept, neighbor_kept = map(kept_rows, sides)
            assert kept.total() <= sides[0].n_remaining * SCALE
            assert (kept - neighbor_kept).total() <= SCALE
            assert (neighbor_kept - kept).total() <= SCALE


def weigh(rows, weights):
    return replace(Points.from_grid(rows), weights=weights)


def test_more_persons_than_fit_the_sums_are_refused():
    points = replace(weigh(np.zeros((1, 2), int), np.ones(1, np.int32)), n_persons=(1 << 29) + 1)
    with pytest.raises(ValueError, match="n=536870913 records with weights must be at most"):
        Curator([points], None, NoiseStreams([0])).clipped_points(1.0)


def test_restriction_keeps_the_farthest_half():
    rows = np.array([[i * 1000] for i in range(10)])
    center = np.array([[0]])
    buckets = hashed(rows, radius=2.0)
    buckets.filter_farthest(center, 0.5)
    assert kept_rows(buckets) == Counter((i * 1000,) for i in range(5, 10))
    assert buckets.n_remaining == 5
    message = r"fraction=1.0 of the records to keep must be in \(0, 1\)"
    with pytest.raises(ValueError, match=message):
        buckets.filter_farthest(center, 1.0)


def test_cost_range_is_limited_by_ball_and_box():
    ball = hashed(np.zeros((1, 4), int), radius=0.5)
    box = hashed(np.zeros((1, 4), int), radius=9.0)
    edge = np.array([[SCALE // 2, 0, 0, 0]])
    corner = np.full((1, 4), SCALE)
    assert ball.radius == 0.5
    assert ball.cost_range(edge) == 1.0
    assert box.radius == 2.0
    assert box.cost_range(corner) == 16.0
    assert box.cost_range(0 * corner) == 4.0


def test_clipped_points_need_one_replicate_and_a_radius():
    points = np.zeros((10, 3), np.int64)
    with pytest.raises(
        ValueError,
        match="ClippedPoints serves one replicate at a time, not 2",
    ):
        curator(points, seeds=(0, 1)).clipped_points(1.0)
    with pytest.raises(ValueError, match=r"radius=-1\.0 must be positive"):
        curator(points).clipped_points(-1.0)


def test_smallest_integers_are_not_in_the_domain():
    """Their absolute value is negative."""
    view = curator_of(np.zeros((5, 1), np.int64)).clipped_points(1.0)
    with pytest.raises(ValueError, match="must lie in the domain"):
        view.check_positions(np.array([[np.iinfo(np.int64).min]]))
