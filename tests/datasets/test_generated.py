"""Generated data sets: separation, sizes, seeds, names; the G2 generator against its files."""

import re

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import chi2, ks_2samp, kstest
from separation_search import best_by_search, best_by_shares
from sklearn.datasets import make_blobs

from pkm import datasets
from pkm.datasets.generated import clusters, families, samplers
from pkm.datasets.generated.separation import separations
from pkm.datasets.registry import G2_FILES

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


@pytest.mark.parametrize(("k", "d"), SHAPES)
@pytest.mark.parametrize("separation", [0.16, 0.75])
def test_clusters_have_the_prescribed_nearest_separation(k, d, separation):
    mixture = random_mixture(k, d, separation)
    index = separations(mixture.centers, mixture.covariances())
    np.testing.assert_allclose(np.nanmin(index, axis=1), separation, atol=1e-9)


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


@pytest.mark.parametrize(("n", "k"), [(10_000, 2), (9_957, 32), (9_900, 128), (10_000, 3)])
def test_cluster_sizes_have_ratios_one_to_k(n, k):
    sizes = samplers.ratio_sizes(n, k)
    weights = np.arange(1, k + 1)
    exact = n * weights / (k * (k + 1) / 2)
    assert sizes.sum() == n
    assert np.all(np.abs(sizes - exact) < 1)
    assert sizes.min() >= 1


@pytest.mark.parametrize(
    "name", ["synth-2-2-0", "synth-8-16-1", "synth-32-4-2", "synthk-128-0", "synthk-2-2"]
)
def test_synth_follows_its_recipe(name):
    dataset = datasets.load(name)
    recipe = families.find(name)[1]
    separation, n_outliers = samplers.draw_synth_parameters(recipe)
    assert 0.16 <= separation <= 0.26
    assert 0 <= n_outliers <= 100
    assert len(dataset.points) == 10_000
    assert np.sum(dataset.labels == clusters.OUTLIER) == n_outliers
    sizes = np.bincount(dataset.labels[dataset.labels >= 0])
    expected = samplers.ratio_sizes(10_000 - n_outliers, dataset.n_clusters)
    np.testing.assert_array_equal(sizes, expected)


@pytest.mark.statistical
def test_outlier_counts_and_separations_cover_their_ranges():
    recipes = [families.find(f"synth-4-4-{replicate}")[1] for replicate in range(300)]
    parameters = np.array([samplers.draw_synth_parameters(recipe) for recipe in recipes])
    prescribed, outliers = parameters.T
    assert kstest(prescribed, "uniform", args=(0.16, 0.10)).pvalue > 1e-3
    assert outliers.min() <= 3
    assert outliers.max() >= 97
    standard_error = 29.2 / np.sqrt(300)
    assert abs(outliers.mean() - 50) < 4 * standard_error


def test_outlier_count_can_be_set():
    random_count = datasets.load("synth-4-2-0")
    fixed_count = datasets.load("synth-4-2-0-o7")
    assert np.sum(fixed_count.labels == clusters.OUTLIER) == 7
    assert random_count.fingerprint != fixed_count.fingerprint
    random_recipe = families.find("synth-4-2-0")[1]
    fixed_recipe = families.find("synth-4-2-0-o7")[1]
    separation, _ = samplers.draw_synth_parameters(random_recipe)
    assert samplers.draw_synth_parameters(fixed_recipe)[0] == separation


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


@pytest.mark.parametrize("separation", [0.25, 0.5, 0.75])
@pytest.mark.parametrize(("k", "d"), [(2, 16), (4, 2), (16, 8)])
def test_ablation_sizes_are_close_to_their_mean(k, d, separation):
    dataset = datasets.load(f"ablation-{k}-{d}-{separation}")
    sizes = np.bincount(dataset.labels, minlength=k)
    assert dataset.labels.min() == 0
    assert len(sizes) == k
    mean_size = 2048 / k
    assert np.all((sizes >= 0.7 * mean_size) & (sizes <= 1.3 * mean_size))
    assert 1433 < len(dataset.points) < 2663


@pytest.mark.parametrize(("n", "k", "d"), [(10_000, 2, 5), (10_001, 5, 2)])
def test_timesynth_is_balanced(n, k, d):
    dataset = datasets.load(f"timesynth-{n}-{k}-{d}")
    sizes = np.bincount(dataset.labels)
    assert dataset.points.shape == (n, d)
    assert len(sizes) == k
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize(
    "name",
    [
        "synth-4-8-1",
        "synthk-16-0",
        "ablation-4-4-0.5",
        "timesynth-1000-2-2",
        "g2-4-20-generated",
        "g2-1024-10",
        "blobs-1000-3-4",
        "synth-10d",
    ],
)
def test_loading_by_name_is_reproducible(name):
    first = datasets.load(name)
    second = datasets.load(name)
    np.testing.assert_array_equal(first.points, second.points)
    np.testing.assert_array_equal(first.labels, second.labels)
    assert first.fingerprint == second.fingerprint == datasets.fingerprint(name)
    assert first.origin == "generated"
    assert datasets.obtainable(name) is None


def test_recorded_values():
    # They pin generator and seeds: a change of either makes every stored result of these sets
    # stale.
    dataset = datasets.load("synth-4-2-0")
    expected = [[-11.1873, 0.4946], [-19.8189, -11.1064]]
    np.testing.assert_allclose(dataset.points[:2], expected, atol=2e-4)
    assert dataset.labels[:2].tolist() == [1, 3]


@pytest.mark.parametrize(("name", "d"), [("synth-10d", 10), ("synth-100d", 100)])
def test_synth_of_the_dpm_paper(name, d):
    dataset = datasets.load(name)
    points, labels = make_blobs(
        n_samples=100_000,
        n_features=d,
        centers=64,
        random_state=42,
        center_box=(-100, 100),
        cluster_std=1,
    )
    np.testing.assert_array_equal(dataset.points, points)
    np.testing.assert_array_equal(dataset.labels, labels)
    assert dataset.n_clusters == 64
    assert dataset.labels.dtype == np.int64
    assert dataset.origin == "generated"
    assert datasets.fingerprint(name) == datasets.fingerprint(f"blobs-100000-{d}-64")


def test_recorded_values_of_synth_10d():
    # They pin scikit-learn's generator, on which the points depend; cluster sizes differ by at
    # most one.
    dataset = datasets.load("synth-10d")
    expected = [25.535641, 40.248134, -10.273501]
    np.testing.assert_allclose(dataset.points[0, :3], expected, atol=1e-6)
    sizes = np.bincount(dataset.labels)
    assert sizes.max() - sizes.min() <= 1
    assert len(sizes) == 64


def test_range_of_blobs_is_the_center_box():
    dataset = datasets.load("synth-10d")
    assert dataset.common_range == (-100, 100)
    assert not dataset.common_range_is_private
    is_outside = (np.abs(dataset.points) > 100).any(axis=1)
    n_outside = is_outside.sum()
    assert n_outside > 0
    assert datasets.scale(dataset, "range").clipped == n_outside
    means = cluster_means(dataset.points, dataset.labels)
    assert len(means) == 64
    # A mean of 1,562 points with deviation 1 lies within 0.13 of its center (five standard errors).
    assert np.abs(means).max() < 100.13
    residuals = dataset.points - means[dataset.labels]
    np.testing.assert_allclose(residuals.std(axis=0), 1, atol=0.01)
    assert datasets.scale(dataset, "public").clipped == 0


def test_fingerprint_of_blobs_depends_on_make_blobs(monkeypatch):
    before = datasets.fingerprint("synth-10d")
    assert before != datasets.fingerprint("synth-100d")

    def make_blobs():
        """Another generator."""

    monkeypatch.setattr("sklearn.datasets.make_blobs", make_blobs)
    assert datasets.fingerprint("synth-10d") != before


def test_points_and_fingerprints_differ_between_names():
    names = [
        "synth-2-2-0",
        "synth-2-2-1",
        "synthk-2-0",
        "synthk-2-1",
        "ablation-2-2-0.25",
        "ablation-2-2-0.5",
    ]
    loaded = [datasets.load(name) for name in names]
    assert len({dataset.fingerprint for dataset in loaded}) == len(names)
    assert len({dataset.points[0].tobytes() for dataset in loaded}) == len(names)


@pytest.mark.parametrize(
    "name",
    [
        "synth-4-2-0",
        "synth-32-512-0",
        "synthk-128-0",
        "ablation-16-16-0.75",
        "g2-512-10",
        "synth-10d",
    ],
)
def test_public_domain_contains_the_generated_points(name):
    dataset = datasets.load(name)
    outside = (dataset.points < dataset.domain[0]) | (dataset.points > dataset.domain[1])
    # The domain covers five standard deviations around each center: 6e-7 of the coordinates lie
    # outside.
    assert outside.sum() <= 10
    # The domain is public: no bound is a coordinate of a point.
    assert np.all(dataset.domain == np.round(dataset.domain))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("synth-1-2-0", "k=1 at least 2"),
        ("synth-2-1-0", "d=1 should be at least 2"),
        ("synth-141-2-0", "k=141 is too large for n=10000; at most 140"),
        ("synth-2-2-0-o101", "101 outliers should be at most 100"),
        ("synth-2-9999-0", "d=9999 should be at most 4096"),
        ("ablation-2-2-0.0", "separation=0.0 should be between 0 and 1"),
        ("timesynth-3-5-2", "k=5 is too large for n=3"),
        ("blobs-5-2-6", "k=6 is too large for n=5"),
        ("blobs-5-2-1", "k=1 at least 2"),
        ("blobs-10000000-4096-2", "n=10000000 times d=4096 should be at most 1000000000"),
        ("blobs-100-2", "unknown data set"),
        ("synth-20d", "unknown data set"),
        ("synth-02-2-0", "unknown data set"),
        ("synth-2-2", "unknown data set"),
        ("g2-2-10-made", "unknown data set"),
    ],
)
def test_names_with_invalid_numbers_are_refused(name, message):
    for function in (datasets.load, datasets.fingerprint, datasets.obtainable):
        with pytest.raises(ValueError, match=re.escape(message)):
            function(name)


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


def test_largest_number_of_clusters_has_no_empty_cluster():
    assert samplers.ratio_sizes(9900, 140).min() == 1
    with pytest.raises(ValueError, match="too few"):
        samplers.ratio_sizes(100, 140)


def test_families_contain_the_sets_of_the_paper():
    counts = {family.name: len(family.members) for family in families.FAMILIES}
    assert counts == {
        "g2": 110,
        "synth": 135,
        "synthk": 21,
        "ablation": 48,
        "timesynth": 8,
        "blobs": 2,
        "sklearn": 12,
        "gaussians": 1,
        "cities": 1,
        "planted": 1,
        "planted-small": 1,
        "half": 1,
    }
    for family in families.FAMILIES:
        for name in family.members:
            assert families.find(name)[0] is family


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["g2-2-10", "g2-2-100", "g2-16-30", "g2-64-50", "g2-256-100"])
def test_g2_generator_has_the_published_distribution(name, mirror):
    d, sd = (int(number) for number in name.split("-")[1:])
    published = datasets.load(name, mirror=mirror)
    simulated = datasets.load(f"{name}-generated")
    assert published.origin == "mirror"
    assert simulated.origin == "generated"
    assert published.fingerprint != simulated.fingerprint
    np.testing.assert_array_equal(published.labels, simulated.labels)
    np.testing.assert_array_equal(published.domain, simulated.domain)
    assert np.all(simulated.points == np.floor(simulated.points))
    n_values = 1024 * d
    for label in (0, 1):
        first = published.points[published.labels == label]
        second = simulated.points[simulated.labels == label]
        assert abs(first.mean() - second.mean()) < 4 * sd * np.sqrt(2 / n_values)
        assert abs(first.std() / second.std() - 1) < 4 / np.sqrt(n_values)
        assert ks_2samp(first.ravel(), second.ravel()).pvalue > 1e-3
        # The coordinates are independent: their correlations have the standard error of 1024
        # points.
        for points in (first, second):
            correlations = np.corrcoef(points.T)[~np.eye(d, dtype=bool)]
            root_mean_square = np.sqrt(np.mean(correlations**2))
            tolerance = 1 if d == 2 else 0.1
            assert abs(root_mean_square * np.sqrt(1024) - 1) < tolerance


def test_published_g2_points_are_rounded_down(mirror):
    # Rounding to nearest would leave the mean at the center, rounding down lowers it by one half:
    # therefore the generator uses floor.
    centers = np.repeat([500, 600], 1024)[:, None]
    offsets = []
    weights = []
    for name in G2_FILES:
        d, sd = (int(number) for number in name.split("-")[1:])
        if d <= 64:
            points = datasets.load(name, mirror=mirror).points
            offsets.append(np.mean(points - centers))
            weights.append(2048 * d / sd**2)
    error = 1 / np.sqrt(np.sum(weights))
    assert np.average(offsets, weights=weights) == pytest.approx(-0.5, abs=4 * error)
    assert error < 0.02
