"""LSH-Splits: charges of the library, branches, radius, clipping."""

import numpy as np
import pytest
from separated_blobs import box

from pkm.methods import LSHSplits
from pkm.methods.hashing.lsh_splits import clip_to_ball
from pkm.privacy import SCALE, Curator, Gaussian, Ledger, NoiseStreams, gaussian_mu


@pytest.mark.parametrize(
    ("n", "multiplier", "count_epsilon"),
    [
        (18_720, 5.02, 0.0100),
        (100_000, 5.57, 0.0090),
    ],
)
def test_published_lsh_splits_calibrates_like_the_library(n, multiplier, count_epsilon):
    """Letters: n = 18,720. The library's noise multiplier is 5.02, its counts' epsilon 0.0100; at n
    = 100,000 5.57.
    """
    points = np.zeros((n, 1), int)
    ledger = LSHSplits(variant="published").fit_batch(points, [0]).ledger
    sums = [charge for charge in ledger.charges if charge.label == "cell_sums"]
    counts = [charge for charge in ledger.charges if charge.label == "cell_counts"]
    # The mean's and the tree's.
    assert len(sums) == 2
    assert len(counts) == 22
    assert 1 / sums[1].mu == pytest.approx(multiplier, rel=2e-3)
    assert counts[1].epsilon == pytest.approx(count_epsilon, abs=6e-5)
    assert sums[0].mu == pytest.approx(gaussian_mu(0.08, 0.1 * n**-1.5))
    assert counts[0].epsilon == pytest.approx(0.02)
    assert ledger.spent() < 1.0


@pytest.mark.parametrize(
    "parameters",
    [
        {"depth": 0},
        {"centering_share": 1.0},
        {"centering_share": 0},
        {"n_init": 0},
    ],
)
def test_lsh_splits_refuses_bad_parameters(parameters):
    points = np.random.default_rng(0).uniform(0, 1, (50, 2))
    (name,) = parameters
    with pytest.raises(ValueError, match=f"{name}="):
        LSHSplits(n_clusters=2, **parameters, bounds=(-1, 1)).fit(points)


@pytest.mark.parametrize(
    ("sizes", "leaves"),
    [
        ((100, 199), [299]),
        ((101, 201), [101, 201]),
        ((90, 300), [300]),
    ],
)
def test_lsh_splits_branches_from_three_times_the_least_size(sizes, leaves):
    """One column, negligible noise: with a least size of 100 cells split from 300 on, and parts
    below 100 drop.
    """
    points = np.repeat([[-SCALE // 2], [SCALE // 2]], sizes, axis=0)
    method = LSHSplits(n_clusters=1, epsilon=1e9, depth=1)
    ledger = Ledger(method.budget(sum(sizes), 1))
    curator = Curator(points, ledger, NoiseStreams([0]))
    partition = curator.hyperplanes(np.array([[SCALE]]), np.array([0]))
    _, leaf_sizes = method._grow(partition, 10.0, Gaussian(1e-3 * SCALE), 1)
    assert np.sort(leaf_sizes) == pytest.approx(leaves, abs=0.1)


def test_lsh_splits_radius_reaches_the_farthest_corner():
    points = np.random.default_rng(0).integers(SCALE // 2, SCALE, (5000, 3))
    method = LSHSplits(epsilon=1e4)
    ledger = Ledger(method.budget(5000, 3))
    curator = Curator(points, ledger, NoiseStreams([0]), box(-1.0, 1.0, 3))
    mean, radius = method._center(curator, method.schedule(5000, 3))
    corner_distance = np.linalg.norm(SCALE + np.abs(mean)) / SCALE
    assert radius == pytest.approx(corner_distance)
    assert np.abs(mean - points.mean(axis=0)).max() < SCALE / 50


def test_coreset_points_are_clipped_to_the_ball():
    clipped = clip_to_ball(np.array([[3.0, 4.0], [30.0, 40.0]]), 10.0)
    assert clipped.tolist() == [[3.0, 4.0], [6.0, 8.0]]
