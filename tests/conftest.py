"""Shared fixtures: where the mirror of the original data lies, if there is one, and a cache of its own for a test."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def mirror():
    """Return the folder with the original data files, or skip the test."""
    folder = Path(os.environ.get("PKM_DATA", ROOT / ".." / "shared" / "data"))
    if not (folder / "iris" / "iris.data").is_file():
        pytest.skip("no mirror of the original data (set PKM_DATA)")
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache for data, and neither a mirror nor downloads: return the folder."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("PKM_CACHE", str(folder))
    for name in ("PKM_DATA", "PKM_DOWNLOAD"):
        monkeypatch.delenv(name, raising=False)
    return folder
