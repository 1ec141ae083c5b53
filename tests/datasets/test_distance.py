"""Data sets of the distance-based paper, and generated maps and balls."""

import gzip
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

from pkm import datasets
from pkm.datasets import parsers, registry, sources
from pkm.datasets.generated import families, samplers
from pkm.privacy import snap

MIRRORED = {
    "s2": (5000, 2, 15),
    "s3": (5000, 2, 15),
    "s4": (5000, 2, 15),
    "shuttle": (58000, 9, 7),
    "shuttle-class": (58000, 10, 7),
    "skin": (245057, 3, 2),
    "skin-class": (245057, 4, 2),
}
PLACES = {"brightkite": 51406, "gowalla-subset": 56671}
USER_FILES = {"gowalla": (107092, 2), "rangequeries": (200_000, 6)}
CHECKINS = (
    "0\t2010-10-17T01:48:53Z\t39.747652\t-104.99251\t88c46bf2\n"
    "0\t2010-10-16T06:02:04Z\t39.891383\t-105.070814\t7a0f88982\n"
    "7\t2009-12-31T23:59:59Z\t10.0\t20.0\tdd7cd3d2\n"
    "7\t2010-01-01T00:00:00Z\t11.0\t21.0\tdd7cd3d2\n"
    "7\t2010-01-01T00:00:00Z\t12.0\t22.0\t9848afcc\n"
    "3\t2010-05-05T05:05:05Z\t-33.5\t151.2\tab\n"
    "9\t\t\t\t\n"
)
QUERIES = (
    ",x,y,x_range,y_range,count,sum_,avg\n"
    "0,1162691.0,1869013.0,5000.5,7000.0,15234,4100.0,12.5\n"
    "1,1170000.0,1900000.0,100.0,90.0,0,0.0,\n"
)
RECORDED = {
    "generated-cities": (0, [33.71606923153166, 9.043220804367792]),
    "planted-100-3-4-0.1": (0, [0.12458623330588459, 0.41376313762803074]),
    "planted-small-100-3-4-0.1-5": (-1, [-0.08223507654541465, -0.7345714246084792]),
    "half-3-8-0.05": (0, [-0.027854647705462282, 0.014811366643180222]),
}


pytestmark = pytest.mark.usefixtures("cache")


def cluster_means(dataset):
    labels = np.unique(dataset.labels)
    means = [dataset.points[dataset.labels == label].mean(axis=0) for label in labels]
    return np.stack(means)


@pytest.mark.parametrize("name", MIRRORED)
def test_published_sets_have_the_declared_shape(name, mirror):
    dataset = datasets.load(name, mirror=mirror)
    assert (*dataset.points.shape, dataset.n_clusters) == MIRRORED[name]
    assert dataset.fingerprint == datasets.fingerprint(name)
    assert dataset.origin == "mirror"
    assert not dataset.prescaled
    assert registry.find(name).reason


def test_overlap_increases_across_the_s_sets(mirror):
    shares = []
    for name in ("s1", "s2", "s3", "s4"):
        dataset = datasets.load(name, mirror=mirror)
        assert datasets.scale(dataset, "public", clip=False).clipped == 0
        assert np.bincount(dataset.labels).min() >= 300
        means = cluster_means(dataset)
        assert len(means) == 15
        nearest = cdist(dataset.points, means).argmin(axis=1)
        shares.append(np.mean(nearest == dataset.labels))
    # Labels belong to the rows; the share of correct nearest means decreases from set to set.
    assert shares[0] > 0.98
    assert shares[3] > 0.75
    assert shares == sorted(shares, reverse=True)


def test_shuttle_has_the_published_classes(mirror):
    plain = datasets.load("shuttle", mirror=mirror)
    with_class = datasets.load("shuttle-class", mirror=mirror)
    # Class sizes as the collection's description prints them.
    assert np.bincount(plain.labels).tolist() == [45586, 50, 171, 8903, 3267, 10, 13]
    np.testing.assert_array_equal(with_class.points[:, :9], plain.points)
    np.testing.assert_array_equal(with_class.points[:, 9], plain.labels + 1)
    clipped = datasets.scale(plain, "public").clipped
    assert 0 < clipped < 0.02 * len(plain.points)


def test_skin_has_bytes_and_published_classes(mirror):
    plain = datasets.load("skin", mirror=mirror)
    with_class = datasets.load("skin-class", mirror=mirror)
    assert np.bincount(plain.labels).tolist() == [50859, 194198]
    assert datasets.scale(plain, "public", clip=False).clipped == 0
    np.testing.assert_array_equal(plain.points, np.rint(plain.points))
    expected = np.column_stack([plain.points, plain.labels + 1])
    np.testing.assert_array_equal(with_class.points, expected)


@pytest.mark.parametrize("name", PLACES)
def test_places_are_one_position_per_user(name, mirror):
    dataset = datasets.load(name, mirror=mirror)
    assert dataset.points.shape == (PLACES[name], 2)
    assert dataset.labels is None
    assert dataset.origin == "mirror"
    assert dataset.fingerprint == datasets.fingerprint(name)
    assert datasets.scale(dataset, "public", clip=False).clipped == 0


def test_brightkite_users_are_in_the_published_order(mirror):
    points = datasets.load("brightkite", mirror=mirror).points
    # The first line of the published file is the last check-in of user 0, here in single precision.
    np.testing.assert_allclose(points[0], [39.747652, -104.99251], rtol=1e-7)
    assert np.sum(~points.any(axis=1)) == 1342
    assert len(np.unique(points, axis=0)) == 35698


def test_gowalla_subset_equals_the_joined_file_and_says_what_it_is(mirror):
    dataset = datasets.load("gowalla-subset", mirror=mirror)
    joined = np.loadtxt(
        mirror / "gowalla" / "gowalla.last.3regions.csv.gz", delimiter=",", skiprows=1
    )
    np.testing.assert_array_equal(dataset.points, joined)
    assert "56,671 of the 107,092 users" in dataset.citation
    assert "subset" in registry.find("gowalla-subset").title


def test_first_region_of_a_user_counts():
    first = b"2,10.5,20.5\n0,1.5,2.5\n"
    second = b"0,9.5,9.5\n1,3.5,4.5\n"
    points, labels = parsers.regional_checkins(first, second)
    assert points.tolist() == [[1.5, 2.5], [3.5, 4.5], [10.5, 20.5]]
    assert labels is None


@pytest.mark.parametrize("name", USER_FILES)
def test_missing_user_file_is_named_in_the_error(name):
    entry = registry.find(name)
    assert (entry.n, entry.d) == USER_FILES[name]
    assert name in datasets.names()
    path = entry.files[0].path
    reason = datasets.obtainable(name)
    assert f"data set '{name}' needs the file {path}" in reason
    assert "https://" in reason
    with pytest.raises(datasets.DataUnavailable, match=path):
        datasets.load(name)


def test_latest_check_in_of_each_user_is_kept():
    points, labels = parsers.checkins(gzip.compress(CHECKINS.encode()))
    # Users 0, 3, 7: the latest, and of two at the same second the first line; user 9 has no
    # location.
    assert points.tolist() == [[39.747652, -104.99251], [-33.5, 151.2], [11.0, 21.0]]
    assert labels is None


def write_user_file(folder, name, content, monkeypatch, n):
    entry = replace(registry.find(name), n=n, n_clusters=2)
    monkeypatch.setitem(registry.BY_NAME, name, entry)
    target = folder / entry.files[0].path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return target


@pytest.mark.parametrize(("name", "n"), [("gowalla", 3), ("rangequeries", 2)])
def test_user_file_is_read_and_its_hash_recorded(name, n, cache, monkeypatch):
    if name == "rangequeries":
        content = QUERIES.encode()
    else:
        content = gzip.compress(CHECKINS.encode(), mtime=0)
    target = write_user_file(cache, name, content, monkeypatch, n)
    dataset = datasets.load(name)
    d = USER_FILES[name][1]
    assert dataset.points.shape == (n, d)
    assert dataset.labels is None
    assert dataset.fingerprint == datasets.fingerprint(name)
    assert datasets.scale(dataset, "public", clip=False).clipped == 0
    target.write_bytes(content + b"\n")
    with pytest.raises(sources.ChecksumMismatch, match="not the one that was read first"):
        datasets.load(name)


@pytest.mark.parametrize("name", USER_FILES)
def test_user_file_of_another_size_is_refused(name, cache, monkeypatch):
    content = QUERIES.encode() if name == "rangequeries" else gzip.compress(CHECKINS.encode())
    n = USER_FILES[name][0]
    write_user_file(cache, name, content, monkeypatch, n)
    with pytest.raises(ValueError, match=f"{name}: parsed to shape .* declared is"):
        datasets.load(name)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gowalla", b"not gzipped", "between tabs"),
        (
            "gowalla",
            gzip.compress(b"user\ttime\tlatitude\tlongitude\tplace\n", mtime=0),
            "between tabs",
        ),
        ("rangequeries", b"x,y\n1,2\n", "x_range"),
    ],
)
def test_user_file_of_another_format_is_refused(name, content, message, cache, monkeypatch):
    write_user_file(cache, name, content, monkeypatch, 3)
    with pytest.raises(ValueError, match=f"{name}: .*{message}"):
        datasets.load(name)


def test_range_queries_keep_the_six_complete_columns():
    points, labels = registry.find("rangequeries").parse(QUERIES.encode())
    assert points.shape == (2, 6)
    assert labels is None
    assert points[1].tolist() == [1170000.0, 1900000.0, 100.0, 90.0, 0.0, 0.0]


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
    means = cluster_means(dataset)
    cities = np.searchsorted(np.unique(dataset.labels), dataset.labels)
    within = np.mean((dataset.points - means[cities]) ** 2)
    assert within < 0.01 * dataset.points.var(axis=0).mean()


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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("half-1-16-0.05", "of 2 k=32 points in d=1 dimensions two would be 0.0435 radii apart"),
        ("half-2-1-0.05", "k=1 at least 2"),
        ("half-2-2000-0.05", "n_clusters=2000 should be at most 1024"),
        ("half-2-16-0.000", "unknown data set"),
        ("half-2-16-1", "unknown data set"),
        ("planted-1000-2-64-0.1", "radius=0.1 should be at most"),
        ("planted-small-1000-2-16-0.2-5", "radius=0.2 should be at most"),
        ("planted-1000-2-1-0", "k=1 at least 2"),
        ("planted-5-2-16-0", "k=16 is too large for n=5"),
        ("planted-1000-2-16-1.5", "unknown data set"),
        ("planted-small-1000-2-16-0.05-0", "unknown data set"),
        ("generated-cities-2", "unknown data set"),
    ],
)
def test_invalid_names_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        datasets.load(name)


def test_fingerprints_differ_between_sets():
    names = [
        "generated-cities",
        "planted-100-2-4-0",
        "planted-100-2-4-0.01",
        "planted-100-2-5-0",
        *MIRRORED,
    ]
    names += ["planted-small-100-2-4-0-5", "planted-small-100-2-4-0-6"]
    names += ["half-2-4-0.01", "half-2-5-0.01", "half-3-4-0.01", "half-2-4-0.02"]
    assert len({datasets.fingerprint(name) for name in names}) == len(names)
