"""Order of sources, checksums, downloads from a local server, the command line."""

import gzip
import io
import zipfile

import numpy as np
import pytest
from rich.console import Console

from pkm import datasets
from pkm.datasets import downloads, parsers, registry, sources
from pkm.datasets.__main__ import list_data, main
from pkm.datasets.sources import ChecksumMismatch, DataUnavailable, File, sha256

CONTENT = b"1 2\n3 4\n5 7\n"
# As a mirror packs it: without a time stamp.
PACKED = gzip.compress(CONTENT, mtime=0)


@pytest.fixture(autouse=True)
def no_pauses(cache, monkeypatch):
    monkeypatch.setattr(downloads, "PAUSE_SECONDS", 0)


def tiny_entry(*files):
    return registry.Entry(
        "tiny",
        3,
        2,
        2,
        files,
        parsers.numbers,
        (0.0,) * 2,
        (9.0,) * 2,
        ("digits",) * 2,
        "",
        "",
        "three digits",
    )


@pytest.fixture
def register_file(monkeypatch):
    """Return a function that puts an entry of one small file into the registry."""

    def register(*urls, member=None, content=CONTENT):
        file = File("tiny/tiny.txt", sha256(content), sha256(PACKED), urls, member)
        entry = tiny_entry(file)
        monkeypatch.setitem(registry.BY_NAME, "tiny", entry)
        monkeypatch.setattr(registry, "ENTRIES", (entry,))
        return file

    return register


def write_file(folder, path, content):
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


@pytest.mark.parametrize(
    ("path", "content"), [("tiny/tiny.txt", CONTENT), ("tiny/tiny.txt.gz", PACKED)]
)
def test_mirror_may_have_the_plain_or_gzipped_file(
    register_file, tmp_path, monkeypatch, path, content
):
    register_file()
    write_file(tmp_path, path, content)
    by_argument = datasets.load("tiny", mirror=tmp_path)
    assert datasets.obtainable("tiny")
    assert datasets.obtainable("tiny", mirror=tmp_path) is None
    monkeypatch.setenv("PKM_DATA", str(tmp_path))
    by_variable = datasets.load("tiny")
    for dataset in (by_argument, by_variable):
        np.testing.assert_array_equal(dataset.points, [[1, 2], [3, 4], [5, 7]])
        assert dataset.origin == "mirror"
        assert dataset.fingerprint == datasets.fingerprint("tiny")


def test_cache_comes_before_mirror(register_file, tmp_path, cache):
    register_file()
    write_file(tmp_path, "tiny/tiny.txt", CONTENT)
    write_file(cache, "tiny/tiny.txt", CONTENT)
    assert datasets.load("tiny", mirror=tmp_path).origin == "cache"


@pytest.mark.parametrize("path", ["tiny/tiny.txt", "tiny/tiny.txt.gz"])
def test_wrong_checksum_is_refused(register_file, tmp_path, cache, path):
    register_file()
    write_file(tmp_path, "tiny/tiny.txt", CONTENT)
    write_file(cache, path, b"1 2\n3 4\n5 8\n")
    expected = r"tiny\.txt.* has SHA-256 .*, the registry declares .*; delete it"
    with pytest.raises(ChecksumMismatch, match=expected):
        datasets.load("tiny", mirror=tmp_path)
    with pytest.raises(ChecksumMismatch, match="has SHA-256"):
        datasets.obtainable("tiny", mirror=tmp_path)


def test_gzipped_copy_is_checked_after_unpacking(register_file, tmp_path):
    # The packed hash is as declared, but the registry expects other published bytes.
    register_file(content=b"other")
    write_file(tmp_path, "tiny/tiny.txt.gz", PACKED)
    with pytest.raises(ChecksumMismatch, match=r"tiny\.txt\.gz \(unpacked\) has SHA-256"):
        datasets.load("tiny", mirror=tmp_path)


def test_error_for_missing_file_names_urls_and_folder(register_file, cache):
    register_file("http://example.org/tiny.zip", member="a/tiny.txt")
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


def test_missing_mirror_folder_is_refused(register_file, tmp_path):
    register_file()
    expected = r"mirror='.*nowhere' \(argument or PKM_DATA\) should be an existing folder"
    with pytest.raises(ValueError, match=expected):
        datasets.load("tiny", mirror=tmp_path / "nowhere")


def test_parsed_shape_is_checked(register_file, tmp_path, monkeypatch):
    file = register_file()
    entry = registry.Entry(**{**vars(tiny_entry(file)), "n": 4})
    monkeypatch.setitem(registry.BY_NAME, "tiny", entry)
    write_file(tmp_path, "tiny/tiny.txt", CONTENT)
    with pytest.raises(ValueError, match=r"tiny: parsed to shape \(3, 2\), declared is \(4, 2\)"):
        datasets.load("tiny", mirror=tmp_path)


def test_nothing_is_downloaded_by_default(register_file, server):
    base, pages, requests = server
    pages["/tiny.txt"] = CONTENT
    register_file(f"{base}/tiny.txt")
    with pytest.raises(DataUnavailable):
        datasets.load("tiny")
    assert datasets.obtainable("tiny")
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


def zip_archive(members):
    """Bytes of a zip archive of members, a mapping of paths to contents."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, content in members.items():
            archive.writestr(path, content)
    return packed.getvalue()


def test_fetch_downloads_an_archive_once_for_its_members(monkeypatch, server, cache, capsys):
    base, pages, requests = server
    pages["/both.zip"] = zip_archive({"inner/first.txt": CONTENT, "second.txt": b"9 9\n"})
    files = (
        File("tiny/first.txt", sha256(CONTENT), None, (f"{base}/both.zip",), "inner/first.txt"),
        File("tiny/second.txt", sha256(b"9 9\n"), None, (f"{base}/both.zip",), "second.txt"),
    )
    monkeypatch.setitem(registry.BY_NAME, "tiny", tiny_entry(*files))
    assert main(["fetch", "tiny"]) == 0
    assert (cache / "tiny" / "first.txt").read_bytes() == CONTENT
    assert (cache / "tiny" / "second.txt").read_bytes() == b"9 9\n"
    assert requests == ["/both.zip"]
    printed = capsys.readouterr().out
    assert "tiny: unknown size from 127.0.0.1" in printed
    assert f"fetched into {cache}: tiny" in printed


def test_fetch_tries_urls_in_order(register_file, server):
    base, pages, requests = server
    pages["/wrong.txt"] = b"not the file"
    pages["/right.txt"] = CONTENT
    file = register_file(f"{base}/absent.txt", f"{base}/wrong.txt", f"{base}/right.txt")
    assert downloads.fetch(file, "tiny").content == CONTENT
    assert requests == ["/absent.txt", "/wrong.txt", "/right.txt"]


def test_wrong_download_leaves_no_file(register_file, server, cache, capsys):
    base, pages, _ = server
    pages["/tiny.txt"] = b"an error page"
    register_file(f"{base}/tiny.txt")
    assert main(["fetch", "tiny"]) == 1
    assert "has SHA-256" in capsys.readouterr().err
    assert not cache.exists()


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
    pages["/tiny.zip"] = zip_archive({"else.txt": CONTENT})
    file = register_file(f"{base}/tiny.zip", member="tiny.txt")
    with pytest.raises(DataUnavailable, match=r"no item named 'tiny\.txt' in the archive"):
        downloads.fetch(file, "tiny")


def test_fetch_repairs_a_damaged_cached_file(register_file, server, cache, capsys):
    base, pages, requests = server
    pages["/tiny.txt"] = CONTENT
    register_file(f"{base}/tiny.txt")
    write_file(cache, "tiny/tiny.txt", b"damaged")
    assert main(["verify"]) == 1
    assert main(["fetch", "tiny"]) == 0
    assert main(["verify"]) == 0
    assert main(["fetch", "tiny"]) == 0
    assert "available: tiny" in capsys.readouterr().out
    assert requests == ["/tiny.txt"]


def test_interrupted_write_leaves_no_file(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sources.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sources.atomic_write(tmp_path / "file", CONTENT)
    assert list(tmp_path.iterdir()) == []


def test_list_shows_the_origin_of_sets(register_file, tmp_path, capsys):
    register_file("http://example.org/tiny.txt")

    def printed_list(*options):
        main([*options, "list"])
        return capsys.readouterr().out

    def row(text):
        return next(line for line in text.splitlines() if "tiny" in line)

    text = printed_list()
    assert "download, example.org" in row(text)
    assert "three digits" in row(text)
    assert "synth-<k>-<d>-<replicate>[-o<outliers>]" in text
    assert "clusters of sizes 1:2:...:k, with outliers" in text

    write_file(tmp_path, "tiny/tiny.txt", CONTENT)
    text = printed_list("--mirror", str(tmp_path))
    assert "mirror" in row(text)

    write_file(tmp_path, "tiny/tiny.txt", b"damaged")
    text = printed_list("--mirror", str(tmp_path))
    assert "wrong files" in row(text)
    assert "tiny.txt has SHA-256" in text


@pytest.mark.parametrize("width", [120, 400])
def test_list_has_a_line_for_each_set(width):
    lines = io.StringIO()
    list_data(Console(width=width, file=lines))
    printed = lines.getvalue().splitlines()
    for entry in registry.ENTRIES:
        matches = [line for line in printed if line.split()[:1] == [entry.name]]
        if width == 120 and len(entry.name) > 18:
            continue
        (line,) = matches
        assert entry.title[:20] in line
        assert f"{entry.n:,} x" in line
        assert entry.license[:10] in line


def test_verify_finds_damaged_files_in_cache_and_mirror(register_file, tmp_path, cache, capsys):
    register_file()
    write_file(cache, "tiny/tiny.txt", CONTENT)
    write_file(tmp_path, "tiny/tiny.txt.gz", b"damaged")
    assert main(["verify"]) == 0
    assert main(["--mirror", str(tmp_path), "verify"]) == 1
    assert "tiny.txt.gz has SHA-256" in capsys.readouterr().out


def test_whole_mirror_verifies(mirror, capsys):
    assert main(["--mirror", str(mirror), "verify"]) == 0
    assert ", 0 wrong" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["iris", "synth-2-2-0"])
def test_set_without_files_is_obtainable(name):
    assert datasets.obtainable(name) is None


def test_fetch_of_generated_and_unknown_names(capsys):
    assert main(["fetch", "synth-2-2-0"]) == 0
    assert "synth-2-2-0: generated here, needs no fetching" in capsys.readouterr().out
    assert main(["fetch", "iris", "file"]) == 0
    printed = capsys.readouterr().out
    assert "iris: bundled with scikit-learn, needs no fetching" in printed
    assert "file: a file of your own, needs no fetching" in printed
    assert main(["fetch", "irsi"]) == 1
    assert "unknown data set 'irsi'; did you mean 'iris'?" in capsys.readouterr().err
