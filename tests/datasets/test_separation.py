"""The separation index against closed forms, a direct search over directions, and invariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from separation_search import best_by_search, best_by_shares

from pkm.datasets import clusters
from pkm.datasets.separation import index_of_ratio, ratio_of_index, scale_to_separation, separations


def random_covariance(generator, d, ratio=10.0):
    axes = clusters.random_rotation(generator, d)
    return (axes * generator.uniform(1, ratio, d)) @ axes.T


@pytest.mark.parametrize(("distance", "printed"), [(4, 0.0101), (6, 0.2097), (8, 0.3423)])
def test_index_of_unit_normals_is_the_published_one(distance, printed):
    # Close, separated and well-separated structure in the words of Qiu and Joe.
    assert index_of_ratio(distance / 2) == pytest.approx(printed, abs=5e-5)


@given(st.floats(-0.99, 0.99))
def test_ratio_and_index_are_inverses(index):
    assert index_of_ratio(ratio_of_index(index)) == pytest.approx(index, abs=1e-12)


@given(st.floats(0.1, 50), st.floats(0.05, 20), st.floats(0.05, 20))
def test_one_dimension_has_a_closed_form(distance, sd_first, sd_second):
    found = separations(
        np.array([[0.0], [distance]]), np.array([[[sd_first**2]], [[sd_second**2]]])
    )[0, 1]
    assert found == pytest.approx(index_of_ratio(distance / (sd_first + sd_second)), abs=1e-12)


@given(st.integers(2, 6), st.floats(0.1, 10), st.integers(0, 1000))
def test_covariances_that_are_multiples_of_each_other_have_a_closed_form(d, factor, seed):
    # The Krylov space has one dimension here, so this also shows that Lanczos stops there unharmed.
    generator = np.random.default_rng(seed)
    covariance = random_covariance(generator, d)
    difference = 3 * generator.standard_normal(d)
    found = separations(
        np.array([0 * difference, difference]), np.array([covariance, factor * covariance])
    )[0, 1]
    mahalanobis = np.sqrt(difference @ np.linalg.solve(covariance, difference))
    assert found == pytest.approx(index_of_ratio(mahalanobis / (1 + np.sqrt(factor))), abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("d", [2, 3, 7])
def test_equals_a_direct_search_over_directions(d, seed):
    generator = np.random.default_rng(seed)
    first = random_covariance(generator, d)
    second = random_covariance(generator, d, 100.0)
    difference = 4 * generator.standard_normal(d)
    found = separations(np.array([0 * difference, difference]), np.array([first, second]))[0, 1]
    assert found == pytest.approx(best_by_search(difference, first, second), abs=1e-7)


@pytest.mark.parametrize("d", [33, 64, 128])
def test_few_nodes_are_enough_in_many_dimensions(d):
    # More dimensions than Lanczos steps, and the second covariance grown as far as a generator ever
    # does.
    generator = np.random.default_rng(d)
    first = random_covariance(generator, d)
    second = 4 * random_covariance(generator, d)
    difference = generator.standard_normal(d)
    found = separations(np.array([0 * difference, difference]), np.array([first, second]))[0, 1]
    assert found == pytest.approx(best_by_shares(difference, first, second), abs=1e-9)


@settings(max_examples=25)
@given(st.integers(0, 1000), st.integers(2, 5), st.integers(2, 5))
def test_no_invertible_linear_map_changes_the_index(seed, k, d):
    generator = np.random.default_rng(seed)
    centers = 5 * generator.standard_normal((k, d))
    covariances = np.stack([random_covariance(generator, d) for _ in range(k)])
    linear = clusters.random_rotation(generator, d) * generator.uniform(0.5, 2, d)
    mapped = separations(centers @ linear.T + 7, linear @ covariances @ linear.T)
    np.testing.assert_allclose(mapped, separations(centers, covariances), atol=1e-8)


def test_symmetric_with_empty_diagonal():
    generator = np.random.default_rng(0)
    found = separations(
        generator.standard_normal((5, 3)), np.stack([random_covariance(generator, 3)] * 5)
    )
    np.testing.assert_array_equal(found, found.T)
    assert np.isnan(np.diag(found)).all()


@pytest.mark.parametrize("separation", [-0.3, 0.01, 0.16, 0.75])
def test_scaling_reaches_the_prescribed_separation_from_unequal_clusters(separation):
    # Centers far from a simplex: some clusters are nearly lonely, and their covariances must grow a
    # lot.
    generator = np.random.default_rng(7)
    centers = generator.standard_normal((12, 3)) * np.array([1, 5, 20])
    covariances = np.stack([random_covariance(generator, 3) for _ in range(12)])
    spread, growth = scale_to_separation(
        centers, covariances, np.linalg.inv(covariances), separation
    )
    assert growth.min() >= 1
    found = separations(centers * spread, covariances * growth[:, None, None])
    np.testing.assert_allclose(np.nanmin(found, axis=1), separation, atol=1e-9)
