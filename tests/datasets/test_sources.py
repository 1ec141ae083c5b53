"""Order of sources, checksums and limits of files."""

import gzip
import io
import tracemalloc
import zlib

import numpy as np
import pytest
from tiny_files import CONTENT, PACKED, write_file

from pkm import datasets
from pkm.datasets import sources
from pkm.datasets.sources import ChecksumMismatch, DataUnavailable, File
from pkm.files import sha256

#: What the bombs unpack to, from a thousandth of it.
BOMB_BYTES = 64 * 2**20


LIMIT = 2**20


# A peak between the packed bomb with the limit and the unpacked bomb.
MEMORY = 8 * 2**20


def peak_of(function):
    """Return the exception that a function raises, and the bytes that it had at its peak."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as caught:
            function()
        return caught.value, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def local_bombs():
    gzipped = gzip.compress(bytes(BOMB_BYTES), mtime=0)
    arrays = io.BytesIO()
    np.savez_compressed(arrays, data=np.zeros((BOMB_BYTES // 8, 1)))
    return {"checkins.txt.gz": gzipped, "tiny.npz": arrays.getvalue()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["checkins.txt.gz", "tiny.npz"])
def test_first_file_without_a_declared_hash_is_measured_before_it_is_trusted(
    name, tmp_path, cache, register
):
    file = File(f"tiny/{name}", None, source="http://example.org", max_bytes=LIMIT)
    register("tiny", file)
    path = tmp_path / "tiny" / name
    path.parent.mkdir()
    path.write_bytes(local_bombs()[name])
    error, peak = peak_of(lambda: datasets.load("tiny", data_dir=tmp_path))
    assert str(path) in str(error)
    assert f"or more is above max_bytes={LIMIT}" in str(error)
    assert "\n" not in str(error)
    assert peak < MEMORY
    # Its hash is not recorded: the file can be replaced.
    assert not sources.locate_record(file).exists()


def test_large_plain_file_is_not_read(tmp_path, register):
    file = File("tiny/tiny.txt", sha256(CONTENT), max_bytes=11)
    register("tiny", file)
    path = tmp_path / "tiny" / "tiny.txt"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    expected = r"tiny\.txt: size=12 bytes or more is above max_bytes=11"
    with pytest.raises(ChecksumMismatch, match=expected):
        datasets.load("tiny", data_dir=tmp_path)


def test_gzipped_copy_is_compared_before_it_is_unpacked(tmp_path, register, monkeypatch):
    file = File("tiny/tiny.txt", sha256(CONTENT), "0" * 64)
    register("tiny", file)
    path = tmp_path / "tiny" / "tiny.txt.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(bytes(BOMB_BYTES)))

    def unpacked(*_):
        raise AssertionError("unpacked before its hash was compared")

    monkeypatch.setattr(zlib, "decompressobj", unpacked)
    monkeypatch.setattr(gzip, "decompress", unpacked)
    monkeypatch.setattr(gzip, "GzipFile", unpacked)
    with pytest.raises(ChecksumMismatch, match=r"tiny\.txt\.gz has SHA-256"):
        datasets.load("tiny", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("path", "content"), [("tiny/tiny.txt", CONTENT), ("tiny/tiny.txt.gz", PACKED)]
)
def test_data_folder_may_have_the_plain_or_gzipped_file(
    register_file, tmp_path, monkeypatch, path, content
):
    register_file()
    write_file(tmp_path, path, content)
    by_argument = datasets.load("tiny", data_dir=tmp_path)
    assert datasets.why_unavailable("tiny")
    assert datasets.why_unavailable("tiny", data_dir=tmp_path) is None
    monkeypatch.setenv("PKM_DATA", str(tmp_path))
    by_variable = datasets.load("tiny")
    for dataset in (by_argument, by_variable):
        np.testing.assert_array_equal(dataset.points, [[1, 2], [3, 4], [5, 7]])
        assert dataset.origin == "data folder"
        assert dataset.fingerprint == datasets.fingerprint("tiny")


def test_cache_comes_before_data_folder(register_file, tmp_path, cache):
    register_file()
    write_file(tmp_path, "tiny/tiny.txt", CONTENT)
    write_file(cache, "tiny/tiny.txt", CONTENT)
    assert datasets.load("tiny", data_dir=tmp_path).origin == "cache"


@pytest.mark.parametrize("path", ["tiny/tiny.txt", "tiny/tiny.txt.gz"])
def test_wrong_checksum_is_refused(register_file, tmp_path, cache, path):
    register_file()
    write_file(tmp_path, "tiny/tiny.txt", CONTENT)
    write_file(cache, path, b"1 2\n3 4\n5 8\n")
    expected = r"tiny\.txt.* has SHA-256 .*, the registry declares .*; delete it"
    with pytest.raises(ChecksumMismatch, match=expected):
        datasets.load("tiny", data_dir=tmp_path)
    with pytest.raises(ChecksumMismatch, match="has SHA-256"):
        datasets.why_unavailable("tiny", data_dir=tmp_path)


def test_gzipped_copy_is_checked_after_unpacking(register_file, tmp_path):
    # The packed hash is as declared, but the registry expects other published bytes.
    register_file(content=b"other")
    write_file(tmp_path, "tiny/tiny.txt.gz", PACKED)
    with pytest.raises(ChecksumMismatch, match=r"tiny\.txt\.gz \(unpacked\) has SHA-256"):
        datasets.load("tiny", data_dir=tmp_path)


def test_error_for_missing_file_names_urls_and_folder(register_file, cache):
    register_file("http://example.org/tiny.zip", member="a/tiny.txt")
    expected = (
        r"data set 'tiny' needs the file tiny/tiny\.txt \(or tiny/tiny\.txt\.gz\), published at "
        r"http://example\.org/tiny\.zip, file a/tiny\.txt in the archive\. "
        r"Put it into .*cache or into a data folder "
        r"named by PKM_DATA .* or run 'pkm data fetch tiny'"
    )
    with pytest.raises(DataUnavailable, match=expected):
        datasets.load("tiny")
    assert "needs the file tiny/tiny.txt" in datasets.why_unavailable("tiny")
    assert not cache.exists()


def test_missing_data_folder_is_refused(register_file, tmp_path):
    register_file()
    expected = r"data_dir='.*nowhere' \(argument or PKM_DATA\) should be an existing folder"
    with pytest.raises(ValueError, match=expected):
        datasets.load("tiny", data_dir=tmp_path / "nowhere")
