"""Downloads: retries, mirrors in order, limits, and what can go wrong, in one line each."""

import errno
import tracemalloc
import zipfile
from unittest.mock import Mock

import pytest
import web
from tiny_files import CONTENT, find_reason, pack_members, tiny_file

from pkm import datasets
from pkm.datasets import downloads, sources
from pkm.datasets.sources import ChecksumMismatch, DataUnavailable, File
from pkm.files import sha256


@pytest.fixture
def closed(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return web.closed_address()


@pytest.mark.parametrize("failure", [500, 503, 429, (CONTENT[:5], len(CONTENT))])
def test_failures_that_may_pass_are_tried_again(server, register, failure):
    base, pages, requests = server
    pages["/tiny.txt"] = [failure, failure, CONTENT]
    register("tiny", tiny_file(f"{base}/tiny.txt"))
    assert datasets.fetch_missing(["tiny"]).fetched == ("tiny",)
    assert requests == ["/tiny.txt"] * 3
    assert datasets.load("tiny").points.shape == (3, 2)


@pytest.mark.parametrize(
    ("failure", "n_requests", "message"),
    [
        (404, 1, "/a: 404 Not Found"),
        (403, 1, "/a: 403 Forbidden"),
        (503, 3, "/a: 503 Service Unavailable"),
        ((b"1", 12), 3, "/a: the download was cut off (try again)"),
    ],
)
def test_next_url_is_tried_after_a_failure(server, register, failure, n_requests, message):
    base, pages, requests = server
    pages["/a"] = failure
    register("tiny", tiny_file(f"{base}/a"))
    assert message in find_reason()
    assert requests == ["/a"] * n_requests

    pages["/b"] = CONTENT
    register("tiny", tiny_file(f"{base}/a", f"{base}/b"))
    assert datasets.fetch_missing(["tiny"]).fetched == ("tiny",)


def test_other_file_than_declared_is_refused_unless_another_url_has_it(server, register, cache):
    base, pages, requests = server
    pages["/a"] = b"<html>sign in</html>"
    register("tiny", tiny_file(f"{base}/a"))
    reason = find_reason()
    assert "/a has SHA-256" in reason
    assert "the registry declares" in reason
    assert requests == ["/a"]
    assert not (cache / "tiny").exists()
    pages["/b"] = CONTENT
    register("tiny", tiny_file(f"{base}/a", f"{base}/b"))
    assert datasets.fetch_missing(["tiny"]).fetched == ("tiny",)


def test_without_network_each_host_is_tried_once(closed, register, monkeypatch):
    register("tiny", tiny_file(f"{closed}/a", f"{closed}/b"))
    register("other", tiny_file(f"{closed}/c", path="other/other.txt"))
    attempts = []
    once = downloads.Downloads._request

    def counted(self, url):
        attempts.append(url)
        return once(self, url)

    monkeypatch.setattr(downloads.Downloads, "_request", counted)
    result = datasets.fetch_missing(["tiny", "other"])
    assert set(result.unavailable) == {"tiny", "other"}
    for reason in result.unavailable.values():
        assert "no connection (check the network)" in reason
        assert "Put it into" in reason
    assert attempts == [f"{closed}/a"]


def test_broken_proxy_is_named(closed, register, monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", closed)
    register("tiny", tiny_file("http://example.org/tiny.txt"))
    assert (
        "the proxy cannot be reached or refuses (check HTTPS_PROXY and NO_PROXY)" in find_reason()
    )


def test_slow_answer_is_given_up(server, register, monkeypatch):
    import requests

    register("tiny", tiny_file("http://example.org/tiny.txt"))
    for error, reason in (
        (requests.ReadTimeout, "no answer within 60 s (try again later)"),
        (requests.ConnectTimeout, "no connection within 10 s (try again later)"),
    ):
        monkeypatch.setattr(requests, "get", Mock(side_effect=error("timed out")))
        assert reason in find_reason()


def test_full_disk_while_writing(server, register, cache, monkeypatch):
    base, pages, _ = server
    pages["/tiny.txt"] = CONTENT
    register("tiny", tiny_file(f"{base}/tiny.txt"))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(downloads, "atomic_write", full)
    expected = f"{cache / 'tiny' / 'tiny.txt'} cannot be written (No space left on device): make"
    reason = find_reason()
    assert expected in reason
    assert "set PKM_CACHE to another folder" in reason


def test_member_belongs_to_archives_alone(server, register):
    base, pages, _ = server
    pages["/plain.txt"] = CONTENT
    register("tiny", tiny_file(f"{base}/absent.zip", f"{base}/plain.txt", member="tiny.txt"))
    assert datasets.fetch_missing(["tiny"]).fetched == ("tiny",)


def test_file_is_made_of_what_the_url_gives(server, register):
    base, pages, _ = server
    pages["/tiny.csv"] = [CONTENT.replace(b" ", b";")]
    file = tiny_file(f"{base}/tiny.csv", convert=lambda content: content.replace(b";", b" "))
    register("tiny", file)
    assert datasets.fetch_missing(["tiny"]).fetched == ("tiny",)


def test_loading_downloads_no_file_without_a_declared_hash(server, register, monkeypatch):
    base, pages, requests = server
    pages["/tiny.txt"] = CONTENT
    register("tiny", File("tiny/tiny.txt", None, urls=(f"{base}/tiny.txt",)))
    monkeypatch.setenv("PKM_DOWNLOAD", "1")
    with pytest.raises(DataUnavailable, match="pkm data fetch tiny"):
        datasets.load("tiny")
    assert requests == []


#: What the bombs unpack to, from a thousandth of it.
BOMB_BYTES = 64 * 2**20


LIMIT = 2**20


# A peak between the packed bomb with the limit and the unpacked bomb.
MEMORY = 8 * 2**20


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


def test_archive_bomb_is_refused_before_it_is_unpacked(server, cache, register):
    base, pages, _ = server
    pages["/bomb.zip"] = pack_members({"tiny.txt": bytes(BOMB_BYTES)}, zipfile.ZIP_DEFLATED)
    file = File(
        "tiny/tiny.txt", sha256(CONTENT), None, (f"{base}/bomb.zip",), "tiny.txt", max_bytes=LIMIT
    )
    register("tiny", file)
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
    lying = with_declared_size(
        pack_members({"tiny.txt": bytes(BOMB_BYTES)}, zipfile.ZIP_DEFLATED), BOMB_BYTES, 12
    )
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
    pages["/tiny.zip"] = pack_members({"tiny.txt": CONTENT}, packing)
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


def test_nothing_is_downloaded_by_default(register_file, server):
    base, pages, requests = server
    pages["/tiny.txt"] = CONTENT
    register_file(f"{base}/tiny.txt")
    with pytest.raises(DataUnavailable):
        datasets.load("tiny")
    assert datasets.why_unavailable("tiny")
    assert requests == []


def test_environment_variable_allows_cached_downloads(register_file, server, monkeypatch, cache):
    base, pages, requests = server
    pages["/tiny.txt"] = CONTENT
    register_file(f"{base}/tiny.txt")
    monkeypatch.setenv("PKM_DOWNLOAD", "1")
    assert datasets.load("tiny").origin == "url"
    assert datasets.load("tiny").origin == "cache"
    assert requests == ["/tiny.txt"]
    assert [path.name for path in (cache / "tiny").iterdir()] == ["tiny.txt"]


def test_fetch_tries_urls_in_order(register_file, server):
    base, pages, requests = server
    pages["/wrong.txt"] = b"not the file"
    pages["/right.txt"] = CONTENT
    file = register_file(f"{base}/absent.txt", f"{base}/wrong.txt", f"{base}/right.txt")
    assert downloads.fetch(file, "tiny").content == CONTENT
    assert requests == ["/absent.txt", "/wrong.txt", "/right.txt"]


@pytest.mark.parametrize(
    ("page", "member"), [(b"no archive", "tiny.txt"), (None, "tiny.txt"), (None, None)]
)
def test_error_for_failed_download_names_the_url(register_file, server, page, member):
    base, pages, _ = server
    if page:
        pages["/tiny.zip"] = page
    file = register_file(f"{base}/tiny.zip", member=member)
    expected = r"Tried without success: http://127\.0\.0\.1:\d+/tiny\.zip: "
    with pytest.raises(DataUnavailable, match=expected):
        downloads.fetch(file, "tiny")


def test_missing_archive_member_is_reported(register_file, server):
    base, pages, _ = server
    pages["/tiny.zip"] = pack_members({"else.txt": CONTENT})
    file = register_file(f"{base}/tiny.zip", member="tiny.txt")
    with pytest.raises(DataUnavailable, match=r"no item named 'tiny\.txt' in the archive"):
        downloads.fetch(file, "tiny")
