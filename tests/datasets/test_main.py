"""The command line: list, fetch, verify."""

import io
import zipfile

import pytest
from rich.console import Console
from tiny_files import CONTENT, pack_arrays, pack_members, tcga, tiny_entry, write_file

from pkm.datasets import registry
from pkm.datasets.__main__ import find_status, list_data, main
from pkm.datasets.sources import File
from pkm.files import sha256

LIMIT = 2**20


def test_command_line_refuses_a_bomb_in_one_line(server, register, capsys):
    base, pages, _ = server
    pages["/bomb.zip"] = pack_members({"tiny.txt": bytes(4 * LIMIT)}, zipfile.ZIP_DEFLATED)
    file = File(
        "tiny/tiny.txt", sha256(CONTENT), None, (f"{base}/bomb.zip",), "tiny.txt", max_bytes=LIMIT
    )
    register("tiny", file)
    assert main(["fetch", "tiny"]) == 1
    # The progress bar comes first.
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ")
    assert f"size={4 * LIMIT} bytes or more is above max_bytes={LIMIT}" in line


def test_fetch_downloads_an_archive_once_for_its_members(monkeypatch, server, cache, capsys):
    base, pages, requests = server
    pages["/both.zip"] = pack_members({"inner/first.txt": CONTENT, "second.txt": b"9 9\n"})
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


def test_wrong_download_leaves_no_file(register_file, server, cache, capsys):
    base, pages, _ = server
    pages["/tiny.txt"] = b"an error page"
    register_file(f"{base}/tiny.txt")
    assert main(["fetch", "tiny"]) == 1
    assert "has SHA-256" in capsys.readouterr().err
    assert not cache.exists()


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
    text = printed_list("--data", str(tmp_path))
    assert "data folder" in row(text)

    write_file(tmp_path, "tiny/tiny.txt", b"damaged")
    text = printed_list("--data", str(tmp_path))
    assert "wrong files" in row(text)
    assert "tiny.txt has SHA-256" in text


@pytest.mark.slow
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
        assert len(line) <= width
        assert entry.title[:20] in line
        assert f"{entry.n:,} x" in line
        assert entry.license[:10] in line


def test_verify_finds_damaged_files(register_file, tmp_path, cache, capsys):
    register_file()
    write_file(cache, "tiny/tiny.txt", CONTENT)
    write_file(tmp_path, "tiny/tiny.txt.gz", b"damaged")
    assert main(["verify"]) == 0
    assert main(["--data", str(tmp_path), "verify"]) == 1
    assert "tiny.txt.gz has SHA-256" in capsys.readouterr().out


@pytest.mark.slow
def test_whole_data_folder_verifies(data_dir, capsys):
    assert main(["--data", str(data_dir), "verify"]) == 0
    assert ", 0 wrong" in capsys.readouterr().out


def test_fetch_of_generated_and_unknown_names(capsys):
    assert main(["fetch", "synth-2-2-0"]) == 0
    assert "synth-2-2-0: generated here, needs no fetching" in capsys.readouterr().out
    assert main(["fetch", "iris", "file"]) == 0
    printed = capsys.readouterr().out
    assert "iris: bundled, needs no fetching" in printed
    assert "file: a file of your own, needs no fetching" in printed
    assert main(["fetch", "irsi"]) == 2
    assert "unknown data set 'irsi'; did you mean 'iris'?" in capsys.readouterr().err


def test_command_line_shows_user_files(tmp_path):
    assert find_status(registry.find("tcga")).origin == "the user, by hand"
    write_file(tmp_path, "tcga/tcga.npz", pack_arrays(**tcga()))
    available = find_status(registry.find("tcga"), tmp_path)
    assert available.origin == "data folder"
    assert available.n_copies == 1
    assert not available.errors
