"""Archives and downloads that grow beyond what is declared are refused before they are held."""

import gzip
import io
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

from pkm import datasets
from pkm.datasets import downloads, parsers, registry, sources
from pkm.datasets.__main__ import main
from pkm.datasets.sources import ChecksumMismatch, File, sha256

CONTENT = b"1 2\n3 4\n5 7\n"
#: What the bombs unpack to, from a thousandth of it.
BOMB_BYTES = 64 * 2**20
LIMIT = 2**20
# A peak between the packed bomb with the limit and the unpacked bomb.
MEMORY = 8 * 2**20

pytestmark = pytest.mark.usefixtures("cache")


def register(monkeypatch, file):
    entry = registry.Entry(
        "tiny", 3, 2, 2, (file,), parsers.numbers, (0.0,) * 2, (9.0,) * 2, ("digits",) * 2, "", ""
    )
    monkeypatch.setitem(registry.BY_NAME, "tiny", entry)


def archive_of(content, packing=zipfile.ZIP_DEFLATED):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", packing) as archive:
        archive.writestr("tiny.txt", content)
    return packed.getvalue()


def with_declared_size(archive, size, changed):
    """Return an archive of one member whose headers state another size."""
    stated = size.to_bytes(4, "little")
    assert archive.count(stated) == 2
    return archive.replace(stated, changed.to_bytes(4, "little"))


def peak_of(function):
    """Return the exception that a function raises, and the bytes that it had at its peak."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as caught:
            function()
        return caught.value, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_archive_bomb_is_refused_before_it_is_unpacked(server, cache, monkeypatch):
    base, pages, _ = server
    pages["/bomb.zip"] = archive_of(bytes(BOMB_BYTES))
    file = File(
        "tiny/tiny.txt", sha256(CONTENT), None, (f"{base}/bomb.zip",), "tiny.txt", max_bytes=LIMIT
    )
    register(monkeypatch, file)
    error, peak = peak_of(lambda: downloads.fetch(file, "tiny"))
    assert isinstance(error, ChecksumMismatch)
    assert (
        f"bomb.zip (tiny.txt): size={BOMB_BYTES} bytes or more is above max_bytes={LIMIT}"
        in str(error)
    )
    assert "\n" not in str(error)
    assert peak < MEMORY
    assert not cache.exists()


def test_archive_that_states_a_smaller_size_is_refused(server, monkeypatch):
    base, pages, _ = server
    lying = with_declared_size(archive_of(bytes(BOMB_BYTES)), BOMB_BYTES, 12)
    pages["/bomb.zip"] = lying
    file = File(
        "tiny/tiny.txt", sha256(CONTENT), None, (f"{base}/bomb.zip",), "tiny.txt", max_bytes=LIMIT
    )
    tracemalloc.start()
    try:
        with pytest.raises((sources.DataUnavailable, ChecksumMismatch)):
            downloads.fetch(file, "tiny")
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_packings_that_cannot_be_unpacked_in_parts_are_refused(server, packing):
    base, pages, _ = server
    pages["/tiny.zip"] = archive_of(CONTENT, packing)
    file = File("tiny/tiny.txt", sha256(CONTENT), None, (f"{base}/tiny.zip",), "tiny.txt")
    with pytest.raises(sources.DataUnavailable, match=r"tiny\.txt is packed by method \d+"):
        downloads.fetch(file, "tiny")


def test_download_stops_at_the_limit(server, monkeypatch, cache):
    base, pages, _ = server
    monkeypatch.setattr(sources, "MAX_BYTES", LIMIT)
    pages["/endless"] = bytes(BOMB_BYTES)
    file = File("tiny/tiny.txt", sha256(CONTENT), None, (f"{base}/endless",))
    error, peak = peak_of(lambda: downloads.fetch(file, "tiny"))
    assert "/endless: size=" in str(error)
    assert f"or more is above max_bytes={LIMIT}" in str(error)
    assert peak < MEMORY
    assert not cache.exists()


def test_command_line_refuses_a_bomb_in_one_line(server, monkeypatch, capsys):
    base, pages, _ = server
    pages["/bomb.zip"] = archive_of(bytes(4 * LIMIT))
    file = File(
        "tiny/tiny.txt", sha256(CONTENT), None, (f"{base}/bomb.zip",), "tiny.txt", max_bytes=LIMIT
    )
    register(monkeypatch, file)
    assert main(["fetch", "tiny"]) == 1
    # The progress bar comes first.
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ")
    assert f"size={4 * LIMIT} bytes or more is above max_bytes={LIMIT}" in line


def local_bombs():
    gzipped = gzip.compress(bytes(BOMB_BYTES), mtime=0)
    arrays = io.BytesIO()
    np.savez_compressed(arrays, data=np.zeros((BOMB_BYTES // 8, 1)))
    return {"checkins.txt.gz": gzipped, "tiny.npz": arrays.getvalue()}


@pytest.mark.parametrize("name", ["checkins.txt.gz", "tiny.npz"])
def test_first_file_without_a_declared_hash_is_measured_before_it_is_trusted(
    name, tmp_path, cache, monkeypatch
):
    file = File(f"tiny/{name}", None, source="http://example.org", max_bytes=LIMIT)
    register(monkeypatch, file)
    path = tmp_path / "tiny" / name
    path.parent.mkdir()
    path.write_bytes(local_bombs()[name])
    error, peak = peak_of(lambda: datasets.load("tiny", mirror=tmp_path))
    assert str(path) in str(error)
    assert f"or more is above max_bytes={LIMIT}" in str(error)
    assert "\n" not in str(error)
    assert peak < MEMORY
    # Its hash is not recorded: the file can be replaced.
    assert not sources.locate_record(file).exists()


def test_large_plain_file_is_not_read(tmp_path, monkeypatch):
    file = File("tiny/tiny.txt", sha256(CONTENT), max_bytes=11)
    register(monkeypatch, file)
    path = tmp_path / "tiny" / "tiny.txt"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    expected = r"tiny\.txt: size=12 bytes or more is above max_bytes=11"
    with pytest.raises(ChecksumMismatch, match=expected):
        datasets.load("tiny", mirror=tmp_path)


def test_gzipped_copy_is_compared_before_it_is_unpacked(tmp_path, monkeypatch):
    file = File("tiny/tiny.txt", sha256(CONTENT), "0" * 64)
    register(monkeypatch, file)
    path = tmp_path / "tiny" / "tiny.txt.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(bytes(BOMB_BYTES)))

    def unpacked(*_):
        raise AssertionError("unpacked before its hash was compared")

    monkeypatch.setattr(zlib, "decompressobj", unpacked)
    monkeypatch.setattr(gzip, "decompress", unpacked)
    monkeypatch.setattr(gzip, "GzipFile", unpacked)
    with pytest.raises(ChecksumMismatch, match=r"tiny\.txt\.gz has SHA-256"):
        datasets.load("tiny", mirror=tmp_path)


def test_every_declared_shape_fits_its_limit():
    """Points as float64, with a label and a client each, are within the limit of their file."""
    for entry in registry.ENTRIES:
        for file in entry.files:
            if file.path.endswith(".npz"):
                assert entry.n * (entry.d + 2) * 8 < file.max_bytes
