"""The separation index against closed forms, a direct search, and invariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri
from separation_search import best_by_search, best_by_shares

from pkm.datasets.generated import clusters
from pkm.datasets.generated.separation import (
    QUANTILE,
    index_to_ratio,
    ratio_to_index,
    scale_to_separation,
    separations,
)


def random_covariance(generator, d, ratio=10.0):
    axes = clusters.random_rotation(generator, d)
    variances = generator.uniform(1, ratio, d)
    return (axes * variances) @ axes.T


def pair_index(difference, first, second):
    """Separation index of two clusters whose centers differ by the difference."""
    centers = np.array([0 * difference, difference])
    covariances = np.array([first, second])
    return separations(centers, covariances)[0, 1]


@pytest.mark.parametrize(("distance", "printed"), [(4, 0.0101), (6, 0.2097), (8, 0.3423)])
def test_index_of_unit_normals_matches_the_published_values(distance, printed):
    # Close, separated and well-separated structure in the words of Qiu and Joe.
    index = ratio_to_index(distance / 2)
    assert index == pytest.approx(printed, abs=5e-5)


def test_quantile_cuts_off_two_and_a_half_percent():
    assert ndtri(0.975) == QUANTILE


@given(st.floats(-0.99, 0.99))
def test_ratio_and_index_are_inverses(index):
    ratio = index_to_ratio(index)
    assert ratio_to_index(ratio) == pytest.approx(index, abs=1e-12)


@given(st.floats(0.1, 50), st.floats(0.05, 20), st.floats(0.05, 20))
def test_one_dimension_has_a_closed_form(distance, sd_first, sd_second):
    difference = np.array([distance])
    first = np.array([[sd_first**2]])
    second = np.array([[sd_second**2]])
    index = pair_index(difference, first, second)
    ratio = distance / (sd_first + sd_second)
    assert index == pytest.approx(ratio_to_index(ratio), abs=1e-12)


@given(st.integers(2, 6), st.floats(0.1, 10), st.integers(0, 1000))
def test_proportional_covariances_have_a_closed_form(d, factor, seed):
    # The Krylov space has one dimension, so this also shows that Lanczos stops there.
    generator = np.random.default_rng(seed)
    covariance = random_covariance(generator, d)
    difference = 3 * generator.standard_normal(d)
    index = pair_index(difference, covariance, factor * covariance)
    mahalanobis = np.sqrt(difference @ np.linalg.solve(covariance, difference))
    ratio = mahalanobis / (1 + np.sqrt(factor))
    assert index == pytest.approx(ratio_to_index(ratio), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("d", [2, 3, 7])
def test_index_equals_a_direct_search_over_directions(d, seed):
    generator = np.random.default_rng(seed)
    first = random_covariance(generator, d)
    second = random_covariance(generator, d, 100.0)
    difference = 4 * generator.standard_normal(d)
    index = pair_index(difference, first, second)
    assert index == pytest.approx(best_by_search(difference, first, second), abs=1e-7)


@pytest.mark.parametrize("d", [33, 64, 128])
def test_few_lanczos_steps_suffice_in_many_dimensions(d):
    # More dimensions than Lanczos steps, and the largest growth of a covariance by a generator.
    generator = np.random.default_rng(d)
    first = random_covariance(generator, d)
    second = 4 * random_covariance(generator, d)
    difference = generator.standard_normal(d)
    index = pair_index(difference, first, second)
    assert index == pytest.approx(best_by_shares(difference, first, second), abs=1e-9)


@settings(max_examples=25)
@given(st.integers(0, 1000), st.integers(2, 5), st.integers(2, 5))
def test_index_is_invariant_under_invertible_linear_maps(seed, k, d):
    generator = np.random.default_rng(seed)
    centers = 5 * generator.standard_normal((k, d))
    covariances = np.stack([random_covariance(generator, d) for _ in range(k)])
    linear = clusters.random_rotation(generator, d) * generator.uniform(0.5, 2, d)
    mapped_centers = centers @ linear.T + 7
    mapped_covariances = linear @ covariances @ linear.T
    index = separations(centers, covariances)
    mapped_index = separations(mapped_centers, mapped_covariances)
    np.testing.assert_allclose(mapped_index, index, atol=1e-8)


def test_separations_are_symmetric_with_empty_diagonal():
    generator = np.random.default_rng(0)
    centers = generator.standard_normal((5, 3))
    covariances = np.stack([random_covariance(generator, 3)] * 5)
    index = separations(centers, covariances)
    np.testing.assert_array_equal(index, index.T)
    assert np.isnan(np.diag(index)).all()


@pytest.mark.parametrize("separation", [-0.3, 0.01, 0.16, 0.75])
def test_scaling_reaches_the_separation_from_unequal_clusters(separation):
    # Centers far from a simplex: some clusters are distant from all others, and their covariances
    # must grow a lot.
    generator = np.random.default_rng(7)
    centers = generator.standard_normal((12, 3)) * np.array([1, 5, 20])
    covariances = np.stack([random_covariance(generator, 3) for _ in range(12)])
    precisions = np.linalg.inv(covariances)
    spread, growth = scale_to_separation(centers, covariances, precisions, separation)
    assert growth.min() >= 1
    scaled_covariances = covariances * growth[:, None, None]
    index = separations(centers * spread, scaled_covariances)
    np.testing.assert_allclose(np.nanmin(index, axis=1), separation, atol=1e-9)
