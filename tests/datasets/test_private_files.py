"""Fingerprints of people's own records: keyed, so that nobody can try records out."""

import io
import stat
import subprocess
import sys

import numpy as np
import pytest

from pkm import datasets
from pkm.datasets import registry, user_files
from pkm.files import cache_folder, keyed_digest

#: Values of the record that is looked for.
CANDIDATES = range(-100, 101)


def write_table(path, last):
    """Write 50 records, of which all but the last are known to everybody."""
    generator = np.random.default_rng(3)
    rows = generator.integers(-100, 101, (49, 1)).ravel().tolist()
    path.write_text("\n".join(str(value) for value in [*rows, last]) + "\n")
    return path


def guesses(published, fingerprint, tmp_path):
    """Return the candidates for the last record whose file has the published fingerprint."""
    path = tmp_path / "guess.csv"
    matches = []
    for value in CANDIDATES:
        write_table(path, value)
        if fingerprint(path) == published:
            matches.append(value)
    return matches


def test_published_fingerprint_does_not_confirm_the_last_record(tmp_path, monkeypatch):
    """Who knows all records but one, and this code, cannot try the last one out."""
    path = write_table(tmp_path / "own.csv", 42)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "owner"))
    published = datasets.fingerprint("file", path=path)

    # The attack finds the record with the owner's secret, and without one in the key.
    assert guesses(published, user_files.fingerprint, tmp_path) == [42]
    monkeypatch.setattr(user_files, "keyed_digest", unkeyed_digest)
    without_key = datasets.fingerprint("file", path=path)
    assert guesses(without_key, user_files.fingerprint, tmp_path) == [42]
    assert guesses(published, user_files.fingerprint, tmp_path) == []

    # It does not with a secret of its own.
    monkeypatch.undo()
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "other-cache"))
    assert guesses(published, user_files.fingerprint, tmp_path) == []


def unkeyed_digest(content):
    import hashlib

    return hashlib.sha256(content).hexdigest()


def test_fingerprint_of_a_file_stays_with_its_secret(tmp_path, cache, monkeypatch):
    first = write_table(tmp_path / "a.csv", 1)
    copy = write_table(tmp_path / "b.csv", 1)
    before = datasets.fingerprint("file", path=first)
    assert datasets.fingerprint("file", path=copy) == before
    assert datasets.load("file", path=first).fingerprint == before
    (cache / "secret").unlink()
    assert datasets.fingerprint("file", path=first) != before


def test_secret_is_for_its_owner_alone(cache):
    keyed_digest(b"")
    path = cache_folder() / "secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_bytes()) == 32
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


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
        datasets.fingerprint("file", path=path)


def test_records_given_on_request_have_keyed_fingerprints(tmp_path, cache, monkeypatch):
    """Access-controlled sets are people's own files, too."""
    generator = np.random.default_rng(0)
    packed = io.BytesIO()
    np.savez(packed, data=generator.uniform(size=(1904, 57)))
    path = tmp_path / "tcga" / "tcga.npz"
    path.parent.mkdir()
    path.write_bytes(packed.getvalue())
    first = datasets.load("tcga", mirror=tmp_path).fingerprint
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
