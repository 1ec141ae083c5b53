"""Files that are whole or absent, and the secret of the cache."""

import stat
import subprocess
import sys

import numpy as np
import pytest
from tiny_files import CONTENT

from pkm import datasets, files
from pkm.files import cache_folder, keyed_digest


def write_table(path, last):
    """Write 50 records, of which all but the last are known to everybody."""
    generator = np.random.default_rng(3)
    rows = generator.integers(-100, 101, (49, 1)).ravel().tolist()
    path.write_text("\n".join(str(value) for value in [*rows, last]) + "\n")
    return path


def test_secret_is_for_its_owner_alone(cache):
    keyed_digest(b"")
    path = cache_folder() / "secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_bytes()) == 32
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def _spoil(path, how):
    path.unlink()
    other = path.with_name("other")
    other.write_bytes(bytes(32))
    other.chmod(0o600)
    if how == "link":
        path.symlink_to(other)
        return
    path.write_bytes(b"" if how == "empty" else bytes(32))
    path.chmod(0o644 if how == "readable" else 0o600)


@pytest.mark.parametrize("how", ["empty", "readable", "link"])
def test_a_secret_that_others_may_know_is_refused(cache, how):
    keyed_digest(b"")
    _spoil(cache_folder() / "secret", how)
    with pytest.raises(PermissionError, match="32 random bytes that its owner alone can read"):
        keyed_digest(b"")


def test_a_lock_is_no_link_and_empties_nothing(tmp_path):
    target = tmp_path / "thesis"
    target.write_text("text")
    (tmp_path / "link.lock").symlink_to(target)
    with pytest.raises(OSError), files.locked(tmp_path / "link.lock"):
        pass
    with files.locked(target):
        pass
    assert target.read_text() == "text"


def test_a_lock_whose_file_is_removed_is_taken_anew(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    flock = files.fcntl.flock
    removals = iter([True, False])

    def wait(descriptor, operation):
        if next(removals):
            path.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(files.fcntl, "flock", wait)
    with files.locked(path):
        assert path.exists()
    assert next(removals, None) is None


def test_processes_agree_on_a_new_secret(cache):
    command = "from pkm.files import keyed_digest; print(keyed_digest(b''))"
    processes = [
        subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE) for _ in range(4)
    ]
    digests = {process.communicate()[0] for process in processes}
    assert digests == {f"{keyed_digest(b'')}\n".encode()}


def test_unwritable_cache_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "file"))
    path = write_table(tmp_path / "own.csv", 1)
    with pytest.raises(PermissionError, match=r"PKM_CACHE=.*file.* cannot hold"):
        datasets.fingerprint("file", datasets.FileOptions(path=path))


def test_a_link_of_the_temporary_name_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(files.secrets, "token_hex", lambda n_bytes: "guessed")
    target = tmp_path / "of somebody else"
    target.touch()
    (tmp_path / ".account.guessed.tmp").symlink_to(target)
    with pytest.raises(FileExistsError):
        files.atomic_write(tmp_path / "account", b"private")
    assert target.read_bytes() == b""


def test_interrupted_write_leaves_no_file(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.atomic_write(tmp_path / "file", CONTENT)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("written", "line"),
    [
        (b"", ""),
        (b"\n \n", ""),
        (b"first\nlast \n\n", "last"),
        (b"first\n" * 10_000 + b"last", "last"),
        (b"x" * 10**6, "x" * 300),
        (b"\xff\n", "\ufffd"),
    ],
)
def test_the_last_line_of_an_output_is_read(tmp_path, written, line):
    path = tmp_path / "output.txt"
    path.write_bytes(written)
    assert files.read_last_line(path) == line
