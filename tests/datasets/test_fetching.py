"""What is fetched, what is said before, and what cannot be had."""

from collections import namedtuple

import pytest
from tiny_files import CONTENT, find_reason, pack_members, tiny_file

from pkm import datasets
from pkm.datasets import fetching, sources
from pkm.datasets.__main__ import main
from pkm.datasets.sources import ChecksumMismatch, File
from pkm.files import sha256

Usage = namedtuple("Usage", "total used free")


def test_full_disk_is_seen_before_downloads(server, register, monkeypatch):
    base, pages, requests = server
    pages["/tiny.txt"] = CONTENT
    register("tiny", tiny_file(f"{base}/tiny.txt"))
    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda _: Usage(100, 89, 11))
    assert "12 bytes are needed and 11 are free" in find_reason()
    assert requests == []


def test_size_source_and_license_are_said_before_the_first_request(server, register):
    base, pages, requests = server
    pages["/tiny.txt"] = CONTENT
    register("tiny", tiny_file(f"{base}/tiny.txt"))
    said = []

    def say(line):
        assert not requests
        said.append(line)

    result = datasets.fetch_missing(["tiny"], report=say)
    assert result == datasets.Fetched(("tiny",))
    host = base.removeprefix("http://")
    assert said == [f"tiny: 12 bytes from {host}; license: CC BY 4.0"]
    # What is there is neither announced nor fetched again.
    assert datasets.fetch_missing(["tiny"], report=say) == datasets.Fetched()
    assert len(said) == 1


def test_sets_of_one_archive_share_a_line_and_a_download(server, register):
    base, pages, requests = server
    pages["/all.zip"] = pack_members({f"{name}.txt": CONTENT for name in "abc"})
    for name in "abc":
        register(name, tiny_file(f"{base}/all.zip", path=f"{name}.txt", member=f"{name}.txt"))
    said = []
    assert datasets.fetch_missing("abc", report=said.append).fetched == ("a", "b", "c")
    host = base.removeprefix("http://")
    assert said == [f"a and 2 more: 36 bytes from {host}; license: CC BY 4.0"]
    assert requests == ["/all.zip"]


@pytest.mark.parametrize("content", [CONTENT, CONTENT + b"8 8\n", b"no numbers"])
def test_file_without_a_declared_hash_is_kept_if_its_points_fit(server, register, cache, content):
    base, pages, _ = server
    pages["/tiny.txt"] = content
    file = File("tiny/tiny.txt", None, urls=(f"{base}/tiny.txt",))
    register("tiny", file)
    if content == CONTENT:
        assert datasets.fetch_missing(["tiny"]).fetched == ("tiny",)
        assert sources.locate_record(file).read_text() == sha256(CONTENT)
        return
    assert "/tiny.txt gives is not the set: tiny: " in find_reason()
    assert not (cache / "tiny" / "tiny.txt").exists()
    assert not sources.locate_record(file).exists()


def test_what_can_be_had_is_fetched_and_the_rest_listed(server, register, capsys):
    base, pages, _ = server
    pages["/tiny.txt"] = CONTENT
    register("tiny", tiny_file(f"{base}/tiny.txt"))
    register("absent", tiny_file(f"{base}/absent.txt", path="absent.txt"))
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
    register("tiny", tiny_file(f"{base}/tiny.txt"))
    with pytest.raises(ValueError, match="unknown data set 'irsi'; did you mean 'iris'"):
        datasets.fetch_missing(["tiny", "irsi"])
    assert requests == []


def test_damaged_copy_is_replaced_by_a_right_one_in_the_cache(server, register, tmp_path):
    base, pages, _ = server
    pages["/tiny.txt"] = CONTENT
    register("tiny", tiny_file(f"{base}/tiny.txt"))
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "tiny.txt").write_bytes(b"damaged")
    with pytest.raises(ChecksumMismatch):
        datasets.load("tiny", data_dir=tmp_path)
    assert datasets.fetch_missing(["tiny"], data_dir=tmp_path).fetched == ("tiny",)
    assert datasets.load("tiny", data_dir=tmp_path).origin == "cache"
