"""Generated data sets: prescribed separation, sizes, seeds, names; the G2 generator against the
published files.
"""

import re

import numpy as np
import pytest
from scipy.stats import chi2, ks_2samp, kstest
from separation_search import best_by_search, best_by_shares
from sklearn.datasets import make_blobs

from pkm import datasets
from pkm.datasets import clusters, generated
from pkm.datasets.registry import G2_HASHES
from pkm.datasets.separation import separations

SHAPES = [(2, 2), (3, 2), (32, 2), (128, 2), (4, 3), (16, 16), (8, 64), (5, 200)]


def law(k, d, separation, seed=0):
    return clusters.random_clusters(np.random.default_rng(seed), k, d, separation)


@pytest.mark.parametrize(("k", "d"), SHAPES)
@pytest.mark.parametrize("separation", [0.16, 0.75])
def test_every_cluster_has_the_prescribed_separation_from_its_nearest_neighbor(k, d, separation):
    found = law(k, d, separation)
    index = separations(found.centers, found.covariances())
    np.testing.assert_allclose(np.nanmin(index, axis=1), separation, atol=1e-9)


@pytest.mark.parametrize(("k", "d"), [(3, 2), (7, 2), (4, 3), (3, 40)])
def test_prescribed_separation_measured_independently(k, d):
    # Every pair by a general optimizer (few dimensions) or by dense solves (many), straight from
    # means and covariances.
    found = law(k, d, 0.21)
    covariances = found.covariances()
    measure = best_by_search if d < 10 else best_by_shares
    index = np.full((k, k), np.inf)
    for i in range(k):
        for j in range(k):
            if i != j:
                index[i, j] = measure(
                    found.centers[j] - found.centers[i], covariances[i], covariances[j]
                )
    np.testing.assert_allclose(index.min(axis=1), 0.21, atol=1e-6)


def test_prescribed_separation_measured_on_points():
    found = law(4, 3, 0.25)
    points, labels = clusters.draw(np.random.default_rng(1), found, [20_000] * 4, 0)
    means = np.stack([points[labels == i].mean(axis=0) for i in range(4)])
    covariances = np.stack([np.cov(points[labels == i].T) for i in range(4)])
    index = [
        min(
            best_by_search(means[j] - means[i], covariances[i], covariances[j])
            for j in range(4)
            if j != i
        )
        for i in range(4)
    ]
    # A standard deviation from 20,000 points has a relative error of 0.5 %, the index moves by
    # about half of that.
    np.testing.assert_allclose(index, 0.25, atol=0.01)


@pytest.mark.statistical
def test_points_follow_the_law():
    # Squared Mahalanobis distances of normal points are chi-squared with d degrees of freedom.
    found = law(3, 5, 0.2)
    points, labels = clusters.draw(np.random.default_rng(2), found, [2000, 3000, 4000], 0)
    for i, covariance in enumerate(found.covariances()):
        away = points[labels == i] - found.centers[i]
        distances = np.einsum("nd,nd->n", away @ np.linalg.inv(covariance), away)
        assert kstest(distances, chi2(5).cdf).pvalue > 1e-3


@pytest.mark.parametrize(("k", "d"), SHAPES)
def test_centers_stand_on_a_simplex_of_equal_edges(k, d):
    centers = clusters.simplex_centers(k, d)
    distances = np.linalg.norm(centers[:, None] - centers[None], axis=2)[
        ~np.eye(k, dtype=bool)
    ].reshape(k, -1)
    np.testing.assert_allclose(distances.min(axis=1), 2, atol=1e-12)
    if k <= d + 1:
        np.testing.assert_allclose(distances, 2, atol=1e-12)


def test_eigenvalues_lie_within_a_factor_of_ten():
    found = law(6, 20, 0.2)
    assert np.all(found.variances.max(axis=1) / found.variances.min(axis=1) <= 10)


@pytest.mark.parametrize("d", [2, 5, 30])
def test_rotations_are_orthogonal(d):
    rotation = clusters.random_rotation(np.random.default_rng(d), d)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(d), atol=1e-12)


@pytest.mark.statistical
def test_rotations_favor_no_direction():
    # Without the sign correction the first entries of a QR factor are never positive; Haar's are
    # symmetric around 0.
    entries = [
        clusters.random_rotation(np.random.default_rng(seed), 3)[0, 0] for seed in range(400)
    ]
    assert kstest(entries, "uniform", args=(-1, 2)).pvalue > 1e-3


@pytest.mark.parametrize(("n", "k"), [(10_000, 2), (9_957, 32), (9_900, 128), (10_000, 3)])
def test_sizes_have_the_ratio_one_to_k(n, k):
    sizes = generated.ratio_sizes(n, k)
    exact = n * np.arange(1, k + 1) / (k * (k + 1) / 2)
    assert sizes.sum() == n
    assert np.all(np.abs(sizes - exact) < 1)
    assert sizes.min() >= 1


@pytest.mark.parametrize(
    "name", ["synth-2-2-0", "synth-8-16-1", "synth-32-4-2", "synthk-128-0", "synthk-2-2"]
)
def test_synth_is_what_the_recipe_says(name):
    dataset = datasets.load(name)
    separation, n_outliers = generated.synth_parameters(generated.find(name)[1])
    assert 0.16 <= separation <= 0.26
    assert 0 <= n_outliers <= 100
    assert len(dataset.points) == 10_000
    assert np.sum(dataset.labels == clusters.OUTLIER) == n_outliers
    sizes = np.bincount(dataset.labels[dataset.labels >= 0])
    np.testing.assert_array_equal(
        sizes, generated.ratio_sizes(10_000 - n_outliers, dataset.n_clusters)
    )


@pytest.mark.statistical
def test_outlier_counts_and_separations_fill_their_ranges():
    recipes = [generated.find(f"synth-4-4-{replicate}")[1] for replicate in range(300)]
    separations, outliers = np.array([generated.synth_parameters(recipe) for recipe in recipes]).T
    assert kstest(separations, "uniform", args=(0.16, 0.10)).pvalue > 1e-3
    assert outliers.min() <= 3 and outliers.max() >= 97
    assert abs(outliers.mean() - 50) < 4 * 29.2 / np.sqrt(300)


def test_outlier_count_can_be_given():
    drawn = datasets.load("synth-4-2-0")
    given = datasets.load("synth-4-2-0-o7")
    assert np.sum(given.labels == clusters.OUTLIER) == 7
    recipe = generated.find("synth-4-2-0")[1]
    other = generated.find("synth-4-2-0-o7")[1]
    assert generated.synth_parameters(recipe)[0] == generated.synth_parameters(other)[0]
    assert drawn.fingerprint != given.fingerprint


@pytest.mark.statistical
def test_outliers_lie_in_the_box_of_the_mixture():
    found = law(3, 4, 0.2)
    sizes = [500, 500, 500]
    points, labels = clusters.draw(np.random.default_rng(0), found, sizes, 2000)
    lower, upper = clusters.mixture_box(found, sizes)
    outliers = points[labels == clusters.OUTLIER]
    assert kstest(((outliers - lower) / (upper - lower)).ravel(), "uniform").pvalue > 1e-3
    # The box is that of the mixture: its sample moments agree.
    inliers = points[labels != clusters.OUTLIER]
    np.testing.assert_allclose(
        (lower + upper) / 2, inliers.mean(axis=0), atol=4 * inliers.std() / np.sqrt(1500)
    )
    np.testing.assert_allclose((upper - lower) / 8, inliers.std(axis=0), rtol=0.1)


@pytest.mark.parametrize("separation", [0.25, 0.5, 0.75])
@pytest.mark.parametrize(("k", "d"), [(2, 16), (4, 2), (16, 8)])
def test_ablation_sizes_lie_around_their_mean(k, d, separation):
    dataset = datasets.load(f"ablation-{k}-{d}-{separation}")
    sizes = np.bincount(dataset.labels, minlength=k)
    assert dataset.labels.min() == 0 and len(sizes) == k
    assert np.all((sizes >= 0.7 * 2048 / k) & (sizes <= 1.3 * 2048 / k))
    assert 1433 < len(dataset.points) < 2663


@pytest.mark.parametrize(("n", "k", "d"), [(10_000, 2, 5), (10_001, 5, 2)])
def test_timesynth_is_balanced(n, k, d):
    dataset = datasets.load(f"timesynth-{n}-{k}-{d}")
    sizes = np.bincount(dataset.labels)
    assert dataset.points.shape == (n, d) and len(sizes) == k
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
def test_a_name_always_means_the_same_points(name):
    first = datasets.load(name)
    second = datasets.load(name)
    np.testing.assert_array_equal(first.points, second.points)
    np.testing.assert_array_equal(first.labels, second.labels)
    assert first.fingerprint == second.fingerprint == datasets.fingerprint(name)
    assert first.origin == "generated"
    assert datasets.obtainable(name) is None


def test_recorded_values():
    # Pins generator and seeds: whoever changes either must know that every stored result of these
    # sets goes stale.
    dataset = datasets.load("synth-4-2-0")
    np.testing.assert_allclose(
        dataset.points[:2], [[-11.1873, 0.4946], [-19.8189, -11.1064]], atol=2e-4
    )
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
    assert (dataset.n_clusters, dataset.labels.dtype, dataset.origin) == (64, np.int64, "generated")
    assert datasets.fingerprint(name) == datasets.fingerprint(f"blobs-100000-{d}-64")


def test_recorded_values_of_synth_10d():
    # Pins scikit-learn's generator, on which the points depend; equal counts of points per cluster,
    # up to one.
    dataset = datasets.load("synth-10d")
    np.testing.assert_allclose(dataset.points[0, :3], [25.535641, 40.248134, -10.273501], atol=1e-6)
    sizes = np.bincount(dataset.labels)
    assert sizes.max() - sizes.min() <= 1 and len(sizes) == 64


def test_the_range_of_blobs_is_the_box_of_their_centers():
    dataset = datasets.load("synth-10d")
    assert dataset.common_range == (-100, 100) and not dataset.common_range_is_private
    outside = (np.abs(dataset.points) > 100).any(axis=1).sum()
    assert datasets.scale(dataset, "range").clipped == outside > 0
    means = np.stack([dataset.points[dataset.labels == i].mean(axis=0) for i in range(64)])
    # A mean of 1,562 points with deviation 1 lies within 0.13 of its center (five standard errors).
    assert np.abs(means).max() < 100.13
    away = dataset.points - means[dataset.labels]
    np.testing.assert_allclose(away.std(axis=0), 1, atol=0.01)
    assert datasets.scale(dataset, "public").clipped == 0


def test_the_fingerprint_of_blobs_follows_scikit_learns_generator(monkeypatch):
    before = datasets.fingerprint("synth-10d")
    assert before != datasets.fingerprint("synth-100d")

    def make_blobs():
        """Another generator."""

    monkeypatch.setattr("sklearn.datasets.make_blobs", make_blobs)
    assert datasets.fingerprint("synth-10d") != before


def test_different_names_mean_different_points_and_fingerprints():
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
def test_the_public_domain_of_generated_sets_holds_the_points(name):
    dataset = datasets.load(name)
    outside = (dataset.points < dataset.domain[0]) | (dataset.points > dataset.domain[1])
    # The domain reaches five standard deviations around each center: 6e-7 of the coordinates lie
    # further out.
    assert outside.sum() <= 10
    # And it is public: no bound is a coordinate of a point.
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
def test_names_with_wrong_numbers_are_refused(name, message):
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
def test_wrong_generator_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        clusters.random_clusters(np.random.default_rng(0), *arguments)


def test_the_largest_sequence_of_sizes_still_has_no_empty_cluster():
    assert generated.ratio_sizes(9900, 140).min() == 1
    with pytest.raises(ValueError, match="too few"):
        generated.ratio_sizes(100, 140)


def test_families_hold_the_sets_of_the_paper():
    counts = {family.name: len(family.members) for family in generated.FAMILIES}
    few = {
        "timesynth": 8,
        "blobs": 2,
        "gaussians": 1,
        "cities": 1,
        "planted": 1,
        "planted-small": 1,
        "half": 1,
    }
    assert counts == {"g2": 110, "synth": 135, "synthk": 21, "ablation": 48} | few
    for family in generated.FAMILIES:
        assert all(generated.find(name)[0] is family for name in family.members)


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["g2-2-10", "g2-2-100", "g2-16-30", "g2-64-50", "g2-256-100"])
def test_g2_generator_has_the_law_of_the_published_files(name, mirror):
    _, d, sd = name.split("-")
    real = datasets.load(name, mirror=mirror)
    made = datasets.load(f"{name}-generated")
    assert real.origin == "mirror" and made.origin == "generated"
    assert real.fingerprint != made.fingerprint
    np.testing.assert_array_equal(real.labels, made.labels)
    np.testing.assert_array_equal(real.domain, made.domain)
    assert np.all(made.points == np.floor(made.points))
    count = 1024 * int(d)
    for cluster in (0, 1):
        a, b = (each.points[each.labels == cluster] for each in (real, made))
        assert abs(a.mean() - b.mean()) < 4 * int(sd) * np.sqrt(2 / count)
        assert abs(a.std() / b.std() - 1) < 4 / np.sqrt(count)
        assert ks_2samp(a.ravel(), b.ravel()).pvalue > 1e-3
        # Independent coordinates with the same spread: the correlations are those of chance in
        # both.
        for points in (a, b):
            off = np.corrcoef(points.T)[~np.eye(int(d), dtype=bool)]
            assert abs(np.sqrt(np.mean(off**2)) * np.sqrt(1024) - 1) < (1 if int(d) == 2 else 0.1)


def test_published_g2_files_are_cut_down_to_integers(mirror):
    # Rounding would leave the mean at the center, cutting lowers it by one half: why the generator
    # uses floor.
    offsets = []
    weights = []
    for name in G2_HASHES:
        _, d, sd = name.split("-")
        points = datasets.load(name, mirror=mirror).points if int(d) <= 64 else None
        if points is not None:
            offsets.append(np.mean(points - np.repeat([500, 600], 1024)[:, None]))
            weights.append(2048 * int(d) / int(sd) ** 2)
    error = 1 / np.sqrt(np.sum(weights))
    assert np.average(offsets, weights=weights) == pytest.approx(-0.5, abs=4 * error)
    assert error < 0.02
