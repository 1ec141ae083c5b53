"""MethodStyle-up order, checksums, downloads from a server on this machine, the command line."""

import gzip
import io
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from pkm import datasets
from pkm.datasets import parsers, registry, sources
from pkm.datasets.__main__ import main
from pkm.datasets.sources import ChecksumMismatch, DataUnavailable, File, sha256

CONTENT = b"1 2\n3 4\n5 7\n"
# As a mirror packs it: without a time stamp.
PACKED = gzip.compress(CONTENT, mtime=0)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("PKM_CACHE", str(folder))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("PKM_DATA", "PKM_DOWNLOAD"):
        monkeypatch.delenv(name, raising=False)
    sources._download.cache_clear()
    return folder


@pytest.fixture
def server():
    """Pages by path, and the paths asked for, on 127.0.0.1."""
    pages = {}
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            body = pages.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_):
            """Keep the test output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", pages, asked
        running.shutdown()
        thread.join()


def tiny(*files):
    return registry.Entry(
        "tiny", 3, 2, 2, files, parsers.numbers, (0.0,) * 2, (9.0,) * 2, "digits", "", ""
    )


@pytest.fixture
def known(monkeypatch):
    """Put an entry of one small file into the registry; returns the function that does."""

    def put(*urls, member=None, content=CONTENT):
        file = File("tiny/tiny.txt", sha256(content), sha256(PACKED), urls, member)
        monkeypatch.setitem(registry.BY_NAME, "tiny", tiny(file))
        monkeypatch.setattr(registry, "ENTRIES", (registry.BY_NAME["tiny"],))
        return file

    return put


def put(folder, path, content):
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


@pytest.mark.parametrize(
    ("path", "content"), [("tiny/tiny.txt", CONTENT), ("tiny/tiny.txt.gz", PACKED)]
)
def test_mirror_holds_the_published_file_or_its_gzipped_copy(
    known, tmp_path, monkeypatch, path, content
):
    known()
    put(tmp_path, path, content)
    by_argument = datasets.load("tiny", mirror=tmp_path)
    assert datasets.obtainable("tiny") and datasets.obtainable("tiny", mirror=tmp_path) is None
    monkeypatch.setenv("PKM_DATA", str(tmp_path))
    by_variable = datasets.load("tiny")
    for dataset in (by_argument, by_variable):
        np.testing.assert_array_equal(dataset.points, [[1, 2], [3, 4], [5, 7]])
        assert dataset.origin == "mirror"
        assert dataset.fingerprint == datasets.fingerprint("tiny")


def test_cache_comes_before_mirror(known, tmp_path, cache):
    known()
    put(tmp_path, "tiny/tiny.txt", CONTENT)
    put(cache, "tiny/tiny.txt", CONTENT)
    assert datasets.load("tiny", mirror=tmp_path).origin == "cache"


@pytest.mark.parametrize("path", ["tiny/tiny.txt", "tiny/tiny.txt.gz"])
def test_wrong_checksum_is_refused_and_never_passed_over(known, tmp_path, cache, path):
    known()
    put(tmp_path, "tiny/tiny.txt", CONTENT)
    put(cache, path, b"1 2\n3 4\n5 8\n")
    with pytest.raises(
        ChecksumMismatch, match=r"tiny\.txt.* has SHA-256 .*, the registry declares .*; delete it"
    ):
        datasets.load("tiny", mirror=tmp_path)
    with pytest.raises(ChecksumMismatch, match="has SHA-256"):
        datasets.obtainable("tiny", mirror=tmp_path)


def test_gzipped_copy_is_checked_after_unpacking_too(known, tmp_path):
    # The packed hash is as declared, but the registry expects other published bytes.
    known(content=b"other")
    put(tmp_path, "tiny/tiny.txt.gz", PACKED)
    with pytest.raises(ChecksumMismatch, match=r"tiny\.txt\.gz \(unpacked\) has SHA-256"):
        datasets.load("tiny", mirror=tmp_path)


def test_missing_file_names_file_urls_and_place(known, cache):
    known("http://example.org/tiny.zip", member="a/tiny.txt")
    expected = (
        r"data set 'tiny' needs the file tiny/tiny\.txt \(or tiny/tiny\.txt\.gz\), published at "
        r"http://example\.org/tiny\.zip, file a/tiny\.txt in the archive\. "
        r"Put it into .*cache or into a mirror folder "
        r"named by PKM_DATA .* or run 'pkm data fetch tiny'"
    )
    with pytest.raises(DataUnavailable, match=expected):
        datasets.load("tiny")
    assert "needs the file tiny/tiny.txt" in datasets.obtainable("tiny")
    assert not cache.exists()


def test_missing_mirror_folder_is_refused(known, tmp_path):
    known()
    with pytest.raises(
        ValueError,
        match=r"mirror='.*nowhere' \(argument or PKM_DATA\) should be an existing folder",
    ):
        datasets.load("tiny", mirror=tmp_path / "nowhere")


def test_parsed_shape_is_checked(known, tmp_path, monkeypatch):
    file = known()
    monkeypatch.setitem(registry.BY_NAME, "tiny", registry.Entry(**{**vars(tiny(file)), "n": 4}))
    put(tmp_path, "tiny/tiny.txt", CONTENT)
    with pytest.raises(ValueError, match=r"tiny: parsed to shape \(3, 2\), declared is \(4, 2\)"):
        datasets.load("tiny", mirror=tmp_path)


def test_nothing_is_downloaded_silently(known, server):
    base, pages, asked = server
    pages["/tiny.txt"] = CONTENT
    known(f"{base}/tiny.txt")
    with pytest.raises(DataUnavailable):
        datasets.load("tiny")
    assert datasets.obtainable("tiny")
    assert asked == []


def test_downloads_are_allowed_by_variable_and_cached(known, server, monkeypatch, cache):
    base, pages, asked = server
    pages["/tiny.txt"] = CONTENT
    known(f"{base}/tiny.txt")
    monkeypatch.setenv("PKM_DOWNLOAD", "1")
    assert datasets.load("tiny").origin == "url"
    assert datasets.load("tiny").origin == "cache"
    assert asked == ["/tiny.txt"]
    assert [path.name for path in (cache / "tiny").iterdir()] == ["tiny.txt"]


def test_fetch_takes_members_out_of_one_archive_with_one_download(
    monkeypatch, server, cache, capsys
):
    base, pages, asked = server
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("inner/first.txt", CONTENT)
        archive.writestr("second.txt", b"9 9\n")
    pages["/both.zip"] = packed.getvalue()
    files = (
        File("tiny/first.txt", sha256(CONTENT), None, (f"{base}/both.zip",), "inner/first.txt"),
        File("tiny/second.txt", sha256(b"9 9\n"), None, (f"{base}/both.zip",), "second.txt"),
    )
    monkeypatch.setitem(registry.BY_NAME, "tiny", tiny(*files))
    assert main(["fetch", "tiny"]) == 0
    assert (cache / "tiny" / "first.txt").read_bytes() == CONTENT
    assert (cache / "tiny" / "second.txt").read_bytes() == b"9 9\n"
    assert asked == ["/both.zip"]
    assert "tiny/first.txt: 12 bytes in" in capsys.readouterr().out


def test_fetch_tries_the_urls_in_turn(known, server):
    base, pages, asked = server
    pages["/wrong.txt"] = b"not the file"
    pages["/right.txt"] = CONTENT
    file = known(f"{base}/absent.txt", f"{base}/wrong.txt", f"{base}/right.txt")
    assert sources.fetch(file, "tiny").content == CONTENT
    assert asked == ["/absent.txt", "/wrong.txt", "/right.txt"]


def test_a_wrong_download_leaves_nothing_behind(known, server, cache, capsys):
    base, pages, _ = server
    pages["/tiny.txt"] = b"an error page"
    known(f"{base}/tiny.txt")
    assert main(["fetch", "tiny"]) == 1
    assert "has SHA-256" in capsys.readouterr().err
    assert not cache.exists()


@pytest.mark.parametrize(
    ("page", "member"), [(b"no archive", "tiny.txt"), (None, "tiny.txt"), (None, None)]
)
def test_a_failed_download_says_what_was_tried(known, server, page, member):
    base, pages, _ = server
    if page:
        pages["/tiny.zip"] = page
    file = known(f"{base}/tiny.zip", member=member)
    with pytest.raises(
        DataUnavailable, match=r"Tried without success: http://127\.0\.0\.1:\d+/tiny\.zip: "
    ):
        sources.fetch(file, "tiny")


def test_a_member_that_is_not_in_the_archive_is_reported(known, server):
    base, pages, _ = server
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("else.txt", CONTENT)
    pages["/tiny.zip"] = packed.getvalue()
    with pytest.raises(DataUnavailable, match=r"no item named 'tiny\.txt' in the archive"):
        sources.fetch(known(f"{base}/tiny.zip", member="tiny.txt"), "tiny")


def test_fetch_repairs_a_damaged_cached_file(known, server, cache, capsys):
    base, pages, asked = server
    pages["/tiny.txt"] = CONTENT
    known(f"{base}/tiny.txt")
    put(cache, "tiny/tiny.txt", b"damaged")
    assert main(["verify"]) == 1
    assert main(["fetch", "tiny"]) == 0
    assert main(["verify"]) == 0
    assert main(["fetch", "tiny"]) == 0
    assert "available" in capsys.readouterr().out
    assert asked == ["/tiny.txt"]


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sources.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sources.atomic_write(tmp_path / "file", CONTENT)
    assert list(tmp_path.iterdir()) == []


def test_list_says_where_each_set_comes_from(known, tmp_path, capsys):
    known("http://example.org/tiny.txt")
    main(["list"])
    before = capsys.readouterr().out
    put(tmp_path, "tiny/tiny.txt", CONTENT)
    main(["--mirror", str(tmp_path), "list"])
    after = capsys.readouterr().out
    put(tmp_path, "tiny/tiny.txt", b"damaged")
    main(["--mirror", str(tmp_path), "list"])
    damaged = capsys.readouterr().out

    def row(text):
        return next(line for line in text.splitlines() if "tiny" in line)

    assert "url" in row(before) and "1 missing" in row(before)
    assert "mirror" in row(after) and "ok" in row(after) and "12" in row(after)
    assert "wrong" in row(damaged)
    assert "synth-<k>-<d>-<replicate>[-o<outliers>]" in before and "135 sets" in before


def test_verify_finds_a_damaged_file_anywhere(known, tmp_path, cache, capsys):
    known()
    put(cache, "tiny/tiny.txt", CONTENT)
    put(tmp_path, "tiny/tiny.txt.gz", b"damaged")
    assert main(["verify"]) == 0
    assert main(["--mirror", str(tmp_path), "verify"]) == 1
    assert "tiny.txt.gz has SHA-256" in capsys.readouterr().out


def test_the_whole_mirror_verifies(mirror, capsys):
    assert main(["--mirror", str(mirror), "verify"]) == 0
    assert ", 0 wrong" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["iris", "synth-2-2-0"])
def test_a_set_that_needs_no_file_is_obtainable(name):
    assert datasets.obtainable(name) is None


def test_fetch_of_generated_and_unknown_names(capsys):
    assert main(["fetch", "synth-2-2-0"]) == 0
    assert "nothing to download" in capsys.readouterr().out
    assert main(["fetch", "nothing"]) == 1
    assert "unknown data set 'nothing'; known are" in capsys.readouterr().err
