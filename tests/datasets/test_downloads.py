"""Downloads: retries, mirrors in order, and everything that can go wrong, in one line each."""

import errno
import io
import zipfile
from collections import namedtuple

import numpy as np
import pytest
import web

from pkm import datasets
from pkm.datasets import downloads, fetching, parsers, registry, sources
from pkm.datasets.__main__ import main
from pkm.datasets.sources import ChecksumMismatch, DataUnavailable, File, sha256

CONTENT = b"1 2\n3 4\n5 7\n"
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def folder(cache, monkeypatch):
    monkeypatch.setattr(downloads, "PAUSE_SECONDS", 0)
    return cache


@pytest.fixture
def closed(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return web.closed_address()


@pytest.fixture
def register(monkeypatch):
    """Return a function that puts an entry with some files into the registry."""

    def entry_of(name, *files, license="CC BY 4.0"):
        entry = registry.Entry(
            name, 3, 2, 2, files, parsers.numbers, (0.0,) * 2, (9.0,) * 2, ("",) * 2, license, ""
        )
        monkeypatch.setitem(registry.BY_NAME, name, entry)
        return entry

    return entry_of


def tiny(*urls, path="tiny/tiny.txt", **fields):
    return File(path, sha256(CONTENT), urls=urls, size=len(CONTENT), **fields)


def reason_of(name="tiny"):
    """Why one set cannot be fetched: one line."""
    result = datasets.fetch_missing([name])
    assert result.fetched == ()
    assert "\n" not in result.unavailable[name]
    return result.unavailable[name]


@pytest.mark.parametrize("failure", [500, 503, 429, (CONTENT[:5], len(CONTENT))])
def test_failures_that_may_pass_are_tried_again(server, register, failure):
    base, pages, requests = server
    pages["/tiny.txt"] = [failure, failure, CONTENT]
    register("tiny", tiny(f"{base}/tiny.txt"))
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
    register("tiny", tiny(f"{base}/a"))
    assert message in reason_of()
    assert requests == ["/a"] * n_requests

    pages["/b"] = CONTENT
    register("tiny", tiny(f"{base}/a", f"{base}/b"))
    assert datasets.fetch_missing(["tiny"]).fetched == ("tiny",)


def test_other_file_than_declared_is_refused_unless_another_url_has_it(server, register, folder):
    base, pages, requests = server
    pages["/a"] = b"<html>sign in</html>"
    register("tiny", tiny(f"{base}/a"))
    reason = reason_of()
    assert "/a has SHA-256" in reason
    assert "the registry declares" in reason
    assert requests == ["/a"]
    assert not (folder / "tiny").exists()
    pages["/b"] = CONTENT
    register("tiny", tiny(f"{base}/a", f"{base}/b"))
    assert datasets.fetch_missing(["tiny"]).fetched == ("tiny",)


def test_without_network_each_host_is_tried_once(closed, register, monkeypatch):
    register("tiny", tiny(f"{closed}/a", f"{closed}/b"))
    register("other", tiny(f"{closed}/c", path="other/other.txt"))
    attempts = []
    once = downloads.Downloads._once

    def counted(self, url):
        attempts.append(url)
        return once(self, url)

    monkeypatch.setattr(downloads.Downloads, "_once", counted)
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
    register("tiny", tiny("http://example.org/tiny.txt"))
    assert "the proxy cannot be reached or refuses (check HTTPS_PROXY and NO_PROXY)" in reason_of()


def test_slow_answer_is_given_up(server, register, monkeypatch):
    import requests

    def too_slow(*_, **__):
        raise requests.ReadTimeout("read timed out")

    monkeypatch.setattr(requests, "get", too_slow)
    register("tiny", tiny("http://example.org/tiny.txt"))
    assert "no answer within 60 s (try again later)" in reason_of()


def test_full_disk_while_writing(server, register, folder, monkeypatch):
    base, pages, _ = server
    pages["/tiny.txt"] = CONTENT
    register("tiny", tiny(f"{base}/tiny.txt"))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(downloads, "atomic_write", full)
    expected = f"{folder / 'tiny' / 'tiny.txt'} cannot be written (No space left on device): make"
    reason = reason_of()
    assert expected in reason
    assert "set PKM_CACHE to another folder" in reason


def test_full_disk_is_seen_before_downloads(server, register, monkeypatch):
    base, pages, requests = server
    pages["/tiny.txt"] = CONTENT
    register("tiny", tiny(f"{base}/tiny.txt"))
    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda _: Usage(100, 89, 11))
    assert "12 bytes are needed and 11 are free" in reason_of()
    assert requests == []


def test_size_source_and_license_are_said_before_the_first_request(server, register):
    base, pages, requests = server
    pages["/tiny.txt"] = CONTENT
    register("tiny", tiny(f"{base}/tiny.txt"))
    said = []

    def say(line):
        assert not requests
        said.append(line)

    result = datasets.fetch_missing(["tiny"], say=say)
    assert result == datasets.Fetched(("tiny",))
    host = base.removeprefix("http://")
    assert said == [f"tiny: 12 B from {host}; license: CC BY 4.0"]
    # What is there is neither announced nor fetched again.
    assert datasets.fetch_missing(["tiny"], say=say) == datasets.Fetched()
    assert len(said) == 1


def test_sets_of_one_archive_share_a_line_and_a_download(server, register):
    base, pages, requests = server
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in "abc":
            archive.writestr(f"{name}.txt", CONTENT)
    pages["/all.zip"] = packed.getvalue()
    for name in "abc":
        register(name, tiny(f"{base}/all.zip", path=f"{name}.txt", member=f"{name}.txt"))
    said = []
    assert datasets.fetch_missing("abc", say=said.append).fetched == ("a", "b", "c")
    host = base.removeprefix("http://")
    assert said == [f"a and 2 more: 36 B from {host}; license: CC BY 4.0"]
    assert requests == ["/all.zip"]


def test_member_belongs_to_archives_alone(server, register):
    base, pages, _ = server
    pages["/plain.txt"] = CONTENT
    register("tiny", tiny(f"{base}/absent.zip", f"{base}/plain.txt", member="tiny.txt"))
    assert datasets.fetch_missing(["tiny"]).fetched == ("tiny",)


def test_file_is_made_of_what_the_url_gives(server, register):
    base, pages, _ = server
    pages["/tiny.csv"] = [CONTENT.replace(b" ", b";")]
    file = tiny(f"{base}/tiny.csv", convert=lambda content: content.replace(b";", b" "))
    register("tiny", file)
    assert datasets.fetch_missing(["tiny"]).fetched == ("tiny",)


@pytest.mark.parametrize("content", [CONTENT, CONTENT + b"8 8\n", b"no numbers"])
def test_file_without_a_declared_hash_is_kept_if_its_points_fit(server, register, folder, content):
    base, pages, _ = server
    pages["/tiny.txt"] = content
    file = File("tiny/tiny.txt", None, urls=(f"{base}/tiny.txt",))
    register("tiny", file)
    if content == CONTENT:
        assert datasets.fetch_missing(["tiny"]).fetched == ("tiny",)
        assert sources.locate_record(file).read_text() == sha256(CONTENT)
        return
    assert "/tiny.txt gives is not the set: tiny: " in reason_of()
    assert not (folder / "tiny" / "tiny.txt").exists()
    assert not sources.locate_record(file).exists()


def test_loading_downloads_no_file_without_a_declared_hash(server, register, monkeypatch):
    base, pages, requests = server
    pages["/tiny.txt"] = CONTENT
    register("tiny", File("tiny/tiny.txt", None, urls=(f"{base}/tiny.txt",)))
    monkeypatch.setenv("PKM_DOWNLOAD", "1")
    with pytest.raises(DataUnavailable, match="pkm data fetch tiny"):
        datasets.load("tiny")
    assert requests == []


def test_what_can_be_had_is_fetched_and_the_rest_listed(server, register, capsys):
    base, pages, _ = server
    pages["/tiny.txt"] = CONTENT
    register("tiny", tiny(f"{base}/tiny.txt"))
    register("absent", tiny(f"{base}/absent.txt", path="absent.txt"))
    by_hand = File("hand.txt", sha256(CONTENT), source="http://example.org, on request")
    register("by-hand", by_hand)
    names = ["iris", "absent", "by-hand", "tiny", "synth-2-2-0", "tiny"]
    result = datasets.fetch_missing(names)
    assert result.fetched == ("tiny",)
    assert set(result.unavailable) == {"absent", "by-hand"}
    assert "http://example.org, on request" in result.unavailable["by-hand"]
    # The command line ends with an error and one line for each.
    assert main(["fetch", *names]) == 1
    printed = capsys.readouterr()
    assert "available: tiny" in printed.out
    assert len(printed.err.splitlines()) == 2


def test_unknown_name_is_refused_before_anything_is_fetched(server, register):
    base, pages, requests = server
    pages["/tiny.txt"] = CONTENT
    register("tiny", tiny(f"{base}/tiny.txt"))
    with pytest.raises(ValueError, match="unknown data set 'irsi'; did you mean 'iris'"):
        datasets.fetch_missing(["tiny", "irsi"])
    assert requests == []


def test_damaged_mirror_copy_is_replaced_by_a_right_one_in_the_cache(server, register, tmp_path):
    base, pages, _ = server
    pages["/tiny.txt"] = CONTENT
    register("tiny", tiny(f"{base}/tiny.txt"))
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "tiny.txt").write_bytes(b"damaged")
    with pytest.raises(ChecksumMismatch):
        datasets.load("tiny", mirror=tmp_path)
    assert datasets.fetch_missing(["tiny"], mirror=tmp_path).fetched == ("tiny",)
    assert datasets.load("tiny", mirror=tmp_path).origin == "cache"


# The first lines of the published table of nodes, one without a position among them.
NODES = (
    b"node_id,cluster_label,longitude,latitude\n"
    b"0,10393,-104.99251,39.74765\n"
    b"1,10393,-122.34391,37.579964\n"
    b"73,27,,\n"
    b"2,10393,-104.99251,39.74765\n"
    b"5,10393,0.0,0.0\n"
)


def test_brightkite_is_made_of_the_located_nodes():
    expected = b"latitude,longitude\n39.74765,-104.99251\n37.579964,-122.34391\n"
    assert parsers.locate_nodes(NODES) == expected + b"39.74765,-104.99251\n0.0,0.0\n"
    assert registry.find("brightkite").files[0].convert is parsers.locate_nodes


def test_located_nodes_are_written_as_in_the_mirror(mirror):
    points = datasets.load("brightkite", mirror=mirror).points
    made, _ = parsers.table(parsers.locate_nodes(NODES), header=True)
    np.testing.assert_array_equal(points[:3], made[:3])
