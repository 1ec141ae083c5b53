"""Points of generated sets against their recipes and recorded values."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from scipy.stats import ks_2samp, kstest
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from tiny_files import has_private_unit_cube

from pkm import datasets
from pkm.datasets.generated import clusters, families, samplers
from pkm.datasets.registry import G2_ENTRIES
from pkm.privacy import snap

RECORDED = {
    "generated-cities": (0, [33.71606923153166, 9.043220804367792]),
    "planted-100-3-4-0.1": (0, [0.12458623330588459, 0.41376313762803074]),
    "planted-small-100-3-4-0.1-5": (-1, [-0.08223507654541465, -0.7345714246084792]),
    "visits-100-2-4": (0, [-0.4482198501629868, 0.37360294726634]),
    "half-3-8-0.05": (0, [-0.027854647705462282, 0.014811366643180222]),
}


def class_means(dataset):
    labels = np.unique(dataset.labels)
    means = [dataset.points[dataset.labels == label].mean(axis=0) for label in labels]
    return np.stack(means)


def test_coordinates_are_scaled_by_latitude_and_longitude_bounds():
    dataset = datasets.load("generated-cities")
    scaled = datasets.scale(dataset, "public", clip=False)
    np.testing.assert_allclose(scaled.points, dataset.points / [90.0, 180.0], rtol=0, atol=1e-15)
    assert not scaled.uses_private_bounds


def test_generated_cities_are_heavy_tailed_and_reproducible():
    dataset = datasets.load("generated-cities")
    assert dataset.points.shape == (50_000, 2)
    assert dataset.origin == "generated"
    assert "No real places" in dataset.citation
    np.testing.assert_array_equal(dataset.points, datasets.load("generated-cities").points)
    sizes = np.sort(np.bincount(dataset.labels))[::-1]
    # The largest tenth of the cities has several times its share; no city has a majority.
    largest_tenth = sizes[: len(sizes) // 10]
    assert largest_tenth.sum() > 0.35 * sizes.sum()
    assert sizes[0] < 0.5 * sizes.sum()
    assert sizes[0] > 20 * np.median(sizes)
    # Most of the variance is between cities.
    means = class_means(dataset)
    cities = np.searchsorted(np.unique(dataset.labels), dataset.labels)
    within = np.mean((dataset.points - means[cities]) ** 2)
    assert within < 0.01 * dataset.points.var(axis=0).mean()


def test_generated_visits_are_of_persons_with_a_heavy_tail():
    dataset = datasets.load("visits-5000-3-4", groups="user")
    sizes = np.bincount(dataset.groups)
    assert len(dataset.points) == sizes.sum() == 5000
    # A tenth as many persons as visits, each with one at least.
    assert (len(sizes), sizes.min()) == (500, 1)
    assert sizes.max() > 20 * np.median(sizes)
    # Most visits of most persons are to one place.
    most = [np.bincount(dataset.labels[dataset.groups == person]).max() for person in range(500)]
    assert np.mean(most / sizes) > 0.7


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_values_of_the_generated_sets(name):
    # These pin the seeds: a change of them makes every stored result of these sets stale.
    row, expected = RECORDED[name]
    points = datasets.load(name).points
    np.testing.assert_allclose(points[row, :2], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("radius", [0, 0.01, 0.05])
@pytest.mark.parametrize(("d", "k"), [(2, 16), (5, 7), (1, 3)])
def test_planted_balls(d, k, radius):
    name = f"planted-1000-{d}-{k}-{radius}"
    dataset = datasets.load(name)
    assert dataset.points.shape == (1000, d)
    assert dataset.n_clusters == k
    np.testing.assert_array_equal(dataset.domain, np.repeat([[-1.0], [1.0]], d, axis=1))
    sizes = np.bincount(dataset.labels)
    assert len(sizes) == k
    assert np.ptp(sizes) <= 1
    assert np.linalg.norm(dataset.points, axis=1).max() <= 1 + 1e-12
    recipe = families.find(name)[1]
    centers = samplers.plant_balls(recipe)
    distances = np.linalg.norm(dataset.points - centers[dataset.labels], axis=1)
    assert distances.max() <= radius * (1 + 1e-9)
    if radius:
        assert pdist(centers).min() >= 4 * radius
        # Uniform in the ball: the share within half the radius is 2^-d (five standard errors).
        inner = np.mean(distances <= radius / 2)
        assert abs(inner - 2.0**-d) < 5 * np.sqrt(2.0**-d / 1000)


def test_balls_of_radius_zero_are_single_grid_points():
    dataset = datasets.load("planted-900-4-9-0")
    points = snap(datasets.scale(dataset, "public", clip=False).points)
    assert len(np.unique(points, axis=0)) == 9
    for label in range(9):
        assert len(np.unique(points[dataset.labels == label], axis=0)) == 1


def test_planted_centers_do_not_depend_on_n():
    small = families.find("planted-100-6-10-0.05")[1]
    large = families.find("planted-100000-6-10-0.05")[1]
    centers = samplers.plant_balls(small)
    np.testing.assert_array_equal(centers, samplers.plant_balls(large))
    # In six dimensions the distances of ten points of the unit ball can be about one.
    assert pdist(centers).min() > 0.8


def test_planted_small_adds_one_distant_ball():
    plain = families.find("planted-900-4-9-0.05")[1]
    extended = families.find("planted-small-900-4-9-0.05-7")[1]
    centers = samplers.plant_balls(extended)
    np.testing.assert_array_equal(centers[:-1], samplers.plant_balls(plain))
    dataset = datasets.load("planted-small-900-4-9-0.05-7")
    assert dataset.points.shape == (907, 4)
    assert dataset.n_clusters == 10
    assert np.bincount(dataset.labels).tolist() == [100] * 9 + [7]
    small_ball = dataset.points[dataset.labels == 9]
    distances = np.linalg.norm(small_ball - centers[-1], axis=1)
    assert distances.max() <= 0.05 * (1 + 1e-9)
    assert cdist(centers[-1:], centers[:-1]).min() > 0.5


@pytest.mark.parametrize(
    ("d", "k", "radius"), [(8, 32, "0.05"), (4, 64, "0.2"), (2, 16, "0.001"), (1, 4, "0.05")]
)
def test_half_is_a_subset_of_separated_points(d, k, radius):
    dataset = datasets.load(f"half-{d}-{k}-{radius}")
    assert dataset.points.shape == (k, d)
    assert dataset.n_clusters == k
    assert sorted(dataset.labels) == list(range(k))
    np.testing.assert_array_equal(dataset.domain, np.repeat([[-1.0], [1.0]], d, axis=1))
    assert np.linalg.norm(dataset.points, axis=1).max() <= float(radius)
    candidates = float(radius) * samplers.plant_centers(d, 2 * k)
    assert pdist(candidates).min() >= float(radius) / 10
    # The k points are distinct points of the 2 k candidates.
    nearest = cdist(dataset.points, candidates).argmin(axis=1)
    np.testing.assert_array_equal(dataset.points, candidates[nearest])
    assert len(set(nearest)) == k


@pytest.mark.statistical
def test_half_contains_each_point_with_probability_half():
    # The draw depends on the radius in the name: 400 names, 6 of 12 candidates in each set.
    unit_candidates = samplers.plant_centers(2, 12)
    counts = np.zeros(12)
    for step in range(1, 401):
        radius = step / 1e4
        points = datasets.load(f"half-2-6-{radius:.4f}").points
        candidates = radius * unit_candidates
        nearest = cdist(points, candidates).argmin(axis=1)
        counts[nearest] += 1
    # Binomial with 400 draws of 1/2 has standard deviation 10; the 12 counts lie within 5.5
    # standard deviations except with probability 5e-7.
    assert np.abs(counts - 200).max() < 55


def cluster_means(points, labels):
    means = [points[labels == label].mean(axis=0) for label in range(labels.max() + 1)]
    return np.stack(means)


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


def test_recorded_values():
    # They pin generator and seeds: a change of either makes every stored result of these sets
    # stale.
    dataset = datasets.load("synth-4-2-0")
    expected = [[-11.1873, 0.4946], [-19.8189, -11.1064]]
    np.testing.assert_allclose(dataset.points[:2], expected, atol=2e-4)
    assert dataset.labels[:2].tolist() == [1, 3]


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_largest_number_of_clusters_has_no_empty_cluster():
    assert samplers.ratio_sizes(9900, 140).min() == 1
    with pytest.raises(ValueError, match="too few"):
        samplers.ratio_sizes(100, 140)


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["g2-2-10", "g2-2-100", "g2-16-30", "g2-64-50", "g2-256-100"])
def test_g2_generator_has_the_published_distribution(name, data_dir):
    d, sd = (int(number) for number in name.split("-")[1:])
    published = datasets.load(name, data_dir=data_dir)
    simulated = datasets.load(f"{name}-generated")
    assert published.origin == ("bundled" if d <= 64 else "data folder")
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


def test_published_g2_points_are_rounded_down(data_dir):
    # Rounding to nearest would leave the mean at the center, rounding down lowers it by one half:
    # therefore the generator uses floor.
    centers = np.repeat([500, 600], 1024)[:, None]
    offsets = []
    weights = []
    for name in G2_ENTRIES:
        d, sd = (int(number) for number in name.split("-")[1:])
        if d <= 64:
            points = datasets.load(name, data_dir=data_dir).points
            offsets.append(np.mean(points - centers))
            weights.append(2048 * d / sd**2)
    error = 1 / np.sqrt(np.sum(weights))
    assert np.average(offsets, weights=weights) == pytest.approx(-0.5, abs=4 * error)
    assert error < 0.02


RECORDED_GAUSSIAN = [0.05868843307930661, 0.05091869038109278, -0.03367865730466463]


@pytest.mark.statistical
def test_gaussian_follows_the_published_recipe():
    dataset = datasets.load("gaussian-10")
    assert dataset.points.shape == (30000, 10)
    assert dataset.points.max() == 1.0
    assert has_private_unit_cube(dataset)
    assert np.bincount(dataset.labels).tolist() == [3000] * 10
    assert dataset.clients is None
    means = [dataset.points[dataset.labels == label].mean(axis=0) for label in range(10)]
    residuals = dataset.points - np.stack(means)[dataset.labels]

    # Before the division the variance was 0.5 along every axis (standard error 0.0013), around
    # centers in the unit cube.
    divisor = np.sqrt(0.5 / residuals.var())
    variances = residuals.var(axis=0) * divisor**2
    assert np.all(abs(variances - 0.5) < 0.02)
    centers = np.stack(means) * divisor
    assert np.all((centers > -0.06) & (centers < 1.06))
    assert centers.std() > 0.2

    # The axes are uncorrelated.
    correlations = np.corrcoef(residuals.T)[~np.eye(10, dtype=bool)]
    assert abs(correlations).max() < 0.03


def test_gaussian_has_about_the_published_inertia():
    # The draw of the reference has 7095, five draws of this generator have 7286 to 8530: all
    # points are divided by one largest value.
    points = datasets.load("gaussian-10").points
    model = KMeans(10, n_init=1, random_state=0).fit(points)
    assert 6500 < model.inertia_ < 9000
    assert np.bincount(model.labels_).min() > 2500


def test_recorded_values_of_gaussian_10():
    # They pin the seed: a change of it makes every stored result of this set stale.
    points = datasets.load("gaussian-10").points
    np.testing.assert_allclose(points[0, :3], RECORDED_GAUSSIAN, atol=1e-12)
