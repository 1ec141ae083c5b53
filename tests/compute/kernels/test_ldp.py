"""Keyed hashes and signs: uniform, independent, and summed as by brute force."""

import math

import numpy as np
import pytest
from scipy import stats

from pkm.compute.kernels.ldp import add_signed_reports, hash_values, random_signs


@pytest.mark.statistical
def test_hashes_are_uniform_and_independent():
    n = 80_000
    g = 5
    users = np.arange(n)
    first = hash_values(77, users, np.full(n, 3), g)
    second = hash_values(77, users, np.full(n, 4), g)
    other_key = hash_values(78, users, np.full(n, 3), g)
    for hashes in (first, second, other_key):
        observed = np.bincount(hashes, minlength=g)
        assert stats.chisquare(observed).pvalue > 1e-6

    # Pairs of values of a user, and pairs of consecutive users.
    value_pairs = first * g + second
    user_pairs = first[:-1] * g + first[1:]
    for pairs in (value_pairs, user_pairs):
        observed = np.bincount(pairs, minlength=g * g)
        assert stats.chisquare(observed).pvalue > 1e-6


@pytest.mark.statistical
def test_signs_are_fair_and_independent():
    n = 100_000
    users = np.arange(n)
    first, second, third = (random_signs(5, users, np.full(n, cell)) for cell in (0, 1, 2))
    # Products of the signs of two cells, and of two consecutive users.
    first_second = first * second
    second_third = second * third
    consecutive = first[1:] * first[:-1]
    for sample in (first, second, third, first_second, second_third, consecutive):
        assert set(np.unique(sample)) == {-1, 1}
        assert abs(sample.sum()) < 5 * math.sqrt(n)

    # A sign belongs to the user, not to the position.
    reversed_signs = random_signs(5, users[::-1], np.zeros(n, int))
    assert (reversed_signs == first[::-1]).all()


def test_signed_sums_by_brute_force():
    rng = np.random.default_rng(0)
    users = rng.choice(10**9, 50)
    cells = np.array([3, 0, 12])
    integers = rng.integers(-(2**20), 2**20, (50, 4))
    reports = integers.astype(np.int32)
    totals = np.zeros((3, 4), np.int64)
    add_signed_reports(99, users, reports, cells, totals)
    for total, cell in zip(totals, cells, strict=True):
        signs = random_signs(99, users, np.full(50, cell))
        expected = (signs[:, None] * reports).sum(axis=0)
        assert (total == expected).all()
