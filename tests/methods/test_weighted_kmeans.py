"""Weighted k-means: weights as copies, optima of tiny cases."""

import math

import numpy as np
import pytest

from pkm.methods.weighted_kmeans import weighted_kmeans


def test_weights_are_equivalent_to_copies():
    rng = np.random.default_rng(2)
    points = rng.uniform(-1, 1, (7, 2))
    weights = rng.integers(1, 5, 7)
    copies = np.repeat(points, weights, axis=0)

    def loss(centers):
        squares = ((copies[:, None] - centers) ** 2).sum(axis=2)
        return squares.min(axis=1).sum()

    weighted = weighted_kmeans(points, weights.astype(float), 3, 20, 0)
    copied = weighted_kmeans(copies, np.ones(len(copies)), 3, 20, 0)
    assert loss(weighted) == pytest.approx(loss(copied))


def within_sum_of_squares(points, weights):
    mean = weights @ points / weights.sum()
    return (weights @ (points - mean) ** 2).sum()


def test_weighted_kmeans_finds_the_optimum_of_tiny_cases():
    """All partitions of six points into two parts, by brute force."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        points = rng.uniform(-1, 1, (6, 2))
        weights = rng.uniform(0.5, 4, 6)
        best = math.inf
        for bits in range(1, 2**5):
            mask = np.array([bits >> i & 1 for i in range(6)], bool)
            total = within_sum_of_squares(points[mask], weights[mask])
            total += within_sum_of_squares(points[~mask], weights[~mask])
            best = min(best, total)
        centers = weighted_kmeans(points, weights, 2, 50, seed)
        squares = ((points[:, None] - centers) ** 2).sum(axis=2)
        assert squares.min(axis=1) @ weights == pytest.approx(best)


def test_weighted_kmeans_returns_few_distinct_points():
    points = np.array([[1.0], [1.0], [0.0]])
    assert weighted_kmeans(points, np.ones(3), 2, 1, 0).tolist() == [
        [0.0],
        [1.0],
    ]
