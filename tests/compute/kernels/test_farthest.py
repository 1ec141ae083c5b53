"""The farthest points from centers, as a function of the multiset."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hashed import counts_of, grid_points, squared_distances
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.compute import Points
from pkm.compute.kernels import farthest as ranking
from pkm.compute.kernels.farthest import MAX_GATHERED, farthest
from pkm.compute.storage.blocks import Shards


@pytest.mark.slow
@given(
    st.integers(0, 10**6),
    st.integers(1, 14),
    st.integers(0, 14),
    st.booleans(),
    st.sampled_from([0, 1, 3, MAX_GATHERED]),
)
@settings(max_examples=150, deadline=None)
def test_farthest_is_a_function_of_the_multiset(seed, n, n_farthest, tied, n_gathered):
    """Also among the farthest from other centers, and however few points are compared one by one.

    Of few different points some have copies that are kept and copies that are not.
    """
    kind = "tied" if tied else "spread"
    drawn = grid_points(n, 2, seed, kind)
    rows = drawn[np.random.default_rng(seed).integers(0, n, n)] if tied else drawn
    center_sets = [grid_points(2, 2, seed + i, "tied") for i in (1, 2)]
    expected = [tuple(row) for row in rows.tolist()]
    shuffled = np.random.default_rng(seed).permutation(rows)
    halves = [shuffled[: n // 2], shuffled[n // 2 :]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "MAX_GATHERED", n_gathered)
        found = [None] * 3
        for centers, n_kept in zip(center_sets, (max(1, n - 2), n_farthest), strict=True):
            squares = {row: squared_distances(np.array([row]), centers).min() for row in expected}
            expected = sorted(expected, key=lambda row: (-squares[row], row))[:n_kept]
            for i, shards in enumerate(([rows], [shuffled], halves)):
                parts = Shards(Points.from_grid(shard) for shard in shards)
                found[i] = farthest(parts, found[i], centers, n_kept)
                assert counts_of(parts, found[i]) == Counter(expected)


@pytest.mark.slow
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.integers(0, 30),
    st.sampled_from([0, 1, 3, MAX_GATHERED]),
)
@settings(max_examples=150, deadline=None)
def test_a_weight_is_selected_like_as_many_copies(seed, weights, n_farthest, n_gathered):
    """Also a part of the last point, and among the farthest from other centers."""
    rows = grid_points(len(weights), 2, seed, "tied" if seed % 2 else "spread")
    weighted = replace(Points.from_grid(rows), weights=np.array(weights, np.int32))
    repeated = Points.from_grid(np.repeat(rows, weights, axis=0))
    found = [None, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "MAX_GATHERED", n_gathered)
        for i, n_kept in enumerate((max(1, sum(weights) - 2), n_farthest)):
            centers = grid_points(2, 2, seed + i, "tied")
            sides = [Shards([points]) for points in (weighted, repeated)]
            found = [
                farthest(shards, previous, centers, n_kept)
                for shards, previous in zip(sides, found, strict=True)
            ]
            kept, expected = map(counts_of, sides, found)
            assert kept == expected
