"""Random clusters: separation, shapes, outliers, against direct search."""

import re

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import chi2, kstest
from separation_search import best_by_search, best_by_shares

from pkm.datasets.generated import clusters
from pkm.datasets.generated.separation import separations

SHAPES = [(2, 2), (3, 2), (32, 2), (128, 2), (4, 3), (16, 16), (8, 64), (5, 200)]


def random_mixture(k, d, separation, seed=0):
    generator = np.random.default_rng(seed)
    return clusters.random_clusters(generator, k, d, separation)


def nearest_separations(centers, covariances, measure):
    """Smallest separation index of each cluster, by a measure of one pair."""
    k = len(centers)
    index = np.full((k, k), np.inf)
    for i in range(k):
        for j in range(k):
            if i != j:
                difference = centers[j] - centers[i]
                index[i, j] = measure(difference, covariances[i], covariances[j])
    return index.min(axis=1)


def cluster_means(points, labels):
    means = [points[labels == label].mean(axis=0) for label in range(labels.max() + 1)]
    return np.stack(means)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "d"), SHAPES)
@pytest.mark.parametrize("separation", [0.16, 0.75])
def test_clusters_have_the_prescribed_nearest_separation(k, d, separation):
    mixture = random_mixture(k, d, separation)
    index = separations(mixture.centers, mixture.covariances())
    np.testing.assert_allclose(np.nanmin(index, axis=1), separation, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "d"), [(3, 2), (7, 2), (4, 3), (3, 40)])
def test_prescribed_separation_holds_by_direct_search(k, d):
    # Every pair by a general optimizer (few dimensions) or by dense solves (many), straight from
    # means and covariances.
    mixture = random_mixture(k, d, 0.21)
    measure = best_by_search if d < 10 else best_by_shares
    index = nearest_separations(mixture.centers, mixture.covariances(), measure)
    np.testing.assert_allclose(index, 0.21, atol=1e-6)


def test_prescribed_separation_holds_for_sampled_points():
    mixture = random_mixture(4, 3, 0.25)
    points, labels = clusters.draw_clusters(np.random.default_rng(1), mixture, [20_000] * 4, 0)
    means = cluster_means(points, labels)
    covariances = [np.cov(points[labels == label].T) for label in range(4)]
    index = nearest_separations(means, covariances, best_by_search)
    # A standard deviation from 20,000 points has a relative error of 0.5 %, the index changes by
    # about half of that.
    np.testing.assert_allclose(index, 0.25, atol=0.01)


@pytest.mark.statistical
def test_points_follow_the_mixture():
    # Squared Mahalanobis distances of normal points are chi-squared with d degrees of freedom.
    mixture = random_mixture(3, 5, 0.2)
    points, labels = clusters.draw_clusters(
        np.random.default_rng(2), mixture, [2000, 3000, 4000], 0
    )
    for label, covariance in enumerate(mixture.covariances()):
        residuals = points[labels == label] - mixture.centers[label]
        precision = np.linalg.inv(covariance)
        squared_distances = np.einsum("nd,nd->n", residuals @ precision, residuals)
        assert kstest(squared_distances, chi2(5).cdf).pvalue > 1e-3


@pytest.mark.parametrize(("k", "d"), SHAPES)
def test_centers_are_vertices_of_regular_simplices(k, d):
    centers = clusters.simplex_centers(k, d)
    distances = cdist(centers, centers)
    off_diagonal = distances[~np.eye(k, dtype=bool)].reshape(k, -1)
    np.testing.assert_allclose(off_diagonal.min(axis=1), 2, atol=1e-12)
    if k <= d + 1:
        np.testing.assert_allclose(off_diagonal, 2, atol=1e-12)


def test_variances_lie_within_a_factor_of_ten():
    variances = random_mixture(6, 20, 0.2).variances
    ratios = variances.max(axis=1) / variances.min(axis=1)
    assert np.all(ratios <= 10)


@pytest.mark.parametrize("d", [2, 5, 30])
def test_rotations_are_orthogonal(d):
    rotation = clusters.random_rotation(np.random.default_rng(d), d)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(d), atol=1e-12)


@pytest.mark.statistical
def test_rotations_are_haar_distributed():
    # Without the sign correction the first entries of a QR factor are never positive; under the
    # Haar measure they are symmetric around 0.
    entries = []
    for seed in range(400):
        rotation = clusters.random_rotation(np.random.default_rng(seed), 3)
        entries.append(rotation[0, 0])
    assert kstest(entries, "uniform", args=(-1, 2)).pvalue > 1e-3


@pytest.mark.statistical
def test_outliers_are_uniform_in_the_mixture_box():
    mixture = random_mixture(3, 4, 0.2)
    sizes = [500, 500, 500]
    points, labels = clusters.draw_clusters(np.random.default_rng(0), mixture, sizes, 2000)
    lower, upper = clusters.mixture_box(mixture, sizes)
    outliers = points[labels == clusters.OUTLIER]
    relative = (outliers - lower) / (upper - lower)
    assert kstest(relative.ravel(), "uniform").pvalue > 1e-3
    # The box is that of the mixture: its sample moments agree.
    inliers = points[labels != clusters.OUTLIER]
    midpoint = (lower + upper) / 2
    standard_error = inliers.std() / np.sqrt(1500)
    np.testing.assert_allclose(midpoint, inliers.mean(axis=0), atol=4 * standard_error)
    np.testing.assert_allclose((upper - lower) / 8, inliers.std(axis=0), rtol=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 2, 0.2), "n_clusters=1"),
        ((2, 1, 0.2), "n_dimensions=1"),
        ((2, 2, 1.0), "separation=1.0"),
    ],
)
def test_invalid_generator_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        clusters.random_clusters(np.random.default_rng(0), *arguments)
