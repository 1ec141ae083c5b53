"""Data sets of the unlearning paper: facts of its appendix, files of the users' own, splits over
clients.
"""

import hashlib
import json
import re
from io import BytesIO
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from pkm import datasets
from pkm.datasets import generated, parsers, registry, sources
from pkm.datasets.__main__ import main, status
from pkm.federation import splits

# Appendix M.1: n, d, K.
SHAPES = {
    "celltype": (12009, 10, 4),
    "covtype-52": (15120, 52, 7),
    "gaussian-10": (30000, 10, 10),
    "postures-full": (74975, 15, 5),
    "femnist": (36725, 784, 62),
    "tcga": (1904, 57, 4),
    "tmi": (1126, 984, 4),
}
OWN = ("postures-full", "femnist", "tcga", "tmi")


RECORDED = [0.05868843307930661, 0.05091869038109278, -0.03367865730466463]
# Rows from which Lloyd's algorithm finds the clusters whose sizes the paper prints, and the best
# that we know: one run in a hundred does. The paper's optimum is therefore 3.5 per cent too large,
# and its loss ratios that much too small.
COVTYPE = [
    (
        [114, 15060, 4980, 7610, 12407, 1701, 2827],
        14657.2,
        [3742, 3105, 2873, 2307, 1482, 886, 725],
    ),
    ([3793, 561, 10509, 830, 2381, 9643, 3501], 14165.54, [6349, 2307, 2307, 1482, 1290, 886, 499]),
]


pytestmark = pytest.mark.usefixtures("cache")


def put(folder, path, content):
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def packed(**arrays):
    content = BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


@pytest.mark.parametrize("name", SHAPES)
def test_the_papers_sizes_are_declared(name):
    known = datasets.loading.resolve(name)
    declared = known.entry or known.recipe
    assert (declared.n, declared.d, declared.n_clusters) == SHAPES[name]
    assert name in datasets.names()


def in_the_cube(dataset):
    """Public preprocessing leaves the points as they are, but for the last bit."""
    np.testing.assert_array_equal(
        dataset.domain, np.repeat([[-1.0], [1.0]], dataset.points.shape[1], axis=1)
    )
    scaled = datasets.scale(dataset, "public", clip=False)
    np.testing.assert_allclose(scaled.points, dataset.points, rtol=0, atol=2.3e-16)
    # Bounds were read off the data before anybody declared a domain.
    return dataset.prescaled and scaled.uses_private_bounds


@pytest.mark.statistical
def test_gaussian_follows_the_papers_recipe():
    dataset = datasets.load("gaussian-10")
    assert (
        dataset.points.shape == (30000, 10) and dataset.points.max() == 1.0 and in_the_cube(dataset)
    )
    assert np.bincount(dataset.labels).tolist() == [3000] * 10 and dataset.clients is None
    # Before the division the variance was 0.5 along every axis (standard error 0.0013), around
    # centers in the cube.
    means = np.stack([dataset.points[dataset.labels == label].mean(axis=0) for label in range(10)])
    away = dataset.points - means[dataset.labels]
    largest = np.sqrt(0.5 / away.var())
    assert np.all(abs(away.var(axis=0) * largest**2 - 0.5) < 0.02)
    assert (
        np.all((means * largest > -0.06) & (means * largest < 1.06))
        and (means * largest).std() > 0.2
    )
    # No two clusters or axes hang together.
    assert abs(np.corrcoef(away.T)[~np.eye(10, dtype=bool)]).max() < 0.03


def test_gaussian_is_as_wide_as_in_the_paper():
    # The reference's draw has 7095; five of ours have 7286 to 8530, because everything is divided
    # by one largest value.
    found = KMeans(10, n_init=1, random_state=0).fit(datasets.load("gaussian-10").points)
    assert 6500 < found.inertia_ < 9000 and np.bincount(found.labels_).min() > 2500


def test_gaussian_has_a_name_of_its_family():
    assert datasets.fingerprint("gaussian-10") == datasets.fingerprint("gaussians-30000-10-10")
    assert datasets.fingerprint("gaussian-10") != datasets.fingerprint("gaussians-30000-10-9")
    first, second = (datasets.load("gaussians-100-3-7") for _ in range(2))
    np.testing.assert_array_equal(first.points, second.points)
    assert np.bincount(first.labels).max() - np.bincount(first.labels).min() == 1


def test_recorded_values_of_gaussian_10():
    # Pins the seed: whoever changes it must know that every stored result of this set goes stale.
    np.testing.assert_allclose(datasets.load("gaussian-10").points[0, :3], RECORDED, atol=1e-12)


def test_the_fingerprint_of_gaussian_follows_its_division(monkeypatch):
    before = datasets.fingerprint("gaussian-10")

    def divide_by_largest(points):
        """Another division."""

    monkeypatch.setattr(generated, "divide_by_largest", divide_by_largest)
    assert datasets.fingerprint("gaussian-10") != before


def test_celltype_is_the_published_example(mirror):
    dataset = datasets.load("celltype", mirror=mirror)
    assert in_the_cube(dataset) and dataset.origin == "mirror"
    assert np.all(dataset.points.min(axis=0) == 0) and np.all(dataset.points.max(axis=0) == 1)
    assert len(np.unique(dataset.points, axis=0)) == 12009
    assert np.bincount(dataset.labels).tolist() == [3319, 2189, 2107, 4394]
    sizes = np.bincount(dataset.clients)
    assert (
        len(sizes) == 100
        and (sizes == 120).sum() == 64
        and sizes.min() == 60
        and sizes[-1] == sizes.max() == 1134
    )
    np.testing.assert_array_equal(datasets.scale(dataset, "public").clients, dataset.clients)


def test_celltype_has_the_papers_clusters(mirror):
    dataset = datasets.load("celltype", mirror=mirror)
    found = KMeans(4, n_init=5, random_state=0).fit(dataset.points)
    # Stored with the file; the runs end a few points short of each other.
    assert found.inertia_ == pytest.approx(188.08093814549414, rel=1e-5)
    np.testing.assert_allclose(
        sorted(np.bincount(found.labels_))[::-1], [6506, 2328, 2201, 974], atol=6
    )
    # Split with at most two clusters a client, as the paper says (the root of K), and sizes that
    # only this gives: 59 is the least that a cluster gives where two share 120.
    spans = [len(np.unique(found.labels_[dataset.clients == client])) for client in range(100)]
    assert np.bincount(spans).tolist() == [0, 33, 67]
    ours = np.bincount(splits.noniid(found.labels_, 100, 2, seed=0))
    assert ours.min() >= 59 and ours[:-1].max() == 120 and ours[-1] > 600


def test_covtype_is_scaled_by_column_and_without_its_constants(mirror):
    dataset = datasets.load("covtype-52", mirror=mirror)
    table = pd.read_csv(mirror / "covtype" / "train.csv.gz")
    raw = table.drop(columns=["Id", "Cover_Type", "Soil_Type7", "Soil_Type15"])
    np.testing.assert_allclose(
        dataset.points, (raw - raw.min()) / (raw.max() - raw.min()), rtol=0, atol=1e-15
    )
    np.testing.assert_array_equal(dataset.labels, table["Cover_Type"] - 1)
    assert in_the_cube(dataset) and dataset.clients is None


@pytest.mark.parametrize(("start", "inertia", "sizes"), COVTYPE)
def test_covtype_has_the_papers_clusters_and_better_ones(mirror, start, inertia, sizes):
    points = datasets.load("covtype-52", mirror=mirror).points
    found = KMeans(7, init=points[start], n_init=1).fit(points)
    assert found.inertia_ == pytest.approx(inertia, rel=1e-5)
    assert sorted(np.bincount(found.labels_))[::-1] == sizes


def test_postures_are_parsed_as_published(mirror):
    # A part of the file is at hand: users 0 to 2, three of the five classes.
    table = pd.read_csv(mirror / "postures" / "Postures.partial.csv.gz", na_values="?")
    content = table.to_csv(index=False, na_rep="?").encode()
    points, labels = parsers.postures(content)
    whole = table[table["Class"] > 0].dropna(
        subset=[f"{axis}{marker}" for marker in range(5) for axis in "XYZ"]
    )
    expected = whole.iloc[:, 2:17].to_numpy()
    np.testing.assert_allclose(points, expected / expected.max(), rtol=0, atol=1e-15)
    np.testing.assert_array_equal(labels, whole["Class"] - 1)


def test_postures_drop_rows_without_class_or_with_missing_markers():
    header = "Class,User," + ",".join(f"{axis}{marker}" for marker in range(6) for axis in "XYZ")
    numbers = [str(value) for value in range(-5, 10)]
    rows = [
        ["0", "0", *["0"] * 18],
        ["5", "3", *numbers, "?", "?", "?"],
        ["2", "1", *numbers[:-1], "?", "1", "1", "1"],
    ]
    content = "\n".join(
        [header, *(",".join(row) for row in [*rows, ["1", "3", *numbers, "1", "1", "1"]]), ""]
    )
    points, labels = parsers.postures(content.encode())
    np.testing.assert_array_equal(points, [np.arange(-5, 10) / 9] * 2)
    assert labels.tolist() == [1, 0]


@pytest.mark.parametrize("name", OWN)
def test_files_of_the_users_own_are_asked_for(name):
    file = registry.find(name).files[0]
    expected = (
        rf"data set '{name}' needs the file {file.path}, published at http.* "
        rf"Put it into .*cache or into a "
    )
    for function in (datasets.load, datasets.fingerprint):
        with pytest.raises(datasets.DataUnavailable, match=expected) as caught:
            function(name)
        assert "fetch" not in str(caught.value)
    assert re.match(expected, datasets.obtainable(name))
    with pytest.raises(datasets.DataUnavailable):
        sources.fetch(file, name)


def test_the_command_line_says_who_has_to_get_them(tmp_path):
    assert status(registry.find("tcga")).origin == "the user"
    put(tmp_path, "tcga/tcga.npz", packed(**tcga()))
    found = status(registry.find("tcga"), tmp_path)
    assert (found.origin, found.hashes, found.bad) == ("mirror", "ok", False)


@pytest.mark.parametrize("name", ["tcga", "tmi"])
def test_controlled_access_is_said(name):
    assert re.search("access on request.*a .npz file of an array 'data'", datasets.obtainable(name))


def tcga(**changes):
    generator = np.random.default_rng(0)
    arrays = {
        "data": generator.uniform(size=(1904, 57)),
        "label": generator.integers(0, 4, 1904),
        "client": generator.integers(0, 10, 1904),
    }
    return {name: array for name, array in (arrays | changes).items() if array is not None}


@pytest.mark.parametrize("labelled", [True, False])
def test_a_file_of_the_users_own_is_read(tmp_path, labelled):
    arrays = tcga() if labelled else tcga(label=None, client=None)
    put(tmp_path, "tcga/tcga.npz", packed(**arrays))
    assert datasets.obtainable("tcga", mirror=tmp_path) is None
    dataset = datasets.load("tcga", mirror=tmp_path)
    np.testing.assert_array_equal(dataset.points, arrays["data"])
    for name, got in (("label", dataset.labels), ("client", dataset.clients)):
        assert got.tolist() == arrays[name].tolist() if labelled else got is None
    assert in_the_cube(dataset) and dataset.fingerprint == datasets.fingerprint("tcga")


def test_large_values_are_divided_by_the_largest():
    points, labels, clients = parsers.arrays(
        packed(data=np.array([[-2, 4], [1, 0]]), client=np.array([7, 3]))
    )
    np.testing.assert_array_equal(points, [[-0.5, 1], [0.25, 0]])
    assert labels is None and clients.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"data", r"tcga: cannot be read as a \.npz file without pickles"),
        (
            packed(data=np.array([[{}]], dtype=object)),
            r"tcga: cannot be read as a \.npz file without pickles",
        ),
        (
            packed(points=np.zeros((1904, 57))),
            r"tcga: a \.npz file should hold an array 'data' of two dimensions",
        ),
        (
            packed(data=np.zeros(1904)),
            r"tcga: a \.npz file should hold an array 'data' of two dimensions",
        ),
        (
            packed(data=np.zeros((1904, 56))),
            r"tcga: parsed to shape \(1904, 56\), declared is \(1904, 57\)",
        ),
        (
            packed(**tcga(client=np.zeros(3, int))),
            r"array 'client' of shape \(3,\) and type int64 should hold n=1904",
        ),
        (
            packed(**tcga(label=np.zeros(1904))),
            r"array 'label' of shape \(1904,\) and type float64 should hold n=1904",
        ),
        (packed(**tcga(data=np.full((1904, 57), np.nan))), r"tcga: 108528 values are NaN"),
    ],
)
def test_wrong_files_of_the_users_own_are_refused(tmp_path, content, message):
    put(tmp_path, "tcga/tcga.npz", content)
    with pytest.raises(ValueError, match=message):
        datasets.load("tcga", mirror=tmp_path)


def test_the_first_file_read_is_noted_and_another_one_refused(tmp_path, cache, capsys):
    put(tmp_path, "tcga/tcga.npz", packed(**tcga()))
    first = datasets.load("tcga", mirror=tmp_path)
    # The recorded hash identifies the file, wherever it is now.
    assert datasets.fingerprint("tcga") == first.fingerprint
    put(tmp_path, "tcga/tcga.npz", packed(**tcga(client=None)))
    for function in (datasets.load, datasets.obtainable):
        with pytest.raises(
            datasets.ChecksumMismatch,
            match=r"recorded in .*tcga\.npz\.sha256 is .*delete the record",
        ):
            function("tcga", mirror=tmp_path)
    assert main(["--mirror", str(tmp_path), "verify"]) == 1
    assert "recorded in" in capsys.readouterr().out
    (cache / "noted" / "tcga" / "tcga.npz.sha256").unlink()
    second = datasets.load("tcga", mirror=tmp_path)
    assert second.clients is None and second.fingerprint != first.fingerprint


def test_older_fingerprints_know_nothing_of_the_new_fields():
    # Cells stored before there were clients and prescaled sets keep their keys.
    for name in ("iris", "yeast", "g2-2-10"):
        entry = registry.find(name)
        declared = {
            "files": [file.sha256 for file in entry.files],
            "shape": [entry.n, entry.d],
            "domain": [entry.lower, entry.upper],
            "parser": parsers.source(entry.parse),
        }
        expected = hashlib.sha256(json.dumps(declared, sort_keys=True).encode()).hexdigest()
        assert datasets.fingerprint(name) == expected
    entry = registry.find("yeast")
    assert registry.fingerprint(
        registry.Entry(**{**vars(entry), "prescaled": True})
    ) != datasets.fingerprint("yeast")


@st.composite
def clusterings(draw):
    """Labels of clusters of different sizes, shuffled."""
    sizes = draw(st.lists(st.integers(24, 120), min_size=1, max_size=8))
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    return generator.permutation(np.repeat(np.arange(len(sizes)), sizes))


@settings(max_examples=50, deadline=None)
@given(clusterings(), st.integers(1, 12), st.data())
def test_a_noniid_split_keeps_its_promises(labels, n_clients, data):
    per_client = data.draw(st.integers(1, len(np.unique(labels))))
    try:
        with mock.patch.object(splits, "MAX_ATTEMPTS", 100):
            clients = splits.noniid(labels, n_clients, per_client, seed=3)
    except ValueError as error:
        # What the last client gets is left to chance: few clients cannot use up many clusters.
        assert "cannot be kept" in str(error) and per_client < len(np.unique(labels))
        return
    assert clients.shape == labels.shape
    sizes = np.bincount(clients, minlength=n_clients)
    assert len(sizes) == n_clients and sizes.min() >= 1
    assert n_clients == 1 or sizes[:-1].max() <= len(labels) // n_clients
    for client in range(n_clients):
        assert len(np.unique(labels[clients == client])) <= per_client
    for label in np.unique(labels):
        # In file order: who comes first in the clients' order got the earlier points.
        assert np.all(np.diff(clients[labels == label]) >= 0)
    np.testing.assert_array_equal(clients, splits.noniid(labels, n_clients, per_client, seed=3))


@settings(max_examples=50, deadline=None)
@given(clusterings(), st.integers(1, 20))
def test_an_iid_split_gives_everybody_the_same_share_of_every_cluster(labels, n_clients):
    clients = splits.iid(labels, n_clients)
    for label in np.unique(labels):
        got = np.bincount(clients[labels == label], minlength=n_clients)
        assert (
            np.all(got[:-1] == (labels == label).sum() // n_clients)
            and got[-1] - got[0] < n_clients
        )
        assert np.all(np.diff(clients[labels == label]) >= 0)


def test_a_split_is_drawn_again_until_the_last_client_may_have_it(monkeypatch):
    labels = datasets.load("gaussian-10").labels
    first = splits.noniid(labels, 100, 2, seed=0)
    assert not np.array_equal(first, splits.noniid(labels, 100, 2, seed=1))
    default_rng = np.random.default_rng
    streams = []

    def recorded(stream):
        streams.append(tuple(stream))
        return default_rng(stream)

    monkeypatch.setattr(np.random, "default_rng", recorded)
    for seed in range(10):
        clients = splits.noniid(labels, 100, 2, seed)
        assert len(np.unique(labels[clients == 99])) <= 2
    # Every draw has a stream of its own, and some seeds needed several.
    assert len(set(streams)) == len(streams) > 10


def test_the_papers_heterogeneity_can_be_drawn():
    # What k-means finds in the Gaussian set. With ten clusters of equal size one cluster a client
    # never comes out.
    sizes = [3211, 3193, 3100, 3064, 3026, 2984, 2940, 2884, 2809, 2789]
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), sizes))
    for per_client in range(1, 11):
        clients = splits.noniid(labels, 100, per_client, seed=0)
        spans = [len(np.unique(labels[clients == client])) for client in range(100)]
        assert max(spans) <= per_client and np.bincount(clients).min() >= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "n_clients=0 must be at least 1 and at most half of n=10"),
        ((6, 1), "n_clients=6 must be at least 1 and at most half of n=10"),
        ((2, 0), "per_client=0 must be at least 1 and at most 2"),
        ((2, 3), "per_client=3 must be at least 1 and at most 2"),
        ((2, 1), "per_client=1 cannot be kept: in 2000 draws"),
    ],
)
def test_impossible_splits_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        splits.noniid(np.repeat([0, 1], 5), *arguments, seed=0)


@pytest.mark.parametrize("n_clients", [0, 6])
def test_too_many_clients_for_an_even_split_are_refused(n_clients):
    with pytest.raises(ValueError, match=f"n_clients={n_clients} must be at least 1 and at most 5"):
        splits.iid(np.repeat([0, 1], 5), n_clients)
