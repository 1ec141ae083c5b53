"""Lloyd's algorithm of one client against plain numpy."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.compute import converged_lloyd


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 3), st.integers(1, 7))
def test_converged_lloyd_is_lloyd_in_plain_numpy(seed, n, d, k):
    """Points of few values, so that ties and empty clusters occur."""
    rng = np.random.default_rng(seed)
    points = rng.integers(-4, 5, (n, d)).astype(np.float64)
    expected = rng.integers(-6, 7, (k, d)).astype(np.float64)
    centers = expected.copy()
    labels = converged_lloyd(points, centers, 0.125, 20)

    previous = np.inf
    for _ in range(20):
        squares = ((points[:, None] - expected) ** 2).sum(axis=2)
        nearest = squares.argmin(axis=1)
        for j in np.unique(nearest):
            expected[j] = points[nearest == j].sum(axis=0) / (nearest == j).sum()
        loss = squares.min(axis=1).sum()
        if loss >= 0.875 * previous:
            break
        previous = loss
    assert labels.tolist() == nearest.tolist()
    assert centers.tolist() == expected.tolist()
