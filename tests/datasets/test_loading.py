"""Names, numbers of clusters, and files that a user puts into a data folder."""

import gzip
import io
import re
import stat
from dataclasses import replace

import numpy as np
import pytest
from tiny_files import (
    CHECKINS,
    CONTENT,
    QUERIES,
    has_private_unit_cube,
    pack_arrays,
    tcga,
    tiny_entry,
    write_file,
)

from pkm import datasets
from pkm.datasets import downloads, registry, sources
from pkm.datasets.__main__ import main

USER_FILES = {"gowalla": (107092, 2), "rangequeries": (200_000, 6)}


@pytest.mark.parametrize("name", USER_FILES)
def test_missing_user_file_is_named_in_the_error(name):
    entry = registry.find(name)
    assert (entry.n, entry.d) == USER_FILES[name]
    assert name in datasets.names()
    path = entry.files[0].path
    reason = datasets.why_unavailable(name)
    assert f"data set '{name}' needs the file {path}" in reason
    assert "https://" in reason
    with pytest.raises(datasets.DataUnavailable, match=path):
        datasets.load(name)


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
    assert datasets.why_unavailable(name) is None


def test_records_given_on_request_have_keyed_fingerprints(tmp_path, cache, monkeypatch):
    """Access-controlled sets are people's own files, too."""
    generator = np.random.default_rng(0)
    packed = io.BytesIO()
    np.savez(packed, data=generator.uniform(size=(1904, 57)))
    path = tmp_path / "tcga" / "tcga.npz"
    path.parent.mkdir()
    path.write_bytes(packed.getvalue())
    first = datasets.load("tcga", data_dir=tmp_path).fingerprint
    assert datasets.fingerprint("tcga") == first
    record = cache / "noted" / "tcga" / "tcga.npz.sha256"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    (cache / "secret").unlink()
    assert datasets.fingerprint("tcga") != first


def test_restricted_sets_are_files_and_those_given_on_request():
    assert datasets.is_restricted("file")
    restricted = {entry.name for entry in registry.ENTRIES if datasets.is_restricted(entry.name)}
    controlled = {entry.name for entry in registry.ENTRIES if "controlled" in entry.license}
    assert restricted == controlled == {"tcga", "tmi"}
    assert not datasets.is_restricted("blobs-100-2-3")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("irsi", r"unknown data set 'irsi'; did you mean 'iris'\?$"),
        ("Iris", r"unknown data set 'Iris'; did you mean 'iris'\?$"),
        ("polygons", r"unknown data set 'polygons'; known are iris, lsun, .*synth-<k>.*, file$"),
    ],
)
def test_error_for_unknown_name_suggests_or_lists_known_names(name, expected):
    for function in (datasets.load, datasets.fingerprint, datasets.why_unavailable):
        with pytest.raises(ValueError, match=expected):
            function(name)


@pytest.mark.parametrize("n_clusters", [0, -1, 151, 2.5, True, "3"])
def test_wrong_number_of_clusters_is_refused(n_clusters):
    expected = re.escape(f"iris: n_clusters={n_clusters!r} should be")
    with pytest.raises(ValueError, match=expected):
        datasets.load("iris", n_clusters=n_clusters)


def test_number_of_clusters_can_be_given():
    dataset = datasets.load("iris", n_clusters=150)
    assert dataset.n_clusters == 150


@pytest.mark.parametrize("argument", ["path", "bounds"])
def test_path_and_bounds_are_for_files_only(argument):
    with pytest.raises(ValueError, match=f"{argument}='x' goes with the data set 'file' only"):
        datasets.load("iris", **{argument: "x"})


def test_parsed_shape_is_checked(register_file, tmp_path, monkeypatch):
    file = register_file()
    entry = registry.Entry(**{**vars(tiny_entry(file)), "n": 4})
    monkeypatch.setitem(registry.BY_NAME, "tiny", entry)
    write_file(tmp_path, "tiny/tiny.txt", CONTENT)
    with pytest.raises(ValueError, match=r"tiny: parsed to shape \(3, 2\), declared is \(4, 2\)"):
        datasets.load("tiny", data_dir=tmp_path)


@pytest.mark.parametrize("name", ["iris", "synth-2-2-0"])
def test_set_without_files_is_obtainable(name):
    assert datasets.why_unavailable(name) is None


REQUESTED_FILES = ("postures-full", "femnist", "tcga", "tmi")


@pytest.mark.parametrize("name", REQUESTED_FILES)
def test_missing_user_files_are_named_in_the_error(name):
    file = registry.find(name).files[0]
    expected = (
        rf"data set '{name}' needs the file {file.path}, published at http.* "
        rf"Put it into .*cache or into a "
    )
    for function in (datasets.load, datasets.fingerprint):
        with pytest.raises(datasets.DataUnavailable, match=expected) as caught:
            function(name)
        assert "fetch" not in str(caught.value)
    assert re.match(expected, datasets.why_unavailable(name))
    with pytest.raises(datasets.DataUnavailable):
        downloads.fetch(file, name)


@pytest.mark.parametrize("name", ["tcga", "tmi"])
def test_error_mentions_controlled_access(name):
    reason = datasets.why_unavailable(name)
    assert re.search("access on request.*a .npz file of an array 'data'", reason)


@pytest.mark.parametrize("labeled", [True, False])
def test_user_file_is_read(tmp_path, labeled):
    arrays = tcga() if labeled else tcga(label=None, client=None)
    write_file(tmp_path, "tcga/tcga.npz", pack_arrays(**arrays))
    assert datasets.why_unavailable("tcga", data_dir=tmp_path) is None
    dataset = datasets.load("tcga", data_dir=tmp_path)
    np.testing.assert_array_equal(dataset.points, arrays["data"])
    if labeled:
        np.testing.assert_array_equal(dataset.labels, arrays["label"])
        np.testing.assert_array_equal(dataset.clients, arrays["client"])
    else:
        assert dataset.labels is None
        assert dataset.clients is None
    assert has_private_unit_cube(dataset)
    assert dataset.fingerprint == datasets.fingerprint("tcga")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"data", r"tcga: cannot be read as a \.npz file without pickles"),
        (
            pack_arrays(data=np.array([[{}]], dtype=object)),
            r"tcga: cannot be read as a \.npz file without pickles",
        ),
        (
            pack_arrays(points=np.zeros((1904, 57))),
            r"tcga: a \.npz file should hold an array 'data' of two dimensions",
        ),
        (
            pack_arrays(data=np.zeros(1904)),
            r"tcga: a \.npz file should hold an array 'data' of two dimensions",
        ),
        (
            pack_arrays(data=np.zeros((1904, 56))),
            r"tcga: parsed to shape \(1904, 56\), declared is \(1904, 57\)",
        ),
        (
            pack_arrays(**tcga(client=np.zeros(3, int))),
            r"array 'client' of shape \(3,\) and type int64 should hold n=1904",
        ),
        (
            pack_arrays(**tcga(label=np.zeros(1904))),
            r"array 'label' of shape \(1904,\) and type float64 should hold n=1904",
        ),
        (pack_arrays(**tcga(data=np.full((1904, 57), np.nan))), "tcga: every row has a missing"),
    ],
)
def test_invalid_user_files_are_refused(tmp_path, content, message):
    write_file(tmp_path, "tcga/tcga.npz", content)
    with pytest.raises(ValueError, match=message):
        datasets.load("tcga", data_dir=tmp_path)


@pytest.mark.slow
def test_hash_of_the_first_file_is_recorded(tmp_path, cache, capsys):
    write_file(tmp_path, "tcga/tcga.npz", pack_arrays(**tcga()))
    first = datasets.load("tcga", data_dir=tmp_path)
    # The recorded hash identifies the file, also without its folder.
    assert datasets.fingerprint("tcga") == first.fingerprint
    # Another file is refused.
    write_file(tmp_path, "tcga/tcga.npz", pack_arrays(**tcga(client=None)))
    expected = r"recorded in .*tcga\.npz\.sha256 is .*delete the record"
    for function in (datasets.load, datasets.why_unavailable):
        with pytest.raises(datasets.ChecksumMismatch, match=expected):
            function("tcga", data_dir=tmp_path)
    assert main(["--data", str(tmp_path), "verify"]) == 1
    assert "recorded in" in capsys.readouterr().out
    (cache / "noted" / "tcga" / "tcga.npz.sha256").unlink()
    second = datasets.load("tcga", data_dir=tmp_path)
    assert second.clients is None
    assert second.fingerprint != first.fingerprint


def test_persons_of_a_set_are_asked_for_by_name():
    name = "visits-100-2-4"
    visits = datasets.load(name)
    by_person = datasets.load(name, groups="user")
    assert visits.groups is None
    assert len(np.unique(by_person.groups)) == 10
    np.testing.assert_array_equal(by_person.points, visits.points)
    assert visits.fingerprint == datasets.fingerprint(name)
    assert by_person.fingerprint == datasets.fingerprint(name, datasets.FileOptions(groups="user"))
    assert by_person.fingerprint != visits.fingerprint


def test_persons_of_published_visits(data_dir):
    visits = datasets.load("gowalla-nyc", groups="user", data_dir=data_dir)
    assert len(np.unique(visits.groups)) == 7115
    assert visits.groups[0] == 0


@pytest.mark.parametrize(
    ("name", "groups", "known"),
    [("iris", "user", "each of whose points"), ("visits-100-2-4", 0, "points have a 'user'")],
)
def test_persons_that_a_set_does_not_have_are_refused(name, groups, known):
    expected = f"groups={groups!r} is not allowed .*{known}"
    with pytest.raises(ValueError, match=expected):
        datasets.load(name, groups=groups)
    with pytest.raises(ValueError, match=expected):
        datasets.fingerprint(name, datasets.FileOptions(groups=groups))


@pytest.mark.parametrize("argument", ["columns", "label"])
def test_columns_and_label_are_for_files_only(argument):
    with pytest.raises(ValueError, match=f"{argument}='x' goes with the data set 'file' only"):
        datasets.load("iris", **{argument: "x"})
